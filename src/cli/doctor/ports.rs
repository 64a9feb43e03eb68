//! Probes of the network: the ports that the hub listens on, with what takes them, and the NATS server of a cluster.

use super::{Finding, Kind};
use crate::config::Config;
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream, UdpSocket, lookup_host};
use tokio::time::timeout;

/// The longest wait for one server.
const WAIT: Duration = Duration::from_secs(3);
/// The state `TCP_LISTEN` in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// Whether each address that is configured can be listened on.
pub(super) async fn ports(config: Arc<Config>) -> Vec<Finding> {
    let tcp = [
        ("server.listen", &config.server.listen),
        ("server.probe_listen", &config.server.probe_listen),
        ("wyoming.listen", &config.wyoming.listen),
        ("telephony.audiosocket_listen", &config.telephony.audiosocket_listen),
        ("rtc.listen", &config.rtc.listen),
    ];
    let mut findings = Vec::new();
    for (setting, address) in tcp.into_iter().filter(|(_, address)| !address.is_empty()) {
        let is_free = match TcpListener::bind(address.as_str()).await {
            Ok(_) if setting == "rtc.listen" => UdpSocket::bind(address.as_str()).await.map(drop),
            tried => tried.map(drop),
        };
        findings.push(match is_free {
            Ok(()) => Finding::ok("ports", format!("{setting}: {address} is free")),
            Err(error) if error.kind() == ErrorKind::AddrInUse => taken(setting, address).await,
            Err(error) => Finding::fail(
                "ports",
                Kind::Network,
                format!("{setting}: {address} cannot be listened on: {error}"),
                format!("Set {setting} to an address of this machine, and to a port above 1023 unless you are root."),
            ),
        });
    }
    findings
}

/// A port that something listens on: a hub is no failure, it is what the port is for.
async fn taken(setting: &str, address: &str) -> Finding {
    let at = lookup_host(address).await.ok().and_then(|mut found| found.next());
    let by = at.and_then(|at| program(at.port())).map(|name| format!(" by {name}")).unwrap_or_default();
    let is_hub = match at {
        Some(at) => answers_as_hub(at).await,
        None => false,
    };
    if is_hub {
        return Finding::warn(
            "ports",
            format!("{setting}: a hub listens on {address} already{by}"),
            format!("Nothing, if that is yours. Another one needs another port: {setting}."),
        );
    }
    Finding::fail(
        "ports",
        Kind::Network,
        format!("{setting}: {address} is in use{by}"),
        format!("Stop that program, or set {setting} to another port."),
    )
}

/// Whether a hub answers there, by plain HTTP.
async fn answers_as_hub(at: SocketAddr) -> bool {
    let host = if at.ip().is_unspecified() { SocketAddr::from(([127, 0, 0, 1], at.port())) } else { at };
    let builder = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(WAIT);
    let Ok(client) = builder.tls_certs_only(std::iter::empty()).build() else { return false };
    let Ok(answer) = client.get(format!("http://{host}/readyz")).send().await else { return false };
    // Its answer has at most some kilobytes; another server's is not read when it says that it is longer.
    if answer.content_length().is_none_or(|length| length > 64 << 10) {
        return false;
    }
    answer.json::<serde_json::Value>().await.is_ok_and(|body| body["engines"].is_object() || body["loading"] == true)
}

/// The program that listens on the TCP port, with its process number; `None`: another user's, or not Linux.
fn program(port: u16) -> Option<String> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
        let table = fs::read_to_string(table).ok()?;
        listener(&table, port).map(|inode| format!("socket:[{inode}]"))
    })?;
    fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let pid = process.file_name().to_str()?.parse::<u32>().ok()?;
        let mut open = fs::read_dir(process.path().join("fd")).ok()?.flatten();
        let holds = |file: fs::DirEntry| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == inode.as_str());
        if !open.any(holds) {
            return None;
        }
        let name = fs::read_to_string(process.path().join("comm")).ok()?;
        Some(format!("{} (process {pid})", name.trim()))
    })
}

/// The inode of the socket that listens on `port` in a table of the kernel: the columns are its number, the local address in hex,
/// the remote one, the state, queues, timers, retransmits, the user, a timeout and the inode.
fn listener(table: &str, port: u16) -> Option<&str> {
    table.lines().skip(1).find_map(|line| {
        let mut columns = line.split_whitespace();
        let (_, local) = columns.nth(1)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(local, 16) == Ok(port) && columns.nth(1)? == LISTENS;
        columns.nth(5).filter(|_| is_it)
    })
}

/// Whether a NATS server answers at each address of the cluster. It sends its greeting before it asks for credentials.
pub(super) async fn nats(config: Arc<Config>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for server in &config.cluster.servers {
        let Ok(url) = reqwest::Url::parse(server) else { continue };
        // Without a user and password that may stand in the address.
        let at = format!("{}:{}", url.host_str().unwrap_or_default(), url.port().unwrap_or(4222));
        let advice = "Start the NATS server, or correct cluster.servers. `antiphon cluster permissions` prints its configuration.";
        findings.push(match timeout(WAIT, greeting(&at)).await {
            Ok(Ok(version)) => Finding::ok("nats", format!("nats-server {version} answers at {at}")),
            Ok(Err(why)) => Finding::fail("nats", Kind::Network, format!("{at}: {why}"), advice),
            Err(_) => Finding::fail("nats", Kind::Network, format!("{at} does not answer within 3 s"), advice),
        });
    }
    findings
}

/// The version in the greeting of a NATS server: `INFO {"server_id":...,"version":"2.11.0",...}`.
async fn greeting(at: &str) -> Result<String, String> {
    let mut stream = TcpStream::connect(at).await.map_err(|error| error.to_string())?;
    let mut greeting = Vec::new();
    while !greeting.contains(&b'\n') && greeting.len() < 16 << 10 {
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await.map_err(|error| error.to_string())? {
            0 => break,
            n => greeting.extend_from_slice(&piece[..n]),
        }
    }
    let text = String::from_utf8_lossy(&greeting);
    let info = text.strip_prefix("INFO ").and_then(|info| serde_json::from_str::<serde_json::Value>(info.trim()).ok());
    let info = info.ok_or("something answers, but it is no NATS server")?;
    Ok(info["version"].as_str().unwrap_or("of an unknown version").chars().filter(|c| !c.is_control()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_of_a_port_is_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: 0100007F:1F90 0200007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 111 1 0 20 4 30 10 -1\n   \
             1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 222 1 0 100 0 0 10 0\n";
        assert_eq!((listener(table, 8080), listener(table, 8081)), (Some("222"), None));
    }

    #[tokio::test]
    async fn this_program_is_named_where_it_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let own = program(address.port()).expect("it is this process");
        assert!(own.contains(&format!("(process {})", std::process::id())), "{own}");
    }
}
