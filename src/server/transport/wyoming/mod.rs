//! Wyoming: speech recognition, voices and answers for Home Assistant, over TCP (`[wyoming]`).
//!
//! [`super::super::serve_loading`] runs [`serve`] on a bound listener. Each connection is a task that reads events and answers one
//! request at a time: `describe` ([`info`]), `transcribe` ([`transcribe`]), `synthesize` ([`synthesize`]) and `transcript`
//! ([`handle`]). There is no session: the engines are used as the speech API uses them, by [`crate::server::speech::live`], with its
//! places and limits. Wyoming has no keys and no encryption; who may connect is known by address.

mod announce;
mod audio;
mod frame;
mod handle;
mod info;
mod synthesize;
#[cfg(feature = "testing")]
pub mod testing;
mod transcribe;

use crate::config::WyomingConfig;
use crate::server::access::keys::Keys;
use crate::server::access::limits::Spender;
use crate::server::access::scopes::{AccessRequirement, Scope};
use crate::server::edge::accepting::prepare;
use crate::server::edge::client::{Client, is_trusted};
use crate::server::edge::connection_slots::{Activity, ConnectionSlots};
use crate::server::speech::SpeechParts;
use crate::server::speech::live::RequestFailure;
use announce::Announcement;
use axum::serve::Listener;
use frame::{Event, FrameError, Reader, Writer};
use handle::Conversations;
use ipnet::IpNet;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Maximum concurrent connections. Home Assistant opens one for each request.
const MAX_CONNECTIONS: usize = 64;
/// Maximum time between two requests of a connection.
const IDLE: Duration = Duration::from_secs(300);
/// Maximum time of a request to speak or to answer, in all, and of what follows an utterance's end.
const LONGEST_REQUEST: Duration = Duration::from_secs(600);
/// Time for a peer whose connection is closed to read the reason.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// For the security log.
const ROUTE: &str = "wyoming";
/// What requests need of the key that they are charged to.
const SCOPES: [Scope; 3] = [Scope::Transcription, Scope::Speech, Scope::Realtime];

/// A bound listener and its settings.
pub(in crate::server) struct Wyoming {
    listener: TcpListener,
    config: WyomingConfig,
    networks: Vec<IpNet>,
}

impl Wyoming {
    /// Checks that the settings can be served with these keys.
    ///
    /// # Errors
    /// The hub has keys and `wyoming.key` names none of them that may do what Wyoming does, or it has none.
    pub(in crate::server) fn new(listener: TcpListener, config: WyomingConfig, keys: &Keys) -> std::io::Result<Self> {
        owner(keys, &config.key).map_err(std::io::Error::other)?;
        let address = listener.local_addr()?;
        tracing::info!("serving Wyoming on tcp://{address}");
        if !address.ip().is_loopback() && config.allowed_networks.is_empty() {
            tracing::warn!("wyoming.allowed_networks is empty: only this machine may connect to Wyoming");
        }
        Ok(Self { listener, networks: config.networks(), config })
    }

    /// Serves until `stop` is cancelled. Requests in progress go on in tasks of the server's.
    pub(in crate::server) async fn serve(self, speech: Arc<SpeechParts>, stop: CancellationToken) {
        let Self { mut listener, config, networks } = self;
        let sessions = &speech.sessions;
        let access = &sessions.access;
        let reachable = listener.local_addr().ok().filter(|address| config.announce && !address.ip().is_loopback());
        let announcement = reachable.and_then(Announcement::of);
        let slots = ConnectionSlots::new(MAX_CONNECTIONS, sessions.edge.config.max_connections_per_address, Vec::new());
        let conversations = Arc::new(Conversations::default());
        loop {
            let (stream, peer) = tokio::select! {
                accepted = Listener::accept(&mut listener) => accepted,
                () = stop.cancelled() => break,
            };
            let address = peer.ip().to_canonical();
            let client = Client::direct(address, false);
            if !address.is_loopback() && !is_trusted(address, &networks) {
                access.security.refused(client, ROUTE, 403, "the address is not in wyoming.allowed_networks");
                continue;
            }
            let owner = match owner(&access.keys.current(), &config.key) {
                Ok(owner) => owner,
                Err(reason) => {
                    access.security.refused(client, ROUTE, 401, reason);
                    continue;
                }
            };
            let Ok(slot) = slots.admit(address, false) else {
                access.security.refused(client, ROUTE, 503, "too many connections");
                continue;
            };
            let spender = Spender { consumer: access.limits.consumer(owner, client), client, owner };
            let lease = access.keys.lease(owner);
            let speech = speech.clone();
            let conversations = conversations.clone();
            sessions.setup.tasks.spawn(async move {
                let activity = slot.activity();
                let mut connection = Connection::new(stream, speech.clone(), spender, conversations);
                let served = tokio::select! {
                    served = connection.serve(&activity) => Some(served),
                    () = slot.evicted() => None,
                    () = lease.cancelled() => None,
                    () = speech.sessions.edge.kill.cancelled() => None,
                };
                if let Some(served) = served {
                    connection.end(served).await;
                }
            });
        }
        if let Some(announcement) = announcement {
            announcement.withdraw().await;
        }
    }
}

