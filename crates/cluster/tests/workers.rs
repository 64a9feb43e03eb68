//! Hubs and workers on a real nats-server: what a session gets when all is well, and when a worker or the server is gone.

use antiphon_cluster::frame::{Frame, Kind};
use antiphon_cluster::subject;
use antiphon_cluster::testing::NatsServer;
use antiphon_cluster::worker::{Reporter, StageEngine, WorkerOptions, WorkerStage, serve};
use antiphon_cluster::{Cluster, ClusterConfig, ClusterError, Stage};
use antiphon_engine_api::Hop;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::fakes::turn::FakeTurnModel;
use antiphon_engine_api::stt::{SttError, SttOptions};
use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError};
use antiphon_types::Pcm;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// No test waits longer for one thing.
const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A worker on a thread and a runtime of its own.
struct Worker {
    stop: CancellationToken,
    orders: mpsc::Sender<Order>,
    ended: oneshot::Receiver<Result<(), ClusterError>>,
}

/// What happens to a worker from outside.
enum Order {
    /// Its connection breaks and nothing of it runs any more, as with SIGKILL.
    Kill,
    /// Nothing of it runs for this long, and its connection stays, as between SIGSTOP and SIGCONT.
    Freeze(Duration),
}

/// The engines of a worker.
#[derive(Clone, Default)]
struct Stages {
    stt: Option<FakeStt>,
    tts: Option<FakeTts>,
    turn: Option<FakeTurnModel>,
    fingerprint: &'static str,
    /// The name of the models; empty: "fake".
    model: &'static str,
}

impl Stages {
    fn all() -> Self {
        Self {
            stt: Some(FakeStt::hears(["hello there"]).with_partials()),
            tts: Some(FakeTts::default()),
            turn: Some(FakeTurnModel::says(0.75)),
            fingerprint: "f",
            model: "",
        }
    }

    fn speaking(tts: FakeTts) -> Self {
        Self { tts: Some(tts), ..Self::default() }
    }

    fn hearing(stt: FakeStt) -> Self {
        Self { stt: Some(stt), ..Self::default() }
    }

    fn stages(self) -> Vec<WorkerStage> {
        let stage = |engine| WorkerStage {
            engine,
            engine_name: "fake".into(),
            model: if self.model.is_empty() { "fake" } else { self.model }.into(),
            fingerprint: self.fingerprint.into(),
        };
        let stt = self.stt.map(|engine| stage(StageEngine::Stt(Arc::new(engine))));
        let tts = self.tts.map(|engine| stage(StageEngine::Tts(Arc::new(engine))));
        let turn = self.turn.map(|model| stage(StageEngine::Turn(Arc::new(model))));
        stt.into_iter().chain(tts).chain(turn).collect()
    }
}

fn config(servers: Vec<String>) -> ClusterConfig {
    ClusterConfig { servers, name: "test".into(), ..ClusterConfig::default() }
}

impl Worker {
    async fn start(server: &str, name: &str, stages: Stages) -> Result<Self, ClusterError> {
        Self::with(config(vec![server.to_owned()]), name, stages).await
    }

    async fn with(config: ClusterConfig, name: &str, stages: Stages) -> Result<Self, ClusterError> {
        let stop = CancellationToken::new();
        let (ready_sender, ready) = oneshot::channel();
        let (ended_sender, mut ended) = oneshot::channel();
        let (orders, mut received) = mpsc::channel(4);
        let options = WorkerOptions {
            name: name.into(),
            build: "1.2.3",
            drain: Duration::from_secs(5),
            ready: Box::new(|| {
                let _ = ready_sender.send(());
            }),
            reporter: Reporter::default(),
        };
        let stopped = stop.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let tasks = TaskTracker::new();
            let served = runtime.block_on(async {
                let mut serving = std::pin::pin!(serve(&config, stages.stages(), options, &tasks, stopped));
                loop {
                    tokio::select! {
                        served = &mut serving => return Some(served),
                        order = received.recv() => match order {
                            Some(Order::Freeze(time)) => std::thread::sleep(time),
                            Some(Order::Kill) | None => return None,
                        },
                    }
                }
            });
            runtime.shutdown_background();
            served.map(|served| ended_sender.send(served))
        });
        tokio::select! {
            Ok(()) = ready => Ok(Self { stop, orders, ended }),
            served = &mut ended => Err(served.expect("an end").expect_err("it serves until it is stopped")),
        }
    }

    fn kill(&self) {
        self.orders.try_send(Order::Kill).expect("it runs");
    }

    fn freeze(&self, time: Duration) {
        self.orders.try_send(Order::Freeze(time)).expect("it runs");
    }

    /// Sends the signal to stop, and waits until it has.
    async fn stop(self) -> Result<(), ClusterError> {
        self.stop.cancel();
        timeout(TEST_TIMEOUT, self.ended).await.expect("it ends").expect("in peace")
    }
}

/// A hub in this process.
struct Hub {
    cluster: Cluster,
    stop: CancellationToken,
}

impl Hub {
    async fn join(servers: Vec<String>) -> Self {
        Self::of(&config(servers)).await
    }

    async fn of(config: &ClusterConfig) -> Self {
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let sessions: antiphon_cluster::Sessions = Arc::new(|| (3, 10, false));
        let cluster = Cluster::join(config, "1.2.3", sessions, &tasks, stop.clone()).await.expect("joined");
        Self { cluster, stop }
    }

