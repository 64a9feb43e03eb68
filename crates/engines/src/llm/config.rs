//! The `[llm]` section.

use serde::{Deserialize, Serialize};

/// Settings of the language model. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LlmConfig {
    /// The name of an engine ([`ENGINES`](super::ENGINES)).
    pub engine: String,
    /// `openai`: address up to and including `/v1`.
    pub base_url: String,
    /// `openai`: the model's name.
    pub model: String,
    /// `openai`: the environment variable that holds the key; empty: no key.
    pub api_key_env: String,
    /// Instructions sessions begin with.
    pub system_prompt: String,
    /// `openai`: 0 to 2.
    pub temperature: f32,
    /// `openai`: at most this many tokens an answer.
    pub max_tokens: u32,
    /// `openai`: whether images of users are passed to the model.
    pub images: bool,
    /// `openai`: the longest wait for the first token, the retry included.
    pub first_token_timeout_ms: u64,
    /// `openai`: the longest wait between two tokens.
    pub token_timeout_ms: u64,
    /// `openai`: how late the first output must be before a second request is sent, at least; 0: none is.
    pub hedge_after_ms: u64,
    /// Ports on 127.0.0.1 on which servers of language models are looked for.
    pub local_ports: Vec<u16>,
    /// The engine that serves where this one fails; `None`: none. It has no fallback itself.
    #[serde(with = "crate::fallback::section")]
    pub fallback: Option<Box<Self>>,
}

impl Default for LlmConfig {
    fn default() -> Self {
        Self {
            engine: super::ASSISTANT.into(),
            base_url: "https://api.openai.com/v1".into(),
            model: "gpt-4o-mini".into(),
            api_key_env: "OPENAI_API_KEY".into(),
            system_prompt: "You are a helpful voice assistant. Answer in one to three short spoken sentences, \
                            without markup, lists or emoji."
                .into(),
            temperature: 0.7,
            max_tokens: 512,
            images: true,
            first_token_timeout_ms: 10_000,
            token_timeout_ms: 10_000,
            hedge_after_ms: 1_000,
            // Ollama, llama.cpp, LM Studio, vLLM: the ports that they have unless one is set.
            local_ports: vec![11_434, 8_080, 1_234, 8_000],
            fallback: None,
        }
    }
}
