//! `antiphon models` end to end: the binary, a mirror on a socket, exit codes, an interruption, a proxy.

use antiphon_test_server::{Answer, Request, TestServer};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::watch;

/// Longer than any step here takes, so that a test that hangs fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

const FILE: &[u8] = b"0123456789";

const REGISTRY: &str = r#"
[[model]]
name = "ears"
stage = "stt"
family = "whisper"
title = "Ears"
base = "https://models.invalid/"
licence = "MIT"
languages = ["en"]
rate_hz = 16000
[[model.variant]]
precision = "f16"
# printf 0123456789 | sha1sum
files = [{ role = "model", path = "ears.bin", bytes = 10, sha1 = "87acec17cd9dcd20a716cc2cf67417b71c8a7016" }]
[[model.variant]]
precision = "q8_0"
files = [{ role = "model", path = "gone.bin", about_mb = 1 }]
"#;

/// A mirror with one file, which sends half of it and then waits for `open`.
fn mirror(open: watch::Receiver<bool>) -> TestServer {
    TestServer::start(move |request| {
        if !request.path().ends_with("ears.bin") {
            return Answer::status(404);
        }
        let start = request.range_start().unwrap_or(0);
        let n_left = FILE.len() - start;
        let mut open = open.clone();
        let opened = async move {
            // An error means that the test has ended.
            let _ = open.wait_for(|open| *open).await;
        };
        Answer::file(request, FILE)
            .announcing(n_left as u64)
            .first(n_left / 2)
            .wait(opened)
            .then(&FILE[start + n_left / 2..])
    })
}

/// The requests since the last call: target and range.
fn asked(mirror: &TestServer) -> Vec<(String, Option<String>)> {
    let range = |request: &Request| request.header("range").map(str::to_owned);
    mirror.take_requests().into_iter().map(|request| (request.target.clone(), range(&request))).collect()
}

