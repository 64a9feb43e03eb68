//! The `[speech]` section.

use serde::{Deserialize, Serialize};

/// Settings of the speech API (`/v1/audio/...`). Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpeechConfig {
    /// Requests for speech and for transcriptions that are worked on at once.
    pub max_requests: usize,
    /// Characters of a text that is spoken while the client waits.
    pub max_input_chars: usize,
    /// Chunks of a text that are spoken before the listener gets to them.
    pub chunks_ahead: usize,
    /// The largest sound file that is taken, in MiB.
    pub max_upload_mib: usize,
    /// The longest audio that is written down, in minutes.
    pub max_audio_minutes: u32,
    /// The folder of the jobs; empty: there are none.
    pub jobs_dir: String,
    /// Jobs that are not finished, at most.
    pub max_jobs: usize,
    /// How many of them are worked on at once.
    pub jobs_at_once: usize,
    /// Characters of a job's text.
    pub max_job_chars: usize,
    /// How long a finished job is kept, in hours.
    pub jobs_keep_hours: u32,
    /// What the jobs may take on the disk, in MiB.
    pub jobs_max_mib: u32,
}

impl Default for SpeechConfig {
    fn default() -> Self {
        Self {
            max_requests: 32,
            max_input_chars: 4_096,
            chunks_ahead: 2,
            max_upload_mib: 128,
            max_audio_minutes: 120,
            jobs_dir: "state/jobs".into(),
            max_jobs: 64,
            jobs_at_once: 1,
            max_job_chars: 200_000,
            jobs_keep_hours: 24,
            jobs_max_mib: 2_048,
        }
    }
}
