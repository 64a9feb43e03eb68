//! The `[limits]` section, and what a key of `server.api_keys_file` may set otherwise.

use antiphon_types::setting::Rule;
use serde::Deserialize;

/// Maximum of the rate limits, in units a minute.
const MAX_PER_MINUTE: i64 = 1_000_000_000;

antiphon_types::settings! {
    /// Rate limits of clients: token buckets that hold one minute's amount and refill evenly. A key of
    /// server.api_keys_file may have limits of its own. 0 is no limit everywhere. See docs/operating/overload.md.
    #[derive(Eq)]
    pub struct LimitsConfig in "limits" {
        /// Sessions that one API key may start, with its short-lived keys.
        pub sessions_per_minute: u32 = 6_000, Rule::Whole(0, MAX_PER_MINUTE, "sessions; 0: no limit");
        /// Input audio of one API key.
        pub audio_seconds_per_minute: u32 = 0, Rule::Whole(0, MAX_PER_MINUTE, "seconds of audio; 0: no limit");
        /// Responses of one API key.
        pub responses_per_minute: u32 = 0, Rule::Whole(0, MAX_PER_MINUTE, "responses; 0: no limit");
        /// Tokens that the language model reads and writes for one API key.
        pub tokens_per_minute: u32 = 0, Rule::Whole(0, MAX_PER_MINUTE, "tokens; 0: no limit");
        /// HTTP requests of one API key, without the page, the probes, the sockets and what a phone's provider
        /// asks.
        pub requests_per_minute: u32 = 12_000, Rule::Whole(0, MAX_PER_MINUTE, "requests; 0: no limit");
        /// Characters that one API key may have spoken by the speech API, jobs included.
        pub characters_per_minute: u32 = 2_000_000, Rule::Whole(0, MAX_PER_MINUTE, "characters; 0: no limit");
        /// Audio files transcribed for one API key.
        pub transcription_seconds_per_minute: u32 =
            72_000,
            Rule::Whole(0, MAX_PER_MINUTE, "seconds of audio; 0: no limit");
        /// Jobs created by one API key.
        pub jobs_per_minute: u32 = 1_200, Rule::Whole(0, MAX_PER_MINUTE, "jobs; 0: no limit");
        /// Sessions per address (IPv6: per /64 network), without the hub's own machine and proxies that do not
        /// name their client.
        pub address_sessions_per_minute: u32 = 1_200, Rule::Whole(0, MAX_PER_MINUTE, "sessions; 0: no limit");
        /// Input audio per address.
        pub address_audio_seconds_per_minute: u32 = 0, Rule::Whole(0, MAX_PER_MINUTE, "seconds of audio; 0: no limit");
        /// Responses per address.
        pub address_responses_per_minute: u32 = 0, Rule::Whole(0, MAX_PER_MINUTE, "responses; 0: no limit");
        /// Tokens per address.
        pub address_tokens_per_minute: u32 = 0, Rule::Whole(0, MAX_PER_MINUTE, "tokens; 0: no limit");
        /// HTTP requests per address.
        pub address_requests_per_minute: u32 = 6_000, Rule::Whole(0, MAX_PER_MINUTE, "requests; 0: no limit");
        /// Characters spoken per address.
        pub address_characters_per_minute: u32 = 0, Rule::Whole(0, MAX_PER_MINUTE, "characters; 0: no limit");
        /// Audio files transcribed per address.
        pub address_transcription_seconds_per_minute: u32 =
            0,
            Rule::Whole(0, MAX_PER_MINUTE, "seconds of audio; 0: no limit");
        /// Jobs created per address.
        pub address_jobs_per_minute: u32 = 600, Rule::Whole(0, MAX_PER_MINUTE, "jobs; 0: no limit");
        /// Input audio of one session. A client that is ahead by more than two minutes is closed with 1008.
        pub session_audio_seconds_per_minute: u32 =
            600,
            Rule::Whole(0, MAX_PER_MINUTE, "seconds of audio; 0: no limit");
        /// Responses of one session.
        pub session_responses_per_minute: u32 = 600, Rule::Whole(0, MAX_PER_MINUTE, "responses; 0: no limit");
        /// Tokens of one session.
        pub session_tokens_per_minute: u32 = 5_000_000, Rule::Whole(0, MAX_PER_MINUTE, "tokens; 0: no limit");
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
