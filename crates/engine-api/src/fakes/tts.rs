//! A fake voice engine for tests and benchmarks: a tone whose length is proportional to the text.

use super::FakeWorker;
use crate::Hop;
use crate::tts::{Repeats, SpeechRequest, SpokenPart, TextRequest, TextSpeech, Tts, TtsError, Voice, WORDS_AHEAD};
use antiphon_types::{Meter, Pcm, SampleRate};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use std::f32::consts::TAU;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};

/// Renders each character as 50 ms of a 220 Hz tone at 24 kHz, in blocks of 100 ms.
#[derive(Clone)]
pub struct FakeTts {
    voices: Vec<Voice>,
    /// Delay before each block.
    pub delay: Duration,
    /// A chunk that contains this text fails.
    pub fails_on: Option<String>,
    /// Whether it takes a text word by word.
    pub takes_words: bool,
    /// A chunk takes a permit before it is spoken.
    pub gate: Arc<Semaphore>,
    /// Chunks that are still to be refused for want of room.
    n_refused: Arc<AtomicUsize>,
    panics_on: Option<String>,
    repeats: Repeats,
    sound: Option<Pcm>,
    worker: Option<FakeWorker>,
    is_away: bool,
    requests: watch::Sender<Vec<SpeechRequest>>,
    spoken: Arc<Mutex<Vec<String>>>,
}

/// Playing time per character in milliseconds.
pub const MS_PER_CHAR: u64 = 50;

impl Default for FakeTts {
    fn default() -> Self {
        let voice = Voice { id: "tone".into(), name: "Tone".into(), language: "en-US".into() };
        Self {
            voices: vec![voice],
            delay: Duration::ZERO,
            fails_on: None,
            takes_words: false,
            gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            n_refused: Arc::default(),
            panics_on: None,
            repeats: Repeats::Exactly,
            sound: None,
            worker: None,
            is_away: false,
            requests: watch::Sender::default(),
            spoken: Arc::default(),
        }
    }
}

impl FakeTts {
    /// Sets the delay before each block.
    pub fn delayed(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Replaces its voices: the id and the language of each, the default first.
    pub fn with_voices<'a>(self, voices: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let voice = |(id, language): (&str, &str)| Voice { id: id.into(), name: id.into(), language: language.into() };
        Self { voices: voices.into_iter().map(voice).collect(), ..self }
    }

    /// What it was asked for so far, without hop and meter.
    pub fn requests(&self) -> Vec<SpeechRequest> {
        self.requests.borrow().clone()
    }

    /// Waits until it was asked for this many chunks.
    pub async fn asked(&self, n_chunks: usize) {
        let mut requests = self.requests.subscribe();
        requests.wait_for(|all| all.len() >= n_chunks).await.expect("the sender is in `self`");
    }