    async fn with(server: &NatsServer, stages: &[Stage]) -> Self {
        let hub = Self::join(vec![server.url()]).await;
        timeout(TEST_TIMEOUT, hub.cluster.ready(stages)).await.expect("a worker is found");
        hub
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn request(text: &str) -> SpeechRequest {
    SpeechRequest { text: text.into(), voice: "tone".into(), hop: Hop::requested(), ..SpeechRequest::default() }
}

async fn spoken(mut speech: BoxStream<'static, Result<Pcm, TtsError>>) -> Result<Vec<i16>, TtsError> {
    let mut samples = Vec::new();
    while let Some(pcm) = timeout(TEST_TIMEOUT, speech.next()).await.expect("it goes on") {
        samples.extend(pcm?.samples);
    }
    Ok(samples)
}

/// How many requests its workers have accepted and not finished, and how many workers there are.
fn load(hub: &Hub) -> (usize, usize) {
    let workers = hub.cluster.overview().workers;
    (workers.iter().flat_map(|worker| &worker.stages).map(|stage| stage.in_flight).sum(), workers.len())
}

/// Waits until the hub sees the cluster so.
async fn until(hub: &Hub, what: &str, is_so: impl Fn(&Hub) -> bool) {
    let seen = async {
        while !is_so(hub) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, seen).await.unwrap_or_else(|_| panic!("{what}: {:?}", hub.cluster.overview()));
}

/// Two workers with these engines, and a hub that knows both.
async fn pair(server: &NatsServer, stages: &Stages) -> (Worker, Worker, Hub) {
    unlike_pair(server, stages.clone(), stages.clone()).await
}

/// Two workers with engines of their own, and a hub that knows both.
async fn unlike_pair(server: &NatsServer, ones: Stages, others: Stages) -> (Worker, Worker, Hub) {
    let one = Worker::start(&server.url(), "one", ones).await.expect("it serves");
    let other = Worker::start(&server.url(), "other", others).await.expect("it serves");
    let hub = Hub::join(vec![server.url()]).await;
    until(&hub, "two workers", |hub| {
        let workers = hub.cluster.overview().workers;
        workers.len() == 2 && workers.iter().all(|worker| worker.stages.iter().all(|stage| stage.engine == "fake"))
    })
    .await;
    (one, other, hub)
}

/// The worker that serves something, and the other one.
fn serving<'a>(hub: &Hub, one: &'a Worker, other: &'a Worker) -> (&'a Worker, &'a Worker) {
    let workers = hub.cluster.overview().workers;
    let serving = workers.iter().find(|worker| worker.in_use > 0).expect("one of them serves");
    if serving.name == "one" { (one, other) } else { (other, one) }
}

const LONG: &str = "One two three four five six seven eight nine ten eleven twelve.";

/// Speaks as slowly as a listener hears, some 3 s for [`LONG`].
fn slow() -> FakeTts {
    FakeTts::default().delayed(Duration::from_millis(30))
}

#[tokio::test]
async fn a_session_gets_the_same_from_a_worker_as_from_its_own_engines() {
    let server = NatsServer::start().await.expect("a server");
    let _worker = Worker::start(&server.url(), "w", Stages::all()).await.expect("it serves");
    let hub = Hub::with(&server, &Stage::ALL).await;

    let text = "A sentence of some length.";
    let asked = request(text);
    let samples = spoken(hub.cluster.tts().speak(asked.clone())).await.expect("spoken");
    let own = spoken(FakeTts::default().speak(request(text))).await.expect("spoken");
    assert!(!own.is_empty() && samples == own, "{} and {} samples", samples.len(), own.len());
    let served = asked.hop.get().expect("the worker is named");
    assert_eq!((served.worker.as_str(), served.retried), ("w", 0));
    assert!(served.network < Duration::from_secs(1), "{:?}", served.network);

    let options = SttOptions { hop: Hop::requested(), ..SttOptions::default() };
    let mut utterance = hub.cluster.stt().open(options.clone()).await.expect("opened");
    utterance.push(vec![7; 40_000]).await.expect("taken");
    let partial = utterance.partial().await.expect("words").expect("some");
    assert_eq!(partial.text, "hello there");
    assert_eq!(utterance.provisional().await.expect("words").text, "hello there");
    assert_eq!(utterance.finish().await.expect("words").text, "hello there");
    assert_eq!(options.hop.get().expect("named").worker, "w");
    // The script is at its end: the fake counts what it has heard.
    let mut utterance = hub.cluster.stt().open(SttOptions::default()).await.expect("opened");
    utterance.push(vec![7; 300_000]).await.expect("taken");
    utterance.push(vec![7; 1]).await.expect("taken");
    assert_eq!(utterance.finish().await.expect("words").text, "utterance of 300001 samples");

    let probability = hub.cluster.turn().judge(vec![1; 20_000]).await.expect("judged");
    assert_eq!(probability, 0.75);
    let voices: Vec<_> = hub.cluster.tts().voices().into_iter().map(|voice| voice.id).collect();
    assert_eq!(voices, ["tone"]);
    let overview = hub.cluster.overview();
    assert_eq!((overview.workers.len(), overview.workers[0].stages.len(), overview.failed), (1, 3, 0));
    // Longer than any end asks the other one for what it misses.
    sleep(Duration::from_millis(1_500)).await;
    let overview = hub.cluster.overview();
    assert_eq!((overview.stale, overview.malformed, overview.duplicate, overview.early), (0, 0, 0, 0), "{overview:?}");
}

#[tokio::test]
async fn a_chunk_goes_on_at_the_sample_when_its_worker_is_killed() {
    let server = NatsServer::start().await.expect("a server");
    let (one, other, hub) = pair(&server, &Stages::speaking(slow())).await;
    let asked = request(LONG);
    let mut speech = hub.cluster.tts().speak(asked.clone());
    let mut samples = Vec::new();
    for _ in 0..5 {
        samples.extend(speech.next().await.expect("audio").expect("spoken").samples);
    }
    serving(&hub, &one, &other).0.kill();
    samples.extend(spoken(speech).await.expect("the other worker goes on"));
    let own = spoken(FakeTts::default().speak(request(LONG))).await.expect("spoken");
    assert!(samples == own, "{} of {} samples", samples.len(), own.len());
    let overview = hub.cluster.overview();
    assert_eq!((overview.retried, overview.failed, overview.workers.len(), overview.lost.len()), (1, 0, 1, 1));
}

#[tokio::test]
async fn a_worker_without_room_when_a_chunk_began_takes_it_over_later() {
    let server = NatsServer::start().await.expect("a server");
    // The worker that is asked first refuses, whichever it is.
    let (one, other, hub) = pair(&server, &Stages::speaking(slow().refusing(1))).await;
    let mut speech = hub.cluster.tts().speak(request(LONG));
    let mut samples = speech.next().await.expect("audio").expect("spoken").samples;
    assert_eq!(hub.cluster.overview().busy, 1);
    serving(&hub, &one, &other).0.kill();
    samples.extend(spoken(speech).await.expect("the first one has room now"));
    let own = spoken(FakeTts::default().speak(request(LONG))).await.expect("spoken");
    assert!(samples == own, "{} of {} samples", samples.len(), own.len());
}

#[tokio::test]
async fn a_chunk_that_may_wait_goes_on_once_another_worker_has_room() {
    let server = NatsServer::start().await.expect("a server");
    let one = Worker::start(&server.url(), "one", Stages::speaking(FakeTts::default())).await.expect("it serves");
    let hub = Hub::with(&server, &[Stage::Tts]).await;
    // 50 s of sound, more than a worker sends to a listener that does not listen.
    let text = "word ".repeat(200);
    let mut speech = hub.cluster.tts().speak_queued(request(&text)).await;
    let mut samples = speech.next().await.expect("audio").expect("spoken").samples;
    let full = Stages::speaking(FakeTts::default().refusing(3));
    let _other = Worker::start(&server.url(), "other", full).await.expect("it serves");
    until(&hub, "two workers", |hub| {
        let workers = hub.cluster.overview().workers;
        workers.len() == 2 && workers.iter().all(|worker| worker.stages.iter().all(|stage| stage.engine == "fake"))
    })
    .await;
    one.kill();
    samples.extend(spoken(speech).await.expect("the other one has room again"));
    let own = spoken(FakeTts::default().speak(request(&text))).await.expect("spoken");
    assert!(samples == own, "{} of {} samples", samples.len(), own.len());
    let overview = hub.cluster.overview();
    assert_eq!((overview.busy, overview.retried, overview.failed), (3, 1, 0));
}

#[tokio::test]
async fn a_reply_goes_on_after_a_frozen_nats_while_its_listener_has_sound_to_hear() {
    let server = NatsServer::start().await.expect("a server");
    let _worker = Worker::start(&server.url(), "w", Stages::speaking(slow())).await.expect("it serves");
    let hub = Hub::with(&server, &[Stage::Tts]).await;
    let heard_on = SpeechRequest { unplayed: Some(Duration::from_secs(4)), ..request(LONG) };
    let mut speech = hub.cluster.tts().speak(heard_on);
    let mut samples = Vec::new();
    for _ in 0..5 {
        samples.extend(speech.next().await.expect("audio").expect("spoken").samples);
    }
    let tasks = TaskTracker::new();
    let rest = tasks.spawn(spoken(speech));
    // Another reply, whose listener has heard all there was before the outage: it ends after the usual limit.
    let silent = SpeechRequest { unplayed: Some(Duration::ZERO), ..request(LONG) };
    let silent = tasks.spawn(spoken(hub.cluster.tts().speak(silent)));
    server.pause().expect("frozen");
    let silent = silent.await.expect("it ends");
    assert!(matches!(silent, Err(TtsError::Away(_))), "nothing is ahead of its listener");
    // Both began to wait when the worker was lost: the first one's limit has passed by now, too, but for the sound.
    sleep(Duration::from_millis(500)).await;
    server.resume().expect("thawed");
    samples.extend(rest.await.expect("it ends").expect("the worker is back in time"));
    let own = spoken(FakeTts::default().speak(request(LONG))).await.expect("spoken");
    assert!(samples == own, "{} of {} samples", samples.len(), own.len());
}

#[tokio::test]
async fn a_chunk_that_had_not_begun_names_the_worker_that_spoke_it() {
    let server = NatsServer::start().await.expect("a server");
    let (one, other, hub) =
        pair(&server, &Stages::speaking(FakeTts::default().delayed(Duration::from_millis(400)))).await;
    let asked = request("Hello.");
    let mut speech = hub.cluster.tts().speak(asked.clone());
    assert!(timeout(Duration::from_millis(200), speech.next()).await.is_err(), "nothing yet");
    serving(&hub, &one, &other).0.kill();
    assert!(!spoken(speech).await.expect("spoken").is_empty());
    assert_eq!(asked.hop.get().expect("named").retried, 1);
}

#[tokio::test]
async fn an_engine_that_does_not_repeat_itself_goes_on_with_the_next_word() {
    let server = NatsServer::start().await.expect("a server");
    let engine = slow().unrepeatable();
    let stages = Stages::speaking(engine.clone());
    let (one, other, hub) = pair(&server, &stages).await;
    // The hub learns how fast the voice speaks: 50 ms a character.
    for _ in 0..3 {
        let four = (0..4).map(|_| spoken(hub.cluster.tts().speak(request("A short sentence."))));
        futures_util::future::try_join_all(four).await.expect("spoken");
    }
    let n_before = engine.requests().len();
    let mut speech = hub.cluster.tts().speak(request(LONG));
    let mut samples = Vec::new();
    while samples.len() < 24_000 {
        samples.extend(speech.next().await.expect("audio").expect("spoken").samples);
    }
    serving(&hub, &one, &other).0.kill();
    samples.extend(spoken(speech).await.expect("the other worker goes on"));
    let requests = engine.requests().split_off(n_before);
    assert_eq!((requests.len(), requests[0].text.as_str()), (2, LONG));
    let rest = &requests[1].text;
    assert!(LONG.contains(&format!(" {rest}")) && rest.len() < LONG.len() - 15, "{requests:?}");
    assert!(requests[0].seed.is_some() && requests[0].seed == requests[1].seed, "the seed travels: {requests:?}");
    let whole = LONG.len() * 1_200;
    // At most one word more or less than the whole text.
    assert!(samples.len().abs_diff(whole) < 9 * 1_200, "{} of {whole} samples", samples.len());
}

#[tokio::test]
async fn an_utterance_is_transcribed_again_when_its_worker_is_killed() {
    let server = NatsServer::start().await.expect("a server");
    let stages = Stages { stt: Some(FakeStt::default()), ..Stages::default() };
    let (one, other, hub) = pair(&server, &stages).await;
    let mut utterance = hub.cluster.stt().open(SttOptions::default()).await.expect("opened");
    for _ in 0..20 {
        utterance.push(vec![1; 320]).await.expect("taken");
    }
    serving(&hub, &one, &other).0.kill();
    for _ in 0..20 {
        sleep(Duration::from_millis(20)).await;
        utterance.push(vec![1; 320]).await.expect("taken");
    }
    assert_eq!(utterance.provisional().await.expect("words").text, "utterance of 12800 samples");
    assert_eq!(utterance.finish().await.expect("words").text, "utterance of 12800 samples");
    assert_eq!((hub.cluster.overview().retried, hub.cluster.overview().failed), (1, 0));
}

#[tokio::test]
async fn an_utterance_that_a_workers_engine_fails_at_is_transcribed_on_another_one() {
    let server = NatsServer::start().await.expect("a server");
    let engines = [FakeStt::default().with_partials(), FakeStt::default().with_partials()];
    let [one, other] = engines.clone().map(Stages::hearing);
    let (_one, _other, hub) = unlike_pair(&server, one, other).await;
    let options = SttOptions { hop: Hop::requested(), ..SttOptions::default() };
    let open = async || {
        let mut utterance = hub.cluster.stt().open(options.clone()).await.expect("opened");
        utterance.push(vec![1; 320]).await.expect("taken");
        utterance
    };
    // Which of them is asked first is drawn.
    engines[0].clone().then_fails("no memory");
    let transcribes = async {
        while hub.cluster.overview().retried == 0 {
            assert_eq!(open().await.finish().await.expect("words").text, "utterance of 320 samples");
            assert_eq!(options.hop.get().expect("named").worker, "other");
        }
    };
    timeout(TEST_TIMEOUT, transcribes).await.expect("the failing one is asked");
    assert_eq!(options.hop.get().expect("named").retried, 1);
    let both_fail = |message: &str| engines.iter().for_each(|engine| drop(engine.clone().then_fails(message)));
    // Each fails once: there would be words if one were asked twice.
    both_fail("no memory");
    let error = open().await.finish().await.expect_err("both fail");
    assert!(error.to_string().contains("no memory"), "{error}");
    both_fail("too late");
    let mut utterance = open().await;
    assert!(utterance.partial().await.expect("words").is_some());
    let error = utterance.finish().await.expect_err("words were passed on");
    assert!(error.to_string().contains("too late"), "{error}");
    let overview = hub.cluster.overview();
    assert_eq!((overview.retried, overview.failed, overview.workers.len()), (2, 0, 2));
}

#[tokio::test]
async fn an_utterance_goes_on_at_the_only_worker_when_its_engine_failed_once() {
    let server = NatsServer::start().await.expect("a server");
    let stages = Stages::hearing(FakeStt::default().with_partials().failing_at_audio(1));
    let _worker = Worker::start(&server.url(), "w", stages).await.expect("it serves");
    let hub = Hub::with(&server, &[Stage::Stt]).await;
    let mut utterance = hub.cluster.stt().open(SttOptions::default()).await.expect("opened");
    utterance.push(vec![1; 320]).await.expect("sent");
    let error = utterance.partial().await.expect_err("its engine failed");
    assert!(error.to_string().contains("no memory"), "{error}");
    utterance.push(vec![1; 320]).await.expect("it is asked again");
    assert_eq!(utterance.finish().await.expect("words").text, "utterance of 640 samples");
    assert_eq!(hub.cluster.overview().retried, 0, "there is no other worker");
}

#[tokio::test]
async fn an_engine_that_fails_while_more_audio_waits_for_room_is_no_lost_worker() {
    let server = NatsServer::start().await.expect("a server");
    let failing = Stages::hearing(FakeStt::default().failing_at_audio(usize::MAX));
    let (_one, _other, hub) = unlike_pair(&server, failing, Stages::hearing(FakeStt::default())).await;
    let options = SttOptions { hop: Hop::requested(), ..SttOptions::default() };
    let transcribes = async {
        while hub.cluster.overview().retried < 3 {
            let mut utterance = hub.cluster.stt().open(options.clone()).await.expect("opened");
            // More than a window.
            utterance.push(vec![1; 20 * 16_000]).await.expect("the other one takes it");
            assert_eq!(utterance.finish().await.expect("words").text, "utterance of 320000 samples");
            assert_eq!(options.hop.get().expect("named").worker, "other");
        }
    };
    timeout(TEST_TIMEOUT, transcribes).await.expect("the failing one is asked");
    assert_eq!(hub.cluster.overview().failed, 0);
}

#[tokio::test]
async fn a_chunk_that_a_workers_engine_fails_at_is_spoken_on_another_one() {
    let server = NatsServer::start().await.expect("a server");
    let failing = Stages::speaking(FakeTts::default().failing_on("Hi."));
    let (_one, _other, hub) = unlike_pair(&server, failing, Stages::speaking(FakeTts::default())).await;
    // Which of them is asked first is drawn.
    let speaks = async {
        while hub.cluster.overview().retried == 0 {
            let asked = request("Hi.");
            let samples = spoken(hub.cluster.tts().speak(asked.clone())).await.expect("the other one speaks");
            assert_eq!(samples.len(), 3 * 1_200);
            assert_eq!(asked.hop.get().expect("named").worker, "other");
        }
    };
    timeout(TEST_TIMEOUT, speaks).await.expect("the failing one is asked");
    assert_eq!((hub.cluster.overview().retried, hub.cluster.overview().failed), (1, 0));
}

#[tokio::test]
async fn what_every_workers_engine_fails_at_fails_with_the_engines_error() {
    let engines = [FakeTts::default().failing_on("Hi."), FakeTts::default().failing_on("Hi.")];
    let [one, other] = engines.clone().map(Stages::speaking);
    let server = NatsServer::start().await.expect("a server");
    let (_one, _other, hub) = unlike_pair(&server, one, other).await;
    let error = spoken(hub.cluster.tts().speak(request("Hi."))).await.expect_err("both fail");
    assert!(error.to_string().contains("told to fail"), "{error}");
    let n_requests = engines.each_ref().map(|engine| engine.requests().len());
    assert_eq!(n_requests, [1, 1], "each is asked once");
    // With one worker alone, the result is its error, and not that no other one serves.
    let server = NatsServer::start().await.expect("a server");
    let engine = FakeStt::default().then_fails("no memory");
    let stages = Stages { stt: Some(engine), ..Stages::speaking(engines[0].clone()) };
    let _worker = Worker::start(&server.url(), "w", stages).await.expect("it serves");
    let hub = Hub::with(&server, &[Stage::Tts, Stage::Stt]).await;
    let error = spoken(hub.cluster.tts().speak(request("Hi."))).await.expect_err("it fails");
    assert!(error.to_string().contains("told to fail"), "{error}");
    let utterance = hub.cluster.stt().open(SttOptions::default()).await.expect("opened");
    let error = utterance.finish().await.expect_err("it fails");
    assert!(error.to_string().contains("no memory"), "{error}");
}

#[tokio::test]
async fn a_frozen_worker_is_given_up() {
    let server = NatsServer::start().await.expect("a server");
    let (one, other, hub) = pair(&server, &Stages::speaking(slow())).await;
    let mut speech = hub.cluster.tts().speak(request(LONG));
    let mut samples = speech.next().await.expect("audio").expect("spoken").samples;
    serving(&hub, &one, &other).0.freeze(Duration::from_secs(3));
    samples.extend(spoken(speech).await.expect("the other worker goes on"));
    let own = spoken(FakeTts::default().speak(request(LONG))).await.expect("spoken");
    assert!(samples == own, "{} of {} samples", samples.len(), own.len());
    assert_eq!(hub.cluster.overview().lost[0].why, "it is silent");
    // It is back, and what it still sends for the old attempt is dropped.
    until(&hub, "it is back", |hub| hub.cluster.overview().workers.len() == 2).await;
    until(&hub, "it gives up the old attempt", |hub| load(hub).0 == 0).await;
}

#[tokio::test]
async fn when_two_workers_die_one_after_the_other_the_request_fails() {
    let server = NatsServer::start().await.expect("a server");
    let (one, other, hub) = pair(&server, &Stages::speaking(slow())).await;
    let mut speech = hub.cluster.tts().speak(request(LONG));
    speech.next().await.expect("audio").expect("spoken");
    one.kill();
    other.kill();
    let error = spoken(speech).await.expect_err("nobody is left");
    assert!(matches!(error, TtsError::Away(_)), "{error}");
    let error = hub.cluster.stt().open(SttOptions::default()).await.err().expect("nobody serves it");
    assert!(error.to_string().contains("no worker serves stt"), "{error}");
}

#[tokio::test]
async fn a_worker_without_room_says_so_and_the_next_is_asked() {
    let server = NatsServer::start().await.expect("a server");
    let few = Stages { stt: Some(FakeStt::default().with_concurrency(1)), ..Stages::default() };
    let (_one, _other, hub) = pair(&server, &few).await;
    // Each takes one, and one more that waits.
    let mut utterances = Vec::new();
    for _ in 0..4 {
        utterances.push(hub.cluster.stt().open(SttOptions::default()).await.expect("room"));
    }
    let error = hub.cluster.stt().open(SttOptions::default()).await.err().expect("all are busy");
    assert!(matches!(error, SttError::Busy { waiting: 4 }), "{error}");
    assert!(hub.cluster.overview().busy >= 2);
    // One that may wait gets the first place that is free.
    let waits = hub.cluster.stt().open_queued(SttOptions::default());
    utterances.pop();
    let opening = timeout(TEST_TIMEOUT, waits).await.expect("room");
    assert!(opening.await.is_ok());
}

#[tokio::test]
async fn what_is_dropped_is_cancelled_on_its_worker() {
    let server = NatsServer::start().await.expect("a server");
    let stages = Stages { stt: Some(FakeStt::default()), ..Stages::speaking(slow()) };
    let (_one, _other, hub) = pair(&server, &stages).await;
    let utterance = hub.cluster.stt().open(SttOptions::default()).await.expect("opened");
    let mut speech = hub.cluster.tts().speak(request(LONG));
    speech.next().await.expect("audio").expect("spoken");
    until(&hub, "both are served", |hub| load(hub).0 == 2).await;
    // Admission counts what all hubs use, as every hub sees it.
    let observer = Hub::with(&server, &[Stage::Stt, Stage::Tts]).await;
    let used = |hub: &Hub| (hub.cluster.stt().in_service(), hub.cluster.tts().in_service());
    until(&observer, "both are counted", |hub| used(hub) == (1, 1)).await;
    assert_eq!((used(&hub), hub.cluster.stt().waiting() + hub.cluster.tts().waiting()), ((1, 1), 0));
    drop((utterance, speech));
    until(&hub, "both are given up", |hub| load(hub).0 == 0).await;
    until(&observer, "none is counted", |hub| used(hub) == (0, 0)).await;
    assert_eq!(hub.cluster.overview().in_flight, 0);
}

#[tokio::test]
async fn a_listener_that_does_not_listen_stops_its_worker_and_nothing_grows() {
    let server = NatsServer::start().await.expect("a server");
    let _worker = Worker::start(&server.url(), "w", Stages::speaking(FakeTts::default())).await.expect("it serves");
    let hub = Hub::with(&server, &[Stage::Tts]).await;
    // 150 s of sound, 7 MB, made at once.
    let text = "word ".repeat(600);
    let mut speech = hub.cluster.tts().speak(request(&text));
    speech.next().await.expect("audio").expect("spoken");
    sleep(Duration::from_millis(500)).await;
    assert_eq!(load(&hub).0, 1, "the engine waits for the listener");
    let rest = spoken(speech).await.expect("spoken");
    assert_eq!(rest.len() + 2_400, text.len() * 1_200);
}

#[tokio::test]
async fn a_worker_that_drains_finishes_what_it_has() {
    let server = NatsServer::start().await.expect("a server");
    let (one, other, hub) = pair(&server, &Stages::speaking(slow())).await;
    let tasks = TaskTracker::new();
    let speech = tasks.spawn(spoken(hub.cluster.tts().speak(request(LONG))));
    until(&hub, "it is served", |hub| load(hub).0 == 1).await;
    let is_one = std::ptr::eq(serving(&hub, &one, &other).0, &one);
    let (draining, stays) = if is_one { (one, other) } else { (other, one) };
    let stopped = tasks.spawn(draining.stop());
    until(&hub, "it says so", |hub| hub.cluster.overview().workers.iter().any(|worker| worker.draining)).await;
    for _ in 0..5 {
        let asked = request("Hi.");
        spoken(hub.cluster.tts().speak(asked.clone())).await.expect("spoken");
        assert_eq!(asked.hop.get().expect("named").worker, if is_one { "other" } else { "one" });
    }
    let samples = speech.await.expect("no panic").expect("it is finished");
    assert_eq!(samples.len(), LONG.len() * 1_200);
    stopped.await.expect("no panic").expect("in peace");
    until(&hub, "it has left", |hub| hub.cluster.overview().workers.len() == 1).await;
    let overview = hub.cluster.overview();
    assert_eq!((overview.retried, overview.lost.len()), (0, 0));
    drop(stays);
}

/// A restart in place, as in a rolling update: what is asked meanwhile waits.
#[tokio::test]
async fn what_is_asked_while_the_only_worker_restarts_is_served_by_the_next_one() {
    let server = NatsServer::start().await.expect("a server");
    let stages = Stages::speaking(FakeTts::default());
    let first = Worker::start(&server.url(), "first", stages.clone()).await.expect("it serves");
    let hub = Hub::with(&server, &[Stage::Tts]).await;
    first.stop().await.expect("in peace");
    until(&hub, "it has left", |hub| hub.cluster.overview().workers.is_empty()).await;
    let tasks = TaskTracker::new();
    let speech = tasks.spawn(spoken(hub.cluster.tts().speak(request("Hi."))));
    sleep(Duration::from_millis(300)).await;
    let _next = Worker::start(&server.url(), "next", stages).await.expect("it serves");
    assert!(!speech.await.expect("no panic").expect("it is spoken").is_empty());
}

#[tokio::test]
async fn a_server_that_is_gone_for_a_moment_costs_no_sample() {
    let mut server = NatsServer::start().await.expect("a server");
    let (_one, _other, hub) = pair(&server, &Stages::speaking(slow())).await;
    let tasks = TaskTracker::new();
    let speeches: Vec<_> = (0..8).map(|_| tasks.spawn(spoken(hub.cluster.tts().speak(request(LONG))))).collect();
    sleep(Duration::from_millis(300)).await;
    server.kill().await;
    sleep(Duration::from_millis(500)).await;
    server.restart().await.expect("it is back");
    for speech in speeches {
        let samples = speech.await.expect("no panic").expect("all of it");
        assert_eq!(samples.len(), LONG.len() * 1_200);
    }
    let overview = hub.cluster.overview();
    assert_eq!((overview.failed, overview.retried), (0, 0), "nobody was given up: {overview:?}");
}

#[tokio::test]
async fn a_server_that_stays_away_is_said_and_all_goes_on_when_it_is_back() {
    let mut server = NatsServer::start().await.expect("a server");
    let (_one, _other, hub) = pair(&server, &Stages::speaking(slow())).await;
    let mut speech = hub.cluster.tts().speak(request(LONG));
    speech.next().await.expect("audio").expect("spoken");
    server.kill().await;
    let error = spoken(speech).await.expect_err("nobody can be reached");
    assert!(matches!(error, TtsError::Away(_)), "{error}");
    let error = spoken(hub.cluster.tts().speak(request("Hi."))).await.expect_err("nobody can be reached");
    assert!(error.client_message().contains("is not available at the moment"), "{error}");
    assert!(matches!(error, TtsError::Away(_)), "the hub's own engine would speak: {error}");
    assert_eq!(hub.cluster.overview().in_flight, 0);
    server.restart().await.expect("it is back");
    until(&hub, "it is connected", |hub| hub.cluster.overview().connected).await;
    let speaks = async { while spoken(hub.cluster.tts().speak(request("Hi."))).await.is_err() {} };
    timeout(TEST_TIMEOUT, speaks).await.expect("all goes on");
}

#[tokio::test]
async fn the_attempts_of_a_hub_that_is_gone_are_given_up() {
    let server = NatsServer::start().await.expect("a server");
    let _worker =
        Worker::start(&server.url(), "w", Stages { stt: Some(FakeStt::default()), ..Stages::default() }).await;
    let observer = Hub::with(&server, &[Stage::Stt]).await;
    let gone = std::thread::spawn({
        let url = server.url();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let hub = Hub::join(vec![url]).await;
                hub.cluster.ready(&[Stage::Stt]).await;
                std::mem::forget(hub.cluster.stt().open(SttOptions::default()).await.expect("opened"));
                sleep(Duration::from_millis(100)).await;
            });
            runtime.shutdown_background();
        }
    });
    until(&observer, "it is served", |hub| load(hub).0 == 1).await;
    gone.join().expect("no panic");
    until(&observer, "it is given up", |hub| load(hub).0 == 0).await;
}

