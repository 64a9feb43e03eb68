//! The reducer's state and its entry point.

use super::calls::ToolRounds;
use super::captions::Partial;
use super::filler::Filler;
use super::hold::ActiveHold;
use super::listening::{TurnPhase, UserTurn};
use super::remote::Remote;
use super::responding::Response;
use super::speculation::SpeculationState;
use super::{Action, Event, History, Notice, Settings, Speculation};
use antiphon_types::mcp::DeclaredServer;
use antiphon_types::{IdMint, ItemId, ResponseId, Samples, Timestamp, TurnId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Who controls the playback of reply audio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlaybackControl {
    /// The client, which plays from its own buffer as in the GA protocol: audio that was sent will be heard.
    Client,
    /// The server: the client stops and drops its queue on request.
    Server,
}

/// One conversation's dialog.
///
/// Its serialized form is its whole state between two steps, in a snapshot of a session: the dialog that is read back gives the
/// same actions to the same events. Keys of remote servers are written as digests; [`Dialog::with_servers`] puts them back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Dialog {
    pub(super) settings: Settings,
    pub(super) history: History,
    pub(super) playback: PlaybackControl,
    pub(super) ids: IdMint,
    pub(super) listening: UserTurn,
    pub(super) speculation: SpeculationState,
    /// Responses under way, out-of-band ones among them.
    pub(super) responses: BTreeMap<ResponseId, Response>,
    /// The conversation's response under way.
    pub(super) active: Option<ResponseId>,
    pub(super) held: Option<ActiveHold>,
    /// When the last response of the conversation ended, unless the user has spoken since.
    pub(super) answered: Option<Timestamp>,
    /// The client is disconnected.
    pub(super) away: bool,
    /// The user's line is on hold.
    #[serde(default)]
    pub(super) line_held: bool,
    pub(super) remote: Remote,
    #[serde(default)]
    pub(super) tool_rounds: ToolRounds,
    #[serde(default)]
    pub(super) filler: Filler,
    /// The language heard last, by its code, where replies follow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) language: Option<String>,
    /// The user's voice is known, where the session is locked to it.
    #[serde(default)]
    pub(super) speaker_enrolled: bool,
    pub(super) now: Timestamp,
    /// Empty between two steps.
    #[serde(skip)]
    pub(super) actions: Vec<Action>,
}

impl Dialog {
    /// A conversation without items. The same seed mints the same identifiers.
    pub fn new(settings: Settings, playback: PlaybackControl, seed: u64) -> Self {
        Self {
            settings,
            history: History::default(),
            playback,
            ids: IdMint::new(seed),
            listening: UserTurn::default(),
            speculation: SpeculationState::new(None),
            responses: BTreeMap::new(),
            active: None,
            held: None,
            answered: None,
            away: false,
            line_held: false,
            remote: Remote::default(),
            tool_rounds: ToolRounds::default(),
            filler: Filler::default(),
            language: None,
            speaker_enrolled: false,
            now: Timestamp::ZERO,
            actions: Vec::new(),
        }
    }

    /// The same, where the dialog responds to remote calls itself once the client has requested no response for
    /// `follow_up_after`.
    pub fn with_follow_up_after(mut self, follow_up_after: Option<Duration>) -> Self {
        self.remote.follow_up_after = follow_up_after;
        self
    }

    /// The same with at most `most` rounds of calls in a turn: after them, the model is asked without tools.
    pub fn with_max_tool_rounds(mut self, most: u32) -> Self {
        self.tool_rounds = ToolRounds::of_at_most(most);
        self
    }

    /// The same, with speculative responses at pauses within these limits.
    pub fn with_speculation(mut self, limits: Option<Speculation>) -> Self {
        self.speculation = SpeculationState::new(limits);
        self
    }

    /// The same with these servers in the place of those of the same label, which were read back without their keys.
    pub fn with_servers(mut self, declared: &[DeclaredServer]) -> Self {
        self.settings.servers.iter_mut().for_each(|own| put_back(own, declared));
        self.remote.put_back(declared);
        self
    }

    /// The same with other identifiers from here on; see [`IdMint::fork`].
    pub fn with_forked_ids(mut self, with: u64) -> Self {
        self.ids.fork(with);
        self
    }

