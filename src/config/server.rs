//! The `[server]` section.

use serde::{Deserialize, Serialize};

/// Settings of the server. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Address and port to listen on; port 0 takes a free one.
    pub listen: String,
    /// Sessions at once; one more is answered 503.
    pub max_sessions: usize,
    /// Web origins besides the server's own whose pages may connect.
    pub allowed_origins: Vec<String>,
    /// Host names besides loopback under which the server may be addressed.
    pub allowed_hosts: Vec<String>,
    /// The environment variable that holds the keys; empty: none does.
    pub api_keys_env: String,
    /// The environment variable that holds the keys of whoever runs the hub; empty: none does.
    pub admin_keys_env: String,
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
            max_sessions: 100,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            api_keys_env: "ANTIPHON_API_KEYS".into(),
            admin_keys_env: "ANTIPHON_ADMIN_KEYS".into(),
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
