//! The recognizer behind the slot scheduler: a step is one run of the encoder for every stream that has a chunk ready, and the
//! greedy search of what it gives.
//!
//! Runs on the scheduler's thread. Streams are taken in the order in which their chunks are due, at most [`EngineLimits::rows`] a
//! step; the others come next. A stream that ends, or whose utterance is gone, gives its slot back before the next step. A
//! failure of the graphs ends all streams of the replica; numbers that are none end their own stream. It never waits for an
//! utterance and makes no text.

use super::files::FileError;
use super::graphs::Graphs;
use super::greedy::{SearchRow, search};
use super::predictor::PredictorState;
use super::states::{EncoderRow, EncoderStates, StreamKey};
use super::stream::{Chunk, Stream};
use super::terms::{KeyTerms, TermProgress};
use super::vocabulary::Token;
use antiphon_inference::onnx::OnnxError;
use antiphon_inference::pool::batch::{BatchFailure, Entry};
use antiphon_inference::pool::slots::{ActiveSequence, Admission, SlotEngine, SlotEntry};
use antiphon_types::Meter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// An utterance on its way into a slot, and in it.
pub struct StreamRequest {
    /// Shared with the utterance.
    pub stream: Arc<Stream>,
    /// The language's number, where the encoder takes one.
    pub prompt: i64,
    /// Key terms that are favoured; `None`: there are none.
    pub terms: Option<Arc<KeyTerms>>,
    /// Whether the probabilities of tokens are computed.
    pub with_logprobs: bool,
    /// Gets the utterance's part of each step.
    pub meter: Meter,
    /// When it was opened.
    pub opened: Instant,
    /// Of the slot, which is free again when the request is dropped.
    pub _permit: SlotPermit,
}

/// A slot of all replicas together.
pub struct SlotPermit {
    pub _slot: OwnedSemaphorePermit,
    /// Of a request that has waited for it: its place among the slots that such requests may have.
    pub _share: Option<OwnedSemaphorePermit>,
}

impl Entry for StreamRequest {
    fn deadline(&self) -> Instant {
        self.opened
    }

    fn is_abandoned(&self) -> bool {
        self.stream.is_abandoned()
    }

    fn fail(self, failure: BatchFailure) {
        self.stream.fail(&failure.to_string());
    }
}

impl SlotEntry for StreamRequest {
    fn has_credit(&self) -> bool {
        self.stream.has_work()
    }

    fn company_until(&self) -> Option<Instant> {
        self.stream.company_until()
    }
}

/// What the engine knows of a stream.
pub struct StreamProgress {
    key: StreamKey,
    predictor: PredictorState,
    terms: Option<TermProgress>,
    /// Encoder frames so far.
    n_frames: u64,
}

/// How much a replica holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Streams.
    pub slots: usize,
    /// Streams that share a run.
    pub rows: usize,
}

/// What steps have cost since the start.
#[derive(Debug, Default)]
pub struct StepCosts {
    /// Steps with at least one chunk.
    pub n_steps: AtomicU64,
    /// Chunks in these steps.
    pub n_rows: AtomicU64,
    /// In steps, in nanoseconds.
    pub in_steps_ns: AtomicU64,
    /// In the graphs' runs, in nanoseconds.
    pub in_runs_ns: AtomicU64,
}

/// See the module.
pub struct RecognizerEngine {
    graphs: Graphs,
    states: EncoderStates,
    first: PredictorState,
    limits: EngineLimits,
    costs: Arc<StepCosts>,
}

/// A stream's part of a step.
struct Part {
    /// Its place among those that run.
    place: usize,
    chunk: Chunk,
    predictor: PredictorState,
    terms: Option<TermProgress>,
    tokens: Vec<Token>,
    has_failed: bool,
}

impl RecognizerEngine {
    /// For graphs that were loaded. Runs the encoder once, which shows what its declared shapes left open. Blocks meanwhile.
    ///
    /// # Errors
    /// [`FileError`] when a run fails or gives no numbers.
    pub fn new(graphs: Graphs, limits: EngineLimits, costs: Arc<StepCosts>) -> Result<Self, FileError> {
        let mut states = EncoderStates::new(&graphs, limits.slots)?;
        let first = graphs.first_prediction()?;
        if let Some(key) = states.begin(&graphs) {
            let silence = vec![0.0; graphs.sizes.window * graphs.sizes.n_mels];
            let encoded = states.run(&graphs, &[EncoderRow { key, frames: &silence, prompt: 0, keeps: true }])?;
            states.end(key);
            if !encoded.iter().flat_map(|chunk| &chunk.frames).all(|number| number.is_finite()) {
                return Err(FileError::NotNumbers { path: graphs.encoder.path().into() });
            }
        }
        Ok(Self { graphs, states, first, limits, costs })
    }

