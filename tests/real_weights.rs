//! Real weights: Whisper base and tiny.en hear a person read, hibari speaks texts that are hard to say and is heard right, and both
//! hold a conversation of three turns, at a client's socket and on the phone. `make test` fetches the models; without them these
//! tests fail and say how to get them.

use crate::clips::{self, n_errors};
use crate::hub::{Hub, quiet, tiny_whisper};
use crate::speech_api::{client, transcribe};
use crate::telephony::phone::{Phone, Provider};
use antiphon::assembly;
use antiphon::config::Config;
use antiphon_audio::convert;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_text::scoring::words;
use antiphon_text::words::compared;
use antiphon_types::SampleRate;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use std::sync::Arc;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
const BASE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/models/whisper-base/ggml-base.bin");
/// What the hub answers in the conversations.
const ANSWERS: [&str; 3] = [
    "The library opens at nine in the morning.",
    "You can take the second road on the left.",
    "Thank you for asking, and have a good day.",
];

fn config(model: &str) -> Config {
    let mut config = Config::default();
    config.stt.engine = "whisper".into();
    config.stt.model = model.into();
    // More would wait for each other at each step, which takes several times as long where other programs run.
    config.stt.threads = 1;
    // A machine that does much else decodes slowly.
    config.stt.timeout_ms = 120_000;
    config.tts.engine = "hibari".into();
    config.telephony.unauthenticated = true;
    config
}

/// A hub with the recognizer of `config`, the voice hibari and these answers.
async fn hub(config: Config, answers: &[&str]) -> Hub {
    let loading = config.clone();
    let loaded = tokio::task::spawn_blocking(move || assembly::build(&loading)).await.expect("no panic");
    let engines =
        loaded.unwrap_or_else(|error| panic!("{error}\n`make real-models` fetches the models of these tests"));
    Hub::start(Engines { llm: Arc::new(FakeLlm::says(answers.iter().copied())), ..engines }, config).await
}

async fn heard(hub: &Hub, file: Vec<u8>, fields: &[(&'static str, &'static str)]) -> String {
    let answer = transcribe(hub, file, fields).await;
    let status = answer.status();
    let body: Value = answer.json().await.expect("JSON");
    assert!(status.is_success(), "{body}");
    body["text"].as_str().expect("a text").to_owned()
}

/// What was heard of several texts.
#[derive(Default)]
struct Score {
    n_words: usize,
    n_wrong: usize,
    /// Each text that was not heard right, with what was heard.
    faults: Vec<String>,
}

impl Score {
    fn add(&mut self, text: &str, expected: &str, heard: &str) {
        let heard_words = words(heard);
        let expected = words(expected);
        // A recognizer that writes what was written has heard it: "5/6/2024".
        let is_as_written = compared(text) == compared(heard);
        let n_wrong = if is_as_written { 0 } else { n_errors(&expected, &heard_words) };
        if n_wrong > 0 {
            self.faults.push(format!("{n_wrong} wrong: {heard:?} for {text:?}"));
        }
        self.n_wrong += n_wrong;
        self.n_words += expected.len();
    }

    #[track_caller]
    fn assert_below(&self, percent: usize) {
        let Self { n_words, n_wrong, faults } = self;
        assert!(n_wrong * 100 <= n_words * percent, "{n_wrong} of {n_words} words are wrong\n{}", faults.join("\n"));
    }
}

/// What a model hears of the clips, at the transcription endpoint without a language.
async fn reader_heard_by(model: &str) -> Score {
    let hub = hub(config(model), &[]).await;
    let mut score = Score::default();
    for (name, text) in clips::texts() {
        let heard = heard(&hub, clips::file(&name), &[]).await;
        score.add(&text, &text, &heard);
    }
    hub.stop().await;
    score
}

