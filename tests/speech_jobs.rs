//! Speech jobs over a real socket: submitted, synthesized in the background, downloaded, removed; also across a
//! restart.

use crate::hub::{Hub, engines};
use crate::speech_api::client;
use antiphon::config::Config;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::{FakeTts, MS_PER_CHAR};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{DirEntry, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

async fn start(tts: &FakeTts, folder: &Path, change: impl FnOnce(&mut Config)) -> Hub {
    let engines = engines(FakeStt::default(), FakeLlm::default(), tts.clone());
    let mut config = Config::default();
    config.speech.jobs_dir = folder.to_str().expect("text").into();
    change(&mut config);
    Hub::start(engines, config).await
}

async fn ask(hub: &Hub, method: Method, path: &str) -> Response {
    client()
        .request(method, format!("http://{}/v1/audio/speech/jobs{path}", hub.address))
        .send()
        .await
        .expect("an answer")
}

async fn look(hub: &Hub, id: &str) -> Value {
    ask(hub, Method::GET, &format!("/{id}")).await.json().await.expect("JSON")
}

async fn submit(hub: &Hub, body: Value) -> Response {
    client().post(format!("http://{}/v1/audio/speech/jobs", hub.address)).json(&body).send().await.expect("an answer")
}

/// Submits a job; returns its id.
async fn submitted(hub: &Hub, body: Value) -> String {
    let response = submit(hub, body).await;
    assert_eq!(response.status().as_u16(), 202);
    let location = response.headers()["location"].to_str().expect("text").to_owned();
    let job: Value = response.json().await.expect("JSON");
    let id = job["id"].as_str().expect("an id").to_owned();
    assert_eq!(location, format!("/v1/audio/speech/jobs/{id}"));
    id
}

/// Waits until a job satisfies `right`.
async fn until(hub: &Hub, id: &str, right: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..4_000 {
        let job = look(hub, id).await;
        if right(&job) {
            return job;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("it never came: {}", look(hub, id).await);
}

fn is(status: &'static str) -> impl Fn(&Value) -> bool {
    move |job| job["status"] == status
}

/// Three chunks.
const TEXT: &str = "Hello there. This is the second sentence of the text. And this one is the third sentence of it.";

fn wish(format: &str) -> Value {
    json!({"model": "tts-1", "voice": "alloy", "input": TEXT, "response_format": format})
}

#[tokio::test(start_paused = true)]
async fn a_job_is_spoken_and_its_file_fetched() {
    let folder = tempfile::tempdir().expect("a folder");
    let tts = FakeTts::default().held(1);
    let hub = start(&tts, folder.path(), |_| {}).await;
    let id = submitted(&hub, wish("pcm")).await;
    let job = until(&hub, &id, |job| job["progress"]["chunks_done"] == 1).await;
    assert_eq!(
        (&job["status"], &job["progress"]["chunks_total"], &job["audio"]),
        (&json!("running"), &json!(3), &Value::Null)
    );
    let early = ask(&hub, Method::GET, &format!("/{id}/audio")).await;
    assert_eq!(early.status().as_u16(), 409, "nothing half-written is served");
    tts.gate.add_permits(9);
    let job = until(&hub, &id, is("completed")).await;
    // The spaces between the chunks are not synthesized.
    let bytes = (TEXT.len() as u64 - 2) * MS_PER_CHAR * 48;
    assert_eq!(
        (&job["audio"]["bytes"], &job["progress"]["audio_seconds"]),
        (&json!(bytes), &json!(bytes as f64 / 48e3))
    );
    let file = ask(&hub, Method::GET, &format!("/{id}/audio")).await;
    assert_eq!(file.headers()["content-type"], "audio/pcm");
    assert_eq!(file.bytes().await.expect("whole").len() as u64, bytes);
    hub.until("voice_requests_total{endpoint=\"job\",outcome=\"ok\"} ", 1.0).await;
    let list: Value = ask(&hub, Method::GET, "?limit=1").await.json().await.expect("JSON");
    assert_eq!((&list["data"][0]["id"], &list["has_more"]), (&json!(id), &json!(false)));
    assert_eq!(ask(&hub, Method::DELETE, &format!("/{id}")).await.status().as_u16(), 200);
    assert_eq!(ask(&hub, Method::GET, &format!("/{id}/audio")).await.status().as_u16(), 404);
    let behind = ask(&hub, Method::GET, &format!("?after={id}")).await;
    assert_eq!(behind.status().as_u16(), 400, "a page behind a job that is gone is not the first one");
    let behind: Value = behind.json().await.expect("JSON");
    assert_eq!(
        (&behind["error"]["code"], &behind["error"]["param"]),
        (&json!("invalid_value"), &json!("after")),
        "{behind}"
    );
    hub.stop().await;
}

/// A folder that was there before keeps its permissions: the files have their own.
#[tokio::test(start_paused = true)]
async fn files_of_jobs_are_read_by_their_owner_only_in_whatever_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("changed");
    let modes = || {
        let files = std::fs::read_dir(folder.path()).expect("there").map(|file| file.expect("one"));
        let mode = |file: &DirEntry| file.metadata().expect("there").permissions().mode() & 0o777;
        files.map(|file| (file.file_name().into_string().expect("text"), mode(&file))).collect::<BTreeMap<_, _>>()
    };
    let private = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 0o600)).collect::<BTreeMap<_, _>>();
    let tts = FakeTts::default().held(1);
    let hub = start(&tts, folder.path(), |_| {}).await;
    let id = submitted(&hub, wish("mp3")).await;
    until(&hub, &id, |job| job["progress"]["chunks_done"] == 1).await;
    let list = ["jobs.db", "jobs.db-shm", "jobs.db-wal", "lock"];
    assert_eq!(modes(), private(&[&list[..], &[&format!("{id}.pcm")]].concat()));
    tts.gate.add_permits(9);
    until(&hub, &id, is("completed")).await;
    assert_eq!(modes(), private(&[&list[..], &[&format!("{id}.mp3")]].concat()));
    hub.stop().await;
    // As an earlier version left them.
    for name in ["jobs.db", &format!("{id}.mp3")] {
        std::fs::set_permissions(folder.path().join(name), Permissions::from_mode(0o644)).expect("changed");
    }
    let hub = start(&tts, folder.path(), |_| {}).await;
    until(&hub, &id, is("completed")).await;
    assert_eq!(modes(), private(&[&list[..], &[&format!("{id}.mp3")]].concat()));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_goes_on_after_a_restart_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = FakeTts::default().held(2);
    let hub = start(&first, folder.path(), |_| {}).await;
    let id = submitted(&hub, wish("wav")).await;
    let waiting = submitted(&hub, wish("mp3")).await;
    until(&hub, &id, |job| job["progress"]["chunks_done"] == 2).await;
    hub.stop().await;
    let second = FakeTts::default().held(9);
    let hub = start(&second, folder.path(), |_| {}).await;
    let job = until(&hub, &id, is("completed")).await;
    let said = [first.spoken(), second.spoken()].concat();
    assert_eq!(said[..3].join(" "), TEXT, "each chunk once, in order");
    let samples = (TEXT.len() as u64 - 2) * MS_PER_CHAR * 48;
    assert_eq!(job["audio"]["bytes"], samples + 44);
    until(&hub, &waiting, is("completed")).await;
    hub.stop().await;
    // Finished jobs survive a restart too.
    let hub = start(&FakeTts::default().held(0), folder.path(), |_| {}).await;
    until(&hub, &id, is("completed")).await;
    let file = ask(&hub, Method::GET, &format!("/{id}/audio")).await.bytes().await.expect("whole");
    assert_eq!((file.len() as u64, &file[..4]), (samples + 44, &b"RIFF"[..]));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_engine_speaks_no_job_in_a_voice_that_was_not_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = start(&FakeTts::default().held(1), folder.path(), |_| {}).await;
    let any = submitted(&hub, wish("pcm")).await;
    let mut asked = wish("pcm");
    asked["voice"] = "tone".into();
    let chosen = submitted(&hub, asked).await;
    until(&hub, &any, |job| job["progress"]["chunks_done"] == 1).await;
    hub.stop().await;
    let other = FakeTts::default().held(9).with_voices([("bell", "en-US")]);
    let hub = start(&other, folder.path(), |_| {}).await;
    let job = until(&hub, &any, is("completed")).await;
    assert_eq!((&job["voice"], other.spoken().join(" ")), (&json!("bell"), TEXT.to_owned()), "all of it, in one voice");
    let job = until(&hub, &chosen, is("failed")).await;
    let message = "Invalid 'voice': there is no voice \"tone\"; fake has bell.";
    assert_eq!(job["error"], json!({"code": "voice_not_found", "message": message}));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_looks_for_jobs_makes_none() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("jobs");
    let hub = start(&FakeTts::default().held(9), &folder, |_| {}).await;
    let list: Value = ask(&hub, Method::GET, "").await.json().await.expect("JSON");
    assert_eq!(list, json!({"object": "list", "data": [], "has_more": false}));
    assert_eq!(ask(&hub, Method::GET, "?after=job_a").await.status().as_u16(), 400);
    for (method, path) in [(Method::GET, "/job_a"), (Method::GET, "/job_a/audio"), (Method::DELETE, "/job_a")] {
        assert_eq!(ask(&hub, method, path).await.status().as_u16(), 404, "{path}");
    }
    assert!(!folder.exists());
    let id = submitted(&hub, wish("pcm")).await;
    until(&hub, &id, is("completed")).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_too_much_is_told_and_a_deleted_job_makes_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let tts = FakeTts::default().held(0);
    let hub =
        start(&tts, folder.path(), |config| (config.speech.max_jobs, config.speech.max_job_chars) = (2, 500)).await;
    let running = submitted(&hub, wish("pcm")).await;
    until(&hub, &running, is("running")).await;
    submitted(&hub, wish("pcm")).await;
    let refused = submit(&hub, wish("pcm")).await;
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (429, true));
    assert_eq!(ask(&hub, Method::DELETE, &format!("/{running}")).await.status().as_u16(), 200);
    hub.until("voice_requests_total{endpoint=\"job\",outcome=\"cancelled\"} ", 1.0).await;
    submitted(&hub, wish("pcm")).await;
    let long = submit(&hub, json!({"input": "word ".repeat(101), "voice": "alloy"})).await;
    assert_eq!(long.status().as_u16(), 400);
    assert_eq!(ask(&hub, Method::GET, "/job_none").await.status().as_u16(), 404);
    assert_eq!(ask(&hub, Method::DELETE, "/..%2Fjobs.db").await.status().as_u16(), 404);
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_ends_the_job_in_plain_words_and_the_next_one_is_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let tts = FakeTts::default().held(0);
    let hub = start(&tts, folder.path(), |_| {}).await;
    let id = submitted(&hub, wish("pcm")).await;
    std::os::unix::fs::symlink("/dev/full", folder.path().join(format!("{id}.pcm"))).expect("linked");
    tts.gate.add_permits(9);
    let job = until(&hub, &id, is("failed")).await;
    assert_eq!(job["error"], json!({"code": "disk_full", "message": "The server's disk is full."}));
    let audio = ask(&hub, Method::GET, &format!("/{id}/audio")).await;
    assert_eq!(audio.status().as_u16(), 409);
    let next = submitted(&hub, wish("flac")).await;
    until(&hub, &next, is("completed")).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_hub_leaves_the_first_ones_jobs_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = start(&FakeTts::default().held(0), folder.path(), |_| {}).await;
    let id = submitted(&first, wish("pcm")).await;
    let other = FakeTts::default().held(9);
    let second = start(&other, folder.path(), |_| {}).await;
    let refused = submit(&second, wish("pcm")).await;
    assert_eq!(refused.status().as_u16(), 503);
    let said = refused.text().await.expect("text");
    assert!(!said.contains(folder.path().to_str().expect("text")), "{said}");
    assert_eq!(look(&first, &id).await["id"], json!(id));
    assert!(other.spoken().is_empty());
    second.stop().await;
    first.stop().await;
    let without = start(&other, Path::new(""), |_| {}).await;
    assert_eq!(submit(&without, wish("pcm")).await.status().as_u16(), 404);
    without.stop().await;
}
