//! Noise during a reply, over a real socket: it is not detected as speech, and the reply plays to its end.

use crate::framed::speak;
use crate::hub::{Hub, engines, types};
use antiphon::config::Config;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::vad::Vad;
use antiphon_engines::vad::Earshot;
use futures_util::StreamExt;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

/// Longer than the reply's duration, so that a test that hangs fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// White noise at -20 dBFS and 24 kHz, as loud as raised speech.
fn hiss(ms: usize, seed: u32) -> Vec<i16> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 16) as i32 * 11_000 / 65_536 - 5_500) as i16
    };
    (0..ms * 24).map(|_| next()).collect()
}

/// The detectors with and without Silero on disk.
fn detectors() -> [Arc<dyn Vad>; 2] {
    let silero = antiphon::assembly::vad(&Config::default()).expect("a detector");
    assert_eq!(silero.name(), "silero", "`make test-deps` fetches it");
    [Arc::new(Earshot), silero]
}

#[tokio::test]
async fn steady_noise_neither_begins_a_turn_nor_holds_or_cuts_a_reply() {
    for vad in detectors() {
        let name = vad.name().to_owned();
        let engines =
            engines(FakeStt::hears(["nobody"]), FakeLlm::says(["A long answer that sounds."]), FakeTts::default());
        let hub = Hub::start(Engines { vad, ..engines }, Config::default()).await;
        let mut socket = hub.connect("?audio=pcm16").await;
        let mut sequence = 0;
        // The noise rises within two seconds, as when a window is opened; only a sudden onset may count as a voice.
        for (i, gain) in (1..=20).enumerate() {
            let louder: Vec<i16> = hiss(100, i as u32).iter().map(|x| (i32::from(*x) * gain / 20) as i16).collect();
            speak(&mut socket, &mut sequence, &louder).await;
        }
        speak(&mut socket, &mut sequence, &hiss(3_000, 1)).await;
        let content = json!([{"type": "input_text", "text": "tell me something"}]);
        let item = json!({"type": "message", "role": "user", "content": content});
        socket.send(json!({"type": "conversation.item.create", "item": item})).await;
        socket.send(json!({"type": "response.create"})).await;
        let mut events = socket.until("response.created").await;
        // Ensures that the noise falls into the reply.
        while socket.frames.is_empty() {
            events.push(socket.next().await);
        }
        for seed in 0..10 {
            speak(&mut socket, &mut sequence, &hiss(400, 100 + seed)).await;
        }
        // 26 characters of 50 ms each, in frames of 20 ms.
        while socket.frames.len() < 65 || !types(&events).contains(&"response.done") {
            let message = timeout(TEST_TIMEOUT, socket.stream.next()).await.expect("the reply goes on");
            match message.expect("the connection stands").expect("a whole message") {
                Message::Binary(frame) => socket.frames.push(frame),
                Message::Text(text) => events.push(serde_json::from_str(&text).expect("JSON")),
                _ => {}
            }
        }
        let kinds = types(&events);
        let unwanted = ["input_audio_buffer.speech_started", "output_audio_buffer.held", "output_audio_buffer.cleared"];
        assert!(!kinds.iter().any(|kind| unwanted.contains(kind)), "{name}: {kinds:?}");
        let done = events.iter().find(|event| event["type"] == "response.done").expect("it ends");
        assert_eq!(done["response"]["status"], "completed", "{name}");
        hub.stop().await;
    }
}
