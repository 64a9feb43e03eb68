//! Calls out by Twilio: a fake of its REST API, which reports statuses with signatures and opens the media stream.

use super::phone::{Phone, Provider};
use super::{NUMBER, signature, twilio_config};
use crate::hub::{Hub, engines};
use crate::sip::calling::{Callee, call, state, until};
use crate::sip::incoming::Receiver;
use crate::sip::soon;
use crate::sip::tools::{names, says_and_calls};
use antiphon::config::{Config, TelephonyAccount, TransferKind};
use antiphon::server::{self, Extras, Keys, Parts, Reload, key_digest, key_entry};
use antiphon_engine_api::fakes::llm::{FakeLlm, words};
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::stt::SpeakerState;
use antiphon_sip::Method;
use antiphon_telemetry::Metrics;
use antiphon_test_server::{Answer, Request, TestServer};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::hmac;
use serde_json::{Value, json};
use std::f32::consts::TAU;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio::time::sleep;
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

const ACCOUNT: &str = "AC0123456789abcdef0123456789abcdef";
const CALLS: &str = "/2010-04-01/Accounts/AC0123456789abcdef0123456789abcdef/Calls";
const PUBLIC: &str = "https://voice.example";
const STREAM: &str = "wss://voice.example/v1/telephony/twilio";
pub(super) const CALLEE: &str = "tel:+49-30-123";
/// Whom calls are transferred to, what is said to it, for 900 ms of the fake voice, and what the caller and the target say, in
/// Hz, which the other one hears.
pub(super) const TARGET: &str = "tel:+49-30-124";
pub(super) const SUMMARY: &str = "Ann asks for cake.";
const CALLER_HZ: f32 = 1_000.0;
const TARGET_HZ: f32 = 600.0;
const MACHINE: &str = "You've reached Anna. Please leave a message after the tone.";

/// Twilio's REST API.
struct Twilio {
    server: TestServer,
    n_taken: usize,
}

/// A request to make a call.
struct MadeCall {
    sid: String,
    form: Vec<(String, String)>,
}

impl MadeCall {
    fn get(&self, name: &str) -> &str {
        let found = self.form.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_else(|| panic!("{name} in {:?}", self.form))
    }

    /// The secret in its TwiML.
    fn secret(&self) -> String {
        let twiml = self.get("Twiml");
        let before = "<Parameter name=\"antiphon_call\" value=\"";
        let expect = format!("<Response><Connect><Stream url=\"{STREAM}\">{before}");
        assert!(twiml.contains(&expect), "{twiml}");
        let (_, rest) = twiml.split_once(before).expect("a secret");
        rest.split('"').next().expect("a value").to_owned()
    }
}

fn form_of(request: &Request) -> Vec<(String, String)> {
    url::form_urlencoded::parse(&request.body).into_owned().collect()
}

impl Twilio {
    /// Accepts every request.
    fn new() -> Self {
        Self::answering(|request| {
            Answer::json(&json!({"sid": format!("CA{:032}", request.number), "status": "queued"}))
        })
    }

    fn answering(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let token = std::env::var("PATH").expect("set");
        let authorization = format!("Basic {}", BASE64.encode(format!("{ACCOUNT}:{}", token.trim())));
        let server = TestServer::start(move |request| {
            let is_right = request.method == "POST" && request.header("authorization") == Some(&authorization);
            if is_right && request.path().starts_with(CALLS) { answer(request) } else { Answer::status(401) }
        });
        Self { server, n_taken: 0 }
    }

    /// A configuration with an account here.
    fn config(&self) -> Config {
        let mut config = twilio_config();
        let numbers = vec![NUMBER.into(), "+15550101".into()];
        let api_url = self.server.url("/");
        let account = TelephonyAccount { account_sid: ACCOUNT.into(), numbers, api_url, ..TelephonyAccount::default() };
        config.telephony.accounts.insert("main".into(), account);
        config.telephony.key_pause_ms = 400;
        config.sip.call_to = vec!["tel:+49*".into()];
        config.sip.transfer_to = vec!["tel:+49*".into(), "sip:*".into()];
        config
    }

    async fn next(&mut self, path: &str) -> (usize, Vec<(String, String)>) {
        let request = soon(&format!("a request to {path}"), self.server.request(self.n_taken)).await;
        self.n_taken += 1;
        assert_eq!(request.path(), path);
        (request.number, form_of(&request))
    }

    /// The next request, which makes a call.
    async fn made(&mut self) -> MadeCall {
        let (number, form) = self.next(&format!("{CALLS}.json")).await;
        MadeCall { sid: format!("CA{number:032}"), form }
    }

    /// The next request, which changes a call: a field and its value.
    async fn updated(&mut self, sid: &str) -> (String, String) {
        let (_, form) = self.next(&format!("{CALLS}/{sid}.json")).await;
        let [field] = form.try_into().expect("one field");
        field
    }

    async fn ended(&mut self, sid: &str) {
        assert_eq!(self.updated(sid).await, ("Status".into(), "completed".into()));
    }

    fn has_no_more(&self) {
        assert_eq!(self.server.n_requests(), self.n_taken, "{:?}", self.server.requests().last());
    }
}

pub(super) async fn start(config: Config, heard: &[&str], llm: &FakeLlm) -> Hub {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let stt = FakeStt::hears(heard.iter().copied()).with_partials();
    Hub::start(engines(stt, llm.clone(), FakeTts::default()), config).await
}

/// Posts a status; the hub's answer.
async fn post_status(hub: &Hub, made: &MadeCall, status: &str, signed: Option<&str>) -> u16 {
    let callback = made.get("StatusCallback");
    let form = [("CallSid", made.sid.as_str()), ("AccountSid", ACCOUNT), ("CallStatus", status)];
    let signed = signed.map_or_else(|| signature(callback, &form), str::to_owned);
    let path = callback.strip_prefix(PUBLIC).expect("the public address");
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let request = reqwest::Client::new()
        .post(format!("http://{}{path}", hub.address))
        .header("content-type", "application/x-www-form-urlencoded")
        .header("x-twilio-signature", signed)
        .body(body);
    request.send().await.expect("an answer").status().as_u16()
}

async fn report(hub: &Hub, made: &MadeCall, status: &str) {
    assert_eq!(post_status(hub, made, status, None).await, 204, "{status}");
}

/// A stream of Twilio that says this of its call.
async fn stream(hub: &Hub, account: &str, sid: &str, parameters: Value) -> Phone {
    let headers = [("x-twilio-signature", signature(STREAM, &[]))];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let phone = Phone::connect(hub.address, Provider::Twilio, "", &headers).await;
    let mut phone = phone.expect("the upgrade is accepted");
    for message in Provider::Twilio.start(NUMBER) {
        let mut message: Value = serde_json::from_str(&message).expect("JSON");
        if message["event"] == "start" {
            message["start"]["accountSid"] = json!(account);
            message["start"]["callSid"] = json!(sid);
            message["start"]["customParameters"] = parameters.clone();
        }
        phone.send(Message::text(message.to_string())).await;
    }
    phone
}

/// Who is called answers: the stream comes.
async fn answer(hub: &Hub, made: &MadeCall) -> Phone {
    stream(hub, ACCOUNT, &made.sid, json!({"antiphon_call": made.secret()})).await
}

/// A call that was answered.
async fn answered(hub: &Hub, twilio: &mut Twilio, body: Value) -> (String, MadeCall, Phone) {
    let mut asked = json!({"to": CALLEE});
    asked.as_object_mut().expect("fields").extend(body.as_object().expect("fields").clone());
    let (status, created) = call(hub, asked).await;
    assert_eq!(status, 201, "{created}");
    let id = created["id"].as_str().expect("an id").to_owned();
    let made = twilio.made().await;
    report(hub, &made, "in-progress").await;
    let phone = answer(hub, &made).await;
    (id, made, phone)
}

