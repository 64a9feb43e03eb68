//! Speech jobs whose disk, voice, client or hub fails.

use super::harness::{Canary, Party, fault, run};
use super::process::{Answer, Disk, Settings, TEST_TIMEOUT, ask};
use super::upstream::{Stage, Wrong};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Resident memory that jobs may cost the hub, in MiB.
const MEMORY_MIB: u64 = 64;

const JOBS: &str = "/v1/audio/speech/jobs";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_fail_say_why_and_the_next_is_done() {
    let plain = || Settings { has_jobs: true, ..Settings::default() };
    let few = || plain().with("SPEECH__MAX_JOBS", "5");
    let mut faults = vec![
        fault("the file has no room", "disk_full", disk_full).leaving_files().short(),
        fault("the voice fails", "failed, and why", |party| voice_fails(party, Wrong::ServerError)).leaving_files(),
        fault("the voice never ends", "failed, and why", |party| voice_fails(party, Wrong::Endless)).leaving_files(),
        fault("the voice hangs, and the job is deleted", "200", deleted_while_it_hangs).leaving_files(),
        fault("the file is removed behind the hub's back", "an error status", file_removed).leaving_files(),
        fault("the file is cut behind the hub's back", "an error status, or a body that breaks off", file_cut)
            .leaving_files(),
        fault("more than may wait", "429 with Retry-After", too_many).alone(few()).leaving_files(),
        fault("ids that are none", "404", bad_ids).leaving_files(),
        fault("the download is left, thirty times", "nothing: it has left", left_downloads).leaving_files(),
        fault("the folder cannot be made", "an error status", no_folder)
            .alone(Settings::default().with("SPEECH__JOBS_DIR", "/proc/version/jobs")),
        fault("the list of jobs is not a database", "an error status, or jobs", not_a_database)
            .alone(plain())
            .leaving_files(),
        fault("killed within a job", "the job, completed after the restart", killed)
            .beside(Canary::After)
            .alone(plain())
            .leaving_files(),
    ];
    if std::env::var("ANTIPHON_FAULTS").is_ok()
        && let Some(disk) = Disk::mount(1_024)
    {
        let settings = plain().with("SPEECH__JOBS_DIR", disk.path().to_str().expect("Unicode"));
        let disk = Arc::new(disk);
        faults.push(
            fault("the disk fills up", "disk_full, then 507, and the next is done", move |party| {
                disk_fills_up(party, disk.clone())
            })
            .alone(settings)
            .leaving_files(),
        );
    }
    run("jobs", plain(), MEMORY_MIB, faults).await;
}

async fn submit(party: &Party, text: &str) -> Answer {
    party.post(JOBS, &json!({"model": "tts-1", "voice": "alloy", "input": text, "response_format": "pcm"})).await
}

/// Submits a job; its id.
async fn submitted(party: &Party, text: &str) -> String {
    let answer = submit(party, text).await;
    answer.is(&[202]);
    answer.json()["id"].as_str().expect("an id").to_owned()
}

