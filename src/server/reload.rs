//! New keys and certificates while the server serves.
//!
//! `cli` reads the files again when it is told to (SIGHUP) and sends what it read; nothing is sent of what cannot be used,
//! so that what serves goes on serving. A key that is gone takes its sessions with it (close code 1008), its short-lived
//! keys, and its sessions' keys to come back. It reads no file.

use super::app::App;
use super::keys::Keys;
use super::tls::Tls;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// What to put into the place of what serves; `None`: that stays.
#[derive(Default)]
pub struct Reload {
    /// All keys that are valid from now on.
    pub keys: Option<Keys>,
    /// For the handshakes that begin from now on. A server that began without TLS stays without.
    pub tls: Option<Tls>,
}

/// Where reloads come from.
pub type Reloads = mpsc::Receiver<Reload>;

/// Takes reloads until the server stops.
pub(super) async fn run(app: &App, reloads: Option<Reloads>, stop: CancellationToken) {
    let Some(mut reloads) = reloads else { return };
    loop {
        tokio::select! {
            reload = reloads.recv() => match reload {
                Some(reload) => apply(app, reload),
                None => return,
            },
            () = stop.cancelled() => return,
        }
    }
}

fn apply(app: &App, Reload { keys, tls }: Reload) {
    if let Some(keys) = keys {
        if app.access.keys().are_on() && !keys.are_on() {
            tracing::error!(target: "antiphon::security", "the reload holds no key: the keys stay as they are");
        } else {
            let (gone, new) = app.access.replace(keys);
            let sessions: usize = gone.iter().map(|key| app.sessions_of(*key)).sum();
            app.secrets.retain(|owner| app.access.is_valid(owner));
            let (gone, new) = (gone.len(), new.len());
            tracing::info!(target: "antiphon::security", gone, new, sessions, "keys were reloaded");
        }
    }
    match (tls, &app.tls) {
        (Some(tls), Some(serving)) => {
            serving.store(Arc::new(tls));
            tracing::info!(target: "antiphon::security", "the certificate was reloaded");
        }
        (Some(_), None) => tracing::warn!("the hub began without TLS: restart it to serve with a certificate"),
        (None, _) => {}
    }
}
