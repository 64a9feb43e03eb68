//! Moves messages between one WebSocket and a session: a reader that parses and forwards, and a writer that sends from
//! the egress log.
//!
//! [`super::session_slot`] runs both for each connection of a session. No message is dropped: while a session falls
//! behind, its socket is not read, and an incomplete message is charged to the budgets while it grows
//! ([`crate::server::edge::unfinished`]). The only decision made here is whether the peer is still alive.

use super::handover::SharedReader;
use super::heartbeat::{Beat, Heartbeat, HeartbeatReset};
use super::parts::SessionParts;
use crate::server::edge::closing::{CLOSING, close};
use crate::server::edge::inflow::Inflow;
use crate::server::edge::unfinished::{Next, UnfinishedMessage};
use crate::server::edge::websocket::close_for;
use antiphon_protocol::frame::MicrophoneFrame;
use antiphon_protocol::{Dialect, WireError};
use antiphon_session::{AudioMode, BudgetPermit, Close, Egress, Handle, Inbound, InboundPayload, Message};
use axum::extract::ws::{CloseFrame, Message as WsMessage, WebSocket};
use bytes::Bytes;
use futures_util::SinkExt;
use futures_util::stream::{SplitSink, SplitStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};

/// Timeout after which a session that accepts no message is considered stuck.
pub(in crate::server) const STUCK: Duration = Duration::from_secs(10);
/// How often a client that is not read counts as alive: less than the shortest interval of pings.
pub(in crate::server) const SIGN_OF_LIFE: Duration = Duration::from_millis(500);

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum End {
    /// The session ended, or the client closed the connection normally.
    Over,
    /// The connection broke; the client may resume.
    Lost,
}

/// The reader of one connection.
pub(in crate::server) struct Reader<'a> {
    pub(in crate::server) sessions: &'a SessionParts,
    pub(in crate::server) handle: &'a Handle,
    /// The connection's receive counters.
    pub(in crate::server) inflow: &'a Inflow,
    /// The session's own inbound budget.
    pub(in crate::server) budget: &'a Arc<Semaphore>,
    /// How the client's JSON is parsed.
    pub(in crate::server) dialect: Dialect,
    /// What its binary messages are.
    pub(in crate::server) mode: AudioMode,
    pub(in crate::server) heard: HeartbeatReset,
    /// For a session that other hubs may resume.
    pub(in crate::server) shared: Option<SharedReader>,
    /// Number of messages the session has received, over all its connections.
    pub(in crate::server) received: &'a AtomicU64,
}