pub(super) async fn post(hub: &Hub, path: &str, body: Value) -> (u16, Value) {
    let url = format!("http://{}/v1/realtime/calls/{path}", hub.address);
    let answer = reqwest::Client::new().post(url).json(&body).send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

pub(super) async fn hang_up(hub: &Hub, id: &str) {
    assert_eq!(post(hub, &format!("{id}/hangup"), json!({})).await.0, 200);
}

/// A voice: many tones at once.
fn voice(ms: usize) -> Vec<i16> {
    voice_at(8_000, ms)
}

/// The same at this rate.
fn voice_at(rate: usize, ms: usize) -> Vec<i16> {
    let harmonic = |n: u16, seconds: f32| (TAU * 120.0 * f32::from(n) * seconds).sin() / f32::from(n);
    let sample = |seconds: f32| (1..=12).map(|n| 6_000.0 * harmonic(n, seconds)).sum::<f32>() as i16;
    (0..rate * ms / 1_000).map(|i| sample(i as f32 / rate as f32)).collect()
}

/// A machine has spoken for 3 s, and beeps.
async fn greet_and_beep(phone: &mut Phone) {
    phone.talk(&voice(3_000)).await;
    phone.silence(1_000).await;
    let sine = |i: u16| (8_000.0 * (TAU * 1_000.0 * f32::from(i) / 8_000.0).sin()) as i16;
    let tone: Vec<i16> = (0..3_200u16).map(sine).collect();
    phone.talk(&tone).await;
}

pub(super) async fn is_over(hub: &Hub, id: &str, outcome: &str) {
    until(hub, id, outcome).await;
    hub.until("antiphon_sessions_active ", 0.0).await;
}

/// Asks for a warm transfer of a call; the status, and the code of the error.
pub(super) async fn refer_warm(hub: &Hub, id: &str) -> (u16, Value) {
    let body = json!({"target_uri": TARGET, "warm": {"summary": SUMMARY}});
    let (status, answer) = post(hub, &format!("{id}/refer"), body).await;
    (status, answer["error"]["code"].clone())
}

/// Does something while a phone is silent.
pub(super) async fn beside<T>(phone: &mut Phone, work: impl Future<Output = T>) -> T {
    let silence = async {
        loop {
            phone.silence(20).await;
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        () = silence => unreachable!("it goes on"),
    }
}

/// The target says who it is, and hears the summary and nothing before it.
pub(super) async fn hear_summary(target: &mut Phone) {
    let voice = voice_at(target.rate(), 500);
    target.talk(&voice).await;
    target.until("the summary", |target| target.heard_ms() >= 850).await;
    target.silence(1_000).await;
}

/// Both say something at the same time, and are heard by each other.
pub(super) async fn hear_each_other(caller: &mut Phone, target: &mut Phone) {
    assert!(caller.heard.iter().all(|sample| sample.unsigned_abs() < 1_000), "the caller heard nothing before");
    tokio::join!(caller.tone(CALLER_HZ, 800), target.tone(TARGET_HZ, 800));
    assert!(target.hears(CALLER_HZ), "the target hears the caller");
    assert!(caller.hears(TARGET_HZ), "the caller hears the target");
}

pub(super) async fn described(hub: &Hub, id: &str) -> Value {
    let url = format!("http://{}/v1/realtime/calls/{id}", hub.address);
    reqwest::get(url).await.expect("an answer").json().await.expect("JSON")
}

/// The call that a call is connected with.
pub(super) async fn connected_to(hub: &Hub, id: &str) -> String {
    let call = described(hub, id).await;
    assert_eq!(call["state"], "transferred", "{call}");
    call["connected_to"].as_str().expect("an id").to_owned()
}

/// A person answers the call to the target, hears the summary, and is connected with the caller.
async fn connected(hub: &Hub, twilio: &mut Twilio, id: &str, caller: &mut Phone) -> (MadeCall, Phone) {
    let told = async {
        let made = twilio.made().await;
        assert_eq!((made.get("To"), made.get("From")), ("+4930124", "+15550100"));
        report(hub, &made, "in-progress").await;
        let mut target = answer(hub, &made).await;
        hear_summary(&mut target).await;
        (made, target)
    };
    let both = async { tokio::join!(refer_warm(hub, id), told) };
    let (answer, target) = beside(caller, both).await;
    assert_eq!(answer, (200, Value::Null));
    target
}

async fn hang_up_by_stream(phone: &mut Phone) {
    phone.send(Message::text(r#"{"event":"stop","streamSid":"MZ1","stop":{"callSid":"CA1"}}"#)).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_is_made_answered_and_hung_up_by_the_client() {
    let mut twilio = Twilio::new();
    let llm = FakeLlm::says(["Good morning.", "Ten past ten."]);
    let hub = start(twilio.config(), &["what time is it"], &llm).await;
    let body = json!({"to": CALLEE, "from": "+15550101", "greeting": "Say good morning.",
        "session": {"type": "realtime", "instructions": "You are a clock."}});
    let (status, created) = call(&hub, body).await;
    assert_eq!((status, &created["state"]), (201, &json!("calling")), "{created}");
    let id = created["id"].as_str().expect("an id");
    let made = twilio.made().await;
    assert_eq!((made.get("To"), made.get("From"), made.get("Timeout")), ("+4930123", "+15550101", "60"));
    let events: Vec<_> = made.form.iter().filter(|(name, _)| name == "StatusCallbackEvent").collect();
    assert_eq!(
        events.iter().map(|(_, event)| event.as_str()).collect::<Vec<_>>(),
        ["initiated", "ringing", "answered", "completed"]
    );
    assert_eq!(state(&hub, id).await, "calling");
    report(&hub, &made, "initiated").await;
    report(&hub, &made, "ringing").await;
    until(&hub, id, "ringing").await;
    report(&hub, &made, "in-progress").await;
    until(&hub, id, "in_progress").await;
    // Callbacks may come in another order.
    report(&hub, &made, "ringing").await;
    let mut phone = answer(&hub, &made).await;
    phone.until("the greeting is heard", |phone| phone.heard_ms() >= 640).await;
    phone.speak(500).await;
    phone.until("the answer is heard", |phone| phone.heard_ms() >= 1_290).await;
    let asked = llm.requests().iter().map(|request| format!("{:?}", request.messages)).collect::<Vec<_>>();
    assert!(asked[0].contains("Say good morning.") && asked[1].contains("You are a clock."), "{asked:?}");
    assert_eq!(state(&hub, id).await, "in_progress");
    let url = format!("http://{}/v1/realtime/calls/{id}", hub.address);
    let described: Value = reqwest::get(url).await.expect("an answer").json().await.expect("JSON");
    assert_eq!((&described["transport"], &described["peer_call_id"]), (&json!("twilio"), &json!(made.sid)));
    hang_up(&hub, id).await;
    phone.until("the stream is closed", |phone| phone.is_closed).await;
    twilio.ended(&made.sid).await;
    is_over(&hub, id, "ended").await;
    twilio.has_no_more();
    // Twilio's last word comes when the call is over.
    report(&hub, &made, "completed").await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_other_side_hangs_up() {
    for by_stream in [true, false] {
        let mut twilio = Twilio::new();
        let hub = start(twilio.config(), &[], &FakeLlm::default()).await;
        let (id, made, mut phone) = answered(&hub, &mut twilio, json!({})).await;
        phone.silence(200).await;
        if by_stream {
            phone.send(Message::text(r#"{"event":"stop","streamSid":"MZ1","stop":{"callSid":"CA1"}}"#)).await;
        } else {
            report(&hub, &made, "completed").await;
        }
        phone.until("the stream is closed", |phone| phone.is_closed).await;
        is_over(&hub, &id, "ended").await;
        hub.stop().await;
        twilio.has_no_more();
    }
}

#[tokio::test(start_paused = true)]
async fn what_became_of_a_call_is_listed_and_posted() {
    let mut receiver = Receiver::new(&[]).await;
    let mut twilio = Twilio::new();
    let mut config = twilio.config();
    let (with_webhooks, _) = receiver.config();
    config.sip.webhook_url = with_webhooks.sip.webhook_url;
    config.sip.webhook_secret_file = with_webhooks.sip.webhook_secret_file;
    config.sip.webhook_events = vec!["states".into()];
    let hub = start(config, &[], &FakeLlm::default()).await;
    for (status, outcome) in [("busy", "busy"), ("no-answer", "no_answer"), ("failed", "failed")] {
        let (_, created) = call(&hub, json!({"to": CALLEE, "account": "main"})).await;
        let id = created["id"].as_str().expect("an id");
        let made = twilio.made().await;
        for _ in 0..2 {
            report(&hub, &made, "ringing").await;
        }
        let data = json!({"call_id": id, "direction": "out"});
        let event = receiver.next().await.event;
        assert_eq!((&event["type"], &event["data"]), (&json!("call.ringing"), &data));
        report(&hub, &made, status).await;
        let event = receiver.next().await.event;
        assert_eq!((&event["type"], &event["data"]), (&json!(format!("call.{outcome}")), &data));
        is_over(&hub, id, outcome).await;
    }
    let (id, _, mut phone) = answered(&hub, &mut twilio, json!({})).await;
    assert_eq!(receiver.next().await.event["type"], "call.answered", "once, though the status and the stream say so");
    phone.silence(100).await;
    hang_up(&hub, &id).await;
    phone.until("the stream is closed", |phone| phone.is_closed).await;
    assert_eq!(receiver.next().await.event["type"], "call.ended");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_language_of_the_called_number_is_tried_first() {
    let mut twilio = Twilio::new();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let stt = FakeStt::hears(["Guten Tag."]);
    let engines = engines(stt.clone(), FakeLlm::says(["Hallo."]), FakeTts::default());
    let hub = Hub::start(engines, twilio.config()).await;
    let (_, _, mut phone) = answered(&hub, &mut twilio, json!({})).await;
    phone.talk(&voice(500)).await;
    phone.until("the reply is heard", |phone| phone.heard_ms() >= 150).await;
    assert_eq!(stt.speakers()[0], Some(SpeakerState::PreferredLanguage("de".into())));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_stops_ends_its_calls() {
    let mut twilio = Twilio::new();
    let hub = start(twilio.config(), &[], &FakeLlm::default()).await;
    let (_, answered, mut phone) = answered(&hub, &mut twilio, json!({})).await;
    phone.silence(100).await;
    assert_eq!(call(&hub, json!({"to": CALLEE})).await.0, 201);
    let ringing = twilio.made().await;
    hub.begin_to_stop();
    phone.until("the stream is closed", |phone| phone.is_closed).await;
    hub.stop().await;
    let ended: Vec<_> = twilio.server.requests().iter().skip(2).map(|request| request.path().to_owned()).collect();
    for made in [answered, ringing] {
        assert!(ended.contains(&format!("{CALLS}/{}.json", made.sid)), "{ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_twilio_refuses_is_said_without_secrets() {
    let token = std::env::var("PATH").expect("set");
    let message = format!("The number is not valid for {}.", token.trim());
    let body = json!({"code": 21_211, "message": message, "status": 400}).to_string();
    let twilio = Twilio::answering(move |_| Answer::refusal(400, body.clone()));
    let hub = start(twilio.config(), &[], &FakeLlm::default()).await;
    let (status, answer) = call(&hub, json!({"to": CALLEE})).await;
    assert_eq!((status, &answer["error"]["code"]), (502, &json!("provider_refused")), "{answer}");
    let expect = "The provider refused: The number is not valid for .... (Twilio's error 21211)";
    assert_eq!(answer["error"]["message"], expect);
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.stop().await;

    for (twilio, why) in [
        (Twilio::answering(|_| Answer::none()), "no answer in 10 s"),
        (Twilio::answering(|_| Answer::raw("")), "no connection"),
        (Twilio::answering(|_| Answer::status(503)), "it is not available now"),
        (Twilio::answering(|_| Answer::text("no JSON")), "its answer is no JSON"),
        (Twilio::answering(|_| Answer::json(&json!({"sid": "../x"}))), "its answer names no call"),
        (Twilio::answering(|_| Answer::text(vec![b' '; 70_000])), "its answer cannot be read"),
    ] {
        let mut config = twilio.config();
        config.sip.max_calls_out = 1;
        let hub = start(config, &[], &FakeLlm::default()).await;
        for _ in 0..2 {
            let (status, answer) = call(&hub, json!({"to": CALLEE})).await;
            assert_eq!((status, &answer["error"]["code"]), (502, &json!("provider_unavailable")), "{answer}");
            assert_eq!(answer["error"]["message"], format!("The provider cannot be asked: {why}."));
        }
        hub.stop().await;
    }
    let twilio = Twilio::answering(|_| Answer::status(500));
    let hub = start(twilio.config(), &[], &FakeLlm::default()).await;
    let (_, answer) = call(&hub, json!({"to": CALLEE})).await;
    assert_eq!(answer["error"]["message"], "The provider refused: status 500");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_brings_one_stream_and_others_are_refused() {
    let mut twilio = Twilio::new();
    let hub = start(twilio.config(), &[], &FakeLlm::default()).await;
    let (id, made, mut phone) = answered(&hub, &mut twilio, json!({})).await;
    phone.silence(200).await;
    for secret in [made.secret(), "call_0123".into()] {
        let mut other = stream(&hub, ACCOUNT, &made.sid, json!({"antiphon_call": secret})).await;
        other.until("it is refused", |phone| phone.is_closed).await;
        let close = other.close.expect("a close frame");
        assert_eq!((u16::from(close.code), close.reason.as_str()), (1008, "no call waits for this stream"));
    }
    hub.until("antiphon_sessions_active ", 1.0).await;
    assert!(!phone.is_closed);
    assert_eq!(state(&hub, &id).await, "in_progress");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn statuses_without_twilios_signature_are_refused() {
    let mut twilio = Twilio::new();
    let mut config = twilio.config();
    // Another account, with a token of its own.
    let other =
        TelephonyAccount { auth_token_env: "CARGO_MANIFEST_DIR".into(), ..config.telephony.accounts["main"].clone() };
    config.telephony.accounts.insert("other".into(), other);
    let hub = start(config, &[], &FakeLlm::default()).await;
    let (_, created) = call(&hub, json!({"to": CALLEE})).await;
    let id = created["id"].as_str().expect("an id");
    let made = twilio.made().await;
    let other = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, env!("CARGO_MANIFEST_DIR").as_bytes());
    let signed = format!("{}AccountSid{ACCOUNT}CallSid{}CallStatusbusy", made.get("StatusCallback"), made.sid);
    let by_other = BASE64.encode(hmac::sign(&other, signed.as_bytes()));
    for foreign in ["", "AAAA", &signature(STREAM, &[]), &by_other] {
        assert_eq!(post_status(&hub, &made, "busy", Some(foreign)).await, 403, "{foreign}");
    }
    assert_eq!(state(&hub, id).await, "calling");
    report(&hub, &made, "busy").await;
    is_over(&hub, id, "busy").await;
    hub.stop().await;

    let hub = start(twilio_config(), &[], &FakeLlm::default()).await;
    assert_eq!(post_status(&hub, &made, "busy", None).await, 403, "there is no account");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_auth_token_counts_for_the_accounts_that_share_it() {
    let twilio = Twilio::new();
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let (reload, reloads) = tokio::sync::mpsc::channel(1);
    let config = twilio.config();
    let parts = Parts { config, engines, metrics: Metrics::new(), keys: Keys::default(), tls: None, manager: None };
    let hub = Hub::serve_with(parts, Extras { reloads: Some(reloads), ..Extras::default() }).await;
    assert_eq!(call(&hub, json!({"to": CALLEE})).await.0, 201);
    let token = Reload { twilio_auth_token: Some("another token".into()), ..Reload::default() };
    reload.send(token).await.expect("taken");
    // It is applied once there is room for the next.
    reload.send(Reload::default()).await.expect("taken");
    reload.send(Reload::default()).await.expect("taken");
    let (status, answer) = call(&hub, json!({"to": CALLEE})).await;
    assert_eq!((status, &answer["error"]["message"]), (502, &json!("The provider refused: status 401")));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_account_with_its_own_auth_token_has_the_new_one_from_its_reload_on() {
    let mut twilio = Twilio::new();
    let mut config = twilio.config();
    config.telephony.twilio_auth_token_env = "CARGO_MANIFEST_DIR".into();
    config.telephony.accounts.get_mut("main").expect("it").auth_token_env = "PATH".into();
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let (reload, reloads) = tokio::sync::mpsc::channel(1);
    let parts = Parts { config, engines, metrics: Metrics::new(), keys: Keys::default(), tls: None, manager: None };
    let hub = Hub::serve_with(parts, Extras { reloads: Some(reloads), ..Extras::default() }).await;
    let apply = async |change: Reload| {
        reload.send(change).await.expect("taken");
        // It is applied once there is room for the next.
        reload.send(Reload::default()).await.expect("taken");
        reload.send(Reload::default()).await.expect("taken");
    };
    // That is the token of others.
    apply(Reload { twilio_auth_token: Some("another token".into()), ..Reload::default() }).await;
    assert_eq!(call(&hub, json!({"to": CALLEE})).await.0, 201);
    let made = twilio.made().await;
    let account_secrets = [("main".to_owned(), "another token".to_owned())].into();
    apply(Reload { account_secrets, ..Reload::default() }).await;
    let (status, answer) = call(&hub, json!({"to": CALLEE})).await;
    assert_eq!((status, &answer["error"]["message"]), (502, &json!("The provider refused: status 401")));
    assert_eq!(post_status(&hub, &made, "busy", None).await, 403, "it is signed with the former token");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_called_who_may_not_be() {
    let mut twilio = Twilio::new();
    let mut config = twilio.config();
    config.sip.max_calls_out = 1;
    config.sip.max_calls_out_per_minute = 1;
    config.sip.call_to.push("sips:*".into());
    let hub = start(config.clone(), &[], &FakeLlm::default()).await;
    for (body, status, code) in [
        (json!({"to": "tel:+33123"}), 403, "call_not_allowed"),
        (json!({"to": "ann"}), 400, "invalid_value"),
        (json!({"to": 5}), 400, "invalid_value"),
        (json!({"to": CALLEE, "on_voicemail": "foo"}), 400, "invalid_value"),
        (json!({"to": CALLEE, "greting": "Hello."}), 400, "unknown_parameter"),
        (json!({"to": "sips:ann@pbx.example.com"}), 400, "invalid_value"),
        (json!({"to": CALLEE, "account": "other"}), 400, "invalid_value"),
        (json!({"to": CALLEE, "account": "main", "trunk": "here"}), 400, "invalid_value"),
        (json!({"to": CALLEE, "trunk": "here"}), 400, "calls_out_not_configured"),
        (json!({"to": CALLEE, "from": "+15550199"}), 400, "invalid_value"),
        (json!({"to": CALLEE, "session": {"type": "transcription"}}), 400, "invalid_value"),
        (json!({"to": CALLEE, "greeting": "x".repeat(2_001)}), 400, "invalid_value"),
        (json!({"to": CALLEE, "voicemail_message": "x".repeat(2_001)}), 400, "invalid_value"),
    ] {
        let (found, answer) = call(&hub, body.clone()).await;
        assert_eq!((found, &answer["error"]["code"]), (status, &json!(code)), "{body}: {answer}");
    }
    let secrets = format!("http://{}/v1/realtime/client_secrets", hub.address);
    let secret = reqwest::Client::new().post(secrets).json(&json!({"session": {"type": "realtime"}})).send().await;
    let secret: Value = secret.expect("an answer").json().await.expect("JSON");
    let by_browser = reqwest::Client::new()
        .post(format!("http://{}/v1/realtime/calls", hub.address))
        .bearer_auth(secret["value"].as_str().expect("a secret"))
        .json(&json!({"to": CALLEE}));
    assert_eq!(by_browser.send().await.expect("an answer").status(), 403, "a browser's secret calls nobody");
    twilio.has_no_more();
    assert_eq!(call(&hub, json!({"to": CALLEE})).await.0, 201);
    let made = twilio.made().await;
    let (status, answer) = call(&hub, json!({"to": CALLEE})).await;
    assert_eq!((status, &answer["error"]["code"]), (429, &json!("too_many_calls")));
    report(&hub, &made, "busy").await;
    hub.until("antiphon_sessions_active ", 0.0).await;
    let (status, answer) = call(&hub, json!({"to": CALLEE})).await;
    assert_eq!((status, &answer["error"]["code"]), (429, &json!("rate_limit_exceeded")));
    twilio.has_no_more();
    hub.stop().await;

    // All but one minute of a day are quiet.
    config.sip.quiet_hours = "00:00-23:59".into();
    if jiff::Zoned::now().hour() < 23 {
        let hub = start(config, &[], &FakeLlm::default()).await;
        let (status, answer) = call(&hub, json!({"to": CALLEE})).await;
        assert_eq!((status, &answer["error"]["code"]), (403, &json!("quiet_hours")));
        hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_belongs_to_its_key_and_an_account_to_the_key_that_it_names() {
    let mut twilio = Twilio::new();
    let mut config = twilio.config();
    config.telephony.accounts.get_mut("main").expect("an account").key = "sales".into();
    let entries = ["sales", "support"].map(|name| key_entry(name, &key_digest(&format!("key-of-{name}")), &[], None));
    let keys = Keys::of_text(&entries.join("\n")).expect("keys");
    let engines = engines(FakeStt::hears([]), FakeLlm::default(), FakeTts::default());
    let hub = Hub::with_keys(engines, config, keys).await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = format!("http://{}/v1/realtime/calls", hub.address);
    let dial = async |key: &str| {
        let request = reqwest::Client::new().post(&url).bearer_auth(key).json(&json!({"to": CALLEE}));
        request.send().await.expect("an answer").status().as_u16()
    };
    assert_eq!((dial("key-of-support").await, dial("key-of-sales").await), (403, 201));
    let made = twilio.made().await;
    let mut phone = answer(&hub, &made).await;
    phone.silence(200).await;
    for (key, n_calls) in [("key-of-sales", 1), ("key-of-support", 0)] {
        let list = reqwest::Client::new().get(&url).bearer_auth(key).send().await.expect("an answer");
        let list: Value = list.json().await.expect("JSON");
        assert_eq!(list["data"].as_array().map(Vec::len), Some(n_calls), "{key}: {list}");
    }
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_trunk_makes_a_call_that_names_no_account() {
    let mut twilio = Twilio::new();
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let (with_trunk, _) = crate::sip::config();
    let mut config = twilio.config();
    config.sip.listen = with_trunk.sip.listen;
    config.sip.trunks = with_trunk.sip.trunks;
    config.sip.trunks.get_mut("here").expect("a trunk").host = socket.local_addr().expect("bound").to_string();
    let hub = start(config, &[], &FakeLlm::default()).await;
    let mut callee = Callee::of(socket);
    assert_eq!(call(&hub, json!({"to": CALLEE})).await.0, 201);
    callee.next(Method::Invite).await;
    twilio.has_no_more();
    assert_eq!(call(&hub, json!({"to": CALLEE, "account": "main"})).await.0, 201);
    twilio.made().await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_asked_for_while_it_rings_is_heard_after_the_answer() {
    let mut twilio = Twilio::new();
    let llm = FakeLlm::says(["Good morning.", "Ten past ten."]);
    let hub = start(twilio.config(), &["what time is it"], &llm).await;
    let (_, created) = call(&hub, json!({"to": CALLEE})).await;
    let id = created["id"].as_str().expect("an id");
    let made = twilio.made().await;
    report(&hub, &made, "ringing").await;
    let mut client = hub.connect(&format!("?call_id={id}")).await;
    client.send(json!({"type": "response.create"})).await;
    client.until("response.created").await;
    sleep(Duration::from_secs(5)).await;
    report(&hub, &made, "in-progress").await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(llm.requests().len(), 0, "it waits for the stream");
    let mut phone = answer(&hub, &made).await;
    phone.until("the response is heard", |phone| phone.heard_ms() >= 640).await;
    let events = client.until("response.done").await;
    assert_eq!(events.last().expect("an event")["response"]["status"], "completed");
    phone.silence(500).await;
    phone.speak(500).await;
    phone.until("the answer is heard", |phone| phone.heard_ms() >= 1_290).await;
    assert_eq!(llm.requests().len(), 2);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_is_given_up_while_it_rings() {
    let mut twilio = Twilio::new();
    let hub = start(twilio.config(), &[], &FakeLlm::default()).await;
    let (_, created) = call(&hub, json!({"to": CALLEE})).await;
    let id = created["id"].as_str().expect("an id");
    let made = twilio.made().await;
    report(&hub, &made, "ringing").await;
    until(&hub, id, "ringing").await;
    hang_up(&hub, id).await;
    twilio.ended(&made.sid).await;
    is_over(&hub, id, "ended").await;
    // Somebody answers at the same moment.
    let mut late = answer(&hub, &made).await;
    late.until("it is refused", |phone| phone.is_closed).await;
    hub.stop().await;
    twilio.has_no_more();
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_status_or_a_stream_ends() {
    // What Twilio reports, how long that takes, and what becomes of the call.
    for (statuses, seconds, outcome) in [
        (&[][..], 70, "no_answer"),
        (&["initiated", "ringing"], 70, "no_answer"),
        (&["ringing", "in-progress"], 15, "failed"),
    ] {
        let mut twilio = Twilio::new();
        let mut config = twilio.config();
        config.sip.max_calls_out = 1;
        let hub = start(config, &[], &FakeLlm::default()).await;
        let (_, created) = call(&hub, json!({"to": CALLEE})).await;
        let id = created["id"].as_str().expect("an id");
        let made = twilio.made().await;
        for status in statuses {
            report(&hub, &made, status).await;
        }
        sleep(Duration::from_secs(seconds - 1)).await;
        assert!(["calling", "ringing", "in_progress"].contains(&state(&hub, id).await.as_str()));
        sleep(Duration::from_millis(1_500)).await;
        twilio.ended(&made.sid).await;
        is_over(&hub, id, outcome).await;
        assert_eq!(call(&hub, json!({"to": CALLEE})).await.0, 201, "its place is free");
        hub.stop().await;
    }
    // Twilio did not reach the hub.
    let mut twilio = Twilio::new();
    let hub = start(twilio.config(), &[], &FakeLlm::default()).await;
    let (_, created) = call(&hub, json!({"to": CALLEE})).await;
    let id = created["id"].as_str().expect("an id");
    let made = twilio.made().await;
    report(&hub, &made, "in-progress").await;
    report(&hub, &made, "completed").await;
    is_over(&hub, id, "failed").await;
    hub.stop().await;
    twilio.has_no_more();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_twilio_does_not_end_at_once_is_ended_again() {
    // Twilio's error, and how often it is asked. 21220: the call has ended.
    for (status, code, n_asked) in
        [(None, 0, 2), (Some(429), 20_429, 2), (Some(500), 20_500, 2), (Some(400), 21_220, 1)]
    {
        let is_first = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let mut twilio = Twilio::answering(move |request| {
            let is_end = request.text().contains("Status=");
            if !is_end || !is_first.swap(false, std::sync::atomic::Ordering::Relaxed) {
                return Answer::json(&json!({"sid": format!("CA{:032}", request.number)}));
            }
            let error = json!({"code": code, "message": "So it is."});
            status.map_or_else(|| Answer::raw(""), |status| Answer::refusal(status, error.to_string()))
        });
        let hub = start(twilio.config(), &[], &FakeLlm::default()).await;
        let (_, created) = call(&hub, json!({"to": CALLEE})).await;
        let made = twilio.made().await;
        hang_up(&hub, created["id"].as_str().expect("an id")).await;
        for _ in 0..n_asked {
            twilio.ended(&made.sid).await;
        }
        hub.stop().await;
        twilio.has_no_more();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_out_is_transferred() {
    let mut twilio = Twilio::new();
    let hub = start(twilio.config(), &[], &FakeLlm::default()).await;
    let (id, made, mut phone) = answered(&hub, &mut twilio, json!({})).await;
    phone.silence(200).await;
    let refer = async |body: Value| post(&hub, &format!("{id}/refer"), body).await;
    for (body, status, code) in [
        (json!({"target_uri": "tel:+33123"}), 403, "transfer_not_allowed"),
        (json!({"target_uri": "no URI"}), 400, "invalid_target_uri"),
        (json!({"target_uri": "tel:+4930124", "warm": {"summary": " "}}), 400, "invalid_value"),
        (json!({"target_uri": "tel:+49-30-123", "warm": {"summary": "Ann."}}), 400, "transfer_to_caller"),
    ] {
        let (found, answer) = refer(body.clone()).await;
        assert_eq!((found, &answer["error"]["code"]), (status, &json!(code)), "{body}");
    }
    twilio.has_no_more();
    assert_eq!(refer(json!({"target_uri": "tel:+49-30-124"})).await.0, 200);
    let (field, twiml) = twilio.updated(&made.sid).await;
    let expect = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response>\
                  <Dial callerId=\"+15550100\">+4930124</Dial></Response>";
    assert_eq!((field.as_str(), twiml.as_str()), ("Twiml", expect));
    assert_eq!(refer(json!({"target_uri": "tel:+49-30-124"})).await.0, 409);
    // Twilio ends the stream, and the call goes on without the hub.
    phone.send(Message::text(r#"{"event":"stop","streamSid":"MZ1","stop":{"callSid":"CA1"}}"#)).await;
    phone.until("the stream is closed", |phone| phone.is_closed).await;
    is_over(&hub, &id, "ended").await;
    hub.stop().await;
    twilio.has_no_more();
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_twilio_refuses_may_be_tried_again() {
    let mut twilio = Twilio::answering(|request| {
        if request.text().starts_with("Twiml=") && request.number < 2 {
            return Answer::refusal(404, json!({"code": 20_404, "message": "Not found"}).to_string());
        }
        Answer::json(&json!({"sid": format!("CA{:032}", request.number)}))
    });
    let hub = start(twilio.config(), &[], &FakeLlm::default()).await;
    let (id, made, mut phone) = answered(&hub, &mut twilio, json!({})).await;
    phone.silence(200).await;
    let target = json!({"target_uri": "sip:a&b@pbx.example.com"});
    let (status, answer) = post(&hub, &format!("{id}/refer"), target.clone()).await;
    assert_eq!((status, &answer["error"]["code"]), (502, &json!("provider_refused")), "{answer}");
    twilio.updated(&made.sid).await;
    assert_eq!(post(&hub, &format!("{id}/refer"), target).await.0, 200);
    let (_, twiml) = twilio.updated(&made.sid).await;
    assert!(twiml.contains("><Sip>sip:a&amp;b@pbx.example.com</Sip></Dial>"), "{twiml}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_in_of_a_known_account_is_transferred() {
    let mut twilio = Twilio::new();
    let hub = start(twilio.config(), &[], &FakeLlm::default()).await;
    for (account, status) in [("AC99", 400), (ACCOUNT, 200)] {
        // Names in the TwiML do not change Twilio's own.
        let parameters = json!({"to": NUMBER, "account_sid": ACCOUNT, "call_sid": "CA2"});
        let mut phone = stream(&hub, account, "CA1", parameters).await;
        phone.silence(200).await;
        let list = reqwest::get(format!("http://{}/v1/realtime/calls", hub.address)).await.expect("an answer");
        let list: Value = list.json().await.expect("JSON");
        let id = list["data"][0]["id"].as_str().expect("a call").to_owned();
        let target = json!({"target_uri": "tel:+4930124"});
        assert_eq!(post(&hub, &format!("{id}/refer"), target).await.0, status, "{account}");
        phone.stream.close(None).await.expect("it is open");
        hub.until("antiphon_sessions_active ", 0.0).await;
    }
    let (_, twiml) = twilio.updated("CA1").await;
    assert!(twiml.contains("<Dial>+4930124</Dial>"), "the caller's number is shown: {twiml}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_in_of_a_known_account_is_reported_and_no_other() {
    let mut receiver = Receiver::new(&[]).await;
    let twilio = Twilio::new();
    let mut config = twilio.config();
    let (with_webhooks, _) = receiver.config();
    config.sip.webhook_url = with_webhooks.sip.webhook_url;
    config.sip.webhook_secret_file = with_webhooks.sip.webhook_secret_file;
    config.sip.webhook_events = vec!["states".into()];
    let hub = start(config, &[], &FakeLlm::default()).await;
    let mut id = Value::Null;
    for account in ["AC99", ACCOUNT] {
        let mut phone = stream(&hub, account, "CA1", json!({"to": NUMBER})).await;
        phone.silence(200).await;
        let list = reqwest::get(format!("http://{}/v1/realtime/calls", hub.address)).await.expect("an answer");
        let list: Value = list.json().await.expect("JSON");
        id = list["data"][0]["id"].clone();
        phone.stream.close(None).await.expect("it is open");
        hub.until("antiphon_sessions_active ", 0.0).await;
    }
    for kind in ["call.answered", "call.ended"] {
        let event = receiver.next().await.event;
        assert_eq!((&event["type"], &event["data"]), (&json!(kind), &json!({"call_id": id, "direction": "in"})));
    }
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_model_transfers_a_call_in_of_a_known_account_and_no_other() {
    let mut twilio = Twilio::new();
    let mut config = twilio.config();
    config.sip.tool_transfer_call = [("front_desk".to_owned(), "tel:+33-1-23".to_owned())].into();
    let llm = FakeLlm::default();
    llm.then(words("Hello."));
    llm.then(says_and_calls("One moment.", "transfer_call", &json!({"target": "front_desk"})));
    let hub = start(config, &["hello", "to the desk please"], &llm).await;
    let mut stranger = stream(&hub, "AC99", "CA2", json!({"to": NUMBER})).await;
    stranger.speak(500).await;
    stranger.until("the reply is heard", |phone| phone.heard_ms() >= 280).await;
    assert!(names(&llm.requests()[0]).is_empty(), "its account is not known");
    stranger.stream.close(None).await.expect("it is open");
    hub.until("antiphon_sessions_active ", 0.0).await;
    let mut phone = stream(&hub, ACCOUNT, "CA1", json!({"to": NUMBER})).await;
    phone.speak(500).await;
    phone.until("the transfer is asked for", |_| twilio.server.n_requests() > 0).await;
    // 11 characters.
    assert!(phone.heard_ms() >= 540, "{} ms were heard before", phone.heard_ms());
    let (field, twiml) = twilio.updated("CA1").await;
    assert_eq!(field, "Twiml");
    assert!(twiml.ends_with("<Response><Dial>+33123</Dial></Response>"), "{twiml}");
    phone.send(Message::text(r#"{"event":"stop","streamSid":"MZ1","stop":{"callSid":"CA1"}}"#)).await;
    phone.until("the stream is closed", |phone| phone.is_closed).await;
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.stop().await;
    twilio.has_no_more();
}

#[tokio::test(start_paused = true)]
async fn the_model_ends_a_call_in_of_a_known_account_once_its_reply_was_heard() {
    let twilio = Twilio::new();
    let mut config = twilio.config();
    config.sip.tool_hang_up = true;
    config.sip.tool_send_dtmf = true;
    let llm = FakeLlm::default();
    llm.then(says_and_calls("It was a pleasure.", "hang_up", &json!({})));
    let hub = start(config, &["bye"], &llm).await;
    let mut phone = stream(&hub, ACCOUNT, "CA1", json!({"to": NUMBER})).await;
    phone.speak(500).await;
    phone.until("the stream is closed", |phone| phone.is_closed).await;
    // 18 characters.
    assert!(phone.heard_ms() >= 880, "{} ms of the reply were heard", phone.heard_ms());
    assert_eq!(names(&llm.requests()[0]), ["hang_up"], "no keys are pressed by Twilio");
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.stop().await;
    twilio.has_no_more();
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_hung_up_on_without_a_word() {
    let mut twilio = Twilio::new();
    let llm = FakeLlm::says(["Hello."]);
    let hub = start(twilio.config(), &[MACHINE], &llm).await;
    let body = json!({"greeting": "Say good morning.", "on_voicemail": "hang_up"});
    let (id, made, mut phone) = answered(&hub, &mut twilio, body).await;
    phone.talk(&voice(1_500)).await;
    phone.until("the hub hangs up", |phone| phone.is_closed).await;
    twilio.ended(&made.sid).await;
    assert_eq!((llm.requests().len(), phone.heard_ms()), (0, 0));
    is_over(&hub, &id, "ended").await;
    let url = format!("http://{}/v1/realtime/calls/{id}", hub.address);
    let described: Value = reqwest::get(url).await.expect("an answer").json().await.expect("JSON");
    assert_eq!(described["answered_by"], "voicemail");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_is_heard_to_its_end_however_far_ahead_it_is_sent() {
    for ignores_marks in [false, true] {
        let mut twilio = Twilio::new();
        let mut config = twilio.config();
        config.session.lead_ms = 3_000;
        let llm = FakeLlm::says(["Your bread is ready and we close at six."]);
        let hub = start(config, &[MACHINE], &llm).await;
        let (id, made, mut phone) = answered(&hub, &mut twilio, json!({"on_voicemail": "leave_message"})).await;
        phone.ignores_marks = ignores_marks;
        greet_and_beep(&mut phone).await;
        assert!(phone.heard_ms() < 1_000, "the message has begun at most");
        phone.until("the hub hangs up", |phone| phone.is_closed).await;
        // 40 characters are 2 s.
        assert!(phone.heard_ms() >= 1_900, "marks are ignored: {ignores_marks}; heard {} ms", phone.heard_ms());
        twilio.ended(&made.sid).await;
        is_over(&hub, &id, "ended").await;
        hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_model_hangs_up_on_a_machine_once_its_message_was_heard() {
    let mut twilio = Twilio::new();
    let mut config = twilio.config();
    config.session.lead_ms = 3_000;
    config.sip.tool_hang_up = true;
    config.sip.tool_send_dtmf = true;
    let llm = FakeLlm::default();
    llm.then(says_and_calls("Your bread is ready and we close at six.", "hang_up", &json!({})));
    let hub = start(config, &[MACHINE], &llm).await;
    let (id, made, mut phone) = answered(&hub, &mut twilio, json!({"on_voicemail": "ask_model"})).await;
    greet_and_beep(&mut phone).await;
    phone.until("the hub hangs up", |phone| phone.is_closed).await;
    assert!(phone.heard_ms() >= 1_900, "{} ms of the message were heard", phone.heard_ms());
    assert_eq!(names(&llm.requests()[0]), ["hang_up"], "no keys are pressed by Twilio");
    twilio.ended(&made.sid).await;
    is_over(&hub, &id, "ended").await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_model_transfers_a_call_out_to_whom_the_settings_name() {
    let mut twilio = Twilio::new();
    let mut config = twilio.config();
    config.sip.tool_transfer_call = [("front_desk".to_owned(), "tel:+33-1-23".to_owned())].into();
    let llm = FakeLlm::default();
    llm.then(says_and_calls("One moment.", "transfer_call", &json!({"target": "front_desk"})));
    let hub = start(config, &["to the desk please"], &llm).await;
    let (id, made, mut phone) = answered(&hub, &mut twilio, json!({})).await;
    phone.speak(500).await;
    phone.until("the transfer is asked for", |_| twilio.server.n_requests() > 1).await;
    // 11 characters.
    assert!(phone.heard_ms() >= 540, "{} ms were heard before", phone.heard_ms());
    let (field, twiml) = twilio.updated(&made.sid).await;
    assert_eq!(field, "Twiml");
    assert!(twiml.ends_with("<Dial callerId=\"+15550100\">+33123</Dial></Response>"), "{twiml}");
    let requests = llm.requests();
    let parameters = requests[0].tools[0].parameters.value();
    assert_eq!(parameters["required"], json!(["target"]), "blind");
    phone.send(Message::text(r#"{"event":"stop","streamSid":"MZ1","stop":{"callSid":"CA1"}}"#)).await;
    phone.until("the stream is closed", |phone| phone.is_closed).await;
    is_over(&hub, &id, "ended").await;
    hub.stop().await;
    twilio.has_no_more();
}

#[tokio::test(start_paused = true)]
async fn a_call_out_is_transferred_warm_and_each_side_ends_the_other() {
    for target_hangs_up in [true, false] {
        let mut receiver = Receiver::new(&[]).await;
        let mut twilio = Twilio::new();
        let mut config = twilio.config();
        let (with_webhooks, _) = receiver.config();
        config.sip.webhook_url = with_webhooks.sip.webhook_url;
        config.sip.webhook_secret_file = with_webhooks.sip.webhook_secret_file;
        config.sip.webhook_events = vec!["states".into()];
        let llm = FakeLlm::default();
        let hub = start(config, &["Hello?"], &llm).await;
        let (id, made, mut caller) = answered(&hub, &mut twilio, json!({})).await;
        caller.silence(200).await;
        let (made_to_target, mut target) = connected(&hub, &mut twilio, &id, &mut caller).await;
        hear_each_other(&mut caller, &mut target).await;
        let target_id = connected_to(&hub, &id).await;
        assert_eq!(connected_to(&hub, &target_id).await, id);
        assert_eq!(llm.requests().len(), 0, "the agent has left");
        let mut posted = Vec::new();
        while posted.len() < 2 {
            let event = receiver.next().await.event;
            if event["type"] == "call.transferred" {
                posted.push(event["data"].clone());
            }
        }
        for (call_id, connected_to) in [(&id, &target_id), (&target_id, &id)] {
            let data = json!({"call_id": call_id, "direction": "out", "connected_to": connected_to});
            assert!(posted.contains(&data), "{posted:?}");
        }
        let (ended, left) = if target_hangs_up {
            hang_up_by_stream(&mut target).await;
            (&made, &mut caller)
        } else {
            report(&hub, &made, "completed").await;
            (&made_to_target, &mut target)
        };
        left.until("the other stream is closed", |phone| phone.is_closed).await;
        twilio.ended(&ended.sid).await;
        is_over(&hub, &id, "ended").await;
        is_over(&hub, &target_id, "ended").await;
        hub.stop().await;
        twilio.has_no_more();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_transferred_warm_once_it_is_answered() {
    let mut twilio = Twilio::new();
    let hub = start(twilio.config(), &["Hello?"], &FakeLlm::default()).await;
    let (_, created) = call(&hub, json!({"to": CALLEE})).await;
    let id = created["id"].as_str().expect("an id");
    let made = twilio.made().await;
    report(&hub, &made, "ringing").await;
    until(&hub, id, "ringing").await;
    assert_eq!(refer_warm(&hub, id).await, (409, json!("transfer_underway")));
    report(&hub, &made, "in-progress").await;
    until(&hub, id, "in_progress").await;
    let mut asked = Box::pin(refer_warm(&hub, id));
    let early = tokio::time::timeout(Duration::from_secs(1), &mut asked).await;
    assert!(early.is_err(), "it waits for the stream: {early:?}");
    let mut caller = answer(&hub, &made).await;
    let told = async {
        let made = twilio.made().await;
        report(&hub, &made, "in-progress").await;
        let mut target = answer(&hub, &made).await;
        hear_summary(&mut target).await;
        target
    };
    let (connected, mut target) = beside(&mut caller, async { tokio::join!(asked, told) }).await;
    assert_eq!(connected, (200, Value::Null));
    hear_each_other(&mut caller, &mut target).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_to_be_hung_up_on_is_connected_with_no_target() {
    let mut twilio = Twilio::new();
    let hub = start(twilio.config(), &[MACHINE], &FakeLlm::default()).await;
    let (id, made, mut phone) = answered(&hub, &mut twilio, json!({"on_voicemail": "hang_up"})).await;
    phone.silence(100).await;
    let talks = async {
        phone.talk(&voice(1_500)).await;
        phone.until("the hub hangs up", |phone| phone.is_closed).await;
    };
    let (answer, ()) = tokio::join!(refer_warm(&hub, &id), talks);
    assert_eq!(answer, (404, json!("call_id_not_found")));
    twilio.ended(&made.sid).await;
    is_over(&hub, &id, "ended").await;
    hub.stop().await;
    twilio.has_no_more();
}

#[tokio::test(start_paused = true)]
async fn a_warm_transfer_waits_for_who_has_answered_for_ten_seconds_at_most() {
    let mut twilio = Twilio::new();
    let hub = start(twilio.config(), &["Hello?"], &FakeLlm::default()).await;
    let (id, _, mut caller) = answered(&hub, &mut twilio, json!({"on_voicemail": "hang_up"})).await;
    caller.silence(200).await;
    let given_up = tokio::time::timeout(Duration::from_secs(1), refer_warm(&hub, &id));
    assert!(beside(&mut caller, given_up).await.is_err());
    caller.silence(200).await;
    twilio.has_no_more();
    let asked_at = tokio::time::Instant::now();
    let told = async {
        sleep(Duration::from_secs(9)).await;
        twilio.has_no_more();
        let made = twilio.made().await;
        let waited = asked_at.elapsed();
        assert!((10..12).contains(&waited.as_secs()), "{waited:?}");
        report(&hub, &made, "in-progress").await;
        let mut target = answer(&hub, &made).await;
        hear_summary(&mut target).await;
        target
    };
    let both = async { tokio::join!(refer_warm(&hub, &id), told) };
    let (connected, mut target) = beside(&mut caller, both).await;
    assert_eq!(connected, (200, Value::Null), "the request before is withdrawn");
    hear_each_other(&mut caller, &mut target).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_fax_machine_is_connected_with_no_target() {
    // Whether the conversation or the transfer goes on first is chance.
    for _ in 0..8 {
        let mut twilio = Twilio::new();
        let hub = start(twilio.config(), &[], &FakeLlm::default()).await;
        let (id, made, mut phone) = answered(&hub, &mut twilio, json!({"on_voicemail": "hang_up"})).await;
        phone.silence(100).await;
        let sounds = async {
            phone.tone(2_100.0, 2_400).await;
            phone.until("the hub hangs up", |phone| phone.is_closed).await;
        };
        let (answer, ()) = tokio::join!(refer_warm(&hub, &id), sounds);
        assert_eq!(answer, (404, json!("call_id_not_found")));
        twilio.ended(&made.sid).await;
        assert_eq!(described(&hub, &id).await["answered_by"], "fax");
        hub.stop().await;
        twilio.has_no_more();
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_stops_says_so_to_both_streams_of_a_transferred_call() {
    let mut twilio = Twilio::new();
    let mut config = twilio.config();
    config.server.drain_seconds = 2;
    let hub = start(config, &["Hello?"], &FakeLlm::default()).await;
    let (id, _, mut caller) = answered(&hub, &mut twilio, json!({})).await;
    caller.silence(200).await;
    let (_, mut target) = connected(&hub, &mut twilio, &id, &mut caller).await;
    hub.begin_to_stop();
    tokio::join!(
        caller.until("the caller's stream is closed", |phone| phone.is_closed),
        target.until("the target's stream is closed", |phone| phone.is_closed),
    );
    for phone in [caller, target] {
        let close = phone.close.expect("a close frame");
        assert_eq!((u16::from(close.code), close.reason.as_str()), (1001, "the server is going away"));
    }
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_revoked_key_closes_both_streams_of_its_transferred_call_with_1008() {
    let mut twilio = Twilio::new();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let entry = |name: &str| key_entry(name, &key_digest(&format!("key-of-{name}")), &[], None);
    let keys = Keys::of_text(&[entry("sales"), entry("support")].join("\n")).expect("keys");
    let engines = engines(FakeStt::hears(["Hello?"]).with_partials(), FakeLlm::default(), FakeTts::default());
    let (reload, reloads) = tokio::sync::mpsc::channel(1);
    let parts = Parts { config: twilio.config(), engines, metrics: Metrics::new(), keys, tls: None, manager: None };
    let hub = Hub::serve_with(parts, Extras { reloads: Some(reloads), ..Extras::default() }).await;
    let post = async |path: String, body: Value| {
        let url = format!("http://{}/v1/realtime/calls{path}", hub.address);
        let request = reqwest::Client::new().post(url).bearer_auth("key-of-sales").json(&body);
        let answer = request.send().await.expect("an answer");
        let status = answer.status().as_u16();
        (status, answer.json::<Value>().await.unwrap_or_default())
    };
    let (status, created) = post(String::new(), json!({"to": CALLEE})).await;
    assert_eq!(status, 201, "{created}");
    let made = twilio.made().await;
    let mut caller = answer(&hub, &made).await;
    caller.silence(200).await;
    let told = async {
        let made = twilio.made().await;
        let mut target = answer(&hub, &made).await;
        hear_summary(&mut target).await;
        target
    };
    let path = format!("/{}/refer", created["id"].as_str().expect("an id"));
    let asked = post(path, json!({"target_uri": TARGET, "warm": {"summary": SUMMARY}}));
    let ((status, refused), mut target) = beside(&mut caller, async { tokio::join!(asked, told) }).await;
    assert_eq!(status, 200, "{refused}");
    let keys = Some(Keys::of_text(&entry("support")).expect("keys"));
    reload.send(Reload { keys, ..Reload::default() }).await.expect("taken");
    tokio::join!(
        caller.until("the caller's stream is closed", |phone| phone.is_closed),
        target.until("the target's stream is closed", |phone| phone.is_closed),
    );
    for phone in [caller, target] {
        let close = phone.close.expect("a close frame");
        assert_eq!(u16::from(close.code), 1008, "{}", close.reason.as_str());
    }
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_target_is_not_there_comes_back() {
    for (status, code) in [("busy", "target_busy"), ("no-answer", "target_no_answer"), ("failed", "target_failed")] {
        let mut twilio = Twilio::new();
        let llm = FakeLlm::says(["Yes, I am."]);
        let hub = start(twilio.config(), &["are you there"], &llm).await;
        let (id, _, mut caller) = answered(&hub, &mut twilio, json!({})).await;
        caller.silence(200).await;
        let refused = async {
            let made = twilio.made().await;
            report(&hub, &made, "ringing").await;
            // The caller waits, and is not heard.
            caller.speak(700).await;
            caller.press('1').await;
            caller.silence(1_000).await;
            assert_eq!(refer_warm(&hub, &id).await, (409, json!("transfer_underway")));
            report(&hub, &made, status).await;
        };
        let (answer, ()) = tokio::join!(refer_warm(&hub, &id), refused);
        assert_eq!(answer, (502, json!(code)));
        assert_eq!(llm.requests().len(), 0, "the caller was not heard while it waited");
        caller.speak(500).await;
        caller.until("the reply", |caller| caller.heard_ms() >= 300).await;
        assert_eq!(state(&hub, &id).await, "in_progress");
        hub.until("antiphon_sessions_active ", 1.0).await;
        hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_no_target_and_neither_is_who_hangs_up_at_once() {
    for (words, code) in [(MACHINE, "target_machine"), ("Hello?", "target_hung_up")] {
        let mut twilio = Twilio::new();
        let hub = start(twilio.config(), &[words], &FakeLlm::default()).await;
        let (id, _, mut caller) = answered(&hub, &mut twilio, json!({})).await;
        caller.silence(200).await;
        let told = async {
            let made = twilio.made().await;
            let mut target = answer(&hub, &made).await;
            if words == MACHINE {
                target.talk(&voice(3_000)).await;
                target.until("the hub hangs up", |target| target.is_closed).await;
                assert_eq!(target.heard_ms(), 0, "a machine is told nothing");
                twilio.ended(&made.sid).await;
            } else {
                target.silence(100).await;
                hang_up_by_stream(&mut target).await;
            }
        };
        let both = async { tokio::join!(refer_warm(&hub, &id), told) };
        let (answer, ()) = beside(&mut caller, both).await;
        assert_eq!(answer, (502, json!(code)));
        assert!(!caller.is_closed);
        hub.until("antiphon_sessions_active ", 1.0).await;
        twilio.has_no_more();
        hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_hangs_up_ends_the_call_to_the_target() {
    for is_answered in [false, true] {
        let mut twilio = Twilio::new();
        let hub = start(twilio.config(), &[], &FakeLlm::default()).await;
        let (id, _, mut caller) = answered(&hub, &mut twilio, json!({})).await;
        caller.silence(200).await;
        let leaves = async {
            let made = beside(&mut caller, twilio.made()).await;
            let mut target = None;
            if is_answered {
                let target = target.insert(answer(&hub, &made).await);
                beside(&mut caller, target.silence(500)).await;
            }
            hang_up_by_stream(&mut caller).await;
            twilio.ended(&made.sid).await;
            drop(target);
        };
        let (answer, ()) = tokio::join!(refer_warm(&hub, &id), leaves);
        assert_eq!(answer, (404, json!("call_id_not_found")));
        is_over(&hub, &id, "ended").await;
        hub.stop().await;
        twilio.has_no_more();
    }
}

#[tokio::test(start_paused = true)]
async fn the_model_transfers_a_call_out_warm() {
    let mut twilio = Twilio::new();
    let mut config = twilio.config();
    config.sip.tool_transfer_call = [("front_desk".to_owned(), TARGET.to_owned())].into();
    config.sip.tool_transfer_kind = TransferKind::Warm;
    let llm = FakeLlm::default();
    let arguments = json!({"target": "front_desk", "summary": SUMMARY});
    llm.then(says_and_calls("", "transfer_call", &arguments));
    llm.then(words("They are busy."));
    let hub = start(config, &["to the desk please"], &llm).await;
    let (id, _, mut caller) = answered(&hub, &mut twilio, json!({})).await;
    caller.speak(500).await;
    let made = beside(&mut caller, twilio.made()).await;
    let requests = llm.requests();
    let parameters = requests[0].tools[0].parameters.value();
    assert_eq!(parameters["required"], json!(["target", "summary"]));
    report(&hub, &made, "busy").await;
    caller.until("the model says so", |caller| caller.heard_ms() >= 600).await;
    let told = format!("{:?}", llm.requests()[1].messages);
    assert!(told.contains("the target is busy; the caller is back with you"), "{told}");
    hang_up(&hub, &id).await;
    is_over(&hub, &id, "ended").await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_in_of_a_known_account_is_transferred_warm() {
    let mut twilio = Twilio::new();
    let hub = start(twilio.config(), &["Hello?"], &FakeLlm::default()).await;
    let mut caller = stream(&hub, ACCOUNT, "CA1", json!({"to": NUMBER})).await;
    caller.silence(200).await;
    let list = reqwest::get(format!("http://{}/v1/realtime/calls", hub.address)).await.expect("an answer");
    let list: Value = list.json().await.expect("JSON");
    let id = list["data"][0]["id"].as_str().expect("a call").to_owned();
    let (made, mut target) = connected(&hub, &mut twilio, &id, &mut caller).await;
    hear_each_other(&mut caller, &mut target).await;
    let target_id = connected_to(&hub, &id).await;
    hang_up(&hub, &target_id).await;
    let caller_ends = caller.until("the caller's stream is closed", |phone| phone.is_closed);
    let target_ends = target.until("the target's stream is closed", |phone| phone.is_closed);
    tokio::join!(caller_ends, target_ends);
    // Twilio goes on with the TwiML of the call that came in.
    twilio.ended(&made.sid).await;
    is_over(&hub, &target_id, "ended").await;
    hub.stop().await;
    twilio.has_no_more();
}

#[tokio::test(start_paused = true)]
async fn an_account_without_a_public_address_a_token_or_its_key_does_not_start() {
    let twilio = Twilio::new();
    for (change, why) in [
        ((|config| config.server.public_url.clear()) as fn(&mut Config), "server.public_url"),
        (|config| config.telephony.twilio_auth_token_env = "ANTIPHON_NO_SUCH_TOKEN".into(), "ANTIPHON_NO_SUCH_TOKEN"),
        (|config| config.telephony.accounts.get_mut("main").expect("it").key = "nobody".into(), "no API key"),
    ] {
        let mut config = twilio.config();
        change(&mut config);
        let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
        let parts = Parts { config, engines, metrics: Metrics::new(), keys: Keys::default(), tls: None, manager: None };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let error = server::serve(listener, parts, CancellationToken::new()).await.expect_err(why);
        assert!(error.to_string().contains(why), "{error}");
    }
}
