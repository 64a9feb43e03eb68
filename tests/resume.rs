//! Sessions resumed after their connection broke: every event exactly once, in order, and no leaks.

use crate::hub::{Hub, Socket, engines, loud, n_audio_samples, quiet, types};
use antiphon::config::Config;
use antiphon::server::Keys;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_protocol::frame::{Frame, FrameKind};
use antiphon_types::Pcm;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// A hub that gives this answer to each of many questions.
async fn hub(answer: &str, config: Config) -> Hub {
    let tts = FakeTts::default().delayed(Duration::from_millis(5));
    Hub::start(engines(FakeStt::default(), FakeLlm::says([answer; 40]), tts), config).await
}

/// A resuming client, with everything received over all its connections.
struct Client {
    socket: Socket,
    key: String,
    got: Vec<Message>,
    said: Vec<Value>,
}

impl Client {
    async fn open(hub: &Hub, query: &str) -> Self {
        let socket = hub.open(&format!("?resume=1{query}")).await.expect("the upgrade is accepted");
        let mut client = Self { socket, key: String::new(), got: Vec::new(), said: Vec::new() };
        let notice = client.until("antiphon.session.resumable").await;
        assert_eq!(notice["within_s"], 30);
        client.key = notice["key"].as_str().expect("a key").to_owned();
        client
    }

    /// The next text or binary message; the library answers pings.
    async fn take(&mut self) -> &Message {
        loop {
            let next = tokio::time::timeout(Duration::from_secs(20), self.socket.stream.next());
            let message = next.await.expect("something comes").expect("the connection stands").expect("a message");
            match message {
                Message::Text(_) | Message::Binary(_) => {
                    self.got.push(message);
                    return self.got.last().expect("just pushed");
                }
                Message::Close(frame) => panic!("closed: {frame:?}"),
                _ => {}
            }
        }
    }

    async fn until(&mut self, kind: &str) -> Value {
        loop {
            if let Message::Text(text) = self.take().await {
                let event: Value = serde_json::from_str(text).expect("JSON");
                if event["type"] == kind {
                    return event;
                }
            }
        }
    }

    async fn ask(&mut self) {
        let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go"}]});
        for event in [json!({"type": "conversation.item.create", "item": item}), json!({"type": "response.create"})] {
            self.said.push(event.clone());
            self.socket.send(event).await;
        }
    }

    /// The connection breaks, and messages after the first `n` are lost in transit.
    async fn come_back(&mut self, hub: &Hub, n: usize) {
        self.got.truncate(n);
        let query = format!("?resume={}&after={n}", self.key);
        // The previous connection is dropped without a close frame.
        self.socket = hub.open(&query).await.expect("the upgrade is accepted");
        let resumed = self.socket.next().await;
        assert_eq!((&resumed["type"], &resumed["after"]), (&json!("antiphon.session.resumed"), &json!(n)), "{resumed}");
        // The client resends what the hub did not receive.
        let n_received = resumed["received"].as_u64().expect("a count") as usize;
        for event in &self.said[n_received..] {
            self.socket.send(event.clone()).await;
        }
    }

    fn events(&self) -> Vec<Value> {
        let texts = self.got.iter().filter_map(|message| message.to_text().ok().filter(|_| message.is_text()));
        texts.map(|text| serde_json::from_str(text).expect("JSON")).collect()
    }
}

