//! Phone calls by SIP (`[sip]`): a trunk, a PBX or a phone calls the hub, without a provider between.
//!
//! [`Sip::bind`] opens the sockets and reads the trunks; [`Sip::run`] serves; [`Dialer`] makes calls. Messages and
//! transactions are `antiphon-sip`'s; [`dialogs`] drives it. [`call`] takes each call that comes in, [`calls_out`] makes
//! those that clients ask for, [`answered`] serves both from their answer on, [`media`] is their RTP. [`warm_transfer`]
//! calls the targets of transfers. Who may call is decided by the trunks alone.

mod answered;
mod call;
mod calls_out;
mod coder;
mod dial;
mod dialogs;
pub(super) mod key_events;
pub(super) mod media;
mod passwords;
mod ports;
mod receiver;
mod reports;
mod settings;
mod srtp;
mod streams;
mod transfer;
mod warm_transfer;

use crate::config::{SipConfig, SipTrunk};
use crate::server::access::keys::Keys;
use crate::server::edge::headers::Certificate;
use crate::server::edge::tls::{Tls, sip_client};
use crate::server::transport::parts::TransportParts;
use crate::server::transport::telephony::call_reports::CallWebhooks;
use crate::server::transport::telephony::outgoing::DialRights;
use crate::server::transport::telephony::tools::ToolSettings;
use antiphon_engines::secret;
use antiphon_sip::sdp::Codec;
use antiphon_sip::{Config, Credentials, Endpoint, Registration, Trunk, TrunkId};
use antiphon_telemetry::with_causes;
use arc_swap::ArcSwap;
pub(in crate::server::transport::telephony) use calls_out::dial;
pub(in crate::server) use dial::Dialer;
use dial::{DialTrunk, transport_of};
use dialogs::{ArrivedCall, Dial, Dialogs, Trunks};
use passwords::{NewPasswords, TrunkPasswords};
use ports::RtpPorts;
use settings::{CallSettings, CallWebhook, TrunkSettings};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use streams::{Streams, TlsStreams};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

/// Calls to be made that wait for the dialogs' task; further ones are refused.
const MAX_DIALS: usize = 64;
/// Why nothing is listened to by TLS.
const NO_CERTIFICATE: &str = "sip.tls_listen needs a certificate: set sip.tls_cert and sip.tls_key, or server.tls_cert \
                              and server.tls_key, or start with --tls-self-signed";

/// The sockets and the trunks.
pub(in crate::server) struct Sip {
    udp: UdpSocket,
    tcp: TcpListener,
    tls: Option<TlsStreams>,
    /// Its own certificate; `None`: it has none, or that of the pages.
    certificate: Certificate,
    endpoint: Config,
    names: Vec<String>,
    passwords: TrunkPasswords,
    replaced_passwords: watch::Receiver<NewPasswords>,
    dialer: Arc<Dialer>,
    dials: mpsc::Receiver<Dial>,
}

impl Sip {
    /// Binds `sip.listen`, for UDP and TCP, and `sip.tls_listen`; `None`: it is empty. `pages`: the certificate of the
    /// hub's pages. The dialer makes calls once this runs.
    ///
    /// # Errors An address is in use, a password or a certificate cannot be read, a key is not one, or no address is known
    /// under which peers reach the hub.
    pub(in crate::server) async fn bind(
        config: &SipConfig,
        keys: &Keys,
        pages: Certificate,
        rights: Arc<DialRights>,
        webhooks: CallWebhooks,
    ) -> io::Result<Option<(Self, Arc<Dialer>)>> {
        if config.listen.is_empty() {
            return Ok(None);
        }
        let in_use = |error: io::Error| {
            let message = format!("SIP cannot listen on {} (sip.listen): {error}", config.listen);
            io::Error::new(error.kind(), message)
        };
        let tcp = TcpListener::bind(&config.listen).await.map_err(in_use)?;
        let bound = tcp.local_addr()?;
        let udp = UdpSocket::bind(bound).await.map_err(in_use)?;
        let advertised = advertised(config, bound.ip())?;
        let certificate =
            Tls::load_sip(config).map_err(io::Error::other)?.map(|tls| Arc::new(ArcSwap::from_pointee(tls)));
        let tls = match config.tls_listen.as_str() {
            "" => None,
            address => Some(tls_streams(config, address, certificate.clone().or(pages)).await?),
        };
        let tls_port = match &tls {
            Some(tls) => tls.listener.local_addr()?.port(),
            None => 0,
        };
        let mut trunks = Vec::new();
        let mut settings = Vec::new();
        for (name, trunk) in &config.trunks {
            trunks.push(trunk_of(name, trunk).map_err(io::Error::other)?);
            keys.check_name(&format!("sip.trunks.{name}.key"), &trunk.key).map_err(io::Error::other)?;
            settings.push(TrunkSettings {
                key: trunk.key.clone(),
                route: trunk.route.clone(),
                srtp: trunk.srtp,
                refer_replaces: trunk.refer_replaces,
            });
        }
        if trunks.is_empty() {
            tracing::warn!("sip.trunks is empty: no caller is accepted by SIP");
        }
        let codecs = config.codecs.iter().filter_map(|name| Codec::of(name)).collect();
        let ports = RtpPorts::new(bound.ip(), advertised, config.rtp_port_min, config.rtp_port_max);
        let endpoint = Config {
            advertised: SocketAddr::new(advertised, bound.port()),
            tls_port,
            agent: concat!("antiphon/", env!("CARGO_PKG_VERSION")).into(),
            trunks,
            secret: rand::random(),
        };
        tracing::info!(%bound, tls_port, %advertised, n_trunks = settings.len(), "listening for SIP by UDP and TCP");
        let names: Vec<String> = config.trunks.keys().cloned().collect();
        let (passwords, replaced_passwords) = TrunkPasswords::new(names.clone());
        let transfer_to = config.transfer_targets();
        let CallWebhooks { incoming, reports } = webhooks;
        let webhook = incoming.map(|webhooks| CallWebhook {
            webhooks,
            decides_within: Duration::from_secs(u64::from(config.webhook_decision_seconds)),
            undecided: config.webhook_undecided,
        });
        let tools = ToolSettings::of(config);
        let settings = Arc::new(CallSettings {
            trunks: settings,
            codecs,
            ports,
            transfer_to,
            tools,
            webhook,
            reports,
            on_voicemail: config.on_voicemail,
            voicemail_message: config.voicemail_message.clone(),
        });
        let numbered = config.trunks.iter().enumerate();
        let by_trunks =
            numbered.filter_map(|(index, (name, trunk))| DialTrunk::of(TrunkId(index), name, trunk)).collect();
        let (sender, dials) = mpsc::channel(MAX_DIALS);
        let dialer = Arc::new(Dialer::new(by_trunks, rights, sender, settings));
        let sip = Self {
            udp,
            tcp,
            tls,
            certificate,
            endpoint,
            names,
            passwords,
            replaced_passwords,
            dialer: dialer.clone(),
            dials,
        };
        Ok(Some((sip, dialer)))
    }

