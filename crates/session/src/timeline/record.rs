//! One turn as it is shown: by `GET /api/turns`, live to the dashboard, and as spans.
//!
//! [`super::turn`] makes it, the turn_history keeps it, `server` writes it as JSON. All times are milliseconds from the end of
//! the user's speech (of a typed move: from the request), rounded to a microsecond; what did not happen is null.

use antiphon_engine_api::EngineNames;
use antiphon_protocol::Endpointing;
use antiphon_types::{BrownoutLevel, ItemId, KeyId, ResponseId, SessionId};
use serde::Serialize;
use std::sync::Arc;
use std::time::SystemTime;

/// A turn: the user's move and the answer to it. Field names and words are those of the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TurnRecord {
    /// `turn_...`, unique over all sessions.
    pub id: String,
    /// Whose.
    pub session_id: SessionId,
    /// How the session is reached: `websocket`, `webrtc`, `rtvi`, or the peer of a phone call, such as `twilio`.
    pub transport: &'static str,
    /// Counted from 1 in its session.
    pub turn: u64,
    /// The user's item, of several utterances the last one's.
    pub item_id: Option<ItemId>,
    /// The answer.
    pub response_id: Option<ResponseId>,
    /// The end of speech as RFC 3339; of a turn that is still listened to, its beginning.
    pub started_at: String,
    /// The same, to compute with.
    #[serde(skip)]
    pub origin: SystemTime,
    /// The API key of the session; `None` where the hub has no keys. Never shown.
    #[serde(skip)]
    pub owner: Option<KeyId>,
    /// What kind of move it is.
    pub kind: Kind,
    /// How far it is.
    pub status: Status,
    /// What went wrong, in words.
    pub error: Option<String>,
    /// The person spoke into the answer, and it stopped.
    pub barged_in: bool,
    /// The user's words; null where the hub keeps none.
    pub transcript: Option<String>,
    /// The language they are in, as an ISO-639-1 code; absent where the recognizer does not name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The answer's words.
    pub reply: Option<String>,
    /// Those of them that were heard.
    pub heard: Option<String>,
    /// When what happened.
    pub marks: TurnMarks,
    /// What was said before the answer, because that was late; absent where nothing was. No other field counts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filler: Option<SpokenFiller>,
    /// To the first sound heard; where nothing is known of hearing, to the first audio sent.
    pub voice_to_voice_ms: Option<f64>,
    /// From the last voiced sample at the microphone to the first sound at the loudspeaker, by the client's clock; null
    /// where it does not report both.
    pub mouth_to_ear_ms: Option<f64>,
    /// How it is known when the answer was first heard.
    pub heard_by: Option<HeardBy>,
    /// The critical path: what the user waited for, one after the other, from 0 to `voice_to_voice_ms`.
    pub parts: Vec<Part>,
    /// All that ran, side by side.
    pub stages: Vec<StageRun>,
    /// Waits for a place, where they are known.
    pub waits: Waits,
    /// Answers begun before the end of the turn was sure.
    pub speculations: Vec<SpeculativeRun>,
    /// Time spent on those that were not used.
    pub wasted_ms: f64,
    /// Why the end was confirmed when it was.
    pub endpointing: Option<EndOfTurn>,
    /// How much of the answer there is.
    pub audio: TurnAudio,
    /// What served it.
    pub engines: Arc<EngineNames>,
    /// The worker that recognized the last utterance; absent where the engine runs here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stt_worker: Option<String>,
    /// The worker that spoke the first chunk; absent where the engine runs here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tts_worker: Option<String>,
    /// Attempts that other workers had failed at before; absent where there were none.
    #[serde(skip_serializing_if = "is_zero")]
    pub retried: u32,
    /// What the hub did without when the turn began, because it was overloaded; absent where it did everything.
    #[serde(skip_serializing_if = "is_normal")]
    pub brownout: BrownoutLevel,
    /// The fallback engine that transcribed the last utterance; absent where the configured engine did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stt_fallback: Option<Arc<str>>,
    /// The fallback engine that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm_fallback: Option<Arc<str>>,
    /// The fallback engine that spoke, some chunks at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tts_fallback: Option<Arc<str>>,
    /// Compute of this machine; absent where its engines report none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<TurnCost>,
    /// Tokens, once the answer is whole.
    pub usage: Option<Tokens>,
    /// Where the user's speech is in the session's recording; absent where its sound is not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<RecordedSpan>,
    /// Since when the hub owes its sound: the end of a turn that is answered by itself, else the client's request, in ms.
    #[serde(skip)]
    pub awaited_from: Option<f64>,
    /// It waited for what is not the hub's, so that its latency says nothing of the load.
    #[serde(skip)]
    pub is_excused: bool,
    /// Nothing will change any more.
    pub settled: bool,
}

fn is_normal(level: &BrownoutLevel) -> bool {
    *level == BrownoutLevel::Normal
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// What kind of move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It was spoken.
    Speech,
    /// The client asked for a response.
    Typed,
    /// A tool's result is answered.
    Tool,
    /// Silence for long.
    Idle,
}

/// How far a turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The user's move goes on, or its words are not known yet.
    Listening,
    /// The answer is under way.
    Answering,
    /// It is whole; it may still sound.
    Completed,
    /// It was stopped.
    Cancelled,
    /// The model stopped early.
    Incomplete,
    /// A stage failed.
    Failed,
    /// There was nothing to answer.
    Unanswered,
}

