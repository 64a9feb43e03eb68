//! Hubs that are stopped, killed, paused, whose clock is set, or that run out of disk, descriptors or memory.
//!
//! A pause of the process is the step of the monotonic clock that a suspended machine makes.

use super::harness::{Canary, Party, closed, error_of, fault, run, typed};
use super::process::{Disk, Settings, TEST_TIMEOUT, WallClock, ask};
use super::upstream::{Stage, Wrong};
use crate::hub::Socket;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

/// Resident memory that a life cycle may cost the hub, in MiB.
const MEMORY_MIB: u64 = 128;

const SECONDS_OF_A_YEAR: f64 = 365.25 * 86_400.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hubs_end_and_begin_again_in_order() {
    let plain = Settings::default;
    let mut faults = vec![
        fault("SIGTERM while it speaks", "the answer to its end, then 1001", stopped_while_speaking)
            .beside(Canary::After)
            .alone(plain())
            .short(),
        fault("SIGTERM while the model hangs", "1001 within the drain time", stopped_while_hanging)
            .beside(Canary::After)
            .alone(plain()),
        fault("SIGTERM twice", "the end before the drain time, exit code 130", stopped_twice)
            .beside(Canary::After)
            .alone(plain()),
        fault("SIGTERM while clients send without end", "1001 or the end", stopped_under_load)
            .beside(Canary::After)
            .alone(plain()),
        fault("SIGINT before the first session", "nothing", |party| async move {
            party.hub.signal("INT");
            assert_eq!(party.hub.ended().await, Some(0));
            party.hub.start_again().await.expect("it starts again");
            party.converse().await;
        })
        .beside(Canary::After)
        .alone(plain()),
        fault("SIGKILL while it speaks", "the end of the connection", killed)
            .beside(Canary::After)
            .alone(plain())
            .short(),
        fault("SIGHUP without anything to read", "nothing", |party| async move {
            for _ in 0..20 {
                party.hub.signal("HUP");
            }
            party.beside().await;
        })
        .alone(plain()),
        fault("paused for four seconds", "an answer or an error, and the session goes on", paused)
            .beside(Canary::After)
            .alone(plain()),
        fault("the port is taken", "a message, and exit code 4", port_taken).alone(plain()),
        fault("a setting that is none", "a message, and exit code 2", bad_setting).alone(plain()),
        fault("a folder of recordings that cannot be made", "a message, and exit code 2", bad_folder).alone(plain()),
        fault("the folder of recordings becomes a file", "its answers", lost_folder)
            .alone(plain().with("SESSION__RECORD", "FOLDER/records"))
            .leaving_files(),
        fault("80 descriptors, and 200 connections", "an answer, or the end", few_descriptors)
            .alone(Settings { limits: vec!["-n 80"], ..plain() }),
        fault("100 descriptors, and forty who want sessions", "the end, or a refusal", sessions_beyond_descriptors)
            .alone(Settings { limits: vec!["-n 100"], ..plain() }.with("SERVER__MAX_SESSIONS", "20"))
            .short(),
        fault("3 GiB of address space, and messages of 15 MiB", "an error event", little_memory)
            .alone(Settings { limits: vec!["-v 3145728"], ..plain() }),
        fault("started and stopped ten times", "nothing", ten_lives).beside(Canary::After).alone(plain()),
    ];
    if let Some(clock) = WallClock::find() {
        let settings = Settings { env: clock.env(), ..plain() };
        let clock = Arc::new(clock);
        faults.push(
            fault("the wall clock is set", "its answers", move |party| set_clock(party, clock.clone()))
                .alone(settings)
                .short(),
        );
    }
    if std::env::var("ANTIPHON_FAULTS").is_ok()
        && let Some(disk) = Disk::mount(1_024)
    {
        let settings = plain().with("SESSION__RECORD", disk.path().to_str().expect("Unicode"));
        let disk = Arc::new(disk);
        faults.push(
            fault("the disk of recordings becomes read-only", "its answers", move |party| {
                read_only_disk(party, disk.clone())
            })
            .beside(Canary::After)
            .alone(settings),
        );
    }
    run("lifecycle", plain(), MEMORY_MIB, faults).await;
}

/// A session that is being answered at length.
async fn listening(party: &Party) -> Socket {
    let mut socket = party.connect("").await;
    socket.send(typed("Hello")).await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until("response.output_audio.delta").await;
    socket
}

/// The hub has ended well, and serves again.
async fn again(party: &Party, code: i32) {
    assert_eq!(party.hub.ended().await, Some(code), "{}", party.hub.log());
    party.hub.start_again().await.expect("it starts again");
    party.converse().await;
}

