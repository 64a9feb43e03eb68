//! The `[speech]` section.

use serde::{Deserialize, Serialize};

/// Settings of the speech API (`/v1/audio/...`). Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpeechConfig {
    /// Maximum concurrent requests for speech and transcription.
    pub max_requests: usize,
    /// Maximum characters of a text that is synthesized while the client waits.
    pub max_input_chars: usize,
    /// Maximum number of chunks synthesized before the listener reaches them.
    pub chunks_ahead: usize,
    /// Maximum size of an uploaded audio file, in MiB.
    pub max_upload_mib: usize,
    /// Maximum duration of audio to transcribe, in minutes.
    pub max_audio_minutes: u32,
    /// Folder of the jobs; empty: jobs are disabled.
    pub jobs_dir: String,
    /// Maximum number of unfinished jobs.
    pub max_jobs: usize,
    /// Number of jobs processed concurrently.
    pub jobs_at_once: usize,
    /// Maximum characters of a job's text.
    pub max_job_chars: usize,
    /// How long a finished job is kept, in hours.
    pub jobs_keep_hours: u32,
    /// Disk quota of all jobs, in MiB.
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
