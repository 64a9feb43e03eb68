//! Custom voices over a real socket, with the store on a real disk and an engine whose pitch derives from the recording:
//! added, used by the speech API, sessions and jobs, owned, removed.

use crate::hub::{Hub, engines};
use crate::speech_api::client;
use antiphon::config::{Config, StorageKey};
use antiphon::server::Keys;
use antiphon_audio::wav;
use antiphon_cluster::SealingKey;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::tts::{
    Consent, CustomVoice, NewVoice, SpeechRequest, Tts, TtsError, UnusableVoice, Voice, VoiceError, VoiceLibrary,
    VoiceLimits, is_uploaded_id,
};
use antiphon_engines::tts::voices::{Reference, StoreSettings, VoiceStore};
use antiphon_types::sealed::Sealing;
use antiphon_types::{Pcm, SampleRate};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use reqwest::multipart::{Form, Part};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::f32::consts::TAU;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

const RATE: SampleRate = SampleRate::HZ_24000;
const ALICE: &str = "sk-antiphon-alice";
const BOB: &str = "sk-antiphon-bob";
const ADMIN: &str = "sk-antiphon-admin";

/// Clones by pitch. A text with "WAIT" needs a permit of `speaking` for each chunk, conditioning one of `conditioning`.
#[derive(Clone)]
struct Cloner {
    store: Arc<VoiceStore>,
    speaking: Arc<Semaphore>,
    conditioning: Arc<Semaphore>,
    n_asked: Arc<AtomicUsize>,
    n_made: Arc<AtomicUsize>,
}

/// The pitch of a reference's clone, in hertz.
fn pitch(reference: &Reference) -> f32 {
    300.0 + 10.0 * f32::from(reference.digest[0])
}

fn tone(hz: f32) -> Pcm {
    let samples = (0..9_600).map(|i| (8_000.0 * (TAU * hz * i as f32 / 24_000.0).sin()) as i16).collect();
    Pcm { rate: RATE, samples }
}

impl Cloner {
    fn open(folder: &Path, sealing: Option<Arc<dyn Sealing>>) -> Self {
        let store = Arc::new(store(folder, sealing));
        let permits = |n| Arc::new(Semaphore::new(n));
        Self {
            store,
            speaking: permits(0),
            conditioning: permits(1_000),
            n_asked: Arc::default(),
            n_made: Arc::default(),
        }
    }
}

fn store(folder: &Path, sealing: Option<Arc<dyn Sealing>>) -> VoiceStore {
    let settings = StoreSettings {
        folder: folder.to_owned(),
        rate: RATE,
        min: Duration::from_secs(1),
        max: Duration::from_secs(60),
        use_at_most: Duration::from_secs(10),
        loudness_lufs: None,
        needs_transcript: false,
        max_voices: 4,
        max_bytes: 64 << 20,
        languages: vec!["en".into(), "de".into()],
        sealing,
    };
    VoiceStore::open(settings).expect("a folder")
}

impl Tts for Cloner {
    fn name(&self) -> &str {
        "cloner"
    }

    fn voices(&self) -> Vec<Voice> {
        let own = Voice { id: "tone".into(), name: "Tone".into(), language: "en-US".into() };
        let operators = self.store.list().into_iter().filter(|voice| !voice.is_uploaded());
        std::iter::once(own).chain(operators.map(|voice| voice.voice())).collect()
    }

    fn voice_library(&self) -> Option<Arc<dyn VoiceLibrary>> {
        Some(Arc::new(self.clone()))
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let hz = match self.store.reference(&request.voice) {
            Ok(reference) => Ok(pitch(&reference)),
            Err(VoiceError::Unknown(id)) if is_uploaded_id(&id) => {
                Err(TtsError::NoVoice(format!("there is no voice {id}; it may have been removed")))
            }
            Err(_) => Ok(220.0),
        };
        let gate = request.text.contains("WAIT").then(|| self.speaking.clone());
        let spoken = async move {
            if let Some(gate) = gate {
                gate.acquire().await.expect("open").forget();
            }
            hz.map(tone)
        };
        stream::once(spoken).boxed()
    }
}

impl VoiceLibrary for Cloner {
    fn list(&self) -> Vec<CustomVoice> {
        self.store.list()
    }

    fn unusable(&self) -> Vec<UnusableVoice> {
        self.store.unusable()
    }

    fn limits(&self) -> VoiceLimits {
        self.store.limits()
    }

    fn add(&self, voice: NewVoice) -> BoxFuture<'static, Result<CustomVoice, VoiceError>> {
        let this = self.clone();
        self.n_asked.fetch_add(1, Ordering::SeqCst);
        let added = async move {
            this.conditioning.acquire().await.expect("open").forget();
            let n_made = this.n_made.clone();
            let added = tokio::task::spawn_blocking(move || this.store.add(voice, |_| Ok(()))).await.expect("no panic");
            n_made.fetch_add(1, Ordering::SeqCst);
            added
        };
        added.boxed()
    }

    fn remove(&self, id: &str) -> BoxFuture<'static, Result<(), VoiceError>> {
        let store = self.store.clone();
        let id = id.to_owned();
        async move { tokio::task::spawn_blocking(move || store.remove(&id)).await.expect("no panic") }.boxed()
    }
}

/// Three seconds that count as speech, of this pitch: bursts of a tone with pauses between.
fn recording(hz: f32) -> Vec<u8> {
    let sample = |i: usize| {
        if (i / 6_000).is_multiple_of(2) { (8_000.0 * (TAU * hz * i as f32 / 24_000.0).sin()) as i16 } else { 0 }
    };
    wav::write(&Pcm { rate: RATE, samples: (0..72_000).map(sample).collect() })
}

