//! Which servers a client may declare.

use super::McpConfig;
use url::Url;

impl McpConfig {
    /// Whether the operator allows this address.
    ///
    /// # Errors
    /// Why the address is not allowed, as a message for the client.
    pub fn allows(&self, url: &str) -> Result<(), String> {
        let wanted = Url::parse(url).map_err(|error| format!("it is not a valid address ({error})"))?;
        if !matches!(wanted.scheme(), "http" | "https") || wanted.host_str().is_none() {
            return Err("it is not an http:// or https:// address".into());
        }
        if !wanted.username().is_empty() || wanted.password().is_some() {
            return Err("a name or password in an address is not allowed; use 'authorization' or 'headers'".into());
        }
        let allowed: Vec<Url> = self.allowed_servers.iter().filter_map(|allowed| Url::parse(allowed).ok()).collect();
        if allowed.iter().any(|allowed| covers(allowed, &wanted)) {
            return Ok(());
        }
        if allowed.iter().any(|allowed| same_origin(allowed, &wanted)) && is_ambiguous(wanted.path()) {
            return Err(
                "its path holds an encoded dot, slash, backslash or percent sign, or a '..': write it plainly".into()
            );
        }
        Err("this server's configuration does not allow it (setting 'mcp.allowed_servers')".into())
    }
}

/// Whether `wanted` has the same scheme, host and port as `allowed`, and its path or one below it. A path below must be
/// unambiguous, so that a server that decodes it differently serves nothing outside `allowed`.
fn covers(allowed: &Url, wanted: &Url) -> bool {
    let path = allowed.path().trim_end_matches('/');
    let below = wanted
        .path()
        .strip_prefix(path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') && (path.is_empty() || !is_ambiguous(rest)));
    same_origin(allowed, wanted) && below
}

/// A host with a trailing dot is a different host, because servers select a virtual host by its exact name.
fn same_origin(allowed: &Url, wanted: &Url) -> bool {
    allowed.scheme() == wanted.scheme()
        && allowed.host_str() == wanted.host_str()
        && allowed.port_or_known_default() == wanted.port_or_known_default()
}

/// Whether a server may interpret this path differently. The URL parser has already resolved plain `..`, `%2e%2e` and
/// backslashes. What remains are separators and dots that it keeps encoded, percent signs that are decoded twice, and
/// path parameters (`..;`), which some servers strip before they resolve dots.
fn is_ambiguous(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let encoded = ["%2f", "%5c", "%2e", "%25", "%00", "\\"].iter().any(|code| lower.contains(code));
    let dots = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
    encoded || path.split('/').any(dots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_is_allowed() {
        let allowed_servers = vec!["https://mcp.example.org".into(), "http://127.0.0.1:9000/tools".into()];
        let config = McpConfig { allowed_servers, ..McpConfig::default() };
        for url in [
            "https://mcp.example.org",
            "https://mcp.example.org/any/path?x=1",
            "https://MCP.example.org:443/",
            "http://127.0.0.1:9000/tools",
            "http://127.0.0.1:9000/tools/mcp",
            "http://127.0.0.1:9000/tools/a%20b?path=..%2f",
            "http://127.0.0.1:9000/tools/a/../mcp",
            "https://mcp.example.org/any%2fpath",
            "http://2130706433:9000/tools",
        ] {
            assert_eq!(config.allows(url), Ok(()), "{url}");
        }
        for url in [
            "http://mcp.example.org",
            "https://mcp.example.org:8443/",
            "https://mcp.example.org.evil.example/",
            "https://mcp.example.org@evil.example/",
            "https://user:secret@mcp.example.org/",
            "http://127.0.0.1:9000/",
            "http://127.0.0.1:9000/toolsets",
            "http://127.0.0.1:9000/tools/../admin",
            "http://127.0.0.1:9000/tools/%2e%2e/admin",
            "http://127.0.0.1:9000/tools/..%2fadmin",
            "http://127.0.0.1:9000/tools/..%2Fadmin",
            "http://127.0.0.1:9000/tools/%2e%2e%2fadmin",
            "http://127.0.0.1:9000/tools/.%2e%5cadmin",
            "http://127.0.0.1:9000/tools/..%5cadmin",
            "http://127.0.0.1:9000/tools/..\\admin",
            "http://127.0.0.1:9000/tools/..%252fadmin",
            "http://127.0.0.1:9000/tools/%252e%252e/admin",
            "http://127.0.0.1:9000/tools/..;/admin",
            "http://127.0.0.1:9000/tools/..;x=1/admin",
            "http://127.0.0.1:9000/tools%2f..%2fadmin",
            "http://127.0.0.1:9000/tools/a%00b",
            "http://tools@127.0.0.1:9000/tools",
            "https://mcp.example.org./",
            "http://127.0.0.1/tools",
            "http://[::1]:9000/tools",
            "file:///etc/hosts",
            "nothing",
        ] {
            assert!(config.allows(url).is_err(), "{url}");
        }
        assert!(McpConfig::default().allows("http://127.0.0.1/").is_err(), "nothing is allowed by default");
    }
}
