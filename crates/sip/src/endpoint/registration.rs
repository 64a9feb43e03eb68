//! Registrations at the registrars of trunks: REGISTER with digest, refreshes, back-off.

use super::timers::TimerOwner;
use super::{Endpoint, Event, Output, Peer, RegistrarId, T1, T2, TRANSACTION, Transport, TrunkId};
use crate::digest::Fields;
use crate::header::NameAddr;
use crate::message::{Message, Method};
use crate::uri::Uri;
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// What is asked for.
const EXPIRES: Duration = Duration::from_secs(300);
/// The shortest and the longest time that a registrar may grant; others are taken as these.
const MIN_GRANTED: Duration = Duration::from_secs(30);
const MAX_GRANTED: Duration = Duration::from_secs(3_600);
/// The pause after the first failure, and the longest one: it doubles.
const BACK_OFF: Duration = Duration::from_secs(30);
const MAX_BACK_OFF: Duration = Duration::from_secs(1_800);
/// Between two empty datagrams that keep the way open through a NAT.
const KEEP_ALIVE: Duration = Duration::from_secs(25);
/// Challenges of one attempt that are answered: a nonce may be stale once.
const MAX_PROOFS: u8 = 2;
/// Addresses of a registrar that are kept.
const MAX_ADDRESSES: usize = 16;

/// Where and as whom to register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Name or address of the registrar.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How it is reached.
    pub transport: Transport,
    /// The user of the address of record: the number, or the name of the account.
    pub user: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its host is looked up.
    Resolving,
    /// A REGISTER is under way.
    Asking,
    Registered {
        refresh_at: Instant,
    },
    /// It failed: the next attempt waits.
    Waiting,
}

/// One registration.
pub(super) struct Registrar {
    trunk: TrunkId,
    registration: Registration,
    state: State,
    /// All addresses of the host; the first one is asked.
    addresses: Vec<SocketAddr>,
    call_id: String,
    tag: String,
    sequence: u32,
    request: Option<PendingRequest>,
    n_failures: u32,
    /// Challenges that were answered in this attempt.
    n_proofs: u8,
    expires: Duration,
    /// When something is to be done, besides sending again.
    at: Option<Instant>,
}

struct PendingRequest {
    branch: String,
    bytes: Bytes,
    resend_at: Instant,
    interval: Duration,
    gives_up_at: Instant,
}

impl Registrar {
    /// Whether it is the registrar of this trunk at this address.
    pub(super) fn is_at(&self, trunk: TrunkId, address: IpAddr) -> bool {
        self.trunk == trunk && self.addresses.iter().any(|known| known.ip().to_canonical() == address)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let request = self.request.as_ref().map(|request| request.resend_at.min(request.gives_up_at));
        self.at.into_iter().chain(request).min()
    }
}

/// The seconds that an accepted REGISTER grants the contact of this user at this address. The answer lists the contacts
/// of all who registered as the same user (RFC 3261, section 10.3); where none of them is ours, because the registrar
/// has changed it, the shortest time counts. `None`: the contact has none of its own.
fn expires_of_contact(accepted: &Message, user: &str, advertised: SocketAddr) -> Option<u64> {
    let ours = Uri::parse(&format!("sip:{user}@{advertised}"));
    let mut shortest: Option<u64> = None;
    for contact in accepted.list("contact").filter_map(NameAddr::parse) {
        let expires = contact.parameter("expires").and_then(|seconds| seconds.parse::<u64>().ok());
        let is_ours = ours.as_ref().zip(contact.sip_uri()).is_some_and(|(ours, uri)| {
            uri.user == ours.user && uri.host == ours.host && uri.port.or(Some(5_060)) == ours.port
        });
        if is_ours {
            return expires;
        }
        shortest = shortest.into_iter().chain(expires).min();
    }
    shortest
}

impl Endpoint {
    pub(super) fn begin_to_register(&mut self, now: Instant) {
        let registrations: Vec<_> = self.config.trunks.iter().map(|trunk| trunk.registration.clone()).collect();
        for (index, registration) in registrations.into_iter().enumerate() {
            let Some(registration) = registration else { continue };
            let call_id = self.random();
            let tag = self.random();
            self.registrars.push(Registrar {
                trunk: TrunkId(index),
                registration,
                state: State::Waiting,
                addresses: Vec::new(),
                call_id,
                tag,
                sequence: 0,
                request: None,
                n_failures: 0,
                n_proofs: 0,
                expires: EXPIRES,
                at: Some(now),
            });
            self.timers.set(TimerOwner::Registrar(TrunkId(index)), Some(now));
        }
    }

    fn registrar(&mut self, id: RegistrarId) -> Option<&mut Registrar> {
        self.registrars.iter_mut().find(|registrar| registrar.trunk == id)
    }

    fn reschedule_registrar(&mut self, id: RegistrarId) {
        let at = self.registrar(id).and_then(|registrar| registrar.next_deadline());
        self.timers.set(TimerOwner::Registrar(id), at);
    }

