//! One call by SIP that comes in: its description, its place, who decides about it, its answer.
//!
//! [`super`] runs [`serve`] for each call that arrives. The place is taken before the answer, and before it rings: a call
//! that the hub cannot serve is refused with a status and a time to try again. [`super::answered`] serves it then.

use super::answered::{AnsweredCall, serve_answered};
use super::dial::Dialer;
use super::dialogs::{ArrivedCall, CallControl, Command, DialogHandle, ROUTE};
use super::key_events::{KeyEvents, KeySender, key_events};
use super::media::AnsweredDialog;
use super::ports::RtpSockets;
use super::settings::{CallSettings, CallWebhook, TrunkSettings, owner, protection};
use super::transfer::CallOrigin;
use crate::config::{SrtpUse, UndecidedCall};
use crate::server::access::caller::{Caller, Credential};
use crate::server::access::keys;
use crate::server::edge::client::Client;
use crate::server::sessions::admission::{self, SessionAdmission};
use crate::server::transport::call::{Call, CallOpening};
use crate::server::transport::calls::{CallDecision, CallEntry, CallState, NewCall, RingingEntry};
use crate::server::transport::parts::TransportParts;
use crate::server::transport::telephony::leg::Parameters;
use crate::server::transport::telephony::number_language::language_of_number;
use crate::server::transport::telephony::recording_notice::{PhoneRecording, RecordingNotice};
use crate::server::transport::telephony::reply_progress::ReplyTracker;
use crate::server::transport::telephony::tools::CallTools;
use crate::server::transport::telephony::transfer_requests::{CallTransfers, TransferRequests};
use antiphon_protocol::{SessionKind, SessionUpdate};
use antiphon_session::AudioMode;
use antiphon_sip::sdp::{self, Agreed, Local, MasterKey, SdpError};
use antiphon_sip::{IncomingCall, Transport};
use antiphon_types::KeyId;
use axum::http::StatusCode;
use bytes::Bytes;
use serde_json::json;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// The transport's name, for logs and turn records.
const TRANSPORT: &str = "sip";
/// Longer than the dialog waits for an acknowledgement.
const CONNECTS_WITHIN: Duration = Duration::from_secs(40);

/// How a call is refused.
struct Refusal {
    status: u16,
    reason: &'static str,
    retry_after: Option<Duration>,
}

const fn refusal(status: u16, reason: &'static str) -> Refusal {
    Refusal { status, reason, retry_after: None }
}

/// Serves a call until it ends.
pub(super) async fn serve(transport: Arc<TransportParts>, dialer: Arc<Dialer>, arrived: ArrivedCall) {
    let settings = dialer.settings();
    let ArrivedCall { incoming, dialog, mut control } = arrived;
    let trunk = &settings.trunks[incoming.trunk.0];
    let prepared = match prepare(&transport, settings, trunk, &incoming).await {
        Ok(prepared) => prepared,
        Err(refusal) => return refuse(&dialog, refusal),
    };
    let begun = match &settings.webhook {
        None => prepared.begin(&transport, &incoming, None, &dialog, settings),
        Some(webhook) => {
            let decided = decide(&transport, webhook, &prepared, &incoming, &dialog, &mut control).await;
            let Decided { id, _ringing, outcome } = decided;
            match outcome {
                Ok(Accepted { session, accepted }) => {
                    let mut prepared = prepared;
                    if let Some(session) = session {
                        prepared.route = (Some(session), None);
                    }
                    let begun = prepared.begin(&transport, &incoming, Some(id), &dialog, settings);
                    // The client may be gone.
                    let _ = accepted.map(|accepted| accepted.send(()));
                    begun
                }
                Err(refusal) => return refuse(&dialog, refusal),
            }
        }
    };
    let BegunCall {
        entry,
        tracker,
        keys,
        requests,
        sockets,
        advertised,
        answer,
        agreed,
        session,
        key,
        greeting,
        notice,
        origin,
    } = begun;
    dialog.send(Command::Accept(answer));
    let connected = tokio::select! {
        connected = timeout(CONNECTS_WITHIN, connected(&mut control)) => connected.ok().flatten(),
        () = dialog.ended() => None,
    };
    let agreed = connected.and_then(|answer| match agreed {
        Some(agreed) => Some(agreed),
        None => {
            let protection = protection(incoming.peer.transport, trunk.srtp, &key);
            let local = Local { address: advertised, codecs: &settings.codecs, session, version: 1, protection };
            sdp::read_answer(&answer.unwrap_or_default(), local).ok()
        }
    });
    let Some(agreed) = agreed else {
        entry.call().conclude("not connected");
        return;
    };
    let signaling = incoming.peer.address.ip();
    let dialog = AnsweredDialog { dialog, control, sockets, advertised, session, signaling, agreed };
    let direction = "in";
    let answered = AnsweredCall { dialog, tracker, keys, requests, greeting, notice, answer: None, origin, direction };
    settings.reports.report(entry.id(), "in", CallState::InProgress);
    serve_answered(&transport, &dialer, &entry, answered).await;
    settings.reports.report(entry.id(), "in", CallState::Ended);
}

