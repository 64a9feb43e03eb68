//! Speculative responses: their work runs before the turn's end is confirmed, and its output is withheld until the reducer
//! releases it.
//!
//! The actor keeps one at most. Sending its one-shot releases the output; dropping the sender discards it, and the tokens that
//! the model read for it are charged.

use super::actor::Actor;
use super::limits::SessionLimits;
use super::responding::ResponseMeters;
use super::voice::Voice;
use antiphon_dialog::{ResponseWork, SpeculationOutcome, tokens_read};
use antiphon_telemetry::span;
use antiphon_types::ResponseId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::DropGuard;
use tracing::Instrument;

/// A speculative response.
pub(super) struct SpeculativeTask {
    response: ResponseId,
    release: oneshot::Sender<()>,
    work: (DropGuard, Voice),
    cost: Cost,
}

/// What a speculative response costs where it is never released. Dropping it charges that.
struct Cost {
    limits: Arc<dyn SessionLimits>,
    input_tokens: u64,
}

impl Drop for Cost {
    fn drop(&mut self) {
        if self.input_tokens > 0 {
            self.limits.speculation_dropped(self.input_tokens);
        }
    }
}

impl Actor {
    pub(super) fn start_speculative(&mut self, work: ResponseWork) {
        let (response, span) = (work.response.clone(), span::response(&work.response));
        let meters = ResponseMeters::requested_by(self.requester);
        let mut cost = Cost { limits: self.limits.clone(), input_tokens: tokens_read(&work.chat) };
        self.timeline.speculation_responding(work.turn, &response, meters.clone(), self.now());
        let (voice, responding) = self.prepare(work, meters);
        let (release, released) = oneshot::channel();
        let guard = match self.limits.may_respond() {
            Ok(()) => self.spawn(responding.run_speculatively(released).instrument(span)),
            Err(limit) => {
                cost.input_tokens = 0;
                self.spawn(self.refuse_response(response.clone(), limit, Some(released)))
            }
        };
        self.speculative = Some(SpeculativeTask { response, release, work: (guard, voice), cost });
    }

    pub(super) fn release_speculative(&mut self, id: &ResponseId) {
        let Some(mut task) = self.speculative.take_if(|task| task.response == *id) else {
            return tracing::error!(response = %id, "a speculative response that was never started was released");
        };
        self.kind_is_fixed = true;
        // It was allowed when it started, and its tokens are counted with the response.
        self.limits.response_begun();
        task.cost.input_tokens = 0;
        // The receiver is gone only where the task has panicked: its response then ends with the session.
        let _ = task.release.send(());
        self.speaking.insert(task.response, task.work);
        self.speculation_ended(id, SpeculationOutcome::Confirmed, Duration::ZERO);
    }

    pub(super) fn drop_speculative(&mut self, id: &ResponseId, outcome: SpeculationOutcome, wasted: Duration) {
        self.speculative.take_if(|task| task.response == *id);
        self.speculation_ended(id, outcome, wasted);
    }

    fn speculation_ended(&mut self, id: &ResponseId, outcome: SpeculationOutcome, wasted: Duration) {
        self.setup.metrics.speculation(outcome.as_str(), wasted);
        self.timeline.speculation_ended(id, outcome.into(), wasted, self.now());
    }
}
