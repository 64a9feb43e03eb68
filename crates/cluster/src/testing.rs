//! Real NATS servers for tests and benchmarks: `nats-server` on a free port of the loopback interface, its data in a temporary
//! folder, killed when it is dropped. This crate's tests, the root's scenarios and antiphon-bench use it; hubs and workers never
//! do.

/// Feeds bytes from a stranger to an exchange.
pub use crate::exchange::feed;

use std::ffi::OsString;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use serde::Deserialize;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;

/// Names the program to run instead of the one that `make nats-server` provides.
pub const PROGRAM_VARIABLE: &str = "ANTIPHON_NATS_SERVER";

/// The oldest version that works: `.ci/nats-server` says why.
const MIN_VERSION: [u32; 3] = [2, 12, 6];

/// Until a server accepts connections and a cluster is complete. Usual are 50 ms and 200 ms.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Between two attempts to connect to a server that starts.
const CONNECT_PAUSE: Duration = Duration::from_millis(10);

/// Ports of the servers: below the ephemeral ports of Linux and macOS, so that no outgoing connection takes the port of a server
/// that is down. A client that keeps connecting to an ephemeral port can even connect to itself.
const PORTS: std::ops::Range<u16> = 10_240..32_768;

/// Starts on other ports, if another program took one meanwhile.
const START_ATTEMPTS: usize = 5;

/// How much of a server's log an error shows.
const LOG_TAIL_BYTES: usize = 8 * 1024;

