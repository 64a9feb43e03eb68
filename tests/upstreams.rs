//! Upstream servers that never end their responses, trickle them, redirect or reject: real ones on loopback, for each
//! remote engine. None may exceed its limits, and none of their messages may reach a client verbatim.

use crate::hub::{Hub, engines, loud, quiet};
use antiphon::config::Config;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::llm::{Llm, LlmDelta, LlmError};
use antiphon_engine_api::mcp::{Mcp, McpConfig};
use antiphon_engine_api::stt::{Stt, SttOptions};
use antiphon_engine_api::tts::{SpeechRequest, Tts};
use antiphon_engines::llm::LlmConfig;
use antiphon_engines::llm::openai::OpenAi;
use antiphon_engines::mcp::http::Http;
use antiphon_engines::stt::SttConfig;
use antiphon_engines::stt::openai::OpenAiStt;
use antiphon_engines::tts::TtsConfig;
use antiphon_engines::tts::fish::Fish;
use antiphon_engines::tts::openai::OpenAiTts;
use antiphon_test_server::{Answer, TestServer};
use antiphon_types::chat::{ChatRequest, Finish, Message};
use antiphon_types::mcp::Server;
use bytes::Bytes;
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;

/// A body that starts with `begin` and repeats `more` forever.
fn endless(begin: &'static str, more: String, kind: &'static str) -> TestServer {
    let more = Bytes::from(more);
    TestServer::start(move |_| Answer::of(kind, begin).repeat(more.clone(), Duration::ZERO))
}

/// A body that starts with `begin` and continues with `more` at intervals of `every`, forever.
fn trickle(begin: &'static str, more: &'static str, every: Duration, kind: &'static str) -> TestServer {
    TestServer::start(move |_| Answer::of(kind, begin).repeat(more, every))
}

/// Fails well before the test's own timeout, and much later than any limit.
async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(45), work).await.expect("it ends")
}

fn stt(server: &TestServer, timeout_ms: u64) -> OpenAiStt {
    let config = SttConfig {
        base_url: server.url("/v1"),
        model: "ears".into(),
        api_key_env: String::new(),
        timeout_ms,
        ..SttConfig::default()
    };
    OpenAiStt::new(&config).expect("right settings")
}

async fn hear(engine: &OpenAiStt) -> Result<String, String> {
    let options = SttOptions { logprobs: true, ..SttOptions::default() };
    let mut utterance = engine.open(options).await.expect("never busy");
    utterance.push(vec![7; 16_000]).await.expect("room");
    utterance.finish().await.map(|heard| heard.text).map_err(|error| antiphon_telemetry::with_causes(&error))
}

fn llm(server: &TestServer, max_tokens: u32) -> OpenAi {
    let config = LlmConfig {
        base_url: server.url("/v1"),
        api_key_env: String::new(),
        max_tokens,
        first_token_timeout_ms: 5_000,
        token_timeout_ms: 5_000,
        ..LlmConfig::default()
    };
    OpenAi::new(&config).expect("right settings")
}

async fn answer(engine: &OpenAi) -> (Vec<LlmDelta>, Option<LlmError>) {
    let request = ChatRequest { messages: vec![Message::User("Go on".into())], ..ChatRequest::default() };
    let mut deltas = Vec::new();
    let mut stream = engine.stream(request);
    while let Some(delta) = stream.next().await {
        match delta {
            Ok(delta) => deltas.push(delta),
            Err(error) => return (deltas, Some(error)),
        }
    }
    (deltas, None)
}

fn tts(server: &TestServer) -> TtsConfig {
    TtsConfig { base_url: server.url("/v1"), api_key_env: String::new(), voice: "own".into(), ..TtsConfig::default() }
}

/// Seconds of audio of one chunk, and the error.
async fn speak(engine: &dyn Tts) -> (f64, Option<String>) {
    let request = SpeechRequest { text: "Hello.".into(), voice: "own".into(), ..SpeechRequest::default() };
    let mut seconds = 0.0;
    let mut stream = engine.speak(request);
    while let Some(pcm) = stream.next().await {
        match pcm {
            Ok(pcm) => seconds += pcm.duration().as_secs_f64(),
            Err(error) => return (seconds, Some(antiphon_telemetry::with_causes(&error))),
        }
    }
    (seconds, None)
}

