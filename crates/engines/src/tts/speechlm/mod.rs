//! The `speechlm` engine: speech language models on ONNX Runtime. Text becomes tokens, tokens become sound, and many listeners
//! share each step.
//!
//! ```text
//! text -> ids -> [prefill, one at a time] -> slot: decode step, decode step, ... -> frames -> windows -> vocoder -> PCM
//! ```
//!
//! [`SpeechLm`] is the port, made by `assembly`. A family is a [`Contract`]; its graphs are run by [`engine`] (language model,
//! on the slot scheduler's thread), [`vocode`] (tokens to sound, on the batch scheduler's) and [`condition`] (a reference
//! recording to a voice, on an engine pool's). A chunk's stream ([`speaking`]) takes tokens as they come, asks for the sound of
//! windows of them and puts it together, so sound starts before the language model has finished the sentence. What the stream
//! does not take is not made: its slot sits out. Voices are recordings in a folder ([`library`]). This module splits no text, decides
//! nothing about a conversation, and adds no watermark.

mod codes;
mod condition;
mod contract;
mod engine;
#[cfg(test)]
mod families;
mod files;
mod library;
mod lm;
pub mod measure;
mod memory;
mod sampling;
mod speaking;
mod tensors;
#[cfg(test)]
mod testing;
#[cfg(all(test, feature = "flite"))]
mod tests;
mod text;
mod vocode;

pub use contract::{CacheKind, Contract, ContractError};
pub use memory::{CacheSize, cache_size};

use super::TtsConfig;
use super::deadline::with_deadline;
use super::stretched::at_speed;
use super::voices::{AUTO, StoreSettings, VoiceStore};
use antiphon_engine_api::tts::{Repeats, SlotReport, SpeechRequest, Tts, TtsError, Voice, VoiceLibrary};
use antiphon_inference::onnx::{OnnxConfig, Provider, Runtime};
use antiphon_inference::pool::batch::{BatchScheduler, BatchSettings};
use antiphon_inference::pool::slots::SlotScheduler;
use antiphon_inference::pool::{Overloaded, Pool};
use antiphon_types::sealed::Sealing;
use antiphon_types::{Pcm, SampleRate};
use condition::{Conditioner, Conditioning, ConditioningCache};
use contract::Policy;
use engine::{Request, SpeechEngine, StepCosts};
use files::ModelFiles;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::BoxStream;
use library::{Library, Recordings};
use lm::LanguageModel;
use memory::slots_that_fit;
use speaking::{ChunkSpeech, Ends};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use text::{Ids, TextReader};
use vocode::{Job, Vocoder};

/// Requests that may wait for a slot, for each slot.
const WAITING_PER_SLOT: usize = 4;
/// Windows that may wait for the vocoder, for each slot; others wait for room, one for each listener.
const WINDOWS_PER_SLOT: usize = 4;
/// Voices that may wait for their conditioning.
const MAX_CONDITIONING: usize = 32;
/// The voice that is listed where there is none yet.
const NO_VOICE: &str = "none";

/// The port. See the module.
pub struct SpeechLm {
    shared: Arc<SpeechContext>,
    library: Arc<Library>,
}

/// What streams need.
struct SpeechContext {
    contract: Arc<Contract>,
    reader: TextReader,
    recordings: Recordings,
    /// The configured voice.
    voice: Option<String>,
    conditioner: Pool<Conditioner>,
    kept: ConditioningCache,
    slots: SlotScheduler<Request>,
    vocoder: BatchScheduler<Job>,
    ends: Ends,
    is_deterministic: bool,
    deadline: Duration,
    report: SlotReport,
    counted: Arc<StepCosts>,
}

