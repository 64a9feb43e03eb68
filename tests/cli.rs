//! The binary's interface for users and scripts: exit codes, stdout and stderr.

use crate::hub::tiny_whisper_env;
use antiphon_test_server::{Answer, TestServer, unused_address};
use std::ffi::OsStr;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

/// Longer than any step here takes, so that a test that hangs fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the binary with `env` and PATH only, without the rest of this process's environment.
fn antiphon(args: &[impl AsRef<OsStr>], env: &[(&str, &str)], stdin: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .args(args)
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        // Isolates the test from models installed on this machine.
        .env("ANTIPHON_MODELS__DIR", "nowhere/models")
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A command that exits without reading closes the pipe, which is not an error of the test.
    let _ = child.stdin.take().expect("piped").write_all(stdin);
    child.wait_with_output().expect("it ends")
}

/// Checks that the command ends with `code`, prints `expect` on stderr and nothing on stdout, and does not panic.
fn check(args: &[&str], env: &[(&str, &str)], code: i32, expect: &str) {
    let output = antiphon(args, env, b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    assert!(said.contains(expect), "{args:?}: {expect:?} is not in {said:?}");
    assert!(!said.contains("panicked"), "{said}");
    assert!(output.stdout.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn wrong_usage_and_wrong_settings_end_with_2() {
    check(&["speak"], &[], 2, "unrecognized subcommand 'speak'");
    check(&["say", "hello", "-o", "x.wav", "--device", "desk"], &[], 2, "cannot be used with");
    check(&["say", "hello", "-o", "x.wav", "--speed", "9"], &[], 2, "write a number from 0.25 to 4.0");
    check(&["say", " ", "-o", "x.wav"], &[], 2, "there is nothing to say");
    check(&["serve"], &[("ANTIPHON_LLM__ENGNIE", "openai")], 2, "did you mean ANTIPHON_LLM__ENGINE?");
    check(&["serve", "--listen", "8080"], &[], 2, "option --listen");
    check(&["config", "check", "nowhere.toml"], &[], 2, "nowhere.toml: cannot be read");
    check(&["config", "check"], &[("ANTIPHON_LOG", "a=b=c")], 2, "is no log filter");
    let jetstream = [("ANTIPHON_CLUSTER__JETSTREAM", "true")];
    check(&["config", "check"], &jetstream, 2, "cluster.sealing_key: no file is named");
    check(&["config", "check"], &jetstream, 2, "cluster.servers: no server is named");
    check(&["serve", "--listen", "127.0.0.1:0"], &jetstream, 2, "cluster.sealing_key: no file is named");
}

#[test]
fn config_check_finds_what_serve_refuses_to_start_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "x").expect("written");
    let below = format!("{}/below", file.display());
    let file = file.to_str().expect("Unicode");
    let cases: [(&[(&str, &str)], &str); 17] = [
        (&[("ANTIPHON_SERVER__API_KEYS_FILE", "nowhere.keys")], "nowhere.keys cannot be read"),
        (&[("ANTIPHON_API_KEYS", "good-key-1234567 \u{e9}t\u{e9}")], "environment variable ANTIPHON_API_KEYS, key 2"),
        (&[("ANTIPHON_SERVER__LISTEN", "0.0.0.0:0")], "refusing to listen on 0.0.0.0:0 without keys"),
        (&[("ANTIPHON_SERVER__LISTEN", "192.0.2.1:8080")], "server.listen: cannot listen on 192.0.2.1:8080"),
        (&[("ANTIPHON_SERVER__TLS_CERT", file)], "server.tls_cert and server.tls_key belong together"),
        (&[("ANTIPHON_SERVER__TLS_CERT", file), ("ANTIPHON_SERVER__TLS_KEY", file)], "server.tls_cert: "),
        (
            &[("ANTIPHON_SERVER__LISTEN", "127.0.0.1:9"), ("ANTIPHON_SERVER__PROBE_LISTEN", "127.0.0.1:9")],
            "server.probe_listen: server.listen listens on 127.0.0.1:9 already",
        ),
        (
            &[("ANTIPHON_SERVER__LISTEN", "127.0.0.1:9"), ("ANTIPHON_SIP__LISTEN", "127.0.0.1:9")],
            "sip.listen: server.listen listens on 127.0.0.1:9 already",
        ),
        (&[("ANTIPHON_SIP__LISTEN", "192.0.2.1:5060")], "sip.listen: cannot listen on 192.0.2.1:5060"),
        (
            &[("ANTIPHON_API_KEYS", "sk-one-of-ours-1234567890"), ("ANTIPHON_WYOMING__LISTEN", "127.0.0.1:0")],
            "wyoming.key names no API key",
        ),
        (&[("ANTIPHON_SERVER__AUDIT_LOG", "nowhere/audit.log")], "server.audit_log: nowhere/audit.log: the folder"),
        (&[("ANTIPHON_SESSION__RECORD", &below)], "session.record: the folder"),
        (&[("TWILIO_AUTH_TOKEN_FILE", "nowhere.token")], "TWILIO_AUTH_TOKEN_FILE: the file"),
        (&[("ANTIPHON_MODELS__REGISTRY", "nowhere.toml")], "nowhere.toml"),
        (&[("ANTIPHON_TTS__ENGINE", "openai"), ("ANTIPHON_TTS__SAMPLE_RATE", "5")], "tts.sample_rate = 5"),
        (
            &[("ANTIPHON_LLM__ENGINE", "openai"), ("OPENAI_API_KEY_FILE", "nowhere.key")],
            "OPENAI_API_KEY_FILE: the file",
        ),
        (&[("ANTIPHON_SERVER__STORAGE_KEY", "nowhere.key")], "server.storage_key"),
    ];
    for (settings, expect) in cases {
        check(&["config", "check"], settings, 2, expect);
    }
    let output = antiphon(&["config", "check"], &[], b"");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn calls_without_their_address_keys_and_secrets_are_refused_by_config_check_and_by_serve() {
    let account = |more: &str| {
        let keys = "kind = \"twilio\", account_sid = \"AC0123\", numbers = [\"+15550100\"]";
        ("ANTIPHON_TELEPHONY__ACCOUNTS", format!("{{ main = {{ {keys}{more} }} }}"))
    };
    let keys = "kind = \"asterisk\", api_url = \"http://127.0.0.1:9\", username = \"a\", password_env = \"NONE\", \
                endpoint = \"PJSIP/{number}@b\", numbers = [\"100\"]";
    let asterisk = ("ANTIPHON_TELEPHONY__ACCOUNTS", format!("{{ main = {{ {keys} }} }}"));
    let trunk = |keys: &str| ("ANTIPHON_SIP__TRUNKS", format!("{{ office = {{ {keys} }} }}"));
    let url = ("ANTIPHON_SERVER__PUBLIC_URL", "https://voice.example".to_owned());
    let token = ("TWILIO_AUTH_TOKEN", "secret".to_owned());
    let sip = ("ANTIPHON_SIP__LISTEN", "127.0.0.1:0".to_owned());
    let secret = ("ANTIPHON_SIP__WEBHOOK_SECRET_FILE", "nowhere.secret".to_owned());
    let webhook = ("ANTIPHON_SIP__WEBHOOK_URL", "http://127.0.0.1:9".to_owned());
    let tls = ("ANTIPHON_SIP__TLS_LISTEN", "127.0.0.1:0".to_owned());
    let cases = [
        (vec![account(""), token.clone()], "telephony.accounts needs server.public_url"),
        (vec![account(""), url.clone()], "telephony.accounts.main has no auth token: set the environment variable"),
        (vec![asterisk], "telephony.accounts.main has no password: set the environment variable \"NONE\""),
        (vec![account(", key = \"none\""), url, token], "telephony.accounts.main.key: \"none\" is no API key"),
        (vec![trunk("allow = [\"::1\"], key = \"none\""), sip.clone()], "sip.trunks.office.key: \"none\" is no API"),
        (
            vec![trunk("username = \"ann\", password_env = \"NONE\""), sip.clone()],
            "sip.trunks.office has a username and no password: set the environment variable \"NONE\"",
        ),
        (vec![webhook, secret, sip.clone()], "sip.webhook_secret_file \"nowhere.secret\""),
        (
            vec![tls, sip],
            "sip.tls_listen needs a certificate: set sip.tls_cert and sip.tls_key, or server.tls_cert and \
             server.tls_key, or start with --tls-self-signed",
        ),
    ];
    for (settings, expect) in cases {
        let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        check(&["config", "check"], &settings, 2, expect);
        check(&["serve", "--listen", "127.0.0.1:0"], &settings, 2, expect);
    }
}

#[test]
fn what_is_no_recording_ends_with_2() {
    check(&["replay", "nowhere.jsonl"], &[], 2, "nowhere.jsonl cannot be read: No such file");
    check(&["replay", "Cargo.toml"], &[], 2, "Cargo.toml is no recording of a session");
}

#[test]
fn an_open_server_ends_with_2_before_it_listens() {
    check(&["serve", "--listen", "0.0.0.0:0"], &[], 2, "refusing to listen on 0.0.0.0:0 without keys");
    let nowhere = [("ANTIPHON_SERVER__API_KEYS_FILE", "nowhere.keys")];
    check(&["serve", "--listen", "127.0.0.1:0"], &nowhere, 2, "nowhere.keys cannot be read");
    let odd = [("ANTIPHON_API_KEYS", "good-key-1234567 \u{e9}t\u{e9}")];
    check(&["serve", "--listen", "127.0.0.1:0"], &odd, 2, "environment variable ANTIPHON_API_KEYS, key 2");
}

#[test]
fn the_benchmarks_are_named_where_they_went() {
    let expect = "`make build` builds: target/release/antiphon-bench voice --sessions 3";
    check(&["bench", "voice", "--sessions", "3"], &[], 2, expect);
}

#[test]
fn what_fails_ends_with_1() {
    check(&["transcribe", "nowhere.wav"], &[], 1, "nowhere.wav: cannot be read");
    check(
        &["transcribe", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")],
        &[],
        1,
        "this is no sound file that can be read here",
    );
}

#[test]
fn transcribing_goes_on_behind_a_file_that_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = three_colours(folder.path());
    let file = file.to_str().expect("a plain path");
    let model = whisper_model();
    let env = [
        ("ANTIPHON_STT__ENGINE", "whisper"),
        ("ANTIPHON_STT__MODEL", model.path().to_str().expect("a plain path")),
        ("ANTIPHON_STT__THREADS", "1"),
    ];
    let output = antiphon(&["transcribe", "nowhere.wav", file, "neither.wav"], &env, b"");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("{file}: red green blue"));
    let said = String::from_utf8_lossy(&output.stderr);
    for expect in ["nowhere.wav: cannot be read", "neither.wav: cannot be read", "2 of 3 files were not transcribed"] {
        assert!(said.contains(expect), "{expect}: {said}");
    }
}

#[test]
fn a_missing_model_ends_with_3_and_says_which() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_str().expect("Unicode");
    let env = [("ANTIPHON_STT__ENGINE", "whisper"), ("ANTIPHON_STT__MODEL", folder)];
    check(&["serve", "--listen", "127.0.0.1:0"], &env, 3, "the engine \"whisper\" cannot start");
    check(&["serve", "--listen", "127.0.0.1:0"], &env, 3, folder);
}

