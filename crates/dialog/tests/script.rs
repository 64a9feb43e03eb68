//! Runs a text script through the reducer. A line that begins with a number is an event at that millisecond; the lines
//! below it, indented, are the actions it must give. Items are named i1, i2.. and responses r1, r2.. as they appear.

use antiphon_dialog::*;
use antiphon_types::Format;
use antiphon_types::chat::{Finish, Message, Tool};
use antiphon_types::{ItemId, ResponseId, SampleRate, Samples, Timestamp};
use std::fmt::Write;
use std::time::Duration;

/// The dialog as it is read back from a snapshot: what follows must not differ.
pub fn restored(dialog: &Dialog) -> Dialog {
    let written = serde_json::to_string(dialog).expect("a dialog is JSON");
    let restored: Dialog = serde_json::from_str(&written).expect("what was written can be read");
    assert_eq!(format!("{restored:?}"), format!("{dialog:?}"), "a dialog comes back whole");
    restored
}

/// Checks a script in a conversation with server turn detection.
#[track_caller]
pub fn check(script: &str) {
    check_with(Runner::new(PlaybackControl::Client, Some(AUTO)), script);
}

/// A transcript, behind its language in brackets where the recognizer names it.
fn in_language(transcript: &str) -> (String, Option<String>) {
    match transcript.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((language, text)) => (text.into(), Some(language.into())),
        None => (transcript.into(), None),
    }
}

/// The language and the voice of a response that follows the language heard.
fn spoken_as(settings: &ResponseSettings) -> String {
    settings.language.as_ref().map(|language| format!(" in {language} by {}", settings.voice)).unwrap_or_default()
}

/// Checks a script in the given conversation.
#[track_caller]
pub fn check_with(mut runner: Runner, script: &str) {
    let lines: Vec<&str> = script.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut got = String::new();
    for line in lines.iter().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())) {
        writeln!(got, "{line}").expect("a string takes all");
        for action in runner.run(line) {
            writeln!(got, "{action}").expect("a string takes all");
        }
    }
    let expect = lines.join("\n");
    assert_eq!(got.trim_end(), expect, "\n--- got:\n{got}\n--- expected:\n{expect}");
}

/// A function without a description.
pub fn function(name: &str) -> Tool {
    Tool { name: name.into(), description: String::new(), parameters: serde_json::json!({}).into() }
}

/// Turn detection that answers and interrupts.
pub const AUTO: TurnDetection = TurnDetection {
    create_response: true,
    interrupt_response: true,
    ignore_backchannels: false,
    speaker_lock: false,
    idle_timeout: None,
};

/// The same where a backchannel does not interrupt.
pub const PATIENT: TurnDetection = TurnDetection { ignore_backchannels: true, ..AUTO };

/// Turn detection that is locked to the user's voice.
pub const LOCKED: TurnDetection = TurnDetection { speaker_lock: true, ..AUTO };

/// A conversation under test.
#[derive(Clone)]
pub struct Runner {
    pub dialog: Dialog,
    items: Vec<ItemId>,
    responses: Vec<ResponseId>,
    /// Speculative responses have no names until they are released.
    names_only_seen: bool,
    /// After each event the conversation goes on with the dialog that is read back from a snapshot.
    restores: bool,
}

impl Runner {
    pub fn new(listener: PlaybackControl, turn_detection: Option<TurnDetection>) -> Self {
        let settings = Settings {
            instructions: "Be brief.".into(),
            modality: Modality::Audio,
            voice: "slt".into(),
            speed: 1.0,
            voice_instructions: String::new(),
            output_format: Format::Pcm16,
            max_output_tokens: None,
            max_answer: None,
            tools: ["f", "late", "look", "time", "weather"].map(function).into(),
            tool_choice: Default::default(),
            servers: Vec::new(),
            server_choice: None,
            turn_detection,
            filler_after: None,
            language_voices: None,
            transcripts: true,
            live_transcripts: false,
            memory: Memory {
                budget: 8_000,
                conversation: None,
                truncation: Truncation::Oldest { keep: 1.0 },
                notes_interruptions: false,
            },
        };
        Self {
            dialog: Dialog::new(settings, listener, 1),
            items: Vec::new(),
            responses: Vec::new(),
            names_only_seen: false,
            restores: true,
        }
    }

