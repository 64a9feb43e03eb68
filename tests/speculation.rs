//! Speculative responses over a real socket: released immediately when the turn ends, unobservable when it continues.

use crate::hub::{Hub, Socket, engines, loud, quiet, types};
use antiphon::config::Config;
use antiphon_engine_api::fakes::llm::{FakeLlm, words};
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::llm::LlmDelta;
use antiphon_types::chat::Finish;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{interval, timeout};

const DEADLINE: Duration = Duration::from_secs(10);

/// Speaks for half a second, pauses, and waits until the model has received `n` requests.
async fn pause(socket: &mut Socket, llm: &FakeLlm, n: usize) {
    socket.append(&loud(500)).await;
    socket.append(&quiet(200)).await;
    let asked = async {
        let mut look = interval(Duration::from_millis(1));
        while llm.requests().len() < n {
            look.tick().await;
        }
    };
    timeout(DEADLINE, asked).await.expect("the model is asked at the pause");
}

/// All events the client has received so far.
async fn told(socket: &mut Socket) -> Vec<Value> {
    socket.send(json!({"type": "conversation.item.retrieve", "item_id": "nowhere"})).await;
    socket.until("error").await
}

async fn hub(llm: &FakeLlm, config: Config) -> (Hub, Socket) {
    let stt = FakeStt::hears(["what time is it"]);
    let hub = Hub::start(engines(stt, llm.clone(), FakeTts::default()), config).await;
    let socket = hub.connect("").await;
    (hub, socket)
}

#[tokio::test(start_paused = true)]
async fn a_speculative_response_stands_on_the_turns_critical_path() {
    let llm = FakeLlm::says(["Noon."]);
    let (hub, mut socket) = hub(&llm, Config::default()).await;
    // Long enough that the end of speech lies within the session.
    socket.append(&quiet(20)).await;
    tokio::time::sleep(Duration::from_millis(800)).await;
    pause(&mut socket, &llm, 1).await;
    socket.append(&quiet(600)).await;
    socket.until("response.done").await;
    let turn = crate::turns::turn(&hub, |turn| turn["settled"] == true).await;
    let stages = crate::turns::check_parts(&turn);
    assert_eq!(stages.first().map(String::as_str), Some("endpointing"), "{turn}");
    assert_eq!((&turn["speculations"][0]["outcome"], &turn["wasted_ms"]), (&json!("confirmed"), &json!(0.0)), "{turn}");
    let ms = |name: &str| crate::turns::ms(&turn["marks"][name]);
    assert!(ms("response_started") < ms("end_confirmed") && ms("llm_first_token") < ms("end_confirmed"), "{turn}");
    assert!(ms("end_confirmed") <= ms("first_audio_sent"), "{turn}");
}

fn text_of(events: &[Value]) -> String {
    let deltas = events.iter().filter(|event| event["type"] == "response.output_audio_transcript.delta");
    deltas.map(|event| event["delta"].as_str().expect("text")).collect()
}

#[tokio::test(start_paused = true)]
async fn what_was_begun_at_a_pause_is_unseen_until_the_turn_is_over_and_then_it_is_the_answer() {
    let llm = FakeLlm::says(["Noon."]);
    let (hub, mut socket) = hub(&llm, Config::default()).await;
    pause(&mut socket, &llm, 1).await;
    assert_eq!(types(&told(&mut socket).await), ["input_audio_buffer.speech_started", "error"]);
    socket.append(&quiet(600)).await;
    let events = socket.until("response.done").await;
    assert_eq!(text_of(&events), "Noon.");
    assert_eq!(types(&events).iter().filter(|kind| **kind == "response.created").count(), 1);
    assert_eq!(llm.requests().len(), 1, "the model was asked once");
    assert_eq!(hub.metric("antiphon_speculative_responses_total{outcome=\"confirmed\"}"), 1.0);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_speaker_who_goes_on_never_learns_of_the_answer_that_was_begun() {
    let llm = FakeLlm::says(["Too early."]);
    let call = LlmDelta::ToolCall { index: 0, call_id: "c".into(), name: "f".into(), arguments: "{}".into() };
    llm.then(vec![Ok(call), Ok(LlmDelta::Done { finish: Finish::ToolCalls, usage: None })]);
    llm.then(words("Noon."));
    let (hub, mut socket) = hub(&llm, Config::default()).await;
    for n in 1..=3 {
        pause(&mut socket, &llm, n).await;
    }
    assert_eq!(types(&told(&mut socket).await), ["input_audio_buffer.speech_started", "error"]);
    socket.append(&quiet(600)).await;
    let events = socket.until("response.done").await;
    assert_eq!(text_of(&events), "Noon.");
    let kinds = types(&events);
    assert!(!kinds.iter().any(|kind| kind.contains("function_call")), "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "conversation.item.added").count(), 2, "{kinds:?}");
    let n_messages = llm.requests().last().expect("asked").messages.len();
    assert_eq!(n_messages, llm.requests()[0].messages.len(), "nothing of it is in the history");
    assert_eq!(hub.metric("antiphon_speculative_responses_total{outcome=\"resumed\"}"), 2.0);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_speculative_response_that_is_dropped_costs_the_tokens_it_read() {
    let llm = FakeLlm::says(["Too early.", "Noon."]);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (hub, mut socket) = hub(&llm, Config::default()).await;
    let tokens = async || {
        let usage = reqwest::get(format!("http://{}/api/usage", hub.address)).await.expect("an answer");
        let usage: Value = usage.json().await.expect("JSON");
        usage["data"][0]["total"]["tokens_in"].as_u64().unwrap_or(0)
    };
    pause(&mut socket, &llm, 1).await;
    assert_eq!(tokens().await, 0, "it may still be released");
    pause(&mut socket, &llm, 2).await;
    let dropped = tokens().await;
    assert!(dropped > 0);
    socket.append(&quiet(600)).await;
    let events = socket.until("response.done").await;
    let read = events.last().expect("done")["response"]["usage"]["input_token_details"]["text_tokens"].as_u64();
    assert_eq!(tokens().await, dropped + read.expect("a number"), "what is released is counted once");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_response_is_speculative_where_speculation_is_off() {
    let llm = FakeLlm::says(["Noon."]);
    let mut config = Config::default();
    config.speculation.after_ms = 0;
    let (hub, mut socket) = hub(&llm, config).await;
    socket.append(&loud(500)).await;
    socket.append(&quiet(400)).await;
    told(&mut socket).await;
    assert_eq!(llm.requests().len(), 0);
    socket.append(&quiet(400)).await;
    assert_eq!(text_of(&socket.until("response.done").await), "Noon.");
    hub.stop().await;
}
