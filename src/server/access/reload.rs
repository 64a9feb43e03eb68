//! Replaces keys, passwords and certificates while the server runs.
//!
//! `cli` reads the files again on SIGHUP, and that of the keys when it changes, and sends the result; what cannot be
//! read stays in use as it is, and is in the audit log. Removing a key closes its sessions (close code 1008) and
//! revokes its client secrets and its sessions' resume keys. What rooms above replace and count is handed in
//! ([`Above`]). This module reads no file.

use super::audit::Line;
use super::keys::Keys;
use super::parts::AccessParts;
use crate::server::edge::tls::Tls;
use antiphon_types::KeyId;
use arc_swap::ArcSwap;
use std::collections::BTreeMap;
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
    /// The certificate of SIP by TLS, where it has one of its own.
    pub sip_tls: Option<Tls>,
    /// The auth token that Twilio signs with.
    pub twilio_auth_token: Option<String>,
    /// The auth tokens and passwords of accounts that have their own, by the accounts' names; others stay as they are.
    pub account_secrets: BTreeMap<String, String>,
    /// The passwords of SIP trunks, by the trunks' names; others stay as they are.
    pub trunk_passwords: BTreeMap<String, String>,
    /// What could not be read, by the audit log's names.
    pub failed: Vec<&'static str>,
    /// Whether the audit log is opened again, because its file was renamed.
    pub reopens_logs: bool,
}

/// The channel on which reloads arrive.
pub type Reloads = mpsc::Receiver<Reload>;

/// What a reload needs of the rooms above this one.
pub(in crate::server) struct Above<'a> {
    /// Replaces the auth token that Twilio signs with.
    pub(in crate::server) replace_twilio_auth_token: &'a (dyn Fn(&str) + Sync),
    /// Replaces the auth tokens and passwords of the accounts of these names.
    pub(in crate::server) replace_account_secrets: &'a (dyn Fn(&BTreeMap<String, String>) + Sync),
    /// Replaces the passwords of the SIP trunks of these names.
    pub(in crate::server) replace_trunk_passwords: &'a (dyn Fn(&BTreeMap<String, String>) + Sync),
    /// The certificate of SIP by TLS, where it has one of its own.
    pub(in crate::server) sip_certificate: Option<&'a ArcSwap<Tls>>,
    /// The number of sessions that belong to a key, for the log.
    pub(in crate::server) sessions_of: &'a (dyn Fn(KeyId) -> usize + Sync),
}

/// The longest wait for the next key to expire: the clock may be set meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Applies reloads, and ends what keys hold that expire, until the server stops.
pub(in crate::server) async fn run(
    access: &AccessParts,
    above: &Above<'_>,
    mut reloads: Option<Reloads>,
    stop: CancellationToken,
) {
    loop {
        let expiry = access.keys.current().next_expiry();
        // A key may have expired while a reload was applied: `expiry` is that of the next one.
        access.keys.expire();
        access.ephemeral_keys.retain(|owner| access.keys.is_valid(owner));
        let wait = expiry.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default().min(LONGEST_WAIT));
        tokio::select! {
            reload = next(&mut reloads) => match reload {
                Some(reload) => apply(access, above, reload),
                None => reloads = None,
            },
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
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

fn apply(access: &AccessParts, above: &Above<'_>, reload: Reload) {
    let Reload { keys, tls, sip_tls, twilio_auth_token, account_secrets, trunk_passwords, failed, reopens_logs } =
        reload;
    if reopens_logs {
        access.security.audit().reopen();
    }
    let done = |target, outcome: &str| {
        let line = Line { action: "config.reload", target: Some(target), outcome, ..Line::default() };
        access.security.audit().write(line);
    };
    failed.into_iter().for_each(|target| done(target, "failed"));
    if let Some(keys) = keys {
        if access.keys.current().are_on() && !keys.are_on() {
            tracing::error!(target: "antiphon::security", "the reload contains no key: the current keys stay in use");
            done("keys", "no key");
        } else {
            access.limits.replace(&keys);
            let (gone, new) = access.keys.replace(keys);
            let sessions: usize = gone.iter().map(|key| (above.sessions_of)(*key)).sum();
            access.ephemeral_keys.retain(|owner| access.keys.is_valid(owner));
            let gone = gone.len();
            let new = new.len();
            tracing::info!(target: "antiphon::security", gone, new, sessions, "keys were reloaded");
            done("keys", "ok");
        }
    }
    if let Some(token) = twilio_auth_token {
        (above.replace_twilio_auth_token)(&token);
        done("twilio auth token", "ok");
    }
    if !account_secrets.is_empty() {
        (above.replace_account_secrets)(&account_secrets);
        done("account secrets", "ok");
    }
    if !trunk_passwords.is_empty() {
        (above.replace_trunk_passwords)(&trunk_passwords);
        done("trunk passwords", "ok");
    }
    if let Some((tls, serving)) = sip_tls.zip(above.sip_certificate) {
        serving.store(Arc::new(tls));
        tracing::info!(target: "antiphon::security", "the certificate of SIP was reloaded");
        done("sip certificate", "ok");
    }
    match (tls, &access.edge.tls) {
        (Some(tls), Some(serving)) => {
            serving.store(Arc::new(tls));
            tracing::info!(target: "antiphon::security", "the certificate was reloaded");
            done("certificate", "ok");
        }
        (Some(_), None) => tracing::warn!("the hub was started without TLS: restart it to use a certificate"),
        (None, _) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LimitsConfig, ServerConfig};
    use crate::server::access::audit::Audit;
    use crate::server::access::ephemeral_keys::EphemeralKeys;
    use crate::server::access::keys::{digest, hex};
    use crate::server::edge::EdgeParts;
    use antiphon_protocol::Dialect;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn what_a_key_holds_that_has_expired_meanwhile_ends_with_the_next_reload() {
        let entry = format!("[[key]]\nname = \"gone\"\nsha256 = \"{}\"\n", hex(&digest("gone")));
        let keys = Keys::of_text(&format!("{entry}expires = 2020-01-01T00:00:00Z\n")).expect("a key");
        let owner = Keys::of(&["gone"]).find("gone");
        let edge = Arc::new(EdgeParts::new(ServerConfig::default(), None));
        let ephemeral_keys = EphemeralKeys::new(Dialect::default(), None);
        let access = AccessParts::new(edge, keys, LimitsConfig::default(), ephemeral_keys, Audit::default());
        let secret = access.ephemeral_keys.make(owner, 1, None, Duration::from_secs(600)).expect("made");
        let above = Above {
            replace_twilio_auth_token: &|_| {},
            replace_account_secrets: &|_| {},
            replace_trunk_passwords: &|_| {},
            sip_certificate: None,
            sessions_of: &|_| 0,
        };
        let (sender, reloads) = mpsc::channel(1);
        sender.try_send(Reload::default()).expect("there is room");
        let running = run(&access, &above, Some(reloads), CancellationToken::new());
        assert!(timeout(Duration::from_secs(1), running).await.is_err(), "it runs on");
        assert_eq!(access.ephemeral_keys.find(&secret), None);
    }
}
