//! Words over a WebSocket, against a server on loopback that speaks vLLM-Omni's protocol, well and badly.

use super::super::OpenAiTts;
use crate::tts::TtsConfig;
use crate::tts::words::peer::say;
use antiphon_engine_api::Hop;
use antiphon_engine_api::tts::{SpokenPart, TextRequest, TextSpeech, Tts, TtsError};
use antiphon_test_server::{Message as Frame, TestServer, WebSocket};
use antiphon_types::Meter;
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn engine(address: &str, extra: Value) -> OpenAiTts {
    let config = TtsConfig {
        base_url: format!("{address}/v1"),
        model: "voice-1".into(),
        voice: "vivian".into(),
        api_key_env: "PATH".into(),
        text_input: "words".into(),
        extra_body: serde_json::from_value(extra).unwrap(),
        ..TtsConfig::default()
    };
    OpenAiTts::new(&config).expect("right settings")
}

fn request(speed: f32) -> TextRequest {
    TextRequest {
        voice: "vivian".into(),
        speed,
        seed: Some(5),
        passage: None,
        instructions: None,
        hop: Hop::default(),
        meter: Meter::default(),
    }
}

fn frame(message: Value) -> Frame {
    Frame::Text(message.to_string().into())
}

async fn next(socket: &mut WebSocket) -> Option<Value> {
    loop {
        match socket.recv().await? {
            Ok(Frame::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
            Ok(Frame::Close(_)) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// A sentence's messages: its samples as PCM of two channels, in frames cut within a sample.
async fn speak_sentence(socket: &mut WebSocket, text: &str, samples: &[i16]) {
    let start =
        json!({"type": "audio.start", "sentence_text": text, "format": "pcm", "sample_rate": 44_100, "channels": 2});
    socket.send(frame(start)).await.unwrap();
    let bytes: Vec<u8> = samples.iter().flat_map(|s| [s.to_le_bytes(), s.to_le_bytes()]).flatten().collect();
    for piece in bytes.chunks(3) {
        socket.send(Frame::Binary(piece.to_vec().into())).await.unwrap();
    }
    socket.send(frame(json!({"type": "audio.done", "total_bytes": bytes.len(), "error": false}))).await.unwrap();
}

#[tokio::test]
async fn each_sentence_of_the_server_speaks_the_words_it_holds() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let server = TestServer::websocket(move |mut socket| {
        let log = log.clone();
        async move {
            let mut text = String::new();
            while let Some(message) = next(&mut socket).await {
                match message["type"].as_str() {
                    Some("input.text") => text.push_str(message["text"].as_str().unwrap()),
                    Some("input.done") => {
                        for (n, sentence) in text.split_inclusive('.').filter(|s| !s.trim().is_empty()).enumerate() {
                            speak_sentence(&mut socket, sentence.trim(), &[n as i16 + 1, 9]).await;
                        }
                        socket.send(frame(json!({"type": "session.done", "total_sentences": 2}))).await.unwrap();
                    }
                    _ => log.lock().unwrap().push(message),
                }
            }
        }
    });
    let engine = engine(&server.url(""), json!({"language": "English", "stream": true}));
    assert!(engine.speak_text(request(1.5)).is_none(), "at another speed it speaks chunks");
    let (samples, pieces, error) =
        say(engine.speak_text(request(1.0)).unwrap(), &["Hello", "there.", "And", "\"more\".", ""]).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!((samples, pieces), (vec![1, 9, 2, 9], vec![2, 2]));
    let config = json!({
        "type": "session.config", "model": "voice-1", "voice": "vivian", "response_format": "pcm", "stream_audio": true,
        "split_granularity": "sentence", "language": "English", "seed": 5
    });
    assert_eq!(seen.lock().unwrap()[0], config);
    let upgrade = server.request(0).await;
    assert_eq!(upgrade.path(), "/v1/audio/speech/stream");
    assert!(upgrade.header("authorization").unwrap().starts_with("Bearer "));
}

#[tokio::test]
async fn the_first_sentence_is_heard_while_the_text_goes_on() {
    let server = TestServer::websocket(|mut socket| async move {
        assert_eq!(next(&mut socket).await.unwrap()["type"], "session.config");
        assert_eq!(next(&mut socket).await.unwrap()["text"], "Hello. ");
        speak_sentence(&mut socket, "Hello.", &[1]).await;
        while next(&mut socket).await.is_some_and(|message| message["type"] != "input.done") {}
        speak_sentence(&mut socket, "Bye.", &[2]).await;
        let _ = socket.send(frame(json!({"type": "session.done"}))).await;
    });
    let TextSpeech { words, mut speech } = engine(&server.url(""), json!({})).speak_text(request(1.0)).unwrap();
    words.send("Hello.".into()).await.unwrap();
    assert_eq!(speech.next().await.unwrap().unwrap(), SpokenPart::Pieces(1));
    let SpokenPart::Audio(pcm) = speech.next().await.unwrap().unwrap() else { panic!("audio") };
    assert_eq!((pcm.rate.hz(), pcm.samples), (44_100, vec![1]));
    words.send("Bye.".into()).await.unwrap();
    drop(words);
    let rest: Vec<_> = speech.map(Result::unwrap).collect().await;
    assert_eq!(rest[0], SpokenPart::Pieces(1));
    assert_eq!(rest.len(), 2);
}

#[tokio::test]
async fn what_a_server_does_wrong_ends_the_text() {
    let cases: [(&'static str, &str); 6] = [
        (
            r#"{"type": "error", "message": "Generation failed: out of memory"}"#,
            "reported: Generation failed: out of memory",
        ),
        (r#"{"type": "error", "error": {"message": "no such voice"}}"#, "reported: no such voice"),
        (r#"{"type": "audio.done", "error": true}"#, "reported: a sentence failed"),
        (r#"{"type": "audio.start", "format": "mp3"}"#, "sends mp3 where PCM was asked for"),
        (r#"{"type": "session.done"}"#, "without any sound"),
        ("hello", "not its JSON"),
    ];
    for (answer, expected) in cases {
        let server = TestServer::websocket(move |mut socket| async move {
            while next(&mut socket).await.is_some_and(|message| message["type"] != "input.done") {}
            let _ = socket.send(Frame::Text(answer.into())).await;
            while next(&mut socket).await.is_some() {}
        });
        let (_, _, error) = say(engine(&server.url(""), json!({})).speak_text(request(1.0)).unwrap(), &["Hi."]).await;
        let error = error.expect(answer).to_string();
        assert!(error.contains(expected), "{answer}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_stops_reading_is_given_up() {
    let server = TestServer::websocket(|mut socket| async move {
        assert_eq!(next(&mut socket).await.unwrap()["type"], "session.config");
        std::future::pending::<()>().await;
        drop(socket);
    });
    let mut engine = engine(&server.url(""), json!({}));
    engine.server.deadlines.first_byte = Duration::from_millis(200);
    engine.server.deadlines.between_bytes = Duration::from_millis(200);
    let long = "word ".repeat(200_000);
    let TextSpeech { words, mut speech } = engine.speak_text(request(1.0)).unwrap();
    let feed = async {
        // 256 MB, since Linux takes up to twice `tcp_rmem` (32 MB by default) for a socket that nobody reads.
        for _ in 0..256 {
            if words.send(long.clone()).await.is_err() {
                return;
            }
        }
        panic!("the words are bounded");
    };
    let listen = async {
        let end = speech.next().await;
        drop(speech);
        end
    };
    let (end, ()) = tokio::join!(listen, feed);
    assert!(matches!(end, Some(Err(TtsError::Timeout(_)))), "{end:?}");
}
