//! With a stream that writes down what it is asked.

use super::*;
use std::sync::{Arc, Mutex, mpsc};

/// What happened, in words.
type Log = Arc<Mutex<Vec<String>>>;

/// Hears the number of its samples; a sample of -1 waits for the gate, -2 fails, -3 panics, and of one that begins with
/// -4 no partial transcript ends by itself.
struct Counting {
    log: Log,
    gate: Arc<Mutex<mpsc::Receiver<()>>>,
    n_samples: usize,
    hangs: bool,
}

impl Counting {
    fn heard(&self, what: &str) -> Answer {
        self.log.lock().unwrap().push(format!("{what} {}", self.n_samples));
        Ok(Transcript { text: self.n_samples.to_string(), ..Transcript::default() })
    }
}

impl SttStream for Counting {
    fn begin(&mut self, _: &SttOptions) -> Result<(), SttError> {
        (self.n_samples, self.hangs) = (0, false);
        self.log.lock().unwrap().push("begin".into());
        Ok(())
    }

    fn push(&mut self, pcm: &[i16], _: &CancellationToken) -> Result<(), SttError> {
        match pcm.first() {
            Some(-1) => drop(self.gate.lock().unwrap().recv()),
            Some(-2) => return Err(SttError::Engine { message: "on purpose".into(), source: None }),
            Some(-3) => panic!("on purpose"),
            Some(-4) => self.hangs = true,
            _ => {}
        }
        self.n_samples += pcm.len();
        Ok(())
    }

    fn partial(&mut self, cancel: &CancellationToken) -> Answer {
        if self.hangs {
            while !cancel.is_cancelled() {
                std::thread::yield_now();
            }
            return Err(SttError::Cancelled);
        }
        self.heard("partial")
    }

    fn guess(&mut self, _: &CancellationToken) -> Answer {
        self.heard("guess")
    }

    fn finish(&mut self, _: &CancellationToken) -> Answer {
        self.heard("finish")
    }
}

struct Bench {
    engine: Local<Counting>,
    log: Log,
    open_gate: mpsc::Sender<()>,
}

fn bench(n_replicas: usize) -> Bench {
    let log = Log::default();
    let (open_gate, gate) = mpsc::channel();
    let gate = Arc::new(Mutex::new(gate));
    let made = log.clone();
    let make = move || Ok(Counting { log: made.clone(), gate: gate.clone(), n_samples: 0, hangs: false });
    Bench { engine: Local::start("counting", n_replicas, make).unwrap(), log, open_gate }
}

impl Bench {
    async fn open(&self) -> Box<dyn SttUtterance> {
        self.engine.open(SttOptions::default()).await.unwrap()
    }

    fn log(&self) -> Vec<String> {
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
    assert_eq!(utterance.guess().await.unwrap().text, "37030");
    utterance.push(vec![0; 1]).await.unwrap();
    assert_eq!(utterance.finish().await.unwrap().text, "37031");
    assert_eq!(bench.log(), ["begin", "partial 37021", "guess 37030", "finish 37031"]);
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
async fn an_answer_nobody_waited_for_does_not_disturb_the_next() {
    let bench = bench(1);
    let mut utterance = bench.open().await;
    utterance.push(vec![-1; 320]).await.unwrap();
    assert!(utterance.guess().now_or_never().is_none());
    bench.open_gate.send(()).unwrap();
    utterance.push(vec![0; 320]).await.unwrap();
    assert_eq!(utterance.finish().await.unwrap().text, "640");
}

#[tokio::test]
async fn a_partial_under_way_is_given_up_for_a_guess_and_for_the_end() {
    let bench = bench(1);
    let mut utterance = bench.open().await;
    utterance.push(vec![-4; 320]).await.unwrap();
    assert!(utterance.partial().now_or_never().is_none());
    assert_eq!(utterance.guess().await.unwrap().text, "320");
    assert!(utterance.partial().now_or_never().is_none());
    utterance.push(vec![0; 30]).await.unwrap();
    assert_eq!(utterance.finish().await.unwrap().text, "350");
    assert_eq!(bench.log(), ["begin", "guess 320", "finish 350"]);
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
    assert_eq!(bench.log(), ["begin", "begin", "finish 5"]);
}

#[tokio::test]
async fn a_failed_utterance_stays_failed_and_the_next_one_is_well() {
    let bench = bench(1);
    for first in [-2, -3] {
        let mut utterance = bench.open().await;
        // A quick lane shows the failure at the push already; the guess shows it at the latest.
        let _ = utterance.push(vec![first; 320]).await;
        assert!(utterance.guess().await.is_err(), "{first}");
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
    let (mut a, mut b) = (bench.open().await, bench.open().await);
    for _ in 0..10 {
        a.push(vec![0; 100]).await.unwrap();
        b.push(vec![0; 7]).await.unwrap();
    }
    let (a, b) = tokio::join!(a.finish(), b.finish());
    assert_eq!((a.unwrap().text.as_str(), b.unwrap().text.as_str()), ("1000", "70"));
}
