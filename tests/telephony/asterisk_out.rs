//! Calls out by Asterisk: a fake of its REST interface (ARI), whose events the tests send and whose streams they open.

mod events;

use super::calls_out::{
    CALLEE, beside, connected_to, hang_up, hear_each_other, hear_summary, is_over, post, refer_warm, start,
};
use super::phone::{Phone, Provider};
use super::{NUMBER, open_config};
use crate::hub::Hub;
use crate::reload::Log;
use crate::sip::calling::{call, state, until};
use crate::sip::soon;
use crate::sip::tools::{names, says_and_calls};
use antiphon::config::{AccountKind, Config, TelephonyAccount};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_test_server::{Answer, Message, Request, TestServer, unused_address};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

const CHANNELS: &str = "/ari/channels";
const STREAMS: &str = "/ari/channels/externalMedia";
const BRIDGES: &str = "/ari/bridges";
const AWAY: &str = "The provider cannot be asked: the hub has no connection to Asterisk's events (ARI).";

/// Asterisk's HTTP server.
struct Asterisk {
    server: TestServer,
    events: Arc<EventSocket>,
    n_taken: usize,
}

/// The WebSocket of events that is open.
#[derive(Default)]
struct EventSocket {
    sender: Mutex<Option<mpsc::Sender<Message>>>,
    /// Whether the hub takes events: it has sent a ping.
    is_followed: watch::Sender<bool>,
}

impl EventSocket {
    fn open(self: &Arc<Self>) -> Answer {
        let (sender, mut waiting) = mpsc::channel(16);
        *self.sender.lock().expect("no panic") = Some(sender);
        let events = self.clone();
        Answer::websocket(move |mut socket| async move {
            loop {
                tokio::select! {
                    message = waiting.recv() => {
                        let Some(message) = message else { return };
                        if socket.send(message).await.is_err() {
                            return;
                        }
                    }
                    received = socket.recv() => match received {
                        Some(Ok(Message::Ping(_))) => {
                            events.is_followed.send_replace(true);
                        }
                        Some(Ok(_)) => {}
                        Some(Err(_)) | None => return,
                    },
                }
            }
        })
    }
}

/// The password of the account in these tests is the value of a variable that every process has.
fn password() -> String {
    std::env::var("PATH").expect("set").trim().to_owned()
}

fn credentials() -> String {
    BASE64.encode(format!("antiphon:{}", password()))
}

impl Asterisk {
    /// Accepts every request.
    fn new() -> Self {
        Self::answering(|_| None)
    }

