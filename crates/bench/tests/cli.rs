//! The program `antiphon-bench`, tested from outside.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs the program with an environment that consists of PATH and `env`.
pub(super) fn bench(args: &[&str], env: &[(&str, &str)], stdin: &[u8]) -> Output {
    run(Path::new(env!("CARGO_BIN_EXE_antiphon-bench")), args, env, stdin)
}

/// Runs `antiphon plan`, the program beside `antiphon-bench`.
pub(super) fn plan(args: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_antiphon-bench")).with_file_name("antiphon");
    run(&program, &[&["plan"], args].concat(), &[], b"")
}

fn run(program: &Path, args: &[&str], env: &[(&str, &str)], stdin: &[u8]) -> Output {
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        // Ignores installed models.
        .env("ANTIPHON_MODELS__DIR", "nowhere/models")
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A command that ends without reading closes the pipe, which is not a failure.
    let _ = child.stdin.take().expect("piped").write_all(stdin);
    child.wait_with_output().expect("it ends")
}

/// Expects exit code `code`, `expect` on stderr, nothing on stdout, and no panic.
fn check(args: &[&str], env: &[(&str, &str)], code: i32, expect: &str) {
    let output = bench(args, env, b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    assert!(said.contains(expect), "{args:?}: {expect:?} is not in {said:?}");
    assert!(!said.contains("panicked"), "{said}");
    assert!(output.stdout.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn wrong_usage_ends_with_2_and_a_missing_file_with_1() {
    check(&["voice", "--loss", "0.1"], &[], 2, "--loss needs --audio pcm16 or opus");
    check(&["voice", "--barge-in", "2"], &[], 2, "write a share from 0.0 to 1.0");
    check(&["--quick", "voice"], &[], 2, "cannot be used with");
    check(&["answers", "--at-once", "0"], &[], 2, "0 is not in 1..=32");
    check(&["voice", "--clips", "nowhere"], &[], 1, "nowhere: No such file");
}

#[test]
fn a_server_does_not_end_with_an_empty_standard_input() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_antiphon-bench"))
        .arg("mock")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut address = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut address).expect("it prints its address");
    // Long after it could have read the end of its input.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let mut answer = String::new();
    let asked = TcpStream::connect(address.trim()).and_then(|mut stream| {
        stream.write_all(b"GET /v1/models HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")?;
        stream.read_to_string(&mut answer)
    });
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    asked.expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_bench_whose_page_cannot_be_written_tells_its_figures() {
    let few = ["tts", "-n", "1", "--warm-up", "0", "--text-length", "5", "--json", "--html", "nowhere/page.html"];
    let output = bench(&few, &[], b"");
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["run"]["shots"].as_array().map(Vec::len), Some(1));
    let output = bench(&["tts", "--voice", "nobody"], &[], b"");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
}

#[test]
fn a_published_layout_is_swept_and_what_is_wrong_in_it_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    three_colours(folder.path());
    let row = |id: &str, audio: &str| {
        let silence = r#"[{"start": 0.9, "end": 2.0}]"#;
        format!(r#"{{"id": "{id}", "language": "en", "audio": "{audio}", "silence_spans": {silence}}}"#)
    };
    let rows = [row("one", "said.wav"), row("two", "gone.wav")].join("\n");
    std::fs::write(folder.path().join("metadata.jsonl"), rows).expect("room");
    let data = folder.path().to_str().expect("a plain path");
    let output = bench(&["conversation", "--data", data, "--layout", "eot-bench", "--json"], &[], b"");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let section = &report["sections"][0];
    assert_eq!(section["name"], "end of turn, swept");
    let notes = section["notes"].to_string();
    assert!(notes.contains("1 samples were left out") && notes.contains("gone.wav"), "{notes}");
    // A single turn without a pause: the shortest silence is the best.
    let figures = section["figures"].as_array().expect("figures");
    let latency = figures.iter().find(|one| one["name"] == "mean latency at 5 % false cutoffs").expect("measured");
    assert_eq!(latency["n"], 1);
    check(&["conversation", "--data", data], &[], 2, "--layout");
}

/// The tiny Whisper model of the fixtures, in its folder; it knows some words of flite's voices.
fn whisper_model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let zip = std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/whisper/words.zip"))
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
fn whisper_is_measured_on_clips() {
    let model = whisper_model();
    let said = tempfile::tempdir().expect("a folder");
    three_colours(said.path());
    let env = [
        ("ANTIPHON_STT__ENGINE", "whisper"),
        ("ANTIPHON_STT__MODEL", model.path().to_str().expect("a plain path")),
        ("ANTIPHON_STT__DECODERS", "1"),
        ("ANTIPHON_STT__THREADS", "1"),
    ];
    let clips = said.path().to_str().expect("a plain path");
    let output = bench(&["stt", "-n", "1", "--warm-up", "0", "--clips", clips, "--json"], &env, b"");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["run"]["shots"].as_array().map(Vec::len), Some(1));
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
