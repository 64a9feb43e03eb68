//! The cost of neural voices: the hub's overhead per chunk, and the benefit of batching.
//!
//! The models come from `make true-size`: the dimensions of the published models with random weights, so the sound is
//! noise and the cost is realistic. The hub's own engines run them in this process, through the port that sessions use.
//!
//! Overhead: a model with Piper's inputs and outputs that computes nothing speaks one chunk after the other. The time
//! runs from the call to the end of the audio, so it includes phonemes, the engine pool, tensors, the model call and
//! the return.
//!
//! Batches: eight listeners request speech concurrently and repeatedly, with batches of 1 to 8; reported are chunks per
//! second and the time to the first audio. The `[onnx]` section is read from the environment, so that a GPU can be
//! selected (`ANTIPHON_ONNX__PROVIDER=cuda`); there is no fallback to the CPU. On a GPU batches go up to 16 and
//! requests per minute are reported. Kokoro, whose model takes no batches, is measured with a pool of that many workers
//! instead.

use super::{BenchError, Figure, Measure, Measurement, Plan, Progress, Section, Unit, Waits, name_of};
use antiphon::assembly;
use antiphon::config::{self, Config, Sources};
use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError};
use antiphon_inference::onnx::OnnxConfig;
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Where `make true-size` writes the models.
const FOLDER: &str = "models/true-size";

const OVERHEAD_CHUNKS: usize = 300;
const OVERHEAD_MS: f64 = 2.0;
/// Concurrent listeners.
const N_LISTENERS: usize = 8;
/// Timeout of a chunk including its queueing time: a busy machine makes figures worse, but not fewer.
const CHUNK_TIMEOUT_MS: u64 = 180_000;
const ROUNDS: usize = 4;
/// Batch sizes, or pool sizes for a model that takes one chunk at a time. A batch of 16 needs as many listeners.
const ON_CPU: [usize; 4] = [1, 2, 4, 8];
const ON_GPU: [usize; 4] = [1, 4, 8, 16];
pub(super) const CPU: &str = "cpu";
/// Gate: time per chunk in batches of 8 relative to batches of 1; 0.8 times the throughput on a CPU, twice on a GPU.
const CPU_TIME: f64 = 1.25;
const GPU_TIME: f64 = 0.5;
/// Gate on a GPU: time to first audio of eight listeners relative to one.
const GPU_FIRST_SOUND: f64 = 3.0;

/// Chunks of similar length, as in a response.
const CHUNKS: [&str; N_LISTENERS] = [
    "The next train to the coast leaves at nine.",
    "You will find the keys on the kitchen table.",
    "It will rain in the evening, so take a coat.",
    "The shop around the corner closes at eight.",
    "Seven times eight is fifty six, as it was.",
    "A kilometre is about five eighths of a mile.",
    "The meeting has been moved to half past two.",
    "There are three messages from your brother.",
];

/// How a model family serves concurrent requests.
#[derive(Clone, Copy)]
enum By {
    Batches,
    /// Its published models take one chunk at a time.
    Replicas,
}

/// The settings of a voice's engine pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PoolSize {
    replicas: usize,
    max_batch_size: usize,
}

impl PoolSize {
    /// One chunk at a time.
    const ONE: Self = Self { replicas: 1, max_batch_size: 1 };
}

/// A model family with a true-size model.
#[derive(Clone, Copy)]
struct Voice {
    family: &'static str,
    by: By,
}

const PIPER: Voice = Voice { family: "piper", by: By::Batches };
const KOKORO: Voice = Voice { family: "kokoro", by: By::Replicas };

impl By {
    fn name(self) -> &'static str {
        match self {
            Self::Batches => "batches",
            Self::Replicas => "replicas",
        }
    }

    fn pool_size(self, size: usize) -> PoolSize {
        match self {
            Self::Batches => PoolSize { replicas: 1, max_batch_size: size },
            Self::Replicas => PoolSize { replicas: size, max_batch_size: 1 },
        }
    }
}

