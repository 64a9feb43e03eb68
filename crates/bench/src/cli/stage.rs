//! `antiphon-bench tts | stt | llm`: load on one engine, either the configured one or any OpenAI-compatible server.

use super::progress;
use crate::Report;
use crate::stages::{self, Drive, Length, LlmStage, Stage, SttStage, TtsStage};
use antiphon::assembly::{self, EnginesError};
use antiphon::cli::say::voice;
use antiphon::cli::{CliError, Settings, blocking, print};
use antiphon::config::Config;
use antiphon_engine_api::stt::SttOptions;
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Location of the engine, and how it is loaded.
#[derive(Debug, Args)]
pub struct Common {
    /// A server's address up to and including /v1; without it, the configured engine runs in this process
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The server's model
    #[arg(long, requires = "url")]
    model: Option<String>,
    /// The environment variable that holds the server's key
    #[arg(long, value_name = "NAME", requires = "url")]
    key_env: Option<String>,
    /// Concurrent requests
    #[arg(long, short, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    concurrency: u16,
    /// Measured requests [default: 20]
    #[arg(long, short = 'n', conflicts_with = "duration", value_parser = clap::value_parser!(u32).range(1..))]
    requests: Option<u32>,
    /// Duration instead of a number of requests
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    duration: Option<u32>,
    /// Requests per worker that are left out at the start
    #[arg(long, value_name = "REQUESTS", default_value_t = 1)]
    warm_up: u32,
    /// Timeout of a request
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..))]
    patience: u32,
    /// Print one JSON object that includes each request
    #[arg(long)]
    json: bool,
    /// Write figures and plots as a self-contained page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// Text to speech.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon-bench tts                                          the configured voice, one request at a time
  antiphon-bench tts -c 8 --duration 30 --html tts.html
  antiphon-bench tts --url http://127.0.0.1:8092/v1 --model cosyvoice --voice alloy -c 4 -n 100
  ANTIPHON_TTS__LANES=4 antiphon-bench tts -c 8               engine settings from the file or the environment

The configured engine receives a text in chunks, as in the hub; a server receives the complete text. TTFA is the time to
the first audio. RTF is the duration of a request divided by the playing time of its audio.")]
pub struct TtsArgs {
    #[command(flatten)]
    common: Common,
    /// The voice [default: as configured]
    #[arg(long)]
    voice: Option<String>,
    /// Speech rate, 0.25 to 4.0
    #[arg(long, default_value_t = 1.0)]
    speed: f32,
    /// Characters per text
    #[arg(long, value_name = "CHARS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    text_length: u32,
}

/// Speech to text.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon-bench stt -c 2                                     the configured recognizer
  antiphon-bench stt --url http://127.0.0.1:8080/v1 --model whisper-1 --clips recordings/ --json
  ANTIPHON_STT__MODEL=models/true-size/transducer-large antiphon-bench stt --streams 1,4,8,16

With --streams the transducer engine gets utterances in real time, so many at once: the real-time factor, the hub's own share
of a step, and the wait from the end of speech to the final transcript.")]
pub struct SttArgs {
    #[command(flatten)]
    common: Common,
    /// A folder of WAV files, one utterance each [default: sentences spoken by flite]
    #[arg(long, value_name = "DIR")]
    clips: Option<PathBuf>,
    /// Characters per sentence; 45 are about 3 s
    #[arg(long, value_name = "CHARS", default_value_t = 45, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    text_length: u32,
    /// Streams in real time to the transducer engine, such as 1,8: a round for each number
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1_024))]
    streams: Vec<u16>,
    /// Seconds of audio of each stream
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "streams", value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Spoken language, two letters
    #[arg(long)]
    language: Option<String>,
}

/// The language model.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon-bench llm --url http://127.0.0.1:11434/v1 --model llama3.2 -c 4 --max-tokens 64")]
pub struct LlmArgs {
    #[command(flatten)]
    common: Common,
    /// Limit on tokens per response [default: as configured]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
}

pub(super) async fn tts(args: TtsArgs) -> Result<(), CliError> {
    if !(0.25..=4.0).contains(&args.speed) {
        return Err(CliError::Usage("--speed: write a number from 0.25 to 4.0".into()));
    }
    let mut config = args.common.settings.load()?;
    let server = args.common.server();
    if let Some(Server { url, model, key_env }) = server {
        let tts = &mut config.tts;
        tts.engine = "openai".into();
        tts.base_url = url;
        tts.api_key_env = key_env;
        tts.voice = args.voice.clone().unwrap_or_else(|| "alloy".into());
        tts.model = model.unwrap_or_else(|| tts.model.clone());
    }
    let settings = config.tts.clone();
    let tts = blocking(move || assembly::tts(&config)).await?.map_err(EnginesError::from)?;
    let voice = voice(args.voice, &settings, tts.as_ref())?;
    let how = format!("{}, voice {voice}, {} characters a text", args.common.whom(tts.name()), args.text_length);
    // A server splits texts itself.
    let chunked = tts.name() != "openai";
    let stage = TtsStage { tts, voice, speed: args.speed, n_chars: args.text_length as usize, chunked };
    args.common.run(Arc::new(stage), how).await
}

