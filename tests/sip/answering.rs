//! Who answers calls out, and what the hub does about it.

use super::calling::call;
use super::incoming::Receiver;
use super::phone::Phone;
use super::{config, soon};
use crate::hub::{Hub, engines, file_endings};
use antiphon::config::{Config, ConsentMethod, OnVoicemail};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::stt::SpeakerState;
use antiphon_sip::sdp::Codec;
use antiphon_sip::{Message, Method};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UdpSocket;

const MACHINE: &str = "You've reached Anna. Please leave a message after the tone.";

/// A call of the hub that was answered.
struct AnsweredCall {
    hub: Hub,
    phone: Phone,
    id: String,
    stt: FakeStt,
    llm: FakeLlm,
    tts: FakeTts,
}

impl AnsweredCall {
    /// Who is called speaks these words.
    async fn new(mut config: Config, words: &[&str], reply: &str, body: Value) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        config.sip.call_to = vec!["tel:+49*".into()];
        config.sip.trunks.get_mut("here").expect("a trunk").host = socket.local_addr().expect("bound").to_string();
        let codec = Codec::of(&config.sip.codecs[0]).expect("a codec");
        let llm = FakeLlm::says([reply]);
        let stt = FakeStt::hears(words.iter().copied()).with_partials();
        let tts = FakeTts::default();
        let hub = Hub::start(engines(stt.clone(), llm.clone(), tts.clone()), config).await;
        let mut asked = json!({"to": "tel:+4930123", "greeting": "Say good morning."});
        let fields = body.as_object().expect("fields").clone();
        asked.as_object_mut().expect("fields").extend(fields);
        let (status, answer) = call(&hub, asked).await;
        assert_eq!(status, 201, "{answer}");
        let id = answer["id"].as_str().expect("an id").to_owned();
        let mut buffer = [0; 4_096];
        let (n, from) = soon("an INVITE", socket.recv_from(&mut buffer)).await.expect("a message");
        let invite = Message::parse(&buffer[..n]).expect("a message");
        assert_eq!(invite.method(), Some(Method::Invite));
        let phone = Phone::answer(socket, from, &invite, codec).await;
        Self { hub, phone, id, stt, llm, tts }
    }

    async fn described(&self) -> Value {
        let url = format!("http://{}/v1/realtime/calls/{}", self.hub.address, self.id);
        reqwest::get(url).await.expect("an answer").json().await.expect("JSON")
    }

    /// The instructions and messages of a request to the model.
    fn request(&self, at: usize) -> String {
        format!("{:?}", self.llm.requests()[at])
    }
}

fn setting(on_voicemail: OnVoicemail, codec: &str) -> Config {
    let (mut config, _) = config();
    config.sip.on_voicemail = on_voicemail;
    config.sip.codecs = vec![codec.into()];
    config
}

