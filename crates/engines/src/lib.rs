//! The engines: everything that implements a port of `antiphon-engine-api` with a library, a model or a server behind it.
//!
//! The root package's assembly makes them from the configuration, by the [`table`]. Each engine is behind a feature of its own name. An
//! engine keeps no conversation, never decides when a turn is over, and never logs audio, transcripts or keys.

#[cfg(feature = "onnx")]
mod contract;
pub mod fallback;
pub mod llm;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(feature = "remote")]
pub mod remote;
pub mod secret;
pub mod speaker;
pub mod stt;
pub mod table;
#[cfg(test)]
mod testing;
pub mod tts;
pub mod turn;
pub mod vad;