struct Fixture {
    hub: Hub,
    cloner: Cloner,
    folder: tempfile::TempDir,
}

impl Fixture {
    async fn start(keys: Keys) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let voices = folder.path().join("voices");
        std::fs::create_dir(&voices).expect("made");
        std::fs::write(voices.join("operator.wav"), recording(330.0)).expect("written");
        Self::restarted(folder, keys, None).await
    }

    /// A hub with the voices of this folder, which encrypts uploads with this key.
    async fn restarted(folder: tempfile::TempDir, keys: Keys, sealing: Option<Arc<dyn Sealing>>) -> Self {
        let cloner = Cloner::open(&folder.path().join("voices"), sealing);
        let mut engines = engines(FakeStt::default(), FakeLlm::says(["Hello there."; 20]), FakeTts::default());
        engines.tts = Arc::new(cloner.clone());
        let mut config = Config::default();
        config.speech.jobs_dir = folder.path().join("jobs").to_str().expect("text").into();
        Self { hub: Hub::with_keys(engines, config, keys).await, cloner, folder }
    }

    async fn open() -> Self {
        Self::start(Keys::default()).await
    }

    fn request(&self, method: Method, path: &str, key: &str) -> RequestBuilder {
        client().request(method, format!("http://{}{path}", self.hub.address)).bearer_auth(key)
    }

    async fn get(&self, path: &str, key: &str) -> (u16, Value) {
        answer(self.request(Method::GET, path, key)).await
    }

    async fn delete(&self, id: &str, key: &str) -> (u16, Value) {
        answer(self.request(Method::DELETE, &format!("/v1/audio/voices/{id}"), key)).await
    }

    async fn post(&self, form: Form, key: &str) -> (u16, Value) {
        answer(self.request(Method::POST, "/v1/audio/voices", key).multipart(form)).await
    }

    /// Adds a voice; returns its id.
    async fn add(&self, name: &str, hz: f32, key: &str) -> String {
        let (status, voice) = self.post(form(name, recording(hz)), key).await;
        assert_eq!(status, 200, "{voice}");
        voice["id"].as_str().expect("an id").to_owned()
    }

    async fn speech(&self, voice: Value, key: &str) -> Response {
        let body = json!({"input": "Hello there.", "voice": voice, "response_format": "pcm"});
        self.request(Method::POST, "/v1/audio/speech", key).json(&body).send().await.expect("an answer")
    }

    /// Ids that a key sees.
    async fn ids(&self, key: &str) -> Vec<String> {
        let (_, list) = self.get("/v1/audio/voices", key).await;
        let voices = list["voices"].as_array().expect("a list").iter();
        voices.map(|voice| voice["id"].as_str().expect("an id").to_owned()).collect()
    }

    /// The pitch that a voice has to have.
    fn pitch(&self, id: &str) -> f32 {
        pitch(&self.cloner.store.reference(id).expect("there"))
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("voices")).expect("there").count()
    }
}

