//! Questions to a scripted server over a pipe, in paused time, so that every figure is exact.

use super::*;
use crate::ResponseInfo;
use antiphon_audio::codec::OpusIn;
use antiphon_protocol::frame::{Frame, FrameKind};
use antiphon_types::Samples;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio::io::DuplexStream;
use tokio::time::sleep;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};

/// 100 ms of a loud tone and 60 ms of near-silence: the last loud frame is sent 80 ms after the first.
fn question() -> Pcm {
    let loud = (0..2400).map(|i| if i % 40 < 20 { 8000 } else { -8000 });
    Pcm { rate: RATE, samples: loud.chain((0..1440).map(|_| 100)).collect() }
}

/// The server's end of the pipe.
struct Server {
    socket: WebSocketStream<DuplexStream>,
    mode: AudioMode,
    heard: Vec<i16>,
    other: Vec<Value>,
    ear: OpusIn,
    frames: u32,
}

impl Server {
    async fn event(&mut self, event: Value) {
        self.socket.send(Message::text(event.to_string())).await.unwrap();
    }

    async fn audio(&mut self, samples: &[i16]) {
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        if self.mode == AudioMode::Ga {
            let delta = STANDARD.encode(bytes);
            return self.event(json!({"type": "response.output_audio.delta", "item_id": "a", "delta": delta})).await;
        }
        let mut payloads = Vec::new();
        if self.mode == AudioMode::Opus {
            let mut encoder = antiphon_audio::codec::OpusOut::new(antiphon_audio::codec::Delivery::Reliable).unwrap();
            encoder.push(samples, &mut |packet| payloads.push(Bytes::copy_from_slice(packet))).unwrap();
        } else {
            payloads.push(Bytes::from(bytes));
        }
        for payload in payloads {
            let kind = FrameKind::Reply { item_id: ItemId::from("a") };
            let frame = Frame { kind, sequence: 0, offset: Samples::ZERO, payload };
            self.socket.send(Message::Binary(frame.encode().unwrap())).await.unwrap();
        }
    }

    /// Reads `n` microphone frames, or all frames if the client closes earlier.
    async fn hear(&mut self, n: u32) {
        let until = self.frames + n;
        while self.frames < until {
            let Some(Ok(message)) = self.socket.next().await else { return };
            match message {
                Message::Text(text) => {
                    let event: Value = serde_json::from_str(&text).unwrap();
                    match event["audio"].as_str() {
                        Some(audio) => self.hear_pcm(&STANDARD.decode(audio).unwrap()),
                        None => self.other.push(event),
                    }
                }
                Message::Binary(bytes) => {
                    let frame = Frame::parse(&bytes).unwrap();
                    assert_eq!(frame.sequence, self.frames);
                    assert_eq!(
                        (frame.kind, frame.offset),
                        (FrameKind::Microphone, Samples(u64::from(self.frames) * 480))
                    );
                    match self.mode {
                        AudioMode::Opus => self.hear_opus(&frame.payload),
                        _ => self.hear_pcm(&frame.payload),
                    }
                }
                _ => return,
            }
        }
    }

    fn hear_pcm(&mut self, bytes: &[u8]) {
        self.heard.extend(bytes.chunks(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])));
        self.frames += 1;
    }

    fn hear_opus(&mut self, packet: &[u8]) {
        self.ear.decode(packet, &mut self.heard).unwrap();
        self.frames += 1;
    }

    /// The usual turn up to the response; the transcript is `words`.
    async fn understand(&mut self, words: &str) {
        let of_item = |name: &str| json!({"type": name, "item_id": "u"});
        self.event(json!({"type": "input_audio_buffer.speech_started", "item_id": "u", "audio_start_ms": 0})).await;
        self.event(json!({"type": "input_audio_buffer.speech_stopped", "item_id": "u", "audio_end_ms": 100})).await;
        self.event(of_item("input_audio_buffer.committed")).await;
        let mut completed = of_item("conversation.item.input_audio_transcription.completed");
        completed["transcript"] = words.into();
        self.event(completed).await;
    }

    async fn respond(&mut self, name: &str, id: &str, status: &str) {
        self.event(json!({"type": name, "response": {"id": id, "status": status}})).await;
    }

    /// The last frame has left.
    async fn audio_sent(&mut self) {
        self.event(json!({"type": "antiphon.output_audio.sent", "item_id": "a"})).await;
    }

    async fn says(&mut self, words: &str) {
        self.event(json!({"type": "response.output_audio_transcript.delta", "item_id": "a", "delta": words})).await;
    }
}

