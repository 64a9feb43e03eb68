//! Scenarios as data: what is said on the user's track, when, by whom, and what a good listener does.
//!
//! A conversation is a list of turns of one speaker under one condition. The agent's track does not exist before the
//! run, so a turn begins at a time of the agent's: after its reply, or over it. Times within a turn count from its
//! first sample.

use std::fmt;

/// A pause shorter than this is not labelled: eot-bench's VAD baseline ignores it, too.
pub(super) const MIN_PAUSE_MS: u32 = 200;

/// A stretch of time, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from_ms: u32,
    pub(super) to_ms: u32,
}

/// Who makes a sound on the user's track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The user, to the agent.
    User,
    /// The user, to another person.
    Aside,
    /// Another person: television.
    Other,
    /// The user, without words: a cough, laughter.
    Vocal,
}

/// A labelled sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Labelled {
    pub(super) span: Span,
    pub(super) source: Source,
    /// Its words; empty where they are unknown or there are none.
    pub(super) text: String,
}

/// What a good listener does. In pauses of the user it waits, whatever is expected then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Answers when the user has ended.
    Answer,
    /// Stops its reply, and answers when the user has ended.
    Yield,
    /// Goes on with its reply.
    GoOn,
    /// Says nothing: nobody spoke to it.
    Wait,
}

/// When a turn begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begins {
    /// This many ms after the agent's reply has ended.
    AfterReply(u32),
    /// This many ms after the first sound of the agent's reply.
    OverReply(u32),
    /// Where the turn before it ends, whatever the agent does.
    AtOnce,
}

/// What a turn is about. The names are those of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum Category {
    /// A question, or one sentence
    Question,
    /// A recording with its speaker's own pauses
    NaturalPause,
    /// A filler and pauses within a sentence
    Hesitation,
    /// A pause within a sentence
    CutSentence,
    /// A second sentence that corrects the first one
    Correction,
    /// A sentence that breaks off, and another one
    SelfInterruption,
    /// A number, group by group
    SlowNumber,
    /// Words over a reply that claim the turn
    Interruption,
    /// Words over a reply that claim the turn, as the reply begins
    OverlappingStart,
    /// Words over a reply that claim nothing
    Backchannel,
    /// A cough or laughter over a reply
    VocalTic,
    /// Words over a reply that are for others
    #[value(name = "speech-to-others")]
    Aside,
    /// Another voice over a reply, far away
    Television,
    /// Another voice, far away, while the user is silent
    #[value(name = "television-in-silence")]
    TelevisionAlone,
    /// A cough while the user is silent
    #[value(name = "cough-in-silence")]
    CoughAlone,
}

impl Category {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Question => "question",
            Self::NaturalPause => "natural pause",
            Self::Hesitation => "hesitation",
            Self::CutSentence => "cut sentence",
            Self::Correction => "correction",
            Self::SelfInterruption => "self-interruption",
            Self::SlowNumber => "slow number",
            Self::Interruption => "interruption",
            Self::OverlappingStart => "overlapping start",
            Self::Backchannel => "backchannel",
            Self::VocalTic => "vocal tic",
            Self::Aside => "speech to others",
            Self::Television => "television",
            Self::TelevisionAlone => "television in silence",
            Self::CoughAlone => "cough in silence",
        }
    }
}

/// A kind of noise of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoiseKind {
    Pink,
    Brown,
    Babble,
}

/// How the user is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Clean,
    /// Noise this many dB below the speech.
    Noisy {
        kind: NoiseKind,
        snr_db: u32,
    },
    Telephone,
    FarField,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => f.write_str("clean"),
            Self::Noisy { snr_db, .. } => write!(f, "noisy {snr_db} dB"),
            Self::Telephone => f.write_str("telephone"),
            Self::FarField => f.write_str("far field"),
        }
    }
}

/// The half to which a speaker and a seed belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Split {
    /// For improving what is measured
    Dev,
    /// For the report
    Held,
}

/// One turn of the user.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) category: Category,
    pub(super) expected: Expected,
    pub(super) begins: Begins,
    /// The user's track, mono at [`antiphon_client::RATE`].
    pub(super) samples: Vec<i16>,
    /// What sounds in it, in order of time.
    pub(super) labels: Vec<Labelled>,
    /// Where enough was said to decide that the user wants the turn; the end of the turn where nothing decides.
    pub(super) decided_ms: u32,
}

/// A conversation of one speaker.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conversation {
    pub(super) split: Split,
    pub(super) speaker: String,
    pub(super) condition: Condition,
    pub(super) turns: Vec<Turn>,
    /// Noise of the microphone, which is repeated for the whole conversation.
    pub(super) bed: Vec<i16>,
}

/// Why a turn's labels cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LabelError {
    #[error("it has no label")]
    None,
    #[error("a label ends at {to_ms} ms, before it begins at {from_ms} ms")]
    Reversed { from_ms: u32, to_ms: u32 },
    #[error("a label ends at {to_ms} ms, but the sound ends at {end_ms} ms")]
    BeyondSound { to_ms: u32, end_ms: u32 },
    #[error("two labels of the user overlap at {at_ms} ms")]
    Overlap { at_ms: u32 },
    #[error("the user is to be answered, but says nothing")]
    NothingToAnswer,
}

