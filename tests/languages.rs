//! Replies in the language heard, over a real socket: what the recognizer and the model are asked, and which voice speaks.

use crate::hub::{Hub, Socket, engines, loud, quiet};
use crate::turns::turn;
use antiphon::config::Config;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_engine_api::stt::SpeakerState;
use antiphon_engines::stt::SttConfig;
use antiphon_engines::stt::openai::OpenAiStt;
use antiphon_test_server::{Answer, TestServer};
use antiphon_types::chat::Message;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";
const GERMAN: &str = "Guten Tag, wie geht es Ihnen?";
const ENGLISH: &str = "And now in English, please.";

/// A hub of two voices that follows the language heard.
fn following() -> Config {
    let mut config = Config::default();
    config.stt.language = "auto".into();
    config
}

fn two_voices() -> FakeTts {
    FakeTts::default().with_voices([("slt", "en-US"), ("anna", "de-DE"), ("berta", "de-DE")])
}

/// Speaks; the transcript's event, and the response.
async fn say(socket: &mut Socket) -> (Value, Value) {
    socket.append(&loud(1_000)).await;
    socket.append(&quiet(600)).await;
    let events = socket.until("response.done").await;
    let of = |kind: &str| events.iter().find(|event| event["type"] == kind).unwrap_or_else(|| panic!("{kind}")).clone();
    (of("conversation.item.input_audio_transcription.completed"), of("response.done")["response"].clone())
}

/// What the model was told before the conversation, the last time that it was asked.
fn instructions(llm: &FakeLlm) -> String {
    match &llm.requests().last().expect("it was asked").messages[0] {
        Message::System(text) => text.clone(),
        other => panic!("no instructions: {other:?}"),
    }
}

fn voice(response: &Value) -> &str {
    response["audio"]["output"]["voice"].as_str().expect("a voice")
}

async fn update(socket: &mut Socket, session: Value) -> Value {
    socket.send(json!({"type": "session.update", "session": session})).await;
    loop {
        let event = socket.next().await;
        if event["type"] != "rate_limits.updated" {
            return event;
        }
    }
}

fn language(code: &str) -> Value {
    json!({"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1", "language": code}}}})
}

fn recognizer(server: &TestServer) -> OpenAiStt {
    let base_url = server.url("/v1");
    let config = SttConfig { base_url, api_key_env: String::new(), language: "auto".into(), ..SttConfig::default() };
    OpenAiStt::new(&config).expect("right settings")
}

#[tokio::test]
async fn a_hub_with_a_transcription_server_answers_in_german_then_in_english() {
    let heard =
        |text: &str, language: &str| Answer::json(&json!({"task": "transcribe", "text": text, "language": language}));
    let server = TestServer::script(TRANSCRIPTIONS, [heard(GERMAN, "german"), heard(ENGLISH, "english")]);
    let llm = FakeLlm::says(["Gut, danke.", "Fine, thanks.", "You wrote."]);
    let tts = two_voices();
    let stt = Arc::new(recognizer(&server));
    let engines = Engines {
        vad: Arc::new(FakeVad),
        turn: None,
        speaker: None,
        stt,
        llm: Arc::new(llm.clone()),
        tts: Arc::new(tts.clone()),
    };
    // Each utterance is transcribed and answered once.
    let mut config = following();
    config.speculation.after_ms = 0;
    let hub = Hub::start(engines, config).await;
    let mut socket = hub.connect("").await;

    let (heard, response) = say(&mut socket).await;
    assert_eq!((&heard["transcript"], &heard["language"]), (&json!(GERMAN), &json!("de")));
    assert_eq!((voice(&response), tts.spoken_by()), ("anna", vec!["anna".to_owned()]));
    assert!(instructions(&llm).ends_with("\n\nAnswer in German."), "{}", instructions(&llm));
    let shown = turn(&hub, |turn| turn["status"] == "completed").await;
    assert_eq!((&shown["transcript"], &shown["language"]), (&json!(GERMAN), &json!("de")));

    let (heard, response) = say(&mut socket).await;
    assert_eq!(heard["language"], "en");
    assert_eq!(voice(&response), "slt");
    assert!(instructions(&llm).ends_with("\n\nAnswer in English."), "{}", instructions(&llm));
    assert!(!instructions(&llm).contains("German"), "the language is no part of the conversation");

    // A typed message is answered in the language heard last.
    socket.ask("Und geschrieben?").await;
    assert!(instructions(&llm).ends_with("\n\nAnswer in English."), "{}", instructions(&llm));
    assert_eq!(tts.spoken_by().last().expect("spoken"), "slt");
    let asked = server.requests().into_iter().filter(|request| request.path() == TRANSCRIPTIONS);
    let forms: Vec<_> = asked.map(|request| request.form()).collect();
    assert_eq!(forms.len(), 2, "once for each utterance");
    for form in forms {
        assert_eq!(form["response_format"].text(), "verbose_json");
        assert!(!form.contains_key("language"));
    }
}

#[tokio::test]
async fn a_client_turns_it_on_and_off() {
    let llm = FakeLlm::says(["One.", "Two."]);
    let tts = two_voices();
    let stt = FakeStt::detects([("de", GERMAN), ("fr", "Et maintenant en français.")]);
    let hub = Hub::start(engines(stt, llm.clone(), tts.clone()), Config::default()).await;
    let mut socket = hub.connect("").await;
    let updated = update(&mut socket, language("auto")).await;
    assert_eq!(updated["session"]["audio"]["input"]["transcription"]["language"], "auto");
    assert_eq!(voice(&say(&mut socket).await.1), "anna");
    let updated = update(&mut socket, language("fr")).await;
    assert_eq!(updated["type"], "session.updated", "{updated}");
    let (heard, response) = say(&mut socket).await;
    assert_eq!((heard.get("language"), voice(&response)), (None, "slt"));
    assert!(!instructions(&llm).contains("French"), "{}", instructions(&llm));
}

