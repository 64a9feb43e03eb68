//! Recorded calls by SIP: the notice and the key, what clients and the model decide, and what is left on the disk.

use super::phone::{Options, Phone};
use super::tools::{names, says_and_calls};
use super::{calls, config};
use crate::hub::{Hub, engines, file_endings};
use antiphon::config::{Config, ConsentMethod, TelephonyRoute};
use antiphon_engine_api::fakes::llm::{FakeLlm, words};
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_sip::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

/// 1,250 ms of the fake voice.
const NOTICE: &str = "Press one to be recorded.";
const GREETING: &str = "Good morning.";

/// A caller at a hub that records, with a notice, and greets.
struct RecordedCall {
    hub: Hub,
    phone: Phone,
    llm: FakeLlm,
    tts: FakeTts,
    folder: TempDir,
}

impl RecordedCall {
    async fn new(consent: ConsentMethod, llm: FakeLlm) -> Self {
        Self::with(consent, llm, &[], |_| {}).await
    }

    /// The caller speaks these words.
    async fn with(consent: ConsentMethod, llm: FakeLlm, heard: &[&str], change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut config, sip) = config();
        config.session.record = folder.path().display().to_string();
        config.telephony.recording_notice = NOTICE.into();
        config.telephony.recording_consent = consent;
        let route = TelephonyRoute { greeting: "Greet the caller.".into(), ..TelephonyRoute::default() };
        config.telephony.routes.insert("default".into(), route);
        change(&mut config);
        let tts = FakeTts::default();
        let stt = FakeStt::hears(heard.iter().copied());
        let hub = Hub::start(engines(stt, llm.clone(), tts.clone()), config).await;
        let phone = Phone::connect(sip, Options::default()).await;
        Self { hub, phone, llm, tts, folder }
    }

    fn n_requests(&self) -> usize {
        self.llm.requests().len()
    }

    /// What the model reads at a request.
    fn read(&self, at: usize) -> String {
        format!("{:?}", self.llm.requests()[at].messages)
    }

    async fn until_requests(&mut self, n: usize) {
        let llm = self.llm.clone();
        self.phone.until("a request to the model", |_| llm.requests().len() >= n).await;
    }

    async fn until_notice(&mut self, ms: usize) {
        self.phone.until("the notice", |phone| phone.heard_ms() >= ms).await;
    }

    async fn described(&self) -> Value {
        calls(&self.hub).await["data"][0].clone()
    }

    async fn state(&self) -> Value {
        self.described().await["recording"].clone()
    }

    /// Says by REST whether the caller agrees; the status and the answer.
    async fn decide(&self, body: Value) -> (u16, Value) {
        let id = self.described().await["id"].as_str().expect("an id").to_owned();
        self.decide_about(&id, body).await
    }

    async fn decide_about(&self, id: &str, body: Value) -> (u16, Value) {
        let url = format!("http://{}/v1/realtime/calls/{id}/recording", self.hub.address);
        let answer = reqwest::Client::new().post(url).json(&body).send().await.expect("an answer");
        let status = answer.status().as_u16();
        (status, answer.json().await.expect("JSON"))
    }

    /// Hangs up; what the names of the files that are left end in.
    async fn end(self) -> Vec<String> {
        let folder = self.hang_up().await;
        file_endings(folder.path())
    }

    /// Hangs up; the folder.
    async fn hang_up(mut self) -> TempDir {
        self.phone.send(Method::Bye, "", "").await;
        self.phone.talk(0.0, 40).await;
        self.hub.until("antiphon_sessions_active ", 0.0).await;
        self.hub.stop().await;
        self.folder
    }
}

fn with_sound(config: &mut Config) {
    config.session.record_audio = true;
}

/// The frames of the WAV file of a folder, left and right, at 16 kHz.
fn frames(folder: &TempDir) -> Vec<[i16; 2]> {
    let mut paths = std::fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").path());
    let path = paths.find(|path| path.extension().is_some_and(|ending| ending == "wav")).expect("a WAV file");
    let mut wav = hound::WavReader::open(path).expect("a WAV file");
    assert_eq!((wav.spec().channels, wav.spec().sample_rate), (2, 16_000));
    let samples: Vec<i16> = wav.samples::<i16>().map(|sample| sample.expect("a sample")).collect();
    samples.chunks_exact(2).map(|frame| [frame[0], frame[1]]).collect()
}

