//! The `[vad]` section.

use antiphon_types::setting::Rule;

antiphon_types::settings! {
    /// Voice activity detection.
    pub struct VadConfig in "vad" {
        /// "auto": the best model in models.dir, else "earshot". "earshot": built in; takes music for speech.
        /// "silero": Silero VAD on ONNX Runtime, behind earshot.
        pub engine: String = "auto".into(), Rule::Engine;
        /// silero: the model, a name from `antiphon models list` or an .onnx file. Empty: the best one in
        /// models.dir.
        pub model: String = String::new(), Rule::Text;
    }
}
