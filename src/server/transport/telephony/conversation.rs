//! The conversation of one phone call: what goes between its peer and its session.
//!
//! [`super::arrival`], [`super::accounts`] and [`super::sip`] call [`converse`] for a call that has its session,
//! [`super::warm_transfer`] for one that says a summary. Three futures of one task run until one of them ends the call: the
//! reader passes the caller's audio and keys to the session, the writer plays the session's audio and clears it at a barge-in, and
//! the reporter says what was heard. The notice of a recording ([`super::recording_notice`]) comes first. Nothing here knows a
//! peer's protocol ([`super::leg`]) or decides anything about the dialog.

use super::answerer::{AnswerPlan, Answerer, HeardWords, SessionActivity, Step};
use super::answering::fax::FaxDetector;
use super::audio::{Microphone, SessionFrame, Voice};
use super::leg::{Coding, Leg, LegError, PeerMessage, Start};
use super::link::{Incoming, PeerGone, Sink, Source};
use super::paced::PacedAudio;
use super::playout::{HeardPosition, Playout};
use super::recording_notice::{NoticeProgress, NoticeStep, RecordingNotice};
use super::reply_progress::{ReplySound, ReplyTracker, reply_progress};
use crate::config::OnVoicemail;
use crate::server::sessions::heartbeat::{Beat, Heartbeat, HeartbeatReset};
use crate::server::transport::call::{Call, CallOutput, alive};
use crate::server::transport::calls::CallEntry;
use crate::server::transport::keypad::{self, Keypad, OwedReply};
use crate::server::transport::parts::TransportParts;
use antiphon_audio::codec::CodecError;
use antiphon_protocol::{ClientEvent, ClockPing, ResponseParams, Role, ServerEvent};
use antiphon_session::{InboundPayload, OutputAudio, OutputEvent};
use antiphon_types::Samples;
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// A frame of a peer without marks.
const FRAME: Duration = Duration::from_millis(20);
/// A paced peer that was idle, or that is this much behind, gets its next frame at once.
const BEHIND: Duration = Duration::from_millis(100);
/// After this time without audio of the peer, silence is put in its place, so that turns end. Shorter gaps are the network's.
const QUIET: Duration = Duration::from_secs(1);
/// How often it goes on.
const QUIET_STEP: Duration = Duration::from_millis(100);
/// Positions on their way to the session: 6 s of them. Beyond, they are dropped; a later one says more.
const MAX_REPORTS: usize = 64;
/// Answers to pings that the round trip is taken from: one may have waited here until it was read.
const ROUND_TRIPS: usize = 4;

/// How a call ends.
#[derive(Debug)]
pub(super) enum Over {
    /// The peer ended it, or is gone.
    Gone,
    /// The hub ends it: a close code and its reason.
    Close(u16, Cow<'static, str>),
}

impl Over {
    /// As the audit log has it: without words of the peer.
    pub(super) fn outcome(&self) -> String {
        match self {
            Self::Gone => "ok".into(),
            Self::Close(1000, _) => "hung up".into(),
            Self::Close(code, _) => format!("closed with {code}"),
        }
    }
}

impl From<PeerGone> for Over {
    fn from(_: PeerGone) -> Self {
        Self::Gone
    }
}

impl From<LegError> for Over {
    fn from(error: LegError) -> Self {
        Self::Close(error.code(), error.to_string().into())
    }
}

impl From<CodecError> for Over {
    fn from(error: CodecError) -> Self {
        Self::Close(1007, error.to_string().into())
    }
}

/// Has the conversation of a call whose session is open, from its start until it ends. Gives why; the connection is the
/// caller's to close. A conversation that is dropped leaves the connection and the leg as they are.
pub(super) async fn converse(
    transport: &TransportParts,
    entry: &CallEntry,
    leg: &mut dyn Leg,
    start: &Start,
    beginning: Beginning,
    (source, sink): &mut (Source, Sink),
) -> Over {
    Conversation::new(entry, leg).run(transport, start, beginning, (source, sink)).await
}

/// What a conversation begins with.
#[derive(Default)]
pub(super) struct Beginning {
    /// Instructions of the first reply.
    pub(super) greeting: Option<String>,
    /// Follows the reply for the call's tools.
    pub(super) tracker: Option<ReplyTracker>,
    /// Said before the first reply; `None`: the call is not recorded, or nothing is said about that.
    pub(super) notice: Option<RecordingNotice>,
    /// What the hub does about who answers, where it called: the line has counted as held. `None`: it did not call.
    pub(super) answer: Option<AnswerPlan>,
    /// Whether the caller waits.
    pub(super) line: HeldLine,
    /// Cancelled once the hub no longer does anything about who answers.
    pub(super) plan_done: CancellationToken,
}

/// Whether a caller waits: what it says and presses does not reach the session, which says nothing by itself. Cheap to
/// clone.
#[derive(Clone, Default)]
pub(super) struct HeldLine(watch::Sender<bool>);

impl HeldLine {
    pub(super) fn hold(&self, is_held: bool) {
        self.0.send_replace(is_held);
    }

