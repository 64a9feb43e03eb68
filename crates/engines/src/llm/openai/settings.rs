//! The `[llm]` section, checked and turned into what a call needs.

use crate::llm::LlmConfig;
use crate::secret::Bearer;
use antiphon_engine_api::llm::LlmError;
use reqwest::Url;
use std::time::Duration;

/// What a call needs of the configuration.
pub(super) struct Settings {
    /// `.../chat/completions`.
    pub completions: Url,
    /// `.../models`.
    pub models: Url,
    /// The key, if the server wants one.
    pub authorization: Bearer,
    /// Where the key came from, for error texts.
    pub key_env: String,
    pub model: String,
    pub temperature: f32,
    pub max_tokens: u32,
    /// Whether images are passed.
    pub images: bool,
    /// The longest wait for the first delta, the retry included.
    pub first_token: Duration,
    /// The longest wait for a further one.
    pub token: Duration,
    /// The longest wait for a connection: half the first wait, so that a second try has its time.
    pub connect: Duration,
    /// `http`, not `https`.
    pub plain: bool,
    /// The server is on this machine.
    pub loopback: bool,
}

impl Settings {
    pub fn new(config: &LlmConfig, key: Option<String>) -> Result<Self, LlmError> {
        let base = base_url(&config.base_url)?;
        let plain = base.scheme() == "http";
        if config.model.is_empty() {
            return wrong("[llm] model is empty: name a model the server has (its page /v1/models lists them)".into());
        }
        if !(0.0..=2.0).contains(&config.temperature) {
            return wrong(format!("[llm] temperature is {}: it must be from 0 to 2", config.temperature));
        }
        if config.max_tokens == 0 || config.first_token_timeout_ms == 0 || config.token_timeout_ms == 0 {
            return wrong("[llm] max_tokens and the timeouts must be above 0".into());
        }
        let first_token = Duration::from_millis(config.first_token_timeout_ms);
        Ok(Self {
            completions: join(&base, "chat/completions"),
            models: join(&base, "models"),
            authorization: authorization(config, key, plain)?,
            key_env: config.api_key_env.clone(),
            model: config.model.clone(),
            temperature: config.temperature,
            max_tokens: config.max_tokens,
            images: config.images,
            first_token,
            token: Duration::from_millis(config.token_timeout_ms),
            connect: first_token / 2,
            plain,
            loopback: matches!(base.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")),
        })
    }

    /// The server as error texts name it: without a user or password that may stand in the address.
    pub fn server(&self) -> String {
        self.completions.origin().ascii_serialization()
    }
}

fn wrong<T>(text: String) -> Result<T, LlmError> {
    Err(LlmError::Unavailable(text))
}

/// Takes the address with or without a slash at the end, and with the whole path, which people paste.
fn base_url(text: &str) -> Result<Url, LlmError> {
    let trimmed = text.trim().trim_end_matches('/');
    let trimmed = trimmed.strip_suffix("/chat/completions").unwrap_or(trimmed);
    match Url::parse(trimmed) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(url),
        _ => wrong(
            "[llm] base_url is no http or https address: give it up to and including /v1, \
             for example http://127.0.0.1:11434/v1"
                .into(),
        ),
    }
}

fn join(base: &Url, page: &str) -> Url {
    let mut url = base.clone();
    url.path_segments_mut().expect("http addresses have paths").pop_if_empty().extend(page.split('/'));
    url
}

fn authorization(config: &LlmConfig, key: Option<String>, plain: bool) -> Result<Bearer, LlmError> {
    let name = &config.api_key_env;
    let key = key.map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
    // Servers on plain HTTP stand next door and rarely want a key; those on HTTPS do.
    if key.is_none() && !plain && !name.is_empty() {
        return wrong(format!(
            "the language model's key is missing: set the environment variable {name}, \
             or set [llm] api_key_env = \"\" if the server wants none"
        ));
    }
    // The default names a variable that servers on this machine do without.
    if key.is_none() && !name.is_empty() && *name != LlmConfig::default().api_key_env {
        tracing::warn!(variable = %name, "llm.api_key_env names a variable that is not set: requests go without a key");
    }
    match Bearer::new(name, key.as_deref()) {
        Some(key) => Ok(key),
        None => wrong(format!("the key in {name} holds characters that no key has: set it again")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(base_url: &str, key: Option<&str>) -> Result<Settings, String> {
        let config = LlmConfig { base_url: base_url.into(), ..LlmConfig::default() };
        Settings::new(&config, key.map(str::to_owned)).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_are_taken_as_people_write_them() {
        for base in ["http://[::1]:1/v1", "http://[::1]:1/v1/", "http://[::1]:1/v1/chat/completions"] {
            let settings = settings(base, None).unwrap();
            assert_eq!(settings.completions.as_str(), "http://[::1]:1/v1/chat/completions");
            assert_eq!(settings.models.as_str(), "http://[::1]:1/v1/models");
            assert!(settings.loopback && settings.plain);
        }
        for bad in ["", "localhost:1/v1", "ftp://x/v1", "http://"] {
            assert!(settings(bad, None).err().unwrap().contains("base_url"), "{bad}");
        }
    }

    #[test]
    fn a_missing_key_is_named_where_one_is_needed() {
        assert!(settings("https://a.example/v1", None).err().unwrap().contains("OPENAI_API_KEY"));
        assert!(settings("https://a.example/v1", Some(" \n")).err().unwrap().contains("OPENAI_API_KEY"));
        assert!(settings("http://a.example/v1", None).unwrap().authorization.header().is_none());
        let settings = settings("https://a.example/v1", Some("secret\n")).unwrap();
        assert_eq!(settings.authorization.header().unwrap(), "Bearer secret");
        assert!(!format!("{:?}", settings.authorization).contains("secret"));
    }

    #[test]
    fn passwords_in_the_address_stay_out_of_messages() {
        assert_eq!(settings("http://me:secret@h:8/v1", None).unwrap().server(), "http://h:8");
    }
}
