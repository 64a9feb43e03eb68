//! Counters per holder with a limit for each: sessions of a key, sessions from an address.
//!
//! The table contains only holders with at least one share, so its size is bounded by the number of shares.

use crate::server::edge::client::Client;
use antiphon_types::KeyId;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// Who holds shares of what requests of all clients use: an API key, or the network of a client without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::server) enum Holder {
    Key(KeyId),
    Address(IpAddr),
}

impl Holder {
    /// `None`: there are no others that could go short. Those are other keys where there are some, else other addresses; one that
    /// stands for many clients, or for the operator's own machine, has no share of its own.
    pub(in crate::server) fn of(owner: Option<KeyId>, client: Client, has_other_keys: bool) -> Option<Self> {
        match owner {
            Some(owner) => has_other_keys.then_some(Self::Key(owner)),
            None if client.is_shared || client.address.is_loopback() => None,
            None => Some(Self::Address(client.network())),
        }
    }
}

/// The number of shares of each holder.
pub(in crate::server) struct HolderCounts<K>(Arc<Mutex<HashMap<K, usize>>>);

/// One share; dropping it returns it.
#[derive(Debug)]
pub(in crate::server) struct HolderCount<K: Eq + Hash> {
    held: Arc<Mutex<HashMap<K, usize>>>,
    holder: K,
}

impl<K> Default for HolderCounts<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Copy + Eq + Hash> HolderCounts<K> {
    /// Takes one more share for `holder`; `None` if it has `most` already.
    pub(in crate::server) fn take(&self, holder: K, most: usize) -> Option<HolderCount<K>> {
        let mut held = self.0.lock().expect("no panic while locked");
        let n = held.get(&holder).copied().unwrap_or(0);
        if n >= most {
            return None;
        }
        held.insert(holder, n + 1);
        Some(HolderCount { held: self.0.clone(), holder })
    }

    /// The number of shares of `holder`.
    pub(in crate::server) fn count(&self, holder: K) -> usize {
        self.0.lock().expect("no panic while locked").get(&holder).copied().unwrap_or(0)
    }
}

impl<K: Eq + Hash> Drop for HolderCount<K> {
    fn drop(&mut self) {
        let mut held = self.held.lock().expect("no panic while locked");
        if let Some(n) = held.get_mut(&self.holder) {
            *n -= 1;
            if *n == 0 {
                held.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_bound_and_nothing_is_left_behind() {
        let shares = HolderCounts::default();
        let one = shares.take("a", 2).unwrap();
        let _two = shares.take("a", 2).unwrap();
        assert!(shares.take("a", 2).is_none() && shares.take("b", 1).is_some());
        drop(one);
        assert_eq!((shares.count("a"), shares.count("b")), (1, 0));
        assert!(shares.take("a", 2).is_some());
        assert_eq!(shares.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_share_is_a_keys_or_an_addresss_where_others_could_go_short() {
        let keys = super::super::keys::Keys::of(&["one"]);
        let key = keys.grant("one").map(|grant| grant.id);
        let client = |address: [u8; 4]| Client::direct(address.into(), true);
        let far = client([192, 0, 2, 1]);
        let here = client([127, 0, 0, 1]);
        assert_eq!(Holder::of(key, far, true), key.map(Holder::Key));
        assert_eq!(Holder::of(key, far, false), None);
        assert_eq!(Holder::of(None, far, false), Some(Holder::Address([192, 0, 2, 1].into())));
        assert_eq!(Holder::of(None, here, true), None);
        assert_eq!(Holder::of(None, Client { is_shared: true, ..far }, true), None);
    }
}