    fn is_held(&self) -> bool {
        *self.0.borrow()
    }

    /// Resolves when this is no longer so. Cancel safe.
    async fn changes_from(&self, is_held: bool) {
        // There is a sender.
        let _ = self.0.subscribe().wait_for(|now| *now != is_held).await;
    }
}

struct Conversation<'a> {
    entry: &'a CallEntry,
    call: &'a Call,
    began: Instant,
    shared: Mutex<CallState<'a>>,
}

/// What the reader and the writer share.
struct CallState<'a> {
    leg: &'a mut dyn Leg,
    playout: Playout,
    /// To the peer and back, by the last pings.
    round_trips: VecDeque<Duration>,
    /// Responses of the conversation under way.
    n_responses: u32,
    owed_reply: OwedReply,
    /// What is said to the hub, where it matters who answers.
    words: Option<HeardWords>,
    /// Follows the notice of a recording, where one is said.
    notice: Option<NoticeProgress>,
    /// Follows the reply, where its end matters.
    tracker: Option<ReplyTracker>,
}

impl CallState<'_> {
    /// To the peer and back: the shortest of the last times.
    fn round_trip(&self) -> Duration {
        self.round_trips.iter().min().copied().unwrap_or_default()
    }

    /// Follows whether the reply sounds. `has_waiting`: some of it waits for its time here.
    fn follow_reply(&self, has_waiting: bool) {
        if let Some(tracker) = &self.tracker {
            tracker.update(has_waiting || self.playout.is_sounding(Instant::now()));
        }
    }
}

impl<'a> Conversation<'a> {
    fn new(entry: &'a CallEntry, leg: &'a mut dyn Leg) -> Self {
        let shared = CallState {
            leg,
            playout: Playout::default(),
            round_trips: VecDeque::new(),
            n_responses: 0,
            owed_reply: OwedReply::default(),
            words: None,
            notice: None,
            tracker: None,
        };
        Self { entry, call: entry.call(), began: Instant::now(), shared: Mutex::new(shared) }
    }

    /// The call's clock, which times in client events use.
    fn now_ms(&self) -> f64 {
        self.began.elapsed().as_secs_f64() * 1e3
    }

    fn shared(&self) -> MutexGuard<'_, CallState<'a>> {
        self.shared.lock().expect("no panic while locked")
    }

