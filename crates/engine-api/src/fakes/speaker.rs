//! A speaker model for tests: the loudest sample of the audio says whose voice it is, or it fails.

use crate::speaker::{SpeakerModel, SpeakerModelError, SpeakerThresholds};
use antiphon_types::Samples;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::sync::{Arc, Mutex};

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct FakeSpeakerModel {
    /// The peak that parts two voices; `None`: it fails.
    parts_at: Option<u16>,
    heard: Arc<Mutex<Vec<usize>>>,
}

impl FakeSpeakerModel {
    /// Audio whose peak is at least `peak` is one voice, quieter audio another one: their similarity is 0.
    pub fn parts_at(peak: u16) -> Self {
        Self { parts_at: Some(peak), heard: Arc::default() }
    }

    /// It never answers but with an error.
    pub fn fails() -> Self {
        Self { parts_at: None, heard: Arc::default() }
    }

    /// How many samples it was given, for each query.
    pub fn heard(&self) -> Vec<usize> {
        self.heard.lock().expect("no panic while locked").clone()
    }
}

impl SpeakerModel for FakeSpeakerModel {
    fn name(&self) -> &str {
        "fake"
    }

    fn concurrency(&self) -> usize {
        1
    }

    fn span(&self) -> Samples {
        Samples(4 * 16_000)
    }

    fn thresholds(&self) -> SpeakerThresholds {
        SpeakerThresholds { same_from: 0.6, other_below: 0.4, far_db: None }
    }

    fn embed(&self, pcm: Arc<[i16]>) -> BoxFuture<'static, Result<Vec<f32>, SpeakerModelError>> {
        self.heard.lock().expect("no panic while locked").push(pcm.len());
        let peak = pcm.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or(0);
        let voice = |parts_at| if peak >= parts_at { vec![1.0, 0.0] } else { vec![0.0, 1.0] };
        ready(self.parts_at.map(voice).ok_or_else(|| SpeakerModelError::Failed("on purpose".into()))).boxed()
    }
}