#[tokio::test]
async fn a_recognizer_that_cannot_detect_the_language_refuses() {
    let hub = Hub::start(engines(FakeStt::hears([GERMAN]), FakeLlm::says(["Yes."]), two_voices()), following()).await;
    let mut socket = hub.connect("").await;
    let refused = update(&mut socket, language("auto")).await["error"].clone();
    assert_eq!(refused["param"], "session.audio.input.transcription.language");
    let message = "Invalid 'session.audio.input.transcription.language': the engine 'fake' cannot detect the language. Name the \
                   one that is spoken, such as 'en', or leave it out.";
    assert_eq!(refused["message"], message);
    let (heard, response) = say(&mut socket).await;
    assert_eq!((heard.get("language"), voice(&response)), (None, "slt"), "the hub's own setting has no effect");
}

#[test]
fn a_hub_whose_recognizer_cannot_detect_the_language_does_not_start() {
    let mut config = following();
    config.stt.engine = "openai".into();
    config.stt.base_url = "http://127.0.0.1:9/v1".into();
    config.stt.api_key_env.clear();
    assert!(antiphon::assembly::stt(&config).is_ok(), "whisper-1 can");
    config.stt.model = "gpt-4o-transcribe".into();
    let error = antiphon::assembly::stt(&config).err().expect("it is refused").to_string();
    assert!(error.contains("it cannot detect the language (stt.language = \"auto\")"), "{error}");
    config.stt.language = "de".into();
    assert!(antiphon::assembly::stt(&config).is_ok());
}

#[tokio::test]
async fn the_voice_is_the_configured_one_but_a_clients_own_stays_for_its_language() {
    let spoken = [("de", GERMAN), ("en", ENGLISH), ("de", GERMAN), ("en", ENGLISH)];
    let voices = [("slt", "en-US"), ("rms", "en-US"), ("anna", "de-DE"), ("berta", "de-DE"), ("mara", "mul")];
    let start = async |llm: &FakeLlm| {
        let mut config = following();
        config.tts.language_voices = BTreeMap::from([("de".into(), "berta".into())]);
        let tts = FakeTts::default().with_voices(voices);
        Hub::start(engines(FakeStt::detects(spoken), llm.clone(), tts), config).await
    };
    let llm = FakeLlm::says(["One.", "Two.", "Three.", "Four."]);
    let hub = start(&llm).await;
    let mut socket = hub.connect("").await;
    assert_eq!(voice(&say(&mut socket).await.1), "berta", "tts.language_voices");
    assert_eq!(voice(&say(&mut socket).await.1), "slt", "the session's own");

    for (own, in_german, in_english) in [("anna", "anna", "slt"), ("rms", "berta", "rms"), ("mara", "mara", "mara")] {
        let llm = FakeLlm::says(["One.", "Two."]);
        let hub = start(&llm).await;
        let mut socket = hub.connect("").await;
        let updated = update(&mut socket, json!({"type": "realtime", "audio": {"output": {"voice": own}}})).await;
        assert_eq!(updated["session"]["audio"]["output"]["voice"], own);
        let german = say(&mut socket).await.1;
        let english = say(&mut socket).await.1;
        assert_eq!((voice(&german), voice(&english)), (in_german, in_english), "{own}");
        assert!(instructions(&llm).ends_with("Answer in English."));
    }
}

#[tokio::test]
async fn a_language_may_have_a_region_and_one_that_the_engine_lacks_is_refused_at_once() {
    let stt = FakeStt::hears(["one", "two"]).of_languages(&["en", "de"]);
    let hub = Hub::start(engines(stt, FakeLlm::says(["Yes."]), FakeTts::default()), Config::default()).await;
    let mut socket = hub.connect("").await;
    for code in ["en-US", "EN", "de_AT"] {
        let updated = update(&mut socket, language(code)).await;
        assert_eq!(updated["type"], "session.updated", "{code}: {updated}");
        assert_eq!(updated["session"]["audio"]["input"]["transcription"]["language"], code, "as it was given");
    }
    for code in ["fr", "xx", "no language"] {
        let refused = update(&mut socket, language(code)).await;
        assert_eq!(refused["error"]["param"], "session.audio.input.transcription.language", "{code}: {refused}");
    }
    let (transcript, _) = say(&mut socket).await;
    assert_eq!(transcript["transcript"], "one", "the last language that was taken serves");
}

#[tokio::test]
async fn the_language_of_the_clients_browser_is_tried_first() {
    for (accepted, preferred) in [
        ("de-AT,de;q=0.9,en;q=0.8", Some("de")),
        ("en;q=0.5, fr-CA;q=0.7", Some("fr")),
        ("*", None),
        ("xx, de;q=2;q", None),
        ("", None),
    ] {
        let stt = FakeStt::hears(["Guten Tag."]);
        let hub = Hub::start(engines(stt.clone(), FakeLlm::says(["Hallo."]), two_voices()), Config::default()).await;
        let mut socket = hub.connect_with("accept-language", accepted).await;
        say(&mut socket).await;
        let expected = preferred.map(|code: &str| SpeakerState::PreferredLanguage(code.to_owned().into()));
        assert_eq!(stt.speakers()[0], expected, "{accepted}");
        hub.stop().await;
    }
}