fn refuse(dialog: &DialogHandle, refusal: Refusal) {
    let Refusal { status, reason, retry_after } = refusal;
    tracing::debug!(status, reason, "a call by SIP is refused");
    dialog.send(Command::Refuse { status, reason, retry_after });
}

/// What was decided about a call that rang.
struct Decided {
    /// The call's id, by which it rang.
    id: String,
    /// Keeps the call in the list until it is listed as one in progress.
    _ringing: RingingEntry,
    outcome: Result<Accepted, Refusal>,
}

/// A call that is to be answered.
struct Accepted {
    /// The settings of its session; `None`: those of its route.
    session: Option<Arc<SessionUpdate>>,
    /// Resolves the request of the client that accepted it.
    accepted: Option<oneshot::Sender<()>>,
}

/// Rings and asks the receiver of webhooks, until a client decides, the time is over, the caller gives up or the hub
/// stops.
async fn decide(
    transport: &TransportParts,
    webhook: &CallWebhook,
    prepared: &PreparedCall,
    incoming: &IncomingCall,
    dialog: &DialogHandle,
    control: &mut mpsc::Receiver<CallControl>,
) -> Decided {
    let id = keys::make("rtc_");
    let (_ringing, decision) = transport.calls.ring(id.clone(), prepared.owner, TRANSPORT, incoming.peer_id.clone());
    let headers: Vec<_> = incoming.headers.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let is_queued = webhook.webhooks.send("realtime.call.incoming", &json!({"call_id": id, "sip_headers": headers}));
    dialog.send(Command::Ring);
    let given_up = async {
        tokio::select! {
            () = dialog.ended() => {}
            // The dialogs have ended: the hub stops.
            () = async { while control.recv().await.is_some() {} } => {}
        }
    };
    let decision = tokio::select! {
        biased;
        () = given_up => {
            let outcome = Err(refusal(487, "Request Terminated"));
            return Decided { id, _ringing, outcome };
        }
        () = transport.sessions.setup.drain.cancelled() => {
            let outcome = Err(refusal(503, "Service Unavailable"));
            return Decided { id, _ringing, outcome };
        }
        decision = timeout(webhook.decides_within, decision), if is_queued => decision.ok().and_then(Result::ok),
        // Nobody is asked.
        () = ready(()), if !is_queued => None,
    };
    let outcome = match (decision, webhook.undecided) {
        (Some(CallDecision::Accept { settings: session, accepted }), _) => {
            Ok(Accepted { session, accepted: Some(accepted) })
        }
        (Some(CallDecision::Reject { status }), _) => Err(refusal(status, reason_of(status))),
        (None, UndecidedCall::Answer) => Ok(Accepted { session: None, accepted: None }),
        (None, UndecidedCall::Refuse) => {
            tracing::info!(call = id, is_queued, "no client decided about a call by SIP");
            Err(refusal(480, reason_of(480)))
        }
    };
    Decided { id, _ringing, outcome }
}

