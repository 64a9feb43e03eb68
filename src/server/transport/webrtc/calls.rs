//! The calls of this hub by id: for hang-ups, and for clients that join a call beside its peer.

use crate::server::transport::call::Call;
use antiphon_types::KeyId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// Events that wait for one joined client: more than a response makes.
const MAX_EVENTS: usize = 256;

/// The calls in progress. As many as there are sessions at most.
#[derive(Default)]
pub(in crate::server) struct Calls(Mutex<HashMap<String, Arc<Ongoing>>>);

/// A call in progress.
pub(super) struct Ongoing {
    /// Its session.
    pub(super) call: Arc<Call>,
    /// The API key that it belongs to.
    pub(super) owner: Option<KeyId>,
    /// Ends it.
    pub(super) hang_up: CancellationToken,
    /// Cancelled when it has ended.
    pub(super) ended: CancellationToken,
    /// Its `session.created`.
    pub(super) created: OnceLock<Arc<str>>,
    /// Its server events.
    pub(super) events: broadcast::Sender<Arc<str>>,
}

/// A call's entry, owned by its task. Dropping it removes the call.
pub(super) struct CallEntry {
    calls: Arc<Calls>,
    id: String,
    ongoing: Arc<Ongoing>,
}

impl Calls {
    /// Lists a call.
    pub(super) fn list(self: &Arc<Self>, id: String, call: Call, owner: Option<KeyId>) -> CallEntry {
        let ongoing = Arc::new(Ongoing {
            call: Arc::new(call),
            owner,
            hang_up: CancellationToken::new(),
            ended: CancellationToken::new(),
            created: OnceLock::new(),
            events: broadcast::Sender::new(MAX_EVENTS),
        });
        self.0.lock().expect("no panic while locked").insert(id.clone(), ongoing.clone());
        CallEntry { calls: self.clone(), id, ongoing }
    }

    /// The call with this id that belongs to this key.
    pub(super) fn find(&self, id: &str, owner: Option<KeyId>) -> Option<Arc<Ongoing>> {
        let calls = self.0.lock().expect("no panic while locked");
        calls.get(id).filter(|ongoing| ongoing.owner == owner).cloned()
    }
}

impl CallEntry {
    /// The call's id.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Its session.
    pub(super) fn call(&self) -> &Arc<Call> {
        &self.ongoing.call
    }

    /// Cancelled when it is to end.
    pub(super) fn hung_up(&self) -> &CancellationToken {
        &self.ongoing.hang_up
    }

    /// Gives an event to the clients that have joined.
    pub(super) fn publish(&self, event: &str) {
        if self.ongoing.created.get().is_none() {
            let _ = self.ongoing.created.set(event.into());
        }
        if self.ongoing.events.receiver_count() > 0 {
            let _ = self.ongoing.events.send(event.into());
        }
    }

    /// The call has ended: nothing finds it any more.
    pub(super) fn close(&self) {
        self.calls.0.lock().expect("no panic while locked").remove(&self.id);
        self.ongoing.ended.cancel();
    }
}

impl Drop for CallEntry {
    fn drop(&mut self) {
        self.close();
    }
}
