//! A speech language model end to end, with the tiny model of `tests/fixtures/speechlm`: a session, the speech API, a job, a
//! voice that is uploaded, slots that are given back.

use crate::hub::{Hub, engines, n_audio_samples};
use crate::speech_api::client;
use antiphon::assembly;
use antiphon::config::Config;
use antiphon_audio::wav;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::tts::SpeechRequest;
use antiphon_types::Pcm;
use futures_util::StreamExt;
use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};
use std::process::Command;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/speechlm/tiny");

const SENTENCE: &str = "The next train to the coast leaves at nine.";

/// Samples of a token.
const TOKEN: usize = 960;

/// Some seconds of speech, as a WAV file.
async fn recording(voice: &str) -> Vec<u8> {
    let mut config = Config::default();
    config.tts.engine = "flite".into();
    config.tts.replicas = 1;
    let made = tokio::task::spawn_blocking(move || assembly::tts(&config)).await.expect("no panic");
    let flite = made.expect("flite is installed");
    let text = "The boat left early in the morning, and nobody on the island saw it again.".into();
    let mut pieces = flite.speak(SpeechRequest { text, voice: voice.into(), ..SpeechRequest::default() });
    let mut whole = Pcm { rate: antiphon_types::SampleRate::HZ_16000, samples: Vec::new() };
    while let Some(piece) = pieces.next().await {
        let piece = piece.expect("spoken");
        whole.rate = piece.rate;
        whole.samples.extend(piece.samples);
    }
    wav::write(&whole)
}

/// A configuration with the tiny model and a voice "anna", in a folder of its own.
async fn config(folder: &std::path::Path) -> Config {
    let voices = folder.join("voices");
    std::fs::create_dir(&voices).expect("made");
    std::fs::write(voices.join("anna.wav"), recording("slt").await).expect("written");
    let mut config = Config::default();
    config.tts.engine = "speechlm".into();
    config.tts.model = format!("{MODEL}/language_model.onnx");
    config.tts.contract = format!("{MODEL}/contract.toml");
    config.tts.voices_dir = voices.display().to_string();
    config.tts.slots = 2;
    config.speech.jobs_dir = folder.join("jobs").display().to_string();
    config
}

async fn start(folder: &std::path::Path, answers: Vec<&'static str>) -> Hub {
    serve(config(folder).await, answers).await
}

async fn serve(config: Config, answers: Vec<&'static str>) -> Hub {
    let own = config.clone();
    let made = tokio::task::spawn_blocking(move || assembly::tts(&own)).await.expect("no panic");
    let tts = made.expect("the tiny model; ONNX Runtime comes with `make onnxruntime`");
    let fakes = engines(FakeStt::default(), FakeLlm::says(answers), FakeTts::default());
    Hub::start(Engines { tts, ..fakes }, config).await
}

async fn speak(hub: &Hub, body: Value) -> reqwest::Response {
    client().post(format!("http://{}/v1/audio/speech", hub.address)).json(&body).send().await.expect("an answer")
}

