//! The actor: one loop that waits for the next input, gives it to the reducer as an event, and has the actions performed.
//!
//! The session is made of parts with state of their own: [`Hearing`] (microphone, transcriptions), [`Speaking`] (responses, voices),
//! [`ClientSide`] (session object, log, frames, lifetime), [`Timeline`] (records and metrics), [`Links`] (remote servers) and
//! [`SnapshotSender`] (storage). None of them knows another one: they return events and values, and what concerns several of them
//! stands here, in the order in which it has to happen. No other file holds the reducer, gives it an event, or has an `impl Actor`.
//! Decides nothing about the dialog.

use super::beginning::{Beginning, Greeting};
use super::checkpoint::{Leave, SnapshotSender};
use super::client_side::{ClientSide, Expiry, StoredParts};
use super::conversation_audio::ReplySource;
use super::egress::{Close, Egress};
use super::failures::{causes, recognizer_failed};
use super::fair_order::{FairOrder, only_if};
use super::hearing::Hearing;
use super::inbound::{Inbound, InboundPayload, bad_audio, is_refused};
use super::ingress::Advance;
use super::inline_audio::{InlineAudio, with_lengths};
use super::languages;
use super::links::Links;
use super::product::{FillerSpeech, Product};
use super::project::{TRANSCRIPTION_FAILED, TranscriptLogprobs, code_of};
use super::setup::Setup;
use super::snapshot::Snapshot;
use super::speaking::Speaking;
use super::timeline::Timeline;
use super::timeline::answering::PlaybackReport;
use super::timeline::notices::NoticeContext;
use super::transcription_input::Report;
use super::transcription_task::until_free;
use super::translate;
use super::voice::MadeAudio;
use antiphon_audio::codec::CodecError;
use antiphon_dialog::turn::Edge;
use antiphon_dialog::{
    Action, Command, Dialog, Event, Notice, ResponseWork, SpeculationOutcome, ToolCallDelta, UtteranceEnd,
};
use antiphon_engine_api::HopReport;
use antiphon_engine_api::stt::{SttError, Transcript};
use antiphon_protocol::frame::MicrophoneFrame;
use antiphon_protocol::{ClientEvent, Incoming, PlayedReport, SessionUpdate, WireError};
use antiphon_types::{BrownoutLevel, ItemId, Meter, Pcm, ResponseId, Timestamp};
use futures_util::FutureExt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// Capacity of the queue of products: a voice that is this far ahead waits. They are boxed, because a channel has room for 32
/// from the start: 8 KiB of each session that never speaks.
const PRODUCTS: usize = 8;
/// Capacity of the queue of reports.
const REPORTS: usize = 16;
/// Windows processed before other inputs: about 1 s of audio, 0.5 ms of work.
const WINDOWS_AT_ONCE: usize = 64;

/// One session.
pub(super) struct Actor {
    setup: Arc<Setup>,
    /// The session's beginning.
    clock: Instant,
    dialog: Dialog,
    hearing: Hearing,
    speaking: Speaking,
    client: ClientSide,
    timeline: Timeline,
    links: Links,
    /// Where snapshots go.
    snapshots: Option<SnapshotSender>,
    /// Whether the client reads why an upstream failed, in its words.
    sees_causes: bool,
    /// In which order the inputs are looked at.
    order: FairOrder,
}

/// What the actor waits for.
enum Input {
    Message(Option<Inbound>),
    Report(Option<Report>),
    Product(Option<Box<Product>>),
    /// The writer has finished a message, or the connection has changed.
    EgressProgress,
    /// Something that the next round looks at has changed.
    Recheck,
    /// The server stops.
    Draining,
    /// A deadline has passed.
    Due,
}

/// What an actor runs with.
pub(super) struct ActorStart {
    reports: mpsc::Receiver<Report>,
    products: mpsc::Receiver<Box<Product>>,
    greeting: Option<Greeting>,
}

/// What an event carries that the reducer does not take. Its actions refer to it by the item.
#[derive(Default)]
struct EventPayload {
    /// Audio of the items of a client's event.
    inline_audio: Vec<InlineAudio>,
    /// Of the transcript that the event brings.
    logprobs: Option<TranscriptLogprobs>,
}

/// What a transcription ends with, beside the item.
struct FinalTranscript {
    result: Result<Transcript, SttError>,
    served: Option<HopReport>,
    meter: Meter,
}

