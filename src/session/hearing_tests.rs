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
