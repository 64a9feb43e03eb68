//! The `transducer` engine: NVIDIA's cache-aware FastConformer-RNNT on ONNX Runtime, in the form that sherpa-onnx publishes.
//!
//! The root's assembly calls [`open`]; sessions see the port it returns. The recognizer streams: each utterance has a slot with
//! the encoder's caches, and all streams that have a chunk ready share one run ([`engine`]); the features of its audio
//! are computed on its own task. A word is final when it is emitted, so that a partial transcript never changes but for the
//! word that is being spoken. The end of speech completes its last chunk with silence and does not wait for its length. A
//! provisional transcript does the same and leaves no trace, and so does the first partial one of a pause, whose words
//! behind the emitted ones may change where the speaker goes on. Where every slot is taken the answer is
//! [`SttError::Busy`]; requests that wait for a slot leave a quarter of them to sessions, which do not. The engine never
//! decides when speech ends, and keeps nothing of an utterance after it.

#[cfg(test)]
mod bad_input_tests;
mod device;
mod engine;
mod files;
mod graphs;
mod greedy;
#[cfg(test)]
mod nemo_tests;
mod predictor;
#[cfg(test)]
mod sherpa_tests;
mod states;
mod stream;
mod terms;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use engine::StepCosts;

use super::SttConfig;
use super::terms::terms_with;
use antiphon_audio::mel::nemo::{FeatureStream, Features};
use antiphon_engine_api::stt::{
    DETECT_LANGUAGE, OpeningUtterance, Stt, SttError, SttOptions, SttUtterance, Transcript,
};
use antiphon_inference::onnx::{OnnxConfig, Runtime};
use antiphon_inference::pool::Overloaded;
use antiphon_inference::pool::slots::SlotScheduler;
use engine::{EngineLimits, RecognizerEngine, SlotPermit, StreamRequest};
use files::{FileError, ModelFiles, Prompts, Sizes};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use graphs::Graphs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use stream::Stream;
use terms::{KeyTerms, Spelling};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use vocabulary::{Token, Vocabulary};

/// Slots where their number is left to the hub, on the processor and on a GPU.
const CPU_SLOTS: usize = 16;
const GPU_SLOTS: usize = 256;

/// Streams that share a run, on the processor and on a GPU.
const CPU_ROWS: usize = 16;
const GPU_ROWS: usize = 128;

/// Samples whose features are computed at a time: 1 s.
const PIECE: usize = 16_000;

/// The end of what was pushed is a pause where the loudest sample of 32 ms is at most this part of the utterance's
/// loudest one, or at most -50 dB of full scale.
const PAUSE: usize = 512;
const PAUSE_PART: u16 = 32;
const QUIET: u16 = 100;

/// The longest utterance, in samples: an hour, of which the tokens are some 200 KB. Sessions end theirs long before.
const MAX_SAMPLES: usize = 3_600 * 16_000;

/// See the module. Cheap to clone; the threads end when the last clone and the last utterance are gone.
#[derive(Clone)]
pub struct Transducer {
    shared: Arc<UtteranceContext>,
}

/// What all utterances use.
struct UtteranceContext {
    scheduler: SlotScheduler<StreamRequest>,
    slots: Arc<Semaphore>,
    /// How many of them requests that wait for one may have.
    for_queued: Arc<Semaphore>,
    n_slots: usize,
    features: Features,
    sizes: Sizes,
    vocabulary: Vocabulary,
    spelling: Spelling,
    /// Those of the settings, as a list and as they are favoured.
    key_terms: Vec<String>,
    favoured: Option<Arc<KeyTerms>>,
    /// The code of the language that is set, or that the model has alone.
    language: Option<String>,
    costs: Arc<StepCosts>,
}

