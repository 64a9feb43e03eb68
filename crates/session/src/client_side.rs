//! The client's side of a session: what the client sees of it, and whether the client is there.
//!
//! It holds the session object, the ids of events, the log that everything leaves by, the frames that wait for their time, the
//! client's clock and limits, and the session's end by the clock. The actor has it check what the client asks for, and gives it the
//! reducer's notices and the reply's audio; it sends them in order and returns events for the reducer. It decides nothing about the
//! conversation.

use super::clock::ClientClock;
use super::egress::{About, Close, Egress, SentAudio};
use super::expiry::SessionExpiry;
use super::inbound::{check_packet_format, refuse_images};
use super::inline_audio::{self, InlineAudio};
use super::limits::SessionLimits;
use super::output::{AudioMode, Output, OutputEvent};
use super::playback::{DueOutput, Playback};
use super::project::{Projector, TranscriptLogprobs};
use super::remote;
use super::setup::Setup;
use super::snapshot::{SNAPSHOT_SCHEMA, Snapshot, StoredInput, StoredLog};
use super::translate;
use super::voice::Packet;
use antiphon_dialog::{Dialog, Event, Notice};
use antiphon_protocol::{
    ClientEvent, ClockPing, Conversation, Dialect, PartAt, ResponseParams, ServerEvent, Session, SessionKind,
    SessionNotice, SessionUpdate, WireError,
};
use antiphon_types::{IdMint, ItemId, KeyId, ResponseId, Samples, Timestamp};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::time::Instant;

/// A client that receives nothing for this long while messages wait for it is closed.
const STUCK: Duration = Duration::from_secs(10);
/// The longest time for which a client's socket is not read. A client that is further ahead is closed. It covers the longest
/// message there may be at the default limits: 16 MiB of base64 are 25 minutes of G.711.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// What it begins with.
pub(super) struct ClientStart {
    /// The API key the session belongs to.
    pub(super) owner: Option<KeyId>,
    pub(super) mode: AudioMode,
    pub(super) dialect: Dialect,
    pub(super) session: Session,
    pub(super) kind_is_fixed: bool,
    /// The conversation's id.
    pub(super) conversation: String,
    pub(super) ids: IdMint,
    pub(super) egress: Egress,
    pub(super) playback: Playback,
    pub(super) expiry: SessionExpiry,
    pub(super) client_connected: bool,
    pub(super) n_received: u64,
    pub(super) went_back_to: Option<u64>,
    pub(super) limits: Arc<dyn SessionLimits>,
}

/// See the module.
pub(super) struct ClientSide {
    setup: Arc<Setup>,
    owner: Option<KeyId>,
    mode: AudioMode,
    dialect: Dialect,
    /// The whole session object, as the client last saw it.
    session: Session,
    /// The kind of session cannot change any more: the connection, an update or a response has set it.
    kind_is_fixed: bool,
    projector: Projector,
    /// Of events, and of items with inline audio.
    ids: IdMint,
    egress: Arc<Egress>,
    playback: Playback,
    expiry: SessionExpiry,
    /// The client is connected, as last reported to the reducer.
    client_connected: bool,
    /// Messages of the client that were processed, over all its connections and hubs.
    n_received: u64,
    /// The message that the session went back to, and how many messages of the client it held then: with the next one the client
    /// knows.
    went_back: Option<(u64, u64)>,
    clock: ClientClock,
    /// What the client may use.
    limits: Arc<dyn SessionLimits>,
    /// When the client's socket is to be read again.
    read_from: watch::Sender<Option<Instant>>,
}

/// What the clock does to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// Nothing.
    Nothing,
    /// Its connection is given up; the client may come back.
    Connection,
    /// It has ended.
    Session,
}

/// What a snapshot holds beside the client's side.
pub(super) struct StoredParts {
    pub(super) log: StoredLog,
    pub(super) dialog: Dialog,
    pub(super) input: StoredInput,
    /// Names of turns, and how many there were.
    pub(super) turns: (IdMint, u64),
    pub(super) at: Timestamp,
}

impl ClientSide {
    pub(super) fn new(setup: Arc<Setup>, start: ClientStart) -> Self {
        Self {
            setup,
            owner: start.owner,
            mode: start.mode,
            dialect: start.dialect,
            session: start.session,
            kind_is_fixed: start.kind_is_fixed,
            projector: Projector::new(start.conversation),
            ids: start.ids,
            egress: Arc::new(start.egress),
            playback: start.playback,
            expiry: start.expiry,
            client_connected: start.client_connected,
            n_received: start.n_received,
            went_back: start.went_back_to.map(|number| (number, start.n_received)),
            clock: ClientClock::default(),
            limits: start.limits,
            read_from: watch::Sender::new(None),
        }
    }

