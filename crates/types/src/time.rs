//! Two clocks: [`Samples`] counts audio at a known rate, [`Timestamp`] is wall time since the session began.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A sampling rate in hertz.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleRate(u32);

impl SampleRate {
    /// Telephony: G.711.
    pub const HZ_8000: Self = Self(8_000);
    /// What VAD and STT engines take; the rate of turn time.
    pub const HZ_16000: Self = Self(16_000);
    /// PCM16 on the wire, both ways.
    pub const HZ_24000: Self = Self(24_000);
    /// Opus inside browsers.
    pub const HZ_48000: Self = Self(48_000);

    /// A rate in hertz. Panics on zero: a rate of zero has no time.
    pub const fn new(hz: u32) -> Self {
        assert!(hz > 0, "a sampling rate is positive");
        Self(hz)
    }

    /// Hertz.
    pub const fn hz(self) -> u32 {
        self.0
    }

    /// How many samples `duration` holds at this rate, rounded down.
    pub fn samples_in(self, duration: Duration) -> Samples {
        Samples((duration.as_nanos() * u128::from(self.0) / 1_000_000_000) as u64)
    }
}

impl fmt::Display for SampleRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Hz", self.0)
    }
}

/// A count of samples, or an offset in samples from the start of a stream. The rate is known from where it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Samples(pub u64);

impl Samples {
    /// No sample.
    pub const ZERO: Self = Self(0);

    /// How long this many samples last at `rate`.
    pub fn duration(self, rate: SampleRate) -> Duration {
        Duration::from_nanos((u128::from(self.0) * 1_000_000_000 / u128::from(rate.hz())) as u64)
    }

    /// Whole milliseconds at `rate`, rounded down.
    pub fn as_ms(self, rate: SampleRate) -> u64 {
        self.0 * 1_000 / u64::from(rate.hz())
    }

    /// Whole milliseconds at `rate`, rounded up: a length told to a client is never shorter than the audio.
    pub fn as_ms_ceil(self, rate: SampleRate) -> u64 {
        (self.0 * 1_000).div_ceil(u64::from(rate.hz()))
    }

    /// The samples of `ms` milliseconds at `rate`, rounded down.
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

/// Wall time since the session began. Serves deadlines and timelines; turn-taking runs on [`Samples`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub struct Timestamp(Duration);

impl Timestamp {
    /// The session's beginning.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// The moment `since_start` after the session began.
    pub const fn new(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// The moment `ms` milliseconds after the session began.
    pub const fn from_ms(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// Time since the session began.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// The moment so long before this one, or the session's beginning.
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by))
    }

    /// How long after `earlier` this is, or zero.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// From nanoseconds, as recordings hold it.
impl From<u64> for Timestamp {
    fn from(ns: u64) -> Self {
        Self(Duration::from_nanos(ns))
    }
}

/// In nanoseconds, which last for five centuries.
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
