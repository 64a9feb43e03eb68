//! The overhead of the Whisper engine over whisper.cpp, from the end of an utterance to its final transcript.
//!
//! The model has the size of Whisper base and random weights, because the weights are not part of this project.
//! Decoding time depends on the size alone once the number of tokens is fixed: 16, which is fast speech for 3 s. The
//! utterance is 3 s of sound with changing level, on two threads. Each run of the engine (energy gate, decoding, the
//! step that tests for silence and language, evaluation of the hypothesis) alternates with a direct whisper.cpp call on
//! the same window, so that other programs disturb both equally. Temperature fallback is disabled.

use super::{BenchError, Figure, Measure, Measurement, Plan, Progress, Section, Unit, Waits, name_of};
use antiphon_engines::stt::SttConfig;
use antiphon_engines::stt::whisper::probe::Probe;
use antiphon_engines::stt::whisper::{Sizes, random};
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

const N_RUNS: usize = 15;
const N_TOKENS: usize = 16;
const N_THREADS: usize = 2;
const SECONDS: usize = 3;

/// Gate: the engine's median divided by whisper.cpp's.
const MOST: f64 = 1.2;

pub(super) async fn measure(plan: &Plan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let how = "Whisper base, RANDOM weights, 16 tokens; a 3 s utterance on two threads, end to final transcript";
    let mut section = Section::new(name_of(Measure::Whisper), how);
    let n = plan.turns(N_RUNS);
    progress(&format!("whisper: a random model, then {n} runs of each kind"));
    let runs = tokio::task::spawn_blocking(move || run(&Sizes::BASE, n)).await;
    let runs = runs.map_err(|_| BenchError::Engine("the Whisper engine panicked".into()))??;
    section.percentile("engine", &runs.engine, 50.0, None);
    section.percentile("engine", &runs.engine, 95.0, None);
    section.percentile("whisper.cpp, same window", &runs.same, 50.0, None);
    section.percentile("whisper.cpp, window of 30 s", &runs.whole, 50.0, None);
    if let Some((engine, same)) = runs.engine.percentile(50.0).zip(runs.same.percentile(50.0)) {
        let ratio = Figure::new("engine over whisper.cpp, same window", Unit::Times, engine / same, n);
        section.figures.push(ratio.at_most(MOST));
    }
    section.notes.push("weights are random: the figures say how long Whisper base takes, not what it hears".into());
    Ok(Measurement { section, hub_cpu_s: 0.0 })
}

struct Runs {
    engine: Waits,
    same: Waits,
    whole: Waits,
}

fn run(sizes: &Sizes, n: usize) -> Result<Runs, BenchError> {
    let file = RandomModel::write(sizes)?;
    let model = file.0.to_str().unwrap_or_default().to_owned();
    let config = SttConfig { model, threads: N_THREADS, ..SttConfig::default() };
    let failed = |error: antiphon_engine_api::stt::SttError| BenchError::Engine(error.to_string());
    let mut probe = Probe::open(&config, N_TOKENS).map_err(failed)?;
    let pcm = utterance();
    let mut runs = Runs { engine: Waits::default(), same: Waits::default(), whole: Waits::default() };
    // The first run of each kind bears one-time allocations.
    for i in 0..=n {
        let engine = timed(|| probe.by_engine(&pcm)).map_err(failed)?;
        let same = timed(|| probe.by_whisper_cpp(&pcm, false)).map_err(failed)?;
        if i > 0 {
            runs.engine.push(engine);
            runs.same.push(same);
        }
    }
    for _ in 0..n.div_ceil(3) {
        runs.whole.push(timed(|| probe.by_whisper_cpp(&pcm, true)).map_err(failed)?);
    }
    Ok(runs)
}

fn timed<E>(work: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let began = Instant::now();
    work().map(|()| began.elapsed())
}

/// Noise in syllables of 150 ms, without pauses at either end.
fn utterance() -> Vec<i16> {
    let mut state = 1u32;
    let mut sample = |i: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let loudness = if i / 2_400 % 4 == 3 { 0.01 } else { 0.3 };
        (f32::from((state >> 16) as i16) * loudness) as i16
    };
    (0..SECONDS * 16_000).map(&mut sample).collect()
}

/// A temporary file of 148 MB, deleted on drop.
struct RandomModel(PathBuf);

impl RandomModel {
    fn write(sizes: &Sizes) -> Result<Self, BenchError> {
        let name = format!("antiphon-bench-whisper-{}.bin", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        let written = write(&file.0, sizes);
        written.map_err(|error| BenchError::Engine(format!("{} cannot be written: {error}", file.0.display())))?;
        Ok(file)
    }
}

fn write(path: &Path, sizes: &Sizes) -> io::Result<()> {
    random::write(&mut BufWriter::new(File::create(path)?), sizes)
}

impl Drop for RandomModel {
    fn drop(&mut self) {
        // It may not have been created.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whisper_cpp_takes_the_random_model_and_both_run_on_it() {
        let small = Sizes {
            n_audio_state: 16,
            n_audio_head: 2,
            n_audio_layer: 1,
            n_text_state: 16,
            n_text_head: 2,
            n_text_layer: 1,
            ..Sizes::BASE
        };
        let runs = run(&small, 2).expect("they run");
        assert_eq!([runs.engine.n_ended(), runs.same.n_ended(), runs.whole.n_ended()], [2, 2, 1]);
    }
}
