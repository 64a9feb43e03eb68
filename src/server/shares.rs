//! Counters per holder with a limit for each: sessions of a key, sessions from an address.
//!
//! The table contains only holders with at least one share, so its size is bounded by the number of shares.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

/// The number of shares of each holder.
pub(super) struct Shares<K>(Arc<Mutex<HashMap<K, usize>>>);

/// One share; dropping it returns it.
pub(super) struct Share<K: Eq + Hash> {
    held: Arc<Mutex<HashMap<K, usize>>>,
    holder: K,
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Copy + Eq + Hash> Shares<K> {
    /// Takes one more share for `holder`; `None` if it has `most` already.
    pub(super) fn take(&self, holder: K, most: usize) -> Option<Share<K>> {
        let mut held = self.0.lock().expect("no panic while locked");
        let n = held.get(&holder).copied().unwrap_or(0);
        if n >= most {
            return None;
        }
        held.insert(holder, n + 1);
        Some(Share { held: self.0.clone(), holder })
    }

    /// The number of shares of `holder`.
    pub(super) fn count(&self, holder: K) -> usize {
        self.0.lock().expect("no panic while locked").get(&holder).copied().unwrap_or(0)
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
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
        let shares = Shares::default();
        let (one, _two) = (shares.take("a", 2).unwrap(), shares.take("a", 2).unwrap());
        assert!(shares.take("a", 2).is_none() && shares.take("b", 1).is_some());
        drop(one);
        assert_eq!((shares.count("a"), shares.count("b")), (1, 0));
        assert!(shares.take("a", 2).is_some());
        assert_eq!(shares.0.lock().unwrap().len(), 1);
    }
}
