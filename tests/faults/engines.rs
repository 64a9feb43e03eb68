//! Upstream servers that misbehave: of each stage in every way, of MCP, and servers that are away altogether.
//!
//! A stage that fails ends its response or its transcript with a clear event, never the session: each session goes on, with a
//! question that the server answers well.

use super::harness::{Canary, Fault, Party, append, fault, run, speech, typed};
use super::process::Settings;
use super::upstream::{Stage, Wrong};
use crate::hub::Socket;
use serde_json::{Value, json};

/// Resident memory that an upstream may cost the hub, in MiB: its answer's bounds, and buffers of the allocator.
const MEMORY_MIB: u64 = 64;

/// The language model and the voice: the response fails, is incomplete, or is spoken as far as it came.
const LLM: [(Wrong, &[&str]); 24] = [
    (Wrong::Hang, &["failed"]),
    (Wrong::Reset, &["failed"]),
    (Wrong::Close, &["failed"]),
    (Wrong::Garbage, &["failed"]),
    (Wrong::HeadTrickle, &["failed"]),
    (Wrong::HeadEndless, &["failed"]),
    (Wrong::ServerError, &["failed"]),
    (Wrong::Overloaded, &["failed"]),
    (Wrong::Unauthorized, &["failed"]),
    (Wrong::NotFound, &["failed"]),
    (Wrong::NoContent, &["failed"]),
    (Wrong::Redirect, &["failed"]),
    (Wrong::Html, &["failed"]),
    (Wrong::Nonsense, &["failed"]),
    (Wrong::OtherTypes, &["failed"]),
    (Wrong::Deep, &["failed"]),
    (Wrong::Compressed, &["failed"]),
    (Wrong::Trickle, &["failed"]),
    (Wrong::Stall, &["failed", "incomplete"]),
    (Wrong::Broken, &["failed", "incomplete"]),
    (Wrong::BadChunks, &["failed"]),
    (Wrong::Endless, &["incomplete"]),
    (Wrong::ErrorEvent, &["failed", "incomplete"]),
    (Wrong::ManyCalls, &["completed", "incomplete"]),
];

const TTS: [(Wrong, &[&str]); 20] = [
    (Wrong::Hang, &["failed"]),
    (Wrong::Reset, &["failed"]),
    (Wrong::Garbage, &["failed"]),
    (Wrong::HeadTrickle, &["failed"]),
    (Wrong::ServerError, &["failed"]),
    (Wrong::Unauthorized, &["failed"]),
    (Wrong::Redirect, &["failed"]),
    (Wrong::Html, &["failed"]),
    (Wrong::Empty, &["failed", "completed"]),
    (Wrong::Compressed, &["failed"]),
    (Wrong::Trickle, &["failed"]),
    (Wrong::Stall, &["failed"]),
    (Wrong::Broken, &["failed"]),
    (Wrong::Truncated, &["failed"]),
    (Wrong::Endless, &["failed"]),
    (Wrong::Huge, &["failed"]),
    (Wrong::OddBytes, &["completed", "failed"]),
    (Wrong::Silence, &["completed"]),
    (Wrong::OtherRate, &["completed"]),
    (Wrong::NotNumbers, &["completed", "failed"]),
];

const STT: [Wrong; 19] = [
    Wrong::Hang,
    Wrong::Reset,
    Wrong::Close,
    Wrong::Garbage,
    Wrong::HeadTrickle,
    Wrong::ServerError,
    Wrong::Overloaded,
    Wrong::Unauthorized,
    Wrong::NoContent,
    Wrong::Redirect,
    Wrong::Html,
    Wrong::Empty,
    Wrong::OtherTypes,
    Wrong::Deep,
    Wrong::NotANumber,
    Wrong::NotText,
    Wrong::Trickle,
    Wrong::Truncated,
    Wrong::Endless,
];