async fn answer(request: RequestBuilder) -> (u16, Value) {
    let answer = request.send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

fn form(name: &str, recording: Vec<u8>) -> Form {
    Form::new()
        .text("name", name.to_owned())
        .part("audio_sample", Part::bytes(recording).file_name("a.wav").mime_str("audio/wav").expect("a type"))
        .text("consent", "I agree that my voice is cloned.")
}

/// The pitch of PCM at 24 kHz, from its zero crossings.
fn heard(pcm: &[u8]) -> f32 {
    let samples: Vec<i16> = pcm.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
    let n = samples.windows(2).filter(|pair| pair[0] < 0 && pair[1] >= 0).count();
    n as f32 * 24_000.0 / samples.len() as f32
}

#[track_caller]
fn same(heard: f32, expected: f32) {
    assert!((heard - expected).abs() < 4.0, "{heard} Hz, not {expected}");
}

#[tokio::test]
async fn a_voice_is_added_spoken_with_and_removed() {
    let fixture = Fixture::open().await;
    let before = fixture.get("/v1/audio/voices", "").await.1;
    assert_eq!(before["voices"][0], json!({"id": "tone", "name": "Tone", "language": "en-US"}));
    assert_eq!((&before["default"], &before["library"]["min_recording_ms"]), (&json!("tone"), &json!(1_000)));
    assert_eq!(before["data"][0]["id"], "operator");

    let wanted = form("Anna", recording(440.0)).text("ref_text", "La la la.").text("language", "de");
    let (status, anna) = fixture.post(wanted.text("type", "audio_sample").text("speaker_description", "x"), "").await;
    assert_eq!(status, 200, "{anna}");
    let id = anna["id"].as_str().expect("an id");
    assert!(is_uploaded_id(id));
    for (field, value) in [
        ("object", json!("audio.voice")),
        ("type", json!("audio_sample")),
        ("name", json!("Anna")),
        ("language", json!("de")),
        ("recording_ms", json!(3_000)),
        ("removable", json!(true)),
    ] {
        assert_eq!(anna[field], value, "{field}");
    }
    assert_eq!(anna["consent"]["statement"], "I agree that my voice is cloned.");
    assert!(anna["created_at"].as_u64().is_some_and(|at| at > 1_700_000_000));
    assert_eq!(fixture.ids("").await, ["tone", "operator", id]);
    for by in [id, "Anna"] {
        let (status, one) = fixture.get(&format!("/v1/audio/voices/{by}"), "").await;
        assert_eq!((status, &one), (200, &anna), "{by}");
    }
    for by in [json!(id), json!("Anna"), json!({"id": id})] {
        let spoken = fixture.speech(by.clone(), "").await;
        assert_eq!(spoken.status().as_u16(), 200, "{by}");
        same(heard(&spoken.bytes().await.expect("sound")), fixture.pitch(id));
    }
    same(heard(&fixture.speech(json!("operator"), "").await.bytes().await.expect("sound")), fixture.pitch("operator"));
    same(heard(&fixture.speech(json!("alloy"), "").await.bytes().await.expect("sound")), 220.0);

    assert_eq!(fixture.delete(id, "").await.1, json!({"id": id, "object": "audio.voice.deleted", "deleted": true}));
    for (status, answer) in [fixture.delete(id, "").await, fixture.get(&format!("/v1/audio/voices/{id}"), "").await, {
        answer(fixture.request(Method::GET, "/v1/audio/voices/Anna", "")).await
    }] {
        assert_eq!((status, &answer["error"]["code"]), (404, &json!("voice_not_found")));
    }
    let (status, refused) = {
        let spoken = fixture.speech(json!({"id": id}), "").await;
        (spoken.status().as_u16(), spoken.json::<Value>().await.expect("JSON"))
    };
    assert_eq!((status, &refused["error"]["param"]), (400, &json!("voice")));
    assert!(refused["error"]["message"].as_str().expect("text").contains("removed"), "{refused}");
    assert_eq!(fixture.files(), 1, "the operator's");
    fixture.hub.stop().await;
}

#[tokio::test]
async fn an_upload_is_stored_under_a_name_of_the_server() {
    let fixture = Fixture::open().await;
    let named = |name: &'static str| {
        let sound = Part::bytes(recording(440.0)).file_name("../../evil.wav").mime_str("audio/wav").expect("a type");
        let form = Form::new().text("name", name).text("consent", "I agree that my voice is cloned.");
        form.part("audio_sample", sound)
    };
    let (status, refused) = fixture.post(named("../evil"), "").await;
    assert_eq!((status, &refused["error"]["param"]), (400, &json!("name")));
    let (status, voice) = fixture.post(named("evil"), "").await;
    assert_eq!(status, 200, "{voice}");
    let id = voice["id"].as_str().expect("an id");
    assert!(is_uploaded_id(id));
    let names = |folder: &Path| -> Vec<String> {
        let files = std::fs::read_dir(folder).expect("there").map(|file| file.expect("one").file_name());
        files.map(|name| name.into_string().expect("text")).collect()
    };
    assert_eq!(names(fixture.folder.path()), ["voices"]);
    let stored = names(&fixture.folder.path().join("voices"));
    assert!(stored.iter().all(|name| name == "operator.wav" || name.starts_with(id)), "{stored:?}");
    fixture.hub.stop().await;
}

#[tokio::test]
async fn what_cannot_become_a_voice_is_refused_by_its_field() {
    let fixture = Fixture::open().await;
    let text = |name: &'static str| Form::new().text(name, "x");
    let with = |name: &'static str, value: &'static str| form("Anna", recording(440.0)).text(name, value);
    let silence = wav::write(&Pcm { rate: RATE, samples: vec![0; 72_000] });
    let endless = wav::write(&Pcm { rate: RATE, samples: vec![500; 24_000 * 300] });
    for (form, status, param, says) in [
        (text("consent"), 400, "name", "Missing"),
        (text("name"), 400, "audio_sample", "Missing"),
        (form("Anna", Vec::new()), 400, "audio_sample", "Missing"),
        (
            Form::new().text("name", "Anna").part("audio_sample", Part::bytes(recording(440.0))),
            400,
            "consent",
            "the speaker agrees",
        ),
        (form("Anna", b"no sound".to_vec()), 400, "audio_sample", "WAV, MP3"),
        (form("Anna", silence), 400, "audio_sample", "silent"),
        (form("Anna", endless), 400, "audio_sample", "1 s to 60 s"),
        (form("Anna", vec![0; 33 << 20]), 413, "audio_sample", "32 MiB"),
        (form("../../anna", recording(440.0)), 400, "name", "1 to 64 letters"),
        (form("Alloy", recording(440.0)), 400, "name", "another voice"),
    ] {
        let (got, answer) = fixture.post(form, "").await;
        let error = &answer["error"];
        assert_eq!((got, &error["param"]), (status, &json!(param)), "{answer}");
        assert!(error["message"].as_str().expect("text").contains(says), "{answer}");
    }
    drop(fixture);
    // Ten at once from an address, then one a second.
    let fixture = Fixture::open().await;
    for (form, param) in [
        (form("operator", recording(440.0)), "name"),
        (with("language", "is"), "language"),
        (with("type", "prompt"), "type"),
    ] {
        let (status, answer) = fixture.post(form, "").await;
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(param)), "{answer}");
    }
    let body = json!({"type": "prompt", "name": "Anna", "prompt": "deep"});
    let (status, answer) = answer(fixture.request(Method::POST, "/v1/audio/voices", "").json(&body)).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("unsupported_type")));
    assert_eq!(fixture.files(), 1);
}