    /// The log that everything leaves by.
    pub(super) fn egress(&self) -> &Arc<Egress> {
        &self.egress
    }

    /// When the client's socket is to be read again.
    pub(super) fn read_from(&self) -> watch::Receiver<Option<Instant>> {
        self.read_from.subscribe()
    }

    /// The session object, as the client last saw it.
    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// The client's clock.
    pub(super) fn clock(&self) -> &ClientClock {
        &self.clock
    }

    /// Whether audio travels in packets of its own, not in events.
    pub(super) fn is_framed(&self) -> bool {
        self.mode != AudioMode::Events
    }

    /// Whether the microphone's packets are Opus; refuses them where audio is in events.
    pub(super) fn sends_opus(&self) -> Result<bool, WireError> {
        match self.mode {
            AudioMode::Events => Err(WireError::binary_frame()),
            AudioMode::Pcm16 => Ok(false),
            AudioMode::Opus => Ok(true),
        }
    }

    /// Says what begins: the session, and for a client that asked, how it comes back to it.
    pub(super) fn greet(&mut self, resume_key: Option<String>) {
        self.send(None, ServerEvent::SessionCreated { session: Box::new(self.session.clone()) });
        if self.dialect.beta && self.session.kind == SessionKind::Realtime {
            let conversation = Conversation::new(self.projector.conversation_id.clone());
            self.send(None, ServerEvent::ConversationCreated { conversation });
        }
        if let Some(key) = resume_key {
            let within_s = u64::from(self.setup.session.resume_seconds);
            self.send_notice(SessionNotice::Resumable { key, within_s });
        }
    }

    /// A message of the client is processed. Returns its number.
    pub(super) fn message_received(&mut self) -> u64 {
        self.n_received += 1;
        self.n_received
    }

    /// Whether the client has disconnected, or is back, since the last call.
    pub(super) fn connection_change(&mut self) -> Option<Event> {
        let is_connected = self.egress.is_attached();
        if std::mem::replace(&mut self.client_connected, is_connected) == is_connected {
            return None;
        }
        Some(if is_connected { Event::Reconnected } else { Event::Disconnected })
    }

    /// Gives up a client that takes nothing, and gives the notice before the session's end when it is due; at the end the error
    /// that the protocol has for it, and the close.
    pub(super) fn expire(&mut self, now: Instant) -> Expiry {
        if self.stuck_at().is_some_and(|at| now >= at) {
            tracing::info!("the client takes nothing; its connection is given up");
            if self.egress.lose() {
                self.egress.detach();
                return Expiry::Connection;
            }
            self.egress.close(Close { code: 1013, reason: "the client reads too slowly" });
            return Expiry::Session;
        }
        if let Some(in_s) = self.expiry.take_notice(now) {
            self.send_notice(SessionNotice::Expiring { expires_at: self.session.expires_at, in_s });
        }
        let Some(minutes) = self.expiry.expired(now) else { return Expiry::Nothing };
        let message = format!("Your session hit the maximum duration of {minutes} minutes.");
        self.refuse(WireError::invalid("session_expired", message, None));
        self.egress.close(Close { code: 1001, reason: "the session's time is up" });
        Expiry::Session
    }

    /// When [`Self::expire`] has something to do.
    pub(super) fn next_expiry(&self) -> Instant {
        let expiry = self.expiry.next_due();
        self.stuck_at().map_or(expiry, |stuck| stuck.min(expiry))
    }

    fn stuck_at(&self) -> Option<Instant> {
        self.egress.stuck_since().map(|since| since + STUCK)
    }

    /// Charges received audio, at 16 kHz. A client ahead of its limit is not read until it has a share again: that loses nothing,
    /// and closes only a client that is further ahead than [`LONGEST_PAUSE`].
    pub(super) fn charge_audio(&mut self, audio: Samples) {
        if audio == Samples::ZERO {
            return;
        }
        let pause = self.limits.audio_received(audio);
        if pause > LONGEST_PAUSE {
            let message = "Audio arrives far faster than this session may send it (limits.session_audio_seconds_per_minute, or \
                           the limit of its API key or address).";
            self.refuse(WireError::rate_limited(message));
            self.egress.close(Close { code: 1008, reason: "audio arrives faster than the limit" });
        } else if !pause.is_zero() {
            self.read_from.send_replace(Some(Instant::now() + pause));
        }
    }

