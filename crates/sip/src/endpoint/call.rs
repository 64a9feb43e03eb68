//! One dialog: its INVITE transaction, requests inside it in both directions, its session timer, its end.
//!
//! The methods of [`Endpoint`] here are what an embedder calls for a call, and what happens to a call when a message or
//! its time comes.

pub(super) mod outgoing;
mod refresh;

use super::timers::TimerOwner;
use super::{
    ALLOW, CallId, EndCause, Endpoint, Event, MIN_SESSION, Peer, Received, T1, T2, T4, TRANSACTION, TransactionKey,
    TransferProgress, Transport, TrunkId, body_of, is_known_extension, response_target, with_source,
};
use crate::digest::Fields;
use crate::header::Parameters;
use crate::message::{Message, Method, StartLine};
use crate::uri::{Uri, escape};
use bytes::Bytes;
use outgoing::{ClientInvite, RINGS};
use refresh::{InviteAcknowledgement, SessionTimer};
use std::time::{Duration, Instant};

/// An embedder that leaves a call without an answer loses it after this time.
const UNANSWERED: Duration = Duration::from_secs(180);
/// The option tag of reliable provisional responses (RFC 3262), and the number of the only one of a call.
const RELIABLE: &str = "100rel";
const FIRST_RELIABLE: u32 = 1;
/// The status of a request without an answer (RFC 3261, section 8.1.3.1).
const TIMED_OUT: u16 = 408;
/// The longest target of a transfer.
const MAX_TARGET_BYTES: usize = 256;
/// Requests of ours in a dialog at a time.
const MAX_REQUESTS: usize = 4;
/// Challenges of one request that are answered: a nonce may be stale once.
const MAX_PROOFS: u8 = 2;

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It waits for the peer's answer.
    Calling,
    /// It waits for the embedder's answer.
    Offered,
    /// It was answered; the acknowledgement may be on its way.
    Answered,
    Connected,
    /// It is kept for messages that come again.
    Ended,
}

/// A dialog.
pub(super) struct Call {
    pub(super) trunk: TrunkId,
    /// Where its last request came from: where ours go.
    pub(super) peer: Peer,
    pub(super) phase: Phase,
    dialog: Dialog,
    pub(super) invite: Option<ServerInvite>,
    /// Of a call that we make.
    client_invite: Option<ClientInvite>,
    /// An UPDATE with an offer that the embedder has to answer.
    update: Option<(Message, TransactionKey, Peer)>,
    requests: Vec<ClientRequest>,
    /// Our description as it was sent last, which a refresh by INVITE repeats.
    description: Bytes,
    session: SessionTimer,
    /// Of the last refresh by INVITE.
    acknowledgement: Option<InviteAcknowledgement>,
    /// The peer calls the target of a transfer, and will say how that ends.
    transfers: bool,
    /// The embedder has hung up before the acknowledgement came.
    hangs_up: bool,
    /// When an ended call is forgotten.
    forgotten_at: Option<Instant>,
}

struct Dialog {
    call_id: String,
    /// Our side, with its tag, as in `From` of our requests.
    local: String,
    local_tag: String,
    remote: String,
    remote_tag: String,
    /// The request URI of our requests.
    target: String,
    routes: Vec<String>,
    local_sequence: u32,
    remote_sequence: u32,
    /// Whether the peer understands UPDATE.
    has_update: bool,
}

/// An INVITE that the peer sent: of the call, or of a change to it.
pub(super) struct ServerInvite {
    key: TransactionKey,
    request: Message,
    is_first: bool,
    /// The last response.
    response: Option<Bytes>,
    status: u16,
    resend: Option<Resend>,
    gives_up_at: Instant,
    is_acknowledged: bool,
    /// A provisional response that the peer has to acknowledge.
    reliable: Option<ReliableResponse>,
}

/// A provisional response that is sent again until a PRACK comes (RFC 3262).
struct ReliableResponse {
    /// Its `RSeq`.
    number: u32,
    gives_up_at: Instant,
    is_acknowledged: bool,
}

/// A request of ours in the dialog.
struct ClientRequest {
    branch: String,
    method: Method,
    /// As it was sent, with its proof.
    request: Message,
    bytes: Bytes,
    resend: Option<Resend>,
    gives_up_at: Instant,
    /// A provisional response has come.
    is_proceeding: bool,
    /// Challenges that were answered.
    n_proofs: u8,
}

/// When something is sent again.
#[derive(Clone, Copy)]
struct Resend {
    at: Instant,
    interval: Duration,
}

impl Resend {
    fn new(now: Instant) -> Self {
        Self { at: now + T1, interval: T1 }
    }

    fn again(&mut self, now: Instant) {
        self.interval = (2 * self.interval).min(T2);
        self.at = now + self.interval;
    }

    /// An INVITE's interval doubles without a limit.
    fn again_without_limit(&mut self, now: Instant) {
        self.interval *= 2;
        self.at = now + self.interval;
    }
}

impl ServerInvite {
    pub(super) fn new(key: TransactionKey, request: Message, is_first: bool, now: Instant) -> Self {
        Self {
            key,
            request,
            is_first,
            response: None,
            status: 0,
            resend: None,
            gives_up_at: now + UNANSWERED,
            is_acknowledged: false,
            reliable: None,
        }
    }

    /// Whether provisional responses have to be acknowledged.
    fn requires_reliable(&self) -> bool {
        self.request.lists("require", RELIABLE)
    }

    /// Whether a PRACK of the peer is waited for.
    fn awaits_prack(&self) -> bool {
        !self.is_final() && self.reliable.as_ref().is_some_and(|reliable| !reliable.is_acknowledged)
    }

    fn is_final(&self) -> bool {
        self.status >= 200
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.is_acknowledged {
            return None;
        }
        let resend = self.resend.map(|resend| resend.at);
        let reliable = self.reliable.as_ref().filter(|_| self.awaits_prack()).map(|reliable| reliable.gives_up_at);
        resend.into_iter().chain(reliable).chain([self.gives_up_at]).min()
    }
}

