//! The guesses of one turn: answers that were begun in a pause, before it was sure that the turn was over.
//!
//! The actor says when one begins, when its answer does, and what became of it. The marks of an answer that was confirmed
//! come afterwards, each with its time, and are the turn's own; one that was not leaves its span here and nothing else.

use super::record::{Guess, SpeculationOutcome, TurnStage};
use super::{ItemId, ResponseId, Timeline, Timestamp, TurnId};
use std::time::Duration;

/// Guesses a record shows; what is beyond is counted as wasted, and not shown.
const MAX_SHOWN: usize = 32;

/// See the module.
#[derive(Default)]
pub(super) struct Guessing {
    open: Option<Open>,
    past: Vec<Past>,
    wasted: Duration,
}

/// The guess under way.
struct Open {
    from: Timestamp,
    transcribed: Option<Timestamp>,
    /// The answer begun, and when.
    answer: Option<(ResponseId, Timestamp)>,
}

/// One whose answer was begun.
struct Past {
    from: Timestamp,
    transcribed: Option<Timestamp>,
    answered: Timestamp,
    to: Timestamp,
    outcome: SpeculationOutcome,
}

impl Guessing {
    /// Whether the guess under way makes this response.
    fn makes(&self, response: &ResponseId) -> bool {
        self.open.as_ref().and_then(|open| open.answer.as_ref()).is_some_and(|(answer, _)| answer == response)
    }

    pub(super) fn wasted(&self) -> Duration {
        self.wasted
    }

    /// Those whose answer was begun, the open one last; `ms` tells a moment in the turn's time.
    pub(super) fn shown(&self, ms: impl Fn(Timestamp) -> f64) -> Vec<Guess> {
        let past = self.past.iter().map(|past| Guess {
            from_ms: ms(past.from),
            to_ms: Some(ms(past.to)),
            outcome: Some(past.outcome),
        });
        let open = self.open.iter().filter(|open| open.answer.is_some());
        past.chain(open.map(|open| Guess { from_ms: ms(open.from), to_ms: None, outcome: None })).collect()
    }

    /// What the guesses that were not confirmed did: the work of a confirmed one is the turn's own.
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
    /// The speaker of this utterance pauses: the recognizer is asked for the words so far.
    pub(crate) fn speculation_started(&mut self, item: &ItemId, at: Timestamp) {
        if let Some(turn) = self.of_item(item) {
            turn.guessing.open = Some(Open { from: at, transcribed: None, answer: None });
        }
    }

    /// They are there.
    pub(crate) fn provisional_transcribed(&mut self, item: &ItemId, at: Timestamp) {
        if let Some(open) = self.of_item(item).and_then(|turn| turn.guessing.open.as_mut()) {
            open.transcribed.get_or_insert(at);
        }
    }

    /// The model is asked, held back, for the response that will have this name.
    pub(crate) fn speculation_responding(&mut self, turn: TurnId, response: &ResponseId, at: Timestamp) {
        let Some(turn) = self.speech(turn) else { return };
        if let Some(open) = &mut turn.guessing.open {
            open.answer = Some((response.clone(), at));
            turn.dirty = true;
        }
    }

    /// The answer begun on a guess goes out, or was dropped and `wasted`. What a confirmed one has reached is the turn's
    /// own from now on.
    pub(crate) fn speculation_ended(
        &mut self,
        response: &ResponseId,
        outcome: SpeculationOutcome,
        wasted: Duration,
        at: Timestamp,
    ) {
        let Some(turn) = self.open.iter_mut().rev().find(|turn| turn.guessing.makes(response)) else { return };
        let guessing = &mut turn.guessing;
        let Some(Open { from, transcribed, answer: Some((_, answered)) }) = guessing.open.take() else { return };
        guessing.wasted += wasted;
        if guessing.past.len() < MAX_SHOWN {
            guessing.past.push(Past { from, transcribed, answered, to: at, outcome });
        }
        turn.dirty = true;
        if outcome == SpeculationOutcome::Confirmed {
            turn.marks.speculation_started = Some(from);
            turn.marks.stt_final = transcribed.or(turn.marks.stt_final);
            turn.marks.response_started = Some(answered);
        }
    }
}
