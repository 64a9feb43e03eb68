//! The processes of a cluster on this machine: hubs and workers, started, killed, frozen and stopped.
//!
//! They are hidden commands of this program and end when their standard input does, so none outlives the benchmark. The NATS
//! servers are those of [`antiphon_cluster::testing`].

use super::{BenchError, ClusterPlan};
use crate::hub_process::{StartedProcess, start};
use crate::simulated::Costs;
use crate::{Engines, HubCommand, Process, name_of};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

/// The longest wait for a process after the signal to end; a worker finishes what it has.
const END_DEADLINE: Duration = Duration::from_secs(30);

/// Starts hubs and workers of one cluster.
pub(super) struct Launcher<'a> {
    pub(super) plan: &'a ClusterPlan,
    /// URLs of the NATS servers.
    pub(super) servers: Vec<String>,
    pub(super) costs: Costs,
}

/// What hubs need to share their sessions and jobs.
#[derive(Clone, Debug)]
pub(super) struct SharedStorage {
    /// File with the key that they seal with.
    pub(super) sealing_key: PathBuf,
    /// NATS servers that keep each record.
    pub(super) n_replicas: usize,
    /// How long a hub that stops waits for its sessions to go, in seconds.
    pub(super) drain_s: u16,
}

/// A hub.
pub(super) struct HubProcess {
    pub(super) url: String,
    started: StartedProcess,
}

/// A worker.
pub(super) struct WorkerProcess {
    name: String,
    started: StartedProcess,
}

impl Launcher<'_> {
    /// Starts a worker; returns once it serves.
    pub(super) async fn worker(&self, name: &str) -> Result<WorkerProcess, BenchError> {
        let args = ["--servers".into(), self.servers.join(","), "--name".into(), name.into()];
        let started = self.start(&self.plan.worker, name, args.into_iter().chain(self.costs.args()).collect()).await?;
        Ok(WorkerProcess { name: name.into(), started })
    }

    /// Starts that many workers.
    pub(super) async fn workers(&self, n: usize) -> Result<Vec<WorkerProcess>, BenchError> {
        let starts = (0..n).map(|at| async move { self.worker(&format!("worker-{at}")).await });
        futures_util::future::try_join_all(starts).await
    }

    /// Starts a hub with these engines; returns once it serves, with workers once they are found.
    pub(super) async fn hub(&self, engines: Engines) -> Result<HubProcess, BenchError> {
        let mut args = vec![name_of(engines)];
        if engines == Engines::Cluster {
            args.extend(["--servers".into(), self.servers.join(",")]);
        }
        args.extend(self.costs.args());
        let started = self.start(&self.plan.hub, &format!("hub-{}", name_of(engines)), args).await?;
        Ok(HubProcess { url: format!("http://{}", started.line), started })
    }

    /// Starts a hub that shares its sessions with others, its engines on workers; returns once it serves and workers are found.
    pub(super) async fn shared_hub(&self, name: &str, shared: &SharedStorage) -> Result<HubProcess, BenchError> {
        let mut args = vec![name_of(Engines::Cluster), "--servers".into(), self.servers.join(",")];
        let key = shared.sealing_key.to_string_lossy().into_owned();
        let replicas = shared.n_replicas.to_string();
        let drain_s = shared.drain_s.to_string();
        let named = [("--name", name.into()), ("--sealing-key", key), ("--replicas", replicas), ("--drain-s", drain_s)];
        args.extend(named.into_iter().flat_map(|(option, value)| [option.to_owned(), value]));
        args.extend(self.costs.args());
        let started = self.start(&self.plan.hub, name, args).await?;
        Ok(HubProcess { url: format!("http://{}", started.line), started })
    }

    async fn start(&self, command: &HubCommand, name: &str, args: Vec<String>) -> Result<StartedProcess, BenchError> {
        let log = match &self.plan.logs {
            Some(folder) => {
                let path = folder.join(format!("{name}.log"));
                let log = OpenOptions::new().create(true).append(true).open(&path);
                Some(log.map_err(|source| BenchError::Hub { what: "has no log file", source: Some(source) })?)
            }
            None => None,
        };
        start(command, &args, log).await
    }
}

