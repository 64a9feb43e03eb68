//! Rate limit of wrong keys per address: a burst, then one per second, so that guessing is slow and rejecting it is
//! cheap.
//!
//! [`super::auth`] reports each wrong key. A right key is compared first and always passes, so that no caller locks out the other
//! clients of an address. What costs more than a comparison, a look at another hub's store, is not done for an address without
//! attempts left ([`Attempts::check`]). The table is bounded.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Burst of wrong keys per address.
const BURST: u32 = 10;
/// Time until one more attempt becomes available.
const EVERY: Duration = Duration::from_secs(1);
/// Addresses in the table, about 100 bytes each; above it, the one with the most attempts left is evicted.
const MAX_ADDRESSES: usize = 4_096;

/// For each address, the time at which all of its attempts are available again.
#[derive(Default)]
pub(in crate::server) struct Attempts(Mutex<HashMap<IpAddr, Instant>>);

impl Attempts {
    /// `Err`: the address has no attempt left; the value is the time until the next one.
    pub(in crate::server) fn check(&self, address: IpAddr) -> Result<(), Duration> {
        let now = Instant::now();
        let restored = self.0.lock().expect("no panic while locked").get(&address).copied();
        let used = restored.map_or(Duration::ZERO, |restored| restored.saturating_duration_since(now));
        match used.checked_sub(EVERY * (BURST - 1)) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => Ok(()),
        }
    }

    /// Records a wrong key from this address.
    ///
    /// # Errors
    /// The address has no attempt left, and this one is not recorded; the value is the time until the next one.
    pub(in crate::server) fn failed(&self, address: IpAddr) -> Result<(), Duration> {
        self.check(address)?;
        let now = Instant::now();
        let mut table = self.0.lock().expect("no panic while locked");
        if table.len() >= MAX_ADDRESSES && !table.contains_key(&address) {
            table.retain(|_, restored| *restored > now);
            let least = table.iter().min_by_key(|(_, restored)| **restored).map(|(address, _)| *address);
            if let Some(least) = least.filter(|_| table.len() >= MAX_ADDRESSES) {
                table.remove(&least);
            }
        }
        let restored = table.entry(address).or_insert(now);
        *restored = (*restored).max(now) + EVERY;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ten_at_once_and_then_one_a_second() {
        let attempts = Attempts::default();
        let eve = "192.0.2.1".parse().unwrap();
        let bob = "192.0.2.2".parse().unwrap();
        for _ in 0..BURST {
            assert_eq!(attempts.check(eve), Ok(()));
            assert_eq!(attempts.failed(eve), Ok(()));
        }
        assert_eq!(attempts.failed(eve), Err(EVERY), "which adds nothing to the wait");
        assert_eq!((attempts.check(eve), attempts.check(bob)), (Err(EVERY), Ok(())));
        tokio::time::advance(EVERY).await;
        assert_eq!(attempts.check(eve), Ok(()));
        assert_eq!(attempts.failed(eve), Ok(()));
        assert_eq!(attempts.check(eve), Err(EVERY));
        tokio::time::advance(EVERY * BURST).await;
        assert_eq!(attempts.failed(eve), Ok(()));
        assert_eq!(attempts.check(eve), Ok(()), "all attempts had come back");
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_is_bounded_and_keeps_who_tried_most() {
        let attempts = Attempts::default();
        let eve = "192.0.2.1".parse().unwrap();
        assert!((0..BURST).all(|_| attempts.failed(eve).is_ok()));
        for n in 0..2 * MAX_ADDRESSES as u32 {
            assert_eq!(attempts.failed(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into()), Ok(()));
        }
        assert_eq!(attempts.0.lock().unwrap().len(), MAX_ADDRESSES);
        assert!(attempts.check(eve).is_err());
    }
}
