//! The guesses of one turn: answers that were begun in a pause, before it was sure that the turn was over.
//!
//! The actor says when one begins, what it does, and what became of it. A guess that is not confirmed leaves its span
//! here and nothing else in the turn.

use super::record::{Guess, GuessOutcome, TurnStage};
use super::turn::Marks;
use super::{Milestone, ResponseId, Timeline, Timestamp, TurnId};
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
    response: Option<ResponseId>,
    marks: Marks,
    from: Timestamp,
    llm_end: Option<Timestamp>,
}

struct Past {
    from: Timestamp,
    to: Timestamp,
    outcome: GuessOutcome,
    marks: Marks,
    llm_end: Option<Timestamp>,
}

/// What a confirmed guess gives to its turn.
pub(super) struct Confirmed {
    pub(super) marks: Marks,
    pub(super) llm_end: Option<Timestamp>,
}

impl Guessing {
    pub(super) fn started(&mut self, at: Timestamp) {
        let marks = Marks { guess_started: Some(at), ..Marks::default() };
        self.open = Some(Open { response: None, marks, from: at, llm_end: None });
    }

    pub(super) fn transcribed(&mut self, at: Timestamp) {
        if let Some(open) = &mut self.open {
            open.marks.stt_final.get_or_insert(at);
        }
    }

    pub(super) fn responding(&mut self, response: ResponseId, at: Timestamp) {
        if let Some(open) = &mut self.open {
            open.response = Some(response);
            open.marks.response_started.get_or_insert(at);
        }
    }

    /// Whether the guess under way makes this response.
    pub(super) fn makes(&self, response: &ResponseId) -> bool {
        self.open.as_ref().is_some_and(|open| open.response.as_ref() == Some(response))
    }

    pub(super) fn mark(&mut self, milestone: Milestone, at: Timestamp) {
        let Some(open) = &mut self.open else { return };
        match milestone {
            Milestone::FirstToken => open.marks.llm_first_token.get_or_insert(at),
            Milestone::FirstChunk => open.marks.first_chunk.get_or_insert(at),
            Milestone::LastToken => open.llm_end.get_or_insert(at),
        };
    }

    pub(super) fn first_audio(&mut self, at: Timestamp) {
        if let Some(open) = &mut self.open {
            open.marks.tts_first_audio.get_or_insert(at);
        }
    }

    /// Ends the guess under way; gives what it has reached when it was confirmed, and how long it ran.
    pub(super) fn ended(&mut self, outcome: GuessOutcome, at: Timestamp) -> Option<(Option<Confirmed>, Duration)> {
        let Open { marks, from, llm_end, .. } = self.open.take()?;
        let took = at.since(from);
        let confirmed = outcome == GuessOutcome::Confirmed;
        if !confirmed {
            self.wasted += took;
        }
        if self.past.len() < MAX_SHOWN {
            self.past.push(Past { from, to: at, outcome, marks, llm_end });
        }
        Some((confirmed.then_some(Confirmed { marks, llm_end }), took))
    }

    pub(super) fn wasted(&self) -> Duration {
        self.wasted
    }

    /// All of them, the open one last; `ms` tells a moment in the turn's time.
    pub(super) fn shown(&self, ms: impl Fn(Timestamp) -> f64) -> Vec<Guess> {
        let past = self.past.iter().map(|past| Guess {
            from_ms: ms(past.from),
            to_ms: Some(ms(past.to)),
            outcome: Some(past.outcome),
        });
        let open = self.open.iter().map(|open| Guess { from_ms: ms(open.from), to_ms: None, outcome: None });
        past.chain(open).collect()
    }

    /// What the guesses that were not confirmed did: the work of a confirmed one is the turn's own.
    pub(super) fn runs(&self) -> Vec<(usize, TurnStage, Option<Timestamp>, Option<Timestamp>)> {
        let dropped = self.past.iter().enumerate().filter(|(_, past)| past.outcome != GuessOutcome::Confirmed);
        dropped
            .flat_map(|(n, past)| {
                let marks = &past.marks;
                let until = |end: Option<Timestamp>| Some(end.unwrap_or(past.to).min(past.to));
                [
                    (n, TurnStage::Stt, Some(past.from), until(marks.stt_final)),
                    (n, TurnStage::Llm, marks.response_started, until(past.llm_end)),
                    (n, TurnStage::Tts, marks.first_chunk, until(None)),
                ]
            })
            .collect()
    }
}

impl Timeline {
    /// A guess is begun in a pause of the turn `turn`: the recognizer is asked for its words so far.
    pub(in crate::session) fn guess_started(&mut self, turn: TurnId, at: Timestamp) {
        if let Some(turn) = self.speech(turn) {
            turn.guessing.started(at);
            turn.dirty = true;
        }
    }

    /// The words of the guess under way are there.
    pub(in crate::session) fn guess_transcribed(&mut self, turn: TurnId, at: Timestamp) {
        if let Some(turn) = self.speech(turn) {
            turn.guessing.transcribed(at);
        }
    }

    /// The model is asked, held back, for the response that will have this name.
    pub(in crate::session) fn guess_responding(&mut self, turn: TurnId, response: ResponseId, at: Timestamp) {
        if let Some(turn) = self.speech(turn) {
            turn.guessing.responding(response, at);
        }
    }

    /// The guess under way ended so. What a confirmed one has reached is the turn's own from now on; call it before the
    /// response is announced.
    pub(in crate::session) fn guess_ended(&mut self, turn: TurnId, outcome: GuessOutcome, at: Timestamp) {
        let metrics = self.metrics.clone();
        let Some(turn) = self.speech(turn) else { return };
        let Some((confirmed, took)) = turn.guessing.ended(outcome, at) else { return };
        metrics.guess(confirmed.is_some(), took);
        turn.dirty = true;
        let Some(Confirmed { marks, llm_end }) = confirmed else { return };
        let own = turn.marks;
        turn.marks = Marks {
            spoken: own.spoken,
            speech_end: own.speech_end,
            end_confirmed: own.end_confirmed,
            stt_final: marks.stt_final.or(own.stt_final),
            ..marks
        };
        turn.ends.llm = llm_end;
    }

    /// The voice has made the first audio of a guess, which waits.
    pub(in crate::session) fn guess_audio(&mut self, id: &ResponseId, at: Timestamp) {
        if let Some(turn) = self.guess_of(id) {
            turn.guessing.first_audio(at);
        }
    }
}
