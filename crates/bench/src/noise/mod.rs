//! Noise: what a detector takes for speech, and what it makes of speech in noise.
//!
//! In this process, faster than real time: engine and turn detector run over 40 s of noise and then over each clip with
//! 4 s of the same noise before it and 3 s after it, on one stream ([`judge`]). Speech is flite's, or a folder of clips,
//! at -26 dB below full scale where it is loud; noise is made by arithmetic ([`sounds`]), the same at each run. 500 ms
//! of silence end a turn; an end is late when it comes more than 300 ms after that. An onset is the first edge of a clip,
//! from its first loud sample. Earshot is measured, and Silero where it is in the models' folder (`make silero`).

mod judge;
mod sounds;

use super::load::Clips;
use super::questions::{QUESTIONS, VOICES, speak, speaker};
use super::{BenchError, Figure, Measure, Measurement, Plan, Progress, Section, Unit, name_of};
use antiphon::assembly::{self, EnginesError};
use antiphon::config::{self, Config, Sources};
use antiphon_audio::convert;
use antiphon_client::RATE;
use antiphon_dialog::turn::{Thresholds, TurnConfig};
use antiphon_engine_api::vad::Vad;
use antiphon_engines::vad::Earshot;
use antiphon_types::SampleRate;
use judge::{Condition, Outcome, Speech, judge};
pub(super) use sounds::Noise;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Clips of a full run.
const N_CLIPS: usize = 24;
const SNRS_DB: [f32; 4] = [20.0, 10.0, 5.0, 0.0];
/// Noise that does not change: what a noise floor can know.
const STEADY: [Noise; 4] = [Noise::Pink, Noise::White, Noise::Brown, Noise::Hum];
/// Audio whose processor time is taken.
const COST_OF: Duration = Duration::from_secs(60);
/// A quiet room, -72 dB below full scale.
const ROOM_RMS: f32 = 8.0;

/// What an engine must keep, of all clips of a group.
struct Gates {
    engine: &'static str,
    steady_percent: f64,
    steady_late: f64,
    steady_missed: f64,
    steady_onset_ms: f64,
    music_percent: Option<f64>,
    silence_percent_of_core: f64,
}

const GATES: [Gates; 2] = [
    Gates {
        engine: "earshot",
        steady_percent: 3.0,
        steady_late: 4.0,
        steady_missed: 4.0,
        steady_onset_ms: 100.0,
        music_percent: None,
        silence_percent_of_core: 0.1,
    },
    Gates {
        engine: "silero",
        steady_percent: 0.5,
        steady_late: 4.0,
        steady_missed: 4.0,
        steady_onset_ms: 120.0,
        music_percent: Some(2.0),
        silence_percent_of_core: 0.12,
    },
];

pub(super) async fn measure(plan: &Plan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let n = plan.turns(N_CLIPS);
    progress("noise: the speech");
    let speech = match &plan.clips {
        Some(folder) => recorded(folder, n).await?,
        None => spoken(n).await?,
    };
    let how = format!(
        "{} clips {} in noise of six kinds, 20 to 0 dB below the speech; in this process, 500 ms of silence end a turn",
        speech.len(),
        if plan.clips.is_some() { "of a folder" } else { "by flite" }
    );
    let mut section = Section::new(name_of(Measure::Noise), how);
    let speech = Arc::new(speech);
    let mut engines: Vec<Arc<dyn Vad>> = vec![Arc::new(Earshot)];
    let best = best_vad().await?;
    match best.name() {
        "earshot" => section.notes.push("Silero is not here and was not measured: `make silero` gets it".into()),
        _ => engines.push(best),
    }
    for engine in engines {
        let name = engine.name().to_owned();
        let mut grid = Vec::new();
        for condition in conditions() {
            progress(&format!("noise: {name}, {}", condition.name()));
            let engine = engine.clone();
            let speech = speech.clone();
            let judged = tokio::task::spawn_blocking(move || judge(&*engine, thresholds(), condition, &speech));
            let outcome = judged.await?.map_err(|error| BenchError::Engine(error.to_string()))?;
            grid.push((condition, outcome));
        }
        figures(&mut section, &name, &grid);
        let costly = engine.clone();
        let clips = speech.clone();
        let costs = tokio::task::spawn_blocking(move || costs(&*costly, &clips)).await?;
        let (silence, talking) = costs.map_err(|error| BenchError::Engine(error.to_string()))?;
        let gates = gates(&name);
        let silence = Figure::new(format!("{name}, a quiet room: processor time"), Unit::PercentOfCore, silence, 1);
        let talking = Figure::new(format!("{name}, speech: processor time"), Unit::PercentOfCore, talking, 1);
        section.figures.push(match gates {
            Some(gates) => silence.at_most(gates.silence_percent_of_core),
            None => silence,
        });
        section.figures.push(talking);
        section.notes.extend(table(&name, &grid));
    }
    Ok(Measurement { section, hub_cpu_s: 0.0 })
}

