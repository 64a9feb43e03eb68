//! The log of security events: who was refused what, and what changed who may do what.
//!
//! All of it goes to the target `antiphon::security`, with the client's address, the route and the reason, never with a
//! key, a query or a body. Refusals are bounded in rate, so that an attacker cannot fill a disk with them; how many were
//! left out stands in the next line. What a right key did has a bound of its own, so that refusals do not hide it.

use super::client::Client;
use antiphon_types::KeyId;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Lines of one kind at once.
const BURST: u32 = 20;
/// How long until one more may be written: at most some 86,000 lines a day of each kind.
const EVERY: Duration = Duration::from_secs(1);
/// Characters of a route that are shown.
const MAX_ROUTE: usize = 128;

/// See the module.
pub(super) struct Security {
    refusals: Mutex<Budget>,
    acts: Mutex<Budget>,
}

struct Budget {
    /// When all lines may be written again.
    restored: Instant,
    n_left_out: u64,
}

impl Security {
    pub(super) fn new() -> Self {
        let budget = || Mutex::new(Budget { restored: Instant::now(), n_left_out: 0 });
        Self { refusals: budget(), acts: budget() }
    }

    /// A request was refused.
    pub(super) fn refused(&self, client: Client, route: &str, status: u16, reason: &str) {
        let Some(left_out) = take(&self.refusals) else { return };
        let (address, peer, route) = (client.address, client.peer, shown(route));
        tracing::warn!(target: "antiphon::security", %address, %peer, route, status, reason, left_out, "refused");
    }

    /// Somebody with the right to it did something that matters: made a key, pulled or removed a model.
    pub(super) fn act(&self, client: Client, route: &str, key: Option<KeyId>, what: &str) {
        let Some(left_out) = take(&self.acts) else { return };
        let (address, peer, key) = (client.address, client.peer, key.map(|key| key.to_string()));
        tracing::info!(target: "antiphon::security", %address, %peer, route = shown(route), key, what, left_out, "done");
    }
}

/// How many lines were left out before this one; `None`: this one is, too.
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

/// A path as far as it is shown, without what would begin another line or colour a terminal.
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
