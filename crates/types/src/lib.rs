//! Types shared by every crate: audio time, wall time, sampling rates, identifiers, PCM, wire formats, playheads,
//! opaque JSON, meters of compute, the brownout level, the format of files encrypted at rest, and the messages exchanged
//! with language models and remote tools; the reading of an operator's small files ([`small_file`]); the
//! definition of settings ([`setting`]).
//!
//! Most crates of the workspace use it; it depends on no other. Apart from [`small_file`] it opens no file, and it
//! opens no socket, never reads a clock and never needs a runtime.

mod brownout;
pub mod chat;
mod format;
mod ids;
mod json;
mod language;
pub mod mcp;
mod meter;
mod pcm;
mod playhead;
mod retry;
pub mod sealed;
pub mod setting;
pub mod small_file;
mod time;

pub use brownout::{Brownout, BrownoutLevel};
pub use format::Format;
pub use ids::{ConnectionId, IdMint, ItemId, KeyId, ResponseId, SessionId, TurnId};
pub use json::Json;
pub use language::{language_code, language_name, primary_language};
pub use meter::{Compute, Meter, Processor, Requester, RunsOn};
pub use pcm::{Pcm, to_sample};
pub use playhead::Playhead;
pub use retry::{Backoff, RetryPolicy};
pub use time::{SampleRate, Samples, Timestamp};