    /// Its own certificate, to be replaced by a reload; `None`: it has none.
    pub(in crate::server) fn certificate(&self) -> Certificate {
        self.certificate.clone()
    }

    /// Replaces the passwords of its trunks.
    pub(in crate::server) fn passwords(&self) -> TrunkPasswords {
        self.passwords.clone()
    }

    /// Serves until `drained`; from `stop` on, calls are refused. Calls are tasks of the server's.
    pub(in crate::server) async fn run(
        self,
        transport: Arc<TransportParts>,
        stop: CancellationToken,
        drained: CancellationToken,
    ) {
        let endpoint = Endpoint::new(self.endpoint, Instant::now().into_std());
        let access = transport.sessions.access.clone();
        let dialer = self.dialer;
        let streams = Streams::new(self.tcp, self.tls);
        let trunks = Trunks { names: self.names, passwords: self.replaced_passwords };
        let dialogs = Dialogs::new(endpoint, self.udp, streams, access, trunks, dialer.settings().ports);
        let tasks = transport.sessions.setup.tasks.clone();
        let arrived = move |arrived: ArrivedCall| {
            tasks.spawn(call::serve(transport.clone(), dialer.clone(), arrived));
        };
        dialogs.run(arrived, self.dials, stop, drained).await;
    }
}

/// The passwords, keys and certificates for want of which [`Sip::bind`] would refuse these settings. `has_certificate`:
/// the hub's pages have one. Blocks for the time of small files.
pub(in crate::server) fn problems(config: &SipConfig, keys: &Keys, has_certificate: bool) -> Vec<String> {
    let mut problems = Vec::new();
    if config.listen.is_empty() {
        return problems;
    }
    for (name, trunk) in &config.trunks {
        problems.extend(trunk_of(name, trunk).err());
        problems.extend(keys.check_name(&format!("sip.trunks.{name}.key"), &trunk.key).err());
    }
    if !config.tls_listen.is_empty() && config.tls_cert.is_empty() && !has_certificate {
        problems.push(NO_CERTIFICATE.to_owned());
    }
    problems
}

async fn tls_streams(config: &SipConfig, address: &str, certificate: Certificate) -> io::Result<TlsStreams> {
    let certificate = certificate.ok_or_else(|| io::Error::other(NO_CERTIFICATE))?;
    let connector = TlsConnector::from(sip_client(config).map_err(io::Error::other)?);
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let message = format!("SIP cannot listen on {address} (sip.tls_listen): {error}");
        io::Error::new(error.kind(), message)
    })?;
    Ok(TlsStreams { listener, certificate, connector })
}

/// The trunk with its password.
///
/// # Errors
/// The password is missing, or cannot be read.
fn trunk_of(name: &str, trunk: &SipTrunk) -> Result<Trunk, String> {
    let password = secret::read(&trunk.password_env);
    let password = password.map_err(|error| format!("sip.trunks.{name}: {}", with_causes(&error)))?;
    let credentials = match (trunk.username.is_empty(), password) {
        (true, _) => None,
        (false, Some(password)) => Some(Credentials { username: trunk.username.clone(), password }),
        (false, None) => {
            return Err(format!(
                "sip.trunks.{name} has a username and no password: set the environment variable {:?}, or, with _FILE, \
                 its file",
                trunk.password_env
            ));
        }
    };
    let registration = trunk.registrar().map(|(host, port)| {
        let user = if trunk.register_as.is_empty() { trunk.username.clone() } else { trunk.register_as.clone() };
        Registration { host, port, transport: transport_of(trunk), user }
    });
    Ok(Trunk { allowed: trunk.networks(), credentials, registration })
}

/// The address under which peers reach the hub.
fn advertised(config: &SipConfig, bound: IpAddr) -> io::Result<IpAddr> {
    if let Ok(address) = config.advertise.parse() {
        return Ok(address);
    }
    if !bound.is_unspecified() {
        return Ok(bound);
    }
    let of_machine = if_addrs::get_if_addrs()?.into_iter().map(|interface| interface.ip());
    let found = of_machine.filter(|ip| ip.is_ipv4() == bound.is_ipv4()).min_by_key(IpAddr::is_loopback);
    found.ok_or_else(|| io::Error::other("no address to advertise for sip.listen: set sip.advertise"))
}
