//! Session settings that affect turns, over a real socket: `create_response`, `interrupt_response`, `idle_timeout_ms`,
//! and the prompt length of a long conversation.

use crate::hub::{Hub, Socket, engines, hub, loud, quiet, types};
use antiphon::config::Config;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::{FakeTts, MS_PER_CHAR};
use antiphon_protocol::frame::{Frame, FrameKind};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

async fn set(socket: &mut Socket, session: Value) {
    socket.send(json!({"type": "session.update", "session": session})).await;
    socket.until("session.updated").await;
}

fn detection(fields: Value) -> Value {
    let mut all = json!({"type": "server_vad"});
    all.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    json!({"type": "realtime", "audio": {"input": {"turn_detection": all}}})
}

#[tokio::test(start_paused = true)]
async fn without_create_response_a_turn_is_transcribed_and_not_answered() {
    for kind in ["server_vad", "semantic_vad"] {
        let hub = hub("what time is it", "Ten.").await;
        let mut socket = hub.connect("").await;
        set(&mut socket, detection(json!({"type": kind, "create_response": false}))).await;
        socket.append(&loud(1_000)).await;
        socket.append(&quiet(4_500)).await;
        let events = socket.until("conversation.item.input_audio_transcription.completed").await;
        assert_eq!(events.last().expect("there")["transcript"], "what time is it");
        // Anything started by the end of the turn would arrive before the response to this.
        socket.send(json!({"type": "response.cancel"})).await;
        assert_eq!(socket.next().await["error"]["code"], "response_cancel_not_active", "{kind}");
        socket.send(json!({"type": "response.create"})).await;
        let events = socket.until("response.done").await;
        assert_eq!(events.last().expect("done")["response"]["output"][0]["content"][0]["transcript"], "Ten.");
    }
}

async fn speak(socket: &mut Socket, pcm: &[i16]) {
    for (n, chunk) in pcm.chunks(480).enumerate() {
        let payload: Vec<u8> = chunk.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let offset = antiphon_types::Samples(n as u64 * 480);
        let frame = Frame { kind: FrameKind::Microphone, sequence: n as u32, offset, payload: payload.into() };
        socket.send_raw(Message::Binary(frame.encode().expect("it fits"))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_interrupt_response_the_reply_goes_on_while_the_user_speaks() {
    const ANSWER: &str = "One two three four five six seven eight.";
    let llm = FakeLlm::says([ANSWER, "Fine."]);
    let hub =
        Hub::start(engines(FakeStt::hears(["and then"]), llm.clone(), FakeTts::default()), Config::default()).await;
    let mut socket = hub.connect("?audio=pcm16").await;
    set(&mut socket, detection(json!({"interrupt_response": false}))).await;
    let content = json!([{"type": "input_text", "text": "Count"}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    socket.send(json!({"type": "conversation.item.create", "item": item})).await;
    socket.send(json!({"type": "response.create"})).await;
    let mut events = Vec::new();
    while socket.frames.is_empty() {
        events.push(socket.next().await);
    }
    let audio = [loud(500), quiet(700)].concat();
    speak(&mut socket, &audio).await;
    // The second response ends after the first has played.
    events.extend(socket.until("antiphon.timeline").await);
    while events.iter().filter(|event| event["type"] == "antiphon.output_audio.sent").count() < 2 {
        events.push(socket.next().await);
    }
    let kinds = types(&events);
    assert!(kinds.contains(&"conversation.item.input_audio_transcription.completed"), "{kinds:?}");
    assert!(!kinds.iter().any(|kind| kind.ends_with(".held") || kind.ends_with(".cleared")), "{kinds:?}");
    let first = socket.frames.iter().map(|bytes| Frame::parse(bytes).expect("a frame"));
    let item = |frame: &Frame| match &frame.kind {
        FrameKind::Reply { item_id } => item_id.to_string(),
        FrameKind::Microphone => String::new(),
    };
    let frames: Vec<Frame> = first.collect();
    let first_id = item(&frames[0]);
    let n_bytes: usize = frames.iter().filter(|frame| item(frame) == first_id).map(|frame| frame.payload.len()).sum();
    assert_eq!(n_bytes / 48, ANSWER.len() * MS_PER_CHAR as usize, "the whole of the first answer, in ms");
    assert!(format!("{:?}", llm.requests()[1].messages).contains("eight"), "all of it is history");
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_for_long_is_spoken_to() {
    let llm = FakeLlm::says(["Ten.", "Are you still there?"]);
    let hub = Hub::start(engines(FakeStt::default(), llm.clone(), FakeTts::default()), Config::default()).await;
    let mut socket = hub.connect("").await;
    for (timeout, code) in [(4_999, "integer_below_min_value"), (30_001, "integer_above_max_value")] {
        socket.send(json!({"type": "session.update", "session": detection(json!({"idle_timeout_ms": timeout}))})).await;
        assert_eq!(socket.next().await["error"]["code"], code);
    }
    set(&mut socket, detection(json!({"idle_timeout_ms": 5_000}))).await;
    socket.append(&quiet(200)).await;
    socket.ask("What time is it?").await;
    let events = socket.until("response.created").await;
    let kinds = types(&events);
    let expect = [
        "input_audio_buffer.timeout_triggered",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.completed",
        "response.created",
    ];
    assert_eq!(kinds[kinds.len() - 6..], expect);
    let idle = &events[events.len() - 6];
    assert_eq!((&idle["audio_start_ms"], &idle["audio_end_ms"]), (&json!(0), &json!(192)), "whole windows of it");
    assert_eq!(idle["item_id"], events[events.len() - 4]["item"]["id"]);
    let events = socket.until("response.done").await;
    let done = &events.last().expect("done")["response"];
    assert_eq!(done["output"][0]["content"][0]["transcript"], "Are you still there?");
    assert!(format!("{:?}", llm.requests()[1].messages[0]).contains("has said nothing for a while"));
}

#[tokio::test(start_paused = true)]
async fn a_long_conversation_is_told_to_the_model_from_a_later_turn_on() {
    let llm = FakeLlm::says(["Well."; 12]);
    let config = toml::from_str("[session]\nhistory_tokens = 200").expect("a configuration");
    let hub = Hub::start(engines(FakeStt::default(), llm.clone(), FakeTts::default()), config).await;
    let mut socket = hub.connect("").await;
    for n in 0..10 {
        socket.ask(&format!("{n} {}", "word ".repeat(30))).await;
    }
    let last = llm.requests().pop().expect("asked").messages;
    let told = format!("{last:?}");
    assert!(matches!(&last[0], antiphon_types::chat::Message::System(_)), "{told}");
    assert!(told.contains("9 word") && told.contains("8 word") && !told.contains("0 word"), "{told}");
    set(&mut socket, json!({"type": "realtime", "truncation": "disabled"})).await;
    let events = socket.ask(&"word ".repeat(300)).await;
    let done = &events.last().expect("done")["response"];
    assert_eq!(done["status"], "failed");
    let message = done["status_details"]["error"]["message"].as_str().expect("text");
    assert!(message.contains("truncation is disabled"), "{message}");
}
