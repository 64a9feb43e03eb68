//! The task that owns the sockets of SIP and its [`Endpoint`]: bytes and time in, bytes and events out.
//!
//! [`super`] runs it. Each call has a [`DialogHandle`] for what it wants of its dialog, and an inbox for what happens
//! there. Nothing here reads a description or knows of a session.

use super::passwords::NewPasswords;
use super::ports::RtpPorts;
use super::streams::{StreamMessage, Streams};
use crate::server::access::AccessParts;
use crate::server::edge::client::{Client, network};
use crate::server::transport::transfers::TransferError;
use antiphon_sip::{
    CallId, EndCause, Endpoint, Event, IncomingCall, InviteError, MAX_CALLS, MAX_MESSAGE_BYTES, OutgoingCall, Output,
    Peer, TransferProgress, Transport, TrunkId,
};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Commands of calls that wait. Each call keeps a place for its hang-up; the others take what is left.
const MAX_COMMANDS: usize = 256 + MAX_CALLS;
/// What has happened in a dialog and was not taken by its call; a further change is refused, a further key or answer is
/// lost.
const MAX_CONTROLS: usize = 16;
/// The status of a hub that has too much to do; of a transfer beside another one.
const BUSY: u16 = 503;
const PENDING: u16 = 491;
/// For the security log.
pub(super) const ROUTE: &str = "sip.listen";

/// What a call wants of its dialog.
#[derive(Debug)]
pub(super) enum Command {
    /// Say that it rings.
    Ring,
    /// Answer it with this description.
    Accept(String),
    /// Refuse it.
    Refuse { status: u16, reason: &'static str, retry_after: Option<Duration> },
    /// Answer a [`CallControl::Offer`].
    AnswerOffer(Result<String, u16>),
    /// Ask the peer to call this target instead, and say whether it does; a status says no.
    Refer { target: ReferTarget, answer: oneshot::Sender<Result<(), u16>> },
    /// End it.
    HangUp,
}

/// Whom a peer calls in the hub's place.
#[derive(Debug)]
pub(super) enum ReferTarget {
    Uri(String),
    /// The peer of another call, in which it replaces the hub.
    PeerOf(CallId),
}

/// What happens in a call's dialog. Its end is [`DialogHandle::ended`].
#[derive(Debug)]
pub(super) enum CallControl {
    /// The peer of a call that we make rings.
    Ringing,
    /// The peer acknowledged, or answered; with its answer, where ours was the offer.
    Connected(Option<Bytes>),
    /// A change, to be answered.
    Offer(Option<Bytes>),
    /// The answer to our offer of a change.
    Answer(Bytes),
    /// A key, by INFO.
    Key(char),
}

/// A place among the commands that wait.
type HangUpPlace = mpsc::OwnedPermit<(CallId, Command)>;

/// A call's hold on its dialog. Dropping it ends the dialog.
pub(super) struct DialogHandle {
    call: CallId,
    commands: mpsc::Sender<(CallId, Command)>,
    /// The place of its hang-up among the commands, so that it is never lost: a connected dialog may have no deadline.
    hang_up: Option<HangUpPlace>,
    ended: CancellationToken,
    cause: Arc<OnceLock<EndCause>>,
}

/// A call to be made.
pub(super) struct Dial {
    pub(super) outgoing: OutgoingCall,
    /// The peer's host.
    pub(super) host: String,
    /// Gets the dialog.
    pub(super) answer: oneshot::Sender<Result<(DialogHandle, mpsc::Receiver<CallControl>), DialogRefused>>,
}

/// Why there is no dialog for a call to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DialogRefused {
    /// There are too many calls, among them those that still end, or too many commands wait.
    NoRoom,
    /// SIP does not take the name of the caller.
    Caller,
    /// SIP does not take the target.
    Target,
}

impl From<InviteError> for DialogRefused {
    fn from(error: InviteError) -> Self {
        match error {
            InviteError::Full => Self::NoRoom,
            InviteError::Caller => Self::Caller,
            InviteError::Target => Self::Target,
        }
    }
}

impl DialogHandle {
    fn new(call: CallId, commands: mpsc::Sender<(CallId, Command)>, hang_up: HangUpPlace) -> Self {
        let ended = CancellationToken::new();
        Self { call, commands, hang_up: Some(hang_up), ended, cause: Arc::default() }
    }

