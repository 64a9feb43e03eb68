//! The dialing of calls by SIP: by which trunk, and the call until it is answered or not.
//!
//! [`super::calls_out`] dials what clients ask for, [`super::warm_transfer`] the targets of transfers. How many at a time is
//! in `sip.max_calls_out`. The session is opened before anything rings, so that a call that is answered has its place.

use super::dialogs::{CallControl, Dial, DialogHandle, DialogRefused};
use super::key_events::{KeyEvents, KeySender, key_events};
use super::media::AnsweredDialog;
use super::ports::RtpSockets;
use super::settings::{CallSettings, protection};
use super::transfer::CallOrigin;
use crate::config::{OnVoicemail, SipTransport, SipTrunk, SrtpUse};
use crate::server::access::caller::Caller;
use crate::server::access::security::Act;
use crate::server::edge::client::Client;
use crate::server::sessions::admission;
use crate::server::transport::call::{Call, CallOpening, CallOutput};
use crate::server::transport::calls::{CallState, NewCall};
use crate::server::transport::parts::TransportParts;
use crate::server::transport::telephony::answerer::AnswerPlan;
use crate::server::transport::telephony::number_language::language_of_number;
use crate::server::transport::telephony::outgoing::{
    DialRequest, DialRights, OutgoingEntry, RINGS, ROUTE, check_key, has_number, hold_line, no_target,
};
use crate::server::transport::telephony::recital::Recital;
use crate::server::transport::telephony::recording_notice::{PhoneRecording, RecordingNotice};
use crate::server::transport::telephony::reply_progress::ReplyTracker;
use crate::server::transport::telephony::tools::CallTools;
use crate::server::transport::telephony::transfer_requests::{CallTransfers, TransferRequests};
use crate::server::transport::transfers::DialError;
use antiphon_protocol::{SessionKind, SessionUpdate};
use antiphon_session::AudioMode;
use antiphon_sip::sdp::{self, Agreed, Local, MasterKey};
use antiphon_sip::{EndCause, OutgoingCall, Peer, Transport, TrunkId};
use axum::response::IntoResponse;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::sleep;

/// The transport's name, for logs and turn records.
const TRANSPORT: &str = "sip";
/// What a hub without a name calls itself.
const CALLER: &str = "antiphon";

/// Makes calls by the trunks.
pub(in crate::server) struct Dialer {
    trunks: Vec<DialTrunk>,
    rights: Arc<DialRights>,
    dials: mpsc::Sender<Dial>,
    settings: Arc<CallSettings>,
}

/// A trunk by which calls are made.
pub(super) struct DialTrunk {
    id: TrunkId,
    name: String,
    host: String,
    port: u16,
    transport: Transport,
    srtp: SrtpUse,
    caller: String,
    /// Name of the API key that may call by it; empty: any.
    key: String,
}

impl DialTrunk {
    /// `None`: it has no host.
    pub(super) fn of(id: TrunkId, name: &str, trunk: &SipTrunk) -> Option<Self> {
        let (host, port) = trunk.outbound()?;
        let names = [&trunk.caller, &trunk.register_as, &trunk.username];
        let caller = names.into_iter().find(|name| !name.is_empty()).map_or(CALLER, String::as_str);
        let key = trunk.key.clone();
        let transport = transport_of(trunk);
        let srtp = trunk.srtp;
        Some(Self { id, name: name.to_owned(), host, port, transport, srtp, caller: caller.to_owned(), key })
    }

    /// The URI that this trunk calls for `to`.
    fn target(&self, to: &str) -> String {
        match to.get(..4).filter(|scheme| scheme.eq_ignore_ascii_case("tel:")) {
            Some(_) => {
                let number = to[4..].split(';').next().unwrap_or_default();
                format!("sip:{number}@{}:{};user=phone", self.host, self.port)
            }
            None => to.to_owned(),
        }
    }
}

impl Dialer {
    pub(super) fn new(
        trunks: Vec<DialTrunk>,
        rights: Arc<DialRights>,
        dials: mpsc::Sender<Dial>,
        settings: Arc<CallSettings>,
    ) -> Self {
        Self { trunks, rights, dials, settings }
    }

    /// Whether a trunk has a host.
    pub(in crate::server::transport::telephony) fn has_trunks(&self) -> bool {
        !self.trunks.is_empty()
    }

