//! The recordings in `tests/recordings`: each must replay to the same decisions. `README.md` there states the rule.

use super::script::Script;
use super::{folder, play, updates};
use antiphon::replay::{ReplayLog, Restores, replay, replay_restoring};
use std::path::{Path, PathBuf};

/// One test for each recording; the string names the dialogue it was made from.
macro_rules! recordings {
    ($($name:ident: $dialogue:literal),* $(,)?) => {
        $(#[test]
        fn $name() {
            check(stringify!($name), $dialogue);
        })*
    };
}

recordings! {
    ga: "two_turns",
    binary: "cough_holds_and_resumes",
    semantic_vad: "semantic_vad_hesitation",
    barge_in: "barge_in_while_model_writes",
    tools: "tool_call",
    truncation: "truncate_then_cancel",
    speculation: "speculative_call_discarded",
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recordings/{name}.jsonl"))
}

fn check(name: &str, dialogue: &str) {
    let path = path(name);
    if !path.exists() && updates() {
        record(dialogue, &path);
    }
    let recording = ReplayLog::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let report = replay(recording, &mut |_, _| {}).expect("it runs");
    assert!(report.is_same(), "{name} replays to other decisions: {:#?}", report.differences);
    assert!(report.n_decisions > 5 && report.end.as_ref().is_some_and(|end| end.complete), "{report:#?}");
    goes_on_from_snapshots(name, &path);
}

/// A session that is written to a snapshot and read back after any line decides the same from there on.
fn goes_on_from_snapshots(name: &str, path: &Path) {
    let n_lines = std::fs::read_to_string(path).expect("text").lines().count();
    let each = (2..=n_lines).map(Restores::After);
    for restores in each.chain([Restores::Always]) {
        let recording = ReplayLog::open(path).expect("opened before");
        let report = replay_restoring(recording, restores, &mut |_, _| {}).expect("it runs");
        assert!(report.is_same(), "{name}, restored {restores:?}: {:#?}", report.differences);
    }
}

/// Runs the dialogue and keeps its replay log.
fn record(dialogue: &str, path: &Path) {
    let folder_of_hub = tempfile::tempdir().expect("a folder");
    play(&Script::read(&folder().join(format!("{dialogue}.txt"))), Some(folder_of_hub.path()));
    let mut files = std::fs::read_dir(&folder_of_hub).expect("the folder").map(|entry| entry.expect("an entry").path());
    let written = files.find(|path| path.extension().is_some_and(|ext| ext == "jsonl")).expect("a recording");
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::copy(written, path).expect("it is copied");
}
