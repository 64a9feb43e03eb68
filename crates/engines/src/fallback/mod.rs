//! A stage with two engines: the first one, and one that serves where it fails, is late or has no room.
//!
//! The assembly puts one of these in the place of a stage's engine where a fallback is configured (`[stt.fallback]` and its
//! siblings), where a late request is to be sent to a remote engine a second time, and where the hub's own engines stand in for
//! workers (`cluster.fallback`); [`Takeover`] is the difference. The choice is made for each request before its first output; a request whose output
//! has begun stays where it is. Both engines stay as they are: this module knows no server, opens no connection and spawns no
//! task. What a request costs in vain is bounded: each engine is asked once, and late requests of a working server are sent twice
//! within a budget only. An engine without a fallback may repeat a request that failed once, by itself.

mod llm;
pub(crate) mod section;
mod stt;
#[cfg(test)]
mod tests;
mod tts;
mod turn;

use antiphon_engine_api::llm::{Llm, LlmError};
use antiphon_engine_api::stt::{Stt, SttError};
use antiphon_engine_api::tts::{Tts, TtsError};
use antiphon_engine_api::turn::{TurnModel, TurnModelError};
use antiphon_engine_api::{BreakerState, FallbackCounts, Role, Upstreams};
use antiphon_types::Meter;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// The recognizer with its fallback; with none, its late requests are sent to itself a second time.
pub fn with_stt(primary: Arc<dyn Stt>, fallback: Option<Arc<dyn Stt>>) -> Arc<dyn Stt> {
    Arc::new(stt::SttPair::new(Pair::new("stt", primary, fallback)))
}

/// The language model with its fallback; with none, its late requests are sent to itself a second time.
pub fn with_llm(primary: Arc<dyn Llm>, fallback: Option<Arc<dyn Llm>>) -> Arc<dyn Llm> {
    Arc::new(llm::LlmPair(Pair::new("llm", primary, fallback)))
}

/// The voice engine with its fallback, and the voice that stands for those the fallback lacks; with none, its late requests are
/// sent to itself a second time.
pub fn with_tts(primary: Arc<dyn Tts>, fallback: Option<(Arc<dyn Tts>, String)>) -> Arc<dyn Tts> {
    let (fallback, voice) = fallback.unzip();
    Arc::new(tts::TtsPair::new(Pair::new("tts", primary, fallback), voice.unwrap_or_default()))
}

/// The workers' recognizers, and the hub's own where no worker can serve.
pub fn with_own_stt(workers: Arc<dyn Stt>, own: Arc<dyn Stt>) -> Arc<dyn Stt> {
    Arc::new(stt::SttPair::new(Pair::of_workers("stt", workers, own)))
}

/// The workers' voices, and the hub's own where no worker can serve.
pub fn with_own_tts(workers: Arc<dyn Tts>, own: Arc<dyn Tts>) -> Arc<dyn Tts> {
    Arc::new(tts::TtsPair::new(Pair::of_workers("tts", workers, own), String::new()))
}

/// The workers' turn models, and the hub's own where no worker can serve.
pub fn with_own_turn(workers: Arc<dyn TurnModel>, own: Arc<dyn TurnModel>) -> Arc<dyn TurnModel> {
    Arc::new(turn::TurnPair(Pair::of_workers("turn", workers, own)))
}

/// Two engines of a stage.
struct Pair<T: ?Sized> {
    primary: Arc<T>,
    /// The fallback, or the primary itself.
    second: Arc<T>,
    has_fallback: bool,
    takeover: Takeover,
    counts: Arc<Counts>,
}

/// Which requests the second engine takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takeover {
    /// Those that the first engine fails at or is late with, and the rest of a text that it began. The stage has the first
    /// engine's voices, languages and room; what the second one serves is counted and noted with the turn.
    Failures,
    /// Those that no worker can be reached for or has room for, and no others: the cluster repeats by itself what a worker
    /// fails at. Both engines serve the stage, with the room and the voices of both.
    Overflow,
}

/// What became of the requests of a stage.
#[derive(Debug)]
struct Counts {
    stage: &'static str,
    /// By [`Reason`].
    n_fallbacks: [AtomicU64; 5],
    n_hedges: AtomicU64,
    budget: Mutex<f64>,
}

/// Why the fallback engine serves a request.
#[derive(Clone, Copy, Debug)]
enum Reason {
    Failed,
    Unavailable,
    Late,
    Continued,
    Brownout,
}