/// The words of a status that a client refuses a call with (RFC 3261, section 21).
const fn reason_of(status: u16) -> &'static str {
    match status {
        403 => "Forbidden",
        404 => "Not Found",
        408 => "Request Timeout",
        480 => "Temporarily Unavailable",
        486 => "Busy Here",
        488 => "Not Acceptable Here",
        503 => "Service Unavailable",
        600 => "Busy Everywhere",
        603 => "Decline",
        604 => "Does Not Exist Anywhere",
        _ => "Rejected",
    }
}

async fn connected(control: &mut mpsc::Receiver<CallControl>) -> Option<Option<Bytes>> {
    loop {
        match control.recv().await? {
            CallControl::Connected(answer) => return Some(answer),
            CallControl::Ringing | CallControl::Offer(_) | CallControl::Answer(_) | CallControl::Key(_) => {}
        }
    }
}

/// A call that has its place and its sockets, and no session yet.
struct PreparedCall {
    client: Client,
    admitted: SessionAdmission,
    owner: Option<KeyId>,
    /// The settings and the greeting of its route.
    route: (Option<Arc<SessionUpdate>>, Option<String>),
    sockets: RtpSockets,
    advertised: SocketAddr,
    answer: String,
    /// `None`: our description is the offer.
    agreed: Option<Agreed>,
    /// The number of our description.
    session: u64,
    /// Our key for SRTP.
    key: MasterKey,
}

/// A call with its session.
struct BegunCall {
    entry: CallEntry,
    /// Follows the reply for the call's tools; `None`: it has none.
    tracker: Option<ReplyTracker>,
    keys: (KeySender, KeyEvents),
    /// Requests to transfer it.
    requests: TransferRequests,
    origin: CallOrigin,
    greeting: Option<String>,
    /// Said before that; `None`: nothing is.
    notice: Option<RecordingNotice>,
    sockets: RtpSockets,
    advertised: SocketAddr,
    answer: String,
    agreed: Option<Agreed>,
    session: u64,
    key: MasterKey,
}

async fn prepare(
    transport: &Arc<TransportParts>,
    settings: &CallSettings,
    trunk: &TrunkSettings,
    incoming: &IncomingCall,
) -> Result<PreparedCall, Refusal> {
    // An address of a trunk stands for many callers.
    let client = Client { is_shared: true, ..Client::direct(incoming.peer.address.ip(), false) };
    let access = &transport.sessions.access;
    let owner = owner(&access.keys.current(), &trunk.key).map_err(|reason| {
        access.security.refused(client, ROUTE, 401, reason);
        refusal(403, "Forbidden")
    })?;
    let session = rand::random::<u64>() >> 1;
    let transport_used = incoming.peer.transport;
    if transport_used != Transport::Tls && trunk.srtp == SrtpUse::Required {
        access.security.refused(client, ROUTE, 488, "the trunk requires SRTP, and the call does not come by TLS");
        return Err(refusal(488, "Not Acceptable Here"));
    }
    let key = MasterKey::new(rand::random());
    let protection = protection(transport_used, trunk.srtp, &key);
    // Whether the description can be answered is known before a port is taken.
    let unbound = SocketAddr::new(settings.ports.advertised(), 9);
    if let Some(offer) = &incoming.offer {
        let local = Local { address: unbound, codecs: &settings.codecs, session, version: 1, protection };
        sdp::answer(offer, local).map_err(|error| match error {
            SdpError::Malformed => refusal(400, "Bad Session Description"),
            SdpError::NoAudio | SdpError::NoCodec | SdpError::NoSrtp => refusal(488, "Not Acceptable Here"),
        })?;
    }
    let mut parameters = Parameters::default();
    parameters.add_text("route", &trunk.route);
    parameters.add_text("to", incoming.to.as_deref().unwrap_or_default());
    parameters.add_text("from", incoming.from.as_deref().unwrap_or_default());
    let route = transport.telephony.route(&parameters);
    let route = route.map_or((None, None), |route| (route.settings, route.greeting));
    let admitted = admission::admit(&transport.sessions, client, owner, ROUTE).map_err(|refused| {
        let is_limit = refused.status == StatusCode::TOO_MANY_REQUESTS;
        let (status, reason) = if is_limit { (486, "Busy Here") } else { (503, "Service Unavailable") };
        Refusal { status, reason, retry_after: Some(refused.retry_after) }
    })?;
    let Some((sockets, advertised)) = settings.ports.bind().await else {
        tracing::warn!("a call by SIP is refused: no port of sip.rtp_port_min to sip.rtp_port_max is free");
        return Err(Refusal { status: 503, reason: "Service Unavailable", retry_after: Some(Duration::from_secs(5)) });
    };
    let local = Local { address: advertised, codecs: &settings.codecs, session, version: 1, protection };
    let answered = match &incoming.offer {
        Some(offer) => sdp::answer(offer, local)
            .map(|(answer, agreed)| (answer, Some(agreed)))
            .map_err(|_| refusal(488, "Not Acceptable Here"))?,
        None => (sdp::offer(local), None),
    };
    let (answer, agreed) = answered;
    Ok(PreparedCall { client, admitted, owner, route, sockets, advertised, answer, agreed, session, key })
}

