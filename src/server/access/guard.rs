//! Checks Host and Origin before anything else.
//!
//! Any web page can make a browser open a WebSocket to loopback, and a foreign host name can be made to resolve to this
//! machine (DNS rebinding). A request's host must therefore be one of ours, and a page's origin must equal it in
//! scheme, host and port or be listed in `server.allowed_origins`; what else pages of other origins may load is in
//! [`crate::server::edge::cors`]. A request without Origin was not sent by a page.
//! Every response passes through here, which sets the headers common to all.

use crate::server::app::App;
use super::auth;
use crate::server::edge::client::{Client, Peer};
use crate::server::edge::headers::is_local;
use crate::server::edge::inflow::Inflow;
use crate::server::edge::cors;
use crate::config::ServerConfig;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The reason for the log.
pub(in crate::server) const FOREIGN_ORIGIN: &str = "foreign origin";

/// Characters of an origin in the log.
const MAX_LOGGED_ORIGIN: usize = 128;

/// Middleware: determines the client, then responds with 400 or 403, or passes the request on.
pub(in crate::server) async fn check(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0.ip());
    let client = Client::of(peer, request.headers(), &app.proxies, app.tls.is_some());
    request.extensions_mut().insert(client);
    let page = cors::reader(&request);
    let is_local = is_local(&request);
    let response = match (judged(&app, client, &request), page) {
        (Ok(()), Some(origin)) => {
            let mut response = match *request.method() {
                Method::OPTIONS => cors::preflight(&request),
                _ => next.run(request).await,
            };
            cors::share_with(&origin, response.headers_mut());
            response
        }
        (Ok(()), None) => next.run(request).await,
        (Err(response), _) => *response,
    };
    app.headers.seal(response, app.tls.as_deref(), is_local)
}

fn judged(app: &App, client: Client, request: &Request) -> Result<(), Box<Response>> {
    let refuse = |status: StatusCode, code: &str, message: String, reason: &str| {
        app.security.refused(client, request.uri().path(), status.as_u16(), reason);
        Err(Box::new(refused(status, code, message)))
    };
    if let Err(response) = one_host(request.headers()) {
        app.security.refused(client, request.uri().path(), response.status().as_u16(), "two hosts");
        return Err(response);
    }
    match verdict(&app.config, request.headers(), request.uri().host(), client.is_secure) {
        Ok(()) => Ok(()),
        Err((FOREIGN_ORIGIN, _)) if cors::is_public(request) => Ok(()),
        // A page cannot send a key that it was not given. A password, which a browser adds by itself, is none.
        Err((FOREIGN_ORIGIN, _))
            if cors::is_call(request) && app.access.keys().are_on() && !auth::has_password(request.headers()) =>
        {
            Ok(())
        }
        Err((FOREIGN_ORIGIN, message)) => {
            let origin =
                request.headers().get(header::ORIGIN).and_then(|origin| origin.to_str().ok()).unwrap_or_default();
            let origin: String = origin.chars().take(MAX_LOGGED_ORIGIN).collect();
            let reason = format!("{FOREIGN_ORIGIN} {origin:?}; to allow its pages, add it to server.allowed_origins");
            refuse(StatusCode::FORBIDDEN, "forbidden", message, &reason)
        }
        Err((reason, message)) => refuse(StatusCode::FORBIDDEN, "forbidden", message, reason),
    }
}

/// Checks that there is one Host header: with two, the one checked here may differ from the one that another component uses.
///
/// # Errors
/// 400.
pub(in crate::server) fn one_host(headers: &HeaderMap) -> Result<(), Box<Response>> {
    if headers.get_all(header::HOST).iter().nth(1).is_none() {
        return Ok(());
    }
    let message = "The request has more than one Host header.";
    Err(Box::new(refused(StatusCode::BAD_REQUEST, "invalid_host", message)))
}

/// Expects WebSocket frames on this connection from now on.
///
/// # Errors
/// 400: the client has sent some before the response to its upgrade.
pub(in crate::server) fn expect_frames(inflow: &Inflow) -> Result<(), Box<Response>> {
    if inflow.expect_frames() {
        return Ok(());
    }
    let message = "No data may be sent after the WebSocket upgrade request before its response has been received.";
    Err(Box::new(refused(StatusCode::BAD_REQUEST, "invalid_value", message)))
}

