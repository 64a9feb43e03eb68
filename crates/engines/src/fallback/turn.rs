//! Turn models: a pause goes to the hub's own model where no worker can judge it.

use super::Pair;
use antiphon_engine_api::turn::{TurnModel, TurnModelError};
use antiphon_types::Samples;
use futures_util::future::BoxFuture;

/// See the module.
pub(super) struct TurnPair(pub(super) Pair<dyn TurnModel>);

impl TurnModel for TurnPair {
    fn name(&self) -> &str {
        self.0.primary.name()
    }

    fn span(&self) -> Samples {
        self.0.primary.span().max(self.0.second.span())
    }

    fn concurrency(&self) -> usize {
        self.0.total(|engine| engine.concurrency())
    }

    fn judge(&self, pcm: Vec<i16>) -> BoxFuture<'static, Result<f32, TurnModelError>> {
        let pair = self.0.clone();
        let judging = pair.primary.judge(pcm.clone());
        Box::pin(async move {
            let own = || pair.second.judge(pcm);
            let (judged, _) = pair.first(None, || false, judging, own).await;
            judged
        })
    }

    fn judges_overlap(&self) -> bool {
        self.0.second.judges_overlap()
    }

    /// By the hub's own model: workers judge pauses alone.
    fn judge_overlap(&self, pcm: Vec<i16>) -> BoxFuture<'static, Result<f32, TurnModelError>> {
        self.0.second.judge_overlap(pcm)
    }
}