impl SpeechLm {
    /// Loads the model's graphs for each replica, warms them and opens the folder of voices. `config.model` is the language
    /// model's file or the model's folder. `sealing` encrypts the files of uploaded voices. Blocks for seconds to minutes.
    ///
    /// # Errors
    /// [`TtsError::Unavailable`] says which file, port or setting is wrong and what would be right.
    pub fn start(config: &TtsConfig, onnx: &OnnxConfig, sealing: Option<Arc<dyn Sealing>>) -> Result<Self, TtsError> {
        let main = Path::new(&config.model);
        let contract = Arc::new(Contract::find(&config.contract, main).map_err(unavailable)?);
        let files = ModelFiles::find(main, &contract).map_err(unavailable)?;
        // Voices are conditioned where the first replica runs.
        let runtime = Runtime::open(&onnx.for_replica(0)).map_err(unavailable)?;
        let reader = TextReader::open(&files.tokenizer, &contract).map_err(unavailable)?;
        let recordings = Recordings::new(VoiceStore::open(store_settings(config, &contract, sealing))?);

        let n_replicas = config.n_instances(onnx.devices().len());
        let conditioner = {
            let files = files.clone();
            let contract = contract.clone();
            let runtime = runtime.clone();
            let make = move |_| Conditioner::load(&files, &contract, &runtime);
            Pool::start("speechlm-voice", 1, MAX_CONDITIONING, make).map_err(unavailable)?
        };
        // A voice that is none, for the vocoder's warm-up.
        let warmth = {
            let sample = hum(&contract, contract.condition.min_seconds.ceil().max(1.0) as u32);
            futures_executor::block_on(async {
                let mut lease = conditioner.lease().await.map_err(unavailable)?;
                lease
                    .run(move |graph| graph.condition(&sample, Some("La.".into()), [0; 32]))
                    .await
                    .map_err(unavailable)?
                    .map_err(unavailable)
            })
            .map(Arc::new)?
        };

        let report = Arc::<Mutex<SlotReport>>::default();
        let counted = Arc::<StepCosts>::default();
        let slots = {
            let files = files.clone();
            let contract = contract.clone();
            let onnx = onnx.clone();
            let config = config.clone();
            let report = report.clone();
            let widest = reader.widest_prompt().map_err(unavailable)?;
            let n_sharing = n_replicas.div_ceil(onnx.devices().len());
            let place = InstancePlace { n_sharing, counted: counted.clone(), ..InstancePlace::default() };
            let voice = warmth.clone();
            let make = move |replica: usize| {
                let runtime = Runtime::open(&onnx.for_replica(replica)).map_err(lm::LmError::from)?;
                let (engine, own) = speech_engine(&files, &contract, &runtime, &config, &widest, &voice, &place)?;
                *report.lock().unwrap_or_else(PoisonError::into_inner) = own;
                Ok::<_, lm::LmError>(engine)
            };
            SlotScheduler::start("speechlm", n_replicas, WAITING_PER_SLOT, make).map_err(unavailable)?
        };
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        report.n_slots *= n_replicas;
        let state_bytes: Arc<OnceLock<usize>> = Arc::default();
        let vocoder = {
            let contract = contract.clone();
            let onnx = onnx.clone();
            let state_bytes = state_bytes.clone();
            let make = move |replica: usize| {
                let runtime = Runtime::open(&onnx.for_replica(replica)).map_err(lm::LmError::from)?;
                let mut vocoder = Vocoder::load(&files, &contract, &runtime)?;
                vocoder.warm(&warmth)?;
                state_bytes.get_or_init(|| vocoder.state_bytes());
                Ok::<_, lm::LmError>(vocoder)
            };
            let max_waiting = report.n_slots * WINDOWS_PER_SLOT;
            let settings = BatchSettings {
                n_replicas,
                max_batch: lm::BUCKETS[lm::BUCKETS.len() - 1],
                max_wait: Duration::ZERO,
                max_waiting,
            };
            BatchScheduler::start("speechlm-vocoder", settings, make).map_err(unavailable)?
        };
        tracing::info!(
            model = contract.name,
            slots = report.n_slots,
            kib_per_token = report.bytes_per_token / 1024,
            mib_per_slot = report.bytes_per_slot >> 20,
            voices = recordings.list().len(),
            "the speech language model is ready"
        );
        let shared = Arc::new(SpeechContext {
            contract,
            reader,
            recordings,
            voice: config.chosen_voice().map(str::to_owned),
            conditioner,
            kept: ConditioningCache::new(state_bytes.get().copied().unwrap_or_default()),
            slots,
            vocoder,
            ends: Ends::new(!config.deterministic),
            is_deterministic: config.deterministic,
            deadline: Duration::from_millis(config.timeout_ms),
            report,
            counted,
        });
        let voices = shared.fixed_voices();
        if let Some(voice) = shared.voice.as_ref().filter(|voice| !voices.iter().any(|known| known.id == **voice)) {
            let names: Vec<_> = voices.iter().map(|voice| voice.id.as_str()).collect();
            return Err(TtsError::Unavailable(format!(
                "tts.voice = {voice:?}: the folder {} has no such voice; it has {}",
                config.voices_dir,
                if names.is_empty() { "none".into() } else { antiphon_engine_api::tts::listed(&names) }
            )));
        }
        if voices.is_empty() {
            let folder = config.voices_dir.as_str();
            tracing::warn!(folder, "no voice is there yet: put NAME.wav into the folder, or upload one");
        }
        Ok(Self { library: Arc::new(Library(shared.clone())), shared })
    }
}