/// Results of one model: for one listener, and for many by batch or pool size.
struct Runs {
    alone: Run,
    together: Vec<(usize, Run)>,
}

impl Runs {
    fn of(&self, size: usize) -> &Run {
        self.together.iter().find(|(of, _)| *of == size).map_or(&self.alone, |(_, run)| run)
    }
}

/// Results of one model at one size.
#[derive(Default)]
struct Run {
    first_sounds: Waits,
    chunks_a_second: f64,
    /// Synthesis time relative to the playing time of the audio.
    real_time: f64,
}

pub(super) async fn measure(plan: &Plan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let config = config::load(&Sources::of_process(None)).map_err(|error| BenchError::Method(error.to_string()))?;
    let onnx = demanded(config.onnx);
    let how = format!(
        "true-size models with RANDOM weights on {}: the cost of the published dimensions, not of a published model",
        onnx.provider
    );
    let mut section = Section::new(name_of(Measure::Engines), how);
    if !plan.speech_models.is_empty() {
        super::speech_models::exported(&mut section, plan, &onnx, progress).await?;
        return Ok(Measurement { section, hub_cpu_s: 0.0 });
    }
    overhead(&mut section, plan, &onnx, progress).await?;
    batches(&mut section, plan, &onnx, progress).await?;

    if onnx.provider == CPU {
        progress("engines: kokoro");
        let kokoro = start("kokoro", "kokoro", PoolSize::ONE, &onnx).await?;
        let alone = one_after_another(kokoro.as_ref(), plan.turns(2)).await?;
        let name = "kokoro: time against its sound";
        section.figures.push(Figure::new(name, Unit::Times, alone.real_time, plan.turns(2)));
    } else {
        sizes(&mut section, plan, KOKORO, &onnx, progress).await?;
    }
    super::speech_models::measure(&mut section, plan, &onnx, progress).await?;
    Ok(Measurement { section, hub_cpu_s: 0.0 })
}

/// Requires the configured provider: figures of the CPU under another provider's name would be misleading.
fn demanded(onnx: OnnxConfig) -> OnnxConfig {
    OnnxConfig { require: onnx.require || onnx.provider != CPU, ..onnx }
}

async fn overhead(
    section: &mut Section,
    plan: &Plan,
    onnx: &OnnxConfig,
    progress: Progress<'_>,
) -> Result<(), BenchError> {
    progress("engines: overhead");
    let onnx = OnnxConfig { provider: CPU.into(), ..onnx.clone() };
    // One text per run; then the configured default, where a chunk must not wait for others that never arrive.
    for (max_batch_size, batching) in [(1, ""), (0, ", batching")] {
        let free = start("piper", "free", PoolSize { max_batch_size, ..PoolSize::ONE }, &onnx).await?;
        let mut whole = Waits::default();
        let mut first = Waits::default();
        for chunk in CHUNKS.iter().cycle().take(plan.turns(OVERHEAD_CHUNKS)) {
            let spoken = speak(free.as_ref(), chunk).await?;
            whole.push(spoken.whole);
            first.push(spoken.first_sound);
        }
        let to = |which: &str| format!("overhead a chunk{batching}, to its {which} sound");
        section.percentile(&to("last"), &whole, 50.0, Some(OVERHEAD_MS));
        section.percentile(&to("last"), &whole, 95.0, None);
        section.percentile(&to("first"), &first, 50.0, None);
    }
    Ok(())
}

