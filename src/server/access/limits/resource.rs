//! What is limited, and what is counted.

use crate::config::{KeyLimits, LimitsConfig};

/// What is limited. Audio is counted in milliseconds and limited in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Resource {
    Sessions,
    Audio,
    Responses,
    Tokens,
    Requests,
    Characters,
    Transcription,
    Jobs,
}

impl Resource {
    pub(super) const ALL: [Self; 8] = [
        Self::Sessions,
        Self::Audio,
        Self::Responses,
        Self::Tokens,
        Self::Requests,
        Self::Characters,
        Self::Transcription,
        Self::Jobs,
    ];

    /// The name of its setting, without what precedes it for an address or a session.
    pub(super) fn setting(self) -> &'static str {
        match self {
            Self::Sessions => "sessions_per_minute",
            Self::Audio => "audio_seconds_per_minute",
            Self::Responses => "responses_per_minute",
            Self::Tokens => "tokens_per_minute",
            Self::Requests => "requests_per_minute",
            Self::Characters => "characters_per_minute",
            Self::Transcription => "transcription_seconds_per_minute",
            Self::Jobs => "jobs_per_minute",
        }
    }

    /// Its name in the headers `x-ratelimit-...`.
    pub(in crate::server) fn header(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Audio | Self::Transcription => "audio-seconds",
            // A request of the socket is a response, as in `rate_limits.updated`.
            Self::Responses | Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::Characters => "characters",
            Self::Jobs => "jobs",
        }
    }

    /// How many units of the bucket make one of the limit.
    pub(super) fn scale(self) -> u64 {
        if matches!(self, Self::Audio | Self::Transcription) { 1_000 } else { 1 }
    }
}

/// The limit of each resource, in the order of [`Resource::ALL`], in units of the buckets.
pub(super) type Rates = [u64; Resource::ALL.len()];

fn scaled(rates: [u32; Resource::ALL.len()]) -> Rates {
    Resource::ALL.map(|resource| u64::from(rates[resource as usize]) * resource.scale())
}

/// Of an API key.
pub(super) fn of_key(config: &LimitsConfig, own: &KeyLimits) -> Rates {
    scaled([
        own.sessions_per_minute.unwrap_or(config.sessions_per_minute),
        own.audio_seconds_per_minute.unwrap_or(config.audio_seconds_per_minute),
        own.responses_per_minute.unwrap_or(config.responses_per_minute),
        own.tokens_per_minute.unwrap_or(config.tokens_per_minute),
        own.requests_per_minute.unwrap_or(config.requests_per_minute),
        own.characters_per_minute.unwrap_or(config.characters_per_minute),
        own.transcription_seconds_per_minute.unwrap_or(config.transcription_seconds_per_minute),
        own.jobs_per_minute.unwrap_or(config.jobs_per_minute),
    ])
}

/// Of an address.
pub(super) fn of_address(config: &LimitsConfig) -> Rates {
    scaled([
        config.address_sessions_per_minute,
        config.address_audio_seconds_per_minute,
        config.address_responses_per_minute,
        config.address_tokens_per_minute,
        config.address_requests_per_minute,
        config.address_characters_per_minute,
        config.address_transcription_seconds_per_minute,
        config.address_jobs_per_minute,
    ])
}

/// Of a session.
pub(super) fn of_session(config: &LimitsConfig) -> Rates {
    let audio = config.session_audio_seconds_per_minute;
    let responses = config.session_responses_per_minute;
    scaled([0, audio, responses, config.session_tokens_per_minute, 0, 0, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_the_section_limits_something() {
        let config = LimitsConfig::default();
        let written = toml::Value::try_from(&config).unwrap();
        let names: Vec<&str> = written.as_table().unwrap().keys().map(String::as_str).collect();
        for resource in Resource::ALL {
            for prefix in ["", "address_"] {
                let name = format!("{prefix}{}", resource.setting());
                assert!(names.contains(&name.as_str()), "{name}");
                let set = format!("{name} = 7");
                let config: LimitsConfig = toml::from_str(&set).unwrap();
                let rates =
                    if prefix.is_empty() { of_key(&config, &KeyLimits::default()) } else { of_address(&config) };
                assert_eq!(rates[resource as usize], 7 * resource.scale(), "{name}");
            }
            let own: KeyLimits = toml::from_str(&format!("{} = 0", resource.setting())).unwrap();
            assert_eq!(of_key(&config, &own)[resource as usize], 0);
        }
        assert_eq!(names.len(), 2 * Resource::ALL.len() + 3);
        assert_eq!(of_session(&config)[Resource::Audio as usize], 600_000);
    }
}