    /// Takes the chunks of the next step, those that are due first.
    fn take(&self, running: &[&mut ActiveSequence<StreamRequest, StreamProgress>]) -> Vec<Part> {
        let mut order: Vec<usize> = (0..running.len()).collect();
        // Read once for each: a question that comes or goes meanwhile changes when a stream is due.
        order.sort_by_cached_key(|place| running[*place].entry.stream.due());
        order.truncate(self.limits.rows.max(1));
        let part = |place: usize| {
            // A question may have been withdrawn.
            let chunk = running[place].entry.stream.take()?;
            let state = &running[place].state;
            let predictor = state.predictor.clone();
            let terms = state.terms.clone();
            Some(Part { place, chunk, predictor, terms, tokens: Vec::new(), has_failed: false })
        };
        order.into_iter().filter_map(part).collect()
    }

    /// Runs the graphs for those parts that have frames, and moves their streams on.
    fn run(
        &mut self,
        running: &mut [&mut ActiveSequence<StreamRequest, StreamProgress>],
        parts: &mut [Part],
    ) -> Result<(), OnnxError> {
        let mut parts: Vec<&mut Part> = parts.iter_mut().filter(|part| !part.chunk.frames.is_empty()).collect();
        if parts.is_empty() {
            return Ok(());
        }
        let rows: Vec<EncoderRow<'_>> = parts
            .iter()
            .map(|part| EncoderRow {
                key: running[part.place].state.key,
                frames: &part.chunk.frames,
                prompt: running[part.place].entry.prompt,
                keeps: part.chunk.keeps,
            })
            .collect();
        let encoded = self.states.run(&self.graphs, &rows)?;
        let mut rows: Vec<SearchRow<'_>> = parts
            .iter_mut()
            .zip(&encoded)
            .map(|(part, encoded)| SearchRow {
                frames: &encoded.frames,
                first_frame: running[part.place].state.n_frames,
                predictor: &mut part.predictor,
                tokens: &mut part.tokens,
                terms: part.terms.as_mut(),
                with_logprobs: running[part.place].entry.with_logprobs,
                has_failed: false,
            })
            .collect();
        search(&self.graphs, &mut rows)?;
        let failed: Vec<bool> = rows.iter().map(|row| row.has_failed).collect();
        for ((part, encoded), has_failed) in parts.into_iter().zip(&encoded).zip(failed) {
            part.has_failed = has_failed;
            if part.chunk.keeps {
                let state = &mut running[part.place].state;
                state.predictor = part.predictor.clone();
                state.terms = part.terms.clone();
                state.n_frames += (encoded.frames.len() / self.graphs.width) as u64;
            }
        }
        Ok(())
    }
}

impl SlotEngine<StreamRequest> for RecognizerEngine {
    type State = StreamProgress;

    fn n_slots(&self) -> usize {
        self.states.n_slots()
    }

    fn admits_freely(&self) -> bool {
        true
    }

    fn admit(
        &mut self,
        request: StreamRequest,
    ) -> Result<Admission<StreamRequest, StreamProgress>, (String, StreamRequest)> {
        let Some(key) = self.states.begin(&self.graphs) else {
            return Ok(Admission::NoRoom(request, "every slot is taken".into()));
        };
        let terms = request.terms.clone().map(TermProgress::new);
        let state = StreamProgress { key, predictor: self.first.clone(), terms, n_frames: 0 };
        Ok(Admission::Running(ActiveSequence { entry: request, state, is_done: false }))
    }

    fn step(&mut self, running: &mut [&mut ActiveSequence<StreamRequest, StreamProgress>]) -> Result<(), String> {
        let begun = Instant::now();
        let before = self.graphs.in_runs();
        let mut parts = self.take(running);
        if parts.is_empty() {
            return Ok(());
        }
        self.run(running, &mut parts).map_err(|error| error.to_string())?;
        let meters: Vec<Meter> = parts.iter().map(|part| running[part.place].entry.meter.clone()).collect();
        let n_rows = parts.len() as u64;
        for part in parts {
            let one = &mut running[part.place];
            one.is_done = part.chunk.is_last || part.has_failed;
            match part.has_failed {
                true => one.entry.stream.fail("the model gave no numbers"),
                false => one.entry.stream.give(&part.chunk, part.tokens),
            }
        }
        Meter::share(&meters, self.graphs.runs_on(), begun.elapsed());
        let in_runs = self.graphs.in_runs() - before;
        self.costs.n_steps.fetch_add(1, Ordering::Relaxed);
        self.costs.n_rows.fetch_add(n_rows, Ordering::Relaxed);
        self.costs.in_steps_ns.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.costs.in_runs_ns.fetch_add(in_runs.as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn end(&mut self, state: StreamProgress) {
        self.states.end(state.key);
    }
}
