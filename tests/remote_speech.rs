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
use axum::body::Body;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// What a server was asked, in order: bodies of requests, messages of a session.
type RequestLog = Arc<Mutex<Vec<Value>>>;

/// The sound that every server answers with.
const SOUND: [i16; 4] = [1, -2, 300, -400];

/// A server with these routes on loopback that ends with the test's runtime; its address.
#[allow(clippy::disallowed_methods)]
async fn serve(routes: Router<RequestLog>) -> (String, RequestLog) {
    let asked = RequestLog::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let router = routes.with_state(asked.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (format!("http://{address}"), asked)
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

/// A body in pieces of `size` bytes.
fn pieces(kind: &'static str, body: Vec<u8>, size: usize) -> Response {
    let pieces: Vec<_> = body.chunks(size).map(|piece| Ok::<_, Infallible>(piece.to_vec())).collect();
    ([("content-type", kind)], Body::from_stream(stream::iter(pieces))).into_response()
}

// vLLM-Omni: a WAV file unless it is asked for a stream; voices by name; words over a WebSocket.

async fn vllm_omni() -> (String, RequestLog) {
    let speech = async |State(asked): State<RequestLog>, Json(body): Json<Value>| {
        asked.lock().expect("no panic").push(body.clone());
        match (body["stream_format"].as_str(), body["response_format"].as_str()) {
            (Some("audio"), Some("pcm")) => pieces("audio/pcm", bytes(&SOUND), 3),
            (Some("sse"), Some("pcm")) => {
                let delta = |bytes: &[u8]| {
                    let event =
                        json!({"type": "speech.audio.delta", "audio": BASE64.encode(bytes), "response_format": "pcm"});
                    format!("event: speech.audio.delta\ndata: {event}\n\n")
                };
                let sound = bytes(&SOUND);
                let done = "event: speech.audio.done\ndata: {\"type\": \"speech.audio.done\", \"usage\": {}}\n\n";
                let body = [delta(&sound[..3]), delta(&sound[3..]), done.into()].concat();
                pieces("text/event-stream; charset=utf-8", body.into_bytes(), 7)
            }
            _ => (StatusCode::BAD_REQUEST, "a test waits for the whole utterance").into_response(),
        }
    };
    let voices = async || Json(json!({"voices": ["aiden", "vivian"], "uploaded_voices": []}));
    let routes = Router::new().route("/v1/audio/speech", post(speech)).route("/v1/audio/voices", get(voices)).route(
        "/v1/audio/speech/stream",
        any(async |upgrade: WebSocketUpgrade, State(asked): State<RequestLog>| {
            upgrade.on_upgrade(|socket| vllm_session(socket, asked))
        }),
    );
    serve(routes).await
}

/// A session of words. `Hold on.` is a sentence that never ends.
async fn vllm_session(mut socket: WebSocket, asked: RequestLog) {
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

async fn speak_sentence(socket: &mut WebSocket, sentence: &str) -> Result<(), axum::Error> {
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
                return Err(axum::Error::new("the hub has ended it"));
            }
        }
    }
    let done = json!({"type": "audio.done", "sentence_index": 0, "total_bytes": second.len(), "error": false});
    socket.send(Message::Text(done.to_string().into())).await
}

#[tokio::test(start_paused = true)]
async fn vllm_omni_streams_what_it_is_asked_for() {
    let (address, asked) = vllm_omni().await;
    let engine = engine("vllm-omni.toml", format!("{address}/v1")).await;
    assert_eq!(ids(&engine), ["vivian", "aiden"]);
    assert!(engine.voice_library().is_some());
    assert_eq!(say(&engine, "aiden").await, (24_000, SOUND.to_vec()));
    let body = json!({
        "model": "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice", "input": "Hello there.", "voice": "aiden",
        "response_format": "pcm", "stream_format": "audio", "language": "Auto", "initial_codec_chunk_frames": 2
    });
    assert_eq!(*asked.lock().expect("no panic"), [body]);
    let mut config = shipped("vllm-omni.toml", format!("{address}/v1"));
    config.tts.stream_format = "sse".into();
    config.tts.sample_rate = 44_100;
    let engine = assembly::tts(&config).expect("right settings");
    assert_eq!(say(&engine, "vivian").await, (44_100, SOUND.to_vec()));
}

