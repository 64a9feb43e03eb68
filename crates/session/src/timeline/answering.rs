//! The answering half of a timeline: the response's marks, what was sent, what was heard, how it ended.

use super::record::{HeardBy, Kind, SpeculationOutcome, Status, Tokens};
use super::speculation::EndedAttempt;
use super::turn::{Turn, UtteranceMarks};
use super::{Cause, EndOfTurn, Milestone, Timeline};
use crate::product::ResponseMeters;
use antiphon_dialog::{Dialog, ResponseStatus, ResponseView, StopReason};
use antiphon_engine_api::HopReport;
use antiphon_protocol::{Marks, ServerEvent, Workers};
use antiphon_telemetry::{Metrics, Stage};
use antiphon_types::{ItemId, Meter, ResponseId, Samples, Timestamp, TurnId};
use std::time::Duration;

/// What a client says of how an item played.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PlaybackReport {
    /// When its first audible sample sounded.
    pub(crate) first_sound: Option<Timestamp>,
    /// How often it ran dry so far, and for how long in all.
    pub(crate) underruns: Option<(u32, Duration)>,
    /// Playback has ended here: so much of it was heard.
    pub(crate) stopped_at: Option<Duration>,
}

impl Timeline {
    /// A response was announced.
    pub(crate) fn response_created(&mut self, id: &ResponseId, in_conversation: bool, at: Timestamp) {
        let cause = if in_conversation { std::mem::take(&mut self.cause) } else { Cause::Nothing };
        let has_words = |turn: &Turn| turn.awaits_words() || !turn.transcript.is_empty();
        let mut open = self.open.iter_mut().rev();
        let spoken = match cause {
            Cause::Speech => open.find(|turn| turn.dialog_turn.is_some() && turn.response.is_none() && has_words(turn)),
            _ => None,
        };
        let turn = match spoken {
            Some(turn) => turn,
            None => {
                if in_conversation {
                    self.abandon(at);
                }
                let (kind, text, item) = match cause {
                    Cause::Typed { text, spoken } => (Kind::Typed, text, spoken),
                    Cause::Tool => (Kind::Tool, String::new(), None),
                    Cause::Idle(_) => (Kind::Idle, String::new(), None),
                    Cause::Nothing | Cause::Speech => (Kind::Typed, String::new(), None),
                };
                let turn = self.begin(kind, at);
                turn.heard_words(&text);
                let given = item.map(|item| UtteranceMarks {
                    item,
                    opened: at,
                    transcribed: None,
                    served: None,
                    meter: Meter::default(),
                });
                turn.utterances.extend(given);
                turn
            }
        };
        turn.response = Some(id.clone());
        turn.announced = Some(at);
        turn.status = Status::Answering;
        turn.dirty = true;
    }

    /// A response that was announced will have sound, or none.
    pub(crate) fn will_sound(&mut self, id: &ResponseId, with_sound: bool, at: Timestamp) {
        if let Some(turn) = self.of(id) {
            turn.awaited = with_sound.then(|| turn.awaited.unwrap_or(at));
            turn.dirty = true;
        }
    }

    /// A tool of another server is called before the answer under way has sounded.
    pub(crate) fn tool_called(&mut self) {
        let answering = self.open.iter_mut().filter(|turn| turn.status == Status::Answering);
        for turn in answering.filter(|turn| turn.marks.first_audio_sent.is_none()) {
            turn.is_excused = true;
            turn.dirty = true;
        }
    }

    /// The speaker of this utterance pauses: a provisional transcript was requested.
    pub(crate) fn speculation_started(&mut self, item: &ItemId, at: Timestamp) {
        if let Some(turn) = self.of_item(item) {
            turn.speculation.begin(at);
        }
    }

    /// The provisional transcript has arrived.
    pub(crate) fn provisional_transcribed(&mut self, item: &ItemId, at: Timestamp) {
        if let Some(turn) = self.of_item(item) {
            turn.speculation.transcribed(at);
        }
    }

    /// The speculative response was started.
    pub(crate) fn speculation_responding(
        &mut self,
        turn: TurnId,
        response: &ResponseId,
        meters: ResponseMeters,
        at: Timestamp,
    ) {
        if let Some(turn) = self.speech(turn) {
            turn.dirty |= turn.speculation.responding(response, meters, at);
        }
    }

    /// The speculative response was released, or was dropped and `wasted`. The marks of a released one become the
    /// turn's.
    pub(crate) fn speculation_ended(
        &mut self,
        response: &ResponseId,
        outcome: SpeculationOutcome,
        wasted: Duration,
        at: Timestamp,
    ) {
        let Some(turn) = self.open.iter_mut().rev().find(|turn| turn.speculation.makes(response)) else { return };
        let Some(ended) = turn.speculation.end(outcome, wasted, at) else { return };
        let EndedAttempt { from, transcribed, answered, meters } = ended;
        turn.dirty = true;
        if outcome != SpeculationOutcome::Confirmed {
            turn.meters.dropped.push(meters);
        } else {
            turn.meters.response = meters;
            turn.marks.speculation_started = Some(from);
            turn.marks.stt_final = transcribed.or(turn.marks.stt_final);
            turn.marks.response_started = Some(answered);
        }
    }