#[test]
fn a_hub_for_one_command_makes_the_folder_for_recordings() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = folder.path().join("recordings");
    let file = folder.path().join("file");
    std::fs::write(&file, "x").expect("written");
    let tone = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/sounds/tone.flac");
    // Engines are loaded after it: a missing model ends the command.
    let model = folder.path().to_str().expect("Unicode");
    let ask = |record: &std::path::Path, code: i32, expect: &str| {
        let record = record.to_str().expect("Unicode");
        let env =
            [("ANTIPHON_STT__ENGINE", "whisper"), ("ANTIPHON_STT__MODEL", model), ("ANTIPHON_SESSION__RECORD", record)];
        check(&["ask", tone], &env, code, expect);
    };
    ask(&file.join("below"), 2, "session.record: the folder");
    ask(&made, 3, "the engine \"whisper\" cannot start");
    assert!(made.is_dir());
}

#[test]
fn transcribing_without_a_recognizer_ends_with_3() {
    let tone = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/sounds/tone.flac");
    check(&["transcribe", tone], &[], 3, "antiphon models pull whisper-base");
    check(&["transcribe", "nowhere.wav", tone], &[], 3, "nowhere.wav: cannot be read");
    check(&["transcribe", "nowhere.wav", tone], &[], 3, "antiphon models pull whisper-base");
}

