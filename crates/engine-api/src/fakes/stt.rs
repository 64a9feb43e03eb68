//! A fake speech recognizer for tests and benchmarks: it returns scripted transcripts or the number of samples
//! received.

use super::FakeWorker;
use crate::stt::{DETECT_LANGUAGE, SpeakerState, Stt, SttError, SttOptions, SttUtterance, TokenLogprob, Transcript};
use crate::{Hop, REMOTE_CONCURRENCY};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Returns the scripted transcripts in order, then `"utterance of N samples"`.
#[derive(Clone)]
pub struct FakeStt {
    script: Arc<Mutex<VecDeque<Result<String, String>>>>,
    /// Delay of `finish`.
    pub delay: Duration,
    /// An utterance takes a permit while it is open.
    pub decoders: Arc<Semaphore>,
    /// Utterances that are still to be refused for want of a decoder.
    n_refused: Arc<AtomicUsize>,
    /// Pieces of audio that it is still to fail at.
    n_failing_pushes: Arc<AtomicUsize>,
    open: Arc<OpenUtterances>,
    provisional_delay: Duration,
    /// Their delay.
    partials: Option<Duration>,
    /// Samples before which words so far are none.
    n_wordless: usize,
    /// Samples of an utterance at each request for its words so far.
    partial_requests: Arc<Mutex<Vec<usize>>>,
    /// The audio of each utterance that ended.
    recordings: Option<Arc<Mutex<Vec<Vec<i16>>>>>,
    translates: bool,
    /// Of the scripted transcripts, where it detects them.
    detected: Option<Arc<BTreeMap<String, String>>>,
    known: Option<Vec<String>>,
    worker: Option<FakeWorker>,
    is_away: bool,
    concurrency: Option<usize>,
    /// Of each utterance that was opened.
    speakers: Arc<Mutex<Vec<Option<SpeakerState>>>>,
}

#[derive(Default)]
struct OpenUtterances {
    n: AtomicUsize,
    most: AtomicUsize,
}

impl Default for FakeStt {
    fn default() -> Self {
        Self {
            script: Arc::default(),
            delay: Duration::ZERO,
            decoders: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            n_refused: Arc::default(),
            n_failing_pushes: Arc::default(),
            open: Arc::default(),
            provisional_delay: Duration::ZERO,
            partials: None,
            n_wordless: 0,
            partial_requests: Arc::default(),
            recordings: None,
            translates: false,
            detected: None,
            known: None,
            worker: None,
            is_away: false,
            concurrency: None,
            speakers: Arc::default(),
        }
    }
}

impl FakeStt {
    /// Makes an utterance wait until one of this many decoders is free.
    pub fn with_decoders(self, n: usize) -> Self {
        Self { decoders: Arc::new(Semaphore::new(n)), ..self }
    }

    /// Makes it refuse this many utterances for want of a decoder.
    pub fn refusing(self, n: usize) -> Self {
        Self { n_refused: Arc::new(AtomicUsize::new(n)), ..self }
    }

    /// Makes it fail with "no memory" at this many pieces of audio.
    pub fn failing_at_audio(self, n: usize) -> Self {
        Self { n_failing_pushes: Arc::new(AtomicUsize::new(n)), ..self }
    }

    /// The most utterances that were open at the same time.
    pub fn most_open(&self) -> usize {
        self.open.most.load(Ordering::SeqCst)
    }

    /// Sets the delay of provisional transcripts.
    pub fn provisional_after(self, delay: Duration) -> Self {
        Self { provisional_delay: delay, ..self }
    }

    /// Enables partial transcripts, which take this long.
    pub fn with_partials_after(self, delay: Duration) -> Self {
        Self { partials: Some(delay), ..self }
    }

    /// Makes partial transcripts of fewer samples than these empty.
    pub fn wordless_before(self, n_samples: usize) -> Self {
        Self { n_wordless: n_samples, ..self }
    }

    /// The number of samples of an utterance at each request for its partial transcript.
    pub fn partial_requests(&self) -> Vec<usize> {
        self.partial_requests.lock().expect("no panic while locked").clone()
    }

