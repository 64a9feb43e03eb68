//! Sessions that outlive their connection: the keys by which clients come back, and the way back.
//!
//! A client opts in with `?resume=1` and gets `antiphon.session.resumable` with a key; it counts the messages it gets. With
//! the subprotocol `antiphon-resume.KEY.N`, or `?resume=KEY&after=N`, it takes the session up behind the Nth. The key
//! works together with the API key that opened the session, or another short-lived key of that one's, and with no other. The
//! table holds hashes of keys and no session: each session's [`super::slot`] holds its own end, and its entry goes with it.

use super::app::App;
use super::auth::{self, Refusal, TurnedAway};
use super::client::Client;
use super::inflow::Inflow;
use super::keys::{self, Digest};
use antiphon_protocol::WireError;
use antiphon_types::KeyId;
use axum::extract::ws::WebSocket;
use axum::http::{HeaderMap, header};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// What a client opts in with.
pub(super) const OPT_IN: &str = "1";

/// The subprotocol that carries a session's key and the number of the last message the client has.
const SUBPROTOCOL: &str = "antiphon-resume.";

/// A client that comes back, on a new connection.
pub(super) struct Return {
    pub(super) socket: WebSocket,
    pub(super) inflow: Arc<Inflow>,
    /// The number of the last message it has.
    pub(super) after: u64,
}

/// The sessions that can be taken up, at most one for each slot.
#[derive(Default)]
pub(super) struct Resumables(Mutex<HashMap<Digest, Entry>>);

struct Entry {
    returns: mpsc::Sender<Return>,
    /// The API key it belongs to.
    owner: Option<KeyId>,
    /// The hash of the key it was opened with. A short-lived key may have expired meanwhile; its session goes on.
    opened_with: Option<Digest>,
}

/// Why a client cannot come back.
pub(super) enum NotFound {
    /// Its key is missing or wrong.
    Refused(Refusal),
    /// There is no such session, or it is another key's.
    Unknown(TurnedAway),
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
pub(super) fn register(app: &Arc<App>, owner: Option<KeyId>, headers: &HeaderMap) -> (String, Registered) {
    let key = keys::make("rk_");
    let digest = keys::digest(&key);
    // One that comes while another is being taken in is turned away.
    let (sender, returns) = mpsc::channel(1);
    let opened_with = auth::presented(headers).map(|key| keys::digest(&key));
    app.resumables.lock().insert(digest, Entry { returns: sender, owner, opened_with });
    (key, Registered { returns, app: app.clone(), digest })
}

/// The key and the number of a client that comes back by the subprotocol; the number may be none.
pub(super) fn ticket(headers: &HeaderMap) -> Option<(String, String)> {
    let offers = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let ticket = offers.flat_map(|offer| offer.split(',')).find_map(|offer| offer.trim().strip_prefix(SUBPROTOCOL))?;
    let (key, after) = ticket.rsplit_once('.').unwrap_or((ticket, ""));
    Some((key.to_owned(), after.to_owned()))
}

/// The way to the session of `key`, for a client of the API key that it belongs to.
pub(super) fn find(
    app: &App,
    client: Client,
    headers: &HeaderMap,
    key: &str,
) -> Result<mpsc::Sender<Return>, NotFound> {
    let unknown = || NotFound::Unknown(refusal("There is no session to resume with this key; it may have ended."));
    let presented = auth::presented(headers).map(|key| keys::digest(&key));
    let found = {
        let sessions = app.resumables.lock();
        let entry = sessions.get(&keys::digest(key));
        entry.map(|entry| (entry.returns.clone(), entry.owner, entry.opened_with))
    };
    if let Some((way, owner, opened_with)) = &found
        && opened_with.is_some()
        && *opened_with == presented
        && app.access.is_valid(*owner)
    {
        return Ok(way.clone());
    }
    let caller = auth::caller(app, client, headers).map_err(NotFound::Refused)?;
    match found {
        Some((way, owner, _)) if owner == caller.owner => Ok(way),
        _ => Err(unknown()),
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
