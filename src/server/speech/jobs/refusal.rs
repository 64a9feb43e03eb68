//! What a client reads where jobs cannot be taken, shown or kept.

use super::store::StoreError;
use crate::server::speech::error::ApiError;
use axum::http::StatusCode;

/// There are no jobs on this server.
pub(super) fn disabled() -> ApiError {
    let message = "There are no jobs on this server: speech.jobs_dir names no folder.";
    ApiError::with(StatusCode::NOT_FOUND, "jobs_disabled", message)
}

/// The client's message about a store that cannot be opened. The path is not exposed to clients.
pub(super) fn not_opened(error: &StoreError) -> ApiError {
    if matches!(error, StoreError::Taken(_)) {
        return ApiError::overloaded("Another hub works on the jobs of this server.");
    }
    let message = "The jobs of this server cannot be opened; its log says why. Another try does not help.";
    ApiError::with(StatusCode::INTERNAL_SERVER_ERROR, "jobs_unavailable", message)
}

/// The client's message about an error of an open store.
pub(super) fn failure_of_store(error: &StoreError) -> ApiError {
    match error {
        StoreError::Gone => {
            ApiError::with(StatusCode::NOT_FOUND, "job_not_found", "There is no such job, or not any more.")
        }
        StoreError::NoSuchPage => no_such_page(),
        StoreError::OtherRequest => other_request(),
        StoreError::TooMany(_) | StoreError::TooManyOfKey(_) => {
            let message = format!("Too many: {error}. Try again later.");
            ApiError::with(StatusCode::TOO_MANY_REQUESTS, "too_many_jobs", message)
        }
        other => {
            tracing::warn!(error = %other, "the jobs' store failed");
            ApiError::with(StatusCode::INSUFFICIENT_STORAGE, "storage_failed", other.failure().message)
        }
    }
}

/// The client's message about a page of the list behind a job that is not there.
pub(super) fn no_such_page() -> ApiError {
    let message = "Invalid 'after': there is no such job, or not any more. Begin with the first page again.";
    ApiError::invalid("invalid_value", "after", message)
}

/// The client's message about an idempotency key that it uses for two requests.
pub(super) fn other_request() -> ApiError {
    let message = "Another request came with this Idempotency-Key: use a new key for a new request.";
    ApiError::with(StatusCode::CONFLICT, "idempotency_key_reused", message)
}