#[tokio::test]
async fn an_engine_without_a_library_says_which_has_one() {
    let engines = engines(FakeStt::default(), FakeLlm::default(), FakeTts::default());
    let hub = Hub::start(engines, Config::default()).await;
    let url = format!("http://{}/v1/audio/voices", hub.address);
    let list: Value = client().get(&url).send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(list["voices"], json!([{"id": "tone", "name": "Tone", "language": "en-US"}]));
    assert_eq!((&list["default"], &list["library"], &list["data"]), (&json!("tone"), &Value::Null, &json!([])));
    for request in [client().post(&url).multipart(form("Anna", recording(440.0))), client().delete(format!("{url}/x"))]
    {
        let (status, answer) = answer(request).await;
        let error = &answer["error"];
        assert_eq!((status, &error["code"]), (400, &json!("custom_voices_unsupported")));
        let says = error["message"].as_str().expect("text");
        assert!(says.contains("'fake'") && says.contains("speechlm"), "{says}");
    }
    assert_eq!(client().get(format!("{url}/tone")).send().await.expect("an answer").status().as_u16(), 200);
    hub.stop().await;
}

#[tokio::test]
async fn voices_are_seen_used_and_removed_by_the_key_that_added_them_and_by_admins() {
    let fixture = Fixture::start(Keys::of(&[ALICE, BOB]).with_admin(&[ADMIN])).await;
    let alices = fixture.add("Anna", 440.0, ALICE).await;
    let bobs = fixture.add("Anna", 550.0, BOB).await;
    assert_eq!(fixture.ids(ALICE).await, ["tone", "operator", alices.as_str()]);
    assert_eq!(fixture.ids(BOB).await, ["tone", "operator", bobs.as_str()]);
    assert_eq!(fixture.ids(ADMIN).await.len(), 4);
    for (key, id) in [(ALICE, &alices), (BOB, &bobs)] {
        let spoken = fixture.speech(json!("Anna"), key).await.bytes().await.expect("sound");
        same(heard(&spoken), fixture.pitch(id));
    }
    let stolen = fixture.speech(json!({"id": alices}), BOB).await;
    assert_eq!(stolen.status().as_u16(), 400);
    let why = stolen.text().await.expect("text");
    assert!(why.contains("voice_not_found"), "{why}");
    let unknown = fixture.speech(json!("nobody"), BOB).await.text().await.expect("text");
    assert!(!unknown.contains(&alices) && !unknown.contains(&bobs), "no list of others' voices: {unknown}");
    assert_eq!(fixture.get(&format!("/v1/audio/voices/{alices}"), BOB).await.0, 404);
    assert_eq!(fixture.delete(&alices, BOB).await.0, 404);
    for key in [ALICE, ADMIN] {
        let (status, answer) = fixture.delete("operator", key).await;
        assert_eq!((status, &answer["error"]["code"]), (403, &json!("voice_fixed")));
        assert_eq!(fixture.delete("tone", key).await.0, 403);
    }
    fixture.add("Ben", 660.0, ALICE).await;
    let (status, answer) = fixture.post(form("Carl", recording(770.0)), ALICE).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("too_many_voices")), "half of four are hers");
    assert_eq!(fixture.delete(&bobs, ADMIN).await.0, 200);
    assert_eq!(fixture.delete(&alices, ALICE).await.0, 200);
    assert_eq!(fixture.request(Method::GET, "/v1/audio/voices", "wrong").send().await.expect("one").status(), 401);
    fixture.hub.stop().await;
}

/// The pitch of a response's audio.
fn answered(events: &[Value]) -> f32 {
    let deltas = events.iter().filter(|event| event["type"] == "response.output_audio.delta");
    let pcm: Vec<u8> =
        deltas.flat_map(|event| BASE64.decode(event["delta"].as_str().expect("text")).expect("base64")).collect();
    heard(&pcm)
}

fn update(voice: Value) -> Value {
    json!({"type": "session.update", "session": {"type": "realtime", "audio": {"output": {"voice": voice}}}})
}

#[tokio::test]
async fn a_session_speaks_with_a_voice_that_was_added_while_it_runs() {
    let fixture = Fixture::open().await;
    let mut by_id = fixture.hub.connect("").await;
    let mut by_name = fixture.hub.connect("").await;
    let id = fixture.add("Anna", 440.0, "").await;
    for (socket, voice) in [(&mut by_id, json!({"id": id})), (&mut by_name, json!("Anna"))] {
        socket.send(update(voice.clone())).await;
        let updated = socket.news().await;
        assert_eq!(updated["session"]["audio"]["output"]["voice"], id.as_str(), "{voice}: {updated}");
        same(answered(&socket.ask("Hello?").await), fixture.pitch(&id));
    }
    let mut other = fixture.hub.connect("").await;
    let response = json!({"type": "response.create", "response": {"audio": {"output": {"voice": {"id": id}}}}});
    other.send(response).await;
    same(answered(&other.until("response.done").await), fixture.pitch(&id));

    fixture.cloner.store.remove(&id).expect("removed");
    let failed = by_id.ask("And now?").await;
    let done = &failed.last().expect("one")["response"];
    assert_eq!(done["status"], "failed", "{done}");
    let says = done["status_details"].to_string();
    assert!(says.contains(&id), "it says which voice: {says}");
    let mut third = fixture.hub.connect("").await;
    third.send(update(json!({"id": id}))).await;
    let error = third.news().await;
    assert_eq!(error["error"]["code"], "voice_not_found", "{error}");
    same(answered(&third.ask("Hello?").await), 220.0);
    fixture.hub.stop().await;
}

