//! Language models behind a server.

mod config;
#[cfg(feature = "openai")]
pub mod openai;

pub use config::LlmConfig;
