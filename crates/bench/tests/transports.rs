//! `antiphon-bench transports --quick`, tested from outside: calls by WebRTC and by phone with real hubs. Its counts are
//! asserted, its times are not.

use crate::cli::bench;
use serde_json::Value;

/// Each part's figures that must be there.
const FIGURES: [(&str, &[&str]); 6] = [
    ("transports turns", &["turns failed", "WebSocket p95", "WebRTC p95"]),
    ("transports calls", &["turns failed", "processor time a call", "voice-to-voice p95"]),
    ("transports loss", &["word error without impairment", "above none, 5 % loss"]),
    ("transports drift", &["turns failed", "drift of turn time", "drift of voice-to-voice p50"]),
    ("transports barge-in", &["WebRTC: error of position p95", "phone: error of position p95"]),
    ("transports phones", &["turns failed", "start to the greeting p95", "voice-to-voice p95"]),
];

#[test]
fn every_part_is_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("transports.json");
    let args = ["transports", "--quick", "--json", path.to_str().expect("a plain path")];
    // `make real-models` fetches the recognizer whose word errors are measured.
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/models");
    let output = bench(&args, &[("ANTIPHON_MODELS__DIR", models)], b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&std::fs::read(&path).expect("it was written")).expect("JSON");
    let sections = report["sections"].as_array().expect("a list");
    assert_eq!(sections.len(), FIGURES.len());
    for (section, (name, expect)) in sections.iter().zip(FIGURES) {
        assert_eq!((&section["name"], &section["failure"]), (&name.into(), &Value::Null), "{section}");
        let figures = section["figures"].as_array().expect("a list");
        for expect in expect {
            let figure = figures.iter().find(|figure| figure["name"] == *expect);
            let value = &figure.unwrap_or_else(|| panic!("{name} lacks {expect}: {section}"))["value"];
            // No value: a wait that never ended.
            assert!(value.is_number(), "{name}, {expect}: {section}");
            assert!(*expect != "turns failed" || *value == 0.0, "{section}");
        }
    }
}
