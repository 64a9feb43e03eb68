//! A decoder is lent to who speaks, not to who might.

use super::*;
use crate::stt::fake::FakeStt;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One decoder for all.
#[derive(Clone)]
struct OneDecoder {
    free: Arc<Semaphore>,
    engine: FakeStt,
}

struct Decoding {
    utterance: Box<dyn SttUtterance>,
    _decoder: OwnedSemaphorePermit,
}

impl Stt for OneDecoder {
    fn name(&self) -> &str {
        "one"
    }

    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        let this = self.clone();
        async move {
            let _decoder = this.free.acquire_owned().await.expect("never closed");
            let utterance = this.engine.open(options).await?;
            Ok(Box::new(Decoding { utterance, _decoder }) as Box<dyn SttUtterance>)
        }
        .boxed()
    }
}

impl SttUtterance for Decoding {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        self.utterance.push(pcm)
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        self.utterance.partial()
    }

    fn guess(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        self.utterance.guess()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        self.utterance.finish()
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_falls_silent_gives_its_decoder_back_and_loses_no_word() {
    let stt = OneDecoder { free: Arc::new(Semaphore::new(1)), engine: FakeStt::default() };
    let (reports, mut inbox) = mpsc::channel(4);
    let hearing = |item: &str| {
        let (sender, feed) = mpsc::channel(FEED_PIECES);
        let (stt, options) = (Arc::new(stt.clone()), SttOptions::default());
        let (item, timeout, reports, backlog) = (item.into(), Duration::from_secs(5), reports.clone(), VecDeque::new());
        (sender, Hearing { item, stt, options, timeout, feed, backlog, reports }.run())
    };
    let ((silent, first), (brisk, second)) = (hearing("silent"), hearing("brisk"));
    let story = async {
        silent.send(Feed::Pcm(vec![0; 1_000])).await.expect("it is heard");
        tokio::task::yield_now().await;
        assert_eq!(stt.free.available_permits(), 0, "the first has the decoder");
        brisk.send(Feed::Pcm(vec![0; 300])).await.expect("it is heard");
        brisk.send(Feed::Finish { as_guessed: false }).await.expect("it is heard");
        let words = finished(&mut inbox).await;
        assert_eq!(words, "brisk: utterance of 300 samples", "while the first says nothing");
        silent.send(Feed::Pcm(vec![0; 500])).await.expect("it is heard");
        tokio::time::sleep(2 * UNFED).await;
        assert_eq!(stt.free.available_permits(), 1, "it is silent again");
        silent.send(Feed::Finish { as_guessed: false }).await.expect("it is heard");
        assert_eq!(finished(&mut inbox).await, "silent: utterance of 1500 samples", "all of it, replayed");
    };
    let heard = tokio::time::timeout(Duration::from_secs(600), async { tokio::join!(first, second, story) });
    heard.await.expect("nobody waits for ever");
}

async fn finished(inbox: &mut mpsc::Receiver<Report>) -> String {
    loop {
        if let Report::Final { item, result, .. } = inbox.recv().await.expect("it reports") {
            return format!("{item}: {}", result.expect("it is understood").text);
        }
    }
}

/// Takes 100 ms for a guess, and for ever for a partial transcript of more than a second.
struct Slow;

#[derive(Default)]
struct Slowly {
    n_samples: usize,
}

fn said(text: &str) -> Transcript {
    Transcript { text: text.into(), ..Transcript::default() }
}

impl Stt for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn open(&self, _: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        async { Ok(Box::new(Slowly::default()) as Box<dyn SttUtterance>) }.boxed()
    }
}

impl SttUtterance for Slowly {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        self.n_samples += pcm.len();
        async { Ok(()) }.boxed()
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        if self.n_samples > 16_000 {
            return std::future::pending().boxed();
        }
        async { Ok(None) }.boxed()
    }

    fn guess(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(said("guessed"))
        }
        .boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        async { Ok(said("finished")) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_partial_that_takes_long_does_not_delay_a_guess_or_the_end() {
    let speech = || Feed::Pcm(vec![1; 17_000]);
    let to_the_end = reported(vec![speech(), Feed::Ask, speech(), Feed::Finish { as_guessed: false }]).await;
    assert_eq!(to_the_end, ["final: finished"]);
    let guessed = reported(vec![speech(), Feed::Ask, Feed::Guess, Feed::Finish { as_guessed: true }]).await;
    assert_eq!(guessed, ["guess: guessed", "final: guessed", "learnt"]);
}

/// What is reported when the feed is this, and ends.
async fn reported(fed: Vec<Feed>) -> Vec<String> {
    let (reports, mut inbox) = mpsc::channel(8);
    let (sender, feed) = mpsc::channel(FEED_PIECES);
    for feed in fed {
        assert!(sender.try_send(feed).is_ok(), "there is room");
    }
    drop(sender);
    let (stt, options) = (Arc::new(Slow), SttOptions::default());
    let (item, timeout, backlog) = ("item".into(), Duration::from_secs(5), VecDeque::new());
    Hearing { item, stt, options, timeout, feed, backlog, reports }.run().await;
    let mut all = Vec::new();
    while let Ok(report) = inbox.try_recv() {
        all.extend(match report {
            Report::Guessed { text, .. } => Some(format!("guess: {text}")),
            Report::Final { result, .. } => Some(format!("final: {}", result.expect("it is understood").text)),
            Report::Learnt(..) => Some("learnt".into()),
            _ => None,
        });
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_guess_under_way_when_the_utterance_ends_is_waited_for_and_one_that_was_wrong_is_not() {
    let pcm = || Feed::Pcm(vec![0; 100]);
    let right = vec![pcm(), Feed::Guess, pcm(), Feed::Finish { as_guessed: true }];
    assert_eq!(reported(right).await, ["guess: guessed", "final: guessed", "learnt"]);
    let wrong = vec![pcm(), Feed::Guess, Feed::Resumed, pcm(), Feed::Finish { as_guessed: false }];
    assert_eq!(reported(wrong).await, ["final: finished"]);
}
