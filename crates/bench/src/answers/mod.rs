//! `antiphon-bench answers`: who answers a call out, measured with sound.
//!
//! A test set of answers ([`lines`]) is spoken by several voices ([`voices`]) and becomes the sound of a telephone line
//! ([`sound`]). A hub with the installed recognizer calls phones of this process by SIP ([`callee`]), which play it in real
//! time, and reports who answers ([`calling`]); [`outcome`] compares. The hub's own replies are scripted and spoken by
//! flite. No echo of them comes back.
//!
//! Times begin at the last loud sample of the words. A beep is no part of them.

mod callee;
mod calling;
mod lines;
mod outcome;
mod sound;
mod voices;

pub use lines::AnswerSplit;

use super::hub_process::{Engines, Hub, free_address};
use super::machine::Machine;
use super::real::recognizer;
use super::{BenchError, Figure, HubCommand, Progress, Report, Section, Unit, name_of};
use callee::Callee;
use calling::{CallTrace, Caller};
use futures_util::future::join_all;
use lines::Answer;
use outcome::JudgedCall;
use sound::LineSound;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::sleep;
use voices::{Speakers, Voice};

/// The test set, from the root of the repository.
pub const LINES: &str = "tests/fixtures/greetings/answers.tsv";

/// Lines of a quick run.
const QUICK_LINES: usize = 20;
/// Time between the starts of calls that run at once.
const STAGGER: Duration = Duration::from_millis(1_700);
/// Timeout of a request by REST.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Failed calls that are reported individually.
const MOST_NOTED: usize = 5;
/// The seeds of two runs whose seeds are neighbours have no line's seed in common.
const SEEDS_OF_A_RUN: u64 = 1_000_003;

/// What to measure and how.
#[derive(Clone, Debug)]
pub struct AnswersPlan {
    /// A few lines: a check, not a result.
    pub quick: bool,
    /// The test set: label, language and text with tabs between them.
    pub lines: PathBuf,
    /// The part of it.
    pub split: AnswerSplit,
    /// Of voices, levels, beeps and pauses.
    pub seed: u64,
    /// Calls at once.
    pub at_once: usize,
    /// Ids of the voices that speak; none: the best known ones of each engine.
    pub voices: Vec<String>,
    /// A folder of Kokoro that speaks, too.
    pub kokoro: Option<PathBuf>,
    /// Folders of Piper that speak, too.
    pub piper: Vec<PathBuf>,
    /// Settings of the hub that calls, `SECTION.KEY=VALUE`.
    pub set: Vec<String>,
    /// Command that starts a hub.
    pub hub: HubCommand,
}

/// An answer that can be played.
struct Line {
    answer: Answer,
    voice: Voice,
    sound: LineSound,
}

/// Runs everything. What fails is reported with its reason. Dropping the future stops the hubs that it started.
pub async fn run(plan: &AnswersPlan, progress: Progress<'_>) -> Report {
    let mut report = Report::new(plan.quick);
    let section = measure(plan, progress).await;
    report.sections.push(section.unwrap_or_else(|error| Section::failed("answers", &error)));
    report
}

async fn measure(plan: &AnswersPlan, progress: Progress<'_>) -> Result<Section, BenchError> {
    let mut notes = Vec::new();
    let lines = spoken(plan, &mut notes, progress).await?;
    let mut callees = Vec::new();
    for _ in 0..plan.at_once.min(lines.len()) {
        callees.push(Callee::bind().await?);
    }
    let args = arguments(plan, &callees)?;
    progress("answers: the first start, which measures models that were never measured here");
    Hub::spawn(&plan.hub, &args).await?.stop().await;
    let hub = Hub::spawn(&plan.hub, &args).await?;
    let recognizer = recognizer(&hub.url).await?;
    let how = format!("{} calls by SIP (mu-law), {} at once, {recognizer} hears", lines.len(), callees.len());
    let mut section = Section::new("answers", how);
    section.notes = notes;
    let before = Machine::now();
    let cpu_before_s = hub.process.cpu_s()?;
    let traces = call_all(&hub.url, callees, &lines, progress).await?;
    let hub_cpu_s = hub.process.cpu_s()? - cpu_before_s;
    section.others = before.zip(Machine::now()).map(|(before, after)| after.others_since(&before, hub_cpu_s));
    hub.stop().await;
    add_results(&mut section, lines, traces)?;
    Ok(section)
}

