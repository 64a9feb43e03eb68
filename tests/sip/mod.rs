//! Phone calls by SIP: phones over real sockets at a real hub. [`calling`] has the calls out, [`answering`] who answers
//! them, [`incoming`] the calls that clients decide about, [`secure`] those by TLS, [`reports`] RTCP, [`tools`] those of the
//! model, [`recording`] recorded calls, [`warm`] warm transfers, [`judges`] has the programs of others.

mod answering;
pub mod calling;
pub mod incoming;
mod judges;
mod phone;
mod recording;
mod reports;
mod secure;
pub mod tools;
mod warm;

use crate::hub::{Hub, engines};
use crate::turns::{get, ms, turn};
use antiphon::config::{Config, SipTrunk, TelephonyRoute};
use antiphon::server::{Extras, Keys, Parts, Reload, key_digest, key_entry};
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::{FakeLlm, words};
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::stt::SpeakerState;
use antiphon_engines::vad::Earshot;
use antiphon_sip::sdp::Codec;
use antiphon_sip::{Credentials, Method};
use antiphon_telemetry::Metrics;
use antiphon_types::{Pcm, SampleRate};
use phone::{Answer, Options, Phone};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The longest wait for one thing, on the test's clock: an attempt to deliver a webhook that fails takes 5 s, and others
/// follow.
const SOON: Duration = Duration::from_secs(20);

/// Waits for `what`, 20 s at most.
pub async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    timeout(SOON, wait).await.unwrap_or_else(|_| panic!("waited for {what}, which did not come within {SOON:?}"))
}

/// A port that is free for UDP and TCP, below those that the system gives to connections, which others may take meanwhile.
pub fn free_port() -> u16 {
    let is_free = |port: &u16| {
        let address = (Ipv4Addr::LOCALHOST, *port);
        TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
    };
    std::iter::repeat_with(|| rand::random_range(10_000..30_000)).find(is_free).expect("it goes on until there is one")
}

/// A configuration that listens for SIP at this address, for calls from this machine.
pub fn config() -> (Config, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut config = Config::default();
    config.sip.listen = address.to_string();
    let trunk = SipTrunk { allow: vec!["127.0.0.1".into()], ..SipTrunk::default() };
    config.sip.trunks.insert("here".into(), trunk);
    config.telephony.key_pause_ms = 400;
    (config, address)
}

async fn hub(heard: &[&str], llm: &FakeLlm, config: Config) -> Hub {
    Hub::start(engines(FakeStt::hears(heard.iter().copied()), llm.clone(), FakeTts::default()), config).await
}

async fn calls(hub: &Hub) -> Value {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let answer = reqwest::get(format!("http://{}/v1/realtime/calls", hub.address)).await.expect("an answer");
    answer.json().await.expect("JSON")
}

