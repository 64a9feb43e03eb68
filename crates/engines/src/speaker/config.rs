//! The `[speaker]` section.

use antiphon_types::setting::Rule;

antiphon_types::settings! {
    /// Whose voice is heard.
    pub struct SpeakerConfig in "speaker" {
        /// The model that tells voices apart, for session.speaker_lock: an .onnx file with a contract, see
        /// docs/guide/models.md. Empty: loudness alone does, a voice that is 7 dB quieter than the user's is
        /// another's.
        pub model: String = String::new(), Rule::Text;
    }
}
