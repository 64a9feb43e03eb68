//! From what a model writes to what a voice says.
//!
//! [`Chunker`] cuts streamed text into chunks a voice can begin with early; [`normalize`] turns each into words.
//! Sessions feed it model deltas, the speech REST endpoint whole texts. It holds no clock, does no IO and knows no
//! voice; what one engine cannot read (flite: accents) is that engine's affair.

mod boundary;
mod chunker;
mod figures;
mod markup;
mod names;
pub mod normalize;
mod tables;
pub mod words;

pub use chunker::{Chunk, Chunker};
pub use normalize::Language;
