//! The short-lived keys (client secrets) of this hub: a bounded store of their hashes, each with the session settings
//! it is bound to.
//!
//! A page cannot keep an API key secret, so its own server requests an `ek_` key with the API key and passes it on
//! ([`crate::server::sessions::client_secrets`] makes it). It is valid for `/v1/realtime` only, any number of times
//! until it expires. The store is bounded, holds only hashes, and drops expired keys; nothing here logs a key. In a
//! cluster with JetStream a client secret is stored there, too, and a hub that does not know one looks for it there
//! ([`EphemeralKeys::fetch`]).

use super::caller::{Caller, Credential};
use super::keys::{self, Digest};
use antiphon_cluster::jetstream::{Bucket, RecordError};
use antiphon_protocol::{ClientEvent, Dialect, MAX_EVENT_BYTES, SessionUpdate, WireError};
use antiphon_types::KeyId;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Maximum number of unexpired client secrets, and of the bytes of their settings as sent: of those made here, and the same of
/// those of other hubs.
const MAX_SECRETS: usize = 1_024;
const MAX_BYTES: usize = 64 << 20;
/// Upper limit on the number of shares: with several API keys, each may hold at most `1 / min(number of keys, SHARES)`
/// of both; a single key may hold all.
const SHARES: usize = 4;
/// Bytes per client secret in addition to its settings.
const OVERHEAD: usize = 128;
/// Maximum size of a request body, and so of the settings: that of the `session.update` that they could be.
pub(in crate::server) const MAX_BODY_BYTES: usize = MAX_EVENT_BYTES;
/// Short-lived keys that are being looked for at other hubs' store; beyond it, an unknown key is a wrong one.
const MAX_FETCHING: usize = 256;

/// See the module.
pub(in crate::server) struct EphemeralKeys {
    secrets: Mutex<Secrets>,
    /// How the settings of other hubs' keys are parsed.
    dialect: Dialect,
    /// Where they are shared with other hubs; `None` without `cluster.jetstream`.
    shared: Option<Bucket>,
    /// Permits to look for those of other hubs.
    fetching: Semaphore,
}

/// Unexpired client secrets, oldest first.
#[derive(Default)]
struct Secrets {
    /// Made here.
    made: Vec<Secret>,
    /// Made by other hubs; each can be fetched again.
    fetched: Vec<Secret>,
}

#[derive(Clone)]
struct Secret {
    digest: Digest,
    expires: Instant,
    /// The API key that created it.
    owner: Option<KeyId>,
    settings: Option<Settings>,
}

/// A session's settings as sent, after validation. They are parsed again for each session; as text, their memory use
/// equals their size.
#[derive(Clone)]
pub(in crate::server) struct Settings {
    pub(in crate::server) text: Arc<str>,
    pub(in crate::server) dialect: Dialect,
}

/// A client secret as other hubs read it.
#[derive(Deserialize, Serialize)]
struct StoredSecret {
    owner: Option<KeyId>,
    /// Unix time in milliseconds.
    expires_at_ms: u64,
    settings: Option<StoredSettings>,
}

#[derive(Deserialize, Serialize)]
struct StoredSettings {
    text: String,
    beta: bool,
}

impl Secret {
    fn bytes(&self) -> usize {
        OVERHEAD + self.settings.as_ref().map_or(0, |settings| settings.text.len())
    }
}

impl Secrets {
    fn iter(&self) -> impl Iterator<Item = &Secret> {
        self.made.iter().chain(&self.fetched)
    }

    fn retain(&mut self, such: impl Fn(&Secret) -> bool) {
        self.made.retain(&such);
        self.fetched.retain(&such);
    }
}

/// How many client secrets an API key holds, and their bytes.
fn held(secrets: &[Secret], owner: Option<KeyId>) -> (usize, usize) {
    let own = secrets.iter().filter(|secret| secret.owner == owner);
    own.fold((0, 0), |(n, bytes), secret| (n + 1, bytes + secret.bytes()))
}

