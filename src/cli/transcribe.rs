//! `antiphon transcribe`: transcribes sound files with the configured STT engine; no other engine is loaded.

use super::progress::Progress;
use super::{CliError, Settings, blocking, files, print};
use crate::assembly::EnginesError;
use antiphon_engine_api::stt::{RATE, Stt, SttError, SttOptions, Transcript, requested_language};
use antiphon_types::Pcm;
use clap::Args;
use serde_json::json;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

/// What to write down.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon transcribe memo.wav
  antiphon transcribe *.mp3 --json
  antiphon say \"hello\" -o - | antiphon transcribe -")]
pub struct TranscribeArgs {
    /// Sound files: WAV, MP3, FLAC, Ogg, M4A or WebM; `-` is stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Language spoken, such as en, de-AT or German [default: as configured]
    #[arg(long)]
    language: Option<String>,
    /// Print one JSON object a file
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

/// Samples per push to the engine: 100 ms.
const PIECE: usize = RATE.hz() as usize / 10;

pub(super) async fn run(args: TranscribeArgs) -> Result<(), CliError> {
    let mut config = args.settings.load()?;
    // Files are processed one after the other; more decoders would only take longer to load.
    config.stt.decoders = 1;
    // Read all files first: a wrong name is reported before minutes of work.
    let speech = args.files.iter().map(|path| files::speech(path, RATE)).collect::<Result<Vec<_>, _>>()?;
    let wait = Duration::from_millis(config.stt.timeout_ms);
    let language = args.language.or_else(|| config.stt.language_code());
    let vocabulary = crate::assembly::vocabulary(&config);
    let progress = Progress::new("loading the recognizer");
    let engine = blocking(move || crate::assembly::stt(&config)).await?.map_err(EnginesError::from)?;
    let language = language.map(|given| requested_language(engine.as_ref(), &given)).transpose();
    let language = language.map_err(|why| CliError::Usage(format!("--language: {why}")))?.flatten();
    for (n, (path, pcm)) in args.files.iter().zip(speech).enumerate() {
        progress.now(format!("{} ({} of {})", path.display(), n + 1, args.files.len()));
        let options =
            SttOptions { language: language.clone(), vocabulary: vocabulary.clone(), ..SttOptions::default() };
        let audio_ms = pcm.duration().as_millis() as u64;
        let heard = transcribe(engine.as_ref(), options, pcm, wait)
            .await
            .map_err(|error| CliError::Failed(format!("{}: {}", path.display(), super::with_causes(&error))))?;
        progress.hide();
        if args.json {
            print::json(&json!({
                "file": path, "text": heard.text, "confidence": heard.confidence, "audio_ms": audio_ms, "engine": engine.name(),
            }))?;
        } else if args.files.len() > 1 {
            print::line(&format!("{}: {}", path.display(), heard.text))?;
        } else {
            print::line(&heard.text)?;
        }
    }
    Ok(())
}

/// Transcribes one file as one utterance. `wait` is the timeout of each step.
async fn transcribe(engine: &dyn Stt, options: SttOptions, pcm: Pcm, wait: Duration) -> Result<Transcript, SttError> {
    let mut utterance = within(wait, engine.open(options)).await?;
    for piece in pcm.samples.chunks(PIECE) {
        within(wait, utterance.push(piece.to_vec())).await?;
    }
    within(wait, utterance.finish()).await
}

async fn within<T>(wait: Duration, work: impl Future<Output = Result<T, SttError>>) -> Result<T, SttError> {
    tokio::time::timeout(wait, work).await.unwrap_or(Err(SttError::Timeout(wait)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::fakes::stt::FakeStt;

    #[tokio::test(start_paused = true)]
    async fn the_whole_file_is_one_utterance_and_waits_end() {
        let pcm = Pcm { rate: RATE, samples: vec![0; 2 * PIECE + 7] };
        let wait = Duration::from_secs(1);
        let heard = transcribe(&FakeStt::default(), SttOptions::default(), pcm.clone(), wait).await.expect("heard");
        assert_eq!(heard.text, format!("utterance of {} samples", 2 * PIECE + 7));
        let mut slow = FakeStt::default();
        slow.delay = Duration::from_secs(5);
        let error = transcribe(&slow, SttOptions::default(), pcm, wait).await.expect_err("late");
        assert!(matches!(error, SttError::Timeout(after) if after == wait), "{error}");
    }
}
