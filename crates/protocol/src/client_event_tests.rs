//! Client events, and how invalid messages are rejected: the rows of the error table that are decided by parsing.

use super::*;
use crate::{AudioFormat, Content, Dialect, InputItem, Item, ItemBody, MaxTokens, Modality, Role, Tool, ToolChoice};
use antiphon_types::chat::{Image, ImageDetail};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Parses `message`, which must be valid.
fn event(message: Value) -> ClientEvent {
    parse(&message.to_string()).unwrap_or_else(|error| panic!("{message}: {error:?}")).event
}

/// Parses `text`, which must be rejected with exactly this code, parameter and message.
#[track_caller]
fn refused(text: &str, code: &str, param: Option<&str>, message: &str) {
    let error = parse(text).expect_err(text);
    assert_eq!((error.code, error.param.as_deref()), (Some(code), param), "{text}: {error:?}");
    assert_eq!(error.message, message, "{text}");
}

/// Parses a session update, which must be rejected with this code at this parameter.
#[track_caller]
fn session_refused(session: Value, code: &str, param: &str) {
    let text = json!({"type": "session.update", "event_id": "e7", "session": session}).to_string();
    let error = parse(&text).expect_err(&text);
    assert_eq!((error.code, error.param.as_deref()), (Some(code), Some(param)), "{text}: {error:?}");
    assert_eq!(error.event_id.as_deref(), Some("e7"));
}

#[test]
fn every_plain_event_is_read() {
    let id = || ItemId::from("item_1");
    let check = |message, expect| assert_eq!(event(message), expect);
    check(json!({"type": "input_audio_buffer.commit"}), ClientEvent::InputAudioCommit);
    check(json!({"type": "input_audio_buffer.clear", "event_id": null}), ClientEvent::InputAudioClear);
    check(json!({"type": "output_audio_buffer.clear"}), ClientEvent::OutputAudioClear);
    check(
        json!({"type": "output_audio_buffer.played", "item_id": "item_1", "audio_end_ms": 120}),
        ClientEvent::OutputAudioPlayed(Box::new(PlayedReport {
            item_id: id(),
            audio_end_ms: 120,
            at_ms: None,
            first_sound_ms: None,
            n_underruns: None,
            underrun_ms: None,
            stopped: false,
        })),
    );
    check(
        json!({"type": "output_audio_buffer.played", "item_id": "item_1", "audio_end_ms": 120, "at_ms": 5.25,
               "first_sound_ms": 3, "n_underruns": 1, "underrun_ms": 40, "stopped": true}),
        ClientEvent::OutputAudioPlayed(Box::new(PlayedReport {
            item_id: id(),
            audio_end_ms: 120,
            at_ms: Some(5.25),
            first_sound_ms: Some(3.0),
            n_underruns: Some(1),
            underrun_ms: Some(40),
            stopped: true,
        })),
    );
    check(
        json!({"type": "antiphon.clock.ping", "client_ms": 1.5, "pong_ms": 1.25}),
        ClientEvent::ClockPing(ClockPing { client_ms: 1.5, pong_ms: Some(1.25), microphone_ms: None }),
    );
    check(json!({"type": "conversation.item.delete", "item_id": "item_1"}), ClientEvent::ItemDelete { item_id: id() });
    check(
        json!({"type": "conversation.item.retrieve", "item_id": "item_1"}),
        ClientEvent::ItemRetrieve { item_id: id() },
    );
    check(
        json!({"type": "conversation.item.truncate", "item_id": "item_1", "content_index": 0, "audio_end_ms": 1500.0}),
        ClientEvent::ItemTruncate { item_id: id(), content_index: 0, audio_end_ms: 1500 },
    );
    check(json!({"type": "response.create"}), ClientEvent::ResponseCreate(Box::default()));
    check(json!({"type": "response.create", "response": null}), ClientEvent::ResponseCreate(Box::default()));
    check(json!({"type": "response.cancel"}), ClientEvent::ResponseCancel { response_id: None });
    check(
        json!({"type": "response.cancel", "response_id": "resp_1"}),
        ClientEvent::ResponseCancel { response_id: Some(ResponseId::from("resp_1")) },
    );
}

