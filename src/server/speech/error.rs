//! Errors of the speech API, in the shape of OpenAI's.

use crate::server::access::limits::{Consumer, UsedUp};
use crate::server::access::limits_http::headers_of_refusal;
use crate::server::edge::refusal::{error_object, seconds};
use antiphon_audio::decode::DecodeError;
use antiphon_engine_api::ENGINE_UNAVAILABLE;
use antiphon_engine_api::stt::SttError;
use antiphon_engine_api::tts::TtsError;
use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::time::Duration;

/// `Retry-After` of a refused request where there is no estimate.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// What OpenAI's SDKs look at before they repeat a request that failed with a status of 500 and more.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// The codes of failures that would come again.
const LASTING: [&str; 2] = ["engine_too_slow", "jobs_unavailable"];
const OVERLOADED: &str = "server_overloaded";

/// One refusal or failure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    /// The field of the request that is wrong.
    pub(super) param: Option<&'static str>,
    pub(super) message: String,
    /// When there is likely to be room, where that was estimated.
    pub(super) retry_after: Option<Duration>,
    /// The headers of the limit that is used up.
    pub(super) figures: Option<Box<HeaderMap>>,
}

impl ApiError {
    /// A request that cannot be served as it is.
    pub(super) fn invalid(
        code: &'static str,
        param: impl Into<Option<&'static str>>,
        message: impl Into<String>,
    ) -> Self {
        let status = StatusCode::BAD_REQUEST;
        let message = message.into();
        Self { status, code, param: param.into(), message, retry_after: None, figures: None }
    }

    pub(super) fn with(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, param: None, message: message.into(), retry_after: None, figures: None }
    }

    /// Too many at once.
    pub(super) fn overloaded(message: impl Into<String>) -> Self {
        Self::with(StatusCode::SERVICE_UNAVAILABLE, OVERLOADED, message)
    }

    /// The same with an estimate of when there is room.
    pub(super) fn after(self, estimate: Duration) -> Self {
        Self { retry_after: Some(estimate), ..self }
    }

    /// A limit of this consumer is used up.
    pub(super) fn limited(used_up: UsedUp, consumer: &Consumer) -> Self {
        let refused = Self::with(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", used_up.message());
        Self { figures: Some(Box::new(headers_of_refusal(used_up, consumer))), ..refused }.after(used_up.wait)
    }

    /// The engine's workers cannot be reached now.
    fn away(message: impl Into<String>) -> Self {
        Self::with(StatusCode::SERVICE_UNAVAILABLE, ENGINE_UNAVAILABLE, message)
    }

    /// The recognizer took longer for its audio than it may. It would again.
    pub(super) fn too_slow(engine: &str, error: &SttError) -> Self {
        let message = format!(
            "The engine '{engine}' is too slow for this audio: {error}. A larger stt.timeout_ms or a smaller model helps; \
             another try does not."
        );
        Self::with(StatusCode::GATEWAY_TIMEOUT, "engine_too_slow", message)
    }

    /// Whether there is no room now, and may be soon.
    pub(super) fn is_busy(&self) -> bool {
        self.code == OVERLOADED
    }

    /// An internal failure: that `what` failed is logged with its cause; the client learns only that it failed.
    pub(super) fn internal(what: &'static str, error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::warn!(error, "{what} failed");
        Self::failed(format!("{what} failed; try again. The operator's log has the details."))
    }

    /// Something here does not work. What it is was logged; the client gets these words, which hold no detail of the server.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::with(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// The `error` object of a body or an event.
    pub(super) fn object(&self) -> Value {
        error_object(self.status, Some(self.code), self.param, &self.message)
    }

    /// What the request counts as.
    pub(super) fn outcome(&self) -> &'static str {
        match self.status.as_u16() {
            _ if self.code == ENGINE_UNAVAILABLE => "failed",
            429 | 503 => "overloaded",
            500.. => "failed",
            _ => "refused",
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(json!({"error": self.object()}))).into_response();
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            let wait = seconds(self.retry_after.unwrap_or(RETRY_AFTER));
            response.headers_mut().insert(header::RETRY_AFTER, wait);
        }
        if let Some(figures) = self.figures {
            response.headers_mut().extend(*figures);
        }
        if LASTING.contains(&self.code) {
            response.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }
}

