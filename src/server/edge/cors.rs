//! Which responses pages of other origins may read: the CORS headers.
//!
//! [`crate::server::access::guard`] and [`super::starting`] call it once they know whether the origin may connect. What
//! is not listed here carries no such header, so that a browser keeps it from other pages. This module reads no key and
//! decides about no request.

use super::open_routes;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// The client's files for other pages, such as `antiphon-voice.js`.
pub(in crate::server) const CLIENT_FILES: &str = "/sdk/";
/// What a client reads before and beside its conversation.
const READ_BY_CLIENTS: [&str; 2] = ["/readyz", "/v1/audio/voices"];
/// How long a browser may keep the answer to a preflight request, in seconds.
const PREFLIGHT_LASTS: &str = "600";

/// Whether pages of every origin may load this: files of the client, which hold nothing of this hub.
pub(in crate::server) fn is_public<B>(request: &Request<B>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD) && request.uri().path().starts_with(CLIENT_FILES)
}

/// Whether a page of another origin may send this request where keys are on: a call by WebRTC, which such pages open with a key.
pub(in crate::server) fn is_call<B>(request: &Request<B>) -> bool {
    matches!(*request.method(), Method::POST | Method::PATCH | Method::OPTIONS)
        && open_routes::is_call(request.uri().path())
}

/// The page that may read the response, if the guard lets its request pass.
pub(in crate::server) fn reader<B>(request: &Request<B>) -> Option<HeaderValue> {
    let path = request.uri().path();
    let is_read =
        matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) && READ_BY_CLIENTS.contains(&path);
    let origin = request.headers().get(header::ORIGIN)?;
    (is_read || is_call(request) || is_public(request)).then(|| origin.clone())
}

/// The answer to a browser's question whether a page may send a request. What the request says of itself is allowed: it is
/// judged when it comes.
pub(in crate::server) fn preflight<B>(request: &Request<B>) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PATCH"));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_LASTS));
    if let Some(asked) = request.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    response
}

/// The headers by which a browser lets the page read the response.
pub(in crate::server) fn share_with(origin: &HeaderValue, headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Location, Retry-After"));
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_origins_read_what_a_conversation_needs() {
        let check = |method: Method, path: &str, expect: bool| {
            let request = Request::builder().method(&method).uri(path).header(header::ORIGIN, "https://app.example");
            let request = request.body(()).unwrap();
            assert_eq!(reader(&request).is_some(), expect, "{method} {path}");
        };
        for path in ["/readyz", "/v1/audio/voices"] {
            check(Method::GET, path, true);
            check(Method::OPTIONS, path, true);
            check(Method::POST, path, false);
        }
        check(Method::GET, "/sdk/antiphon-voice.js", true);
        check(Method::POST, "/v1/realtime/calls", true);
        for path in ["/", "/sdk", "/api/state", "/api/turns", "/metrics", "/v1/realtime/client_secrets", "/readyz/"] {
            check(Method::GET, path, false);
            check(Method::OPTIONS, path, false);
        }
    }
}
