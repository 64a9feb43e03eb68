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
fn a_result_that_comes_after_another_answer_is_read_behind_that_answer() {
    check_with(
        called_twice(),
        "10 say and tomorrow?
            < item_added i5
            < item_done i5 Completed
        20 respond
            < response_created r2
            start r2 turn_0
        21 text r2 Sunny.
            < output_added r2 i6
            < item_added i6
            < r2 i6 PartAdded { audio: true }
            < r2 i6 TranscriptDelta(\"Sunny. \")
        22 made r2 1000
        23 sent i6 1000
        24 finished r2
            < r2 i6 PartDone { audio: true, text: \"Sunny. \" }
            < item_done i6 Completed
            < output_done r2 i6
            < response_done r2 Completed
        2000 result call_0 rain
            < item_added i7
            < item_done i7 Completed
        2001 history
            user: weather? | assistant: Let me see. calls weather,time | tool: The tool has not answered yet. | tool: The tool has not answered yet. | user: and tomorrow? | assistant: Sunny. calls weather | tool: rain
        2002 result call_1 noon
            < item_added i8
            < item_done i8 Completed
        2003 say thanks
            < item_added i9
            < item_done i9 Completed
        2004 history
            user: weather? | assistant: Let me see. calls weather,time | tool: The tool has not answered yet. | tool: The tool has not answered yet. | user: and tomorrow? | assistant: Sunny. calls weather,time | tool: rain | tool: noon | user: thanks",
    );
}

#[test]
fn a_call_that_is_read_twice_has_two_identifiers_of_one_form() {
    let mut runner = called_twice();
    for line in ["10 say and tomorrow?", "20 respond", "21 text r2 Sunny.", "22 made r2 1000", "23 sent i6 1000"] {
        runner.run(line);
    }
    runner.run("24 finished r2");
    runner.run("2000 result call_0 rain");
    let asked = runner.asked("2001 respond");
    let late = "tool_calls: [ToolCall { call_id: \"call_A\", name: \"weather\", arguments: \"{}\" }]";
    assert!(asked.contains(late), "{asked}");
    assert!(asked.contains("Tool { call_id: \"call_A\", output: \"rain\" }"), "{asked}");
}

#[test]
fn words_beside_a_call_are_no_answer_to_something_else() {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    for line in ["0 say weather?", "1 respond", "2 call r1 0 weather {}", "3 text r1 One moment."] {
        runner.run(line);
    }
    for line in ["4 made r1 500", "5 sent i3 500", "6 finished r1", "7 result call_0 rain"] {
        runner.run(line);
    }
    assert_eq!(runner.run("1000 history"), ["user: weather? | assistant: One moment. calls weather | tool: rain"]);
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