impl From<TtsError> for ApiError {
    fn from(error: TtsError) -> Self {
        let message = error.client_message();
        match error {
            TtsError::Overloaded { .. } | TtsError::Timeout(_) => Self::overloaded(message),
            TtsError::Away(_) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "no worker speaks");
                Self::away(message)
            }
            TtsError::NoVoice(_) => Self::invalid("voice_not_found", "voice", message),
            TtsError::Unavailable(_) | TtsError::Remote { .. } | TtsError::Engine { .. } => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a text could not be spoken");
                Self::failed(message)
            }
        }
    }
}

impl From<SttError> for ApiError {
    fn from(error: SttError) -> Self {
        let message = error.client_message();
        match error {
            SttError::Busy { .. } | SttError::Behind(_) => Self::overloaded(message),
            SttError::Away(_) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "no worker writes audio down");
                Self::away(message)
            }
            SttError::Timeout(_)
            | SttError::Cancelled
            | SttError::NoRecognizer
            | SttError::Unavailable(_)
            | SttError::Remote { .. }
            | SttError::Engine { .. } => {
                tracing::warn!(error = &error as &dyn std::error::Error, "audio could not be written down");
                Self::failed(message)
            }
        }
    }
}

impl From<DecodeError> for ApiError {
    fn from(error: DecodeError) -> Self {
        let code = match error {
            DecodeError::Unknown | DecodeError::Codec(_) => "unsupported_format",
            DecodeError::Broken(_) => "invalid_audio",
            DecodeError::Empty => "audio_too_short",
            DecodeError::TooLong { .. } => "audio_too_long",
        };
        let mut message = error.to_string();
        if matches!(error, DecodeError::TooLong { .. }) {
            message.push_str(" (speech.max_audio_minutes)");
        }
        Self::invalid(code, "file", message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_at_a_bad_moment_is_told_when_to_come_again() {
        let response = ApiError::from(TtsError::Overloaded { waiting: 7 }).into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        let estimated = ApiError::overloaded("It is.").after(Duration::from_millis(7_200)).into_response();
        assert_eq!(estimated.headers()[header::RETRY_AFTER], "8");
        let busy = ApiError::from(SttError::Busy { waiting: 3 });
        assert_eq!((busy.status, busy.outcome()), (StatusCode::SERVICE_UNAVAILABLE, "overloaded"));
        let long = ApiError::from(DecodeError::TooLong { longest: Duration::from_secs(60) });
        assert_eq!((long.status, long.param), (StatusCode::BAD_REQUEST, Some("file")));
        assert!(!long.into_response().headers().contains_key(header::RETRY_AFTER));
    }

    #[test]
    fn who_finds_no_worker_may_come_again() {
        let away = "no worker has advertised stt for 10 s";
        for (error, stage) in [
            (ApiError::from(SttError::Away(away.into())), "The speech recognizer"),
            (ApiError::from(TtsError::Away(away.into())), "The voice engine"),
        ] {
            let message =
                format!("{stage} is not available at the moment: no worker or server can be reached. Try again soon.");
            assert_eq!((error.code, error.outcome(), error.is_busy()), ("engine_unavailable", "failed", false));
            assert_eq!(error.message, message);
            let response = error.into_response();
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        }
    }

    #[test]
    fn what_would_fail_again_invites_nobody_to_try_again() {
        let slow = ApiError::too_slow("whisper", &SttError::Timeout(Duration::from_secs(60)));
        assert!(slow.message.contains("'whisper'") && slow.message.contains("stt.timeout_ms"), "{}", slow.message);
        assert_eq!((slow.is_busy(), slow.outcome()), (false, "failed"));
        let response = slow.into_response();
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(response.headers()[SHOULD_RETRY], "false");
        assert!(!response.headers().contains_key(header::RETRY_AFTER));
    }
}
