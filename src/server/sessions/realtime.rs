//! `WS /v1/realtime`: admission and upgrade of sessions.
//!
//! [`crate::server::transport::realtime`] calls [`upgrade`] for a request that joins no call. It checks the key, then
//! the query parameters, then the limits; a [`SessionSlot`] takes over from there. A client that returns to its session
//! (subprotocol `antiphon-resume.KEY.AFTER`, or `?resume=KEY&after=AFTER`) has a slot already.

use super::admission::{self, SessionAdmission, SessionOwner, SessionRefused};
use super::handover::TakeoverError;
use super::parts::SessionParts;
use super::resume::{self, NotFound, Return};
use super::session_slot::{ResumedSession, SessionSlot};
use crate::server::access::auth::{self, Refusal, TurnedAway};
use crate::server::access::{keys, limits_http};
use crate::server::edge::client::Client;
use crate::server::edge::inflow::Inflow;
use crate::server::edge::refusal::{invalid_parameter, refused};
use crate::server::edge::websocket;
use antiphon_protocol::{Dialect, MAX_NAME_BYTES, SessionKind};
use antiphon_session::{AudioMode, Opening};
use axum::extract::ws::WebSocketUpgrade;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::sync::Arc;

/// The route for the log: the URL without its query.
const ROUTE: &str = "/v1/realtime";

/// The query parameters. Unknown ones are ignored, because SDKs add their own.
#[derive(Deserialize)]
pub(in crate::server) struct Params {
    model: Option<String>,
    audio: Option<String>,
    intent: Option<String>,
    /// `1`: the session is to outlive its connection. Any other value: the key of the session to resume.
    resume: Option<String>,
    /// The number of the last message of that session that the client has received.
    after: Option<String>,
}

/// Admission, then the upgrade.
pub(in crate::server) async fn upgrade(
    sessions: Arc<SessionParts>,
    params: Params,
    client: Client,
    inflow: Arc<Inflow>,
    headers: &HeaderMap,
    ws: WebSocketUpgrade,
) -> Response {
    // Read from the subprotocol first: a URL may end up in a log.
    let ticket = resume::ticket(headers).or_else(|| {
        let key = params.resume.as_deref().filter(|key| *key != resume::OPT_IN)?;
        Some((key.to_owned(), params.after.clone().unwrap_or_default()))
    });
    if let Some((key, after)) = ticket {
        return take_up(&sessions, client, headers, (ws, inflow), &key, &after).await;
    }
    let caller = match auth::caller(&sessions.access, client, headers) {
        Ok(caller) => caller,
        Err(refusal) => return refuse(&sessions, client, ws, refusal),
    };
    let mode = match params.audio.as_deref() {
        None => AudioMode::Events,
        Some("pcm16") => AudioMode::Pcm16,
        Some("opus") => AudioMode::Opus,
        Some(other) => {
            let message = format!("Invalid value: '{other}' for 'audio'. Supported values are: 'opus' and 'pcm16'.");
            return invalid_parameter("audio", &message);
        }
    };
    let intent = match params.intent.as_deref() {
        None => None,
        Some("realtime") => Some(SessionKind::Realtime),
        Some("transcription") => Some(SessionKind::Transcription),
        Some(other) => {
            let message =
                format!("Invalid value: '{other}' for 'intent'. Supported values are: 'realtime' and 'transcription'.");
            return invalid_parameter("intent", &message);
        }
    };
    let model = match model_of_query(params.model) {
        Ok(model) => model,
        Err(response) => return *response,
    };
    let mut opening = Opening {
        mode,
        dialect: Dialect { beta: asks_for_beta(headers), ..sessions.dialect() },
        model,
        intent,
        settings: caller.settings,
        resume_key: None,
        owner: caller.owner,
        sees_causes: false,
        snapshots: None,
        limits: None,
        transport: None,
        by_phone: false,
        language: caller.language,
        recording_consent: None,
    };
    let admitted = match admission::admit(&sessions, client, caller.owner, ROUTE) {
        Ok(admitted) => admitted,
        Err(refused) => return refused.into_response(),
    };
    opening.sees_causes = admitted.who.sees_causes(&sessions.access);
    let limits = admitted.who.limits(&sessions.access);
    let mut figures = HeaderMap::new();
    limits_http::headers_of(&mut figures, |resource| limits.level(resource));
    opening.limits = Some(Arc::new(limits));
    let registered = params.resume.is_some().then(|| {
        let (key, registered) = sessions.resumables.register(caller.owner, headers);
        let kept = sessions.handover.as_ref().map(|handover| {
            let (snapshots, kept) = handover.keep(registered.digest(), caller.owner, resume::opened_with(headers));
            opening.snapshots = Some(snapshots);
            kept
        });
        opening.resume_key = Some(key);
        (registered, kept)
    });
    let tasks = sessions.setup.tasks.clone();
    let mut response = upgrade_of(ws).on_upgrade(move |socket| {
        tasks.track_future(async move {
            SessionSlot::new(sessions, opening, admitted, registered).run(socket, inflow, None).await;
        })
    });
    response.headers_mut().extend(figures);
    response
}

