//! Sessions that outlive their connection: the keys by which clients come back, and the way back.
//!
//! A client opts in with `?resume=1` and gets `antiphon.session.resumable` with a key; it counts the messages it gets. With
//! `?resume=KEY&after=N` it takes the session up behind the Nth. The table holds hashes of keys and no session: each
//! session's [`super::seat`] holds its own end, and its entry goes with it.

use super::app::App;
use super::auth::{self, TurnedAway};
use super::inflow::Inflow;
use super::keys::{self, Digest};
use crate::wire::WireError;
use axum::extract::ws::WebSocket;
use axum::http::HeaderMap;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// What a client opts in with.
pub(super) const OPT_IN: &str = "1";

/// A client that comes back, on a new connection.
pub(super) struct Return {
    pub(super) socket: WebSocket,
    pub(super) inflow: Arc<Inflow>,
    /// The number of the last message it has.
    pub(super) after: u64,
}

/// The sessions that can be taken up, at most one for each seat.
#[derive(Default)]
pub(super) struct Resumables(Mutex<HashMap<Digest, Entry>>);

struct Entry {
    returns: mpsc::Sender<Return>,
    /// The hash of the key it was opened with. A short-lived key may have expired meanwhile; its session goes on.
    opened_with: Option<Digest>,
}

/// A session's end of its entry; dropping it takes the entry out of the table.
pub(super) struct Registered {
    pub(super) returns: mpsc::Receiver<Return>,
    app: Arc<App>,
    digest: Digest,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.app.resumables.lock().remove(&self.digest);
    }
}

impl Resumables {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, Entry>> {
        self.0.lock().expect("no panic while locked")
    }
}

/// Enters a session that is about to open; gives its key.
pub(super) fn register(app: &Arc<App>, headers: &HeaderMap) -> (String, Registered) {
    let key = keys::make("rk_");
    let digest = keys::digest(&key);
    // One that comes while another is being taken in is turned away.
    let (sender, returns) = mpsc::channel(1);
    let opened_with = auth::presented(headers).map(|key| keys::digest(&key));
    app.resumables.lock().insert(digest, Entry { returns: sender, opened_with });
    (key, Registered { returns, app: app.clone(), digest })
}

/// The way to the session of `key`, for a client that may use the server or opened it.
pub(super) fn find(app: &App, headers: &HeaderMap, key: &str) -> Result<mpsc::Sender<Return>, TurnedAway> {
    let caller = auth::caller(app, headers);
    let presented = auth::presented(headers).map(|key| keys::digest(&key));
    let sessions = app.resumables.lock();
    let entry = sessions.get(&keys::digest(key));
    let opened_it = entry.is_some_and(|entry| entry.opened_with.is_some() && entry.opened_with == presented);
    match (caller, entry) {
        (Err(refusal), _) if !opened_it => Err(refusal.into()),
        (_, Some(entry)) => Ok(entry.returns.clone()),
        (_, None) => Err(refusal("There is no session to resume with this key; it may have ended.")),
    }
}

/// What a client that cannot come back is told: one error event, then 4000.
pub(super) fn refusal(message: impl Into<String>) -> TurnedAway {
    TurnedAway {
        error: WireError::invalid("session_not_found", message, Some("resume")),
        close: 4000,
        reason: "invalid_request_error.session_not_found",
    }
}