    /// Whether the client's socket is not read now, because of a limit.
    pub(super) fn is_paused(&self) -> bool {
        self.read_from.borrow().is_some_and(|from| from > Instant::now())
    }

    /// Checks a request for a response.
    pub(super) fn check_response(&self, params: &mut ResponseParams) -> Result<(), WireError> {
        if self.session.kind == SessionKind::Transcription {
            return Err(WireError::only_transcribes());
        }
        if self.is_framed() {
            check_packet_format(params.format, "response.audio.output.format")?;
        }
        self.setup.find_voice(params.voice.as_mut(), self.owner, "response.audio.output.voice")?;
        let tools = params.tools.as_ref().unwrap_or(&self.session.tools);
        let choice = params.tool_choice.as_ref().unwrap_or(&self.session.tool_choice);
        choice.check(tools, "response.tool_choice")?;
        remote::check_response(params, &self.session.tools)?;
        self.limits.may_respond().map_err(|limit| WireError::rate_limited(limit.0))
    }

    /// Checks the items of an event, and takes the inline audio out of them: each is at most `limit` long.
    pub(super) fn take_inline_audio(
        &mut self,
        event: &mut ClientEvent,
        limit: Samples,
    ) -> Result<Vec<InlineAudio>, WireError> {
        if !self.setup.engines.llm.takes_images() {
            refuse_images(event)?;
        }
        let format = translate::format(self.session.audio.input.format);
        let inline = inline_audio::take(event, &mut self.ids, format, limit)?;
        self.charge_audio(inline.iter().fold(Samples::ZERO, |sum, audio| sum + audio.length()));
        Ok(inline)
    }

    /// The session object with an update.
    pub(super) fn updated(&self, mut update: SessionUpdate) -> Result<Session, WireError> {
        if update.kind != self.session.kind && self.kind_is_fixed {
            return Err(WireError::wrong_session_kind(self.session.kind));
        }
        if self.is_framed() {
            check_packet_format(update.input.format, "session.audio.input.format")?;
            check_packet_format(update.output.format, "session.audio.output.format")?;
        }
        self.setup.find_voice(update.output.voice.as_mut(), self.owner, "session.audio.output.voice")?;
        self.setup.check_language(&update)?;
        let mut next = self.session.clone();
        next.apply(update);
        self.setup.check_tools(&self.session.tools, &mut next)?;
        Ok(next)
    }

    /// Whether the servers that the session began with may be used.
    pub(super) fn check_servers(&self) -> Result<(), WireError> {
        self.setup.check_tools(&self.session.tools, &mut self.session.clone())
    }

    /// The reducer has taken an update.
    pub(super) fn set_session(&mut self, session: Session) {
        self.session = session;
        self.fix_kind();
    }

    /// The kind of session cannot change any more.
    pub(super) fn fix_kind(&mut self) {
        self.kind_is_fixed = true;
    }

    /// Answers a ping at once.
    pub(super) fn answer_ping(&mut self, ping: &ClockPing, now: Timestamp) {
        self.clock.pinged(ping, now);
        self.send_notice(SessionNotice::Pong {
            client_ms: ping.client_ms,
            hub_ms: now.since_start().as_secs_f64() * 1e3,
        });
    }

    /// Gives a notice of the reducer to the client, where its protocol has it.
    pub(super) fn notify(
        &mut self,
        notice: Notice,
        logprobs: Option<&TranscriptLogprobs>,
        dialog: &Dialog,
        now: Timestamp,
    ) {
        let is_extension = matches!(
            notice,
            Notice::Held { .. }
                | Notice::Released { .. }
                | Notice::Backchannel { .. }
                | Notice::SpeechIgnored { .. }
                | Notice::TranscriptDraft { .. }
                | Notice::ToolRoundsSpent { .. }
                | Notice::CallsRefused { .. }
                | Notice::InputCut { .. }
                | Notice::ModelLoading { .. }
        );
        if is_extension && !self.is_framed() {
            return;
        }
        let truncated = match &notice {
            Notice::ItemTruncated { item, .. } if self.is_framed() => Some(item.clone()),
            _ => None,
        };
        let (response, events) = self.projector.project(notice, &self.session, logprobs);
        for mut event in events {
            if let ServerEvent::RateLimitsUpdated { rate_limits } = &mut event {
                *rate_limits = self.limits.state();
            }
            let made = match &event {
                ServerEvent::OutputAudioDone { at } if self.is_framed() => Some(at.clone()),
                _ => None,
            };
            self.send(response.clone(), event);
            // Frames are paced: the last one leaves later than the voice has made it.
            if let Some(at) = made.and_then(|at| self.playback.item_made(at)) {
                self.send_audio_sent(at);
            }
        }
        if let Some(item) = truncated {
            self.tell_heard(item, dialog, now);
        }
    }

