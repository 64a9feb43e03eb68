//! `GET /api/turns`: the turns of the caller's sessions, by page and live.
//!
//! The turn history stores them; this module encodes them as JSON, one record at a time as the client reads. A caller
//! sees the turns of its own API key's sessions; an admin, and every caller of a hub without keys, sees all turns.
//! Readers and live listeners are limited by [`MAX_READERS`] and [`MAX_LISTENERS`], and half of each for one key. Each listener has a bounded queue
//! in the turn history and is notified of the number of changes it missed.
//!
//! In a cluster, any hub shows the turns of all hubs, each with the name of its hub; [`super::hubs`] gets them.

use crate::server::app::App;
use crate::server::access::auth::Identity;
use crate::server::edge::client::Client;
use crate::server::access::guard::refused;
use super::hubs::{self, Found, HubsPage, OtherNews, Others, ShownTurn, Wanted};
use crate::server::access::holder_counts::{Holder, Share, Shares};
use super::state::snapshot;
use antiphon_session::{Entry, News, Viewer};
use antiphon_types::KeyId;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Maximum concurrent live listeners; another is rejected with 503. Each may hold a few hundred records while it does
/// not read.
pub(in crate::server) const MAX_LISTENERS: usize = 64;

/// Maximum concurrent page reads; another waits for [`READER_WAIT`] and is then rejected with 503. A page holds its
/// records, about 9 KB each, until it is read.
const MAX_READERS: usize = 32;
const READER_WAIT: Duration = Duration::from_secs(5);

/// Turns per page: the default and the maximum.
pub(in crate::server) const PAGE: usize = 100;

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
    State(app): State<Arc<App>>,
    identity: Identity,
    Extension(client): Extension<Client>,
    Query(wish): Query<TurnQuery>,
) -> Response {
    let place = match reader(&app, identity.owner, client).await {
        Ok(place) => place,
        Err(response) => return *response,
    };
    let turn_history = &app.setup.turn_history;
    let limit = wish.limit.unwrap_or(PAGE).min(PAGE);
    let viewer = identity.viewer;
    let session = wish.session.as_deref();
    let before = wish.before.as_deref();
    let (turns, rest) = match app.hubs() {
        None => {
            let page = turn_history.page(viewer, session, before, limit);
            let has_more = page.has_more;
            let capacity = turn_history.capacity();
            let turns: Vec<_> = page.turns.into_iter().map(|turn| ShownTurn::Own(turn, None)).collect();
            (turns, Rest { has_more, next: None, capacity, missing_hubs: None })
        }
        Some(cluster) => {
            let page = hubs::page(&cluster, turn_history, &Wanted { viewer, session, before, limit }).await;
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

/// Places for requests whose responses take memory to build: pages of turns, sound of a turn, lists of models and of servers.
pub(in crate::server) struct Readers {
    permits: Arc<Semaphore>,
    by_holder: Shares<Holder>,
}

/// The place of a reader. Dropping it releases it.
pub(in crate::server) struct ReaderPlace {
    _permit: OwnedSemaphorePermit,
    _share: Option<Share<Holder>>,
}

/// Why there is no place for a reader.
#[derive(Debug, PartialEq, Eq)]
enum ReadersFull {
    /// The holder has its half: reading, or waiting to read.
    Half,
    /// No place became free within [`READER_WAIT`].
    All,
}

impl Default for Readers {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(MAX_READERS)), by_holder: Shares::default() }
    }
}

impl Readers {
    /// Waits at most [`READER_WAIT`] for a place; not at all where `holder` has half of them.
    async fn place(&self, holder: Option<Holder>) -> Result<ReaderPlace, ReadersFull> {
        let share = holder.map(|holder| self.by_holder.take(holder, MAX_READERS / 2).ok_or(ReadersFull::Half));
        let share = share.transpose()?;
        match timeout(READER_WAIT, self.permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(ReaderPlace { _permit: permit, _share: share }),
            _ => Err(ReadersFull::All),
        }
    }
}

/// A place for a request whose response takes memory to build; an error response where there is none, or where the half is in use that
/// one key may have, or one address where there are no keys.
pub(in crate::server) async fn reader(app: &App, owner: Option<KeyId>, client: Client) -> Result<ReaderPlace, Box<Response>> {
    let holder = Holder::of(owner, client, app.access.keys().n_keys() > 1);
    app.readers.place(holder).await.map_err(|full| {
        let message = match full {
            ReadersFull::Half => {
                format!(
                    "You have {} requests of this kind under way, which is the most. Wait for one.",
                    MAX_READERS / 2
                )
            }
            ReadersFull::All => "Too many clients are reading. Try again soon.".to_owned(),
        };
        Box::new(busy("too_many_readers", &message))
    })
}