    /// The voice of each chunk that it was asked for so far.
    pub fn spoken_by(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.voice).collect()
    }

    /// The text of each chunk that it has begun to speak.
    pub fn spoken(&self) -> Vec<String> {
        self.spoken.lock().expect("no panic while locked").clone()
    }

    /// Makes it speak this many chunks; each further one waits for a permit of its gate.
    pub fn held(self, n_chunks: usize) -> Self {
        Self { gate: Arc::new(Semaphore::new(n_chunks)), ..self }
    }

    /// Makes it refuse this many chunks for want of room.
    pub fn refusing(self, n_chunks: usize) -> Self {
        Self { n_refused: Arc::new(AtomicUsize::new(n_chunks)), ..self }
    }

    /// Makes it one that never says the same twice, as far as it reports.
    pub fn unrepeatable(self) -> Self {
        Self { repeats: Repeats::Never, ..self }
    }

    /// Makes it answer each chunk with this sound.
    pub fn with_sound(self, sound: Pcm) -> Self {
        Self { sound: Some(sound), ..self }
    }

    /// Makes it take a text word by word: each piece is spoken as a chunk of its own, as soon as it comes.
    pub fn taking_words(self) -> Self {
        Self { takes_words: true, ..self }
    }

    /// Makes it one that runs on another machine: the first sound of each chunk says that `worker` made it, and that the
    /// network took `network` of the time.
    pub fn served_by(self, worker: &str, network: Duration) -> Self {
        Self { worker: Some(FakeWorker::new(worker, network)), ..self }
    }

    /// The same after this number of attempts that other workers failed at. Only after [`FakeTts::served_by`].
    pub fn retried(mut self, retried: u32) -> Self {
        self.worker.iter_mut().for_each(|worker| worker.retried = retried);
        self
    }

    /// Makes it one whose workers cannot be reached.
    pub fn away(self) -> Self {
        Self { is_away: true, ..self }
    }

    /// Makes chunks that contain `text` fail.
    pub fn failing_on(self, text: &str) -> Self {
        Self { fails_on: Some(text.to_owned()), ..self }
    }

    /// Makes it panic at chunks that contain `text`.
    pub fn panicking_on(self, text: &str) -> Self {
        Self { panics_on: Some(text.to_owned()), ..self }
    }

    /// The sound of a chunk, or its failure.
    fn sound(self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let contains = |word: &Option<String>| word.as_ref().is_some_and(|word| request.text.contains(word.as_str()));
        assert!(!contains(&self.panics_on), "on purpose");
        if contains(&self.fails_on) {
            let error = TtsError::Engine { message: "told to fail".into(), source: None };
            return stream::iter([Err(error)]).boxed();
        }
        let Pcm { rate, samples } = self.sound.unwrap_or_else(|| tone(&request.text));
        let piece_length = rate.hz() as usize / 10;
        let pieces: Vec<Pcm> =
            samples.chunks(piece_length).map(|piece| Pcm { rate, samples: piece.to_vec() }).collect();
        let delay = self.delay;
        let worker = self.worker;
        let hop = request.hop;
        stream::iter(pieces)
            .then(move |piece| async move {
                if !delay.is_zero() {
                    tokio::time::sleep(delay).await;
                }
                Ok(piece)
            })
            .inspect(move |_| worker.iter().for_each(|worker| worker.fill(&hop)))
            .boxed()
    }
}

fn tone(text: &str) -> Pcm {
    let rate = SampleRate::HZ_24000;
    let n_chars = text.chars().count() as u64;
    let n_samples = (n_chars * MS_PER_CHAR * u64::from(rate.hz()) / 1_000) as usize;
    let sample = |i: usize| (8_000.0 * (TAU * 220.0 * i as f32 / rate.hz() as f32).sin()) as i16;
    Pcm { rate, samples: (0..n_samples).map(sample).collect() }
}

impl Tts for FakeTts {
    fn name(&self) -> &str {
        "fake"
    }

    fn repeats(&self, _: &SpeechRequest) -> Repeats {
        self.repeats
    }

    fn voices(&self) -> Vec<Voice> {
        self.voices.clone()
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        if self.is_away {
            return stream::iter([Err(TtsError::Away("no worker serves tts".into()))]).boxed();
        }
        let one_less = |n: usize| n.checked_sub(1);
        if self.n_refused.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            return stream::iter([Err(TtsError::Overloaded { waiting: 64 })]).boxed();
        }
        let asked = SpeechRequest { hop: Hop::default(), meter: Meter::default(), ..request.clone() };
        self.requests.send_modify(|all| all.push(asked));
        let this = self.clone();
        let spoken = async move {
            this.gate.acquire().await.expect("never closed").forget();
            this.spoken.lock().expect("no panic while locked").push(request.text.clone());
            this.sound(request)
        };
        stream::once(spoken).flatten().boxed()
    }

    fn speak_text(&self, request: TextRequest) -> Option<TextSpeech> {
        if !self.takes_words {
            return None;
        }
        let (words, pieces) = mpsc::channel(WORDS_AHEAD);
        let (engine, TextRequest { voice, speed, hop, .. }) = (self.clone(), request);
        let pieces = stream::unfold(pieces, |mut pieces| async { Some((pieces.recv().await?, pieces)) });
        let speech = pieces.flat_map(move |text: String| {
            let voice = voice.clone();
            let hop = hop.clone();
            let request = SpeechRequest { text, voice, speed, hop, ..SpeechRequest::default() };
            let audio = engine.speak(request).map(|pcm| pcm.map(SpokenPart::Audio));
            stream::iter([Ok(SpokenPart::Pieces(1))]).chain(audio)
        });
        Some(TextSpeech { words, speech: speech.boxed() })
    }
}