    /// The answer to [`Output::Resolve`]; none: the host is not known.
    pub fn resolved(&mut self, now: Instant, id: RegistrarId, addresses: &[SocketAddr]) {
        let Some(registrar) = self.registrar(id).filter(|registrar| registrar.state == State::Resolving) else {
            return;
        };
        if addresses.is_empty() {
            self.registration_failed(now, id, 0);
            return;
        }
        registrar.addresses = addresses.iter().copied().take(MAX_ADDRESSES).collect();
        registrar.state = State::Asking;
        registrar.n_proofs = 0;
        registrar.at = None;
        self.register(now, id, None);
    }

    fn register(&mut self, now: Instant, id: RegistrarId, authorization: Option<(&str, String)>) {
        let branch = self.branch();
        let Some(transport) = self.registrar(id).map(|registrar| registrar.registration.transport) else { return };
        let via = self.via(transport, &branch);
        let advertised = self.advertised(transport);
        let agent = self.config.agent.clone();
        let Some(registrar) = self.registrar(id) else { return };
        let Some(address) = registrar.addresses.first().copied() else { return };
        registrar.sequence += 1;
        let Registration { host, user, .. } = &registrar.registration;
        let mut request = Message::request(Method::Register, format!("sip:{host}"));
        request.add("via", via);
        request.add("max-forwards", "70");
        request.add("from", format!("<sip:{user}@{host}>;tag={}", registrar.tag));
        request.add("to", format!("<sip:{user}@{host}>"));
        request.add("call-id", registrar.call_id.clone());
        request.add("cseq", format!("{} REGISTER", registrar.sequence));
        request.add("contact", format!("<sip:{user}@{advertised}{}>", transport.parameter()));
        request.add("expires", registrar.expires.as_secs().to_string());
        request.add("user-agent", agent);
        if let Some((name, value)) = authorization {
            request.add(name, value);
        }
        let bytes = request.write();
        let pending = PendingRequest {
            branch: branch.clone(),
            bytes: bytes.clone(),
            resend_at: if transport.is_stream() { now + TRANSACTION } else { now + T1 },
            interval: T1,
            gives_up_at: now + TRANSACTION,
        };
        let before = registrar.request.replace(pending);
        if let Some(before) = before {
            self.by_branch.remove(&before.branch);
        }
        self.by_branch.insert(branch, TimerOwner::Registrar(id));
        self.send(Peer { transport, address }, bytes);
        self.reschedule_registrar(id);
    }

    pub(super) fn registrar_response(
        &mut self,
        now: Instant,
        id: RegistrarId,
        from: Peer,
        status: u16,
        message: &Message,
    ) {
        let credentials = self.config.trunks[id.0].credentials.clone();
        let client_nonce = self.random();
        let Some(transport) = self.registrar(id).map(|registrar| registrar.registration.transport) else { return };
        let advertised = self.advertised(transport);
        let Some(registrar) = self.registrar(id) else { return };
        let is_registrar = registrar.addresses.iter().any(|known| known.ip() == from.address.ip());
        if !is_registrar || registrar.state != State::Asking || status < 200 {
            return;
        }
        let uri = format!("sip:{}", registrar.registration.host);
        let challenged = match status {
            401 => Some(("www-authenticate", "authorization")),
            407 => Some(("proxy-authenticate", "proxy-authorization")),
            _ => None,
        };
        if let Some((asked, answered)) = challenged {
            let fields = message.all(asked).filter_map(Fields::parse).find_map(|fields| {
                let value = fields.answer(credentials.as_ref()?, "REGISTER", &uri, &client_nonce)?;
                Some((fields.get("stale").eq_ignore_ascii_case("true"), value))
            });
            if let Some((is_stale, value)) = fields
                && (registrar.n_proofs == 0 || is_stale && registrar.n_proofs < MAX_PROOFS)
            {
                registrar.n_proofs += 1;
                self.register(now, id, Some((answered, value)));
                return;
            }
        }
        if status == 423 && registrar.expires == EXPIRES {
            let least = message.get("min-expires").and_then(|seconds| seconds.trim().parse::<u64>().ok());
            if let Some(least) =
                least.map(Duration::from_secs).filter(|least| *least > EXPIRES && *least <= MAX_GRANTED)
            {
                registrar.expires = least;
                registrar.n_proofs = 0;
                self.register(now, id, None);
                return;
            }
        }
        if !(200..300).contains(&status) {
            self.registration_failed(now, id, status);
            return;
        }
        let by_contact = expires_of_contact(message, &registrar.registration.user, advertised);
        let by_header = message.get("expires").and_then(|seconds| seconds.trim().parse::<u64>().ok());
        let granted = by_contact.or(by_header).map_or(registrar.expires, Duration::from_secs);
        let granted = granted.clamp(MIN_GRANTED, MAX_GRANTED);
        registrar.n_failures = 0;
        let refresh_at = now + granted * 4 / 5;
        registrar.state = State::Registered { refresh_at };
        registrar.at = Some(refresh_at.min(now + KEEP_ALIVE));
        self.drop_request(id);
        self.event(Event::Registered { registrar: id, result: Ok(granted) });
    }

