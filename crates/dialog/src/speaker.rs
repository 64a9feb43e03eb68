//! Whose voice is heard, where the session is locked to its user's (`session.speaker_lock`).
//!
//! Pure. The session keeps a [`SpeakerProfile`], compares each utterance so far with it and reports the
//! [`SpeakerComparison`]; [`Speaker::after`] decides. Until the profile is complete nobody is locked out. Speech that
//! begins after that is tentative: `interruption` weighs its speaker, `hold` waits for it over a reply, and `listening`
//! drops an utterance that ends as another's. Nothing here hears audio, and the profile is never part of a snapshot.

use super::interruption::Decision;
use super::{Dialog, Notice};
use antiphon_types::{ItemId, Samples};
use serde::{Deserialize, Serialize};

/// A profile that has heard more weighs new speech as if it had heard this much, 30 s: it follows a voice that changes
/// over minutes, and one utterance that was taken for the user's by mistake changes it little.
const MEMORY: Samples = Samples(30 * 16_000);

/// A voice that is this much quieter than the user's needs more similarity. A person who turns the head or leans back is
/// some 6 dB quieter.
const QUIETER_DB: f32 = 6.0;

/// A voice that was too quiet to be the user's has to be this much louder than that to become it, in dB.
const NEARER_DB: f32 = 2.0;

/// A level this close to the limit is decided on after [`SETTLED_AFTER`] only, in dB. Of 40 clips, 39 of one reader, the first
/// 0.35 s of voiced sound are 5 dB quieter than the clips of the same book in 15 %, 7 dB in 3 %; the first 0.85 s are 6 dB
/// quieter in 3 %, 7 dB in none.
const IN_DOUBT_DB: f32 = 2.0;

/// Voiced sound whose level is that of the voice, 0.85 s.
const SETTLED_AFTER: Samples = Samples(13_600);

/// Voiced sound after which an utterance is decided on, 2.5 s: then a similarity between the thresholds falls to the
/// nearer one.
const DECIDED_AFTER: Samples = Samples(40_000);

/// What was heard of an utterance's voice.
#[derive(Clone, Debug, PartialEq)]
pub struct VoiceSample {
    /// Its embedding, of length 1.
    pub embedding: Vec<f32>,
    /// Level of its voiced sound in dB below full scale, negative.
    pub level_db: f32,
    /// The voiced sound it is made of, the latest of the utterance.
    pub voiced: Samples,
    /// The voiced sound of the utterance so far.
    pub voiced_so_far: Samples,
}

/// The user's voice, as far as it was heard. It lives in memory, with its session.
#[derive(Clone, Debug)]
pub struct SpeakerProfile {
    /// The voiced sound from which it is complete.
    complete_from: Samples,
    /// Of length 1; empty before anything was heard.
    embedding: Vec<f32>,
    level_db: f32,
    voiced: Samples,
}

impl SpeakerProfile {
    /// Of a user who was not heard yet; it is complete from so much voiced sound on.
    pub fn new(complete_from: Samples) -> Self {
        Self { complete_from, embedding: Vec::new(), level_db: 0.0, voiced: Samples::ZERO }
    }

    /// Whether enough was heard to compare others with it.
    pub fn is_complete(&self) -> bool {
        self.voiced >= self.complete_from
    }

    /// Adds an utterance of the user's.
    pub fn learn(&mut self, heard: &VoiceSample) {
        let before = self.voiced.min(MEMORY).0 as f32;
        let share = heard.voiced.0 as f32 / (before + heard.voiced.0 as f32).max(1.0);
        if self.embedding.len() != heard.embedding.len() {
            self.embedding = vec![0.0; heard.embedding.len()];
        }
        let both = self.embedding.iter().zip(&heard.embedding);
        let mut mean: Vec<f32> = both.map(|(old, new)| old + share * (new - old)).collect();
        let length = mean.iter().map(|x| x * x).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
        mean.iter_mut().for_each(|x| *x /= length);
        self.embedding = mean;
        self.level_db += share * (heard.level_db - self.level_db);
        self.voiced += heard.voiced;
    }

    /// Compares an utterance so far, by a model with these thresholds; `None` while the profile is not complete.
    pub fn compare(
        &self,
        heard: &VoiceSample,
        same_from: f32,
        other_below: f32,
        far_db: Option<f32>,
    ) -> Option<SpeakerComparison> {
        if !self.is_complete() {
            return None;
        }
        let similarity = self.embedding.iter().zip(&heard.embedding).map(|(a, b)| a * b).sum();
        let quieter_db = self.level_db - heard.level_db;
        let voiced = heard.voiced_so_far;
        Some(SpeakerComparison { similarity, same_from, other_below, quieter_db, far_db, voiced })
    }
}

