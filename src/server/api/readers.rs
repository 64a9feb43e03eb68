//! Places for requests whose responses take memory, and for clients that listen: bounded, and half of them for one key.
//!
//! The handlers of turns, models and language models take one each. Nothing is read here.

use crate::server::access::AccessParts;
use crate::server::access::holder_counts::{Holder, HolderCount, HolderCounts};
use crate::server::edge::client::Client;
use crate::server::edge::refusal::refused;
use antiphon_types::KeyId;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Maximum concurrent live listeners; another is rejected with 503. Each may hold a few hundred records while it does
/// not read.
const MAX_LISTENERS: usize = 64;

/// Maximum concurrent page reads; another waits for [`READER_WAIT`] and is then rejected with 503. A page holds its
/// records, about 9 KB each, until it is read.
const MAX_READERS: usize = 32;
const READER_WAIT: Duration = Duration::from_secs(5);

/// Places for requests whose responses take memory to build: pages of turns, sound of a turn, lists of models and of servers.
pub(in crate::server) struct Readers {
    access: Arc<AccessParts>,
    permits: Arc<Semaphore>,
    by_holder: HolderCounts<Holder>,
}

/// The place of a reader. Dropping it releases it.
pub(in crate::server) struct ReaderPlace {
    _permit: OwnedSemaphorePermit,
    _share: Option<HolderCount<Holder>>,
}

/// Why there is no place for a reader.
#[derive(Debug, PartialEq, Eq)]
enum ReadersFull {
    /// The holder has its half: reading, or waiting to read.
    Half,
    /// No place became free within [`READER_WAIT`].
    All,
}

impl Readers {
    pub(super) fn new(access: Arc<AccessParts>) -> Self {
        Self { access, permits: Arc::new(Semaphore::new(MAX_READERS)), by_holder: HolderCounts::default() }
    }

    /// A place for a request whose response takes memory to build; an error response where there is none, or where the
    /// half is in use that one key may have, or one address where there are no keys.
    pub(super) async fn place(&self, owner: Option<KeyId>, client: Client) -> Result<ReaderPlace, Box<Response>> {
        let holder = Holder::of(owner, client, self.access.keys.current().n_keys() > 1);
        self.place_of(holder).await.map_err(|full| {
            let message = match full {
                ReadersFull::Half => {
                    format!(
                        "You have {} requests of this kind under way, which is the most. Wait for one.",
                        MAX_READERS / 2
                    )
                }
                ReadersFull::All => "Too many clients are reading. Try again soon.".to_owned(),
            };
            Box::new(busy("too_many_readers", &message))
        })
    }

    /// Waits at most [`READER_WAIT`] for a place; not at all where `holder` has half of them.
    async fn place_of(&self, holder: Option<Holder>) -> Result<ReaderPlace, ReadersFull> {
        let share = holder.map(|holder| self.by_holder.take(holder, MAX_READERS / 2).ok_or(ReadersFull::Half));
        let share = share.transpose()?;
        match timeout(READER_WAIT, self.permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(ReaderPlace { _permit: permit, _share: share }),
            _ => Err(ReadersFull::All),
        }
    }
}

/// Places for live listeners of the turn history and of pulls.
pub(in crate::server) struct Listeners {
    access: Arc<AccessParts>,
    permits: Arc<Semaphore>,
    by_holder: HolderCounts<Holder>,
}

/// The place of a live listener. Dropping it releases it.
pub(in crate::server) struct ListenerPlace {
    _permit: OwnedSemaphorePermit,
    _share: Option<HolderCount<Holder>>,
}

impl Listeners {
    pub(super) fn new(access: Arc<AccessParts>) -> Self {
        Self { access, permits: Arc::new(Semaphore::new(MAX_LISTENERS)), by_holder: HolderCounts::default() }
    }

    /// A place for a live listener; an error response if all are in use, or the half that one key may use, or one
    /// address where there are no keys.
    pub(super) fn place(&self, owner: Option<KeyId>, client: Client) -> Result<ListenerPlace, Box<Response>> {
        let holder = Holder::of(owner, client, self.access.keys.current().n_keys() > 1);
        let share = holder.map(|holder| self.by_holder.take(holder, MAX_LISTENERS / 2).ok_or(())).transpose();
        let share = share.map_err(|()| {
            let message = format!("You have {} live listeners, which is the most. Close one first.", MAX_LISTENERS / 2);
            Box::new(busy("too_many_listeners", &message))
        })?;
        let permit = self.permits.clone().try_acquire_owned();
        let permit = permit
            .map_err(|_| Box::new(busy("too_many_listeners", "Too many clients are listening. Try again soon.")))?;
        Ok(ListenerPlace { _permit: permit, _share: share })
    }
}

fn busy(code: &str, message: &str) -> Response {
    let mut response = refused(StatusCode::SERVICE_UNAVAILABLE, code, message);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LimitsConfig, ServerConfig};
    use crate::server::access::audit::Audit;
    use crate::server::access::ephemeral_keys::EphemeralKeys;
    use crate::server::access::keys::Keys;
    use crate::server::edge::EdgeParts;
    use antiphon_protocol::Dialect;

    fn readers() -> Readers {
        let edge = Arc::new(EdgeParts::new(ServerConfig::default(), None));
        let ephemeral_keys = EphemeralKeys::new(Dialect::default(), None);
        let limits = LimitsConfig::default();
        Readers::new(Arc::new(AccessParts::new(edge, Keys::default(), limits, ephemeral_keys, Audit::default())))
    }

    fn holder(last: u8) -> Option<Holder> {
        Some(Holder::Address([192, 0, 2, last].into()))
    }

    #[tokio::test(start_paused = true)]
    async fn one_holder_reads_in_half_of_the_places_and_waits_for_none_of_the_others() {
        let readers = readers();
        let mut greedy = Vec::new();
        for _ in 0..MAX_READERS / 2 {
            greedy.push(readers.place_of(holder(1)).await.expect("its half"));
        }
        assert_eq!(readers.place_of(holder(1)).await.err(), Some(ReadersFull::Half));
        let mut others = Vec::new();
        for _ in 0..MAX_READERS / 2 {
            others.push(readers.place_of(holder(2)).await.expect("the other half"));
        }
        // A wait in vain leaves nothing behind.
        assert_eq!(readers.place_of(holder(3)).await.err(), Some(ReadersFull::All));
        assert_eq!(readers.by_holder.count(holder(3).expect("a holder")), 0);
        greedy.pop();
        assert!(readers.place_of(holder(1)).await.is_ok(), "a place that was left is free again");
        others.clear();
        assert!(readers.place_of(None).await.is_ok());
    }
}