    /// The same, with speculative responses.
    pub fn speculating(mut self, max_per_turn: u32, budget: f64) -> Self {
        self.dialog = self.dialog.with_speculation(Some(Speculation { max_per_turn, budget }));
        self
    }

    /// The same, where a speculative response has no name until it is released.
    pub fn naming_what_is_seen(self) -> Self {
        Self { names_only_seen: true, ..self }
    }

    /// The same, without snapshots, for a test of thousands of conversations.
    pub fn without_snapshots(self) -> Self {
        Self { restores: false, ..self }
    }

    /// The client wants no transcripts from now on.
    pub fn silence_transcripts(&mut self) {
        self.set(Settings { transcripts: false, ..self.dialog.settings().clone() });
    }

    /// The session transcribes.
    pub fn caption_live(&mut self) {
        self.set(Settings { live_transcripts: true, ..self.dialog.settings().clone() });
    }

    /// Other turn detection from now on.
    pub fn detect(&mut self, detection: TurnDetection) {
        self.set(Settings { turn_detection: Some(detection), ..self.dialog.settings().clone() });
    }

    /// A filler is spoken where a turn is silent for longer.
    pub fn fill_after(&mut self, after: Duration) {
        self.set(Settings { filler_after: Some(after), ..self.dialog.settings().clone() });
    }

    /// The model reads what of a reply that was cut off was not heard.
    pub fn note_interruptions(&mut self) {
        let settings = self.dialog.settings().clone();
        let memory = Memory { notes_interruptions: true, ..settings.memory };
        self.set(Settings { memory, ..settings });
    }

    /// Replies follow the language heard, with these voices by language.
    pub fn follow_language(&mut self, voices: &[(&str, &str)]) {
        let voices = voices.iter().map(|(language, voice)| ((*language).into(), (*voice).into())).collect();
        self.set(Settings { language_voices: Some(voices), ..self.dialog.settings().clone() });
    }

    /// Other turn detection, or none, from this millisecond on.
    pub fn set_detection(&mut self, at_ms: &str, turn_detection: Option<TurnDetection>) {
        let at = Timestamp::from_ms(at_ms.parse().expect("milliseconds"));
        self.set_at(at, Settings { turn_detection, ..self.dialog.settings().clone() });
    }

    pub fn set(&mut self, settings: Settings) {
        self.set_at(Timestamp::ZERO, settings);
    }

    fn set_at(&mut self, at: Timestamp, settings: Settings) {
        let command = Command::UpdateSettings(Box::new(settings));
        self.step(at, Event::Client { event_id: None, command });
    }

    /// Gives the dialog an event.
    pub fn step(&mut self, now: Timestamp, event: Event) -> Vec<Action> {
        let actions = self.dialog.step(now, event);
        if self.restores {
            self.dialog = restored(&self.dialog);
        }
        actions
    }

    /// Runs one event line and gives its actions, rendered.
    pub fn run(&mut self, line: &str) -> Vec<String> {
        let (at, rest) = line.split_once(' ').expect("time and event");
        let now = Timestamp::from_ms(at.parse().expect("milliseconds"));
        let (name, argument) = rest.split_once(' ').unwrap_or((rest, ""));
        if name == "history" {
            return vec![self.history()];
        }
        let event = self.event(at, name, argument);
        let actions = self.step(now, event);
        actions.iter().map(|action| self.render(action)).collect()
    }

    /// Runs one event line and gives what the model is asked, as Rust prints it.
    pub fn asked(&mut self, line: &str) -> String {
        let (at, rest) = line.split_once(' ').expect("time and event");
        let (name, argument) = rest.split_once(' ').unwrap_or((rest, ""));
        let event = self.event(at, name, argument);
        let actions = self.step(Timestamp::from_ms(at.parse().expect("milliseconds")), event);
        let asked = actions.iter().find_map(|action| match action {
            Action::StartResponse(work) => Some(format!("{:?}", work.chat.messages)),
            _ => None,
        });
        asked.expect("the model is asked")
    }