/// Asks [`question`] of a server that runs `script` after its greeting.
async fn asked<F>(
    mode: AudioMode,
    options: AskOptions,
    script: impl FnOnce(Server) -> F,
) -> (Result<Answer, AskError>, Server)
where
    F: Future<Output = Server>,
{
    let (near, far) = tokio::io::duplex(1 << 16);
    let server = async {
        let socket = accept_async(far).await.unwrap();
        let ear = OpusIn::new().unwrap();
        let mut server = Server { socket, mode, heard: vec![], other: vec![], ear, frames: 0 };
        server.event(json!({"type": "session.created", "session": {}})).await;
        script(server).await
    };
    let client = async {
        let (socket, _) = client_async("ws://hub/v1/realtime", near).await.unwrap();
        ask(Connection::new(socket, mode).unwrap(), &question(), &options).await
    };
    tokio::join!(client, server)
}

/// 10 ms of silence, then 10 ms of audible samples.
fn reply() -> Vec<i16> {
    [vec![0; 240], vec![5000; 240]].concat()
}

async fn answer_in_one(mut server: Server) -> Server {
    server.hear(10).await;
    server.understand("what time is it").await;
    server.respond("response.created", "r", "in_progress").await;
    sleep(Duration::from_millis(50)).await;
    server.says("It is ").await;
    server.says("noon.").await;
    server.audio(&reply()).await;
    server.event(json!({"type": "antiphon.timeline", "marks": {"speech_end": 0, "stt_final": 12.5}})).await;
    server.respond("response.done", "r", "completed").await;
    server.audio_sent().await;
    server.hear(40).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a_question_gets_its_answer_and_exact_times() {
    for mode in [AudioMode::Ga, AudioMode::Pcm16] {
        let (answer, server) = asked(mode, AskOptions::default(), async |server| answer_in_one(server).await).await;
        let answer = answer.unwrap();
        assert_eq!((answer.transcript.as_str(), answer.text.as_str()), ("what time is it", "It is noon."));
        assert_eq!((answer.status.as_str(), answer.reply.samples), ("completed", reply()));
        // The tenth frame is sent at 180 ms, the response 50 ms later with its first loud sample at 10 ms; zero is at
        // 80 ms.
        assert_eq!(answer.voice_to_voice, Some(Duration::from_millis(160)));
        let expect = [
            ("speech_started", 100.0),
            ("speech_stopped", 100.0),
            ("transcript", 100.0),
            ("response_created", 100.0),
            ("first_text", 150.0),
            ("response_done", 150.0),
            ("first_audio", 150.0),
            ("audible", 160.0),
        ];
        assert_eq!(answer.seen, expect);
        assert_eq!(answer.marks, BTreeMap::from([("speech_end".to_owned(), 0.0), ("stt_final".to_owned(), 12.5)]));
        assert_eq!(server.heard[..3840], question().samples);
        assert!(server.heard[3840..].iter().all(|sample| *sample == 0));
    }
}

#[tokio::test(start_paused = true)]
async fn opus_carries_both_ways() {
    let (answer, server) =
        asked(AudioMode::Opus, AskOptions::default(), async |server| answer_in_one(server).await).await;
    let answer = answer.unwrap();
    assert_eq!(answer.reply.samples.len(), 480);
    assert!(answer.reply.samples.iter().any(|sample| sample.unsigned_abs() > 1000));
    let energy = |pcm: &[i16]| pcm.iter().map(|s| f64::from(*s).powi(2)).sum::<f64>() / pcm.len() as f64;
    assert!(energy(&server.heard[..1600]) > 100.0 * energy(&server.heard[4800..]));
}

#[tokio::test(start_paused = true)]
async fn what_was_heard_is_reported_where_the_socket_knows_it() {
    let script = async |mut server: Server| {
        server.hear(10).await;
        server.understand("hello").await;
        server.respond("response.created", "r", "in_progress").await;
        server.audio(&[5000; 24_000]).await;
        server.respond("response.done", "r", "completed").await;
        server.audio_sent().await;
        server.hear(30).await;
        server
    };
    let (answer, server) = asked(AudioMode::Pcm16, AskOptions::default(), script).await;
    assert_eq!(answer.unwrap().reply.samples.len(), 24_000);
    let played: Vec<_> = server.other.iter().map(|event| event["audio_end_ms"].as_u64().unwrap()).collect();
    assert_eq!(played[..4], [20, 120, 220, 320]);
    let expect = json!({"type": "output_audio_buffer.played", "item_id": "a", "audio_end_ms": 20});
    assert_eq!(server.other[0], expect);
}

#[tokio::test(start_paused = true)]
async fn a_response_cut_by_the_rest_of_the_question_is_not_the_answer() {
    let script = async |mut server: Server| {
        server.hear(2).await;
        server.understand("what time").await;
        server.respond("response.created", "r1", "in_progress").await;
        server.says("Time is").await;
        server.audio(&reply()).await;
        server.respond("response.done", "r1", "cancelled").await;
        server.hear(10).await;
        server.understand("is it").await;
        server.respond("response.created", "r2", "in_progress").await;
        server.says("Noon.").await;
        server.audio(&reply()).await;
        server.respond("response.done", "r2", "completed").await;
        server
    };
    let (answer, _) = asked(AudioMode::Ga, AskOptions::default(), script).await;
    let answer = answer.unwrap();
    assert_eq!((answer.transcript.as_str(), answer.text.as_str()), ("what time is it", "Noon."));
    assert_eq!((answer.reply.samples, answer.voice_to_voice), (reply(), Some(Duration::from_millis(150))));
}

#[tokio::test(start_paused = true)]
async fn failures_are_told_in_words() {
    let error = async |script: fn(Server) -> futures_util::future::BoxFuture<'static, Server>| {
        let (answer, _) = asked(AudioMode::Ga, AskOptions::default(), script).await;
        answer.unwrap_err().to_string()
    };
    let said = error(|mut server| {
        Box::pin(async move {
            server.event(json!({"type": "error", "error": {"code": "overloaded", "message": "Too many wait."}})).await;
            server
        })
    });
    assert_eq!(said.await, "the server said: Too many wait. (overloaded)");
    let failed = error(|mut server| {
        Box::pin(async move {
            let details = json!({"error": {"code": "llm_failed", "message": "No answer."}});
            server.respond("response.created", "r", "in_progress").await;
            let response = json!({"id": "r", "status": "failed", "status_details": details});
            server.event(json!({"type": "response.done", "response": response})).await;
            server
        })
    });
    assert_eq!(failed.await, "the server said: No answer. (llm_failed)");
    let closed = error(|mut server| {
        Box::pin(async move {
            let frame = CloseFrame { code: 3000.into(), reason: "invalid_request_error.invalid_api_key".into() };
            server.socket.close(Some(frame)).await.unwrap();
            server
        })
    });
    assert_eq!(closed.await, "the server closed the connection: 3000 invalid_request_error.invalid_api_key");
    let deaf = error(|mut server| {
        Box::pin(async move {
            server.hear(4_000).await;
            server
        })
    });
    // The server's script ends after 80 s; the client's 60 s timeout expires before.
    tokio::select! {
        words = deaf => assert_eq!(words, "being heard (the server noticed no speech) took longer than 60s"),
        () = sleep(Duration::from_secs(100)) => panic!("the deadline did not hold"),
    }
}

