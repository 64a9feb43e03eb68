//! Speculative responses: released when the end of the turn confirms them, without a trace in every other case.

use super::script::{AUTO, Runner, check_with};
use antiphon_dialog::{Content, Item, ItemKind, PlaybackControl};
use proptest::prelude::*;

fn speculating() -> Runner {
    Runner::new(PlaybackControl::Client, Some(AUTO)).speculating(3, 0.5)
}

#[track_caller]
fn check(script: &str) {
    check_with(speculating(), script);
}

#[test]
fn a_confirmed_speculative_response_is_released() {
    check(
        "
        0 started 0
          open i1
          < speech_started i1 0
        900 paused
          transcribe provisionally i1
        910 provisional i1 what time is it
          speculate r1 on \"what time is it\"
        1300 stopped 800
          close i1
          < speech_stopped i1 800
          < committed i1
          < item_added i1
          < item_done i1 Completed
        1301 heard i1 What time is it?
          < transcript i1 \"What time is it?\"
          < response_created r1
          release r1
        1302 text r1 Noon.
          < output_added r1 i2
          < item_added i2
          < r1 i2 PartAdded { audio: true }
          < r1 i2 TranscriptDelta(\"Noon. \")
        ",
    );
}

#[test]
fn a_speaker_who_goes_on_discards_the_speculative_response() {
    check(
        "
        0 started 0
          open i1
          < speech_started i1 0
        900 paused
          transcribe provisionally i1
        910 provisional i1 what time is it
          speculate r1 on \"what time is it\"
        1000 resumed
          discard r1 resumed after 100 ms
        1005 text r1 Noon.
        1006 finished r1
        1900 paused
          transcribe provisionally i1
        1910 provisional i1 what time is it in london
          speculate r2 on \"what time is it in london\"
        2300 stopped 1800
          close i1
          < speech_stopped i1 1800
          < committed i1
          < item_added i1
          < item_done i1 Completed
        2301 heard i1 what time is it in london
          < transcript i1 \"what time is it in london\"
          < response_created r2
          release r2
        2400 history
          user: what time is it in london
        ",
    );
}

#[test]
fn other_words_at_the_end_restart_the_response() {
    check(
        "
        0 started 0
          open i1
          < speech_started i1 0
        900 paused
          transcribe provisionally i1
        910 provisional i1 what time is
          speculate r1 on \"what time is\"
        1300 stopped 800
          close i1
          < speech_stopped i1 800
          < committed i1
          < item_added i1
          < item_done i1 Completed
        1301 heard i1 what time is it
          < transcript i1 \"what time is it\"
          < response_created r1
          discard r1 changed after 401 ms
          start r1 turn_1
        ",
    );
}

#[test]
fn changed_settings_restart_the_response_and_noise_is_not_answered() {
    check(
        "
        0 started 0
          open i1
          < speech_started i1 0
        900 paused
          transcribe provisionally i1
        910 provisional i1 what time is it
          speculate r1 on \"what time is it\"
        950 voice rms
          < settings_updated
        1300 stopped 800
          close i1
          < speech_stopped i1 800
          < committed i1
          < item_added i1
          < item_done i1 Completed
        1301 heard i1 what time is it
          < transcript i1 \"what time is it\"
          < response_created r1
          discard r1 changed after 401 ms
          start r1 turn_1
        ",
    );
    check(
        "
        0 started 0
          open i1
          < speech_started i1 0
        900 paused
          transcribe provisionally i1
        910 provisional i1 hum
          speculate r1 on \"hum\"
        1300 stopped 800
          close i1
          < speech_stopped i1 800
          < committed i1
          < item_added i1
          < item_done i1 Completed
        1301 heard i1
          < transcript i1 \"\"
          discard r1 changed after 401 ms
        ",
    );
}

#[test]
fn silence_and_manual_turns_are_not_speculated_on() {
    check("0 paused\n5 resumed\n7 provisional i1 words");
    check_with(
        Runner::new(PlaybackControl::Client, None).speculating(3, 0.5),
        "0 started 0\nopen i1\n900 paused\n910 provisional i1 what time is it",
    );
}

#[test]
fn speculation_is_bounded_by_turn_and_by_wasted_work() {
    let mut runner = speculating();
    let attempts =
        |lines: Vec<String>| lines.iter().filter(|line| line.starts_with("transcribe provisionally")).count();
    runner.run("0 started 0");
    let mut n = 0;
    for at in (1_000..6_000).step_by(1_000) {
        n += attempts(runner.run(&format!("{at} paused")));
        runner.run(&format!("{at} provisional i1 one two three"));
        runner.run(&format!("{} resumed", at + 300));
    }
    assert_eq!(n, 3, "of five pauses");
    // Without a budget the first ten seconds of wasted work are all there is.
    let mut frugal = Runner::new(PlaybackControl::Client, Some(AUTO)).speculating(100, 0.0);
    frugal.run("0 started 0");
    let mut n = 0;
    for at in (1_000..30_000).step_by(1_000) {
        n += attempts(frugal.run(&format!("{at} paused")));
        frugal.run(&format!("{at} provisional i1 one two three"));
        frugal.run(&format!("{} resumed", at + 900));
    }
    assert_eq!(n, 12, "of 0.9 s each");
}

fn content(item: &Item) -> Vec<Content> {
    match &item.kind {
        ItemKind::Message { content, .. } => content.clone(),
        _ => Vec::new(),
    }
}

/// A move of the user, the engines or the client.
fn moves() -> impl Strategy<Value = Vec<String>> {
    let texts = prop::sample::select(vec!["what time is it", "What time is it?", "tell me a story", ""]);
    let said = |name: &'static str| (1..4usize, texts.clone()).prop_map(move |(i, text)| format!("{name} i{i} {text}"));
    let plain = prop::sample::select(
        [
            "paused",
            "paused",
            "resumed",
            "stopped 900",
            "stopped 900",
            "started 0",
            "onset",
            "retracted",
            "tick",
            "commit 900",
            "clear",
            "cancel",
            "respond",
            "voice rms",
            "voice slt",
            "say hello",
            "text r1 Noon.",
            "made r1 300",
            "finished r1",
            "broke r1 no",
            "text r2 Ten.",
            "finished r2",
            "call r1 0 f {}",
            "delete i1",
        ]
        .to_vec(),
    );
    let step = prop_oneof![4 => plain.prop_map(str::to_owned), 2 => said("provisional"), 2 => said("heard"), 1 => said("partial")];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    /// In any order of events: without the speculative work itself, the actions are those of a conversation without
    /// speculation. (A speculative response has a name only once it is released.)
    #[test]
    fn speculation_leaves_no_trace(moves in moves()) {
        let mut with = speculating().naming_what_is_seen();
        let mut without = Runner::new(PlaybackControl::Client, Some(AUTO));
        for (i, line) in moves.iter().enumerate() {
            let line = format!("{} {line}", 10 * i);
            let is_seen = |action: &String| {
                !["transcribe provisionally", "speculate", "discard"].iter().any(|hidden| action.starts_with(hidden))
            };
            let plain = |action: String| match action.strip_prefix("release r") {
                Some(id) => format!("start r{id}"),
                None => action.split(" turn_").next().unwrap_or_default().to_owned(),
            };
            let seen: Vec<String> = with.run(&line).into_iter().filter(is_seen).map(plain).collect();
            let expected: Vec<String> = without.run(&line).into_iter().map(plain).collect();
            prop_assert_eq!(seen, expected, "{}", line);
        }
        let kept = |runner: &Runner| -> Vec<_> {
            runner.dialog.history().items().iter().map(|item| (item.status, content(item))).collect()
        };
        prop_assert_eq!(kept(&with), kept(&without));
    }
}