#[test]
fn a_taken_port_ends_with_4() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    check(&["serve", "--listen", &address], &[], 4, "another program does already");
    // Without a command it does the same.
    check(&[], &[("ANTIPHON_SERVER__LISTEN", &address)], 4, "another program does already");
}

#[test]
fn the_version_is_printed_for_people_and_for_programs() {
    let output = antiphon(&["--version"], &[], b"");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("antiphon {}\n", env!("CARGO_PKG_VERSION")));
    let output = antiphon(&["--version", "--json"], &[], b"");
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    check(&["--json"], &[], 2, "--version");
}

#[test]
fn the_settings_of_an_earlier_version_are_checked_before_an_upgrade() {
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = folder.path().join("jobs");
    let file = folder.path().join("old.toml");
    let old = |settings: &str| {
        std::fs::write(&file, format!("[speech]\njobs_dir = {jobs:?}\n{settings}")).expect("written");
        let output = antiphon(&["upgrade-check", file.to_str().expect("Unicode"), "--json"], &[], b"");
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        (output.status.code(), found)
    };
    let (code, found) = old("[tts]\nlanes = 2\n");
    assert_eq!((code, &found["ok"]), (Some(2), &false.into()), "{found}");
    let change = found["changes"][0].as_str().expect("a change");
    assert!(change.ends_with("old.toml:4: tts.lanes is tts.replicas since version 0.2.0: write replicas"), "{change}");
    let (code, found) = old("[tts]\nreplicas = 2\n");
    assert_eq!((code, &found["ok"], &found["notes"]), (Some(0), &true.into(), &serde_json::json!([])), "{found}");
    assert!(!jobs.exists(), "nothing is made by looking");
    let variable = [("ANTIPHON_TTS__LANES", "2")];
    let output = antiphon(&["upgrade-check", file.to_str().expect("Unicode"), "--json"], &variable, b"");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("environment variable ANTIPHON_TTS__LANES: tts.lanes is tts.replicas"), "{said}");
    check(&["upgrade-check", "nowhere.toml"], &[], 2, "nowhere.toml: cannot be read");
}

