//! The slots of connections that are not, or not yet, WebSockets: their number, their holders, and eviction.
//!
//! [`super::accepting`] requests a slot for each connection; [`super::write_deadline`] and the response bodies report
//! the connection's activity. If no slot is free, the connection that has waited longest for its client is evicted. A
//! connection waits for its client between two requests, before its head is complete, in its TLS handshake, while its
//! request body stalls, or while the client does not read the response. A request in progress is never evicted.
//! Eviction only cancels a token.

use super::client::{is_trusted, network};
use ipnet::IpNet;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Minimum wait for the client before a connection may be evicted: a well-behaved client that has just connected from a
/// busy machine needs time for its first request.
pub(in crate::server) const GRACE: Duration = Duration::from_millis(500);
/// Additional wait for a stalled request body.
const SLOW_UPLOAD: Duration = Duration::from_secs(2);
/// Maximum concurrent TLS handshakes, in total and per address.
const MAX_HANDSHAKES: usize = 256;
const MAX_HANDSHAKES_PER_ADDRESS: usize = 64;

/// The slots of one listener.
pub(in crate::server) struct ConnectionSlots {
    max: usize,
    /// 0: no limit.
    per_address: usize,
    proxies: Vec<IpNet>,
    table: Mutex<Table>,
    /// Notified when a repeated [`ConnectionSlots::admit`] may have another result.
    changed: Notify,
}

#[derive(Default)]
struct Table {
    next: u64,
    occupants: HashMap<u64, Arc<Occupant>>,
}

/// The holder of a slot, and its connection's activity.
struct Occupant {
    network: IpAddr,
    doing: Mutex<ConnectionActivity>,
    evicted: CancellationToken,
}

/// A connection's activity.
#[derive(Clone, Copy, Debug, Default)]
struct ConnectionActivity {
    handshake: bool,
    /// A request is being processed, or its response is being produced.
    answering: bool,
    /// The client has sent nothing since. Bytes of an incomplete head do not reset it.
    idle_since: Option<Instant>,
    /// The request body has stalled since.
    uploads_since: Option<Instant>,
    /// The client has not read available response data since.
    blocked_since: Option<Instant>,
    /// Accumulated time before that in which the client did not read, less the credit for what it has read.
    debt: Duration,
}

impl ConnectionActivity {
    /// The earliest time at which the connection may be evicted if its client remains inactive; `None` while the
    /// connection does not wait for its client.
    fn may_go(&self) -> Option<Instant> {
        let idle = self.idle_since.filter(|_| !self.answering);
        let blocked = self.blocked_since.map(|since| since.checked_sub(self.debt).unwrap_or(since));
        // On a slow line, a client may pause between any two packets.
        let uploads = self.uploads_since.map(|since| since + SLOW_UPLOAD);
        [idle, blocked, uploads].into_iter().flatten().min().map(|since| since + GRACE)
    }
}

/// Why no slot is free and no connection may be evicted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Full {
    /// The limit per address is reached.
    Address,
    /// All slots are in use.
    All,
}

/// A connection's slot; dropping it releases the slot.
pub(in crate::server) struct ConnectionSlot {
    places: Arc<ConnectionSlots>,
    id: u64,
    occupant: Arc<Occupant>,
}

impl ConnectionSlots {
    /// `max` slots, at most `per_address` of them for one address (0: no limit). Loopback addresses and `proxies` stand
    /// for many clients: their limit is three quarters of `max`.
    pub(in crate::server) fn new(max: usize, per_address: usize, proxies: Vec<IpNet>) -> Arc<Self> {
        Arc::new(Self { max, per_address, proxies, table: Mutex::default(), changed: Notify::new() })
    }

    /// Reserves a slot for a connection from `address`, evicting another connection if necessary; an error if none may
    /// be evicted yet. `handshake`: the connection starts with a TLS handshake.
    pub(in crate::server) fn admit(self: &Arc<Self>, address: IpAddr, handshake: bool) -> Result<ConnectionSlot, Full> {
        let now = Instant::now();
        let network = network(address);
        let (most, most_handshakes) = self.bounds(address);
        let mut table = self.lock();
        let own = |occupant: &Occupant, _: &ConnectionActivity| occupant.network == network;
        let shaking = |_: &Occupant, doing: &ConnectionActivity| doing.handshake;
        if handshake {
            table
                .make_room(most_handshakes, now, |occupant, doing| own(occupant, doing) && doing.handshake)
                .ok_or(Full::Address)?;
            table.make_room(MAX_HANDSHAKES, now, shaking).ok_or(Full::All)?;
        }
        table.make_room(most, now, own).ok_or(Full::Address)?;
        table.make_room(self.max, now, |_, _| true).ok_or(Full::All)?;
        let id = table.next;
        table.next += 1;
        let doing =
            ConnectionActivity { handshake, idle_since: handshake.then_some(now), ..ConnectionActivity::default() };
        let occupant = Arc::new(Occupant { network, doing: Mutex::new(doing), evicted: CancellationToken::new() });
        table.occupants.insert(id, occupant.clone());
        Ok(ConnectionSlot { places: self.clone(), id, occupant })
    }

