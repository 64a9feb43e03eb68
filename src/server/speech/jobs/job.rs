//! A job as clients see it: `GET /v1/audio/speech/jobs/{id}`.

use antiphon_audio::encode::{FileFormat, RATE};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// What every job's id begins with.
pub(super) const PREFIX: &str = "job_";

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Queued,
    Running,
    Completed,
    Failed,
}

impl Status {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    /// What the database holds; only this module's names are ever written there.
    pub(super) fn named(name: &str) -> Self {
        let known = [Self::Queued, Self::Running, Self::Completed];
        known.into_iter().find(|status| status.name() == name).unwrap_or(Self::Failed)
    }
}

/// Why a job failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: String,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }

    /// The key that asked for the job was revoked, has expired or has lost its scope.
    pub(super) fn key_revoked() -> Self {
        Self::new("key_revoked", "The API key that asked for this job may not use the speech API any more.")
    }
}

/// One job. Times are Unix seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) id: String,
    pub(super) status: Status,
    pub(super) created: i64,
    pub(super) started: Option<i64>,
    pub(super) ended: Option<i64>,
    pub(super) n_chunks: usize,
    pub(super) n_done: usize,
    pub(super) n_chars: usize,
    pub(super) voice: String,
    pub(super) speed: f32,
    pub(super) format: FileFormat,
    /// Samples that were made, as bytes.
    pub(super) pcm_bytes: u64,
    /// The finished file.
    pub(super) file_bytes: u64,
    pub(super) failure: Option<Failure>,
    /// The model of the registry it was asked for with.
    pub(super) model: Option<String>,
    /// The API key it belongs to.
    pub(super) owner: Option<String>,
}

impl Job {
    /// As a client gets it; a finished job is kept for `keep_s` seconds.
    pub(super) fn json(&self, keep_s: i64) -> Value {
        let seconds = self.pcm_bytes as f64 / f64::from(2 * RATE.hz());
        let is_completed = self.status == Status::Completed;
        json!({
            "id": self.id,
            "object": "audio.speech.job",
            "status": self.status.name(),
            "created_at": self.created,
            "started_at": self.started,
            "ended_at": self.ended,
            "expires_at": self.ended.map(|ended| ended + keep_s),
            "model": self.model,
            "voice": self.voice,
            "speed": self.speed,
            "response_format": self.format.name(),
            "input_chars": self.n_chars,
            "progress": {
                "chunks_done": self.n_done,
                "chunks_total": self.n_chunks,
                "audio_seconds": (seconds * 1e3).round() / 1e3,
            },
            "audio": is_completed.then(|| json!({
                "url": format!("/v1/audio/speech/jobs/{}/audio", self.id), "bytes": self.file_bytes,
            })),
            "error": self.failure.as_ref().map(|failure| json!({"code": failure.code, "message": failure.message})),
        })
    }
}

/// Unix seconds.
pub(super) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}