/// The job, once it has this status.
async fn until(party: &Party, id: &str, status: &str) -> Value {
    let look = async {
        loop {
            let job = party.http("GET", &format!("{JOBS}/{id}"), "", b"").await.json();
            if job["status"] == status {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TEST_TIMEOUT, look).await.unwrap_or_else(|_| panic!("the job is not {status}"))
}

async fn completed(party: &Party) -> String {
    let id = submitted(party, "Hello there. This is a job.").await;
    until(party, &id, "completed").await;
    id
}

fn file_of(party: &Party, id: &str) -> std::path::PathBuf {
    party.hub.folder.path().join("jobs").join(format!("{id}.raw"))
}

async fn disk_full(party: Party) {
    // The voice takes a second, in which the file becomes a device without room.
    let id = submitted(&party, &format!("Hello {}.", Stage::Tts.marker(Wrong::Slow))).await;
    // Samples are gathered here.
    let spool = file_of(&party, &id).with_extension("pcm");
    std::os::unix::fs::symlink("/dev/full", &spool).expect("linked before the first samples");
    party.beside().await;
    let job = until(&party, &id, "failed").await;
    assert_eq!(job["error"]["code"], "disk_full", "{job}");
    completed(&party).await;
}

async fn disk_fills_up(party: Party, disk: Arc<Disk>) {
    let id = submitted(&party, &format!("Hello {}.", Stage::Tts.marker(Wrong::Slow))).await;
    until(&party, &id, "running").await;
    disk.fill(true);
    party.beside().await;
    let job = until(&party, &id, "failed").await;
    assert_eq!(job["error"]["code"], "disk_full", "{job}");
    submit(&party, "Hello.").await.is(&[507]);
    disk.fill(false);
    completed(&party).await;
}

async fn voice_fails(party: Party, wrong: Wrong) {
    let id = submitted(&party, &format!("Hello {}.", Stage::Tts.marker(wrong))).await;
    let (job, ()) = tokio::join!(until(&party, &id, "failed"), party.beside());
    let message = job["error"]["message"].as_str().unwrap_or_default();
    assert!(!message.is_empty() && !message.contains("secret"), "{job}");
    party.http("GET", &format!("{JOBS}/{id}/audio"), "", b"").await.is(&[404, 409]);
    completed(&party).await;
}

async fn deleted_while_it_hangs(party: Party) {
    let id = submitted(&party, &format!("Hello {}.", Stage::Tts.marker(Wrong::Hang))).await;
    until(&party, &id, "running").await;
    party.beside().await;
    party.http("DELETE", &format!("{JOBS}/{id}"), "", b"").await.is(&[200]);
    completed(&party).await;
}

async fn file_removed(party: Party) {
    let id = completed(&party).await;
    std::fs::remove_file(file_of(&party, &id)).expect("removed");
    party.beside().await;
    party.http("GET", &format!("{JOBS}/{id}/audio"), "", b"").await.is(&[404, 409, 410, 500]);
    completed(&party).await;
}

async fn file_cut(party: Party) {
    let id = completed(&party).await;
    std::fs::write(file_of(&party, &id), b"short").expect("written");
    party.beside().await;
    let head = format!("GET {JOBS}/{id}/audio HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    // The connection may break off before the head has left.
    let answer = ask(party.tcp().await, &head, b"").await;
    let is_cut = |answer: Answer| answer.status != 200 || !answer.is_whole;
    assert!(answer.is_none_or(is_cut), "a whole file of another length");
}

async fn too_many(party: Party) {
    let text = format!("Hello {}.", Stage::Tts.marker(Wrong::Hang));
    let mut refused = None;
    let mut ids = Vec::new();
    for _ in 0..20 {
        let answer = submit(&party, &text).await;
        match answer.status {
            202 => ids.push(answer.json()["id"].as_str().expect("an id").to_owned()),
            _ => refused = Some(answer),
        }
    }
    party.beside().await;
    let refused = refused.expect("a refusal");
    refused.is(&[429]);
    assert!(refused.header("retry-after").is_some());
    for id in ids {
        party.http("DELETE", &format!("{JOBS}/{id}"), "", b"").await.is(&[200]);
    }
}

async fn bad_ids(party: Party) {
    for id in ["job_none", "..%2Fjobs.db", "%00", "jobs.db", &"x".repeat(4_000)] {
        party.http("GET", &format!("{JOBS}/{id}"), "", b"").await.is(&[404]);
        party.http("GET", &format!("{JOBS}/{id}/audio"), "", b"").await.is(&[404]);
        party.http("DELETE", &format!("{JOBS}/{id}"), "", b"").await.is(&[404]);
    }
    party.beside().await;
}

async fn left_downloads(party: Party) {
    let id = completed(&party).await;
    for _ in 0..30 {
        let mut stream = party.tcp().await;
        let head = format!("GET {JOBS}/{id}/audio HTTP/1.1\r\nhost: localhost\r\n\r\n");
        tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.expect("the hub reads");
        let _ = timeout(TEST_TIMEOUT, tokio::io::AsyncReadExt::read_u8(&mut stream)).await.expect("an answer");
    }
    party.beside().await;
}

async fn no_folder(party: Party) {
    let answer = submit(&party, "Hello.").await;
    party.beside().await;
    answer.is(&[500, 503, 507]);
    assert!(!String::from_utf8_lossy(&answer.body).contains("/proc"), "{answer:?}");
}

async fn not_a_database(party: Party) {
    completed(&party).await;
    let folder = party.hub.folder.path().join("jobs");
    for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
        if entry.path().extension().is_some_and(|kind| kind == "db") {
            std::fs::write(entry.path(), b"this is no database ".repeat(500)).expect("written");
        }
    }
    let answer = submit(&party, "Hello.").await;
    party.beside().await;
    answer.is(&[202, 500, 503]);
}

async fn killed(party: Party) {
    let text = format!("Hello there. {}. The last one.", "A sentence in the middle".repeat(3));
    let id = submitted(&party, &text).await;
    party.hub.signal("KILL");
    assert_eq!(party.hub.ended().await, None);
    party.hub.start_again().await.expect("it starts again");
    until(&party, &id, "completed").await;
    party.converse().await;
}
