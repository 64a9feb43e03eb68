//! The binary audio mode: paced frames, holding, clearing, reports of what was played.

use crate::hub::{Hub, Socket, engines, hub, loud, quiet};
use antiphon::audio::codec::OpusOut;
use antiphon::config::Config;
use antiphon::llm::fake::FakeLlm;
use antiphon::stt::fake::FakeStt;
use antiphon::tts::fake::FakeTts;
use antiphon::units::Samples;
use antiphon::wire::frame::{Frame, FrameKind};
use bytes::Bytes;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

/// Sends microphone frames of 20 ms.
async fn speak(socket: &mut Socket, sequence: &mut u32, pcm: &[i16]) {
    for chunk in pcm.chunks(480) {
        let payload: Vec<u8> = chunk.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        frame(socket, sequence, Bytes::from(payload)).await;
    }
}

async fn frame(socket: &mut Socket, sequence: &mut u32, payload: Bytes) {
    let offset = Samples(u64::from(*sequence) * 480);
    let frame = Frame { kind: FrameKind::Microphone, sequence: *sequence, offset, payload };
    *sequence += 1;
    socket.send_raw(Message::Binary(frame.encode().expect("it fits"))).await;
}

/// The reply frames so far: item, offset, length in bytes.
fn replies(socket: &Socket) -> Vec<(String, u64, usize)> {
    let parse = |bytes: &Bytes| Frame::parse(bytes).expect("a frame");
    let frames = socket.frames.iter().map(parse);
    frames
        .map(|frame| match frame.kind {
            FrameKind::Reply { item_id } => (item_id.to_string(), frame.offset.0, frame.payload.len()),
            FrameKind::Microphone => panic!("the hub has no microphone"),
        })
        .collect()
}

#[tokio::test]
async fn a_turn_in_frames_is_answered_in_frames() {
    let hub = hub("what time is it", "Ten.").await;
    let mut socket = hub.connect("?audio=pcm16").await;
    let mut sequence = 0;
    speak(&mut socket, &mut sequence, &loud(500)).await;
    speak(&mut socket, &mut sequence, &quiet(600)).await;
    let events = socket.until("antiphon.timeline").await;
    let marks = &events.last().expect("there")["marks"];
    let order = [
        "speech_end",
        "end_confirmed",
        "stt_final",
        "llm_first_token",
        "first_chunk",
        "tts_first_audio",
        "first_audio_sent",
    ];
    let times: Vec<f64> =
        order.iter().map(|name| marks[name].as_f64().unwrap_or_else(|| panic!("{name} in {marks}"))).collect();
    assert!(times.is_sorted(), "{marks}");
    socket.until_frames(10).await;
    let frames = replies(&socket);
    assert_eq!(frames.len(), 10, "200 ms of tone in frames of 20 ms");
    for (i, (_, offset, n_bytes)) in frames.iter().enumerate() {
        assert_eq!((*offset, *n_bytes), (i as u64 * 480, 960));
    }
    assert!(!events.iter().any(|event| event["type"] == "response.output_audio.delta"));
}

#[tokio::test]
async fn opus_comes_in_and_goes_out() {
    let hub = hub("hello", "Hello you.").await;
    let mut socket = hub.connect("?audio=opus").await;
    let mut encoder = OpusOut::new().expect("an encoder");
    let mut audio = loud(600);
    audio.extend(quiet(700));
    let mut packets = Vec::new();
    encoder.push(&audio, &mut |packet: &[u8]| packets.push(Bytes::copy_from_slice(packet))).expect("encoded");
    let mut sequence = 0;
    for (i, packet) in packets.into_iter().enumerate() {
        if i == 10 {
            sequence += 1; // One packet is lost on the way.
            continue;
        }
        frame(&mut socket, &mut sequence, packet).await;
    }
    frame(&mut socket, &mut sequence, Bytes::from_static(&[0xff; 3])).await;
    let events = socket.until("response.done").await;
    let error = events.iter().find(|event| event["type"] == "error").expect("the corrupt packet is told");
    assert!(error["error"]["message"].as_str().expect("text").contains("Invalid 'audio'"), "{error}");
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
    socket.until_frames(20).await;
    assert!(replies(&socket).iter().all(|(_, _, n_bytes)| *n_bytes < 400), "Opus is small");
}

/// A conversation in frames whose reply of 10 s is sounding.
async fn sounding() -> (Hub, Socket, FakeLlm, u32) {
    let llm = FakeLlm::says([&"long ".repeat(40)[..], "Fine."]);
    let hub =
        Hub::start(engines(FakeStt::hears(["stop that"]), llm.clone(), FakeTts::default()), Config::default()).await;
    let mut socket = hub.connect("?audio=pcm16").await;
    let mut sequence = 0;
    speak(&mut socket, &mut sequence, &quiet(100)).await;
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Tell me"}]});
    socket.send(json!({"type": "conversation.item.create", "item": item})).await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until("response.output_audio_transcript.delta").await;
    socket.until_frames(20).await;
    (hub, socket, llm, sequence)
}

impl Socket {
    async fn until_frames(&mut self, n: usize) {
        while self.frames.len() < n {
            match futures_util::StreamExt::next(&mut self.stream).await.expect("more").expect("whole") {
                Message::Binary(bytes) => self.frames.push(bytes),
                Message::Close(frame) => panic!("closed: {frame:?}"),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn a_cough_holds_and_speech_stops_the_reply() {
    let (_hub, mut socket, llm, mut sequence) = sounding().await;
    // 60 ms: a cough.
    speak(&mut socket, &mut sequence, &loud(60)).await;
    speak(&mut socket, &mut sequence, &quiet(300)).await;
    let events = socket.until("output_audio_buffer.resumed").await;
    assert!(events.iter().any(|event| event["type"] == "output_audio_buffer.held"), "{events:?}");
    assert!(!events.iter().any(|event| event["type"] == "input_audio_buffer.speech_started"));
    let heard_ms = 500;
    let (item, ..) = replies(&socket)[0].clone();
    socket.send(json!({"type": "output_audio_buffer.played", "item_id": item, "audio_end_ms": heard_ms})).await;
    speak(&mut socket, &mut sequence, &loud(300)).await;
    let events = socket.until("output_audio_buffer.cleared").await;
    assert!(events.iter().any(|event| event["type"] == "output_audio_buffer.held"));
    let done = events.iter().find(|event| event["type"] == "response.done").expect("the response ends");
    assert_eq!(done["response"]["status_details"]["reason"], "turn_detected");
    let n_frames = socket.frames.len();
    speak(&mut socket, &mut sequence, &quiet(600)).await;
    socket.until("response.created").await;
    assert_eq!(socket.frames.len(), n_frames, "nothing is sent after the stop");
    socket.until("response.done").await;
    let history = format!("{:?}", llm.requests()[1].messages);
    // 500 ms and the moments since: two or three words of "long long long ...", not the 1 s that was sent.
    let n_words = history.matches("long").count();
    assert!((1..=4).contains(&n_words), "{n_words} words: {history}");
}

#[tokio::test]
async fn a_foreign_format_is_refused_in_frames() {
    let hub = hub("", "x").await;
    let mut socket = hub.connect("?audio=pcm16").await;
    let audio = json!({"output": {"format": {"type": "audio/pcmu"}}});
    socket.send(json!({"type": "session.update", "session": {"type": "realtime", "audio": audio}})).await;
    assert_eq!(socket.next().await["error"]["code"], "invalid_value");
    assert_eq!(hub.open("?audio=mp3").await.err(), Some(400));
}
