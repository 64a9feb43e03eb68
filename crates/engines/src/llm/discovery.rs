//! Finds language model servers on this machine: Ollama, llama.cpp, LM Studio, vLLM and others that list their models as OpenAI
//! does.
//!
//! The server's `/api/llm/servers` and `antiphon doctor` call [`find`]. It connects to 127.0.0.1 only, on ports that the operator
//! configured (`llm.local_ports`), follows no redirect and uses no proxy. It never asks a model anything, and sends a key only to
//! the server that `llm.base_url` names.

use super::LlmConfig;
use crate::remote::{Body, Bounds};
use crate::secret::{self, Bearer};
use futures_util::future::join_all;
use reqwest::header::AUTHORIZATION;
use reqwest::{Client, StatusCode, Url};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest wait for a server's list: a busy vLLM answers within its next step, all others within milliseconds.
pub const DEADLINE: Duration = Duration::from_secs(2);
/// What is read of an answer: a list of a thousand models has about 200 KB.
const BOUNDS: Bounds = Bounds { bytes: 512 << 10, stall: DEADLINE, total: DEADLINE };
/// Models listed for each server.
const MAX_MODELS: usize = 200;
/// Longest name of a model, in bytes; a longer one is not listed.
const MAX_NAME: usize = 256;

/// A server on this machine, and what it serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LlmServer {
    /// Its port on 127.0.0.1.
    pub port: u16,
    /// The program, such as "Ollama", as far as its answer or port shows it.
    pub name: &'static str,
    /// What `llm.base_url` would be.
    pub base_url: String,
    /// The models, in the server's order, without those for embeddings; at most 200.
    pub models: Vec<String>,
    /// Why none of its models can be used now, and what to do; `None`: nothing is wrong.
    pub problem: Option<String>,
}

/// Asks each of `config.local_ports` except those in `without` for its models, all at once. Takes at most [`DEADLINE`] longer than
/// the sockets need. Ports on which no such server answers are left out. Cancel safe.
pub async fn find(config: &LlmConfig, without: &[u16]) -> Vec<LlmServer> {
    // The first installation wins; a second is no failure.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(DEADLINE);
    // Plain HTTP needs no certificates, which may be missing.
    let Ok(client) = builder.tls_certs_only(std::iter::empty()).build() else { return Vec::new() };
    let mut ports: Vec<u16> = config.local_ports.iter().copied().filter(|port| !without.contains(port)).collect();
    ports.sort_unstable();
    ports.dedup();
    let keyed = key_of(config);
    let asked = ports.into_iter().map(|port| {
        let key = keyed.as_ref().filter(|(of, _)| *of == port).map(|(_, key)| key);
        ask(&client, port, key)
    });
    join_all(asked).await.into_iter().flatten().collect()
}

/// The address of a server on this machine, as `llm.base_url` has it.
pub fn base_url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/v1")
}

/// The configuration that uses `model` of the server on `port`. Its key is the configured one where `llm.base_url` names that
/// server, and none otherwise: a key is never sent to a server that it was not configured for.
pub fn connected(config: &LlmConfig, port: u16, model: &str) -> LlmConfig {
    let is_configured = port_of(&config.base_url) == Some(port);
    LlmConfig {
        engine: super::OPENAI.into(),
        base_url: base_url(port),
        model: model.into(),
        api_key_env: if is_configured { config.api_key_env.clone() } else { String::new() },
        ..config.clone()
    }
}

/// The key of the configured server, with its port, if that server is on this machine.
fn key_of(config: &LlmConfig) -> Option<(u16, Bearer)> {
    let port = port_of(&config.base_url)?;
    let key = secret::read(&config.api_key_env).ok()??;
    Some((port, Bearer::new(&config.api_key_env, Some(key.trim()))?))
}

/// The port of an address on this machine.
fn port_of(base_url: &str) -> Option<u16> {
    let url = Url::parse(base_url).ok().filter(|url| url.scheme() == "http")?;
    matches!(url.host_str(), Some("localhost" | "127.0.0.1")).then(|| url.port_or_known_default())?
}

async fn ask(client: &Client, port: u16, key: Option<&Bearer>) -> Option<LlmServer> {
    let mut request = client.get(format!("{}/models", base_url(port)));
    if let Some(authorization) = key.and_then(Bearer::header) {
        request = request.header(AUTHORIZATION, authorization);
    }
    let response = request.send().await.ok()?;
    let status = response.status();
    let body = Body::new(response, BOUNDS).whole().await.ok()?;
    match status {
        StatusCode::OK => listed(port, &body),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => locked(port, &body),
        _ => None,
    }
}

/// OpenAI's list of models. Ollama without a model sends `null` in the place of the list.
#[derive(Deserialize)]
struct List {
    object: String,
    data: Option<Vec<Model>>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
    #[serde(default)]
    owned_by: Option<String>,
}