    /// Asks for something. Does not wait: where too many commands wait, this one is lost. A call that is not answered
    /// then ends by its deadline.
    pub(super) fn send(&self, command: Command) {
        if self.commands.try_send((self.call, command)).is_err() {
            tracing::warn!("a command to a SIP dialog is lost: too many wait");
        }
    }

    /// Why it has ended.
    pub(super) fn cause(&self) -> Option<EndCause> {
        self.cause.get().copied()
    }

    /// What asks the peer to call others.
    pub(super) fn referrer(&self) -> Referrer {
        Referrer { call: self.call, commands: self.commands.clone() }
    }

    /// The dialog's call.
    pub(super) fn call(&self) -> CallId {
        self.call
    }

    /// Resolves when the peer, or the dialog's failure, has ended the call. Cancel safe.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

/// Asks a call's peer to call others in the hub's place.
#[derive(Clone)]
pub(super) struct Referrer {
    call: CallId,
    commands: mpsc::Sender<(CallId, Command)>,
}

impl Referrer {
    /// Asks the peer to call `target`. Resolves once it does that, or refuses. Dropping the future withdraws nothing.
    pub(super) fn refer(&self, target: ReferTarget) -> BoxFuture<'static, Result<(), TransferError>> {
        let (answer, answered) = oneshot::channel();
        if self.commands.try_send((self.call, Command::Refer { target, answer })).is_err() {
            return ready(Err(TransferError::Refused(BUSY))).boxed();
        }
        async move {
            match answered.await {
                Ok(answer) => answer.map_err(TransferError::Refused),
                Err(_) => Err(TransferError::Ended),
            }
        }
        .boxed()
    }
}

impl Drop for DialogHandle {
    fn drop(&mut self) {
        let Some(hang_up) = self.hang_up.take() else { return };
        if !self.ended.is_cancelled() {
            hang_up.send((self.call, Command::HangUp));
        }
    }
}

/// A call that has arrived.
pub(super) struct ArrivedCall {
    pub(super) incoming: IncomingCall,
    pub(super) dialog: DialogHandle,
    pub(super) control: mpsc::Receiver<CallControl>,
}

struct CallInbox {
    control: mpsc::Sender<CallControl>,
    /// The request that waits for the peer's answer to a transfer.
    transfer: Option<oneshot::Sender<Result<(), u16>>>,
    cause: Arc<OnceLock<EndCause>>,
    ended: CancellationToken,
}

/// Where a registrar is.
struct RegistrarAddresses {
    trunk: TrunkId,
    transport: Transport,
    host: String,
    addresses: Vec<SocketAddr>,
}

/// What is known of the trunks beside the endpoint.
pub(super) struct Trunks {
    /// Their names, for the log.
    pub(super) names: Vec<String>,
    /// Passwords that replace those of the endpoint.
    pub(super) passwords: watch::Receiver<NewPasswords>,
}

/// See the module.
pub(super) struct Dialogs {
    pub(super) endpoint: Endpoint,
    pub(super) udp: UdpSocket,
    pub(super) streams: Streams,
    pub(super) access: Arc<AccessParts>,
    trunks: Trunks,
    ports: RtpPorts,
    calls: HashMap<CallId, CallInbox>,
    commands: mpsc::Receiver<(CallId, Command)>,
    command_sender: mpsc::Sender<(CallId, Command)>,
    lookups: JoinSet<RegistrarAddresses>,
}

impl Dialogs {
    pub(super) fn new(
        endpoint: Endpoint,
        udp: UdpSocket,
        streams: Streams,
        access: Arc<AccessParts>,
        trunks: Trunks,
        ports: RtpPorts,
    ) -> Self {
        let (command_sender, commands) = mpsc::channel(MAX_COMMANDS);
        let calls = HashMap::new();
        Self { endpoint, udp, streams, access, trunks, ports, calls, commands, command_sender, lookups: JoinSet::new() }
    }