impl Turn {
    /// The user's own words, to the agent.
    fn spoken(&self) -> impl Iterator<Item = Span> {
        self.labels.iter().filter(|label| label.source == Source::User).map(|label| label.span)
    }

    /// Where the first sound begins.
    pub(super) fn onset_ms(&self) -> u32 {
        self.labels.iter().map(|label| label.span.from_ms).min().unwrap_or(0)
    }

    /// Where the last sound ends.
    pub(super) fn end_ms(&self) -> u32 {
        self.labels.iter().map(|label| label.span.to_ms).max().unwrap_or(0)
    }

    /// The user's pauses: silence of at least [`MIN_PAUSE_MS`] between two labels.
    pub(super) fn pauses(&self) -> Vec<Span> {
        let spoken: Vec<Span> = self.spoken().collect();
        let between = |pair: &[Span]| Span { from_ms: pair[0].to_ms, to_ms: pair[1].from_ms };
        let is_pause = |span: &Span| span.to_ms >= span.from_ms + MIN_PAUSE_MS;
        spoken.windows(2).map(between).filter(is_pause).collect()
    }

    /// The user's speech without its pauses.
    pub(super) fn speech(&self) -> Vec<Span> {
        let mut speech: Vec<Span> = Vec::new();
        for span in self.spoken() {
            match speech.last_mut() {
                Some(last) if span.from_ms < last.to_ms + MIN_PAUSE_MS => last.to_ms = last.to_ms.max(span.to_ms),
                _ => speech.push(span),
            }
        }
        speech
    }

    /// Checks the labels against each other and against the sound.
    ///
    /// # Errors
    /// The first contradiction.
    pub(super) fn check(&self) -> Result<(), LabelError> {
        let end_ms = super::acoustics::ms_of(self.samples.len());
        if self.labels.is_empty() {
            return Err(LabelError::None);
        }
        for Labelled { span, .. } in &self.labels {
            if span.to_ms <= span.from_ms {
                return Err(LabelError::Reversed { from_ms: span.from_ms, to_ms: span.to_ms });
            }
            if span.to_ms > end_ms {
                return Err(LabelError::BeyondSound { to_ms: span.to_ms, end_ms });
            }
        }
        let spoken: Vec<Span> = self.spoken().collect();
        if let Some(pair) = spoken.windows(2).find(|pair| pair[1].from_ms < pair[0].to_ms) {
            return Err(LabelError::Overlap { at_ms: pair[1].from_ms });
        }
        if spoken.is_empty() && matches!(self.expected, Expected::Answer | Expected::Yield) {
            return Err(LabelError::NothingToAnswer);
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::acoustics::samples_of;
    use super::*;

    /// A turn of silence with these labels of the user, and 200 ms behind them.
    pub(in super::super) fn turn(expected: Expected, spans: &[(u32, u32)]) -> Turn {
        let label = |(from_ms, to_ms): &(u32, u32)| Labelled {
            span: Span { from_ms: *from_ms, to_ms: *to_ms },
            source: Source::User,
            text: String::new(),
        };
        let end = spans.iter().map(|(_, to)| *to).max().unwrap_or(0);
        Turn {
            category: Category::Question,
            expected,
            begins: Begins::AfterReply(300),
            samples: vec![0; samples_of(end + 200)],
            labels: spans.iter().map(label).collect(),
            decided_ms: end,
        }
    }

    #[test]
    fn pauses_are_the_silence_between_words_from_200_ms_on() {
        let turn = turn(Expected::Answer, &[(100, 500), (650, 900), (1_100, 1_500)]);
        assert_eq!(turn.pauses(), [Span { from_ms: 900, to_ms: 1_100 }]);
        assert_eq!(turn.speech(), [Span { from_ms: 100, to_ms: 900 }, Span { from_ms: 1_100, to_ms: 1_500 }]);
        assert_eq!((turn.onset_ms(), turn.end_ms()), (100, 1_500));
        assert_eq!(turn.check(), Ok(()));
    }

    #[test]
    fn labels_that_contradict_each_other_or_the_sound_are_named() {
        let wrong = |spans: &[(u32, u32)]| turn(Expected::Answer, spans).check().expect_err("a contradiction");
        assert_eq!(wrong(&[]), LabelError::None);
        assert_eq!(wrong(&[(300, 300)]), LabelError::Reversed { from_ms: 300, to_ms: 300 });
        assert_eq!(wrong(&[(0, 400), (350, 900)]), LabelError::Overlap { at_ms: 350 });
        let mut short = turn(Expected::Answer, &[(0, 400)]);
        short.samples.truncate(samples_of(390));
        assert_eq!(short.check(), Err(LabelError::BeyondSound { to_ms: 400, end_ms: 390 }));
        let mut cough = turn(Expected::Yield, &[(0, 400)]);
        cough.labels[0].source = Source::Vocal;
        assert_eq!(cough.check(), Err(LabelError::NothingToAnswer));
        assert_eq!(Turn { expected: Expected::GoOn, ..cough }.check(), Ok(()));
    }
}
