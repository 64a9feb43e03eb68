//! One try of one request on one worker, from the choice of the worker to the end of the exchange.
//!
//! The engines of this folder open attempts and decide what a failed one means. Dropping an attempt that is not over cancels
//! the work on its worker.

use super::directory::{InUse, Worker, WorkerQuery};
use super::{Cluster, Counters};
use crate::exchange::{Exchange, ExchangeEnd};
use crate::frame::{Frame, Kind};
use crate::link::Link;
use crate::message::{Acceptance, Busy, Failure, FailureKind, Open, PROTOCOL, Request, of_json, to_json};
use crate::subject;
use async_nats::Subject;
use bytes::Bytes;
use futures_util::FutureExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Workers that are asked for room before the cluster counts as overloaded.
const MAX_ASKED: usize = 3;

/// Tries of one request: a worker that dies costs one.
pub(super) const MAX_ATTEMPTS: u32 = 2;

/// How long the connection may be down before the workers count as away.
pub(super) const AWAY_AFTER: Duration = Duration::from_secs(2);

/// How long a request waits, from when no worker could be asked, where workers were there a moment ago: they are restarted, or
/// their NATS server is and they move to another one. A conversation pauses for that long, rather than lose its turn.
const RETURNS_WITHIN: Duration = Duration::from_secs(2);

/// The same where the hub's own engines can serve instead.
const RETURNS_WITHIN_BEFORE_FALLBACK: Duration = Duration::from_millis(200);

/// The longest wait for a worker's answer whether it has room; a worker that is gone is noticed earlier.
const OPEN_DEADLINE: Duration = Duration::from_millis(1_500);

/// What is asked of a worker, and which one.
pub(super) struct AttemptRequest<'a> {
    pub(super) request: &'a Request,
    /// Only workers with this model; `None`: any.
    pub(super) model: Option<&'a str>,
    /// This worker, where it has room.
    pub(super) preferred: Option<&'a str>,
    /// Until when the listener has sound to hear: while no worker can be reached the request waits for that long, and only then for
    /// what any other waits. A hub with a fallback does not wait for it.
    pub(super) sound_until: Option<Instant>,
}

impl<'a> AttemptRequest<'a> {
    /// Of a request that any worker may take, and that waits for its own time only.
    pub(super) const fn of(request: &'a Request) -> Self {
        Self { request, model: None, preferred: None, sound_until: None }
    }
}

/// Why no worker serves a request.
pub(super) enum NotOpened {
    /// All that were asked are busy: the requests that they serve.
    Busy(usize),
    /// There is no worker, or no connection.
    Away(String),
    /// The engine refuses the request.
    Failed(Failure, Arc<Worker>),
}

/// Why an attempt is over before its end.
#[derive(Debug)]
pub(super) enum AttemptLoss {
    /// The worker is gone, or has forgotten the attempt.
    Worker,
    /// NATS knows no subscriber for the request.
    Missing,
    /// The connection is down.
    Away,
    /// The request does not fit into a frame.
    TooLarge(usize),
}

/// An attempt that a worker has accepted.
pub(super) struct Attempt {
    exchange: Exchange,
    link: Link,
    pub(super) worker: Arc<Worker>,
    pub(super) accepted: Acceptance,
    /// When the request was sent.
    pub(super) opened_at: Instant,
    is_over: bool,
    in_use: InUse,
}

