//! `antiphon-bench cluster --quick`, tested from outside: hubs, workers and NATS servers as processes, killed, frozen, cut off and
//! restarted under conversations. Its counts are asserted, its times are not.

use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The parts with their figures that must be 0.
const NOTHING: [(&str, &[&str]); 5] = [
    ("hop", &["responses failed", "words lost", "words doubled", "not recognized as its own", "mixed up"]),
    ("frames", &["100 streams to the worker: frames lost", "100 streams to the hub: frames lost"]),
    ("scale", &["1: requests failed", "4: requests failed"]),
    (
        "kill",
        &[
            "responses failed",
            "words lost",
            "words doubled",
            "not recognized as its own",
            "mixed up",
            "one frozen: responses failed",
            "one frozen: words lost",
            "one frozen: words doubled",
            "one frozen: not recognized as its own",
            "one frozen: mixed up",
        ],
    ),
    (
        "rolling",
        &[
            "responses failed",
            "words lost",
            "words doubled",
            "not recognized as its own",
            "mixed up",
            "workers that did not end with 0",
        ],
    ),
];

/// What must be 0 where sessions are resumed.
const SESSIONS: [&str; 4] =
    ["sessions ended", "misplaced frames", "messages of clients lost", "conversations with a question not once"];

/// The parts about several hubs, with further figures that must be 0; the longest first.
const NOTHING_OF_HUBS: [(&str, &[&str]); 6] = [
    (
        "rolling-all",
        &[
            "responses failed",
            "words lost",
            "words doubled",
            "hubs that did not end with 0",
            "workers that did not end with 0",
        ],
    ),
    (
        "handover",
        &[
            "responses failed",
            "words lost",
            "words doubled",
            "not recognized as its own",
            "hubs that did not end with 0",
        ],
    ),
    ("jobs", &["jobs failed", "jobs not listed once", "sounds of another length"]),
    ("hubs", &["sessions ended", "responses failed", "words lost", "words doubled", "not recognized as its own"]),
    ("partition", &["writes after one of a later owner"]),
    ("kill-hub", &["responses failed", "not recognized as its own"]),
];

fn start(part: &str) -> Child {
    let names = ["PATH", "ANTIPHON_NATS_SERVER"];
    Command::new(env!("CARGO_BIN_EXE_antiphon-bench"))
        .args(["cluster", "--quick", "--json", "--part", part])
        .env_clear()
        .envs(names.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts")
}

#[test]
fn no_word_is_lost_whatever_happens_to_workers_and_servers() {
    // They wait more than they compute.
    check(5, &NOTHING.map(|(part, names)| (part, names.to_vec())));
}

#[test]
fn no_session_is_lost_whatever_happens_to_hubs() {
    let parts = NOTHING_OF_HUBS.map(|(part, names)| {
        let of_sessions = SESSIONS.iter().filter(|_| !matches!(part, "hubs" | "jobs"));
        (part, names.iter().chain(of_sessions).copied().collect())
    });
    // All at once, debug builds on two cores miss each other's signs of life.
    check(3, &parts);
}

/// Runs the parts, `at_once` at a time, the next one as soon as one is over; these figures of them must be 0.
fn check(at_once: usize, parts: &[(&str, Vec<&str>)]) {
    let n_begun = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some((part, names)) = parts.get(n_begun.fetch_add(1, Ordering::Relaxed)) {
                    check_part(part, names, start(part));
                }
            });
        }
    });
}

fn check_part(part: &str, names: &[&str], child: Child) {
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{part}: {said}{}", String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let section = &report["sections"][0];
    assert_eq!(section["name"], format!("cluster {part}"));
    for name in names {
        let figures = section["figures"].as_array().expect("figures");
        let figure = figures.iter().find(|figure| figure["name"] == *name);
        let figure = figure.unwrap_or_else(|| panic!("{part}: there is no {name:?} in {section}"));
        assert_eq!(figure["value"], 0.0, "{part}: {name}: {section:#}\n{said}");
        assert!(figure["n"].as_u64().is_some_and(|n| n > 0), "{part}: {name}: {section:#}");
    }
}
