//! Tools in the reducer: calls and results stay together, and what was stopped was never called.

use super::script::{AUTO, Runner, check_with};
use antiphon_dialog::PlaybackControl;

/// A conversation that has called two tools in one answer.
fn called_twice() -> Runner {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    for line in [
        "0 say weather?",
        "1 respond",
        "2 text r1 Let me see.",
        "3 call r1 0 weather {}",
        "4 call r1 1 time {}",
        "5 finished r1",
    ] {
        runner.run(line);
    }
    runner
}

#[test]
fn results_stand_behind_their_calls_whenever_they_come() {
    check_with(
        called_twice(),
        "10 say and tomorrow?
            < item_added i5
            < item_done i5 Completed
        11 result call_1 noon
            < item_added i6
            < item_done i6 Completed
        12 history
            user: weather? | assistant: Let me see. calls weather,time | tool: The tool has not answered yet. | tool: noon | user: and tomorrow?
        13 result call_0 rain
            < item_added i7
            < item_done i7 Completed
        14 history
            user: weather? | assistant: Let me see. calls weather,time | tool: rain | tool: noon | user: and tomorrow?",
    );
}

#[test]
fn a_result_without_its_call_is_refused_or_not_read() {
    check_with(
        called_twice(),
        "10 result call_9 rain
            < refused NoSuchCall(\"call_9\")
        11 result call_0 rain
            < item_added i5
            < item_done i5 Completed
        12 delete i3
            < item_deleted i3
        13 history
            user: weather? | assistant: Let me see. calls time | tool: The tool has not answered yet.",
    );
}

#[test]
fn each_output_ends_before_the_next_begins() {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    for line in ["0 say weather?", "1 respond", "2 text r1 Let me see."] {
        runner.run(line);
    }
    check_with(
        runner,
        "3 call r1 0 weather {}
            < r1 i2 PartDone { audio: true, text: \"Let me see. \" }
            < item_done i2 Completed
            < output_done r1 i2
            < output_added r1 i3
            < item_added i3
            < r1 i3 ArgumentsDelta { call_id: \"call_0\", delta: \"{}\" }
        4 call r1 1 time {
            < arguments_done r1 i3 weather({})
            < item_done i3 Completed
            < output_done r1 i3
            < output_added r1 i4
            < item_added i4
            < r1 i4 ArgumentsDelta { call_id: \"call_1\", delta: \"{\" }
        5 call r1 1  }
            < r1 i4 ArgumentsDelta { call_id: \"call_1\", delta: \"}\" }
        6 finished r1
            < arguments_done r1 i4 time({})
            < item_done i4 Completed
            < output_done r1 i4
            < response_done r1 Completed",
    );
}

#[test]
fn words_behind_a_call_are_a_message_of_their_own() {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    for line in ["0 say weather?", "1 respond", "2 text r1 Let me see.", "3 call r1 0 weather {}"] {
        runner.run(line);
    }
    check_with(
        runner,
        "4 text r1 
        5 text r1 One moment.
            < arguments_done r1 i3 weather({})
            < item_done i3 Completed
            < output_done r1 i3
            < output_added r1 i4
            < item_added i4
            < r1 i4 PartAdded { audio: true }
            < r1 i4 TranscriptDelta(\"One moment. \")
        6 finished r1
            < r1 i4 PartDone { audio: true, text: \"One moment. \" }
            < item_done i4 Completed
            < output_done r1 i4
            < response_done r1 Completed",
    );
}

#[test]
fn a_barge_in_into_an_answer_that_calls_takes_the_calls_back() {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    for line in ["0 say weather?", "1 respond", "2 text r1 Let me see.", "2 made r1 1000", "3 sent i2 1000"] {
        runner.run(line);
    }
    check_with(
        runner,
        "4 call r1 0 weather {}
            < r1 i2 PartDone { audio: true, text: \"Let me see. \" }
            < item_done i2 Completed
            < output_done r1 i2
            < output_added r1 i3
            < item_added i3
            < r1 i3 ArgumentsDelta { call_id: \"call_0\", delta: \"{}\" }
        600 started 600
            open i4
            < speech_started i4 600
            stop r1
            < item_done i3 Incomplete
            < output_done r1 i3
            < response_done r1 Cancelled(TurnDetected)
            flush r1
        601 call r1 0  late
        602 finished r1
        603 result call_0 rain
            < item_added i5
            < item_done i5 Completed
        604 history
            user: weather? | assistant: Let me",
    );
}
