//! `/api/models`: lists models and their state, and pulls and removes them for operators.
//!
//! A pull runs in a task of the server: it continues after the page that started it is closed, and ends with the
//! server. Once the model is on disk, the engines are selected again; running sessions keep theirs.

pub(super) mod pull_table;
mod pulls;

use super::parts::ApiParts;
use crate::assembly::{EngineInUse, EngineManager};
use crate::server::access::admin::{Admin, MayChange};
use crate::server::access::caller::Identity;
use crate::server::edge::client::Client;
use crate::server::edge::refusal::refused;
use antiphon_registry::{Entry, OnDisk, RegistryError, on_disk, remove};
use antiphon_telemetry::with_causes;
use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use pull_table::{CancelResult, IN_THE_LOG};
use serde_json::{Value, json};
use std::sync::Arc;

/// `GET /api/models`: the engine of each stage, a better model if there is one, and all models.
pub(in crate::server) async fn list(
    State(api): State<Arc<ApiParts>>,
    MayChange(may_change): MayChange,
    identity: Identity,
    Extension(client): Extension<Client>,
) -> Response {
    // The number of concurrent requests is limited, because each reads the disk.
    let _place = match api.readers.place(identity.owner, client).await {
        Ok(place) => place,
        Err(response) => return *response,
    };
    let served = api.sessions.models.served();
    let Some(manager) = api.sessions.models.manager() else {
        return Json(json!({ "may_change": false, "stages": *served, "models": [] })).into_response();
    };
    let pulls = api.pulls.states();
    let reading = served.clone();
    let read = tokio::task::spawn_blocking(move || {
        let entries = manager.catalog().entries().iter().filter(|entry| manager.knows(entry.stage, &entry.family));
        let models: Vec<Value> = entries
            .map(|entry| {
                let mut model = described(&manager, entry);
                model["serves"] = json!(reading.iter().any(|served| served.runs(&entry.name)));
                model["pull"] = json!(pulls.get(&entry.name).map(|state| state.shown(may_change)));
                model
            })
            .collect();
        let stages: Vec<Value> = reading
            .iter()
            .map(|served| {
                let mut stage = if may_change { json!(served) } else { for_anyone(served) };
                stage["offer"] = json!(offer(&manager, served).map(|entry| &entry.name));
                stage
            })
            .collect();
        let recommended: Vec<String> = manager.recommended().iter().map(|entry| entry.name.clone()).collect();
        (models, stages, recommended)
    });
    match read.await {
        Ok((models, stages, recommended)) => Json(json!({
            "may_change": may_change, "stages": stages, "models": models, "recommended": recommended,
        }))
        .into_response(),
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, None, "The models' folder cannot be read."),
    }
}

/// A stage for callers who are no operators: why a model cannot be loaded names paths of the server, and is in its log.
pub(super) fn for_anyone(served: &EngineInUse) -> Value {
    let mut stage = json!(served);
    for passed in stage["passed_over"].as_array_mut().into_iter().flatten() {
        if passed["slow"] == json!(false) {
            passed["why"] = IN_THE_LOG.into();
        }
    }
    stage
}

fn described(manager: &EngineManager, entry: &Entry) -> Value {
    let variants = entry.variants.iter().map(|variant| {
        let (state, here) = match on_disk(&manager.config().models, entry, variant) {
            OnDisk::Absent => ("absent", 0),
            OnDisk::Partly { bytes } => ("partly", bytes),
            OnDisk::Whole { bytes } => ("whole", bytes),
            OnDisk::Damaged { .. } => ("damaged", 0),
        };
        json!({
            "precision": variant.precision, "state": state, "bytes_here": here, "about_bytes": variant.about_bytes(),
            "unchecked_files": variant.n_unchecked(),
        })
    });
    json!({
        "name": entry.name, "stage": entry.stage, "family": entry.family, "title": entry.title, "note": entry.note,
        "licence": entry.licence, "languages": entry.languages, "rank": entry.auto, "lacks": manager.lacks(entry),
        "variants": variants.collect::<Vec<_>>(),
    })
}

/// For a stage that selects automatically: the best model for this machine that ranks higher than the current one and
/// is not on disk. A model that can run immediately takes precedence over one whose runtime is missing.
fn offer<'a>(manager: &'a EngineManager, served: &EngineInUse) -> Option<&'a Entry> {
    let entries = manager.catalog().entries();
    // The order of selection: models that support the language first, then by rank.
    let rank = |entry: &Entry| (manager.speaks(entry), entry.auto);
    let served_rank = entries.iter().find(|entry| served.runs(&entry.name)).map_or((false, 0), rank);
    let config = manager.config();
    let fits = |entry: &&Entry| {
        served.auto
            && entry.stage.to_string() == served.stage
            && manager.knows(entry.stage, &entry.family)
            && entry.is_pulled()
            && manager.is_fast_enough(entry, served)
            && manager.speaks(entry)
            && rank(entry) > served_rank
            && !entry.variants.iter().any(|v| matches!(on_disk(&config.models, entry, v), OnDisk::Whole { .. }))
    };
    entries.iter().filter(fits).max_by_key(|entry| (manager.lacks(entry).is_none(), entry.auto))
}

