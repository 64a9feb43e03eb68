//! The connection of Asterisk's events: which program has it, and by which password.

use super::{AWAY, Asterisk, CHANNELS, password};
use crate::hub::{Hub, engines};
use crate::reload::Log;
use crate::sip::calling::{call, state, until};
use crate::sip::soon;
use crate::telephony::calls_out::{CALLEE, is_over};
use antiphon::server::{Extras, Keys, Parts, Reload};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_telemetry::Metrics;
use antiphon_test_server::Answer;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;
use tracing::subscriber::DefaultGuard;

const TAKEN: &str = "The provider cannot be asked: another program has taken the account's Stasis application (ARI).";

/// Another program takes the application: the hub leaves the connection of events.
async fn is_taken(asterisk: &Asterisk) {
    leaves_after(asterisk, json!({"type": "ApplicationReplaced", "application": "antiphon"})).await;
}

/// The hub leaves the connection of events after this one.
async fn leaves_after(asterisk: &Asterisk, event: Value) {
    let sender = asterisk.events.sender.lock().expect("no panic").clone().expect("the hub has connected");
    asterisk.event(event).await;
    soon("the hub leaves", sender.closed()).await;
    asterisk.events.is_followed.send_replace(false);
}

/// What this thread logs from now on, until the guard is dropped.
fn logged() -> (Log, DefaultGuard) {
    let log = Log::default();
    let lines = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || lines.clone()).finish();
    (log, tracing::subscriber::set_default(subscriber))
}

/// How often the hub has connected to the events, or tried it.
fn n_connections(asterisk: &Asterisk) -> usize {
    asterisk.server.requests().iter().filter(|request| request.path() == "/ari/events").count()
}

