//! The engine against a real server on loopback that answers, refuses, fails once and stalls.

use super::*;
use antiphon_test_server::{Answer, TestServer};

fn engine(answers: impl IntoIterator<Item = Answer>) -> (TestServer, OpenAiStt) {
    engine_of("de", answers)
}

fn engine_of(language: &str, answers: impl IntoIterator<Item = Answer>) -> (TestServer, OpenAiStt) {
    let server = TestServer::script("/v1/audio/transcriptions", answers);
    let config = SttConfig {
        base_url: server.url("/v1"),
        model: "tiny".into(),
        api_key_env: String::new(),
        language: language.into(),
        timeout_ms: 400,
        ..SttConfig::default()
    };
    (server, OpenAiStt::new(&config).expect("right settings"))
}

#[tokio::test]
async fn the_language_is_asked_for_and_read_where_it_is_to_be_detected() {
    let script = [r#"{"text":"guten Tag","language":"German"}"#, r#"{"text":"hm","language":"klingon"}"#];
    let (server, engine) = engine(script.map(Answer::text));
    assert!(engine.detects_language());
    let options = SttOptions { language: Some(DETECT_LANGUAGE.into()), logprobs: true, ..SttOptions::default() };
    let mut languages = Vec::new();
    for _ in 0..2 {
        let mut utterance = engine.open(options.clone()).await.expect("never busy");
        utterance.push(vec![7; 1_600]).await.expect("room");
        languages.push(utterance.finish().await.expect("a transcript").language);
    }
    assert_eq!(languages, [Some("de".into()), None], "by its code, and no language that is not known");
    let form = server.requests()[0].form();
    assert_eq!(form["response_format"].text(), "verbose_json");
    let asks_for_more = form.contains_key("language") || form.contains_key("include[]");
    assert!(!asks_for_more, "the engine's own language is not asked for");
}

#[tokio::test]
async fn the_engines_own_language_is_sent_as_a_code_and_auto_asks_for_it() {
    for (language, expected) in [("de-AT", Some("de")), ("en", Some("en")), ("", None), (DETECT_LANGUAGE, None)] {
        let (server, engine) = engine_of(language, [Answer::text(r#"{"text":"hm"}"#)]);
        assert_eq!(hear(&engine).await, Ok("hm".into()));
        let form = server.requests()[0].form();
        assert_eq!(form.get("language").map(|field| field.text()).as_deref(), expected, "{language:?}");
        let format = if language == DETECT_LANGUAGE { "verbose_json" } else { "json" };
        assert_eq!(form["response_format"].text(), format, "{language:?}");
    }
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
    let (server, engine) = engine([Answer::text(r#"{"text":" hello there "}"#)]);
    assert_eq!(hear(&engine).await, Ok("hello there".into()));
    let form = server.requests()[0].form();
    assert_eq!(["model", "language", "prompt"].map(|name| form[name].text()), ["tiny", "de", "names"]);
    let pcm = wav::read(&form["file"].bytes, RATE, Duration::from_secs(9)).expect("a WAV file");
    assert_eq!(pcm.samples, vec![7; 4_800]);
}

#[tokio::test]
async fn a_failure_that_may_pass_is_tried_once_more() {
    for status in [500, 429] {
        let (server, engine) = engine([Answer::refusal(status, "busy"), Answer::text(r#"{"text":"yes"}"#)]);
        assert_eq!(hear(&engine).await, Ok("yes".into()));
        assert_eq!(server.n_requests(), 2);
    }
    let (_server, engine) = engine(["a", "b"].map(|text| Answer::refusal(503, text)));
    let error = hear(&engine).await.expect_err("twice is enough");
    assert!(error.ends_with("answered 503 Service Unavailable: b"), "{error}");
}

#[tokio::test]
async fn what_lasts_is_told_in_plain_words() {
    let (server, refusing) = engine([Answer::refusal(404, r#"{"error":{"message":"no model tiny"}}"#)]);
    let error = hear(&refusing).await.expect_err("refused");
    assert!(error.ends_with("the server 127.0.0.1 answered 404 Not Found: no model tiny"), "{error}");
    assert_eq!(server.n_requests(), 1, "not tried again");
    let (_server, babbling) = engine([Answer::text("<html>")]);
    assert!(hear(&babbling).await.expect_err("no JSON").contains("no transcription"));
    let (_server, stalling) = engine([Answer::none()]);
    assert_eq!(hear(&stalling).await, Err("the speech recognizer gave no answer within 400ms (stt.timeout_ms)".into()));
}

#[tokio::test(start_paused = true)]
async fn a_segment_of_a_file_has_time_by_its_length() {
    let late = || Answer::text(r#"{"text":"late"}"#).delayed(Duration::from_secs(5));
    let (_server, engine) = engine([late(), late()]);
    let mut queued = engine.open_queued(SttOptions::default()).await.await.expect("never busy");
    queued.push(vec![7; 16_000]).await.expect("room");
    assert_eq!(queued.finish().await.expect("a transcript").text, "late", "8.4 s for a second of audio");
    assert_eq!(engine.hedge_delay(), Some(Duration::from_secs(1)), "it is no measure of live answers");
    assert!(hear(&engine).await.expect_err("it is spoken live").contains("no answer within 400ms"));
}

#[test]
fn a_fallback_has_as_much_time_as_the_server_before_it() {
    let config = SttConfig { timeout_ms: 4_000, ..SttConfig::default() };
    let alone = Deadline::new(&config);
    let with_fallback = Deadline::new(&SttConfig { fallback: Some(Box::default()), ..config });
    let second = RATE.hz() as usize;
    let seconds =
        |deadline: Deadline| [deadline.of(second, false), deadline.of(second, true)].map(|time| time.as_secs());
    assert_eq!((seconds(alone), seconds(with_fallback)), ([4, 12], [2, 3]));
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
