//! The question to the turn model at a pause: a task that asks and reports back.
//!
//! The actor starts one at each pause where the wait adapts and there is a model; the next pause replaces it. Its answer
//! is a hint for the wait of that pause only, so a late one is dropped, and a failure costs nothing but the hint.

use super::actor::Actor;
use super::transcription_task::Report;
use antiphon_types::Samples;
use std::time::Duration;
use tokio::time::timeout;

/// From a pause to an answer that is still of use: the longest wait but one.
const PATIENCE: Duration = Duration::from_secs(2);

impl Actor {
    /// The speaker pauses since `said_to`: what does the model think?
    pub(super) fn ask_turn_model(&mut self, said_to: Samples) {
        let Some(model) = self.setup.engines.turn.clone() else { return };
        let Some(pcm) = self.ingress.turn_so_far(model.span()) else { return };
        let reports = self.reports.clone();
        let work = async move {
            match timeout(PATIENCE, model.judge(pcm)).await {
                // The actor is gone only when the session is.
                Ok(Ok(probability)) => drop(reports.send(Report::Judged { said_to, probability }).await),
                Ok(Err(error)) => tracing::warn!(%error, "the wait at this pause goes without the turn model"),
                Err(_) => tracing::warn!("the turn model gave no answer within {PATIENCE:?}"),
            }
        };
        self.judging = Some(self.spawn(work));
    }
}
