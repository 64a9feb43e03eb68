//! A voice's `.onnx.json`: what Piper writes beside each model. Pure, but for reading the file.

use super::super::TtsConfig;
use antiphon_engine_api::tts::TtsError;
use antiphon_types::SampleRate;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// A letter of IPA, or of the text, to the model's ids.
pub(super) type IdMap = HashMap<char, Vec<i64>>;

/// What a voice's file says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VoiceFile {
    /// The sound's rate.
    pub(super) rate: SampleRate,
    /// How text becomes phonemes.
    pub(super) source: Source,
    /// Phonemes that stand for others before they are looked up.
    pub(super) replaced: HashMap<char, Vec<char>>,
    /// Phonemes to ids, `_`, `^` and `$` among them.
    pub(super) ids: IdMap,
    /// The voice's own scales.
    pub(super) scales: Scales,
    /// Speakers by name, in the order of their ids. Empty: one speaker without a name.
    pub(super) speakers: Vec<(String, i64)>,
    /// BCP-47 tag.
    pub(super) language: String,
}

/// How text becomes phonemes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// By espeak-ng's voice of that name.
    Espeak(String),
    /// Each letter is one.
    Letters,
}

/// What shapes the sound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scales {
    /// How much the sound varies; 0 is the same each time.
    pub(super) noise: f32,
    /// How long phonemes are; 2 is half the speed.
    pub(super) length: f32,
    /// How much their lengths vary.
    pub(super) width: f32,
}

impl Scales {
    /// Those of the configuration in place of the voice's own, where they are set. A length of 0 would be no sound: the
    /// voice's own stays.
    pub(super) fn with(self, config: &TtsConfig) -> Self {
        let set = |own: f32, set: f32| if set >= 0.0 { set } else { own };
        let length = if config.length_scale > 0.0 { config.length_scale } else { self.length };
        Self { noise: set(self.noise, config.noise_scale), length, width: set(self.width, config.width_scale) }
    }
}

/// The file as it is written. What Piper adds later is passed over.
#[derive(Deserialize)]
struct VoiceFileJson {
    audio: Audio,
    #[serde(default)]
    espeak: Option<EspeakVoice>,
    #[serde(default)]
    phoneme_type: Option<String>,
    #[serde(default)]
    phoneme_map: HashMap<String, Vec<String>>,
    phoneme_id_map: HashMap<String, Vec<i64>>,
    #[serde(default)]
    inference: Inference,
    #[serde(default = "one")]
    num_speakers: u32,
    #[serde(default)]
    speaker_id_map: BTreeMap<String, i64>,
    #[serde(default)]
    language: Option<Language>,
}

#[derive(Deserialize)]
struct Audio {
    sample_rate: u32,
}

#[derive(Deserialize)]
struct EspeakVoice {
    voice: String,
}

/// Piper's own defaults where a file has none (its `src/python_run/piper/config.py`).
#[derive(Deserialize)]
#[serde(default)]
struct Inference {
    noise_scale: f32,
    length_scale: f32,
    noise_w: f32,
}

impl Default for Inference {
    fn default() -> Self {
        Self { noise_scale: 0.667, length_scale: 1.0, noise_w: 0.8 }
    }
}

#[derive(Deserialize)]
struct Language {
    #[serde(default)]
    code: String,
}

fn one() -> u32 {
    1
}

impl VoiceFile {
    /// Reads the file beside `model`: its name with `.json` behind it. [`TtsError::Unavailable`] says what is wrong.
    pub(super) fn beside(model: &Path) -> Result<Self, TtsError> {
        let mut path = model.as_os_str().to_owned();
        path.push(".json");
        let path = PathBuf::from(path);
        let wrong = |why: String| TtsError::Unavailable(format!("the voice's file {} {why}", path.display()));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(wrong(format!("is missing: put it beside {}, it comes with the voice", model.display())));
            }
            Err(error) => return Err(wrong(format!("cannot be read: {error}"))),
        };
        Self::parse(&text).map_err(wrong)
    }

    /// Reads the text of such a file. The error follows the file's name.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let written: VoiceFileJson =
            serde_json::from_str(text).map_err(|error| format!("is no Piper voice's description: {error}"))?;
        if !(4_000..=192_000).contains(&written.audio.sample_rate) {
            return Err(format!("gives {} Hz, which is no rate of speech", written.audio.sample_rate));
        }
        let ids: IdMap =
            written.phoneme_id_map.into_iter().filter_map(|(phoneme, ids)| Some((single(&phoneme)?, ids))).collect();
        if let Some(missing) = ['_', '^', '$'].iter().find(|mark| !ids.contains_key(mark)) {
            return Err(format!("has no id for {missing:?} in its phoneme_id_map"));
        }
        let source = source(written.phoneme_type.as_deref(), written.espeak)?;
        let mut replaced: HashMap<char, Vec<char>> = written
            .phoneme_map
            .into_iter()
            .filter_map(|(from, to)| Some((single(&from)?, to.iter().flat_map(|to| to.chars()).collect())))
            .collect();
        // Piper's phonemizer does this for the voices of that language, whose files do not say it.
        if replaced.is_empty() && source == Source::Espeak("pt-br".into()) {
            replaced.insert('c', vec!['k']);
        }
        let Inference { noise_scale: noise, length_scale: length, noise_w: width } = written.inference;
        if ![noise, length, width].iter().all(|scale| scale.is_finite() && (0.0..=10.0).contains(scale))
            || length == 0.0
        {
            return Err("has scales in \"inference\" that are no numbers from 0 to 10".into());
        }
        let code = written.language.map(|language| language.code.replace('_', "-")).filter(|code| !code.is_empty());
        let language = code.unwrap_or_else(|| match &source {
            Source::Espeak(tag) => tag.clone(),
            Source::Letters => "und".into(),
        });
        Ok(Self {
            rate: SampleRate::new(written.audio.sample_rate),
            source,
            replaced,
            ids,
            scales: Scales { noise, length, width },
            speakers: speakers(written.num_speakers, written.speaker_id_map),
            language,
        })
    }
}

