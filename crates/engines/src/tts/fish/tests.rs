//! The engine against a real server on loopback that answers as fish-speech does.
#![allow(clippy::disallowed_methods)]

use super::*;
use antiphon_audio::wav;
use antiphon_types::SampleRate;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::routing::post;
use futures_util::{StreamExt, stream};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// What the server saw, and the body it answers the next request with.
#[derive(Default)]
struct Server {
    asked: Mutex<Vec<serde_json::Value>>,
    models: Mutex<Vec<Option<String>>>,
    answer: Mutex<Option<axum::response::Response>>,
}

async fn serve(voice: &str) -> (Arc<Server>, Fish) {
    let server = Arc::new(Server::default());
    let app = Router::new().route("/v1/tts", post(handle)).with_state(server.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let voice = voice.to_owned();
    let model = "s1".to_owned();
    let api_key_env = String::new();
    let config = TtsConfig { base_url, voice, model, api_key_env, ..TtsConfig::default() };
    (server, Fish::new(&config).expect("right settings"))
}

async fn handle(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    axum::Json(body): axum::Json<serde_json::Value>,
) -> axum::response::Response {
    server.asked.lock().unwrap().push(body);
    server.models.lock().unwrap().push(headers.get("model").map(|model| model.to_str().unwrap().to_owned()));
    server.answer.lock().unwrap().take().expect("one answer for each request")
}

fn wav_body(body: Body) -> axum::response::Response {
    ([("content-type", "audio/wav")], body).into_response()
}

fn say(voice: &str, speed: f32) -> SpeechRequest {
    SpeechRequest { text: "Hello there.".into(), voice: voice.into(), speed, ..SpeechRequest::default() }
}

#[tokio::test]
async fn a_growing_wav_file_is_passed_on_as_it_arrives() {
    let (server, fish) = serve("marvin").await;
    let (feed, pieces) = mpsc::channel::<Vec<u8>>(8);
    let body = stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((Ok::<_, std::io::Error>(piece), pieces))
    });
    *server.answer.lock().unwrap() = Some(wav_body(Body::from_stream(body)));
    let mut stream = fish.speak(say("marvin", 1.0));
    feed.send(wav::header(SampleRate::new(44_100), None).to_vec()).await.unwrap();
    feed.send(vec![1, 0, 2]).await.unwrap();
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!((first.samples, first.rate.hz()), (vec![1], 44_100), "before the body has ended");
    feed.send(vec![0]).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().samples, [2]);
    drop(feed);
    assert!(stream.next().await.is_none());
    let expected =
        serde_json::json!({"text": "Hello there.", "format": "wav", "streaming": true, "reference_id": "marvin"});
    assert_eq!(*server.asked.lock().unwrap(), [expected]);
    assert_eq!(*server.models.lock().unwrap(), [Some("s1".to_owned())]);
}

#[tokio::test]
async fn without_a_voice_the_server_chooses_and_speed_is_asked_for() {
    let (server, fish) = serve("slt").await;
    assert_eq!(fish.voices().iter().map(|voice| voice.id.as_str()).collect::<Vec<_>>(), ["default"]);
    *server.answer.lock().unwrap() =
        Some(wav_body(Body::from(wav::write(&Pcm { rate: SampleRate::HZ_24000, samples: vec![7] }))));
    let sound: Vec<_> = fish.speak(say("alloy", 1.5)).collect().await;
    assert_eq!(sound[0].as_ref().unwrap().samples, [7]);
    let expected = serde_json::json!({
        "text": "Hello there.", "format": "wav", "streaming": true, "prosody": {"speed": 1.5}
    });
    assert_eq!(*server.asked.lock().unwrap(), [expected]);
}

#[tokio::test]
async fn a_refusal_and_what_is_no_sound_are_told() {
    let (server, fish) = serve("marvin").await;
    let failure = async |answer: axum::response::Response| {
        *server.answer.lock().unwrap() = Some(answer);
        let sound: Vec<_> = fish.speak(say("marvin", 1.0)).collect().await;
        sound.into_iter().last().expect("an answer").expect_err("a failure").to_string()
    };
    let refused = (axum::http::StatusCode::BAD_REQUEST, r#"{"detail":"Text is too long"}"#).into_response();
    assert!(failure(refused).await.ends_with("answered 400 Bad Request: Text is too long"));
    let mp3 = ([("content-type", "audio/mpeg")], "ID3").into_response();
    assert!(failure(mp3).await.contains("sent audio/mpeg where"));
    assert!(failure(wav_body(Body::from("RIFF\0\0\0\0WAVE"))).await.contains("ended before its sound began"));
}
