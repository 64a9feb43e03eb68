//! The actor: one loop that waits for the next input and passes it to the reducer.

use super::clock::ClientClock;
use super::egress::{About, Close, Output, OutputEvent};
use super::expiry::SessionExpiry;
use super::failures::{causes, recognizer_failed};
use super::fair_order::{FairOrder, only_if};
use super::ingress::{Advance, Ingress};
use super::languages;
use super::limits::NoLimits;
use super::perform::{EventPayload, TranscriptLogprobs};
use super::playback::Playback;
use super::project::{Projector, TRANSCRIPTION_FAILED, code_of};
use super::remote;
use super::remote::Links;
use super::replay_log::DialogStart;
use super::replay_recorder::Recorder;
use super::responding::{FailedStage, Product};
use super::speculation::SpeculativeTask;
use super::timeline::{Begins, Timeline};
use super::transcription_task::{Report, until_free};
use super::voice::Voice;
use super::{
    AudioMode, Egress, Inbound, Keeping, Opening, SessionLimits, Setup, Snapshot, SnapshotError, WEBSOCKET, translate,
};
use antiphon_audio::codec::Delivery;
use antiphon_dialog::turn::Edge;
use antiphon_dialog::{Dialog, Event, PlaybackControl, ToolCallDelta};
use antiphon_engine_api::stt::SpeakerState;
use antiphon_protocol::{Dialect, ServerEvent};
use antiphon_types::{IdMint, ItemId, KeyId, Requester, ResponseId, SampleRate, Samples, SessionId, Timestamp};
use futures_util::FutureExt;
use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::DropGuard;

/// Capacity of the queue of products: a voice that is this far ahead waits. They are boxed, because a channel has room for 32
/// from the start: 8 KiB of each session that never speaks.
const PRODUCTS: usize = 8;
/// Capacity of the queue of reports.
const REPORTS: usize = 16;
/// More than the longest life of a session (`session.max_minutes`), for a snapshot whose clock is wrong.
const LONGEST_LIFE: Duration = Duration::from_secs(48 * 3_600);
/// The most concurrent transcriptions of a session: more are needed only when audio comes much faster than real time, and
/// then the client is read more slowly.
const MAX_TRANSCRIPTIONS: usize = 4;
/// Windows processed before other inputs: about 1 s of audio, 0.5 ms of work.
const WINDOWS_AT_ONCE: usize = 64;
/// A client that receives nothing for this long while messages wait for it is closed.
const STUCK: Duration = Duration::from_secs(10);
/// Time without messages that counts as silence of the speaker, in addition to the silence that ends a turn.
const STALL_MARGIN: Duration = Duration::from_millis(500);

/// One session.
pub(super) struct Actor {
    pub(super) setup: Arc<Setup>,
    /// The API key the session belongs to.
    pub(super) owner: Option<KeyId>,
    /// Whose its requests to the engines are: the key's, or the session's.
    pub(super) requester: Requester,
    pub(super) mode: AudioMode,
    /// Of the reply's packets.
    pub(super) delivery: Delivery,
    pub(super) dialect: Dialect,
    pub(super) clock: Instant,
    pub(super) dialog: Dialog,
    pub(super) ingress: Ingress,
    pub(super) egress: Arc<Egress>,
    pub(super) projector: Projector,
    /// The whole session object, as the client last saw it.
    pub(super) session: antiphon_protocol::Session,
    /// The kind of session cannot change any more: the connection, an update or a response has set it.
    pub(super) kind_is_fixed: bool,
    /// Of events, and of items with inline audio.
    pub(super) ids: IdMint,
    /// Transcriptions under way; dropping a guard cancels one.
    pub(super) transcriptions: HashMap<ItemId, DropGuard>,
    /// The turn model's work on the latest pause.
    pub(super) judging: Option<DropGuard>,
    /// Responses under way.
    pub(super) speaking: HashMap<ResponseId, (DropGuard, Voice)>,
    /// The stages that responses under way have failed in.
    pub(super) failed_in: HashMap<ResponseId, FailedStage>,
    /// The filler that is being synthesized.
    pub(super) filler: Option<DropGuard>,
    /// The speculative response.
    pub(super) speculative: Option<SpeculativeTask>,
    /// Remote servers, and the work under way there.
    pub(super) links: Links,
    pub(super) playback: Playback,
    pub(super) reports: mpsc::Sender<Report>,
    pub(super) products: mpsc::Sender<Box<Product>>,
    pub(super) timeline: Timeline,
    pub(super) client_clock: ClientClock,
    pub(super) speaker: Option<SpeakerState>,
    pub(super) last_audio: Timestamp,
    pub(super) life: SessionExpiry,
    /// The client is connected, as last reported to the reducer.
    pub(super) is_there: bool,
    /// Whether the client reads why an upstream failed, in its words.
    pub(super) sees_causes: bool,
    /// Messages of the client that were processed, over all its connections and hubs.
    pub(super) n_received: u64,
    /// The message that the session went back to, and how many messages of the client it held then: with the next one the client
    /// knows.
    pub(super) went_back: Option<(u64, u64)>,
    /// Where snapshots go.
    pub(super) keeping: Option<Keeping>,
    /// What the client may use.
    pub(super) limits: Arc<dyn SessionLimits>,
    /// When the client's socket is to be read again.
    pub(super) read_from: watch::Sender<Option<Instant>>,
    /// In which order the inputs are looked at.
    pub(super) order: FairOrder,
}

