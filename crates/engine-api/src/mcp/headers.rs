//! Which headers a client may add to requests to an MCP server.
//!
//! `session` calls [`check`] when a server is declared, and the MCP client in `engines` calls it again before
//! connecting. Headers that affect message framing, the connection, the virtual host or the MCP transport are rejected,
//! because with them a server could interpret a request differently from what was sent.

use http::header::{HeaderName, HeaderValue};

/// The longest header name in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Message framing and content (RFC 9112, section 6), hop-by-hop headers (RFC 9110, section 7.6.1) and routing.
const REFUSED: &[&str] = &[
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "last-event-id",
    "max-forwards",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-real-ip",
    "x-rewrite-url",
];

/// Headers added by proxies, and parameters of the transport.
const REFUSED_PREFIXES: &[&str] = &["mcp-param-", "proxy-", "sec-", "x-forwarded-"];

/// Validates a header.
///
/// # Errors
/// Why the header is not allowed, as a message for the client.
pub fn check(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    if name.len() > MAX_NAME_BYTES {
        return Err(format!("the name of a header has at most {MAX_NAME_BYTES} bytes"));
    }
    let parsed = HeaderName::try_from(name).map_err(|_| "this is not a valid header name".to_owned())?;
    let lower = parsed.as_str();
    if REFUSED.contains(&lower) || REFUSED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix)) {
        return Err(format!("the header '{lower}' is set by this server only; leave it out"));
    }
    let mut value = HeaderValue::try_from(value)
        .map_err(|_| "the value of a header holds visible characters only, no line breaks".to_owned())?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_routing_and_transport_headers_are_refused_in_any_case() {
        for name in [
            "Host",
            "host",
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "TE",
            "Trailer",
            "Upgrade",
            "Keep-Alive",
            "Proxy-Authorization",
            "Proxy-Connection",
            "Expect",
            "Mcp-Session-Id",
            "MCP-PROTOCOL-VERSION",
            "Accept",
            "Content-Type",
            "X-Forwarded-Host",
            "Forwarded",
            "X-Original-URL",
            "Last-Event-ID",
            "Mcp-Param-Region",
        ] {
            let why = check(name, "1").expect_err(name);
            assert!(why.contains(&name.to_ascii_lowercase()), "{why}");
        }
        for (name, value) in
            [("", "1"), ("a b", "1"), (":authority", "1"), ("a", "1\r\nhost: x"), (&"a".repeat(129), "1")]
        {
            assert!(check(name, value).is_err(), "{name:?}");
        }
        for name in ["Authorization", "X-Api-Key", "Cookie", "User-Agent"] {
            let (_, value) = check(name, "secret").expect(name);
            assert!(!format!("{value:?}").contains("secret"), "it shows in no debug output");
        }
    }
}
