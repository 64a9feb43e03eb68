//! The events of an account at Asterisk, by one WebSocket that is opened again whenever it breaks.
//!
//! A Stasis application has one WebSocket: the program that connects last has it. A hub that loses its application
//! takes it back after a minute, not at once: two hubs with the same application would have no events at all.
//!
//! [`super::Accounts`] runs [`follow`] as long as the hub runs. Events become statuses of the calls that
//! [`super::expected`] holds; no other channel's are read. While no events arrive, no call is made, and Asterisk is
//! asked after each attempt to connect which of the account's calls are over; once they do again, how far they are.

use super::ari::{Ari, Channel, EventFeed, call_of_stream};
use super::expected::{CallStatus, ExpectedCalls};
use crate::server::sessions::heartbeat::{Beat, Heartbeat};
use crate::server::transport::calls::CallState;
use crate::server::transport::transfers::ProviderError;
use antiphon_types::RetryPolicy;
use axum::http::header::AUTHORIZATION;
use futures_util::{SinkExt, StreamExt, stream};
use serde::Deserialize;
use std::pin::pin;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

/// The longest handshake, and the longest wait until a ping is taken.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// The longest event: far above a channel with large variables. A longer one ends the connection.
const MAX_EVENT_BYTES: usize = 1 << 20;
/// What the log says of a longer one.
const TOO_LONG: &str = "an event is longer than 1 MiB: a channel has too large variables";
/// Between two pings; a connection without a sign of life for two of them is broken.
const PING_EVERY: Duration = Duration::from_secs(20);
/// The pauses between two attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The pause after another program has taken the application.
const TAKEN_PAUSE: Duration = Duration::from_secs(60);
/// Requests for the states of calls at a time: one that is not answered delays no other.
const MAX_ASKED: usize = 8;
/// What the operator does then.
const TAKEN: &str = "another program has taken the Stasis application, and no call is made: give each hub an 'app' and \
                     a 'connection' of its own in telephony.accounts";

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Why events no longer arrive.
enum EventsLost {
    /// The connection has ended, or is broken.
    Connection(String),
    /// Another program has taken the application.
    Application,
}

/// An event, as far as the hub reads it.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    channel: Option<Channel>,
    /// Of `Dial`: the channel that is called, and how far that is.
    peer: Option<Channel>,
    dialstatus: Option<String>,
    /// Of `ChannelDestroyed`: a cause of Q.850.
    cause: Option<u32>,
}

/// Follows the events of the account of this name. Runs until it is dropped.
pub(super) async fn follow(ari: &Ari, account: &str, expected: &ExpectedCalls) {
    let mut pauses = RetryPolicy::unbounded(FIRST_PAUSE, LONGEST_PAUSE).pauses();
    let mut last_asked = None;
    loop {
        let pause = match connect(ari).await {
            Ok(socket) => {
                tracing::info!(account, app = ari.app(), "Asterisk's events arrive");
                let began = Instant::now();
                let lost = take_events(ari, account, expected, socket).await;
                if began.elapsed() >= LONGEST_PAUSE {
                    pauses.restart();
                }
                match lost {
                    EventsLost::Connection(why) => {
                        ari.set_events(EventFeed::Disconnected);
                        tracing::warn!(account, why, "Asterisk's events no longer arrive");
                        pauses.next()
                    }
                    EventsLost::Application => {
                        ari.set_events(EventFeed::Taken);
                        tracing::error!(account, app = ari.app(), "{TAKEN}");
                        Some(TAKEN_PAUSE)
                    }
                }
            }
            Err(why) => {
                ari.set_events(EventFeed::Disconnected);
                tracing::warn!(account, why, "Asterisk's events cannot be followed");
                pauses.next()
            }
        };
        let until = Instant::now() + pause.unwrap_or(LONGEST_PAUSE);
        // The next attempt does not wait for the answers.
        let _ = timeout_at(until, ask_for_ends(ari, account, expected, &mut last_asked)).await;
        sleep_until(until).await;
    }
}

/// Opens the connection; an error says why there is none.
async fn connect(ari: &Ari) -> Result<Socket, String> {
    let mut request = ari.events_url().into_client_request().map_err(|error| error.to_string())?;
    request.headers_mut().insert(AUTHORIZATION, ari.authorization());
    let config =
        WebSocketConfig::default().max_message_size(Some(MAX_EVENT_BYTES)).max_frame_size(Some(MAX_EVENT_BYTES));
    match timeout(ANSWERS_WITHIN, connect_async_with_config(request, Some(config), true)).await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(Error::Http(response))) => Err(format!("status {}", response.status().as_u16())),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer in 10 s".into()),
    }
}