/// `POST /api/models/{name}/pull`, with or without a precision in the name. Responds 202; the pull continues in the
/// background.
pub(in crate::server) async fn pull(
    State(api): State<Arc<ApiParts>>,
    _: Admin,
    identity: Identity,
    Extension(client): Extension<Client>,
    Path(name): Path<String>,
) -> Response {
    let Some(manager) = api.sessions.models.manager() else { return none() };
    let wanted = match manager.catalog().find(&name) {
        Ok(wanted) => wanted,
        Err(error) => return failure(&error),
    };
    let entry = wanted.entry.clone();
    let variant = wanted.variant().clone();
    let model = entry.name.clone();
    match pulls::start(&api, manager, entry, variant) {
        Ok(state) => {
            api.sessions.access.security.act(
                client,
                &format!("/api/models/{model}/pull"),
                identity.owner,
                "a model is pulled",
            );
            (StatusCode::ACCEPTED, Json(state)).into_response()
        }
        Err(response) => *response,
    }
}

/// `GET /api/models/{name}/pull`: the pull's progress as server-sent events, until it ends.
pub(in crate::server) async fn progress(
    State(api): State<Arc<ApiParts>>,
    MayChange(may_change): MayChange,
    identity: Identity,
    Extension(client): Extension<Client>,
    Path(name): Path<String>,
) -> Response {
    let place = match api.listeners.place(identity.owner, client) {
        Ok(place) => place,
        Err(response) => return *response,
    };
    match api.pulls.watch(&name) {
        Some(state) => pulls::events(&api.sessions, state, may_change, place),
        None => refused(StatusCode::NOT_FOUND, "not_found", "This model has not been pulled since the hub started."),
    }
}

/// `DELETE /api/models/{name}/pull`: ends the pull while it fetches. What it has brought is kept for the next one.
pub(in crate::server) async fn cancel(
    State(api): State<Arc<ApiParts>>,
    _: Admin,
    identity: Identity,
    Extension(client): Extension<Client>,
    Path(name): Path<String>,
) -> Response {
    match api.pulls.cancel(&name) {
        CancelResult::Cancelled => {}
        CancelResult::IsLoading => {
            let message = "This model is being loaded. It can be removed afterwards, where it does not serve.";
            return refused(StatusCode::CONFLICT, "model_in_use", message);
        }
        CancelResult::NotRunning => {
            return refused(StatusCode::NOT_FOUND, "not_found", "This model is not being pulled.");
        }
    }
    api.sessions.access.security.act(
        client,
        &format!("/api/models/{name}/pull"),
        identity.owner,
        "a pull was cancelled",
    );
    StatusCode::NO_CONTENT.into_response()
}

/// `DELETE /api/models/{name}`, with or without a precision in the name.
pub(in crate::server) async fn delete(
    State(api): State<Arc<ApiParts>>,
    _: Admin,
    identity: Identity,
    Extension(client): Extension<Client>,
    Path(name): Path<String>,
) -> Response {
    let Some(manager) = api.sessions.models.manager() else { return none() };
    let removed = tokio::task::spawn_blocking(move || {
        let wanted = manager.catalog().find(&name)?;
        if !manager.release(&wanted.entry.name) {
            return Err(RegistryError::InUse(wanted.entry.name.clone()));
        }
        Ok((wanted.entry.name.clone(), remove(&manager.config().models, wanted)?))
    });
    match removed.await {
        Ok(Ok((name, bytes))) => {
            api.sessions.models.forget(&name);
            api.pulls.forget(&name);
            api.sessions.access.security.act(
                client,
                &format!("/api/models/{name}"),
                identity.owner,
                "a model was removed",
            );
            Json(json!({ "bytes": bytes })).into_response()
        }
        Ok(Err(error)) => failure(&error),
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, None, "The removal was interrupted."),
    }
}

fn none() -> Response {
    refused(StatusCode::NOT_FOUND, "not_found", "This hub was started without models.")
}

/// The error in the OpenAI format, with the matching status.
fn failure(error: &RegistryError) -> Response {
    let (status, code) = match error {
        RegistryError::Unknown { .. } | RegistryError::NoPrecision { .. } | RegistryError::Absent { .. } => {
            (StatusCode::NOT_FOUND, "model_not_found")
        }
        RegistryError::Busy(_) | RegistryError::InUse(_) => (StatusCode::CONFLICT, "model_in_use"),
        RegistryError::Shipped { .. } => (StatusCode::CONFLICT, "model_shipped"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "model_failed"),
    };
    refused(status, code, with_causes(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembly::PassedOver;

    #[test]
    fn paths_of_the_server_are_for_operators() {
        let passed = |why: &str, slow| PassedOver { model: "kokoro:int8".into(), why: why.into(), slow };
        let served = EngineInUse {
            stage: "tts",
            engine: "flite".into(),
            model: None,
            auto: true,
            measured: None,
            passed_over: vec![
                passed("/srv/models/kokoro.onnx: it is damaged", false),
                passed("first sound after 3 s", true),
            ],
        };
        let shown = for_anyone(&served);
        assert_eq!(shown["passed_over"][0]["why"], IN_THE_LOG);
        assert_eq!(shown["passed_over"][1]["why"], "first sound after 3 s");
    }
}
