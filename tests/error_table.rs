//! The protocol's error table, row by row over a real socket: type, code, parameter, message and echoed event_id of
//! each error, that it changes nothing, and that the session continues.

use crate::hub::{Hub, Socket, engines, loud, n_audio_samples};
use antiphon::config::Config;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

/// The state required before the invalid event is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Precondition {
    Nothing,
    /// The client commits turns manually.
    ManualTurns,
    /// A user item named `mine`.
    UserItem,
    /// A response that never ends.
    Responding,
    /// A spoken response that was sent completely; `ANSWER` and `TOO_LONG` stand for its id and a time beyond its end.
    Answered,
    /// A session of the realtime kind.
    Realtime,
    /// `?intent=transcription`
    Transcription,
}

use Precondition::*;

struct Row {
    given: Precondition,
    /// The event to send; objects get an event_id.
    sends: Value,
    code: Option<&'static str>,
    param: Option<&'static str>,
    /// The start of the message.
    says: &'static str,
}

fn row(
    given: Precondition,
    sends: Value,
    code: impl Into<Option<&'static str>>,
    param: impl Into<Option<&'static str>>,
    says: &'static str,
) -> Row {
    Row { given, sends, code: code.into(), param: param.into(), says }
}

fn update(session: Value) -> Value {
    let mut all = json!({"type": "realtime"});
    all.as_object_mut().expect("an object").extend(session.as_object().expect("an object").clone());
    json!({"type": "session.update", "session": all})
}

fn about(what: &str, item: &str, more: Value) -> Value {
    let mut event = json!({"type": format!("conversation.item.{what}"), "item_id": item});
    event.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    event
}

const AUDIO: &str = "Invalid 'audio'. Expected base64-encoded audio bytes (mono PCM16 at 24kHz) but got";

/// Events that are invalid in themselves.
fn malformed() -> Vec<Row> {
    vec![
        row(
            Nothing,
            json!({"type": "x"}),
            "invalid_value",
            "type",
            "Invalid value: 'x'. Supported values are: 'session.update', ",
        ),
        row(Nothing, json!({}), "invalid_event", None, "The 'type' field is missing."),
        row(Nothing, json!("text:{nonsense"), "invalid_json", None, "Invalid event: failed to parse JSON value. "),
        row(Nothing, json!("text:[]"), "invalid_event", None, "Invalid event: expected a JSON object."),
        row(
            Nothing,
            json!("binary"),
            "invalid_event",
            None,
            "Expected a text WebSocket message; binary frames are not supported.",
        ),
        row(Nothing, update(json!({"x": 1})), "unknown_parameter", "session.x", "Unknown parameter: 'session.x'."),
        row(
            Nothing,
            json!({"type": "session.update"}),
            "missing_required_parameter",
            "session",
            "Missing required parameter: 'session'.",
        ),
        row(
            Nothing,
            json!({"type": "session.update", "session": {}}),
            "missing_required_parameter",
            "session.type",
            "Missing required",
        ),
        row(
            Nothing,
            update(json!({"audio": {"input": {"format": {"type": "audio/pcm", "rate": 16000}}}})),
            "integer_below_min_value",
            "session.audio.input.format.rate",
            "Invalid 'session.audio.input.format.rate': integer below",
        ),
        row(
            Nothing,
            update(json!({"output_modalities": ["text", "audio"]})),
            "invalid_value",
            "session.output_modalities",
            "Invalid",
        ),
        row(Nothing, json!({"type": "input_audio_buffer.append", "audio": "*"}), "invalid_value", "audio", AUDIO),
        row(Nothing, json!({"type": "input_audio_buffer.append", "audio": ""}), "invalid_value", "audio", AUDIO),
    ]
}