/// The model that a query names; an empty name is none.
///
/// # Errors
/// The response to a name that no `session.update` could have.
pub(in crate::server) fn model_of_query(model: Option<String>) -> Result<Option<String>, Box<Response>> {
    let model = model.filter(|model| !model.is_empty());
    match model.as_ref().map(String::len) {
        Some(n_bytes) if n_bytes > MAX_NAME_BYTES => {
            let message = format!("Invalid 'model': it has {n_bytes} bytes, and may have at most {MAX_NAME_BYTES}.");
            Err(Box::new(invalid_parameter("model", &message)))
        }
        _ => Ok(model),
    }
}

/// Attaches a returning client to its session, on this hub or on the one that held it.
async fn take_up(
    sessions: &Arc<SessionParts>,
    client: Client,
    headers: &HeaderMap,
    (ws, inflow): (WebSocketUpgrade, Arc<Inflow>),
    key: &str,
    after: &str,
) -> Response {
    let Ok(after) = after.parse() else {
        let message = "'resume' needs 'after': the number of the last event received, counted from 1; 0 for none.";
        return refused(StatusCode::BAD_REQUEST, "invalid_value", message);
    };
    let way = match sessions.resumables.find(&sessions.access, client, headers, key) {
        Ok(way) => way,
        Err(NotFound::Refused(refusal)) => return refuse(sessions, client, ws, refusal),
        Err(NotFound::NotHere) => return take_over(sessions, client, headers, (ws, inflow), (key, after)).await,
        Err(NotFound::Unknown(why)) => {
            sessions.access.security.refused(client, ROUTE, 101, "no such session to resume");
            return turn_away(sessions, ws, why);
        }
    };
    let tasks = sessions.setup.tasks.clone();
    upgrade_of(ws).on_upgrade(move |socket| {
        tasks.track_future(async move {
            // If another connection is already being attached, this one is dropped; the client may retry.
            let _ = way.try_send(Return { socket, inflow, after });
        })
    })
}

