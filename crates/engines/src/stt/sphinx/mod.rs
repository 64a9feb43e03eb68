//! The `sphinx` engine: PocketSphinx and its en-us model, decoding while the person speaks, nothing to download.
//!
//! The root's assembly calls [`open`]; sessions see the port it returns. Each replica of the pool searches with the full 3-gram
//! language model and, where the engine was given a vocabulary hint, with a 3-gram and a grammar of the hint's sentences, which
//! hear the same audio. These are far surer of their sentences and force everything else into them, so that the scores decide
//! which hypothesis wins (`choice`); an utterance whose options do not name the hint is searched without them. The engine never
//! decides when speech ends and keeps nothing of an utterance.

mod automaton;
mod choice;
mod decoder;
mod grammar;
mod library;
mod model;
mod ngram;
mod search;
mod stream;
mod vocabulary;
mod words;

use super::SttConfig;
use super::local::Local;
use antiphon_engine_api::stt::{SttError, VocabularyHint};
use model::Model;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use stream::SphinxStream;
use vocabulary::Vocabulary;

/// A replica that no utterance has needed for so long gives its memory back: longer than a conversation pauses.
const IDLE: Duration = Duration::from_secs(300);

/// Opens library and model and loads one replica, with the sentences of `hint` where there is one; more are loaded as utterances
/// need them, up to `config.decoders`. Blocks until the first is loaded.
///
/// [`SttError::Unavailable`] says which library or file is missing or damaged and how to get it.
pub fn open(
    config: &SttConfig,
    hint: Option<Arc<VocabularyHint>>,
) -> Result<Local<impl super::SttStream + use<>>, SttError> {
    library::open()?;
    let model = Model::at(&config.model_dir);
    // Both read much: at the same time. A damaged model is the more useful error.
    let (checked, vocabulary) = thread::scope(|scope| {
        let vocabulary = scope.spawn(|| hint.map(|hint| Vocabulary::make(&model, hint)).transpose());
        (model.check(), vocabulary.join())
    });
    checked?;
    let message = "the models of the vocabulary could not be made".into();
    let vocabulary = vocabulary.map_err(|_| SttError::Engine { message, source: None })??.map(Arc::new);
    Local::start_elastic("sphinx", config.decoders, IDLE, move |_| SphinxStream::new(&model, vocabulary.clone()))
}