    /// Serves until `drained` is cancelled; then all calls and registrations end. `arrived` takes each call; from
    /// `stop` on calls are refused.
    pub(super) async fn run(
        mut self,
        arrived: impl Fn(ArrivedCall),
        mut dials: mpsc::Receiver<Dial>,
        stop: CancellationToken,
        drained: CancellationToken,
    ) {
        let mut buffer = vec![0; MAX_MESSAGE_BYTES];
        loop {
            self.drain(&arrived, &stop);
            let due = self.endpoint.next_deadline().map(Instant::from_std);
            tokio::select! {
                () = drained.cancelled() => break,
                received = self.udp.recv_from(&mut buffer) => match received {
                    Ok((n, address)) => {
                        self.received(Peer { transport: Transport::Udp, address }, &buffer[..n]);
                    }
                    // The answer of an earlier peer's machine, or no memory for a moment.
                    Err(error) => {
                        tracing::debug!(%error, "receiving SIP by UDP failed");
                        tokio::task::yield_now().await;
                    }
                },
                message = self.streams.next(|address| self.endpoint.is_listed(address)) => match message {
                    StreamMessage::Message(peer, bytes) => self.received(peer, &bytes),
                    StreamMessage::Closed(peer) => {
                        self.endpoint.connection_lost(Instant::now().into_std(), peer);
                    }
                    StreamMessage::Replaced(peer) => {
                        self.endpoint.connection_replaced(Instant::now().into_std(), peer);
                    }
                    StreamMessage::Refused(address) => {
                        let client = Client::direct(address, false);
                        self.access.security.refused(client, ROUTE, 503, "too many connections");
                    }
                },
                Some(dial) = dials.recv() => self.dial(dial),
                Some((call, command)) = self.commands.recv() => self.command(call, command),
                Ok(()) = self.trunks.passwords.changed() => self.replace_passwords(),
                Some(found) = self.lookups.join_next() => if let Ok(found) = found {
                    let RegistrarAddresses { trunk, transport, host, addresses } = found;
                    for address in addresses.iter().copied() {
                        self.streams.know(Peer { transport, address }, &host);
                    }
                    self.endpoint.resolved(Instant::now().into_std(), trunk, &addresses);
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.endpoint.expire(Instant::now().into_std());
                }
            }
        }
        self.endpoint.shut_down(Instant::now().into_std());
        self.drain(&arrived, &stop);
        self.streams.finish().await;
    }

    /// The place of a new call's hang-up; `None`: too many commands wait, or too many calls that are over still end.
    fn hang_up_place(&self) -> Option<HangUpPlace> {
        self.command_sender.clone().try_reserve_owned().ok()
    }

    /// Both ends of a new call's dialog.
    fn open(&mut self, call: CallId, hang_up: HangUpPlace) -> (DialogHandle, mpsc::Receiver<CallControl>) {
        let (sender, control) = mpsc::channel(MAX_CONTROLS);
        let dialog = DialogHandle::new(call, self.command_sender.clone(), hang_up);
        let inbox =
            CallInbox { control: sender, transfer: None, cause: dialog.cause.clone(), ended: dialog.ended.clone() };
        self.calls.insert(call, inbox);
        (dialog, control)
    }

    fn dial(&mut self, dial: Dial) {
        let Some(hang_up) = self.hang_up_place().filter(|_| self.calls.len() < MAX_CALLS) else {
            tracing::warn!("a call out by SIP is not made: too many commands to dialogs wait, or too many calls");
            let _ = dial.answer.send(Err(DialogRefused::NoRoom));
            return;
        };
        self.streams.know(dial.outgoing.peer, &dial.host);
        let dialog = match self.endpoint.invite(Instant::now().into_std(), dial.outgoing) {
            Ok(call) => Ok(self.open(call, hang_up)),
            Err(error) => {
                tracing::warn!(%error, "a call out by SIP is not made");
                Err(DialogRefused::from(error))
            }
        };
        // Dropping the dialog of a request that is gone ends the call.
        let _ = dial.answer.send(dialog);
    }

    /// Gives the endpoint the passwords that were replaced.
    fn replace_passwords(&mut self) {
        let now = Instant::now().into_std();
        for (trunk, password) in self.trunks.passwords.borrow_and_update().iter() {
            self.endpoint.replace_password(now, *trunk, password);
        }
    }

    fn received(&mut self, from: Peer, bytes: &[u8]) {
        let address = from.address.ip().to_canonical();
        // Who has guessed too many passwords waits, as with keys.
        if self.access.attempts.check(network(address)).is_err() && !self.endpoint.is_listed(address) {
            return;
        }
        self.endpoint.receive(Instant::now().into_std(), from, bytes);
    }

