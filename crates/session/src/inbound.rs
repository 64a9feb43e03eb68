//! Messages of the client, on their way to the reducer.

use super::actor::Actor;
use super::inline_audio::with_lengths;
use super::perform::EventPayload;
use super::{AudioMode, translate};
use antiphon_audio::codec::CodecError;
use antiphon_dialog::turn::Edge;
use antiphon_dialog::{Action, Command, Event, Notice};
use antiphon_protocol::frame::MicrophoneFrame;
use antiphon_protocol::{
    AudioFormat, ClientEvent, Content, Incoming, InputItem, Item, ItemBody, ServerEvent, SessionKind, SessionUpdate,
    WireError,
};
use antiphon_types::{SampleRate, Samples};
use tokio::sync::OwnedSemaphorePermit;

/// One message of a client.
pub struct Inbound {
    /// Its content.
    pub payload: InboundPayload,
    /// Its share of the budgets of inbound bytes, returned when it has been processed.
    pub budget: Option<BudgetPermit>,
}

/// A message's share of the budgets of unprocessed bytes. Dropping it returns the share.
pub struct BudgetPermit {
    /// Of its session's budget.
    pub own: OwnedSemaphorePermit,
    /// Of the budget of all sessions.
    pub common: OwnedSemaphorePermit,
}

/// Content of a message. Adapters read it from their wire; the session knows no wire.
#[derive(Clone, Debug, PartialEq)]
pub enum InboundPayload {
    /// An event. Audio in it is in the session's input format.
    Event(Box<Incoming>),
    /// Audio of a microphone, for a session whose audio is not in events: PCM16 at 24 kHz or one Opus packet.
    Audio(MicrophoneFrame),
    /// A message that its adapter could not read. The session sends the error, in the order of the messages.
    Invalid(Box<WireError>),
}

impl From<ClientEvent> for InboundPayload {
    fn from(event: ClientEvent) -> Self {
        Self::Event(Box::new(Incoming { event_id: None, event }))
    }
}

impl From<Result<Incoming, WireError>> for InboundPayload {
    fn from(read: Result<Incoming, WireError>) -> Self {
        match read {
            Ok(event) => Self::Event(Box::new(event)),
            Err(error) => Self::Invalid(Box::new(error)),
        }
    }
}

impl From<Result<MicrophoneFrame, WireError>> for InboundPayload {
    fn from(read: Result<MicrophoneFrame, WireError>) -> Self {
        match read {
            Ok(frame) => Self::Audio(frame),
            Err(error) => Self::Invalid(Box::new(error)),
        }
    }
}

impl Actor {
    pub(super) fn inbound(&mut self, inbound: Inbound) {
        self.n_received += 1;
        self.note_message();
        match inbound.payload {
            InboundPayload::Invalid(error) => self.refuse(*error),
            InboundPayload::Audio(frame) => {
                if let Err(error) = self.frame(frame) {
                    self.refuse(error);
                }
            }
            InboundPayload::Event(event) => {
                let Incoming { event_id, event } = *event;
                if let Err(error) = self.event(event_id.clone(), event) {
                    self.refuse(error.answering(event_id.as_deref()));
                }
            }
        }
    }

    pub(super) fn refuse(&mut self, error: WireError) {
        self.send(None, ServerEvent::Error { error });
    }

    fn frame(&mut self, frame: MicrophoneFrame) -> Result<(), WireError> {
        if self.mode == AudioMode::Events {
            return Err(WireError::binary_frame());
        }
        self.audio_received();
        self.check_room()?;
        let opus = self.mode == AudioMode::Opus;
        let result = self.ingress.push_frame(frame.sequence, frame.offset, frame.payload, opus);
        self.report_audio();
        result.map_err(|error| bad_audio(&error))
    }

    fn event(&mut self, event_id: Option<String>, event: ClientEvent) -> Result<(), WireError> {
        match event {
            ClientEvent::InputAudioAppend { audio } => {
                self.audio_received();
                self.check_room()?;
                let pushed = self.ingress.push(&audio);
                self.report_audio();
                pushed.map_err(|error| bad_audio(&error))
            }
            ClientEvent::InputAudioCommit => {
                self.commit(event_id);
                Ok(())
            }
            ClientEvent::OutputAudioPlayed(report) => {
                self.played(event_id, *report);
                Ok(())
            }
            ClientEvent::ClockPing(ping) => {
                self.clock_ping(ping);
                Ok(())
            }
            ClientEvent::SessionUpdate(update) => self.update(event_id, *update),
            ClientEvent::ResponseCreate(_) if self.session.kind == SessionKind::Transcription => {
                Err(WireError::only_transcribes())
            }
            ClientEvent::ResponseCreate(params) if self.is_framed() && is_foreign(params.format) => {
                Err(framed_format())
            }
            ClientEvent::ResponseCreate(mut params) => {
                self.setup.find_voice(params.voice.as_mut(), self.owner, "response.audio.output.voice")?;
                let tools = params.tools.as_ref().unwrap_or(&self.session.tools);
                let choice = params.tool_choice.as_ref().unwrap_or(&self.session.tool_choice);
                choice.check(tools, "response.tool_choice")?;
                self.check_response_servers(&params)?;
                self.limits.may_respond().map_err(|limit| WireError::rate_limited(limit.0))?;
                self.command(event_id, ClientEvent::ResponseCreate(params))
            }
            other => self.command(event_id, other),
        }
    }

