//! The `[wyoming]` section.

use super::server::network;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Settings of the Wyoming listener. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct WyomingConfig {
    /// Address and port to listen on; empty: Wyoming is not served.
    pub listen: String,
    /// Addresses and networks that may connect, beside this machine's own.
    pub allowed_networks: Vec<String>,
    /// Name of the API key that requests are charged to; empty: none.
    pub key: String,
    /// Whether the service is announced by mDNS, where it listens on other addresses than loopback ones.
    pub announce: bool,
}

impl Default for WyomingConfig {
    fn default() -> Self {
        Self { listen: String::new(), allowed_networks: Vec::new(), key: String::new(), announce: true }
    }
}

impl WyomingConfig {
    /// `allowed_networks` as networks. Invalid entries were rejected when the configuration was loaded.
    pub fn networks(&self) -> Vec<IpNet> {
        self.allowed_networks.iter().filter_map(|text| network(text)).collect()
    }
}
