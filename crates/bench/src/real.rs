//! The default engines with real weights, as `make run` installs them: people's clips, real time, the offline assistant.
//!
//! A hub of the models that are installed (`auto` chooses) is started twice: models that were never measured on this machine
//! are measured at the first start, which does not count.
//!
//! - Recognition: one session speaks whole clips; a second of silence ends a turn, so that readers' pauses do not. The
//!   transcripts against the clips' texts, in words; the first words shown after the onset; how many of the words that were
//!   shown are not those of the transcript. A turn in which no words are shown counts as endless.
//! - Latency: one, two and four conversations at once speak the last phrase of each clip, which has no long pause; 200 ms of
//!   silence end a turn. Voice-to-voice latency is that of [`super::load`].
//! - Round trip: texts that are hard to say are spoken and heard by the same hub over REST, and compared with what a person
//!   would say.

use super::hub_process::{Engines, Hub};
use super::load::{self, Clip, Clips, Length, Load, Network, Outcome, Sign};
use super::voice_to_voice::{SILENCE_MS, session_with};
use super::words::{n_errors, words, written_words};
use super::{BenchError, Figure, Measure, Measurement, Plan, Progress, Section, Unit, Waits, name_of};
use antiphon_client::{AudioMode, ConnectOptions, RATE};
use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Recorded clips and hard texts of the repository, from its root.
const CLIPS: &str = "tests/fixtures/speech";
const TEXTS: &str = "tests/fixtures/hard_texts.tsv";
/// A quick run takes every text of this number.
const QUICK_TEXTS: usize = 6;
/// Timeout of a response, and of a request by REST.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time over which sessions start.
const SPREAD: Duration = Duration::from_secs(4);
/// Turns of a conversation, without the first one, which is not counted.
const TURNS: usize = 12;
/// Silence that ends a turn where whole clips are spoken.
const READER_SILENCE_MS: u64 = 1_000;
/// The shortest pause between two phrases, and the shortest phrase, in windows of 20 ms: the detector's wait is longer.
const PAUSE_WINDOWS: usize = 8;
const PHRASE_WINDOWS: usize = 40;
const WINDOW: usize = RATE.hz() as usize / 50;
/// A window is quiet below this share of the clip's peak.
const QUIET: f64 = 0.05;

/// Sessions at once, with the gates of their p50 and p95 in ms.
const LOADS: [(usize, f64, Option<f64>); 3] = [(1, 400.0, Some(500.0)), (2, 500.0, None), (4, 700.0, None)];
const READY_MS: f64 = 3_000.0;
const MEMORY_MIB: f64 = 700.0;
const WRONG_PERCENT: f64 = 7.0;
const FIRST_WORDS_MS: f64 = 600.0;
const CHANGED_PERCENT: f64 = 1.0;
const RIGHT_PERCENT: f64 = 97.0;

pub(super) async fn measure(plan: &Plan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let folder = plan.clips.clone().unwrap_or_else(|| CLIPS.into());
    let clips = Arc::new(tokio::task::spawn_blocking(move || Clips::read(&folder)).await??);
    progress("real: the first start, which measures models that were never measured here");
    Hub::start(&plan.hub, Engines::Shipped).await?.stop().await;
    let begun = Instant::now();
    let hub = Hub::start(&plan.hub, Engines::Shipped).await?;
    let ready = begun.elapsed();
    let http = reqwest::Client::builder().timeout(RESPONSE_TIMEOUT).build().map_err(failed)?;
    let how =
        format!("{}; {} clips, {SILENCE_MS} ms of silence end a turn", serving(&http, &hub.url).await?, clips.len());
    let mut section = Section::new(name_of(Measure::Real), how);
    let ready_ms = 1_000.0 * ready.as_secs_f64();
    section.figures.push(Figure::new("ready", Unit::Ms, ready_ms, 1).at_most(READY_MS));
    section.figures.push(memory("memory when ready", &hub)?);
    progress("real: whole clips");
    let outcome = talk(&hub, &clips, 1, plan.turns(clips.len()), READER_SILENCE_MS, progress).await?;
    recognition(&mut section, &outcome, &clips);
    section.show_new(progress);
    let phrases: Vec<Clip> = (0..clips.len()).filter_map(|i| last_phrase(&clips[i])).collect();
    let phrases = Clips::asked(phrases).ok_or_else(|| BenchError::Clips("no clip ends in a phrase of 0.8 s".into()))?;
    let phrases = Arc::new(phrases);
    for (n_sessions, p50_ms, p95_ms) in LOADS {
        progress(&format!("real: {n_sessions} at a time"));
        let outcome = talk(&hub, &phrases, n_sessions, plan.turns(TURNS), SILENCE_MS, progress).await?;
        conversations(&mut section, &outcome, n_sessions, (p50_ms, p95_ms));
        section.show_new(progress);
    }
    round_trip(&mut section, plan, &http, &hub.url, progress).await?;
    section.figures.push(memory("memory at the end", &hub)?);
    let hub_cpu_s = hub.process.cpu_s()?;
    hub.stop().await;
    Ok(Measurement { section, hub_cpu_s })
}

