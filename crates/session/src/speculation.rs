//! Speculative responses: their work runs before the turn's end is confirmed, and its output is withheld until the reducer
//! releases it.
//!
//! [`super::speaking`] keeps one at most. Sending its one-shot releases the output; dropping the sender discards it, and the tokens
//! that the model read for it are charged.

use super::limits::SessionLimits;
use super::voice::Voice;
use antiphon_types::ResponseId;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio_util::sync::DropGuard;

/// A speculative response.
pub(super) struct SpeculativeTask {
    response: ResponseId,
    release: oneshot::Sender<()>,
    task: DropGuard,
    voice: Voice,
    cost: SpeculationCost,
    /// No limit of the client forbade it when it started.
    is_allowed: bool,
}

/// What a speculative response costs where it is never released. Dropping it charges that.
pub(super) struct SpeculationCost {
    limits: Arc<dyn SessionLimits>,
    input_tokens: u64,
}

impl SpeculativeTask {
    /// `release` is what its task waits for.
    pub(super) fn new(
        response: ResponseId,
        release: oneshot::Sender<()>,
        task: DropGuard,
        voice: Voice,
        cost: SpeculationCost,
    ) -> Self {
        Self { response, release, task, voice, cost, is_allowed: true }
    }

    /// The same where a limit of the client is used up: its task refuses the response once it is released.
    pub(super) fn refused(self) -> Self {
        Self { is_allowed: false, ..self }
    }

    /// Whether it counts as a response of the client.
    pub(super) fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// Whether this is the response that it works on.
    pub(super) fn is_of(&self, response: &ResponseId) -> bool {
        self.response == *response
    }

    /// Releases the output. What goes on is the task, and the voice of its speech. Its tokens are counted with the response.
    pub(super) fn release(mut self) -> (DropGuard, Voice) {
        self.cost.waive();
        // The receiver is gone only where the task has panicked: its response then ends with the session.
        let _ = self.release.send(());
        (self.task, self.voice)
    }
}

impl SpeculationCost {
    pub(super) fn new(limits: Arc<dyn SessionLimits>, input_tokens: u64) -> Self {
        Self { limits, input_tokens }
    }

    /// Nothing is to be charged.
    pub(super) fn waive(&mut self) {
        self.input_tokens = 0;
    }
}

impl Drop for SpeculationCost {
    fn drop(&mut self) {
        if self.input_tokens > 0 {
            self.limits.speculation_dropped(self.input_tokens);
        }
    }
}
