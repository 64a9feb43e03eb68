//! One call: the hub calls a [`Callee`], which plays an answer in real time, and reports who answers.
//!
//! The hub's reports and the recognizer's words come by the WebSocket of a client that has joined the call. Times are this
//! process's clock: of the frame that was sent, and of the event that arrived.

use super::callee::Callee;
use super::sound::{FRAME_TIME, LineSound};
use crate::BenchError;
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// The longest wait for the hub's INVITE.
const CALLS_WITHIN: Duration = Duration::from_secs(10);
/// The longest wait for a report, from the end of the last sound.
const LISTENS: Duration = Duration::from_secs(6);
/// The same where the hub has found what it does not revise: up to the time that counts.
const LISTENS_SETTLED: Duration = super::outcome::COUNTS_WITHIN;
/// The longest wait for the hub's BYE.
const HANGS_UP_WITHIN: Duration = Duration::from_secs(2);

/// Makes calls through a hub, one after the other, to a phone of its own.
pub(super) struct Caller<'a> {
    pub(super) http: &'a reqwest::Client,
    /// The hub's address.
    pub(super) url: &'a str,
    /// The hub's trunk to the phone.
    pub(super) trunk: String,
    pub(super) callee: Callee,
}

/// What was reported in a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CallTrace {
    /// Who answers, with when that was reported, in milliseconds from the end of the last word.
    pub(super) reports: Vec<(f64, String)>,
    /// The end of the last sound, in milliseconds from that of the last word.
    pub(super) sound_end_ms: f64,
    /// What the recognizer heard.
    pub(super) heard: String,
}

/// Events of the joined client, as they came.
#[derive(Default)]
struct Events {
    reports: Vec<(Instant, String)>,
    finals: String,
    partial: String,
}

impl Caller<'_> {
    /// Calls this number, plays the answer, waits for the last report that may count, and hangs up.
    ///
    /// # Errors
    /// The hub does not call, or the client cannot join.
    pub(super) async fn call(&mut self, number: &str, sound: &LineSound) -> Result<CallTrace, BenchError> {
        let id = self.dial(number).await?;
        let trace = self.answer(&id, number, sound).await;
        // A call that has failed is not left open either.
        let hang_up = self.http.post(format!("{}/v1/realtime/calls/{id}/hangup", self.url)).send().await;
        if trace.is_ok() && hang_up.is_ok_and(|answer| answer.status().is_success()) {
            let is_over = async {
                while !self.callee.serve().await? {}
                Ok::<_, BenchError>(())
            };
            let _ = timeout(HANGS_UP_WITHIN, is_over).await;
        }
        trace
    }

    async fn dial(&self, number: &str) -> Result<String, BenchError> {
        // Nothing is left, and no greeting waits: an answering machine is spoken to as a person is.
        let body = json!({"to": format!("tel:{number}"), "trunk": self.trunk, "on_voicemail": "go_on"});
        let answer = self.http.post(format!("{}/v1/realtime/calls", self.url)).json(&body).send().await;
        let answer = answer.map_err(failed)?;
        let call: Value = answer.json().await.map_err(failed)?;
        match call["id"].as_str() {
            Some(id) => Ok(id.to_owned()),
            None => Err(failed(format!("the hub does not call: {}", call["error"]["message"]))),
        }
    }

    async fn answer(&mut self, id: &str, number: &str, sound: &LineSound) -> Result<CallTrace, BenchError> {
        let mut socket = join(self.url, id).await?;
        let line = timeout(CALLS_WITHIN, self.callee.pick_up(number)).await;
        let mut line = line.map_err(|_| failed("the hub sent no INVITE"))??;
        let mut events = Events::default();
        let mut is_joined = true;
        let mut words_end = None;
        let mut sound_end: Option<Instant> = None;
        let mut n_sent = 0;
        let mut ticks = interval(FRAME_TIME);
        // A phone that is late catches up.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => {
                    line.play(sound.frame(n_sent));
                    n_sent += 1;
                    let now = Instant::now();
                    if n_sent == sound.n_to_words_end {
                        words_end = Some(now);
                    }
                    if n_sent == sound.n_to_sound_end {
                        sound_end = Some(now);
                    }
                    let listens = if events.is_settled() { LISTENS_SETTLED } else { LISTENS };
                    if sound_end.is_some_and(|end| now >= end + listens) {
                        break;
                    }
                }
                message = socket.next(), if is_joined => match message {
                    Some(Ok(Message::Text(text))) => events.take(Instant::now(), text.as_str()),
                    Some(Ok(_)) => {}
                    // The hub has ended the call; the answer is played to its end.
                    Some(Err(_)) | None => is_joined = false,
                },
                served = self.callee.serve() => {
                    served?;
                }
            }
        }
        let words_end = words_end.ok_or_else(|| failed("the answer has no words"))?;
        let sound_end = sound_end.ok_or_else(|| failed("the answer has no end"))?;
        Ok(events.trace(words_end, sound_end))
    }
}

