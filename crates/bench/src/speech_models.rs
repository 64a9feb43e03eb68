//! Speech language models: what a step costs beside its graphs, how many listeners share it, when sound starts.
//!
//! Part of the measure `engines`. The model comes from `make true-size`: Chatterbox Nano's dimensions (12 x 768) with random
//! weights, so the sound is noise and the cost is realistic; or it is an exported one that `--speech-model` names. The
//! language model is measured by itself first (its sequences end after a fixed number of tokens), then whole chunks through
//! the port that sessions use, codec included, each 4 s of forced sound (10 s on a GPU).

use super::engines::CPU;
use super::{BenchError, Figure, Plan, Progress, Section, Unit, Waits};
use antiphon::assembly;
use antiphon::config::Config;
use antiphon_client::RATE;
use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError};
use antiphon_engines::tts::TtsConfig;
use antiphon_engines::tts::speechlm::Contract;
use antiphon_engines::tts::speechlm::measure::{self, DecodeCosts};
use antiphon_inference::onnx::OnnxConfig;
use antiphon_types::Pcm;
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// Where `make true-size` writes the model.
const FOLDER: &str = "models/true-size/chatterbox-nano";
const FAMILY: &str = "chatterbox-nano";
/// What its figures are called.
const NANO: &str = "speech model";

/// A sentence of usual length.
const TEXT: &str = "The next train to the coast leaves at nine, and it will rain in the evening.";

/// What the voice says in its recording: 10 s, and 5 s for families that take its words and no more than a few seconds.
const RECORDING: &str = "The boat left early in the morning, when nobody was at the harbour yet, and it did not come back \
                         before the next winter, so that most people had forgotten about it.";
const SHORT_RECORDING: &str = "The boat left early in the morning, when nobody was at the harbour yet.";

/// Tokens of a listener where the language model is measured by itself: 6 s of sound.
const N_TOKENS: usize = 150;
/// Seconds of sound of a whole chunk.
const CPU_SECONDS: usize = 4;
const GPU_SECONDS: usize = 10;
/// Listeners at once.
const CPU_LISTENERS: [usize; 2] = [1, 2];
const GPU_LISTENERS: [usize; 5] = [1, 4, 8, 16, 32];
/// Listeners who share a step where the language model is measured by itself.
const SHARED: usize = 8;
/// The same, of an exported model.
const EXPORTED_CPU: [usize; 3] = [1, 4, 8];

/// Gates: time of a token, 8 listeners against 1 (2.5 times the tokens a second); scheduling in a step, and for each slot;
/// sampling of a row of 6,563 logits.
const SHARED_TIME: f64 = 0.4;
const STEP_MS: f64 = 0.3;
const SLOT_MS: f64 = 0.02;
const SAMPLING_MS: f64 = 0.1;
/// On a GPU: time against sound of 8 listeners, first sound of 1 and of 16.
const GPU_REAL_TIME: f64 = 0.05;
const GPU_FIRST_MS: [(usize, f64); 2] = [(1, 60.0), (16, 150.0)];

/// How the language model keeps its caches.
#[derive(Clone, Copy, PartialEq)]
enum Caches {
    /// As the published graphs do: each step gives a new cache.
    Growing,
    /// As exports with GroupQueryAttention allow.
    InPlace,
}

/// A model on the disk, and a contract for it that forces the length of the speech.
struct Subject {
    config: TtsConfig,
    _folder: TempDir,
}

/// Adds the figures of exported models to the section: whatever their family, without gates.
pub(super) async fn exported(
    section: &mut Section,
    plan: &Plan,
    onnx: &OnnxConfig,
    progress: Progress<'_>,
) -> Result<(), BenchError> {
    let on_cpu = onnx.provider == CPU;
    let shared = plan.listeners_or(if on_cpu { &EXPORTED_CPU } else { &GPU_LISTENERS });
    let listeners = plan.listeners_or(if on_cpu { &CPU_LISTENERS } else { &GPU_LISTENERS });
    let seconds = if on_cpu { CPU_SECONDS } else { GPU_SECONDS };
    let voices = voices(SHORT_RECORDING).await?;
    for model in &plan.speech_models {
        let name = model.display().to_string();
        for &n_listeners in shared {
            progress(&format!("engines: {name}, {n_listeners} listeners"));
            let subject = Subject::exported(model, seconds, n_listeners)?;
            let config = subject.config.clone();
            let onnx = onnx.clone();
            let taken = tokio::task::spawn_blocking(move || measure::decode(&config, &onnx, n_listeners, TEXT)).await?;
            let taken = taken.map_err(BenchError::Speech)?;
            let n = taken.n_steps as usize;
            let of = |what: &str| format!("{name}: {what}, {n_listeners} listeners");
            let step_ms = |time: Duration| 1000.0 * time.as_secs_f64() / taken.n_steps.max(1) as f64;
            let mut add = |what: &str, unit, value, n| section.figures.push(Figure::new(of(what), unit, value, n));
            add("frames a second", Unit::PerSecond, taken.n_tokens as f64 / taken.wall.as_secs_f64(), n);
            add("a step", Unit::Ms, step_ms(taken.wall), n);
            add("the graphs' share of a step", Unit::Ms, step_ms(taken.in_runs), n);
            add("scheduling of a step", Unit::Ms, overhead_ms(&taken), n);
            if n_listeners == 1 {
                add("prefill", Unit::Ms, 1000.0 * taken.prefill.as_secs_f64(), 1);
            }
            section.show_new(progress);
        }
        for &n_listeners in listeners {
            let mut subject = Subject::exported(model, seconds, n_listeners)?;
            subject.config.voices_dir = voices.path().display().to_string();
            spoken(section, plan, &name, subject, n_listeners, onnx, progress).await?;
        }
    }
    Ok(())
}

