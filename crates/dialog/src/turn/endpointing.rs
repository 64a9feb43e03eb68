//! How long to wait before a pause is taken for the end of the turn.
//!
//! Pure: [`Hints`] in, a [`Decision`] out, both kept as the record of the turn. Each hint moves the odds that the
//! speaker has finished, and so does silence: the longer it lasts, the fewer pauses last that long. The wait is the
//! silence that makes the odds large enough, between the shortest and the longest that the eagerness allows. `antiphon
//! replay --sweep` says what it is worth.
//! `taker` asks at every window of a pause, since hints arrive while it lasts.

use crate::turn::prosody::Prosody;
use crate::turn::wording::Wording;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How soon the turn is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Eagerness {
    /// Lets the speaker take their time: 0.33 to 8 s.
    Low,
    /// 0.17 to 4 s.
    #[default]
    Medium,
    /// As soon as possible: 0.1 to 2 s.
    High,
}

impl Eagerness {
    /// The longest wait; the protocol's (`semantic_vad`: low 8 s, medium and auto 4 s, high 2 s).
    pub fn longest(self) -> Duration {
        match self {
            Self::Low => Duration::from_secs(8),
            Self::Medium => Duration::from_secs(4),
            Self::High => Duration::from_secs(2),
        }
    }

    /// The shortest wait, however sure the end is.
    fn shortest(self) -> Duration {
        (self.longest() / SPAN).max(LAST_WORD)
    }
}

/// The longest wait over the shortest.
const SPAN: u32 = 24;
/// The recognizer takes that long to be sure of its last word.
const LAST_WORD: Duration = Duration::from_millis(100);

/// All that is known when a wait is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hints {
    /// The silence so far.
    pub pause: Duration,
    /// Voiced time of the utterance.
    pub spoken: Duration,
    /// How the transcript of all that was said ends.
    pub wording: Wording,
    /// The log-odds that its words are a whole turn; `None`: there are none, or they are not English.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completeness: Option<f32>,
    /// How the voice moved before the pause.
    pub prosody: Prosody,
    /// How many pauses inside turns this speaker was heard to make.
    pub n_pauses: u32,
    /// The length to expect of this speaker's pauses.
    pub typical_pause: Duration,
    /// How much more patience than usual they call for, about 1.
    pub patience: f64,
    /// A turn model's probability that the turn is over, where there is one.
    pub model: Option<f32>,
}

/// A wait, and why.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// From what.
    pub hints: Hints,
    /// The probability that the turn is over, 0 to 1.
    pub probability: f64,
    /// The silence after which it is taken to be over.
    pub wait: Duration,
}

/// What a turn model's answer counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelWeight {
    /// Of its log-odds.
    pub slope: f64,
    /// The most that it may move the odds, in log-odds.
    pub most: f64,
}

impl Decision {
    /// Weighs the hints, and waits until the silence has said the rest.
    pub fn new(hints: Hints, eagerness: Eagerness) -> Self {
        Self::weighed(hints, eagerness, MODEL)
    }

    /// The same with another weight of the turn model, for a sweep over a corpus.
    pub(super) fn weighed(hints: Hints, eagerness: Eagerness, weight: ModelWeight) -> Self {
        let said_by_model = hints.model.map_or(0.0, |probability| model(probability, weight));
        let odds = words(&hints) + voice(&hints.prosody) + said_by_model;
        let probability = 1.0 / (1.0 + (-odds).exp());
        // Silence t is 1 + (t / median)^SHAPE times as likely at an end as in a pause: the wait is the t that makes the
        // odds ENOUGH.
        let missing = (ENOUGH / odds.exp() - 1.0).max(0.0);
        let pace = eagerness.longest().as_secs_f64() / Eagerness::Medium.longest().as_secs_f64();
        let wait = MEDIAN_PAUSE.mul_f64(pace * hints.patience * missing.powf(1.0 / SHAPE));
        let wait = wait.clamp(eagerness.shortest(), eagerness.longest());
        Self { hints, probability, wait }
    }

    /// The same with a longer or shorter wait, for a sweep over a corpus.
    pub(super) fn scaled(self, by: f64) -> Self {
        Self { wait: self.wait.mul_f64(by), ..self }
    }

    /// Whether the turn is over.
    pub fn is_over(&self) -> bool {
        self.hints.pause >= self.wait
    }
}

/// Pauses inside a turn are log-logistic here, which is log-normal but for its tail and has a closed form: half of them
/// are longer than this, and the shape is that of a spread of 0.6 (of the logarithm). Their mean is then about 0.55 s,
/// within the spread of the literature (0.4 to 0.7 s: Heldner and Edlund, 2010); [`Hints::patience`] stretches it to a speaker's own.
const MEDIAN_PAUSE: Duration = Duration::from_millis(450);
const SHAPE: f64 = 3.0;

