//! The `[wyoming]` section.

use super::server::network;
use antiphon_types::setting::Rule;
use ipnet::IpNet;

antiphon_types::settings! {
    /// Speech recognition, voices and answers for Home Assistant over the Wyoming protocol:
    /// docs/guide/home-assistant.md.
    pub struct WyomingConfig in "wyoming" {
        /// Address and port, over TCP, such as "0.0.0.0:10300". Wyoming has neither keys nor encryption.
        pub listen: String = String::new(), Rule::ListenOrNone;
        /// Addresses and networks that may connect, beside this machine's own, such as "192.168.1.0/24".
        pub allowed_networks: Vec<String> = Vec::new(), Rule::Networks;
        /// The API key that requests are charged to, by name, with the scopes transcription, speech and
        /// realtime; required on a hub with API keys.
        pub key: String = String::new(), Rule::Text;
        /// Whether the service is announced on the local network (mDNS, _wyoming._tcp), never for a loopback
        /// address.
        pub announce: bool = true, Rule::Switch;
    }
}

impl WyomingConfig {
    /// `allowed_networks` as networks. Invalid entries were rejected when the configuration was loaded.
    pub fn networks(&self) -> Vec<IpNet> {
        self.allowed_networks.iter().filter_map(|text| network(text)).collect()
    }
}
