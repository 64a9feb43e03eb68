//! A chunk that is spoken: its voice found, its text read, its tokens taken as they come, their sound put together.
//!
//! [`SpeechLm`](super::SpeechLm) makes one for each request. It runs in the task of who reads the sound, and does
//! nothing while a client does not read: frames wait in their channel, whose room is the sequence's credit. Dropping it
//! abandons the sequence and the window under way.

use super::SpeechContext;
use super::condition::Conditioning;
use super::engine::{BACKGROUND, Request, Step, Tokens};
use super::text::TextToSpeak;
use super::vocode::{Assembler, Job, State, VocodedWindow, Window};
use antiphon_engine_api::tts::{Passage, SpeechRequest, TtsError};
use antiphon_types::{Meter, Pcm, SampleRate};
use futures_util::stream::Stream;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;

/// Passages whose last tokens are kept, for the chunk that follows.
const MAX_PASSAGES: usize = 256;

/// A chunk that is spoken.
pub(super) struct ChunkSpeech {
    shared: Arc<SpeechContext>,
    conditioning: Arc<Conditioning>,
    listening: SequenceReader,
    passage: Option<Passage>,
    /// When the listener will have heard all sound.
    dry_at: Instant,
    meter: Meter,
}

impl ChunkSpeech {
    /// Finds the voice and reads the text. Waits for the voice's conditioning.
    pub(super) async fn prepare(
        shared: Arc<SpeechContext>,
        request: SpeechRequest,
    ) -> Result<(Self, Request), TtsError> {
        let (conditioning, language) = shared.voice(&request.voice).await?;
        let transcript = conditioning.transcript.as_deref().unwrap_or_default();
        let instructions = request.instructions.as_deref().unwrap_or_default();
        let ids = shared.reader.ids(TextToSpeak { text: &request.text, language: &language, transcript, instructions });
        let ids = ids.map_err(|error| TtsError::Engine { message: error.to_string(), source: None })?;
        let seed = request.seed.unwrap_or_else(rand::random);
        let n_chars = request.text.chars().count();
        let (job, tokens) = Request::new(conditioning.clone(), ids, n_chars, seed, request.unplayed);
        let job = job.metered(request.meter.clone());
        let meter = request.meter;
        let dry_at = Instant::now() + request.unplayed.unwrap_or(BACKGROUND);
        let listening = SequenceReader { tokens: Some(tokens), shared: shared.clone() };
        Ok((Self { shared, conditioning, listening, passage: request.passage, dry_at, meter }, job))
    }

    /// The chunk's sound. Dropping the stream abandons its sequence and its window.
    pub(super) fn sound(mut self) -> impl Stream<Item = Result<Pcm, TtsError>> + Send + 'static {
        async_stream::stream! {
            let shared = self.shared.clone();
            let voice = self.conditioning.digest;
            let mut assembler = Assembler::new(&shared.contract, &shared.ends.take(self.passage, &voice));
            let mut is_complete = false;
            let mut state = None;
            loop {
                if let Some(window) = assembler.window() {
                    match self.vocode(window, state.take()).await {
                        Ok((sound, left)) => {
                            state = left;
                            let pcm = pcm(&assembler.sound(&sound), shared.contract.rate_hz);
                            self.dry_at = self.dry_at.max(Instant::now()) + pcm.duration();
                            yield Ok(pcm);
                        }
                        Err(error) => {
                            yield Err(error);
                            return;
                        }
                    }
                    continue;
                }
                if is_complete {
                    shared.ends.keep(self.passage, voice, assembler.last_tokens());
                    return;
                }
                match self.listening.next().await {
                    Some(Step::Frame(codes)) => assembler.push(codes.ids()),
                    Some(Step::End) => {
                        is_complete = true;
                        assembler.complete();
                    }
                    Some(Step::Failed(error)) => {
                        yield Err(error);
                        return;
                    }
                    None => {
                        let message = "the engine ended in the middle of the speech".into();
                        yield Err(TtsError::Engine { message, source: None });
                        return;
                    }
                }
            }
        }
    }

    /// The sound of a window, and the state for the next one. Waits for room at the vocoder, since the speech may sound
    /// already.
    async fn vocode(&self, window: Window, state: Option<State>) -> Result<VocodedWindow, TtsError> {
        let unplayed = self.dry_at.saturating_duration_since(Instant::now());
        let (job, sound) = Job::new(window, self.conditioning.clone(), state, unplayed);
        let job = job.metered(self.meter.clone());
        let failed = |message: String| TtsError::Engine { message, source: None };
        self.shared.vocoder.enqueue(job).await;
        let sound = sound.await.map_err(|_| failed("the vocoder ended".into()))?;
        sound.map_err(|error| failed(error.to_string()))
    }
}

/// The reader's end of a sequence. Dropping it abandons the sequence, and has the schedulers look for it.
struct SequenceReader {
    tokens: Option<Tokens>,
    shared: Arc<SpeechContext>,
}

impl SequenceReader {
    async fn next(&mut self) -> Option<Step> {
        let slots = &self.shared.slots;
        self.tokens.as_mut()?.next(|| slots.wake()).await
    }
}

impl Drop for SequenceReader {
    fn drop(&mut self) {
        self.tokens = None;
        self.shared.slots.wake();
        self.shared.vocoder.has_abandoned();
    }
}

/// The last tokens of chunks by the chunk that follows, the latest first: context for the vocoder at its beginning.
pub(super) struct Ends {
    /// Whether chunks follow each other so: whether the one before has ended in time is an accident.
    is_kept: bool,
    ends: Mutex<VecDeque<End>>,
}

/// The chunk that follows, the voice's digest, and the tokens.
type End = (Passage, [u8; 32], Vec<i64>);

impl Ends {
    /// None yet. Where `is_kept` is false, each chunk begins without context.
    pub(super) fn new(is_kept: bool) -> Self {
        Self { is_kept, ends: Mutex::default() }
    }

    /// The last tokens of the chunk before this one, where it was in the same voice and has ended.
    fn take(&self, passage: Option<Passage>, voice: &[u8; 32]) -> Vec<i64> {
        let Some(passage) = passage else { return Vec::new() };
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let place = ends.iter().position(|(known, spoken, _)| (*known, spoken) == (passage, voice));
        place.and_then(|place| ends.remove(place)).map(|(.., tokens)| tokens).unwrap_or_default()
    }

    fn keep(&self, passage: Option<Passage>, voice: [u8; 32], tokens: &[i64]) {
        let Some(passage) = passage.filter(|_| self.is_kept) else { return };
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.push_front((passage.following(), voice, tokens.to_vec()));
        ends.truncate(MAX_PASSAGES);
    }
}

/// Samples of full scale 1.0 as PCM; what is louder is clipped.
fn pcm(sound: &[f32], rate_hz: u32) -> Pcm {
    let samples = sound.iter().map(|sample| (sample.clamp(-1.0, 1.0) * 32_767.0).round() as i16).collect();
    Pcm { rate: SampleRate::new(rate_hz), samples }
}
