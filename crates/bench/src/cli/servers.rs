//! `antiphon-bench hub` and `antiphon-bench mock`: the hub under measurement and mock engines, as separate processes.
//! Both print their address first and serve until they are killed. With `--with-stdin` they also stop when their
//! standard input ends, so that they never outlive the benchmark.

use super::cluster::{CostArgs, Member};
use crate::Engines as HubEngines;
use crate::conversation::story::Storyteller;
use crate::mock::{self, Latencies};
use crate::scripted::ScriptedStt;
use crate::simulated;
use antiphon::assembly::{EngineManager, Membership};
use antiphon::cli::{CliError, blocking, print};
use antiphon::config::{self, Config, Sources};
use antiphon::server::{self, Keys, Parts};
use antiphon_cluster::ClusterConfig;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::{llm::FakeLlm, stt::FakeStt, tts::FakeTts, vad::FakeVad};
use antiphon_engine_api::llm::Llm;
use antiphon_telemetry::Metrics;
use clap::Args;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Arguments of the hub under measurement.
#[derive(Debug, Args)]
pub struct HubArgs {
    /// The kind of engines
    #[arg(value_enum)]
    engines: HubEngines,
    /// The address of the mock engines, up to and including /v1
    #[arg(long, required_if_eq("engines", "mock"))]
    engines_url: Option<String>,
    /// A setting that differs from its default
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    cluster: Member,
    #[command(flatten)]
    shared: SharedArgs,
    #[command(flatten)]
    costs: CostArgs,
    /// Simulated engines of each stage in the hub
    #[arg(long, default_value_t = 1)]
    instances: u16,
    /// Words of a reply of the simulated engines in the hub
    #[arg(long, default_value_t = 14)]
    reply_words: u16,
    /// Stop when the standard input ends
    #[arg(long)]
    with_stdin: bool,
}

/// What a hub shares with others.
#[derive(Debug, Args)]
struct SharedArgs {
    /// Share sessions and jobs with the hubs that have this key
    #[arg(long, value_name = "FILE")]
    sealing_key: Option<String>,
    /// The hub's name
    #[arg(long, default_value = "hub")]
    name: String,
    /// NATS servers that keep each record
    #[arg(long, default_value_t = 1)]
    replicas: usize,
    /// How long a hub that stops waits for its sessions to go
    #[arg(long, default_value_t = 0)]
    drain_s: u32,
}

/// Session limit of the hub, higher than any measure needs.
const MAX_SESSIONS: usize = 5_000;

/// Number of utterances the fakes can transcribe, higher than any measure needs.
const MAX_TURNS: usize = 10_000;