    async fn run(
        &self,
        transport: &TransportParts,
        start: &Start,
        beginning: Beginning,
        (source, sink): (&mut Source, &mut Sink),
    ) -> Over {
        let Beginning { mut greeting, mut tracker, mut notice, answer, line, plan_done } = beginning;
        if answer.as_ref().is_none_or(|plan| plan.on_voicemail == OnVoicemail::GoOn) {
            plan_done.cancel();
        }
        let mut answering = None;
        let mut held_since = None;
        if let Some(plan) = answer {
            let n_responses = plan.n_responses;
            // Without tools the model does not ask.
            let tracker = tracker.get_or_insert_with(|| reply_progress("").0);
            if n_responses > 0 && notice.is_some() {
                // A client has asked for the first reply. The hub asks again behind the notice.
                greeting.get_or_insert_default();
            }
            let answerer = Answerer::new(plan, start.input, &mut greeting, notice.is_some());
            if let Some(notice) = notice.as_mut().filter(|_| answerer.awaits_notice()) {
                notice.wait();
            }
            answering = Some(Answering { answerer, reply: tracker.sound() });
            held_since = Some(Instant::now());
            if n_responses > 0 && notice.is_none() {
                greeting = None;
            }
            let mut shared = self.shared();
            shared.words = Some(HeardWords::default());
            shared.n_responses = n_responses;
        }
        let notice = notice.map(|mut notice| {
            if greeting.is_some() {
                notice.expect_greeting();
            }
            let tracker = tracker.get_or_insert_with(|| reply_progress("").0);
            SpokenNotice { notice, reply: tracker.sound() }
        });
        self.shared().tracker = tracker;
        let has_marks = self.has_marks();
        let (reports, heard) = mpsc::channel(MAX_REPORTS);
        let (reset, heartbeat) =
            Heartbeat::new(Duration::from_secs(u64::from(transport.sessions.edge.config.ping_seconds)));
        let reader = Reader {
            conversation: self,
            microphone: Microphone::new(start.input),
            keypad: Keypad::new(transport.telephony.key_pause),
            reset,
            reports: reports.clone(),
            coding: start.input,
            has_marks,
            // The hub does not call fax machines: those that it reaches answer.
            fax: answering.is_none().then(|| FaxDetector::new(start.input.rate)),
            answering,
            plan_done,
            line,
            waits: false,
            peer_holds: false,
            held_since,
            notice,
            greeting,
            heard_until: Instant::now(),
            is_quiet: false,
            has_audio: false,
        };
        let heartbeat = sink.has_pings().then_some(heartbeat);
        let writer = Writer {
            conversation: self,
            voice: Voice::new(start.output),
            paced: (!has_marks).then(PacedAudio::default),
            next_frame: Instant::now(),
            sink,
            reports,
        };
        tokio::select! {
            over = reader.run(source) => over,
            over = writer.run(heartbeat) => over,
            () = self.entry.hung_up().cancelled() => Over::Close(1000, "hung up".into()),
            never = self.report(heard) => never,
        }
    }

    /// A leg says by its first mark whether it has any.
    fn has_marks(&self) -> bool {
        self.shared().leg.mark(super::leg::Mark(0)).is_some()
    }

    /// Passes positions on. Apart from the writer, which has to take the session's output meanwhile.
    async fn report(&self, mut heard: mpsc::Receiver<(HeardPosition, bool)>) -> Over {
        while let Some((heard, stopped)) = heard.recv().await {
            if self.call.send_event(heard.event(stopped, self.began)).await.is_err() {
                break;
            }
        }
        // The writer sends what the session still says, and its close.
        pending().await
    }
}

/// From the peer to the session.
struct Reader<'r, 'a> {
    conversation: &'r Conversation<'a>,
    microphone: Microphone,
    keypad: Keypad,
    reset: HeartbeatReset,
    reports: mpsc::Sender<(HeardPosition, bool)>,
    coding: Coding,
    /// Whether the peer says what it has played.
    has_marks: bool,
    /// Finds fax machines that call; `None`: it is known, or the hub calls.
    fax: Option<FaxDetector>,
    /// Finds out who answers; `None`: it is known, or does not matter.
    answering: Option<Answering>,
    /// See [`Beginning::plan_done`].
    plan_done: CancellationToken,
    line: HeldLine,
    /// Whether the session gets silence because the hub has the caller wait.
    waits: bool,
    /// Whether the peer has put the call on hold.
    peer_holds: bool,
    /// Since when the session takes the line for held: one of them is so, or the call was not answered before.
    held_since: Option<Instant>,
    /// What is said before the first reply.
    notice: Option<SpokenNotice>,
    /// Instructions of the first reply, until it is asked for.
    greeting: Option<String>,
    /// Up to when there is audio.
    heard_until: Instant,
    /// Silence stands in for the peer's audio.
    is_quiet: bool,
    has_audio: bool,
}

/// What finds out who answers.
struct Answering {
    answerer: Answerer,
    reply: ReplySound,
}

/// The notice of a recording, and whether something sounds.
struct SpokenNotice {
    notice: RecordingNotice,
    reply: ReplySound,
}

