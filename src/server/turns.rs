//! `GET /api/turns`: the turns of all sessions, one by one, and as they happen.
//!
//! The journal keeps them; here they become JSON. A live listener costs a place of [`MAX_LISTENERS`] and a bounded queue in
//! the journal: what it does not take in time it is told it missed.

use super::app::App;
use super::guard::refused;
use super::state::snapshot;
use crate::session::{Entry, Listening, News, TurnRecord};
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use serde::Deserialize;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// Live listeners at once; one more is answered 503. Each may hold a few hundred records while it does not read.
pub(super) const MAX_LISTENERS: usize = 64;

/// Turns of one page of the list where the request does not say.
const PAGE: usize = 100;

/// How often a listener gets the state.
const STATE_EVERY: Duration = Duration::from_secs(1);

/// What is asked of the list. What is unknown is left alone.
#[derive(Deserialize)]
pub(super) struct Wish {
    limit: Option<usize>,
    session: Option<String>,
}

/// `GET /api/turns`: the newest first.
pub(super) async fn list(State(app): State<Arc<App>>, Query(wish): Query<Wish>) -> Response {
    let journal = &app.setup.journal;
    let turns = journal.latest(wish.limit.unwrap_or(PAGE), wish.session.as_deref());
    let turns: Vec<&TurnRecord> = turns.iter().map(Arc::as_ref).collect();
    Json(json!({ "turns": turns, "capacity": journal.capacity() })).into_response()
}

/// `GET /api/turns/{id}`.
pub(super) async fn one(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    match app.setup.journal.find(&id) {
        Some(turn) => Json(&*turn).into_response(),
        None => {
            refused(StatusCode::NOT_FOUND, "not_found", "No such turn is kept; older ones are pushed out by newer.")
        }
    }
}

/// `GET /api/turns/live`: server-sent events until the client leaves or the server stops. With `Last-Event-ID`, what has
/// changed since then comes first.
pub(super) async fn live(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let Ok(place) = app.listeners.clone().try_acquire_owned() else {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "too_many_listeners", "Enough clients listen already.");
    };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let (since, listening) = app.setup.journal.listen(last);
    let events = events(app, since, listening, place);
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

fn events(
    app: Arc<App>,
    since: Vec<Entry>,
    mut listening: Listening,
    place: tokio::sync::OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    async_stream::stream! {
        let _place = place;
        for entry in since {
            yield Ok(turn(&entry));
        }
        let mut clock = interval(STATE_EVERY);
        clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let event = tokio::select! {
                () = app.setup.drain.cancelled() => return,
                news = listening.next() => match news {
                    Some(News::Changed(entry)) => turn(&entry),
                    Some(News::Missed(n)) => data("missed", &json!({ "missed": n })),
                    None => return,
                },
                _ = clock.tick() => data("state", &snapshot(&app).await),
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
