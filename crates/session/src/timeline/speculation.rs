//! The speculation in one turn: responses that were started in a pause, before the end of the turn was confirmed.
//!
//! The actor reports when an attempt starts, when its response starts, and its outcome. The marks of a confirmed response
//! follow, each with its time, and belong to the turn; a dropped one leaves its span here and nothing else.

use super::super::responding::ResponseMeters;
use super::record::{SpeculationOutcome, SpeculativeRun, TurnStage};
use super::{ItemId, ResponseId, Timeline, Timestamp, TurnId};
use std::time::Duration;

/// Attempts shown in a record; the time of later ones is counted as wasted only.
const MAX_SHOWN: usize = 32;

/// See the module.
#[derive(Default)]
pub(super) struct SpeculationMarks {
    open: Option<Open>,
    past: Vec<Past>,
    wasted: Duration,
}

/// The attempt under way.
struct Open {
    from: Timestamp,
    transcribed: Option<Timestamp>,
    /// The speculative response, and when it was started.
    answer: Option<(ResponseId, Timestamp)>,
    meters: ResponseMeters,
}

/// An attempt whose response was started.
struct Past {
    from: Timestamp,
    transcribed: Option<Timestamp>,
    answered: Timestamp,
    to: Timestamp,
    outcome: SpeculationOutcome,
}

impl SpeculationMarks {
    /// Whether the attempt under way has started this response.
    fn makes(&self, response: &ResponseId) -> bool {
        self.open.as_ref().and_then(|open| open.answer.as_ref()).is_some_and(|(answer, _)| answer == response)
    }

    pub(super) fn wasted(&self) -> Duration {
        self.wasted
    }

    /// The attempts whose response was started, the open one last; `ms` converts a moment to the turn's time.
    pub(super) fn shown(&self, ms: impl Fn(Timestamp) -> f64) -> Vec<SpeculativeRun> {
        let past = self.past.iter().map(|past| SpeculativeRun {
            from_ms: ms(past.from),
            to_ms: Some(ms(past.to)),
            outcome: Some(past.outcome),
        });
        let open = self.open.iter().filter(|open| open.answer.is_some());
        past.chain(open.map(|open| SpeculativeRun { from_ms: ms(open.from), to_ms: None, outcome: None })).collect()
    }

    /// The stage runs of dropped responses: those of a confirmed one belong to the turn.
    pub(super) fn runs(&self) -> Vec<(usize, TurnStage, Timestamp, Timestamp)> {
        let dropped = self.past.iter().enumerate().filter(|(_, past)| past.outcome != SpeculationOutcome::Confirmed);
        dropped
            .flat_map(|(n, past)| {
                let transcribed = past.transcribed.unwrap_or(past.answered);
                [(n, TurnStage::Stt, past.from, transcribed), (n, TurnStage::Llm, past.answered, past.to)]
            })
            .collect()
    }
}

impl Timeline {
    /// The speaker of this utterance pauses: a provisional transcript was requested.
    pub(crate) fn speculation_started(&mut self, item: &ItemId, at: Timestamp) {
        if let Some(turn) = self.of_item(item) {
            let meters = ResponseMeters::default();
            turn.speculation.open = Some(Open { from: at, transcribed: None, answer: None, meters });
        }
    }

    /// The provisional transcript has arrived.
    pub(crate) fn provisional_transcribed(&mut self, item: &ItemId, at: Timestamp) {
        if let Some(open) = self.of_item(item).and_then(|turn| turn.speculation.open.as_mut()) {
            open.transcribed.get_or_insert(at);
        }
    }

    /// The speculative response was started.
    pub(crate) fn speculation_responding(
        &mut self,
        turn: TurnId,
        response: &ResponseId,
        meters: ResponseMeters,
        at: Timestamp,
    ) {
        let Some(turn) = self.speech(turn) else { return };
        if let Some(open) = &mut turn.speculation.open {
            open.answer = Some((response.clone(), at));
            open.meters = meters;
            turn.dirty = true;
        }
    }

    /// The speculative response was released, or was dropped and `wasted`. The marks of a released one become the
    /// turn's.
    pub(crate) fn speculation_ended(
        &mut self,
        response: &ResponseId,
        outcome: SpeculationOutcome,
        wasted: Duration,
        at: Timestamp,
    ) {
        let Some(turn) = self.open.iter_mut().rev().find(|turn| turn.speculation.makes(response)) else { return };
        let speculation = &mut turn.speculation;
        let Some(Open { from, transcribed, answer: Some((_, answered)), meters }) = speculation.open.take() else {
            return;
        };
        speculation.wasted += wasted;
        if speculation.past.len() < MAX_SHOWN {
            speculation.past.push(Past { from, transcribed, answered, to: at, outcome });
        }
        turn.dirty = true;
        if outcome != SpeculationOutcome::Confirmed {
            turn.meters.dropped.push(meters);
        } else {
            turn.meters.response = meters;
            turn.marks.speculation_started = Some(from);
            turn.marks.stt_final = transcribed.or(turn.marks.stt_final);
            turn.marks.response_started = Some(answered);
        }
    }
}