/// Of a cluster's servers: in lame-duck mode a server keeps its clients for the grace period (10 s by default), then it closes
/// them within the duration, the first at once. 30 s is the shortest that it accepts.
const CLUSTER_CONFIGURATION: &str = "lame_duck_grace_period: \"100ms\"\nlame_duck_duration: \"30s\"\n";

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum TestingError {
    /// None is installed where it is looked for.
    #[error("no nats-server: run `make nats-server`, or name one with {PROGRAM_VARIABLE}")]
    Missing,
    /// `ANTIPHON_NATS_SERVER` names no file.
    #[error("{PROGRAM_VARIABLE} names no file: {}", .0.display())]
    NoProgram(PathBuf),
    /// It runs, but is older than what the cluster needs.
    #[error("nats-server {0} is too old: run `make nats-server`")]
    TooOld(String),
    /// The operating system refused something.
    #[error("{doing}: {source}")]
    Io {
        /// What was refused.
        doing: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// It ended instead of accepting connections.
    #[error("nats-server ended ({status}); its log:\n{log}")]
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// It accepts no connections, or the servers of a cluster do not know each other.
    #[error("nats-server is not ready after {} s; its log:\n{log}", READY_WITHIN.as_secs())]
    NotReady {
        /// The end of its log.
        log: String,
    },
    /// It was killed and not restarted.
    #[error("nats-server is not running")]
    NotRunning,
    /// JetStream refused a change.
    #[error("JetStream: {0}")]
    JetStream(String),
}

/// One server with JetStream, on a port of its own that stays the same when it is restarted.
///
/// Dropping it kills the server and removes its data; that blocks for the few milliseconds until the process is gone. The server
/// does not outlive this process either, however this process ends.
///
/// Calls need a tokio runtime with time and IO; time must not be paused.
#[derive(Debug)]
pub struct NatsServer {
    program: PathBuf,
    arguments: Vec<OsString>,
    port: u16,
    running: Option<ServerProcess>,
    folder: TempDir,
}

impl NatsServer {
    /// Starts a server with the default configuration. Returns once it accepts connections.
    ///
    /// # Errors
    /// Where there is no server to run, or it does not start within 10 s.
    pub async fn start() -> Result<Self, TestingError> {
        Self::start_with("").await
    }

    /// Starts a server with a configuration of NATS's format: accounts, TLS, limits. The address, the port, JetStream and its
    /// folder are always set on the command line, which overrides the configuration. `tls.handshake_first` is not supported.
    ///
    /// # Errors
    /// Like [`start`](Self::start), and where the server refuses the configuration: then the error shows what it said.
    pub async fn start_with(configuration: &str) -> Result<Self, TestingError> {
        let mut attempt = 1;
        loop {
            match Self::start_on(free_port()?, configuration, &[]).await {
                Err(error) if attempt < START_ATTEMPTS && error.is_port_taken() => attempt += 1,
                result => return result,
            }
        }
    }

    async fn start_on(port: u16, configuration: &str, arguments: &[OsString]) -> Result<Self, TestingError> {
        let folder = TempDir::with_prefix("nats-server-").map_err(io("create a temporary folder"))?;
        let file = folder.path().join("nats.conf");
        std::fs::write(&file, configuration).map_err(io("write the configuration"))?;
        let mut all: Vec<OsString> = vec!["-c".into(), file.into()];
        all.extend(["-a".into(), Ipv4Addr::LOCALHOST.to_string().into(), "-p".into(), port.to_string().into()]);
        all.extend(["-js".into(), "-sd".into(), folder.path().join("jetstream").into()]);
        all.extend_from_slice(arguments);
        let mut server = Self { program: program()?, arguments: all, port, running: None, folder };
        server.restart().await?;
        Ok(server)
    }

    /// The URL that clients connect to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// The port that clients connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process, `None` after [`kill`](Self::kill).
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.server.id())
    }

    /// The end of the log of the current or last run, 8 KiB at most.
    #[must_use]
    pub fn log(&self) -> String {
        let log = std::fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned()
    }

    /// Kills the server as a crash would (SIGKILL). Returns once the process is gone; nothing happens if it is not running.
    pub async fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            // A task that blocks is only lost when the runtime ends, and then the server is killed by its drop.
            let _ = tokio::task::spawn_blocking(move || drop(running)).await;
        }
    }

    /// Starts the server again, on the same port and with the same data; kills it first if it is running. Returns once it
    /// accepts connections, in a cluster once the running servers are connected with it.
    ///
    /// # Errors
    /// Where it does not start within 10 s, for example because another program took its port meanwhile.
    pub async fn restart(&mut self) -> Result<(), TestingError> {
        self.kill().await;
        let log = File::create(self.log_file()).map_err(io("create the log"))?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.running = Some(ServerProcess::start(&mut command)?);
        self.ready(1).await
    }

    /// Freezes the server (SIGSTOP): its connections stay open and nothing is answered. Blocks until all its threads have
    /// stopped, usually less than a millisecond.
    ///
    /// # Errors
    /// Where it is not running.
    pub fn pause(&self) -> Result<(), TestingError> {
        self.signal(Signal::STOP)?;
        let running = self.running.as_ref().ok_or(TestingError::NotRunning)?;
        let process = WaitId::Pid(Pid::from_child(&running.server));
        // Without NOWAIT the exit of a server that just ended would be lost to `Child::wait`.
        let until = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(process, until).map_err(|error| io("wait for a pause")(error.into()))?;
        if status.is_some_and(|status| status.stopped()) { Ok(()) } else { Err(TestingError::NotRunning) }
    }

    /// Ends a [`pause`](Self::pause) (SIGCONT).
    ///
    /// # Errors
    /// Where it is not running.
    pub fn resume(&self) -> Result<(), TestingError> {
        self.signal(Signal::CONT)
    }

    /// Starts the server's lame-duck mode (SIGUSR2): it accepts no new clients, notifies its clients, closes them after
    /// a grace period of 10 s (100 ms in a [`NatsCluster`]), then ends. Does not wait for any of it.
    ///
    /// # Errors
    /// Where it is not running.
    pub fn drain(&self) -> Result<(), TestingError> {
        self.signal(Signal::USR2)
    }

    fn signal(&self, signal: Signal) -> Result<(), TestingError> {
        let running = self.running.as_ref().ok_or(TestingError::NotRunning)?;
        rustix::process::kill_process(Pid::from_child(&running.server), signal)
            .map_err(|error| io("send a signal to nats-server")(error.into()))
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Waits until the server greets a connection and names as many servers as are known to be up.
    async fn ready(&mut self, known: usize) -> Result<(), TestingError> {
        let waiting = async {
            loop {
                let running = self.running.as_mut().ok_or(TestingError::NotRunning)?;
                if let Some(status) = running.server.try_wait().map_err(io("ask for the state of nats-server"))? {
                    return Err(TestingError::Ended { status, log: self.log() });
                }
                match greeting(self.port).await {
                    Some(info) if !is_new_enough(&info.version) => return Err(TestingError::TooOld(info.version)),
                    Some(info) if info.connect_urls.len().max(1) >= known => return Ok(()),
                    // A server does not report that it is ready, or that its routes are.
                    _ => tokio::time::sleep(CONNECT_PAUSE).await,
                }
            }
        };
        let result = tokio::time::timeout(READY_WITHIN, waiting).await;
        result.unwrap_or_else(|_| Err(TestingError::NotReady { log: self.log() }))
    }
}

