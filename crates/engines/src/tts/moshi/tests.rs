//! The engine against a server on loopback that speaks moshi-server's protocol, well and badly.

use super::*;
use crate::tts::words::peer::say;
use antiphon_engine_api::{Fault, Hop};
use antiphon_test_server::{Answer, Message as Frame, TestServer, WebSocket, unused_address};
use antiphon_types::Meter;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

fn config(address: &str) -> TtsConfig {
    TtsConfig { base_url: format!("{address}/api"), api_key_env: String::new(), ..TtsConfig::default() }
}

fn engine(address: &str) -> Moshi {
    Moshi::new(&config(address)).expect("right settings")
}

fn frame(message: serde_json::Value) -> Frame {
    Frame::Binary(rmp_serde::to_vec_named(&message).unwrap().into())
}

fn audio(samples: &[f32]) -> Frame {
    frame(json!({"type": "Audio", "pcm": samples}))
}

/// The words of the client until it ends the text; `None` once it is gone.
async fn text(socket: &mut WebSocket) -> Option<String> {
    let mut text = String::new();
    loop {
        let Some(Ok(message)) = socket.recv().await else { return None };
        let Frame::Binary(bytes) = message else { continue };
        let message: serde_json::Value = rmp_serde::from_slice(&bytes).unwrap();
        match message["type"].as_str() {
            Some("Text") => text.push_str(message["text"].as_str().unwrap()),
            Some("Eos") => return Some(text),
            _ => panic!("{message}"),
        }
    }
}

async fn speak(address: &str, words: &[&str]) -> (Vec<i16>, Vec<usize>, Option<TtsError>) {
    say(engine(address).speak_text(request()).expect("it takes words"), words).await
}

fn request() -> TextRequest {
    TextRequest {
        voice: "x".into(),
        speed: 1.0,
        seed: None,
        passage: None,
        instructions: None,
        hop: Hop::default(),
        meter: Meter::default(),
    }
}

fn failure(error: Option<TtsError>) -> String {
    error.expect("it failed").to_string()
}

#[tokio::test]
async fn words_go_in_and_their_audio_comes_out_with_the_word_it_speaks() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let said = heard.clone();
    let server = TestServer::websocket(move |mut socket| {
        let said = said.clone();
        async move {
            socket.send(frame(json!({"type": "Ready"}))).await.unwrap();
            let text = text(&mut socket).await.expect("a text");
            socket.send(audio(&[0.5, -1.5])).await.unwrap();
            for word in text.split_whitespace() {
                // As moshi-server does, it drops some marks.
                let word = word.replace(['(', ')'], "");
                socket.send(frame(json!({"type": "Text", "text": word, "start_s": 0.0, "stop_s": 0.1}))).await.unwrap();
                socket.send(audio(&[0.0])).await.unwrap();
            }
            said.lock().unwrap().push(text);
            socket.send(Frame::Close(None)).await.unwrap();
        }
    });
    let (samples, pieces, error) = speak(&server.url(""), &["Hello", "(big)", "world."]).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(samples, [16_384, i16::MIN, 0, 0, 0]);
    assert_eq!(pieces, [1, 1, 1], "each word with the audio that begins it");
    assert_eq!(*heard.lock().unwrap(), ["Hello (big) world. "]);
    let upgrade = server.request(0).await;
    assert_eq!(upgrade.target, "/api/tts_streaming?format=PcmMessagePack");
    assert_eq!(upgrade.header("kyutai-api-key"), Some("public_token"));
}

