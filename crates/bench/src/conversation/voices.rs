//! The speakers: people's clips of the repository (and of a folder), and the voices that the hub can speak with.
//!
//! A speaker of clips says phrases of a recording with the pauses that it has. A synthetic speaker says the
//! [`Lines`] of its half, spoken once. A speaker belongs to one half; synthetic voices alternate. They are those of the
//! installed engine, and of a [`VoiceFolder`], or else of flite. Backchannels, hesitations, corrections and numbers exist
//! in synthetic voices only: no recording in the repository has them.

use super::super::load::Clips;
use super::super::{BenchError, Progress, questions};
use super::acoustics::{levelled, samples_of};
use super::lines::Lines;
use super::scenario::Split;
use antiphon::assembly::{self, EnginesError};
use antiphon::config::{self, Config, Sources};
use antiphon_client::RATE;
use antiphon_engine_api::tts::{SpeechRequest, Tts};
use antiphon_engines::tts::TtsConfig;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Clips of the repository, from its root: a reader, and a speech.
const READER: &str = "tests/fixtures/speech";
const SPEECH: &str = "tests/fixtures/jfk.flac";
/// Synthetic voices of an engine that are taken, and of a folder.
const MAX_VOICES: usize = 4;
const MAX_FOLDER_VOICES: usize = 8;
/// A pause between two phrases of a clip, and a phrase, in windows of 20 ms.
const PAUSE_WINDOWS: usize = 8;
const PHRASE_WINDOWS: usize = 15;
/// The longest turn that is made of a clip, in ms.
const MAX_TURN_MS: u32 = 7_000;
/// A window is quiet below this share of the clip's peak.
const QUIET: f64 = 0.05;

/// A part of a clip without a pause.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Phrase {
    /// The pause before it; 0 for the first one.
    pub(super) pause_ms: u32,
    pub(super) samples: Vec<i16>,
}

/// A stretch of human speech: at least one phrase.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SpokenClip {
    pub(super) phrases: Vec<Phrase>,
}

/// A speaker: of clips, or of lines.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Speaker {
    pub(super) name: String,
    pub(super) split: Split,
    /// What a synthetic voice says, by its text.
    pub(super) lines: BTreeMap<&'static str, Vec<i16>>,
    /// What a person says.
    pub(super) clips: Vec<SpokenClip>,
}

impl Speaker {
    /// All sounds that it makes.
    pub(super) fn sounds(&self) -> impl Iterator<Item = &Vec<i16>> {
        let phrases = self.clips.iter().flat_map(|clip| clip.phrases.iter().map(|phrase| &phrase.samples));
        self.lines.values().chain(phrases)
    }
}

/// A model whose English voices speak in the place of flite's.
#[derive(Clone, Debug)]
pub struct VoiceFolder {
    /// `kokoro`, `piper`, or another engine of `tts.engine` with a model of its own.
    pub engine: String,
    /// As `tts.model`.
    pub folder: PathBuf,
}

/// Reads and speaks everything for these halves. `folder`: more people, a folder of sounds for each, or one of a single
/// person.
///
/// # Errors
/// The repository's clips cannot be read, or a voice fails.
pub(super) async fn speakers(
    halves: &[Split],
    folder: Option<PathBuf>,
    voices: Option<VoiceFolder>,
    progress: Progress<'_>,
) -> Result<Vec<Speaker>, BenchError> {
    progress("conversation: reading people's clips");
    let mut speakers = tokio::task::spawn_blocking(move || people(folder.as_deref())).await??;
    speakers.retain(|speaker| halves.contains(&speaker.split));
    let config = config::load(&Sources::of_process(None)).map_err(|error| BenchError::Method(error.to_string()))?;
    let config = Config { models: config.models, onnx: config.onnx, tts: config.tts, ..Config::default() };
    let installed = engine_of(config.clone()).await?;
    let engines = match voices {
        Some(VoiceFolder { engine, folder }) => {
            let model = folder.display().to_string();
            let tts = TtsConfig { engine, model, ..config.tts };
            let of_folder = engine_of(Config { tts, ..config }).await?;
            if english_voices(&*of_folder, 1).is_empty() {
                return Err(BenchError::Method(format!("{} has no English voice", folder.display())));
            }
            vec![(installed, MAX_VOICES), (of_folder, MAX_FOLDER_VOICES)]
        }
        None => {
            let flite = questions::speaker().await?;
            let is_flite = installed.name() == flite.name();
            let mut engines = vec![(installed, MAX_VOICES), (flite, MAX_VOICES)];
            if is_flite {
                engines.truncate(1);
            }
            engines
        }
    };
    let mut n_synthetic = 0;
    for (engine, n_voices) in engines {
        for id in english_voices(&*engine, n_voices) {
            // Held first: the voice that is installed is heard in the report.
            let split = if n_synthetic % 2 == 0 { Split::Held } else { Split::Dev };
            n_synthetic += 1;
            if !halves.contains(&split) {
                continue;
            }
            progress(&format!("conversation: {} speaks as {id}", engine.name()));
            let mut lines = BTreeMap::new();
            for text in Lines::of(split).texts() {
                lines.insert(text, levelled(&spoken(&*engine, text, &id).await?));
            }
            let name = format!("{}: {id}", engine.name());
            speakers.push(Speaker { name, split, lines, clips: Vec::new() });
        }
    }
    Ok(speakers)
}

