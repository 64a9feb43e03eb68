//! Load on one stage: what `antiphon-bench tts`, `stt` and `llm` run.
//!
//! A fixed number of requests is kept in flight; the time to the first output, the total time and the amount of output
//! of each are recorded. The engine is called through its port, so that the configured engine in this process and any
//! server with OpenAI's API, including its network, are measured by the same code. The first requests of each worker
//! are a warm-up and are not counted. Nothing here prints.
//!
//! Latency is the time from the request to the end of its output; TTFA and TTFT are the times to the first audio or
//! token. RTF is the latency divided by the playing time of the audio; `times real time` is the audio of all requests
//! divided by the duration of the run.

mod llm;
mod outcome;
mod page;
mod streams;
mod stt;
mod tts;

pub use llm::LlmStage;
pub use outcome::Outcome;
pub use page::page;
pub use streams::streams;
pub use stt::{Clip, SttStage, clips, spoken};
pub use tts::TtsStage;

use super::Progress;
use antiphon_telemetry::gpu::{Card, Cards};
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// Interval at which queue and graphics cards are sampled and progress is reported.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A stage under load.
#[async_trait]
pub trait Stage: Send + Sync {
    /// `tts`, `stt` or `llm`.
    fn name(&self) -> &'static str;

    /// Runs the `n`th request, from 0. The error states why it failed.
    async fn ask(&self, n: usize) -> Result<Answer, String>;

    /// Number of requests queued in the engine.
    fn waiting(&self) -> usize;
}

/// The result of one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Time from the request to the first audio or token.
    pub first: Option<Duration>,
    /// Playing time of the audio synthesized or transcribed.
    pub audio: Duration,
    /// Number of tokens generated.
    pub tokens: u64,
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// Concurrent requests.
    pub concurrency: usize,
    /// Length of the run.
    pub length: Length,
    /// Requests per worker that are not counted.
    pub warm_up: usize,
    /// Timeout of a request.
    pub patience: Duration,
}

/// Length of a run.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// This many counted requests.
    Requests(usize),
    /// This much time; requests in flight are still completed.
    For(Duration),
}

/// One counted request.
#[derive(Clone, Debug)]
pub struct Shot {
    /// Start time, from the start of the counted part.
    pub at: Duration,
    /// Duration and result; an error states why it failed.
    pub result: Result<(Duration, Answer), String>,
}

/// The state of the engine and the graphics cards at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// Time since the start.
    pub at: Duration,
    /// Number of queued requests.
    pub waiting: usize,
    /// State of the graphics cards.
    pub cards: Vec<Card>,
}

/// Runs the load. Dropping the future cancels it.
pub async fn run(stage: Arc<dyn Stage>, drive: Drive, progress: Progress<'_>) -> Outcome {
    warm_up(&stage, drive, progress).await;
    let begun = Instant::now();
    let next = Arc::new(AtomicUsize::new(0));
    let done = Arc::new(AtomicUsize::new(0));
    let mut places = JoinSet::new();
    for _ in 0..drive.concurrency {
        let stage = stage.clone();
        let next = next.clone();
        let done = done.clone();
        places.spawn(async move {
            let mut shots = Vec::new();
            loop {
                let n = next.fetch_add(1, Relaxed);
                let is_over = match drive.length {
                    Length::Requests(most) => n >= most,
                    Length::For(time) => begun.elapsed() >= time,
                };
                if is_over {
                    return shots;
                }
                let at = begun.elapsed();
                let asked = Instant::now();
                let answer = timeout(drive.patience, stage.ask(n)).await;
                let answer = answer.unwrap_or_else(|_| Err(format!("no end after {:?}", drive.patience)));
                shots.push(Shot { at, result: answer.map(|answer| (asked.elapsed(), answer)) });
                done.fetch_add(1, Relaxed);
            }
        });
    }
    let mut shots = Vec::new();
    let mut looks = Vec::new();
    let mut last = String::new();
    let cards = spawn_blocking(Cards::open).await.ok().flatten().map(Arc::new);
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            ended = places.join_next() => match ended {
                Some(ended) => shots.extend(ended.expect("a place does not panic")),
                None => break,
            },
            _ = ticks.tick() => {
                let at = begun.elapsed();
                looks.push(Look { at, waiting: stage.waiting(), cards: read(cards.as_ref()).await });
                let line = progress_line(stage.name(), &drive, done.load(Relaxed), at);
                if line != last {
                    progress(&line);
                    last = line;
                }
            }
        }
    }
    let took = begun.elapsed();
    shots.sort_by_key(|shot| shot.at);
    Outcome { stage: stage.name(), concurrency: drive.concurrency, took, shots, looks }
}

