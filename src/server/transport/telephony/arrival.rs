//! A connection of a peer: its start, and the call that it is for.
//!
//! [`super`] calls [`serve`] for each authenticated connection. A stream that a call out waits for is given to that call
//! ([`super::accounts`]); any other one is a call that comes in, whose session is opened here, and whose conversation is
//! [`super::conversation`]'s.

use super::accounts::{self, AccountCall, AnsweredCall, ArrivedStream, CallOrigin, SECRET_PARAMETER};
use super::bridge::BridgeSide;
use super::conversation::{self, Beginning, Over};
use super::intake::StartingCall;
use super::leg::{Leg, LegError, Parameters, PeerMessage, Start};
use super::link::{self, Incoming, Sink, Source};
use super::number_language::language_of_number;
use super::recording_notice::{PhoneRecording, RecordingNotice};
use super::tools::CallTools;
use crate::server::access::caller::Caller;
use crate::server::edge::client::Client;
use crate::server::transport::call::{Call, CallOpening};
use crate::server::transport::calls::{CallEntry, NewCall};
use crate::server::transport::parts::TransportParts;
use antiphon_protocol::SessionKind;
use antiphon_session::AudioMode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// An authenticated connection.
pub(super) struct Arrival {
    pub(super) client: Client,
    pub(super) caller: Caller,
    /// The peer, for the log.
    pub(super) peer: &'static str,
    /// The pattern of the route or the listener's name, for the security log.
    pub(super) route: &'static str,
    /// Parameters of the URL.
    pub(super) parameters: Parameters,
    /// The call's route is what authorizes it.
    pub(super) needs_route: bool,
    /// Whether Twilio has signed its request.
    pub(super) is_signed: bool,
    /// Time until the call has started.
    pub(super) starts_within: Duration,
    /// Held until then.
    pub(super) starting: Option<StartingCall>,
}

/// A call that has its session.
struct BegunCall {
    entry: CallEntry,
    start: Start,
    /// Instructions of the first reply.
    greeting: Option<String>,
    /// Said before that; `None`: nothing is, or `by_account` has it.
    notice: Option<RecordingNotice>,
    /// What it has as a call of an account; `None`: it is of no account here.
    by_account: Option<AnsweredCall>,
}

/// Serves a call until it ends.
pub(super) async fn serve(
    transport: Arc<TransportParts>,
    mut link: (Source, Sink),
    mut leg: Box<dyn Leg>,
    mut arrival: Arrival,
) {
    let peer = arrival.peer;
    let begun = match started(&mut link.0, leg.as_mut(), &mut arrival).await {
        Ok(start) => match expecting_call(&transport, &start, &arrival) {
            Ok(Some(call)) => {
                let (over, is_over) = oneshot::channel();
                let stream = ArrivedStream { link, leg, start, over };
                // A call that is over drops the stream.
                if call.send(stream).is_ok() {
                    let _ = is_over.await;
                }
                return;
            }
            Ok(None) => begin(&transport, start, arrival),
            Err(over) => Err(over),
        },
        Err(over) => Err(over),
    };
    let over = match begun {
        Ok(BegunCall { entry, start, greeting, notice, by_account }) => {
            let session = entry.call().session().clone();
            let mut side = BridgeSide { link, leg, start, keys: None };
            let over = match by_account.zip(transport.telephony.accounts.as_ref()) {
                Some((call, accounts)) => accounts::serve_call_in(&transport, accounts, &entry, call, &mut side).await,
                None => {
                    let BridgeSide { link, leg, start, .. } = &mut side;
                    let beginning = Beginning { greeting, notice, ..Beginning::default() };
                    conversation::converse(&transport, &entry, leg.as_mut(), start, beginning, link).await
                }
            };
            entry.call().conclude(over.outcome());
            entry.close();
            tracing::info!(%session, peer, ?over, "the call is over");
            link = side.link;
            leg = side.leg;
            over
        }
        Err(over) => {
            tracing::debug!(peer, ?over, "no call");
            over
        }
    };
    match over {
        Over::Gone => link::end(&mut link.0, &mut link.1, 1000, "the call has ended").await,
        Over::Close(code, reason) => {
            if let Some(packet) = leg.hang_up() {
                let _ = link.1.send(packet).await;
            }
            link::end(&mut link.0, &mut link.1, code, &reason).await;
        }
    }
}

