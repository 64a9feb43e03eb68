//! `antiphon config`: checks a configuration file and prints the defaults.

use super::{CliError, print};
use crate::assembly::{self, AUTO, CLUSTER, EngineInUse};
use crate::config::{Config, ConfigError, DEFAULT_TOML, Sources, load_hub};
use crate::server::startup_problems;
use antiphon_engines::table::{EngineKind, EngineStage, ModelSource};
use clap::Subcommand;
use serde_json::json;
use std::path::PathBuf;

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Report everything that is wrong with a file and the environment, or that nothing is
    #[command(after_help = "Example:\n  antiphon config check my.toml")]
    Check {
        /// The file; none: only the environment
        file: Option<PathBuf>,
        /// Print one JSON object: the problems, or the settings as they would be used
        #[arg(long)]
        json: bool,
    },
    /// Print all settings with their meaning and defaults, to begin a file with
    #[command(after_help = "Example:\n  antiphon config default > my.toml")]
    Default,
}

pub(super) async fn run(command: &ConfigCommand) -> Result<(), CliError> {
    match command {
        ConfigCommand::Default => print::bytes(DEFAULT_TOML.as_bytes()),
        ConfigCommand::Check { file, json: as_json } => {
            let loaded = match load_hub(&Sources::of_process(file.as_deref())) {
                Ok(config) => startable(config).await,
                Err(error) => Err(error),
            };
            if *as_json {
                print::json(&report(&loaded))?;
            }
            let config = loaded?;
            if !*as_json {
                let what = file.as_ref().map_or("the environment".into(), |file| file.display().to_string());
                print::line(&format!("{what}: nothing is wrong\n{}", engines(&config, &[])))?;
            }
            Ok(())
        }
    }
}

/// The settings, if `antiphon serve` would start with them as far as it shows before engines are loaded.
async fn startable(config: Config) -> Result<Config, ConfigError> {
    let mut messages = startup_problems(&config).await;
    messages.extend(assembly::problems(&config).iter().map(ToString::to_string));
    if messages.is_empty() {
        return Ok(config);
    }
    Err(ConfigError::of_merged(messages))
}

fn report(loaded: &Result<Config, ConfigError>) -> serde_json::Value {
    match loaded {
        Ok(config) => json!({ "ok": true, "config": config }),
        Err(error @ ConfigError::Unreadable { .. }) => {
            json!({ "ok": false, "problems": [{ "at": "", "message": antiphon_telemetry::with_causes(error) }] })
        }
        Err(ConfigError::Invalid(problems)) => {
            let problems =
                problems.iter().map(|problem| json!({ "at": problem.origin.to_string(), "message": problem.message }));
            json!({ "ok": false, "problems": problems.collect::<Vec<_>>() })
        }
    }
}

/// The engine of each stage as text: from `served` if present, else from the configuration.
pub(super) fn engines(config: &Config, served: &[EngineInUse]) -> String {
    let more = |stage: EngineStage, engine: &str| match engine {
        CLUSTER => {
            let or_here = if config.cluster.fallback { ", or this machine" } else { "" };
            format!("workers through {}{or_here}", config.cluster.shown_servers())
        }
        AUTO => "the best model that is here".to_owned(),
        _ => stage.kind(engine).map_or_else(String::new, |kind| described(config, kind)),
    };
    let stages = [
        (EngineStage::Vad, "voice activity", &config.vad.engine),
        (EngineStage::Stt, "speech to text", &config.stt.engine),
        (EngineStage::Llm, "language model", &config.llm.engine),
        (EngineStage::Tts, "text to speech", &config.tts.engine),
    ];
    let lines = stages.map(|(stage, title, configured)| {
        let section = stage.name();
        let served = served.iter().find(|served| served.stage == section);
        let on_workers =
            !config.cluster.servers.is_empty() && config.cluster.stages.iter().any(|served| served == section);
        let configured = if on_workers { CLUSTER } else { configured };
        let engine = served.map_or(configured, |served| &served.engine);
        let model = served.and_then(|served| served.model.clone());
        format!("  {title:<16} {engine:<10} {}", model.unwrap_or_else(|| more(stage, engine))).trim_end().to_owned()
    });
    lines.join("\n")
}

/// What matters of a configured engine beside its name: model, server or voice.
fn described(config: &Config, kind: &EngineKind) -> String {
    let model = model_of(config, kind.stage);
    let base_url = match kind.stage {
        EngineStage::Stt => &config.stt.base_url,
        EngineStage::Llm => &config.llm.base_url,
        _ => &config.tts.base_url,
    };
    match (kind.model, kind.stage) {
        (ModelSource::Server { has_default_model: true }, _) => format!("{model} at {base_url}"),
        (ModelSource::Server { has_default_model: false }, _) => format!("at {base_url}"),
        (ModelSource::Files | ModelSource::SlotFiles, stage) => {
            // The default is a model of a server.
            let is_set = model != model_of(&Config::default(), stage);
            if is_set { model.to_owned() } else { String::new() }
        }
        (ModelSource::BuiltIn, EngineStage::Stt) => "no recognizer: it can be written to, not spoken to".into(),
        (ModelSource::BuiltIn, EngineStage::Llm) => "offline, no model".into(),
        (ModelSource::BuiltIn, EngineStage::Tts) => format!("voice {}", config.tts.voice),
        (ModelSource::BuiltIn, EngineStage::Vad | EngineStage::Turn) => String::new(),
    }
}

fn model_of(config: &Config, stage: EngineStage) -> &str {
    match stage {
        EngineStage::Vad => &config.vad.model,
        EngineStage::Turn => &config.turn.model,
        EngineStage::Stt => &config.stt.model,
        EngineStage::Llm => &config.llm.model,
        EngineStage::Tts => &config.tts.model,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_cluster::ClusterConfig;

    #[test]
    fn the_engines_are_shown_with_what_matters_of_each() {
        let mut config = Config::default();
        config.llm.engine = "openai".into();
        config.llm.model = "m".into();
        config.llm.base_url = "http://127.0.0.1:1/v1".into();
        let of = |stage, engine: &str, model: Option<&str>| EngineInUse {
            stage,
            engine: engine.into(),
            model: model.map(Into::into),
            auto: true,
            measured: None,
            passed_over: Vec::new(),
        };
        let served = [of("vad", "earshot", None), of("stt", "none", None), of("tts", "kokoro", Some("kokoro:fp16"))];
        let expect = "  voice activity   earshot
  speech to text   none       no recognizer: it can be written to, not spoken to
  language model   openai     m at http://127.0.0.1:1/v1
  text to speech   kokoro     kokoro:fp16";
        assert_eq!(engines(&config, &served), expect);
        config.cluster.servers = vec!["tls://nats.example:4222".into()];
        config.cluster.stages = vec!["stt".into()];
        let text = engines(&config, &[]);
        assert!(text.contains("speech to text   cluster    workers through tls://nats.example:4222\n"), "{text}");
        config.cluster = ClusterConfig { jetstream: true, ..Default::default() };
        assert!(!engines(&config, &[]).contains("workers through"), "without a server there is no worker");
        config.cluster = Default::default();
        config.tts.engine = "flite".into();
        let text = engines(&config, &[]);
        assert!(
            text.contains("auto       the best model that is here") && text.ends_with("flite      voice slt"),
            "{text}"
        );
    }
}
