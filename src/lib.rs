//! Antiphon: a real-time WebSocket voice hub, assembled from the libraries in `crates/`.
//!
//! The binary `antiphon`, the benchmarks and the scenarios in `tests/` use it. What a conversation does is decided in
//! `antiphon-dialog` and performed in `antiphon-session`; here are the server around it, the configuration, the assembly of
//! engines, replay, the load monitor and the command line. `src/ARCHITECTURE.md` is the bird's-eye view.

pub mod assembly;
pub mod cli;
pub mod config;
pub mod load;
pub mod replay;
pub mod server;
