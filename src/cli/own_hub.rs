//! A hub for one command: `ask`, `chat` and `rehearse` start it on a free port of this machine where no `--url` is
//! given.

use super::progress::Progress;
use super::serve::folder_for_recordings;
use super::{CliError, Settings, blocking};
use crate::config::{Config, RtcConfig, SipConfig, TelephonyConfig, WyomingConfig};
use crate::server::{self, Keys, Parts};
use antiphon_telemetry::Metrics;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Starts the hub, runs `work` with its address, and stops it. Dropping the future stops it at once.
///
/// # Errors
/// Those of the settings and engines, and what `work` fails with.
pub(super) async fn with<T>(
    settings: &Settings,
    work: impl AsyncFnOnce(String) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let config = for_one_client(settings.load()?);
    folder_for_recordings(&config.session.record)?;
    let listener = TcpListener::bind(&config.server.listen).await.map_err(|source| CliError::Listen {
        setting: "server.listen",
        address: config.server.listen.clone(),
        source,
    })?;
    let address = listener.local_addr().map_err(|error| CliError::failed(&error))?;
    let wanted = config.clone();
    let loading = Progress::new("loading the engines");
    let engines = blocking(move || crate::assembly::build(&wanted)).await??;
    drop(loading);
    let stop = CancellationToken::new();
    let parts = Parts { config, engines, metrics: Metrics::new(), keys: Keys::default(), tls: None, manager: None };
    let serving = server::serve(listener, parts, stop.clone());
    tokio::pin!(serving);
    let done = tokio::select! {
        ended = &mut serving => {
            let why = ended.err().map_or("without a word".into(), |error| error.to_string());
            return Err(CliError::Failed(format!("the server ended: {why}")));
        }
        done = work(format!("http://{address}")) => done,
    };
    stop.cancel();
    serving.await.map_err(|error| CliError::failed(&error))?;
    done
}

/// The settings of a hub that serves one client of this machine. The hub whose settings these are may run meanwhile:
/// its ports, phone accounts, trunks, jobs and audit log stay its own. Only `serve` joins a cluster.
fn for_one_client(mut config: Config) -> Config {
    config.stt.decoders = 1;
    config.server.listen = "127.0.0.1:0".into();
    config.server.probe_listen.clear();
    config.server.audit_log.clear();
    config.speech.jobs_dir.clear();
    config.rtc = RtcConfig { listen: String::new(), ..RtcConfig::default() };
    config.sip = SipConfig::default();
    config.telephony = TelephonyConfig::default();
    config.wyoming = WyomingConfig::default();
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Sources, load};

    #[test]
    fn a_hub_for_one_client_takes_nothing_that_only_one_hub_may_have() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let settings = r#"
            [server]
            listen = "0.0.0.0:8080"
            probe_listen = "127.0.0.1:8081"
            audit_log = "audit.jsonl"
            [rtc]
            listen = "0.0.0.0:8089"
            [sip]
            listen = "0.0.0.0:5060"
            [telephony]
            audiosocket_listen = "127.0.0.1:9092"
            [telephony.accounts.pbx]
            kind = "asterisk"
            username = "antiphon"
            password_env = "ARI_PASSWORD"
            [wyoming]
            listen = "127.0.0.1:10300"
        "#;
        std::fs::write(file.path(), settings).expect("written");
        let sources = Sources { file: Some(file.path().to_owned()), ..Sources::default() };
        let config = for_one_client(load(&sources).expect("settings"));
        assert_eq!(config.server.listen, "127.0.0.1:0");
        let listening = [
            &config.server.probe_listen,
            &config.rtc.listen,
            &config.sip.listen,
            &config.sip.tls_listen,
            &config.telephony.audiosocket_listen,
            &config.wyoming.listen,
        ];
        assert_eq!(listening, [""; 6]);
        assert!(config.telephony.accounts.is_empty() && config.sip.trunks.is_empty());
        assert!(config.speech.jobs_dir.is_empty() && config.server.audit_log.is_empty());
    }
}
