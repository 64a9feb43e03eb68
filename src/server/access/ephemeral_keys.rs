//! Client secrets (ephemeral keys) for browsers: `POST /v1/realtime/client_secrets` creates one, bound to session
//! settings.
//!
//! The pre-GA equivalent is `POST /v1/realtime/sessions`. The settings are validated like those of a `session.update`.
//!
//! A page cannot keep an API key secret, so its own server requests an `ek_` key with the API key and passes it on. It
//! is valid for `/v1/realtime` only, any number of times until it expires. The store is bounded, holds only hashes, and
//! drops expired keys; nothing here logs a key. In a cluster with JetStream a client secret is stored there, too, and a hub
//! that does not know one looks for it there ([`fetch`]).

use crate::server::app::App;
use super::auth::{self, Caller, Credential, Identity, seconds as retry_after};
use crate::server::edge::client::Client;
use super::guard::refused;
use super::keys::{self, Digest};
use antiphon_protocol::{ClientEvent, Dialect, ServerEvent, SessionUpdate, WireError};
use antiphon_types::KeyId;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{self, Extension, FromRequest, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;
use tokio::time::{Instant, timeout};

/// Prefix of client secrets, as the protocol's clients expect.
pub(in crate::server) const PREFIX: &str = "ek_";
/// Maximum number of unexpired client secrets, and of the bytes of their settings as sent.
const MAX_SECRETS: usize = 1_024;
const MAX_BYTES: usize = 64 << 20;
/// Upper limit on the number of shares: with several API keys, each may hold at most `1 / min(number of keys, SHARES)`
/// of both; a single key may hold all.
const SHARES: usize = 4;
/// Bytes per client secret in addition to its settings.
const OVERHEAD: usize = 128;
/// Maximum size of a request body, and so of the settings.
pub(in crate::server) const MAX_BODY_BYTES: usize = 128 * 1024;
/// Lifetime in seconds: the protocol's default and range.
const DEFAULT_SECONDS: u64 = 600;
const SECONDS: std::ops::RangeInclusive<u64> = 10..=7_200;
/// Timeout for receiving a request body.
const BODY: Duration = Duration::from_secs(10);

/// The unexpired client secrets, oldest first.
#[derive(Default)]
pub(in crate::server) struct Secrets(Mutex<Vec<Secret>>);

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
struct Settings {
    text: Arc<str>,
    dialect: Dialect,
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

/// The API key has reached its share; one of its client secrets expires after this time.
#[derive(Debug)]
struct Full(Duration);

impl Secrets {
    /// Creates a client secret of `owner` that opens sessions with these settings for `life`. `n_owners`: the number of
    /// API keys that share the store. If the store is full, the oldest client secret of the owner that uses the most
    /// bytes is removed.
    fn make(
        &self,
        owner: Option<KeyId>,
        n_owners: usize,
        settings: Option<Settings>,
        life: Duration,
    ) -> Result<String, Full> {
        let now = Instant::now();
        let key = keys::make(PREFIX);
        let secret = Secret { digest: keys::digest(&key), expires: now + life, owner, settings };
        self.insert(secret, n_owners, life)?;
        Ok(key)
    }

    fn insert(&self, secret: Secret, n_owners: usize, life: Duration) -> Result<(), Full> {
        let now = Instant::now();
        let owner = secret.owner;
        let mut secrets = self.0.lock().expect("no panic while locked");
        secrets.retain(|secret| secret.expires > now);
        let shares = n_owners.clamp(1, SHARES);
        let held = |secrets: &[Secret], owner| {
            let own = secrets.iter().filter(|secret| secret.owner == owner);
            own.fold((0, 0), |(n, bytes), secret| (n + 1, bytes + secret.bytes()))
        };
        let (n, bytes) = held(&secrets, owner);
        if n >= MAX_SECRETS / shares || bytes + secret.bytes() > MAX_BYTES / shares {
            let next = secrets.iter().filter(|secret| secret.owner == owner).map(|secret| secret.expires).min();
            return Err(Full(next.map_or(life, |next| next - now)));
        }
        while secrets.len() >= MAX_SECRETS
            || secrets.iter().map(Secret::bytes).sum::<usize>() + secret.bytes() > MAX_BYTES
        {
            let greediest = secrets.iter().map(|secret| secret.owner).max_by_key(|owner| held(&secrets, *owner).1);
            let oldest = secrets.iter().position(|secret| Some(secret.owner) == greediest);
            secrets.remove(oldest.unwrap_or(0));
        }
        secrets.push(secret);
        Ok(())
    }

    fn knows(&self, digest: &Digest) -> bool {
        let now = Instant::now();
        let secrets = self.0.lock().expect("no panic while locked");
        secrets.iter().any(|secret| bool::from(secret.digest.ct_eq(digest)) && secret.expires > now)
    }

    fn remove(&self, digest: &Digest) {
        self.0.lock().expect("no panic while locked").retain(|secret| secret.digest != *digest);
    }

    /// The caller that `key` authenticates; `None` if it is unknown or has expired. Compares every key, in constant
    /// time.
    pub(in crate::server) fn find(&self, key: &str) -> Option<Caller> {
        let now = Instant::now();
        let digest = keys::digest(key);
        let mut found = None;
        for secret in self.0.lock().expect("no panic while locked").iter() {
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
        self.0.lock().expect("no panic while locked").retain(|secret| such(secret.owner));
    }
}

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    expires_after: Option<ExpiresAfter>,
    #[serde(default)]
    session: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ExpiresAfter {
    #[serde(default)]
    anchor: Option<String>,
    #[serde(default)]
    seconds: Option<u64>,
}

/// The handler. Responds with `{value, expires_at, session}`; `session` is the complete effective session.
pub(in crate::server) async fn create(
    State(app): State<Arc<App>>,
    identity: Identity,
    Extension(client): Extension<Client>,
    request: extract::Request,
) -> Response {
    let dialect = app.dialect();
    match made(&app, (identity, client), request, dialect, read).await {
        Ok(Made { value, expires_at, session }) => {
            Json(json!({"value": value, "expires_at": expires_at, "session": session})).into_response()
        }
        Err(response) => response,
    }
}

/// The pre-GA handler, `POST /v1/realtime/sessions`: the body is the flat session itself, and the response is the
/// complete session with `client_secret: {value, expires_at}`. The sessions it opens speak the dialect their connection
/// requests.
pub(in crate::server) async fn create_flat(
    State(app): State<Arc<App>>,
    identity: Identity,
    Extension(client): Extension<Client>,
    request: extract::Request,
) -> Response {
    let dialect = Dialect { beta: true, ..app.dialect() };
    match made(&app, (identity, client), request, dialect, read_flat).await {
        Ok(Made { value, expires_at, mut session }) => {
            session["client_secret"] = json!({"value": value, "expires_at": expires_at});
            Json(session).into_response()
        }
        Err(response) => response,
    }
}

/// A created client secret.
struct Made {
    value: String,
    /// Unix time in seconds.
    expires_at: u64,
    /// The effective session, in the format of its first event.
    session: Value,
}

/// The requested lifetime in seconds, and the settings, parsed and as sent.
type Wishes = (u64, Option<(SessionUpdate, Arc<str>)>);
type Reader = fn(&[u8], Dialect) -> Result<Wishes, WireError>;

async fn made(
    app: &App,
    (identity, client): (Identity, Client),
    request: extract::Request,
    dialect: Dialect,
    read: Reader,
) -> Result<Made, Response> {
    let route = request.uri().path().to_owned();
    let body = timeout(BODY, Bytes::from_request(request, &())).await;
    let body = body.map_err(|_| {
        refused(StatusCode::REQUEST_TIMEOUT, "request_timeout", "The request body was not received in time.")
    })?;
    let body = body.map_err(IntoResponse::into_response)?;
    let wishes = read(&body, dialect).and_then(|(seconds, settings)| {
        let session = app.setup().describe(settings.as_ref().map(|(settings, _)| settings), identity.owner)?;
        let settings = settings.map(|(_, text)| Settings { text, dialect });
        Ok((seconds, settings, ServerEvent::SessionCreated { session: Box::new(session) }))
    });
    let (seconds, settings, created) = wishes.map_err(|error| {
        let mut error = shown(dialect, &ServerEvent::Error { error }, "error");
        for name in ["param", "message"].iter().filter(|_| dialect.beta) {
            // The flat format has no `session` object that a path could start with.
            error[name] = error[name].as_str().map(|text| text.replace("session.", "")).into();
        }
        (StatusCode::BAD_REQUEST, Json(json!({"error": error}))).into_response()
    })?;
    let n_owners = app.access.keys().n_keys();
    let life = Duration::from_secs(seconds);
    let made = app.secrets.make(identity.owner, n_owners, settings.clone(), life);
    let value = made.map_err(|Full(wait)| {
        let message = "Your API key has reached its limit of client secrets. Try again when some have expired.";
        let mut response = refused(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
        response.headers_mut().insert(header::RETRY_AFTER, retry_after(wait));
        response
    })?;
    share(app, &value, identity.owner, settings, life).await?;
    app.security.act(client, &route, identity.owner, "a short-lived key was made");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(Made { value, expires_at: now + seconds, session: shown(dialect, &created, "session") })
}

/// Stores a client secret for the other hubs. One that only this hub knew would fail at random behind a balancer: `Err` then.
async fn share(
    app: &App,
    key: &str,
    owner: Option<KeyId>,
    settings: Option<Settings>,
    life: Duration,
) -> Result<(), Response> {
    let Some(bucket) = app.shared_keys() else { return Ok(()) };
    let digest = keys::digest(key);
    let expires = SystemTime::now() + life;
    let stored = StoredSecret {
        owner,
        expires_at_ms: expires.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
        settings: settings
            .map(|Settings { text, dialect }| StoredSettings { text: text.to_string(), beta: dialect.beta }),
    };
    let value = serde_json::to_vec(&stored).expect("a secret has text for keys");
    if let Err(error) = bucket.create(&keys::hex(&digest), &value, Some(life)).await {
        tracing::warn!(%error, "a short-lived key cannot be stored for the other hubs");
        app.secrets.remove(&digest);
        let message = "The key cannot be stored at this moment. Try again.";
        let mut response = refused(StatusCode::SERVICE_UNAVAILABLE, "keys_unavailable", message);
        response.headers_mut().insert(header::RETRY_AFTER, retry_after(Duration::from_secs(1)));
        return Err(response);
    }
    Ok(())
}

/// Looks for a client secret that another hub made, where this one does not know it: then [`Secrets::find`] finds it. Waits for
/// JetStream, 5 s at most.
pub(in crate::server) async fn fetch(app: &App, client: Client, headers: &HeaderMap) {
    let Some(bucket) = app.shared_keys() else { return };
    let Some(key) = auth::presented(headers).filter(|key| key.starts_with(PREFIX)) else { return };
    let digest = keys::digest(&key);
    if app.secrets.knows(&digest) || app.attempts.check(client.network()).is_err() {
        return;
    }
    let Ok(_fetching) = app.fetching.try_acquire() else { return };
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
        dialect: Dialect { beta, ..app.dialect() },
    });
    let secret = Secret { digest, expires: Instant::now() + life, owner, settings };
    let n_owners = app.access.keys().n_keys();
    // Without room it is looked for again.
    let _ = app.secrets.insert(secret, n_owners, life);
}

/// One field of an event, encoded as a connection would receive it. HTTP errors carry no event id.
fn shown(dialect: Dialect, event: &ServerEvent, field: &str) -> Value {
    let text = dialect.encode(event, "").expect("every dialect has it");
    let mut event: Value = serde_json::from_str(&text).expect("an event is JSON");
    let mut shown = event[field].take();
    if field == "error" {
        shown.as_object_mut().expect("an object").remove("event_id");
    }
    shown
}

/// An empty body requests the defaults.
fn read(body: &[u8], dialect: Dialect) -> Result<Wishes, WireError> {
    let request: Request = object(body)?;
    let seconds = seconds(request.expires_after)?;
    let settings = request.session.map(|session| settings(session.get(), dialect)).transpose()?;
    Ok((seconds, settings))
}

#[derive(Default, Deserialize)]
struct Flat {
    #[serde(default)]
    client_secret: Option<ClientSecret>,
}

#[derive(Deserialize)]
struct ClientSecret {
    #[serde(default)]
    expires_after: Option<ExpiresAfter>,
}

fn read_flat(body: &[u8], dialect: Dialect) -> Result<Wishes, WireError> {
    let flat: Flat = object(body)?;
    let seconds = seconds(flat.client_secret.and_then(|wish| wish.expires_after))?;
    let session = if body.trim_ascii().is_empty() { "{}" } else { std::str::from_utf8(body).expect("JSON is text") };
    Ok((seconds, Some(settings(session, dialect)?)))
}

fn object<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, WireError> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    // serde would also accept a list of the fields in order.
    let parsed = match body.trim_ascii_start().first() {
        Some(b'{') => serde_json::from_slice(body).map_err(|error| error.to_string()),
        _ => Err("it is no object".into()),
    };
    parsed.map_err(|why| {
        WireError::invalid("invalid_json", format!("We could not parse the JSON body of your request: {why}."), None)
    })
}

fn seconds(after: Option<ExpiresAfter>) -> Result<u64, WireError> {
    let Some(after) = after else { return Ok(DEFAULT_SECONDS) };
    if after.anchor.is_some_and(|anchor| anchor != "created_at") {
        let message = "Invalid 'expires_after.anchor'. Supported values are: 'created_at'.";
        return Err(WireError::invalid("invalid_value", message, Some("expires_after.anchor")));
    }
    let seconds = after.seconds.unwrap_or(DEFAULT_SECONDS);
    if SECONDS.contains(&seconds) {
        return Ok(seconds);
    }
    let (code, than) = match seconds < *SECONDS.start() {
        true => ("integer_below_min_value", format!(">= {}", SECONDS.start())),
        false => ("integer_above_max_value", format!("<= {}", SECONDS.end())),
    };
    let message = format!("Invalid 'expires_after.seconds': expected a value {than}, but got {seconds} instead.");
    Err(WireError::invalid(code, message, Some("expires_after.seconds")))
}

/// The session's settings, parsed like those of a `session.update`, and their text.
fn settings(session: &str, dialect: Dialect) -> Result<(SessionUpdate, Arc<str>), WireError> {
    Ok((read_settings(session, dialect)?, session.into()))
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
