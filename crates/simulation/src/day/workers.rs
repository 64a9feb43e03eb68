//! The simulated engine workers of a day: queues with slots, of which the better of two serves, and a language model's server.
//!
//! A request to a recognizer or a voice draws two of the workers that are up, and takes the one with the shorter estimated wait, by the
//! hub's own estimate ([`antiphon_cluster::estimate`]). One whose worker is lost begins again on another one.

use antiphon::replay::Dice;
use antiphon_cluster::{Stage, StageLoad, estimate};
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_engine_api::llm::{Llm, LlmDelta, LlmError};
use antiphon_engine_api::stt::{Stt, SttError, SttOptions, SttUtterance, Transcript};
use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError, Voice};
use antiphon_types::chat::{ChatRequest, Finish};
use antiphon_types::{Pcm, SampleRate};
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Silence after which a hub takes a worker for lost (`cluster/hub/directory.rs`).
const SILENT: Duration = Duration::from_millis(750);

/// Mean time of a transcript in its slot, in milliseconds.
const STT_MS: f64 = 40.0;

/// Mean time of a chunk of speech in its slot, to its end, in milliseconds.
const TTS_MS: f64 = 80.0;

/// Mean time to the model's first token, in milliseconds.
const LLM_MS: f64 = 70.0;

/// Sound of a chunk.
const CHUNK_MS: u64 = 300;

/// What all engines of a day share. Clones are the same.
#[derive(Clone)]
pub(super) struct Workers(Arc<WorkerPool>);

struct WorkerPool {
    workers: Vec<Worker>,
    slots: usize,
    state: Mutex<State>,
    llm_live: AtomicUsize,
    retried: AtomicUsize,
}

struct State {
    dice: Dice,
    /// How many times slower the model's server is than usual.
    slowdown: f64,
}

struct Worker {
    /// Cancelled while it is down.
    lost: Mutex<CancellationToken>,
    stt: Station,
    tts: Station,
}

/// One stage of one worker.
struct Station {
    slots: Semaphore,
    in_flight: AtomicUsize,
}

impl Workers {
    /// So many workers with so many slots for each stage.
    pub(super) fn new(n: usize, slots: usize, dice: Dice) -> Self {
        let station = || Station { slots: Semaphore::new(slots), in_flight: AtomicUsize::new(0) };
        let worker = || Worker { lost: Mutex::default(), stt: station(), tts: station() };
        let workers = std::iter::repeat_with(worker).take(n).collect();
        let state = Mutex::new(State { dice, slowdown: 1.0 });
        Self(Arc::new(WorkerPool {
            workers,
            slots,
            state,
            llm_live: AtomicUsize::new(0),
            retried: AtomicUsize::new(0),
        }))
    }

    /// The hub's engines.
    pub(super) fn engines(&self) -> Engines {
        let all = Arc::new(self.clone());
        Engines { vad: Arc::new(FakeVad), turn: None, speaker: None, stt: all.clone(), llm: all.clone(), tts: all }
    }

    /// The last worker is lost, or back.
    pub(super) fn lose_last(&self, lost: bool) {
        let Some(worker) = self.0.workers.last() else { return };
        let mut token = lock(&worker.lost);
        match lost {
            true => token.cancel(),
            false if token.is_cancelled() => *token = CancellationToken::new(),
            false => {}
        }
    }

    /// The model's server is this many times slower than usual.
    pub(super) fn slow_down(&self, times: f64) {
        lock(&self.0.state).slowdown = times;
    }

    /// Requests that are being served or wait.
    pub(super) fn n_live(&self) -> usize {
        let stations = self.0.workers.iter().flat_map(|worker| [&worker.stt, &worker.tts]);
        let served: usize = stations.map(|station| station.in_flight.load(Ordering::Relaxed)).sum();
        served + self.0.llm_live.load(Ordering::Relaxed)
    }

    /// Requests that began again because their worker was lost.
    pub(super) fn n_retried(&self) -> usize {
        self.0.retried.load(Ordering::Relaxed)
    }

    fn n_waiting(&self, stage: Stage) -> usize {
        self.0.workers.iter().map(|worker| worker.in_flight(stage).saturating_sub(self.0.slots)).sum()
    }

    fn n_in_service(&self, stage: Stage) -> usize {
        self.0.workers.iter().map(|worker| worker.in_flight(stage).min(self.0.slots)).sum()
    }

    fn n_slots(&self) -> usize {
        self.0.slots * self.0.workers.iter().filter(|worker| !lock(&worker.lost).is_cancelled()).count()
    }

    /// A service time: Erlang of order 4, less spread than an exponential one.
    fn time(&self, mean_ms: f64) -> Duration {
        let mut state = lock(&self.0.state);
        let ms: f64 = (0..4).map(|_| state.dice.exponential(mean_ms / 4.0)).sum();
        Duration::from_secs_f64(ms / 1e3)
    }

