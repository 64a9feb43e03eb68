//! The `[rtc]` section.

use antiphon_types::setting::Rule;
use std::net::IpAddr;

antiphon_types::settings! {
    /// WebRTC: `POST /v1/realtime/calls` answers the offers of browsers and other peers of the Realtime API.
    pub struct RtcConfig in "rtc" {
        /// Address and port of the UDP socket and of the TCP listener that all calls share, such as
        /// "0.0.0.0:3478"; port 0: a free one.
        pub listen: String = "127.0.0.1:0".into(), Rule::ListenOrNone;
        /// The addresses under which peers reach them behind NAT or in a container, such as ["192.168.0.10",
        /// "203.0.113.5"]. Empty: the address of rtc.listen, or those of all interfaces.
        pub advertise: Vec<String> = Vec::new(), Rule::Addresses;
    }
}

impl RtcConfig {
    /// `advertise` as addresses. Invalid entries were rejected when the configuration was loaded.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.advertise.iter().filter_map(|text| text.parse().ok()).collect()
    }
}
