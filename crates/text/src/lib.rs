//! Converts the text a language model writes into text that a TTS engine speaks.
//!
//! [`Chunker`] splits streamed text into chunks, so that synthesis starts before the response is complete;
//! [`normalize`] converts each chunk to words. `session` passes it the model's deltas, and the speech REST endpoint
//! passes whole texts. It never reads a clock, never performs IO and has no engine-specific rules: text that one engine
//! cannot read (accents in flite) is handled by that engine.

mod boundary;
mod chunker;
mod dates;
mod figures;
mod markup;
mod names;
pub mod normalize;
pub mod number_words;
mod roman;
pub mod scoring;
mod sentences;
mod states;
mod tables;
mod telephone;
mod titles;
pub mod words;

pub use chunker::{Chunk, Chunker};
pub use normalize::Language;
pub use sentences::dot_ends_sentence;
