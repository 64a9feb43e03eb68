//! The engine against a real server on loopback.

use super::*;
use antiphon_audio::wav;
use antiphon_test_server::{Answer, TestServer, unused_address};
use futures_util::StreamExt;
use std::collections::HashSet;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

fn serve(answers: impl IntoIterator<Item = Answer>) -> (TestServer, OpenAiTts) {
    let server = TestServer::script("/v1/audio/speech", answers);
    let engine = engine(&server.url("/v1/"));
    (server, engine)
}

fn engine(base_url: &str) -> OpenAiTts {
    unlisted(&config(base_url))
}

/// An engine that asks for no list of voices beside its speech.
fn unlisted(config: &TtsConfig) -> OpenAiTts {
    let engine = OpenAiTts::new(config).expect("right settings");
    engine.voices.without_list();
    engine
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

fn pcm(body: &[u8]) -> Answer {
    Answer::of("audio/pcm", body.to_vec())
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

#[tokio::test]
async fn sound_is_passed_on_as_it_arrives_even_in_odd_pieces() {
    let (feed, pieces) = mpsc::channel(8);
    let (server, engine) = serve([pcm(&[]).fed(pieces)]);
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
    let requests = server.requests();
    assert_eq!((requests.len(), requests[0].json()), (1, expected));
    let key = format!("Bearer {}", std::env::var("PATH").unwrap().trim());
    assert_eq!(requests[0].header("authorization"), Some(key.as_str()));
}

#[tokio::test]
async fn one_connection_serves_chunk_after_chunk() {
    let (server, engine) = serve((0..5).map(|_| pcm(&[7, 0])));
    engine.warm().await.expect("it is there");
    for _ in 0..5 {
        assert_eq!(all(&engine).await.0, [7]);
    }
    let peers: HashSet<_> = server.requests().into_iter().map(|request| request.peer).collect();
    assert_eq!(peers.len(), 1);
}

#[tokio::test]
async fn a_busy_server_is_asked_once_more_and_not_twice() {
    for status in [500, 503, 429] {
        let (server, engine) = serve([Answer::refusal(status, "busy"), pcm(&[7, 0])]);
        assert_eq!(all(&engine).await.0, [7]);
        assert_eq!(server.n_requests(), 2);
    }
    let (server, engine) = serve([503, 503, 200].map(Answer::status));
    let message = text(all(&engine).await.1);
    assert_eq!(message, "the voice engine failed: the server 127.0.0.1 answered 503 Service Unavailable");
    assert_eq!(server.n_requests(), 2);
}

#[tokio::test]
async fn a_refusal_is_told_and_not_repeated() {
    let (server, engine) = serve([Answer::refusal(401, r#"{"error":{"message":"Incorrect API key"}}"#)]);
    let message = text(all(&engine).await.1);
    assert!(message.ends_with("answered 401 Unauthorized: Incorrect API key"), "{message}");
    assert_eq!(server.n_requests(), 1);
}

#[tokio::test]
async fn what_is_no_pcm_is_refused() {
    let (_server, engine) = serve([Answer::of("audio/mpeg", "ID3")]);
    assert!(text(all(&engine).await.1).contains("sent audio/mpeg where raw 16-bit PCM or a WAV"));
    let (_server, engine) = serve([pcm(b"RIFF....AVI ")]);
    assert!(text(all(&engine).await.1).contains("sent something else where"));
    // Nothing, a part of a sample, the header of a WAV file alone.
    for body in [Vec::new(), vec![7], wav::header(SampleRate::HZ_24000, None).to_vec()] {
        let (_server, engine) = serve([pcm(&body)]);
        let (samples, error) = all(&engine).await;
        assert!(samples.is_empty() && text(error).contains("without any sound"), "{body:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let message = text(all(&engine(&format!("http://{}/v1", unused_address()))).await.1);
    assert_eq!(message, "the voice engine failed: the server 127.0.0.1 cannot be reached");
}

#[tokio::test]
async fn a_cut_in_mid_body_is_an_error_after_what_came() {
    let (cut, is_cut) = oneshot::channel::<()>();
    let wait = async move { drop(is_cut.await) };
    let (server, engine) = serve([pcm(&[9, 0]).wait(wait).close()]);
    let mut stream = engine.speak(say("marvin", 1.0));
    assert_eq!(stream.next().await.unwrap().unwrap().samples, [9]);
    drop(cut);
    let message = stream.next().await.unwrap().expect_err("cut").to_string();
    assert!(message.ends_with("broke off in the middle of the sound"), "{message}");
    assert!(stream.next().await.is_none());
    assert_eq!(server.n_requests(), 1, "the beginning was heard: no second attempt");
}

#[tokio::test]
async fn a_stall_in_mid_body_is_an_error() {
    let (_server, mut engine) = serve([pcm(&[9, 0]).hang()]);
    engine.server.deadlines.between_bytes = Duration::from_millis(20);
    let mut stream = engine.speak(say("marvin", 1.0));
    assert_eq!(stream.next().await.unwrap().unwrap().samples, [9]);
    assert!(stream.next().await.unwrap().expect_err("stalled").to_string().contains("no more sound for 20ms"));
}

#[tokio::test]
async fn no_first_byte_is_a_timeout() {
    let (_server, mut engine) = serve([pcm(&[]).hang()]);
    engine.server.deadlines.first_byte = Duration::from_millis(20);
    assert!(matches!(all(&engine).await.1, Some(TtsError::Timeout(_))));
}

#[tokio::test]
async fn the_header_of_a_file_is_not_its_first_sound() {
    let header = wav::header(SampleRate::HZ_24000, None);
    let (feed, pieces) = mpsc::channel(8);
    let (_server, mut engine) = serve([pcm(&header).fed(pieces)]);
    engine.server.deadlines.between_bytes = Duration::from_millis(20);
    let sound = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        feed.send(vec![7, 0]).await.expect("the request goes on");
    };
    let mut stream = engine.speak(say("marvin", 1.0));
    let (first, ()) = tokio::join!(stream.next(), sound);
    assert_eq!(first.unwrap().expect("within the time of the first sound").samples, [7]);

    let (_server, mut engine) = serve([pcm(&header).hang()]);
    engine.server.deadlines.first_byte = Duration::from_millis(20);
    assert!(matches!(all(&engine).await.1, Some(TtsError::Timeout(_))));

    let (server, engine) = serve([pcm(&header).close(), pcm(&[7, 0])]);
    assert_eq!((all(&engine).await.0, server.n_requests()), (vec![7], 2), "no sound was heard before");
}

#[tokio::test]
async fn dropping_the_stream_ends_the_request() {
    let (server, engine) = serve([pcm(&[9, 0]).hang()]);
    let mut stream = engine.speak(say("marvin", 1.0));
    assert!(stream.next().await.unwrap().is_ok());
    assert_eq!(server.n_open(), 1);
    drop(stream);
    server.all_closed().await;
}

#[tokio::test]
async fn the_settings_of_a_server_go_into_every_request() {
    let (server, _) = serve([pcm(&[1, 0])]);
    let config = TtsConfig {
        sample_rate: 44_100,
        stream_format: "audio".into(),
        extra_body: serde_json::from_str(r#"{"language": "English", "references": [{"text": "a"}]}"#).unwrap(),
        ..config(&server.url("/v1/"))
    };
    let engine = unlisted(&config);
    let instructions = Some("Whisper.".to_owned());
    let request = SpeechRequest { seed: Some(7), instructions, ..say("marvin", 1.0) };
    let pieces: Vec<_> = engine.speak(request).collect().await;
    assert_eq!(pieces[0].as_ref().unwrap().rate.hz(), 44_100, "no header names one");
    let expected = serde_json::json!({
        "model": "voice-1", "input": "Hello there.", "voice": "marvin", "response_format": "pcm",
        "stream_format": "audio", "seed": 7, "instructions": "Whisper.", "language": "English", "references": [{"text": "a"}]
    });
    assert_eq!(server.requests()[0].json(), expected);
    assert_eq!(server.n_requests(), 1);
}

#[tokio::test]
async fn events_end_with_their_last_one_and_a_failure_is_one() {
    let delta = "data: {\"type\":\"speech.audio.delta\",\"audio\":\"BwA=\"}\n\n";
    let events = |body: String| Answer::of("text/event-stream; charset=utf-8", body);
    let done = format!("{delta}data: {{\"type\":\"speech.audio.done\"}}\n\n");
    let failed =
        format!("{delta}data: {{\"type\":\"speech.audio.error\",\"error\":{{\"message\":\"no memory\"}}}}\n\n");
    let cut = delta.to_owned();
    let (server, engine) = serve([done.clone(), failed, cut, done].map(events));
    let (samples, error) = all(&engine).await;
    assert!(error.is_none() && samples == [7], "{error:?}");
    let (samples, error) = all(&engine).await;
    assert_eq!(
        (samples, text(error)),
        (vec![7], "the voice engine failed: the speech server reported: no memory".into())
    );
    assert!(text(all(&engine).await.1).contains("broke off before the last one"));
    assert_eq!(all(&engine).await.0, [7], "the next chunk is spoken");
    assert_eq!(server.n_requests(), 4, "nothing is repeated");
}

#[tokio::test]
async fn a_server_that_keeps_its_events_open_is_not_waited_for() {
    let events = "data: {\"audio\": {\"data\": \"BwA=\"}}\n\ndata: [DONE]\n\n";
    let (_server, engine) = serve([Answer::events(events).hang()]);
    let (samples, error) = all(&engine).await;
    assert!(error.is_none() && samples == [7], "{error:?}");
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
