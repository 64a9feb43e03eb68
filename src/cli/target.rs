//! Connection options for commands that use a running server: key, trust and audio mode.

use super::CliError;
use antiphon_client::{AudioMode, ClientError, ConnectOptions, Trust};
use antiphon_telemetry::with_causes;
use antiphon_types::small_file;
use clap::{Args, ValueEnum};
use reqwest::{Certificate, Client, ClientBuilder, Method, RequestBuilder, StatusCode, Url};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// The longest wait for a hub's answer, where a request has no other.
const ANSWER: Duration = Duration::from_secs(15);

/// The environment variable of the key where no option names another.
const KEY_VARIABLE: &str = "ANTIPHON_API_KEY";

/// How commands take the key that a server asks for.
const KEY_HINT: &str = " (antiphon takes the key from --key or ANTIPHON_API_KEY)";

/// What a server that runs already wants to know, and what is believed of it.
#[derive(Debug, Args)]
pub struct Access {
    // Not `env`: clap refuses a variable beside --key-env as it refuses --key.
    /// The server's key; better in ANTIPHON_API_KEY, where other users of this machine do not see it
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Another environment variable that holds the key
    #[arg(long, value_name = "NAME", conflicts_with = "key")]
    key_env: Option<String>,
    /// Trust the certificates in this PEM file, and no others
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca_file: Option<PathBuf>,
    /// Trust any certificate: a program in between can listen
    #[arg(long)]
    insecure: bool,
}

/// How to reach a server that runs already, by its Realtime protocol.
#[derive(Debug, Args)]
pub struct Target {
    #[command(flatten)]
    access: Access,
    /// The model, for servers that want one
    #[arg(long)]
    model: Option<String>,
}

/// Which hub a command asks, by HTTP.
#[derive(Debug, Args)]
pub(super) struct HubArgs {
    /// The hub
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    url: String,
    #[command(flatten)]
    access: Access,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How audio travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Base64 in JSON events
    Ga,
    /// Binary frames of PCM
    Pcm16,
    /// Binary frames of Opus
    Opus,
}

impl Target {
    /// Connection options for `url`, without resuming after a disconnect. An error if `key_env` names a variable
    /// without a key.
    pub fn options(&self, url: String, mode: Mode) -> Result<ConnectOptions, CliError> {
        let mut options = ConnectOptions::new(url);
        options.mode = match mode {
            Mode::Ga => AudioMode::Ga,
            Mode::Pcm16 => AudioMode::Pcm16,
            Mode::Opus => AudioMode::Opus,
        };
        options.model = self.model.clone();
        options.trust = match &self.access.ca_file {
            Some(path) => Trust::File(path.clone()),
            None if self.access.insecure => Trust::Anyone,
            None => Trust::System,
        };
        options.key = self.access.key()?;
        Ok(options)
    }
}

impl Access {
    /// The server's key; `None`: none is sent. An error if `key_env` names a variable without a key.
    pub fn key(&self) -> Result<Option<String>, CliError> {
        if let Some(variable) = &self.key_env {
            return key(variable).map(Some);
        }
        let key = self.key.clone().or_else(|| std::env::var(KEY_VARIABLE).ok());
        Ok(key.filter(|key| !key.is_empty()))
    }

    /// An HTTP client for the server at `url`. Blocks while it reads a small file.
    pub fn client(&self, url: &Url) -> Result<Client, CliError> {
        let builder = Client::builder().connect_timeout(CONNECT).redirect(reqwest::redirect::Policy::none());
        let mut builder = trusting(builder, self.ca_file.as_deref(), self.insecure)?;
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        if host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback()) {
            // No proxy can reach this machine.
            builder = builder.no_proxy();
        }
        builder.build().map_err(|error| CliError::failed(&error))
    }
}

impl HubArgs {
    /// Whether the answer is to be printed as JSON.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// A request for this path, in segments, which waits 15 s for its answer. An error if the address is none, or the key
    /// cannot be read.
    pub(super) fn request(&self, method: Method, path: &[&str]) -> Result<RequestBuilder, CliError> {
        let wrong = || CliError::Usage(format!("{:?} is no address of a hub, such as http://127.0.0.1:8080", self.url));
        let mut url = Url::parse(&self.url).map_err(|_| wrong())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong());
        }
        url.path_segments_mut().map_err(|()| wrong())?.pop_if_empty().extend(path);
        let request = self.access.client(&url)?.request(method, url).timeout(ANSWER);
        Ok(match self.access.key()? {
            Some(key) => request.bearer_auth(key),
            None => request,
        })
    }

    /// The hub's answer; its refusal is an error with the hub's words.
    pub(super) async fn answer(&self, request: RequestBuilder) -> Result<Value, CliError> {
        let unreachable = |error: reqwest::Error| {
            CliError::Unreachable(format!("{} cannot be reached: {}", self.url, with_causes(&error.without_url())))
        };
        let answer = request.send().await.map_err(unreachable)?;
        let status = answer.status();
        let body = answer.json::<Value>().await;
        if status.is_success() {
            return body.map_err(unreachable);
        }
        let why = body.ok().and_then(|body| Some(body["error"]["message"].as_str()?.to_owned()));
        let mut why = why.map_or_else(|| format!("the hub answered {status}"), |why| printable(&why));
        if status == StatusCode::UNAUTHORIZED {
            why += KEY_HINT;
        }
        Err(CliError::Failed(why))
    }
}

