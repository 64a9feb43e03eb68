//! What a session hears of its speaker's voice, where it is locked to that (`session.speaker_lock`).
//!
//! `ingress` gives it the windows, [`super::hearing`] asks it for queries and gives it their answers. It gathers the
//! voiced sound of the utterance under way, holds the latest sample of each utterance that is not transcribed yet, and the
//! user's profile. It never decides whose voice it is (`dialog`), and no audio or embedding leaves it but for the model:
//! both end with the session, and neither is in a snapshot, a log or a recording.

use super::transcription_input::Report;
use antiphon_dialog::{SpeakerComparison, SpeakerProfile, VoiceSample};
use antiphon_engine_api::speaker::{SpeakerModel, SpeakerThresholds};
use antiphon_types::{ItemId, Samples};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::DropGuard;

/// Voiced sound between two queries while it matters whose voice it is, 250 ms.
const STEP: Samples = Samples(4_000);

/// The same once it does not, and the profile alone learns of it, 1 s.
const LEARNING_STEP: Samples = Samples(16_000);

/// Utterances whose samples are held until their transcripts have come: as many as are transcribed at once.
const MAX_HELD: usize = 4;

/// The longest useful delay of an answer: by then a reply that was held for it has stopped.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// The background's power is a running mean of about so many windows of 16 or 32 ms.
const BACKGROUND_WINDOWS: u32 = 50;

/// From so many windows on it is known, or from so many that are silent.
const KNOWN_FROM: u32 = 10;
const KNOWN_FROM_SILENT: u32 = 30;

/// A window of less than this power is silent, and not part of the mean: the microphone may be muted, or its sound lost.
/// -66 dB of full scale.
const SILENCE: f64 = 256.0;

/// Of the first windows one that is so much quieter than those before begins the mean anew, 12 dB: what was heard was a
/// microphone that is opened.
const QUIETER: f64 = 16.0;

/// A window counts for at most this much of the power so far: a door is not the background.
const MOST_LOUDER: f64 = 4.0;

/// The least share of a sound's power that is taken for the voice's, -6 dB: a background that is gone makes no voice
/// another's by itself.
const LEAST_VOICE: f64 = 0.25;

/// See the module.
pub(super) struct SpeakerEar {
    model: Arc<dyn SpeakerModel>,
    profile: SpeakerProfile,
    /// The voiced sound since the last utterance, the model's span of it at most.
    voiced: Vec<i16>,
    /// Mean square of the windows without speech and without a reply.
    background: f64,
    /// Such windows, up to [`BACKGROUND_WINDOWS`].
    n_background: u32,
    /// Silent ones.
    n_silent: u32,
    /// How much voiced sound there was since the last utterance.
    n_voiced: Samples,
    /// [`Self::n_voiced`] at the last query.
    asked_at: Samples,
    /// The query under way, and about which utterance: one at a time.
    query: Option<(ItemId, DropGuard)>,
    /// The latest sample of each utterance, the oldest first.
    held: Vec<(ItemId, VoiceSample)>,
}

impl SpeakerEar {
    /// Of a user who was not heard yet.
    pub(super) fn new(model: Arc<dyn SpeakerModel>) -> Self {
        Self {
            profile: SpeakerProfile::new(model.enrolled_from()),
            model,
            voiced: Vec::new(),
            background: 0.0,
            n_background: 0,
            n_silent: 0,
            n_voiced: Samples::ZERO,
            asked_at: Samples::ZERO,
            query: None,
            held: Vec::new(),
        }
    }

    /// A voiced window, mono at 16 kHz.
    pub(super) fn hear(&mut self, window: &[i16]) {
        let span = self.model.span().0 as usize;
        self.voiced.extend_from_slice(window);
        self.n_voiced += Samples(window.len() as u64);
        // Twice the span, so that not every window moves all that is kept.
        if self.voiced.len() > 2 * span {
            self.voiced.drain(..self.voiced.len() - span);
        }
    }

    /// A window without speech and without a reply that may come back, mono at 16 kHz. The level of a voice is what it adds
    /// to that.
    pub(super) fn hear_background(&mut self, window: &[i16]) {
        let power = power(window);
        if power < SILENCE {
            self.n_silent = self.n_silent.saturating_add(1);
            return;
        }
        let is_mean = self.n_background == BACKGROUND_WINDOWS;
        if !is_mean && power * QUIETER < self.background {
            self.n_background = 0;
        }
        self.n_background = (self.n_background + 1).min(BACKGROUND_WINDOWS);
        let power = if is_mean { power.min(MOST_LOUDER * self.background) } else { power };
        self.background += (power - self.background) / f64::from(self.n_background);
    }

    /// The root mean square of what counts as background.
    #[cfg(test)]
    pub(super) fn background_level(&self) -> f64 {
        self.background.sqrt()
    }

    /// The utterance, or the sound that was none, is over. Its answer would come too late.
    pub(super) fn restart(&mut self) {
        self.query = None;
        self.voiced.clear();
        self.n_voiced = Samples::ZERO;
        self.asked_at = Samples::ZERO;
    }

