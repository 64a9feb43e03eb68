//! The announcement of the Wyoming listener on the local network (mDNS, `_wyoming._tcp`), by which Home Assistant finds it.
//!
//! The library answers queries on a thread of its own until the announcement is withdrawn or dropped.

use mdns_sd::{ServiceDaemon, ServiceInfo};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;

const SERVICE: &str = "_wyoming._tcp.local.";
/// Time for the goodbye to leave.
const GOODBYE: Duration = Duration::from_secs(1);

/// A service that is announced.
pub(super) struct Announcement {
    daemon: ServiceDaemon,
    name: String,
}

impl Announcement {
    /// Announces a listener on all of this machine's addresses, or on its own where it listens on one only. `None`, with a line in
    /// the log: there is no network to announce it on.
    pub(super) fn of(address: SocketAddr) -> Option<Self> {
        let announced = Self::announced(address);
        announced.inspect_err(|error| tracing::warn!(%error, "Wyoming is not announced on the local network")).ok()
    }

    fn announced(address: SocketAddr) -> Result<Self, mdns_sd::Error> {
        let host = host_name();
        let ip = address.ip();
        let port = address.port();
        let addresses = if ip.is_unspecified() { String::new() } else { ip.to_string() };
        let instance = format!("Antiphon on {host} ({port})");
        let none: &[(&str, &str)] = &[];
        let service = ServiceInfo::new(SERVICE, &instance, &format!("{host}.local."), addresses.as_str(), port, none)?;
        let service = if ip.is_unspecified() { service.enable_addr_auto() } else { service };
        let name = service.get_fullname().to_owned();
        let daemon = ServiceDaemon::new()?;
        daemon.register(service)?;
        Ok(Self { daemon, name })
    }

    /// Tells the network that the service ends. Waits a second at most.
    pub(super) async fn withdraw(self) {
        if let Ok(gone) = self.daemon.unregister(&self.name) {
            let _ = timeout(GOODBYE, gone.recv_async()).await;
        }
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // An error means that its thread has ended already.
        let _ = self.daemon.shutdown();
    }
}

/// The first label of this machine's name.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let label: String = name.split('.').next().unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
    if label.is_empty() { "antiphon".into() } else { label }
}
