//! Peers of WebRTC, phones, Wyoming and RTVI that break their protocols, flood the hub, or leave in the middle.

use super::harness::{Party, fault, run_at_once};
use super::process::{FREE, Settings, TEST_TIMEOUT};
use super::rtc_peer::{Peer, candidate};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use socket2::SockRef;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// Resident memory that peers may cost the hub, in MiB: some hundred calls that begin, and what waits for each.
const MEMORY_MIB: u64 = 160;
/// What Chromium offers, with a microphone and a data channel.
const OFFER: &str = include_str!("../fixtures/chromium_offer.sdp");
/// The id of a call by AudioSocket.
const UUID_BYTES: u128 = 0x4032_5ec2_5efd_4bd3_805f_5357_6e58_1d13;
const CALLS: &str = "/v1/realtime/calls";
/// Where a hub listens for phones and for Wyoming.
const AUDIOSOCKET: &str = "TELEPHONY__AUDIOSOCKET_LISTEN";
const WYOMING: &str = "WYOMING__LISTEN";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_of_other_transports_harm_themselves_alone() {
    let settings =
        Settings::default().with(WYOMING, FREE).with("TELEPHONY__UNAUTHENTICATED", "true").with(AUDIOSOCKET, FREE);
    let mut faults = Vec::new();
    for (name, sdp, status) in offers() {
        let is_short = name == "100 media lines";
        let one = fault(format!("webrtc: an offer of {name}"), "the status and a sentence", move |party| {
            offered(party, sdp.clone(), status)
        });
        faults.push(if is_short { one.short() } else { one });
    }
    faults.extend([
        fault("webrtc: an unknown call id", "404 call_id_not_found", unknown_call),
        fault("webrtc: 60 offers whose peers never come", "an answer to each", never_connected),
        fault("webrtc: STUN requests from a thousand addresses", "no reply", stun_flood).short(),
        fault("webrtc: DTLS with another fingerprint", "no connection", other_fingerprint),
        fault("webrtc: a message of 20 MB on the data channel", "the end of the call", large_message).short(),
        fault("webrtc: RTP of another codec", "the call goes on", other_codec),
        fault("webrtc: 100 TCP connections that say nothing", "the end of those beyond the bound", silent_tcp),
        fault("webrtc: a peer that vanishes", "nothing: it has left", vanishes),
        fault("phone: a stream without a start", "1008 within 10 s", without_start).short(),
        fault("phone: media before the start", "the call goes on", media_first),
        fault("phone: marks that were never set", "the call goes on", strange_marks),
        fault("phone: a call that reads nothing and never hangs up", "1011", never_hangs_up),
        fault("phone: reset in the middle", "nothing: it has left", phone_reset),
        fault("audiosocket: half a frame", "the end of the connection", half_a_frame).short(),
        fault("audiosocket: half closed in a call", "the end of the call", half_closed),
        fault("audiosocket: 300 that say nothing", "the end of each", silent_peers),
        fault("wyoming: a header that promises 4 GiB", "an error, or the end", promises).short(),
        fault("wyoming: half an event", "an error within the time of a message", half_an_event),
        fault("wyoming: half closed in the middle", "the end of the connection", wyoming_half_closed),
        fault("wyoming: 200 that say nothing", "the end of those beyond the bound", silent_wyoming),
        fault("rtvi: text instead of protobuf", "1003", |party| rtvi(party, Message::text("{}"), Some(1003))),
        fault("rtvi: bytes that are no frame", "1007", |party| {
            rtvi(party, Message::binary(vec![0xff; 64]), Some(1007))
        })
        .short(),
        fault("rtvi: a frame of another type", "the session goes on", |party| {
            rtvi(party, Message::binary(&b"\x0a\x04\x1a\x02hi"[..]), None)
        }),
        fault("rtvi: audio of 1 Hz", "1007", |party| {
            rtvi(party, Message::binary(&b"\x12\x08\x1a\x02\x01\x02\x20\x01\x28\x01"[..]), Some(1007))
        }),
        fault("rtvi: a frame of 2 MiB", "1009", |party| rtvi(party, Message::binary(vec![0; 2 << 20]), Some(1009))),
    ]);
    run_at_once("transports", settings, MEMORY_MIB, faults).await;
}

