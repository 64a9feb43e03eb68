//! Speech of a text that is still being written: words in, PCM out, at the same time.
//!
//! `session` uses it where an engine offers it ([`Tts::speak_text`](super::Tts::speak_text)); the engine keeps the other end.

use super::{Passage, TtsError};
use crate::Hop;
use antiphon_types::{Meter, Pcm};
use futures_util::stream::BoxStream;
use tokio::sync::mpsc;

/// Words an engine holds that it has not taken yet; further ones wait, and with them the model that writes them.
pub const WORDS_AHEAD: usize = 32;

/// How a text that is still being written is to be spoken. The fields are those of
/// [`SpeechRequest`](super::SpeechRequest).
#[derive(Clone, Debug, PartialEq)]
pub struct TextRequest {
    /// Voice id.
    pub voice: String,
    /// Speech rate relative to the voice's default of 1.0; 0.25 to 4.0.
    pub speed: f32,
    /// Seed of an engine that samples.
    pub seed: Option<u64>,
    /// The text it belongs to.
    pub passage: Option<Passage>,
    /// How to speak, for engines that can act.
    pub instructions: Option<String>,
    /// Filled in with the first sound by an engine that runs on another machine.
    pub hop: Hop,
    /// What the text costs, and who speaks it; the engine fills it in.
    pub meter: Meter,
}

/// Both ends of one text's speech.
pub struct TextSpeech {
    /// Takes pieces of one or a few words, normalized, not empty, without the blanks between them. Dropping it ends the text.
    /// Bounded by [`WORDS_AHEAD`]; closed once the engine has failed.
    pub words: mpsc::Sender<String>,
    /// What is spoken, in order. It ends when the text has ended and all of it was spoken; ending earlier is an error.
    /// Every wait for the engine has a deadline, which begins when the engine owes speech; waiting for words has none.
    /// Dropping it ends the engine's work.
    pub speech: BoxStream<'static, Result<SpokenPart, TtsError>>,
}

/// A part of a text's speech.
#[derive(Clone, Debug, PartialEq)]
pub enum SpokenPart {
    /// The audio that follows speaks the next pieces of the text, this many. Pieces that no part names are spoken by the
    /// audio before them.
    Pieces(usize),
    /// Audio, at a rate that is constant within a text.
    Audio(Pcm),
}