/// What `vad.engine = "auto"` takes with the default settings and the models' folder and ONNX Runtime that the environment
/// names.
pub(super) async fn best_vad() -> Result<Arc<dyn Vad>, BenchError> {
    let config = config::load(&Sources::of_process(None)).map_err(|error| BenchError::Method(error.to_string()))?;
    let config = Config { models: config.models, onnx: config.onnx, ..Config::default() };
    let made = tokio::task::spawn_blocking(move || assembly::vad(&config)).await?;
    Ok(made.map_err(EnginesError::from)?)
}

fn thresholds() -> Thresholds {
    let turn = TurnConfig::default();
    Thresholds::from_ms(turn.threshold, turn.min_speech_ms, turn.silence_duration_ms)
}

fn gates(engine: &str) -> Option<&'static Gates> {
    GATES.iter().find(|gates| gates.engine == engine)
}

fn conditions() -> impl Iterator<Item = Condition> {
    let clean = Condition { noise: Noise::White, snr_db: None };
    let noisy = |noise| SNRS_DB.into_iter().map(move |snr_db| Condition { noise, snr_db: Some(snr_db) });
    std::iter::once(clean).chain(Noise::ALL.into_iter().flat_map(noisy))
}

impl Condition {
    fn name(&self) -> String {
        match self.snr_db {
            Some(snr_db) => format!("{} {snr_db:.0} dB", self.noise.name()),
            None => "no noise".into(),
        }
    }
}

/// The outcomes of some conditions together.
struct Group<'a>(Vec<&'a Outcome>);

impl Group<'_> {
    fn sum(&self, of: impl Fn(&Outcome) -> usize) -> f64 {
        self.0.iter().map(|outcome| of(outcome)).sum::<usize>() as f64
    }

    /// Of the condition in which most of the noise was taken for speech.
    fn most_voiced(&self) -> f64 {
        self.0.iter().map(|outcome| outcome.voiced_percent()).fold(0.0, f64::max)
    }

    /// The median over all clips.
    fn onset_ms(&self) -> Option<f64> {
        let all = Outcome { onset_ms: self.0.iter().flat_map(|o| o.onset_ms.clone()).collect(), ..Outcome::default() };
        all.onset().map(|(median, _)| median)
    }
}