    /// Tells a client that plays frames which words of a stopped item the conversation keeps.
    pub(super) fn tell_heard(&mut self, item_id: ItemId, dialog: &Dialog, now: Timestamp) {
        let Some(spoken) = dialog.history().spoken(&item_id).filter(|spoken| spoken.is_cut()) else { return };
        let transcript = spoken.heard_words(now).to_owned();
        self.send_notice(SessionNotice::Heard { item_id, transcript });
    }

    /// A checkpoint is about to be stored.
    pub(super) fn announce_checkpoint(&mut self) {
        self.send_notice(SessionNotice::Checkpoint { received: self.n_received });
    }

    /// Refuses what the client has sent.
    pub(super) fn refuse(&mut self, error: WireError) {
        self.send(None, ServerEvent::Error { error });
    }

    /// Sends an event, in order with the response it belongs to. One that the client's protocol does not have is left out.
    pub(super) fn send(&mut self, response: Option<ResponseId>, event: ServerEvent) {
        if let ServerEvent::Error { error } = &event {
            self.setup.metrics.error(error.code.unwrap_or("other"));
        }
        let about = match (response, &event) {
            (Some(response), _) => About::Response(response),
            (
                None,
                ServerEvent::InputAudioCommitted { .. }
                | ServerEvent::ItemAdded { .. }
                | ServerEvent::ItemDone { .. }
                | ServerEvent::ItemDeleted { .. }
                | ServerEvent::ItemRetrieved { .. }
                | ServerEvent::ItemTruncated { .. }
                | ServerEvent::TranscriptionDelta { .. }
                | ServerEvent::TranscriptionDraft { .. }
                | ServerEvent::TranscriptionCompleted { .. }
                | ServerEvent::TranscriptionFailed { .. }
                | ServerEvent::McpListInProgress { .. }
                | ServerEvent::McpListCompleted { .. }
                | ServerEvent::McpListFailed { .. }
                | ServerEvent::McpCallInProgress { .. }
                | ServerEvent::McpCallCompleted { .. }
                | ServerEvent::McpCallFailed { .. },
            ) => About::Items,
            (None, _) => About::Session,
        };
        if let Some(event) = self.numbered(event) {
            let n_bytes = self.egress.push(Output::Event(Box::new(event)), about);
            self.setup.metrics.bytes_out(n_bytes as u64);
        }
    }

    fn send_notice(&mut self, notice: SessionNotice) {
        self.send(None, ServerEvent::Session(notice));
    }

    fn send_audio_sent(&mut self, at: PartAt) {
        let response_id = at.item.response_id;
        let item_id = at.item.item_id;
        self.send(Some(response_id.clone()), ServerEvent::OutputAudioSent { response_id, item_id });
    }

    /// An event with its id; `None`: the client's protocol does not have it.
    fn numbered(&mut self, event: ServerEvent) -> Option<OutputEvent> {
        let event_id = self.ids.next("event");
        self.dialect.has(&event).then_some(OutputEvent { event_id, event })
    }

    /// Takes audio of a response's item, the `index`th output: it leaves at once in events, in its time in frames.
    pub(super) fn push_audio(&mut self, response: &ResponseId, item: &ItemId, index: u32, packets: Vec<Packet>) {
        for packet in packets {
            if self.is_framed() {
                self.playback.push(response.clone(), item.clone(), packet);
                continue;
            }
            let at = PartAt::new(response.clone(), item.clone(), index, 0);
            let event = ServerEvent::OutputAudioDelta { at, delta: packet.payload };
            if let Some(event) = self.numbered(event) {
                let sent = (item.clone(), packet.n);
                let n_bytes = self.egress.push_audio(Output::Event(Box::new(event)), response.clone(), sent);
                self.setup.metrics.bytes_out(n_bytes as u64);
            }
        }
    }