#[tokio::test]
async fn a_session_does_not_speak_with_another_keys_voice() {
    let fixture = Fixture::start(Keys::of(&[ALICE, BOB])).await;
    let id = fixture.add("Anna", 440.0, ALICE).await;
    let session = json!({"session": {"type": "realtime", "audio": {"output": {"voice": {"id": id}}}}});
    let secret = async |key| {
        let request = fixture.request(Method::POST, "/v1/realtime/client_secrets", key).json(&session);
        answer(request).await
    };
    let (status, refused) = secret(BOB).await;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("voice_not_found")));
    let (status, made) = secret(ALICE).await;
    assert_eq!((status, &made["session"]["audio"]["output"]["voice"]), (200, &json!(id)));
    let connect = async |key: &str| {
        use tokio_tungstenite::tungstenite::client::IntoClientRequest;
        let url = format!("ws://{}/v1/realtime", fixture.hub.address);
        let mut request = url.into_client_request().expect("a request");
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().expect("a header"));
        let (stream, _) = crate::hub::connect(request).await.expect("accepted");
        let mut socket = crate::hub::Socket { stream, frames: Vec::new() };
        let created = socket.next().await;
        (socket, created)
    };
    let ek = made["value"].as_str().expect("a key");
    let (mut socket, created) = connect(ek).await;
    assert_eq!(created["session"]["audio"]["output"]["voice"], id.as_str());
    same(answered(&socket.ask("Hello?").await), fixture.pitch(&id));
    let (mut socket, _) = connect(BOB).await;
    for voice in [json!({"id": id}), json!(id)] {
        socket.send(update(voice)).await;
        assert_eq!(socket.news().await["error"]["code"], "voice_not_found");
    }
    socket.send(update(json!("Anna"))).await;
    assert_eq!(socket.news().await["error"]["code"], "voice_not_found", "by its name neither");
    same(answered(&socket.ask("Hello?").await), 220.0);
    assert_eq!(fixture.delete(&id, ALICE).await.0, 200);
    let (mut socket, created) = connect(ek).await;
    assert_eq!(created["session"]["audio"]["output"]["voice"], "tone", "the voice has gone, the key has not");
    same(answered(&socket.ask("Hello?").await), 220.0);
}

