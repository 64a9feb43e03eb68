//! Readers of published benchmarks' data, as their makers lay it out. A sample that cannot be read is named, and the
//! rest goes on.
//!
//! - eot-bench: `metadata.jsonl`, a row a line with `id`, `language`, `audio` (a path beside it, or an object with
//!   `path` and, where it is known, `sampling_rate`) and `silence_spans` (`start` and `end` in seconds; the last one is
//!   the turn's end). The data set itself is Parquet, which is not read: export it with its sound files.
//! - Full-Duplex-Bench v1 and v1.5: a folder for each sample with `input.wav` and `pause.json`, `turn_taking.json`,
//!   `interrupt.json` or `metadata.json`, which have `timestamp` (v1.5: `timestamps`): begin and end in seconds. The
//!   task is the name of the folder above.
//! - TurnBench: a folder for each conversation with `speaker_1_audio.wav`, `speaker_2_audio.wav` and three annotations
//!   of each speaker, `speaker_1_annotation_a.srt` and so on, whose texts begin with a label in brackets. An event
//!   counts where all three agree within 200 ms; its times are the medians.

use super::acoustics::{ms_of, samples_of};
use super::endpointing::EndedTurn;
use super::scenario::{
    Begins, Category, Condition, Conversation, Expected, LabelError, Labelled, MIN_PAUSE_MS, Source, Span, Split, Turn,
};
use antiphon_audio::{convert, decode};
use antiphon_client::RATE;
use antiphon_types::SampleRate;
use clap::ValueEnum;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest sound that is read.
const LONGEST: Duration = Duration::from_secs(3_600);
/// The lowest rate: below it there is no speech to judge.
const LOWEST_RATE: SampleRate = SampleRate::HZ_8000;
/// How far three annotators of TurnBench may differ, in ms.
const AGREED_MS: u32 = 200;
/// How far apart two of their events may begin to be the same one, in ms.
const MATCHED_MS: u32 = 500;
/// Sound before a turn of TurnBench that is kept, in ms.
const BEFORE_MS: u32 = 300;

/// A published layout of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// Turns with spans of silence, in metadata.jsonl
    EotBench,
    /// A folder of samples with input.wav for each task, v1 and v1.5
    FullDuplexBench,
    /// A folder of two-channel conversations with three annotators
    Turnbench,
}

/// Why a sample was left out, or the whole folder.
#[derive(Debug, thiserror::Error)]
pub(super) enum LayoutError {
    #[error("{path}: {why}", path = path.display())]
    File { path: PathBuf, why: String },
    #[error("{name}: {source}")]
    Labels { name: String, source: LabelError },
}

fn file(path: &Path, why: impl Into<String>) -> LayoutError {
    LayoutError::File { path: path.to_path_buf(), why: why.into() }
}

/// What a folder holds.
#[derive(Default)]
pub(super) struct Samples {
    /// For the curve.
    pub(super) turns: Vec<EndedTurn>,
    /// For the hub, in real time.
    pub(super) conversations: Vec<Conversation>,
    /// What was left out, and why.
    pub(super) left_out: Vec<LayoutError>,
}

/// Reads a folder. Blocks.
///
/// # Errors
/// The folder cannot be read, or has no sample of the layout. What is wrong with a sample is in [`Samples::left_out`].
pub(super) fn read(layout: Layout, folder: &Path) -> Result<Samples, LayoutError> {
    let samples = match layout {
        Layout::EotBench => eot_bench(folder)?,
        Layout::FullDuplexBench => full_duplex_bench(folder)?,
        Layout::Turnbench => turnbench(folder)?,
    };
    if samples.turns.is_empty() && samples.conversations.is_empty() && samples.left_out.is_empty() {
        return Err(file(folder, "it has no sample of this layout"));
    }
    Ok(samples)
}