struct ModelFolder {
    folder: tempfile::TempDir,
    env: Vec<(&'static str, String)>,
}

impl ModelFolder {
    fn new(mirror: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let text = |path: &str| folder.path().join(path).to_str().expect("Unicode").to_owned();
        std::fs::write(text("own.toml"), REGISTRY).expect("written");
        let env = vec![
            ("ANTIPHON_MODELS__DIR", text("models")),
            ("ANTIPHON_MODELS__REGISTRY", text("own.toml")),
            ("ANTIPHON_MODELS__MIRROR", mirror.to_owned()),
        ];
        Self { folder, env }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("models").join(path)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        command.arg("models").args(args).env_clear().envs(self.env.iter().cloned()).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to completion; it must end with `code` and print `expect` on stdout or stderr.
    async fn check(&self, args: &[&str], code: i32, expect: &str) -> Output {
        let run = self.command(args).output();
        let output = tokio::time::timeout(TEST_TIMEOUT, run).await.expect("it ends").expect("it starts");
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(expect) && !said.contains("panicked"), "{args:?}: {expect:?} is not in {said:?}");
        output
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[tokio::test]
async fn a_model_is_listed_pulled_shown_and_removed() {
    let mirror = mirror(watch::channel(true).1);
    let place = ModelFolder::new(&mirror.url(""));
    assert_eq!(
        json(&place.check(&["list", "--here", "--json"], 0, "models").await)["models"],
        Value::Array(Vec::new())
    );
    place.check(&["pull", "ears"], 0, "all checksums are right").await;
    assert_eq!(asked(&mirror), [("/ears.bin".to_owned(), None)]);
    assert_eq!(std::fs::read(place.path("ears/ears.bin")).expect("there"), FILE);
    place.check(&["list"], 0, "here (f16)").await;
    let told = json(&place.check(&["info", "ears", "--json"], 0, "SHA-1 87acec17").await);
    assert_eq!((&told["variants"][0]["state"], &told["files"][0]["bytes"]), (&"whole".into(), &10.into()));
    place.check(&["info", "kokoro:fp16"], 0, "no published checksum").await;
    let again = json(&place.check(&["pull", "ears", "--json"], 0, "").await);
    assert_eq!((&again["bytes"], &again["unchecked_files"]), (&10.into(), &0.into()));
    assert_eq!(asked(&mirror), [], "it is here");
    place.check(&["rm", "ears"], 0, "removed").await;
    assert!(!place.path("ears").exists());
    place.check(&["rm", "ears"], 3, "get it with `antiphon models pull ears`").await;
}

#[tokio::test]
async fn without_a_name_the_models_to_begin_with_are_pulled() {
    let mirror = mirror(watch::channel(true).1);
    let place = ModelFolder::new(&mirror.url(""));
    // The other stages name their engine, and of the recognizers this one ranks highest of those that any machine runs.
    let own = REGISTRY.replace("rate_hz = 16000", "rate_hz = 16000\nauto = 99\ncore_ms = 1");
    std::fs::write(place.folder.path().join("own.toml"), own).expect("written");
    let mut pull = place.command(&["pull"]);
    pull.env("ANTIPHON_VAD__ENGINE", "earshot").env("ANTIPHON_TTS__ENGINE", "flite");
    let output = pull.output().await.expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("ears: 0.0 MB in all"), "{said}");
    assert_eq!(asked(&mirror), [("/ears.bin".to_owned(), None)]);
    let mut none = place.command(&["pull"]);
    for stage in ["VAD", "TTS", "STT"] {
        none.env(
            format!("ANTIPHON_{stage}__ENGINE"),
            match stage {
                "VAD" => "earshot",
                "TTS" => "flite",
                _ => "none",
            },
        );
    }
    let output = none.output().await.expect("it starts");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn what_goes_wrong_has_its_exit_code() {
    let mirror = mirror(watch::channel(true).1);
    let mut place = ModelFolder::new(&mirror.url(""));
    place.check(&["pull", "ers"], 2, "did you mean \"ears\"?").await;
    place.check(&["pull", "ears", "../../etc/passwd"], 2, "there is no model").await;
    assert!(!place.path("ears").exists(), "all names are looked at first");
    place.check(&["pull", "ears:q8_0"], 4, "the server answered 404: the file is not there").await;
    place.env[2].1 = "http://127.0.0.1:9".into();
    place.check(&["pull", "ears"], 4, "cannot be reached: is this machine online?").await;
    std::fs::write(place.folder.path().join("own.toml"), REGISTRY.replace("87acec17", "00000000")).expect("written");
    place.env[2].1 = mirror.url("");
    place.check(&["pull", "ears"], 1, "wrong checksum").await;
    assert!(!place.path("ears/ears.bin").exists());
    std::fs::write(place.folder.path().join("own.toml"), "[[model]]\nname = 3").expect("written");
    place.check(&["list"], 2, "own.toml").await;
}

#[tokio::test]
async fn an_interrupted_pull_goes_on_where_it_was() {
    let (open, closed) = watch::channel(false);
    let mirror = mirror(closed);
    let place = ModelFolder::new(&mirror.url(""));
    let mut child = place.command(&["pull", "ears"]).spawn().expect("it starts");
    let part = place.path("ears/ears.bin.part");
    let half = async {
        while std::fs::metadata(&part).map_or(0, |part| part.len()) < 5 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, half).await.expect("half of it comes");
    let pid = child.id().expect("it runs").to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    let ended = tokio::time::timeout(TEST_TIMEOUT, child.wait()).await.expect("it ends").expect("waited for");
    assert_eq!(ended.code(), Some(130));
    assert!(!place.path("ears/ears.bin").exists());
    open.send_replace(true);
    asked(&mirror);
    place.check(&["pull", "ears"], 0, "all checksums are right").await;
    assert_eq!(asked(&mirror), [("/ears.bin".to_owned(), Some("bytes=5-".to_owned()))]);
}

#[tokio::test]
async fn proxies_of_the_environment_and_of_the_settings_are_used() {
    let proxy = mirror(watch::channel(true).1);
    let mut place = ModelFolder::new("http://mirror.invalid/m");
    let through = [("http://mirror.invalid/m/ears.bin".to_owned(), None)];
    place.env.push(("HTTP_PROXY", proxy.url("")));
    place.check(&["pull", "ears"], 0, "all checksums are right").await;
    assert_eq!(asked(&proxy), through);
    place.check(&["rm", "ears"], 0, "").await;
    place.env.push(("NO_PROXY", "mirror.invalid".into()));
    place.check(&["pull", "ears"], 4, "mirror.invalid cannot be reached").await;
    assert_eq!(asked(&proxy), []);
    place.env.push(("ANTIPHON_MODELS__PROXY", proxy.url("")));
    place.check(&["pull", "ears"], 0, "all checksums are right").await;
    assert_eq!(asked(&proxy), through);
}