#[tokio::test]
async fn what_cannot_work_is_said_at_the_start() {
    let free = NatsServer::start().await.expect("a server").url();
    let says = |config: ClusterConfig, name: &'static str, stages: Stages| async move {
        Worker::with(config, name, stages).await.err().expect("it is refused").to_string()
    };
    let said = says(config(vec![free]), "w", Stages::all()).await;
    assert!(said.contains("no NATS server answers at nats://127.0.0.1:"), "{said}");

    let small = NatsServer::start_with("max_payload: 65536").await.expect("a server");
    let said = says(config(vec![small.url()]), "w", Stages::all()).await;
    assert!(said.contains("takes messages of 65536 bytes at most; set max_payload to"), "{said}");

    let guarded = NatsServer::start_with("authorization { user: a, password: b }").await.expect("a server");
    let said = says(config(vec![guarded.url()]), "w", Stages::all()).await;
    assert!(said.contains("refuses the credentials") && said.contains("check cluster.credentials"), "{said}");

    let server = NatsServer::start().await.expect("a server");
    let _first = Worker::start(&server.url(), "w", Stages::all()).await.expect("it serves");
    let said = says(config(vec![server.url()]), "w", Stages::all()).await;
    assert!(said.contains("a worker named \"w\" is running already"), "{said}");
    let other = Stages { fingerprint: "g", ..Stages::all() };
    let said = says(config(vec![server.url()]), "v", other).await;
    assert!(said.contains("the worker \"w\" serves another model under the name \"fake\" of stage stt"), "{said}");
    let other = Stages { model: "other", ..Stages::all() };
    let said = says(config(vec![server.url()]), "v", other.clone()).await;
    assert!(said.contains("serves \"fake\" of stage stt, this one would serve \"other\""), "{said}");
    let voices = Stages { stt: None, turn: None, ..other };
    let _voices = Worker::start(&server.url(), "voices", voices).await.expect("voices name their model");

    let config = ClusterConfig { credentials: "nowhere.creds".into(), ..config(vec![server.url()]) };
    let said = says(config, "v", Stages::all()).await;
    assert!(said.contains("cluster.credentials: the file \"nowhere.creds\" cannot be read"), "{said}");
}

