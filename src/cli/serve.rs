//! `antiphon serve`: runs the hub.

use super::config::engines;
use super::file_changes::FileChanges;
use super::lan::{self, Reachable};
use super::{CliError, blocking, desktop, print, signals};
use crate::assembly::{ActiveEngines, EngineManager, EnginesError, Membership};
use crate::config::{ConfigError, ServerConfig, SipConfig, Sources, TelephonyConfig, load_hub};
use crate::server::{self, Extras, Keys, LoadedEngines, Reload, Startup, Tls, WaitsFor};
use antiphon_engines::secret;
use antiphon_telemetry::Metrics;
use antiphon_types::small_file;
use clap::Args;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How to serve.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  antiphon serve                           this machine only, engines that need no download
  antiphon serve --config my.toml          with your settings (see `antiphon config default`)
  antiphon serve --tls-self-signed         https and wss, for clients that take nothing else
  antiphon serve --tls-self-signed --listen 0.0.0.0:8443
                                           for a phone, too: it prints the addresses, and a code for its camera
  antiphon serve --listen 127.0.0.1:0      on any free port; the first lines say which

Ctrl-C lets running sessions finish; a second Ctrl-C stops immediately. SIGHUP reads the files of keys, passwords and
certificates again, and opens the audit log again; the file of keys is also read when it changes. Errors are logged, and
what was read before stays in use. The file of the secret of webhooks is read at the start only.")]
pub struct ServeArgs {
    /// Settings that differ from the defaults
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port to listen on [default: 127.0.0.1:8080, or as configured]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Speak https and wss with a certificate made for this run, for trying out
    #[arg(long)]
    tls_self_signed: bool,
    /// Write that certificate to this file, for clients that are to trust it
    #[arg(long, value_name = "FILE", requires = "tls_self_signed")]
    tls_cert_out: Option<PathBuf>,
}

/// The hub with the default settings, and its page on the desktop where there is one: `antiphon` without a command.
pub(super) async fn run_and_open() -> Result<(), CliError> {
    serve(ServeArgs::default(), true).await
}

pub(super) async fn run(args: ServeArgs) -> Result<(), CliError> {
    serve(args, false).await
}

