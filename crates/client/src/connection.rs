//! The socket: connecting, sending in the mode's form, receiving as typed events and PCM.

use super::error::ClientError;
use super::event::{Event, Received};
use super::resume::Ticket;
use super::trust::Trust;
use antiphon_audio::codec::OpusOut;
use antiphon_protocol::frame::{Frame, FrameKind};
use antiphon_types::{ItemId, Samples};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Sink, SinkExt, StreamExt};
use serde_json::{Value, json};
use std::pin::Pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, Uri};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_tls_with_config};

/// The longest wait for the socket to take one message: a server that does not read for so long is gone.
const SEND_DEADLINE: Duration = Duration::from_secs(10);
/// The largest message taken, as the hub's own limit.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// A socket whose handshake is done.
pub(super) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// How audio travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AudioMode {
    /// Base64 in JSON events, as every GA server takes it.
    #[default]
    Ga,
    /// Binary frames of PCM16: this hub only.
    Pcm16,
    /// Binary frames of Opus: this hub only.
    Opus,
}

/// Where and how to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// `http(s)://` or `ws(s)://`; without a path, `/v1/realtime` is meant.
    pub url: String,
    /// Sent as a bearer token.
    pub key: Option<String>,
    /// `?model=`; some servers want one.
    pub model: Option<String>,
    /// How audio travels.
    pub mode: AudioMode,
    /// Whose certificate is taken for the server's.
    pub trust: Trust,
    /// Whether the session is to outlive its connection, for [`Connection::resume`]: this hub only.
    pub resume: bool,
    /// For the whole of connecting.
    pub deadline: Duration,
}

impl ConnectOptions {
    /// To `url` in the GA mode, without key and model, within 10 s.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            key: None,
            model: None,
            mode: AudioMode::Ga,
            trust: Trust::System,
            resume: false,
            deadline: Duration::from_secs(10),
        }
    }

    fn request(&self, ticket: Option<&Ticket>) -> Result<Request, ClientError> {
        let bad = |reason: String| ClientError::BadUrl { url: self.url.clone(), reason };
        let uri: Uri = self.url.parse().map_err(|error| bad(format!("{error}")))?;
        let scheme = match uri.scheme_str() {
            Some("http" | "ws") => "ws",
            Some("https" | "wss") => "wss",
            _ => return Err(bad("it must begin with http://, https://, ws:// or wss://".into())),
        };
        let host = uri.authority().ok_or_else(|| bad("it names no host".into()))?;
        let path = if matches!(uri.path(), "" | "/") { "/v1/realtime" } else { uri.path() };
        let audio = match self.mode {
            AudioMode::Ga => None,
            AudioMode::Pcm16 => Some("audio=pcm16".to_owned()),
            AudioMode::Opus => Some("audio=opus".to_owned()),
        };
        let model = self.model.as_ref().map(|model| format!("model={model}"));
        let resume = (self.resume || ticket.is_some()).then(|| "resume=1".to_owned());
        let given = uri.query().map(str::to_owned).into_iter();
        let query: Vec<_> = given.chain(model).chain(audio).chain(resume).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        let address = format!("{scheme}://{host}{path}{mark}{}", query.join("&"));
        let mut request = address.into_client_request().map_err(|error| bad(error.to_string()))?;
        if let Some(key) = &self.key {
            let bearer = HeaderValue::from_str(&format!("Bearer {key}"));
            let bearer = bearer.map_err(|_| bad("the key holds characters that no header takes".into()))?;
            request.headers_mut().insert("Authorization", bearer);
        }
        if let Some(Ticket { key, received, .. }) = ticket {
            // Not in the address, which ends up in logs.
            let offers = HeaderValue::from_str(&format!("realtime, antiphon-resume.{key}.{received}"));
            let offers = offers.map_err(|_| bad("the session's key holds characters that no header takes".into()))?;
            request.headers_mut().insert("Sec-WebSocket-Protocol", offers);
        }
        Ok(request)
    }
}

/// Connects. Dropping the future gives up.
pub async fn connect(options: &ConnectOptions) -> Result<Connection, ClientError> {
    Connection::new(connect_to(options, None).await?, options.mode)
}

/// Connects to a new session, or to that of a ticket.
pub(super) async fn connect_to(options: &ConnectOptions, ticket: Option<&Ticket>) -> Result<Socket, ClientError> {
    let request = options.request(ticket)?;
    // Without the query, which may hold a key.
    let url = request.uri().to_string().split('?').next().unwrap_or_default().to_owned();
    let config = WebSocketConfig::default()
        .read_buffer_size(16 << 10)
        .write_buffer_size(0)
        .max_write_buffer_size(MAX_MESSAGE_BYTES)
        .max_message_size(Some(MAX_MESSAGE_BYTES));
    let connector = options.trust.connector()?;
    let connecting = connect_async_tls_with_config(request, Some(config), true, connector);
    let connecting = timeout(options.deadline, connecting).await;
    match connecting {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(error)) => Err(not_connected(url, error)),
        Err(_) => Err(ClientError::TimedOut { what: "connecting", after: options.deadline }),
    }
}

