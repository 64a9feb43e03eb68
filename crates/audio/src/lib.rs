//! Audio mechanisms: codecs, sound files in and out, resampling, reordering, pre-roll, playhead and pacing, pitch, noise reduction, WAV, and the guard against the hub's own echo.
//!
//! `session` calls them from its ingress and egress; `cli` and the speech endpoints use [`wav`] and [`Resampler`]. Everything
//! here is plain state: no clock (time is an argument), no IO, no task, no lock. Nothing here decides anything about turns.

pub mod codec;
pub mod decode;
mod denoise;
pub mod echo;
pub mod encode;
mod jitter;
pub mod mel;
mod pacer;
mod pitch;
mod resample;
mod ring;
pub mod wav;

pub use denoise::{Denoiser, NoiseReduction};
pub use echo::{EchoGuard, EchoVerdict};
pub use jitter::{Frame, Jitter, Slot};
pub use pacer::Pacer;
pub use pitch::{Pitch, Tone};
pub use resample::{Resampler, convert};
pub use ring::PreRoll;
