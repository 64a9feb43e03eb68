//! Calls out by SIP: `POST /v1/realtime/calls` with a target.
//!
//! [`super::super::calls_out`] chooses between trunks and accounts and calls [`dial`]. [`super::answered`] serves the call from
//! its answer on.

use super::answered::{AnsweredCall, serve_answered};
use super::dial::{AnsweredDial, DialedCall, Dialer};
use crate::server::access::caller::Caller;
use crate::server::edge::client::Client;
use crate::server::transport::calls::CallState;
use crate::server::transport::parts::TransportParts;
use crate::server::transport::telephony::outgoing::DialRequest;
use crate::server::transport::transfers::DialError;
use antiphon_protocol::SessionUpdate;
use std::sync::Arc;

/// Begins a call, a task of the server's, and returns its id at once, or within the lookup of the trunk's host. The call's
/// state is in the list.
///
/// # Errors
/// [`DialError`].
pub(in crate::server::transport::telephony) async fn dial(
    dialer: &Arc<Dialer>,
    transport: &Arc<TransportParts>,
    client: Client,
    caller: Caller,
    request: DialRequest,
    settings: Option<Arc<SessionUpdate>>,
) -> Result<String, DialError> {
    let dialed = dialer.request(transport, client, caller, request, settings).await?;
    let id = dialed.entry.id().to_owned();
    transport.sessions.setup.tasks.spawn(serve(transport.clone(), dialer.clone(), dialed));
    Ok(id)
}

/// Waits for the answer and serves the call until it ends.
async fn serve(transport: Arc<TransportParts>, dialer: Arc<Dialer>, dialed: DialedCall) {
    let Ok(answered) = dialed.answered().await else { return };
    let AnsweredDial { dialog, mut entry, tracker, keys, requests, greeting, notice, plan, origin, place: _place } =
        answered;
    let answer = Some(plan);
    let direction = "out";
    let answered = AnsweredCall { dialog, tracker, keys, requests, greeting, notice, answer, origin, direction };
    serve_answered(&transport, &dialer, &entry, answered).await;
    entry.is_now(CallState::Ended);
}