fn not_connected(url: String, error: WsError) -> ClientError {
    let WsError::Http(response) = error else {
        return ClientError::CannotConnect { url, source: Box::new(error) };
    };
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        let retry_after = response.headers().get("Retry-After").and_then(|value| value.to_str().ok());
        return ClientError::Full { retry_after: retry_after.map(str::to_owned) };
    }
    let body = String::from_utf8_lossy(response.body().as_deref().unwrap_or_default());
    ClientError::Refused { status: response.status().as_u16(), body: body.trim().chars().take(200).collect() }
}

/// An open socket, in its two halves.
pub struct Connection {
    /// To the server.
    pub sender: Sender,
    /// From the server.
    pub receiver: Receiver,
}

impl Connection {
    /// Takes over a socket whose handshake is done.
    pub fn new<S>(socket: WebSocketStream<S>, mode: AudioMode) -> Result<Self, ClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sink, stream) = socket.split();
        let encoder = if mode == AudioMode::Opus { Some(OpusOut::new().map_err(opus("opening"))?) } else { None };
        let sender = Sender { sink: Box::pin(sink), mode, encoder, sequence: 0, sent: Samples::ZERO, losing: false };
        let receiver = Receiver { stream: stream.boxed(), mode, decoder: None, ticket: None, n_received: 0 };
        Ok(Self { sender, receiver })
    }

    /// Goes on on another socket: numbers, encoder and decoder as they are.
    pub(super) fn replace(&mut self, socket: Socket) {
        let (sink, stream) = socket.split();
        self.sender.sink = Box::pin(sink);
        self.receiver.stream = stream.boxed();
    }
}

/// The half to the server.
pub struct Sender {
    sink: Pin<Box<dyn Sink<Message, Error = WsError> + Send>>,
    mode: AudioMode,
    encoder: Option<OpusOut>,
    sequence: u32,
    sent: Samples,
    losing: bool,
}

impl Sender {
    /// How audio travels on this socket.
    pub fn mode(&self) -> AudioMode {
        self.mode
    }

    /// Sends one event as it is. Waits while the server does not read, 10 s at most.
    pub async fn event(&mut self, event: &Value) -> Result<(), ClientError> {
        self.send(Message::text(event.to_string())).await
    }

    /// Sends microphone audio: mono PCM at [`super::RATE`], any length; whole frames of 20 ms in the Opus mode, where
    /// what is short of one waits for the next call.
    pub async fn audio(&mut self, samples: &[i16]) -> Result<(), ClientError> {
        let bytes = || samples.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<u8>>();
        match self.mode {
            AudioMode::Ga => {
                let mut text = String::from(r#"{"type":"input_audio_buffer.append","audio":""#);
                STANDARD.encode_string(bytes(), &mut text);
                text.push_str(r#""}"#);
                self.send(Message::text(text)).await
            }
            AudioMode::Pcm16 => self.frame(bytes().into(), samples.len() as u64).await,
            AudioMode::Opus => {
                let mut packets = Vec::new();
                let encoder = self.encoder.as_mut().expect("the Opus mode has an encoder");
                encoder
                    .push(samples, &mut |packet| packets.push(Bytes::copy_from_slice(packet)))
                    .map_err(opus("encoding"))?;
                for packet in packets {
                    self.frame(packet, super::FRAME as u64).await?;
                }
                Ok(())
            }
        }
    }

    /// From now on binary frames of audio are made and numbered, but not sent: what a network loses. It does nothing in
    /// the GA mode, whose audio is JSON on a connection that loses nothing.
    pub fn lose(&mut self, losing: bool) {
        self.losing = losing;
    }

    async fn frame(&mut self, payload: Bytes, n_samples: u64) -> Result<(), ClientError> {
        let frame = Frame { kind: FrameKind::Microphone, sequence: self.sequence, offset: self.sent, payload };
        self.sequence = self.sequence.wrapping_add(1);
        self.sent += Samples(n_samples);
        if self.losing {
            return Ok(());
        }
        let bytes = frame.encode().map_err(|error| ClientError::Protocol(error.to_string()))?;
        self.send(Message::Binary(bytes)).await
    }

    /// Writes a message of the user's and asks for a response.
    pub async fn say_in_text(&mut self, text: &str) -> Result<(), ClientError> {
        let content = json!([{"type": "input_text", "text": text}]);
        let item = json!({"type": "message", "role": "user", "content": content});
        self.event(&json!({"type": "conversation.item.create", "item": item})).await?;
        self.event(&json!({"type": "response.create"})).await
    }

    /// Reports what was heard of a reply; nothing in the GA mode, which has no such event.
    pub async fn played(&mut self, item_id: &ItemId, audio_end_ms: u64) -> Result<(), ClientError> {
        if self.mode == AudioMode::Ga {
            return Ok(());
        }
        let event = json!({"type": "output_audio_buffer.played", "item_id": item_id, "audio_end_ms": audio_end_ms});
        self.event(&event).await
    }

    /// Says goodbye. A server that is gone already is no error.
    pub async fn close(&mut self) {
        let _ = timeout(SEND_DEADLINE, self.sink.close()).await;
    }

    async fn send(&mut self, message: Message) -> Result<(), ClientError> {
        match timeout(SEND_DEADLINE, self.sink.send(message)).await {
            Ok(sent) => sent.map_err(broken),
            Err(_) => Err(ClientError::TimedOut { what: "sending", after: SEND_DEADLINE }),
        }
    }
}

/// The half from the server.
pub struct Receiver {
    stream: BoxStream<'static, Result<Message, WsError>>,
    mode: AudioMode,
    decoder: Option<opus::Decoder>,
    /// The way back, once the server has told it; its count is not kept up.
    ticket: Option<Ticket>,
    n_received: u64,
}

impl Receiver {
    /// How to go on with the session on another connection, where the server has said that it can be done.
    pub fn ticket(&self) -> Option<Ticket> {
        Some(Ticket { received: self.n_received, ..self.ticket.clone()? })
    }

    /// The next thing received; waits without a deadline, and nothing is lost when the wait is dropped.
    pub async fn next(&mut self) -> Result<Received, ClientError> {
        let received = self.message().await?;
        self.n_received += 1;
        if let Received::Event(Event::SessionResumable { key, within_s }) = &received {
            let within = Duration::from_secs(*within_s);
            self.ticket = Some(Ticket { key: key.clone(), within, received: 0 });
        }
        Ok(received)
    }

    /// The first message on a connection that goes on with a session; it is not counted.
    pub(super) async fn greeting(&mut self) -> Result<Received, ClientError> {
        self.message().await
    }

    async fn message(&mut self) -> Result<Received, ClientError> {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => return read_event(text.as_str()),
                Some(Ok(Message::Binary(bytes))) => return self.read_frame(&bytes),
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame.map(|frame| format!("{} {}", u16::from(frame.code), frame.reason));
                    return Err(ClientError::Closed { reason: reason.unwrap_or_default().trim_end().to_owned() });
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(broken(error)),
                None => return Err(ClientError::Closed { reason: String::new() }),
            }
        }
    }