pub(super) async fn stt(args: SttArgs) -> Result<(), CliError> {
    let mut config: Config = args.common.settings.load()?;
    if let Some(Server { url, model, key_env }) = args.common.server() {
        let stt = &mut config.stt;
        stt.engine = "openai".into();
        stt.base_url = url;
        stt.api_key_env = key_env;
        stt.model = model.unwrap_or_else(|| stt.model.clone());
    }
    let clips = match args.clips.clone() {
        Some(folder) => blocking(move || stages::clips(&folder)).await?,
        None => stages::spoken(args.text_length as usize).await,
    };
    let clips = clips.map_err(|error| CliError::failed(&error))?;
    if !args.streams.is_empty() {
        let section = stages::streams(&config.stt, &config.onnx, &args.streams, args.seconds, &clips, &progress).await;
        progress("");
        let report = Report::of(section.map_err(|error| CliError::failed(&error))?);
        return if args.common.json { print::json(&report.json()) } else { print::line(&report.table()) };
    }
    let whose = args
        .clips
        .as_ref()
        .map_or_else(|| "clips spoken by flite".into(), |folder| format!("clips of {}", folder.display()));
    let seconds = clips.iter().map(Vec::len).sum::<usize>() as f64
        / clips.len() as f64
        / f64::from(antiphon_engine_api::stt::RATE.hz());
    let language = args.language.clone().or_else(|| config.stt.language_code());
    let options = SttOptions { language, ..SttOptions::default() };
    let stt = blocking(move || assembly::stt(&config)).await?.map_err(EnginesError::from)?;
    let how = format!("{}, {whose} of {seconds:.1} s on average", args.common.whom(stt.name()));
    args.common.run(Arc::new(SttStage { stt, clips, options }), how).await
}

pub(super) async fn llm(args: LlmArgs) -> Result<(), CliError> {
    let mut config = args.common.settings.load()?;
    if let Some(Server { url, model, key_env }) = args.common.server() {
        let llm = &mut config.llm;
        llm.engine = "openai".into();
        llm.base_url = url;
        llm.api_key_env = key_env;
        llm.model = model.unwrap_or_else(|| llm.model.clone());
    }
    let instructions = config.llm.system_prompt.clone();
    let llm = assembly::llm(&config).map_err(EnginesError::from)?;
    let how = args.common.whom(llm.name());
    args.common.run(Arc::new(LlmStage { llm, instructions, max_tokens: args.max_tokens }), how).await
}

struct Server {
    url: String,
    model: Option<String>,
    key_env: String,
}

impl Common {
    fn server(&self) -> Option<Server> {
        let model = self.model.clone();
        let key_env = self.key_env.clone().unwrap_or_default();
        self.url.clone().map(|url| Server { url, model, key_env })
    }

    fn whom(&self, engine: &str) -> String {
        let what = self.url.as_ref().map_or_else(|| format!("the engine {engine:?} in this process"), Clone::clone);
        format!("{} at a time to {what}", self.concurrency)
    }

    async fn run(&self, stage: Arc<dyn Stage>, how: String) -> Result<(), CliError> {
        let drive = Drive {
            concurrency: self.concurrency.into(),
            length: match self.duration {
                Some(seconds) => Length::For(Duration::from_secs(seconds.into())),
                None => Length::Requests(self.requests.unwrap_or(20) as usize),
            },
            warm_up: self.warm_up as usize,
            patience: Duration::from_secs(self.patience.into()),
        };
        let outcome = stages::run(stage, drive, &progress).await;
        progress("");
        let section = outcome.section(how);
        let page = self.html.as_ref().map(|path| (path, stages::page(&outcome, &section)));
        let report = Report::of(section);
        if self.json {
            let mut json = report.json();
            json["run"] = outcome.json();
            print::json(&json)?;
        } else {
            print::line(&report.table())?;
        }
        // Written after the figures are printed, so that a page that cannot be written does not lose them.
        if let Some((path, page)) = page {
            std::fs::write(path, page).map_err(|error| CliError::file("written", path, &error))?;
        }
        match outcome.n_failed() {
            0 => Ok(()),
            n => Err(CliError::Failed(format!("{n} of {} requests failed", outcome.shots.len()))),
        }
    }
}