/// Reads the answers and has them spoken. Notes which voices speak, and what no voice can.
async fn spoken(plan: &AnswersPlan, notes: &mut Vec<String>, progress: Progress<'_>) -> Result<Vec<Line>, BenchError> {
    let path = plan.lines.clone();
    let split = plan.split;
    let answers = tokio::task::spawn_blocking(move || lines::read(&path, split)).await??;
    let speakers = Speakers::start(plan, progress).await?;
    let first_seed = plan.seed.wrapping_mul(SEEDS_OF_A_RUN);
    let mut chosen: Vec<(u64, Answer, Voice)> = Vec::new();
    let mut left_out: Vec<String> = Vec::new();
    for (index, answer) in answers.into_iter().enumerate() {
        let seed = first_seed.wrapping_add(index as u64);
        match speakers.voice(&answer.language, seed) {
            Some(voice) => chosen.push((seed, answer, voice)),
            None => left_out.push(answer.language),
        }
    }
    notes.push(format!("voices: {}", speakers.names()));
    if !left_out.is_empty() {
        let n = left_out.len();
        left_out.sort();
        left_out.dedup();
        notes.push(format!("{n} answers were left out, for no voice speaks {}", left_out.join(", ")));
    }
    if plan.quick {
        chosen = lines::spread(&chosen, QUICK_LINES);
    }
    if chosen.is_empty() {
        return Err(BenchError::Clips(format!("{}: no answer is left", plan.lines.display())));
    }
    let n_chosen = chosen.len();
    let mut lines = Vec::new();
    for (index, (seed, answer, voice)) in chosen.into_iter().enumerate() {
        progress(&format!("answers: {} speaks, {} of {n_chosen}", voice.name, index + 1));
        let speech = speakers.speak(&voice, &answer.text).await?;
        let silent = || BenchError::Clips(format!("{} is silent at {:?}", voice.name, answer.text));
        let sound = LineSound::new(&speech, answer.label, seed).ok_or_else(silent)?;
        lines.push(Line { answer, voice, sound });
    }
    speakers.stop().await;
    Ok(lines)
}

/// Arguments of the hub that calls: a trunk to each phone, and replies that cost nothing.
fn arguments(plan: &AnswersPlan, callees: &[Callee]) -> Result<Vec<String>, BenchError> {
    let trunk = |(index, callee): (usize, &Callee)| {
        format!("{} = {{ allow = [\"127.0.0.1\"], host = \"{}\" }}", trunk_name(index), callee.address())
    };
    let trunks: Vec<String> = callees.iter().enumerate().map(trunk).collect();
    let settings = [
        "tts.engine=flite".to_owned(),
        format!("sip.listen={}", free_address()?),
        format!("sip.trunks={{ {} }}", trunks.join(", ")),
        "sip.call_to=[\"tel:+*\"]".to_owned(),
        // A call that ends keeps its place for a moment.
        format!("sip.max_calls_out={}", 4 * callees.len()),
        "sip.max_calls_out_per_minute=0".to_owned(),
    ];
    let mut args = vec![name_of(Engines::Conversation)];
    for setting in settings.into_iter().chain(plan.set.iter().cloned()) {
        args.extend(["--set".to_owned(), setting]);
    }
    Ok(args)
}

fn trunk_name(index: usize) -> String {
    format!("phone{index}")
}