#[tokio::test]
async fn a_user_without_the_permission_is_told() {
    let key = nkeys::KeyPair::new_user();
    let user = format!("{{ nkey: {}, permissions: {{ subscribe: [\"antiphon.v1.advert.>\"] }} }}", key.public_key());
    let server = NatsServer::start_with(&format!("authorization {{ users: [{user}] }}")).await.expect("a server");
    let folder = tempfile::tempdir().expect("a folder");
    let seed = folder.path().join("hub.nk");
    std::fs::write(&seed, format!("# hub\n{}\n", key.seed().expect("a seed"))).expect("written");
    let config = ClusterConfig { credentials: seed.display().to_string(), ..config(vec![server.url()]) };
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    let sessions: antiphon_cluster::Sessions = Arc::new(|| (0, 1, false));
    let error = Cluster::join(&config, "1", sessions, &tasks, stop).await.err().expect("refused");
    assert!(matches!(error, ClusterError::Permission { role: "hub", .. }), "{error}");
}

#[tokio::test]
async fn nonsense_from_the_network_is_dropped_and_counted() {
    let server = NatsServer::start().await.expect("a server");
    let _worker = Worker::start(&server.url(), "w", Stages::all()).await.expect("it serves");
    let hub = Hub::with(&server, &Stage::ALL).await;
    let stranger = async_nats::connect(server.url()).await.expect("connected");
    let worker = hub.cluster.overview().workers[0].id.clone();
    let id = hub.cluster.id().to_owned();
    let mut speech = hub.cluster.tts().speak(request(LONG));
    speech.next().await.expect("audio").expect("spoken");
    let publish = |subject: String, reply: String, payload: Vec<u8>| {
        let stranger = stranger.clone();
        async move { stranger.publish_with_reply(subject, reply, payload.into()).await.expect("sent") }
    };
    let mut random = 7_u64;
    for n in 0..2_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let kind = Kind::ALL[n % Kind::ALL.len()];
        let frame =
            Frame { sequence: random as u32, payload: vec![n as u8; n % 700].into(), ..Frame::new(kind, random) };
        let mut bytes = frame.encode().to_vec();
        if n % 3 == 0 {
            let at = (random >> 40) as usize % bytes.len();
            bytes[at] ^= (random >> 20) as u8;
        }
        publish(subject::outbound(&id, random), "$JS.API.x".into(), bytes.clone()).await;
        publish(subject::open(&worker), subject::outbound(&id, random), bytes.clone()).await;
        publish(subject::inbound(&worker, random), subject::inbound(&worker, random), bytes).await;
    }
    for text in ["", "{}", "[]", "{\"protocol\":{\"major\":1,\"minor\":0}}", "\u{0}"] {
        publish(subject::advert_of_worker("abc"), "x".into(), text.into()).await;
        publish(subject::advert_of_hub("abc"), "x".into(), text.into()).await;
    }
    let newer = r#"{"protocol":{"major":2,"minor":0},"name":"from the future","stages":"all"}"#;
    publish(subject::advert_of_worker("def"), "x".into(), newer.into()).await;
    stranger.flush().await.expect("sent");
    let refused = |hub: &Hub| {
        let workers = hub.cluster.overview().workers;
        let other = workers.into_iter().find(|worker| worker.name == "from the future");
        other.is_some_and(|other| other.refused.is_some_and(|why| why.contains("speaks protocol 2.0")))
    };
    until(&hub, "a newer worker is refused by name", refused).await;
    let rest = spoken(speech).await.expect("the speech goes on");
    assert_eq!(rest.len() + 2_400, LONG.len() * 1_200);
    let overview = hub.cluster.overview();
    assert!(overview.malformed > 500 && overview.stale > 100, "{overview:?}");
    assert_eq!(spoken(hub.cluster.tts().speak(request("Hi."))).await.expect("spoken").len(), 3 * 1_200);
}