#[test]
fn an_error_that_cannot_be_printed_keeps_its_exit_code() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    command.args(["replay", "nowhere.jsonl"]).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer);
    assert_eq!(command.status().expect("the binary starts").code(), Some(2));
}

/// As of `antiphon serve 2>&1 | tee log`, where Ctrl-C ends tee first.
#[tokio::test]
async fn a_hub_stops_when_the_reader_of_its_log_has_ended() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_antiphon"));
    command.args(["serve", "--listen", "127.0.0.1:0"]).env_clear();
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.env("ANTIPHON_MODELS__DIR", "nowhere/models").env("ANTIPHON_SPEECH__JOBS_DIR", "");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(writer).kill_on_drop(true);
    let mut hub = command.spawn().expect("the binary starts");
    let mut said = BufReader::new(hub.stdout.take().expect("piped")).lines();
    let line = timeout(TEST_TIMEOUT, said.next_line()).await.expect("it starts").expect("text").expect("a line");
    assert!(line.contains("is listening on"), "{line}");
    drop(reader);
    let pid = hub.id().expect("it runs").to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
    let ended = timeout(TEST_TIMEOUT, hub.wait()).await.expect("it ends").expect("waited for");
    assert!(ended.success(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_an_exit_code() {
    let server = TestServer::start(|request| match request.path() {
        "/healthz" => Answer::text("ok\n"),
        _ => Answer::refusal(503, r#"{"ready":false, "reason":"it is draining"}"#),
    });
    let url = server.url("");
    let output = antiphon(&["health", "--url", &url], &[], b"");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"ok\n".as_slice()));
    check(&["health", "--ready", "--url", &url], &[], 1, "503 Service Unavailable: it is draining");
    let nobody = format!("http://{}", unused_address());
    check(&["health", "--url", &nobody], &[("HTTP_PROXY", "http://127.0.0.1:1")], 4, "cannot be reached");
    check(&["health", "--url", "ftp://127.0.0.1"], &[], 2, "is no address of a hub");
    check(&["health", "--ca-file", "nowhere.pem"], &[], 2, "nowhere.pem: ");
}

#[test]
fn a_key_of_another_variable_is_taken_beside_that_of_the_usual_one() {
    let nobody = format!("http://{}", unused_address());
    let keys = [("ANTIPHON_API_KEY", "one"), ("OTHER_HUB", "two")];
    check(&["cluster", "status", "--url", &nobody, "--key-env", "OTHER_HUB"], &keys, 4, "cannot be reached");
    check(&["cluster", "status", "--key-env", "NOT_SET"], &keys, 2, "the environment variable NOT_SET holds no key");
    check(&["cluster", "status", "--key", "three", "--key-env", "OTHER_HUB"], &keys, 2, "cannot be used with");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_the_environment_is_sent() {
    let server = TestServer::start(|request| {
        let is_sent = request.header("authorization") == Some("Bearer one");
        match is_sent {
            true => Answer::text("{}"),
            false => Answer::refusal(401, r#"{"error": {"message": "a wrong key"}}"#),
        }
    });
    let url = server.url("");
    let list = ["voices", "list", "--json", "--url", &url];
    let output = antiphon(&list, &[("ANTIPHON_API_KEY", "one")], b"");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"{}\n".as_slice()));
    check(&list, &[("ANTIPHON_API_KEY", "")], 1, "a wrong key (antiphon takes the key from");
}

#[test]
fn what_was_asked_for_goes_to_stdout_alone() {
    let output = antiphon(&["config", "default"], &[], b"");
    assert_eq!(output.stdout, antiphon::config::DEFAULT_TOML.as_bytes());
    assert!(output.stderr.is_empty());
    let output = antiphon(&["config", "check", "--json"], &[("ANTIPHON_TURN__THRESHOLD", "7")], b"");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["problems"][0]["at"], "environment variable ANTIPHON_TURN__THRESHOLD");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn completions_and_man_pages_go_to_stdout() {
    for (args, expect) in [
        (&["completions", "bash"][..], "complete -F _antiphon"),
        (&["completions", "zsh"], "#compdef antiphon"),
        (&["completions", "fish"], "complete -c antiphon"),
        (&["man"], ".TH antiphon 1"),
    ] {
        let output = antiphon(args, &[], b"");
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(expect), "{args:?}: {expect}");
    }
    check(&["completions", "tcsh"], &[], 2, "invalid value 'tcsh'");
}