impl Reader<'_, '_> {
    async fn run(mut self, source: &mut Source) -> Over {
        let asked_ms = self.conversation.now_ms();
        let ping = ClockPing { client_ms: asked_ms, pong_ms: None, microphone_ms: None };
        self.send(ClientEvent::ClockPing(ping)).await;
        if !source.is_on_hold() {
            self.hold_changed().await;
            self.greet().await;
        }
        loop {
            let keys_end = self.keypad.until();
            let quiet_at = self.heard_until + if self.is_quiet { QUIET_STEP } else { QUIET };
            let notice_at = self.notice_due_at();
            let said = tokio::select! {
                // Audio that waits comes before silence.
                biased;
                incoming = source.next() => {
                    self.reset.renew();
                    match self.read(incoming) {
                        Ok(said) => said,
                        Err(over) => return over,
                    }
                }
                () = sleep_until(keys_end.unwrap_or(quiet_at)), if keys_end.is_some() => {
                    if let Some(keys) = self.keypad.end() {
                        self.entered(&keys).await;
                    }
                    None
                }
                () = sleep_until(quiet_at) => {
                    if let Err(error) = self.rest().await {
                        return error.into();
                    }
                    None
                }
                () = sleep_until(notice_at.unwrap_or(quiet_at)), if notice_at.is_some() => None,
                () = self.line.changes_from(self.waits) => None,
            };
            self.follow_line().await;
            self.proceed_with_notice().await;
            self.answer_keys().await;
            match said {
                None => {}
                Some(PeerMessage::Audio { number, audio }) => {
                    if !std::mem::replace(&mut self.has_audio, true) {
                        // The clock of a call is the hub's own: its first ping was answered at once.
                        let now_ms = self.conversation.now_ms();
                        let way_ms = self.conversation.shared().round_trip().as_secs_f64() * 500.0;
                        let microphone_ms = now_ms - FRAME.as_secs_f64() * 1e3 - way_ms;
                        let ping = ClockPing {
                            client_ms: now_ms,
                            pong_ms: Some(asked_ms),
                            microphone_ms: Some(microphone_ms),
                        };
                        self.send(ClientEvent::ClockPing(ping)).await;
                    }
                    let audio = self.listen(audio).await;
                    let frames = match self.microphone.push(number, audio) {
                        Ok(frames) => frames,
                        Err(error) => return error.into(),
                    };
                    self.push(frames).await;
                    // Not before: the session may have taken them only after a wait.
                    self.heard_until = Instant::now();
                    self.is_quiet = false;
                }
                Some(PeerMessage::Key(_)) if self.is_held() => {}
                Some(PeerMessage::Key(key)) => self.pressed(key).await,
                Some(PeerMessage::Played(mark)) => {
                    let heard = {
                        let mut shared = self.conversation.shared();
                        let round_trip = shared.round_trip();
                        shared.playout.played(mark, Instant::now(), round_trip)
                    };
                    if let Some(heard) = heard {
                        let _ = self.reports.try_send((heard, false));
                    }
                }
                Some(PeerMessage::Held(is_held)) => self.peer_held(is_held).await,
                Some(PeerMessage::Ended) => return Over::Gone,
                Some(PeerMessage::Started(_)) => return LegError::StartedTwice.into(),
            }
            if self.has_marks {
                self.conversation.shared().follow_reply(false);
            }
        }
    }

    fn read(&self, incoming: Incoming) -> Result<Option<PeerMessage>, Over> {
        let mut shared = self.conversation.shared();
        match incoming {
            Incoming::Text(text) => Ok(shared.leg.text(&text)?),
            Incoming::Binary(bytes) => Ok(shared.leg.binary(bytes)?),
            Incoming::Pong(sent_us) => {
                let now_us = self.conversation.began.elapsed().as_micros() as u64;
                if shared.round_trips.len() == ROUND_TRIPS {
                    shared.round_trips.pop_front();
                }
                let round_trip = Duration::from_micros(now_us.saturating_sub(sent_us));
                shared.round_trips.push_back(round_trip.min(Duration::from_secs(2)));
                Ok(None)
            }
            Incoming::Message(message) => Ok(Some(message)),
            Incoming::Sign => Ok(None),
            Incoming::Gone => Err(Over::Gone),
            Incoming::Violation(code, reason) => Err(Over::Close(code, reason.into())),
        }
    }

