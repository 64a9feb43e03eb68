//! The speculation in one turn: responses that were started in a pause, before the end of the turn was confirmed.
//!
//! The timeline reports when an attempt starts, when its response starts, and its outcome. The marks of a confirmed response
//! follow, each with its time, and belong to the turn; a dropped one leaves its span here and nothing else.

use super::record::{SpeculationOutcome, SpeculativeRun, TurnStage};
use crate::product::ResponseMeters;
use antiphon_types::{ResponseId, Timestamp};
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

/// What an attempt leaves whose response was started.
pub(super) struct EndedAttempt {
    pub(super) from: Timestamp,
    pub(super) transcribed: Option<Timestamp>,
    pub(super) answered: Timestamp,
    pub(super) meters: ResponseMeters,
}

impl SpeculationMarks {
    /// A provisional transcript was requested.
    pub(super) fn begin(&mut self, at: Timestamp) {
        let meters = ResponseMeters::default();
        self.open = Some(Open { from: at, transcribed: None, answer: None, meters });
    }

    /// The provisional transcript has arrived.
    pub(super) fn transcribed(&mut self, at: Timestamp) {
        if let Some(open) = &mut self.open {
            open.transcribed.get_or_insert(at);
        }
    }

    /// The response of the attempt was started; says whether there is an attempt.
    pub(super) fn responding(&mut self, response: &ResponseId, meters: ResponseMeters, at: Timestamp) -> bool {
        let Some(open) = &mut self.open else { return false };
        open.answer = Some((response.clone(), at));
        open.meters = meters;
        true
    }

    /// The attempt's response was released or dropped. `None`: none was started.
    pub(super) fn end(&mut self, outcome: SpeculationOutcome, wasted: Duration, at: Timestamp) -> Option<EndedAttempt> {
        let Open { from, transcribed, answer, meters } = self.open.take()?;
        let (_, answered) = answer?;
        self.wasted += wasted;
        if self.past.len() < MAX_SHOWN {
            self.past.push(Past { from, transcribed, answered, to: at, outcome });
        }
        Some(EndedAttempt { from, transcribed, answered, meters })
    }

    /// Whether the attempt under way has started this response.
    pub(super) fn makes(&self, response: &ResponseId) -> bool {
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