    /// The maximum number of connections and of handshakes of this address.
    fn bounds(&self, address: IpAddr) -> (usize, usize) {
        let address = address.to_canonical();
        match self.per_address {
            0 => (usize::MAX, usize::MAX),
            _ if address.is_loopback() || is_trusted(address, &self.proxies) => {
                (self.max.div_ceil(4) * 3, MAX_HANDSHAKES.div_ceil(4) * 3)
            }
            most => (most, most.min(MAX_HANDSHAKES_PER_ADDRESS)),
        }
    }

    /// Resolves when another [`ConnectionSlots::admit`] may have a different result: a slot was released, or a
    /// connection has become evictable. Cancel safe. Supports a single waiter, the accept loop.
    pub(in crate::server) async fn changed(&self) {
        let now = Instant::now();
        let soon = {
            let table = self.lock();
            let times = table.occupants.values().filter_map(|occupant| occupant.doing().may_go());
            times.filter(|at| *at > now).min()
        };
        tokio::select! {
            () = self.changed.notified() => {}
            () = async { tokio::time::sleep_until(soon.expect("checked")).await }, if soon.is_some() => {}
        }
    }

    /// Number of slots in use.
    #[cfg(test)]
    pub(in crate::server) fn taken(&self) -> usize {
        self.lock().occupants.len()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no panic while locked")
    }
}

impl Table {
    /// Ensures that fewer than `most` connections match `such`, by evicting the one that has waited longest for its
    /// client. `None` if none may be evicted.
    fn make_room(
        &mut self,
        most: usize,
        now: Instant,
        such: impl Fn(&Occupant, &ConnectionActivity) -> bool,
    ) -> Option<()> {
        let mut n = 0;
        let mut first: Option<(Instant, u64)> = None;
        for (id, occupant) in &self.occupants {
            let doing = *occupant.doing();
            if such(occupant, &doing) {
                n += 1;
                first = doing.may_go().map(|at| (at, *id)).into_iter().chain(first).min();
            }
        }
        if n < most {
            return Some(());
        }
        let (_, id) = first.filter(|(at, _)| *at <= now)?;
        self.occupants.remove(&id)?.evicted.cancel();
        Some(())
    }
}

impl Occupant {
    fn doing(&self) -> MutexGuard<'_, ConnectionActivity> {
        self.doing.lock().expect("no panic while locked")
    }
}

impl ConnectionSlot {
    /// Resolves when the connection is evicted. Cancel safe.
    pub(in crate::server) async fn evicted(&self) {
        self.occupant.evicted.cancelled().await;
    }

    /// A handle that reports the connection's activity.
    pub(in crate::server) fn activity(&self) -> Activity {
        Activity { places: self.places.clone(), occupant: self.occupant.clone() }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.places.lock().occupants.remove(&self.id);
        self.places.changed.notify_one();
    }
}

/// Reports a connection's activity.
#[derive(Clone)]
pub(in crate::server) struct Activity {
    places: Arc<ConnectionSlots>,
    occupant: Arc<Occupant>,
}

impl Activity {
    /// The TLS handshake is complete.
    pub(in crate::server) fn shook_hands(&self) {
        let mut doing = self.occupant.doing();
        doing.handshake = false;
        doing.idle_since = None;
    }

    /// A request is complete; it counts as in progress until the guard is dropped.
    pub(in crate::server) fn answering(&self) -> RequestGuard {
        let mut doing = self.occupant.doing();
        doing.answering = true;
        doing.idle_since = None;
        RequestGuard(self.clone())
    }

    /// A read from the client returned no data.
    pub(in crate::server) fn reads_nothing(&self) {
        let mut doing = self.occupant.doing();
        if doing.answering || doing.idle_since.is_some() {
            return;
        }
        doing.idle_since = Some(Instant::now());
        drop(doing);
        self.places.changed.notify_one();
    }

    /// Reports whether the latest read of the request body had to wait.
    pub(in crate::server) fn uploads(&self, waits: bool) {
        let mut doing = self.occupant.doing();
        if waits && doing.uploads_since.is_none() {
            doing.uploads_since = Some(Instant::now());
            drop(doing);
            self.places.changed.notify_one();
        } else if !waits {
            doing.uploads_since = None;
        }
    }