/// The voice of these settings, which is loaded.
async fn engine_of(config: Config) -> Result<Arc<dyn Tts>, BenchError> {
    let engine = tokio::task::spawn_blocking(move || assembly::tts(&config)).await?;
    Ok(engine.map_err(EnginesError::from)?)
}

/// At most `n` English voices of an engine, from its whole list: neighbours are alike. One that names no language is
/// taken for English.
fn english_voices(engine: &dyn Tts, n: usize) -> Vec<String> {
    let is_english = |language: &str| language.is_empty() || language.starts_with("en");
    let voices = engine.voices().into_iter().filter(|voice| is_english(&voice.language));
    let ids: Vec<String> = voices.map(|voice| voice.id).collect();
    let step = ids.len().div_ceil(n).max(1);
    ids.into_iter().step_by(step).collect()
}

async fn spoken(engine: &dyn Tts, text: &str, voice: &str) -> Result<Vec<i16>, BenchError> {
    let request = SpeechRequest { text: text.into(), voice: voice.into(), seed: Some(1), ..SpeechRequest::default() };
    questions::spoken(engine, request).await
}

/// The people: the reader is in the held half, the speech in the other; those of `folder` alternate.
fn people(folder: Option<&Path>) -> Result<Vec<Speaker>, BenchError> {
    let file = std::fs::read(SPEECH).map_err(|error| BenchError::Clips(format!("{SPEECH}: {error}")))?;
    let pcm = antiphon_audio::decode::read(file.into(), std::time::Duration::from_secs(60));
    let pcm = pcm.map_err(|error| BenchError::Clips(format!("{SPEECH}: {error}")))?;
    let speech = antiphon_audio::convert(&pcm.samples, pcm.rate, RATE);
    let mut speakers =
        vec![person("librivox", Split::Held, &[Path::new(READER)])?, speaker_of("jfk", Split::Dev, [&speech[..]])];
    let Some(folder) = folder else { return Ok(speakers) };
    let wrong = |error: std::io::Error| BenchError::Clips(format!("{}: {error}", folder.display()));
    let mut inner: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.is_dir() {
            inner.push(path);
        }
    }
    inner.sort();
    if inner.is_empty() {
        inner.push(folder.to_path_buf());
    }
    for (i, path) in inner.iter().enumerate() {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let split = if i % 2 == 0 { Split::Held } else { Split::Dev };
        let found = person(&name, split, &[path])?;
        // A folder of the reader's own name has more clips of the reader.
        match speakers.iter_mut().find(|speaker| speaker.name == name) {
            Some(known) => known.clips.extend(found.clips),
            None => speakers.push(found),
        }
    }
    speakers.retain(|speaker| !speaker.clips.is_empty());
    Ok(speakers)
}

fn person(name: &str, split: Split, folders: &[&Path]) -> Result<Speaker, BenchError> {
    let mut clips = Vec::new();
    for folder in folders {
        let read = Clips::read(folder)?;
        clips.extend((0..read.len()).map(|i| read[i].samples.clone()));
    }
    Ok(speaker_of(name, split, clips.iter().map(Vec::as_slice)))
}

fn speaker_of<'a>(name: &str, split: Split, clips: impl IntoIterator<Item = &'a [i16]>) -> Speaker {
    let clips = clips.into_iter().flat_map(|clip| spoken_clips(&levelled(clip))).collect();
    Speaker { name: name.to_owned(), split, lines: BTreeMap::new(), clips }
}

/// Cuts a clip at its pauses, and joins neighbouring phrases to turns of at most [`MAX_TURN_MS`].
fn spoken_clips(samples: &[i16]) -> Vec<SpokenClip> {
    let mut clips: Vec<SpokenClip> = Vec::new();
    let mut length_ms = 0;
    for phrase in phrases(samples) {
        let phrase_ms = phrase.pause_ms + super::acoustics::ms_of(phrase.samples.len());
        match clips.last_mut() {
            Some(clip) if length_ms + phrase_ms <= MAX_TURN_MS => {
                length_ms += phrase_ms;
                clip.phrases.push(phrase);
            }
            _ => {
                length_ms = phrase_ms;
                clips.push(SpokenClip { phrases: vec![Phrase { pause_ms: 0, ..phrase }] });
            }
        }
    }
    clips
}

