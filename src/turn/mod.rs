//! Turn-taking: speech probabilities in, edges out.
//!
//! Session ingress feeds [`TurnDetector`] one probability a window and hands its [`Edge`]s to the dialog. Time here is
//! sample time at 16 kHz; no clock is read. A detector never sees audio and never decides what an edge means.

mod config;
mod detector;

pub use config::TurnConfig;
pub use detector::{Edge, Thresholds, TurnDetector};
