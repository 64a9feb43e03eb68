//! The clips that sessions speak, and how results are matched to them.
//!
//! Clips come from a folder of WAV files, from flite, or from the marked recording for the mock engines. Session `i`
//! speaks clip `i + turn`, so that concurrent sessions ask different questions; marked clips stay with their session.

use super::super::BenchError;
use super::super::questions::{QUESTIONS, VOICES, loud, speak, speaker};
use antiphon_audio::{convert, decode};
use antiphon_client::RATE;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest accepted clip.
const LONGEST: Duration = Duration::from_secs(120);
/// Maximum number of clips read from a folder: about 50 MB of speech at 10 s each.
const MOST: usize = 200;

/// What identifies a clip in a transcript and a response.
#[derive(Clone, Debug, PartialEq)]
pub enum Sign {
    /// Its text, and a part of the correct response, if known.
    Words {
        /// Text of the clip.
        said: String,
        /// Text that the response must contain.
        expect: Option<String>,
    },
    /// A name that the mock engines pass through every stage, and the frequency of the tone they respond with.
    Name {
        /// The name, repeated in the response.
        name: String,
        /// Frequency of the voice, in Hz.
        tone_hz: f64,
    },
    /// Nothing is known about the clip.
    Unknown,
}

/// One utterance to speak.
#[derive(Clone, Debug)]
pub struct Clip {
    /// Display name.
    pub name: String,
    /// What identifies it.
    pub sign: Sign,
    /// Samples, mono at [`RATE`], with at least one loud sample.
    pub samples: Vec<i16>,
    /// Indices of its first and last loud sample (above 5 % of its peak).
    pub(crate) loud: (usize, usize),
    /// Playing time of a word of the response, where each can be recognized by its sound.
    pub(super) word: Option<Duration>,
}

impl Clip {
    /// A clip; `None` if no sample is loud.
    pub fn new(name: impl Into<String>, sign: Sign, samples: Vec<i16>) -> Option<Self> {
        let loud = loud(&samples).filter(|(first, last)| first < last)?;
        Some(Self { name: name.into(), sign, samples, loud, word: None })
    }

    /// The same clip for the simulated engines, whose response can be counted by words of this playing time.
    pub(crate) fn counted(self, word: Duration) -> Self {
        Self { word: Some(word), ..self }
    }
}

/// All clips, at least one.
#[derive(Clone, Debug)]
pub struct Clips {
    all: Vec<Clip>,
    /// Whether each session keeps its own clip.
    kept: bool,
}