/// The phrases of a clip. What is too short for one belongs to the phrase before it.
fn phrases(samples: &[i16]) -> Vec<Phrase> {
    let peak = samples.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or(0);
    let bound = (f64::from(peak) * QUIET) as u16;
    let window = samples_of(20);
    let is_loud = |window: &[i16]| window.iter().any(|sample| sample.unsigned_abs() > bound);
    let loud: Vec<bool> = samples.chunks(window).map(is_loud).collect();
    // Stretches of windows, from a loud one to the last loud one before a pause.
    let mut stretches: Vec<(usize, usize)> = Vec::new();
    for (i, _) in loud.iter().enumerate().filter(|(_, loud)| **loud) {
        match stretches.last_mut() {
            Some((from, to)) if i - *to < PAUSE_WINDOWS || *to - *from < PHRASE_WINDOWS => *to = i + 1,
            _ => stretches.push((i, i + 1)),
        }
    }
    let mut phrases = Vec::new();
    let mut end = stretches.first().map_or(0, |(from, _)| *from);
    for (from, to) in stretches {
        let pause_ms = ((from - end) * 20) as u32;
        phrases.push(Phrase { pause_ms, samples: samples[from * window..(to * window).min(samples.len())].to_vec() });
        end = to;
    }
    phrases
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::acoustics::ms_of;
    use super::*;
    use antiphon_audio::convert;
    use antiphon_engine_api::fakes::tts::FakeTts;

    /// A tone of a voice.
    fn tone(hz: f64, ms: u32) -> Vec<i16> {
        let sample = |i: usize| (4_000.0 * (std::f64::consts::TAU * hz * i as f64 / f64::from(RATE.hz())).sin()) as i16;
        (0..samples_of(ms)).map(sample).collect()
    }

    fn pitch(name: &str) -> f64 {
        120.0 + 20.0 * f64::from(name.bytes().next().unwrap_or(0) % 16)
    }

    /// A speaker whose lines are tones, the longer the longer their texts; a quarter as long as speech.
    pub(in super::super) fn synthetic(name: &str, split: Split) -> Speaker {
        let line = |text: &'static str| (text, tone(pitch(name), 100 + 10 * text.len() as u32));
        let lines = Lines::of(split).texts().map(line).collect();
        Speaker { name: name.into(), split, lines, clips: Vec::new() }
    }

    /// A speaker of one clip of two phrases.
    pub(in super::super) fn reader(name: &str, split: Split) -> Speaker {
        let clip = [tone(pitch(name), 700), vec![0; samples_of(400)], tone(pitch(name), 900)].concat();
        speaker_of(name, split, [&clip[..]])
    }

    #[test]
    fn a_voice_without_a_language_is_taken_for_english() {
        let voices = [("anna", "de-DE"), ("kim", ""), ("bob", "en-GB"), ("eve", "en"), ("ida", "it")];
        let engine = FakeTts::default().with_voices(voices);
        assert_eq!(english_voices(&engine, 4), ["kim", "bob", "eve"]);
        assert_eq!(english_voices(&engine, 1), ["kim"]);
        assert!(english_voices(&FakeTts::default().with_voices([("anna", "de-DE")]), 4).is_empty());
    }

    #[test]
    fn a_clip_is_cut_at_its_pauses() {
        let silence = |ms| vec![0; samples_of(ms)];
        let clip = [tone(150.0, 600), silence(300), tone(150.0, 500), silence(100), tone(150.0, 400)].concat();
        let found = phrases(&clip);
        let shape: Vec<_> = found.iter().map(|phrase| (phrase.pause_ms, ms_of(phrase.samples.len()))).collect();
        assert_eq!(shape, [(0, 600), (300, 1_000)], "a pause of 100 ms is none");
        let long = [tone(150.0, 4_000), silence(400), tone(150.0, 4_000)].concat();
        assert_eq!(spoken_clips(&long).len(), 2, "8 s are two turns");
        assert_eq!(spoken_clips(&clip).len(), 1);
    }

    #[test]
    fn the_clips_of_the_repository_have_pauses() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let reader = person("reader", Split::Held, &[&root.join(READER)]).expect("readable");
        assert!(reader.clips.len() >= 20, "{}", reader.clips.len());
        let with_pauses = reader.clips.iter().filter(|clip| clip.phrases.len() > 1).count();
        assert!(with_pauses >= 3, "{with_pauses} of {}", reader.clips.len());
        let file = std::fs::read(root.join(SPEECH)).expect("readable");
        let pcm = antiphon_audio::decode::read(file.into(), std::time::Duration::from_secs(60)).expect("FLAC");
        let speech = speaker_of("jfk", Split::Dev, [&convert(&pcm.samples, pcm.rate, RATE)[..]]);
        assert!(speech.clips.iter().any(|clip| clip.phrases.len() > 1));
    }
}
