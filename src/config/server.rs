//! The `[server]` section.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Settings of the server. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Address and port to listen on; port 0 takes a free one.
    pub listen: String,
    /// Address and port of a second listener for `/healthz`, `/readyz` and `/metrics` only; empty: none.
    pub probe_listen: String,
    /// Sessions at once; one more is answered 503.
    pub max_sessions: usize,
    /// Sessions at once that belong to one API key; 0: no bound, -1: half of `max_sessions` where there are several keys.
    pub max_sessions_per_key: i64,
    /// Sessions at once from one address; 0: no bound, -1: half of `max_sessions`, and no bound for loopback addresses.
    pub max_sessions_per_address: i64,
    /// Connections at once from one address that are no WebSocket (yet); 0: no bound.
    pub max_connections_per_address: usize,
    /// Addresses and networks of reverse proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
    pub trusted_proxies: Vec<String>,
    /// Web origins besides the server's own whose pages may connect.
    pub allowed_origins: Vec<String>,
    /// Host names besides loopback under which the server may be addressed.
    pub allowed_hosts: Vec<String>,
    /// The environment variable that holds the keys; empty: none does.
    pub api_keys_env: String,
    /// The environment variable that holds the keys of whoever runs the hub; empty: none does.
    pub admin_keys_env: String,
    /// Whether a caller on the hub's own machine may change what it is made of, where there are no such keys.
    pub local_admin: bool,
    /// A file of keys, one a line, plain or hashed; empty: there is none.
    pub api_keys_file: String,
    /// The certificate and its chain, PEM; empty: no TLS.
    pub tls_cert: String,
    /// The certificate's private key, PEM.
    pub tls_key: String,
    /// Turns kept for `/api/turns`.
    pub turns_kept: usize,
    /// Whether their words are kept with them, in memory.
    pub keep_transcripts: bool,
    /// How often a connection is asked whether it still stands.
    pub ping_seconds: u32,
    /// How long a message of a client may take from its first byte to its last.
    pub message_seconds: u32,
    /// How long running sessions may go on after the server was told to stop.
    pub drain_seconds: u32,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8080".into(),
            probe_listen: String::new(),
            max_sessions: 100,
            max_sessions_per_key: -1,
            max_sessions_per_address: -1,
            max_connections_per_address: 128,
            trusted_proxies: Vec::new(),
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            api_keys_env: "ANTIPHON_API_KEYS".into(),
            admin_keys_env: "ANTIPHON_ADMIN_KEYS".into(),
            local_admin: true,
            api_keys_file: String::new(),
            tls_cert: String::new(),
            tls_key: String::new(),
            turns_kept: 1_000,
            keep_transcripts: true,
            ping_seconds: 20,
            message_seconds: 60,
            drain_seconds: 10,
        }
    }
}

/// An IP address, or a network in CIDR notation, as `server.trusted_proxies` holds them.
pub(super) fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

impl ServerConfig {
    /// `trusted_proxies` as networks. What is none was refused when the configuration was loaded.
    pub fn proxies(&self) -> Vec<IpNet> {
        self.trusted_proxies.iter().filter_map(|text| network(text)).collect()
    }
}
