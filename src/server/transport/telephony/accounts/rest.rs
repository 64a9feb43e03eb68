//! Requests to the REST API of a provider, and what an error says.
//!
//! [`super::twilio_rest`] and [`super::ari`] send by it. A request takes 10 s at most and its answer 64 KiB. It follows
//! no redirect, and no address, secret or body is logged.

use crate::server::transport::transfers::ProviderError;
use antiphon_engines::remote::{Body, Bounds};
use reqwest::{Method, RequestBuilder, StatusCode};
use std::io;
use std::time::Duration;

/// The longest request, from the connection to the end of the answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
const ANSWER: Bounds = Bounds { bytes: 64 << 10, stall: ANSWERS_WITHIN, total: ANSWERS_WITHIN };
/// The provider's words in an error, at most.
const MAX_MESSAGE_CHARS: usize = 300;

/// See the module.
pub(super) struct RestClient {
    http: reqwest::Client,
    /// The provider, for the log.
    provider: &'static str,
}

impl RestClient {
    /// Connects to nothing.
    ///
    /// # Errors
    /// There is no TLS.
    pub(super) fn new(provider: &'static str) -> io::Result<Self> {
        // Only the first installation succeeds; a second one is not an error.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            // The secret reaches the configured address only.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(ANSWERS_WITHIN)
            .user_agent(concat!("antiphon/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(io::Error::other)?;
        Ok(Self { http, provider })
    }

    /// A request, without the account's credentials.
    pub(super) fn request(&self, method: Method, url: &str) -> RequestBuilder {
        self.http.request(method, url)
    }

    /// Sends a request, and gives the status and the body of the answer. What a proxy says of a provider that is away (502 to 504)
    /// is no answer.
    ///
    /// # Errors
    /// [`ProviderError::Unreachable`].
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), ProviderError> {
        let provider = self.provider;
        let response = request.send().await.map_err(|error| {
            let error = error.without_url();
            tracing::warn!(provider, %error, "a provider of calls is not reached");
            ProviderError::Unreachable(if error.is_timeout() { "no answer in 10 s" } else { "no connection" })
        })?;
        let status = response.status();
        if matches!(status.as_u16(), 502..=504) {
            tracing::warn!(provider, status = status.as_u16(), "a provider of calls is not available");
            return Err(ProviderError::Unreachable("it is not available now"));
        }
        let body = Body::new(response, ANSWER).whole().await.map_err(|error| {
            tracing::warn!(provider, %error, "the answer of a provider of calls is not read");
            ProviderError::Unreachable("its answer cannot be read")
        })?;
        Ok((status, body))
    }
}

/// The provider's message in an error, in one line without the account's secret; the status where there is no message.
pub(super) fn words_of(message: Option<&str>, status: StatusCode, secret: &str) -> String {
    let Some(message) = message else { return format!("status {}", status.as_u16()) };
    message.replace(secret, "...").chars().filter(|c| !c.is_control()).take(MAX_MESSAGE_CHARS).collect()
}
