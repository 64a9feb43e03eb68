//! A turn model over a real socket: its prediction at a pause changes the wait of that pause; without one nothing
//! changes.

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
