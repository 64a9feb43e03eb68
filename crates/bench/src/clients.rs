//! What clients do to the hub and to each other: connections that come and go, and an API key that asks for far more than its
//! limits.
//!
//! `connections`: each opens a session and leaves it, one half with a close frame, the other without. Anonymous memory,
//! open files and tasks are compared after the first thousand and at the end. `an abusive key`: fifty sessions of one
//! key on mock engines, alone and beside another key that sends requests, upgrades, responses and audio at fifty times
//! its limits. The hub runs on one core, all clients and the mock engines on the other.

use super::hub_process::{Engines, Hub};
use super::load;
use super::mock::Latencies;
use super::mocks::{Pair, SOUND, load_of, spoken};
use super::pinning::LoadAffinity;
use super::voice_to_voice::open_with;
use super::{BenchError, Figure, Measure, Measurement, Plan, Progress, Section, Unit, name_of};
use antiphon_client::{AudioMode, ConnectOptions, connect};
use futures_util::{StreamExt, stream};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

const N_CONNECTIONS: usize = 10_000;
/// Connections after which memory is compared with that at the end.
const N_BEFORE: usize = 1_000;
/// Connections at a time.
const AT_A_TIME: usize = 8;
/// Time after the last connection until its session has ended.
const SETTLE: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

const N_HONEST: usize = 50;
const TURNS: usize = 10;
/// The abusive key's limit of everything, each minute.
const LIMIT: usize = 60;
/// How many times its limits that key asks for.
const TIMES: usize = 50;
/// 20 ms of silence at 24 kHz.
const FRAME: [i16; 480] = [0; 480];

const GROWTH_KIB: f64 = 1024.0;
const P95_TIMES: f64 = 1.1;

const HONEST: &str = "sk-antiphon-bench-honest";
const ABUSIVE: &str = "sk-antiphon-bench-abusive";

pub(super) async fn measure(plan: &Plan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let how =
        format!("a key at {TIMES} times its limits beside {N_HONEST} sessions of another one, the hub on one core");
    let mut section = Section::new(name_of(Measure::Clients), how);
    let mut hub_cpu_s = connections(plan, &mut section, progress).await?;
    hub_cpu_s += abuse(plan, &mut section, progress).await?;
    Ok(Measurement { section, hub_cpu_s })
}

/// What a hub holds.
struct HubResources {
    anonymous: u64,
    files: usize,
    tasks: f64,
}

impl HubResources {
    async fn by(hub: &Hub) -> Result<Self, BenchError> {
        sleep(SETTLE).await;
        // Before the connection for the metrics is one of the files.
        let files = hub.process.files()?;
        let metrics = async { reqwest::get(format!("{}/metrics", hub.url)).await?.text().await };
        let metrics = metrics.await.map_err(|_| BenchError::hub("does not show its metrics"))?;
        let tasks = metrics.lines().find_map(|line| line.strip_prefix("antiphon_tasks ")?.parse().ok());
        let tasks = tasks.ok_or_else(|| BenchError::hub("does not show its tasks"))?;
        Ok(Self { anonymous: hub.process.anonymous()?, files, tasks })
    }
}

async fn connections(plan: &Plan, section: &mut Section, progress: Progress<'_>) -> Result<f64, BenchError> {
    let hub = Hub::start(&plan.hub, Engines::Fake).await?;
    let n = plan.turns(N_CONNECTIONS);
    let n_failed = come_and_go(&hub.url, N_BEFORE, progress).await;
    let before = HubResources::by(&hub).await?;
    let n_failed = n_failed + come_and_go(&hub.url, n - N_BEFORE, progress).await;
    let after = HubResources::by(&hub).await?;
    let growth = (after.anonymous as f64 - before.anonymous as f64) / 1024.0;
    let more =
        |name: &str, value: f64| Figure::new(format!("{n} connections: {name}"), Unit::Count, value, n).at_most(0.0);
    let memory = Figure::new(format!("{n} connections: memory more than after {N_BEFORE}"), Unit::KiB, growth, n);
    section.figures.extend([
        memory.at_most(GROWTH_KIB),
        more("open files more", after.files as f64 - before.files as f64),
        more("tasks more", after.tasks - before.tasks),
        more("failed", n_failed as f64),
    ]);
    let cpu_s = hub.process.cpu_s()?;
    hub.stop().await;
    Ok(cpu_s)
}

/// Opens `n` sessions and leaves them; the number that failed.
async fn come_and_go(url: &str, n: usize, progress: Progress<'_>) -> usize {
    let one = async |at: usize| -> bool {
        if at.is_multiple_of(500) {
            progress(&format!("clients: {at} of {n} connections"));
        }
        let options = ConnectOptions { mode: AudioMode::Ga, ..ConnectOptions::new(url) };
        let opened = async {
            let mut connection = connect(&options).await.ok()?;
            connection.receiver.next().await.ok()?;
            if at.is_multiple_of(2) {
                connection.sender.close().await;
            }
            Some(())
        };
        timeout(CONNECT_TIMEOUT, opened).await.ok().flatten().is_none()
    };
    stream::iter(0..n).map(one).buffer_unordered(AT_A_TIME).filter(|failed| std::future::ready(*failed)).count().await
}

