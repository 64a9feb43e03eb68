//! An endpoint: what arrives, from whom, and what goes out, with all dialogs and registrations of a program.
//!
//! The embedder gives it datagrams and messages of streams by [`Endpoint::receive`], the time by [`Endpoint::expire`],
//! and takes [`Output`]s by [`Endpoint::poll`] after each call until there is none. It reads no clock and performs no
//! IO.
//!
//! **Who may call** is decided before anything is stored: by address or by digest ([`Trunk`]). Until then each answer
//! is computed from the request alone, is never longer than it, and leaves no state. Requests inside a dialog go to
//! where the dialog's last message came from (symmetric signalling), so that no name of a `Contact` or `Route` is
//! looked up.

mod call;
mod registration;
mod timers;

use crate::digest::{Credentials, Fields, NonceState, Nonces, challenge, hex};
use crate::message::{MAX_MESSAGE_BYTES, Message, Method, StartLine};
use crate::uri::Uri;
use bytes::Bytes;
pub use call::is_transfer_target;
pub use call::outgoing::{InviteError, OutgoingCall};
use call::{Call, Phase, ServerInvite};
use ipnet::IpNet;
use registration::Registrar;
pub use registration::Registration;
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use timers::{TimerOwner, Timers};

/// Dialogs at a time; a further call is refused.
pub const MAX_CALLS: usize = 4_096;
/// Calls that are not answered and acknowledged yet, in all and of one address.
pub const MAX_PENDING_CALLS: usize = 256;
/// See [`MAX_PENDING_CALLS`].
pub const MAX_CALLS_PER_ADDRESS: usize = MAX_PENDING_CALLS / 2;
/// Responses that are kept for repeated requests; of more, the oldest go.
const MAX_ANSWERED: usize = 4_096;
/// The round trip that retransmissions begin with, and their longest interval (RFC 3261, section 17.1.1.1).
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
/// How long a message may stay in the network.
const T4: Duration = Duration::from_secs(5);
/// After this time without an answer a transaction has failed: 64 times T1.
const TRANSACTION: Duration = Duration::from_secs(32);
/// The shortest session timer that is accepted (RFC 4028, section 4).
const MIN_SESSION: Duration = Duration::from_secs(90);
/// See [`RequestRefused::reason`].
pub const WRONG_PASSWORD: &str = "wrong password";
/// What is understood in dialogs.
const ALLOW: &str = "INVITE, ACK, BYE, CANCEL, OPTIONS, INFO, UPDATE, NOTIFY, PRACK";

/// What an endpoint is told once.
#[derive(Clone, Debug)]
pub struct Config {
    /// Host and port under which peers reach it.
    pub advertised: SocketAddr,
    /// The port by TLS.
    pub tls_port: u16,
    /// The name of the program.
    pub agent: String,
    /// Who may call, and where to register.
    pub trunks: Vec<Trunk>,
    /// Random bytes, for tags, branches and nonces that no one can guess.
    pub secret: [u8; 32],
}

/// A peer that may call.
#[derive(Clone, Debug, Default)]
pub struct Trunk {
    /// Networks that it calls from; empty: any, with its credentials.
    pub allowed: Vec<IpNet>,
    /// What it has to prove to know. Of a trunk with a registration: what we prove.
    pub credentials: Option<Credentials>,
    /// Where to register; calls from the registrar's addresses are then accepted.
    pub registration: Option<Registration>,
}

/// A trunk by its place in [`Config::trunks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrunkId(pub usize);

/// A trunk with a registration.
pub type RegistrarId = TrunkId;

/// A call of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(u64);

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Transport {
    Udp,
    /// The connection from or to this address.
    Tcp,
    /// The connection from or to this address, by TLS.
    Tls,
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
        }
    }

    /// As a parameter of a URI.
    fn parameter(self) -> &'static str {
        match self {
            Self::Udp => "",
            Self::Tcp => ";transport=tcp",
            Self::Tls => ";transport=tls",
        }
    }

    fn is_stream(self) -> bool {
        self != Self::Udp
    }
}

/// Where a message comes from or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// How.
    pub transport: Transport,
    /// The address and port of the datagram or of the connection.
    pub address: SocketAddr,
}

