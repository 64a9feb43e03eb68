//! `antiphon-bench transports --quick`, tested from outside: calls by WebRTC, by phone and by SIP with real hubs. Its counts are
//! asserted, its times are not.

use crate::cli::bench;
use serde_json::Value;

/// Measures one part; these figures must be there.
fn check(part: &str, figures: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("transports.json");
    let args = ["transports", "--quick", "--only", part, "--json", path.to_str().expect("a plain path")];
    // `make real-models` fetches the recognizer whose word errors are measured.
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/models");
    let output = bench(&args, &[("ANTIPHON_MODELS__DIR", models)], b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&std::fs::read(&path).expect("it was written")).expect("JSON");
    let [section] = report["sections"].as_array().expect("a list").as_slice() else { panic!("one part: {report}") };
    assert_eq!(
        (&section["name"], &section["failure"]),
        (&format!("transports {part}").into(), &Value::Null),
        "{section}"
    );
    let measured = section["figures"].as_array().expect("a list");
    for expect in figures {
        let figure = measured.iter().find(|figure| figure["name"] == *expect);
        let value = &figure.unwrap_or_else(|| panic!("{part} lacks {expect}: {section}"))["value"];
        // No value: a wait that never ended.
        assert!(value.is_number(), "{part}, {expect}: {section}");
        assert!(*expect != "turns failed" || *value == 0.0, "{section}");
    }
}

#[test]
fn turns_are_measured() {
    check("turns", &["turns failed", "WebSocket p95", "WebRTC p95"]);
}

#[test]
fn calls_are_measured() {
    check("calls", &["turns failed", "processor time a call", "voice-to-voice p95"]);
}

#[test]
fn words_behind_a_bad_network_are_measured() {
    check("loss", &["word error without impairment", "above none, 5 % loss"]);
}

#[test]
fn drift_is_measured() {
    check("drift", &["turns failed", "drift of turn time", "drift of voice-to-voice p50"]);
}

#[test]
fn interruptions_are_measured() {
    check("barge-in", &["WebRTC: error of position p95", "phone: error of position p95"]);
}

#[test]
fn phones_are_measured() {
    check("phones", &["turns failed", "start to the greeting p95", "voice-to-voice p95"]);
}

#[test]
fn calls_by_sip_are_measured() {
    let figures = ["turns failed", "INVITE to the answer p95", "processor time a call", "added to the way of sound"];
    check("sip", &figures);
    let output = bench(&["phones", "--calls", "0"], &[], b"");
    assert_eq!(output.status.code(), Some(2));
}
