//! `antiphon say`: synthesizes a text with the configured TTS engine, aloud or into a WAV file; no other engine is loaded.

use super::progress::Progress;
use super::sound::{self, Loudspeaker};
use super::{CliError, Settings, blocking, files, print};
use antiphon_audio::Resampler;
use antiphon_engine_api::tts::{SpeechRequest, Tts};
use antiphon_engines::tts::TtsConfig;
use antiphon_text::{Chunker, Language};
use antiphon_types::{Pcm, SampleRate};
use clap::Args;
use futures_util::StreamExt;
use serde_json::json;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Sound that waits for the loudspeaker, at most: 3 MB.
const MAX_AHEAD: Duration = Duration::from_secs(60);

/// What to say.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon say \"Good morning.\"                    aloud
  antiphon say \"Good morning.\" -o morning.wav
  antiphon say --voice rms --speed 1.2 \"Good morning.\" -o - | aplay
  echo \"From a pipe.\" | antiphon say - -o pipe.wav")]
pub struct SayArgs {
    /// The text; `-` reads it from stdin
    text: String,
    /// Where a WAV file goes; `-` is stdout. Without it, the loudspeaker plays it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The ALSA device that plays it; `antiphon chat --list` lists them
    #[arg(long, value_name = "NAME", default_value = sound::DEFAULT, conflicts_with = "output")]
    device: String,
    /// The voice [default: as configured]
    #[arg(long)]
    voice: Option<String>,
    /// Rate of speech, 0.25 to 4.0 [default: as configured]
    #[arg(long, value_parser = speed)]
    speed: Option<f32>,
    /// How to speak, such as "whisper", for engines that can act
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    /// Print one JSON object about the speech
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

fn speed(text: &str) -> Result<f32, String> {
    let speed = text.parse().ok().filter(|speed| (0.25..=4.0).contains(speed));
    speed.ok_or_else(|| "write a number from 0.25 to 4.0".into())
}

pub(super) async fn run(args: SayArgs) -> Result<(), CliError> {
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    if to_stdout && args.json {
        return Err(CliError::Usage("--json and the WAV file cannot both go to stdout: name a file with -o".into()));
    }
    let mut config = args.settings.load()?;
    // The chunks are synthesized one after the other.
    config.tts.replicas = 1;
    let text = text(&args.text)?;
    // Before the voice is loaded: a machine without a loudspeaker gets its error at once.
    let mut player = if args.output.is_none() { Some(Player::open(&args.device)?) } else { None };
    let progress = Progress::new("loading the voice");
    let tts = config.tts.clone();
    let wait = Duration::from_millis(tts.timeout_ms);
    let engine = blocking(move || crate::assembly::tts(&config)).await?.map_err(crate::assembly::EnginesError::from)?;
    let voice = voice(args.voice, &tts, engine.as_ref())?;
    let speed = args.speed.unwrap_or(tts.speed);
    let instructions = args.instructions;
    let request = SpeechRequest { text, voice, speed, instructions, ..SpeechRequest::default() };
    progress.now("speaking");
    let pcm = speak(engine.as_ref(), &request, wait, async |piece: &Pcm| match &mut player {
        Some(player) => player.play(piece).await,
        None => Ok(()),
    })
    .await?;
    drop(progress);
    if let Some(player) = player {
        player.end().await?;
    }
    if let Some(path) = &args.output {
        files::write(path, &pcm)?;
    }
    let ms = pcm.duration().as_millis();
    if args.json {
        return print::json(&json!({
            "file": args.output.as_deref().map(print::path), "voice": request.voice, "engine": engine.name(),
            "audio_ms": ms as u64, "rate_hz": pcm.rate.hz(),
        }));
    }
    match &args.output {
        Some(path) if !to_stdout => {
            let seconds = ms as f64 / 1_000.0;
            print::line(&format!("{}: {seconds:.1} s of speech, voice {}", path.display(), request.voice))
        }
        _ => Ok(()),
    }
}

/// Plays speech while it is made.
struct Player {
    loudspeaker: Arc<Loudspeaker>,
    resampler: Option<(SampleRate, Resampler)>,
    samples: Vec<i16>,
}

impl Player {
    fn open(device: &str) -> Result<Self, CliError> {
        match Loudspeaker::open(device) {
            Ok(loudspeaker) => Ok(Self { loudspeaker: Arc::new(loudspeaker), resampler: None, samples: Vec::new() }),
            Err(error) => Err(error_with(error, "; or write a file with -o")),
        }
    }

    /// Plays the piece behind what waits; first waits while more than [`MAX_AHEAD`] does.
    async fn play(&mut self, piece: &Pcm) -> Result<(), CliError> {
        if self.resampler.as_ref().is_none_or(|(rate, _)| *rate != piece.rate) {
            self.resampler = Some((piece.rate, Resampler::new(piece.rate, sound::RATE)));
        }
        self.samples.clear();
        if let Some((_, resampler)) = &mut self.resampler {
            resampler.process(&piece.samples, &mut self.samples);
        }
        let loudspeaker = self.loudspeaker.clone();
        blocking(move || loudspeaker.wait_for_room(MAX_AHEAD)).await??;
        Ok(self.loudspeaker.play("", &self.samples)?)
    }

