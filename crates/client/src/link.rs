//! What the two halves of a connection share: whether the session is connected, what was sent, and the socket that the
//! sending half takes over after the session was resumed.

use super::outbox::{Continuation, Contradiction, Outbox};
use super::resume::Ticket;
use futures_util::Sink;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

/// The writing half of a socket.
pub(super) type Writer = Pin<Box<dyn Sink<Message, Error = WsError> + Send>>;

/// State that both halves see. No lock is held across an await.
#[derive(Default)]
pub(super) struct Link {
    state: Mutex<State>,
    /// The session was disconnected or ended: a write that waits for the old socket is given up.
    disconnected: Notify,
    /// The sending half found the connection lost; the receiving half connects again.
    lost: Notify,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// `None`: the session cannot be resumed, and nothing is kept.
    outbox: Option<Outbox>,
    /// Resume key and time; `None` until the server sent them.
    ticket: Option<(String, Duration)>,
    /// The socket of a resumed session, until the sending half takes it.
    writer: Option<Writer>,
    /// Number of times that the session was resumed: distinguishes a write that failed on an old socket from one on
    /// this.
    n_resumed: u64,
    n_received: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Connected,
    /// The connection was lost; messages are kept for the next one.
    Away,
    /// The session has ended.
    Over,
}

/// What happens to a message of the sending half.
pub(super) enum Route {
    /// It is written to this socket, or if that is `None`, to the one of the message before.
    Write {
        /// Number of the connection, for [`Link::write_failed`].
        connection: u64,
        writer: Option<Writer>,
    },
    /// It is kept, and sent when the session is resumed.
    Kept,
    /// The session has ended.
    Over,
}

impl Link {
    /// `resumable`: sent messages are kept.
    pub(super) fn new(resumable: bool) -> Self {
        let state = State { outbox: resumable.then(Outbox::default), ..State::default() };
        Self { state: Mutex::new(state), ..Self::default() }
    }

    /// Counts and keeps a message that is about to be sent.
    pub(super) fn sending(&self, message: &Message, about_output: bool) -> Route {
        let mut state = self.lock();
        if state.phase == Phase::Over {
            return Route::Over;
        }
        if let Some(outbox) = &mut state.outbox {
            outbox.push(message.clone(), about_output);
        }
        if state.phase == Phase::Away {
            return Route::Kept;
        }
        if let Some(outbox) = &mut state.outbox {
            outbox.all_written();
        }
        Route::Write { connection: state.n_resumed, writer: state.writer.take() }
    }

    /// The sending half could not write to this connection. Returns whether the session can be resumed: the message is
    /// kept then.
    pub(super) fn write_failed(&self, connection: u64) -> bool {
        if self.lock().n_resumed != connection {
            return true;
        }
        let resumable = self.disconnect();
        self.lost.notify_one();
        resumable
    }

    /// Whether sent messages are kept.
    pub(super) fn keeps(&self) -> bool {
        self.lock().outbox.is_some()
    }

    /// The socket of a resumed session, if the sending half has not taken it.
    pub(super) fn take_writer(&self) -> Option<Writer> {
        self.lock().writer.take()
    }

    /// The connection was lost. Returns whether the session can be resumed.
    pub(super) fn disconnect(&self) -> bool {
        let mut state = self.lock();
        let resumable = state.phase != Phase::Over && state.outbox.is_some() && state.ticket.is_some();
        if resumable {
            state.phase = Phase::Away;
            state.writer = None;
        }
        drop(state);
        self.disconnected.notify_waiters();
        resumable
    }

    /// The session has ended; the sending half learns it with its next message.
    pub(super) fn end(&self) {
        self.lock().phase = Phase::Over;
        self.disconnected.notify_waiters();
    }

    pub(super) fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Waits until the connection is no longer in use. Register before the write begins.
    pub(super) fn disconnected(&self) -> tokio::sync::futures::Notified<'_> {
        self.disconnected.notified()
    }

    /// Waits until the sending half has found the connection lost.
    pub(super) async fn lost_in_sending(&self) {
        self.lost.notified().await;
    }

    pub(super) fn allow_resumption(&self, key: &str, within: Duration) {
        self.lock().ticket = Some((key.to_owned(), within));
    }

    /// The key and the number of the last message received.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        let state = self.lock();
        let (key, within) = state.ticket.clone()?;
        Some(Ticket { key, within, received: state.n_received })
    }

    /// Counts a received message; returns its number.
    pub(super) fn received(&self) -> u64 {
        let mut state = self.lock();
        state.n_received += 1;
        state.n_received
    }

    pub(super) fn n_received(&self) -> u64 {
        self.lock().n_received
    }

    pub(super) fn checkpoint(&self, received: u64, next_frame: Option<u32>) {
        let mut state = self.lock();
        let number = state.n_received;
        if let Some(outbox) = &mut state.outbox {
            outbox.checkpoint(number, received, next_frame);
        }
    }

    /// The server resumes the session; see [`Outbox::resume`]. The count of received messages becomes `after`.
    pub(super) fn resume(&self, after: u64, received: u64) -> Result<Continuation, Contradiction> {
        let mut state = self.lock();
        let named = state.n_received;
        let outbox = state.outbox.get_or_insert_default();
        let continuation = outbox.resume(named, after, received)?;
        state.n_received = after;
        Ok(continuation)
    }

    /// The next message that the resumed session does not include. After the last one, the sending half gets the socket
    /// and writes itself.
    pub(super) fn next_to_write(&self, writer: &mut Option<Writer>) -> Option<Message> {
        let mut state = self.lock();
        let next = state.outbox.as_mut().and_then(Outbox::next_to_write);
        if next.is_none() && state.phase == Phase::Away {
            state.writer = writer.take();
            state.phase = Phase::Connected;
            state.n_resumed += 1;
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while locked")
    }
}