async fn serve(args: ServeArgs, opens_page: bool) -> Result<(), CliError> {
    let mut sources = Sources::of_process(args.config.as_deref());
    sources.options.extend(args.listen.map(|address| ("server", "listen", address)));
    let mut config = load_hub(&sources)?;
    folder_for_recordings(&config.session.record)?;
    server::raise_descriptor_limit();

    let keys = Keys::load(&config.server)?;
    let address = config.server.listen.clone();
    if let Some(address) = tokio::net::lookup_host(&address).await.ok().and_then(|mut found| found.next()) {
        keys.allow_listening(address)?;
    }
    let has_certificate = args.tls_self_signed || !config.server.tls_cert.is_empty();
    let problems = server::setting_problems(&config, &keys, has_certificate);
    if !problems.is_empty() {
        return Err(ConfigError::of_merged(problems).into());
    }
    // Bind the port before the models load, so that an occupied one is reported immediately.
    let listener = listen("server.listen", &config.server.listen).await?;
    let address = listener.local_addr().map_err(|error| CliError::failed(&error))?;
    let reachable = Reachable::at(address);
    if args.tls_self_signed {
        // The self-signed certificate is issued for these names, so the hub accepts them as hosts.
        config.server.allowed_hosts.extend(reachable.names.iter().cloned());
    }
    let tls = tls(args.tls_self_signed, args.tls_cert_out.as_deref(), &config.server, &reachable)?;
    let probes = match config.server.probe_listen.as_str() {
        "" => None,
        address => Some(listen("server.probe_listen", address).await?),
    };
    let wyoming = match config.wyoming.listen.as_str() {
        "" => None,
        address => Some(listen("wyoming.listen", address).await?),
    };
    let stop = CancellationToken::new();
    let (reload, reloads) = mpsc::channel(MAX_RELOADS);
    let files = Files {
        config: config.server.clone(),
        sip: config.sip.clone(),
        telephony: config.telephony.clone(),
        tls_self_signed: args.tls_self_signed,
    };
    let files = Arc::new(files);
    let mut signals = vec![signals::watch(stop.clone()), watch_hang_ups(files.clone(), reload.clone())];
    signals.extend(watch_keys(files, reload));
    let manager = Arc::new(EngineManager::new(&config).map_err(EnginesError::from)?);
    let page = page(address, tls.is_some());
    let elsewhere = elsewhere(&reachable, address.port(), tls.is_some());
    let waits_for = WaitsFor::default();
    let load = async {
        let loading = async {
            if manager.config().cluster.is_set() {
                manager.join(Membership::join(manager.config()).await?);
                let joined = manager.clone();
                waits_for.set(move || joined.membership()?.lacks());
            }
            let loading = manager.clone();
            let loaded = blocking(move || loading.load()).await??;
            if let Some(membership) = manager.membership() {
                membership.ready().await;
            }
            Ok(loaded)
        };
        let ActiveEngines { engines: loaded, served } = tokio::select! {
            loaded = loading => loaded,
            () = stop.cancelled() => Err(CliError::Interrupted),
        }?;
        let voices = loaded.tts.voices();
        let voices: Vec<_> = voices.iter().map(|voice| voice.id.as_str()).collect();
        let what_to_do =
            if opens_page && desktop::open(&page) { "your browser opens it" } else { "open it in a browser" };
        let more = if opens_page { " `antiphon --help` shows what else it does." } else { "" };
        print::line(&format!(
            "Antiphon {} is listening on {page}: {what_to_do}\n{elsewhere}\n{}\n  {:<16} {}\n\nCtrl-C stops it.{more}",
            env!("CARGO_PKG_VERSION"),
            engines(manager.config(), &served),
            "voices",
            antiphon_engine_api::tts::listed(&voices),
        ))?;
        Ok(LoadedEngines { engines: loaded, manager: Some((manager.clone(), served)) })
    };
    let startup = Startup { config, metrics: Metrics::new(), keys, tls };
    let extras = Extras { probes, wyoming, reloads: Some(reloads), waits_for: waits_for.clone() };
    let served = server::serve_loading(listener, startup, load, extras, stop.clone()).await;
    signals.iter().for_each(tokio::task::JoinHandle::abort);
    if let Some(membership) = manager.membership() {
        membership.leave().await;
    }
    served
}

/// Creates the folder for replay logs, accessible to its owner only, so that an error is reported at startup.
pub(super) fn folder_for_recordings(folder: &str) -> Result<(), CliError> {
    if folder.is_empty() || Path::new(folder).is_dir() {
        return Ok(());
    }
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| CliError::Usage(format!("session.record: the folder {folder:?} cannot be created: {error}")))
}

/// The certificate to serve with; `None`: plain HTTP.
fn tls(
    self_signed: bool,
    out: Option<&Path>,
    config: &ServerConfig,
    reachable: &Reachable,
) -> Result<Option<Tls>, CliError> {
    if !self_signed {
        return Ok(Tls::load(config)?);
    }
    if !config.tls_cert.is_empty() {
        return Err(CliError::Usage("--tls-self-signed and server.tls_cert exclude each other".into()));
    }
    let (tls, pem) = Tls::self_signed(&[&config.allowed_hosts[..], &reachable.hosts()].concat())?;
    if let Some(path) = out {
        std::fs::write(path, pem).map_err(|error| CliError::file("written", path, &error))?;
    }
    Ok(Some(tls))
}

async fn listen(setting: &'static str, address: &str) -> Result<TcpListener, CliError> {
    TcpListener::bind(address).await.map_err(|source| CliError::Listen { setting, address: address.into(), source })
}

/// The page's URL on this machine. Browsers permit the microphone only on loopback addresses or with https.
fn page(address: SocketAddr, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    if address.ip().is_unspecified() {
        format!("{scheme}://localhost:{}", address.port())
    } else {
        format!("{scheme}://{address}")
    }
}

/// The page's URLs for other devices, one per line; with plain HTTP, browsers there permit text but no microphone. On a
/// terminal and with TLS, followed by the first URL as a QR code. Empty if only this machine can reach the hub.
fn elsewhere(reachable: &Reachable, port: u16, tls: bool) -> String {
    let pages = reachable.pages(if tls { "https" } else { "http" }, port);
    let Some(first) = pages.first() else { return String::new() };
    let code = lan::code(first).filter(|_| tls && std::io::stdout().is_terminal()).unwrap_or_default();
    let how = if tls { "" } else { " (microphones need https: --tls-self-signed)" };
    let lines: String = pages.iter().map(|page| format!("  {page}\n")).collect();
    format!("\nFrom other devices{how}:\n{lines}{code}\n")
}

