//! The signals of a process that stays, `serve` and `worker`: those that end it, and a worker's SIGHUP.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancels `stop` on the first SIGINT or SIGTERM and exits the process on the second.
pub(super) fn watch(stop: CancellationToken) -> tokio::task::JoinHandle<()> {
    // The only task outside of a task tracker: it belongs to the process and ends with it.
    #[allow(clippy::disallowed_methods)]
    tokio::spawn(async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            tracing::warn!("signal handlers cannot be installed: the process will exit without draining");
            return;
        };
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if stop.is_cancelled() {
                std::process::exit(130);
            }
            tracing::info!("stopping; a second signal exits immediately");
            stop.cancel();
        }
    })
}

/// Reads the files of upstream keys again on each SIGHUP, which would end the process otherwise.
pub(super) fn watch_hang_ups() -> tokio::task::JoinHandle<()> {
    // As above.
    #[allow(clippy::disallowed_methods)]
    tokio::spawn(async move {
        let Ok(mut hang_up) = signal(SignalKind::hangup()) else { return };
        while hang_up.recv().await.is_some() {
            tracing::info!("SIGHUP: reading upstream keys again");
            let _ = super::blocking(antiphon_engines::secret::reload).await;
        }
    })
}