fn offer() -> String {
    OFFER.replace("\r\n", "\n").replace('\n', "\r\n")
}

/// Names, offers, and the status of each.
fn offers() -> Vec<(&'static str, String, u16)> {
    let video =
        "m=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:video\r\na=inactive\r\na=rtpmap:96 VP8/90000\r\n";
    let video_first = offer().replacen("BUNDLE 0", "BUNDLE video 0", 1);
    let video_first = video_first.replacen("m=audio", &format!("{video}m=audio"), 1);
    let many = format!("{}{}", offer(), "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n".repeat(98));
    vec![
        ("nothing", String::new(), 400),
        ("no audio", offer().replace("m=audio", "m=video"), 400),
        ("video before audio", video_first, 201),
        ("100 media lines", many, 400),
        ("1 MB", format!("{}{}", offer(), "a=x\r\n".repeat(200_000)), 413),
        ("80 KB", format!("{}{}", offer(), "a=x\r\n".repeat(15_000)), 413),
        ("another codec", offer().replace("opus/48000/2", "ISAC/16000"), 400),
        ("zero bytes", offer().replace("a=", "\0="), 400),
    ]
}

async fn offered(party: Party, sdp: String, status: u16) {
    let answer = party.http("POST", CALLS, "content-type: application/sdp\r\n", sdp.as_bytes()).await;
    party.beside().await;
    answer.is(&[status]);
    if status != 201 {
        let message = answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(!message.is_empty() && message.len() < 1_024, "{message}");
    }
}

async fn unknown_call(party: Party) {
    let hang_up = party.http("POST", &format!("{CALLS}/rtc_none/hangup"), "", b"").await;
    let joined = party.open("?call_id=rtc_none", &[]).await;
    party.beside().await;
    hang_up.is(&[404]);
    let refused = joined.err().expect("no call is joined");
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (404, Some("call_id_not_found")));
}

async fn never_connected(party: Party) {
    let mut n_answered = 0;
    for _ in 0..60 {
        let answer = party.http("POST", CALLS, "content-type: application/sdp\r\n", offer().as_bytes()).await;
        answer.is(&[201, 429, 503]);
        n_answered += usize::from(answer.status == 201);
    }
    party.beside().await;
    assert!(n_answered > 0);
}

/// A STUN binding request for a call, without a valid signature.
fn stun(username: &str) -> Vec<u8> {
    let padded = username.len().next_multiple_of(4);
    let length = u16::try_from(4 + padded + 24).expect("short");
    let mut bytes = vec![0, 1];
    bytes.extend(length.to_be_bytes());
    bytes.extend([0x21, 0x12, 0xa4, 0x42]);
    bytes.extend([7; 12]);
    bytes.extend([0, 6]);
    bytes.extend(u16::try_from(username.len()).expect("short").to_be_bytes());
    bytes.extend(username.as_bytes());
    bytes.resize(24 + padded, 0);
    bytes.extend([0, 8, 0, 20]);
    bytes.resize(20 + usize::from(length), 9);
    bytes
}

async fn stun_flood(party: Party) {
    let answer = party.http("POST", CALLS, "content-type: application/sdp\r\n", offer().as_bytes()).await;
    answer.is(&[201]);
    let answer = String::from_utf8(answer.body).expect("text");
    let target = candidate(&answer);
    let fragment = answer.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).expect("a fragment");
    let requests = [stun(&format!("{fragment}:peer")), stun("nobody:peer"), stun("")];
    let mut sockets = Vec::new();
    for n in 0..1_000_u16 {
        let from = Ipv4Addr::new(127, 9, (n / 250) as u8, (n % 250 + 1) as u8);
        sockets.push(UdpSocket::bind((from, 0)).await.expect("a free port"));
    }
    for _ in 0..20 {
        for socket in &sockets {
            for request in &requests {
                let _ = socket.try_send_to(request, target);
            }
            let _ = socket.try_send_to(&[128, 111, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1], target);
            let _ = socket.try_send_to(&[22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], target);
        }
        tokio::task::yield_now().await;
    }
    party.beside().await;
    let mut buffer = [0; 64];
    let reflected = sockets.iter().filter(|socket| socket.try_recv_from(&mut buffer).is_ok()).count();
    assert_eq!(reflected, 0, "addresses that got a reply");
}