/// The only character of `text`.
fn single(text: &str) -> Option<char> {
    let mut chars = text.chars();
    chars.next().filter(|_| chars.next().is_none())
}

fn source(kind: Option<&str>, espeak: Option<EspeakVoice>) -> Result<Source, String> {
    match (kind.unwrap_or("espeak"), espeak) {
        ("espeak", Some(espeak)) => Ok(Source::Espeak(espeak.voice)),
        ("espeak", None) => Err("does not name its espeak voice".into()),
        ("text", _) => Ok(Source::Letters),
        (other, _) => Err(format!("wants phonemes of the kind {other:?}; this hub has \"espeak\" and \"text\"")),
    }
}

/// Speakers in the order of their ids; numbers where they have no names.
fn speakers(n: u32, named: BTreeMap<String, i64>) -> Vec<(String, i64)> {
    if n <= 1 {
        return Vec::new();
    }
    let mut speakers: Vec<_> = named.into_iter().collect();
    if speakers.is_empty() {
        speakers = (0..i64::from(n)).map(|id| (id.to_string(), id)).collect();
    }
    speakers.sort_by_key(|(_, id)| *id);
    speakers
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"{"audio": {"sample_rate": 22050, "quality": "medium"}, "espeak": {"voice": "de"},
        "inference": {"noise_scale": 0.5, "length_scale": 1.1, "noise_w": 0.3}, "phoneme_map": {"a": ["b", "c"]},
        "phoneme_id_map": {"_": [0], "^": [1], "$": [2], "a": [3, 4]}, "num_symbols": 256, "num_speakers": 1,
        "speaker_id_map": {}, "language": {"code": "de_DE"}, "piper_version": "1.0.0"}"#;

    #[test]
    fn a_voices_file_is_read() {
        let voice = VoiceFile::parse(SMALL).expect("right");
        assert_eq!((voice.rate.hz(), voice.language.as_str()), (22_050, "de-DE"));
        assert_eq!(voice.scales, Scales { noise: 0.5, length: 1.1, width: 0.3 });
        assert_eq!(voice.source, Source::Espeak("de".into()));
        assert_eq!((&voice.ids[&'a'], &voice.replaced[&'a']), (&vec![3, 4], &vec!['b', 'c']));
        assert_eq!(voice.speakers, []);
    }

    #[test]
    fn speakers_stand_in_the_order_of_their_ids() {
        let with = |speakers: &str| {
            let text = SMALL.replace("\"num_speakers\": 1,\n        \"speaker_id_map\": {}", speakers);
            VoiceFile::parse(&text).expect("right").speakers
        };
        assert_eq!(
            with(r#""num_speakers": 2, "speaker_id_map": {"a": 1, "b": 0}"#),
            [("b".into(), 0), ("a".into(), 1)]
        );
        assert_eq!(with(r#""num_speakers": 2, "speaker_id_map": {}"#), [("0".into(), 0), ("1".into(), 1)]);
    }

    #[test]
    fn a_wrong_file_is_named_with_what_is_wrong() {
        let check = |from: &str, to: &str, expect: &str| {
            let text = SMALL.replace(from, to);
            assert_ne!(text, SMALL);
            let said = VoiceFile::parse(&text).expect_err("wrong");
            assert!(said.contains(expect), "{said}");
        };
        check("{\"audio\"", "[\"audio\"", "is no Piper voice's description");
        check("22050", "0", "no rate of speech");
        check("\"$\": [2], ", "", "no id for '$'");
        check("\"espeak\": {\"voice\": \"de\"},", "", "does not name its espeak voice");
        check("\"phoneme_map\"", "\"phoneme_type\": \"pinyin\", \"phoneme_map\"", "\"pinyin\"");
        check("1.1", "0", "scales");
    }
}