/// Mono at [`RATE`]. `stated_hz`: the rate that the labels name.
fn sound(path: &Path, stated_hz: Option<u64>) -> Result<Vec<i16>, LayoutError> {
    let bytes = std::fs::read(path).map_err(|error| file(path, error.to_string()))?;
    let pcm = decode::read(bytes.into(), LONGEST).map_err(|error| file(path, error.to_string()))?;
    if pcm.rate.hz() < LOWEST_RATE.hz() {
        return Err(file(path, format!("its rate is {} Hz; at least {} are needed", pcm.rate.hz(), LOWEST_RATE.hz())));
    }
    if let Some(stated) = stated_hz.filter(|stated| *stated != u64::from(pcm.rate.hz())) {
        return Err(file(path, format!("its rate is {} Hz, but its labels say {stated}", pcm.rate.hz())));
    }
    Ok(convert(&pcm.samples, pcm.rate, RATE))
}

fn read_json(path: &Path) -> Result<Value, LayoutError> {
    let text = std::fs::read_to_string(path).map_err(|error| file(path, error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| file(path, error.to_string()))
}

/// The folders in a folder, by name.
fn folders(folder: &Path) -> Result<Vec<PathBuf>, LayoutError> {
    let entries = std::fs::read_dir(folder).map_err(|error| file(folder, error.to_string()))?;
    let mut folders: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    folders.sort();
    Ok(folders)
}

fn to_ms(seconds: f64) -> u32 {
    (seconds.max(0.0) * 1_000.0).round() as u32
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

// eot-bench

fn eot_bench(folder: &Path) -> Result<Samples, LayoutError> {
    let rows = folder.join("metadata.jsonl");
    let text = std::fs::read_to_string(&rows).map_err(|error| file(&rows, error.to_string()))?;
    let mut samples = Samples::default();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = rows.with_file_name(format!("metadata.jsonl, line {}", i + 1));
        match eot_row(folder, &place, line) {
            Ok(turn) => samples.turns.push(turn),
            Err(error) => samples.left_out.push(error),
        }
    }
    Ok(samples)
}

fn eot_row(folder: &Path, place: &Path, line: &str) -> Result<EndedTurn, LayoutError> {
    let row: Value = serde_json::from_str(line).map_err(|error| file(place, error.to_string()))?;
    let name = match &row["id"] {
        Value::String(id) => id.clone(),
        Value::Number(id) => id.to_string(),
        _ => return Err(file(place, "it has no id")),
    };
    let audio = &row["audio"];
    let path = audio.as_str().or_else(|| audio["path"].as_str()).or_else(|| row["file_name"].as_str());
    let path = path.ok_or_else(|| file(place, "it has no audio"))?;
    let samples = sound(&folder.join(path), audio["sampling_rate"].as_u64())?;
    let spans = row["silence_spans"].as_array().filter(|spans| !spans.is_empty());
    let spans = spans.ok_or_else(|| file(place, "it has no silence_spans"))?;
    let mut silences = Vec::new();
    for span in spans {
        let (Some(start), Some(end)) = (span["start"].as_f64(), span["end"].as_f64()) else {
            return Err(file(place, "a span of silence has no start or no end"));
        };
        let silence = Span { from_ms: to_ms(start), to_ms: to_ms(end) };
        let before = silences.last().map_or(0, |before: &Span| before.to_ms);
        if silence.to_ms <= silence.from_ms || silence.from_ms < before {
            return Err(file(place, format!("the span of silence from {start} to {end} s contradicts the others")));
        }
        silences.push(silence);
    }
    let Some(last) = silences.pop() else { return Err(file(place, "it has no silence_spans")) };
    if last.from_ms > ms_of(samples.len()) {
        let end = f64::from(ms_of(samples.len())) / 1e3;
        return Err(file(
            place,
            format!("the turn ends at {} s, but its sound at {end} s", f64::from(last.from_ms) / 1e3),
        ));
    }
    let is_pause = |span: &Span| span.to_ms - span.from_ms >= MIN_PAUSE_MS;
    let pauses = silences.into_iter().filter(is_pause).collect();
    Ok(EndedTurn { name, samples, pauses, end_ms: last.from_ms, bed: Vec::new(), condition: None })
}

// Full-Duplex-Bench

fn full_duplex_bench(folder: &Path) -> Result<Samples, LayoutError> {
    let mut samples = Samples::default();
    for task in folders(folder)? {
        for sample in folders(&task)? {
            match fdb_sample(&name_of(&task), &sample) {
                Ok(conversation) => samples.conversations.push(conversation),
                Err(error) => samples.left_out.push(error),
            }
        }
    }
    Ok(samples)
}

/// A sample's sound has the user's times, whatever the agent does: its turns follow each other at once.
fn fdb_sample(task: &str, folder: &Path) -> Result<Conversation, LayoutError> {
    let samples = sound(&folder.join("input.wav"), None)?;
    let whole_ms = ms_of(samples.len());
    let times = |name: &str| -> Result<Vec<Span>, LayoutError> {
        let path = folder.join(name);
        let labels = read_json(&path)?;
        let of = |label: &Value| {
            let times = label["timestamp"].as_array().or_else(|| label["timestamps"].as_array())?;
            let from_ms = to_ms(times.first()?.as_f64()?);
            Some(Span { from_ms, to_ms: to_ms(times.get(1)?.as_f64()?) })
        };
        let spans = match &labels {
            Value::Array(all) => all.iter().map(of).collect::<Option<Vec<Span>>>(),
            one => of(one).map(|span| vec![span]),
        };
        let spans = spans.filter(|spans| !spans.is_empty()).ok_or_else(|| file(&path, "a label has no timestamp"))?;
        let is_wrong = |span: &&Span| span.to_ms < span.from_ms || span.from_ms > whole_ms;
        match spans.iter().find(is_wrong) {
            Some(span) => {
                let Span { from_ms, to_ms } = span;
                Err(file(
                    &path,
                    format!("a label from {from_ms} to {to_ms} ms contradicts the sound, which has {whole_ms} ms"),
                ))
            }
            None => Ok(spans),
        }
    };
    let turns = if task.contains("pause") {
        let pauses = times("pause.json")?;
        vec![answered_turn(Category::NaturalPause, samples, &pauses, whole_ms)]
    } else if task.contains("turn_taking") {
        let end_ms = times("turn_taking.json")?[0].from_ms;
        vec![answered_turn(Category::Question, samples, &[], end_ms)]
    } else if task.contains("user_interruption") && folder.join("interrupt.json").exists() {
        over_reply(Category::Interruption, samples, times("interrupt.json")?[0])
    } else {
        let category = match task {
            task if task.contains("user_interruption") => Category::Interruption,
            task if task.contains("backchannel") => Category::Backchannel,
            task if task.contains("talking_to_other") => Category::Aside,
            task if task.contains("background_speech") => Category::Television,
            _ => return Err(file(folder, format!("{task:?} is no task of this benchmark"))),
        };
        over_reply(category, samples, times("metadata.json")?[0])
    };
    let conversation = Conversation {
        split: Split::Held,
        speaker: format!("{task}/{}", name_of(folder)),
        condition: Condition::Clean,
        turns,
        bed: Vec::new(),
    };
    for turn in &conversation.turns {
        let labels = |source| LayoutError::Labels { name: conversation.speaker.clone(), source };
        turn.check().map_err(labels)?;
    }
    Ok(conversation)
}

/// A turn of the whole sound, with these pauses, to `end_ms` at most and to its last loud sample.
fn answered_turn(category: Category, samples: Vec<i16>, pauses: &[Span], end_ms: u32) -> Turn {
    let loud = super::super::questions::loud(&samples);
    let (first_ms, last_ms) = loud.map_or((0, end_ms), |(first, last)| (ms_of(first), ms_of(last)));
    let end_ms = end_ms.min(last_ms.max(first_ms + 1));
    let mut labels = Vec::new();
    let mut from_ms = first_ms;
    let mut add = |from_ms: u32, to_ms: u32| {
        let span = Span { from_ms, to_ms };
        labels.push(Labelled { span, source: Source::User, text: String::new() });
    };
    for pause in pauses.iter().filter(|pause| pause.from_ms > first_ms && pause.to_ms < end_ms) {
        if pause.from_ms > from_ms {
            add(from_ms, pause.from_ms);
        }
        from_ms = pause.to_ms;
    }
    add(from_ms, end_ms);
    Turn { category, expected: Expected::Answer, begins: Begins::AtOnce, samples, labels, decided_ms: end_ms }
}

/// The context, which is to be answered, and what sounds over the answer.
fn over_reply(category: Category, samples: Vec<i16>, span: Span) -> Vec<Turn> {
    let at = samples_of(span.from_ms).min(samples.len());
    let context = samples[..at].to_vec();
    let rest = samples[at..].to_vec();
    let to_ms = (span.to_ms - span.from_ms).min(ms_of(rest.len()));
    let source = match category {
        Category::Aside => Source::Aside,
        Category::Television => Source::Other,
        _ => Source::User,
    };
    let expected = if category == Category::Interruption { Expected::Yield } else { Expected::GoOn };
    let labels = vec![Labelled { span: Span { from_ms: 0, to_ms }, source, text: String::new() }];
    let context_ms = ms_of(context.len());
    let mut turns = Vec::new();
    if context_ms > 0 {
        turns.push(answered_turn(Category::Question, context, &[], context_ms));
    }
    turns.push(Turn { category, expected, begins: Begins::AtOnce, samples: rest, labels, decided_ms: to_ms });
    turns
}

// TurnBench

/// An annotated event.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    span: Span,
    label: &'static str,
}

