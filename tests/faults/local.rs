//! Clients that leave while the hub's own engines work for them: Whisper tiny.en and flite.
//!
//! A hub does not say how many of its decoders and voices are in service. It has two of each here, and more clients leave
//! than that: what they did not give back, the canary would wait for.

use super::harness::{Party, append, fault, run, speech, typed};
use super::process::{Settings, TEST_TIMEOUT};
use crate::hub::Socket;
use serde_json::json;
use socket2::SockRef;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::MaybeTlsStream;

/// Resident memory that engines may cost the hub, in MiB: a second decoder, and sound that waits.
const MEMORY_MIB: u64 = 128;
/// Decoders, and voices.
const POOL: usize = 2;
/// Clients that leave, one after the other.
const CLIENTS: usize = 4 * POOL;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_leave_local_engines_give_them_back() {
    let nothing = "nothing: it has left";
    let faults = vec![
        fault("recognizer: left within an utterance", nothing, |party| leaves_recognizer(party, "speech_started"))
            .short(),
        fault("recognizer: left behind an utterance", nothing, |party| leaves_recognizer(party, "committed")),
        fault("recognizer: an upload is left while it is decoded", nothing, leaves_upload),
        fault("voice: left within a reply", nothing, leaves_reply).short(),
        fault("voice: left within a response of the speech API", nothing, leaves_speech),
        fault("voice: forty replies are cancelled", "cancelled replies", cancels),
    ];
    let settings = Settings::default()
        .with("STT__ENGINE", "whisper")
        .with("STT__MODEL", crate::hub::tiny_whisper().model)
        .with("STT__THREADS", "1")
        .with("STT__DECODERS", POOL.to_string())
        .with("TTS__ENGINE", "flite")
        .with("TTS__REPLICAS", POOL.to_string())
        .with("TTS__VOICE", "kal16");
    run("local", settings, MEMORY_MIB, faults).await;
}

/// Ends a connection as a process that dies does.
fn vanish(socket: Socket) {
    let MaybeTlsStream::Plain(stream) = socket.stream.get_ref() else { panic!("plain") };
    reset(stream);
}

fn reset(stream: &TcpStream) {
    SockRef::from(stream).set_linger(Some(Duration::ZERO)).expect("set");
}

async fn leaves_recognizer(party: Party, behind: &'static str) {
    let leave = async {
        for _ in 0..CLIENTS {
            let mut socket = party.connect("").await;
            let pcm = if behind == "committed" { speech() } else { &speech()[..16_000] };
            socket.send(append(pcm)).await;
            socket.until(&format!("input_audio_buffer.{behind}")).await;
            vanish(socket);
        }
    };
    tokio::join!(leave, party.beside());
    party.beside().await;
}

/// The head and the body of a request.
fn request(path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

async fn leaves_upload(party: Party) {
    let minute: Vec<i16> = speech().iter().copied().cycle().take(60 * 24_000).collect();
    let sound = antiphon_audio::wav::write(&antiphon_types::Pcm { rate: antiphon_client::RATE, samples: minute });
    let head = b"--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n";
    let body = [&head[..], &sound, b"\r\n--b--\r\n"].concat();
    let request = request("/v1/audio/transcriptions", "multipart/form-data; boundary=b", &body);
    let leave = async {
        for _ in 0..CLIENTS {
            let mut stream = party.tcp().await;
            stream.write_all(&request).await.expect("the hub reads");
            // A minute takes longer to be decoded.
            tokio::time::sleep(Duration::from_millis(200)).await;
            reset(&stream);
        }
    };
    tokio::join!(leave, party.beside());
    party.beside().await;
}

/// A session that hears the beginning of a long answer.
async fn listening(party: &Party) -> Socket {
    let mut socket = party.connect("").await;
    socket.send(typed("Tell me a long story")).await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until("response.output_audio.delta").await;
    socket
}

async fn leaves_reply(party: Party) {
    let leave = async {
        for _ in 0..CLIENTS {
            vanish(listening(&party).await);
        }
    };
    tokio::join!(leave, party.beside());
    party.beside().await;
}

async fn leaves_speech(party: Party) {
    let text = "A long text has many words in it. ".repeat(100);
    let body = json!({"input": text, "voice": "kal16", "response_format": "pcm"}).to_string();
    let request = request("/v1/audio/speech", "application/json", body.as_bytes());
    let leave = async {
        for _ in 0..CLIENTS {
            let mut stream = party.tcp().await;
            stream.write_all(&request).await.expect("the hub reads");
            let mut head = [0; 12];
            timeout(TEST_TIMEOUT, stream.read_exact(&mut head)).await.expect("an answer").expect("an answer");
            assert_eq!(&head, b"HTTP/1.1 200");
            reset(&stream);
        }
    };
    tokio::join!(leave, party.beside());
    party.beside().await;
}

async fn cancels(party: Party) {
    let mut socket = party.connect("").await;
    let cancelled = async {
        for _ in 0..40 {
            socket.send(typed("Tell me a long story")).await;
            socket.send(json!({"type": "response.create"})).await;
            socket.until("response.output_audio.delta").await;
            socket.send(json!({"type": "response.cancel"})).await;
            let done = socket.until("response.done").await.pop().expect("an end");
            assert_eq!(done["response"]["status"], "cancelled", "{done}");
        }
    };
    tokio::join!(cancelled, party.beside());
}
