//! `GET /v1/models`: what serves here, and what else a request may name.

use super::error::ApiError;
use super::names::described;
use super::parts::{SpeechParts, names};
use antiphon_registry::Stage;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;

/// The list.
pub(super) async fn list(State(speech): State<Arc<SpeechParts>>) -> Response {
    Json(json!({"object": "list", "data": all(&speech).await})).into_response()
}

/// What serves, then what else is on the disk.
async fn all(speech: &SpeechParts) -> Vec<Value> {
    let mut models = names(speech).models(&speech.sessions.setup().engines);
    for (name, stage, engine) in speech.sessions.models.here().await {
        if !models.iter().any(|model| model["id"] == name.as_str()) {
            models.push(described(&name, if stage == Stage::Stt { "transcription" } else { "speech" }, &engine));
        }
    }
    models
}

/// One of them, by any name it answers to.
pub(super) async fn one(State(speech): State<Arc<SpeechParts>>, Path(id): Path<String>) -> Response {
    let listed = all(&speech).await.into_iter().find(|model| model["id"] == id.as_str());
    match listed.or_else(|| names(&speech).alias(&speech.sessions.setup().engines, &id)) {
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
