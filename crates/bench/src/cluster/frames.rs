//! One-way times of frames, and what nats-server costs.
//!
//! Hub and worker run in this process, so that both ends read one clock; nats-server is a process of its own. Each stream is
//! an utterance to which 64 ms of audio are added every 64 ms (2 KiB), or a chunk that speaks as fast. The first samples of
//! each piece say when it was handed over; its time ends where the engine (of the hub: the caller) has it. It contains the
//! wait for a processor at both ends.

use super::{BenchError, ClusterPlan, Figure, Measurement, Part, Progress, Section, Unit};
use crate::{Process, Waits};
use antiphon_cluster::testing::NatsServer;
use antiphon_cluster::worker::{Reporter, StageEngine, WorkerOptions, WorkerStage, serve};
use antiphon_cluster::{Cluster, ClusterConfig, ClusterError, Stage};
use antiphon_engine_api::stt::{Stt, SttError, SttOptions, SttUtterance, Transcript};
use antiphon_engine_api::tts::{Repeats, SpeechRequest, Tts, TtsError, Voice};
use antiphon_types::{Pcm, SampleRate};
use async_stream::stream;
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const FRAME: Duration = Duration::from_millis(64);
const N_TIMED: usize = 100;
const N_LOAD: usize = 400;
/// The same with `--quick`: a debug build on a busy machine does not open 400 streams within the hub's timeout.
const N_LOAD_QUICK: usize = 50;

const ONE_WAY_MS: f64 = 2.0;
const SERVER_PERCENT: f64 = 0.1;

/// Timeout for the worker.
const READY_WITHIN: Duration = Duration::from_secs(10);

pub(super) async fn measure(plan: &ClusterPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let length = plan.takes(20, 1);
    let n_load = plan.sessions(N_LOAD, N_LOAD_QUICK);
    let how = format!("hub and worker in one process, streams in frames of {} ms, {length:?} each", FRAME.as_millis());
    let mut section = Section::new(Part::Frames.section(), how);
    let server = NatsServer::start().await?;
    let nats = Process(server.process_id().unwrap_or(0));
    let both = Both::start(&server).await?;

    progress(&format!("cluster frames: {N_TIMED} streams to the worker"));
    let up = both.listens(N_TIMED, length).await?;
    progress(&format!("cluster frames: {N_TIMED} streams to the hub"));
    let down = both.speaks(N_TIMED, length).await?;
    progress(&format!("cluster frames: {n_load} streams to the worker"));
    let before = nats.cpu_s()?;
    let load = both.listens(n_load, length).await?;
    let percent = 100.0 * (nats.cpu_s()? - before) / length.as_secs_f64() / n_load as f64;

    for (name, streams, gate) in [
        (format!("{N_TIMED} streams to the worker"), &up, Some(ONE_WAY_MS)),
        (format!("{N_TIMED} streams to the hub"), &down, Some(ONE_WAY_MS)),
        (format!("{n_load} streams to the worker"), &load, None),
    ] {
        section.percentile(&name, &streams.waits, 50.0, None);
        section.percentile(&name, &streams.waits, 95.0, gate);
        section.percentile(&name, &streams.waits, 99.0, None);
        let lost = streams.n_sent.saturating_sub(streams.waits.len());
        let figure = Figure::new(format!("{name}: frames lost"), Unit::Count, lost as f64, streams.n_sent);
        section.figures.push(figure.at_most(0.0));
    }
    let name = format!("nats-server a stream, {n_load} streams");
    section.figures.push(Figure::new(name, Unit::PercentOfCore, percent, n_load).at_most(SERVER_PERCENT));
    let hub_cpu_s = nats.cpu_s()?;
    Ok(Measurement { section, hub_cpu_s })
}

/// A hub and a worker in this process; dropping it ends both.
struct Both {
    cluster: Cluster,
    arrived: Arc<Mutex<Waits>>,
    stop: CancellationToken,
}

/// The frames of several streams.
struct Streams {
    n_sent: usize,
    waits: Waits,
}

impl Both {
    async fn start(server: &NatsServer) -> Result<Self, BenchError> {
        let config =
            |name: &str| ClusterConfig { servers: vec![server.url()], name: name.into(), ..ClusterConfig::default() };
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let arrived = Arc::default();
        let both = Self {
            cluster: join(&config("hub"), &tasks, stop.clone()).await?,
            arrived: Arc::clone(&arrived),
            stop: stop.clone(),
        };
        let stage = |engine| WorkerStage {
            engine,
            engine_name: "stamped".into(),
            model: "stamped".into(),
            fingerprint: String::new(),
        };
        let stages =
            vec![stage(StageEngine::Stt(Arc::new(StampedStt(arrived)))), stage(StageEngine::Tts(Arc::new(StampedTts)))];
        let options = WorkerOptions {
            name: "worker".into(),
            build: env!("CARGO_PKG_VERSION"),
            drain: Duration::ZERO,
            ready: Box::new(|| ()),
            reporter: Reporter::default(),
        };
        let config = config("worker");
        let served = tasks.clone();
        tasks.spawn(async move {
            // A worker that does not serve is not found below.
            let _ = serve(&config, stages, options, &served, stop).await;
        });
        let found = timeout(READY_WITHIN, both.cluster.ready(&[Stage::Stt, Stage::Tts])).await;
        found.map_err(|_| ClusterError::NoWorker { stage: Stage::Stt })?;
        Ok(both)
    }

