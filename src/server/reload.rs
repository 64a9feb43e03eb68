//! Replaces keys and certificates while the server runs.
//!
//! `cli` reads the files again on SIGHUP and sends the result; on an error it sends nothing, and the current ones stay
//! in use. Removing a key closes its sessions (close code 1008) and revokes its client secrets and its sessions' resume
//! keys. This module reads no file.

use super::app::App;
use super::keys::Keys;
use super::tls::Tls;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The replacements; `None` keeps the current value.
#[derive(Default)]
pub struct Reload {
    /// The complete set of valid keys.
    pub keys: Option<Keys>,
    /// The certificate for subsequent handshakes. Ignored if the server was started without TLS.
    pub tls: Option<Tls>,
}

/// The channel on which reloads arrive.
pub type Reloads = mpsc::Receiver<Reload>;

/// Applies reloads until the server stops.
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
            tracing::error!(target: "antiphon::security", "the reload contains no key: the current keys stay in use");
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
        (Some(_), None) => tracing::warn!("the hub was started without TLS: restart it to use a certificate"),
        (None, _) => {}
    }
}
