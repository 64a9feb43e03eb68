//! The timelines of a session's turns: every move of the user's that is answered, or might have been.
//!
//! It is the part of a session that records: it counts the metrics of turns, and reports what the client has used. The actor gives
//! it the reducer's notices, marks the moments as they pass, each with the time it happened, and calls [`Timeline::report`] once
//! they are all in; the records go to the turn history, and the client of the binary mode gets an event once the first audio has left.
//! A speech turn begins with its first utterance and takes the later ones that come before its answer; a response that
//! follows no speech has a turn of its own. It reads no clock and decides nothing.

pub(super) mod answering;
mod cost;
pub(super) mod notices;
mod parts;
pub(super) mod record;
mod speculation;
mod turn;

pub use record::{
    EndOfTurn, HeardBy, Kind, Part, RecordedSpan, SpeculationOutcome, SpeculativeRun, StageCost, StageRun, Status,
    Tokens, TurnAudio, TurnCost, TurnMarks, TurnRecord, TurnStage, Waits,
};

use super::limits::SessionLimits;
use super::product::Milestone;
use super::turn_history::TurnHistory;
use antiphon_dialog::turn::Decision;
use antiphon_dialog::{Content, Dialog, Item, ItemKind, Role};
use antiphon_engine_api::HopReport;
use antiphon_protocol::Endpointing;
use antiphon_telemetry::Metrics;
use antiphon_types::{Brownout, IdMint, ItemId, KeyId, Meter, ResponseId, Samples, SessionId, Timestamp, TurnId};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use turn::{Frame, Turn, UtteranceMarks};

/// Turns of one session that are not settled: the oldest is shown as it is and forgotten when there are more. Responses
/// beside the conversation are bounded to 16.
const MAX_OPEN: usize = 32;

/// See the module.
pub(super) struct Timeline {
    frame: Frame,
    ids: IdMint,
    n_turns: u64,
    turn_history: Arc<TurnHistory>,
    metrics: Metrics,
    limits: Arc<dyn SessionLimits>,
    brownout: Brownout,
    open: VecDeque<Turn>,
    cause: Cause,
    /// What was said while the client ran a tool, and when.
    filler: Option<(String, Timestamp)>,
    /// What that costs.
    filler_meter: Meter,
}

/// A session's beginning.
pub(super) struct Begins {
    pub(super) session: SessionId,
    /// The API key it was opened with.
    pub(super) owner: Option<KeyId>,
    pub(super) transport: &'static str,
    pub(super) at: SystemTime,
    /// For the turns' names.
    pub(super) seed: u64,
    /// The client gets frames, and may say how it plays them.
    pub(super) may_report: bool,
    /// The hub's brownout level, of which each turn keeps what it began with.
    pub(super) brownout: Brownout,
    /// Learns what a settled turn has cost.
    pub(super) limits: Arc<dyn SessionLimits>,
}

/// What the next response of the conversation answers.
#[derive(Default)]
enum Cause {
    #[default]
    Nothing,
    /// The newest speech turn.
    Speech,
    /// A message of the client's: its words, and the item when its audio is to be transcribed.
    Typed {
        text: String,
        spoken: Option<ItemId>,
    },
    Tool,
    /// A silence that became this item.
    Idle(ItemId),
}

impl Timeline {
    /// Of a session that begins now.
    pub(super) fn new(begins: Begins, turn_history: Arc<TurnHistory>, metrics: Metrics) -> Self {
        let Begins { session, owner, transport, at, seed, may_report, brownout, limits } = begins;
        let engines = turn_history.engines();
        let keeps_words = turn_history.keeps_transcripts();
        let frame = Frame { session, owner, transport, origin: at, engines, keeps_words, may_report };
        let open = VecDeque::new();
        let cause = Cause::Nothing;
        let filler = None;
        let filler_meter = Meter::default();
        Self {
            frame,
            ids: IdMint::new(seed),
            n_turns: 0,
            turn_history,
            metrics,
            limits,
            brownout,
            open,
            cause,
            filler,
            filler_meter,
        }
    }

