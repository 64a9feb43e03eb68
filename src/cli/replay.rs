//! `antiphon replay`: replays replay logs and compares the decisions.

use super::sweep::{Shown, Sweep};
use super::unseal::StorageKeyArgs;
use super::{CliError, blocking, print};
use crate::replay::{Layer, ReplayError, ReplayLog, ReplayedDecision, Report, replay};
use antiphon_dialog::turn::{MODEL, ModelWeight};
use clap::Args;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What to run again.
#[derive(Debug, Args)]
#[command(after_help = "\
Sessions are recorded where session.record names a folder:
  ANTIPHON_SESSION__RECORD=recordings antiphon serve

Examples:
  antiphon replay recordings/sess_*.jsonl          the decisions, and whether they are the recorded ones
  antiphon replay --json one.jsonl                 one JSON object a decision, the last one a summary
  antiphon replay --storage-key storage.key recordings/*.jsonl.sealed
                                                   recordings of a hub with server.storage_key
  antiphon replay corpus/*.jsonl --sweep silence_ms=100..800:50 --svg curve.svg
                                                   fixed and adaptive waits over labelled recordings

Exit codes: 0 every decision is the recorded one, 1 one is not, 2 a file is no recording of this version.
The other files are replayed.")]
pub struct ReplayArgs {
    /// Recordings, as `session.record` writes them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
    /// Print no decisions, only what came of each file
    #[arg(long, short)]
    quiet: bool,
    /// Turn-taking alone, with these fixed waits and the adaptive wait, over recordings with labels beside them
    #[arg(long, value_name = "silence_ms=FROM..TO[:STEP]")]
    sweep: Option<Sweep>,
    /// Draw the curves of the sweep
    #[arg(long, value_name = "FILE", requires = "sweep")]
    svg: Option<PathBuf>,
    /// Only the turns that the labels put into this group
    #[arg(long, value_name = "NAME", requires = "sweep")]
    group: Option<String>,
    /// Compare these weights of the turn model's log-odds with none at all, instead of the adaptive wait with a fixed one
    #[arg(long, value_name = "SLOPE,..", value_delimiter = ',', requires = "sweep", conflicts_with_all = ["svg", "hints"])]
    model_slopes: Vec<f64>,
    /// The most that the turn model may move the log-odds of an end
    #[arg(long, value_name = "LOG-ODDS", requires = "model_slopes", default_value_t = MODEL.most)]
    model_most: f64,
    /// Only the turns of this speaker, where the labels name one
    #[arg(long, value_name = "NAME", requires = "sweep")]
    speaker: Option<String>,
    /// Show how the words before a pause differ from those before an end
    #[arg(long, requires = "sweep")]
    hints: bool,
    #[command(flatten)]
    key: StorageKeyArgs,
}

/// Minimum interval of progress updates.
const EVERY: Duration = Duration::from_millis(500);

pub(super) async fn run(args: ReplayArgs) -> Result<(), CliError> {
    blocking(move || match args.sweep {
        Some(ref sweep) => {
            let svg = args.svg.as_deref();
            let group = args.group.as_deref();
            let speaker = args.speaker.as_deref();
            let weights = args.model_slopes.iter().map(|&slope| ModelWeight { slope, most: args.model_most }).collect();
            let shown = Shown { svg, group, speaker, weights, json: args.json, hints: args.hints };
            super::sweep::run(&args.files, sweep, &shown, &args.key)
        }
        None => exact(&args),
    })
    .await?
}

/// Runs each file, also after one that cannot be read.
fn exact(args: &ReplayArgs) -> Result<(), CliError> {
    let mut n_different = 0;
    let mut unreadable = Vec::new();
    for path in &args.files {
        let report = match one(args, path) {
            Ok(report) => report,
            Err(error @ CliError::Usage(_)) => {
                unreadable.push(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        n_different += usize::from(!report.is_same());
        if args.json {
            print::json(&json!({ "file": print::path(path), "same": report.is_same(), "report": report }))?;
        } else {
            print::line(&summary(path, &report))?;
        }
    }
    verdict(args.files.len(), n_different, unreadable)
}

/// A difference wins over a file that cannot be read; each of these is printed, unless it is the only file.
fn verdict(n_files: usize, n_different: usize, mut unreadable: Vec<CliError>) -> Result<(), CliError> {
    if n_files == 1
        && let Some(error) = unreadable.pop()
    {
        return Err(error);
    }
    unreadable.iter().for_each(print::complain);
    if n_different > 0 {
        return Err(CliError::Failed(format!("{n_different} of {n_files} recordings ran differently")));
    }
    match unreadable.len() {
        0 => Ok(()),
        n => Err(CliError::Usage(format!("{n} of {n_files} files cannot be replayed"))),
    }
}

fn one(args: &ReplayArgs, path: &Path) -> Result<Report, CliError> {
    let recording = ReplayLog::open_with(path, || args.key.of_replay()).map_err(|error| of_file(path, &error))?;
    let mut progress = Progress::new(path);
    let mut printed = Ok(());
    let mut see = |decided: &ReplayedDecision, done: f64| {
        progress.show(done);
        if args.quiet || printed.is_err() {
            return;
        }
        printed = if args.json { print::json(decided) } else { print::line(&line(decided)) };
    };
    let report = replay(recording, &mut see).map_err(|error| of_file(path, &error));
    progress.clear();
    printed.and(report)
}

/// An unreadable or truncated file is reported as a usage error.
pub(super) fn of_file(path: &Path, error: &ReplayError) -> CliError {
    CliError::Usage(format!("{} {}", path.display(), antiphon_telemetry::with_causes(error)))
}

/// One decision as text.
fn line(decided: &ReplayedDecision) -> String {
    let outputs = decided.outputs.iter().map(|one| parsed(one.get()));
    let at = decided.at_ms / 1e3;
    match decided.layer {
        Layer::Turn => format!("{at:>10.3} s  turn    {}", outputs.map(|one| turn_words(&one)).collect::<String>()),
        Layer::Dialog => {
            let input = decided.input.as_ref().map(|input| name(&parsed(input.get()))).unwrap_or_default();
            format!("{at:>10.3} s  dialog  {input}: {}", outputs.map(|one| name(&one)).collect::<Vec<_>>().join(", "))
        }
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// The result of turn detection for a window: the edge, and the values behind it.
fn turn_words(outcome: &Value) -> String {
    let edge = match &outcome["edge"] {
        Value::String(edge) => edge.clone(),
        Value::Object(edge) => edge.iter().map(|(edge, at)| format!("{edge} {}", at_seconds(at))).collect(),
        _ => return "asks for the words".into(),
    };
    let decision = &outcome["decision"];
    match (decision["wait"].as_object(), decision["hints"]["wording"].as_str()) {
        (Some(wait), Some(wording)) => {
            let nanos = wait["nanos"].as_f64().unwrap_or(0.0);
            let wait_ms = wait["secs"].as_f64().unwrap_or(0.0) * 1e3 + nanos / 1e6;
            let probability = decision["probability"].as_f64().unwrap_or(0.0);
            format!("{edge}, wait {wait_ms:.0} ms: words {wording}, over with {:.0} %", 100.0 * probability)
        }
        _ => edge,
    }
}

fn at_seconds(at: &Value) -> String {
    at["at"].as_f64().map(|samples| format!("at {:.3} s", samples / 16_000.0)).unwrap_or_default()
}

/// The name of an event or an action; for wrappers with the inner name: `Notify(SpeechStarted)`.
fn name(value: &Value) -> String {
    let inner = |outer: &str, inside: &Value| match outer {
        "Notify" => format!("{outer}({})", name(inside)),
        "Client" => format!("{outer}({})", name(&inside["command"])),
        "Output" => format!("{outer}({})", name(&inside["change"])),
        _ => outer.to_owned(),
    };
    match value {
        Value::String(name) => name.clone(),
        Value::Object(fields) => fields.iter().map(|(outer, inside)| inner(outer, inside)).collect(),
        _ => String::new(),
    }
}

/// The summary of a file.
fn summary(path: &Path, report: &Report) -> String {
    let Report { n_windows, n_events, n_decisions, .. } = report;
    let heard = format!("{n_windows} windows, {n_events} events, {n_decisions} decisions");
    let end = match report.end {
        None => "; truncated: the hub was killed",
        Some(end) if !end.complete => "; incomplete: the disk was too slow",
        Some(_) => "",
    };
    let mut text = format!("{}: {heard}{end}; ", path.display());
    match report.n_differences {
        0 => text.push_str("all match the recorded ones"),
        n => text.push_str(&format!("{n} differ")),
    }
    if report.miscounted {
        text.push_str("; the number of lines differs");
    }
    for difference in &report.differences {
        let decided = &difference.replayed;
        let layer = if decided.layer == Layer::Turn { "turn-taking" } else { "the dialog" };
        text.push_str(&format!("\n  line {}, {layer} at {:.3} s", decided.line, decided.at_ms / 1e3));
        let input = decided.input.as_ref().map(|input| input.get().to_owned());
        input.iter().for_each(|input| text.push_str(&format!("\n    input     {input}")));
        let replayed: Vec<_> = decided.outputs.iter().map(|one| one.get().to_owned()).collect();
        let longest = replayed.len().max(difference.recorded.len());
        for i in 0..longest {
            let of = |list: &[String]| list.get(i).cloned().unwrap_or_else(|| "nothing".into());
            let now = of(&replayed);
            let then = of(&difference.recorded);
            if now != then {
                text.push_str(&format!("\n    recorded  {then}\n    replayed  {now}"));
            }
        }
    }
    text
}

/// A progress line on stderr, shown only on a terminal.
pub(super) struct Progress {
    what: String,
    shown_at: Instant,
    shows: bool,
    shown: bool,
}

impl Progress {
    pub(super) fn new(what: &Path) -> Self {
        let shows = std::io::stderr().is_terminal();
        Self { what: what.display().to_string(), shown_at: now(), shows, shown: false }
    }

    /// Updates the line at most every [`EVERY`]; `done` is a fraction from 0 to 1.
    pub(super) fn show(&mut self, done: f64) {
        if self.shows && self.shown_at.elapsed() >= EVERY {
            print::to_stderr(&format!("\r{}: {:.0} %\x1b[K", self.what, 100.0 * done));
            self.shown_at = now();
            self.shown = true;
        }
    }

    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            print::to_stderr("\r\x1b[K");
        }
    }
}

/// Wall clock for the progress line only; no decision depends on it.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_wins_over_a_file_that_cannot_be_read() {
        let unreadable = || vec![CliError::Usage("a.jsonl is no recording".into())];
        let code =
            |n_files, n_different, unreadable| verdict(n_files, n_different, unreadable).err().map(|e| e.exit_code());
        assert_eq!(code(2, 0, Vec::new()), None);
        assert_eq!(code(2, 1, unreadable()), Some(1));
        assert_eq!(code(2, 0, unreadable()), Some(2));
        let alone = verdict(1, 0, unreadable()).expect_err("unreadable").to_string();
        assert_eq!(alone, "a.jsonl is no recording");
    }
}
