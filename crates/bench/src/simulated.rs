//! Simulated engines of fixed cost, for measures in which only the way to the engine counts.
//!
//! Each run of the batch scheduler sleeps and uses no processor. The recognizer returns the mark in the recording
//! ([`mock`](super::mock)), the language model answers with its name, and the voice speaks a tone of the mark's frequency
//! whose level says which word it is: a listener counts the words that were lost or doubled ([`Words`]). The same text gives
//! the same samples. `antiphon-bench cluster` runs them in the hub or on workers. They transcribe and speak nothing real.

use super::mock;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_engine_api::llm::{Llm, LlmDelta, LlmError};
use antiphon_engine_api::stt::{Stt, SttError, SttOptions, SttUtterance, Transcript};
use antiphon_engine_api::tts::{Repeats, SpeechRequest, Tts, TtsError, Voice};
use antiphon_inference::pool::Overloaded;
use antiphon_inference::pool::batch::{BatchEngine, BatchFailure, BatchScheduler, BatchSettings, Entry};
use antiphon_types::chat::{ChatRequest, Finish, Message};
use antiphon_types::{Pcm, SampleRate};
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Rate of the voice: that of the client, so that nothing is resampled.
pub(super) const RATE: SampleRate = SampleRate::HZ_24000;

/// Entries that may wait for a run.
const MAX_WAITING: usize = 1_024;

/// The level of the first word, and the ratio of a word's level to that of the word before it.
const LOUDEST: f64 = 12_000.0;
const SOFTER: f64 = 0.89;

/// A word's level is measured in blocks of 10 ms.
const BLOCK_MS: u64 = 10;

/// The costs of the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A run of either engine.
    pub run: Duration,
    /// Entries in a run at most.
    pub batch: usize,
    /// Playing time of a word, which one run makes; a multiple of 10 ms.
    pub word: Duration,
}

/// How many engines there are, and how long a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Instances of the recognizer and of the voice, each with runs of its own.
    pub instances: usize,
    /// Words of a reply.
    pub reply_words: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self { instances: 1, reply_words: mock::N_WORDS }
    }
}

/// The voice: each run makes one word of each text in it.
pub struct SimulatedTts {
    scheduler: BatchScheduler<SpeechJob>,
    costs: Costs,
    instances: usize,
}

/// The recognizer: a transcript takes one run.
pub struct SimulatedStt {
    scheduler: BatchScheduler<TranscriptionJob>,
    concurrency: usize,
}

/// The language model: it answers at once, in words.
struct MarkedLlm {
    reply_words: usize,
}

/// The engines of a hub that has all of them itself. Blocks until their threads run.
///
/// # Errors
/// A thread cannot be started.
pub fn engines(costs: Costs, shape: Shape) -> Result<Engines, String> {
    let stt = SimulatedStt::start_many(costs, shape.instances)?;
    let tts = SimulatedTts::start_many(costs, shape.instances)?;
    let llm = Arc::new(MarkedLlm { reply_words: shape.reply_words });
    Ok(Engines { llm, ..with(Arc::new(stt), Arc::new(tts)) })
}

/// The engines of a hub with this recognizer and this voice.
pub fn with(stt: Arc<dyn Stt>, tts: Arc<dyn Tts>) -> Engines {
    Engines {
        vad: Arc::new(FakeVad),
        turn: None,
        speaker: None,
        stt,
        llm: Arc::new(MarkedLlm { reply_words: mock::N_WORDS }),
        tts,
    }
}

fn settings(costs: Costs, n_replicas: usize) -> BatchSettings {
    BatchSettings { n_replicas, max_batch: costs.batch, max_wait: Duration::ZERO, max_waiting: MAX_WAITING }
}

impl SimulatedTts {
    /// Blocks until its thread runs.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(costs: Costs) -> Result<Self, String> {
        Self::start_many(costs, 1)
    }

    fn start_many(costs: Costs, instances: usize) -> Result<Self, String> {
        let settings = settings(costs, instances);
        let scheduler = BatchScheduler::start("simulated-tts", settings, move |_| Ok::<_, String>(Runs(costs)))?;
        Ok(Self { scheduler, costs, instances })
    }
}

impl Tts for SimulatedTts {
    fn name(&self) -> &str {
        "simulated"
    }

    fn concurrency(&self) -> usize {
        self.costs.batch * self.instances
    }

    fn repeats(&self, _: &SpeechRequest) -> Repeats {
        Repeats::Exactly
    }

    fn waiting(&self) -> usize {
        self.scheduler.waiting()
    }

    fn in_service(&self) -> usize {
        self.scheduler.in_service()
    }

    fn voices(&self) -> Vec<Voice> {
        vec![Voice { id: "tone".into(), name: "Tone".into(), language: "en-US".into() }]
    }

    fn check_voice(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let words = words(&request.text);
        let (sounds, receiver) = mpsc::channel(words.len().max(1));
        let hz = mock::voice_hz(&request.text);
        let job = SpeechJob { words, hz, n_made: 0, n_samples: 0, submitted: Instant::now(), sounds };
        if let Err((Overloaded { waiting }, _)) = self.scheduler.submit(job) {
            return stream::iter([Err(TtsError::Overloaded { waiting })]).boxed();
        }
        stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) }).boxed()
    }
}

