//! Speech jobs while hubs and workers are killed: each five seconds a hub or a worker, in turn, until all jobs are done.
//!
//! The jobs are asked for and looked at through the balancer; a request that finds its hub dead is sent again, with the same
//! idempotency key. The length of each text's sound is that of the same job before anything is killed. The list must then name
//! each job once, completed, and the sound of each must have that length, byte by byte.

use super::site::{COSTS, Site};
use super::{BenchError, ClusterPlan, Figure, Measurement, Part, Progress, Section, Unit};
use crate::Process;
use antiphon_cluster::testing::NatsServer;
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const N_JOBS: usize = 50;
const N_TEXTS: usize = 5;
/// Sentences of the shortest text; each has eight words.
const N_SENTENCES: usize = 9;

/// Timeout for all jobs.
const DEADLINE: Duration = Duration::from_secs(300);
/// Between two looks at the jobs.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Between two attempts at a request.
const AGAIN: Duration = Duration::from_millis(200);
/// Timeout for a request, with its repetitions.
const REQUEST_DEADLINE: Duration = Duration::from_secs(30);

pub(super) async fn measure(plan: &ClusterPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let n = plan.sessions(N_JOBS, 6);
    let n_texts = plan.sessions(N_TEXTS, 2);
    let every = plan.takes(5, 2);
    let how = format!("{n} jobs on {} hubs; a hub or a worker is killed each {every:?}", plan.n_hubs);
    let mut section = Section::new(Part::Jobs.section(), how);
    let server = NatsServer::start().await?;
    let mut site = Site::start(plan, vec![server.url()], 1, vec![None; plan.n_hubs]).await?;
    let jobs = Jobs { client: Client::new(), url: format!("{}/v1/audio/speech/jobs", site.balancer.url()) };

    progress("cluster jobs: undisturbed");
    let mut expected = HashMap::new();
    for at in 0..n_texts {
        expected.insert(jobs.submit(at, &format!("undisturbed-{at}")).await?, at);
    }
    jobs.done(expected.len()).await?;
    let mut lengths = vec![0; n_texts];
    for (id, at) in &expected {
        lengths[*at] = jobs.sound(id).await?.len();
    }
    let mut texts = HashMap::new();
    for at in 0..n {
        texts.insert(jobs.submit(at % n_texts, &format!("job-{at}")).await?, at % n_texts);
    }
    let began = Instant::now();
    let mut kills = 0;
    let finished = jobs.done(n + n_texts);
    tokio::pin!(finished);
    loop {
        tokio::select! {
            done = &mut finished => break done?,
            () = sleep(every) => {}
        }
        progress(&format!("cluster jobs: {kills} killed, {:.0} s", began.elapsed().as_secs_f64()));
        let at = kills / 2;
        match kills % 2 {
            0 => site.kill(at % site.hubs.len()).await?,
            _ => {
                let worker = site.workers.remove(0);
                let name = worker.name().to_owned();
                site.cpu_s += worker.kill().await?;
                site.workers.push(site.launcher.worker(&name).await?);
            }
        }
        kills += 1;
    }
    let took = began.elapsed();
    let all = jobs.list().await?;
    let of = |id: &str| all.iter().filter(|job| job["id"] == id).collect::<Vec<_>>();
    let mut not_once = 0;
    let mut failed = 0;
    let mut other_length = 0;
    for (id, text) in &texts {
        let listed = of(id);
        not_once += usize::from(listed.len() != 1);
        if !listed.iter().all(|job| job["status"] == "completed") {
            failed += 1;
            section.notes.push(format!("{id}: {}", listed.first().map_or(Value::Null, |job| job["error"].clone())));
            continue;
        }
        let sound = jobs.sound(id).await?;
        other_length += usize::from(sound.len() != lengths[*text] || sound.is_empty());
    }
    let count = |name: &str, value: usize| Figure::new(name, Unit::Count, value as f64, texts.len());
    section.figures.extend([
        count("jobs asked for", texts.len()),
        count("killed", kills),
        count("jobs failed", failed).at_most(0.0),
        count("jobs not listed once", not_once + all.len().abs_diff(n + n_texts)).at_most(0.0),
        count("sounds of another length", other_length).at_most(0.0),
        Figure::new("all jobs", Unit::Of("s"), took.as_secs_f64(), texts.len()),
    ]);
    let words = lengths.iter().sum::<usize>() as u128 / (48 * COSTS.word.as_millis());
    section.notes.push(format!("the texts have {words} words together"));
    let cpu_s = Process(server.process_id().unwrap_or(0)).cpu_s()? + site.end().await?;
    Ok(Measurement { section, hub_cpu_s: cpu_s })
}