/// What the embedder has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send these bytes; they are dropped where that cannot be done at once.
    Send {
        /// To whom.
        to: Peer,
        /// A message.
        bytes: Bytes,
    },
    /// Look up this host and report by [`Endpoint::resolved`].
    Resolve {
        /// Whose registrar it is.
        registrar: RegistrarId,
        /// How it is reached.
        transport: Transport,
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// Something happened.
    Event(Event),
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A call that may be answered by [`Endpoint::accept`] or [`Endpoint::refuse`].
    Incoming(Box<IncomingCall>),
    /// The peer acknowledged our answer; with its own description where the call came without one.
    Connected {
        /// The call.
        call: CallId,
        /// The answer to our offer.
        answer: Option<Bytes>,
    },
    /// The peer wants to change the call: to be answered by [`Endpoint::answer_offer`].
    Offer {
        /// The call.
        call: CallId,
        /// Its offer; `None`: it wants ours, and [`Event::OfferAnswered`] follows.
        offer: Option<Bytes>,
    },
    /// The peer answers an offer of ours inside the call.
    OfferAnswered {
        /// The call.
        call: CallId,
        /// Its description.
        answer: Bytes,
    },
    /// The caller pressed a key, by INFO.
    Key {
        /// The call.
        call: CallId,
        /// `0` to `9`, `*`, `#`, `A` to `D`.
        key: char,
    },
    /// The peer of a call that we make rings.
    Ringing {
        /// The call.
        call: CallId,
    },
    /// A call that we make is answered.
    Answered {
        /// The call.
        call: CallId,
        /// The peer's description.
        answer: Bytes,
    },
    /// The peer of a call sends from another address or connection. A request by it was let in.
    Moved {
        /// The call.
        call: CallId,
        /// Where the peer is now.
        peer: Peer,
    },
    /// A transfer that [`Endpoint::refer`] asked for has come further.
    Transfer {
        /// The call.
        call: CallId,
        /// How far.
        progress: TransferProgress,
    },
    /// The call is over; not for those that [`Endpoint::hang_up`] or [`Endpoint::refuse`] ended.
    Ended {
        /// The call.
        call: CallId,
        /// Why.
        cause: EndCause,
    },
    /// A request was refused for want of rights.
    Refused(RequestRefused),
    /// A registration was accepted or failed.
    Registered {
        /// Whose.
        registrar: RegistrarId,
        /// The status that says no, 0 where nothing answered; `Ok`: how long it is registered.
        result: Result<Duration, u16>,
    },
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferProgress {
    /// The peer calls the target.
    Accepted,
    /// The target has answered: the call may be hung up.
    Done,
    /// It came to nothing, by this status; the call goes on.
    Failed(u16),
}

/// See [`Event::Refused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRefused {
    /// Who asked.
    pub address: IpAddr,
    /// The status of the answer.
    pub status: u16,
    /// Why.
    pub reason: &'static str,
}

/// A call that has arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct IncomingCall {
    /// The call.
    pub call: CallId,
    /// Who brings it.
    pub trunk: TrunkId,
    /// Where it comes from.
    pub peer: Peer,
    /// The number or name that was called: of the request URI.
    pub to: Option<String>,
    /// Who calls, by the peer's words.
    pub from: Option<String>,
    /// The `Call-ID`.
    pub peer_id: String,
    /// The description of the peer; `None`: it wants ours in the answer.
    pub offer: Option<Bytes>,
    /// The headers of its INVITE in order, without those that prove who it is. The peer's words.
    pub headers: Vec<(String, String)>,
}

/// Why a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// The peer hung up.
    Bye,
    /// The caller gave up before the answer.
    Cancelled,
    /// The peer did not acknowledge the answer.
    NoAck,
    /// The peer did not refresh the session in time.
    Expired,
    /// A request of ours was answered by an error that ends a dialog, or not at all.
    Failed,
    /// The embedder left a call without an answer, or nobody answered ours.
    Unanswered,
    /// The peer refused our call with this status.
    Refused(u16),
}

/// What identifies a server transaction: branch, sender and method (RFC 3261, section 17.2.3).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TransactionKey(String);