#[tokio::test]
async fn a_whole_chunk_is_spoken_and_the_settings_go_into_the_address() {
    let server = TestServer::websocket(|mut socket| async move {
        text(&mut socket).await.expect("a text");
        socket.send(audio(&[1.0])).await.unwrap();
        socket.send(Frame::Close(None)).await.unwrap();
    });
    let extra_body = serde_json::from_str(r#"{"seed": 3, "cfg_alpha": 1.5}"#).unwrap();
    let config =
        TtsConfig { voice: "a b/c.wav".into(), api_key_env: "PATH".into(), extra_body, ..config(&server.url("")) };
    let engine = Moshi::new(&config).expect("right settings");
    let request = SpeechRequest { text: "Hello there.".into(), ..SpeechRequest::default() };
    let pieces: Vec<_> = engine.speak(request).collect().await;
    assert_eq!(pieces.into_iter().map(Result::unwrap).map(|pcm| pcm.samples).collect::<Vec<_>>(), [[32_767]]);
    let upgrade = server.request(0).await;
    assert_eq!(upgrade.query(), Some("format=PcmMessagePack&cfg_alpha=1.5&seed=3&voice=a+b%2Fc.wav"));
    assert_eq!(upgrade.header("kyutai-api-key"), Some(std::env::var("PATH").unwrap().trim()));
}

#[tokio::test]
async fn what_a_server_does_wrong_ends_the_text_and_the_next_one_is_spoken() {
    let (turns, scripts) = mpsc::channel::<&'static str>(8);
    let scripts = Arc::new(tokio::sync::Mutex::new(scripts));
    let server = TestServer::websocket(move |mut socket| {
        let scripts = scripts.clone();
        async move {
            let script = scripts.lock().await.recv().await.expect("a script");
            let _ = text(&mut socket).await;
            let sound = vec![0.1; 24_000];
            let _ = match script {
                "error" => socket.send(frame(json!({"type": "Error", "message": "no free channels"}))).await,
                "garbage" => socket.send(Frame::Binary(vec![1, 2, 3].into())).await,
                "silent" => socket.send(Frame::Close(None)).await,
                // Ten times what the text warrants.
                "endless" => loop {
                    if let Err(error) = socket.send(audio(&sound)).await {
                        break Err(error);
                    }
                },
                "pings" => loop {
                    if let Err(error) = socket.send(frame(json!({"type": "Ready"}))).await {
                        break Err(error);
                    }
                },
                // The socket is dropped without a closing frame.
                "cut" => socket.send(audio(&[1.0])).await,
                _ => {
                    socket.send(audio(&[1.0])).await.unwrap();
                    socket.send(Frame::Close(None)).await
                }
            };
        }
    });
    let expected = [
        ("error", "the speech server reported: no free channels"),
        ("garbage", "a message that is not moshi-server's"),
        ("silent", "without any sound"),
        ("endless", "of sound for the text so far"),
        ("pings", "sends messages without sound"),
        ("cut", "broke off in the middle of the text"),
    ];
    for (script, message) in expected {
        turns.send(script).await.unwrap();
        let error = failure(speak(&server.url(""), &["Hi."]).await.2);
        assert!(error.contains(message), "{script}: {error}");
        turns.send("well").await.unwrap();
        assert_eq!(speak(&server.url(""), &["Hi."]).await.0, [32_767], "after {script}");
    }
}

#[tokio::test]
async fn a_connection_that_is_closed_with_another_code_than_the_normal_one_is_no_end() {
    for (code, is_end) in [(1_000_u16, true), (1_001, false), (1_011, false), (1_012, false)] {
        let server = TestServer::websocket(move |mut socket| async move {
            text(&mut socket).await.expect("a text");
            socket.send(audio(&[1.0])).await.unwrap();
            let frame = CloseFrame { code: CloseCode::from(code), reason: "".into() };
            socket.send(Frame::Close(Some(frame))).await.unwrap();
        });
        let (samples, _, error) = speak(&server.url(""), &["Hi."]).await;
        assert_eq!(samples, [32_767], "{code}");
        if is_end {
            assert!(error.is_none(), "{code}: {error:?}");
        } else {
            let error = failure(error);
            assert!(error.contains("closed the connection in the middle of the text"), "{code}: {error}");
        }
    }
}

#[tokio::test]
async fn sound_that_is_owed_has_a_deadline_that_other_messages_do_not_renew() {
    let server = TestServer::websocket(|mut socket| async move {
        text(&mut socket).await;
        while socket.send(frame(json!({"type": "Ready"}))).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let mut engine = engine(&server.url(""));
    engine.server.deadlines.first_byte = Duration::from_millis(60);
    engine.server.deadlines.between_bytes = Duration::from_millis(60);
    let (_, _, error) = say(engine.speak_text(request()).unwrap(), &["Hi."]).await;
    assert!(matches!(error, Some(TtsError::Timeout(_))), "{error:?}");
}

#[tokio::test]
async fn words_that_are_still_to_be_written_are_waited_for_without_a_deadline() {
    let server = TestServer::websocket(|mut socket| async move {
        text(&mut socket).await;
        socket.send(audio(&[1.0])).await.unwrap();
        socket.send(Frame::Close(None)).await.unwrap();
    });
    let mut engine = engine(&server.url(""));
    engine.server.deadlines.first_byte = Duration::from_millis(100);
    engine.server.deadlines.between_bytes = Duration::from_millis(1);
    let TextSpeech { words, mut speech } = engine.speak_text(request()).unwrap();
    words.send("Well,".into()).await.unwrap();
    let nothing = tokio::time::timeout(Duration::from_millis(300), speech.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    words.send("yes.".into()).await.unwrap();
    drop(words);
    assert_eq!(speech.next().await.unwrap().unwrap(), SpokenPart::Pieces(1));
}

#[tokio::test]
async fn dropping_the_speech_closes_the_servers_session() {
    let (gone, mut closed) = mpsc::channel(1);
    let server = TestServer::websocket(move |mut socket| {
        let gone = gone.clone();
        async move {
            assert!(matches!(socket.recv().await, Some(Ok(Frame::Binary(_)))));
            socket.send(audio(&[1.0])).await.unwrap();
            while let Some(Ok(_)) = socket.recv().await {}
            gone.send(()).await.unwrap();
        }
    });
    let TextSpeech { words, mut speech } = engine(&server.url("")).speak_text(request()).unwrap();
    words.send("Hello".into()).await.unwrap();
    assert!(matches!(speech.next().await, Some(Ok(SpokenPart::Pieces(1)))));
    assert!(matches!(speech.next().await, Some(Ok(SpokenPart::Audio(_)))));
    drop(speech);
    closed.recv().await.expect("the server saw it");
    assert!(words.is_closed());
}

#[tokio::test]
async fn a_server_that_is_not_there_or_refuses_is_named() {
    let (_, _, error) = speak(&format!("http://{}", unused_address()), &["Hi."]).await;
    assert!(matches!(error, Some(TtsError::Remote { fault: Fault::Unreachable, .. })), "{error:?}");
    let server = TestServer::start(|_| Answer::status(401));
    let (_, _, error) = speak(&server.url(""), &["Hi."]).await;
    assert!(matches!(error, Some(TtsError::Remote { fault: Fault::Auth, .. })), "{error:?}");
    let none = speak(&server.url(""), &[]).await;
    assert_eq!((none.0.len(), none.2.is_none()), (0, true), "no words, no connection");
}

#[test]
fn wrong_settings_are_named() {
    let check = |extra: &str, expected: &str| {
        let config = TtsConfig { extra_body: serde_json::from_str(extra).unwrap(), ..config("http://[::1]:1") };
        let message = Moshi::new(&config).err().expect("refused").to_string();
        assert!(message.contains(expected), "{message}");
    };
    check(r#"{"format": "Pcm"}"#, "tts.extra_body.format is a field that the hub itself sets");
    check(r#"{"voices": ["a"]}"#, "tts.extra_body.voices must be a text");
}
