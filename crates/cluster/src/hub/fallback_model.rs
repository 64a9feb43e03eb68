//! The requests that workers with the fallback model of a stage took: for the log, the metrics and the dashboard.
//!
//! `attempt` reports each accepted request. That requests went to the fallback model is logged once, and once that they do not
//! any more.

use crate::message::Stage;
use crate::stage_models::StageModel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Time without a request to the fallback model after which the stage counts as served by its own model again: while all workers
/// are busy now and then, requests go here and there.
const SETTLED: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Default)]
pub(super) struct FallbackModelUse([Mutex<Use>; Stage::ALL.len()]);

/// Of one stage.
#[derive(Default)]
struct Use {
    /// Requests that the fallback model took since the start.
    requests: u64,
    /// When the last of them was accepted; `None`: the stage is served by its own model.
    last: Option<Instant>,
}

/// What an accepted request changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    ToFallback,
    BackToModel,
}

impl FallbackModelUse {
    /// A worker has accepted a request of the stage, whose models are `models`.
    pub(super) fn accepted(&self, stage: Stage, models: &StageModel, by_fallback: bool) {
        let change = self.of(stage).accepted(by_fallback);
        let model = models.model.as_str();
        let fallback = models.fallback.as_deref().unwrap_or_default();
        match change {
            Change::None => {}
            Change::ToFallback => tracing::warn!(
                %stage, model, fallback, "no worker with the model of the stage takes requests; the fallback model serves them"
            ),
            Change::BackToModel => tracing::info!(%stage, model, "the model of the stage serves all requests again"),
        }
    }

    /// Requests of the stage that the fallback model took since the start.
    pub(super) fn requests(&self, stage: Stage) -> u64 {
        self.of(stage).requests
    }

    fn of(&self, stage: Stage) -> MutexGuard<'_, Use> {
        self.0[stage as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Use {
    fn accepted(&mut self, by_fallback: bool) -> Change {
        if by_fallback {
            self.requests += 1;
            let before = self.last.replace(Instant::now());
            return if before.is_none() { Change::ToFallback } else { Change::None };
        }
        if self.last.is_some_and(|last| last.elapsed() >= SETTLED) {
            self.last = None;
            return Change::BackToModel;
        }
        Change::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_one_even_if_requests_go_here_and_there() {
        let mut stage = Use::default();
        assert_eq!(stage.accepted(false), Change::None);
        assert_eq!(stage.accepted(true), Change::ToFallback);
        for by_fallback in [false, true, false, true] {
            tokio::time::advance(SETTLED / 2).await;
            assert_eq!(stage.accepted(by_fallback), Change::None);
        }
        tokio::time::advance(SETTLED).await;
        assert_eq!(stage.accepted(false), Change::BackToModel);
        assert_eq!(stage.accepted(false), Change::None);
        assert_eq!(stage.requests, 3);
        assert_eq!(stage.accepted(true), Change::ToFallback);
    }
}
