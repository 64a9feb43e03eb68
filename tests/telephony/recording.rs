//! Recorded calls of providers: the notice and the key at each of them, and what clients that have joined see.

use super::phone::{Phone, Provider};
use super::{NUMBER, all, get_text, join, open_config, route};
use crate::hub::{Hub, engines, file_endings};
use antiphon::config::{Config, ConsentMethod};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use serde_json::{Value, json};
use tempfile::TempDir;

/// 1,250 ms of the fake voice.
const NOTICE: &str = "Press one to be recorded.";

/// A configuration whose calls are recorded in this folder where their caller agrees, and greeted.
fn recording_config(folder: &TempDir) -> Config {
    let mut config = open_config();
    config.session.record = folder.path().display().to_string();
    config.telephony.recording_notice = NOTICE.into();
    config.telephony.recording_consent = ConsentMethod::Key;
    config.telephony.routes.insert("default".into(), route("Greet the caller.", json!({})));
    config
}

#[tokio::test(start_paused = true)]
async fn every_provider_says_the_notice_and_takes_the_key() {
    let calls = Provider::ALL.into_iter().map(|provider| async move {
        let folder = tempfile::tempdir().expect("a folder");
        let llm = FakeLlm::says(["Good morning."]);
        let tts = FakeTts::default();
        let engines = engines(FakeStt::default(), llm.clone(), tts.clone());
        let hub = Hub::start(engines, recording_config(&folder)).await;
        let mut phone = Phone::call(hub.address, provider, "", NUMBER).await;
        phone.until("the notice begins", |phone| phone.heard_ms() >= 300).await;
        phone.speak(500).await;
        phone.until("the whole notice", |phone| phone.heard_ms() >= 1_250).await;
        phone.silence(1_000).await;
        assert!(phone.cleared_at.is_empty(), "{provider:?}: speech does not cut it");
        assert_eq!(llm.requests().len(), 0, "{provider:?}: the greeting waits for a key");
        phone.press('1').await;
        phone.until("the greeting is asked for", |_| !llm.requests().is_empty()).await;
        // Longer than the pause that ends an entry of keys.
        phone.silence(1_500).await;
        assert_eq!(llm.requests().len(), 1, "{provider:?}: the key is of no entry");
        assert_eq!(tts.spoken(), [NOTICE, "Good morning."], "{provider:?}");
        let list: Value = serde_json::from_str(&get_text(&hub, "/v1/realtime/calls").await).expect("JSON");
        assert_eq!(list["data"][0]["recording"], "recorded", "{provider:?} {list}");
        phone.stream.close(None).await.expect("it is open");
        hub.until("antiphon_sessions_active ", 0.0).await;
        hub.stop().await;
        assert_eq!(file_endings(folder.path()), ["jsonl"], "{provider:?}: the call was recorded");
    });
    all(calls).await;
}

#[tokio::test(start_paused = true)]
async fn a_greeting_follows_the_notice_after_5_s_at_every_provider() {
    let calls = Provider::ALL.into_iter().map(|provider| async move {
        let folder = tempfile::tempdir().expect("a folder");
        let llm = FakeLlm::says(["Good morning."]);
        let engines = engines(FakeStt::default(), llm.clone(), FakeTts::default());
        let hub = Hub::start(engines, recording_config(&folder)).await;
        let mut phone = Phone::call(hub.address, provider, "", NUMBER).await;
        phone.until("the whole notice", |phone| phone.heard_ms() >= 1_250).await;
        phone.silence(4_500).await;
        assert_eq!(llm.requests().len(), 0, "{provider:?}");
        phone.silence(1_000).await;
        assert_eq!(llm.requests().len(), 1, "{provider:?}");
        phone.stream.close(None).await.expect("it is open");
        hub.until("antiphon_sessions_active ", 0.0).await;
        hub.stop().await;
        assert!(file_endings(folder.path()).is_empty(), "{provider:?}: the caller has not agreed");
    });
    all(calls).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_decides_is_an_event_and_no_message() {
    let folder = tempfile::tempdir().expect("a folder");
    let llm = FakeLlm::says(["Good morning."]);
    let engines = engines(FakeStt::default(), llm.clone(), FakeTts::default());
    let hub = Hub::start(engines, recording_config(&folder)).await;
    let mut phone = Phone::call(hub.address, Provider::Twilio, "", NUMBER).await;
    phone.silence(200).await;
    let mut client = join(&hub).await;
    phone.press('2').await;
    let talk = async {
        loop {
            phone.silence(20).await;
        }
    };
    let seen = async {
        let mut events = client.until("input_audio_buffer.dtmf_event_received").await;
        assert_eq!(events.last().expect("an event")["event"], "2");
        // The greeting follows. The response of the notice may have been done before the client joined.
        while !events.iter().any(|event| event.to_string().contains("Good morning.")) {
            events.extend(client.until("response.done").await);
        }
        events
    };
    let events = tokio::select! {
        events = seen => events,
        () = talk => unreachable!("it goes on"),
    };
    assert!(!format!("{events:?}").contains("pressed these keys"), "{events:?}");
    assert_eq!(llm.requests().len(), 1);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_a_client_clears_was_not_heard_and_the_call_is_not_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let llm = FakeLlm::says(["Good morning."]);
    let engines = engines(FakeStt::default(), llm.clone(), FakeTts::default());
    let mut config = recording_config(&folder);
    config.telephony.recording_consent = ConsentMethod::None;
    let hub = Hub::start(engines, config).await;
    let mut phone = Phone::call(hub.address, Provider::Twilio, "", NUMBER).await;
    phone.silence(200).await;
    let mut client = join(&hub).await;
    phone.until("the notice begins", |phone| phone.heard_ms() >= 100).await;
    client.send(json!({"type": "output_audio_buffer.clear"})).await;
    phone.until("the notice is cleared", |phone| !phone.cleared_at.is_empty()).await;
    phone.until("the greeting is asked for", |_| !llm.requests().is_empty()).await;
    let list: Value = serde_json::from_str(&get_text(&hub, "/v1/realtime/calls").await).expect("JSON");
    assert_eq!(list["data"][0]["recording"], "refused", "{list}");
    phone.stream.close(None).await.expect("it is open");
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.stop().await;
    assert!(file_endings(folder.path()).is_empty());
}
