//! Voice activity detectors: earshot, and the cascade of earshot and Silero.
//!
//! A window costs microseconds, so they run inline in the session (Silero: 0.1 ms where there may be speech, and the wait
//! for a session of its model where all are taken).

mod config;
mod earshot;
mod noise_floor;
#[cfg(feature = "silero")]
mod silero;

pub use config::VadConfig;
pub use earshot::Earshot;
#[cfg(feature = "silero")]
pub use silero::Silero;