/// Several servers that know each other; clients learn the URLs of all from any. For about half a second JetStream has no leader,
/// and leaves requests without an answer.
#[derive(Debug)]
pub struct NatsCluster {
    servers: Vec<NatsServer>,
    /// For each server, the port on which the others connect to it.
    ports: Vec<u16>,
}

impl NatsCluster {
    /// Starts `count` servers. Returns once each is connected with each.
    ///
    /// # Errors
    /// Like [`NatsServer::start`].
    pub async fn start(count: usize) -> Result<Self, TestingError> {
        let mut attempt = 1;
        loop {
            match Self::try_start(count).await {
                Err(error) if attempt < START_ATTEMPTS && error.is_port_taken() => attempt += 1,
                result => return result,
            }
        }
    }

    async fn try_start(count: usize) -> Result<Self, TestingError> {
        let ports = (0..count).map(|_| free_port()).collect::<Result<Vec<_>, _>>()?;
        let mut cluster = Self { servers: Vec::with_capacity(count), ports };
        for at in 0..count {
            cluster.start_server(at).await?;
        }
        for server in &mut cluster.servers {
            server.ready(count).await?;
        }
        Ok(cluster)
    }

    /// Starts a further server. Returns once it is connected with each.
    ///
    /// # Errors
    /// Like [`NatsServer::start`].
    pub async fn grow(&mut self) -> Result<(), TestingError> {
        let at = self.servers.len();
        self.ports.push(free_port()?);
        self.start_server(at).await?;
        self.servers[at].ready(at + 1).await
    }

    async fn start_server(&mut self, at: usize) -> Result<(), TestingError> {
        let route = |port: &u16| format!("nats://{}:{port}", Ipv4Addr::LOCALHOST);
        let routes: Vec<_> = self.ports.iter().map(route).collect();
        let arguments = [
            "--cluster_name".into(),
            "tests".into(),
            "--server_name".into(),
            format!("server-{at}").into(),
            "--cluster".into(),
            route(&self.ports[at]).into(),
            "--routes".into(),
            routes.join(",").into(),
        ];
        self.servers.push(NatsServer::start_on(free_port()?, CLUSTER_CONFIGURATION, &arguments).await?);
        Ok(())
    }

