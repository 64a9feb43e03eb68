//! Load on speech to text: complete utterances, pushed as fast as the engine accepts them.

use super::{Answer, Stage};
use crate::BenchError;
use crate::questions::{VOICES, speaker};
use antiphon_audio::{convert, wav};
use antiphon_engine_api::stt::{RATE, Stt, SttOptions};
use antiphon_engine_api::tts::SpeechRequest;
use antiphon_types::{Pcm, Samples};
use async_trait::async_trait;
use futures_util::StreamExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Samples pushed at a time: a tenth of a second.
const PIECE: usize = RATE.hz() as usize / 10;
/// The longest accepted clip.
const LONGEST: Duration = Duration::from_secs(600);
/// Number of spoken texts if there are no clips.
const N_SPOKEN: usize = 8;

/// One utterance: mono at [`RATE`].
pub type Clip = Vec<i16>;

/// The speech-to-text stage.
pub struct SttStage {
    /// The engine under load.
    pub stt: Arc<dyn Stt>,
    /// The utterances, used in rotation; at least one.
    pub clips: Vec<Clip>,
    /// Decoding options of each utterance.
    pub options: SttOptions,
}

#[async_trait]
impl Stage for SttStage {
    fn name(&self) -> &'static str {
        "stt"
    }

    async fn ask(&self, n: usize) -> Result<Answer, String> {
        let clip = &self.clips[n % self.clips.len()];
        let heard = async {
            let mut utterance = self.stt.open(self.options.clone()).await?;
            for piece in clip.chunks(PIECE) {
                utterance.push(piece.to_vec()).await?;
            }
            utterance.finish().await
        };
        heard.await.map_err(|error| error.to_string())?;
        Ok(Answer { audio: Samples(clip.len() as u64).duration(RATE), ..Answer::default() })
    }

    fn waiting(&self) -> usize {
        self.stt.waiting()
    }
}

/// Reads the WAV files of a folder. Blocks.
pub fn clips(folder: &Path) -> Result<Vec<Clip>, BenchError> {
    let wrong = |path: &Path, why: String| BenchError::Clips(format!("{}: {why}", path.display()));
    let entries = std::fs::read_dir(folder).map_err(|error| wrong(folder, error.to_string()))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end.eq_ignore_ascii_case("wav")));
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let file = std::fs::read(path).map_err(|error| wrong(path, error.to_string()))?;
        let pcm = wav::read(&file, RATE, LONGEST).map_err(|error| wrong(path, error.to_string()))?;
        Ok(pcm.samples)
    };
    let clips = paths.iter().map(read).collect::<Result<Vec<_>, BenchError>>()?;
    if clips.is_empty() { Err(wrong(folder, "there is no WAV file".into())) } else { Ok(clips) }
}

/// Texts of `n_chars` characters, spoken by flite's voices in rotation.
pub async fn spoken(n_chars: usize) -> Result<Vec<Clip>, BenchError> {
    let flite = speaker().await?;
    let mut clips = Vec::new();
    for n in 0..N_SPOKEN {
        let text = super::tts::text(n, n_chars);
        let voice = VOICES[n % VOICES.len()].to_owned();
        let mut clip = Vec::new();
        let mut pieces = flite.speak(SpeechRequest { text, voice, ..SpeechRequest::default() });
        while let Some(piece) = pieces.next().await {
            let Pcm { rate, samples } = piece.map_err(BenchError::Speech)?;
            clip.push((rate, samples));
        }
        let rate = clip.first().map_or(RATE, |(rate, _)| *rate);
        let samples: Vec<i16> = clip.into_iter().flat_map(|(_, samples)| samples).collect();
        clips.push(convert(&samples, rate, RATE));
    }
    Ok(clips)
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::fakes::stt::FakeStt;

    #[tokio::test]
    async fn a_clip_is_heard_whole_and_a_failure_is_told() {
        let stt = FakeStt::hears(["a", "b"]).then_fails("no ears");
        let stage = SttStage {
            stt: Arc::new(stt),
            clips: vec![vec![1; 16_000], vec![1; 8_000]],
            options: SttOptions::default(),
        };
        assert_eq!(stage.ask(0).await.expect("heard").audio, Duration::from_secs(1));
        assert_eq!(stage.ask(1).await.expect("heard").audio, Duration::from_millis(500));
        assert!(stage.ask(2).await.expect_err("told to fail").contains("no ears"));
    }
}