/// An error response in the OpenAI format.
pub(in crate::server) fn refused<'a>(
    status: StatusCode,
    code: impl Into<Option<&'a str>>,
    message: impl Into<String>,
) -> Response {
    let error = json!({"error": {"type": "invalid_request_error", "code": code.into(), "message": message.into(), "param": null}});
    (status, axum::Json(error)).into_response()
}

/// Why the request is rejected: a short reason for the log and a sentence for the client.
pub(in crate::server) fn verdict(
    config: &ServerConfig,
    headers: &HeaderMap,
    uri_host: Option<&str>,
    is_secure: bool,
) -> Result<(), (&'static str, String)> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST).or(uri_host).unwrap_or_default();
    if !is_ours(config, host) {
        let message = format!(
            "The host '{host}' is not one of this server's. To serve under that name, add it to server.allowed_hosts."
        );
        return Err(("foreign host", message));
    }
    let Some(origin) = text(header::ORIGIN) else {
        return if headers.contains_key(header::ORIGIN) {
            Err((FOREIGN_ORIGIN, "The Origin header cannot be read.".into()))
        } else {
            Ok(())
        };
    };
    let own = format!("{}://{host}", if is_secure { "https" } else { "http" });
    let is_same = |other: &str| parts_of(other).is_some() && parts_of(other) == parts_of(origin);
    if is_same(&own) || config.allowed_origins.iter().any(|allowed| is_same(allowed.trim_end_matches('/'))) {
        return Ok(());
    }
    let message = format!(
        "Pages of '{origin}' may not connect. To allow them, add it to server.allowed_origins. Behind a proxy that terminates \
         TLS, add that origin, or name the proxy in server.trusted_proxies."
    );
    Err((FOREIGN_ORIGIN, message))
}

/// Scheme, host and port of an origin in lower case; the port defaults to the scheme's.
fn parts_of(origin: &str) -> Option<(String, String, u16)> {
    let (scheme, authority) = origin.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let own_port = match scheme.as_str() {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let (host, port) = match without_port(authority) {
        host if host.len() == authority.len() => (host, own_port),
        host => (host, authority[host.len() + 1..].parse().ok()?),
    };
    Some((scheme, host.to_ascii_lowercase(), port))
}

/// Whether `host` is an IP address, `localhost` or a configured name, none of which is open to DNS rebinding.
fn is_ours(config: &ServerConfig, host: &str) -> bool {
    let name = without_port(host);
    name.eq_ignore_ascii_case("localhost")
        || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        || config.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

pub(in crate::server) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_as(is_secure: bool, host: &str, origin: Option<&str>, allowed: bool) {
        let config = ServerConfig {
            allowed_hosts: vec!["voice.example".into()],
            allowed_origins: vec!["https://app.example/".into()],
            ..ServerConfig::default()
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().expect("a header"));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().expect("a header"));
        }
        assert_eq!(verdict(&config, &headers, None, is_secure).is_ok(), allowed, "{host} {origin:?}");
    }

    #[track_caller]
    fn check(host: &str, origin: Option<&str>, allowed: bool) {
        check_as(false, host, origin, allowed);
    }

    #[test]
    fn programs_and_own_pages_may_connect() {
        check("127.0.0.1:8080", None, true);
        check("[::1]:8080", None, true);
        check("localhost", Some("http://localhost"), true);
        check("127.0.0.1:8080", Some("http://127.0.0.1:8080"), true);
        check("[::1]:8080", Some("http://[::1]:8080"), true);
        check("voice.example:80", Some("http://voice.example"), true);
        check_as(true, "voice.example", Some("https://voice.example"), true);
        check_as(true, "voice.example", Some("https://VOICE.example:443"), true);
        check("voice.example", Some("https://app.example"), true);
        check("voice.example", Some("https://app.example:443"), true);
    }

    #[test]
    fn foreign_pages_and_foreign_names_may_not() {
        check("127.0.0.1:8080", Some("https://evil.example"), false);
        check("127.0.0.1:8080", Some("http://127.0.0.1:9090"), false);
        check("127.0.0.1:8080", Some("null"), false);
        check("rebound.example:8080", None, false);
        check("rebound.example:8080", Some("http://rebound.example:8080"), false);
        check("localhost.evil.example", None, false);
    }

    #[test]
    fn the_same_host_by_another_scheme_is_another_origin() {
        check_as(true, "voice.example", Some("http://voice.example"), false);
        check("voice.example", Some("https://voice.example"), false);
        check("voice.example", Some("http://app.example"), false);
        check("voice.example", Some("https://app.example:8443"), false);
        check("127.0.0.1:443", Some("https://127.0.0.1"), false);
    }
}
