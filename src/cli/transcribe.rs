//! `antiphon transcribe`: transcribes sound files with the configured STT engine; no other engine is loaded.

use super::progress::Progress;
use super::{CliError, Settings, blocking, files, print};
use crate::assembly::{EnginesError, StageFailure};
use crate::config::Config;
use antiphon_engine_api::Fault;
use antiphon_engine_api::stt::{RATE, Stt, SttError, SttOptions, Transcript, requested_language};
use antiphon_engines::stt::none;
use antiphon_types::Pcm;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
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

/// What a file may take beyond `stt.timeout_ms`, in its own lengths, as a segment of the API's.
const TIMES_ITS_LENGTH: u32 = 8;

/// The longest utterance that a recognizer on a server takes.
const LONGEST_REMOTE: Duration = Duration::from_secs(600);

/// Transcribes the files in order. A file that fails is reported and the next one follows; the command fails at the end.
pub(super) async fn run(args: TranscribeArgs) -> Result<(), CliError> {
    let mut config = args.settings.load()?;
    // Files are processed one after the other; more decoders would only take longer to load.
    config.stt.decoders = 1;
    let progress = Progress::new("reading");
    let mut recognizer = None;
    let mut failures = Failures::default();
    for (n, path) in args.files.iter().enumerate() {
        let pcm = match files::speech(path, RATE) {
            Ok(pcm) => pcm,
            Err(error) => {
                progress.hide();
                failures.add(error);
                continue;
            }
        };
        let recognizer = match &recognizer {
            Some(recognizer) => recognizer,
            None => {
                progress.now("loading the recognizer");
                let loaded = Recognizer::load(&config, args.language.as_deref()).await;
                if loaded.is_err() {
                    progress.hide();
                    failures.report();
                }
                recognizer.insert(loaded?)
            }
        };
        progress.now(format!("{} ({} of {})", path.display(), n + 1, args.files.len()));
        let length = pcm.duration();
        let audio_ms = length.as_millis() as u64;
        let heard = recognizer.transcribe(pcm).await;
        progress.hide();
        let heard = match heard {
            Ok(heard) => heard,
            Err(error) => {
                failures.add(failure(path, length, &error));
                continue;
            }
        };
        if args.json {
            print::json(&json!({
                "file": print::path(path), "text": heard.text, "confidence": heard.confidence, "audio_ms": audio_ms,
                "engine": recognizer.engine.name(),
            }))?;
        } else if args.files.len() > 1 {
            print::line(&format!("{}: {}", path.display(), heard.text))?;
        } else {
            print::line(&heard.text)?;
        }
    }
    failures.end(args.files.len())
}

/// The error of a file of this length, with a way around it where the server of the recognizer does not take it.
fn failure(path: &Path, length: Duration, error: &SttError) -> CliError {
    let is_refused = matches!(error, SttError::Remote { fault: Fault::Refused, .. });
    let is_too_long = is_refused && length > LONGEST_REMOTE;
    let way = match is_too_long {
        true => {
            ". This command sends a file as a whole, and servers take 10 minutes: divide it, or have a hub do that by \
             POST /v1/audio/transcriptions"
        }
        false => "",
    };
    CliError::Failed(format!("{}: {}{way}", path.display(), antiphon_telemetry::with_causes(error)))
}

/// The files that failed so far. The last failure is held back, so that a command on one file ends with its error.
#[derive(Default)]
struct Failures {
    n: usize,
    last: Option<CliError>,
}

impl Failures {
    fn add(&mut self, error: CliError) {
        self.n += 1;
        if let Some(earlier) = self.last.replace(error) {
            print::complain(&earlier);
        }
    }

    /// Reports the failure that is held back, where another error ends the command.
    fn report(&mut self) {
        if let Some(last) = self.last.take() {
            print::complain(&last);
        }
    }

    fn end(self, n_files: usize) -> Result<(), CliError> {
        match self.last {
            None => Ok(()),
            Some(error) if n_files == 1 => Err(error),
            Some(error) => {
                print::complain(&error);
                Err(CliError::Failed(format!("{} of {n_files} files were not transcribed", self.n)))
            }
        }
    }
}

