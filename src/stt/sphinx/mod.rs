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
use stream::SphinxStream;

/// Opens library and model and loads `config.decoders` replicas. Blocks until all are loaded.
///
/// [`SttError::Unavailable`] says which library or file is missing or damaged and how to get it.
pub fn open(config: &SttConfig) -> Result<Local<impl super::SttStream + use<>>, SttError> {
    library::open()?;
    let model = Model::check(&config.model_dir)?;
    let field = Field::make(&model)?;
    Local::start("sphinx", config.decoders, move || SphinxStream::new(&model, &field))
}