/// The recognizer and the voice that serve, by `/readyz`.
async fn serving(http: &reqwest::Client, url: &str) -> Result<String, BenchError> {
    let state: Value = http.get(format!("{url}/readyz")).send().await.map_err(failed)?.json().await.map_err(failed)?;
    Ok(format!("{} hears, {} speaks", served(&state, "stt"), served(&state, "tts")))
}

/// The recognizer's model.
///
/// # Errors
/// There is none, or the hub does not answer.
pub(super) async fn recognizer(url: &str) -> Result<String, BenchError> {
    let http = reqwest::Client::builder().timeout(RESPONSE_TIMEOUT).build().map_err(failed)?;
    let state: Value = http.get(format!("{url}/readyz")).send().await.map_err(failed)?.json().await.map_err(failed)?;
    match served(&state, "stt") {
        "none" => Err(BenchError::Engine("no recognizer is installed: antiphon models pull whisper-base".into())),
        model => Ok(model.to_owned()),
    }
}

/// What serves a stage, by the hub's `/readyz`.
fn served<'a>(state: &'a Value, stage: &str) -> &'a str {
    let model = state["models"][stage].as_str();
    model.or_else(|| state["engines"][stage].as_str()).unwrap_or("unknown")
}

async fn talk(
    hub: &Hub,
    clips: &Arc<Clips>,
    n_sessions: usize,
    turns: usize,
    silence_ms: u64,
    progress: Progress<'_>,
) -> Result<Outcome, BenchError> {
    let connect = ConnectOptions { mode: AudioMode::Pcm16, ..ConnectOptions::new(&hub.url) };
    let load = Load {
        connect,
        session: session_with(true, silence_ms),
        clips: clips.clone(),
        n_sessions,
        one_first: false,
        length: Length::Turns(turns),
        call_turns: None,
        stop: CancellationToken::new(),
        warm_up: 1,
        stagger: SPREAD / n_sessions as u32,
        barge_in: 0.0,
        network: Network::default(),
        process: Some(hub.process),
        patience: RESPONSE_TIMEOUT,
        seed: 1,
        n_turns: AtomicUsize::new(0),
        n_returns: Arc::default(),
    };
    load::run(load, progress).await
}

fn conversations(section: &mut Section, outcome: &Outcome, n_sessions: usize, gates: (f64, Option<f64>)) {
    let waits = outcome.waits();
    let name = |what: &str| format!("{n_sessions} at a time: {what}");
    section.percentile(&name("voice-to-voice"), &waits, 50.0, Some(gates.0));
    section.percentile(&name("voice-to-voice"), &waits, 95.0, gates.1);
    let n_missing = (waits.len() - waits.n_ended()) as f64;
    section.figures.push(Figure::new(name("turns not answered"), Unit::Count, n_missing, waits.len()).at_most(0.0));
    if let Some(percent) = outcome.cpu_percent() {
        section.figures.push(Figure::new(name("processor a session"), Unit::PercentOfCore, percent, n_sessions));
    }
}

/// What was heard of the clips, and what was shown meanwhile.
fn recognition(section: &mut Section, outcome: &Outcome, clips: &Clips) {
    let mut first_words = Waits::default();
    let mut wrong = Share::default();
    let mut changed = Share::default();
    for turn in &outcome.turns {
        let heard = &turn.heard;
        if let Sign::Words { said, .. } = &clips[turn.clip].sign {
            let said = words(said);
            wrong.add(n_errors(&said, &words(&heard.transcript)), said.len());
        }
        let shown = words(&heard.shown);
        let transcript = words(&heard.transcript);
        changed.add(n_changed(&shown, &transcript), shown.len());
        first_words.push_option(heard.first_words);
    }
    section.figures.push(wrong.figure("words wrong").at_most(WRONG_PERCENT));
    section.percentile("first words shown after the onset", &first_words, 50.0, Some(FIRST_WORDS_MS));
    section.percentile("first words shown after the onset", &first_words, 95.0, None);
    section.figures.push(changed.figure("words shown that changed").at_most(CHANGED_PERCENT));
    let n_broken = outcome.broken.len() as f64;
    let broken = Figure::new("whole clips: sessions broken off", Unit::Count, n_broken, outcome.n_sessions);
    section.figures.push(broken.at_most(0.0));
    section.notes.extend(outcome.broken.iter().map(|(_, error)| format!("whole clips: {error}")));
}

