//! One call by SIP: its description, its place, its answer, its conversation.
//!
//! [`super`] runs [`serve`] for each call that arrives. The place is taken before the answer: a call that the hub
//! cannot serve is refused with a status and a time to try again.

use super::coder::codings;
use super::dialogs::{ArrivedCall, CallControl, Command, DialogHandle, ROUTE};
use super::media::{MediaState, first_answer, halves};
use super::ports::RtpPorts;
use crate::config::TransferTargets;
use crate::server::access::caller::{Caller, Credential};
use crate::server::access::keys::Keys;
use crate::server::edge::client::Client;
use crate::server::transport::call::{Call, CallOpening};
use crate::server::transport::calls::{CallEntry, NewCall};
use crate::server::transport::parts::TransportParts;
use crate::server::transport::telephony::conversation;
use crate::server::transport::telephony::leg::{Leg, LegError, Mark, Packet, Parameters, PeerMessage, Start};
use crate::server::transport::telephony::link;
use antiphon_protocol::SessionKind;
use antiphon_session::AudioMode;
use antiphon_sip::sdp::{self, Agreed, Codec, Local, SdpError};
use antiphon_types::KeyId;
use axum::http::StatusCode;
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The transport's name, for logs and turn records.
const TRANSPORT: &str = "sip";
/// Longer than the dialog waits for an acknowledgement.
const CONNECTS_WITHIN: Duration = Duration::from_secs(40);

/// What calls of one trunk begin with.
#[derive(Clone, Debug)]
pub(super) struct TrunkSettings {
    /// The API key that its calls belong to, by name; empty: none.
    pub(super) key: String,
    /// The route of its calls; empty: by the number that was called.
    pub(super) route: String,
}

/// What all calls need.
pub(super) struct CallSettings {
    pub(super) trunks: Vec<TrunkSettings>,
    pub(super) codecs: Vec<Codec>,
    pub(super) ports: RtpPorts,
    pub(super) transfer_to: TransferTargets,
}

/// How a call is refused.
struct Refusal {
    status: u16,
    reason: &'static str,
    retry_after: Option<Duration>,
}

const fn refusal(status: u16, reason: &'static str) -> Refusal {
    Refusal { status, reason, retry_after: None }
}

/// The leg: everything is done by [`super::media`], which gives and takes PCM16.
pub(super) struct SipLeg;

impl Leg for SipLeg {
    fn text(&mut self, _: &str) -> Result<Option<PeerMessage>, LegError> {
        Err(LegError::NotJson)
    }

    fn play(&mut self, audio: Vec<u8>) -> Packet {
        Packet::Binary(audio.into())
    }

    fn mark(&mut self, _: Mark) -> Option<Packet> {
        None
    }

    fn clear(&mut self) -> Option<Packet> {
        None
    }
}

/// The key that a trunk's calls belong to.
///
/// # Errors
/// The name is of no key, or the hub has keys and there is no name.
pub(super) fn owner(keys: &Keys, name: &str) -> Result<Option<KeyId>, &'static str> {
    if name.is_empty() {
        return Ok(None);
    }
    let id = keys.described().find(|(_, known, _)| known == name).map(|(id, ..)| id);
    id.map(Some).ok_or("the key of the trunk is no API key of this hub")
}

/// Serves a call until it ends.
pub(super) async fn serve(transport: Arc<TransportParts>, settings: Arc<CallSettings>, arrived: ArrivedCall) {
    let ArrivedCall { incoming, dialog, mut control } = arrived;
    let trunk = &settings.trunks[incoming.trunk.0];
    let begun = begin(&transport, &settings, trunk, &incoming);
    let Begun { call, owner, greeting, socket, advertised, answer, agreed, session } = match begun.await {
        Ok(begun) => begun,
        Err(Refusal { status, reason, retry_after }) => {
            tracing::debug!(status, reason, "a call by SIP is refused");
            dialog.tell(Command::Refuse { status, reason, retry_after });
            return;
        }
    };
    dialog.tell(Command::Accept(answer));
    let connected = tokio::select! {
        connected = timeout(CONNECTS_WITHIN, connected(&mut control)) => connected.ok().flatten(),
        () = dialog.ended() => None,
    };
    let agreed = connected.and_then(|answer| match agreed {
        Some(agreed) => Some(agreed),
        None => sdp::read_answer(&answer.unwrap_or_default(), &settings.codecs).ok(),
    });
    let Some(agreed) = agreed else {
        call.conclude("not connected");
        return;
    };
    let transfer = Some(dialog.transfer(settings.transfer_to.clone()));
    let id = call.session().as_str().to_owned();
    let peer_id = Some(incoming.peer_id);
    let new = NewCall { call, owner, transport: TRANSPORT, peer_id, offers: None, transfer };
    let entry = transport.calls.list(id, new);
    let signaling = incoming.peer.address.ip();
    let answered = AnsweredCall { dialog, control, socket, advertised, session, signaling, agreed, greeting };
    serve_answered(&transport, &entry, answered).await;
}