#[tokio::test]
async fn hubs_ask_each_other() {
    let server = NatsServer::start().await.expect("a server");
    let one = Hub::join(vec![server.url()]).await;
    let other = Hub::join(vec![server.url()]).await;
    until(&one, "it knows the other", |hub| hub.cluster.overview().hubs.len() == 2).await;
    let question = b"how many?";
    let patience = Duration::from_millis(200);
    let replies = one.cluster.ask_peers(question, patience).await;
    assert_eq!((replies.len(), replies[0].reply.is_none()), (1, true), "nobody replies yet");
    let three = |question: &[u8]| (question == b"how many?").then(|| b"three".to_vec());
    other.cluster.reply_with(Arc::new(move |question| Box::pin(std::future::ready(three(question)))));
    let replies = one.cluster.ask_peers(question, TEST_TIMEOUT).await;
    assert_eq!(replies[0].reply.as_deref(), Some(&b"three"[..]));
    assert_eq!(replies[0].id, other.cluster.id());
    assert!(one.cluster.ask_peers(b"what?", patience).await[0].reply.is_none());
    assert!(one.cluster.ask_peers(&[0; 5_000], patience).await[0].reply.is_none(), "too long a question");
    assert_eq!(one.cluster.overview().in_flight, 0);
}

/// A hub that speaks the protocol by hand: what another build of it sends.
struct OtherBuild {
    client: async_nats::Client,
    frames: async_nats::Subscriber,
    worker: String,
}

