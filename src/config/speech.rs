//! The `[speech]` section.

use antiphon_types::setting::Rule;

antiphon_types::settings! {
    /// The speech API: /v1/audio/speech, /v1/audio/transcriptions and related routes.
    pub struct SpeechConfig in "speech" {
        /// Requests at once; one more is answered 503. One of several API keys, or one address where there are
        /// no keys, has half.
        pub max_requests: usize = 32, Rule::Whole(1, 10_000, "requests");
        /// Characters of a text that is spoken while its client waits; longer texts are jobs.
        pub max_input_chars: usize = 4_096, Rule::Whole(1, 1_000_000, "characters");
        /// Chunks synthesized ahead of the listener, where the engine has capacity.
        pub chunks_ahead: usize = 2, Rule::Whole(0, 16, "chunks");
        /// The largest sound file. The files of all requests together may take 1 GiB.
        pub max_upload_mib: usize = 128, Rule::Whole(1, 1_024, "MiB");
        /// The longest audio that is transcribed.
        pub max_audio_minutes: u32 = 120, Rule::Whole(1, 1_440, "minutes");
        /// The folder of the jobs (/v1/audio/speech/jobs), for one hub at a time; see server.storage_key.
        pub jobs_dir: String = "state/jobs".into(), Rule::Text;
        /// Unfinished jobs; one more is answered 429. One of several API keys has half.
        pub max_jobs: usize = 64, Rule::Whole(1, 10_000, "jobs");
        /// How many of them are processed at once.
        pub jobs_at_once: usize = 1, Rule::Whole(1, 64, "jobs");
        /// Characters of a job's text.
        pub max_job_chars: usize = 200_000, Rule::Whole(1, 1_000_000, "characters");
        /// How long a finished job is kept.
        pub jobs_keep_hours: u32 = 24, Rule::Whole(1, 8_760, "hours");
        /// Disk space of all jobs; the oldest finished ones of the API key that takes most go first.
        pub jobs_max_mib: u32 = 2_048, Rule::Whole(1, 1_048_576, "MiB");
    }
}
