//! One turn while it goes on: its marks as they were set, and the record they make.
//!
//! A mark is set once and never moves, but for those of an utterance that another one extended. It reads no clock.

use super::cost::TurnMeters;
use super::parts::{Moments, ms};
use super::record::{
    EndOfTurn, HeardBy, Kind, RecordedSpan, SpokenFiller, StageRun, Status, Tokens, TurnAudio, TurnMarks, TurnRecord,
    TurnStage, Waits,
};
use super::speculation::SpeculationMarks;
use crate::turn_history::TurnIndex;
use antiphon_dialog::Dialog;
use antiphon_engine_api::{EngineNames, HopReport};
use antiphon_types::{
    BrownoutLevel, ItemId, KeyId, Meter, ResponseId, SampleRate, Samples, SessionId, Timestamp, TurnId,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Bytes of a transcript or a reply that a record keeps.
const MAX_TEXT_BYTES: usize = 8 * 1024;

/// The time after the estimated end of a reply in which a client that plays frames may report how it was.
const LAST_REPORTS: Duration = Duration::from_secs(1);

/// What all records of a session share.
pub(super) struct Frame {
    pub(super) session: SessionId,
    /// The API key it was opened with.
    pub(super) owner: Option<KeyId>,
    pub(super) transport: &'static str,
    /// When the session began.
    pub(super) origin: SystemTime,
    pub(super) engines: Arc<EngineNames>,
    pub(super) keeps_words: bool,
    /// The client may say how it plays: it gets frames.
    pub(super) may_report: bool,
}

/// One turn.
pub(super) struct Turn {
    pub(super) id: String,
    pub(super) n: u64,
    pub(super) kind: Kind,
    /// The dialog's number of a spoken turn: its further utterances belong here.
    pub(super) dialog_turn: Option<TurnId>,
    pub(super) utterances: Vec<UtteranceMarks>,
    /// When it began to be heard, or was asked for.
    pub(super) begun: Timestamp,
    pub(super) marks: Marks,
    pub(super) response: Option<ResponseId>,
    /// The item that is spoken.
    pub(super) reply_item: Option<ItemId>,
    pub(super) transcript: String,
    /// The language of the words heard last, by its code.
    pub(super) language: Option<String>,
    pub(super) reply: String,
    /// What was said because the answer was late, and when.
    pub(super) filler: Option<(String, Timestamp)>,
    pub(super) heard: String,
    pub(super) status: Status,
    pub(super) error: Option<String>,
    pub(super) barged_in: bool,
    pub(super) heard_by: Option<HeardBy>,
    pub(super) endpointing: Option<EndOfTurn>,
    pub(super) waits: Waits,
    pub(super) speculation: SpeculationMarks,
    pub(super) audio: TurnAudio,
    /// The worker that spoke the first chunk.
    pub(super) voiced: Option<HopReport>,
    /// What the hub did without when it began.
    pub(super) brownout: BrownoutLevel,
    pub(super) meters: TurnMeters,
    pub(super) usage: Option<Tokens>,
    /// The utterances in the session's recording.
    pub(super) recorded: Option<Range<Samples>>,
    pub(super) ends: Ends,
    /// Since when sound is awaited that only the hub makes: from the end of a turn that is answered by itself, else from
    /// the client's request.
    pub(super) awaited: Option<Timestamp>,
    /// When its response was announced.
    pub(super) announced: Option<Timestamp>,
    /// It waited for what is not the hub's: the client was away, or its tool was called.
    pub(super) is_excused: bool,
    /// The client said how it played.
    pub(super) reports: bool,
    /// It said where its playback stopped.
    pub(super) heard_until: Option<Duration>,
    /// Where the history keeps it; `None`: it was not shown yet.
    pub(super) place: Option<TurnIndex>,
    /// Something has changed that is worth showing.
    pub(super) dirty: bool,
    pub(super) settled: bool,
}

/// One utterance of a turn.
pub(super) struct UtteranceMarks {
    pub(super) item: ItemId,
    pub(super) opened: Timestamp,
    pub(super) transcribed: Option<Timestamp>,
    /// The worker that recognized it.
    pub(super) served: Option<HopReport>,
    pub(super) meter: Meter,
}

/// The moments of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    /// The last voiced sample was captured, as the client's clock has it.
    pub(super) spoken: Option<Timestamp>,
    pub(super) speech_end: Option<Timestamp>,
    pub(super) end_confirmed: Option<Timestamp>,
    pub(super) speculation_started: Option<Timestamp>,
    pub(super) stt_final: Option<Timestamp>,
    pub(super) response_started: Option<Timestamp>,
    pub(super) llm_first_token: Option<Timestamp>,
    pub(super) first_chunk: Option<Timestamp>,
    pub(super) tts_first_audio: Option<Timestamp>,
    pub(super) first_audio_sent: Option<Timestamp>,
    pub(super) first_audio_heard: Option<Timestamp>,
}

