//! Lists of voices and voices that are added, against servers on loopback.

use super::LIST_DEADLINE;
use crate::tts::TtsConfig;
use crate::tts::openai::OpenAiTts;
use antiphon_engine_api::tts::{Consent, NewVoice, Recording, SpeechRequest, Tts, VoiceError};
use antiphon_test_server::{Answer, Request, TestServer};
use antiphon_types::{Pcm, SampleRate};
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;

/// What a server of vLLM-Omni's kind holds, or one that answers the list with something else.
#[derive(Default)]
struct Voices {
    list: Mutex<Option<(u16, String)>>,
    uploaded: Mutex<Vec<Value>>,
    refuses: Mutex<Option<u16>>,
}

impl Voices {
    fn answer(&self, request: &Request) -> Answer {
        match (request.method.as_str(), request.path()) {
            ("GET", "/v1/audio/voices") => self.list(),
            ("POST", "/v1/audio/voices") => self.upload(request),
            // Long enough for the list to come meanwhile.
            ("POST", "/v1/audio/speech") => Answer::of("audio/pcm", vec![1, 0]).pause(Duration::from_millis(50)),
            ("DELETE", path) => self.remove(path.strip_prefix("/v1/audio/voices/").expect("a voice")),
            _ => Answer::status(404),
        }
    }

    fn list(&self) -> Answer {
        if let Some((status, body)) = self.list.lock().unwrap().clone() {
            return Answer::refusal(status, body);
        }
        let uploaded = self.uploaded.lock().unwrap().clone();
        let mut voices = vec![json!("vivian"), json!("ryan")];
        voices.extend(uploaded.iter().map(|voice| voice["name"].clone()));
        Answer::json(&json!({"voices": voices, "uploaded_voices": uploaded}))
    }

    fn upload(&self, request: &Request) -> Answer {
        if let Some(status) = *self.refuses.lock().unwrap() {
            return Answer::refusal(status, "secret words of the server");
        }
        let mut voice = json!({"created_at": 1_700_000_000, "mime_type": "audio/wav"});
        for (name, field) in request.form() {
            if name == "audio_sample" {
                assert_eq!((field.content_type.as_str(), field.bytes.len()), ("audio/wav", 44 + 48_000));
            } else {
                voice[name] = field.text().into();
            }
        }
        self.uploaded.lock().unwrap().push(voice.clone());
        Answer::json(&json!({"success": true, "voice": voice}))
    }

    fn remove(&self, name: &str) -> Answer {
        let mut uploaded = self.uploaded.lock().unwrap();
        let before = uploaded.len();
        uploaded.retain(|voice| voice["name"] != name);
        let is_removed = uploaded.len() < before;
        Answer::json(&json!({"success": is_removed})).with_status(if is_removed { 200 } else { 404 })
    }
}

/// A running server, and what it holds.
struct Server {
    voices: Arc<Voices>,
    http: TestServer,
}

fn serve(voice: &str) -> (Server, OpenAiTts) {
    let voices = Arc::new(Voices::default());
    let answering = voices.clone();
    let http = TestServer::start(move |request| answering.answer(request));
    let base_url = http.url("/v1");
    let config = TtsConfig { base_url, voice: voice.into(), api_key_env: String::new(), ..TtsConfig::default() };
    (Server { voices, http }, OpenAiTts::new(&config).expect("right settings"))
}

fn ids(engine: &OpenAiTts) -> Vec<String> {
    engine.voices().into_iter().map(|voice| voice.id).collect()
}

async fn listed(voice: &str, body: Value) -> (Server, OpenAiTts) {
    let (server, engine) = serve(voice);
    *server.voices.list.lock().unwrap() = Some((200, body.to_string()));
    engine.warm().await.expect("it is there");
    (server, engine)
}

fn request() -> SpeechRequest {
    SpeechRequest { text: "Hi.".into(), ..SpeechRequest::default() }
}

/// Speaks until the list was read so: it comes while the speech lasts, or with a later one.
async fn speak_until(engine: &OpenAiTts, is_read: impl Fn(&OpenAiTts) -> bool) {
    let speaks = async {
        while !is_read(engine) {
            let _: Vec<_> = engine.speak(request()).collect().await;
        }
    };
    timeout(Duration::from_secs(20), speaks).await.expect("the list is read");
}