/// The jobs of the hubs behind the balancer.
struct Jobs {
    client: Client,
    url: String,
}

impl Jobs {
    /// Asks for the `at`th text; returns the job's id.
    async fn submit(&self, at: usize, key: &str) -> Result<String, BenchError> {
        let body = json!({"model": "tts-1", "voice": "tone", "input": text(at), "response_format": "pcm"});
        let response = self.ask(Method::POST, "", Some((&body, key))).await?;
        let status = response.status();
        let job = response.json::<Value>().await.map_err(failed)?;
        match job["id"].as_str() {
            Some(id) if status == StatusCode::ACCEPTED => Ok(id.to_owned()),
            _ => Err(BenchError::Engine(format!("a job was refused with {status}: {job}"))),
        }
    }

    /// Waits until `n` jobs have ended.
    async fn done(&self, n: usize) -> Result<(), BenchError> {
        let waiting = async {
            loop {
                let all = self.list().await?;
                let has_ended = |job: &&Value| job["status"] == "completed" || job["status"] == "failed";
                if all.iter().filter(has_ended).count() >= n {
                    return Ok(());
                }
                sleep(LOOK_EVERY).await;
            }
        };
        let late = || BenchError::Engine(format!("the jobs have not ended after {DEADLINE:?}"));
        timeout(DEADLINE, waiting).await.map_err(|_| late())?
    }

    /// All jobs.
    async fn list(&self) -> Result<Vec<Value>, BenchError> {
        let mut page: Value = self.ask(Method::GET, "?limit=100", None).await?.json().await.map_err(failed)?;
        Ok(page["data"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    async fn sound(&self, id: &str) -> Result<Vec<u8>, BenchError> {
        let response = self.ask(Method::GET, &format!("/{id}/audio"), None).await?;
        match response.status() {
            StatusCode::OK => Ok(response.bytes().await.map_err(failed)?.to_vec()),
            status => Err(BenchError::Engine(format!("the sound of {id} was refused with {status}"))),
        }
    }

    /// One request, sent again while its hub is dead, starts or is busy.
    async fn ask(&self, method: Method, path: &str, body: Option<(&Value, &str)>) -> Result<Response, BenchError> {
        let until = Instant::now() + REQUEST_DEADLINE;
        loop {
            let mut request = self.client.request(method.clone(), format!("{}{path}", self.url));
            if let Some((body, key)) = body {
                request = request.json(body).header("idempotency-key", key);
            }
            match request.send().await {
                Ok(response) if response.status().as_u16() != 503 || Instant::now() > until => return Ok(response),
                Err(error) if Instant::now() > until => return Err(failed(error)),
                _ => sleep(AGAIN).await,
            }
        }
    }
}

fn text(at: usize) -> String {
    let sentence = "Sure I can help with that for you.";
    vec![sentence; N_SENTENCES + at].join(" ")
}

#[allow(clippy::needless_pass_by_value, reason = "it is passed to map_err")]
fn failed(error: reqwest::Error) -> BenchError {
    BenchError::Engine(antiphon_telemetry::with_causes(&error))
}