/// Plays all lines in calls, each phone one after the other; what came of each line that was called, with its index.
async fn call_all(
    url: &str,
    callees: Vec<Callee>,
    lines: &[Line],
    progress: Progress<'_>,
) -> Result<Vec<(usize, Result<CallTrace, BenchError>)>, BenchError> {
    let http = reqwest::Client::builder().timeout(REQUEST_TIMEOUT).build();
    let http = http.map_err(|error| BenchError::Method(format!("an HTTP client: {error}")))?;
    let next = AtomicUsize::new(0);
    let calls = callees.into_iter().enumerate().map(|(index, callee)| {
        let caller = Caller { http: &http, url, trunk: trunk_name(index), callee };
        call_in_turn(caller, STAGGER * index as u32, lines, &next, progress)
    });
    Ok(join_all(calls).await.into_iter().flatten().collect())
}

/// Takes the next line, until none is left.
async fn call_in_turn(
    mut caller: Caller<'_>,
    begins_after: Duration,
    lines: &[Line],
    next: &AtomicUsize,
    progress: Progress<'_>,
) -> Vec<(usize, Result<CallTrace, BenchError>)> {
    sleep(begins_after).await;
    let mut traces = Vec::new();
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(line) = lines.get(index) else { return traces };
        progress(&format!("answers: call {} of {}", index + 1, lines.len()));
        let number = format!("{}{index:06}", line.answer.country_code());
        traces.push((index, caller.call(&number, &line.sound).await));
    }
}

/// Adds the figures, in the order of the lines.
///
/// # Errors
/// No call was made: why the first one failed.
fn add_results(
    section: &mut Section,
    lines: Vec<Line>,
    mut traces: Vec<(usize, Result<CallTrace, BenchError>)>,
) -> Result<(), BenchError> {
    traces.sort_by_key(|(index, _)| *index);
    let n_calls = traces.len();
    let mut calls = Vec::new();
    let mut failures = Vec::new();
    for (line, (_, trace)) in lines.into_iter().zip(traces) {
        let Line { answer, voice, sound } = line;
        match trace {
            Ok(trace) => calls.push(JudgedCall {
                label: answer.label,
                text: answer.text,
                voice: voice.name,
                sound: sound.description,
                trace,
            }),
            Err(error) => failures.push((answer.text, error)),
        }
    }
    if calls.is_empty() {
        let first = failures.into_iter().next().map(|(_, error)| error);
        return Err(first.unwrap_or_else(|| BenchError::Method("no call was made".into())));
    }
    outcome::add_to(section, &calls);
    let n_failed = failures.len() as f64;
    section.figures.push(Figure::new("calls failed", Unit::Count, n_failed, n_calls).at_most(0.0));
    let failed = failures.iter().take(MOST_NOTED).map(|(text, error)| format!("not called, {text:?}: {error}"));
    section.notes.extend(failed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_hub_that_calls_has_a_trunk_to_each_phone() {
        let plan = AnswersPlan {
            quick: true,
            lines: LINES.into(),
            split: AnswerSplit::Held,
            seed: 1,
            at_once: 2,
            voices: Vec::new(),
            kokoro: None,
            piper: Vec::new(),
            set: vec!["stt.engine=whisper".into()],
            hub: HubCommand { program: "true".into(), args: Vec::new() },
        };
        let callees = [Callee::bind().await.expect("a port"), Callee::bind().await.expect("a port")];
        let args = arguments(&plan, &callees).expect("a free port");
        let trunk = |index: usize| {
            let address = callees[index].address();
            format!("phone{index} = {{ allow = [\"127.0.0.1\"], host = \"{address}\" }}")
        };
        assert_eq!(args[0], "conversation");
        assert!(args.contains(&format!("sip.trunks={{ {}, {} }}", trunk(0), trunk(1))), "{args:?}");
        assert_eq!(args.last().map(String::as_str), Some("stt.engine=whisper"));
    }
}