#[tokio::test(start_paused = true)]
async fn silence_is_no_question() {
    let (near, far) = tokio::io::duplex(1 << 16);
    let (_server, client) = tokio::join!(accept_async(far), client_async("ws://hub/v1/realtime", near));
    let connection = Connection::new(client.unwrap().0, AudioMode::Ga).unwrap();
    let silent = Pcm { rate: RATE, samples: vec![0; 480] };
    assert!(matches!(
        ask(connection, &silent, &AskOptions::default()).await,
        Err(AskError { error: ClientError::Silent, .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_whole_says_so() {
    // The response is done, most of its sound is still to come, and the server pauses and ends.
    let script = async |mut server: Server| {
        server.hear(10).await;
        server.understand("what time is it").await;
        server.respond("response.created", "r", "in_progress").await;
        server.says("It is noon.").await;
        server.audio(&[5000; 12_000]).await;
        server.respond("response.done", "r", "completed").await;
        server.hear(60).await;
        let frame = CloseFrame { code: 1001.into(), reason: "the server is stopping".into() };
        server.socket.close(Some(frame)).await.unwrap();
        server
    };
    let (answer, _) = asked(AudioMode::Pcm16, AskOptions::default(), script).await;
    let error = answer.unwrap_err();
    assert_eq!(error.to_string(), "the answer broke off after 0.5 s of sound");
    let so_far = error.so_far.as_deref().expect("what came before");
    assert_eq!((so_far.transcript.as_str(), so_far.text.as_str()), ("what time is it", "It is noon."));
    assert_eq!(so_far.reply.samples.len(), 12_000);
    assert_eq!(so_far.cut.as_deref(), Some("the answer broke off after 0.5 s of sound"));
    let ClientError::BrokeOff { source, .. } = error.error else { panic!("{error}") };
    assert!(matches!(*source, ClientError::Closed { code: Some(1001), .. }), "{source}");

    let script = async |mut server: Server| {
        server.hear(10).await;
        server.understand("what time is it").await;
        server.respond("response.created", "r", "in_progress").await;
        server.audio(&reply()).await;
        let details = json!({"reason": "max_output_tokens"});
        let response = json!({"id": "r", "status": "incomplete", "status_details": details});
        server.event(json!({"type": "response.done", "response": response})).await;
        server.audio_sent().await;
        server.hear(40).await;
        server
    };
    let (answer, _) = asked(AudioMode::Pcm16, AskOptions::default(), script).await;
    let cut = answer.unwrap().cut.unwrap();
    assert_eq!(cut, "the response is incomplete, not completed (max_output_tokens)");

    let script = async |mut server: Server| {
        server.hear(10).await;
        server.understand("what time is it").await;
        server.respond("response.created", "r", "in_progress").await;
        server.audio(&[5000; 12_000]).await;
        server.respond("response.done", "r", "completed").await;
        server.event(json!({"type": "output_audio_buffer.cleared"})).await;
        server.hear(60).await;
        server
    };
    let (answer, _) = asked(AudioMode::Pcm16, AskOptions::default(), script).await;
    assert_eq!(answer.unwrap().cut.unwrap(), "the server stopped the playback before its end");
}

#[test]
fn a_done_of_another_response_does_not_end_the_turn() {
    let mut turn = Turn::new(AudioMode::Ga);
    let now = Instant::now();
    let info = |id: &str, status: &str| ResponseInfo { id: id.into(), status: status.into(), status_details: None };
    turn.take_event(Event::ResponseCreated { response: info("r2", "in_progress") }, now).unwrap();
    turn.take_event(Event::ResponseDone { response: info("r1", "completed") }, now).unwrap();
    assert!(!turn.is_over(now));
    turn.take_event(Event::ResponseDone { response: info("r2", "completed") }, now).unwrap();
    assert!(turn.is_over(now));
}

/// Takes microphone frames for as long as the client sends them.
async fn listen(peer: &mut crate::scripted::Peer) -> usize {
    let mut n = 0;
    while peer.try_take().await.is_some() {
        n += 1;
    }
    n
}

/// A session whose hub answers [`question`] over `peer`, up to the last frame but two.
async fn half_an_answer(peer: &mut crate::scripted::Peer) {
    let of = |kind: &str| json!({"type": kind, "item_id": "u", "audio_start_ms": 0, "audio_end_ms": 100});
    for kind in ["speech_started", "speech_stopped", "committed"] {
        peer.event(of(&format!("input_audio_buffer.{kind}"))).await;
    }
    let mut completed = of("conversation.item.input_audio_transcription.completed");
    completed["transcript"] = "what time is it".into();
    peer.event(completed).await;
    peer.event(json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}})).await;
    for (words, number) in [("It ", 0), ("is ", 1), ("noon.", 2)] {
        let delta = json!({"type": "response.output_audio_transcript.delta", "item_id": "a", "delta": words});
        peer.event(delta).await;
        peer.frame(number, &[100 * (number as i16 + 1); 480]).await;
    }
}

/// Audio is paced: some of it arrives after the response is done.
async fn done(peer: &mut crate::scripted::Peer) {
    peer.event(json!({"type": "response.done", "response": {"id": "r", "status": "completed"}})).await;
}

async fn the_rest_of_it(peer: &mut crate::scripted::Peer) {
    for number in 3..5 {
        peer.frame(number, &[100 * (number as i16 + 1); 480]).await;
    }
    peer.event(json!({"type": "antiphon.output_audio.sent", "item_id": "a"})).await;
}

fn assert_whole(answer: Result<Answer, ClientError>) {
    let answer = answer.unwrap();
    assert_eq!((answer.transcript.as_str(), answer.text.as_str()), ("what time is it", "It is noon."));
    assert_eq!(answer.cut, None);
    let whole: Vec<i16> = (1..=5).flat_map(|number| vec![100 * number; 480]).collect();
    assert!(answer.reply.samples == whole, "{} samples", answer.reply.samples.len());
}

#[tokio::test]
async fn an_answer_whose_session_moves_is_whole() {
    let hub = crate::scripted::Hub::start(AudioMode::Pcm16).await;
    let client = async {
        let connection = crate::connect(&hub.options).await.unwrap();
        ask(connection, &question(), &AskOptions::default()).await.map_err(|failed| failed.error)
    };
    let script = async {
        let mut peer = hub.accept().await;
        peer.begin(30).await;
        peer.take_n(9).await;
        half_an_answer(&mut peer).await;
        done(&mut peer).await;
        peer.take_n(2).await;
        peer.close(1012, "the session moves to another hub").await;
        // Longer than the silence that ends an answer, which must not count while the connection is away.
        sleep(Duration::from_millis(900)).await;
        let mut peer = hub.accept().await;
        assert_eq!(peer.named, Some(14));
        peer.resumed(14, 11).await;
        the_rest_of_it(&mut peer).await;
        listen(&mut peer).await
    };
    let (answer, _) = tokio::join!(client, script);
    assert_whole(answer);
}

#[tokio::test]
async fn an_answer_whose_hub_fails_is_given_once() {
    let hub = crate::scripted::Hub::start(AudioMode::Pcm16).await;
    let client = async {
        let connection = crate::connect(&hub.options).await.unwrap();
        ask(connection, &question(), &AskOptions::default()).await.map_err(|failed| failed.error)
    };
    let script = async {
        let mut peer = hub.accept().await;
        peer.begin(30).await;
        peer.checkpoint(0).await;
        peer.take_n(2).await;
        peer.checkpoint(2).await;
        peer.take_n(9).await;
        half_an_answer(&mut peer).await;
        done(&mut peer).await;
        the_rest_of_it(&mut peer).await;
        peer.take_n(1).await;
        drop(peer);
        let mut peer = hub.accept().await;
        assert!(peer.named > Some(4), "{:?}", peer.named);
        peer.resumed(4, 2).await;
        // The microphone's frames of the failed hub, from the third on; no report of what was played of the void reply.
        for number in 2..11 {
            let frame = Frame::parse(&peer.take().await.into_data()).unwrap();
            assert_eq!(frame.sequence, number);
        }
        half_an_answer(&mut peer).await;
        done(&mut peer).await;
        the_rest_of_it(&mut peer).await;
        listen(&mut peer).await
    };
    let (answer, _) = tokio::join!(client, script);
    assert_whole(answer);
}
