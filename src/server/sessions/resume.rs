//! Sessions that outlive their connection: resume keys and the hand-over of new connections.
//!
//! A client opts in with `?resume=1`, receives `antiphon.session.resumable` with a key, and counts the messages it
//! receives. With the subprotocol `antiphon-resume.KEY.N`, or `?resume=KEY&after=N`, it resumes the session after the
//! Nth message. The key is valid only together with the API key that opened the session, or with another client secret
//! of that API key. The table holds hashes of keys and no session: each [`super::session_slot`] owns the receiving end,
//! and its entry is removed with it.

use crate::server::access::AccessParts;
use crate::server::access::auth::{self, Refusal, TurnedAway};
use crate::server::access::caller;
use crate::server::access::keys::{self, Digest};
use crate::server::edge::client::Client;
use crate::server::edge::inflow::Inflow;
use antiphon_protocol::WireError;
use antiphon_types::KeyId;
use axum::extract::ws::WebSocket;
use axum::http::{HeaderMap, header};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::mpsc;

/// The value of `resume` that opts in.
pub(in crate::server) const OPT_IN: &str = "1";

/// Prefix of the subprotocol that carries a session's key and the number of the last received message.
const SUBPROTOCOL: &str = "antiphon-resume.";

/// A new connection of a returning client.
pub(in crate::server) struct Return {
    pub(in crate::server) socket: WebSocket,
    pub(in crate::server) inflow: Arc<Inflow>,
    /// The number of the last message the client has received.
    pub(in crate::server) after: u64,
}

/// The sessions that can be resumed, at most one per slot.
pub(in crate::server) struct Resumables {
    entries: Entries,
    /// Whether those of other hubs can be resumed here.
    are_shared: bool,
}

type Entries = Arc<Mutex<HashMap<Digest, Entry>>>;

struct Entry {
    /// Whose it is: a session that was taken twice must not lose the entry of the one that lives.
    token: Arc<()>,
    returns: mpsc::Sender<Return>,
    /// The API key it belongs to.
    owner: Option<KeyId>,
    /// The hash of the key it was opened with. A client secret may have expired since; its session stays resumable.
    opened_with: Option<Digest>,
}

/// Why a session cannot be resumed.
pub(in crate::server) enum NotFound {
    /// The key is missing or wrong.
    Refused(Refusal),
    /// There is no such session, or it belongs to another key.
    Unknown(TurnedAway),
    /// There is no such session here; the key was not checked.
    NotHere,
}

/// A session's receiving end; dropping it removes the entry from the table.
pub(in crate::server) struct Registration {
    pub(in crate::server) returns: mpsc::Receiver<Return>,
    entries: Entries,
    digest: Digest,
    token: Arc<()>,
}

impl Registration {
    /// The hash of the session's resume key.
    pub(in crate::server) fn digest(&self) -> &Digest {
        &self.digest
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut sessions = lock(&self.entries);
        if sessions.get(&self.digest).is_some_and(|entry| Arc::ptr_eq(&entry.token, &self.token)) {
            sessions.remove(&self.digest);
        }
    }
}

fn lock(entries: &Entries) -> MutexGuard<'_, HashMap<Digest, Entry>> {
    entries.lock().expect("no panic while locked")
}

impl Resumables {
    /// `are_shared`: whether sessions of other hubs can be resumed here.
    pub(super) fn new(are_shared: bool) -> Self {
        Self { entries: Arc::default(), are_shared }
    }

    /// Registers a session that is about to open; returns its resume key.
    pub(super) fn register(&self, owner: Option<KeyId>, headers: &HeaderMap) -> (String, Registration) {
        let key = keys::make("rk_");
        let registered = self.register_again(keys::digest(&key), owner, opened_with(headers));
        (key, registered)
    }

    /// Registers a session of another hub that goes on here, under the key it has.
    pub(super) fn register_again(
        &self,
        digest: Digest,
        owner: Option<KeyId>,
        opened_with: Option<Digest>,
    ) -> Registration {
        // While one connection is being attached, another is rejected.
        let (sender, returns) = mpsc::channel(1);
        let token = Arc::new(());
        let entry = Entry { token: token.clone(), returns: sender, owner, opened_with };
        lock(&self.entries).insert(digest, entry);
        Registration { returns, entries: self.entries.clone(), digest, token }
    }

    /// The channel to the session of `key`, if the client presents the API key that the session belongs to.
    pub(super) fn find(
        &self,
        access: &AccessParts,
        client: Client,
        headers: &HeaderMap,
        key: &str,
    ) -> Result<mpsc::Sender<Return>, NotFound> {
        let unknown = || NotFound::Unknown(unknown());
        let presented = opened_with(headers);
        let found = {
            let sessions = lock(&self.entries);
            let entry = sessions.get(&keys::digest(key));
            entry.map(|entry| (entry.returns.clone(), entry.owner, entry.opened_with))
        };
        if let Some((way, owner, opened_with)) = &found
            && opened_with.is_some()
            && *opened_with == presented
            && access.keys.is_valid(*owner)
        {
            return Ok(way.clone());
        }
        if found.is_none() && self.are_shared {
            return Err(NotFound::NotHere);
        }
        let caller = auth::caller(access, client, headers).map_err(NotFound::Refused)?;
        match found {
            Some((way, owner, _)) if owner == caller.owner => Ok(way),
            _ => Err(unknown()),
        }
    }
}

/// The hash of the key that a session is opened with.
pub(in crate::server) fn opened_with(headers: &HeaderMap) -> Option<Digest> {
    caller::presented(headers).map(|key| keys::digest(&key))
}

/// The rejection of a client whose session is nowhere.
pub(in crate::server) fn unknown() -> TurnedAway {
    refusal("There is no session to resume with this key; it may have ended.")
}

/// The resume key and message number from the subprotocol; the number may be empty.
pub(in crate::server) fn ticket(headers: &HeaderMap) -> Option<(String, String)> {
    let offers = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let ticket = offers.flat_map(|offer| offer.split(',')).find_map(|offer| offer.trim().strip_prefix(SUBPROTOCOL))?;
    let (key, after) = ticket.rsplit_once('.').unwrap_or((ticket, ""));
    Some((key.to_owned(), after.to_owned()))
}

/// The rejection of a client that cannot resume: one error event, then close code 4000.
pub(in crate::server) fn refusal(message: impl Into<String>) -> TurnedAway {
    TurnedAway {
        error: WireError::invalid("session_not_found", message, Some("resume")),
        close: 4000,
        reason: "invalid_request_error.session_not_found",
    }
}
