//! An engine for tests and benchmarks: it answers at once, from a script, and says how much it heard.

use crate::stt::{SpeakerState, Stt, SttError, SttOptions, SttUtterance, TokenLogprob, Transcript};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Gives the scripted transcripts in order, then `"utterance of N samples"`.
#[derive(Clone, Default)]
pub struct FakeStt {
    script: Arc<Mutex<VecDeque<Result<String, String>>>>,
    /// How long `finish` takes.
    pub delay: Duration,
    partials: bool,
    translates: bool,
}

impl FakeStt {
    /// The same engine; it puts "in English: " before what it translates.
    pub fn translating(self) -> Self {
        Self { translates: true, ..self }
    }

    /// The same engine, slower.
    pub fn delayed(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// The same engine; what it will hear is its partial transcript from the beginning.
    pub fn with_partials(self) -> Self {
        Self { partials: true, ..self }
    }

    /// An engine that hears these texts, in this order.
    pub fn hears<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let script = texts.into_iter().map(|text| Ok(text.to_owned())).collect();
        Self { script: Arc::new(Mutex::new(script)), ..Self::default() }
    }

    /// The next utterance fails with this message.
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

    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        let (logprobs, translate) = (options.logprobs, options.translate);
        let utterance = FakeUtterance { engine: self.clone(), n_samples: 0, logprobs, translate };
        ready(Ok(Box::new(utterance) as Box<dyn SttUtterance>)).boxed()
    }
}

struct FakeUtterance {
    engine: FakeStt,
    n_samples: usize,
    logprobs: bool,
    translate: bool,
}

impl FakeUtterance {
    /// What it will hear.
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
        // It is sure of each word.
        let text = if self.translate { format!("in English: {text}") } else { text };
        let token = |word: &str| TokenLogprob { token: word.to_owned(), logprob: 0.0 };
        let logprobs = self.logprobs.then(|| text.split_whitespace().map(token).collect());
        Transcript { text, logprobs, confidence: Some(1.0), ..Transcript::default() }
    }
}

impl SttUtterance for FakeUtterance {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        self.n_samples += pcm.len();
        ready(Ok(())).boxed()
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        let partial = self.engine.partials.then(|| self.transcript(self.next()));
        ready(Ok(partial)).boxed()
    }

    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        let fails = matches!(self.engine.script.lock().expect("no panic while locked").front(), Some(Err(_)));
        let guess = if fails {
            Err(SttError::Engine { message: "no guess".into(), source: None })
        } else {
            Ok(self.transcript(self.next()))
        };
        ready(guess).boxed()
    }

    fn learn(self: Box<Self>) -> BoxFuture<'static, Option<SpeakerState>> {
        self.take();
        ready(None).boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        async move {
            if !self.engine.delay.is_zero() {
                tokio::time::sleep(self.engine.delay).await;
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