/// Joins a call as a client.
async fn join(url: &str, id: &str) -> Result<WebSocketStream<MaybeTlsStream<TcpStream>>, BenchError> {
    let url = format!("{}/v1/realtime?call_id={id}", url.replacen("http", "ws", 1));
    let (socket, _) = connect_async(url).await.map_err(failed)?;
    Ok(socket)
}

impl Events {
    fn take(&mut self, now: Instant, text: &str) {
        let event: Value = serde_json::from_str(text).unwrap_or_default();
        let field = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str() {
            Some("antiphon.call.answered_by") => self.reports.push((now, field("answered_by"))),
            Some("conversation.item.input_audio_transcription.delta") => self.partial += &field("delta"),
            Some("conversation.item.input_audio_transcription.completed") => {
                self.partial.clear();
                self.finals += " ";
                self.finals += field("transcript").trim();
            }
            _ => {}
        }
    }

    /// Whether the hub revises its last report no more.
    fn is_settled(&self) -> bool {
        self.reports.last().is_some_and(|(_, found)| ["person", "voicemail", "fax"].contains(&found.as_str()))
    }

    fn trace(self, words_end: Instant, sound_end: Instant) -> CallTrace {
        let reports = self.reports.into_iter().map(|(at, found)| (ms_between(words_end, at), found)).collect();
        let heard = format!("{} {}", self.finals, self.partial).trim().to_owned();
        CallTrace { reports, sound_end_ms: ms_between(words_end, sound_end), heard }
    }
}

/// Milliseconds from one time to another; negative if that is earlier.
fn ms_between(from: Instant, to: Instant) -> f64 {
    let later = to.saturating_duration_since(from).as_secs_f64();
    let earlier = from.saturating_duration_since(to).as_secs_f64();
    1e3 * (later - earlier)
}

fn failed(why: impl ToString) -> BenchError {
    BenchError::Call(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_become_reports_and_words() {
        let began = Instant::now();
        let after = |ms| began + Duration::from_millis(ms);
        let mut events = Events::default();
        events.take(after(100), r#"{"type": "antiphon.call.answered_by", "answered_by": "screening"}"#);
        assert!(!events.is_settled());
        let delta = r#"{"type": "conversation.item.input_audio_transcription.delta", "delta": "Say your"}"#;
        events.take(after(200), delta);
        let completed =
            r#"{"type": "conversation.item.input_audio_transcription.completed", "transcript": "Say your name."}"#;
        events.take(after(300), completed);
        events.take(after(350), delta);
        events.take(after(400), "no JSON");
        events.take(after(900), r#"{"type": "antiphon.call.answered_by", "answered_by": "voicemail"}"#);
        assert!(events.is_settled());
        let trace = events.trace(after(500), after(700));
        let reports: Vec<(i64, &str)> =
            trace.reports.iter().map(|(ms, found)| (ms.round() as i64, found.as_str())).collect();
        assert_eq!(reports, [(-400, "screening"), (400, "voicemail")]);
        assert_eq!((trace.sound_end_ms.round() as i64, trace.heard.as_str()), (200, "Say your name. Say your"));
    }
}
