//! A text to speak, judged: what requests, jobs and adapters have in common.

use antiphon_audio::encode::FileFormat;

/// A text to speak, judged.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SpeechSpec {
    /// What the engine is given, in order; never empty.
    pub(super) chunks: Vec<String>,
    /// Characters of the text as it came.
    pub(super) n_chars: usize,
    pub(super) voice: String,
    /// Whether the voice is the engine's own: the client named none that is known here.
    pub(super) is_own_voice: bool,
    pub(super) speed: f32,
    /// How to speak.
    pub(super) instructions: Option<String>,
    /// Seed of engines that sample. Jobs have none.
    pub(super) seed: Option<u64>,
    pub(super) format: FileFormat,
    /// Server-sent events instead of the bytes themselves.
    pub(super) as_events: bool,
    /// The model that speaks it, where that is another than serves sessions.
    pub(super) model: Option<String>,
}