#[tokio::test(start_paused = true)]
async fn an_application_that_another_program_takes_makes_no_calls_and_is_taken_back_after_a_minute() {
    let (log, _logging) = logged();
    let mut asterisk = Asterisk::new();
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    is_taken(&asterisk).await;
    sleep(Duration::from_secs(50)).await;
    let (status, answer) = call(&hub, json!({"to": CALLEE})).await;
    assert_eq!((status, &answer["error"]["message"]), (502, &json!(TAKEN)));
    assert_eq!(n_connections(&asterisk), 1, "the hub does not fight for it");
    sleep(Duration::from_secs(12)).await;
    asterisk.followed().await;
    assert_eq!(n_connections(&asterisk), 2);
    assert_eq!(call(&hub, json!({"to": CALLEE})).await.0, 201);
    asterisk.made().await;
    hub.stop().await;
    let log = log.text();
    assert!(log.contains("give each hub an 'app' and a 'connection' of its own"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn the_ends_of_calls_are_noticed_while_another_program_has_the_application() {
    let has_hung_up = Arc::new(AtomicBool::new(false));
    let is_over_there = has_hung_up.clone();
    let mut asterisk = Asterisk::answering(move |request| {
        let is_asked = request.method == "GET" && request.path().starts_with(CHANNELS);
        is_asked.then(|| match is_over_there.load(Ordering::Relaxed) {
            true => Answer::refusal(404, r#"{"message": "Channel not found"}"#),
            false => Answer::json(&json!({"id": "x", "state": "Up"})),
        })
    });
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    let (first, first_channel, mut phone) = asterisk.answered(&hub, json!({})).await;
    let (second, second_channel, mut other) = asterisk.answered(&hub, json!({})).await;
    is_taken(&asterisk).await;
    tokio::join!(phone.silence(1_000), other.silence(1_000));
    assert_eq!((state(&hub, &first).await, phone.is_closed), ("in_progress".into(), false));
    phone.stream.close(None).await.expect("it is open");
    asterisk.removed_all(&first_channel).await;
    until(&hub, &first, "ended").await;
    // Asterisk keeps the stream where the other side hangs up: no event says it, and the hub asks once it is back.
    has_hung_up.store(true, Ordering::Relaxed);
    assert_eq!(state(&hub, &second).await, "in_progress");
    other.silence(60_000).await;
    other.until("the stream is closed", |phone| phone.is_closed).await;
    asterisk.removed_all(&second_channel).await;
    is_over(&hub, &second, "ended").await;
    hub.stop().await;
    asterisk.has_no_more();
}

#[tokio::test(start_paused = true)]
async fn the_ends_of_calls_are_noticed_while_events_cannot_be_followed() {
    let is_away = Arc::new(AtomicBool::new(false));
    let is_refused = is_away.clone();
    let over = Arc::new(Mutex::new(String::new()));
    let is_over_there = over.clone();
    let has_ari = Arc::new(AtomicBool::new(true));
    let is_loaded = has_ari.clone();
    let mut asterisk = Asterisk::answering(move |request| {
        if request.path() == "/ari/events" {
            return is_refused.load(Ordering::Relaxed).then(|| Answer::status(503));
        }
        let asked = request.path().strip_prefix(CHANNELS).filter(|_| request.method == "GET")?;
        if !is_loaded.load(Ordering::Relaxed) {
            return Some(Answer::refusal(404, "<html>Not Found</html>"));
        }
        Some(match asked.trim_start_matches('/') == *is_over_there.lock().expect("no panic") {
            true => Answer::refusal(404, r#"{"message": "Channel not found"}"#),
            false => Answer::json(&json!({"id": "x", "state": "Up"})),
        })
    });
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    let (talking, talking_channel, mut phone) = asterisk.answered(&hub, json!({})).await;
    let (_, created) = call(&hub, json!({"to": CALLEE})).await;
    let ringing = created["id"].as_str().expect("an id");
    let ringing_channel = asterisk.made().await;
    is_away.store(true, Ordering::Relaxed);
    has_ari.store(false, Ordering::Relaxed);
    asterisk.close_events();
    phone.silence(5_000).await;
    assert!(n_connections(&asterisk) > 2, "the hub tries again");
    assert_eq!((state(&hub, &talking).await, phone.is_closed), ("in_progress".into(), false), "this 404 is not ARI's");
    has_ari.store(true, Ordering::Relaxed);
    *over.lock().expect("no panic") = talking_channel.clone();
    phone.until("the stream is closed", |phone| phone.is_closed).await;
    asterisk.removed_all(&talking_channel).await;
    until(&hub, &talking, "ended").await;
    // The other one was answered meanwhile. Its stream could not be connected without events.
    asterisk.has_no_more();
    is_away.store(false, Ordering::Relaxed);
    asterisk.followed().await;
    asterisk.opened(&ringing_channel).await;
    until(&hub, ringing, "in_progress").await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asterisk_says_nothing_of_hides_no_other_ones_end() {
    let is_away = Arc::new(AtomicBool::new(false));
    let is_refused = is_away.clone();
    let unanswered = Arc::new(Mutex::new(String::new()));
    let says_nothing_of = unanswered.clone();
    let mut asterisk = Asterisk::answering(move |request| {
        if request.path() == "/ari/events" {
            return is_refused.load(Ordering::Relaxed).then(|| Answer::status(503));
        }
        let asked = request.path().strip_prefix(CHANNELS).filter(|_| request.method == "GET")?;
        Some(match asked.trim_start_matches('/') == *says_nothing_of.lock().expect("no panic") {
            true => Answer::none(),
            false => Answer::refusal(404, r#"{"message": "Channel not found"}"#),
        })
    });
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    let mut ids = Vec::new();
    for _ in 0..6 {
        let (_, created) = call(&hub, json!({"to": CALLEE})).await;
        ids.push(created["id"].as_str().expect("an id").to_owned());
        let channel = asterisk.made().await;
        unanswered.lock().expect("no panic").clone_from(&channel);
    }
    is_away.store(true, Ordering::Relaxed);
    asterisk.close_events();
    let silent = ids.pop().expect("a call");
    for id in &ids {
        until(&hub, id, "failed").await;
    }
    assert_eq!(state(&hub, &silent).await, "calling");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn as_many_such_calls_as_are_asked_about_at_a_time_hide_no_other_ones_end() {
    for is_silent in [true, false] {
        let is_away = Arc::new(AtomicBool::new(false));
        let is_refused = is_away.clone();
        let unanswered = Mutex::new(Vec::<String>::new());
        let mut asterisk = Asterisk::answering(move |request| {
            if request.path() == "/ari/events" {
                return is_refused.load(Ordering::Relaxed).then(|| Answer::status(503));
            }
            let asked = request.path().strip_prefix(CHANNELS).filter(|_| request.method == "GET")?;
            let mut unanswered = unanswered.lock().expect("no panic");
            let mut is_unanswered = unanswered.iter().any(|known| known == asked);
            if !is_unanswered && unanswered.len() < 8 {
                unanswered.push(asked.to_owned());
                is_unanswered = true;
            }
            Some(match (is_unanswered, is_silent) {
                (true, true) => Answer::none(),
                (true, false) => Answer::refusal(404, "<html>Not Found</html>"),
                (false, _) => Answer::refusal(404, r#"{"message": "Channel not found"}"#),
            })
        });
        let mut config = asterisk.config();
        config.sip.max_calls_out = 12;
        let hub = asterisk.hub(config, &[], &FakeLlm::default()).await;
        let mut ids = Vec::new();
        for _ in 0..12 {
            let (_, created) = call(&hub, json!({"to": CALLEE})).await;
            ids.push(created["id"].as_str().expect("an id").to_owned());
            asterisk.made().await;
        }
        is_away.store(true, Ordering::Relaxed);
        asterisk.close_events();
        let mut n_failed = 0;
        let others_end = async {
            while n_failed < 4 {
                sleep(Duration::from_millis(100)).await;
                n_failed = 0;
                for id in &ids {
                    n_failed += usize::from(state(&hub, id).await == "failed");
                }
            }
        };
        soon("the ends of the others", others_end).await;
        assert_eq!(n_failed, 4);
        hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_event_is_taken_and_one_that_is_too_long_is_named_in_the_log() {
    let (log, _logging) = logged();
    let mut asterisk = Asterisk::new();
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    let (_, created) = call(&hub, json!({"to": CALLEE})).await;
    let id = created["id"].as_str().expect("an id");
    let channel = asterisk.made().await;
    let variable = |n_bytes: usize| json!({"type": "ChannelVarset", "variable": "X", "value": "x".repeat(n_bytes)});
    asterisk.event(variable(500 << 10)).await;
    asterisk.rings(&channel).await;
    until(&hub, id, "ringing").await;
    assert_eq!(n_connections(&asterisk), 1, "the connection goes on");
    leaves_after(&asterisk, variable(2 << 20)).await;
    asterisk.followed().await;
    assert_eq!(n_connections(&asterisk), 2);
    hub.stop().await;
    let log = log.text();
    assert!(log.contains("an event is longer than 1 MiB"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_new_password_counts_for_requests_and_for_the_next_connection_of_events() {
    let mut asterisk = Asterisk::new();
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let (reload, reloads) = tokio::sync::mpsc::channel(1);
    let config = asterisk.config();
    let parts = Parts { config, engines, metrics: Metrics::new(), keys: Keys::default(), tls: None, manager: None };
    let hub = Hub::serve_with(parts, Extras { reloads: Some(reloads), ..Extras::default() }).await;
    asterisk.followed().await;
    let replace = async |password: &str| {
        let account_secrets = [("office".to_owned(), password.to_owned())].into();
        reload.send(Reload { account_secrets, ..Reload::default() }).await.expect("taken");
        // It is applied once there is room for the next.
        reload.send(Reload::default()).await.expect("taken");
        reload.send(Reload::default()).await.expect("taken");
    };
    replace("another password").await;
    let (status, answer) = call(&hub, json!({"to": CALLEE})).await;
    let refused = json!("The provider refused: Authentication required");
    assert_eq!((status, &answer["error"]["message"]), (502, &refused), "the events go on, and the request has it");
    asterisk.made().await;
    asterisk.close_events();
    sleep(Duration::from_secs(5)).await;
    let (status, answer) = call(&hub, json!({"to": CALLEE})).await;
    assert_eq!((status, &answer["error"]["message"]), (502, &json!(AWAY)));
    replace(&password()).await;
    asterisk.followed().await;
    assert_eq!(call(&hub, json!({"to": CALLEE})).await.0, 201);
    asterisk.made().await;
    hub.stop().await;
}