/// A text that is being spoken.
struct SpeechJob {
    words: Vec<f64>,
    hz: f64,
    n_made: usize,
    n_samples: usize,
    submitted: Instant,
    sounds: mpsc::Sender<Result<Pcm, TtsError>>,
}

impl Entry for SpeechJob {
    fn deadline(&self) -> Instant {
        self.submitted
    }

    fn is_abandoned(&self) -> bool {
        self.sounds.is_closed()
    }

    fn fail(self, failure: BatchFailure) {
        // The channel has room for a sound of each word.
        let _ = self.sounds.try_send(Err(TtsError::Engine { message: failure.to_string(), source: None }));
    }
}

impl SpeechJob {
    /// Makes the next word; `false` after the last one.
    fn step(&mut self, word: Duration) -> bool {
        let Some(level) = self.words.get(self.n_made) else { return false };
        let samples = tone(self.hz, *level, self.n_samples, RATE.samples_in(word).0 as usize);
        self.n_samples += samples.len();
        self.n_made += 1;
        let sent = self.sounds.try_send(Ok(Pcm { rate: RATE, samples }));
        sent.is_ok() && self.n_made < self.words.len()
    }
}

impl SimulatedStt {
    /// Blocks until its thread runs.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(costs: Costs) -> Result<Self, String> {
        Self::start_many(costs, 1)
    }

    fn start_many(costs: Costs, instances: usize) -> Result<Self, String> {
        let settings = settings(costs, instances);
        let scheduler = BatchScheduler::start("simulated-stt", settings, move |_| Ok::<_, String>(Runs(costs)))?;
        Ok(Self { scheduler, concurrency: costs.batch * instances })
    }
}

impl Stt for SimulatedStt {
    fn name(&self) -> &str {
        "simulated"
    }

    fn concurrency(&self) -> usize {
        self.concurrency
    }

    fn waiting(&self) -> usize {
        self.scheduler.waiting()
    }

    fn in_service(&self) -> usize {
        self.scheduler.in_service()
    }

    fn open(&self, _: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        let utterance = Utterance { scheduler: self.scheduler.clone(), pcm: Vec::new() };
        ready(Ok(Box::new(utterance) as Box<dyn SttUtterance>)).boxed()
    }
}

struct Utterance {
    scheduler: BatchScheduler<TranscriptionJob>,
    pcm: Vec<i16>,
}

impl Utterance {
    async fn transcript(&self) -> Result<Transcript, SttError> {
        let (sender, done) = oneshot::channel();
        let job = TranscriptionJob { submitted: Instant::now(), done: sender };
        self.scheduler.submit(job).map_err(|(Overloaded { waiting }, _)| SttError::Busy { waiting })?;
        done.await.map_err(|_| SttError::Cancelled)??;
        Ok(Transcript { text: mock::transcript(&self.pcm), ..Transcript::default() })
    }
}

impl SttUtterance for Utterance {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        self.pcm.extend_from_slice(&pcm);
        ready(Ok(())).boxed()
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        ready(Ok(None)).boxed()
    }

    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        self.transcript().boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        async move { self.transcript().await }.boxed()
    }
}

/// An utterance that waits for its transcript.
struct TranscriptionJob {
    submitted: Instant,
    done: oneshot::Sender<Result<(), SttError>>,
}

impl Entry for TranscriptionJob {
    fn deadline(&self) -> Instant {
        self.submitted
    }

    fn is_abandoned(&self) -> bool {
        self.done.is_closed()
    }

    fn fail(self, failure: BatchFailure) {
        let _ = self.done.send(Err(SttError::Engine { message: failure.to_string(), source: None }));
    }
}

/// An engine whose runs take a fixed time.
struct Runs(Costs);

impl BatchEngine<SpeechJob> for Runs {
    fn run(&mut self, batch: &mut Vec<SpeechJob>) -> Result<(), String> {
        std::thread::sleep(self.0.run);
        batch.retain_mut(|job| job.step(self.0.word));
        Ok(())
    }
}

impl BatchEngine<TranscriptionJob> for Runs {
    fn run(&mut self, batch: &mut Vec<TranscriptionJob>) -> Result<(), String> {
        std::thread::sleep(self.0.run);
        for job in batch.drain(..) {
            let _ = job.done.send(Ok(()));
        }
        Ok(())
    }
}

impl Llm for MarkedLlm {
    fn name(&self) -> &str {
        "simulated"
    }

    fn stream(&self, request: ChatRequest) -> BoxStream<'static, Result<LlmDelta, LlmError>> {
        let asked = request.messages.iter().rev().find_map(|message| match message {
            Message::User(text) => Some(text.as_str()),
            _ => None,
        });
        let text = mock::reply_of(asked.unwrap_or_default(), self.reply_words);
        let words: Vec<_> = text.split_inclusive(' ').map(|word| Ok(LlmDelta::Text(word.to_owned()))).collect();
        stream::iter(words.into_iter().chain([Ok(LlmDelta::Done { finish: Finish::Stop, usage: None })])).boxed()
    }
}