impl Call {
    /// A call by this INVITE. `None`: it lacks what a dialog needs.
    pub(super) fn incoming(request: &Message, trunk: TrunkId, peer: Peer, tag: &str) -> Option<Self> {
        let from = request.from()?;
        // Senders before RFC 3261 name no contact.
        let target = request.contact().map_or_else(|| from.uri.clone(), |contact| contact.uri);
        let dialog = Dialog {
            call_id: request.get("call-id")?.to_owned(),
            local: format!("{};tag={tag}", request.get("to")?),
            local_tag: tag.to_owned(),
            remote: request.get("from")?.to_owned(),
            remote_tag: from.tag().unwrap_or_default().to_owned(),
            target,
            routes: request.list("record-route").map(str::to_owned).collect(),
            local_sequence: 0,
            remote_sequence: request.sequence()?.0,
            has_update: request.lists("allow", "UPDATE"),
        };
        Some(Self::new(trunk, peer, Phase::Offered, dialog))
    }

    fn new(trunk: TrunkId, peer: Peer, phase: Phase, dialog: Dialog) -> Self {
        Self {
            trunk,
            peer,
            phase,
            dialog,
            invite: None,
            client_invite: None,
            update: None,
            requests: Vec::new(),
            description: Bytes::new(),
            session: SessionTimer::default(),
            acknowledgement: None,
            transfers: false,
            hangs_up: false,
            forgotten_at: None,
        }
    }

    /// Whether a message comes without TLS in a dialog that began by it. Keys for SRTP are in its descriptions.
    fn is_less_secure(&self, from: Peer) -> bool {
        self.peer.transport == Transport::Tls && from.transport != Transport::Tls
    }

    /// Whether a change that the peer wants is under way.
    fn is_changing(&self) -> bool {
        self.update.is_some() || self.invite.as_ref().is_some_and(|invite| !invite.is_acknowledged)
    }

    /// Whether an INVITE of ours inside the dialog is under way.
    fn is_inviting(&self) -> bool {
        self.requests.iter().any(|request| request.method == Method::Invite)
    }

    /// Whether it takes a place among the calls that begin.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self.phase, Phase::Offered | Phase::Answered)
            || self.phase == Phase::Ended && self.invite.as_ref().is_some_and(|invite| !invite.is_acknowledged)
    }

    /// Whether a request without our tag is of the same call by another way.
    pub(super) fn is_merged_with(&self, call_id: &str, remote_tag: &str) -> bool {
        self.phase != Phase::Ended && self.dialog.call_id == call_id && self.dialog.remote_tag == remote_tag
    }

    fn next_deadline(&self) -> Option<Instant> {
        let invite = self.invite.as_ref().and_then(ServerInvite::next_deadline);
        let requests = self.requests.iter().map(|request| {
            let resend = request.resend.map(|resend| resend.at);
            resend.map_or(request.gives_up_at, |at| at.min(request.gives_up_at))
        });
        let session = self.session.at.filter(|_| self.phase == Phase::Connected);
        let client_invite = self.client_invite.as_ref().and_then(ClientInvite::next_deadline);
        requests.chain(invite).chain(client_invite).chain(session).chain(self.forgotten_at).min()
    }
}

/// The interval and the refresher of a `Session-Expires`.
pub(super) fn session_expires(message: &Message) -> Option<(Duration, Option<String>)> {
    let value = message.get("session-expires")?;
    let mut parts = value.split(';').map(str::trim);
    let seconds = parts.next()?.parse::<u32>().ok()?;
    let refresher = parts.find_map(|part| part.strip_prefix("refresher=").map(str::to_ascii_lowercase));
    Some((Duration::from_secs(u64::from(seconds)), refresher))
}

/// The key of an INFO: `application/dtmf-relay` or `application/dtmf`.
fn key_of_info(message: &Message) -> Option<char> {
    let kind = message.get("content-type")?.split(';').next()?.trim().to_ascii_lowercase();
    let body = std::str::from_utf8(&message.body).ok()?;
    let text = match kind.as_str() {
        "application/dtmf-relay" => body.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            name.trim().eq_ignore_ascii_case("signal").then(|| value.trim())
        })?,
        "application/dtmf" => body.trim(),
        _ => return None,
    };
    let mut characters = text.chars();
    let key = match (characters.next()?, characters.next()) {
        (key, None) => key.to_ascii_uppercase(),
        ('1', Some('0')) => '*',
        ('1', Some('1')) => '#',
        _ => return None,
    };
    matches!(key, '0'..='9' | '*' | '#' | 'A'..='D').then_some(key)
}

/// Whether a PRACK is of this provisional response, by its `RAck`, to the INVITE with this number.
fn acknowledges(message: &Message, reliable: u32, number: u32) -> bool {
    let mut words = message.get("rack").unwrap_or_default().split_ascii_whitespace();
    let is = |word: Option<&str>, value: u32| word.and_then(|word| word.parse().ok()) == Some(value);
    is(words.next(), reliable) && is(words.next(), number) && words.next() == Some("INVITE") && words.next().is_none()
}

/// The status of a `message/sipfrag` (RFC 3420): the second word of its first line.
fn status_of_fragment(body: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(body).ok()?;
    let mut words = text.lines().next()?.split(' ');
    let version = words.next()?;
    version.eq_ignore_ascii_case("SIP/2.0").then(|| words.next()?.parse().ok())?
}

/// Whether a call can be transferred to this URI: `sip:`, `sips:` or `tel:`, without anything that ends it in a header.
pub fn is_transfer_target(target: &str) -> bool {
    let is_plain = target.len() <= MAX_TARGET_BYTES && target.bytes().all(|byte| byte.is_ascii_graphic());
    let is_number = target.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("tel:")) && target.len() > 4;
    is_plain
        && !target.contains(['<', '>', '"', ','])
        && (is_number || Uri::parse(target).is_some_and(|uri| !uri.has_headers))
}