fn new_voice(owner: &str) -> NewVoice {
    NewVoice {
        name: "Ada".into(),
        language: Some("en".into()),
        recording: Recording { pcm: Pcm { rate: SampleRate::HZ_24000, samples: vec![5; 24_000] } },
        transcript: Some("these words".into()),
        consent: Consent { statement: "I agree".into(), received_at: 1_700_000_000 },
        owner: Some(owner.into()),
    }
}

#[tokio::test]
async fn every_servers_list_is_read() {
    let described = json!({"voices": [{"id": "af_sky", "name": "Sky", "language": "en-US"}, {"name": "b"}]});
    let (_server, engine) = listed("slt", described).await;
    assert_eq!(engine.voices()[0].name, "Sky");
    assert_eq!((ids(&engine), engine.language("af_sky")), (vec!["af_sky".to_owned(), "b".into()], "en-US".into()));
    assert!(engine.voice_library().is_none(), "it names no voices that were added");
    let (_server, engine) = listed("tara", json!({"status": "ok", "voices": ["leo", "tara"]})).await;
    assert_eq!(ids(&engine), ["tara", "leo"], "the configured one first");
    let (_server, engine) = listed("slt", json!(["x"])).await;
    assert_eq!(ids(&engine), ["x"]);
    let (server, engine) = listed("af_sky", json!({"voices": ["af_sky", "af_bella"]})).await;
    for (voice, is_there) in [("af_bella(2)+af_sky", true), ("af_bella+nobody", false), ("nobody", false)] {
        assert_eq!(engine.check_voice(voice).is_ok(), is_there, "{voice}");
        let request = SpeechRequest { text: "Hi.".into(), voice: voice.into(), ..SpeechRequest::default() };
        let _: Vec<_> = engine.speak(request).collect().await;
        let expected = if is_there { voice } else { "af_sky" };
        assert_eq!(server.http.requests().last().unwrap().json()["voice"], expected);
    }
}

#[tokio::test]
async fn a_list_that_cannot_be_read_leaves_the_known_voices() {
    let huge = format!("[\"{}\"]", "x".repeat(2 << 20));
    for (status, body) in
        [(404, String::new()), (500, "oh".into()), (200, "no JSON".into()), (200, huge), (200, "[]".into())]
    {
        let (server, engine) = serve("slt");
        *server.voices.list.lock().unwrap() = Some((status, body));
        engine.warm().await.expect("it is there all the same");
        assert_eq!(ids(&engine)[..2], ["slt", "alloy"], "{status}");
        let said: Vec<_> =
            engine.speak(SpeechRequest { text: "Hi.".into(), ..SpeechRequest::default() }).collect().await;
        assert!(said[0].is_ok());
    }
}

#[tokio::test]
async fn an_old_list_is_read_again_beside_speech() {
    let (server, engine) = serve("slt");
    engine.warm().await.expect("it is there");
    assert_eq!(ids(&engine), ["vivian", "ryan"]);
    server.voices.uploaded.lock().unwrap().push(json!({"name": "new", "consent": "c", "created_at": 1.5}));
    engine.voices.current(|current| {
        let long_ago = current.read_at.and_then(|at| at.checked_sub(Duration::from_secs(61)));
        current.read_at = long_ago;
        current.begun_at = long_ago;
    });
    speak_until(&engine, |engine| ids(engine).len() == 3).await;
    assert_eq!(ids(&engine), ["vivian", "ryan", "new"]);
    let added = engine.voice_library().expect("it takes voices").list();
    assert_eq!((added[0].id.as_str(), added[0].created_at, &added[0].owner), ("new", 1, &None));
}

#[tokio::test]
async fn the_list_of_a_server_that_was_down_at_the_start_is_read_beside_speech() {
    let (_server, engine) = serve("slt");
    // Nothing was read at the start.
    assert_eq!(ids(&engine)[..2], ["slt", "alloy"]);
    speak_until(&engine, |engine| ids(engine).len() == 2).await;
    assert_eq!(ids(&engine), ["vivian", "ryan"]);
}

