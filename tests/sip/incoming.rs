//! Calls that clients decide about: the signed webhook of each, and what accepts and rejects it.

use super::phone::{Answer, Options, Phone};
use super::{calls, soon};
use crate::hub::{Hub, engines};
use antiphon::config::{Config, UndecidedCall};
use antiphon::server::{Keys, key_digest, key_entry};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_sip::Method;
use antiphon_test_server::{Answer as HttpAnswer, Request, TestServer};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::hmac;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;
use tempfile::TempDir;

/// The bytes of the secret.
const SECRET: &[u8] = b"a secret of 24 to 64 byte";

/// How a receiver answers.
#[derive(Clone, Copy)]
pub enum Reply {
    Status(u16),
    /// Not at all.
    Hang,
}

/// A webhook that arrived and whose signature is right.
#[derive(Clone, Debug)]
pub struct Webhook {
    pub id: String,
    pub event: Value,
}

/// A server that receives webhooks.
pub struct Receiver {
    server: TestServer,
    n_taken: usize,
    secret: TempDir,
}

impl Webhook {
    /// What was posted, whose signature is checked.
    fn read(request: &Request) -> Self {
        let header = |name: &str| request.header(name).unwrap_or_else(|| panic!("no {name}")).to_owned();
        let id = header("webhook-id");
        let signed = [format!("{id}.{}.", header("webhook-timestamp")).as_bytes(), &request.body].concat();
        let signature = header("webhook-signature");
        let signature = BASE64.decode(signature.strip_prefix("v1,").expect("the version")).expect("base64");
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
        hmac::verify(&key, &signed, &signature).expect("the signature is right");
        assert_eq!(header("content-type"), "application/json");
        let event = serde_json::from_slice(&request.body).expect("JSON");
        Self { id, event }
    }
}

impl Receiver {
    /// Answers in this order, then 200.
    pub async fn new(replies: &[Reply]) -> Self {
        let secret = tempfile::tempdir().expect("a folder");
        let text = format!("whsec_{}\n", BASE64.encode(SECRET));
        std::fs::write(secret.path().join("secret"), text).expect("written");
        let replies = Mutex::new(VecDeque::from(replies.to_vec()));
        let server = TestServer::start(move |_| {
            let reply = replies.lock().expect("no panic").pop_front().unwrap_or(Reply::Status(200));
            match reply {
                Reply::Status(status) => HttpAnswer::status(status).header("location", "http://127.0.0.1:9/"),
                Reply::Hang => HttpAnswer::none(),
            }
        });
        Self { server, n_taken: 0, secret }
    }

    /// A configuration whose calls this receiver is asked about.
    pub fn config(&self) -> (Config, SocketAddr) {
        let (mut config, sip) = super::config();
        config.sip.webhook_url = self.server.url("/calls");
        config.sip.webhook_secret_file = self.secret.path().join("secret").display().to_string();
        (config, sip)
    }

    /// The next webhook.
    pub async fn next(&mut self) -> Webhook {
        let what = format!("webhook {}", self.n_taken + 1);
        let request = soon(&what, self.server.request(self.n_taken)).await;
        self.n_taken += 1;
        Webhook::read(&request)
    }

    /// The id of the next call that rings.
    async fn next_call(&mut self) -> String {
        let Webhook { event, .. } = self.next().await;
        assert_eq!(event["type"], "realtime.call.incoming", "{event}");
        event["data"]["call_id"].as_str().expect("an id").to_owned()
    }
}

async fn start(config: Config, llm: &FakeLlm) -> Hub {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Hub::start(engines(FakeStt::hears(["what time is it"]), llm.clone(), FakeTts::default()), config).await
}

/// Posts to a call's route; status, and code of the error.
async fn post(hub: &Hub, id: &str, route: &str, key: &str, body: &str) -> (u16, Value) {
    let url = format!("http://{}/v1/realtime/calls/{id}/{route}", hub.address);
    let request = reqwest::Client::new().post(url).body(body.to_owned());
    let request = if key.is_empty() { request } else { request.bearer_auth(key) };
    let answer = request.send().await.expect("an answer");
    let status = answer.status().as_u16();
    let body: Value = answer.json().await.unwrap_or_default();
    (status, body["error"]["code"].clone())
}