impl Cluster {
    /// Opens an attempt on the best worker that has room: three are asked at most, and then three with the fallback model of the
    /// stage. `except` are not asked.
    pub(super) async fn open(&self, opening: &AttemptRequest<'_>, except: &[String]) -> Result<Attempt, NotOpened> {
        let AttemptRequest { request, model, preferred, .. } = *opening;
        let stage = request.stage();
        let models = self.0.directory.models().choices(stage, model);
        // Of each model, the workers that had no room.
        let mut n_busy = vec![0; models.len()];
        let mut n_gone = 0;
        let mut in_flight = 0;
        // Those that have no room now may have some when the request is opened again: the caller's list stays as it is.
        let mut tried = except.to_vec();
        let mut returns_by = None;
        let sounds_for = self.sounds_for(opening);
        let mut changes = self.0.directory.changes();
        loop {
            changes.borrow_and_update();
            if !self.0.link.is_reachable(AWAY_AFTER + sounds_for) {
                Counters::count(&self.0.counters.away);
                return Err(NotOpened::Away("there is no connection to NATS".into()));
            }
            let picked = models.iter().enumerate().filter(|(choice, _)| n_busy[*choice] < MAX_ASKED).find_map(
                |(choice, model)| {
                    let wanted = WorkerQuery { model: *model, except: &tried, preferred };
                    Some((choice, self.0.directory.pick(stage, &wanted)?))
                },
            );
            let Some((choice, worker)) = picked else {
                let may_return = n_busy.iter().all(|n| *n == 0) && self.0.directory.may_return(sounds_for);
                let limit = self.returns_within() + sounds_for;
                let returns_by = *returns_by.get_or_insert_with(|| Instant::now() + limit);
                if may_return && matches!(timeout_at(returns_by, changes.changed()).await, Ok(Ok(()))) {
                    tried.truncate(except.len());
                    continue;
                }
                break;
            };
            match self.try_open(&worker, request).await {
                Ok(attempt) => {
                    if let Some(of_stage) = self.0.directory.models().of_stage(stage) {
                        self.0.fallback_models.accepted(stage, of_stage, choice > 0);
                    }
                    return Ok(attempt);
                }
                Err(Refusal::Busy(busy)) => {
                    Counters::count(&self.0.counters.busy);
                    n_busy[choice] += usize::from(!busy.is_draining);
                    in_flight += busy.in_flight;
                }
                Err(Refusal::Gone) => n_gone += 1,
                Err(Refusal::Away) => {
                    Counters::count(&self.0.counters.away);
                    return Err(NotOpened::Away("the connection to NATS is lost".into()));
                }
                Err(Refusal::Failed(failure)) => return Err(NotOpened::Failed(failure, worker)),
            }
            // One that is lost is not offered again, unless it comes back.
            if !worker.lost.is_cancelled() {
                tried.push(worker.id.clone());
            }
        }
        if n_busy.iter().any(|n| *n > 0) {
            return Err(NotOpened::Busy(in_flight));
        }
        Counters::count(&self.0.counters.away);
        let asked = if n_gone > 0 { format!(" ({n_gone} did not answer or broke)") } else { String::new() };
        Err(NotOpened::Away(format!("no worker serves {stage}{asked}")))
    }

    /// How long a request waits for a worker that may be back in a moment.
    fn returns_within(&self) -> Duration {
        if self.0.has_fallback { RETURNS_WITHIN_BEFORE_FALLBACK } else { RETURNS_WITHIN }
    }

    /// How much longer the request may wait because its listener has sound to hear.
    fn sounds_for(&self, opening: &AttemptRequest<'_>) -> Duration {
        let until = opening.sound_until.filter(|_| !self.0.has_fallback);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    async fn try_open(&self, worker: &Arc<Worker>, request: &Request) -> Result<Attempt, Refusal> {
        let stage = request.stage();
        let Some(inbox) = self.0.inboxes.open(rand::random()) else { return Err(Refusal::Gone) };
        let attempt = inbox.attempt();
        let reply = Subject::from(subject::outbound(&self.0.hub, attempt));
        let to = Subject::from(subject::open(&worker.id));
        let mut exchange = Exchange::new(self.0.link.clone(), inbox, to, reply);
        let in_use = worker.use_for(stage);
        let open = Open { protocol: PROTOCOL, hub: self.0.hub.clone(), request: request.clone() };
        let opened_at = Instant::now();
        let payload = to_json(&open);
        if !exchange.has_credit(payload.len()) {
            return Err(Refusal::Failed(Failure::too_large(payload.len())));
        }
        exchange.send_now(Kind::Open, payload);
        Counters::count(&self.0.counters.opened);
        let mut attempt = Attempt {
            exchange,
            link: self.0.link.clone(),
            worker: worker.clone(),
            accepted: Acceptance::default(),
            opened_at,
            is_over: false,
            in_use,
        };
        let first = timeout_at(opened_at + OPEN_DEADLINE, attempt.receive()).await;
        let (frame, _) = match first {
            Ok(Ok(first)) => first,
            Ok(Err(AttemptLoss::Away)) => return Err(Refusal::Away),
            Ok(Err(AttemptLoss::TooLarge(n))) => return Err(Refusal::Failed(Failure::too_large(n))),
            Ok(Err(AttemptLoss::Missing)) => {
                // The next advert says otherwise.
                worker.missing();
                return Err(Refusal::Gone);
            }
            Ok(Err(AttemptLoss::Worker)) | Err(_) => return Err(Refusal::Gone),
        };
        match frame.kind {
            Kind::Accepted => {
                attempt.in_use.accepted();
                attempt.accepted = of_json(&frame.payload).unwrap_or_default();
                attempt.exchange.redirect(Subject::from(subject::inbound(&worker.id, frame.attempt)));
                Ok(attempt)
            }
            Kind::Busy => {
                attempt.is_over = true;
                Err(Refusal::Busy(of_json(&frame.payload).unwrap_or_default()))
            }
            Kind::Failed => {
                attempt.is_over = true;
                Err(Refusal::Failed(failure(&frame)))
            }
            _ => Err(Refusal::Gone),
        }
    }
}

/// Why a worker does not serve a request.
enum Refusal {
    Busy(Busy),
    Gone,
    Away,
    Failed(Failure),
}

impl Attempt {
    /// The next frame of the worker, in order, and when it arrived. Ends when the worker is lost, or the connection for too
    /// long. Cancelling loses nothing.
    pub(super) async fn receive(&mut self) -> Result<(Frame, Instant), AttemptLoss> {
        let Self { exchange, link, worker, .. } = self;
        let received = tokio::select! {
            biased;
            received = exchange.receive() => received.map_err(AttemptLoss::of)?,
            () = worker.lost.cancelled() => return Err(AttemptLoss::Worker),
            () = away(link) => return Err(AttemptLoss::Away),
        };
        self.is_over |= matches!(received.0.kind, Kind::End | Kind::Failed);
        Ok(received)
    }