/// Odds of an end that are enough: with no hint at all they are reached after 1 s at medium eagerness.
const ENOUGH: f64 = 12.0;

/// What the completeness of the words counts, and what is added to it: people hesitate less with an agent than in the
/// lines, in which two turns of three have a pause, and least where they ask or command. With the texts of
/// `completeness/heard.tsv`, pauses of 0.25 to 2 s (log-normal, median 0.65 s) and words known after 0.35 s, 20 % of the
/// pauses are cut at a mean wait of 640 ms, by the rules alone 52 % at 490; slopes of 0.6 to 1 differ by chance.
const COMPLETENESS: f64 = 0.8;
const ANY: f64 = 0.7;
const QUESTION: f64 = 1.7;
const COMMAND: f64 = 1.2;

/// Log-odds of the words. A whole answer is not made to wait, and a number knows its digits; all else is said by
/// completeness, and by rules where the words are not English.
fn words(hints: &Hints) -> f64 {
    match (hints.wording, hints.completeness) {
        (Wording::Unknown, _) => 0.0,
        (Wording::Answer | Wording::Digits, _) | (_, None) => kind(hints) + said(hints),
        (Wording::Question, Some(log_odds)) => COMPLETENESS * f64::from(log_odds) + QUESTION,
        (Wording::Command, Some(log_odds)) => COMPLETENESS * f64::from(log_odds) + COMMAND,
        (_, Some(log_odds)) => COMPLETENESS * f64::from(log_odds) + ANY,
    }
}

/// Log-odds of the wording, from a search over the half of the corpus that is for tuning. It has few answers and brief
/// replies, which people do make: of these two no more was taken than half of what the search would have had. A dictated
/// number is waited for 1.25 s after 2 s of speech, longer than people pause between its groups.
fn kind(hints: &Hints) -> f64 {
    match hints.wording {
        Wording::LeadIn => -3.5,
        Wording::Open => -0.8,
        Wording::Digits => -1.5,
        Wording::Unfinished => -1.0,
        Wording::Unknown | Wording::Plain => 0.0,
        Wording::Brief => -0.5,
        Wording::Command => 1.6,
        Wording::Sentence => 1.0,
        Wording::Question => 2.4,
        // It is not made to wait at all.
        Wording::Answer => 2.5,
    }
}

/// Voiced time at which an end and a pause are as likely, and log-odds of e times as much: a turn has to be said before it
/// is over. The search would have had a slope of 3, since its turns are a few seconds long.
const SAID: Duration = Duration::from_millis(1_400);
const SLOPE: f64 = 2.5;
/// Beyond these, length says no more.
const SAID_BOUNDS: (f64, f64) = (-2.5, 1.0);

/// Log-odds of how much was said. A short reply is short, and for words that are not known it cannot be judged whether
/// they are one.
fn said(hints: &Hints) -> f64 {
    match hints.wording {
        Wording::Unknown | Wording::Answer | Wording::Brief => 0.0,
        _ => {
            let times = hints.spoken.as_secs_f64().max(0.01) / SAID.as_secs_f64();
            (SLOPE * times.ln()).clamp(SAID_BOUNDS.0, SAID_BOUNDS.1)
        }
    }
}

/// The most that the voice counts. On 44 ends and 20 inner pauses of one reader the falls hardly differ (medians 1.6 and
/// 2.1 semitones, 0.5 and 2.2 dB): a hint that may tip the scales between words, and no more.
const VOICE: f64 = 0.3;

/// Log-odds of the voice: a fall speaks for an end, a voice that stays up against it.
fn voice(prosody: &Prosody) -> f64 {
    let pitch = prosody.pitch_fall_semitones.map_or(0.0, |fall| 0.1 * (f64::from(fall) - 1.0));
    let energy = prosody.energy_fall_db.map_or(0.0, |fall| 0.02 * f64::from(fall));
    (pitch + energy).clamp(-VOICE, VOICE)
}

/// A hint among others. On 260 turns of one reader and four voices (`antiphon corpus`, smart-turn 3.2) the answers delay
/// turns more than they save at every weight: at 10 % of the turns cut into, the wait is 8 % longer at this slope
/// (interval of 95 %: 39 % longer to 10 % shorter) in the half that reports and 74 % (17 to 104) in the half for tuning, and
/// several times as long at a slope of 1.2 without a bound. So no turn model serves unless one is named, and then it
/// may tip the scales between words and no more. `antiphon replay --sweep --model-slopes` compares weights.
pub const MODEL: ModelWeight = ModelWeight { slope: 0.3, most: 1.5 };

