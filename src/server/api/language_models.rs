//! `/api/llm/servers`: the language model servers on the hub's machine, for operators, and connecting one of their models while the
//! hub runs.
//!
//! New sessions use the connected model, running ones keep theirs, and a restart returns to the configuration. A client names a
//! port and a model, which must be among those just found: the hub never connects to an address that a client sent.

use super::parts::ApiParts;
use crate::assembly::EngineManager;
use crate::server::access::admin::Admin;
use crate::server::access::audit_http::CreatedId;
use crate::server::access::caller::Identity;
use crate::server::edge::client::Client;
use crate::server::edge::refusal::refused;
use antiphon_engines::llm::LlmConfig;
use antiphon_engines::llm::discovery::{self, LlmServer};
use antiphon_engines::table::{EngineKind, EngineStage};
use antiphon_telemetry::with_causes;
use antiphon_types::KeyId;
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The largest request: a port and a model's name.
pub(in crate::server) const MAX_BODY_BYTES: usize = 4 * 1024;

/// What to connect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::server) struct Choice {
    port: u16,
    model: String,
}

/// `GET /api/llm/servers`: the servers on this machine, and the language model that serves. Takes as long as the slowest server, at
/// most [`discovery::DEADLINE`].
pub(in crate::server) async fn list(
    State(api): State<Arc<ApiParts>>,
    _: Admin,
    identity: Identity,
    Extension(client): Extension<Client>,
) -> Response {
    let Some(manager) = api.sessions.models.manager() else { return none() };
    let servers = match found(&api, &manager, identity.owner, client).await {
        Ok(servers) => servers,
        Err(response) => return *response,
    };
    Json(json!({ "active": active(&manager), "servers": servers })).into_response()
}

/// `POST /api/llm/servers`: connects a model of a server that is found now.
pub(in crate::server) async fn connect(
    State(api): State<Arc<ApiParts>>,
    _: Admin,
    identity: Identity,
    Extension(client): Extension<Client>,
    Json(choice): Json<Choice>,
) -> Response {
    let Some(manager) = api.sessions.models.manager() else { return none() };
    let servers = match found(&api, &manager, identity.owner, client).await {
        Ok(servers) => servers,
        Err(response) => return *response,
    };
    let serves = |server: &&LlmServer| server.port == choice.port && server.models.contains(&choice.model);
    let Some(server) = servers.iter().find(serves) else {
        let message = "No server on this machine serves this model on this port now; GET /api/llm/servers lists them.";
        return refused(StatusCode::NOT_FOUND, "model_not_found", message);
    };
    let config = discovery::connected(&manager.config().llm, server.port, &choice.model);
    let mut response = serve_with(&api, manager, Some(config)).await;
    response.extensions_mut().insert(CreatedId(format!("{} {}", server.base_url, choice.model)));
    api.sessions.access.security.act(client, "/api/llm/servers", identity.owner, "a language model is connected");
    response
}

/// `DELETE /api/llm/servers`: the configured language model serves again.
pub(in crate::server) async fn disconnect(
    State(api): State<Arc<ApiParts>>,
    _: Admin,
    identity: Identity,
    Extension(client): Extension<Client>,
) -> Response {
    let Some(manager) = api.sessions.models.manager() else { return none() };
    api.sessions.access.security.act(
        client,
        "/api/llm/servers",
        identity.owner,
        "the configured language model is used again",
    );
    serve_with(&api, manager, None).await
}

async fn serve_with(api: &ApiParts, manager: Arc<EngineManager>, llm: Option<LlmConfig>) -> Response {
    let connecting = manager.clone();
    // It waits while engines are being loaded.
    match tokio::task::spawn_blocking(move || connecting.connect_llm(llm)).await {
        Ok(Ok(standing)) => {
            api.sessions.serve_with(standing.engines);
            Json(json!({ "active": active(&manager) })).into_response()
        }
        Ok(Err(failure)) => {
            tracing::warn!(error = with_causes(&failure), "the language model cannot be connected");
            refused(StatusCode::INTERNAL_SERVER_ERROR, "model_failed", with_causes(&failure))
        }
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, None, "The connection was interrupted."),
    }
}

/// The servers, without this hub itself. The number of requests that look for them at once is limited.
async fn found(
    api: &ApiParts,
    manager: &EngineManager,
    owner: Option<KeyId>,
    client: Client,
) -> Result<Vec<LlmServer>, Box<Response>> {
    let _place = api.readers.place(owner, client).await?;
    let own = api.sessions.edge.config.listen.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    Ok(discovery::find(&manager.config().llm, own.as_slice()).await)
}

/// The language model that serves new sessions.
fn active(manager: &EngineManager) -> Value {
    let (llm, is_connected) = manager.active_llm();
    let is_remote = EngineStage::Llm.kind(&llm.engine).is_some_and(EngineKind::is_remote);
    json!({
        "engine": llm.engine,
        "model": is_remote.then_some(&llm.model),
        "base_url": is_remote.then_some(&llm.base_url),
        "connected": is_connected,
        "settings": is_connected.then(|| format!(
            "[llm]\nengine = \"{}\"\nbase_url = \"{}\"\nmodel = {}\napi_key_env = \"{}\"\n",
            llm.engine,
            llm.base_url,
            toml::Value::String(llm.model.clone()),
            llm.api_key_env,
        )),
    })
}

fn none() -> Response {
    refused(StatusCode::NOT_FOUND, "not_found", "This hub was started with fixed engines.")
}
