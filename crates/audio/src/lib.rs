//! Audio processing: codecs, audio file decoding and encoding, resampling, reordering, pre-roll, pacing, pitch, changes of
//! length, mel spectrograms, noise reduction, WAV, and the echo guard.
//!
//! `session` uses it in ingress and egress; `engines`, the speech endpoints and the command line use its files,
//! resampler and spectrograms. Everything is plain state: it never reads a clock (time is an argument), never performs
//! IO, spawns no task, holds no lock and makes no turn decisions.

pub mod codec;
mod conceal;
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
mod stretch;
pub mod wav;

pub use conceal::Concealer;
pub use denoise::{Denoiser, NoiseReduction};
pub use echo::{EchoGuard, EchoVerdict};
pub use jitter::{Frame, Jitter, Slot};
pub use pacer::Pacer;
pub use pitch::{Pitch, Tone};
pub use resample::{Resampler, convert};
pub use ring::PreRoll;
pub use stretch::Stretcher;