impl HubProcess {
    pub(super) fn process(&self) -> Process {
        self.started.process
    }

    /// Stops it; returns its CPU seconds and, of a hub with workers, what it says of the cluster.
    pub(super) async fn stop(mut self) -> Result<(f64, Value), BenchError> {
        let cpu_s = self.process().cpu_s()?;
        drop(self.started.child.stdin.take());
        let mut said = String::new();
        // A hub that does not end is killed when it is dropped.
        let _ = timeout(END_DEADLINE, self.started.stdout.read_to_string(&mut said)).await;
        Ok((cpu_s, serde_json::from_str(&said).unwrap_or(Value::Null)))
    }

    /// Its address.
    pub(super) fn address(&self) -> Result<SocketAddr, BenchError> {
        self.started.line.parse().map_err(|_| BenchError::hub("printed no address"))
    }

    /// Ends it as a crash would; returns its CPU seconds.
    pub(super) async fn kill(self) -> Result<f64, BenchError> {
        self.started.kill().await
    }

    /// Sends the signal to end, which hands its sessions over, and waits for its end; returns its CPU seconds before,
    /// and whether it ended with 0.
    pub(super) async fn drain(self) -> Result<(f64, bool), BenchError> {
        self.started.drain().await
    }
}

impl WorkerProcess {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn process(&self) -> Process {
        self.started.process
    }

    /// Ends it as a crash would; returns its CPU seconds.
    pub(super) async fn kill(self) -> Result<f64, BenchError> {
        self.started.kill().await
    }

    /// Sends the signal to finish what it has, and waits for its end; returns its CPU seconds before, and whether it
    /// ended with 0.
    pub(super) async fn drain(self) -> Result<(f64, bool), BenchError> {
        self.started.drain().await
    }

    /// Stops all its threads; its connections stay open.
    pub(super) fn freeze(&self) -> Result<(), BenchError> {
        self.started.signal(Signal::STOP)
    }

    /// Lets it go on.
    pub(super) fn thaw(&self) -> Result<(), BenchError> {
        self.started.signal(Signal::CONT)
    }
}

impl StartedProcess {
    async fn kill(mut self) -> Result<f64, BenchError> {
        let cpu_s = self.process.cpu_s()?;
        self.child.kill().await.map_err(failed)?;
        Ok(cpu_s)
    }

    async fn drain(mut self) -> Result<(f64, bool), BenchError> {
        let cpu_s = self.process.cpu_s()?;
        self.signal(Signal::TERM)?;
        match timeout(END_DEADLINE, self.child.wait()).await {
            Ok(ended) => Ok((cpu_s, ended.map_err(failed)?.success())),
            Err(_) => Ok((cpu_s, false)),
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), BenchError> {
        let pid = i32::try_from(self.process.0).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| BenchError::hub("has no process"))?;
        kill_process(pid, signal).map_err(|error| failed(error.into()))
    }
}

impl Costs {
    /// As arguments of the hidden commands.
    fn args(&self) -> Vec<String> {
        let run = self.run.as_millis().to_string();
        let batch = self.batch.to_string();
        let word = self.word.as_millis().to_string();
        let args = [("--run-ms", run), ("--batch", batch), ("--word-ms", word)];
        args.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

/// Kills the workers that are left; returns their CPU seconds.
pub(super) async fn end(workers: Vec<WorkerProcess>) -> Result<f64, BenchError> {
    let mut cpu_s = 0.0;
    for worker in workers {
        cpu_s += worker.kill().await?;
    }
    Ok(cpu_s)
}

/// What a hub says of the cluster, in one line.
pub(super) fn summary(overview: &Value) -> String {
    let names = ["attempts", "busy", "retried", "failed", "away", "unsent", "malformed", "stale", "duplicate", "early"];
    let count = |name: &&str| format!("{name} {}", overview[*name]);
    format!("the hub: {}", names.iter().map(count).collect::<Vec<_>>().join(", "))
}

fn failed(source: std::io::Error) -> BenchError {
    BenchError::Hub { what: "does not take a signal", source: Some(source) }
}
