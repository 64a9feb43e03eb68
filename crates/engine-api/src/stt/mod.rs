//! The port of speech to text: an utterance in; partial, provisional and final transcripts out.
//!
//! It is asynchronous, so that a remote engine implements it directly. An engine never decides when a turn is over, and
//! never keeps audio after its utterance is dropped.

mod error;

pub use error::SttError;

use antiphon_types::SampleRate;
use futures_util::future::BoxFuture;
use std::borrow::Cow;
use std::sync::Arc;

/// The rate of all PCM given to an engine: mono, 16 kHz.
pub const RATE: SampleRate = SampleRate::HZ_16000;

/// What an engine understood.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// The words, as the engine writes them; empty when nothing was said.
    pub text: String,
    /// How sure the engine is, in `[0, 1]`, where it can tell.
    pub confidence: Option<f32>,
    /// What the engine learnt of the speaker, for the next utterance of the same session.
    pub speaker: Option<SpeakerState>,
    /// How sure it is of each token, where it was asked and can tell.
    pub logprobs: Option<Vec<TokenLogprob>>,
    /// The same words with their times, where they were asked for and the engine has them; else empty.
    pub segments: Vec<Segment>,
    /// What was spoken, as an ISO-639-1 code, where the engine knows it.
    pub language: Option<String>,
}

/// A stretch of speech that the engine understood as one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// Its words, without white space around them.
    pub text: String,
    /// Where it begins, from the utterance's beginning.
    pub start_ms: u64,
    /// Where it ends; never before it begins.
    pub end_ms: u64,
    /// Its words one by one, in order; empty where the engine has no times for them.
    pub words: Vec<Word>,
    /// The engine's own numbers of its tokens, special ones left out.
    pub tokens: Vec<u32>,
    /// The temperature it was decoded at.
    pub temperature: Option<f32>,
    /// Mean natural logarithm of its tokens' probabilities.
    pub avg_logprob: Option<f32>,
    /// How likely it is that nobody spoke, in `[0, 1]`.
    pub no_speech: Option<f32>,
}

/// A word and when it was said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Word {
    /// The word with the punctuation that clings to it, without white space.
    pub text: String,
    /// Where it begins, from the utterance's beginning.
    pub start_ms: u64,
    /// Where it ends; never before it begins.
    pub end_ms: u64,
    /// How sure the engine is of it, in `[0, 1]`.
    pub probability: Option<f32>,
}

/// How sure an engine is of one token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// The token as text.
    pub token: String,
    /// Natural logarithm of its probability.
    pub logprob: f64,
}

/// What an engine adapts to a voice or a microphone. It travels with the session and never stays in a shared decoder.
#[derive(Clone, Debug, PartialEq)]
pub enum SpeakerState {
    /// PocketSphinx: the cepstral means.
    Means(Vec<f32>),
    /// Whisper: the language that was found last, as an ISO-639-1 code.
    Language(&'static str),
}

/// The sentences that a language model understands, for recognizers with a closed vocabulary.
///
/// The grammars share one notation. `<name> = ...;` defines a rule, `<request>` is the first one; `|` separates
/// alternatives; `[...]` is there one time in two; `(...)+` comes one to five times; `/3/` before an alternative makes it
/// three times as likely as one without; an alternative may be empty; `<word>` is any of [`words`](Self::words). A line that
/// begins with `#` is a comment. All words are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VocabularyHint {
    /// What people ask. An n-gram model of sentences drawn from it leaves other word orders possible.
    pub grammar: Cow<'static, str>,
    /// Rules that replace those of `grammar` of the same name where whole sentences only are searched, so that they must be
    /// fewer. `<every_word>` is any of `words` there.
    pub exact: Cow<'static, str>,
    /// What may be spelled or repeated, a word a line.
    pub words: Cow<'static, str>,
    /// Further words, each on a line with its ARPAbet phones, for a recognizer whose dictionary lacks them.
    pub pronunciations: Cow<'static, str>,
}

/// What a session asks of an utterance's decoding.
#[derive(Clone, Debug, Default)]
pub struct SttOptions {
    /// ISO-639-1 code; `None`: the engine's own choice.
    pub language: Option<String>,
    /// Words to expect, where the engine can use them.
    pub prompt: Option<String>,
    /// What the language model understands ([`Llm::vocabulary`](crate::llm::Llm::vocabulary)), where it understands only that.
    /// An engine may use it only where it was loaded with the same one.
    pub vocabulary: Option<Arc<VocabularyHint>>,
    /// From this session's last transcript.
    pub speaker: Option<SpeakerState>,
    /// Each token's probability is wanted, where the engine has it.
    pub logprobs: bool,
    /// The transcript's segments are wanted, where the engine has them.
    pub segments: bool,
    /// How freely the engine may guess, 0 to 1, where it can; `None`: its own choice.
    pub temperature: Option<f32>,
    /// What was said is wanted in English, whatever language it was said in. Only of engines that can: [`Stt::translates`].
    pub translate: bool,
}

/// An utterance that has its place in the queue of an engine.
pub type OpeningUtterance = BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>>;

/// The port: one engine, shared by all sessions.
pub trait Stt: Send + Sync {
    /// The engine's name as configured, for `/readyz` and the logs.
    fn name(&self) -> &str;

    /// Opens the connection the first utterance will need. The server calls it once at start; a local engine has nothing to
    /// do. An error says why its server cannot be reached; the engine may be used all the same.
    fn warm(&self) -> BoxFuture<'_, Result<(), SttError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether it can write down in English what was said in another language.
    fn translates(&self) -> bool {
        false
    }

    /// How many utterances wait for a decoder now.
    fn waiting(&self) -> usize {
        0
    }

    /// Opens a stream for one utterance.
    ///
    /// Waits its turn, first come first served, while every decoder is taken: the session keeps the utterance's PCM
    /// meanwhile and sets the deadline. Dropping the future gives the place up. [`SttError::Busy`] when too many wait
    /// already.
    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>>;

    /// The same in two waits: for room in the engine's queue, first come, first served, and then for a decoder. Neither has a
    /// bound or a deadline of its own; dropping the future gives the place up. An engine without a queue of its own is
    /// ready for the second at once.
    fn open_queued(&self, options: SttOptions) -> BoxFuture<'static, OpeningUtterance> {
        Box::pin(std::future::ready(self.open(options)))
    }
}

/// One utterance being decoded. Dropping it cancels the work and frees the decoder.
pub trait SttUtterance: Send {
    /// Takes the next mono PCM at [`RATE`], any length. Waits while the engine is behind; nothing is dropped.
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>>;

    /// What was understood so far. `None` where the engine has no partials.
    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>>;

    /// What the final transcript would be if the utterance ended here; the stream stays open.
    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>>;

    /// Ends the utterance.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>>;

    /// Ends an utterance whose guess was taken for its final transcript; gives what the engine learnt of the speaker, if
    /// it learns anything.
    fn learn(self: Box<Self>) -> BoxFuture<'static, Option<SpeakerState>> {
        Box::pin(std::future::ready(None))
    }
}
