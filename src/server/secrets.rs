//! Short-lived keys for browsers: `POST /v1/realtime/client_secrets` makes one, bound to the settings its sessions begin with.
//!
//! A page cannot keep a key secret, so its own server asks for an `ek_` key with the real one and hands it over. It opens
//! `/v1/realtime` only, as often as wanted until it expires. The store is bounded, holds hashes, and forgets what has
//! expired; nothing here logs a key.

use super::app::App;
use super::guard::refused;
use super::keys::{self, Digest};
use crate::wire::{self, ClientEvent, ServerEvent, SessionUpdate, WireError};
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

/// What these keys begin with, as the protocol's clients expect.
pub(super) const PREFIX: &str = "ek_";
/// Keys alive at once; one more is refused with 429.
const MAX_SECRETS: usize = 1_024;
/// The largest settings a key may be bound to: 1024 of them are 128 MiB.
pub(super) const MAX_BODY_BYTES: usize = 128 * 1024;
/// How long a key lives: the protocol's default and bounds.
const DEFAULT_SECONDS: u64 = 600;
const SECONDS: std::ops::RangeInclusive<u64> = 10..=7_200;

/// The keys that live.
#[derive(Default)]
pub(super) struct Secrets(Mutex<Vec<Secret>>);

struct Secret {
    digest: Digest,
    expires: Instant,
    settings: Option<Arc<SessionUpdate>>,
}

/// There are [`MAX_SECRETS`] already.
#[derive(Debug)]
struct Full;

impl Secrets {
    /// Makes a key that opens sessions with these settings for `life`.
    fn make(&self, settings: Option<SessionUpdate>, life: Duration) -> Result<String, Full> {
        let now = Instant::now();
        let key = keys::make(PREFIX);
        let mut secrets = self.0.lock().expect("no panic while locked");
        secrets.retain(|secret| secret.expires > now);
        if secrets.len() >= MAX_SECRETS {
            return Err(Full);
        }
        let settings = settings.map(Arc::new);
        secrets.push(Secret { digest: keys::digest(&key), expires: now + life, settings });
        Ok(key)
    }