/// Measures a voice with batches or pools of each size; at the first size, one listener is measured alone first.
async fn sizes(
    section: &mut Section,
    plan: &Plan,
    voice: Voice,
    onnx: &OnnxConfig,
    progress: Progress<'_>,
) -> Result<Runs, BenchError> {
    let family = voice.family;
    let by = voice.by.name();
    let on_cpu = onnx.provider == CPU;
    let rounds = plan.turns(ROUNDS);
    let n_alone = (rounds * N_LISTENERS).div_ceil(2);
    let mut runs = Runs { alone: Run::default(), together: Vec::new() };
    for &size in if on_cpu { &ON_CPU } else { &ON_GPU } {
        progress(&format!("engines: {family}, {by} of {size}"));
        let tts = start(family, family, voice.by.pool_size(size), onnx).await?;
        if runs.together.is_empty() {
            runs.alone = one_after_another(tts.as_ref(), n_alone).await?;
            let name = format!("{family}: time against its sound");
            section.figures.push(Figure::new(name, Unit::Times, runs.alone.real_time, n_alone));
            section.percentile(&format!("{family}: first sound, 1 listener"), &runs.alone.first_sounds, 50.0, None);
        }
        let n_listeners = N_LISTENERS.max(size);
        let run = together(tts.as_ref(), rounds, n_listeners).await?;
        let name = |what: &str| format!("{family}: {what}, {by} of {size}");
        let mut add = |what: &str, unit, value| {
            section.figures.push(Figure::new(name(what), unit, value, rounds * n_listeners));
        };
        add("chunks a second", Unit::PerSecond, run.chunks_a_second);
        if !on_cpu {
            add("throughput", Unit::Of("requests/min"), 60.0 * run.chunks_a_second);
        }
        let first = name(&format!("first sound, {n_listeners} listeners"));
        section.percentile(&first, &run.first_sounds, 50.0, None);
        if !on_cpu {
            section.percentile(&first, &run.first_sounds, 95.0, None);
        }
        section.show_new(progress);
        runs.together.push((size, run));
    }
    let best = runs.together.iter().max_by(|(_, a), (_, b)| a.chunks_a_second.total_cmp(&b.chunks_a_second));
    section.notes.extend(best.map(|(size, _)| format!("{family}: most chunks a second in {by} of {size}")));
    Ok(runs)
}

/// Measures Piper's batches and adds their gates.
async fn batches(
    section: &mut Section,
    plan: &Plan,
    onnx: &OnnxConfig,
    progress: Progress<'_>,
) -> Result<(), BenchError> {
    let on_cpu = onnx.provider == CPU;
    let runs = sizes(section, plan, PIPER, onnx, progress).await?;
    let n = plan.turns(ROUNDS) * N_LISTENERS;
    let single = runs.of(1);
    let whole = runs.of(N_LISTENERS);
    let time = single.chunks_a_second / whole.chunks_a_second;
    let bound = if on_cpu { CPU_TIME } else { GPU_TIME };
    let name = "piper: a chunk's time, batches of 8 against 1";
    section.figures.push(Figure::new(name, Unit::Times, time, n).at_most(bound));
    let waits = (whole.first_sounds.percentile(50.0), runs.alone.first_sounds.percentile(50.0));
    if let (Some(eight), Some(one)) = waits {
        let figure = Figure::new("piper: first sound, 8 listeners against 1", Unit::Times, eight / one, n);
        section.figures.push(if on_cpu { figure } else { figure.at_most(GPU_FIRST_SOUND) });
    }
    Ok(())
}

/// Builds a voice with a given pool size and batch size, as the hub does.
async fn start(engine: &str, model: &str, size: PoolSize, onnx: &OnnxConfig) -> Result<Arc<dyn Tts>, BenchError> {
    let path = Path::new(FOLDER).join(model).join("model.onnx");
    if !path.exists() {
        let text = format!("{} is not there: run `make true-size onnxruntime`", path.display());
        return Err(BenchError::Method(text));
    }
    let mut config = Config { onnx: onnx.clone(), ..Config::default() };
    config.tts.engine = engine.into();
    config.tts.model = path.display().to_string();
    config.tts.replicas = size.replicas;
    config.tts.max_batch_size = size.max_batch_size;
    config.tts.timeout_ms = CHUNK_TIMEOUT_MS;
    let made = tokio::task::spawn_blocking(move || assembly::tts(&config)).await?;
    Ok(made.map_err(assembly::EnginesError::from)?)
}