/// A response to a request that may come again.
struct Answered {
    bytes: Bytes,
    to: Peer,
}

/// An endpoint.
pub struct Endpoint {
    config: Config,
    started: Instant,
    nonces: Nonces,
    n_ids: u64,
    calls: HashMap<CallId, Call>,
    /// By `Call-ID` and our tag.
    by_dialog: HashMap<(String, String), CallId>,
    by_invite: HashMap<TransactionKey, CallId>,
    /// The requests of ours that wait for a response, by branch.
    by_branch: HashMap<String, TimerOwner>,
    answered: HashMap<TransactionKey, Answered>,
    answered_order: VecDeque<(Instant, TransactionKey)>,
    registrars: Vec<Registrar>,
    timers: Timers,
    outputs: VecDeque<Output>,
}

/// A request with what is needed to answer it.
struct Received<'a> {
    message: &'a Message,
    method: Method,
    from: Peer,
    n_bytes: usize,
    key: TransactionKey,
}

/// Whether a caller may call.
enum Authorization {
    Granted(TrunkId),
    Challenge { is_stale: bool },
    Denied(&'static str),
}

/// The headers of a request, without those of digest authentication.
fn headers_without_proof(request: &Message) -> Vec<(String, String)> {
    let is_proof = |name: &str| ["authorization", "proxy-authorization"].contains(&name.to_ascii_lowercase().as_str());
    let shown = request.headers().filter(|(name, _)| !is_proof(name));
    shown.map(|(name, value)| (name, value.to_owned())).collect()
}

impl Endpoint {
    /// An endpoint that begins to register at `now`.
    pub fn new(config: Config, now: Instant) -> Self {
        let nonces = Nonces::new(config.secret);
        let mut endpoint = Self {
            nonces,
            started: now,
            n_ids: 0,
            calls: HashMap::new(),
            by_dialog: HashMap::new(),
            by_invite: HashMap::new(),
            by_branch: HashMap::new(),
            answered: HashMap::new(),
            answered_order: VecDeque::new(),
            registrars: Vec::new(),
            timers: Timers::default(),
            outputs: VecDeque::new(),
            config,
        };
        endpoint.begin_to_register(now);
        endpoint
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Endpoint::expire`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// How many calls there are, with those that have just ended.
    pub fn n_calls(&self) -> usize {
        self.calls.len()
    }

    /// Does what is due at `now`.
    pub fn expire(&mut self, now: Instant) {
        while let Some(owner) = self.timers.take_due(now) {
            match owner {
                TimerOwner::Call(call) => self.call_is_due(call, now),
                TimerOwner::Registrar(registrar) => self.registrar_is_due(registrar, now),
            }
        }
        self.forget_answers(now);
    }

    /// Takes a datagram, or a message of a stream. What is no message is dropped without an answer.
    pub fn receive(&mut self, now: Instant, from: Peer, bytes: &[u8]) {
        self.forget_answers(now);
        let Ok(message) = Message::parse(bytes) else { return };
        let method = match &message.start {
            StartLine::Request { method, .. } => method.clone(),
            StartLine::Response { status, .. } => {
                let status = *status;
                if message.fault().is_none() {
                    self.response(now, from, status, &message);
                }
                return;
            }
        };
        let Some(key) = transaction_key(&message, &method) else { return };
        let received = Received { message: &message, method, from, n_bytes: bytes.len(), key };
        if let Some(fault) = message.fault() {
            if received.method != Method::Ack {
                self.refuse_stateless(&received, fault.status, fault.reason, &[]);
            }
            return;
        }
        self.request(now, &received);
    }

    fn request(&mut self, now: Instant, received: &Received<'_>) {
        if received.method == Method::Ack {
            self.acknowledged(now, received);
            return;
        }
        if received.method == Method::Cancel {
            self.cancelled(now, received);
            return;
        }
        if let Some(answered) = self.answered.get(&received.key) {
            let output = Output::Send { to: answered.to, bytes: answered.bytes.clone() };
            self.outputs.push_back(output);
            return;
        }
        if received.method == Method::Invite && self.repeat_invite_response(&received.key) {
            return;
        }
        let tag = received.message.to().and_then(|to| to.tag().map(str::to_owned));
        match tag {
            Some(tag) => {
                let dialog = (received.message.get("call-id").unwrap_or_default().to_owned(), tag);
                match self.by_dialog.get(&dialog).copied() {
                    Some(call) => self.request_in_dialog(now, call, received),
                    None => self.refuse_stateless(received, 481, "Call Does Not Exist", &[]),
                }
            }
            None => self.request_outside(now, received),
        }
    }

    fn request_outside(&mut self, now: Instant, received: &Received<'_>) {
        let StartLine::Request { uri, .. } = &received.message.start else { return };
        let is_number = uri.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("tel:"));
        let is_uri = Uri::parse(uri).is_some_and(|uri| !uri.has_headers);
        if !is_uri && !is_number {
            let is_sip = uri.get(..3).is_some_and(|scheme| scheme.eq_ignore_ascii_case("sip"));
            let (status, reason) = if is_sip { (400, "Bad Request-URI") } else { (416, "Unsupported URI Scheme") };
            self.refuse_stateless(received, status, reason, &[]);
            return;
        }
        let unknown: Vec<_> = received.message.list("require").filter(|word| !is_known_extension(word)).collect();
        if !unknown.is_empty() {
            self.refuse_stateless(received, 420, "Bad Extension", &[("unsupported", &unknown.join(", "))]);
            return;
        }
        match received.method {
            Method::Invite => self.invited(now, received),
            Method::Options => {
                let headers = [("allow", ALLOW), ("accept", "application/sdp"), ("supported", "timer")];
                self.refuse_stateless(received, 200, "OK", &headers);
            }
            Method::Bye | Method::Info | Method::Update | Method::Notify | Method::Prack => {
                self.refuse_stateless(received, 481, "Call Does Not Exist", &[]);
            }
            _ => self.refuse_stateless(received, 405, "Method Not Allowed", &[("allow", ALLOW)]),
        }
    }

    fn invited(&mut self, now: Instant, received: &Received<'_>) {
        let address = received.from.address.ip().to_canonical();
        let trunk = match self.authorize(now, address, received) {
            Authorization::Granted(trunk) => trunk,
            Authorization::Challenge { is_stale } => {
                let nonce = self.nonces.issue(now.saturating_duration_since(self.started), address);
                let challenge = challenge(&nonce, is_stale);
                self.refuse_stateless(received, 401, "Unauthorized", &[("www-authenticate", &challenge)]);
                return;
            }
            Authorization::Denied(reason) => {
                self.refuse_stateless(received, 403, "Forbidden", &[]);
                self.event(Event::Refused(RequestRefused { address, status: 403, reason }));
                return;
            }
        };
        let message = received.message;
        if let Some(replaces) = message.get("replaces") {
            let (status, reason) = self.refusal_of_replacement(replaces);
            self.refuse_stateless(received, status, reason, &[]);
            return;
        }
        let body = body_of(message);
        let Ok(offer) = body else {
            self.refuse_stateless(received, 415, "Unsupported Media Type", &[("accept", "application/sdp")]);
            return;
        };
        let takes =
            |kind: &str| ["application/sdp", "application/*", "*/*"].contains(&kind.to_ascii_lowercase().as_str());
        let mut accepted =
            message.list("accept").map(|kind| kind.split(';').next().unwrap_or_default().trim()).peekable();
        if accepted.peek().is_some() && !accepted.any(takes) {
            self.refuse_stateless(received, 406, "Not Acceptable", &[]);
            return;
        }
        let expires = call::session_expires(message);
        if expires.is_some_and(|(interval, _)| interval < MIN_SESSION) {
            let least = MIN_SESSION.as_secs().to_string();
            self.refuse_stateless(received, 422, "Session Interval Too Small", &[("min-se", &least)]);
            return;
        }
        // The same request by another way (RFC 3261, section 8.2.2.2).
        let call_id = message.get("call-id").unwrap_or_default();
        let remote_tag = message.from().and_then(|from| from.tag().map(str::to_owned)).unwrap_or_default();
        if self.calls.values().any(|call| call.is_merged_with(call_id, &remote_tag)) {
            self.refuse_stateless(received, 482, "Loop Detected", &[]);
            return;
        }
        let pending = self.calls.values().filter(|call| call.is_pending());
        let of_address = pending.clone().filter(|call| call.peer.address.ip().to_canonical() == address).count();
        if self.calls.len() >= MAX_CALLS || pending.count() >= MAX_PENDING_CALLS || of_address >= MAX_CALLS_PER_ADDRESS
        {
            self.refuse_stateless(received, 503, "Service Unavailable", &[("retry-after", "5")]);
            self.event(Event::Refused(RequestRefused { address, status: 503, reason: "too many calls begin" }));
            return;
        }
        let id = self.next_call();
        let tag = self.random();
        let Some(mut call) = Call::incoming(message, trunk, received.from, &tag) else {
            self.refuse_stateless(received, 400, "Bad Contact", &[]);
            return;
        };
        call.invite = Some(ServerInvite::new(received.key.clone(), with_source(message, received.from), true, now));
        self.by_invite.insert(received.key.clone(), id);
        self.by_dialog.insert((call_id.to_owned(), tag), id);
        let StartLine::Request { uri, .. } = &message.start else { return };
        let to = Uri::parse(uri).map(|uri| uri.user).unwrap_or_else(|| Some(uri[4..].split(';').next()?.to_owned()));
        let incoming = IncomingCall {
            call: id,
            trunk,
            peer: received.from,
            to,
            from: message.from().and_then(|from| from.user()),
            peer_id: call_id.to_owned(),
            offer,
            headers: headers_without_proof(message),
        };
        self.calls.insert(id, call);
        self.provisional(id, 100, "Trying");
        self.reschedule(id);
        self.event(Event::Incoming(Box::new(incoming)));
    }

    fn authorize(&self, now: Instant, address: IpAddr, received: &Received<'_>) -> Authorization {
        let age = now.saturating_duration_since(self.started);
        let proofs: Vec<Fields> = received.message.all("authorization").take(4).filter_map(Fields::parse).collect();
        let mut asks = false;
        let mut is_stale = false;
        for (index, trunk) in self.config.trunks.iter().enumerate() {
            let is_listed = self.is_address_of(TrunkId(index), address);
            let is_open = trunk.allowed.is_empty() && trunk.registration.is_none();
            if !is_listed && !is_open {
                continue;
            }
            let demanded = trunk.credentials.as_ref().filter(|_| trunk.registration.is_none());
            let Some(credentials) = demanded else {
                if is_listed {
                    return Authorization::Granted(TrunkId(index));
                }
                continue;
            };
            asks = true;
            for proof in proofs.iter().filter(|proof| proof.prove(credentials, received.method.name())) {
                match self.nonces.check(proof.get("nonce"), age, address) {
                    NonceState::Valid => return Authorization::Granted(TrunkId(index)),
                    NonceState::Stale => is_stale = true,
                    NonceState::Foreign => {}
                }
            }
        }
        // A proof with a nonce that this endpoint did not issue was made for another one: the caller may try again.
        let ours = |proof: &&Fields| self.nonces.check(proof.get("nonce"), age, address) == NonceState::Valid;
        match asks {
            true if proofs.iter().any(|proof| ours(&proof)) => Authorization::Denied(WRONG_PASSWORD),
            true => Authorization::Challenge { is_stale },
            false => Authorization::Denied("no trunk has this address"),
        }
    }

    /// Replaces the password of a trunk with credentials: callers that prove the former one are refused, and challenges
    /// are answered with the new one. A registration that has failed begins again at once. The same password changes
    /// nothing.
    pub fn replace_password(&mut self, now: Instant, trunk: TrunkId, password: &str) {
        let credentials = self.config.trunks.get_mut(trunk.0).and_then(|trunk| trunk.credentials.as_mut());
        let Some(credentials) = credentials else { return };
        if credentials.password == password {
            return;
        }
        credentials.password = password.to_owned();
        self.retry_registration(now, trunk);
    }

    /// Whether any trunk calls from this address, by its networks or its registrar.
    pub fn is_listed(&self, address: IpAddr) -> bool {
        (0..self.config.trunks.len()).any(|index| self.is_address_of(TrunkId(index), address))
    }

    /// Whether a trunk calls from this address, by its networks or its registrar.
    fn is_address_of(&self, trunk: TrunkId, address: IpAddr) -> bool {
        let listed = self.config.trunks[trunk.0].allowed.iter().any(|network| network.contains(&address));
        listed || self.registrars.iter().any(|registrar| registrar.is_at(trunk, address))
    }

    /// Answers without keeping anything. By UDP the answer is left out where it is longer than the request.
    fn refuse_stateless(&mut self, received: &Received<'_>, status: u16, reason: &str, headers: &[(&str, &str)]) {
        let tag = self.tag_for(received.message);
        let request = with_source(received.message, received.from);
        let mut response = request.answer(status, reason, Some(&tag));
        for (name, value) in headers {
            response.add(name, *value);
        }
        let to = response_target(received.message, received.from);
        let mut bytes = response.write();
        if received.from.transport == Transport::Udp && bytes.len() > received.n_bytes {
            // A challenge without its nonce would be of no use.
            if status == 401 {
                return;
            }
            bytes = received.message.answer(status, reason, Some(&tag)).write();
            if bytes.len() > received.n_bytes {
                return;
            }
        }
        self.outputs.push_back(Output::Send { to, bytes });
    }

    /// Answers a request of a dialog, and keeps the answer for its repetitions.
    fn answer(&mut self, now: Instant, received: &Received<'_>, response: &Message) {
        let to = response_target(received.message, received.from);
        let bytes = response.write();
        if self.answered.len() >= MAX_ANSWERED
            && let Some((_, oldest)) = self.answered_order.pop_front()
        {
            self.answered.remove(&oldest);
        }
        self.answered.insert(received.key.clone(), Answered { bytes: bytes.clone(), to });
        self.answered_order.push_back((now + TRANSACTION, received.key.clone()));
        self.outputs.push_back(Output::Send { to, bytes });
    }

    fn forget_answers(&mut self, now: Instant) {
        while let Some((until, _)) = self.answered_order.front()
            && *until <= now
            && let Some((_, key)) = self.answered_order.pop_front()
        {
            self.answered.remove(&key);
        }
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn send(&mut self, to: Peer, bytes: Bytes) {
        if bytes.len() <= MAX_MESSAGE_BYTES {
            self.outputs.push_back(Output::Send { to, bytes });
        }
    }

    fn next_call(&mut self) -> CallId {
        self.n_ids += 1;
        CallId(self.n_ids)
    }

    /// A word that cannot be guessed.
    fn random(&mut self) -> String {
        self.n_ids += 1;
        let mut hash = Sha256::new();
        hash.update(self.config.secret);
        hash.update(b"id");
        hash.update(self.n_ids.to_be_bytes());
        hex(&hash.finalize()[..10])
    }

    /// The tag of answers that leave no state: the same for a repeated request.
    fn tag_for(&self, message: &Message) -> String {
        let mut hash = Sha256::new();
        hash.update(self.config.secret);
        hash.update(b"tag");
        for name in ["call-id", "from", "cseq"] {
            hash.update(message.get(name).unwrap_or_default());
            hash.update([0]);
        }
        hex(&hash.finalize()[..8])
    }

    fn via(&self, transport: Transport, branch: &str) -> String {
        format!("SIP/2.0/{} {};branch={branch};rport", transport.name(), self.advertised(transport))
    }

    fn contact(&self, transport: Transport) -> String {
        format!("<sip:{}{}>", self.advertised(transport), transport.parameter())
    }

    fn advertised(&self, transport: Transport) -> SocketAddr {
        let mut address = self.config.advertised;
        if transport == Transport::Tls {
            address.set_port(self.config.tls_port);
        }
        address
    }

    fn branch(&mut self) -> String {
        format!("z9hG4bK{}", self.random())
    }

    fn response(&mut self, now: Instant, from: Peer, status: u16, message: &Message) {
        let Some(branch) = message.via().and_then(|via| via.branch().map(str::to_owned)) else { return };
        match self.by_branch.get(&branch).copied() {
            Some(TimerOwner::Call(call)) => self.call_response(now, call, &branch, status, message),
            Some(TimerOwner::Registrar(registrar)) => self.registrar_response(now, registrar, from, status, message),
            None => {}
        }
    }

    /// A connection cannot be made, or has ended, and there is no other one of this peer. What waits for an answer by it
    /// fails; calls in progress go on, since a peer may come back by another one.
    pub fn connection_lost(&mut self, now: Instant, peer: Peer) {
        let waits = |call: &Call| call.phase == Phase::Calling && call.peer == peer;
        let calls: Vec<_> = self.calls.iter().filter(|(_, call)| waits(call)).map(|(id, _)| *id).collect();
        for call in calls {
            self.invite_unsent(now, call);
        }
        self.registrar_lost(now, peer);
    }

    /// A connection has ended, and another one of this peer is open, or being opened. Calls go on by that one, and
    /// registrations begin again by it at once: a registrar sends calls by the connection of the last REGISTER.
    pub fn connection_replaced(&mut self, now: Instant, peer: Peer) {
        self.registrar_replaced(now, peer);
    }

    fn phase_of(&self, call: CallId) -> Option<Phase> {
        self.calls.get(&call).map(|call| call.phase)
    }
}

/// What a peer may require of us: session timers (RFC 4028) and reliable provisional responses (RFC 3262).
fn is_known_extension(word: &str) -> bool {
    ["timer", "100rel"].iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// The body of a request where it is a description; `Err`: it is something else.
fn body_of(message: &Message) -> Result<Option<Bytes>, ()> {
    if message.body.is_empty() {
        return Ok(None);
    }
    let kind = message.get("content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_coded = message.get("content-encoding").is_some_and(|coding| !coding.eq_ignore_ascii_case("identity"));
    if !kind.eq_ignore_ascii_case("application/sdp") || is_coded {
        return Err(());
    }
    Ok(Some(message.body.clone()))
}

/// The key of a request. INVITE, its ACK and its CANCEL have the same.
fn transaction_key(message: &Message, method: &Method) -> Option<TransactionKey> {
    let via = message.via()?;
    let method = match method {
        Method::Ack | Method::Cancel => "INVITE",
        other => other.name(),
    };
    let sender = format!("{}:{}", via.host, via.port.unwrap_or_default());
    let text = match via.branch() {
        Some(branch) => format!("{branch} {sender} {method}"),
        // A sender before RFC 3261.
        None => {
            let part = |name| message.get(name).unwrap_or_default();
            let number = message.sequence().map(|(number, _)| number).unwrap_or_default();
            format!("{} {} {number} {sender} {method}", part("call-id"), part("from"))
        }
    };
    Some(TransactionKey(text))
}

/// Where the response to a request goes (RFC 3261, section 18.2.2; RFC 3581), never to another machine than the
/// sender's.
fn response_target(message: &Message, from: Peer) -> Peer {
    let Some(via) = message.via() else { return from };
    if from.transport.is_stream() || via.wants_source_port() {
        return from;
    }
    let port = via.port.filter(|port| *port != 0).unwrap_or(5_060);
    Peer { address: SocketAddr::new(from.address.ip(), port), ..from }
}

/// The request with its source in the topmost `Via`.
fn with_source(message: &Message, from: Peer) -> Message {
    let mut message = message.clone();
    let first = message.get("via").map(str::to_owned).unwrap_or_default();
    let mut hops = crate::header::split_list(&first);
    let top = hops.next().unwrap_or_default();
    let kept = top.split(';').filter(|part| {
        let name = part.split('=').next().unwrap_or_default().trim();
        !name.eq_ignore_ascii_case("rport") && !name.eq_ignore_ascii_case("received")
    });
    let mut via = kept.collect::<Vec<_>>().join(";");
    if message.via().is_some_and(|via| via.wants_source_port()) {
        via.push_str(&format!(";rport={}", from.address.port()));
    }
    via.push_str(&format!(";received={}", from.address.ip()));
    for hop in hops {
        via.push_str(", ");
        via.push_str(hop);
    }
    message.set("via", via);
    message
}

#[cfg(test)]
mod tests;
