//! Each row of the table "GA vs beta", in both directions.

use super::*;
use crate::{AudioFormat, ClientEvent};
use crate::{
    Content, Conversation, Dialect, Item, ItemStatus, PartAt, Response, ResponseAudio, ResponseAudioOutput, Role,
    ServerVad, Session, SessionKind, WireError,
};
use bytes::Bytes;

#[track_caller]
fn check_in(beta: Value, ga: Value) {
    let mapped: Value = serde_json::from_str(&incoming(&beta.to_string())).unwrap();
    assert_eq!(mapped, ga);
    let dialect = Dialect { beta: true, ..Dialect::default() };
    dialect.parse(&beta.to_string()).expect("GA accepts it");
}

#[track_caller]
fn check_out(event: ServerEvent, beta: Value) {
    let text = outgoing(&event, "event_1");
    let mut mapped: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(mapped["event_id"], "event_1");
    mapped.as_object_mut().unwrap().remove("event_id");
    assert_eq!(mapped, beta);
}

fn at() -> PartAt {
    PartAt::new("resp_1".into(), "item_1".into(), 0, 0)
}

fn named(kind: &str, more: Value) -> Value {
    let mut event =
        json!({"type": kind, "response_id": "resp_1", "item_id": "item_1", "output_index": 0, "content_index": 0});
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event
}

fn said(text: &str) -> Item {
    let content =
        vec![Content::OutputText { text: text.into() }, Content::OutputAudio { transcript: Some(text.into()) }];
    Item::message("item_1".into(), ItemStatus::Completed, Role::Assistant, content)
}

fn said_in_beta(text: &str) -> Value {
    json!({"id": "item_1", "object": "realtime.item", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "text", "text": text}, {"type": "audio", "transcript": text}]})
}

#[test]
fn output_events_have_their_old_names() {
    let delta = || "Hi".to_owned();
    check_out(
        ServerEvent::OutputAudioDelta { at: at(), delta: Bytes::from_static(&[1, 2]) },
        named("response.audio.delta", json!({"delta": "AQI="})),
    );
    check_out(ServerEvent::OutputAudioDone { at: at() }, named("response.audio.done", json!({})));
    check_out(
        ServerEvent::OutputTranscriptDelta { at: at(), delta: delta() },
        named("response.audio_transcript.delta", json!({"delta": "Hi"})),
    );
    check_out(
        ServerEvent::OutputTranscriptDone { at: at(), transcript: delta() },
        named("response.audio_transcript.done", json!({"transcript": "Hi"})),
    );
    check_out(
        ServerEvent::OutputTextDelta { at: at(), delta: delta() },
        named("response.text.delta", json!({"delta": "Hi"})),
    );
    check_out(
        ServerEvent::OutputTextDone { at: at(), text: delta() },
        named("response.text.done", json!({"text": "Hi"})),
    );
}

#[test]
fn an_item_is_created_once_and_its_parts_have_their_old_names() {
    let added = ServerEvent::ItemAdded { previous_item_id: Some("item_0".into()), item: said("Hi") };
    check_out(
        added,
        json!({"type": "conversation.item.created", "previous_item_id": "item_0", "item": said_in_beta("Hi")}),
    );
    let done = ServerEvent::ItemDone { previous_item_id: None, item: said("Hi") };
    assert!(!has(&done));
    let retrieved = ServerEvent::ItemRetrieved { item: said("Hi") };
    check_out(retrieved, json!({"type": "conversation.item.retrieved", "item": said_in_beta("Hi")}));
    let conversation = ServerEvent::ConversationCreated { conversation: Conversation::new("conv_1") };
    check_out(
        conversation,
        json!({"type": "conversation.created", "conversation": {"id": "conv_1", "object": "realtime.conversation"}}),
    );

    let create = |kind: [&str; 2]| {
        json!({"type": "conversation.item.create", "event_id": "e", "item": {"type": "message", "role": "assistant",
            "content": [{"type": kind[0], "text": "Hi"}, {"type": kind[1], "transcript": "Hi"}]}})
    };
    check_in(create(["text", "audio"]), create(["output_text", "output_audio"]));
    let input = json!([{"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hi"}]}]);
    let ga = json!([{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}]);
    check_in(
        json!({"type": "response.create", "response": {"input": input}}),
        json!({"type": "response.create", "response": {"input": ga}}),
    );
}