    fn command(&mut self, call: CallId, command: Command) {
        let now = Instant::now().into_std();
        match command {
            Command::Ring => self.endpoint.ring(now, call),
            Command::Accept(sdp) => self.endpoint.accept(now, call, &sdp),
            Command::Refuse { status, reason, retry_after } => {
                self.calls.remove(&call);
                self.endpoint.refuse(now, call, status, reason, retry_after);
            }
            Command::AnswerOffer(answer) => {
                self.endpoint.answer_offer(now, call, answer.as_deref().map_err(|status| *status));
            }
            Command::Refer { target, answer } => {
                let Some(inbox) = self.calls.get_mut(&call) else { return };
                let is_asked = match target {
                    ReferTarget::Uri(target) => self.endpoint.refer(now, call, &target),
                    ReferTarget::PeerOf(replaced) => self.endpoint.refer_replacing(now, call, replaced),
                };
                if is_asked {
                    inbox.transfer = Some(answer);
                } else {
                    let _ = answer.send(Err(PENDING));
                }
            }
            Command::HangUp => {
                self.calls.remove(&call);
                self.endpoint.hang_up(now, call);
            }
        }
    }

    /// Does all that the endpoint wants done.
    fn drain(&mut self, arrived: &impl Fn(ArrivedCall), stop: &CancellationToken) {
        while let Some(output) = self.endpoint.poll() {
            match output {
                Output::Send { to: Peer { transport: Transport::Udp, address }, bytes } => {
                    // A full socket loses it, as a network would: it is sent again.
                    let _ = self.udp.try_send_to(&bytes, address);
                }
                Output::Send { to, bytes } => self.streams.send(to, bytes),
                Output::Resolve { registrar, transport, host, port } => {
                    let ports = self.ports;
                    self.lookups.spawn(async move {
                        let addresses = ports.look_up(&host, port).await;
                        RegistrarAddresses { trunk: registrar, transport, host, addresses }
                    });
                }
                Output::Event(event) => self.happened(event, arrived, stop),
            }
        }
    }

    fn happened(&mut self, event: Event, arrived: &impl Fn(ArrivedCall), stop: &CancellationToken) {
        let now = Instant::now().into_std();
        match event {
            Event::Incoming(incoming) if stop.is_cancelled() => {
                self.endpoint.refuse(now, incoming.call, 503, "Service Unavailable", None);
            }
            Event::Incoming(incoming) => {
                self.streams.admit(incoming.peer);
                match self.hang_up_place() {
                    Some(hang_up) => {
                        let (dialog, control) = self.open(incoming.call, hang_up);
                        arrived(ArrivedCall { incoming: *incoming, dialog, control });
                    }
                    None => self.endpoint.refuse(now, incoming.call, 503, "Service Unavailable", None),
                }
            }
            Event::Moved { peer, .. } => self.streams.admit(peer),
            Event::Ringing { call } => self.send(call, CallControl::Ringing),
            Event::Answered { call, answer } => self.send(call, CallControl::Connected(Some(answer))),
            Event::Connected { call, answer } => self.send(call, CallControl::Connected(answer)),
            Event::Offer { call, offer } => {
                if !self.send_if_room(call, CallControl::Offer(offer)) {
                    self.endpoint.answer_offer(now, call, Err(500));
                }
            }
            Event::OfferAnswered { call, answer } => self.send(call, CallControl::Answer(answer)),
            Event::Key { call, key } => self.send(call, CallControl::Key(key)),
            Event::Transfer { call, progress } => self.transferred(call, progress),
            Event::Ended { call, cause } => {
                tracing::debug!(?cause, "a SIP dialog has ended");
                if let Some(inbox) = self.calls.remove(&call) {
                    let _ = inbox.cause.set(cause);
                    inbox.ended.cancel();
                }
            }
            Event::Refused(refused) => {
                let client = Client::direct(refused.address, false);
                if refused.status == 403 && refused.reason == antiphon_sip::WRONG_PASSWORD {
                    let _ = self.access.attempts.failed(network(refused.address));
                }
                self.access.security.refused(client, ROUTE, refused.status, refused.reason);
            }
            Event::Registered { registrar, result } => {
                let trunk = self.trunks.names.get(registrar.0).map(String::as_str).unwrap_or_default();
                match result {
                    Ok(expires) => tracing::info!(trunk, expires_s = expires.as_secs(), "registered by SIP"),
                    Err(0) => tracing::warn!(trunk, "the SIP registrar does not answer, or its host is not known"),
                    Err(status) => tracing::warn!(trunk, status, "the SIP registrar refuses the registration"),
                }
            }
        }
    }