    /// The query that is due about the voice of `item`: its task, to be [started](Self::started). `matters`: the utterance
    /// waits for its speaker.
    pub(super) fn due(
        &mut self,
        item: &ItemId,
        matters: bool,
        reports: &mpsc::Sender<Report>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let step = if matters { STEP } else { LEARNING_STEP };
        let is_new = self.n_voiced.saturating_sub(self.asked_at) >= step;
        if self.query.is_some() || self.n_voiced < self.model.least() || !is_new {
            return None;
        }
        self.asked_at = self.n_voiced;
        let span = self.model.span().0 as usize;
        let pcm: Arc<[i16]> = self.voiced[self.voiced.len().saturating_sub(span)..].into();
        let level_db = level_db(&pcm, self.background);
        Some(embed(self.model.clone(), pcm, level_db, item.clone(), reports.clone()))
    }

    /// The query about `item` was started; dropping its guard cancels it.
    pub(super) fn started(&mut self, item: ItemId, query: DropGuard) {
        self.query = Some((item, query));
    }

    /// The query's answer about `item`; `None`: it failed. Returns how the voice compares with the user's, once that is
    /// known.
    pub(super) fn answered(&mut self, item: ItemId, sample: Option<VoiceSample>) -> Option<SpeakerComparison> {
        self.query.take_if(|(asked, _)| *asked == item);
        let sample = sample?;
        let SpeakerThresholds { same_from, other_below, far_db } = self.model.thresholds();
        let compared = self.profile.compare(&sample, same_from, other_below, far_db);
        self.forget(&item);
        // A level with the background in it would be compared with levels without.
        let is_known = self.n_background >= KNOWN_FROM || self.n_silent >= KNOWN_FROM_SILENT;
        if far_db.is_some() && !is_known {
            return compared;
        }
        if self.held.len() >= MAX_HELD {
            self.held.remove(0);
        }
        self.held.push((item, sample));
        compared
    }

    /// The utterance was the user's. Returns whether the profile is complete by that.
    pub(super) fn learn(&mut self, item: &ItemId) -> bool {
        let Some(at) = self.held.iter().position(|(held, _)| held == item) else { return false };
        let (_, sample) = self.held.remove(at);
        let was_complete = self.profile.is_complete();
        self.profile.learn(&sample);
        !was_complete && self.profile.is_complete()
    }

    /// The utterance is of no interest any more.
    pub(super) fn forget(&mut self, item: &ItemId) {
        self.held.retain(|(held, _)| held != item);
    }
}

/// Reports the embedding of an utterance so far.
async fn embed(
    model: Arc<dyn SpeakerModel>,
    pcm: Arc<[i16]>,
    level_db: f32,
    item: ItemId,
    reports: mpsc::Sender<Report>,
) {
    let sample = match timeout(ANSWERED_WITHIN, model.embed(pcm.clone())).await {
        Ok(Ok(embedding)) => {
            let voiced = Samples(pcm.len() as u64);
            Some(VoiceSample { embedding, level_db, voiced })
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "a voice counts as the user's");
            None
        }
        Err(_) => {
            tracing::warn!(
                "the speaker model gave no answer within {ANSWERED_WITHIN:?}: the voice counts as the user's"
            );
            None
        }
    };
    // The actor is gone only when the session is.
    drop(reports.send(Report::SpeakerHeard { item, sample }).await);
}

/// Level of a voice in dB below full scale, at least -96. `background`: the mean square of what sounds behind it.
fn level_db(pcm: &[i16], background: f64) -> f32 {
    let power = power(pcm);
    let voice = (power - background).max(LEAST_VOICE * power);
    (10.0 * (voice / 32_768f64.powi(2)).max(2.5e-10).log10()) as f32
}

