//! `GET /api/turns`: the turns of the caller's sessions, page by page, and as they happen.
//!
//! The turn_history keeps them; here they become JSON, one record at a time as the client reads. A caller sees the turns of its
//! own API key's sessions; an admin, and everybody where there are no keys, those of all. Readers and live listeners have
//! places, [`MAX_READERS`] and [`MAX_LISTENERS`], and a bounded queue in the turn_history: what a listener does not take in time
//! it is told it missed.

use super::app::App;
use super::auth::Identity;
use super::guard::refused;
use super::state::snapshot;
use antiphon_session::{Entry, News};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use serde::Deserialize;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Live listeners at once; one more is answered 503. Each may hold a few hundred records while it does not read.
pub(super) const MAX_LISTENERS: usize = 64;

/// Pages that are being read at once; one more waits for [`READER_WAIT`] and is answered 503 then. A page holds its records
/// until it is read, some 9 KB each.
pub(super) const MAX_READERS: usize = 32;
const READER_WAIT: Duration = Duration::from_secs(5);

/// Turns of one page of the list: where the request does not say, and at most.
const PAGE: usize = 100;

/// How often a listener gets the state.
const STATE_EVERY: Duration = Duration::from_secs(1);

/// What is asked of the list. What is unknown is left alone.
#[derive(Deserialize)]
pub(super) struct TurnQuery {
    limit: Option<usize>,
    session: Option<String>,
    /// The id of a turn: those that began before it.
    before: Option<String>,
}

/// `GET /api/turns`: the newest first, at most [`PAGE`], and `has_more`.
pub(super) async fn list(State(app): State<Arc<App>>, identity: Identity, Query(wish): Query<TurnQuery>) -> Response {
    let place = match reader(&app).await {
        Ok(place) => place,
        Err(response) => return *response,
    };
    let turn_history = &app.setup.turn_history;
    let limit = wish.limit.unwrap_or(PAGE).min(PAGE);
    let page = turn_history.page(identity.viewer, wish.session.as_deref(), wish.before.as_deref(), limit);
    let rest = format!("],\"has_more\":{},\"capacity\":{}}}", page.has_more, turn_history.capacity());
    let body = async_stream::stream! {
        let _place = place;
        let mut before = "{\"turns\":[";
        for turn in page.turns {
            let mut text = before.to_owned().into_bytes();
            serde_json::to_writer(&mut text, &*turn).expect("records have string keys and no failing parts");
            before = ",";
            yield Ok::<_, Infallible>(Bytes::from(text));
        }
        let begins = if before == "," { "" } else { before };
        yield Ok(Bytes::from(format!("{begins}{rest}")));
    };
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(body)).into_response()
}

/// A place among those who read what takes some memory to make.
pub(super) async fn reader(app: &App) -> Result<OwnedSemaphorePermit, Box<Response>> {
    match timeout(READER_WAIT, app.readers.clone().acquire_owned()).await {
        Ok(Ok(place)) => Ok(place),
        _ => Err(Box::new(busy("too_many_readers", "Enough clients read already. Try again soon."))),
    }
}

/// A place among the listeners.
pub(super) fn listener(app: &App) -> Result<OwnedSemaphorePermit, Box<Response>> {
    let place = app.listeners.clone().try_acquire_owned();
    place.map_err(|_| Box::new(busy("too_many_listeners", "Enough clients listen already. Try again soon.")))
}

fn busy(code: &str, message: &str) -> Response {
    let mut response = refused(StatusCode::SERVICE_UNAVAILABLE, code, message);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// `GET /api/turns/{id}`.
pub(super) async fn one(State(app): State<Arc<App>>, identity: Identity, Path(id): Path<String>) -> Response {
    match app.setup.turn_history.find(identity.viewer, &id) {
        Some(turn) => Json(&*turn).into_response(),
        None => {
            refused(StatusCode::NOT_FOUND, "not_found", "No such turn is kept; older ones are pushed out by newer.")
        }
    }
}

/// `GET /api/turns/live`: server-sent events until the client leaves, its key is revoked or the server stops. With
/// `Last-Event-ID`, what has changed since then comes first.
pub(super) async fn live(State(app): State<Arc<App>>, identity: Identity, headers: HeaderMap) -> Response {
    let place = match listener(&app) {
        Ok(place) => place,
        Err(response) => return *response,
    };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let events = events(app, identity, last, place);
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

fn events(
    app: Arc<App>,
    identity: Identity,
    last: Option<u64>,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let (since, n_left_out, mut listening) = app.setup.turn_history.listen(identity.viewer, last);
    let revoked = app.access.lease(identity.owner);
    async_stream::stream! {
        let _place = place;
        if n_left_out > 0 {
            yield Ok(data("missed", &json!({ "missed": n_left_out })));
        }
        for entry in since {
            yield Ok(turn(&entry));
        }
        let mut clock = interval(STATE_EVERY);
        clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let event = tokio::select! {
                () = app.setup.drain.cancelled() => return,
                () = revoked.cancelled() => return,
                news = listening.next() => match news {
                    Some(News::Changed(entry)) => turn(&entry),
                    Some(News::Missed(n)) => data("missed", &json!({ "missed": n })),
                    None => return,
                },
                _ = clock.tick() => data("state", &snapshot(&app, identity).await),
            };
            yield Ok(event);
        }
    }
}

fn turn(entry: &Entry) -> Event {
    data("turn", &*entry.record).id(entry.seq.to_string())
}

fn data(name: &str, data: &impl serde::Serialize) -> Event {
    Event::default().event(name).json_data(data).expect("records have string keys and no failing parts")
}