const MIB: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn a_recognizer_that_never_ends_its_answer_costs_its_bound() {
    let server = endless(r#"{"text":""#, "word ".repeat(10_000), "application/json");
    let error = in_time(hear(&stt(&server, 20_000))).await.expect_err("no transcript");
    assert!(error.contains("longer than 1048576 bytes"), "{error}");
    let taken = server.n_bytes_sent();
    assert!(taken < 16 * MIB, "{taken} bytes were taken, what the sockets hold included");
}

#[tokio::test(start_paused = true)]
async fn more_words_and_tokens_than_anybody_says_are_no_transcript() {
    for body in [
        serde_json::json!({"text": "word ".repeat(20_000)}).to_string(),
        serde_json::json!({"text": "a", "logprobs": vec![serde_json::json!({"token": "", "logprob": 0}); 20_000]})
            .to_string(),
    ] {
        let server = TestServer::start(move |_| Answer::text(body.clone()));
        let error = in_time(hear(&stt(&server, 20_000))).await.expect_err("no transcript");
        assert!(error.contains("what is no transcription"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_ignores_its_limit_of_tokens_is_cut_there() {
    let event = r#"{"choices":[{"index":0,"delta":{"content":"word word word word "}}]}"#;
    let more = format!("data: {event}\n\n").repeat(100);
    let server = endless("", more, "text/event-stream");
    let (deltas, error) = in_time(answer(&llm(&server, 100))).await;
    assert!(error.is_none(), "{error:?}");
    let n_bytes: usize = deltas.iter().map(|delta| if let LlmDelta::Text(text) = delta { text.len() } else { 0 }).sum();
    assert_eq!(n_bytes, 1_600, "16 bytes a token");
    assert_eq!(deltas.last(), Some(&LlmDelta::Done { finish: Finish::Length, usage: None }));
    assert!(server.n_bytes_sent() < 16 * MIB, "{}", server.n_bytes_sent());
}

#[tokio::test(start_paused = true)]
async fn calls_without_end_and_arguments_without_end_are_cut() {
    let call = |id: usize, arguments: &str| {
        let function = serde_json::json!({"name": "f", "arguments": arguments});
        let call = serde_json::json!({"index": id, "id": format!("call_{id}"), "function": function});
        format!("data: {}\n\n", serde_json::json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))
    };
    let many: String = (0..2_000).map(|id| call(id, "{}")).collect();
    let long = call(0, "{\"x\":\"") + &call(0, &"a".repeat(1_000)).repeat(2_000);
    for body in [many, long] {
        let server = TestServer::start(move |_| Answer::events(body.clone()));
        let (deltas, error) = in_time(answer(&llm(&server, 512))).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(deltas.last(), Some(&LlmDelta::Done { finish: Finish::Length, usage: None }));
        let mut n_calls = 0;
        let mut n_bytes = 0;
        for delta in &deltas {
            if let LlmDelta::ToolCall { index, arguments, .. } = delta {
                n_calls = n_calls.max(index + 1);
                n_bytes += arguments.len();
            }
        }
        assert!(n_calls <= 64 && n_bytes <= 8_192, "{n_calls} calls, {n_bytes} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_without_an_end_is_given_up() {
    for begin in ["data: {\"choices\":", "{\"choices\":[{\"message\":{\"content\":\""] {
        let server = endless(begin, "a".repeat(50_000), "text/event-stream");
        let (_, error) = in_time(answer(&llm(&server, 512))).await;
        let error = error.expect("no answer").to_string();
        assert!(error.contains("longer than 262144 bytes"), "{error}");
        assert!(server.n_bytes_sent() < 16 * MIB, "{}", server.n_bytes_sent());
    }
}

#[tokio::test(start_paused = true)]
async fn a_voice_that_never_ends_is_cut_by_its_text() {
    let server = endless("", "\0\x01".repeat(24_000), "audio/pcm");
    let (seconds, error) = in_time(speak(&OpenAiTts::new(&tts(&server)).expect("right settings"))).await;
    assert!(error.expect("it fails").contains("of sound for a chunk of text"));
    assert!(seconds < 40.0, "{seconds} s of six characters");
    // A WAV file whose header never ends, and one whose audio never ends.
    for begin in
        ["RIFF....WAVE", "RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x02\0\x10\0data\0\0\0\0"]
    {
        let server = endless(begin, "\0\x01".repeat(24_000), "audio/wav");
        let (seconds, error) = in_time(speak(&Fish::new(&tts(&server)).expect("right settings"))).await;
        assert!(error.is_some() && seconds < 40.0, "{seconds} s, {error:?}");
        assert!(server.n_bytes_sent() < 32 * MIB, "{}", server.n_bytes_sent());
    }
}

#[tokio::test(start_paused = true)]
async fn a_voice_that_trickles_samples_is_given_up() {
    let server = trickle("\0\x01\0\x01", "\0\x01", Duration::from_secs(1), "audio/pcm");
    let (_, error) = in_time(speak(&OpenAiTts::new(&tts(&server)).expect("right settings"))).await;
    assert!(error.expect("it fails").contains("too little sound"));
}

#[tokio::test(start_paused = true)]
async fn a_recognizer_that_trickles_has_its_deadline() {
    let server = trickle("{\"text\":\"", "a", Duration::from_millis(100), "application/json");
    let error = in_time(hear(&stt(&server, 1_000))).await.expect_err("no transcript");
    assert!(error.contains("no answer within 1s") || error.contains("waiting"), "{error}");
}

fn mcp_server(server: &TestServer) -> Server {
    Server { label: "x".into(), url: server.url("/mcp"), authorization: None, headers: Default::default() }
}

#[tokio::test(start_paused = true)]
async fn an_mcp_server_that_never_ends_its_answer_is_given_up() {
    for (begin, kind) in
        [("{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":[0", "application/json"), ("data: [0", "text/event-stream")]
    {
        let server = endless(begin, ",0".repeat(20_000), kind);
        let mcp = Http::new(&McpConfig { list_timeout_ms: 20_000, ..McpConfig::default() });
        in_time(mcp.connect(mcp_server(&server))).await.map(drop).expect_err("no tools");
        // An event stream is requested again a few times.
        assert!(server.n_bytes_sent() < 12 * MIB, "{kind}: {}", server.n_bytes_sent());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_is_never_carried_to_another_address() {
    let elsewhere = TestServer::start(|_| Answer::text(r#"{"text":"caught"}"#));
    for status in [301, 302, 307, 308] {
        let to = elsewhere.url("");
        let server = TestServer::start(move |request| {
            Answer::status(status).header("location", &format!("{to}{}", request.target))
        });
        let error = in_time(hear(&stt(&server, 5_000))).await.expect_err("no transcript");
        assert!(error.contains(&status.to_string()), "{error}");
        let (_, error) = in_time(speak(&OpenAiTts::new(&tts(&server)).expect("right settings"))).await;
        assert!(error.expect("no sound").contains("base_url"));
        assert!(in_time(speak(&Fish::new(&tts(&server)).expect("right settings"))).await.1.is_some());
        assert!(in_time(answer(&llm(&server, 100))).await.1.is_some());
        let _ = in_time(stt(&server, 5_000).warm()).await;
        in_time(Http::new(&McpConfig::default()).connect(mcp_server(&server))).await.map(drop).expect_err("no tools");
    }
    assert_eq!(elsewhere.n_requests(), 0);
}

/// A server's message about a key and an address, neither of which a client may see.
const SECRET: &str = "Incorrect API key provided: sk-very-secret at http://10.0.0.7/v1";

#[tokio::test(start_paused = true)]
async fn clients_get_no_words_of_an_upstream() {
    let server = TestServer::start(|_| Answer::refusal(401, SECRET));
    let fakes = engines(
        FakeStt::hears(["Hello"]),
        antiphon_engine_api::fakes::llm::FakeLlm::says(["Hello."]),
        FakeTts::default(),
    );
    let config = LlmConfig {
        base_url: server.url("/v1"),
        // An environment variable that is set on every machine.
        api_key_env: "PATH".into(),
        ..LlmConfig::default()
    };
    let llm: Arc<dyn Llm> = Arc::new(OpenAi::new(&config).expect("right settings"));
    let voice: Arc<dyn Tts> = Arc::new(OpenAiTts::new(&tts(&server)).expect("right settings"));
    for (engines, stage) in [
        (Engines { llm, ..fakes.clone() }, "The language model"),
        (Engines { tts: voice.clone(), ..fakes.clone() }, "The voice engine"),
        (Engines { stt: Arc::new(stt(&server, 5_000)), ..fakes.clone() }, "The speech recognizer"),
    ] {
        let hub = Hub::start(engines, Config::default()).await;
        let mut socket = hub.connect_by_proxy().await;
        let events = if stage == "The speech recognizer" {
            socket.append(&loud(300)).await;
            socket.append(&quiet(600)).await;
            socket.until("conversation.item.input_audio_transcription.failed").await
        } else {
            socket.ask("Hello").await
        };
        let told = format!("{stage} refused the hub's key; the operator's log has the details.");
        let last = events.last().expect("events").to_string();
        assert!(last.contains(&told), "{last}");
        let turns = reqwest::get(format!("http://{}/api/turns", hub.address)).await.expect("an answer");
        let turns = turns.text().await.expect("text");
        for shown in [serde_json::json!(events).to_string(), turns] {
            for hidden in ["sk-very-secret", "10.0.0.7", "127.0.0.1", "PATH", "Incorrect"] {
                assert!(!shown.contains(hidden), "{hidden} in {shown}");
            }
        }
        if stage != "The speech recognizer" {
            let read_by_operator = hub.connect("").await.ask("Hello").await;
            let last = read_by_operator.last().expect("events").to_string();
            assert!(last.contains(&told) && last.contains("401") && last.contains("Incorrect API key"), "{last}");
        }
    }
    let hub = Hub::start(Engines { tts: voice, ..fakes }, Config::default()).await;
    let request = reqwest::Client::new().post(format!("http://{}/v1/audio/speech", hub.address));
    let response = request.body(r#"{"input":"Hello there.","voice":"alloy"}"#).send().await.expect("an answer");
    let body = response.text().await.expect("text");
    assert!(
        body.contains("refused the hub's key") && !body.contains("127.0.0.1") && !body.contains("sk-very"),
        "{body}"
    );
}