/// The key that requests are charged to; `None` if the hub has no keys.
pub(in crate::server) fn owner(keys: &Keys, name: &str) -> Result<Option<antiphon_types::KeyId>, &'static str> {
    if name.is_empty() {
        return if keys.are_on() { Err("wyoming.key names no API key, and this hub requires one") } else { Ok(None) };
    }
    let id = keys.id_by_name(name).ok_or("wyoming.key names no API key of this hub")?;
    let scopes = keys.scopes_of(id).ok_or("the API key of wyoming.key has expired")?;
    let may = SCOPES.into_iter().all(|scope| scopes.allow(AccessRequirement::Scope(scope)).is_ok());
    may.then_some(Some(id)).ok_or("the API key of wyoming.key lacks the scopes transcription, speech and realtime")
}

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
enum ConnectionEnd {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Failed(#[from] RequestFailure),
    /// An event that cannot be served as it is.
    #[error("{0}")]
    Invalid(String),
    /// A request, or a pause within it, took longer than it may.
    #[error("{0}")]
    Late(&'static str),
    /// The peer has gone, or does not read.
    #[error("the peer has gone")]
    Gone,
}

impl ConnectionEnd {
    /// The outcome of the request in progress; `None`: its client has gone.
    fn outcome(&self) -> Option<&'static str> {
        match self {
            Self::Frame(FrameError::Broken(_)) | Self::Gone => None,
            Self::Frame(_) | Self::Invalid(_) | Self::Late(_) => Some("refused"),
            Self::Failed(failed) => Some(failed.outcome),
        }
    }

    /// The data of the `error` event; `None`: nothing can be sent.
    fn event(&self) -> Option<Value> {
        let code = match self {
            Self::Frame(FrameError::Broken(_)) | Self::Gone => return None,
            Self::Frame(_) => "invalid-event",
            Self::Failed(failed) => failed.code,
            Self::Invalid(_) => "invalid_value",
            Self::Late(_) => "timeout",
        };
        Some(json!({"text": self.to_string(), "code": code}))
    }
}

impl From<std::io::Error> for ConnectionEnd {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

/// One connection.
struct Connection {
    speech: Arc<SpeechParts>,
    spender: Spender,
    conversations: Arc<Conversations>,
    /// Empty once the connection has ended.
    reader: Option<Reader<OwnedReadHalf>>,
    writer: Writer<OwnedWriteHalf>,
    /// What the last `transcribe` asked for, for the next audio.
    language: Option<String>,
}

impl Connection {
    fn new(stream: TcpStream, speech: Arc<SpeechParts>, spender: Spender, conversations: Arc<Conversations>) -> Self {
        let config = &speech.sessions.edge.config;
        prepare(&stream);
        let (reader, writer) = stream.into_split();
        let reader = Reader::new(reader, Duration::from_secs(u64::from(config.message_seconds)));
        Self { speech, spender, conversations, reader: Some(reader), writer: Writer::new(writer), language: None }
    }

    fn reader(&mut self) -> &mut Reader<OwnedReadHalf> {
        self.reader.as_mut().expect("the connection has not ended")
    }

    /// Serves requests until the peer ends the connection, is idle for too long, or the hub drains.
    async fn serve(&mut self, activity: &Activity) -> Result<(), ConnectionEnd> {
        let drain = self.speech.sessions.setup.drain.clone();
        loop {
            activity.reads_nothing();
            self.writer.set_deadline(None);
            let event = tokio::select! {
                event = timeout(IDLE, self.reader().next()) => event.unwrap_or(Ok(None))?,
                () = drain.cancelled() => None,
            };
            let Some(event) = event else { return Ok(()) };
            let _answering = activity.answering();
            match event.kind.as_str() {
                "describe" => {
                    let info = info::info(&self.speech.sessions);
                    self.writer.send("info", info).await?;
                }
                "ping" => self.pong(&event).await?,
                "transcribe" => self.language = text(&event.data, "language")?.map(str::to_owned),
                "audio-start" | "audio-chunk" => self.transcribe(event).await?,
                "synthesize" | "synthesize-start" => self.synthesize(event).await?,
                "transcript" => self.handle(event).await?,
                // Servers ignore what they do not know.
                _ => {}
            }
        }
    }

    async fn pong(&mut self, event: &Event) -> Result<(), ConnectionEnd> {
        let text = text(&event.data, "text")?;
        let data = text.map_or(Value::Null, |text| json!({"text": text}));
        Ok(self.writer.send("pong", data).await?)
    }

    /// Closes the connection, with an `error` event if there is something to say.
    async fn end(&mut self, served: Result<(), ConnectionEnd>) {
        self.writer.set_deadline(None);
        let event = served.as_ref().err().and_then(ConnectionEnd::event);
        if let Some(event) = event
            && self.writer.send("error", event).await.is_err()
        {
            return;
        }
        self.writer.end().await;
        if let (Err(_), Some(reader)) = (served, self.reader.take()) {
            reader.discard(Instant::now() + LAST_WORDS).await;
        }
    }
}

/// A text among an event's data.
fn text<'a>(data: &'a serde_json::Map<String, Value>, field: &str) -> Result<Option<&'a str>, ConnectionEnd> {
    match data.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(ConnectionEnd::Invalid(format!("'{field}' is not a text."))),
    }
}

/// A text that an event must have.
fn needed_text<'a>(event: &'a Event, field: &str) -> Result<&'a str, ConnectionEnd> {
    text(&event.data, field)?.ok_or_else(|| ConnectionEnd::Invalid(format!("'{}' needs '{field}'.", event.kind)))
}
