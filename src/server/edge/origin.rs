//! Which hosts and origins are this server's.
//!
//! Any web page can make a browser open a WebSocket to loopback, and a foreign host name can be made to resolve to this
//! machine (DNS rebinding). A request's host must therefore be one of ours, and a page's origin must equal it in
//! scheme, host and port or be listed in `server.allowed_origins`. The guard ([`crate::server::access::guard`]) and
//! [`super::starting`] ask it for every request. It writes no log and knows no key.

use super::refusal::refused;
use crate::config::ServerConfig;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use std::net::IpAddr;

/// The reason for the log.
pub(in crate::server) const FOREIGN_ORIGIN: &str = "foreign origin";

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