/// The mean square.
fn power(pcm: &[i16]) -> f64 {
    pcm.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>() / pcm.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::fakes::speaker::FakeSpeakerModel;
    use antiphon_engines::speaker::Loudness;

    fn ear() -> (SpeakerEar, FakeSpeakerModel, mpsc::Sender<Report>, mpsc::Receiver<Report>) {
        let model = FakeSpeakerModel::parts_at(10_000);
        let (reports, inbox) = mpsc::channel(4);
        (SpeakerEar::new(Arc::new(model.clone())), model, reports, inbox)
    }

    /// The answer to the query that is due.
    async fn ask(
        ear: &mut SpeakerEar,
        item: &str,
        reports: &mpsc::Sender<Report>,
        inbox: &mut mpsc::Receiver<Report>,
    ) -> Option<SpeakerComparison> {
        ear.due(&item.into(), true, reports).expect("a query is due").await;
        let Some(Report::SpeakerHeard { item, sample }) = inbox.recv().await else { panic!("another report") };
        ear.answered(item, sample)
    }

    #[tokio::test]
    async fn queries_begin_at_0_7_s_follow_a_step_and_hold_the_span() {
        let (mut ear, model, reports, mut inbox) = ear();
        let item = ItemId::from("a");
        ear.hear(&[20_000; 11_199]);
        assert!(ear.due(&item, true, &reports).is_none());
        ear.hear(&[20_000; 1]);
        assert!(ask(&mut ear, "a", &reports, &mut inbox).await.is_none(), "nobody is enrolled");
        ear.hear(&[20_000; 3_999]);
        assert!(ear.due(&item, true, &reports).is_none());
        ear.hear(&[20_000; 1]);
        assert!(ear.due(&item, false, &reports).is_none(), "learning is in no hurry");
        ask(&mut ear, "a", &reports, &mut inbox).await;
        ear.hear(&[20_000; 80_000]);
        ask(&mut ear, "a", &reports, &mut inbox).await;
        assert_eq!(model.heard(), [11_200, 15_200, 64_000]);
        ear.restart();
        assert!(ear.due(&item, true, &reports).is_none());
    }

    #[tokio::test]
    async fn accepted_utterances_make_the_profile_and_others_are_compared_with_it() {
        let (mut ear, _, reports, mut inbox) = ear();
        for item in ["a", "b"] {
            ear.hear(&[20_000; 32_000]);
            assert!(ask(&mut ear, item, &reports, &mut inbox).await.is_none());
            assert_eq!(ear.learn(&item.into()), item == "b", "3 s are enough");
            assert!(!ear.learn(&item.into()), "each counts once");
            ear.restart();
        }
        ear.hear(&[5_000; 16_000]);
        let other = ask(&mut ear, "c", &reports, &mut inbox).await.expect("it is compared");
        assert_eq!(other.similarity, 0.0);
        assert!((other.quieter_db - 12.0).abs() < 0.1, "{other:?}");
        ear.forget(&"c".into());
        assert!(!ear.learn(&"c".into()));
    }

    #[tokio::test]
    async fn a_quieter_voice_is_as_much_quieter_in_noise() {
        // Windows of several levels, as of people who talk.
        let noise = |n: usize| {
            let level = |i: usize| [1_000, 5_000, 2_000, 3_000][i / 320 % 4];
            (0..n).map(|i| if i % 2 == 0 { level(i) } else { -level(i) }).collect::<Vec<i16>>()
        };
        let voice_in_noise = |level: f64, n: usize| {
            let with = |(i, noise): (usize, i16)| noise + (level * (i as f64 / 16.0).sin()) as i16;
            noise(n).into_iter().enumerate().map(with).collect::<Vec<i16>>()
        };
        let quieter_db = async |has_background: bool| {
            let (mut ear, _, reports, mut inbox) = ear();
            if has_background {
                noise(64_000).chunks(320).for_each(|window| ear.hear_background(window));
            }
            ear.hear(&voice_in_noise(12_000.0, 64_000));
            ask(&mut ear, "user", &reports, &mut inbox).await;
            ear.learn(&"user".into());
            ear.restart();
            ear.hear(&voice_in_noise(4_000.0, 16_000));
            ask(&mut ear, "other", &reports, &mut inbox).await.expect("it is compared").quieter_db
        };
        let known = quieter_db(true).await;
        assert!((known - 9.5).abs() < 0.5, "{known}");
        let unknown = quieter_db(false).await;
        assert!(unknown < 7.0, "{unknown}");
    }

    #[test]
    fn the_background_is_a_mean_that_silence_and_a_door_change_little() {
        let (mut ear, ..) = ear();
        let windows = |ear: &mut SpeakerEar, level: i16, n: usize| {
            (0..n).for_each(|_| ear.hear_background(&[level; 320]));
            ear.background_level()
        };
        assert_eq!(windows(&mut ear, 8, 100), 0.0, "the silence of A-law");
        windows(&mut ear, 10_000, 1);
        assert_eq!(windows(&mut ear, 100, 60), 100.0, "a microphone that was opened is forgotten");
        assert_eq!(windows(&mut ear, 0, 100), 100.0);
        assert!(windows(&mut ear, 20_000, 1) < 104.0);
        assert!(windows(&mut ear, 300, 200) > 290.0);
        let buried = level_db(&[1_000; 320], 1e9) - level_db(&[1_000; 320], 0.0);
        assert!((buried + 6.0).abs() < 0.1, "{buried}");
    }

    #[tokio::test]
    async fn a_level_is_learned_once_the_background_is_known() {
        for (background, n_windows, is_learned) in [(0, 0, false), (500, 9, false), (500, 10, true), (0, 30, true)] {
            let (reports, mut inbox) = mpsc::channel(4);
            let mut ear = SpeakerEar::new(Arc::new(Loudness));
            (0..n_windows).for_each(|_| ear.hear_background(&[background; 320]));
            ear.hear(&[10_000; 24_000]);
            ask(&mut ear, "a", &reports, &mut inbox).await;
            assert_eq!(ear.learn(&"a".into()), is_learned, "{n_windows} windows of {background}; 1.5 s are enough");
        }
    }

    #[tokio::test]
    async fn a_model_that_fails_makes_nobody_another() {
        let (reports, mut inbox) = mpsc::channel(4);
        let mut ear = SpeakerEar::new(Arc::new(FakeSpeakerModel::fails()));
        ear.hear(&[20_000; 16_000]);
        assert!(ask(&mut ear, "a", &reports, &mut inbox).await.is_none());
        assert!(!ear.learn(&"a".into()));
    }
}