    /// The client reads nothing. Returns the deadline at which its accumulated blocked time reaches `most`.
    pub(in crate::server) fn is_blocked(&self, most: Duration) -> Instant {
        let mut doing = self.occupant.doing();
        let debt = doing.debt;
        let begins = doing.blocked_since.is_none();
        let since = *doing.blocked_since.get_or_insert_with(Instant::now);
        drop(doing);
        if begins {
            self.places.changed.notify_one();
        }
        since + most.saturating_sub(debt)
    }

    /// The client has read data; `worth` is deducted from its accumulated blocked time.
    pub(in crate::server) fn took(&self, worth: Duration) {
        let mut doing = self.occupant.doing();
        if let Some(since) = doing.blocked_since.take() {
            doing.debt += since.elapsed();
        }
        doing.debt = doing.debt.saturating_sub(worth);
    }
}

/// A request in progress, until it is dropped.
pub(in crate::server) struct RequestGuard(Activity);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut doing = self.0.occupant.doing();
        doing.answering = false;
        doing.uploads_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_was_waited_for_longest_goes_and_who_works_stays() {
        let places = ConnectionSlots::new(3, 0, Vec::new());
        let admit = |text: &str| places.admit(address(text), false).ok();
        let first = admit("192.0.2.1").unwrap();
        let second = admit("192.0.2.2").unwrap();
        let third = admit("192.0.2.3").unwrap();
        let _works = first.activity().answering();
        third.activity().reads_nothing();
        tokio::time::advance(GRACE / 2).await;
        second.activity().reads_nothing();
        assert!(admit("192.0.2.4").is_none(), "both have only just fallen silent");
        tokio::time::advance(GRACE / 2).await;
        // A trickling byte does not reset the timer.
        third.activity().reads_nothing();
        let fourth = admit("192.0.2.4").unwrap();
        assert!(third.occupant.evicted.is_cancelled() && !second.occupant.evicted.is_cancelled());
        assert!(admit("192.0.2.5").is_none());
        drop(fourth);
        assert!(admit("192.0.2.5").is_some());
        assert!(!first.occupant.evicted.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_loses_its_place_and_one_that_does_makes_up_for_it() {
        let places = ConnectionSlots::new(2, 0, Vec::new());
        let admit = || places.admit(address("192.0.2.1"), false).ok();
        let slow = admit().unwrap();
        let dead = admit().unwrap();
        let _working = [slow.activity().answering(), dead.activity().answering()];
        let most = Duration::from_secs(30);
        let deadline = slow.activity().is_blocked(most);
        assert_eq!(deadline, Instant::now() + most);
        dead.activity().is_blocked(most);
        tokio::time::advance(Duration::from_secs(10)).await;
        slow.activity().took(Duration::from_secs(1));
        assert_eq!(slow.activity().is_blocked(most), Instant::now() + Duration::from_secs(21));
        slow.activity().took(Duration::from_secs(60));
        let _other = admit().unwrap();
        assert!(dead.occupant.evicted.is_cancelled() && !slow.occupant.evicted.is_cancelled());
        assert_eq!(slow.activity().is_blocked(most), Instant::now() + most);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_has_its_share_and_takes_it_from_itself() {
        let places = ConnectionSlots::new(8, 2, Vec::new());
        let admit = |text: &str| places.admit(address(text), false).ok();
        let held = ["2001:db8::1", "2001:db8::2"].map(|text| admit(text).unwrap());
        assert!(admit("2001:db8::3").is_none() && admit("2001:db8:0:1::1").is_some());
        held[1].activity().reads_nothing();
        tokio::time::advance(GRACE).await;
        assert!(admit("2001:db8::3").is_some());
        assert!(held[1].occupant.evicted.is_cancelled() && !held[0].occupant.evicted.is_cancelled());
        let here: Vec<_> = (0..7).map_while(|_| admit("127.0.0.1")).collect();
        assert_eq!(here.len(), 6, "this machine may be a proxy's, and leaves some to others");
    }

    #[tokio::test(start_paused = true)]
    async fn handshakes_have_a_bound_of_their_own() {
        let places = ConnectionSlots::new(1_000, 128, Vec::new());
        let shake = |n: u32| places.admit(std::net::Ipv4Addr::from_bits(n).into(), true).ok();
        let held: Vec<_> = (0..100).map_while(|_| shake(1)).collect();
        assert_eq!(held.len(), MAX_HANDSHAKES_PER_ADDRESS);
        let others: Vec<_> = (2..1_000).map_while(shake).collect();
        assert_eq!(held.len() + others.len(), MAX_HANDSHAKES);
        held[0].activity().shook_hands();
        assert!(shake(1).is_some());
        tokio::time::advance(GRACE).await;
        assert!(shake(2_000).is_some(), "the oldest of them goes");
        assert_eq!(places.taken(), held.len() + others.len());
    }
}
