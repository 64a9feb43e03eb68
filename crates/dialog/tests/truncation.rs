//! The client says what was heard of a reply (`conversation.item.truncate`), and no estimate overrides it.

use super::script::{AUTO, Runner, check_with};
use antiphon_dialog::{Content, ItemKind, PlaybackControl};

/// A reply of 2 s under way, all of it sent, which the client cuts after half a second.
fn truncated(listener: PlaybackControl) -> Runner {
    let mut runner = Runner::new(listener, Some(AUTO));
    for line in [
        "0 say tell me",
        "1 respond",
        "2 text r1 One two.",
        "3 made r1 1000",
        "4 text r1 Three four.",
        "5 made r1 1000",
        "6 sent i2 2000",
        "7 truncate i2 500",
    ] {
        runner.run(line);
    }
    runner
}

/// Whether the item on the wire has a transcript.
fn has_transcript(runner: &Runner) -> bool {
    let items = runner.dialog.history().items().iter();
    let contents = items.filter_map(|item| match &item.kind {
        ItemKind::Message { content, .. } => Some(content),
        _ => None,
    });
    contents.flatten().any(|part| matches!(part, Content::OutputAudio { transcript: Some(_) }))
}

#[test]
fn a_cancel_after_a_truncation_gives_nothing_back() {
    let runner = truncated(PlaybackControl::Client);
    let mut after = runner.clone();
    check_with(
        runner,
        "10 cancel
            stop r1
            < r1 i2 PartDone { audio: true, text: \"\" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(ClientCancelled)
        11 history
            user: tell me | assistant: One",
    );
    after.run("10 cancel");
    assert!(!has_transcript(&after), "what was dropped stays dropped");
}

#[test]
fn a_barge_in_after_a_truncation_gives_nothing_back() {
    for listener in [PlaybackControl::Client, PlaybackControl::Server] {
        let mut runner = truncated(listener);
        runner.run("1500 started 1500");
        assert_eq!(runner.history(), "user: tell me | assistant: One", "{listener:?}");
        assert!(!has_transcript(&runner));
    }
}

#[test]
fn words_that_come_after_a_truncation_are_not_of_the_history() {
    let mut runner = truncated(PlaybackControl::Client);
    runner.run("10 text r1 Five six.");
    runner.run("11 made r1 1000");
    runner.run("12 finished r1");
    assert_eq!(runner.history(), "user: tell me | assistant: One");
    assert!(!has_transcript(&runner));
}

#[test]
fn the_model_reads_what_was_not_heard_of_the_last_reply_where_that_is_set() {
    let cut_off = || {
        let mut runner = truncated(PlaybackControl::Client);
        runner.run("8 finished r1");
        runner.run("9 say go on");
        runner
    };
    let mut runner = cut_off();
    runner.note_interruptions();
    let noted = runner.asked("10 respond");
    let note = "Your reply was cut off here. The user has not heard: \\\"two. Three four.\\\"";
    let place = noted.find(note).unwrap_or_else(|| panic!("no note in {noted}"));
    assert!(noted.find("\"One\"").is_some_and(|heard| heard < place), "{noted}");
    assert!(noted.find("\"go on\"").is_some_and(|next| place < next), "{noted}");
    let mut runner = cut_off();
    runner.note_interruptions();
    for line in ["10 respond", "11 text r2 Five.", "12 made r2 500", "13 sent i4 500", "14 finished r2", "2000 say and"]
    {
        runner.run(line);
    }
    let then = runner.asked("2001 respond");
    assert!(then.contains("Five.") && !then.contains("cut off"), "a reply was heard whole since: {then}");
    let without = cut_off().asked("10 respond");
    assert!(!without.contains("cut off"), "{without}");
}
