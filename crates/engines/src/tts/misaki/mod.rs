//! English text to phonemes in Kokoro's alphabet, by misaki's dictionaries: what Kokoro and hibari were trained on.
//!
//! [`Dictionaries`] are read once from files that hibari's package brings; each replica has a [`Reader`] of them. The families
//! `kokoro` and `hibari` call it; it knows nothing of tokens and sound. American English only.

mod files;
mod lexicon;
mod reader;
mod sentences;
mod tagger;
mod tokens;
mod unknown;

#[cfg(test)]
pub(super) use files::{GOLD, UNKNOWN};
pub(super) use files::{are_in, json};
pub(super) use reader::{Dictionaries, Reader};
