//! The tools of the model in calls by SIP: what they do, that they wait for the reply, and that they are off by default.

use super::phone::{Options, Phone};
use super::{config, hub};
use antiphon_engine_api::fakes::llm::{FakeLlm, words};
use antiphon_engine_api::llm::LlmDelta;
use antiphon_sip::Method;
use antiphon_types::chat::{ChatRequest, Finish};
use serde_json::{Value, json};

/// A response that says this and then calls a tool.
pub fn says_and_calls(text: &str, name: &str, arguments: &Value) -> Vec<Result<LlmDelta, String>> {
    let mut deltas = words(text);
    deltas.pop();
    let arguments = arguments.to_string();
    deltas.push(Ok(LlmDelta::ToolCall { index: 0, call_id: "call_0".into(), name: name.into(), arguments }));
    deltas.push(Ok(LlmDelta::Done { finish: Finish::ToolCalls, usage: None }));
    deltas
}

pub fn names(request: &ChatRequest) -> Vec<&str> {
    request.tools.iter().map(|tool| tool.name.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_model_hangs_up_once_its_reply_was_heard() {
    let (mut config, sip) = config();
    config.sip.tool_hang_up = true;
    let llm = FakeLlm::default();
    llm.then(says_and_calls("It was a pleasure.", "hang_up", &json!({})));
    let hub = hub(&["bye"], &llm, config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.speak(500).await;
    phone.until("the hub hangs up", |phone| phone.is_ended).await;
    // 18 characters.
    assert!(phone.heard_ms() >= 18 * 50 - 20, "{} ms of the reply were heard", phone.heard_ms());
    assert_eq!(names(&llm.requests()[0]), ["hang_up"]);
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_interrupts_the_goodbye_stays() {
    let (mut config, sip) = config();
    config.sip.tool_hang_up = true;
    let llm = FakeLlm::default();
    llm.then(says_and_calls(&"Goodbye. ".repeat(30), "hang_up", &json!({})));
    llm.then(words("Yes?"));
    let hub = hub(&["bye", "one more thing"], &llm, config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.speak(500).await;
    phone.until("the goodbye begins", |phone| phone.heard_ms() >= 1_000).await;
    phone.speak(700).await;
    phone.until("the next reply is asked for", |_| llm.requests().len() == 2).await;
    phone.talk(0.0, 20_000).await;
    assert!(!phone.is_ended, "the caller is still there");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_model_transfers_a_call_to_whom_the_settings_name() {
    let (mut config, sip) = config();
    config.sip.tool_transfer_call = [("front_desk".to_owned(), "tel:+4930123".to_owned())].into();
    let llm = FakeLlm::default();
    llm.then(says_and_calls("", "transfer_call", &json!({"target": "tel:+33123"})));
    llm.then(says_and_calls("One moment.", "transfer_call", &json!({"target": "front_desk"})));
    let hub = hub(&["to the desk please"], &llm, config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.speak(500).await;
    phone.until("REFER", |phone| !phone.referred_to().is_empty()).await;
    assert_eq!(phone.referred_to(), ["<tel:+4930123>"]);
    assert!(phone.heard_ms() >= 11 * 50 - 20, "{} ms were heard before", phone.heard_ms());
    let requests = llm.requests();
    let parameters = requests[0].tools[0].parameters.value();
    assert_eq!(parameters["properties"]["target"]["enum"], json!(["front_desk"]));
    let told = format!("{:?}", requests[1].messages);
    assert!(told.contains("there is no target of this name; there are: front_desk"), "{told}");
    phone.send(Method::Notify, "message/sipfrag", "SIP/2.0 200 OK").await;
    phone.until("the hub hangs up", |phone| phone.is_ended).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_model_presses_keys_and_is_told_what_came_of_it() {
    let (mut config, sip) = config();
    config.sip.tool_send_dtmf = true;
    let llm = FakeLlm::default();
    llm.then(says_and_calls("", "send_dtmf", &json!({"keys": "1w"})));
    llm.then(says_and_calls("", "send_dtmf", &json!({"keys": "15#"})));
    llm.then(words("Done."));
    let hub = hub(&["press one five"], &llm, config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.speak(500).await;
    phone.until("the model says so", |phone| phone.heard_ms() >= 200).await;
    assert_eq!(phone.keys, "15#");
    let requests = llm.requests();
    let told = |at: usize| format!("{:?}", requests[at].messages);
    assert!(told(1).contains("'keys' is 1 to 32 of 0 to 9"), "{}", told(1));
    assert!(told(2).contains("The keys were pressed."), "{}", told(2));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_settings_and_outside_of_calls_there_are_no_tools() {
    let (config, sip) = config();
    let llm = FakeLlm::says(["Hi."]);
    let calls = hub(&["hello"], &llm, config).await;
    let mut phone = Phone::connect(sip, Options::default()).await;
    phone.speak(500).await;
    phone.until("the reply is heard", |phone| phone.heard_ms() >= 130).await;
    assert!(names(&llm.requests()[0]).is_empty());
    calls.stop().await;

    let (mut config, _) = super::config();
    config.sip.tool_hang_up = true;
    let llm = FakeLlm::says(["Hi."]);
    let hub = hub(&[], &llm, config).await;
    hub.connect("").await.ask("Hello?").await;
    assert!(names(&llm.requests()[0]).is_empty());
    hub.stop().await;
}
