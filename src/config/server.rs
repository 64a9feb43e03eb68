//! The `[server]` section.

use super::StorageKey;
use antiphon_cluster::seal::SealingKeyError;
use antiphon_types::setting::Rule;
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::Path;

antiphon_types::settings! {
    /// The server: addresses, limits, keys, files.
    pub struct ServerConfig in "server" {
        /// Address and port; port 0 takes a free one. For other machines, such as 0.0.0.0, set keys and
        /// allowed_hosts.
        pub listen: String = "127.0.0.1:8080".into(), Rule::Listen;
        /// A second listener, plain HTTP without keys, for /healthz, /readyz and /metrics only, such as
        /// "127.0.0.1:8081".
        pub probe_listen: String = String::new(), Rule::ListenOrNone;
        /// Sessions at once; one more is answered 503 with Retry-After.
        pub max_sessions: usize = 100, Rule::Whole(1, 1_000_000, "sessions");
        /// Sessions at once per API key, with its short-lived keys; one more is answered 429. 0: no limit; -1:
        /// half of max_sessions where there are several API keys, else no limit.
        pub max_sessions_per_key: i64 = -1, Rule::Whole(-1, 1_000_000, "sessions; 0: no bound");
        /// Sessions at once per address (IPv6: per /64 network); one more is answered 429. 0: no limit; -1:
        /// half of max_sessions, and no limit for clients on the hub's own machine.
        pub max_sessions_per_address: i64 = -1, Rule::Whole(-1, 1_000_000, "sessions; 0: no bound");
        /// Connections at once per address (IPv6: per /64 network) that are not WebSockets, or not yet; 384 for
        /// the hub's own machine and trusted_proxies. Beyond it the oldest idle one is closed, else the new one
        /// waits. 0: no limit.
        pub max_connections_per_address: usize = 128, Rule::Whole(0, 100_000, "connections; 0: no bound");
        /// Reverse proxies that may name their clients, such as ["10.0.0.5", "192.168.0.0/16"]. All clients of
        /// another proxy count as one.
        pub trusted_proxies: Vec<String> = Vec::new(), Rule::Networks;
        /// The header in which trusted_proxies name their clients: "x-forwarded-for", with X-Forwarded-Proto,
        /// or "forwarded" (RFC 7239).
        pub forwarded_header: String = "x-forwarded-for".into(), Rule::OneOf(&["x-forwarded-for", "forwarded"]);
        /// Web origins besides the server's own whose pages may connect, such as ["https://voice.example.org"].
        pub allowed_origins: Vec<String> = Vec::new(), Rule::Origins;
        /// Host names of the server besides loopback, such as ["voice.example.org"].
        pub allowed_hosts: Vec<String> = Vec::new(), Rule::Hosts;
        /// Scheme, host and port of the hub for the world, such as "https://voice.example.org", for Twilio's
        /// signatures. "": those of each request.
        pub public_url: String = String::new(), Rule::OriginOrNone;
        /// Web origins whose pages may show this server's pages in a frame, such as
        /// ["https://shop.example.org"], with allow="microphone" and an entry in permissions_policy.
        pub frame_ancestors: Vec<String> = Vec::new(), Rule::Origins;
        /// The header Permissions-Policy of every response.
        pub permissions_policy: String = PERMISSIONS_POLICY.into(), Rule::Header;
        /// How long browsers keep to TLS once they have used it (HSTS), with a certificate that is not
        /// self-signed. 0: not asked for.
        pub hsts_seconds: u32 = 31_536_000, Rule::Whole(0, 63_072_000, "seconds");
        /// NAME of the environment variable that holds the API keys, separated by spaces or commas; or
        /// NAME_FILE names a file with them.
        pub api_keys_env: String = "ANTIPHON_API_KEYS".into(), Rule::Variable;
        /// NAME of the environment variable that holds the operator's keys, as above: they permit everything.
        pub admin_keys_env: String = "ANTIPHON_ADMIN_KEYS".into(), Rule::Variable;
        /// Whether, without admin keys, a caller from and to a loopback address may pull and remove models.
        /// false behind a proxy on the same machine.
        pub local_admin: bool = true, Rule::Switch;
        /// A file of keys, one per line or in TOML. Read again when it changes, and on SIGHUP. See
        /// docs/guide/keys-and-tls.md.
        pub api_keys_file: String = String::new(), Rule::Text;
        /// The file of the certificate with its chain, in PEM; the server then speaks https and wss only.
        pub tls_cert: String = String::new(), Rule::Text;
        /// The file of the certificate's private key, in PEM.
        pub tls_key: String = String::new(), Rule::Text;
        /// Turns of all sessions kept in memory for /api/turns and the dashboard; the oldest go.
        pub turns_kept: usize = 1_000, Rule::Whole(1, 100_000, "turns");
        /// Whether these turns include the words. They are never written to a disk or a log.
        pub keep_transcripts: bool = true, Rule::Switch;
        /// Interval of WebSocket pings. A client that does not react to two in a row is closed.
        pub ping_seconds: u32 = 20, Rule::Whole(1, 3_600, "seconds");
        /// The longest time from the first to the last byte of a client's WebSocket message; then 1008.
        pub message_seconds: u32 = 60, Rule::Whole(1, 600, "seconds");
        /// How long sessions may continue after a signal to stop.
        pub drain_seconds: u32 = 10, Rule::Whole(0, 3_600, "seconds");
        /// The audit log, lines of JSON (docs/operating/deployment.md). Opened again on SIGHUP.
        pub audit_log: String = String::new(), Rule::Text;
        /// The file of the key that encrypts replay logs, jobs and uploaded voices, as `antiphon cluster
        /// sealing-key` prints it.
        pub storage_key: String = String::new(), Rule::Text;
    }
}

/// The page needs the microphone, and no other feature that a page that was taken over might use.
const PERMISSIONS_POLICY: &str =
    "microphone=(self), camera=(), display-capture=(), geolocation=(), payment=(), usb=(), serial=(), bluetooth=()";

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