async fn other_fingerprint(party: Party) {
    let lie = |offer: String| {
        let line = |line: &str| match line.split_once("a=fingerprint:sha-256 ") {
            Some((_, digest)) => format!("a=fingerprint:sha-256 00{}\r\n", &digest[2..]),
            None => format!("{line}\r\n"),
        };
        offer.lines().map(line).collect()
    };
    let mut peer = Peer::call(&party, lie).await;
    party.beside().await;
    assert!(!peer.until(|peer| peer.channel.is_some(), Duration::from_secs(12)).await, "the hub took the channel");
    assert!(peer.n_events == 0, "the hub sent events");
}

async fn large_message(party: Party) {
    let mut peer = Peer::call(&party, |offer| offer).await;
    assert!(peer.until(|peer| peer.n_events > 0, TEST_TIMEOUT).await, "the call begins");
    // More than the hub's maximum, in as many pieces as the channel takes.
    let n_written = peer.write(&vec![b' '; 20_000_000]).await;
    party.beside().await;
    assert!(n_written > 0, "the peer sent none of it");
    assert!(peer.until(|peer| peer.is_over, TEST_TIMEOUT).await, "the call goes on");
}

async fn other_codec(party: Party) {
    let mut peer = Peer::call(&party, |offer| offer).await;
    assert!(peer.until(|peer| peer.n_events > 0, TEST_TIMEOUT).await, "the call begins");
    for n in 0..100_u64 {
        // PCMU, comfort noise, and bytes that are no Opus under Opus' number.
        peer.packet([0, 13, 111][n as usize % 3], n, &[0xff; 160]);
        peer.until(|_| false, Duration::from_millis(10)).await;
    }
    party.beside().await;
    let before = peer.n_events;
    let update = json!({"type": "session.update", "session": {"type": "realtime", "instructions": "Be brief."}});
    peer.write(update.to_string().as_bytes()).await;
    assert!(peer.until(|peer| peer.n_events > before, TEST_TIMEOUT).await, "the call goes on");
    peer.close();
}

async fn silent_tcp(party: Party) {
    let answer = party.http("POST", CALLS, "content-type: application/sdp\r\n", offer().as_bytes()).await;
    answer.is(&[201]);
    let target = candidate(&String::from_utf8(answer.body).expect("text"));
    let mut streams = Vec::new();
    for _ in 0..100 {
        streams.push(super::process::connect(target, party.from).await.expect("it listens"));
    }
    party.beside().await;
    for mut stream in streams {
        // At once beyond 64 of a network, else after 10 s.
        let ended = timeout(TEST_TIMEOUT, stream.read(&mut [0; 1])).await.expect("the hub ends the connection");
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }
}

async fn vanishes(party: Party) {
    let mut peer = Peer::call(&party, |offer| offer).await;
    assert!(peer.until(|peer| peer.n_events > 0, TEST_TIMEOUT).await, "the call begins");
    party.beside().await;
}

type Phone = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn socket(party: &Party, path: &str) -> Phone {
    let request = format!("ws://{}{path}", party.hub.address()).into_client_request().expect("a request");
    let stream = MaybeTlsStream::Plain(party.tcp().await);
    let opened = timeout(TEST_TIMEOUT, tokio_tungstenite::client_async(request, stream)).await.expect("an answer");
    match opened {
        Ok((stream, _)) => stream,
        Err(Error::Http(response)) => panic!("{}", response.status()),
        Err(error) => panic!("{error}"),
    }
}