#[test]
fn what_is_said_can_be_transcribed_through_a_pipe() {
    let said = antiphon(&["say", "-", "-o", "-"], &[], b"the weather is very nice today\n");
    assert!(said.status.success() && said.stderr.is_empty(), "{}", String::from_utf8_lossy(&said.stderr));
    let recognizer = tiny_whisper_env();
    let env: Vec<_> = recognizer.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let output = antiphon(&["transcribe", "-", "--json"], &env, &said.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let heard: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let text = heard["text"].as_str().expect("text");
    assert!(text.contains("weather") && text.contains("today"), "{text}");
    let audio_ms = heard["audio_ms"].as_u64().expect("a length");
    assert!((1_000..4_000).contains(&audio_ms), "{audio_ms}");
}

/// The tiny Whisper model of the fixtures, in its folder; it knows some words of flite's voices.
fn whisper_model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let zip = std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/whisper/words.zip"))
        .expect("a fixture");
    zip::ZipArchive::new(zip).expect("an archive").extract(folder.path()).expect("room");
    folder
}

/// "red green blue" as a WAV file, spoken by the program that spoke what the model was trained on.
fn three_colours(folder: &std::path::Path) -> std::path::PathBuf {
    let file = folder.join("said.wav");
    let made = Command::new("flite").args(["-voice", "slt", "-t", "red green blue", "-o"]).arg(&file).status();
    assert!(made.expect("flite is installed: .ci/deps test").success());
    file
}