/// Where the stages of the answer ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    pub(super) llm: Option<Timestamp>,
    pub(super) tts: Option<Timestamp>,
    pub(super) sent: Option<Timestamp>,
    /// The response was done.
    pub(super) done: Option<Timestamp>,
    /// Playback was stopped.
    pub(super) stopped: Option<Timestamp>,
}

impl Turn {
    pub(super) fn new(id: String, n: u64, kind: Kind, begun: Timestamp) -> Self {
        Self {
            id,
            n,
            kind,
            dialog_turn: None,
            utterances: Vec::new(),
            begun,
            marks: Marks::default(),
            response: None,
            reply_item: None,
            transcript: String::new(),
            language: None,
            reply: String::new(),
            filler: None,
            heard: String::new(),
            status: Status::Listening,
            error: None,
            barged_in: false,
            heard_by: None,
            endpointing: None,
            waits: Waits::default(),
            speculation: SpeculationMarks::default(),
            brownout: BrownoutLevel::Normal,
            audio: TurnAudio::default(),
            voiced: None,
            meters: TurnMeters::default(),
            usage: None,
            recorded: None,
            ends: Ends::default(),
            awaited: None,
            announced: None,
            is_excused: false,
            reports: false,
            heard_until: None,
            place: None,
            dirty: true,
            settled: false,
        }
    }

    /// Whether `item` is one of its utterances.
    pub(super) fn holds(&self, item: &ItemId) -> bool {
        self.utterances.iter().any(|utterance| utterance.item == *item)
    }

    /// Whether an utterance's words are still to come.
    pub(super) fn awaits_words(&self) -> bool {
        self.utterances.iter().any(|utterance| utterance.transcribed.is_none())
    }

    /// More of the user's words.
    pub(super) fn heard_words(&mut self, text: &str) {
        if !self.transcript.is_empty() {
            append(&mut self.transcript, " ");
        }
        append(&mut self.transcript, text);
    }

    /// More of the answer.
    pub(super) fn said(&mut self, text: &str) {
        append(&mut self.reply, text);
    }

    pub(super) fn withdrawn(&mut self) {
        self.reply.clear();
    }

    /// Takes over how much of the reply was made, sent and heard by `now`.
    pub(super) fn look(&mut self, dialog: &Dialog, now: Timestamp) {
        let Some(spoken) = self.reply_item.as_ref().and_then(|item| dialog.history().spoken(item)) else { return };
        let rate = spoken.rate();
        let playhead = spoken.playhead();
        let ms = |duration: Duration| ms(duration.as_micros() as i64);
        self.audio.generated_ms = ms(spoken.generated().duration(rate));
        self.audio.sent_ms = ms(playhead.n_sent().duration(rate));
        let until = self.ends.stopped.map_or(now, |stopped| now.min(stopped));
        let heard = self.heard_until.unwrap_or_else(|| spoken.heard(until).duration(rate));
        // A client may report more than it was sent.
        self.audio.heard_ms = ms(heard).min(self.audio.sent_ms);
        if !self.reports {
            self.audio.n_underruns = playhead.n_underruns();
            self.audio.underrun_ms = ms(playhead.underrun());
        }
        self.heard.clear();
        append(&mut self.heard, spoken.heard_words(now));
    }

