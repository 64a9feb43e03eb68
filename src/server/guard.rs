//! Who may connect: checks Host and Origin before anything else.
//!
//! A page of anyone's can make a browser open a loopback WebSocket, and a foreign name can be made to resolve to this
//! machine. So the host a request names must be ours, and a page's origin must be the same, or on the list. A request
//! without Origin comes from a program, not from a page.

use super::app::App;
use crate::config::ServerConfig;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;

/// The middleware.
pub(super) async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    // Two hosts: the one that is judged here need not be the one that something before or behind us goes by.
    if request.headers().get_all(header::HOST).iter().nth(1).is_some() {
        let message = "The request has more than one Host header.";
        return refused(StatusCode::BAD_REQUEST, "invalid_host", message);
    }
    match verdict(&app.config, request.headers(), request.uri().host()) {
        Ok(()) => next.run(request).await,
        Err(message) => refused(StatusCode::FORBIDDEN, "forbidden", message),
    }
}

/// An error body as the OpenAI API has it.
pub(super) fn refused<'a>(
    status: StatusCode,
    code: impl Into<Option<&'a str>>,
    message: impl Into<String>,
) -> Response {
    let error = json!({"error": {"type": "invalid_request_error", "code": code.into(), "message": message.into(), "param": null}});
    (status, axum::Json(error)).into_response()
}

fn verdict(config: &ServerConfig, headers: &HeaderMap, uri_host: Option<&str>) -> Result<(), String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST).or(uri_host).unwrap_or_default();
    if !is_ours(config, host) {
        return Err(format!(
            "The host '{host}' is not one of this server's. To serve under that name, add it to server.allowed_hosts."
        ));
    }
    let Some(origin) = text(header::ORIGIN) else {
        return if headers.contains_key(header::ORIGIN) {
            Err("The Origin header cannot be read.".into())
        } else {
            Ok(())
        };
    };
    let same = origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host));
    if same || config.allowed_origins.iter().any(|allowed| allowed.trim_end_matches('/').eq_ignore_ascii_case(origin)) {
        return Ok(());
    }
    Err(format!("Pages of '{origin}' may not connect. To allow them, add it to server.allowed_origins."))
}

/// An address, `localhost`, or a configured name: what no foreign name can be made to resolve to.
fn is_ours(config: &ServerConfig, host: &str) -> bool {
    let name = without_port(host);
    name.eq_ignore_ascii_case("localhost")
        || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        || config.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(host: &str, origin: Option<&str>, allowed: bool) {
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
        assert_eq!(verdict(&config, &headers, None).is_ok(), allowed, "{host} {origin:?}");
    }

    #[test]
    fn programs_and_own_pages_may_connect() {
        check("127.0.0.1:8080", None, true);
        check("[::1]:8080", None, true);
        check("localhost", Some("http://localhost"), true);
        check("127.0.0.1:8080", Some("http://127.0.0.1:8080"), true);
        check("voice.example", Some("https://voice.example"), true);
        check("voice.example", Some("https://app.example"), true);
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
}
