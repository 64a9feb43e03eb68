//! `GET /v1/models`: what serves here, and what else a request may name.

use super::error::ApiError;
use super::names;
use super::names::described;
use crate::server::app::App;
use antiphon_registry::Stage;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;

/// The list.
pub(super) async fn list(State(app): State<Arc<App>>) -> Response {
    Json(json!({"object": "list", "data": all(&app).await})).into_response()
}

/// What serves, then what else is on the disk.
async fn all(app: &App) -> Vec<Value> {
    let mut models = names(app).models(&app.setup().engines);
    for (name, stage, engine) in app.models.here().await {
        if !models.iter().any(|model| model["id"] == name.as_str()) {
            models.push(described(&name, if stage == Stage::Stt { "transcription" } else { "speech" }, &engine));
        }
    }
    models
}

/// One of them, by any name it answers to.
pub(super) async fn one(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    let listed = all(&app).await.into_iter().find(|model| model["id"] == id.as_str());
    match listed.or_else(|| names(&app).alias(&app.setup().engines, &id)) {
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
