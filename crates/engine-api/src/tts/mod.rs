//! The port of text to speech: one chunk of text in, PCM out as it is made.
//!
//! An engine never splits a chunk and never decides what is spoken.

mod error;
mod playout;

pub use error::TtsError;
pub use playout::PlayoutEstimate;

use antiphon_types::Pcm;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde::Serialize;
use std::time::Duration;

/// One chunk to speak.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechRequest {
    /// Plain speakable text, normalized, not empty.
    pub text: String,
    /// A voice's id; one the engine does not know falls to the engine's default voice (clients send OpenAI's names).
    pub voice: String,
    /// Rate of speech, 1.0 is the voice's own; 0.25 to 4.0.
    pub speed: f32,
    /// How much audio the listener still has to hear before this chunk is wanted; zero for the first one. `None`: nobody
    /// listens while it is made.
    pub unplayed: Option<Duration>,
}

/// A voice one can choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Voice {
    /// What a request names.
    pub id: String,
    /// What a page shows.
    pub name: String,
    /// BCP-47 tag.
    pub language: String,
}

/// The port: one engine, shared by all sessions.
pub trait Tts: Send + Sync {
    /// The engine's name as configured, for `/readyz` and the logs.
    fn name(&self) -> &str;

    /// Opens the connection the first chunk will need. The server calls it once at start; a local engine has nothing to
    /// do. An error says why its server cannot be reached; the engine may be used all the same.
    fn warm(&self) -> BoxFuture<'_, Result<(), TtsError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// How many chunks wait for the engine now.
    fn waiting(&self) -> usize {
        0
    }

    /// The voices, the default one first. Never empty.
    fn voices(&self) -> &[Voice];

    /// Whether a request may name `voice`: one of [`Self::voices`], or what else the engine understands. The text of an
    /// error says what is wrong with it, and what would be right.
    fn check_voice(&self, voice: &str) -> Result<(), String> {
        let ids: Vec<_> = self.voices().iter().map(|voice| voice.id.as_str()).collect();
        if ids.contains(&voice) {
            return Ok(());
        }
        Err(format!("there is no voice {voice:?}; {} has {}", self.name(), listed(&ids)))
    }

    /// The language that `voice` speaks, a BCP-47 tag; of a name that is none, the one of the default voice, which speaks then.
    fn language(&self, voice: &str) -> &str {
        let voices = self.voices();
        let speaks = voices.iter().find(|known| known.id == voice).or(voices.first());
        speaks.map_or("en", |voice| &voice.language)
    }

    /// Speaks one chunk. PCM comes as it is made, at the engine's own rate, the same rate within one stream; dropping
    /// the stream cancels the work. [`TtsError::Overloaded`] when too many wait.
    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>>;

    /// The same, waiting while the engine's queue has no room, first come, first served: the future ends when the chunk has
    /// its place. The wait has no bound and no deadline of its own; dropping the future gives the place up. An engine without a
    /// queue of its own speaks at once.
    fn speak_queued(&self, request: SpeechRequest) -> BoxFuture<'static, BoxStream<'static, Result<Pcm, TtsError>>> {
        Box::pin(std::future::ready(self.speak(request)))
    }
}

/// The first of many names, and how many more there are: a voice file may hold 900 speakers.
pub fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 20;
    match names.len().saturating_sub(SHOWN) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..SHOWN].join(", ")),
    }
}
