//! Two clocks: [`Samples`] counts audio at a known rate, [`Timestamp`] is wall time since the start of the session.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A sampling rate in hertz. Serialized as its number; zero is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "u32", try_from = "u32")]
pub struct SampleRate(u32);

impl SampleRate {
    /// Telephony: G.711.
    pub const HZ_8000: Self = Self(8_000);
    /// Input rate of VAD and STT engines; the rate of turn time.
    pub const HZ_16000: Self = Self(16_000);
    /// PCM16 on the wire, in both directions.
    pub const HZ_24000: Self = Self(24_000);
    /// Opus in browsers.
    pub const HZ_48000: Self = Self(48_000);

    /// A rate in hertz. Panics on zero.
    pub const fn new(hz: u32) -> Self {
        assert!(hz > 0, "a sampling rate is positive");
        Self(hz)
    }

    /// The rate in hertz.
    pub const fn hz(self) -> u32 {
        self.0
    }

    /// Number of samples in `duration` at this rate, rounded down.
    pub fn samples_in(self, duration: Duration) -> Samples {
        Samples((duration.as_nanos() * u128::from(self.0) / 1_000_000_000) as u64)
    }
}

impl From<SampleRate> for u32 {
    fn from(rate: SampleRate) -> Self {
        rate.0
    }
}

impl TryFrom<u32> for SampleRate {
    type Error = &'static str;

    fn try_from(hz: u32) -> Result<Self, Self::Error> {
        if hz > 0 { Ok(Self(hz)) } else { Err("a sampling rate is positive") }
    }
}

impl fmt::Display for SampleRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Hz", self.0)
    }
}

/// A count of samples, or an offset in samples from the start of a stream. The rate is known from the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Samples(pub u64);

impl Samples {
    /// Zero samples.
    pub const ZERO: Self = Self(0);

    /// Playing time at `rate`.
    pub fn duration(self, rate: SampleRate) -> Duration {
        Duration::from_nanos((u128::from(self.0) * 1_000_000_000 / u128::from(rate.hz())) as u64)
    }

    /// Milliseconds at `rate`, rounded down.
    pub fn as_ms(self, rate: SampleRate) -> u64 {
        self.0 * 1_000 / u64::from(rate.hz())
    }

    /// Milliseconds at `rate`, rounded up, so that a length reported to a client is never shorter than the audio.
    pub fn as_ms_ceil(self, rate: SampleRate) -> u64 {
        (self.0 * 1_000).div_ceil(u64::from(rate.hz()))
    }

    /// Number of samples in `ms` milliseconds at `rate`, rounded down.
    pub fn from_ms(ms: u64, rate: SampleRate) -> Self {
        Self(ms * u64::from(rate.hz()) / 1_000)
    }

    /// `self - other`, or zero.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Samples {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Samples {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Samples {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

/// Wall time since the start of the session. Used for deadlines and timelines; turn-taking uses [`Samples`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub struct Timestamp(Duration);

impl Timestamp {
    /// The start of the session.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// The moment `since_start` after the start of the session.
    pub const fn new(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// The moment `ms` milliseconds after the start of the session.
    pub const fn from_ms(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// Time since the start of the session.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// The moment `by` before this one, but not before the start of the session.
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by))
    }

    /// Time elapsed since `earlier`, or zero.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// From nanoseconds, the unit of replay logs.
impl From<u64> for Timestamp {
    fn from(ns: u64) -> Self {
        Self(Duration::from_nanos(ns))
    }
}

/// To nanoseconds; `u64` lasts for five centuries.
impl From<Timestamp> for u64 {
    fn from(at: Timestamp) -> Self {
        at.0.as_nanos() as u64
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0 + by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_round_as_they_say() {
        let rate = SampleRate::HZ_24000;
        assert_eq!(Samples(25).as_ms(rate), 1);
        assert_eq!(Samples(25).as_ms_ceil(rate), 2);
        assert_eq!(Samples::from_ms(20, rate), Samples(480));
        assert_eq!(Samples(480).duration(rate), Duration::from_millis(20));
        assert_eq!(rate.samples_in(Duration::from_millis(20)), Samples(480));
    }
}