    async fn rest(&mut self) -> Result<(), CodecError> {
        let now = Instant::now();
        let ms = now.duration_since(self.heard_until).as_millis() as u64;
        self.heard_until = now;
        self.is_quiet = true;
        if self.answering.is_some() || self.fax.is_some() {
            let n = Samples::from_ms(ms, self.coding.rate);
            self.listen(self.coding.encode(&vec![0; n.0 as usize]).into()).await;
        }
        let frames = self.microphone.rest(ms)?;
        self.push(frames).await;
        Ok(())
    }

    /// Finds out who answers, does what follows from it, and gives what the session hears.
    async fn listen(&mut self, audio: Bytes) -> Bytes {
        self.hang_up_on_fax(&audio);
        if self.is_held() {
            return self.silence_like(&audio);
        }
        let is_muted = self.find_out_who_answers(&audio).await;
        let is_notice = self.notice.as_ref().is_some_and(|spoken| spoken.notice.mutes_line());
        if is_muted || is_notice { self.silence_like(&audio) } else { audio }
    }

    /// Takes what is on the line. `true`: the session does not hear it.
    async fn find_out_who_answers(&mut self, audio: &[u8]) -> bool {
        let Some(Answering { answerer, reply }) = &mut self.answering else { return false };
        let steps = {
            let mut shared = self.conversation.shared();
            let activity = SessionActivity { n_responses: shared.n_responses, is_sounding: reply.is_sounding() };
            let words = shared.words.get_or_insert_default();
            answerer.listen(audio, words, activity)
        };
        let is_muted = answerer.mutes_line();
        let is_done = answerer.is_done();
        if is_done {
            self.answering = None;
            self.conversation.shared().words = None;
        }
        for step in steps {
            self.take(step).await;
        }
        // A call that ends is not transferred.
        if is_done && !self.conversation.entry.hung_up().is_cancelled() {
            self.plan_done.cancel();
        }
        is_muted
    }

    fn silence_like(&self, audio: &[u8]) -> Bytes {
        let n_samples = audio.len() / self.coding.format.bytes_per_sample();
        self.coding.encode(&vec![0; n_samples]).into()
    }

    fn is_held(&self) -> bool {
        self.waits || self.peer_holds
    }

    /// Notices that the hub has the caller wait, or no longer. What was said and pressed and not answered is dropped then.
    async fn follow_line(&mut self) {
        let waits = self.line.is_held();
        if std::mem::replace(&mut self.waits, waits) == waits {
            return;
        }
        if waits {
            let _ = self.keypad.end();
            if self.notice_held() {
                self.interrupt().await;
            }
            self.send(ClientEvent::InputAudioClear).await;
        }
        self.hold_changed().await;
    }

    /// The peer has put the call on hold, which ends the reply, or goes on. What was said before is answered afterwards.
    async fn peer_held(&mut self, is_held: bool) {
        self.peer_holds = is_held;
        // Who waits hears no reply, and what the model asked for goes on.
        if is_held && self.held_since.is_none() {
            let _ = self.keypad.end();
            self.notice_held();
            self.interrupt().await;
        }
        self.hold_changed().await;
    }

    /// Reports to the session where the line's hold begins or ends.
    async fn hold_changed(&mut self) {
        match (self.is_held(), self.held_since) {
            (true, None) => {
                self.held_since = Some(Instant::now());
                self.send(InboundPayload::LineHeld(true)).await;
            }
            (false, Some(since)) => {
                self.held_since = None;
                if let Some(spoken) = &mut self.notice {
                    spoken.notice.resumed(since.elapsed());
                }
                self.send(InboundPayload::LineHeld(false)).await;
                let answerer = self.answering.as_mut().map(|answering| &mut answering.answerer);
                let steps = answerer.map(|answerer| answerer.resumed(since.elapsed())).unwrap_or_default();
                for step in steps {
                    self.take(step).await;
                }
                self.greet().await;
            }
            _ => {}
        }
    }

    /// Asks for the notice of a recording, where it is due, or else for the greeting, where none is to come first: each
    /// once.
    async fn greet(&mut self) {
        if let Some(spoken) = &mut self.notice {
            if spoken.notice.begin(Instant::now()) {
                return self.request_notice().await;
            }
            if !spoken.notice.lets_greet() {
                return;
            }
        }
        if let Some(instructions) = self.greeting.take() {
            self.respond(instructions).await;
        }
    }