    /// A transfer has come further. Where the target has answered, our part of the call is over.
    fn transferred(&mut self, call: CallId, progress: TransferProgress) {
        let Some(inbox) = self.calls.get_mut(&call) else { return };
        let waiting = inbox.transfer.take();
        let outcome = match progress {
            TransferProgress::Accepted | TransferProgress::Done => Ok(()),
            TransferProgress::Failed(status) => Err(status),
        };
        // The request may be gone.
        if let Some(waiting) = waiting {
            let _ = waiting.send(outcome);
        } else if let Err(status) = outcome {
            tracing::info!(status, "a transfer by SIP failed: the call goes on");
        }
        if progress == TransferProgress::Done {
            inbox.ended.cancel();
            self.calls.remove(&call);
            self.endpoint.hang_up(Instant::now().into_std(), call);
        }
    }

    fn send(&mut self, call: CallId, control: CallControl) {
        self.send_if_room(call, control);
    }

    fn send_if_room(&mut self, call: CallId, control: CallControl) -> bool {
        self.calls.get(&call).is_some_and(|inbox| inbox.control.try_send(control).is_ok())
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use antiphon_sip::Config;

    /// A call of an endpoint that is gone.
    pub(in super::super) fn call() -> CallId {
        let advertised = "192.0.2.1:5060".parse().unwrap();
        let config = Config { advertised, tls_port: 0, agent: "test".into(), trunks: Vec::new(), secret: [7; 32] };
        let now = Instant::now().into_std();
        let outgoing = OutgoingCall {
            trunk: TrunkId(0),
            peer: Peer { transport: Transport::Udp, address: "192.0.2.9:5060".parse().unwrap() },
            target: "sip:100@192.0.2.9".into(),
            from: "hub".into(),
            offer: String::new(),
        };
        Endpoint::new(config, now).invite(now, outgoing).unwrap()
    }

    /// A dialog whose commands go to this queue.
    pub(in super::super) fn dialog(call: CallId, commands: &mpsc::Sender<(CallId, Command)>) -> DialogHandle {
        let hang_up = commands.clone().try_reserve_owned().unwrap();
        DialogHandle::new(call, commands.clone(), hang_up)
    }
}

#[cfg(test)]
mod tests {
    use super::super::passwords::TrunkPasswords;
    use super::super::streams::testing::{address, is_admitted};
    use super::*;
    use crate::config::{LimitsConfig, ServerConfig};
    use crate::server::access::audit::Audit;
    use crate::server::access::ephemeral_keys::EphemeralKeys;
    use crate::server::access::keys::Keys;
    use crate::server::edge::EdgeParts;
    use antiphon_protocol::Dialect;
    use antiphon_sip::{Config, RequestRefused, Trunk, WRONG_PASSWORD};
    use std::net::{IpAddr, Ipv4Addr};
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    async fn dialogs() -> Dialogs {
        let advertised = "192.0.2.1:5060".parse().unwrap();
        let trunk = Trunk { allowed: vec!["127.0.0.1/32".parse().unwrap()], ..Trunk::default() };
        let config = Config { advertised, tls_port: 0, agent: "test".into(), trunks: vec![trunk], secret: [7; 32] };
        let endpoint = Endpoint::new(config, Instant::now().into_std());
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let streams = Streams::new(TcpListener::bind("127.0.0.1:0").await.unwrap(), None);
        let edge = Arc::new(EdgeParts::new(ServerConfig::default(), None));
        let ephemeral_keys = EphemeralKeys::new(Dialect::default(), None);
        let limits = LimitsConfig::default();
        let access = Arc::new(AccessParts::new(edge, Keys::default(), limits, ephemeral_keys, Audit::default()));
        let (_, passwords) = TrunkPasswords::new(Vec::new());
        let trunks = Trunks { names: Vec::new(), passwords };
        let address = Ipv4Addr::LOCALHOST.into();
        Dialogs::new(endpoint, udp, streams, access, trunks, RtpPorts::new(address, address, 20_000, 20_100))
    }

    /// A call to be made by this name.
    fn outgoing(from: &str) -> OutgoingCall {
        OutgoingCall {
            trunk: TrunkId(0),
            peer: Peer { transport: Transport::Udp, address: "192.0.2.9:5060".parse().unwrap() },
            target: "sip:100@192.0.2.9".into(),
            from: from.into(),
            offer: String::new(),
        }
    }

    /// What becomes of a call out by this name.
    fn dialed(dialogs: &mut Dialogs, from: &str) -> Result<(), DialogRefused> {
        let (answer, mut dialed) = oneshot::channel();
        dialogs.dial(Dial { outgoing: outgoing(from), host: "192.0.2.9".into(), answer });
        dialed.try_recv().expect("an answer").map(drop)
    }

