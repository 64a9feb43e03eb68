//! The questions and their voices: flite speaks questions for the offline assistant before a measurement starts.

use super::BenchError;
use super::scripted::script;
use antiphon::assembly::{self, EnginesError};
use antiphon::config::Config;
use antiphon_client::RATE;
use antiphon_engine_api::tts::{SpeechRequest, Tts};
use antiphon_engines::tts::TtsConfig;
use antiphon_types::Samples;
use futures_util::StreamExt;
use std::sync::Arc;

/// Questions for the offline assistant, and a part of the correct answer in lower case.
pub(super) const QUESTIONS: [(&str, &str); 12] = [
    ("What is twelve times seven?", "84"),
    ("What is eighty divided by five?", "16"),
    ("Repeat after me the river is wide.", "river is wide"),
    ("What is twenty plus thirty?", "50"),
    ("What is three times eleven?", "33"),
    ("Count from six to nine.", "6, 7, 8, 9"),
    ("What is ten percent of seventy?", "is 7"),
    ("What is one hundred minus one?", "99"),
    ("Who are you?", "offline assistant"),
    ("What is six times nine?", "54"),
    ("What is nineteen minus two?", "17"),
    ("Count from one to five.", "1, 2, 3, 4, 5"),
];

/// Voices that speak the questions.
pub(super) const VOICES: [&str; 4] = ["slt", "rms", "awb", "kal16"];

/// The voice of a reply that `voice` interrupts. It is another one: flite's sounds repeat to the sample, so that the hub takes an
/// interruption in the reply's own voice for its echo.
pub(super) fn replies_to(voice: &str) -> &'static str {
    if voice == VOICES[0] { VOICES[1] } else { VOICES[0] }
}

/// A spoken text.
#[derive(Clone, Debug)]
pub(super) struct SpokenText {
    pub(super) text: &'static str,
    pub(super) voice: &'static str,
    /// Samples, mono at [`RATE`], with at most 20 ms of silence at each end.
    pub(super) samples: Vec<i16>,
}

impl SpokenText {
    /// What a recognizer that follows a script writes: the words, of equal length.
    pub(super) fn script(&self) -> String {
        let Some((first, last)) = loud(&self.samples) else { return String::new() };
        let words: Vec<&str> = self.text.split(' ').collect();
        let end = |n: usize| Samples(((last - first) * (n + 1) / words.len()) as u64).duration(RATE);
        let ends: Vec<_> = words.iter().enumerate().map(|(n, word)| (*word, end(n))).collect();
        script(&ends)
    }
}

/// The engine that speaks the questions: flite with a pool of one, whatever voices are installed.
pub(super) async fn speaker() -> Result<Arc<dyn Tts>, BenchError> {
    let tts = TtsConfig { engine: "flite".into(), replicas: 1, ..TtsConfig::default() };
    let config = Config { tts, ..Config::default() };
    let made = tokio::task::spawn_blocking(move || assembly::tts(&config)).await?;
    Ok(made.map_err(EnginesError::from)?)
}

/// Speaks one text.
pub(super) async fn speak(
    speaker: &dyn Tts,
    text: &'static str,
    voice: &'static str,
) -> Result<SpokenText, BenchError> {
    let request = SpeechRequest { text: text.into(), voice: voice.into(), ..SpeechRequest::default() };
    Ok(SpokenText { text, voice, samples: spoken(speaker, request).await? })
}

/// The samples of a text, mono at [`RATE`].
pub(super) async fn spoken(speaker: &dyn Tts, request: SpeechRequest) -> Result<Vec<i16>, BenchError> {
    let mut stream = speaker.speak(request);
    let mut rate = RATE;
    let mut whole = Vec::new();
    while let Some(pcm) = stream.next().await {
        let pcm = pcm.map_err(BenchError::Speech)?;
        rate = pcm.rate;
        whole.extend(pcm.samples);
    }
    Ok(antiphon_audio::convert(&whole, rate, RATE))
}

/// Indices of the first and the last loud sample (above 5 % of the peak). `None` for silence.
pub(super) fn loud(samples: &[i16]) -> Option<(usize, usize)> {
    let peak = u32::from(samples.iter().map(|sample| sample.unsigned_abs()).max()?);
    let is_loud = |sample: &i16| u32::from(sample.unsigned_abs()) * 20 > peak;
    Some((samples.iter().position(is_loud)?, samples.iter().rposition(is_loud)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loud_is_above_a_twentieth_of_the_peak() {
        assert_eq!(loud(&[0, 50, -51, 0, 1000, 51, 50]), Some((2, 5)));
        assert_eq!((loud(&[0, 0]), loud(&[])), (None, None));
    }
}