    fn event(&self, at: &str, name: &str, argument: &str) -> Event {
        let (first, rest) = argument.split_once(' ').unwrap_or((argument, ""));
        let at16 = |ms: &str| Samples::from_ms(ms.parse().expect("milliseconds"), SampleRate::HZ_16000);
        let at24 = |ms: &str| Samples::from_ms(ms.parse().expect("milliseconds"), SampleRate::HZ_24000);
        let client = |command| Event::Client { event_id: Some("evt".into()), command };
        match name {
            // A microphone that sends all the time.
            "tick" if first.is_empty() => Event::Tick { position: at16(at) },
            "tick" => Event::Tick { position: at16(first) },
            "away" => Event::Disconnected,
            "back" => Event::Reconnected,
            "line_held" => Event::LineHeld,
            "line_resumed" => Event::LineResumed,
            "onset" => Event::VoiceOnset { position: at16(if first.is_empty() { "0" } else { first }) },
            "retracted" => Event::VoiceRetracted,
            "started" => Event::SpeechStarted { audio_start: at16(first) },
            "stopped" => Event::SpeechStopped { audio_end: at16(first) },
            "paused" => Event::Paused,
            "resumed" => Event::Resumed,
            "provisional" | "provisional_unsure" => {
                let (text, language) = in_language(rest);
                let n_sure_words = name.ends_with("_unsure").then_some(0);
                Event::ProvisionalTranscript { item: self.item(first), text, language, n_sure_words }
            }
            "overlap" => Event::OverlapJudged { item: self.item(first), claim: rest.parse().expect("a probability") },
            "enrolled" => Event::SpeakerEnrolled,
            // The similarity, and the compared sound in ms.
            "compared" => {
                let (similarity, voiced) = rest.split_once(' ').unwrap_or((rest, "700"));
                let similarity = similarity.parse().expect("a similarity");
                let same_from = 0.6;
                let other_below = 0.4;
                let quieter_db = 0.0;
                let voiced = at16(voiced);
                let heard = SpeakerComparison { similarity, same_from, other_below, quieter_db, far_db: None, voiced };
                Event::SpeakerCompared { item: self.item(first), heard }
            }
            "partial" => self.partial(first, rest, None),
            // Of a recognizer that is sure of all words.
            "sure" => self.partial(first, rest, Some(u32::MAX)),
            "unsure" => self.partial(first, rest, Some(0)),
            "heard" | "heard_unsure" => {
                let (text, language) = in_language(rest);
                let n_sure_words = name.ends_with("_unsure").then_some(0);
                Event::Transcribed { item: self.item(first), result: Ok(text), language, n_sure_words }
            }
            "unheard" => {
                let item = self.item(first);
                Event::Transcribed { item, result: Err(rest.into()), language: None, n_sure_words: None }
            }
            "text" => Event::Text { response: self.response(first), text: format!("{rest} ") },
            "withdrawn" => Event::TextWithdrawn { response: self.response(first) },
            "loading" => {
                let limit = Duration::from_secs(rest.parse().expect("seconds"));
                Event::ModelLoading { response: self.response(first), limit }
            }
            // The sound, and the silence at its end.
            "made" => {
                let (n, quiet) = rest.split_once(' ').unwrap_or((rest, "0"));
                Event::AudioGenerated { response: self.response(first), n: at24(n), quiet: at24(quiet) }
            }
            "fills" => Event::FillerStarted { response: self.response(first), text: rest.into() },
            "filled" => Event::FillerEnded { response: self.response(first) },
            "sent" => Event::AudioSent { item: self.item(first), n: at24(rest) },
            "call" => {
                let mut words = rest.splitn(3, ' ');
                let index = words.next().expect("index").parse().expect("a number");
                let name = words.next().unwrap_or_default().to_owned();
                let arguments = words.next().unwrap_or_default().to_owned();
                let call_id = format!("call_{index}");
                Event::ToolCall(ToolCallDelta { response: self.response(first), index, call_id, name, arguments })
            }
            "finished" => Event::ResponseFinished { response: self.response(first), outcome: Ok((Finish::Stop, None)) },
            "broke" => Event::ResponseFinished { response: self.response(first), outcome: Err(rest.into()) },
            "commit" => client(Command::Commit { buffer_start: Samples::ZERO, buffered: at16(first) }),
            "clear" => client(Command::ClearInput),
            "clear_output" => client(Command::ClearOutput),
            "played" | "playback_ended" => client(Command::Played {
                item: self.item(first),
                audio_end_ms: rest.parse().expect("ms"),
                ago: Duration::ZERO,
                stopped: name == "playback_ended",
            }),
            "truncate" => client(Command::TruncateItem {
                item: self.item(first),
                content_index: 0,
                audio_end_ms: rest.parse().expect("ms"),
            }),
            "delete" => client(Command::DeleteItem(self.item(first))),
            "retrieve" => client(Command::RetrieveItem(self.item(first))),
            "say" => client(Command::CreateItem { item: written(argument), place: ItemPosition::Last }),
            "parts" => {
                client(Command::CreateItem { item: empty(first.parse().expect("how many")), place: ItemPosition::Last })
            }
            "result" => client(Command::CreateItem { item: result(first, rest), place: ItemPosition::Last }),
            "respond" => client(Command::CreateResponse(Box::default())),
            "respond_by" => {
                let request = ResponseRequest { voice: Some(first.into()), ..ResponseRequest::default() };
                client(Command::CreateResponse(Box::new(request)))
            }
            "aside" => {
                let input = Some(vec![InputEntry::Item(written(argument))]);
                client(Command::CreateResponse(Box::new(ResponseRequest {
                    out_of_band: true,
                    input,
                    ..Default::default()
                })))
            }
            "voice" => {
                let settings = Settings { voice: first.into(), ..self.dialog.settings().clone() };
                client(Command::UpdateSettings(Box::new(settings)))
            }
            "cancel" if first.is_empty() => client(Command::CancelResponse(None)),
            "cancel" => client(Command::CancelResponse(Some(self.response(first)))),
            other => panic!("no such event: {other}"),
        }
    }

