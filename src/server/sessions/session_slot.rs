//! A session's slot: its reservation among `max_sessions`, and the successive connections of its client.
//!
//! The upgrade passes the first connection to [`SessionSlot::run`]. A resumable session keeps its slot when the
//! connection breaks and waits for the next one, which `resume` delivers here; any other session ends with its
//! connection. Dropping the slot ends the session and everything it started.

use super::admission::{LiveSession, SessionAdmission};
use super::handover::{self, MoveReason, StoredSession};
use super::heartbeat::Heartbeat;
use super::parts::SessionParts;
use super::resume::{Registration, Return};
use super::socket::{End, Reader, write};
use crate::server::access::auth;
use crate::server::edge::closing::{CLOSING, close, finish};
use crate::server::edge::inbound_budget::InboundBudget;
use crate::server::edge::inflow::Inflow;
use antiphon_protocol::{Dialect, ServerEvent, SessionNotice, encode};
use antiphon_session::{AudioMode, Handle, Opening, SessionLimits, Snapshot, SnapshotError, SnapshotSender, WEBSOCKET};
use antiphon_types::IdMint;
use axum::extract::ws::{Message as WsMessage, WebSocket};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, SinkExt, StreamExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

/// Time for sending the last messages before a close.
const LAST_MESSAGES: Duration = Duration::from_secs(2);

/// A session and its reservation.
pub(in crate::server) struct SessionSlot {
    sessions: Arc<SessionParts>,
    handle: Handle,
    mode: AudioMode,
    dialect: Dialect,
    /// Delivers the next connection; `None`: the session is not resumable.
    registered: Option<Registration>,
    received: AtomicU64,
    /// The message that the session went back to, and how many messages of its client it held then. Until there is another one the
    /// client may not know, and name a number of what is void.
    went_back: Option<(u64, u64)>,
    /// The inbound budget of all connections: messages of an earlier one that are still unprocessed count.
    budget: Arc<Semaphore>,
    /// Where its state is stored; `None`: no other hub may resume it.
    kept: Option<StoredSession>,
    live: LiveSession,
}

/// How one connection of a session ended.
enum ConnectionEnd {
    Over,
    Lost,
    /// The client has returned on another connection before this one was known to be dead.
    Replaced(Box<Return>),
    /// It goes on at another hub.
    Moved,
}

/// What ends a connection besides its own reading and writing.
enum Interruption {
    /// The session was closed, and its last messages had time to leave.
    Closed,
    Lost,
    Moved(MoveReason),
    Killed,
    Revoked,
    Returned(Box<Return>),
}

/// A connection to serve; with the message after which the session is resumed on it.
type Attachment = (WebSocket, Arc<Inflow>, Option<u64>);

/// A session of another hub that goes on here.
pub(in crate::server) struct ResumedSession {
    pub(in crate::server) snapshot: Snapshot,
    pub(in crate::server) snapshots: SnapshotSender,
    pub(in crate::server) kept: StoredSession,
    pub(in crate::server) registered: Registration,
}

impl SessionSlot {
    /// Opens the session.
    pub(in crate::server) fn new(
        sessions: Arc<SessionParts>,
        opening: Opening,
        admitted: SessionAdmission,
        registered: Option<(Registration, Option<StoredSession>)>,
    ) -> Self {
        let mode = opening.mode;
        let dialect = opening.dialect;
        let handle = sessions.setup_of_session().open(opening);
        let (registered, kept) = registered.unzip();
        Self::of(sessions, handle, (mode, dialect), admitted, (registered, kept.flatten()), (0, None))
    }

    /// Goes on with a session of another hub.
    ///
    /// # Errors
    /// A setting that this build refuses.
    pub(in crate::server) fn resumed(
        sessions: Arc<SessionParts>,
        resumed: ResumedSession,
        admitted: SessionAdmission,
    ) -> Result<Self, SnapshotError> {
        let ResumedSession { snapshot, snapshots, kept, registered } = resumed;
        let mode = snapshot.mode();
        let counts = (snapshot.received(), snapshot.went_back_to());
        let dialect = Dialect { beta: snapshot.is_beta(), ..sessions.dialect() };
        let limits: Arc<dyn SessionLimits> = Arc::new(admitted.who.limits(&sessions.access));
        let handle = sessions.setup().resume(snapshot, dialect, Some(snapshots), Some(limits))?;
        Ok(Self::of(sessions, handle, (mode, dialect), admitted, (Some(registered), Some(kept)), counts))
    }

