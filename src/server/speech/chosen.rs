//! The engines that serve a request for speech: those of new sessions or, where it names a model of the registry that is on
//! the disk, that model's, which is loaded at its first use.

use super::error::ApiError;
use super::names::Names;
use crate::server::app::App;
use crate::session::Engines;
use axum::http::StatusCode;
use serde::Deserialize;

/// What a request is judged by and served with.
pub(super) struct Chosen {
    pub(super) engines: Engines,
    pub(super) names: Names,
}

/// All that is read of the body here; the rest is judged later.
#[derive(Deserialize)]
struct Asked {
    model: Option<String>,
}

/// For a request of this body. Waits while a model is loaded.
pub(super) async fn chosen(app: &App, body: &[u8]) -> Result<Chosen, ApiError> {
    let (mut engines, mut names) = (app.setup().engines.clone(), super::names(app));
    // What is no JSON is refused by who reads all of it.
    let asked = serde_json::from_slice::<Asked>(body).ok().and_then(|asked| asked.model);
    let Some(model) = asked.filter(|model| *model != engines.tts.name()) else { return Ok(Chosen { engines, names }) };
    match app.models.tts(&model).await {
        None => {}
        Some(Ok(tts)) => {
            names.voice = tts.voices().first().map(|voice| voice.id.clone()).unwrap_or_default();
            names.tts_model = model;
            engines.tts = tts;
        }
        Some(Err(failure)) => {
            tracing::warn!(%failure, "a model that was asked for cannot be loaded");
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Err(ApiError {
                param: Some("model"),
                ..ApiError::with(status, "model_unavailable", failure.to_string())
            });
        }
    }
    Ok(Chosen { engines, names })
}
