//! The INVITE of a call that we make: sent again, challenged, answered, refused or cancelled (RFC 3261, sections 9.1, 13.2 and
//! 17.1.1).
//!
//! [`Endpoint::invite`] begins it; the rest is called by [`super`] for responses and deadlines. Once it is answered, the call is
//! one like any other.

use super::{Call, Dialog, Phase, Resend, SessionTimer, is_transfer_target, session_expires};
use crate::endpoint::timers::TimerOwner;
use crate::endpoint::{
    ALLOW, CallId, EndCause, Endpoint, Event, MAX_CALLS, MIN_SESSION, Peer, TRANSACTION, Transport, TrunkId,
};
use crate::message::{Message, Method};
use bytes::Bytes;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The longest ringing. An INVITE inside a dialog waits as long for its final response.
pub(super) const RINGS: Duration = Duration::from_secs(180);
/// The longest name of a caller.
const MAX_USER_BYTES: usize = 64;

/// A call to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingCall {
    /// Whose credentials answer a challenge.
    pub trunk: TrunkId,
    /// Where the INVITE goes.
    pub peer: Peer,
    /// The URI that is called.
    pub target: String,
    /// The number or name of the caller.
    pub from: String,
    /// Our description.
    pub offer: String,
}

/// Why a call is not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InviteError {
    /// The caller's name has other characters than letters, figures, `+`, `-`, `_` and `.`, or too many.
    #[error("the caller cannot be named so")]
    Caller,
    /// The target is no URI that can be called.
    #[error("the target cannot be called so")]
    Target,
    /// There are [`MAX_CALLS`], among them those that still end.
    #[error("there are too many calls")]
    Full,
}

/// See the module.
pub(in crate::endpoint) struct ClientInvite {
    branch: String,
    /// Without `Via`, with the credentials that answer the last challenge.
    request: Message,
    bytes: Bytes,
    resend: Option<Resend>,
    gives_up_at: Instant,
    progress: InviteProgress,
    /// What answers a final response that comes again.
    acknowledgement: Option<Bytes>,
    n_proofs: u8,
    /// Whether a CANCEL was sent.
    is_cancelled: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InviteProgress {
    /// Nothing has answered.
    Calling,
    Proceeding,
    /// It has a final response.
    Completed,
}

impl ClientInvite {
    pub(super) fn branch(&self) -> &str {
        &self.branch
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if self.progress == InviteProgress::Completed {
            return None;
        }
        let resend = self.resend.map(|resend| resend.at);
        Some(resend.map_or(self.gives_up_at, |at| at.min(self.gives_up_at)))
    }
}

/// Whether a caller can be named so: letters, figures, `+`, `-`, `_`, `.`.
fn is_user(user: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-_.".contains(&byte);
    !user.is_empty() && user.len() <= MAX_USER_BYTES && user.bytes().all(is_plain)
}

impl Endpoint {
    /// Calls a target. [`Event::Ringing`], [`Event::Answered`] or [`Event::Ended`] follow; [`Endpoint::hang_up`] gives up.
    ///
    /// # Errors
    /// [`InviteError`].
    pub fn invite(&mut self, now: Instant, outgoing: OutgoingCall) -> Result<CallId, InviteError> {
        let OutgoingCall { trunk, peer, target, from, offer } = outgoing;
        if !is_user(&from) {
            return Err(InviteError::Caller);
        }
        if !is_transfer_target(&target) {
            return Err(InviteError::Target);
        }
        if self.calls.len() >= MAX_CALLS {
            return Err(InviteError::Full);
        }
        let id = self.next_call();
        let tag = self.random();
        let host = match self.config.advertised.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let call_id = format!("{}@{host}", self.random());
        let local = format!("<sip:{from}@{host}>;tag={tag}");
        let mut request = Message::request(Method::Invite, target.clone());
        request.add("max-forwards", "70");
        request.add("from", local.clone());
        request.add("to", format!("<{target}>"));
        request.add("call-id", call_id.clone());
        request.add("cseq", "0 INVITE");
        request.add("contact", self.contact(peer.transport));
        request.add("user-agent", self.config.agent.clone());
        request.add("allow", ALLOW);
        request.add("supported", "timer");
        request.add("content-type", "application/sdp");
        let description = Bytes::from(offer);
        request.body = description.clone();
        let dialog = Dialog {
            call_id: call_id.clone(),
            local,
            local_tag: tag.clone(),
            remote: format!("<{target}>"),
            remote_tag: String::new(),
            target,
            routes: Vec::new(),
            local_sequence: 0,
            remote_sequence: 0,
            has_update: false,
        };
        let mut call = Call::new(trunk, peer, Phase::Calling, dialog);
        call.description = description;
        call.client_invite = Some(ClientInvite {
            branch: String::new(),
            request,
            bytes: Bytes::new(),
            resend: None,
            gives_up_at: now + TRANSACTION,
            progress: InviteProgress::Calling,
            acknowledgement: None,
            n_proofs: 0,
            is_cancelled: false,
        });
        self.by_dialog.insert((call_id, tag), id);
        self.calls.insert(id, call);
        self.send_invite(now, id, None);
        Ok(id)
    }