/// What the actor waits for.
enum Input {
    Message(Option<Inbound>),
    Report(Option<Report>),
    Product(Option<Box<Product>>),
    /// The writer has finished a message, or the connection has changed.
    Moved,
    /// Something that the next round looks at has changed.
    Looked,
    /// The server stops.
    Draining,
    /// A deadline has passed.
    Due,
}

/// What an actor runs with.
pub(super) struct ActorStart {
    reports: mpsc::Receiver<Report>,
    products: mpsc::Receiver<Box<Product>>,
    /// What a session begins with; `None`: it began on another hub.
    greeting: Option<Greeting>,
}

struct Greeting {
    /// Sent to the client with the first events.
    resume_key: Option<String>,
}

/// Whose the requests of a session are. Without a key a session fails by itself, and counts with the others of its client.
fn requester(owner: Option<KeyId>, session: &SessionId, limits: &dyn SessionLimits) -> Requester {
    let own = || {
        let session = Requester::of(session);
        limits.client().map_or(session, |client| session.within(client))
    };
    owner.map_or_else(own, Requester::from)
}

impl Actor {
    pub(super) fn new(setup: Arc<Setup>, id: &SessionId, seed: u64, opening: Opening) -> (Self, ActorStart) {
        let mode = opening.mode;
        let egress = Arc::new(Egress::new(opening.resume_key.is_some(), opening.dialect));
        let session = setup.session_object(id.clone(), &opening);
        let playback = if mode == AudioMode::Events { PlaybackControl::Client } else { PlaybackControl::Server };
        let (reports, report_inbox) = mpsc::channel(REPORTS);
        let (products, product_inbox) = mpsc::channel(PRODUCTS);
        let format = translate::format(session.audio.input.format);
        let mut ids = IdMint::new(seed ^ 0x6576_656e_7473);
        let clock = Instant::now();
        let limits = opening.limits.unwrap_or_else(|| Arc::new(NoLimits));
        let transport = opening.transport.unwrap_or(WEBSOCKET);
        let begins = Begins {
            session: id.clone(),
            owner: opening.owner,
            transport,
            at: SystemTime::now(),
            seed: seed ^ 0x7475_726e,
            may_report: mode != AudioMode::Events,
            records_audio: !setup.session.record.is_empty() && setup.session.record_audio,
            brownout: setup.brownout.clone(),
            limits: limits.clone(),
        };
        let timeline = Timeline::new(begins, setup.turn_history.clone(), setup.metrics.clone());
        let life = SessionExpiry::new(clock, setup.life(), mode != AudioMode::Events || opening.resume_key.is_some());
        let settings = setup.dialog_settings(&session);
        let turns = setup.turns(&session);
        let speculation = setup.speculation.limits();
        let follow_up_after = setup.follow_up_after();
        let max_tool_rounds = setup.session.max_tool_rounds;
        let start = || DialogStart {
            settings: settings.clone(),
            playback,
            seed,
            follow_up_after,
            max_tool_rounds,
            speculation,
        };
        let recorder = setup.recorder(id, turns, start);
        let mut ingress = Ingress::new(setup.engines.vad.clone(), format, turns, recorder)
            .keeping(setup.engines.turn.as_ref().map_or(Samples::ZERO, |model| model.span()));
        ingress.reduce_noise(noise_reduction(&session));
        let actor = Self {
            owner: opening.owner,
            requester: requester(opening.owner, id, &*limits),
            sees_causes: opening.sees_causes,
            mode,
            delivery: if transport == WEBSOCKET { Delivery::Reliable } else { Delivery::Lossy },
            dialect: opening.dialect,
            clock,
            dialog: Dialog::new(settings, playback, seed)
                .with_follow_up_after(follow_up_after)
                .with_max_tool_rounds(max_tool_rounds)
                .with_speculation(speculation),
            ingress,
            egress,
            projector: Projector::new(ids.next("conv")),
            session,
            kind_is_fixed: opening.intent.is_some() || opening.settings.is_some(),
            ids,
            transcriptions: HashMap::new(),
            judging: None,
            speaking: HashMap::new(),
            failed_in: HashMap::new(),
            filler: None,
            speculative: None,
            links: Links::default(),
            playback: Playback::new(Duration::from_millis(u64::from(setup.session.lead_ms))),
            reports,
            products,
            timeline,
            client_clock: ClientClock::default(),
            speaker: opening.language.map(|language| SpeakerState::PreferredLanguage(language.into())),
            last_audio: Timestamp::ZERO,
            life,
            is_there: true,
            n_received: 0,
            went_back: None,
            keeping: opening.keeping,
            limits,
            read_from: watch::Sender::new(None),
            order: FairOrder::new(seed),
            setup,
        };
        let greeting = Some(Greeting { resume_key: opening.resume_key });
        (actor, ActorStart { reports: report_inbox, products: product_inbox, greeting })
    }