    fn of(
        sessions: Arc<SessionParts>,
        handle: Handle,
        (mode, dialect): (AudioMode, Dialect),
        admitted: SessionAdmission,
        (registered, kept): (Option<Registration>, Option<StoredSession>),
        (received, went_back_to): (u64, Option<u64>),
    ) -> Self {
        let went_back = went_back_to.map(|number| (number, received));
        let revoked = sessions.access.keys.lease(admitted.who.key);
        let live = LiveSession::new(&sessions, &handle.id, WEBSOCKET, admitted, revoked);
        let received = AtomicU64::new(received);
        let budget = InboundBudget::of_session();
        Self { sessions, handle, mode, dialect, registered, received, went_back, budget, kept, live }
    }

    /// Serves the session until it ends here. `after`: the first connection is of a client that comes from another hub, and
    /// goes on after this message.
    pub(in crate::server) async fn run(mut self, socket: WebSocket, inflow: Arc<Inflow>, after: Option<u64>) {
        let id = self.handle.id.clone();
        let record = self.kept.as_ref().map(StoredSession::record);
        tracing::info!(session = %id, mode = ?self.mode, record, "connected");
        let action = if after.is_some() { "session.taken" } else { "session.start" };
        self.live.started(action);
        let mut end = handover::End::Over;
        let mut connection = match after {
            None => Some((socket, inflow, None)),
            Some(after) => self.attach(Some(Return { socket, inflow, after }), &mut end).await,
        };
        while let Some((socket, inflow, greeting)) = connection.take() {
            let ended = self.serve(socket, &inflow, greeting).await;
            inflow.linger().await;
            let next = match ended {
                ConnectionEnd::Over => None,
                ConnectionEnd::Moved => {
                    end = handover::End::Released;
                    None
                }
                ConnectionEnd::Replaced(next) => Some(*next),
                ConnectionEnd::Lost if self.registered.is_none() => None,
                ConnectionEnd::Lost => {
                    tracing::info!(session = %id, "disconnected; waiting for the client to resume");
                    self.handle.egress.detach();
                    self.kept.iter().for_each(StoredSession::unheard);
                    self.wait(self.until(), &mut end).await
                }
            };
            connection = self.attach(next, &mut end).await;
        }
        self.live.ended(if matches!(end, handover::End::Released) { "moved" } else { "ok" });
        // The session's work ends before it is let go.
        let Self { handle, kept, live: _live, .. } = self;
        drop(handle);
        if let Some(kept) = kept {
            kept.gone();
            kept.end(end).await;
        }
    }

    /// Gives the session its client's next connection, or the one after that if the session cannot go on where that one says.
    async fn attach(&mut self, mut next: Option<Return>, end: &mut handover::End) -> Option<Attachment> {
        let until = self.until();
        while let Some(Return { socket, inflow, after }) = next.take() {
            let after = goes_on_after(after, self.went_back, &self.received);
            self.handle.egress.detach();
            match self.handle.egress.attach(after) {
                Ok(()) => {
                    tracing::info!(session = %self.handle.id, after, "resumed");
                    return Some((socket, inflow, Some(after)));
                }
                Err(error) => {
                    auth::turn_away(socket, super::resume::refusal(error.to_string())).await;
                    next = self.wait(until, end).await;
                }
            }
        }
        None
    }

    fn until(&self) -> Instant {
        Instant::now() + Duration::from_secs(u64::from(self.sessions.setup.session.resume_seconds))
    }

    /// Waits for the client's next connection; `None` at `until`, or if the session has ended here. `end`: how it has.
    async fn wait(&mut self, until: Instant, end: &mut handover::End) -> Option<Return> {
        let registered = self.registered.as_mut()?;
        tokio::select! {
            next = timeout_at(until, registered.returns.recv()) => return next.ok().flatten(),
            () = self.handle.egress.closed() => {}
            _ = moved(&mut self.kept) => *end = handover::End::Released,
            // Another hub may resume what is stored.
            () = self.sessions.edge.kill.cancelled() => *end = handover::End::Released,
            () = self.live.revoked().cancelled() => {}
        }
        None
    }