fn flat() -> Value {
    json!({"modalities": ["text", "audio"], "instructions": "Be brief.", "voice": "slt", "speed": 1.25,
        "input_audio_format": "g711_ulaw", "output_audio_format": "pcm16", "input_audio_transcription": {"model": "whisper-1"},
        "input_audio_noise_reduction": {"type": "near_field"}, "turn_detection": {"type": "server_vad", "threshold": 0.5},
        "tools": [], "tool_choice": "auto", "max_response_output_tokens": 200})
}

#[test]
fn a_flat_session_becomes_a_nested_one() {
    let mut beta = flat();
    beta["temperature"] = json!(0.8);
    let nested = json!({"type": "realtime", "output_modalities": ["audio"], "instructions": "Be brief.", "tools": [],
        "tool_choice": "auto", "max_output_tokens": 200, "audio": {
            "input": {"format": {"type": "audio/pcmu"}, "transcription": {"model": "whisper-1"},
                "noise_reduction": {"type": "near_field"}, "turn_detection": {"type": "server_vad", "threshold": 0.5}},
            "output": {"format": {"type": "audio/pcm"}, "voice": "slt", "speed": 1.25}}});
    check_in(json!({"type": "session.update", "session": beta}), json!({"type": "session.update", "session": nested}));
    check_in(
        json!({"type": "session.update", "session": {"turn_detection": null, "modalities": ["text"]}}),
        json!({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"],
            "audio": {"input": {"turn_detection": null}}}}),
    );
    let ga = json!({"type": "session.update", "session": {"type": "realtime", "audio": {"output": {"voice": "rms"}}}});
    check_in(ga.clone(), ga);
}

#[test]
fn a_nested_session_is_shown_flat() {
    let mut session = Session::new("sess_1".into(), "antiphon", "slt", ServerVad::default());
    session.audio.input.format = AudioFormat::Pcma;
    let text = outgoing(&ServerEvent::SessionUpdated { session: Box::new(session.clone()) }, "event_1");
    let event: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(event["type"], "session.updated");
    let shown = &event["session"];
    for name in ["type", "audio", "output_modalities", "max_output_tokens"] {
        assert_eq!(shown.get(name), None, "{name} is GA's");
    }
    assert_eq!(
        (&shown["modalities"], &shown["voice"], &shown["speed"]),
        (&json!(["text", "audio"]), &json!("slt"), &json!(1.0))
    );
    assert_eq!((&shown["input_audio_format"], &shown["output_audio_format"]), (&json!("g711_alaw"), &json!("pcm16")));
    assert_eq!(shown["turn_detection"]["silence_duration_ms"], 500);
    assert_eq!(
        (&shown["max_response_output_tokens"], &shown["input_audio_transcription"]),
        (&json!("inf"), &json!({}))
    );
    // A client may send back what it received.
    let again = json!({"type": "session.update", "session": shown}).to_string();
    let dialect = Dialect { beta: true, ..Dialect::default() };
    let ClientEvent::SessionUpdate(update) = dialect.parse(&again).unwrap().event else { panic!("another event") };
    let before = session.clone();
    session.apply(*update);
    assert_eq!(session, before);
}

#[test]
fn a_transcription_session_has_its_own_events() {
    let beta = json!({"input_audio_format": "pcm16", "input_audio_transcription": {"model": "whisper-1"},
        "turn_detection": null, "modalities": ["text"]});
    let ga = json!({"type": "transcription", "audio": {"input": {"format": {"type": "audio/pcm"},
        "transcription": {"model": "whisper-1"}, "turn_detection": null}}});
    check_in(
        json!({"type": "transcription_session.update", "session": beta}),
        json!({"type": "session.update", "session": ga}),
    );
    let mut session = Session::new("sess_1".into(), "antiphon", "slt", ServerVad::default());
    session.kind = SessionKind::Transcription;
    for (event, name) in [
        (ServerEvent::SessionCreated { session: Box::new(session.clone()) }, "transcription_session.created"),
        (ServerEvent::SessionUpdated { session: Box::new(session.clone()) }, "transcription_session.updated"),
    ] {
        let event: Value = serde_json::from_str(&outgoing(&event, "event_1")).unwrap();
        assert_eq!(event["type"], name);
        assert_eq!(event["session"]["object"], "realtime.transcription_session");
        assert_eq!(event["session"]["input_audio_format"], "pcm16");
        assert_eq!(event["session"].get("audio"), None);
    }
}

