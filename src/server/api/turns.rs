//! `GET /api/turns`: the turns of the caller's sessions, by page and live.
//!
//! The turn history stores them; this module encodes them as JSON, one record at a time as the client reads. A caller
//! sees the turns of its own API key's sessions; an admin, and every caller of a hub without keys, sees all turns.
//! Readers and live listeners are limited ([`super::readers`]). Each listener has a bounded queue
//! in the turn history and is notified of the number of changes it missed.
//!
//! In a cluster, any hub shows the turns of all hubs, each with the name of its hub; [`super::hubs`] gets them.

use super::hubs::{self, HubsPage, OtherNews, Others, PAGE, RemoteTurn, ShownTurn, TurnFilter};
use super::parts::ApiParts;
use super::readers::ListenerPlace;
use super::state::snapshot;
use crate::server::access::caller::Identity;
use crate::server::edge::client::Client;
use crate::server::edge::refusal::refused;
use antiphon_session::{Entry, News, Viewer};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// Interval of state events.
const STATE_EVERY: Duration = Duration::from_secs(1);

/// The query of the list. Unknown parameters are ignored.
#[derive(Deserialize)]
pub(in crate::server) struct TurnQuery {
    limit: Option<usize>,
    session: Option<String>,
    /// A turn's id, or the `next` of a page; only turns that started before it are listed.
    before: Option<String>,
}

/// What follows the turns of a list. The optional fields are those of a cluster.
#[derive(Serialize)]
struct Rest {
    has_more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    capacity: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_hubs: Option<Vec<String>>,
}

/// `GET /api/turns`: the newest first, at most [`PAGE`], and `has_more`.
pub(in crate::server) async fn list(
    State(api): State<Arc<ApiParts>>,
    identity: Identity,
    Extension(client): Extension<Client>,
    Query(query): Query<TurnQuery>,
) -> Response {
    let place = match api.readers.place(identity.owner, client).await {
        Ok(place) => place,
        Err(response) => return *response,
    };
    let turn_history = &api.sessions.setup.turn_history;
    let limit = query.limit.unwrap_or(PAGE).min(PAGE);
    let viewer = identity.viewer;
    let session = query.session.as_deref();
    let before = query.before.as_deref();
    let (turns, rest) = match api.sessions.hubs() {
        None => {
            let page = turn_history.page(viewer, session, before, limit);
            let has_more = page.has_more;
            let capacity = turn_history.capacity();
            let turns: Vec<_> = page.turns.into_iter().map(|turn| ShownTurn::Own(turn, None)).collect();
            (turns, Rest { has_more, next: None, capacity, missing_hubs: None })
        }
        Some(cluster) => {
            let page = hubs::page(&cluster, turn_history, &TurnFilter { viewer, session, before, limit }).await;
            let HubsPage { turns, has_more, next, capacity, missing } = page;
            (turns, Rest { has_more, next, capacity, missing_hubs: Some(missing) })
        }
    };
    let body = async_stream::stream! {
        let _place = place;
        let mut before = "{\"turns\":[";
        for turn in turns {
            let mut text = before.to_owned().into_bytes();
            serde_json::to_writer(&mut text, &turn).expect("records have string keys and no failing parts");
            before = ",";
            yield Ok::<_, Infallible>(Bytes::from(text));
        }
        let begins = if before == "," { "" } else { before };
        let rest = serde_json::to_string(&rest).expect("string keys and no failing parts");
        yield Ok(Bytes::from(format!("{begins}],{}", &rest[1..])));
    };
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(body)).into_response()
}

/// `GET /api/turns/{id}`: one turn, or 404.
pub(in crate::server) async fn one(
    State(api): State<Arc<ApiParts>>,
    identity: Identity,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Response {
    let cluster = api.sessions.hubs();
    if let Some(turn) = api.sessions.setup.turn_history.find(identity.viewer, &id) {
        return Json(ShownTurn::Own(turn, cluster.map(|cluster| cluster.name().into()))).into_response();
    }
    let mut message = "There is no such turn; older turns are evicted by newer ones.".to_owned();
    if let Some(cluster) = cluster {
        // Replies take memory, as pages do.
        let _place = match api.readers.place(identity.owner, client).await {
            Ok(place) => place,
            Err(response) => return *response,
        };
        match hubs::find(&cluster, identity.viewer, &id).await {
            RemoteTurn::Turn(turn) => return Json(turn).into_response(),
            RemoteTurn::Nowhere(missing) if missing.is_empty() => {}
            RemoteTurn::Nowhere(missing) => message += &format!(" These hubs did not reply: {}.", missing.join(", ")),
        }
    }
    refused(StatusCode::NOT_FOUND, "not_found", &message)
}

/// `GET /api/turns/live`: server-sent events until the client leaves, its key is revoked or the server stops. With
/// `Last-Event-ID`, the changes since then come first.
pub(in crate::server) async fn live(
    State(api): State<Arc<ApiParts>>,
    identity: Identity,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
) -> Response {
    let place = match api.listeners.place(identity.owner, client) {
        Ok(place) => place,
        Err(response) => return *response,
    };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let cluster = api.sessions.hubs().filter(|_| identity.viewer != Viewer::Nobody);
    let others = match &cluster {
        Some(cluster) => Some(Others::watch(cluster, identity.viewer).await),
        None => None,
    };
    let hub = cluster.map(|cluster| cluster.name().into());
    let events = events(api, identity, last, hub, others, place);
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

fn events(
    api: Arc<ApiParts>,
    identity: Identity,
    last: Option<u64>,
    hub: Option<Arc<str>>,
    mut others: Option<Others>,
    place: ListenerPlace,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let (since, n_left_out, mut listening) = api.sessions.setup.turn_history.listen(identity.viewer, last);
    let revoked = api.sessions.access.keys.lease(identity.owner);
    async_stream::stream! {
        let _place = place;
        if n_left_out > 0 {
            yield Ok(data("missed", &json!({ "missed": n_left_out })));
        }
        for entry in since {
            yield Ok(turn(&entry, &hub));
        }
        if last.is_some() && others.is_some() {
            // Other hubs do not repeat their changes.
            yield Ok(data("missed", &json!({ "missed": 0 })));
        }
        let mut clock = interval(STATE_EVERY);
        clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let event = tokio::select! {
                () = api.sessions.setup.drain.cancelled() => return,
                () = revoked.cancelled() => return,
                news = listening.next() => match news {
                    Some(News::Changed(entry)) => turn(&entry, &hub),
                    Some(News::Missed(n)) => data("missed", &json!({ "missed": n })),
                    None => return,
                },
                news = next_of(&mut others) => match news {
                    OtherNews::Changed(turn) => data("turn", &turn),
                    OtherNews::Missed(n) => data("missed", &json!({ "missed": n })),
                },
                _ = clock.tick() => data("state", &snapshot(&api, identity).await),
            };
            yield Ok(event);
        }
    }
}

/// What changes at other hubs; never, without a cluster.
async fn next_of(others: &mut Option<Others>) -> OtherNews {
    match others {
        Some(others) => others.next().await,
        None => std::future::pending().await,
    }
}

fn turn(entry: &Entry, hub: &Option<Arc<str>>) -> Event {
    data("turn", &ShownTurn::Own(entry.record.clone(), hub.clone())).id(entry.seq.to_string())
}

fn data(name: &str, data: &impl serde::Serialize) -> Event {
    Event::default().event(name).json_data(data).expect("records have string keys and no failing parts")
}