impl Actor {
    pub(super) fn new(setup: Arc<Setup>, beginning: Beginning) -> (Self, ActorStart) {
        let Beginning { requester, client, form, clock, dialog, ingress, speaker, last_audio, .. } = beginning;
        let (reports, report_inbox) = mpsc::channel(REPORTS);
        let (products, product_inbox) = mpsc::channel(PRODUCTS);
        let is_resumed = beginning.greeting.is_none();
        let limits = client.limits.clone();
        let actor = Self {
            clock,
            dialog,
            links: Links::new(setup.clone(), reports.clone(), is_resumed),
            hearing: Hearing::new(setup.clone(), requester, reports, ingress, speaker, last_audio),
            speaking: Speaking::new(setup.clone(), requester, products, limits, form, clock),
            client: ClientSide::new(setup.clone(), client),
            timeline: beginning.timeline,
            snapshots: beginning.snapshots,
            sees_causes: form.sees_causes,
            order: FairOrder::new(beginning.order_seed),
            setup,
        };
        (actor, ActorStart { reports: report_inbox, products: product_inbox, greeting: beginning.greeting })
    }

    /// The log that everything leaves by.
    pub(super) fn egress(&self) -> Arc<Egress> {
        self.client.egress().clone()
    }

    /// When the client's socket is to be read again.
    pub(super) fn read_from(&self) -> watch::Receiver<Option<Instant>> {
        self.client.read_from()
    }

    /// Runs until the client is gone or closed, or the session expires.
    pub(super) async fn run(mut self: Box<Self>, mut inbound: mpsc::Receiver<Inbound>, start: ActorStart) {
        let ActorStart { mut reports, mut products, greeting } = start;
        if let Some(Greeting { resume_key }) = greeting {
            self.client.greet(resume_key);
            self.begin_servers();
        }
        // Both are made once, since each one made takes a lock that all sessions share.
        let drain = self.setup.drain.clone();
        let mut drains = pin!(drain.cancelled());
        let mut timer = pin!(sleep_until(self.client.next_expiry()));
        let mut is_draining = false;
        loop {
            if let Some(snapshots) = &mut self.snapshots {
                snapshots.while_suspended().await;
            }
            self.look_for_the_client();
            let more = self.process_windows();
            let settles = self.timeline.report(&self.dialog, self.now());
            if !more && self.checkpoint(!inbound.is_empty()) {
                // The session goes on from its final snapshot. What is here ends with its handle.
                return std::future::pending().await;
            }
            let blocked = self.hearing.blocked_on();
            if is_draining && self.has_drained() {
                return self.client.egress().close(Close { code: 1001, reason: "the server is going away" });
            }
            let takes_audio = !more && blocked.is_none() && !self.hearing.is_full();
            let takes_messages = takes_audio && self.client.egress().takes_requests();
            let is_heard = takes_messages && self.client.egress().is_attached() && !self.is_client_elsewhere();
            if !is_heard || self.client.is_paused() {
                // While the hub is behind or the connection is lost, missing audio is not the speaker's silence.
                self.hearing.excuse_silence(self.now());
            }
            let room = self.client.has_room(self.is_leaving());
            let deadline = self.next_deadline(settles);
            let waits = self.snapshots.as_ref().is_some_and(SnapshotSender::waits_for_storage);
            if timer.deadline() != deadline {
                timer.as_mut().reset(deadline);
            }
            let input = {
                let egress = self.client.egress();
                let snapshots = self.snapshots.as_mut();
                let message = pin!(only_if(takes_messages, inbound.recv().map(Input::Message)));
                let report = pin!(reports.recv().map(Input::Report));
                let product = pin!(only_if(room, products.recv().map(Input::Product)));
                let moved = pin!(egress.moved().map(|()| Input::EgressProgress));
                let stored = pin!(SnapshotSender::moved(snapshots, waits).map(|()| Input::Recheck));
                let free = pin!(only_if(!more, until_free(blocked).map(|()| Input::Recheck)));
                let draining = pin!(only_if(!is_draining, drains.as_mut().map(|()| Input::Draining)));
                let due = pin!(timer.as_mut().map(|()| Input::Due));
                let at_once = pin!(only_if(more, tokio::task::yield_now().map(|()| Input::Recheck)));
                let mut inputs: [Pin<&mut (dyn Future<Output = Input> + Send)>; 9] =
                    [message, report, product, moved, stored, free, draining, due, at_once];
                self.order.first_ready(&mut inputs).await
            };
            match input {
                Input::Message(Some(message)) => self.inbound(message),
                Input::Message(None) => return,
                Input::Report(report) => self.report(report.expect("the actor holds a sender")),
                Input::Product(product) => self.product(*product.expect("the actor holds a sender")),
                Input::EgressProgress => self.audio_left(),
                Input::Recheck => {}
                Input::Draining => is_draining = true,
                Input::Due => {
                    if !is_heard || !inbound.is_empty() || self.client.is_paused() {
                        self.hearing.excuse_silence(self.now());
                    }
                    match self.client.expire(Instant::now()) {
                        Expiry::Session => return,
                        Expiry::Connection => {}
                        Expiry::Nothing => self.release_due(),
                    }
                }
            }
        }
    }

