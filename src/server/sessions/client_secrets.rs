//! `POST /v1/realtime/client_secrets`: creates a client secret (a short-lived key) for a browser, bound to session
//! settings.
//!
//! The pre-GA equivalent is `POST /v1/realtime/sessions`. The settings are validated like those of a `session.update`.
//! The keys themselves are in [`crate::server::access::ephemeral_keys`]; nothing here logs one.

use super::parts::SessionParts;
use crate::server::access::caller::Identity;
use crate::server::access::ephemeral_keys::{Full, MAX_BODY_BYTES, Settings, read_settings};
use crate::server::edge::client::Client;
use crate::server::edge::refusal;
use antiphon_cluster::jetstream::RecordError;
use antiphon_protocol::{Dialect, ServerEvent, SessionUpdate, WireError};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{self, Extension, FromRequest, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::timeout;

/// Lifetime in seconds: the protocol's default and range.
const DEFAULT_SECONDS: u64 = 600;
const SECONDS: std::ops::RangeInclusive<u64> = 10..=7_200;
/// Timeout for receiving a request body.
const BODY: Duration = Duration::from_secs(10);

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
    anchor: Option<Box<RawValue>>,
    #[serde(default)]
    seconds: Option<Box<RawValue>>,
}

/// The handler. Responds with `{value, expires_at, session}`; `session` is the complete effective session.
pub(in crate::server) async fn create(
    State(sessions): State<Arc<SessionParts>>,
    identity: Identity,
    Extension(client): Extension<Client>,
    request: extract::Request,
) -> Response {
    let dialect = sessions.dialect();
    match made(&sessions, identity, client, request, dialect, read).await {
        Ok(CreatedSecret { value, expires_at, session }) => {
            Json(json!({"value": value, "expires_at": expires_at, "session": session})).into_response()
        }
        Err(response) => response,
    }
}

/// The pre-GA handler, `POST /v1/realtime/sessions`: the body is the flat session itself, and the response is the
/// complete session with `client_secret: {value, expires_at}`. The sessions it opens speak the dialect their connection
/// requests.
pub(in crate::server) async fn create_flat(
    State(sessions): State<Arc<SessionParts>>,
    identity: Identity,
    Extension(client): Extension<Client>,
    request: extract::Request,
) -> Response {
    let dialect = Dialect { beta: true, ..sessions.dialect() };
    match made(&sessions, identity, client, request, dialect, read_flat).await {
        Ok(CreatedSecret { value, expires_at, mut session }) => {
            session["client_secret"] = json!({"value": value, "expires_at": expires_at});
            Json(session).into_response()
        }
        Err(response) => response,
    }
}

