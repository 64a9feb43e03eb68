//! All keys and their valid values.

use antiphon_engine_api::stt::DETECT_LANGUAGE;
use antiphon_engines::table::EngineStage;
use antiphon_types::language_code;
use std::net::SocketAddr;
use toml::Value;

/// A key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its section.
    pub section: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its valid values.
    pub rule: Rule,
}

/// The valid values of a key.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// `true` or `false`.
    Switch,
    /// An integer: minimum and maximum, both inclusive, and the unit.
    Whole(i64, i64, &'static str),
    /// A number: minimum and maximum, both inclusive.
    Number(f64, f64),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// The name of an engine of this stage, or `auto` where the stage has that.
    Engine(EngineStage),
    /// Any text.
    Text,
    /// Any non-empty text.
    Name,
    /// The value of an HTTP header: visible ASCII characters and spaces, or empty.
    Header,
    /// The name of an environment variable, or empty.
    Variable,
    /// Two lower-case letters, `auto`, or empty.
    Language,
    /// A URL: `http://` or `https://`, a host, an optional path, no `?` and no `#`.
    Url,
    /// A URL, or empty.
    UrlOrNone,
    /// An address and a port to listen on.
    Listen,
    /// An address and a port to listen on, or empty.
    ListenOrNone,
    /// A list of IP addresses and networks in CIDR notation.
    Networks,
    /// A list of IP addresses.
    Addresses,
    /// An IP address, or empty.
    AddressOrNone,
    /// A list of web origins: scheme, host and optional port.
    Origins,
    /// One web origin, or empty.
    OriginOrNone,
    /// A list of URLs.
    Urls,
    /// A list of host names, without scheme and port.
    Hosts,
    /// A list of model names.
    Names,
    /// A list of texts: the most of them, and the most characters of one.
    Texts(usize, usize),
    /// A list of these words, not empty.
    Words(&'static [&'static str]),
    /// A list of addresses of NATS servers: `nats://` or `tls://`, a host, an optional port.
    NatsServers,
    /// A list of integers: minimum and maximum, both inclusive, and what they are.
    Wholes(i64, i64, &'static str),
    /// A table of any keys and values.
    Fields,
    /// A table of texts by the two letters of their language: the most characters of one, and an example.
    ByLanguage(usize, &'static str),
    /// A table of texts by a name of the operator's: the most of them, the most characters of one, and an example.
    TextsByName(usize, usize, &'static str),
    /// A table of tables: settings of calls by the number called or another name.
    Routes,
    /// A table of tables: who may call by SIP, by a name of the operator's.
    Trunks,
    /// A table of the keys of this section, for another engine of its stage; empty: none.
    Fallback(&'static str),
}

const fn key(section: &'static str, name: &'static str, rule: Rule) -> Key {
    Key { section, name, rule }
}

/// Maximum of the rate limits, in units a minute.
const MAX_PER_MINUTE: i64 = 1_000_000_000;

/// Maximum of the timeouts, in milliseconds: one hour.
const HOUR_MS: i64 = 3_600_000;

/// Every key, in the order of `configs/default.toml`.
pub const KEYS: &[Key] = &[
    key("vad", "engine", Rule::Engine(EngineStage::Vad)),
    key("vad", "model", Rule::Text),
    key("turn", "threshold", Rule::Number(0.0, 1.0)),
    key("turn", "prefix_padding_ms", Rule::Whole(0, 5_000, "milliseconds")),
    key("turn", "silence_duration_ms", Rule::Whole(50, 10_000, "milliseconds")),
    key("turn", "min_speech_ms", Rule::Whole(0, 2_000, "milliseconds")),
    key("turn", "model", Rule::Text),
    key("stt", "engine", Rule::Engine(EngineStage::Stt)),
    key("stt", "decoders", Rule::Whole(1, 64, "decoders")),
    key("stt", "slots", Rule::Whole(0, 1_024, "utterances; 0: as many as are usual")),
    key("stt", "base_url", Rule::Url),
    key("stt", "model", Rule::Name),
    key("stt", "api_key_env", Rule::Variable),
    key("stt", "language", Rule::Language),
    key("stt", "key_terms", Rule::Texts(1_000, 100)),
    key("stt", "threads", Rule::Whole(0, 256, "threads")),
    key("stt", "beam_size", Rule::Whole(1, 8, "hypotheses")),
    key("stt", "temperature_step", Rule::Number(0.0, 1.0)),
    key("stt", "no_speech_threshold", Rule::Number(0.0, 1.0)),
    key("stt", "min_window_ms", Rule::Whole(1_000, 30_000, "milliseconds")),
    key("stt", "gpu_device", Rule::Whole(-1, 64, "the GPU's number; -1: none")),
    key("stt", "gpu_devices", Rule::Wholes(0, 64, "numbers of GPUs")),
    key("stt", "timeout_ms", Rule::Whole(100, HOUR_MS, "milliseconds")),
    key("stt", "hedge_after_ms", Rule::Whole(0, 60_000, "milliseconds; 0: off")),
    key("stt", "fallback", Rule::Fallback("stt")),
    key("llm", "engine", Rule::Engine(EngineStage::Llm)),
    key("llm", "base_url", Rule::Url),
    key("llm", "model", Rule::Name),
    key("llm", "api_key_env", Rule::Variable),
    key("llm", "system_prompt", Rule::Text),
    key("llm", "temperature", Rule::Number(0.0, 2.0)),
    key("llm", "max_tokens", Rule::Whole(1, 1_000_000, "tokens")),
    key("llm", "images", Rule::Switch),
    key("llm", "first_token_timeout_ms", Rule::Whole(100, HOUR_MS, "milliseconds")),
    key("llm", "token_timeout_ms", Rule::Whole(100, HOUR_MS, "milliseconds")),
    key("llm", "hedge_after_ms", Rule::Whole(0, 60_000, "milliseconds; 0: off")),
    key("llm", "local_ports", Rule::Wholes(1, 65_535, "ports")),
    key("llm", "fallback", Rule::Fallback("llm")),
    key("tts", "engine", Rule::Engine(EngineStage::Tts)),
    key("tts", "voice", Rule::Name),
    key("tts", "language_voices", Rule::ByLanguage(256, "am_adam")),
    key("tts", "speed", Rule::Number(0.25, 4.0)),
    key("tts", "replicas", Rule::Whole(0, 64, "replicas")),
    key("tts", "base_url", Rule::Url),
    key("tts", "model", Rule::Name),
    key("tts", "api_key_env", Rule::Variable),
    key("tts", "response_format", Rule::OneOf(&["pcm", "wav"])),
    key("tts", "stream_format", Rule::OneOf(&["", "audio", "sse"])),
    key("tts", "sample_rate", Rule::Whole(0, 192_000, "Hz; 0: 24000")),
    key("tts", "text_input", Rule::OneOf(&["chunks", "words"])),
    key("tts", "extra_body", Rule::Fields),
    key("tts", "max_batch_size", Rule::Whole(0, 64, "pieces of speech")),
    key("tts", "max_wait_ms", Rule::Whole(0, 1_000, "milliseconds")),
    key("tts", "noise_scale", Rule::Number(-1.0, 10.0)),
    key("tts", "length_scale", Rule::Number(-1.0, 10.0)),
    key("tts", "width_scale", Rule::Number(-1.0, 10.0)),
    key("tts", "contract", Rule::Text),
    key("tts", "slots", Rule::Whole(0, 32, "listeners")),
    key("tts", "deterministic", Rule::Switch),
    key("tts", "timeout_ms", Rule::Whole(100, HOUR_MS, "milliseconds")),
    key("tts", "voices_dir", Rule::Text),
    key("tts", "max_voices", Rule::Whole(0, 10_000, "voices")),
    key("tts", "hedge_after_ms", Rule::Whole(0, 60_000, "milliseconds; 0: off")),
    key("tts", "fallback", Rule::Fallback("tts")),
    key("models", "dir", Rule::Name),
    key("models", "shipped_dir", Rule::Text),
    key("models", "registry", Rule::Text),
    key("models", "mirror", Rule::UrlOrNone),
    key("models", "proxy", Rule::UrlOrNone),
    key("models", "preload", Rule::Names),
    key("models", "max_loaded", Rule::Whole(1, 64, "models")),
    key("models", "memory_budget_mb", Rule::Whole(0, 1_000_000, "MiB")),
    key("onnx", "runtime", Rule::Text),
    key("onnx", "provider", Rule::OneOf(&["cpu", "cuda", "tensorrt"])),
    key("onnx", "require", Rule::Switch),
    key("onnx", "device_id", Rule::Whole(0, 255, "number of the GPU")),
    key("onnx", "device_ids", Rule::Wholes(0, 255, "numbers of GPUs")),
    key("onnx", "fp16", Rule::Switch),
    key("onnx", "cache_dir", Rule::Name),
    key("onnx", "cudnn_conv_algo_search", Rule::OneOf(&["HEURISTIC", "EXHAUSTIVE", "DEFAULT"])),
    key("onnx", "gpu_memory_mib", Rule::Whole(0, 1_048_576, "MiB")),
    key("onnx", "cpu_arena", Rule::Switch),
    key("onnx", "graph_optimization", Rule::OneOf(&["all", "extended", "basic", "none"])),
    key("onnx", "intra_threads", Rule::Whole(0, 256, "threads")),
    key("mcp", "allowed_servers", Rule::Urls),
    key("mcp", "list_timeout_ms", Rule::Whole(100, 600_000, "milliseconds")),
    key("mcp", "call_timeout_ms", Rule::Whole(100, HOUR_MS, "milliseconds")),
    key("mcp", "follow_up_ms", Rule::Whole(0, 60_000, "milliseconds")),
    key("speculation", "after_ms", Rule::Whole(0, 2_000, "milliseconds")),
    key("speculation", "max_per_turn", Rule::Whole(0, 100, "speculations")),
    key("speculation", "budget", Rule::Number(0.0, 1.0)),
    key("session", "max_minutes", Rule::Whole(1, 1_440, "minutes")),
    key("session", "resume_seconds", Rule::Whole(1, 600, "seconds")),
    key("session", "lead_ms", Rule::Whole(40, 5_000, "milliseconds")),
    key("session", "create_response", Rule::Switch),
    key("session", "interrupt_response", Rule::Switch),
    key("session", "ignore_backchannels", Rule::Switch),
    key("session", "interruption_notes", Rule::Switch),
    key("session", "filler_after_ms", Rule::Whole(0, 60_000, "milliseconds")),
    key("session", "fillers", Rule::ByLanguage(100, "One moment.")),
    key("session", "history_tokens", Rule::Whole(200, 10_000_000, "tokens")),
    key("session", "max_tool_rounds", Rule::Whole(1, 100, "rounds")),
    key("session", "max_answer_seconds", Rule::Whole(0, 3_600, "seconds")),
    key("session", "max_utterance_seconds", Rule::Whole(10, 600, "seconds")),
    key("session", "refuse_unknown_fields", Rule::Switch),
    key("session", "record", Rule::Text),
    key("session", "record_audio", Rule::Switch),
    key("rtc", "listen", Rule::ListenOrNone),
    key("rtc", "advertise", Rule::Addresses),
    key("server", "listen", Rule::Listen),
    key("server", "probe_listen", Rule::ListenOrNone),
    key("server", "max_sessions", Rule::Whole(1, 1_000_000, "sessions")),
    key("server", "max_sessions_per_key", Rule::Whole(-1, 1_000_000, "sessions; 0: no bound")),
    key("server", "max_sessions_per_address", Rule::Whole(-1, 1_000_000, "sessions; 0: no bound")),
    key("server", "max_connections_per_address", Rule::Whole(0, 100_000, "connections; 0: no bound")),
    key("server", "trusted_proxies", Rule::Networks),
    key("server", "forwarded_header", Rule::OneOf(&["x-forwarded-for", "forwarded"])),
    key("server", "allowed_origins", Rule::Origins),
    key("server", "allowed_hosts", Rule::Hosts),
    key("server", "public_url", Rule::OriginOrNone),
    key("server", "frame_ancestors", Rule::Origins),
    key("server", "permissions_policy", Rule::Header),
    key("server", "hsts_seconds", Rule::Whole(0, 63_072_000, "seconds")),
    key("server", "api_keys_env", Rule::Variable),
    key("server", "admin_keys_env", Rule::Variable),
    key("server", "local_admin", Rule::Switch),
    key("server", "api_keys_file", Rule::Text),
    key("server", "tls_cert", Rule::Text),
    key("server", "tls_key", Rule::Text),
    key("server", "turns_kept", Rule::Whole(1, 100_000, "turns")),
    key("server", "keep_transcripts", Rule::Switch),
    key("server", "ping_seconds", Rule::Whole(1, 3_600, "seconds")),
    key("server", "message_seconds", Rule::Whole(1, 600, "seconds")),
    key("server", "drain_seconds", Rule::Whole(0, 3_600, "seconds")),
    key("server", "audit_log", Rule::Text),
    key("server", "storage_key", Rule::Text),
    key("limits", "sessions_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "sessions; 0: no limit")),
    key("limits", "audio_seconds_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "seconds of audio; 0: no limit")),
    key("limits", "responses_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "responses; 0: no limit")),
    key("limits", "tokens_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "tokens; 0: no limit")),
    key("limits", "requests_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "requests; 0: no limit")),
    key("limits", "characters_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "characters; 0: no limit")),
    key("limits", "transcription_seconds_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "seconds of audio; 0: no limit")),
    key("limits", "jobs_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "jobs; 0: no limit")),
    key("limits", "address_sessions_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "sessions; 0: no limit")),
    key("limits", "address_audio_seconds_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "seconds of audio; 0: no limit")),
    key("limits", "address_responses_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "responses; 0: no limit")),
    key("limits", "address_tokens_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "tokens; 0: no limit")),
    key("limits", "address_requests_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "requests; 0: no limit")),
    key("limits", "address_characters_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "characters; 0: no limit")),
    key(
        "limits",
        "address_transcription_seconds_per_minute",
        Rule::Whole(0, MAX_PER_MINUTE, "seconds of audio; 0: no limit"),
    ),
    key("limits", "address_jobs_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "jobs; 0: no limit")),
    key("limits", "session_audio_seconds_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "seconds of audio; 0: no limit")),
    key("limits", "session_responses_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "responses; 0: no limit")),
    key("limits", "session_tokens_per_minute", Rule::Whole(0, MAX_PER_MINUTE, "tokens; 0: no limit")),
    key("slo", "voice_to_voice_ms", Rule::Whole(0, 60_000, "milliseconds")),
    key("slo", "share", Rule::Number(0.5, 1.0)),
    key("slo", "brownout", Rule::Switch),
    key("slo", "smaller_engines", Rule::Switch),
    key("slo", "processor_share", Rule::Number(0.1, 1.0)),
    key("speech", "max_requests", Rule::Whole(1, 10_000, "requests")),
    key("speech", "max_input_chars", Rule::Whole(1, 1_000_000, "characters")),
    key("speech", "chunks_ahead", Rule::Whole(0, 16, "chunks")),
    key("speech", "max_upload_mib", Rule::Whole(1, 1_024, "MiB")),
    key("speech", "max_audio_minutes", Rule::Whole(1, 1_440, "minutes")),
    key("speech", "jobs_dir", Rule::Text),
    key("speech", "max_jobs", Rule::Whole(1, 10_000, "jobs")),
    key("speech", "jobs_at_once", Rule::Whole(1, 64, "jobs")),
    key("speech", "max_job_chars", Rule::Whole(1, 1_000_000, "characters")),
    key("speech", "jobs_keep_hours", Rule::Whole(1, 8_760, "hours")),
    key("speech", "jobs_max_mib", Rule::Whole(1, 1_048_576, "MiB")),
    key("telephony", "unauthenticated", Rule::Switch),
    key("telephony", "twilio_auth_token_env", Rule::Variable),
    key("telephony", "audiosocket_listen", Rule::ListenOrNone),
    key("telephony", "key_pause_ms", Rule::Whole(200, 30_000, "milliseconds")),
    key("telephony", "routes", Rule::Routes),
    key("sip", "listen", Rule::ListenOrNone),
    key("sip", "tls_listen", Rule::ListenOrNone),
    key("sip", "tls_cert", Rule::Text),
    key("sip", "tls_key", Rule::Text),
    key("sip", "tls_ca", Rule::Text),
    key("sip", "advertise", Rule::AddressOrNone),
    key("sip", "rtp_port_min", Rule::Whole(1_024, 65_535, "UDP port")),
    key("sip", "rtp_port_max", Rule::Whole(1_024, 65_535, "UDP port")),
    key("sip", "codecs", Rule::Words(&["opus", "g722", "pcma", "pcmu"])),
    key("sip", "transfer_to", Rule::Texts(1_000, 256)),
    key("sip", "call_to", Rule::Texts(1_000, 256)),
    key("sip", "max_calls_out", Rule::Whole(0, 4_096, "calls")),
    key("sip", "max_calls_out_per_minute", Rule::Whole(0, 1_000, "calls; 0: no limit")),
    key("sip", "quiet_hours", Rule::Text),
    key("sip", "tool_hang_up", Rule::Switch),
    key("sip", "tool_send_dtmf", Rule::Switch),
    key("sip", "tool_transfer_call", Rule::TextsByName(64, 256, "tel:+4930123")),
    key("sip", "on_voicemail", Rule::OneOf(&["go_on", "hang_up", "leave_message", "ask_model"])),
    key("sip", "voicemail_message", Rule::Text),
    key("sip", "webhook_url", Rule::UrlOrNone),
    key("sip", "webhook_events", Rule::Words(&["incoming", "states"])),
    key("sip", "webhook_secret_file", Rule::Text),
    key("sip", "webhook_decision_seconds", Rule::Whole(1, 120, "seconds")),
    key("sip", "webhook_undecided", Rule::OneOf(&["refuse", "answer"])),
    key("sip", "trunks", Rule::Trunks),
    key("wyoming", "listen", Rule::ListenOrNone),
    key("wyoming", "allowed_networks", Rule::Networks),
    key("wyoming", "key", Rule::Text),
    key("wyoming", "announce", Rule::Switch),
    key("cluster", "servers", Rule::NatsServers),
    key("cluster", "stages", Rule::Words(&["stt", "tts", "turn"])),
    key("cluster", "stt_model", Rule::Text),
    key("cluster", "stt_fallback_model", Rule::Text),
    key("cluster", "turn_model", Rule::Text),
    key("cluster", "turn_fallback_model", Rule::Text),
    key("cluster", "fallback", Rule::Switch),
    key("cluster", "name", Rule::Text),
    key("cluster", "credentials", Rule::Text),
    key("cluster", "tls_ca", Rule::Text),
    key("cluster", "tls_cert", Rule::Text),
    key("cluster", "tls_key", Rule::Text),
    key("cluster", "insecure", Rule::Switch),
    key("cluster", "jetstream", Rule::Switch),
    key("cluster", "sealing_key", Rule::Text),
    key("cluster", "replicas", Rule::Whole(1, 5, "servers")),
    key("telemetry", "otlp_endpoint", Rule::UrlOrNone),
];

/// The key with this name; `None` if there is none.
pub(super) fn find(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.section == section && key.name == name)
}

/// The key of a fallback engine in `section`: all of the section's but those that say when it serves.
pub(super) fn fallback_key(section: &str, name: &str) -> Option<&'static Key> {
    find(section, name).filter(|key| !matches!(key.rule, Rule::Fallback(_)) && key.name != "hedge_after_ms")
}

/// The distinct sections, in order.
pub(super) fn sections() -> Vec<&'static str> {
    let mut sections: Vec<_> = KEYS.iter().map(|key| key.section).collect();
    sections.dedup();
    sections
}

/// The names of a section's keys, in order.
pub(super) fn names(section: &str) -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter(move |key| key.section == section).map(|key| key.name)
}

impl Rule {
    /// The words that are valid; empty where more than a few are.
    pub fn words(&self) -> Vec<&'static str> {
        match self {
            Self::OneOf(words) => words.to_vec(),
            Self::Engine(stage) => stage.setting_values(),
            _ => Vec::new(),
        }
    }

    /// Whether `value` is valid.
    pub(super) fn allows(&self, value: &Value) -> bool {
        match self {
            Self::Switch => value.is_bool(),
            Self::Whole(min, max, _) => value.as_integer().is_some_and(|n| (*min..=*max).contains(&n)),
            Self::Number(min, max) => number(value).is_some_and(|n| (*min..=*max).contains(&n)),
            Self::Origins => list(value, origin),
            Self::Urls => list(value, |url| after_scheme(url).is_some_and(url_rest)),
            Self::Hosts => list(value, host),
            Self::Networks => list(value, |text| super::server::network(text).is_some()),
            Self::Addresses => list(value, |text| text.parse::<std::net::IpAddr>().is_ok()),
            Self::Names => list(value, |name| !name.trim().is_empty()),
            Self::Texts(most, chars) => {
                let is_text = |text: &str| !text.trim().is_empty() && text.chars().count() <= *chars;
                value.as_array().is_some_and(|all| all.len() <= *most) && list(value, is_text)
            }
            Self::NatsServers => list(value, nats_server),
            Self::Words(words) => value.as_array().is_some_and(|items| {
                !items.is_empty() && items.iter().all(|item| item.as_str().is_some_and(|item| words.contains(&item)))
            }),
            Self::Wholes(min, max, _) => value
                .as_array()
                .is_some_and(|all| all.iter().all(|n| n.as_integer().is_some_and(|n| (*min..=*max).contains(&n)))),
            Self::Fields => value.is_table(),
            Self::ByLanguage(max, _) => value.as_table().is_some_and(|texts| {
                let is_right = |text: &str| !text.trim().is_empty() && text.chars().count() <= *max;
                let is_text =
                    |(language, text): (&String, &Value)| is_code(language) && text.as_str().is_some_and(is_right);
                texts.iter().all(is_text)
            }),
            Self::TextsByName(most, chars, _) => value.as_table().is_some_and(|texts| {
                let is_right = |text: &str| !text.trim().is_empty() && text.chars().count() <= *chars;
                texts.len() <= *most && texts.values().all(|text| text.as_str().is_some_and(is_right))
            }),
            Self::Routes => value.as_table().is_some_and(|routes| {
                let is_right = |(name, value): (&String, &Value)| match name.as_str() {
                    "greeting" => value.is_str(),
                    "session" => value.is_table(),
                    _ => false,
                };
                routes.values().all(|route| route.as_table().is_some_and(|route| route.iter().all(is_right)))
            }),
            Self::Trunks => value.as_table().is_some_and(|trunks| {
                let is_right = |(name, value): (&String, &Value)| match name.as_str() {
                    "allow" => list(value, |text| super::server::network(text).is_some()),
                    "username" | "password_env" | "register" | "register_as" | "host" | "caller" | "key" | "route" => {
                        value.is_str()
                    }
                    "transport" => value.as_str().is_some_and(|text| ["udp", "tcp", "tls"].contains(&text)),
                    "srtp" => value.as_str().is_some_and(|text| ["optional", "required"].contains(&text)),
                    _ => false,
                };
                trunks.values().all(|trunk| trunk.as_table().is_some_and(|trunk| trunk.iter().all(is_right)))
            }),
            Self::Fallback(section) => value.as_table().is_some_and(|table| {
                let is_key = |name: &str, value| fallback_key(section, name).is_some_and(|key| key.rule.allows(value));
                table.is_empty()
                    || table.contains_key("engine") && table.iter().all(|(name, value)| is_key(name, value))
            }),
            _ => value.as_str().is_some_and(|text| self.allows_text(text)),
        }
    }

    fn allows_text(&self, text: &str) -> bool {
        match self {
            Self::OneOf(_) | Self::Engine(_) => self.words().contains(&text),
            Self::Text => true,
            Self::Name => !text.trim().is_empty(),
            Self::Header => text.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
            Self::Variable => !text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(word),
            Self::Language => text.is_empty() || text == DETECT_LANGUAGE || is_language(text),
            Self::Url => after_scheme(text).is_some_and(url_rest),
            Self::UrlOrNone => text.is_empty() || after_scheme(text).is_some_and(url_rest),
            Self::OriginOrNone => text.is_empty() || origin(text),
            Self::Listen => listen(text),
            Self::ListenOrNone => text.is_empty() || listen(text),
            Self::AddressOrNone => text.is_empty() || text.parse::<std::net::IpAddr>().is_ok(),
            _ => false,
        }
    }

    /// Whether the value is a list of texts.
    pub(super) fn is_list(&self) -> bool {
        matches!(
            self,
            Self::Networks
                | Self::Addresses
                | Self::Origins
                | Self::Urls
                | Self::Hosts
                | Self::Names
                | Self::Texts(..)
                | Self::Words(_)
                | Self::NatsServers
        )
    }

    /// The valid values, as a continuation of "write".
    pub(super) fn expects(&self) -> String {
        match self {
            Self::Switch => "true or false".into(),
            Self::Whole(min, max, unit) => format!("a whole number from {min} to {max} ({unit})"),
            Self::Number(min, max) => format!("a number from {min} to {max}"),
            Self::OneOf(_) | Self::Engine(_) => {
                self.words().iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" or ")
            }
            Self::Text => "text in quotes".into(),
            Self::Name => "text in quotes, not empty".into(),
            Self::Header => "the value of an HTTP header: ASCII characters in one line".into(),
            Self::Variable => {
                "the name of the environment variable that holds the key, such as \"OPENAI_API_KEY\", or \"\" for no key"
                    .into()
            }
            Self::Language => {
                "a language's two letters, such as \"en\", \"auto\" for the one that is heard, or \"\" for the engine's own choice"
                    .into()
            }
            Self::Url => "an address such as \"http://127.0.0.1:11434/v1\"".into(),
            Self::UrlOrNone => "an address such as \"http://127.0.0.1:4318\", or \"\" for none".into(),
            Self::Listen => "an address and a port, such as \"127.0.0.1:8080\"".into(),
            Self::ListenOrNone => "an address and a port, such as \"0.0.0.0:8081\", or \"\" for none".into(),
            Self::AddressOrNone => "an address, such as \"203.0.113.5\", or \"\" for none".into(),
            Self::Trunks => "a table of peers, such as { office = { allow = [\"10.0.0.5\"] } }".into(),
            Self::Addresses => "a list of addresses, such as [\"192.168.0.10\", \"203.0.113.5\"]".into(),
            Self::Networks => "a list of addresses and networks, such as [\"10.0.0.5\", \"192.168.0.0/16\"]".into(),
            Self::Origins => "a list of web origins, such as [\"https://voice.example.org\"]".into(),
            Self::OriginOrNone => "a web origin, such as \"https://voice.example.org\", or \"\" for none".into(),
            Self::Routes => {
                "a table of calls, such as { \"+15550100\" = { greeting = \"Greet the caller.\", session = {} } }".into()
            }
            Self::Urls => "a list of addresses, such as [\"https://mcp.example.org/mcp\"]".into(),
            Self::Hosts => "a list of host names without port, such as [\"voice.example.org\"]".into(),
            Self::Wholes(min, max, what) => format!("a list of {what} from {min} to {max}, such as [0, 1]"),
            Self::Fallback(section) => format!("a table of keys of [{section}], its engine among them, or {{}} for none"),
            Self::Fields => "a table, such as { language = \"English\" }".into(),
            Self::ByLanguage(max, example) => {
                format!("a table of texts of at most {max} characters by language, such as {{ en = {example:?} }}")
            }
            Self::TextsByName(most, chars, example) => {
                format!("a table of at most {most} texts of at most {chars} characters, such as {{ office = {example:?} }}")
            }
            Self::Texts(most, chars) => format!("a list of at most {most} texts of at most {chars} characters each"),
            Self::Words(words) => format!("a list of {}", words.join(", ")),
            Self::NatsServers => "a list of addresses, such as [\"tls://nats.example.org:4222\"]".into(),
            Self::Names => "a list of models, such as [\"kokoro\", \"whisper-base:q5_1\"]".into(),
        }
    }
}

/// Whether the text is the code of a language, a tag that begins with one, or its English name.
fn is_language(text: &str) -> bool {
    language_code(text).is_some() || is_code(text)
}

fn is_code(text: &str) -> bool {
    text.len() == 2 && text.chars().all(|c| c.is_ascii_lowercase())
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64))
}

fn list(value: &Value, right: impl Fn(&str) -> bool) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(|item| item.as_str().is_some_and(&right)))
}

fn word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn after_scheme(url: &str) -> Option<&str> {
    url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))
}

fn url_rest(rest: &str) -> bool {
    let authority = rest.split('/').next().unwrap_or_default();
    authority_is_right(authority) && !rest.contains(['?', '#', ' '])
}

fn origin(text: &str) -> bool {
    after_scheme(text).is_some_and(authority_is_right)
}

/// `host` or `host:port`. `@` is rejected, because a password in a URL would end up in logs.
fn authority_is_right(authority: &str) -> bool {
    match authority.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => host(name) && port.parse::<u16>().is_ok_and(|port| port > 0),
        _ => host(authority),
    }
}

/// As in [`authority_is_right`], without credentials: those are in the file of `cluster.credentials`.
fn nats_server(text: &str) -> bool {
    text.strip_prefix("nats://").or_else(|| text.strip_prefix("tls://")).is_some_and(authority_is_right)
}

fn host(text: &str) -> bool {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<std::net::Ipv6Addr>().is_ok();
    }
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_')
}

fn listen(text: &str) -> bool {
    text.parse::<SocketAddr>().is_ok() || named_listen(text)
}

/// `localhost:8080`. Other host names would require a lookup.
fn named_listen(text: &str) -> bool {
    text.strip_prefix("localhost:").is_some_and(|port| port.parse::<u16>().is_ok())
}