#[tokio::test]
async fn a_list_that_could_not_be_read_is_read_again_after_seconds() {
    let (server, engine) = serve("slt");
    *server.voices.list.lock().unwrap() = Some((500, "oh".into()));
    engine.warm().await.expect("it is there all the same");
    *server.voices.list.lock().unwrap() = None;
    engine.voices.current(|current| {
        assert!(current.read_at.is_none(), "there was no list");
        current.begun_at = current.begun_at.and_then(|at| at.checked_sub(LIST_DEADLINE));
    });
    speak_until(&engine, |engine| ids(engine).len() == 2).await;
    assert_eq!(ids(&engine), ["vivian", "ryan"]);
}

#[tokio::test]
async fn a_list_that_does_not_come_is_not_asked_for_beside_each_speech() {
    let http = TestServer::start(|request| match request.path() {
        "/v1/audio/speech" => Answer::of("audio/pcm", vec![1, 0]).pause(Duration::from_millis(50)),
        _ => Answer::none(),
    });
    let config = TtsConfig { base_url: http.url("/v1"), api_key_env: String::new(), ..TtsConfig::default() };
    let engine = OpenAiTts::new(&config).expect("right settings");
    for _ in 0..5 {
        let _: Vec<_> = engine.speak(request()).collect().await;
    }
    let n_asked = http.requests().iter().filter(|request| request.path() == "/v1/audio/voices").count();
    assert!(n_asked <= 1, "{n_asked}");
}

#[tokio::test]
async fn a_voice_is_passed_on_with_its_consent_and_known_again_after_a_restart() {
    let (server, engine) = serve("slt");
    engine.warm().await.expect("it is there");
    let library = engine.voice_library().expect("it takes voices");
    let added = library.add(new_voice("key_1")).await.expect("added");
    assert_eq!((added.name.as_str(), added.recording_ms, added.id.len()), ("Ada", 1_000, 22));
    let sent = server.voices.uploaded.lock().unwrap()[0].clone();
    assert_eq!(
        (&sent["name"], &sent["consent"], &sent["ref_text"]),
        (&json!(added.id), &json!("I agree"), &json!("these words"))
    );
    assert!(engine.check_voice(&added.id).is_ok());
    assert_eq!(engine.language(&added.id), "en");

    let config = TtsConfig { base_url: server.http.url("/v1"), api_key_env: String::new(), ..TtsConfig::default() };
    let again = OpenAiTts::new(&config).expect("right settings");
    again.warm().await.expect("it is there");
    let library = again.voice_library().expect("it takes voices");
    assert_eq!(library.list(), std::slice::from_ref(&added));
    library.remove(&added.id).await.expect("removed");
    assert!(again.check_voice(&added.id).is_err());
    assert!(server.voices.uploaded.lock().unwrap().is_empty());
    assert!(matches!(library.remove(&added.id).await, Err(VoiceError::Unknown(_))));
}

#[tokio::test]
async fn what_cannot_be_added_or_removed_is_said_without_the_servers_words() {
    let (server, engine) = serve("slt");
    // A description that is not the hub's, though it looks like it.
    let description = json!({"name": "", "language": "en", "recording_ms": 1}).to_string();
    let theirs = json!({"name": "theirs", "consent": "c", "speaker_description": description});
    server.voices.uploaded.lock().unwrap().push(theirs);
    engine.warm().await.expect("it is there");
    let library = engine.voice_library().expect("it takes voices");
    assert!(matches!(library.remove("theirs").await, Err(VoiceError::Fixed(_))));
    assert!(matches!(library.remove("nobody").await, Err(VoiceError::Unknown(_))));
    *server.voices.refuses.lock().unwrap() = Some(422);
    let error = library.add(new_voice("k")).await.expect_err("refused");
    assert!(matches!(error, VoiceError::Invalid { field: "audio_sample", .. }), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    *server.voices.refuses.lock().unwrap() = Some(503);
    assert!(matches!(library.add(new_voice("k")).await, Err(VoiceError::Busy(_))));
    let long = Recording { pcm: Pcm { rate: SampleRate::HZ_24000, samples: vec![0; 6 << 20] } };
    let error = library.add(NewVoice { recording: long, ..new_voice("k") }).await.expect_err("too long");
    assert!(error.to_string().contains("at most 218 s"), "{error}");
}
