//! One utterance at a time through the searches. An engine pool drives it; `choice` says which hypothesis wins.

use super::choice;
use super::decoder::{Cepstra, Decoder};
use super::library;
use super::model::Model;
use super::search::{Noise, Prior, Search};
use super::vocabulary::Vocabulary;
use super::words;
use crate::stt::SttStream;
use antiphon_engine_api::stt::{SpeakerState, SttError, SttOptions, Transcript};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use tokio_util::sync::CancellationToken;

/// The settings of all decoders. Only the first pass runs: the second and third cost 60-180 ms at the end of speech.
/// PocketSphinx's own silence removal is off, because the hub cuts utterances itself.
const SETTINGS: [(&str, &str); 3] = [("-fwdflat", "no"), ("-bestpath", "no"), ("-remove_silence", "no")];

/// A bound on the states searched at a time halves the full search's work and costs it no word (WER 0.500 on people
/// reading, 0.503 without).
const FULL_SETTINGS: (&str, &str) = ("-maxhmmpf", "3000");

/// The weight of the vocabulary's language model: its sentences are surer than general English, for which 6.5 is made
/// (WER 0.062, 0.076 with that).
const VOCABULARY_SETTINGS: (&str, &str) = ("-lw", "8");

/// The grammar has its alternate pronunciations already (`automaton`).
const EXACT_SETTINGS: (&str, &str) = ("-fsgusealtpron", "no");

/// The cepstral means that utterances start from while nothing is known of the speaker, measured: people reading for the
/// full search, halfway between people and synthetic voices for the vocabulary, which adds noise. 1 to 1.5 s of speech outweigh
/// them; what a session's last utterance left counts for 2 s.
const FULL: Prior =
    Prior { mean: [54.0, -5.0, 0.4, 4.0, 3.0, -5.0, -3.0, -9.5, -9.0, 1.0, -2.0, 1.0, -1.4], n_frames: 100 };
const VOCABULARY: Prior =
    Prior { mean: [53.5, -4.0, 2.5, 9.0, 0.0, -2.0, -1.0, -7.5, -3.0, -1.5, 2.0, 1.2, 0.0], n_frames: 150 };
const N_FRAMES_KNOWN: u16 = 200;

/// Noise under the vocabulary's audio: of the loudest frame, and at most, in 16-bit units. It brings the word errors on
/// espeak-ng from 0.30 to 0.15 and costs flite's voices 0.01; the full search, made for people, loses by it.
const NOISE: (f32, f32) = (0.006, 40.0);

/// A replica: its decoders live as long as its thread.
pub(super) struct SphinxStream {
    full: Search,
    of_vocabulary: Option<VocabularySearches>,
    /// Whether the utterance is searched with the vocabulary's models, too.
    uses_vocabulary: bool,
}

/// The two searches for a hint's sentences.
struct VocabularySearches {
    vocabulary: Arc<Vocabulary>,
    ngram: Search,
    grammar: Search,
}

impl SphinxStream {
    /// Loads the decoders, on two threads. Blocks for about half a second.
    pub(super) fn new(model: &Model, vocabulary: Option<Arc<Vocabulary>>) -> Result<Self, SttError> {
        let (full, of_vocabulary) = thread::scope(|scope| {
            let full = scope.spawn(|| load(model, ("-lm", &model.language()), &model.dictionary(), &[FULL_SETTINGS]));
            let of_vocabulary = vocabulary.map(|vocabulary| VocabularySearches::load(model, vocabulary)).transpose();
            (full.join(), of_vocabulary)
        });
        let message = "PocketSphinx: a decoder could not be loaded".into();
        let full = full.map_err(|_| SttError::Engine { message, source: None })??;
        Ok(Self { full: Search::new(full, None), of_vocabulary: of_vocabulary?, uses_vocabulary: false })
    }

    fn searches(&mut self) -> impl Iterator<Item = &mut Search> {
        let of_vocabulary = self.of_vocabulary.as_mut().filter(|_| self.uses_vocabulary);
        [&mut self.full]
            .into_iter()
            .chain(of_vocabulary.into_iter().flat_map(|both| [&mut both.ngram, &mut both.grammar]))
    }

    fn transcript(&mut self) -> Transcript {
        let full = self.full.words();
        match self.of_vocabulary.as_mut().filter(|_| self.uses_vocabulary) {
            Some(both) => choice::transcript(&full, &both.ngram.words(), &both.grammar.words()),
            None => Transcript { text: words::text(&full), ..Transcript::default() },
        }
    }
}

impl VocabularySearches {
    fn load(model: &Model, vocabulary: Arc<Vocabulary>) -> Result<Self, SttError> {
        let files = vocabulary.write()?;
        let search = |words: (&str, &Path), own: &[(&str, &str)]| {
            let decoder = load(model, words, &files.dictionary(), own)?;
            Ok(Search::new(decoder, Some(Noise::new(NOISE.0, NOISE.1))))
        };
        let ngram = search(("-lm", &files.language()), &[VOCABULARY_SETTINGS])?;
        let grammar = search(("-fsg", &files.exact()), &[VOCABULARY_SETTINGS, EXACT_SETTINGS])?;
        Ok(Self { vocabulary, ngram, grammar })
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

/// The two means, one after the other, that an utterance of this session left; of the vocabulary's searches, where they ran.
fn known(speaker: &SpeakerState) -> Option<(Prior, Option<Prior>)> {
    let SpeakerState::Means(means) = speaker else { return None };
    let (full, of_vocabulary) = means.split_at_checked(FULL.mean.len())?;
    let prior = |mean: &[f32]| Some(Prior { mean: Cepstra::try_from(mean).ok()?, n_frames: N_FRAMES_KNOWN });
    Some((prior(full)?, prior(of_vocabulary)))
}

impl SttStream for SphinxStream {
    fn begin(&mut self, options: &SttOptions) -> Result<(), SttError> {
        let known = options.speaker.as_ref().and_then(known);
        self.full.begin(&known.map_or(FULL, |(full, _)| full))?;
        let both = self.of_vocabulary.as_mut().zip(options.vocabulary.as_ref());
        let both = both.filter(|(both, hint)| both.vocabulary.is_of(hint));
        self.uses_vocabulary = both.is_some();
        let Some((both, _)) = both else { return Ok(()) };
        let prior = known.and_then(|(_, of_vocabulary)| of_vocabulary).unwrap_or(VOCABULARY);
        both.ngram.begin(&prior)?;
        both.grammar.begin(&prior)
    }

    fn push(&mut self, pcm: &[i16], _: &CancellationToken) -> Result<(), SttError> {
        self.searches().try_for_each(|search| search.push(pcm))
    }

    fn partial(&mut self, _: &CancellationToken) -> Result<Transcript, SttError> {
        Ok(self.transcript())
    }

    fn provisional(&mut self, _: &CancellationToken) -> Result<Transcript, SttError> {
        Ok(self.transcript())
    }

    fn finish(&mut self, _: &CancellationToken) -> Result<Transcript, SttError> {
        let speaker = self.learn()?;
        Ok(Transcript { speaker, ..self.transcript() })
    }

    fn learn(&mut self) -> Result<Option<SpeakerState>, SttError> {
        self.searches().try_for_each(Search::end)?;
        // Both of the vocabulary's hear the same: one mean stands for them.
        let means = self.searches().take(2).map(Search::mean).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(SpeakerState::Means(means.concat())))
    }
}

#[cfg(test)]
mod tests;