/// How much of a side of these frames is loud, in milliseconds.
fn loud_ms(frames: &[[i16; 2]], side: usize) -> usize {
    frames.iter().filter(|frame| frame[side].unsigned_abs() > 1_000).count() / 16
}

#[tokio::test(start_paused = true)]
async fn a_recorded_call_begins_with_the_notice_which_speech_does_not_cut_and_then_greets() {
    let mut call = RecordedCall::with(ConsentMethod::None, FakeLlm::says([GREETING]), &["hello"], |_| {}).await;
    call.until_notice(100).await;
    call.phone.talk(8_000.0, 600).await;
    assert_eq!((call.n_requests(), call.state().await), (0, json!("waiting")));
    call.until_requests(1).await;
    assert_eq!(call.state().await, "recorded");
    assert!(call.phone.heard_ms() >= 1_200, "the whole notice was heard before: {} ms", call.phone.heard_ms());
    call.phone.until("the greeting", |phone| phone.heard_ms() >= 1_850).await;
    call.phone.talk(0.0, 1_000).await;
    assert_eq!(call.tts.spoken(), [NOTICE, GREETING]);
    assert!(call.read(0).contains("Greet the caller.") && call.read(0).contains("Press one"), "{}", call.read(0));
    assert_eq!(call.n_requests(), 1, "what was said into the notice is no turn");
    let (status, body) = call.decide(json!({"consent": true})).await;
    assert_eq!((status, &body["error"]["code"]), (409, &json!("recording_not_asked")), "{body}");
    assert!(body["error"]["message"].as_str().is_some_and(|why| why.contains("telephony.recording_consent")), "{body}");
    assert_eq!(call.end().await, ["jsonl"]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_objects_behind_a_notice_without_a_question_is_not_recorded() {
    let mut call = RecordedCall::with(ConsentMethod::None, FakeLlm::says([GREETING]), &[], with_sound).await;
    call.until_requests(1).await;
    call.phone.talk(0.0, 1_000).await;
    assert_eq!(call.state().await, "recorded");
    assert_eq!(call.decide(json!({"consent": false})).await.0, 200);
    assert_eq!(call.state().await, "refused");
    let files = call.end().await;
    assert!(files.is_empty(), "{files:?}");
}

#[tokio::test(start_paused = true)]
async fn both_sides_of_a_recorded_call_are_in_its_sound() {
    let llm = FakeLlm::says([GREETING, "Ten past ten."]);
    let mut call = RecordedCall::with(ConsentMethod::Key, llm, &["what time is it"], with_sound).await;
    call.until_notice(1_200).await;
    call.phone.talk(0.0, 600).await;
    call.phone.press(1).await;
    call.until_requests(1).await;
    call.phone.until("the greeting", |phone| phone.heard_ms() >= 1_850).await;
    call.phone.talk(0.0, 1_000).await;
    call.phone.speak(1_000).await;
    call.until_requests(2).await;
    call.phone.talk(0.0, 2_000).await;
    let folder = call.hang_up().await;
    assert_eq!(file_endings(folder.path()), ["jsonl", "wav"]);
    let frames = frames(&folder);
    // A tone is louder than that for nine tenths of its time.
    let (notice, rest) = frames.split_at(16 * 1_850);
    assert_eq!(loud_ms(notice, 0), 0, "the caller is silent");
    assert!((1_000..=1_300).contains(&loud_ms(notice, 1)), "the notice: {} ms", loud_ms(notice, 1));
    assert!((700..=1_100).contains(&loud_ms(rest, 0)), "the caller: {} ms", loud_ms(rest, 0));
    assert!((1_000..=1_400).contains(&loud_ms(rest, 1)), "greeting and answer: {} ms", loud_ms(rest, 1));
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_withdraws_leaves_neither_log_nor_sound() {
    let mut call = RecordedCall::with(ConsentMethod::Key, FakeLlm::says([GREETING]), &[], with_sound).await;
    call.until_notice(300).await;
    call.phone.press(1).await;
    call.until_requests(1).await;
    let path = call.folder.path().to_owned();
    call.phone.until("both files", |_| file_endings(&path) == ["jsonl.part", "wav.part"]).await;
    assert_eq!(call.state().await, "recorded");
    assert_eq!(call.decide(json!({"consent": false})).await.0, 200);
    call.phone.talk(0.0, 2_000).await;
    let files = call.end().await;
    assert!(files.is_empty(), "{files:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_greeting_waits_for_the_caller_behind_the_notice() {
    let change = |config: &mut Config| config.telephony.routes.clear();
    let llm = FakeLlm::says(["Ten past ten."]);
    let mut call = RecordedCall::with(ConsentMethod::Key, llm, &["what time is it"], change).await;
    call.until_notice(1_200).await;
    // A caller who speaks without having pressed a key is heard at once.
    call.phone.talk(0.0, 500).await;
    assert_eq!(call.n_requests(), 0);
    call.phone.speak(500).await;
    call.until_requests(1).await;
    assert!(call.read(0).contains("what time is it"), "{}", call.read(0));
    assert_eq!(call.state().await, "waiting");
    call.phone.until("the answer", |phone| phone.heard_ms() >= 2_500).await;
    assert_eq!(call.tts.spoken(), [NOTICE, "Ten past ten."]);
    call.phone.press(1).await;
    call.until_requests(2).await;
    assert!(call.read(1).contains(": 1)"), "behind an answer a key is for the model: {}", call.read(1));
    assert_eq!(call.state().await, "waiting");
    let files = call.end().await;
    assert!(files.is_empty(), "a caller who hangs up undecided has not agreed: {files:?}");
}

#[tokio::test(start_paused = true)]
async fn one_records_the_call_and_another_key_does_not() {
    for (key, state) in [(1, "recorded"), (2, "refused")] {
        let mut call = RecordedCall::new(ConsentMethod::Key, FakeLlm::says([GREETING, "Yes?"])).await;
        call.until_notice(300).await;
        assert_eq!(call.state().await, "waiting");
        call.phone.press(key).await;
        call.until_requests(1).await;
        assert_eq!(call.state().await, state);
        assert!(call.phone.heard_ms() < 1_200, "the greeting does not wait: {} ms", call.phone.heard_ms());
        // Longer than the pause that ends an entry.
        call.phone.talk(0.0, 2_000).await;
        assert_eq!(call.n_requests(), 1, "the key is of no entry");
        assert!(!call.read(0).contains("pressed these keys"), "{}", call.read(0));
        call.phone.press(5).await;
        call.until_requests(2).await;
        assert!(call.read(1).contains(": 5)"), "the next key is for the model: {}", call.read(1));
        assert_eq!(call.state().await, state);
        let files = call.end().await;
        assert_eq!(files, if key == 1 { vec!["jsonl"] } else { Vec::new() });
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_key_the_greeting_comes_after_5_s_and_the_call_is_not_recorded_after_15() {
    let mut call = RecordedCall::new(ConsentMethod::Key, FakeLlm::says([GREETING, "Yes?"])).await;
    call.until_notice(1_200).await;
    call.phone.talk(0.0, 4_800).await;
    assert_eq!(call.n_requests(), 0);
    call.phone.talk(0.0, 600).await;
    assert_eq!(call.n_requests(), 1, "the caller is greeted");
    call.phone.talk(0.0, 9_000).await;
    assert_eq!(call.state().await, "waiting");
    call.phone.talk(0.0, 1_500).await;
    assert_eq!(call.state().await, "refused");
    call.phone.press(1).await;
    call.until_requests(2).await;
    assert!(call.read(1).contains(": 1)"), "{}", call.read(1));
    assert_eq!(call.state().await, "refused");
    let files = call.end().await;
    assert!(files.is_empty(), "{files:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_behind_the_greeting_is_for_the_model_and_a_client_may_still_decide() {
    let mut call = RecordedCall::new(ConsentMethod::Key, FakeLlm::says([GREETING, "Orders."])).await;
    call.until_requests(1).await;
    call.phone.talk(0.0, 500).await;
    call.phone.press(1).await;
    call.until_requests(2).await;
    assert!(call.read(1).contains(": 1)"), "{}", call.read(1));
    assert_eq!(call.state().await, "waiting");
    assert_eq!(call.decide(json!({"consent": true})).await.0, 200);
    assert_eq!(call.state().await, "recorded");
    assert_eq!(call.end().await, ["jsonl"]);
}

#[tokio::test(start_paused = true)]
async fn a_hold_during_the_notice_repeats_it_behind_the_hold() {
    let mut call = RecordedCall::new(ConsentMethod::None, FakeLlm::says([GREETING])).await;
    call.until_notice(300).await;
    call.phone.reinvite("sendonly").await;
    call.phone.talk(0.0, 5_000).await;
    assert_eq!((call.tts.spoken(), call.n_requests()), (vec![NOTICE.to_owned()], 0));
    call.phone.reinvite("sendrecv").await;
    call.until_requests(1).await;
    call.phone.talk(0.0, 1_000).await;
    assert_eq!(call.tts.spoken(), [NOTICE, NOTICE, GREETING]);
    assert_eq!(call.end().await, ["jsonl"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_decides_by_rest_and_takes_it_back() {
    let mut call = RecordedCall::new(ConsentMethod::Key, FakeLlm::says([GREETING])).await;
    call.until_notice(300).await;
    let id = call.described().await["id"].as_str().expect("an id").to_owned();
    let (status, body) = call.decide(json!({"consents": true})).await;
    assert_eq!((status, &body["error"]["code"]), (400, &json!("invalid_body")), "{body}");
    assert_eq!(call.decide_about("rtc_none", json!({"consent": true})).await.0, 404);
    let decided = |consent: bool| json!({"id": id, "object": "realtime.call.recording", "consent": consent});
    assert_eq!(call.decide(json!({"consent": true})).await, (200, decided(true)));
    call.until_requests(1).await;
    assert!(call.phone.heard_ms() < 1_200, "the greeting does not wait: {} ms", call.phone.heard_ms());
    assert_eq!(call.state().await, "recorded");
    assert_eq!(call.decide(json!({"consent": false})).await, (200, decided(false)));
    assert_eq!(call.state().await, "refused");
    let (status, body) = call.decide(json!({"consent": true})).await;
    assert_eq!((status, &body["error"]["code"]), (409, &json!("recording_ended")), "{body}");
    let files = call.end().await;
    assert!(files.is_empty(), "what was recorded is removed: {files:?}");
}

#[tokio::test(start_paused = true)]
async fn the_model_records_a_call_and_stops_that_when_the_caller_says_so() {
    let llm = FakeLlm::says([GREETING]);
    for (agrees, reply) in [(true, "Thank you."), (false, "Of course.")] {
        llm.then(says_and_calls("", "set_recording_consent", &json!({"agrees": agrees})));
        llm.then(words(reply));
    }
    let heard = ["yes you may record me", "please do not record me"];
    let change = |config: &mut Config| config.sip.tool_recording_consent = true;
    let mut call = RecordedCall::with(ConsentMethod::Key, llm, &heard, change).await;
    call.until_requests(1).await;
    assert_eq!(names(&call.llm.requests()[0]), ["set_recording_consent"]);
    call.phone.talk(0.0, 1_500).await;
    call.phone.speak(500).await;
    call.until_requests(3).await;
    assert!(call.read(2).contains("The call is recorded."), "{}", call.read(2));
    assert_eq!(call.state().await, "recorded");
    call.phone.talk(0.0, 2_000).await;
    call.phone.speak(500).await;
    call.until_requests(5).await;
    assert!(call.read(4).contains("what was recorded is removed"), "{}", call.read(4));
    assert_eq!(call.state().await, "refused");
    let files = call.end().await;
    assert!(files.is_empty(), "{files:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_recorded_says_nothing_of_it_and_asks_nothing() {
    let change = |config: &mut Config| {
        config.session.record.clear();
        config.sip.tool_recording_consent = true;
    };
    let mut call = RecordedCall::with(ConsentMethod::Key, FakeLlm::says([GREETING]), &[], change).await;
    call.until_requests(1).await;
    call.phone.until("the greeting", |phone| phone.heard_ms() >= 600).await;
    assert_eq!(call.tts.spoken(), [GREETING]);
    assert!(names(&call.llm.requests()[0]).is_empty());
    assert_eq!((call.state().await, call.decide(json!({"consent": true})).await.0), (json!("none"), 409));
    let files = call.end().await;
    assert!(files.is_empty(), "{files:?}");
}
