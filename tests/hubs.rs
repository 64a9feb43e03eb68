//! Hubs of one cluster, each showing the turns of all of them, on a real nats-server.

use crate::hub::{Hub, Socket, engines, hub as lone_hub};
use antiphon::assembly::{EngineManager, Membership};
use antiphon::config::Config;
use antiphon::server::{Keys, Parts};
use antiphon_cluster::testing::NatsServer;
use antiphon_cluster::{Cluster, ClusterConfig, Sessions};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_telemetry::Metrics;
use eventsource_stream::{Event, Eventsource};
use futures_util::{Stream, StreamExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// No test waits longer for one thing.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

const ALICE: &str = "sk-antiphon-alice";
const BOB: &str = "sk-antiphon-bob";
const ADMIN: &str = "sk-antiphon-admin";

/// A hub with fake engines that is a member of a cluster.
struct Member {
    hub: Hub,
    manager: Arc<EngineManager>,
    key: &'static str,
}

fn cluster_config(server: &NatsServer, name: &str) -> ClusterConfig {
    ClusterConfig { servers: vec![server.url()], name: name.into(), fallback: true, ..ClusterConfig::default() }
}

impl Member {
    async fn join(server: &NatsServer, name: &str) -> Self {
        Self::with_keys(server, name, Keys::default(), "").await
    }

    async fn with_keys(server: &NatsServer, name: &str, keys: Keys, key: &'static str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = Config { cluster: cluster_config(server, name), ..Config::default() };
        let manager = Arc::new(EngineManager::new(&config).expect("the registry is right"));
        manager.join(Membership::join(&config).await.expect("it joins"));
        let engines = engines(FakeStt::default(), FakeLlm::says(["Hi."; 200]), FakeTts::default());
        let metrics = Metrics::new();
        let manager_part = Some((manager.clone(), Vec::new()));
        let hub = Hub::serve(Parts { config, engines, metrics, keys, tls: None, manager: manager_part }).await;
        Self { hub, manager, key }
    }

    fn get(&self, path: &str, key: &str) -> reqwest::RequestBuilder {
        reqwest::Client::new().get(format!("http://{}{path}", self.hub.address)).bearer_auth(key)
    }

    async fn json(&self, path: &str, key: &str) -> (u16, Value) {
        let response = self.get(path, key).send().await.expect("an answer");
        (response.status().as_u16(), response.json().await.expect("JSON"))
    }

    async fn list(&self, query: &str) -> Value {
        self.json(&format!("/api/turns{query}"), self.key).await.1
    }

    /// Returns once it knows so many hubs, itself included.
    async fn knows(&self, n_hubs: usize) {
        let known = async {
            while self.json("/api/state", self.key).await.1["cluster"]["hubs"].as_array().map(Vec::len) != Some(n_hubs)
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(TEST_TIMEOUT, known).await.expect("the hubs see each other");
    }

    async fn connect(&self, key: &str) -> Socket {
        let url = format!("ws://{}/v1/realtime", self.hub.address);
        let mut request = url.into_client_request().expect("a request");
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().expect("a header"));
        let (stream, _) = crate::hub::connect(request).await.expect("the upgrade is accepted");
        let mut socket = Socket { stream, frames: Vec::new() };
        assert_eq!(socket.next().await["type"], "session.created");
        socket
    }

    async fn listen(&self, key: &str, last: Option<&str>) -> Events {
        let mut request = self.get("/api/turns/live", key);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.expect("an answer");
        Box::pin(response.bytes_stream().eventsource().map(|event| event.expect("an event")))
    }
}

type Events = Pin<Box<dyn Stream<Item = Event>>>;

/// The next event that is not the state.
async fn next(events: &mut Events) -> Event {
    loop {
        let event = timeout(TEST_TIMEOUT, events.next()).await.expect("something comes").expect("it goes on");
        if event.event != "state" {
            return event;
        }
    }
}

/// The first change of a turn that is so.
async fn change(events: &mut Events, is_so: impl Fn(&Value) -> bool) -> Value {
    loop {
        let event = next(events).await;
        assert_eq!(event.event, "turn", "{}", event.data);
        let turn: Value = serde_json::from_str(&event.data).expect("JSON");
        if is_so(&turn) {
            return turn;
        }
    }
}

fn turns(list: &Value) -> &[Value] {
    list["turns"].as_array().unwrap_or_else(|| panic!("no list: {list}"))
}

fn id(turn: &Value) -> &str {
    turn["id"].as_str().expect("an id")
}

async fn two(server: &NatsServer) -> (Member, Member) {
    let (a, b) = tokio::join!(Member::join(server, "a"), Member::join(server, "b"));
    tokio::join!(a.knows(2), b.knows(2));
    (a, b)
}

#[tokio::test]
async fn each_hub_lists_finds_and_tells_the_turns_of_all() {
    let server = NatsServer::start().await.expect("nats-server");
    let (a, b) = two(&server).await;
    let mut live = a.listen("", None).await;
    let mut at_a = a.connect("").await;
    let mut at_b = b.connect("").await;
    at_b.ask("Who is there?").await;
    let told = change(&mut live, |turn| turn["settled"] == true).await;
    assert_eq!((&told["hub"], &told["transcript"]), (&json!("b"), &json!("Who is there?")), "{told}");
    at_a.ask("And here?").await;
    let own = change(&mut live, |turn| turn["settled"] == true).await;
    assert_eq!((&own["hub"], &own["transcript"]), (&json!("a"), &json!("And here?")), "{own}");

    for member in [&a, &b] {
        let list = member.list("").await;
        assert_eq!(turns(&list), [own.clone(), told.clone()], "{list}");
        assert_eq!((&list["has_more"], &list["capacity"]), (&json!(false), &json!(2_000)), "{list}");
        assert_eq!((&list["missing_hubs"], &list["next"]), (&json!([]), &Value::Null), "{list}");
        for turn in [&own, &told] {
            assert_eq!(member.json(&format!("/api/turns/{}", id(turn)), "").await, (200, turn.clone()));
        }
        let session = told["session_id"].as_str().expect("an id");
        assert_eq!(turns(&member.list(&format!("?session={session}")).await), std::slice::from_ref(&told));
        assert_eq!(member.json("/api/turns/turn_none", "").await.0, 404);
    }
    // Who comes back is told that other hubs' changes are not repeated.
    let mut again = a.listen("", Some("1")).await;
    loop {
        let event = next(&mut again).await;
        if event.event == "missed" {
            assert_eq!(event.data, r#"{"missed":0}"#);
            break;
        }
        assert!(event.data.contains(r#""hub":"a""#), "{}", event.data);
    }
}

/// All pages of two turns, in order; `cursor` is what the next page is asked for with.
async fn pages(member: &Member, cursor: impl Fn(&Value) -> String) -> Vec<Value> {
    let mut all = Vec::new();
    let mut query = String::from("?limit=2");
    loop {
        let list = member.list(&query).await;
        all.extend(turns(&list).iter().cloned());
        if list["has_more"] == false {
            assert!(list.get("next").is_none(), "{list}");
            return all;
        }
        assert_eq!(turns(&list).len(), 2, "{list}");
        query = format!("?limit=2&before={}", cursor(&list));
    }
}

#[tokio::test]
async fn the_list_of_all_hubs_comes_in_pages() {
    let server = NatsServer::start().await.expect("nats-server");
    let (a, b) = two(&server).await;
    let mut at_a = a.connect("").await;
    let mut at_b = b.connect("").await;
    // Runs of several turns on one hub, too.
    for n in 0..11 {
        let socket = if [0, 1, 2, 5, 7, 8].contains(&n) { &mut at_b } else { &mut at_a };
        socket.ask(&n.to_string()).await;
    }
    let by_id = |list: &Value| id(turns(list).last().expect("one")).to_owned();
    let by_next = |list: &Value| list["next"].as_str().expect("a place").to_owned();
    for member in [&a, &b] {
        for all in [pages(member, by_id).await, pages(member, by_next).await] {
            let asked: Vec<&str> = all.iter().filter_map(|turn| turn["transcript"].as_str()).collect();
            assert_eq!(asked, ["10", "9", "8", "7", "6", "5", "4", "3", "2", "1", "0"]);
        }
        assert_eq!(turns(&member.list("?before=turn_gone").await), [] as [Value; 0]);
    }
    // The place of a turn is known even when its hub is gone.
    let first = a.list("?limit=3").await;
    assert_eq!(turns(&first).last().expect("one")["hub"], "b", "{first}");
    b.manager.membership().expect("joined").leave().await;
    let rest = a.list(&format!("?before={}", by_next(&first))).await;
    let asked: Vec<&str> = turns(&rest).iter().filter_map(|turn| turn["transcript"].as_str()).collect();
    assert_eq!(asked, ["6", "4", "3"], "{rest}");
}

#[tokio::test]
async fn turns_of_other_hubs_are_seen_by_the_key_that_made_them_and_by_admins() {
    let server = NatsServer::start().await.expect("nats-server");
    let keys = || Keys::of(&[ALICE, BOB]).with_admin(&[ADMIN]);
    let (a, b) =
        tokio::join!(Member::with_keys(&server, "a", keys(), ADMIN), Member::with_keys(&server, "b", keys(), ADMIN));
    tokio::join!(a.knows(2), b.knows(2));
    let mut bobs = a.listen(BOB, None).await;
    for key in [ALICE, BOB] {
        b.connect(key).await.ask(&format!("I am {key}")).await;
    }
    let told = change(&mut bobs, |turn| !turn["transcript"].is_null()).await;
    assert_eq!(told["transcript"], format!("I am {BOB}"), "the first turn that is told is not Alice's");
    let all = a.list("").await;
    assert_eq!(turns(&all).len(), 2, "{all}");
    for (key, other) in [(ALICE, BOB), (BOB, ALICE)] {
        let list = a.json("/api/turns", key).await.1;
        let [turn] = turns(&list) else { panic!("{list}") };
        assert_eq!(turn["transcript"], format!("I am {key}"), "{list}");
        assert!(!list.to_string().contains("owner"), "{list}");
        for (viewer, status) in [(key, 200), (other, 404), (ADMIN, 200)] {
            assert_eq!(a.json(&format!("/api/turns/{}", id(turn)), viewer).await.0, status, "{viewer}");
        }
        // Nor does another key's turn serve as a place.
        let before = a.json(&format!("/api/turns?before={}", id(turn)), other).await.1;
        assert_eq!(turns(&before), [] as [Value; 0], "{before}");
    }
}

#[tokio::test]
async fn a_key_has_its_limit_once_however_many_hubs_it_uses() {
    let server = NatsServer::start().await.expect("nats-server");
    // Alice's limit on each hub; the digest is that of her key.
    let keys = || {
        let digest: String = Sha256::digest(ALICE).iter().map(|byte| format!("{byte:02x}")).collect();
        let text =
            format!("[[key]]\nname = \"alice\"\nsha256 = \"{digest}\"\nlimits = {{ requests_per_minute = 40 }}\n");
        Keys::of_text(&text).expect("a key").with_admin(&[ADMIN])
    };
    let (a, b) =
        tokio::join!(Member::with_keys(&server, "a", keys(), ADMIN), Member::with_keys(&server, "b", keys(), ADMIN));
    tokio::join!(a.knows(2), b.knows(2));
    let asked = async |member: &Member| member.get("/v1/models", ALICE).send().await.expect("an answer");
    for _ in 0..40 {
        assert_eq!(asked(&a).await.status().as_u16(), 200);
    }
    // Half of its limit is asked for at b, while b is told.
    let mut last = 200;
    for _ in 0..20 {
        last = asked(&b).await.status().as_u16();
        if last == 429 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert_eq!(last, 429, "what was used at a is used up at b");
    let limit = asked(&b).await.headers()["x-ratelimit-remaining-requests"].to_str().expect("text").to_owned();
    assert_eq!(limit, "0");
}

#[tokio::test]
async fn a_hub_that_does_not_reply_is_named() {
    let server = NatsServer::start().await.expect("nats-server");
    let (sessions, tasks, stop): (Sessions, _, _) =
        (Arc::new(|| (0, 1, false)), TaskTracker::new(), CancellationToken::new());
    // It adverts, but replies to nothing.
    let config = cluster_config(&server, "silent");
    let _silent = Cluster::join(&config, "1", sessions, &tasks, stop.clone()).await.expect("it joins");
    let (a, b) = tokio::join!(Member::join(&server, "a"), Member::join(&server, "b"));
    tokio::join!(a.knows(3), b.knows(3));
    b.connect("").await.ask("Still here").await;
    let list = a.list("").await;
    assert_eq!((turns(&list).len(), &list["missing_hubs"]), (1, &json!(["silent"])), "{list}");
    let (status, none) = a.json("/api/turns/turn_none", "").await;
    let message = none["error"]["message"].as_str().expect("a message");
    assert!(status == 404 && message.ends_with("These hubs did not reply: silent."), "{none}");
    b.manager.membership().expect("joined").leave().await;
    let list = a.list("").await;
    assert_eq!((turns(&list), &list["missing_hubs"]), (&[][..], &json!(["b", "silent"])), "{list}");
    stop.cancel();
}

#[tokio::test]
async fn long_records_of_other_hubs_come_in_more_pages() {
    let server = NatsServer::start().await.expect("nats-server");
    let (a, b) = two(&server).await;
    // Together more than one reply between hubs takes, and between turns of the hub that is asked.
    let words = "word ".repeat(2_000);
    let mut at_a = a.connect("").await;
    let mut at_b = b.connect("").await;
    for n in 0..45 {
        let socket = if n % 9 == 0 { &mut at_a } else { &mut at_b };
        socket.ask(&words).await;
    }
    let mut seen = BTreeSet::new();
    let mut query = String::new();
    let mut n_pages = 0;
    loop {
        let list = a.list(&query).await;
        n_pages += 1;
        for turn in turns(&list) {
            assert!(seen.insert(id(turn).to_owned()), "twice: {turn}");
            assert!(turn["transcript"].as_str().is_some_and(|text| text.len() > 8_000), "{turn}");
        }
        if list["has_more"] == false {
            break;
        }
        query = format!("?before={}", id(turns(&list).last().expect("progress")));
    }
    assert!((seen.len(), n_pages > 1) == (45, true), "{} turns in {n_pages} pages", seen.len());
}

#[tokio::test]
async fn without_a_cluster_no_hub_is_named() {
    let hub = lone_hub("hello", "Hi.").await;
    let mut socket = hub.connect("").await;
    socket.ask("Alone?").await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let response = reqwest::get(format!("http://{}/api/turns", hub.address)).await.expect("an answer");
    let text = response.text().await.expect("text");
    assert!(text.starts_with(r#"{"turns":[{"id":"turn_"#), "{text}");
    assert!(text.ends_with(r#"}],"has_more":false,"capacity":1000}"#), "{text}");
    assert!(!text.contains(r#""hub":"#), "{text}");
}