/// The labels that annotators use, and the classes in which they are compared. Others are ignored.
const LABELS: [(&str, &str); 11] = [
    ("Normal Turn", "Turn"),
    ("Strong Floor Hold", "Turn"),
    ("Bounded Response", "Turn"),
    ("Floor-taking Competitive Interruption", "Interruption"),
    ("Floor-taking Cooperative Interruption", "Interruption"),
    ("Non-floor Taking Competitive Interruption", "Interruption"),
    ("Non-floor Taking Cooperative Interruption", "Interruption"),
    ("Acknowledgement Backchannel", "Backchannel"),
    ("Continuer Backchannel", "Backchannel"),
    ("Reaction Backchannel", "Backchannel"),
    ("Laughter", "Laughter"),
];

fn turnbench(folder: &Path) -> Result<Samples, LayoutError> {
    let mut samples = Samples::default();
    for conversation in folders(folder)? {
        for speaker in 1..=2 {
            match turnbench_speaker(&conversation, speaker) {
                Ok(turns) => samples.turns.extend(turns),
                Err(error) => samples.left_out.push(error),
            }
        }
    }
    Ok(samples)
}

/// The turns of one channel. Pauses within a turn are not annotated: they are stretches without a loud sample.
fn turnbench_speaker(folder: &Path, speaker: usize) -> Result<Vec<EndedTurn>, LayoutError> {
    let samples = sound(&folder.join(format!("speaker_{speaker}_audio.wav")), None)?;
    let mut annotations = Vec::new();
    for annotator in ["a", "b", "c"] {
        annotations.push(srt(&folder.join(format!("speaker_{speaker}_annotation_{annotator}.srt")))?);
    }
    let agreed = agreed(&annotations);
    let whole_ms = ms_of(samples.len());
    if let Some(event) = agreed.iter().find(|event| event.span.to_ms > whole_ms) {
        let why = format!("speaker {speaker}: a turn ends at {} ms, but the sound at {whole_ms} ms", event.span.to_ms);
        return Err(file(folder, why));
    }
    let turns = agreed.iter().filter(|event| event.label == "Turn").enumerate();
    Ok(turns
        .map(|(i, event)| {
            let from_ms = event.span.from_ms.saturating_sub(BEFORE_MS);
            let samples = samples[samples_of(from_ms)..samples_of(event.span.to_ms)].to_vec();
            let pauses = silences(&samples);
            let name = format!("{}, speaker {speaker}, turn {}", name_of(folder), i + 1);
            EndedTurn { name, pauses, end_ms: event.span.to_ms - from_ms, samples, bed: Vec::new(), condition: None }
        })
        .collect())
}

