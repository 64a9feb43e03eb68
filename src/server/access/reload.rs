//! Replaces keys and certificates while the server runs.
//!
//! `cli` reads the files again on SIGHUP, and that of the keys when it changes, and sends the result; what cannot be read stays
//! in use as it is, and is in the audit log. Removing a key closes its sessions (close code 1008) and revokes its client secrets and its sessions' resume
//! keys. This module reads no file.

use crate::server::app::App;
use super::audit::Line;
use super::keys::Keys;
use crate::server::edge::tls::Tls;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The replacements; `None` keeps the current value.
#[derive(Default)]
pub struct Reload {
    /// The complete set of valid keys.
    pub keys: Option<Keys>,
    /// The certificate for subsequent handshakes. Ignored if the server was started without TLS.
    pub tls: Option<Tls>,
    /// The auth token that Twilio signs with.
    pub twilio_auth_token: Option<String>,
    /// What could not be read, by the audit log's names.
    pub failed: Vec<&'static str>,
    /// Whether the audit log is opened anew, because its file was renamed.
    pub reopens_logs: bool,
}

/// The channel on which reloads arrive.
pub type Reloads = mpsc::Receiver<Reload>;

/// The longest wait for the next key to expire: the clock may be set meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Applies reloads, and ends what keys hold that expire, until the server stops.
pub(in crate::server) async fn run(app: &App, mut reloads: Option<Reloads>, stop: CancellationToken) {
    loop {
        let expiry = app.access.keys().next_expiry();
        let wait = expiry.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default().min(LONGEST_WAIT));
        tokio::select! {
            reload = next(&mut reloads) => match reload {
                Some(reload) => apply(app, reload),
                None => reloads = None,
            },
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {
                app.access.expire();
                app.secrets.retain(|owner| app.access.is_valid(owner));
            }
            () = stop.cancelled() => return,
        }
    }
}

async fn next(reloads: &mut Option<Reloads>) -> Option<Reload> {
    match reloads {
        Some(reloads) => reloads.recv().await,
        None => std::future::pending().await,
    }
}

fn apply(app: &App, Reload { keys, tls, twilio_auth_token, failed, reopens_logs }: Reload) {
    if reopens_logs {
        app.security.audit().reopen();
    }
    let done = |target, outcome: &str| {
        let line = Line { action: "config.reload", target: Some(target), outcome, ..Line::default() };
        app.security.audit().write(line);
    };
    failed.into_iter().for_each(|target| done(target, "failed"));
    if let Some(keys) = keys {
        if app.access.keys().are_on() && !keys.are_on() {
            tracing::error!(target: "antiphon::security", "the reload contains no key: the current keys stay in use");
            done("keys", "no key");
        } else {
            app.limits.replace(&keys);
            let (gone, new) = app.access.replace(keys);
            let sessions: usize = gone.iter().map(|key| app.sessions_of(*key)).sum();
            app.secrets.retain(|owner| app.access.is_valid(owner));
            let gone = gone.len();
            let new = new.len();
            tracing::info!(target: "antiphon::security", gone, new, sessions, "keys were reloaded");
            done("keys", "ok");
        }
    }
    if let Some(token) = twilio_auth_token {
        app.telephony.replace_auth_token(&token);
        done("twilio auth token", "ok");
    }
    match (tls, &app.tls) {
        (Some(tls), Some(serving)) => {
            serving.store(Arc::new(tls));
            tracing::info!(target: "antiphon::security", "the certificate was reloaded");
            done("certificate", "ok");
        }
        (Some(_), None) => tracing::warn!("the hub was started without TLS: restart it to use a certificate"),
        (None, _) => {}
    }
}
