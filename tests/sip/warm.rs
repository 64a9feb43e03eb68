//! Warm transfers: the hub calls the target, tells it the summary, and connects it with the caller.

use super::calling::{self, Callee};
use super::incoming::Receiver;
use super::phone::{Options, Phone};
use super::tools::{names, says_and_calls};
use super::{calls, config, prompting_config, soon};
use crate::hub::{Hub, engines, file_endings};
use antiphon::config::{Config, TransferKind};
use antiphon_engine_api::fakes::llm::{FakeLlm, words};
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_sip::Method;
use antiphon_sip::sdp::Codec;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::UdpSocket;

const TARGET: &str = "tel:+4930123";
/// 900 ms of the fake voice.
const SUMMARY: &str = "Ann asks for cake.";
/// What the caller and the target say, in Hz, which the other one hears.
const CALLER_HZ: f32 = 1_000.0;
const TARGET_HZ: f32 = 600.0;

/// A caller at a hub that may transfer the call to a callee.
struct WarmCall {
    hub: Hub,
    caller: Phone,
    callee: Callee,
    llm: FakeLlm,
    id: String,
}

impl WarmCall {
    async fn new(heard: &[&str], change: impl FnOnce(&mut Config)) -> Self {
        let (config, sip) = config();
        let llm = FakeLlm::says(["Yes, I am.", "Still."]);
        Self::with(config, sip, heard, llm, Options::default(), change).await
    }

    async fn with(
        mut config: Config,
        sip: SocketAddr,
        heard: &[&str],
        llm: FakeLlm,
        options: Options,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        config.sip.trunks.get_mut("here").expect("a trunk").host = socket.local_addr().expect("bound").to_string();
        config.sip.transfer_to = vec!["tel:+49*".into(), "tel:+15550199".into()];
        change(&mut config);
        let stt = FakeStt::hears(heard.iter().copied()).with_partials();
        let hub = Hub::start(engines(stt, llm.clone(), FakeTts::default()), config).await;
        let mut caller = Phone::connect(sip, options).await;
        caller.talk(0.0, 100).await;
        let id = calls(&hub).await["data"][0]["id"].as_str().expect("an id").to_owned();
        Self { hub, caller, callee: Callee::of(socket), llm, id }
    }

    /// Asks for a transfer; status and code of the error.
    fn refer(&self, body: Value) -> impl Future<Output = (u16, Value)> + use<> {
        let url = format!("http://{}/v1/realtime/calls/{}/refer", self.hub.address, self.id);
        async move {
            let answer = reqwest::Client::new().post(url).json(&body).send().await.expect("an answer");
            let status = answer.status().as_u16();
            let body: Value = answer.json().await.unwrap_or_default();
            (status, body["error"]["code"].clone())
        }
    }

    fn refer_warm(&self) -> impl Future<Output = (u16, Value)> + use<> {
        self.refer(json!({"target_uri": TARGET, "warm": {"summary": SUMMARY}}))
    }

    async fn described(&self, id: &str) -> Value {
        let url = format!("http://{}/v1/realtime/calls/{id}", self.hub.address);
        let answer = soon("a call's description", reqwest::get(url)).await;
        answer.expect("an answer").json().await.expect("JSON")
    }

    /// The id of the call to the target.
    async fn target_id(&self) -> String {
        let list = calls(&self.hub).await;
        let other = list["data"].as_array().expect("a list").iter().find(|call| call["id"] != self.id.as_str());
        other.and_then(|call| call["id"].as_str()).expect("the call to the target").to_owned()
    }

    /// A person answers the call to the target, hears the summary, and is connected with the caller.
    async fn connect(&mut self, codec: Codec) -> Phone {
        let asked = self.refer_warm();
        let Self { caller, callee, .. } = self;
        let answered = async {
            let mut target = callee.pick_up(codec).await;
            target.voice(500).await;
            target.until("the summary", |target| target.heard_ms() >= 850).await;
            target
        };
        let talk = async {
            let connected = async { tokio::join!(asked, answered) };
            let ((status, code), mut target) = connected.await;
            assert_eq!(status, 200, "{code}");
            target.talk(0.0, 20).await;
            target
        };
        beside(caller, talk).await
    }

    async fn end(self) {
        self.hub.until("antiphon_sessions_active ", 0.0).await;
        self.hub.stop().await;
    }
}

