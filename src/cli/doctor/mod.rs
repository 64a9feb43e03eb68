//! `antiphon doctor`: looks at this machine and its configuration, and says of each part what it found and what to do.
//!
//! `probes.rs` and `ports.rs` hold the probes. Each has a deadline, changes no setting, and gives findings; what is missing is one, never
//! an error. This module runs them at once, prints them in a fixed order and chooses the exit code.

mod ports;
mod probes;

use super::progress::Progress;
use super::target::printable_lines;
use super::{CliError, print};
use crate::config::{Sources, load_hub};
use clap::Args;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The longest time for a probe that loads nothing.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest time for loading the engines: a large model from a slow disk.
const LOADING: Duration = Duration::from_secs(120);

/// What to look at.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon doctor
  antiphon doctor --config my.toml
  antiphon doctor --json | jq '.findings[] | select(.state != \"ok\")'

It changes no setting. It loads the engines as `serve` would, for which it needs their memory, and measures models that are new
on this machine. Exit codes: 0 nothing fails
(warnings may remain), 2 a setting, key or certificate is wrong, 3 an engine, library or model is missing, 4 a port is
taken or a server cannot be reached, 1 anything else fails; of several the first.")]
pub struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Settings that differ from the defaults
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// How a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    /// The hub works without it, or less well.
    Warn,
    /// The hub does not start, or a stage does not serve.
    Fail,
}

/// What a failure is, for the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Other,
    Setting,
    Missing,
    Network,
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    /// The part of the machine.
    part: &'static str,
    state: State,
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    #[serde(skip)]
    kind: Kind,
}

impl Finding {
    fn ok(part: &'static str, found: impl Into<String>) -> Self {
        Self { part, state: State::Ok, found: found.into(), advice: None, kind: Kind::Other }
    }

    fn warn(part: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { state: State::Warn, advice: Some(advice.into()), ..Self::ok(part, found) }
    }

    fn fail(part: &'static str, kind: Kind, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { state: State::Fail, kind, ..Self::warn(part, found, advice) }
    }
}

/// A probe: its part, its deadline, its work.
type Probe = (&'static str, Duration, BoxFuture<'static, Vec<Finding>>);

pub(super) async fn run(args: DoctorArgs) -> Result<(), CliError> {
    // A wrong setting ends it: what the probes should look at is not known then.
    let config = Arc::new(load_hub(&Sources::of_process(args.config.as_deref()))?);
    let findings = all(vec![
        ("ports", DEADLINE, Box::pin(ports::ports(config.clone()))),
        ("keys", DEADLINE, Box::pin(probes::keys(config.clone()))),
        ("certificate", DEADLINE, Box::pin(probes::certificate(config.clone()))),
        ("engines", LOADING, Box::pin(probes::engines(config.clone()))),
        ("models", DEADLINE, Box::pin(probes::models(config.clone()))),
        ("language model", DEADLINE, Box::pin(probes::language_models(config.clone()))),
        ("onnx runtime", DEADLINE, Box::pin(probes::onnx(config.clone()))),
        ("gpu", DEADLINE, Box::pin(probes::gpu(config.clone()))),
        ("nats", DEADLINE, Box::pin(ports::nats(config.clone()))),
        ("sound", DEADLINE, Box::pin(probes::sound())),
        ("disk", DEADLINE, Box::pin(probes::disk(config.clone()))),
        ("limits", DEADLINE, Box::pin(probes::limits(config))),
    ])
    .await;
    if args.json {
        let worst = findings.iter().map(|finding| finding.state as u8).max();
        print::json(&json!({ "ok": worst != Some(State::Fail as u8), "findings": findings }))?;
    } else {
        print::bytes(findings.iter().map(line).collect::<String>().as_bytes())?;
    }
    verdict(&findings)
}

/// Runs the probes at once; their findings, in the order of the probes.
async fn all(probes: Vec<Probe>) -> Vec<Finding> {
    let mut missing: Vec<_> = probes.iter().map(|(part, ..)| *part).collect();
    let progress = Progress::new("");
    let show = |missing: &[&str]| progress.now(format!("looking at {}", missing.join(", ")));
    show(&missing);
    let mut running: FuturesUnordered<_> = probes
        .into_iter()
        .enumerate()
        .map(|(n, (part, deadline, work))| async move {
            let late = || {
                let found = format!("no result within {} s", deadline.as_secs());
                vec![Finding::fail(
                    part,
                    Kind::Other,
                    found,
                    "Something below it hangs: a disk, a driver or a network.",
                )]
            };
            (n, part, timeout(deadline, work).await.unwrap_or_else(|_| late()))
        })
        .collect();
    let mut found = Vec::new();
    while let Some((n, part, findings)) = running.next().await {
        missing.retain(|other| *other != part);
        show(&missing);
        found.push((n, findings));
    }
    found.sort_by_key(|(n, _)| *n);
    found.into_iter().flat_map(|(_, findings)| findings).collect()
}

/// A finding as people read it, with what to do below it. The names of models are those of servers.
fn line(finding: &Finding) -> String {
    let state = match finding.state {
        State::Ok => "ok",
        State::Warn => "warn",
        State::Fail => "FAIL",
    };
    let advice = finding.advice.as_ref().map(|advice| format!("{:22}{advice}\n", "")).unwrap_or_default();
    format!("{state:<5} {:<15} {}\n{advice}", finding.part, printable_lines(&finding.found))
}

/// The first failure decides the exit code.
fn verdict(findings: &[Finding]) -> Result<(), CliError> {
    let failed: Vec<_> = findings.iter().filter(|finding| finding.state == State::Fail).collect();
    let Some(first) = failed.first() else { return Ok(()) };
    let mut parts: Vec<_> = failed.iter().map(|finding| finding.part).collect();
    parts.dedup();
    let text = format!("not well: {}", parts.join(", "));
    Err(match first.kind {
        Kind::Other => CliError::Failed(text),
        Kind::Setting => CliError::Usage(text),
        Kind::Missing => CliError::Missing(text),
        Kind::Network => CliError::Unreachable(text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[test]
    fn the_first_failure_decides_the_exit_code_and_warnings_do_not() {
        let warn = Finding::warn("sound", "no device", "Plug one in.");
        assert!(verdict(&[Finding::ok("disk", "20 GB"), warn.clone()]).is_ok());
        let missing = Finding::fail("engines", Kind::Missing, "no model", "Get one.");
        let taken = Finding::fail("ports", Kind::Network, "taken", "Stop it.");
        let error = verdict(&[warn.clone(), missing.clone(), missing, taken]).expect_err("it fails");
        assert_eq!((error.exit_code(), error.to_string()), (3, "not well: engines, ports".to_owned()));
        assert_eq!(line(&warn), "warn  sound           no device\n                      Plug one in.\n");
        let named = Finding::ok("language model", "Ollama: red\x1b[31m");
        assert_eq!(line(&named), "ok    language model  Ollama: red[31m\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_hangs_is_a_finding_and_the_order_stays() {
        let quick = async { vec![Finding::ok("disk", "20 GB")] };
        let findings = all(vec![("gpu", DEADLINE, Box::pin(pending())), ("disk", DEADLINE, Box::pin(quick))]).await;
        let seen: Vec<_> = findings.iter().map(|finding| (finding.part, finding.state)).collect();
        assert_eq!(seen, [("gpu", State::Fail), ("disk", State::Ok)]);
        assert!(findings[0].found.contains("within 10 s"), "{findings:?}");
    }
}
