//! Against a real HTTP server on the loopback that answers from a script.

use super::*;
use axum::extract::{Multipart, State};
use axum::http::{HeaderMap, StatusCode as Status};
use axum::routing::post;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

/// What the server is to answer, in order, and what it was asked.
#[derive(Default)]
struct Script {
    answers: VecDeque<(u16, &'static str)>,
    asked: Vec<BTreeMap<String, Vec<u8>>>,
}

type Shared = Arc<Mutex<Script>>;

async fn answer(State(script): State<Shared>, headers: HeaderMap, mut form: Multipart) -> (Status, &'static str) {
    let mut fields = BTreeMap::new();
    while let Some(field) = form.next_field().await.unwrap() {
        let name = field.name().unwrap().to_owned();
        fields.insert(name, field.bytes().await.unwrap().to_vec());
    }
    if let Some(key) = headers.get("authorization") {
        fields.insert("key".into(), key.as_bytes().to_vec());
    }
    let next = {
        let mut script = script.lock().unwrap();
        script.asked.push(fields);
        script.answers.pop_front()
    };
    match next {
        Some((status, body)) => (Status::from_u16(status).unwrap(), body),
        None => std::future::pending().await,
    }
}

/// An engine whose server answers so.
async fn engine(answers: &[(u16, &'static str)], deadline_ms: u64) -> (OpenAi, Shared) {
    let script = Shared::default();
    script.lock().unwrap().answers.extend(answers);
    let app = axum::Router::new().route("/v1/audio/transcriptions", post(answer)).with_state(script.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    #[allow(clippy::disallowed_methods)]
    tokio::spawn(async move { axum::serve(listener, app).await });
    let config = SttConfig {
        base_url: format!("http://{address}/v1/"),
        api_key_env: String::new(),
        language: "en".into(),
        timeout_ms: deadline_ms,
        ..SttConfig::default()
    };
    (OpenAi::new(&config).unwrap(), script)
}

async fn utterance(engine: &OpenAi, pcm: Vec<i16>) -> Box<dyn SttUtterance> {
    let options = SttOptions { prompt: Some("Antiphon".into()), ..SttOptions::default() };
    let mut utterance = engine.open(options).await.unwrap();
    utterance.push(pcm).await.unwrap();
    utterance
}

#[tokio::test]
async fn the_utterance_arrives_as_a_wav_with_its_settings() {
    let (engine, script) = engine(&[(200, r#"{"text":" Hello there. ","usage":{}}"#)], 5_000).await;
    let pcm: Vec<i16> = (0..16_000).collect();
    let heard = utterance(&engine, pcm.clone()).await.finish().await.unwrap();
    assert_eq!(heard.text, "Hello there.");
    let asked = script.lock().unwrap().asked.remove(0);
    for (field, value) in [("model", "whisper-1"), ("language", "en"), ("prompt", "Antiphon"), ("response_format", "json")] {
        assert_eq!(asked[field], value.as_bytes(), "{field}");
    }
    let wav = hound::WavReader::new(asked["file"].as_slice()).unwrap();
    assert_eq!((wav.spec().sample_rate, wav.spec().channels, wav.spec().bits_per_sample), (16_000, 1, 16));
    assert_eq!(wav.into_samples::<i16>().map(Result::unwrap).collect::<Vec<_>>(), pcm);
}

#[tokio::test]
async fn a_guess_leaves_the_utterance_open() {
    let (engine, script) = engine(&[(200, r#"{"text":"one"}"#), (200, r#"{"text":"one two"}"#)], 5_000).await;
    let mut open = utterance(&engine, vec![1; 16_000]).await;
    assert_eq!(open.partial().await.unwrap(), None);
    assert_eq!(open.guess().await.unwrap().text, "one");
    open.push(vec![2; 16_000]).await.unwrap();
    assert_eq!(open.finish().await.unwrap().text, "one two");
    let lengths: Vec<usize> = script.lock().unwrap().asked.iter().map(|asked| asked["file"].len()).collect();
    assert_eq!(lengths, [44 + 32_000, 44 + 64_000]);
}

#[tokio::test]
async fn a_passing_failure_is_tried_once_more_and_a_lasting_one_is_not() {
    for (first, n_asked, expected) in [
        ((503, "busy"), 2, Ok("fine")),
        ((429, "{}"), 2, Ok("fine")),
        ((401, r#"{"error":{"message":"Wrong key."}}"#), 1, Err("401 Unauthorized: Wrong key.")),
        ((200, "<html>"), 1, Err("no transcription")),
    ] {
        let (engine, script) = engine(&[first, (200, r#"{"text":"fine"}"#)], 5_000).await;
        let heard = utterance(&engine, vec![1; 16_000]).await.finish().await;
        match (heard, expected) {
            (Ok(heard), Ok(text)) => assert_eq!(heard.text, text),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (heard, _) => panic!("{first:?}: {heard:?}"),
        }
        assert_eq!(script.lock().unwrap().asked.len(), n_asked, "{first:?}");
    }
}

#[tokio::test]
async fn the_second_failure_is_the_answer() {
    let (engine, script) = engine(&[(500, "one"), (502, "two"), (200, "{}")], 5_000).await;
    let error = utterance(&engine, vec![1; 16_000]).await.finish().await.unwrap_err();
    assert!(error.to_string().contains("502 Bad Gateway: two"), "{error}");
    assert_eq!(script.lock().unwrap().asked.len(), 2);
}

#[tokio::test]
async fn a_silent_server_ends_at_the_deadline() {
    let (engine, _script) = engine(&[], 50).await;
    let error = utterance(&engine, vec![1; 16_000]).await.finish().await.unwrap_err();
    assert!(matches!(error, SttError::Timeout(deadline) if deadline == Duration::from_millis(50)), "{error}");
}

#[tokio::test]
async fn an_absent_server_is_named() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config =
        SttConfig { base_url: format!("http://{address}"), api_key_env: String::new(), ..SttConfig::default() };
    let engine = OpenAi::new(&config).unwrap();
    let error = utterance(&engine, vec![1; 16_000]).await.finish().await.unwrap_err();
    assert!(error.to_string().contains(&format!("{address} cannot be reached")), "{error}");
}

#[tokio::test]
async fn next_to_nothing_is_not_sent_and_too_much_is_refused() {
    let (engine, script) = engine(&[], 5_000).await;
    assert_eq!(utterance(&engine, vec![1; 100]).await.finish().await.unwrap().text, "");
    let mut open = utterance(&engine, vec![0; MAX_SAMPLES]).await;
    assert!(open.push(vec![0]).await.unwrap_err().to_string().contains("longer than 300 s"));
    assert!(script.lock().unwrap().asked.is_empty());
}

#[test]
fn a_wrong_address_and_a_missing_key_are_told() {
    let told = |config: &SttConfig| OpenAi::new(config).err().map(|error| error.to_string()).unwrap_or_default();
    let wrong = SttConfig { base_url: "ftp://x".into(), api_key_env: String::new(), ..SttConfig::default() };
    assert!(told(&wrong).contains("stt.base_url"), "{}", told(&wrong));
    let keyless = SttConfig { api_key_env: "ANTIPHON_TEST_NO_SUCH_KEY".into(), ..SttConfig::default() };
    assert!(told(&keyless).contains("ANTIPHON_TEST_NO_SUCH_KEY"), "{}", told(&keyless));
}