    /// Lets the next frame out whose time has come, and what waits before it. A frame given to the egress counts as sent: the lead
    /// bounds both.
    pub(super) fn release_frame(&mut self, dialog: &Dialog, now: Timestamp) -> Option<Event> {
        loop {
            match self.playback.take_due(dialog, now)? {
                DueOutput::End(at) => self.send_audio_sent(at),
                DueOutput::Audio { response, audio, n } => {
                    let item = audio.item.clone();
                    let n_bytes = self.egress.push_audio(Output::Audio(audio), response, (item.clone(), n));
                    self.setup.metrics.bytes_out(n_bytes as u64);
                    return Some(Event::AudioSent { item, n });
                }
            }
        }
    }

    /// When the next frame may leave; `None`: none waits, or no client plays it: it waits for the client to come back.
    pub(super) fn next_frame(&self, dialog: &Dialog, now: Timestamp) -> Option<Timestamp> {
        self.egress.is_attached().then(|| self.playback.next_due(dialog, now)).flatten()
    }

    /// Turn time at which audio of `item` that is made now will sound, where the turn is at `position`.
    pub(super) fn sounds_at(&self, item: &ItemId, dialog: &Dialog, position: Samples, now: Timestamp) -> Samples {
        self.playback.sounds_at(item, dialog, position, now)
    }

    /// The reply made so far will have sounded by then, in turn time.
    pub(super) fn sounds_until(&mut self, end: Samples) {
        self.playback.sounds_until(end);
    }

    /// Lets nothing of any response out until [`Self::release`].
    pub(super) fn hold(&self) {
        self.egress.hold();
    }

    /// Goes on after playback stood still for `delay`.
    pub(super) fn release(&mut self, delay: Samples) {
        self.egress.release();
        if self.is_framed() {
            self.playback.delayed(delay);
        }
    }

    /// Drops the audio of a response that has not left.
    pub(super) fn drop_audio(&mut self, response: &ResponseId) {
        self.egress.drop_audio(response);
        for at in self.playback.drop_audio(response) {
            self.send_audio_sent(at);
        }
    }

    /// Drops the unsent audio of a response, and has a client that plays from frames stop at once, where the turn is at `position`.
    pub(super) fn flush(&mut self, response: ResponseId, position: Samples, dialog: &Dialog, now: Timestamp) {
        self.playback.sounds_until(position);
        self.drop_audio(&response);
        if self.is_framed() {
            for item in dialog.history().cut_items(&response) {
                self.tell_heard(item, dialog, now);
            }
            self.send(None, ServerEvent::OutputCleared { response_id: response });
        }
    }

    /// The audio that has left since the last call.
    pub(super) fn take_sent(&self) -> Vec<SentAudio> {
        self.egress.take_sent()
    }

    /// Whether more reply audio may be made. Of a session that is leaving, it is made as quickly as it can be.
    pub(super) fn has_room(&self, is_leaving: bool) -> bool {
        match is_leaving {
            true => self.egress.has_room_to_leave() && self.playback.has_room_to_leave(),
            false => self.egress.has_room() && self.playback.has_room(self.setup.brownout.level()),
        }
    }

    /// Whether no frame waits for its time.
    pub(super) fn has_played(&self) -> bool {
        self.playback.is_empty()
    }

    /// What was sent and may not have arrived, and the audio in it that is not reported as sent. `None`: a part of it is held, so
    /// that its order is not known.
    pub(super) fn stored_log(&self) -> Option<(StoredLog, Vec<SentAudio>)> {
        self.egress.stored()
    }