/// Late requests that are sent twice, as a share of all requests, and how many of them may come at once: a server that is late
/// because it is overloaded must not get twice the load. The share is that of requests beyond the 95th percentile.
const HEDGED_SHARE: f64 = 0.05;
const MAX_HEDGED_AT_ONCE: f64 = 5.0;

/// The error of a port.
trait StageError: std::error::Error {
    /// Whether another engine may do better: not where the request is at fault, or where it was given up.
    fn falls_back(&self) -> bool;
    /// Whether the engine was not asked at all.
    fn is_away(&self) -> bool;
    /// Whether the engine has no room for the request.
    fn is_full(&self) -> bool;
}

impl<T: ?Sized> Clone for Pair<T> {
    fn clone(&self) -> Self {
        Self {
            primary: self.primary.clone(),
            second: self.second.clone(),
            has_fallback: self.has_fallback,
            takeover: self.takeover,
            counts: self.counts.clone(),
        }
    }
}

impl<T: ?Sized> Pair<T> {
    fn new(stage: &'static str, primary: Arc<T>, fallback: Option<Arc<T>>) -> Self {
        let has_fallback = fallback.is_some();
        let second = fallback.unwrap_or_else(|| primary.clone());
        let n_fallbacks = Default::default();
        let n_hedges = AtomicU64::new(0);
        let counts = Counts { stage, n_fallbacks, n_hedges, budget: Mutex::new(MAX_HEDGED_AT_ONCE) };
        Self { primary, second, has_fallback, takeover: Takeover::Failures, counts: Arc::new(counts) }
    }

    /// Workers, and the hub's own engine.
    fn of_workers(stage: &'static str, workers: Arc<T>, own: Arc<T>) -> Self {
        Self { takeover: Takeover::Overflow, ..Self::new(stage, workers, Some(own)) }
    }

    /// Whether both engines serve the stage.
    fn overflows(&self) -> bool {
        self.takeover == Takeover::Overflow
    }

    /// A figure of the stage: the first engine's, or that of both.
    fn total(&self, figure: impl Fn(&T) -> usize) -> usize {
        let second = if self.overflows() { figure(&self.second) } else { 0 };
        figure(&self.primary) + second
    }

    /// Whether the stage has an ability: the first engine has it, or both.
    fn can(&self, ability: impl Fn(&T) -> bool) -> bool {
        ability(&self.primary) && (!self.overflows() || ability(&self.second))
    }

    /// Whether the second engine serves a request that failed so.
    fn falls_back(&self, error: &impl StageError) -> bool {
        self.has_fallback
            && match self.takeover {
                Takeover::Failures => error.falls_back(),
                Takeover::Overflow => error.is_away() || error.is_full(),
            }
    }

    /// Notes with the turn that the fallback, whose name this is, serves it.
    fn note_fallback(&self, meter: &Meter, name: &str) {
        if self.has_fallback && !self.overflows() {
            meter.set_fallback(name);
        }
    }