    /// A session that another hub has served so far. Decoders, echo and noise reduction begin anew.
    pub(super) fn resumed(
        setup: Arc<Setup>,
        snapshot: Snapshot,
        dialect: Dialect,
        (keeping, limits): (Option<Keeping>, Option<Arc<dyn SessionLimits>>),
    ) -> Result<(Self, SessionId, ActorStart), SnapshotError> {
        let Snapshot { owner, mode, received, went_back_to, session, conversation, turns: counters, at, wall, .. } =
            snapshot;
        let session = antiphon_protocol::Session::from_stored(session)
            .map_err(|error| SnapshotError::Unreadable(error.param.unwrap_or(error.message)))?;
        let id = session.id.clone();
        let wall_now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // The session's clock goes on while no hub serves it. Clocks of two machines differ, and it never goes back.
        let elapsed = at.since_start().saturating_add(wall_now.saturating_sub(wall)).min(wall_now);
        let clock = Instant::now().checked_sub(elapsed).unwrap_or_else(Instant::now);
        let dialog = snapshot.dialog.with_servers(&remote::declared(&session.tools));
        let ids = snapshot.ids;
        let (reports, report_inbox) = mpsc::channel(REPORTS);
        let (products, product_inbox) = mpsc::channel(PRODUCTS);
        let limits = limits.unwrap_or_else(|| Arc::new(NoLimits));
        let begins = Begins {
            session: id.clone(),
            owner,
            transport: WEBSOCKET,
            at: UNIX_EPOCH + wall_now.saturating_sub(elapsed),
            seed: 0,
            may_report: mode != AudioMode::Events,
            // A replay log begins with its session.
            records_audio: false,
            brownout: setup.brownout.clone(),
            limits: limits.clone(),
        };
        let timeline = Timeline::new(begins, setup.turn_history.clone(), setup.metrics.clone()).behind(counters);
        let left = Duration::from_secs(session.expires_at).saturating_sub(wall_now).min(LONGEST_LIFE);
        let life = SessionExpiry::resumed(Instant::now(), left, setup.life(), true);
        let format = translate::format(session.audio.input.format);
        let turns = setup.turns(&session);
        if !setup.session.record.is_empty() {
            tracing::info!(session = %id, "a session that began on another hub is not recorded");
        }
        let mut ingress = Ingress::new(setup.engines.vad.clone(), format, turns, Recorder::default())
            .keeping(setup.engines.turn.as_ref().map_or(Samples::ZERO, |model| model.span()))
            .heard_elsewhere(setup.engines.vad.clone(), snapshot.input);
        ingress.reduce_noise(noise_reduction(&session));
        let playback = Playback::new(Duration::from_millis(u64::from(setup.session.lead_ms)));
        let dialect = Dialect { beta: snapshot.beta, ..dialect };
        let actor = Self {
            owner,
            requester: requester(owner, &id, &*limits),
            // A snapshot does not say from where its client calls.
            sees_causes: false,
            mode,
            // Only sessions over WebSockets are resumed.
            delivery: Delivery::Reliable,
            dialect,
            clock,
            dialog,
            ingress,
            egress: Arc::new(Egress::resumed(snapshot.log, dialect)),
            projector: Projector::new(conversation),
            session,
            kind_is_fixed: snapshot.kind_is_fixed,
            ids,
            transcriptions: HashMap::new(),
            judging: None,
            speaking: HashMap::new(),
            failed_in: HashMap::new(),
            filler: None,
            speculative: None,
            links: Links::resumed(),
            playback: playback.resumed(snapshot.playback),
            reports,
            products,
            timeline,
            client_clock: ClientClock::default(),
            speaker: None,
            last_audio: Timestamp::new(elapsed),
            life,
            is_there: snapshot.is_there,
            n_received: received,
            went_back: went_back_to.map(|number| (number, received)),
            keeping: keeping.map(|keeping| keeping.behind(received)),
            limits,
            read_from: watch::Sender::new(None),
            order: FairOrder::new(received),
            setup,
        };
        Ok((actor, id, ActorStart { reports: report_inbox, products: product_inbox, greeting: None }))
    }