impl OtherBuild {
    async fn connect(server: &NatsServer, worker: String) -> Self {
        let client = async_nats::connect(server.url()).await.expect("connected");
        let frames = client.subscribe(subject::outbound_of("0123")).await.expect("subscribed");
        Self { client, frames, worker }
    }

    async fn send(&self, attempt: u64, bytes: Vec<u8>) {
        let to = subject::open(&self.worker);
        let reply = subject::outbound("0123", attempt);
        self.client.publish_with_reply(to, reply, bytes.into()).await.expect("sent");
    }

    async fn open(&self, attempt: u64, request: &str) {
        let frame = Frame { payload: request.to_owned().into(), ..Frame::new(Kind::Open, attempt) };
        self.send(attempt, Frame { credit: 1 << 20, ..frame }.encode().to_vec()).await;
    }

    /// The next numbered frame.
    async fn next(&mut self) -> Frame {
        loop {
            let message = timeout(TEST_TIMEOUT, self.frames.next()).await.expect("it answers").expect("connected");
            let frame = Frame::decode(&message.payload).expect("a frame");
            if frame.kind.is_sequenced() {
                return frame;
            }
        }
    }
}

#[tokio::test]
async fn a_hub_of_another_minor_version_is_served_and_one_of_another_major_version_is_not() {
    let server = NatsServer::start().await.expect("a server");
    let worker = Worker::start(&server.url(), "w", Stages::all()).await.expect("it serves");
    let hub = Hub::with(&server, &[Stage::Tts]).await;
    let mut other = OtherBuild::connect(&server, hub.cluster.overview().workers[0].id.clone()).await;
    let older = r#"{"protocol":{"major":1,"minor":0},"hub":"0123","stage":"tts","text":"Hi."}"#;
    let newer = r#"{"protocol":{"major":1,"minor":9},"hub":"0123","stage":"tts","text":"Hi.","mood":"glad","x":[1]}"#;
    for (attempt, request) in [(1, older), (2, newer)] {
        other.open(attempt, request).await;
        // A kind that this build does not know.
        let mut unknown = Frame::new(Kind::Ack, attempt).encode().to_vec();
        unknown[1] = 200;
        other.send(attempt, unknown).await;
        let mut kinds = Vec::new();
        let mut n_bytes = 0;
        while kinds.last() != Some(&Kind::End) {
            let frame = other.next().await;
            n_bytes += if frame.kind == Kind::Audio { frame.payload.len() } else { 0 };
            kinds.push(frame.kind);
        }
        assert_eq!(kinds[..3], [Kind::Accepted, Kind::Rate, Kind::Audio]);
        assert_eq!(n_bytes, 2 * 3 * 1_200);
    }
    other.open(3, &older.replace("\"major\":1", "\"major\":2")).await;
    assert_eq!(other.next().await.kind, Kind::Busy);
    other.open(4, "{}").await;
    other.open(5, &older.replace("tts", "llm")).await;

    // One that does not know yet that the worker is draining.
    let utterance = hub.cluster.stt().open(SttOptions::default()).await.expect("opened");
    until(&hub, "it is served", |hub| load(hub).0 == 1).await;
    worker.stop.cancel();
    until(&hub, "it drains", |hub| hub.cluster.overview().workers[0].draining).await;
    other.open(6, older).await;
    let frame = other.next().await;
    assert_eq!((frame.kind, frame.attempt), (Kind::Busy, 6));
    assert_eq!(frame.payload[..], br#"{"is_draining":true,"in_flight":0}"#[..]);
    drop(utterance);
}

#[tokio::test]
async fn an_engine_that_panics_fails_its_request_and_nothing_else() {
    let server = NatsServer::start().await.expect("a server");
    let stages = Stages::speaking(FakeTts::default().panicking_on("panic"));
    let (_one, _other, hub) = pair(&server, &stages).await;
    let error = spoken(hub.cluster.tts().speak(request("panic"))).await.expect_err("both panic");
    assert!(error.to_string().contains("no worker serves tts (2 did not answer or broke)"), "{error}");
    assert_eq!(spoken(hub.cluster.tts().speak(request("Hi."))).await.expect("spoken").len(), 3_600);
    until(&hub, "nothing is left", |hub| load(hub) == (0, 2)).await;
}

#[tokio::test]
async fn both_ends_prove_who_they_are_by_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("written");
    let key = || rcgen::KeyPair::generate().expect("a key");
    let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(authority, key()).expect("a certificate");
    write("ca.pem", authority.pem());
    for name in ["server", "client"] {
        let own = key();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let parameters = rcgen::CertificateParams::new(names).expect("parameters");
        write(&format!("{name}.pem"), parameters.signed_by(&own, &authority).expect("a certificate").pem());
        write(&format!("{name}.key"), own.serialize_pem());
    }
    let settings = format!(
        "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true }}",
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    );
    let server = NatsServer::start_with(&settings).await.expect("a server");
    let plain = config(vec![server.url().replace("nats://", "tls://")]);
    let trusting = ClusterConfig { tls_ca: path("ca.pem"), ..plain.clone() };
    let known = ClusterConfig { tls_cert: path("client.pem"), tls_key: path("client.key"), ..trusting.clone() };

    let error = Worker::with(plain, "w", Stages::all()).await.err().expect("the server is a stranger");
    assert!(matches!(error, ClusterError::Tls { .. }), "{error}");
    assert!(error.to_string().contains("check cluster.tls_ca"), "{error}");
    let error = Worker::with(trusting, "w", Stages::all()).await.err().expect("the worker is a stranger");
    assert!(matches!(error, ClusterError::Tls { .. } | ClusterError::Unreachable { .. }), "{error}");
    let half = ClusterConfig { tls_key: String::new(), ..known.clone() };
    let error = Worker::with(half, "w", Stages::all()).await.err().expect("a key is missing");
    assert!(error.to_string().contains("cluster.tls_key: is missing"), "{error}");

    let _worker = Worker::with(known.clone(), "w", Stages::all()).await.expect("it serves");
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    let sessions: antiphon_cluster::Sessions = Arc::new(|| (0, 1, false));
    let cluster = Cluster::join(&known, "1", sessions, &tasks, stop.clone()).await.expect("joined");
    timeout(TEST_TIMEOUT, cluster.ready(&[Stage::Tts])).await.expect("a worker is found");
    assert!(!spoken(cluster.tts().speak(request("Hi."))).await.expect("spoken").is_empty());
    stop.cancel();
}

