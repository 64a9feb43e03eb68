//! The `[server]` section.

use super::StorageKey;
use antiphon_cluster::seal::SealingKeyError;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::Path;

/// Settings of the server. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Address and port to listen on; port 0 selects a free one.
    pub listen: String,
    /// Address and port of a second listener for `/healthz`, `/readyz` and `/metrics` only; empty: none.
    pub probe_listen: String,
    /// Maximum concurrent sessions; another is rejected with 503.
    pub max_sessions: usize,
    /// Maximum concurrent sessions per API key; 0: no limit, -1: half of `max_sessions` if there are several keys.
    pub max_sessions_per_key: i64,
    /// Maximum concurrent sessions per address; 0: no limit, -1: half of `max_sessions`, and no limit for loopback
    /// addresses.
    pub max_sessions_per_address: i64,
    /// Maximum concurrent connections per address that are not, or not yet, WebSockets; 0: no limit.
    pub max_connections_per_address: usize,
    /// Reverse proxies, as addresses and networks, whose forwarding headers are trusted.
    pub trusted_proxies: Vec<String>,
    /// The header in which they name their clients: `x-forwarded-for`, with `X-Forwarded-Proto`, or `forwarded`.
    pub forwarded_header: String,
    /// Web origins, in addition to the server's own, whose pages may connect.
    pub allowed_origins: Vec<String>,
    /// Host names accepted in addition to `localhost` and IP addresses.
    pub allowed_hosts: Vec<String>,
    /// Scheme, host and port under which the world sees the server, for signatures and answers that name it; empty: those of
    /// each request.
    pub public_url: String,
    /// Web origins whose pages may show this server's pages in a frame.
    pub frame_ancestors: Vec<String>,
    /// The `Permissions-Policy` of every response; empty: none.
    pub permissions_policy: String,
    /// How long browsers keep to TLS, in seconds, where the hub serves a certificate that is not self-signed; 0: they are not
    /// asked to.
    pub hsts_seconds: u32,
    /// Name of the environment variable that holds the API keys; empty: none.
    pub api_keys_env: String,
    /// Name of the environment variable that holds the operator's keys (admin keys); empty: none.
    pub admin_keys_env: String,
    /// Whether, without admin keys, a caller on the hub's own machine may pull and remove models.
    pub local_admin: bool,
    /// File of API keys, one per line, plain or hashed, or as TOML; empty: none.
    pub api_keys_file: String,
    /// Certificate and chain, PEM file; empty: no TLS.
    pub tls_cert: String,
    /// The certificate's private key, PEM file.
    pub tls_key: String,
    /// Number of turns kept for `/api/turns`.
    pub turns_kept: usize,
    /// Whether their transcripts are kept with them, in memory.
    pub keep_transcripts: bool,
    /// Interval of WebSocket pings, in seconds.
    pub ping_seconds: u32,
    /// Maximum time from the first to the last byte of a client's message, in seconds.
    pub message_seconds: u32,
    /// How long running sessions may continue after a stop was requested, in seconds.
    pub drain_seconds: u32,
    /// File of the audit log; empty: none.
    pub audit_log: String,
    /// File of the key that encrypts replay logs and jobs; empty: they are not encrypted.
    pub storage_key: String,
}

/// The page needs the microphone, and no other feature that a page that was taken over might use.
const PERMISSIONS_POLICY: &str =
    "microphone=(self), camera=(), display-capture=(), geolocation=(), payment=(), usb=(), serial=(), bluetooth=()";

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
            forwarded_header: "x-forwarded-for".into(),
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            public_url: String::new(),
            frame_ancestors: Vec::new(),
            permissions_policy: PERMISSIONS_POLICY.into(),
            hsts_seconds: 31_536_000,
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
            audit_log: String::new(),
            storage_key: String::new(),
        }
    }
}

/// Parses an IP address, or a network in CIDR notation, as in `server.trusted_proxies`.
pub(super) fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

impl ServerConfig {
    /// The key of files at rest; `None`: they are not encrypted. Blocks for the time of a small file.
    ///
    /// # Errors
    /// The file cannot be read, or holds something else.
    pub fn read_storage_key(&self) -> Result<Option<StorageKey>, SealingKeyError> {
        let path = Some(&self.storage_key).filter(|path| !path.is_empty());
        path.map(|path| StorageKey::read(Path::new(path))).transpose()
    }

    /// `trusted_proxies` as networks. Invalid entries were rejected when the configuration was loaded.
    pub fn proxies(&self) -> Vec<IpNet> {
        self.trusted_proxies.iter().filter_map(|text| network(text)).collect()
    }
}