/// The code of the hub's close frame; `None`: the connection ended without one.
async fn code(stream: &mut Phone) -> Option<u16> {
    loop {
        match timeout(TEST_TIMEOUT, stream.next()).await.expect("the hub closes") {
            Some(Ok(Message::Close(frame))) => return frame.map(|frame| frame.code.into()),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

fn started() -> Message {
    let start = json!({"event": "start", "streamSid": "MZ1", "start": {"streamSid": "MZ1", "callSid": "CA1",
        "tracks": ["inbound"], "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}}});
    Message::text(start.to_string())
}

fn media() -> Message {
    Message::text(json!({"event": "media", "media": {"track": "inbound", "payload": "/////w=="}}).to_string())
}

async fn without_start(party: Party) {
    let mut phone = socket(&party, "/v1/telephony/twilio").await;
    phone.send(Message::text(r#"{"event":"connected"}"#)).await.expect("sent");
    party.beside().await;
    assert_eq!(code(&mut phone).await, Some(1008));
}

async fn media_first(party: Party) {
    let mut phone = socket(&party, "/v1/telephony/twilio").await;
    for _ in 0..1_000 {
        phone.send(media()).await.expect("sent");
    }
    phone.send(started()).await.expect("sent");
    party.beside().await;
    phone.send(Message::Ping("still there".into())).await.expect("sent");
    assert!(timeout(TEST_TIMEOUT, is_answered(&mut phone)).await.expect("in time"));
}

/// Whether the ping "still there" is answered before the connection ends.
async fn is_answered(phone: &mut Phone) -> bool {
    while let Some(Ok(message)) = phone.next().await {
        if matches!(&message, Message::Pong(data) if data.as_ref() == b"still there") {
            return true;
        }
    }
    false
}

async fn strange_marks(party: Party) {
    let mut phone = socket(&party, "/v1/telephony/twilio").await;
    phone.send(started()).await.expect("sent");
    for n in 0..20_000_u64 {
        let name = if n % 2 == 0 { format!("antiphon-{}", u64::MAX - n) } else { format!("mark {n}") };
        let mark = json!({"event": "mark", "mark": {"name": name}});
        phone.send(Message::text(mark.to_string())).await.expect("the hub reads");
    }
    party.beside().await;
    phone.send(Message::Ping("still there".into())).await.expect("sent");
    let answered = async {
        while let Some(Ok(message)) = phone.next().await {
            if matches!(&message, Message::Pong(data) if data.as_ref() == b"still there") {
                return true;
            }
        }
        false
    };
    assert!(timeout(TEST_TIMEOUT, answered).await.expect("an answer"), "the hub has ended the call");
    phone.send(Message::text(r#"{"event":"stop"}"#)).await.expect("sent");
    let ended = timeout(TEST_TIMEOUT, async { while let Some(Ok(_)) = phone.next().await {} }).await;
    assert!(ended.is_ok(), "the hub ends the call");
}

async fn never_hangs_up(party: Party) {
    let mut phone = socket(&party, "/v1/telephony/twilio").await;
    phone.send(started()).await.expect("sent");
    phone.send(media()).await.expect("sent");
    party.beside().await;
    // Two pings, 3 s apart, that are not answered, because nothing is read.
    tokio::time::sleep(Duration::from_secs(12)).await;
    // What waited is read at once, and no ping of it keeps the call.
    let code = timeout(Duration::from_secs(2), code(&mut phone)).await.expect("the hub has ended the call");
    assert_eq!(code, Some(1011));
}

async fn phone_reset(party: Party) {
    for _ in 0..20 {
        let mut phone = socket(&party, "/v1/telephony/twilio").await;
        phone.send(started()).await.expect("sent");
        phone.send(media()).await.expect("sent");
        let MaybeTlsStream::Plain(stream) = phone.get_ref() else { panic!("plain") };
        SockRef::from(stream).set_linger(Some(Duration::ZERO)).expect("set");
    }
    party.beside().await;
}

fn audiosocket_frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("short").to_be_bytes();
    [&[kind][..], &length, payload].concat()
}

/// Reads to the end of a connection that the hub ends.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = timeout(TEST_TIMEOUT, stream.read_to_end(&mut bytes)).await.expect("the hub ends the connection");
    bytes
}

async fn half_a_frame(party: Party) {
    let address = party.hub.listens(AUDIOSOCKET);
    let mut stream = super::process::connect(address, party.from).await.expect("it listens");
    stream.write_all(&audiosocket_frame(1, &UUID_BYTES.to_be_bytes())[..9]).await.expect("sent");
    party.beside().await;
    assert_eq!(rest(&mut stream).await, [0, 0, 0], "a hang-up, and the end");
}

async fn half_closed(party: Party) {
    let address = party.hub.listens(AUDIOSOCKET);
    let mut stream = super::process::connect(address, party.from).await.expect("it listens");
    stream.write_all(&audiosocket_frame(1, &UUID_BYTES.to_be_bytes())).await.expect("sent");
    stream.write_all(&audiosocket_frame(0x10, &[0; 320])).await.expect("sent");
    stream.write_all(&[0x10, 1]).await.expect("sent");
    stream.shutdown().await.expect("half closed");
    party.beside().await;
    rest(&mut stream).await;
}

async fn silent_peers(party: Party) {
    let address = party.hub.listens(AUDIOSOCKET);
    let mut streams = Vec::new();
    for _ in 0..300 {
        streams.push(super::process::connect(address, party.from).await.expect("it listens"));
    }
    party.beside().await;
    for mut stream in streams {
        rest(&mut stream).await;
    }
}

/// Wyoming's events in these bytes: their types.
fn types(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let heads = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    heads.filter_map(|head| Some(head["type"].as_str()?.to_owned())).collect()
}

async fn promises(party: Party) {
    let address = party.hub.listens(WYOMING);
    for promised in ["4294967296", "262145", "18446744073709551615"] {
        let mut stream = super::process::connect(address, party.from).await.expect("it listens");
        let head = format!("{{\"type\":\"audio-chunk\",\"payload_length\":{promised}}}\n");
        stream.write_all(head.as_bytes()).await.expect("sent");
        let _ = stream.write_all(&vec![0; 1 << 20]).await;
        let said = types(&rest(&mut stream).await);
        assert!(said.is_empty() || said == ["error"], "{promised}: {said:?}");
    }
    party.beside().await;
}

async fn half_an_event(party: Party) {
    let address = party.hub.listens(WYOMING);
    let mut stream = super::process::connect(address, party.from).await.expect("it listens");
    stream.write_all(b"{\"type\":\"audio-chunk\",\"payload_length\":1000}\nabc").await.expect("sent");
    party.beside().await;
    let said = types(&rest(&mut stream).await);
    assert_eq!(said, ["error"]);
}

async fn wyoming_half_closed(party: Party) {
    let address = party.hub.listens(WYOMING);
    let mut stream = super::process::connect(address, party.from).await.expect("it listens");
    stream.write_all(b"{\"type\":\"transcribe\"}\n{\"type\":\"audio-sta").await.expect("sent");
    stream.shutdown().await.expect("half closed");
    party.beside().await;
    rest(&mut stream).await;
}

async fn silent_wyoming(party: Party) {
    let address = party.hub.listens(WYOMING);
    let mut streams = Vec::new();
    for _ in 0..200 {
        if let Ok(stream) = super::process::connect(address, party.from).await {
            streams.push(stream);
        }
    }
    party.beside().await;
    let mut n_ended = 0;
    for stream in &mut streams {
        n_ended += usize::from(matches!(
            timeout(Duration::from_millis(5), stream.read(&mut [0; 1])).await,
            Ok(Ok(0) | Err(_))
        ));
    }
    assert!(n_ended >= 100, "{n_ended} of 200 ended");
}

async fn rtvi(party: Party, message: Message, expect: Option<u16>) {
    let mut stream = socket(&party, "/v1/rtvi").await;
    // The hub may close before it has read all of it.
    let _ = stream.send(message).await;
    party.beside().await;
    if expect.is_some() {
        assert_eq!(code(&mut stream).await, expect);
        return;
    }
    let ready = br#"{"label":"rtvi-ai","type":"client-ready","id":"1","data":{"version":"2.1.0"}}"#;
    let inner = [&[0x0a, ready.len() as u8][..], ready].concat();
    let frame = [&[0x22, inner.len() as u8][..], &inner].concat();
    stream.send(Message::binary(frame)).await.expect("the session goes on");
    let answered = async {
        while let Some(Ok(message)) = stream.next().await {
            if String::from_utf8_lossy(&message.into_data()).contains("bot-ready") {
                return true;
            }
        }
        false
    };
    assert!(timeout(TEST_TIMEOUT, answered).await.expect("an answer"), "the session goes on");
}