    /// Makes it keep the audio of utterances.
    pub fn recording(self) -> Self {
        Self { recordings: Some(Arc::default()), ..self }
    }

    /// The audio of each utterance that ended, in order. Only after [`FakeStt::recording`].
    pub fn recordings(&self) -> Vec<Vec<i16>> {
        let recordings = self.recordings.as_ref().expect("it records");
        recordings.lock().expect("no panic while locked").clone()
    }

    /// Sets the number of utterances that it says it serves at once.
    pub fn with_concurrency(self, n: usize) -> Self {
        Self { concurrency: Some(n), ..self }
    }

    /// The speaker adaptation of each utterance that was opened, in order.
    pub fn speakers(&self) -> Vec<Option<SpeakerState>> {
        self.speakers.lock().expect("no panic while locked").clone()
    }

    /// Enables translation: "in English: " is prepended to the transcript of an utterance opened with `translate`.
    pub fn translating(self) -> Self {
        Self { translates: true, ..self }
    }

    /// Sets the delay of `finish`.
    pub fn delayed(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Makes it one that runs on another machine: each transcript says that `worker` made it, and that
    /// the network took `network` of the time.
    pub fn served_by(self, worker: &str, network: Duration) -> Self {
        Self { worker: Some(FakeWorker::new(worker, network)), ..self }
    }

    /// The same after this number of attempts that other workers failed at. Only after [`FakeStt::served_by`].
    pub fn retried(mut self, retried: u32) -> Self {
        self.worker.iter_mut().for_each(|worker| worker.retried = retried);
        self
    }

    /// Makes it one whose workers cannot be reached.
    pub fn away(self) -> Self {
        Self { is_away: true, ..self }
    }

    /// Enables partial transcripts: each partial is the complete scripted transcript.
    pub fn with_partials(self) -> Self {
        self.with_partials_after(Duration::ZERO)
    }

    /// An engine that returns these transcripts in this order.
    pub fn hears<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let script = texts.into_iter().map(|text| Ok(text.to_owned())).collect();
        Self { script: Arc::new(Mutex::new(script)), ..Self::default() }
    }

    /// The same, which transcribes these languages only.
    pub fn of_languages(self, known: &[&str]) -> Self {
        Self { known: Some(known.iter().map(|code| (*code).to_owned()).collect()), ..self }
    }

    /// An engine that detects the language: it returns these transcripts in this order, each behind the language that it reports
    /// where it is asked to detect it.
    pub fn detects<'a>(spoken: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let spoken: Vec<(&str, &str)> = spoken.into_iter().collect();
        let detected = spoken.iter().map(|(language, text)| ((*text).to_owned(), (*language).to_owned())).collect();
        Self { detected: Some(Arc::new(detected)), ..Self::hears(spoken.into_iter().map(|(_, text)| text)) }
    }

    /// Appends a failure with this message to the script.
    pub fn then_fails(self, message: &str) -> Self {
        self.script.lock().expect("no panic while locked").push_back(Err(message.to_owned()));
        self
    }
}

impl Stt for FakeStt {
    fn name(&self) -> &str {
        "fake"
    }

    fn translates(&self) -> bool {
        self.translates
    }

    fn languages(&self) -> Option<Vec<String>> {
        self.known.clone()
    }

    fn detects_language(&self) -> bool {
        self.detected.is_some()
    }

    fn concurrency(&self) -> usize {
        self.concurrency.unwrap_or(REMOTE_CONCURRENCY)
    }

    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        if self.is_away {
            return ready(Err(SttError::Away("no worker serves stt".into()))).boxed();
        }
        let one_less = |n: usize| n.checked_sub(1);
        if self.n_refused.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            return ready(Err(SttError::Busy { waiting: 64 })).boxed();
        }
        self.speakers.lock().expect("no panic while locked").push(options.speaker.clone());
        let engine = self.clone();
        async move {
            let decoder = engine.decoders.clone().acquire_owned().await.expect("never closed");
            Ok(Box::new(FakeUtterance::new(engine, decoder, options)) as Box<dyn SttUtterance>)
        }
        .boxed()
    }
}