    /// The engine's failure, where it arrived and was not received before the worker forgot the attempt.
    pub(super) fn unread_failure(&mut self) -> Option<Failure> {
        while let Some(Ok((frame, _))) = self.receive().now_or_never() {
            if frame.kind == Kind::Failed {
                return Some(failure(&frame));
            }
        }
        None
    }

    /// Sends a frame once the worker has room for it. Cancelling before that sends nothing.
    pub(super) async fn send(&mut self, kind: Kind, payload: Bytes) -> Result<(), AttemptLoss> {
        let Self { exchange, link, worker, .. } = self;
        tokio::select! {
            biased;
            sent = exchange.send(kind, payload) => sent.map_err(AttemptLoss::of),
            () = worker.lost.cancelled() => Err(AttemptLoss::Worker),
            () = away(link) => Err(AttemptLoss::Away),
        }
    }

    /// Sends a frame if the worker has room for it.
    pub(super) fn try_send(&mut self, kind: Kind) {
        if self.exchange.has_credit(0) {
            self.exchange.send_now(kind, Bytes::new());
        }
    }

    /// Nothing more is expected; dropping it does not cancel.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }

    /// Time on the network of a request that was sent at `sent` and answered by `frame`, which arrived at `at`.
    pub(super) fn network(sent: Instant, frame: &Frame, at: Instant) -> Duration {
        at.saturating_duration_since(sent).saturating_sub(Duration::from_micros(u64::from(frame.elapsed_us)))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.is_over {
            self.exchange.acknowledge_rest();
        } else {
            self.exchange.send_now(Kind::Cancel, Bytes::new());
        }
    }
}

impl AttemptLoss {
    fn of(ended: ExchangeEnd) -> Self {
        match ended {
            ExchangeEnd::Cancelled | ExchangeEnd::Reset => Self::Worker,
            ExchangeEnd::NoResponders => Self::Missing,
            ExchangeEnd::TooLarge(n) => Self::TooLarge(n),
        }
    }
}

impl Failure {
    pub(super) fn too_large(n: usize) -> Self {
        let message = format!("the request has {n} bytes, more than a worker takes");
        Self { kind: FailureKind::Refused, message }
    }
}

/// The failure in a frame.
pub(super) fn failure(frame: &Frame) -> Failure {
    let unreadable = |_| Failure { kind: FailureKind::BadAnswer, message: "the worker's error cannot be read".into() };
    of_json(&frame.payload).unwrap_or_else(unreadable).shortened()
}

/// Ends when the connection has been down for [`AWAY_AFTER`].
async fn away(link: &Link) {
    let mut states = link.states();
    loop {
        let state = *states.borrow_and_update();
        let changed = match state.is_connected {
            true => states.changed().await,
            false => match timeout_at(state.since + AWAY_AFTER, states.changed()).await {
                Ok(changed) => changed,
                Err(_) => return,
            },
        };
        if changed.is_err() {
            // The client has ended.
            return;
        }
    }
}
