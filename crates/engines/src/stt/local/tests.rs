//! With a stream that writes down what it is asked.

use super::*;
use std::sync::{Arc, Mutex, mpsc};

/// What happened, in words.
type Log = Arc<Mutex<Vec<String>>>;

/// Hears the number of its samples; a piece that begins with -1 waits for the gate, with -2 it fails, with -3 it panics;
/// from one with -4 on no partial transcript ends by itself, from one with -5 on no guess, and from one with -6 on each fails.
struct CountingRecognizer {
    log: Log,
    gate: Arc<Mutex<mpsc::Receiver<()>>>,
    n_samples: usize,
    mode: i16,
}

impl CountingRecognizer {
    fn heard(&self, what: &str) -> Answer {
        self.log.lock().unwrap().push(format!("{what} {}", self.n_samples));
        Ok(Transcript { text: self.n_samples.to_string(), ..Transcript::default() })
    }

    fn hangs(&self, cancel: &CancellationToken) -> Answer {
        self.log.lock().unwrap().push("hangs".into());
        while !cancel.is_cancelled() {
            std::thread::yield_now();
        }
        Err(SttError::Cancelled)
    }
}

impl SttStream for CountingRecognizer {
    fn begin(&mut self, _: &SttOptions) -> Result<(), SttError> {
        self.n_samples = 0;
        self.mode = 0;
        self.log.lock().unwrap().push("begin".into());
        Ok(())
    }

    fn push(&mut self, pcm: &[i16], _: &CancellationToken) -> Result<(), SttError> {
        match pcm.first() {
            Some(-1) => drop(self.gate.lock().unwrap().recv()),
            Some(-2) => return Err(SttError::Engine { message: "on purpose".into(), source: None }),
            Some(-3) => panic!("on purpose"),
            Some(mode @ -6..=-4) => self.mode = *mode,
            _ => {}
        }
        self.n_samples += pcm.len();
        Ok(())
    }

    fn partial(&mut self, cancel: &CancellationToken) -> Answer {
        if self.mode == -4 { self.hangs(cancel) } else { self.heard("partial") }
    }

    fn provisional(&mut self, cancel: &CancellationToken) -> Answer {
        match self.mode {
            -5 => self.hangs(cancel),
            -6 => Err(SttError::Engine { message: "on purpose".into(), source: None }),
            _ => self.heard("guess"),
        }
    }

    fn finish(&mut self, _: &CancellationToken) -> Answer {
        self.heard("finish")
    }

    fn forget(&mut self) {
        self.n_samples = 0;
        self.log.lock().unwrap().push("forget".into());
    }
}

struct Bench {
    engine: Local<CountingRecognizer>,
    log: Log,
    open_gate: mpsc::Sender<()>,
}

fn bench(n_replicas: usize) -> Bench {
    let log = Log::default();
    let (open_gate, gate) = mpsc::channel();
    let gate = Arc::new(Mutex::new(gate));
    let made = log.clone();
    let make = move |_| Ok(CountingRecognizer { log: made.clone(), gate: gate.clone(), n_samples: 0, mode: 0 });
    Bench { engine: Local::start("counting", n_replicas, make).unwrap(), log, open_gate }
}

impl Bench {
    async fn open(&self) -> Box<dyn SttUtterance> {
        self.engine.open(SttOptions::default()).await.unwrap()
    }

    /// Waits for an answer until the engine is at it, and gives it up.
    async fn until_it_hangs(&self, answer: impl Future) {
        let n_hanging = || self.log.lock().unwrap().iter().filter(|line| *line == "hangs").count();
        let mut answer = pin!(answer);
        let before = n_hanging();
        while n_hanging() == before {
            assert!(poll!(&mut answer).is_pending());
            tokio::task::yield_now().await;
        }
    }

