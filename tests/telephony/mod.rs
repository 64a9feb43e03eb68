//! Phone calls: fake peers of each telephony provider over real sockets, at a real hub.

mod asterisk_out;
mod audiosocket;
mod calls_out;
mod narrow;
pub mod phone;
mod recording;

use crate::hub::{Hub, Socket, engines};
use crate::turns::{get, ms, turn};
use antiphon::config::{Config, TelephonyRoute};
use antiphon::server::{Extras, Keys, Parts, Reload};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::llm::LlmDelta;
use antiphon_engine_api::stt::SpeakerState;
use antiphon_telemetry::Metrics;
use antiphon_types::chat::Finish;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::StreamExt;
use phone::{Phone, Provider};
use ring::hmac;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

const NUMBER: &str = "+15550100";

fn open_config() -> Config {
    let mut config = Config::default();
    config.telephony.unauthenticated = true;
    config.telephony.key_pause_ms = 400;
    config
}

fn route(greeting: &str, session: Value) -> TelephonyRoute {
    TelephonyRoute { greeting: greeting.into(), session: session.as_object().expect("an object").clone() }
}

async fn hub(heard: &[&str], llm: &FakeLlm, config: Config) -> Hub {
    Hub::start(engines(FakeStt::hears(heard.iter().copied()), llm.clone(), FakeTts::default()), config).await
}

/// Runs calls at once. They are boxed one by one: those of all providers by value do not fit the stack of a test.
async fn all(calls: impl Iterator<Item = impl Future<Output = ()>>) {
    futures_util::future::join_all(calls.map(Box::pin)).await;
}

fn long() -> String {
    // Each word takes 250 ms.
    "long ".repeat(60)
}

#[tokio::test(start_paused = true)]
async fn every_provider_carries_a_turn_and_says_what_was_heard() {
    let calls = Provider::ALL.into_iter().map(|provider| async move {
        let llm = FakeLlm::says(["Ten past ten."]);
        let hub = hub(&["what time is it"], &llm, open_config()).await;
        let mut phone = Phone::call(hub.address, provider, "", NUMBER).await;
        phone.speak(500).await;
        // 650 ms are spoken, and silence fills the last frame.
        phone.until("the whole reply is heard", |phone| phone.heard_ms() >= 650).await;
        phone.silence(200).await;
        assert_eq!((phone.heard_ms(), phone.held_ms()), (660, 0), "{provider:?}");
        let loud = phone.heard.iter().filter(|sample| sample.unsigned_abs() > 1_000).count();
        assert!(loud > phone.heard.len() / 2, "{provider:?} heard a tone");
        let turn = turn(&hub, |turn| turn["settled"] == true && turn["heard_by"] == "report").await;
        assert_eq!(
            (&turn["transcript"], &turn["heard"]),
            (&json!("what time is it"), &json!("Ten past ten.")),
            "{turn}"
        );
        assert_eq!(turn["audio"]["heard_ms"], json!(650.0), "{provider:?} {turn}");
        // The peer ends the call, and the session ends with it.
        phone.stream.close(None).await.expect("it is open");
        hub.until("antiphon_sessions_active ", 0.0).await;
        hub.stop().await;
    });
    all(calls).await;
}

#[tokio::test(start_paused = true)]
async fn audio_and_keys_ahead_of_the_start_are_dropped_and_the_call_goes_on() {
    let calls = Provider::ALL.into_iter().map(|provider| async move {
        let hub = hub(&["hello"], &FakeLlm::says(["Hi."]), open_config()).await;
        let mut phone = Phone::connect(hub.address, provider, "", &[]).await.expect("the upgrade is accepted");
        for _ in 0..30 {
            let early = phone.audio(&vec![8_000; phone.rate() / 50]);
            phone.send(early).await;
        }
        for message in provider.start(NUMBER) {
            phone.send(Message::text(message)).await;
        }
        phone.speak(500).await;
        phone.until("the reply is heard", |phone| phone.heard_ms() >= 150).await;
        assert!(!phone.is_closed, "{provider:?}");
        assert_eq!(hub.metric("antiphon_turns_total"), 1.0, "{provider:?}: what came ahead is no turn");
        hub.stop().await;
    });
    all(calls).await;
}