    fn read_frame(&mut self, bytes: &Bytes) -> Result<Received, ClientError> {
        let frame = Frame::parse(bytes).map_err(|error| ClientError::Protocol(error.to_string()))?;
        let FrameKind::Reply { item_id } = frame.kind else {
            return Err(ClientError::Protocol("a microphone frame".into()));
        };
        let samples = if self.mode == AudioMode::Opus { self.decode(&frame.payload)? } else { pcm(&frame.payload)? };
        Ok(Received::Audio { item_id: item_id.to_string(), samples })
    }

    fn decode(&mut self, packet: &[u8]) -> Result<Vec<i16>, ClientError> {
        if self.decoder.is_none() {
            let decoder = opus::Decoder::new(super::RATE.hz(), opus::Channels::Mono).map_err(opus("opening"))?;
            self.decoder = Some(decoder);
        }
        let decoder = self.decoder.as_mut().expect("it was just made");
        // 120 ms, the longest packet there is (RFC 6716, section 2.1.4).
        let mut samples = vec![0; 6 * super::FRAME];
        let n = decoder.decode(packet, &mut samples, false).map_err(opus("decoding"))?;
        samples.truncate(n);
        Ok(samples)
    }
}

fn read_event(text: &str) -> Result<Received, ClientError> {
    let event: Event = serde_json::from_str(text).map_err(|error| ClientError::Protocol(error.to_string()))?;
    match event {
        Event::AudioDelta { item_id, delta } => {
            let bytes =
                STANDARD.decode(delta).map_err(|error| ClientError::Protocol(format!("reply audio: {error}")))?;
            Ok(Received::Audio { item_id, samples: pcm(&bytes)? })
        }
        event => Ok(Received::Event(event)),
    }
}

fn pcm(bytes: &[u8]) -> Result<Vec<i16>, ClientError> {
    if !bytes.len().is_multiple_of(2) {
        return Err(ClientError::Protocol(format!("PCM16 of an odd length, {} bytes", bytes.len())));
    }
    Ok(bytes.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect())
}

fn broken(error: WsError) -> ClientError {
    match error {
        WsError::ConnectionClosed | WsError::AlreadyClosed => ClientError::Closed { reason: String::new() },
        error => ClientError::Broken(Box::new(error)),
    }
}

fn opus<E: Into<Box<dyn std::error::Error + Send + Sync>>>(what: &'static str) -> impl FnOnce(E) -> ClientError {
    move |error| ClientError::Opus { what, source: error.into() }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
