//! `antiphon corpus` (hidden): creates the labelled recordings for `antiphon replay --sweep`.

use super::{CliError, Settings, blocking, files, print};
use crate::assembly::EnginesError;
use crate::replay::Labels;
use crate::replay::corpus::{Clip, Detectors, Plan, listen, plan, speak};
use antiphon_audio::wav;
use antiphon_engine_api::stt::Stt;
use antiphon_engine_api::tts::Tts;
use antiphon_engine_api::turn::TurnModel;
use antiphon_engine_api::vad::Vad;
use antiphon_types::SampleRate;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What to make.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon corpus corpus --clips clips    then: antiphon replay corpus/*.jsonl --sweep silence_ms=100..1600

--clips names a folder of WAV files with a manifest.jsonl of lines {\"file\":..,\"text\":..}.
The configured VAD, turn model and recognizer listen, so that the sweep judges what a session would do.")]
pub struct CorpusArgs {
    /// The folder to write to
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// A folder of recorded clips [default: spoken sentences only]
    #[arg(long, value_name = "FOLDER")]
    clips: Option<PathBuf>,
    /// Chooses the lengths of the pauses
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    settings: Settings,
}

#[derive(serde::Deserialize)]
struct Line {
    file: String,
    text: String,
}

/// The engines that analyse and synthesize the recordings.
struct Engines {
    vad: Arc<dyn Vad>,
    turn: Option<Arc<dyn TurnModel>>,
    stt: Arc<dyn Stt>,
    tts: Arc<dyn Tts>,
}

pub(super) async fn run(args: CorpusArgs) -> Result<(), CliError> {
    let config = args.settings.load()?;
    let clips = args.clips.as_deref().map(clips).transpose()?.unwrap_or_default();
    let plans = plan(&clips);
    std::fs::create_dir_all(&args.folder).map_err(|error| CliError::file("made", &args.folder, &error))?;
    let engines = blocking(move || -> Result<Engines, EnginesError> {
        let vad = crate::assembly::vad(&config)?;
        let turn = crate::assembly::turn(&config)?;
        let stt = crate::assembly::stt(&config)?;
        let tts = crate::assembly::tts(&config)?;
        Ok(Engines { vad, turn, stt, tts })
    });
    let engines = engines.await??;
    let turn = engines.turn.as_ref().map_or("none", |model| model.name());
    print::line(&format!("VAD {}, turn model {turn}, STT {}", engines.vad.name(), engines.stt.name()))?;
    let n_plans = plans.len();
    let n_turns = plans.iter().map(|plan| plan.turns.len()).sum::<usize>();
    // One after the other: a recognizer that is busy with another recording gives up words of this one.
    for (i, plan) in plans.iter().enumerate() {
        let name = one(&args.folder, plan, &engines, args.seed.wrapping_add(i as u64 * 1_000)).await?;
        print::line(&name)?;
    }
    print::line(&format!("{n_turns} turns in {n_plans} recordings"))
}

async fn one(folder: &Path, plan: &Plan, engines: &Engines, seed: u64) -> Result<String, CliError> {
    let (pcm, labels) = speak(plan, &*engines.tts, seed).await.map_err(|error| CliError::failed(&error))?;
    let ears = Detectors { vad: &*engines.vad, turn: engines.turn.as_deref(), stt: &*engines.stt };
    let heard = listen(&plan.name, &pcm, &labels, &ears).await;
    let heard = heard.map_err(|error| CliError::failed(&error))?;
    let recording = folder.join(format!("{}.jsonl", plan.name));
    let write = |path: &Path, bytes: &[u8]| {
        std::fs::write(path, bytes).map_err(|error| CliError::file("written", path, &error))
    };
    write(&recording.with_extension("wav"), &wav::write(&pcm))?;
    write(&Labels::path(&recording), &serde_json::to_vec_pretty(&labels).expect("labels have text for keys"))?;
    write(&recording, heard.as_bytes())?;
    Ok(recording.display().to_string())
}

/// Loads the clips listed in the folder's manifest.jsonl. Blocks for all files.
fn clips(folder: &Path) -> Result<Vec<Clip>, CliError> {
    let path = folder.join("manifest.jsonl");
    let text = std::fs::read_to_string(&path).map_err(|error| CliError::file("read", &path, &error))?;
    let clip = |line: &str| {
        let Line { file, text } = serde_json::from_str(line)
            .map_err(|error| CliError::Usage(format!("{}: {error} in {line:?}", path.display())))?;
        let pcm = files::speech(&folder.join(&file), SampleRate::HZ_16000)?.samples;
        Ok(Clip { name: file, text, pcm })
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(clip).collect()
}
