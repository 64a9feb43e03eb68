//! One utterance at a time through the three searches. A lane drives it; `choice` says whose words are believed.

use super::choice;
use super::decoder::{Cepstra, Decoder};
use super::field::Field;
use super::library;
use super::model::Model;
use super::search::{Noise, Prior, Search};
use crate::stt::{SpeakerState, SttError, SttOptions, SttStream, Transcript};
use std::path::Path;
use std::thread;
use tokio_util::sync::CancellationToken;

/// What all decoders are told. Only the first pass runs: the second and third cost 60-180 ms at the end of speech.
/// PocketSphinx's own silence removal is off, because the hub cuts utterances itself.
const SETTINGS: [(&str, &str); 3] = [("-fwdflat", "no"), ("-bestpath", "no"), ("-remove_silence", "no")];

/// A bound on the states searched at a time halves the full search's work and costs it no word (WER 0.500 on people
/// reading, 0.503 without).
const FULL_SETTINGS: (&str, &str) = ("-maxhmmpf", "3000");

/// The weight of the field's language model: its sentences are surer than general English, for which 6.5 is made
/// (WER 0.062, 0.076 with that).
const FIELD_SETTINGS: (&str, &str) = ("-lw", "8");

/// The grammar has its alternate pronunciations already (`automaton`).
const EXACT_SETTINGS: (&str, &str) = ("-fsgusealtpron", "no");

/// The cepstral means that utterances start from while nothing is known of the speaker, measured: people reading for the
/// full search, halfway between people and synthetic voices for the field, which adds noise. 1 to 1.5 s of speech outweigh
/// them; what a session's last utterance left counts for 2 s.
const FULL: Prior =
    Prior { mean: [54.0, -5.0, 0.4, 4.0, 3.0, -5.0, -3.0, -9.5, -9.0, 1.0, -2.0, 1.0, -1.4], n_frames: 100 };
const FIELD: Prior =
    Prior { mean: [53.5, -4.0, 2.5, 9.0, 0.0, -2.0, -1.0, -7.5, -3.0, -1.5, 2.0, 1.2, 0.0], n_frames: 150 };
const N_FRAMES_KNOWN: u16 = 200;

/// Noise under the field's audio: of the loudest frame, and at most, in 16-bit units. It brings the word errors on
/// espeak-ng from 0.30 to 0.15 and costs flite's voices 0.01; the full search, made for people, loses by it.
const NOISE: (f32, f32) = (0.006, 40.0);

/// A replica: its decoders live as long as its lane.
pub(super) struct SphinxStream {
    full: Search,
    field: Search,
    exact: Search,
}

impl SphinxStream {
    /// Loads the decoders, on two threads. Blocks for about half a second.
    pub(super) fn new(model: &Model, field: &Field) -> Result<Self, SttError> {
        let files = field.write()?;
        let of_field = |words: (&str, &Path), own: &[(&str, &str)]| {
            let decoder = load(model, words, &files.dictionary(), own)?;
            Ok(Search::new(decoder, Some(Noise::new(NOISE.0, NOISE.1))))
        };
        let (full, field, exact) = thread::scope(|scope| {
            let full = scope.spawn(|| load(model, ("-lm", &model.language()), &model.dictionary(), &[FULL_SETTINGS]));
            let field = of_field(("-lm", &files.language()), &[FIELD_SETTINGS]);
            (full.join(), field, of_field(("-fsg", &files.exact()), &[FIELD_SETTINGS, EXACT_SETTINGS]))
        });
        let message = "PocketSphinx: a decoder could not be loaded".into();
        let full = full.map_err(|_| SttError::Engine { message, source: None })??;
        Ok(Self { full: Search::new(full, None), field: field?, exact: exact? })
    }

    fn transcript(&mut self) -> Transcript {
        choice::transcript(&self.full.words(), &self.field.words(), &self.exact.words())
    }
}

fn load(model: &Model, words: (&str, &Path), dictionary: &Path, own: &[(&str, &str)]) -> Result<Decoder, SttError> {
    let acoustic = model.acoustic();
    let paths = [("-hmm", utf8(&acoustic)?), (words.0, utf8(words.1)?), ("-dict", utf8(dictionary)?)];
    Decoder::new(library::open()?, &[&SETTINGS[..], &paths, own].concat())
}

fn utf8(path: &Path) -> Result<&str, SttError> {
    path.to_str().ok_or_else(|| SttError::Unavailable(format!("{} is not UTF-8", path.display())))
}

/// The two means, one after the other, that an utterance of this session left.
fn known(speaker: &SpeakerState) -> Option<(Prior, Prior)> {
    let SpeakerState::Means(means) = speaker else { return None };
    let (full, field) = means.split_at_checked(FULL.mean.len())?;
    let prior = |mean: &[f32]| Some(Prior { mean: Cepstra::try_from(mean).ok()?, n_frames: N_FRAMES_KNOWN });
    Some((prior(full)?, prior(field)?))
}

impl SttStream for SphinxStream {
    fn begin(&mut self, options: &SttOptions) -> Result<(), SttError> {
        let (full, field) = options.speaker.as_ref().and_then(known).unwrap_or((FULL, FIELD));
        self.full.begin(&full)?;
        self.field.begin(&field)?;
        self.exact.begin(&field)
    }

    fn push(&mut self, pcm: &[i16], _: &CancellationToken) -> Result<(), SttError> {
        self.full.push(pcm)?;
        self.field.push(pcm)?;
        self.exact.push(pcm)
    }

    fn partial(&mut self, _: &CancellationToken) -> Result<Transcript, SttError> {
        Ok(self.transcript())
    }

    fn guess(&mut self, _: &CancellationToken) -> Result<Transcript, SttError> {
        Ok(self.transcript())
    }

    fn finish(&mut self, _: &CancellationToken) -> Result<Transcript, SttError> {
        let speaker = self.learn()?;
        Ok(Transcript { speaker, ..self.transcript() })
    }

    fn learn(&mut self) -> Result<Option<SpeakerState>, SttError> {
        self.full.end()?;
        self.field.end()?;
        self.exact.end()?;
        Ok(Some(SpeakerState::Means([self.full.mean()?, self.field.mean()?].concat())))
    }
}

#[cfg(test)]
mod tests;