/// Checks that no event occurs twice.
fn assert_once(events: &[Value]) {
    let ids: HashSet<_> = events.iter().map(|event| event["event_id"].as_str().expect("an id")).collect();
    assert_eq!(ids.len(), events.len(), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_cut_at_any_event_goes_on_there() {
    let hub = hub("Four.", Config::default()).await;
    let mut whole = Client::open(&hub, "").await;
    whole.ask().await;
    whole.until("response.done").await;
    let expect = whole.events();
    for cut in 2..whole.got.len() {
        let mut client = Client::open(&hub, "").await;
        client.ask().await;
        while client.got.len() < cut {
            client.take().await;
        }
        client.come_back(&hub, cut).await;
        client.until("response.done").await;
        let events = client.events();
        assert_once(&events);
        assert_eq!(types(&events), types(&expect), "cut after {cut}");
        assert_eq!(n_audio_samples(&events), n_audio_samples(&expect), "cut after {cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_on_its_way_comes_again_word_for_word() {
    let hub = hub("One two three.", Config::default()).await;
    for lost in [1, 3, 10, usize::MAX] {
        let mut client = Client::open(&hub, "").await;
        client.ask().await;
        client.until("response.done").await;
        let before = client.got.clone();
        let n = client.got.len();
        client.come_back(&hub, n.saturating_sub(lost)).await;
        while client.got.len() < n {
            client.take().await;
        }
        assert_eq!(client.got, before, "{lost} messages were lost");
        client.ask().await;
        client.until("response.done").await;
        assert_once(&client.events());
    }
}

#[tokio::test(start_paused = true)]
async fn unplayed_frames_wait_for_the_client_and_none_is_missing() {
    let hub = hub("A reply of some length in frames.", Config::default()).await;
    let mut client = Client::open(&hub, "&audio=pcm16").await;
    client.ask().await;
    for n_frames in [5, 20, 50] {
        while client.got.iter().filter(|message| message.is_binary()).count() < n_frames {
            client.take().await;
        }
        let n = client.got.len();
        client.come_back(&hub, n - 2).await;
    }
    client.until("antiphon.output_audio.sent").await;
    let frames = client.got.iter().filter(|message| message.is_binary());
    let frames: Vec<_> = frames.map(|message| Frame::parse(&message.clone().into_data()).expect("a frame")).collect();
    // 33 characters at 50 ms, in frames of 20 ms.
    assert_eq!(frames.len(), 83);
    for (number, frame) in frames.iter().enumerate() {
        assert!(matches!(frame.kind, FrameKind::Reply { .. }));
        assert_eq!((frame.sequence as usize, frame.offset.0 as usize), (number, number * 480));
    }
    assert_once(&client.events());
}

#[tokio::test(start_paused = true)]
async fn a_client_may_come_back_before_its_old_connection_is_known_to_be_dead() {
    let hub = hub("Here I am.", Config::default()).await;
    let mut client = Client::open(&hub, "").await;
    let n = client.got.len();
    let mut second = Client {
        socket: hub.open("").await.expect("another"),
        key: client.key.clone(),
        got: Vec::new(),
        said: Vec::new(),
    };
    second.got.clone_from(&client.got);
    second.come_back(&hub, n).await;
    assert_eq!(client.socket.close().await.map(|frame| u16::from(frame.code)), Some(1001));
    drop(client);
    second.ask().await;
    second.until("response.done").await;
    assert_once(&second.events());
}

/// Connects and returns the error event and the close code.
async fn refused(hub: &Hub, query: &str) -> (Value, u16) {
    let mut socket = hub.open(query).await.expect("the upgrade is accepted");
    let event = socket.next().await;
    (event["error"]["code"].clone(), socket.close().await.expect("a close with a code").code.into())
}

#[tokio::test(start_paused = true)]
async fn a_wrong_key_or_number_is_refused_and_the_session_waits_on() {
    let hub = hub("Still here.", Config::default()).await;
    let mut client = Client::open(&hub, "").await;
    let n = client.got.len();
    let key = client.key.clone();
    let not_found = (json!("session_not_found"), 4000);
    assert_eq!(refused(&hub, "?resume=rk_0&after=0").await, not_found);
    assert_eq!(hub.open(&format!("?resume={key}")).await.err(), Some(400));
    assert_eq!(refused(&hub, &format!("?resume={key}&after={}", n + 1)).await, not_found);
    client.come_back(&hub, n).await;
    client.ask().await;
    client.until("response.done").await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_come_back_leaves_nothing() {
    let mut config = Config::default();
    config.session.resume_seconds = 1;
    config.server.max_sessions = 1;
    let hub = hub("A reply that is cut off before it has ended.", config).await;
    let mut socket = hub.open("?resume=1&audio=pcm16").await.expect("accepted");
    let notice = socket.until("antiphon.session.resumable").await.pop().expect("there");
    let key = notice["key"].as_str().expect("a key");
    socket.send(json!({"type": "response.create"})).await;
    socket.until("response.created").await;
    drop(socket);
    assert_eq!(hub.open("").await.err(), Some(503), "it keeps its place meanwhile");
    hub.until("antiphon_sessions_active ", 0.0).await;
    assert_eq!(refused(&hub, &format!("?resume={key}&after=1")).await.0, "session_not_found");
    hub.connect("").await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_goodbye_and_a_stopping_hub_end_a_resumable_session_at_once() {
    let hub = hub("Bye.", Config::default()).await;
    let mut client = Client::open(&hub, "").await;
    client.socket.stream.close(None).await.expect("said");
    hub.until("antiphon_sessions_active ", 0.0).await;
    let away = Client::open(&hub, "").await;
    drop(away);
    let _waiting = Client::open(&hub, "").await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn keys_are_asked_for_again() {
    const KEY: &str = "sk-antiphon-test-1";
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let hub = Hub::with_keys(engines, Config::default(), Keys::of(&[KEY])).await;
    let connect = async |query: &str, key: &str| {
        let mut request = format!("ws://{}/v1/realtime{query}", hub.address).into_client_request().expect("a request");
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().expect("a header"));
        let (stream, _) = crate::hub::connect(request).await.expect("the upgrade is accepted");
        Socket { stream, frames: Vec::new() }
    };
    let mut socket = connect("?resume=1", KEY).await;
    let notice = socket.until("antiphon.session.resumable").await.pop().expect("there");
    let back = format!("?resume={}&after=2", notice["key"].as_str().expect("a key"));
    drop(socket);
    assert_eq!(refused(&hub, &back).await, (Value::Null, 3000));
    assert_eq!(connect(&back, "wrong").await.next().await["error"]["code"], "invalid_api_key");
    let mut socket = connect(&back, KEY).await;
    assert_eq!(socket.next().await["type"], "antiphon.session.resumed");
    socket.stream.send(Message::text(r#"{"type":"input_audio_buffer.clear"}"#)).await.expect("sent");
    assert_eq!(socket.next().await["type"], "input_audio_buffer.cleared");
}

#[tokio::test]
async fn a_session_outlives_the_short_lived_key_it_was_opened_with() {
    const KEY: &str = "sk-antiphon-test-1";
    let engines = engines(FakeStt::default(), FakeLlm::says(["Still here."]), FakeTts::default());
    let hub = Hub::with_keys(engines, Config::default(), Keys::of(&[KEY])).await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made = reqwest::Client::new()
        .post(format!("http://{}/v1/realtime/client_secrets", hub.address))
        .bearer_auth(KEY)
        .body(r#"{"expires_after":{"seconds":10}}"#);
    let made: Value = made.send().await.expect("an answer").json().await.expect("JSON");
    let guest = made["value"].as_str().expect("a key");
    let connect = async |query: &str, key: &str| {
        let mut request = format!("ws://{}/v1/realtime{query}", hub.address).into_client_request().expect("a request");
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().expect("a header"));
        let (stream, _) = crate::hub::connect(request).await.expect("the upgrade is accepted");
        Socket { stream, frames: Vec::new() }
    };
    let mut socket = connect("?resume=1", guest).await;
    let notice = socket.until("antiphon.session.resumable").await.pop().expect("there");
    let back = format!("?resume={}&after=2", notice["key"].as_str().expect("a key"));
    drop(socket);
    // Pauses the hub's clock instead of waiting.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    assert_eq!(connect("", guest).await.next().await["error"]["code"], "invalid_api_key", "it opens nothing new");
    assert_eq!(connect(&back, "ek_other").await.next().await["error"]["code"], "invalid_api_key");
    let mut socket = connect(&back, guest).await;
    assert_eq!(socket.next().await["type"], "antiphon.session.resumed");
    assert_eq!(socket.ask("Are you there?").await.last().expect("done")["response"]["status"], "completed");
}

/// A connection to the hub that can be cut.
struct Cable {
    address: SocketAddr,
    cut: Arc<Notify>,
    _relay: JoinSet<()>,
}

impl Cable {
    async fn to(hub: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let cut = Arc::new(Notify::new());
        let mut relay = JoinSet::new();
        let cutting = cut.clone();
        relay.spawn(async move {
            loop {
                let (mut near, _) = listener.accept().await.expect("accepted");
                let mut far = TcpStream::connect(hub).await.expect("the hub listens");
                // One connection at a time, as a single client has.
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    () = cutting.notified() => {}
                }
            }
        });
        Self { address, cut, _relay: relay }
    }
}

#[tokio::test(start_paused = true)]
async fn the_client_library_goes_on_with_a_question_whose_connection_was_cut() {
    const ANSWER: &str = "An answer that is long enough to be cut in its middle.";
    let engines = engines(FakeStt::hears(["hello"]), FakeLlm::says([ANSWER]), FakeTts::default());
    let hub = Hub::start(engines, Config::default()).await;
    let cable = Cable::to(hub.address).await;
    let mut options = antiphon_client::ConnectOptions::new(format!("http://{}", cable.address));
    options.mode = antiphon_client::AudioMode::Pcm16;
    options.resume = true;
    let connection = antiphon_client::connect(&options).await.expect("connected");
    let question = Pcm { rate: antiphon_client::RATE, samples: [loud(600), quiet(100)].concat() };
    let asking = antiphon_client::AskOptions::default();
    let cutting = async {
        // Ten frames of the question have arrived.
        while hub.metric("antiphon_bytes_in_total ") < 10_000.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cable.cut.notify_one();
        hub.until("antiphon_turns_total ", 1.0).await;
        hub.until("antiphon_responses_total{outcome=\"completed\"} ", 1.0).await;
        cable.cut.notify_one();
    };
    let (answer, ()) = tokio::join!(antiphon_client::ask(connection, &question, &asking), cutting);
    let answer = answer.expect("answered");
    assert_eq!((answer.transcript.split(' ').next(), &answer.text[..]), (Some("hello"), ANSWER));
    let ms = answer.reply.duration().as_millis() as usize;
    // The space between the two chunks is not synthesized.
    let whole = (ANSWER.len() - 1) * antiphon_engine_api::fakes::tts::MS_PER_CHAR as usize;
    assert!(ms.abs_diff(whole) <= 20, "{ms} ms of {whole}");
}