#[tokio::test(start_paused = true)]
async fn sglang_omni_streams_raw_audio_or_events() {
    let speech = async |State(asked): State<RequestLog>, Json(body): Json<Value>| {
        asked.lock().expect("no panic").push(body.clone());
        assert_eq!(body["stream"], true);
        if body["stream_format"] == "audio" {
            return pieces("audio/pcm", bytes(&SOUND), 5);
        }
        let event = |index: usize, sound: &[i16]| {
            let data = BASE64.encode(wav(44_100, sound));
            let audio = json!({"data": data, "format": "wav", "mime_type": "audio/wav", "sample_rate": 44_100});
            json!({"id": "speech-1", "object": "audio.speech.chunk", "index": index, "audio": audio, "finish_reason": null})
        };
        let last =
            json!({"object": "audio.speech.chunk", "index": 2, "audio": null, "finish_reason": "stop", "usage": {}});
        let events = [event(0, &SOUND[..1]), event(1, &SOUND[1..]), last].map(|event| format!("data: {event}\n\n"));
        pieces("text/event-stream", [events.concat(), "data: [DONE]\n\n".into()].concat().into_bytes(), 11)
    };
    let voices = async || Json(json!({"voices": ["default"], "uploaded_voices": [], "cache_stats": {}}));
    let routes = Router::new().route("/v1/audio/speech", post(speech)).route("/v1/audio/voices", get(voices));
    let (address, asked) = serve(routes).await;
    let engine = engine("sglang-omni.toml", format!("{address}/v1")).await;
    assert_eq!(ids(&engine), ["default"]);
    assert_eq!(say(&engine, "default").await, (24_000, SOUND.to_vec()));
    assert_eq!(asked.lock().expect("no panic")[0]["response_format"], "pcm");
    let mut config = shipped("sglang-omni.toml", format!("{address}/v1"));
    config.tts.stream_format.clear();
    let engine = assembly::tts(&config).expect("right settings");
    assert_eq!(say(&engine, "default").await, (44_100, SOUND.to_vec()), "the rate of the events' files");
}

#[tokio::test(start_paused = true)]
async fn kokoro_fastapi_streams_and_mixes_voices() {
    let speech = async |State(asked): State<RequestLog>, Json(body): Json<Value>| {
        assert!(["kokoro", "tts-1", "tts-1-hd"].contains(&body["model"].as_str().expect("a model")));
        asked.lock().expect("no panic").push(body);
        pieces("audio/pcm", bytes(&SOUND), 1)
    };
    let voices = async || {
        Json(json!({"voices": [{"id": "af_bella", "name": "af_bella"}, {"id": "af_heart", "name": "af_heart"}]}))
    };
    let routes = Router::new().route("/v1/audio/speech", post(speech)).route("/v1/audio/voices", get(voices));
    let (address, asked) = serve(routes).await;
    let engine = engine("kokoro-fastapi.toml", format!("{address}/v1")).await;
    assert_eq!(ids(&engine), ["af_heart", "af_bella"]);
    assert_eq!(say(&engine, "af_bella(2)+af_heart").await, (24_000, SOUND.to_vec()));
    assert_eq!(asked.lock().expect("no panic")[0]["voice"], "af_bella(2)+af_heart");
    assert!(engine.voice_library().is_none());
}

#[tokio::test(start_paused = true)]
async fn orpheus_fastapi_sends_a_whole_wav_file_whatever_is_asked_for() {
    let speech = async |State(asked): State<RequestLog>, Json(body): Json<Value>| {
        asked.lock().expect("no panic").push(body);
        let mut file =
            antiphon_audio::wav::header(antiphon_types::SampleRate::new(24_000), Some(antiphon_types::Samples(4)))
                .to_vec();
        file.extend(bytes(&SOUND));
        ([("content-type", "audio/wav"), ("content-disposition", "attachment; filename=tara.wav")], file)
            .into_response()
    };
    let voices = async || Json(json!({"status": "ok", "voices": ["tara", "leah"]}));
    let routes = Router::new().route("/v1/audio/speech", post(speech)).route("/v1/audio/voices", get(voices));
    let (address, asked) = serve(routes).await;
    let engine = engine("orpheus-fastapi.toml", format!("{address}/v1")).await;
    assert_eq!(ids(&engine), ["tara", "leah"]);
    assert_eq!(say(&engine, "leah").await, (24_000, SOUND.to_vec()));
    let body = json!({"model": "orpheus", "input": "Hello there.", "voice": "leah", "response_format": "wav"});
    assert_eq!(*asked.lock().expect("no panic"), [body]);
    let mut config = shipped("orpheus-fastapi.toml", format!("{address}/v1"));
    config.tts.response_format = "pcm".into();
    assert_eq!(say(&assembly::tts(&config).expect("right settings"), "tara").await, (24_000, SOUND.to_vec()));
}

