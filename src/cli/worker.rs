//! `antiphon worker`: serves engines to the hubs of a cluster.

use super::{CliError, Settings, blocking, print, signals};
use crate::assembly::worker_stages;
use crate::config::Config;
use crate::server::worker_probes;
use antiphon_cluster::worker::{self, Reporter, StageEngine, WorkerOptions, WorkerStage};
use antiphon_cluster::{ClusterError, Stage};
use clap::Args;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What to serve, and to whom.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ANTIPHON_CLUSTER__SERVERS=nats://127.0.0.1:4222 antiphon worker
                                           speech to text and text to speech, for hubs on this machine
  antiphon worker --config worker.toml --stage tts --name voices-1
                                           voices only, with your settings and a name of its own
  ANTIPHON_SERVER__PROBE_LISTEN=127.0.0.1:8081 antiphon worker --config worker.toml
                                           with /healthz, /readyz and /metrics

The settings are those of a hub: [cluster] says how to reach NATS, [stt], [tts], [turn] and [models] which engines are loaded.
Workers that serve a model by the same name need the same files.

Ctrl-C lets requests under way finish for server.drain_seconds; hubs use the other workers from then on. A second Ctrl-C
stops it immediately. SIGHUP reads the files of upstream keys again.")]
pub struct WorkerArgs {
    /// What it serves: stt, tts, turn, several with commas [default: cluster.stages]
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = ["stt", "tts", "turn"])]
    stage: Vec<String>,
    /// Its name in dashboards and logs, which no other worker has [default: cluster.name, or the machine's name and the stages]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    settings: Settings,
}

pub(super) async fn run(args: WorkerArgs) -> Result<(), CliError> {
    let mut config = args.settings.load()?;
    if !args.stage.is_empty() {
        config.cluster.stages = args.stage;
    }
    let stages = stages(&config)?;
    config.cluster.name = name(args.name, &config, &stages)?;
    let probes = match config.server.probe_listen.as_str() {
        "" => None,
        address => {
            let listener = TcpListener::bind(address).await;
            let setting = "server.probe_listen";
            Some(listener.map_err(|source| CliError::Listen { setting, address: address.into(), source })?)
        }
    };
    let stop = CancellationToken::new();
    let signals = [signals::watch(stop.clone()), signals::watch_hang_ups()];
    let reporter = Reporter::default();
    let served = tokio::select! {
        served = serve(&config, stages, &reporter, stop) => served,
        () = worker_probes(probes, &config.server, reporter.clone()) => Ok(()),
    };
    signals.iter().for_each(tokio::task::JoinHandle::abort);
    served
}

/// Loads the engines and serves them until `stop` is cancelled.
async fn serve(
    config: &Config,
    stages: Vec<Stage>,
    reporter: &Reporter,
    stop: CancellationToken,
) -> Result<(), CliError> {
    worker::check(&config.cluster).await.map_err(CliError::Cluster)?;
    let loading = config.clone();
    let loaded = tokio::select! {
        loaded = blocking(move || worker_stages(&loading, &stages)) => loaded,
        () = stop.cancelled() => return Err(CliError::Interrupted),
    }??;
    let name = config.cluster.name.clone();
    let serves = loaded.iter().map(shown).collect::<Vec<_>>().join(", ");
    let line = format!("Antiphon worker {name} serves {serves} through NATS at {}", config.cluster.shown_servers());
    let options = WorkerOptions {
        name,
        build: env!("CARGO_PKG_VERSION"),
        drain: Duration::from_secs(u64::from(config.server.drain_seconds)),
        ready: Box::new(move || {
            if let Err(error) = print::line(&line) {
                tracing::warn!("{error}");
            }
        }),
        reporter: reporter.clone(),
    };
    let tasks = TaskTracker::new();
    let served = worker::serve(&config.cluster, loaded, options, &tasks, stop).await;
    tasks.close();
    tasks.wait().await;
    Ok(served?)
}

/// The stages that are asked for, each once.
fn stages(config: &Config) -> Result<Vec<Stage>, CliError> {
    if !config.cluster.is_set() {
        return Err(CliError::Usage(
            "cluster.servers is empty: name the NATS server, as in ANTIPHON_CLUSTER__SERVERS=nats://127.0.0.1:4222"
                .into(),
        ));
    }
    let mut stages = config.cluster.stages().map_err(CliError::Cluster)?;
    stages.sort_unstable();
    stages.dedup();
    Ok(stages)
}

/// The name by which hubs know the worker.
fn name(asked: Option<String>, config: &Config, stages: &[Stage]) -> Result<String, CliError> {
    let cluster = &config.cluster;
    let name = match asked.filter(|name| !name.is_empty()) {
        Some(name) => name,
        None if !cluster.name.is_empty() => cluster.name.clone(),
        None => {
            let names: Vec<_> = [cluster.shown_name()].into_iter().chain(stages.iter().map(Stage::to_string)).collect();
            names.join("-")
        }
    };
    if name.chars().any(char::is_control) || name.chars().count() > MAX_NAME_CHARS {
        let message = format!("a worker's name has at most {MAX_NAME_CHARS} characters, and no control characters");
        return Err(CliError::Cluster(ClusterError::Setting { setting: "name", message }));
    }
    Ok(name)
}

/// The longest name of a worker, in characters.
const MAX_NAME_CHARS: usize = 128;

fn shown(stage: &WorkerStage) -> String {
    let of = match &stage.engine {
        StageEngine::Stt(_) => Stage::Stt,
        StageEngine::Tts(_) => Stage::Tts,
        StageEngine::Turn(_) => Stage::Turn,
    };
    match stage.model == stage.engine_name {
        true => format!("{of} ({})", stage.engine_name),
        false => format!("{of} ({}: {})", stage.engine_name, stage.model),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(stages: &[&str]) -> Config {
        let mut config = Config::default();
        config.cluster.servers = vec!["nats://127.0.0.1:4222".into()];
        config.cluster.stages = stages.iter().map(|stage| (*stage).to_owned()).collect();
        config
    }

    #[test]
    fn the_name_is_the_one_asked_for_or_says_what_is_served_where() {
        let mut config = config(&["tts", "stt", "tts"]);
        let stages = stages(&config).unwrap();
        assert_eq!(stages, [Stage::Stt, Stage::Tts]);
        let named = name(None, &config, &stages).unwrap();
        assert!(named.ends_with("-stt-tts") && named.len() > "-stt-tts".len(), "{named}");
        config.cluster.name = "rack 3".into();
        assert_eq!(name(None, &config, &stages).unwrap(), "rack 3");
        assert_eq!(name(Some("voices".into()), &config, &stages).unwrap(), "voices");
        let error = name(Some("a\nb".into()), &config, &stages).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
    }

    #[test]
    fn without_a_server_it_says_how_to_name_one() {
        let error = stages(&Config::default()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("ANTIPHON_CLUSTER__SERVERS="), "{error}");
    }
}