struct FakeUtterance {
    engine: FakeStt,
    n_samples: usize,
    logprobs: bool,
    translate: bool,
    detects: bool,
    hop: Hop,
    /// Empty unless the engine records.
    pcm: Vec<i16>,
    _decoder: OwnedSemaphorePermit,
}

impl Drop for FakeUtterance {
    fn drop(&mut self) {
        self.engine.open.n.fetch_sub(1, Ordering::SeqCst);
    }
}

impl FakeUtterance {
    fn new(engine: FakeStt, decoder: OwnedSemaphorePermit, options: SttOptions) -> Self {
        let n_open = engine.open.n.fetch_add(1, Ordering::SeqCst) + 1;
        engine.open.most.fetch_max(n_open, Ordering::SeqCst);
        let detects = options.language.as_deref() == Some(DETECT_LANGUAGE);
        let SttOptions { logprobs, translate, hop, .. } = options;
        Self { engine, n_samples: 0, logprobs, translate, detects, hop, pcm: Vec::new(), _decoder: decoder }
    }

    /// The next scripted transcript.
    fn next(&self) -> String {
        let script = self.engine.script.lock().expect("no panic while locked");
        match script.front() {
            Some(Ok(text)) => text.clone(),
            _ => format!("utterance of {} samples", self.n_samples),
        }
    }

    fn take(&self) -> Option<Result<String, String>> {
        self.engine.script.lock().expect("no panic while locked").pop_front()
    }

    fn transcript(&self, text: String) -> Transcript {
        self.engine.worker.iter().for_each(|worker| worker.fill(&self.hop));
        let languages = self.engine.detected.as_ref().filter(|_| self.detects);
        let language = languages.and_then(|languages| languages.get(&text).cloned());
        // The fake reports full confidence for each token.
        let text = if self.translate { format!("in English: {text}") } else { text };
        let token = |word: &str| TokenLogprob { token: word.to_owned(), logprob: 0.0 };
        let logprobs = self.logprobs.then(|| text.split_whitespace().map(token).collect());
        Transcript { text, logprobs, language, confidence: Some(1.0), ..Transcript::default() }
    }
}

impl SttUtterance for FakeUtterance {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        let one_less = |n: usize| n.checked_sub(1);
        if self.engine.n_failing_pushes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            return ready(Err(SttError::Engine { message: "no memory".into(), source: None })).boxed();
        }
        self.n_samples += pcm.len();
        if self.engine.recordings.is_some() {
            self.pcm.extend(pcm);
        }
        ready(Ok(())).boxed()
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        self.engine.partial_requests.lock().expect("no panic while locked").push(self.n_samples);
        let Some(delay) = self.engine.partials else { return ready(Ok(None)).boxed() };
        let text = if self.n_samples < self.engine.n_wordless { String::new() } else { self.next() };
        let partial = self.transcript(text);
        after(delay, Ok(Some(partial)))
    }

    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        let fails = matches!(self.engine.script.lock().expect("no panic while locked").front(), Some(Err(_)));
        let guess = if fails {
            Err(SttError::Engine { message: "no provisional transcript".into(), source: None })
        } else {
            Ok(self.transcript(self.next()))
        };
        after(self.engine.provisional_delay, guess)
    }

    fn learn(self: Box<Self>) -> BoxFuture<'static, Option<SpeakerState>> {
        self.take();
        ready(None).boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        async move {
            if !self.engine.delay.is_zero() {
                tokio::time::sleep(self.engine.delay).await;
            }
            if let Some(recordings) = &self.engine.recordings {
                recordings.lock().expect("no panic while locked").push(std::mem::take(&mut self.pcm));
            }
            match self.take() {
                Some(Ok(text)) => Ok(self.transcript(text)),
                Some(Err(message)) => Err(SttError::Engine { message, source: None }),
                None => Ok(self.transcript(format!("utterance of {} samples", self.n_samples))),
            }
        }
        .boxed()
    }
}

/// The result, after a delay.
fn after<T: Send + 'static>(delay: Duration, result: Result<T, SttError>) -> BoxFuture<'static, Result<T, SttError>> {
    async move {
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        result
    }
    .boxed()
}