/// How an utterance so far compares with the user's profile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpeakerComparison {
    /// Cosine of the two embeddings.
    pub similarity: f32,
    /// From this similarity on the model hears one voice.
    pub same_from: f32,
    /// Below this one it hears two.
    pub other_below: f32,
    /// How much quieter than the user it is, in dB; negative: louder.
    pub quieter_db: f32,
    /// A voice that is this much quieter, in dB, is another one whatever its similarity; `None`: none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_db: Option<f32>,
    /// The voiced sound of the utterance so far, of which the latest was compared.
    pub voiced: Samples,
}

/// Whose voice an utterance is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Speaker {
    /// It is not known.
    #[default]
    Unknown,
    /// The user's. That stays: its turn has begun.
    User,
    /// Another one's, until it clearly becomes the user's.
    Other,
}

impl Speaker {
    /// The decision after another comparison.
    pub(super) fn after(self, heard: SpeakerComparison) -> Self {
        let band = (heard.same_from - heard.other_below).max(0.0);
        let is_far = ((heard.quieter_db - QUIETER_DB) / QUIETER_DB).clamp(0.0, 1.0);
        let mut same_from = heard.same_from + band * is_far;
        let mut other_below = heard.other_below + band * is_far;
        if heard.voiced >= DECIDED_AFTER {
            let middle = f32::midpoint(same_from, other_below);
            same_from = middle;
            other_below = middle;
        }
        let far_db = match self {
            Self::Other => heard.far_db.map(|far_db| far_db - NEARER_DB),
            Self::Unknown | Self::User => heard.far_db,
        };
        let is_in_doubt = |far_db: f32| heard.voiced < SETTLED_AFTER && (heard.quieter_db - far_db).abs() < IN_DOUBT_DB;
        match self {
            Self::User => Self::User,
            Self::Unknown if far_db.is_some_and(is_in_doubt) => Self::Unknown,
            _ if far_db.is_some_and(|far_db| heard.quieter_db >= far_db) => Self::Other,
            Self::Unknown if heard.similarity >= same_from => Self::User,
            Self::Unknown if heard.similarity < other_below => Self::Other,
            Self::Other if heard.similarity >= same_from + band / 2.0 => Self::User,
            undecided => undecided,
        }
    }
}

/// What is known of the speaker of tentative speech, where the session is locked.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct HeardSpeaker {
    pub(super) speaker: Speaker,
    /// Of the latest comparison.
    pub(super) similarity: f32,
    /// Of the latest comparison. Absent in snapshots that are older.
    #[serde(default)]
    pub(super) quieter_db: f32,
}

impl Dialog {
    /// The same, whose user's voice is not known: the session has lost the profile.
    #[must_use]
    pub fn without_speaker(mut self) -> Self {
        self.speaker_enrolled = false;
        self
    }

    /// Whether the session is to be locked to its user's voice, so that the voices of utterances are of interest.
    pub fn compares_speaker(&self) -> bool {
        self.settings.turn_detection.is_some_and(|detection| detection.speaker_lock)
    }

    /// Whether something waits for the speaker of the utterance under way: its turn, or the profile.
    pub fn awaits_speaker(&self) -> bool {
        let speaking = self.listening.speaking.as_ref();
        !self.speaker_enrolled || speaking.is_some_and(|utterance| utterance.speaker().is_some())
    }

    /// Whether speech that begins now has to be the user's.
    pub(super) fn is_locked(&self) -> bool {
        self.speaker_enrolled && self.compares_speaker()
    }

    /// The user's profile is complete: speech from now on has to be the user's.
    pub(super) fn enrolled(&mut self) {
        self.speaker_enrolled = self.compares_speaker();
    }

    /// How the utterance under way compares with the user's profile: a reply stops, goes on, or waits. An answer that comes
    /// after the utterance's end is too late.
    pub(super) fn speaker_compared(&mut self, item: &ItemId, heard: SpeakerComparison) {
        let speaking = self.listening.speaking.as_mut().filter(|utterance| utterance.item == *item);
        let Some(utterance) = speaking else { return };
        let Some(tentative) = &mut utterance.tentative else {
            utterance.is_users |= Speaker::Unknown.after(heard) == Speaker::User;
            return;
        };
        let Some(known) = &mut tentative.speaker else { return };
        known.speaker = known.speaker.after(heard);
        known.similarity = heard.similarity;
        known.quieter_db = heard.quieter_db;
        match tentative.decide(false, false) {
            Decision::Yield => self.interrupted_by_speaker(),
            Decision::Continue => {
                self.release();
                // A turn before it need not wait for its end.
                self.respond_if_due();
            }
            Decision::Wait => {}
        }
    }