    /// Answers so; where that is `None`, it accepts the request.
    fn answering(answer: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static) -> Self {
        let events = Arc::new(EventSocket::default());
        let socket = events.clone();
        let authorization = format!("Basic {}", credentials());
        let server = TestServer::start(move |request| {
            if request.header("authorization") != Some(&authorization) {
                return Answer::refusal(401, r#"{"message": "Authentication required"}"#);
            }
            let is_events = request.target == "/ari/events?app=antiphon";
            answer(request).unwrap_or_else(|| if is_events { socket.open() } else { Answer::status(204) })
        });
        Self { server, events, n_taken: 0 }
    }

    /// A configuration with an account here.
    fn config(&self) -> Config {
        let mut config = open_config();
        let account = TelephonyAccount {
            kind: AccountKind::Asterisk,
            username: "antiphon".into(),
            password_env: "PATH".into(),
            endpoint: "PJSIP/{number}@trunk".into(),
            numbers: vec![NUMBER.into(), "100".into()],
            api_url: self.server.url("/"),
            ..TelephonyAccount::default()
        };
        config.telephony.accounts.insert("office".into(), account);
        config.sip.call_to = vec!["tel:+49*".into()];
        config.sip.transfer_to = vec!["tel:+49*".into(), "sip:*".into()];
        config
    }

    /// A hub that takes the events.
    async fn hub(&self, config: Config, heard: &[&str], llm: &FakeLlm) -> Hub {
        let hub = start(config, heard, llm).await;
        self.followed().await;
        hub
    }

    async fn followed(&self) {
        let mut is_followed = self.events.is_followed.subscribe();
        soon("the hub takes events", is_followed.wait_for(|is_followed| *is_followed)).await.expect("it is in `self`");
    }

    /// Closes the socket of events.
    fn close_events(&self) {
        self.events.is_followed.send_replace(false);
        *self.events.sender.lock().expect("no panic") = None;
    }

    async fn event(&self, event: Value) {
        let sender = self.events.sender.lock().expect("no panic").clone().expect("the hub has connected");
        sender.send(Message::text(event.to_string())).await.expect("the socket is open");
    }

    /// An event of a channel.
    async fn happens(&self, kind: &str, id: &str, state: &str) {
        self.event(json!({"type": kind, "args": [], "channel": {"id": id, "state": state}})).await;
    }

    async fn rings(&self, id: &str) {
        let peer = json!({"id": id, "name": "PJSIP/trunk-00000001", "state": "Down"});
        self.event(json!({"type": "Dial", "dialstatus": "RINGING", "peer": peer})).await;
    }

    async fn is_destroyed(&self, id: &str, cause: u32) {
        let channel = json!({"id": id, "state": "Down"});
        self.event(json!({"type": "ChannelDestroyed", "cause": cause, "cause_txt": "So", "channel": channel})).await;
    }

    /// The next request that changes something.
    async fn request(&mut self) -> Request {
        loop {
            let request = soon("a request", self.server.request(self.n_taken)).await;
            self.n_taken += 1;
            if request.method != "GET" {
                return request;
            }
        }
    }

    /// The body of the next request, a POST to this path.
    async fn next(&mut self, path: &str) -> Value {
        let request = self.request().await;
        assert_eq!((request.method.as_str(), request.path()), ("POST", path));
        request.json()
    }

    /// The channel of the next request, which makes a call.
    async fn made(&mut self) -> String {
        let asked = self.next(CHANNELS).await;
        asked["channelId"].as_str().expect("a name").to_owned()
    }

    /// The secret of the next request, which opens the stream of a call.
    async fn opened(&mut self, id: &str) -> String {
        let asked = self.next(STREAMS).await;
        assert_eq!(asked["channelId"], format!("{id}-stream"));
        let data = asked["transport_data"].as_str().expect("text");
        let secret = data.strip_prefix("v(antiphon_call=").and_then(|rest| rest.strip_suffix(')'));
        secret.unwrap_or_else(|| panic!("a secret in {data}")).to_owned()
    }

    /// Who is called answers: the stream comes, and a bridge connects the two.
    async fn picks_up(&mut self, hub: &Hub, id: &str) -> Phone {
        self.happens("StasisStart", id, "Up").await;
        let secret = self.opened(id).await;
        let phone = stream(hub, &secret).await;
        self.happens("StasisStart", &format!("{id}-stream"), "Up").await;
        assert_eq!(self.next(BRIDGES).await, json!({"type": "mixing", "bridgeId": format!("{id}-bridge")}));
        let added = self.next(&format!("{BRIDGES}/{id}-bridge/addChannel")).await;
        assert_eq!(added, json!({"channel": [id, format!("{id}-stream")]}));
        phone
    }

    /// A call that was answered: its id, its channel, and who has answered.
    async fn answered(&mut self, hub: &Hub, body: Value) -> (String, String, Phone) {
        let mut asked = json!({"to": CALLEE});
        asked.as_object_mut().expect("fields").extend(body.as_object().expect("fields").clone());
        let (status, created) = call(hub, asked).await;
        assert_eq!(status, 201, "{created}");
        let channel = self.made().await;
        let phone = self.picks_up(hub, &channel).await;
        (created["id"].as_str().expect("an id").to_owned(), channel, phone)
    }

    /// The next requests remove these, in any order.
    async fn removed(&mut self, mut expect: Vec<String>) {
        let mut removed = Vec::new();
        for _ in &expect {
            let request = self.request().await;
            assert_eq!(request.method, "DELETE", "{}", request.path());
            removed.push(request.path().to_owned());
        }
        removed.sort();
        expect.sort();
        assert_eq!(removed, expect);
    }

    /// The next requests remove all that an answered call has.
    async fn removed_all(&mut self, id: &str) {
        let mut all = stream_and_bridge(id);
        all.push(channel(id));
        self.removed(all).await;
    }

    fn has_no_more(&self) {
        let further: Vec<_> = self.server.requests().split_off(self.n_taken);
        let further: Vec<_> = further.iter().filter(|request| request.method != "GET").collect();
        assert!(further.is_empty(), "{further:?}");
    }
}

fn channel(id: &str) -> String {
    format!("{CHANNELS}/{id}")
}

fn stream_and_bridge(id: &str) -> Vec<String> {
    vec![format!("{CHANNELS}/{id}-stream"), format!("{BRIDGES}/{id}-bridge")]
}

/// A stream of Asterisk whose address has this secret.
async fn stream(hub: &Hub, secret: &str) -> Phone {
    Phone::call(hub.address, Provider::AsteriskJson, &format!("?antiphon_call={secret}"), NUMBER).await
}

#[tokio::test(start_paused = true)]
async fn a_call_is_made_answered_and_hung_up_by_the_client() {
    let mut asterisk = Asterisk::new();
    let llm = FakeLlm::says(["Good morning.", "Ten past ten."]);
    let hub = asterisk.hub(asterisk.config(), &["what time is it"], &llm).await;
    let body = json!({"to": CALLEE, "account": "office", "from": "100", "greeting": "Say good morning."});
    let (status, created) = call(&hub, body).await;
    assert_eq!((status, &created["state"]), (201, &json!("calling")), "{created}");
    let id = created["id"].as_str().expect("an id");
    let asked = asterisk.next(CHANNELS).await;
    let channel = asked["channelId"].as_str().expect("a name");
    let expect = json!({"endpoint": "PJSIP/+4930123@trunk", "app": "antiphon", "callerId": "100", "timeout": 60,
        "channelId": channel});
    assert_eq!(asked, expect);
    asterisk.rings(channel).await;
    until(&hub, id, "ringing").await;
    // Both events say it.
    asterisk.happens("ChannelStateChange", channel, "Ringing").await;
    asterisk.happens("StasisStart", channel, "Up").await;
    until(&hub, id, "in_progress").await;
    let asked = asterisk.next(STREAMS).await;
    let data = asked["transport_data"].clone();
    let expect = json!({"channelId": format!("{channel}-stream"), "app": "antiphon", "external_host": "antiphon",
        "transport": "websocket", "encapsulation": "none", "connection_type": "client", "format": "slin16",
        "transport_data": data});
    assert_eq!(asked, expect);
    let secret = data.as_str().and_then(|data| data.strip_prefix("v(antiphon_call=")).expect("a secret");
    let mut phone = stream(&hub, secret.trim_end_matches(')')).await;
    phone.silence(100).await;
    assert_eq!((llm.requests().len(), phone.heard_ms()), (0, 0), "nobody would hear it");
    asterisk.happens("StasisStart", &format!("{channel}-stream"), "Up").await;
    phone.until("the greeting is heard", |phone| phone.heard_ms() >= 640).await;
    phone.speak(500).await;
    phone.until("the answer is heard", |phone| phone.heard_ms() >= 1_290).await;
    asterisk.next(BRIDGES).await;
    asterisk.next(&format!("{BRIDGES}/{channel}-bridge/addChannel")).await;
    let url = format!("http://{}/v1/realtime/calls/{id}", hub.address);
    let described: Value = reqwest::get(url).await.expect("an answer").json().await.expect("JSON");
    assert_eq!((&described["transport"], &described["peer_call_id"]), (&json!("asterisk"), &json!(channel)));
    hang_up(&hub, id).await;
    phone.until("the stream is closed", |phone| phone.is_closed).await;
    asterisk.removed_all(channel).await;
    is_over(&hub, id, "ended").await;
    asterisk.has_no_more();
    // Asterisk's last word comes when the call is over.
    asterisk.is_destroyed(channel, 16).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_cause_of_asterisk_says_what_became_of_a_call() {
    let mut asterisk = Asterisk::new();
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    for (cause, outcome) in [(17, "busy"), (19, "no_answer"), (21, "declined"), (34, "failed"), (16, "failed")] {
        let (_, created) = call(&hub, json!({"to": CALLEE})).await;
        let id = created["id"].as_str().expect("an id");
        let channel = asterisk.made().await;
        asterisk.rings(&channel).await;
        until(&hub, id, "ringing").await;
        asterisk.is_destroyed("of-another-call", 17).await;
        asterisk.is_destroyed(&channel, cause).await;
        is_over(&hub, id, outcome).await;
    }
    asterisk.has_no_more();
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_other_side_hangs_up() {
    let mut asterisk = Asterisk::new();
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    for by_stream in [true, false] {
        let (id, channel, mut phone) = asterisk.answered(&hub, json!({})).await;
        phone.silence(200).await;
        if by_stream {
            phone.stream.close(None).await.expect("it is open");
            asterisk.removed_all(&channel).await;
        } else {
            asterisk.happens("StasisEnd", &channel, "Up").await;
            asterisk.is_destroyed(&channel, 16).await;
            phone.until("the stream is closed", |phone| phone.is_closed).await;
            asterisk.removed(stream_and_bridge(&channel)).await;
        }
        is_over(&hub, &id, "ended").await;
    }
    asterisk.has_no_more();
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_is_given_up_while_it_rings() {
    let mut asterisk = Asterisk::new();
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    let (_, created) = call(&hub, json!({"to": CALLEE})).await;
    let id = created["id"].as_str().expect("an id");
    let channel_id = asterisk.made().await;
    asterisk.rings(&channel_id).await;
    until(&hub, id, "ringing").await;
    hang_up(&hub, id).await;
    asterisk.removed(vec![channel(&channel_id)]).await;
    is_over(&hub, id, "ended").await;
    hub.stop().await;
    asterisk.has_no_more();
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_stops_ends_its_calls() {
    let mut asterisk = Asterisk::new();
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    let (_, answered, mut phone) = asterisk.answered(&hub, json!({})).await;
    phone.silence(100).await;
    assert_eq!(call(&hub, json!({"to": CALLEE})).await.0, 201);
    let ringing = asterisk.made().await;
    hub.begin_to_stop();
    phone.until("the stream is closed", |phone| phone.is_closed).await;
    hub.stop().await;
    let mut expect = stream_and_bridge(&answered);
    expect.extend([channel(&answered), channel(&ringing)]);
    asterisk.removed(expect).await;
}

#[tokio::test(start_paused = true)]
async fn without_asterisks_events_no_call_is_made() {
    let asterisk = Asterisk::new();
    let away = async |config: Config| {
        let hub = start(config, &[], &FakeLlm::default()).await;
        for _ in 0..2 {
            let (status, answer) = call(&hub, json!({"to": CALLEE})).await;
            assert_eq!((status, &answer["error"]["code"]), (502, &json!("provider_unavailable")), "{answer}");
            assert_eq!(answer["error"]["message"], AWAY);
            sleep(Duration::from_secs(40)).await;
        }
        hub.stop().await;
    };
    let mut config = asterisk.config();
    config.telephony.accounts.get_mut("office").expect("it").api_url = format!("http://{}", unused_address());
    away(config).await;
    // A wrong password.
    let mut config = asterisk.config();
    config.telephony.accounts.get_mut("office").expect("it").password_env = "CARGO_MANIFEST_DIR".into();
    away(config).await;
    asterisk.has_no_more();
    // A server that takes a connection and says nothing.
    let asterisk = Asterisk::answering(|_| Some(Answer::none()));
    away(asterisk.config()).await;
    asterisk.has_no_more();
}

#[tokio::test(start_paused = true)]
async fn calls_outlive_the_connection_of_events() {
    let up = json!({"id": "x", "state": "Up"});
    let mut asterisk = Asterisk::answering(move |request| {
        let is_asked = request.method == "GET" && request.path().starts_with(CHANNELS);
        is_asked.then(|| Answer::json(&up))
    });
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    let (talking, _, mut phone) = asterisk.answered(&hub, json!({})).await;
    phone.silence(100).await;
    let (_, created) = call(&hub, json!({"to": CALLEE})).await;
    let ringing = created["id"].as_str().expect("an id");
    let channel = asterisk.made().await;
    asterisk.close_events();
    phone.silence(100).await;
    let (status, answer) = call(&hub, json!({"to": CALLEE})).await;
    assert_eq!((status, &answer["error"]["message"]), (502, &json!(AWAY)));
    asterisk.followed().await;
    // Somebody has answered meanwhile, which no event says.
    let secret = asterisk.opened(&channel).await;
    let _late = stream(&hub, &secret).await;
    asterisk.happens("StasisStart", &format!("{channel}-stream"), "Up").await;
    asterisk.next(BRIDGES).await;
    until(&hub, ringing, "in_progress").await;
    phone.silence(100).await;
    assert_eq!(state(&hub, &talking).await, "in_progress");
    assert!(!phone.is_closed);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asterisk_has_lost_meanwhile_is_over() {
    let mut asterisk = Asterisk::answering(|request| {
        let is_asked = request.method == "GET" && request.path().starts_with(CHANNELS);
        is_asked.then(|| Answer::refusal(404, r#"{"message": "Channel not found"}"#))
    });
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    let (talking, answered, mut phone) = asterisk.answered(&hub, json!({})).await;
    phone.silence(100).await;
    let (_, created) = call(&hub, json!({"to": CALLEE})).await;
    let made = asterisk.made().await;
    asterisk.close_events();
    phone.until("the stream is closed", |phone| phone.is_closed).await;
    let mut expect = stream_and_bridge(&answered);
    expect.extend([channel(&answered), channel(&made)]);
    asterisk.removed(expect).await;
    is_over(&hub, &talking, "ended").await;
    is_over(&hub, created["id"].as_str().expect("an id"), "failed").await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_or_a_stream_ends() {
    for (is_answered, seconds, outcome) in [(false, 70, "no_answer"), (true, 15, "failed")] {
        let mut asterisk = Asterisk::new();
        let mut config = asterisk.config();
        config.sip.max_calls_out = 1;
        let hub = asterisk.hub(config, &[], &FakeLlm::default()).await;
        let (_, created) = call(&hub, json!({"to": CALLEE})).await;
        let id = created["id"].as_str().expect("an id");
        let channel_id = asterisk.made().await;
        asterisk.rings(&channel_id).await;
        if is_answered {
            asterisk.happens("StasisStart", &channel_id, "Up").await;
            asterisk.opened(&channel_id).await;
        }
        sleep(Duration::from_secs(seconds - 1)).await;
        assert_eq!(state(&hub, id).await, if is_answered { "in_progress" } else { "ringing" });
        sleep(Duration::from_millis(1_500)).await;
        if is_answered {
            asterisk.removed_all(&channel_id).await;
        } else {
            asterisk.removed(vec![channel(&channel_id)]).await;
        }
        is_over(&hub, id, outcome).await;
        assert_eq!(call(&hub, json!({"to": CALLEE})).await.0, 201, "its place is free");
        hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_stream_or_bridge_fails_ends_at_once() {
    // The stream's channel is destroyed: Asterisk does not reach the hub.
    let mut asterisk = Asterisk::new();
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    let (_, created) = call(&hub, json!({"to": CALLEE})).await;
    let channel = asterisk.made().await;
    asterisk.happens("StasisStart", &channel, "Up").await;
    asterisk.opened(&channel).await;
    asterisk.is_destroyed(&format!("{channel}-stream"), 3).await;
    asterisk.removed_all(&channel).await;
    is_over(&hub, created["id"].as_str().expect("an id"), "failed").await;
    hub.stop().await;

    let mut asterisk = Asterisk::answering(|request| {
        let is_stream = request.path() == STREAMS;
        is_stream.then(|| Answer::refusal(400, r#"{"message": "external_host must be a valid connection id."}"#))
    });
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    let (_, created) = call(&hub, json!({"to": CALLEE})).await;
    let channel = asterisk.made().await;
    asterisk.happens("StasisStart", &channel, "Up").await;
    asterisk.opened(&channel).await;
    asterisk.removed_all(&channel).await;
    is_over(&hub, created["id"].as_str().expect("an id"), "failed").await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_brings_one_stream_and_others_are_refused() {
    let mut asterisk = Asterisk::new();
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    let (_, created) = call(&hub, json!({"to": CALLEE})).await;
    let id = created["id"].as_str().expect("an id");
    let channel = asterisk.made().await;
    asterisk.happens("StasisStart", &channel, "Up").await;
    let secret = asterisk.opened(&channel).await;
    let phone = stream(&hub, &secret).await;
    for wrong in [secret.as_str(), "call_0123"] {
        let mut other = stream(&hub, wrong).await;
        other.until("it is refused", |phone| phone.is_closed).await;
        let close = other.close.expect("a close frame");
        assert_eq!((u16::from(close.code), close.reason.as_str()), (1008, "no call waits for this stream"));
        assert!(other.hung_up, "its channel ends");
    }
    hub.until("antiphon_sessions_active ", 1.0).await;
    assert_eq!((state(&hub, id).await.as_str(), phone.is_closed), ("in_progress", false));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_asterisk_refuses_is_said_without_secrets() {
    let message = format!("No endpoint of {}.", password());
    let body = json!({"message": message}).to_string();
    let mut asterisk =
        Asterisk::answering(move |request| (request.path() == CHANNELS).then(|| Answer::refusal(400, body.clone())));
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    let (status, answer) = call(&hub, json!({"to": CALLEE})).await;
    assert_eq!((status, &answer["error"]["code"]), (502, &json!("provider_refused")), "{answer}");
    assert_eq!(answer["error"]["message"], "The provider refused: No endpoint of ....");
    asterisk.made().await;
    hub.until("antiphon_sessions_active ", 0.0).await;
    asterisk.has_no_more();
    for body in [json!({"to": "sip:ann@pbx.example.com"}), json!({"to": CALLEE, "from": "101"})] {
        assert_ne!(call(&hub, body).await.0, 201);
    }
    hub.stop().await;

    // Asterisk may call all the same.
    let mut asterisk = Asterisk::answering(|request| (request.path() == CHANNELS).then(Answer::none));
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    let (_, answer) = call(&hub, json!({"to": CALLEE})).await;
    assert_eq!(answer["error"]["message"], "The provider cannot be asked: no answer in 10 s.");
    let made = asterisk.made().await;
    asterisk.removed(vec![channel(&made)]).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_asterisk_does_not_remove_at_once_is_removed_again() {
    let words = r#"{"message": "So it is."}"#;
    for (status, body, n_removed) in [
        (None, "", 2),
        (Some(500), words, 2),
        (Some(429), words, 2),
        (Some(401), words, 2),
        (Some(404), "<html>Not Found</html>", 2),
        (Some(404), words, 1),
    ] {
        let is_first = std::sync::atomic::AtomicBool::new(true);
        let mut asterisk = Asterisk::answering(move |request| {
            let fails = request.method == "DELETE" && is_first.swap(false, std::sync::atomic::Ordering::Relaxed);
            fails.then(|| status.map_or_else(|| Answer::raw(""), |status| Answer::refusal(status, body)))
        });
        let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
        let (_, created) = call(&hub, json!({"to": CALLEE})).await;
        let made = asterisk.made().await;
        hang_up(&hub, created["id"].as_str().expect("an id")).await;
        asterisk.removed(vec![channel(&made); n_removed]).await;
        hub.stop().await;
        asterisk.has_no_more();
    }
}

#[tokio::test(start_paused = true)]
async fn the_model_presses_keys_and_hangs_up() {
    let mut asterisk = Asterisk::new();
    let mut config = asterisk.config();
    config.sip.tool_hang_up = true;
    config.sip.tool_send_dtmf = true;
    // The account has no context for transfers.
    config.sip.tool_transfer_call = [("front_desk".to_owned(), "tel:+33-1-23".to_owned())].into();
    let llm = FakeLlm::default();
    llm.then(says_and_calls("One moment.", "send_dtmf", &json!({"keys": "12#"})));
    llm.then(says_and_calls("Goodbye.", "hang_up", &json!({})));
    let hub = asterisk.hub(config, &["press one, two and hash"], &llm).await;
    let (id, channel, mut phone) = asterisk.answered(&hub, json!({})).await;
    phone.speak(500).await;
    phone.until("the hub hangs up", |phone| phone.is_closed).await;
    assert_eq!(names(&llm.requests()[0]), ["hang_up", "send_dtmf"]);
    assert_eq!(asterisk.next(&format!("{CHANNELS}/{channel}/dtmf")).await, json!({"dtmf": "12#"}));
    asterisk.removed_all(&channel).await;
    is_over(&hub, &id, "ended").await;
    hub.stop().await;
    asterisk.has_no_more();
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_on_in_the_dialplan_where_the_settings_allow_it() {
    let mut asterisk = Asterisk::new();
    let mut config = asterisk.config();
    let hub = asterisk.hub(config.clone(), &[], &FakeLlm::default()).await;
    let (id, _, mut phone) = asterisk.answered(&hub, json!({})).await;
    phone.silence(200).await;
    let target = json!({"target_uri": "tel:+49-30-124"});
    let (status, answer) = post(&hub, &format!("{id}/refer"), target.clone()).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("transfer_not_supported")), "no context is named");
    hub.stop().await;

    let mut asterisk = Asterisk::new();
    let with_context = asterisk.config().telephony.accounts["office"].clone();
    let account = TelephonyAccount { transfer_context: "from-antiphon".into(), ..with_context };
    config.telephony.accounts.insert("office".into(), account);
    let hub = asterisk.hub(config, &[], &FakeLlm::default()).await;
    let (id, channel, mut phone) = asterisk.answered(&hub, json!({})).await;
    phone.silence(200).await;
    let refer = async |body: Value| post(&hub, &format!("{id}/refer"), body).await;
    for (body, status, code) in [
        (json!({"target_uri": "tel:+33123"}), 403, "transfer_not_allowed"),
        (json!({"target_uri": "sip:ann@pbx.example.com"}), 400, "invalid_target_uri"),
        (json!({"target_uri": "tel:+4930124", "warm": {"summary": " "}}), 400, "invalid_value"),
    ] {
        let (found, answer) = refer(body.clone()).await;
        assert_eq!((found, &answer["error"]["code"]), (status, &json!(code)), "{body}");
    }
    asterisk.has_no_more();
    assert_eq!(refer(target).await.0, 200);
    let moved = asterisk.next(&format!("{CHANNELS}/{channel}/continue")).await;
    assert_eq!(moved, json!({"context": "from-antiphon", "extension": "+4930124", "priority": 1}));
    // The call itself is not ended.
    phone.until("the stream is closed", |phone| phone.is_closed).await;
    asterisk.removed(stream_and_bridge(&channel)).await;
    is_over(&hub, &id, "ended").await;
    hub.stop().await;
    asterisk.has_no_more();
}

#[tokio::test(start_paused = true)]
async fn a_call_is_transferred_warm_without_a_context() {
    for target_hangs_up in [true, false] {
        let mut asterisk = Asterisk::new();
        let hub = asterisk.hub(asterisk.config(), &["Hello?"], &FakeLlm::default()).await;
        let (id, of_caller, mut caller) = asterisk.answered(&hub, json!({"from": "100"})).await;
        caller.silence(200).await;
        let told = async {
            let asked = asterisk.next(CHANNELS).await;
            assert_eq!((&asked["endpoint"], &asked["callerId"]), (&json!("PJSIP/+4930124@trunk"), &json!("100")));
            let channel = asked["channelId"].as_str().expect("a name").to_owned();
            let mut target = asterisk.picks_up(&hub, &channel).await;
            hear_summary(&mut target).await;
            (channel, target)
        };
        let both = async { tokio::join!(refer_warm(&hub, &id), told) };
        let (answer, (of_target, mut target)) = beside(&mut caller, both).await;
        assert_eq!(answer, (200, Value::Null));
        hear_each_other(&mut caller, &mut target).await;
        let target_id = connected_to(&hub, &id).await;
        assert_eq!(connected_to(&hub, &target_id).await, id);
        for key in ['5', '#'] {
            caller.press(key).await;
        }
        for keys in ["5", "#"] {
            let pressed = asterisk.next(&format!("{CHANNELS}/{of_target}/dtmf")).await;
            assert_eq!(pressed, json!({"dtmf": keys}));
        }
        let mut removed = [stream_and_bridge(&of_caller), stream_and_bridge(&of_target)].concat();
        removed.push(channel(&of_target));
        if target_hangs_up {
            removed.push(channel(&of_caller));
            target.stream.close(None).await.expect("it is open");
            caller.until("the caller's stream is closed", |phone| phone.is_closed).await;
        } else {
            asterisk.is_destroyed(&of_caller, 16).await;
            target.until("the target's stream is closed", |phone| phone.is_closed).await;
        }
        asterisk.removed(removed).await;
        is_over(&hub, &id, "ended").await;
        is_over(&hub, &target_id, "ended").await;
        hub.stop().await;
        asterisk.has_no_more();
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_goes_on_in_the_dialplan_ends_the_callers_call() {
    let mut asterisk = Asterisk::new();
    let mut config = asterisk.config();
    config.telephony.accounts.get_mut("office").expect("an account").transfer_context = "from-antiphon".into();
    let hub = asterisk.hub(config, &["Hello?"], &FakeLlm::default()).await;
    let (id, of_caller, mut caller) = asterisk.answered(&hub, json!({})).await;
    caller.silence(200).await;
    let told = async {
        let channel = asterisk.made().await;
        let mut target = asterisk.picks_up(&hub, &channel).await;
        hear_summary(&mut target).await;
        (channel, target)
    };
    let both = async { tokio::join!(refer_warm(&hub, &id), told) };
    let (answer, (of_target, _target)) = beside(&mut caller, both).await;
    assert_eq!(answer, (200, Value::Null));
    let target_id = connected_to(&hub, &id).await;
    let (status, answer) = post(&hub, &format!("{target_id}/refer"), json!({"target_uri": "tel:+4930125"})).await;
    assert_eq!(status, 200, "{answer}");
    asterisk.next(&format!("{CHANNELS}/{of_target}/continue")).await;
    // The event that says it may be lost.
    caller.until("the caller's stream is closed", |phone| phone.is_closed).await;
    let mut removed = [stream_and_bridge(&of_caller), stream_and_bridge(&of_target)].concat();
    removed.push(channel(&of_caller));
    asterisk.removed(removed).await;
    is_over(&hub, &id, "ended").await;
    is_over(&hub, &target_id, "ended").await;
    hub.stop().await;
    asterisk.has_no_more();
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_target_is_not_there_comes_back() {
    let mut asterisk = Asterisk::new();
    let llm = FakeLlm::says(["Yes, I am."]);
    let hub = asterisk.hub(asterisk.config(), &["are you there"], &llm).await;
    let (id, _, mut caller) = asterisk.answered(&hub, json!({})).await;
    caller.silence(200).await;
    for (cause, code) in [(17, "target_busy"), (21, "target_declined"), (34, "target_failed")] {
        let refused = async {
            let channel = asterisk.made().await;
            asterisk.is_destroyed(&channel, cause).await;
        };
        let both = async { tokio::join!(refer_warm(&hub, &id), refused) };
        let (answer, ()) = beside(&mut caller, both).await;
        assert_eq!(answer, (502, json!(code)));
    }
    caller.speak(500).await;
    caller.until("the reply", |caller| caller.heard_ms() >= 300).await;
    assert_eq!(state(&hub, &id).await, "in_progress");
    asterisk.has_no_more();
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_target_that_cannot_be_called_leaves_the_caller_with_the_agent() {
    let mut asterisk = Asterisk::new();
    let mut config = asterisk.config();
    config.sip.max_calls_out = 1;
    let hub = asterisk.hub(config, &[], &FakeLlm::default()).await;
    let (id, _, mut caller) = asterisk.answered(&hub, json!({})).await;
    caller.silence(200).await;
    assert_eq!(beside(&mut caller, refer_warm(&hub, &id)).await, (429, json!("too_many_calls")));
    let by_sip = json!({"target_uri": "sip:ann@pbx.example.com", "warm": {"summary": "Ann calls."}});
    let (status, answer) = beside(&mut caller, post(&hub, &format!("{id}/refer"), by_sip)).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("invalid_target_uri")), "{answer}");
    assert_eq!(state(&hub, &id).await, "in_progress");
    asterisk.has_no_more();
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_password_is_in_no_log() {
    let log = Log::default();
    let lines = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_writer(move || lines.clone()).finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let mut asterisk = Asterisk::answering(|request| (request.method == "DELETE").then(|| Answer::raw("")));
    let hub = asterisk.hub(asterisk.config(), &[], &FakeLlm::default()).await;
    let (_, created) = call(&hub, json!({"to": CALLEE})).await;
    asterisk.made().await;
    hang_up(&hub, created["id"].as_str().expect("an id")).await;
    asterisk.close_events();
    asterisk.followed().await;
    hub.stop().await;
    let log = log.text();
    assert!(log.contains("Asterisk's events arrive") && log.contains("did not end a call"), "{log}");
    for secret in [password(), credentials()] {
        assert!(!log.contains(&secret), "{log}");
    }
}