    #[tokio::test]
    async fn a_call_out_learns_why_it_gets_no_dialog() {
        let mut dialogs = dialogs().await;
        assert_eq!(dialed(&mut dialogs, "hub"), Ok(()));
        assert_eq!(dialed(&mut dialogs, "a b<"), Err(DialogRefused::Caller));
        let waiting: Vec<_> = std::iter::from_fn(|| dialogs.hang_up_place()).collect();
        assert_eq!(dialed(&mut dialogs, "hub"), Err(DialogRefused::NoRoom));
        drop(waiting);
        assert_eq!(dialed(&mut dialogs, "hub"), Ok(()));
        // Calls that still end leave no room either.
        let now = Instant::now().into_std();
        while dialogs.endpoint.invite(now, outgoing("hub")).is_ok() {}
        assert_eq!(dialed(&mut dialogs, "hub"), Err(DialogRefused::NoRoom));
    }

    #[tokio::test]
    async fn a_call_that_is_let_in_keeps_its_connection_open() {
        let mut dialogs = dialogs().await;
        let mut connection = TcpStream::connect(address(&dialogs.streams)).await.unwrap();
        let text = |method: &str| {
            format!(
                "{method} sip:100@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/TCP 127.0.0.1;branch=z9hG4bK1\r\n\
                 From: <sip:a@127.0.0.1>;tag=1\r\nTo: <sip:100@127.0.0.1>\r\nCall-ID: 1\r\nCSeq: 1 {method}\r\n\
                 Contact: <sip:a@127.0.0.1>\r\nContent-Length: 0\r\n\r\n"
            )
        };
        for (method, expected) in [("OPTIONS", false), ("INVITE", true)] {
            connection.write_all(text(method).as_bytes()).await.unwrap();
            // It connects as a stranger.
            let StreamMessage::Message(peer, bytes) = dialogs.streams.next(|_| false).await else {
                panic!("no message");
            };
            dialogs.received(peer, &bytes);
            dialogs.drain(&|_: ArrivedCall| {}, &CancellationToken::new());
            assert_eq!(is_admitted(&dialogs.streams, peer), expected, "{method}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_guesses_passwords_waits_at_any_address_of_the_network() {
        let mut dialogs = dialogs().await;
        let neighbour = |n: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n]);
        for n in 0..20 {
            let guessed = RequestRefused { address: neighbour(n), status: 403, reason: WRONG_PASSWORD };
            dialogs.happened(Event::Refused(guessed), &|_: ArrivedCall| {}, &CancellationToken::new());
        }
        let options = format!(
            "OPTIONS sip:100@h SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@h>;tag=1\r\n\
             To: <sip:100@h>\r\nCall-ID: 1\r\nCSeq: 1 OPTIONS\r\nSubject: {}\r\nContent-Length: 0\r\n\r\n",
            "x".repeat(400)
        );
        let mut is_answered = |address: IpAddr| {
            let peer = Peer { transport: Transport::Udp, address: SocketAddr::new(address, 5_060) };
            dialogs.received(peer, options.as_bytes());
            dialogs.endpoint.poll().is_some()
        };
        assert!(!is_answered(neighbour(99)));
        assert!(is_answered(IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, 1])), "another network");
    }

    #[tokio::test]
    async fn no_hang_up_is_lost_where_all_calls_end_at_once_and_too_many_commands_wait() {
        let (sender, mut commands) = mpsc::channel(MAX_COMMANDS);
        let call = testing::call();
        let dialogs: Vec<_> = (0..MAX_CALLS).map(|_| testing::dialog(call, &sender)).collect();
        for _ in 0..MAX_COMMANDS {
            dialogs[0].send(Command::Ring);
        }
        drop(dialogs);
        let mut n_rings = 0;
        let mut n_hang_ups = 0;
        while let Ok((_, command)) = commands.try_recv() {
            match command {
                Command::Ring => n_rings += 1,
                Command::HangUp => n_hang_ups += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((n_rings, n_hang_ups), (MAX_COMMANDS - MAX_CALLS, MAX_CALLS));
    }

    #[tokio::test]
    async fn a_dialog_that_has_ended_is_not_hung_up() {
        let (sender, mut commands) = mpsc::channel(MAX_COMMANDS);
        let dialog = testing::dialog(testing::call(), &sender);
        dialog.ended.cancel();
        drop(dialog);
        assert!(commands.try_recv().is_err());
        assert_eq!(sender.capacity(), MAX_COMMANDS, "its place is free");
    }
}
