//! `WS /v1/realtime`: admission and upgrade of sessions.
//!
//! Checks the key, then the query parameters, then the limits; a [`SessionSlot`] takes over from there. A client that
//! returns to its session (subprotocol `antiphon-resume.KEY.AFTER`, or `?resume=KEY&after=AFTER`) has a slot already.

use super::admission::{self, Admitted, SessionOwner, SessionRefused};
use crate::server::app::App;
use crate::server::access::auth::{self, Refusal, TurnedAway};
use crate::server::edge::client::Client;
use crate::server::access::guard::{expect_frames, refused};
use super::handover::NotTaken;
use crate::server::edge::inflow::Inflow;
use crate::server::access::keys;
use crate::server::access::limits;
use super::resume::{self, NotFound, Return};
use crate::server::access::ephemeral_keys;
use super::session_slot::{Resumed, SessionSlot};
use crate::server::transport::sideband;
use crate::server::edge::websocket;
use antiphon_protocol::{Dialect, SessionKind};
use antiphon_session::{AudioMode, Opening};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Extension, Query, State};
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
    /// The call to join.
    call_id: Option<String>,
}

/// The handler: admission, then the upgrade.
pub(in crate::server) async fn upgrade(
    State(app): State<Arc<App>>,
    Query(params): Query<Params>,
    Extension(client): Extension<Client>,
    Extension(inflow): Extension<Arc<Inflow>>,
    headers: HeaderMap,
    ws: WebSocketUpgrade,
) -> Response {
    if let Err(early) = expect_frames(&inflow) {
        return *early;
    }
    ephemeral_keys::fetch(&app, client, &headers).await;
    if let Some(id) = &params.call_id {
        return sideband::upgrade(&app, client, &headers, (ws, inflow), id);
    }
    // Read from the subprotocol first: a URL may end up in a log.
    let ticket = resume::ticket(&headers).or_else(|| {
        let key = params.resume.as_deref().filter(|key| *key != resume::OPT_IN)?;
        Some((key.to_owned(), params.after.clone().unwrap_or_default()))
    });
    if let Some((key, after)) = ticket {
        return take_up(&app, client, &headers, (ws, inflow), &key, &after).await;
    }
    let caller = match auth::caller(&app, client, &headers) {
        Ok(caller) => caller,
        Err(refusal) => return refuse(&app, client, ws, refusal),
    };
    let mode = match params.audio.as_deref() {
        None => AudioMode::Events,
        Some("pcm16") => AudioMode::Pcm16,
        Some("opus") => AudioMode::Opus,
        Some(other) => {
            let message = format!("Invalid value: '{other}' for 'audio'. Supported values are: 'opus' and 'pcm16'.");
            return refused(StatusCode::BAD_REQUEST, "invalid_value", message);
        }
    };
    let intent = match params.intent.as_deref() {
        None => None,
        Some("realtime") => Some(SessionKind::Realtime),
        Some("transcription") => Some(SessionKind::Transcription),
        Some(other) => {
            let message =
                format!("Invalid value: '{other}' for 'intent'. Supported values are: 'realtime' and 'transcription'.");
            return refused(StatusCode::BAD_REQUEST, "invalid_value", message);
        }
    };
    let mut opening = Opening {
        mode,
        dialect: Dialect { beta: asks_for_beta(&headers), ..app.dialect() },
        model: params.model,
        intent,
        settings: caller.settings,
        resume_key: None,
        owner: caller.owner,
        sees_causes: false,
        keeping: None,
        limits: None,
        transport: None,
        language: caller.language,
    };
    let admitted = match admission::admit(&app, client, caller.owner, ROUTE) {
        Ok(admitted) => admitted,
        Err(refused) => return refused.into_response(),
    };
    opening.sees_causes = admitted.who.sees_causes(&app);
    let limits = admitted.who.limits(&app);
    let mut figures = HeaderMap::new();
    limits::headers_of(&mut figures, |resource| limits.level(resource));
    opening.limits = Some(Arc::new(limits));
    let registered = params.resume.is_some().then(|| {
        let (key, registered) = resume::register(&app, caller.owner, &headers);
        let kept = app.handover.as_ref().map(|handover| {
            let (keeping, kept) = handover.keep(registered.digest(), caller.owner, resume::opened_with(&headers));
            opening.keeping = Some(keeping);
            kept
        });
        opening.resume_key = Some(key);
        (registered, kept)
    });
    let tasks = app.setup.tasks.clone();
    let mut response = upgrade_of(ws).on_upgrade(move |socket| {
        tasks.track_future(async move {
            SessionSlot::new(app, opening, admitted, registered).run(socket, inflow, None).await;
        })
    });
    response.headers_mut().extend(figures);
    response
}

