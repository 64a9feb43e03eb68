//! The engine against a real server on loopback.
#![allow(clippy::disallowed_methods)]

use super::*;
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::routing::post;
use futures_util::StreamExt;
use futures_util::stream;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

type Answer = Box<dyn Fn(usize) -> axum::response::Response + Send + Sync>;

/// What the server saw, and how it answers the n-th request.
struct Server {
    answer: Answer,
    address: Mutex<String>,
    bodies: Mutex<Vec<serde_json::Value>>,
    keys: Mutex<Vec<Option<String>>>,
    peers: Mutex<HashSet<SocketAddr>>,
}

async fn serve(answer: impl Fn(usize) -> axum::response::Response + Send + Sync + 'static) -> (Arc<Server>, OpenAiTts) {
    let server = Arc::new(Server {
        answer: Box::new(answer),
        address: Mutex::default(),
        bodies: Mutex::default(),
        keys: Mutex::default(),
        peers: Mutex::default(),
    });
    let app = Router::new().route("/v1/audio/speech", post(handle)).with_state(server.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await.unwrap();
    });
    *server.address.lock().unwrap() = format!("http://{address}/v1/");
    (server.clone(), engine(&server.address()))
}

impl Server {
    fn address(&self) -> String {
        self.address.lock().unwrap().clone()
    }
}

fn engine(base_url: &str) -> OpenAiTts {
    OpenAiTts::new(&config(base_url)).expect("right settings")
}

fn config(base_url: &str) -> TtsConfig {
    TtsConfig {
        base_url: base_url.into(),
        model: "voice-1".into(),
        voice: "marvin".into(),
        // Set on every machine, so that the test need not change the environment.
        api_key_env: "PATH".into(),
        ..TtsConfig::default()
    }
}

async fn handle(
    State(server): State<Arc<Server>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    axum::Json(body): axum::Json<serde_json::Value>,
) -> axum::response::Response {
    let n = server.bodies.lock().unwrap().len();
    server.bodies.lock().unwrap().push(body);
    server.keys.lock().unwrap().push(headers.get("authorization").map(|key| key.to_str().unwrap().to_owned()));
    server.peers.lock().unwrap().insert(peer);
    (server.answer)(n)
}

fn pcm_body(body: Body) -> axum::response::Response {
    ([("content-type", "audio/pcm")], body).into_response()
}

fn refuse(status: u16, body: &'static str) -> axum::response::Response {
    (axum::http::StatusCode::from_u16(status).unwrap(), body).into_response()
}

fn say(voice: &str, speed: f32) -> SpeechRequest {
    SpeechRequest { text: "Hello there.".into(), voice: voice.into(), speed, ..SpeechRequest::default() }
}

async fn all(engine: &OpenAiTts) -> (Vec<i16>, Option<TtsError>) {
    let mut stream = engine.speak(say("marvin", 1.0));
    let mut samples = Vec::new();
    while let Some(piece) = stream.next().await {
        match piece {
            Ok(pcm) => samples.extend(pcm.samples),
            Err(error) => return (samples, Some(error)),
        }
    }
    (samples, None)
}

fn text(error: Option<TtsError>) -> String {
    error.expect("it failed").to_string()
}

/// The pieces of one body; taken by the request that is answered with them.
type Pieces = Mutex<Option<mpsc::Receiver<Vec<u8>>>>;

/// A body fed by the test, so that the test decides when each piece leaves.
fn fed() -> (mpsc::Sender<Vec<u8>>, Pieces) {
    let (feed, pieces) = mpsc::channel(8);
    (feed, Mutex::new(Some(pieces)))
}

fn streamed(pieces: &Pieces) -> axum::response::Response {
    let pieces = pieces.lock().unwrap().take().expect("one request");
    let body = stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        // An empty piece stands for a connection that breaks.
        let item = if piece.is_empty() { Err(std::io::Error::other("cut")) } else { Ok(piece) };
        Some((item, pieces))
    });
    pcm_body(Body::from_stream(body))
}

#[tokio::test]
async fn sound_is_passed_on_as_it_arrives_even_in_odd_pieces() {
    let (feed, pieces) = fed();
    let (server, engine) = serve(move |_| streamed(&pieces)).await;
    let mut stream = engine.speak(say("nobody", 1.5));
    feed.send(vec![1, 0, 2]).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().samples, [1], "before the body has ended");
    feed.send(vec![0, 3, 0]).await.unwrap();
    let second = stream.next().await.unwrap().unwrap();
    assert_eq!((second.samples, second.rate.hz()), (vec![2, 3], 24_000));
    drop(feed);
    assert!(stream.next().await.is_none());
    let expected = serde_json::json!({
        "model": "voice-1", "input": "Hello there.", "voice": "marvin", "response_format": "pcm", "speed": 1.5
    });
    assert_eq!(*server.bodies.lock().unwrap(), [expected]);
    let key = format!("Bearer {}", std::env::var("PATH").unwrap().trim());
    assert_eq!(*server.keys.lock().unwrap(), [Some(key)]);
}

