//! (in work)

mod config;

pub use config::TurnConfig;
