//! `antiphon chat`: a conversation from the terminal, by the microphone and the loudspeaker of this machine.
//!
//! It is a client like `ask`: audio goes to a running hub, or to one that it starts, which removes the echo of its own voice, ends
//! turns and handles interruptions. Here are the devices, the captions and the reports of what was heard; nothing is decided.

use super::print;
use super::sound::{self, Loudspeaker, Microphone, SoundError};
use super::target::{Mode, Target, failure, printable};
use super::{CliError, Settings, own_hub};
use antiphon_client::{Connection, Event, ReceivedMessage, Sender};
use antiphon_types::ItemId;
use clap::Args;
use serde_json::{Map, Value, json};
use std::io::{IsTerminal, Write};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Interval of playback reports.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// The longest wait for the session.
const GREETING: Duration = Duration::from_secs(10);
/// Columns of a caption that is not final on a terminal: it stays on one line of the usual 80.
const LIVE_COLUMNS: usize = 64;

/// Where and how to talk.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon chat                                     with a hub that this command starts itself
  antiphon chat --url http://127.0.0.1:8080 --voice slt
  antiphon chat --list                              the devices that --device takes
  antiphon chat --device plughw:1 --url wss://hub.example.org --key-env HUB_KEY

Speak over an answer to interrupt it. Ctrl-C ends the conversation. With loudspeakers the hub removes its own voice from
the microphone; headphones are better still. Sound goes through ALSA (libasound2), which PipeWire and PulseAudio serve.")]
pub struct ChatArgs {
    /// A running server; without it, one is started for this conversation
    #[arg(long)]
    url: Option<String>,
    /// The ALSA device for both microphone and loudspeaker
    #[arg(long, value_name = "NAME", default_value = sound::DEFAULT)]
    device: String,
    /// Another device for the microphone
    #[arg(long, value_name = "NAME")]
    microphone: Option<String>,
    /// List the devices, and end
    #[arg(long)]
    list: bool,
    /// How audio travels; servers other than this hub know only `ga`
    #[arg(long, value_enum, default_value_t = Mode::Pcm16)]
    audio: Mode,
    /// The voice of the answers
    #[arg(long)]
    voice: Option<String>,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    settings: Settings,
}

pub(super) async fn run(args: ChatArgs) -> Result<(), CliError> {
    if args.list {
        return list();
    }
    // Before the engines are loaded: a machine without a microphone gets its error at once.
    Microphone::check(microphone(&args))?;
    let loudspeaker = Loudspeaker::open(&args.device)?;
    match &args.url {
        Some(url) => talk(&args, url.clone(), loudspeaker).await,
        None => own_hub::with(&args.settings, async |url| talk(&args, url, loudspeaker).await).await,
    }
}

/// Prints the devices, one a line.
fn list() -> Result<(), CliError> {
    let devices = sound::devices()?;
    if devices.is_empty() {
        return Err(CliError::Failed("ALSA knows no device".into()));
    }
    for device in devices {
        let does = match (device.is_microphone, device.is_loudspeaker) {
            (true, true) => "both",
            (true, false) => "microphone",
            _ => "loudspeaker",
        };
        print::line(&format!("{:<32} {does:<12} {}", device.name, device.description))?;
    }
    Ok(())
}

/// The microphone's device.
fn microphone(args: &ChatArgs) -> &str {
    args.microphone.as_ref().unwrap_or(&args.device)
}

/// The conversation, until Ctrl-C.
async fn talk(args: &ChatArgs, url: String, loudspeaker: Loudspeaker) -> Result<(), CliError> {
    let mut options = args.target.options(url, args.audio)?;
    // Other servers cannot resume a session.
    options.resume = args.audio != Mode::Ga;
    let connection = antiphon_client::connect(&options).await.map_err(failure)?;
    let Connection { mut sender, mut receiver, .. } = connection;
    let created = async {
        loop {
            match receiver.next().await.map_err(failure)? {
                ReceivedMessage::Event(Event::SessionCreated {}) => return Ok(()),
                ReceivedMessage::Event(Event::Error { error }) => return Err(refusal(error)),
                _ => {}
            }
        }
    };
    let late = || CliError::Unreachable(format!("the server began no session within {GREETING:?}"));
    timeout(GREETING, created).await.map_err(|_| late())??;
    if let Some(session) = session(args) {
        sender.event(&json!({"type": "session.update", "session": session})).await.map_err(failure)?;
    }
    let mut microphone = Microphone::open(microphone(args))?;
    print::note("Talk now. Ctrl-C ends the conversation.");
    let mut captions = Captions::new(std::io::stdout().is_terminal());
    let mut reports = Reports { mode: args.audio, last: None };
    let mut ticks = interval(REPORT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    // One for all rounds: another would not see a signal that comes between two of them.
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        tokio::select! {
            _ = &mut interrupted => {
                captions.end()?;
                sender.close().await;
                return Ok(());
            }
            frame = microphone.next() => {
                let ended = || SoundError::Broke { device: args.device.clone(), why: "it ended".into() };
                sender.audio(&frame.unwrap_or_else(|| Err(ended()))?).await.map_err(failure)?;
            }
            _ = ticks.tick() => reports.send(&loudspeaker, &mut sender).await?,
            received = receiver.next() => match received.map_err(failure)? {
                ReceivedMessage::Audio { item_id, samples } => loudspeaker.play(&item_id, &samples)?,
                ReceivedMessage::Resumed(_) => captions.note("the connection was lost and is back")?,
                ReceivedMessage::Event(Event::Error { error }) => captions.note(&refusal(error).to_string())?,
                ReceivedMessage::Event(event) => {
                    reports.take(&event, &loudspeaker, &mut sender).await?;
                    captions.take(event)?;
                }
            },
        }
    }
}