    fn count(&self, reason: Reason) {
        self.counts.n_fallbacks[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The fallback engine serves a request.
    fn count_fallback(&self, error: Option<&dyn StageError>) {
        let stage = self.counts.stage;
        self.count(match error {
            Some(error) if error.is_away() => Reason::Unavailable,
            Some(_) => Reason::Failed,
            None => Reason::Late,
        });
        match error {
            Some(error) if self.overflows() => {
                tracing::debug!(stage, %error, "no worker serves; the hub's own engine does")
            }
            Some(error) if !error.is_away() => tracing::warn!(stage, %error, "the engine failed; its fallback serves"),
            Some(error) => tracing::debug!(stage, %error, "the fallback engine serves"),
            None => tracing::info!(stage, "the engine was late; its fallback was faster"),
        }
    }

    /// The engines, from what each of them reports; `None`: the cluster's overview shows them.
    fn upstreams(
        &self,
        primary: Option<Upstreams>,
        fallback: Option<Upstreams>,
        names: [&str; 2],
    ) -> Option<Upstreams> {
        if self.overflows() {
            return None;
        }
        let [mut all, others] = [(primary, names[0]), (fallback, names[1])]
            .map(|(report, name)| report.unwrap_or_else(|| Upstreams::unguarded(name)));
        if self.has_fallback {
            all.engines.extend(others.engines.into_iter().map(|mut engine| {
                engine.role = Role::Fallback;
                engine
            }));
        }
        let of = |reason: Reason| self.counts.n_fallbacks[reason as usize].load(Ordering::Relaxed);
        all.fallbacks = FallbackCounts {
            failed: of(Reason::Failed),
            unavailable: of(Reason::Unavailable),
            late: of(Reason::Late),
            continued: of(Reason::Continued),
            brownout: of(Reason::Brownout),
        };
        all.n_fallbacks = all.fallbacks.total();
        all.n_hedges = self.counts.n_hedges.load(Ordering::Relaxed);
        Some(all)
    }

    /// The first output of a request, and whether the second engine gave it. `second` is asked when `primary` fails, or after
    /// `delay`; then the first to give output wins, and the other one is dropped. `is_probing`: the primary is being tried
    /// after failures, so that a second request needs no budget.
    async fn first<O, E: StageError, S: Future<Output = Result<O, E>>>(
        &self,
        delay: Option<Duration>,
        is_probing: impl Fn() -> bool,
        primary: impl Future<Output = Result<O, E>>,
        second: impl FnOnce() -> S,
    ) -> (Result<O, E>, bool) {
        self.counts.earn();
        let delay = delay.filter(|_| !self.overflows());
        let mut primary = pin!(primary);
        let late = async {
            match delay {
                Some(delay) => sleep(delay).await,
                None => std::future::pending().await,
            }
            if !is_probing() && !self.counts.spend() {
                std::future::pending().await
            }
        };
        tokio::select! {
            biased;
            output = &mut primary => return match output {
                Err(error) if self.falls_back(&error) => {
                    self.count_fallback(Some(&error));
                    (second().await, true)
                }
                output => (output, false),
            },
            () = late => {}
        }
        self.counts.n_hedges.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(stage = self.counts.stage, ?delay, "the first output is late; the request is sent once more");
        let mut second = pin!(second());
        let (output, is_second, error) = tokio::select! {
            biased;
            output = &mut primary => match output {
                Ok(output) => (Ok(output), false, None),
                // The request itself is refused: no other engine is to get around that.
                Err(error) if self.has_fallback && !error.falls_back() => return (Err(error), false),
                Err(error) => (second.await, true, Some(error)),
            },
            output = &mut second => match output {
                Ok(output) => (Ok(output), true, None),
                Err(_) => (primary.await, false, None),
            },
        };
        if is_second && self.has_fallback {
            self.count_fallback(error.as_ref().map(|error| error as &dyn StageError));
        }
        (output, is_second)
    }
}

impl Counts {
    fn earn(&self) {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        *budget = (*budget + HEDGED_SHARE).min(MAX_HEDGED_AT_ONCE);
    }

    fn spend(&self) -> bool {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let is_enough = *budget >= 1.0;
        if is_enough {
            *budget -= 1.0;
        }
        is_enough
    }
}

/// Whether the engine is not asked at all now.
fn is_down(report: Option<Upstreams>) -> bool {
    report.is_some_and(|report| report.is_down())
}

/// Whether the engine is being tried again after failures.
fn is_probing(report: Option<Upstreams>) -> bool {
    report.is_some_and(|report| report.engines.iter().any(|engine| engine.state == BreakerState::HalfOpen))
}

impl StageError for SttError {
    fn falls_back(&self) -> bool {
        !matches!(self, Self::Cancelled)
    }

    fn is_away(&self) -> bool {
        matches!(self, Self::Away(_))
    }

    fn is_full(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }
}

impl StageError for LlmError {
    /// 400, 413 and 422 are about what was said: it is too long, or a filter refused it, which no other engine is to get around.
    fn falls_back(&self) -> bool {
        !matches!(self, Self::Refused { status: 400 | 413 | 422, .. })
    }

    fn is_away(&self) -> bool {
        matches!(self, Self::Away(_))
    }

    fn is_full(&self) -> bool {
        false
    }
}

impl StageError for TtsError {
    fn falls_back(&self) -> bool {
        !matches!(self, Self::NoVoice(_))
    }

    fn is_away(&self) -> bool {
        matches!(self, Self::Away(_))
    }

    fn is_full(&self) -> bool {
        matches!(self, Self::Overloaded { .. })
    }
}

impl StageError for TurnModelError {
    fn falls_back(&self) -> bool {
        true
    }

    fn is_away(&self) -> bool {
        matches!(self, Self::Away(_))
    }

    fn is_full(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }
}
