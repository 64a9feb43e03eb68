//! Turn-taking: speech probabilities and hints in, edges out.
//!
//! Session ingress feeds [`TurnTaker`] one window after the other and hands its [`Edge`]s to the dialog. It consists of
//! the [`TurnDetector`] (hysteresis, hang-over, `background`) and, where the wait adapts, of `endpointing`, which weighs how
//! whole the words are (`completeness`; `wording` and `dictation`, its rules), how the voice fell (`prosody`), how this
//! speaker pauses (`pauses`) and what a turn model said of the audio. Time here is sample time at 16 kHz; no clock is
//! read. Nothing here sees audio, and nothing decides what an edge means.

mod background;
mod completeness;
mod config;
mod detector;
mod dictation;
mod endpointing;
mod pauses;
mod prosody;
mod taker;
mod wording;

pub use config::TurnConfig;
pub use detector::{Edge, Thresholds, TurnDetector};
pub use endpointing::{Decision, Eagerness, Hints, MODEL, ModelWeight};
pub use prosody::Prosody;
pub use taker::{Ending, TurnTaker, WindowFeatures};
pub use wording::Wording;