#[tokio::test]
async fn a_job_speaks_with_a_custom_voice_and_fails_where_it_was_removed() {
    let fixture = Fixture::open().await;
    let anna = fixture.add("Anna", 440.0, "").await;
    let ben = fixture.add("Ben", 550.0, "").await;
    let submit = async |voice: &str, input: &str| {
        let body = json!({"input": input, "voice": voice, "response_format": "wav"});
        let (status, job) = answer(fixture.request(Method::POST, "/v1/audio/speech/jobs", "").json(&body)).await;
        assert_eq!(status, 202, "{job}");
        job["id"].as_str().expect("an id").to_owned()
    };
    let until = async |id: &str, right: &dyn Fn(&Value) -> bool| {
        for _ in 0..4_000 {
            let (_, job) = fixture.get(&format!("/v1/audio/speech/jobs/{id}"), "").await;
            if right(&job) {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it never came");
    };
    let ended = |job: &Value| job["status"] == "completed" || job["status"] == "failed";
    let done = submit("Anna", "Hello there.").await;
    let job = until(&done, &ended).await;
    assert_eq!((&job["status"], &job["voice"]), (&json!("completed"), &json!(anna)));
    let file = fixture.request(Method::GET, &format!("/v1/audio/speech/jobs/{done}/audio"), "").send().await;
    let file = file.expect("an answer").bytes().await.expect("a file");
    same(heard(&file[wav::HEADER_LEN..]), fixture.pitch(&anna));

    // One is being spoken, one waits; both of its voices are removed meanwhile.
    let long = "WAIT for the first of these sentences, please. WAIT for the second of these sentences, please.";
    let running = submit("Anna", long).await;
    let waiting = submit("Ben", "Hello there.").await;
    until(&running, &|job| job["status"] == "running").await;
    for id in [&anna, &ben] {
        assert_eq!(fixture.delete(id, "").await.0, 200);
    }
    fixture.cloner.speaking.add_permits(100);
    for (job, voice) in [(running, anna), (waiting, ben)] {
        let job = until(&job, &ended).await;
        assert_eq!((&job["status"], &job["error"]["code"]), (&json!("failed"), &json!("voice_not_found")), "{job}");
        assert!(job["error"]["message"].as_str().expect("text").contains(&voice), "{job}");
    }
    fixture.hub.stop().await;
}

#[tokio::test]
#[allow(clippy::disallowed_methods)]
async fn who_goes_while_a_voice_is_made_leaves_none_and_two_are_made_at_once() {
    let fixture = Fixture::open().await;
    let conditioning = &fixture.cloner.conditioning;
    conditioning.forget_permits(1_000);
    let sent = |name: &str| {
        let request = fixture.request(Method::POST, "/v1/audio/voices", "").multipart(form(name, recording(440.0)));
        tokio::spawn(request.send())
    };
    let first = sent("Anna");
    let second = sent("Ben");
    while fixture.cloner.n_asked.load(Ordering::SeqCst) < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (status, refused) = fixture.post(form("Carl", recording(440.0)), "").await;
    assert_eq!((status, &refused["error"]["code"]), (503, &json!("server_overloaded")), "{refused}");
    for one in [first, second] {
        one.abort();
        assert!(one.await.expect_err("gone").is_cancelled());
    }
    fixture.hub.until("voice_requests_total{endpoint=\"voices\",outcome=\"cancelled\"}", 2.0).await;
    conditioning.add_permits(2);
    for _ in 0..4_000 {
        let is_made = fixture.cloner.n_made.load(Ordering::SeqCst) == 2;
        if is_made && fixture.cloner.store.list().len() == 1 && fixture.files() == 1 {
            conditioning.add_permits(10);
            fixture.add("Anna", 440.0, "").await;
            return fixture.hub.stop().await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{:?}", fixture.cloner.store.list());
}

#[tokio::test]
async fn the_command_line_lists_adds_and_removes() {
    let fixture = Fixture::start(Keys::of(&[ALICE, BOB])).await;
    let url = format!("http://{}", fixture.hub.address);
    let wav = fixture.folder.path().join("anna.wav");
    std::fs::write(&wav, recording(440.0)).expect("written");
    let wav = wav.to_str().expect("text");
    let run = async |args: &[&str]| {
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_antiphon"))
            .arg("voices")
            .args(args)
            .args(["--url", &url])
            .env("ANTIPHON_API_KEY", ALICE)
            .output()
            .await
            .expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let consent = ["--consent", "I agree.", "--transcript", "La la la.", "--language", "de"];
    let (code, added, _) = run(&[&["add", "Anna", wav, "--json"], &consent[..]].concat()).await;
    assert_eq!(code, Some(0));
    let added: Value = serde_json::from_str(&added).expect("JSON");
    let id = added["id"].as_str().expect("an id");
    assert_eq!(fixture.cloner.store.reference(id).expect("there").transcript.as_deref(), Some("La la la."));
    let (_, listed, _) = run(&["list"]).await;
    let row = listed.lines().find(|line| line.starts_with(id)).expect("listed");
    assert!(["Anna", "de", "3.0 s", "added"].iter().all(|word| row.contains(word)), "{listed}");
    assert!(listed.contains("the operator's") && listed.contains("the engine's"), "{listed}");
    let (code, _, why) = run(&[&["add", "anna", wav], &consent[..]].concat()).await;
    assert!(code == Some(1) && why.contains("already"), "{code:?}: {why}");
    let (code, _, why) = run(&["remove", "operator"]).await;
    assert!(code == Some(1) && why.contains("the operator's"), "{code:?}: {why}");
    assert_eq!(run(&["remove", "Anna"]).await, (Some(0), format!("{id}: removed\n"), String::new()));
    assert_eq!(run(&["remove", "Anna"]).await.0, Some(1));
    for (wrong, code) in [(&["list", "--key", "wrong"][..], 1), (&["add", "Anna", "nowhere.wav", "--consent", "x"], 1)]
    {
        assert_eq!(run(wrong).await.0, Some(code), "{wrong:?}");
    }
    fixture.hub.stop().await;
    assert_eq!(run(&["list"]).await.0, Some(4), "nobody answers");
}

#[tokio::test]
async fn an_address_sends_so_many_voices_at_once() {
    let fixture = Fixture::open().await;
    // Ten at once, then one a second: they come faster than that.
    for n in 1..100 {
        let (status, answer) = fixture.post(form("Anna", vec![1]), "").await;
        if status == 429 {
            assert!(n > 10, "the {n}th is refused");
            assert_eq!(answer["error"]["code"], "rate_limit_exceeded");
            return fixture.hub.stop().await;
        }
        assert_eq!(status, 400, "{answer}");
    }
    panic!("nobody is refused");
}

/// A key of its own file.
fn storage_key(folder: &Path) -> (String, Arc<dyn Sealing>) {
    let path = folder.join(format!("{:016x}.key", rand::random::<u64>()));
    std::fs::write(&path, SealingKey::generate().encoded()).expect("written");
    let key = StorageKey::read(&path).expect("a key");
    (path.to_str().expect("text").to_owned(), Arc::new(key))
}

/// The files of a folder, by name.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).expect("there").map(|entry| entry.expect("an entry").path());
    let name = |path: &Path| path.file_name().expect("a name").to_str().expect("text").to_owned();
    entries.map(|path| (name(&path), std::fs::read(&path).expect("a file"))).collect()
}

fn holds(files: &BTreeMap<String, Vec<u8>>, bytes: &[u8]) -> bool {
    files.values().any(|file| file.windows(bytes.len()).any(|window| window == bytes))
}

/// What no file of a sealed voice may hold: its sound, words, name and consent.
fn secrets() -> [Vec<u8>; 4] {
    let sound = recording(440.0)[1_000..1_064].to_vec();
    [sound, b"walnut tree".to_vec(), b"Anna Example".to_vec(), b"voice is cloned".to_vec()]
}

#[tokio::test]
async fn an_uploaded_voice_is_sealed_and_needs_its_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let voices = folder.path().join("voices");
    std::fs::create_dir(&voices).expect("made");
    std::fs::write(voices.join("operator.wav"), recording(330.0)).expect("written");
    let ((_, key), (_, other)) = (storage_key(folder.path()), storage_key(folder.path()));
    let fixture = Fixture::restarted(folder, Keys::default(), Some(key.clone())).await;
    let wanted = form("Anna Example", recording(440.0)).text("ref_text", "Under the walnut tree.");
    let (status, anna) = fixture.post(wanted, "").await;
    assert_eq!(status, 200, "{anna}");
    let id = anna["id"].as_str().expect("an id").to_owned();
    let pitch = fixture.pitch(&id);
    let files = contents(&voices);
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    let sealed = ["json", "txt", "wav"].map(|extension| format!("{id}.{extension}.sealed"));
    assert_eq!(names, ["operator.wav", &sealed[0], &sealed[1], &sealed[2]]);
    for secret in secrets() {
        assert!(!holds(&files, &secret), "{}", String::from_utf8_lossy(&secret));
    }
    fixture.hub.stop().await;

    // Another key, and none: it is named, refused, and left as it is.
    let mut folder = fixture.folder;
    for (sealing, why) in [(Some(other), "it is sealed with another key"), (None, "server.storage_key is empty")] {
        let fixture = Fixture::restarted(folder, Keys::default(), sealing).await;
        assert_eq!(fixture.ids("").await, ["tone", "operator"]);
        let (_, list) = fixture.get("/v1/audio/voices", "").await;
        let unusable = &list["unusable"][0];
        let reason = unusable["reason"].as_str().expect("text");
        assert!(unusable["id"] == id.as_str() && reason.contains(why), "{list}");
        let refused: Value = fixture.speech(json!(id), "").await.json().await.expect("JSON");
        let message = refused["error"]["message"].as_str().expect("text");
        assert!(refused["error"]["param"] == "voice" && message.contains("cannot be used"), "{refused}");
        assert_eq!(fixture.delete(&id, "").await.0, 404);
        fixture.add("Anna Example", 550.0, "").await;
        fixture.hub.stop().await;
        let after = contents(&voices);
        assert!(files.iter().all(|(name, bytes)| after.get(name) == Some(bytes)), "nothing is lost");
        for name in after.keys().filter(|name| !files.contains_key(*name)) {
            std::fs::remove_file(voices.join(name)).expect("removed");
        }
        folder = fixture.folder;
    }

    let fixture = Fixture::restarted(folder, Keys::default(), Some(key)).await;
    assert_eq!(fixture.get(&format!("/v1/audio/voices/{id}"), "").await, (200, anna));
    same(heard(&fixture.speech(json!(id), "").await.bytes().await.expect("sound")), pitch);
    assert_eq!(fixture.get("/v1/audio/voices", "").await.1["unusable"], json!([]));
    assert_eq!((fixture.delete(&id, "").await.0, fixture.files()), (200, 1));
    fixture.hub.stop().await;
}

#[tokio::test]
async fn why_a_voice_cannot_be_used_is_for_administrators() {
    let fixture = Fixture::start(Keys::of(&[ALICE]).with_admin(&[ADMIN])).await;
    assert_eq!(fixture.get("/v1/audio/voices", ADMIN).await.1["unusable"], json!([]));
    assert!(fixture.get("/v1/audio/voices", ALICE).await.1.get("unusable").is_none());
    fixture.hub.stop().await;
}

/// A voice "Anna Example" that is added to the store; its id and the digest of what it speaks with.
fn added(store: &VoiceStore) -> (String, [u8; 32]) {
    let pcm = antiphon_audio::decode::read(recording(440.0).into(), Duration::from_secs(60)).expect("decoded");
    let voice = NewVoice {
        name: "Anna Example".into(),
        language: None,
        recording: antiphon_engine_api::tts::Recording { pcm },
        transcript: Some("Under the walnut tree.".into()),
        consent: Consent { statement: "I agree that my voice is cloned.".into(), received_at: 1_700_000_000 },
        owner: None,
    };
    let id = store.add(voice, |_| Ok(())).expect("added").id;
    let digest = store.reference(&id).expect("there").digest;
    (id, digest)
}

#[test]
fn voices_of_before_the_key_are_sealed_at_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, key) = storage_key(folder.path());
    let voices = folder.path().join("voices");
    let (id, digest) = added(&store(&voices, None));
    let plain = contents(&voices);
    assert!(secrets().iter().all(|secret| holds(&plain, secret)), "they are looked for where they would be");
    std::fs::write(voices.join("operator.wav"), recording(330.0)).expect("written");
    std::fs::write(voices.join("operator.txt"), "La la la.").expect("written");

    let digest_of = |store: &VoiceStore| store.reference(&id).map(|reference| reference.digest).ok();
    let is_sealed = || {
        let mut files = contents(&voices);
        let operators = [files.remove("operator.wav"), files.remove("operator.txt")];
        operators.iter().all(Option::is_some)
            && files.len() == 3
            && files.keys().all(|name| name.ends_with(".sealed"))
            && !secrets().iter().any(|secret| holds(&files, secret))
    };
    let listed = store(&voices, None).list();
    let sealed = store(&voices, Some(key.clone()));
    assert_eq!((sealed.list(), digest_of(&sealed)), (listed.clone(), Some(digest)));
    assert!(is_sealed(), "{:?}", contents(&voices).keys());
    let again = store(&voices, Some(key.clone()));
    assert_eq!((again.list(), digest_of(&again)), (listed.clone(), Some(digest)));

    // It broke off while the plain files went, or while the sealed ones were written.
    let all = contents(&voices);
    let broken_off = [
        vec![("txt", true), ("json", true), ("wav", true), ("json", false)],
        vec![("txt", true), ("wav", true), ("txt", false), ("json", false), ("wav", false)],
        vec![("txt", false), ("json", false), ("wav", false)],
    ];
    for kept in broken_off {
        for name in all.keys().filter(|name| name.starts_with("voice_")) {
            std::fs::remove_file(voices.join(name)).expect("removed");
        }
        for (extension, is_sealed) in &kept {
            let name = format!("{id}.{extension}{}", if *is_sealed { ".sealed" } else { "" });
            let bytes = if *is_sealed { &all[&name] } else { &plain[&name] };
            std::fs::write(voices.join(name), bytes).expect("written");
        }
        let store = store(&voices, Some(key.clone()));
        assert_eq!((store.list(), digest_of(&store)), (listed.clone(), Some(digest)), "{kept:?}");
        assert!(is_sealed(), "{kept:?}: {:?}", contents(&voices).keys());
    }
}

#[test]
fn a_changed_file_of_a_sealed_voice_is_noticed_and_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, key) = storage_key(folder.path());
    let voices = folder.path().join("voices");
    let first = store(&voices, Some(key.clone()));
    let (id, digest) = added(&first);
    let file = |id: &str, extension: &str| voices.join(format!("{id}.{extension}.sealed"));
    let state = || {
        let store = store(&voices, Some(key.clone()));
        let reference = store.reference(&id).map(|reference| reference.digest);
        (store.unusable().into_iter().map(|voice| voice.reason).next(), reference.ok())
    };
    assert_eq!(state(), (None, Some(digest)));
    for extension in ["wav", "txt", "json"] {
        let path = file(&id, extension);
        let whole = std::fs::read(&path).expect("there");
        let places = (0..whole.len()).step_by((whole.len() / 40).max(1)).chain([whole.len() - 1]);
        let changed = places.map(|at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            (format!("byte {at}"), bytes)
        });
        let others = [
            ("cut".into(), whole[..whole.len() - 1].to_vec()),
            ("longer".into(), [&whole[..], b"x"].concat()),
            ("none".into(), Vec::new()),
            ("no head".into(), b"RIFF".to_vec()),
        ];
        for (what, bytes) in changed.chain(others) {
            std::fs::write(&path, &bytes).expect("written");
            let (reason, reference) = state();
            assert_eq!(reference, None, "{extension}, {what}");
            let is_named =
                reason.is_some_and(|reason| reason.contains(&format!("{id}.{extension}.sealed cannot be opened")));
            assert!(is_named || extension != "json", "{what}");
            assert!(std::fs::read(&path).expect("there") == bytes, "{extension}, {what}: it was replaced");
        }
        // A plain file in its place, which another process may have written.
        let plain = voices.join(format!("{id}.{extension}"));
        std::fs::write(&plain, if extension == "wav" { recording(330.0) } else { b"{}".to_vec() }).expect("written");
        assert_eq!(state().1, None, "{extension}");
        assert!(plain.exists(), "{extension}: what may be the only copy stays");
        std::fs::remove_file(&plain).expect("removed");
        std::fs::write(&path, whole).expect("written");
    }
    assert_eq!(state(), (None, Some(digest)));

    // Another voice's file, whole, with and without its own head.
    let other = {
        let store = store(&voices, Some(key.clone()));
        let pcm = antiphon_audio::decode::read(recording(550.0).into(), Duration::from_secs(60)).expect("decoded");
        let consent = Consent { statement: "Yes.".into(), received_at: 1 };
        let recording = antiphon_engine_api::tts::Recording { pcm };
        let name = "Bob".into();
        let language = None;
        let owner = None;
        let voice = NewVoice { name, language, recording, transcript: None, consent, owner };
        store.add(voice, |_| Ok(())).expect("added").id
    };
    for (from, to) in [("wav", "wav"), ("json", "json"), ("json", "txt")] {
        let path = file(&id, to);
        let own = std::fs::read(&path).expect("there");
        let foreign = std::fs::read(file(&other, from)).expect("there");
        let behind = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b'\n').expect("a head") + 1;
        let renamed = [&own[..behind(&own)], &foreign[behind(&foreign)..]].concat();
        for bytes in [foreign, renamed] {
            std::fs::write(&path, bytes).expect("written");
            assert_eq!(state().1, None, "{from} as {to}");
        }
        std::fs::write(&path, own).expect("written");
    }
    assert_eq!(state(), (None, Some(digest)));
}