    /// Sends the INVITE with a number of its own, and with a proof: the header and its value.
    fn send_invite(&mut self, now: Instant, call: CallId, proof: Option<(&str, String)>) {
        let branch = self.branch();
        let Some(entry) = self.calls.get(&call) else { return };
        let via = self.via(entry.peer.transport, &branch);
        let Some(entry) = self.calls.get_mut(&call) else { return };
        let peer = entry.peer;
        entry.dialog.local_sequence += 1;
        let sequence = format!("{} INVITE", entry.dialog.local_sequence);
        let Some(invite) = &mut entry.client_invite else { return };
        invite.request.set("cseq", sequence);
        if let Some((name, value)) = proof {
            invite.request.set(name, value);
        }
        let mut request = invite.request.clone();
        request.add("via", via);
        let bytes = request.write();
        let before = std::mem::replace(&mut invite.branch, branch.clone());
        invite.bytes = bytes.clone();
        invite.resend = (peer.transport == Transport::Udp).then(|| Resend::new(now));
        invite.gives_up_at = now + TRANSACTION;
        invite.progress = InviteProgress::Calling;
        self.by_branch.remove(&before);
        self.by_branch.insert(branch, TimerOwner::Call(call));
        self.send(peer, bytes);
        self.reschedule(call);
    }

    /// A response to the INVITE.
    pub(super) fn invite_response(&mut self, now: Instant, call: CallId, status: u16, message: &Message) {
        let Some(entry) = self.calls.get_mut(&call) else { return };
        let Some(invite) = &mut entry.client_invite else { return };
        if invite.progress == InviteProgress::Completed {
            // What is acknowledged comes again where the acknowledgement was lost.
            let again = invite.acknowledgement.clone().filter(|_| status >= 200);
            let peer = entry.peer;
            if let Some(bytes) = again {
                self.send(peer, bytes);
            }
            return;
        }
        if status < 200 {
            let is_first = invite.progress == InviteProgress::Calling;
            invite.progress = InviteProgress::Proceeding;
            invite.resend = None;
            if is_first {
                invite.gives_up_at = now + RINGS;
            }
            if entry.hangs_up {
                self.cancel_invite(now, call);
            } else if matches!(status, 180 | 183) {
                self.event(Event::Ringing { call });
            }
            self.reschedule(call);
            return;
        }
        invite.progress = InviteProgress::Completed;
        invite.resend = None;
        match status {
            200..300 => self.invite_answered(now, call, message),
            401 | 407 => self.invite_challenged(now, call, status, message),
            _ => self.invite_refused(now, call, status, message),
        }
    }

    fn invite_answered(&mut self, now: Instant, call: CallId, message: &Message) {
        let Some(entry) = self.calls.get_mut(&call) else { return };
        let hangs_up = entry.hangs_up || entry.phase == Phase::Ended;
        let peer = entry.peer;
        let dialog = &mut entry.dialog;
        if let Some(to) = message.get("to") {
            dialog.remote = to.to_owned();
        }
        dialog.remote_tag = message.to().and_then(|to| to.tag().map(str::to_owned)).unwrap_or_default();
        if let Some(contact) = message.contact() {
            dialog.target = contact.uri;
        }
        dialog.routes = message.list("record-route").map(str::to_owned).collect();
        dialog.routes.reverse();
        dialog.has_update = message.lists("allow", "UPDATE");
        if let Some((interval, refresher)) = session_expires(message) {
            let we_refresh = refresher.as_deref() != Some("uas");
            entry.session = SessionTimer::begin(now, interval.max(MIN_SESSION), we_refresh);
        }
        entry.phase = Phase::Connected;
        let invite = entry.client_invite.as_ref().map(|invite| invite.request.clone());
        let Some(ack) = invite.and_then(|invite| self.acknowledgement(call, &invite)) else { return };
        let bytes = ack.write();
        if let Some(invite) = self.calls.get_mut(&call).and_then(|entry| entry.client_invite.as_mut()) {
            invite.acknowledgement = Some(bytes.clone());
        }
        self.send(peer, bytes);
        if hangs_up {
            self.say_bye(now, call);
            return;
        }
        self.event(Event::Answered { call, answer: message.body.clone() });
        self.reschedule(call);
    }

    /// What acknowledges an answer to this INVITE: to the contact, in a transaction of its own, with the INVITE's
    /// number and credentials (RFC 3261, section 13.2.2.4).
    pub(super) fn acknowledgement(&mut self, call: CallId, invite: &Message) -> Option<Message> {
        let (number, _) = invite.sequence()?;
        let branch = self.branch();
        let entry = self.calls.get(&call)?;
        let dialog = &entry.dialog;
        let mut ack = Message::request(Method::Ack, dialog.target.clone());
        for route in &dialog.routes {
            ack.add("route", route.clone());
        }
        ack.add("max-forwards", "70");
        ack.add("from", dialog.local.clone());
        ack.add("to", dialog.remote.clone());
        ack.add("call-id", dialog.call_id.clone());
        ack.add("cseq", format!("{number} ACK"));
        for name in ["authorization", "proxy-authorization"] {
            for credentials in invite.all(name) {
                ack.add(name, credentials);
            }
        }
        ack.add("via", self.via(entry.peer.transport, &branch));
        Some(ack)
    }

