//! Which servers a client may have the hub reach.

use super::McpConfig;
use reqwest::Url;

impl McpConfig {
    /// Whether the operator allows this address.
    ///
    /// # Errors
    /// Why not, in words for the client.
    pub fn allows(&self, url: &str) -> Result<(), String> {
        let wanted = Url::parse(url).map_err(|error| format!("it is no address ({error})"))?;
        if !matches!(wanted.scheme(), "http" | "https") || wanted.host_str().is_none() {
            return Err("it is no http:// or https:// address".into());
        }
        if !wanted.username().is_empty() || wanted.password().is_some() {
            return Err("a name or password in an address is not taken; use 'authorization' or 'headers'".into());
        }
        let allowed = self.allowed_servers.iter().filter_map(|allowed| Url::parse(allowed).ok());
        match allowed.into_iter().any(|allowed| covers(&allowed, &wanted)) {
            true => Ok(()),
            false => Err("this server's configuration does not allow it (setting 'mcp.allowed_servers')".into()),
        }
    }
}

/// Same scheme, host and port, and a path that is the allowed one or lies below it.
fn covers(allowed: &Url, wanted: &Url) -> bool {
    let same_origin = allowed.scheme() == wanted.scheme()
        && allowed.host_str() == wanted.host_str()
        && allowed.port_or_known_default() == wanted.port_or_known_default();
    let path = allowed.path().trim_end_matches('/');
    let below = wanted.path().strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    same_origin && below
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
            "http://[::1]:9000/tools",
            "file:///etc/hosts",
            "nothing",
        ] {
            assert!(config.allows(url).is_err(), "{url}");
        }
        assert!(McpConfig::default().allows("http://127.0.0.1/").is_err(), "nothing is allowed by default");
    }
}