    /// Begins a call that a client asks for. Returns at once, or within the lookup of the trunk's host, 10 s at most.
    ///
    /// # Errors
    /// [`DialError`].
    pub(super) async fn request(
        &self,
        transport: &Arc<TransportParts>,
        client: Client,
        caller: Caller,
        request: DialRequest,
        settings: Option<Arc<SessionUpdate>>,
    ) -> Result<DialedCall, DialError> {
        if self.trunks.is_empty() {
            return Err(DialError::Off);
        }
        request.check()?;
        let DialRequest { to, from, trunk, account: _, greeting, on_voicemail, voicemail_message } = request;
        self.rights.allow(&to)?;
        let trunk = trunk.map_or(TrunkChoice::First, TrunkChoice::Named);
        let new = NewDial { to, from, trunk, settings, recital: None };
        let mut dialed = self.begin(transport, client, caller, new).await?;
        dialed.greeting = greeting;
        dialed.on_voicemail = on_voicemail.unwrap_or(self.settings.on_voicemail);
        if let Some(message) = voicemail_message {
            dialed.voicemail_message = message;
        }
        Ok(dialed)
    }

    /// Begins a call to a target that the settings allow, within the limits of calls out. Returns as [`Dialer::request`]
    /// does.
    ///
    /// # Errors
    /// [`DialError`].
    pub(super) async fn begin(
        &self,
        transport: &Arc<TransportParts>,
        client: Client,
        caller: Caller,
        new: NewDial,
    ) -> Result<DialedCall, DialError> {
        let NewDial { to, from, trunk, settings, recital } = new;
        if !has_number(&to) {
            return Err(no_target());
        }
        self.rights.check_time()?;
        let trunk = self.trunk(&trunk)?;
        let access = &transport.sessions.access;
        let owner = caller.owner;
        check_key(access, &caller, &trunk.key)?;
        let place = self.rights.take(owner)?;
        let addresses = self.settings.ports.look_up(&trunk.host, trunk.port).await;
        let address = *addresses.first().ok_or(DialError::Unavailable("the trunk's host is not known"))?;
        let admitted = admission::admit(&transport.sessions, client, owner, ROUTE)
            .map_err(|refused| DialError::Refused(Box::new(refused.into_response())))?;
        let Some((sockets, advertised)) = self.settings.ports.bind().await else {
            return Err(DialError::Unavailable("no port of sip.rtp_port_min to sip.rtp_port_max is free"));
        };
        let session = rand::random::<u64>() >> 1;
        let key = MasterKey::new(rand::random());
        let protection = protection(trunk.transport, trunk.srtp, &key);
        let codecs = &self.settings.codecs;
        let local = Local { address: advertised, codecs, session, version: 1, protection };
        let outgoing = OutgoingCall {
            trunk: trunk.id,
            peer: Peer { transport: trunk.transport, address },
            target: trunk.target(&to),
            from: from.unwrap_or_else(|| trunk.caller.clone()),
            offer: sdp::offer(local),
        };
        let (answer, dialed) = oneshot::channel();
        if self.dials.try_send(Dial { outgoing, host: trunk.host.clone(), answer }).is_err() {
            return Err(DialError::NoRoom);
        }
        let Ok(dialed) = dialed.await else {
            return Err(DialError::Unavailable("the hub stops"));
        };
        let (dialog, control) = dialed.map_err(|refused| match refused {
            DialogRefused::NoRoom => DialError::NoRoom,
            DialogRefused::Target => no_target(),
            DialogRefused::Caller => {
                let takes = "The caller has letters, figures, \"+\", \"-\", \"_\" and \".\" only.";
                DialError::Wrong("from", takes.into())
            }
        })?;
        // The called person speaks, not the client that requested the call.
        let caller = Caller { language: language_of_number(&to), ..caller };
        let tasks = transport.sessions.setup.tasks.clone();
        let (transfers, requests) = CallTransfers::new(Some(Arc::new(dialog.referrer())), Some(to), tasks);
        let (key_sender, keys) = key_events();
        let PhoneRecording { recording, notice } = match recital {
            Some(_) => PhoneRecording::of_target(),
            None => transport.telephony.recording.of_call(),
        };
        let tools = match recital {
            Some(_) => None,
            None => self.settings.tools.open(&transfers, Some(Arc::new(key_sender.clone())), &recording),
        };
        let (tools, tracker) = tools.unzip();
        let opening = CallOpening {
            mode: AudioMode::Pcm16,
            settings: settings.clone(),
            model: None,
            intent: Some(SessionKind::Realtime),
            transport: TRANSPORT,
            route: ROUTE,
            by_phone: true,
            tools: tools.as_ref().map(CallTools::server),
            llm: match recital {
                Some(text) => Some(Recital::in_place(text)),
                None => notice.as_ref().map(RecordingNotice::before_model),
            },
            recording_consent: recording.consent(),
        };
        let call = Call::begin(&transport.sessions, admitted, caller, opening);
        hold_line(&call).await;
        let id = call.session().as_str().to_owned();
        let transfer = Some(transfers.to(self.settings.transfer_to.clone()));
        let new = NewCall { call, owner, transport: TRANSPORT, peer_id: None, offers: None, transfer, recording };
        let entry = transport.calls.list(id, new);
        if let Some(tools) = tools {
            tools.ends_by(entry.hung_up().clone());
        }
        let entry = OutgoingEntry::new(entry, self.settings.reports.clone());
        let name = access.keys.name_of(owner);
        access.security.done("call.start", Act { client, owner, name: name.as_deref(), target: entry.id() }, "ok");
        Ok(DialedCall {
            entry,
            settings: self.settings.clone(),
            dialog,
            control,
            tracker,
            keys: (key_sender, keys),
            requests,
            sockets,
            advertised,
            session,
            transport: trunk.transport,
            srtp: trunk.srtp,
            key,
            signaling: address,
            greeting: None,
            notice,
            on_voicemail: self.settings.on_voicemail,
            voicemail_message: self.settings.voicemail_message.clone(),
            origin: CallOrigin { client, owner, trunk: trunk.id, settings },
            place,
        })
    }

