//! Any OpenAI-compatible `/v1/chat/completions`, streaming: OpenAI, vLLM, Ollama, llama.cpp and their like.
//!
//! `engines` makes one [`OpenAi`] for all sessions; sessions call it through the port. Connections stay open between
//! answers, so that an answer does not wait for a handshake. Before the first delta one failure that may pass
//! (no connection, 429, 5xx, a broken connection) is tried again, unless another engine takes over; after it nothing is, for words
//! may have been spoken.
//! It never reads a tool's meaning and never logs what was said.

mod answer;
mod call;
mod loading;
mod request;
mod settings;
#[cfg(test)]
mod tests;
mod thinking;

use super::LlmConfig;
use crate::remote::Upstream;
use crate::secret;
use antiphon_engine_api::Upstreams;
use antiphon_engine_api::llm::{Llm, LlmDelta, LlmError};
use antiphon_types::chat::ChatRequest;
use bytes::Bytes;
use call::Call;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt};
use loading::LoadingModel;
use request::Quirks;
use settings::Settings;
use std::sync::Arc;
use std::time::Duration;
use thinking::Opens;

/// A client of one server and model. Cheap to share: streams hold their own reference.
pub struct OpenAi {
    shared: Arc<LlmContext>,
}

/// What every answer needs.
struct LlmContext {
    http: reqwest::Client,
    settings: Settings,
    quirks: Quirks,
    opens: Opens,
    upstream: Upstream,
    loading: LoadingModel,
}

/// How long an idle connection is kept for the next answer. Servers of this kind close theirs after 60 s or later;
/// one closed under us costs the one retry.
const IDLE: Duration = Duration::from_secs(90);

/// An idle connection is probed this often, so that a dead one is noticed before an answer needs it.
const PROBE: Duration = Duration::from_secs(30);

impl OpenAi {
    /// A client as configured. Reads the key from the environment or its file; reaches for nothing.
    ///
    /// [`LlmError::Unavailable`] says which setting is wrong or missing, and what would be right.
    pub fn new(config: &LlmConfig) -> Result<Self, LlmError> {
        let key = secret::read(&config.api_key_env).map_err(|error| LlmError::Unavailable(error.to_string()))?;
        Self::with_key(config, key)
    }

    fn with_key(config: &LlmConfig, key: Option<String>) -> Result<Self, LlmError> {
        let settings = Settings::new(config, key)?;
        // reqwest is built without a TLS provider of its own. A second installation is refused and changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder()
            .tcp_nodelay(true)
            .tcp_keepalive(PROBE)
            .pool_idle_timeout(IDLE)
            .connect_timeout(settings.connect)
            .redirect(reqwest::redirect::Policy::none());
        if settings.plain {
            // Without TLS no certificates are needed: a machine that has none installed can still talk to a server
            // next door.
            http = http.tls_certs_only(std::iter::empty());
        }
        if settings.loopback {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| {
            LlmError::Unavailable(format!(
                "no HTTPS client can be made ({}): install the system's certificates (Debian: ca-certificates)",
                root_cause(&error)
            ))
        })?;
        let upstream = Upstream::new(config.hedge_after_ms, settings.first_token, config.fallback.is_some());
        let opens = Opens::guess(&settings.model);
        let loading = LoadingModel::new(&settings.completions, settings.first_token, config.fallback.is_some());
        let quirks = Quirks::default();
        Ok(Self { shared: Arc::new(LlmContext { http, settings, quirks, opens, upstream, loading }) })
    }

    /// Opens a connection ahead of the first answer and sees whether the server lets us in: asks for its models.
    /// Waits at most the first-token timeout. A server without that page is no error; one that cannot be reached or
    /// refuses the key is.
    pub async fn warm_up(&self) -> Result<(), LlmError> {
        call::warm_up(&self.shared).await
    }

    /// Reads the body of an answer from memory, in these pieces, as if the server had just sent it. For fuzzing.
    #[doc(hidden)]
    pub async fn read(&self, pieces: Vec<Bytes>) -> Result<Vec<LlmDelta>, LlmError> {
        let pieces = futures_util::stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>));
        let response = http::Response::new(reqwest::Body::wrap_stream(pieces));
        Call::new(self.shared.clone(), ChatRequest::default()).read(response.into()).await
    }
}

impl Llm for OpenAi {
    fn name(&self) -> &str {
        super::OPENAI
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), LlmError>> {
        Box::pin(self.warm_up())
    }

    fn takes_images(&self) -> bool {
        self.shared.settings.images && self.shared.quirks.takes_images()
    }

    fn upstreams(&self) -> Option<Upstreams> {
        Some(self.shared.upstream.report(self.name()))
    }

    fn hedge_delay(&self) -> Option<Duration> {
        self.shared.upstream.hedge_delay()
    }

    fn loading_limit(&self) -> Option<Duration> {
        self.shared.loading.limit()
    }

    fn stream(&self, request: ChatRequest) -> BoxStream<'static, Result<LlmDelta, LlmError>> {
        let shared = self.shared.clone();
        async_stream::stream! {
            let loading = shared.loading.limit();
            let first = loading.unwrap_or(shared.settings.first_token);
            let further = shared.settings.token;
            let away = |reason: String| LlmError::Away(format!("{}: {reason}", shared.settings.server()));
            let mut attempt = match shared.upstream.admit(request.meter.requester()) {
                Ok(attempt) => attempt,
                Err(open) => {
                    yield Err(away(open.to_string()));
                    return;
                }
            };
            if loading.is_some() {
                // The time in which a model is loaded says nothing of the next answer.
                attempt = attempt.untimed();
            }
            let mut call = Call::new(shared.clone(), request);
            // The body lives in `call`: dropping this stream drops it, which closes the connection, by which such
            // servers know that the request was given up.
            let Some(mut batch) = attempt.first(call.first(first)).await else {
                yield Err(away("it is late, as other requests are".into()));
                return;
            };
            loop {
                match batch {
                    Err(error) => {
                        attempt.failed(error.fault());
                        yield Err(error);
                        return;
                    }
                    Ok(deltas) => {
                        // While the model thinks there is no output.
                        if deltas.is_empty() {
                            attempt.responds();
                        } else {
                            attempt.answered();
                        }
                        shared.loading.answered();
                        for delta in deltas {
                            let done = matches!(delta, LlmDelta::Done { .. });
                            yield Ok(delta);
                            if done {
                                return;
                            }
                        }
                    }
                }
                batch = call.further(further).await;
            }
        }
        .boxed()
    }
}

/// The innermost cause: reqwest's own words say little.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