#[tokio::test]
async fn a_voice_gets_another_key_by_way_of_its_plain_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let ((old_path, old), (_, new)) = (storage_key(folder.path()), storage_key(folder.path()));
    let voices = folder.path().join("voices");
    let (id, digest) = added(&store(&voices, Some(old)));
    for name in contents(&voices).keys() {
        let path = voices.join(name);
        let mut unseal = tokio::process::Command::new(env!("CARGO_BIN_EXE_antiphon"));
        let status = unseal.args(["unseal", "--storage-key", &old_path]).arg(&path).status().await.expect("it runs");
        assert!(status.success(), "{name}");
        std::fs::remove_file(path).expect("removed");
    }
    assert!(secrets().iter().all(|secret| holds(&contents(&voices), secret)));
    let store = store(&voices, Some(new));
    assert_eq!(store.reference(&id).expect("there").digest, digest);
    assert!(contents(&voices).keys().all(|name| name.ends_with(".sealed")));
}

#[tokio::test]
async fn a_session_refuses_a_voice_that_no_engine_has_and_takes_openais() {
    let hub = crate::hub::hub("Hello.", "Yes.").await;
    let mut socket = hub.connect("").await;
    socket.send(update(json!("no-such-voice"))).await;
    let refused = socket.next().await;
    assert_eq!(refused["error"]["code"], "voice_not_found", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("fake has tone"), "{refused}");
    for voice in ["marin", "tone"] {
        socket.send(update(json!(voice))).await;
        let updated = socket.next().await;
        assert_eq!(updated["session"]["audio"]["output"]["voice"], voice, "{updated}");
    }
    let audio = json!({"output": {"voice": "no-such-voice"}});
    socket.send(json!({"type": "response.create", "response": {"audio": audio}})).await;
    assert_eq!(socket.next().await["error"]["code"], "voice_not_found");
}