/// Stretches of at least [`MIN_PAUSE_MS`] between loud windows of 20 ms.
fn silences(samples: &[i16]) -> Vec<Span> {
    let peak = samples.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or(0);
    let is_loud = |window: &[i16]| window.iter().any(|sample| u32::from(sample.unsigned_abs()) * 20 > u32::from(peak));
    let loud = samples.chunks(samples_of(20)).enumerate().filter(|(_, window)| is_loud(window));
    let loud: Vec<u32> = loud.map(|(i, _)| i as u32 * 20).collect();
    let between = loud.windows(2).map(|pair| Span { from_ms: pair[0] + 20, to_ms: pair[1] });
    between.filter(|span| span.to_ms >= span.from_ms + MIN_PAUSE_MS).collect()
}

/// The events of a subtitle file whose labels are known.
fn srt(path: &Path) -> Result<Vec<Event>, LayoutError> {
    let text = std::fs::read_to_string(path).map_err(|error| file(path, error.to_string()))?;
    let mut events = Vec::new();
    let mut span = None;
    for line in text.lines() {
        if let Some((from, to)) = line.split_once("-->") {
            let times = srt_ms(from).zip(srt_ms(to));
            let (from_ms, to_ms) = times.ok_or_else(|| file(path, format!("{line:?} are no times")))?;
            if to_ms < from_ms {
                return Err(file(path, format!("{line:?} ends before it begins")));
            }
            span = Some(Span { from_ms, to_ms });
        } else if let Some(label) = line.trim().strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let known = LABELS.iter().find(|(fine, _)| *fine == label);
            if let (Some(span), Some((_, label))) = (span.take(), known) {
                events.push(Event { span, label });
            }
        }
    }
    Ok(events)
}

