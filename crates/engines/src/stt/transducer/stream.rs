//! What an utterance and the engine share: mel frames one way, tokens the other.
//!
//! The utterance appends frames and asks for the end, the engine takes chunks and gives tokens. Each holds the lock for the time
//! of a copy. Frames that no chunk has taken are bounded: the caller that appends waits for room. The engine never waits here.

use super::files::{Normalization, Sizes};
use super::vocabulary::Token;
use antiphon_audio::mel::nemo;
use antiphon_engine_api::stt::SttError;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Mel frames that may wait for the engine, 10 s; past it a push waits.
const MAX_AHEAD: usize = 1_000;

/// The longest that a chunk waits for those of other streams, so that one run serves them all; a tenth of the chunk where that is
/// less. The end of speech does not wait.
const COMPANY_WAIT: Duration = Duration::from_millis(20);

/// See the module.
pub struct Stream {
    n_mels: usize,
    window: usize,
    shift: usize,
    normalization: Normalization,
    chunk: Duration,
    state: Mutex<State>,
    /// The engine took a chunk, answered or failed. The utterance alone waits for it.
    progress: Notify,
}

struct State {
    /// Frames from the first one of the next window on, band by band.
    frames: VecDeque<f32>,
    /// Chunks that were taken.
    n_chunks: usize,
    /// Since when the next window has been complete.
    complete_since: Instant,
    /// When the next chunk is due: chunks that come faster than their sound lasts are due at the pace of the sound.
    due: Instant,
    tokens: Vec<Token>,
    question: Option<Question>,
    n_questions: u64,
    answer: Option<Answer>,
    failure: Option<String>,
    is_abandoned: bool,
}

/// The utterance asks for all tokens, as they are if it ends here.
struct Question {
    number: u64,
    /// The frames that complete the window; none where no chunk has begun.
    tail: Vec<f32>,
    is_final: bool,
    asked: Instant,
}

struct Answer {
    number: u64,
    tokens: Vec<Token>,
}

/// What the engine takes from a stream for a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// A window of mel frames, [frames, bands]; empty where a question needs none.
    pub frames: Vec<f32>,
    /// The question that its tokens answer.
    pub question: Option<u64>,
    /// Whether the stream goes on behind it.
    pub keeps: bool,
    /// Whether the stream ends with it.
    pub is_last: bool,
}

/// A question that was asked. Dropping it withdraws the question.
pub struct PendingAnswer<'a> {
    stream: &'a Stream,
    number: u64,
}

impl Stream {
    /// A stream that begins, with frames of zeros before its first chunk.
    pub fn new(sizes: &Sizes) -> Self {
        let now = Instant::now();
        let state = State {
            frames: vec![0.0; sizes.lead() * sizes.n_mels].into(),
            n_chunks: 0,
            complete_since: now,
            due: now,
            tokens: Vec::new(),
            question: None,
            n_questions: 0,
            answer: None,
            failure: None,
            is_abandoned: false,
        };
        Self {
            n_mels: sizes.n_mels,
            window: sizes.window,
            shift: sizes.shift,
            normalization: sizes.normalization,
            chunk: Duration::from_millis(sizes.chunk_ms() as u64),
            state: Mutex::new(state),
            progress: Notify::new(),
        }
    }

    /// Appends frames. Returns whether a chunk is complete that was not before: the engine is to be woken.
    pub fn append(&self, frames: &[f32]) -> bool {
        let mut state = self.lock();
        let was_complete = self.is_complete(&state);
        state.frames.extend(frames);
        let is_new = !was_complete && self.is_complete(&state);
        if is_new {
            let now = Instant::now();
            state.complete_since = now;
            state.due = state.due.max(now);
        }
        is_new
    }

    /// Waits until the engine has taken enough of what was appended.
    ///
    /// # Errors
    /// The engine failed.
    pub async fn room(&self) -> Result<(), SttError> {
        loop {
            {
                let state = self.lock();
                failure(&state)?;
                if state.frames.len() <= MAX_AHEAD.max(2 * self.window) * self.n_mels {
                    return Ok(());
                }
            }
            self.progress.notified().await;
        }
    }