    /// The names given so far, for a timeline that goes on on another hub.
    pub(super) fn counters(&self) -> (IdMint, u64) {
        (self.ids.clone(), self.n_turns)
    }

    /// The same behind turns that another hub has recorded.
    pub(super) fn behind(mut self, ids: IdMint, n_turns: u64) -> Self {
        self.ids = ids;
        self.n_turns = n_turns;
        self
    }

    /// Speech began: a turn, or more of the one that has no answer yet.
    pub(super) fn speech_started(&mut self, item: ItemId, turn: TurnId, at: Timestamp) {
        let known = self.speech(turn).is_some();
        if !known {
            self.abandon(at);
            self.begin(Kind::Speech, at).dialog_turn = Some(turn);
        }
        let current = self.speech(turn).expect("begun just now");
        current.status = Status::Listening;
        current.awaited = None;
        current.utterances.push(UtteranceMarks {
            item,
            opened: at,
            transcribed: None,
            served: None,
            meter: Meter::default(),
        });
        current.dirty = true;
    }

    /// An utterance ended: the last voiced sample was heard at `speech_end`, and that is known at `at`.
    pub(super) fn utterance_ended(&mut self, item: &ItemId, turn: TurnId, speech_end: Timestamp, at: Timestamp) {
        if !self.open.iter().any(|open| open.holds(item)) {
            self.speech_started(item.clone(), turn, speech_end);
        }
        self.cause = Cause::Speech;
        let Some(turn) = self.of_item(item) else { return };
        turn.marks = turn::Marks { speech_end: Some(speech_end), end_confirmed: Some(at), ..Default::default() };
        turn.dirty = true;
    }

    /// The turn of an utterance that ended is answered with sound, without another request of the client's.
    pub(super) fn will_be_answered(&mut self, item: &ItemId, at: Timestamp) {
        if let Some(turn) = self.of_item(item) {
            turn.awaited = Some(at);
            turn.dirty = true;
        }
    }

    /// The client is away: what it is owed cannot sound.
    pub(super) fn client_left(&mut self) {
        for turn in self.open.iter_mut().filter(|turn| turn.marks.first_audio_sent.is_none()) {
            turn.is_excused = true;
            turn.dirty = true;
        }
    }

    /// The audio of an utterance is complete, and this part of the session's recording.
    pub(super) fn recorded(&mut self, item: &ItemId, audio: Range<Samples>) {
        let Some(turn) = self.of_item(item) else { return };
        let start = turn.recorded.as_ref().map_or(audio.start, |before| before.start);
        turn.recorded = Some(start..audio.end);
    }

    /// By the client's clock, the utterance's last voiced sample was captured at `at`.
    pub(super) fn spoken_at(&mut self, item: &ItemId, at: Timestamp) {
        if let Some(turn) = self.of_item(item) {
            turn.marks.spoken = Some(at);
        }
    }

    /// Why the utterance that ended last was taken to have ended.
    pub(super) fn decided(&mut self, item: &ItemId, decision: &Decision) {
        let Some(turn) = self.of_item(item) else { return };
        let Decision { hints, probability, wait } = decision;
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        turn.endpointing = Some(EndOfTurn::Adaptive(Endpointing {
            probability: *probability,
            wait_ms: ms(*wait),
            spoken_ms: ms(hints.spoken),
            wording: hints.wording.name(),
            completeness: hints.completeness.map(|log_odds| 1.0 / (1.0 + (-log_odds).exp())),
            energy_fall_db: hints.prosody.energy_fall_db,
            pitch_fall_semitones: hints.prosody.pitch_fall_semitones,
            n_pauses: hints.n_pauses,
            typical_pause_ms: ms(hints.typical_pause),
            model_probability: hints.model,
        }));
    }

