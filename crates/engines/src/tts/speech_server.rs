//! A server that speaks: its address, its deadlines, the bounds of what it says, and what its failures are called.
//!
//! [`streamed`](super::streamed) asks it over HTTP, [`words`](super::words) over a WebSocket; `openai`, `fish` and `moshi` are
//! made of them. This module sends nothing but the request that opens a connection.

use super::TtsConfig;
use crate::remote::{Server, Upstream};
use antiphon_engine_api::Fault;
use antiphon_engine_api::tts::TtsError;
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::time::timeout;

/// Sound that stops in mid-chunk for this long is a failure.
const STALL: Duration = Duration::from_secs(5);

/// The longest sound of a text: so much, and so much more for each character at the voice's own rate. Slow speech takes a
/// fifth of that for a character.
const SOUND: Duration = Duration::from_secs(30);
const SOUND_PER_CHAR: Duration = Duration::from_millis(500);
/// How long a body is waited for in all, and how much longer for each second of sound it brought. Slower than this, no
/// listener hears a sentence.
pub(super) const WAIT: Duration = Duration::from_secs(30);
pub(super) const WAIT_PER_SOUND: u32 = 8;

/// A server that speaks. Cheap to clone.
#[derive(Clone)]
pub(super) struct SpeechServer {
    pub(super) server: Server,
    pub(super) deadlines: Deadlines,
    pub(super) upstream: Upstream,
}

/// How long to wait for a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// From the request to the first sound, the retry included.
    pub(super) first_byte: Duration,
    /// Between two pieces of the body behind the first sound.
    pub(super) between_bytes: Duration,
}

/// Why what a server sent is no sound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    /// What came instead.
    #[error("{0}")]
    Unusable(String),
    /// The server reported a failure of its own.
    #[error("the speech server reported: {0}")]
    Reported(String),
}

impl SpeechServer {
    /// Checks the settings and reads the key; connects to nothing. [`TtsError::Unavailable`] says which setting is
    /// wrong and what would be right.
    pub(super) fn new(config: &TtsConfig) -> Result<Self, TtsError> {
        let first_byte = Duration::from_millis(config.timeout_ms);
        let server =
            Server::new("tts", &config.base_url, &config.api_key_env, first_byte).map_err(TtsError::Unavailable)?;
        let upstream = Upstream::new(config.hedge_after_ms, first_byte, config.fallback.is_some());
        Ok(Self { server, deadlines: Deadlines { first_byte, between_bytes: STALL }, upstream })
    }

    /// Opens a connection, so that the first chunk does not pay for it. What the server answers does not matter.
    pub(super) async fn warm(&self) -> Result<(), TtsError> {
        let answer = timeout(self.deadlines.first_byte, self.server.warm()).await;
        match answer {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.transport("cannot be reached", error)),
            Err(_) => Err(TtsError::Timeout(self.deadlines.first_byte)),
        }
    }

    /// A connection that failed.
    pub(super) fn transport(&self, what: &str, error: reqwest::Error) -> TtsError {
        let message = format!("the server {} {what}", self.server.host());
        let fault = if error.is_connect() { Fault::Unreachable } else { Fault::BrokenOff };
        TtsError::Remote { fault, message, source: Some(Box::new(error.without_url())) }
    }
}

pub(super) fn failed(fault: Fault, message: String) -> TtsError {
    TtsError::Remote { fault, message, source: None }
}

/// The request is not sent: the server failed before.
pub(super) fn away(host: &str, reason: &dyn std::fmt::Display) -> TtsError {
    TtsError::Away(format!("{host}: {reason}"))
}

/// The kind of a failure, for the server's circuit breaker.
pub(super) fn fault_of(error: &TtsError) -> Fault {
    match error {
        TtsError::Remote { fault, .. } => *fault,
        TtsError::Timeout(_) => Fault::Timeout,
        _ => Fault::Failed,
    }
}

pub(super) fn unusable(message: String) -> TtsError {
    failed(Fault::BadAnswer, message)
}

/// Checks `tts.extra_body`: none of its fields may be one of `own`, which the engine sets itself. Each of them stands with what
/// to set instead.
pub(super) fn check_extra(extra: &Map<String, Value>, own: &[(&str, &str)]) -> Result<(), TtsError> {
    let Some((field, instead)) = own.iter().find(|(field, _)| extra.contains_key(*field)) else { return Ok(()) };
    Err(TtsError::Unavailable(format!("tts.extra_body.{field} is a field that the hub itself sets: {instead}")))
}

/// The failure of an answer that is no sound.
pub(super) fn undecoded(error: DecodeError) -> TtsError {
    let fault = match error {
        DecodeError::Unusable(_) => Fault::BadAnswer,
        DecodeError::Reported(_) => Fault::Failed,
    };
    failed(fault, error.to_string())
}

/// The longest sound of a text of `n_chars` characters: a longer one is not its speech.
pub(super) fn longest_sound_of(n_chars: usize, speed: f32) -> Duration {
    let speed = if speed.is_finite() { speed.clamp(0.25, 1.0) } else { 1.0 };
    let n_chars = u32::try_from(n_chars).unwrap_or(u32::MAX);
    SOUND + SOUND_PER_CHAR.saturating_mul(n_chars).div_f32(speed)
}