/// Takes events until they no longer arrive.
async fn take_events(ari: &Ari, account: &str, expected: &ExpectedCalls, socket: Socket) -> EventsLost {
    let (mut sink, mut stream) = socket.split();
    let (reset, mut heartbeat) = Heartbeat::new(PING_EVERY);
    // Calls that begin from now on have all their events.
    let earlier = expected.of_account(account);
    ari.set_events(EventFeed::Connected);
    let mut asked = pin!(ask(ari, account, expected, earlier));
    let mut is_asked = false;
    // The first ping shows at once that the connection carries something.
    let mut is_ping_due = true;
    loop {
        if std::mem::take(&mut is_ping_due) {
            let ping = sink.send(Message::Ping(Bytes::new()));
            if !matches!(timeout(ANSWERS_WITHIN, ping).await, Ok(Ok(()))) {
                return EventsLost::Connection("it takes nothing".into());
            }
        }
        tokio::select! {
            message = stream.next() => {
                reset.renew();
                match message {
                    Some(Ok(Message::Text(text))) => match serde_json::from_str::<Event>(&text) {
                        Ok(event) if event.kind == "ApplicationReplaced" => return EventsLost::Application,
                        Ok(event) => {
                            if let Some((call, status)) = event.status() {
                                expected.report(account, call, status);
                            }
                        }
                        Err(error) => tracing::debug!(account, %error, "an event of Asterisk's is not read"),
                    },
                    Some(Ok(Message::Close(_))) | None => return EventsLost::Connection("it was closed".into()),
                    Some(Ok(_)) => {}
                    Some(Err(Error::Capacity(_))) => return EventsLost::Connection(TOO_LONG.into()),
                    Some(Err(error)) => return EventsLost::Connection(error.to_string()),
                }
            }
            beat = heartbeat.beat() => match beat {
                Beat::Ping => is_ping_due = true,
                Beat::Dead => return EventsLost::Connection("no answer to two pings".into()),
            },
            () = &mut asked, if !is_asked => is_asked = true,
        }
    }
}

/// Asks how far these calls are: their events may be lost.
async fn ask(ari: &Ari, account: &str, expected: &ExpectedCalls, calls: Vec<String>) {
    let states = stream::iter(calls).map(|call| async move {
        let state = ari.state(&call).await;
        (call, state)
    });
    let mut states = states.buffer_unordered(MAX_ASKED);
    while let Some((call, state)) = states.next().await {
        let status = match state {
            Ok(None) => CallStatus::Unknown,
            Ok(Some(state)) if state == "Ringing" => CallStatus::Ringing,
            Ok(Some(state)) if state == "Up" => CallStatus::Answered,
            Ok(Some(_)) => continue,
            Err(error) => {
                // Those that wait for an answer have a deadline.
                tracing::warn!(account, ?error, "Asterisk does not say how far a call is");
                continue;
            }
        };
        expected.report(account, &call, status);
    }
}

/// Asks which calls are over, while no event says it. That a call is answered is not reported: its stream cannot be
/// connected without events. Begins behind the call that was asked for last, and notes the last one: calls that
/// Asterisk says nothing of hide no others.
async fn ask_for_ends(ari: &Ari, account: &str, expected: &ExpectedCalls, last_asked: &mut Option<String>) {
    let calls = calls_behind(last_asked.as_deref(), expected.of_account(account));
    let states = stream::iter(calls).map(|call| {
        *last_asked = Some(call.clone());
        async move {
            let state = ari.state(&call).await;
            (call, state)
        }
    });
    let mut states = states.buffer_unordered(MAX_ASKED);
    while let Some((call, state)) = states.next().await {
        match state {
            Ok(None) => expected.report(account, &call, CallStatus::Unknown),
            Ok(Some(_)) => {}
            Err(ProviderError::Unreachable(why)) => {
                tracing::debug!(account, why, "Asterisk does not say whether a call is over");
            }
            Err(ProviderError::Refused(why)) => {
                tracing::warn!(account, why, "Asterisk does not say whether a call is over");
            }
        }
    }
}