#[test]
fn errors_are_counted_by_words() {
    let n = |expected: &str, heard: &str| n_errors(&words(expected), &words(heard));
    assert_eq!(n("only a spear", "Only a spear."), 0);
    assert_eq!(
        [n("a b c", "a c"), n("a b c", "a x c"), n("a b c", "a b b c"), n("a b", ""), n("", "a")],
        [1, 1, 1, 2, 1]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whisper_base_hears_a_reader() {
    reader_heard_by(BASE).await.assert_below(8);
}

#[tokio::test(flavor = "multi_thread")]
async fn whisper_tiny_hears_a_reader() {
    reader_heard_by(&tiny_whisper().model).await.assert_below(15);
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_are_hard_to_say_are_heard_as_they_are_meant() {
    let hub = hub(config(BASE), &[]).await;
    let texts = std::fs::read_to_string(format!("{FIXTURES}/hard_texts.tsv")).expect("the texts");
    // Every sixth: all of them take minutes.
    let mut score = Score::default();
    for line in texts.lines().step_by(6) {
        let (text, expected) = line.split_once('\t').expect("two columns");
        let url = format!("http://{}/v1/audio/speech", hub.address);
        let body = json!({"model": "hibari", "input": text, "response_format": "wav"});
        let spoken = client().post(url).json(&body).send().await.expect("an answer");
        assert!(spoken.status().is_success(), "{text:?}: {}", spoken.status());
        let file = spoken.bytes().await.expect("a file").to_vec();
        let heard = heard(&hub, file, &[("language", "en")]).await;
        score.add(text, expected, &heard);
    }
    hub.stop().await;
    score.assert_below(3);
}

/// The clips of the conversations: the longest that end in a whole clause.
fn questions() -> Vec<(Vec<i16>, String)> {
    let named = ["nada_lily_02_haggard_0216", "roots_40_morris_0200", "bambatse_10_haggard_0284"];
    let is_named = |file: &str| named.iter().any(|name| file.contains(name));
    let spoken = clips::texts().into_iter().filter(|(file, _)| is_named(file));
    spoken.map(|(file, text)| (clips::samples(&file), text)).collect()
}

fn assert_heard(expected: &str, heard: &str) {
    let expected = words(expected);
    let wrong = n_errors(&expected, &words(heard));
    assert!(wrong * 5 <= expected.len(), "{heard:?} is {wrong} words from {expected:?}");
}

/// The words of this sound at the hub's own recognizer.
async fn said(hub: &Hub, samples: &[i16], rate: SampleRate) -> String {
    let mut file = std::io::Cursor::new(Vec::new());
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: rate.hz(),
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut wav = hound::WavWriter::new(&mut file, spec).expect("a WAV file");
    samples.iter().for_each(|&sample| wav.write_sample(sample).expect("written"));
    wav.finalize().expect("ended");
    heard(hub, file.into_inner(), &[("language", "en")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_of_three_turns_is_heard_and_answered_by_voice() {
    let hub = hub(config(BASE), &ANSWERS).await;
    let mut socket = hub.connect("").await;
    for ((question, text), answer) in questions().into_iter().zip(ANSWERS) {
        socket.append(&convert(&question, SampleRate::HZ_16000, SampleRate::HZ_24000)).await;
        socket.append(&quiet(2_000)).await;
        let events = socket.until("response.done").await;
        let done = "conversation.item.input_audio_transcription.completed";
        let transcript = events.iter().find(|event| event["type"] == done).expect("a transcript");
        assert_heard(&text, transcript["transcript"].as_str().expect("a text"));
        let deltas = events.iter().filter(|event| event["type"] == "response.output_audio.delta");
        let bytes: Vec<u8> =
            deltas.flat_map(|event| BASE64.decode(event["delta"].as_str().expect("text")).expect("base64")).collect();
        let samples: Vec<i16> = bytes.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
        assert_heard(answer, &said(&hub, &samples, SampleRate::HZ_24000).await);
    }
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_call_of_three_turns_is_heard_and_answered_by_voice() {
    let hub = hub(config(BASE), &ANSWERS).await;
    let mut phone = Phone::call(hub.address, Provider::Twilio, "", "+15550100").await;
    for (n, ((question, _), answer)) in questions().into_iter().zip(ANSWERS).enumerate() {
        let before = phone.heard.len();
        phone.talk(&convert(&question, SampleRate::HZ_16000, SampleRate::HZ_8000)).await;
        let whole = "antiphon_responses_total{outcome=\"completed\"} ";
        phone
            .until("the whole answer is heard", |phone| {
                hub.metric(whole) > n as f64 && phone.held_ms() == 0 && phone.heard.len() > before
            })
            .await;
        assert_heard(answer, &said(&hub, &phone.heard[before..], SampleRate::HZ_8000).await);
    }
    hub.stop().await;
}
