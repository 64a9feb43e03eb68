//! One utterance at a time through the two searches, and the choice between them. A lane drives it.

use super::decoder::{Decoder, Hypothesis, N_CEPSTRA};
use super::library::{self, Api};
use super::model::Model;
use super::words;
use crate::stt::{SpeakerState, SttError, SttOptions, SttStream, Transcript};
use tokio_util::sync::CancellationToken;

/// What both decoders are told. Only the first pass runs: the second and third cost 60-180 ms at the end of speech.
/// PocketSphinx's own silence removal is off, because the hub cuts utterances itself.
const COMMON: [(&str, &str); 3] = [("-fwdflat", "no"), ("-bestpath", "no"), ("-remove_silence", "no")];

/// The cepstral mean an utterance starts from while nothing is known of its speaker: the model's own (`feat.params`).
const MEAN: [f32; N_CEPSTRA] = [41.0, -5.29, -0.12, 5.09, 2.48, -4.07, -1.37, -1.78, -5.08, -2.05, -6.45, -1.42, 1.17];

/// A replica: its decoders live as long as its lane.
pub(super) struct SphinxStream {
    full: Decoder,
}

impl SphinxStream {
    /// Loads the decoders. Blocks for about a second.
    pub(super) fn new(model: &Model) -> Result<Self, SttError> {
        let api = library::open()?;
        Ok(Self { full: full_search(api, model)? })
    }

    fn transcript(&mut self) -> Transcript {
        let Hypothesis { words, .. } = self.full.hypothesis();
        Transcript { text: words::text(&words), confidence: None, speaker: None }
    }
}

fn full_search(api: &'static Api, model: &Model) -> Result<Decoder, SttError> {
    let (acoustic, language, dictionary) = (model.acoustic(), model.language(), model.dictionary());
    let mut settings = COMMON.to_vec();
    let extra = std::env::var("PSX").unwrap_or_default();
    settings.retain(|(k, _)| !extra.split_whitespace().any(|w| w == *k));
    let ex: Vec<&str> = extra.split_whitespace().collect();
    for c in ex.chunks(2) {
        settings.push((c[0], c[1]));
    }
    settings.extend([("-hmm", path(&acoustic)?), ("-lm", path(&language)?), ("-dict", path(&dictionary)?)]);
    Decoder::new(api, &settings)
}

fn path(path: &std::path::Path) -> Result<&str, SttError> {
    path.to_str().ok_or_else(|| SttError::Unavailable(format!("{} is not UTF-8", path.display())))
}

impl SttStream for SphinxStream {
    fn begin(&mut self, options: &SttOptions) -> Result<(), SttError> {
        let known = options.speaker.as_ref().and_then(|speaker| speaker.0.as_slice().try_into().ok());
        self.full.begin(&known.unwrap_or(MEAN))
    }

    fn push(&mut self, pcm: &[i16]) -> Result<(), SttError> {
        self.full.push(pcm)
    }

    fn partial(&mut self, _: &CancellationToken) -> Result<Transcript, SttError> {
        Ok(self.transcript())
    }

    fn guess(&mut self, _: &CancellationToken) -> Result<Transcript, SttError> {
        Ok(self.transcript())
    }

    fn finish(&mut self, _: &CancellationToken) -> Result<Transcript, SttError> {
        self.full.end()?;
        let speaker = Some(SpeakerState(self.full.mean()?.to_vec()));
        Ok(Transcript { speaker, ..self.transcript() })
    }
}