/// A client that trusts the certificates of this file and no others, or any certificate. Blocks while it reads a small file.
pub(super) fn trusting(
    builder: ClientBuilder,
    ca_file: Option<&Path>,
    insecure: bool,
) -> Result<ClientBuilder, CliError> {
    let Some(path) = ca_file else { return Ok(builder.tls_danger_accept_invalid_certs(insecure)) };
    let pem = small_file::read(path, small_file::MAX_SETTINGS_BYTES)
        .map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))?;
    let bad = |error: reqwest::Error| CliError::Usage(format!("{}: {}", path.display(), with_causes(&error)));
    Ok(builder.tls_certs_only(Certificate::from_pem_bundle(&pem).map_err(bad)?))
}

/// A text of a hub without characters that could colour a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// The same, in its lines.
pub(super) fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

fn key(variable: &str) -> Result<String, CliError> {
    let key = std::env::var(variable).ok().filter(|key| !key.is_empty());
    key.ok_or_else(|| CliError::Usage(format!("the environment variable {variable} holds no key")))
}

/// A client's failure with its exit code: usage, unreachable or failed.
pub fn failure(error: ClientError) -> CliError {
    let mut text = with_causes(&error);
    let asks_for_key = match &error {
        // A missing key has no code.
        ClientError::Server { code, message } => {
            code.as_deref() == Some("invalid_api_key") || code.is_none() && message.contains("API key")
        }
        ClientError::Refused { status, .. } => *status == 401,
        ClientError::Closed { reason, .. } => reason.contains("invalid_api_key"),
        _ => false,
    };
    if asks_for_key {
        text += KEY_HINT;
    }
    match error {
        ClientError::BadUrl { .. } | ClientError::BadCertificates { .. } => CliError::Usage(text),
        ClientError::CannotConnect { .. }
        | ClientError::Unavailable { .. }
        | ClientError::Refused { .. }
        | ClientError::NotResumed { .. } => CliError::Unreachable(text),
        ClientError::BrokeOff { source, .. } if matches!(*source, ClientError::NotResumed { .. }) => {
            CliError::Unreachable(text)
        }
        ClientError::TimedOut { what: "connecting", .. } => CliError::Unreachable(text),
        _ => CliError::Failed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_out_of_reach_and_a_wrong_address_have_their_own_codes() {
        assert_eq!(failure(ClientError::Unavailable { reason: "full".into(), retry_after: None }).exit_code(), 4);
        let bad = ClientError::BadUrl { url: "x".into(), reason: "it names no host".into() };
        assert_eq!(failure(bad).exit_code(), 2);
        assert_eq!(failure(ClientError::Silent).exit_code(), 1);
        let lost = || Box::new(ClientError::Closed { code: Some(1012), reason: String::new() });
        let away = ClientError::NotResumed { is_reached: false, within: Duration::from_secs(30), source: lost() };
        let away = failure(ClientError::BrokeOff { after: Duration::from_millis(700), source: Box::new(away) });
        assert_eq!(away.exit_code(), 4);
        let said = away.to_string();
        assert!(said.contains("after 0.7 s of sound: no hub could be reached for 30 s"), "{said}");
        assert_eq!(failure(ClientError::BrokeOff { after: Duration::ZERO, source: lost() }).exit_code(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_accepts_and_does_not_answer_is_out_of_reach() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", silent.local_addr().expect("bound"));
        let access = Access { key: None, key_env: None, ca_file: None, insecure: false };
        let hub = HubArgs { url, access, json: false };
        let begun = tokio::time::Instant::now();
        let request = hub.request(Method::GET, &["v1", "audio", "voices"]).expect("an address");
        let error = hub.answer(request).await.expect_err("it says nothing");
        assert_eq!(error.exit_code(), 4, "{error}");
        assert!(begun.elapsed() < 2 * ANSWER, "{:?}", begun.elapsed());
    }

    #[test]
    fn without_a_key_the_option_is_named() {
        let code = || Some("invalid_api_key".to_owned());
        for error in [
            ClientError::Server { code: code(), message: "Incorrect API key provided.".into() },
            ClientError::Server { code: None, message: "You didn't provide an API key.".into() },
            ClientError::Refused { status: 401, body: String::new() },
            ClientError::Closed { code: Some(3000), reason: "3000 invalid_request_error.invalid_api_key".into() },
        ] {
            let said = failure(error).to_string();
            assert!(said.contains("--key or ANTIPHON_API_KEY"), "{said}");
        }
        assert!(!failure(ClientError::Silent).to_string().contains("--key"));
    }
}