/// Serves on a free port; prints its address first.
pub(super) async fn run_hub(args: HubArgs) -> Result<(), CliError> {
    let mut config = args.config()?;
    let with_stdin = args.with_stdin;
    config.server.max_sessions = MAX_SESSIONS;
    server::raise_descriptor_limit();
    config.server.drain_seconds = args.shared.drain_s;
    let keys = match config.server.api_keys_file.as_str() {
        "" => Keys::default(),
        _ => Keys::load(&config.server).map_err(|error| CliError::failed(&error))?,
    };
    // Measures compare one load with another: what the hub does without under load is asked for (`--set slo.brownout=true`).
    config.slo.brownout &= args.set.iter().any(|setting| setting.starts_with("slo."));
    if args.shared.sealing_key.is_none() {
        config.speech.jobs_dir.clear();
    }
    let listener = listen().await?;
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    let mut cluster = None;
    let mut manager = None;
    let engines = match args.engines {
        HubEngines::Fake => fakes(),
        HubEngines::Simulated => {
            let costs = args.costs.costs();
            let shape = simulated::Shape { instances: args.instances.into(), reply_words: args.reply_words.into() };
            blocking(move || simulated::engines(costs, shape)).await?.map_err(CliError::Failed)?
        }
        HubEngines::Cluster if args.shared.sealing_key.is_some() => {
            config.cluster = args.shared.config(&args.cluster);
            let joined = Arc::new(EngineManager::new(&config).map_err(|error| CliError::failed(&error))?);
            joined.join(Membership::join(&config).await.map_err(|error| CliError::failed(&error))?);
            let membership = manager.insert(joined).membership().expect("joined above");
            membership.ready().await;
            simulated::with(membership.cluster().stt(), membership.cluster().tts())
        }
        HubEngines::Cluster => {
            let cluster = cluster.insert(args.cluster.join(&tasks, stop.clone()).await?);
            simulated::with(cluster.stt(), cluster.tts())
        }
        HubEngines::Shipped => {
            let config = config.clone();
            blocking(move || antiphon::assembly::build(&config)).await??
        }
        HubEngines::Conversation => {
            let config = config.clone();
            let engines = blocking(move || antiphon::assembly::build(&config)).await??;
            Engines { llm: Arc::new(Storyteller::new()), ..engines }
        }
        HubEngines::Mock | HubEngines::Scripted => {
            let mut config = config.clone();
            // The figures are for the engines that need no model, whatever is installed; mock engines are configured above.
            config.turn.model.clear();
            for (engine, offline) in [
                (&mut config.vad.engine, "earshot"),
                (&mut config.stt.engine, "none"),
                (&mut config.tts.engine, "flite"),
            ] {
                if engine == antiphon::assembly::AUTO {
                    *engine = offline.into();
                }
            }
            let engines = blocking(move || antiphon::assembly::build(&config)).await??;
            match args.engines {
                HubEngines::Scripted => Engines { stt: Arc::new(ScriptedStt), ..engines },
                _ => engines,
            }
        }
    };
    let shown = manager.clone().map(|manager| (manager, Vec::new()));
    let parts = Parts { config, engines, metrics: Metrics::new(), keys, tls: None, manager: shown };
    let address = listener.local_addr();
    serve(&address, with_stdin, stop.clone(), server::serve(listener, parts, stop)).await?;
    if let Some(membership) = manager.as_ref().and_then(|manager| manager.membership()) {
        print::json(&serde_json::to_value(membership.overview()).unwrap_or_default())?;
        membership.leave().await;
    }
    match cluster {
        // For the benchmark, which reads it when it has closed the standard input.
        Some(cluster) => print::json(&serde_json::to_value(cluster.overview()).unwrap_or_default()),
        None => Ok(()),
    }
}

/// Latencies of the mock engines.
#[derive(Debug, Args)]
pub struct MockArgs {
    #[arg(long, default_value_t = 0)]
    stt_ms: u32,
    #[arg(long, default_value_t = 0)]
    ttft_ms: u32,
    #[arg(long, default_value_t = 0)]
    itl_ms: u32,
    #[arg(long, default_value_t = 0)]
    ttfb_ms: u32,
    #[arg(long, default_value_t = 2_000)]
    sound_ms: u32,
    /// Answer with the story of the conversation benchmark
    #[arg(long)]
    story: bool,
    /// Stop when the standard input ends
    #[arg(long)]
    with_stdin: bool,
}

/// Runs mock engines on a free port.
pub(super) async fn run_mock(args: MockArgs) -> Result<(), CliError> {
    let ms = |n: u32| Duration::from_millis(n.into());
    let latencies = Latencies {
        stt: ms(args.stt_ms),
        first_token: ms(args.ttft_ms),
        token: ms(args.itl_ms),
        first_sound: ms(args.ttfb_ms),
        sound: ms(args.sound_ms),
    };
    let llm: Option<Arc<dyn Llm>> = match args.story {
        true => Some(Arc::new(Storyteller::new())),
        false => None,
    };
    let listener = listen().await?;
    let address = listener.local_addr();
    let stop = CancellationToken::new();
    serve(&address, args.with_stdin, stop.clone(), mock::serve(listener, latencies, llm, stop)).await
}