/// A call from its answer on.
pub(super) struct AnsweredCall {
    pub(super) dialog: DialogHandle,
    pub(super) control: mpsc::Receiver<CallControl>,
    pub(super) socket: UdpSocket,
    pub(super) advertised: SocketAddr,
    /// The number of our description.
    pub(super) session: u64,
    /// Where the dialog's messages come from.
    pub(super) signaling: IpAddr,
    pub(super) agreed: Agreed,
    pub(super) greeting: Option<String>,
}

/// Serves a listed call until it ends. Dropping its dialog says BYE where the peer did not.
pub(super) async fn serve_answered(transport: &Arc<TransportParts>, entry: &CallEntry, answered: AnsweredCall) {
    let AnsweredCall { dialog, control, socket, advertised, session, signaling, agreed, greeting } = answered;
    let (input, output) = codings(agreed.codec);
    let codec = agreed.codec.name();
    let media = MediaState::new(advertised, session, signaling, agreed);
    let Ok((source, sink)) = halves(socket, media, dialog, control) else {
        entry.call().conclude("no codec");
        return;
    };
    tracing::info!(session = %entry.call().session(), codec, "a call by SIP begins");
    let start = Start { input, output, parameters: Parameters::default() };
    let mut link = link::media(source, sink);
    let over = conversation::converse(transport, entry, Box::new(SipLeg), &start, greeting, &mut link).await;
    entry.call().conclude(over.outcome());
    tracing::info!(session = %entry.call().session(), peer = TRANSPORT, over = ?over, "the call is over");
}

async fn connected(control: &mut mpsc::Receiver<CallControl>) -> Option<Option<Bytes>> {
    loop {
        match control.recv().await? {
            CallControl::Connected(answer) => return Some(answer),
            CallControl::Ringing | CallControl::Offer(_) | CallControl::Key(_) => {}
        }
    }
}

/// A call with its place and its socket.
struct Begun {
    call: Call,
    owner: Option<KeyId>,
    greeting: Option<String>,
    socket: UdpSocket,
    advertised: SocketAddr,
    answer: String,
    /// `None`: our description is the offer.
    agreed: Option<Agreed>,
    session: u64,
}

async fn begin(
    transport: &Arc<TransportParts>,
    settings: &CallSettings,
    trunk: &TrunkSettings,
    incoming: &antiphon_sip::IncomingCall,
) -> Result<Begun, Refusal> {
    // An address of a trunk stands for many callers.
    let client = Client { is_shared: true, ..Client::direct(incoming.peer.address.ip(), false) };
    let access = &transport.sessions.access;
    let owner = owner(&access.keys.current(), &trunk.key).map_err(|reason| {
        access.security.refused(client, ROUTE, 401, reason);
        refusal(403, "Forbidden")
    })?;
    let session = rand::random::<u64>() >> 1;
    // Whether the description can be answered is known before a port is taken.
    let unbound = SocketAddr::new(settings.ports.advertised(), 9);
    if let Some(offer) = &incoming.offer {
        first_answer(offer, unbound, &settings.codecs, session).map_err(|error| match error {
            SdpError::Malformed => refusal(400, "Bad Session Description"),
            SdpError::NoAudio | SdpError::NoCodec => refusal(488, "Not Acceptable Here"),
        })?;
    }
    let mut parameters = Parameters::default();
    parameters.add_text("route", &trunk.route);
    parameters.add_text("to", incoming.to.as_deref().unwrap_or_default());
    parameters.add_text("from", incoming.from.as_deref().unwrap_or_default());
    let route = transport.telephony.route(&parameters);
    let (session_settings, greeting) = route.map_or((None, None), |route| (route.settings, route.greeting));
    let credential = if owner.is_some() { Credential::Key } else { Credential::Call };
    let caller = Caller { owner, settings: None, credential, language: None };
    let opening = CallOpening {
        mode: AudioMode::Pcm16,
        settings: session_settings,
        model: None,
        intent: Some(SessionKind::Realtime),
        transport: TRANSPORT,
        route: ROUTE,
    };
    let call = Call::open(&transport.sessions, client, caller, opening).map_err(|refused| {
        let is_limit = refused.status == StatusCode::TOO_MANY_REQUESTS;
        let (status, reason) = if is_limit { (486, "Busy Here") } else { (503, "Service Unavailable") };
        Refusal { status, reason, retry_after: Some(refused.retry_after) }
    })?;
    let Some((socket, advertised)) = settings.ports.bind().await else {
        call.conclude("no port");
        tracing::warn!("a call by SIP is refused: no port of sip.rtp_port_min to sip.rtp_port_max is free");
        return Err(Refusal { status: 503, reason: "Service Unavailable", retry_after: Some(Duration::from_secs(5)) });
    };
    let answered = match &incoming.offer {
        Some(offer) => first_answer(offer, advertised, &settings.codecs, session)
            .map(|(answer, agreed)| (answer, Some(agreed)))
            .map_err(|_| refusal(488, "Not Acceptable Here"))?,
        None => {
            let local = Local { address: advertised, codecs: &settings.codecs, session, version: 1 };
            (sdp::offer(local), None)
        }
    };
    let (answer, agreed) = answered;
    Ok(Begun { call, owner, greeting, socket, advertised, answer, agreed, session })
}
