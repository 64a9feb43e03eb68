//! Answers begun on a guess: let out when it was right, and without a trace in every other case.

use super::script::{AUTO, Runner, check_with};
use antiphon_dialog::{Content, Item, ItemKind, PlaybackControl};
use proptest::prelude::*;

fn guessing() -> Runner {
    Runner::new(PlaybackControl::Client, Some(AUTO)).guessing(3, 0.5)
}

#[track_caller]
fn check(script: &str) {
    check_with(guessing(), script);
}

#[test]
fn a_guess_that_was_right_is_let_out() {
    check(
        "
        0 started 0
          open i1
          < speech_started i1 0
        900 paused
          guess i1
        910 guessed i1 what time is it
          begin r1 on \"what time is it\"
        1300 stopped 800
          close i1
          < speech_stopped i1 800
          < committed i1
          < item_added i1
          < item_done i1 Completed
        1301 heard i1 What time is it?
          < transcript i1 \"What time is it?\"
          < response_created r1
          let out r1
        1302 text r1 Noon.
          < output_added r1 i2
          < item_added i2
          < r1 i2 PartAdded { audio: true }
          < r1 i2 TranscriptDelta(\"Noon. \")
        ",
    );
}

#[test]
fn a_speaker_who_goes_on_takes_the_guess_back() {
    check(
        "
        0 started 0
          open i1
          < speech_started i1 0
        900 paused
          guess i1
        910 guessed i1 what time is it
          begin r1 on \"what time is it\"
        1000 resumed
          forget r1 resumed after 100 ms
        1005 text r1 Noon.
        1006 finished r1
        1900 paused
          guess i1
        1910 guessed i1 what time is it in london
          begin r2 on \"what time is it in london\"
        2300 stopped 1800
          close i1
          < speech_stopped i1 1800
          < committed i1
          < item_added i1
          < item_done i1 Completed
        2301 heard i1 what time is it in london
          < transcript i1 \"what time is it in london\"
          < response_created r2
          let out r2
        2400 history
          user: what time is it in london
        ",
    );
}

#[test]
fn other_words_at_the_end_start_the_answer_anew() {
    check(
        "
        0 started 0
          open i1
          < speech_started i1 0
        900 paused
          guess i1
        910 guessed i1 what time is
          begin r1 on \"what time is\"
        1300 stopped 800
          close i1
          < speech_stopped i1 800
          < committed i1
          < item_added i1
          < item_done i1 Completed
        1301 heard i1 what time is it
          < transcript i1 \"what time is it\"
          < response_created r1
          forget r1 changed after 401 ms
          start r1 turn_1
        ",
    );
}

#[test]
fn settings_that_change_meanwhile_start_the_answer_anew_and_noise_is_not_answered() {
    check(
        "
        0 started 0
          open i1
          < speech_started i1 0
        900 paused
          guess i1
        910 guessed i1 what time is it
          begin r1 on \"what time is it\"
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
          forget r1 changed after 401 ms
          start r1 turn_1
        ",
    );
    check(
        "
        0 started 0
          open i1
          < speech_started i1 0
        900 paused
          guess i1
        910 guessed i1 hum
          begin r1 on \"hum\"
        1300 stopped 800
          close i1
          < speech_stopped i1 800
          < committed i1
          < item_added i1
          < item_done i1 Completed
        1301 heard i1
          < transcript i1 \"\"
          forget r1 changed after 401 ms
        ",
    );
}

#[test]
fn nothing_is_guessed_of_silence_of_a_manual_turn_or_beside_a_response() {
    check("0 paused\n5 resumed\n7 guessed i1 words");
    check_with(
        Runner::new(PlaybackControl::Client, None).guessing(3, 0.5),
        "0 started 0\nopen i1\n900 paused\n910 guessed i1 what time is it",
    );
}

#[test]
fn guesses_are_bounded_by_turn_and_by_wasted_work() {
    let mut runner = guessing();
    let guesses = |lines: Vec<String>| lines.iter().filter(|line| line.starts_with("guess")).count();
    runner.run("0 started 0");
    let mut n = 0;
    for at in (1_000..6_000).step_by(1_000) {
        n += guesses(runner.run(&format!("{at} paused")));
        runner.run(&format!("{at} guessed i1 one two three"));
        runner.run(&format!("{} resumed", at + 300));
    }
    assert_eq!(n, 3, "of five pauses");
    // Without a budget the first ten seconds of wasted work are all there is.
    let mut frugal = Runner::new(PlaybackControl::Client, Some(AUTO)).guessing(100, 0.0);
    frugal.run("0 started 0");
    let mut n = 0;
    for at in (1_000..30_000).step_by(1_000) {
        n += guesses(frugal.run(&format!("{at} paused")));
        frugal.run(&format!("{at} guessed i1 one two three"));
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
    let step =
        prop_oneof![4 => plain.prop_map(str::to_owned), 2 => said("guessed"), 2 => said("heard"), 1 => said("partial")];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    /// Whatever happens in whatever order: without the work on guesses itself, the actions are those of a conversation
    /// in which nothing is guessed. (The work of a response under way has an id the client may see only then.)
    #[test]
    fn a_guess_leaves_no_trace(moves in moves()) {
        let (mut with, mut without) = (guessing().naming_what_is_seen(), Runner::new(PlaybackControl::Client, Some(AUTO)));
        for (i, line) in moves.iter().enumerate() {
            let line = format!("{} {line}", 10 * i);
            let is_seen = |action: &String| {
                !["guess ", "begin", "forget"].iter().any(|hidden| action.starts_with(hidden))
            };
            let plain = |action: String| match action.strip_prefix("let out ") {
                Some(id) => format!("start {id}"),
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
