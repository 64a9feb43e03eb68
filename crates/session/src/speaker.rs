//! What a session hears of its speaker's voice, where it is locked to that (`session.speaker_lock`).
//!
//! `ingress` gives it the windows, [`super::hearing`] asks it for queries and gives it their answers. It gathers the
//! voiced sound of the utterance under way, holds the latest sample of each utterance that is not transcribed yet, and the
//! user's profile. It never decides whose voice it is (`dialog`), and no audio or embedding leaves it but for the model:
//! both end with the session, and neither is in a snapshot, a log or a recording.

use super::background::Background;
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

/// See the module.
pub(super) struct SpeakerEar {
    model: Arc<dyn SpeakerModel>,
    profile: SpeakerProfile,
    /// The voiced sound since the last utterance, the model's span of it at most.
    voiced: Vec<i16>,
    background: Background,
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
            background: Background::default(),
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
        self.background.hear(window);
    }

    /// What counts as background.
    #[cfg(test)]
    pub(super) fn background(&self) -> &Background {
        &self.background
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
        let level_db = self.background.level_db(&pcm);
        Some(embed(self.model.clone(), pcm, level_db, self.n_voiced, item.clone(), reports.clone()))
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
        if far_db.is_some() && !self.background.is_known() {
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
    voiced_so_far: Samples,
    item: ItemId,
    reports: mpsc::Sender<Report>,
) {
    let sample = match timeout(ANSWERED_WITHIN, model.embed(pcm.clone())).await {
        Ok(Ok(embedding)) => {
            let voiced = Samples(pcm.len() as u64);
            Some(VoiceSample { embedding, level_db, voiced, voiced_so_far })
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
    async fn a_comparison_counts_what_was_voiced_before_the_models_span_too() {
        let (mut ear, _, reports, mut inbox) = ear();
        ear.hear(&[20_000; 64_000]);
        ask(&mut ear, "user", &reports, &mut inbox).await;
        assert!(ear.learn(&"user".into()));
        ear.restart();
        ear.hear(&[5_000; 64_000]);
        ear.hear(&[5_000; 16_000]);
        let other = ask(&mut ear, "other", &reports, &mut inbox).await.expect("it is compared");
        assert_eq!(other.voiced, Samples(80_000), "of which the model heard 64,000");
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
