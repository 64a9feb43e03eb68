//! A WebSocket connection: connects, sends audio and events in the selected mode, receives typed events and PCM.

use super::error::ClientError;
use super::event::{Event, ReceivedMessage};
use super::link::{Link, Phase, Route, Writer};
use super::outbox::is_about_output;
use super::resume::{Back, Ticket, come_back, is_resumable};
use super::trust::Trust;
use antiphon_audio::codec::{Delivery, OpusOut};
use antiphon_protocol::frame::{Frame, FrameKind};
use antiphon_types::{ItemId, Samples};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
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
/// The reading half of a socket.
pub(super) type Reader = BoxStream<'static, Result<Message, WsError>>;

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
    /// Whether the session is resumed after its connection was lost, see [`Receiver::next`]: only this hub. Up to 8 MiB
    /// of sent messages are kept for it.
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
    let reconnect = options.resume.then(|| options.clone());
    Connection::open(connect_to(options, None).await?, options.mode, reconnect)
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
    /// A connection over a socket whose handshake is complete. Its session is not resumed.
    pub fn new<S>(socket: WebSocketStream<S>, mode: AudioMode) -> Result<Self, ClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self::open(socket, mode, None)
    }

    /// `reconnect`: how the session is resumed.
    fn open<S>(
        socket: WebSocketStream<S>,
        mode: AudioMode,
        reconnect: Option<ConnectOptions>,
    ) -> Result<Self, ClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (writer, reader) = socket.split();
        let link = Arc::new(Link::new(reconnect.is_some()));
        let encoder = if mode == AudioMode::Opus {
            Some(OpusOut::new(Delivery::Reliable).map_err(opus("opening"))?)
        } else {
            None
        };
        let sender = Sender {
            writer: Box::pin(writer),
            link: link.clone(),
            mode,
            encoder,
            sequence: 0,
            sent: Samples::ZERO,
            losing: false,
        };
        let receiver = Receiver {
            reader: reader.boxed(),
            arrived: VecDeque::new(),
            link,
            reconnect,
            coming_back: None,
            mode,
            decoder: None,
            next_frame: None,
            n_misplaced_frames: 0,
        };
        Ok(Self { sender, receiver })
    }
}

/// The sending half of a connection. While the connection of a resumable session is lost, messages are kept and sent
/// once the receiving half has resumed it: sending then succeeds at once.
pub struct Sender {
    writer: Writer,
    link: Arc<Link>,
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
        self.send(Message::text(event.to_string()), is_about_output(event)).await
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
                self.send(Message::text(text), false).await
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
        self.send(Message::Binary(bytes), false).await
    }

    /// Sends a text message of the user and requests a response.
    pub async fn say_in_text(&mut self, text: &str) -> Result<(), ClientError> {
        let content = json!([{"type": "input_text", "text": text}]);
        let item = json!({"type": "message", "role": "user", "content": content});
        self.event(&json!({"type": "conversation.item.create", "item": item})).await?;
        self.event(&json!({"type": "response.create"})).await
    }

    /// Reports that the client has stopped a reply after `heard_ms` of its sound.
    pub async fn truncate(&mut self, item_id: &str, heard_ms: u64) -> Result<(), ClientError> {
        let event = json!({
            "type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "audio_end_ms": heard_ms,
        });
        self.event(&event).await
    }

    /// Sends a playback report; does nothing in the GA mode, which has no such event.
    pub async fn played(&mut self, item_id: &ItemId, audio_end_ms: u64) -> Result<(), ClientError> {
        if self.mode == AudioMode::Ga {
            return Ok(());
        }
        let event = json!({"type": "output_audio_buffer.played", "item_id": item_id, "audio_end_ms": audio_end_ms});
        self.event(&event).await
    }

    /// Closes the connection and ends the session. A server that has already closed is not an error.
    pub async fn close(&mut self) {
        self.adopt();
        self.link.end();
        let _ = timeout(SEND_DEADLINE, self.writer.close()).await;
    }

    async fn send(&mut self, message: Message, about_output: bool) -> Result<(), ClientError> {
        let link = self.link.clone();
        let disconnected = link.disconnected();
        tokio::pin!(disconnected);
        disconnected.as_mut().enable();
        let connection = match link.sending(&message, about_output) {
            Route::Kept => return Ok(()),
            Route::Over => return Err(ClientError::Closed { code: None, reason: String::new() }),
            Route::Write { connection, writer } => {
                if let Some(writer) = writer {
                    self.writer = writer;
                }
                connection
            }
        };
        let sent = tokio::select! {
            biased;
            // The receiving half noticed the loss first.
            () = disconnected, if link.keeps() => return Ok(()),
            sent = timeout(SEND_DEADLINE, self.writer.send(message)) => sent,
        };
        let error = match sent {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => broken(error),
            Err(_) => ClientError::TimedOut { what: "sending", after: SEND_DEADLINE },
        };
        if link.write_failed(connection) { Ok(()) } else { Err(error) }
    }

    /// Takes over the socket of a resumed session that nothing was sent on yet.
    fn adopt(&mut self) {
        if let Some(writer) = self.link.take_writer() {
            self.writer = writer;
        }
    }
}

