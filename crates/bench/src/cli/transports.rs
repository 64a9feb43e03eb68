//! `antiphon-bench transports`: calls by WebRTC and by phone.

use super::{hub_command, progress};
use crate::Report;
use crate::transports::{self, Part, TransportsPlan};
use antiphon::cli::{CliError, print};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The parts, and how they are run.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon-bench transports                       all parts, about 17 minutes
  antiphon-bench transports --only drift --minutes 10
  antiphon-bench transports --only calls --calls 120
  antiphon-bench transports --only loss --clips recordings/
  antiphon-bench transports --json transports.json
  antiphon-bench transports --quick               a few seconds for each part, two calls: a check, not a result

turns: voice-to-voice latency by WebRTC beside a WebSocket, the same hub and mock engines. calls: many calls by WebRTC on one
port, the hub on one core. loss: word error of speech through a relay that loses, delays and reorders datagrams, against none.
drift: turn time and latency of a long call whose microphone's clock is 100 ppm fast. barge-in: when a reply stops at its
listener, and the hub's position against the listener's recording. phones: many calls of Twilio's protocol, the hub on one core. sip: as antiphon-bench phones.

A WebRTC client plays a packet by its timestamp behind a buffer of 30 ms, which is what a browser has on a quiet path. A folder
of clips has x.txt beside x.wav with its words; without one, flite asks questions for the offline assistant.

Exit codes: 0 done   1 a gate was missed (not with --quick), or a part could not be measured   2 wrong usage")]
pub struct TransportsArgs {
    /// Take only this part; may be given several times
    #[arg(long, value_enum, value_name = "PART")]
    only: Vec<Part>,
    /// Duration of the call of `drift`
    #[arg(long, value_name = "MINUTES", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1_440))]
    minutes: u16,
    /// Concurrent calls of `calls` [default: 80, 2 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    calls: Option<u16>,
    /// Concurrent calls of `phones` [default: 100, 2 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    phones: Option<u16>,
    /// A folder of WAV files of speech with their texts, for `loss` [default: questions spoken by flite]
    #[arg(long, value_name = "FOLDER")]
    clips: Option<PathBuf>,
    /// A few seconds for each part
    #[arg(long)]
    quick: bool,
    /// Write all figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) async fn run(args: TransportsArgs) -> Result<(), CliError> {
    let requested = if args.only.is_empty() { Part::value_variants() } else { &args.only };
    let calls = |given: Option<u16>, full: usize| given.map_or(if args.quick { 2 } else { full }, usize::from);
    let plan = TransportsPlan {
        parts: requested.to_vec(),
        quick: args.quick,
        drift_for: Duration::from_secs(60 * u64::from(args.minutes)),
        n_calls: (calls(args.calls, 80), calls(args.phones, 100)),
        clips: args.clips,
        hub: hub_command("hub")?,
        mock: hub_command("mock")?,
    };
    let report = transports::run(&plan, &progress).await;
    conclude(&report, args.json.as_deref(), args.quick)
}

/// How many calls by SIP, and how they are measured.
#[derive(Debug, Args)]
#[command(after_help = "\
Calls by SIP and G.711 (mu-law) at a hub on one core, with mock engines that take no time: processor time a call, at most 0.4 %
of a core; turns without an answer, none; INVITE to its answer, at most 50 ms; what the hub adds to the way of sound beside the
silence that ends a turn, at most 60 ms.

Exit codes: 0 done   1 a gate was missed (not with --quick), or it could not be measured   2 wrong usage")]
pub struct PhonesArgs {
    /// Concurrent calls [default: 100, 2 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=400))]
    calls: Option<u16>,
    /// A few seconds and two calls: a check, not a result
    #[arg(long)]
    quick: bool,
    /// Write all figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) async fn run_phones(args: PhonesArgs) -> Result<(), CliError> {
    let n_calls = args.calls.map_or(if args.quick { 2 } else { 100 }, usize::from);
    let plan = TransportsPlan {
        parts: vec![Part::Sip],
        quick: args.quick,
        drift_for: Duration::ZERO,
        n_calls: (0, n_calls),
        clips: None,
        hub: hub_command("hub")?,
        mock: hub_command("mock")?,
    };
    let report = transports::run(&plan, &progress).await;
    conclude(&report, args.json.as_deref(), args.quick)
}

/// Prints a report and writes it; an error if a gate was missed or something could not be measured.
fn conclude(report: &Report, json: Option<&Path>, is_quick: bool) -> Result<(), CliError> {
    progress("");
    print::line(&report.table())?;
    if let Some(path) = json {
        let text = report.json().to_string() + "\n";
        std::fs::write(path, text).map_err(|error| CliError::file("written", path, &error))?;
    }
    match (report.n_failed(), report.n_missed()) {
        (0, 0) => Ok(()),
        (0, _) if is_quick => Ok(()),
        (0, missed) => Err(CliError::Failed(format!("{missed} gates were missed"))),
        (failed, _) => Err(CliError::Failed(format!("{failed} parts could not be measured"))),
    }
}