#[tokio::test]
async fn what_begins_while_the_server_is_gone_for_a_moment_is_served() {
    let mut server = NatsServer::start().await.expect("a server");
    let stages = Stages { stt: Some(FakeStt::default()), ..Stages::speaking(FakeTts::default()) };
    let _only = Worker::start(&server.url(), "w", stages).await.expect("it serves");
    let hub = Hub::with(&server, &[Stage::Tts, Stage::Stt]).await;
    server.kill().await;
    until(&hub, "it notices", |hub| !hub.cluster.overview().connected).await;
    let tasks = TaskTracker::new();
    let speech = tasks.spawn(spoken(hub.cluster.tts().speak(request("Hi."))));
    let utterance = tasks.spawn(hub.cluster.stt().open(SttOptions::default()));
    sleep(Duration::from_millis(300)).await;
    server.restart().await.expect("it is back");
    assert_eq!(speech.await.expect("no panic").expect("spoken").len(), 3 * 1_200);
    let mut utterance = utterance.await.expect("no panic").expect("opened");
    utterance.push(vec![1; 100]).await.expect("taken");
    assert_eq!(utterance.finish().await.expect("words").text, "utterance of 100 samples");
    assert_eq!(hub.cluster.overview().away, 0);
}

/// Settings that name a model of the stage stt and its fallback.
fn with_models(server: &NatsServer) -> ClusterConfig {
    ClusterConfig { stt_model: "whisper".into(), stt_fallback_model: "vosk".into(), ..config(vec![server.url()]) }
}

