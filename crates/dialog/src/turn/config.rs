//! The `[turn]` section.

use antiphon_types::setting::Rule;

antiphon_types::settings! {
    /// Turn-taking defaults of new sessions; a client may set its own with session.update.
    pub struct TurnConfig in "turn" {
        /// Probability of speech from which a window counts as voiced.
        pub threshold: f32 = 0.5, Rule::Number(0.0, 1.0);
        /// Audio kept from before the detected start of speech.
        pub prefix_padding_ms: u32 = 300, Rule::Whole(0, 5_000, "milliseconds");
        /// Silence that ends a turn of server_vad.
        pub silence_duration_ms: u32 = 500, Rule::Whole(50, 10_000, "milliseconds");
        /// Voiced time from which sound counts as speech.
        pub min_speech_ms: u32 = 96, Rule::Whole(0, 2_000, "milliseconds");
        /// A model that estimates at each pause whether the turn is over (semantic_vad), and of speech over a
        /// reply whether it interrupts: smart-turn v3 by name or .onnx file, or an .onnx file with a contract,
        /// see docs/guide/models.md. "auto": none so far.
        pub model: String = "auto".into(), Rule::Text;
    }
}