    /// The model is asked.
    pub(crate) fn response_started(&mut self, id: &ResponseId, meters: ResponseMeters, at: Timestamp) {
        if let Some(turn) = self.of(id) {
            turn.meters.response = meters;
            turn.marks.response_started.get_or_insert(at);
            // Another answer came first, or a list of tools, which the client's server had to give.
            let waited = turn.announced.map_or(Duration::ZERO, |announced| at.since(announced));
            turn.awaited = turn.awaited.map(|from| from + waited);
            turn.dirty |= !waited.is_zero();
        }
    }

    /// A milestone of a response.
    pub(crate) fn mark(&mut self, id: &ResponseId, milestone: Milestone, at: Timestamp) {
        if let Some(turn) = self.of(id) {
            match milestone {
                Milestone::FirstToken => turn.marks.llm_first_token.get_or_insert(at),
                Milestone::FirstChunk => turn.marks.first_chunk.get_or_insert(at),
                Milestone::LastToken => turn.ends.llm.get_or_insert(at),
            };
        }
    }

    /// The worker that speaks the first chunk; reported again where another one goes on with it.
    pub(crate) fn spoken_by(&mut self, id: &ResponseId, served: HopReport) {
        let Some(turn) = self.of(id) else { return };
        // What was waited for is the first sound, whichever worker speaks later.
        let network = turn.voiced.as_ref().map_or(served.network, |first| first.network);
        turn.voiced = Some(HopReport { network, ..served });
        turn.dirty = true;
    }

    /// The voice has made audio of `item`.
    pub(crate) fn audio_made(&mut self, id: &ResponseId, item: &ItemId, at: Timestamp) {
        let Some(turn) = self.of(id) else { return };
        turn.marks.tts_first_audio.get_or_insert(at);
        turn.ends.tts = Some(at);
        if turn.reply_item.is_none() {
            turn.reply_item = Some(item.clone());
        }
    }

    /// A filler is synthesized with this meter, for the same turn as below.
    pub(crate) fn filler_requested(&mut self, meter: Meter) {
        match self.answering() {
            Some(turn) => turn.meters.filler = meter,
            None => self.filler_meter = meter,
        }
    }

    /// A filler is spoken, since the answer is late: of the turn under way, or of the one that a tool's result will begin.
    pub(crate) fn filled(&mut self, text: &str, at: Timestamp) {
        let filler = Some((text.to_owned(), at));
        match self.answering() {
            Some(turn) => (turn.filler, turn.dirty) = (filler, true),
            None => self.filler = filler,
        }
    }

    fn answering(&mut self) -> Option<&mut Turn> {
        self.open.iter_mut().rev().find(|turn| turn.status == Status::Answering)
    }

    /// More text of a response.
    pub(crate) fn said(&mut self, id: &ResponseId, text: &str) {
        if let Some(turn) = self.of(id) {
            turn.said(text);
        }
    }

    /// What was written of a response was no answer.
    pub(crate) fn withdrawn(&mut self, id: &ResponseId) {
        if let Some(turn) = self.of(id) {
            turn.withdrawn();
        }
    }

    /// Audio has left: counts the stages of a turn whose first it is, and gives the event for clients that take it.
    pub(crate) fn sent(&mut self, sent: &[(ItemId, Samples)], at: Timestamp) -> Vec<ServerEvent> {
        let mut events = Vec::new();
        for (item, _) in sent {
            let metrics = self.metrics.clone();
            let Some(turn) = self.open.iter_mut().find(|turn| turn.reply_item.as_ref() == Some(item)) else { continue };
            turn.ends.sent = Some(at);
            if turn.marks.first_audio_sent.is_some() {
                continue;
            }
            turn.marks.first_audio_sent = Some(at);
            turn.dirty = true;
            turn.count(&metrics);
            events.extend(turn.event());
        }
        events
    }

    /// Where nothing is known of hearing: the first audio of `item` sounds as the playhead is estimated to begin.
    pub(crate) fn estimate(&mut self, item: &ItemId, dialog: &Dialog) {
        let Some(turn) = self.open.iter_mut().find(|turn| turn.reply_item.as_ref() == Some(item)) else { return };
        if turn.heard_by.is_some() || turn.marks.first_audio_sent.is_none() {
            return;
        }
        let begins = dialog.history().spoken(item).and_then(|spoken| spoken.playhead().begins_at());
        turn.marks.first_audio_heard = begins.max(turn.marks.first_audio_sent);
        turn.heard_by = Some(HeardBy::Estimate);
    }

