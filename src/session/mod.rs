//! (in work)

mod config;
mod engines;

pub use config::SessionConfig;
pub use engines::Engines;
