//! Calls out by SIP: whom they reach, what becomes of them, and whom nobody may call.

use super::incoming::Receiver;
use super::phone::Phone;
use super::{config, hub, soon};
use crate::hub::{Hub, file_endings};
use antiphon::config::{Config, ConsentMethod};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_sip::sdp::Codec;
use antiphon_sip::{Message, Method};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::UdpSocket;

/// Asks the hub to call somebody; status and answer.
pub async fn call(hub: &Hub, body: Value) -> (u16, Value) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = format!("http://{}/v1/realtime/calls", hub.address);
    let answer = reqwest::Client::new().post(url).json(&body).send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

/// What became of a call.
pub async fn state(hub: &Hub, id: &str) -> String {
    let url = format!("http://{}/v1/realtime/calls/{id}", hub.address);
    let call: Value = reqwest::get(url).await.expect("an answer").json().await.expect("JSON");
    call["state"].as_str().unwrap_or_else(|| panic!("a state: {call}")).to_owned()
}

/// Waits until a call has this state.
pub async fn until(hub: &Hub, id: &str, wanted: &str) {
    let reached = async {
        while state(hub, id).await != wanted {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    soon(&format!("the state {wanted} of a call"), reached).await;
}

/// Somebody at a socket, who answers as a test wants.
pub struct Callee {
    socket: Arc<UdpSocket>,
    hub: Option<SocketAddr>,
}

impl Callee {
    /// The callee at this socket.
    pub fn of(socket: UdpSocket) -> Self {
        Self { socket: Arc::new(socket), hub: None }
    }

    /// The callee, and a hub that may call it.
    async fn new(change: fn(&mut Config)) -> (Self, Hub, String) {
        Self::at("127.0.0.1", change).await
    }

    /// The same, where both have this address.
    async fn at(ip: &str, change: fn(&mut Config)) -> (Self, Hub, String) {
        let ip: IpAddr = ip.parse().expect("an address");
        let socket = UdpSocket::bind((ip, 0)).await.expect("a port");
        let address = socket.local_addr().expect("bound");
        let (mut config, sip) = config();
        config.sip.listen = SocketAddr::new(ip, sip.port()).to_string();
        if let Some(trunk) = config.sip.trunks.get_mut("here") {
            trunk.host = address.to_string();
        }
        config.sip.call_to = vec!["tel:+49*".into(), format!("sip:ann@{address}")];
        change(&mut config);
        let hub = hub(&[], &FakeLlm::default(), config).await;
        (Self::of(socket), hub, format!("sip:ann@{address}"))
    }

    /// The next request of this method; what comes before is of no interest.
    pub async fn next(&mut self, method: Method) -> Message {
        let what = format!("a request {method} of the hub");
        let mut buffer = [0; 4_096];
        let came = async {
            loop {
                let (n, from) = self.socket.recv_from(&mut buffer).await.expect("a message");
                self.hub = Some(from);
                let message = Message::parse(&buffer[..n]).expect("a message");
                if message.method() == Some(method.clone()) {
                    return message;
                }
            }
        };
        soon(&what, came).await
    }

    /// Answers the next call, with this codec.
    pub async fn pick_up(&mut self, codec: Codec) -> Phone {
        let invite = self.next(Method::Invite).await;
        self.answer_call(&invite, codec).await
    }

    /// Answers a call, which the phone goes on with.
    pub async fn answer_call(&self, invite: &Message, codec: Codec) -> Phone {
        Phone::answer(self.socket.clone(), self.hub.expect("somebody called"), invite, codec).await
    }

    pub async fn answer(&self, request: &Message, status: u16) {
        let bytes = request.answer(status, "So", Some("callee")).write();
        self.socket.send_to(&bytes, self.hub.expect("somebody called")).await.expect("sent");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_out_says_what_became_of_it() {
    for (status, outcome) in [(486, "busy"), (603, "declined"), (480, "no_answer"), (404, "failed")] {
        let (mut callee, hub, _) = Callee::new(|_| {}).await;
        let (created, answer) = call(&hub, json!({"to": "tel:+4930123", "from": "+15550100"})).await;
        assert_eq!(created, 201, "{answer}");
        let id = answer["id"].as_str().expect("an id").to_owned();
        let invite = callee.next(Method::Invite).await;
        assert!(String::from_utf8_lossy(&invite.write()).starts_with("INVITE sip:+4930123@127.0.0.1:"));
        assert_eq!(invite.from().and_then(|from| from.user()).as_deref(), Some("+15550100"));
        callee.answer(&invite, 180).await;
        until(&hub, &id, "ringing").await;
        callee.answer(&invite, status).await;
        callee.next(Method::Ack).await;
        until(&hub, &id, outcome).await;
        hub.until("antiphon_sessions_active ", 0.0).await;
        hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_recorded_call_that_nobody_answers_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let (mut config, _) = config();
    config.session.record = folder.path().display().to_string();
    config.telephony.recording_notice = "Press one to be recorded.".into();
    config.telephony.recording_consent = ConsentMethod::Key;
    config.sip.call_to = vec!["tel:+49*".into()];
    config.sip.trunks.get_mut("here").expect("a trunk").host = socket.local_addr().expect("bound").to_string();
    let hub = hub(&[], &FakeLlm::default(), config).await;
    let mut callee = Callee::of(socket);
    let (created, answer) = call(&hub, json!({"to": "tel:+4930123"})).await;
    assert_eq!(created, 201, "{answer}");
    let id = answer["id"].as_str().expect("an id").to_owned();
    let invite = callee.next(Method::Invite).await;
    callee.answer(&invite, 486).await;
    callee.next(Method::Ack).await;
    until(&hub, &id, "busy").await;
    hub.until("antiphon_sessions_active ", 0.0).await;
    let url = format!("http://{}/v1/realtime/calls/{id}", hub.address);
    let ended: Value = reqwest::get(url).await.expect("an answer").json().await.expect("JSON");
    assert_eq!(ended["recording"], "refused", "{ended}");
    hub.stop().await;
    assert!(file_endings(folder.path()).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_key_makes_so_many_calls_a_minute_and_none_in_quiet_hours() {
    let (mut callee, hub, to) = Callee::new(|config| config.sip.max_calls_out_per_minute = 2).await;
    for _ in 0..2 {
        assert_eq!(call(&hub, json!({"to": to})).await.0, 201);
        let invite = callee.next(Method::Invite).await;
        callee.answer(&invite, 486).await;
        callee.next(Method::Ack).await;
    }
    let (status, answer) = call(&hub, json!({"to": to})).await;
    assert_eq!((status, &answer["error"]["code"]), (429, &json!("rate_limit_exceeded")));
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(call(&hub, json!({"to": to})).await.0, 201);
    hub.stop().await;

    // One of the halves of a day is quiet, whatever the time is, unless the half ends meanwhile.
    let is_morning = || jiff::Zoned::now().hour() < 12;
    loop {
        let before = is_morning();
        let mut answers = Vec::new();
        for hours in ["00:00-12:00", "12:00-00:00"] {
            let change: fn(&mut Config) = match hours {
                "00:00-12:00" => |config| config.sip.quiet_hours = "00:00-12:00".into(),
                _ => |config| config.sip.quiet_hours = "12:00-00:00".into(),
            };
            let (_callee, hub, to) = Callee::new(change).await;
            let (status, answer) = call(&hub, json!({"to": to})).await;
            hub.stop().await;
            answers.push((status, answer["error"]["code"].clone()));
        }
        if before == is_morning() {
            let (quiet, other) = if before { (0, 1) } else { (1, 0) };
            assert_eq!(answers[quiet], (403, json!("quiet_hours")));
            assert_eq!(answers[other].0, 201);
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_states_of_calls_are_posted() {
    let mut receiver = Receiver::new(&[]).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let (mut config, _) = receiver.config();
    config.sip.webhook_events = vec!["states".into()];
    config.sip.call_to = vec!["tel:+49*".into()];
    config.sip.trunks.get_mut("here").expect("a trunk").host = socket.local_addr().expect("bound").to_string();
    let hub = hub(&[], &FakeLlm::default(), config).await;
    let mut callee = Callee::of(socket);
    for (status, kind) in [(486, "call.busy"), (603, "call.declined"), (480, "call.no_answer"), (404, "call.failed")] {
        let (_, answer) = call(&hub, json!({"to": "tel:+4930123"})).await;
        let invite = callee.next(Method::Invite).await;
        callee.answer(&invite, 180).await;
        callee.answer(&invite, 180).await;
        let event = receiver.next().await.event;
        let data = json!({"call_id": answer["id"], "direction": "out"});
        assert_eq!((&event["type"], &event["data"]), (&json!("call.ringing"), &data));
        callee.answer(&invite, status).await;
        let event = receiver.next().await.event;
        assert_eq!((&event["type"], &event["data"]), (&json!(kind), &data));
        callee.next(Method::Ack).await;
    }
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_answers_after_a_long_ringing_is_talked_to() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let (mut config, _) = config();
    config.sip.call_to = vec!["tel:+49*".into()];
    config.sip.trunks.get_mut("here").expect("a trunk").host = socket.local_addr().expect("bound").to_string();
    let hub = hub(&[], &FakeLlm::says(["Good morning."]), config).await;
    let mut callee = Callee::of(socket);
    let (created, answer) = call(&hub, json!({"to": "tel:+4930123", "greeting": "Say good morning."})).await;
    assert_eq!(created, 201, "{answer}");
    let invite = callee.next(Method::Invite).await;
    callee.answer(&invite, 180).await;
    tokio::time::sleep(std::time::Duration::from_secs(50)).await;
    let mut phone = callee.answer_call(&invite, Codec::Pcmu).await;
    phone.until("the greeting", |phone| phone.heard_ms() >= 630).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_asked_for_while_it_rings_is_heard_after_the_answer() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let (mut config, _) = config();
    config.sip.call_to = vec!["tel:+49*".into()];
    config.sip.trunks.get_mut("here").expect("a trunk").host = socket.local_addr().expect("bound").to_string();
    let llm = FakeLlm::says(["Good morning."]);
    let hub = hub(&[], &llm, config).await;
    let mut callee = Callee::of(socket);
    let (created, answer) = call(&hub, json!({"to": "tel:+4930123", "greeting": "Say hello."})).await;
    assert_eq!(created, 201, "{answer}");
    let id = answer["id"].as_str().expect("an id");
    let invite = callee.next(Method::Invite).await;
    callee.answer(&invite, 180).await;
    let mut client = hub.connect(&format!("?call_id={id}")).await;
    client.send(json!({"type": "response.create"})).await;
    client.until("response.created").await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert_eq!(llm.requests().len(), 0, "it waits for the answer");
    let mut phone = callee.answer_call(&invite, Codec::Pcmu).await;
    phone.until("the response is heard", |phone| phone.heard_ms() >= 630).await;
    let events = client.until("response.done").await;
    assert_eq!(events.last().expect("an event")["response"]["status"], "completed");
    phone.talk(0.0, 3_000).await;
    assert_eq!(llm.requests().len(), 1, "it stands for the greeting");
    assert!(events.iter().all(|event| event["type"] != "error"), "{events:?}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sound_beside_the_conversation_that_is_asked_for_while_it_rings_is_heard_after_the_answer() {
    let (mut callee, hub, to) = Callee::new(|_| {}).await;
    let (created, answer) = call(&hub, json!({"to": to})).await;
    assert_eq!(created, 201, "{answer}");
    let id = answer["id"].as_str().expect("an id");
    let invite = callee.next(Method::Invite).await;
    callee.answer(&invite, 180).await;
    let mut client = hub.connect(&format!("?call_id={id}")).await;
    let message = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]});
    let response = json!({"conversation": "none", "input": [message]});
    client.send(json!({"type": "response.create", "response": response})).await;
    client.until("response.created").await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let mut phone = callee.answer_call(&invite, Codec::Pcmu).await;
    // "You said: hello" is 700 ms of sound.
    phone.until("it is heard", |phone| phone.heard_ms() >= 680).await;
    let events = client.until("response.done").await;
    assert_eq!(events.last().expect("an event")["response"]["status"], "completed");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_trunk_is_called_by_its_ipv6_address() {
    let (mut callee, hub, _) = Callee::at("::1", |_| {}).await;
    let (created, answer) = call(&hub, json!({"to": "tel:+4930123"})).await;
    assert_eq!(created, 201, "{answer}");
    let invite = callee.next(Method::Invite).await;
    assert!(String::from_utf8_lossy(&invite.write()).starts_with("INVITE sip:+4930123@[::1]:"));
    let offer = String::from_utf8_lossy(&invite.body).into_owned();
    assert!(offer.contains("c=IN IP6 ::1"), "{offer}");
    callee.answer(&invite, 486).await;
    callee.next(Method::Ack).await;
    until(&hub, answer["id"].as_str().expect("an id"), "busy").await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_out_is_given_up_by_a_hang_up_and_after_a_minute() {
    for hangs_up in [true, false] {
        let (mut callee, hub, to) = Callee::new(|_| {}).await;
        let (_, answer) = call(&hub, json!({"to": to})).await;
        let id = answer["id"].as_str().expect("an id").to_owned();
        let invite = callee.next(Method::Invite).await;
        callee.answer(&invite, 180).await;
        until(&hub, &id, "ringing").await;
        if hangs_up {
            let url = format!("http://{}/v1/realtime/calls/{id}/hangup", hub.address);
            assert_eq!(reqwest::Client::new().post(url).send().await.expect("an answer").status(), 200);
        } else {
            tokio::time::sleep(std::time::Duration::from_secs(59)).await;
        }
        let cancel = callee.next(Method::Cancel).await;
        callee.answer(&cancel, 200).await;
        callee.answer(&invite, 487).await;
        callee.next(Method::Ack).await;
        until(&hub, &id, if hangs_up { "ended" } else { "no_answer" }).await;
        hub.until("antiphon_sessions_active ", 0.0).await;
        hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_called_who_is_not_listed_and_no_more_than_may_be() {
    let (mut callee, hub, to) = Callee::new(|config| config.sip.max_calls_out = 1).await;
    for (body, status, code) in [
        (json!({"to": "tel:+33123"}), 403, "call_not_allowed"),
        (json!({"to": "ann"}), 400, "invalid_value"),
        (json!({"to": to, "trunk": "other"}), 400, "invalid_value"),
        (json!({"to": to, "from": "a>b"}), 400, "invalid_value"),
        (json!({"to": to, "greeting": "x".repeat(2_001)}), 400, "invalid_value"),
        (json!({"to": to, "voicemail_message": "x".repeat(2_001)}), 400, "invalid_value"),
        (json!({"to": to, "on_voicemail": "shout"}), 400, "invalid_value"),
        (json!({"to": to, "session": {"type": "realtime", "voice": 5}}), 400, ""),
        (json!({"to": to, "session": {"type": "transcription"}}), 400, "invalid_value"),
        (json!({"from": "me"}), 400, "invalid_offer"),
    ] {
        let (found, answer) = call(&hub, body.clone()).await;
        assert_eq!(found, status, "{body}: {answer}");
        assert!(code.is_empty() || answer["error"]["code"] == code, "{body}: {answer}");
    }
    let secrets = format!("http://{}/v1/realtime/client_secrets", hub.address);
    let secret = reqwest::Client::new().post(secrets).json(&json!({"session": {"type": "realtime"}})).send().await;
    let secret: Value = secret.expect("an answer").json().await.expect("JSON");
    let by_browser = reqwest::Client::new()
        .post(format!("http://{}/v1/realtime/calls", hub.address))
        .bearer_auth(secret["value"].as_str().expect("a secret"))
        .json(&json!({"to": to}));
    assert_eq!(by_browser.send().await.expect("an answer").status(), 403, "a browser's secret calls nobody");
    let (created, _) = call(&hub, json!({"to": to})).await;
    assert_eq!(created, 201);
    callee.next(Method::Invite).await;
    let (status, answer) = call(&hub, json!({"to": to})).await;
    assert_eq!((status, &answer["error"]["code"]), (429, &json!("too_many_calls")));
    hub.stop().await;

    let (_, hub, to) = Callee::new(|config| config.sip.trunks.clear()).await;
    let (status, answer) = call(&hub, json!({"to": to})).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("calls_out_not_configured")));
    hub.stop().await;
}
