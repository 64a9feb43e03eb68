//! Throughput and latency of one worker and of four, at the same load a worker.
//!
//! This process is the hub and asks for speech of one word, which takes one run of 40 ms with up to four words in it: a worker
//! makes 100 words a second at most. Saturated: eight requests under way for each worker, the next at once. The other figures
//! are for requests that come at random times (Poisson), at 70 % of that. Latency is from the request to its last sound.
//!
//! The gate of latency is for requests at random times. Saturated, one worker serves its eight in step and each waits for two
//! runs exactly; with four workers any difference between them costs some requests a third run.

use super::frames::join;
use super::processes::{Launcher, end, summary};
use super::{BenchError, ClusterPlan, Figure, Measurement, Part, Progress, Section, Unit};
use crate::simulated::Costs;
use crate::{Process, Waits};
use antiphon_cluster::testing::NatsServer;
use antiphon_cluster::{Cluster, ClusterConfig, Stage};
use antiphon_engine_api::tts::{SpeechRequest, Tts};
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const COSTS: Costs = Costs { run: Duration::from_millis(40), batch: 4, word: Duration::from_millis(50) };
const N_WORKERS: usize = 4;

/// Requests under way for each worker while it is saturated: a batch that runs, and one that waits.
const IN_FLIGHT: usize = 2 * COSTS.batch;

/// Requests a second for each worker, of 100 that it can serve.
const RATE_HZ: f64 = 70.0;

const THROUGHPUT_TIMES: f64 = 3.6;
const P95_TIMES: f64 = 1.3;

/// The first requests, for which nothing is known of the workers' load, are left out.
const WARM_UP: Duration = Duration::from_millis(500);

pub(super) async fn measure(plan: &ClusterPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let length = plan.takes(15, 1);
    let run_ms = COSTS.run.as_millis();
    let batch = COSTS.batch;
    let how = format!("speech of one word, runs of {run_ms} ms, {batch} in a batch, {IN_FLIGHT} requests a worker");
    let mut section = Section::new(Part::Scale.section(), how);
    let server = NatsServer::start().await?;
    let launcher = Launcher { plan, servers: vec![server.url()], costs: COSTS };
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let config = ClusterConfig { servers: vec![server.url()], name: "hub".into(), ..ClusterConfig::default() };
    let cluster = join(&config, &tasks, stop).await?;
    let mut workers = Vec::new();
    let mut measured: Vec<(Requests, Requests)> = Vec::new();
    for n in [1, N_WORKERS] {
        while workers.len() < n {
            workers.push(launcher.worker(&format!("worker-{}", workers.len())).await?);
        }
        cluster.ready(&[Stage::Tts]).await;
        // Each worker has advertised itself and described its engines.
        sleep(WARM_UP).await;
        progress(&format!("cluster scale: {n} saturated"));
        let saturated = saturate(&cluster, n * IN_FLIGHT, length).await?;
        progress(&format!("cluster scale: {n} at {RATE_HZ:.0} requests a second each"));
        measured.push((saturated, at_random(&cluster, n as f64 * RATE_HZ, length).await?));
    }
    for (n, (saturated, random)) in [1, N_WORKERS].into_iter().zip(&measured) {
        let name = format!("{n} saturated");
        section.figures.push(Figure::new(
            format!("{name}: requests"),
            Unit::PerSecond,
            saturated.rate_hz,
            saturated.waits.len(),
        ));
        section.percentile(&name, &saturated.waits, 50.0, None);
        section.percentile(&name, &saturated.waits, 95.0, None);
        section.percentile(&format!("{n} at random"), &random.waits, 50.0, None);
        section.percentile(&format!("{n} at random"), &random.waits, 95.0, None);
        let failed = saturated.failed.len() + random.failed.len();
        let n_requests = saturated.waits.len() + random.waits.len();
        section
            .figures
            .push(Figure::new(format!("{n}: requests failed"), Unit::Count, failed as f64, n_requests).at_most(0.0));
        section.notes.extend(saturated.failed.iter().chain(&random.failed).take(super::MOST_NOTED).cloned());
    }
    if let [(one, one_random), (four, four_random)] = &measured[..] {
        let times = |name: &str, value: f64| Figure::new(name, Unit::Times, value, four.waits.len());
        let p95 = |requests: &Requests, base: &Requests| requests.waits.times(&base.waits, 95.0);
        section.figures.push(times("throughput of 4 against 1", four.rate_hz / one.rate_hz).at_least(THROUGHPUT_TIMES));
        section.figures.push(times("saturated p95 of 4 against 1", p95(four, one)));
        section.figures.push(times("p95 at random of 4 against 1", p95(four_random, one_random)).at_most(P95_TIMES));
    }
    let overview = serde_json::to_value(cluster.overview()).unwrap_or_default();
    section.notes.push(summary(&overview));
    let mut hub_cpu_s = Process(server.process_id().unwrap_or(0)).cpu_s()?;
    cluster.leave().await;
    hub_cpu_s += end(workers).await?;
    Ok(Measurement { section, hub_cpu_s })
}

/// Requests that were served.
#[derive(Default)]
struct Requests {
    rate_hz: f64,
    waits: Waits,
    failed: Vec<String>,
}

impl Requests {
    fn push(&mut self, result: Result<Duration, String>) {
        match result {
            Ok(wait) => self.waits.push(wait),
            Err(why) => self.failed.push(why),
        }
    }
}

/// The number of requests under way all the time.
async fn saturate(cluster: &Cluster, n: usize, length: Duration) -> Result<Requests, BenchError> {
    let tts = cluster.tts();
    let from = Instant::now() + WARM_UP;
    let until = from + length;
    let mut callers = JoinSet::new();
    for _ in 0..n {
        let tts = tts.clone();
        callers.spawn(async move {
            let mut results = Vec::new();
            while Instant::now() < until {
                let result = ask(&tts).await;
                if Instant::now() >= from {
                    results.push(result);
                }
            }
            results
        });
    }
    let mut requests = Requests::default();
    while let Some(results) = callers.join_next().await {
        results?.into_iter().for_each(|result| requests.push(result));
    }
    requests.rate_hz = requests.waits.len() as f64 / (Instant::now() - from).as_secs_f64();
    Ok(requests)
}

/// Requests come at random times, at this rate a second.
async fn at_random(cluster: &Cluster, rate_hz: f64, length: Duration) -> Result<Requests, BenchError> {
    let tts = cluster.tts();
    let mut callers = JoinSet::new();
    let mut next = Instant::now();
    let until = next + length;
    while next < until {
        next += Duration::from_secs_f64(-(1.0 - rand::random::<f64>()).ln() / rate_hz);
        sleep_until(next).await;
        let tts = tts.clone();
        callers.spawn(async move { ask(&tts).await });
    }
    let mut requests = Requests { rate_hz, ..Requests::default() };
    while let Some(result) = callers.join_next().await {
        requests.push(result?);
    }
    Ok(requests)
}

/// One request, to its last sound.
async fn ask(tts: &Arc<dyn Tts>) -> Result<Duration, String> {
    let begun = Instant::now();
    let mut speech = tts.speak(SpeechRequest { text: "Sure.".into(), ..SpeechRequest::default() });
    let mut n_samples = 0;
    while let Some(pcm) = speech.next().await {
        n_samples += pcm.map_err(|error| error.to_string())?.samples.len();
    }
    let expected = crate::simulated::RATE.samples_in(COSTS.word).0 as usize;
    if n_samples == expected { Ok(begun.elapsed()) } else { Err(format!("{n_samples} samples of {expected}")) }
}
