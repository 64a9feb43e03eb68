//! Load on text to speech.

use super::{Answer, Stage};
use antiphon_engine_api::tts::{PlayoutEstimate, SpeechRequest, Tts};
use antiphon_text::{Chunker, Language};
use async_trait::async_trait;
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Sentences, used in rotation, so that concurrent requests differ.
const SENTENCES: [&str; 8] = [
    "The morning train was late again, so we walked along the river.",
    "She opened the window and listened to the rain for a while.",
    "A good answer is short, clear, and given at the right moment.",
    "Nobody had expected the old clock in the hall to strike twelve.",
    "If the weather holds, we will reach the mountains before noon.",
    "He kept a list of every book he had read since he was nine.",
    "The bread is still warm, and the coffee will be ready in a minute.",
    "Most of the noise came from the street behind the market.",
];

/// The text-to-speech stage. Each request represents a listener who plays the audio from its first sample on, because
/// engines give priority to listeners who will run out of audio first.
pub struct TtsStage {
    /// The engine under load.
    pub tts: Arc<dyn Tts>,
    /// Voice id.
    pub voice: String,
    /// Speech rate.
    pub speed: f32,
    /// Characters per text.
    pub n_chars: usize,
    /// Whether a text is split into chunks here, as the hub does for local engines.
    pub chunked: bool,
}

#[async_trait]
impl Stage for TtsStage {
    fn name(&self) -> &'static str {
        "tts"
    }

    async fn ask(&self, n: usize) -> Result<Answer, String> {
        let begun = Instant::now();
        let mut answer = Answer::default();
        let mut listener = PlayoutEstimate::default();
        for text in self.chunks(n) {
            let unplayed = Some(listener.unplayed());
            listener.will_hear(&text);
            let mut pieces = self.tts.speak(SpeechRequest {
                text,
                voice: self.voice.clone(),
                speed: self.speed,
                unplayed,
                ..SpeechRequest::default()
            });
            while let Some(piece) = pieces.next().await {
                let piece = piece.map_err(|error| error.to_string())?;
                if !piece.is_empty() && answer.first.is_none() {
                    answer.first = Some(begun.elapsed());
                }
                answer.audio += piece.duration();
                listener.hears(piece.duration());
            }
            listener.heard_chunk();
        }
        if answer.audio == Duration::ZERO { Err("no audio was produced".into()) } else { Ok(answer) }
    }

    fn waiting(&self) -> usize {
        self.tts.waiting()
    }
}

impl TtsStage {
    fn chunks(&self, n: usize) -> Vec<String> {
        let text = text(n, self.n_chars);
        if !self.chunked {
            return vec![text];
        }
        let mut chunker = Chunker::new(Language::English);
        let mut chunks = chunker.push(&text);
        chunks.extend(chunker.finish());
        chunks.into_iter().map(|chunk| chunk.spoken).filter(|spoken| !spoken.is_empty()).collect()
    }
}

/// The `n`th text: as many words as fit into `n_chars` characters, at least one.
pub(super) fn text(n: usize, n_chars: usize) -> String {
    let words = SENTENCES.iter().cycle().skip(n % SENTENCES.len()).flat_map(|sentence| sentence.split(' '));
    let mut text = String::new();
    for word in words {
        if !text.is_empty() && text.len() + 1 + word.len() > n_chars {
            break;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(word);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::fakes::tts::{FakeTts, MS_PER_CHAR};

    #[tokio::test(start_paused = true)]
    async fn all_of_a_text_is_spoken_and_its_first_sound_timed() {
        let tts = FakeTts::default().delayed(Duration::from_millis(30));
        let stage = TtsStage { tts: Arc::new(tts), voice: "tone".into(), speed: 1.0, n_chars: 120, chunked: false };
        let answer = stage.ask(3).await.expect("spoken");
        let said = text(3, 120);
        assert!((100..=120).contains(&said.len()), "{said}");
        assert_eq!(answer.audio, Duration::from_millis(said.len() as u64 * MS_PER_CHAR));
        let first = answer.first.expect("a sound").as_millis();
        assert!((30..33).contains(&first), "{first}");
        let cut = TtsStage { chunked: true, ..stage };
        assert!(cut.chunks(3).len() > 1);
        assert_ne!(text(0, 60), text(1, 60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_hears_what_is_made() {
        let tts = FakeTts::default();
        let stage =
            TtsStage { tts: Arc::new(tts.clone()), voice: "tone".into(), speed: 1.0, n_chars: 120, chunked: true };
        stage.ask(3).await.expect("spoken");
        let unplayed: Vec<_> = tts.requests().iter().map(|request| request.unplayed).collect();
        assert_eq!(unplayed[0], Some(Duration::ZERO));
        // Paused time does not advance: nothing of the first chunk has been played.
        let first = stage.chunks(3)[0].chars().count() as u64;
        assert_eq!(unplayed[1], Some(Duration::from_millis(first * MS_PER_CHAR)));
    }
}
