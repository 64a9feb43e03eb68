//! `antiphon models import` end to end: the binary, a voice in a package, what is no model.

use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output};
use zip::write::SimpleFileOptions;

const SETTINGS: &str = r#"{"audio": {"sample_rate": 22050}, "espeak": {"voice": "de"}}"#;

struct ModelFolder(tempfile::TempDir);

impl ModelFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a file of the test"))
    }

    /// A package with these members.
    fn package(&self, members: &[(&str, &[u8])]) -> PathBuf {
        let path = self.0.path().join("voice.whl");
        let mut archive = zip::ZipWriter::new(File::create(&path).expect("a file of the test"));
        for (name, bytes) in members {
            archive.start_file(*name, SimpleFileOptions::default()).expect("a file of the test");
            archive.write_all(bytes).expect("a file of the test");
        }
        archive.finish().expect("a file of the test");
        path
    }

    fn models(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        let command = command.arg("models").args(args).current_dir(self.0.path());
        command.env("ANTIPHON_MODELS__DIR", "models").output().expect("a file of the test")
    }
}

/// A graph of the repository: ONNX, whatever it computes.
const GRAPH: &[u8] = include_bytes!("fixtures/onnx/counter.onnx");

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_piper_voice_of_a_package_is_listed_replaced_and_removed() {
    let place = ModelFolder::new();
    let package = place.package(&[
        ("pkg/de_DE-own-medium.onnx", GRAPH),
        ("pkg/de_DE-own-medium.onnx.json", SETTINGS.as_bytes()),
        ("pkg/MODEL_CARD", b"Finetuned from U.S. English lessac voice"),
    ]);
    let package = package.to_str().unwrap();
    let output = place.models(&["import", package, "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["model"], "piper-de_DE-own-medium");
    assert_eq!(report["registered"], false);

    // Importing it once more replaces it; `list` shows it as any other model.
    assert!(place.models(&["import", package]).status.success());
    let list = place.models(&["list", "--here", "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let model = &list["models"][0];
    assert_eq!(model["languages"], serde_json::json!(["de"]));
    assert_eq!(model["rate_hz"], 22_050);
    assert!(model["note"].as_str().unwrap().contains("do not allow every use"), "{model}");
    assert!(place.models(&["rm", "piper-de_DE-own-medium"]).status.success());
    assert_eq!(std::fs::read_dir(place.0.path().join("models")).unwrap().count(), 0);
}

#[test]
fn an_incomplete_model_of_the_registry_is_named_with_its_files() {
    let place = ModelFolder::new();
    let check = |folder: &str, files: &[&str], expected: &str| {
        let path = place.0.path().join(folder);
        std::fs::create_dir(&path).expect("a folder of the test");
        for name in files {
            std::fs::write(path.join(name), vec![0; 1_000]).expect("a file of the test");
        }
        let output = place.models(&["import", folder]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(expected), "{}", said(&output));
    };
    let vad = "Silero VAD 6 (fp32), a model of the registry, is not complete: silero_vad.onnx has 1000 bytes, not ";
    check("vad", &["silero_vad.onnx"], vad);
    let voice = ["hibari.onnx", "lexicon_us_gold.json.gz", "oov.json", "oov.onnx", "tagger.json.gz"];
    let found = "is not complete: hibari.onnx has 1000 bytes, not 7936868, vocab.json is missing";
    check("voice", &voice, found);
    // A file that many folders hold names no model.
    check("notes", &["tokens.txt"], "no model that the hub knows is there");
}

#[test]
fn what_is_no_model_and_names_that_are_taken_are_refused_with_exit_codes() {
    let place = ModelFolder::new();
    let empty = place.0.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let refused = |args: &[&str], code: i32, expected: &str| {
        let output = place.models(args);
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert!(said(&output).contains(expected), "{}", said(&output));
    };
    refused(&["import", "empty"], 1, "no model that the hub knows");
    refused(&["import", "absent"], 1, "cannot be read");
    let named = [("v.onnx", GRAPH), ("v.onnx.json", SETTINGS.as_bytes())];
    let package = place.package(&named);
    let package = package.to_str().unwrap();
    refused(&["import", package, "--name", "kokoro"], 2, "the registry has a model of this name");
    refused(&["import", package, "--name", "../x"], 2, "is no name");
    place.package(&[named[0], named[1], ("w.onnx", GRAPH), ("w.onnx.json", SETTINGS.as_bytes())]);
    refused(&["import", package], 2, "there are several models: v.onnx, w.onnx");
    place.package(&[named[0], ("v.onnx.json", b"{}")]);
    refused(&["import", package], 1, "is not the settings of a Piper voice");
    place.package(&[("v.onnx", b"<html>sign in</html>"), named[1]]);
    refused(&["import", package], 1, "an ONNX model");
    assert!(
        !place.0.path().join("models").exists()
            || std::fs::read_dir(place.0.path().join("models")).unwrap().count() == 0
    );
}