struct ChunkTimes {
    first_sound: Duration,
    whole: Duration,
    sound: Duration,
}

async fn speak(voice: &dyn Tts, text: &str) -> Result<ChunkTimes, BenchError> {
    let unplayed = Some(Duration::ZERO);
    let id = voice.voices()[0].id.clone();
    let begun = Instant::now();
    let mut pieces = voice.speak(SpeechRequest { text: text.into(), voice: id, unplayed, ..SpeechRequest::default() });
    let mut first_sound = None;
    let mut sound = Duration::ZERO;
    while let Some(pcm) = pieces.next().await {
        sound += pcm.map_err(BenchError::Speech)?.duration();
        first_sound.get_or_insert_with(|| begun.elapsed());
    }
    let silent = || BenchError::Speech(TtsError::Engine { message: "no audio was produced".into(), source: None });
    Ok(ChunkTimes { first_sound: first_sound.ok_or_else(silent)?, whole: begun.elapsed(), sound })
}

/// One listener, chunk by chunk.
async fn one_after_another(voice: &dyn Tts, n: usize) -> Result<Run, BenchError> {
    let begun = Instant::now();
    let mut all = Vec::new();
    for chunk in CHUNKS.iter().cycle().take(n) {
        all.push(speak(voice, chunk).await?);
    }
    Ok(Run::of(all, begun.elapsed()))
}

/// Concurrent listeners, in rounds.
async fn together(voice: &dyn Tts, rounds: usize, n_listeners: usize) -> Result<Run, BenchError> {
    let begun = Instant::now();
    let mut all = Vec::new();
    for _ in 0..rounds {
        let chunks = CHUNKS.iter().cycle().take(n_listeners);
        all.extend(try_join_all(chunks.map(|chunk| speak(voice, chunk))).await?);
    }
    Ok(Run::of(all, begun.elapsed()))
}

impl Run {
    fn of(spoken: Vec<ChunkTimes>, took: Duration) -> Self {
        let mut first_sounds = Waits::default();
        let sound: Duration = spoken.iter().map(|spoken| spoken.sound).sum();
        let n = spoken.len();
        spoken.into_iter().for_each(|spoken| first_sounds.push(spoken.first_sound));
        let took = took.as_secs_f64();
        Self { first_sounds, chunks_a_second: n as f64 / took, real_time: took / sound.as_secs_f64() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_computed_from_what_was_spoken() {
        let ms = Duration::from_millis;
        let spoken = |first| ChunkTimes { first_sound: ms(first), whole: ms(400), sound: ms(2_000) };
        let run = Run::of(vec![spoken(100), spoken(200), spoken(300)], ms(1_500));
        assert_eq!(run.first_sounds.percentile(50.0), Some(200.0));
        assert_eq!((run.chunks_a_second, run.real_time), (2.0, 0.25));
    }

    #[test]
    fn a_provider_that_is_named_must_serve() {
        let of = |provider: &str| demanded(OnnxConfig { provider: provider.into(), ..OnnxConfig::default() }).require;
        assert_eq!((of("cpu"), of("cuda"), of("tensorrt")), (false, true, true));
    }

    #[tokio::test]
    async fn all_sizes_of_a_voice_have_their_listeners() {
        let tts = antiphon_engine_api::fakes::tts::FakeTts::default();
        let run = together(&tts, 2, 16).await.expect("spoken");
        assert_eq!(run.first_sounds.len(), 32);
        assert_eq!(PIPER.by.pool_size(8), PoolSize { replicas: 1, max_batch_size: 8 });
        assert_eq!(KOKORO.by.pool_size(8), PoolSize { replicas: 8, max_batch_size: 1 });
    }

    #[tokio::test]
    async fn a_model_that_is_not_there_is_said() {
        let error =
            start("piper", "none", PoolSize::ONE, &OnnxConfig::default()).await.err().expect("missing").to_string();
        assert!(error.contains("make true-size"), "{error}");
    }
}
