//! The port by which a session asks for what its client may use, and reports what it used.
//!
//! `server` implements it with the limits of the session, its API key and its client's address. The actor calls it at most ten
//! times a second for audio, and once or twice a response. It decides when its client is slowed down or refused; the server
//! decides how much that client may use.

use antiphon_dialog::ResponseUsage;
use antiphon_protocol::RateLimit;
use antiphon_types::{Compute, Requester, SampleRate, Samples};
use std::time::Duration;

/// What limits one session. Every method returns at once; none takes a lock that other sessions hold for long.
pub trait SessionLimits: Send + Sync {
    /// Audio has arrived, in sample time at 16 kHz. The result is the time for which the client is to send no more; zero: it is
    /// within its limit.
    fn audio_received(&self, audio: Samples) -> Duration;
    /// Whether another response may begin.
    ///
    /// # Errors
    /// The limit that is used up.
    fn may_respond(&self) -> Result<(), LimitReached>;
    /// As [`Self::may_respond`], and counts the response where it may begin.
    ///
    /// # Errors
    /// The limit that is used up.
    fn begin_response(&self) -> Result<(), LimitReached> {
        self.may_respond()?;
        self.response_begun();
        Ok(())
    }
    /// A response begins that was allowed earlier: it counts, whatever is left.
    fn response_begun(&self);
    /// A response has ended.
    fn response_done(&self, usage: &ResponseUsage);
    /// A speculative response was dropped, for which the model had to read so many tokens.
    fn speculation_dropped(&self, input_tokens: u64);
    /// A turn of the user has ended.
    fn turn(&self);
    /// A turn's record is settled: what its engines computed.
    fn computed(&self, compute: Compute);
    /// The client that this session and others may belong to; `None`: not known, or the session has a key.
    fn client(&self) -> Option<Requester> {
        None
    }
    /// The state of the limits for `rate_limits.updated`; empty where there is none.
    fn state(&self) -> Vec<RateLimit>;
}

/// A limit is used up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LimitReached(
    /// The message for the client: which limit, and when to try again.
    pub String,
);

/// A session without limits, such as one in a test.
pub(super) struct NoLimits;

impl SessionLimits for NoLimits {
    fn audio_received(&self, _: Samples) -> Duration {
        Duration::ZERO
    }

    fn may_respond(&self) -> Result<(), LimitReached> {
        Ok(())
    }

    fn response_begun(&self) {}

    fn response_done(&self, _: &ResponseUsage) {}

    fn speculation_dropped(&self, _: u64) {}

    fn turn(&self) {}

    fn computed(&self, _: Compute) {}

    fn state(&self) -> Vec<RateLimit> {
        Vec::new()
    }
}

/// The length of audio at `rate`, at 16 kHz.
pub(super) fn at_16_khz(audio: Samples, rate: SampleRate) -> Samples {
    Samples(audio.0 * u64::from(SampleRate::HZ_16000.hz()) / u64::from(rate.hz()))
}
