//! The language model behind the slot scheduler: requests become sequences, logits become frames, frames go to the readers.
//!
//! Runs on the scheduler's thread. A request carries what its sequence needs; its frames leave by a bounded channel, whose
//! room is the stream's credit: a reader that is far behind pauses its own sequence and no other. It never waits for a reader
//! and makes no sound.
//!
//! A step is one run of the language model for all sequences, the drawing of a token for each, and, where a frame has several
//! codebooks, one run that draws the others for all frames.

use super::codes::Codes;
use super::condition::Conditioning;
use super::contract::{Contract, Length};
use super::lm::{Feed, FrameInputs, LanguageModel, Prompt, SequenceId, StepOutputs};
use super::sampling::{Sampler, Scratch};
use super::text::Ids;
use antiphon_engine_api::tts::TtsError;
use antiphon_inference::onnx::OnnxError;
use antiphon_inference::pool::batch::{BatchFailure, Entry};
use antiphon_inference::pool::slots::{ActiveSequence, Admission, SlotEngine, SlotEntry};
use antiphon_types::{Meter, SampleRate, Samples};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use tokio::time::Instant;

/// Frames in the channel to a reader, its credit: some five seconds at 25 a second, 10 KiB. A reader that waits for
/// the vocoder takes them over when it asks for the next window; it holds a speech at most.
const MAX_AHEAD: usize = 128;

/// How long a request without a listener may be delayed by requests with one.
pub const BACKGROUND: Duration = Duration::from_secs(2);

/// One request, on its way through the scheduler.
pub struct Request {
    /// The voice.
    pub conditioning: Arc<Conditioning>,
    /// Ids of the prompt.
    pub ids: Ids,
    /// Its characters.
    pub n_chars: usize,
    /// Of its randomness.
    pub seed: u64,
    deadline: Instant,
    tokens: Sender<Step>,
    is_starved: Arc<AtomicBool>,
    meter: Meter,
}

/// What a reader gets: a frame, the end, or why it ends.
pub enum Step {
    /// The next frame with a sound.
    Frame(Codes),
    /// The speech is complete.
    End,
    /// It ends here.
    Failed(TtsError),
}

/// The reader's end of a request. Dropping it abandons the sequence, which gives its slot up before the next step.
pub struct Tokens {
    tokens: Receiver<Step>,
    is_starved: Arc<AtomicBool>,
}

impl Request {
    /// A request, due when its listener has nothing left to hear (`None`: it has no listener), and its reader's end.
    pub fn new(
        conditioning: Arc<Conditioning>,
        ids: Ids,
        n_chars: usize,
        seed: u64,
        unplayed: Option<Duration>,
    ) -> (Self, Tokens) {
        let (sender, tokens) = channel(MAX_AHEAD);
        let is_starved: Arc<AtomicBool> = Arc::default();
        let deadline = Instant::now() + unplayed.unwrap_or(BACKGROUND);
        let request = Self {
            conditioning,
            ids,
            n_chars,
            seed,
            deadline,
            tokens: sender,
            is_starved: is_starved.clone(),
            meter: Meter::default(),
        };
        (request, Tokens { tokens, is_starved })
    }

    /// The same, whose steps are counted.
    pub fn metered(self, meter: Meter) -> Self {
        Self { meter, ..self }
    }

    /// Hands a step on. There is room: a sequence without credit takes no step, and the end has a place of its own.
    fn hand_on(&self, step: Step) {
        if let Err(TrySendError::Full(_)) = self.tokens.try_send(step) {
            tracing::error!("a frame was lost: its reader has no room");
        }
    }
}

impl Tokens {
    /// The next step; `None` where the engine is gone. `wake` is called where the sequence sat out because its channel
    /// was full.
    pub async fn next(&mut self, wake: impl Fn()) -> Option<Step> {
        let step = self.tokens.recv().await;
        self.made_room(wake);
        step
    }

