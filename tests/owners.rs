//! Ownership by API key of turns, jobs and sessions: no other key can see, remove or resume them.

use crate::hub::{Hub, Socket, engines};
use antiphon::config::Config;
use antiphon::server::Keys;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use eventsource_stream::Eventsource;
use futures_util::StreamExt;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

const ALICE: &str = "sk-antiphon-alice";
const BOB: &str = "sk-antiphon-bob";
const ADMIN: &str = "sk-antiphon-admin";
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

async fn hub(change: impl FnOnce(&mut Config)) -> Hub {
    let mut config = Config::default();
    change(&mut config);
    let engines = engines(FakeStt::default(), FakeLlm::says(["Hi."; 200]), FakeTts::default());
    Hub::with_keys(engines, config, Keys::of(&[ALICE, BOB]).with_admin(&[ADMIN])).await
}

fn request(hub: &Hub, method: Method, path: &str, key: &str) -> RequestBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new().request(method, format!("http://{}{path}", hub.address)).bearer_auth(key)
}

async fn get(hub: &Hub, path: &str, key: &str) -> (u16, Value) {
    let answer = request(hub, Method::GET, path, key).send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

/// Connects with a header and subprotocols.
async fn connect(hub: &Hub, query: &str, key: &str, protocols: &str) -> Socket {
    let mut request = format!("ws://{}/v1/realtime{query}", hub.address).into_client_request().expect("a request");
    request.headers_mut().insert("authorization", format!("Bearer {key}").parse().expect("a header"));
    if !protocols.is_empty() {
        request.headers_mut().insert("sec-websocket-protocol", protocols.parse().expect("a header"));
    }
    let (stream, _) = crate::hub::connect(request).await.expect("the upgrade is accepted");
    Socket { stream, frames: Vec::new() }
}

async fn guest(hub: &Hub, key: &str) -> String {
    let made = request(hub, Method::POST, "/v1/realtime/client_secrets", key).send().await.expect("an answer");
    made.json::<Value>().await.expect("JSON")["value"].as_str().expect("a key").to_owned()
}

fn ids(list: &Value) -> Vec<String> {
    let turns = list["turns"].as_array().expect("a list");
    turns.iter().map(|turn| turn["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn turns_are_seen_by_the_key_that_made_them_and_by_admins() {
    let hub = hub(|_| {}).await;
    let live = request(&hub, Method::GET, "/api/turns/live", BOB).send().await.expect("an answer");
    let mut live = Box::pin(live.bytes_stream().eventsource().map(|event| event.expect("an event")));
    let ek = guest(&hub, ALICE).await;
    for key in [ALICE, ek.as_str(), BOB] {
        let mut socket = connect(&hub, "", key, "").await;
        socket.ask(&format!("I am {key}")).await;
    }
    let seen = async |key| ids(&get(&hub, "/api/turns", key).await.1);
    let alice = seen(ALICE).await;
    let bob = seen(BOB).await;
    let all = seen(ADMIN).await;
    assert_eq!((alice.len(), bob.len(), all.len()), (2, 1, 3), "a short-lived key's are its maker's");
    for (id, key, status) in
        [(&alice[0], ALICE, 200), (&alice[0], BOB, 404), (&bob[0], ALICE, 404), (&bob[0], ADMIN, 200)]
    {
        assert_eq!(get(&hub, &format!("/api/turns/{id}"), key).await.0, status, "{key}");
    }
    // Bob's live stream starts with Bob's turn.
    let first = async {
        loop {
            let event = live.next().await.expect("it goes on");
            assert!(!event.data.contains("alice"), "{}", event.data);
            if event.event == "turn" {
                return event.data;
            }
        }
    };
    let first: Value = serde_json::from_str(&timeout(TEST_TIMEOUT, first).await.expect("it is told")).expect("JSON");
    assert_eq!(first["id"], bob[0].as_str());
    let state = get(&hub, "/api/state", BOB).await.1;
    assert_eq!(
        (&state["counters"], &state["process"], &state["sessions"]),
        (&Value::Null, &Value::Null, &json!(0)),
        "{state}"
    );
    assert_eq!(get(&hub, "/api/state", ADMIN).await.1["counters"]["responses"], 3);
}

#[tokio::test(start_paused = true)]
async fn the_list_of_turns_comes_in_pages() {
    let hub = hub(|_| {}).await;
    let mut socket = connect(&hub, "", ALICE, "").await;
    for n in 0..103 {
        socket.ask(&n.to_string()).await;
    }
    let (_, first) = get(&hub, "/api/turns?limit=100000", ALICE).await;
    assert_eq!((first["turns"].as_array().map(Vec::len), &first["has_more"]), (Some(100), &json!(true)));
    let last = ids(&first).pop().expect("one");
    let (_, second) = get(&hub, &format!("/api/turns?limit=100000&before={last}"), ALICE).await;
    let numbers: Vec<u64> =
        second["turns"].as_array().expect("a list").iter().filter_map(|turn| turn["turn"].as_u64()).collect();
    assert_eq!((numbers, &second["has_more"]), (vec![3, 2, 1], &json!(false)));
    let (_, none) = get(&hub, "/api/turns?before=turn_gone", ALICE).await;
    assert_eq!(none, json!({"turns": [], "has_more": false, "capacity": 1000}));
    assert_eq!(get(&hub, "/api/turns?limit=2", ALICE).await.1["turns"].as_array().map(Vec::len), Some(2));
}

#[tokio::test(start_paused = true)]
async fn jobs_are_seen_and_removed_by_the_key_that_made_them_and_by_admins() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = hub(|config| config.speech.jobs_dir = folder.path().to_str().expect("text").into()).await;
    let jobs = "/v1/audio/speech/jobs";
    let made = request(&hub, Method::POST, jobs, ALICE).body(r#"{"input": "A secret of Alice's."}"#);
    let made: Value = made.send().await.expect("an answer").json().await.expect("JSON");
    let job = format!("{jobs}/{}", made["id"].as_str().expect("an id"));
    let listed = async |key| get(&hub, jobs, key).await.1["data"].as_array().expect("a list").len();
    assert_eq!((listed(ALICE).await, listed(BOB).await, listed(ADMIN).await), (1, 0, 1));
    for (path, key) in [(job.clone(), BOB), (format!("{job}/audio"), BOB)] {
        assert_eq!(get(&hub, &path, key).await.0, 404, "{path}");
    }
    let remove =
        async |key| request(&hub, Method::DELETE, &job, key).send().await.expect("an answer").status().as_u16();
    assert_eq!(remove(BOB).await, 404);
    assert_eq!(get(&hub, &job, ALICE).await.0, 200, "it is still there");
    assert_eq!(remove(ADMIN).await, 200);
}

/// A resumable session of this key, and its resume key.
async fn resumable(hub: &Hub, key: &str) -> (Socket, String) {
    let mut socket = connect(hub, "?resume=1", key, "").await;
    let notice = socket.until("antiphon.session.resumable").await.pop().expect("there");
    (socket, notice["key"].as_str().expect("a key").to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_session_is_taken_up_with_its_own_api_key_only_and_not_by_the_address() {
    let hub = hub(|_| {}).await;
    let ek = guest(&hub, ALICE).await;
    let other_ek = guest(&hub, ALICE).await;
    let (mut standing, key) = resumable(&hub, &ek).await;
    let back = format!("realtime, antiphon-resume.{key}.2");
    for stranger in [BOB, ADMIN, &guest(&hub, BOB).await] {
        for (query, protocols) in [("", back.as_str()), (&format!("?resume={key}&after=2"), "")] {
            let mut socket = connect(&hub, query, stranger, protocols).await;
            assert_eq!(socket.next().await["error"]["code"], "session_not_found");
            assert_eq!(socket.close().await.map(|frame| u16::from(frame.code)), Some(4000));
        }
    }
    standing.ask("Am I still here?").await;
    drop(standing);
    let mut n = None;
    for mine in [other_ek.as_str(), ALICE, ek.as_str()] {
        let back = format!("realtime, antiphon-resume.{key}.{}", n.unwrap_or(2));
        let mut socket = connect(&hub, "?resume=1", mine, &back).await;
        let resumed = socket.next().await;
        assert_eq!(resumed["type"], "antiphon.session.resumed", "{resumed}");
        n = n.or(Some(2));
    }
}

#[tokio::test(start_paused = true)]
async fn who_says_a_wrong_number_leaves_the_good_connection_alone() {
    let hub = hub(|_| {}).await;
    let (mut good, key) = resumable(&hub, ALICE).await;
    for after in [3, 1_000_000] {
        let mut late = connect(&hub, "", ALICE, &format!("realtime, antiphon-resume.{key}.{after}")).await;
        assert_eq!(late.next().await["error"]["code"], "session_not_found");
        assert_eq!(late.close().await.map(|frame| u16::from(frame.code)), Some(4000));
    }
    let events = good.ask("Am I still here?").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
}