    /// The URL of each server, of those that are down, too.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(NatsServer::url).collect()
    }

    /// One server. Panics if there are not that many.
    #[must_use]
    pub fn server(&self, at: usize) -> &NatsServer {
        &self.servers[at]
    }

    /// Which server a client is connected to, by the name that the server gives itself.
    #[must_use]
    pub fn index_of(&self, server_name: &str) -> Option<usize> {
        let at: usize = server_name.strip_prefix("server-")?.parse().ok()?;
        (at < self.servers.len()).then_some(at)
    }

    /// [`NatsServer::kill`] for one server.
    pub async fn kill(&mut self, at: usize) {
        self.servers[at].kill().await;
    }

    /// [`NatsServer::restart`] for one server; returns once the running servers are connected with it.
    ///
    /// # Errors
    /// Like [`NatsServer::restart`].
    pub async fn restart(&mut self, at: usize) -> Result<(), TestingError> {
        self.servers[at].restart().await?;
        let running = self.servers.iter_mut().filter_map(|server| server.running.as_mut());
        let known = running.filter_map(|running| running.server.try_wait().ok()).filter(Option::is_none).count();
        self.servers[at].ready(known).await
    }

    /// [`NatsServer::drain`] for one server.
    ///
    /// # Errors
    /// Where it is not running.
    pub fn drain(&self, at: usize) -> Result<(), TestingError> {
        self.servers[at].drain()
    }
}

/// A server's process and the one that outlives us to kill it.
#[derive(Debug)]
struct ServerProcess {
    server: Child,
    guard: Child,
}

impl ServerProcess {
    fn start(command: &mut Command) -> Result<Self, TestingError> {
        let mut server = command.spawn().map_err(io("run nats-server"))?;
        match guard(&server) {
            Ok(guard) => Ok(Self { server, guard }),
            Err(error) => {
                end(&mut server);
                Err(io("run sh")(error))
            }
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The guard goes first: it kills a number, which is the server's only until the server is waited for.
        end(&mut self.guard);
        end(&mut self.server);
    }
}

/// Starts a process that kills another one when this process ends, even by SIGKILL: then its standard input ends.
fn guard(process: &Child) -> std::io::Result<Child> {
    let script = "trap '' HUP INT TERM; read -r _; kill -s KILL \"$1\"";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, "sh"]).arg(process.id().to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// Kills a process and waits until it is gone.
fn end(process: &mut Child) {
    // Both fail only where it is gone already. `wait` would close the guard's standard input, but by then it is dead.
    let _ = process.kill();
    let _ = process.wait();
}

/// What a server says to a new connection, as far as it matters here.
#[derive(Deserialize)]
struct Greeting {
    version: String,
    /// The addresses of all servers of its cluster, its own included.
    #[serde(default)]
    connect_urls: Vec<String>,
}

async fn greeting(port: u16) -> Option<Greeting> {
    let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    let mut line = String::new();
    BufReader::new(connection).read_line(&mut line).await.ok()?;
    serde_json::from_str(line.strip_prefix("INFO ")?).ok()
}

fn is_new_enough(version: &str) -> bool {
    let release = version.split('-').next().unwrap_or_default();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0));
    [(); 3].map(|()| numbers.next().unwrap_or(0)) >= MIN_VERSION
}

/// Bounds a stream of JetStream, so that it is full: what it holds stays.
///
/// # Errors
/// The server cannot be reached, or refuses.
pub async fn limit_stream(url: &str, stream: &str, max_bytes: i64) -> Result<(), TestingError> {
    let failed = |error: &dyn std::fmt::Display| TestingError::JetStream(error.to_string());
    let client = async_nats::connect(url).await.map_err(|error| failed(&error))?;
    let context = async_nats::jetstream::new(client);
    let mut config = context.get_stream(stream).await.map_err(|error| failed(&error))?.cached_info().config.clone();
    config.max_bytes = max_bytes;
    context.update_stream(config).await.map_err(|error| failed(&error))?;
    Ok(())
}

/// The program: the named one, the one of `make nats-server`, or the installed one.
///
/// # Errors
/// Where there is none.
pub fn program() -> Result<PathBuf, TestingError> {
    if let Some(named) = std::env::var_os(PROGRAM_VARIABLE) {
        let named = PathBuf::from(named);
        return if named.is_file() { Ok(named) } else { Err(TestingError::NoProgram(named)) };
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/nats-server/nats-server");
    let installed = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::iter::once(own).chain(std::env::split_paths(&installed).map(|at| at.join("nats-server")));
    candidates.find(|candidate| candidate.is_file()).ok_or(TestingError::Missing)
}

/// A port that no process listens on at the moment.
fn free_port() -> Result<u16, TestingError> {
    loop {
        let port = rand::random_range(PORTS);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(io("listen on a port")(error)),
        }
    }
}