    fn partial(&self, item: &str, text: &str, n_sure_words: Option<u32>) -> Event {
        Event::Partial { item: self.item(item), text: text.into(), n_sure_words, n_settled_words: 0 }
    }

    fn item(&self, name: &str) -> ItemId {
        let index = name.strip_prefix('i').and_then(|n| n.parse::<usize>().ok());
        index.and_then(|n| self.items.get(n - 1)).cloned().unwrap_or_else(|| name.into())
    }

    fn response(&self, name: &str) -> ResponseId {
        let index = name.strip_prefix('r').and_then(|n| n.parse::<usize>().ok());
        index.and_then(|n| self.responses.get(n - 1)).cloned().unwrap_or_else(|| name.into())
    }

    fn i(&mut self, id: &ItemId) -> String {
        let at = self.items.iter().position(|known| known == id).unwrap_or_else(|| {
            self.items.push(id.clone());
            self.items.len() - 1
        });
        format!("i{}", at + 1)
    }

    fn r(&mut self, id: &ResponseId) -> String {
        let at = self.responses.iter().position(|known| known == id).unwrap_or_else(|| {
            self.responses.push(id.clone());
            self.responses.len() - 1
        });
        format!("r{}", at + 1)
    }

    fn render(&mut self, action: &Action) -> String {
        match action {
            Action::OpenUtterance { item, .. } => format!("open {}", self.i(item)),
            Action::CloseUtterance { item, .. } => format!("close {}", self.i(item)),
            Action::Transcribe(item) => format!("transcribe {}", self.i(item)),
            Action::DropUtterance(item) => format!("drop {}", self.i(item)),
            Action::LearnSpeaker(item) => format!("learn {}", self.i(item)),
            Action::ClearInput => "clear input".into(),
            Action::StartResponse(work) => {
                format!("start {} {}{}", self.r(&work.response), work.turn, spoken_as(&work.settings))
            }
            Action::TranscribePartially(item) => format!("transcribe partially {}", self.i(item)),
            Action::TranscribeProvisionally(item) => format!("transcribe provisionally {}", self.i(item)),
            Action::StartSpeculative(_) if self.names_only_seen => "speculate".into(),
            Action::DropSpeculative { .. } if self.names_only_seen => "discard".into(),
            Action::StartSpeculative(work) => {
                let said = work.chat.messages.last().map(|message| match message {
                    Message::User(text) => text.as_str(),
                    _ => "?",
                });
                let said = format!("{:?}", said.unwrap_or_default());
                format!("speculate {} on {said}{}", self.r(&work.response), spoken_as(&work.settings))
            }
            Action::ReleaseSpeculative(id) => format!("release {}", self.r(id)),
            Action::DropSpeculative { response, outcome, wasted } => {
                format!("discard {} {} after {} ms", self.r(response), outcome.as_str(), wasted.as_millis())
            }
            Action::StopResponse(id) => format!("stop {}", self.r(id)),
            Action::ListTools { item, .. } => format!("list {}", self.i(item)),
            Action::CallRemote { item, call } => format!("call {} {}({})", self.i(item), call.name, call.arguments),
            Action::StopRemote(item) => format!("stop {}", self.i(item)),
            Action::Hold => "hold".into(),
            Action::Release { .. } => "release".into(),
            Action::Flush(id) => format!("flush {}", self.r(id)),
            Action::SpeakFiller { response, settings } => {
                format!("filler {}{}", self.r(response), spoken_as(settings))
            }
            Action::Notify(notice) => format!("< {}", self.notice(notice)),
        }
    }