    /// Time of the session.
    fn now(&self) -> Timestamp {
        Timestamp::new(self.clock.elapsed())
    }

    /// Gives an event to the reducer and records it; the caller performs the actions.
    fn decide(&mut self, event: Event) -> Vec<Action> {
        let now = self.now();
        let recorded = self.hearing.recorder().runs().then(|| event.clone());
        let actions = self.dialog.step(now, event);
        if let Some(event) = recorded {
            self.hearing.recorder().step(now, event, &actions);
        }
        actions
    }

    /// Passes an event to the reducer and performs its actions.
    fn step(&mut self, event: Event) {
        let actions = self.decide(event);
        self.perform(actions, EventPayload::default());
    }

    /// Performs the actions that an event led to, in order.
    fn perform(&mut self, actions: Vec<Action>, mut payload: EventPayload) {
        for action in actions {
            match action {
                Action::OpenUtterance { item, audio_start } => {
                    self.hearing.open_utterance(item, audio_start, self.client.session());
                }
                Action::CloseUtterance { item, end } => self.close_utterance(&item, end),
                Action::DropUtterance(item) => {
                    self.timeline.dropped(&item, self.now());
                    self.hearing.drop_utterance(&item);
                }
                Action::Transcribe(item) => {
                    let at = payload.inline_audio.iter().position(|audio| audio.item == item);
                    let audio = payload.inline_audio.swap_remove(at.expect("the event carried the item's audio"));
                    self.hearing.transcribe(audio, self.client.session());
                }
                Action::ClearInput => {
                    if let Some(event) = self.hearing.restart_buffer() {
                        self.step(event);
                    }
                }
                Action::LearnSpeaker(item) => {
                    if self.hearing.learn_speaker(&item) {
                        self.step(Event::SpeakerEnrolled);
                    }
                }
                Action::StartResponse(work) => self.start_response(*work),
                // Without a provisional transcript the dialog goes on as if there had been no pause.
                Action::TranscribeProvisionally(_) if self.setup.brownout.is_at_least(BrownoutLevel::NoSpeculation) => {
                }
                Action::TranscribeProvisionally(item) => {
                    self.timeline.speculation_started(&item, self.now());
                    self.hearing.request_provisional(&item);
                }
                Action::TranscribePartially(item) => self.hearing.request_partial(&item),
                Action::SpeakFiller { response, settings } => {
                    if let Some(meter) = self.speaking.start_filler(response, &settings) {
                        self.timeline.filler_requested(meter);
                    }
                }
                Action::StartSpeculative(work) => self.start_speculative(*work),
                Action::ReleaseSpeculative(id) => {
                    if self.speaking.release_speculative(&id) {
                        self.client.fix_kind();
                        self.speculation_ended(&id, SpeculationOutcome::Confirmed, Duration::ZERO);
                    }
                }
                Action::DropSpeculative { response, outcome, wasted } => {
                    self.speaking.drop_speculative(&response);
                    self.speculation_ended(&response, outcome, wasted);
                }
                Action::StopResponse(id) => {
                    self.speaking.end(&id);
                    self.client.drop_audio(&id);
                }
                Action::ListTools { item, server } => self.links.list(item, server),
                Action::CallRemote { item, call } => {
                    self.timeline.tool_called();
                    self.links.call(item, call, &self.dialog.settings().servers);
                }
                Action::StopRemote(item) => self.links.ended(&item),
                Action::Hold => {
                    self.setup.metrics.held();
                    self.client.hold();
                    if self.client.is_framed() {
                        self.hearing.reply_held();
                    }
                }
                Action::Release { held_at } => {
                    self.client.release(self.hearing.position().saturating_sub(held_at));
                    if self.client.is_framed() {
                        self.hearing.reply_resumed(held_at);
                    }
                }
                Action::Flush(response) => {
                    let now = self.now();
                    self.timeline.flushed(&response, now);
                    self.hearing.reply_stopped(&response);
                    self.client.flush(response, self.hearing.position(), &self.dialog, now);
                }
                Action::Notify(notice) => self.notify(notice, payload.logprobs.as_ref()),
            }
        }
    }

