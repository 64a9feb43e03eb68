//! Messages between the actor and its tasks: the input of a transcription, and the reports of all tasks.
//!
//! `utterance` and `inline_audio` fill a transcription's input queue, `transcription_task` drains it. Nothing runs here.

use antiphon_dialog::VoiceSample;
use antiphon_engine_api::HopReport;
use antiphon_engine_api::mcp::{ConnectedServer, Connection};
use antiphon_engine_api::stt::{SpeakerState, SttError, Transcript};
use antiphon_types::{ItemId, Meter, Samples};
use std::sync::Arc;
use std::time::Duration;

/// Capacity of a transcription's input queue in pieces: 30 s of audio, 960 KB at most.
pub(super) const INPUT_PIECES: usize = 30_000 / PIECE_MS;
/// Samples of a piece at 16 kHz: four VAD windows. Shorter pieces cost a thread hop each, longer ones leave more to
/// decode once the end of the turn is known.
pub(super) const PIECE_SAMPLES: usize = 1_024;
const PIECE_MS: usize = PIECE_SAMPLES / 16;

/// What a transcription task receives.
pub(super) enum TranscriptionInput {
    /// Mono PCM at 16 kHz.
    Pcm(Vec<i16>),
    /// The voice fell silent a moment ago, which may be the end: report a partial transcript of all audio so far. What the
    /// engine decodes for it, it need not decode for a provisional or final transcript.
    Lull,
    /// The speaker pauses, or a decision is due: report a partial transcript of all audio so far.
    RequestPartial,
    /// The speaker pauses: report a provisional transcript, the final one if the utterance ended here.
    RequestProvisional,
    /// The speaker goes on: the provisional transcript is void.
    Resumed,
    /// The utterance is complete.
    Finish {
        /// Only silence has followed the provisional request: the provisional transcript is final.
        confirms_provisional: bool,
    },
}

/// What a remote server answered to its declaration.
pub(super) type ListedTools = Result<ConnectedServer, ()>;

/// What a task reports to the actor.
pub(super) enum Report {
    /// A partial transcript. Dropped while the actor is busy: the next one includes it.
    Partial {
        /// The utterance.
        item: ItemId,
        /// The words.
        text: String,
        /// How many of its first words the engine is sure of; `None`: it does not say.
        n_sure_words: Option<u32>,
        /// How many of them later ones do not change.
        n_settled_words: u32,
        /// Audio it covers, from the utterance's beginning, at 16 kHz.
        n_heard: Samples,
    },
    /// The transcription has its decoder.
    Opened {
        /// The utterance.
        item: ItemId,
        /// Time it waited for the decoder.
        waited: Duration,
    },
    /// A provisional transcript.
    ProvisionalTranscript {
        /// How many of its first words the engine is sure of; `None`: it does not say.
        n_sure_words: Option<u32>,
        /// The utterance.
        item: ItemId,
        /// The words.
        text: String,
        /// The language spoken, as the engine names it.
        language: Option<String>,
        /// Audio it covers, from the utterance's beginning, at 16 kHz.
        n_heard: Samples,
    },
    /// The final transcript; the task's last report unless `learns`.
    Final {
        /// The utterance.
        item: ItemId,
        /// The transcript, or why there is none.
        result: Result<Transcript, SttError>,
        /// Whether [`Report::Learnt`] follows.
        learns: bool,
        /// The worker that made the transcript; `None`: the engine runs here.
        served: Option<HopReport>,
        /// What the utterance costs, what the engine learns afterwards included.
        meter: Meter,
    },
    /// The turn model's probability at a pause.
    Judged {
        /// Turn time at which the pause began.
        pause_start: Samples,
        /// P(the turn is over).
        probability: f32,
    },
    /// The turn model's probability for speech over a reply.
    OverlapJudged {
        /// The utterance.
        item: ItemId,
        /// P(it claims the turn); `None`: the query failed.
        claim: Option<f32>,
    },
    /// The speaker model's answer about an utterance under way.
    SpeakerHeard {
        /// The utterance.
        item: ItemId,
        /// What was heard of its voice; `None`: the query failed.
        sample: Option<VoiceSample>,
    },
    /// The recognizer's state for this speaker, after the final transcript.
    Learnt(ItemId, Option<SpeakerState>),
    /// A remote server's tools, or that listing them failed.
    Listed(ItemId, ListedTools),
    /// The remote server of this label was connected to, for a call.
    Linked(String, Arc<dyn Connection>),
    /// A remote call's result.
    Called(ItemId, Result<String, antiphon_types::mcp::CallError>),
}
