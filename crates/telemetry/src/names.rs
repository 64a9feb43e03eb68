//! The metrics that are recorded, and the values of their labels, as exported to Prometheus.

use super::Family;

/// Upper bounds of the latency histogram buckets, in seconds; fine between 50 ms and 1 s, which matters in a
/// conversation.
const LATENCY_BOUNDS: [f64; 18] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0];

/// Bucket bounds for requests of the speech API, in seconds; a request lasts as long as its audio.
const REQUEST_BOUNDS: [f64; 16] =
    [0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0];

pub(super) static SESSIONS_ACTIVE: Family = Family::gauge("antiphon_sessions_active", "Active sessions.");
pub(super) static STT_WAITING: Family =
    Family::gauge("antiphon_stt_waiting", "Utterances waiting for a speech decoder.");
pub(super) static TTS_WAITING: Family =
    Family::gauge("antiphon_tts_waiting", "Text chunks waiting for a voice engine.");
pub(super) static TTS_SLOTS: Family =
    Family::gauge("antiphon_tts_slots", "Listeners that a speech language model serves at once.");
pub(super) static TTS_SLOTS_IN_USE: Family =
    Family::gauge("antiphon_tts_slots_in_use", "Slots of a speech language model in use.");
pub(super) static QUEUE_DEPTH: Family = Family::gauge("voice_queue_depth", "Queue depth, by queue.").by(&["queue"]);
pub(super) static SESSIONS: Family = Family::counter("antiphon_sessions_total", "Sessions started.");
pub(super) static SESSIONS_REJECTED: Family =
    Family::counter("antiphon_sessions_rejected_total", "Sessions rejected: a limit, the load, or no workers.");
pub(super) static TURNS: Family = Family::counter("antiphon_turns_total", "User turns ended.");
pub(super) static RESPONSES: Family =
    Family::counter("antiphon_responses_total", "Responses ended, by outcome.").by(&["outcome"]);
pub(super) static ERRORS: Family =
    Family::counter("antiphon_errors_total", "Errors reported to clients, failed responses included, by code.")
        .by(&["code"]);
pub(super) static FAILED_RESPONSES: Family =
    Family::counter("antiphon_failed_responses_total", "Failed responses, by code and stage.").by(&["code", "stage"]);
pub(super) static BARGE_INS: Family = Family::counter("antiphon_barge_ins_total", "Responses stopped by speech.");
pub(super) static BACKCHANNELS: Family = Family::counter(
    "antiphon_backchannels_total",
    "Backchannels and sounds without words that a response went on after.",
);
pub(super) static IGNORED_SPEECH: Family = Family::counter(
    "antiphon_ignored_speech_total",
    "Utterances of other voices than the user's, in sessions that are locked to that.",
);
pub(super) static HELD: Family =
    Family::counter("antiphon_held_total", "Responses paused because speech may have started.");
pub(super) static SPECULATIVE_RESPONSES: Family =
    Family::counter("antiphon_speculative_responses_total", "Speculative responses, by outcome.").by(&["outcome"]);
pub(super) static SPECULATION_WASTED: Family = Family::counter(
    "antiphon_speculation_wasted_milliseconds_total",
    "Time spent on speculative responses that were discarded.",
);
pub(super) static COMPUTE: Family = Family::counter(
    "antiphon_compute_milliseconds_total",
    "Busy time of engines in sessions and the speech API, by stage, kind (cpu, gpu) and waste.",
)
.by(&["stage", "kind", "waste"]);
pub(super) static UNDERRUNS: Family = Family::counter(
    "antiphon_underruns_total",
    "Playback underruns, as reported by clients or estimated by the send clock.",
);
pub(super) static BYTES_IN: Family = Family::counter("antiphon_bytes_in_total", "Bytes of messages received.");
pub(super) static BYTES_OUT: Family = Family::counter("antiphon_bytes_out_total", "Bytes of messages sent.");
pub(super) static REQUESTS: Family =
    Family::counter("voice_requests_total", "Speech API requests, by endpoint and outcome.")
        .by(&["endpoint", "outcome"]);
