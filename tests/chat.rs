//! The command line with sound: `chat` and `say` on devices that ALSA makes of files, `transcribe` on every format, `doctor`.
//!
//! The microphone is a recording that hibari spoke, the loudspeaker a file. ALSA, the hub and its engines are real.

use crate::hub::tiny_whisper_env;
use antiphon_test_server::{Answer, TestServer};
use serde_json::Value;
use std::io::{Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

/// Longer than any step here takes, so that a test that hangs fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(90);

/// Samples of the reply that have sounded when words come over it: about 3 s of it, by when a server that sends the story as soon
/// as it is made has sent it.
const SOUNDED: usize = 48_000;

/// A folder with ALSA's configuration: the microphone "mic", which hears a second of silence, `question`, and silence for longer
/// than a test takes; and the loudspeaker "desk".
fn desk(question: Option<&str>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut samples = vec![0; 24_000];
    if let Some(words) = question {
        samples.extend(spoken(words, &path("said.wav")));
    }
    samples.resize(samples.len() + 120 * 24_000, 0);
    std::fs::write(path("mic.raw"), samples.into_iter().flat_map(i16::to_le_bytes).collect::<Vec<u8>>())
        .expect("written");
    let config = format!(
        "pcm.null {{ type null }}\n\
         pcm.mic {{ type file slave.pcm \"null\" file \"/dev/null\" infile \"{}\" format \"raw\" }}\n\
         pcm.desk {{ type file slave.pcm \"null\" file \"{}\" format \"raw\" }}\n",
        path("mic.raw"),
        path("desk.raw"),
    );
    std::fs::write(path("alsa.conf"), config).expect("written");
    folder
}

/// The words at the rate of the protocol, spoken by hibari into `file`: Whisper mishears flite now and then.
fn spoken(words: &str, file: &str) -> Vec<i16> {
    let mut say = std::process::Command::new(env!("CARGO_BIN_EXE_antiphon"));
    say.args(["say", words, "-o", file]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let made = say.env("ANTIPHON_MODELS__DIR", "models").env("ANTIPHON_TTS__ENGINE", "hibari").output();
    let made = made.expect("the program runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let file = std::fs::read(file).expect("spoken");
    let pcm = antiphon_audio::wav::read(&file, antiphon_client::RATE, Duration::from_secs(60)).expect("a WAV file");
    antiphon_audio::convert(&pcm.samples, pcm.rate, antiphon_client::RATE)
}

fn antiphon(args: &[&str], alsa: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    command.args(args).env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.env("ANTIPHON_MODELS__DIR", "nowhere/models").env("ALSA_CONFIG_PATH", alsa).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Samples that the loudspeaker has played.
fn n_played(folder: &Path) -> usize {
    std::fs::metadata(folder.join("desk.raw")).expect("it is open").len() as usize / 2
}

/// Of these, samples that can be heard.
fn n_audible(folder: &Path) -> usize {
    // It is there once the loudspeaker is open.
    let raw = std::fs::read(folder.join("desk.raw")).unwrap_or_default();
    raw.chunks_exact(2).filter(|pair| i16::from_le_bytes([pair[0], pair[1]]).unsigned_abs() > 300).count()
}

/// How much of a file the program has read, in bytes.
fn n_read(program: u32, file: &Path) -> u64 {
    let file = file.canonicalize().expect("there");
    let mut open = std::fs::read_dir(format!("/proc/{program}/fd")).expect("it runs").flatten();
    let found = open.find(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == file));
    let number = found.expect("the microphone is open").file_name().into_string().expect("a number");
    let info = std::fs::read_to_string(format!("/proc/{program}/fdinfo/{number}")).expect("it is open");
    let at = info.lines().find_map(|line| line.strip_prefix("pos:")).expect("a position");
    at.trim().parse().expect("a number")
}

/// Puts words into the silence that the program is to read from the microphone, once the reply has sounded for a while.
async fn interrupt(folder: &Path, program: u32, words: &[i16]) {
    while n_audible(folder) < SOUNDED {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let microphone = folder.join("mic.raw");
    let bytes: Vec<u8> = words.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let mut file = std::fs::OpenOptions::new().write(true).open(&microphone).expect("there");
    // Half a second ahead, in whole samples.
    let at = (n_read(program, &microphone) + 24_000) & !1;
    file.seek(SeekFrom::Start(at)).expect("a file");
    file.write_all(&bytes).expect("written");
}

/// Talks at the desk, with the words `over` over the reply, until a line of the captions is one that `is_last` looks for and the
/// loudspeaker has fallen silent, then presses Ctrl-C. The lines.
async fn talk(folder: &Path, audio: &str, over: Option<&str>, is_last: impl Fn(&str) -> bool) -> Vec<String> {
    let over = over.map(|words| spoken(words, &folder.join("over.wav").display().to_string()));
    let args = ["chat", "--device", "desk", "--microphone", "mic", "--audio", audio];
    let mut chat = antiphon(&args, &folder.join("alsa.conf"));
    let mut chat = chat.envs(tiny_whisper_env()).spawn().expect("it starts");
    let pid = chat.id().expect("it runs");
    let mut lines = BufReader::new(chat.stdout.take().expect("piped")).lines();
    let mut seen = Vec::new();
    let talking = async {
        let reading = async {
            while let Some(line) = lines.next_line().await.expect("text") {
                seen.push(line);
                if is_last(&seen[seen.len() - 1]) {
                    break;
                }
            }
        };
        let interrupting = async {
            if let Some(words) = &over {
                interrupt(folder, pid, words).await;
            }
        };
        tokio::join!(reading, interrupting);
        // Silent: nothing was written for a second.
        let mut before = 0;
        while n_audible(folder) < 2_400 || n_played(folder) > before {
            before = n_played(folder);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let is_late = timeout(TEST_TIMEOUT, talking).await.is_err();
    assert!(!is_late, "it did not come to it: {seen:?}");
    assert!(std::process::Command::new("kill").args(["-INT", &pid.to_string()]).status().expect("kill").success());
    let output = timeout(TEST_TIMEOUT, chat.wait_with_output()).await.expect("it ends").expect("waited for");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("Talk now."), "{said}");
    seen
}

#[tokio::test]
async fn a_question_into_the_microphone_is_answered_by_the_loudspeaker() {
    let folder = desk(Some("What time is it?"));
    let seen = talk(folder.path(), "opus", None, |line| line.starts_with("antiphon")).await;
    assert_eq!(seen[0], "you       What time is it?", "{seen:?}");
    let answer = &seen[seen.len() - 1];
    assert!(answer.starts_with("antiphon  It is ") && answer.contains(" ms]"), "{seen:?}");
}

#[tokio::test]
async fn words_over_the_answer_stop_the_loudspeaker() {
    // The story goes on for longer than 20 s.
    let folder = desk(Some("Tell me a story."));
    let over = Some("What time is it?");
    let seen = talk(folder.path(), "pcm16", over, |line| line.starts_with("antiphon  It is ")).await;
    let story = seen.iter().find(|line| line.starts_with("antiphon")).expect("it began");
    assert!(story.contains("interrupted]"), "{seen:?}");
}

/// A server of the plain protocol sends the story as soon as it is made, so that the client has all of it when it is interrupted.
#[tokio::test]
async fn words_over_an_answer_that_has_come_discard_the_rest() {
    let folder = desk(Some("Tell me a story."));
    let over = Some("What time is it?");
    talk(folder.path(), "ga", over, |line| line.starts_with("antiphon  It is ")).await;
    // Only what sounds is written: some seconds of the story, and the second answer.
    let played = Duration::from_millis(n_played(folder.path()) as u64 / 24);
    assert!(played < Duration::from_secs(15), "{played:?} of sound: the story went on");
}

#[tokio::test]
async fn a_text_is_spoken_aloud_and_without_a_device_the_way_out_is_named() {
    let folder = desk(None);
    let alsa = folder.path().join("alsa.conf");
    let output =
        antiphon(&["say", "Good morning to you.", "--device", "desk"], &alsa).output().await.expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(n_audible(folder.path()) > 2_400, "it was played");
    let output = antiphon(&["say", "hello"], &alsa).output().await.expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("loudspeaker \"default\" cannot be opened") && said.contains("write a file with -o"),
        "{said}"
    );
    let output = antiphon(&["chat", "--microphone", "nowhere"], &alsa).output().await.expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("microphone \"nowhere\" cannot be opened") && said.contains("--list"), "{said}");
}

#[tokio::test]
async fn every_format_of_the_api_is_transcribed() {
    let sounds = ["tone.flac", "tone.m4a", "tone.mp3", "tone.ogg", "tone.opus", "tone.webm"];
    let files: Vec<_> =
        sounds.iter().map(|name| format!("{}/tests/fixtures/sounds/{name}", env!("CARGO_MANIFEST_DIR"))).collect();
    let args: Vec<_> = ["transcribe", "--json"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let mut transcribe = antiphon(&args, Path::new("nowhere"));
    let output = transcribe.envs(tiny_whisper_env()).output().await.expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
    let text = String::from_utf8(output.stdout).expect("text");
    let lengths: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["audio_ms"].as_u64().expect("a length"))
        .collect();
    assert_eq!(lengths.len(), sounds.len(), "{text}");
    // A lossy coder adds some samples at its edges.
    assert!(lengths.iter().all(|ms| ms.abs_diff(lengths[0]) < 120), "{lengths:?}");
}

/// A server that greets every client with `text`; its port.
fn greets(text: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            stream.expect("a client").write_all(text.as_bytes()).expect("sent");
        }
    });
    port
}

