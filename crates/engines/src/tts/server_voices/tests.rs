//! Lists of voices and voices that are added, against servers on loopback.
#![allow(clippy::disallowed_methods)]

use crate::tts::TtsConfig;
use crate::tts::openai::OpenAiTts;
use antiphon_engine_api::tts::{Consent, NewVoice, Recording, SpeechRequest, Tts, VoiceError};
use antiphon_types::{Pcm, SampleRate};
use axum::Router;
use axum::extract::{Multipart, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A server of vLLM-Omni's kind, or one that answers the list with something else.
#[derive(Default)]
struct Server {
    list: Mutex<Option<(u16, String)>>,
    uploaded: Mutex<Vec<Value>>,
    recordings: Mutex<Vec<Vec<u8>>>,
    asked: Mutex<Vec<Value>>,
    refuses: Mutex<Option<u16>>,
}

async fn list(State(server): State<Arc<Server>>) -> Response {
    if let Some((status, body)) = server.list.lock().unwrap().clone() {
        return (StatusCode::from_u16(status).unwrap(), body).into_response();
    }
    let uploaded = server.uploaded.lock().unwrap().clone();
    let mut voices = vec![json!("vivian"), json!("ryan")];
    voices.extend(uploaded.iter().map(|voice| voice["name"].clone()));
    axum::Json(json!({"voices": voices, "uploaded_voices": uploaded})).into_response()
}

async fn upload(State(server): State<Arc<Server>>, mut form: Multipart) -> Response {
    if let Some(status) = *server.refuses.lock().unwrap() {
        return (StatusCode::from_u16(status).unwrap(), "secret words of the server").into_response();
    }
    let mut voice = json!({"created_at": 1_700_000_000, "mime_type": "audio/wav"});
    while let Some(field) = form.next_field().await.unwrap() {
        let name = field.name().unwrap().to_owned();
        if name == "audio_sample" {
            assert_eq!(field.content_type(), Some("audio/wav"));
            let recording = field.bytes().await.unwrap().to_vec();
            server.recordings.lock().unwrap().push(recording);
        } else {
            voice[name] = field.text().await.unwrap().into();
        }
    }
    server.uploaded.lock().unwrap().push(voice.clone());
    axum::Json(json!({"success": true, "voice": voice})).into_response()
}

async fn remove(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Response {
    let mut uploaded = server.uploaded.lock().unwrap();
    let before = uploaded.len();
    uploaded.retain(|voice| voice["name"] != name.as_str());
    let status = if uploaded.len() < before { StatusCode::OK } else { StatusCode::NOT_FOUND };
    (status, axum::Json(json!({"success": uploaded.len() < before}))).into_response()
}

async fn speech(State(server): State<Arc<Server>>, axum::Json(body): axum::Json<Value>) -> Response {
    server.asked.lock().unwrap().push(body);
    ([("content-type", "audio/pcm")], vec![1, 0]).into_response()
}

async fn serve(voice: &str) -> (Arc<Server>, OpenAiTts) {
    let server = Arc::new(Server::default());
    let app = Router::new()
        .route("/v1/audio/voices", get(list).merge(post(upload)))
        .route("/v1/audio/voices/{name}", delete(remove))
        .route("/v1/audio/speech", post(speech))
        .with_state(server.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let config = TtsConfig { base_url, voice: voice.into(), api_key_env: String::new(), ..TtsConfig::default() };
    (server, OpenAiTts::new(&config).expect("right settings"))
}

fn ids(engine: &OpenAiTts) -> Vec<String> {
    engine.voices().into_iter().map(|voice| voice.id).collect()
}

async fn listed(voice: &str, body: Value) -> (Arc<Server>, OpenAiTts) {
    let (server, engine) = serve(voice).await;
    *server.list.lock().unwrap() = Some((200, body.to_string()));
    engine.warm().await.expect("it is there");
    (server, engine)
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
    let (_, engine) = listed("slt", described).await;
    assert_eq!(engine.voices()[0].name, "Sky");
    assert_eq!((ids(&engine), engine.language("af_sky")), (vec!["af_sky".to_owned(), "b".into()], "en-US".into()));
    assert!(engine.voice_library().is_none(), "it names no voices that were added");
    let (_, engine) = listed("tara", json!({"status": "ok", "voices": ["leo", "tara"]})).await;
    assert_eq!(ids(&engine), ["tara", "leo"], "the configured one first");
    let (_, engine) = listed("slt", json!(["x"])).await;
    assert_eq!(ids(&engine), ["x"]);
    let (server, engine) = listed("af_sky", json!({"voices": ["af_sky", "af_bella"]})).await;
    for (voice, is_there) in [("af_bella(2)+af_sky", true), ("af_bella+nobody", false), ("nobody", false)] {
        assert_eq!(engine.check_voice(voice).is_ok(), is_there, "{voice}");
        let request = SpeechRequest { text: "Hi.".into(), voice: voice.into(), ..SpeechRequest::default() };
        let _: Vec<_> = engine.speak(request).collect().await;
        let expected = if is_there { voice } else { "af_sky" };
        assert_eq!(server.asked.lock().unwrap().pop().unwrap()["voice"], expected);
    }
}

#[tokio::test]
async fn a_list_that_cannot_be_read_leaves_the_known_voices() {
    let huge = format!("[\"{}\"]", "x".repeat(2 << 20));
    for (status, body) in
        [(404, String::new()), (500, "oh".into()), (200, "no JSON".into()), (200, huge), (200, "[]".into())]
    {
        let (server, engine) = serve("slt").await;
        *server.list.lock().unwrap() = Some((status, body));
        engine.warm().await.expect("it is there all the same");
        assert_eq!(ids(&engine)[..2], ["slt", "alloy"], "{status}");
        let said: Vec<_> =
            engine.speak(SpeechRequest { text: "Hi.".into(), ..SpeechRequest::default() }).collect().await;
        assert!(said[0].is_ok());
    }
}

#[tokio::test]
async fn an_old_list_is_read_again_beside_speech() {
    let (server, engine) = serve("slt").await;
    engine.warm().await.expect("it is there");
    assert_eq!(ids(&engine), ["vivian", "ryan"]);
    server.uploaded.lock().unwrap().push(json!({"name": "new", "consent": "c", "created_at": 1.5}));
    engine
        .voices
        .current(|current| current.read_at = current.read_at.and_then(|at| at.checked_sub(Duration::from_secs(61))));
    let request = SpeechRequest { text: "Hi.".into(), ..SpeechRequest::default() };
    // The list comes while the speech lasts, or with a later one.
    while ids(&engine).len() < 3 {
        let _: Vec<_> = engine.speak(request.clone()).collect().await;
    }
    assert_eq!(ids(&engine), ["vivian", "ryan", "new"]);
    let added = engine.voice_library().expect("it takes voices").list();
    assert_eq!((added[0].id.as_str(), added[0].created_at, &added[0].owner), ("new", 1, &None));
}

#[tokio::test]
async fn a_voice_is_passed_on_with_its_consent_and_known_again_after_a_restart() {
    let (server, engine) = serve("slt").await;
    engine.warm().await.expect("it is there");
    let library = engine.voice_library().expect("it takes voices");
    let added = library.add(new_voice("key_1")).await.expect("added");
    assert_eq!((added.name.as_str(), added.recording_ms, added.id.len()), ("Ada", 1_000, 22));
    let sent = server.uploaded.lock().unwrap()[0].clone();
    assert_eq!(
        (&sent["name"], &sent["consent"], &sent["ref_text"]),
        (&json!(added.id), &json!("I agree"), &json!("these words"))
    );
    assert_eq!(server.recordings.lock().unwrap()[0].len(), 44 + 48_000);
    assert!(engine.check_voice(&added.id).is_ok());
    assert_eq!(engine.language(&added.id), "en");

    let address = engine.server.server.url("x").as_str().replace("/x", "");
    let config = TtsConfig { base_url: address, api_key_env: String::new(), ..TtsConfig::default() };
    let again = OpenAiTts::new(&config).expect("right settings");
    again.warm().await.expect("it is there");
    let library = again.voice_library().expect("it takes voices");
    assert_eq!(library.list(), std::slice::from_ref(&added));
    library.remove(&added.id).await.expect("removed");
    assert!(again.check_voice(&added.id).is_err());
    assert!(server.uploaded.lock().unwrap().is_empty());
    assert!(matches!(library.remove(&added.id).await, Err(VoiceError::Unknown(_))));
}

#[tokio::test]
async fn what_cannot_be_added_or_removed_is_said_without_the_servers_words() {
    let (server, engine) = serve("slt").await;
    // A description that is not the hub's, though it looks like it.
    let description = json!({"name": "", "language": "en", "recording_ms": 1}).to_string();
    let theirs = json!({"name": "theirs", "consent": "c", "speaker_description": description});
    server.uploaded.lock().unwrap().push(theirs);
    engine.warm().await.expect("it is there");
    let library = engine.voice_library().expect("it takes voices");
    assert!(matches!(library.remove("theirs").await, Err(VoiceError::Fixed(_))));
    assert!(matches!(library.remove("nobody").await, Err(VoiceError::Unknown(_))));
    *server.refuses.lock().unwrap() = Some(422);
    let error = library.add(new_voice("k")).await.expect_err("refused");
    assert!(matches!(error, VoiceError::Invalid { field: "audio_sample", .. }), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    *server.refuses.lock().unwrap() = Some(503);
    assert!(matches!(library.add(new_voice("k")).await, Err(VoiceError::Busy(_))));
    let long = Recording { pcm: Pcm { rate: SampleRate::HZ_24000, samples: vec![0; 6 << 20] } };
    let error = library.add(NewVoice { recording: long, ..new_voice("k") }).await.expect_err("too long");
    assert!(error.to_string().contains("at most 218 s"), "{error}");
}
