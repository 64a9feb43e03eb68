//! Types shared by every crate: audio time, wall time, sampling rates, identifiers, PCM, wire formats, playheads,
//! opaque JSON, and the messages exchanged with language models and remote tools.
//!
//! Most crates of the workspace use it; it depends on none of them. It never performs IO, never reads a clock and
//! never needs a runtime.

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