#[tokio::test]
async fn the_doctor_finds_what_is_there_and_names_what_is_missing() {
    let body = r#"{"object":"list","data":[{"id":"llama3.2:latest","object":"model","owned_by":"library"}]}"#;
    let models = TestServer::start(move |_| Answer::of("application/json", body));
    let nats = greets("INFO {\"server_id\":\"N\",\"version\":\"2.11.1\",\"proto\":1}\r\n");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let doctor = |args: &[&str]| {
        let mut command = antiphon(&[&["doctor"], args].concat(), Path::new("nowhere"));
        command
            .env("ANTIPHON_SERVER__LISTEN", "127.0.0.1:0")
            .env("ANTIPHON_LLM__LOCAL_PORTS", models.address().port().to_string());
        command
    };
    let mut well = doctor(&["--json"]);
    well.env("ANTIPHON_CLUSTER__SERVERS", format!("nats://127.0.0.1:{nats}"));
    let output = timeout(TEST_TIMEOUT, well.output()).await.expect("it ends").expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let has = |part: &str, state: &str, text: &str| {
        let findings = report["findings"].as_array().expect("findings");
        let found = findings.iter().any(|finding| {
            (&finding["part"], &finding["state"]) == (&part.into(), &state.into()) && finding.to_string().contains(text)
        });
        assert!(found, "{part} {state} {text}: {report}");
    };
    has("ports", "ok", "is free");
    has("engines", "warn", "stt: none");
    has("engines", "ok", "llm: assistant");
    has("models", "warn", "antiphon models pull whisper-base");
    has("language model", "warn", "llama3.2:latest");
    has("nats", "ok", "nats-server 2.11.1 answers");
    has("sound", "warn", "the microphone \\\"default\\\" cannot be opened");
    has("disk", "ok", "GB free");

    let mut ill = doctor(&[]);
    let address = taken.local_addr().expect("bound").to_string();
    ill.env("ANTIPHON_SERVER__LISTEN", &address)
        .env("ANTIPHON_STT__ENGINE", "whisper")
        .env("ANTIPHON_STT__MODEL", "nowhere/model.bin");
    let output = timeout(TEST_TIMEOUT, ill.output()).await.expect("it ends").expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(4), "the port comes first: {said}");
    let own = format!("(process {})", std::process::id());
    assert!(said.contains(&format!("FAIL  ports           server.listen: {address} is in use by")), "{said}");
    assert!(
        said.contains(&own) && said.contains("FAIL  engines         stt: the engine \"whisper\" cannot start"),
        "{said}"
    );
    assert!(String::from_utf8_lossy(&output.stderr).contains("not well: ports, engines"));
}
