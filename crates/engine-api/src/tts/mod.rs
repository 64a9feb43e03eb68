//! The text-to-speech port: one chunk of text in, a stream of PCM out; for an engine that offers it, also words in as they
//! are written ([`TextSpeech`]).
//!
//! An engine never splits a chunk and never decides what is spoken.

mod error;
mod library;
mod playout;
mod text;

pub use error::TtsError;
pub use library::{
    Consent, CustomVoice, NewVoice, Recording, UnusableVoice, VoiceError, VoiceLibrary, VoiceLimits, VoiceScope,
    find_voice, is_uploaded_id, uploaded_id,
};
pub use playout::PlayoutEstimate;
pub use text::{SpokenPart, TextRequest, TextSpeech, WORDS_AHEAD};

use crate::{Hop, REMOTE_CONCURRENCY, Upstreams};
use antiphon_types::{Meter, Pcm};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One chunk to synthesize.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechRequest {
    /// Normalized text, not empty.
    pub text: String,
    /// Voice id. An unknown id selects the engine's default voice, because clients send OpenAI's voice names.
    pub voice: String,
    /// Speech rate relative to the voice's default of 1.0; 0.25 to 4.0.
    pub speed: f32,
    /// Playing time of the audio ahead of this chunk that the listener has not heard yet; zero for the first chunk.
    /// `None`: the audio is not played while it is synthesized.
    pub unplayed: Option<Duration>,
    /// Seed of the randomness of an engine that samples. The same text, voice and seed give the same speech, apart from
    /// rounding where others share the engine's runs (`tts.deterministic` rules that out). `None`: the engine draws one.
    pub seed: Option<u64>,
    /// The text this chunk belongs to. Chunks of one passage are spoken one after another by one voice, so that an engine may
    /// condition a chunk on the end of the one before. `None`: the chunk stands alone.
    pub passage: Option<Passage>,
    /// How to speak ("whisper", "like a news reader"), for engines that can act; others ignore it. `None`: as the voice does.
    pub instructions: Option<String>,
    /// Whether a batch that has this chunk begins at once, instead of waiting for others to share its run: the hub is
    /// overloaded.
    pub immediate: bool,
    /// Filled in with the chunk's first sound by an engine that runs on another machine.
    pub hop: Hop,
    /// What the chunk costs, and who speaks it; the engine fills it in.
    pub meter: Meter,
}

/// A chunk's place in a text: a response, a request of the speech API, a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Passage {
    text: u64,
    place: u32,
}

impl Passage {
    /// The first chunk of a text, which no other text of this process is taken for.
    pub fn first() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { text: NEXT.fetch_add(1, Ordering::Relaxed), place: 0 }
    }

    /// The chunk at this place of the same text, counted from 0.
    pub const fn at(self, place: u32) -> Self {
        Self { place, ..self }
    }

    /// The text's number in this process.
    pub const fn text(self) -> u64 {
        self.text
    }

    /// The chunk's place in its text.
    pub const fn place(self) -> u32 {
        self.place
    }

    /// The chunk after this one.
    pub fn following(self) -> Self {
        Self { place: self.place.wrapping_add(1), ..self }
    }
}

impl Default for SpeechRequest {
    /// An empty text by the default voice at its normal speed, standing alone.
    fn default() -> Self {
        Self {
            text: String::new(),
            voice: String::new(),
            speed: 1.0,
            unplayed: None,
            seed: None,
            passage: None,
            instructions: None,
            immediate: false,
            hop: Hop::default(),
            meter: Meter::default(),
        }
    }
}

/// An available voice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Voice {
    /// Id used in requests.
    pub id: String,
    /// Display name.
    pub name: String,
    /// BCP-47 tag.
    pub language: String,
}

/// The slots of an engine that runs the sequences of several listeners together, one step at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlotReport {
    /// Listeners that are served at once.
    pub n_slots: usize,
    /// Slots in use now.
    pub in_use: usize,
    /// Chunks that wait for a slot.
    pub waiting: usize,
    /// Memory of the engine's cache for one token, in bytes.
    pub bytes_per_token: usize,
    /// Memory of the cache of a slot whose sequence is as long as it may be, in bytes.
    pub bytes_per_slot: usize,
    /// Time of a decode step, with the prefills before it, in thousandths of the sound that it makes for each listener: beyond
    /// 1,000 replies run dry. Smoothed over some steps; 0: there are none now.
    pub step_permille: u64,
}

/// How far an engine gives the same speech for the same request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repeats {
    /// The words come at other times.
    #[default]
    Never,
    /// Everything is where it was, to some milliseconds, and the samples differ: the engine adds noise. A cross-fade hides the
    /// difference.
    InTime,
    /// Sample for sample.
    Exactly,
}

/// The text-to-speech port: one engine, shared by all sessions.
pub trait Tts: Send + Sync {
    /// The engine's name as configured, for `/readyz` and the logs.
    fn name(&self) -> &str;