/// What instances of a language model know of their place.
#[derive(Default)]
struct InstancePlace {
    /// The provider of the first start.
    provider: OnceLock<Provider>,
    /// Instances on one device.
    n_sharing: usize,
    counted: Arc<StepCosts>,
}

/// One replica of the language model, tested with the widest prompt in a voice, and warmed.
fn speech_engine(
    files: &ModelFiles,
    contract: &Arc<Contract>,
    runtime: &Runtime,
    config: &TtsConfig,
    widest: &Ids,
    voice: &Conditioning,
    place: &InstancePlace,
) -> Result<(SpeechEngine, SlotReport), lm::LmError> {
    let slots = |bytes_per_slot: usize, provider: Provider| match config.slots {
        // Instances on one device share its memory.
        0 => slots_that_fit(bytes_per_slot * place.n_sharing, provider == Provider::Cpu, runtime.gpu_memory_bytes()),
        n => n,
    };
    let mut lm = LanguageModel::load(files, contract, runtime, &slots)?;
    let n_slots = lm.n_slots();
    // A restart on the processor, because the GPU has gone, would look healthy and serve slowly from then on.
    let first = *place.provider.get_or_init(|| lm.provider());
    if lm.provider() != first {
        return Err(lm::LmError::ProviderGone { was: first, is: lm.provider() });
    }
    lm.prompt(widest, voice).and_then(|_| lm.embed_highest_sound()).map_err(|error| lm::LmError::Port {
        contract: contract.name.clone(),
        file: files.prompt.as_ref().or(files.embed.as_ref()).unwrap_or(&files.decode).clone(),
        wrong: format!("does not take ids of the tokenizer or of the contract: it is of another model ({error})"),
    })?;
    if lm.policy() != Policy::Single && n_slots > 1 {
        let (worst, tolerance) = lm.self_test()?;
        if worst > tolerance {
            tracing::warn!(
                model = contract.name,
                worst,
                tolerance,
                "rows of several lengths disturb each other in this graph, so each runs alone: slower with many listeners"
            );
            lm.demote();
        }
    }
    if config.deterministic {
        // Where a masked row's columns are depends on the others, and with it the order of its sums.
        if lm.policy() == Policy::Masked {
            lm.demote();
        }
        lm.pin();
    }
    lm.warm()?;
    let bytes_per_token = lm.bytes_per_token();
    let bytes_per_slot = lm.bytes_per_slot();
    let report = SlotReport { n_slots, bytes_per_token, bytes_per_slot, ..SlotReport::default() };
    Ok((SpeechEngine::new(contract.clone(), lm, place.counted.clone()), report))
}

/// Seconds of a tone, for warm-up.
fn hum(contract: &Contract, seconds: u32) -> Vec<f32> {
    let rate = contract.rate_hz as f32;
    let n = contract.rate_hz * seconds;
    (0..n).map(|i| 0.1 * (i as f32 * 220.0 * std::f32::consts::TAU / rate).sin()).collect()
}

fn store_settings(config: &TtsConfig, contract: &Contract, sealing: Option<Arc<dyn Sealing>>) -> StoreSettings {
    /// The longest recording that is taken; what a family uses of it is in its contract.
    const MAX_RECORDING: Duration = Duration::from_secs(60);
    /// Of all uploaded recordings.
    const MAX_BYTES: u64 = 512 << 20;
    let condition = &contract.condition;
    let takes_language = contract.prompt().is_some_and(|prompt| prompt.language.is_some());
    let auto = takes_language.then(|| AUTO.to_owned());
    let use_at_most = Duration::from_secs_f32(condition.use_seconds);
    StoreSettings {
        folder: config.voices_dir.clone().into(),
        rate: SampleRate::new(contract.rate_hz),
        min: Duration::from_secs_f32(contract.condition.min_seconds),
        // The words of a recording are those of all of it.
        max: if condition.needs_transcript { use_at_most } else { MAX_RECORDING },
        use_at_most,
        loudness_lufs: Some(-27.0),
        max_voices: config.max_voices,
        max_bytes: MAX_BYTES,
        languages: contract.languages.iter().cloned().chain(auto).collect(),
        needs_transcript: condition.needs_transcript,
        sealing,
    }
}

