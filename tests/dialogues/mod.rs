//! Golden dialogues: one text file each with what a person says, what the hub sends and what the history holds.
//!
//! `README.md` beside this file explains how to write one. A dialogue runs against a real hub over a real socket with
//! scripted engines, in virtual time: the clock advances to the next deadline only when every task waits. The same script
//! therefore gives the same events at the same milliseconds under any load.
//! `UPDATE_EXPECT=1` rewrites the expected sections; review the difference before committing it.

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
    backchannel_becomes_interruption,
    backchannel_by_length,
    backchannel_ends_late,
    backchannel_leaves_reply_going,
    backchannel_over_reply,
    backchannel_without_onset,
    barge_in_by_noise,
    barge_in_drops_waiting_replies,
    barge_in_ga_client_truncates,
    barge_in_mid_sentence,
    barge_in_not_wanted,
    barge_in_while_model_writes,
    barge_in_with_playback_reports,
    cancel_by_client,
    captions_of_a_long_question,
    commit_of_exactly_100_ms,
    connection_lost_mid_sentence,
    cough_during_truncation,
    cough_holds_and_resumes,
    decoder_given_back_after_silence,
    echo_is_no_turn,
    echo_of_words_is_not_answered,
    false_start_after_question,
    false_start_without_words,
    filler_before_late_answer,
    filler_interrupted,
    filler_while_tool_runs,
    first_turn_binary_frames,
    first_turn_g711,
    first_turn_ga_audio,
    first_turn_opus_frames,
    first_turn_slow_engines,
    first_turn_text_only,
    idle_timeout,
    inline_audio_item,
    long_utterance_is_cut,
    mcp_call_with_approval,
    model_fails_mid_sentence,
    noise_is_no_turn,
    noise_reduction,
    recognizer_fails,
    recognizer_fails_before_typed_turn,
    reply_queues_behind_another,
    response_out_of_band,
    resume_after_break,
    semantic_vad_hesitation,
    semantic_vad_question,
    semantic_vad_turn_model,
    server_vad_changed_mid_session,
    server_vad_turned_on_after_speech,
    speaker_lock,
    speculative_call_discarded,
    speculative_response_confirmed,
    speculative_response_discarded,
    tool_call,
    tool_call_cut_off,
    tool_call_that_is_not_made,
    tool_calls_two_in_one_response,
    tool_rounds_without_end,
    transcription_session,
    truncate_at_the_end,
    truncate_by_client,
    truncate_then_cancel,
    turn_committed_by_client,
    turn_goes_on_before_its_transcript,
    turn_without_answer,
    two_turns,
    voice_fails,
}

/// Whether expectations are rewritten instead of compared.
fn updates() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dialogues")
}

/// Runs a dialogue and compares the result with the expected sections of its file.
fn check(name: &str) {
    let path = folder().join(format!("{name}.txt"));
    let script = Script::read(&path);
    let got = play(&script, None);
    if updates() {
        std::fs::write(&path, format!("{}\n{got}", script.source)).expect("a writable script");
    } else if got != script.expected {
        let difference = diff::lines(&script.expected, &got);
        panic!("{name} differs (- expected, + actual); UPDATE_EXPECT=1 accepts it\n{difference}");
    }
}

/// Runs a dialogue in virtual time and returns its expected sections. `record`: the folder for the replay log.
fn play(script: &Script, record: Option<&Path>) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let stage = engines::Stage::set(script, record).await;
        let mut client = Client::connect(&stage, script).await;
        for action in &script.actions {
            client.act(action).await;
        }
        let [wire, history, turns] = client.end().await;
        let model = wire::model(&stage.llm.requests());
        let result =
            stage.plain(&format!("== wire\n{wire}\n== history\n{history}\n== turns\n{turns}\n== model\n{model}"));
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
    assert_eq!(names, NAMES, "the list in tests/dialogues/mod.rs, in alphabetical order");
}