    /// What the only replica was asked since the last look, once it is free again.
    async fn log_of_one(&self) -> Vec<String> {
        drop(self.engine.pool.lease().await.unwrap());
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

#[tokio::test]
async fn every_sample_is_heard_before_the_answer() {
    let bench = bench(1);
    let mut utterance = bench.open().await;
    for n in [0, 1, 20, 4_000, 33_000] {
        utterance.push(vec![0; n]).await.unwrap();
    }
    assert_eq!(utterance.partial().await.unwrap().unwrap().text, "37021");
    utterance.push(vec![0; 9]).await.unwrap();
    assert_eq!(utterance.provisional().await.unwrap().text, "37030");
    utterance.push(vec![0; 1]).await.unwrap();
    assert_eq!(utterance.finish().await.unwrap().text, "37031");
    let log = bench.log_of_one().await;
    assert_eq!(log, ["begin", "partial 37021", "guess 37030", "finish 37031", "forget"]);
}

#[tokio::test]
async fn pushing_does_not_wait_for_the_decoder_until_it_is_a_second_behind() {
    let bench = bench(1);
    let mut utterance = bench.open().await;
    utterance.push(vec![-1; 320]).await.unwrap();
    for _ in 0..MAX_BEHIND / 320 {
        utterance.push(vec![0; 320]).await.unwrap();
    }
    assert!(utterance.push(vec![0; 320]).now_or_never().is_none());
    bench.open_gate.send(()).unwrap();
    // The piece that waited was taken all the same.
    assert_eq!(utterance.finish().await.unwrap().text, (MAX_BEHIND + 640).to_string());
}

#[tokio::test]
async fn a_partial_under_way_is_given_up_for_a_guess_and_for_the_end() {
    let bench = bench(1);
    let mut utterance = bench.open().await;
    utterance.push(vec![-4; 320]).await.unwrap();
    bench.until_it_hangs(utterance.partial()).await;
    assert_eq!(utterance.provisional().await.unwrap().text, "320");
    bench.until_it_hangs(utterance.partial()).await;
    utterance.push(vec![0; 30]).await.unwrap();
    assert_eq!(utterance.finish().await.unwrap().text, "350");
    assert_eq!(bench.log_of_one().await, ["begin", "hangs", "guess 320", "hangs", "finish 350", "forget"]);
}

#[tokio::test]
async fn a_guess_that_the_speaker_overtakes_is_given_up_with_the_next_piece() {
    let bench = bench(1);
    let mut utterance = bench.open().await;
    utterance.push(vec![-5; 320]).await.unwrap();
    bench.until_it_hangs(utterance.provisional()).await;
    utterance.push(vec![-5; 30]).await.unwrap();
    // It would not end by itself: the second piece is heard behind it.
    assert_eq!(utterance.partial().await.unwrap().unwrap().text, "350");
    assert_eq!(utterance.finish().await.unwrap().text, "350");
    assert_eq!(bench.log_of_one().await, ["begin", "hangs", "partial 350", "finish 350", "forget"]);
}

#[tokio::test]
async fn a_guess_that_fails_is_none_and_the_end_is_asked_all_the_same() {
    let bench = bench(1);
    let mut utterance = bench.open().await;
    utterance.push(vec![-6; 320]).await.unwrap();
    assert!(utterance.provisional().await.unwrap_err().to_string().contains("on purpose"));
    utterance.push(vec![0; 30]).await.unwrap();
    assert_eq!(utterance.finish().await.unwrap().text, "350");
}

#[tokio::test]
async fn nothing_of_an_utterance_stays_in_its_replica_however_it_ends() {
    let bench = bench(1);
    let mut guessed = bench.open().await;
    guessed.push(vec![0; 320]).await.unwrap();
    guessed.provisional().await.unwrap();
    assert_eq!(guessed.learn().await, None);
    assert_eq!(bench.log_of_one().await, ["begin", "guess 320", "forget"]);

    let mut failed = bench.open().await;
    let _ = failed.push(vec![-2; 320]).await;
    assert!(failed.finish().await.is_err());
    assert_eq!(bench.log_of_one().await, ["begin", "forget"]);

    let mut dropped = bench.open().await;
    dropped.push(vec![-5; 320]).await.unwrap();
    bench.until_it_hangs(dropped.provisional()).await;
    drop(dropped);
    assert_eq!(bench.log_of_one().await, ["begin", "hangs", "forget"]);
}

#[tokio::test]
async fn a_dropped_utterance_frees_its_replica_midway_and_clean() {
    let bench = bench(1);
    let mut utterance = bench.open().await;
    // The first stride waits at the gate; the others are not decoded any more.
    utterance.push(vec![-1; 10 * STRIDE]).await.unwrap();
    drop(utterance);
    bench.open_gate.send(()).unwrap();
    let mut next = bench.open().await;
    next.push(vec![0; 5]).await.unwrap();
    assert_eq!(next.finish().await.unwrap().text, "5");
    assert_eq!(bench.log_of_one().await, ["begin", "forget", "begin", "finish 5", "forget"]);
}

#[tokio::test]
async fn a_failed_utterance_stays_failed_and_the_next_one_is_well() {
    let bench = bench(1);
    for first in [-2, -3] {
        let mut utterance = bench.open().await;
        // A quick replica shows the failure at the push already; the provisional transcript at the latest.
        let _ = utterance.push(vec![first; 320]).await;
        assert!(utterance.provisional().await.is_err(), "{first}");
        assert!(utterance.push(vec![0; 320]).await.is_err(), "{first}");
        assert!(utterance.finish().await.unwrap_err().to_string().contains("failed before"), "{first}");
        assert_eq!(bench.open().await.finish().await.unwrap().text, "0", "{first}");
    }
}

#[tokio::test]
async fn opening_waits_its_turn_and_is_busy_past_the_bound() {
    let bench = bench(1);
    let first = bench.open().await;
    let mut waiting: Vec<_> = (0..WAITING_PER_REPLICA).map(|_| bench.engine.open(SttOptions::default())).collect();
    for open in &mut waiting {
        assert!(open.now_or_never().is_none());
    }
    let refused = bench.engine.open(SttOptions::default()).await.err();
    assert!(matches!(refused, Some(SttError::Busy { waiting: WAITING_PER_REPLICA })), "{refused:?}");
    drop(first);
    let mut order = Vec::new();
    for (i, open) in waiting.into_iter().enumerate() {
        drop(open.await.unwrap());
        order.push(i);
    }
    assert_eq!(order.len(), WAITING_PER_REPLICA);
}

#[tokio::test]
async fn two_utterances_never_share_a_replica() {
    let bench = bench(2);
    let mut a = bench.open().await;
    let mut b = bench.open().await;
    for _ in 0..10 {
        a.push(vec![0; 100]).await.unwrap();
        b.push(vec![0; 7]).await.unwrap();
    }
    let (a, b) = tokio::join!(a.finish(), b.finish());
    assert_eq!((a.unwrap().text.as_str(), b.unwrap().text.as_str()), ("1000", "70"));
}

#[test]
fn it_decodes_as_many_utterances_at_once_as_it_has_replicas() {
    assert_eq!([1, 3].map(|n| bench(n).engine.concurrency()), [1, 3]);
}