#[test]
fn a_response_is_asked_for_and_shown_flat() {
    let beta = json!({"modalities": ["text", "audio"], "voice": "rms", "output_audio_format": "g711_alaw", "temperature": 0.7,
        "max_response_output_tokens": 12, "conversation": "none", "metadata": {"k": "v"}});
    let ga = json!({"output_modalities": ["audio"], "audio": {"output": {"voice": "rms", "format": {"type": "audio/pcma"}}},
        "max_output_tokens": 12, "conversation": "none", "metadata": {"k": "v"}});
    check_in(json!({"type": "response.create", "response": beta}), json!({"type": "response.create", "response": ga}));
    check_in(json!({"type": "response.create"}), json!({"type": "response.create"}));

    let mut response = Response::new("resp_1".into(), Some("conv_1".into()));
    response.output = vec![said("Hi")];
    let output = ResponseAudioOutput { format: AudioFormat::Pcm, voice: "slt".into() };
    response.audio = ResponseAudio { output: Some(output) };
    check_out(
        ServerEvent::ResponseDone { response: Box::new(response) },
        json!({"type": "response.done", "response": {"object": "realtime.response", "id": "resp_1", "status": "in_progress",
            "status_details": null, "output": [said_in_beta("Hi")], "conversation_id": "conv_1", "modalities": ["text", "audio"],
            "max_output_tokens": "inf", "voice": "slt", "output_audio_format": "pcm16", "usage": null, "metadata": null}}),
    );
}

#[test]
fn mistakes_are_told_in_the_clients_words() {
    let dialect = Dialect { beta: true, ..Dialect::default() };
    let refusal = |session: Value| {
        let error = dialect.parse(&json!({"type": "session.update", "session": session}).to_string()).unwrap_err();
        let event: Value = serde_json::from_str(&outgoing(&ServerEvent::Error { error }, "event_1")).unwrap();
        (event["error"]["param"].as_str().unwrap().to_owned(), event["error"]["message"].as_str().unwrap().to_owned())
    };
    let (param, message) = refusal(json!({"input_audio_format": "mp3"}));
    assert_eq!(param, "session.input_audio_format");
    assert_eq!(message, "Invalid value: 'mp3'. Supported values are: 'pcm16', 'g711_ulaw', and 'g711_alaw'.");
    assert_eq!(
        refusal(json!({"turn_detection": {"type": "server_vad", "threshold": 7}})).0,
        "session.turn_detection.threshold"
    );
    assert_eq!(refusal(json!({"x": 1})).0, "session.x");
    assert_eq!(refusal(json!({"voice": 1})).0, "session.voice");
}

#[test]
fn everything_else_passes_as_it_is() {
    for text in [
        "{nonsense",
        "[]",
        r#"{"type":1}"#,
        r#"{"type":"input_audio_buffer.append","audio":"AAA="}"#,
        r#"{"type":"session.update"}"#,
    ] {
        let same = incoming(text);
        let same = serde_json::from_str::<Value>(&same).ok().map_or(same.to_string(), |value| value.to_string());
        assert_eq!(same, serde_json::from_str::<Value>(text).ok().map_or(text.to_owned(), |value| value.to_string()));
    }
    let error = WireError::nothing_to_cancel();
    check_out(
        ServerEvent::Error { error },
        json!({"type": "error", "error": {"type": "invalid_request_error", "code": "response_cancel_not_active",
            "message": "Cancellation failed: no active response found", "param": null, "event_id": null}}),
    );
}
