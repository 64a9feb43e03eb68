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
