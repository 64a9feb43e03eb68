//! Wire formats of audio that have no state.

use crate::SampleRate;
use serde::{Deserialize, Serialize};

/// A wire format without state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// 24 kHz, 16 bits a sample, signed, little endian.
    Pcm16,
    /// ITU-T G.711 u-law at 8 kHz.
    Ulaw,
    /// ITU-T G.711 A-law at 8 kHz.
    Alaw,
}

impl Format {
    /// Samples a second on the wire.
    pub const fn rate(self) -> SampleRate {
        match self {
            Self::Pcm16 => SampleRate::HZ_24000,
            Self::Ulaw | Self::Alaw => SampleRate::HZ_8000,
        }
    }

    /// Bytes a sample takes on the wire.
    pub const fn bytes_per_sample(self) -> usize {
        match self {
            Self::Pcm16 => 2,
            Self::Ulaw | Self::Alaw => 1,
        }
    }
}
