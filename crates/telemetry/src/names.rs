//! The metrics' names and labels, as Prometheus shows them.

use super::{Recorder, Unit};

pub(super) const SESSIONS_ACTIVE: &str = "antiphon_sessions_active";
pub(super) const SESSIONS: &str = "antiphon_sessions_total";
pub(super) const SESSIONS_REJECTED: &str = "antiphon_sessions_rejected_total";
pub(super) const TURNS: &str = "antiphon_turns_total";
pub(super) const RESPONSES: &str = "antiphon_responses_total";
pub(super) const ERRORS: &str = "antiphon_errors_total";
pub(super) const LATENCY: &str = "antiphon_latency_seconds";
pub(super) const BARGE_INS: &str = "antiphon_barge_ins_total";
pub(super) const HELD: &str = "antiphon_held_total";
pub(super) const BYTES_IN: &str = "antiphon_bytes_in_total";
pub(super) const BYTES_OUT: &str = "antiphon_bytes_out_total";
pub(super) const GUESSES: &str = "antiphon_guesses_total";
pub(super) const GUESS_WASTED: &str = "antiphon_guess_wasted_milliseconds_total";
pub(super) const UNDERRUNS: &str = "antiphon_underruns_total";
pub(super) const STT_WAITING: &str = "antiphon_stt_waiting";
pub(super) const REQUESTS: &str = "voice_requests_total";
pub(super) const REQUEST_DURATION: &str = "voice_request_duration_seconds";
pub(super) const QUEUE_DEPTH: &str = "voice_queue_depth";
pub(super) const GPU_MEMORY: &str = "voice_gpu_memory_bytes";
pub(super) const GPU_UTILIZATION: &str = "voice_gpu_utilization_ratio";
pub(super) const TTS_WAITING: &str = "antiphon_tts_waiting";

/// Says of each metric what it is.
pub(super) fn describe(recorder: &dyn Recorder) {
    let gauge = |name: &'static str, text: &'static str| recorder.describe_gauge(name.into(), None, text.into());
    let counter = |name: &'static str, text: &'static str| recorder.describe_counter(name.into(), None, text.into());
    gauge(SESSIONS_ACTIVE, "Sessions that live now.");
    gauge(STT_WAITING, "Utterances that wait for a speech decoder now.");
    gauge(TTS_WAITING, "Pieces of speech that wait for a voice now.");
    counter(REQUESTS, "Requests of the speech API that ended, by endpoint and outcome.");
    gauge(QUEUE_DEPTH, "What waits now, by queue.");
    gauge(GPU_MEMORY, "Memory in use on a graphics card.");
    gauge(GPU_UTILIZATION, "Share of the time in which a graphics card computed, 0 to 1.");
    recorder.describe_histogram(
        REQUEST_DURATION.into(),
        Some(Unit::Seconds),
        "From a request of the speech API to the end of its answer, by endpoint.".into(),
    );
    counter(SESSIONS, "Sessions begun.");
    counter(SESSIONS_REJECTED, "Sessions refused because the server was full.");
    counter(TURNS, "Turns of users ended.");
    counter(RESPONSES, "Responses ended, by outcome.");
    counter(ERRORS, "Errors reported to clients, by code.");
    counter(BARGE_INS, "Replies stopped by speech.");
    counter(HELD, "Replies held because speech may have begun.");
    counter(GUESSES, "Answers begun before the end of the turn was known, by what became of them.");
    counter(GUESS_WASTED, "Time spent on answers begun that came to nothing.");
    counter(UNDERRUNS, "Times a reply ran dry while it played, as clients report it or as the send clock has it.");
    counter(BYTES_IN, "Bytes of messages received.");
    counter(BYTES_OUT, "Bytes of messages sent.");
    recorder.describe_histogram(LATENCY.into(), Some(Unit::Seconds), "Waits of a turn, by stage.".into());
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It said all of it.
    Completed,
    /// A barge-in or the client stopped it.
    Cancelled,
    /// A stage failed.
    Failed,
    /// A limit cut it.
    Incomplete,
}

impl Outcome {
    /// All of them; each stands at its own number.
    pub const ALL: [Self; 4] = [Self::Completed, Self::Cancelled, Self::Failed, Self::Incomplete];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Incomplete => "incomplete",
        }
    }
}

/// What may become of a request of the speech API.
pub(super) const REQUEST_OUTCOMES: [&str; 5] = ["ok", "refused", "overloaded", "failed", "cancelled"];

/// A part of the speech API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Text to speech.
    Speech,
    /// Speech to text.
    Transcriptions,
    /// Speech to text in another language.
    Translations,
    /// A text spoken as a job, from its beginning to its end.
    Job,
}

impl Endpoint {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Speech, Self::Transcriptions, Self::Translations, Self::Job];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Speech => "speech",
            Self::Transcriptions => "transcriptions",
            Self::Translations => "translations",
            Self::Job => "job",
        }
    }
}

/// A wait worth watching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From the confirmed end of speech to the final transcript.
    SttFinal,
    /// From the request to the language model to its first token.
    LlmFirstToken,
    /// From a chunk given to the voice engine to its first sound.
    TtsFirstAudio,
    /// From the end of the user's speech to the first reply audio sent.
    VoiceToVoice,
    /// The same to the first sound at the listener's ear, as clients report it.
    VoiceToEar,
}

impl Stage {
    /// All of them; each stands at its own number.
    pub const ALL: [Self; 5] =
        [Self::SttFinal, Self::LlmFirstToken, Self::TtsFirstAudio, Self::VoiceToVoice, Self::VoiceToEar];

    /// The label's value.
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