/// `HH:MM:SS,mmm` in ms.
fn srt_ms(text: &str) -> Option<u32> {
    let (clock, ms) = text.trim().split_once(',')?;
    let mut parts = clock.split(':');
    let mut next = || parts.next()?.parse::<u32>().ok();
    let hours = next()?;
    let minutes = next()?;
    let seconds = next()?;
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000 + ms.parse::<u32>().ok()?)
}

/// Events on which all three annotators agree, with the medians of their times. An event of one annotator is used once.
fn agreed(annotations: &[Vec<Event>]) -> Vec<Event> {
    let [first, others @ ..] = annotations else { return Vec::new() };
    let mut used: Vec<Vec<bool>> = others.iter().map(|events| vec![false; events.len()]).collect();
    let mut agreed = Vec::new();
    for event in first {
        let nearest = |events: &[Event], used: &[bool]| {
            let distance = |at: &usize| events[*at].span.from_ms.abs_diff(event.span.from_ms);
            let candidates = (0..events.len()).filter(|at| !used[*at] && events[*at].label == event.label);
            candidates.min_by_key(distance).filter(|at| distance(at) <= MATCHED_MS)
        };
        let matches: Option<Vec<usize>> =
            others.iter().zip(&used).map(|(events, used)| nearest(events, used)).collect();
        let Some(matches) = matches else { continue };
        let spans =
            || std::iter::once(event.span).chain(others.iter().zip(&matches).map(|(events, at)| events[*at].span));
        let mut froms: Vec<u32> = spans().map(|span| span.from_ms).collect();
        let mut tos: Vec<u32> = spans().map(|span| span.to_ms).collect();
        froms.sort_unstable();
        tos.sort_unstable();
        let spread = |times: &[u32]| times[times.len() - 1] - times[0];
        if spread(&froms) > AGREED_MS || spread(&tos) > AGREED_MS {
            continue;
        }
        for (used, at) in used.iter_mut().zip(matches) {
            used[at] = true;
        }
        let span = Span { from_ms: froms[froms.len() / 2], to_ms: tos[tos.len() / 2] };
        agreed.push(Event { span, label: event.label });
    }
    agreed
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_audio::wav;
    use antiphon_types::Pcm;
    use serde_json::json;
    use tempfile::TempDir;

    /// A WAV file that is loud in these spans, in ms.
    fn put_sound(path: &Path, hz: u32, whole_ms: u32, loud: &[(u32, u32)]) {
        let at = |ms: u32| (ms * hz / 1_000) as usize;
        let mut samples = vec![0i16; at(whole_ms)];
        for (from, to) in loud {
            for (i, sample) in samples[at(*from)..at(*to)].iter_mut().enumerate() {
                *sample = if i % 40 < 20 { 8_000 } else { -8_000 };
            }
        }
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, wav::write(&Pcm { rate: SampleRate::new(hz), samples })).expect("written");
    }

    fn put(path: PathBuf, text: &str) {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    fn folder() -> TempDir {
        tempfile::tempdir().expect("a folder")
    }

    fn left_out(samples: &Samples) -> Vec<String> {
        samples.left_out.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn eot_bench_rows_are_turns_and_wrong_ones_are_named() {
        let folder = folder();
        put_sound(&folder.path().join("a.wav"), 16_000, 3_000, &[(0, 1_000), (1_500, 2_000)]);
        let row = |id: Value, audio: Value, silences: &[(f64, f64)]| {
            let spans: Vec<Value> = silences.iter().map(|(start, end)| json!({"start": start, "end": end})).collect();
            json!({"id": id, "language": "en", "audio": audio, "silence_spans": spans}).to_string()
        };
        let one = [(1.0, 1.5)];
        let rows = [
            row("one".into(), "a.wav".into(), &[(0.4, 0.55), (1.0, 1.5), (2.0, 3.0)]),
            row(2.into(), json!({"path": "b.wav"}), &one),
            row(3.into(), json!({"path": "a.wav", "sampling_rate": 8_000}), &one),
            row(4.into(), "a.wav".into(), &[(1.0, 1.5), (1.2, 2.0)]),
            row(5.into(), "a.wav".into(), &[(4.0, 5.0)]),
            row(6.into(), "a.wav".into(), &[]),
            "{".into(),
        ];
        put(folder.path().join("metadata.jsonl"), &rows.join("\n"));
        let samples = read(Layout::EotBench, folder.path()).expect("readable");
        let [turn] = &samples.turns[..] else { panic!("{} turns", samples.turns.len()) };
        assert_eq!((turn.name.as_str(), turn.end_ms), ("one", 2_000));
        assert_eq!(turn.pauses, [Span { from_ms: 1_000, to_ms: 1_500 }], "150 ms are no pause");
        let named = left_out(&samples);
        let expected = [
            "b.wav",
            "16000 Hz, but its labels say 8000",
            "line 4",
            "ends at 4 s, but its sound at",
            "no silence_spans",
            "line 7",
        ];
        assert_eq!(named.len(), expected.len(), "{named:?}");
        for (named, expected) in named.iter().zip(expected) {
            assert!(named.contains(expected), "{named}");
        }
    }

    #[test]
    fn full_duplex_bench_samples_are_conversations_and_wrong_ones_are_named() {
        let folder = folder();
        let task = |name: &str| folder.path().join(name);
        put_sound(&task("candor_pause_handling/1/input.wav"), 16_000, 4_000, &[(500, 1_000), (1_600, 3_000)]);
        put(task("candor_pause_handling/1/pause.json"), r#"[{"text": "[PAUSE]", "timestamp": [1.0, 1.6]}]"#);
        put_sound(&task("candor_turn_taking/1/input.wav"), 16_000, 3_000, &[(200, 1_500)]);
        put(task("candor_turn_taking/1/turn_taking.json"), r#"[{"text": "x", "timestamp": [1.5, 1.7]}]"#);
        put_sound(&task("synthetic_user_interruption/1/input.wav"), 16_000, 6_000, &[(0, 1_000), (3_000, 4_000)]);
        let interrupt = r#"[{"context": "a", "interrupt": "b", "timestamp": [3.0, 4.0]}]"#;
        put(task("synthetic_user_interruption/1/interrupt.json"), interrupt);
        put_sound(&task("user_backchannel/1/input.wav"), 16_000, 5_000, &[(0, 1_000), (3_000, 3_300)]);
        put(task("user_backchannel/1/metadata.json"), r#"{"context_text": "a", "timestamps": [3.0, 3.3]}"#);
        put(task("user_backchannel/2/metadata.json"), r#"{"timestamps": [3.0, 3.3]}"#);
        put_sound(&task("candor_turn_taking/2/input.wav"), 16_000, 3_000, &[(200, 1_500)]);
        put(task("candor_turn_taking/2/turn_taking.json"), r#"[{"timestamp": [9.5, 9.7]}]"#);
        put_sound(&task("candor_turn_taking/3/input.wav"), 4_000, 3_000, &[(200, 1_500)]);
        let samples = read(Layout::FullDuplexBench, folder.path()).expect("readable");
        let shape = |conversation: &Conversation| {
            let turns = conversation.turns.iter();
            turns.map(|turn| (turn.category, turn.expected, turn.onset_ms(), turn.end_ms())).collect::<Vec<_>>()
        };
        let [pause, ending, interruption, backchannel] = &samples.conversations[..] else {
            panic!("{} conversations, {:?}", samples.conversations.len(), left_out(&samples))
        };
        assert_eq!(pause.turns[0].pauses(), [Span { from_ms: 1_000, to_ms: 1_600 }]);
        assert_eq!(shape(ending)[0].1, Expected::Answer);
        assert!(shape(ending)[0].3.abs_diff(1_500) < 5, "{:?}", shape(ending));
        assert_eq!(shape(interruption)[1], (Category::Interruption, Expected::Yield, 0, 1_000));
        assert_eq!(shape(backchannel)[1], (Category::Backchannel, Expected::GoOn, 0, 300));
        assert_eq!(interruption.turns[0].samples.len(), samples_of(3_000));
        let named = left_out(&samples);
        for expected in ["user_backchannel/2/input.wav", "9500 to 9700 ms contradicts", "its rate is 4000 Hz"] {
            assert!(named.iter().any(|named| named.contains(expected)), "{expected}: {named:?}");
        }
        assert_eq!(named.len(), 3);
    }

    #[test]
    fn turnbench_turns_are_those_on_which_three_agree() {
        let folder = folder();
        let conversation = folder.path().join("7");
        put_sound(
            &conversation.join("speaker_1_audio.wav"),
            16_000,
            9_000,
            &[(1_000, 2_000), (2_500, 3_000), (6_000, 7_000)],
        );
        let annotation = |shift: u32, second: &str| {
            let first = format!("1\n00:00:01,{shift:03} --> 00:00:03,000\n[Normal Turn] so I\n\n");
            first + &format!("2\n00:00:06,000 --> 00:00:07,000\n[{second}] yes\n")
        };
        put(conversation.join("speaker_1_annotation_a.srt"), &annotation(0, "Normal Turn"));
        put(conversation.join("speaker_1_annotation_b.srt"), &annotation(100, "Strong Floor Hold"));
        put(conversation.join("speaker_1_annotation_c.srt"), &annotation(50, "Continuer Backchannel"));
        let samples = read(Layout::Turnbench, folder.path()).expect("readable");
        let [turn] = &samples.turns[..] else { panic!("{} turns", samples.turns.len()) };
        assert_eq!(turn.name, "7, speaker 1, turn 1");
        assert_eq!(
            turn.end_ms,
            3_000 - 1_050 + BEFORE_MS,
            "the median of 1,000, 1,100 and 1,050 ms, and what is kept before"
        );
        assert_eq!(turn.pauses.len(), 1);
        assert!(left_out(&samples)[0].contains("speaker_2_audio.wav"), "{:?}", left_out(&samples));
    }

    #[test]
    fn annotators_who_differ_by_more_than_200_ms_do_not_agree() {
        let event = |from_ms, to_ms| vec![Event { span: Span { from_ms, to_ms }, label: "Turn" }];
        let n = |other: Vec<Event>| agreed(&[event(1_000, 2_000), event(1_100, 2_000), other]).len();
        assert_eq!([n(event(1_200, 2_100)), n(event(1_201, 2_100)), n(event(1_000, 2_201))], [1, 0, 0]);
    }

    #[test]
    fn a_folder_without_samples_is_an_error() {
        let folder = folder();
        let error = read(Layout::FullDuplexBench, folder.path()).err().expect("empty").to_string();
        assert!(error.contains("no sample of this layout"), "{error}");
        let error = read(Layout::EotBench, folder.path()).err().expect("empty").to_string();
        assert!(error.contains("metadata.jsonl"), "{error}");
    }
}
