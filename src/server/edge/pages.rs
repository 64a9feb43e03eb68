//! The embedded web pages: the voice chat, the dashboard and the inspector.
//!
//! The router's fallback, [`super::starting`] and the refusal of a dashboard without a key
//! ([`crate::server::access::auth`]) serve them. They need no key and hold nothing of this hub.

use super::assets::{Asset, asset};
use super::client::Client;
use super::cors::CLIENT_FILES;
use super::headers::RESOURCE_POLICY;
use super::refusal::refused;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Extension;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use std::borrow::Cow;
use tower_http::compression::CompressionLayer;

/// The Content-Security-Policy: content from this server only, and sound that a page has fetched. [`policy`] adds the
/// permitted connections, [`super::headers`] who may embed the page.
const POLICY: &str = "default-src 'self'; img-src 'self' data:; media-src 'self' blob:; \
                      style-src 'self' 'unsafe-inline'; worker-src 'self' blob:; base-uri 'none'; form-action 'none'";

/// Where the inspector's page may connect to besides this server: any server of the Realtime protocol, by WebSocket only. Its
/// scripts come from this server alone, and it knows no key of this server.
const ANY_SOCKET: &str = " ws: wss:";

/// The fallback of the router: files of the page, compressed if the client accepts it.
pub(in crate::server) fn router() -> Router {
    Router::new().fallback(page).layer(CompressionLayer::new())
}

/// The response to a method that a path does not serve; the router adds `Allow`.
pub(in crate::server) async fn method_not_allowed(method: Method) -> Response {
    refused(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", format!("{method} is not served here."))
}

async fn page(method: Method, uri: Uri, Extension(client): Extension<Client>, headers: HeaderMap) -> Response {
    let path = uri.path().trim_start_matches('/');
    let Some(response) = file(uri.path(), client, &headers) else {
        return refused(StatusCode::NOT_FOUND, "not_found", format!("There is no resource at '/{path}'."));
    };
    if method != Method::GET && method != Method::HEAD {
        let mut response = method_not_allowed(method).await;
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET,HEAD"));
        return response;
    }
    if !response.headers().get(header::ETAG).is_some_and(|tag| is_named(tag, &headers)) {
        return response;
    }
    let (mut parts, _) = response.into_parts();
    parts.status = StatusCode::NOT_MODIFIED;
    Response::from_parts(parts, Body::empty())
}

/// The page's file at a URL path, with all headers; `None` if there is no such file. `request`: the request's headers.
pub(in crate::server) fn file(path: &str, client: Client, request: &HeaderMap) -> Option<Response> {
    let path = path.trim_start_matches('/');
    let Asset { body, media_type, tag } = asset(path)?;
    let body = match body {
        Cow::Borrowed(bytes) => Body::from(Bytes::from_static(bytes)),
        Cow::Owned(bytes) => Body::from(bytes),
    };
    // Vite puts a content hash into the names under assets/; other files may change with the next build.
    let cache = if path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CACHE_CONTROL, cache),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    let mut response = (headers, [(header::ETAG, tag)], body).into_response();
    if path.starts_with(CLIENT_FILES.trim_start_matches('/')) {
        response.headers_mut().insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
    }
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy(path, client, request.get(header::HOST)));
    Some(response)
}

/// Whether the client has the content with this entity tag (RFC 9110, 13.1.2: the weak comparison).
fn is_named(tag: &HeaderValue, request: &HeaderMap) -> bool {
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let Ok(tag) = tag.to_str().map(opaque) else { return false };
    let listed = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    listed.flat_map(|list| list.split(',')).any(|named| named.trim() == "*" || opaque(named) == tag)
}

/// The policy of the page at `path`, requested under `host`, which the guard has checked. The page may connect to this server
/// by HTTP and by WebSocket; older browsers do not count the latter as the same origin, so it is listed explicitly.
fn policy(path: &str, client: Client, host: Option<&HeaderValue>) -> HeaderValue {
    let scheme = if client.is_secure { "wss" } else { "ws" };
    let host = host.and_then(|host| host.to_str().ok()).filter(|host| host.bytes().all(is_of_host));
    let socket = match path {
        "inspector" | "inspector.html" => ANY_SOCKET.to_owned(),
        _ => host.map(|host| format!(" {scheme}://{host}")).unwrap_or_default(),
    };
    HeaderValue::try_from(format!("{POLICY}; connect-src 'self'{socket}")).unwrap_or(HeaderValue::from_static(POLICY))
}

/// Characters of a host with a port; excludes those that end a source or a directive.
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_connects_to_its_own_server_only_but_for_the_inspector() {
        let check = |path: &str, host: &str, is_secure: bool, expect: &str| {
            let peer = [127, 0, 0, 1].into();
            let client = Client::direct(peer, is_secure);
            let policy = policy(path, client, Some(&host.parse().unwrap()));
            let policy = policy.to_str().unwrap();
            assert!(policy.ends_with(&format!("; connect-src {expect}")), "{policy}");
        };
        for path in ["", "index.html", "dashboard", "assets/inspector-1.js", "inspector/"] {
            check(path, "127.0.0.1:8080", false, "'self' ws://127.0.0.1:8080");
            check(path, "voice.example", true, "'self' wss://voice.example");
            check(path, "a; script-src *", true, "'self'");
        }
        // The inspector is for any server of the protocol.
        for path in ["inspector", "inspector.html"] {
            check(path, "voice.example", true, "'self' ws: wss:");
        }
    }
}