    /// Runs until the client is gone or closed, or the session expires.
    pub(super) async fn run(mut self: Box<Self>, mut inbound: mpsc::Receiver<Inbound>, start: ActorStart) {
        let ActorStart { mut reports, mut products, greeting } = start;
        if let Some(Greeting { resume_key }) = greeting {
            self.greet(resume_key);
            self.begin_servers();
        }
        // Both are made once, since each one made takes a lock that all sessions share.
        let drain = self.setup.drain.clone();
        let mut drains = pin!(drain.cancelled());
        let mut timer = pin!(sleep_until(self.life.next_due()));
        let mut is_draining = false;
        loop {
            self.while_suspended().await;
            self.look_for_the_client();
            let more = self.process_windows();
            let settles = self.timeline.tell(&self.dialog, self.now());
            if !more && self.checkpoint(!inbound.is_empty()) {
                // The session goes on from its final snapshot. What is here ends with its handle.
                return std::future::pending().await;
            }
            let blocked = self.ingress.blocked_on();
            if is_draining && self.has_drained() {
                return self.egress.close(Close { code: 1001, reason: "the server is going away" });
            }
            let takes_audio = !more && blocked.is_none() && self.transcriptions.len() < MAX_TRANSCRIPTIONS;
            let takes_messages = takes_audio && self.egress.takes_requests();
            if !takes_messages || !self.egress.is_attached() || self.is_client_elsewhere() || self.is_paused() {
                // While the hub is behind or the connection is lost, missing audio is not the speaker's silence.
                self.last_audio = self.now();
            }
            let room = match self.is_leaving() {
                true => self.egress.has_room_to_leave() && self.playback.has_room_to_leave(),
                false => self.egress.has_room() && self.playback.has_room(self.setup.brownout.level()),
            };
            let deadline = self.next_deadline(settles);
            let waits = self.waits_for_storage();
            if timer.deadline() != deadline {
                timer.as_mut().reset(deadline);
            }
            let input = {
                let egress = &self.egress;
                let keeping = self.keeping.as_mut();
                let message = pin!(only_if(takes_messages, inbound.recv().map(Input::Message)));
                let report = pin!(reports.recv().map(Input::Report));
                let product = pin!(only_if(room, products.recv().map(Input::Product)));
                let moved = pin!(egress.moved().map(|()| Input::Moved));
                let stored = pin!(Keeping::moved(keeping, waits).map(|()| Input::Looked));
                let free = pin!(only_if(!more, until_free(blocked).map(|()| Input::Looked)));
                let draining = pin!(only_if(!is_draining, drains.as_mut().map(|()| Input::Draining)));
                let due = pin!(timer.as_mut().map(|()| Input::Due));
                let at_once = pin!(only_if(more, tokio::task::yield_now().map(|()| Input::Looked)));
                let mut inputs: [Pin<&mut (dyn Future<Output = Input> + Send)>; 9] =
                    [message, report, product, moved, stored, free, draining, due, at_once];
                self.order.first_ready(&mut inputs).await
            };
            match input {
                Input::Message(Some(message)) => self.inbound(message),
                Input::Message(None) => return,
                Input::Report(report) => self.report(report.expect("the actor holds a sender")),
                Input::Product(product) => self.product(*product.expect("the actor holds a sender")),
                Input::Moved => self.audio_left(),
                Input::Looked => {}
                Input::Draining => is_draining = true,
                Input::Due => {
                    if !inbound.is_empty() || self.is_paused() {
                        self.last_audio = self.now();
                    }
                    if self.is_over() {
                        return;
                    }
                }
            }
        }
    }