#[tokio::test(start_paused = true)]
async fn the_language_of_the_callers_country_is_tried_first() {
    let stt = FakeStt::hears(["what time is it"]);
    let engines = engines(stt.clone(), FakeLlm::says(["Ten past ten."]), FakeTts::default());
    let hub = Hub::start(engines, open_config()).await;
    let mut phone = Phone::call(hub.address, Provider::Telnyx, "", "+4930123").await;
    phone.speak(500).await;
    phone.until("the reply is heard", |phone| phone.heard_ms() >= 150).await;
    let of_caller = SpeakerState::PreferredLanguage("en".into());
    assert_eq!(stt.speakers()[0], Some(of_caller), "of +15550199, not of the number that was called");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_hears_a_filler_while_the_model_is_late_and_then_the_answer() {
    let llm = FakeLlm::says(["Ten past ten."]).held(0);
    let engines = engines(FakeStt::hears(["what time is it"]), llm.clone(), FakeTts::default());
    let mut config = open_config();
    config.session.filler_after_ms = 100;
    config.speculation.after_ms = 0;
    let hub = Hub::start(engines, config).await;
    let mut phone = Phone::call(hub.address, Provider::Twilio, "", NUMBER).await;
    phone.speak(500).await;
    // "One moment." is 550 ms of sound, and the answer 650 ms.
    phone.until("the whole filler is heard", |phone| phone.heard_ms() >= 550).await;
    phone.silence(200).await;
    assert_eq!((phone.heard_ms(), phone.held_ms()), (560, 0), "the filler, once, and nothing of the answer");
    llm.gate.add_permits(1);
    phone.until("the answer is heard, too", |phone| phone.heard_ms() >= 1_210).await;
    phone.silence(200).await;
    assert_eq!((phone.heard_ms(), phone.held_ms()), (1_220, 0));
    let turn = turn(&hub, |turn| turn["settled"] == true && turn["heard_by"] == "report").await;
    assert_eq!((&turn["filler"]["text"], &turn["heard"]), (&json!("One moment."), &json!("Ten past ten.")), "{turn}");
    assert_eq!(turn["audio"]["heard_ms"], json!(650.0), "the filler is none of it: {turn}");
}

#[tokio::test(start_paused = true)]
async fn a_barge_in_clears_the_peer_and_the_history_ends_at_what_was_heard() {
    let calls = Provider::ALL.into_iter().map(|provider| async move {
        let answer = long();
        let llm = FakeLlm::default();
        for text in [answer.as_str(), "Fine."] {
            llm.then(antiphon_engine_api::fakes::llm::words(text));
        }
        let hub = hub(&["tell me", "stop that"], &llm, open_config()).await;
        let mut phone = Phone::call(hub.address, provider, "", NUMBER).await;
        phone.speak(500).await;
        phone.until("1.3 s of the reply", |phone| phone.heard_ms() >= 1_300).await;
        phone.speak(600).await;
        phone.until("the reply is cleared", |phone| !phone.cleared_at.is_empty()).await;
        let stopped_ms = phone.cleared_at[0] * 1_000 / phone.rate();
        let n_heard = phone.heard.len();
        phone.until("the next reply", |phone| phone.heard.len() > n_heard).await;
        assert!(!phone.is_paused, "{provider:?}");
        let can_pause = matches!(provider, Provider::Asterisk | Provider::AsteriskJson);
        assert_eq!(phone.was_paused, can_pause, "{provider:?}");
        let (_, list) = get(&hub, "/api/turns").await;
        let cut = list["turns"].as_array().expect("a list").iter().find(|turn| turn["barged_in"] == true);
        let cut = cut.expect("the reply was cut");
        let error = ms(&cut["audio"]["heard_ms"]) - stopped_ms as f64;
        // On a quiet machine less than 40 ms. A hub that counted what it had sent would be 300 ms off.
        assert!(error.abs() < 150.0, "{provider:?}: {error} ms, stopped at {stopped_ms}: {cut}");
        let n_words = cut["heard"].as_str().expect("text").matches("long").count();
        assert!((stopped_ms / 250).abs_diff(n_words) <= 1, "{provider:?}: {n_words} words in {stopped_ms} ms");
        let history = format!("{:?}", llm.requests()[1].messages);
        assert_eq!(history.matches("long").count(), n_words, "{provider:?}");
        hub.stop().await;
    });
    all(calls).await;
}

#[tokio::test(start_paused = true)]
async fn keys_stop_the_reply_and_are_a_message_of_the_user() {
    let calls = Provider::ALL.into_iter().map(|provider| async move {
        let answer = long();
        let llm = FakeLlm::default();
        for text in [answer.as_str(), "Thank you.", "And again."] {
            llm.then(antiphon_engine_api::fakes::llm::words(text));
        }
        // Longer than a busy machine takes between two keys.
        let mut config = open_config();
        config.telephony.key_pause_ms = 2_000;
        let hub = hub(&["tell me"], &llm, config).await;
        let mut phone = Phone::call(hub.address, provider, "", NUMBER).await;
        phone.speak(500).await;
        phone.until("the reply begins", |phone| phone.heard_ms() >= 200).await;
        phone.press('1').await;
        phone.until("the reply is cleared", |phone| !phone.cleared_at.is_empty()).await;
        phone.press('2').await;
        phone.press('#').await;
        let n_heard = phone.heard.len();
        phone.until("the answer to the keys", |phone| phone.heard.len() > n_heard).await;
        let history = format!("{:?}", llm.requests()[1].messages);
        assert!(history.contains("12#"), "{provider:?} {history}");
        // Without '#' the entry ends after a pause.
        phone.press('7').await;
        let asked = || llm.requests().len() == 3;
        phone.until("the second entry", |_| asked()).await;
        let history = format!("{:?}", llm.requests()[2].messages);
        assert!(history.contains(": 7)"), "{provider:?} {history}");
        hub.stop().await;
    });
    all(calls).await;
}

#[tokio::test(start_paused = true)]
async fn keys_before_speech_are_answered_with_the_speech() {
    let llm = FakeLlm::says(["Thank you."]);
    let hub = hub(&["and my name is ada"], &llm, open_config()).await;
    let mut phone = Phone::call(hub.address, Provider::Twilio, "", NUMBER).await;
    phone.press('7').await;
    // Longer than the pause that ends the entry.
    phone.speak(5_000).await;
    assert!(llm.requests().is_empty(), "the caller speaks: {:?}", llm.requests());
    phone.until("the answer", |phone| phone.heard_ms() > 0).await;
    phone.silence(2_000).await;
    let history = format!("{:?}", llm.requests().last().expect("a request").messages);
    assert!(history.contains(": 7)") && history.contains("my name is ada"), "{history}");
    let (_, list) = get(&hub, "/api/turns").await;
    assert_eq!(list["turns"].as_array().expect("a list").len(), 1, "one answer to both: {list}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn keys_into_speech_are_answered_where_turn_detection_is_turned_off_meanwhile() {
    let llm = FakeLlm::says(["Thank you."]);
    let hub = hub(&[], &llm, open_config()).await;
    let mut phone = Phone::call(hub.address, Provider::Twilio, "", NUMBER).await;
    phone.silence(200).await;
    let mut client = join(&hub).await;
    phone.speak(500).await;
    phone.press('1').await;
    phone.press('#').await;
    phone.speak(200).await;
    let session = json!({"type": "realtime", "audio": {"input": {"turn_detection": null}}});
    client.send(json!({"type": "session.update", "session": session})).await;
    phone.speak(400).await;
    let events = client.until("session.updated").await;
    let is_speech = |event: &&Value| event["type"].as_str().is_some_and(|kind| kind.contains(".speech_"));
    let speech: Vec<_> = events.iter().filter(is_speech).map(|event| &event["type"]).collect();
    assert_eq!(speech, ["input_audio_buffer.speech_started"], "the caller speaks");
    assert!(llm.requests().is_empty(), "the keys wait for the speech: {:?}", llm.requests());
    phone.until("the answer to the keys", |phone| phone.heard_ms() >= 480).await;
    let history = format!("{:?}", llm.requests()[0].messages);
    assert!(history.contains(": 1#)"), "{history}");
    hub.stop().await;
}

/// A client that has joined the only call of this hub.
async fn join(hub: &Hub) -> Socket {
    let list: Value = serde_json::from_str(&get_text(hub, "/v1/realtime/calls").await).expect("JSON");
    let [call] = list["data"].as_array().expect("a list").as_slice() else { panic!("one call: {list}") };
    let id = call["id"].as_str().expect("an id");
    assert_eq!(call["id"], call["session_id"]);
    hub.connect(&format!("?call_id={id}")).await
}

async fn get_text(hub: &Hub, path: &str) -> String {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let answer = reqwest::get(format!("http://{}{path}", hub.address)).await.expect("an answer");
    answer.text().await.expect("text")
}

#[tokio::test(start_paused = true)]
async fn keys_are_events_for_clients_that_have_joined_the_call() {
    let calls = Provider::ALL.into_iter().map(|provider| async move {
        let hub = hub(&[], &FakeLlm::says(["Thank you."]), open_config()).await;
        let mut phone = Phone::call(hub.address, provider, "", NUMBER).await;
        phone.silence(200).await;
        let mut client = join(&hub).await;
        let keys = ['1', '0', '#'];
        for key in keys {
            phone.press(key).await;
        }
        let talk = async {
            loop {
                phone.silence(20).await;
            }
        };
        let seen = async {
            for key in keys {
                let event = client.until("input_audio_buffer.dtmf_event_received").await.pop().expect("an event");
                assert_eq!(event["event"], key.to_string(), "{provider:?}");
                assert!(event["received_at"].as_i64().is_some_and(|at| at > 1_700_000_000), "{event}");
            }
            let item = client.until("conversation.item.added").await.pop().expect("an item");
            assert!(item["item"]["content"][0]["text"].as_str().is_some_and(|text| text.contains("10#")), "{item}");
            client.until("response.done").await;
        };
        tokio::select! {
            () = seen => {}
            () = talk => unreachable!(),
        }
        hub.stop().await;
    });
    all(calls).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_joined_a_call_gets_no_events_of_the_extensions() {
    let answer = long();
    let llm = FakeLlm::default();
    for text in [answer.as_str(), "Fine."] {
        llm.then(antiphon_engine_api::fakes::llm::words(text));
    }
    let hub = hub(&["tell me", "stop that"], &llm, open_config()).await;
    let mut phone = Phone::call(hub.address, Provider::AsteriskJson, "", NUMBER).await;
    phone.silence(200).await;
    let mut client = join(&hub).await;
    phone.speak(500).await;
    phone.until("500 ms of the reply", |phone| phone.heard_ms() >= 500).await;
    phone.speak(600).await;
    phone.until("the reply is cleared", |phone| !phone.cleared_at.is_empty()).await;
    assert!(phone.was_paused, "the reply was held");
    let events = client.until("output_audio_buffer.cleared").await;
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    let own = ["output_audio_buffer.held", "output_audio_buffer.resumed"];
    assert!(!kinds.iter().any(|kind| own.contains(kind) || kind.starts_with("antiphon.")), "{kinds:?}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_answers_the_function_calls_of_a_phone_call_and_hangs_up() {
    let llm = FakeLlm::default();
    llm.then(vec![
        Ok(LlmDelta::ToolCall { index: 0, call_id: "c1".into(), name: "open_door".into(), arguments: "{}".into() }),
        Ok(LlmDelta::Done { finish: Finish::ToolCalls, usage: None }),
    ]);
    llm.then(antiphon_engine_api::fakes::llm::words("It is open."));
    let mut config = open_config();
    let tool = json!({"type": "function", "name": "open_door", "parameters": {"type": "object"}});
    config.telephony.routes.insert("default".into(), route("", json!({"tools": [tool]})));
    let hub = hub(&["open the door"], &llm, config).await;
    let mut phone = Phone::call(hub.address, Provider::Twilio, "", NUMBER).await;
    phone.silence(100).await;
    let list: Value = serde_json::from_str(&get_text(&hub, "/v1/realtime/calls").await).expect("JSON");
    assert_eq!((&list["data"][0]["transport"], &list["data"][0]["peer_call_id"]), (&json!("twilio"), &json!("CA1")));
    let mut client = join(&hub).await;
    phone.speak(500).await;
    let talk = phone.until("the answer", |phone| phone.heard_ms() >= 300);
    let answer = async {
        let call = client.until("response.function_call_arguments.done").await.pop().expect("a call");
        client.until("response.done").await;
        let output = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "opened"});
        client.send(json!({"type": "conversation.item.create", "item": output})).await;
        client.send(json!({"type": "response.create"})).await;
    };
    tokio::join!(talk, answer);
    turn(&hub, |turn| turn["transport"] == "twilio").await;
    let state: Value = serde_json::from_str(&get_text(&hub, "/api/state").await).expect("JSON");
    assert_eq!(state["transports"], json!({"twilio": 1}));
    let id = list["data"][0]["id"].as_str().expect("an id");
    let url = format!("http://{}/v1/realtime/calls/{id}/hangup", hub.address);
    let hung_up = reqwest::Client::new().post(url).send().await.expect("an answer");
    assert_eq!(hung_up.status(), 200);
    phone.until("the call is over", |phone| phone.is_closed).await;
    assert_eq!(phone.close.as_ref().map(|close| u16::from(close.code)), Some(1000));
    hub.until("antiphon_sessions_active ", 0.0).await;
    assert_eq!(get_text(&hub, "/v1/realtime/calls").await, r#"{"data":[],"object":"list"}"#);
}

#[tokio::test(start_paused = true)]
async fn a_route_of_the_number_greets_with_its_own_settings() {
    let llm = FakeLlm::says(["Welcome.", "Other."]);
    let mut config = open_config();
    let session = json!({"instructions": "You are a pirate."});
    config.telephony.routes.insert(NUMBER.into(), route("Greet the caller.", session));
    config.telephony.routes.insert("default".into(), route("", json!({"instructions": "You are nobody."})));
    let hub = hub(&["hello"], &llm, config).await;
    let mut phone = Phone::call(hub.address, Provider::Twilio, "", NUMBER).await;
    phone.until("the greeting", |phone| phone.heard_ms() >= 400).await;
    let asked = format!("{:?}", llm.requests()[0]);
    assert!(asked.contains("Greet the caller."), "{asked}");
    let mut other = Phone::call(hub.address, Provider::Asterisk, "?route=elsewhere", "+4930").await;
    other.speak(500).await;
    other.until("a reply", |phone| phone.heard_ms() > 0).await;
    let asked = format!("{:?}", llm.requests()[1]);
    assert!(asked.contains("You are nobody."), "{asked}");
    // The caller of the first number goes on with the route's instructions.
    phone.speak(500).await;
    phone.until("a reply", |_| llm.requests().len() == 3).await;
    assert!(format!("{:?}", llm.requests()[2]).contains("You are a pirate."));
}

#[tokio::test(start_paused = true)]
async fn a_call_of_telnyx_whose_frames_are_swapped_is_served() {
    let llm = FakeLlm::says(["Ten."]);
    let hub = hub(&["what time is it"], &llm, open_config()).await;
    let mut phone = Phone::call(hub.address, Provider::Telnyx, "", NUMBER).await;
    phone.swaps = true;
    phone.speak(500).await;
    phone.until("the reply", |phone| phone.heard_ms() >= 200).await;
    let turn = turn(&hub, |turn| turn["settled"] == true).await;
    assert_eq!(turn["transcript"], "what time is it");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_no_mark_is_served_by_the_estimate() {
    let llm = FakeLlm::says(["Ten past ten."]);
    let hub = hub(&["what time is it"], &llm, open_config()).await;
    let mut phone = Phone::call(hub.address, Provider::Twilio, "", NUMBER).await;
    phone.ignores_marks = true;
    phone.speak(500).await;
    phone.until("the whole reply", |phone| phone.heard_ms() >= 650).await;
    let turn = turn(&hub, |turn| turn["settled"] == true).await;
    assert_eq!((&turn["heard_by"], &turn["heard"]), (&json!("estimate"), &json!("Ten past ten.")));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_stops_sending_audio_ends_the_turn() {
    let llm = FakeLlm::says(["Ten."]);
    let hub = hub(&["what time is it"], &llm, open_config()).await;
    let mut phone = Phone::call(hub.address, Provider::Asterisk, "", NUMBER).await;
    phone.speak(500).await;
    // Discontinuous transmission: nothing follows.
    turn(&hub, |turn| turn["settled"] == true && turn["transcript"] == "what time is it").await;
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_audio_waits_for_a_limit_is_alive() {
    let mut config = open_config();
    config.server.ping_seconds = 1;
    config.limits.session_audio_seconds_per_minute = 60;
    let hub = hub(&["what time is it"], &FakeLlm::says(["Ten."]), config).await;
    let mut phone = Phone::call(hub.address, Provider::Asterisk, "", NUMBER).await;
    // 68 s at once: the last 8 s wait, longer than two pings take.
    for _ in 0..17 {
        phone.send(Message::binary(vec![0xff; 32_000])).await;
    }
    phone.silence(6_000).await;
    assert!(!phone.is_closed, "{:?}", phone.close);
    phone.speak(500).await;
    phone.until("the reply", |phone| phone.heard_ms() > 0).await;
}

#[tokio::test(start_paused = true)]
async fn the_hub_hangs_up_in_the_peers_words() {
    for provider in [Provider::Asterisk, Provider::AsteriskJson, Provider::Jambonz, Provider::Twilio] {
        let hub = hub(&[], &FakeLlm::default(), open_config()).await;
        let mut phone = Phone::call(hub.address, provider, "", NUMBER).await;
        phone.silence(100).await;
        hub.begin_to_stop();
        phone.until("the connection is closed", |phone| phone.is_closed).await;
        assert_eq!(phone.hung_up, provider != Provider::Twilio, "{provider:?}");
        assert_eq!(phone.close.as_ref().map(|close| u16::from(close.code)), Some(1001), "{provider:?}");
        // A peer closes its side: the hub would wait for that.
        drop(phone);
        hub.stop().await;
    }
}

/// The close frame of a call that begins with these messages.
async fn close_of(hub: &Hub, provider: Provider, messages: Vec<Message>) -> (u16, String) {
    let mut phone = Phone::connect(hub.address, provider, "", &[]).await.expect("the upgrade is accepted");
    for message in messages {
        phone.send(message).await;
    }
    loop {
        let message =
            tokio::time::timeout(Duration::from_secs(20), futures_util::StreamExt::next(&mut phone.stream)).await;
        match message.expect("the hub closes the connection") {
            Some(Ok(Message::Close(Some(frame)))) => return (frame.code.into(), frame.reason.to_string()),
            Some(Ok(_)) => {}
            other => panic!("no close frame: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_violates_a_protocol_ends_that_call_only() {
    let llm = FakeLlm::says([long().as_str()]);
    let hub = hub(&["tell me"], &llm, open_config()).await;
    let mut canary = Phone::call(hub.address, Provider::Twilio, "", NUMBER).await;
    canary.speak(500).await;
    canary.until("the reply begins", |phone| phone.heard_ms() >= 100).await;

    let text = |text: &str| Message::text(text.to_owned());
    let start = || Provider::Twilio.start(NUMBER).into_iter().map(Message::text).collect::<Vec<_>>();
    let begun = |then: Message| start().into_iter().chain([then]).collect::<Vec<_>>();
    let refused = async {
        let twilio = |messages| close_of(&hub, Provider::Twilio, messages);
        assert_eq!(twilio(vec![text("hello")]).await.0, 1007);
        assert_eq!(twilio(begun(start()[1].clone())).await, (1008, "the stream started twice".into()));
        assert_eq!(twilio(begun(Message::binary(vec![0; 160]))).await.0, 1003);
        assert_eq!(twilio(begun(text(r#"{"event":"media","media":{"payload":"?"}}"#))).await.0, 1007);
        let large = text(&format!(r#"{{"event":"media","media":{{"payload":"{}"}}}}"#, "A".repeat(20 << 20)));
        assert_eq!(twilio(begun(large)).await, (1009, "a message holds at most 64 KiB".into()));
        let opus = text(r#"{"event":"start","start":{"call_control_id":"v2:1","media_format":{"encoding":"OPUS"}}}"#);
        assert_eq!(close_of(&hub, Provider::Telnyx, vec![opus]).await.0, 1003);
        let odd = Provider::Vonage.start(NUMBER).into_iter().map(Message::text).chain([Message::binary(vec![0; 639])]);
        assert_eq!(close_of(&hub, Provider::Vonage, odd.collect()).await.0, 1007);
    };
    tokio::join!(refused, canary.silence(4_000));

    // Marks that were never set, and keys that no phone has, change nothing.
    for odd in [
        r#"{"event":"mark","mark":{"name":"antiphon-999999"}}"#,
        r#"{"event":"dtmf","dtmf":{"digit":"?"}}"#,
        r#"{"event":"new"}"#,
    ] {
        canary.send(text(odd)).await;
    }
    canary.silence(200).await;
    assert!(!canary.is_closed && canary.cleared_at.is_empty() && canary.heard_ms() > 3_000, "{}", canary.heard_ms());
    hub.until("antiphon_sessions_active ", 1.0).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_does_not_start_is_closed() {
    let hub = hub(&[], &FakeLlm::default(), open_config()).await;
    let messages = vec![Message::text(r#"{"event":"connected"}"#)];
    assert_eq!(close_of(&hub, Provider::Twilio, messages).await, (1008, "the stream did not start in time".into()));
}

#[tokio::test(start_paused = true)]
async fn a_hub_without_a_place_says_so() {
    let mut config = open_config();
    config.server.max_sessions = 1;
    let hub = hub(&[], &FakeLlm::default(), config).await;
    let mut first = Phone::call(hub.address, Provider::Twilio, "", NUMBER).await;
    first.silence(40).await;
    hub.until("antiphon_sessions_active ", 1.0).await;
    let start = Provider::Plivo.start(NUMBER).into_iter().map(Message::text).collect();
    let (code, reason) = close_of(&hub, Provider::Plivo, start).await;
    assert!(code == 1013 && reason.starts_with("server_full: "), "{code} {reason}");
    let (status, body) = voice(&hub, "", &[], None).await;
    assert_eq!(status, 200);
    assert!(body.contains("<Reject reason=\"busy\"/>"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn a_close_frame_of_the_peer_is_answered_on_every_socket() {
    let hub = hub(&[], &FakeLlm::default(), open_config()).await;
    let mut phone = Phone::call(hub.address, Provider::Twilio, "", NUMBER).await;
    phone.silence(200).await;
    let mut sockets = vec![("a client that has joined", join(&hub).await.stream)];
    for provider in Provider::ALL {
        let phone = Phone::connect(hub.address, provider, "", &[]).await.expect("the upgrade is accepted");
        sockets.push((provider.name(), phone.stream));
        sockets.push((provider.name(), Phone::call(hub.address, provider, "", NUMBER).await.stream));
    }
    for path in ["/v1/realtime", "/v1/realtime?intent=transcription", "/v1/rtvi"] {
        let url = format!("ws://{}{path}", hub.address);
        sockets.push((path, crate::hub::connect(url).await.expect("the upgrade is accepted").0));
    }
    // The calls have begun.
    hub.until("antiphon_sessions_active ", (4 + Provider::ALL.len()) as f64).await;
    for (what, mut socket) in sockets {
        socket.close(None).await.expect("it is open");
        let answered = async {
            while let Some(message) = socket.next().await {
                message.unwrap_or_else(|error| panic!("{what} is not closed in order: {error}"));
            }
        };
        tokio::time::timeout(Duration::from_secs(20), answered).await.expect("it ends");
    }
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_that_the_call_is_over_is_closed_in_order() {
    let hub = hub(&[], &FakeLlm::default(), open_config()).await;
    let start = Provider::Twilio.start(NUMBER).into_iter().map(Message::text);
    let stop = Message::text(r#"{"event":"stop","streamSid":"MZ1","stop":{"callSid":"CA1"}}"#);
    let close = close_of(&hub, Provider::Twilio, start.chain([stop]).collect()).await;
    assert_eq!(close, (1000, "the call has ended".into()));
}

const KEY: &str = "sk-antiphon-test-1";

async fn status(hub: &Hub, provider: Provider, path: &str, headers: &[(&'static str, &str)]) -> u16 {
    Phone::connect(hub.address, provider, path, headers).await.err().unwrap_or(101)
}

#[tokio::test(start_paused = true)]
async fn a_call_needs_a_token() {
    let engines = || engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let hub = Hub::with_keys(engines(), Config::default(), Keys::of(&[KEY])).await;
    let by_path = format!("/{KEY}");
    let by_query = format!("?token={KEY}&route=desk");
    let bearer = format!("Bearer {KEY}");
    let basic = format!("Basic {}", BASE64.encode(format!("asterisk:{KEY}")));
    for provider in [Provider::Twilio, Provider::Telnyx, Provider::Vonage, Provider::Asterisk] {
        let check = async |path: &str, headers: &[(&'static str, &str)], expect: u16| {
            assert_eq!(status(&hub, provider, path, headers).await, expect, "{provider:?} {path} {headers:?}");
        };
        check("", &[], 401).await;
        check(&by_path, &[], 101).await;
        check(&by_query, &[], 101).await;
        check("", &[("authorization", &bearer)], 101).await;
        check("", &[("authorization", &basic)], 101).await;
        check("/wrong", &[], 401).await;
    }
    // Without keys a token proves nothing, and nothing is accepted unless the settings say so.
    let hub = Hub::start(engines(), Config::default()).await;
    assert_eq!(status(&hub, Provider::Plivo, "", &[]).await, 401);
    assert_eq!(status(&hub, Provider::Plivo, "/anything", &[]).await, 401);
    let hub = Hub::start(engines(), open_config()).await;
    assert_eq!(status(&hub, Provider::Plivo, "", &[]).await, 101);
}

#[tokio::test(start_paused = true)]
async fn a_call_belongs_to_its_key() {
    let engines = engines(FakeStt::hears(["hello"]), FakeLlm::says(["Hi."]), FakeTts::default());
    let hub = Hub::with_keys(engines, Config::default(), Keys::of(&[KEY, "another-key"])).await;
    let mut phone = Phone::call(hub.address, Provider::Twilio, &format!("/{KEY}"), NUMBER).await;
    phone.speak(500).await;
    phone.until("the reply", |phone| phone.heard_ms() >= 150).await;
    let turns = async |key: &str| {
        let request = reqwest::Client::new().get(format!("http://{}/api/turns", hub.address)).bearer_auth(key);
        let list: Value = request.send().await.expect("an answer").json().await.expect("JSON");
        list["turns"].as_array().expect("a list").len()
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
    assert_eq!((turns(KEY).await, turns("another-key").await), (1, 0));
}

/// A hub with keys that takes calls which no key stands for, and its reloads.
async fn hub_with_keys(config: Config) -> (Hub, tokio::sync::mpsc::Sender<Reload>) {
    let engines = engines(FakeStt::hears(["hello"; 4]), FakeLlm::says(["Hi."; 4]), FakeTts::default());
    let (reload, reloads) = tokio::sync::mpsc::channel(1);
    let keys = Keys::of(&[KEY]).with_admin(&["boss", "deputy"]);
    let parts = Parts { config, engines, metrics: Metrics::new(), keys, tls: None, manager: None };
    (Hub::serve_with(parts, Extras { reloads: Some(reloads), ..Extras::default() }).await, reload)
}

/// Speaks, and hears a reply of 150 ms or more.
async fn has_a_turn(phone: &mut Phone) {
    let before = phone.heard_ms();
    phone.speak(500).await;
    phone.until("the reply is heard", |phone| phone.is_closed || phone.heard_ms() >= before + 150).await;
    assert!(!phone.is_closed, "{:?}", phone.close);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_twilio_signed_is_served_on_a_hub_with_keys() {
    let (hub, _reload) = hub_with_keys(twilio_config()).await;
    let signed = signature("wss://voice.example/v1/telephony/twilio", &[]);
    let headers = [("x-twilio-signature", signed.as_str())];
    let phone = Phone::connect(hub.address, Provider::Twilio, "", &headers).await;
    let mut phone = phone.expect("the upgrade is accepted");
    for message in Provider::Twilio.start(NUMBER) {
        phone.send(Message::text(message)).await;
    }
    has_a_turn(&mut phone).await;
    // Twilio signs no query: another one added it.
    assert_eq!(status(&hub, Provider::Twilio, "?route=desk", &headers).await, 403);
}

#[tokio::test(start_paused = true)]
async fn calls_without_a_key_outlive_reloads_and_those_that_joined_them_do_not() {
    let (hub, reload) = hub_with_keys(open_config()).await;
    let mut phone = Phone::call(hub.address, Provider::Telnyx, "", NUMBER).await;
    has_a_turn(&mut phone).await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let list = reqwest::Client::new().get(format!("http://{}/v1/realtime/calls", hub.address)).bearer_auth("boss");
    let list: Value = list.send().await.expect("an answer").json().await.expect("JSON");
    let id = list["data"][0]["id"].as_str().expect("a call").to_owned();
    let join = async |key: &str| {
        let url = format!("ws://{}/v1/realtime?call_id={id}", hub.address);
        let mut request = url.into_client_request().expect("a request");
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().expect("a header"));
        let (stream, _) = crate::hub::connect(request).await.expect("it may join");
        let mut client = Socket { stream, frames: Vec::new() };
        assert_eq!(client.next().await["type"], "session.created");
        client
    };
    let mut revoked = join("boss").await;
    let mut kept = join("deputy").await;
    let keys = Keys::of(&[KEY]).with_admin(&["deputy"]);
    reload.send(Reload { keys: Some(keys), ..Reload::default() }).await.expect("taken");
    let close = revoked.close().await.expect("a close with a code");
    assert_eq!(u16::from(close.code), 1008, "{close:?}");
    let talk = has_a_turn(&mut phone);
    tokio::join!(talk, kept.until("response.done"));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_provider_is_named() {
    let hub = hub(&[], &FakeLlm::default(), open_config()).await;
    let url = format!("ws://{}/v1/telephony/nobody", hub.address);
    match crate::hub::connect(url).await {
        Err(tokio_tungstenite::tungstenite::Error::Http(response)) => assert_eq!(response.status().as_u16(), 404),
        other => panic!("{other:?}"),
    }
}

/// Twilio's auth token in these tests is the value of a variable that every process has.
fn twilio_config() -> Config {
    let mut config = Config::default();
    config.telephony.twilio_auth_token_env = "PATH".into();
    config.server.public_url = "https://voice.example".into();
    config
}

fn signature(url: &str, form: &[(&str, &str)]) -> String {
    let key =
        hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, std::env::var("PATH").expect("set").trim().as_bytes());
    let mut form = form.to_vec();
    form.sort();
    let signed = form.iter().fold(url.to_owned(), |signed, (name, value)| format!("{signed}{name}{value}"));
    BASE64.encode(hmac::sign(&key, signed.as_bytes()))
}

/// The answer of the webhook.
async fn voice(hub: &Hub, query: &str, form: &[(&str, &str)], signature: Option<&str>) -> (u16, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let url = format!("http://{}/v1/telephony/twilio/voice{query}", hub.address);
    let request =
        reqwest::Client::new().post(url).header("content-type", "application/x-www-form-urlencoded").body(body);
    let request = signature.into_iter().fold(request, |request, value| request.header("x-twilio-signature", value));
    let response = request.send().await.expect("an answer");
    (response.status().as_u16(), response.text().await.expect("a body"))
}

#[tokio::test(start_paused = true)]
async fn twilio_has_to_sign() {
    let engines = engines(FakeStt::hears(["hello"]), FakeLlm::says(["Hi."]), FakeTts::default());
    let hub = Hub::start(engines, twilio_config()).await;
    let stream = "wss://voice.example/v1/telephony/twilio";
    let check = async |headers: &[(&'static str, &str)], expect: u16| {
        assert_eq!(status(&hub, Provider::Twilio, "", headers).await, expect, "{headers:?}");
    };
    check(&[], 403).await;
    check(&[("x-twilio-signature", "AAAA")], 403).await;
    check(&[("x-twilio-signature", &signature("wss://evil.example/v1/telephony/twilio", &[]))], 403).await;
    check(&[("x-twilio-signature", &signature(stream, &[]))], 101).await;
    assert_eq!(status(&hub, Provider::Telnyx, "", &[("x-twilio-signature", &signature(stream, &[]))]).await, 401);

    // A path is signed as it is sent.
    let encoded = signature(&format!("{stream}/a%20b"), &[]);
    assert_eq!(status(&hub, Provider::Twilio, "/a%20b", &[("x-twilio-signature", &encoded)]).await, 101);

    // The webhook is signed with its form, and names the stream.
    let form = [("CallSid", "CA1"), ("From", "+15550199"), ("To", "+1555\"<&"), ("CallerName", "Ä & Ö")];
    let url = "https://voice.example/v1/telephony/twilio/voice?x=1";
    let signed = signature(url, &form);
    assert_eq!(voice(&hub, "?x=1", &form, None).await.0, 403);
    assert_eq!(voice(&hub, "?x=2", &form, Some(&signed)).await.0, 403);
    assert_eq!(voice(&hub, "?x=1", &form[..3], Some(&signed)).await.0, 403);
    let (status, body) = voice(&hub, "?x=1", &form, Some(&signed)).await;
    let expect = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response><Connect>\
                  <Stream url=\"wss://voice.example/v1/telephony/twilio\">\
                  <Parameter name=\"from\" value=\"+15550199\"/><Parameter name=\"to\" value=\"+1555&quot;&lt;&amp;\"/>\
                  </Stream></Connect></Response>";
    assert_eq!((status, body.as_str()), (200, expect));
}

#[tokio::test(start_paused = true)]
async fn a_new_auth_token_of_twilio_counts_from_its_reload_on() {
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let (reload, reloads) = tokio::sync::mpsc::channel(1);
    let keys = Keys::default();
    let parts = Parts { config: twilio_config(), engines, metrics: Metrics::new(), keys, tls: None, manager: None };
    let hub = Hub::serve_with(parts, Extras { reloads: Some(reloads), ..Extras::default() }).await;
    let stream = "wss://voice.example/v1/telephony/twilio";
    let new = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"another token");
    let by_new = BASE64.encode(hmac::sign(&new, stream.as_bytes()));
    let check = async |signature: &str| status(&hub, Provider::Twilio, "", &[("x-twilio-signature", signature)]).await;
    assert_eq!((check(&signature(stream, &[])).await, check(&by_new).await), (101, 403));
    let token = Reload { twilio_auth_token: Some("another token".into()), ..Reload::default() };
    reload.send(token).await.expect("taken");
    // It is applied once there is room for the next.
    reload.send(Reload::default()).await.expect("taken");
    reload.send(Reload::default()).await.expect("taken");
    assert_eq!((check(&signature(stream, &[])).await, check(&by_new).await), (403, 101));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_webhook_takes_a_token_and_passes_it_on() {
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let mut config = Config::default();
    config.telephony.twilio_auth_token_env = String::new();
    let hub = Hub::with_keys(engines, config, Keys::of(&[KEY])).await;
    assert_eq!(voice(&hub, "", &[], None).await.0, 401);
    assert_eq!(voice(&hub, "?token=wrong", &[], None).await.0, 401);
    let (status, body) = voice(&hub, &format!("?token={KEY}"), &[("To", NUMBER)], None).await;
    let stream = format!("<Stream url=\"ws://{}/v1/telephony/twilio/{KEY}\">", hub.address);
    assert!(status == 200 && body.contains(&stream), "{body}");
    let long = [("x", "x".repeat(70_000))];
    let form: Vec<_> = long.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(voice(&hub, &format!("?token={KEY}"), &form, None).await.0, 413);
}
