//! The vocabulary that every crate shares: audio time, wall time, rates, identifiers, PCM, wire formats, playheads, JSON that
//! is passed on, and what is said to a language model and to remote tools.
//!
//! Every crate uses it; it depends on none of ours. It never does IO, never reads a clock and has no runtime.

pub mod chat;
mod format;
mod ids;
mod json;
pub mod mcp;
mod pcm;
mod playhead;
mod retry;
mod time;

pub use format::Format;
pub use ids::{ConnectionId, IdMint, ItemId, KeyId, ResponseId, SessionId, TurnId};
pub use json::Json;
pub use pcm::{Pcm, to_sample};
pub use playhead::Playhead;
pub use retry::{Backoff, RetryPolicy};
pub use time::{SampleRate, Samples, Timestamp};
