//! A recognizer that writes what a script says, for measures of what is decided by words.
//!
//! The script is the `prompt` of the transcription: words with the time at which each ends, counted from the first loud sample of
//! the utterance. A partial transcript has the words that have ended, any other one also the word that has begun: a word fades out
//! below the level at which an utterance ends. It hears nothing.

use antiphon_engine_api::stt::{RATE, Stt, SttError, SttOptions, SttUtterance, Transcript};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::time::Duration;

/// Samples above this level are loud; clips are spoken with a peak of [`PEAK`].
const LOUD: u16 = 800;
/// The peak of a clip: twenty times [`LOUD`].
pub(super) const PEAK: f64 = 20.0 * LOUD as f64;

/// Writes a script: words, and when each ends.
pub(super) fn script(words: &[(&str, Duration)]) -> String {
    words.iter().map(|(word, end)| format!("{} {word}\n", end.as_millis())).collect()
}

/// See the module.
pub struct ScriptedStt;

struct Utterance {
    /// Words, and the samples at [`RATE`] after which each has ended.
    script: Vec<(usize, String)>,
    /// Samples from the first loud one on.
    n_heard: usize,
}

impl Utterance {
    fn new(prompt: &str) -> Self {
        let word = |line: &str| {
            let (end_ms, word) = line.split_once(' ')?;
            let end = Duration::from_millis(end_ms.parse().ok()?);
            Some((RATE.samples_in(end).0 as usize, word.to_owned()))
        };
        Self { script: prompt.lines().filter_map(word).collect(), n_heard: 0 }
    }

    fn words(&self, is_partial: bool) -> Transcript {
        let n_ended = self.script.iter().filter(|(end, _)| *end <= self.n_heard).count();
        let has_begun = !is_partial && n_ended < self.script.len() && self.n_heard > 0;
        let spoken = self.script.iter().take(n_ended + usize::from(has_begun)).map(|(_, word)| word.as_str());
        Transcript { text: spoken.collect::<Vec<_>>().join(" "), ..Transcript::default() }
    }
}

impl Stt for ScriptedStt {
    fn name(&self) -> &str {
        "scripted"
    }

    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        let utterance = Utterance::new(options.prompt.as_deref().unwrap_or_default());
        ready(Ok(Box::new(utterance) as Box<dyn SttUtterance>)).boxed()
    }
}

impl SttUtterance for Utterance {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        let from = match self.n_heard {
            0 => pcm.iter().position(|sample| sample.unsigned_abs() > LOUD).unwrap_or(pcm.len()),
            _ => 0,
        };
        self.n_heard += pcm.len() - from;
        ready(Ok(())).boxed()
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        ready(Ok(Some(self.words(true)))).boxed()
    }

    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        ready(Ok(self.words(false))).boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        ready(Ok(self.words(false))).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn words_are_written_when_they_have_ended() {
        let ms = Duration::from_millis;
        let prompt = script(&[("no", ms(100)), ("wait", ms(300))]);
        let mut utterance = Utterance::new(&prompt);
        let mut partials = Vec::new();
        // 50 ms of silence before the first loud sample do not count.
        for pcm in [vec![0; 800], vec![5_000; 1_500], vec![5_000; 100], vec![0; 3_200]] {
            utterance.push(pcm).await.expect("it takes all");
            partials.push(utterance.partial().await.expect("it is there").expect("it has partials").text);
        }
        assert_eq!(partials, ["", "", "no", "no wait"]);
        let mut utterance = Utterance::new(&prompt);
        assert_eq!(utterance.provisional().await.expect("it is there").text, "");
        utterance.push(vec![5_000; 2_400]).await.expect("it takes all");
        assert_eq!(utterance.provisional().await.expect("it is there").text, "no wait", "the second word has begun");
    }
}
