//! Golden dialogues: what a person says, what the hub sends, what the history keeps, each in one text file.
//!
//! `README.md` beside this file says how to write one. A dialogue runs against a real hub over a real socket, with
//! scripted engines, in virtual time: the clock stands still while anything is to be done and then moves to the next
//! deadline, so that the same script gives the same events at the same milliseconds however busy the machine is.
//! `UPDATE_EXPECT=1` writes the expected sections anew; read the difference before it is committed.

mod client;
mod diff;
mod engines;
mod playback;
mod recordings;
mod script;
mod wire;

use client::Client;
use script::Script;
use std::path::{Path, PathBuf};

/// One test for each script, under its name.
macro_rules! dialogues {
    ($($name:ident),* $(,)?) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*
    };
}

dialogues! {
    barge_in_mid_sentence,
    first_turn_ga_audio,
}

/// Whether expectations are written and not compared.
fn updates() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dialogues")
}

/// Runs a dialogue and compares what came of it with what its file expects.
fn check(name: &str) {
    let path = folder().join(format!("{name}.txt"));
    let script = Script::read(&path);
    let got = play(&script, None);
    if updates() {
        std::fs::write(&path, format!("{}\n{got}", script.source)).expect("the script is written");
    } else if got != script.expected {
        let difference = diff::lines(&script.expected, &got);
        panic!("{name} went another way; UPDATE_EXPECT=1 accepts it (- expected, + happened)\n{difference}");
    }
}

/// Runs a dialogue in virtual time, recorded into a folder where one is named; gives its expected sections.
fn play(script: &Script, record: Option<&Path>) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let stage = engines::Stage::set(script, record).await;
        let mut client = Client::connect(&stage, script).await;
        for action in &script.actions {
            client.act(action).await;
        }
        let (wire, history) = client.end().await;
        let model = wire::model(&stage.llm.requests());
        let result = stage.plain(&format!("== wire\n{wire}\n== history\n{history}\n== model\n{model}"));
        stage.hub.stop().await;
        result
    })
}

#[test]
fn every_script_is_run() {
    let files = std::fs::read_dir(folder()).expect("the folder").map(|entry| entry.expect("an entry").path());
    let scripts = files.filter(|path| path.extension().is_some_and(|ext| ext == "txt"));
    let mut names: Vec<String> =
        scripts.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, NAMES, "the list in tests/dialogues/mod.rs, in the order of the alphabet");
}
