//! The API keys that are currently valid, and revocation when they change.
//!
//! [`super::auth`] queries it for every request. A reload (SIGHUP) replaces all keys at once and cancels the tokens
//! that [`LiveKeys::lease`] issued for removed keys. It spawns no task and closes no connection.

use super::keys::Keys;
use super::scopes::{Scope, Scopes};
use antiphon_types::KeyId;
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

/// See the module.
pub(in crate::server) struct LiveKeys {
    keys: ArcSwap<Keys>,
    /// One token per key in use; `None` is a caller of a hub without keys. Bounded by the number of keys.
    leases: Mutex<HashMap<Option<KeyId>, CancellationToken>>,
}

impl LiveKeys {
    pub(in crate::server) fn new(keys: Keys) -> Self {
        Self { keys: ArcSwap::from_pointee(keys), leases: Mutex::default() }
    }

    /// The current keys.
    pub(in crate::server) fn current(&self) -> Arc<Keys> {
        self.keys.load_full()
    }

    /// Whether the resources of `key` may be used.
    pub(in crate::server) fn is_valid(&self, key: Option<KeyId>) -> bool {
        is_valid(&self.keys.load(), key)
    }

    /// Whether `key` is valid and has this scope. A hub without keys grants everything.
    pub(in crate::server) fn grants(&self, key: Option<KeyId>, scope: Scope) -> bool {
        let keys = self.keys.load();
        let scopes = key.and_then(|key| keys.scopes_of(key));
        !keys.are_on() || scopes.is_some_and(|scopes| scopes.has(scope))
    }

    /// Whether this hub has `key`, valid or expired. A hub without keys has all of them.
    pub(in crate::server) fn list(&self, key: Option<KeyId>) -> bool {
        let keys = self.keys.load();
        !keys.are_on() || key.is_some_and(|key| keys.list(key))
    }

    /// A token that is cancelled when `key` becomes invalid; already cancelled if `key` is not valid.
    pub(in crate::server) fn lease(&self, key: Option<KeyId>) -> CancellationToken {
        // Checked under the lock, so that a concurrent reload is not missed.
        let mut leases = self.leases.lock().expect("no panic while locked");
        if is_valid(&self.keys.load(), key) {
            return leases.entry(key).or_default().clone();
        }
        let ended = CancellationToken::new();
        ended.cancel();
        ended
    }

    /// The name of a key, for logs.
    pub(in crate::server) fn name_of(&self, key: Option<KeyId>) -> Option<String> {
        self.keys.load().name_of(key?)
    }

    /// Whether it is an admin key.
    pub(in crate::server) fn is_admin(&self, key: Option<KeyId>) -> bool {
        let scopes = key.and_then(|key| self.keys.load().scopes_of(key));
        scopes.is_some_and(|scopes| scopes.has(Scope::Admin))
    }

    /// Cancels the leases of keys that have expired.
    pub(in crate::server) fn expire(&self) {
        let now = self.keys.load_full();
        self.leases.lock().expect("no panic while locked").retain(|key, lease| keep(&now, *key, lease, |_| true));
    }

    /// Replaces the keys and cancels the leases of keys that were removed or have lost a scope. Returns the ids of the removed and
    /// of the added keys.
    pub(in crate::server) fn replace(&self, keys: Keys) -> (Vec<KeyId>, Vec<KeyId>) {
        let mut leases = self.leases.lock().expect("no panic while locked");
        let before = self.keys.swap(Arc::new(keys));
        let now = self.keys.load_full();
        leases.retain(|key, lease| {
            let before = key.and_then(|key| before.scopes_of(key));
            keep(&now, *key, lease, |scopes| before.is_none_or(|before| scopes.covers(before)))
        });
        let gone = before.ids().filter(|id| !now.contain(*id)).collect();
        let new = now.ids().filter(|id| !before.contain(*id)).collect();
        (gone, new)
    }
}

/// Cancels the lease of a key that is not valid, or does not suffice any more.
fn keep(keys: &Keys, key: Option<KeyId>, lease: &CancellationToken, suffices: impl Fn(Scopes) -> bool) -> bool {
    let scopes = key.and_then(|key| keys.scopes_of(key));
    let kept = is_valid(keys, key) && scopes.is_none_or(suffices);
    if !kept {
        lease.cancel();
    }
    kept
}

fn is_valid(keys: &Keys, key: Option<KeyId>) -> bool {
    !keys.are_on() || key.is_some_and(|key| keys.contain(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_ends_what_gone_keys_hold_and_nothing_else() {
        let live = LiveKeys::new(Keys::of(&["one", "two"]));
        let id = |key: &str| Keys::of(&[key]).find(key);
        let one = live.lease(id("one"));
        let two = live.lease(id("two"));
        assert!(live.lease(id("three")).is_cancelled() && live.lease(None).is_cancelled());
        let (gone, new) = live.replace(Keys::of(&["two", "three"]));
        assert_eq!((gone, new), (vec![id("one").unwrap()], vec![id("three").unwrap()]));
        assert!(one.is_cancelled() && !two.is_cancelled() && !live.lease(id("three")).is_cancelled());
        assert!(live.lease(id("one")).is_cancelled());
    }

    #[test]
    fn a_key_that_loses_a_scope_or_expires_ends_its_leases() {
        let keys = |scopes: &str| {
            let entry = |name: &str| {
                format!(
                    "[[key]]\nname = \"{name}\"\nsha256 = \"{}\"\n",
                    super::super::keys::hex(&super::super::keys::digest(name))
                )
            };
            Keys::of_text(&format!("{}scopes = {scopes}\n{}", entry("one"), entry("two"))).unwrap()
        };
        let live = LiveKeys::new(keys("[\"realtime\", \"speech\"]"));
        let id = |key: &str| Keys::of(&[key]).find(key);
        let one = live.lease(id("one"));
        let two = live.lease(id("two"));
        live.replace(keys("[\"realtime\", \"speech\", \"metrics\"]"));
        assert!(!one.is_cancelled() && !live.lease(id("one")).is_cancelled());
        live.replace(keys("[\"speech\"]"));
        assert!(one.is_cancelled() && !two.is_cancelled());
        let again = live.lease(id("one"));
        live.replace(keys("[\"speech\"]\nexpires = 2020-01-01T00:00:00Z"));
        live.expire();
        assert!(again.is_cancelled() && !two.is_cancelled() && live.current().are_on());
        assert!(live.list(id("one")) && !live.list(id("three")), "an expired key is listed");
    }

    #[test]
    fn keys_that_appear_end_what_was_open_to_everybody() {
        let live = LiveKeys::new(Keys::default());
        let anybody = live.lease(None);
        assert!(!anybody.is_cancelled());
        live.replace(Keys::of(&["one"]));
        assert!(anybody.is_cancelled());
    }
}