    fn invite_challenged(&mut self, now: Instant, call: CallId, status: u16, message: &Message) {
        self.acknowledge_refusal(call, message);
        let Some(entry) = self.calls.get(&call) else { return };
        let Some(invite) = &entry.client_invite else { return };
        let trunk = entry.trunk;
        let hangs_up = entry.hangs_up;
        let n_proofs = invite.n_proofs;
        let request = invite.request.clone();
        let Some(proof) = self.proof(trunk, &request, n_proofs, status, message).filter(|_| !hangs_up) else {
            self.end_with(now, call, EndCause::Refused(status));
            return;
        };
        if let Some(invite) = self.calls.get_mut(&call).and_then(|entry| entry.client_invite.as_mut()) {
            invite.n_proofs += 1;
        }
        self.send_invite(now, call, Some(proof));
    }

    fn invite_refused(&mut self, now: Instant, call: CallId, status: u16, message: &Message) {
        self.acknowledge_refusal(call, message);
        self.end_with(now, call, EndCause::Refused(status));
    }

    /// Acknowledges a final response that is no answer: within the INVITE's transaction.
    fn acknowledge_refusal(&mut self, call: CallId, message: &Message) {
        let Some(entry) = self.calls.get_mut(&call) else { return };
        let peer = entry.peer;
        let Some(invite) = &mut entry.client_invite else { return };
        let via = message.list("via").next().unwrap_or_default().to_owned();
        let Some(mut ack) = within_transaction(&invite.request, Method::Ack, &via) else { return };
        if let Some(to) = message.get("to") {
            ack.set("to", to.to_owned());
        }
        let bytes = ack.write();
        invite.acknowledgement = Some(bytes.clone());
        self.send(peer, bytes);
    }

    /// Takes the INVITE back, once something has answered it. Further calls change nothing.
    pub(super) fn cancel_invite(&mut self, now: Instant, call: CallId) {
        let Some(entry) = self.calls.get_mut(&call) else { return };
        entry.hangs_up = true;
        let peer = entry.peer;
        let Some(invite) = &mut entry.client_invite else { return };
        if invite.progress != InviteProgress::Proceeding || invite.is_cancelled {
            return;
        }
        invite.is_cancelled = true;
        invite.gives_up_at = now + TRANSACTION;
        let branch = invite.branch.clone();
        let request = invite.request.clone();
        let via = self.via(peer.transport, &branch);
        let Some(cancel) = within_transaction(&request, Method::Cancel, &via) else { return };
        self.request_sent_again(now, call, branch, cancel, 0);
    }

    /// The INVITE cannot be sent, or its answer cannot come (RFC 3261, section 18.4).
    pub(in crate::endpoint) fn invite_unsent(&mut self, now: Instant, call: CallId) {
        let Some(invite) = self.calls.get_mut(&call).and_then(|entry| entry.client_invite.as_mut()) else { return };
        invite.progress = InviteProgress::Completed;
        self.end_with(now, call, EndCause::Failed);
    }

    /// What is due of the INVITE: it is sent again, or given up. Returns why the call ends.
    pub(super) fn invite_is_due(&mut self, now: Instant, call: CallId) -> Option<EndCause> {
        let entry = self.calls.get_mut(&call)?;
        let peer = entry.peer;
        let invite = entry.client_invite.as_mut().filter(|invite| invite.progress != InviteProgress::Completed)?;
        if invite.gives_up_at <= now {
            let is_ringing = invite.progress == InviteProgress::Proceeding && !entry.hangs_up;
            if is_ringing {
                self.event(Event::Ended { call, cause: EndCause::Unanswered });
                self.cancel_invite(now, call);
                return None;
            }
            invite.progress = InviteProgress::Completed;
            return Some(EndCause::Failed);
        }
        let resend = invite.resend.as_mut().filter(|resend| resend.at <= now)?;
        resend.again_without_limit(now);
        let bytes = invite.bytes.clone();
        self.send(peer, bytes);
        None
    }
}

/// A request of the INVITE's own transaction, with its URI, routes, number and `Via`.
pub(super) fn within_transaction(invite: &Message, method: Method, via: &str) -> Option<Message> {
    let crate::message::StartLine::Request { uri, .. } = &invite.start else { return None };
    let (number, _) = invite.sequence()?;
    let mut request = Message::request(method.clone(), uri.clone());
    // Nothing that the peer has added.
    let via: Vec<&str> = via.split(';').filter(|part| !part.trim_start().starts_with("received=")).collect();
    request.add("via", via.join(";"));
    for route in invite.all("route") {
        request.add("route", route.to_owned());
    }
    request.add("max-forwards", "70");
    for name in ["from", "to", "call-id"] {
        request.add(name, invite.get(name)?.to_owned());
    }
    request.add("cseq", format!("{number} {method}"));
    Some(request)
}