/// Reloads that may queue until the hub serves.
const MAX_RELOADS: usize = 8;

/// The files to read again on SIGHUP: those configured at startup.
struct Files {
    config: ServerConfig,
    sip: SipConfig,
    telephony: TelephonyConfig,
    tls_self_signed: bool,
}

impl Files {
    /// Reads the files; those of upstream keys are exchanged at once. Errors are logged and their part is omitted, so that the
    /// current one stays in use. Blocks for small files.
    fn read(&self) -> Reload {
        secret::reload();
        let mut reload = Reload { reopens_logs: true, ..self.keys() };
        let tls = if self.tls_self_signed { Ok(None) } else { Tls::load(&self.config) };
        reload.tls = stays("certificate", tls, &mut reload.failed).flatten();
        reload.sip_tls = stays("sip certificate", Tls::load_sip(&self.sip), &mut reload.failed).flatten();
        let shared = self.telephony.twilio_auth_token_env.as_str();
        reload.twilio_auth_token = stays("twilio auth token", secret::read(shared), &mut reload.failed).flatten();
        let accounts = self.telephony.accounts.iter();
        let own = accounts.map(|(name, account)| (name, account.secret_env(shared)));
        let own = own.filter(|(_, variable)| *variable != shared);
        reload.account_secrets = secrets("account secrets", own, &mut reload.failed);
        let in_use = !self.sip.listen.is_empty();
        let trunks = self.sip.trunks.iter().filter(|(_, trunk)| in_use && !trunk.username.is_empty());
        let passwords = trunks.map(|(name, trunk)| (name, trunk.password_env.as_str()));
        reload.trunk_passwords = secrets("trunk passwords", passwords, &mut reload.failed);
        reload
    }

    /// The keys alone.
    fn keys(&self) -> Reload {
        let mut failed = Vec::new();
        let keys = stays("keys", Keys::load(&self.config), &mut failed);
        Reload { keys, failed, ..Reload::default() }
    }

    /// The content of the file of keys, to see whether it has changed.
    fn key_file(&self) -> Option<Vec<u8>> {
        small_file::read(Path::new(&self.config.api_keys_file), small_file::MAX_SETTINGS_BYTES).ok()
    }
}

/// What was read; `None`, a line of the log and an entry in `failed`: it could not be.
fn stays<T, E: std::error::Error>(what: &'static str, read: Result<T, E>, failed: &mut Vec<&'static str>) -> Option<T> {
    let logged = |error: E| {
        let why = antiphon_telemetry::with_causes(&error);
        tracing::error!(target: "antiphon::security", "reload: {why}; the {what} from before stay in use");
        failed.push(what);
    };
    read.map_err(logged).ok()
}

/// The secrets of these variables or their files, by the names of what has them, without those that could not be read.
fn secrets<'a>(
    what: &'static str,
    variables: impl Iterator<Item = (&'a String, &'a str)>,
    failed: &mut Vec<&'static str>,
) -> BTreeMap<String, String> {
    let mut secrets = BTreeMap::new();
    for (name, variable) in variables {
        if let Some(secret) = stays(what, secret::read(variable), failed).flatten() {
            secrets.insert(name.clone(), secret);
        }
    }
    secrets
}

/// How long a reload waits for its files: a file system that hangs, of another machine for example, must not stop later ones.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// The reading of files on a thread, of which one at a time is under way.
struct FileReader<T>(Option<JoinHandle<T>>);

impl<T> Default for FileReader<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Send + 'static> FileReader<T> {
    /// What `read` gives; `None`, and a line of the log: it takes longer than [`READ_WITHIN`]. The next call waits for it again, and
    /// reads again once it has ended.
    async fn read(&mut self, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if let Some(before) = &mut self.0 {
            timeout(READ_WITHIN, before).await.map_err(|_| too_slow()).ok()?.ok();
        }
        let task = self.0.insert(spawn_blocking(read));
        let read = timeout(READ_WITHIN, task).await.map_err(|_| too_slow()).ok()?;
        self.0 = None;
        read.ok()
    }
}