    /// Greets behind the notice, in the place of a reply that has begun meanwhile.
    async fn greet_behind_notice(&mut self) {
        let is_responding = self.conversation.shared().n_responses > 0;
        if is_responding && self.greeting.is_some() {
            self.interrupt().await;
        }
        self.greet().await;
    }

    /// Has the model speak, by these instructions or, where they are empty, its own.
    async fn respond(&mut self, instructions: String) {
        let instructions = Some(instructions).filter(|instructions| !instructions.is_empty());
        let params = ResponseParams { instructions, ..ResponseParams::default() };
        self.send(ClientEvent::ResponseCreate(Box::new(params))).await;
    }

    /// Asks for the notice, in the place of other responses.
    async fn request_notice(&mut self) {
        let Some(spoken) = &mut self.notice else { return };
        let (params, progress) = spoken.notice.request();
        let is_responding = {
            let mut shared = self.conversation.shared();
            shared.notice = Some(progress);
            shared.n_responses > 0
        };
        if is_responding {
            // A client has asked for a first reply, which follows the notice.
            self.greeting.get_or_insert_default();
            spoken.notice.expect_greeting();
            self.interrupt().await;
        }
        self.send(ClientEvent::ResponseCreate(Box::new(params))).await;
    }

    /// When [`Self::proceed_with_notice`] is due.
    fn notice_due_at(&self) -> Option<Instant> {
        let spoken = self.notice.as_ref().filter(|_| !self.is_held())?;
        spoken.notice.due_at()
    }

    /// Whether the line's hold cuts the notice off.
    fn notice_held(&mut self) -> bool {
        self.notice.as_mut().is_some_and(|spoken| spoken.notice.held())
    }

    /// Follows the notice, and greets behind it.
    async fn proceed_with_notice(&mut self) {
        if self.is_held() {
            return;
        }
        let Some(SpokenNotice { notice, reply }) = &mut self.notice else { return };
        let step = {
            let shared = self.conversation.shared();
            let activity = SessionActivity { n_responses: shared.n_responses, is_sounding: reply.is_sounding() };
            let progress = shared.notice.as_ref();
            progress.and_then(|progress| notice.proceed(progress, activity, Instant::now()))
        };
        match step {
            None => {}
            Some(NoticeStep::Repeat) => {
                self.send(ClientEvent::InputAudioClear).await;
                self.request_notice().await;
            }
            Some(NoticeStep::Cut) => {
                self.interrupt().await;
                self.greet().await;
            }
            Some(NoticeStep::Greet) => self.greet_behind_notice().await,
        }
    }