#[test]
fn whisper_writes_down_what_is_said() {
    let model = whisper_model();
    let said = tempfile::tempdir().expect("a folder");
    let file = three_colours(said.path());
    let env = [
        ("ANTIPHON_STT__ENGINE", "whisper"),
        ("ANTIPHON_STT__MODEL", model.path().to_str().expect("a plain path")),
        ("ANTIPHON_STT__THREADS", "1"),
    ];
    let output = antiphon(&["transcribe", file.to_str().expect("a plain path")], &env, b"");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "red green blue");
}

#[test]
fn the_name_of_a_file_that_is_not_unicode_is_printed_in_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let printed = |args: &[&str], name: &[u8], env: &[(&str, &str)]| {
        let file = folder.path().join(OsStr::from_bytes(name));
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).chain([file.as_os_str()]).collect();
        let output = antiphon(&args, env, b"");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!(report["file"], file.display().to_string(), "{args:?}");
    };
    printed(&["say", "Red green blue.", "--json", "-o"], b"said-\xff.wav", &[]);
    let recognizer = tiny_whisper_env();
    let env: Vec<_> = recognizer.iter().map(|(name, value)| (*name, value.as_str())).collect();
    printed(&["transcribe", "--json"], b"said-\xff.wav", &env);
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings/barge_in.jsonl");
    std::fs::copy(recording, folder.path().join(OsStr::from_bytes(b"\xff.jsonl"))).expect("copied");
    printed(&["replay", "--json", "--quiet"], b"\xff.jsonl", &[]);
}

/// In this program, that is: each package's build script passes a link argument on (`crates/engines/build.rs`).
#[test]
#[cfg(target_os = "linux")]
fn a_cancelled_decoding_of_whisper_stops_in_the_test_program_too() {
    let model = whisper_model();
    let said = tempfile::tempdir().expect("a folder");
    let file = std::fs::read(three_colours(said.path())).expect("it was written");
    let minute = std::time::Duration::from_secs(60);
    let pcm = antiphon_audio::wav::read(&file, antiphon_engine_api::stt::RATE, minute).expect("a sound file").samples;
    let config = antiphon_engines::stt::SttConfig {
        engine: "whisper".into(),
        model: model.path().to_str().expect("a plain path").into(),
        decoders: 1,
        threads: 1,
        ..Default::default()
    };
    let begun = antiphon_engines::stt::whisper::probe::graphs_of_cancelled_decoding(&config, &pcm).expect("cancelled");
    assert_eq!(begun, 1, "of the three graphs of an encoder the first was begun");
}
