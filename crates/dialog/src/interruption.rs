//! What becomes of a reply while speech is heard over it: it goes on, it yields, or it waits.
//!
//! Pure. `hold` and `listening` gather the evidence and carry the decision out. The rules are of four kinds: whose voice it
//! is (`speaker`), what the words are (`backchannel`), what a turn model hears in the voice, and how long the reply has
//! been held. The same rules decide whether speech in silence is a turn. Nothing here reads a clock or knows of playback.

use super::backchannel::Words;
use super::speaker::Speaker;

/// From this probability of a turn model on, speech claims the turn before its words are clear.
const CLAIMS_FROM: f32 = 0.8;

/// Up to this one, the reply goes on meanwhile.
const LISTENS_UP_TO: f32 = 0.2;

/// What is known of speech over a reply at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// Whose voice it is; `None`: anyone may speak.
    pub(super) speaker: Option<Speaker>,
    /// The utterance is over.
    pub(super) has_ended: bool,
    /// It may be a backchannel; otherwise its words do not count.
    pub(super) weighs_words: bool,
    /// What its words are so far.
    pub(super) words: Words,
    /// These are all its words.
    pub(super) is_final: bool,
    /// The voice is heard.
    pub(super) is_speaking: bool,
    /// The voice is silent and was heard no longer than a guess may last that lets the reply go on.
    pub(super) is_brief: bool,
    /// The time has passed within which words settle it.
    pub(super) is_due: bool,
    /// P(it claims the turn), by a turn model; `None`: there is none, or it has not answered.
    pub(super) claim: Option<f32>,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The reply goes on. Words that follow may still stop it.
    Continue,
    /// The reply stops, and the speech is a turn.
    Yield,
    /// The reply stays as it is: held, or going on.
    Wait,
}

impl Evidence {
    /// Another's voice decides, then words that are clear, then the model, then the time. A voice that is not known by the
    /// end of the utterance, or of the time, counts as the user's.
    pub(super) fn decide(self) -> Decision {
        match self.speaker {
            Some(Speaker::Other) => Decision::Continue,
            Some(Speaker::Unknown) if !self.has_ended && !self.is_due => Decision::Wait,
            _ if !self.weighs_words => Decision::Yield,
            _ => self.decide_by_words(),
        }
    }

    fn decide_by_words(self) -> Decision {
        match self.words {
            Words::Interruption => Decision::Yield,
            // More may follow a pause that makes them clear.
            Words::Guess | Words::GuessedClaim if !self.has_ended && !self.is_due => Decision::Wait,
            Words::Guess | Words::GuessedClaim if self.is_brief => Decision::Continue,
            Words::Guess | Words::GuessedClaim => Decision::Yield,
            Words::Backchannel if self.is_final || self.is_due => Decision::Continue,
            Words::Backchannel => Decision::Wait,
            Words::None if self.is_final => Decision::Continue,
            Words::None | Words::Open => self.decide_by_voice(),
        }
    }

    fn decide_by_voice(self) -> Decision {
        match self.claim {
            Some(claim) if claim >= CLAIMS_FROM && self.is_speaking => Decision::Yield,
            Some(claim) if claim <= LISTENS_UP_TO => Decision::Continue,
            _ if !self.is_due => Decision::Wait,
            _ if self.is_speaking => Decision::Yield,
            _ => Decision::Continue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN: Evidence = Evidence {
        speaker: None,
        has_ended: false,
        weighs_words: true,
        words: Words::None,
        is_final: false,
        is_speaking: true,
        is_brief: false,
        is_due: false,
        claim: None,
    };

    #[test]
    fn another_voice_never_interrupts_and_an_unknown_one_waits() {
        let stop = Evidence { words: Words::Interruption, is_final: true, claim: Some(1.0), ..BEGUN };
        for weighs_words in [true, false] {
            let of = |speaker| Evidence { speaker: Some(speaker), weighs_words, ..stop };
            check(Decision::Continue, Evidence { has_ended: true, is_due: true, ..of(Speaker::Other) });
            check(Decision::Wait, of(Speaker::Unknown));
            check(Decision::Yield, Evidence { is_due: true, ..of(Speaker::Unknown) });
            check(Decision::Yield, Evidence { has_ended: true, ..of(Speaker::Unknown) });
            check(Decision::Yield, of(Speaker::User));
        }
        let backchannel = Evidence { speaker: Some(Speaker::User), words: Words::Backchannel, is_due: true, ..BEGUN };
        check(Decision::Continue, backchannel);
        check(Decision::Yield, Evidence { weighs_words: false, ..backchannel });
    }

    #[track_caller]
    fn check(expect: Decision, evidence: Evidence) {
        assert_eq!(evidence.decide(), expect, "{evidence:?}");
    }

    #[test]
    fn clear_words_decide_whatever_a_model_hears() {
        for claim in [None, Some(0.0), Some(1.0)] {
            check(Decision::Yield, Evidence { words: Words::Interruption, claim, ..BEGUN });
            let backchannel = Evidence { words: Words::Backchannel, claim, ..BEGUN };
            check(Decision::Wait, backchannel);
            check(Decision::Continue, Evidence { is_due: true, ..backchannel });
            check(Decision::Continue, Evidence { is_final: true, is_speaking: false, ..backchannel });
            check(Decision::Continue, Evidence { is_final: true, is_speaking: false, claim, ..BEGUN });
        }
    }

    #[test]
    fn guesses_interrupt_unless_they_are_brief() {
        let pause = Evidence { words: Words::Guess, is_final: true, is_speaking: false, ..BEGUN };
        check(Decision::Wait, pause);
        check(Decision::Wait, Evidence { is_brief: true, ..pause });
        check(Decision::Continue, Evidence { is_brief: true, is_due: true, ..pause });
        let guess = Evidence { has_ended: true, ..pause };
        check(Decision::Yield, guess);
        check(Decision::Continue, Evidence { is_brief: true, ..guess });
        check(Decision::Yield, Evidence { is_brief: true, words: Words::Interruption, ..guess });
    }

    #[test]
    fn a_model_decides_before_the_words_are_clear() {
        for words in [Words::None, Words::Open] {
            check(Decision::Yield, Evidence { words, claim: Some(0.9), ..BEGUN });
            check(Decision::Continue, Evidence { words, claim: Some(0.1), ..BEGUN });
            check(Decision::Wait, Evidence { words, claim: Some(0.5), ..BEGUN });
            let silent = Evidence { words, is_speaking: false, ..BEGUN };
            check(Decision::Wait, Evidence { claim: Some(0.9), ..silent });
        }
    }

    #[test]
    fn time_decides_where_neither_does() {
        for claim in [None, Some(0.5)] {
            let due = Evidence { is_due: true, claim, ..BEGUN };
            check(Decision::Yield, due);
            check(Decision::Yield, Evidence { words: Words::Open, ..due });
            check(Decision::Continue, Evidence { is_speaking: false, ..due });
        }
        check(Decision::Continue, Evidence { is_due: true, claim: Some(0.1), ..BEGUN });
    }
}