pub(super) static REQUEST_DURATION: Family = Family::histogram(
    "voice_request_duration_seconds",
    "Duration of speech API requests, by endpoint.",
    &REQUEST_BOUNDS,
)
.by(&["endpoint"]);
pub(super) static LATENCY: Family =
    Family::histogram("antiphon_latency_seconds", "Latency of a turn, by stage.", &LATENCY_BOUNDS).by(&["stage"]);

/// All of them, in the order of the export.
pub(super) static RECORDED: [&Family; 25] = [
    &SESSIONS_ACTIVE,
    &STT_WAITING,
    &TTS_WAITING,
    &TTS_SLOTS,
    &TTS_SLOTS_IN_USE,
    &QUEUE_DEPTH,
    &SESSIONS,
    &SESSIONS_REJECTED,
    &TURNS,
    &RESPONSES,
    &ERRORS,
    &FAILED_RESPONSES,
    &BARGE_INS,
    &BACKCHANNELS,
    &IGNORED_SPEECH,
    &HELD,
    &SPECULATIVE_RESPONSES,
    &SPECULATION_WASTED,
    &COMPUTE,
    &UNDERRUNS,
    &BYTES_IN,
    &BYTES_OUT,
    &REQUESTS,
    &REQUEST_DURATION,
    &LATENCY,
];

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The response is complete.
    Completed,
    /// A barge-in or the client stopped it.
    Cancelled,
    /// A stage failed.
    Failed,
    /// A limit truncated it.
    Incomplete,
}

impl Outcome {
    /// All outcomes; each is at the index of its discriminant.
    pub const ALL: [Self; 4] = [Self::Completed, Self::Cancelled, Self::Failed, Self::Incomplete];

    /// Value of the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Incomplete => "incomplete",
        }
    }
}

/// Outcomes of a speech API request.
pub(super) const REQUEST_OUTCOMES: [&str; 5] = ["ok", "refused", "overloaded", "failed", "cancelled"];

/// An endpoint of the speech API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Text to speech.
    Speech,
    /// Speech to text.
    Transcriptions,
    /// Translation: speech in any supported language to English text.
    Translations,
    /// A speech job, from its start to its end.
    Job,
    /// A custom voice that is added.
    Voices,
    /// A text that the language model answers: Wyoming's `handle`.
    Handle,
}

impl Endpoint {
    /// All endpoints; each is at the index of its discriminant.
    pub const ALL: [Self; 6] =
        [Self::Speech, Self::Transcriptions, Self::Translations, Self::Job, Self::Voices, Self::Handle];

    /// Value of the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Speech => "speech",
            Self::Transcriptions => "transcriptions",
            Self::Translations => "translations",
            Self::Voices => "voices",
            Self::Job => "job",
            Self::Handle => "handle",
        }
    }
}

/// A measured latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From the confirmed end of speech to the final transcript.
    SttFinal,
    /// From the request to the language model to its first token.
    LlmFirstToken,
    /// From passing a chunk to the TTS engine to its first audio.
    TtsFirstAudio,
    /// From the end of the user's speech to the first response audio sent.
    VoiceToVoice,
    /// From the end of the user's speech to the first sound played at the client, as reported by clients.
    VoiceToEar,
}

impl Stage {
    /// All stages; each is at the index of its discriminant.
    pub const ALL: [Self; 5] =
        [Self::SttFinal, Self::LlmFirstToken, Self::TtsFirstAudio, Self::VoiceToVoice, Self::VoiceToEar];

    /// Value of the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SttFinal => "stt_final",
            Self::LlmFirstToken => "llm_first_token",
            Self::TtsFirstAudio => "tts_first_audio",
            Self::VoiceToVoice => "voice_to_voice",
            Self::VoiceToEar => "voice_to_ear",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_stands_once() {
        let mut names: Vec<_> = RECORDED.iter().map(|family| family.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RECORDED.len());
    }

    #[test]
    fn each_stands_at_its_own_number() {
        assert!(Outcome::ALL.iter().enumerate().all(|(i, outcome)| *outcome as usize == i));
        assert!(Stage::ALL.iter().enumerate().all(|(i, stage)| *stage as usize == i));
    }
}