    fn made_room(&self, wake: impl Fn()) {
        if self.is_starved.swap(false, Ordering::AcqRel) {
            wake();
        }
    }
}

impl Entry for Request {
    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn is_abandoned(&self) -> bool {
        self.tokens.is_closed()
    }

    fn fail(self, failure: BatchFailure) {
        let error = TtsError::Engine { message: failure.to_string(), source: Some(Box::new(failure)) };
        self.hand_on(Step::Failed(error));
    }
}

impl SlotEntry for Request {
    /// Room for a frame and for the end behind it.
    fn has_credit(&self) -> bool {
        if self.tokens.capacity() >= 2 {
            return true;
        }
        self.is_starved.store(true, Ordering::Release);
        // The reader may have made room between the look and the note.
        self.tokens.capacity() >= 2
    }
}

/// What the engine knows of a sequence.
pub struct Generation {
    id: SequenceId,
    sampler: Sampler,
    /// The token that was drawn last: the first code of the last frame.
    last: i64,
    /// The embeddings of the last frame, where it has several codebooks.
    embeds: Vec<f32>,
    /// What is added to the embeddings of each frame ([`Prompt::following`]).
    following: Vec<f32>,
    /// Flags of the codes that were drawn, for a frame graph that takes them.
    seen: Vec<i32>,
    /// Tokens that were drawn.
    n_drawn: usize,
    /// Tokens that were handed on.
    n_spoken: usize,
    max_tokens: usize,
    silence: SilenceRun,
}

#[cfg(test)]
impl Generation {
    /// The flags of the codes that were drawn.
    pub fn seen(&self) -> &[i32] {
        &self.seen
    }
}

/// Tokens of silence in a row.
#[derive(Default)]
struct SilenceRun(usize);

/// What is done with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenUse {
    /// It is spoken.
    Spoken,
    /// It is left out: the silence is long enough.
    LeftOut,
    /// It is left out, and the speech ends: nothing comes any more.
    End,
}

impl SilenceRun {
    /// Judges the next token.
    fn next(&mut self, is_silence: bool, rules: &Length) -> TokenUse {
        self.0 = if is_silence { self.0 + 1 } else { 0 };
        match self.0 {
            n if n >= rules.end_silence => TokenUse::End,
            n if n > rules.max_silence => TokenUse::LeftOut,
            _ => TokenUse::Spoken,
        }
    }
}

/// See the module.
pub struct SpeechEngine {
    contract: Arc<Contract>,
    lm: LanguageModel,
    n_slots: usize,
    scratch: Scratch,
    given: StepOutputs,
    counted: Arc<StepCosts>,
    /// Prefills since the last step, for which everyone who listens waited.
    prefills: Duration,
    /// The last step has ended sequences for lack of memory.
    lacked_memory: bool,
}

/// Steps over which their time is smoothed: a second of speech or less.
const SMOOTHED: u64 = 16;

/// What steps have cost since the start, without prefills.
#[derive(Debug, Default)]
pub struct StepCosts {
    /// Steps.
    pub n_steps: AtomicU64,
    /// Sequences in these steps.
    pub n_rows: AtomicU64,
    /// In the graphs' runs, in nanoseconds.
    pub in_runs_ns: AtomicU64,
    /// In sampling, in nanoseconds.
    pub sampling_ns: AtomicU64,
    /// [`SlotReport::step_permille`](antiphon_engine_api::tts::SlotReport).
    pub step_permille: AtomicU64,
}

impl StepCosts {
    /// Adds a step: its duration with the prefills before it, and the sound that it made for each listener.
    fn stepped(&self, took: Duration, sound: Duration) {
        let new = (took.as_nanos() * 1000 / sound.as_nanos().max(1)) as u64;
        let smoothed =
            |known: u64| Some(if known == 0 { new } else { (known * (SMOOTHED - 1) + new).div_ceil(SMOOTHED) });
        let _ = self.step_permille.fetch_update(Ordering::Relaxed, Ordering::Relaxed, smoothed);
    }
}