    fn trunk(&self, choice: &TrunkChoice) -> Result<&DialTrunk, DialError> {
        let first = self.trunks.first().ok_or(DialError::Off)?;
        match choice {
            TrunkChoice::First => Ok(first),
            TrunkChoice::Preferred(id) => Ok(self.trunks.iter().find(|trunk| trunk.id == *id).unwrap_or(first)),
            TrunkChoice::Named(name) => self.trunks.iter().find(|trunk| trunk.name == *name).ok_or_else(|| {
                let known = self.trunks.iter().map(|trunk| trunk.name.as_str()).collect::<Vec<_>>().join(", ");
                DialError::Wrong("trunk", format!("There is no trunk {name:?} with a host. There are: {known}."))
            }),
        }
    }

    /// What all calls need of the settings.
    pub(super) fn settings(&self) -> &Arc<CallSettings> {
        &self.settings
    }
}

/// A call to a target that may be called.
pub(super) struct NewDial {
    pub(super) to: String,
    /// See [`DialRequest::from`].
    pub(super) from: Option<String>,
    pub(super) trunk: TrunkChoice,
    pub(super) settings: Option<Arc<SessionUpdate>>,
    /// What its session says in the place of a model's replies; `None`: it has a model.
    pub(super) recital: Option<String>,
}

/// Which trunk makes a call.
pub(super) enum TrunkChoice {
    /// The first that has a host.
    First,
    /// This one, or, if it has no host, the first that has one.
    Preferred(TrunkId),
    /// By its name.
    Named(String),
}

/// A call that rings somewhere. Dropping it gives the call up.
pub(super) struct DialedCall {
    pub(super) entry: OutgoingEntry,
    settings: Arc<CallSettings>,
    dialog: DialogHandle,
    control: mpsc::Receiver<CallControl>,
    /// Follows the reply for the call's tools; `None`: it has none.
    pub(super) tracker: Option<ReplyTracker>,
    pub(super) keys: (KeySender, KeyEvents),
    /// Requests to transfer it.
    pub(super) requests: TransferRequests,
    sockets: RtpSockets,
    advertised: SocketAddr,
    /// The number of our description.
    session: u64,
    transport: Transport,
    srtp: SrtpUse,
    /// Our key for SRTP.
    key: MasterKey,
    signaling: SocketAddr,
    pub(super) greeting: Option<String>,
    /// Said before that; `None`: nothing is.
    notice: Option<RecordingNotice>,
    pub(super) on_voicemail: OnVoicemail,
    pub(super) voicemail_message: String,
    pub(super) origin: CallOrigin,
    /// Its place among the calls at a time.
    pub(super) place: OwnedSemaphorePermit,
}