/// These calls in an order that is always the same, from the one behind `last` on.
fn calls_behind(last: Option<&str>, mut calls: Vec<String>) -> Vec<String> {
    calls.sort_unstable();
    let n_before = last.map_or(0, |last| calls.partition_point(|call| call.as_str() <= last));
    calls.rotate_left(n_before);
    calls
}

impl Event {
    /// The call that it is of, and what it says of it; `None`: nothing that the hub needs.
    fn status(&self) -> Option<(&str, CallStatus)> {
        let channel = self.channel.as_ref().or(self.peer.as_ref())?;
        if let Some(call) = call_of_stream(&channel.id) {
            return match self.kind.as_str() {
                "StasisStart" => Some((call, CallStatus::StreamReady)),
                "StasisEnd" | "ChannelDestroyed" => Some((call, CallStatus::StreamEnded)),
                _ => None,
            };
        }
        let status = match self.kind.as_str() {
            "Dial" if self.dialstatus.as_deref() == Some("RINGING") => CallStatus::Ringing,
            "ChannelStateChange" if channel.state == "Ringing" => CallStatus::Ringing,
            // A channel that was called enters the application when it is answered.
            "StasisStart" => CallStatus::Answered,
            // It has hung up, or goes on in the dialplan.
            "StasisEnd" => CallStatus::Over(CallState::Ended),
            "ChannelDestroyed" => CallStatus::Over(outcome_of(self.cause.unwrap_or_default())),
            _ => return None,
        };
        Some((&channel.id, status))
    }
}

/// What a call became that was destroyed for this cause (Q.850, table 1).
fn outcome_of(cause: u32) -> CallState {
    match cause {
        16 => CallState::Ended,
        17 => CallState::Busy,
        18..=20 => CallState::NoAnswer,
        21 => CallState::Declined,
        _ => CallState::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_round_of_questions_begins_behind_the_last_call_of_the_one_before() {
        let calls = |names: &str| names.chars().map(String::from).collect::<Vec<_>>();
        for (last, expect) in [(None, "abcd"), (Some("b"), "cdab"), (Some("bb"), "cdab"), (Some("d"), "abcd")] {
            assert_eq!(calls_behind(last, calls("dbac")), calls(expect), "behind {last:?}");
        }
        assert_eq!(calls_behind(Some("a"), Vec::new()), calls(""));
    }

    #[test]
    fn an_event_says_how_far_its_call_is() {
        let check = |event: Value, expect: Option<(&str, CallStatus)>| {
            let read: Event = serde_json::from_value(event.clone()).unwrap();
            assert_eq!(read.status(), expect, "{event}");
        };
        let channel = |state: &str| json!({"id": "a", "name": "PJSIP/trunk-1", "state": state});
        let dial = json!({"type": "Dial", "dialstatus": "RINGING", "peer": channel("Down")});
        check(dial, Some(("a", CallStatus::Ringing)));
        check(json!({"type": "Dial", "dialstatus": "PROGRESS", "peer": channel("Down")}), None);
        let ringing = json!({"type": "ChannelStateChange", "channel": channel("Ringing")});
        check(ringing, Some(("a", CallStatus::Ringing)));
        check(json!({"type": "ChannelStateChange", "channel": channel("Up")}), None);
        let answered = json!({"type": "StasisStart", "args": [], "channel": channel("Up")});
        check(answered, Some(("a", CallStatus::Answered)));
        let left = json!({"type": "StasisEnd", "channel": channel("Up")});
        check(left, Some(("a", CallStatus::Over(CallState::Ended))));
        for (cause, state) in [
            (16, CallState::Ended),
            (17, CallState::Busy),
            (19, CallState::NoAnswer),
            (21, CallState::Declined),
            (34, CallState::Failed),
        ] {
            let destroyed = json!({"type": "ChannelDestroyed", "cause": cause, "channel": channel("Down")});
            check(destroyed, Some(("a", CallStatus::Over(state))));
        }
        let stream = |kind: &str| json!({"type": kind, "channel": {"id": "a-stream", "state": "Up"}, "cause": 16});
        check(stream("StasisStart"), Some(("a", CallStatus::StreamReady)));
        check(stream("ChannelDestroyed"), Some(("a", CallStatus::StreamEnded)));
        check(stream("ChannelVarset"), None);
        check(json!({"type": "ApplicationReplaced", "application": "antiphon"}), None);
    }
}