/// Of the words that were shown, how many are not the beginning of the transcript: the least number of errors over all its
/// beginnings.
fn n_changed(shown: &Vec<String>, transcript: &[String]) -> usize {
    let beginnings = (0..=transcript.len()).map(|n| n_errors(shown, &transcript[..n].to_vec()));
    beginnings.min().unwrap_or(0)
}

/// What is said behind the last pause of a clip; `None` if that is too short.
fn last_phrase(clip: &Clip) -> Option<Clip> {
    let peak = clip.samples.iter().map(|sample| sample.unsigned_abs()).max()?;
    let bound = (f64::from(peak) * QUIET) as u16;
    let is_loud = |window: &[i16]| window.iter().any(|sample| sample.unsigned_abs() > bound);
    let loud: Vec<bool> = clip.samples.chunks(WINDOW).map(is_loud).collect();
    let end = loud.iter().rposition(|loud| *loud)? + 1;
    let pause = loud[..end].windows(PAUSE_WINDOWS).rposition(|windows| !windows.contains(&true));
    let begin = pause.map_or(0, |at| at + PAUSE_WINDOWS);
    if end - begin < PHRASE_WINDOWS {
        return None;
    }
    let samples = clip.samples[begin * WINDOW..(end * WINDOW).min(clip.samples.len())].to_vec();
    Clip::new(clip.name.clone(), Sign::Unknown, samples)
}

/// Words of a kind among all.
#[derive(Default)]
struct Share {
    n: usize,
    of: usize,
}

impl Share {
    fn add(&mut self, n: usize, of: usize) {
        self.n += n;
        self.of += of;
    }

    fn figure(&self, name: &str) -> Figure {
        let percent = 100.0 * self.n as f64 / self.of.max(1) as f64;
        Figure::new(name, Unit::Of("%"), percent, self.of)
    }
}

/// Speaks and hears the hard texts, one after the other.
async fn round_trip(
    section: &mut Section,
    plan: &Plan,
    http: &reqwest::Client,
    url: &str,
    progress: Progress<'_>,
) -> Result<(), BenchError> {
    let texts = read_texts(Path::new(TEXTS))?;
    let step = if plan.quick { QUICK_TEXTS } else { 1 };
    let mut wrong = Share::default();
    let mut n_texts = 0;
    for (text, expected) in texts.iter().step_by(step) {
        n_texts += 1;
        progress(&format!("real: hard text {n_texts} of {}", texts.len().div_ceil(step)));
        let heard = spoken_and_heard(http, url, text).await?;
        let heard_words = words(&heard);
        let expected = words(expected);
        // A recognizer that writes what was written has heard it: "5/6/2024".
        let is_as_written = written_words(text) == written_words(&heard);
        let n_wrong = if is_as_written { 0 } else { n_errors(&expected, &heard_words) };
        wrong.add(n_wrong.min(expected.len()), expected.len());
        if n_wrong > 0 {
            section.notes.push(format!("{n_wrong} wrong of {text:?}: heard {heard:?}"));
        }
    }
    let right = Share { n: wrong.of - wrong.n, of: wrong.of };
    section.figures.push(right.figure("round trip: words right").at_least(RIGHT_PERCENT));
    section.show_new(progress);
    Ok(())
}

async fn spoken_and_heard(http: &reqwest::Client, url: &str, text: &str) -> Result<String, BenchError> {
    let body = json!({"input": text, "response_format": "wav"});
    let spoken = http.post(format!("{url}/v1/audio/speech")).json(&body).send().await.map_err(failed)?;
    let wav = spoken.error_for_status().map_err(failed)?.bytes().await.map_err(failed)?;
    let part = Part::bytes(wav.to_vec()).file_name("speech.wav");
    let form = Form::new().part("file", part).text("model", "whisper-1").text("language", "en");
    let heard = http.post(format!("{url}/v1/audio/transcriptions")).multipart(form).send().await.map_err(failed)?;
    let heard: Value = heard.error_for_status().map_err(failed)?.json().await.map_err(failed)?;
    Ok(heard["text"].as_str().unwrap_or_default().to_owned())
}

