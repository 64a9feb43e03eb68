//! Transcription sessions over a real socket: speech is transcribed and not answered.

use crate::hub::{Hub, Socket, engines, hub, loud, quiet, types};
use antiphon::config::Config;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use serde_json::{Value, json};

async fn session(hub: &Hub, query: &str) -> (Socket, Value) {
    let mut socket = hub.open(query).await.expect("the upgrade is accepted");
    let created = socket.next().await;
    (socket, created["session"].clone())
}

async fn update(socket: &mut Socket, session: Value) -> Value {
    socket.send(json!({"type": "session.update", "event_id": "mine", "session": session})).await;
    socket.next().await
}

async fn speak(socket: &mut Socket) -> Vec<Value> {
    socket.append(&loud(1_000)).await;
    socket.append(&quiet(600)).await;
    socket.until("conversation.item.input_audio_transcription.completed").await
}

#[tokio::test(start_paused = true)]
async fn speech_is_transcribed_and_never_answered() {
    let llm = FakeLlm::says(["Nobody asked."]);
    let stt = FakeStt::hears(["what time is it", "and now"]);
    let hub = Hub::start(engines(stt, llm.clone(), FakeTts::default()), Config::default()).await;
    let (mut socket, session) = session(&hub, "?intent=transcription&model=whisper-1").await;
    assert_eq!(
        (&session["type"], &session["object"]),
        (&json!("transcription"), &json!("realtime.transcription_session"))
    );
    assert_eq!(session["audio"]["input"]["transcription"]["model"], "whisper-1", "the model is the recognizer's");
    assert_eq!(session["audio"]["output"], Value::Null);
    assert_eq!(session["audio"]["input"]["turn_detection"]["type"], "server_vad");
    assert_eq!(session["audio"]["input"]["turn_detection"]["create_response"], Value::Null);
    for text in ["what time is it", "and now"] {
        let events = speak(&mut socket).await;
        assert_eq!(
            types(&events),
            [
                "input_audio_buffer.speech_started",
                "input_audio_buffer.speech_stopped",
                "input_audio_buffer.committed",
                "conversation.item.added",
                "conversation.item.done",
                "conversation.item.input_audio_transcription.delta",
                "conversation.item.input_audio_transcription.completed",
            ]
        );
        let delta = &events[5];
        let done = &events[6];
        assert_eq!((&delta["delta"], &done["transcript"]), (&json!(text), &json!(text)));
        assert_eq!(done["usage"]["type"], "duration");
        assert!(done["usage"]["seconds"].as_f64().expect("seconds") > 1.0);
        assert_eq!(done.get("logprobs"), None);
    }
    assert_eq!(llm.requests(), [], "the model was never asked");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_transcription_session_refuses_responses() {
    let hub = hub("", "").await;
    let (mut socket, _) = session(&hub, "?intent=transcription").await;
    socket.send(json!({"type": "response.create", "event_id": "mine"})).await;
    let error = socket.next().await;
    assert_eq!((&error["type"], &error["error"]["event_id"]), (&json!("error"), &json!("mine")));
    assert_eq!(error["error"]["code"], "invalid_event");
    assert_eq!(speak(&mut socket).await.last().expect("there")["transcript"], "");
}

#[tokio::test(start_paused = true)]
async fn the_kind_of_a_session_is_said_once() {
    let hub = hub("", "").await;
    let wrong = |event: &Value| {
        assert_eq!((&event["type"], &event["error"]["code"]), (&json!("error"), &Value::Null), "{event}");
        assert_eq!(event["error"]["event_id"], "mine");
        event["error"]["message"].as_str().expect("text").to_owned()
    };
    let (mut socket, _) = session(&hub, "?intent=transcription").await;
    let message = wrong(&update(&mut socket, json!({"type": "realtime"})).await);
    assert_eq!(message, "Passing a realtime session update event to a transcription session is not allowed.");

    let (mut socket, created) = session(&hub, "").await;
    assert_eq!(created["type"], "realtime");
    let updated = update(&mut socket, json!({"type": "transcription"})).await;
    assert_eq!(updated["session"]["type"], "transcription", "the first update may say it");
    wrong(&update(&mut socket, json!({"type": "realtime"})).await);

    let (mut socket, _) = session(&hub, "").await;
    assert_eq!(update(&mut socket, json!({"type": "realtime"})).await["type"], "session.updated");
    let message = wrong(&update(&mut socket, json!({"type": "transcription"})).await);
    assert_eq!(message, "Passing a transcription session update event to a realtime session is not allowed.");

    let (mut socket, _) = session(&hub, "").await;
    socket.ask("Hello").await;
    socket.until("rate_limits.updated").await;
    wrong(&update(&mut socket, json!({"type": "transcription"})).await);
    assert_eq!(hub.open("?intent=singing").await.err(), Some(400));
}

#[tokio::test(start_paused = true)]
async fn a_client_may_commit_by_hand() {
    let hub = hub("by hand", "").await;
    let (mut socket, _) = session(&hub, "?intent=transcription").await;
    let input = json!({"turn_detection": null, "transcription": {"model": "other", "language": "en"}});
    let updated = update(&mut socket, json!({"type": "transcription", "audio": {"input": input}})).await;
    assert_eq!(updated["session"]["audio"]["input"]["turn_detection"], Value::Null);
    assert_eq!(updated["session"]["audio"]["input"]["transcription"], json!({"model": "other", "language": "en"}));
    socket.append(&loud(400)).await;
    socket.send(json!({"type": "input_audio_buffer.commit"})).await;
    let events = socket.until("conversation.item.input_audio_transcription.completed").await;
    assert_eq!(events.last().expect("there")["transcript"], "by hand");
    assert!(!types(&events).iter().any(|kind| kind.contains("speech") || kind.starts_with("response")));
}

#[tokio::test(start_paused = true)]
async fn the_engines_probabilities_are_shown_to_who_asks() {
    let stt = FakeStt::hears(["one two", "three"]);
    let hub = Hub::start(engines(stt, FakeLlm::default(), FakeTts::default()), Config::default()).await;
    let (mut socket, _) = session(&hub, "?intent=transcription").await;
    let include = json!(["item.input_audio_transcription.logprobs"]);
    let updated = update(&mut socket, json!({"type": "transcription", "include": include})).await;
    assert_eq!(updated["session"]["include"], include);
    let events = speak(&mut socket).await;
    let tokens = events.last().expect("there")["logprobs"].as_array().expect("a list").clone();
    let texts: Vec<_> = tokens.iter().map(|token| token["token"].as_str().expect("text")).collect();
    assert_eq!(texts, ["one", "two"]);
    assert_eq!(tokens[0]["bytes"], json!([111, 110, 101]));
    assert!(tokens[0]["logprob"].as_f64().expect("a number") <= 0.0);
    let refused = update(&mut socket, json!({"type": "transcription", "include": ["x"]})).await;
    assert_eq!(refused["error"]["param"], "session.include[0]");
    update(&mut socket, json!({"type": "transcription", "include": null})).await;
    assert_eq!(speak(&mut socket).await.last().expect("there").get("logprobs"), None);
}
