//! Servers of others: an address from the configuration, its key, one warm HTTP client, and what a refusal says.
//!
//! The remote engines of `stt` and `tts` stand on it. It knows no stage: failures are words, which a stage puts into its
//! own error. It never logs a key or a body, never follows a redirect, and never retries by itself. [`Body`] bounds what is
//! read of an answer, and serves the other remote stages too.

mod body;
mod events;
mod upstream;

pub use body::{Body, BodyError, Bounds};
pub use events::{EventError, EventReader, ServerEvent};
pub use upstream::{Attempt, IsOpen, Upstream};

use crate::secret::{self, Bearer};
use reqwest::header::AUTHORIZATION;
use reqwest::{Client, Method, RequestBuilder, Response, Url};
use std::time::Duration;

/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(90);
/// Connections kept for later: more than sessions usually wait for at once.
const MAX_IDLE: usize = 32;
/// How much of a server's error message is read, and for how long.
const ERROR_BOUNDS: Bounds = Bounds { bytes: 4_096, stall: Duration::from_secs(2), total: Duration::from_secs(5) };
/// How much of it is passed on, in characters.
const MAX_ERROR_CHARS: usize = 300;

/// A server behind a base address, such as `https://api.openai.com/v1`. Cheap to clone; clones share the connections.
#[derive(Clone, Debug)]
pub struct Server {
    client: Client,
    base: Url,
    authorization: Bearer,
}

impl Server {
    /// Checks the settings and reads the key from the environment variable `key_env` or its file; connects to nothing. `section` is
    /// the configuration's, for the words of an error, which say what is wrong and what would be right.
    pub fn new(section: &str, base_url: &str, key_env: &str, connect: Duration) -> Result<Self, String> {
        let wrong = |why: String| format!("{section}.base_url \"{base_url}\" {why}");
        let mut base = Url::parse(base_url.trim().trim_end_matches('/'))
            .map_err(|error| wrong(format!("is no address: {error}")))?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(wrong("must begin with http:// or https://, such as https://api.openai.com/v1".into()));
        }
        base.path_segments_mut().expect("http addresses have paths").pop_if_empty();
        let host = base.host_str().unwrap_or_default().to_owned();
        let authorization = read_key(section, key_env, &host)?;
        // The first installation wins; a second is no failure.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(30))
            .connect_timeout(connect)
            // A redirect would carry the request, its audio or text, to an address that the operator did not configure.
            .redirect(reqwest::redirect::Policy::none())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE);
        if is_loopback(&host) {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| format!("no HTTPS client: {error}"))?;
        Ok(Self { client, base, authorization })
    }

    /// The host, for messages.
    pub fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }

    /// A POST to `path` below the base address, with the key where there is one.
    pub fn post(&self, path: &str) -> RequestBuilder {
        self.request(Method::POST, path)
    }

    /// A request to `path` below the base address, with the key where there is one. Each part between the slashes is
    /// escaped.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, self.url(path));
        match self.authorization.header() {
            Some(authorization) => request.header(AUTHORIZATION, authorization),
            None => request,
        }
    }

    /// The address of `path` below the base address.
    pub fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.path_segments_mut().expect("http addresses have paths").extend(path.split('/'));
        url
    }

    /// The address of a WebSocket at `path` below the base address: `ws` for `http`, `wss` for `https`.
    pub fn websocket_url(&self, path: &str) -> Url {
        let mut url = self.url(path);
        let scheme = if url.scheme() == "https" { "wss" } else { "ws" };
        url.set_scheme(scheme).expect("of the same kind as http");
        url
    }

    /// The key, where there is one.
    pub fn key(&self) -> Option<String> {
        self.authorization.key()
    }

    /// Opens a connection, so that the first request does not pay for it. What the server answers does not matter.
    pub async fn warm(&self) -> Result<(), reqwest::Error> {
        let mut root = self.base.clone();
        root.set_path("/");
        self.client.head(root).send().await.map(drop)
    }

    /// What the server says is wrong, in one line.
    pub async fn refusal(&self, response: Response) -> String {
        let status = response.status();
        let body = Body::new(response, ERROR_BOUNDS).beginning().await;
        let said = secret::conceal(&message_of(&body));
        let short: String =
            said.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_ERROR_CHARS).collect();
        let short = if status.is_redirection() { "set base_url to the address it moved to".to_owned() } else { short };
        let separator = if short.is_empty() { "" } else { ": " };
        format!("the server {} answered {status}{separator}{short}", self.host())
    }
}

/// The message inside an error body: OpenAI's `{"error": {"message"}}`, FastAPI's `{"detail"}`, or the text itself.
fn message_of(body: &[u8]) -> String {
    let json = serde_json::from_slice::<serde_json::Value>(body).ok();
    let said = json.as_ref().and_then(|json| {
        let error = json.get("error").unwrap_or(json);
        let places = [error.get("message"), error.get("detail"), Some(error)];
        places.into_iter().flatten().find_map(|text| text.as_str())
    });
    said.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned)
}

/// The key in the environment. Only OpenAI itself is known to need one.
fn read_key(section: &str, variable: &str, host: &str) -> Result<Bearer, String> {
    let key = secret::read(variable).map_err(|error| error.to_string())?;
    if key.is_none() && host == "api.openai.com" {
        let how = if variable.is_empty() {
            format!("name the environment variable that holds it in {section}.api_key_env")
        } else {
            format!("set the environment variable {variable}")
        };
        return Err(format!("{host} needs a key: {how}, or set {section}.base_url to a server without one"));
    }
    Bearer::new(variable, key.as_deref())
        .ok_or_else(|| format!("the key in {variable} holds characters that no key has: set it again"))
}

/// Whether `host` is this machine, which no proxy reaches.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(base_url: &str) -> Result<Server, String> {
        Server::new("stt", base_url, "", Duration::from_secs(1))
    }

    #[test]
    fn addresses_are_taken_as_people_write_them() {
        for base in ["http://[::1]:1/v1", " http://[::1]:1/v1/ "] {
            let request = server(base).expect("an address").post("audio/transcriptions").build().expect("a request");
            assert_eq!(request.url().as_str(), "http://[::1]:1/v1/audio/transcriptions");
        }
        for bad in ["", "localhost:1/v1", "ftp://x/v1", "http://"] {
            assert!(server(bad).expect_err("refused").contains("stt.base_url"), "{bad}");
        }
    }

    #[test]
    fn a_websocket_is_as_safe_as_the_base_address() {
        for (base, expected) in [
            ("http://[::1]:1/v1/", "ws://[::1]:1/v1/realtime"),
            ("https://speech.example/v1?key=1", "wss://speech.example/v1/realtime?key=1"),
        ] {
            assert_eq!(server(base).expect("an address").websocket_url("realtime").as_str(), expected);
        }
    }

    #[test]
    fn openai_itself_needs_a_key() {
        let error = server("https://api.openai.com/v1").expect_err("refused");
        assert!(error.contains("needs a key") && error.contains("stt.api_key_env"), "{error}");
    }

    #[test]
    fn messages_are_found_in_every_dialect() {
        assert_eq!(message_of(br#"{"error":{"message":"no model"}}"#), "no model");
        assert_eq!(message_of(br#"{"error":"no model"}"#), "no model");
        assert_eq!(message_of(br#"{"detail":"no model"}"#), "no model");
        assert_eq!(message_of(b"Bad gateway"), "Bad gateway");
    }
}
