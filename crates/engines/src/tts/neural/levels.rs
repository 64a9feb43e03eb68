//! The level of each voice of a family, measured where the family does not know it.

use super::super::level::Level;
use super::{Family, Item, Neural};
use antiphon_engine_api::tts::SpeechRequest;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// What a voice says to be measured, some 4 s. A voice of another language says it with its own sounds.
const SENTENCE: &str =
    "The sun was setting behind the hills, and nobody in the village knew what the morning would bring.";

/// The measured levels by voice, of all replicas of a model. As many as it has voices.
#[derive(Default)]
pub(in crate::tts) struct Levels(Mutex<HashMap<String, Level>>);

impl Levels {
    fn known(&self, voice: &str) -> Option<Level> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(voice).copied()
    }

    fn learn(&self, voice: &str, level: Level) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(voice.to_owned(), level);
    }
}

impl<F: Family> Neural<F> {
    /// The level of the voice that a request names: the default voice's where there is none of that name, the mean of
    /// its voices' where it is a mixture. Blocks for a run of the model for each voice whose level the family does not
    /// know and that was not measured yet.
    pub(super) fn level(&mut self, requested: &str) -> Level {
        let Some(levels) = self.levels.clone() else { return Level::UNCHANGED };
        let Some(mixture) = self.family.mixture(requested) else { return self.level_of_voice(&levels, requested) };
        let parts: Vec<(Level, f32)> =
            mixture.into_iter().map(|(voice, share)| (self.level_of_voice(&levels, &voice), share)).collect();
        Level::mixed(&parts)
    }

    fn level_of_voice(&mut self, levels: &Levels, requested: &str) -> Level {
        if let Some(lufs) = self.family.loudness_lufs(requested) {
            return Level::of(lufs);
        }
        let voices = self.family.voices();
        let Some(voice) = voices.iter().find(|voice| voice.id == requested).or(voices.first()) else {
            return Level::UNCHANGED;
        };
        let voice = voice.id.clone();
        if let Some(level) = levels.known(&voice) {
            return level;
        }
        let level = self.measured(&voice);
        if level.is_none() {
            tracing::warn!(voice, "the loudness of this voice could not be measured; it is left as it is");
        }
        let level = level.unwrap_or(Level::UNCHANGED);
        levels.learn(&voice, level);
        level
    }

    /// `None`: the voice says nothing, or its model fails, which the next request meets, too.
    fn measured(&mut self, voice: &str) -> Option<Level> {
        let request = SpeechRequest { text: SENTENCE.into(), voice: voice.into(), ..SpeechRequest::default() };
        let runs = self.family.read(&request).ok()?;
        let never = CancellationToken::new();
        let mut sound = Vec::new();
        for run in &runs {
            let item = Item { ids: &run.ids, voice };
            sound.extend(self.speak(&[item], 1.0, &never).ok()?.concat());
        }
        Level::measured(&sound, self.family.rate())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Failure, ModelRun, Provider, RunsOn};
    use super::*;
    use antiphon_engine_api::tts::{TtsError, Voice};
    use antiphon_types::SampleRate;
    use std::cell::Cell;
    use std::f32::consts::TAU;
    use std::sync::Arc;

    /// Hums for a second; its voices are named for their amplitude in thousandths, and 0 fails.
    struct Hummer {
        voices: Vec<Voice>,
        n_runs: Cell<usize>,
    }

    impl Family for Hummer {
        const LONGEST: usize = 10;

        fn voices(&self) -> &[Voice] {
            &self.voices
        }

        fn rate(&self) -> SampleRate {
            SampleRate::HZ_24000
        }

        fn read(&mut self, _: &SpeechRequest) -> Result<Vec<ModelRun>, TtsError> {
            Ok(vec![ModelRun { ids: vec![1], pause: std::time::Duration::ZERO }])
        }

        fn sample(&self, _: usize) -> Vec<i64> {
            vec![1]
        }

        /// "500+50" has half of each.
        fn mixture(&self, requested: &str) -> Option<Vec<(String, f32)>> {
            let (one, other) = requested.split_once('+')?;
            Some(vec![(one.to_owned(), 0.5), (other.to_owned(), 0.5)])
        }

        fn run(&self, items: &[Item<'_>], _: f32, _: &CancellationToken) -> Result<Vec<Vec<f32>>, Failure> {
            self.n_runs.set(self.n_runs.get() + 1);
            let amplitude: f32 = items[0].voice.parse().unwrap_or(0.0) / 1_000.0;
            if amplitude == 0.0 {
                return Err(Failure::Failed(TtsError::Unavailable("it is hoarse".into())));
            }
            Ok(vec![(0..24_000).map(|i| amplitude * (i as f32 * 440.0 * TAU / 24_000.0).sin()).collect()])
        }

        fn provider(&self) -> Provider {
            Provider::Cpu
        }

        fn runs_on(&self) -> RunsOn {
            RunsOn::default()
        }

        fn batches(&self) -> bool {
            false
        }
    }

    #[test]
    fn each_voice_is_measured_once_and_all_become_as_loud() {
        let voice = |id: &str| Voice { id: id.into(), name: id.into(), language: "en".into() };
        let voices = ["500", "50", "0"].map(voice).to_vec();
        let family = Hummer { voices, n_runs: Cell::new(0) };
        let mut neural = Neural { family, levels: Some(Arc::default()) };
        let mut peak = |amplitude: i16, requested: &str| {
            let mut sample = [amplitude];
            neural.level(requested).apply(&mut sample);
            (sample[0], neural.family.n_runs.get())
        };
        let loud = peak(16_384, "500");
        let quiet = peak(1_638, "50");
        assert!((loud.0 - quiet.0).abs() <= 3, "{loud:?} and {quiet:?}");
        assert!(loud.0 < 8_000, "{loud:?}");
        assert_eq!([loud.1, quiet.1], [1, 2]);
        assert_eq!(peak(16_384, "500"), (loud.0, 2), "it is known");
        assert_eq!(peak(16_384, "nobody"), (loud.0, 2), "the default voice speaks");
        assert_eq!([peak(100, "0"), peak(100, "0")], [(100, 3), (100, 3)], "one that fails stays as it is");
    }

    #[test]
    fn a_mixture_has_the_mean_level_of_its_voices() {
        let voice = |id: &str| Voice { id: id.into(), name: id.into(), language: "en".into() };
        let family = Hummer { voices: ["100", "500", "50"].map(voice).to_vec(), n_runs: Cell::new(0) };
        let mut neural = Neural { family, levels: Some(Arc::default()) };
        let mut gain = |requested: &str| {
            let mut sample = [1_000];
            neural.level(requested).apply(&mut sample);
            (f32::from(sample[0]) / 1_000.0, neural.family.n_runs.get())
        };
        let mixed = gain("500+50");
        assert_eq!(mixed.1, 2, "the default voice has no part in it");
        let loud = gain("500");
        let quiet = gain("50");
        assert_eq!(quiet.1, 2, "its voices are known then");
        assert!((mixed.0 / (loud.0 * quiet.0).sqrt() - 1.0).abs() < 0.02, "{mixed:?} of {loud:?} and {quiet:?}");
    }
}
