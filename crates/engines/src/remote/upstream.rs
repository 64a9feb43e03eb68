//! The health of one server of one stage: its circuit breaker, and how long its first output usually takes.
//!
//! A remote engine asks for an [`Attempt`] before it sends a request, and says what became of it. After failures in a row the
//! breaker opens: requests fail at once, without a connection. After a pause, which grows and has jitter, one request is let
//! through as a probe; its outcome closes or opens the breaker again. A server that refuses a request, or the hub's key, works:
//! that is no failure here. It never sends anything and spawns no task.
//!
//! One client alone does not open the breaker for others: each requester has a breaker of its own, which opens by its failures
//! in a row, and counts for a part of those that open the one of the server. Connections that cannot be made are the server's
//! failures for any requester.

use antiphon_engine_api::{BreakerState, Fault, Role, Upstream as Report, Upstreams};
use antiphon_types::{Backoff, Requester, RetryPolicy};
use reqwest::Response;
use reqwest::header::RETRY_AFTER;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Failures in a row that open the breaker: Envoy's default (`consecutive_5xx` of its outlier detection).
const OPENS_AFTER: u32 = 5;
/// The same where a fallback engine takes over: a breaker that opens by mistake costs nothing then, and each failure before it
/// opens is a late answer. One late answer of a healthy server is common, two in a row are not: see [`PERCENTILE`].
const OPENS_AFTER_WITH_FALLBACK: u32 = 2;
/// Requesters with failures that are remembered; beyond, the one whose last failure is oldest is forgotten.
const MAX_REQUESTERS: usize = 256;
/// Pauses before a probe.
const PAUSES: RetryPolicy = RetryPolicy::unbounded(Duration::from_secs(1), Duration::from_secs(60));
/// The longest pause that a server may ask for with `Retry-After`; longer ones are cut to it, since a probe is cheap.
const MAX_REQUESTED_PAUSE: Duration = Duration::from_secs(300);
/// First outputs that are remembered; their percentile is the delay of a hedged request. The 95th costs 5 % more requests:
/// Dean and Barroso, "The Tail at Scale", 2013.
const REMEMBERED: usize = 100;
const PERCENTILE: usize = 95;

/// See the module. Cheap to clone; clones share it.
#[derive(Clone, Debug)]
pub struct Upstream(Arc<UpstreamState>);

#[derive(Debug)]
struct UpstreamState {
    /// The least delay of a hedged request; `None`: there is none.
    hedge_after: Option<Duration>,
    /// How long a request that has no hedge waits before it is late when it is given up.
    patience: Duration,
    /// Another engine takes over where this one fails.
    has_fallback: bool,
    state: Mutex<State>,
    opened: Notify,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    n_failures: u32,
    pauses: Backoff,
    first_outputs: VecDeque<Duration>,
    /// Those whose last request failed. At most [`MAX_REQUESTERS`].
    requesters: HashMap<Requester, OwnState>,
    /// Requests that were answered.
    n_answered: u64,
}

/// The failures of one requester in a row.
#[derive(Debug)]
struct OwnState {
    breaker: Breaker,
    n_failures: u32,
    pauses: Backoff,
    last: Instant,
    /// Failures that count for the server's breaker, since its `n_answered` was this.
    n_shared: u32,
    since: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Breaker {
    Closed,
    Open { until: Instant },
    Probing,
}

/// The breaker is open: no request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server failed before; the next request goes to it in {} s", retry_in.as_secs_f32().ceil())]
pub struct IsOpen {
    /// Time until the next request is let through; zero while a probe is under way.
    pub retry_in: Duration,
}

/// One request to the server. Its outcome must be reported; dropping it without counts as late where it has waited longer than
/// first outputs usually take, and as nothing otherwise.
#[derive(Debug)]
pub struct Attempt {
    upstream: Upstream,
    begun: Instant,
    requester: Option<Requester>,
    is_probe: bool,
    /// It is the probe of the requester's own breaker.
    is_own_probe: bool,
    /// How long it may take to its first output; `None`: its time says nothing.
    late_after: Option<Duration>,
    stage: Progress,
    has_output: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Waiting,
    /// The server has shown that it works on the request.
    Answering,
    Over,
}

impl Upstream {
    /// A server that is taken to work. `hedge_after_ms`: the least delay of a hedged request; 0: none is sent. `timeout`: of
    /// the first output.
    pub fn new(hedge_after_ms: u64, timeout: Duration, has_fallback: bool) -> Self {
        let hedge_after = (hedge_after_ms > 0).then(|| Duration::from_millis(hedge_after_ms));
        let breaker = Breaker::Closed;
        let n_failures = 0;
        let pauses = PAUSES.pauses();
        let first_outputs = VecDeque::new();
        let requesters = HashMap::new();
        let state = Mutex::new(State { breaker, n_failures, pauses, first_outputs, requesters, n_answered: 0 });
        Self(Arc::new(UpstreamState { hedge_after, patience: timeout / 2, has_fallback, state, opened: Notify::new() }))
    }

