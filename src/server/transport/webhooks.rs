//! Signed webhooks: events of calls, posted to a program of the operator's as Standard Webhooks has it.
//!
//! [`Webhooks::send`] queues an event and never waits; [`Deliveries::run`] posts it until the receiver answers with 2xx,
//! so that an event arrives at least once, or fails within [`DELIVERED_WITHIN`]. All attempts have the same `webhook-id`,
//! by which a receiver recognizes a repetition. Neither bodies nor the secret are logged.

use crate::server::access::keys;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use ring::hmac;
use serde_json::{Value, json};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Events that wait for a delivery; a further one is dropped, and its sender learns that.
const MAX_WAITING: usize = 256;
/// Deliveries under way; further events wait.
const MAX_DELIVERIES: usize = 64;
/// The longest attempt, from the connection to the head of the answer.
const ATTEMPT: Duration = Duration::from_secs(5);
/// The pause after the first failed attempt; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// No attempt begins later than this after the event.
const DELIVERED_WITHIN: Duration = Duration::from_secs(120);
/// What deliveries get when the hub stops.
const LAST_ATTEMPT: Duration = Duration::from_secs(2);
/// The prefix of a secret, before its base64, and the length of its bytes (Standard Webhooks, "Signature scheme").
const SECRET_PREFIX: &str = "whsec_";
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// An event on its way.
struct WebhookEvent {
    /// The `webhook-id` of all its attempts.
    id: String,
    body: Bytes,
}

/// Takes events. Cheap to clone.
#[derive(Clone)]
pub(super) struct Webhooks(mpsc::Sender<WebhookEvent>);

/// Posts events to one receiver.
pub(in crate::server) struct Deliveries {
    events: mpsc::Receiver<WebhookEvent>,
    receiver: Receiver,
}

/// Where events go.
#[derive(Clone)]
struct Receiver {
    url: String,
    key: hmac::Key,
    http: reqwest::Client,
}

impl Webhooks {
    /// Webhooks to this URL, signed with this secret.
    ///
    /// # Errors
    /// `secret` is none, or there is no TLS.
    pub(super) fn new(url: &str, secret: &str) -> io::Result<(Self, Deliveries)> {
        let key = key_of(secret).ok_or_else(|| {
            let least = SECRET_BYTES.start();
            let most = SECRET_BYTES.end();
            io::Error::other(format!("a secret of webhooks is {SECRET_PREFIX} and {least} to {most} bytes in base64"))
        })?;
        let http = reqwest::Client::builder()
            // A signed body reaches the configured receiver only.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("antiphon/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(io::Error::other)?;
        let (sender, events) = mpsc::channel(MAX_WAITING);
        let receiver = Receiver { url: url.to_owned(), key, http };
        Ok((Self(sender), Deliveries { events, receiver }))
    }

    /// Queues an event in the shape of OpenAI's. `false`: it is dropped, because [`MAX_WAITING`] events wait.
    pub(super) fn send(&self, kind: &'static str, data: &Value) -> bool {
        let body = json!({"object": "event", "id": keys::make("evt_"), "type": kind,
                          "created_at": unix_seconds(), "data": data});
        let event = WebhookEvent { id: keys::make("wh_"), body: body.to_string().into() };
        let is_queued = self.0.try_send(event).is_ok();
        if !is_queued {
            tracing::warn!(kind, "a webhook is dropped: {MAX_WAITING} wait");
        }
        is_queued
    }
}

impl Deliveries {
    /// Delivers until `stop`; what is under way or waits then has [`LAST_ATTEMPT`] left.
    pub(in crate::server) async fn run(mut self, stop: CancellationToken) {
        let mut underway = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = underway.join_next() => {}
                Some(event) = self.events.recv(), if underway.len() < MAX_DELIVERIES => {
                    underway.spawn(self.receiver.clone().deliver(event));
                }
            }
        }
        while let Ok(event) = self.events.try_recv() {
            underway.spawn(self.receiver.clone().deliver(event));
        }
        let _ = timeout(LAST_ATTEMPT, underway.join_all()).await;
    }
}

impl Receiver {
    async fn deliver(self, event: WebhookEvent) {
        let until = Instant::now() + DELIVERED_WITHIN;
        let mut pause = FIRST_PAUSE;
        loop {
            let why = match timeout(ATTEMPT, self.attempt(&event)).await {
                Ok(Ok(())) => return,
                Ok(Err(why)) => why,
                Err(_) => "no answer in time".to_owned(),
            };
            tracing::debug!(webhook = event.id, why, "an attempt to deliver a webhook failed");
            if Instant::now() + pause >= until {
                tracing::warn!(webhook = event.id, why, "a webhook is given up");
                return;
            }
            sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Posts once. The answer's body is not read.
    async fn attempt(&self, event: &WebhookEvent) -> Result<(), String> {
        let at = unix_seconds();
        let signature = format!("v1,{}", BASE64.encode(sign(&self.key, &event.id, at, &event.body)));
        let request = self
            .http
            .post(&self.url)
            .header("content-type", "application/json")
            .header("webhook-id", &event.id)
            .header("webhook-timestamp", at)
            .header("webhook-signature", signature)
            .body(event.body.clone());
        let status = request.send().await.map_err(|error| error.without_url().to_string())?.status();
        if status.is_success() { Ok(()) } else { Err(format!("status {}", status.as_u16())) }
    }
}

fn key_of(secret: &str) -> Option<hmac::Key> {
    let bytes = BASE64.decode(secret.strip_prefix(SECRET_PREFIX)?).ok()?;
    SECRET_BYTES.contains(&bytes.len()).then(|| hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

/// HMAC-SHA256 of id, time and body, joined by full stops.
fn sign(key: &hmac::Key, id: &str, at: u64, body: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(format!("{id}.{at}.").as_bytes());
    context.update(body);
    context.sign()
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks' own libraries.
    #[test]
    fn a_signature_is_that_of_standard_webhooks() {
        let key = key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let signature = sign(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(BASE64.encode(signature), "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        for secret in ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_c2hvcnQ=", "whsec_?"] {
            assert!(key_of(secret).is_none(), "{secret:?}");
        }
    }

    #[tokio::test]
    async fn an_event_without_room_is_refused() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = "http://127.0.0.1:9/";
        let (webhooks, _waiting) = Webhooks::new(url, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let n_queued = (0..=MAX_WAITING).filter(|_| webhooks.send("realtime.call.incoming", &json!({}))).count();
        assert_eq!(n_queued, MAX_WAITING);
    }
}