/// The receiving half of a connection.
pub struct Receiver {
    reader: Reader,
    /// Messages that were read while the session was being resumed.
    arrived: VecDeque<Result<Message, WsError>>,
    link: Arc<Link>,
    /// How the session is resumed; `None`: it is not.
    reconnect: Option<ConnectOptions>,
    /// Resumes the session, while its connection is lost.
    coming_back: Option<BoxFuture<'static, Result<Back, ClientError>>>,
    mode: AudioMode,
    decoder: Option<opus::Decoder>,
    /// The expected sequence number of the next reply frame; `None` before the first.
    next_frame: Option<u32>,
    n_misplaced_frames: u64,
}

impl Receiver {
    /// The next message. Waits without a timeout; dropping the future loses nothing.
    ///
    /// If the connection of a session that was opened with [`ConnectOptions::resume`] is lost or closed with 1012, this
    /// connects again and resumes the session, at once and then with pauses, as long as the server keeps the session.
    /// The next result is then [`ReceivedMessage::Resumed`]. If the session has ended or cannot be resumed, the result is the
    /// error, and further calls fail.
    pub async fn next(&mut self) -> Result<ReceivedMessage, ClientError> {
        loop {
            if let Some(coming_back) = &mut self.coming_back {
                let back = coming_back.await;
                self.coming_back = None;
                return match back {
                    Ok(back) => Ok(self.take_back(back)),
                    Err(error) => {
                        self.link.end();
                        Err(error)
                    }
                };
            }
            let error = match self.message().await {
                Ok(message) => return self.take(message),
                Err(error) => error,
            };
            // This sends the reply to a close frame: the server waits for it.
            let _ = self.reader.next().now_or_never();
            let reconnect = self.reconnect.clone().filter(|_| is_resumable(&error) && self.link.disconnect());
            let Some(options) = reconnect else {
                self.link.end();
                return Err(error);
            };
            self.coming_back = Some(Box::pin(come_back(self.link.clone(), options, error)));
        }
    }

    /// Whether the connection is lost and the session being resumed, which [`Self::next`] does.
    pub fn is_away(&self) -> bool {
        self.coming_back.is_some() || self.link.phase() == Phase::Away
    }

    /// Number of messages of the session received so far, the number of the last one. It decreases if the session goes
    /// back ([`super::Resumption::back_to`]).
    pub fn n_received(&self) -> u64 {
        self.link.n_received()
    }

    /// Number of reply frames whose sequence number was not the one expected. Zero with a server that loses and repeats
    /// none; only for the binary modes.
    pub fn n_misplaced_frames(&self) -> u64 {
        self.n_misplaced_frames
    }

    fn take_back(&mut self, back: Back) -> ReceivedMessage {
        self.reader = back.reader;
        self.arrived = back.arrived;
        if back.resumed.back_to.is_some() {
            self.next_frame = back.next_frame;
            self.decoder = None;
        }
        ReceivedMessage::Resumed(back.resumed)
    }

