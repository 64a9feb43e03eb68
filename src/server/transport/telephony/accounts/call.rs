//! Calls out by accounts: `POST /v1/realtime/calls` with a target.
//!
//! [`super::super::calls_out`] chooses between trunks and accounts and calls [`dial`]. [`super::dial`] has the call made,
//! [`super::answered`] serves it from its answer on.

use super::Accounts;
use super::answered::{AnsweredCall, CallEnd, serve_answered};
use super::dial::{AnsweredDial, NewDial, RingingCall, begin, ended};
use super::expected::ArrivedStream;
use crate::server::access::caller::Caller;
use crate::server::edge::client::Client;
use crate::server::transport::calls::CallState;
use crate::server::transport::parts::TransportParts;
use crate::server::transport::telephony::bridge::BridgeSide;
use crate::server::transport::telephony::conversation::Over;
use crate::server::transport::telephony::link;
use crate::server::transport::telephony::outgoing::{DialRequest, check_key};
use crate::server::transport::transfers::DialError;
use antiphon_protocol::SessionUpdate;
use std::sync::Arc;

/// Begins a call, a task of the server's, and returns its id once the provider has accepted it: within 10 s. The call's
/// state is in the list.
///
/// # Errors
/// [`DialError`].
pub(in crate::server::transport::telephony) async fn dial(
    accounts: &Accounts,
    transport: &Arc<TransportParts>,
    client: Client,
    caller: Caller,
    request: DialRequest,
    settings: Option<Arc<SessionUpdate>>,
) -> Result<String, DialError> {
    request.check()?;
    let DialRequest { to, from, trunk: _, account, greeting, on_voicemail, voicemail_message } = request;
    accounts.rights.allow(&to)?;
    check_key(&transport.sessions.access, &caller, &accounts.account(account.as_deref())?.key)?;
    let new = NewDial { to, from, account, settings, recital: None };
    let mut ringing = begin(accounts, transport, client, caller, new).await?;
    ringing.greeting = greeting;
    if let Some(on_voicemail) = on_voicemail {
        ringing.on_voicemail = on_voicemail;
    }
    if let Some(message) = voicemail_message {
        ringing.voicemail_message = message;
    }
    let id = ringing.entry.id().to_owned();
    transport.sessions.setup.tasks.spawn(serve(transport.clone(), ringing));
    Ok(id)
}

/// Waits for the answer and the stream, and serves the call until it ends.
async fn serve(transport: Arc<TransportParts>, ringing: RingingCall) {
    let Some(accounts) = transport.telephony.accounts.as_ref() else { return };
    let Ok(answered) = ringing.answered().await else { return };
    let AnsweredDial {
        mut entry,
        mut at_provider,
        stream,
        tracker,
        requests,
        mut expected,
        greeting,
        notice,
        plan,
        origin,
        place: _place,
    } = answered;
    let ArrivedStream { link, leg, start, over: _connection } = stream;
    let provider = at_provider.call().clone();
    let mut side = BridgeSide { link, leg, start, keys: provider.keys() };
    let call = AnsweredCall { tracker, requests, greeting, notice, answer: Some(plan), origin, direction: "out" };
    let reported = ended(&mut expected.statuses, &*provider);
    let end = serve_answered(&transport, accounts, &entry, call, &mut side, reported).await;
    let CallEnd { over, cause } = end;
    let session = entry.call().session().clone();
    entry.call().conclude(over.outcome());
    entry.is_now(CallState::Ended);
    drop(entry);
    tracing::info!(%session, peer = provider.transport(), ?over, "the call is over");
    at_provider.is_over(cause);
    // The call ends at once, not when its stream has.
    drop(at_provider);
    let (mut source, mut sink) = side.link;
    let (code, reason) = match over {
        Over::Gone => (1000, "the call has ended".into()),
        Over::Close(code, reason) => (code, reason),
    };
    link::end(&mut source, &mut sink, code, &reason).await;
}
