//! The speech-to-text port: an utterance in; partial, provisional and final transcripts out.
//!
//! It is asynchronous, so that a remote engine can implement it directly. An engine never decides when a turn is over
//! and never keeps audio after its utterance is dropped.

mod error;
mod language;

pub use error::SttError;
pub use language::{LanguageError, requested_language};

use crate::{Hop, REMOTE_CONCURRENCY, Upstreams};
use antiphon_types::{Meter, SampleRate};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// Sampling rate of all PCM passed to an engine: mono, 16 kHz.
pub const RATE: SampleRate = SampleRate::HZ_16000;

/// Asks for the language to be detected, as [`SttOptions::language`] and as `stt.language`.
pub const DETECT_LANGUAGE: &str = "auto";

/// The transcript of an utterance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transcript {
    /// The text as written by the engine; empty if nothing was said.
    pub text: String,
    /// Confidence in `[0, 1]`, if the engine reports it.
    pub confidence: Option<f32>,
    /// Speaker adaptation for the next utterance of the same session.
    pub speaker: Option<SpeakerState>,
    /// Log probability of each token, if requested and supported.
    pub logprobs: Option<Vec<TokenLogprob>>,
    /// The text in segments with times, if requested and supported; otherwise empty.
    pub segments: Vec<Segment>,
    /// The spoken language as an ISO-639-1 code, if known.
    pub language: Option<String>,
    /// How many of its first words the engine is sure of. `None`: the engine does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_sure_words: Option<u32>,
    /// Of a partial transcript: how many of its first words later ones do not change.
    #[serde(default)]
    pub n_settled_words: u32,
}

/// A segment of a transcript.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// The text, without surrounding white space.
    pub text: String,
    /// Start in milliseconds from the start of the utterance.
    pub start_ms: u64,
    /// End in milliseconds; not before the start.
    pub end_ms: u64,
    /// The words in order; empty if the engine has no word times.
    pub words: Vec<Word>,
    /// Token ids of the engine, without special tokens.
    pub tokens: Vec<u32>,
    /// Decoding temperature.
    pub temperature: Option<f32>,
    /// Mean natural logarithm of the token probabilities.
    pub avg_logprob: Option<f32>,
    /// Probability in `[0, 1]` that the segment contains no speech.
    pub no_speech: Option<f32>,
}

/// A word with its times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Word {
    /// The word with adjacent punctuation, without white space.
    pub text: String,
    /// Start in milliseconds from the start of the utterance.
    pub start_ms: u64,
    /// End in milliseconds; not before the start.
    pub end_ms: u64,
    /// Confidence in `[0, 1]`.
    pub probability: Option<f32>,
}

/// The log probability of one token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// The token as text.
    pub token: String,
    /// Natural logarithm of the token's probability.
    pub logprob: f64,
}

