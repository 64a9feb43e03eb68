//! The `[slo]` section.

use antiphon_types::setting::Rule;

antiphon_types::settings! {
    /// The latency objective, and what the hub does without while it is overloaded: docs/operating/overload.md.
    pub struct SloConfig in "slo" {
        /// Voice-to-voice latency that turns are to keep. 0: not considered.
        pub voice_to_voice_ms: u32 = 800, Rule::Whole(0, 60_000, "milliseconds");
        /// Share of the turns that are to keep it.
        pub share: f64 = 0.95, Rule::Number(0.5, 1.0);
        /// Whether an overloaded hub goes through the brownout levels; else the load is only measured.
        pub brownout: bool = true, Rule::Switch;
        /// Whether new sessions get the engines of [stt.fallback] and [tts.fallback] from level 3 on, where
        /// these are smaller.
        pub smaller_engines: bool = false, Rule::Switch;
        /// Processor time above which the hub is overloaded, as a share of its cores.
        pub processor_share: f64 = 0.9, Rule::Number(0.1, 1.0);
    }
}
