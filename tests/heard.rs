//! Heard versus sent: a client's clock, its playback reports, and their effects.

use crate::framed::speak;
use crate::hub::{Hub, Socket, engines, loud, quiet};
use crate::turns::{check_parts, get, ms, turn};
use antiphon::config::Config;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// A client's clock, with an offset from the hub's.
struct Clock(Instant);

impl Clock {
    fn ms(&self) -> f64 {
        5_000.0 + self.0.elapsed().as_secs_f64() * 1e3
    }

    /// Sends two pings, so that the hub can estimate the clock.
    async fn tell(&self, socket: &mut Socket) {
        // The tests send audio in one burst, so it is reported as captured 2 s earlier.
        let microphone_ms = self.ms() - 2_000.0;
        socket
            .send(json!({"type": "antiphon.clock.ping", "client_ms": self.ms(), "microphone_ms": microphone_ms}))
            .await;
        let pong = socket.until("antiphon.clock.pong").await.pop().expect("the answer");
        assert!(ms(&pong["hub_ms"]) < 5_000.0 && ms(&pong["client_ms"]) >= 5_000.0, "{pong}");
        let answered = self.ms();
        socket.send(json!({"type": "antiphon.clock.ping", "client_ms": self.ms(), "pong_ms": answered})).await;
        socket.until("antiphon.clock.pong").await;
    }
}