fn figures(section: &mut Section, engine: &str, grid: &[(Condition, Outcome)]) {
    let gates = gates(engine);
    let of = |noises: &[Noise]| {
        let wanted = |(at, _): &&(Condition, Outcome)| at.snr_db.is_some() && noises.contains(&at.noise);
        Group(grid.iter().filter(wanted).map(|(_, outcome)| outcome).collect())
    };
    for (name, noises) in [("steady noise", &STEADY[..]), ("music", &[Noise::Music]), ("babble", &[Noise::Babble])] {
        let group = of(noises);
        let n = group.sum(|o| o.n_clips) as usize;
        let is_steady = noises.len() > 1;
        let steady = |bound: fn(&Gates) -> f64| gates.filter(|_| is_steady).map(bound);
        let mut add = |what: &str, unit, value, gate: Option<f64>| {
            let figure = Figure::new(format!("{engine}, {name}: {what}"), unit, value, n);
            section.figures.push(match gate {
                Some(bound) => figure.at_most(bound),
                None => figure,
            });
        };
        let voiced_gate = match noises {
            [Noise::Music] => gates.and_then(|gates| gates.music_percent),
            _ => steady(|gates| gates.steady_percent),
        };
        add("taken for speech, at most", Unit::Of("%"), group.most_voiced(), voiced_gate);
        add("clips missed", Unit::Count, group.sum(|o| o.n_missed), steady(|gates| gates.steady_missed));
        add("ends late or never", Unit::Count, group.sum(|o| o.n_late), steady(|gates| gates.steady_late));
        if let Some(onset) = group.onset_ms() {
            add("onset p50", Unit::Ms, onset, steady(|gates| gates.steady_onset_ms));
        }
    }
}

/// Every condition, for people.
fn table(engine: &str, grid: &[(Condition, Outcome)]) -> Vec<String> {
    let head = format!("{engine:<14} taken for speech  false starts  under way  missed  late  onset p50   max");
    let line = |(at, outcome): &(Condition, Outcome)| {
        let onset =
            outcome.onset().map_or_else(|| "     -        -".into(), |(p50, max)| format!("{p50:>6.0} ms {max:>5.0}"));
        let Outcome { n_false, n_blurred, n_missed, n_late, .. } = outcome;
        let voiced = outcome.voiced_percent();
        format!("{:<14}{voiced:>15.1} %{n_false:>14}{n_blurred:>11}{n_missed:>8}{n_late:>6}  {onset}", at.name())
    };
    std::iter::once(head).chain(grid.iter().map(line)).collect()
}

/// Percent of a core for a microphone in a quiet room, and for speech without pauses.
fn costs(engine: &dyn Vad, speech: &[Speech]) -> Result<(f64, f64), antiphon_engine_api::vad::VadError> {
    let n = COST_OF.as_secs() as usize * 16_000;
    let room: Vec<i16> = Noise::Pink.make(n, 2, &[]).into_iter().map(|x| (x * ROOM_RMS) as i16).collect();
    let clips: Vec<i16> = speech.iter().flat_map(|clip| clip.pcm[clip.loud.0..clip.loud.1].iter().copied()).collect();
    let talking: Vec<i16> = clips.iter().copied().cycle().take(if clips.is_empty() { 0 } else { n }).collect();
    let cost = |pcm: &[i16]| {
        let mut stream = engine.open();
        let began = thread_cpu_s();
        pcm.chunks_exact(engine.window()).try_for_each(|window| stream.probability(window).map(drop))?;
        let took = thread_cpu_s().zip(began).map(|(now, began)| now - began);
        Ok(took.map_or(f64::INFINITY, |took| 100.0 * took / COST_OF.as_secs_f64()))
    };
    Ok((cost(&room)?, cost(&talking)?))
}

/// Processor time of this thread in seconds, on which the engines run inline; `None` where the system does not say.
fn thread_cpu_s() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

async fn spoken(n: usize) -> Result<Vec<Speech>, BenchError> {
    let speaker = speaker().await?;
    let mut all = Vec::new();
    for i in 0..n {
        let voice = VOICES[(i + i / QUESTIONS.len()) % VOICES.len()];
        let said = speak(&*speaker, QUESTIONS[i % QUESTIONS.len()].0, voice).await?;
        all.extend(Speech::new(&convert(&said.samples, RATE, SampleRate::HZ_16000)));
    }
    Ok(all)
}