/// Texts, each with the words that a person would say, by a tab between them.
fn read_texts(path: &Path) -> Result<Vec<(String, String)>, BenchError> {
    let failed = |why: &str| BenchError::Clips(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error.to_string()))?;
    let line = |line: &str| line.split_once('\t').map(|(text, said)| (text.to_owned(), said.to_owned()));
    text.lines().map(|each| line(each).ok_or_else(|| failed("a line without a tab"))).collect()
}

fn memory(name: &str, hub: &Hub) -> Result<Figure, BenchError> {
    let mib = hub.process.resident()? as f64 / (1024.0 * 1024.0);
    Ok(Figure::new(name, Unit::Of("MiB"), mib, 1).at_most(MEMORY_MIB))
}

fn failed(error: reqwest::Error) -> BenchError {
    BenchError::Engine(format!("the hub's speech API: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{HeardQuestion, TurnRecord};

    #[test]
    fn a_share_is_a_percentage_of_all_words() {
        let mut share = Share::default();
        share.add(1, 30);
        share.add(2, 70);
        assert_eq!((share.figure("x").value, share.figure("x").n), (3.0, 100));
        assert_eq!(Share::default().figure("x").value, 0.0);
    }

    #[test]
    fn a_session_that_broke_off_before_its_first_clip_misses_a_gate() {
        let clip = Clip::new("x", Sign::Unknown, vec![5_000, -5_000]).expect("loud");
        let clips = Clips::asked(vec![clip]).expect("one");
        let broken = vec![(0, antiphon_client::ClientError::Silent)];
        let outcome = Outcome { n_sessions: 1, broken, ..Outcome::default() };
        let mut section = Section::default();
        recognition(&mut section, &outcome, &clips);
        let missed: Vec<_> = section.figures.iter().filter(|figure| figure.passes() == Some(false)).collect();
        assert_eq!((missed.len(), missed[0].name.as_str()), (1, "whole clips: sessions broken off"));
        assert_eq!(section.notes.len(), 1);
    }

    #[test]
    fn a_turn_in_which_no_words_are_shown_counts_as_endless() {
        let clip = Clip::new("x", Sign::Unknown, vec![5_000, -5_000]).expect("loud");
        let clips = Clips::asked(vec![clip]).expect("one");
        let of = |first_words: &[Option<u64>]| {
            let turn = |ms: &Option<u64>| {
                let heard = HeardQuestion { first_words: ms.map(Duration::from_millis), ..HeardQuestion::default() };
                TurnRecord { heard, ..TurnRecord::asked(Duration::ZERO, None) }
            };
            let outcome = Outcome { turns: first_words.iter().map(turn).collect(), ..Outcome::default() };
            let mut section = Section::default();
            recognition(&mut section, &outcome, &clips);
            section.figures[1..3].iter().map(|figure| (figure.value, figure.passes())).collect::<Vec<_>>()
        };
        assert_eq!(of(&[Some(400), Some(500), None]), [(500.0, Some(true)), (f64::INFINITY, None)]);
        assert_eq!(of(&[None]), [(f64::INFINITY, Some(false)), (f64::INFINITY, None)]);
    }

    #[test]
    fn changed_words_are_those_that_the_transcript_does_not_begin_with() {
        let n = |shown: &str, transcript: &str| n_changed(&words(shown), &words(transcript));
        assert_eq!([n("and stood", "And stood up."), n("", "Yes."), n("a stud", "and stood up")], [0, 0, 2]);
        assert_eq!(n("what time it", "so what time is it in"), 2, "one that is missing before, and one within");
    }

    #[test]
    fn the_last_phrase_is_behind_the_last_pause() {
        let loud = |ms: usize| vec![5_000i16; ms * RATE.hz() as usize / 1_000];
        let quiet = |ms: usize| vec![10i16; ms * RATE.hz() as usize / 1_000];
        let clip = |parts: &[Vec<i16>]| Clip::new("x", Sign::Unknown, parts.concat()).expect("loud");
        let phrase = last_phrase(&clip(&[loud(700), quiet(300), loud(500), quiet(100), loud(600), quiet(400)]));
        assert_eq!(phrase.expect("long enough").samples.len(), 1_200 * RATE.hz() as usize / 1_000);
        assert!(last_phrase(&clip(&[loud(900), quiet(300), loud(500)])).is_none(), "too short");
        assert_eq!(last_phrase(&clip(&[loud(900)])).expect("one phrase").samples.len(), loud(900).len());
    }

    #[test]
    fn the_texts_of_the_repository_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let texts = read_texts(&root.join(TEXTS)).expect("the texts");
        assert!(texts.len() >= 120, "{}", texts.len());
        assert!(read_texts(Path::new("/nowhere")).is_err());
    }
}