/// The place of a live listener. Dropping it releases it.
pub(in crate::server) struct ListenerPlace {
    _permit: OwnedSemaphorePermit,
    _share: Option<Share<Holder>>,
}

/// A place for a live listener; an error response if all are in use, or the half that one key may use, or one address where there
/// are no keys.
pub(in crate::server) fn listener(app: &App, owner: Option<KeyId>, client: Client) -> Result<ListenerPlace, Box<Response>> {
    let holder = Holder::of(owner, client, app.access.keys().n_keys() > 1);
    let share = holder.map(|holder| app.listeners_by_holder.take(holder, MAX_LISTENERS / 2).ok_or(())).transpose();
    let share = share.map_err(|()| {
        let message = format!("You have {} live listeners, which is the most. Close one first.", MAX_LISTENERS / 2);
        Box::new(busy("too_many_listeners", &message))
    })?;
    let permit = app.listeners.clone().try_acquire_owned();
    let permit =
        permit.map_err(|_| Box::new(busy("too_many_listeners", "Too many clients are listening. Try again soon.")))?;
    Ok(ListenerPlace { _permit: permit, _share: share })
}

fn busy(code: &str, message: &str) -> Response {
    let mut response = refused(StatusCode::SERVICE_UNAVAILABLE, code, message);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// `GET /api/turns/{id}`: one turn, or 404.
pub(in crate::server) async fn one(
    State(app): State<Arc<App>>,
    identity: Identity,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Response {
    let cluster = app.hubs();
    if let Some(turn) = app.setup.turn_history.find(identity.viewer, &id) {
        return Json(ShownTurn::Own(turn, cluster.map(|cluster| cluster.name().into()))).into_response();
    }
    let mut message = "There is no such turn; older turns are evicted by newer ones.".to_owned();
    if let Some(cluster) = cluster {
        // Replies take memory, as pages do.
        let _place = match reader(&app, identity.owner, client).await {
            Ok(place) => place,
            Err(response) => return *response,
        };
        match hubs::find(&cluster, identity.viewer, &id).await {
            Found::Turn(turn) => return Json(turn).into_response(),
            Found::Nowhere(missing) if missing.is_empty() => {}
            Found::Nowhere(missing) => message += &format!(" These hubs did not reply: {}.", missing.join(", ")),
        }
    }
    refused(StatusCode::NOT_FOUND, "not_found", &message)
}

/// `GET /api/turns/live`: server-sent events until the client leaves, its key is revoked or the server stops. With
/// `Last-Event-ID`, the changes since then come first.
pub(in crate::server) async fn live(
    State(app): State<Arc<App>>,
    identity: Identity,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
) -> Response {
    let place = match listener(&app, identity.owner, client) {
        Ok(place) => place,
        Err(response) => return *response,
    };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let cluster = app.hubs().filter(|_| identity.viewer != Viewer::Nobody);
    let others = match &cluster {
        Some(cluster) => Some(Others::watch(cluster, identity.viewer).await),
        None => None,
    };
    let hub = cluster.map(|cluster| cluster.name().into());
    let events = events(app, identity, last, hub, others, place);
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

fn events(
    app: Arc<App>,
    identity: Identity,
    last: Option<u64>,
    hub: Option<Arc<str>>,
    mut others: Option<Others>,
    place: ListenerPlace,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let (since, n_left_out, mut listening) = app.setup.turn_history.listen(identity.viewer, last);
    let revoked = app.access.lease(identity.owner);
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
                () = app.setup.drain.cancelled() => return,
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
                _ = clock.tick() => data("state", &snapshot(&app, identity).await),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(last: u8) -> Option<Holder> {
        Some(Holder::Address([192, 0, 2, last].into()))
    }

    #[tokio::test(start_paused = true)]
    async fn one_holder_reads_in_half_of_the_places_and_waits_for_none_of_the_others() {
        let readers = Readers::default();
        let mut greedy = Vec::new();
        for _ in 0..MAX_READERS / 2 {
            greedy.push(readers.place(holder(1)).await.expect("its half"));
        }
        assert_eq!(readers.place(holder(1)).await.err(), Some(ReadersFull::Half));
        let mut others = Vec::new();
        for _ in 0..MAX_READERS / 2 {
            others.push(readers.place(holder(2)).await.expect("the other half"));
        }
        // A wait in vain leaves nothing behind.
        assert_eq!(readers.place(holder(3)).await.err(), Some(ReadersFull::All));
        assert_eq!(readers.by_holder.count(holder(3).expect("a holder")), 0);
        greedy.pop();
        assert!(readers.place(holder(1)).await.is_ok(), "a place that was left is free again");
        others.clear();
        assert!(readers.place(None).await.is_ok());
    }
}