    /// What `key` is bound to; `None` when it is unknown or has expired. Looks at every key, whichever fits.
    pub(super) fn find(&self, key: &str) -> Option<Option<Arc<SessionUpdate>>> {
        let (now, digest) = (Instant::now(), keys::digest(key));
        let secrets = self.0.lock().expect("no panic while locked");
        let mut found = None;
        for secret in secrets.iter() {
            if bool::from(secret.digest.ct_eq(&digest)) && secret.expires > now {
                found = Some(secret.settings.clone());
            }
        }
        found
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

/// The handler. Answers `{value, expires_at, session}`; the session is the whole effective one.
pub(super) async fn create(State(app): State<Arc<App>>, body: Bytes) -> Response {
    let (seconds, settings) = match read(&body) {
        Ok(read) => read,
        Err(error) => return (StatusCode::BAD_REQUEST, Json(json!({"error": without_event(&error)}))).into_response(),
    };
    // In the shape that the session's own first event will have.
    let created = ServerEvent::SessionCreated { session: Box::new(app.setup.describe(settings.as_ref())) };
    let session = json!(created)["session"].take();
    let Ok(value) = app.secrets.make(settings, Duration::from_secs(seconds)) else {
        let message = "There are too many client secrets alive. Try again when some have expired.";
        return refused(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Json(json!({"value": value, "expires_at": now + seconds, "session": session})).into_response()
}

/// Seconds to live, and the settings; an empty body is one without wishes.
fn read(body: &[u8]) -> Result<(u64, Option<SessionUpdate>), WireError> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    // A list would pass for an object with its fields in order.
    let parsed = match body.trim_ascii_start().first() {
        Some(b'{') => serde_json::from_slice(body).map_err(|error| error.to_string()),
        _ => Err("it is no object".into()),
    };
    let request: Request = parsed.map_err(|why| {
        WireError::invalid("invalid_json", format!("We could not parse the JSON body of your request: {why}."), None)
    })?;
    let mut seconds = DEFAULT_SECONDS;
    if let Some(after) = request.expires_after {
        if after.anchor.is_some_and(|anchor| anchor != "created_at") {
            let message = "Invalid 'expires_after.anchor'. Supported values are: 'created_at'.";
            return Err(WireError::invalid("invalid_value", message, Some("expires_after.anchor")));
        }
        seconds = after.seconds.unwrap_or(DEFAULT_SECONDS);
    }
    if !SECONDS.contains(&seconds) {
        let (code, than) = match seconds < *SECONDS.start() {
            true => ("integer_below_min_value", format!(">= {}", SECONDS.start())),
            false => ("integer_above_max_value", format!("<= {}", SECONDS.end())),
        };
        let message = format!("Invalid 'expires_after.seconds': expected a value {than}, but got {seconds} instead.");
        return Err(WireError::invalid(code, message, Some("expires_after.seconds")));
    }
    let settings = request.session.map(|session| settings(session.get())).transpose()?;
    Ok((seconds, settings))
}

/// The session's settings, read and judged as a `session.update` would be.
fn settings(session: &str) -> Result<SessionUpdate, WireError> {
    let update = format!(r#"{{"type":"session.update","session":{session}}}"#);
    match wire::parse(&update)?.event {
        ClientEvent::SessionUpdate(update) => Ok(*update),
        _ => Err(WireError::invalid("invalid_value", "Invalid 'session'.", Some("session"))),
    }
}

/// HTTP errors carry no event id.
fn without_event(error: &WireError) -> Value {
    json!({"type": error.kind, "code": error.code, "message": error.message, "param": error.param})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_opens_until_it_expires() {
        let secrets = Secrets::default();
        let settings = settings(r#"{"type":"realtime","instructions":"Be brief."}"#).unwrap();
        let key = secrets.make(Some(settings), Duration::from_secs(10)).unwrap();
        assert!(key.starts_with("ek_") && key.len() == 67, "{key}");
        let bound = secrets.find(&key).unwrap().unwrap();
        assert_eq!(bound.instructions.as_deref(), Some("Be brief."));
        assert!(secrets.find("ek_other").is_none());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(secrets.find(&key).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_store_is_bounded_and_forgets_what_expired() {
        let secrets = Secrets::default();
        for _ in 0..MAX_SECRETS {
            secrets.make(None, Duration::from_secs(10)).unwrap();
        }
        assert!(secrets.make(None, Duration::from_secs(10)).is_err());
        tokio::time::advance(Duration::from_secs(10)).await;
        secrets.make(None, Duration::from_secs(10)).unwrap();
        assert_eq!(secrets.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn wishes_are_judged() {
        let check = |body: &str, code: &str, param: Option<&str>| {
            let error = read(body.as_bytes()).unwrap_err();
            assert_eq!((error.code, error.param.as_deref()), (Some(code), param), "{body}");
        };
        check("{", "invalid_json", None);
        check("[]", "invalid_json", None);
        check(r#"{"expires_after":{"seconds":9}}"#, "integer_below_min_value", Some("expires_after.seconds"));
        check(r#"{"expires_after":{"seconds":7201}}"#, "integer_above_max_value", Some("expires_after.seconds"));
        check(r#"{"expires_after":{"anchor":"now"}}"#, "invalid_value", Some("expires_after.anchor"));
        check(r#"{"session":{"type":"realtime","x":1}}"#, "unknown_parameter", Some("session.x"));
        check(r#"{"session":3}"#, "invalid_type", Some("session"));
        assert_eq!(read(b"").unwrap(), (600, None));
        assert_eq!(read(br#"{"expires_after":{"anchor":"created_at","seconds":7200}}"#).unwrap().0, 7_200);
    }
}
