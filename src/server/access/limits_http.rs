//! Limits of HTTP requests: the middleware that counts and refuses them, and OpenAI's headers.
//!
//! It runs behind [`super::auth`]; [`super::limits`] decides. Sockets and phone calls are limited as sessions, not
//! here.

use super::auth;
use super::caller::Identity;
use super::limits::go_duration::go_duration;
use super::limits::{Consumer, Count, Level, Resource, Spender, UsedUp};
use super::parts::AccessParts;
use super::security::Act;
use crate::server::edge::client::Client;
use crate::server::edge::refusal::{refused, seconds};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;

/// Routes that are limited otherwise, or not at all. A phone's provider asks for many callers from few addresses.
const EXEMPT: [&str; 6] = [
    "/healthz",
    "/readyz",
    "/v1/telephony/{provider}",
    "/v1/telephony/{provider}/{token}",
    "/v1/telephony/twilio/voice",
    "/v1/telephony/twilio/status",
];

/// Routes of sockets, which are limited as sessions. An offer of a call is a request.
const SOCKETS: [&str; 2] = ["/v1/realtime", "/v1/rtvi"];

/// Middleware behind `auth`: counts a request, responds with 429 where the limit of requests is used up, and adds the headers to
/// responses of `/v1/...`. Handlers find the [`Consumer`] in the request's extensions.
pub(in crate::server) async fn check(
    State(access): State<Arc<AccessParts>>,
    mut request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let is_limited = |route: &String| {
        let is_socket = request.method() == Method::GET && SOCKETS.contains(&route.as_str());
        !is_socket && !EXEMPT.contains(&route.as_str())
    };
    let Some(route) = route.filter(is_limited) else { return next.run(request).await };
    let client = *request.extensions().get::<Client>().expect("the guard is the first to see a request");
    let owner = match request.extensions().get::<Identity>() {
        Some(identity) => identity.owner,
        // The handler authenticates.
        None => auth::known_owner(&access, request.headers()),
    };
    let consumer = access.limits.consumer(owner, client);
    if let Err(used_up) = consumer.take(Resource::Requests, 1) {
        access.security.limited(Act { client, owner, name: Some(consumer.name()), target: &route }, used_up);
        return refusal(used_up, &consumer);
    }
    consumer.count(Count::Requests, 1);
    request.extensions_mut().insert(Spender { consumer: consumer.clone(), client, owner });
    let mut response = next.run(request).await;
    if route.starts_with("/v1/") {
        let resources: &[Resource] = match route.as_str() {
            "/v1/audio/transcriptions" | "/v1/audio/translations" => &[Resource::Requests, Resource::Transcription],
            _ => &[Resource::Requests, Resource::Tokens, Resource::Characters],
        };
        let levels = resources.iter().map(|resource| (*resource, consumer.level(*resource)));
        add_headers(response.headers_mut(), levels);
    }
    response
}

/// The 429 response.
pub(in crate::server) fn refusal(used_up: UsedUp, consumer: &Consumer) -> Response {
    let mut response = refused(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", used_up.message());
    response.headers_mut().insert(header::RETRY_AFTER, seconds(used_up.wait));
    response.headers_mut().extend(headers_of_refusal(used_up, consumer));
    response
}

/// The headers of a limit that is used up.
pub(in crate::server) fn headers_of_refusal(used_up: UsedUp, consumer: &Consumer) -> HeaderMap {
    let mut headers = HeaderMap::new();
    add_headers(&mut headers, [(used_up.resource, consumer.level(used_up.resource))].into_iter());
    headers
}

/// The headers of an upgrade: responses and tokens.
pub(in crate::server) fn headers_of(headers: &mut HeaderMap, level: impl Fn(Resource) -> Option<Level>) {
    let levels = [Resource::Responses, Resource::Tokens].into_iter().map(|resource| (resource, level(resource)));
    add_headers(headers, levels);
}

/// `x-ratelimit-limit-...`, `-remaining-...` and `-reset-...` of those that have a limit.
fn add_headers(headers: &mut HeaderMap, levels: impl Iterator<Item = (Resource, Option<Level>)>) {
    for (resource, level) in levels {
        let Some(Level { limit, remaining, reset }) = level else { continue };
        let name = |what: &str| {
            let name = format!("x-ratelimit-{what}-{}", resource.header());
            HeaderName::try_from(name).expect("letters and hyphens")
        };
        let reset = HeaderValue::try_from(go_duration(reset)).expect("digits and letters");
        headers.insert(name("limit"), limit.into());
        headers.insert(name("remaining"), remaining.into());
        headers.insert(name("reset"), reset);
    }
}