    fn notice(&mut self, notice: &Notice) -> String {
        let ms16 = |at: &Samples| at.as_ms(SampleRate::HZ_16000);
        match notice {
            Notice::SpeechStarted { item, audio_start } => {
                format!("speech_started {} {}", self.i(item), ms16(audio_start))
            }
            Notice::SpeechStopped { item, audio_end } => format!("speech_stopped {} {}", self.i(item), ms16(audio_end)),
            Notice::Committed { item, previous } => {
                let previous = previous.as_ref().map(|id| format!(" after {}", self.i(id))).unwrap_or_default();
                format!("committed {}{previous}", self.i(item))
            }
            Notice::Backchannel { text, audio_start, audio_end } => {
                format!("backchannel {text:?} {} {}", ms16(audio_start), ms16(audio_end))
            }
            Notice::SpeechIgnored { similarity, audio_start, audio_end, .. } => {
                format!("ignored {similarity} {} {}", ms16(audio_start), ms16(audio_end))
            }
            Notice::IdleTimeout { item, audio_start, audio_end } => {
                format!("idle {} {} {}", self.i(item), ms16(audio_start), ms16(audio_end))
            }
            Notice::InputCleared => "input_cleared".into(),
            Notice::ItemAdded { item, .. } => format!("item_added {}", self.i(&item.id)),
            Notice::ItemDone { item, .. } => format!("item_done {} {:?}", self.i(&item.id), item.status),
            Notice::ItemDeleted(id) => format!("item_deleted {}", self.i(id)),
            Notice::ItemRetrieved(item) => format!("item_retrieved {}", self.i(&item.id)),
            Notice::ItemTruncated { item, audio_end_ms, .. } => format!("truncated {} {audio_end_ms}", self.i(item)),
            Notice::TranscriptDelta { item, delta, .. } => format!("transcript_delta {} {delta:?}", self.i(item)),
            Notice::TranscriptDraft { item, text, .. } => format!("transcript_draft {} {text:?}", self.i(item)),
            Notice::Transcript { item, text, .. } => format!("transcript {} {text:?}", self.i(item)),
            Notice::TranscriptFailed { item, failure, .. } => {
                format!("transcript_failed {} {:?}", self.i(item), failure.message())
            }
            Notice::SettingsUpdated => "settings_updated".into(),
            Notice::ResponseCreated(view) => format!("response_created {}", self.r(&view.id)),
            Notice::ResponseDone(ResponseView { id, status: ResponseStatus::Failed(failure), .. }) => {
                format!("response_done {} Failed({:?})", self.r(id), failure.message())
            }
            Notice::ResponseDone(view) => format!("response_done {} {:?}", self.r(&view.id), view.status),
            Notice::Output { response, item, change, .. } => {
                let response = self.r(response);
                let item = self.i(item);
                match change {
                    OutputChange::Added(_) => format!("output_added {response} {item}"),
                    OutputChange::Done(_) => format!("output_done {response} {item}"),
                    OutputChange::ArgumentsDone { name, arguments, .. } => {
                        format!("arguments_done {response} {item} {name}({arguments})")
                    }
                    other => format!("{response} {item} {other:?}"),
                }
            }
            Notice::Listing { item, progress } => format!("listing {} {progress:?}", self.i(item)),
            Notice::RemoteProgress { item, progress } => format!("remote {} {progress:?}", self.i(item)),
            Notice::Held { item, .. } => format!("held {}", self.i(item)),
            Notice::Released { item, .. } => format!("released {}", self.i(item)),
            Notice::Refused { reason: Refusal::ResponseActive(id), .. } => format!("refused: {} is active", self.r(id)),
            Notice::InputCut { response, tokens } => format!("input_cut {} {tokens}", self.r(response)),
            Notice::ModelLoading { response, limit } => {
                format!("model_loading {} {}", self.r(response), limit.as_secs())
            }
            Notice::ToolRoundsSpent { response, rounds } => format!("tool_rounds_spent {} {rounds}", self.r(response)),
            Notice::CallsRefused { response, n, again } => {
                format!("calls_refused {} {n}{}", self.r(response), if *again { " again" } else { "" })
            }
            Notice::Refused { reason, .. } => format!("refused {reason:?}"),
        }
    }