    /// Utterances of this length, in parallel.
    async fn listens(&self, n: usize, length: Duration) -> Result<Streams, BenchError> {
        let stt = self.cluster.stt();
        *self.arrived.lock().unwrap_or_else(PoisonError::into_inner) = Waits::default();
        let mut streams = JoinSet::new();
        for i in 0..n {
            let stt = stt.clone();
            streams.spawn(async move {
                let mut utterance = stt.open(SttOptions::default()).await.map_err(|error| error.to_string())?;
                let mut ticks = ticks(i, n);
                let n_frames = length.as_millis() / FRAME.as_millis();
                for _ in 0..n_frames {
                    ticks.tick().await;
                    utterance.push(stamped(antiphon_engine_api::stt::RATE)).await.map_err(|error| error.to_string())?;
                }
                utterance.finish().await.map_err(|error| error.to_string())?;
                Ok::<_, String>(n_frames as usize)
            });
        }
        let mut n_sent = 0;
        while let Some(ended) = streams.join_next().await {
            n_sent += ended?.map_err(BenchError::Engine)?;
        }
        let waits = std::mem::take(&mut *self.arrived.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Streams { n_sent, waits })
    }

    /// Chunks of this length, in parallel.
    async fn speaks(&self, n: usize, length: Duration) -> Result<Streams, BenchError> {
        let tts = self.cluster.tts();
        let n_frames = (length.as_millis() / FRAME.as_millis()) as usize;
        let mut streams = JoinSet::new();
        for i in 0..n {
            let request = SpeechRequest { text: format!("{i} {n} {n_frames}"), ..SpeechRequest::default() };
            let mut speech = tts.speak(request);
            streams.spawn(async move {
                let mut waits = Waits::default();
                while let Some(pcm) = speech.next().await {
                    waits.extend(age(&pcm.map_err(|error| error.to_string())?.samples).into_iter().collect());
                }
                Ok::<_, String>(waits)
            });
        }
        let mut waits = Waits::default();
        while let Some(ended) = streams.join_next().await {
            waits.extend(ended?.map_err(BenchError::Engine)?);
        }
        Ok(Streams { n_sent: n * n_frames, waits })
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A hub in this process.
pub(super) async fn join(
    config: &ClusterConfig,
    tasks: &TaskTracker,
    stop: CancellationToken,
) -> Result<Cluster, BenchError> {
    let sessions: antiphon_cluster::Sessions = Arc::new(|| (0, 0, false));
    Ok(Cluster::join(config, env!("CARGO_PKG_VERSION"), sessions, tasks, stop).await?)
}

/// The ticks of stream `i` of `n`, which begin one after the other.
fn ticks(i: usize, n: usize) -> tokio::time::Interval {
    let mut ticks = interval_at(Instant::now() + FRAME.mul_f64(i as f64 / n as f64), FRAME);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    ticks
}

/// Microseconds since the first call.
fn now_us() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(ORIGIN.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Audio of one frame that says when it was made.
fn stamped(rate: SampleRate) -> Vec<i16> {
    let mut samples = vec![0; rate.samples_in(FRAME).0 as usize];
    let bytes = now_us().to_le_bytes();
    for (sample, pair) in samples.iter_mut().zip(bytes.chunks(2)) {
        *sample = i16::from_le_bytes([pair[0], pair[1]]);
    }
    samples
}

/// The age of stamped audio, in milliseconds; `None` for audio that is no frame.
fn age(samples: &[i16]) -> Option<f64> {
    let bytes: Vec<u8> = samples.get(..4)?.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let made = u64::from_le_bytes(bytes.try_into().ok()?);
    Some(now_us().saturating_sub(made) as f64 / 1e3)
}

/// A recognizer that notes the age of what it is given.
struct StampedStt(Arc<Mutex<Waits>>);

impl Stt for StampedStt {
    fn name(&self) -> &str {
        "stamped"
    }

    fn concurrency(&self) -> usize {
        N_LOAD
    }

    fn open(&self, _: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        ready(Ok(Box::new(StampedStt(self.0.clone())) as Box<dyn SttUtterance>)).boxed()
    }
}

impl SttUtterance for StampedStt {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        age(&pcm).into_iter().for_each(|ms| waits.push_ms(ms));
        ready(Ok(())).boxed()
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        ready(Ok(None)).boxed()
    }

    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        ready(Ok(Transcript::default())).boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        ready(Ok(Transcript::default())).boxed()
    }
}

/// A voice that says when it made each piece; the text is the number of the stream, of all streams, and of its frames.
struct StampedTts;

impl Tts for StampedTts {
    fn name(&self) -> &str {
        "stamped"
    }

    fn concurrency(&self) -> usize {
        N_LOAD
    }

    fn repeats(&self, _: &SpeechRequest) -> Repeats {
        Repeats::Exactly
    }

    fn voices(&self) -> Vec<Voice> {
        vec![Voice { id: "tone".into(), name: "Tone".into(), language: "en-US".into() }]
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let numbers: Vec<usize> = request.text.split(' ').filter_map(|number| number.parse().ok()).collect();
        let [i, n, n_frames] = numbers[..] else { return futures_util::stream::empty().boxed() };
        let rate = SampleRate::HZ_24000;
        stream! {
            let mut ticks = ticks(i, n);
            for _ in 0..n_frames {
                ticks.tick().await;
                yield Ok(Pcm { rate, samples: stamped(rate) });
            }
        }
        .boxed()
    }
}
