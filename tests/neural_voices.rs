//! Neural voices end to end, with a fixture voice that renders each phoneme as a tone: the command line and a session.

use crate::hub::{Hub, engines, n_audio_samples};
use crate::speech_api::client;
use antiphon::config::{self, Config, Sources};
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use std::process::Command;

const VOICES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/voices");

/// Samples per phoneme at 16 kHz, and of the pause after a sentence.
const HOP: usize = 256;
const PAUSE: usize = 4_000;
/// "Hello." is həlˈoʊ and a period, each followed by a pad, between `^ _` and `$`.
const HELLO: usize = (2 + 2 * 7 + 1) * HOP + PAUSE;

fn piper() -> Config {
    let text = format!("[tts]\nengine = \"piper\"\nmodel = \"{VOICES}/piper/en_US-tone-low.onnx\"\n");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("piper.toml");
    std::fs::write(&file, text).expect("written");
    config::load(&Sources { file: Some(file), ..Sources::default() }).expect("it loads")
}

/// Runs `antiphon say` with these settings: success, stderr and the WAV file.
fn say(engine: &str, model: &str, more: &[&str]) -> (bool, String, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("neural.toml");
    std::fs::write(&file, format!("[tts]\nengine = \"{engine}\"\nmodel = \"{VOICES}/{model}\"\n")).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .args(["say", "Hello.", "-o", "-", "--config"])
        .arg(&file)
        .args(more)
        .output()
        .expect("the binary starts");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned(), output.stdout)
}

#[test]
fn the_command_line_speaks_with_a_piper_voice() {
    let (ended_well, said, file) = say("piper", "piper/en_US-tone-low.onnx", &[]);
    assert!(ended_well, "{said}");
    let mut wav = hound::WavReader::new(file.as_slice()).expect("a WAV file");
    assert_eq!(wav.spec().sample_rate, 16_000);
    let samples: Vec<i16> = wav.samples::<i16>().map(|sample| sample.expect("a sample")).collect();
    assert_eq!(samples.len(), HELLO);
    // The third id, h, is a tone of 100 + 10 * 20 Hz. The fixture's quarter of full scale is louder than voices are made.
    let h = &samples[2 * HOP..3 * HOP];
    let loudest = h.iter().map(|sample| sample.unsigned_abs()).max().expect("a tone");
    assert!((4_000..6_000).contains(&loudest), "{loudest}");
    for (k, sample) in h.iter().enumerate() {
        let expect = f64::from(loudest) * (std::f64::consts::TAU * 300.0 * k as f64 / 16_000.0).sin();
        assert!((f64::from(*sample) - expect).abs() < 12.0, "{k}: {sample} is not {expect}");
    }
    let (_, said, file) = say("piper", "piper/en_GB-choir-medium.onnx", &["--voice", "en_GB-choir-medium#bob"]);
    assert_eq!(hound::WavReader::new(file.as_slice()).expect(&said).spec().sample_rate, 22_050);
}

#[test]
fn the_command_line_mixes_kokoros_voices() {
    let mix = ["--voice", "af_sky:0.4+af_nicole:0.6"];
    let (ended_well, said, file) = say("kokoro", "kokoro/model.onnx", &mix);
    assert!(ended_well, "{said}");
    let wav = hound::WavReader::new(file.as_slice()).expect("a WAV file");
    assert_eq!((wav.spec().sample_rate, wav.duration()), (24_000, 8 * 240 + 6_000));
    let (ended_well, said, file) = say("kokoro", "kokoro/model.onnx", &["--voice", "af_sky:0.4+af_bob:0.6"]);
    assert!(!ended_well && file.is_empty());
    assert!(said.contains("there is no voice \"af_bob\" to mix"), "{said}");
}