/// A recognizer that takes one utterance, and one more that waits.
fn recognizer(model: &'static str) -> Stages {
    Stages { stt: Some(FakeStt::default().with_concurrency(1)), model, ..Stages::default() }
}

#[tokio::test]
async fn a_fallback_model_serves_what_no_worker_with_the_model_of_the_stage_takes() {
    let server = NatsServer::start().await.expect("a server");
    let models = with_models(&server);
    // This one has no settings; it came first and is not used all the same.
    let _wrong = Worker::start(&server.url(), "wrong", recognizer("moonshine")).await.expect("it serves");
    let _spare = Worker::with(models.clone(), "spare", recognizer("vosk")).await.expect("it serves");
    let hub = Hub::of(&models).await;
    until(&hub, "three workers less one", |hub| hub.cluster.overview().workers.len() == 2).await;
    timeout(TEST_TIMEOUT, hub.cluster.ready(&[Stage::Stt])).await.expect("the fallback serves");
    until(&hub, "one is refused", |hub| {
        hub.cluster.overview().workers.iter().any(|worker| worker.name == "wrong" && worker.refused.is_some())
    })
    .await;
    let open = async |expect: &str| {
        let options = SttOptions { hop: Hop::requested(), ..SttOptions::default() };
        let mut utterance = hub.cluster.stt().open(options.clone()).await.expect("room");
        utterance.push(vec![7; 160]).await.expect("taken");
        utterance.provisional().await.expect("words");
        assert_eq!(options.hop.get().expect("named").worker, expect);
        utterance
    };
    drop(open("spare").await);
    let model = hub.cluster.overview().stage_models.remove(0);
    assert_eq!((model.is_served, model.is_fallback_served, model.fallback_requests), (false, true, 1), "{model:?}");
    assert_eq!(model.setting.as_deref(), Some("cluster.stt_model"));

    let main = Worker::with(models, "main", recognizer("whisper")).await.expect("it serves");
    until(&hub, "it is served", |hub| hub.cluster.overview().stage_models[0].is_served).await;
    // More than the worker with the model of the stage takes.
    let utterances = [open("main").await, open("main").await];
    let more = [open("spare").await, open("spare").await];
    let full = hub.cluster.stt().open(SttOptions::default()).await.err().expect("both are full");
    assert!(matches!(full, SttError::Busy { .. }), "{full}");
    until(&hub, "all are counted", |hub| load(hub).0 == 4).await;
    drop(more);
    drop(utterances);
    until(&hub, "all is given up", |hub| load(hub).0 == 0).await;
    drop(open("main").await);
    main.stop().await.expect("in peace");
    drop(open("spare").await);
    let overview = hub.cluster.overview();
    assert_eq!(overview.stage_models[0].fallback_requests, 4, "{overview:?}");
    let marks: Vec<_> = overview.workers.iter().map(|worker| (&*worker.name, worker.stages[0].is_fallback)).collect();
    assert_eq!(marks, [("spare", true), ("wrong", false)]);
}

/// As many full workers as are asked of one model do not keep the fallback from being asked.
#[tokio::test]
async fn the_fallback_model_is_asked_after_three_full_workers() {
    let server = NatsServer::start().await.expect("a server");
    let models = with_models(&server);
    let start = |name: &'static str, model| Worker::with(models.clone(), name, recognizer(model));
    let workers =
        tokio::join!(start("a", "whisper"), start("b", "whisper"), start("c", "whisper"), start("spare", "vosk"));
    let hub = Hub::of(&models).await;
    until(&hub, "four workers", |hub| {
        let workers = hub.cluster.overview().workers;
        workers.len() == 4 && workers.iter().all(|worker| worker.stages.iter().all(|stage| stage.engine == "fake"))
    })
    .await;
    let mut utterances = Vec::new();
    for _ in 0..6 {
        utterances.push(hub.cluster.stt().open(SttOptions::default()).await.expect("room"));
    }
    assert_eq!(hub.cluster.overview().stage_models[0].fallback_requests, 0);
    utterances.push(hub.cluster.stt().open(SttOptions::default()).await.expect("room at the fallback"));
    assert_eq!(hub.cluster.overview().stage_models[0].fallback_requests, 1);
    drop(workers);
}

#[tokio::test]
async fn a_worker_with_another_model_than_its_settings_name_does_not_start() {
    let server = NatsServer::start().await.expect("a server");
    let started = Worker::with(with_models(&server), "w", recognizer("moonshine")).await;
    let said = started.err().expect("it has the wrong model").to_string();
    let expect = "cluster.stt_model: this worker's model of the stage stt is \"moonshine\", but cluster.stt_model names \
                  \"whisper\", and cluster.stt_fallback_model \"vosk\"";
    assert!(said.starts_with(expect), "{said}");
}