/// Adds the figures to the section.
pub(super) async fn measure(
    section: &mut Section,
    plan: &Plan,
    onnx: &OnnxConfig,
    progress: Progress<'_>,
) -> Result<(), BenchError> {
    for caches in [Caches::Growing, Caches::InPlace] {
        steps(section, plan, caches, onnx, progress).await?;
    }
    chunks(section, plan, onnx, progress).await
}

/// The language model by itself.
async fn steps(
    section: &mut Section,
    plan: &Plan,
    caches: Caches,
    onnx: &OnnxConfig,
    progress: Progress<'_>,
) -> Result<(), BenchError> {
    let folder = folder(caches);
    if caches == Caches::InPlace && !folder.exists() {
        section.notes.push(format!("not measured: {} is not there", folder.display()));
        return Ok(());
    }
    let name = match caches {
        Caches::Growing => "speech model",
        Caches::InPlace => "speech model, cache in place",
    };
    let n_tokens = plan.turns(N_TOKENS);
    let mut per_token = Vec::new();
    for n_listeners in [1, SHARED] {
        progress(&format!("engines: {name}, {n_listeners} listeners"));
        let subject = Subject::new(caches, n_tokens, n_listeners)?;
        let config = subject.config.clone();
        let onnx = onnx.clone();
        let taken = tokio::task::spawn_blocking(move || measure::decode(&config, &onnx, n_listeners, TEXT)).await?;
        let taken = taken.map_err(BenchError::Speech)?;
        per_token.push(taken.wall.as_secs_f64() / taken.n_tokens as f64);
        let n = taken.n_steps as usize;
        let of = |what: &str| format!("{name}: {what}, {n_listeners} listeners");
        let step_ms = |time: Duration| 1000.0 * time.as_secs_f64() / taken.n_steps as f64;
        let mut add = |what: &str, unit, value, n| section.figures.push(Figure::new(of(what), unit, value, n));
        add("tokens a second", Unit::PerSecond, taken.n_tokens as f64 / taken.wall.as_secs_f64(), n);
        add("a step", Unit::Ms, step_ms(taken.wall), n);
        add("the graphs' share of a step", Unit::Ms, step_ms(taken.in_runs), n);
        if n_listeners == 1 {
            add("prefill", Unit::Ms, 1000.0 * taken.prefill.as_secs_f64(), 1);
        }
        let bound = STEP_MS + SLOT_MS * n_listeners as f64;
        section.figures.push(Figure::new(of("scheduling of a step"), Unit::Ms, overhead_ms(&taken), n).at_most(bound));
        let sampling = 1000.0 * taken.sampling.as_secs_f64() / taken.n_tokens as f64;
        section.figures.push(Figure::new(of("sampling of a row"), Unit::Ms, sampling, n).at_most(SAMPLING_MS));
        section.show_new(progress);
    }
    let ratio = per_token[1] / per_token[0];
    let figure =
        Figure::new(format!("{name}: a token's time, {SHARED} listeners against 1"), Unit::Times, ratio, n_tokens);
    section.figures.push(figure.at_most(SHARED_TIME));
    Ok(())
}

/// What a step costs beside its graphs and the sampling, in milliseconds.
fn overhead_ms(taken: &DecodeCosts) -> f64 {
    let beside = taken.wall.saturating_sub(taken.in_runs).saturating_sub(taken.sampling);
    1000.0 * beside.as_secs_f64() / taken.n_steps.max(1) as f64
}