    /// Reports that speech of another voice was left out.
    pub(super) fn speech_ignored(&mut self, heard: HeardSpeaker, audio_start: Samples, audio_end: Samples) {
        let HeardSpeaker { similarity, quieter_db, .. } = heard;
        self.notify(Notice::SpeechIgnored { similarity, quieter_db, audio_start, audio_end });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARD: SpeakerComparison = SpeakerComparison {
        similarity: 0.5,
        same_from: 0.6,
        other_below: 0.4,
        quieter_db: 0.0,
        far_db: None,
        voiced: Samples(12_000),
    };

    #[test]
    fn similarity_length_and_level_decide() {
        use Speaker::{Other, Unknown, User};
        let of = |similarity| SpeakerComparison { similarity, ..HEARD };
        let quiet = |similarity, quieter_db| SpeakerComparison { similarity, quieter_db, ..HEARD };
        let far = |similarity, quieter_db| {
            let voiced = SETTLED_AFTER;
            SpeakerComparison { far_db: Some(8.0), voiced, ..quiet(similarity, quieter_db) }
        };
        let begun = |quieter_db| SpeakerComparison { voiced: Samples(5_600), ..far(1.0, quieter_db) };
        let long = |similarity| SpeakerComparison { similarity, voiced: Samples(40_000), ..HEARD };
        let table = [
            (Unknown, of(0.6), User),
            (Unknown, of(0.59), Unknown),
            (Unknown, of(0.4), Unknown),
            (Unknown, of(0.39), Other),
            // Between the thresholds the length decides.
            (Unknown, long(0.51), User),
            (Unknown, long(0.49), Other),
            // What is decided stays, or needs more.
            (User, of(-1.0), User),
            (Other, of(0.6), Other),
            (Other, of(0.69), Other),
            (Other, of(0.71), User),
            (Other, long(0.61), User),
            // A quieter voice needs more similarity, a louder one does not.
            (Unknown, quiet(0.6, 6.0), User),
            (Unknown, quiet(0.6, 9.0), Unknown),
            (Unknown, quiet(0.71, 9.0), User),
            (Unknown, quiet(0.59, 12.0), Other),
            (Unknown, quiet(0.79, 40.0), Unknown),
            (Unknown, quiet(0.81, 40.0), User),
            (Unknown, quiet(0.6, -20.0), User),
            (Unknown, of(f32::NAN), Unknown),
            // Where the level decides, it does so whatever the similarity.
            (Unknown, far(1.0, 7.9), User),
            (Unknown, far(1.0, 8.0), Other),
            (Other, far(1.0, 6.1), Other),
            (Other, far(1.0, 5.9), User),
            (Unknown, far(0.1, 0.0), Other),
            (User, far(1.0, 20.0), User),
            // The beginning of an utterance may be quieter than the voice, or louder.
            (Unknown, begun(6.0), User),
            (Unknown, begun(6.1), Unknown),
            (Unknown, begun(9.9), Unknown),
            (Unknown, begun(10.0), Other),
            (Other, begun(7.0), Other),
        ];
        for (before, heard, expect) in table {
            assert_eq!(before.after(heard), expect, "{before:?} {heard:?}");
        }
    }

    fn sample(embedding: [f32; 2], level_db: f32, ms: u64) -> VoiceSample {
        let voiced = Samples(16 * ms);
        VoiceSample { embedding: embedding.into(), level_db, voiced, voiced_so_far: voiced }
    }

    #[test]
    fn a_profile_is_complete_after_three_seconds_and_then_changes_slowly() {
        let mut profile = SpeakerProfile::new(Samples(48_000));
        let user = sample([1.0, 0.0], -20.0, 1_500);
        profile.learn(&user);
        assert!(!profile.is_complete());
        assert_eq!(profile.compare(&user, 0.6, 0.4, None), None);
        profile.learn(&user);
        assert!(profile.is_complete());
        let other = sample([0.0, 1.0], -30.0, 2_000);
        let heard = profile.compare(&other, 0.6, 0.4, None).expect("it is complete");
        assert_eq!((heard.similarity, heard.quieter_db, heard.voiced), (0.0, 10.0, Samples(32_000)));
        for _ in 0..20 {
            profile.learn(&user);
        }
        profile.learn(&other);
        let heard = profile.compare(&user, 0.6, 0.4, None).expect("it is complete");
        assert!(heard.similarity > 0.99 && heard.quieter_db.abs() < 1.0, "{heard:?}");
    }
}
