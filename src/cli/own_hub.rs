//! A hub for one command: `ask` and `chat` start it on a free port of this machine where no `--url` is given.

use super::progress::Progress;
use super::{CliError, Settings, blocking};
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
    let mut config = settings.load()?;
    config.stt.decoders = 1;
    config.server.listen = "127.0.0.1:0".into();
    // This hub serves a single client, so it needs no job folder.
    config.speech.jobs_dir.clear();
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