    /// The better of two workers that are up, drawn at random.
    fn pick(&self, stage: Stage, service_ms: f64) -> Option<&Worker> {
        let up: Vec<&Worker> = self.0.workers.iter().filter(|worker| !lock(&worker.lost).is_cancelled()).collect();
        let (one, other) = {
            let dice = &mut lock(&self.0.state).dice;
            let one = dice.below(up.len().max(1));
            let other = (one + 1 + dice.below(up.len().saturating_sub(1).max(1))) % up.len().max(1);
            (*up.get(one)?, *up.get(other)?)
        };
        let load = |worker: &Worker| {
            let in_flight = worker.in_flight(stage);
            let model = String::new();
            let fingerprint = String::new();
            let slots = self.0.slots;
            let service_ms = service_ms as f32;
            estimate(
                &StageLoad { stage, model, fingerprint, slots, in_flight, service_ms, wait_ms: 0.0, rate_hz: 0 },
                in_flight,
            )
        };
        Some(if load(other) < load(one) { other } else { one })
    }

    /// One request, from its arrival to its end.
    async fn serve(&self, stage: Stage, mean_ms: f64) {
        loop {
            let Some(worker) = self.pick(stage, mean_ms) else {
                sleep(SILENT).await;
                continue;
            };
            let lost = lock(&worker.lost).clone();
            let station = worker.station(stage);
            let _in_flight = InFlight::enter(&station.in_flight);
            let work = async {
                let _slot = station.slots.acquire().await;
                sleep(self.time(mean_ms)).await;
            };
            tokio::select! {
                biased;
                () = lost.cancelled() => {
                    self.0.retried.fetch_add(1, Ordering::Relaxed);
                    sleep(SILENT).await;
                }
                () = work => return,
            }
        }
    }
}

impl Worker {
    fn station(&self, stage: Stage) -> &Station {
        if stage == Stage::Stt { &self.stt } else { &self.tts }
    }

    fn in_flight(&self, stage: Stage) -> usize {
        self.station(stage).in_flight.load(Ordering::Relaxed)
    }
}

/// Counts a request while it lives.
struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stt for Workers {
    fn name(&self) -> &str {
        "simulated"
    }

    fn concurrency(&self) -> usize {
        self.n_slots().max(1)
    }

    fn waiting(&self) -> usize {
        self.n_waiting(Stage::Stt)
    }

    fn in_service(&self) -> usize {
        self.n_in_service(Stage::Stt)
    }

    fn open(&self, _: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        ready(Ok(Box::new(self.clone()) as Box<dyn SttUtterance>)).boxed()
    }
}

impl SttUtterance for Workers {
    fn push(&mut self, _: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        ready(Ok(())).boxed()
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        ready(Ok(None)).boxed()
    }

    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        async move {
            self.serve(Stage::Stt, STT_MS).await;
            Ok(Transcript { text: "A question.".into(), ..Transcript::default() })
        }
        .boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        async move { self.provisional().await }.boxed()
    }
}

impl Llm for Workers {
    fn name(&self) -> &str {
        "simulated"
    }

    fn stream(&self, _: ChatRequest) -> BoxStream<'static, Result<LlmDelta, LlmError>> {
        let this = self.clone();
        async_stream::stream! {
            let _live = InFlight::enter(&this.0.llm_live);
            let slowdown = lock(&this.0.state).slowdown;
            sleep(this.time(LLM_MS * slowdown)).await;
            yield Ok(LlmDelta::Text("This is the first sentence of it. ".into()));
            sleep(this.time(LLM_MS * slowdown)).await;
            yield Ok(LlmDelta::Text("And this is the last one.".into()));
            yield Ok(LlmDelta::Done { finish: Finish::Stop, usage: None });
        }
        .boxed()
    }
}

impl Tts for Workers {
    fn name(&self) -> &str {
        "simulated"
    }

    fn concurrency(&self) -> usize {
        self.n_slots().max(1)
    }

    fn waiting(&self) -> usize {
        self.n_waiting(Stage::Tts)
    }

    fn in_service(&self) -> usize {
        self.n_in_service(Stage::Tts)
    }

    fn voices(&self) -> Vec<Voice> {
        vec![Voice { id: "tone".into(), name: "Tone".into(), language: "en-US".into() }]
    }

    fn speak(&self, _: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let this = self.clone();
        async_stream::stream! {
            this.serve(Stage::Tts, TTS_MS).await;
            let rate = SampleRate::HZ_24000;
            yield Ok(Pcm { rate, samples: vec![1_000; (u64::from(rate.hz()) * CHUNK_MS / 1_000) as usize] });
        }
        .boxed()
    }
}