/// How it is known when the answer was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeardBy {
    /// The client said when it sounded.
    Report,
    /// It is taken to sound when it is sent, behind what was sent before.
    Estimate,
}

/// The moments of a turn, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TurnMarks {
    /// The last voiced window's end: 0.
    pub speech_end: Option<f64>,
    /// It was decided that the turn is over.
    pub end_confirmed: Option<f64>,
    /// The words were there.
    pub stt_final: Option<f64>,
    /// The model was asked.
    pub response_started: Option<f64>,
    /// Its first token.
    pub llm_first_token: Option<f64>,
    /// The first chunk to speak was complete.
    pub first_chunk: Option<f64>,
    /// Its first samples came.
    pub tts_first_audio: Option<f64>,
    /// The first audio left.
    pub first_audio_sent: Option<f64>,
    /// The first audio sounded.
    pub first_audio_heard: Option<f64>,
}

/// A stage of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnStage {
    /// Waiting until it is sure, or likely enough to speculate, that the turn is over.
    Endpointing,
    /// The rest of the recognizer's work.
    Stt,
    /// The way to a worker and back, where the recognizer or the voice runs on another machine: a part of its own behind
    /// that of the engine.
    Network,
    /// Waiting for another answer, or for a list of tools.
    Queue,
    /// The model, to its first token.
    Llm,
    /// Until the first chunk was complete.
    Chunking,
    /// The voice, to its first samples.
    Tts,
    /// Until they left.
    Sending,
    /// The way to the listener's ear.
    Playback,
}

impl TurnStage {
    /// The word of the JSON, and of the spans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Endpointing => "endpointing",
            Self::Stt => "stt",
            Self::Network => "network",
            Self::Queue => "queue",
            Self::Llm => "llm",
            Self::Chunking => "chunking",
            Self::Tts => "tts",
            Self::Sending => "sending",
            Self::Playback => "playback",
        }
    }
}

/// A piece of the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Part {
    /// What was waited for.
    pub stage: TurnStage,
    /// Where the part before it ends.
    pub from_ms: f64,
    /// Where it ends.
    pub to_ms: f64,
}

/// A stage's run. It may begin before the end of speech.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageRun {
    /// Which.
    pub stage: TurnStage,
    /// From its beginning,
    pub from_ms: f64,
    /// to its end.
    pub to_ms: f64,
    /// Index into [`TurnRecord::speculations`]; null: of the response itself.
    pub speculation: Option<usize>,
}

/// A filler: a few configured words where an answer is late.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpokenFiller {
    /// The words, which `session.fillers` configures.
    pub text: String,
    /// When its sound was there; negative where a tool's result came later.
    pub at_ms: f64,
}

/// Waits for a place, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// For a free decoder; most of it passes while the person speaks.
    pub stt_decoder_ms: Option<f64>,
}

/// A speculative response.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpeculativeRun {
    /// When its pause was reported.
    pub from_ms: f64,
    /// When it was released or dropped; null while it is open.
    pub to_ms: Option<f64>,
    /// What became of it; null while it is open.
    pub outcome: Option<SpeculationOutcome>,
}

/// What became of a speculative response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SpeculationOutcome {
    /// It was released.
    Confirmed,
    /// The person went on.
    Resumed,
    /// The answer is another one: other words, other settings, or none.
    Changed,
}

impl From<antiphon_dialog::SpeculationOutcome> for SpeculationOutcome {
    fn from(outcome: antiphon_dialog::SpeculationOutcome) -> Self {
        use antiphon_dialog::SpeculationOutcome as Dialog;
        match outcome {
            Dialog::Confirmed => Self::Confirmed,
            Dialog::Resumed => Self::Resumed,
            Dialog::Changed => Self::Changed,
        }
    }
}

/// Why the end was confirmed when it was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum EndOfTurn {
    /// The wait adapted.
    Adaptive(Endpointing),
    /// It was fixed.
    Fixed {
        /// The silence that was waited for.
        wait_ms: f64,
    },
}

/// How much of the answer there is, in ms of sound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TurnAudio {
    /// Made.
    pub generated_ms: f64,
    /// Sent.
    pub sent_ms: f64,
    /// WindowFeatures.
    pub heard_ms: f64,
    /// How often playback ran dry.
    pub n_underruns: u32,
    /// For how long, in all.
    pub underrun_ms: f64,
}

/// A stretch of a session's recorded sound, in ms from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RecordedSpan {
    /// Where the first utterance of the turn begins.
    pub from_ms: u64,
    /// Where its last one ends.
    pub to_ms: u64,
}

/// Tokens of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "named as in the protocol")]
pub struct Tokens {
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// Compute of a turn. Field names are those of the JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TurnCost {
    /// Busy time of engines on the processor, in ms. An engine on several threads counts all of them: an upper bound.
    pub cpu_ms: f64,
    /// Time of runs on GPUs, in ms.
    pub gpu_ms: f64,
    /// Of both, in ms: responses that were started in a pause and dropped, and speech that was made and not heard. The latter is
    /// known once the turn is settled.
    pub wasted_ms: f64,
    /// The recognizer's; absent where it reports none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stt: Option<StageCost>,
    /// The language model's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm: Option<StageCost>,
    /// The voice's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tts: Option<StageCost>,
    /// The filler's part of `tts`; absent where none was synthesized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filler: Option<StageCost>,
}

/// Compute of a stage of a turn, what was wasted included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "as in TurnCost")]
pub struct StageCost {
    pub cpu_ms: f64,
    pub gpu_ms: f64,
}