/// What was answered of a [`DialedCall`], and the rest of it.
pub(super) struct AnsweredDial {
    pub(super) dialog: AnsweredDialog,
    pub(super) entry: OutgoingEntry,
    pub(super) tracker: Option<ReplyTracker>,
    pub(super) keys: (KeySender, KeyEvents),
    pub(super) requests: TransferRequests,
    pub(super) greeting: Option<String>,
    /// Said before that; `None`: nothing is.
    pub(super) notice: Option<RecordingNotice>,
    /// What the call does about who has answered.
    pub(super) plan: AnswerPlan,
    pub(super) origin: CallOrigin,
    pub(super) place: OwnedSemaphorePermit,
}

impl DialedCall {
    /// Waits for the answer, 60 s at most. Where there is none, that is listed, reported and given.
    pub(super) async fn answered(mut self) -> Result<AnsweredDial, CallState> {
        let agreed = match self.agreed().await {
            Ok(agreed) => agreed,
            Err(state) => {
                self.entry.is_now(state);
                self.entry.call().conclude("not answered");
                tracing::info!(session = %self.entry.call().session(), ?state, "a call out by SIP is not answered");
                return Err(state);
            }
        };
        self.requests.begin();
        self.entry.is_now(CallState::InProgress);
        let Self { entry, dialog, control, tracker, keys, requests, greeting, notice, origin, place, .. } = self;
        let Self { sockets, advertised, session, signaling, on_voicemail, voicemail_message, .. } = self;
        let plan = entry.plan(on_voicemail, voicemail_message);
        let signaling = signaling.ip();
        let dialog = AnsweredDialog { dialog, control, sockets, advertised, session, signaling, agreed };
        Ok(AnsweredDial { dialog, entry, tracker, keys, requests, greeting, notice, plan, origin, place })
    }

    async fn agreed(&mut self) -> Result<Agreed, CallState> {
        let hung_up = self.entry.hung_up().clone();
        let mut is_ringing = false;
        let rings = sleep(RINGS);
        tokio::pin!(rings);
        loop {
            tokio::select! {
                biased;
                () = hung_up.cancelled() => return Err(CallState::Ended),
                () = self.dialog.ended() => return Err(state_of(self.dialog.cause())),
                () = &mut rings => return Err(CallState::NoAnswer),
                // A session whose output nobody takes ends after 10 s.
                output = self.entry.call().next() => match output {
                    CallOutput::Event(event) => self.entry.publish_unanswered(&event),
                    // None comes: what has sound waits for the answer.
                    CallOutput::Audio(_) => {}
                    CallOutput::Closed(_) => return Err(CallState::Ended),
                },
                control = self.control.recv() => match control {
                    Some(CallControl::Ringing) if !is_ringing => {
                        is_ringing = true;
                        self.entry.is_now(CallState::Ringing);
                    }
                    Some(CallControl::Connected(answer)) => {
                        let local = Local {
                            address: self.advertised,
                            codecs: &self.settings.codecs,
                            session: self.session,
                            version: 1,
                            protection: protection(self.transport, self.srtp, &self.key),
                        };
                        return sdp::read_answer(&answer.unwrap_or_default(), local).map_err(|_| CallState::Failed);
                    }
                    // It rings on, or something came before the answer.
                    Some(_) => {}
                    None => return Err(CallState::Failed),
                },
            }
        }
    }
}

pub(super) fn transport_of(trunk: &SipTrunk) -> Transport {
    match trunk.transport {
        SipTransport::Udp => Transport::Udp,
        SipTransport::Tcp => Transport::Tcp,
        SipTransport::Tls => Transport::Tls,
    }
}

/// What became of a call that was not answered (RFC 3261, section 21).
fn state_of(cause: Option<EndCause>) -> CallState {
    match cause {
        Some(EndCause::Refused(486 | 600)) => CallState::Busy,
        Some(EndCause::Refused(603 | 403)) => CallState::Declined,
        Some(EndCause::Refused(408 | 480)) | Some(EndCause::Unanswered) => CallState::NoAnswer,
        _ => CallState::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_called_at_the_trunks_host_and_an_address_as_it_is() {
        let trunk = SipTrunk { host: "sip.example.com:5070".into(), username: "4711".into(), ..SipTrunk::default() };
        let trunk = DialTrunk::of(TrunkId(0), "provider", &trunk).expect("it has a host");
        assert_eq!(trunk.target("tel:+4930123;phone-context=x"), "sip:+4930123@sip.example.com:5070;user=phone");
        assert_eq!(trunk.target("sip:office@pbx.example.com"), "sip:office@pbx.example.com");
        assert_eq!(trunk.caller, "4711");
        assert!(DialTrunk::of(TrunkId(0), "phones", &SipTrunk::default()).is_none());
    }
}