    /// The same where the wait is fixed.
    pub(super) fn waited(&mut self, item: &ItemId, silence: Duration) {
        if let Some(turn) = self.of_item(item) {
            turn.endpointing = Some(EndOfTurn::Fixed { wait_ms: silence.as_secs_f64() * 1e3 });
        }
    }

    /// An utterance has got its decoder, after this time.
    pub(super) fn decoder_opened(&mut self, item: &ItemId, waited: Duration) {
        if let Some(turn) = self.of_item(item) {
            let ms = waited.as_micros() as f64 / 1e3;
            turn.waits.stt_decoder_ms = Some(turn.waits.stt_decoder_ms.map_or(ms, |before| before.max(ms)));
        }
    }

    /// Whether an utterance belongs to a turn.
    pub(super) fn holds(&mut self, item: &ItemId) -> bool {
        self.of_item(item).is_some()
    }

    /// The worker that recognized an utterance (`None`: the engine runs here), and what that cost.
    pub(super) fn recognized_by(&mut self, item: &ItemId, served: Option<HopReport>, meter: Meter) {
        let Some(turn) = self.of_item(item) else { return };
        if let Some(utterance) = turn.utterances.iter_mut().find(|utterance| utterance.item == *item) {
            utterance.served = served;
            utterance.meter = meter;
        }
    }

    /// The language of an utterance, where the recognizer named it.
    pub(super) fn spoken_in(&mut self, item: &ItemId, language: Option<String>) {
        if let (Some(turn), Some(language)) = (self.of_item(item), language) {
            turn.language = Some(language);
        }
    }

    /// An utterance's words are known, or will never be.
    pub(super) fn transcribed(&mut self, item: &ItemId, result: Result<&str, &str>, at: Timestamp) {
        let Some(turn) = self.of_item(item) else { return };
        for utterance in turn.utterances.iter_mut().filter(|utterance| utterance.item == *item) {
            utterance.transcribed.get_or_insert(at);
        }
        match result {
            Ok("") => {}
            Ok(text) => turn.heard_words(text),
            Err(message) => turn.error = Some(message.to_owned()),
        }
        let early = turn.marks.end_confirmed.is_none();
        if !early && !turn.awaits_words() {
            turn.marks.stt_final.get_or_insert(at);
        }
        turn.dirty = true;
    }

    /// What the reducer made of the last transcript is known: a turn without an answer is shown as such.
    pub(super) fn weighed(&mut self) {
        let unanswered =
            self.open.iter_mut().filter(|turn| turn.status == Status::Listening && turn.response.is_none());
        for turn in unanswered.filter(|turn| turn.marks.end_confirmed.is_some() && !turn.awaits_words()) {
            turn.status = if turn.error.is_some() { Status::Failed } else { Status::Unanswered };
            turn.dirty = true;
        }
    }

    /// An item of the client's, or of an utterance that was committed, joined the conversation.
    pub(super) fn item_added(&mut self, item: &Item) {
        let is_silence = matches!(&self.cause, Cause::Idle(silence) if *silence == item.id);
        if is_silence || self.open.iter().any(|turn| turn.holds(&item.id)) {
            return;
        }
        match &item.kind {
            ItemKind::Message { role: Role::User, content } => {
                let spoken = content.iter().any(|part| matches!(part, Content::InputAudio { transcript: None }));
                let text = item.text();
                self.cause = Cause::Typed { text, spoken: spoken.then(|| item.id.clone()) };
            }
            ItemKind::FunctionOutput { .. } => self.cause = Cause::Tool,
            _ => {}
        }
    }

    /// An utterance is not wanted any more.
    pub(super) fn dropped(&mut self, item: &ItemId, at: Timestamp) {
        let Some(turn) = self.of_item(item) else { return };
        for dropped in turn.utterances.extract_if(.., |utterance| utterance.item == *item) {
            turn.meters.dropped_utterances.push(dropped.meter);
        }
        if turn.utterances.is_empty() && turn.response.is_none() {
            turn.status = Status::Unanswered;
            turn.ends.done = Some(at);
        }
        turn.dirty = true;
    }