impl TestingError {
    fn is_port_taken(&self) -> bool {
        matches!(self, Self::Ended { log, .. } if log.contains("address already in use"))
    }
}

fn io(doing: &'static str) -> impl FnOnce(std::io::Error) -> TestingError {
    move |source| TestingError::Io { doing, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use async_nats::{Client, ConnectOptions, Event, Subscriber};
    use futures_util::StreamExt as _;
    use tokio::sync::mpsc;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_server_carries_messages_and_has_jetstream() {
        let server = NatsServer::start().await.unwrap();
        let (client, _events) = connect(&[server.url()]).await;
        let mut messages = client.subscribe("a").await.unwrap();
        assert!(is_carried(&client, &mut messages, "1").await);
        let jetstream = async_nats::jetstream::new(client);
        jetstream
            .create_stream(async_nats::jetstream::stream::Config { name: "kept".into(), ..Default::default() })
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_killed_server_is_back_on_its_port_with_its_data() {
        let mut server = NatsServer::start().await.unwrap();
        let (client, mut events) = connect(&[server.url()]).await;
        let mut messages = client.subscribe("a").await.unwrap();
        assert!(is_carried(&client, &mut messages, "1").await);
        let jetstream = async_nats::jetstream::new(client.clone());
        let kept = async_nats::jetstream::stream::Config { name: "kept".into(), ..Default::default() };
        jetstream.create_stream(kept).await.unwrap();

        let port = server.port();
        let first = server.process_id();
        server.kill().await;
        assert_eq!(server.process_id(), None);
        assert!(greeting(port).await.is_none());
        until(&mut events, |event| *event == Event::Disconnected).await;
        server.kill().await;
        assert!(matches!(server.pause(), Err(TestingError::NotRunning)));

        server.restart().await.unwrap();
        assert_eq!(server.port(), port);
        assert_ne!(server.process_id(), first);
        until(&mut events, |event| *event == Event::Connected).await;
        assert!(is_carried(&client, &mut messages, "2").await);
        jetstream.get_stream("kept").await.unwrap();
    }

    #[tokio::test]
    async fn a_paused_server_answers_nothing_until_it_is_resumed() {
        let server = NatsServer::start().await.unwrap();
        let (client, _events) = connect(&[server.url()]).await;
        client.flush().await.unwrap();
        server.pause().unwrap();
        let mut answer = std::pin::pin!(greeting(server.port()));
        assert!(tokio::time::timeout(Duration::from_millis(200), &mut answer).await.is_err());
        server.resume().unwrap();
        assert!(tokio::time::timeout(SOON, answer).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_configuration_is_applied() {
        let server =
            NatsServer::start_with("max_payload: 2000\nport: 1\nauthorization { token: \"secret\" }").await.unwrap();
        assert!(async_nats::connect(server.url()).await.is_err());
        let client = ConnectOptions::with_token("secret".into()).connect(server.url()).await.unwrap();
        assert_eq!(client.server_info().max_payload, 2000);
    }

    #[tokio::test]
    async fn a_refused_configuration_is_shown_with_the_servers_words() {
        let error = NatsServer::start_with("max_payload: many").await.unwrap_err();
        assert!(matches!(&error, TestingError::Ended { .. }), "{error}");
        assert!(error.to_string().contains("nats.conf:1:"), "{error}");
    }

    #[tokio::test]
    async fn a_dropped_server_leaves_nothing() {
        let server = NatsServer::start().await.unwrap();
        let port = server.port();
        let folder = server.folder.path().to_owned();
        drop(server);
        assert!(greeting(port).await.is_none());
        assert!(!folder.exists());
    }

    #[tokio::test]
    async fn the_guard_kills_when_its_input_ends() {
        let mut process = Command::new("sleep").arg("60").spawn().unwrap();
        let mut guard = guard(&process).unwrap();
        drop(guard.stdin.take());
        let killed = tokio::task::spawn_blocking(move || process.wait());
        let status = tokio::time::timeout(SOON, killed).await.unwrap().unwrap().unwrap();
        assert_eq!(status.signal(), Some(9));
        guard.wait().unwrap();
    }

    #[tokio::test]
    async fn a_client_goes_on_when_its_server_of_three_dies() {
        let mut cluster = NatsCluster::start(3).await.unwrap();
        let (client, mut events) = connect(&cluster.urls()).await;
        let mut messages = client.subscribe("a").await.unwrap();
        assert!(is_carried(&client, &mut messages, "1").await);

        let at = cluster.index_of(&client.server_info().server_name).unwrap();
        cluster.kill(at).await;
        until(&mut events, |event| *event == Event::Disconnected).await;
        until(&mut events, |event| *event == Event::Connected).await;
        assert_ne!(cluster.index_of(&client.server_info().server_name).unwrap(), at);
        assert!(is_carried(&client, &mut messages, "2").await);

        // What a client of the returned server publishes reaches a client of another.
        cluster.restart(at).await.unwrap();
        let (other, _events) = connect(&[cluster.server(at).url()]).await;
        assert!(is_carried(&other, &mut messages, "3").await);
    }

    #[tokio::test]
    async fn a_draining_server_sends_its_clients_to_the_others() {
        let cluster = NatsCluster::start(2).await.unwrap();
        let (client, mut events) = connect(&cluster.urls()).await;
        let mut messages = client.subscribe("a").await.unwrap();
        assert!(is_carried(&client, &mut messages, "1").await);

        let at = cluster.index_of(&client.server_info().server_name).unwrap();
        cluster.drain(at).unwrap();
        until(&mut events, |event| *event == Event::LameDuckMode).await;
        until(&mut events, |event| *event == Event::Connected).await;
        assert_ne!(cluster.index_of(&client.server_info().server_name).unwrap(), at);
        assert!(is_carried(&client, &mut messages, "2").await);
    }

    #[test]
    fn versions_are_compared_by_number() {
        for enough in ["2.12.6", "2.12.10", "2.13.0", "2.15.1-RC.1", "3.0.0"] {
            assert!(is_new_enough(enough), "{enough}");
        }
        for old in ["2.12.5", "2.9.10", "1.99.99", "2.12", "", "none"] {
            assert!(!is_new_enough(old), "{old}");
        }
    }

    async fn connect(urls: &[String]) -> (Client, mpsc::Receiver<Event>) {
        let (sender, events) = mpsc::channel(64);
        let options = ConnectOptions::new().event_callback(move |event| {
            let sender = sender.clone();
            async move {
                let _ = sender.send(event).await;
            }
        });
        let client = options.connect(urls).await.unwrap();
        let mut events = events;
        until(&mut events, |event| *event == Event::Connected).await;
        (client, events)
    }

    async fn until(events: &mut mpsc::Receiver<Event>, is_expected: impl Fn(&Event) -> bool) {
        let waiting = async { while !is_expected(&events.recv().await.unwrap()) {} };
        tokio::time::timeout(SOON, waiting).await.unwrap();
    }

    /// Publishes and waits for the message. Publishes again while it is lost: a server that is back has no subscription yet.
    async fn is_carried(client: &Client, messages: &mut Subscriber, text: &'static str) -> bool {
        let carried = async {
            loop {
                client.publish("a", text.into()).await.unwrap();
                let next = tokio::time::timeout(Duration::from_millis(100), messages.next()).await;
                if next.is_ok_and(|message| message.unwrap().payload == text) {
                    return true;
                }
            }
        };
        tokio::time::timeout(SOON, carried).await.unwrap_or(false)
    }
}
