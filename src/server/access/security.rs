//! The security log: rejections, and changes of access rights.
//!
//! All entries go to the target `antiphon::security` with the client's address, the route and the reason, never with a
//! key, a query or a body. Rejections are rate-limited, so that an attacker cannot fill a disk; each entry reports how
//! many were omitted before it. Authorized actions have a separate limit, so that rejections cannot suppress them.

use super::audit::{Audit, Line};
use super::limits::UsedUp;
use crate::server::edge::client::Client;
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

pub(in crate::server) struct Security {
    refusals: Mutex<Budget>,
    acts: Mutex<Budget>,
    limited: Mutex<Budget>,
    audit: Audit,
}

/// Who did what to what.
#[derive(Clone, Copy)]
pub(in crate::server) struct Act<'a> {
    pub(in crate::server) client: Client,
    pub(in crate::server) owner: Option<KeyId>,
    /// The key's name.
    pub(in crate::server) name: Option<&'a str>,
    /// The id of what it was done to, or the route.
    pub(in crate::server) target: &'a str,
}

struct Budget {
    /// The time at which the whole burst is available again.
    restored: Instant,
    n_left_out: u64,
}

impl Security {
    pub(in crate::server) fn new(audit: Audit) -> Self {
        let budget = || Mutex::new(Budget { restored: Instant::now(), n_left_out: 0 });
        Self { refusals: budget(), acts: budget(), limited: budget(), audit }
    }

    /// The audit log.
    pub(in crate::server) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Logs a rejected request.
    pub(in crate::server) fn refused(&self, client: Client, route: &str, status: u16, reason: &str) {
        self.refused_act(Act { client, owner: None, name: None, target: route }, status, reason);
    }

    /// The same where the key is known.
    pub(in crate::server) fn refused_act(&self, act: Act<'_>, status: u16, reason: &str) {
        let Some(left_out) = take(&self.refusals) else { return };
        let Act { client, owner, name, target } = act;
        let address = client.address;
        let peer = client.peer;
        let route = shown(target);
        self.audit.write(Line {
            action: "auth.refused",
            key: owner,
            name,
            address: Some(address),
            target: Some(&route),
            outcome: reason,
            left_out,
        });
        tracing::warn!(target: "antiphon::security", %address, %peer, key = name, route, status, reason, left_out, "refused");
    }

    /// Logs a request, session or response beyond a limit.
    pub(in crate::server) fn limited(&self, act: Act<'_>, used_up: UsedUp) {
        let Some(left_out) = take(&self.limited) else { return };
        let Act { client, owner, name, target } = act;
        let address = client.address;
        let peer = client.peer;
        let key = owner.map(|key| key.to_string());
        let target = shown(target);
        let limit = used_up.setting();
        self.audit.write(Line {
            action: "limit.refused",
            key: owner,
            name,
            address: Some(address),
            target: Some(&target),
            outcome: &limit,
            left_out,
        });
        tracing::warn!(target: "antiphon::security", %address, %peer, key, name, route = target, limit, left_out, "limited");
    }

    /// Writes an authorized action to the audit log, whatever came of it.
    pub(in crate::server) fn done(&self, action: &'static str, act: Act<'_>, outcome: &str) {
        let Act { client, owner, name, target } = act;
        let address = Some(client.address);
        let target = shown(target);
        self.audit.write(Line { action, key: owner, name, address, target: Some(&target), outcome, left_out: 0 });
    }

    /// Logs an authorized action: creating a client secret, pulling or removing a model.
    pub(in crate::server) fn act(&self, client: Client, route: &str, key: Option<KeyId>, what: &str) {
        let Some(left_out) = take(&self.acts) else { return };
        let address = client.address;
        let peer = client.peer;
        let key = key.map(|key| key.to_string());
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
    // Behind the provider's name stands a token.
    let route = match route.strip_prefix("/v1/telephony/").and_then(|rest| rest.find('/')) {
        Some(end) => &route[.."/v1/telephony/".len() + end],
        None => route,
    };
    route.chars().take(MAX_ROUTE).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_a_phone_call_is_not_shown() {
        assert_eq!(shown("/v1/telephony/plivo/sk-secret"), "/v1/telephony/plivo");
        assert_eq!(shown("/v1/telephony/plivo/sk/secret"), "/v1/telephony/plivo");
        assert_eq!(shown("/v1/telephony/{provider}"), "/v1/telephony/{provider}");
        assert_eq!(shown("/v1/realtime\n"), "/v1/realtime?");
    }

    #[tokio::test(start_paused = true)]
    async fn lines_are_bounded_in_rate_and_those_left_out_are_counted() {
        let security = Security::new(Audit::default());
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
