//! The `[session]` section.

use antiphon_dialog::Speculation;
use antiphon_types::setting::Rule;
use std::collections::BTreeMap;

/// What a filler says if nothing else is configured.
const FILLERS: [(&str, &str); 4] =
    [("de", "Einen Moment."), ("en", "One moment."), ("es", "Un momento."), ("fr", "Un instant.")];

antiphon_types::settings! {
    /// Conversations.
    pub struct SessionConfig in "session" {
        /// The longest life of a session.
        pub max_minutes: u32 = 60, Rule::Whole(1, 1_440, "minutes");
        /// How long a session whose connection broke waits for its client (?resume=1) and counts towards
        /// max_sessions.
        pub resume_seconds: u32 = 30, Rule::Whole(1, 600, "seconds");
        /// Binary audio: how far ahead of the playhead reply audio is sent.
        pub lead_ms: u32 = 300, Rule::Whole(40, 5_000, "milliseconds");
        /// Whether the end of a turn starts a response; a client may set its own.
        pub create_response: bool = true, Rule::Switch;
        /// Whether speech interrupts the reply that is playing; a client may set its own.
        pub interrupt_response: bool = true, Rule::Switch;
        /// Whether a reply goes on after a backchannel ("uh-huh", a laugh, a cough), where the hub controls
        /// playback, in English, German, Spanish and French; a client may set its own.
        pub ignore_backchannels: bool = false, Rule::Switch;
        /// Whether other voices than the user's, a television or a colleague, neither interrupt nor are
        /// transcribed, once the hub has heard the user for 1.5 to 3 s; a client may set its own. See speaker.model.
        pub speaker_lock: bool = false, Rule::Switch;
        /// Whether the model reads, behind the last reply that was cut off, what of it was not heard: a system
        /// message, which some servers take only at the beginning.
        pub interruption_notes: bool = false, Rule::Switch;
        /// A filler is spoken once in a turn that has said nothing this long after its response began. 0:
        /// never.
        pub filler_after_ms: u32 = 0, Rule::Whole(0, 60_000, "milliseconds");
        /// What a filler says, by the two letters of the voice's language. At most 100 characters each.
        pub fillers: BTreeMap<String, String> =
            FILLERS.map(|(language, text)| (language.to_owned(), text.to_owned())).into(),
            Rule::ByLanguage(100, "One moment.");
        /// The most that the model reads: instructions, tools and the latest turns, four bytes a token. Keep it
        /// below the model's context (Ollama: num_ctx, 4096).
        pub history_tokens: u32 = 8_000, Rule::Whole(200, 10_000_000, "tokens");
        /// Responses in a turn that may call tools; then the model is asked without.
        pub max_tool_rounds: u32 = 8, Rule::Whole(1, 100, "rounds");
        /// How long an answer is spoken at most; a longer one ends with its sentence, as "incomplete". 0: no
        /// limit.
        pub max_answer_seconds: u32 = 0, Rule::Whole(0, 3_600, "seconds");
        /// The longest utterance. Longer speech is cut into turns; a longer commit is refused with
        /// "input_audio_buffer_full".
        pub max_utterance_seconds: u32 = 300, Rule::Whole(10, 600, "seconds");
        /// Whether a JSON field that the protocol does not define is an error ("unknown_parameter"), as with
        /// OpenAI.
        pub refuse_unknown_fields: bool = true, Rule::Switch;
        /// The folder for replay logs, with everything that was said, as text; see server.storage_key.
        pub record: String = String::new(), Rule::Text;
        /// Whether the sound is kept beside each replay log, as a WAV file: left the microphone, right the reply.
        pub record_audio: bool = false, Rule::Switch;
    }
}

antiphon_types::settings! {
    /// Speculative responses begin at a pause and are held back until the turn has ended; else they are discarded.
    pub struct SpeculationConfig in "speculation" {
        /// Silence after which a speculative response begins. 0: never.
        pub after_ms: u32 = 80, Rule::Whole(0, 2_000, "milliseconds");
        /// Speculative responses per turn.
        pub max_per_turn: u32 = 4, Rule::Whole(0, 100, "speculations");
        /// Work on discarded ones, as a share of the session's time, with bursts of up to ten seconds.
        pub budget: f64 = 0.5, Rule::Number(0.0, 1.0);
    }
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
