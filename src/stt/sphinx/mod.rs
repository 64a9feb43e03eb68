//! The `sphinx` engine: PocketSphinx and its en-us model, decoding while the person speaks, nothing to download.
//!
//! `engines` calls [`open`]; sessions see the port it returns. Each replica of the pool holds three decoders that hear
//! the same audio: the full 3-gram language model, and a 3-gram and a grammar of what the offline assistant understands.
//! These are far surer in their field and force everything else into it, so that the scores decide which one is
//! believed. The engine never decides when speech ends and keeps nothing of an utterance.

mod automaton;
mod choice;
mod decoder;
mod field;
mod grammar;
mod library;
mod model;
mod ngram;
mod search;
mod stream;
mod words;

use super::local::Local;
use super::{SttConfig, SttError};
use field::Field;
use model::Model;
use std::thread;
use std::time::Duration;
use stream::SphinxStream;

/// A replica that no utterance has needed for so long gives its memory back: longer than a conversation pauses.
const IDLE: Duration = Duration::from_secs(300);

/// Opens library and model and loads one replica; more are loaded as utterances need them, up to `config.decoders`. Blocks
/// until the first is loaded.
///
/// [`SttError::Unavailable`] says which library or file is missing or damaged and how to get it.
pub fn open(config: &SttConfig) -> Result<Local<impl super::SttStream + use<>>, SttError> {
    library::open()?;
    let model = Model::at(&config.model_dir);
    // Both read much: at the same time. A damaged model is the better thing to say.
    let (checked, field) = thread::scope(|scope| {
        let field = scope.spawn(|| Field::make(&model));
        (model.check(), field.join())
    });
    checked?;
    let message = "the vocabulary of the offline assistant could not be made".into();
    let field = field.map_err(|_| SttError::Engine { message, source: None })??;
    Local::start_elastic("sphinx", config.decoders, IDLE, move || SphinxStream::new(&model, &field))
}