    /// The session's state.
    pub(super) fn snapshot(&self, parts: StoredParts) -> Snapshot {
        Snapshot {
            schema: SNAPSHOT_SCHEMA,
            build: env!("CARGO_PKG_VERSION").into(),
            went_back_to: self.went_back.filter(|(_, received)| *received == self.n_received).map(|(number, _)| number),
            owner: self.owner,
            mode: self.mode,
            beta: self.dialect.beta,
            session: self.session.stored(),
            kind_is_fixed: self.kind_is_fixed,
            conversation: self.projector.conversation_id.clone(),
            ids: self.ids.clone(),
            turns: parts.turns,
            dialog: parts.dialog,
            at: parts.at,
            wall: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            client_connected: self.client_connected,
            received: self.n_received,
            log: parts.log,
            playback: self.playback.stored(),
            input: parts.input,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::Opening;
    use crate::testing::{StrictLimits, begun};
    use futures_util::FutureExt;

    fn client(mode: AudioMode, resume_key: Option<&str>) -> ClientSide {
        let resume_key = resume_key.map(str::to_owned);
        let (setup, beginning) = begun(Opening { mode, resume_key, ..Opening::default() });
        ClientSide::new(setup, beginning.client)
    }

    #[tokio::test(start_paused = true)]
    async fn the_clients_absence_and_its_return_are_reported_once() {
        let mut client = client(AudioMode::Pcm16, Some("key"));
        assert!(client.connection_change().is_none());
        client.egress.detach();
        assert!(matches!(client.connection_change(), Some(Event::Disconnected)));
        assert!(client.connection_change().is_none());
        client.egress.attach(0).expect("nothing was sent");
        assert!(matches!(client.connection_change(), Some(Event::Reconnected)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_loses_its_connection_or_its_session() {
        for (resume_key, expect) in [(Some("key"), Expiry::Connection), (None, Expiry::Session)] {
            let mut client = client(AudioMode::Pcm16, resume_key);
            client.greet(None);
            assert_eq!(client.next_expiry(), Instant::now() + STUCK);
            assert_eq!(client.expire(Instant::now()), Expiry::Nothing);
            assert_eq!(client.expire(Instant::now() + STUCK), expect);
            assert_eq!(client.egress.is_attached(), expect == Expiry::Session);
        }
    }

    /// The types of the events that leave without waiting.
    fn leaving(client: &ClientSide) -> Vec<String> {
        let mut types = Vec::new();
        while let Some(Ok(crate::Message::Text(text))) = client.egress.next_message().now_or_never() {
            let event: serde_json::Value = serde_json::from_str(&text).expect("an event is JSON");
            types.push(event["type"].as_str().expect("an event has a type").to_owned());
        }
        types
    }

    #[tokio::test(start_paused = true)]
    async fn the_transcript_and_the_progress_of_an_item_wait_behind_it_while_a_reply_is_held() {
        let mut client = client(AudioMode::Events, None);
        client.hold();
        client.send(Some("resp_1".into()), ServerEvent::OutputCleared { response_id: "resp_1".into() });
        client.send(None, ServerEvent::InputAudioCommitted { previous_item_id: None, item_id: "item_1".into() });
        let delta = "Two.".to_owned();
        client.send(None, ServerEvent::TranscriptionDelta { item_id: "item_1".into(), content_index: 0, delta });
        client.send(None, ServerEvent::McpListInProgress { item_id: "item_2".into() });
        client.send(None, ServerEvent::InputAudioCleared {});
        assert_eq!(leaving(&client), ["input_audio_buffer.cleared"]);
        client.release(Samples::ZERO);
        let expect = [
            "output_audio_buffer.cleared",
            "input_audio_buffer.committed",
            "conversation.item.input_audio_transcription.delta",
            "mcp_list_tools.in_progress",
        ];
        assert_eq!(leaving(&client), expect);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_once_its_time_is_up() {
        let mut client = client(AudioMode::Events, None);
        let end = client.next_expiry();
        assert_eq!(client.expire(end - Duration::from_secs(1)), Expiry::Nothing);
        assert_eq!(client.expire(end), Expiry::Session);
    }

    #[test]
    fn a_response_fixes_the_kind_and_frames_the_format() {
        let mut client = client(AudioMode::Pcm16, None);
        let other_kind = || SessionUpdate { kind: SessionKind::Transcription, ..SessionUpdate::default() };
        assert!(client.updated(other_kind()).is_ok());
        let mut foreign = SessionUpdate::default();
        foreign.output.format = Some(antiphon_protocol::AudioFormat::Pcmu);
        assert!(client.updated(foreign).is_err(), "G.711 has no frames");
        client.fix_kind();
        assert!(client.updated(other_kind()).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_ahead_of_its_limit_is_not_read_and_one_far_ahead_is_closed() {
        let (setup, beginning) =
            begun(Opening { limits: Some(Arc::new(StrictLimits::default())), ..Opening::default() });
        let mut client = ClientSide::new(setup, beginning.client);
        let seconds = |n: u64| Samples(16_000 * n);
        client.charge_audio(seconds(60));
        assert!(client.is_paused() && client.egress.has_left());
        assert_eq!(*client.read_from().borrow(), Some(Instant::now() + Duration::from_secs(60)));
        client.charge_audio(seconds(121));
        let error = client.egress.next_message().await.expect("the error comes first");
        assert!(matches!(error, crate::Message::Text(text) if text.contains("far faster")));
        assert_eq!(client.egress.next_message().await.expect_err("it is closed").code, 1008);
        assert!(client.check_response(&mut ResponseParams::default()).is_err(), "no response is allowed");
    }
}
