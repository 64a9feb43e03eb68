//! The content of `antiphon.timeline`: the latency of each stage of a turn, and the endpointing decision. The session
//! fills it in; nothing is measured here.

use serde::Serialize;

/// Times in milliseconds from the end of the user's speech; absent for stages that did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Marks {
    /// End of the last voiced window: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speech_end: Option<f64>,
    /// The end of the turn was confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_confirmed: Option<f64>,
    /// The final transcript was available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stt_final: Option<f64>,
    /// The language model's first token arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm_first_token: Option<f64>,
    /// The first chunk was ready for synthesis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_chunk: Option<f64>,
    /// The first audio of that chunk was synthesized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tts_first_audio: Option<f64>,
    /// The first response audio was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_audio_sent: Option<f64>,
    /// The first response audio was heard, by the client's report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_audio_heard: Option<f64>,
}

/// Which workers served a turn, where engines run on other machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Workers {
    /// The worker that recognized the utterance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stt_worker: Option<String>,
    /// The worker that spoke the first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tts_worker: Option<String>,
    /// Milliseconds that the network took of the time before `stt_final`, both ways together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stt_network_ms: Option<f64>,
    /// The same of the time before `tts_first_audio`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tts_network_ms: Option<f64>,
    /// Attempts that other workers had failed at before.
    #[serde(skip_serializing_if = "is_zero")]
    pub retried: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The endpointing decision and its inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Endpointing {
    /// Probability that the turn is over, 0 to 1.
    pub probability: f64,
    /// Silence before the decision, in milliseconds.
    pub wait_ms: f64,
    /// Voiced time of the utterance, in milliseconds.
    pub spoken_ms: f64,
    /// How the transcript ends: unknown, lead_in, open, digits, unfinished, plain, brief, sentence, command, question, answer.
    pub wording: &'static str,
    /// Probability by the words alone that the turn is over, 0 to 1; none where there are no English words.
    pub completeness: Option<f32>,
    /// Decrease in level at the end, in dB.
    pub energy_fall_db: Option<f32>,
    /// Decrease in pitch at the end, in semitones.
    pub pitch_fall_semitones: Option<f32>,
    /// Number of pauses inside turns observed for this speaker.
    pub n_pauses: u32,
    /// Expected length of such a pause, in milliseconds.
    pub typical_pause_ms: f64,
    /// Probability from the turn model, if there is one.
    pub model_probability: Option<f32>,
}
