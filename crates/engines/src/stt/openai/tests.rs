//! The engine against a real server on loopback that answers, refuses, fails once and stalls.

use super::*;
use axum::Router;
use axum::extract::{Multipart, State};
use axum::http::StatusCode;
use axum::routing::post;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

type Fields = Vec<(String, Vec<u8>)>;

/// What the server gives in order, and what it saw. Status 0 stalls.
#[derive(Clone, Default)]
struct Script {
    replies: Arc<Mutex<VecDeque<(u16, &'static str)>>>,
    seen: Arc<Mutex<Vec<Fields>>>,
}

async fn transcriptions(State(script): State<Script>, mut form: Multipart) -> (StatusCode, &'static str) {
    let mut fields = Fields::new();
    while let Some(field) = form.next_field().await.expect("a form") {
        let name = field.name().expect("a name").to_owned();
        fields.push((name, field.bytes().await.expect("a body").to_vec()));
    }
    script.seen.lock().expect("not poisoned").push(fields);
    let (status, body) = script.replies.lock().expect("not poisoned").pop_front().expect("a reply is left");
    if status == 0 {
        std::future::pending::<()>().await;
    }
    (StatusCode::from_u16(status).expect("a status"), body)
}

#[allow(clippy::disallowed_methods)]
async fn engine(replies: &[(u16, &'static str)]) -> (Script, OpenAiStt) {
    let script = Script::default();
    script.replies.lock().expect("not poisoned").extend(replies);
    let router = Router::new().route("/v1/audio/transcriptions", post(transcriptions)).with_state(script.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let base_url = format!("http://{}/v1", listener.local_addr().expect("bound"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let config = SttConfig {
        base_url,
        model: "tiny".into(),
        api_key_env: String::new(),
        language: "de".into(),
        timeout_ms: 400,
        ..SttConfig::default()
    };
    (script, OpenAiStt::new(&config).expect("right settings"))
}

#[tokio::test]
async fn the_language_is_asked_for_and_read_where_it_is_to_be_detected() {
    let script = [(200, r#"{"text":"guten Tag","language":"German"}"#), (200, r#"{"text":"hm","language":"klingon"}"#)];
    let (script, engine) = engine(&script).await;
    assert!(engine.detects_language());
    let options = SttOptions { language: Some(DETECT_LANGUAGE.into()), logprobs: true, ..SttOptions::default() };
    let mut languages = Vec::new();
    for _ in 0..2 {
        let mut utterance = engine.open(options.clone()).await.expect("never busy");
        utterance.push(vec![7; 1_600]).await.expect("room");
        languages.push(utterance.finish().await.expect("a transcript").language);
    }
    assert_eq!(languages, [Some("de".into()), None], "by its code, and no language that is not known");
    let seen = script.seen.lock().expect("not poisoned");
    let field = |name: &str| seen[0].iter().find(|(field, _)| field == name).map(|(_, value)| value.as_slice());
    assert_eq!(field("response_format"), Some(&b"verbose_json"[..]));
    assert_eq!((field("language"), field("include[]")), (None, None), "the engine's own language is not asked for");
}

#[test]
fn models_that_answer_without_the_language_cannot_detect_it() {
    let config = SttConfig {
        base_url: "http://127.0.0.1:9/v1".into(),
        model: "gpt-4o-mini-transcribe".into(),
        api_key_env: String::new(),
        ..SttConfig::default()
    };
    assert!(!OpenAiStt::new(&config).expect("right settings").detects_language());
}

async fn hear(engine: &OpenAiStt) -> Result<String, String> {
    let options = SttOptions { prompt: Some("names".into()), ..SttOptions::default() };
    let mut utterance = engine.open(options).await.expect("never busy");
    for _ in 0..3 {
        utterance.push(vec![7; 1_600]).await.expect("room");
    }
    assert_eq!(utterance.partial().await.expect("no failure"), None);
    utterance.finish().await.map(|transcript| transcript.text).map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_utterance_goes_out_as_wav_with_its_settings() {
    let (script, engine) = engine(&[(200, r#"{"text":" hello there "}"#)]).await;
    assert_eq!(hear(&engine).await, Ok("hello there".into()));
    let seen = script.seen.lock().expect("not poisoned");
    let field = |name: &str| &seen[0].iter().find(|(field, _)| field == name).unwrap_or_else(|| panic!("{name}")).1;
    assert_eq!(
        (&field("model")[..], &field("language")[..], &field("prompt")[..]),
        (&b"tiny"[..], &b"de"[..], &b"names"[..])
    );
    let pcm = wav::read(field("file"), RATE, Duration::from_secs(9)).expect("a WAV file");
    assert_eq!(pcm.samples, vec![7; 4_800]);
}

#[tokio::test]
async fn a_failure_that_may_pass_is_tried_once_more() {
    for status in [500, 429] {
        let (script, engine) = engine(&[(status, "busy"), (200, r#"{"text":"yes"}"#)]).await;
        assert_eq!(hear(&engine).await, Ok("yes".into()));
        assert_eq!(script.seen.lock().expect("not poisoned").len(), 2);
    }
    let (_, engine) = engine(&[(503, "a"), (503, "b")]).await;
    let error = hear(&engine).await.expect_err("twice is enough");
    assert!(error.ends_with("answered 503 Service Unavailable: b"), "{error}");
}

#[tokio::test]
async fn what_lasts_is_told_in_plain_words() {
    let (script, refusing) = engine(&[(404, r#"{"error":{"message":"no model tiny"}}"#)]).await;
    let error = hear(&refusing).await.expect_err("refused");
    assert!(error.ends_with("the server 127.0.0.1 answered 404 Not Found: no model tiny"), "{error}");
    assert_eq!(script.seen.lock().expect("not poisoned").len(), 1, "not tried again");
    let (_, babbling) = engine(&[(200, "<html>")]).await;
    assert!(hear(&babbling).await.expect_err("no JSON").contains("no transcription"));
    let (_, stalling) = engine(&[(0, "")]).await;
    assert_eq!(hear(&stalling).await, Err("the speech recognizer gave no answer within 400ms (stt.timeout_ms)".into()));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_and_silence_asks_nobody() {
    let config =
        SttConfig { base_url: "http://127.0.0.1:9/v1".into(), api_key_env: String::new(), ..SttConfig::default() };
    let engine = OpenAiStt::new(&config).expect("right settings");
    assert!(hear(&engine).await.expect_err("nobody listens").contains("the server 127.0.0.1 cannot be reached"));
    let utterance = engine.open(SttOptions::default()).await.expect("never busy");
    assert_eq!(utterance.finish().await.expect("nothing was said").text, "");
}
