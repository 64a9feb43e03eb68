//! Limits of HTTP requests: the middleware that counts and refuses them, and OpenAI's headers.

use super::{Consumer, Count, Level, Resource, Spender, UsedUp};
use crate::server::app::App;
use crate::server::access::auth::{self, Identity};
use crate::server::edge::client::Client;
use crate::server::access::security::Act;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Routes that are limited otherwise, or not at all.
const EXEMPT: [&str; 4] = ["/healthz", "/readyz", "/v1/telephony/{provider}", "/v1/telephony/{provider}/{token}"];

/// Routes of sockets, which are limited as sessions. An offer of a call is a request.
const SOCKETS: [&str; 2] = ["/v1/realtime", "/v1/rtvi"];

/// Middleware behind `auth`: counts a request, responds with 429 where the limit of requests is used up, and adds the headers to
/// responses of `/v1/...`. Handlers find the [`Consumer`] in the request's extensions.
pub(in crate::server) async fn check(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
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
        None => auth::known_owner(&app, request.headers()),
    };
    let consumer = app.limits.consumer(owner, client);
    if let Err(used_up) = consumer.take(Resource::Requests, 1) {
        app.security.limited(Act { client, owner, name: Some(consumer.name()), target: &route }, used_up);
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
    let error = json!({"error": {
        "type": "rate_limit_error", "code": "rate_limit_exceeded", "message": used_up.message(), "param": null,
    }});
    let mut response = (StatusCode::TOO_MANY_REQUESTS, axum::Json(error)).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, crate::server::access::auth::seconds(used_up.wait));
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

/// A duration as Go writes it, rounded up to milliseconds: `6m0s`, `1.5s`, `20ms`.
pub(super) fn go_duration(duration: Duration) -> String {
    let ms = duration.as_nanos().div_ceil(1_000_000);
    if ms == 0 {
        return "0s".into();
    }
    if ms < 1_000 {
        return format!("{ms}ms");
    }
    let hours = ms / 3_600_000;
    let minutes = ms / 60_000 % 60;
    let ms = ms % 60_000;
    let fraction = match ms % 1_000 {
        0 => String::new(),
        part => format!(".{part:03}").trim_end_matches('0').to_owned(),
    };
    let seconds = format!("{}{fraction}s", ms / 1_000);
    match (hours, minutes) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_openai_does() {
        for (us, expect) in [
            (0, "0s"),
            (1, "1ms"),
            (20_000, "20ms"),
            (999_001, "1s"),
            (1_000_000, "1s"),
            (1_500_000, "1.5s"),
            (59_990_000, "59.99s"),
            (60_000_000, "1m0s"),
            (360_000_000, "6m0s"),
            (3_661_200_000, "1h1m1.2s"),
        ] {
            assert_eq!(go_duration(Duration::from_micros(us)), expect);
        }
    }
}
