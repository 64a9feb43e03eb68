//! The security log: rejections, and changes of access rights.
//!
//! All entries go to the target `antiphon::security` with the client's address, the route and the reason, never with a
//! key, a query or a body. Rejections are rate-limited, so that an attacker cannot fill a disk; each entry reports how
//! many were omitted before it. Authorized actions have a separate limit, so that rejections cannot suppress them.

use super::client::Client;
use antiphon_types::KeyId;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Burst of entries of one kind.
const BURST: u32 = 20;
/// Time until one more entry is available: at most about 86,000 entries a day of each kind.
const EVERY: Duration = Duration::from_secs(1);
/// Maximum characters of a logged route.
const MAX_ROUTE: usize = 128;

pub(super) struct Security {
    refusals: Mutex<Budget>,
    acts: Mutex<Budget>,
}

struct Budget {
    /// The time at which the whole burst is available again.
    restored: Instant,
    n_left_out: u64,
}

impl Security {
    pub(super) fn new() -> Self {
        let budget = || Mutex::new(Budget { restored: Instant::now(), n_left_out: 0 });
        Self { refusals: budget(), acts: budget() }
    }

    /// Logs a rejected request.
    pub(super) fn refused(&self, client: Client, route: &str, status: u16, reason: &str) {
        let Some(left_out) = take(&self.refusals) else { return };
        let (address, peer, route) = (client.address, client.peer, shown(route));
        tracing::warn!(target: "antiphon::security", %address, %peer, route, status, reason, left_out, "refused");
    }

    /// Logs an authorized action: creating a client secret, pulling or removing a model.
    pub(super) fn act(&self, client: Client, route: &str, key: Option<KeyId>, what: &str) {
        let Some(left_out) = take(&self.acts) else { return };
        let (address, peer, key) = (client.address, client.peer, key.map(|key| key.to_string()));
        tracing::info!(target: "antiphon::security", %address, %peer, route = shown(route), key, what, left_out, "done");
    }
}

/// The number of entries omitted before this one; `None`: this one is omitted too.
fn take(budget: &Mutex<Budget>) -> Option<u64> {
    let mut budget = budget.lock().expect("no panic while locked");
    let now = Instant::now();
    let restored = budget.restored.max(now) + EVERY;
    if restored > now + EVERY * BURST {
        budget.n_left_out += 1;
        return None;
    }
    budget.restored = restored;
    Some(std::mem::take(&mut budget.n_left_out))
}

/// A route truncated to [`MAX_ROUTE`], without control characters, which could forge a line or colour a terminal.
fn shown(route: &str) -> String {
    route.chars().take(MAX_ROUTE).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_are_bounded_in_rate_and_those_left_out_are_counted() {
        let security = Security::new();
        let written = (0..1_000).filter(|_| take(&security.refusals).is_some()).count();
        assert_eq!(written, BURST as usize);
        assert_eq!(take(&security.acts), Some(0), "refusals hide no act");
        tokio::time::advance(EVERY).await;
        assert_eq!((take(&security.refusals), take(&security.refusals)), (Some(980), None));
    }

    #[test]
    fn a_route_is_one_short_line() {
        assert_eq!(shown("/a\n\u{1b}[31mb"), "/a??[31mb");
        assert_eq!(shown(&"x".repeat(1_000)).len(), MAX_ROUTE);
    }
}
