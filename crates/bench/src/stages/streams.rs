//! Streaming recognition: utterances that come in real time, all at once, to the `transducer` engine in this process.
//!
//! `antiphon-bench stt --streams` runs it. Each stream pushes its clip in pieces of 20 ms, as a microphone does, and then asks
//! for the final transcript; the streams begin spread over a chunk. The engine counts its steps itself.

use super::Clip;
use crate::{BenchError, Figure, Progress, Section, Unit, Waits};
use antiphon_engine_api::stt::{RATE, Stt, SttError, SttOptions};
use antiphon_engines::stt::SttConfig;
use antiphon_engines::stt::transducer::{self, StepCosts, Transducer};
use antiphon_inference::onnx::OnnxConfig;
use futures_util::future::try_join_all;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

/// Between two pieces.
const PIECE: Duration = Duration::from_millis(20);

/// Takes the figures for each number of streams, each for so many seconds of audio.
///
/// # Errors
/// [`BenchError::Engine`] where the engine cannot be loaded or fails.
pub async fn streams(
    stt: &SttConfig,
    onnx: &OnnxConfig,
    numbers: &[u16],
    seconds: u32,
    clips: &[Clip],
    progress: Progress<'_>,
) -> Result<Section, BenchError> {
    let most = usize::from(numbers.iter().copied().max().unwrap_or(1));
    let stt = SttConfig { slots: most, ..stt.clone() };
    let onnx = onnx.clone();
    let engine = tokio::task::spawn_blocking(move || transducer::open(&stt, &onnx)).await?;
    let engine = engine.map_err(failed)?;
    let how = format!("{} streams of {seconds} s in real time, chunks of {} ms", listed(numbers), engine.chunk_ms());
    let mut section = Section::new("streaming recognition", how);
    // The first runs of a size choose kernels.
    progress("stt: warming up");
    run(&engine, most, 2, clips).await?;
    for &n_streams in numbers {
        progress(&format!("stt: {n_streams} streams"));
        let before = Counted::of(engine.costs());
        let begun = Instant::now();
        let finals = run(&engine, n_streams.into(), seconds, clips).await?;
        let took = begun.elapsed();
        let counted = Counted::of(engine.costs()).since(before);
        let of = |what: &str| format!("{n_streams} streams: {what}");
        let n = counted.n_steps as usize;
        let audio = f64::from(n_streams) * f64::from(seconds);
        let per_step = |time: Duration| 1000.0 * time.as_secs_f64() / counted.n_steps.max(1) as f64;
        let mut add = |what: &str, unit, value| section.figures.push(Figure::new(of(what), unit, value, n));
        add("real-time factor of a stream", Unit::Times, counted.in_steps.as_secs_f64() / audio);
        add("the engine's thread is busy", Unit::Of("%"), 100.0 * counted.in_steps.as_secs_f64() / took.as_secs_f64());
        add("chunks in a step", Unit::Count, counted.n_rows as f64 / counted.n_steps.max(1) as f64);
        add("a step", Unit::Ms, per_step(counted.in_steps));
        add("the hub's own share of a step", Unit::Ms, per_step(counted.in_steps.saturating_sub(counted.in_runs)));
        section.percentile(&of("end of speech to final transcript"), &finals, 50.0, None);
        section.percentile(&of("end of speech to final transcript"), &finals, 95.0, None);
        section.show_new(progress);
    }
    Ok(section)
}

fn failed(error: SttError) -> BenchError {
    BenchError::Engine(error.to_string())
}

fn listed(numbers: &[u16]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// One round: the waits for final transcripts.
async fn run(engine: &Transducer, n_streams: usize, seconds: u32, clips: &[Clip]) -> Result<Waits, BenchError> {
    let chunk = Duration::from_millis(engine.chunk_ms() as u64);
    let one = |i: usize| {
        let clip = clips[i % clips.len()].clone();
        async move {
            sleep(chunk * i as u32 / n_streams as u32).await;
            stream(engine, &clip, seconds).await
        }
    };
    let waited = try_join_all((0..n_streams).map(one)).await.map_err(failed)?;
    let mut finals = Waits::default();
    waited.into_iter().for_each(|wait| finals.push(wait));
    Ok(finals)
}

/// One utterance: the wait for its final transcript.
async fn stream(engine: &Transducer, clip: &[i16], seconds: u32) -> Result<Duration, SttError> {
    let mut utterance = engine.open(SttOptions::default()).await?;
    let n_samples = (PIECE.as_secs_f64() * f64::from(RATE.hz())) as usize;
    let n_pieces = seconds * 1_000 / PIECE.as_millis() as u32;
    let mut samples = clip.iter().copied().cycle();
    let mut ticks = interval_at(Instant::now() + PIECE, PIECE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for _ in 0..n_pieces {
        ticks.tick().await;
        utterance.push(samples.by_ref().take(n_samples).collect()).await?;
    }
    let ended = Instant::now();
    utterance.finish().await?;
    Ok(ended.elapsed())
}

/// What the engine has counted.
#[derive(Clone, Copy)]
struct Counted {
    n_steps: u64,
    n_rows: u64,
    in_steps: Duration,
    in_runs: Duration,
}

impl Counted {
    fn of(costs: &StepCosts) -> Self {
        Self {
            n_steps: costs.n_steps.load(Ordering::Relaxed),
            n_rows: costs.n_rows.load(Ordering::Relaxed),
            in_steps: Duration::from_nanos(costs.in_steps_ns.load(Ordering::Relaxed)),
            in_runs: Duration::from_nanos(costs.in_runs_ns.load(Ordering::Relaxed)),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            n_steps: self.n_steps - before.n_steps,
            n_rows: self.n_rows - before.n_rows,
            in_steps: self.in_steps - before.in_steps,
            in_runs: self.in_runs - before.in_runs,
        }
    }
}