    /// When nothing more can happen to it; none while that is open.
    pub(super) fn quiet_at(&self, dialog: &Dialog, may_report: bool) -> Option<Timestamp> {
        let done = self.ends.done?;
        let patience = if may_report { LAST_REPORTS } else { Duration::ZERO };
        if let Some(stopped) = self.ends.stopped {
            return Some(stopped.max(done) + patience);
        }
        let Some(spoken) = self.reply_item.as_ref().and_then(|item| dialog.history().spoken(item)) else {
            return Some(done);
        };
        let playhead = spoken.playhead();
        if self.status != Status::Cancelled && playhead.n_sent() < spoken.generated() {
            return None;
        }
        if playhead.n_sent().0 == 0 {
            return Some(done);
        }
        Some(playhead.ends_at()?.max(done) + patience)
    }

    /// The worker that recognized the utterance whose transcript came last.
    pub(super) fn recognized(&self) -> Option<&HopReport> {
        self.last_utterance()?.served.as_ref()
    }

    /// The utterance whose transcript came last.
    fn last_utterance(&self) -> Option<&UtteranceMarks> {
        self.utterances.iter().max_by_key(|utterance| utterance.transcribed)
    }

    /// Attempts that other workers had failed at before, for all its utterances and the first chunk.
    pub(super) fn retried(&self) -> u32 {
        let served = self.utterances.iter().filter_map(|utterance| utterance.served.as_ref()).chain(&self.voiced);
        served.fold(0, |n, served| n.saturating_add(served.retried))
    }

    /// What all its times count from.
    pub(super) fn base(&self) -> Timestamp {
        self.marks.speech_end.unwrap_or(self.begun)
    }

    fn moments(&self) -> Moments {
        let at = |mark: Option<Timestamp>| mark.map(|mark| self.us(mark));
        let marks = &self.marks;
        let network = |served: Option<&HopReport>| served.map_or(0, |served| served.network.as_micros() as i64);
        Moments {
            speculation_started: at(marks.speculation_started),
            end_confirmed: at(marks.end_confirmed),
            stt_final: at(marks.stt_final),
            response_started: at(marks.response_started),
            llm_first_token: at(marks.llm_first_token),
            first_chunk: at(marks.first_chunk),
            tts_first_audio: at(marks.tts_first_audio),
            first_audio_sent: at(marks.first_audio_sent),
            first_audio_heard: at(marks.first_audio_heard),
            stt_network: network(self.recognized()),
            tts_network: network(self.voiced.as_ref()),
        }
    }

    /// Microseconds from the base; negative before it.
    fn us(&self, at: Timestamp) -> i64 {
        let us = |at: Timestamp| at.since_start().as_micros() as i64;
        us(at) - us(self.base())
    }

    /// The wait of the user, once the answer has begun.
    pub(super) fn voice_to_voice(&self) -> Option<Duration> {
        self.moments().voice_to_voice().map(|us| Duration::from_micros(us as u64))
    }

    /// From the mouth to the ear, where the client's clock has both.
    fn mouth_to_ear(&self) -> Option<Duration> {
        let heard = self.marks.first_audio_heard.filter(|_| self.heard_by == Some(HeardBy::Report))?;
        Some(heard.since(self.marks.spoken?))
    }

