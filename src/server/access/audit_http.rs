//! Writes to the audit log what clients change by HTTP, created short-lived keys, models, voices and jobs, and the recordings that
//! they listen to.
//!
//! A middleware behind [`super::auth`] and the limits: it knows these routes and sees how each request ended.
//! Handlers that create something add its id to the response as [`CreatedId`].

use super::caller::Identity;
use super::parts::AccessParts;
use super::security::Act;
use crate::server::edge::client::Client;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;

/// The id of what a request has created, as an extension of its response.
#[derive(Clone)]
pub(in crate::server) struct CreatedId(pub(in crate::server) String);

/// Middleware: passes the request on, and writes what came of it.
pub(in crate::server) async fn record(
    State(access): State<Arc<AccessParts>>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|route| route.as_str().to_owned());
    let Some((action, route)) = route.and_then(|route| Some((action(request.method(), &route)?, route))) else {
        return next.run(request).await;
    };
    let client = request.extensions().get::<Client>().copied();
    let identity = request.extensions().get::<Identity>().copied();
    let named = parameter(&route, request.uri().path()).map(str::to_owned);
    let response = next.run(request).await;
    let created = response.extensions().get::<CreatedId>().map(|created| created.0.clone());
    let location = response.headers().get(header::LOCATION).and_then(|at| at.to_str().ok()?.rsplit('/').next());
    let target = created.or(named).or_else(|| location.map(str::to_owned)).unwrap_or_default();
    if let Some(client) = client {
        let owner = identity.and_then(|identity| identity.owner);
        let name = access.keys.name_of(owner);
        let outcome = match response.status() {
            // How it ends is known later, and is in the hub's log.
            StatusCode::ACCEPTED if action == "model.pull" => "started".to_owned(),
            status if status.is_success() => "ok".to_owned(),
            status => format!("status {}", status.as_u16()),
        };
        access.security.done(action, Act { client, owner, name: name.as_deref(), target: &target }, &outcome);
    }
    response
}

fn action(method: &Method, route: &str) -> Option<&'static str> {
    Some(match (method.as_str(), route) {
        ("POST", "/v1/realtime/client_secrets" | "/v1/realtime/sessions") => "key.mint",
        ("POST", "/api/models/{name}/pull") => "model.pull",
        ("DELETE", "/api/models/{name}/pull") => "model.cancel",
        ("DELETE", "/api/models/{name}") => "model.remove",
        ("POST", "/api/llm/servers") => "llm.connect",
        ("DELETE", "/api/llm/servers") => "llm.disconnect",
        ("POST", "/v1/audio/voices") => "voice.add",
        ("DELETE", "/v1/audio/voices/{id}") => "voice.remove",
        ("POST", "/v1/audio/speech/jobs") => "job.create",
        ("DELETE", "/v1/audio/speech/jobs/{id}") => "job.cancel",
        ("POST", "/v1/realtime/calls/{id}/accept") => "call.accept",
        ("POST", "/v1/realtime/calls/{id}/hangup") => "call.hangup",
        ("POST", "/v1/realtime/calls/{id}/recording") => "call.recording",
        ("POST", "/v1/realtime/calls/{id}/refer") => "call.transfer",
        ("POST", "/v1/realtime/calls/{id}/reject") => "call.reject",
        ("GET", "/api/turns/{id}/audio") => "recording.read",
        _ => return None,
    })
}

/// The part of the path that stands for the route's parameter.
fn parameter<'a>(route: &str, path: &'a str) -> Option<&'a str> {
    route.split('/').zip(path.split('/')).find(|(pattern, _)| pattern.starts_with('{')).map(|(_, part)| part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_of_a_route_is_found() {
        assert_eq!(parameter("/api/models/{name}/pull", "/api/models/kokoro:fp16/pull"), Some("kokoro:fp16"));
        assert_eq!(parameter("/v1/audio/voices", "/v1/audio/voices"), None);
        assert_eq!(action(&Method::DELETE, "/v1/audio/voices/{id}"), Some("voice.remove"));
        assert_eq!(action(&Method::GET, "/v1/audio/voices/{id}"), None);
    }
}
