//! Language models behind a server.

mod config;
#[cfg(feature = "remote")]
pub mod discovery;
#[cfg(feature = "openai")]
pub mod openai;

pub use config::LlmConfig;
