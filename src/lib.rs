//! Antiphon: a real-time WebSocket voice hub.
//!
//! The modules stand in floor order: a module imports only from the floors below its own.
//! `tests/layering.rs` holds that. `src/ARCHITECTURE.md` is the bird's-eye view.

// Floor 0, vocabulary.
pub mod telemetry;
pub mod units;

// Floor 1, mechanisms: they know only floor 0.
pub mod audio;
pub mod lane;
pub mod onnx;
pub mod remote;
pub mod text;
pub mod wire;

// Floor 2, stages: one port each, and its engines.
pub mod llm;
pub mod mcp;
pub mod stt;
pub mod tts;
pub mod turn;
pub mod vad;

// Floor 3, the reducer.
pub mod dialog;

// Floor 4, one conversation.
pub mod session;

// Floor 5, what a server is made of.
pub mod client;
pub mod config;
pub mod engines;
pub mod registry;

// Floor 6, what is reached from outside.
pub mod bench;
pub mod replay;
pub mod server;

// Floor 7, the command line.
pub mod cli;