async fn stopped_while_speaking(party: Party) {
    let mut socket = listening(&party).await;
    party.hub.signal("TERM");
    let done = socket.until("response.done").await.pop().expect("an end");
    assert_eq!(done["response"]["status"], "completed", "{done}");
    assert_eq!(closed(&mut socket).await, Some(1001));
    again(&party, 0).await;
}

/// Forward as after a long sleep, back as by a time server, and to years in which the machine's battery was empty.
async fn set_clock(party: Party, clock: Arc<WallClock>) {
    let mut socket = party.connect("").await;
    for (offset, years) in [("+2h", 0), ("-1d", 0), ("+20y", 20), ("-50y", -50), ("-60y", -60), ("+0", 0)] {
        clock.step(offset);
        socket.send(typed("Hello")).await;
        socket.send(json!({"type": "response.create"})).await;
        let done = socket.until("response.done").await.pop().expect("an end");
        assert_eq!(done["response"]["status"], "completed", "{offset}: {done}");
        party.converse().await;
        party.beside().await;
        if years != 0 {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
            let year = 1970 + (now as f64 / SECONDS_OF_A_YEAR) as i64 + years;
            let is_set = (year - 1..=year + 1).any(|year| party.hub.log().contains(&format!("{year}-")));
            assert!(is_set, "{offset}: the hub's clock is not set");
        }
    }
}

async fn hanging(party: &Party) -> Socket {
    let mut socket = party.connect("").await;
    socket.send(typed(&Stage::Llm.marker(Wrong::Hang))).await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until("response.created").await;
    socket
}

async fn stopped_while_hanging(party: Party) {
    let mut sockets = Vec::new();
    for _ in 0..10 {
        sockets.push(hanging(&party).await);
    }
    party.hub.signal("TERM");
    for mut socket in sockets {
        assert_eq!(closed(&mut socket).await, Some(1001));
    }
    again(&party, 0).await;
}

async fn stopped_twice(party: Party) {
    let _socket = hanging(&party).await;
    party.hub.signal("TERM");
    tokio::time::sleep(Duration::from_millis(100)).await;
    party.hub.signal("TERM");
    // The drain time is 3 s.
    let code = timeout(Duration::from_millis(2_500), party.hub.ended()).await.expect("it ends at once");
    assert_eq!(code, Some(130));
    party.hub.start_again().await.expect("it starts again");
    party.converse().await;
}

async fn stopped_under_load(party: Party) {
    let mut sockets = Vec::new();
    for _ in 0..20 {
        let mut socket = party.connect("").await;
        let sound = super::harness::append(super::harness::speech());
        socket.send(sound.clone()).await;
        socket.send(sound).await;
        sockets.push(socket);
    }
    party.hub.signal("TERM");
    for mut socket in sockets {
        assert!(matches!(closed(&mut socket).await, Some(1001) | None));
    }
    again(&party, 0).await;
}

async fn killed(party: Party) {
    let mut socket = listening(&party).await;
    party.hub.signal("KILL");
    assert_eq!(closed(&mut socket).await, None);
    assert_eq!(party.hub.ended().await, None);
    party.hub.start_again().await.expect("it starts again");
    party.converse().await;
}

async fn paused(party: Party) {
    let mut socket = party.connect("").await;
    party.hub.signal("STOP");
    socket.send(typed("Hello")).await;
    socket.send(json!({"type": "response.create"})).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    party.hub.signal("CONT");
    // Its limit of 3 s for the model may have passed meanwhile.
    timeout(TEST_TIMEOUT, socket.until("response.done")).await.expect("an answer, or an error");
    socket.send(json!({"type": "response.create"})).await;
    let done = timeout(TEST_TIMEOUT, socket.until("response.done")).await.expect("an answer").pop().expect("an end");
    assert_eq!(done["response"]["status"], "completed", "{done}");
    party.converse().await;
}

/// The program with these arguments, which must not start; its exit code.
async fn fails(party: &Party, args: &[&str], env: (&str, &str)) -> Option<i32> {
    let program = std::env::var("ANTIPHON").unwrap_or_else(|_| env!("CARGO_BIN_EXE_antiphon").to_owned());
    let mut command = tokio::process::Command::new(program);
    command.args(args).env_clear().env(env.0, env.1).env("ANTIPHON_STT__ENGINE", "openai").kill_on_drop(true);
    command.env("ANTIPHON_STT__API_KEY_ENV", "").env("ANTIPHON_STT__BASE_URL", "http://127.0.0.1:1/v1");
    command.current_dir(party.hub.folder.path());
    let output = timeout(TEST_TIMEOUT, command.output()).await.expect("it ends").expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("antiphon: ") && !said.contains("panicked"), "{said}");
    output.status.code()
}