#[tokio::test(start_paused = true)]
async fn every_codec_carries_a_turn_and_says_what_was_heard() {
    for codec in Codec::ALL {
        let (config, sip) = config();
        let hub = hub(&["what time is it"], &FakeLlm::says(["Ten past ten."]), config).await;
        let mut phone = Phone::connect(sip, Options { codec, ..Options::default() }).await;
        phone.speak(500).await;
        // 650 ms are spoken.
        phone.until("the whole reply is heard", |phone| phone.heard_ms() >= 630).await;
        phone.talk(0.0, 200).await;
        assert!((630..=700).contains(&phone.heard_ms()), "{codec:?}: {} ms", phone.heard_ms());
        let turn = turn(&hub, |turn| turn["settled"] == true && turn["heard_by"] == "report").await;
        assert_eq!(
            (&turn["transcript"], &turn["heard"]),
            (&json!("what time is it"), &json!("Ten past ten.")),
            "{turn}"
        );
        assert_eq!((&turn["transport"], ms(&turn["audio"]["heard_ms"])), (&json!("sip"), 650.0), "{codec:?} {turn}");
        let list = calls(&hub).await;
        assert_eq!(list["data"][0]["transport"], "sip", "{list}");
        phone.send(Method::Bye, "", "").await;
        hub.until("antiphon_sessions_active ", 0.0).await;
        phone.talk(0.0, 40).await;
        assert_eq!(phone.responses.last().and_then(antiphon_sip::Message::status), Some(200));
        assert_eq!(calls(&hub).await["data"], json!([]));
        hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_offer_gets_ours() {
    let (config, sip) = config();
    let hub = hub(&["hello"], &FakeLlm::says(["Hi."]), config).await;
    let mut phone = Phone::connect(sip, Options { offers_late: true, codec: Codec::Pcma, ..Options::default() }).await;
    phone.speak(500).await;
    phone.until("the reply is heard", |phone| phone.heard_ms() >= 130).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_language_of_the_callers_country_is_tried_first() {
    let (config, sip) = config();
    let stt = FakeStt::hears(["hello"]);
    let hub = Hub::start(engines(stt.clone(), FakeLlm::says(["Hi."]), FakeTts::default()), config).await;
    let mut phone = Phone::connect(sip, Options { to: "+4930123", ..Options::default() }).await;
    phone.speak(500).await;
    phone.until("the reply is heard", |phone| phone.heard_ms() >= 130).await;
    let of_caller = SpeakerState::PreferredLanguage("en".into());
    assert_eq!(stt.speakers()[0], Some(of_caller), "of +15550199, not of the number that was called");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn silence_is_sent_where_nothing_is_said() {
    let (config, sip) = config();
    let hub = hub(&[], &FakeLlm::default(), config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.talk(0.0, 2_000).await;
    assert!((95..=102).contains(&phone.n_packets), "{} packets in 2 s", phone.n_packets);
    assert_eq!(phone.heard_ms(), 0);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn comfort_noise_stands_for_silence_where_the_phone_offers_it() {
    let (config, sip) = config();
    let hub = hub(&["a question"], &FakeLlm::says(["Yes."]), config).await;
    let mut phone = Phone::connect(sip, Options { has_noise: true, ..Options::default() }).await;
    phone.talk(0.0, 2_000).await;
    assert!((9..=12).contains(&phone.n_noise) && phone.n_noise == phone.n_packets, "{} in 2 s", phone.n_noise);
    phone.speak(500).await;
    phone.until("the reply is heard", |phone| phone.heard_ms() >= 130).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_fax_machine_that_calls_is_hung_up_on() {
    let (config, sip) = config();
    let hub = hub(&[], &FakeLlm::default(), config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.tone(1_100.0, 500).await;
    phone.talk(0.0, 6_000).await;
    assert!(!phone.is_ended, "one tone may be anything");
    for _ in 0..2 {
        phone.tone(1_100.0, 500).await;
        phone.talk(0.0, 3_000).await;
    }
    assert!(phone.is_ended);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_stops_refuses_calls_and_says_bye() {
    let (config, sip) = config();
    let hub = hub(&["tell me"], &FakeLlm::says(["A longer answer."]), config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.speak(500).await;
    phone.until("the reply begins", |phone| phone.heard_ms() >= 100).await;
    hub.begin_to_stop();
    let (_, answer) = Phone::call(sip, Options::default()).await;
    assert!(matches!(answer, Answer::Refused { status: 503, .. }), "{answer:?}");
    phone.until("the hub hangs up", |phone| phone.is_ended).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_barge_in_stops_the_reply_and_the_history_ends_at_what_was_heard() {
    let (config, sip) = config();
    let llm = FakeLlm::default();
    let long = "long ".repeat(60);
    for text in [long.as_str(), "Fine."] {
        llm.then(words(text));
    }
    let hub = hub(&["tell me", "stop that"], &llm, config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.speak(500).await;
    phone.until("1.3 s of the reply", |phone| phone.heard_ms() >= 1_300).await;
    phone.talk(8_000.0, 600).await;
    let stopped_ms = phone.heard_ms();
    assert!((1_300..2_000).contains(&stopped_ms), "{stopped_ms}");
    phone.talk(0.0, 200).await;
    assert_eq!(phone.heard_ms(), stopped_ms, "nothing more of it");
    phone.until("the next reply", |phone| phone.heard_ms() > stopped_ms + 200).await;
    let (_, list) = get(&hub, "/api/turns").await;
    let cut = list["turns"].as_array().expect("a list").iter().find(|turn| turn["barged_in"] == true);
    let cut = cut.expect("the reply was cut");
    let error = ms(&cut["audio"]["heard_ms"]) - stopped_ms as f64;
    assert!(error.abs() < 150.0, "{error} ms, stopped at {stopped_ms}: {cut}");
    let history = format!("{:?}", llm.requests()[1].messages);
    assert!((stopped_ms / 250).abs_diff(history.matches("long").count()) <= 1, "{history}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn keys_by_rtp_and_by_info_are_a_message_of_the_user() {
    let (config, sip) = config();
    let llm = FakeLlm::says(["Thank you.", "Again."]);
    let hub = hub(&[], &llm, config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.talk(0.0, 200).await;
    for key in [1, 2, 11] {
        phone.press(key).await;
        phone.talk(0.0, 40).await;
    }
    phone.until("the answer", |phone| phone.heard_ms() >= 400).await;
    let history = format!("{:?}", llm.requests()[0].messages);
    assert!(history.contains(": 12#)"), "{history}");
    phone.send(Method::Info, "application/dtmf-relay", "Signal=7\r\nDuration=160\r\n").await;
    phone.until("the second entry", |_| llm.requests().len() == 2).await;
    let history = format!("{:?}", llm.requests()[1].messages);
    assert!(history.contains(": 7)"), "{history}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_ends_the_reply_sends_nothing_and_the_call_goes_on_after_it() {
    let (config, sip) = config();
    let llm = FakeLlm::default();
    let long = "long ".repeat(60);
    for text in [long.as_str(), "Fine."] {
        llm.then(words(text));
    }
    let hub = hub(&["tell me", "are you there"], &llm, config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.speak(500).await;
    phone.until("the reply", |phone| phone.heard_ms() >= 500).await;
    let answer = phone.reinvite("sendonly").await;
    assert!(String::from_utf8_lossy(&answer.body).contains("a=recvonly"));
    phone.talk(0.0, 100).await;
    let n_packets = phone.n_packets;
    // The music of the hold is no speech of the caller; and a hold is longer than a silent call may be.
    phone.talk(8_000.0, 3_000).await;
    tokio::time::sleep(Duration::from_secs(90)).await;
    phone.talk(8_000.0, 1_000).await;
    assert_eq!(phone.n_packets, n_packets, "nobody listens");
    assert!(!phone.is_ended);
    phone.reinvite("sendrecv").await;
    phone.talk(0.0, 500).await;
    assert!(phone.n_packets > n_packets + 20);
    assert_eq!(llm.requests().len(), 1, "the reply is over, and the music was no question");
    phone.speak(500).await;
    phone.until("the next reply", |_| llm.requests().len() == 2).await;
    hub.stop().await;
}

/// A configuration whose calls are greeted, and prompted after 5 s of silence.
pub fn prompting_config() -> (Config, SocketAddr) {
    let (mut config, address) = config();
    let session = json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 5_000}}}});
    let session = session.as_object().expect("an object").clone();
    let route = TelephonyRoute { greeting: "Greet the caller.".into(), session };
    config.telephony.routes.insert("prompting".into(), route);
    config.sip.trunks.get_mut("here").expect("a trunk").route = "prompting".into();
    (config, address)
}

#[tokio::test(start_paused = true)]
async fn a_caller_on_hold_is_not_prompted_and_the_silence_counts_from_its_end() {
    for direction in ["sendonly", "inactive"] {
        let (config, sip) = prompting_config();
        let llm = FakeLlm::says(["Good morning.", "Are you there?"]);
        let hub = hub(&[], &llm, config).await;
        let mut phone = Phone::connect(sip, Options::default()).await;
        phone.until("the greeting", |phone| phone.heard_ms() >= 630).await;
        phone.talk(0.0, 2_000).await;
        phone.reinvite(direction).await;
        phone.talk(0.0, 20_000).await;
        assert_eq!(llm.requests().len(), 1, "{direction}: nobody would hear the prompt");
        phone.reinvite("sendrecv").await;
        phone.talk(0.0, 4_500).await;
        assert_eq!(llm.requests().len(), 1, "{direction}: the hold is no silence of the caller");
        phone.talk(0.0, 1_000).await;
        assert_eq!(llm.requests().len(), 2, "{direction}");
        phone.until("the prompt", |phone| phone.heard_ms() >= 5_000).await;
        hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_before_a_hold_is_answered_after_it() {
    let (config, sip) = config();
    let hub = hub(&["what time is it"], &FakeLlm::says(["Ten past ten."]), config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.talk(8_000.0, 500).await;
    phone.reinvite("inactive").await;
    phone.talk(0.0, 10_000).await;
    assert_eq!(phone.heard_ms(), 0);
    phone.reinvite("sendrecv").await;
    phone.until("the whole answer", |phone| phone.heard_ms() >= 630).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_the_hubs_offer_ends_a_hold() {
    for codec in [Codec::Pcmu, Codec::Opus] {
        let (config, sip) = config();
        let hub = hub(&["are you there"], &FakeLlm::says(["Yes."]), config).await;
        let mut phone = Phone::connect(sip, Options { codec, ..Options::default() }).await;
        phone.reinvite("inactive").await;
        phone.talk(0.0, 100).await;
        let n_packets = phone.n_packets;
        phone.talk(0.0, 500).await;
        assert_eq!(phone.n_packets, n_packets, "on hold");
        phone.reinvite_late().await;
        phone.speak(500).await;
        phone.until("the reply is heard", |phone| phone.heard_ms() >= 130).await;
        hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_begins_on_hold_is_greeted_after_it() {
    let (config, sip) = prompting_config();
    let llm = FakeLlm::says(["Good morning."]);
    let hub = hub(&[], &llm, config).await;
    let mut phone = Phone::connect(sip, Options { is_held: true, ..Options::default() }).await;
    phone.talk(0.0, 3_000).await;
    assert_eq!(llm.requests().len(), 0);
    phone.reinvite("sendrecv").await;
    phone.until("the whole greeting", |phone| phone.heard_ms() >= 630).await;
    hub.stop().await;
}

/// Asks the hub to transfer its only call; the status.
async fn transfer(hub: &Hub, body: Value) -> u16 {
    let list = calls(hub).await;
    let id = list["data"][0]["id"].as_str().expect("an id").to_owned();
    let url = format!("http://{}/v1/realtime/calls/{id}/refer", hub.address);
    let answer = reqwest::Client::new().post(url).json(&body).send().await.expect("an answer");
    answer.status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn a_call_is_transferred_where_the_settings_allow_it() {
    let (mut config, sip) = config();
    config.sip.transfer_to = vec!["tel:+49*".into()];
    let hub = hub(&[], &FakeLlm::default(), config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.talk(0.0, 100).await;
    for (body, status) in [
        (json!({"target_uri": "tel:+33123"}), 403),
        (json!({"target_uri": "no URI"}), 400),
        (json!({"to": "tel:+4930123"}), 400),
    ] {
        assert_eq!(transfer(&hub, body.clone()).await, status, "{body}");
    }
    for (n, outcome) in [(1, "SIP/2.0 486 Busy Here"), (2, "SIP/2.0 200 OK")] {
        let asked = transfer(&hub, json!({"target_uri": "tel:+4930123"}));
        let (status, ()) = tokio::join!(asked, phone.until("REFER", |phone| phone.referred_to().len() == n));
        assert_eq!(status, 200);
        assert!(!phone.is_ended, "until the target has answered");
        phone.send(Method::Notify, "message/sipfrag", outcome).await;
        phone.talk(0.0, 200).await;
    }
    assert_eq!(phone.referred_to(), ["<tel:+4930123>"; 2]);
    phone.until("the hub hangs up", |phone| phone.is_ended).await;
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_a_right_is_refused_and_one_with_the_password_is_not() {
    let (mut config, sip) = config();
    let other = SipTrunk { allow: vec!["203.0.113.0/24".into()], ..SipTrunk::default() };
    config.sip.trunks = [("other".to_owned(), other)].into();
    let refusing = hub(&[], &FakeLlm::default(), config.clone()).await;
    let (_, answer) = Phone::call(sip, Options::default()).await;
    assert!(matches!(answer, Answer::Refused { status: 403, .. }), "{answer:?}");
    assert_eq!(refusing.metric("antiphon_sessions_active "), 0.0);
    refusing.stop().await;

    // The environment of a test is not changed: a variable that cargo sets holds the password.
    let password_env = "CARGO_MANIFEST_DIR".into();
    let trunk = SipTrunk { username: "ann".into(), password_env, ..SipTrunk::default() };
    config.sip.trunks = [("phones".to_owned(), trunk)].into();
    let hub = hub(&["hello"], &FakeLlm::says(["Hi."]), config).await;
    let credentials = |password: &str| Some(Credentials { username: "ann".into(), password: password.into() });
    let (_, answer) = Phone::call(sip, Options { credentials: credentials("wrong"), ..Options::default() }).await;
    assert!(matches!(answer, Answer::Refused { status: 403, .. }), "{answer:?}");
    let password = env!("CARGO_MANIFEST_DIR");
    let mut phone = Phone::connect(sip, Options { credentials: credentials(password), ..Options::default() }).await;
    phone.speak(500).await;
    phone.until("the reply is heard", |phone| phone.heard_ms() >= 130).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_password_of_a_trunk_counts_from_its_reload_on() {
    let (mut config, sip) = config();
    let password_env = "CARGO_MANIFEST_DIR".into();
    let trunk = SipTrunk { username: "ann".into(), password_env, ..SipTrunk::default() };
    config.sip.trunks = [("phones".to_owned(), trunk)].into();
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let (reload, reloads) = tokio::sync::mpsc::channel(1);
    let parts = Parts { config, engines, metrics: Metrics::new(), keys: Keys::default(), tls: None, manager: None };
    let hub = Hub::serve_with(parts, Extras { reloads: Some(reloads), ..Extras::default() }).await;
    let call = async |password: &str| {
        let credentials = Some(Credentials { username: "ann".into(), password: password.into() });
        Phone::call(sip, Options { credentials, ..Options::default() }).await
    };
    let (_first, answer) = call(env!("CARGO_MANIFEST_DIR")).await;
    assert!(matches!(answer, Answer::Accepted), "{answer:?}");
    let trunk_passwords = [("phones".to_owned(), "another".to_owned()), ("none".to_owned(), "a".to_owned())].into();
    reload.send(Reload { trunk_passwords, ..Reload::default() }).await.expect("taken");
    // It is applied once there is room for the next.
    reload.send(Reload::default()).await.expect("taken");
    reload.send(Reload::default()).await.expect("taken");
    let (_, answer) = call(env!("CARGO_MANIFEST_DIR")).await;
    assert!(matches!(answer, Answer::Refused { status: 403, .. }), "{answer:?}");
    let (_second, answer) = call("another").await;
    assert!(matches!(answer, Answer::Accepted), "{answer:?}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_belongs_to_the_key_of_its_trunk_and_a_full_hub_refuses_with_a_time() {
    let (mut config, sip) = config();
    config.server.max_sessions = 1;
    config.sip.trunks.get_mut("here").expect("a trunk").key = "phones".into();
    let keys = Keys::of_text(&key_entry("phones", &key_digest("key-of-the-phones"), &[], None)).expect("a key");
    let engines = engines(FakeStt::hears([]), FakeLlm::default(), FakeTts::default());
    let hub = Hub::with_keys(engines, config, keys).await;
    let _first = Phone::connect(sip, Options::default()).await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let list = reqwest::Client::new()
        .get(format!("http://{}/v1/realtime/calls", hub.address))
        .bearer_auth("key-of-the-phones")
        .send()
        .await
        .expect("an answer");
    let list: Value = list.json().await.expect("JSON");
    assert_eq!(list["data"].as_array().map(Vec::len), Some(1), "{list}");
    let (_, answer) = Phone::call(sip, Options::default()).await;
    assert!(matches!(answer, Answer::Refused { status: 503, retry_after: Some(1..) }), "{answer:?}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_route_greets_a_caller_by_the_number_called_or_by_the_trunk() {
    let (mut config, sip) = config();
    let route = |greeting: &str| TelephonyRoute { greeting: greeting.into(), ..TelephonyRoute::default() };
    config.telephony.routes.insert("+15550100".into(), route("Greet the caller."));
    config.telephony.routes.insert("desk".into(), route("Say that this is the desk."));
    let llm = FakeLlm::says(["Welcome.", "Desk."]);
    let greeting = hub(&[], &llm, config.clone()).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.until("the greeting", |phone| phone.heard_ms() >= 350).await;
    assert!(format!("{:?}", llm.requests()[0]).contains("Greet the caller."));
    greeting.stop().await;
    config.sip.trunks.get_mut("here").expect("a trunk").route = "desk".into();
    let hub = hub(&[], &llm, config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.until("the greeting", |phone| phone.heard_ms() >= 200).await;
    assert!(format!("{:?}", llm.requests()[1]).contains("this is the desk"));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_audio_never_comes_ends_and_a_strangers_audio_is_not_heard() {
    let (config, sip) = config();
    let llm = FakeLlm::default();
    let hub = hub(&["never"], &llm, config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    // 127.0.0.2 is another machine to the hub.
    let stranger = tokio::net::UdpSocket::bind("127.0.0.2:0").await.expect("a port");
    let target = phone.hub_rtp();
    for sequence in 0..100u16 {
        let payload = bytes::Bytes::from(vec![if sequence % 2 == 0 { 0x80 } else { 0x00 }; 160]);
        let timestamp = u32::from(sequence) * 160;
        let packet =
            antiphon_sip::rtp::Packet { payload_type: 0, marker: false, sequence, timestamp, ssrc: 5, payload };
        stranger.send_to(&packet.write(), target).await.expect("sent");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((llm.requests().len(), hub.metric("antiphon_sessions_active ")), (0, 1.0));
    tokio::time::sleep(Duration::from_secs(30)).await;
    hub.until("antiphon_sessions_active ", 0.0).await;
    phone.talk(0.0, 40).await;
    assert!(phone.is_ended, "the hub said BYE");
    hub.stop().await;
}

/// The length from the first loud sample to the last, at 16 kHz, as a phone counts it.
fn loud_ms(samples: &[i16]) -> usize {
    let is_loud = |sample: &i16| sample.unsigned_abs() > 1_000;
    let first = samples.iter().position(is_loud).expect("a voice");
    let last = samples.iter().rposition(is_loud).expect("a voice");
    (last + 1 - first) / 16
}

/// A person's voice, and the real detector.
#[tokio::test(start_paused = true)]
async fn a_line_that_returns_the_hubs_own_voice_interrupts_no_reply_and_is_not_transcribed() {
    let reply = crate::clips::samples("hartmann_15_fawcett_0148.flac");
    for delay_ms in [20, 60, 120] {
        let (mut config, sip) = config();
        let route = TelephonyRoute { greeting: "Read.".into(), ..TelephonyRoute::default() };
        config.telephony.routes.insert("default".into(), route);
        let llm = FakeLlm::says(["Once."]);
        let voice = FakeTts::default().with_sound(Pcm { rate: SampleRate::HZ_16000, samples: reply.clone() });
        let fakes = engines(FakeStt::default(), llm.clone(), voice);
        let hub = Hub::start(Engines { vad: Arc::new(Earshot), ..fakes }, config).await;
        let mut phone = Phone::connect(sip, Options::default()).await;
        let list = calls(&hub).await;
        let id = list["data"][0]["id"].as_str().expect("an id");
        let mut client = hub.connect(&format!("?call_id={id}")).await;
        let mut path = vec![0.0; 8 * delay_ms];
        path.extend(crate::echo::hybrid(12.0));
        phone.echo(&path, reply.len() / 16 + 2_000).await;
        client.send(json!({"type": "input_audio_buffer.clear"})).await;
        let events = client.until("input_audio_buffer.cleared").await;
        let is_of_caller = |event: &&Value| {
            event["type"].as_str().is_some_and(|kind| kind.contains(".speech_") || kind.contains("transcription"))
        };
        let of_caller: Vec<_> = events.iter().filter(is_of_caller).collect();
        assert!(of_caller.is_empty(), "{delay_ms} ms late: {of_caller:?}");
        assert!(phone.heard_ms() + 100 >= loud_ms(&reply), "{delay_ms} ms late: {} ms are heard", phone.heard_ms());
        assert_eq!(llm.requests().len(), 1, "{delay_ms} ms late");
        hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_hangs_up_a_call_by_rest() {
    let (config, sip) = config();
    let hub = hub(&[], &FakeLlm::default(), config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.talk(0.0, 100).await;
    let list = calls(&hub).await;
    let id = list["data"][0]["id"].as_str().expect("an id");
    let url = format!("http://{}/v1/realtime/calls/{id}/hangup", hub.address);
    assert_eq!(reqwest::Client::new().post(url).send().await.expect("an answer").status(), 200);
    phone.until("the hub hangs up", |phone| phone.is_ended).await;
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_answered_is_refused_before_a_place_is_taken() {
    let (mut config, sip) = config();
    config.sip.codecs = vec!["pcma".into()];
    let hub = hub(&[], &FakeLlm::default(), config).await;
    let (_, answer) = Phone::call(sip, Options::default()).await;
    assert!(matches!(answer, Answer::Refused { status: 488, .. }), "{answer:?}");
    assert_eq!(hub.metric("antiphon_sessions_active "), 0.0);
    hub.stop().await;
}
