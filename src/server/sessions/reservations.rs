//! Places for sessions: how many there are on this server, for one key and for one address.
//!
//! [`super::parts`] reserves one for each session that is admitted. What the load allows is not decided here
//! ([`super::load`]).

use super::load::LoadPlace;
use crate::load::Overloaded;
use crate::server::access::AccessParts;
use crate::server::access::holder_counts::{HolderCount, HolderCounts};
use crate::server::edge::client::Client;
use antiphon_types::KeyId;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// See the module.
pub(super) struct Reservations {
    access: Arc<AccessParts>,
    permits: Arc<Semaphore>,
    by_key: HolderCounts<KeyId>,
    by_address: HolderCounts<IpAddr>,
}

/// A session's reservation: of the server, of its key and of its address. Dropping it releases all three.
pub(in crate::server) struct SessionReservation {
    /// `None`: it came from another hub, and was not admitted by the load.
    pub(super) _load: Option<LoadPlace>,
    _permit: OwnedSemaphorePermit,
    _key: Option<HolderCount<KeyId>>,
    _address: HolderCount<IpAddr>,
}

/// What prevents another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum ReservationError {
    /// `server.max_sessions`, or the server is stopping.
    Server,
    /// Another session would cost those that are there their objective (`[slo]`).
    Overloaded(Overloaded),
    /// No worker serves a stage.
    Engines,
    /// The API key (`server.max_sessions_per_key`).
    Key,
    /// The client's address (`server.max_sessions_per_address`).
    Address,
}

impl Reservations {
    pub(super) fn new(access: Arc<AccessParts>) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(access.edge.config.max_sessions)),
            by_key: HolderCounts::default(),
            by_address: HolderCounts::default(),
            access,
        }
    }

    /// Reserves a place for this key and client, unless a limit is reached.
    pub(super) fn reserve(&self, owner: Option<KeyId>, client: Client) -> Result<SessionReservation, ReservationError> {
        let config = &self.access.edge.config;
        let valid = self.access.keys.current();
        let half = config.max_sessions.div_ceil(2);
        let bound = |configured: i64, derived: usize| match configured {
            0 => usize::MAX,
            ..0 => derived,
            most => usize::try_from(most).unwrap_or(usize::MAX),
        };
        let keys = if valid.n_clients() > 1 { half } else { usize::MAX };
        let own = owner.and_then(|owner| valid.max_sessions_of(owner));
        let most_of_key = bound(own.map_or(config.max_sessions_per_key, i64::from), keys);
        let here = if client.address.is_loopback() { usize::MAX } else { half };
        let most_of_address = match client.is_shared {
            true => usize::MAX,
            false => bound(config.max_sessions_per_address, here),
        };
        let key = owner.map(|owner| self.by_key.take(owner, most_of_key).ok_or(ReservationError::Key)).transpose()?;
        let address = self.by_address.take(client.network(), most_of_address).ok_or(ReservationError::Address)?;
        let permit = self.permits.clone().try_acquire_owned().map_err(|_| ReservationError::Server)?;
        Ok(SessionReservation { _load: None, _permit: permit, _key: key, _address: address })
    }

    /// The sessions of this key or of this address, whichever has more, with the one that is being admitted. `None`: they have no
    /// share by default, because there are no others or because the operator has set their limit.
    pub(super) fn own_sessions(&self, owner: Option<KeyId>, client: Client) -> Option<usize> {
        let config = &self.access.edge.config;
        let keys = self.access.keys.current();
        let of_key = owner.filter(|owner| {
            config.max_sessions_per_key < 0 && keys.n_clients() > 1 && keys.max_sessions_of(*owner).is_none()
        });
        let has_share = config.max_sessions_per_address < 0 && !client.is_shared && !client.address.is_loopback();
        let of_address = has_share.then(|| self.by_address.count(client.network()));
        of_key.map(|owner| self.by_key.count(owner)).max(of_address)
    }

    /// Number of sessions that belong to this key.
    pub(super) fn of_key(&self, owner: KeyId) -> usize {
        self.by_key.count(owner)
    }

    /// Places of `server.max_sessions` that sessions take.
    pub(super) fn taken(&self) -> usize {
        self.access.edge.config.max_sessions.saturating_sub(self.permits.available_permits())
    }

    /// Whether sessions take all of them.
    pub(super) fn are_all_taken(&self) -> bool {
        self.permits.available_permits() == 0
    }
}