    /// Serves one connection. `after`: resumes after the message with this number.
    async fn serve(&mut self, socket: WebSocket, inflow: &Inflow, after: Option<u64>) -> ConnectionEnd {
        let _counted = self.sessions.connected();
        let (mut sink, mut stream) = socket.split();
        let Self { sessions, handle, mode, dialect, registered, received, went_back, budget, live, kept, .. } = self;
        let mut is_moving = false;
        if let Some(after) = after {
            let notice = SessionNotice::Resumed { after, received: received.load(Ordering::Relaxed) };
            let text = encode(&ServerEvent::Session(notice), &IdMint::new(rand::random()).next("event"));
            if !matches!(timeout(LAST_MESSAGES, sink.send(WsMessage::Text(text.into()))).await, Ok(Ok(()))) {
                return ConnectionEnd::Lost;
            }
        }
        let (heard, heartbeat) = Heartbeat::new(Duration::from_secs(u64::from(sessions.edge.config.ping_seconds)));
        let shared = kept.as_ref().map(StoredSession::for_reader);
        let reader =
            Reader { sessions, handle, inflow, budget, dialect: *dialect, mode: *mode, heard, shared, received };
        // What interrupts is rare: each is asked when it wakes, not with every message that comes or leaves.
        let interrupted = {
            let interruptions: [BoxFuture<'_, Interruption>; 6] = [
                async {
                    handle.egress.closed().await;
                    tokio::time::sleep(LAST_MESSAGES).await;
                    Interruption::Closed
                }
                .boxed(),
                handle.egress.lost().map(|()| Interruption::Lost).boxed(),
                moved(kept).map(Interruption::Moved).boxed(),
                sessions.edge.kill.cancelled().map(|()| Interruption::Killed).boxed(),
                live.revoked().cancelled().map(|()| Interruption::Revoked).boxed(),
                come_back(sessions, handle, registered, (*went_back, received))
                    .map(|next| Interruption::Returned(Box::new(next)))
                    .boxed(),
            ];
            let mut interruptions: FuturesUnordered<_> = interruptions.into_iter().collect();
            tokio::select! {
                end = reader.run(&mut stream) => Err(end),
                end = write(&mut sink, &handle.egress, heartbeat) => Err(end),
                Some(interruption) = interruptions.next() => Ok(interruption),
            }
        };
        let end = match interrupted {
            Err(end) => end,
            Ok(Interruption::Closed) => End::Over,
            Ok(Interruption::Lost) => End::Lost,
            Ok(Interruption::Moved(moved)) => {
                // The other hub may go on, however long this connection takes to end.
                handle.stop();
                kept.iter().for_each(StoredSession::gone);
                let close = match moved {
                    MoveReason::Stopping => close(1012, "the session moves to another hub"),
                    MoveReason::Elsewhere => close(1001, "the session continues on another connection"),
                };
                let _ = timeout(CLOSING, sink.send(close)).await;
                is_moving = true;
                End::Over
            }
            Ok(Interruption::Killed) => {
                let close = match kept {
                    // From its last checkpoint.
                    Some(kept) => {
                        handle.stop();
                        kept.release().await;
                        is_moving = true;
                        close(1012, "the session moves to another hub")
                    }
                    None => close(1001, "the server is going away"),
                };
                let _ = timeout(CLOSING, sink.send(close)).await;
                End::Over
            }
            Ok(Interruption::Revoked) => {
                let _ = timeout(CLOSING, sink.send(close(1008, "the API key of this session has been revoked"))).await;
                End::Over
            }
            Ok(Interruption::Returned(next)) => {
                let _ = timeout(CLOSING, sink.send(close(1001, "the session continues on another connection"))).await;
                return ConnectionEnd::Replaced(next);
            }
        };
        // A close frame is answered, whatever its content.
        finish(&mut sink, &mut stream, None).await;
        match end {
            _ if is_moving => ConnectionEnd::Moved,
            End::Lost => ConnectionEnd::Lost,
            End::Over => ConnectionEnd::Over,
        }
    }
}

/// Where a session goes on for a client that names this number.
fn goes_on_after(named: u64, went_back: Option<(u64, u64)>, received: &AtomicU64) -> u64 {
    match went_back {
        Some((number, n_received)) if received.load(Ordering::Relaxed) == n_received => named.min(number),
        _ => named,
    }
}

/// Resolves when the session goes on elsewhere; never for one that no other hub may resume. Cancel safe.
async fn moved(kept: &mut Option<StoredSession>) -> MoveReason {
    match kept {
        Some(kept) => kept.moved().await,
        None => std::future::pending().await,
    }
}

/// Waits for a connection of the client that can resume from the message it names; never resolves if the session is not
/// resumable. A connection that cannot resume is rejected, and the current one continues.
async fn come_back(
    sessions: &Arc<SessionParts>,
    handle: &Handle,
    registered: &mut Option<Registration>,
    (went_back, received): (Option<(u64, u64)>, &AtomicU64),
) -> Return {
    while let Some(registered) = registered
        && let Some(next) = registered.returns.recv().await
    {
        let after = goes_on_after(next.after, went_back, received);
        let Err(error) = handle.egress.may_attach(after) else { return next };
        // If too many are being rejected, the connection is dropped without an error event.
        if let Some(place) = sessions.turn_away() {
            sessions.setup.tasks.spawn(async move {
                auth::turn_away(next.socket, super::resume::refusal(error.to_string())).await;
                drop(place);
            });
        }
    }
    std::future::pending().await
}
