//! A family's replica as an engine that speaks several chunks in one run.

use super::super::TtsConfig;
use super::super::batched::{BatchTtsEngine, BatchedTts, Batching, Job};
use super::super::local::{LocalTts, PoolSettings};
use super::levels::Levels;
use super::sound::Shape;
use super::{Failure, Family, Item, ModelRun, Neural, sound, speed};
use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError, Voice};
use antiphon_inference::onnx::{OnnxConfig, Provider};
use antiphon_types::RunsOn;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Longer pieces than in a pool: a run never waits for a reader, and a reader's lag is counted in pieces.
const PIECE_MS: u64 = 200;

/// The largest chunks of each size class, in bytes of text; longer ones form one more.
const UP_TO: [usize; 3] = [32, 96, 192];

/// The port over a family's replicas: batches where its model takes them and the configuration allows it, turns of one
/// utterance where its runs are short, else one chunk a replica at a time. `make` gets the configuration with the replica's own device, the same at each restart: replicas take the
/// devices of `onnx` in turn. Blocks until all replicas run and are warm.
pub(in crate::tts) fn serve<F, M>(
    name: &str,
    config: &TtsConfig,
    onnx: &OnnxConfig,
    make: M,
) -> Result<Arc<dyn Tts>, TtsError>
where
    F: Family,
    M: Fn(&OnnxConfig) -> Result<F, TtsError> + Send + Sync + 'static,
{
    let first = make(&onnx.for_replica(0))?;
    let provider = first.provider();
    let batches = first.batches();
    let takes_turns = first.takes_turns();
    // Where the GPU's libraries are missing, all replicas run on the processor.
    let n_devices = if provider == Provider::Cpu { 1 } else { onnx.devices().len() };
    let batching = Batching::of(config, provider, n_devices);
    if batching.max_batch > 1 && !batches && !takes_turns {
        tracing::info!(engine = name, "the model takes one chunk at a time: no batches");
    }
    // The one that was loaded for inspection becomes replica 0: it lies on that one's device.
    let first = Mutex::new(Some(first));
    let onnx = onnx.clone();
    let make = move |replica| {
        let loaded = (replica == 0).then(|| first.lock().unwrap_or_else(PoisonError::into_inner).take()).flatten();
        loaded.map_or_else(|| make(&onnx.for_replica(replica)), Ok)
    };
    let levels = Arc::<Levels>::default();
    let warmed = move |replica, most| Neural::warmed(make(replica)?, most, Some(levels.clone()));
    if takes_turns || batching.max_batch > 1 && batches {
        let most = if batches { batching.max_batch } else { 1 };
        let batching = Batching { max_batch: most, ..batching };
        return Ok(Arc::new(BatchedTts::start(name, batching, move |replica| warmed(replica, most))?));
    }
    // On a GPU one after the other: two that build the same TensorRT engine at once would both pay for it, and write one file.
    let in_turn = provider != Provider::Cpu;
    let settings = PoolSettings { n_replicas: batching.n_replicas, in_turn, deadline: batching.deadline };
    Ok(Arc::new(LocalTts::start(name, settings, move |replica| warmed(replica, 1))?))
}

/// A job's state from step to step: its utterances, read once.
#[derive(Default)]
struct ReadUtterances(Option<Vec<ModelRun>>);

impl<F: Family> BatchTtsEngine for Neural<F> {
    fn voices(&self) -> &[Voice] {
        self.family.voices()
    }

    fn runs_on(&self) -> RunsOn {
        self.family.runs_on()
    }

    /// By speed, since a run has one for all, and by length: that of the text, which is one sentence as a rule.
    fn bucket(request: &SpeechRequest) -> u32 {
        let class = UP_TO.iter().filter(|most| request.text.len() > **most).count();
        (speed(request.speed) * 100.0).round() as u32 * (UP_TO.len() + 1) as u32 + class as u32
    }

    fn synthesize_batch(&mut self, jobs: &mut [Job], cancel: &CancellationToken) -> Result<(), TtsError> {
        let mut steps = Vec::with_capacity(jobs.len());
        for (i, job) in jobs.iter_mut().enumerate() {
            match self.step(job) {
                Ok(Some((utterance, goes_on))) => steps.push((i, utterance, goes_on)),
                Ok(None) => {}
                Err(error) => job.fail(error),
            }
        }
        let Some((first, ..)) = steps.first() else { return Ok(()) };
        let asked = speed(jobs[*first].request().speed);
        let speed = self.family.speed(asked);
        let levels: Vec<_> = steps.iter().map(|(i, ..)| self.level(&jobs[*i].request().voice)).collect();
        let items: Vec<_> =
            steps.iter().map(|(i, step, _)| Item { ids: &step.ids, voice: &jobs[*i].request().voice }).collect();
        let sounds = match self.speak(&items, speed, cancel) {
            Ok(sounds) => sounds,
            Err(Failure::Cancelled) => return Ok(()),
            Err(Failure::Failed(error)) => return Err(error),
        };
        let rate = self.family.rate();
        for (((i, step, goes_on), sound), level) in steps.iter().zip(sounds).zip(levels) {
            let job = &mut jobs[*i];
            let shape = Shape { rate, level, tempo: asked / speed, pause: step.pause.div_f32(asked) };
            let samples = sound::samples(&sound, shape);
            sound::pieces(&samples, rate, PIECE_MS).for_each(|piece| job.sound(piece));
            if *goes_on {
                let next = job.position() + 1;
                job.go_on_at(next);
            }
        }
        Ok(())
    }
}

impl<F: Family> Neural<F> {
    /// The utterance a job is at, and whether there are more; `None` where nothing is left to speak.
    fn step(&mut self, job: &mut Job) -> Result<Option<(ModelRun, bool)>, TtsError> {
        if job.kept::<ReadUtterances>().0.is_none() {
            let utterances = self.family.read(job.request())?;
            job.kept::<ReadUtterances>().0 = Some(utterances);
        }
        let at = job.position();
        let utterances = job.kept::<ReadUtterances>().0.as_deref().unwrap_or_default();
        Ok(utterances.get(at).map(|utterance| (utterance.clone(), at + 1 < utterances.len())))
    }
}