#[tokio::test(start_paused = true)]
async fn a_call_rings_until_a_client_accepts_it_with_its_session() {
    let mut receiver = Receiver::new(&[]).await;
    let (config, sip) = receiver.config();
    let llm = FakeLlm::says(["Ten past ten."]);
    let hub = start(config, &llm).await;
    let options = Options { headers: "X-Customer: 4711\nAuthorization: Digest secret", ..Options::default() };
    let accepted = async {
        let Webhook { event, .. } = receiver.next().await;
        assert_eq!((&event["object"], &event["type"]), (&json!("event"), &json!("realtime.call.incoming")));
        assert!(
            event["created_at"].as_u64().is_some() && event["id"].as_str().is_some_and(|id| id.starts_with("evt_"))
        );
        let headers = event["data"]["sip_headers"].as_array().expect("headers");
        let header = |name: &str| headers.iter().find(|header| header["name"] == name).map(|header| &header["value"]);
        assert!(header("From").and_then(Value::as_str).is_some_and(|from| from.contains("sip:+15550199@")));
        assert!(header("To").is_some() && header("Call-ID").is_some());
        assert_eq!(header("X-Customer"), Some(&json!("4711")));
        assert_eq!(header("Authorization"), None, "who the caller proves to be is not passed on");
        let id = event["data"]["call_id"].as_str().expect("an id").to_owned();
        let list = calls(&hub).await;
        assert_eq!((&list["data"][0]["id"], &list["data"][0]["state"]), (&json!(id), &json!("ringing")), "{list}");
        for wrong in ["no JSON", r#"{"type": "realtime", "voice": 5}"#, r#"{"type":"realtime"},"event_id":"x""#] {
            assert_eq!(post(&hub, &id, "accept", "", wrong).await.0, 400, "{wrong}");
        }
        let transcribes = r#"{"type": "transcription"}"#;
        assert_eq!(post(&hub, &id, "accept", "", transcribes).await, (400, json!("invalid_value")));
        let session = json!({"type": "realtime", "instructions": "You are the speaking clock."});
        assert_eq!(post(&hub, &id, "accept", "", &session.to_string()).await.0, 200);
        assert_eq!(post(&hub, &id, "accept", "", "").await, (409, json!("call_already_decided")));
        assert_eq!(post(&hub, &id, "reject", "", "").await, (409, json!("call_already_decided")));
        id
    };
    let (mut phone, id) = tokio::join!(Phone::connect(sip, options), accepted);
    assert_eq!(phone.provisional, [100, 180]);
    let mut client = hub.open(&format!("?call_id={id}")).await.expect("the call may be joined");
    assert_eq!(client.next().await["type"], "session.created");
    phone.speak(500).await;
    phone.until("the reply is heard", |phone| phone.heard_ms() >= 130).await;
    assert!(format!("{:?}", llm.requests()[0]).contains("the speaking clock"));
    assert_eq!(post(&hub, &id, "hangup", "", "").await.0, 200);
    phone.until("the hub hangs up", |phone| phone.is_ended).await;
    assert_eq!(post(&hub, &id, "accept", "", "").await.0, 404);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_is_rejected_with_the_status_of_a_client() {
    let mut receiver = Receiver::new(&[]).await;
    let (config, sip) = receiver.config();
    let hub = start(config, &FakeLlm::default()).await;
    for (route, body, refusal) in
        [("reject", r#"{"status_code": 486}"#, 486), ("reject", "", 603), ("reject", "{}", 603), ("hangup", "", 603)]
    {
        let rejected = async {
            let id = receiver.next_call().await;
            for wrong in ["{\"status_code\": 200}", "{\"status_code\": \"busy\"}", "{\"status_code\": 700}"] {
                assert_eq!(post(&hub, &id, "reject", "", wrong).await.0, 400, "{wrong}");
            }
            assert_eq!(post(&hub, &id, route, "", body).await.0, 200);
        };
        let ((_, answer), ()) = tokio::join!(Phone::call(sip, Options::default()), rejected);
        assert!(matches!(answer, Answer::Refused { status, .. } if status == refusal), "{route} {body}: {answer:?}");
    }
    assert_eq!(calls(&hub).await["data"], json!([]));
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_decides_about_ends_as_the_settings_say() {
    for undecided in [UndecidedCall::Refuse, UndecidedCall::Answer] {
        let mut receiver = Receiver::new(&[]).await;
        let (mut config, sip) = receiver.config();
        config.sip.webhook_undecided = undecided;
        config.sip.webhook_decision_seconds = 5;
        let hub = start(config, &FakeLlm::default()).await;
        let ((_phone, answer), id) = tokio::join!(Phone::call(sip, Options::default()), receiver.next_call());
        match undecided {
            UndecidedCall::Refuse => {
                assert!(matches!(answer, Answer::Refused { status: 480, .. }), "{answer:?}");
                assert_eq!(post(&hub, &id, "accept", "", "").await.0, 404);
            }
            UndecidedCall::Answer => {
                assert!(matches!(answer, Answer::Accepted), "{answer:?}");
                assert_eq!(post(&hub, &id, "accept", "", "").await.0, 409);
            }
        }
        hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_fails_comes_again_with_its_id_and_a_receiver_that_hangs_is_cut() {
    let replies = [Reply::Status(500), Reply::Hang, Reply::Status(302), Reply::Status(404)];
    let mut receiver = Receiver::new(&replies).await;
    let (mut config, sip) = receiver.config();
    config.sip.webhook_decision_seconds = 120;
    let hub = start(config, &FakeLlm::default()).await;
    let accepted = async {
        let first = receiver.next().await;
        for _ in &replies {
            let again = receiver.next().await;
            assert_eq!((&again.id, &again.event), (&first.id, &first.event));
        }
        let id = first.event["data"]["call_id"].as_str().expect("an id").to_owned();
        assert_eq!(post(&hub, &id, "accept", "", "").await.0, 200);
    };
    let (_phone, ()) = tokio::join!(Phone::connect(sip, Options::default()), accepted);
    // Once it is delivered it comes no more.
    tokio::time::sleep(std::time::Duration::from_secs(40)).await;
    assert_eq!(receiver.server.n_requests(), replies.len() + 1);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_answered_without_a_question_is_reported_from_its_answer_to_its_end() {
    let mut receiver = Receiver::new(&[]).await;
    let (mut config, sip) = receiver.config();
    config.sip.webhook_events = vec!["states".into()];
    let hub = start(config, &FakeLlm::default()).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    let answered = receiver.next().await.event;
    assert_eq!((&answered["type"], &answered["data"]["direction"]), (&json!("call.answered"), &json!("in")));
    phone.send(Method::Bye, "", "").await;
    let ended = receiver.next().await.event;
    assert_eq!((&ended["type"], &ended["data"]), (&json!("call.ended"), &answered["data"]));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_gives_up_and_a_hub_that_stops_end_the_ringing() {
    let mut receiver = Receiver::new(&[]).await;
    let (config, sip) = receiver.config();
    let hub = start(config, &FakeLlm::default()).await;
    let id = Mutex::new(String::new());
    let rings = async { *id.lock().expect("no panic") = receiver.next_call().await };
    assert_eq!(Phone::give_up(sip, Options::default(), rings).await, 487);
    let id = id.into_inner().expect("no panic");
    assert_eq!(post(&hub, &id, "accept", "", "").await, (404, json!("call_id_not_found")));
    assert_eq!(calls(&hub).await["data"], json!([]));
    let stops = async {
        receiver.next_call().await;
        hub.begin_to_stop();
    };
    let ((_, answer), ()) = tokio::join!(Phone::call(sip, Options::default()), stops);
    assert!(matches!(answer, Answer::Refused { status: 503, .. }), "{answer:?}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn only_the_key_of_a_trunk_decides_about_its_calls() {
    let mut receiver = Receiver::new(&[]).await;
    let (mut config, sip) = receiver.config();
    config.sip.trunks.get_mut("here").expect("a trunk").key = "phones".into();
    let of = |name: &str| key_entry(name, &key_digest(&format!("key-of-the-{name}")), &[], None);
    let keys = Keys::of_text(&format!("{}{}", of("phones"), of("others"))).expect("keys");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let engines = engines(FakeStt::hears([]), FakeLlm::default(), FakeTts::default());
    let hub = Hub::with_keys(engines, config, keys).await;
    let decided = async {
        let id = receiver.next_call().await;
        let secret = reqwest::Client::new()
            .post(format!("http://{}/v1/realtime/client_secrets", hub.address))
            .bearer_auth("key-of-the-phones")
            .json(&json!({"session": {"type": "realtime"}}));
        let secret: Value = secret.send().await.expect("an answer").json().await.expect("JSON");
        let secret = secret["value"].as_str().expect("a secret");
        for route in ["accept", "reject"] {
            for (key, status) in [("", 401), (secret, 401), ("key-of-the-others", 404)] {
                assert_eq!(post(&hub, &id, route, key, "").await.0, status, "{route} with {key:?}");
            }
        }
        assert_eq!(post(&hub, &id, "accept", "key-of-the-phones", "").await.0, 200);
    };
    let (mut phone, ()) = tokio::join!(Phone::connect(sip, Options::default()), decided);
    phone.send(Method::Bye, "", "").await;
    phone.talk(0.0, 40).await;
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.stop().await;
}
