//! The part of a client's message that has come: charged to the budgets while it grows, and given so much time in all.
//!
//! The reader of a connection ([`super::socket`]) holds one. Bytes are counted below the WebSocket's library from the last
//! message it gave; a small message passes unnoticed. Control frames, which may stand between the parts of a message, are
//! counted out again, so that they neither hide the rest nor renew its deadline.

use super::app::{App, BUDGET_UNIT};
use super::inflow::Inflow;
use antiphon_session::Share;
use axum::extract::ws::{Message, WebSocket};
use futures_util::StreamExt;
use futures_util::stream::SplitStream;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};

/// What a message may be begun with before it is charged: audio for half a second, of which some are always under way.
const FREE_BYTES: u64 = 64 * 1024;
/// What is charged at a time beyond that.
const STEP_BYTES: usize = 256 * 1024;
/// A control frame's head and mask (RFC 6455, section 5.2).
const CONTROL_HEAD: u64 = 6;

/// What comes of a wait.
pub(super) enum Next {
    /// A message, or the end.
    Message(Option<Result<Message, axum::Error>>),
    /// The message under way was not complete in time.
    Late,
    /// There was no room for the message under way.
    NoRoom,
}

/// See the module.
pub(super) struct Unfinished<'a> {
    app: &'a App,
    inflow: &'a Inflow,
    /// The session's own budget.
    budget: &'a Arc<Semaphore>,
    /// How long a message may take from its first byte to its last.
    limit: Duration,
    /// Up to here what was taken has been given as messages.
    given: u64,
    held: Option<Held>,
    deadline: Option<Instant>,
}

/// What the message under way is charged with.
struct Held {
    share: Share,
    _unfinished: OwnedSemaphorePermit,
}

impl<'a> Unfinished<'a> {
    pub(super) fn new(app: &'a App, inflow: &'a Inflow, budget: &'a Arc<Semaphore>) -> Self {
        let limit = Duration::from_secs(u64::from(app.config.message_seconds));
        let this = Self { app, inflow, budget, limit, given: inflow.taken(), held: None, deadline: None };
        this.allow();
        this
    }

    /// The next message; waits at most `stuck` for room.
    pub(super) async fn next(&mut self, stream: &mut SplitStream<WebSocket>, stuck: Duration) -> Next {
        loop {
            match self.poll(stream).await {
                None => {}
                Some(next) => return next,
            }
            let due = self.deadline.unwrap_or_else(Instant::now).min(Instant::now() + stuck);
            let more = self.app.unfinished_budget(self.budget, STEP_BYTES);
            match (timeout_at(due, more).await, &mut self.held) {
                (Err(_), _) if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) => return Next::Late,
                (Err(_), _) => return Next::NoRoom,
                (Ok((share, unfinished)), None) => self.held = Some(Held { share, _unfinished: unfinished }),
                (Ok((share, unfinished)), Some(held)) => {
                    held.share.own.merge(share.own);
                    held.share.common.merge(share.common);
                    held._unfinished.merge(unfinished);
                }
            }
            self.allow();
        }
    }

    /// `None`: nothing more is taken until there is room.
    async fn poll(&mut self, stream: &mut SplitStream<WebSocket>) -> Option<Next> {
        let mut timer = pin!(sleep_until(self.deadline.unwrap_or_else(|| Instant::now() + self.limit)));
        let message = poll_fn(|cx| {
            if let Poll::Ready(message) = stream.poll_next_unpin(cx) {
                return Poll::Ready(Some(Next::Message(message)));
            }
            if self.inflow.taken() <= self.given {
                return Poll::Pending;
            }
            if self.deadline.is_none() {
                let deadline = Instant::now() + self.limit;
                timer.as_mut().reset(deadline);
                self.deadline = Some(deadline);
            }
            if timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Some(Next::Late));
            }
            if self.inflow.is_starved() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await;
        if let Some(Next::Message(Some(Ok(message)))) = &message {
            match message {
                Message::Ping(payload) | Message::Pong(payload) => self.control(payload.len() as u64),
                Message::Text(_) | Message::Binary(_) | Message::Close(_) => self.complete(),
            }
        }
        message
    }

    /// A message is complete; whatever was taken belongs to it, but for the beginning of the next that came with it.
    fn complete(&mut self) {
        (self.given, self.deadline) = (self.inflow.taken(), None);
        self.allow();
    }

    fn control(&mut self, n_bytes: u64) {
        self.given = (self.given + CONTROL_HEAD + n_bytes).min(self.inflow.taken());
        if self.given == self.inflow.taken() {
            self.deadline = None;
        }
        self.allow();
    }

    fn allow(&self) {
        let held = self.held.as_ref().map_or(0, |held| held.share.own.num_permits() * BUDGET_UNIT);
        self.inflow.allow(self.given + FREE_BYTES + held as u64);
    }

    /// The share of a complete message of this size: what was charged while it came, and what is missing.
    pub(super) async fn share(&mut self, n_bytes: usize) -> Share {
        let held = self.held.take().map(|held| held.share);
        self.allow();
        let Some(mut held) = held else { return self.app.budget(self.budget, n_bytes).await };
        let (needed, has) = (App::units(n_bytes), held.own.num_permits());
        if has >= needed {
            // What is too much goes back with the rest.
            let (own, common) = (held.own.split(needed), held.common.split(needed));
            return Share { own: own.expect("as many"), common: common.expect("as many") };
        }
        let more = self.app.budget(self.budget, (needed - has) * BUDGET_UNIT).await;
        held.own.merge(more.own);
        held.common.merge(more.common);
        held
    }
}
