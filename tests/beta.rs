//! A pre-GA (beta) client over a real socket, which selects its dialect by header or, as browsers must, by subprotocol.

use crate::hub::{Hub, Socket, hub, loud, quiet, types};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

async fn connect(hub: &Hub, query: &str, header: (&'static str, &'static str)) -> (Socket, String) {
    let mut request = format!("ws://{}/v1/realtime{query}", hub.address).into_client_request().expect("a request");
    request.headers_mut().insert(header.0, header.1.parse().expect("a header"));
    let (stream, response) = crate::hub::connect(request).await.expect("the upgrade is accepted");
    let protocol =
        response.headers().get("sec-websocket-protocol").map(|value| value.to_str().expect("ASCII").to_owned());
    (Socket { stream, frames: Vec::new() }, protocol.unwrap_or_default())
}

const HEADER: (&str, &str) = ("OpenAI-Beta", "realtime=v1");

#[tokio::test(start_paused = true)]
async fn a_turn_in_the_old_names() {
    let hub = hub("what time is it", "Ten.").await;
    let (mut socket, _) = connect(&hub, "?model=old", HEADER).await;
    let created = socket.next().await;
    assert_eq!(created["type"], "session.created");
    assert_eq!(
        (&created["session"]["model"], &created["session"]["input_audio_format"]),
        (&json!("old"), &json!("pcm16"))
    );
    let conversation = socket.next().await;
    assert_eq!(conversation["type"], "conversation.created");
    let session = json!({"modalities": ["text", "audio"], "temperature": 0.8, "max_response_output_tokens": 100,
        "turn_detection": {"type": "server_vad", "silence_duration_ms": 300}});
    socket.send(json!({"type": "session.update", "session": session})).await;
    let updated = socket.next().await;
    assert_eq!(updated["type"], "session.updated");
    assert_eq!(updated["session"]["max_response_output_tokens"], 100);
    assert_eq!(updated["session"]["turn_detection"]["silence_duration_ms"], 300);
    socket.append(&loud(1_000)).await;
    socket.append(&quiet(400)).await;
    let events = socket.until("rate_limits.updated").await;
    assert_eq!(
        types(&events),
        [
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "conversation.item.created",
            "conversation.item.input_audio_transcription.delta",
            "conversation.item.input_audio_transcription.completed",
            "response.created",
            "response.output_item.added",
            "conversation.item.created",
            "response.content_part.added",
            "response.audio_transcript.delta",
            "response.audio.delta",
            "response.audio.done",
            "response.audio_transcript.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.done",
            "rate_limits.updated",
        ]
    );
    let done = &events[events.len() - 2]["response"];
    assert_eq!(done["conversation_id"], conversation["conversation"]["id"]);
    assert_eq!(done["output"][0]["content"][0], json!({"type": "audio", "transcript": "Ten."}));
    assert_eq!(done["output_audio_format"], "pcm16");
}

#[tokio::test(start_paused = true)]
async fn a_browser_asks_by_subprotocol() {
    let hub = hub("", "Four.").await;
    let protocols = "realtime, openai-insecure-api-key.none, openai-beta.realtime-v1";
    let (mut socket, chosen) = connect(&hub, "", ("Sec-WebSocket-Protocol", protocols)).await;
    assert_eq!(chosen, "realtime");
    socket.until("conversation.created").await;
    let part = json!({"type": "text", "text": "I am an assistant."});
    let item = json!({"type": "message", "role": "assistant", "content": [part]});
    socket.send(json!({"type": "conversation.item.create", "item": item})).await;
    let created = socket.next().await;
    assert_eq!((&created["type"], &created["item"]["content"][0]), (&json!("conversation.item.created"), &part));
    socket.send(json!({"type": "response.create", "response": {"modalities": ["text"]}})).await;
    let events = socket.until("response.done").await;
    let text: Vec<&Value> = events.iter().filter(|e| e["type"] == "response.text.done").map(|e| &e["text"]).collect();
    assert_eq!(text, ["Four."]);
    assert_eq!(events.last().expect("done")["response"]["output"][0]["content"][0]["type"], "text");
    socket.send(json!({"type": "session.update", "event_id": "mine", "session": {"input_audio_format": "mp3"}})).await;
    let error = socket.until("error").await.pop().expect("there")["error"].clone();
    assert_eq!((&error["param"], &error["event_id"]), (&json!("session.input_audio_format"), &json!("mine")));
}

#[tokio::test(start_paused = true)]
async fn transcription_in_the_old_names() {
    let hub = hub("written down", "").await;
    let (mut socket, _) = connect(&hub, "?intent=transcription", HEADER).await;
    assert_eq!(socket.next().await["type"], "transcription_session.created");
    let session = json!({"input_audio_transcription": {"model": "whisper-1"}, "turn_detection": null});
    socket.send(json!({"type": "transcription_session.update", "session": session})).await;
    let updated = socket.next().await;
    assert_eq!(updated["type"], "transcription_session.updated");
    assert_eq!(updated["session"]["input_audio_transcription"], json!({"model": "whisper-1"}));
    socket.append(&loud(400)).await;
    socket.send(json!({"type": "input_audio_buffer.commit"})).await;
    let events = socket.until("conversation.item.input_audio_transcription.completed").await;
    assert_eq!(events.last().expect("there")["transcript"], "written down");
    assert!(!types(&events).contains(&"conversation.item.done"));
}