fn too_slow() {
    tracing::error!(target: "antiphon::security", "reload: the files could not be read in 30 s; what was read before stays in use");
}

/// On SIGHUP, sends the files' contents.
fn watch_hang_ups(files: Arc<Files>, reload: mpsc::Sender<Reload>) -> tokio::task::JoinHandle<()> {
    // Like the task that waits for the other signals, it belongs to the process and ends with it.
    #[allow(clippy::disallowed_methods)]
    tokio::spawn(async move {
        let Ok(mut hang_up) = signal(SignalKind::hangup()) else { return };
        let mut reading = FileReader::default();
        while hang_up.recv().await.is_some() {
            tracing::info!("SIGHUP: reading keys, auth tokens, passwords and certificates again");
            let files = files.clone();
            let Some(read) = reading.read(move || files.read()).await else { continue };
            if reload.try_send(read).is_err() {
                tracing::warn!("the reload queue is full: send SIGHUP again later");
            }
        }
    })
}

/// When the file of keys changes, sends the keys. `None`: there is no file, or it cannot be watched.
fn watch_keys(files: Arc<Files>, reload: mpsc::Sender<Reload>) -> Option<tokio::task::JoinHandle<()>> {
    let path = Some(&files.config.api_keys_file).filter(|path| !path.is_empty())?;
    let changes = FileChanges::of(Path::new(path));
    let mut changes = changes
        .map_err(|error| tracing::warn!(%error, "changes of the file of keys are not noticed: send SIGHUP after one"))
        .ok()?;
    let mut before = files.key_file();
    let mut reading = FileReader::default();
    // As above.
    #[allow(clippy::disallowed_methods)]
    Some(tokio::spawn(async move {
        loop {
            if let Err(error) = changes.next().await {
                tracing::warn!(%error, "changes of the file of keys are not noticed any more: send SIGHUP after one");
                return;
            }
            let files = files.clone();
            let last = before.clone();
            let read = reading.read(move || {
                let now = files.key_file();
                let keys = (now != last).then(|| files.keys());
                (now, keys)
            });
            let Some((now, keys)) = read.await else { continue };
            before = now;
            let Some(keys) = keys else { continue };
            tracing::info!("the file of keys has changed");
            if reload.try_send(keys).is_err() {
                tracing::warn!("the reload queue is full: send SIGHUP later");
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_named_by_an_address_browsers_trust() {
        assert_eq!(page(([127, 0, 0, 1], 443).into(), true), "https://127.0.0.1:443");
        let page = |text: &str| page(text.parse().expect("an address"), false);
        assert_eq!(page("0.0.0.0:8080"), "http://localhost:8080");
        assert_eq!(page("[::1]:81"), "http://[::1]:81");
        assert_eq!(page("127.0.0.1:8080"), "http://127.0.0.1:8080");
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_hang_or_are_none_stop_no_later_reload() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("it runs");
        assert!(made.success());
        let api_keys_file = path.to_str().expect("text").to_owned();
        let config = ServerConfig { api_keys_file, ..ServerConfig::default() };
        let sip = SipConfig::default();
        let files = Files { config, sip, telephony: TelephonyConfig::default(), tls_self_signed: false };
        let reload = files.keys();
        assert!(reload.keys.is_none() && reload.failed == ["keys"]);
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "sk-one-of-ours-1234567890\n").expect("written");
        assert!(files.keys().keys.is_some());

        let mut reading = FileReader::default();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let hangs = reading.read(move || {
            let _ = wait.recv();
            1
        });
        let (first, ()) = tokio::join!(hangs, tokio::time::advance(READ_WITHIN + Duration::from_millis(1)));
        assert_eq!(first, None);
        drop(go);
        assert_eq!(reading.read(|| 2).await, Some(2));
    }

    #[tokio::test]
    async fn a_taken_port_is_its_own_error() {
        let first = listen("server.listen", "127.0.0.1:0").await.expect("a free port");
        let address = first.local_addr().expect("bound").to_string();
        let again = listen("wyoming.listen", &address).await.expect_err("taken");
        assert_eq!(again.exit_code(), 4);
        assert!(again.to_string().ends_with("choose another port by wyoming.listen"), "{again}");
    }
}
