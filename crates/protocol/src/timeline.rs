//! What `antiphon.timeline` tells of a turn: where its time went, and why its end was confirmed when it was. The session
//! fills it in; nothing is measured here.

use serde::Serialize;

/// Milliseconds from the end of the user's speech; what did not happen is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Marks {
    /// The last voiced window's end: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speech_end: Option<f64>,
    /// It was decided that the turn is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_confirmed: Option<f64>,
    /// The final transcript was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stt_final: Option<f64>,
    /// The model's first token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm_first_token: Option<f64>,
    /// The first chunk to speak was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_chunk: Option<f64>,
    /// The first samples of it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tts_first_audio: Option<f64>,
    /// The first reply audio went out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_audio_sent: Option<f64>,
}

/// Why the end of a turn was confirmed when it was: the decision and all that went into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Endpointing {
    /// That the turn is over, 0 to 1.
    pub probability: f64,
    /// The silence that was waited for.
    pub wait_ms: f64,
    /// Voiced time of the utterance.
    pub spoken_ms: f64,
    /// How the transcript ends: unknown, open, unfinished, plain, command, sentence, question, answer.
    pub wording: &'static str,
    /// How much softer the voice became, in dB.
    pub energy_fall_db: Option<f32>,
    /// How much lower it became.
    pub pitch_fall_semitones: Option<f32>,
    /// Pauses inside turns that this speaker was heard to make.
    pub n_pauses: u32,
    /// The length expected of them.
    pub typical_pause_ms: f64,
    /// What a turn model says, where there is one.
    pub model_probability: Option<f32>,
}