fn unavailable(error: impl std::error::Error) -> TtsError {
    TtsError::Unavailable(error.to_string())
}

impl Tts for SpeechLm {
    fn name(&self) -> &str {
        "speechlm"
    }

    fn concurrency(&self) -> usize {
        self.shared.report.n_slots
    }

    fn repeats(&self, request: &SpeechRequest) -> Repeats {
        if self.shared.is_deterministic && request.seed.is_some() { Repeats::Exactly } else { Repeats::Never }
    }

    fn waiting(&self) -> usize {
        self.shared.slots.load().waiting
    }

    fn in_service(&self) -> usize {
        self.shared.slots.load().in_use
    }

    fn marks(&self) -> Vec<String> {
        self.shared.reader.marks().to_vec()
    }

    fn slots(&self) -> Option<SlotReport> {
        let load = self.shared.slots.load();
        let n_slots = load.n_slots;
        let in_use = load.in_use;
        let waiting = load.waiting;
        // The last steps say nothing while there are none.
        let step_permille = if in_use == 0 { 0 } else { self.shared.counted.step_permille.load(Ordering::Relaxed) };
        Some(SlotReport { n_slots, in_use, waiting, step_permille, ..self.shared.report.clone() })
    }

    fn voices(&self) -> Vec<Voice> {
        let voices = self.shared.fixed_voices();
        if !voices.is_empty() {
            return voices;
        }
        let language = self.shared.contract.languages[0].clone();
        vec![Voice { id: NO_VOICE.into(), name: "No voice yet: add one".into(), language }]
    }

    fn language(&self, voice: &str) -> String {
        let voices = self.shared.recordings.list();
        let spoken = voices.iter().find(|known| known.id == voice).map(|known| known.language.clone());
        spoken.unwrap_or_else(|| self.voices()[0].language.clone())
    }

    fn voice_library(&self) -> Option<Arc<dyn VoiceLibrary>> {
        Some(self.library.clone())
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let shared = self.shared.clone();
        let deadline = shared.deadline;
        let speed = request.speed;
        let stream = async_stream::stream! {
            let (speaking, job) = match ChunkSpeech::prepare(shared.clone(), request).await {
                Ok(prepared) => prepared,
                Err(error) => {
                    yield Err(error);
                    return;
                }
            };
            if let Err((Overloaded { waiting }, _)) = shared.slots.submit(job) {
                yield Err(TtsError::Overloaded { waiting });
                return;
            }
            for await piece in speaking.sound() {
                yield piece;
            }
        };
        // The models keep their own rate.
        at_speed(with_deadline(stream, deadline), speed)
    }

    fn speak_queued(&self, request: SpeechRequest) -> BoxFuture<'static, BoxStream<'static, Result<Pcm, TtsError>>> {
        let shared = self.shared.clone();
        async move {
            let deadline = shared.deadline;
            let speed = request.speed;
            match ChunkSpeech::prepare(shared.clone(), request).await {
                Ok((speaking, job)) => {
                    shared.slots.enqueue(job).await;
                    at_speed(with_deadline(speaking.sound(), deadline), speed)
                }
                Err(error) => futures_util::StreamExt::boxed(futures_util::stream::iter([Err(error)])),
            }
        }
        .boxed()
    }
}

impl SpeechContext {
    /// Voices that everybody may use, the default one first: the configured one, else the first of the folder.
    fn fixed_voices(&self) -> Vec<Voice> {
        let mut voices: Vec<Voice> =
            self.recordings.list().iter().filter(|voice| !voice.is_uploaded()).map(|voice| voice.voice()).collect();
        if let Some(place) = self.voice.as_ref().and_then(|chosen| voices.iter().position(|voice| voice.id == *chosen))
        {
            voices[..=place].rotate_right(1);
        }
        voices
    }
}