    fn take(&mut self, message: Message) -> Result<ReceivedMessage, ClientError> {
        self.link.received();
        let received = match &message {
            Message::Text(text) => read_event(text.as_str())?,
            Message::Binary(bytes) => self.read_frame(bytes)?,
            other => return Err(ClientError::Protocol(format!("a message of another kind, {} bytes", other.len()))),
        };
        match &received {
            ReceivedMessage::Event(Event::SessionResumable { key, within_s }) => {
                self.link.allow_resumption(key, Duration::from_secs(*within_s));
            }
            ReceivedMessage::Event(Event::SessionCheckpoint { received }) => {
                self.link.checkpoint(*received, self.next_frame)
            }
            _ => {}
        }
        Ok(received)
    }

    async fn message(&mut self) -> Result<Message, ClientError> {
        while let Some(message) = self.arrived.pop_front() {
            if let Some(message) = sort(Some(message)) {
                return message;
            }
        }
        while self.link.phase() != Phase::Away {
            tokio::select! {
                message = next_message(&mut self.reader) => return message,
                () = self.link.lost_in_sending() => {}
            }
        }
        Err(ClientError::TimedOut { what: "sending", after: SEND_DEADLINE })
    }

    fn read_frame(&mut self, bytes: &Bytes) -> Result<ReceivedMessage, ClientError> {
        let frame = Frame::parse(bytes).map_err(|error| ClientError::Protocol(error.to_string()))?;
        let FrameKind::Reply { item_id } = frame.kind else {
            return Err(ClientError::Protocol("a microphone frame".into()));
        };
        self.n_misplaced_frames += u64::from(self.next_frame.is_some_and(|expected| expected != frame.sequence));
        self.next_frame = Some(frame.sequence.wrapping_add(1));
        let samples = if self.mode == AudioMode::Opus { self.decode(&frame.payload)? } else { pcm(&frame.payload)? };
        Ok(ReceivedMessage::Audio { item_id: item_id.to_string(), samples })
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

/// The next text or binary message.
pub(super) async fn next_message(reader: &mut Reader) -> Result<Message, ClientError> {
    loop {
        if let Some(message) = sort(reader.next().await) {
            return message;
        }
    }
}

/// A text or binary message, or the end of the connection; `None` for pings and pongs.
fn sort(message: Option<Result<Message, WsError>>) -> Option<Result<Message, ClientError>> {
    match message {
        Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => Some(Ok(message)),
        Some(Ok(Message::Close(frame))) => {
            let code = frame.as_ref().map(|frame| u16::from(frame.code));
            let reason = frame.map(|frame| format!("{} {}", u16::from(frame.code), frame.reason)).unwrap_or_default();
            Some(Err(ClientError::Closed { code, reason: reason.trim_end().to_owned() }))
        }
        Some(Ok(_)) => None,
        Some(Err(error)) => Some(Err(broken(error))),
        None => Some(Err(ClientError::Closed { code: None, reason: String::new() })),
    }
}

fn read_event(text: &str) -> Result<ReceivedMessage, ClientError> {
    let event: Event = serde_json::from_str(text).map_err(|error| ClientError::Protocol(error.to_string()))?;
    match event {
        Event::AudioDelta { item_id, delta } => {
            let bytes =
                STANDARD.decode(delta).map_err(|error| ClientError::Protocol(format!("reply audio: {error}")))?;
            Ok(ReceivedMessage::Audio { item_id, samples: pcm(&bytes)? })
        }
        event => Ok(ReceivedMessage::Event(event)),
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
        WsError::ConnectionClosed | WsError::AlreadyClosed => ClientError::Closed { code: None, reason: String::new() },
        error => ClientError::Broken(Box::new(error)),
    }
}

fn opus<E: Into<Box<dyn std::error::Error + Send + Sync>>>(what: &'static str) -> impl FnOnce(E) -> ClientError {
    move |error| ClientError::Opus { what, source: error.into() }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