impl Endpoint {
    /// The phone rings. Does nothing where the call is no longer offered. A peer that requires it has to acknowledge that;
    /// one that requires it and makes no offer is not told, since it would need ours first (RFC 3262, section 5).
    pub fn ring(&mut self, now: Instant, call: CallId) {
        if self.phase_of(call) != Some(Phase::Offered) {
            return;
        }
        let Some(invite) = self.calls.get_mut(&call).and_then(|entry| entry.invite.as_mut()) else { return };
        if invite.requires_reliable() {
            if invite.request.body.is_empty() || invite.reliable.is_some() {
                return;
            }
            let gives_up_at = now + TRANSACTION;
            invite.reliable = Some(ReliableResponse { number: FIRST_RELIABLE, gives_up_at, is_acknowledged: false });
            invite.resend = Some(Resend::new(now));
        }
        self.provisional(call, 180, "Ringing");
        self.reschedule(call);
    }

    /// Answers a call with our description. Does nothing where the call is no longer offered.
    pub fn accept(&mut self, now: Instant, call: CallId, sdp: &str) {
        if self.phase_of(call) != Some(Phase::Offered) {
            return;
        }
        if let Some(entry) = self.calls.get_mut(&call) {
            entry.phase = Phase::Answered;
        }
        self.answer_invite(now, call, sdp);
    }

    /// Refuses a call. Does nothing where the call is no longer offered.
    pub fn refuse(&mut self, now: Instant, call: CallId, status: u16, reason: &str, retry_after: Option<Duration>) {
        if self.phase_of(call) == Some(Phase::Offered) {
            self.refuse_invite(now, call, status, reason, retry_after);
            self.end(now, call);
        }
    }

    /// Answers an [`Event::Offer`]: our description, or a status that refuses the change.
    pub fn answer_offer(&mut self, now: Instant, call: CallId, answer: Result<&str, u16>) {
        let Some(entry) = self.calls.get_mut(&call) else { return };
        if let Some((request, key, to)) = entry.update.take() {
            let received = Received { message: &request, method: Method::Update, from: to, n_bytes: usize::MAX, key };
            match answer {
                Ok(sdp) => {
                    let mut response = self.accepted(now, call, &request, 200);
                    self.describe(call, &mut response, sdp);
                    self.answer(now, &received, &response);
                }
                Err(status) => {
                    let response = request.answer(status, "Not Acceptable Here", None);
                    self.answer(now, &received, &response);
                }
            }
            self.reschedule(call);
            return;
        }
        let waits = entry.invite.as_ref().is_some_and(|invite| !invite.is_first && !invite.is_final());
        if !waits || entry.phase != Phase::Connected {
            return;
        }
        match answer {
            Ok(sdp) => self.answer_invite(now, call, sdp),
            Err(status) => self.refuse_invite(now, call, status, "Not Acceptable Here", None),
        }
        self.reschedule(call);
    }

    /// Ends a call: refuses it where it was not answered, else by BYE.
    pub fn hang_up(&mut self, now: Instant, call: CallId) {
        let Some(entry) = self.calls.get_mut(&call) else { return };
        match entry.phase {
            Phase::Calling => self.cancel_invite(now, call),
            Phase::Offered => self.refuse(now, call, 603, "Decline", None),
            // The peer may not get a BYE before it has the answer (RFC 3261, section 15).
            Phase::Answered => entry.hangs_up = true,
            Phase::Connected => self.say_bye(now, call),
            Phase::Ended => {}
        }
    }

    /// Asks the peer to call `target` in our place (RFC 3515); [`Event::Transfer`] says what comes of it. `false`: the call is
    /// not connected, the peer has not answered an earlier one, or `target` is no URI of SIP or of a telephone number.
    pub fn refer(&mut self, now: Instant, call: CallId, target: &str) -> bool {
        is_transfer_target(target) && self.refer_to(now, call, &format!("<{target}>"))
    }

    /// Asks the peer to take our place in the call `replaced`, at that call's peer (RFC 5589, section 7);
    /// [`Event::Transfer`] says what comes of it. `false`: one of the calls is not connected, the peer has not answered an
    /// earlier request, or the other peer has no address for that.
    pub fn refer_replacing(&mut self, now: Instant, call: CallId, replaced: CallId) -> bool {
        let Some(other) = self.calls.get(&replaced).filter(|other| other.phase == Phase::Connected) else {
            return false;
        };
        let Dialog { call_id, remote_tag, local_tag, target, .. } = &other.dialog;
        if !is_transfer_target(target) || Uri::parse(target).is_none() {
            return false;
        }
        // The tags are those of the peer that gets the INVITE: first its own (RFC 3891, section 3).
        let replaces = escape(&format!("{call_id};to-tag={remote_tag};from-tag={local_tag}"));
        let refer_to = format!("<{target}?Replaces={replaces}>");
        self.refer_to(now, call, &refer_to)
    }

    fn refer_to(&mut self, now: Instant, call: CallId, refer_to: &str) -> bool {
        let Some(entry) = self.calls.get(&call) else { return false };
        let is_pending = entry.requests.iter().any(|request| request.method == Method::Refer);
        let has_room = entry.requests.len() < MAX_REQUESTS;
        if entry.phase != Phase::Connected || is_pending || !has_room {
            return false;
        }
        let local = entry.dialog.local.clone();
        let referred_by = local.split(";tag=").next().unwrap_or_default();
        let headers = [("refer-to", refer_to), ("referred-by", referred_by)];
        self.request_of_call(now, call, Method::Refer, &headers, Bytes::new())
    }

