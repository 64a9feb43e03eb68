//! The port by which a session asks for what its client may use, and reports what it used.
//!
//! `server` implements it with the limits of the session, its API key and its client's address. The actor calls it at most ten
//! times a second for audio, and once or twice a response. It decides when its client is slowed down or refused; the server
//! decides how much that client may use.

use super::actor::Actor;
use super::responding::Product;
use antiphon_dialog::{Event, Failure, ResponseUsage};
use antiphon_protocol::{RateLimit, WireError};
use antiphon_types::{Compute, Requester, ResponseId, SampleRate, Samples};
use std::time::Duration;
use tokio::time::Instant;

/// Received audio that is reported at once: 100 ms at 16 kHz.
const REPORTED: Samples = Samples(1_600);
/// The longest time for which a client's socket is not read. A client that is further ahead is closed. It covers the longest
/// message there may be at the default limits: 16 MiB of base64 are 25 minutes of G.711.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

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

impl Actor {
    /// Reports the audio received since the last report, if it is worth one. A client ahead of its limit is not read until it
    /// has a share again: that loses nothing, and closes only a client that is further ahead than [`LONGEST_PAUSE`].
    pub(super) fn report_audio(&mut self) {
        if self.ingress.received() >= REPORTED {
            self.report_all_audio();
        }
    }

    /// As [`Self::report_audio`], however little it is.
    pub(super) fn report_all_audio(&mut self) {
        let received = self.ingress.take_received();
        self.charge_audio(received);
    }

    /// Charges audio that did not come through the microphone's way.
    pub(super) fn charge_audio(&mut self, audio: Samples) {
        if audio == Samples::ZERO {
            return;
        }
        let pause = self.limits.audio_received(audio);
        if pause > LONGEST_PAUSE {
            let message = "Audio arrives far faster than this session may send it (limits.session_audio_seconds_per_minute, or \
                           the limit of its API key or address).";
            self.refuse(WireError::rate_limited(message));
            self.egress.close(super::Close { code: 1008, reason: "audio arrives faster than the limit" });
        } else if !pause.is_zero() {
            self.read_from.send_replace(Some(Instant::now() + pause));
        }
    }

    /// Whether the client's socket is not read now, because of a limit.
    pub(super) fn is_paused(&self) -> bool {
        self.read_from.borrow().is_some_and(|from| from > Instant::now())
    }

    /// Sends a response's failure for a limit that is used up, once `release` is sent to. Ends without it if that is dropped.
    pub(super) fn refuse_response(
        &self,
        response: ResponseId,
        limit: LimitReached,
        release: Option<tokio::sync::oneshot::Receiver<()>>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let products = self.products.clone();
        async move {
            if let Some(release) = release
                && release.await.is_err()
            {
                return;
            }
            let outcome = Err(Failure::Limited { limited: limit.0 });
            // The session has ended otherwise.
            let _ = products.send(Box::new(Product::Event(Event::ResponseFinished { response, outcome }))).await;
        }
    }
}

/// The length of audio at `rate`, at 16 kHz.
pub(super) fn at_16_khz(audio: Samples, rate: SampleRate) -> Samples {
    Samples(audio.0 * u64::from(SampleRate::HZ_16000.hz()) / u64::from(rate.hz()))
}
