//! One connection: requests are read, recorded and answered one after the other.

use crate::State;
use crate::answer::{Answer, Form, Length, Step};
use crate::request::{Request, find};
use futures_util::{SinkExt, StreamExt};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::WriteHalf;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};

/// The server's side of a WebSocket.
pub struct WebSocket(WebSocketStream<TcpStream>);

impl WebSocket {
    /// The next message; `None` once the connection has ended.
    pub async fn recv(&mut self) -> Option<Result<Message, Error>> {
        self.0.next().await
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn send(&mut self, message: Message) -> Result<(), Error> {
        self.0.send(message).await
    }
}

pub(crate) struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    /// Bytes that were read and belong to the next request.
    unread: Vec<u8>,
    open: Open,
}

/// Counts a connection while it lives.
struct Open(Arc<State>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.n_open.send_modify(|n| *n -= 1);
    }
}

/// What becomes of the connection after an answer.
enum End {
    Keep,
    Close,
    Reset,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, peer: SocketAddr, state: Arc<State>) -> Self {
        // A test in virtual time cannot wait for an acknowledgement that TCP delays.
        let _ = stream.set_nodelay(true);
        state.n_open.send_modify(|n| *n += 1);
        Self { stream, peer, unread: Vec::new(), open: Open(state) }
    }

    pub(crate) async fn run(mut self) {
        while let Some(mut request) = self.read().await {
            let state = self.open.0.clone();
            state.requests.send_modify(|all| {
                request.number = all.len();
                all.push(request.clone());
            });
            let answer = (state.answer)(&request);
            if let Form::WebSocket(script) = answer.form {
                return self.upgrade(&request, script).await;
            }
            let is_head_only = request.method == "HEAD";
            let mut end = self.answer(answer, is_head_only).await.unwrap_or(End::Close);
            if request.header("connection") == Some("close") && matches!(end, End::Keep) {
                end = End::Close;
            }
            match end {
                End::Keep => {}
                End::Close => return,
                End::Reset => {
                    let _ = self.stream.set_zero_linger();
                    return;
                }
            }
        }
    }

    /// The next request; `None` once the client has ended the connection.
    async fn read(&mut self) -> Option<Request> {
        let head_end = self.read_until(|bytes| find(bytes, b"\r\n\r\n").map(|at| at + 4)).await?;
        let head: Vec<u8> = self.unread.drain(..head_end).collect();
        let mut request = Request::new(String::from_utf8_lossy(&head).into_owned(), self.peer)?;
        if let Some(length) = request.header("content-length").and_then(|length| length.parse::<usize>().ok()) {
            self.read_until(|bytes| (bytes.len() >= length).then_some(length)).await?;
            request.body = self.unread.drain(..length).collect();
        } else if request.header("transfer-encoding").is_some() {
            self.read_until(|bytes| bytes.ends_with(b"0\r\n\r\n").then_some(0)).await?;
            request.body = unchunked(&std::mem::take(&mut self.unread))?;
        }
        Some(request)
    }

    /// Reads on until `is_enough` finds an end in what was read.
    async fn read_until(&mut self, is_enough: impl Fn(&[u8]) -> Option<usize>) -> Option<usize> {
        loop {
            if let Some(end) = is_enough(&self.unread) {
                return Some(end);
            }
            if self.stream.read_buf(&mut self.unread).await.ok()? == 0 {
                return None;
            }
        }
    }

    async fn answer(&mut self, answer: Answer, is_head_only: bool) -> io::Result<End> {
        let (mut reader, writer) = self.stream.split();
        let mut body = Body { writer, state: &self.open.0, is_chunked: false, n_bytes: 0 };
        let unread = &mut self.unread;
        let client_is_gone = async {
            while reader.read_buf(unread).await? > 0 {}
            Ok(End::Close)
        };
        tokio::select! {
            biased;
            end = body.write(answer, is_head_only) => end,
            end = client_is_gone => end,
        }
    }

    async fn upgrade(
        mut self,
        request: &Request,
        script: Box<dyn FnOnce(WebSocket) -> futures_util::future::BoxFuture<'static, ()> + Send>,
    ) {
        let key = request.header("sec-websocket-key").expect("the client asks for a WebSocket");
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: {}\r\n\r\n",
            derive_accept_key(key.as_bytes())
        );
        if self.stream.write_all(head.as_bytes()).await.is_ok() {
            let stream = WebSocketStream::from_partially_read(self.stream, self.unread, Role::Server, None).await;
            script(WebSocket(stream)).await;
        }
    }
}

/// Writes an answer.
struct Body<'a> {
    writer: WriteHalf<'a>,
    state: &'a State,
    is_chunked: bool,
    n_bytes: u64,
}

impl Body<'_> {
    async fn write(&mut self, answer: Answer, is_head_only: bool) -> io::Result<End> {
        if !answer.delay.is_zero() {
            tokio::time::sleep(answer.delay).await;
        }
        let mut end = End::Close;
        let mut announced = None;
        if let Form::Http(head) = answer.form {
            let mut text = format!("HTTP/1.1 {} \r\n", head.status);
            for (name, value) in &head.headers {
                text += &format!("{name}: {value}\r\n");
            }
            let sent = answer.steps.iter().map(|step| if let Step::Send(bytes) = step { bytes.len() } else { 0 });
            match head.length {
                Length::Right => text += &format!("content-length: {}\r\n", sent.sum::<usize>()),
                Length::Announced(n_bytes) => {
                    announced = Some(n_bytes);
                    text += &format!("content-length: {n_bytes}\r\n");
                }
                Length::Unknown => text += "transfer-encoding: chunked\r\n",
            }
            self.raw((text + "\r\n").as_bytes()).await?;
            self.is_chunked = head.length == Length::Unknown;
            let closes = head.headers.iter().any(|(name, value)| name == "connection" && value == "close");
            end = if closes { End::Close } else { End::Keep };
            if is_head_only {
                return Ok(end);
            }
        }
        for step in answer.steps {
            match step {
                Step::Send(bytes) => self.piece(&bytes).await?,
                Step::Wait(until) => until.await,
                Step::Repeat(bytes, Duration::ZERO) => loop {
                    self.piece(&bytes).await?;
                },
                Step::Repeat(bytes, interval) => loop {
                    self.piece(&bytes).await?;
                    tokio::time::sleep(interval).await;
                },
                Step::Feed(mut pieces) => {
                    while let Some(piece) = pieces.recv().await {
                        self.piece(&piece).await?;
                    }
                }
                Step::Close => return Ok(End::Close),
                Step::Reset => return Ok(End::Reset),
            }
        }
        if self.is_chunked {
            self.raw(b"0\r\n\r\n").await?;
        }
        if announced.is_some_and(|n_bytes| n_bytes != self.n_bytes) {
            return Ok(End::Close);
        }
        Ok(end)
    }

    async fn piece(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.n_bytes += bytes.len() as u64;
        if !self.is_chunked {
            self.raw(bytes).await?;
        } else if !bytes.is_empty() {
            let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
            chunk.extend_from_slice(bytes);
            chunk.extend_from_slice(b"\r\n");
            self.raw(&chunk).await?;
        }
        // So that the client may read this piece before the next one comes.
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.state.n_bytes_sent.fetch_add(bytes.len(), Ordering::Relaxed);
        self.writer.write_all(bytes).await
    }
}

/// A body without its chunks.
fn unchunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = find(bytes, b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..line_end]).ok()?, 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        let start = line_end + 2;
        body.extend_from_slice(bytes.get(start..start + length)?);
        bytes = &bytes[start + length + 2..];
    }
}