#[tokio::test]
async fn one_connection_serves_chunk_after_chunk() {
    let (server, engine) = serve(|_| pcm_body(Body::from(vec![7, 0]))).await;
    engine.warm().await.expect("it is there");
    for _ in 0..5 {
        assert_eq!(all(&engine).await.0, [7]);
    }
    assert_eq!(server.peers.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_busy_server_is_asked_once_more_and_not_twice() {
    for status in [500, 503, 429] {
        let answer = move |n| if n == 0 { refuse(status, "busy") } else { pcm_body(Body::from(vec![7, 0])) };
        let (server, engine) = serve(answer).await;
        assert_eq!(all(&engine).await.0, [7]);
        assert_eq!(server.bodies.lock().unwrap().len(), 2);
    }
    let (server, engine) = serve(|_| refuse(503, "")).await;
    let message = text(all(&engine).await.1);
    assert_eq!(message, "the voice engine failed: the server 127.0.0.1 answered 503 Service Unavailable");
    assert_eq!(server.bodies.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_refusal_is_told_and_not_repeated() {
    let (server, engine) = serve(|_| refuse(401, r#"{"error":{"message":"Incorrect API key"}}"#)).await;
    let message = text(all(&engine).await.1);
    assert!(message.ends_with("answered 401 Unauthorized: Incorrect API key"), "{message}");
    assert_eq!(server.bodies.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_no_pcm_is_refused() {
    let (_, engine) = serve(|_| ([("content-type", "audio/mpeg")], "ID3").into_response()).await;
    assert!(text(all(&engine).await.1).contains("sent audio/mpeg where raw 16-bit PCM or a WAV"));
    let (_, engine) = serve(|_| pcm_body(Body::from("RIFF....AVI "))).await;
    assert!(text(all(&engine).await.1).contains("sent something else where"));
    let (_, engine) = serve(|_| pcm_body(Body::empty())).await;
    assert!(text(all(&engine).await.1).contains("without any sound"));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let message = text(all(&engine(&format!("http://{address}/v1"))).await.1);
    assert_eq!(message, "the voice engine failed: the server 127.0.0.1 cannot be reached");
}

#[tokio::test]
async fn a_cut_in_mid_body_is_an_error_after_what_came() {
    let (feed, pieces) = fed();
    let (server, engine) = serve(move |_| streamed(&pieces)).await;
    let mut stream = engine.speak(say("marvin", 1.0));
    feed.send(vec![9, 0]).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().samples, [9]);
    feed.send(Vec::new()).await.unwrap();
    let message = stream.next().await.unwrap().expect_err("cut").to_string();
    assert!(message.ends_with("broke off in the middle of the sound"), "{message}");
    assert!(stream.next().await.is_none());
    assert_eq!(server.bodies.lock().unwrap().len(), 1, "the beginning was heard: no second attempt");
}

#[tokio::test]
async fn a_stall_in_mid_body_is_an_error() {
    let (feed, pieces) = fed();
    let (_, mut engine) = serve(move |_| streamed(&pieces)).await;
    engine.server.deadlines.between_bytes = Duration::from_millis(20);
    let mut stream = engine.speak(say("marvin", 1.0));
    feed.send(vec![9, 0]).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().samples, [9]);
    assert!(stream.next().await.unwrap().expect_err("stalled").to_string().contains("no more sound for 20ms"));
}

#[tokio::test]
async fn no_first_byte_is_a_timeout() {
    let (_feed, pieces) = fed();
    let (_, mut engine) = serve(move |_| streamed(&pieces)).await;
    engine.server.deadlines.first_byte = Duration::from_millis(20);
    assert!(matches!(all(&engine).await.1, Some(TtsError::Timeout(_))));
}

#[tokio::test]
async fn dropping_the_stream_ends_the_request() {
    let (feed, pieces) = fed();
    let (_, engine) = serve(move |_| streamed(&pieces)).await;
    let mut stream = engine.speak(say("marvin", 1.0));
    feed.send(vec![9, 0]).await.unwrap();
    assert!(stream.next().await.unwrap().is_ok());
    drop(stream);
    // The server drops the body, and with it the receiver, when the connection is gone.
    feed.closed().await;
}

#[tokio::test]
async fn the_settings_of_a_server_go_into_every_request() {
    let (server, _) = serve(|_| pcm_body(Body::from(vec![1, 0]))).await;
    let config = TtsConfig {
        sample_rate: 44_100,
        stream_format: "audio".into(),
        extra_body: serde_json::from_str(r#"{"language": "English", "references": [{"text": "a"}]}"#).unwrap(),
        ..config(&server.address())
    };
    let engine = OpenAiTts::new(&config).expect("right settings");
    let instructions = Some("Whisper.".to_owned());
    let request = SpeechRequest { seed: Some(7), instructions, ..say("marvin", 1.0) };
    let pieces: Vec<_> = engine.speak(request).collect().await;
    assert_eq!(pieces[0].as_ref().unwrap().rate.hz(), 44_100, "no header names one");
    let expected = serde_json::json!({
        "model": "voice-1", "input": "Hello there.", "voice": "marvin", "response_format": "pcm",
        "stream_format": "audio", "seed": 7, "instructions": "Whisper.", "language": "English", "references": [{"text": "a"}]
    });
    assert_eq!(*server.bodies.lock().unwrap(), [expected]);
}

#[tokio::test]
async fn events_end_with_their_last_one_and_a_failure_is_one() {
    let delta = "data: {\"type\":\"speech.audio.delta\",\"audio\":\"BwA=\"}\n\n";
    let events = |body: String| ([("content-type", "text/event-stream; charset=utf-8")], body).into_response();
    let done = format!("{delta}data: {{\"type\":\"speech.audio.done\"}}\n\n");
    let failed =
        format!("{delta}data: {{\"type\":\"speech.audio.error\",\"error\":{{\"message\":\"no memory\"}}}}\n\n");
    let cut = delta.to_owned();
    let answers = [done.clone(), failed, cut, done];
    let (server, engine) = serve(move |n| events(answers[n].clone())).await;
    let (samples, error) = all(&engine).await;
    assert!(error.is_none() && samples == [7], "{error:?}");
    let (samples, error) = all(&engine).await;
    assert_eq!(
        (samples, text(error)),
        (vec![7], "the voice engine failed: the speech server reported: no memory".into())
    );
    assert!(text(all(&engine).await.1).contains("broke off before the last one"));
    assert_eq!(all(&engine).await.0, [7], "the next chunk is spoken");
    assert_eq!(server.bodies.lock().unwrap().len(), 4, "nothing is repeated");
}

#[tokio::test]
async fn a_server_that_keeps_its_events_open_is_not_waited_for() {
    let (feed, pieces) = fed();
    let (_, engine) = serve(move |_| {
        let mut answer = streamed(&pieces);
        answer.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
        answer
    })
    .await;
    feed.send(b"data: {\"audio\": {\"data\": \"BwA=\"}}\n\ndata: [DONE]\n\n".to_vec()).await.unwrap();
    let (samples, error) = all(&engine).await;
    assert!(error.is_none() && samples == [7], "{error:?}");
    drop(feed);
}

#[test]
fn wrong_settings_are_named() {
    let check = |config: TtsConfig, expected: &str| {
        let message = OpenAiTts::new(&config).err().expect("refused").to_string();
        assert!(message.contains(expected), "{message}");
    };
    let with = |base_url: &str| TtsConfig { base_url: base_url.into(), ..TtsConfig::default() };
    check(with("localhost"), "tts.base_url \"localhost\" is no address");
    check(with("ftp://example.com/v1"), "must begin with http:// or https://");
    let unset = TtsConfig { api_key_env: "ANTIPHON_NO_SUCH_KEY".into(), ..TtsConfig::default() };
    check(unset, "set the environment variable ANTIPHON_NO_SUCH_KEY");
    let own = serde_json::from_str(r#"{"language": "en", "voice": "x"}"#).unwrap();
    check(
        TtsConfig { extra_body: own, ..config("http://[::1]:1") },
        "tts.extra_body.voice is a field that the hub itself sets: set tts.voice",
    );
    check(TtsConfig { sample_rate: 100, ..config("http://[::1]:1") }, "write 0, or a rate from 4000 to 192000 Hz");
}

#[test]
fn the_configured_voice_comes_first() {
    let ids = |configured: &str| list_voices(configured).into_iter().map(|voice| voice.id).collect::<Vec<_>>();
    assert_eq!(ids("marvin")[..2], ["marvin", "alloy"]);
    assert_eq!(ids("nova")[..2], ["nova", "alloy"]);
    assert_eq!(ids("nova").len(), KNOWN_VOICES.len());
}
