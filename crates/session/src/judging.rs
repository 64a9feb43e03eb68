//! The request to the turn model at a pause: a task that reports the probability.
//!
//! The actor starts one at each pause where the wait adapts and there is a model; the next pause replaces it. The answer is
//! a hint for the wait of that pause only: a late one is dropped, and a failure only loses the hint.

use super::actor::Actor;
use super::transcription_task::Report;
use antiphon_types::Samples;
use std::time::Duration;
use tokio::time::timeout;

/// The longest useful delay of an answer: the second longest wait for the end of a turn.
const PATIENCE: Duration = Duration::from_secs(2);

impl Actor {
    /// The speaker pauses since `pause_start`: asks the turn model.
    pub(super) fn ask_turn_model(&mut self, pause_start: Samples) {
        let Some(model) = self.setup.engines.turn.clone() else { return };
        let Some(pcm) = self.ingress.turn_so_far(model.span()) else { return };
        let reports = self.reports.clone();
        let work = async move {
            match timeout(PATIENCE, model.judge(pcm)).await {
                // The actor is gone only when the session is.
                Ok(Ok(probability)) => drop(reports.send(Report::Judged { pause_start, probability }).await),
                Ok(Err(error)) => tracing::warn!(%error, "the wait at this pause goes without the turn model"),
                Err(_) => tracing::warn!("the turn model gave no answer within {PATIENCE:?}"),
            }
        };
        self.judging = Some(self.spawn(work));
    }
}