/// Does something while a phone is silent.
async fn beside<T>(phone: &mut Phone, work: impl Future<Output = T>) -> T {
    let silence = async {
        loop {
            phone.talk(0.0, 20).await;
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        () = silence => unreachable!("it goes on"),
    }
}

/// Both say something at the same time, and are heard by each other.
async fn hear_each_other(caller: &mut Phone, target: &mut Phone) {
    tokio::join!(caller.tone(CALLER_HZ, 800), target.tone(TARGET_HZ, 800));
    assert!(target.hears(CALLER_HZ), "the target hears the caller");
    assert!(caller.hears(TARGET_HZ), "the caller hears the target");
}

#[tokio::test(start_paused = true)]
async fn the_model_transfers_a_call_warm_and_leaves() {
    for (of_caller, of_target) in [(Codec::Pcmu, Codec::Opus), (Codec::G722, Codec::Pcma)] {
        let mut receiver = Receiver::new(&[]).await;
        let (mut config, sip) = receiver.config();
        config.sip.webhook_events = vec!["states".into()];
        config.sip.tool_transfer_kind = TransferKind::Warm;
        config.sip.tool_transfer_call = [("front_desk".to_owned(), TARGET.to_owned())].into();
        let llm = FakeLlm::default();
        let arguments = json!({"target": "front_desk", "summary": SUMMARY});
        llm.then(says_and_calls("One moment.", "transfer_call", &arguments));
        let heard = ["to the desk please", "Hello?"];
        let options = Options { codec: of_caller, ..Options::default() };
        let mut call = WarmCall::with(config, sip, &heard, llm, options, |_| {}).await;
        call.caller.speak(500).await;
        let invite = beside(&mut call.caller, call.callee.next(Method::Invite)).await;
        assert!(call.caller.heard_ms() >= 11 * 50 - 20, "{} ms were heard before", call.caller.heard_ms());
        let parameters = call.llm.requests()[0].tools[0].parameters.value().clone();
        assert_eq!(parameters["required"], json!(["target", "summary"]));
        assert_eq!(names(&call.llm.requests()[0]), ["transfer_call"]);
        let mut target = call.callee.answer_call(&invite, of_target).await;
        let target_id = call.target_id().await;
        let heard_ms = call.caller.heard_ms();
        let told = async {
            target.voice(500).await;
            target.until("the summary", |target| target.heard_ms() >= 850).await;
            target.talk(0.0, 1_000).await;
        };
        beside(&mut call.caller, told).await;
        assert!((880..=960).contains(&target.heard_ms()), "{} ms", target.heard_ms());
        // The end of what was said before may have been on its way.
        assert!(call.caller.heard_ms() <= heard_ms + 20, "the caller hears nothing of it");
        hear_each_other(&mut call.caller, &mut target).await;

        let described = call.described(&call.id).await;
        assert_eq!((&described["state"], &described["connected_to"]), (&json!("transferred"), &json!(target_id)));
        let described = call.described(&target_id).await;
        assert_eq!((&described["state"], &described["connected_to"]), (&json!("transferred"), &json!(call.id)));
        assert_eq!(call.llm.requests().len(), 1, "the agent has left");
        call.caller.press(5).await;
        tokio::join!(call.caller.talk(0.0, 400), target.talk(0.0, 400));
        assert_eq!(target.keys, "5");

        assert!(call.caller.referred_to().is_empty(), "the trunk is not asked to connect them");
        target.send(Method::Bye, "", "").await;
        let ended = call.caller.until("the caller is hung up on", |caller| caller.is_ended);
        tokio::join!(ended, target.talk(0.0, 100));
        call.hub.until("antiphon_sessions_active ", 0.0).await;
        assert_eq!(call.described(&target_id).await["state"], "ended");
        let mut posted = Vec::new();
        for _ in 0..7 {
            let event = receiver.next().await.event;
            let whose = if event["data"]["call_id"] == call.id.as_str() { "caller" } else { "target" };
            posted.push(format!("{whose} {}", event["type"].as_str().expect("a type")));
        }
        posted.sort();
        let expected = [
            "caller call.answered",
            "caller call.ended",
            "caller call.transferred",
            "target call.answered",
            "target call.answered_by",
            "target call.ended",
            "target call.transferred",
        ];
        assert_eq!(posted, expected);
        call.hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_target_is_not_there_comes_back() {
    for (status, code) in
        [(486, "target_busy"), (603, "target_declined"), (480, "target_no_answer"), (404, "target_failed")]
    {
        let mut call = WarmCall::new(&["are you there"], |_| {}).await;
        let asked = call.refer_warm();
        let WarmCall { caller, callee, .. } = &mut call;
        let refused = async {
            let invite = callee.next(Method::Invite).await;
            callee.answer(&invite, 180).await;
            // The caller waits, and is not heard.
            caller.speak(700).await;
            caller.press(1).await;
            caller.talk(0.0, 1_000).await;
            callee.answer(&invite, status).await;
            beside(caller, callee.next(Method::Ack)).await;
        };
        let (answer, ()) = tokio::join!(asked, refused);
        assert_eq!(answer, (502, json!(code)));
        assert_eq!(call.llm.requests().len(), 0, "the caller was not heard while it waited");
        call.caller.speak(500).await;
        call.caller.until("the reply", |caller| caller.heard_ms() >= 300).await;
        assert_eq!(call.described(&call.id).await["state"], "in_progress");
        call.caller.send(Method::Bye, "", "").await;
        call.caller.talk(0.0, 40).await;
        call.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_waits_is_not_prompted_and_the_silence_counts_from_its_return() {
    let (config, sip) = prompting_config();
    let llm = FakeLlm::says(["Good morning.", "Are you there?"]);
    let mut call = WarmCall::with(config, sip, &["Hello?"], llm, Options::default(), |_| {}).await;
    call.caller.until("the greeting", |caller| caller.heard_ms() >= 630).await;
    call.caller.talk(0.0, 2_000).await;
    let asked = call.refer_warm();
    let WarmCall { caller, callee, llm, .. } = &mut call;
    let waits = async {
        let invite = callee.next(Method::Invite).await;
        callee.answer(&invite, 180).await;
        caller.talk(0.0, 20_000).await;
        let mut target = callee.answer_call(&invite, Codec::Pcmu).await;
        let told = async {
            target.voice(500).await;
            target.until("the summary begins", |target| target.heard_ms() >= 200).await;
            target.send(Method::Bye, "", "").await;
            target.talk(0.0, 40).await;
        };
        beside(caller, told).await;
        assert_eq!(llm.requests().len(), 1, "a caller who waits is not prompted");
    };
    let (answer, ()) = tokio::join!(asked, waits);
    assert_eq!(answer, (502, json!("target_hung_up")));
    call.caller.talk(0.0, 4_500).await;
    assert_eq!(call.llm.requests().len(), 1, "the silence counts from the return");
    call.caller.talk(0.0, 1_000).await;
    assert_eq!(call.llm.requests().len(), 2);
    call.hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_target_hears_no_notice_of_a_recording_and_is_not_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = |config: &mut Config| {
        config.session.record = folder.path().display().to_string();
        config.telephony.recording_notice = "This call is recorded.".into();
    };
    let mut call = WarmCall::new(&["Hello?"], record).await;
    call.caller.until("the notice", |caller| caller.heard_ms() >= 1_080).await;
    call.caller.talk(0.0, 500).await;
    let mut target = call.connect(Codec::Pcmu).await;
    assert!((850..=960).contains(&target.heard_ms()), "the summary alone: {} ms", target.heard_ms());
    let target_id = call.target_id().await;
    assert_eq!(call.described(&call.id).await["recording"], "recorded");
    assert_eq!(call.described(&target_id).await["recording"], "none");
    target.send(Method::Bye, "", "").await;
    let ended = call.caller.until("the caller is hung up on", |caller| caller.is_ended);
    tokio::join!(ended, target.talk(0.0, 100));
    call.end().await;
    assert_eq!(file_endings(folder.path()), ["jsonl"], "the log of the caller's session");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_holds_the_call_hears_the_whole_summary_after_it() {
    for heard_before_ms in [0, 200] {
        let mut call = WarmCall::new(&[], |_| {}).await;
        let asked = call.refer_warm();
        let WarmCall { caller, callee, .. } = &mut call;
        let held = async {
            let mut target = callee.pick_up(Codec::Pcmu).await;
            if heard_before_ms == 0 {
                target.talk(0.0, 1_000).await;
            }
            target.until("the summary begins", |target| target.heard_ms() >= heard_before_ms).await;
            target.reinvite("sendonly").await;
            target.talk(0.0, 200).await;
            target.heard.clear();
            target.talk(0.0, 20_000).await;
            assert_eq!(target.heard_ms(), 0);
            target.reinvite("sendrecv").await;
            target.until("the whole summary", |target| target.heard_ms() >= 850).await;
            target
        };
        let ((status, code), mut target) = beside(caller, async { tokio::join!(asked, held) }).await;
        assert_eq!((status, code), (200, Value::Null), "{heard_before_ms}");
        hear_each_other(&mut call.caller, &mut target).await;
        call.hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_model_learns_why_a_transfer_failed() {
    let (mut config, sip) = config();
    config.sip.tool_transfer_kind = TransferKind::Warm;
    config.sip.tool_transfer_call = [("front_desk".to_owned(), TARGET.to_owned())].into();
    let llm = FakeLlm::default();
    llm.then(says_and_calls("", "transfer_call", &json!({"target": "front_desk", "summary": " "})));
    llm.then(says_and_calls("", "transfer_call", &json!({"target": "front_desk", "summary": SUMMARY})));
    llm.then(words("They are busy."));
    let mut call = WarmCall::with(config, sip, &["to the desk"], llm, Options::default(), |_| {}).await;
    call.caller.speak(500).await;
    let refused = async {
        let invite = call.callee.next(Method::Invite).await;
        call.callee.answer(&invite, 486).await;
        call.callee.next(Method::Ack).await;
    };
    beside(&mut call.caller, refused).await;
    call.caller.until("the model says so", |caller| caller.heard_ms() >= 600).await;
    let requests = call.llm.requests();
    let told = |at: usize| format!("{:?}", requests[at].messages);
    assert!(told(1).contains("'summary' is a text of 1 to 1000 bytes"), "{}", told(1));
    assert!(told(2).contains("the target is busy; the caller is back with you"), "{}", told(2));
    call.hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_no_target_and_neither_is_who_hangs_up_at_once() {
    let machine = "You've reached Anna. Please leave a message after the tone.";
    for (words, code) in [(machine, "target_machine"), ("Hello?", "target_hung_up")] {
        let mut call = WarmCall::new(&[words], |_| {}).await;
        let asked = call.refer_warm();
        let WarmCall { caller, callee, .. } = &mut call;
        let answered = async {
            let mut target = callee.pick_up(Codec::Pcmu).await;
            if words == machine {
                target.voice(3_000).await;
                target.until("the hub hangs up", |target| target.is_ended).await;
                assert_eq!(target.heard_ms(), 0, "a machine is told nothing");
            } else {
                target.talk(0.0, 100).await;
                target.send(Method::Bye, "", "").await;
                target.talk(0.0, 40).await;
            }
        };
        let (answer, ()) = beside(caller, async { tokio::join!(asked, answered) }).await;
        assert_eq!(answer, (502, json!(code)));
        assert!(!call.caller.is_ended);
        call.hub.until("antiphon_sessions_active ", 1.0).await;
        call.hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_does_not_answer_is_given_up_after_a_minute() {
    let mut call = WarmCall::new(&[], |_| {}).await;
    let asked = call.refer_warm();
    let WarmCall { caller, callee, .. } = &mut call;
    let rings = async {
        let invite = callee.next(Method::Invite).await;
        callee.answer(&invite, 180).await;
        tokio::time::sleep(Duration::from_secs(59)).await;
        let cancel = callee.next(Method::Cancel).await;
        callee.answer(&cancel, 200).await;
        callee.answer(&invite, 487).await;
        callee.next(Method::Ack).await;
    };
    let (answer, ()) = beside(caller, async { tokio::join!(asked, rings) }).await;
    assert_eq!(answer, (502, json!("target_no_answer")));
    call.hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_hangs_up_ends_the_call_to_the_target() {
    // While it rings.
    let mut call = WarmCall::new(&[], |_| {}).await;
    let asked = call.refer_warm();
    let WarmCall { caller, callee, .. } = &mut call;
    let rings = async {
        let invite = callee.next(Method::Invite).await;
        callee.answer(&invite, 180).await;
        caller.send(Method::Bye, "", "").await;
        let cancel = beside(caller, callee.next(Method::Cancel)).await;
        callee.answer(&cancel, 200).await;
        callee.answer(&invite, 487).await;
    };
    let (answer, ()) = tokio::join!(asked, rings);
    assert_eq!(answer, (404, json!("call_id_not_found")));
    call.end().await;

    // While the summary is said.
    let mut call = WarmCall::new(&["Hello?"], |_| {}).await;
    let asked = call.refer_warm();
    let WarmCall { caller, callee, .. } = &mut call;
    let told = async {
        let mut target = beside(caller, callee.pick_up(Codec::Pcmu)).await;
        let begins = async {
            target.voice(500).await;
            target.until("the summary begins", |target| target.heard_ms() >= 200).await;
        };
        beside(caller, begins).await;
        caller.send(Method::Bye, "", "").await;
        let ended = target.until("the target is hung up on", |target| target.is_ended);
        tokio::join!(ended, caller.talk(0.0, 40));
        assert!(target.heard_ms() < 800, "{} ms", target.heard_ms());
    };
    let (answer, ()) = tokio::join!(asked, told);
    assert_eq!(answer, (404, json!("call_id_not_found")));
    call.end().await;

    // While they are connected.
    let mut call = WarmCall::new(&["Hello?"], |_| {}).await;
    let mut target = call.connect(Codec::Pcma).await;
    hear_each_other(&mut call.caller, &mut target).await;
    call.caller.send(Method::Bye, "", "").await;
    let ended = target.until("the target is hung up on", |target| target.is_ended);
    tokio::join!(ended, call.caller.talk(0.0, 40));
    call.end().await;
}

/// A caller and a target whose trunk may connect them; the hub has asked for that.
async fn referred(refer_status: u16) -> (WarmCall, Phone) {
    let change = |config: &mut Config| config.sip.trunks.get_mut("here").expect("a trunk").refer_replaces = true;
    let mut call = WarmCall::new(&["Hello?"], change).await;
    call.caller.refer_status = refer_status;
    let mut target = call.connect(Codec::Pcmu).await;
    hear_each_other(&mut call.caller, &mut target).await;
    assert_eq!(call.caller.referred_to(), [target.refer_to()]);
    assert!(target.referred_to().is_empty());
    (call, target)
}

#[tokio::test(start_paused = true)]
async fn a_trunk_connects_its_calls_without_the_hub() {
    for target_is_first in [false, true] {
        let (mut call, mut target) = referred(202).await;
        if target_is_first {
            // It is in the other call now.
            target.send(Method::Bye, "", "").await;
            tokio::join!(call.caller.talk(0.0, 200), target.talk(0.0, 200));
        }
        assert!(!call.caller.is_ended, "not before its side says so");
        call.caller.send(Method::Notify, "message/sipfrag", "SIP/2.0 200 OK").await;
        let ended = call.caller.until("the caller is hung up on", |caller| caller.is_ended);
        let others = async {
            if !target_is_first {
                target.until("the target is hung up on", |target| target.is_ended).await;
            }
        };
        tokio::join!(ended, others);
        call.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_trunk_that_does_not_connect_its_calls_leaves_them_to_the_hub() {
    for (status, outcome) in [(603, ""), (202, "SIP/2.0 420 Bad Extension")] {
        let (mut call, mut target) = referred(status).await;
        if !outcome.is_empty() {
            call.caller.send(Method::Notify, "message/sipfrag", outcome).await;
        }
        hear_each_other(&mut call.caller, &mut target).await;
        tokio::join!(call.caller.talk(0.0, 5_000), target.talk(0.0, 5_000));
        hear_each_other(&mut call.caller, &mut target).await;
        assert_eq!(call.caller.referred_to().len(), 1, "{status}");
        call.caller.send(Method::Bye, "", "").await;
        let ended = target.until("the target is hung up on", |target| target.is_ended);
        tokio::join!(ended, call.caller.talk(0.0, 40));
        call.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn both_hang_up_at_once_and_a_client_hangs_up_either() {
    let mut call = WarmCall::new(&["Hello?"], |_| {}).await;
    let mut target = call.connect(Codec::Pcmu).await;
    tokio::join!(call.caller.send(Method::Bye, "", ""), target.send(Method::Bye, "", ""));
    tokio::join!(call.caller.talk(0.0, 100), target.talk(0.0, 100));
    call.end().await;

    for is_callers in [true, false] {
        let mut call = WarmCall::new(&["Hello?"], |_| {}).await;
        let mut target = call.connect(Codec::Pcmu).await;
        let id = if is_callers { call.id.clone() } else { call.target_id().await };
        let url = format!("http://{}/v1/realtime/calls/{id}/hangup", call.hub.address);
        assert_eq!(reqwest::Client::new().post(url).send().await.expect("an answer").status(), 200);
        let ended = call.caller.until("the caller is hung up on", |caller| caller.is_ended);
        tokio::join!(ended, target.until("the target is hung up on", |target| target.is_ended));
        call.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_without_audio_hears_the_summary_and_ends_both_calls_after_a_minute() {
    let mut call = WarmCall::new(&[], |_| {}).await;
    let asked = call.refer_warm();
    let WarmCall { caller, callee, .. } = &mut call;
    let answered = async { callee.pick_up(Codec::Pcmu).await };
    let ((status, _), mut target) = beside(caller, async { tokio::join!(asked, answered) }).await;
    assert_eq!(status, 200);
    call.caller.tone(CALLER_HZ, 1_000).await;
    let ended = async {
        while !call.caller.is_ended {
            call.caller.talk(0.0, 500).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(70), ended).await.expect("the caller is hung up on");
    target.talk(0.0, 40).await;
    assert!(target.is_ended);
    assert!(target.heard_ms() >= 850, "{} ms", target.heard_ms());
    call.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_stops_ends_both_calls() {
    let mut call = WarmCall::new(&["Hello?"], |config| config.server.drain_seconds = 2).await;
    let mut target = call.connect(Codec::Pcmu).await;
    call.hub.begin_to_stop();
    hear_each_other(&mut call.caller, &mut target).await;
    let ended = call.caller.until("the caller is hung up on", |caller| caller.is_ended);
    tokio::join!(ended, target.until("the target is hung up on", |target| target.is_ended));
    call.hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_transferred_is_refused() {
    let mut call = WarmCall::new(&["Hello?", "are you there"], |config| config.sip.max_calls_out = 1).await;
    let long = "x".repeat(1_001);
    for (body, status, code) in [
        (json!({"target_uri": "tel:+33123", "warm": {"summary": SUMMARY}}), 403, "transfer_not_allowed"),
        (json!({"target_uri": "ann", "warm": {"summary": SUMMARY}}), 400, "invalid_target_uri"),
        (json!({"target_uri": "tel:+1-555-0199", "warm": {"summary": SUMMARY}}), 403, "transfer_not_allowed"),
        (json!({"target_uri": "tel:+15550199", "warm": {"summary": SUMMARY}}), 400, "transfer_to_caller"),
        (json!({"target_uri": TARGET, "warm": {"summary": ""}}), 400, "invalid_value"),
        (json!({"target_uri": TARGET, "warm": {"summary": long}}), 400, "invalid_value"),
        (json!({"target_uri": TARGET, "warm": {}}), 400, "invalid_body"),
    ] {
        let asked = call.refer(body.clone());
        let refused = soon("a refusal", beside(&mut call.caller, asked)).await;
        assert_eq!(refused, (status, json!(code)), "{body}");
    }
    // Another one at the same time, and afterwards.
    let first = call.refer_warm();
    let second = call.refer_warm();
    let third = call.refer(json!({"target_uri": TARGET}));
    let WarmCall { caller, callee, .. } = &mut call;
    let mut target = {
        let others = async {
            let invite = callee.next(Method::Invite).await;
            assert_eq!(second.await, (409, json!("transfer_underway")));
            let mut target = callee.answer_call(&invite, Codec::Pcmu).await;
            target.voice(500).await;
            target.until("the summary", |target| target.heard_ms() >= 850).await;
            target
        };
        let (answer, target) = beside(caller, async { tokio::join!(first, others) }).await;
        assert_eq!(answer.0, 200);
        target
    };
    assert_eq!(soon("a refusal", third).await, (409, json!("transfer_underway")));
    let (status, answer) = calling::call(&call.hub, json!({"to": TARGET})).await;
    assert_eq!((status, &answer["error"]["code"]), (403, &json!("call_not_allowed")), "sip.call_to does not list it");
    hear_each_other(&mut call.caller, &mut target).await;
    call.hub.stop().await;

    // A call to a target is one of the calls out.
    let mut call = WarmCall::new(&[], |config| config.sip.max_calls_out = 0).await;
    let asked = call.refer_warm();
    let refused = soon("a refusal", beside(&mut call.caller, asked)).await;
    assert_eq!(refused, (429, json!("too_many_calls")));
    call.caller.speak(500).await;
    call.hub.stop().await;
}
