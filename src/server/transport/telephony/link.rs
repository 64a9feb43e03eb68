//! The connection to a peer: a WebSocket, TCP with AudioSocket frames, or RTP with a SIP dialog.
//!
//! [`super::conversation`] and [`super::bridge`] read a [`Source`] and write a [`Sink`] at the same time. It knows no
//! peer's messages.

use super::audiosocket;
use super::leg::{MAX_MESSAGE_BYTES, Packet, PeerMessage};
use super::sip::media::{MediaEvent, MediaSink, MediaSource};
use crate::server::edge::closing::{CLOSING, finish};
use crate::server::edge::websocket::close_for;
use crate::server::sessions::socket::STUCK;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use bytes::{Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

/// The reading half.
pub(super) enum Source {
    WebSocket(SplitStream<WebSocket>),
    Tcp { half: OwnedReadHalf, buffer: BytesMut },
    Media(Box<MediaSource>),
}

/// The writing half.
pub(super) enum Sink {
    WebSocket(SplitSink<WebSocket, Message>),
    Tcp(OwnedWriteHalf),
    Media(Box<MediaSink>),
}

/// What arrives.
pub(super) enum Incoming {
    Text(Utf8Bytes),
    Binary(Bytes),
    /// What the connection has read itself.
    Message(PeerMessage),
    /// The answer to [`Sink::ping`].
    Pong(u64),
    /// Something else: the peer is alive.
    Sign,
    /// The peer closed the connection, or it broke.
    Gone,
    /// The peer violates the protocol of the connection: a close code and its reason.
    Violation(u16, &'static str),
}

/// The peer is gone, or takes nothing.
#[derive(Debug)]
pub(super) struct PeerGone;

pub(super) fn websocket(socket: WebSocket) -> (Source, Sink) {
    let (sink, stream) = socket.split();
    (Source::WebSocket(stream), Sink::WebSocket(sink))
}

pub(super) fn tcp(stream: TcpStream) -> (Source, Sink) {
    let (read, write) = stream.into_split();
    (Source::Tcp { half: read, buffer: BytesMut::new() }, Sink::Tcp(write))
}

/// The halves of a call by SIP.
pub(super) fn media(source: MediaSource, sink: MediaSink) -> (Source, Sink) {
    (Source::Media(Box::new(source)), Sink::Media(Box::new(sink)))
}

impl Source {
    /// Whether the peer has put the call on hold, as far as it says so.
    pub(super) fn is_on_hold(&self) -> bool {
        matches!(self, Self::Media(media) if media.is_on_hold())
    }

    /// The media of a call by SIP; `None`: it is another call.
    pub(super) fn media(&mut self) -> Option<&mut MediaSource> {
        match self {
            Self::Media(media) => Some(media),
            Self::WebSocket(_) | Self::Tcp { .. } => None,
        }
    }

    /// The next message. Cancel safe.
    pub(super) async fn next(&mut self) -> Incoming {
        match self {
            Self::WebSocket(stream) => match stream.next().await {
                Some(Ok(Message::Text(text))) => Incoming::Text(text),
                Some(Ok(Message::Binary(bytes))) => Incoming::Binary(bytes),
                Some(Ok(Message::Pong(payload))) => payload
                    .as_ref()
                    .try_into()
                    .map_or(Incoming::Sign, |number| Incoming::Pong(u64::from_be_bytes(number))),
                Some(Ok(Message::Ping(_))) => Incoming::Sign,
                Some(Ok(Message::Close(_))) | None => Incoming::Gone,
                Some(Err(error)) => match close_for(error) {
                    Some((1009, _)) => Incoming::Violation(1009, "a message holds at most 64 KiB"),
                    Some((code, reason)) => Incoming::Violation(code, reason),
                    None => Incoming::Gone,
                },
            },
            Self::Media(media) => match media.next().await {
                MediaEvent::Peer(message) => Incoming::Message(message),
                MediaEvent::Silent => Incoming::Violation(1008, "no audio of the peer for 60 s"),
            },
            Self::Tcp { half, buffer } => loop {
                if let Some(frame) = audiosocket::frame(buffer) {
                    return Incoming::Binary(frame);
                }
                // A frame has 64 KiB at most, so that the buffer is bounded.
                if buffer.capacity() - buffer.len() < 512 {
                    buffer.reserve(4 * 1024);
                }
                match half.read_buf(buffer).await {
                    Ok(0) | Err(_) => return Incoming::Gone,
                    Ok(_) => {}
                }
            },
        }
    }
}

impl Sink {
    /// Whether the connection has pings of its own.
    pub(super) fn has_pings(&self) -> bool {
        matches!(self, Self::WebSocket(_))
    }

    /// Sends a message. Waits 10 s at most.
    pub(super) async fn send(&mut self, packet: Packet) -> Result<(), PeerGone> {
        let sent = async {
            match (self, packet) {
                (Self::WebSocket(sink), Packet::Text(text)) => {
                    sink.send(Message::Text(text.into())).await.map_err(|_| PeerGone)
                }
                (Self::WebSocket(sink), Packet::Binary(bytes)) => {
                    sink.send(Message::Binary(bytes)).await.map_err(|_| PeerGone)
                }
                (Self::Tcp(half), Packet::Binary(bytes)) => half.write_all(&bytes).await.map_err(|_| PeerGone),
                (Self::Media(media), Packet::Binary(bytes)) => {
                    media.send(&bytes);
                    Ok(())
                }
                (Self::Tcp(_) | Self::Media(_), Packet::Text(_)) => Ok(()),
            }
        };
        timeout(STUCK, sent).await.map_err(|_| PeerGone)?
    }

    /// Whether the peer gets audio all the time: silence where nothing is said.
    pub(super) fn is_continuous(&self) -> bool {
        matches!(self, Self::Media(_))
    }

    /// Sends a frame of silence, where the peer gets audio all the time.
    pub(super) fn idle(&mut self) {
        if let Self::Media(media) = self {
            media.idle();
        }
    }

    /// Sends a ping with this number, where the connection has pings.
    pub(super) async fn ping(&mut self, number: u64) -> Result<(), PeerGone> {
        let Self::WebSocket(sink) = self else { return Ok(()) };
        let ping = Message::Ping(Bytes::copy_from_slice(&number.to_be_bytes()));
        timeout(STUCK, sink.send(ping)).await.map_err(|_| PeerGone)?.map_err(|_| PeerGone)
    }
}

/// Closes the connection, whichever side ended the call, and reads until the peer has closed it, too: for two seconds at most.
/// `reason` is cut to the 123 bytes of a close frame.
pub(super) async fn end(source: &mut Source, sink: &mut Sink, code: u16, reason: &str) {
    match (source, sink) {
        (Source::WebSocket(stream), Sink::WebSocket(sink)) => {
            let end = reason.floor_char_boundary(123);
            let frame = CloseFrame { code, reason: reason[..end].into() };
            finish(sink, stream, Some(Message::Close(Some(frame)))).await;
        }
        (source @ Source::Tcp { .. }, Sink::Tcp(half)) => {
            let _ = timeout(CLOSING, half.shutdown()).await;
            let gone = async { while !matches!(source.next().await, Incoming::Gone) {} };
            let _ = timeout(CLOSING, gone).await;
        }
        // The dialog ends the call.
        (Source::Media(_), Sink::Media(_)) => {}
        _ => unreachable!("both halves are of one connection"),
    }
}

/// The limits of a telephony WebSocket: what a peer sends in one message is small.
pub(super) fn configured(upgrade: axum::extract::ws::WebSocketUpgrade) -> axum::extract::ws::WebSocketUpgrade {
    crate::server::edge::websocket::configured(upgrade)
        .max_message_size(MAX_MESSAGE_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES)
}