/// Whether another one is beyond its owner's share.
fn is_beyond_share(secrets: &[Secret], secret: &Secret, n_owners: usize) -> bool {
    let shares = n_owners.clamp(1, SHARES);
    let (n, bytes) = held(secrets, secret.owner);
    n >= MAX_SECRETS / shares || bytes + secret.bytes() > MAX_BYTES / shares
}

/// Adds one. Where there is no room, the oldest of the owner with the most bytes goes.
fn add(secrets: &mut Vec<Secret>, secret: Secret) {
    while secrets.len() >= MAX_SECRETS || secrets.iter().map(Secret::bytes).sum::<usize>() + secret.bytes() > MAX_BYTES
    {
        let greediest = secrets.iter().map(|secret| secret.owner).max_by_key(|owner| held(secrets, *owner).1);
        let oldest = secrets.iter().position(|secret| Some(secret.owner) == greediest);
        secrets.remove(oldest.unwrap_or(0));
    }
    secrets.push(secret);
}

/// The API key has reached its share; one of its client secrets expires after this time.
#[derive(Debug)]
pub(in crate::server) struct Full(pub(in crate::server) Duration);

impl EphemeralKeys {
    pub(in crate::server) fn new(dialect: Dialect, shared: Option<Bucket>) -> Self {
        Self { secrets: Mutex::default(), dialect, shared, fetching: Semaphore::new(MAX_FETCHING) }
    }

    /// Creates a client secret of `owner` that opens sessions with these settings for `life`. `n_owners`: the number of
    /// API keys that share the store. If the store is full, the oldest client secret of the owner that uses the most
    /// bytes is removed.
    pub(in crate::server) fn make(
        &self,
        owner: Option<KeyId>,
        n_owners: usize,
        settings: Option<Settings>,
        life: Duration,
    ) -> Result<String, Full> {
        let now = Instant::now();
        let key = keys::make(keys::EPHEMERAL);
        let secret = Secret { digest: keys::digest(&key), expires: now + life, owner, settings };
        self.insert(secret, n_owners, life)?;
        Ok(key)
    }

    fn insert(&self, secret: Secret, n_owners: usize, life: Duration) -> Result<(), Full> {
        let now = Instant::now();
        let mut secrets = self.secrets.lock().expect("no panic while locked");
        secrets.retain(|secret| secret.expires > now);
        if is_beyond_share(&secrets.made, &secret, n_owners) {
            let own = secrets.made.iter().filter(|made| made.owner == secret.owner);
            let next = own.map(|made| made.expires).min();
            return Err(Full(next.map_or(life, |next| next - now)));
        }
        add(&mut secrets.made, secret);
        Ok(())
    }

    /// Keeps one of another hub, in place of its owner's oldest ones where they have the owner's share.
    fn keep(&self, secret: Secret, n_owners: usize) {
        let now = Instant::now();
        let mut secrets = self.secrets.lock().expect("no panic while locked");
        // Two sessions may have fetched it at once.
        secrets.retain(|kept| kept.expires > now && kept.digest != secret.digest);
        while is_beyond_share(&secrets.fetched, &secret, n_owners) {
            let Some(oldest) = secrets.fetched.iter().position(|kept| kept.owner == secret.owner) else { break };
            secrets.fetched.remove(oldest);
        }
        add(&mut secrets.fetched, secret);
    }

    fn knows(&self, digest: &Digest) -> bool {
        let now = Instant::now();
        let secrets = self.secrets.lock().expect("no panic while locked");
        secrets.iter().any(|secret| bool::from(secret.digest.ct_eq(digest)) && secret.expires > now)
    }

    fn remove(&self, digest: &Digest) {
        self.secrets.lock().expect("no panic while locked").retain(|secret| secret.digest != *digest);
    }