#[test]
fn appended_audio_is_decoded_however_the_client_writes_it() {
    let check = |text: &str| {
        let incoming = parse(text).unwrap();
        assert_eq!(
            incoming.event,
            ClientEvent::InputAudioAppend { audio: Bytes::from_static(b"\xff\xff\x01") },
            "{text}"
        );
        assert_eq!(incoming.event_id.as_deref(), Some("e1"));
    };
    check(r#"{"type":"input_audio_buffer.append","audio":"//8B","event_id":"e1"}"#);
    // Escaped slashes are valid JSON, and the order of fields is arbitrary.
    check(r#" {"audio" : "\/\/8B", "event_id":"e1", "type":"input_audio_buffer.append"} "#);
    check(r#"{"type":"input_audio_buffer.append","event_id":"e1","audio":"\u002f/8B","seq":[{"x":1}]}"#);
    let unpadded = parse(r#"{"type":"input_audio_buffer.append","audio":"AQ"}"#).unwrap().event;
    assert_eq!(unpadded, ClientEvent::InputAudioAppend { audio: Bytes::from_static(&[1]) });
}

#[test]
fn bad_messages_are_refused_as_the_table_says() {
    let append = |audio: &str| format!(r#"{{"type":"input_audio_buffer.append","audio":{audio}}}"#);
    let what = "Expected base64-encoded audio bytes (mono PCM16 at 24kHz) but got";
    for bad in [r#""%%%""#, r#""QUJD\n""#, r#""QR==""#, r#""ü""#] {
        let message = format!("Invalid 'audio'. {what} an invalid value.");
        refused(&append(bad), "invalid_value", Some("audio"), &message);
    }
    refused(&append(r#""""#), "invalid_value", Some("audio"), &format!("Invalid 'audio'. {what} empty bytes."));
    let message = "Invalid type for 'audio': expected a string, but got an integer instead.";
    refused(&append("7"), "invalid_type", Some("audio"), message);
    let message = "Missing required parameter: 'audio'.";
    refused(&append("null"), "missing_required_parameter", Some("audio"), message);
    refused(r#"{"type":"input_audio_buffer.append"}"#, "missing_required_parameter", Some("audio"), message);

    refused("{}", "invalid_event", None, "The 'type' field is missing.");
    refused(r#"{"type":null}"#, "invalid_event", None, "The 'type' field is missing.");
    refused("[1]", "invalid_event", None, "Invalid event: expected a JSON object.");
    let message = "Invalid type for 'type': expected a string, but got an array instead.";
    refused(r#"{"type":[]}"#, "invalid_type", Some("type"), message);
    let message = "Unknown parameter: 'shout'.";
    refused(r#"{"type":"response.cancel","shout":1}"#, "unknown_parameter", Some("shout"), message);
    let message = "Missing required parameter: 'item_id'.";
    refused(r#"{"type":"conversation.item.delete"}"#, "missing_required_parameter", Some("item_id"), message);
    let message = "Missing required parameter: 'session'.";
    refused(r#"{"type":"session.update"}"#, "missing_required_parameter", Some("session"), message);
}

#[test]
fn an_unknown_event_type_is_told_which_there_are() {
    let error = parse(r#"{"type":"session.destroy"}"#).unwrap_err();
    assert_eq!((error.code, error.param.as_deref()), (Some("invalid_value"), Some("type")));
    assert!(error.message.starts_with("Invalid value: 'session.destroy'. Supported values are: 'session.update', "));
    assert!(error.message.contains("'response.cancel'") && error.message.ends_with("'input_audio_buffer.append'."));
}

#[test]
fn what_is_no_json_is_refused() {
    let huge = r#"{"type":"session.update","session":1e999}"#;
    let cut = r#"{"type":"response.cancel""#;
    for text in ["", "hello", "{", cut, r#"{"type":"response.cancel"} x"#, "\u{0}", huge] {
        let error = parse(text).expect_err(text);
        assert_eq!((error.code, error.param.as_deref()), (Some("invalid_json"), None), "{text}: {error:?}");
        assert!(error.message.starts_with("Invalid event: failed to parse JSON value. "), "{}", error.message);
    }
}

#[test]
fn the_clients_event_id_is_recovered_when_the_rest_is_bad() {
    let check = |text: &str| assert_eq!(parse(text).expect_err(text).event_id.as_deref(), Some("e-9"), "{text}");
    check(r#"{"event_id":"e-9"}"#);
    check(r#"{"type":"nope","event_id":"e-9"}"#);
    check(r#"{"event_id":"e-9","type":"input_audio_buffer.append","audio":"!"}"#);
    check(r#"{"event_id":"e-9","type":"response.create","response":{"speed":1}}"#);
    check(r#"{"event_id":"e-9","type":"response.create","#);
    let error = parse(r#"{"event_id":9,"type":"response.create"}"#).unwrap_err();
    assert_eq!((error.code, error.param.as_deref(), error.event_id), (Some("invalid_type"), Some("event_id"), None));
}

#[test]
fn deep_nesting_is_refused_and_does_not_end_the_process() {
    let deep = format!(r#"{{"type":"session.update","session":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(parse(&deep).unwrap_err().code, Some("invalid_json"));
}

#[test]
fn no_tree_is_made_of_what_should_be_a_string_and_every_field_is_weighed() {
    // A tree would be refused for its depth.
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for field in ["audio", "event_id", "type"] {
        let kind = if field == "type" { String::new() } else { r#","type":"input_audio_buffer.append""#.into() };
        let audio = if field == "event_id" { r#","audio":"AAA=""# } else { "" };
        let text = format!(r#"{{"{field}":{deep}{kind}{audio}}}"#);
        let message = format!("Invalid type for '{field}': expected a string, but got an array instead.");
        refused(&text, "invalid_type", Some(field), &message);
    }
    let heavy = json!(vec![json!({"x": 0}); 12_000]).to_string();
    let is_too_large = |text: &str, field: &str| {
        assert_eq!(parse(text).unwrap_err().code, Some("event_too_large"), "{field}");
        let beta = Dialect { beta: true, ..Dialect::default() };
        assert_eq!(beta.parse(text).unwrap_err().code, Some("event_too_large"), "{field} before GA");
    };
    for field in ["audio", "event_id", "shout"] {
        is_too_large(&format!(r#"{{"type":"response.cancel","{field}":{heavy}}}"#), field);
    }
    for field in ["audio", "event_id", "type"] {
        let text = format!(r#"{{"{field}":{heavy},"{field}":"x","type":"response.cancel"}}"#);
        is_too_large(&text, &format!("{field}, which comes twice"));
    }
}

#[test]
fn wrong_session_settings_are_refused_with_their_path() {
    let check = session_refused;
    check(json!({}), "missing_required_parameter", "session.type");
    check(json!({"type": "party"}), "invalid_value", "session.type");
    let realtime = |name: &str, value: Value| json!({"type": "realtime", name: value});
    check(realtime("x", json!(1)), "unknown_parameter", "session.x");
    check(realtime("modalities", json!(["text"])), "unknown_parameter", "session.modalities");
    check(realtime("instructions", json!(5)), "invalid_type", "session.instructions");
    check(realtime("output_modalities", json!(["text", "audio"])), "invalid_value", "session.output_modalities");
    check(realtime("output_modalities", json!([])), "invalid_value", "session.output_modalities");
    check(realtime("max_output_tokens", json!(0)), "integer_below_min_value", "session.max_output_tokens");
    check(realtime("max_output_tokens", json!(4097)), "integer_above_max_value", "session.max_output_tokens");
    check(realtime("max_output_tokens", json!("all")), "invalid_value", "session.max_output_tokens");
    check(realtime("tools", json!([{"type": "function"}])), "missing_required_parameter", "session.tools[0].name");
    check(
        realtime("tools", json!([{"type": "gadget", "server_label": "x"}])),
        "invalid_value",
        "session.tools[0].type",
    );
    check(realtime("tool_choice", json!("maybe")), "invalid_value", "session.tool_choice");
    let input = |name: &str, value: Value| realtime("audio", json!({"input": {name: value}}));
    let format = |value| input("format", value);
    let path = "session.audio.input.format";
    check(format(json!({"type": "audio/pcm", "rate": 16000})), "integer_below_min_value", &format!("{path}.rate"));
    check(format(json!({"type": "audio/pcm", "rate": 48000})), "integer_above_max_value", &format!("{path}.rate"));
    check(format(json!({"type": "audio/mp3"})), "invalid_value", &format!("{path}.type"));
    check(format(json!("pcm16")), "invalid_type", path);
    check(input("volume", json!(1)), "unknown_parameter", "session.audio.input.volume");
    check(realtime("audio", json!({"input": 3})), "invalid_type", "session.audio.input");
    let vad = |name: &str, value: Value| input("turn_detection", json!({"type": "server_vad", name: value}));
    let path = |name: &str| format!("session.audio.input.turn_detection.{name}");
    check(input("turn_detection", json!({"type": "magic"})), "invalid_value", &path("type"));
    check(vad("threshold", json!(1.5)), "decimal_above_max_value", &path("threshold"));
    check(vad("threshold", json!(-0.1)), "decimal_below_min_value", &path("threshold"));
    check(vad("silence_duration_ms", json!(-1)), "integer_below_min_value", &path("silence_duration_ms"));
    check(vad("silence_duration_ms", json!(1e9)), "integer_above_max_value", &path("silence_duration_ms"));
    check(vad("prefix_padding_ms", json!(1.5)), "invalid_type", &path("prefix_padding_ms"));
    check(vad("idle_timeout_ms", json!(10)), "integer_below_min_value", &path("idle_timeout_ms"));
    check(vad("eagerness", json!("low")), "unknown_parameter", &path("eagerness"));
    let output = |name: &str, value: Value| realtime("audio", json!({"output": {name: value}}));
    check(output("speed", json!(1.6)), "decimal_above_max_value", "session.audio.output.speed");
    check(output("voice", json!("")), "empty_string", "session.audio.output.voice");
}

#[test]
fn the_message_for_a_low_rate_is_the_originals() {
    let text = r#"{"type":"session.update","session":{"type":"realtime","audio":{"input":{"format":{"type":"audio/pcm","rate":16000}}}}}"#;
    let message = "Invalid 'session.audio.input.format.rate': integer below minimum value. Expected a value >= 24000, \
                   but got 16000 instead.";
    refused(text, "integer_below_min_value", Some("session.audio.input.format.rate"), message);
}

#[test]
fn items_are_read_with_their_place() {
    let create = |previous: Value, item: Value| match event(
        json!({"type": "conversation.item.create", "previous_item_id": previous, "item": item}),
    ) {
        ClientEvent::ItemCreate { position, item } => (position, *item),
        other => panic!("{other:?}"),
    };
    let call = json!({"type": "function_call_output", "call_id": "c1", "output": "{}", "object": "realtime.item"});
    let (position, item) = create(json!("root"), call);
    assert_eq!((position, item.id), (Position::Root, None));
    assert_eq!(item.body, ItemBody::FunctionCallOutput { call_id: "c1".into(), output: "{}".into() });
    let audio = json!({"id": "mine", "type": "message", "role": "user", "status": "completed", "content": [
        {"type": "input_text", "text": "Hm.", "audio": null, "transcript": null, "image_url": null},
        {"type": "input_audio", "audio": "AQI=", "text": null, "format": null}]});
    let (position, item) = create(json!("item_0"), audio);
    assert_eq!((position, item.id), (Position::After(ItemId::from("item_0")), Some(ItemId::from("mine"))));
    let content = vec![
        Content::InputText { text: "Hm.".into() },
        Content::InputAudio { audio: Some(Bytes::from_static(&[1, 2])), transcript: None },
    ];
    assert_eq!(item.body, ItemBody::Message { role: Role::User, content });
    let said = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]});
    assert_eq!(create(Value::Null, said).0, Position::End);
}

/// The beginning of a PNG file.
const PNG: &str = "data:image/png;base64,iVBORw0KGgo=";

#[test]
fn images_are_taken_in_one_form_and_not_sent_back() {
    let item = |url: &str, detail: Value| {
        let part = json!({"type": "input_image", "image_url": url, "detail": detail, "text": null});
        let item = json!({"type": "message", "role": "user", "content": [part]});
        match event(json!({"type": "conversation.item.create", "item": item})) {
            ClientEvent::ItemCreate { item, .. } => *item,
            other => panic!("{other:?}"),
        }
    };
    let content = |item: &Item| match &item.body {
        ItemBody::Message { content, .. } => content.clone(),
        other => panic!("{other:?}"),
    };
    let high = item(PNG, json!("high"));
    let image = Image::new(PNG, ImageDetail::High);
    assert_eq!(content(&high), [Content::InputImage { image, detail: ImageDetail::High }]);
    let sent = serde_json::to_value(&high).unwrap();
    assert_eq!(sent["content"], json!([{"type": "input_image", "detail": "high"}]));
    for (url, as_sent) in [
        ("DATA:IMAGE/PNG;base64,iVBORw0KGgo", PNG),
        ("data:image/jpg;base64,/9j/", "data:image/jpeg;base64,/9j/"),
        ("data:image/gif;base64,R0lGODlh", "data:image/gif;base64,R0lGODlh"),
        ("data:image/webp;base64,UklGRgAAAABXRUJQ", "data:image/webp;base64,UklGRgAAAABXRUJQ"),
    ] {
        let image = Image::new(as_sent, ImageDetail::Auto);
        assert_eq!(
            content(&item(url, Value::Null)),
            [Content::InputImage { image, detail: ImageDetail::Auto }],
            "{url}"
        );
    }
}

#[test]
fn wrong_items_are_refused_with_their_path() {
    let check = |item: Value, code: &str, param: &str| {
        let text = json!({"type": "conversation.item.create", "item": item}).to_string();
        let error = parse(&text).expect_err(&text);
        assert_eq!((error.code, error.param.as_deref()), (Some(code), Some(param)), "{text}: {error:?}");
    };
    let message = |role: &str, part: Value| json!({"type": "message", "role": role, "content": [part]});
    check(json!({"type": "poem"}), "invalid_value", "item.type");
    check(json!({"type": "message", "role": "user"}), "missing_required_parameter", "item.content");
    check(message("cat", json!({"type": "input_text", "text": ""})), "invalid_value", "item.role");
    let image = |url: &str| message("user", json!({"type": "input_image", "image_url": url}));
    for url in [
        "",
        "data:",
        "http://localhost/cat.png",
        "https://example.org/cat.png",
        "file:///etc/passwd",
        "data:image/png,iVBORw0KGgo=",
        "data:image/png;base64,!",
        "data:image/jpeg;base64,iVBORw0KGgo=",
        "data:image/webp;base64,UklGRgAAAABXQVZF",
        "data:image/svg+xml;base64,PHN2Zy8+",
        "ä",
    ] {
        check(image(url), "invalid_value", "item.content[0].image_url");
    }
    check(image(&"x".repeat((2 << 20) + 1)), "string_above_max_length", "item.content[0].image_url");
    let seen = json!({"type": "input_image", "image_url": PNG, "detail": "fine"});
    check(message("user", seen), "invalid_value", "item.content[0].detail");
    check(message("user", json!({"type": "input_image"})), "missing_required_parameter", "item.content[0].image_url");
    check(message("system", json!({"type": "input_image", "image_url": PNG})), "invalid_value", "item.content[0].type");
    let many = vec![json!({"type": "input_image", "image_url": PNG}); 9];
    check(json!({"type": "message", "role": "user", "content": many}), "array_above_max_length", "item.content");
    check(message("user", json!({"type": "output_text", "text": ""})), "invalid_value", "item.content[0].type");
    check(message("user", json!({"type": "input_audio", "audio": "!"})), "invalid_value", "item.content[0].audio");
    check(message("assistant", json!({"type": "output_text"})), "missing_required_parameter", "item.content[0].text");
    check(json!({"type": "function_call_output", "output": ""}), "missing_required_parameter", "item.call_id");
    let named = |id: &str| json!({"id": id, "type": "function_call_output", "call_id": "c", "output": ""});
    check(named(""), "empty_string", "item.id");
    check(named("ä"), "invalid_value", "item.id");
    check(named(&"x".repeat(129)), "string_above_max_length", "item.id");
}

#[test]
fn a_response_may_differ_from_its_session() {
    let message = json!({"type": "response.create", "response": {
        "instructions": null, "output_modalities": ["text"], "conversation": "none", "max_output_tokens": 12,
        "audio": {"output": {"voice": {"id": "rms"}, "speed": 1.25, "instructions": "Whisper.", "format": {"type": "audio/pcmu"}}}, "metadata": {"k": "v"},
        "tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function", "name": "f"}, "prompt": {},
        "input": [{"type": "item_reference", "id": "item_1"},
                  {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Hi"}]}]}});
    let ClientEvent::ResponseCreate(params) = event(message) else { panic!("another event") };
    let hi = ItemBody::Message { role: Role::System, content: vec![Content::InputText { text: "Hi".into() }] };
    let input = params.input.clone().unwrap();
    assert_eq!(input[0], InputItem::Reference(ItemId::from("item_1")));
    assert!(matches!(&input[1], InputItem::Item(item) if item.body == hi));
    let expect = ResponseParams {
        instructions: None,
        output_modalities: Some(Modality::Text),
        voice: Some("rms".into()),
        speed: Some(1.25),
        voice_instructions: Some("Whisper.".into()),
        format: Some(AudioFormat::Pcmu),
        tools: Some(vec![Tool::Function { name: "f".into(), description: None, parameters: None }]),
        tool_choice: Some(ToolChoice::Function("f".into())),
        max_output_tokens: Some(MaxTokens::Limit(12)),
        out_of_band: true,
        metadata: Some([("k".to_owned(), "v".to_owned())].into()),
        input: Some(input),
    };
    assert_eq!(*params, expect);
    let text = r#"{"type":"response.create","response":{"metadata":{"k":1}}}"#;
    assert_eq!(parse(text).unwrap_err().param.as_deref(), Some("response.metadata.k"));
}

#[test]
fn unknown_fields_can_be_let_through() {
    let text = r#"{"type":"session.update","x":1,"session":{"type":"realtime","y":{"z":2}}}"#;
    assert_eq!(parse(text).unwrap_err().code, Some("unknown_parameter"));
    assert!(parse_with(text, UnknownFields::Ignore).is_ok());
}

/// JSON that resembles an event but may be invalid anywhere.
fn near_event() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~]{0,8}".prop_map(Value::from),
        proptest::sample::select(vec!["realtime", "message", "server_vad", "audio/pcm", "user", "inf"])
            .prop_map(Value::from),
    ];
    let keys = vec![
        "type",
        "session",
        "audio",
        "input",
        "output",
        "item",
        "role",
        "content",
        "response",
        "format",
        "turn_detection",
        "tools",
        "metadata",
        "event_id",
        "item_id",
        "rate",
        "text",
        "threshold",
        "audio_end_ms",
    ];
    let tree = leaf.prop_recursive(5, 40, 6, move |inner| {
        let key = proptest::sample::select(keys.clone());
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key, inner, 0..6)
                .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    });
    let names: Vec<_> = EVENTS.iter().map(|(name, _)| *name).chain([APPEND]).collect();
    (proptest::sample::select(names), tree).prop_map(|(name, mut value)| {
        if let Value::Object(map) = &mut value {
            map.insert("type".into(), name.into());
        }
        value.to_string()
    })
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn near_events_never_panic_and_every_refusal_has_words(text in near_event()) {
        if let Err(error) = parse(&text) {
            prop_assert!(!error.message.is_empty() && error.code.is_some());
        }
    }
}