    fn hang_up_on_fax(&mut self, audio: &[u8]) {
        let Some(fax) = &mut self.fax else { return };
        let mut samples = Vec::new();
        // The microphone reports audio that cannot be decoded.
        if self.coding.decode(audio, &mut samples).is_ok() && fax.push(&samples) {
            tracing::info!(session = %self.conversation.call.session(), "a fax machine calls: the call ends");
            self.conversation.entry.hung_up().cancel();
            self.fax = None;
        } else if fax.is_done() {
            self.fax = None;
        }
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Report(answered_by) => self.conversation.entry.set_answered_by(answered_by),
            Step::Tell(text) => self.send(keypad::message(Role::System, text)).await,
            Step::Respond(instructions) => self.respond(instructions).await,
            Step::SayNotice => {
                if let Some(spoken) = &mut self.notice {
                    spoken.notice.answered();
                }
                // What was said until then is not answered.
                self.send(ClientEvent::InputAudioClear).await;
                self.greet().await;
            }
            Step::SkipNotice => {
                if let Some(spoken) = &mut self.notice {
                    spoken.notice.unheard();
                }
                self.greeting = None;
            }
            Step::CutNotice => {
                let is_cut = self.notice.as_mut().is_some_and(|spoken| spoken.notice.unheard());
                if is_cut {
                    self.interrupt().await;
                    self.greet().await;
                } else {
                    self.greet_behind_notice().await;
                }
            }
            Step::Stop => self.interrupt().await,
            Step::DropTurn => self.send(ClientEvent::InputAudioClear).await,
            Step::HangUp => self.conversation.entry.hung_up().cancel(),
        }
    }

    async fn push(&mut self, frames: Vec<SessionFrame>) {
        for (at, payload) in frames {
            if alive(&self.reset, self.conversation.call.push_audio(at, payload)).await.is_err() {
                pending().await
            }
        }
    }

    /// The first key of an entry stops a reply, as speech does. A key that decides about the recording, or comes during its notice, is of no entry.
    async fn pressed(&mut self, key: char) {
        if self.notice.as_mut().is_some_and(|spoken| spoken.notice.takes(key)) {
            let event = self.keypad.pass(key);
            self.conversation.entry.publish(&event);
            return self.proceed_with_notice().await;
        }
        let begins = self.keypad.is_empty();
        let entry = self.keypad.press(key, Instant::now());
        self.conversation.entry.publish(&self.keypad.event(key));
        if begins {
            self.interrupt().await;
        }
        if let Some(keys) = entry {
            self.entered(&keys).await;
        }
    }

    /// An entry is a message of the user, which the model answers or passes to a tool: at once, or with what the user is
    /// saying.
    async fn entered(&mut self, keys: &str) {
        // A reply may have begun since the first key.
        self.interrupt().await;
        self.send(keypad::user_message(keypad::words(keys))).await;
        self.conversation.shared().owed_reply.entered();
        self.answer_keys().await;
    }

    /// Asks for the reply to an entry of keys where it is due.
    async fn answer_keys(&mut self) {
        let is_due = self.conversation.shared().owed_reply.is_due(Instant::now());
        if is_due {
            self.send(ClientEvent::ResponseCreate(Box::default())).await;
        }
    }

    async fn interrupt(&mut self) {
        if self.conversation.shared().n_responses > 0 {
            self.send(ClientEvent::ResponseCancel { response_id: None }).await;
        }
        self.send(ClientEvent::OutputAudioClear).await;
    }

    async fn send(&mut self, event: impl Into<InboundPayload>) {
        if alive(&self.reset, self.conversation.call.send_event(event)).await.is_err() {
            pending().await
        }
    }
}

/// From the session to the peer.
struct Writer<'r, 'a> {
    conversation: &'r Conversation<'a>,
    voice: Voice,
    /// For a peer without marks.
    paced: Option<PacedAudio>,
    /// When its next frame is due.
    next_frame: Instant,
    sink: &'r mut Sink,
    reports: mpsc::Sender<(HeardPosition, bool)>,
}

impl Writer<'_, '_> {
    async fn run(mut self, mut heartbeat: Option<Heartbeat>) -> Over {
        // The round trip is known before the first reply.
        if self.ping().await.is_err() {
            return Over::Gone;
        }
        let mut is_over = false;
        loop {
            let has_room = is_over || self.paced.as_ref().is_none_or(PacedAudio::has_room);
            let is_due = self.paced.as_ref().is_some_and(PacedAudio::is_due) || self.sink.is_continuous();
            let beat = async {
                match &mut heartbeat {
                    Some(heartbeat) => heartbeat.beat().await,
                    None => pending().await,
                }
            };
            let done = tokio::select! {
                output = self.conversation.call.next(), if has_room => match output {
                    CallOutput::Audio(OutputAudio { item, offset, payload, .. }) => {
                        let frames = self.voice.push(&item, offset, &payload);
                        self.play(frames).await
                    }
                    CallOutput::Event(event) => self.event(&event).await,
                    CallOutput::Closed(close) => return Over::Close(close.code, close.reason.into()),
                },
                () = sleep_until(self.next_frame), if is_due => self.frame().await,
                () = self.conversation.call.ended(), if !has_room => {
                    // What does not fit any more is not played: the close comes behind it.
                    is_over = true;
                    Ok(())
                }
                beat = beat => match beat {
                    Beat::Ping => self.ping().await,
                    Beat::Dead => return Over::Close(1011, "no answer to two pings".into()),
                },
            };
            if done.is_err() {
                return Over::Gone;
            }
            let has_waiting = self.paced.as_ref().is_some_and(|paced| !paced.is_empty());
            self.conversation.shared().follow_reply(has_waiting);
        }
    }

    async fn ping(&mut self) -> Result<(), PeerGone> {
        let now_us = self.conversation.began.elapsed().as_micros() as u64;
        self.sink.ping(now_us).await
    }

