//! The binary audio mode: pacing, holding and clearing of reply audio, and playback reports.

use crate::hub::{Hub, Socket, engines, hub, loud, quiet};
use antiphon::config::Config;
use antiphon_audio::codec::{Delivery, OpusOut};
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::tts::SpeechRequest;
use antiphon_engines::vad::Earshot;
use antiphon_protocol::frame::{Frame, FrameKind};
use antiphon_types::{Pcm, SampleRate, Samples};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;

/// Sends microphone frames of 20 ms.
pub async fn speak(socket: &mut Socket, sequence: &mut u32, pcm: &[i16]) {
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

/// The reply frames received so far: item, offset, length in bytes.
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

#[tokio::test(start_paused = true)]
async fn a_turn_in_frames_is_answered_in_frames() {
    let hub = hub("what time is it", "Ten.").await;
    let mut socket = hub.connect("?audio=pcm16").await;
    let mut sequence = 0;
    speak(&mut socket, &mut sequence, &loud(500)).await;
    speak(&mut socket, &mut sequence, &quiet(600)).await;
    let events = socket.until("antiphon.timeline").await;
    let marks = &events.last().expect("there")["marks"];
    let in_order = |names: &[&str]| {
        let at = |name: &&str| marks[*name].as_f64().unwrap_or_else(|| panic!("{name} in {marks}"));
        names.iter().map(at).is_sorted()
    };
    // The response was started at the pause, before the end was confirmed.
    assert!(in_order(&["speech_end", "end_confirmed", "first_audio_sent"]), "{marks}");
    let answer = ["speech_end", "stt_final", "llm_first_token", "first_chunk", "tts_first_audio", "first_audio_sent"];
    assert!(in_order(&answer), "{marks}");
    socket.until_frames(10).await;
    let frames = replies(&socket);
    assert_eq!(frames.len(), 10, "200 ms of tone in frames of 20 ms");
    for (i, (_, offset, n_bytes)) in frames.iter().enumerate() {
        assert_eq!((*offset, *n_bytes), (i as u64 * 480, 960));
    }
    assert!(!events.iter().any(|event| event["type"] == "response.output_audio.delta"));
}

/// Whether a frame's Opus packet holds a copy of the one before: RFC 6716, sections 3.1 and 4.2.3, for one channel and 20 ms.
fn has_fec(frame: &Bytes) -> bool {
    let packet = Frame::parse(frame).expect("a frame").payload;
    let has_silk = packet[0] >> 3 < 16;
    has_silk && packet[1] & 0x40 != 0
}

#[tokio::test(start_paused = true)]
async fn opus_comes_in_and_goes_out() {
    let hub = hub("hello", "Hello you.").await;
    let mut socket = hub.connect("?audio=opus").await;
    let mut encoder = OpusOut::new(Delivery::Lossy).expect("an encoder");
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
    assert!(!socket.frames.iter().any(has_fec), "a WebSocket loses nothing");
}

/// A conversation in binary frames during a reply of 10 s.
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
    pub async fn until_frames(&mut self, n: usize) {
        while self.frames.len() < n {
            match self.stream.next().await.expect("more").expect("whole") {
                Message::Binary(bytes) => self.frames.push(bytes),
                Message::Close(frame) => panic!("closed: {frame:?}"),
                _ => {}
            }
        }
    }
}

#[tokio::test(start_paused = true)]
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
    // 500 ms and some margin: two or three words of "long long long ...", not the 1 s that was sent.
    let n_words = history.matches("long").count();
    assert!((1..=4).contains(&n_words), "{n_words} words: {history}");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_format_is_refused_in_frames() {
    let hub = hub("", "x").await;
    let mut socket = hub.connect("?audio=pcm16").await;
    let update = |audio: Value| json!({"type": "session.update", "session": {"type": "realtime", "audio": audio}});
    let format = json!({"format": {"type": "audio/pcmu"}});
    for (event, param) in [
        (update(json!({"output": format})), "session.audio.output.format"),
        (update(json!({"input": format})), "session.audio.input.format"),
        (json!({"type": "response.create", "response": {"audio": {"output": format}}}), "response.audio.output.format"),
    ] {
        socket.send(event).await;
        let error = socket.next().await["error"].take();
        assert_eq!((&error["code"], &error["param"]), (&json!("invalid_value"), &json!(param)), "{error}");
    }
    assert_eq!(hub.open("?audio=mp3").await.err(), Some(400));
}