    fn command(&mut self, event_id: Option<String>, mut event: ClientEvent) -> Result<(), WireError> {
        if !self.setup.engines.llm.takes_images() {
            refuse_images(&event)?;
        }
        let inline_audio = self.inline_audio(&mut event)?;
        self.charge_audio(inline_audio.iter().fold(Samples::ZERO, |sum, audio| sum + audio.length()));
        let command = translate::command(event).expect("the other events are handled by the caller");
        let actions = self.decide(Event::Client { event_id, command: with_lengths(command, &inline_audio) });
        self.perform(actions, EventPayload { inline_audio, ..EventPayload::default() });
        Ok(())
    }

    /// Refuses audio where the client commits and has left too much speech uncommitted.
    fn check_room(&self) -> Result<(), WireError> {
        let limit = self.max_utterance();
        if self.ingress.is_manual() && self.ingress.utterance_length() >= limit {
            return Err(WireError::buffer_full(limit.duration(SampleRate::HZ_16000)));
        }
        Ok(())
    }

    fn audio_received(&mut self) {
        self.last_audio = self.now();
    }

    fn commit(&mut self, event_id: Option<String>) {
        self.report_all_audio();
        let buffer_start = self.ingress.buffer_start();
        let buffered = self.ingress.buffered();
        self.step(Event::Client { event_id, command: Command::Commit { buffer_start, buffered } });
    }

    /// Empties the input buffer and resets the turn detector: speech under way belonged to the buffer.
    pub(super) fn restart_buffer(&mut self) {
        if let Some(Edge::Retracted) = self.ingress.restart_buffer() {
            self.step(Event::VoiceRetracted);
        }
    }

    fn update(&mut self, event_id: Option<String>, mut update: SessionUpdate) -> Result<(), WireError> {
        if update.kind != self.session.kind && self.kind_is_fixed {
            return Err(WireError::wrong_session_kind(self.session.kind));
        }
        if self.is_framed() && (is_foreign(update.input.format) || is_foreign(update.output.format)) {
            return Err(framed_format());
        }
        self.setup.find_voice(update.output.voice.as_mut(), self.owner, "session.audio.output.voice")?;
        self.setup.check_language(&update)?;
        let mut next = self.session.clone();
        next.apply(update);
        self.setup.check_tools(&self.session.tools, &mut next)?;
        let command = Command::UpdateSettings(Box::new(self.setup.dialog_settings(&next)));
        let actions = self.decide(Event::Client { event_id, command });
        if !is_refused(&actions) {
            self.ingress.set(translate::format(next.audio.input.format), self.setup.turns(&next));
            self.ingress.reduce_noise(next.audio.input.noise_reduction.as_ref().and_then(translate::noise_reduction));
            self.session = next;
            self.kind_is_fixed = true;
            self.links.keep(&self.dialog.settings().servers);
        }
        self.perform(actions, EventPayload::default());
        Ok(())
    }
}

/// Refuses images in an event's items: the model takes none.
fn refuse_images(event: &ClientEvent) -> Result<(), WireError> {
    let refuse = |item: &Item, path: &str| {
        let ItemBody::Message { content, .. } = &item.body else { return Ok(()) };
        let Some(n) = content.iter().position(|part| matches!(part, Content::InputImage { .. })) else { return Ok(()) };
        let message = "Invalid value: 'input_image'. This server's language model takes no images; describe them in \
                       'input_text'.";
        Err(WireError::invalid("invalid_value", message, Some(&format!("{path}.content[{n}].type"))))
    };
    match event {
        ClientEvent::ItemCreate { item, .. } => refuse(item, "item"),
        ClientEvent::ResponseCreate(params) => {
            params.input.iter().flatten().enumerate().try_for_each(|(n, entry)| match entry {
                InputItem::Item(item) => refuse(item, &format!("response.input[{n}]")),
                InputItem::Reference(_) => Ok(()),
            })
        }
        _ => Ok(()),
    }
}

fn is_refused(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Notify(Notice::Refused { .. })))
}

fn is_foreign(format: Option<AudioFormat>) -> bool {
    format.is_some_and(|format| format != AudioFormat::Pcm)
}

fn framed_format() -> WireError {
    let message = "Binary audio frames carry 'audio/pcm' or Opus, as the connection asked; G.711 needs a connection without '?audio='.";
    WireError::invalid("invalid_value", message, Some("session.audio.output.format"))
}

fn bad_audio(error: &CodecError) -> WireError {
    WireError::invalid("invalid_value", format!("Invalid 'audio': {error}."), Some("audio"))
}