#[test]
fn the_command_line_says_what_is_wrong() {
    let check = |engine: &str, model: &str, more: &[&str], expect: &str| {
        let (ended_well, said, file) = say(engine, model, more);
        assert!(!ended_well && file.is_empty(), "{said}");
        assert!(said.contains(expect) && !said.contains("panicked"), "{said}");
    };
    check("piper", "nowhere.onnx", &[], "no such file or folder; name a Piper voice");
    check("piper", "kokoro/model.onnx", &[], "model.onnx.json is missing");
    check("kokoro", "piper/en_US-tone-low.onnx", &[], "en_US-tone-low.onnx are missing: put voices-v1.0.bin");
    check("piper", "piper", &[], "several models are in this folder; name one of");
    check(
        "piper",
        "piper/en_US-tone-low.onnx",
        &["--voice", "../x"],
        "there is no voice \"../x\"; piper has en_US-tone-low",
    );
    check("piper", "piper/en_US-tone-low.onnx", &["--speed", "100"], "write a number from 0.25 to 4.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_speaks_with_the_neural_voice() {
    let config = piper();
    let made = tokio::task::spawn_blocking({
        let config = config.clone();
        move || antiphon::assembly::tts(&config)
    });
    let tts = made.await.expect("no panic").expect("the fixture voice; ONNX Runtime comes with `make onnxruntime`");
    let fakes = engines(FakeStt::default(), FakeLlm::says(["Hello."]), FakeTts::default());
    let hub = Hub::start(Engines { tts, ..fakes }, config).await;
    let mut socket = hub.connect("").await;
    let events = socket.ask("Say hello.").await;
    let done = &events.last().expect("done")["response"];
    assert_eq!(done["status"], "completed", "{done}");
    assert_eq!(done["audio"]["output"]["voice"], "en_US-tone-low", "the engine's own, for none was chosen");
    assert_eq!(n_audio_samples(&events), HELLO * 3 / 2, "16 kHz made 24 kHz");
    assert!(loudest(&events) > 4_000);
    hub.stop().await;
}

/// "5 %" is normalized to "5 percent" for an English voice only; a Spanish voice renders each with a different length.
#[tokio::test(flavor = "multi_thread")]
async fn a_mixture_reads_in_the_language_of_its_first_voice() {
    let mut config = Config::default();
    config.tts.engine = "kokoro".into();
    config.tts.model = format!("{VOICES}/kokoro/model.onnx");
    let made = tokio::task::spawn_blocking({
        let config = config.clone();
        move || antiphon::assembly::tts(&config)
    });
    let tts = made.await.expect("no panic").expect("the fixture voice; ONNX Runtime comes with `make onnxruntime`");
    let fakes = engines(FakeStt::default(), FakeLlm::says(["It is 5 % now."; 2]), FakeTts::default());
    let hub = Hub::start(Engines { tts, ..fakes }, config).await;
    let alone = "ef_dora";
    let mixed = "ef_dora:0.5+af_sky:0.5";
    let spanish = asked(&hub, alone, "It is 5 % now.").await;
    let english = asked(&hub, alone, "It is 5 percent now.").await;
    assert_ne!(spanish, english);
    for voice in [alone, mixed] {
        assert_eq!(asked(&hub, voice, "It is 5 % now.").await, spanish, "{voice}, asked for");
        let mut socket = hub.connect("").await;
        let output = json!({"output": {"voice": voice}});
        socket.send(json!({"type": "session.update", "session": {"type": "realtime", "audio": output}})).await;
        assert_eq!(n_audio_samples(&socket.ask("How much is it?").await), spanish, "{voice}, in a session");
    }
    hub.stop().await;
}

/// Number of samples in the speech API's response.
async fn asked(hub: &Hub, voice: &str, input: &str) -> usize {
    let body = json!({"model": "tts-1", "voice": voice, "input": input, "response_format": "pcm"});
    let sent = client().post(format!("http://{}/v1/audio/speech", hub.address)).json(&body).send().await;
    let answer = sent.expect("an answer");
    assert_eq!(answer.status().as_u16(), 200, "{voice}");
    answer.bytes().await.expect("sound").len() / 2
}

/// The peak amplitude of the received audio.
fn loudest(events: &[Value]) -> u16 {
    let deltas = events.iter().filter(|event| event["type"] == "response.output_audio.delta");
    let bytes = deltas.flat_map(|event| BASE64.decode(event["delta"].as_str().expect("audio")).expect("base64"));
    let bytes: Vec<u8> = bytes.collect();
    bytes.as_chunks::<2>().0.iter().map(|pair| i16::from_le_bytes(*pair).unsigned_abs()).max().unwrap_or_default()
}