async fn recorded(folder: &Path, n: usize) -> Result<Vec<Speech>, BenchError> {
    let folder = folder.to_owned();
    let clips = tokio::task::spawn_blocking(move || Clips::read(&folder)).await??;
    let clips = (0..clips.len().min(n)).map(|i| convert(&clips[i].samples, RATE, SampleRate::HZ_16000));
    Ok(clips.filter_map(|pcm| Speech::new(&pcm)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conditions in which earshot's network by itself ended every turn late.
    const LOUD: [(Noise, f32); 3] = [(Noise::Pink, 0.0), (Noise::White, 5.0), (Noise::Hum, 0.0)];

    fn judged(vad: &dyn Vad, noise: Noise, snr_db: f32, speech: &[Speech]) -> Outcome {
        judge(vad, thresholds(), Condition { noise, snr_db: Some(snr_db) }, speech).expect("whole windows")
    }

    /// What "auto" takes where Silero is in the models' folder.
    fn silero() -> Arc<dyn Vad> {
        let mut config = Config::default();
        // Tests run in their package's folder, not in the repository's.
        config.models.dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models").into();
        config.onnx.runtime = format!("{}/onnxruntime", config.models.dir);
        let engine = assembly::vad(&config).expect("a detector");
        assert_eq!(engine.name(), "silero", "`make test-deps` fetches it");
        engine
    }

    #[tokio::test]
    async fn steady_noise_is_no_speech_and_speech_in_it_is_heard_and_ends_in_time() {
        let speech = spoken(6).await.expect("flite is installed");
        for (noise, snr_db) in LOUD {
            let outcome = judged(&Earshot, noise, snr_db, &speech);
            let Outcome { n_missed, n_late, n_blurred, .. } = outcome;
            assert!(outcome.voiced_percent() < 3.0, "{noise:?} {snr_db}: {} %", outcome.voiced_percent());
            assert_eq!((n_missed, n_late, n_blurred), (0, 0, 0), "{noise:?} {snr_db}");
        }
    }

    #[tokio::test]
    async fn silero_takes_neither_noise_nor_music_for_speech_and_hears_who_speaks_after_it_at_once() {
        let silero = silero();
        let speech = spoken(6).await.expect("flite is installed");
        for (noise, snr_db) in LOUD.into_iter().chain([(Noise::Music, 10.0)]) {
            let outcome = judged(&*silero, noise, snr_db, &speech);
            assert!(outcome.voiced_percent() < 1.0, "{noise:?} {snr_db}: {} %", outcome.voiced_percent());
            assert_eq!((outcome.n_missed, outcome.n_blurred), (0, 0), "{noise:?} {snr_db}");
            let (median, _) = outcome.onset().expect("onsets");
            // Without a new state in between, music makes it 140 ms.
            let most = if noise == Noise::Music { 80.0 } else { 150.0 };
            assert!(median <= most, "{noise:?} {snr_db}: {median} ms");
        }
    }

    #[test]
    fn a_clip_that_goes_on_is_late_and_one_that_is_not_heard_is_missed() {
        use antiphon_dialog::turn::Edge;
        use antiphon_types::Samples;
        let ms = |ms: usize| ms * 16;
        let at = Samples(0);
        let mut outcome = Outcome::default();
        let edges =
            [(ms(1_050), Edge::Onset { at }), (ms(1_100), Edge::Started { at }), (ms(2_700), Edge::Stopped { at })];
        outcome.take(&edges, ms(1_000)..ms(2_000), ms(500));
        assert_eq!((outcome.n_missed, outcome.n_late, outcome.onset_ms.clone()), (0, 0, vec![50.0]));
        outcome.take(&edges[..2], ms(1_000)..ms(2_000), ms(500));
        outcome.take(&edges[..1], ms(3_000)..ms(4_000), ms(500));
        outcome.take(&edges, ms(5_000)..ms(6_000), ms(500));
        assert_eq!((outcome.n_missed, outcome.n_late, outcome.n_blurred), (1, 2, 1));
    }
}