    /// Opens the connection for the first chunk. The server calls it once at start; a local engine does nothing. An
    /// error explains why the server cannot be reached; the engine may still be used.
    fn warm(&self) -> BoxFuture<'_, Result<(), TtsError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Chunks it synthesizes at the same time; further ones wait in its queue. At least 1.
    fn concurrency(&self) -> usize {
        REMOTE_CONCURRENCY
    }

    /// How far the same request gives the same speech again, in another process with the same model and settings, too: what
    /// broke off there can go on here.
    fn repeats(&self, _request: &SpeechRequest) -> Repeats {
        Repeats::Never
    }

    /// Number of chunks in the queue.
    fn waiting(&self) -> usize {
        0
    }

    /// Number of chunks that are being synthesized now; 0 where it is not known.
    fn in_service(&self) -> usize {
        0
    }

    /// The same stage with its fallback engine alone, for new sessions of an overloaded hub, counted with this one; `None`: it
    /// has none.
    fn smaller(&self) -> Option<Arc<dyn Tts>> {
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

    /// Slots and memory of an engine that serves its listeners in slots; `None` for others.
    fn slots(&self) -> Option<SlotReport> {
        None
    }

    /// What its voices read as something else than words, such as "[laugh]": texts are cleaned of brackets and tags, and
    /// these stay. None is empty.
    fn marks(&self) -> Vec<String> {
        Vec::new()
    }

    /// The available voices, default first, with the operator's custom voices and without uploaded ones, which are not
    /// everybody's. Never empty. They may change while the engine serves: see [`Self::voice_library`].
    fn voices(&self) -> Vec<Voice>;

    /// Checks that the engine has `voice`: one of [`Self::voices`] or of the library, or another name that the engine
    /// accepts. The error text states what is wrong and which names are valid. Whose voice it is, [`find_voice`] checks.
    fn check_voice(&self, voice: &str) -> Result<(), String> {
        check_voice(self, voice)
    }

    /// The BCP-47 language tag of `voice`; for an unknown name, that of the default voice, which is used instead.
    fn language(&self, voice: &str) -> String {
        language_of(self, voice)
    }

    /// Where voices can be added to the engine from reference recordings; `None` for an engine whose voices are fixed.
    fn voice_library(&self) -> Option<Arc<dyn VoiceLibrary>> {
        None
    }

    /// Synthesizes one chunk. PCM is streamed as it is produced, at the engine's rate, which is constant within a
    /// stream. Dropping the stream cancels the work. Fails with [`TtsError::Overloaded`] if the queue is full.
    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>>;

    /// Speaks a text that is still being written: its words go to the engine as they come, and the engine decides where a
    /// sentence ends. `None` where the engine takes complete chunks only, or cannot speak this request so. Does not block
    /// and connects to nothing before the first words. Dropping the speech ends the engine's work on it.
    fn speak_text(&self, _request: TextRequest) -> Option<TextSpeech> {
        None
    }

    /// The same as [`Self::speak`], waiting while the engine's queue has no room, first come, first served: the future ends when the chunk has
    /// its place. The wait has no bound and no deadline of its own; dropping the future gives the place up. An engine without a
    /// queue of its own speaks at once.
    fn speak_queued(&self, request: SpeechRequest) -> BoxFuture<'static, BoxStream<'static, Result<Pcm, TtsError>>> {
        Box::pin(std::future::ready(self.speak(request)))
    }
}

/// The id of the one voice that a list has while no worker has said which voices there are: a list is never empty.
pub const UNKNOWN_VOICE: &str = "default";

/// [`Tts::check_voice`] by the voices that the engine lists and those of its library.
///
/// # Errors
/// What is wrong, and which names are valid.
pub fn check_voice<T: Tts + ?Sized>(engine: &T, voice: &str) -> Result<(), String> {
    let voices = engine.voices();
    let ids: Vec<_> = voices.iter().map(|voice| voice.id.as_str()).collect();
    let is_custom = || engine.voice_library().is_some_and(|library| library.list().iter().any(|one| one.id == voice));
    if ids.contains(&voice) || is_custom() {
        return Ok(());
    }
    Err(format!("there is no voice {voice:?}; {} has {}", engine.name(), listed(&ids)))
}

/// [`Tts::language`] by the voices that the engine lists and those of its library.
pub fn language_of<T: Tts + ?Sized>(engine: &T, voice: &str) -> String {
    let voices = engine.voices();
    if let Some(known) = voices.iter().find(|known| known.id == voice) {
        return known.language.clone();
    }
    let custom = || engine.voice_library()?.list().into_iter().find(|known| known.id == voice);
    let speaks = custom().map(|voice| voice.language).or_else(|| Some(voices.first()?.language.clone()));
    speaks.unwrap_or_else(|| "en".into())
}

/// A comma-separated list of the first names and the number of omitted ones; a voice file may have 900 speakers.
pub fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 20;
    match names.len().saturating_sub(SHOWN) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..SHOWN].join(", ")),
    }
}