/// Loads the model that `config.model` names (its folder, or the encoder in it) for each device, and runs it once. Blocks
/// meanwhile.
///
/// # Errors
/// [`SttError::Unavailable`] names the file that is missing or wrong, what is there and what should be.
pub fn open(config: &SttConfig, onnx: &OnnxConfig) -> Result<Transducer, SttError> {
    let files = ModelFiles::find(Path::new(&config.model)).map_err(unavailable)?;
    let vocabulary = files.vocabulary().map_err(unavailable)?;
    let n_tokens = vocabulary.len();
    let load = {
        let onnx = onnx.clone();
        move |replica: usize| {
            let runtime = Runtime::open(&onnx.for_replica(replica)).map_err(FileError::from)?;
            Graphs::load(&files, n_tokens, &runtime)
        }
    };
    let first = load(0).map_err(unavailable)?;
    let sizes = first.sizes.clone();
    let limits = limits(config, onnx, &first);
    let n_replicas = onnx.devices().len();
    let costs: Arc<StepCosts> = Arc::default();
    let first = Mutex::new(Some(first));
    let make = {
        let costs = costs.clone();
        move |replica: usize| {
            let loaded = first.lock().unwrap_or_else(PoisonError::into_inner).take();
            let graphs = loaded.map_or_else(|| load(replica), Ok)?;
            RecognizerEngine::new(graphs, limits, costs.clone())
        }
    };
    let scheduler = SlotScheduler::start("transducer", n_replicas, 1, make).map_err(unavailable)?;
    let n_slots = n_replicas * limits.slots;
    tracing::info!(
        n_slots,
        chunk_ms = sizes.chunk_ms(),
        cache_bytes = 4 * sizes.cache_len(),
        "the recognizer is loaded"
    );
    let language = config.language_code().or_else(|| sizes.prompts.is_none().then(|| "en".to_owned()));
    let spelling = Spelling::new(&vocabulary);
    let key_terms = terms_with(&config.key_terms, None);
    let (favoured, unspelled) = KeyTerms::new(&key_terms, &spelling);
    if !unspelled.is_empty() {
        tracing::warn!(?unspelled, "stt.key_terms: the model's vocabulary does not spell these");
    }
    let shared = UtteranceContext {
        scheduler,
        slots: Arc::new(Semaphore::new(n_slots)),
        for_queued: Arc::new(Semaphore::new(n_slots - n_slots / 4)),
        n_slots,
        features: Features::new(sizes.n_mels),
        sizes,
        vocabulary,
        spelling,
        key_terms,
        favoured,
        language,
        costs,
    };
    Ok(Transducer { shared: Arc::new(shared) })
}

fn unavailable(error: FileError) -> SttError {
    let is_contradiction =
        matches!(error, FileError::Property { .. } | FileError::Port { .. } | FileError::Tokens { .. });
    let hint = if is_contradiction {
        ". All files must be of one model: take them from one archive or one export"
    } else {
        ""
    };
    SttError::Unavailable(format!("stt.model: {error}{hint}"))
}

/// Slots and rows of a replica.
fn limits(config: &SttConfig, onnx: &OnnxConfig, graphs: &Graphs) -> EngineLimits {
    let on_cpu = graphs.is_on_host();
    let slots = match (config.slots, on_cpu) {
        (0, true) => CPU_SLOTS,
        (0, false) if onnx.gpu_memory_mib > 0 => {
            // Half of the memory, and twice the caches: those of a run beside those in the slots.
            let bytes = onnx.gpu_memory_mib as usize * 1024 * 1024 / 2;
            (bytes / (8 * graphs.sizes.cache_len()).max(1)).clamp(1, GPU_SLOTS)
        }
        (0, false) => GPU_SLOTS,
        (slots, _) => slots,
    };
    EngineLimits { slots, rows: if on_cpu { CPU_ROWS } else { GPU_ROWS } }
}

impl Transducer {
    /// What steps have cost since the start, of all replicas.
    pub fn costs(&self) -> &StepCosts {
        &self.shared.costs
    }

    /// Milliseconds of audio in a chunk.
    pub fn chunk_ms(&self) -> usize {
        self.shared.sizes.chunk_ms()
    }
}

impl Stt for Transducer {
    fn name(&self) -> &str {
        "transducer"
    }

    fn languages(&self) -> Option<Vec<String>> {
        match &self.shared.sizes.prompts {
            Some(prompts) => Some(prompts.languages()),
            None => self.shared.language.clone().map(|language| vec![language]),
        }
    }

