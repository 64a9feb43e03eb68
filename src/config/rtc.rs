//! The `[rtc]` section.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Settings of WebRTC. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RtcConfig {
    /// Address and port of the UDP socket and the TCP listener of all calls; port 0: a free one. Empty: no WebRTC.
    pub listen: String,
    /// Addresses under which peers reach them; empty: those of this machine.
    pub advertise: Vec<String>,
}

impl Default for RtcConfig {
    fn default() -> Self {
        Self { listen: "127.0.0.1:0".into(), advertise: Vec::new() }
    }
}

impl RtcConfig {
    /// `advertise` as addresses. Invalid entries were rejected when the configuration was loaded.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.advertise.iter().filter_map(|text| text.parse().ok()).collect()
    }
}
