//! `semantic_vad` over a real socket: the wait depends on the provisional transcript, and the VAD type may change at
//! any time.

use crate::hub::{Hub, Socket, engines, loud, quiet};
use antiphon::config::Config;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use serde_json::{Value, json};
use std::time::Duration;

async fn hub(heard: &str) -> Hub {
    let stt = FakeStt::hears([heard]).with_partials();
    Hub::start(engines(stt, FakeLlm::says(["Fine."]), FakeTts::default()), Config::default()).await
}

pub async fn set(socket: &mut Socket, turn_detection: Value) -> Value {
    let session = json!({"type": "realtime", "audio": {"input": {"turn_detection": turn_detection}}});
    socket.send(json!({"type": "session.update", "session": session})).await;
    loop {
        let mut event = socket.next().await;
        if event["type"] == "session.updated" {
            return event["session"]["audio"]["input"]["turn_detection"].take();
        }
        if event["type"] == "error" {
            return event["error"].take();
        }
    }
}

/// Speaks, then is silent until the hub ends the turn, for at most 6 s of audio. Returns the silence waited, in ms.
pub async fn silence_waited(socket: &mut Socket) -> usize {
    socket.append(&loud(1_200)).await;
    for n in 1..300 {
        socket.append(&quiet(20)).await;
        // A round trip per piece, so that the pieces are not processed together. The error stops no response.
        socket.send(json!({"type": "conversation.item.retrieve", "item_id": "nowhere"})).await;
        loop {
            let event = socket.next().await;
            match event["type"].as_str() {
                Some("input_audio_buffer.speech_stopped") => return n * 20,
                Some("error") => break,
                _ => {}
            }
        }
        // The partial transcript arrives from another task.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    panic!("the turn does not end");
}

#[tokio::test(start_paused = true)]
async fn the_wait_goes_by_the_words_so_far() {
    for (heard, from_ms, to_ms) in [("what is twelve times seven", 200, 900), ("i would like to know", 2_500, 4_100)] {
        let hub = hub(heard).await;
        let mut socket = hub.connect("").await;
        set(&mut socket, json!({"type": "semantic_vad", "eagerness": "medium"})).await;
        let waited = silence_waited(&mut socket).await;
        assert!((from_ms..to_ms).contains(&waited), "{heard}: {waited} ms");
        let events = socket.until("response.done").await;
        assert_eq!(events.last().expect("done")["response"]["status"], "completed");
    }
}

#[tokio::test(start_paused = true)]
async fn the_type_changes_live_and_merges_within_its_type() {
    let hub = hub("i would like to know").await;
    let mut socket = hub.connect("?audio=pcm16").await;
    let shown = set(&mut socket, json!({"type": "semantic_vad"})).await;
    let expect =
        json!({"type": "semantic_vad", "eagerness": "auto", "create_response": true, "interrupt_response": true});
    assert_eq!(shown, expect);
    let shown = set(&mut socket, json!({"type": "semantic_vad", "eagerness": "low"})).await;
    assert_eq!(shown["eagerness"], "low");
    let error = set(&mut socket, json!({"type": "semantic_vad", "silence_duration_ms": 200})).await;
    let param = "session.audio.input.turn_detection.silence_duration_ms";
    assert_eq!((&error["code"], &error["param"]), (&json!("unknown_parameter"), &json!(param)));
    // During a pause that the wording would have extended.
    socket.append(&loud(600)).await;
    socket.append(&quiet(300)).await;
    socket.until("input_audio_buffer.speech_started").await;
    set(&mut socket, json!({"type": "server_vad", "silence_duration_ms": 200})).await;
    socket.append(&quiet(20)).await;
    socket.until("input_audio_buffer.speech_stopped").await;
}

#[tokio::test(start_paused = true)]
async fn the_decision_and_its_reasons_are_told_with_the_timeline() {
    let hub = hub("what is twelve times seven").await;
    let mut socket = hub.connect("?audio=pcm16").await;
    set(&mut socket, json!({"type": "semantic_vad", "eagerness": "high"})).await;
    silence_waited(&mut socket).await;
    let timeline = socket.until("antiphon.timeline").await.pop().expect("the event");
    let why = &timeline["endpointing"];
    assert_eq!(why["wording"], "question", "{timeline}");
    assert!(why["probability"].as_f64().expect("a number") > 0.8, "{why}");
    assert!(why["wait_ms"].as_f64().expect("a number") < 400.0, "{why}");
}