#[tokio::test(start_paused = true)]
async fn a_message_is_left_on_a_machine_after_its_beep() {
    for codec in ["pcmu", "g722", "opus"] {
        let config = setting(OnVoicemail::LeaveMessage, codec);
        let message = json!({"voicemail_message": "Say that the bread is ready."});
        let mut call = AnsweredCall::new(config, &[MACHINE], "Your bread is ready.", message).await;
        call.phone.voice(3_000).await;
        call.phone.talk(0.0, 1_000).await;
        assert_eq!(call.described().await["answered_by"], "voicemail", "{codec}");
        assert_eq!((call.llm.requests().len(), call.phone.heard_ms()), (0, 0), "{codec}: the machine is not talked to");
        call.phone.tone(1_000.0, 400).await;
        call.phone.until("the hub hangs up", |phone| phone.is_ended).await;
        // 20 characters.
        assert!((980..=1_100).contains(&call.phone.heard_ms()), "{codec}: {} ms", call.phone.heard_ms());
        assert!(call.request(0).contains("Say that the bread is ready."), "{}", call.request(0));
        call.hub.until("antiphon_sessions_active ", 0.0).await;
        let ended = call.described().await;
        assert_eq!((&ended["state"], &ended["answered_by"]), (&json!("ended"), &json!("voicemail")));
        call.hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_hung_up_on_without_a_word() {
    // The request has precedence over the settings.
    let config = setting(OnVoicemail::AskModel, "pcma");
    let mut call = AnsweredCall::new(config, &[MACHINE], "Hello.", json!({"on_voicemail": "hang_up"})).await;
    call.phone.voice(1_500).await;
    call.phone.until("the hub hangs up", |phone| phone.is_ended).await;
    assert_eq!((call.llm.requests().len(), call.phone.heard_ms()), (0, 0));
    call.hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_model_decides_what_to_say_to_a_machine() {
    let config = setting(OnVoicemail::AskModel, "pcmu");
    let mut call = AnsweredCall::new(config, &[MACHINE], "It is me.", json!({})).await;
    call.phone.voice(3_000).await;
    call.phone.talk(0.0, 600).await;
    call.phone.tone(850.0, 300).await;
    call.phone.until("the message is heard", |phone| phone.heard_ms() >= 400).await;
    assert!(call.request(0).contains("An answering machine has answered"), "{}", call.request(0));
    call.phone.talk(0.0, 3_000).await;
    assert!(!call.phone.is_ended, "the model has not hung up");
    call.hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_person_is_greeted_once_they_have_spoken() {
    let config = setting(OnVoicemail::HangUp, "pcmu");
    let mut call = AnsweredCall::new(config, &["Hello?"], "Good morning.", json!({})).await;
    call.phone.voice(500).await;
    call.phone.until("the greeting is heard", |phone| phone.heard_ms() >= 600).await;
    assert!(call.request(0).contains("Say good morning."), "{}", call.request(0));
    assert_eq!(call.llm.requests().len(), 1);
    let of_number = SpeakerState::PreferredLanguage("de".into());
    assert_eq!(call.stt.speakers()[0], Some(of_number), "that of the number is tried first");
    call.phone.talk(0.0, 1_000).await;
    assert_eq!(call.described().await["answered_by"], "person");
    call.hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_greeted_and_unknown() {
    let config = setting(OnVoicemail::LeaveMessage, "pcmu");
    let mut call = AnsweredCall::new(config, &[], "Good morning.", json!({})).await;
    call.phone.talk(0.0, 1_900).await;
    assert_eq!(call.phone.heard_ms(), 0);
    call.phone.until("the greeting is heard", |phone| phone.heard_ms() >= 600).await;
    call.phone.talk(0.0, 2_000).await;
    assert_eq!(call.described().await["answered_by"], "unknown");
    call.hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_fax_machine_ends_the_call() {
    let config = setting(OnVoicemail::GoOn, "pcma");
    let mut call = AnsweredCall::new(config, &[], "Good morning.", json!({})).await;
    call.phone.tone(2_100.0, 2_400).await;
    call.phone.until("the hub hangs up", |phone| phone.is_ended).await;
    call.hub.until("antiphon_sessions_active ", 0.0).await;
    assert_eq!(call.described().await["answered_by"], "fax");
    call.hub.stop().await;
}

/// 1,250 ms of the fake voice.
const NOTICE: &str = "Press one to be recorded.";

/// The same settings, with which calls are recorded in this folder where the other side agrees.
fn recording(on_voicemail: OnVoicemail, folder: &TempDir) -> Config {
    let mut config = setting(on_voicemail, "pcmu");
    config.session.record = folder.path().display().to_string();
    config.telephony.recording_notice = NOTICE.into();
    config.telephony.recording_consent = ConsentMethod::Key;
    config
}

#[tokio::test(start_paused = true)]
async fn a_person_hears_the_notice_before_any_reply() {
    for on_voicemail in [OnVoicemail::HangUp, OnVoicemail::GoOn] {
        let folder = tempfile::tempdir().expect("a folder");
        let config = recording(on_voicemail, &folder);
        let mut call = AnsweredCall::new(config, &["Hello?"], "Good morning.", json!({})).await;
        if on_voicemail != OnVoicemail::GoOn {
            call.phone.voice(500).await;
        }
        call.phone.until("the notice", |phone| phone.heard_ms() >= 1_200).await;
        call.phone.talk(0.0, 1_000).await;
        assert_eq!(call.llm.requests().len(), 0, "what was said before the notice is not answered");
        assert!((1_200..=1_300).contains(&call.phone.heard_ms()), "{} ms", call.phone.heard_ms());
        assert_eq!(call.described().await["recording"], "waiting");
        call.phone.press(1).await;
        call.phone.until("the greeting", |phone| phone.heard_ms() >= 2_500).await;
        assert_eq!(call.described().await["recording"], "recorded");
        assert_eq!(call.llm.requests().len(), 1);
        assert!(call.request(0).contains("Say good morning."), "{}", call.request(0));
        call.hub.stop().await;
        assert_eq!(file_endings(folder.path()), ["jsonl"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_hears_its_message_without_a_notice_and_is_not_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = recording(OnVoicemail::LeaveMessage, &folder);
    let mut call = AnsweredCall::new(config, &[MACHINE], "Your bread is ready.", json!({})).await;
    call.phone.voice(3_000).await;
    call.phone.talk(0.0, 1_000).await;
    call.phone.tone(1_000.0, 400).await;
    call.phone.until("the hub hangs up", |phone| phone.is_ended).await;
    // 20 characters.
    assert!((980..=1_100).contains(&call.phone.heard_ms()), "{} ms", call.phone.heard_ms());
    call.hub.until("antiphon_sessions_active ", 0.0).await;
    let ended = call.described().await;
    assert_eq!((&ended["answered_by"], &ended["recording"]), (&json!("voicemail"), &json!("refused")));
    call.hub.stop().await;
    assert!(file_endings(folder.path()).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_menu_hears_no_notice_and_the_call_is_not_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = recording(OnVoicemail::HangUp, &folder);
    config.telephony.recording_consent = ConsentMethod::None;
    let mut call = AnsweredCall::new(config, &["For sales, press one."], "Sales, please.", json!({})).await;
    call.phone.voice(1_500).await;
    call.phone.until("the model speaks", |phone| phone.heard_ms() >= 500).await;
    assert!(!call.tts.spoken().contains(&NOTICE.to_owned()), "{:?}", call.tts.spoken());
    let described = call.described().await;
    assert_eq!((&described["answered_by"], &described["recording"]), (&json!("ivr"), &json!("refused")));
    call.hub.stop().await;
    assert!(file_endings(folder.path()).is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_answers_is_reported_to_clients_and_by_webhook() {
    let mut receiver = Receiver::new(&[]).await;
    let (mut config, _) = receiver.config();
    config.sip.webhook_events = vec!["states".into()];
    config.sip.codecs = vec!["pcmu".into()];
    let mut call = AnsweredCall::new(config, &["For sales, press one."], "One.", json!({"greeting": null})).await;
    call.phone.talk(0.0, 200).await;
    let mut client = call.hub.connect(&format!("?call_id={}", call.id)).await;
    call.phone.voice(1_500).await;
    call.phone.talk(0.0, 1_000).await;
    let events = client.until("antiphon.call.answered_by").await;
    assert_eq!(events.last().expect("an event")["answered_by"], "ivr");
    assert_eq!(receiver.next().await.event["type"], "call.answered");
    let event = receiver.next().await.event;
    let expect = json!({"call_id": call.id, "direction": "out", "answered_by": "ivr"});
    assert_eq!((&event["type"], &event["data"]), (&json!("call.answered_by"), &expect));
    let url = format!("http://{}/v1/realtime/calls/{}/hangup", call.hub.address, call.id);
    assert_eq!(reqwest::Client::new().post(url).send().await.expect("an answer").status(), 200);
    let event = receiver.next().await.event;
    let expect = json!({"call_id": call.id, "direction": "out"});
    assert_eq!((&event["type"], &event["data"]), (&json!("call.ended"), &expect));
    call.hub.stop().await;
}
