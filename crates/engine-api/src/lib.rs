//! The engine ports: traits for voice activity detection, turn models, speaker models, speech to text, language models,
//! text to speech and remote tools, with their requests, options and errors.
//!
//! `session` calls the ports; `engines` and `assistant` implement them; the root package assembles an [`Engines`]. The
//! feature `fakes` adds scripted engines for tests and benchmarks. This crate never loads a model, opens a connection
//! or spawns a task.

mod engines;
#[cfg(feature = "fakes")]
pub mod fakes;
mod fault;
mod hop;
pub mod llm;
pub mod mcp;
pub mod speaker;
pub mod stt;
pub mod tts;
pub mod turn;
mod upstream;
pub mod vad;

pub use engines::{EngineNames, Engines};
pub use fault::{ENGINE_UNAVAILABLE, Fault};
pub use hop::{Hop, HopReport};
pub use upstream::{BreakerState, FallbackCounts, Role, Upstream, Upstreams};

/// Requests that an engine without a bound of its own serves at the same time. A remote engine's server admits by
/// itself, and says nothing of its size; a machine that offers such an engine to others has to name a number. That
/// number of requests keeps any one server busy, and their connections and buffers are no load for the hub.
pub const REMOTE_CONCURRENCY: usize = 64;
