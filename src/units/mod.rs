//! The vocabulary every floor shares: audio time, wall time, rates, identifiers and PCM.
//!
//! Used by everything; imports nothing of the crate. It never does IO and never reads a clock.

mod ids;
mod pcm;
mod time;

pub use ids::{ConnectionId, IdMint, ItemId, KeyId, ResponseId, SessionId, TurnId};
pub use pcm::{Pcm, to_sample};
pub use time::{SampleRate, Samples, Timestamp};
