//! Tools in the reducer: calls and results stay together, and what was stopped was never called.

use super::script::{AUTO, Runner, check_with};
use antiphon_dialog::{Action, Command, Event, Item, ItemKind, ItemPosition, ItemStatus, PlaybackControl, Settings};
use antiphon_types::Timestamp;
use antiphon_types::chat::{Finish, Message, ToolChoice};
use std::time::Duration;

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
        5 call r1 1  }
            < arguments_done r1 i3 weather({})
            < item_done i3 Completed
            < output_done r1 i3
            < output_added r1 i4
            < item_added i4
            < r1 i4 ArgumentsDelta { call_id: \"call_1\", delta: \"{}\" }
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

/// A conversation with a typed question and a response to it.
fn asked() -> Runner {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    for line in ["0 say weather?", "1 respond"] {
        runner.run(line);
    }
    runner
}

/// The functions that the last request to the model had.
fn offered(actions: &[Action]) -> Option<(usize, Vec<Message>)> {
    actions.iter().rev().find_map(|action| match action {
        Action::StartResponse(work) => Some((work.chat.tools.len(), work.chat.messages.clone())),
        _ => None,
    })
}

#[test]
fn a_model_that_is_loaded_is_reported_for_a_response_that_is_under_way_only() {
    check_with(
        asked(),
        "2 loading r1 60
            < model_loading r1 60
        3 finished r1
            < response_done r1 Completed
        4 loading r1 60",
    );
}

#[test]
fn a_function_that_was_not_offered_is_answered_once_and_the_model_asked_without_tools() {
    check_with(
        asked(),
        "2 text r1 Let me see.
            < output_added r1 i2
            < item_added i2
            < r1 i2 PartAdded { audio: true }
            < r1 i2 TranscriptDelta(\"Let me see. \")
        3 call r1 0 format_disk {\"really\": true}
        4 finished r1
            < calls_refused r1 1
            < r1 i2 PartDone { audio: true, text: \"Let me see. \" }
            < item_done i2 Completed
            < output_done r1 i2
            start r1 turn_0
        5 text r1 It is fine.
            < output_added r1 i3
            < item_added i3
            < r1 i3 PartAdded { audio: true }
            < r1 i3 TranscriptDelta(\"It is fine. \")
        6 finished r1
            < r1 i3 PartDone { audio: true, text: \"It is fine. \" }
            < item_done i3 Completed
            < output_done r1 i3
            < response_done r1 Completed
        7 history
            user: weather? | assistant: Let me see. | assistant: It is fine.",
    );
}

#[test]
fn a_model_that_only_makes_calls_that_may_not_be_made_fails_after_the_second_time() {
    check_with(
        asked(),
        "3 call r1 0 format_disk {}
        4 finished r1
            < calls_refused r1 1
            start r1 turn_0
        5 call r1 0 format_disk {}
        6 call r1 1 weather {}
        7 finished r1
            < calls_refused r1 2 again
            < response_done r1 Failed(\"The language model only called functions that may not be called now, and said nothing.\")",
    );
}

#[test]
fn the_model_reads_why_a_call_was_not_made_and_never_its_broken_arguments() {
    for (name, arguments, why) in [
        ("format_disk", "{}", "no function"),
        ("weather", "Rome", "no JSON object"),
        ("weather", "[1]", "no JSON object"),
    ] {
        let mut runner = asked();
        runner.run(&format!("2 call r1 0 {name} {arguments}"));
        let actions = runner.step(Timestamp::from_ms(3), finished(&runner));
        let (n_tools, messages) = offered(&actions).expect("the model is asked again");
        assert_eq!(n_tools, 0);
        let [.., Message::Assistant { tool_calls, .. }, Message::Tool { call_id, output }] = &messages[..] else {
            panic!("{messages:?}")
        };
        assert_eq!((&tool_calls[0].call_id, tool_calls[0].arguments.as_str()), (call_id, "{}"));
        assert!(output.starts_with("Error: ") && output.contains(why), "{output}");
    }
}

#[test]
fn a_call_without_arguments_is_made_with_none() {
    check_with(
        asked(),
        "2 call r1 0 weather
        3 finished r1
            < output_added r1 i2
            < item_added i2
            < r1 i2 ArgumentsDelta { call_id: \"call_0\", delta: \"{}\" }
            < arguments_done r1 i2 weather({})
            < item_done i2 Completed
            < output_done r1 i2
            < response_done r1 Completed",
    );
}

#[test]
fn a_choice_of_tools_holds_whatever_the_model_calls() {
    for (choice, made) in [
        (ToolChoice::None, vec![]),
        (ToolChoice::Function("time".into()), vec!["time"]),
        (ToolChoice::Required, vec!["weather", "time"]),
    ] {
        let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
        runner.set(Settings { tool_choice: choice.clone(), ..runner.dialog.settings().clone() });
        for line in ["0 say weather?", "1 respond", "2 call r1 0 weather {}", "3 call r1 1 time {}", "4 finished r1"] {
            runner.run(line);
        }
        let calls = runner.dialog.history().items().iter().filter_map(|item| match &item.kind {
            ItemKind::FunctionCall { name, .. } => Some(name.as_str()),
            _ => None,
        });
        assert_eq!(calls.collect::<Vec<_>>(), made, "{choice:?}");
    }
}

#[test]
fn after_the_turns_rounds_of_calls_the_model_is_asked_without_tools() {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    runner.dialog = runner.dialog.with_max_tool_rounds(2);
    let round = |runner: &mut Runner, n: usize| {
        let mut actions = runner.run("1 respond");
        for line in [format!("2 call r{n} 0 weather {{}}"), format!("3 finished r{n}")] {
            actions.extend(runner.run(&line));
        }
        actions
    };
    for turn in [0, 3] {
        runner.run("0 say weather?");
        for n in [1, 2] {
            let actions = round(&mut runner, turn + n);
            assert!(actions.iter().any(|action| action.starts_with("< arguments_done")), "{n}: {actions:?}");
        }
        let actions = round(&mut runner, turn + 3);
        assert_eq!(actions.iter().filter(|action| action.starts_with("< tool_rounds_spent")).count(), 1, "{actions:?}");
        assert!(!actions.iter().any(|action| action.starts_with("< arguments_done")), "{actions:?}");
        runner.run(&format!("4 text r{} It rains.", turn + 3));
        assert!(runner.run(&format!("5 finished r{}", turn + 3)).iter().any(|action| action.ends_with("Completed")));
    }
}

#[test]
fn arguments_that_a_client_made_up_are_read_as_none() {
    let call = Item {
        id: "made_up".into(),
        status: ItemStatus::Completed,
        kind: ItemKind::FunctionCall { call_id: "c".into(), name: "weather".into(), arguments: "Rome".into() },
    };
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    let create = Command::CreateItem { item: call, place: ItemPosition::Last };
    runner.step(Timestamp::ZERO, Event::Client { event_id: None, command: create });
    let command = Command::CreateResponse(Box::default());
    let actions = runner.step(Timestamp::ZERO, Event::Client { event_id: None, command });
    let (_, messages) = offered(&actions).expect("the model is asked");
    let Some(Message::Assistant { tool_calls, .. }) = messages.iter().rev().nth(1) else { panic!("{messages:?}") };
    assert_eq!(tool_calls[0].arguments, "{}");
}

#[test]
fn a_result_that_is_larger_than_all_there_is_room_for_is_cut_and_the_client_side_is_told() {
    let mut runner = called_twice();
    runner.run("10 result call_0 rain");
    runner.run(&format!("11 result call_1 {}", "noon ".repeat(20_000)));
    let actions = runner.run("12 respond");
    assert!(actions.iter().any(|action| action.starts_with("< input_cut r2 ")), "{actions:?}");
}

/// The end of the first response.
fn finished(runner: &Runner) -> Event {
    let response = runner.dialog.active().expect("a response is under way").clone();
    Event::ResponseFinished { response, outcome: Ok((Finish::Stop, None)) }
}

#[test]
fn thinking_that_was_written_before_it_was_known_is_no_transcript_and_no_history() {
    check_with(
        asked(),
        "2 text r1 The user asks.
            < output_added r1 i2
            < item_added i2
            < r1 i2 PartAdded { audio: true }
            < r1 i2 TranscriptDelta(\"The user asks. \")
        2 made r1 2400
        3 withdrawn r1
        4 text r1 It rains.
            < r1 i2 TranscriptDelta(\"It rains. \")
        4 made r1 2400
        5 finished r1
            < r1 i2 PartDone { audio: true, text: \"It rains. \" }
            < item_done i2 Completed
            < output_done r1 i2
            < response_done r1 Completed
        6 history
            user: weather? | assistant: It rains.",
    );
}

#[test]
fn the_model_reads_how_long_it_may_speak() {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    runner.set(Settings { max_answer: Some(Duration::from_secs(30)), ..runner.dialog.settings().clone() });
    let command = Command::CreateResponse(Box::default());
    let actions = runner.step(Timestamp::ZERO, Event::Client { event_id: None, command });
    let (_, messages) = offered(&actions).expect("the model is asked");
    let Message::System(instructions) = &messages[0] else { panic!("{messages:?}") };
    let length = "Your answers are spoken, 30 seconds at most: write at most 70 words.";
    assert_eq!(*instructions, format!("Be brief.\n\n{length}"));
}
