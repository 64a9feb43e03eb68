//! `antiphon-bench cluster`, and the hidden command of its workers.

use super::{hub_command, progress};
use crate::cluster::{self, ClusterPlan, Part};
use crate::simulated::{Costs, SimulatedStt, SimulatedTts};
use antiphon::cli::{CliError, blocking, print};
use antiphon_cluster::worker::{Reporter, StageEngine, WorkerOptions, WorkerStage, serve};
use antiphon_cluster::{Cluster, ClusterConfig, Stage};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What a worker has for the requests that are under way when it gets the signal to end.
const DRAIN: Duration = Duration::from_secs(20);

/// The parts, and how they are run.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  make nats-server                                the server that is measured, once
  antiphon-bench cluster                          all parts, about seven minutes
  antiphon-bench cluster --part kill --minutes 30 conversations while workers are killed, for half an hour
  antiphon-bench cluster --hubs 3                 several hubs: all parts about them, about ten minutes
  antiphon-bench cluster --quick --json           a few seconds for each part

Hub, workers and nats-server are processes on this machine; the engines are simulated and sleep for as long as they would
compute. hop: what the way to a worker adds. frames: one-way times of frames, cost of nats-server. scale: four workers
against one. kill: workers are killed and frozen under 50 conversations. rolling: all workers and NATS servers are
restarted under them. With --hubs, hubs share their sessions by JetStream behind a balancer of the benchmark. hubs: what
sessions cost. handover: they move. rolling-all: everything is restarted. kill-hub: hubs are killed. partition: a hub is cut
from NATS. jobs: speech jobs while hubs and workers are killed. Lost and doubled words are counted in the sound that the
clients received.")]
pub struct ClusterArgs {
    /// Take only this part; may be given several times
    #[arg(long, value_enum, value_name = "PART")]
    part: Vec<Part>,
    /// Measure several hubs, this many, instead of the workers [default: 3 where a part needs them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=9))]
    hubs: Option<u8>,
    /// How long workers are killed [default: 2]
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u16).range(1..=1_440))]
    minutes: Option<u16>,
    /// A folder for the logs of hubs and workers [default: their warnings go to stderr]
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
    /// A few seconds for each part
    #[arg(long)]
    quick: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Exit with 1 when a gate is missed
    #[arg(long)]
    strict: bool,
}

pub(super) async fn run(args: ClusterArgs) -> Result<(), CliError> {
    let requested = |part: &Part| match (args.part.is_empty(), args.hubs) {
        (false, _) => args.part.contains(part),
        (true, None) => Part::WORKERS.contains(part),
        (true, Some(_)) => Part::HUBS.contains(part),
    };
    let parts = Part::WORKERS.into_iter().chain(Part::HUBS);
    if let Some(folder) = &args.logs {
        std::fs::create_dir_all(folder).map_err(|error| CliError::file("written", folder, &error))?;
    }
    let plan = ClusterPlan {
        parts: parts.filter(requested).collect(),
        n_hubs: args.hubs.unwrap_or(3).into(),
        quick: args.quick,
        kill_for: args.minutes.map(|minutes| Duration::from_secs(60 * u64::from(minutes))),
        logs: args.logs,
        hub: hub_command("hub")?,
        worker: hub_command("cluster-worker")?,
    };
    let report = cluster::run(&plan, &progress).await;
    super::write_report(&report, args.json, args.strict)
}

/// A worker with simulated engines.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    #[command(flatten)]
    cluster: Member,
    /// The worker's name
    #[arg(long)]
    name: String,
    #[command(flatten)]
    costs: CostArgs,
    /// Stop when the standard input ends
    #[arg(long)]
    with_stdin: bool,
}

/// Where the cluster is.
#[derive(Debug, Default, Args)]
pub(super) struct Member {
    /// The NATS servers
    #[arg(long, value_delimiter = ',')]
    servers: Vec<String>,
}

/// The costs of simulated engines.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct CostArgs {
    /// Duration of a run
    #[arg(long, default_value_t = 40)]
    pub(super) run_ms: u16,
    /// Requests in a run
    #[arg(long, default_value_t = 4)]
    pub(super) batch: u16,
    /// Playing time of a word
    #[arg(long, default_value_t = 100)]
    pub(super) word_ms: u16,
}

impl CostArgs {
    pub(super) fn costs(self) -> Costs {
        let ms = |n: u16| Duration::from_millis(n.into());
        Costs { run: ms(self.run_ms), batch: self.batch.into(), word: ms(self.word_ms) }
    }
}

impl Member {
    /// Joins as a hub and waits until workers serve both stages.
    pub(super) async fn join(&self, tasks: &TaskTracker, stop: CancellationToken) -> Result<Cluster, CliError> {
        let sessions: antiphon_cluster::Sessions = Arc::new(|| (0, 0, false));
        let cluster = Cluster::join(&self.config("hub"), env!("CARGO_PKG_VERSION"), sessions, tasks, stop).await;
        let cluster = cluster.map_err(|error| CliError::failed(&error))?;
        cluster.ready(&[Stage::Stt, Stage::Tts]).await;
        Ok(cluster)
    }

    pub(super) fn config(&self, name: &str) -> ClusterConfig {
        ClusterConfig { servers: self.servers.clone(), name: name.into(), ..ClusterConfig::default() }
    }
}

/// Prints a line when it serves. SIGTERM, or the end of its standard input, lets it finish what it has.
pub(super) async fn run_worker(args: WorkerArgs) -> Result<(), CliError> {
    let costs = args.costs.costs();
    let engines = blocking(move || Ok::<_, String>((SimulatedStt::start(costs)?, SimulatedTts::start(costs)?)));
    let (stt, tts) = engines.await?.map_err(CliError::Failed)?;
    let stage = |engine| WorkerStage {
        engine,
        engine_name: "simulated".into(),
        model: "simulated".into(),
        fingerprint: format!("{costs:?}"),
    };
    let stages = vec![stage(StageEngine::Stt(Arc::new(stt))), stage(StageEngine::Tts(Arc::new(tts)))];
    let options = WorkerOptions {
        name: args.name.clone(),
        build: env!("CARGO_PKG_VERSION"),
        drain: DRAIN,
        // The line of a worker whose output is closed is not read.
        ready: Box::new(|| drop(print::line("ready"))),
        reporter: Reporter::default(),
    };
    let mut terminated = signal(SignalKind::terminate()).map_err(|error| CliError::failed(&error))?;
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    let config = args.cluster.config(&args.name);
    let mut serving = std::pin::pin!(serve(&config, stages, options, &tasks, stop.clone()));
    tokio::select! {
        served = &mut serving => return served.map_err(|error| CliError::failed(&error)),
        _ = terminated.recv() => {}
        () = super::servers::end_of_stdin(), if args.with_stdin => {}
    }
    stop.cancel();
    serving.await.map_err(|error| CliError::failed(&error))
}