    /// Processes the available windows and passes each edge to the reducer. Returns whether there are more.
    fn process_windows(&mut self) -> bool {
        for _ in 0..WINDOWS_AT_ONCE {
            if self.transcriptions.len() >= MAX_TRANSCRIPTIONS && !self.ingress.has_utterance() {
                return false;
            }
            match self.ingress.advance() {
                Advance::Starved | Advance::Blocked => return false,
                Advance::Window => {}
                Advance::Edge(edge) => self.edge(edge),
            }
            // Endless noise is cut into turns.
            if self.ingress.utterance_length() >= self.max_utterance()
                && self.ingress.is_listening()
                && let Some(edge) = self.ingress.stall()
            {
                self.edge(edge);
            }
        }
        true
    }

    fn edge(&mut self, edge: Edge) {
        match edge {
            Edge::Onset { .. } => self.step(Event::VoiceOnset { position: self.ingress.position() }),
            Edge::Retracted => self.step(Event::VoiceRetracted),
            Edge::Started { at } => {
                self.step(Event::SpeechStarted { audio_start: self.ingress.audio_start(at) });
            }
            Edge::Paused { at } => {
                self.step(Event::Paused);
                self.ingress.paused();
                self.ask_turn_model(at);
            }
            Edge::Resumed => {
                self.ingress.resumed();
                self.step(Event::Resumed);
                if self.dialog.is_speech_tentative() {
                    self.step(Event::VoiceOnset { position: self.ingress.position() });
                }
            }
            Edge::Stopped { at } => self.step(Event::SpeechStopped { audio_end: at }),
        }
    }