/// Whole chunks, codec included.
async fn chunks(
    section: &mut Section,
    plan: &Plan,
    onnx: &OnnxConfig,
    progress: Progress<'_>,
) -> Result<(), BenchError> {
    let on_cpu = onnx.provider == CPU;
    let listeners = plan.listeners_or(if on_cpu { &CPU_LISTENERS } else { &GPU_LISTENERS });
    let seconds = if on_cpu { CPU_SECONDS } else { GPU_SECONDS };
    let voices = voices(RECORDING).await?;
    for &n_listeners in listeners {
        let mut subject = Subject::new(Caches::Growing, 25 * seconds, n_listeners)?;
        subject.config.voices_dir = voices.path().display().to_string();
        spoken(section, plan, NANO, subject, n_listeners, onnx, progress).await?;
    }
    Ok(())
}

/// Whole chunks of one model for `n_listeners` at once. Gates are for the model of `make true-size`.
async fn spoken(
    section: &mut Section,
    plan: &Plan,
    name: &str,
    subject: Subject,
    n_listeners: usize,
    onnx: &OnnxConfig,
    progress: Progress<'_>,
) -> Result<(), BenchError> {
    progress(&format!("engines: {name}, chunks, {n_listeners} listeners"));
    let on_cpu = onnx.provider == CPU;
    let is_gated = !on_cpu && name == NANO;
    let config = Config { tts: subject.config.clone(), onnx: onnx.clone(), ..Config::default() };
    let tts = tokio::task::spawn_blocking(move || assembly::tts(&config)).await?;
    let tts: Arc<dyn Tts> = tts.map_err(assembly::EnginesError::from)?;
    // The voice's conditioning is made by the first chunk.
    speak(tts.as_ref()).await?;
    let rounds = plan.turns(if on_cpu { 1 } else { 4 });
    let mut first_sounds = Waits::default();
    let mut sound = Duration::ZERO;
    let begun = Instant::now();
    for _ in 0..rounds {
        for spoken in try_join_all((0..n_listeners).map(|_| speak(tts.as_ref()))).await? {
            first_sounds.push(spoken.0);
            sound += spoken.1;
        }
    }
    let took = begun.elapsed().as_secs_f64();
    let n = rounds * n_listeners;
    let of = |what: &str| format!("{name}: {what}, {n_listeners} listeners");
    let real_time = Figure::new(of("time against its sound"), Unit::Times, took / sound.as_secs_f64(), n);
    let is_bounded = is_gated && n_listeners == SHARED;
    section.figures.push(if is_bounded { real_time.at_most(GPU_REAL_TIME) } else { real_time });
    section.figures.push(Figure::new(of("throughput"), Unit::Of("requests/min"), 60.0 * n as f64 / took, n));
    let bound = GPU_FIRST_MS.iter().find(|(of, _)| is_gated && *of == n_listeners).map(|(_, ms)| *ms);
    section.percentile(&of("first sound"), &first_sounds, 50.0, bound);
    section.percentile(&of("first sound"), &first_sounds, 95.0, None);
    section.show_new(progress);
    Ok(())
}

/// Time to the first sound, and the playing time of all of it.
async fn speak(tts: &dyn Tts) -> Result<(Duration, Duration), BenchError> {
    let voice = tts.voices()[0].id.clone();
    let begun = Instant::now();
    let unplayed = Some(Duration::ZERO);
    let mut pieces = tts.speak(SpeechRequest { text: TEXT.into(), voice, unplayed, ..SpeechRequest::default() });
    let mut first = None;
    let mut sound = Duration::ZERO;
    while let Some(pcm) = pieces.next().await {
        sound += pcm.map_err(BenchError::Speech)?.duration();
        first.get_or_insert_with(|| begun.elapsed());
    }
    let silent = || BenchError::Speech(TtsError::Engine { message: "no audio was produced".into(), source: None });
    Ok((first.ok_or_else(silent)?, sound))
}

fn folder(caches: Caches) -> PathBuf {
    match caches {
        Caches::Growing => FOLDER.into(),
        Caches::InPlace => format!("{FOLDER}-gqa").into(),
    }
}

impl Subject {
    /// An exported model: its folder, or the language model's file in it.
    fn exported(model: &Path, seconds: usize, n_listeners: usize) -> Result<Self, BenchError> {
        let folder = if model.is_dir() { model } else { model.parent().unwrap_or(model) };
        let failed = |error: &dyn std::fmt::Display| {
            BenchError::Method(format!(
                "{}: {error}; name the folder of an export",
                folder.join("contract.toml").display()
            ))
        };
        let text = std::fs::read_to_string(folder.join("contract.toml")).map_err(|error| failed(&error))?;
        let text = forced(&text, seconds).map_err(|error| failed(&error))?;
        Self::of(model, &text, n_listeners)
    }

    fn new(caches: Caches, n_tokens: usize, n_listeners: usize) -> Result<Self, BenchError> {
        let folder = folder(caches);
        if !folder.join("language_model.onnx").exists() {
            let text = format!("{} is not there: run `make true-size onnxruntime`", folder.display());
            return Err(BenchError::Method(text));
        }
        Self::of(&folder, &contract(caches, n_tokens), n_listeners)
    }