/// Adaptation of an engine to a speaker or a microphone. It is stored in the session, never in a shared decoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SpeakerState {
    /// Whisper: the last detected language as an ISO-639-1 code.
    Language(Cow<'static, str>),
    /// The same code of the language that the client prefers; none was heard yet.
    PreferredLanguage(Cow<'static, str>),
}

/// Options for decoding one utterance.
#[derive(Clone, Debug, Default)]
pub struct SttOptions {
    /// ISO-639-1 code of the language, or [`DETECT_LANGUAGE`], only for engines that support it: [`Stt::detects_language`].
    /// `None`: the engine decides.
    pub language: Option<String>,
    /// Expected words, if the engine supports them.
    pub prompt: Option<String>,
    /// Adaptation from this session's last transcript.
    pub speaker: Option<SpeakerState>,
    /// Requests the log probability of each token, if supported.
    pub logprobs: bool,
    /// Requests segments, if supported.
    pub segments: bool,
    /// Sampling temperature, 0 to 1, if supported; `None`: the engine decides.
    pub temperature: Option<f32>,
    /// Requests a translation to English. Only for engines that support it: [`Stt::translates`].
    pub translate: bool,
    /// Filled in by an engine that runs on another machine, with each provisional or final transcript.
    pub hop: Hop,
    /// What the utterance costs, and who transcribes it; the engine fills it in.
    pub meter: Meter,
}

impl SttOptions {
    /// The code of the language to transcribe: the requested one, else the engine's `own`. `None`: the engine decides, or detects
    /// it.
    pub fn language_or<'a>(&'a self, own: Option<&'a str>) -> Option<&'a str> {
        self.language.as_deref().or(own).filter(|language| *language != DETECT_LANGUAGE)
    }
}

/// An utterance that has its place in the queue of an engine.
pub type OpeningUtterance = BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>>;

/// The speech-to-text port: one engine, shared by all sessions.
pub trait Stt: Send + Sync {
    /// The engine's name as configured, for `/readyz` and the logs.
    fn name(&self) -> &str;

    /// Opens the connection for the first utterance. The server calls it once at start; a local engine does nothing. An
    /// error explains why the server cannot be reached; the engine may still be used.
    fn warm(&self) -> BoxFuture<'_, Result<(), SttError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether the engine can translate speech to English.
    fn translates(&self) -> bool {
        false
    }

    /// The codes of the languages that it transcribes, as [`requested_language`] gives them; `None` where that is not known, as of
    /// a server elsewhere.
    fn languages(&self) -> Option<Vec<String>> {
        None
    }

    /// Whether the engine can detect the language of each utterance, and reports it with the transcript.
    fn detects_language(&self) -> bool {
        false
    }

    /// Whether a recording is transcribed in stretches of nearly 30 s, pauses included, rather than between two pauses: words
    /// are understood better by those around them. `timed`: times are requested, which an engine that reports none has of
    /// whole stretches only.
    fn takes_long_stretches(&self, timed: bool) -> bool {
        let _ = timed;
        false
    }

    /// Utterances it decodes at the same time; further ones wait in its queue. At least 1.
    fn concurrency(&self) -> usize {
        REMOTE_CONCURRENCY
    }

    /// Number of utterances that wait for a decoder.
    fn waiting(&self) -> usize {
        0
    }

    /// Number of utterances that have a decoder now; 0 where it is not known.
    fn in_service(&self) -> usize {
        0
    }

    /// The same stage with its fallback engine alone, for new sessions of an overloaded hub, counted with this one; `None`: it
    /// has none.
    fn smaller(&self) -> Option<Arc<dyn Stt>> {
        None
    }

    /// The engines that may serve this stage, with their circuit breakers; `None` for a local engine alone.
    fn upstreams(&self) -> Option<Upstreams> {
        None
    }

    /// How long the first output of a request may take before a second request is worth its cost, from the outputs before it;
    /// `None`: never.
    fn hedge_delay(&self) -> Option<Duration> {
        None
    }

    /// Opens a stream for one utterance.
    ///
    /// If all decoders are in use it waits in a FIFO queue; the session buffers the utterance's PCM meanwhile and sets
    /// the deadline. Dropping the future leaves the queue. Returns [`SttError::Busy`] if the queue is full.
    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>>;

    /// The same in two waits: for room in the engine's queue, first come, first served, and then for a decoder. Neither has a
    /// bound or a deadline of its own; dropping the future gives the place up. An engine without a queue of its own is
    /// ready for the second at once.
    fn open_queued(&self, options: SttOptions) -> BoxFuture<'static, OpeningUtterance> {
        Box::pin(std::future::ready(self.open(options)))
    }
}

/// One utterance being decoded. Dropping it cancels the work and releases the decoder.
pub trait SttUtterance: Send {
    /// Adds mono PCM at [`RATE`], any length. Waits while the engine is behind; no audio is dropped.
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>>;

    /// The partial transcript. `None` if the engine does not support partials.
    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>>;

    /// The provisional transcript: the final transcript if the utterance ended here. The stream stays open.
    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>>;

    /// Ends the utterance and returns the final transcript.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>>;

    /// Ends an utterance whose provisional transcript became the final one. Returns the speaker adaptation, if the
    /// engine supports it.
    fn learn(self: Box<Self>) -> BoxFuture<'static, Option<SpeakerState>> {
        Box::pin(std::future::ready(None))
    }
}
