//! `antiphon ask`: sends an audio file to a server in real time and receives the spoken response.

use super::progress::Progress;
use super::target::{Mode, Target, failure, printable, printable_lines};
use super::{CliError, Settings, files, own_hub, print};
use antiphon_client::{Answer, AskError, AskOptions};
use antiphon_types::Pcm;
use clap::Args;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// What to ask.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon ask question.wav                         of a server this command starts itself
  antiphon ask question.wav -o reply.wav --url http://127.0.0.1:8080
  antiphon ask question.wav --json | jq .voice_to_voice_ms

The file is sent as fast as it sounds, as a microphone would send it. Printed are what was understood, what was
answered, and where each millisecond went. An answer that is not complete is printed and ends with 1, or
with the exit code of the error that broke it off.")]
pub struct AskArgs {
    /// The question: a sound file; `-` is stdin
    wav: PathBuf,
    /// Write the spoken answer to this WAV file; `-` is stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A running server; without it, one is started for this question
    #[arg(long)]
    url: Option<String>,
    /// How audio travels; servers other than this hub know only `ga`
    #[arg(long, value_enum, default_value_t = Mode::Pcm16)]
    audio: Mode,
    /// The voice of the answer
    #[arg(long)]
    voice: Option<String>,
    #[command(flatten)]
    target: Target,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

pub(super) async fn run(args: AskArgs) -> Result<(), CliError> {
    if args.json && args.output.as_ref().is_some_and(|path| path.as_os_str() == "-") {
        return Err(CliError::Usage("--json and the WAV file cannot both go to stdout: name a file with -o".into()));
    }
    let question = files::speech(&args.wav, antiphon_client::RATE)?;
    let answer = match &args.url {
        Some(url) => ask(&args, url.clone(), &question).await,
        None => own_hub::with(&args.settings, async |url| ask(&args, url, &question).await).await,
    };
    match answer? {
        AskOutcome::Answered(answer) => {
            shown(&args, &answer)?;
            whole(&answer)
        }
        AskOutcome::Failed(so_far, error) => {
            shown(&args, &so_far)?;
            Err(error)
        }
    }
}

/// What became of a question.
enum AskOutcome {
    Answered(Answer),
    /// It failed after part of the answer.
    Failed(Box<Answer>, CliError),
}

/// Writes and prints what there is of an answer.
fn shown(args: &AskArgs, answer: &Answer) -> Result<(), CliError> {
    if let Some(path) = &args.output {
        files::write(path, &answer.reply)?;
    }
    match &args.output {
        _ if args.json => print::json(&report(answer)),
        Some(path) if path.as_os_str() == "-" => Ok(()),
        _ => print::line(&text_of(answer)),
    }
}

/// An error for an answer that is not whole. What there is of it was printed.
fn whole(answer: &Answer) -> Result<(), CliError> {
    match &answer.cut {
        Some(why) => Err(CliError::Failed(format!("the answer is not complete: {}", printable(why)))),
        None => Ok(()),
    }
}

async fn ask(args: &AskArgs, url: String, question: &Pcm) -> Result<AskOutcome, CliError> {
    let mut options = args.target.options(url, args.audio)?;
    // Other servers cannot resume a session.
    options.resume = args.audio != Mode::Ga;
    let connection = antiphon_client::connect(&options).await.map_err(failure)?;
    let options = AskOptions { session: session(args), ..AskOptions::default() };
    let _progress = Progress::new(format!("asking, {:.1} s", question.duration().as_secs_f64()));
    match antiphon_client::ask(connection, question, &options).await {
        Ok(answer) => Ok(AskOutcome::Answered(answer)),
        Err(AskError { error, so_far: Some(so_far) }) => Ok(AskOutcome::Failed(so_far, failure(error))),
        Err(AskError { error, so_far: None }) => Err(failure(error)),
    }
}

/// The initial `session.update`; `None` if the defaults apply.
fn session(args: &AskArgs) -> Option<Value> {
    let mut audio = Map::new();
    if args.audio == Mode::Ga {
        // Other servers transcribe only on request; the hub accepts any model name.
        audio.insert("input".into(), json!({ "transcription": { "model": "whisper-1" } }));
    }
    if let Some(voice) = &args.voice {
        audio.insert("output".into(), json!({ "voice": voice }));
    }
    (!audio.is_empty()).then(|| json!({ "type": "realtime", "audio": audio }))
}

fn report(answer: &Answer) -> Value {
    let seen: Map<String, Value> = answer.seen.iter().map(|(name, ms)| ((*name).into(), json!(tenths(*ms)))).collect();
    json!({
        "transcript": answer.transcript,
        "text": answer.text,
        "status": answer.status,
        "cut": answer.cut,
        "reply_ms": answer.reply.duration().as_millis() as u64,
        "voice_to_voice_ms": answer.voice_to_voice.map(|wait| tenths(wait.as_secs_f64() * 1_000.0)),
        "server_ms": answer.marks,
        "seen_ms": seen,
    })
}

fn tenths(ms: f64) -> f64 {
    (ms * 10.0).round() / 10.0
}

fn text_of(answer: &Answer) -> String {
    let mut text =
        format!("heard:    {}\nanswered: {}\n", printable_lines(&answer.transcript), printable_lines(&answer.text));
    if let Some(wait) = answer.voice_to_voice {
        text +=
            &format!("\n{:.0} ms from your last word to the first sound of the answer\n", wait.as_secs_f64() * 1_000.0);
    }
    // Sorted by time instead of by name.
    let mut marks: Vec<_> = answer.marks.iter().collect();
    marks.sort_by(|a, b| a.1.total_cmp(b.1));
    if !marks.is_empty() {
        text += "\nin the server, ms from the end of your speech:\n";
    }
    for (name, ms) in marks {
        text += &format!("  {:<18} {ms:>7.0}\n", printable(name));
    }
    text += "\nseen here, ms from your last word:\n";
    for (name, ms) in &answer.seen {
        text += &format!("  {name:<18} {ms:>7.0}\n");
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn answer() -> Answer {
        Answer {
            transcript: "what time is it".into(),
            text: "It is noon.".into(),
            status: "completed".into(),
            cut: None,
            reply: Pcm { rate: antiphon_client::RATE, samples: vec![0; 24_000] },
            voice_to_voice: Some(Duration::from_micros(312_440)),
            seen: vec![("speech_stopped", 210.26)],
            marks: [("stt_final".to_owned(), 215.0), ("end_confirmed".to_owned(), 200.0)].into(),
        }
    }

    #[test]
    fn an_answer_is_told_to_people_and_to_programs() {
        let expect = "\
heard:    what time is it
answered: It is noon.

312 ms from your last word to the first sound of the answer

in the server, ms from the end of your speech:
  end_confirmed          200
  stt_final              215

seen here, ms from your last word:
  speech_stopped         210";
        assert_eq!(text_of(&answer()), expect);
        let report = report(&answer());
        assert_eq!(report["voice_to_voice_ms"], 312.4);
        assert_eq!(report["seen_ms"]["speech_stopped"], 210.3);
        assert_eq!(report["reply_ms"], 1_000);
    }

    #[test]
    fn words_of_a_server_control_no_terminal() {
        let mut answer = answer();
        answer.transcript = "red\x1b[31m".into();
        answer.text = "One.\nTwo.\x1b]0;title\x07".into();
        answer.marks = [("stt\x1b[2J".to_owned(), 1.0)].into();
        let text = text_of(&answer);
        assert!(text.starts_with("heard:    red[31m\nanswered: One.\nTwo.]0;title\n"), "{text:?}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert_eq!(report(&answer)["text"], answer.text, "JSON has escapes of its own");
    }

    #[test]
    fn an_answer_that_is_not_whole_is_an_error() {
        assert!(whole(&answer()).is_ok());
        let cut = Answer { cut: Some("the response is incomplete, not completed".into()), ..answer() };
        let error = whole(&cut).unwrap_err();
        assert_eq!((error.exit_code(), report(&cut)["cut"].is_string()), (1, true));
        assert_eq!(error.to_string(), "the answer is not complete: the response is incomplete, not completed");
    }
}