    /// What the model would read now.
    pub fn history(&mut self) -> String {
        let mut dialog = self.dialog.clone();
        let aside = ResponseRequest { out_of_band: true, ..Default::default() };
        let event = Event::Client { event_id: None, command: Command::CreateResponse(Box::new(aside)) };
        let actions = dialog.step(Timestamp::from_ms(1_000_000), event);
        let work = actions.into_iter().find_map(|action| match action {
            Action::StartResponse(work) => Some(work),
            _ => None,
        });
        let messages = work.expect("nothing is awaited").chat.messages;
        let lines = messages.iter().skip(1).map(|message| match message {
            Message::System(text) => format!("system: {text}"),
            Message::User(text) => format!("user: {text}"),
            Message::UserParts(parts) => format!("user: {parts:?}"),
            Message::Assistant { text, tool_calls } if tool_calls.is_empty() => format!("assistant: {text}"),
            Message::Assistant { text, tool_calls } => {
                let names: Vec<_> = tool_calls.iter().map(|call| call.name.as_str()).collect();
                format!("assistant: {text} calls {}", names.join(","))
            }
            Message::Tool { output, .. } => format!("tool: {output}"),
        });
        lines.collect::<Vec<_>>().join(" | ")
    }
}

fn written(text: &str) -> Item {
    let content = vec![Content::InputText(text.into())];
    Item { id: "".into(), status: ItemStatus::Completed, kind: ItemKind::Message { role: Role::User, content } }
}

/// A message of `n_parts` parts without a word.
fn empty(n_parts: usize) -> Item {
    let content = vec![Content::InputText(String::new()); n_parts];
    Item { id: "".into(), status: ItemStatus::Completed, kind: ItemKind::Message { role: Role::User, content } }
}

fn result(call_id: &str, output: &str) -> Item {
    let kind = ItemKind::FunctionOutput { call_id: call_id.into(), output: output.into() };
    Item { id: "".into(), status: ItemStatus::Completed, kind }
}