/// The server behind an answer with status 200; `None`: it is another kind of server, such as a hub.
fn listed(port: u16, body: &[u8]) -> Option<LlmServer> {
    let list: List = serde_json::from_slice(body).ok()?;
    let models = list.data.unwrap_or_default();
    let owner = models.first().and_then(|model| model.owned_by.clone()).unwrap_or_default();
    if list.object != "list" || owner == "antiphon" {
        return None;
    }
    let usable = |model: &Model| model.id.len() <= MAX_NAME && !model.id.is_empty() && !is_embedding(&model.id);
    let models: Vec<String> = models.into_iter().filter(usable).map(|model| model.id).take(MAX_MODELS).collect();
    let name = name_of(port, &owner);
    let problem = models.is_empty().then(|| match name {
        "Ollama" => "It has no model yet: get one with `ollama pull llama3.2`.".to_owned(),
        "LM Studio" => "It has no model yet: download one in its window.".to_owned(),
        _ => "It has no model.".to_owned(),
    });
    Some(LlmServer { port, name, base_url: base_url(port), models, problem })
}

/// The server behind a refusal in OpenAI's form, which other web servers do not use.
fn locked(port: u16, body: &[u8]) -> Option<LlmServer> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    body.get("error")?;
    let problem = format!(
        "It requires a key: set llm.base_url to {}, name the environment variable that holds the key in llm.api_key_env, and \
         restart the hub.",
        base_url(port)
    );
    Some(LlmServer {
        port,
        name: name_of(port, ""),
        base_url: base_url(port),
        models: Vec::new(),
        problem: Some(problem),
    })
}

/// The program: by what it writes into `owned_by`, else by the port that it usually has.
fn name_of(port: u16, owner: &str) -> &'static str {
    match (owner, port) {
        ("library", _) => "Ollama",
        ("llamacpp", _) => "llama.cpp",
        ("organization_owner", _) => "LM Studio",
        ("vllm", _) => "vLLM",
        (_, 11434) => "Ollama",
        (_, 1234) => "LM Studio",
        ("", 8000) => "vLLM",
        ("", 8080) => "llama.cpp",
        _ => "OpenAI-compatible server",
    }
}

/// Whether a model makes embeddings, which such servers list beside those that answer. Only its name says it.
fn is_embedding(id: &str) -> bool {
    let id = id.to_lowercase();
    id.contains("embed") || id.contains("bge-") || id.contains("minilm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_their_answers() {
        let name =
            |port, body: &str| listed(port, body.as_bytes()).map(|server| (server.name, server.models.join(" ")));
        let ollama = r#"{"object":"list","data":[
            {"id":"llama3.2:latest","object":"model","created":1733000000,"owned_by":"library"},
            {"id":"nomic-embed-text:latest","object":"model","created":1733000000,"owned_by":"library"}]}"#;
        assert_eq!(name(9, ollama), Some(("Ollama", "llama3.2:latest".into())));
        let llama_cpp = r#"{"models":[{"name":"q.gguf","model":"q.gguf","type":"model","capabilities":["completion"]}],
            "object":"list","data":[{"id":"q.gguf","object":"model","created":1733000000,"owned_by":"llamacpp",
            "meta":{"vocab_type":2,"n_vocab":32000,"n_ctx_train":4096,"n_params":1,"size":1}}]}"#;
        assert_eq!(name(9, llama_cpp), Some(("llama.cpp", "q.gguf".into())));
        let lm_studio = r#"{"data":[{"id":"qwen2.5-7b-instruct","object":"model","owned_by":"organization_owner"},
            {"id":"text-embedding-nomic-embed-text-v1.5","object":"model","owned_by":"organization_owner"}],"object":"list"}"#;
        assert_eq!(name(9, lm_studio), Some(("LM Studio", "qwen2.5-7b-instruct".into())));
        let vllm = r#"{"object":"list","data":[{"id":"Qwen/Qwen3-4B","object":"model","created":1733000000,"owned_by":"vllm",
            "root":"Qwen/Qwen3-4B","parent":null,"max_model_len":40960,"permission":[{"id":"modelperm-1"}]}]}"#;
        assert_eq!(name(9, vllm), Some(("vLLM", "Qwen/Qwen3-4B".into())));
        let empty = listed(11434, br#"{"object":"list","data":null}"#).unwrap();
        assert_eq!((empty.name, empty.models.len()), ("Ollama", 0));
        assert!(empty.problem.unwrap().contains("ollama pull"));
        let hub = r#"{"object":"list","data":[{"id":"antiphon","object":"model","created":0,"owned_by":"antiphon"}]}"#;
        for other in [hub, "[]", "<html>", r#"{"object":"error"}"#] {
            assert_eq!(name(8080, other), None, "{other}");
        }
        let refusal = br#"{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}"#;
        assert!(locked(8080, refusal).unwrap().problem.unwrap().contains("llm.api_key_env"));
        assert_eq!(locked(8080, b"Unauthorized"), None);
    }

    #[test]
    fn a_key_goes_only_to_the_server_that_it_is_configured_for() {
        let config = LlmConfig {
            base_url: "http://localhost:8000/v1".into(),
            api_key_env: "ITS_KEY".into(),
            ..LlmConfig::default()
        };
        assert_eq!(connected(&config, 8000, "m").api_key_env, "ITS_KEY");
        assert_eq!(connected(&config, 11434, "m").api_key_env, "");
        let elsewhere = LlmConfig { base_url: "http://192.168.0.7:8000/v1".into(), ..config };
        assert_eq!(connected(&elsewhere, 8000, "m").api_key_env, "");
    }
}