async fn warm_up(stage: &Arc<dyn Stage>, drive: Drive, progress: Progress<'_>) {
    let mut places = JoinSet::new();
    for place in 0..drive.concurrency {
        let stage = stage.clone();
        places.spawn(async move {
            for n in 0..drive.warm_up {
                // An error here will occur again in the counted part.
                let _ = timeout(drive.patience, stage.ask(place + n)).await;
            }
        });
    }
    progress(&format!("{}: warming up", stage.name()));
    while places.join_next().await.is_some() {}
}

async fn read(cards: Option<&Arc<Cards>>) -> Vec<Card> {
    let Some(cards) = cards.cloned() else { return Vec::new() };
    spawn_blocking(move || cards.read()).await.unwrap_or_default()
}

fn progress_line(name: &str, drive: &Drive, done: usize, at: Duration) -> String {
    let of = match drive.length {
        Length::Requests(most) => format!(" of {most}"),
        Length::For(time) => format!(", {} of {} s", at.as_secs(), time.as_secs()),
    };
    format!("{name}: {done}{of} requests done, {} at a time", drive.concurrency)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes 100 ms, the first audio after 40 ms; every fifth request fails.
    struct Metronome;

    #[async_trait]
    impl Stage for Metronome {
        fn name(&self) -> &'static str {
            "tts"
        }

        async fn ask(&self, n: usize) -> Result<Answer, String> {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if n % 5 == 4 {
                return Err("told <to> fail".into());
            }
            Ok(Answer { first: Some(Duration::from_millis(40)), audio: Duration::from_secs(1), tokens: 0 })
        }

        fn waiting(&self) -> usize {
            3
        }
    }

    async fn run_it(length: Length) -> Outcome {
        let drive = Drive { concurrency: 4, length, warm_up: 2, patience: Duration::from_secs(9) };
        run(Arc::new(Metronome), drive, &|_| {}).await
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_requests_are_made_and_no_more_at_a_time() {
        let outcome = run_it(Length::Requests(20)).await;
        assert_eq!((outcome.shots.len(), outcome.n_failed()), (20, 4));
        // Paused time advances only while sleeping: five rounds of four.
        assert!((500..520).contains(&outcome.took.as_millis()), "{:?}", outcome.took);
        let section = outcome.section("how");
        let figure = |name: &str| section.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value);
        assert!((1_850.0..=1_920.0).contains(&figure("throughput").expect("told")), "{section:?}");
        assert!((30.0..=32.0).contains(&figure("times real time").expect("told")));
        assert_eq!((figure("TTFA p50"), figure("queue depth max")), (Some(40.0), Some(3.0)));
        assert_eq!(figure("latency p99"), Some(f64::INFINITY), "one that failed never ended");
        assert!((0.1..0.105).contains(&figure("RTF p50").expect("told")));
        let html = page(&outcome, &section);
        assert!(html.contains("told &lt;to&gt; fail") && html.contains("<circle") && !html.contains("<script"));
    }

    #[tokio::test(start_paused = true)]
    async fn or_for_so_long() {
        let outcome = run_it(Length::For(Duration::from_millis(950))).await;
        assert_eq!(outcome.shots.len(), 40);
        assert_eq!(outcome.json()["shots"].as_array().map(Vec::len), Some(40));
    }
}
