//! `WS /v1/realtime`: who gets in, and with what.
//!
//! The key first, then the wishes in the address, then a place; a [`super::seat`] takes it from there. A client that comes
//! back to its session (`?resume=`) has its place already.

use super::app::App;
use super::auth::{self, Caller, TurnedAway};
use super::guard::refused;
use super::inflow::Inflow;
use super::resume::{self, Return};
use super::seat::Seat;
use super::websocket;
use crate::session::{AudioMode, Opening};
use crate::wire::{Dialect, SessionKind};
use axum::Extension;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use std::sync::Arc;

/// When a refused client may try again.
const RETRY_AFTER_SECONDS: &str = "5";

/// The query of the address. What is unknown is left alone: SDKs add their own.
#[derive(Deserialize)]
pub(super) struct Params {
    model: Option<String>,
    audio: Option<String>,
    intent: Option<String>,
    /// `1`: the session is to outlive its connection. Else the key of a session to take up.
    resume: Option<String>,
    /// The number of the last message the client has of that session.
    after: Option<String>,
}

/// The handler: admission, then the upgrade.
pub(super) async fn upgrade(
    State(app): State<Arc<App>>,
    Query(params): Query<Params>,
    Extension(inflow): Extension<Arc<Inflow>>,
    headers: HeaderMap,
    ws: WebSocketUpgrade,
) -> Response {
    if let Some(key) = params.resume.as_deref().filter(|key| *key != resume::OPT_IN) {
        return take_up(&app, &headers, (ws, inflow), key, params.after.as_deref());
    }
    let caller = match auth::caller(&app, &headers) {
        Ok(caller) => caller,
        Err(refusal) => return turn_away(&app, ws, refusal.into()),
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
    let settings = match caller {
        Caller::Trusted => None,
        Caller::Guest(settings) => settings,
    };
    let mut opening = Opening {
        mode,
        dialect: Dialect { beta: asks_for_beta(&headers), ..app.dialect() },
        model: params.model,
        intent,
        settings,
        resume_key: None,
    };
    let Some(permit) = app.admit() else {
        app.setup.metrics.session_rejected();
        let message = "Every session of this server is taken. Try again soon.";
        let mut response = refused(StatusCode::SERVICE_UNAVAILABLE, "server_full", message);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        return response;
    };
    let registered = params.resume.is_some().then(|| {
        let (key, registered) = resume::register(&app, &headers);
        opening.resume_key = Some(key);
        registered
    });
    let tasks = app.setup.tasks.clone();
    upgrade_of(ws).on_upgrade(move |socket| {
        tasks.track_future(async move { Seat::new(app, opening, permit, registered).run(socket, inflow).await })
    })
}

/// Brings a client back to its session.
fn take_up(
    app: &Arc<App>,
    headers: &HeaderMap,
    (ws, inflow): (WebSocketUpgrade, Arc<Inflow>),
    key: &str,
    after: Option<&str>,
) -> Response {
    let Some(after) = after.and_then(|after| after.parse().ok()) else {
        let message = "'resume' needs 'after': the number of the last event received, counted from 1; 0 for none.";
        return refused(StatusCode::BAD_REQUEST, "invalid_value", message);
    };
    let way = match resume::find(app, headers, key) {
        Ok(way) => way,
        Err(why) => return turn_away(app, ws, why),
    };
    let tasks = app.setup.tasks.clone();
    upgrade_of(ws).on_upgrade(move |socket| {
        tasks.track_future(async move {
            // A second one that comes while the first is being taken in is dropped, and may try again.
            let _ = way.try_send(Return { socket, inflow, after });
        })
    })
}

fn upgrade_of(ws: WebSocketUpgrade) -> WebSocketUpgrade {
    websocket::configured(ws).protocols(["realtime"])
}

/// Whether the client speaks the names before GA: it says so in a header, or, a browser, by a subprotocol.
fn asks_for_beta(headers: &HeaderMap) -> bool {
    let any = |name: &str, wanted: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim() == wanted)
    };
    any("openai-beta", "realtime=v1") || any("sec-websocket-protocol", "openai-beta.realtime-v1")
}

/// A bad key is told after the upgrade, where clients look for it; a crowd of them before it.
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