#[tokio::test(start_paused = true)]
async fn fish_speech_streams_a_wav_file_and_lists_its_references() {
    let speech = async |State(asked): State<RequestLog>, Json(body): Json<Value>| {
        if body["streaming"] != true || body["format"] != "wav" {
            return (StatusCode::BAD_REQUEST, "Streaming only supports WAV format").into_response();
        }
        asked.lock().expect("no panic").push(body);
        pieces("audio/wav", wav(44_100, &SOUND), 9)
    };
    let references = async |headers: HeaderMap| match headers["accept"].to_str() {
        Ok("application/json") => {
            Json(json!({"success": true, "reference_ids": ["ada"], "message": ""})).into_response()
        }
        _ => "MessagePack".into_response(),
    };
    let routes = Router::new().route("/v1/tts", post(speech)).route("/v1/references/list", get(references));
    let (address, asked) = serve(routes).await;
    let engine = engine("fish-speech.toml", format!("{address}/v1")).await;
    assert_eq!(ids(&engine), ["default", "ada"]);
    assert_eq!(say(&engine, "ada").await, (44_100, SOUND.to_vec()));
    let body = json!({"text": "Hello there.", "format": "wav", "streaming": true, "reference_id": "ada"});
    assert_eq!(*asked.lock().expect("no panic"), [body]);
}

#[tokio::test(start_paused = true)]
async fn moshi_server_takes_words_and_sends_pcm_in_message_pack() {
    async fn session(mut socket: WebSocket, asked: RequestLog) {
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
    let streaming = async |upgrade: WebSocketUpgrade, uri: Uri, headers: HeaderMap, State(asked): State<RequestLog>| {
        if headers.get("kyutai-api-key").is_none_or(|key| key != "public_token") {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        asked.lock().expect("no panic").push(json!(uri.query()));
        upgrade.on_upgrade(|socket| session(socket, asked))
    };
    let (address, asked) = serve(Router::new().route("/api/tts_streaming", any(streaming))).await;
    let engine = engine("moshi-server.toml", format!("{address}/api")).await;
    let voice = "expresso/ex03-ex01_happy_001_channel1_334s.wav";
    assert_eq!(ids(&engine), [voice]);
    assert_eq!(say(&engine, voice).await, (24_000, SOUND.to_vec()));
    let query = "format=PcmMessagePack&voice=expresso%2Fex03-ex01_happy_001_channel1_334s.wav";
    let expected = [json!(query), json!({"type": "Text", "text": "Hello there. "}), json!({"type": "Eos"})];
    assert_eq!(*asked.lock().expect("no panic"), expected);
}

/// A hub whose words go to a fake vLLM-Omni.
async fn hub(answers: &[&str]) -> (Hub, RequestLog) {
    let (address, asked) = vllm_omni().await;
    let tts = engine("vllm-omni.toml", format!("{address}/v1")).await;
    let stt = Arc::new(FakeStt::hears(["what is it", "and now"]));
    let llm = Arc::new(FakeLlm::says(answers.iter().copied()).delayed(Duration::from_millis(5)));
    let engines = Engines { vad: Arc::new(FakeVad), turn: None, stt, llm, tts };
    (Hub::start(engines, Config::default()).await, asked)
}

/// Waits until the server has seen this.
async fn seen(asked: &RequestLog, what: &Value) {
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
    let (hub, asked) = hub(&["Hello **there**. It is five."]).await;
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
    let (hub, asked) = hub(&["Yes.", "No."]).await;
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
    let (hub, asked) = hub(&["Hold on. This is never said.", "Yes."]).await;
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
