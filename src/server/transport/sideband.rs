//! `WS /v1/realtime?call_id=`: a client that joins a call beside its peer, to watch and steer it.
//!
//! It gets the call's server events from `session.created` on as they are sent, and sends client events. The call does not end
//! with it; it ends with the call, or when its key is revoked. One that does not keep up is closed with 1013. A short-lived key joins no call: pages of
//! other users have keys of the same owner.

use super::call_control::unknown_call;
use super::calls::{JoinedClient, MAX_JOINED, OngoingCall};
use super::parts::TransportParts;
use super::webrtc::signaling::rejected;
use crate::server::access::caller::presented;
use crate::server::access::security::Act;
use crate::server::access::{auth, keys};
use crate::server::edge::client::Client;
use crate::server::edge::closing::{close, finish};
use crate::server::edge::inbound_budget::InboundBudget;
use crate::server::edge::inflow::Inflow;
use crate::server::edge::refusal::refused;
use crate::server::edge::unfinished::{Next, UnfinishedMessage};
use crate::server::edge::websocket;
use crate::server::sessions::SessionParts;
use crate::server::sessions::heartbeat::{Beat, Heartbeat};
use crate::server::sessions::socket::STUCK;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Time for a client to take one event.
const TAKING: Duration = Duration::from_secs(10);

/// Joins a client to the call with this id.
pub(super) fn upgrade(
    transport: &Arc<TransportParts>,
    client: Client,
    headers: &HeaderMap,
    (ws, inflow): (WebSocketUpgrade, Arc<Inflow>),
    id: &str,
) -> Response {
    let sessions = &transport.sessions;
    let access = &sessions.access;
    let caller = match auth::caller(access, client, headers) {
        Ok(caller) => caller,
        Err(refusal) => return rejected(access, client, refusal),
    };
    if presented(headers).is_some_and(|key| key.starts_with(keys::EPHEMERAL)) {
        return unknown_call();
    }
    let Some(call) = transport.find_call(id, caller.owner) else {
        return unknown_call();
    };
    let Some(joined) = call.joined.join() else {
        let message = format!("{MAX_JOINED} clients have joined this call, which is the most.");
        return refused(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
    };
    let revoked = caller.lease(&access.keys);
    let name = access.keys.name_of(caller.owner);
    access.security.done("call.join", Act { client, owner: caller.owner, name: name.as_deref(), target: id }, "ok");
    let tasks = sessions.setup.tasks.clone();
    let sessions = sessions.clone();
    let id = id.to_owned();
    websocket::configured(ws).protocols(["realtime"]).on_upgrade(move |socket| {
        tasks.track_future(async move {
            tracing::info!(session = %call.call.session(), call = id, "a client has joined the call");
            let _counted = sessions.connected();
            serve(&sessions, &call, &joined, socket, &inflow, &revoked).await;
            inflow.linger().await;
        })
    })
}

async fn serve(
    sessions: &SessionParts,
    call: &OngoingCall,
    joined: &JoinedClient,
    socket: WebSocket,
    inflow: &Inflow,
    revoked: &CancellationToken,
) {
    let (mut sink, mut stream) = socket.split();
    let budget = InboundBudget::of_session();
    let (heard, mut heartbeat) = Heartbeat::new(Duration::from_secs(u64::from(sessions.edge.config.ping_seconds)));
    let read = async {
        let mut unfinished = UnfinishedMessage::new(&sessions.edge, inflow, &budget);
        loop {
            let message = match unfinished.next(&mut stream, STUCK).await {
                Next::Message(Some(Ok(message))) => message,
                Next::Message(Some(Err(error))) => return websocket::close_for(error),
                Next::Message(None) => return None,
                Next::Late => return Some((1008, "a message took too long (server.message_seconds)")),
                Next::NoRoom => return Some((1013, "the server cannot keep up")),
            };
            heard.renew();
            match message {
                Message::Text(text) => {
                    let Ok(share) = timeout(STUCK, unfinished.share(text.len())).await else {
                        return Some((1013, "the server cannot keep up"));
                    };
                    drop(share);
                    if call.call.send_text(&text).await.is_err() {
                        return Some((1013, "the session cannot keep up"));
                    }
                }
                Message::Binary(_) => return Some((1003, "a client that joins a call sends events only")),
                Message::Close(_) => return None,
                Message::Ping(_) | Message::Pong(_) => {}
            }
        }
    };
    let write = async {
        loop {
            let message = tokio::select! {
                event = joined.next() => Message::Text((&*event).into()),
                beat = heartbeat.beat() => match beat {
                    Beat::Ping => Message::Ping(Bytes::new()),
                    Beat::Dead => return Some((1011, "no answer to two pings")),
                },
            };
            timeout(TAKING, sink.send(message)).await.ok()?.ok()?;
        }
    };
    let end = tokio::select! {
        end = read => end,
        end = write => end,
        () = joined.overflow() => Some((1013, "the client cannot keep up")),
        () = call.ended.cancelled() => Some((1000, "the call has ended")),
        () = revoked.cancelled() => Some((1008, "the API key of this client has been revoked")),
        () = sessions.edge.kill.cancelled() => Some((1001, "the server is going away")),
    };
    finish(&mut sink, &mut stream, end.map(|(code, reason)| close(code, reason))).await;
}