async fn port_taken(party: Party) {
    let listen = party.hub.address().to_string();
    let code = fails(&party, &["serve", "--listen", &listen], ("ANTIPHON_SPEECH__JOBS_DIR", "")).await;
    party.beside().await;
    assert_eq!(code, Some(4));
}

async fn bad_setting(party: Party) {
    let code = fails(&party, &["serve", "--listen", "127.0.0.1:0"], ("ANTIPHON_SERVER__MAX_SESSIONS", "-7")).await;
    party.beside().await;
    assert_eq!(code, Some(2));
}

async fn bad_folder(party: Party) {
    let code =
        fails(&party, &["serve", "--listen", "127.0.0.1:0"], ("ANTIPHON_SESSION__RECORD", "/proc/records")).await;
    party.beside().await;
    assert_eq!(code, Some(2));
}

async fn lost_folder(party: Party) {
    let folder = party.hub.folder.path().join("records");
    std::fs::remove_dir_all(&folder).expect("removed");
    std::fs::write(&folder, b"a file").expect("written");
    for _ in 0..3 {
        let mut socket = listening(&party).await;
        let done = socket.until("response.done").await.pop().expect("an end");
        assert_eq!(done["response"]["status"], "completed", "{done}");
    }
    party.beside().await;
}

async fn read_only_disk(party: Party, disk: Arc<Disk>) {
    let n_recordings = || std::fs::read_dir(disk.path()).expect("a folder").count();
    let before = n_recordings();
    disk.set_writable(false);
    let mut socket = listening(&party).await;
    let done = socket.until("response.done").await.pop().expect("an end");
    assert_eq!(done["response"]["status"], "completed", "{done}");
    drop(socket);
    party.converse().await;
    assert_eq!(n_recordings(), before);
    assert!(party.hub.log().contains("the session cannot be recorded"), "{}", party.hub.log());
    disk.set_writable(true);
    party.converse().await;
    assert!(n_recordings() > before, "the next session is recorded");
}

async fn few_descriptors(party: Party) {
    let mut streams = Vec::new();
    for _ in 0..200 {
        // The kernel's queue takes what the hub does not.
        match timeout(Duration::from_millis(200), super::process::connect(party.hub.address(), party.from)).await {
            Ok(Ok(stream)) => streams.push(stream),
            _ => break,
        }
    }
    assert!(streams.len() > 80, "{} connections", streams.len());
    party.beside().await;
    let head = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let asked = futures_util::future::join_all(streams.into_iter().map(|stream| ask(stream, head, b""))).await;
    let answers: Vec<_> = asked.into_iter().flatten().collect();
    assert!(!answers.is_empty(), "none was answered");
    answers.iter().for_each(|answer| answer.is(&[200]));
}

async fn sessions_beyond_descriptors(party: Party) {
    let mut sockets = Vec::new();
    let more = async {
        for _ in 0..40 {
            match timeout(Duration::from_millis(500), party.open("", &[])).await {
                Ok(Ok(socket)) => sockets.push(socket),
                _ => break,
            }
        }
    };
    more.await;
    // Of twenty places, an address of the same machine may have all.
    assert!((5..=20).contains(&sockets.len()), "{}", sockets.len());
    let n_closed = sockets.len().saturating_sub(12);
    sockets.truncate(12);
    // Their places are free once the hub has seen that they are closed.
    let seen = async {
        while party.hub.log().matches(" disconnected ").count() < n_closed {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), seen).await.expect("the hub sees that sockets are closed");
    party.beside().await;
}

async fn little_memory(party: Party) {
    let mut sockets = Vec::new();
    for _ in 0..6 {
        let mut socket = party.connect("").await;
        super::harness::send(&mut socket, tokio_tungstenite::tungstenite::Message::text(" ".repeat(15 << 20))).await;
        sockets.push(socket);
    }
    party.beside().await;
    for socket in &mut sockets {
        assert_eq!(error_of(socket).await, "invalid_json");
    }
}

async fn ten_lives(party: Party) {
    for _ in 0..10 {
        party.converse().await;
        party.hub.signal("TERM");
        assert_eq!(party.hub.ended().await, Some(0), "{}", party.hub.log());
        party.hub.start_again().await.expect("it starts again");
    }
}
