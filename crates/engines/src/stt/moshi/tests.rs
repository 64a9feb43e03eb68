//! The engine against a server on loopback that speaks moshi-server's protocol, well and badly.

use super::*;
use antiphon_test_server::{Message as Frame, TestServer, WebSocket};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn engine(address: &str) -> Moshi {
    let config = SttConfig {
        base_url: format!("{address}/api"),
        api_key_env: String::new(),
        timeout_ms: 4_000,
        ..SttConfig::default()
    };
    Moshi::new(&config).expect("right settings")
}

async fn say(socket: &mut WebSocket, message: Value) {
    let packed = rmp_serde::to_vec_named(&message).expect("it can be packed");
    let _ = socket.send(Frame::Binary(packed.into())).await;
}

/// The client's next message; `None` once it is gone.
async fn next(socket: &mut WebSocket) -> Option<Value> {
    loop {
        match socket.recv().await?.ok()? {
            Frame::Binary(bytes) => return Some(rmp_serde::from_slice(&bytes).expect("MessagePack")),
            Frame::Close(_) => return None,
            _ => {}
        }
    }
}

/// Steps between a sound and its word.
const DELAY: usize = 32;

/// Samples of a word, less than five frames.
const WORD: usize = 5 * FRAME - 100;

/// A step for each frame; words and markers come back `DELAY` steps later.
async fn moshi_server(mut socket: WebSocket) {
    say(&mut socket, json!({"type": "Ready"})).await;
    let mut pending = 0;
    let mut step = 0;
    let mut words: VecDeque<(usize, String)> = VecDeque::new();
    let mut markers: VecDeque<(usize, i64)> = VecDeque::new();
    let mut n_sounding = 0;
    while let Some(message) = next(&mut socket).await {
        match message["type"].as_str() {
            Some("Marker") => markers.push_back((step + DELAY + pending / FRAME, message["id"].as_i64().expect("id"))),
            Some("Audio") => {
                let pcm = message["pcm"].as_array().expect("samples");
                n_sounding += pcm.iter().filter(|sample| sample.as_f64().expect("a number").abs() > 0.01).count();
                pending += pcm.len();
            }
            _ => panic!("{message}"),
        }
        while pending >= FRAME {
            pending -= FRAME;
            step += 1;
            if n_sounding >= WORD {
                n_sounding -= WORD;
                words.push_back((step + DELAY, format!("w{step}")));
            }
            say(&mut socket, json!({"type": "Step", "step_idx": step, "prs": [0.1], "buffered_pcm": pending})).await;
            while words.front().is_some_and(|(due, _)| *due <= step) {
                let (_, word) = words.pop_front().expect("there is one");
                say(&mut socket, json!({"type": "Word", "text": word, "start_time": 0.5})).await;
                say(&mut socket, json!({"type": "EndWord", "stop_time": 0.9})).await;
            }
            while markers.front().is_some_and(|(due, _)| *due <= step) {
                let (_, id) = markers.pop_front().expect("there is one");
                say(&mut socket, json!({"type": "Marker", "id": id})).await;
            }
        }
    }
}

#[tokio::test]
async fn the_end_of_speech_is_flushed_by_a_marker_and_silence() {
    let server = TestServer::websocket(moshi_server);
    let mut utterance = engine(&server.url("")).open(SttOptions::default()).await.expect("it connects");
    for _ in 0..10 {
        utterance.push(vec![8_000; 1_280]).await.expect("room");
    }
    let guess = utterance.provisional().await.expect("an answer");
    let n_words = guess.text.split(' ').count();
    assert_eq!(n_words, 2, "{guess:?}");
    for _ in 0..5 {
        utterance.push(vec![8_000; 1_280]).await.expect("room");
    }
    let said = utterance.finish().await.expect("an answer");
    assert!(said.text.starts_with(&guess.text), "{said:?}");
    assert_eq!(said.text.split(' ').count(), 3, "{said:?}");
    let upgrade = server.request(0).await;
    assert_eq!(upgrade.target, "/api/asr-streaming");
    assert_eq!(upgrade.header(KEY_HEADER), Some("public_token"));
}

#[tokio::test]
async fn a_marker_that_is_given_up_loses_no_words() {
    let server = TestServer::websocket(moshi_server);
    let mut utterance = engine(&server.url("")).open(SttOptions::default()).await.expect("it connects");
    utterance.push(vec![8_000; 12_800]).await.expect("room");
    let _ = utterance.provisional().now_or_never();
    utterance.push(vec![8_000; 6_400]).await.expect("room");
    assert_eq!(utterance.finish().await.expect("an answer").text.split(' ').count(), 3);
}

#[tokio::test(start_paused = true)]
async fn servers_that_are_full_hang_or_say_nonsense_fail_in_time() {
    async fn failing<F: Future<Output = ()> + Send + 'static>(
        script: impl Fn(WebSocket) -> F + Clone + Send + Sync + 'static,
    ) -> String {
        let server = TestServer::websocket(script);
        let mut utterance = engine(&server.url("")).open(SttOptions::default()).await.expect("it connects");
        let pushed = utterance.push(vec![8_000; 1_280]).await;
        match pushed {
            Err(error) => error.to_string(),
            Ok(()) => utterance.finish().await.expect_err("it failed").to_string(),
        }
    }
    let full = failing(|mut socket| async move {
        say(&mut socket, json!({"type": "Error", "message": "no free channels"})).await;
        let _ = next(&mut socket).await;
    });
    assert!(full.await.contains("reported: no free channels"));
    // It steps, and the marker never comes back: silence is bounded.
    let n_frames = Arc::new(AtomicUsize::new(0));
    let counted = n_frames.clone();
    let hangs = failing(move |mut socket| {
        let counted = counted.clone();
        async move {
            while let Some(message) = next(&mut socket).await {
                let n_samples = message["pcm"].as_array().map_or(0, Vec::len);
                counted.fetch_add(n_samples / FRAME, Ordering::Relaxed);
                say(&mut socket, json!({"type": "Step", "step_idx": 1, "prs": [], "buffered_pcm": 0})).await;
            }
        }
    });
    assert!(hangs.await.contains("gave no answer within 4s"));
    let n_frames = n_frames.load(Ordering::Relaxed);
    assert!((MOST_SILENCE..=MOST_SILENCE + 1).contains(&n_frames), "{n_frames}");
    let nonsense = failing(|mut socket| async move {
        let _ = socket.send(Frame::Binary(vec![0xc1, 7].into())).await;
        let _ = next(&mut socket).await;
        let _ = next(&mut socket).await;
    });
    assert!(nonsense.await.contains("sent what is no transcription"));
}