    /// How a call with this `Replaces` is refused: calls are not replaced here (RFC 3891, section 3).
    pub(super) fn refusal_of_replacement(&self, replaces: &str) -> (u16, &'static str) {
        const UNKNOWN: (u16, &str) = (481, "Call Does Not Exist");
        let (call_id, rest) = replaces.split_once(';').unwrap_or((replaces, ""));
        let Some(parameters) = Parameters::parse(rest) else { return (400, "Bad Replaces") };
        let (Some(to_tag), Some(from_tag)) = (parameters.get("to-tag"), parameters.get("from-tag")) else {
            return (400, "Bad Replaces");
        };
        let call = self.by_dialog.get(&(call_id.trim().to_owned(), to_tag.to_owned()));
        let entry = call.and_then(|call| self.calls.get(call)).filter(|entry| entry.dialog.remote_tag == from_tag);
        match entry.map(|entry| entry.phase) {
            // One that has not been answered is replaced by who has made it only.
            None | Some(Phase::Offered) => UNKNOWN,
            Some(Phase::Answered | Phase::Connected) if parameters.get("early-only").is_some() => (486, "Busy Here"),
            Some(Phase::Calling | Phase::Answered | Phase::Connected | Phase::Ended) => (603, "Decline"),
        }
    }

    /// Ends all calls and registrations: the program stops. One message each; answers are not waited for.
    pub fn shut_down(&mut self, now: Instant) {
        let calls: Vec<_> = self.calls.keys().copied().collect();
        for call in calls {
            match self.phase_of(call) {
                Some(Phase::Answered | Phase::Connected) => self.say_bye(now, call),
                Some(Phase::Calling) => self.cancel_invite(now, call),
                Some(Phase::Offered) => self.refuse(now, call, 503, "Service Unavailable", None),
                Some(Phase::Ended) | None => {}
            }
        }
        self.unregister(now);
    }

    fn say_bye(&mut self, now: Instant, call: CallId) {
        self.request_of_call(now, call, Method::Bye, &[], Bytes::new());
        self.end(now, call);
    }

    /// The call is over for the embedder. It is kept as long as messages of it may come.
    fn end(&mut self, now: Instant, call: CallId) {
        if let Some(entry) = self.calls.get_mut(&call) {
            entry.phase = Phase::Ended;
            entry.session = SessionTimer::default();
            entry.forgotten_at = Some(now + TRANSACTION);
        }
        self.reschedule(call);
    }

    fn end_with(&mut self, now: Instant, call: CallId, cause: EndCause) {
        let is_reported = !self.calls.get(&call).is_some_and(|entry| entry.hangs_up || entry.phase == Phase::Ended);
        self.end(now, call);
        if is_reported {
            self.event(Event::Ended { call, cause });
        }
    }

    fn forget(&mut self, call: CallId) {
        let Some(entry) = self.calls.remove(&call) else { return };
        self.by_dialog.remove(&(entry.dialog.call_id, entry.dialog.local_tag));
        if let Some(invite) = entry.invite {
            self.by_invite.remove(&invite.key);
        }
        if let Some(invite) = entry.client_invite {
            self.by_branch.remove(invite.branch());
        }
        if let Some(acknowledgement) = entry.acknowledgement {
            self.by_branch.remove(&acknowledgement.branch);
        }
        for request in entry.requests {
            self.by_branch.remove(&request.branch);
        }
        self.timers.set(TimerOwner::Call(call), None);
    }

    pub(super) fn reschedule(&mut self, call: CallId) {
        let at = self.calls.get(&call).and_then(Call::next_deadline);
        self.timers.set(TimerOwner::Call(call), at);
    }

    pub(super) fn provisional(&mut self, call: CallId, status: u16, reason: &str) {
        let contact = self.calls.get(&call).map(|entry| self.contact(entry.peer.transport));
        let Some(entry) = self.calls.get_mut(&call) else { return };
        let tag = (status > 100).then_some(entry.dialog.local_tag.as_str());
        let Some(invite) = entry.invite.as_mut().filter(|invite| !invite.is_final()) else { return };
        let mut response = invite.request.answer(status, reason, tag);
        if status > 100 {
            response.add("contact", contact.unwrap_or_default());
            if let Some(reliable) = &invite.reliable {
                response.add("require", RELIABLE);
                response.add("rseq", reliable.number.to_string());
            }
        }
        let to = response_target(&invite.request, entry.peer);
        let bytes = response.write();
        invite.status = status;
        invite.response = Some(bytes.clone());
        self.send(to, bytes);
    }

    /// A response that accepts a request that may carry a session timer.
    fn accepted(&mut self, now: Instant, call: CallId, request: &Message, status: u16) -> Message {
        let contact = self.calls.get(&call).map(|entry| self.contact(entry.peer.transport));
        let agent = self.config.agent.clone();
        let tag = self.calls.get(&call).map(|entry| entry.dialog.local_tag.clone());
        let mut response = request.answer(status, "OK", tag.as_deref());
        response.add("contact", contact.unwrap_or_default());
        response.add("allow", ALLOW);
        response.add("supported", "timer");
        response.add("server", agent);
        let Some(entry) = self.calls.get_mut(&call) else { return response };
        let wants = session_expires(request).filter(|(interval, _)| *interval >= MIN_SESSION);
        let supports = request.lists("supported", "timer") || request.lists("require", "timer");
        entry.session = SessionTimer::default();
        if let Some((interval, refresher)) = wants {
            let we_refresh = refresher.as_deref() == Some("uas") || !supports;
            entry.session = SessionTimer::begin(now, interval, we_refresh);
            let who = if we_refresh { "uas" } else { "uac" };
            response.add("session-expires", format!("{};refresher={who}", interval.as_secs()));
            if !we_refresh {
                response.add("require", "timer");
            }
        }
        response
    }

