//! What neural voices cost the hub: its own overhead for each chunk, and what a batch is worth.
//!
//! The models are those of `make true-size`: the families' dimensions with random weights, so the sound is noise and the
//! cost is real. They are run by the hub's own engines, through the port that sessions use, in this process.
//!
//! Overhead: a model with Piper's inputs and outputs that does nothing speaks one chunk after the other; a wait runs from
//! the call to the end of its sound, so it holds the phonemes, the lane, the tensors, the call and the way back.
//!
//! Batches: eight listeners ask at once, again and again; chunks a second, and the time to each one's first sound. The same
//! with batches of 1 to 8. The `[onnx]` section is taken from the environment, so that a GPU can be named:
//! `ANTIPHON_ONNX__PROVIDER=cuda ANTIPHON_ONNX__REQUIRE=true`.

use super::{BenchError, Figure, Measure, Plan, Progress, Section, Taken, Unit, Waits};
use crate::config::{self, Config, Sources};
use crate::engines;
use crate::onnx::OnnxConfig;
use crate::tts::{SpeechRequest, Tts, TtsError};
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Where `make true-size` puts them.
const FOLDER: &str = "models/true-size";

const OVERHEAD_CHUNKS: usize = 300;
const OVERHEAD_MS: f64 = 2.0;
/// Listeners who ask at once.
const N_LISTENERS: usize = 8;
/// For a chunk, the wait for those before it included: a busy machine makes figures worse, not fewer.
const PATIENCE_MS: u64 = 180_000;
const ROUNDS: usize = 4;
const BATCHES: [usize; 4] = [1, 2, 4, 8];
/// Time of a chunk in batches of 8 against batches of 1: 0.8 times the throughput on the processor, twice it on a GPU.
const CPU_TIME: f64 = 1.25;
const GPU_TIME: f64 = 0.5;
/// Time to the first sound of eight listeners against one, on a GPU.
const GPU_FIRST_SOUND: f64 = 3.0;

/// Chunks of about the same length, as a reply has them.
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

/// What one model gave at one size of batches.
struct Run {
    first_sounds: Waits,
    chunks_a_second: f64,
    /// Time of a run against the time its sound lasts.
    real_time: f64,
}

pub(super) async fn measure(plan: &Plan, progress: Progress<'_>) -> Result<Taken, BenchError> {
    let onnx = config::load(&Sources::of_process(None)).map_err(|error| BenchError::Method(error.to_string()))?.onnx;
    let how = format!(
        "true-size models with RANDOM weights on {}: the cost of the published dimensions, not of a published model",
        onnx.provider
    );
    let mut section = Section::new(Measure::Engines.name(), how);
    overhead(&mut section, plan, &onnx, progress).await?;
    batches(&mut section, plan, &onnx, progress).await?;

    progress("engines: kokoro");
    let kokoro = start("kokoro", "kokoro", 1, &onnx).await?;
    let alone = one_after_another(kokoro.as_ref(), plan.turns(2)).await?;
    section.figures.push(Figure::new("kokoro: time against its sound", Unit::Times, alone.real_time, plan.turns(2)));
    Ok(Taken { section, hub_cpu_s: 0.0 })
}

async fn overhead(
    section: &mut Section,
    plan: &Plan,
    onnx: &OnnxConfig,
    progress: Progress<'_>,
) -> Result<(), BenchError> {
    progress("engines: overhead");
    let onnx = OnnxConfig { provider: "cpu".into(), ..onnx.clone() };
    // One text a run; then as the configuration's default has it, where a chunk must not wait for others that never come.
    for (max_batch_size, lane) in [(1, ""), (0, ", batching")] {
        let free = start("piper", "free", max_batch_size, &onnx).await?;
        let (mut whole, mut first) = (Waits::default(), Waits::default());
        for chunk in CHUNKS.iter().cycle().take(plan.turns(OVERHEAD_CHUNKS)) {
            let spoken = speak(free.as_ref(), chunk).await?;
            whole.push(spoken.whole);
            first.push(spoken.first_sound);
        }
        let to = |which: &str| format!("overhead a chunk{lane}, to its {which} sound");
        section.percentile(&to("last"), &whole, 50.0, Some(OVERHEAD_MS));
        section.percentile(&to("last"), &whole, 95.0, None);
        section.percentile(&to("first"), &first, 50.0, None);
    }
    Ok(())
}