/// The wrong answers that are part of the short cut, of each stage.
const SHORT: [(Stage, Wrong); 3] =
    [(Stage::Stt, Wrong::Truncated), (Stage::Llm, Wrong::Hang), (Stage::Tts, Wrong::Endless)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstreams_that_misbehave_cost_one_answer_each() {
    let mut faults = Vec::new();
    let mut add = |stage, wrong, fault: Fault| {
        faults.push(if SHORT.contains(&(stage, wrong)) { fault.short() } else { fault });
    };
    for wrong in STT {
        let name = format!("recognizer: {wrong:?}");
        let sees = "the transcription fails with an event, and the session goes on";
        add(Stage::Stt, wrong, fault(name, sees, move |party| misheard(party, wrong)));
    }
    for (stage, what, table) in [(Stage::Llm, "model", &LLM[..]), (Stage::Tts, "voice", &TTS[..])] {
        for &(wrong, statuses) in table {
            let name = format!("{what}: {wrong:?}");
            let sees = "the response ends with a status and an error, and the session goes on";
            add(stage, wrong, fault(name, sees, move |party| badly_answered(party, stage, wrong, statuses)));
        }
    }
    for wrong in
        [Wrong::Hang, Wrong::Reset, Wrong::Garbage, Wrong::Endless, Wrong::Html, Wrong::Trickle, Wrong::Redirect]
    {
        let sees = "the list of tools fails with an event, and the session goes on";
        faults.push(fault(format!("MCP server: {wrong:?}"), sees, move |party| without_tools(party, wrong)));
    }
    // So many failures in a row are a server that is away: the canary does not need it.
    let many = fault("model: forty hanging answers", "each fails", forty_hang);
    faults.push(many.beside(Canary::Transcript).alone(Settings::default()));
    faults.push(fault("voice: the client leaves in the middle", "nothing: it has left", leaves_while_spoken_to));
    faults.push(fault("model: cancelled while it hangs", "response.done, cancelled", cancelled_while_it_hangs));
    // The canary has answers of these stages in its history, which the area's hub allows.
    let settings =
        Settings::default().with("MCP__ALLOWED_SERVERS", "[\"OTHER/\"]").with("MCP__LIST_TIMEOUT_MS", "2000");
    run("engines", settings, MEMORY_MIB, faults).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstreams_that_are_away_cost_their_stage_alone() {
    let away = |key| Settings::default().with(key, "http://127.0.0.1:1/v1");
    let faults =
        vec![
            fault("recognizer: refuses connections", "the transcription fails", |party| async move {
                unheard(&party).await
            })
            .beside(Canary::Typed)
            .alone(away("STT__BASE_URL")),
            fault("model: refuses connections", "the response fails", |party| async move { unanswered(&party).await })
                .beside(Canary::Transcript)
                .alone(away("LLM__BASE_URL")),
            fault("voice: refuses connections", "the response fails", |party| async move { unanswered(&party).await })
                .beside(Canary::Text)
                .alone(away("TTS__BASE_URL"))
                .short(),
            fault("voice: speaks no TLS", "the response fails", |party| async move { unanswered(&party).await })
                .beside(Canary::Text)
                .alone(Settings::default().with("TTS__BASE_URL", "https://VOICE/v1")),
        ];
    run("engines-away", Settings::default(), MEMORY_MIB, faults).await;
}

/// A clean question, apart from the conversation, whose history holds the marker.
async fn goes_on(socket: &mut Socket) {
    let input = json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And now?"}]}]);
    let response = json!({"conversation": "none", "input": input, "output_modalities": ["text"]});
    socket.send(json!({"type": "response.create", "response": response})).await;
    let done = socket.until("response.done").await.pop().expect("an end");
    assert_eq!(done["response"]["status"], "completed", "the session does not go on: {done}");
}

/// Whether an event says what is wrong without the upstream's own words.
fn is_clear(event: &Value) {
    let text = event.to_string();
    for hidden in ["secret", "127.0.0.1", "short and stout"] {
        assert!(!text.contains(hidden), "{hidden} in {text}");
    }
}

/// A session of a client elsewhere, who comes through a proxy: one on the hub's machine is the operator, who reads causes.
async fn connect(party: &Party) -> Socket {
    let mut socket = party.open("", &[("x-forwarded-for", "192.0.2.1")]).await.expect("the upgrade is accepted");
    assert_eq!(socket.next().await["type"], "session.created");
    socket
}

async fn misheard(party: Party, wrong: Wrong) {
    let mut socket = connect(&party).await;
    let transcription = json!({"model": "whisper-1", "prompt": Stage::Stt.marker(wrong)});
    let session = json!({"type": "realtime", "audio": {"input": {"transcription": transcription}}});
    socket.send(json!({"type": "session.update", "session": session})).await;
    socket.until("session.updated").await;
    socket.send(append(speech())).await;
    let ended = socket.until("conversation.item.input_audio_transcription.failed");
    let (failed, ()) = tokio::join!(ended, party.beside());
    is_clear(failed.last().expect("failed"));
    goes_on(&mut socket).await;
}

async fn badly_answered(party: Party, stage: Stage, wrong: Wrong, statuses: &'static [&'static str]) {
    let mut socket = connect(&party).await;
    socket.send(typed(&format!("Please {}.", stage.marker(wrong)))).await;
    socket.send(json!({"type": "response.create"})).await;
    let (events, ()) = tokio::join!(socket.until("response.done"), party.beside());
    let done = events.last().expect("an end");
    let status = done["response"]["status"].as_str().unwrap_or_default();
    assert!(statuses.contains(&status), "{status} instead of {statuses:?}: {done}");
    if status == "failed" {
        assert!(done["response"]["status_details"]["error"].is_object(), "no reason: {done}");
    }
    events.iter().for_each(is_clear);
    goes_on(&mut socket).await;
}

async fn without_tools(party: Party, wrong: Wrong) {
    let mut socket = connect(&party).await;
    let url = party.hub.upstreams.other.url(&format!("/{}", Stage::Path.marker(wrong)));
    let tool = json!({"type": "mcp", "server_label": "bad", "server_url": url, "require_approval": "never"});
    socket.send(json!({"type": "session.update", "session": {"type": "realtime", "tools": [tool]}})).await;
    let (events, ()) = tokio::join!(socket.until("mcp_list_tools.failed"), party.beside());
    is_clear(events.last().expect("failed"));
    goes_on(&mut socket).await;
}

async fn forty_hang(party: Party) {
    let mut sockets = Vec::new();
    for _ in 0..40 {
        let mut socket = connect(&party).await;
        socket.send(typed(&format!("Please {}.", Stage::Llm.marker(Wrong::Hang)))).await;
        socket.send(json!({"type": "response.create"})).await;
        sockets.push(socket);
    }
    party.beside().await;
    for mut socket in sockets {
        let done = socket.until("response.done").await.pop().expect("an end");
        assert_eq!(done["response"]["status"], "failed", "{done}");
    }
}

async fn leaves_while_spoken_to(party: Party) {
    for _ in 0..10 {
        let mut socket = connect(&party).await;
        socket.send(typed("Tell me a long story")).await;
        socket.send(json!({"type": "response.create"})).await;
        socket.until("response.output_audio.delta").await;
    }
    party.beside().await;
}

async fn cancelled_while_it_hangs(party: Party) {
    let mut socket = connect(&party).await;
    socket.send(typed(&format!("Please {}.", Stage::Llm.marker(Wrong::Hang)))).await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until("response.created").await;
    socket.send(json!({"type": "response.cancel"})).await;
    let done = socket.until("response.done").await.pop().expect("an end");
    assert_eq!(done["response"]["status"], "cancelled", "{done}");
    party.beside().await;
    goes_on(&mut socket).await;
}

async fn unheard(party: &Party) {
    let mut socket = connect(party).await;
    socket.send(append(speech())).await;
    let (failed, ()) = tokio::join!(socket.until("conversation.item.input_audio_transcription.failed"), party.beside());
    is_clear(failed.last().expect("failed"));
    goes_on(&mut socket).await;
}

async fn unanswered(party: &Party) {
    let mut socket = connect(party).await;
    socket.send(typed("Are you there?")).await;
    socket.send(json!({"type": "response.create"})).await;
    let (events, ()) = tokio::join!(socket.until("response.done"), party.beside());
    let done = events.last().expect("an end");
    assert_eq!(done["response"]["status"], "failed", "{done}");
    events.iter().for_each(is_clear);
}
