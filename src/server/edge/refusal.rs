//! Error responses in the OpenAI format.
//!
//! Every room answers with them. This module decides about no request.

use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::time::Duration;

/// An error response in the OpenAI format.
pub(in crate::server) fn refused<'a>(
    status: StatusCode,
    code: impl Into<Option<&'a str>>,
    message: impl Into<String>,
) -> Response {
    let error = error_object(status, code.into(), None, &message.into());
    (status, axum::Json(json!({"error": error}))).into_response()
}

/// The response to a query parameter with a wrong value.
pub(in crate::server) fn invalid_parameter(param: &str, message: &str) -> Response {
    let error = error_object(StatusCode::BAD_REQUEST, Some("invalid_value"), Some(param), message);
    (StatusCode::BAD_REQUEST, axum::Json(json!({"error": error}))).into_response()
}

/// The `error` object in the OpenAI format. Its type follows from the status, as OpenAI's SDKs expect; `param` is the
/// field or query parameter that is wrong.
pub(in crate::server) fn error_object(
    status: StatusCode,
    code: Option<&str>,
    param: Option<&str>,
    message: &str,
) -> Value {
    let kind = match status.as_u16() {
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    json!({"type": kind, "code": code, "message": message, "param": param})
}

/// The value of `Retry-After`: `wait` rounded up to seconds, at least 1.
pub(in crate::server) fn seconds(wait: Duration) -> HeaderValue {
    HeaderValue::from(wait.as_millis().div_ceil(1_000).clamp(1, u128::from(u32::MAX)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_an_error_follows_from_its_status() {
        let kind = |status: StatusCode| error_object(status, None, None, "It is.")["type"].clone();
        for status in [StatusCode::BAD_REQUEST, StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::NOT_FOUND]
        {
            assert_eq!(kind(status), "invalid_request_error", "{status}");
        }
        assert_eq!(kind(StatusCode::TOO_MANY_REQUESTS), "rate_limit_error");
        for status in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::SERVICE_UNAVAILABLE] {
            assert_eq!(kind(status), "server_error", "{status}");
        }
    }
}