/// Events that are invalid in the current state.
fn misplaced() -> Vec<Row> {
    let cut = |item: &str, ms: Value| about("truncate", item, json!({"content_index": 0, "audio_end_ms": ms}));
    let content = |part: Value| json!({"type": "message", "role": "user", "content": [part]});
    let create = |item: Value| json!({"type": "conversation.item.create", "item": item});
    let mine = json!({"id": "mine", "type": "message", "role": "user", "content": []});
    vec![
        row(
            ManualTurns,
            json!({"type": "input_audio_buffer.commit"}),
            "input_audio_buffer_commit_empty",
            None,
            "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, but buffer only has 50.00ms of audio.",
        ),
        row(
            Nothing,
            json!({"type": "response.cancel"}),
            "response_cancel_not_active",
            None,
            "Cancellation failed: no active response found",
        ),
        row(
            Responding,
            json!({"type": "response.cancel", "response_id": "resp_x"}),
            "response_cancel_not_active",
            None,
            "Cancellation failed",
        ),
        row(
            Responding,
            json!({"type": "response.create"}),
            "conversation_already_has_active_response",
            None,
            "Conversation already has an active response in progress: resp_",
        ),
        row(Answered, cut("ANSWER", json!("TOO_LONG")), "invalid_value", "audio_end_ms", "Audio content of "),
        row(UserItem, cut("mine", json!(0)), None, None, "Only model output audio messages can be truncated"),
        row(
            Nothing,
            cut("x", json!(0)),
            "item_truncate_invalid_item_id",
            "item_id",
            "Error truncating item: the item with id 'x' does not exist.",
        ),
        row(
            Nothing,
            about("delete", "x", json!({})),
            "item_delete_invalid_item_id",
            "item_id",
            "Error deleting item: the item with id 'x' does not exist.",
        ),
        row(
            Nothing,
            about("retrieve", "x", json!({})),
            "item_retrieve_invalid_item_id",
            "item_id",
            "Error retrieving item: the item with id 'x'",
        ),
        row(
            UserItem,
            create(mine),
            "item_create_duplicate_item_id",
            "item.id",
            "Error creating item: an item with id 'mine' already exists.",
        ),
        row(
            Nothing,
            create(content(json!({"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}))),
            "invalid_value",
            "item.content[0].type",
            "Invalid value: 'input_image'. This server's language model takes no images",
        ),
        row(
            Nothing,
            json!({"type": "conversation.item.create", "previous_item_id": "x", "item": content(json!({"type": "input_text", "text": "?"}))}),
            "item_create_invalid_previous_item_id",
            "previous_item_id",
            "Error creating item: the item with id 'x' does not exist.",
        ),
        row(
            Nothing,
            json!({"type": "response.create", "response": {"input": [{"type": "item_reference", "id": "x"}]}}),
            "response_create_invalid_item_reference",
            "response.input",
            "Error referencing item: the item with id 'x'",
        ),
        row(
            Answered,
            update(json!({"instructions": "dropped", "audio": {"output": {"voice": "marin"}}})),
            "cannot_update_voice",
            "session.audio.output.voice",
            "Cannot update a conversation's voice if assistant audio is present.",
        ),
        row(
            Realtime,
            json!({"type": "session.update", "session": {"type": "transcription"}}),
            None,
            "session.type",
            "Passing a transcription session update event to a realtime session is not allowed.",
        ),
        row(
            Transcription,
            update(json!({})),
            None,
            "session.type",
            "Passing a realtime session update event to a transcription session is not allowed.",
        ),
        row(
            Transcription,
            json!({"type": "response.create"}),
            "invalid_event",
            "type",
            "A transcription session makes no responses",
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn what_is_malformed_is_told() {
    replay(malformed()).await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_now_is_told() {
    replay(misplaced()).await;
}

async fn replay(rows: Vec<Row>) {
    for row in rows {
        let told = format!("given {:?}: {}", row.given, row.sends);
        let (hub, mut socket, sends) = prepare(&row).await;
        let kind = if row.given == Transcription { "transcription" } else { "realtime" };
        let nothing = json!({"type": "session.update", "session": {"type": kind}});
        socket.send(nothing.clone()).await;
        let before = socket.until("session.updated").await.pop().expect("there")["session"].clone();
        let event_id = send(&mut socket, sends).await;

        let events = socket.until("error").await;
        let error = &events.last().expect("the error")["error"];
        assert_eq!(error["type"], "invalid_request_error", "{told}");
        assert_eq!((&error["code"], &error["param"]), (&json!(row.code), &json!(row.param)), "{told}: {error}");
        assert_eq!(error["event_id"], event_id, "{told}");
        assert!(error["message"].as_str().expect("text").starts_with(row.says), "{told}: {error}");

        socket.send(nothing).await;
        let after = socket.until("session.updated").await.pop().expect("it lives")["session"].clone();
        assert_eq!(before, after, "{told}: nothing has changed");
        hub.stop().await;
    }
}

/// Brings a session into the state that the row requires, and substitutes values known only then.
async fn prepare(row: &Row) -> (Hub, Socket, Value) {
    let mut llm = FakeLlm::says(["An answer."]);
    if row.given == Responding {
        llm = llm.delayed(std::time::Duration::from_secs(60));
    }
    let mut config = Config::default();
    config.server.drain_seconds = 0;
    let hub = Hub::start(engines(FakeStt::default(), llm, FakeTts::default()), config).await;
    let mut socket = hub.connect(if row.given == Transcription { "?intent=transcription" } else { "" }).await;
    let mut sends = row.sends.to_string();
    match row.given {
        Nothing | Transcription => {}
        Realtime => socket.send(update(json!({}))).await,
        ManualTurns => {
            socket.send(update(json!({"audio": {"input": {"turn_detection": null}}}))).await;
            socket.append(&loud(50)).await;
        }
        UserItem => {
            let item = json!({"id": "mine", "type": "message", "role": "user", "content": []});
            socket.send(json!({"type": "conversation.item.create", "item": item})).await;
            socket.until("conversation.item.done").await;
        }
        Responding => {
            socket.send(json!({"type": "response.create"})).await;
            socket.until("response.created").await;
        }
        Answered => {
            let events = socket.ask("Hello").await;
            let item = events.last().expect("done")["response"]["output"][0]["id"].as_str().expect("an id").to_owned();
            let too_long = n_audio_samples(&events) / 24 + 1;
            sends = sends.replace("ANSWER", &item).replace("\"TOO_LONG\"", &too_long.to_string());
        }
    }
    (hub, socket, serde_json::from_str(&sends).expect("JSON"))
}

/// Sends the row's event; returns the event_id that its error must echo.
async fn send(socket: &mut Socket, mut sends: Value) -> Value {
    if let Some(event) = sends.as_object_mut() {
        event.insert("event_id".into(), json!("my_event"));
        socket.send(sends).await;
        return json!("my_event");
    }
    let message = match sends.as_str().expect("text") {
        "binary" => Message::binary(vec![1, 2, 3]),
        text => Message::text(text.trim_start_matches("text:").to_owned()),
    };
    socket.send_raw(message).await;
    Value::Null
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_pass_where_the_setting_says_so() {
    let mut config = Config::default();
    config.session.refuse_unknown_fields = false;
    let hub = Hub::start(engines(FakeStt::default(), FakeLlm::default(), FakeTts::default()), config).await;
    let mut socket = hub.connect("").await;
    socket.send(update(json!({"x": 1, "instructions": "Be brief."}))).await;
    let updated = socket.next().await;
    assert_eq!(updated["session"]["instructions"], "Be brief.");
    assert_eq!(updated["session"].get("x"), None);
}