    fn detects_language(&self) -> bool {
        let prompts = self.shared.sizes.prompts.as_ref();
        prompts.is_some_and(|prompts| prompts.auto.is_some()) && self.shared.vocabulary.names_languages()
    }

    fn takes_long_stretches(&self, _: bool) -> bool {
        true
    }

    fn concurrency(&self) -> usize {
        self.shared.n_slots
    }

    fn in_service(&self) -> usize {
        self.shared.n_slots - self.shared.slots.available_permits()
    }

    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        let slot = self.shared.slots.clone().try_acquire_owned();
        let opened = match slot {
            Ok(slot) => boxed(begin(&self.shared, options, SlotPermit { _slot: slot, _share: None })),
            Err(_) => Err(SttError::Busy { waiting: 0 }),
        };
        Box::pin(std::future::ready(opened))
    }

    fn open_queued(&self, options: SttOptions) -> BoxFuture<'static, OpeningUtterance> {
        let shared = self.shared.clone();
        async move {
            let share = shared.for_queued.clone().acquire_owned().await.expect("the semaphore is never closed");
            let slot = shared.slots.clone().acquire_owned().await.expect("the semaphore is never closed");
            boxed(begin(&shared, options, SlotPermit { _slot: slot, _share: Some(share) }))
        }
        .map(|opened| std::future::ready(opened).boxed())
        .boxed()
    }
}

fn boxed(opened: Result<Utterance, SttError>) -> Result<Box<dyn SttUtterance>, SttError> {
    opened.map(|utterance| Box::new(utterance) as Box<dyn SttUtterance>)
}

/// An utterance in a slot.
fn begin(shared: &Arc<UtteranceContext>, options: SttOptions, permit: SlotPermit) -> Result<Utterance, SttError> {
    let language = options.language_or(shared.language.as_deref()).map(str::to_owned);
    let prompt = match &shared.sizes.prompts {
        None => 0,
        Some(prompts) => prompts.number(language.as_deref()).ok_or_else(|| {
            let named = language.as_deref().unwrap_or(DETECT_LANGUAGE);
            SttError::Unavailable(format!("the recognizer has no prompt for the language {named:?}"))
        })?,
    };
    let terms = match &options.prompt {
        None => shared.favoured.clone(),
        Some(prompt) => KeyTerms::new(&terms_with(&shared.key_terms, Some(prompt)), &shared.spelling).0,
    };
    let stream = Arc::new(Stream::new(&shared.sizes));
    let request = StreamRequest {
        stream: stream.clone(),
        prompt,
        terms,
        with_logprobs: options.logprobs || options.segments,
        meter: options.meter.clone(),
        opened: Instant::now(),
        _permit: permit,
    };
    shared.scheduler.submit(request).map_err(|(Overloaded { waiting }, _)| SttError::Busy { waiting })?;
    let features = shared.features.stream();
    Ok(Utterance {
        shared: shared.clone(),
        stream,
        features,
        options,
        language,
        n_samples: 0,
        n_frames: 0,
        peak: 0,
        n_quiet: 0,
        in_pause: None,
    })
}

impl Prompts {
    /// The codes of the languages.
    fn languages(&self) -> Vec<String> {
        let mut codes: Vec<_> = self.by_tag.iter().filter_map(|(tag, _)| vocabulary::code(tag)).collect();
        codes.sort();
        codes.dedup();
        codes
    }

    /// The prompt of a language, of several the first; without one that which leaves it to the model, else that of English.
    fn number(&self, language: Option<&str>) -> Option<i64> {
        let of = |language: &str| {
            let tag = self.by_tag.iter().find(|(tag, _)| vocabulary::code(tag).as_deref() == Some(language));
            tag.map(|(_, number)| *number)
        };
        match language {
            Some(language) => of(language),
            None => self.auto.or_else(|| of("en")),
        }
    }
}

/// An utterance. Dropping it frees its slot before the engine's next step.
struct Utterance {
    shared: Arc<UtteranceContext>,
    stream: Arc<Stream>,
    features: FeatureStream,
    options: SttOptions,
    /// The language that was asked for, or that the model has alone.
    language: Option<String>,
    n_samples: usize,
    /// Mel frames so far.
    n_frames: usize,
    /// The loudest sample.
    peak: u16,
    /// Samples since the last one that was louder than a pause is.
    n_quiet: usize,
    /// All tokens, as they were when they were first asked for in the pause that goes on.
    in_pause: Option<Vec<Token>>,
}