/// Attaches a returning client to its session, on this hub or on the one that held it.
async fn take_up(
    app: &Arc<App>,
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
    let way = match resume::find(app, client, headers, key) {
        Ok(way) => way,
        Err(NotFound::Refused(refusal)) => return refuse(app, client, ws, refusal),
        Err(NotFound::NotHere) => return take_over(app, client, headers, (ws, inflow), (key, after)).await,
        Err(NotFound::Unknown(why)) => {
            app.security.refused(client, ROUTE, 101, "no such session to resume");
            return turn_away(app, ws, why);
        }
    };
    let tasks = app.setup.tasks.clone();
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
    app: &Arc<App>,
    client: Client,
    headers: &HeaderMap,
    (ws, inflow): (WebSocketUpgrade, Arc<Inflow>),
    (key, after): (&str, u64),
) -> Response {
    let Some(handover) = &app.handover else { return not_taken(app, client, ws, NotTaken::Unknown) };
    if let Err(wait) = app.attempts.check(client.network()) {
        return refuse(app, client, ws, Refusal::Throttled(wait));
    }
    let digest = keys::digest(key);
    let found = match handover.find(&digest).await {
        Ok(found) => found,
        Err(NotTaken::Unknown) => {
            // Guesses of sessions' keys count like those of API keys.
            let _ = app.attempts.failed(client.network());
            // A wrong API key is the better answer.
            return match auth::caller(app, client, headers) {
                Ok(_) => not_taken(app, client, ws, NotTaken::Unknown),
                Err(refusal) => refuse(app, client, ws, refusal),
            };
        }
        Err(why) => return not_taken(app, client, ws, why),
    };
    // Its short-lived key may have expired since.
    if !found.was_opened_with(&app.access, headers) {
        match auth::caller(app, client, headers) {
            Ok(caller) if caller.owner == found.owner() => {}
            Ok(_) => return not_taken(app, client, ws, NotTaken::Unknown),
            Err(refusal) => return refuse(app, client, ws, refusal),
        }
    }
    let place = match app.admit_running(found.owner(), client) {
        Ok(place) => place,
        Err(full) => return SessionRefused::of(app, client, full, ROUTE).into_response(),
    };
    let owner = found.owner();
    let opened_with = found.opened_with();
    let (snapshot, keeping, kept) = match handover.take(found).await {
        Ok(taken) => taken,
        Err(why) => return not_taken(app, client, ws, why),
    };
    let registered = resume::register_again(app, digest, owner, opened_with);
    let resumed = Resumed { snapshot, keeping, kept, registered };
    let who = SessionOwner { client, key: owner, consumer: app.limits.consumer(owner, client) };
    let slot = match SessionSlot::resumed(app.clone(), resumed, Admitted { place, who }) {
        Ok(slot) => slot,
        Err(error) => {
            tracing::error!(%error, "a stored session cannot be resumed by this hub");
            return not_taken(app, client, ws, NotTaken::Unreadable("The stored session cannot be read by this hub."));
        }
    };
    let tasks = app.setup.tasks.clone();
    upgrade_of(ws).on_upgrade(move |socket| tasks.track_future(slot.run(socket, inflow, Some(after))))
}

/// The response to a client whose session is not here and cannot be taken.
fn not_taken(app: &Arc<App>, client: Client, ws: WebSocketUpgrade, why: NotTaken) -> Response {
    match why {
        NotTaken::Unknown => {
            app.security.refused(client, ROUTE, 101, "no such session to resume");
            turn_away(app, ws, resume::unknown())
        }
        NotTaken::Unreadable(message) => turn_away(app, ws, resume::refusal(message)),
        NotTaken::Here | NotTaken::Later(_) => {
            let message = match why {
                NotTaken::Later(message) => message,
                _ => "This session is being resumed by another connection.",
            };
            let mut response = refused(StatusCode::SERVICE_UNAVAILABLE, "session_busy", message);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
    }
}

/// Rejects a missing or wrong key; before the upgrade if the client's address is rate-limited.
fn refuse(app: &Arc<App>, client: Client, ws: WebSocketUpgrade, refusal: Refusal) -> Response {
    auth::log(app, client, ROUTE, refusal);
    match refusal {
        Refusal::Throttled(wait) => auth::throttled(wait),
        refusal => turn_away(app, ws, refusal.into()),
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
fn turn_away(app: &Arc<App>, ws: WebSocketUpgrade, why: TurnedAway) -> Response {
    let Some(place) = app.turn_away() else {
        return refused(StatusCode::UNAUTHORIZED, "invalid_api_key", "Incorrect API key provided.");
    };
    let tasks = app.setup.tasks.clone();
    upgrade_of(ws).on_upgrade(move |socket| {
        tasks.track_future(async move {
            auth::turn_away(socket, why).await;
            drop(place);
        })
    })
}