    fn answer_invite(&mut self, now: Instant, call: CallId, sdp: &str) {
        let Some(request) = self.invite_request(call) else { return };
        let mut response = self.accepted(now, call, &request, 200);
        self.describe(call, &mut response, sdp);
        // The answer is sent again by any transport until it is acknowledged (RFC 3261, section 13.3.1.4).
        self.final_response(now, call, &response, true);
    }

    /// Puts our description into a response.
    fn describe(&mut self, call: CallId, response: &mut Message, sdp: &str) {
        let description = Bytes::copy_from_slice(sdp.as_bytes());
        response.add("content-type", "application/sdp");
        response.body = description.clone();
        if let Some(entry) = self.calls.get_mut(&call) {
            entry.description = description;
        }
    }

    fn refuse_invite(&mut self, now: Instant, call: CallId, status: u16, reason: &str, retry_after: Option<Duration>) {
        let Some(request) = self.invite_request(call) else { return };
        let tag = self.calls.get(&call).map(|entry| entry.dialog.local_tag.clone());
        let mut response = request.answer(status, reason, tag.as_deref());
        if let Some(after) = retry_after {
            response.add("retry-after", after.as_secs().max(1).to_string());
        }
        self.final_response(now, call, &response, false);
    }

    fn invite_request(&self, call: CallId) -> Option<Message> {
        let invite = self.calls.get(&call)?.invite.as_ref()?;
        (!invite.is_final()).then(|| invite.request.clone())
    }

    fn final_response(&mut self, now: Instant, call: CallId, response: &Message, is_answer: bool) {
        let Some(entry) = self.calls.get_mut(&call) else { return };
        let peer = entry.peer;
        let Some(invite) = &mut entry.invite else { return };
        let bytes = response.write();
        let is_resent = is_answer || peer.transport == Transport::Udp;
        invite.status = response.status().unwrap_or_default();
        invite.response = Some(bytes.clone());
        invite.resend = is_resent.then(|| Resend::new(now));
        invite.gives_up_at = now + TRANSACTION;
        let to = response_target(&invite.request, peer);
        self.send(to, bytes);
        self.reschedule(call);
    }

    /// Whether a request is an INVITE that came before; its last response goes out again.
    pub(super) fn repeat_invite_response(&mut self, key: &TransactionKey) -> bool {
        let Some(call) = self.by_invite.get(key) else { return false };
        let Some(entry) = self.calls.get(call) else { return true };
        let Some(invite) = entry.invite.as_ref().filter(|invite| !invite.is_acknowledged) else { return true };
        let to = response_target(&invite.request, entry.peer);
        if let Some(bytes) = invite.response.clone() {
            self.send(to, bytes);
        }
        true
    }

    pub(super) fn acknowledged(&mut self, now: Instant, received: &Received<'_>) {
        let message = received.message;
        let by_dialog = message.to().and_then(|to| {
            let key = (message.get("call-id")?.to_owned(), to.tag()?.to_owned());
            self.by_dialog.get(&key).copied()
        });
        let Some(call) = self.by_invite.get(&received.key).copied().or(by_dialog) else { return };
        let Some(entry) = self.calls.get_mut(&call) else { return };
        let number = message.sequence().map(|(number, _)| number);
        if entry.is_less_secure(received.from) {
            return;
        }
        let Some(invite) = &mut entry.invite else { return };
        let is_of_invite = invite.request.sequence().map(|(number, _)| number) == number;
        if !is_of_invite || invite.is_acknowledged || !invite.is_final() {
            return;
        }
        invite.is_acknowledged = true;
        invite.resend = None;
        let is_first = invite.is_first;
        let is_answered = invite.status < 300;
        // An INVITE with an offer has its answer.
        let has_our_offer = invite.request.body.is_empty();
        let answer = body_of(message).ok().flatten().filter(|_| has_our_offer && is_answered);
        if !is_answered && is_first {
            // It is kept for repetitions of the INVITE that are still on their way.
            entry.forgotten_at = Some(now + T4);
            self.reschedule(call);
            return;
        }
        if entry.phase == Phase::Answered {
            entry.phase = Phase::Connected;
            if entry.hangs_up {
                self.say_bye(now, call);
                return;
            }
            self.event(Event::Connected { call, answer });
        } else if let Some(answer) = answer.filter(|_| entry.phase == Phase::Connected) {
            self.event(Event::OfferAnswered { call, answer });
        }
        self.reschedule(call);
    }

    pub(super) fn cancelled(&mut self, now: Instant, received: &Received<'_>) {
        let Some(call) = self.by_invite.get(&received.key).copied() else {
            self.refuse_stateless(received, 481, "Call Does Not Exist", &[]);
            return;
        };
        let is_same_peer =
            self.calls.get(&call).is_some_and(|entry| entry.peer.address.ip() == received.from.address.ip());
        if !is_same_peer {
            self.refuse_stateless(received, 481, "Call Does Not Exist", &[]);
            return;
        }
        // With the tag of the INVITE's responses (RFC 3261, section 9.2). Not kept: a CANCEL that comes again is
        // answered again.
        let tag = self.calls.get(&call).map(|entry| entry.dialog.local_tag.clone());
        let response = with_source(received.message, received.from).answer(200, "OK", tag.as_deref());
        self.send(response_target(received.message, received.from), response.write());
        if self.phase_of(call) == Some(Phase::Offered) {
            self.refuse_invite(now, call, 487, "Request Terminated", None);
            self.end_with(now, call, EndCause::Cancelled);
        }
    }