async fn spoken_by_flite(text: &str) -> Pcm {
    let flite = antiphon::assembly::tts(&crate::hub::offline()).expect("flite is installed");
    let request = SpeechRequest { text: text.into(), voice: "rms".into(), ..SpeechRequest::default() };
    let pieces: Vec<_> = flite.speak(request).map(|pcm| pcm.expect("spoken").samples).collect().await;
    Pcm { samples: pieces.concat(), rate: SampleRate::HZ_16000 }
}

/// Real sound: flite's voice, which speaks before the clock is paused, and earshot, which detects.
async fn speaking_for_real(noise_reduction: Value) -> (Hub, Socket, Vec<i16>) {
    tokio::time::resume();
    let interruption = spoken_by_flite("Stop that, please stop now.").await;
    let interruption = antiphon_audio::convert(&interruption.samples, interruption.rate, SampleRate::HZ_24000);
    let story = "Once upon a time there was a little fox who lived at the edge of a large and quiet forest, \
                 and every morning it walked down to the river to see what the water had brought.";
    // What was spoken before: an engine need not keep up with a paused clock.
    let voice = FakeTts::default().with_voices([("rms", "en-US")]).with_sound(spoken_by_flite(story).await);
    tokio::time::pause();
    let engines = Engines {
        vad: Arc::new(Earshot),
        turn: None,
        speaker: None,
        stt: Arc::new(FakeStt::default()),
        llm: Arc::new(FakeLlm::says([story])),
        tts: Arc::new(voice),
    };
    let hub = Hub::start(engines, Config::default()).await;
    let mut socket = hub.connect("?audio=pcm16").await;
    let session = json!({"type": "realtime", "audio": {"input": {"noise_reduction": noise_reduction}}});
    socket.send(json!({"type": "session.update", "session": session})).await;
    speak(&mut socket, &mut 0, &quiet(100)).await;
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Tell me"}]});
    socket.send(json!({"type": "conversation.item.create", "item": item})).await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until_frames(1).await;
    (hub, socket, interruption)
}

/// Sends microphone audio with `person` over the reply's echo, which returns `delay` frames late at `gain`; returns the
/// events received meanwhile.
async fn listen(socket: &mut Socket, delay: usize, gain: f32, n_frames: usize, person: &[i16]) -> Vec<String> {
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    let mut events = Vec::new();
    let mut sequence = 5;
    for n in 0..n_frames {
        tick.tick().await;
        while let Some(Some(Ok(message))) = socket.stream.next().now_or_never() {
            match message {
                Message::Binary(bytes) => socket.frames.push(bytes),
                Message::Text(text) => events.push(text.to_string()),
                _ => {}
            }
        }
        let sounding = n.checked_sub(delay).and_then(|n| socket.frames.get(n));
        let echo = sounding.map(|bytes| Frame::parse(bytes).expect("a frame").payload).unwrap_or_default();
        let mut echo = echo.chunks(2).map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) * gain);
        let voices =
            (0..480).map(|i| echo.next().unwrap_or(0.0) as i16 + person.get(n * 480 + i).copied().unwrap_or(0));
        frame(socket, &mut sequence, voices.flat_map(i16::to_le_bytes).collect()).await;
    }
    events
}

/// The events a listener would notice.
fn disturbances(events: &[String]) -> Vec<&str> {
    let kinds = ["output_audio_buffer.held", "output_audio_buffer.cleared", "input_audio_buffer.speech_started"];
    kinds.into_iter().filter(|kind| events.iter().any(|event| event.contains(kind))).collect()
}

#[tokio::test(start_paused = true)]
async fn the_hubs_own_reply_at_minus_12_db_neither_holds_nor_stops_it() {
    // Noise reduction distorts an echo, so the guard must process the microphone's audio before it.
    let near = json!({"type": "near_field"});
    for (delay, noise_reduction) in [(1, Value::Null), (8, Value::Null), (4, near)] {
        let (_hub, mut socket, interruption) = speaking_for_real(noise_reduction.clone()).await;
        let events = listen(&mut socket, delay, 0.25, 100, &[]).await;
        assert_eq!(disturbances(&events), [""; 0], "the hub hears itself {delay} frames late, {noise_reduction}");
        assert!(socket.frames.len() > 80, "the reply went on");
        // The same microphone still detects a person over the reply.
        let events = listen(&mut socket, delay, 0.0, 60, &interruption).await;
        assert!(disturbances(&events).contains(&"input_audio_buffer.speech_started"), "{noise_reduction}");
    }
}