fn refusal(error: antiphon_client::Problem) -> CliError {
    CliError::Failed(printable(&error.message.unwrap_or_else(|| "the server reports an error".into())))
}

/// The initial `session.update`; `None` if the defaults apply.
fn session(args: &ChatArgs) -> Option<Value> {
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

/// What the server is to know about the loudspeaker, and what it says to it.
struct Reports {
    mode: Mode,
    /// The last report.
    last: Option<(String, u64)>,
}

impl Reports {
    /// Reports what was heard since the last report.
    async fn send(&mut self, loudspeaker: &Loudspeaker, sender: &mut Sender) -> Result<(), CliError> {
        let heard = loudspeaker.heard().map(|(item_id, heard)| (item_id, heard.as_millis() as u64));
        if self.mode == Mode::Ga || heard == self.last {
            return Ok(());
        }
        if let Some((item_id, ms)) = &heard {
            sender.played(&ItemId::from(item_id.as_str()), *ms).await.map_err(failure)?;
        }
        self.last = heard;
        Ok(())
    }

    /// Pauses, continues and stops the loudspeaker. Without binary frames the client does this itself at the start of speech, and
    /// sends the position at which playback of the item stopped.
    async fn take(&mut self, event: &Event, loudspeaker: &Loudspeaker, sender: &mut Sender) -> Result<(), CliError> {
        match event {
            Event::Held { .. } => loudspeaker.hold(),
            Event::Resumed { .. } => loudspeaker.resume(),
            Event::Cleared {} => loudspeaker.clear(),
            Event::SpeechStarted { .. } if self.mode == Mode::Ga && !loudspeaker.is_silent() => {
                loudspeaker.clear();
                if let Some((item_id, heard)) = loudspeaker.heard() {
                    let cut = json!({
                        "type": "conversation.item.truncate", "item_id": item_id, "content_index": 0,
                        "audio_end_ms": heard.as_millis() as u64,
                    });
                    sender.event(&cut).await.map_err(failure)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The captions: a line for each utterance and each answer, and on a terminal the words as they come.
struct Captions {
    is_live: bool,
    /// Words of the utterance in progress.
    heard: String,
    /// Words of the answer in progress.
    answer: String,
    is_answering: bool,
    is_cut: bool,
    /// From the end of speech to the first sound of the answer, in ms.
    took: Option<f64>,
}

impl Captions {
    fn new(is_live: bool) -> Self {
        Self { is_live, heard: String::new(), answer: String::new(), is_answering: false, is_cut: false, took: None }
    }

    fn take(&mut self, event: Event) -> Result<(), CliError> {
        let text = self.lines(event);
        print::bytes(text.as_bytes())
    }

    /// What the event adds to the terminal.
    fn lines(&mut self, event: Event) -> String {
        match event {
            Event::TranscriptionDelta { delta, .. } => {
                self.heard += &printable(&delta);
                self.live("you", &self.heard)
            }
            Event::TranscriptionDraft { transcript, .. } => {
                self.live("you", &format!("{}{}", self.heard, printable(&transcript)))
            }
            Event::TranscriptionCompleted { transcript, .. } => {
                self.heard.clear();
                match transcript.trim() {
                    "" => self.erased().into(),
                    words => self.line("you", &printable(words)),
                }
            }
            Event::TranscriptionFailed { .. } => {
                self.heard.clear();
                self.line("you", "(not understood)")
            }
            Event::ResponseCreated { .. } => {
                self.answer.clear();
                self.is_answering = true;
                self.is_cut = false;
                self.took = None;
                String::new()
            }
            Event::TranscriptDelta { delta, .. } | Event::TextDelta { delta, .. } => {
                self.answer += &printable(&delta);
                self.live("antiphon", &self.answer)
            }
            Event::Timeline { marks } => {
                self.took = marks.get("first_audio_sent").copied();
                match self.took {
                    // The answer's line is there already.
                    Some(ms) if !self.is_answering => self.line("", &format!("{ms:.0} ms")),
                    _ => String::new(),
                }
            }
            Event::Cleared {} => {
                self.is_cut = true;
                String::new()
            }
            Event::ResponseDone { response } => {
                self.is_answering = false;
                let words = std::mem::take(&mut self.answer);
                let mut marks = Vec::new();
                let cut = self.is_cut || response.status == "cancelled";
                marks.extend(self.took.map(|ms| format!("{ms:.0} ms")));
                marks.extend(cut.then(|| "interrupted".to_owned()));
                if response.status == "failed" {
                    let error = response.status_details.and_then(|details| details.error?.message);
                    marks.push(printable(&error.unwrap_or_else(|| "the answer failed".into())));
                }
                let marks = if marks.is_empty() { String::new() } else { format!("  [{}]", marks.join(", ")) };
                if words.is_empty() && marks.is_empty() {
                    return self.erased().into();
                }
                self.line("antiphon", &format!("{}{marks}", words.trim()))
            }
            _ => String::new(),
        }
    }

    /// A line of the program itself.
    fn note(&mut self, text: &str) -> Result<(), CliError> {
        print::bytes(self.erased().as_bytes())?;
        print::note(&format!("antiphon: {text}"));
        Ok(())
    }

    /// Prints the answer that was interrupted by the end.
    fn end(&mut self) -> Result<(), CliError> {
        let rest = match self.answer.trim() {
            "" => self.erased().into(),
            words => self.line("antiphon", words),
        };
        print::bytes(rest.as_bytes())?;
        std::io::stdout().flush().map_err(CliError::from)
    }

    fn line(&self, who: &str, words: &str) -> String {
        format!("{}{who:<9} {words}\n", self.erased())
    }

    /// A line that the next one replaces: the end of the words, since that is what is new.
    fn live(&self, who: &str, words: &str) -> String {
        if !self.is_live {
            return String::new();
        }
        let mut n_columns = 0;
        let fits = |(_, c): &(usize, char)| {
            n_columns += columns(*c);
            n_columns <= LIVE_COLUMNS
        };
        let from = words.char_indices().rev().take_while(fits).last().map_or(words.len(), |(at, _)| at);
        let before = if from > 0 { "…" } else { "" };
        format!("{}{who:<9} {before}{}", self.erased(), &words[from..])
    }

    /// Removes a live line.
    fn erased(&self) -> &'static str {
        if self.is_live { "\r\x1b[K" } else { "" }
    }
}

/// Columns that a character takes on a terminal, at most. The wide ones, of East Asia, begin at U+1100.
fn columns(c: char) -> usize {
    if c < '\u{1100}' { 1 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_client::ResponseInfo;

    fn delta(delta: &str) -> Event {
        Event::TranscriptDelta { item_id: "a".into(), delta: delta.into() }
    }

    fn done(status: &str) -> Event {
        Event::ResponseDone { response: ResponseInfo { status: status.into(), ..ResponseInfo::default() } }
    }

    fn created() -> Event {
        Event::ResponseCreated { response: ResponseInfo::default() }
    }

    fn timeline(ms: f64) -> Event {
        Event::Timeline { marks: [("first_audio_sent".to_owned(), ms)].into() }
    }

    #[test]
    fn each_utterance_and_each_answer_is_a_line_with_its_milliseconds() {
        let mut captions = Captions::new(false);
        let heard = Event::TranscriptionCompleted { item_id: "u".into(), transcript: "what time is it".into() };
        let events = [heard, created(), delta("It is "), timeline(242.6), delta("noon."), done("completed")];
        let text: String = events.into_iter().map(|event| captions.lines(event)).collect();
        assert_eq!(text, "you       what time is it\nantiphon  It is noon.  [243 ms]\n");
        let events = [created(), delta("One. Two. "), Event::Cleared {}, done("cancelled"), timeline(300.0)];
        let text: String = events.into_iter().map(|event| captions.lines(event)).collect();
        assert_eq!(text, "antiphon  One. Two.  [interrupted]\n          300 ms\n");
        let silence = Event::TranscriptionCompleted { item_id: "u".into(), transcript: " ".into() };
        assert_eq!(captions.lines(silence), "");
    }

    #[test]
    fn on_a_terminal_the_last_words_stay_on_one_line_without_control_characters() {
        let mut captions = Captions::new(true);
        captions.lines(created());
        assert_eq!(captions.lines(delta("a\x1b[31mb\n")), "\r\x1b[Kantiphon  a[31mb");
        let long = captions.lines(delta(&"word ".repeat(40)));
        assert_eq!(long.chars().count(), "\r\x1b[K".len() + 10 + 1 + LIVE_COLUMNS, "{long:?}");
        assert!(long.ends_with("word ") && captions.lines(done("completed")).starts_with("\r\x1b[Kantiphon  a[31mb"));
    }

    #[test]
    fn wide_characters_stay_on_one_line_as_well() {
        let mut captions = Captions::new(true);
        captions.lines(created());
        let half = LIVE_COLUMNS / 2;
        assert_eq!(captions.lines(delta(&"語".repeat(half))), format!("\r\x1b[Kantiphon  {}", "語".repeat(half)));
        assert_eq!(captions.lines(delta("a")), format!("\r\x1b[Kantiphon  …{}a", "語".repeat(half - 1)));
        assert_eq!(captions.lines(delta("b")), format!("\r\x1b[Kantiphon  …{}ab", "語".repeat(half - 1)));
    }
}