impl Utterance {
    async fn take(&mut self, pcm: &[i16]) -> Result<(), SttError> {
        let mut frames = Vec::new();
        self.hear_pause(pcm);
        for piece in pcm.chunks(PIECE) {
            self.n_samples += piece.len();
            if self.n_samples > MAX_SAMPLES {
                let message = "an utterance of more than an hour".into();
                return Err(SttError::Engine { message, source: None });
            }
            self.stream.room().await?;
            frames.clear();
            self.n_frames += self.features.push(piece, &mut frames);
            if self.stream.append(&frames) {
                self.shared.scheduler.wake();
            }
        }
        Ok(())
    }

    fn hear_pause(&mut self, pcm: &[i16]) {
        self.peak = pcm.iter().fold(self.peak, |peak, sample| peak.max(sample.unsigned_abs()));
        let loudest = QUIET.max(self.peak / PAUSE_PART);
        let is_loud = |sample: &i16| sample.unsigned_abs() > loudest;
        match pcm.iter().rposition(is_loud) {
            Some(last) => {
                self.n_quiet = pcm.len() - last - 1;
                self.in_pause = None;
            }
            None => self.n_quiet += pcm.len(),
        }
    }

    /// All tokens so far: those that were emitted, and at a pause those that its first question found behind them.
    /// Without one it does not wait for the engine.
    async fn so_far(&mut self, emitted: Vec<Token>) -> Result<Vec<Token>, SttError> {
        if self.n_quiet < PAUSE || self.peak <= QUIET {
            return Ok(emitted);
        }
        if self.in_pause.is_none() {
            self.in_pause = Some(self.ask(false).await?);
        }
        let in_pause = self.in_pause.as_ref().filter(|tokens| tokens.len() > emitted.len());
        Ok(in_pause.cloned().unwrap_or(emitted))
    }

    /// All tokens, as they are if the utterance ends here.
    async fn ask(&self, is_final: bool) -> Result<Vec<Token>, SttError> {
        // A chunk that has begun is completed with silence. The last 12.5 ms complete no frame of their own.
        let n_begun = self.n_frames % self.shared.sizes.shift;
        let mut tail = Vec::new();
        if n_begun > 0 {
            self.features.clone().finish(self.shared.sizes.shift - n_begun, &mut tail);
        }
        let asked = self.stream.ask(tail, is_final);
        self.shared.scheduler.wake();
        asked.tokens().await
    }

    fn transcript(&self, tokens: &[Token]) -> Transcript {
        let shared = &self.shared;
        let frame_ms = shared.sizes.frame_ms();
        let mut transcript =
            shared.vocabulary.transcript(tokens, frame_ms, self.options.logprobs, self.options.segments);
        transcript.language = transcript.language.or_else(|| self.language.clone());
        transcript
    }
}

impl SttUtterance for Utterance {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        async move { self.take(&pcm).await }.boxed()
    }

    /// What was emitted so far, of which the last word may still grow; at a pause also what the last chunk holds, for a
    /// run of its own: who decides whether the turn is over gets all words at once.
    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        async move {
            let emitted = self.stream.tokens()?;
            let n_words = self.transcript(&emitted).text.split_whitespace().count();
            let tokens = self.so_far(emitted).await?;
            let n_settled_words = n_words.saturating_sub(1) as u32;
            Ok(Some(Transcript { n_settled_words, ..self.transcript(&tokens) }))
        }
        .boxed()
    }

    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        async move {
            let tokens = self.ask(false).await?;
            Ok(self.transcript(&tokens))
        }
        .boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        async move {
            let tokens = self.ask(true).await?;
            Ok(self.transcript(&tokens))
        }
        .boxed()
    }
}

impl Drop for Utterance {
    fn drop(&mut self) {
        self.stream.abandon();
        self.shared.scheduler.wake();
    }
}