impl Reader<'_> {
    /// Forwards messages until the client is gone. On a protocol violation, the writer sends the close frame.
    pub(in crate::server) async fn run(&self, stream: &mut SplitStream<WebSocket>) -> End {
        let mut unfinished = UnfinishedMessage::new(&self.sessions.edge, self.inflow, self.budget);
        loop {
            self.pause().await;
            let message = match unfinished.next(stream, STUCK).await {
                Next::Message(Some(message)) => message,
                Next::Message(None) => return End::Lost,
                Next::Late => return self.close(1008, "a message took too long (server.message_seconds)").await,
                Next::NoRoom => return self.close(1013, "the server cannot keep up").await,
            };
            self.heard.renew();
            if let Some(shared) = &self.shared {
                shared.heard.send_replace(Instant::now());
            }
            let inbound = match message {
                Ok(WsMessage::Text(text)) => {
                    let Some(budget) = self.share(&mut unfinished, text.len()).await else {
                        return std::future::pending().await;
                    };
                    Inbound { payload: self.dialect.parse(text.as_str()).into(), budget: Some(budget) }
                }
                Ok(WsMessage::Binary(bytes)) => {
                    let Some(budget) = self.share(&mut unfinished, bytes.len()).await else {
                        return std::future::pending().await;
                    };
                    Inbound { payload: self.audio(&bytes), budget: Some(budget) }
                }
                Ok(WsMessage::Pong(payload)) => {
                    if let Some(number) = answered(&payload) {
                        self.handle.egress.answered(number);
                    }
                    continue;
                }
                Ok(WsMessage::Ping(_)) => continue,
                Ok(WsMessage::Close(frame)) => return said_goodbye(frame.as_ref()),
                Err(error) => {
                    let Some((code, reason)) = close_for(error) else { return End::Lost };
                    return self.close(code, reason).await;
                }
            };
            match timeout(STUCK, self.handle.inbound.send(inbound)).await {
                Ok(Ok(())) => self.received.fetch_add(1, Ordering::Relaxed),
                // The session has ended; the writer sends its last messages.
                Ok(Err(_)) => return std::future::pending().await,
                // It takes nothing any more because it moves: the slot closes the connection.
                Err(_) if self.shared.as_ref().is_some_and(SharedReader::leaves) => {
                    return std::future::pending().await;
                }
                Err(_) => return self.close(1013, "the session cannot keep up").await,
            };
        }
    }

    fn audio(&self, bytes: &Bytes) -> InboundPayload {
        match self.mode {
            AudioMode::Events => InboundPayload::Invalid(Box::new(WireError::binary_frame())),
            AudioMode::Pcm16 | AudioMode::Opus => MicrophoneFrame::parse(bytes).into(),
        }
    }

    /// Waits while the session's audio is ahead of a limit. The client is alive as far as anybody can know: its pongs are not read
    /// either.
    async fn pause(&self) {
        loop {
            let until = *self.handle.read_from.borrow();
            let Some(until) = until.filter(|until| *until > Instant::now()) else { return };
            sleep_until(until.min(Instant::now() + SIGN_OF_LIFE)).await;
            self.heard.renew();
            if let Some(shared) = &self.shared {
                shared.heard.send_replace(Instant::now());
            }
        }
    }

    /// Closes the session; the writer sends the close frame and ends. The client may still be sending.
    async fn close(&self, code: u16, reason: &'static str) -> End {
        self.inflow.set_lingers(true);
        self.handle.egress.close(Close { code, reason });
        std::future::pending().await
    }

    /// Counts a message and waits for its share of the inbound budget; closes the session if none becomes available in
    /// [`STUCK`].
    async fn share(&self, unfinished: &mut UnfinishedMessage<'_>, bytes: usize) -> Option<BudgetPermit> {
        self.sessions.setup.metrics.bytes_in(bytes as u64);
        let share = timeout(STUCK, unfinished.share(bytes)).await.ok();
        if share.is_none() {
            self.inflow.set_lingers(true);
            self.handle.egress.close(Close { code: 1013, reason: "the server cannot keep up" });
        }
        share
    }
}

/// The message number in a ping's payload, which the pong returns.
fn answered(payload: &Bytes) -> Option<u64> {
    Some(u64::from_be_bytes(payload.as_ref().try_into().ok()?))
}

/// A client that leaves sends 1000 (done), 1001 (going away) or no code; other codes come from its library and report a
/// broken connection.
fn said_goodbye(frame: Option<&CloseFrame>) -> End {
    match frame {
        Some(frame) if !matches!(frame.code, 1000 | 1001 | 1005) => End::Lost,
        _ => End::Over,
    }
}

/// Sends the session's messages until it closes, the client stops reading, or the heartbeat fails. Pings carry the
/// number of the last message sent, so that pongs acknowledge it.
pub(in crate::server) async fn write(
    sink: &mut SplitSink<WebSocket, WsMessage>,
    egress: &Egress,
    mut heartbeat: Heartbeat,
) -> End {
    loop {
        let next = tokio::select! {
            next = egress.next_message() => Some(next),
            beat = heartbeat.beat() => match beat {
                Beat::Ping => None,
                Beat::Dead => {
                    let _ = timeout(CLOSING, sink.send(close(1011, "no answer to two pings"))).await;
                    return End::Lost;
                }
            },
        };
        let mut sent = match next {
            Some(Ok(Message::Text(text))) => sink.send(WsMessage::Text(text.into())).await,
            Some(Ok(Message::Binary(bytes))) => sink.send(WsMessage::Binary(bytes)).await,
            Some(Err(Close { code, reason })) => {
                let _ = timeout(CLOSING, sink.send(close(code, reason))).await;
                return End::Over;
            }
            None => sink.send(ping(egress.n_sent())).await,
        };
        if let Some(number) = egress.to_ask() {
            sent = sent.and(sink.send(ping(number)).await);
        }
        if sent.is_err() {
            return End::Lost;
        }
    }
}

fn ping(number: u64) -> WsMessage {
    WsMessage::Ping(Bytes::copy_from_slice(&number.to_be_bytes()))
}
