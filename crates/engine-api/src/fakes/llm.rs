//! A fake language model for tests and benchmarks: it streams scripted responses delta by delta.

use crate::llm::{Llm, LlmDelta, LlmError};
use antiphon_types::chat::{ChatRequest, Finish, Message};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

/// One scripted response: its deltas, or the failure that ends it.
type Answer = Vec<Result<LlmDelta, String>>;

/// Streams the scripted responses in order, one delta per word; if the script is empty it repeats the last user
/// message.
#[derive(Clone)]
pub struct FakeLlm {
    script: Arc<Mutex<VecDeque<Answer>>>,
    requests: Arc<Mutex<Vec<ChatRequest>>>,
    takes_images: bool,
    loading_limit: Option<Duration>,
    /// Delay before each delta.
    pub delay: Duration,
    /// A response takes a permit before it begins.
    pub gate: Arc<Semaphore>,
}

impl Default for FakeLlm {
    fn default() -> Self {
        Self {
            script: Arc::default(),
            requests: Arc::default(),
            takes_images: false,
            loading_limit: None,
            delay: Duration::ZERO,
            gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        }
    }
}

impl FakeLlm {
    /// Makes it give this many responses; each further one waits for a permit of its gate.
    pub fn held(self, n_responses: usize) -> Self {
        Self { gate: Arc::new(Semaphore::new(n_responses)), ..self }
    }

    /// Sets the delay before each delta.
    pub fn delayed(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// The model takes images.
    pub fn seeing(self) -> Self {
        Self { takes_images: true, ..self }
    }

    /// The model may have to be loaded, which takes at most this long.
    pub fn loading(self, limit: Duration) -> Self {
        Self { loading_limit: Some(limit), ..self }
    }

    /// An engine that streams these responses in this order.
    pub fn says<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let fake = Self::default();
        for text in texts {
            fake.then(words(text));
        }
        fake
    }

    /// Appends a response made of these deltas; an `Err` ends it with a failure.
    pub fn then(&self, deltas: Vec<Result<LlmDelta, String>>) {
        self.script.lock().expect("no panic while locked").push_back(deltas);
    }

    /// The requests received so far.
    pub fn requests(&self) -> Vec<ChatRequest> {
        self.requests.lock().expect("no panic while locked").clone()
    }
}

/// The deltas of a plain response, one per word.
pub fn words(text: &str) -> Vec<Result<LlmDelta, String>> {
    let mut deltas: Vec<_> = text.split_inclusive(' ').map(|word| Ok(LlmDelta::Text(word.to_owned()))).collect();
    deltas.push(Ok(LlmDelta::Done { finish: Finish::Stop, usage: None }));
    deltas
}

impl Llm for FakeLlm {
    fn name(&self) -> &str {
        "fake"
    }

    fn takes_images(&self) -> bool {
        self.takes_images
    }

    fn loading_limit(&self) -> Option<Duration> {
        self.loading_limit
    }

    fn stream(&self, request: ChatRequest) -> BoxStream<'static, Result<LlmDelta, LlmError>> {
        let next = self.script.lock().expect("no panic while locked").pop_front();
        let deltas = next.unwrap_or_else(|| {
            let last = request.messages.iter().rev().find_map(Message::user_text);
            words(&format!("You said: {}", last.unwrap_or_default()))
        });
        self.requests.lock().expect("no panic while locked").push(request);
        let delay = self.delay;
        let gate = self.gate.clone();
        let released = async move {
            gate.acquire().await.expect("never closed").forget();
            stream::iter(deltas)
        };
        stream::once(released)
            .flatten()
            .then(move |delta| async move {
                if !delay.is_zero() {
                    tokio::time::sleep(delay).await;
                }
                delta.map_err(LlmError::Protocol)
            })
            .boxed()
    }
}
