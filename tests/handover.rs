//! Sessions that move between the hubs of a cluster, on a real nats-server: every event exactly once, in order, and one owner.

use crate::cluster::{NO_RECOGNIZER, Process};
use crate::hub::{Hub, Socket, engines, loud, quiet, types};
use antiphon::assembly::{EngineManager, Membership};
use antiphon::config::Config;
use antiphon::server::{Keys, Parts};
use antiphon_cluster::testing::NatsServer;
use antiphon_cluster::{ClusterConfig, JetStream, SealingKey};
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::{FakeLlm, words};
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::llm::LlmDelta;
use antiphon_protocol::frame::{Frame, FrameKind};
use antiphon_telemetry::Metrics;
use antiphon_types::Samples;
use antiphon_types::chat::Finish;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A NATS server, and the key that the hubs seal with.
struct Site {
    server: NatsServer,
    folder: TempDir,
}

impl Site {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let site = Self {
            server: NatsServer::start().await.expect("nats-server"),
            folder: tempfile::tempdir().expect("a folder"),
        };
        site.make_key("key");
        site
    }

    fn make_key(&self, name: &str) {
        std::fs::write(self.folder.path().join(name), SealingKey::generate().encoded()).expect("written");
    }

    fn config(&self, name: &str, key: &str) -> Config {
        let sealing_key = self.folder.path().join(key).to_str().expect("text").to_owned();
        let cluster = ClusterConfig {
            servers: vec![self.server.url()],
            name: name.into(),
            fallback: true,
            jetstream: true,
            sealing_key,
            ..ClusterConfig::default()
        };
        Config { cluster, ..Config::default() }
    }

    async fn hub(&self, name: &str, engines: &Engines) -> Member {
        self.hub_with(self.config(name, "key"), engines).await
    }

    /// A hub that loses its store: it does not wait long for a session that it cannot store any more when it stops.
    async fn hub_to_lose(&self, name: &str, engines: &Engines) -> Member {
        let mut config = self.config(name, "key");
        config.server.drain_seconds = 1;
        self.hub_with(config, engines).await
    }

    async fn hub_with(&self, config: Config, engines: &Engines) -> Member {
        self.hub_with_keys(config, engines, Keys::default()).await
    }

    async fn hub_with_keys(&self, config: Config, engines: &Engines, keys: Keys) -> Member {
        let manager = Arc::new(EngineManager::new(&config).expect("the registry is right"));
        manager.join(Membership::join(&config).await.expect("it joins"));
        let metrics = Metrics::new();
        let manager_part = Some((manager.clone(), Vec::new()));
        let engines = engines.clone();
        let hub = Hub::serve(Parts { config, engines, metrics, keys, tls: None, manager: manager_part }).await;
        Member { hub, manager }
    }

    /// The stored sessions, as another hub sees them.
    async fn store(&self) -> JetStream {
        JetStream::open(&self.config("store", "key").cluster, 64 << 20).await.expect("it opens")
    }
}

struct Member {
    hub: Hub,
    manager: Arc<EngineManager>,
}

impl Member {
    async fn stop(self) {
        self.hub.stop().await;
        self.manager.membership().expect("it joined").leave().await;
    }
}

/// A client that resumes its session at any hub: what it has received and sent, and where its checkpoints are.
struct Client {
    socket: Socket,
    key: String,
    got: Vec<Message>,
    said: Vec<Message>,
    /// For each checkpoint the number of messages received, and of those sent that it includes.
    checkpoints: Vec<(usize, usize)>,
    frames: u32,
}

/// How a client came back.
#[derive(Debug, PartialEq, Eq)]
enum Back {
    Exactly,
    ToCheckpoint,
}

impl Client {
    async fn open(hub: &Hub, query: &str) -> Self {
        Self::open_at(&hub.address.to_string(), query).await
    }

    async fn open_at(address: &str, query: &str) -> Self {
        let socket = connect(address, &format!("?resume=1{query}")).await.expect("the upgrade is accepted");
        let mut client =
            Self { socket, key: String::new(), got: Vec::new(), said: Vec::new(), checkpoints: Vec::new(), frames: 0 };
        let notice = client.until("antiphon.session.resumable").await;
        client.key = notice["key"].as_str().expect("a key").to_owned();
        client.until("antiphon.session.checkpoint").await;
        client
    }

    /// The next message; `Err`: the code of the close.
    async fn take(&mut self) -> Result<&Message, u16> {
        loop {
            let next = timeout(TEST_TIMEOUT, self.socket.stream.next()).await.expect("something comes");
            match next.expect("the connection stands").expect("a message") {
                message @ (Message::Text(_) | Message::Binary(_)) => {
                    self.got.push(message);
                    let message = self.got.last().expect("just pushed");
                    let event: Value =
                        message.to_text().ok().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
                    if event["type"] == "antiphon.session.checkpoint" {
                        let received = event["received"].as_u64().expect("a count") as usize;
                        self.checkpoints.push((self.got.len(), received));
                    }
                    return Ok(self.got.last().expect("just pushed"));
                }
                Message::Close(frame) => return Err(frame.map_or(1005, |frame| frame.code.into())),
                _ => {}
            }
        }
    }

    async fn until(&mut self, kind: &str) -> Value {
        loop {
            let message = self.take().await.expect("the connection stands");
            if let Message::Text(text) = message {
                let event: Value = serde_json::from_str(text).expect("JSON");
                if event["type"] == kind {
                    return event;
                }
            }
        }
    }