impl Clips {
    /// Reads the WAV and FLAC files of a folder in order of their names. `x.txt` next to `x.wav` holds its text, or a line of
    /// `texts.tsv` does, behind the name of the file and a tab. Blocks.
    pub fn read(folder: &Path) -> Result<Self, BenchError> {
        let wrong = |path: &Path, why: String| BenchError::Clips(format!("{}: {why}", path.display()));
        let entries = std::fs::read_dir(folder).map_err(|error| wrong(folder, error.to_string()))?;
        let is_sound = |path: &PathBuf| {
            path.extension().is_some_and(|end| end.eq_ignore_ascii_case("wav") || end.eq_ignore_ascii_case("flac"))
        };
        let texts = std::fs::read_to_string(folder.join("texts.tsv")).unwrap_or_default();
        let texts: HashMap<&str, &str> = texts.lines().filter_map(|line| line.split_once('\t')).collect();
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_sound).collect();
        paths.sort();
        paths.truncate(MOST);
        let mut all = Vec::new();
        for path in paths {
            let file = std::fs::read(&path).map_err(|error| wrong(&path, error.to_string()))?;
            let pcm = decode::read(file.into(), LONGEST).map_err(|error| wrong(&path, error.to_string()))?;
            let samples = convert(&pcm.samples, pcm.rate, RATE);
            let listed = path.file_name().and_then(|name| texts.get(&*name.to_string_lossy()).copied());
            let said = std::fs::read_to_string(path.with_extension("txt")).ok().or(listed.map(str::to_owned));
            let sign = said.map(|said| said.trim().to_owned()).filter(|said| !said.is_empty());
            let sign = sign.map_or(Sign::Unknown, |said| Sign::Words { said, expect: None });
            let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            all.push(Clip::new(name, sign, samples).ok_or_else(|| wrong(&path, "it is silent".into()))?);
        }
        if all.is_empty() {
            Err(wrong(folder, "there is no WAV or FLAC file in it".into()))
        } else {
            Ok(Self { all, kept: false })
        }
    }

    /// Up to `n` questions for the offline assistant, each spoken by one of flite's voices; at most 48 different ones.
    pub async fn spoken(n: usize) -> Result<Self, BenchError> {
        let speaker = speaker().await?;
        let mut all = Vec::new();
        for i in 0..n.clamp(1, QUESTIONS.len() * VOICES.len()) {
            let (text, expect) = QUESTIONS[i % QUESTIONS.len()];
            let voice = VOICES[(i + i / QUESTIONS.len()) % VOICES.len()];
            let sign = Sign::Words { said: text.to_owned(), expect: Some(expect.to_owned()) };
            let samples = speak(&*speaker, text, voice).await?.samples;
            let clip = Clip::new(format!("{voice}: {text}"), sign, samples);
            all.push(clip.ok_or_else(|| BenchError::Clips(format!("{voice} said nothing for {text:?}")))?);
        }
        Ok(Self { all, kept: false })
    }

    /// Clips of which each session asks one after the other; `None` if `all` is empty.
    pub fn asked(all: Vec<Clip>) -> Option<Self> {
        (!all.is_empty()).then_some(Self { all, kept: false })
    }

    /// One clip per session, assigned in order; `None` if `all` is empty.
    pub fn kept(all: Vec<Clip>) -> Option<Self> {
        (!all.is_empty()).then_some(Self { all, kept: true })
    }

    /// The same clips for simulated engines whose replies have other words than those that can be counted.
    pub(crate) fn uncounted(&self) -> Self {
        let all = self.all.iter().map(|clip| Clip { word: None, ..clip.clone() }).collect();
        Self { all, kept: self.kept }
    }

    /// The index of the clip that a session speaks in a turn.
    pub(super) fn of(&self, session: usize, turn: usize) -> usize {
        let at = if self.kept { session } else { session + turn };
        at % self.all.len()
    }

    /// Number of different clips.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Always false: there is at least one clip.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn all(&self) -> &[Clip] {
        &self.all
    }
}

impl std::ops::Index<usize> for Clips {
    type Output = Clip;

    fn index(&self, at: usize) -> &Clip {
        &self.all[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_audio::wav;
    use antiphon_types::{Pcm, SampleRate};

    fn wav(samples: Vec<i16>) -> Vec<u8> {
        wav::write(&Pcm { rate: SampleRate::HZ_16000, samples })
    }

    #[test]
    fn a_folder_is_read_in_order_with_its_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).expect("written");
        assert!(
            Clips::read(folder.path()).expect_err("empty").to_string().contains("there is no WAV or FLAC file in it")
        );
        let tone: Vec<i16> = (0..1_600).map(|i| if i % 40 < 20 { 8_000 } else { -8_000 }).collect();
        put("b.wav", &wav(tone.clone()));
        put("a.WAV", &wav(tone));
        put("b.txt", b" What time is it?\n");
        put("notes.md", b"no clip");
        let clips = Clips::read(folder.path()).expect("read");
        let names: Vec<_> = clips.all().iter().map(|clip| (clip.name.as_str(), &clip.sign)).collect();
        let said = Sign::Words { said: "What time is it?".into(), expect: None };
        assert_eq!(names, [("a", &Sign::Unknown), ("b", &said)]);
        assert!((2_000..=2_400).contains(&clips[0].samples.len()), "{}", clips[0].samples.len());
        put("c.wav", &wav(vec![0; 100]));
        assert!(Clips::read(folder.path()).expect_err("silent").to_string().contains("c.wav: it is silent"));
    }

    #[test]
    fn sessions_ask_different_things_at_the_same_time() {
        let clip = |name: &str| Clip::new(name, Sign::Unknown, vec![9, -9, 9]).expect("loud");
        let kept = Clips::kept(vec![clip("a"), clip("b"), clip("c")]).expect("some");
        let asked = Clips { kept: false, ..kept.clone() };
        let of = |clips: &Clips, turn| [0, 1, 2, 3].map(|session| clips.of(session, turn));
        assert_eq!((of(&asked, 0), of(&asked, 1)), ([0, 1, 2, 0], [1, 2, 0, 1]));
        assert_eq!((of(&kept, 0), of(&kept, 1)), ([0, 1, 2, 0], [0, 1, 2, 0]));
        assert!(Clips::kept(Vec::new()).is_none());
        assert!(Clip::new("silence", Sign::Unknown, vec![0; 9]).is_none());
    }
}
