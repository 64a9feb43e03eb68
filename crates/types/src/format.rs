//! Stateless audio formats of the wire protocol.

use crate::SampleRate;
use serde::{Deserialize, Serialize};

/// A stateless audio format of the wire protocol, mono.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// 24 kHz, signed 16-bit samples, little-endian.
    Pcm16,
    /// ITU-T G.711 u-law at 8 kHz.
    Ulaw,
    /// ITU-T G.711 A-law at 8 kHz.
    Alaw,
}

impl Format {
    /// Sampling rate on the wire.
    pub const fn rate(self) -> SampleRate {
        match self {
            Self::Pcm16 => SampleRate::HZ_24000,
            Self::Ulaw | Self::Alaw => SampleRate::HZ_8000,
        }
    }

    /// Bytes per sample on the wire.
    pub const fn bytes_per_sample(self) -> usize {
        match self {
            Self::Pcm16 => 2,
            Self::Ulaw | Self::Alaw => 1,
        }
    }
}
