//! A turn model over a real socket: its prediction at a pause changes the wait of that pause; without one nothing
//! changes.

use crate::framed::speak;
use crate::hub::{Hub, engines, loud, quiet};
use crate::semantic_vad::{set, silence_waited};
use antiphon::config::Config;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::fakes::turn::FakeTurnModel;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

async fn hub(heard: &str, model: &FakeTurnModel) -> Hub {
    let stt = FakeStt::hears([heard]).with_partials();
    let engines = engines(stt, FakeLlm::says(["Fine."]), FakeTts::default());
    Hub::start(Engines { turn: Some(Arc::new(model.clone())), ..engines }, Config::default()).await
}

/// The silence waited, and the reported decision.
async fn waited(heard: &str, model: &FakeTurnModel) -> (usize, Value) {
    let hub = hub(heard, model).await;
    let mut socket = hub.connect("?audio=pcm16").await;
    set(&mut socket, json!({"type": "semantic_vad", "eagerness": "medium"})).await;
    let waited = silence_waited(&mut socket).await;
    let timeline = socket.until("antiphon.timeline").await.pop().expect("the event");
    (waited, timeline["endpointing"].clone())
}

#[tokio::test(start_paused = true)]
async fn its_answer_tips_the_scales() {
    let over = FakeTurnModel::says(0.98);
    let (soon, why) = waited("what is twelve times seven", &over).await;
    let wait_of = |why: &Value| why["wait_ms"].as_f64().expect("a number");
    let soon = (soon, wait_of(&why));
    assert!((why["model_probability"].as_f64().expect("a number") - 0.98).abs() < 1e-6, "{why}");
    let (late, why) = waited("what is twelve times seven", &FakeTurnModel::says(0.02)).await;
    assert!(late > soon.0 && wait_of(&why) > 1.5 * soon.1, "{late} ms: {why}; {soon:?}");
    assert!((why["model_probability"].as_f64().expect("a number") - 0.02).abs() < 1e-6, "{why}");
    // The fixture speaks for 1.2 s; the model's input also includes 300 ms before it and the pause so far.
    let heard = over.heard();
    assert!(heard.iter().all(|n| (16_000..=32_000).contains(n)) && !heard.is_empty(), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_costs_the_hint_and_nothing_else() {
    let (waited, why) = waited("what is twelve times seven", &FakeTurnModel::fails()).await;
    assert!((200..900).contains(&waited), "{waited} ms");
    assert_eq!(why["model_probability"], Value::Null, "{why}");
}

/// Sends 1.6 s of sound without words during a reply; returns the type of the event that says what became of the reply.
async fn spoken_over(model: &FakeTurnModel) -> String {
    let stt = FakeStt::hears(["tell me", ""]);
    let engines = engines(
        stt,
        FakeLlm::says(["A long answer to what was asked, with many words, which takes some seconds to be said."]),
        FakeTts::default(),
    );
    let hub = Hub::start(Engines { turn: Some(Arc::new(model.clone())), ..engines }, Config::default()).await;
    let mut socket = hub.connect("?audio=pcm16").await;
    set(&mut socket, json!({"type": "server_vad", "ignore_backchannels": true})).await;
    let mut sequence = 0;
    speak(&mut socket, &mut sequence, &loud(600)).await;
    speak(&mut socket, &mut sequence, &quiet(800)).await;
    socket.until_frames(5).await;
    let asked_before = model.heard().len();
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    let samples = [loud(1_600), quiet(1_000)].concat();
    for frame in samples.chunks(480) {
        tick.tick().await;
        speak(&mut socket, &mut sequence, frame).await;
    }
    let asked = &model.heard()[asked_before..];
    assert!(!asked.is_empty(), "the model is asked about speech over the reply");
    // 300 ms before the onset belong to the utterance.
    assert!(asked.iter().all(|n| (1_600..=32_000).contains(n)), "{asked:?}");
    loop {
        let event = socket.next().await;
        let kind = event["type"].as_str().expect("a type");
        if ["antiphon.backchannel", "output_audio_buffer.cleared"].contains(&kind) {
            return kind.to_owned();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn its_answer_lets_a_reply_go_on_or_stops_it() {
    let judges = |claim| FakeTurnModel::says(0.5).claiming(claim);
    assert_eq!(spoken_over(&judges(0.05)).await, "antiphon.backchannel");
    assert_eq!(spoken_over(&judges(0.95)).await, "output_audio_buffer.cleared");
    assert_eq!(spoken_over(&judges(0.5)).await, "output_audio_buffer.cleared", "its length decides");
}

#[tokio::test(start_paused = true)]
async fn a_fixed_wait_asks_no_model() {
    let model = FakeTurnModel::says(0.5);
    let hub = hub("yes", &model).await;
    let mut socket = hub.connect("").await;
    socket.append(&loud(600)).await;
    socket.append(&quiet(1_000)).await;
    socket.until("input_audio_buffer.speech_stopped").await;
    assert!(model.heard().is_empty());
}
