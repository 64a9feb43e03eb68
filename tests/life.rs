//! Session lifetime: expiry on paused time, pings and dead peers on real sockets.

use crate::hub::{Hub, engines};
use crate::pressure::{say, setup, until};
use antiphon::config::Config;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_session::{AudioMode, Message, Opening};
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

/// All messages of a session from now to its end, each with the seconds since the start, and the close code.
async fn last_words(opening: Opening) -> (Vec<(u64, Value)>, u16) {
    let setup = setup(engines(FakeStt::default(), FakeLlm::default(), FakeTts::default()));
    let begun = Instant::now();
    let session = setup.open(opening);
    let mut events = Vec::new();
    loop {
        match session.egress.next_message().await {
            Ok(Message::Text(text)) => {
                events.push((begun.elapsed().as_secs(), serde_json::from_str(&text).expect("JSON")));
            }
            Ok(Message::Binary(_)) => panic!("nobody spoke"),
            Err(close) => return (events, close.code),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_after_an_hour_with_the_protocols_error() {
    let (events, close) = last_words(Opening::default()).await;
    assert_eq!(close, 1001);
    let kinds: Vec<_> = events.iter().map(|(at, event)| (*at, event["type"].as_str().expect("text"))).collect();
    assert_eq!(kinds, [(0, "session.created"), (3_600, "error")], "a GA client gets no private event");
    assert_eq!(events[1].1["error"]["code"], "session_expired");
    let expires_at = events[0].1["session"]["expires_at"].as_u64().expect("seconds");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    assert!((now + 3_500..=now + 3_600).contains(&expires_at), "{expires_at}");
}

#[tokio::test(start_paused = true)]
async fn a_client_of_the_extension_is_told_a_minute_before() {
    let (events, _) = last_words(Opening { mode: AudioMode::Opus, ..Opening::default() }).await;
    let (at, notice) = &events[1];
    assert_eq!((*at, &notice["type"], &notice["in_s"]), (3_540, &json!("antiphon.session.expiring"), &json!(60)));
    assert_eq!(notice["expires_at"], events[0].1["session"]["expires_at"]);
    assert_eq!(events[2].0, 3_600);
}

#[tokio::test(start_paused = true)]
async fn a_detached_session_holds_its_audio_and_lives_on() {
    let setup = setup(engines(FakeStt::default(), FakeLlm::says(["A reply of some length."]), FakeTts::default()));
    let opening = Opening { mode: AudioMode::Pcm16, resume_key: Some("rk_1".into()), ..Opening::default() };
    let session = setup.open(opening);
    let created = until(&session, "antiphon.session.resumable").await;
    assert_eq!(created.last().expect("told")["key"], "rk_1");
    let mut number = created.len() as u64;
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go"}]});
    say(&session, json!({"type": "conversation.item.create", "item": item})).await;
    say(&session, json!({"type": "response.create"})).await;
    number += until(&session, "response.created").await.len() as u64;
    // The connection breaks during the response, and the client stays away for longer than the reply's duration.
    session.egress.detach();
    tokio::time::sleep(Duration::from_secs(25)).await;
    session.egress.attach(number).expect("it can be taken up");
    let mut n_frames = 0;
    let returned = Instant::now();
    let mut ended = None;
    while ended.is_none() {
        match session.egress.next_message().await.expect("it lives") {
            Message::Binary(_) => n_frames += 1,
            Message::Text(text) if text.contains("\"antiphon.output_audio.sent\"") => ended = Some(returned.elapsed()),
            Message::Text(_) => {}
        }
    }
    // 23 characters at 50 ms, in frames of 20 ms; all but the lead of 300 ms is paced after the return.
    assert_eq!(n_frames, 58);
    assert!(ended.expect("there") > Duration::from_millis(500), "playback waited for the client: {ended:?}");
}

fn quick_pings() -> Config {
    let mut config = Config::default();
    config.server.ping_seconds = 1;
    config
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_pings_stays_and_a_dead_one_is_closed() {
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let hub = Hub::start(engines, quick_pings()).await;
    let mut alive = hub.connect("").await;
    // A peer that accepts data but sends nothing, not even pongs, because its library is never polled.
    let dead = hub.connect("").await;
    let tungstenite_stream = dead.stream.into_inner();
    let answering = async {
        loop {
            let message = alive.stream.next().await.expect("the connection stands").expect("a message");
            assert!(!message.is_close(), "it was closed");
        }
    };
    let gone = async {
        let tokio_tungstenite::MaybeTlsStream::Plain(mut stream) = tungstenite_stream else { panic!("plain") };
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.expect("the hub closes");
        bytes
    };
    let bytes = tokio::select! { () = answering => unreachable!(), bytes = gone => bytes };
    // Two pings of eight bytes, then a close with 1011.
    let pings = bytes.windows(2).filter(|pair| *pair == [0x89, 8]).count();
    assert_eq!(pings, 2, "{bytes:?}");
    assert!(bytes.windows(2).any(|pair| pair == 1011_u16.to_be_bytes()), "{bytes:?}");
    hub.until("antiphon_sessions_active ", 1.0).await;
}
