//! The health of one server of one stage: its circuit breaker, and how long its first output usually takes.
//!
//! A remote engine asks for an [`Attempt`] before it sends a request, and says what became of it. After failures in a row the
//! breaker opens: requests fail at once, without a connection. After a pause, which grows and has jitter, one request is let
//! through as a probe; its outcome closes or opens the breaker again. A server that refuses a request, or the hub's key, works:
//! that is no failure here. It never sends anything and spawns no task.

use antiphon_engine_api::{BreakerState, Fault, Role, Upstream as Report, Upstreams};
use antiphon_types::{Backoff, RetryPolicy};
use reqwest::Response;
use reqwest::header::RETRY_AFTER;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Failures in a row that open the breaker: Envoy's default (`consecutive_5xx` of its outlier detection).
const OPENS_AFTER: u32 = 5;
/// The same where a fallback engine takes over: a breaker that opens by mistake costs nothing then, and each failure before it
/// opens is a late answer. One late answer of a healthy server is common, two in a row are not: see [`PERCENTILE`].
const OPENS_AFTER_WITH_FALLBACK: u32 = 2;
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
pub struct Upstream(Arc<Shared>);

#[derive(Debug)]
struct Shared {
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
    is_probe: bool,
    /// How long it may take to its first output; `None`: its time says nothing.
    late_after: Option<Duration>,
    stage: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Waiting,
    /// The first output has come.
    Answering,
    Over,
}

impl Upstream {
    /// A server that is taken to work. `hedge_after_ms`: the least delay of a hedged request; 0: none is sent. `timeout`: of
    /// the first output.
    pub fn new(hedge_after_ms: u64, timeout: Duration, has_fallback: bool) -> Self {
        let hedge_after = (hedge_after_ms > 0).then(|| Duration::from_millis(hedge_after_ms));
        let (breaker, n_failures, pauses) = (Breaker::Closed, 0, PAUSES.pauses());
        let state = Mutex::new(State { breaker, n_failures, pauses, first_outputs: VecDeque::new() });
        Self(Arc::new(Shared { hedge_after, patience: timeout / 2, has_fallback, state, opened: Notify::new() }))
    }

    /// Whether another engine takes over where this one fails.
    pub fn has_fallback(&self) -> bool {
        self.0.has_fallback
    }

    /// Begins a request. Where the breaker is half-open and no probe is under way, it is the probe.
    ///
    /// # Errors
    /// [`IsOpen`]: it must not be sent.
    pub fn admit(&self) -> Result<Attempt, IsOpen> {
        let mut state = self.state();
        let now = Instant::now();
        let is_probe = match state.breaker {
            Breaker::Closed => false,
            Breaker::Open { until } if now >= until => {
                state.breaker = Breaker::Probing;
                true
            }
            Breaker::Open { until } => return Err(IsOpen { retry_in: until - now }),
            Breaker::Probing => return Err(IsOpen { retry_in: Duration::ZERO }),
        };
        let late_after = Some(self.delay(&state).unwrap_or(self.0.patience));
        let (upstream, begun, stage) = (self.clone(), now, Progress::Waiting);
        Ok(Attempt { upstream, begun, is_probe, late_after, stage })
    }

    /// Whether a request would not be sent now.
    pub fn is_open(&self) -> bool {
        match self.state().breaker {
            Breaker::Closed => false,
            Breaker::Open { until } => Instant::now() < until,
            Breaker::Probing => true,
        }
    }