/// The configured engine and what it is asked for.
struct Recognizer {
    engine: Arc<dyn Stt>,
    options: SttOptions,
    /// `stt.timeout_ms`.
    timeout: Duration,
}

impl Recognizer {
    async fn load(config: &Config, language: Option<&str>) -> Result<Self, CliError> {
        let timeout = Duration::from_millis(config.stt.timeout_ms);
        let language = language.map(str::to_owned).or_else(|| config.stt.language_code());
        let config = config.clone();
        let engine = blocking(move || crate::assembly::stt(&config)).await?.map_err(EnginesError::from)?;
        if engine.name() == none::NAME {
            let missing = StageFailure::new("stt", none::NAME, SttError::NoRecognizer);
            return Err(EnginesError::from(missing).into());
        }
        let language = language.map(|given| requested_language(engine.as_ref(), &given)).transpose();
        let language = language.map_err(|why| CliError::Usage(format!("--language: {why}")))?.flatten();
        Ok(Self { engine, options: SttOptions { language, ..SttOptions::default() }, timeout })
    }

    /// Transcribes one file as one utterance, within the time that the API gives a segment of this length.
    async fn transcribe(&self, pcm: Pcm) -> Result<Transcript, SttError> {
        let longest = self.timeout + pcm.duration() * TIMES_ITS_LENGTH;
        let work = async {
            let mut utterance = self.engine.open(self.options.clone()).await?;
            for piece in pcm.samples.chunks(PIECE) {
                utterance.push(piece.to_vec()).await?;
            }
            utterance.finish().await
        };
        tokio::time::timeout(longest, work).await.unwrap_or(Err(SttError::Timeout(longest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::fakes::stt::FakeStt;

    fn recognizer(engine: FakeStt) -> Recognizer {
        Recognizer { engine: Arc::new(engine), options: SttOptions::default(), timeout: Duration::from_secs(1) }
    }

    #[tokio::test(start_paused = true)]
    async fn the_whole_file_is_one_utterance_and_a_long_one_has_longer() {
        let pcm = |seconds: usize| Pcm { rate: RATE, samples: vec![0; seconds * 10 * PIECE + 7] };
        let heard = recognizer(FakeStt::default()).transcribe(pcm(1)).await.expect("heard");
        assert_eq!(heard.text, format!("utterance of {} samples", 10 * PIECE + 7));
        let slow = || FakeStt::default().delayed(Duration::from_secs(10));
        let error = recognizer(slow()).transcribe(pcm(1)).await.expect_err("late");
        assert!(matches!(error, SttError::Timeout(after) if after.as_secs() == 9), "{error}");
        recognizer(slow()).transcribe(pcm(2)).await.expect("17 s are enough");
    }

    #[test]
    fn a_file_that_is_too_long_for_a_server_comes_with_a_way_around() {
        let refused = SttError::Remote { fault: Fault::Refused, message: "too long".into(), source: None };
        let error = |minutes: u64| failure(Path::new("a.wav"), Duration::from_secs(60 * minutes), &refused).to_string();
        assert!(error(11).contains("10 minutes") && error(11).contains("POST /v1/audio/transcriptions"));
        assert_eq!(error(9), "a.wav: the speech recognizer failed: too long");
        let wrong_key = SttError::Remote { fault: Fault::Auth, message: "wrong key".into(), source: None };
        let error = failure(Path::new("a.wav"), Duration::from_secs(60 * 11), &wrong_key).to_string();
        assert_eq!(error, "a.wav: the speech recognizer failed: wrong key");
    }

    #[test]
    fn a_file_alone_ends_with_its_error_and_several_with_their_number() {
        let failures = |n| {
            let mut failures = Failures::default();
            (0..n).for_each(|i| failures.add(CliError::Failed(format!("{i}.wav: cannot be read"))));
            failures
        };
        assert!(failures(0).end(3).is_ok());
        assert_eq!(failures(1).end(1).expect_err("failed").to_string(), "0.wav: cannot be read");
        assert_eq!(failures(2).end(3).expect_err("failed").to_string(), "2 of 3 files were not transcribed");
    }
}
