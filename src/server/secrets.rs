//! Short-lived keys for browsers: `POST /v1/realtime/client_secrets` makes one, bound to the settings its sessions begin with.
//!
//! Clients before GA have `POST /v1/realtime/sessions` for it. The settings are judged as those of a `session.update`.
//!
//! A page cannot keep a key secret, so its own server asks for an `ek_` key with the real one and hands it over. It opens
//! `/v1/realtime` only, as often as wanted until it expires. The store is bounded, holds hashes, and forgets what has
//! expired; nothing here logs a key.

use super::app::App;
use super::guard::refused;
use super::keys::{self, Digest};
use crate::wire::{ClientEvent, Dialect, ServerEvent, SessionUpdate, WireError};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{self, FromRequest, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;
use tokio::time::{Instant, timeout};

/// What these keys begin with, as the protocol's clients expect.
pub(super) const PREFIX: &str = "ek_";
/// Keys alive at once; one more is refused with 429.
const MAX_SECRETS: usize = 1_024;
/// The largest settings a key may be bound to: 1024 of them are 128 MiB.
pub(super) const MAX_BODY_BYTES: usize = 128 * 1024;
/// How long a key lives: the protocol's default and bounds.
const DEFAULT_SECONDS: u64 = 600;
const SECONDS: std::ops::RangeInclusive<u64> = 10..=7_200;
/// How long the body of a request may take to come.
const BODY: Duration = Duration::from_secs(10);

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
pub(super) async fn create(State(app): State<Arc<App>>, request: extract::Request) -> Response {
    let dialect = app.dialect();
    match made(&app, request, dialect, read).await {
        Ok(Made { value, expires_at, session }) => {
            Json(json!({"value": value, "expires_at": expires_at, "session": session})).into_response()
        }
        Err(response) => response,
    }
}

/// The handler of the names before GA, `POST /v1/realtime/sessions`: the body is the flat session itself, and the answer
/// the whole one with `client_secret: {value, expires_at}` in it. Its sessions speak the names their connection asks for.
pub(super) async fn create_flat(State(app): State<Arc<App>>, request: extract::Request) -> Response {
    let dialect = Dialect { beta: true, ..app.dialect() };
    match made(&app, request, dialect, read_flat).await {
        Ok(Made { value, expires_at, mut session }) => {
            session["client_secret"] = json!({"value": value, "expires_at": expires_at});
            Json(session).into_response()
        }
        Err(response) => response,
    }
}

/// A key that was made.
struct Made {
    value: String,
    /// Unix seconds.
    expires_at: u64,
    /// What its sessions begin as, in the shape that their own first event will have.
    session: Value,
}

/// A request's wishes: seconds to live, and the settings.
type Wishes = (u64, Option<SessionUpdate>);
type Reader = fn(&[u8], Dialect) -> Result<Wishes, WireError>;

async fn made(app: &App, request: extract::Request, dialect: Dialect, read: Reader) -> Result<Made, Response> {
    let body = timeout(BODY, Bytes::from_request(request, &())).await;
    let body = body.map_err(|_| {
        refused(StatusCode::REQUEST_TIMEOUT, "request_timeout", "The body of the request took too long to come.")
    })?;
    let body = body.map_err(IntoResponse::into_response)?;
    let wishes = read(&body, dialect).and_then(|(seconds, settings)| {
        let session = app.setup.describe(settings.as_ref())?;
        Ok((seconds, settings, ServerEvent::SessionCreated { session: Box::new(session) }))
    });
    let (seconds, settings, created) = wishes.map_err(|error| {
        let mut error = shown(dialect, &ServerEvent::Error { error }, "error");
        for name in ["param", "message"].iter().filter(|_| dialect.beta) {
            // There is no `session` around it that a path could begin with.
            error[name] = error[name].as_str().map(|text| text.replace("session.", "")).into();
        }
        (StatusCode::BAD_REQUEST, Json(json!({"error": error}))).into_response()
    })?;
    let value = app.secrets.make(settings, Duration::from_secs(seconds)).map_err(|Full| {
        let message = "There are too many client secrets alive. Try again when some have expired.";
        refused(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message)
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(Made { value, expires_at: now + seconds, session: shown(dialect, &created, "session") })
}

/// One field of an event as a connection would get it. HTTP errors carry no event id.
fn shown(dialect: Dialect, event: &ServerEvent, field: &str) -> Value {
    let text = dialect.encode(event, "").expect("every dialect has it");
    let mut event: Value = serde_json::from_str(&text).expect("an event is JSON");
    let mut shown = event[field].take();
    if field == "error" {
        shown.as_object_mut().expect("an object").remove("event_id");
    }
    shown
}

/// An empty body is one without wishes.
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
    // A list would pass for an object with its fields in order.
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

/// The session's settings, read as those of a `session.update` would be.
fn settings(session: &str, dialect: Dialect) -> Result<SessionUpdate, WireError> {
    let update = format!(r#"{{"type":"session.update","session":{session}}}"#);
    match dialect.parse(&update)?.event {
        ClientEvent::SessionUpdate(update) => Ok(*update),
        _ => Err(WireError::invalid("invalid_value", "Invalid 'session'.", Some("session"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_opens_until_it_expires() {
        let secrets = Secrets::default();
        let settings = settings(r#"{"type":"realtime","instructions":"Be brief."}"#, Dialect::default()).unwrap();
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
            let error = read(body.as_bytes(), Dialect::default()).unwrap_err();
            assert_eq!((error.code, error.param.as_deref()), (Some(code), param), "{body}");
        };
        check("{", "invalid_json", None);
        check("[]", "invalid_json", None);
        check(r#"{"expires_after":{"seconds":9}}"#, "integer_below_min_value", Some("expires_after.seconds"));
        check(r#"{"expires_after":{"seconds":7201}}"#, "integer_above_max_value", Some("expires_after.seconds"));
        check(r#"{"expires_after":{"anchor":"now"}}"#, "invalid_value", Some("expires_after.anchor"));
        check(r#"{"session":{"type":"realtime","x":1}}"#, "unknown_parameter", Some("session.x"));
        check(r#"{"session":3}"#, "invalid_type", Some("session"));
        let read = |body: &[u8]| read(body, Dialect::default()).unwrap();
        assert_eq!(read(b""), (600, None));
        assert_eq!(read(br#"{"expires_after":{"anchor":"created_at","seconds":7200}}"#).0, 7_200);
    }
}
