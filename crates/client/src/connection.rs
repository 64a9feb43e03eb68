//! A WebSocket connection: connects, sends audio and events in the selected mode, receives typed events and PCM.

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

/// Timeout for sending one message: a server that does not read for this long counts as gone.
const SEND_DEADLINE: Duration = Duration::from_secs(10);
/// The largest accepted message, equal to the hub's own limit.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// A socket after its handshake.
pub(super) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// How audio is transported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AudioMode {
    /// Base64 in JSON events, supported by every GA server.
    #[default]
    Ga,
    /// Binary frames of PCM16: only this hub.
    Pcm16,
    /// Binary frames of Opus: only this hub.
    Opus,
}

/// Address and options of a connection.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// `http(s)://` or `ws(s)://`; the default path is `/v1/realtime`.
    pub url: String,
    /// API key, sent as a bearer token.
    pub key: Option<String>,
    /// `?model=`; required by some servers.
    pub model: Option<String>,
    /// How audio is transported.
    pub mode: AudioMode,
    /// How the server's certificate is verified.
    pub trust: Trust,
    /// Whether the session can be resumed with [`Connection::resume`] after a break: only this hub.
    pub resume: bool,
    /// Timeout for connecting, including the handshake.
    pub deadline: Duration,
}

impl ConnectOptions {
    /// Options for `url` in the GA mode, without key and model, with a timeout of 10 s.
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
            let bearer = bearer.map_err(|_| bad("the key holds characters that are not allowed in a header".into()))?;
            request.headers_mut().insert("Authorization", bearer);
        }
        if let Some(Ticket { key, received, .. }) = ticket {
            // The key is not sent in the address, because addresses are logged.
            let offers = HeaderValue::from_str(&format!("realtime, antiphon-resume.{key}.{received}"));
            let offers = offers
                .map_err(|_| bad("the session's key holds characters that are not allowed in a header".into()))?;
            request.headers_mut().insert("Sec-WebSocket-Protocol", offers);
        }
        Ok(request)
    }
}

/// Connects. Dropping the future cancels the attempt.
pub async fn connect(options: &ConnectOptions) -> Result<Connection, ClientError> {
    Connection::new(connect_to(options, None).await?, options.mode)
}

/// Connects to a new session, or to the session of a ticket.
pub(super) async fn connect_to(options: &ConnectOptions, ticket: Option<&Ticket>) -> Result<Socket, ClientError> {
    let request = options.request(ticket)?;
    // Without the query, which may contain a key.
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
    let body = String::from_utf8_lossy(response.body().as_deref().unwrap_or_default());
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        let retry_after = response.headers().get("Retry-After").and_then(|value| value.to_str().ok());
        let body: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        let said = body["error"]["message"].as_str().map(|said| said.chars().take(200).collect::<String>());
        let reason = said.map_or_else(|| "the server is full".to_owned(), |said| said.trim_end_matches('.').to_owned());
        return ClientError::Unavailable { reason, retry_after: retry_after.map(str::to_owned) };
    }
    ClientError::Refused { status: response.status().as_u16(), body: body.trim().chars().take(200).collect() }
}

/// An open connection, split into its two halves.
pub struct Connection {
    /// Sends to the server.
    pub sender: Sender,
    /// Receives from the server.
    pub receiver: Receiver,
}

impl Connection {
    /// A connection over a socket whose handshake is complete.
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

    /// Continues on another socket; sequence numbers, encoder and decoder are kept.
    pub(super) fn replace(&mut self, socket: Socket) {
        let (sink, stream) = socket.split();
        self.sender.sink = Box::pin(sink);
        self.receiver.stream = stream.boxed();
    }
}

/// The sending half of a connection.
pub struct Sender {
    sink: Pin<Box<dyn Sink<Message, Error = WsError> + Send>>,
    mode: AudioMode,
    encoder: Option<OpusOut>,
    sequence: u32,
    sent: Samples,
    losing: bool,
}

impl Sender {
    /// How audio is transported on this connection.
    pub fn mode(&self) -> AudioMode {
        self.mode
    }

    /// Sends one event unchanged. Waits at most 10 s for a server that does not read.
    pub async fn event(&mut self, event: &Value) -> Result<(), ClientError> {
        self.send(Message::text(event.to_string())).await
    }

    /// Sends microphone audio: mono PCM at [`super::RATE`], any length. In the Opus mode it is sent in frames of 20 ms,
    /// and a partial frame waits for the next call.
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

    /// Simulates packet loss: while `losing`, binary audio frames are encoded and numbered but not sent. Has no effect
    /// in the GA mode, whose transport is lossless.
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

    /// Sends a text message of the user and requests a response.
    pub async fn say_in_text(&mut self, text: &str) -> Result<(), ClientError> {
        let content = json!([{"type": "input_text", "text": text}]);
        let item = json!({"type": "message", "role": "user", "content": content});
        self.event(&json!({"type": "conversation.item.create", "item": item})).await?;
        self.event(&json!({"type": "response.create"})).await
    }

    /// Sends a playback report; does nothing in the GA mode, which has no such event.
    pub async fn played(&mut self, item_id: &ItemId, audio_end_ms: u64) -> Result<(), ClientError> {
        if self.mode == AudioMode::Ga {
            return Ok(());
        }
        let event = json!({"type": "output_audio_buffer.played", "item_id": item_id, "audio_end_ms": audio_end_ms});
        self.event(&event).await
    }

    /// Closes the connection. A server that has already closed is not an error.
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

/// The receiving half of a connection.
pub struct Receiver {
    stream: BoxStream<'static, Result<Message, WsError>>,
    mode: AudioMode,
    decoder: Option<opus::Decoder>,
    /// The ticket for resuming, if the server sent one; its `received` count is not updated.
    ticket: Option<Ticket>,
    n_received: u64,
}

impl Receiver {
    /// The ticket for resuming the session on another connection, if the server supports it.
    pub fn ticket(&self) -> Option<Ticket> {
        Some(Ticket { received: self.n_received, ..self.ticket.clone()? })
    }

    /// The next message. Waits without a timeout; dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Received, ClientError> {
        let received = self.message().await?;
        self.n_received += 1;
        if let Received::Event(Event::SessionResumable { key, within_s }) = &received {
            let within = Duration::from_secs(*within_s);
            self.ticket = Some(Ticket { key: key.clone(), within, received: 0 });
        }
        Ok(received)
    }

    /// The first message on a resumed connection; it is not counted.
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
        let decoder = self.decoder.as_mut().expect("created above");
        // 120 ms, the longest packet (RFC 6716, section 2.1.4).
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