    fn drop_request(&mut self, id: RegistrarId) {
        let branch = self.registrar(id).and_then(|registrar| registrar.request.take()).map(|request| request.branch);
        if let Some(branch) = branch {
            self.by_branch.remove(&branch);
        }
        self.reschedule_registrar(id);
    }

    fn registration_failed(&mut self, now: Instant, id: RegistrarId, status: u16) {
        let Some(registrar) = self.registrar(id) else { return };
        let pause = BACK_OFF.saturating_mul(1 << registrar.n_failures.min(6)).min(MAX_BACK_OFF);
        registrar.n_failures += 1;
        registrar.state = State::Waiting;
        registrar.at = Some(now + pause);
        self.drop_request(id);
        self.event(Event::Registered { registrar: id, result: Err(status) });
    }

    /// What this trunk proves has changed: where its registration has failed, the next attempt begins now.
    pub(super) fn retry_registration(&mut self, now: Instant, id: RegistrarId) {
        let Some(registrar) = self.registrar(id) else { return };
        registrar.n_failures = 0;
        if registrar.state == State::Waiting && registrar.request.is_none() {
            registrar.at = Some(now);
        }
        self.reschedule_registrar(id);
    }

    /// The connection to a registrar is gone: what it would send to us has no way any more.
    pub(super) fn registrar_lost(&mut self, now: Instant, peer: Peer) {
        for id in self.registrars_by(peer) {
            self.registration_failed(now, id, 0);
        }
    }

    /// The connection to a registrar is gone, and another one is there: a new REGISTER goes by that one.
    pub(super) fn registrar_replaced(&mut self, now: Instant, peer: Peer) {
        for id in self.registrars_by(peer) {
            let Some(registrar) = self.registrar(id) else { continue };
            registrar.state = State::Asking;
            registrar.n_proofs = 0;
            registrar.at = None;
            self.register(now, id, None);
        }
    }

    /// Those that are registered, or ask for that, by this peer.
    fn registrars_by(&self, peer: Peer) -> Vec<RegistrarId> {
        let is_by = |registrar: &&Registrar| {
            let is_there = registrar.addresses.first() == Some(&peer.address);
            let is_in_use = matches!(registrar.state, State::Asking | State::Registered { .. });
            is_there && is_in_use && registrar.registration.transport == peer.transport
        };
        self.registrars.iter().filter(is_by).map(|registrar| registrar.trunk).collect()
    }

    pub(super) fn registrar_is_due(&mut self, id: RegistrarId, now: Instant) {
        let Some(registrar) = self.registrar(id) else { return };
        let transport = registrar.registration.transport;
        if let Some(request) = &mut registrar.request {
            if request.gives_up_at <= now {
                self.registration_failed(now, id, 0);
                return;
            }
            if request.resend_at <= now {
                request.interval = (2 * request.interval).min(T2);
                request.resend_at = now + request.interval;
                let bytes = request.bytes.clone();
                if let Some(address) = registrar.addresses.first().copied() {
                    self.send(Peer { transport, address }, bytes);
                }
            }
            self.reschedule_registrar(id);
            return;
        }
        if registrar.at.is_none_or(|at| at > now) {
            self.reschedule_registrar(id);
            return;
        }
        match registrar.state {
            State::Registered { refresh_at } if refresh_at > now => {
                registrar.at = Some(refresh_at.min(now + KEEP_ALIVE));
                if let Some(address) = registrar.addresses.first().copied() {
                    self.send(Peer { transport, address }, Bytes::from_static(b"\r\n\r\n"));
                }
            }
            // Each registration begins with a lookup: a registrar may have moved.
            State::Registered { .. } | State::Waiting => {
                registrar.state = State::Resolving;
                registrar.expires = EXPIRES;
                // Should the lookup not be answered.
                registrar.at = Some(now + TRANSACTION);
                let Registration { host, port, transport, .. } = registrar.registration.clone();
                self.outputs.push_back(Output::Resolve { registrar: id, transport, host, port });
            }
            State::Resolving => {
                self.registration_failed(now, id, 0);
                return;
            }
            State::Asking => {}
        }
        self.reschedule_registrar(id);
    }

    /// Takes back the registrations, once each.
    pub(super) fn unregister(&mut self, now: Instant) {
        let registered: Vec<_> = self
            .registrars
            .iter()
            .filter(|registrar| matches!(registrar.state, State::Registered { .. }))
            .map(|registrar| registrar.trunk)
            .collect();
        for id in registered {
            if let Some(registrar) = self.registrar(id) {
                registrar.expires = Duration::ZERO;
                registrar.state = State::Waiting;
            }
            self.register(now, id, None);
        }
    }
}
