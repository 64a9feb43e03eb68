//! The speech API over a real socket: synthesis, transcription, rejections and metrics.

use crate::hub::{Hub, engines};
use antiphon::config::Config;
use antiphon::server::Keys;
use antiphon_audio::encode::{Encoder, FileFormat};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::{FakeTts, MS_PER_CHAR};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::StreamExt;
use reqwest::multipart::{Form, Part};
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use std::time::Duration;

pub fn client() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().expect("a client")
}

async fn start(stt: FakeStt, tts: FakeTts, config: Config) -> Hub {
    Hub::start(engines(stt, FakeLlm::default(), tts), config).await
}

async fn quick() -> Hub {
    start(FakeStt::default(), FakeTts::default(), Config::default()).await
}

async fn post(hub: &Hub, body: Value) -> Response {
    client().post(format!("http://{}/v1/audio/speech", hub.address)).json(&body).send().await.expect("an answer")
}

/// The rejection's status, code and field.
async fn refusal(response: Response) -> (u16, String, Value) {
    let status = response.status().as_u16();
    let error: Value = response.json().await.expect("JSON");
    let error = &error["error"];
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
    assert!(error["type"].is_string(), "{error}");
    (status, error["code"].as_str().unwrap_or_default().to_owned(), error["param"].clone())
}

fn event(text: &str) -> Vec<Value> {
    text.split("\n\n").filter_map(|event| serde_json::from_str(event.strip_prefix("data: ")?).ok()).collect()
}

/// A WAV file of loud and silent parts, in milliseconds.
pub fn wav(parts: &[(bool, usize)]) -> Vec<u8> {
    let mut encoder = Encoder::new(FileFormat::Wav).expect("made");
    let mut file = Vec::new();
    for &(loud, ms) in parts {
        encoder.push(&vec![if loud { 9_000 } else { 0 }; ms * 24], &mut file).expect("encoded");
    }
    encoder.finish(&mut file).expect("ended");
    file
}

pub async fn transcribe(hub: &Hub, file: Vec<u8>, fields: &[(&'static str, &'static str)]) -> Response {
    listen(hub, "transcriptions", file, fields).await
}

async fn listen(hub: &Hub, path: &str, file: Vec<u8>, fields: &[(&'static str, &'static str)]) -> Response {
    let form = Form::new().part("file", Part::bytes(file).file_name("a.wav"));
    let form = fields.iter().fold(form, |form, (name, value)| form.text(*name, *value));
    let url = format!("http://{}/v1/audio/{path}", hub.address);
    client().post(url).multipart(form).send().await.expect("an answer")
}

/// Two segments of speech with a pause between them.
pub const TWO: [(bool, usize); 5] = [(false, 500), (true, 1_000), (false, 1_500), (true, 800), (false, 700)];

#[tokio::test(start_paused = true)]
async fn all_of_a_text_is_spoken_in_every_format() {
    let hub = quick().await;
    let text = "Well, hello there. This is the second sentence of it.";
    for (format, media) in [
        ("pcm", "audio/pcm"),
        ("wav", "audio/wav"),
        ("mp3", "audio/mpeg"),
        ("opus", "audio/ogg"),
        ("flac", "audio/flac"),
    ] {
        let response =
            post(&hub, json!({"model": "tts-1", "voice": "nova", "input": text, "response_format": format})).await;
        assert_eq!(
            (response.status().as_u16(), response.headers()["content-type"].to_str().expect("text")),
            (200, media)
        );
        let body = response.bytes().await.expect("a whole body");
        if format == "pcm" {
            // The space between the two chunks is not synthesized.
            assert_eq!(body.len(), (text.len() - 1) * MS_PER_CHAR as usize * 48, "{format}");
        }
        assert!(body.len() > 5_000, "{format}: {} bytes", body.len());
    }
    assert_eq!(hub.metric("voice_requests_total{endpoint=\"speech\",outcome=\"ok\"} "), 5.0);
    assert_eq!(hub.metric("voice_request_duration_seconds_count{endpoint=\"speech\"} "), 5.0);
}

