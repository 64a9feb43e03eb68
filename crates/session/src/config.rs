//! The `[session]` section.

use antiphon_dialog::Speculation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a filler says if nothing else is configured.
const FILLERS: [(&str, &str); 4] =
    [("de", "Einen Moment."), ("en", "One moment."), ("es", "Un momento."), ("fr", "Un instant.")];

/// Settings of a conversation. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionConfig {
    /// The longest a session may live.
    pub max_minutes: u32,
    /// How long after its connection broke a session can be taken up again.
    pub resume_seconds: u32,
    /// Binary audio: how far ahead of the playhead reply audio is sent.
    pub lead_ms: u32,
    /// Whether the end of a turn starts an answer.
    pub create_response: bool,
    /// Whether speech stops the reply that plays.
    pub interrupt_response: bool,
    /// Whether a backchannel leaves that reply going, where the hub controls its playback.
    pub ignore_backchannels: bool,
    /// Whether the model reads what of a reply that was cut off was not heard.
    pub interruption_notes: bool,
    /// How long a turn may be silent before a filler is spoken; 0: for ever.
    pub filler_after_ms: u32,
    /// The words of a filler, by the two letters of the voice's language.
    pub fillers: BTreeMap<String, String>,
    /// Tokens the model reads at most: instructions, tools and the latest turns.
    pub history_tokens: u32,
    /// Responses in a turn that may call tools; the next one has none.
    pub max_tool_rounds: u32,
    /// How long an answer is spoken at most, in seconds; 0: as long as it is.
    pub max_answer_seconds: u32,
    /// The longest utterance, in seconds.
    pub max_utterance_seconds: u32,
    /// Whether fields the protocol does not know are refused.
    pub refuse_unknown_fields: bool,
    /// The folder that sessions are recorded into, for `antiphon replay`; empty: they are not.
    pub record: String,
    /// Whether a recording holds the microphone's audio too.
    pub record_audio: bool,
}

/// The `[speculation]` section: responses started before the end of the turn is confirmed. Each key is documented in
/// `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpeculationConfig {
    /// Silence after which the turn may be over; 0: no speculation.
    pub after_ms: u32,
    /// Provisional transcripts in one turn.
    pub max_per_turn: u32,
    /// Work on dropped speculative responses, as a share of the session's time.
    pub budget: f64,
}

/// Silence after which a partial transcript is requested without speculation: a recognizer needs about 100 ms of it to be
/// sure of the last one.
const ASK_AFTER_MS: u32 = 100;

impl SpeculationConfig {
    /// The reducer's bounds.
    pub(super) fn limits(&self) -> Option<Speculation> {
        let Self { after_ms, max_per_turn, budget } = *self;
        (after_ms > 0 && max_per_turn > 0).then_some(Speculation { max_per_turn, budget })
    }

    /// The silence that is a pause.
    pub(super) fn pause_ms(&self) -> u32 {
        if self.after_ms > 0 { self.after_ms } else { ASK_AFTER_MS }
    }
}

impl Default for SpeculationConfig {
    fn default() -> Self {
        Self { after_ms: 80, max_per_turn: 4, budget: 0.5 }
    }
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            max_minutes: 60,
            resume_seconds: 30,
            lead_ms: 300,
            create_response: true,
            interrupt_response: true,
            ignore_backchannels: false,
            interruption_notes: false,
            filler_after_ms: 0,
            fillers: FILLERS.map(|(language, text)| (language.to_owned(), text.to_owned())).into(),
            history_tokens: 8_000,
            max_tool_rounds: 8,
            max_answer_seconds: 0,
            max_utterance_seconds: 300,
            refuse_unknown_fields: true,
            record: String::new(),
            record_audio: false,
        }
    }
}
