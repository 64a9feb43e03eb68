//! `GET /v1/models`: what serves here.

use super::error::ApiError;
use super::names;
use crate::server::app::App;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;

/// The list.
pub(super) async fn list(State(app): State<Arc<App>>) -> Response {
    Json(json!({"object": "list", "data": names(&app).models(&app.setup().engines)})).into_response()
}

/// One of them, by any name it answers to.
pub(super) async fn one(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    match names(&app).model(&app.setup().engines, &id) {
        Some(model) => Json(model).into_response(),
        None => ApiError {
            param: Some("model"),
            ..ApiError::with(
                StatusCode::NOT_FOUND,
                "model_not_found",
                "There is no such model here; GET /v1/models lists them.",
            )
        }
        .into_response(),
    }
}
