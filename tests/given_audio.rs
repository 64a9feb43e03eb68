//! Inline audio and images of a conversation item, over a real socket: they are transcribed, passed on and answered.

use crate::hub::{Hub, Socket, base64, engines, loud, types};
use antiphon::config::Config;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_types::chat::{Image, ImageDetail, Message, UserPart};
use serde_json::{Value, json};
use std::time::Duration;

fn item(parts: Value) -> Value {
    json!({"id": "mine", "type": "message", "role": "user", "content": parts})
}

fn audio(ms: usize) -> Value {
    json!({"type": "input_audio", "audio": base64(&loud(ms))})
}

async fn start(stt: FakeStt, llm: &FakeLlm) -> (Hub, Socket) {
    let mut config = Config::default();
    config.session.max_utterance_seconds = 10;
    let hub = Hub::start(engines(stt, llm.clone(), FakeTts::default()), config).await;
    let socket = hub.connect("").await;
    (hub, socket)
}

async fn create(socket: &mut Socket, item: Value) {
    socket.send(json!({"type": "conversation.item.create", "event_id": "e", "item": item})).await;
}

fn asked(llm: &FakeLlm) -> Vec<Message> {
    llm.requests().pop().expect("asked").messages.into_iter().filter(|m| !matches!(m, Message::System(_))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_spoken_item_is_transcribed_and_answered() {
    let llm = FakeLlm::says(["Ten."]);
    let slow = FakeStt::hears(["what time is it"]).delayed(Duration::from_millis(50));
    let (_hub, mut socket) = start(slow, &llm).await;
    create(&mut socket, item(json!([{"type": "input_text", "text": "Listen:"}, audio(2_000)]))).await;
    // The response waits for the transcript.
    socket.send(json!({"type": "response.create"})).await;
    let events = socket.until("response.done").await;
    assert_eq!(
        types(&events)[..5],
        [
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
            "conversation.item.input_audio_transcription.delta",
            "conversation.item.input_audio_transcription.completed",
        ]
    );
    let done = &events[4];
    assert_eq!((&done["item_id"], &done["content_index"]), (&json!("mine"), &json!(1)));
    assert_eq!((&done["transcript"], &done["usage"]["seconds"]), (&json!("what time is it"), &json!(2.0)));
    assert_eq!(asked(&llm), [Message::User("Listen: what time is it".into())]);
    let usage = &events.last().expect("done")["response"]["usage"];
    assert_eq!(usage["input_token_details"]["audio_tokens"], 20);
    socket.send(json!({"type": "conversation.item.retrieve", "item_id": "mine"})).await;
    let kept = socket.until("conversation.item.retrieved").await.pop().expect("there");
    assert_eq!(kept["item"]["content"][1]["transcript"], "what time is it");
}

#[tokio::test(start_paused = true)]
async fn all_of_the_audio_is_heard() {
    let llm = FakeLlm::default();
    let (_hub, mut socket) = start(FakeStt::default(), &llm).await;
    create(&mut socket, item(json!([audio(1_234)]))).await;
    let events = socket.until("conversation.item.input_audio_transcription.completed").await;
    assert_eq!(events.last().expect("there")["transcript"], format!("utterance of {} samples", 1_234 * 16));
}

#[tokio::test(start_paused = true)]
async fn a_transcript_that_comes_along_is_believed() {
    let llm = FakeLlm::default();
    let (_hub, mut socket) = start(FakeStt::default(), &llm).await;
    let mut part = audio(500);
    part["transcript"] = json!("as told");
    create(&mut socket, item(json!([part]))).await;
    socket.send(json!({"type": "response.create"})).await;
    let events = socket.until("response.done").await;
    assert!(!types(&events).iter().any(|kind| kind.contains("transcription")));
    assert_eq!(asked(&llm), [Message::User("as told".into())]);
}

#[tokio::test(start_paused = true)]
async fn a_responses_own_input_may_be_spoken() {
    let llm = FakeLlm::default();
    let stt = FakeStt::hears(["is it rude"]).delayed(Duration::from_millis(50));
    let (_hub, mut socket) = start(stt, &llm).await;
    let own = json!({"conversation": "none", "output_modalities": ["text"], "input": [item(json!([audio(1_000)]))]});
    socket.send(json!({"type": "response.create", "response": own})).await;
    let events = socket.until("response.done").await;
    assert!(!types(&events).iter().any(|kind| kind.starts_with("conversation")), "it is no item");
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
    assert_eq!(asked(&llm), [Message::User("is it rude".into())]);
}

#[tokio::test(start_paused = true)]
async fn each_spoken_item_of_a_responses_own_input_gets_its_own_words() {
    let llm = FakeLlm::default();
    let (_hub, mut socket) = start(FakeStt::default(), &llm).await;
    let input = [item(json!([audio(1_000)])), item(json!([audio(500)])), item(json!([audio(250)]))];
    let own = json!({"conversation": "none", "output_modalities": ["text"], "input": input});
    socket.send(json!({"type": "response.create", "response": own})).await;
    let events = socket.until("response.done").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
    let words = |n: usize| Message::User(format!("utterance of {n} samples"));
    assert_eq!(asked(&llm), [words(16_000), words(8_000), words(4_000)], "all three have the same id of the client's");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_understood_fails_the_response_that_needs_it() {
    let llm = FakeLlm::default();
    let (_hub, mut socket) = start(FakeStt::default().then_fails("no ears").then_fails("no ears"), &llm).await;
    let own = json!({"conversation": "none", "input": [item(json!([audio(1_000)]))]});
    socket.send(json!({"type": "response.create", "response": own})).await;
    let done = socket.until("response.done").await.pop().expect("done");
    assert_eq!(done["response"]["status"], "failed");
    create(&mut socket, item(json!([audio(1_000)]))).await;
    let failed = socket.until("conversation.item.input_audio_transcription.failed").await.pop().expect("told");
    assert_eq!(failed["item_id"], "mine");
    assert_eq!(llm.requests(), []);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_response_stops_listening() {
    let llm = FakeLlm::default();
    let (hub, mut socket) = start(FakeStt::default().delayed(Duration::from_secs(3_600)), &llm).await;
    let own = json!({"conversation": "none", "input": [item(json!([audio(1_000)]))]});
    socket.send(json!({"type": "response.create", "response": own})).await;
    let id = socket.next().await["response"]["id"].clone();
    socket.send(json!({"type": "response.cancel", "response_id": id})).await;
    let done = socket.until("response.done").await.pop().expect("done");
    assert_eq!(done["response"]["status"], "cancelled");
    // A hub that were still transcribing would not stop this soon.
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn bad_audio_is_refused_and_makes_no_item() {
    let llm = FakeLlm::default();
    let (_hub, mut socket) = start(FakeStt::default(), &llm).await;
    let cases = [
        (json!([{"type": "input_audio", "audio": "AAAA"}]), "item.content[0].audio", "the middle of a sample"),
        (json!([{"type": "input_audio", "audio": "*"}]), "item.content[0].audio", "an invalid value"),
        (json!([audio(100), audio(100)]), "item.content[1]", "at most one"),
        (json!([audio(10_100)]), "item.content[0].audio", "longer than 10 s"),
    ];
    for (parts, param, says) in cases {
        create(&mut socket, item(parts)).await;
        let error = socket.next().await["error"].clone();
        assert_eq!((&error["param"], &error["event_id"]), (&json!(param), &json!("e")));
        assert!(error["message"].as_str().expect("text").contains(says), "{error}");
    }
    create(&mut socket, item(json!([audio(100)]))).await;
    assert_eq!(socket.next().await["type"], "conversation.item.added", "the id is still free");
}

/// The beginning of a PNG file.
const PNG: &str = "data:image/png;base64,iVBORw0KGgo=";

fn question_with_image() -> Value {
    json!([
        {"type": "input_text", "text": "What"},
        {"type": "input_text", "text": "is this?"},
        {"type": "input_image", "image_url": PNG, "detail": "high"},
    ])
}

#[tokio::test(start_paused = true)]
async fn an_image_is_passed_to_a_model_that_takes_images() {
    let llm = FakeLlm::says(["A cat.", "Another."]).seeing();
    let (_hub, mut socket) = start(FakeStt::default(), &llm).await;
    create(&mut socket, item(question_with_image())).await;
    socket.send(json!({"type": "response.create"})).await;
    let events = socket.until("response.done").await;
    assert_eq!(types(&events)[..2], ["conversation.item.added", "conversation.item.done"]);
    let shown = json!({"type": "input_image", "detail": "high"});
    assert_eq!(events[0]["item"]["content"][2], shown, "without its bytes");
    let image = UserPart::Image(Image::new(PNG, ImageDetail::High));
    assert_eq!(asked(&llm), [Message::UserParts(vec![UserPart::Text("What is this?".into()), image.clone()])]);
    // An image of a response's own input, without words.
    let own = json!({"type": "message", "role": "user", "content": [question_with_image()[2]]});
    socket.send(json!({"type": "response.create", "response": {"conversation": "none", "input": [own]}})).await;
    socket.until("response.done").await;
    assert_eq!(asked(&llm), [Message::UserParts(vec![image])]);
}

#[tokio::test(start_paused = true)]
async fn an_image_is_refused_where_the_model_takes_none() {
    let (_hub, mut socket) = start(FakeStt::default(), &FakeLlm::default()).await;
    create(&mut socket, item(question_with_image())).await;
    let error = socket.until("error").await.pop().expect("an error");
    assert_eq!((&error["error"]["param"], &error["error"]["event_id"]), (&json!("item.content[2].type"), &json!("e")));
    let own = json!({"type": "message", "role": "user", "content": [question_with_image()[2]]});
    socket.send(json!({"type": "response.create", "response": {"input": [own]}})).await;
    let error = socket.until("error").await.pop().expect("an error");
    assert_eq!(error["error"]["param"], "response.input[0].content[0].type");
}
