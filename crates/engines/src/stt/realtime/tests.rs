//! The engine against servers on loopback: in each dialect, and with what servers do wrong.

use super::*;
use antiphon_engine_api::BreakerState;
use antiphon_test_server::{Answer, Message as Frame, TestServer, WebSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

fn config(address: &str) -> SttConfig {
    SttConfig {
        base_url: format!("{address}/v1"),
        model: "ears".into(),
        api_key_env: String::new(),
        language: "de".into(),
        key_terms: vec!["Antiphon".into()],
        timeout_ms: 4_000,
        ..SttConfig::default()
    }
}

fn engine(address: &str) -> Realtime {
    Realtime::new(&config(address)).expect("right settings")
}

async fn opened(engine: &Realtime) -> Box<dyn SttUtterance> {
    engine.open(SttOptions::default()).await.unwrap_or_else(|error| panic!("{error}"))
}

async fn say(socket: &mut WebSocket, event: Value) {
    let _ = socket.send(Frame::Text(event.to_string().into())).await;
}

/// The client's next event; `None` once it is gone.
async fn next(socket: &mut WebSocket) -> Option<Value> {
    loop {
        match socket.recv().await?.ok()? {
            Frame::Text(text) => return Some(serde_json::from_str(&text).expect("JSON")),
            Frame::Close(_) => return None,
            _ => {}
        }
    }
}

fn samples(event: &Value) -> usize {
    STANDARD.decode(event["audio"].as_str().expect("audio")).expect("base64").len() / 2
}

const COMPLETED: &str = "conversation.item.input_audio_transcription.completed";
const DELTA: &str = "conversation.item.input_audio_transcription.delta";

/// A server of OpenAI's dialect that hears "N samples" in each stretch, word by word, and notes what it gets.
async fn openai(socket: &mut WebSocket, seen: Arc<Mutex<Vec<Value>>>) {
    say(socket, json!({"type": "session.created", "session": {"type": "transcription"}})).await;
    let mut n_samples = 0;
    let mut item = 0;
    while let Some(event) = next(socket).await {
        match event["type"].as_str() {
            Some("input_audio_buffer.append") => {
                n_samples += samples(&event);
                say(socket, json!({"type": DELTA, "item_id": format!("i{item}"), "delta": "heard "})).await;
            }
            Some("input_audio_buffer.commit") => {
                seen.lock().unwrap().push(event);
                let id = format!("i{item}");
                say(socket, json!({"type": "input_audio_buffer.committed", "item_id": id})).await;
                say(socket, json!({"type": "something.new", "with": ["what", 1]})).await;
                let transcript = format!("{n_samples} samples");
                say(socket, json!({"type": COMPLETED, "item_id": id, "transcript": transcript})).await;
                n_samples = 0;
                item += 1;
            }
            _ => {
                say(socket, json!({"type": "session.updated", "session": {}})).await;
                seen.lock().unwrap().push(event);
            }
        }
    }
}

fn openai_server() -> (TestServer, Arc<Mutex<Vec<Value>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let server = TestServer::websocket(move |mut socket| {
        let notes = notes.clone();
        async move { openai(&mut socket, notes).await }
    });
    (server, seen)
}

#[tokio::test]
async fn audio_goes_out_as_it_is_spoken_and_words_come_back() {
    let (server, seen) = openai_server();
    let engine = engine(&server.url(""));
    let options = SttOptions { prompt: Some("Haggard".into()), ..SttOptions::default() };
    let mut utterance = engine.open(options).await.expect("it connects");
    for _ in 0..4 {
        utterance.push(vec![7; 3_200]).await.expect("room");
    }
    // The deltas are on their way.
    let partial = loop {
        let partial = utterance.partial().await.expect("an answer").expect("it has partials");
        if partial.text.split(' ').count() == 4 {
            break partial;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((partial.text.as_str(), partial.n_settled_words), ("heard heard heard heard", 3));
    let guess = utterance.provisional().await.expect("an answer");
    assert_eq!(guess.text, "19200 samples", "at 24 kHz");
    // Nothing new was said: the same, without another commit.
    assert_eq!(utterance.provisional().await.expect("an answer").text, "19200 samples");
    utterance.push(vec![7; 160]).await.expect("room");
    let said = utterance.finish().await.expect("an answer");
    assert_eq!(said.text, "19200 samples 2400 samples", "100 ms at least");
    let upgrade = server.request(0).await;
    let seen = seen.lock().unwrap();
    let input = &seen[0]["session"]["audio"]["input"];
    assert_eq!(input["format"], json!({"type": "audio/pcm", "rate": 24_000}));
    let expected = json!({"model": "ears", "language": "de", "prompt": "Antiphon. Haggard"});
    assert_eq!(input["transcription"], expected);
    assert!(input["turn_detection"].is_null() && input.get("turn_detection").is_some());
    assert_eq!(seen.len(), 3, "an update and two commits");
    assert_eq!(upgrade.target, "/v1/realtime?intent=transcription");
    assert!(upgrade.header("authorization").is_none(), "there is no key");
}

#[tokio::test]
async fn an_utterance_without_audio_asks_nothing() {
    let (server, seen) = openai_server();
    assert_eq!(opened(&engine(&server.url(""))).await.finish().await.expect("an answer").text, "");
    assert!(seen.lock().unwrap().iter().all(|event| event["type"] != "input_audio_buffer.commit"));
}

#[tokio::test]
async fn a_provisional_transcript_that_is_given_up_loses_no_words() {
    let (server, _) = openai_server();
    let mut utterance = opened(&engine(&server.url(""))).await;
    utterance.push(vec![7; 3_200]).await.expect("room");
    // Polled once: the commit is on its way.
    let _ = utterance.provisional().now_or_never();
    utterance.push(vec![7; 4_800]).await.expect("room");
    assert_eq!(utterance.finish().await.expect("an answer").text, "4800 samples 7200 samples");
}

#[tokio::test]
async fn vllm_generates_between_two_commits() {
    let server = TestServer::websocket(|mut socket| async move {
        say(&mut socket, json!({"type": "session.created", "id": "sess-1", "created": 1})).await;
        let update = next(&mut socket).await.expect("an update");
        assert_eq!(update, json!({"type": "session.update", "model": "ears"}));
        let mut n_samples = 0;
        let mut is_generating = false;
        while let Some(event) = next(&mut socket).await {
            match (event["type"].as_str(), event["final"].as_bool()) {
                (Some("input_audio_buffer.append"), _) => {
                    assert!(is_generating, "audio outside of a generation");
                    n_samples += samples(&event);
                }
                (Some("input_audio_buffer.commit"), Some(true)) => {
                    is_generating = false;
                    say(&mut socket, json!({"type": "transcription.delta", "delta": "so"})).await;
                    let text = format!("{n_samples} samples");
                    say(&mut socket, json!({"type": "transcription.done", "text": text, "usage": null})).await;
                    n_samples = 0;
                }
                _ => is_generating = true,
            }
        }
    });
    let mut utterance = opened(&engine(&server.url(""))).await;
    utterance.push(vec![7; 3_200]).await.expect("room");
    assert_eq!(utterance.provisional().await.expect("an answer").text, "3200 samples");
    utterance.push(vec![7; 1_600]).await.expect("room");
    assert_eq!(utterance.finish().await.expect("an answer").text, "3200 samples 1600 samples");
}

/// A server of NIM's dialect that hears "first" and then "N samples", and the number of its connections.
fn nim_server() -> (TestServer, Arc<AtomicUsize>) {
    let n_connections = Arc::new(AtomicUsize::new(0));
    let counted = n_connections.clone();
    let server = TestServer::websocket(move |mut socket| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            say(&mut socket, json!({"type": "conversation.created"})).await;
            let update = next(&mut socket).await.expect("an update");
            assert_eq!(update["type"], "transcription_session.update");
            assert_eq!(update["session"]["input_audio_params"]["sample_rate_hz"], 16_000);
            let mut n_samples = 0;
            while let Some(event) = next(&mut socket).await {
                match event["type"].as_str() {
                    Some("input_audio_buffer.append") => n_samples += samples(&event),
                    Some("input_audio_buffer.done") => break,
                    _ => {}
                }
            }
            say(&mut socket, json!({"type": DELTA, "delta": "fir"})).await;
            say(&mut socket, json!({"type": COMPLETED, "transcript": "first", "is_last_result": false})).await;
            let transcript = format!("{n_samples} samples");
            say(&mut socket, json!({"type": COMPLETED, "transcript": transcript, "is_last_result": true})).await;
        }
    });
    (server, n_connections)
}

#[tokio::test]
async fn nim_divides_the_speech_and_ends_the_connection_with_it() {
    let (server, n_connections) = nim_server();
    let mut utterance = opened(&engine(&server.url(""))).await;
    utterance.push(vec![7; 3_200]).await.expect("room");
    assert_eq!(utterance.provisional().await.expect("an answer").text, "first 3200 samples");
    utterance.push(vec![7; 1_600]).await.expect("another connection");
    assert_eq!(utterance.finish().await.expect("an answer").text, "first 3200 samples first 1600 samples");
    assert_eq!(n_connections.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn nim_gets_no_audio_behind_the_end_of_a_provisional_transcript_that_is_given_up() {
    for is_answer_read in [false, true] {
        let (server, n_connections) = nim_server();
        let mut utterance = opened(&engine(&server.url(""))).await;
        utterance.push(vec![7; 3_200]).await.expect("room");
        // Polled once: the end is on its way.
        let _ = utterance.provisional().now_or_never();
        if is_answer_read {
            server.all_closed().await;
            while utterance.partial().await.expect("an answer").expect("it has partials").text != "first 3200 samples" {
                tokio::task::yield_now().await;
            }
        }
        utterance.push(vec![7; 1_600]).await.expect("another connection");
        let said = utterance.finish().await.expect("an answer");
        assert_eq!(said.text, "first 3200 samples first 1600 samples", "{is_answer_read}");
        assert_eq!(n_connections.load(Ordering::Relaxed), 2, "{is_answer_read}");
    }
}

#[tokio::test]
async fn nim_gets_the_audio_of_a_push_that_is_given_up_behind_a_provisional_transcript() {
    for is_pushed_again in [false, true] {
        let (server, _) = nim_server();
        let mut utterance = opened(&engine(&server.url(""))).await;
        utterance.push(vec![7; 3_200]).await.expect("room");
        // Polled once each: the end is on its way, and the next audio waits for the words before it.
        let _ = utterance.provisional().now_or_never();
        let pushed = utterance.push(vec![7; 1_600]).now_or_never();
        assert!(pushed.is_none(), "{is_pushed_again}");
        if is_pushed_again {
            utterance.push(vec![7; 800]).await.expect("another connection");
        }
        let n_samples = if is_pushed_again { 2_400 } else { 1_600 };
        let said = utterance.finish().await.expect("an answer");
        assert_eq!(said.text, format!("first 3200 samples first {n_samples} samples"));
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_made_once_more_with_all_audio() {
    let n_connections = Arc::new(AtomicUsize::new(0));
    let counted = n_connections.clone();
    let server = TestServer::websocket(move |mut socket| {
        let number = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            if number == 0 {
                say(&mut socket, json!({"type": "session.created", "session": {}})).await;
                let _ = next(&mut socket).await;
                let _ = next(&mut socket).await;
                say(&mut socket, json!({"type": DELTA, "item_id": "x", "delta": "lost"})).await;
                return;
            }
            openai(&mut socket, Arc::default()).await;
        }
    });
    let mut utterance = opened(&engine(&server.url(""))).await;
    for _ in 0..5 {
        utterance.push(vec![7; 3_200]).await.expect("room");
        tokio::task::yield_now().await;
    }
    assert_eq!(utterance.finish().await.expect("an answer").text, "24000 samples");
    assert_eq!(n_connections.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_connection_that_is_made_once_more_repeats_no_words_that_were_final() {
    let n_connections = Arc::new(AtomicUsize::new(0));
    let counted = n_connections.clone();
    let server = TestServer::websocket(move |mut socket| {
        let number = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            if number > 0 {
                return openai(&mut socket, Arc::default()).await;
            }
            say(&mut socket, json!({"type": "session.created", "session": {}})).await;
            let mut has_answered = false;
            while let Some(event) = next(&mut socket).await {
                match event["type"].as_str() {
                    Some("input_audio_buffer.commit") => {
                        say(&mut socket, json!({"type": COMPLETED, "item_id": "a", "transcript": "settled"})).await;
                        has_answered = true;
                    }
                    Some("input_audio_buffer.append") if has_answered => break,
                    _ => {}
                }
            }
            // It divides the speech itself, and breaks off.
            let last = json!({"type": COMPLETED, "item_id": "b", "transcript": "twice", "is_last_result": false});
            say(&mut socket, last).await;
        }
    });
    let mut utterance = opened(&engine(&server.url(""))).await;
    utterance.push(vec![7; 1_600]).await.expect("room");
    assert_eq!(utterance.provisional().await.expect("an answer").text, "settled");
    utterance.push(vec![7; 3_200]).await.expect("room");
    while utterance.partial().await.expect("an answer").expect("it has partials").text != "settled twice" {
        tokio::task::yield_now().await;
    }
    assert_eq!(utterance.finish().await.expect("an answer").text, "settled 4800 samples");
    assert_eq!(n_connections.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_failure_that_a_partial_transcript_reads_is_the_next_steps_which_connects_once_more() {
    let n_connections = Arc::new(AtomicUsize::new(0));
    let counted = n_connections.clone();
    let reported = Arc::new(Notify::new());
    let has_reported = reported.clone();
    let server = TestServer::websocket(move |mut socket| {
        let number = counted.fetch_add(1, Ordering::Relaxed);
        let has_reported = has_reported.clone();
        async move {
            if number > 0 {
                return openai(&mut socket, Arc::default()).await;
            }
            say(&mut socket, json!({"type": "session.created", "session": {}})).await;
            while next(&mut socket).await.is_some_and(|event| event["type"] != "input_audio_buffer.append") {}
            say(&mut socket, json!({"type": DELTA, "item_id": "x", "delta": "lost"})).await;
            say(&mut socket, json!({"type": "error", "error": {"message": "out of memory"}})).await;
            has_reported.notify_one();
            // It says nothing more, and leaves the connection open.
            while next(&mut socket).await.is_some() {}
        }
    });
    let mut utterance = opened(&engine(&server.url(""))).await;
    utterance.push(vec![7; 3_200]).await.expect("room");
    reported.notified().await;
    while utterance.partial().await.expect("an answer").expect("it has partials").text != "lost" {
        tokio::task::yield_now().await;
    }
    assert_eq!(utterance.finish().await.expect("an answer").text, "4800 samples");
    assert_eq!(n_connections.load(Ordering::Relaxed), 2);
}

/// How an utterance ends with a server that does this once it has the audio.
async fn failing<F: Future<Output = ()> + Send + 'static>(
    then: impl Fn(WebSocket) -> F + Clone + Send + Sync + 'static,
) -> String {
    let server = TestServer::websocket(move |mut socket| {
        let then = then.clone();
        async move {
            say(&mut socket, json!({"type": "session.created", "session": {}})).await;
            while let Some(event) = next(&mut socket).await {
                if event["type"] == "input_audio_buffer.commit" {
                    break;
                }
            }
            then(socket).await;
        }
    });
    let mut utterance = opened(&engine(&server.url(""))).await;
    utterance.push(vec![7; 3_200]).await.expect("room");
    let error = utterance.finish().await.expect_err("it failed");
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn servers_that_hang_trickle_close_or_say_nonsense_end_the_utterance_in_time() {
    let hangs = failing(|socket| async move {
        let _open = socket;
        std::future::pending::<()>().await;
    });
    assert!(hangs.await.contains("gave no answer within 4s"));
    let trickles = failing(|mut socket| async move {
        loop {
            say(&mut socket, json!({"type": DELTA, "item_id": "i", "delta": "a"})).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    assert!(trickles.await.contains("gave no answer within 4s"), "only a final transcript ends the wait");
    assert!(failing(|_| async {}).await.contains("in the middle of the speech"));
    let nonsense = failing(|mut socket| async move {
        let _ = socket.send(Frame::Text("{\"type\": 7".into())).await;
        let _ = next(&mut socket).await;
    });
    assert!(nonsense.await.contains("sent what is no transcription"));
    let without = failing(|mut socket| async move {
        say(&mut socket, json!({"type": COMPLETED, "item_id": "i"})).await;
        let _ = next(&mut socket).await;
    });
    assert!(without.await.contains("a completed item has no transcript"));
    let reports = failing(|mut socket| async move {
        let error = json!({"message": "no such model: ears", "code": "x"});
        say(&mut socket, json!({"type": "error", "error": error})).await;
        let _ = next(&mut socket).await;
    });
    assert!(reports.await.contains("reported: no such model: ears"));
}

/// A server of OpenAI's dialect whose transcripts come this long after the end of speech.
fn late_server(by: Duration) -> TestServer {
    TestServer::websocket(move |mut socket| async move {
        say(&mut socket, json!({"type": "session.created", "session": {}})).await;
        while let Some(event) = next(&mut socket).await {
            if event["type"] == "input_audio_buffer.commit" {
                tokio::time::sleep(by).await;
                say(&mut socket, json!({"type": COMPLETED, "item_id": "i", "transcript": "late"})).await;
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_segment_of_a_file_has_time_by_its_length() {
    let server = late_server(Duration::from_secs(10));
    let engine = engine(&server.url(""));
    let queued = engine.open_queued(SttOptions::default()).await.await;
    for (mut utterance, expected) in [(queued.expect("it connects"), true), (opened(&engine).await, false)] {
        utterance.push(vec![7; 16_000]).await.expect("room");
        match utterance.finish().await {
            Ok(transcript) => assert_eq!((transcript.text.as_str(), expected), ("late", true)),
            Err(SttError::Timeout(after)) => assert_eq!((after, expected), (Duration::from_secs(4), false)),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(engine.hedge_delay(), Some(Duration::from_secs(1)), "it is no measure of live answers");
}

#[tokio::test(start_paused = true)]
async fn a_hedged_request_waits_for_as_long_as_transcripts_usually_take() {
    let server = late_server(Duration::from_secs(2));
    let engine = engine(&server.url(""));
    assert_eq!(engine.hedge_delay(), Some(Duration::from_secs(1)));
    let mut utterance = opened(&engine).await;
    utterance.push(vec![7; 3_200]).await.expect("room");
    // The time in which it is spoken does not count.
    tokio::time::sleep(Duration::from_secs(60)).await;
    utterance.finish().await.expect("an answer");
    let delay = engine.hedge_delay().expect("there is one");
    assert!((Duration::from_secs(2)..Duration::from_secs(4)).contains(&delay), "{delay:?}");
}

#[tokio::test(start_paused = true)]
async fn floods_of_words_items_and_events_are_refused() {
    let long = failing(|mut socket| async move {
        for _ in 0..100 {
            say(&mut socket, json!({"type": DELTA, "item_id": "i", "delta": "word ".repeat(200)})).await;
        }
        let _ = next(&mut socket).await;
    });
    assert!(long.await.contains("longer than anybody speaks"));
    let many = failing(|mut socket| async move {
        for item in 0..2_000 {
            say(&mut socket, json!({"type": DELTA, "item_id": format!("i{item}"), "delta": ""})).await;
        }
        let _ = next(&mut socket).await;
    });
    assert!(many.await.contains("longer than anybody speaks"));
    let endless = failing(|mut socket| async move {
        let event = json!({"type": "something.new", "with": "x".repeat(10_000)});
        while socket.send(Frame::Text(event.to_string().into())).await.is_ok() {}
    });
    assert!(endless.await.contains("more messages than the audio has words"));
    let huge = failing(|mut socket| async move {
        say(&mut socket, json!({"type": "something.new", "with": "x".repeat(2 << 20)})).await;
        let _ = next(&mut socket).await;
    });
    assert!(huge.await.contains("too long a message"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_no_audio_makes_the_speaker_wait_and_then_fails() {
    let server = TestServer::websocket(|mut socket| async move {
        say(&mut socket, json!({"type": "session.created", "session": {}})).await;
        std::future::pending::<()>().await;
    });
    let mut utterance = opened(&engine(&server.url(""))).await;
    let error = loop {
        if let Err(error) = utterance.push(vec![7; 160_000]).await {
            break error;
        }
    };
    assert!(matches!(error, SttError::Timeout(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_speaks_or_refuses_is_not_asked_for_long() {
    let server = TestServer::websocket(|socket| async move {
        let _open = socket;
        std::future::pending::<()>().await;
    });
    let silent = engine(&server.url(""));
    for _ in 0..5 {
        assert!(matches!(silent.open(SttOptions::default()).await, Err(SttError::Timeout(_))));
    }
    let open = silent.open(SttOptions::default()).await;
    assert!(matches!(open, Err(SttError::Away(_))), "its breaker is open");
    assert_eq!(silent.upstreams().expect("a server").engines[0].state, BreakerState::Open);

    let refused = |status| async move {
        let server = TestServer::start(move |_| Answer::status(status));
        engine(&server.url("")).open(SttOptions::default()).await.err().expect("refused").to_string()
    };
    assert!(refused(401).await.contains("answered 401 Unauthorized to the WebSocket"));
    assert!(refused(503).await.contains("answered 503"));
    let nobody = engine("http://127.0.0.1:9").open(SttOptions::default()).await.err().expect("nobody there");
    assert!(nobody.to_string().contains("cannot be reached"), "{nobody}");
}