    async fn play(&mut self, frames: Vec<super::audio::PeerFrame>) -> Result<(), PeerGone> {
        for super::audio::PeerFrame { item, from, end, audio } in frames {
            if let Some(paced) = &mut self.paced {
                paced.push(item, end, audio);
                continue;
            }
            let (packet, mark) = {
                let mut shared = self.conversation.shared();
                let round_trip = shared.round_trip();
                let mark = shared.playout.sent(&item, (from, end), Instant::now(), round_trip);
                (shared.leg.play(audio), mark.and_then(|mark| shared.leg.mark(mark)))
            };
            self.sink.send(packet).await?;
            if let Some(mark) = mark {
                self.sink.send(mark).await?;
            }
        }
        Ok(())
    }

    /// Sends the next frame of a paced peer, or silence where it gets audio all the time.
    async fn frame(&mut self) -> Result<(), PeerGone> {
        let now = Instant::now();
        self.next_frame =
            if now.saturating_duration_since(self.next_frame) > BEHIND { now } else { self.next_frame } + FRAME;
        let next = self.paced.as_mut().filter(|paced| paced.is_due()).and_then(|paced| paced.next(now));
        let Some((audio, heard)) = next else {
            self.sink.idle();
            return Ok(());
        };
        let packet = self.conversation.shared().leg.play(audio);
        self.sink.send(packet).await?;
        if let Some(heard) = heard {
            let _ = self.reports.try_send((heard, false));
        }
        Ok(())
    }

    async fn event(&mut self, event: &OutputEvent) -> Result<(), PeerGone> {
        // The extensions are the hub's own: it plays the reply. Clients that have joined have asked for none.
        if !event.event.is_extension() {
            self.conversation.entry.publish(event);
        }
        if let Some(tracker) = &mut self.conversation.shared().tracker {
            tracker.happened(&event.event);
        }
        if let Some(words) = &mut self.conversation.shared().words {
            words.happened(&event.event);
        }
        if let Some(notice) = &mut self.conversation.shared().notice {
            notice.happened(&event.event);
        }
        self.conversation.shared().owed_reply.happened(&event.event, Instant::now());
        match &event.event {
            ServerEvent::ResponseCreated { response } if response.conversation_id.is_some() => {
                self.conversation.shared().n_responses += 1;
            }
            ServerEvent::ResponseDone { response } if response.conversation_id.is_some() => {
                let mut shared = self.conversation.shared();
                shared.n_responses = shared.n_responses.saturating_sub(1);
            }
            ServerEvent::OutputAudioSent { .. } => {
                let frames = self.voice.finish();
                self.play(frames).await?;
                let mark = {
                    let mut shared = self.conversation.shared();
                    shared.playout.finished().and_then(|mark| shared.leg.mark(mark))
                };
                if let Some(mark) = mark {
                    self.sink.send(mark).await?;
                }
            }
            ServerEvent::OutputCleared { .. } => self.clear().await?,
            ServerEvent::OutputHeld { .. } => self.hold(true).await?,
            ServerEvent::OutputResumed { .. } => self.hold(false).await?,
            _ => {}
        }
        Ok(())
    }

    /// Stops playback, then says where it stopped.
    async fn clear(&mut self) -> Result<(), PeerGone> {
        self.voice.clear();
        let (packet, heard) = {
            let mut shared = self.conversation.shared();
            let round_trip = shared.round_trip();
            let heard = match &mut self.paced {
                Some(paced) => paced.cleared(),
                None => shared.playout.cleared(Instant::now(), round_trip),
            };
            (shared.leg.clear(), heard)
        };
        if let Some(packet) = packet {
            self.sink.send(packet).await?;
        }
        let go_on = self.conversation.shared().leg.hold(false);
        if let Some(packet) = go_on {
            self.sink.send(packet).await?;
        }
        if let Some(heard) = heard {
            let _ = self.reports.try_send((heard, true));
        }
        Ok(())
    }

    async fn hold(&mut self, is_held: bool) -> Result<(), PeerGone> {
        if let Some(paced) = &mut self.paced {
            paced.is_held = is_held;
            return Ok(());
        }
        let packet = {
            let mut shared = self.conversation.shared();
            let packet = shared.leg.hold(is_held);
            if packet.is_some() {
                shared.playout.hold(is_held, Instant::now());
            }
            packet
        };
        match packet {
            Some(packet) => self.sink.send(packet).await,
            None => Ok(()),
        }
    }
}