    pub(super) fn request_in_dialog(&mut self, now: Instant, call: CallId, received: &Received<'_>) {
        let message = received.message;
        let address = received.from.address.ip().to_canonical();
        let Some(entry) = self.calls.get(&call) else { return };
        let tag = message.from().and_then(|from| from.tag().map(str::to_owned)).unwrap_or_default();
        let trunk = entry.trunk;
        let is_known = entry.peer.address.ip().to_canonical() == address || self.is_address_of(trunk, address);
        let is_less_secure = entry.is_less_secure(received.from);
        if entry.phase == Phase::Ended || tag != entry.dialog.remote_tag || !is_known || is_less_secure {
            self.refuse_stateless(received, 481, "Call Does Not Exist", &[]);
            return;
        }
        let number = message.sequence().map(|(number, _)| number).unwrap_or_default();
        if number <= entry.dialog.remote_sequence {
            self.refuse_stateless(received, 500, "Out Of Order", &[]);
            return;
        }
        let unknown: Vec<_> = message.list("require").filter(|word| !is_known_extension(word)).collect();
        if !unknown.is_empty() {
            let mut response = message.answer(420, "Bad Extension", None);
            response.add("unsupported", unknown.join(", "));
            self.answer(now, received, &response);
            return;
        }
        if let Some(entry) = self.calls.get_mut(&call) {
            entry.dialog.remote_sequence = number;
            if std::mem::replace(&mut entry.peer, received.from) != received.from {
                self.event(Event::Moved { call, peer: received.from });
            }
        }
        match received.method {
            Method::Bye => {
                let response = with_source(message, received.from).answer(200, "OK", None);
                self.answer(now, received, &response);
                if matches!(self.phase_of(call), Some(Phase::Offered)) {
                    self.refuse_invite(now, call, 487, "Request Terminated", None);
                }
                // What we say in the dialog has no one to hear it any more.
                self.end_with(now, call, EndCause::Bye);
                if let Some(invite) = self.calls.get_mut(&call).and_then(|entry| entry.invite.as_mut()) {
                    invite.is_acknowledged |= (200..300).contains(&invite.status);
                }
                self.reschedule(call);
            }
            Method::Invite => self.invited_again(now, call, received),
            Method::Update => self.updated(now, call, received),
            Method::Prack => self.provisional_acknowledged(now, call, received),
            Method::Info => {
                let key = key_of_info(message);
                let is_other = key.is_none() && !message.body.is_empty();
                let (status, reason) = if is_other { (415, "Unsupported Media Type") } else { (200, "OK") };
                let response = with_source(message, received.from).answer(status, reason, None);
                self.answer(now, received, &response);
                if let Some(key) = key.filter(|_| self.phase_of(call) == Some(Phase::Connected)) {
                    self.event(Event::Key { call, key });
                }
            }
            Method::Options | Method::Notify => {
                if received.method == Method::Notify {
                    self.transfer_notified(call, message);
                }
                let mut response = with_source(message, received.from).answer(200, "OK", None);
                response.add("allow", ALLOW);
                self.answer(now, received, &response);
            }
            _ => {
                let mut response = with_source(message, received.from).answer(405, "Method Not Allowed", None);
                response.add("allow", ALLOW);
                self.answer(now, received, &response);
            }
        }
    }

    fn invited_again(&mut self, now: Instant, call: CallId, received: &Received<'_>) {
        let message = received.message;
        let Some(entry) = self.calls.get_mut(&call) else { return };
        if entry.is_inviting() {
            self.refuse_stateless(received, 491, "Request Pending", &[]);
            return;
        }
        if entry.is_changing() || entry.phase != Phase::Connected {
            self.refuse_stateless(received, 500, "Server Internal Error", &[("retry-after", "5")]);
            return;
        }
        let Ok(offer) = body_of(message) else {
            self.refuse_stateless(received, 415, "Unsupported Media Type", &[("accept", "application/sdp")]);
            return;
        };
        if let Some(contact) = message.contact() {
            entry.dialog.target = contact.uri;
        }
        let request = with_source(message, received.from);
        let invite = ServerInvite::new(received.key.clone(), request, false, now);
        if let Some(before) = entry.invite.replace(invite) {
            self.by_invite.remove(&before.key);
        }
        self.by_invite.insert(received.key.clone(), call);
        self.provisional(call, 100, "Trying");
        self.reschedule(call);
        self.event(Event::Offer { call, offer });
    }

    /// A PRACK. One that comes after the final response is answered, too.
    fn provisional_acknowledged(&mut self, now: Instant, call: CallId, received: &Received<'_>) {
        let message = with_source(received.message, received.from);
        let invite = self.calls.get_mut(&call).and_then(|entry| entry.invite.as_mut());
        let acknowledged = invite.filter(|invite| {
            let number = invite.request.sequence().map(|(number, _)| number);
            let reliable = invite.reliable.as_ref().map(|reliable| reliable.number);
            reliable.zip(number).is_some_and(|(reliable, number)| acknowledges(&message, reliable, number))
        });
        let Some(invite) = acknowledged else {
            let response = message.answer(481, "No Such Response", None);
            self.answer(now, received, &response);
            return;
        };
        if let Some(reliable) = &mut invite.reliable {
            reliable.is_acknowledged = true;
        }
        if !invite.is_final() {
            invite.resend = None;
        }
        let response = message.answer(200, "OK", None);
        self.answer(now, received, &response);
        self.reschedule(call);
    }

    fn updated(&mut self, now: Instant, call: CallId, received: &Received<'_>) {
        let message = received.message;
        let request = with_source(message, received.from);
        let Ok(offer) = body_of(message) else {
            let mut response = request.answer(415, "Unsupported Media Type", None);
            response.add("accept", "application/sdp");
            self.answer(now, received, &response);
            return;
        };
        let Some(entry) = self.calls.get_mut(&call) else { return };
        if let Some(contact) = message.contact() {
            entry.dialog.target = contact.uri;
        }
        let Some(offer) = offer else {
            let response = self.accepted(now, call, &request, 200);
            self.answer(now, received, &response);
            self.reschedule(call);
            return;
        };
        if entry.is_changing() || entry.is_inviting() || entry.phase != Phase::Connected {
            let response = request.answer(491, "Request Pending", None);
            self.answer(now, received, &response);
            return;
        }
        entry.update = Some((request, received.key.clone(), received.from));
        self.event(Event::Offer { call, offer: Some(offer) });
    }

