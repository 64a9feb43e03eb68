//! The connection to NATS: checked at start, watched while it lives, and never waited for.
//!
//! [`Link::send`] does not wait: while the connection is down, or its queue is full, a message is dropped and counted, and the
//! protocol above sends it again ([`flow`](crate::flow)). The client reconnects by itself and subscribes again.

use crate::frame::{HEADER_BYTES, MAX_PAYLOAD_BYTES};
use crate::{ClusterConfig, ClusterError, subject};
use antiphon_types::small_file;
use async_nats::connection::State;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerError, Subject, Subscriber};
use bytes::Bytes;
use futures_util::FutureExt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// The oldest server that serves: older ones have vulnerabilities that were published in 2026.
const OLDEST_SERVER: &str = "2.12.6";

/// The longest wait for the first connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// Messages that wait for the connection's writer: frames of audio, 64 MiB at most.
const QUEUE: usize = 4_096;

/// Messages that wait for this process in one subscription, as above. What is more is dropped and sent again.
const SUBSCRIPTION_QUEUE: usize = 4_096;

/// A connection that is silent for two of these is given up. NATS' own default, two minutes, is too long for speech.
const PING_EVERY: Duration = Duration::from_secs(5);

/// The longest pause between two attempts to reconnect.
const RECONNECT_EVERY: Duration = Duration::from_millis(500);

const UNAUTHORIZED: &str =
    "NATS refuses the credentials (cluster.credentials); check the user's entry in the configuration of nats-server";

/// Time in which the server's refusal of a subscription arrives.
const REFUSAL: Duration = Duration::from_millis(200);

/// The connection's state, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkState {
    pub(crate) is_connected: bool,
    pub(crate) since: Instant,
}

/// A connection to NATS. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Link(Arc<Inner>);

struct Inner {
    client: Client,
    state: watch::Sender<LinkState>,
    /// The last permission that the server refused.
    refused: watch::Receiver<Option<String>>,
    n_dropped: AtomicU64,
    /// The process leaves: that the connection ends is no news.
    closing: Arc<AtomicBool>,
}

