//! Each shipped configuration of a speech server, against a server on loopback that speaks that server's protocol: what it is
//! asked for, how it lists its voices, in which form its sound comes. And a session whose words go to such a server as they are
//! written, from the language model to the client.

use crate::hub::{Hub, loud, quiet, types};
use antiphon::assembly;
use antiphon::config::{self, Config, Sources};
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_engine_api::tts::{SpeechRequest, Tts};
use antiphon_test_server::{Answer, Message, Request, TestServer, WebSocket, WebSocketError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The messages of a session, in order.
type MessageLog = Arc<Mutex<Vec<Value>>>;

/// The sound that every server answers with.
const SOUND: [i16; 4] = [1, -2, 300, -400];

/// A server with OpenAI's endpoint for speech that lists these voices.
fn serve(voices: Value, speak: impl Fn(&Value) -> Answer + Send + Sync + 'static) -> TestServer {
    TestServer::start(move |request| match request.path() {
        "/v1/audio/speech" => speak(&request.json()),
        "/v1/audio/voices" => Answer::json(&voices),
        _ => Answer::status(404),
    })
}

/// The bodies that a server was sent.
fn bodies(server: &TestServer) -> Vec<Value> {
    let with_body = |request: &Request| (!request.body.is_empty()).then(|| request.json());
    server.requests().iter().filter_map(with_body).collect()
}

/// The shipped file, with another address.
fn shipped(file: &str, base_url: String) -> Config {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(file);
    let env = vec![("ANTIPHON_TTS__BASE_URL".into(), base_url)];
    config::load(&Sources { file: Some(path), env, ..Sources::default() }).expect("it loads")
}

/// The voice engine of a shipped file, which has read the server's voices.
async fn engine(file: &str, base_url: String) -> Arc<dyn Tts> {
    let engine = assembly::tts(&shipped(file, base_url)).expect("right settings");
    engine.warm().await.expect("the server is there");
    engine
}

/// The rate and the samples of a sentence by this voice.
async fn say(engine: &Arc<dyn Tts>, voice: &str) -> (u32, Vec<i16>) {
    let request =
        SpeechRequest { text: "Hello there.".into(), voice: voice.into(), speed: 1.0, ..SpeechRequest::default() };
    let pieces: Vec<_> = engine.speak(request).map(|piece| piece.expect("sound")).collect().await;
    (pieces[0].rate.hz(), pieces.into_iter().flat_map(|piece| piece.samples).collect())
}

fn ids(engine: &Arc<dyn Tts>) -> Vec<String> {
    engine.voices().into_iter().map(|voice| voice.id).collect()
}

fn bytes(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

/// A WAV file, as a server writes it that does not know the length yet.
fn wav(rate: u32, samples: &[i16]) -> Vec<u8> {
    let mut file = antiphon_audio::wav::header(antiphon_types::SampleRate::new(rate), None).to_vec();
    file.extend(bytes(samples));
    file
}

// vLLM-Omni: a WAV file unless it is asked for a stream; voices by name; words over a WebSocket.

fn vllm_omni() -> (TestServer, MessageLog) {
    let log = MessageLog::default();
    let asked = log.clone();
    let server = TestServer::start(move |request| match request.path() {
        "/v1/audio/speech" => vllm_speech(&request.json()),
        "/v1/audio/voices" => Answer::json(&json!({"voices": ["aiden", "vivian"], "uploaded_voices": []})),
        "/v1/audio/speech/stream" => {
            let asked = asked.clone();
            Answer::websocket(|socket| vllm_session(socket, asked))
        }
        _ => Answer::status(404),
    });
    (server, log)
}

fn vllm_speech(body: &Value) -> Answer {
    match (body["stream_format"].as_str(), body["response_format"].as_str()) {
        (Some("audio"), Some("pcm")) => Answer::of("audio/pcm", bytes(&SOUND)).in_pieces(3),
        (Some("sse"), Some("pcm")) => {
            let delta = |bytes: &[u8]| {
                let event =
                    json!({"type": "speech.audio.delta", "audio": BASE64.encode(bytes), "response_format": "pcm"});
                format!("event: speech.audio.delta\ndata: {event}\n\n")
            };
            let sound = bytes(&SOUND);
            let done = "event: speech.audio.done\ndata: {\"type\": \"speech.audio.done\", \"usage\": {}}\n\n";
            let body = [delta(&sound[..3]), delta(&sound[3..]), done.into()].concat();
            Answer::of("text/event-stream; charset=utf-8", body).in_pieces(7)
        }
        _ => Answer::refusal(400, "a test waits for the whole utterance"),
    }
}

/// A session of words. `Hold on.` is a sentence that never ends.
async fn vllm_session(mut socket: WebSocket, asked: MessageLog) {
    let mut text = String::new();
    while let Some(Ok(message)) = socket.recv().await {
        let Message::Text(message) = message else { continue };
        let message: Value = serde_json::from_str(&message).expect("JSON");
        asked.lock().expect("no panic").push(message.clone());
        let is_done = match message["type"].as_str() {
            Some("input.text") => {
                text.push_str(message["text"].as_str().expect("a text"));
                false
            }
            Some("input.done") => true,
            Some("session.close") => break,
            _ => continue,
        };
        while let Some(end) =
            text.find(['.', '!', '?']).or((is_done && !text.trim().is_empty()).then(|| text.len() - 1))
        {
            let rest = text.split_off(end + 1);
            let sentence = std::mem::replace(&mut text, rest);
            if speak_sentence(&mut socket, sentence.trim()).await.is_err() {
                asked.lock().expect("no panic").push(json!("gone"));
                return;
            }
        }
        if is_done {
            let done = json!({"type": "session.done", "utterance_index": 0, "total_sentences": 2});
            let _ = socket.send(Message::Text(done.to_string().into())).await;
        }
    }
    asked.lock().expect("no panic").push(json!("gone"));
}

async fn speak_sentence(socket: &mut WebSocket, sentence: &str) -> Result<(), WebSocketError> {
    let start = json!({
        "type": "audio.start", "utterance_index": 0, "sentence_index": 0, "sentence_text": sentence, "format": "pcm",
        "sample_rate": 24_000, "channels": 1
    });
    socket.send(Message::Text(start.to_string().into())).await?;
    let second = bytes(&vec![1_000; 24_000]);
    for piece in second.chunks(4_801) {
        socket.send(Message::Binary(piece.to_vec().into())).await?;
    }
    if sentence == "Hold on." {
        // Faster than it is played, and slower than the bound of its sound for the length of a test. What the hub sends is read
        // meanwhile: its end of the connection is noticed at once, not by a write that fails.
        loop {
            socket.send(Message::Binary(second[..24_000].to_vec().into())).await?;
            let is_over = match timeout(Duration::from_millis(200), socket.recv()).await {
                Err(_) => false,
                Ok(Some(Ok(Message::Text(message)))) => message.contains("session.close"),
                Ok(Some(Ok(message))) => matches!(message, Message::Close(_)),
                Ok(None | Some(Err(_))) => true,
            };
            if is_over {
                return Err(WebSocketError::ConnectionClosed);
            }
        }
    }
    let done = json!({"type": "audio.done", "sentence_index": 0, "total_bytes": second.len(), "error": false});
    socket.send(Message::Text(done.to_string().into())).await
}

#[tokio::test(start_paused = true)]
async fn vllm_omni_streams_what_it_is_asked_for() {
    let (server, _) = vllm_omni();
    let engine = engine("vllm-omni.toml", server.url("/v1")).await;
    assert_eq!(ids(&engine), ["vivian", "aiden"]);
    assert!(engine.voice_library().is_some());
    assert_eq!(say(&engine, "aiden").await, (24_000, SOUND.to_vec()));
    let body = json!({
        "model": "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice", "input": "Hello there.", "voice": "aiden",
        "response_format": "pcm", "stream_format": "audio", "language": "Auto", "initial_codec_chunk_frames": 2
    });
    assert_eq!(bodies(&server), [body]);
    let mut config = shipped("vllm-omni.toml", server.url("/v1"));
    config.tts.stream_format = "sse".into();
    config.tts.sample_rate = 44_100;
    let engine = assembly::tts(&config).expect("right settings");
    assert_eq!(say(&engine, "vivian").await, (44_100, SOUND.to_vec()));
}

#[tokio::test(start_paused = true)]
async fn sglang_omni_streams_raw_audio_or_events() {
    let voices = json!({"voices": ["default"], "uploaded_voices": [], "cache_stats": {}});
    let server = serve(voices, |body| {
        assert_eq!(body["stream"], true);
        if body["stream_format"] == "audio" {
            return Answer::of("audio/pcm", bytes(&SOUND)).in_pieces(5);
        }
        let event = |index: usize, sound: &[i16]| {
            let data = BASE64.encode(wav(44_100, sound));
            let audio = json!({"data": data, "format": "wav", "mime_type": "audio/wav", "sample_rate": 44_100});
            json!({"id": "speech-1", "object": "audio.speech.chunk", "index": index, "audio": audio, "finish_reason": null})
        };
        let last =
            json!({"object": "audio.speech.chunk", "index": 2, "audio": null, "finish_reason": "stop", "usage": {}});
        let events = [event(0, &SOUND[..1]), event(1, &SOUND[1..]), last].map(|event| format!("data: {event}\n\n"));
        Answer::events(events.concat() + "data: [DONE]\n\n").in_pieces(11)
    });
    let engine = engine("sglang-omni.toml", server.url("/v1")).await;
    assert_eq!(ids(&engine), ["default"]);
    assert_eq!(say(&engine, "default").await, (24_000, SOUND.to_vec()));
    assert_eq!(bodies(&server)[0]["response_format"], "pcm");
    let mut config = shipped("sglang-omni.toml", server.url("/v1"));
    config.tts.stream_format.clear();
    let engine = assembly::tts(&config).expect("right settings");
    assert_eq!(say(&engine, "default").await, (44_100, SOUND.to_vec()), "the rate of the events' files");
}

#[tokio::test(start_paused = true)]
async fn kokoro_fastapi_streams_and_mixes_voices() {
    let voices = json!({"voices": [{"id": "af_bella", "name": "af_bella"}, {"id": "af_heart", "name": "af_heart"}]});
    let server = serve(voices, |body| {
        assert!(["kokoro", "tts-1", "tts-1-hd"].contains(&body["model"].as_str().expect("a model")));
        Answer::of("audio/pcm", bytes(&SOUND)).in_pieces(1)
    });
    let engine = engine("kokoro-fastapi.toml", server.url("/v1")).await;
    assert_eq!(ids(&engine), ["af_heart", "af_bella"]);
    assert_eq!(say(&engine, "af_bella(2)+af_heart").await, (24_000, SOUND.to_vec()));
    assert_eq!(bodies(&server)[0]["voice"], "af_bella(2)+af_heart");
    assert!(engine.voice_library().is_none());
}

#[tokio::test(start_paused = true)]
async fn orpheus_fastapi_sends_a_whole_wav_file_whatever_is_asked_for() {
    let server = serve(json!({"status": "ok", "voices": ["tara", "leah"]}), |_| {
        let length = Some(antiphon_types::Samples(4));
        let mut file = antiphon_audio::wav::header(antiphon_types::SampleRate::new(24_000), length).to_vec();
        file.extend(bytes(&SOUND));
        Answer::of("audio/wav", file).header("content-disposition", "attachment; filename=tara.wav")
    });
    let engine = engine("orpheus-fastapi.toml", server.url("/v1")).await;
    assert_eq!(ids(&engine), ["tara", "leah"]);
    assert_eq!(say(&engine, "leah").await, (24_000, SOUND.to_vec()));
    let body = json!({"model": "orpheus", "input": "Hello there.", "voice": "leah", "response_format": "wav"});
    assert_eq!(bodies(&server), [body]);
    let mut config = shipped("orpheus-fastapi.toml", server.url("/v1"));
    config.tts.response_format = "pcm".into();
    assert_eq!(say(&assembly::tts(&config).expect("right settings"), "tara").await, (24_000, SOUND.to_vec()));
}

#[tokio::test(start_paused = true)]
async fn fish_speech_streams_a_wav_file_and_lists_its_references() {
    let server = TestServer::start(|request| match request.path() {
        "/v1/tts" => {
            let body = request.json();
            if body["streaming"] != true || body["format"] != "wav" {
                return Answer::refusal(400, "Streaming only supports WAV format");
            }
            Answer::of("audio/wav", wav(44_100, &SOUND)).in_pieces(9)
        }
        "/v1/references/list" if request.header("accept") == Some("application/json") => {
            Answer::json(&json!({"success": true, "reference_ids": ["ada"], "message": ""}))
        }
        "/v1/references/list" => Answer::text("MessagePack"),
        _ => Answer::status(404),
    });
    let engine = engine("fish-speech.toml", server.url("/v1")).await;
    assert_eq!(ids(&engine), ["default", "ada"]);
    assert_eq!(say(&engine, "ada").await, (44_100, SOUND.to_vec()));
    let body = json!({"text": "Hello there.", "format": "wav", "streaming": true, "reference_id": "ada"});
    assert_eq!(bodies(&server), [body]);
}

#[tokio::test(start_paused = true)]
async fn moshi_server_takes_words_and_sends_pcm_in_message_pack() {
    async fn session(mut socket: WebSocket, asked: MessageLog) {
        let pack = |message: Value| Message::Binary(rmp_serde::to_vec_named(&message).expect("it packs").into());
        socket.send(pack(json!({"type": "Ready"}))).await.expect("sent");
        while let Some(Ok(Message::Binary(message))) = socket.recv().await {
            let message: Value = rmp_serde::from_slice(&message).expect("MessagePack");
            let ends = message["type"] == "Eos";
            asked.lock().expect("no panic").push(message);
            if ends {
                break;
            }
        }
        let pcm: Vec<f32> = SOUND.iter().map(|sample| f32::from(*sample) / 32_767.0).collect();
        socket.send(pack(json!({"type": "Audio", "pcm": pcm}))).await.expect("sent");
        socket.send(pack(json!({"type": "Text", "text": "Hello", "start_s": 0.1, "stop_s": 0.3}))).await.expect("sent");
        socket.send(Message::Close(None)).await.expect("sent");
    }
    let log = MessageLog::default();
    let asked = log.clone();
    let server = TestServer::start(move |request| {
        if request.path() != "/api/tts_streaming" {
            return Answer::status(404);
        }
        if request.header("kyutai-api-key") != Some("public_token") {
            return Answer::status(401);
        }
        let asked = asked.clone();
        Answer::websocket(|socket| session(socket, asked))
    });
    let engine = engine("moshi-server.toml", server.url("/api")).await;
    let voice = "expresso/ex03-ex01_happy_001_channel1_334s.wav";
    assert_eq!(ids(&engine), [voice]);
    assert_eq!(say(&engine, voice).await, (24_000, SOUND.to_vec()));
    let query = "format=PcmMessagePack&voice=expresso%2Fex03-ex01_happy_001_channel1_334s.wav";
    assert_eq!(server.requests().last().expect("an upgrade").query(), Some(query));
    let expected = [json!({"type": "Text", "text": "Hello there. "}), json!({"type": "Eos"})];
    assert_eq!(*log.lock().expect("no panic"), expected);
}

/// A hub whose words go to a fake vLLM-Omni.
async fn hub(answers: &[&str]) -> (Hub, TestServer, MessageLog) {
    let (server, asked) = vllm_omni();
    let tts = engine("vllm-omni.toml", server.url("/v1")).await;
    let stt = Arc::new(FakeStt::hears(["what is it", "and now"]));
    let llm = Arc::new(FakeLlm::says(answers.iter().copied()).delayed(Duration::from_millis(5)));
    let engines = Engines { vad: Arc::new(FakeVad), turn: None, speaker: None, stt, llm, tts };
    (Hub::start(engines, Config::default()).await, server, asked)
}

/// Waits until the server has seen this.
async fn seen(asked: &MessageLog, what: &Value) {
    let (found, mut is_found) = mpsc::channel(1);
    let look = async {
        while !asked.lock().expect("no panic").contains(what) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let _ = found.send(()).await;
    };
    tokio::time::timeout(Duration::from_secs(20), look).await.expect("the server sees it");
    is_found.recv().await.expect("found");
}

#[tokio::test(start_paused = true)]
async fn a_session_speaks_word_by_word_and_shows_the_text_with_its_audio() {
    let (hub, _server, asked) = hub(&["Hello **there**. It is five."]).await;
    let mut socket = hub.connect("").await;
    let events = socket.ask("what is it").await;
    let done = events.last().expect("an end");
    assert_eq!(done["response"]["status"], "completed", "{done}");
    let content = &done["response"]["output"][0]["content"][0];
    assert_eq!(content["transcript"], "Hello **there**. It is five.");
    let order = types(&events);
    let deltas: Vec<&&str> =
        order.iter().filter(|kind| kind.ends_with("transcript.delta") || kind.ends_with("audio.delta")).collect();
    let of = |kind: &str| format!("response.output_{kind}.delta");
    let text = of("audio_transcript");
    let audio = of("audio");
    assert_eq!(deltas, [&text, &audio, &text, &audio], "{order:?}");
    let told: Vec<Value> = asked.lock().expect("no panic").clone();
    assert_eq!((&told[0]["type"], &told[0]["split_granularity"]), (&json!("session.config"), &json!("sentence")));
    let words: String = told.iter().filter_map(|message| message["text"].as_str()).collect();
    assert_eq!(words, "Hello there. It is five. ");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_session_asks_of_its_voice_goes_to_the_speech_server() {
    let (hub, _server, asked) = hub(&["Yes.", "No."]).await;
    let mut socket = hub.connect("").await;
    let acting = json!({"type": "session.update", "session": {
        "type": "realtime", "audio": {"output": {"instructions": "Whisper."}}}});
    socket.send(acting).await;
    let updated = socket.until("session.updated").await;
    assert_eq!(updated.last().expect("one")["session"]["audio"]["output"]["instructions"], "Whisper.");
    socket.ask("what is it").await;
    let loud = json!({"type": "response.create", "response": {"audio": {"output": {"instructions": "Shout."}}}});
    socket.send(loud).await;
    socket.until("response.done").await;
    let told: Vec<Value> = asked.lock().expect("no panic").clone();
    let configs = told.iter().filter(|message| message["type"] == "session.config");
    let instructions: Vec<_> = configs.map(|config| config["instructions"].as_str()).collect();
    assert_eq!(instructions, [Some("Whisper."), Some("Shout.")]);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_barge_in_closes_the_servers_session_and_the_next_answer_is_spoken() {
    let (hub, _server, asked) = hub(&["Hold on. This is never said.", "Yes."]).await;
    let mut socket = hub.connect("").await;
    socket.append(&loud(400)).await;
    socket.append(&quiet(700)).await;
    socket.until("response.output_audio.delta").await;
    socket.append(&loud(600)).await;
    let cut = socket.until("response.done").await;
    assert_eq!(cut.last().expect("an end")["response"]["status"], "cancelled");
    seen(&asked, &json!("gone")).await;
    socket.append(&quiet(700)).await;
    let events = socket.until("response.done").await;
    assert_eq!(events.last().expect("an end")["response"]["status"], "completed", "{events:?}");
    hub.stop().await;
}
