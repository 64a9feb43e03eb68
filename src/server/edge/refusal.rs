//! Error responses in the OpenAI format.
//!
//! Every room answers with them. This module decides about no request.

use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::time::Duration;

/// An error response in the OpenAI format.
pub(in crate::server) fn refused<'a>(
    status: StatusCode,
    code: impl Into<Option<&'a str>>,
    message: impl Into<String>,
) -> Response {
    let error = json!({"error": {"type": "invalid_request_error", "code": code.into(), "message": message.into(), "param": null}});
    (status, axum::Json(error)).into_response()
}

/// The value of `Retry-After`: `wait` rounded up to seconds, at least 1.
pub(in crate::server) fn seconds(wait: Duration) -> HeaderValue {
    HeaderValue::from(wait.as_millis().div_ceil(1_000).clamp(1, u128::from(u32::MAX)) as u64)
}
