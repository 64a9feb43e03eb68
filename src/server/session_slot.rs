//! A session's slot: its reservation among `max_sessions`, and the successive connections of its client.
//!
//! The upgrade passes the first connection to [`SessionSlot::run`]. A resumable session keeps its slot when the
//! connection breaks and waits for the next one, which `resume` delivers here; any other session ends with its
//! connection. Dropping the slot ends the session and everything it started.

use super::app::{App, SessionPlace};
use super::auth;
use super::heartbeat::Heartbeat;
use super::inflow::Inflow;
use super::resume::{Registered, Return};
use super::socket::{CLOSING, End, Reader, close, write};
use antiphon_protocol::{Dialect, SessionNotice, encode_notice};
use antiphon_session::{AudioMode, Handle, Opening};
use antiphon_telemetry::ActiveSession;
use antiphon_types::IdMint;
use axum::extract::ws::{Message as WsMessage, WebSocket};
use futures_util::stream::SplitStream;
use futures_util::{SinkExt, StreamExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// Time for sending the last messages before a close.
const LAST_MESSAGES: Duration = Duration::from_secs(2);

/// A session and its reservation.
pub(super) struct SessionSlot {
    app: Arc<App>,
    handle: Handle,
    mode: AudioMode,
    dialect: Dialect,
    /// Delivers the next connection; `None`: the session is not resumable.
    registered: Option<Registered>,
    received: AtomicU64,
    /// The inbound budget of all connections: messages of an earlier one that are still unprocessed count.
    budget: Arc<Semaphore>,
    /// Cancelled when the API key is revoked.
    revoked: CancellationToken,
    _place: SessionPlace,
    _counted: ActiveSession,
}

/// How one connection of a session ended.
enum Ended {
    Over,
    Lost,
    /// The client has returned on another connection before this one was known to be dead.
    Replaced(Box<Return>),
}

impl SessionSlot {
    /// Opens the session.
    pub(super) fn new(app: Arc<App>, opening: Opening, place: SessionPlace, registered: Option<Registered>) -> Self {
        let counted = app.setup.metrics.session();
        let (mode, dialect) = (opening.mode, opening.dialect);
        let revoked = app.access.lease(opening.owner);
        let handle = app.setup().open(opening);
        app.sessions.insert(handle.id.clone(), mode);
        let (received, budget) = (AtomicU64::new(0), App::session_budget());
        Self { app, handle, mode, dialect, registered, received, budget, revoked, _place: place, _counted: counted }
    }

    /// Serves the session until it ends.
    pub(super) async fn run(mut self, socket: WebSocket, inflow: Arc<Inflow>) {
        let id = self.handle.id.clone();
        tracing::info!(session = %id, mode = ?self.mode, "connected");
        let mut connection = Some((socket, inflow, None));
        while let Some((socket, inflow, greeting)) = connection.take() {
            let ended = self.serve(socket, &inflow, greeting).await;
            inflow.linger().await;
            let mut next = match ended {
                Ended::Over => None,
                Ended::Replaced(next) => Some(*next),
                Ended::Lost if self.registered.is_none() => None,
                Ended::Lost => {
                    tracing::info!(session = %id, "disconnected; waiting for the client to resume");
                    self.handle.egress.detach();
                    self.wait(self.until()).await
                }
            };
            let until = self.until();
            while let Some(Return { socket, inflow, after }) = next.take() {
                self.handle.egress.detach();
                match self.handle.egress.attach(after) {
                    Ok(()) => {
                        tracing::info!(session = %id, after, "resumed");
                        connection = Some((socket, inflow, Some(after)));
                    }
                    Err(error) => {
                        auth::turn_away(socket, super::resume::refusal(error.to_string())).await;
                        next = self.wait(until).await;
                    }
                }
            }
        }
        self.app.sessions.remove(&id);
        tracing::info!(session = %id, "disconnected");
    }

    fn until(&self) -> Instant {
        Instant::now() + Duration::from_secs(u64::from(self.app.setup.session.resume_seconds))
    }

    /// Waits for the client's next connection; `None` at `until`, or if the session has ended.
    async fn wait(&mut self, until: Instant) -> Option<Return> {
        let registered = self.registered.as_mut()?;
        tokio::select! {
            next = timeout_at(until, registered.returns.recv()) => next.ok().flatten(),
            () = self.handle.egress.closed() => None,
            () = self.app.kill.cancelled() => None,
            () = self.revoked.cancelled() => None,
        }
    }

    /// Serves one connection. `after`: resumes after the message with this number.
    async fn serve(&mut self, socket: WebSocket, inflow: &Inflow, after: Option<u64>) -> Ended {
        let _counted = self.app.connected();
        let (mut sink, mut stream) = socket.split();
        let Self { app, handle, dialect, registered, received, budget, revoked, .. } = self;
        if let Some(after) = after {
            let notice = SessionNotice::Resumed { after, received: received.load(Ordering::Relaxed) };
            let text = encode_notice(&notice, &IdMint::new(rand::random()).next("event"));
            if !matches!(timeout(LAST_MESSAGES, sink.send(WsMessage::Text(text.into()))).await, Ok(Ok(()))) {
                return Ended::Lost;
            }
        }
        let (heard, heartbeat) = Heartbeat::new(Duration::from_secs(u64::from(app.config.ping_seconds)));
        let reader = Reader { app, handle, inflow, budget, dialect: *dialect, heard, received };
        let end = tokio::select! {
            end = reader.run(&mut stream) => end,
            end = write(&mut sink, &handle.egress, heartbeat) => end,
            () = async { handle.egress.closed().await; tokio::time::sleep(LAST_MESSAGES).await } => End::Over,
            () = handle.egress.lost() => End::Lost,
            () = app.kill.cancelled() => {
                let _ = timeout(CLOSING, sink.send(close(1001, "the server is going away"))).await;
                End::Over
            }
            () = revoked.cancelled() => {
                let _ = timeout(CLOSING, sink.send(close(1008, "the API key of this session has been revoked"))).await;
                End::Over
            }
            next = come_back(app, handle, registered) => {
                let _ = timeout(CLOSING, sink.send(close(1001, "the session continues on another connection"))).await;
                return Ended::Replaced(Box::new(next));
            }
        };
        // A close frame is answered, whatever its content.
        let_close(&mut stream).await;
        match end {
            End::Lost => Ended::Lost,
            End::Over => Ended::Over,
        }
    }
}

/// Waits for a connection of the client that can resume from the message it names; never resolves if the session is not
/// resumable. A connection that cannot resume is rejected, and the current one continues.
async fn come_back(app: &Arc<App>, handle: &Handle, registered: &mut Option<Registered>) -> Return {
    while let Some(registered) = registered
        && let Some(next) = registered.returns.recv().await
    {
        let Err(error) = handle.egress.may_attach(next.after) else { return next };
        // If too many are being rejected, the connection is dropped without an error event.
        if let Some(place) = app.turn_away() {
            app.setup.tasks.spawn(async move {
                auth::turn_away(next.socket, super::resume::refusal(error.to_string())).await;
                drop(place);
            });
        }
    }
    std::future::pending().await
}

/// Reads until the peer closes: the library completes the closing handshake only while the socket is read.
async fn let_close(stream: &mut SplitStream<WebSocket>) {
    let _ = timeout(CLOSING, async { while let Some(Ok(_)) = stream.next().await {} }).await;
}
