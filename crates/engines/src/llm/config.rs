//! The `[llm]` section.

use antiphon_types::setting::{HOUR_MS, Rule};

antiphon_types::settings! {
    /// The language model.
    pub struct LlmConfig in "llm" {
        /// "assistant": the offline assistant. "openai": any server with /v1/chat/completions: OpenAI, vLLM,
        /// Ollama, llama.cpp.
        pub engine: String = super::ASSISTANT.into(), Rule::Engine;
        /// openai: as stt.base_url.
        pub base_url: String = "https://api.openai.com/v1".into(), Rule::Url;
        /// openai: the model's name.
        pub model: String = "gpt-4o-mini".into(), Rule::Name;
        /// openai: NAME of the environment variable that holds the key, as stt.api_key_env.
        pub api_key_env: String = "OPENAI_API_KEY".into(), Rule::Variable;
        /// Instructions that sessions begin with; a client may set its own.
        pub system_prompt: String =
            "You are a helpful voice assistant. Answer in one to three short spoken sentences, \
             without markup, lists or emoji."
                .into(),
            Rule::Text;
        /// openai: sampling temperature.
        pub temperature: f32 = 0.7, Rule::Number(0.0, 2.0);
        /// openai: the most tokens per answer.
        pub max_tokens: u32 = 512, Rule::Whole(1, 1_000_000, "tokens");
        /// openai: whether images are passed to the model, until its server answers that the model takes none.
        pub images: bool = true, Rule::Switch;
        /// openai: the longest wait for the first token, including a retry; longer where a server may have to
        /// load its model (docs/guide/remote-engines.md).
        pub first_token_timeout_ms: u64 = 10_000, Rule::Whole(100, HOUR_MS, "milliseconds");
        /// openai: the longest wait between two tokens.
        pub token_timeout_ms: u64 = 10_000, Rule::Whole(100, HOUR_MS, "milliseconds");
        /// openai: as stt.hedge_after_ms, for the first token. 0: never.
        pub hedge_after_ms: u64 = 1_000, Rule::Whole(0, 60_000, "milliseconds; 0: off");
        /// Ports on 127.0.0.1 on which the page and `antiphon doctor` look for language models.
        // Ollama, llama.cpp, LM Studio, vLLM: the ports that they have unless one is set.
        pub local_ports: Vec<u16> = vec![11_434, 8_080, 1_234, 8_000], Rule::Wholes(1, 65_535, "ports");
        /// Another engine of this stage, as stt.fallback: a table [llm.fallback]. A response that has begun
        /// stays where it is.
        #[serde(with = "crate::fallback::section")]
        pub fallback: Option<Box<Self>> = None, Rule::Fallback;
    }
}