    /// The caller that `key` authenticates; `None` if it is unknown or has expired. Compares every key, in constant
    /// time.
    pub(in crate::server) fn find(&self, key: &str) -> Option<Caller> {
        let now = Instant::now();
        let digest = keys::digest(key);
        let mut found = None;
        for secret in self.secrets.lock().expect("no panic while locked").iter() {
            if bool::from(secret.digest.ct_eq(&digest)) && secret.expires > now {
                found = Some((secret.owner, secret.settings.clone()));
            }
        }
        let (owner, settings) = found?;
        let settings = settings.map(|Settings { text, dialect }| read_settings(&text, dialect)).transpose();
        let settings = settings.inspect_err(|error| {
            tracing::error!(
                code = error.code,
                "the settings of a client secret were accepted but cannot be parsed again"
            );
        });
        Some(Caller { owner, settings: settings.ok()?.map(Arc::new), credential: Credential::Key, language: None })
    }

    /// Removes the client secrets whose API key does not satisfy `such`.
    pub(in crate::server) fn retain(&self, such: impl Fn(Option<KeyId>) -> bool) {
        self.secrets.lock().expect("no panic while locked").retain(|secret| such(secret.owner));
    }

    /// Stores a key that was made here for the other hubs.
    ///
    /// # Errors
    /// It cannot be stored; it is removed here, because one that only this hub knew would fail at random behind a
    /// balancer.
    pub(in crate::server) async fn share(
        &self,
        key: &str,
        owner: Option<KeyId>,
        settings: Option<Settings>,
        life: Duration,
    ) -> Result<(), RecordError> {
        let Some(bucket) = &self.shared else { return Ok(()) };
        let digest = keys::digest(key);
        let expires = SystemTime::now() + life;
        let stored = StoredSecret {
            owner,
            expires_at_ms: expires.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
            settings: settings
                .map(|Settings { text, dialect }| StoredSettings { text: text.to_string(), beta: dialect.beta }),
        };
        let value = serde_json::to_vec(&stored).expect("a secret has text for keys");
        let created = bucket.create(&keys::hex(&digest), &value, Some(life)).await;
        created.map(drop).inspect_err(|_| self.remove(&digest))
    }

    /// Looks for a key that another hub made, where this one does not know it: then [`EphemeralKeys::find`] finds it.
    /// Waits for JetStream, 5 s at most. `n_owners`: the number of API keys that share the store.
    pub(super) async fn fetch(&self, key: &str, n_owners: usize) {
        let Some(bucket) = &self.shared else { return };
        let digest = keys::digest(key);
        if self.knows(&digest) {
            return;
        }
        let Ok(_fetching) = self.fetching.try_acquire() else { return };
        let record = match bucket.get(&keys::hex(&digest)).await {
            Ok(Some(record)) => record,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "short-lived keys of other hubs cannot be looked for");
                return;
            }
        };
        let Ok(StoredSecret { owner, expires_at_ms, settings }) = serde_json::from_slice(&record.value) else {
            tracing::error!("a short-lived key of another hub cannot be read; is that hub newer?");
            return;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let life = Duration::from_millis(expires_at_ms).saturating_sub(now);
        let settings = settings.map(|StoredSettings { text, beta }| Settings {
            text: text.into(),
            dialect: Dialect { beta, ..self.dialect },
        });
        let secret = Secret { digest, expires: Instant::now() + life, owner, settings };
        self.keep(secret, n_owners);
    }
}

/// Parses settings as those of a `session.update`.
pub(in crate::server) fn read_settings(session: &str, dialect: Dialect) -> Result<SessionUpdate, WireError> {
    let update = format!(r#"{{"type":"session.update","session":{session}}}"#);
    match dialect.parse(&update)?.event {
        ClientEvent::SessionUpdate(update) => Ok(*update),
        _ => Err(WireError::invalid("invalid_value", "Invalid 'session'.", Some("session"))),
    }
}

#[cfg(test)]
#[path = "ephemeral_keys_tests.rs"]
mod tests;