    /// Passes an event to the reducer and performs its actions.
    pub(super) fn step(&mut self, event: Event) {
        let actions = self.decide(event);
        self.perform(actions, EventPayload::default());
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::Opened { item, waited } => self.timeline.decoder_opened(&item, waited),
            Report::Listed(item, result) => self.listed(item, result),
            Report::Linked(label, connection) => self.links.connected(label, connection),
            Report::Called(item, result) => {
                self.links.ended(&item);
                self.timeline.tool_ended();
                self.step(Event::RemoteCallEnded { item, result });
            }
            Report::Partial { item, text, n_sure_words, n_heard } => {
                self.ingress.partial(&item, &text, n_heard);
                self.step(Event::Partial { item, text, n_sure_words });
            }
            Report::ProvisionalTranscript { item, text, language, n_heard } => {
                self.timeline.provisional_transcribed(&item, self.now());
                self.ingress.partial(&item, &text, n_heard);
                let language = languages::named(language);
                self.step(Event::ProvisionalTranscript { item, text, language });
            }
            Report::Judged { pause_start, probability } => self.ingress.judged(probability, pause_start),
            Report::Learnt(item, speaker) => {
                self.transcriptions.remove(&item);
                self.speaker = speaker.or(self.speaker.take());
            }
            Report::Final { item, result, learns, served, meter } => {
                if !learns {
                    self.transcriptions.remove(&item);
                }
                let mut payload = EventPayload::default();
                let mut language = None;
                let result = result.map(|transcript| {
                    language = languages::named(transcript.language);
                    let logprobs = transcript.logprobs;
                    payload.logprobs = logprobs.map(|tokens| TranscriptLogprobs { item: item.clone(), tokens });
                    self.speaker = transcript.speaker.or(self.speaker.take());
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
                let actions =
                    self.decide(Event::Transcribed { item: item.clone(), result, language: language.clone() });
                self.perform(actions, payload);
                // Speech over a reply may be a turn only by these words.
                if !was_turn {
                    note(&mut self.timeline);
                }
                self.timeline.weighed();
            }
        }
    }

    fn product(&mut self, product: Product) {
        match product {
            Product::Mark(response, milestone, at) => self.timeline.mark(&response, milestone, at),
            Product::Filler(filler) => self.filler(filler),
            Product::Served(response, served) => self.timeline.spoken_by(&response, served),
            Product::FailedIn(response, stage) => {
                // One that was stopped ends otherwise.
                if self.speaking.contains_key(&response) {
                    self.failed_in.insert(response, stage);
                }
            }
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

    /// The earliest deadline; `settles`: that of the timeline.
    fn next_deadline(&self, settles: Option<Timestamp>) -> Instant {
        let now = self.now();
        let at = |timestamp: Timestamp| self.clock + timestamp.since_start();
        let stall = self.ingress.is_listening().then(|| at(self.last_audio) + self.silence() + STALL_MARGIN);
        let hold = self.dialog.next_deadline().filter(|_| !self.is_client_elsewhere()).map(at);
        let frame = self.egress.is_attached().then(|| self.playback.next_due(&self.dialog, now)).flatten().map(at);
        let stuck = self.egress.stuck_since().map(|since| since + STUCK);
        let checkpoint = self.checkpoint_due();
        [stall, hold, frame, stuck, settles.map(at), checkpoint]
            .into_iter()
            .flatten()
            .fold(self.life.next_due(), Instant::min)
    }

    /// Handles the deadlines that have passed; returns whether the session is over.
    fn is_over(&mut self) -> bool {
        let (now, instant) = (self.now(), Instant::now());
        if self.egress.stuck_since().is_some_and(|since| instant >= since + STUCK) {
            tracing::info!("the client takes nothing; its connection is given up");
            if self.egress.lose() {
                self.egress.detach();
                return false;
            }
            self.egress.close(Close { code: 1013, reason: "the client reads too slowly" });
            return true;
        }
        if self.has_expired(instant) {
            return true;
        }
        let stalled = now.since(self.last_audio) >= self.silence() + STALL_MARGIN;
        if stalled
            && self.ingress.is_listening()
            && let Some(edge) = self.ingress.stall()
        {
            self.edge(edge);
        }
        // Where the client is elsewhere, the next hub does what is due.
        if !self.is_client_elsewhere() && self.dialog.next_deadline().is_some_and(|due| now >= due) {
            self.step(Event::Tick { position: self.ingress.position() });
        }
        self.release_frames();
        false
    }

    /// While the server stops: whether the session is idle or its client disconnected.
    fn has_drained(&self) -> bool {
        if self.keeping.is_some() {
            return false;
        }
        let is_done = || self.transcriptions.is_empty() && self.dialog.active().is_none() && self.playback.is_empty();
        !self.egress.is_attached() || is_done()
    }

    /// The longest utterance.
    pub(super) fn max_utterance(&self) -> Samples {
        Samples::from_ms(1_000 * u64::from(self.setup.session.max_utterance_seconds), SampleRate::HZ_16000)
    }

    /// The silence that would end the turn now.
    fn silence(&self) -> Duration {
        self.ingress.wait().duration(SampleRate::HZ_16000)
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::new(self.clock.elapsed())
    }

    /// Whether audio travels in binary frames.
    pub(super) fn is_framed(&self) -> bool {
        self.mode != AudioMode::Events
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
                | ServerEvent::ItemTruncated { .. },
            ) => About::Items,
            (None, _) => About::Session,
        };
        if let Some(event) = self.numbered(event) {
            let n_bytes = self.egress.push(Output::Event(event), about);
            self.setup.metrics.bytes_out(n_bytes as u64);
        }
    }

    /// An event with its id; `None`: the client's protocol does not have it.
    pub(super) fn numbered(&mut self, event: ServerEvent) -> Option<OutputEvent> {
        let event_id = self.ids.next("event");
        self.dialect.has(&event).then_some(OutputEvent { event_id, event })
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let now = self.now();
        self.timeline.end(&self.dialog, now);
    }
}

fn noise_reduction(session: &antiphon_protocol::Session) -> Option<antiphon_audio::NoiseReduction> {
    session.audio.input.noise_reduction.as_ref().and_then(translate::noise_reduction)
}
