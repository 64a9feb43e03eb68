//! Turns over a real socket: the order of protocol events, and errors for invalid input.

use crate::hub::{Hub, engines, hub, loud, n_audio_samples, quiet, types};
use antiphon::config::Config;
use antiphon_audio::codec;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::{FakeTts, MS_PER_CHAR};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;
use std::collections::HashSet;
use tokio_tungstenite::tungstenite::Message;

#[tokio::test(start_paused = true)]
async fn a_typed_turn_is_answered_in_the_protocols_order() {
    let hub = hub("", "Four.").await;
    let mut socket = hub.connect("").await;
    let events = socket.ask("Two and two?").await;
    assert_eq!(
        types(&events),
        [
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_audio_transcript.delta",
            "response.output_audio.delta",
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            "response.content_part.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
        ]
    );
    let ids: HashSet<_> = events.iter().map(|event| event["event_id"].as_str().expect("an id")).collect();
    assert_eq!(ids.len(), events.len(), "an id of its own on each event");
    let done = &events.last().expect("done")["response"];
    assert_eq!(done["status"], "completed");
    assert_eq!(done["output"][0]["content"][0]["transcript"], "Four.");
    assert_eq!(n_audio_samples(&events), 5 * MS_PER_CHAR as usize * 24);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_text_response_has_no_audio() {
    let hub = hub("", "Four it is.").await;
    let mut socket = hub.connect("").await;
    socket
        .send(json!({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"]}}))
        .await;
    socket.until("session.updated").await;
    let events = socket.ask("Two and two?").await;
    let text: String = events
        .iter()
        .filter(|e| e["type"] == "response.output_text.delta")
        .map(|e| e["delta"].as_str().expect("text"))
        .collect();
    assert_eq!(text, "Four it is.");
    assert!(!types(&events).iter().any(|kind| kind.contains("audio")));
}

#[tokio::test(start_paused = true)]
async fn a_spoken_turn_is_found_transcribed_and_answered() {
    let hub = hub("what time is it", "Ten.").await;
    let mut socket = hub.connect("").await;
    socket.append(&quiet(400)).await;
    socket.append(&loud(1_000)).await;
    socket.append(&quiet(600)).await;
    let events = socket.until("response.done").await;
    assert_eq!(
        types(&events)[..7],
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
    let item = &events[0]["item_id"];
    assert!(events[..3].iter().all(|event| event["item_id"] == *item), "one id from start to commit");
    assert_eq!(events[3]["item"]["id"], *item);
    assert_eq!(events[6]["item_id"], *item);
    assert_eq!(events[6]["transcript"], "what time is it");
    assert_eq!(events[7]["type"], "response.created");
    let start = events[0]["audio_start_ms"].as_u64().expect("an integer");
    let end = events[1]["audio_end_ms"].as_u64().expect("an integer");
    assert!((80..=120).contains(&start), "400 ms less 300 of pre-roll: {start}");
    assert!((1_390..=1_430).contains(&end), "the last voiced window: {end}");
}

#[tokio::test(start_paused = true)]
async fn a_manual_turn_is_committed_by_the_client() {
    let hub = hub("hello", "Hi.").await;
    let mut socket = hub.connect("").await;
    let update = json!({"type": "realtime", "audio": {"input": {"turn_detection": null}}});
    socket.send(json!({"type": "session.update", "session": update})).await;
    socket.until("session.updated").await;
    socket.append(&quiet(50)).await;
    socket.send(json!({"type": "input_audio_buffer.commit", "event_id": "mine"})).await;
    let error = socket.next().await;
    assert_eq!(error["error"]["code"], "input_audio_buffer_commit_empty");
    assert_eq!(error["error"]["event_id"], "mine");
    socket.append(&loud(50)).await;
    socket.send(json!({"type": "input_audio_buffer.commit"})).await;
    let events = socket.until("conversation.item.done").await;
    assert_eq!(events[0]["type"], "input_audio_buffer.committed", "100 ms are enough");
    socket.until("conversation.item.input_audio_transcription.completed").await;
    socket.append(&loud(700)).await;
    socket.send(json!({"type": "input_audio_buffer.commit"})).await;
    let events = socket.until("conversation.item.done").await;
    assert_eq!(types(&events), ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"]);
    socket.send(json!({"type": "response.create"})).await;
    let events = socket.until("response.done").await;
    assert_eq!(events.last().expect("done")["response"]["output"][0]["content"][0]["transcript"], "Hi.");
}

#[tokio::test(start_paused = true)]
async fn audio_faster_than_real_time_loses_nothing() {
    const N: usize = 20;
    let hub = Hub::start(engines(FakeStt::default(), FakeLlm::default(), FakeTts::default()), Config::default()).await;
    let mut socket = hub.connect("").await;
    let detection = json!({"type": "server_vad", "create_response": false, "prefix_padding_ms": 0});
    let update = json!({"type": "realtime", "audio": {"input": {"turn_detection": detection}}});
    socket.send(json!({"type": "session.update", "session": update})).await;
    let mut audio = Vec::new();
    for _ in 0..N {
        audio.extend(quiet(700));
        audio.extend(loud(1_000));
    }
    audio.extend(quiet(700));
    // In one message: 34 s.
    socket.append(&audio).await;
    let mut n_heard = 0;
    for _ in 0..N {
        let events = socket.until("conversation.item.input_audio_transcription.completed").await;
        let text = events.last().expect("there")["transcript"].as_str().expect("text").to_owned();
        let n_samples: usize = text.split(' ').nth(2).expect("a count").parse().expect("a number");
        assert!((22_000..=25_000).contains(&n_samples), "1 s of speech and 500 ms of silence: {text}");
        n_heard += 1;
    }
    assert_eq!(n_heard, N);
}

#[tokio::test(start_paused = true)]
async fn a_barge_in_stops_the_reply() {
    let llm = FakeLlm::says(["This is a long answer that nobody wants to hear to its very end.", "Fine."]);
    let hub = Hub::start(engines(FakeStt::hears(["stop"]), llm.clone(), FakeTts::default()), Config::default()).await;
    let mut socket = hub.connect("").await;
    socket.append(&quiet(100)).await;
    let _answer = socket.ask("Tell me").await;
    socket.until("rate_limits.updated").await;
    socket.append(&loud(500)).await;
    socket.append(&quiet(600)).await;
    let events = socket.until("response.done").await;
    assert_eq!(events[0]["type"], "input_audio_buffer.speech_started");
    assert_eq!(events.last().expect("done")["response"]["output"][0]["content"][0]["transcript"], "Fine.");
    let second = &llm.requests()[1];
    assert!(!format!("{second:?}").contains("very end"), "what was not heard is no history: {second:?}");
}

#[tokio::test(start_paused = true)]
async fn bad_input_gets_an_error_and_the_session_lives() {
    let hub = hub("", "Still here.").await;
    let mut socket = hub.connect("").await;
    let odd = "AAAA".to_owned();
    let cases = [
        (Message::text("{not json"), "invalid_json"),
        (Message::text(r#"{"type":"no.such"}"#), "invalid_value"),
        (Message::text(r#"{"event_id":"x"}"#), "invalid_event"),
        (Message::binary(vec![1, 2, 3]), "invalid_event"),
        (Message::text(json!({"type": "input_audio_buffer.append", "audio": "*"}).to_string()), "invalid_value"),
        (Message::text(json!({"type": "input_audio_buffer.append", "audio": ""}).to_string()), "invalid_value"),
        (Message::text(json!({"type": "input_audio_buffer.append", "audio": odd}).to_string()), "invalid_value"),
        (Message::text(r#"{"type":"response.cancel"}"#), "response_cancel_not_active"),
        (Message::text(r#"{"type":"input_audio_buffer.commit"}"#), "input_audio_buffer_commit_empty"),
        (Message::text(r#"{"type":"conversation.item.delete","item_id":"x"}"#), "item_delete_invalid_item_id"),
        (
            Message::text(
                r#"{"type":"session.update","session":{"type":"realtime","audio":{"input":{"format":{"type":"audio/pcm","rate":16000}}}}}"#,
            ),
            "integer_below_min_value",
        ),
    ];
    for (message, code) in cases {
        socket.send_raw(message.clone()).await;
        let event = socket.next().await;
        assert_eq!((&event["type"], &event["error"]["code"]), (&json!("error"), &json!(code)), "{message}: {event}");
    }
    let events = socket.ask("Are you there?").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_failing_engine_ends_its_response_with_the_reason() {
    let tts = FakeTts::default().failing_on("bad");
    let llm = FakeLlm::says(["A bad word.", "A good one."]);
    let hub = Hub::start(engines(FakeStt::default().then_fails("no ears"), llm, tts), Config::default()).await;
    let mut socket = hub.connect_by_proxy().await;
    let events = socket.ask("one").await;
    let done = &events.last().expect("done")["response"];
    assert_eq!(done["status"], "failed");
    assert_eq!(
        done["status_details"]["error"]["message"],
        "The voice engine failed; try again. The operator's log has the details."
    );
    let failed_in =
        |stage: &str| format!(r#"antiphon_failed_responses_total{{code="response_failed",stage="{stage}"}} "#);
    assert_eq!(hub.metric(&failed_in("tts")), 1.0);
    assert_eq!(hub.metric(r#"antiphon_errors_total{code="response_failed"} "#), 1.0);
    let events = socket.ask("two").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
    socket.append(&loud(300)).await;
    socket.append(&quiet(600)).await;
    let events = socket.until("conversation.item.input_audio_transcription.failed").await;
    assert_eq!(
        events.last().expect("failed")["error"]["message"],
        "The speech recognizer failed; try again. The operator's log has the details."
    );
    socket.send(json!({"type": "response.create"})).await;
    let events = socket.until("response.done").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "failed", "its words are lost");
    assert_eq!(["llm", "tts", "none"].map(|stage| hub.metric(&failed_in(stage))), [0.0, 1.0, 1.0]);
    assert_eq!(socket.ask("three").await.last().expect("done")["response"]["status"], "completed", "it was typed");
}

#[tokio::test(start_paused = true)]
async fn telephone_audio_works_both_ways() {
    for format in ["audio/pcmu", "audio/pcma"] {
        let hub = hub("hello", "Hi.").await;
        let mut socket = hub.connect("").await;
        let audio = json!({"input": {"format": {"type": format}}, "output": {"format": {"type": format}}});
        socket.send(json!({"type": "session.update", "session": {"type": "realtime", "audio": audio}})).await;
        socket.until("session.updated").await;
        let codec = if format == "audio/pcmu" { antiphon_types::Format::Ulaw } else { antiphon_types::Format::Alaw };
        let mut samples: Vec<i16> = loud(1_500).into_iter().step_by(3).collect();
        samples.extend(vec![0; 8 * 700]);
        let mut bytes = Vec::new();
        codec::encode(codec, &samples, &mut bytes);
        let encoded = BASE64.encode(bytes);
        socket.send(json!({"type": "input_audio_buffer.append", "audio": encoded})).await;
        let events = socket.until("response.done").await;
        let n_bytes = 2 * n_audio_samples(&events);
        let expect = 3 * MS_PER_CHAR as usize * 8;
        assert!(n_bytes.abs_diff(expect) <= 8, "{n_bytes} bytes at 8 kHz, not {expect}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_ga_client_gets_no_extension() {
    let hub = hub("one more", "A long enough answer to be interrupted by somebody.").await;
    let mut socket = hub.connect("").await;
    socket.append(&quiet(100)).await;
    let mut events = socket.ask("Tell me").await;
    socket.append(&loud(40)).await;
    socket.append(&quiet(400)).await;
    socket.append(&loud(400)).await;
    socket.append(&quiet(600)).await;
    events.extend(socket.until("response.done").await);
    assert!(socket.frames.is_empty());
    let private = events.iter().find(|e| {
        e["type"].as_str().is_some_and(|t| t.starts_with("antiphon") || t.starts_with("output_audio_buffer"))
    });
    assert_eq!(private, None);
}

#[tokio::test(start_paused = true)]
async fn the_format_may_change_in_the_middle_of_the_audio() {
    let hub = hub("hello", "Hi.").await;
    let mut socket = hub.connect("").await;
    socket.append(&quiet(105)).await;
    let audio = json!({"input": {"format": {"type": "audio/pcmu"}}});
    socket.send(json!({"type": "session.update", "session": {"type": "realtime", "audio": audio}})).await;
    socket.until("session.updated").await;
    let mut bytes = Vec::new();
    let samples: Vec<i16> = loud(800).into_iter().chain(quiet(700)).step_by(3).collect();
    codec::encode(antiphon_types::Format::Ulaw, &samples, &mut bytes);
    socket.send(json!({"type": "input_audio_buffer.append", "audio": BASE64.encode(bytes)})).await;
    let events = socket.until("response.done").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
}
