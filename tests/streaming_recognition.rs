//! Conversations whose recognizer streams: the tiny transducer with random weights, and another hub.

use crate::hub::{Hub, Socket, engines, loud, quiet, types};
use crate::semantic_vad::set;
use antiphon::config::Config;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::stt::Stt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The tiny model's folder; `antiphon_export.synthetic.transducer` writes it.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/transducer/tiny");

/// A hub with the tiny model, and the model.
async fn hub(llm: FakeLlm) -> (Hub, Arc<dyn Stt>) {
    let mut config = Config::default();
    config.stt.engine = "transducer".into();
    config.stt.model = MODEL.into();
    let made = tokio::task::spawn_blocking({
        let config = config.clone();
        move || antiphon::assembly::stt(&config)
    });
    let stt = made.await.expect("no panic").expect("the fixture; ONNX Runtime comes with `make onnxruntime`");
    let fakes = engines(FakeStt::default(), llm, FakeTts::default());
    (Hub::start(Engines { stt: stt.clone(), ..fakes }, config).await, stt)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_gets_its_words_from_the_streaming_recognizer() {
    let llm = FakeLlm::says(["Yes.", "No."]);
    let (hub, stt) = hub(llm.clone()).await;
    let mut socket = hub.connect("").await;
    let mut transcripts = Vec::new();
    for _ in 0..2 {
        socket.append(&loud(1_000)).await;
        socket.append(&quiet(600)).await;
        let events = socket.until("response.done").await;
        let completed = "conversation.item.input_audio_transcription.completed";
        let done = events.iter().find(|event| event["type"] == completed);
        let done = done.unwrap_or_else(|| panic!("no transcript: {:?}", types(&events)));
        transcripts.push(done["transcript"].as_str().expect("text").to_owned());
        let deltas = events.iter().filter(|event| event["type"] == "conversation.item.input_audio_transcription.delta");
        let shown: String = deltas.map(|event| event["delta"].as_str().expect("text")).collect();
        assert_eq!(shown, transcripts[transcripts.len() - 1], "what was shown was not taken back");
    }
    assert!(!transcripts[0].is_empty());
    assert_eq!(llm.requests().len(), 2);
    let freed = async {
        while stt.in_service() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), freed).await.expect("every slot is free again");
    hub.stop().await;
}

/// The events up to the first sound of the answer, with the timeline of the turn. A turn without words has none, which is said
/// at once.
async fn answered(socket: &mut Socket) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        let event = socket.next().await;
        let kind = event["type"].as_str().expect("a type");
        let is_transcript = kind == "conversation.item.input_audio_transcription.completed";
        assert!(!is_transcript || event["transcript"] != "", "nothing was heard: {event}");
        assert_ne!(kind, "conversation.item.input_audio_transcription.failed", "{event}");
        assert!(kind != "response.done" || event["response"]["status"] == "completed", "{event}");
        let is_last = kind == "antiphon.timeline";
        events.push(event);
        if is_last {
            return events;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn captions_and_semantic_vad_have_the_words_before_the_turn_is_over() {
    let (hub, _) = hub(FakeLlm::says(["Yes."])).await;
    let mut socket = hub.connect("?audio=pcm16").await;
    // The longest wait, since the engine's thread does not know of the samples' time.
    set(&mut socket, json!({"type": "semantic_vad", "eagerness": "low"})).await;
    socket.append(&loud(1_000)).await;
    let mut shown = String::new();
    let mut draft = String::new();
    let mut n_pieces = 0;
    let events = 'turn: loop {
        n_pieces += 1;
        assert!(n_pieces < 400, "the turn does not end");
        socket.append(&quiet(20)).await;
        // A round trip per piece, so that the pieces are not processed together. The error stops no response.
        socket.send(json!({"type": "conversation.item.retrieve", "item_id": "nowhere"})).await;
        loop {
            let event = socket.next().await;
            match event["type"].as_str().expect("a type") {
                "conversation.item.input_audio_transcription.delta" => {
                    shown.push_str(event["delta"].as_str().expect("text"));
                }
                "antiphon.transcription.draft" => draft = event["transcript"].as_str().expect("text").to_owned(),
                "input_audio_buffer.speech_stopped" => break 'turn answered(&mut socket).await,
                "error" => break,
                _ => {}
            }
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    };
    let completed = "conversation.item.input_audio_transcription.completed";
    let done = events.iter().find(|event| event["type"] == completed);
    let transcript = done.unwrap_or_else(|| panic!("no transcript: {:?}", types(&events)))["transcript"].clone();
    let transcript = transcript.as_str().expect("text");
    assert!(transcript.starts_with(&shown), "{shown:?} became {transcript:?}");
    assert!(!shown.is_empty() || !draft.is_empty(), "no captions before the end of {transcript:?}");
    let why = &events[events.len() - 1]["endpointing"];
    assert_ne!(why["wording"], "unknown", "it decided by all words: {why}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_hub_recognizes_what_is_spoken_here() {
    let far = FakeStt::hears(["the quick brown fox", "jumps"]);
    let far = Hub::start(engines(far, FakeLlm::default(), FakeTts::default()), Config::default()).await;
    let mut config = Config::default();
    config.stt.engine = "realtime".into();
    config.stt.base_url = format!("http://{}/v1", far.address);
    config.stt.api_key_env.clear();
    let stt = antiphon::assembly::stt(&config).expect("an address of a server");
    let llm = FakeLlm::says(["Yes.", "No."]);
    let fakes = engines(FakeStt::default(), llm.clone(), FakeTts::default());
    let hub = Hub::start(Engines { stt, ..fakes }, config).await;
    let mut socket = hub.connect("").await;
    for transcript in ["the quick brown fox", "jumps"] {
        socket.append(&loud(1_000)).await;
        socket.append(&quiet(600)).await;
        let events = socket.until("response.done").await;
        let completed = "conversation.item.input_audio_transcription.completed";
        let done = events.iter().find(|event| event["type"] == completed);
        let done = done.unwrap_or_else(|| panic!("no transcript: {:?}", types(&events)));
        assert_eq!(done["transcript"], transcript);
    }
    assert_eq!(llm.requests().len(), 2);
    hub.stop().await;
    far.stop().await;
}
