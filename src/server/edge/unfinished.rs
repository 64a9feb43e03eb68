//! The incomplete message of a client: charged to the budgets while it grows, and limited in time.
//!
//! Each connection's reader ([`crate::server::sessions::socket`]) holds one instance. It counts bytes below the
//! WebSocket library since the last message that the library returned; small messages are not charged in advance.
//! Control frames, which may be interleaved with the parts of a message, are deducted, so that they neither hide the
//! rest nor extend its deadline.

use super::inbound_budget::{BUDGET_UNIT, InboundBudget};
use super::inflow::Inflow;
use super::parts::EdgeParts;
use antiphon_session::BudgetPermit;
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

/// Size up to which an incomplete message is not charged: half a second of audio, since some is always in transit.
const FREE_BYTES: u64 = 64 * 1024;
/// Unit of the charges beyond that.
const STEP_BYTES: usize = 256 * 1024;
/// Size of a control frame's header and mask (RFC 6455, section 5.2).
const CONTROL_HEAD: u64 = 6;

/// The result of a wait.
pub(in crate::server) enum Next {
    /// A message, or the end of the stream.
    Message(Option<Result<Message, axum::Error>>),
    /// The incomplete message exceeded its time limit.
    Late,
    /// No budget became available for the incomplete message.
    NoRoom,
}

pub(in crate::server) struct UnfinishedMessage<'a> {
    inbound: &'a InboundBudget,
    inflow: &'a Inflow,
    /// The session's own budget.
    budget: &'a Arc<Semaphore>,
    /// Maximum time from the first to the last byte of a message.
    limit: Duration,
    /// The receive count up to which bytes belong to returned messages.
    given: u64,
    held: Option<MessageCharges>,
    deadline: Option<Instant>,
}

/// The charges of the incomplete message.
struct MessageCharges {
    share: BudgetPermit,
    _unfinished: OwnedSemaphorePermit,
}

impl<'a> UnfinishedMessage<'a> {
    pub(in crate::server) fn new(edge: &'a EdgeParts, inflow: &'a Inflow, budget: &'a Arc<Semaphore>) -> Self {
        let limit = Duration::from_secs(u64::from(edge.config.message_seconds));
        let inbound = &edge.inbound;
        let this = Self { inbound, inflow, budget, limit, given: inflow.taken(), held: None, deadline: None };
        this.allow();
        this
    }

    /// Waits for the next message; waits at most `stuck` for budget.
    pub(in crate::server) async fn next(&mut self, stream: &mut SplitStream<WebSocket>, stuck: Duration) -> Next {
        loop {
            match self.poll(stream).await {
                None => {}
                Some(next) => return next,
            }
            let due = self.deadline.unwrap_or_else(Instant::now).min(Instant::now() + stuck);
            let more = self.inbound.take_unfinished(self.budget, STEP_BYTES);
            match (timeout_at(due, more).await, &mut self.held) {
                (Err(_), _) if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) => return Next::Late,
                (Err(_), _) => return Next::NoRoom,
                (Ok((share, unfinished)), None) => self.held = Some(MessageCharges { share, _unfinished: unfinished }),
                (Ok((share, unfinished)), Some(held)) => {
                    held.share.own.merge(share.own);
                    held.share.common.merge(share.common);
                    held._unfinished.merge(unfinished);
                }
            }
            self.allow();
        }
    }

    /// `None`: the read limit is reached, and more budget is needed.
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

    /// Marks a message as complete. All bytes read so far are attributed to it, including the start of a following
    /// message.
    fn complete(&mut self) {
        self.given = self.inflow.taken();
        self.deadline = None;
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

    /// The share of a complete message of this size: what was already charged, plus or minus the difference.
    pub(in crate::server) async fn share(&mut self, n_bytes: usize) -> BudgetPermit {
        let held = self.held.take().map(|held| held.share);
        self.allow();
        let Some(mut held) = held else { return self.inbound.take(self.budget, n_bytes).await };
        let needed = InboundBudget::units(n_bytes);
        let has = held.own.num_permits();
        if has >= needed {
            // The excess is released when `held` is dropped.
            let own = held.own.split(needed);
            let common = held.common.split(needed);
            return BudgetPermit { own: own.expect("as many"), common: common.expect("as many") };
        }
        let more = self.inbound.take(self.budget, (needed - has) * BUDGET_UNIT).await;
        held.own.merge(more.own);
        held.common.merge(more.common);
        held
    }
}
