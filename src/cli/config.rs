//! `antiphon config`: is this file right, and what are the defaults?

use super::{CliError, print};
use crate::config::{Config, ConfigError, DEFAULT_TOML, Sources, load};
use clap::Subcommand;
use serde_json::json;
use std::path::PathBuf;

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Tell everything that is wrong with a file and the environment, or that nothing is
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

pub(super) fn run(command: &ConfigCommand) -> Result<(), CliError> {
    match command {
        ConfigCommand::Default => print::bytes(DEFAULT_TOML.as_bytes()),
        ConfigCommand::Check { file, json: as_json } => {
            let loaded = load(&Sources::of_process(file.as_deref()));
            if *as_json {
                print::json(&report(&loaded))?;
            }
            let config = loaded?;
            if !*as_json {
                let what = file.as_ref().map_or("the environment".into(), |file| file.display().to_string());
                print::line(&format!("{what}: nothing is wrong\n{}", engines(&config)))?;
            }
            Ok(())
        }
    }
}

fn report(loaded: &Result<Config, ConfigError>) -> serde_json::Value {
    match loaded {
        Ok(config) => json!({ "ok": true, "config": config }),
        Err(error @ ConfigError::Unreadable { .. }) => {
            json!({ "ok": false, "problems": [{ "at": "", "message": super::error::with_causes(error) }] })
        }
        Err(ConfigError::Invalid(problems)) => {
            let problems =
                problems.iter().map(|problem| json!({ "at": problem.origin.to_string(), "message": problem.message }));
            json!({ "ok": false, "problems": problems.collect::<Vec<_>>() })
        }
    }
}

/// Which engine serves each stage, for people.
pub(super) fn engines(config: &Config) -> String {
    let remote = |engine: &str, address: &str, model: &str, local: String| match engine {
        "openai" => format!("{model} at {address}"),
        "fish" => format!("at {address}"),
        "piper" | "kokoro" => model.to_owned(),
        _ => local,
    };
    let (stt, llm, tts) = (&config.stt, &config.llm, &config.tts);
    let decoders = if stt.decoders == 1 { "decoder" } else { "decoders" };
    let stages = [
        ("voice activity", &config.vad.engine, String::new()),
        (
            "speech to text",
            &stt.engine,
            remote(&stt.engine, &stt.base_url, &stt.model, format!("{} {decoders}", stt.decoders)),
        ),
        ("language model", &llm.engine, remote(&llm.engine, &llm.base_url, &llm.model, "offline, no model".into())),
        ("text to speech", &tts.engine, remote(&tts.engine, &tts.base_url, &tts.model, format!("voice {}", tts.voice))),
    ];
    let lines = stages.map(|(stage, engine, more)| format!("  {stage:<16} {engine:<10} {more}").trim_end().to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_are_shown_with_what_matters_of_each() {
        let mut config = Config::default();
        config.llm.engine = "openai".into();
        config.llm.model = "m".into();
        config.llm.base_url = "http://127.0.0.1:1/v1".into();
        let expect = "  voice activity   earshot
  speech to text   sphinx     4 decoders
  language model   openai     m at http://127.0.0.1:1/v1
  text to speech   flite      voice slt";
        assert_eq!(engines(&config), expect);
    }
}
