//! `antiphon rehearse`: callers of scenarios talk to a server, and what it does is compared with what they expect.

use super::progress::Progress;
use super::target::{Mode, Target, failure, printable};
use super::{CliError, Settings, blocking, own_hub, print, say};
use crate::assembly::{self, EnginesError};
use crate::config::Config;
use antiphon_engine_api::llm::Llm;
use antiphon_engine_api::tts::Voice;
use antiphon_engines::llm::ASSISTANT;
use antiphon_rehearsal::{Caller, RehearsalError, Report, Scenario, junit, page, rehearse};
use antiphon_telemetry::with_causes;
use antiphon_types::small_file;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which conversations to rehearse, and with whom.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon rehearse examples/rehearsal                        of a server this command starts itself
  antiphon rehearse booking.toml --url ws://127.0.0.1:8080/v1/realtime --html booking.html
  antiphon rehearse scenarios --url wss://api.openai.com/v1/realtime --model gpt-realtime --junit report.xml

A scenario is a TOML file: docs/guide/rehearsal.md. Its caller has the voice of the settings in --config, or, where this
command starts the hub, another one of that engine, and where it has a goal, the language model of these settings.
Conversations take as long as they sound, one after the other.

Exit codes: 0 all passed   1 a check failed, or a conversation could not be held   2 a scenario is wrong, or cannot be played")]
pub struct RehearseArgs {
    /// Scenarios: TOML files, or folders of them
    #[arg(required = true)]
    scenarios: Vec<PathBuf>,
    /// A running Realtime server; without it, a hub is started for these conversations
    #[arg(long)]
    url: Option<String>,
    /// How audio travels; servers other than this hub know only `ga`
    #[arg(long, value_enum, default_value_t = Mode::Ga)]
    audio: Mode,
    /// Write the checks as JUnit XML, for build servers
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write a page with words, times and sound
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
    /// Print one JSON object a conversation
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

pub(super) async fn run(args: RehearseArgs) -> Result<(), CliError> {
    // Before any engine is loaded, and before any conversation: what is wrong with each scenario.
    let scenarios = scenarios(&args.scenarios)?;
    let caller = caller(args.settings.load()?, args.url.is_none()).await?;
    let problem = |one: &Scenario| Some(format!("{}: {}", printable(&one.name), caller.check(one).err()?));
    let problems: Vec<String> = scenarios.iter().filter_map(problem).collect();
    if !problems.is_empty() {
        return Err(CliError::Usage(problems.join("\n")));
    }
    let outcome = match &args.url {
        Some(url) => rehearse_all(&args, url.clone(), &scenarios, &caller).await?,
        None => {
            let work = async |url| rehearse_all(&args, url, &scenarios, &caller).await;
            own_hub::with(&args.settings, work).await?
        }
    };
    if let Some(path) = &args.junit {
        write(path, &junit(&outcome.reports))?;
    }
    if let Some(path) = &args.html {
        write(path, &page(&outcome.reports))?;
    }
    outcome.verdict(scenarios.len())
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(path, text).map_err(|error| CliError::file("written", path, &error))
}

/// What became of the conversations.
#[derive(Default)]
struct Outcome {
    /// One for each scenario.
    reports: Vec<Report>,
    /// Why the others could not be held.
    errors: Vec<CliError>,
}

impl Outcome {
    fn verdict(mut self, n_scenarios: usize) -> Result<(), CliError> {
        let n_passed = self.reports.iter().filter(|report| report.passed).count();
        if n_scenarios == 1
            && let Some(error) = self.errors.pop()
        {
            return Err(error);
        }
        self.errors.iter().for_each(print::complain);
        match n_passed == n_scenarios {
            true => Ok(()),
            false => Err(CliError::Failed(format!("{n_passed} of {n_scenarios} conversations passed"))),
        }
    }
}

/// Holds one conversation after the other. One that cannot be held is reported as failed, and the others go on.
async fn rehearse_all(
    args: &RehearseArgs,
    url: String,
    scenarios: &[Scenario],
    caller: &Caller,
) -> Result<Outcome, CliError> {
    let options = args.target.options(url, args.audio)?;
    let progress = Progress::new("");
    let mut outcome = Outcome::default();
    for (place, scenario) in scenarios.iter().enumerate() {
        progress.now(format!("{} ({} of {})", scenario.name, place + 1, scenarios.len()));
        let held = rehearse(antiphon_client::connect(&options), scenario, caller).await;
        progress.hide();
        let report = match held {
            Ok(report) => report,
            Err(error) => {
                let report = Report::not_held(&scenario.name, with_causes(&error));
                outcome.errors.push(named(&scenario.name, error));
                report
            }
        };
        shown(args, &report)?;
        outcome.reports.push(report);
    }
    Ok(outcome)
}

/// The error with the scenario's name, and the exit code of its kind.
fn named(name: &str, error: RehearsalError) -> CliError {
    let error = match error {
        RehearsalError::Client(error) => failure(error),
        RehearsalError::Caller(error) => CliError::Failed(error.to_string()),
    };
    match error {
        CliError::Unreachable(text) => CliError::Unreachable(format!("{name}: {text}")),
        CliError::Usage(text) => CliError::Usage(format!("{name}: {text}")),
        other => CliError::Failed(format!("{name}: {other}")),
    }
}

fn shown(args: &RehearseArgs, report: &Report) -> Result<(), CliError> {
    if args.json { print::json(&json!(report)) } else { print::line(&text_of(report)) }
}

/// The conversation with its times, and what failed.
fn text_of(report: &Report) -> String {
    let verdict = if report.passed { "passed" } else { "FAILED" };
    let mut text = format!("{}: {verdict}\n", printable(&report.scenario));
    for turn in &report.turns {
        let said = if turn.said.is_empty() { "(silence)" } else { &turn.said };
        text += &format!("  {:>6.1} s  caller  {}\n", seconds(turn.at_ms), printable(said));
        for call in &turn.calls {
            text += &format!("            calls   {}\n", printable(call));
        }
        if turn.reply.is_empty() {
            continue;
        }
        let at = turn.answered_at_ms.map_or("        ".to_owned(), |at_ms| format!("{:>6.1} s", seconds(at_ms)));
        let wait = turn.answer_ms.map(|ms| format!("  ({ms} ms)")).unwrap_or_default();
        text += &format!("  {at}  agent   {}{wait}\n", printable(&turn.reply));
    }
    let failed = report.checks.iter().filter(|check| !check.passed);
    for check in failed {
        let place = check.turn.map(|turn| format!("turn {turn}: ")).unwrap_or_default();
        text += &format!("  NOT: {place}{}; it was: {}\n", check.expected, printable(&check.found));
    }
    let n_passed = report.checks.iter().filter(|check| check.passed).count();
    text += &format!("  {n_passed} of {} checks passed", report.checks.len());
    if report.measures.late_frames > 0 {
        text += &format!("; {} frames were sent late: this machine was busy", report.measures.late_frames);
    }
    text
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

/// The scenarios of files and folders, in order of their names.
fn scenarios(paths: &[PathBuf]) -> Result<Vec<Scenario>, CliError> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let entries = std::fs::read_dir(path).map_err(|error| CliError::file("read", path, &error))?;
            let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
            found.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
            found.sort();
            if found.is_empty() {
                return Err(CliError::Usage(format!("{}: there is no .toml file in it", path.display())));
            }
            files.extend(found);
        } else {
            files.push(path.clone());
        }
    }
    let mut scenarios = Vec::new();
    let mut problems = Vec::new();
    for file in &files {
        let text = small_file::read_text(file, small_file::MAX_SETTINGS_BYTES)
            .map_err(|error| CliError::file("read", file, &error))?;
        let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        match Scenario::parse(&text, &name) {
            Ok(scenario) => scenarios.push(scenario),
            Err(error) => {
                problems.extend(error.to_string().lines().map(|line| format!("{}: {line}", file.display())));
            }
        }
    }
    if problems.is_empty() { Ok(scenarios) } else { Err(CliError::Usage(problems.join("\n"))) }
}

