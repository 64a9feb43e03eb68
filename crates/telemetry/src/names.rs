//! Names, labels and descriptions of the metrics, as exported to Prometheus.

use super::{Recorder, Unit};

pub(super) const SESSIONS_ACTIVE: &str = "antiphon_sessions_active";
pub(super) const SESSIONS: &str = "antiphon_sessions_total";
pub(super) const SESSIONS_REJECTED: &str = "antiphon_sessions_rejected_total";
pub(super) const TURNS: &str = "antiphon_turns_total";
pub(super) const RESPONSES: &str = "antiphon_responses_total";
pub(super) const ERRORS: &str = "antiphon_errors_total";
pub(super) const FAILED_RESPONSES: &str = "antiphon_failed_responses_total";
pub(super) const LATENCY: &str = "antiphon_latency_seconds";
pub(super) const BARGE_INS: &str = "antiphon_barge_ins_total";
pub(super) const HELD: &str = "antiphon_held_total";
pub(super) const BACKCHANNELS: &str = "antiphon_backchannels_total";
pub(super) const BYTES_IN: &str = "antiphon_bytes_in_total";
pub(super) const BYTES_OUT: &str = "antiphon_bytes_out_total";
pub(super) const SPECULATIVE_RESPONSES: &str = "antiphon_speculative_responses_total";
pub(super) const SPECULATION_WASTED: &str = "antiphon_speculation_wasted_milliseconds_total";
pub(super) const COMPUTE: &str = "antiphon_compute_milliseconds_total";
pub(super) const UNDERRUNS: &str = "antiphon_underruns_total";
pub(super) const STT_WAITING: &str = "antiphon_stt_waiting";
pub(super) const REQUESTS: &str = "voice_requests_total";
pub(super) const REQUEST_DURATION: &str = "voice_request_duration_seconds";
pub(super) const QUEUE_DEPTH: &str = "voice_queue_depth";
pub(super) const TTS_SLOTS: &str = "antiphon_tts_slots";
pub(super) const TTS_SLOTS_IN_USE: &str = "antiphon_tts_slots_in_use";
pub(super) const TTS_WAITING: &str = "antiphon_tts_waiting";

/// Registers the description of each metric.
pub(super) fn describe(recorder: &dyn Recorder) {
    let gauge = |name: &'static str, text: &'static str| recorder.describe_gauge(name.into(), None, text.into());
    let counter = |name: &'static str, text: &'static str| recorder.describe_counter(name.into(), None, text.into());
    gauge(SESSIONS_ACTIVE, "Active sessions.");
    gauge(STT_WAITING, "Utterances waiting for a speech decoder.");
    gauge(TTS_WAITING, "Text chunks waiting for a voice engine.");
    gauge(TTS_SLOTS, "Listeners that a speech language model serves at once.");
    gauge(TTS_SLOTS_IN_USE, "Slots of a speech language model in use.");
    counter(REQUESTS, "Speech API requests, by endpoint and outcome.");
    gauge(QUEUE_DEPTH, "Queue depth, by queue.");
    recorder.describe_histogram(
        REQUEST_DURATION.into(),
        Some(Unit::Seconds),
        "Duration of speech API requests, by endpoint.".into(),
    );
    counter(SESSIONS, "Sessions started.");
    counter(SESSIONS_REJECTED, "Sessions rejected because the server was full.");
    counter(TURNS, "User turns ended.");
    counter(RESPONSES, "Responses ended, by outcome.");
    counter(ERRORS, "Errors reported to clients, failed responses included, by code.");
    counter(FAILED_RESPONSES, "Failed responses, by code and stage.");
    counter(BARGE_INS, "Responses stopped by speech.");
    counter(BACKCHANNELS, "Backchannels and sounds without words that a response went on after.");
    counter(HELD, "Responses paused because speech may have started.");
    counter(SPECULATIVE_RESPONSES, "Speculative responses, by outcome.");
    counter(SPECULATION_WASTED, "Time spent on speculative responses that were discarded.");
    counter(COMPUTE, "Busy time of engines in sessions, by stage, kind (cpu, gpu) and waste.");
    counter(UNDERRUNS, "Playback underruns, as reported by clients or estimated by the send clock.");
    counter(BYTES_IN, "Bytes of messages received.");
    counter(BYTES_OUT, "Bytes of messages sent.");
    recorder.describe_histogram(LATENCY.into(), Some(Unit::Seconds), "Latency of a turn, by stage.".into());
}

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
    fn each_stands_at_its_own_number() {
        assert!(Outcome::ALL.iter().enumerate().all(|(i, outcome)| *outcome as usize == i));
        assert!(Stage::ALL.iter().enumerate().all(|(i, stage)| *stage as usize == i));
    }
}
