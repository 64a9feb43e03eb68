//! Speculative responses: their work runs before the turn's end is confirmed, and its output is withheld until the reducer
//! releases it.
//!
//! The actor keeps one at most. Sending its one-shot releases the output; dropping the sender discards it.

use super::actor::Actor;
use super::responding::ResponseMeters;
use super::voice::Voice;
use antiphon_dialog::{ResponseWork, SpeculationOutcome};
use antiphon_telemetry::span;
use antiphon_types::ResponseId;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::DropGuard;
use tracing::Instrument;

/// A speculative response.
pub(super) struct SpeculativeTask {
    response: ResponseId,
    release: oneshot::Sender<()>,
    work: (DropGuard, Voice),
}

impl Actor {
    pub(super) fn start_speculative(&mut self, work: ResponseWork) {
        let (response, span) = (work.response.clone(), span::response(&work.response));
        let meters = ResponseMeters::requested_by(self.requester);
        self.timeline.speculation_responding(work.turn, &response, meters.clone(), self.now());
        let (voice, responding) = self.prepare(work, meters);
        let (release, released) = oneshot::channel();
        let guard = match self.limits.may_respond() {
            Ok(()) => self.spawn(responding.run_speculatively(released).instrument(span)),
            Err(limit) => self.spawn(self.refuse_response(response.clone(), limit, Some(released))),
        };
        self.speculative = Some(SpeculativeTask { response, release, work: (guard, voice) });
    }

    pub(super) fn release_speculative(&mut self, id: &ResponseId) {
        let Some(task) = self.speculative.take_if(|task| task.response == *id) else {
            return tracing::error!(response = %id, "a speculative response that was never started was released");
        };
        self.kind_is_fixed = true;
        // It was allowed when it started.
        self.limits.response_begun();
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
