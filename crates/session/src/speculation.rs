//! Responses begun on a guess: their work runs, and nothing of it comes out until the reducer says so.
//!
//! The actor keeps one at most. What its work makes waits in a channel of its own, behind a gate; confirming opens the
//! gate, dropping drops the work with all it has made.

use super::actor::Actor;
use super::responding::Release;
use super::voice::Voice;
use antiphon_dialog::{ResponseWork, SpeculationOutcome};
use antiphon_telemetry::span;
use antiphon_types::ResponseId;
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument;

/// A response begun.
pub(super) struct SpeculativeTask {
    response: ResponseId,
    gate: Release,
    work: (DropGuard, Voice),
}

impl Actor {
    pub(super) fn start_speculative(&mut self, work: ResponseWork) {
        let (response, span) = (work.response.clone(), span::response(&work.response));
        self.timeline.speculation_responding(work.turn, &response, self.now());
        let (voice, mut responding) = self.prepare(work);
        let gate = CancellationToken::new();
        responding.release = Some(gate.clone());
        let guard = self.spawn(responding.run().instrument(span));
        self.guess = Some(SpeculativeTask { response, gate, work: (guard, voice) });
    }

    pub(super) fn release_speculative(&mut self, id: &ResponseId) {
        let Some(begun) = self.guess.take_if(|begun| begun.response == *id) else {
            return tracing::error!(response = %id, "a guess was confirmed that was never begun");
        };
        self.kind_is_fixed = true;
        begun.gate.cancel();
        self.speaking.insert(begun.response, begun.work);
        self.speculation_ended(id, SpeculationOutcome::Confirmed, Duration::ZERO);
    }

    pub(super) fn drop_speculative(&mut self, id: &ResponseId, outcome: SpeculationOutcome, wasted: Duration) {
        self.guess.take_if(|begun| begun.response == *id);
        self.speculation_ended(id, outcome, wasted);
    }

    fn speculation_ended(&mut self, id: &ResponseId, outcome: SpeculationOutcome, wasted: Duration) {
        self.setup.metrics.speculation(outcome.as_str(), wasted);
        self.timeline.speculation_ended(id, outcome.into(), wasted, self.now());
    }
}