    /// A model with the contract of that text.
    fn of(model: &Path, contract: &str, n_listeners: usize) -> Result<Self, BenchError> {
        let failed = |error: std::io::Error| BenchError::Method(format!("the contract cannot be written: {error}"));
        let made = tempfile::tempdir().map_err(failed)?;
        let file = made.path().join("contract.toml");
        std::fs::write(&file, contract).map_err(failed)?;
        let config = TtsConfig {
            engine: "speechlm".into(),
            model: model.display().to_string(),
            contract: file.display().to_string(),
            slots: n_listeners,
            timeout_ms: 600_000,
            ..TtsConfig::default()
        };
        Ok(Self { config, _folder: made })
    }
}

/// An exported model's contract, changed so that a speech has `seconds` of sound where its graphs let it.
fn forced(text: &str, seconds: usize) -> Result<String, String> {
    let mut contract: toml::Table = text.parse().map_err(|error| format!("{error}"))?;
    let whole = |name: &str| contract.get(name).and_then(toml::Value::as_integer).unwrap_or(1).max(1);
    let n_frames = (seconds as i64 * whole("rate_hz") / whole("samples_per_token")).max(1);
    let length = contract.get_mut("length").and_then(toml::Value::as_table_mut).ok_or("no section [length]")?;
    for (name, value) in
        [("max_tokens", n_frames), ("min_tokens", n_frames), ("max_silence", 100_000), ("end_silence", 100_000)]
    {
        length.insert(name.into(), value.into());
    }
    toml::to_string(&contract).map_err(|error| error.to_string())
}

/// The built-in contract, changed so that a speech has exactly `n_tokens` tokens.
fn contract(caches: Caches, n_tokens: usize) -> String {
    let built_in = Contract::built_in(FAMILY).expect("it is built in");
    let line = |line: &str| {
        let key = line.split('=').next().unwrap_or_default().trim();
        match (key, caches) {
            ("max_tokens", _) => format!("max_tokens = {n_tokens}\nmin_tokens = {n_tokens}"),
            ("max_silence", _) => "max_silence = 100000".into(),
            ("end_silence", _) => "end_silence = 100000".into(),
            ("vocabulary", _) if line.contains("50276") => "vocabulary = 0".into(),
            ("min_seconds", _) => "min_seconds = 1.0".into(),
            ("policy", Caches::InPlace) => "policy = \"ragged\"\ncapacity = 1024\nlengths = \"seqlens_k\"\n\
                                            total = \"total_sequence_length\""
                .into(),
            ("mask", Caches::InPlace) => String::new(),
            _ => line.into(),
        }
    };
    built_in.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// A folder with one voice, spoken by flite.
async fn voices(text: &'static str) -> Result<TempDir, BenchError> {
    let failed = |error: std::io::Error| BenchError::Method(format!("a voice cannot be written: {error}"));
    let folder = tempfile::tempdir().map_err(failed)?;
    let speaker = super::questions::speaker().await?;
    let spoken = super::questions::speak(speaker.as_ref(), text, "slt").await?;
    let wav = antiphon_audio::wav::write(&Pcm { rate: RATE, samples: spoken.samples });
    std::fs::write(folder.path().join("anna.wav"), wav).map_err(failed)?;
    std::fs::write(folder.path().join("anna.txt"), text).map_err(failed)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engines::tts::speechlm::CacheKind;

    #[test]
    fn the_contracts_of_the_benchmark_make_sense() {
        for caches in [Caches::Growing, Caches::InPlace] {
            let text = contract(caches, 100);
            let made = Contract::parse("bench", &text).expect("valid");
            assert_eq!((made.length.min_tokens, made.length.max_tokens, made.max_tokens(3)), (100, 100, 100));
            assert_eq!(matches!(made.cache, CacheKind::InPlace { .. }), caches == Caches::InPlace);
        }
    }

    #[test]
    fn an_exported_contract_is_forced_to_a_length() {
        let family = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/speechlm/qwen3-tts");
        let text = std::fs::read_to_string(family.join("contract.toml")).expect("the fixture");
        let made = Contract::parse("bench", &forced(&text, 4).expect("valid")).expect("valid");
        assert_eq!((made.length.min_tokens, made.length.max_tokens), (50, 50), "12.5 frames a second");
        assert!(Subject::exported(Path::new("nowhere"), 4, 1).is_err());
    }

    #[test]
    fn the_overhead_is_what_neither_graphs_nor_sampling_took() {
        let ms = Duration::from_millis;
        let wall = ms(100);
        let in_runs = ms(80);
        let sampling = ms(10);
        let prefill = ms(1);
        let taken = DecodeCosts { n_tokens: 40, n_steps: 20, wall, in_runs, sampling, prefill };
        assert!((overhead_ms(&taken) - 0.5).abs() < 1e-9);
    }
}