impl SpeechEngine {
    /// For a warmed language model.
    pub fn new(contract: Arc<Contract>, lm: LanguageModel, counted: Arc<StepCosts>) -> Self {
        let n_slots = lm.n_slots();
        let (scratch, given, prefills) = Default::default();
        Self { contract, lm, n_slots, scratch, given, counted, prefills, lacked_memory: false }
    }
}

impl SlotEngine<Request> for SpeechEngine {
    type State = Generation;

    fn n_slots(&self) -> usize {
        self.n_slots
    }

    fn admit(&mut self, request: Request) -> Result<Admission<Request, Generation>, (String, Request)> {
        let meter = request.meter.clone();
        let begun = Instant::now();
        let admission = self.admit_one(request);
        self.prefills += begun.elapsed();
        meter.add(self.lm.runs_on(), begun.elapsed());
        admission
    }

    fn step(&mut self, running: &mut [&mut ActiveSequence<Request, Generation>]) -> Result<(), String> {
        self.lacked_memory = false;
        for one in running.iter_mut().filter(|one| self.lm.is_full(one.state.id)) {
            tracing::warn!(n_tokens = one.state.n_drawn, "a speech is cut off: the model's context is full");
            finish(one);
        }
        let is_framed = self.lm.frame_shape().is_some();
        let mut n_rows = running.iter().filter(|one| !one.is_done).count();
        if n_rows == 0 {
            return Ok(());
        }
        let before = self.lm.in_runs();
        let (step_begun, meters): (_, Vec<_>) =
            (Instant::now(), running.iter().filter(|one| !one.is_done).map(|one| one.entry.meter.clone()).collect());
        loop {
            let rows: Vec<_> = running
                .iter()
                .filter(|one| !one.is_done)
                .map(|one| {
                    let feed = if is_framed { Feed::Embeds(&one.state.embeds) } else { Feed::Token(one.state.last) };
                    (one.state.id, feed)
                })
                .collect();
            let Err(error) = self.lm.decode(&rows, &mut self.given) else { break };
            // No row has stepped, or those that have are remembered: without the newest listener the others may find memory.
            if n_rows < 2 || !is_out_of_memory(&error) {
                return Err(error.to_string());
            }
            let Some(newest) = running.iter_mut().rfind(|one| !one.is_done) else { return Err(error.to_string()) };
            n_rows -= 1;
            self.end_for_memory(newest, n_rows, &error);
        }
        // None where the frame graph draws all codes.
        let n_logits = self.given.logits.len() / n_rows;
        let begun = Instant::now();
        let mut drawn = Vec::with_capacity(n_rows);
        let mut hidden = Vec::new();
        for (row, one) in running.iter_mut().filter(|one| !one.is_done).enumerate() {
            let logits = &self.given.logits[row * n_logits..(row + 1) * n_logits];
            if draw(&self.contract, one, logits, &mut self.scratch) {
                if is_framed {
                    let n = self.lm.n_hidden();
                    hidden.extend_from_slice(&self.given.hidden[row * n..(row + 1) * n]);
                }
                drawn.push(&mut **one);
            }
        }
        let sampling = begun.elapsed();
        self.given.hidden = hidden;
        self.complete(&mut drawn).map_err(|error| error.to_string())?;
        let in_runs = self.lm.in_runs() - before;
        let took = step_begun.elapsed();
        Meter::share(&meters, self.lm.runs_on(), took);
        let sound = Samples(self.contract.samples_per_token as u64).duration(SampleRate::new(self.contract.rate_hz));
        self.counted.stepped(took + std::mem::take(&mut self.prefills), sound);
        self.counted.n_steps.fetch_add(1, Ordering::Relaxed);
        self.counted.n_rows.fetch_add(n_rows as u64, Ordering::Relaxed);
        self.counted.in_runs_ns.fetch_add(in_runs.as_nanos() as u64, Ordering::Relaxed);
        self.counted.sampling_ns.fetch_add(sampling.as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn lacked_memory(&self) -> bool {
        self.lacked_memory
    }

    fn end(&mut self, state: Generation) {
        self.lm.end(state.id);
    }
}

impl SpeechEngine {
    fn admit_one(&mut self, request: Request) -> Result<Admission<Request, Generation>, (String, Request)> {
        let too_long = |n_prompt: usize| {
            let message = format!(
                "the text is too long: {n_prompt} tokens with its voice and instructions, and a sequence has {}; send it in shorter chunks, or take a shorter recording",
                self.contract.slot_tokens()
            );
            Step::Failed(TtsError::Engine { message, source: None })
        };
        // Before it is embedded, which takes memory by its length.
        if request.ids.n_ids() >= self.contract.slot_tokens() {
            request.hand_on(too_long(request.ids.n_ids()));
            return Ok(Admission::Ended);
        }
        let prompt = self.lm.prompt(&request.ids, &request.conditioning);
        let prefilled = match prompt {
            Ok(Prompt { embeds, following }) => {
                let n_prompt = embeds.len() / self.lm.hidden();
                if n_prompt + 1 >= self.contract.slot_tokens() {
                    request.hand_on(too_long(n_prompt));
                    return Ok(Admission::Ended);
                }
                self.lm.prefill(&embeds, &mut self.given).map(|id| (id, following))
            }
            // That graph shares nothing with the sequences that run: whatever failed, it is this request that has no prompt.
            Err(error) if !is_out_of_memory(&error) => Err(OnnxError::Output(format!("no prompt: {error}"))),
            Err(error) => Err(error),
        };
        let (id, following) = match prefilled {
            Ok(prefilled) => prefilled,
            Err(error) if is_out_of_memory(&error) => return Ok(Admission::NoRoom(request, error.to_string())),
            // The text or the voice is at fault, and the device is not.
            Err(error @ (OnnxError::Inputs { .. } | OnnxError::Output(_))) => {
                request.hand_on(Step::Failed(TtsError::Engine { message: error.to_string(), source: None }));
                return Ok(Admission::Ended);
            }
            Err(error) => return Err((error.to_string(), request)),
        };
        let tokens = &self.contract.tokens;
        let sampling = self.contract.drawing().map(|drawing| drawing.sampling.clone()).unwrap_or_default();
        let state = Generation {
            id,
            sampler: Sampler::new(sampling, tokens.vocabulary, tokens.start, request.seed),
            last: 0,
            embeds: Vec::new(),
            following,
            seen: vec![0; self.lm.frame_shape().map_or(0, |shape| shape.n_seen)],
            n_drawn: 0,
            n_spoken: 0,
            max_tokens: self.contract.max_tokens(request.n_chars),
            silence: SilenceRun::default(),
        };
        let mut running = ActiveSequence { entry: request, state, is_done: false };
        let drawn = draw(&self.contract, &mut running, &self.given.logits, &mut self.scratch);
        if drawn && let Err(error) = self.complete(&mut [&mut running]) {
            self.lm.end(id);
            // Nothing was handed on yet.
            return match is_out_of_memory(&error) {
                true => Ok(Admission::NoRoom(running.entry, error.to_string())),
                false => Err((error.to_string(), running.entry)),
            };
        }
        if running.is_done {
            self.lm.end(id);
            return Ok(Admission::Ended);
        }
        Ok(Admission::Running(running))
    }

    /// Ends a sequence, without which `n_others` may find memory.
    fn end_for_memory(&mut self, newest: &mut ActiveSequence<Request, Generation>, n_others: usize, error: &OnnxError) {
        tracing::warn!(n_listeners = n_others, "out of memory: ended one sequence: {error}");
        self.lacked_memory = true;
        self.lm.end_for_memory(newest.state.id);
        newest.entry.hand_on(Step::Failed(TtsError::Overloaded { waiting: n_others }));
        newest.is_done = true;
    }

    /// Completes the frames of sequences whose next token was drawn, in the order of the hidden states, and hands them on. Out
    /// of memory, the last of them ends, until one is left.
    fn complete(&mut self, drawn: &mut [&mut ActiveSequence<Request, Generation>]) -> Result<(), OnnxError> {
        let Some(shape) = self.lm.frame_shape().filter(|_| !drawn.is_empty()) else {
            drawn.iter_mut().for_each(|one| keep(&self.contract, one, &[]));
            return Ok(());
        };
        let n = self.lm.hidden();
        let mut first: Vec<i64> = drawn.iter().map(|one| one.state.last).collect();
        let mut uniform = Vec::with_capacity(drawn.len() * shape.n_uniform);
        let mut seen = Vec::new();
        for one in drawn.iter_mut() {
            let start = uniform.len();
            uniform.extend((0..shape.n_uniform).map(|_| one.state.sampler.uniform()));
            // The number of the end; with 0 the speech goes on.
            if shape.draws_all && one.state.n_drawn <= self.contract.length.min_tokens {
                uniform[start] = 0.0;
            }
            seen.extend_from_slice(&one.state.seen);
        }
        let frames = loop {
            let n_rows = first.len();
            let hidden = &self.given.hidden[..n_rows * self.lm.n_hidden()];
            let uniform = &uniform[..n_rows * shape.n_uniform];
            let seen = &seen[..n_rows * shape.n_seen];
            match self.lm.frames(FrameInputs { hidden, codes: &first, uniform, seen }) {
                Ok(frames) => break frames,
                Err(error) if n_rows > 1 && is_out_of_memory(&error) => {
                    first.pop();
                    let newest = &mut drawn[n_rows - 1];
                    self.end_for_memory(newest, n_rows - 1, &error);
                }
                Err(error) => return Err(error),
            }
        };
        // Those that ended are the last.
        let rows = frames.codes.chunks_exact(shape.n_drawn).zip(frames.embeds.chunks_exact(n)).zip(&frames.goes_on);
        for (one, ((codes, embeds), goes_on)) in drawn.iter_mut().zip(rows) {
            if !goes_on {
                finish(one);
                continue;
            }
            if !embeds.iter().all(|number| number.is_finite()) {
                let message = "the model's frames are not numbers (NaN): its file may be damaged".into();
                one.entry.hand_on(Step::Failed(TtsError::Engine { message, source: None }));
                one.is_done = true;
                continue;
            }
            let state = &mut one.state;
            state.embeds.clear();
            state.embeds.extend_from_slice(embeds);
            // The first frame's is the first row; the last row is for all that come after it.
            let n_rows = state.following.len() / n;
            let row = (state.n_drawn - 1).min(n_rows.saturating_sub(1));
            let following = state.following.get(row * n..(row + 1) * n).unwrap_or_default();
            state.embeds.iter_mut().zip(following).for_each(|(number, more)| *number += more);
            let n_ids = state.seen.len() / codes.len();
            for (codebook, code) in codes.iter().enumerate().filter(|_| n_ids > 0) {
                if let Some(flag) = usize::try_from(*code).ok().filter(|code| *code < n_ids) {
                    state.seen[codebook * n_ids + flag] = 1;
                }
            }
            match (shape.draws_all, codes) {
                (true, [first, others @ ..]) => {
                    state.last = *first;
                    keep(&self.contract, one, others);
                }
                _ => keep(&self.contract, one, codes),
            }
        }
        Ok(())
    }
}

/// Draws a sequence's next token, unless a graph draws all codes of a frame, and counts it. `false` where the sequence ends
/// with it, which its reader is notified of.
fn draw(
    contract: &Contract,
    one: &mut ActiveSequence<Request, Generation>,
    logits: &[f32],
    scratch: &mut Scratch,
) -> bool {
    let state = &mut one.state;
    let Some(drawing) = contract.drawing() else {
        // The frame graph draws it.
        state.n_drawn += 1;
        return true;
    };
    let excluded = (state.n_drawn < contract.length.min_tokens).then(|| drawing.stops.clone());
    match state.sampler.next(logits, excluded, scratch) {
        Ok(token) => {
            state.last = token;
            state.n_drawn += 1;
            if drawing.stops.contains(&token) {
                finish(one);
            }
        }
        Err(error) => {
            one.entry.hand_on(Step::Failed(TtsError::Engine { message: error.to_string(), source: None }));
            one.is_done = true;
        }
    }
    !one.is_done
}

/// Hands a sequence's next frame on: its last token, and behind it the codes of the other codebooks.
fn keep(contract: &Contract, one: &mut ActiveSequence<Request, Generation>, others: &[i64]) {
    let rules = contract;
    let state = &mut one.state;
    let token = state.last;
    let kept = state.silence.next(rules.is_silence(token), &rules.length);
    if token < rules.tokens.sounds && kept == TokenUse::Spoken {
        let Some(codes) = Codes::new(token, others) else {
            let message = "the model's graph gave invalid codes: its file may be damaged".into();
            one.entry.hand_on(Step::Failed(TtsError::Engine { message, source: None }));
            one.is_done = true;
            return;
        };
        state.n_spoken += 1;
        one.entry.hand_on(Step::Frame(codes));
    }
    if kept == TokenUse::End {
        return finish(one);
    }
    if state.n_drawn >= state.max_tokens {
        let n_chars = one.entry.n_chars;
        tracing::warn!(n_tokens = state.n_drawn, n_chars, "a speech is cut off: it is too long for its text");
        finish(one);
    }
}

/// Ends a sequence: with what was spoken, or with an error where that is nothing.
fn finish(one: &mut ActiveSequence<Request, Generation>) {
    one.is_done = true;
    one.entry.hand_on(match one.state.n_spoken {
        0 => {
            let message = "the model ended the speech before it began; the text may be none that it can speak".into();
            Step::Failed(TtsError::Engine { message, source: None })
        }
        _ => Step::End,
    });
}

/// Whether the device had no memory, by what the runtime's allocators say.
fn is_out_of_memory(error: &OnnxError) -> bool {
    let OnnxError::Run { message, .. } = error else { return false };
    ["Failed to allocate memory", "out of memory", "BFCArena", "ALLOC_FAILED", "bad allocation", "bad_alloc"]
        .iter()
        .any(|sign| message.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_silence_is_shortened_and_endless_silence_ends_the_speech() {
        let rules = Length { max_tokens: 9, min_tokens: 0, max_tokens_per_char: 1.0, max_silence: 2, end_silence: 4 };
        let mut run = SilenceRun::default();
        let mut hear = |silence: &[bool]| silence.iter().map(|is| run.next(*is, &rules)).collect::<Vec<_>>();
        use TokenUse::{End, LeftOut, Spoken};
        assert_eq!(hear(&[true, true, true, false]), [Spoken, Spoken, LeftOut, Spoken]);
        assert_eq!(hear(&[true, true, true, true]), [Spoken, Spoken, LeftOut, End]);
    }

    #[test]
    fn a_lack_of_memory_is_known_by_what_the_runtimes_allocators_say() {
        let error = |message: &str| OnnxError::Run { path: "m.onnx".into(), message: message.into() };
        for message in [
            "BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 4194304",
            "CUDA failure 2: out of memory",
            "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED",
        ] {
            assert!(is_out_of_memory(&error(message)), "{message}");
        }
        assert!(!is_out_of_memory(&error("CUDA failure 700: an illegal memory access was encountered")));
    }
}