impl SharedArgs {
    fn config(&self, member: &Member) -> ClusterConfig {
        ClusterConfig {
            jetstream: true,
            sealing_key: self.sealing_key.clone().unwrap_or_default(),
            replicas: self.replicas,
            ..member.config(&self.name)
        }
    }
}

impl HubArgs {
    fn config(&self) -> Result<Config, CliError> {
        let mut settings = Vec::new();
        let mut set =
            |name: String, value: &str| settings.push((format!("ANTIPHON_{}", name.to_uppercase()), value.to_owned()));
        if let Some(url) = &self.engines_url {
            for section in ["stt", "llm", "tts"] {
                for (key, value) in [("engine", "openai"), ("base_url", url), ("api_key_env", "")] {
                    set(format!("{section}__{key}"), value);
                }
            }
        }
        // What the installed models are is not a setting of a measure.
        if let Ok(folder) = std::env::var("ANTIPHON_MODELS__DIR") {
            set("models__dir".into(), &folder);
        }
        for setting in &self.set {
            let parts = setting.split_once('=').and_then(|(name, value)| Some((name.split_once('.')?, value)));
            let ((section, key), value) =
                parts.ok_or_else(|| CliError::Usage(format!("--set {setting}: write section.key=value")))?;
            set(format!("{section}__{key}"), value);
        }
        Ok(config::load(&Sources { env: settings, ..Sources::default() })?)
    }
}

async fn listen() -> Result<TcpListener, CliError> {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    listener.map_err(|source| CliError::Listen { setting: "server.listen", address: "127.0.0.1:0".into(), source })
}

/// Prints the address and serves until SIGTERM; if `with_stdin`, until the standard input ends.
async fn serve(
    address: &std::io::Result<std::net::SocketAddr>,
    with_stdin: bool,
    stop: CancellationToken,
    serving: impl Future<Output = std::io::Result<()>>,
) -> Result<(), CliError> {
    let address = address.as_ref().map_err(|error| CliError::failed(error))?;
    print::line(&address.to_string())?;
    let mut terminated = signal(SignalKind::terminate()).map_err(|error| CliError::failed(&error))?;
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => return served.map_err(|error| CliError::failed(&error)),
        () = end_of_stdin(), if with_stdin => stop.cancel(),
        _ = terminated.recv() => stop.cancel(),
    }
    serving.await.map_err(|error| CliError::failed(&error))
}

/// The benchmark holds the other end of the pipe, which closes when the benchmark ends for any reason.
pub(super) async fn end_of_stdin() {
    let _ = blocking(|| std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())).await;
}

/// Each utterance is transcribed as "ok" and answered with "You said: ok", 600 ms of a tone.
fn fakes() -> Engines {
    let heard = std::iter::repeat_n("ok", MAX_TURNS);
    Engines {
        vad: Arc::new(FakeVad),
        turn: None,
        speaker: None,
        stt: Arc::new(FakeStt::hears(heard)),
        llm: Arc::new(FakeLlm::default()),
        tts: Arc::new(FakeTts::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_taken_as_the_environment_has_them() {
        let args = |set: &str| HubArgs {
            engines: HubEngines::Mock,
            engines_url: Some("http://127.0.0.1:9/v1".into()),
            set: vec![set.into()],
            cluster: Member::default(),
            shared: SharedArgs { sealing_key: None, name: "hub".into(), replicas: 1, drain_s: 0 },
            costs: CostArgs { run_ms: 40, batch: 4, word_ms: 100 },
            instances: 1,
            reply_words: 14,
            with_stdin: false,
        };
        let config = args("session.lead_ms=250").config().expect("right settings");
        assert_eq!((config.session.lead_ms, config.tts.engine.as_str()), (250, "openai"));
        assert_eq!(config.llm.base_url, "http://127.0.0.1:9/v1");
        assert!(args("session.lead=1").config().expect_err("unknown").to_string().contains("ANTIPHON_SESSION__LEAD"));
        assert!(args("lead_ms").config().expect_err("no setting").to_string().contains("section.key=value"));
    }
}