    /// Asks for all tokens, with the frames that complete the last window. The engine is to be woken.
    pub fn ask(&self, tail: Vec<f32>, is_final: bool) -> PendingAnswer<'_> {
        let mut state = self.lock();
        state.n_questions += 1;
        let number = state.n_questions;
        state.question = Some(Question { number, tail, is_final, asked: Instant::now() });
        PendingAnswer { stream: self, number }
    }

    /// The tokens so far, which are final.
    ///
    /// # Errors
    /// The engine failed.
    pub fn tokens(&self) -> Result<Vec<Token>, SttError> {
        let state = self.lock();
        failure(&state)?;
        Ok(state.tokens.clone())
    }

    /// The utterance is gone. The engine is to be woken.
    pub fn abandon(&self) {
        self.lock().is_abandoned = true;
    }

    /// For the engine: whether the utterance is gone.
    pub fn is_abandoned(&self) -> bool {
        self.lock().is_abandoned
    }

    /// For the engine: whether there is a chunk or a question.
    pub fn has_work(&self) -> bool {
        let state = self.lock();
        state.question.is_some() || self.is_complete(&state)
    }

    /// For the engine: until when the next chunk may wait for those of others; `None`: a question waits for its answer.
    pub fn company_until(&self) -> Option<Instant> {
        let state = self.lock();
        state.question.is_none().then(|| state.complete_since + COMPANY_WAIT.min(self.chunk / 10))
    }

    /// For the engine: when its next work is due.
    pub fn due(&self) -> Instant {
        let state = self.lock();
        state.question.as_ref().map_or(state.due, |question| question.asked.min(state.due))
    }

    /// For the engine: takes the next chunk; `None`: there is none.
    pub fn take(&self) -> Option<Chunk> {
        let mut state = self.lock();
        if self.is_complete(&state) {
            let mut frames: Vec<f32> = state.frames.range(..self.window * self.n_mels).copied().collect();
            self.normalize(&mut frames, state.n_chunks);
            self.advance(&mut state);
            return Some(Chunk { frames, question: None, keeps: true, is_last: false });
        }
        let question = state.question.take()?;
        let mut frames = Vec::new();
        if !question.tail.is_empty() {
            frames.extend(&state.frames);
            frames.extend_from_slice(&question.tail);
            frames.resize(self.window * self.n_mels, 0.0);
            self.normalize(&mut frames, state.n_chunks);
        }
        Some(Chunk { frames, question: Some(question.number), keeps: question.is_final, is_last: question.is_final })
    }

    /// For the engine: gives the tokens of a chunk.
    pub fn give(&self, chunk: &Chunk, tokens: Vec<Token>) {
        let mut state = self.lock();
        match chunk.question {
            None => state.tokens.extend(tokens),
            Some(number) => {
                let mut all = state.tokens.clone();
                all.extend(tokens);
                state.answer = Some(Answer { number, tokens: all });
            }
        }
        drop(state);
        self.progress.notify_one();
    }

    /// For the engine: the stream cannot go on.
    pub fn fail(&self, message: &str) {
        self.lock().failure = Some(message.to_owned());
        self.progress.notify_one();
    }

    fn is_complete(&self, state: &State) -> bool {
        state.frames.len() >= self.window * self.n_mels
    }

    /// Normalizes the window of the chunk of that number, where the model wants it. NeMo counts the zeros before the first chunk
    /// as sound in the first window; those that a later window still has stay zeros.
    fn normalize(&self, window: &mut [f32], n_chunks: usize) {
        if self.normalization == Normalization::None {
            return;
        }
        let lead = self.window - self.shift;
        let n_zeros = if n_chunks == 0 { 0 } else { lead.saturating_sub(n_chunks * self.shift) };
        nemo::normalize(&mut window[n_zeros * self.n_mels..], self.n_mels);
    }

    /// Moves on by a chunk.
    fn advance(&self, state: &mut State) {
        state.n_chunks += 1;
        state.frames.drain(..self.shift * self.n_mels);
        state.complete_since = Instant::now();
        state.due += self.chunk;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingAnswer<'_> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The engine failed.
    pub async fn tokens(&self) -> Result<Vec<Token>, SttError> {
        loop {
            {
                let mut state = self.stream.lock();
                failure(&state)?;
                if let Some(answer) = state.answer.take_if(|answer| answer.number == self.number) {
                    return Ok(answer.tokens);
                }
            }
            self.stream.progress.notified().await;
        }
    }
}

impl Drop for PendingAnswer<'_> {
    fn drop(&mut self) {
        let mut state = self.stream.lock();
        state.question = state.question.take().filter(|question| question.number != self.number);
    }
}

fn failure(state: &State) -> Result<(), SttError> {
    match &state.failure {
        None => Ok(()),
        Some(message) => Err(SttError::Engine { message: message.clone(), source: None }),
    }
}
