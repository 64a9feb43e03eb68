//! When a session ends by the clock, and when its client is informed.
//!
//! The client's side of a session asks when something is due, and says it to the client. It reads no clock.

use std::time::Duration;
use tokio::time::Instant;

/// How long before the end the notice is sent; for a short lifetime, half of it.
const NOTICE: Duration = Duration::from_secs(60);

/// A session's end by the clock.
pub(super) struct SessionExpiry {
    expires: Instant,
    notice: Option<Instant>,
    whole: Duration,
}

impl SessionExpiry {
    /// Begins now. `is_told`: the client supports extensions and gets a notice before the end.
    pub(super) fn new(now: Instant, whole: Duration, is_told: bool) -> Self {
        let expires = now + whole;
        Self { expires, notice: is_told.then(|| expires - NOTICE.min(whole / 2)), whole }
    }

    /// Of a session that ends in `left`, `whole` after its beginning on another hub.
    pub(super) fn resumed(now: Instant, left: Duration, whole: Duration, is_told: bool) -> Self {
        let expires = now + left;
        let notice = (is_told && left > NOTICE).then(|| expires - NOTICE);
        Self { expires, notice, whole }
    }

    /// When something is due.
    pub(super) fn next_due(&self) -> Instant {
        self.notice.unwrap_or(self.expires)
    }

    /// The notice before the end, once, when it is due: the seconds that are left.
    pub(super) fn take_notice(&mut self, now: Instant) -> Option<u64> {
        self.notice.take_if(|notice| now >= *notice)?;
        Some((self.expires - now).as_secs_f64().round() as u64)
    }

    /// The whole lifetime in minutes, once it is over.
    pub(super) fn expired(&self, now: Instant) -> Option<u64> {
        (now >= self.expires).then_some(self.whole.as_secs() / 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notice_comes_once_before_the_end() {
        let begun = Instant::now();
        let after = |seconds: u64| begun + Duration::from_secs(seconds);
        let mut expiry = SessionExpiry::new(begun, Duration::from_secs(600), true);
        assert_eq!(expiry.next_due(), after(540));
        assert_eq!(expiry.take_notice(after(539)), None);
        assert_eq!(expiry.take_notice(after(541)), Some(59));
        assert_eq!(expiry.take_notice(after(542)), None);
        assert_eq!((expiry.next_due(), expiry.expired(after(599))), (after(600), None));
        assert_eq!(expiry.expired(after(600)), Some(10));
    }

    #[test]
    fn a_client_without_extensions_gets_no_notice_and_a_short_rest_none_again() {
        let begun = Instant::now();
        let whole = Duration::from_secs(600);
        assert_eq!(SessionExpiry::new(begun, whole, false).next_due(), begun + whole);
        let left = Duration::from_secs(59);
        assert_eq!(SessionExpiry::resumed(begun, left, whole, true).next_due(), begun + left);
    }
}