impl PreparedCall {
    /// Opens the session and lists the call, by `id`, or by its session's id.
    fn begin(
        self,
        transport: &Arc<TransportParts>,
        incoming: &IncomingCall,
        id: Option<String>,
        dialog: &DialogHandle,
        settings: &CallSettings,
    ) -> BegunCall {
        let Self { client, admitted, owner, route, sockets, advertised, answer, agreed, session, key } = self;
        let (session_settings, greeting) = route;
        let credential = if owner.is_some() { Credential::Key } else { Credential::Call };
        let language = incoming.from.as_deref().and_then(language_of_number);
        let caller = Caller { owner, settings: None, credential, language };
        let tasks = transport.sessions.setup.tasks.clone();
        let (transfers, requests) = CallTransfers::new(Some(Arc::new(dialog.referrer())), incoming.from.clone(), tasks);
        let (key_sender, keys) = key_events();
        let PhoneRecording { recording, notice } = transport.telephony.recording.of_call();
        let tools = settings.tools.open(&transfers, Some(Arc::new(key_sender.clone())), &recording);
        let (tools, tracker) = tools.unzip();
        let opening = CallOpening {
            mode: AudioMode::Pcm16,
            settings: session_settings.clone(),
            model: None,
            intent: Some(SessionKind::Realtime),
            transport: TRANSPORT,
            route: ROUTE,
            by_phone: true,
            tools: tools.as_ref().map(CallTools::server),
            llm: notice.as_ref().map(RecordingNotice::before_model),
            recording_consent: recording.consent(),
        };
        let call = Call::begin(&transport.sessions, admitted, caller, opening);
        let id = id.unwrap_or_else(|| call.session().as_str().to_owned());
        let transfer = Some(transfers.to(settings.transfer_to.clone()));
        let peer_id = Some(incoming.peer_id.clone());
        let new = NewCall { call, owner, transport: TRANSPORT, peer_id, offers: None, transfer, recording };
        let entry = transport.calls.list(id, new);
        if let Some(tools) = tools {
            tools.ends_by(entry.hung_up().clone());
        }
        let origin = CallOrigin { client, owner, trunk: incoming.trunk, settings: session_settings };
        let keys = (key_sender, keys);
        BegunCall {
            entry,
            tracker,
            keys,
            requests,
            origin,
            greeting,
            notice,
            sockets,
            advertised,
            answer,
            agreed,
            session,
            key,
        }
    }
}