/// Takes a returning client's session from the hub that holds it, or held it. Waits for that hub, 3.5 s at most where it does not
/// answer, and for JetStream, 5 s at most for each reply.
async fn take_over(
    sessions: &Arc<SessionParts>,
    client: Client,
    headers: &HeaderMap,
    (ws, inflow): (WebSocketUpgrade, Arc<Inflow>),
    (key, after): (&str, u64),
) -> Response {
    let Some(handover) = &sessions.handover else { return not_taken(sessions, client, ws, TakeoverError::Unknown) };
    if let Err(wait) = sessions.access.attempts.check(client.network()) {
        return refuse(sessions, client, ws, Refusal::Throttled(wait));
    }
    let digest = keys::digest(key);
    let found = match handover.find(&digest).await {
        Ok(found) => found,
        Err(TakeoverError::Unknown) => {
            // Guesses of sessions' keys count like those of API keys.
            let _ = sessions.access.attempts.failed(client.network());
            // A wrong API key is the better answer.
            return match auth::caller(&sessions.access, client, headers) {
                Ok(_) => not_taken(sessions, client, ws, TakeoverError::Unknown),
                Err(refusal) => refuse(sessions, client, ws, refusal),
            };
        }
        Err(why) => return not_taken(sessions, client, ws, why),
    };
    // Its short-lived key may have expired since.
    if !found.was_opened_with(&sessions.access.keys, headers) {
        match auth::caller(&sessions.access, client, headers) {
            Ok(caller) if caller.owner == found.owner() => {}
            Ok(_) => return not_taken(sessions, client, ws, TakeoverError::Unknown),
            Err(refusal) => return refuse(sessions, client, ws, refusal),
        }
    }
    let place = match sessions.reserve_running(found.owner(), client) {
        Ok(place) => place,
        Err(full) => return SessionRefused::of(sessions, client, full, ROUTE).into_response(),
    };
    let owner = found.owner();
    let opened_with = found.opened_with();
    let (snapshot, snapshots, kept) = match handover.take(found).await {
        Ok(taken) => taken,
        Err(why) => return not_taken(sessions, client, ws, why),
    };
    let registered = sessions.resumables.register_again(digest, owner, opened_with);
    let resumed = ResumedSession { snapshot, snapshots, kept, registered };
    let who = SessionOwner { client, key: owner, consumer: sessions.access.limits.consumer(owner, client) };
    let slot = match SessionSlot::resumed(sessions.clone(), resumed, SessionAdmission { place, who }) {
        Ok(slot) => slot,
        Err(error) => {
            tracing::error!(%error, "a stored session cannot be resumed by this hub");
            return not_taken(
                sessions,
                client,
                ws,
                TakeoverError::Unreadable("The stored session cannot be read by this hub."),
            );
        }
    };
    let tasks = sessions.setup.tasks.clone();
    upgrade_of(ws).on_upgrade(move |socket| tasks.track_future(slot.run(socket, inflow, Some(after))))
}

/// The response to a client whose session is not here and cannot be taken.
fn not_taken(sessions: &Arc<SessionParts>, client: Client, ws: WebSocketUpgrade, why: TakeoverError) -> Response {
    match why {
        TakeoverError::Unknown => {
            sessions.access.security.refused(client, ROUTE, 101, "no such session to resume");
            turn_away(sessions, ws, resume::unknown())
        }
        TakeoverError::Unreadable(message) => turn_away(sessions, ws, resume::refusal(message)),
        TakeoverError::Here | TakeoverError::Later(_) => {
            let message = match why {
                TakeoverError::Later(message) => message,
                _ => "This session is being resumed by another connection.",
            };
            let mut response = refused(StatusCode::SERVICE_UNAVAILABLE, "session_busy", message);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
    }
}

/// Rejects a missing or wrong key; before the upgrade if the client's address is rate-limited.
fn refuse(sessions: &Arc<SessionParts>, client: Client, ws: WebSocketUpgrade, refusal: Refusal) -> Response {
    auth::log(&sessions.access, client, ROUTE, refusal);
    match refusal {
        Refusal::Throttled(wait) => auth::throttled(wait),
        refusal => turn_away(sessions, ws, refusal.into()),
    }
}

fn upgrade_of(ws: WebSocketUpgrade) -> WebSocketUpgrade {
    websocket::configured(ws).protocols(["realtime"])
}

/// Whether the client speaks the pre-GA (beta) dialect, requested by a header or, from a browser, by a subprotocol.
fn asks_for_beta(headers: &HeaderMap) -> bool {
    let any = |name: &str, wanted: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim() == wanted)
    };
    any("openai-beta", "realtime=v1") || any("sec-websocket-protocol", "openai-beta.realtime-v1")
}

/// Rejects after the upgrade, where clients expect the error; before it if too many are being rejected.
fn turn_away(sessions: &Arc<SessionParts>, ws: WebSocketUpgrade, why: TurnedAway) -> Response {
    let Some(place) = sessions.turn_away() else {
        return refused(StatusCode::UNAUTHORIZED, "invalid_api_key", "Incorrect API key provided.");
    };
    let tasks = sessions.setup.tasks.clone();
    upgrade_of(ws).on_upgrade(move |socket| {
        tasks.track_future(async move {
            auth::turn_away(socket, why).await;
            drop(place);
        })
    })
}