/// Log-odds of a turn model.
fn model(probability: f32, weight: ModelWeight) -> f64 {
    let p = f64::from(probability).clamp(0.01, 0.99);
    (weight.slope * (p / (1.0 - p)).ln()).clamp(-weight.most, weight.most)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn hints(wording: Wording) -> Hints {
        Hints {
            pause: Duration::ZERO,
            spoken: Duration::from_secs(2),
            wording,
            completeness: None,
            prosody: Prosody::default(),
            n_pauses: 0,
            typical_pause: Duration::from_millis(600),
            patience: 1.0,
            model: None,
        }
    }

    fn wait_ms(hints: Hints, eagerness: Eagerness) -> u128 {
        Decision::new(hints, eagerness).wait.as_millis()
    }

    #[test]
    fn the_waits_of_each_eagerness() {
        let table =
            |wording| [Eagerness::Low, Eagerness::Medium, Eagerness::High].map(|eager| wait_ms(hints(wording), eager));
        assert_eq!(table(Wording::Answer), [333, 166, 100]);
        assert_eq!(table(Wording::Question), [333, 166, 100]);
        assert_eq!(table(Wording::Unknown), [2_001, 1_000, 500]);
        assert_eq!(table(Wording::Open), [1_935, 967, 483]);
    }

    #[test]
    fn a_voice_that_falls_shortens_and_one_that_stays_up_lengthens() {
        let with = |energy: f32, pitch: f32| {
            let prosody = Prosody { energy_fall_db: Some(energy), pitch_fall_semitones: Some(pitch) };
            wait_ms(Hints { prosody, ..hints(Wording::Unknown) }, Eagerness::Medium)
        };
        assert_eq!([with(10.0, 4.0), with(0.0, 1.0), with(0.0, -3.0)], [895, 1_000, 1_114]);
    }

    #[test]
    fn patience_counts_as_far_as_the_end_is_in_doubt() {
        let slow = |wording| wait_ms(Hints { patience: 1.8, ..hints(wording) }, Eagerness::Medium);
        assert_eq!([slow(Wording::Unknown), slow(Wording::Answer), slow(Wording::Open)], [1_801, 166, 1_742]);
    }

    #[test]
    fn who_has_said_little_is_waited_for_unless_the_words_are_a_reply() {
        let after =
            |wording, ms| wait_ms(Hints { spoken: Duration::from_millis(ms), ..hints(wording) }, Eagerness::Medium);
        assert!(after(Wording::Plain, 500) > 2 * after(Wording::Plain, 2_500));
        for wording in [Wording::Unknown, Wording::Brief, Wording::Answer] {
            assert_eq!(after(wording, 300), after(wording, 3_000));
        }
    }

    #[test]
    fn a_turn_model_tips_the_scales_and_does_not_outweigh_words() {
        let with = |wording, p| wait_ms(Hints { model: Some(p), ..hints(wording) }, Eagerness::Medium);
        let without = |wording| wait_ms(hints(wording), Eagerness::Medium);
        for wording in [Wording::Unknown, Wording::Open] {
            assert!(with(wording, 0.98) < without(wording) && without(wording) < with(wording, 0.02));
            assert_eq!(with(wording, 0.5), without(wording));
        }
        assert!(with(Wording::Question, 0.0) < without(Wording::Unknown), "a question stays one");
        assert!(with(Wording::LeadIn, 1.0) > without(Wording::Unknown), "and a lead-in, too");
        let sure = ModelWeight { slope: 1.2, most: 1.5 };
        let waits = [0.9, 0.99].map(|p| {
            let hints = Hints { model: Some(p), ..hints(Wording::Unknown) };
            Decision::weighed(hints, Eagerness::Medium, sure).wait
        });
        assert_eq!(waits[0], waits[1], "both are bounded");
    }

    fn any_hints() -> impl Strategy<Value = Hints> {
        let wording = prop::sample::select(vec![
            Wording::Unknown,
            Wording::LeadIn,
            Wording::Open,
            Wording::Digits,
            Wording::Unfinished,
            Wording::Plain,
            Wording::Brief,
            Wording::Sentence,
            Wording::Command,
            Wording::Question,
            Wording::Answer,
        ]);
        let fall = || prop::option::of(-40.0..40.0f32);
        (wording, fall(), fall(), 0.7..1.8f64, prop::option::of(0.0..=1.0f32)).prop_map(
            |(wording, energy_fall_db, pitch_fall_semitones, patience, model)| Hints {
                prosody: Prosody { energy_fall_db, pitch_fall_semitones },
                patience,
                model,
                ..hints(wording)
            },
        )
    }

    proptest! {
        #[test]
        fn the_wait_is_within_bounds_and_the_eager_wait_less(hints in any_hints()) {
            let waits = [Eagerness::High, Eagerness::Medium, Eagerness::Low].map(|eager| {
                let wait = Decision::new(hints, eager).wait;
                assert!(wait >= eager.shortest() && wait <= eager.longest());
                wait
            });
            prop_assert!(waits[0] <= waits[1] && waits[1] <= waits[2]);
        }
    }
}