    /// The client says how `item` played; `now` is when it says so. Gives the event of a spoken turn whose wait is known by
    /// it, so that the client shows the figure that the hub records.
    pub(crate) fn played(&mut self, item: &ItemId, played: PlaybackReport, now: Timestamp) -> Option<ServerEvent> {
        let metrics = self.metrics.clone();
        let turn = self.open.iter_mut().find(|turn| turn.reply_item.as_ref() == Some(item))?;
        turn.reports = true;
        if let Some((n, dry)) = played.underruns {
            turn.audio.n_underruns = turn.audio.n_underruns.max(n);
            turn.audio.underrun_ms = turn.audio.underrun_ms.max(dry.as_micros() as f64 / 1e3);
        }
        if let Some(heard) = played.stopped_at {
            turn.heard_until = Some(heard);
            turn.dirty = true;
        }
        let at = played.first_sound?;
        let sent = turn.marks.first_audio_sent?;
        if turn.heard_by == Some(HeardBy::Report) {
            return None;
        }
        // A clock that is wrong does not hear what was not sent, nor what is still to come.
        turn.marks.first_audio_heard = Some(at.min(now).max(sent));
        turn.heard_by = Some(HeardBy::Report);
        turn.dirty = true;
        if turn.kind == Kind::Speech
            && let Some(wait) = turn.voice_to_voice()
        {
            metrics.latency(Stage::VoiceToEar, wait);
        }
        turn.event()
    }

    /// A response's audio that has not sounded was dropped: by a barge-in where the user speaks.
    pub(crate) fn flushed(&mut self, id: &ResponseId, at: Timestamp) {
        let speaks =
            self.open.iter().any(|turn| turn.status == Status::Listening && turn.marks.end_confirmed.is_none());
        let Some(turn) = self.of(id) else { return };
        turn.ends.stopped.get_or_insert(at);
        turn.barged_in |= speaks;
        turn.dirty = true;
    }

    /// A response ended.
    pub(crate) fn response_done(&mut self, view: &ResponseView, at: Timestamp) {
        let Some(turn) = self.of(&view.id) else { return };
        turn.status = match &view.status {
            ResponseStatus::InProgress | ResponseStatus::Completed => Status::Completed,
            ResponseStatus::Cancelled(_) => Status::Cancelled,
            ResponseStatus::Incomplete(_) => Status::Incomplete,
            ResponseStatus::Failed(_) => Status::Failed,
        };
        if let ResponseStatus::Failed(failure) = &view.status {
            turn.error = Some(failure.message().into());
        }
        turn.barged_in |= view.status == ResponseStatus::Cancelled(StopReason::TurnDetected);
        turn.usage = view
            .usage
            .map(|usage| Tokens { input_tokens: usage.text.input_tokens, output_tokens: usage.text.output_tokens });
        turn.ends.done = Some(at);
        turn.dirty = true;
    }
}

impl Turn {
    fn count(&self, metrics: &Metrics) {
        let marks = &self.marks;
        let stage = |stage: Stage, from: Option<Timestamp>, to: Option<Timestamp>| {
            if let (Some(from), Some(to)) = (from, to) {
                metrics.latency(stage, to.since(from));
            }
        };
        stage(Stage::SttFinal, marks.end_confirmed, marks.stt_final);
        stage(Stage::LlmFirstToken, marks.response_started, marks.llm_first_token);
        stage(Stage::TtsFirstAudio, marks.first_chunk, marks.tts_first_audio);
        stage(Stage::VoiceToVoice, marks.speech_end, marks.first_audio_sent);
    }

    /// The workers that served it; `None`: all its engines run here.
    fn workers(&self) -> Option<Workers> {
        let recognized = self.recognized();
        let voiced = self.voiced.as_ref();
        recognized.or(voiced)?;
        Some(Workers {
            stt_worker: recognized.map(|served| served.worker.clone()),
            tts_worker: voiced.map(|served| served.worker.clone()),
            stt_network_ms: recognized.map(network_ms),
            tts_network_ms: voiced.map(network_ms),
            retried: self.retried(),
        })
    }

    /// What a client of the binary mode receives about a spoken turn.
    fn event(&self) -> Option<ServerEvent> {
        let marks = &self.marks;
        let ms = |at: Option<Timestamp>| {
            let us = |at: Timestamp| at.since_start().as_micros() as i64;
            Some((us(at?) - us(marks.speech_end?)) as f64 / 1e3)
        };
        Some(ServerEvent::Timeline {
            item_id: self.utterances.last().filter(|_| self.kind == Kind::Speech)?.item.clone(),
            response_id: self.response.clone()?,
            marks: Marks {
                speech_end: ms(marks.speech_end),
                end_confirmed: ms(marks.end_confirmed),
                stt_final: ms(marks.stt_final),
                llm_first_token: ms(marks.llm_first_token),
                first_chunk: ms(marks.first_chunk),
                tts_first_audio: ms(marks.tts_first_audio),
                first_audio_sent: ms(marks.first_audio_sent),
                first_audio_heard: ms(marks.first_audio_heard.filter(|_| self.heard_by == Some(HeardBy::Report))),
            },
            endpointing: match self.endpointing {
                Some(EndOfTurn::Adaptive(endpointing)) => Some(endpointing),
                _ => None,
            },
            workers: self.workers().map(Box::new),
        })
    }
}

fn network_ms(served: &HopReport) -> f64 {
    served.network.as_micros() as f64 / 1e3
}