impl Link {
    /// Connects and checks the server. `purpose` is for the log. Waits 5 s at most.
    ///
    /// # Errors
    /// Everything that keeps the process from working: each names the setting to change.
    pub(crate) async fn connect(
        config: &ClusterConfig,
        role: &'static str,
        purpose: &'static str,
    ) -> Result<Self, ClusterError> {
        let servers = config.shown_servers();
        if let Some(error) = wrong_addresses(config).into_iter().next() {
            return Err(error);
        }
        // The process may have several TLS libraries; whichever was installed first serves.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let now = LinkState { is_connected: true, since: Instant::now() };
        let state = watch::Sender::new(now);
        let (refused_sender, refused) = watch::channel(None);
        let closing = Arc::new(AtomicBool::new(false));
        let observed = Arc::new((state.clone(), refused_sender));
        let closes = closing.clone();
        let options = options(config, role)?.event_callback(move |event| {
            let observed = observed.clone();
            let is_closing = closes.load(Ordering::Relaxed);
            async move {
                if !is_closing {
                    observe(event, &observed.0, &observed.1);
                }
            }
        });
        let client = match timeout(CONNECT_DEADLINE, options.connect(&config.servers[..])).await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(connect_error(error, servers, config)),
            Err(_) => {
                let message = format!("no answer within {} s", CONNECT_DEADLINE.as_secs());
                return Err(ClusterError::Unreachable { servers, message });
            }
        };
        let info = client.server_info();
        if version(&info.version) < version(OLDEST_SERVER) {
            return Err(ClusterError::TooOld { servers, found: info.version, required: OLDEST_SERVER });
        }
        let required = HEADER_BYTES + MAX_PAYLOAD_BYTES;
        if info.max_payload < required {
            return Err(ClusterError::Payload { servers, found: info.max_payload, required });
        }
        tracing::info!(servers, server = info.server_name, version = info.version, purpose, "connected to NATS");
        Ok(Self(Arc::new(Inner { client, state, refused, n_dropped: AtomicU64::new(0), closing })))
    }

    /// Publishes without waiting; drops the message while there is no connection or no room.
    pub(crate) fn send(&self, subject: &Subject, reply: Option<&Subject>, payload: Bytes) {
        if !self.state().is_connected {
            self.0.n_dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let client = &self.0.client;
        // The queue has room, or it has not: the task's budget is no reason to wait either.
        let sent = match reply {
            Some(reply) => {
                tokio::task::unconstrained(client.publish_with_reply(subject.clone(), reply.clone(), payload))
                    .now_or_never()
            }
            None => tokio::task::unconstrained(client.publish(subject.clone(), payload)).now_or_never(),
        };
        if !matches!(sent, Some(Ok(()))) {
            self.0.n_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Subscribes, and waits for a refusal. The subscription outlives reconnects.
    ///
    /// # Errors
    /// The user lacks the permission.
    pub(crate) async fn subscribe(
        &self,
        role: &'static str,
        subjects: Vec<String>,
    ) -> Result<Vec<Subscriber>, ClusterError> {
        let refusal = |message: String| ClusterError::Permission { role, message };
        let mut subscribers = Vec::new();
        for subject in subjects {
            subscribers.push(self.0.client.subscribe(subject).await.map_err(|error| refusal(error.to_string()))?);
        }
        self.0.client.flush().await.map_err(|error| refusal(error.to_string()))?;
        let mut refused = self.0.refused.clone();
        let message = timeout(REFUSAL, refused.wait_for(Option::is_some)).await;
        match message {
            Ok(Ok(message)) => Err(refusal(message.clone().unwrap_or_default())),
            _ => Ok(subscribers),
        }
    }

    /// Subscribes without waiting for a refusal.
    ///
    /// # Errors
    /// The connection was closed.
    pub(crate) async fn follow(&self, subject: String) -> Result<Subscriber, async_nats::SubscribeError> {
        self.0.client.subscribe(subject).await
    }

    /// The state now.
    pub(crate) fn state(&self) -> LinkState {
        *self.0.state.borrow()
    }

    /// Whether the connection is up, or was a moment ago.
    pub(crate) fn is_reachable(&self, within: Duration) -> bool {
        let state = self.state();
        state.is_connected || state.since.elapsed() < within
    }

    /// Corrects the state by the client's own. Its events may be lost while many of them come.
    pub(crate) fn reconcile(&self) {
        changed(&self.0.state, self.0.client.connection_state() == State::Connected);
    }

    /// The state as it changes.
    pub(crate) fn states(&self) -> watch::Receiver<LinkState> {
        self.0.state.subscribe()
    }

    /// Messages that were dropped because there was no connection or no room.
    pub(crate) fn n_dropped(&self) -> u64 {
        self.0.n_dropped.load(Ordering::Relaxed)
    }

    /// The server it is connected to: its name and version.
    pub(crate) fn server(&self) -> (String, String) {
        let info = self.0.client.server_info();
        (info.server_name, info.version)
    }

    /// The client itself, for requests to JetStream.
    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    /// Waits until the server refuses a permission, and returns its message. Cancelling is safe.
    pub(crate) async fn refusal(&self) -> String {
        let mut refused = self.0.refused.clone();
        let message = refused.wait_for(Option::is_some).await.ok().and_then(|message| message.clone());
        match message {
            Some(message) => message,
            None => std::future::pending().await,
        }
    }

    /// Sends what is queued and ends the connection.
    pub(crate) async fn close(&self) {
        self.0.closing.store(true, Ordering::Relaxed);
        let _ = timeout(Duration::from_secs(1), self.0.client.flush()).await;
        let _ = timeout(Duration::from_secs(1), self.0.client.drain()).await;
    }
}

/// The process ends the connection, perhaps after a start that failed: that is no loss.
impl Drop for Inner {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
    }
}

/// Notes the state, and says so where it is another one.
fn changed(state: &watch::Sender<LinkState>, is_connected: bool) {
    let has_changed = state.send_if_modified(|state| {
        let differs = state.is_connected != is_connected;
        if differs {
            *state = LinkState { is_connected, since: Instant::now() };
        }
        differs
    });
    match is_connected {
        true if has_changed => tracing::info!("connected to NATS again"),
        false if has_changed => {
            tracing::warn!("the connection to NATS is lost; the client connects again as soon as a server answers");
        }
        _ => {}
    }
}

fn observe(event: Event, state: &watch::Sender<LinkState>, refused: &watch::Sender<Option<String>>) {
    match event {
        Event::Connected => {
            refused.send_replace(None);
            changed(state, true);
        }
        Event::Disconnected | Event::Closed => changed(state, false),
        Event::LameDuckMode => tracing::info!("the NATS server is about to stop; the client moves to another one"),
        // Gaps are found by sequence numbers.
        Event::SlowConsumer(_) => {
            tracing::warn!("this process is behind its NATS subscription; messages are sent again")
        }
        Event::ServerError(ServerError::Other(message)) if message.to_lowercase().contains("permissions violation") => {
            tracing::error!(message, "NATS refuses a permission");
            refused.send_replace(Some(message));
        }
        // Said once at start, and once for each loss of the connection: the client tries again twice a second.
        Event::ServerError(ServerError::AuthorizationViolation) => {
            let is_new = refused.send_if_modified(|refused| refused.replace(UNAUTHORIZED.into()).is_none());
            if is_new {
                tracing::error!("{UNAUTHORIZED}; the client tries again");
            }
        }
        Event::ServerError(error) => tracing::warn!(%error, "NATS reports an error"),
        // Each attempt to reconnect that fails reports one; that the connection is lost was said.
        Event::ClientError(error) if state.borrow().is_connected => {
            tracing::warn!(%error, "the NATS client reports an error");
        }
        Event::ClientError(error) => tracing::debug!(%error, "the NATS client reports an error"),
        Event::Draining => {}
    }
}

fn options(config: &ClusterConfig, role: &'static str) -> Result<ConnectOptions, ClusterError> {
    let is_encrypted = config.servers.iter().any(|address| address.starts_with("tls://"));
    let mut options = ConnectOptions::new()
        .name(format!("antiphon {role} {}", config.shown_name()))
        .client_capacity(QUEUE)
        .subscription_capacity(SUBSCRIPTION_QUEUE)
        .connection_timeout(Duration::from_secs(2))
        .ping_interval(PING_EVERY)
        .custom_inbox_prefix(subject::INBOX)
        .reconnect_delay_callback(|n| RECONNECT_EVERY.min(Duration::from_millis(10) * 2_u32.pow(n.min(6) as u32)))
        .require_tls(is_encrypted);
    if !is_encrypted && !config.insecure {
        // The servers of this machine may name others, which are reached without TLS.
        options = options.ignore_discovered_servers();
    }
    if !config.credentials.is_empty() {
        let failed = |message: String| ClusterError::Setting { setting: "credentials", message };
        let text = small_file::read_text(Path::new(&config.credentials), small_file::MAX_SETTINGS_BYTES)
            .map_err(|error| failed(format!("the file {:?} cannot be read: {error}", config.credentials)))?;
        options = if text.contains("-----BEGIN") {
            options.credentials(&text).map_err(|error| failed(format!("this is no credentials file: {error}")))?
        } else {
            let seed = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
            let seed = seed.filter(|seed| seed.starts_with("SU")).ok_or_else(|| {
                failed(format!(
                    "{:?} holds neither a .creds file nor the seed of a user's nkey, which begins with SU",
                    config.credentials
                ))
            })?;
            options.nkey(seed.to_owned())
        };
    }
    let file = |setting, path: &str| {
        let path = PathBuf::from(path);
        let message = || format!("the file {path:?} cannot be read");
        if Path::new(&path).is_file() { Ok(path) } else { Err(ClusterError::Setting { setting, message: message() }) }
    };
    if !config.tls_ca.is_empty() {
        options = options.add_root_certificates(file("tls_ca", &config.tls_ca)?);
    }
    match (config.tls_cert.is_empty(), config.tls_key.is_empty()) {
        (true, true) => {}
        (false, false) => {
            options =
                options.add_client_certificate(file("tls_cert", &config.tls_cert)?, file("tls_key", &config.tls_key)?);
        }
        (true, false) => return Err(missing("tls_cert", "is missing: cluster.tls_key needs it")),
        (false, true) => return Err(missing("tls_key", "is missing: cluster.tls_cert needs it")),
    }
    Ok(options)
}

fn missing(setting: &'static str, message: &str) -> ClusterError {
    ClusterError::Setting { setting, message: message.into() }
}

/// What is wrong with the settings of the connection: each address, and the first of the files.
pub(crate) fn wrong_settings(config: &ClusterConfig) -> Vec<ClusterError> {
    let mut found = wrong_addresses(config);
    found.extend(options(config, "").err());
    found
}

/// Speech must not leave the machine in the clear, unless the operator says that the network is safe.
fn wrong_addresses(config: &ClusterConfig) -> Vec<ClusterError> {
    let wrong = |message: String| ClusterError::Setting { setting: "servers", message };
    if config.servers.is_empty() {
        return vec![wrong("no server is named, and cluster.jetstream needs one".into())];
    }
    let mut found = Vec::new();
    for address in &config.servers {
        let parsed = address.parse::<async_nats::ServerAddr>();
        let Ok(server) = parsed else {
            found.push(wrong(format!(
                "{:?} is no address; write nats://HOST:PORT or tls://HOST:PORT",
                config.shown_servers()
            )));
            continue;
        };
        let host = server.host();
        let is_local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let is_encrypted = address.starts_with("tls://") || address.starts_with("wss://");
        if !is_local && !is_encrypted && !config.insecure {
            found.push(wrong(format!(
                "{host} is another machine, and nats:// sends speech in the clear: write tls://, or set cluster.insecure = \
                 true where the network is encrypted otherwise"
            )));
        }
    }
    found
}

fn connect_error(error: async_nats::ConnectError, servers: String, config: &ClusterConfig) -> ClusterError {
    let message = antiphon_telemetry::with_causes(&error);
    match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            let message = match config.credentials.as_str() {
                "" => "the server requires some, and cluster.credentials is empty".into(),
                file => format!("those in {file} are not known there"),
            };
            ClusterError::Credentials { servers, message }
        }
        ConnectErrorKind::Tls => ClusterError::Tls { servers, message },
        _ if message.contains("CertificateRequired") => {
            let message = "the server requires a certificate of its clients".into();
            ClusterError::Tls { servers, message }
        }
        // rustls reports a certificate that it does not trust as an IO error.
        ConnectErrorKind::Io if message.contains("certificate") => ClusterError::Tls { servers, message },
        _ => ClusterError::Unreachable { servers, message },
    }
}

/// The numbers of a version; what follows them is ignored.
fn version(text: &str) -> [u32; 3] {
    let mut numbers = text.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(version("2.9.10") < version(OLDEST_SERVER) && version("2.12.5") < version(OLDEST_SERVER));
        assert!(version("2.12.6") >= version(OLDEST_SERVER) && version("2.15.1-RC.1") > version(OLDEST_SERVER));
    }

    #[test]
    fn speech_leaves_the_machine_encrypted_only() {
        let config = |address: &str, insecure| ClusterConfig {
            servers: vec![address.into()],
            insecure,
            ..ClusterConfig::default()
        };
        let says = |config: ClusterConfig| {
            wrong_addresses(&config).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        for right in ["nats://127.0.0.1:4222", "nats://[::1]:4222", "tls://nats.example:4222"] {
            assert_eq!(says(config(right, false)), "", "{right}");
        }
        assert_eq!(says(config("nats://192.0.2.1:4222", true)), "");
        let mut wrong = config("nats://192.0.2.1:4222", false);
        wrong.servers.push("http://x y".into());
        let said = says(wrong);
        assert!(said.contains("in the clear") && said.contains("is no address"), "{said}");
    }
}