    /// Processes one event and returns the actions, in order. An event whose item or response is not current has none.
    pub fn step(&mut self, now: Timestamp, event: Event) -> Vec<Action> {
        self.now = now;
        match event {
            Event::Tick { position } => self.tick(position),
            Event::Disconnected => self.away = true,
            Event::Reconnected => self.back(),
            Event::LineHeld => self.line_held = true,
            Event::LineResumed => self.line_resumed(),
            Event::VoiceOnset { position } => self.voice_onset(position),
            Event::VoiceRetracted => self.voice_retracted(),
            Event::SpeechStarted { audio_start } => self.speech_started(audio_start),
            Event::SpeechStopped { audio_end } => self.speech_stopped(audio_end),
            Event::Paused => self.paused(),
            Event::Resumed => self.resumed(),
            Event::ProvisionalTranscript { item, text, language, n_sure_words } => {
                self.provisional_transcript(&item, &text, language.as_deref(), n_sure_words);
            }
            Event::OverlapJudged { item, claim } => self.overlap_judged(&item, claim),
            Event::SpeakerCompared { item, heard } => self.speaker_compared(&item, heard),
            Event::SpeakerEnrolled => self.enrolled(),
            Event::Partial { item, text, n_sure_words, n_settled_words } => {
                self.partial(item, &Partial { text: &text, n_sure_words, n_settled_words });
            }
            Event::Transcribed { item, result, language, n_sure_words } => {
                self.transcribed(&item, result, language, n_sure_words);
            }
            Event::Text { response, text } => self.text(&response, &text),
            Event::TextWithdrawn { response } => self.text_withdrawn(&response),
            Event::ModelLoading { response, limit } => {
                if self.responses.contains_key(&response) {
                    self.notify(Notice::ModelLoading { response, limit });
                }
            }
            Event::ToolCall(delta) => self.tool_call(delta),
            Event::AudioGenerated { response, n, quiet } => self.audio_made(&response, n, quiet),
            Event::FillerStarted { response, text } => self.filler_started(&response, &text),
            Event::FillerEnded { response } => self.filler_ended(&response),
            Event::AudioSent { item, n } => {
                if let Some(spoken) = self.history.spoken_mut(&item) {
                    spoken.sent(now, n);
                }
            }
            Event::ToolsListed { item, result } => self.listed(item, result),
            Event::RemoteCallEnded { item, result } => self.called(&item, result),
            Event::ResponseFinished { response, outcome } => self.finished(&response, outcome),
            Event::Client { event_id, command } => self.command(event_id, command),
        }
        std::mem::take(&mut self.actions)
    }

    /// When [`Event::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let hold = self.hold_due();
        hold.into_iter().chain(self.follow_up_due()).chain(self.idle_deadline()).chain(self.filler_due()).min()
    }

    /// Whether nothing is under way that only this process can finish: an utterance, a transcript, a response, a call. What is
    /// planned for later (a follow-up, the idle timeout) is part of the state.
    pub fn is_quiet(&self) -> bool {
        self.responses.is_empty()
            && self.listening.phase() == TurnPhase::Idle
            && self.held.is_none()
            && !self.remote.is_working()
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The conversation.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The response of the conversation under way.
    pub fn active(&self) -> Option<&ResponseId> {
        self.active.as_ref()
    }

    /// The user's turn under way, or the last one.
    pub fn turn(&self) -> TurnId {
        self.listening.turn
    }

    /// The item that a response's audio belongs to, and its output index. `None` once the response is stopped.
    pub fn speaking_item(&self, response: &ResponseId) -> Option<(ItemId, u32)> {
        self.responses.get(response)?.speaking_item()
    }

    fn tick(&mut self, position: Samples) {
        if self.hold_due().is_some_and(|due| self.now >= due) {
            self.hold_elapsed(position);
        }
        if self.follow_up_due().is_some_and(|due| self.now >= due) {
            self.follow_up();
        }
        if self.filler_due().is_some_and(|due| self.now >= due) {
            self.request_filler();
        }
        if self.idle_deadline().is_some_and(|deadline| self.now >= deadline) {
            self.prompt_user(position);
        }
    }

    pub(super) fn notify(&mut self, notice: Notice) {
        self.actions.push(Action::Notify(notice));
    }

    pub(super) fn mint_item(&mut self) -> ItemId {
        self.ids.next("item").into()
    }
}

/// Replaces a declaration by the one of the same label.
pub(super) fn put_back(own: &mut DeclaredServer, declared: &[DeclaredServer]) {
    if let Some(complete) = declared.iter().find(|complete| complete.server.label == own.server.label) {
        own.server.clone_from(&complete.server);
    }
}