/// How the sound of a reply differs from the words that were to be spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Words of which some or all sound is missing.
    pub lost: usize,
    /// Words that sound again, or longer than they should, or out of their order.
    pub doubled: usize,
}

impl Words {
    /// Counts the words in the sound of a reply, at [`RATE`], in which each word sounds for `word`.
    pub(super) fn count(samples: &[i16], word: Duration) -> Self {
        let n_expected = mock::N_WORDS;
        let n_block = RATE.samples_in(Duration::from_millis(BLOCK_MS)).0 as usize;
        let n_word = (word.as_millis() as usize / BLOCK_MS as usize).max(1);
        let mut heard: Vec<(usize, usize)> = Vec::new();
        for block in samples.chunks(n_block) {
            let place = place_of(block);
            match heard.last_mut() {
                Some((last, n)) if *last == place => *n += 1,
                _ => heard.push((place, 1)),
            }
        }
        let mut words = Self::default();
        for place in 0..n_expected {
            let n: usize = heard.iter().filter(|(heard, _)| *heard == place).map(|(_, n)| n).sum();
            words.lost += usize::from(n < n_word);
            words.doubled += usize::from(n > n_word);
        }
        words.doubled += heard.windows(2).filter(|pair| pair[1].0 < pair[0].0).count();
        words
    }
}

/// The levels of a text's words.
fn words(text: &str) -> Vec<f64> {
    let words = text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    words.map(|word| level(mock::place(word))).collect()
}

fn level(place: usize) -> f64 {
    LOUDEST * SOFTER.powi(place as i32)
}

/// The word of a block of sound, from its effective level.
fn place_of(block: &[i16]) -> usize {
    let power = block.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>() / block.len() as f64;
    let level = (2.0 * power).sqrt().max(1.0);
    ((level / LOUDEST).ln() / SOFTER.ln()).round().max(0.0) as usize
}

/// Samples `from..from + n` of a sine of this peak.
fn tone(hz: f64, level: f64, from: usize, n: usize) -> Vec<i16> {
    let step = std::f64::consts::TAU * hz / f64::from(RATE.hz());
    (from..from + n).map(|i| (level * (step * i as f64).sin()) as i16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: Duration = Duration::from_millis(50);

    fn costs() -> Costs {
        Costs { run: Duration::from_millis(1), batch: 4, word: WORD }
    }

    async fn spoken(tts: &SimulatedTts, text: &str) -> Vec<i16> {
        let request = SpeechRequest { text: text.into(), ..SpeechRequest::default() };
        let pieces: Vec<_> = tts.speak(request).map(|pcm| pcm.expect("it speaks").samples).collect().await;
        pieces.concat()
    }

    #[tokio::test]
    async fn each_word_is_told_by_its_sound() {
        let tts = SimulatedTts::start(costs()).expect("it starts");
        let n = RATE.samples_in(WORD).0 as usize;
        for mark in [0, 1, 57, mock::MARKS - 1] {
            let text = mock::reply(&mock::name(mark));
            // In two chunks, as the hub has it spoken.
            let (first, rest) = text.split_at(text.find('.').expect("two sentences") + 1);
            let samples = [spoken(&tts, first).await, spoken(&tts, rest).await].concat();
            assert_eq!(samples.len(), mock::N_WORDS * n);
            assert_eq!(Words::count(&samples, WORD), Words::default(), "{text}");
            assert_eq!(Words::count(&samples[..3 * n], WORD), Words { lost: mock::N_WORDS - 3, doubled: 0 });
            let doubled = [&samples[..4 * n], &samples[3 * n..]].concat();
            assert_eq!(Words::count(&doubled, WORD), Words { lost: 0, doubled: 1 }, "one word twice");
            let again = [&samples[..4 * n], &samples[2 * n..]].concat();
            assert_eq!(Words::count(&again, WORD), Words { lost: 0, doubled: 3 }, "two words again, and out of order");
            let short = [&samples[..2 * n], &samples[2 * n + n / 2..]].concat();
            assert_ne!(Words::count(&short, WORD).lost, 0, "half of a word is missing");
        }
    }

    #[tokio::test]
    async fn an_utterance_gives_its_mark() {
        let stt = SimulatedStt::start(costs()).expect("it starts");
        let said: Vec<i16> = tone(440.0, 8_000.0, 0, 24_000);
        let marked = mock::marked(&said, (0, said.len()), 7);
        let pcm = antiphon_audio::convert(&marked, RATE, antiphon_engine_api::stt::RATE);
        let mut utterance = stt.open(SttOptions::default()).await.expect("opened");
        utterance.push(pcm).await.expect("taken");
        let text = utterance.finish().await.expect("transcribed").text;
        assert!(text.starts_with("hello "), "{text}");
    }
}