    /// As it is now.
    pub(super) fn record(&self, frame: &Frame) -> TurnRecord {
        let moments = self.moments();
        let at = |mark: Option<i64>| mark.map(ms);
        let words = |text: &str| (frame.keeps_words && !text.is_empty()).then(|| text.to_owned());
        let origin = frame.origin + self.base().since_start();
        TurnRecord {
            id: self.id.clone(),
            session_id: frame.session.clone(),
            transport: frame.transport,
            turn: self.n,
            item_id: self.utterances.last().map(|utterance| utterance.item.clone()),
            response_id: self.response.clone(),
            started_at: rfc3339(origin),
            origin,
            owner: frame.owner,
            kind: self.kind,
            status: self.status,
            error: self.error.clone(),
            barged_in: self.barged_in,
            transcript: words(&self.transcript),
            language: self.language.clone(),
            reply: words(&self.reply),
            heard: words(&self.heard),
            marks: TurnMarks {
                speech_end: self.marks.speech_end.map(|_| 0.0),
                end_confirmed: at(moments.end_confirmed),
                stt_final: at(moments.stt_final),
                response_started: at(moments.response_started),
                llm_first_token: at(moments.llm_first_token),
                first_chunk: at(moments.first_chunk),
                tts_first_audio: at(moments.tts_first_audio),
                first_audio_sent: at(moments.first_audio_sent),
                first_audio_heard: at(moments.first_audio_heard),
            },
            filler: self.filler.as_ref().map(|(text, at)| SpokenFiller { text: text.clone(), at_ms: ms(self.us(*at)) }),
            voice_to_voice_ms: moments.voice_to_voice().map(ms),
            mouth_to_ear_ms: self.mouth_to_ear().map(|wait| ms(wait.as_micros() as i64)),
            heard_by: self.heard_by,
            parts: moments.parts(),
            stages: self.stages(),
            waits: self.waits,
            speculations: self.speculation.shown(|at| ms(self.us(at))),
            wasted_ms: ms(self.speculation.wasted().as_micros() as i64),
            endpointing: self.endpointing,
            audio: self.audio,
            engines: frame.engines.clone(),
            stt_worker: self.recognized().map(|served| served.worker.clone()),
            tts_worker: self.voiced.as_ref().map(|served| served.worker.clone()),
            stt_fallback: self.last_utterance().and_then(|utterance| utterance.meter.fallback()),
            llm_fallback: self.meters.response.llm.fallback(),
            tts_fallback: self.meters.response.tts.fallback(),
            retried: self.retried(),
            brownout: self.brownout,
            cost: self.cost(),
            usage: self.usage,
            recording: self.recording(),
            awaited_from: self.awaited.map(|at| ms(self.us(at))),
            is_excused: self.is_excused,
            settled: self.settled,
        }
    }

    fn recording(&self) -> Option<RecordedSpan> {
        let ms = |at: Samples| at.as_ms(SampleRate::HZ_16000);
        self.recorded.as_ref().map(|span| RecordedSpan { from_ms: ms(span.start), to_ms: ms(span.end) })
    }

    /// All that ran, in order of its beginning.
    fn stages(&self) -> Vec<StageRun> {
        let mut runs = Vec::new();
        let mut run = |stage, from: Option<Timestamp>, to: Option<Timestamp>, speculation| {
            if let (Some(from), Some(to)) = (from, to)
                && to > from
            {
                runs.push(StageRun { stage, from_ms: ms(self.us(from)), to_ms: ms(self.us(to)), speculation });
            }
        };
        let marks = &self.marks;
        let ends = &self.ends;
        for utterance in &self.utterances {
            run(TurnStage::Stt, Some(utterance.opened), utterance.transcribed, None);
        }
        run(TurnStage::Endpointing, marks.speech_end, marks.end_confirmed, None);
        for (n, stage, from, to) in self.speculation.runs() {
            run(stage, Some(from), Some(to), Some(n));
        }
        run(TurnStage::Queue, marks.stt_final, marks.response_started, None);
        run(TurnStage::Llm, marks.response_started, ends.llm.or(marks.llm_first_token), None);
        run(TurnStage::Chunking, marks.llm_first_token, marks.first_chunk, None);
        run(TurnStage::Tts, marks.first_chunk, ends.tts, None);
        run(TurnStage::Sending, marks.tts_first_audio, ends.sent, None);
        let sounded =
            marks.first_audio_heard.map(|heard| heard + from_ms(self.audio.heard_ms + self.audio.underrun_ms));
        run(TurnStage::Playback, marks.first_audio_heard, sounded, None);
        runs.sort_by(|a, b| a.from_ms.total_cmp(&b.from_ms));
        runs
    }
}

fn from_ms(ms: f64) -> Duration {
    Duration::from_micros((ms * 1e3) as u64)
}

/// To the millisecond, in UTC.
fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = jiff::Timestamp::from_millisecond(since.as_millis() as i64).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{at:.3}")
}

/// As much of `more` as there is room for, whole characters.
fn append(text: &mut String, more: &str) {
    let room = MAX_TEXT_BYTES.saturating_sub(text.len());
    text.push_str(&more[..more.floor_char_boundary(room)]);
}
