//! Engines that run on workers, as a client and an operator see them: the turn record, its trace's parts, the timeline event,
//! and the errors when no worker can be reached. The engines are fakes that say where they run.

use crate::framed::speak;
use crate::hub::{Hub, engines, loud, quiet};
use crate::turns::{check_parts, ms, turn};
use antiphon::config::Config;
use antiphon_audio::wav;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_types::{Pcm, SampleRate};
use serde_json::{Value, json};
use std::time::Duration;

const NETWORK: Duration = Duration::from_millis(4);

fn no_speculation() -> Config {
    let mut config = Config::default();
    config.speculation.after_ms = 0;
    config
}

#[tokio::test(start_paused = true)]
async fn a_turn_says_which_workers_served_it_and_what_the_network_took() {
    let stt = FakeStt::hears(["what time is it"]).delayed(Duration::from_millis(20)).served_by("north", NETWORK);
    let tts = FakeTts::default().delayed(Duration::from_millis(20)).served_by("south", NETWORK).retried(1);
    let hub = Hub::start(engines(stt, FakeLlm::says(["Ten past ten."]), tts), no_speculation()).await;
    let mut socket = hub.connect("?audio=pcm16").await;
    let mut sequence = 0;
    speak(&mut socket, &mut sequence, &loud(500)).await;
    speak(&mut socket, &mut sequence, &quiet(600)).await;
    let events = socket.until("antiphon.timeline").await;
    let timeline = events.last().expect("the timeline");
    let turn = turn(&hub, |turn| turn["settled"] == true).await;
    for told in [timeline, &turn] {
        assert_eq!(told["stt_worker"], "north", "{told}");
        assert_eq!((&told["tts_worker"], &told["retried"]), (&json!("south"), &json!(1)), "{told}");
    }
    assert_eq!((&timeline["stt_network_ms"], &timeline["tts_network_ms"]), (&json!(4.0), &json!(4.0)));
    let stages = check_parts(&turn);
    let parts = turn["parts"].as_array().expect("parts");
    let networks: Vec<&Value> = parts.iter().filter(|part| part["stage"] == "network").collect();
    assert_eq!(networks.len(), 2, "{stages:?}");
    for (network, mark) in networks.iter().zip(["stt_final", "tts_first_audio"]) {
        assert_eq!(network["to_ms"], turn["marks"][mark], "{turn}");
        assert!((ms(&network["to_ms"]) - ms(&network["from_ms"]) - 4.0).abs() < 0.01, "{turn}");
    }
    for (stage, behind) in stages.iter().zip(&stages[1..]) {
        assert_eq!(behind == "network", stage == "stt" || stage == "tts", "{stages:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recognizer_that_cannot_be_reached_has_a_code_of_its_own() {
    let stt = FakeStt::default().away();
    let hub = Hub::start(engines(stt, FakeLlm::default(), FakeTts::default()), no_speculation()).await;
    let mut socket = hub.connect("").await;
    socket.append(&loud(500)).await;
    socket.append(&quiet(600)).await;
    let events = socket.until("conversation.item.input_audio_transcription.failed").await;
    let error = &events.last().expect("the failure")["error"];
    assert_eq!((&error["code"], &error["type"]), (&json!("engine_unavailable"), &json!("server_error")), "{error}");
    let message = "The speech recognizer is not available at the moment: no worker or server can be reached. Try again soon. \
         Cause: no worker serves stt.";
    assert_eq!(error["message"], message);
    hub.until(r#"antiphon_errors_total{code="engine_unavailable"}"#, 1.0).await;
    // A response that would have answered it says the same.
    socket.send(json!({"type": "response.create"})).await;
    let done = socket.until("response.done").await;
    let details = &done.last().expect("done")["response"]["status_details"];
    assert_eq!(details["error"]["code"], "engine_unavailable", "{details}");
}

#[tokio::test(start_paused = true)]
async fn a_voice_that_cannot_be_reached_has_a_code_of_its_own() {
    let tts = FakeTts::default().away();
    let hub = Hub::start(engines(FakeStt::default(), FakeLlm::says(["Hi."]), tts), Config::default()).await;
    let mut socket = hub.connect("").await;
    let events = socket.ask("hello").await;
    let response = &events.last().expect("done")["response"];
    assert_eq!(response["status"], "failed");
    assert_eq!(response["status_details"]["error"]["code"], "engine_unavailable", "{response}");
}

#[tokio::test(start_paused = true)]
async fn the_speech_api_answers_503_where_no_worker_can_be_reached() {
    let tts = FakeTts::default().away();
    let hub = Hub::start(engines(FakeStt::default().away(), FakeLlm::default(), tts), Config::default()).await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::new();
    let base = format!("http://{}/v1/audio", hub.address);
    let text = json!({"model": "tts-1", "input": "Hello.", "voice": "alloy"});
    let audio = wav::write(&Pcm { rate: SampleRate::HZ_24000, samples: loud(500) });
    let file = reqwest::multipart::Part::bytes(audio).file_name("a.wav");
    let form = reqwest::multipart::Form::new().part("file", file).text("model", "whisper-1");
    for (request, stage) in [
        (client.post(format!("{base}/speech")).json(&text), "The voice engine"),
        (client.post(format!("{base}/transcriptions")).multipart(form), "The speech recognizer"),
    ] {
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 503);
        assert!(response.headers().contains_key("retry-after"));
        let body: Value = response.json().await.expect("JSON");
        assert_eq!(body["error"]["code"], "engine_unavailable", "{body}");
        assert!(body["error"]["message"].as_str().is_some_and(|text| text.starts_with(stage)), "{body}");
    }
}