    fn notify(&mut self, notice: Notice, logprobs: Option<&TranscriptLogprobs>) {
        let now = self.now();
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.observe(&notice);
        }
        if let Notice::ItemTruncated { item, .. } = &notice {
            self.hearing.recorder().item_truncated(item);
        }
        let failed_in = match &notice {
            Notice::ResponseDone(view) => self.speaking.end(&view.id),
            _ => None,
        };
        let context = NoticeContext {
            now,
            dialog: &self.dialog,
            position: self.hearing.position(),
            decision: self.hearing.decision(),
            client_clock: self.client.clock(),
            failed_in,
        };
        self.timeline.observe(&notice, &context);
        self.client.notify(notice, logprobs, &self.dialog, now);
    }

    fn close_utterance(&mut self, item: &ItemId, end: UtteranceEnd) {
        let audio = self.hearing.close_utterance(item, end);
        if end == UtteranceEnd::Committed {
            let now = self.now();
            self.timeline.utterance_ended(item, self.dialog.turn(), now, now);
        }
        if let Some(audio) = audio {
            self.timeline.recorded(item, audio);
        }
    }

    fn start_response(&mut self, work: ResponseWork) {
        self.client.fix_kind();
        let meters = self.speaking.meters();
        self.timeline.response_started(&work.response, meters.clone(), self.now());
        self.speaking.start(work, meters);
    }

    fn start_speculative(&mut self, work: ResponseWork) {
        let meters = self.speaking.meters();
        self.timeline.speculation_responding(work.turn, &work.response, meters.clone(), self.now());
        self.speaking.start_speculative(work, meters);
    }

    fn speculation_ended(&mut self, id: &ResponseId, outcome: SpeculationOutcome, wasted: Duration) {
        self.setup.metrics.speculation(outcome.as_str(), wasted);
        self.timeline.speculation_ended(id, outcome.into(), wasted, self.now());
    }

    /// Processes the available windows and passes each edge to the reducer. Returns whether there are more.
    fn process_windows(&mut self) -> bool {
        for _ in 0..WINDOWS_AT_ONCE {
            match self.hearing.advance() {
                Advance::Starved | Advance::Blocked => return false,
                Advance::Window => {}
                Advance::Edge(edge) => self.edge(edge),
            }
            if let Some(edge) = self.hearing.cut_endless() {
                self.edge(edge);
            }
            if self.dialog.compares_speaker() {
                self.hearing.compare_speaker(self.dialog.awaits_speaker());
            }
            if self.dialog.awaits_claim() {
                self.hearing.judge_overlap();
            }
        }
        true
    }

    fn edge(&mut self, edge: Edge) {
        match edge {
            Edge::Onset { .. } => self.step(Event::VoiceOnset { position: self.hearing.position() }),
            Edge::Retracted => self.step(Event::VoiceRetracted),
            Edge::Started { at } => {
                // There may have been no onset, or one so long that the reply went on. Speech over it is weighed while it is held.
                self.step(Event::VoiceOnset { position: self.hearing.position() });
                self.step(Event::SpeechStarted { audio_start: self.hearing.audio_start(at) });
            }
            Edge::Paused { at } => {
                self.step(Event::Paused);
                self.hearing.paused(at);
            }
            Edge::Resumed => {
                self.hearing.resumed();
                self.step(Event::Resumed);
                if self.dialog.is_speech_tentative() {
                    self.step(Event::VoiceOnset { position: self.hearing.position() });
                }
            }
            Edge::Stopped { at } => self.step(Event::SpeechStopped { audio_end: at }),
        }
    }

    /// Processes a message of the client.
    fn inbound(&mut self, inbound: Inbound) {
        let number = self.client.message_received();
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.message_received(number);
        }
        match inbound.payload {
            InboundPayload::Invalid(error) => self.client.refuse(*error),
            InboundPayload::LineHeld(true) => {
                self.timeline.client_left();
                self.step(Event::LineHeld);
            }
            InboundPayload::LineHeld(false) => self.step(Event::LineResumed),
            InboundPayload::Audio(frame) => {
                if let Err(error) = self.frame(frame) {
                    self.client.refuse(error);
                }
            }
            InboundPayload::Event(event) => {
                let Incoming { event_id, event } = *event;
                if let Err(error) = self.event(event_id.clone(), event) {
                    self.client.refuse(error.answering(event_id.as_deref()));
                }
            }
        }
    }

    fn frame(&mut self, frame: MicrophoneFrame) -> Result<(), WireError> {
        let is_opus = self.client.sends_opus()?;
        self.hearing.expect_audio(self.now())?;
        let pushed = self.hearing.push_frame(frame, is_opus);
        self.audio_received(pushed)
    }

    fn audio_received(&mut self, pushed: Result<(), CodecError>) -> Result<(), WireError> {
        self.client.charge_audio(self.hearing.take_reportable());
        pushed.map_err(|error| bad_audio(&error))
    }

    fn event(&mut self, event_id: Option<String>, event: ClientEvent) -> Result<(), WireError> {
        match event {
            ClientEvent::InputAudioAppend { audio } => {
                self.hearing.expect_audio(self.now())?;
                let pushed = self.hearing.push(&audio);
                self.audio_received(pushed)
            }
            ClientEvent::InputAudioCommit => {
                self.client.charge_audio(self.hearing.take_received());
                self.step(Event::Client { event_id, command: self.hearing.commit() });
                Ok(())
            }
            ClientEvent::OutputAudioPlayed(report) => {
                self.played(event_id, *report);
                Ok(())
            }
            ClientEvent::ClockPing(ping) => {
                self.client.answer_ping(&ping, self.now());
                Ok(())
            }
            ClientEvent::SessionUpdate(update) => self.update(event_id, *update),
            ClientEvent::ResponseCreate(mut params) => {
                self.client.check_response(&mut params)?;
                self.command(event_id, ClientEvent::ResponseCreate(params))
            }
            other => self.command(event_id, other),
        }
    }

    fn command(&mut self, event_id: Option<String>, mut event: ClientEvent) -> Result<(), WireError> {
        let inline_audio = self.client.take_inline_audio(&mut event, self.hearing.max_utterance())?;
        let command = translate::command(event).expect("the other events are handled by the caller");
        let actions = self.decide(Event::Client { event_id, command: with_lengths(command, &inline_audio) });
        self.perform(actions, EventPayload { inline_audio, ..EventPayload::default() });
        Ok(())
    }

    fn update(&mut self, event_id: Option<String>, update: SessionUpdate) -> Result<(), WireError> {
        let next = self.client.updated(update)?;
        let command = Command::UpdateSettings(Box::new(self.setup.dialog_settings(&next)));
        let actions = self.decide(Event::Client { event_id, command });
        if !is_refused(&actions) {
            self.hearing.configure(&next);
            self.client.set_session(next);
            self.links.keep(&self.dialog.settings().servers);
        }
        self.perform(actions, EventPayload::default());
        if let Some(edge) = self.hearing.ended_before_detection() {
            self.edge(edge);
        }
        Ok(())
    }

    /// A session may begin with servers, where its key is bound to them: they are asked as if declared now.
    fn begin_servers(&mut self) {
        if self.dialog.settings().servers.is_empty() {
            return;
        }
        if let Err(error) = self.client.check_servers() {
            return self.client.refuse(error);
        }
        let command = Command::UpdateSettings(Box::new(self.dialog.settings().clone()));
        let mut actions = self.decide(Event::Client { event_id: None, command });
        actions.retain(|action| !matches!(action, Action::Notify(Notice::SettingsUpdated)));
        self.perform(actions, EventPayload::default());
    }

    /// The client says where the playhead of an item is. A position that was true a moment ago goes on from there.
    fn played(&mut self, event_id: Option<String>, report: PlayedReport) {
        let now = self.now();
        let here = |client_ms: Option<f64>| self.client.clock().here(client_ms?);
        let at = here(report.at_ms).unwrap_or(now);
        let ms = |ms: u32| Duration::from_millis(u64::from(ms));
        let played = PlaybackReport {
            first_sound: here(report.first_sound_ms),
            underruns: report.n_underruns.map(|n| (n, ms(report.underrun_ms.unwrap_or_default()))),
            stopped_at: report.stopped.then(|| ms(report.audio_end_ms)),
        };
        let is_framed = self.client.is_framed();
        if let Some(event) = self.timeline.played(&report.item_id, played, now).filter(|_| is_framed) {
            self.client.send(None, event);
        }
        // What the client has handed to its loudspeaker is heard a little later.
        let ahead = if report.stopped { Duration::ZERO } else { at.since(now) };
        let audio_end_ms = u64::from(report.audio_end_ms).saturating_sub(ahead.as_millis() as u64);
        let item = report.item_id;
        let ago = now.since(at);
        let command = Command::Played { item: item.clone(), audio_end_ms, ago, stopped: report.stopped };
        self.step(Event::Client { event_id, command });
        // The report may have moved the cut.
        if report.stopped && is_framed {
            self.client.tell_heard(item, &self.dialog, self.now());
        }
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::Opened { item, waited } => self.timeline.decoder_opened(&item, waited),
            Report::Listed(item, result) => {
                if let Some(event) = self.links.listed(item, result) {
                    self.step(event);
                }
            }
            Report::Linked(label, connection) => self.links.connected(label, connection),
            Report::Called(item, result) => {
                self.links.ended(&item);
                self.timeline.tool_ended();
                self.step(Event::RemoteCallEnded { item, result });
            }
            Report::Partial { item, text, n_sure_words, n_settled_words, n_heard } => {
                self.hearing.partial(&item, &text, n_heard);
                self.step(Event::Partial { item, text, n_sure_words, n_settled_words });
            }
            Report::ProvisionalTranscript { item, text, language, n_sure_words, n_heard } => {
                self.timeline.provisional_transcribed(&item, self.now());
                self.hearing.partial(&item, &text, n_heard);
                let language = languages::named(language);
                self.step(Event::ProvisionalTranscript { item, text, language, n_sure_words });
            }
            Report::Judged { pause_start, probability } => self.hearing.judged(probability, pause_start),
            Report::OverlapJudged { item, claim } => {
                self.hearing.overlap_judged();
                if let Some(claim) = claim {
                    self.step(Event::OverlapJudged { item, claim });
                }
            }
            Report::SpeakerHeard { item, sample } => {
                if let Some(heard) = self.hearing.speaker_heard(item.clone(), sample) {
                    self.step(Event::SpeakerCompared { item, heard });
                }
            }
            Report::Learnt(item, speaker) => {
                self.hearing.transcription_ended(&item);
                self.hearing.learn(speaker);
            }
            Report::Final { item, result, learns, served, meter } => {
                if !learns {
                    self.hearing.transcription_ended(&item);
                }
                self.transcribed(item, FinalTranscript { result, served, meter });
            }
        }
    }

    fn transcribed(&mut self, item: ItemId, transcript: FinalTranscript) {
        let FinalTranscript { result, served, meter } = transcript;
        let mut payload = EventPayload::default();
        let mut language = None;
        let mut n_sure_words = None;
        let result = result.map(|transcript| {
            n_sure_words = transcript.n_sure_words;
            language = languages::named(transcript.language);
            let logprobs = transcript.logprobs;
            payload.logprobs = logprobs.map(|tokens| TranscriptLogprobs { item: item.clone(), tokens });
            self.hearing.learn(transcript.speaker);
            transcript.text
        });
        let result = result.map_err(|error| {
            let causes = causes(&error);
            tracing::warn!(%error, ?causes, "an utterance could not be transcribed");
            let failure = recognizer_failed(&error, self.sees_causes);
            self.setup.metrics.error(code_of(&failure, TRANSCRIPTION_FAILED));
            failure
        });
        let words = result.clone().map_err(|failure| failure.message().to_owned());
        let now = self.now();
        let note = |timeline: &mut Timeline| {
            timeline.recognized_by(&item, served.clone(), meter.clone());
            timeline.spoken_in(&item, language.clone());
            timeline.transcribed(&item, words.as_deref().map_err(String::as_str), now);
        };
        note(&mut self.timeline);
        let was_turn = self.timeline.holds(&item);
        let event = Event::Transcribed { item: item.clone(), result, language: language.clone(), n_sure_words };
        let actions = self.decide(event);
        self.perform(actions, payload);
        // Speech over a reply may be a turn only by these words.
        if !was_turn {
            note(&mut self.timeline);
        }
        self.timeline.weighed();
    }

    fn product(&mut self, product: Product) {
        match product {
            Product::Mark(response, milestone, at) => self.timeline.mark(&response, milestone, at),
            Product::Filler(filler) => self.filler(&filler),
            Product::Hop(response, served) => self.timeline.spoken_by(&response, served),
            Product::FailedIn(response, stage) => self.speaking.failed(response, stage),
            Product::Audio(response, pcm, at) => {
                if let Some((item, _)) = self.dialog.speaking_item(&response) {
                    self.timeline.audio_made(&response, &item, at);
                }
                self.speech(&response, &pcm);
            }
            Product::Event(event) => {
                // What is spoken ends where a call begins, and with the response.
                if let Event::ResponseFinished { response, .. } | Event::ToolCall(ToolCallDelta { response, .. }) =
                    &event
                {
                    let response = response.clone();
                    self.finish_speech(&response);
                }
                if let Event::TextWithdrawn { response } = &event {
                    self.timeline.withdrawn(response);
                }
                self.step(event);
            }
        }
    }

    /// Plays a filler, unless the answer has begun or the user speaks.
    fn filler(&mut self, filler: &FillerSpeech) {
        let response = &filler.response;
        self.step(Event::FillerStarted { response: response.clone(), text: filler.text.clone() });
        if !self.dialog.is_filling(response) {
            return;
        }
        self.speaking.open_filler(filler);
        for pcm in &filler.speech {
            self.speech(response, pcm);
        }
        self.finish_speech(response);
        self.step(Event::FillerEnded { response: response.clone() });
    }

    /// Takes PCM of a response that is under way.
    fn speech(&mut self, response: &ResponseId, pcm: &Pcm) {
        let Some((item, index)) = self.dialog.speaking_item(response) else { return };
        let position = self.hearing.position();
        let now = self.now();
        let at = self.client.sounds_at(&item, &self.dialog, position, now);
        let is_heard = self.hearing.may_hear_reply(now);
        let Some(voice) = self.speaking.voice(response) else { return };
        // What is said beside the conversation in events sounds at no certain time.
        let is_recorded = self.hearing.recorder().keeps_audio() && self.dialog.history().spoken(&item).is_some();
        let reference = (is_heard || is_recorded).then(|| voice.reference(pcm));
        let made = voice.push(pcm);
        if let Some(reference) = reference {
            if is_heard {
                self.hearing.reply_sounds(at, &reference);
            }
            self.client.sounds_until(at + reference.len());
            if is_recorded {
                let source = ReplySource { response: response.clone(), item: item.clone() };
                self.hearing.recorder().reply_sounds(source, at, reference);
            }
        }
        self.packed(response, &item, index, made);
    }

    /// What the response speaks now has ended: what the resampler and the encoder still hold goes out.
    fn finish_speech(&mut self, response: &ResponseId) {
        let Some((item, index)) = self.dialog.speaking_item(response) else { return };
        let Some(voice) = self.speaking.voice(response) else { return };
        let made = voice.finish();
        self.packed(response, &item, index, made);
    }

    fn packed(&mut self, response: &ResponseId, item: &ItemId, index: u32, made: Result<MadeAudio, CodecError>) {
        let MadeAudio { n, quiet, packets } = match made {
            Ok(made) => made,
            Err(error) => {
                tracing::error!(%error, "reply audio could not be encoded");
                let outcome = Err("the reply could not be encoded".into());
                return self.step(Event::ResponseFinished { response: response.clone(), outcome });
            }
        };
        self.step(Event::AudioGenerated { response: response.clone(), n, quiet });
        self.client.push_audio(response, item, index, packets);
        self.release_frames();
    }

    /// Lets the frames out whose time has come.
    fn release_frames(&mut self) {
        if !self.client.egress().is_attached() {
            // They are not played; they wait for the client to come back.
            return;
        }
        let now = self.now();
        while let Some(sent) = self.client.release_frame(&self.dialog, now) {
            self.step(sent);
        }
    }

    /// The writer has sent messages: reports sent audio to the reducer and latencies to the client.
    fn audio_left(&mut self) {
        let sent = self.client.take_sent();
        if sent.is_empty() {
            return;
        }
        let is_framed = self.client.is_framed();
        for event in self.timeline.sent(&sent, self.now()) {
            if is_framed {
                self.client.send(None, event);
            }
        }
        for (item, n) in sent {
            if !is_framed {
                self.step(Event::AudioSent { item: item.clone(), n });
            }
            self.timeline.estimate(&item, &self.dialog);
        }
    }

    /// Reports to the reducer when the client disconnects and when it is back.
    fn look_for_the_client(&mut self) {
        let Some(change) = self.client.connection_change() else { return };
        if matches!(change, Event::Disconnected) {
            self.timeline.client_left();
        }
        self.step(change);
    }

    /// The earliest deadline; `settles`: that of the timeline.
    fn next_deadline(&self, settles: Option<Timestamp>) -> Instant {
        let stall = self.hearing.stalls_at();
        let unheard = self.hearing.forgets_reply_at();
        let hold = self.dialog.next_deadline().filter(|_| !self.is_client_elsewhere());
        let frame = self.client.next_frame(&self.dialog, self.now());
        let of_session = [stall, unheard, hold, frame, settles].into_iter().flatten();
        let checkpoint = self.snapshots.as_ref().and_then(SnapshotSender::due);
        of_session
            .map(|at| self.clock + at.since_start())
            .chain(checkpoint)
            .fold(self.client.next_expiry(), Instant::min)
    }

    /// Does what is due by the session's clock.
    fn release_due(&mut self) {
        let now = self.now();
        if let Some(edge) = self.hearing.end_stalled(now) {
            self.edge(edge);
        }
        self.hearing.forget_unheard_reply(now);
        // Where the client is elsewhere, the next hub does what is due.
        if !self.is_client_elsewhere() && self.dialog.next_deadline().is_some_and(|due| now >= due) {
            self.step(Event::Tick { position: self.hearing.position() });
        }
        self.release_frames();
    }

    /// While the server stops: whether the session is idle or its client disconnected.
    fn has_drained(&self) -> bool {
        if self.snapshots.is_some() {
            return false;
        }
        let is_idle = || self.hearing.has_transcribed() && self.dialog.active().is_none() && self.client.has_played();
        !self.client.egress().is_attached() || is_idle()
    }

    /// Stores a checkpoint where one is due. Returns whether the session has left: nothing may happen in it any more.
    /// `has_inbound`: messages of the client wait.
    fn checkpoint(&mut self, has_inbound: bool) -> bool {
        let Some(snapshots) = &self.snapshots else { return false };
        let egress = self.client.egress();
        let leave = snapshots.leave();
        match leave {
            Leave::Suspended => false,
            Leave::Stays => {
                if snapshots.is_due() && egress.is_attached() && egress.has_left() && self.is_movable() {
                    self.store(false);
                }
                false
            }
            Leave::WhenSilent | Leave::WhenPossible | Leave::Now => {
                let is_gone = leave == Leave::Now || !egress.is_attached();
                if is_gone && self.hearing.has_utterance() {
                    return snapshots.give_up();
                }
                let is_silent = self.client.has_played() && egress.has_left();
                let may = leave != Leave::WhenSilent || is_silent || is_gone;
                may && !has_inbound && self.is_movable() && self.store(true)
            }
        }
    }

    /// Announces a checkpoint and hands it over to be stored. Returns whether it did.
    fn store(&mut self, is_final: bool) -> bool {
        let Some(turn) = self.snapshots.as_ref().and_then(SnapshotSender::turn) else { return false };
        let began = Instant::now();
        // The snapshot holds its own announcement: a client goes back to where it received that. So does the final one, to
        // which it goes back where the next hub dies before it has stored a checkpoint of its own.
        self.client.announce_checkpoint();
        let Some(snapshot) = self.snapshot() else { return false };
        let Some(snapshots) = &mut self.snapshots else { return false };
        snapshots.store(snapshot, is_final, turn, began)
    }

    /// The state now; `None` while there is more to it than data.
    fn snapshot(&self) -> Option<Snapshot> {
        if !self.is_movable() {
            return None;
        }
        let (log, sent) = self.client.stored_log()?;
        let mut dialog = self.dialog.clone();
        if !self.client.is_framed() {
            // A frame counts as sent when the egress gets it, audio in events when it has left.
            for (item, n) in sent {
                let actions = dialog.step(self.now(), Event::AudioSent { item, n });
                debug_assert!(actions.is_empty(), "that audio was sent leads to nothing");
            }
        }
        let input = self.hearing.stored();
        let turns = self.timeline.counters();
        Some(self.client.snapshot(StoredParts { log, dialog, input, turns, at: self.now() }))
    }

    /// Whether nothing is under way that only this hub can finish.
    fn is_movable(&self) -> bool {
        self.dialog.is_quiet() && self.speaking.is_quiet() && self.links.is_quiet() && self.hearing.is_quiet()
    }

    /// Whether the session leaves, and its reply is to be made as quickly as it can be.
    fn is_leaving(&self) -> bool {
        let leaves = |leave| matches!(leave, Leave::WhenPossible | Leave::Now);
        self.snapshots.as_ref().is_some_and(|snapshots| leaves(snapshots.leave()))
    }

    /// Whether the client is at another hub: its silence here is not the speaker's.
    fn is_client_elsewhere(&self) -> bool {
        self.snapshots.as_ref().is_some_and(|snapshots| snapshots.leave() == Leave::Now)
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let now = self.now();
        self.timeline.end(&self.dialog, now);
    }
}