async fn batches(
    section: &mut Section,
    plan: &Plan,
    onnx: &OnnxConfig,
    progress: Progress<'_>,
) -> Result<(), BenchError> {
    let on_cpu = onnx.provider == "cpu";
    let rounds = plan.turns(ROUNDS);
    let n = rounds * N_LISTENERS;
    let mut runs = Vec::new();
    for size in BATCHES {
        progress(&format!("engines: piper, batches of {size}"));
        let piper = start("piper", "piper", size, onnx).await?;
        if runs.is_empty() {
            let alone = one_after_another(piper.as_ref(), n.div_ceil(2)).await?;
            section.figures.push(Figure::new(
                "piper: time against its sound",
                Unit::Times,
                alone.real_time,
                n.div_ceil(2),
            ));
            section.percentile("piper: first sound, 1 listener", &alone.first_sounds, 50.0, None);
            runs.push(alone);
        }
        let run = together(piper.as_ref(), rounds).await?;
        let name = |what: &str| format!("piper: {what}, batches of {size}");
        section.figures.push(Figure::new(name("chunks a second"), Unit::PerSecond, run.chunks_a_second, n));
        section.percentile(&name("first sound, 8 listeners"), &run.first_sounds, 50.0, None);
        runs.push(run);
    }
    let [alone, single, .., whole] = &runs[..] else { unreachable!("one run for each size") };
    let time = single.chunks_a_second / whole.chunks_a_second;
    let bound = if on_cpu { CPU_TIME } else { GPU_TIME };
    let name = "piper: a chunk's time, batches of 8 against 1";
    section.figures.push(Figure::new(name, Unit::Times, time, n).at_most(bound));
    let waits = (whole.first_sounds.percentile(50.0), alone.first_sounds.percentile(50.0));
    if let (Some(eight), Some(one)) = waits {
        let figure = Figure::new("piper: first sound, 8 listeners against 1", Unit::Times, eight / one, n);
        section.figures.push(if on_cpu { figure } else { figure.at_most(GPU_FIRST_SOUND) });
    }
    let best = runs[1..].iter().zip(BATCHES).max_by(|(a, _), (b, _)| a.chunks_a_second.total_cmp(&b.chunks_a_second));
    section.notes.extend(best.map(|(_, size)| format!("piper: most chunks a second in batches of {size}")));
    Ok(())
}

/// A voice on one lane, as the hub makes it.
async fn start(
    engine: &str,
    model: &str,
    max_batch_size: usize,
    onnx: &OnnxConfig,
) -> Result<Arc<dyn Tts>, BenchError> {
    let path = Path::new(FOLDER).join(model).join("model.onnx");
    if !path.exists() {
        let text = format!("{} is not there: run `make true-size onnxruntime`", path.display());
        return Err(BenchError::Method(text));
    }
    let mut config = Config { onnx: onnx.clone(), ..Config::default() };
    config.tts.engine = engine.into();
    config.tts.model = path.display().to_string();
    (config.tts.lanes, config.tts.max_batch_size) = (1, max_batch_size);
    config.tts.timeout_ms = PATIENCE_MS;
    let made = tokio::task::spawn_blocking(move || engines::tts(&config)).await?;
    Ok(made.map_err(engines::EnginesError::from)?)
}

struct Spoken {
    first_sound: Duration,
    whole: Duration,
    sound: Duration,
}

async fn speak(voice: &dyn Tts, text: &str) -> Result<Spoken, BenchError> {
    let unplayed = Some(Duration::ZERO);
    let id = voice.voices()[0].id.clone();
    let begun = Instant::now();
    let mut pieces = voice.speak(SpeechRequest { text: text.into(), voice: id, speed: 1.0, unplayed });
    let (mut first_sound, mut sound) = (None, Duration::ZERO);
    while let Some(pcm) = pieces.next().await {
        sound += pcm.map_err(BenchError::Speech)?.duration();
        first_sound.get_or_insert_with(|| begun.elapsed());
    }
    let silent = || BenchError::Speech(TtsError::Engine { message: "no sound came".into(), source: None });
    Ok(Spoken { first_sound: first_sound.ok_or_else(silent)?, whole: begun.elapsed(), sound })
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

/// Eight listeners who ask at the same time, in rounds.
async fn together(voice: &dyn Tts, rounds: usize) -> Result<Run, BenchError> {
    let begun = Instant::now();
    let mut all = Vec::new();
    for _ in 0..rounds {
        all.extend(try_join_all(CHUNKS.iter().map(|chunk| speak(voice, chunk))).await?);
    }
    Ok(Run::of(all, begun.elapsed()))
}

impl Run {
    fn of(spoken: Vec<Spoken>, took: Duration) -> Self {
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
    fn a_run_is_reckoned_from_what_was_spoken() {
        let ms = Duration::from_millis;
        let spoken = |first| Spoken { first_sound: ms(first), whole: ms(400), sound: ms(2_000) };
        let run = Run::of(vec![spoken(100), spoken(200), spoken(300)], ms(1_500));
        assert_eq!(run.first_sounds.percentile(50.0), Some(200.0));
        assert_eq!((run.chunks_a_second, run.real_time), (2.0, 0.25));
    }

    #[tokio::test]
    async fn a_model_that_is_not_there_is_said() {
        let error = start("piper", "none", 1, &OnnxConfig::default()).await.err().expect("missing").to_string();
        assert!(error.contains("make true-size"), "{error}");
    }
}