    /// An utterance was the hub's own voice: it will not be answered.
    pub(super) fn item_deleted(&mut self, item: &ItemId) {
        if self.of_item(item).is_some_and(|turn| turn.response.is_none()) && matches!(self.cause, Cause::Speech) {
            self.cause = Cause::Nothing;
        }
    }

    /// A remote tool gave its result.
    pub(super) fn tool_ended(&mut self) {
        self.cause = Cause::Tool;
    }

    /// Silence for long: it becomes an item.
    pub(super) fn fell_silent(&mut self, item: &ItemId) {
        self.cause = Cause::Idle(item.clone());
    }

    /// Shows what has changed by `now`, and settles what will not change any more. Returns when it has something to do by the
    /// clock alone.
    pub(super) fn report(&mut self, dialog: &Dialog, now: Timestamp) -> Option<Timestamp> {
        let mut due: Option<Timestamp> = None;
        for turn in &mut self.open {
            let quiet = turn.quiet_at(dialog, self.frame.may_report);
            if quiet.is_some_and(|quiet| now >= quiet) {
                turn.look(dialog, now);
                self.metrics.underruns(turn.audio.n_underruns);
                turn.settled = true;
                turn.count_cost(&self.metrics, &*self.limits);
            } else {
                due = due.into_iter().chain(quiet).min();
                if !turn.dirty {
                    continue;
                }
                turn.look(dialog, now);
            }
            turn.dirty = false;
            turn.place = Some(self.turn_history.put(turn.record(&self.frame), turn.place));
        }
        self.open.retain(|turn| !turn.settled);
        due
    }

    /// The session ends at `now`, however it does: what it leaves open is settled with what was heard until then.
    pub(super) fn end(&mut self, dialog: &Dialog, now: Timestamp) {
        for mut turn in std::mem::take(&mut self.open) {
            turn.look(dialog, now);
            match turn.status {
                Status::Listening => turn.status = Status::Unanswered,
                Status::Answering => turn.status = Status::Cancelled,
                _ => {}
            }
            turn.settled = true;
            turn.count_cost(&self.metrics, &*self.limits);
            self.turn_history.put(turn.record(&self.frame), turn.place);
        }
    }

    fn begin(&mut self, kind: Kind, at: Timestamp) -> &mut Turn {
        if self.open.len() >= MAX_OPEN
            && let Some(mut oldest) = self.open.pop_front()
        {
            oldest.settled = true;
            oldest.count_cost(&self.metrics, &*self.limits);
            self.turn_history.put(oldest.record(&self.frame), oldest.place);
        }
        self.n_turns += 1;
        let mut turn = Turn::new(self.ids.next("turn"), self.n_turns, kind, at);
        turn.brownout = self.brownout.level();
        turn.filler = self.filler.take().filter(|_| kind == Kind::Tool);
        turn.meters.filler = std::mem::take(&mut self.filler_meter);
        self.open.push_back(turn);
        self.open.back_mut().expect("pushed just now")
    }

    /// A new move begins: one without an answer will not get one any more.
    fn abandon(&mut self, at: Timestamp) {
        for turn in self.open.iter_mut().filter(|turn| turn.response.is_none() && !turn.awaits_words()) {
            turn.ends.done = Some(at);
            if turn.status == Status::Listening {
                turn.status = Status::Unanswered;
            }
        }
    }

    /// The speech turn of this number that has no answer yet.
    fn speech(&mut self, turn: TurnId) -> Option<&mut Turn> {
        self.open.iter_mut().rev().find(|open| open.dialog_turn == Some(turn) && open.response.is_none())
    }

    fn of_item(&mut self, item: &ItemId) -> Option<&mut Turn> {
        self.open.iter_mut().rev().find(|turn| turn.holds(item))
    }

    fn of(&mut self, response: &ResponseId) -> Option<&mut Turn> {
        self.open.iter_mut().rev().find(|turn| turn.response.as_ref() == Some(response))
    }
}

#[cfg(test)]
mod tests;
