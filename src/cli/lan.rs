//! The addresses and names by which other devices on the network reach this machine.
//!
//! `serve` uses them if it listens beyond loopback: for the self-signed certificate, the accepted hosts, and its
//! output, which includes a QR code for phones. It sends nothing over the network.

use qrcode::{EcLevel, QrCode, render::unicode::Dense1x2};
use std::net::{IpAddr, SocketAddr};

/// The addresses and names of this machine on the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reachable {
    /// IPv4 first; excludes loopback and link-local addresses.
    pub(super) addresses: Vec<IpAddr>,
    /// The host name, and its mDNS name.
    pub(super) names: Vec<String>,
}

impl Reachable {
    /// The addresses and names by which other machines reach a hub at `listening`; empty on loopback.
    pub(super) fn at(listening: SocketAddr) -> Self {
        // Without a list of interfaces, only the listening address is known.
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self::of(listening, interfaces.iter().map(if_addrs::Interface::ip), &name)
    }

    fn of(listening: SocketAddr, interfaces: impl Iterator<Item = IpAddr>, name: &str) -> Self {
        let ip = listening.ip();
        if ip.is_loopback() {
            return Self::default();
        }
        let mut addresses = vec![ip];
        if ip.is_unspecified() {
            // A socket on [::] accepts IPv4 too; one on 0.0.0.0 accepts only IPv4.
            addresses = interfaces.filter(|one| is_reachable(*one) && (one.is_ipv4() || ip.is_ipv6())).collect();
            addresses.sort_by_key(|one| (one.is_ipv6(), *one));
            addresses.dedup();
        }
        let name = name.to_ascii_lowercase();
        let is_name = !name.is_empty() && name != "localhost" && name.bytes().all(is_of_name);
        let names = match name.split_once('.') {
            _ if !is_name => Vec::new(),
            Some(_) => vec![name],
            None => vec![format!("{name}.local"), name],
        };
        Self { addresses, names }
    }

    /// Names and addresses, as a certificate lists them.
    pub(super) fn hosts(&self) -> Vec<String> {
        self.names.iter().cloned().chain(self.addresses.iter().map(IpAddr::to_string)).collect()
    }

    /// The page's URLs at this port, the most widely supported form first.
    pub(super) fn pages(&self, scheme: &str, port: u16) -> Vec<String> {
        let addresses = self.addresses.iter().map(|ip| format!("{scheme}://{}", SocketAddr::new(*ip, port)));
        addresses.chain(self.names.iter().map(|name| format!("{scheme}://{name}:{port}"))).collect()
    }
}

fn is_reachable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local() && !ip.is_unspecified(),
    }
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-.".contains(&byte)
}

/// The URL as a QR code for a terminal with a dark background; `None` if the URL is too long.
pub(super) fn code(url: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(url, EcLevel::L).ok()?;
    // Characters are light on a dark background, so they draw the code's light modules.
    let dark = Dense1x2::Light;
    let light = Dense1x2::Dark;
    Some(code.render::<Dense1x2>().dark_color(dark).light_color(light).quiet_zone(true).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(listening: &str, interfaces: &[&str], name: &str) -> Reachable {
        let interfaces = interfaces.iter().map(|ip| ip.parse().expect("an address"));
        Reachable::of(listening.parse().expect("an address"), interfaces, name)
    }

    #[test]
    fn other_devices_find_it_by_every_address_and_name_it_has() {
        let interfaces = ["127.0.0.1", "fd00::2", "192.168.1.5", "169.254.9.9", "::1", "fe80::1", "10.0.0.7"];
        let all = of("[::]:8443", &interfaces, "Studio");
        assert_eq!(all.hosts(), ["studio.local", "studio", "10.0.0.7", "192.168.1.5", "fd00::2"]);
        assert_eq!(of("0.0.0.0:8443", &interfaces, "a.example").hosts(), ["a.example", "10.0.0.7", "192.168.1.5"]);
        assert_eq!(of("192.168.1.5:1", &interfaces, "localhost").hosts(), ["192.168.1.5"]);
        assert_eq!(of("127.0.0.1:8443", &interfaces, "studio"), Reachable::default());
        assert_eq!(
            of("[::]:8443", &["fd00::2"], "studio").pages("https", 8443),
            ["https://[fd00::2]:8443", "https://studio.local:8443", "https://studio:8443"]
        );
    }

    #[test]
    fn an_address_becomes_a_code_of_square_modules() {
        let code = code("https://192.168.1.5:8443").expect("it is short");
        let widths: Vec<usize> = code.lines().map(|line| line.chars().count()).collect();
        // 25 modules (version 2) and a quiet zone of 4 on each side; each line of text holds two rows.
        assert!(widths.iter().all(|width| *width == 33), "{widths:?}");
        assert_eq!(widths.len(), 17);
        assert!(super::code(&"x".repeat(5_000)).is_none());
    }
}
