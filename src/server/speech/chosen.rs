//! The engines that serve a request for speech: those of new sessions or, where it names a model of the registry that is on
//! the disk, that model's, which is loaded at its first use.

use super::error::ApiError;
use super::names::{Names, Task};
use super::parts::{self, SpeechParts};
use crate::assembly::StageFailure;
use antiphon_engine_api::Engines;
use antiphon_engine_api::tts::{Tts, VoiceScope};
use axum::http::StatusCode;
use serde::Deserialize;
use std::sync::Arc;

/// What a request is judged by and served with.
pub(super) struct ChosenEngines {
    pub(super) engines: Engines,
    pub(super) names: Names,
    /// The model of the registry that was asked for, where it is another than serves sessions.
    pub(super) model: Option<String>,
}

/// All that is read of the body here; the rest is judged later.
#[derive(Deserialize)]
struct RequestedModel {
    model: Option<String>,
}

/// For a request to speak, of this body. Waits while a model is loaded.
/// `scope`: whose uploaded voices it may name.
pub(super) async fn for_body(speech: &SpeechParts, body: &[u8], scope: VoiceScope) -> Result<ChosenEngines, ApiError> {
    // What is no JSON is refused by who reads all of it.
    let asked = serde_json::from_slice::<RequestedModel>(body).ok().and_then(|asked| asked.model);
    let mut chosen = for_model(speech, Task::Speech, asked).await?;
    chosen.names.scope = scope;
    Ok(chosen)
}

/// For a model by the name a request has for it; one that is not on the disk is judged by the names. Waits while it is loaded.
pub(super) async fn for_model(
    speech: &SpeechParts,
    task: Task,
    asked: Option<String>,
) -> Result<ChosenEngines, ApiError> {
    let mut engines = speech.sessions.setup().engines.clone();
    let mut names = parts::names(speech);
    let asked = asked.filter(|asked| names.check_model(&engines, task, Some(asked)).is_err());
    let Some(model) = asked else { return Ok(ChosenEngines { engines, names, model: None }) };
    let is_here = match task {
        Task::Speech => speech.sessions.models.tts(&model).await.transpose().map_err(unavailable)?.map(|tts| {
            names.voice = tts.voices().first().map(|voice| voice.id.clone()).unwrap_or_default();
            names.tts_model.clone_from(&model);
            engines.tts = tts;
        }),
        Task::Transcription => speech.sessions.models.stt(&model).await.transpose().map_err(unavailable)?.map(|stt| {
            names.stt_model.clone_from(&model);
            engines.stt = stt;
        }),
    };
    Ok(ChosenEngines { engines, names, model: is_here.map(|()| model) })
}

/// The voice engine of a job that was taken with this model. The model may have gone meanwhile, or find no room now
/// ([`ApiError::is_busy`]).
pub(super) async fn for_job(speech: &SpeechParts, model: Option<&str>) -> Result<Arc<dyn Tts>, ApiError> {
    let Some(model) = model else { return Ok(speech.sessions.setup().engines.tts.clone()) };
    match speech.sessions.models.tts(model).await {
        Some(tts) => tts.map_err(unavailable),
        None => {
            let message =
                format!("The model '{model}', which this was asked for with, is not on this server any more.");
            Err(ApiError::with(StatusCode::SERVICE_UNAVAILABLE, "model_unavailable", message))
        }
    }
}

#[allow(clippy::needless_pass_by_value)]
fn unavailable(failure: StageFailure) -> ApiError {
    if failure.is_busy() {
        tracing::debug!(%failure, "a model that was asked for finds no room");
        return ApiError::overloaded("There is no room to load this model now. Try again soon.");
    }
    tracing::warn!(%failure, "a model that was asked for cannot be loaded");
    let message = "This model cannot be loaded; the operator's log has the details.";
    let status = StatusCode::SERVICE_UNAVAILABLE;
    ApiError { param: Some("model"), ..ApiError::with(status, "model_unavailable", message) }
}