/// The caller, with the configured voice and language model. `beside_own_hub`: the hub has the same settings, and so the
/// same voice; the caller takes another. The built-in assistant plays no person.
async fn caller(config: Config, beside_own_hub: bool) -> Result<Caller, CliError> {
    let _progress = Progress::new("loading the caller's voice");
    let wanted = config.clone();
    let tts = blocking(move || assembly::tts(&wanted)).await?.map_err(EnginesError::from)?;
    let mut voice = say::voice(None, &config.tts, tts.as_ref())?;
    if beside_own_hub {
        voice = another_voice(&tts.voices(), voice);
    }
    let llm: Option<Arc<dyn Llm>> = match config.llm.engine.as_str() {
        ASSISTANT => None,
        _ => Some(assembly::llm(&config).map_err(EnginesError::from)?),
    };
    Ok(Caller::new(tts, voice, llm))
}

/// The first other voice of the same language, or the hub's where there is none. In the hub's own voice an interruption can
/// pass for the echo of the reply: flite's sounds repeat to the sample.
fn another_voice(voices: &[Voice], of_hub: String) -> String {
    let language = voices.iter().find(|voice| voice.id == of_hub).map(|voice| &voice.language);
    let is_other = |voice: &&Voice| voice.id != of_hub && Some(&voice.language) == language;
    match voices.iter().find(is_other) {
        Some(other) => other.id.clone(),
        None => of_hub,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_of_an_own_hub_speak_in_another_voice_than_the_hub() {
        let voice = |id: &str, language: &str| {
            let id = id.to_owned();
            Voice { name: id.clone(), id, language: language.to_owned() }
        };
        let voices = [voice("anna", "de-DE"), voice("slt", "en-US"), voice("rms", "en-US")];
        let other = |of_hub: &str| another_voice(&voices, of_hub.to_owned());
        assert_eq!(other("slt"), "rms");
        assert_eq!(other("rms"), "slt");
        assert_eq!(other("anna"), "anna", "no other voice speaks German");
    }

    #[test]
    fn a_conversation_that_could_not_be_held_fails_and_is_in_the_reports() {
        let refused = || RehearsalError::Client(antiphon_client::ClientError::Silent);
        let not_held = |name: &str| Report::not_held(name, refused().to_string());
        assert!(text_of(&not_held("a")).contains("a: FAILED\n  NOT: the conversation is held"));
        let errors = vec![named("a", refused()), named("b", refused())];
        let both = Outcome { reports: vec![not_held("a"), not_held("b")], errors };
        let error = both.verdict(2).expect_err("none was held");
        assert_eq!(error.to_string(), "0 of 2 conversations passed");
        let one = Outcome { reports: vec![not_held("a")], errors: vec![named("a", refused())] };
        assert!(one.verdict(1).expect_err("it was not held").to_string().starts_with("a: "));
    }

    #[test]
    fn scenarios_of_a_folder_are_read_in_order_and_all_problems_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
        let none = scenarios(&[folder.path().to_owned()]).expect_err("an empty folder").to_string();
        assert!(none.contains("no .toml file"), "{none}");
        write("b.toml", "[[turns]]\nsay = \"Hello.\"\n");
        write("a.toml", "name = \"first\"\n[[turns]]\nsay = \"Hello.\"\n");
        write("notes.txt", "nothing");
        let found = scenarios(&[folder.path().to_owned()]).expect("two");
        assert_eq!(found.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["first", "b"]);
        write("c.toml", "[[turns]]\n[caller]\nspeed = 9\n");
        let error = scenarios(&[folder.path().to_owned()]).expect_err("refused");
        assert_eq!((error.exit_code(), error.to_string().lines().count()), (2, 2));
        assert!(error.to_string().contains("c.toml: turn 1: write either say or silence_ms"), "{error}");
    }
}