    /// The delay of a hedged request: the 95th percentile of the last first outputs, and at least the configured one. `None`:
    /// none is sent.
    pub fn hedge_delay(&self) -> Option<Duration> {
        self.delay(&self.state())
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

    /// The state, for [`Stt::upstreams`](antiphon_engine_api::stt::Stt::upstreams) and its like.
    pub fn report(&self, engine: &str) -> Upstreams {
        let (state, retry_ms) = match self.state().breaker {
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

impl Attempt {
    /// Says nothing of how long the first output takes: it depends on others than the server.
    pub fn untimed(mut self) -> Self {
        self.late_after = None;
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
        if self.stage != Progress::Waiting {
            return;
        }
        self.stage = Progress::Answering;
        let mut state = self.upstream.state();
        if self.late_after.is_some() {
            if state.first_outputs.len() >= REMEMBERED {
                state.first_outputs.pop_front();
            }
            state.first_outputs.push_back(self.begun.elapsed());
        }
        if self.is_probe && state.breaker == Breaker::Probing {
            tracing::info!("the server answers again");
            state.breaker = Breaker::Closed;
            state.pauses.restart();
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
            Fault::Unreachable | Fault::Timeout | Fault::Overloaded | Fault::BadAnswer | Fault::Failed => {
                self.count_failure();
                self.stage = Progress::Over;
            }
        }
    }

    fn count_failure(&self) {
        let mut state = self.upstream.state();
        state.n_failures = state.n_failures.saturating_add(1);
        let has_fallback = self.upstream.0.has_fallback;
        let most = if has_fallback { OPENS_AFTER_WITH_FALLBACK } else { OPENS_AFTER };
        let opens = match state.breaker {
            Breaker::Closed => state.n_failures >= most,
            Breaker::Probing => self.is_probe,
            Breaker::Open { .. } => false,
        };
        if !opens {
            return;
        }
        let pause = state.pauses.next().unwrap_or(PAUSES.max_pause);
        state.breaker = Breaker::Open { until: Instant::now() + pause };
        let n_failures = state.n_failures;
        drop(state);
        tracing::warn!(n_failures, ?pause, "the server failed several times in a row and is not asked for a while");
        self.upstream.0.opened.notify_waiters();
    }

    async fn until_given_up(&self) {
        let Some(late_after) = self.late_after.filter(|_| self.upstream.0.has_fallback && !self.is_probe) else {
            return std::future::pending().await;
        };
        sleep_until(self.begun + late_after).await;
        loop {
            let opened = self.upstream.0.opened.notified();
            if self.upstream.is_open() {
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
            Progress::Answering => self.upstream.state().n_failures = 0,
            Progress::Waiting if self.late_after.is_some_and(|late| self.begun.elapsed() >= late) => {
                self.count_failure()
            }
            Progress::Waiting if self.is_probe => {
                let mut state = self.upstream.state();
                if state.breaker == Breaker::Probing {
                    state.breaker = Breaker::Open { until: Instant::now() };
                }
            }
            Progress::Waiting => {}
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
            upstream.admit().expect("closed").failed(fault);
        }
    }

    async fn answers(upstream: &Upstream, after: Duration) {
        let mut attempt = upstream.admit().expect("admitted");
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
        let refused = upstream.admit().expect_err("open");
        assert!(refused.retry_in >= 499 * MS && refused.retry_in <= 1_000 * MS, "{refused:?}");
        advance(1_001 * MS).await;
        let probe = upstream.admit().expect("the probe");
        assert_eq!(state(&upstream), BreakerState::HalfOpen);
        upstream.admit().expect_err("one probe at a time");
        probe.failed(Fault::Failed);
        assert_eq!(state(&upstream), BreakerState::Open);
        advance(900 * MS).await;
        upstream.admit().expect_err("the pause grows: 1 to 2 s now");
        advance(1_101 * MS).await;
        drop(upstream.admit().expect("a probe whose listener has gone"));
        answers(&upstream, MS).await;
        assert_eq!(state(&upstream), BreakerState::Closed);
        fails(&upstream, OPENS_AFTER - 1, Fault::Failed);
        assert_eq!(state(&upstream), BreakerState::Closed, "a success resets the count");
        // Given up by its listener, after half of the time-out.
        let given_up = upstream.admit().expect("closed");
        advance(31 * MS).await;
        drop(given_up);
        assert_eq!(state(&upstream), BreakerState::Open);
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
        upstream.admit().expect("the probe").failed(Fault::Auth);
        assert_eq!(state(&upstream), BreakerState::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_the_server_asks_for_is_kept_where_another_serves_meanwhile() {
        let refused = || axum::http::Response::builder().status(429).header("retry-after", "7").body("").unwrap();
        let alone = Upstream::new(0, 60 * MS, false);
        alone.heed(&refused().into());
        assert_eq!(state(&alone), BreakerState::Closed);
        let upstream = Upstream::new(0, 60 * MS, true);
        let attempt = upstream.admit().expect("closed");
        upstream.heed(&refused().into());
        attempt.failed(Fault::Overloaded);
        advance(6_900 * MS).await;
        assert_eq!(upstream.admit().expect_err("open").retry_in, 100 * MS);
        advance(101 * MS).await;
        upstream.admit().expect("the probe");
        upstream.pause(Duration::from_secs(90_000));
        assert_eq!(upstream.admit().expect_err("open").retry_in, MAX_REQUESTED_PAUSE);
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
        let waits = upstream.admit().expect("closed");
        for _ in 0..OPENS_AFTER_WITH_FALLBACK {
            let dropped = upstream.admit().expect("closed");
            advance(100 * MS).await;
            drop(dropped);
        }
        assert_eq!(state(&upstream), BreakerState::Closed, "they were not late");
        let late: Vec<_> = (0..OPENS_AFTER_WITH_FALLBACK).map(|_| upstream.admit().expect("closed")).collect();
        let waiting = waits.first(std::future::pending::<()>());
        let opens = async {
            advance(301 * MS).await;
            drop(late);
        };
        let (given_up, ()) =
            timeout(Duration::from_secs(60), async { tokio::join!(waiting, opens) }).await.expect("in time");
        assert_eq!((given_up, state(&upstream)), (None, BreakerState::Open));
    }
}