/// A created client secret.
struct CreatedSecret {
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
    sessions: &SessionParts,
    identity: Identity,
    client: Client,
    request: extract::Request,
    dialect: Dialect,
    read: Reader,
) -> Result<CreatedSecret, Response> {
    let route = request.uri().path().to_owned();
    let body = timeout(BODY, Bytes::from_request(request, &())).await;
    let body = body.map_err(|_| {
        refusal::refused(StatusCode::REQUEST_TIMEOUT, "request_timeout", "The request body was not received in time.")
    })?;
    let body = body.map_err(|rejection| unreadable(&rejection))?;
    let wishes = read(&body, dialect).and_then(|(seconds, settings)| {
        let session = sessions.setup().describe(settings.as_ref().map(|(settings, _)| settings), identity.owner)?;
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
    let access = &sessions.access;
    let n_owners = access.keys.current().n_keys();
    let life = Duration::from_secs(seconds);
    let made = access.ephemeral_keys.make(identity.owner, n_owners, settings.clone(), life);
    let value = made.map_err(|Full(wait)| {
        let message = "Your API key has reached its limit of client secrets. Try again when some have expired.";
        let mut response = refusal::refused(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
        response.headers_mut().insert(header::RETRY_AFTER, refusal::seconds(wait));
        response
    })?;
    if let Err(error) = access.ephemeral_keys.share(&value, identity.owner, settings, life).await {
        if let RecordError::TooLarge { found, most } = error {
            let message =
                format!("The hubs share short-lived keys with settings of at most {most} bytes; these take {found}.");
            return Err(refusal::refused(StatusCode::PAYLOAD_TOO_LARGE, "settings_too_large", message));
        }
        tracing::warn!(%error, "a short-lived key cannot be stored for the other hubs");
        let message = "The key cannot be stored at this moment. Try again.";
        let mut response = refusal::refused(StatusCode::SERVICE_UNAVAILABLE, "keys_unavailable", message);
        response.headers_mut().insert(header::RETRY_AFTER, refusal::seconds(Duration::from_secs(1)));
        return Err(response);
    }
    access.security.act(client, &route, identity.owner, "a short-lived key was made");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(CreatedSecret { value, expires_at: now + seconds, session: shown(dialect, &created, "session") })
}

/// The response to a body that is too large or breaks off.
fn unreadable(rejection: &BytesRejection) -> Response {
    let message = match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => format!("The request body may have at most {MAX_BODY_BYTES} bytes."),
        _ => rejection.body_text(),
    };
    refusal::refused(rejection.status(), "invalid_body", message)
}

/// One field of an event, encoded as a connection would receive it. HTTP errors carry no event id.
fn shown(dialect: Dialect, event: &ServerEvent, field: &str) -> Value {
    let text = dialect.encode(event, "");
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
        // Bytes would be parsed with any bytes in the strings of unknown fields.
        Some(b'{') => match std::str::from_utf8(body) {
            Ok(text) => serde_json::from_str(text).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        },
        _ => Err("it is no object".into()),
    };
    parsed.map_err(|why| {
        WireError::invalid("invalid_json", format!("We could not parse the JSON body of your request: {why}."), None)
    })
}

fn seconds(after: Option<ExpiresAfter>) -> Result<u64, WireError> {
    let Some(after) = after else { return Ok(DEFAULT_SECONDS) };
    if after.anchor.is_some_and(|anchor| anchor.get() != r#""created_at""#) {
        let message = "Invalid 'expires_after.anchor'. Supported values are: 'created_at'.";
        return Err(WireError::invalid("invalid_value", message, Some("expires_after.anchor")));
    }
    let Some(asked) = after.seconds else { return Ok(DEFAULT_SECONDS) };
    let Some(seconds) = asked.get().parse::<f64>().ok().filter(|seconds| seconds.fract() == 0.0) else {
        let message = "Invalid type for 'expires_after.seconds': expected an integer.";
        return Err(WireError::invalid("invalid_type", message, Some("expires_after.seconds")));
    };
    let min = *SECONDS.start();
    let max = *SECONDS.end();
    let (code, than) = if seconds < min as f64 {
        ("integer_below_min_value", format!(">= {min}"))
    } else if seconds > max as f64 {
        ("integer_above_max_value", format!("<= {max}"))
    } else {
        return Ok(seconds as u64);
    };
    let message = format!("Invalid 'expires_after.seconds': expected a value {than}, but got {seconds} instead.");
    Err(WireError::invalid(code, message, Some("expires_after.seconds")))
}

/// The session's settings, parsed like those of a `session.update`, and their text.
fn settings(session: &str, dialect: Dialect) -> Result<(SessionUpdate, Arc<str>), WireError> {
    Ok((read_settings(session, dialect)?, session.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_judged() {
        let check = |body: &str, code: &str, param: Option<&str>| {
            let error = read(body.as_bytes(), Dialect::default()).unwrap_err();
            assert_eq!((error.code, error.param.as_deref()), (Some(code), param), "{body}");
        };
        check("{", "invalid_json", None);
        check("[]", "invalid_json", None);
        let not_text = b"{\"anything\":\"\xff\"}";
        for read in [read as Reader, read_flat] {
            let error = read(not_text, Dialect::default()).unwrap_err();
            assert_eq!((error.code, error.param), (Some("invalid_json"), None));
        }
        check(r#"{"expires_after":{"seconds":9}}"#, "integer_below_min_value", Some("expires_after.seconds"));
        check(r#"{"expires_after":{"seconds":7201}}"#, "integer_above_max_value", Some("expires_after.seconds"));
        check(r#"{"expires_after":{"seconds":-1}}"#, "integer_below_min_value", Some("expires_after.seconds"));
        for wrong in ["60.5", "\"60\""] {
            let body = format!(r#"{{"expires_after":{{"seconds":{wrong}}}}}"#);
            check(&body, "invalid_type", Some("expires_after.seconds"));
        }
        for wrong in ["\"now\"", "7"] {
            let body = format!(r#"{{"expires_after":{{"anchor":{wrong}}}}}"#);
            check(&body, "invalid_value", Some("expires_after.anchor"));
        }
        check(r#"{"session":{"type":"realtime","x":1}}"#, "unknown_parameter", Some("session.x"));
        check(r#"{"session":3}"#, "invalid_type", Some("session"));
        let read = |body: &[u8]| read(body, Dialect::default()).unwrap();
        assert!(matches!(read(b""), (600, None)));
        assert_eq!(read(br#"{"expires_after":{"anchor":"created_at","seconds":7200}}"#).0, 7_200);
        assert_eq!(read(br#"{"expires_after":{"anchor":null,"seconds":60.0}}"#).0, 60);
    }
}
