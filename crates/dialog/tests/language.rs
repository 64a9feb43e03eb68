//! Replies in the language heard: what the model is asked, and the voice that speaks.

use super::script::{AUTO, Runner};
use antiphon_dialog::PlaybackControl;

/// A conversation that follows the language, with a voice for German and one for English.
fn following() -> Runner {
    let mut runner = Runner::new(PlaybackControl::Server, Some(AUTO));
    runner.follow_language(&[("de", "anna"), ("en", "slt")]);
    runner
}

/// A spoken turn at `at`, whose item is the `n`th, and the answer to it, the one behind it. Returns how the answer was started.
fn turn(runner: &mut Runner, at: u64, n: usize, heard: &str) -> String {
    for (ms, event) in [(0, format!("started {at}")), (10, format!("stopped {}", at + 10))] {
        runner.run(&format!("{} {event}", at + ms));
    }
    let actions = runner.run(&format!("{} heard i{n} {heard}", at + 20));
    let started = actions.iter().find(|action| action.starts_with("start ")).expect("it is answered").clone();
    let response = started.split(' ').nth(1).expect("its name").to_owned();
    runner.run(&format!("{} text {response} Yes.", at + 30));
    runner.run(&format!("{} finished {response}", at + 40));
    started
}

#[test]
fn an_answer_is_in_the_language_of_its_turn_and_by_a_voice_of_it() {
    let mut runner = following();
    assert_eq!(turn(&mut runner, 0, 1, "[de] guten Tag, wie geht es"), "start r1 turn_1 in de by anna");
    assert_eq!(turn(&mut runner, 1_000, 3, "[en] and now in English"), "start r2 turn_2 in en by slt");
    assert_eq!(
        turn(&mut runner, 2_000, 5, "[fr] parlez-vous français"),
        "start r3 turn_3 in fr by slt",
        "no such voice"
    );
}

#[test]
fn words_that_are_too_few_to_judge_and_words_without_a_language_keep_the_one_before() {
    let mut runner = following();
    assert_eq!(turn(&mut runner, 0, 1, "[cy] ja"), "start r1 turn_1", "none was heard yet");
    assert_eq!(turn(&mut runner, 1_000, 3, "[de] guten Tag"), "start r2 turn_2 in de by anna");
    assert_eq!(turn(&mut runner, 2_000, 5, "[en] okay"), "start r3 turn_3 in de by anna");
    assert_eq!(turn(&mut runner, 3_000, 7, "something the recognizer cannot place"), "start r4 turn_4 in de by anna");
    assert_eq!(
        turn(&mut runner, 4_000, 9, "[zh] 你好吗"),
        "start r5 turn_5 in zh by slt",
        "three characters are words"
    );
}

#[test]
fn the_model_reads_the_language_behind_the_instructions_and_in_no_item() {
    let mut runner = following();
    turn(&mut runner, 0, 1, "[de] guten Tag, wie geht es");
    for line in ["1000 started 1000", "1010 stopped 1010"] {
        runner.run(line);
    }
    let asked = runner.asked("1020 heard i3 [en] and now in English");
    assert_eq!(asked.matches("Answer in").count(), 1, "{asked}");
    assert!(asked.contains(r"Be brief.\n\nAnswer in English."), "{asked}");
}

#[test]
fn what_was_typed_is_answered_in_the_language_heard_last_and_a_voice_that_was_asked_for_speaks() {
    let mut runner = following();
    turn(&mut runner, 0, 1, "[de] guten Tag, wie geht es");
    runner.run("1000 say hello");
    assert_eq!(runner.run("1010 respond").last().expect("a start"), "start r2 turn_1 in de by anna");
    runner.run("1020 finished r2");
    assert_eq!(runner.run("1030 respond_by alba").last().expect("a start"), "start r3 turn_1 in de by alba");
}

#[test]
fn an_answer_that_waits_for_its_words_is_in_their_language() {
    let mut runner = following();
    turn(&mut runner, 0, 1, "[en] good morning to you");
    for line in ["1000 started 1000", "1010 stopped 1010"] {
        runner.run(line);
    }
    runner.run("1015 respond");
    let actions = runner.run("1020 heard i3 [de] guten Morgen auch");
    assert!(actions.contains(&"start r2 turn_2 in de by anna".to_owned()), "{actions:?}");
}

#[test]
fn a_speculative_answer_is_in_the_language_of_the_provisional_words() {
    let mut runner = following().speculating(3, 0.5);
    turn(&mut runner, 0, 1, "[de] guten Tag, wie geht es");
    runner.run("1000 started 1000");
    runner.run("1900 paused");
    let actions = runner.run("1910 provisional i3 [en] what time is it");
    assert_eq!(actions, ["speculate r2 on \"what time is it\" in en by slt"]);
    runner.run("2300 stopped 1800");
    let actions = runner.run("2301 heard i3 [en] What time is it?");
    assert_eq!(actions.last().expect("some"), "release r2");
}

#[test]
fn a_speculative_answer_in_another_language_than_the_final_words_is_dropped() {
    let mut runner = following().speculating(3, 0.5);
    runner.run("1000 started 1000");
    runner.run("1900 paused");
    runner.run("1910 provisional i1 [nl] dank je wel");
    runner.run("2300 stopped 1800");
    let actions = runner.run("2301 heard i1 [de] dank je wel");
    let ends = &actions[actions.len() - 2..];
    assert_eq!(ends, ["discard r1 changed after 401 ms", "start r1 turn_1 in de by anna"]);
}

#[test]
fn a_conversation_that_does_not_follow_hears_no_language() {
    let mut runner = Runner::new(PlaybackControl::Server, Some(AUTO));
    assert_eq!(turn(&mut runner, 0, 1, "[de] guten Tag, wie geht es"), "start r1 turn_1");
}