async fn abuse(plan: &Plan, section: &mut Section, progress: Progress<'_>) -> Result<f64, BenchError> {
    let folder = tempfile::tempdir().map_err(keys_not_written)?;
    let path = folder.path().join("keys.toml");
    let entry = |name: &str, key: &str, limits: &str| {
        let digest: String = Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "[[key]]
name = \"{name}\"
sha256 = \"{digest}\"
{limits}
"
        )
    };
    let limits =
        ["sessions", "audio_seconds", "responses", "requests"].map(|what| format!("{what}_per_minute = {LIMIT}"));
    let keys =
        entry("honest", HONEST, "") + &entry("abusive", ABUSIVE, &format!("limits = {{ {} }}", limits.join(", ")));
    std::fs::write(&path, keys).map_err(keys_not_written)?;
    let pinned = LoadAffinity::load();
    let setting = format!("server.api_keys_file={}", path.display());
    let latencies = Latencies { sound: SOUND, ..Latencies::default() };
    let pair = Pair::start(plan, latencies, &[&setting], pinned.as_ref().ok()).await?;
    let clips = spoken().await?;
    let talk = async || {
        let mut load = load_of(&pair.hub, &clips, N_HONEST, plan.turns(TURNS));
        load.connect.key = Some(HONEST.into());
        load::run(load, progress).await
    };
    let alone = talk().await?;
    let sent = Arc::new(AbuseCounts::default());
    let mut abuser = abuser(&pair.hub.url, &sent);
    let beside = talk().await?;
    abuser.shutdown().await;
    section.percentile(&format!("{N_HONEST} sessions alone"), &alone.waits(), 95.0, None);
    section.percentile(&format!("{N_HONEST} sessions beside an abusive key"), &beside.waits(), 95.0, None);
    let times = beside.waits().times(&alone.waits(), 95.0);
    section.figures.push(
        Figure::new("p95 against that of the sessions alone", Unit::Times, times, beside.waits().len())
            .at_most(P95_TIMES),
    );
    for (name, count) in [("requests", &sent.requests), ("upgrades", &sent.upgrades)] {
        let [n, refused] = [&count.sent, &count.refused].map(|n| n.load(Ordering::Relaxed));
        let share = refused as f64 / n.max(1) as f64;
        section.figures.push(
            Figure::new(format!("of the abusive key's {n} {name}, refused"), Unit::Times, share, n).at_least(0.5),
        );
    }
    beside.add_to(section);
    section.notes.extend(pinned.as_ref().err().map(|why| format!("nothing was pinned to a core: {why}")));
    pair.stop().await
}

fn keys_not_written(source: std::io::Error) -> BenchError {
    BenchError::Hub { what: "gets no file of keys", source: Some(source) }
}

/// What the abusive key has sent.
#[derive(Default)]
struct AbuseCounts {
    requests: Count,
    upgrades: Count,
}

#[derive(Default)]
struct Count {
    sent: AtomicUsize,
    refused: AtomicUsize,
}

impl Count {
    fn add(&self, is_refused: bool) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.refused.fetch_add(usize::from(is_refused), Ordering::Relaxed);
    }
}

/// Sends everything at [`TIMES`] times the limit until it is dropped.
fn abuser(url: &str, sent: &Arc<AbuseCounts>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let every = Duration::from_secs(60) / (LIMIT * TIMES) as u32;
    let ticks = move || {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        ticks
    };
    let address = url.to_owned();
    let counts = sent.clone();
    tasks.spawn(async move {
        let client = reqwest::Client::new();
        let mut ticks = ticks();
        loop {
            ticks.tick().await;
            let response = client.get(format!("{address}/v1/models")).bearer_auth(ABUSIVE).send().await;
            counts.requests.add(response.is_ok_and(|response| response.status().as_u16() == 429));
        }
    });
    let options = ConnectOptions { mode: AudioMode::Ga, key: Some(ABUSIVE.into()), ..ConnectOptions::new(url) };
    let of_upgrades = options.clone();
    let counts = sent.clone();
    tasks.spawn(async move {
        let mut ticks = ticks();
        loop {
            ticks.tick().await;
            counts.upgrades.add(connect(&of_upgrades).await.is_err());
        }
    });
    tasks.spawn(async move {
        loop {
            flood(&options, every).await;
            // Closed, or refused: it tries again.
            sleep(every).await;
        }
    });
    tasks
}

/// One session of the abusive key: a response at each tick, and audio at [`TIMES`] times its limit, which is real time.
async fn flood(options: &ConnectOptions, every: Duration) {
    let update = json!({"type": "session.update", "session": {"type": "realtime"}});
    let Ok(mut connection) = open_with(options, &update).await else { return };
    let mut ticks = interval(every);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                if connection.sender.event(&json!({"type": "response.create"})).await.is_err() {
                    return;
                }
                // A tick is 20 ms of [`TIMES`] times real time.
                for _ in 0..every.as_millis() as usize * TIMES / 20 {
                    if connection.sender.audio(&FRAME).await.is_err() {
                        return;
                    }
                }
            }
            received = connection.receiver.next() => {
                if received.is_err() {
                    return;
                }
            }
        }
    }
}
