//! Probes of the network: the ports that the hub listens on, with what takes them, and the NATS server of a cluster.

use super::{Finding, Kind, State};
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
    let addresses = [
        ("server.listen", &config.server.listen),
        ("server.probe_listen", &config.server.probe_listen),
        ("wyoming.listen", &config.wyoming.listen),
        ("telephony.audiosocket_listen", &config.telephony.audiosocket_listen),
        ("rtc.listen", &config.rtc.listen),
        ("sip.listen", &config.sip.listen),
        ("sip.tls_listen", &config.sip.tls_listen),
    ];
    let mut findings = Vec::new();
    let mut hub_runs = false;
    for (setting, address) in addresses.into_iter().filter(|(_, address)| !address.is_empty()) {
        let is_free = match TcpListener::bind(address.as_str()).await {
            Ok(_) if ["rtc.listen", "sip.listen"].contains(&setting) => {
                UdpSocket::bind(address.as_str()).await.map(drop)
            }
            tried => tried.map(drop),
        };
        let finding = match is_free {
            Ok(()) => Finding::ok("ports", format!("{setting}: {address} is free")),
            Err(error) if error.kind() == ErrorKind::AddrInUse => taken(setting, address, hub_runs).await,
            Err(error) => Finding::fail(
                "ports",
                Kind::Network,
                format!("{setting}: {address} cannot be listened on: {error}"),
                format!("Set {setting} to an address of this machine, and to a port above 1023 unless you are root."),
            ),
        };
        hub_runs |= setting == "server.listen" && finding.state == State::Warn;
        findings.push(finding);
    }
    findings
}

/// A port that something listens on. `hub_runs`: a hub listens on `server.listen`.
async fn taken(setting: &str, address: &str, hub_runs: bool) -> Finding {
    let at = lookup_host(address).await.ok().and_then(|mut found| found.next());
    let program = at.and_then(|at| program(at.port()));
    let is_hub = match at {
        _ if program.as_deref().is_some_and(is_antiphon) => true,
        // The other ports speak no HTTP.
        Some(at) if setting.starts_with("server.") => answers_as_hub(at).await,
        _ => false,
    };
    // The program of a service that runs as another user has no name here.
    if hub_runs && !is_hub && program.is_none() {
        return Finding::warn(
            "ports",
            format!("{setting}: {address} is in use, probably by the hub that runs here"),
            format!(
                "Nothing, if that is so; `doctor` as root names the program. Otherwise set {setting} to another port."
            ),
        );
    }
    in_use(setting, address, program.as_deref(), is_hub)
}

/// A hub is no failure: it is what the port is for.
fn in_use(setting: &str, address: &str, program: Option<&str>, is_hub: bool) -> Finding {
    let by = program.map(|name| format!(" by {name}")).unwrap_or_default();
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

/// Whether [`program`] gave a process of this program, which also serves ports without HTTP, or with TLS.
fn is_antiphon(program: &str) -> bool {
    program.starts_with("antiphon (process ")
}

/// Whether a hub answers there, with or without TLS. Nothing secret is sent, so that any certificate is taken.
async fn answers_as_hub(at: SocketAddr) -> bool {
    let host = if at.ip().is_unspecified() { SocketAddr::from(([127, 0, 0, 1], at.port())) } else { at };
    let builder = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(WAIT);
    let builder = builder.tls_certs_only(std::iter::empty()).tls_danger_accept_invalid_certs(true);
    let Ok(client) = builder.build() else { return false };
    let plain_url = format!("http://{host}/readyz");
    let tls_url = format!("https://{host}/readyz");
    let (plain, tls) = tokio::join!(is_hub(&client, &plain_url), is_hub(&client, &tls_url));
    plain || tls
}

async fn is_hub(client: &reqwest::Client, url: &str) -> bool {
    let Ok(answer) = client.get(url).send().await else { return false };
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

    #[test]
    fn a_port_of_a_hub_is_no_failure() {
        let state =
            |program: &str| in_use("wyoming.listen", "127.0.0.1:10300", Some(program), is_antiphon(program)).state;
        assert_eq!(state("antiphon (process 7)"), State::Warn);
        assert_eq!(state("nginx (process 8)"), State::Fail);
        assert_eq!(in_use("server.listen", "127.0.0.1:8080", None, true).state, State::Warn);
    }

    #[tokio::test]
    async fn a_taken_port_of_sip_is_found() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let taken = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let mut config = Config::default();
        config.server.listen = "127.0.0.1:0".into();
        config.sip.listen = taken.local_addr().expect("bound").to_string();
        let findings = ports(Arc::new(config)).await;
        let sip = findings.iter().find(|finding| finding.found.starts_with("sip.listen: ")).expect("it is looked at");
        assert_eq!(sip.state, State::Fail, "{sip:?}");
    }

    #[tokio::test]
    async fn a_port_of_an_unknown_program_is_no_failure_beside_a_hub() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let address = socket.local_addr().expect("bound").to_string();
        let state = async |hub_runs: bool| taken("sip.listen", &address, hub_runs).await.state;
        assert_eq!((state(true).await, state(false).await), (State::Warn, State::Fail));
    }

    #[tokio::test]
    async fn this_program_is_named_where_it_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let own = program(address.port()).expect("it is this process");
        assert!(own.contains(&format!("(process {})", std::process::id())), "{own}");
    }
}