    /// Whether another engine takes over where this one fails.
    pub fn has_fallback(&self) -> bool {
        self.0.has_fallback
    }

    /// Begins a request. Where the breaker is half-open and no probe is under way, it is the probe. `None`: it is not known whose
    /// it is.
    ///
    /// # Errors
    /// [`IsOpen`]: it must not be sent.
    pub fn admit(&self, requester: Option<Requester>) -> Result<Attempt, IsOpen> {
        let mut state = self.state();
        let now = Instant::now();
        let is_probe = state.breaker.admits(now)?;
        let own = requester.and_then(|requester| state.requesters.get_mut(&requester));
        let mut is_own_probe = false;
        if let Some(own) = own {
            is_own_probe = own.breaker.admits(now)?;
            if is_own_probe {
                own.breaker = Breaker::Probing;
            }
        }
        if is_probe {
            state.breaker = Breaker::Probing;
        }
        let late_after = Some(self.delay(&state).unwrap_or(self.0.patience));
        let upstream = self.clone();
        let begun = now;
        let stage = Progress::Waiting;
        let has_output = false;
        Ok(Attempt { upstream, begun, requester, is_probe, is_own_probe, late_after, stage, has_output })
    }

    /// Whether a request of this requester would not be sent now.
    fn is_open(&self, requester: Option<Requester>) -> bool {
        let is_open = |breaker: Breaker| match breaker {
            Breaker::Closed => false,
            Breaker::Open { until } => Instant::now() < until,
            Breaker::Probing => true,
        };
        let state = self.state();
        let own = requester.and_then(|requester| state.requesters.get(&requester));
        is_open(state.breaker) || own.is_some_and(|own| is_open(own.breaker))
    }

    /// The delay of a hedged request: the 95th percentile of the last first outputs, and at least the configured one. `None`:
    /// none is sent.
    pub fn hedge_delay(&self) -> Option<Duration> {
        self.delay(&self.state())
    }

    /// Takes note of how long a first output took.
    pub fn measured(&self, took: Duration) {
        let mut state = self.state();
        if state.first_outputs.len() >= REMEMBERED {
            state.first_outputs.pop_front();
        }
        state.first_outputs.push_back(took);
    }

    /// Opens the breaker for as long as an overloaded server (429, 503) asks for with `Retry-After`, in seconds.
    pub fn heed(&self, refused: &Response) {
        // Without a fallback each request waits for itself and is tried again.
        if !self.0.has_fallback || !matches!(refused.status().as_u16(), 429 | 503) {
            return;
        }
        let after = refused.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        if let Some(seconds) = after.filter(|seconds| *seconds > 0) {
            self.pause(Duration::from_secs(seconds));
        }
    }

    /// Opens the breaker for a time.
    pub fn pause(&self, pause: Duration) {
        let until = Instant::now() + pause.min(MAX_REQUESTED_PAUSE);
        let mut state = self.state();
        if !matches!(state.breaker, Breaker::Open { until: known } if known >= until) {
            state.breaker = Breaker::Open { until };
            drop(state);
            self.0.opened.notify_waiters();
        }
    }

    /// The state, for [`Stt::upstreams`](antiphon_engine_api::stt::Stt::upstreams) and its like. Where no request was answered since
    /// the breaker of one requester opened, it is that one's: as far as is known, it is the server that fails.
    pub fn report(&self, engine: &str) -> Upstreams {
        let (state, retry_ms) = match self.state().known() {
            Breaker::Closed => (BreakerState::Closed, None),
            Breaker::Probing => (BreakerState::HalfOpen, None),
            Breaker::Open { until } => match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => (BreakerState::HalfOpen, None),
                left => (BreakerState::Open, Some(left.as_millis() as u64)),
            },
        };
        let report = Report { engine: engine.to_owned(), role: Role::Primary, state, retry_ms };
        Upstreams { engines: vec![report], ..Upstreams::default() }
    }

