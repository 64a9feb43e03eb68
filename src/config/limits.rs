//! The `[limits]` section, and what a key of `server.api_keys_file` may set otherwise.

use serde::{Deserialize, Serialize};

/// Rate limits of clients, amounts a minute; 0: no limit. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Sessions that one API key may start.
    pub sessions_per_minute: u32,
    /// Input audio of all sessions of one API key, in seconds.
    pub audio_seconds_per_minute: u32,
    /// Responses of all sessions of one API key.
    pub responses_per_minute: u32,
    /// Tokens that the language model reads and writes for one API key.
    pub tokens_per_minute: u32,
    /// HTTP requests of one API key.
    pub requests_per_minute: u32,
    /// Characters that one API key may have spoken by the speech API, jobs included.
    pub characters_per_minute: u32,
    /// Audio files that one API key may have transcribed, in seconds.
    pub transcription_seconds_per_minute: u32,
    /// Jobs that one API key may create.
    pub jobs_per_minute: u32,
    /// The same for one address.
    pub address_sessions_per_minute: u32,
    /// The same for one address.
    pub address_audio_seconds_per_minute: u32,
    /// The same for one address.
    pub address_responses_per_minute: u32,
    /// The same for one address.
    pub address_tokens_per_minute: u32,
    /// The same for one address.
    pub address_requests_per_minute: u32,
    /// The same for one address.
    pub address_characters_per_minute: u32,
    /// The same for one address.
    pub address_transcription_seconds_per_minute: u32,
    /// The same for one address.
    pub address_jobs_per_minute: u32,
    /// Input audio of one session, in seconds.
    pub session_audio_seconds_per_minute: u32,
    /// Responses of one session.
    pub session_responses_per_minute: u32,
    /// Tokens that the language model reads and writes for one session.
    pub session_tokens_per_minute: u32,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            sessions_per_minute: 6_000,
            audio_seconds_per_minute: 0,
            responses_per_minute: 0,
            tokens_per_minute: 0,
            requests_per_minute: 12_000,
            characters_per_minute: 2_000_000,
            transcription_seconds_per_minute: 72_000,
            jobs_per_minute: 1_200,
            address_sessions_per_minute: 1_200,
            address_audio_seconds_per_minute: 0,
            address_responses_per_minute: 0,
            address_tokens_per_minute: 0,
            address_requests_per_minute: 6_000,
            address_characters_per_minute: 0,
            address_transcription_seconds_per_minute: 0,
            address_jobs_per_minute: 600,
            session_audio_seconds_per_minute: 600,
            session_responses_per_minute: 600,
            session_tokens_per_minute: 5_000_000,
        }
    }
}

/// The limits of one API key in the keys' file; what is absent is as in `[limits]` and `[server]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeyLimits {
    /// As `server.max_sessions_per_key`; 0: no limit.
    pub max_sessions: Option<u32>,
    /// See [`LimitsConfig`].
    pub sessions_per_minute: Option<u32>,
    /// See [`LimitsConfig`].
    pub audio_seconds_per_minute: Option<u32>,
    /// See [`LimitsConfig`].
    pub responses_per_minute: Option<u32>,
    /// See [`LimitsConfig`].
    pub tokens_per_minute: Option<u32>,
    /// See [`LimitsConfig`].
    pub requests_per_minute: Option<u32>,
    /// See [`LimitsConfig`].
    pub characters_per_minute: Option<u32>,
    /// See [`LimitsConfig`].
    pub transcription_seconds_per_minute: Option<u32>,
    /// See [`LimitsConfig`].
    pub jobs_per_minute: Option<u32>,
}