    /// Waits until all of it has sounded.
    async fn end(mut self) -> Result<(), CliError> {
        self.samples.clear();
        if let Some((_, mut resampler)) = self.resampler.take() {
            resampler.flush(&mut self.samples);
        }
        self.loudspeaker.play("", &self.samples)?;
        Ok(blocking(move || self.loudspeaker.wait()).await??)
    }
}

/// The error with a way around it.
fn error_with(error: sound::SoundError, way: &str) -> CliError {
    match CliError::from(error) {
        CliError::Missing(text) => CliError::Missing(text + way),
        other => CliError::Failed(format!("{other}{way}")),
    }
}

/// The requested voice, or the configured one; a voice that the engine does not have is an error.
pub fn voice(asked: Option<String>, config: &TtsConfig, engine: &dyn Tts) -> Result<String, CliError> {
    let voice = asked.unwrap_or_else(|| config.first_voice(engine));
    engine.check_voice(&voice).map_err(CliError::Usage)?;
    Ok(voice)
}

fn text(argument: &str) -> Result<String, CliError> {
    let mut text = argument.to_owned();
    if argument == "-" {
        text.clear();
        std::io::stdin()
            .lock()
            .read_to_string(&mut text)
            .map_err(|error| CliError::file("read", Path::new("stdin"), &error))?;
    }
    let text = text.trim().to_owned();
    if text.is_empty() { Err(CliError::Usage("there is nothing to say: the text is empty".into())) } else { Ok(text) }
}

/// Synthesizes all of the text. `each` gets the pieces as they come; `wait` is the timeout of the first audio and of each further
/// piece.
async fn speak(
    engine: &dyn Tts,
    request: &SpeechRequest,
    wait: Duration,
    mut each: impl AsyncFnMut(&Pcm) -> Result<(), CliError>,
) -> Result<Pcm, CliError> {
    let mut whole = Pcm { rate: SampleRate::HZ_16000, samples: Vec::new() };
    let language = Language::of_tag(&engine.language(&request.voice));
    for chunk in chunks(&request.text, language, engine.marks()) {
        let mut pieces = engine.speak(SpeechRequest { text: chunk, ..request.clone() });
        loop {
            let late = || CliError::Failed(format!("the voice engine gave no sound within {wait:?}"));
            let Some(piece) = tokio::time::timeout(wait, pieces.next()).await.map_err(|_| late())? else { break };
            let piece = piece.map_err(|error| CliError::failed(&error))?;
            each(&piece).await?;
            whole.rate = piece.rate;
            whole.samples.extend(piece.samples);
        }
    }
    if whole.is_empty() {
        return Err(CliError::Failed("the voice engine made no sound of this text".into()));
    }
    Ok(whole)
}

/// Splits and normalizes the text as a session does with a response.
fn chunks(text: &str, language: Language, marks: Vec<String>) -> Vec<String> {
    let mut chunker = Chunker::new(language).keeping(marks);
    let mut chunks = chunker.push(text);
    chunks.extend(chunker.finish());
    chunks.into_iter().map(|chunk| chunk.spoken).filter(|spoken| !spoken.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::fakes::tts::FakeTts;

    fn request(text: &str) -> SpeechRequest {
        SpeechRequest { text: text.into(), voice: "tone".into(), ..SpeechRequest::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn all_of_the_text_is_spoken_at_the_engines_rate() {
        let pcm = speak(&FakeTts::default(), &request("hello there"), Duration::from_secs(1), async |_: &Pcm| Ok(()))
            .await
            .expect("spoken");
        assert_eq!((pcm.rate, pcm.duration()), (SampleRate::HZ_24000, Duration::from_millis(550)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_or_failing_engine_is_an_error() {
        let mut engine = FakeTts::default();
        engine.delay = Duration::from_secs(5);
        let error =
            speak(&engine, &request("hello"), Duration::from_secs(1), async |_: &Pcm| Ok(())).await.expect_err("late");
        assert_eq!(error.to_string(), "the voice engine gave no sound within 1s");
        let mut engine = FakeTts::default();
        engine.fails_on = Some("hello".into());
        let error =
            speak(&engine, &request("hello"), Duration::from_secs(1), async |_: &Pcm| Ok(())).await.expect_err("fails");
        assert_eq!(error.to_string(), "the voice engine failed: told to fail");
    }

    #[test]
    fn a_long_text_is_cut_and_worded_as_an_answer_is() {
        let text = "Well, **this** is 5 % of it. [laugh] And here is one more sentence of several words.";
        let chunks = chunks(text, Language::English, vec!["[laugh]".into()]);
        assert!(chunks.len() > 1, "{chunks:?}");
        assert!(chunks.concat().contains("5 percent") && !chunks.concat().contains('*'), "{chunks:?}");
        assert!(chunks.concat().contains("[laugh]"), "{chunks:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_text_is_worded_in_the_language_of_its_voice() {
        let engine = FakeTts::default().with_voices([("tone", "de-DE")]);
        speak(&engine, &request("Das sind 5 %."), Duration::from_secs(1), async |_: &Pcm| Ok(()))
            .await
            .expect("spoken");
        assert!(engine.spoken().concat().contains("5 %"), "{:?}", engine.spoken());
    }

    #[test]
    fn wrong_arguments_are_refused() {
        assert!(speed("0.2").is_err() && speed("NaN").is_err() && speed("1.5") == Ok(1.5));
        assert!(matches!(text("  "), Err(CliError::Usage(_))));
        let config = TtsConfig::default();
        let engine = FakeTts::default();
        let error = voice(Some("bob".into()), &config, &engine).expect_err("unknown").to_string();
        assert_eq!(error, "there is no voice \"bob\"; fake has tone");
        assert_eq!(voice(None, &config, &engine).expect("the engine's own"), "tone");
    }
}