/// Waits for the start of the call.
async fn started(source: &mut Source, leg: &mut dyn Leg, arrival: &mut Arrival) -> Result<Start, Over> {
    let first = async {
        loop {
            let said = match source.next().await {
                Incoming::Text(text) => leg.text(&text),
                Incoming::Binary(bytes) => leg.binary(bytes),
                Incoming::Message(message) => Ok(Some(message)),
                Incoming::Pong(_) | Incoming::Sign => continue,
                Incoming::Gone => return Err(Over::Gone),
                Incoming::Violation(code, reason) => return Err(Over::Close(code, reason.into())),
            };
            match said {
                Ok(Some(PeerMessage::Started(start))) => return Ok(*start),
                Ok(Some(PeerMessage::Ended)) => return Err(Over::Gone),
                // Peers under load send audio and keys ahead of their start: Asterisk does. They are of no call yet, and `late`
                // bounds how long they may come.
                Ok(_) | Err(LegError::BeforeStart) => {}
                Err(error) => return Err(error.into()),
            }
        }
    };
    let late = || Over::Close(1008, "the stream did not start in time".into());
    let Some(starting) = arrival.starting.take() else { return Err(Over::Gone) };
    tokio::select! {
        first = timeout(arrival.starts_within, first) => first.map_err(|_| late())?,
        () = starting.evicted() => Err(Over::Gone),
    }
}

/// The call of ours that this stream is for; `None`: it is another call.
fn expecting_call(
    transport: &TransportParts,
    start: &Start,
    arrival: &Arrival,
) -> Result<Option<oneshot::Sender<ArrivedStream>>, Over> {
    // Asterisk says nothing of its own: the address of its stream has the secret.
    let secret = start.parameters.get(SECRET_PARAMETER).or_else(|| arrival.parameters.get(SECRET_PARAMETER));
    let Some(secret) = secret else { return Ok(None) };
    let call = transport.telephony.accounts.as_ref().and_then(|accounts| accounts.claim(secret));
    if call.is_none() {
        transport.sessions.access.security.refused(arrival.client, arrival.route, 401, "unknown call");
        return Err(Over::Close(1008, "no call waits for this stream".into()));
    }
    Ok(call)
}

/// Opens the session of a call that has started.
fn begin(transport: &Arc<TransportParts>, mut start: Start, arrival: Arrival) -> Result<BegunCall, Over> {
    let Arrival { client, caller, peer, route, parameters, needs_route, is_signed, .. } = arrival;
    // The peer's own words count; the URL adds to them.
    start.parameters.add_missing(parameters);
    let chosen = transport.telephony.route(&start.parameters);
    let uuid = start.parameters.get(super::audiosocket::UUID_PARAMETER).unwrap_or_default();
    if needs_route && !transport.telephony.knows(uuid) {
        transport.sessions.access.security.refused(client, route, 401, "unknown UUID");
        return Err(Over::Close(1008, "this call is not known here (telephony.routes)".into()));
    }
    let (settings, greeting) = chosen.map_or((None, None), |route| (route.settings, route.greeting));
    let accounts = transport.telephony.accounts.as_ref().filter(|_| is_signed);
    let PhoneRecording { recording, mut notice } = transport.telephony.recording.of_call();
    let tasks = &transport.sessions.setup.tasks;
    let by_account = accounts.and_then(|accounts| accounts.call_in(&start.parameters, &recording, tasks));
    let tools = by_account.as_ref().and_then(|call| call.tools.as_ref()).map(|(tools, _)| tools.clone());
    let transfer = by_account.as_ref().map(|call| call.transfer.clone());
    let opening = CallOpening {
        mode: AudioMode::Pcm16,
        settings: settings.clone(),
        model: None,
        intent: Some(SessionKind::Realtime),
        transport: peer,
        route,
        by_phone: true,
        tools: tools.as_ref().map(CallTools::server),
        llm: notice.as_ref().map(RecordingNotice::before_model),
        recording_consent: recording.consent(),
    };
    let owner = caller.owner;
    let language = start.parameters.get("from").and_then(language_of_number);
    let caller = Caller { language, ..caller };
    let settings = caller.settings.clone().or(settings);
    let call = Call::open(&transport.sessions, client, caller, opening)
        .map_err(|refused| Over::Close(1013, format!("{}: {}", refused.code, refused.message).into()))?;
    // Phones know no id of their call at the hub: the session's serves those who join it.
    let id = call.session().as_str().to_owned();
    let peer_id = start.parameters.get("call").map(str::to_owned);
    let new = NewCall { call, owner, transport: peer, peer_id, offers: None, transfer, recording };
    let entry = transport.calls.list(id, new);
    if let Some(tools) = tools {
        tools.ends_by(entry.hung_up().clone());
    }
    let by_account = by_account.map(|AccountCall { requests, tools, account, .. }| AnsweredCall {
        tracker: tools.map(|(_, tracker)| tracker),
        requests,
        greeting: greeting.clone(),
        notice: notice.take(),
        answer: None,
        origin: CallOrigin { client, owner, account, from: None, settings },
        direction: "in",
    });
    Ok(BegunCall { entry, start, greeting, notice, by_account })
}
