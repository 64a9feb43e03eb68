//! For tests: a family whose runs are watched, and held until the test lets them go.

use super::super::level::TARGET_LUFS;
use super::{Failure, Family, Item, ModelRun};
use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError, Voice};
use antiphon_inference::onnx::Provider;
use antiphon_types::SampleRate;
use std::sync::{Arc, Condvar, Mutex};
use tokio_util::sync::CancellationToken;

/// What a test sees of the runs, and how it holds them.
#[derive(Clone, Default)]
pub(in crate::tts) struct Watch(Arc<RunLog>);

#[derive(Default)]
struct RunLog {
    /// Of each run, as it begins: how many texts, and the ids of the longest.
    runs: Mutex<Vec<(usize, usize)>>,
    is_held: Mutex<bool>,
    changed: Condvar,
}

impl Watch {
    /// The runs so far.
    pub(in crate::tts) fn runs(&self) -> Vec<(usize, usize)> {
        self.0.runs.lock().expect("no panic while locked").clone()
    }

    /// Texts of each run so far.
    pub(in crate::tts) fn sizes(&self) -> Vec<usize> {
        self.runs().into_iter().map(|(n, _)| n).collect()
    }

    /// Runs wait, or go on, from now on.
    pub(in crate::tts) fn hold(&self, hold: bool) {
        *self.0.is_held.lock().expect("no panic while locked") = hold;
        self.0.changed.notify_all();
    }

    /// Waits until one more run than `n` has begun.
    pub(in crate::tts) async fn begun(&self, n: usize) {
        while self.runs().len() <= n {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until `n` chunks wait.
    pub(in crate::tts) async fn queued(tts: &dyn Tts, n: usize) {
        while tts.waiting() < n {
            tokio::task::yield_now().await;
        }
    }
}

pub(in crate::tts) struct WatchedFamily<F> {
    pub(in crate::tts) family: F,
    pub(in crate::tts) watch: Watch,
}

impl<F: Family> Family for WatchedFamily<F> {
    const LONGEST: usize = F::LONGEST;

    fn voices(&self) -> &[Voice] {
        self.family.voices()
    }

    fn rate(&self) -> SampleRate {
        self.family.rate()
    }

    fn read(&mut self, request: &SpeechRequest) -> Result<Vec<ModelRun>, TtsError> {
        self.family.read(request)
    }

    fn sample(&self, n_phonemes: usize) -> Vec<i64> {
        self.family.sample(n_phonemes)
    }

    fn speed(&self, asked: f32) -> f32 {
        self.family.speed(asked)
    }

    fn run(&self, items: &[Item<'_>], speed: f32, cancel: &CancellationToken) -> Result<Vec<Vec<f32>>, Failure> {
        let seen = &self.watch.0;
        seen.runs.lock().expect("no panic while locked").push((items.len(), super::longest(items)));
        let held = seen.is_held.lock().expect("no panic while locked");
        drop(seen.changed.wait_while(held, |is_held| *is_held).expect("no panic while locked"));
        self.family.run(items, speed, cancel)
    }

    fn provider(&self) -> Provider {
        self.family.provider()
    }

    fn runs_on(&self) -> antiphon_types::RunsOn {
        self.family.runs_on()
    }

    fn batches(&self) -> bool {
        self.family.batches()
    }

    /// Nothing is measured: a test counts the runs that it asked for.
    fn loudness_lufs(&self, _: &str) -> Option<f32> {
        Some(TARGET_LUFS)
    }
}