    /// Receives until the next checkpoint and waits until it is stored, since it is announced before; what is stored.
    async fn until_stored(&mut self, store: &JetStream) -> Vec<u8> {
        self.until("antiphon.session.checkpoint").await;
        let waiting = async {
            loop {
                let record = stored(store, &record_of(&self.key)).await;
                let head = record.iter().position(|byte| *byte == b'\n').expect("a head");
                if antiphon_session::Snapshot::from_bytes(&record[head + 1..]).expect("it is read").sent()
                    == self.got.len() as u64
                {
                    return record;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(TEST_TIMEOUT, waiting).await.expect("the checkpoint is stored")
    }

    /// Receives until the hub closes; the code.
    async fn until_closed(&mut self) -> u16 {
        loop {
            if let Err(code) = self.take().await {
                return code;
            }
        }
    }

    async fn say(&mut self, message: Message) {
        self.said.push(message.clone());
        // A connection that is gone takes nothing; it is sent again.
        let _ = self.socket.stream.send(message).await;
    }

    async fn ask(&mut self, text: &str) {
        let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
        for event in [json!({"type": "conversation.item.create", "item": item}), json!({"type": "response.create"})] {
            self.say(Message::text(event.to_string())).await;
        }
    }

    /// Microphone audio in frames of 20 ms.
    async fn speak(&mut self, pcm: &[i16]) {
        for piece in pcm.chunks(480) {
            let payload: Vec<u8> = piece.iter().flat_map(|sample| sample.to_le_bytes()).collect();
            let offset = Samples(480 * u64::from(self.frames));
            let frame = Frame { kind: FrameKind::Microphone, sequence: self.frames, offset, payload: payload.into() };
            self.frames += 1;
            self.say(Message::Binary(frame.encode().expect("a frame"))).await;
        }
    }

    /// Comes back at a hub, and sends again what it has not received.
    async fn resume(&mut self, hub: &Hub) -> Result<Back, u16> {
        self.resume_at(&hub.address.to_string()).await
    }

    async fn resume_at(&mut self, address: &str) -> Result<Back, u16> {
        let n = self.got.len();
        self.socket = connect(address, &format!("?resume={}&after={n}", self.key)).await?;
        let resumed = self.socket.next().await;
        if resumed["type"] == "error" {
            assert_eq!(resumed["error"]["code"], "session_not_found", "{resumed}");
            return Err(self.socket.close().await.expect("a code").code.into());
        }
        assert_eq!(resumed["type"], "antiphon.session.resumed", "{resumed}");
        let after = resumed["after"].as_u64().expect("a count") as usize;
        let received = resumed["received"].as_u64().expect("a count") as usize;
        let back = if after == n { Back::Exactly } else { Back::ToCheckpoint };
        if back == Back::ToCheckpoint {
            let last_two = &self.checkpoints[self.checkpoints.len().saturating_sub(2)..];
            assert!(last_two.contains(&(after, received)), "{resumed} is none of {last_two:?}");
            self.got.truncate(after);
            self.checkpoints.retain(|(number, _)| *number <= after);
        }
        for message in self.said.clone().into_iter().skip(received) {
            let _ = self.socket.stream.send(message).await;
        }
        Ok(back)
    }

    fn events(&self) -> Vec<Value> {
        let texts = self.got.iter().filter_map(|message| message.to_text().ok().filter(|_| message.is_text()));
        texts.map(|text| serde_json::from_str(text).expect("JSON")).collect()
    }

    /// The reply frames received: their sequence numbers without a gap.
    fn frames(&self) -> Vec<Bytes> {
        self.got.iter().filter(|message| message.is_binary()).map(|message| message.clone().into_data()).collect()
    }

    fn assert_once(&self) {
        let events = self.events();
        let ids: HashSet<_> = events.iter().map(|event| event["event_id"].as_str().expect("an id")).collect();
        assert_eq!(ids.len(), events.len(), "{events:#?}");
        for (number, bytes) in self.frames().iter().enumerate() {
            assert_eq!(
                Frame::parse(bytes).expect("a frame").sequence as usize,
                number,
                "no frame is missing or doubled"
            );
        }
    }
}

/// Performs the upgrade; `Err` is the HTTP status of a rejection.
async fn connect(address: &str, query: &str) -> Result<Socket, u16> {
    use tokio_tungstenite::tungstenite::Error;
    match crate::hub::connect(format!("ws://{address}/v1/realtime{query}")).await {
        Ok((stream, _)) => Ok(Socket { stream, frames: Vec::new() }),
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

fn fakes<'a>(
    heard: impl IntoIterator<Item = &'a str>,
    answers: impl IntoIterator<Item = &'a str>,
) -> (Engines, FakeLlm) {
    let llm = FakeLlm::says(answers);
    (engines(FakeStt::hears(heard), llm.clone(), FakeTts::default().delayed(Duration::from_millis(5))), llm)
}

/// The words of the user's and the assistant's messages in the last request to the model.
fn read_by_model(llm: &FakeLlm) -> Vec<String> {
    use antiphon_types::chat::Message;
    let request = llm.requests().pop().expect("the model was asked");
    let words = request.messages.into_iter().filter_map(|message| match message {
        Message::User(text) | Message::Assistant { text, .. } => Some(text),
        _ => None,
    });
    words.collect()
}

#[tokio::test]
async fn a_session_goes_on_at_another_hub_when_its_own_stops() {
    let site = Site::start().await;
    let (engines, llm) = fakes([], ["The first.", "The second.", "The third."]);
    let one = site.hub("one", &engines).await;
    let two = site.hub("two", &engines).await;
    let mut client = Client::open(&one.hub, "").await;
    client.ask("One?").await;
    client.until("response.done").await;
    one.hub.begin_to_stop();
    assert_eq!(client.until_closed().await, 1012);
    assert_eq!(client.resume(&two.hub).await, Ok(Back::Exactly));
    client.ask("Two?").await;
    client.until("response.done").await;
    client.assert_once();
    assert_eq!(read_by_model(&llm), ["One?", "The first.", "Two?"]);
    let created = types(&client.events()).iter().filter(|kind| **kind == "response.created").count();
    assert_eq!(created, 2);
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_client_that_comes_to_another_hub_takes_its_session_along() {
    let site = Site::start().await;
    let (engines, llm) = fakes([], ["The first.", "The second.", "The third."]);
    let one = site.hub("one", &engines).await;
    let two = site.hub("two", &engines).await;
    let mut client = Client::open(&one.hub, "").await;
    for (n, hub) in [&two, &one, &two].into_iter().enumerate() {
        client.ask(&format!("{n}?")).await;
        client.until("response.done").await;
        let old = std::mem::replace(&mut client.socket, hub.hub.open("").await.expect("another"));
        assert_eq!(client.resume(&hub.hub).await, Ok(Back::Exactly), "move {n}");
        let mut old = old;
        assert_eq!(old.close().await.map(|frame| u16::from(frame.code)), Some(1001), "the old connection ends");
    }
    client.assert_once();
    assert_eq!(read_by_model(&llm), ["0?", "The first.", "1?", "The second.", "2?"]);
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_reply_that_plays_goes_on_at_the_next_hub_without_a_frame_missing() {
    let site = Site::start().await;
    let (engines, _) = fakes(["tell me"], ["A reply of some length that is spoken in many frames of sound."]);
    let one = site.hub("one", &engines).await;
    let two = site.hub("two", &engines).await;
    let mut client = Client::open(&one.hub, "&audio=pcm16").await;
    client.speak(&[loud(600), quiet(500)].concat()).await;
    while client.frames().len() < 20 {
        client.take().await.expect("frames come");
    }
    assert_eq!(client.resume(&two.hub).await, Ok(Back::Exactly));
    client.until("antiphon.output_audio.sent").await;
    // 64 characters at 50 ms less the spaces between chunks, in frames of 20 ms.
    assert!(client.frames().len() > 140, "{} frames", client.frames().len());
    client.assert_once();
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn speech_is_heard_once_wherever_the_session_moves() {
    let site = Site::start().await;
    let heard: Vec<String> = (0..8).map(|n| format!("word {n}")).collect();
    let (engines, llm) = fakes(heard.iter().map(String::as_str), ["Yes."; 8]);
    let hubs = [site.hub("one", &engines).await, site.hub("two", &engines).await];
    let mut client = Client::open(&hubs[0].hub, "&audio=pcm16").await;
    for n in 0..6 {
        // A part of the sentence is on its way to the hub that is left: in the middle of speech, before it, behind it.
        let said = [quiet(200), loud(500), quiet(600)].concat();
        let cut = [100, 300, 650, 800, 1_200, 1_299][n] * 24;
        client.speak(&said[..cut]).await;
        client.resume(&hubs[(n + 1) % 2].hub).await.expect("it comes back");
        client.speak(&said[cut..]).await;
        client.until("response.done").await;
        client.until("antiphon.session.checkpoint").await;
    }
    client.assert_once();
    let said: Vec<String> = read_by_model(&llm);
    let users = said.iter().filter(|words| words.starts_with("word")).count();
    let committed = types(&client.events()).iter().filter(|kind| **kind == "input_audio_buffer.committed").count();
    assert_eq!((users, committed), (6, 6), "{said:?}");
    for hub in hubs {
        hub.stop().await;
    }
}

#[tokio::test]
async fn of_two_hubs_that_a_client_comes_to_at_once_one_has_the_session() {
    let site = Site::start().await;
    let (engines, _) = fakes([], ["Here."; 4]);
    let hubs = [site.hub("one", &engines).await, site.hub("two", &engines).await, site.hub("three", &engines).await];
    let contest = |round: usize| {
        let hubs = &hubs;
        async move {
            let mut client = Client::open(&hubs[0].hub, "").await;
            let query = format!("?resume={}&after={}", client.key, client.got.len());
            let (two, three) = tokio::join!(hubs[1].hub.open(&query), hubs[2].hub.open(&query));
            let mut alive = 0;
            for socket in [two, three] {
                // Refused before or behind the upgrade, or closed because the other one has it.
                let Ok(mut socket) = socket else { continue };
                socket.send(json!({"type": "input_audio_buffer.clear"})).await;
                let lives = async {
                    loop {
                        match socket.stream.next().await {
                            Some(Ok(Message::Text(text))) if text.contains("input_audio_buffer.cleared") => {
                                return true;
                            }
                            Some(Ok(Message::Close(_)) | Err(_)) | None => return false,
                            _ => {}
                        }
                    }
                };
                let lives = timeout(TEST_TIMEOUT, lives).await.expect("an answer");
                // Another one may take it right after.
                let is_open = lives && timeout(Duration::from_millis(2_500), socket.close()).await.is_err();
                alive += usize::from(is_open);
            }
            assert_eq!(alive, 1, "round {round}");
            assert_eq!(client.until_closed().await, 1001);
        }
    };
    futures_util::future::join_all((0..5).map(contest)).await;
    for hub in hubs {
        hub.stop().await;
    }
}

/// The key of a session's record.
fn record_of(resume_key: &str) -> String {
    Sha256::digest(resume_key).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is stored of a session; waits until there is something.
async fn stored(store: &JetStream, key: &str) -> Vec<u8> {
    let waiting = async {
        loop {
            if let Some(record) = store.sessions().get(key).await.expect("it opens") {
                return record.value;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, waiting).await.expect("it is stored")
}

#[tokio::test]
async fn a_session_comes_back_from_its_checkpoint_when_its_hub_is_killed() {
    let site = Site::start().await;
    let url = site.server.url();
    let key = site.folder.path().join("key");
    let env = |name: &'static str| {
        let own = [
            ("ANTIPHON_CLUSTER__SERVERS", url.as_str()),
            ("ANTIPHON_CLUSTER__NAME", name),
            ("ANTIPHON_CLUSTER__JETSTREAM", "true"),
            ("ANTIPHON_CLUSTER__FALLBACK", "true"),
            ("ANTIPHON_CLUSTER__SEALING_KEY", key.to_str().expect("text")),
            ("ANTIPHON_TTS__ENGINE", "flite"),
            ("ANTIPHON_LLM__ENGINE", "assistant"),
            ("ANTIPHON_LOG", "info"),
        ];
        [&own[..], &NO_RECOGNIZER[..]].concat()
    };
    let env_one = env("one");
    let env_two = env("two");
    let (mut one, mut two) = tokio::join!(Process::hub(&env_one), Process::hub(&env_two));
    let mut client = Client::open_at(&one.address(), "").await;
    client.ask("What is two plus two?").await;
    client.until("response.done").await;
    client.until("antiphon.session.checkpoint").await;
    let stored = client.got.len();
    client.ask("What is three plus three?").await;
    client.until("response.output_audio_transcript.delta").await;
    one.kill().await;
    assert_eq!(client.resume_at(&two.address()).await, Ok(Back::ToCheckpoint), "{}", two.log());
    assert_eq!(client.got.len(), stored, "what was received since is void");
    // The log of the hub that took it names the session by both of its names.
    let log = two.log();
    let record = record_of(&client.key)[..12].to_owned();
    let line = log.lines().find(|line| line.contains("connected") && line.contains("session=sess_"));
    assert!(line.is_some_and(|line| line.contains(&format!("record=\"{record}\""))), "{log}");
    assert!(log.contains(&format!("this hub owns the session now record=\"{record}\"")), "{log}");
    client.until("response.done").await;
    client.assert_once();
    let done = client.events().into_iter().filter(|event| event["type"] == "response.done");
    let answers: Vec<String> = done
        .map(|done| done["response"]["output"][0]["content"][0]["transcript"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(answers.len() == 2 && answers[0].contains('4') && answers[1].contains('6'), "{answers:?}");
    assert!(two.log().contains("this hub owns the session now"), "{}", two.log());
    two.terminate();
    assert_eq!(two.ended().await, Some(0));
}

#[tokio::test]
async fn a_session_goes_back_twice_where_the_next_hub_dies_before_it_has_stored_anything() {
    let site = Site::start().await;
    let (engines, llm) = fakes([], ["The first.", "The second, lost.", "The second.", "The third."]);
    let one = site.hub("one", &engines).await;
    let two = site.hub_to_lose("two", &engines).await;
    let store = site.store().await;
    let mut client = Client::open(&one.hub, "").await;
    client.ask("One?").await;
    client.until("response.done").await;
    one.hub.begin_to_stop();
    assert_eq!(client.until_closed().await, 1012);
    let handed_over = client.got.len();
    let record = stored(&store, &record_of(&client.key)).await;
    // The second hub takes it, and what it stores is lost with it.
    assert_eq!(client.resume(&two.hub).await, Ok(Back::Exactly));
    client.ask("Two?").await;
    client.until("response.done").await;
    // As if it were gone: it can neither be asked nor store anything.
    two.manager.membership().expect("joined").leave().await;
    let text = String::from_utf8(record).expect("text");
    let taken = text.replacen("\"is_released\":true,\"is_final\":true", "\"is_released\":false,\"is_final\":false", 1);
    assert_ne!(taken, text);
    store.sessions().put(&record_of(&client.key), taken.as_bytes(), None).await.expect("written");
    let three = site.hub("three", &engines).await;
    assert_eq!(client.resume(&three.hub).await, Ok(Back::ToCheckpoint));
    assert_eq!(client.got.len(), handed_over);
    client.until("response.done").await;
    client.ask("Three?").await;
    client.until("response.done").await;
    client.assert_once();
    assert_eq!(read_by_model(&llm), ["One?", "The first.", "Two?", "The second.", "Three?"]);
    for hub in [one, two, three] {
        hub.stop().await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_learn_that_its_session_went_back_is_told_again() {
    let site = Site::start().await;
    let (engines, _) = fakes([], ["The first.", "The second, lost.", "The second."]);
    let one = site.hub_to_lose("one", &engines).await;
    let two = site.hub("two", &engines).await;
    let mut client = Client::open(&one.hub, "").await;
    client.ask("One?").await;
    client.until("response.done").await;
    let store = site.store().await;
    let record = client.until_stored(&store).await;
    let checkpoint = client.got.len();
    client.ask("Two?").await;
    client.until("antiphon.session.checkpoint").await;
    // As if the first hub were gone: it stores nothing any more.
    one.manager.membership().expect("joined").leave().await;
    store.sessions().put(&record_of(&client.key), &record, None).await.expect("written");
    let n = client.got.len();
    for attempt in 0..3 {
        let query = format!("?resume={}&after={n}", client.key);
        let mut socket = connect(&two.hub.address.to_string(), &query).await.expect("the upgrade is accepted");
        let resumed = socket.next().await;
        assert_eq!(resumed["after"], checkpoint, "attempt {attempt}: {resumed}");
        // The session sends more than the client has named, and the client has read none of it.
        drop(socket);
    }
    assert_eq!(client.resume(&two.hub).await, Ok(Back::ToCheckpoint));
    client.until("response.done").await;
    client.assert_once();
    two.stop().await;
    one.hub.stop().await;
}

#[tokio::test]
async fn what_cannot_be_resumed_is_answered_once_and_clearly() {
    let site = Site::start().await;
    let (engines, _) = fakes([], ["Here."; 8]);
    let one = site.hub("one", &engines).await;
    let two = site.hub("two", &engines).await;
    site.make_key("other");
    let store = site.store().await;
    // Without the record that hubs check their key by, one with another key starts.
    store.jobs().remove("sealing-key-check", None).await.expect("removed");
    let stranger = site.hub_with(site.config("stranger", "other"), &engines).await;
    let mut client = Client::open(&one.hub, "").await;
    client.ask("One?").await;
    client.until("response.done").await;
    let record = client.until_stored(&store).await;
    // Sealed for another cluster: the hub refuses, and the session lives on.
    assert_eq!(client.resume_at(&stranger.hub.address.to_string()).await, Err(4000));
    assert_eq!(client.resume(&one.hub).await, Ok(Back::Exactly));

    // Of a newer build, and cut short: as if its hub were gone.
    let key = record_of(&client.key);
    let text = String::from_utf8(record).expect("text");
    let (head, state) = text.split_once('\n').expect("a head");
    let gone = head.replace(
        &format!("\"hub\":\"{}\"", one.manager.membership().expect("joined").cluster().id()),
        "\"hub\":\"00\"",
    );
    assert_ne!(gone, head);
    for (head, state, expect) in [
        (gone.replace("\"schema\":1", "\"schema\":99"), state.to_owned(), Err(503)),
        (gone.clone(), state.replacen("\"schema\":1", "\"schema\":99", 1), Err(503)),
        (gone.clone(), state[..state.len() / 2].to_owned(), Err(4000)),
        (gone.clone(), String::new(), Err(4000)),
        ("no head".into(), state.to_owned(), Err(4000)),
    ] {
        store.sessions().put(&key, format!("{head}\n{state}").as_bytes(), None).await.expect("written");
        assert_eq!(client.resume(&two.hub).await, expect, "{head}");
    }
    // The owner is not affected.
    assert_eq!(client.resume(&one.hub).await, Ok(Back::Exactly));
    client.ask("Two?").await;
    client.until("response.done").await;
    client.assert_once();
    for hub in [one, two, stranger] {
        hub.stop().await;
    }
}

#[tokio::test]
async fn a_store_that_lost_its_newest_entry_is_written_again_by_the_owner() {
    let site = Site::start().await;
    let (engines, llm) = fakes([], ["The first.", "The second.", "The third."]);
    let one = site.hub("one", &engines).await;
    let two = site.hub("two", &engines).await;
    let store = site.store().await;
    let mut client = Client::open(&one.hub, "").await;
    let key = record_of(&client.key);
    let old = stored(&store, &key).await;
    client.ask("One?").await;
    client.until("response.done").await;
    client.until_stored(&store).await;
    store.sessions().put(&key, &old, None).await.expect("written");
    client.ask("Two?").await;
    client.until("response.done").await;
    client.until_stored(&store).await;
    store.sessions().remove(&key, None).await.expect("removed");
    client.ask("Three?").await;
    client.until("antiphon.session.checkpoint").await;
    assert_eq!(client.resume(&two.hub).await, Ok(Back::Exactly));
    client.assert_once();
    client.ask("Four?").await;
    client.until("response.done").await;
    assert_eq!(read_by_model(&llm).len(), 7);
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_hub_without_nats_goes_on_talking_and_others_say_that_they_cannot_take_over() {
    let mut site = Site::start().await;
    let (engines, _) = fakes([], ["Still here."; 8]);
    let one = site.hub("one", &engines).await;
    let two = site.hub("two", &engines).await;
    let mut client = Client::open(&one.hub, "").await;
    site.server.kill().await;
    client.ask("Are you there?").await;
    client.until("response.done").await;
    assert_eq!(client.resume(&two.hub).await, Err(503));
    assert_eq!(client.resume(&one.hub).await, Ok(Back::Exactly));
    client.ask("And now?").await;
    client.until("response.done").await;
    site.server.restart().await.expect("it is back");
    client.until("antiphon.session.checkpoint").await;
    let moved = async {
        loop {
            match client.resume(&two.hub).await {
                Ok(back) => return back,
                Err(503) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(other) => panic!("{other}"),
            }
        }
    };
    assert_eq!(timeout(TEST_TIMEOUT, moved).await, Ok(Back::Exactly));
    client.assert_once();
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_short_lived_key_of_one_hub_opens_sessions_at_all() {
    let site = Site::start().await;
    let (engines, _) = fakes([], ["Hi."; 4]);
    let one = site.hub("one", &engines).await;
    let two = site.hub("two", &engines).await;
    let made = reqwest::Client::new()
        .post(format!("http://{}/v1/realtime/client_secrets", one.hub.address))
        .body(json!({"session": {"type": "realtime", "instructions": "Speak like a pirate."}}).to_string());
    let made: Value = made.send().await.expect("an answer").json().await.expect("JSON");
    let key = made["value"].as_str().expect("a key");
    for (hub, key, instructions) in
        [(&two, key, Some("Speak like a pirate.")), (&one, key, Some("Speak like a pirate.")), (&two, "ek_other", None)]
    {
        let url = format!("ws://{}/v1/realtime", hub.hub.address);
        let mut request = url.into_client_request().expect("a request");
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().expect("a header"));
        let (stream, _) = crate::hub::connect(request).await.expect("the upgrade is accepted");
        let mut socket = Socket { stream, frames: Vec::new() };
        let event = socket.next().await;
        match instructions {
            Some(expect) => assert_eq!(event["session"]["instructions"], expect, "{event}"),
            None => assert_eq!(event["error"]["code"], "invalid_api_key", "{event}"),
        }
    }
    // In the record each quote takes four bytes.
    let large = json!({"session": {"type": "realtime", "instructions": "\"".repeat(200_000)}});
    let refused = reqwest::Client::new()
        .post(format!("http://{}/v1/realtime/client_secrets", one.hub.address))
        .body(large.to_string());
    let refused = refused.send().await.expect("an answer");
    assert_eq!(refused.status(), 413);
    let refused: Value = refused.json().await.expect("JSON");
    assert_eq!(refused["error"]["code"], "settings_too_large");
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn an_isolated_hub_does_not_act_for_a_client_that_may_be_elsewhere() {
    let site = Site::start().await;
    let (engines, _) = fakes([], ["Here.", "Are you there?", "Yes."]);
    let one = site.hub("one", &engines).await;
    let mut client = Client::open(&one.hub, "").await;
    let detection = json!({"type": "server_vad", "idle_timeout_ms": 5_000});
    let session = json!({"type": "realtime", "audio": {"input": {"turn_detection": detection}}});
    client.say(Message::text(json!({"type": "session.update", "session": session}).to_string())).await;
    client.ask("Hello?").await;
    client.until("response.done").await;
    client.until("antiphon.session.checkpoint").await;
    // The connection to NATS stands, and nothing comes through.
    site.server.pause().expect("frozen");
    let prompted = timeout(Duration::from_secs(8), client.until("input_audio_buffer.timeout_triggered")).await;
    assert!(prompted.is_err(), "the hub spoke up in a session that another hub may own");
    // The client is heard: it is here.
    client.ask("And now?").await;
    client.until("response.done").await;
    site.server.resume().expect("thawed");
    client.until("input_audio_buffer.timeout_triggered").await;
    client.assert_once();
    one.stop().await;
}

/// A session of the build that introduced the schema, with speech, a tool call and the settings of a client. **It is never
/// written anew to make a test green**: a build that cannot read it raises `SNAPSHOT_SCHEMA`, and reads both.
const EARLIER: &str = "tests/fixtures/snapshot_v1.json";

/// Writes the fixture, where there is none and `UPDATE_EXPECT=1`.
async fn write_fixture(site: &Site) {
    let (engines, llm) = fakes(["what is the weather like in Rome"], []);
    llm.then(vec![
        Ok(LlmDelta::ToolCall {
            index: 0,
            call_id: "call_a".into(),
            name: "weather".into(),
            arguments: "{\"city\":\"Rome\"}".into(),
        }),
        Ok(LlmDelta::Done { finish: Finish::ToolCalls, usage: None }),
    ]);
    llm.then(words("Sun in Rome."));
    let hub = site.hub("one", &engines).await;
    let mut client = Client::open(&hub.hub, "&audio=pcm16").await;
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tool = json!({"type": "function", "name": "weather", "description": "Tells it.", "parameters": parameters});
    let detection = json!({"type": "semantic_vad", "eagerness": "high"});
    let input = json!({"turn_detection": detection, "noise_reduction": {"type": "near_field"}});
    let session = json!({"type": "realtime", "tools": [tool], "audio": {"input": input}});
    client.say(Message::text(json!({"type": "session.update", "session": session}).to_string())).await;
    client.speak(&[quiet(200), loud(700), quiet(4_000)].concat()).await;
    client.until("response.done").await;
    let output = json!({"type": "function_call_output", "call_id": "call_a", "output": "sun"});
    client.say(Message::text(json!({"type": "conversation.item.create", "item": output}).to_string())).await;
    client.say(Message::text(json!({"type": "response.create"}).to_string())).await;
    client.until("antiphon.output_audio.sent").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let record = site.store().await.sessions().get(&record_of(&client.key)).await.expect("it opens").expect("stored");
    let text = String::from_utf8(record.value).expect("text");
    std::fs::write(EARLIER, text.split_once('\n').expect("a head").1).expect("written");
    hub.stop().await;
}

#[tokio::test]
async fn a_session_that_an_earlier_build_has_stored_goes_on() {
    let site = Site::start().await;
    if !Path::new(EARLIER).exists() && std::env::var_os("UPDATE_EXPECT").is_some() {
        write_fixture(&site).await;
    }
    let (engines, llm) = fakes([], ["Yes, go."]);
    let one = site.hub("one", &engines).await;
    let two = site.hub("two", &engines).await;
    let mut client = Client::open(&one.hub, "&audio=pcm16").await;
    let store = site.store().await;
    let key = record_of(&client.key);
    let record = stored(&store, &key).await;
    let text = String::from_utf8(record).expect("text");
    let head = text.split_once('\n').expect("a head").0.replacen(
        "\"is_released\":false,\"is_final\":false",
        "\"is_released\":true,\"is_final\":true",
        1,
    );
    let mut state: Value = serde_json::from_str(&std::fs::read_to_string(EARLIER).expect("the fixture")).expect("JSON");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    state["session"]["expires_at"] = (now + 600).into();
    state["wall"] = json!({"secs": now, "nanos": 0});
    store.sessions().put(&key, format!("{head}\n{state}").as_bytes(), None).await.expect("written");
    let snapshot = antiphon_session::Snapshot::from_bytes(state.to_string().as_bytes()).expect("it is read");
    client.got.clear();
    client.got.resize(snapshot.sent() as usize, Message::text("{}"));
    client.said.resize(snapshot.received() as usize, Message::text("{}"));
    assert_eq!(client.resume(&two.hub).await, Ok(Back::Exactly));
    client.ask("Shall I go there?").await;
    client.until("response.done").await;
    let read = read_by_model(&llm);
    assert_eq!(read, ["what is the weather like in Rome", "", "Sun in Rome.", "Shall I go there?"]);
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn conversations_go_on_where_jetstream_is_full_and_the_metrics_say_so() {
    let site = Site::start().await;
    let (engines, _) = fakes([], ["Here."; 4]);
    let one = site.hub("one", &engines).await;
    let mut client = Client::open(&one.hub, "").await;
    let stored = async |n: f64| {
        let waiting = async {
            loop {
                let metrics = reqwest::get(format!("http://{}/metrics", one.hub.address)).await.expect("an answer");
                let metrics = metrics.text().await.expect("text");
                if metrics.lines().any(|line| line == format!("antiphon_sessions_unstored {n}")) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(TEST_TIMEOUT, waiting).await.unwrap_or_else(|_| panic!("{n} sessions are not unstored"));
    };
    stored(0.0).await;
    antiphon_cluster::testing::limit_stream(&site.server.url(), "KV_antiphon-sessions", 1).await.expect("limited");
    client.ask("One?").await;
    client.until("response.done").await;
    stored(1.0).await;
    let state = reqwest::get(format!("http://{}/api/state", one.hub.address)).await.expect("an answer");
    let state: Value = state.json().await.expect("JSON");
    let none = json!({"shared": 1, "unstored": 1, "released": 0, "taken": 0, "taken_from_checkpoint": 0, "lost": 0});
    assert_eq!(state["cluster"]["sessions"], none);
    assert_eq!(state["cluster"]["hubs"][0]["name"], "one", "{state}");
    client.ask("Two?").await;
    client.until("response.done").await;
    antiphon_cluster::testing::limit_stream(&site.server.url(), "KV_antiphon-sessions", 1 << 30)
        .await
        .expect("limited");
    stored(0.0).await;
    client.assert_once();
    one.stop().await;
}

/// What is stored of a session, as its owner had it at that time and as if that hub were gone.
fn orphaned(record: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(record.to_vec()).expect("text");
    let (head, state) = text.split_once('\n').expect("a head");
    let mut head: Value = serde_json::from_str(head).expect("JSON");
    head["hub"] = "00".into();
    format!("{head}\n{state}").into_bytes()
}

#[tokio::test]
async fn a_client_that_has_not_received_the_checkpoint_gets_what_is_missing() {
    let site = Site::start().await;
    let (engines, llm) = fakes([], ["The first.", "The second."]);
    let one = site.hub_to_lose("one", &engines).await;
    let two = site.hub("two", &engines).await;
    let mut client = Client::open(&one.hub, "").await;
    client.ask("One?").await;
    client.until("response.done").await;
    let store = site.store().await;
    let key = record_of(&client.key);
    let record = client.until_stored(&store).await;
    // The last three messages were on their way when the hub died.
    let got = client.got.len();
    one.manager.membership().expect("joined").leave().await;
    store.sessions().put(&key, &orphaned(&record), None).await.expect("written");
    let lost = client.got.split_off(got - 3);
    client.checkpoints.retain(|(number, _)| *number <= got - 3);
    assert_eq!(client.resume(&two.hub).await, Ok(Back::Exactly));
    for message in lost {
        assert_eq!(client.take().await, Ok(&message));
    }
    client.ask("Two?").await;
    client.until("response.done").await;
    client.assert_once();
    assert_eq!(read_by_model(&llm), ["One?", "The first.", "Two?"]);
    two.stop().await;
    one.hub.stop().await;
}

#[tokio::test]
async fn a_session_that_is_asked_for_twice_at_one_hub_has_one_owner_and_can_be_resumed_again() {
    let site = Site::start().await;
    let (engines, _) = fakes([], ["Here."; 8]);
    let one = site.hub("one", &engines).await;
    let two = site.hub("two", &engines).await;
    let mut client = Client::open(&one.hub, "").await;
    client.ask("One?").await;
    client.until("response.done").await;
    client.until("antiphon.session.checkpoint").await;
    let query = format!("?resume={}&after={}", client.key, client.got.len());
    let attempts = futures_util::future::join_all((0..4).map(|_| two.hub.open(&query))).await;
    assert!(attempts.iter().any(Result::is_ok));
    drop(attempts);
    let back = async {
        loop {
            match client.resume(&two.hub).await {
                Ok(back) => return back,
                // It is being taken.
                Err(503) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(other) => panic!("{other}"),
            }
        }
    };
    assert_eq!(timeout(TEST_TIMEOUT, back).await, Ok(Back::Exactly));
    client.ask("Two?").await;
    client.until("response.done").await;
    client.assert_once();
    let metrics = reqwest::get(format!("http://{}/metrics", two.hub.address)).await.expect("an answer");
    let metrics = metrics.text().await.expect("text");
    assert!(metrics.contains("antiphon_session_moves_total{kind=\"taken\"} 1\n"), "{metrics}");
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_session_outlives_its_short_lived_key_at_another_hub_too() {
    const KEY: &str = "sk-antiphon-test-1";
    let site = Site::start().await;
    let (engines, _) = fakes([], ["Hi."; 4]);
    let keys = || Keys::of(&[KEY]);
    let one = site.hub_with_keys(site.config("one", "key"), &engines, keys()).await;
    let two = site.hub_with_keys(site.config("two", "key"), &engines, keys()).await;
    let made = reqwest::Client::new()
        .post(format!("http://{}/v1/realtime/client_secrets", one.hub.address))
        .bearer_auth(KEY)
        .body(r#"{"expires_after":{"seconds":10}}"#);
    let made: Value = made.send().await.expect("an answer").json().await.expect("JSON");
    let guest = made["value"].as_str().expect("a key").to_owned();
    let connect = async |hub: &Hub, query: &str, key: &str| {
        let mut request = format!("ws://{}/v1/realtime{query}", hub.address).into_client_request().expect("a request");
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().expect("a header"));
        let (stream, _) = crate::hub::connect(request).await.expect("the upgrade is accepted");
        Socket { stream, frames: Vec::new() }
    };
    let mut socket = connect(&one.hub, "?resume=1", &guest).await;
    let notice = socket.until("antiphon.session.resumable").await.pop().expect("there");
    socket.until("antiphon.session.checkpoint").await;
    let back = format!("?resume={}&after=3", notice["key"].as_str().expect("a key"));
    // Until the key has expired.
    tokio::time::sleep(Duration::from_millis(10_500)).await;
    assert_eq!(connect(&two.hub, "", &guest).await.next().await["error"]["code"], "invalid_api_key");
    assert_eq!(connect(&two.hub, &back, "ek_other").await.next().await["error"]["code"], "invalid_api_key");
    let mut socket = connect(&two.hub, &back, &guest).await;
    assert_eq!(socket.next().await["type"], "antiphon.session.resumed");
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_store_that_went_back_to_an_earlier_owner_does_not_end_the_session() {
    let site = Site::start().await;
    let (engines, _) = fakes([], ["Here."; 4]);
    let one = site.hub("one", &engines).await;
    let two = site.hub("two", &engines).await;
    let mut client = Client::open(&one.hub, "").await;
    let store = site.store().await;
    let key = record_of(&client.key);
    let of_one = stored(&store, &key).await;
    assert_eq!(client.resume(&two.hub).await, Ok(Back::Exactly));
    client.ask("One?").await;
    client.until("response.done").await;
    client.until_stored(&store).await;
    store.sessions().put(&key, &of_one, None).await.expect("written");
    client.ask("Two?").await;
    client.until("antiphon.session.checkpoint").await;
    let written = async {
        while stored(&store, &key).await == of_one {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, written).await.expect("its owner stores it again");
    assert_eq!(client.resume(&one.hub).await, Ok(Back::Exactly));
    client.ask("Three?").await;
    client.until("response.done").await;
    client.assert_once();
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_client_that_only_listens_need_not_send_minutes_again() {
    let site = Site::start().await;
    let (engines, _) = fakes([], []);
    let one = site.hub("one", &engines).await;
    let mut client = Client::open(&one.hub, "&audio=pcm16").await;
    client.speak(&quiet(11_000)).await;
    let checkpoint = client.until("antiphon.session.checkpoint").await;
    assert!(checkpoint["received"].as_u64().is_some_and(|n| n >= 500), "{checkpoint}");
    one.stop().await;
}

/// A way to a NATS server that can stand still: nothing comes through, and no end of a connection is seen.
struct Line {
    url: String,
    is_still: tokio::sync::watch::Sender<bool>,
    /// The same of what the server sends.
    is_still_back: tokio::sync::watch::Sender<bool>,
    _relay: tokio::task::JoinSet<()>,
}

impl Line {
    async fn to(port: u16) -> Self {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("nats://{}", listener.local_addr().expect("bound"));
        let (is_still, still) = tokio::sync::watch::channel(false);
        let (is_still_back, still_back) = tokio::sync::watch::channel(false);
        let mut relay = tokio::task::JoinSet::new();
        relay.spawn(async move {
            let mut pipes = tokio::task::JoinSet::new();
            loop {
                let (near, _) = listener.accept().await.expect("accepted");
                let far = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("nats-server listens");
                let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
                let there = (near_read, far_write, None);
                let back = (far_read, near_write, Some(still_back.clone()));
                for (mut from, mut to, mut still_back) in [there, back] {
                    let mut still = still.clone();
                    pipes.spawn(async move {
                        let mut bytes = vec![0; 64 << 10];
                        while let Ok(n @ 1..) = from.read(&mut bytes).await {
                            let _ = still.wait_for(|is_still| !is_still).await;
                            if let Some(still_back) = &mut still_back {
                                let _ = still_back.wait_for(|is_still| !is_still).await;
                            }
                            if to.write_all(&bytes[..n]).await.is_err() {
                                return;
                            }
                        }
                    });
                }
            }
        });
        Self { url, is_still, is_still_back, _relay: relay }
    }
}

#[tokio::test]
async fn a_hub_that_was_cut_off_does_not_act_in_a_session_that_another_hub_has_taken() {
    let site = Site::start().await;
    let (engines, llm) = fakes([], ["Here.", "Are you there?", "Yes."]);
    let line = Line::to(site.server.port()).await;
    let mut config = site.config("one", "key");
    config.cluster.servers = vec![line.url.clone()];
    let one = site.hub_with(config, &engines).await;
    let two = site.hub("two", &engines).await;
    let mut client = Client::open(&one.hub, "").await;
    let detection = json!({"type": "server_vad", "idle_timeout_ms": 5_000});
    let session = json!({"type": "realtime", "audio": {"input": {"turn_detection": detection}}});
    client.say(Message::text(json!({"type": "session.update", "session": session}).to_string())).await;
    client.ask("Hello?").await;
    client.until("response.done").await;
    client.until("antiphon.session.checkpoint").await;
    line.is_still.send_replace(true);
    let old = std::mem::replace(&mut client.socket, two.hub.open("").await.expect("another"));
    assert!(client.resume(&two.hub).await.is_ok(), "the second hub waits until the first one has stopped acting");
    let n_asked = llm.requests().len();
    tokio::time::sleep(Duration::from_secs(3)).await;
    line.is_still.send_replace(false);
    let mut old = old;
    let closed = async {
        loop {
            match old.stream.next().await {
                Some(Ok(Message::Close(frame))) => return frame.map(|frame| u16::from(frame.code)),
                Some(Ok(Message::Text(text))) => assert!(!text.contains("\"response."), "the first hub acts: {text}"),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    };
    assert_eq!(timeout(TEST_TIMEOUT, closed).await.expect("it ends"), Some(1001));
    // The second hub's own prompt, and none of the first.
    assert!(llm.requests().len() <= n_asked + 1, "{:?}", llm.requests());
    client.assert_once();
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_first_state_whose_reply_was_lost_is_not_lost() {
    let site = Site::start().await;
    let (engines, _) = fakes([], ["Here."; 4]);
    let line = Line::to(site.server.port()).await;
    let mut config = site.config("one", "key");
    config.cluster.servers = vec![line.url.clone()];
    let one = site.hub_with(config, &engines).await;
    let two = site.hub("two", &engines).await;
    // The state arrives, and its reply does not: what the hub is sent stands still.
    line.is_still_back.send_replace(true);
    let mut client = Client::open(&one.hub, "").await;
    let store = site.store().await;
    let key = record_of(&client.key);
    let first = stored(&store, &key).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    line.is_still_back.send_replace(false);
    client.ask("One?").await;
    client.until("response.done").await;
    client.until("antiphon.session.checkpoint").await;
    let written = async {
        while stored(&store, &key).await == first {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, written).await.expect("its owner stores it again");
    assert_eq!(client.resume(&two.hub).await, Ok(Back::Exactly));
    client.assert_once();
    one.stop().await;
    two.stop().await;
}