    /// Sends a request inside the dialog. `false`: there are [`MAX_REQUESTS`].
    fn request_of_call(
        &mut self,
        now: Instant,
        call: CallId,
        method: Method,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> bool {
        let branch = self.branch();
        let Some(entry) = self.calls.get(&call) else { return false };
        let peer = entry.peer;
        let via = self.via(peer.transport, &branch);
        let contact = self.contact(peer.transport);
        let agent = self.config.agent.clone();
        let Some(entry) = self.calls.get_mut(&call) else { return false };
        if entry.requests.len() >= MAX_REQUESTS {
            return false;
        }
        let dialog = &mut entry.dialog;
        dialog.local_sequence += 1;
        let mut request = Message::request(method.clone(), dialog.target.clone());
        request.add("via", via);
        for route in &dialog.routes {
            request.add("route", route.clone());
        }
        request.add("max-forwards", "70");
        request.add("from", dialog.local.clone());
        request.add("to", dialog.remote.clone());
        request.add("call-id", dialog.call_id.clone());
        request.add("cseq", format!("{} {method}", dialog.local_sequence));
        request.add("contact", contact);
        request.add("user-agent", agent);
        for (name, value) in headers {
            request.add(name, *value);
        }
        request.body = body;
        self.request_sent_again(now, call, branch, request, 0);
        true
    }

    /// Sends a request until its response comes. `n_proofs`: challenges to it that were answered.
    fn request_sent_again(&mut self, now: Instant, call: CallId, branch: String, request: Message, n_proofs: u8) {
        let Some(entry) = self.calls.get_mut(&call) else { return };
        let Some(method) = request.method() else { return };
        let peer = entry.peer;
        let bytes = request.write();
        let resend = (peer.transport == Transport::Udp).then(|| Resend::new(now));
        let gives_up_at = now + TRANSACTION;
        entry.requests.push(ClientRequest {
            branch: branch.clone(),
            method,
            request,
            bytes: bytes.clone(),
            resend,
            gives_up_at,
            is_proceeding: false,
            n_proofs,
        });
        self.by_branch.insert(branch, TimerOwner::Call(call));
        self.send(peer, bytes);
        self.reschedule(call);
    }

    /// Sends a challenged request again with a proof, under a number and a branch of its own. `false`: the challenge is
    /// not answered.
    fn request_proved(
        &mut self,
        now: Instant,
        call: CallId,
        challenged: &ClientRequest,
        status: u16,
        challenge: &Message,
    ) -> bool {
        let Some(entry) = self.calls.get(&call) else { return false };
        let trunk = entry.trunk;
        let transport = entry.peer.transport;
        let ClientRequest { method, request, n_proofs, .. } = challenged;
        let Some((name, value)) = self.proof(trunk, request, *n_proofs, status, challenge) else { return false };
        let branch = self.branch();
        let via = self.via(transport, &branch);
        let Some(entry) = self.calls.get_mut(&call) else { return false };
        entry.dialog.local_sequence += 1;
        let mut request = request.clone();
        request.set("via", via);
        request.set("cseq", format!("{} {method}", entry.dialog.local_sequence));
        request.set(name, value);
        self.request_sent_again(now, call, branch, request, n_proofs + 1);
        true
    }

    /// The header that proves the trunk's password to a challenge of this request, and its value. `None`: the challenge
    /// cannot be answered, or the `n_proofs` that were sent do not satisfy it.
    fn proof(
        &mut self,
        trunk: TrunkId,
        request: &Message,
        n_proofs: u8,
        status: u16,
        challenge: &Message,
    ) -> Option<(&'static str, String)> {
        let client_nonce = self.random();
        let StartLine::Request { method, uri } = &request.start else { return None };
        let credentials = self.config.trunks.get(trunk.0)?.credentials.as_ref()?;
        let (asked, answered) = match status {
            401 => ("www-authenticate", "authorization"),
            _ => ("proxy-authenticate", "proxy-authorization"),
        };
        let (is_stale, value) = challenge.all(asked).filter_map(Fields::parse).find_map(|fields| {
            let value = fields.answer(credentials, method.name(), uri, &client_nonce)?;
            Some((fields.get("stale").eq_ignore_ascii_case("true"), value))
        })?;
        let is_worth = n_proofs == 0 || is_stale && n_proofs < MAX_PROOFS;
        is_worth.then_some((answered, value))
    }

    pub(super) fn call_response(&mut self, now: Instant, call: CallId, branch: &str, status: u16, message: &Message) {
        let Some(entry) = self.calls.get_mut(&call) else { return };
        let method = message.method();
        let is_invites = entry.client_invite.as_ref().is_some_and(|invite| invite.branch() == branch);
        if is_invites && method == Some(Method::Invite) {
            self.invite_response(now, call, status, message);
            return;
        }
        let is_its = |request: &ClientRequest| request.branch == branch && Some(&request.method) == method.as_ref();
        let Some(at) = entry.requests.iter().position(is_its) else {
            if status >= 200 {
                self.acknowledge_again(call, branch);
            }
            return;
        };
        if status < 200 {
            let request = &mut entry.requests[at];
            let is_first = !std::mem::replace(&mut request.is_proceeding, true);
            if request.method == Method::Invite {
                request.resend = None;
                // Timer B counts until the first provisional response only (RFC 3261, section 17.1.1.2).
                if is_first {
                    request.gives_up_at = now + RINGS;
                }
            } else if let Some(resend) = &mut request.resend {
                // Something is done: it is sent again at the longest interval only.
                resend.interval = T2;
            }
            self.reschedule(call);
            return;
        }
        let request = entry.requests.remove(at);
        if request.method == Method::Invite {
            self.acknowledge_refresh(call, &request, status, message);
        } else if !is_invites {
            // A CANCEL has the branch of its INVITE.
            self.by_branch.remove(branch);
        }
        // A CANCEL is not challenged (RFC 3261, section 22.1).
        let is_challenge = matches!(status, 401 | 407) && request.method != Method::Cancel;
        if is_challenge && self.request_proved(now, call, &request, status, message) {
            return;
        }
        match request.method {
            Method::Bye => {
                self.forget(call);
                return;
            }
            Method::Invite | Method::Update if (200..300).contains(&status) => {
                self.session_refreshed(now, call, &request.method, message);
            }
            Method::Refer if status != 481 => {
                let progress = match status {
                    200..300 => TransferProgress::Accepted,
                    _ => TransferProgress::Failed(status),
                };
                if let Some(entry) = self.calls.get_mut(&call) {
                    entry.transfers = progress == TransferProgress::Accepted;
                }
                self.event(Event::Transfer { call, progress });
            }
            // The INVITE has a response of its own.
            Method::Cancel => {}
            // RFC 3261, section 12.2.1.2: the peer has no such dialog any more.
            _ if matches!(status, 408 | 481) => {
                self.end_with(now, call, EndCause::Failed);
                return;
            }
            Method::Invite | Method::Update => self.refresh_refused(now, call, status, message),
            _ => {}
        }
        self.reschedule(call);
    }

    pub(super) fn call_is_due(&mut self, call: CallId, now: Instant) {
        let Some(entry) = self.calls.get_mut(&call) else { return };
        if entry.forgotten_at.is_some_and(|at| at <= now) {
            self.forget(call);
            return;
        }
        let mut sends: Vec<(Peer, Bytes)> = Vec::new();
        let mut cause = self.invite_is_due(now, call);
        let Some(entry) = self.calls.get_mut(&call) else { return };
        if let Some(invite) = entry.invite.as_mut().filter(|invite| !invite.is_acknowledged) {
            let is_final = invite.is_final();
            let is_unheard =
                invite.awaits_prack() && invite.reliable.as_ref().is_some_and(|reliable| reliable.gives_up_at <= now);
            if invite.gives_up_at <= now || is_unheard {
                cause = Some(if is_final || is_unheard { EndCause::NoAck } else { EndCause::Unanswered });
                invite.resend = None;
            } else if let Some(resend) = invite.resend.as_mut().filter(|resend| resend.at <= now) {
                if is_final {
                    resend.again(now);
                } else {
                    resend.again_without_limit(now);
                }
                if let Some(bytes) = invite.response.clone() {
                    sends.push((response_target(&invite.request, entry.peer), bytes));
                }
            }
        }
        let mut failed = Vec::new();
        for request in &mut entry.requests {
            if request.gives_up_at <= now {
                failed.push((request.branch.clone(), request.method.clone()));
            } else if let Some(resend) = request.resend.as_mut().filter(|resend| resend.at <= now) {
                match request.method {
                    Method::Invite => resend.again_without_limit(now),
                    _ => resend.again(now),
                }
                sends.push((entry.peer, request.bytes.clone()));
            }
        }
        entry.requests.retain(|request| request.gives_up_at > now);
        let session = entry.session;
        let is_due = entry.phase == Phase::Connected && session.at.is_some_and(|at| at <= now);
        for (peer, bytes) in sends {
            self.send(peer, bytes);
        }
        for (branch, method) in failed {
            if method == Method::Cancel {
                continue;
            }
            self.by_branch.remove(&branch);
            match method {
                Method::Bye => {
                    self.forget(call);
                    return;
                }
                Method::Refer => {
                    let progress = TransferProgress::Failed(TIMED_OUT);
                    self.event(Event::Transfer { call, progress });
                }
                _ => cause = Some(EndCause::Failed),
            }
        }
        match cause {
            Some(cause) => self.fail(now, call, cause),
            None if is_due && session.we_refresh => self.refresh(now, call),
            None if is_due => {
                self.event(Event::Ended { call, cause: EndCause::Expired });
                self.say_bye(now, call);
            }
            None => self.reschedule(call),
        }
    }

    /// What a NOTIFY says of a transfer: the status line of the peer's own call.
    fn transfer_notified(&mut self, call: CallId, message: &Message) {
        let is_refer = message
            .get("event")
            .is_some_and(|event| event.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("refer"));
        let Some(entry) = self.calls.get_mut(&call).filter(|entry| is_refer && entry.transfers) else { return };
        let Some(status) = status_of_fragment(&message.body).filter(|status| *status >= 200) else { return };
        entry.transfers = false;
        let progress = match status {
            200..300 => TransferProgress::Done,
            _ => TransferProgress::Failed(status),
        };
        self.event(Event::Transfer { call, progress });
    }

    /// An INVITE or a request of ours came to nothing.
    fn fail(&mut self, now: Instant, call: CallId, cause: EndCause) {
        let phase = self.phase_of(call);
        if let Some(invite) = self.calls.get_mut(&call).and_then(|entry| entry.invite.as_mut()) {
            // Nothing is waited for any more.
            invite.is_acknowledged |= invite.status >= 200;
        }
        match phase {
            Some(Phase::Offered) => {
                match cause {
                    // RFC 3262, section 3.
                    EndCause::NoAck => self.refuse_invite(now, call, 504, "Server Time-out", None),
                    _ => self.refuse_invite(now, call, 480, "Temporarily Unavailable", None),
                }
                self.end_with(now, call, cause);
            }
            Some(Phase::Answered | Phase::Connected) => {
                let is_reported = !self.calls.get(&call).is_some_and(|entry| entry.hangs_up);
                if is_reported {
                    self.event(Event::Ended { call, cause });
                }
                self.say_bye(now, call);
            }
            Some(Phase::Calling) => self.end_with(now, call, cause),
            Some(Phase::Ended) => self.forget(call),
            None => {}
        }
    }
}