async fn slots(hub: &Hub) -> Value {
    let state = client().get(format!("http://{}/api/state", hub.address)).send().await.expect("an answer");
    state.json::<Value>().await.expect("JSON")["tts_slots"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_the_speech_api_and_a_job_speak_with_a_speech_language_model() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = start(folder.path(), vec![SENTENCE]).await;
    let mut socket = hub.connect("").await;
    let events = socket.ask("When does it leave?").await;
    let done = &events.last().expect("done")["response"];
    assert_eq!((&done["status"], &done["audio"]["output"]["voice"]), (&json!("completed"), &json!("anna")), "{done}");
    let n = n_audio_samples(&events);
    assert!(n > 10 * TOKEN && n.is_multiple_of(TOKEN), "{n}");

    let body = json!({"model": "tts-1", "voice": "anna", "input": SENTENCE, "response_format": "pcm"});
    let sound = speak(&hub, body.clone()).await.bytes().await.expect("sound");
    assert!(sound.len() > 2 * 10 * TOKEN, "{} bytes", sound.len());

    let jobs = format!("http://{}/v1/audio/speech/jobs", hub.address);
    let job = client().post(&jobs).json(&body).send().await.expect("an answer");
    assert_eq!(job.status(), 202);
    let id = job.json::<Value>().await.expect("JSON")["id"].as_str().expect("an id").to_owned();
    let done = loop {
        let job = client().get(format!("{jobs}/{id}")).send().await.expect("an answer");
        let job = job.json::<Value>().await.expect("JSON");
        if !["queued", "running", "in_progress"].contains(&job["status"].as_str().expect("a status")) {
            break job;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert_eq!(done["status"], "completed", "{done}");

    let slots = slots(&hub).await;
    assert_eq!((&slots["n_slots"], &slots["bytes_per_token"]), (&json!(2), &json!(2 * 2 * 2 * 8 * 4)), "{slots}");
    let metrics = client().get(format!("http://{}/metrics", hub.address)).send().await.expect("an answer");
    assert!(metrics.text().await.expect("text").contains("\nantiphon_tts_slots 2\n"));
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_storage_key_the_engine_keeps_uploads_sealed_and_speaks_with_them_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("storage.key");
    std::fs::write(&key, antiphon_cluster::SealingKey::generate().encoded()).expect("written");
    let mut config = config(folder.path()).await;
    config.server.storage_key = key.to_str().expect("text").into();
    let hub = serve(config.clone(), Vec::new()).await;
    let form = Form::new()
        .text("name", "Otto")
        .text("consent", "The speaker agrees.")
        .part("audio_sample", Part::bytes(recording("rms").await).file_name("otto.wav"));
    let voices = format!("http://{}/v1/audio/voices", hub.address);
    let added = client().post(voices).multipart(form).send().await.expect("an answer");
    assert_eq!(added.status(), 200);
    hub.stop().await;
    let names = std::fs::read_dir(&config.tts.voices_dir).expect("there");
    let names = names.map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
    let (operators, uploads): (Vec<_>, Vec<_>) = names.partition(|name| name == "anna.wav");
    assert!(operators.len() == 1 && uploads.len() == 2, "{uploads:?}");
    assert!(uploads.iter().all(|name| name.ends_with(".sealed")), "{uploads:?}");

    let hub = serve(config.clone(), Vec::new()).await;
    let body = json!({"model": "tts-1", "voice": "Otto", "input": SENTENCE, "response_format": "pcm"});
    assert_eq!(speak(&hub, body).await.status(), 200);
    hub.stop().await;

    std::fs::write(&key, "no key").expect("written");
    let failed = tokio::task::spawn_blocking(move || assembly::tts(&config)).await.expect("no panic");
    let failed = failed.err().expect("no key").to_string();
    assert!(failed.contains("server.storage_key: the file"), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uploaded_voice_speaks_until_it_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = start(folder.path(), vec![SENTENCE]).await;
    let voices = format!("http://{}/v1/audio/voices", hub.address);
    let form = Form::new()
        .text("name", "Otto")
        .text("consent", "The speaker agrees.")
        .part("audio_sample", Part::bytes(recording("rms").await).file_name("otto.wav"));
    let added = client().post(&voices).multipart(form).send().await.expect("an answer");
    assert_eq!(added.status(), 200);
    let id = added.json::<Value>().await.expect("JSON")["id"].as_str().expect("an id").to_owned();

    let mut socket = hub.connect("").await;
    let output = json!({"output": {"voice": {"id": id}}});
    socket.send(json!({"type": "session.update", "session": {"type": "realtime", "audio": output}})).await;
    let events = socket.ask("When does it leave?").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
    assert!(n_audio_samples(&events) > 10 * TOKEN);

    let body = json!({"model": "tts-1", "voice": "Otto", "input": SENTENCE, "response_format": "pcm"});
    assert_eq!(speak(&hub, body.clone()).await.status(), 200);
    let removed = client().delete(format!("{voices}/{id}")).send().await.expect("an answer");
    assert_eq!(removed.status(), 200);
    assert_eq!(speak(&hub, body).await.status(), 400);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_gives_its_slot_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = start(folder.path(), Vec::new()).await;
    let body = json!({"model": "tts-1", "voice": "anna", "input": SENTENCE.repeat(20), "response_format": "pcm"});
    let streams = futures_util::future::join_all((0..2).map(|_| speak(&hub, body.clone()))).await;
    let mut streams: Vec<_> = streams.into_iter().map(reqwest::Response::bytes_stream).collect();
    for stream in &mut streams {
        stream.next().await.expect("a piece").expect("sound");
    }
    drop(streams);
    while slots(&hub).await["in_use"] != 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let body = json!({"model": "tts-1", "voice": "anna", "input": "Yes.", "response_format": "pcm"});
    assert_eq!(speak(&hub, body).await.status(), 200);
    hub.stop().await;
}

#[test]
fn models_info_says_what_a_listener_takes() {
    let info = |model: &str, more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_antiphon")).args(["models", "info", model]).args(more).output();
        String::from_utf8(output.expect("the binary starts").stdout).expect("text")
    };
    let text = info("chatterbox-turbo:fp16", &[]);
    assert!(text.contains("a token        96.0 KiB") && text.contains("watermark  none"), "{text}");
    let report: Value = serde_json::from_str(&info("chatterbox-turbo:q4", &["--json"])).expect("JSON");
    assert_eq!(report["caches"]["bytes_per_token"], 2 * 24 * 16 * 64 * 4, "{report}");
    assert!(report["caches"]["slots_that_fit"].as_u64().expect("a number") >= 1);
    assert!(!info("kokoro", &[]).contains("a token"));
}

/// The registry's names are those of the built-in contracts.
#[test]
fn every_speech_language_model_of_the_registry_has_a_contract() {
    let catalog = antiphon_registry::Catalog::load(&antiphon_registry::ModelsConfig::default()).expect("it loads");
    let models: Vec<_> = catalog.entries().iter().filter(|entry| entry.family == "speechlm").collect();
    assert!(models.len() >= 3);
    for model in models {
        let contract = antiphon_engines::tts::speechlm::Contract::of_model(&model.name).expect("built in");
        assert_eq!((contract.rate_hz, &contract.licence), (model.rate_hz, &model.licence), "{}", model.name);
        for language in &model.languages {
            assert!(contract.languages.contains(language), "{}: {language}", model.name);
        }
    }
}