/// The item of the latest reply.
fn reply_item(socket: &Socket) -> String {
    let last = socket.frames.last().expect("a frame");
    let frame = antiphon_protocol::frame::Frame::parse(last).expect("a frame");
    match frame.kind {
        antiphon_protocol::frame::FrameKind::Reply { item_id } => item_id.to_string(),
        antiphon_protocol::frame::FrameKind::Microphone => panic!("the hub has no microphone"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_sound_is_when_the_client_says_on_its_own_clock() {
    let stt = FakeStt::hears(["what time is it"]);
    let hub = Hub::start(engines(stt, FakeLlm::says(["Ten."]), FakeTts::default()), Config::default()).await;
    let mut socket = hub.connect("?audio=pcm16").await;
    let clock = Clock(Instant::now());
    let mut sequence = 0;
    clock.tell(&mut socket).await;
    speak(&mut socket, &mut sequence, &loud(500)).await;
    speak(&mut socket, &mut sequence, &quiet(600)).await;
    socket.until_frames(1).await;
    let item = reply_item(&socket);
    // The latency of the loudspeaker.
    tokio::time::sleep(Duration::from_millis(40)).await;
    let sounded = clock.ms();
    let report = json!({"type": "output_audio_buffer.played", "item_id": item, "audio_end_ms": 10, "at_ms": clock.ms(),
                        "first_sound_ms": sounded, "n_underruns": 2, "underrun_ms": 70});
    socket.send(report).await;
    // The client learns the figure of the record: of the events of a turn, the last one has it.
    let told = loop {
        let event = socket.until("antiphon.timeline").await.pop().expect("the timeline");
        if !event["marks"]["first_audio_heard"].is_null() {
            break event;
        }
    };
    let turn = turn(&hub, |turn| turn["settled"] == true).await;
    assert_eq!(turn["heard_by"], "report");
    let marks = &turn["marks"];
    assert_eq!(told["marks"]["first_audio_heard"], marks["first_audio_heard"]);
    let heard = ms(&marks["first_audio_heard"]);
    assert!(heard - ms(&marks["first_audio_sent"]) >= 35.0, "{turn}");
    assert_eq!(ms(&turn["voice_to_voice_ms"]), heard);
    assert_eq!(check_parts(&turn).last().map(String::as_str), Some("playback"));
    assert!(ms(&turn["mouth_to_ear_ms"]) >= 40.0, "{turn}");
    assert_eq!((&turn["audio"]["n_underruns"], &turn["audio"]["underrun_ms"]), (&json!(2), &json!(70.0)));
    assert_eq!(hub.metric("antiphon_underruns_total "), 2.0);
    assert_eq!(hub.metric("antiphon_latency_seconds_count{stage=\"voice_to_ear\"} "), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_wrong_hears_nothing_before_it_was_sent() {
    let hub =
        Hub::start(engines(FakeStt::hears(["hello"]), FakeLlm::says(["Ten."]), FakeTts::default()), Config::default())
            .await;
    let mut socket = hub.connect("?audio=pcm16").await;
    let clock = Clock(Instant::now());
    let mut sequence = 0;
    clock.tell(&mut socket).await;
    speak(&mut socket, &mut sequence, &loud(500)).await;
    speak(&mut socket, &mut sequence, &quiet(600)).await;
    socket.until_frames(1).await;
    let item = reply_item(&socket);
    socket
        .send(json!({"type": "output_audio_buffer.played", "item_id": item, "audio_end_ms": 1, "first_sound_ms": 0}))
        .await;
    let turn = turn(&hub, |turn| turn["heard_by"] == "report").await;
    assert_eq!(turn["marks"]["first_audio_heard"], turn["marks"]["first_audio_sent"]);
    check_parts(&turn);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_was_heard_to_its_end_is_recorded_so_when_the_client_leaves() {
    let hub = Hub::start(
        engines(FakeStt::default(), FakeLlm::says(["Ten past ten."]), FakeTts::default()),
        Config::default(),
    )
    .await;
    let mut socket = hub.connect("?audio=pcm16").await;
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello?"}]});
    socket.send(json!({"type": "conversation.item.create", "item": item})).await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until("antiphon.output_audio.sent").await;
    // It leaves in the moment in which it has heard the last of it.
    let item = reply_item(&socket);
    socket.send(json!({"type": "output_audio_buffer.played", "item_id": item, "audio_end_ms": 650})).await;
    socket.send(json!({"type": "antiphon.clock.ping", "client_ms": 1})).await;
    socket.until("antiphon.clock.pong").await;
    drop(socket);
    let turn = turn(&hub, |turn| turn["settled"] == true).await;
    assert_eq!((&turn["heard"], &turn["audio"]["heard_ms"]), (&json!("Ten past ten."), &json!(650.0)), "{turn}");
}

#[tokio::test(start_paused = true)]
async fn a_barge_in_keeps_the_words_up_to_where_playback_stopped() {
    // Each word takes 250 ms.
    let llm = FakeLlm::says([&"long ".repeat(40)[..], "Fine."]);
    let hub =
        Hub::start(engines(FakeStt::hears(["stop that"]), llm.clone(), FakeTts::default()), Config::default()).await;
    let mut socket = hub.connect("?audio=pcm16").await;
    let mut sequence = 0;
    speak(&mut socket, &mut sequence, &quiet(100)).await;
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Tell me"}]});
    socket.send(json!({"type": "conversation.item.create", "item": item})).await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until_frames(20).await;
    let item = reply_item(&socket);
    speak(&mut socket, &mut sequence, &loud(400)).await;
    let events = socket.until("output_audio_buffer.cleared").await;
    let heard = events.iter().find(|event| event["type"] == "antiphon.item.heard").expect("the words of the history");
    assert_eq!(heard["item_id"], json!(item));
    assert!("long ".repeat(40).starts_with(heard["transcript"].as_str().expect("words")), "{heard}");
    let report = |ms: u32, stopped: bool| json!({"type": "output_audio_buffer.played", "item_id": item, "audio_end_ms": ms, "stopped": stopped});
    socket.send(report(300, true)).await;
    let moved = socket.until("antiphon.item.heard").await.pop().expect("the words after the report");
    assert_eq!((&moved["item_id"], &moved["transcript"]), (&json!(item), &json!("long")));
    speak(&mut socket, &mut sequence, &quiet(700)).await;
    socket.until("response.created").await;
    let (_, list) = get(&hub, "/api/turns").await;
    let cut = list["turns"].as_array().expect("a list").iter().find(|turn| turn["barged_in"] == true);
    let cut: &Value = cut.expect("the reply was cut");
    assert_eq!((&cut["heard"], &cut["audio"]["heard_ms"]), (&json!("long"), &json!(300.0)), "{cut}");
    socket.until("response.done").await;
    let history = format!("{:?}", llm.requests()[1].messages);
    assert_eq!(history.matches("long").count(), 1, "{history}");
}