    fn delay(&self, state: &State) -> Option<Duration> {
        let least = self.0.hedge_after?;
        let mut sorted: Vec<_> = state.first_outputs.iter().copied().collect();
        sorted.sort_unstable();
        let at = (sorted.len() * PERCENTILE).div_ceil(100).saturating_sub(1);
        Some(sorted.get(at).map_or(least, |usual| least.max(*usual)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Breaker {
    /// Whether a request that is sent now is the probe.
    fn admits(self, now: Instant) -> Result<bool, IsOpen> {
        match self {
            Self::Closed => Ok(false),
            Self::Open { until } if now >= until => Ok(true),
            Self::Open { until } => Err(IsOpen { retry_in: until - now }),
            Self::Probing => Err(IsOpen { retry_in: Duration::ZERO }),
        }
    }
}

impl State {
    fn known(&self) -> Breaker {
        let unanswered = |own: &&OwnState| own.since == self.n_answered && own.breaker != Breaker::Closed;
        match self.breaker {
            Breaker::Closed => self.requesters.values().find(unanswered).map_or(Breaker::Closed, |own| own.breaker),
            known => known,
        }
    }

    /// Counts a failure for its requester. Whether it counts for the server's breaker too, whether the requester's own has
    /// opened just now, and whether it is open.
    fn count_own(&mut self, requester: Requester, most: u32, is_probe: bool) -> (bool, bool, bool) {
        let now = Instant::now();
        let n_answered = self.n_answered;
        if !self.requesters.contains_key(&requester)
            && self.requesters.len() >= MAX_REQUESTERS
            && let Some(oldest) = self.oldest()
        {
            self.requesters.remove(&oldest);
        }
        let own = self.requesters.entry(requester).or_insert_with(|| OwnState {
            breaker: Breaker::Closed,
            n_failures: 0,
            pauses: PAUSES.pauses(),
            last: now,
            n_shared: 0,
            since: n_answered,
        });
        own.last = now;
        own.n_failures = own.n_failures.saturating_add(1);
        if own.since != n_answered {
            own.n_shared = 0;
            own.since = n_answered;
        }
        let opens = match own.breaker {
            Breaker::Closed => own.n_failures >= most,
            Breaker::Probing => is_probe,
            Breaker::Open { .. } => false,
        };
        if opens {
            let pause = own.pauses.next().unwrap_or(PAUSES.max_pause);
            own.breaker = Breaker::Open { until: now + pause };
        }
        let is_open = own.breaker != Breaker::Closed;
        // One client alone is not enough, however many sessions it has.
        let of_client = self.requesters.iter().filter(|(other, _)| requester.is_client_of(**other));
        let n_shared: u32 = of_client.filter(|(_, own)| own.since == n_answered).map(|(_, own)| own.n_shared).sum();
        let is_shared = n_shared < most.div_ceil(2);
        if let Some(own) = self.requesters.get_mut(&requester) {
            own.n_shared += u32::from(is_shared);
        }
        (is_shared, opens, is_open)
    }

    /// The requester to forget: of those whose failures do not count for the server's breaker now, if there is one.
    fn oldest(&self) -> Option<Requester> {
        let counts = |own: &OwnState| own.since == self.n_answered && own.n_shared > 0;
        self.requesters.iter().min_by_key(|(_, own)| (counts(own), own.last)).map(|(oldest, _)| *oldest)
    }
}

impl Attempt {
    /// Says nothing of how long the first output takes: it depends on others than the server.
    pub fn untimed(mut self) -> Self {
        self.late_after = None;
        self
    }

    /// Its first output may take longer than usual by this time.
    pub fn longer_by(mut self, time: Duration) -> Self {
        self.late_after = self.late_after.map(|late_after| late_after + time);
        self
    }

    /// Waits for the request's first output. Where another engine takes over, a wait that is late ends once the breaker opens,
    /// because of other requests that were late; `None` then.
    pub async fn first<T>(&self, output: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            output = output => Some(output),
            () = self.until_given_up() => None,
        }
    }

    /// The first output has come.
    pub fn answered(&mut self) {
        self.responds();
        if !std::mem::replace(&mut self.has_output, true) && self.late_after.is_some() {
            self.upstream.measured(self.begun.elapsed());
        }
    }

    /// The server shows that it works on the request, whose first output is still to come.
    pub fn responds(&mut self) {
        if self.stage != Progress::Waiting {
            return;
        }
        self.stage = Progress::Answering;
        let mut state = self.upstream.state();
        if self.is_probe && state.breaker == Breaker::Probing {
            tracing::info!("the server answers again");
            state.breaker = Breaker::Closed;
            state.pauses.restart();
            // They failed with the server.
            state.requesters.clear();
        }
        if let Some(own) = self.requester.and_then(|requester| state.requesters.get_mut(&requester))
            && self.is_own_probe
            && own.breaker == Breaker::Probing
        {
            own.breaker = Breaker::Closed;
        }
    }

    /// The request has failed, before or behind its first output. A fault of the request or of the configuration says that the
    /// server works.
    pub fn failed(mut self, fault: Fault) {
        match fault {
            Fault::Auth | Fault::Refused | Fault::Unavailable => {
                self.late_after = None;
                self.answered();
            }
            Fault::Unreachable => {
                self.count_failure(true);
                self.stage = Progress::Over;
            }
            Fault::BrokenOff | Fault::Timeout | Fault::Overloaded | Fault::BadAnswer | Fault::Failed => {
                self.count_failure(false);
                self.stage = Progress::Over;
            }
        }
    }

    /// `is_connection`: no connection was made, which has nothing to do with the request.
    fn count_failure(&self, is_connection: bool) {
        let mut state = self.upstream.state();
        let has_fallback = self.upstream.0.has_fallback;
        let most = if has_fallback { OPENS_AFTER_WITH_FALLBACK } else { OPENS_AFTER };
        let (is_shared, opens_own, is_alone) = match self.requester.filter(|_| !is_connection) {
            Some(requester) => state.count_own(requester, most, self.is_own_probe),
            None => {
                self.release_own_probe(&mut state);
                (true, false, false)
            }
        };
        state.n_failures = state.n_failures.saturating_add(u32::from(is_shared));
        let opens = match state.breaker {
            Breaker::Closed => is_shared && state.n_failures >= most,
            Breaker::Probing if self.is_probe && is_alone => {
                // It says nothing of the server: another requester may try.
                state.breaker = Breaker::Open { until: Instant::now() };
                false
            }
            Breaker::Probing => self.is_probe,
            Breaker::Open { .. } => false,
        };
        let n_failures = state.n_failures;
        if opens {
            let pause = state.pauses.next().unwrap_or(PAUSES.max_pause);
            state.breaker = Breaker::Open { until: Instant::now() + pause };
            drop(state);
            tracing::warn!(n_failures, ?pause, "the server failed several times in a row and is not asked for a while");
        } else if opens_own {
            drop(state);
            tracing::warn!(
                "the server failed several times in a row for one client, for which it is not asked for a while"
            );
        } else {
            return;
        }
        self.upstream.0.opened.notify_waiters();
    }

    /// Another request of the requester may be the probe of its own breaker.
    fn release_own_probe(&self, state: &mut State) {
        if let Some(own) = self.requester.and_then(|requester| state.requesters.get_mut(&requester))
            && self.is_own_probe
            && own.breaker == Breaker::Probing
        {
            own.breaker = Breaker::Open { until: Instant::now() };
        }
    }

    async fn until_given_up(&self) {
        let Some(late_after) =
            self.late_after.filter(|_| self.upstream.0.has_fallback && !self.is_probe && !self.is_own_probe)
        else {
            return std::future::pending().await;
        };
        sleep_until(self.begun + late_after).await;
        loop {
            let opened = self.upstream.0.opened.notified();
            if self.upstream.is_open(self.requester) {
                return;
            }
            opened.await;
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        match self.stage {
            Progress::Over => {}
            // It has ended, or its listener has gone.
            Progress::Answering => {
                let mut state = self.upstream.state();
                state.n_failures = 0;
                state.n_answered += 1;
                if let Some(requester) = self.requester {
                    state.requesters.remove(&requester);
                }
            }
            Progress::Waiting if self.late_after.is_some_and(|late| self.begun.elapsed() >= late) => {
                self.count_failure(false)
            }
            Progress::Waiting => {
                let mut state = self.upstream.state();
                if self.is_probe && state.breaker == Breaker::Probing {
                    state.breaker = Breaker::Open { until: Instant::now() };
                }
                self.release_own_probe(&mut state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{advance, timeout};

    const MS: Duration = Duration::from_millis(1);

    fn state(upstream: &Upstream) -> BreakerState {
        upstream.report("x").engines[0].state
    }

    fn fails(upstream: &Upstream, times: u32, fault: Fault) {
        for _ in 0..times {
            upstream.admit(None).expect("closed").failed(fault);
        }
    }

    async fn answers(upstream: &Upstream, after: Duration) {
        let mut attempt = upstream.admit(None).expect("admitted");
        advance(after).await;
        attempt.answered();
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_open_it_and_one_probe_at_a_time_closes_it() {
        let upstream = Upstream::new(0, 60 * MS, false);
        fails(&upstream, OPENS_AFTER - 1, Fault::Unreachable);
        answers(&upstream, MS).await;
        fails(&upstream, OPENS_AFTER, Fault::Timeout);
        assert_eq!(state(&upstream), BreakerState::Open);
        let refused = upstream.admit(None).expect_err("open");
        assert!(refused.retry_in >= 499 * MS && refused.retry_in <= 1_000 * MS, "{refused:?}");
        advance(1_001 * MS).await;
        let probe = upstream.admit(None).expect("the probe");
        assert_eq!(state(&upstream), BreakerState::HalfOpen);
        upstream.admit(None).expect_err("one probe at a time");
        probe.failed(Fault::Failed);
        assert_eq!(state(&upstream), BreakerState::Open);
        advance(900 * MS).await;
        upstream.admit(None).expect_err("the pause grows: 1 to 2 s now");
        advance(1_101 * MS).await;
        drop(upstream.admit(None).expect("a probe whose listener has gone"));
        answers(&upstream, MS).await;
        assert_eq!(state(&upstream), BreakerState::Closed);
        fails(&upstream, OPENS_AFTER - 1, Fault::Failed);
        assert_eq!(state(&upstream), BreakerState::Closed, "a success resets the count");
        // Given up by its listener, after half of the time-out.
        let given_up = upstream.admit(None).expect("closed");
        advance(31 * MS).await;
        drop(given_up);
        assert_eq!(state(&upstream), BreakerState::Open);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_may_take_longer_is_late_by_its_own_time() {
        let upstream = Upstream::new(1_000, 10_000 * MS, true);
        for (given_up_after, expected) in [(5_900 * MS, BreakerState::Closed), (6_100 * MS, BreakerState::Open)] {
            for _ in 0..OPENS_AFTER_WITH_FALLBACK {
                let attempt = upstream.admit(None).expect("closed").longer_by(5_000 * MS);
                advance(given_up_after).await;
                drop(attempt);
            }
            assert_eq!(state(&upstream), expected, "{given_up_after:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_refuses_works() {
        let upstream = Upstream::new(0, 60 * MS, true);
        fails(&upstream, 20, Fault::Auth);
        fails(&upstream, 20, Fault::Refused);
        assert_eq!(state(&upstream), BreakerState::Closed);
        fails(&upstream, OPENS_AFTER_WITH_FALLBACK, Fault::Overloaded);
        assert_eq!(state(&upstream), BreakerState::Open);
        advance(1_001 * MS).await;
        upstream.admit(None).expect("the probe").failed(Fault::Auth);
        assert_eq!(state(&upstream), BreakerState::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_the_server_asks_for_is_kept_where_another_serves_meanwhile() {
        let refused = || http::Response::builder().status(429).header("retry-after", "7").body("").unwrap();
        let alone = Upstream::new(0, 60 * MS, false);
        alone.heed(&refused().into());
        assert_eq!(state(&alone), BreakerState::Closed);
        let upstream = Upstream::new(0, 60 * MS, true);
        let attempt = upstream.admit(None).expect("closed");
        upstream.heed(&refused().into());
        attempt.failed(Fault::Overloaded);
        advance(6_900 * MS).await;
        assert_eq!(upstream.admit(None).expect_err("open").retry_in, 100 * MS);
        advance(101 * MS).await;
        upstream.admit(None).expect("the probe");
        upstream.pause(Duration::from_secs(90_000));
        assert_eq!(upstream.admit(None).expect_err("open").retry_in, MAX_REQUESTED_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn the_delay_follows_what_is_measured() {
        let upstream = Upstream::new(300, 60 * MS, true);
        assert_eq!(upstream.hedge_delay(), Some(300 * MS));
        for n in 1..=200 {
            answers(&upstream, n * 10 * MS).await;
        }
        assert_eq!(upstream.hedge_delay(), Some(1_950 * MS), "of the last hundred");
        assert_eq!(Upstream::new(0, 60 * MS, true).hedge_delay(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn late_requests_that_were_dropped_open_it_and_end_the_other_late_ones() {
        let upstream = Upstream::new(300, 60 * MS, true);
        let waits = upstream.admit(None).expect("closed");
        for _ in 0..OPENS_AFTER_WITH_FALLBACK {
            let dropped = upstream.admit(None).expect("closed");
            advance(100 * MS).await;
            drop(dropped);
        }
        assert_eq!(state(&upstream), BreakerState::Closed, "they were not late");
        let late: Vec<_> = (0..OPENS_AFTER_WITH_FALLBACK).map(|_| upstream.admit(None).expect("closed")).collect();
        let waiting = waits.first(std::future::pending::<()>());
        let opens = async {
            advance(301 * MS).await;
            drop(late);
        };
        let (given_up, ()) =
            timeout(Duration::from_secs(60), async { tokio::join!(waiting, opens) }).await.expect("in time");
        assert_eq!((given_up, state(&upstream)), (None, BreakerState::Open));
    }

    fn who(n: u64) -> Option<Requester> {
        Some(Requester::of(&n))
    }

    /// Requests of one requester fail as often as they are sent; how often they were.
    fn fails_for(upstream: &Upstream, n: u64, times: u32, fault: Fault) -> u32 {
        (0..times).filter_map(|_| upstream.admit(who(n)).ok()).map(|attempt| attempt.failed(fault)).count() as u32
    }

    #[tokio::test(start_paused = true)]
    async fn one_requester_alone_opens_its_own_breaker_only() {
        for (has_fallback, most) in [(false, OPENS_AFTER), (true, OPENS_AFTER_WITH_FALLBACK)] {
            for fault in [Fault::Failed, Fault::Timeout, Fault::BrokenOff, Fault::BadAnswer, Fault::Overloaded] {
                let upstream = Upstream::new(0, 60 * MS, has_fallback);
                assert_eq!(fails_for(&upstream, 1, 50, fault), most, "{fault:?}");
                assert_eq!(state(&upstream), BreakerState::Open, "no other one was answered yet");
                for n in 2..20 {
                    upstream.admit(who(n)).expect("others are served").answered();
                }
                assert_eq!(state(&upstream), BreakerState::Closed);
                upstream.admit(who(1)).expect_err("its own is open");
                // An accident of another one is not enough.
                fails_for(&upstream, 1, 50, fault);
                upstream.admit(who(2)).expect("admitted").failed(fault);
                upstream.admit(who(2)).expect("admitted").answered();
                // Its own probe fails, and the pause grows for it alone.
                for pause in [1_001, 2_001, 4_001] {
                    advance(pause * MS).await;
                    assert_eq!(fails_for(&upstream, 1, 50, fault), 1, "one probe");
                    upstream.admit(who(2)).expect("admitted").answered();
                }
                advance(8_001 * MS).await;
                upstream.admit(who(1)).expect("the probe").answered();
                assert_eq!(fails_for(&upstream, 1, 50, fault), most, "it restarted");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_several_requesters_and_of_connections_open_it_for_all() {
        let upstream = Upstream::new(0, 60 * MS, false);
        fails_for(&upstream, 1, 50, Fault::Failed);
        fails_for(&upstream, 2, 1, Fault::Failed);
        upstream.admit(who(3)).expect("3 and 1 are not 5");
        fails_for(&upstream, 3, 1, Fault::Failed);
        upstream.admit(who(4)).expect_err("open for all");
        let upstream = Upstream::new(0, 60 * MS, false);
        assert_eq!(fails_for(&upstream, 1, 50, Fault::Unreachable), OPENS_AFTER);
        upstream.admit(who(2)).expect_err("no connection can be made");
        let upstream = Upstream::new(0, 60 * MS, true);
        assert_eq!(fails_for(&upstream, 1, 1, Fault::Failed) + fails_for(&upstream, 2, 1, Fault::Failed), 2);
        upstream.admit(who(3)).expect_err("open for all");
        // An answer to one of them begins a new count for all.
        let upstream = Upstream::new(0, 60 * MS, true);
        fails_for(&upstream, 1, 1, Fault::Failed);
        upstream.admit(who(3)).expect("closed").answered();
        fails_for(&upstream, 2, 1, Fault::Failed);
        upstream.admit(who(3)).expect("closed").answered();
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_of_one_client_open_it_for_no_other_client() {
        let client = Requester::of(&"192.0.2.1");
        let session = |n: u64| Some(Requester::of(&n).within(client));
        for has_fallback in [false, true] {
            let upstream = Upstream::new(0, 60 * MS, has_fallback);
            // More than are remembered.
            for n in 0..2 * MAX_REQUESTERS as u64 {
                for _ in 0..10 {
                    if let Ok(attempt) = upstream.admit(session(n)) {
                        attempt.failed(Fault::Failed);
                    }
                }
                advance(MS).await;
            }
            drop(upstream.admit(who(7)).expect("another client is served"));
            drop(upstream.admit(session(1_000)).expect("so is another session of its address"));
            fails_for(&upstream, 7, 2, Fault::Failed);
            upstream.admit(who(8)).expect_err("the failures of two clients open it for all");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_probe_of_one_that_fails_alone_does_not_keep_the_others_away() {
        let upstream = Upstream::new(0, 60 * MS, false);
        fails_for(&upstream, 1, 50, Fault::Failed);
        fails_for(&upstream, 2, 2, Fault::Failed);
        upstream.admit(who(3)).expect_err("open for all");
        advance(1_001 * MS).await;
        upstream.admit(who(1)).expect("the probe of both").failed(Fault::Failed);
        upstream.admit(who(1)).expect_err("its own is open");
        let probe = upstream.admit(who(3)).expect("another one tries at once");
        upstream.admit(who(2)).expect_err("one probe at a time");
        probe.failed(Fault::Failed);
        upstream.admit(who(2)).expect_err("the server failed");
        advance(2_001 * MS).await;
        upstream.admit(who(2)).expect("the probe").answered();
        upstream.admit(who(1)).expect("it may have failed with the server").answered();
        assert_eq!(state(&upstream), BreakerState::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_whose_listener_has_gone_is_another_ones() {
        let upstream = Upstream::new(0, 60 * MS, false);
        fails_for(&upstream, 1, 50, Fault::Failed);
        advance(1_001 * MS).await;
        drop(upstream.admit(who(1)).expect("the probe"));
        let probe = upstream.admit(who(1)).expect("the next one is it");
        upstream.admit(who(1)).expect_err("one probe at a time");
        probe.failed(Fault::Unreachable);
        upstream.admit(who(1)).expect("no connection says nothing of the requester").answered();
        upstream.admit(who(1)).expect("closed");
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_requesters_are_remembered() {
        let upstream = Upstream::new(0, 60 * MS, false);
        for n in 0..10 * MAX_REQUESTERS as u64 {
            upstream.admit(who(1)).expect("closed").answered();
            fails_for(&upstream, 2 + n, 50, Fault::Failed);
            advance(MS).await;
        }
        assert_eq!(upstream.state().requesters.len(), MAX_REQUESTERS);
        upstream.admit(who(2)).expect("it is forgotten");
        upstream.admit(who(1 + 10 * MAX_REQUESTERS as u64)).expect_err("the last one is known");
    }

    #[tokio::test(start_paused = true)]
    async fn late_requests_of_one_requester_end_its_own_others_only() {
        let upstream = Upstream::new(300, 60 * MS, true);
        let own = upstream.admit(who(1)).expect("closed");
        let other = upstream.admit(who(2)).expect("closed");
        let late: Vec<_> = (0..2).map(|_| upstream.admit(who(1)).expect("closed")).collect();
        let opens = async {
            advance(301 * MS).await;
            drop(late);
        };
        let (own, ()) = tokio::join!(own.first(std::future::pending::<()>()), opens);
        assert_eq!(own, None, "given up");
        timeout(MS, other.first(std::future::pending::<()>())).await.expect_err("it waits on");
    }
}