#[tokio::test(start_paused = true)]
async fn sound_leaves_while_the_rest_is_still_being_made() {
    // Each piece of 100 ms takes its own duration to synthesize; the whole text would take minutes.
    let tts = FakeTts::default().delayed(Duration::from_millis(100));
    let hub = start(FakeStt::default(), tts, Config::default()).await;
    let text = "First of all, hello. ".to_owned() + &"And one more sentence of many. ".repeat(60);
    let response =
        post(&hub, json!({"model": "tts-1", "voice": "alloy", "input": text, "response_format": "pcm"})).await;
    let mut body = response.bytes_stream();
    let first = body.next().await.expect("bytes").expect("no error");
    assert!(!first.is_empty());
    drop(body);
    // The request ended with its client.
    hub.until("voice_requests_total{endpoint=\"speech\",outcome=\"cancelled\"} ", 1.0).await;
}

#[tokio::test(start_paused = true)]
async fn events_carry_the_same_bytes_and_end_with_the_usage() {
    let hub = quick().await;
    let request = json!({"model": "tts-1", "voice": "alloy", "input": "Hello there.", "response_format": "pcm"});
    let whole = post(&hub, request.clone()).await.bytes().await.expect("a body");
    let mut request = request;
    request["stream_format"] = "sse".into();
    let response = post(&hub, request).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let events = event(&response.text().await.expect("text"));
    let deltas = events.iter().filter(|event| event["type"] == "speech.audio.delta");
    let bytes: Vec<u8> =
        deltas.flat_map(|event| BASE64.decode(event["audio"].as_str().expect("text")).expect("base64")).collect();
    assert_eq!(bytes, whole);
    let done = events.last().expect("an end");
    assert_eq!(
        (&done["type"], &done["usage"]),
        (&json!("speech.audio.done"), &json!({"input_tokens": 3, "output_tokens": 12, "total_tokens": 15}))
    );
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_spoken_is_refused_and_the_server_lives() {
    let hub = quick().await;
    let check = async |fields: Value, status: u16, param: &str| {
        let mut body = json!({"model": "tts-1", "voice": "alloy", "input": "Hello."});
        body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let (got, code, field) = refusal(post(&hub, body).await).await;
        assert_eq!((got, field), (status, json!(param)), "{fields}: {code}");
    };
    check(json!({"input": ""}), 400, "input").await;
    check(json!({"input": "🎉🎊"}), 400, "input").await;
    check(json!({"input": "word ".repeat(20_000)}), 400, "input").await;
    check(json!({"voice": "../../../etc/passwd"}), 400, "voice").await;
    check(json!({"voice": "nobody"}), 400, "voice").await;
    check(json!({"model": "gpt-9"}), 400, "model").await;
    check(json!({"speed": 0}), 400, "speed").await;
    check(json!({"speed": 100}), 400, "speed").await;
    check(json!({"response_format": "aac"}), 400, "response_format").await;
    let huge = post(&hub, json!({"input": "x".repeat(5 << 20)})).await;
    assert_eq!(huge.status().as_u16(), 413);
    assert_eq!(hub.metric("voice_requests_total{endpoint=\"speech\",outcome=\"refused\"} "), 10.0);
    assert_eq!(post(&hub, json!({"voice": "alloy", "input": "Hello."})).await.status().as_u16(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_failing_voice_is_a_status_before_the_sound_and_a_broken_body_behind_it() {
    let tts = FakeTts::default().failing_on("broken");
    let hub = start(FakeStt::default(), tts, Config::default()).await;
    let (status, code, _) = refusal(post(&hub, json!({"voice": "alloy", "input": "All broken."})).await).await;
    assert_eq!((status, code.as_str()), (500, "server_error"));
    let late =
        json!({"voice": "alloy", "input": "Hello there. Everything here is broken now.", "response_format": "pcm"});
    let response = post(&hub, late.clone()).await;
    assert_eq!(response.status().as_u16(), 200);
    assert!(response.bytes().await.is_err(), "the body is not whole, and its reader notices");
    let mut events_wanted = late;
    events_wanted["stream_format"] = "sse".into();
    let events = event(&post(&hub, events_wanted).await.text().await.expect("text"));
    assert_eq!(events[0]["type"], "speech.audio.delta");
    assert!(
        events.last().expect("an end")["error"]["message"]
            .as_str()
            .is_some_and(|said| said.contains("The voice engine failed"))
    );
}

#[tokio::test(start_paused = true)]
async fn who_finds_no_place_is_told_when_to_come_again() {
    let mut config = Config::default();
    config.speech.max_requests = 1;
    let hub = start(FakeStt::default(), FakeTts::default().delayed(Duration::from_secs(1)), config).await;
    let request = json!({"voice": "alloy", "input": "A long text. ".repeat(50), "response_format": "pcm"});
    let first = post(&hub, request.clone()).await;
    let second = post(&hub, request).await;
    let wait: u64 = second.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert_eq!(second.status().as_u16(), 503);
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(refusal(second).await.1, "server_overloaded");
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn one_key_leaves_half_of_the_places_to_others() {
    let mut config = Config::default();
    config.speech.max_requests = 4;
    let tts = FakeTts::default().delayed(Duration::from_secs(1));
    let engines = engines(FakeStt::default(), FakeLlm::default(), tts);
    let hub = Hub::with_keys(engines, config, Keys::of(&["greedy", "modest"])).await;
    let ask = async |key: &str| {
        let request = json!({"voice": "alloy", "input": "A long text. ".repeat(50), "response_format": "pcm"});
        let url = format!("http://{}/v1/audio/speech", hub.address);
        client().post(url).bearer_auth(key).json(&request).send().await.expect("an answer")
    };
    // They are not read.
    let held = [ask("greedy").await, ask("greedy").await];
    assert!(held.iter().all(|response| response.status().as_u16() == 200));
    let refused = ask("greedy").await;
    assert!(refused.headers().contains_key("retry-after"));
    let (status, code, ..) = refusal(refused).await;
    assert_eq!((status, code.as_str()), (503, "server_overloaded"));
    assert_eq!(ask("modest").await.status().as_u16(), 200);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn the_api_wants_a_key_where_there_are_keys() {
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let hub = Hub::with_keys(engines, Config::default(), Keys::of(&["sesame-sesame-sesame"])).await;
    for path in ["audio/speech", "audio/transcriptions", "audio/translations"] {
        let url = format!("http://{}/v1/{path}", hub.address);
        assert_eq!(
            client().post(url).json(&json!({"input": "x"})).send().await.expect("an answer").status().as_u16(),
            401,
            "{path}"
        );
    }
    let url = format!("http://{}/v1/models", hub.address);
    assert_eq!(client().get(&url).send().await.expect("an answer").status().as_u16(), 401);
    assert_eq!(
        client().get(&url).bearer_auth("sesame-sesame-sesame").send().await.expect("an answer").status().as_u16(),
        200
    );
}

#[tokio::test(start_paused = true)]
async fn long_audio_is_cut_at_its_silences_and_written_down_in_order() {
    let hub =
        start(FakeStt::hears(["good morning", "", "and good night"]), FakeTts::default(), Config::default()).await;
    let parts: Vec<_> = TWO.into_iter().chain([(true, 600), (false, 900)]).collect();
    let response = transcribe(
        &hub,
        wav(&parts),
        &[("model", "whisper-1"), ("response_format", "verbose_json"), ("language", "en")],
    )
    .await;
    assert_eq!(response.status().as_u16(), 200);
    let json: Value = response.json().await.expect("JSON");
    assert_eq!(
        (&json["text"], &json["language"], &json["duration"]),
        (&json!("good morning and good night"), &json!("english"), &json!(6.0))
    );
    let segments = json["segments"].as_array().expect("segments");
    let times: Vec<_> = segments
        .iter()
        .map(|segment| (segment["text"].as_str(), segment["start"].as_f64().map(|s| s.round())))
        .collect();
    assert_eq!(times, [(Some("good morning"), Some(0.0)), (Some("and good night"), Some(4.0))]);
    assert_eq!(hub.metric("voice_requests_total{endpoint=\"transcriptions\",outcome=\"ok\"} "), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_transcript_comes_in_every_shape() {
    for (shape, media, expect) in [
        ("json", "application/json", r#"{"text":"one two","usage":{"seconds":5,"type":"duration"}}"#),
        ("text", "text/plain; charset=utf-8", "one two\n"),
        ("srt", "application/x-subrip; charset=utf-8", "1\n00:00:00,"),
        ("vtt", "text/vtt; charset=utf-8", "WEBVTT\n\n00:00:00."),
    ] {
        let hub = start(FakeStt::hears(["one", "two"]), FakeTts::default(), Config::default()).await;
        let response = transcribe(&hub, wav(&TWO), &[("response_format", shape)]).await;
        assert_eq!(response.headers()["content-type"], media);
        let text = response.text().await.expect("text");
        let begins = if shape == "json" { text.parse::<Value>().expect("JSON").to_string() } else { text };
        assert!(begins.starts_with(expect), "{shape}: {begins}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_transcript_is_streamed_as_it_is_understood() {
    let hub = start(FakeStt::hears(["one", "two"]), FakeTts::default(), Config::default()).await;
    let response = transcribe(&hub, wav(&TWO), &[("stream", "true")]).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(
        event(&response.text().await.expect("text")),
        [
            json!({"type": "transcript.text.delta", "delta": "one"}),
            json!({"type": "transcript.text.delta", "delta": " two"}),
            json!({"type": "transcript.text.done", "text": "one two"}),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn audio_that_cannot_be_written_down_is_refused() {
    let mut config = Config::default();
    config.speech.max_audio_minutes = 1;
    config.speech.max_upload_mib = 4;
    let hub = start(FakeStt::default(), FakeTts::default(), config).await;
    let check = async |file: Vec<u8>, status: u16, code: &str| {
        let (got, said, param) = refusal(transcribe(&hub, file, &[]).await).await;
        assert_eq!((got, said.as_str(), param), (status, code, json!("file")));
    };
    check(Vec::new(), 400, "audio_too_short").await;
    check(wav(&[]), 400, "audio_too_short").await;
    check(b"no sound at all".to_vec(), 400, "unsupported_format").await;
    check(wav(&[(false, 1_000)])[10..].to_vec(), 400, "unsupported_format").await;
    check(wav(&[(true, 65_000)]), 400, "audio_too_long").await;
    check(vec![0; 5 << 20], 413, "file_too_large").await;
    let without = client()
        .post(format!("http://{}/v1/audio/transcriptions", hub.address))
        .body("x")
        .send()
        .await
        .expect("an answer");
    assert_eq!(refusal(without).await.0, 400);
    let check = async |fields: &[(&'static str, &'static str)], param: &str| {
        let (status, _, field) = refusal(transcribe(&hub, wav(&TWO), fields).await).await;
        assert_eq!((status, field), (400, json!(param)), "{fields:?}");
    };
    check(&[("model", "tts-1")], "model").await;
    check(&[("response_format", "docx")], "response_format").await;
    check(&[("temperature", "7")], "temperature").await;
    check(&[("language", "../en")], "language").await;
    check(&[("timestamp_granularities[]", "word")], "timestamp_granularities").await;
    check(&[("response_format", "srt"), ("stream", "true")], "stream").await;
    // Silence is not an error.
    let silence: Value = transcribe(&hub, wav(&[(false, 30_000)]), &[]).await.json().await.expect("JSON");
    assert_eq!(silence["text"], "");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_fails_is_told_with_a_status() {
    let hub = start(FakeStt::default().then_fails("no ears today"), FakeTts::default(), Config::default()).await;
    let (status, code, _) = refusal(transcribe(&hub, wav(&TWO), &[("stream", "true")]).await).await;
    assert_eq!((status, code.as_str()), (500, "server_error"));
}

#[tokio::test(start_paused = true)]
async fn a_translation_is_english_and_of_engines_that_can() {
    let hub = quick().await;
    let (status, code, _) = refusal(listen(&hub, "translations", wav(&TWO), &[]).await).await;
    assert_eq!((status, code.as_str()), (400, "unsupported_task"));
    let stt = FakeStt::hears(["guten tag", "und auf wiedersehen"]).translating();
    let hub = start(stt, FakeTts::default(), Config::default()).await;
    let fields = [("model", "whisper-1"), ("response_format", "verbose_json")];
    let json: Value = listen(&hub, "translations", wav(&TWO), &fields).await.json().await.expect("JSON");
    assert_eq!(
        (&json["text"], &json["task"], &json["language"]),
        (&json!("in English: guten tag in English: und auf wiedersehen"), &json!("translate"), &json!("english"))
    );
    assert_eq!(hub.metric("voice_requests_total{endpoint=\"translations\",outcome=\"ok\"} "), 1.0);
    let json: Value = transcribe(&hub, wav(&TWO), &fields).await.json().await.expect("JSON");
    assert_eq!(json["task"], "transcribe", "{json}");
}

#[tokio::test(start_paused = true)]
async fn models_are_listed_and_found() {
    let hub = quick().await;
    let get = async |path: &str| client().get(format!("http://{}{path}", hub.address)).send().await.expect("an answer");
    let list: Value = get("/v1/models").await.json().await.expect("JSON");
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&json!("list"), &json!("antiphon")));
    let one: Value = get("/v1/models/tts-1").await.json().await.expect("JSON");
    assert_eq!((&one["object"], &one["engine"]), (&json!("model"), &json!("fake")));
    assert_eq!(refusal(get("/v1/models/gpt-9").await).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_path_may_have_two_slashes_and_one_that_is_not_there_is_not_found() {
    let hub = quick().await;
    let request = json!({"model": "tts-1", "voice": "alloy", "input": "Hello.", "response_format": "pcm"});
    for (path, status) in [
        ("/v1//audio/speech", 200),
        ("//v1/audio//speech", 200),
        ("/v1/audio/speeches", 404),
        ("/v1//nothing", 404),
        ("/", 405),
    ] {
        let url = format!("http://{}{path}", hub.address);
        let answer = client().post(url).json(&request).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), status, "POST {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_that_a_path_does_not_serve_is_refused_as_other_requests_are() {
    let hub = quick().await;
    for (method, path, allowed) in [
        (Method::GET, "/v1/audio/speech", "POST"),
        (Method::DELETE, "/v1/models", "GET,HEAD"),
        (Method::PUT, "/v1/realtime/calls", "GET,HEAD,POST"),
        (Method::POST, "/", "GET,HEAD"),
    ] {
        let url = format!("http://{}{path}", hub.address);
        let answer = client().request(method.clone(), url).send().await.expect("an answer");
        assert_eq!(answer.headers()["allow"], allowed, "{method} {path}");
        let (status, code, _) = refusal(answer).await;
        assert_eq!((status, code.as_str()), (405, "method_not_allowed"), "{method} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_in_another_field_and_a_language_that_is_not_known_are_refused_in_words() {
    let hub = start(FakeStt::default().of_languages(&["en"]), FakeTts::default(), Config::default()).await;
    let form = Form::new().text("model", "whisper-1").part("audio", Part::bytes(wav(&TWO)).file_name("a.wav"));
    let url = format!("http://{}/v1/audio/transcriptions", hub.address);
    let answer = client().post(url).multipart(form).send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 400);
    let error: Value = answer.json().await.expect("JSON");
    assert!(error["error"]["message"].as_str().unwrap().contains("in the field 'audio'"), "{error}");
    for (language, status) in [("en-US", 200), ("EN", 200), ("xx", 400), ("de", 400), ("auto", 400)] {
        let answer = transcribe(&hub, wav(&TWO), &[("language", language)]).await;
        assert_eq!(answer.status().as_u16(), status, "{language}");
    }
}
