//! What the reducer must get right.

use super::script::{AUTO, Runner, check, check_with};
use antiphon_dialog::{Item, ItemStatus, PlaybackControl, TurnDetection};

#[test]
fn a_turn_is_heard_and_answered() {
    check(
        "0 started 300
            open i1
            < speech_started i1 300
        500 partial i1 what
        700 partial i1 what time
        1000 stopped 1000
            close i1
            < speech_stopped i1 1000
            < committed i1
            < item_added i1
            < item_done i1 Completed
            < transcript_delta i1 \"what\"
        1010 heard i1 what time is it
            < transcript i1 \"what time is it\"
            < response_created r1
            start r1 turn_1
        1020 text r1 It is ten.
            < output_added r1 i2
            < item_added i2
            < r1 i2 PartAdded { audio: true }
            < r1 i2 TranscriptDelta(\"It is ten. \")
        1020 made r1 500
        1030 sent i2 500
        1040 finished r1
            < r1 i2 PartDone { audio: true, text: \"It is ten. \" }
            < item_done i2 Completed
            < output_done r1 i2
            < response_done r1 Completed
        9000 history
            user: what time is it | assistant: It is ten.",
    );
}

#[test]
fn speech_that_resumes_before_the_final_transcript_extends_the_turn() {
    check(
        "0 started 0
            open i1
            < speech_started i1 0
        1000 stopped 800
            close i1
            < speech_stopped i1 800
            < committed i1
            < item_added i1
            < item_done i1 Completed
        1005 started 1000
            open i2
            < speech_started i2 1000
        1010 heard i1 set a timer
            < transcript i1 \"set a timer\"
        2000 stopped 1800
            close i2
            < speech_stopped i2 1800
            < committed i2 after i1
            < item_added i2
            < item_done i2 Completed
        2010 heard i2 for ten minutes
            < transcript i2 \"for ten minutes\"
            < response_created r1
            start r1 turn_1
        2020 history
            user: set a timer | user: for ten minutes",
    );
}

/// A reply of two chunks of 1 s each, all made and sent at 100 ms, in a conversation that has begun.
fn speaking(listener: PlaybackControl) -> Runner {
    let mut runner = Runner::new(listener, Some(AUTO));
    for line in [
        "0 started 0",
        "10 stopped 10",
        "20 heard i1 tell me",
        "30 text r1 One two.",
        "30 made r1 1000",
        "30 text r1 Three four.",
        "30 made r1 1000",
        "100 sent i2 2000",
    ] {
        runner.run(line);
    }
    runner
}

#[test]
fn a_barge_in_cuts_the_history_at_what_was_heard() {
    check_with(
        speaking(PlaybackControl::Client),
        "1700 onset
            hold
            < held i2
        1800 started 1700
            open i3
            < speech_started i3 1700
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(TurnDetected)
            flush r1
            release
        1900 history
            user: tell me | assistant: One two. Three",
    );
}

#[test]
fn speech_after_response_done_is_still_a_barge_in() {
    let mut runner = speaking(PlaybackControl::Client);
    runner.run("150 finished r1");
    check_with(
        runner,
        "600 started 500
            open i3
            < speech_started i3 500
            flush r1
        700 history
            user: tell me | assistant: One",
    );
}

#[test]
fn a_cough_only_holds_the_reply() {
    check_with(
        speaking(PlaybackControl::Server),
        "1000 onset
            hold
            < held i2
        1300 retracted
            < released i2
            release
        1310 text r1 Five.
            < r1 i2 TranscriptDelta(\"Five. \")
        2000 started 2000
            open i3
            < speech_started i3 2000
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. Five. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(TurnDetected)
            flush r1
        2100 history
            user: tell me | assistant: One two. Three",
    );
}

#[test]
fn a_hold_that_nothing_decides_ends_by_itself() {
    check_with(
        speaking(PlaybackControl::Server),
        "1000 onset
            hold
            < held i2
        1999 tick
        2000 tick
            < released i2
            release",
    );
}

#[test]
fn where_playback_stopped_moves_the_cut() {
    check_with(
        speaking(PlaybackControl::Server),
        "910 clear_output
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(ClientCancelled)
            flush r1
        920 playback_ended i2 500
        1000 history
            user: tell me | assistant: One",
    );
}

#[test]
fn the_listeners_report_beats_the_estimate() {
    check_with(
        speaking(PlaybackControl::Server),
        "900 played i2 500
        910 clear_output
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(ClientCancelled)
            flush r1
        1000 history
            user: tell me | assistant: One",
    );
}

#[test]
fn nothing_is_spoken_after_a_stop() {
    check_with(
        speaking(PlaybackControl::Client),
        "200 cancel
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(ClientCancelled)
        210 text r1 Late.
        210 made r1 100
        210 call r1 0 late {}
        220 finished r1
        230 broke r1 late
        240 cancel
            < refused NoActiveResponse",
    );
}

#[test]
fn a_failing_stage_ends_its_response_and_not_the_conversation() {
    check_with(
        speaking(PlaybackControl::Client),
        "200 broke r1 the voice engine failed
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Failed(\"the voice engine failed\")
        5000 respond
            < response_created r2
            start r2 turn_1",
    );
}

#[test]
fn a_lost_transcript_is_told_and_answers_nothing() {
    check(
        "0 started 0
            open i1
            < speech_started i1 0
        10 unheard i1 the recognizer is gone
        900 stopped 700
            close i1
            < speech_stopped i1 700
            < committed i1
            < item_added i1
            < item_done i1 Completed
            < transcript_failed i1 \"the recognizer is gone\"
        1000 respond
            < response_created r1
            < response_done r1 Failed(\"the recognizer is gone\")",
    );
}

#[test]
fn a_typed_turn_needs_no_recognizer() {
    // Typed after the failure, and typed while the transcript is still awaited.
    check(
        "0 started 0
            open i1
            < speech_started i1 0
        900 stopped 700
            close i1
            < speech_stopped i1 700
            < committed i1
            < item_added i1
            < item_done i1 Completed
        910 unheard i1 the recognizer is gone
            < transcript_failed i1 \"the recognizer is gone\"
        1000 say hello
            < item_added i2
            < item_done i2 Completed
        1010 respond
            < response_created r1
            start r1 turn_1",
    );
    check(
        "0 started 0
            open i1
            < speech_started i1 0
        900 stopped 700
            close i1
            < speech_stopped i1 700
            < committed i1
            < item_added i1
            < item_done i1 Completed
        1000 say hello
            < item_added i2
            < item_done i2 Completed
        1010 respond
            < response_created r1
        1020 unheard i1 the recognizer is gone
            < transcript_failed i1 \"the recognizer is gone\"
            start r1 turn_1",
    );
}

#[test]
fn noise_without_words_is_not_answered() {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    runner.run("0 started 0");
    runner.run("10 stopped 10");
    check_with(runner, "20 heard i1 \n < transcript i1 \"\"");
}

#[test]
fn the_hubs_own_words_are_not_answered() {
    let mut runner = speaking(PlaybackControl::Client);
    runner.run("600 started 600");
    runner.run("700 stopped 700");
    check_with(
        runner,
        "710 heard i3 one two three
            < transcript i3 \"one two three\"
            < item_deleted i3
        720 history
            user: tell me | assistant: One",
    );
}

#[test]
fn without_interruption_the_reply_goes_on_and_the_next_waits() {
    let patient = TurnDetection { interrupt_response: false, ..AUTO };
    let mut runner = Runner::new(PlaybackControl::Client, Some(patient));
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 tell me", "30 text r1 One.", "30 made r1 1000"] {
        runner.run(line);
    }
    check_with(
        runner,
        "40 onset
        50 started 50
            open i3
            < speech_started i3 50
        60 stopped 60
            close i3
            < speech_stopped i3 60
            < committed i3 after i2
            < item_added i3
            < item_done i3 Completed
        70 heard i3 and then
            < transcript i3 \"and then\"
        80 finished r1
            < r1 i2 PartDone { audio: true, text: \"One. \" }
            < item_done i2 Completed
            < output_done r1 i2
            < response_done r1 Completed
            < response_created r2
            start r2 turn_2",
    );
}

#[test]
fn a_manual_turn_waits_for_its_transcript() {
    check_with(
        Runner::new(PlaybackControl::Client, None),
        "0 commit 99
            < refused BufferTooSmall { buffered: Samples(1584) }
        5 started 0
            open i1
        10 onset
        900 stopped 800
        1000 commit 1000
            close i1
            < committed i1
            < item_added i1
            < item_done i1 Completed
            clear input
        1001 respond
            < response_created r1
        1002 respond
            < refused: r1 is active
        1010 heard i1 hello
            < transcript i1 \"hello\"
            start r1 turn_1
        1020 cancel
            stop r1
            < response_done r1 Cancelled(ClientCancelled)",
    );
}

#[test]
fn a_truncation_is_checked_against_what_was_made() {
    let mut runner = speaking(PlaybackControl::Client);
    runner.run("150 finished r1");
    check_with(
        runner,
        "200 truncate i2 2001
            < refused TruncateBeyondEnd { length_ms: 2000, asked_ms: 2001 }
        200 truncate i1 0
            < refused NotTruncatable
        200 truncate i9 0
            < refused NoItemToTruncate(ItemId(\"i9\"))
        200 truncate i2 2000
            < truncated i2 2000
        210 history
            user: tell me | assistant: One two. Three four.
        220 truncate i2 500
            < truncated i2 500
        230 history
            user: tell me | assistant: One",
    );
}

#[test]
fn the_voice_stays_once_it_was_heard() {
    check_with(speaking(PlaybackControl::Client), "200 voice rms \n < refused VoiceFixed");
    check("0 voice rms \n < settings_updated");
}

#[test]
fn a_tool_call_is_an_item_and_an_unfinished_one_is_not_history() {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    runner.run("0 say weather?");
    check_with(
        runner,
        "1 respond
            < response_created r1
            start r1 turn_0
        2 call r1 0 weather {\"city\":
        3 call r1 0  \"Rome\"}
            < output_added r1 i2
            < item_added i2
            < r1 i2 ArgumentsDelta { call_id: \"call_0\", delta: \"{\\\"city\\\":\\\"Rome\\\"}\" }
        4 finished r1
            < arguments_done r1 i2 weather({\"city\":\"Rome\"})
            < item_done i2 Completed
            < output_done r1 i2
            < response_done r1 Completed
        5 history
            user: weather? | assistant:  calls weather | tool: The tool has not answered yet.
        6 respond
            < response_created r2
            start r2 turn_0
        7 call r2 1 weather {\"ci
        8 cancel
            stop r2
            < response_done r2 Cancelled(ClientCancelled)
        9 history
            user: weather? | assistant:  calls weather | tool: The tool has not answered yet.",
    );
}

#[test]
fn an_out_of_band_response_stands_beside_the_conversation() {
    let mut runner = speaking(PlaybackControl::Client);
    check_with(
        {
            runner.run("150 aside classify this");
            runner
        },
        "160 text r2 Fine.
            < output_added r2 i3
            < r2 i3 PartAdded { audio: true }
            < r2 i3 TranscriptDelta(\"Fine. \")
        170 finished r2
            < r2 i3 PartDone { audio: true, text: \"Fine. \" }
            < output_done r2 i3
            < response_done r2 Completed
        3000 history
            user: tell me | assistant: One two. Three four.",
    );
}

/// Speech beside the conversation, 2 s of which 300 ms were sent, where the hub controls playback.
fn speaking_aside() -> Runner {
    let mut runner = Runner::new(PlaybackControl::Server, Some(AUTO));
    for line in ["0 aside read this", "10 text r1 Read.", "10 made r1 2000", "20 sent i1 300"] {
        runner.run(line);
    }
    runner
}

#[test]
fn speech_beside_the_conversation_is_held_and_interrupted_as_a_reply_is() {
    check_with(
        speaking_aside(),
        "200 onset
            hold
            < held i1
        280 started 200
            open i2
            < speech_started i2 200
            stop r1
            < r1 i1 PartDone { audio: true, text: \"Read. \" }
            < output_done r1 i1
            < response_done r1 Cancelled(TurnDetected)
            flush r1
            release",
    );
    let mut made = speaking_aside();
    made.run("100 finished r1");
    check_with(
        made,
        "200 started 200
            open i2
            < speech_started i2 200
            flush r1",
    );
}

#[test]
fn a_clear_stops_what_speaks_beside_the_conversation() {
    let mut runner = speaking_aside();
    runner.run("50 aside said nothing yet");
    check_with(
        runner,
        "200 clear_output
            stop r1
            < r1 i1 PartDone { audio: true, text: \"Read. \" }
            < output_done r1 i1
            < response_done r1 Cancelled(ClientCancelled)
            flush r1
        300 onset",
    );
}

#[test]
fn a_clear_stops_what_is_silent_between_two_pieces_beside_the_conversation() {
    let mut runner = Runner::new(PlaybackControl::Server, Some(AUTO));
    for line in ["0 aside read this", "10 text r1 Read.", "10 made r1 300", "20 sent i1 300"] {
        runner.run(line);
    }
    check_with(
        runner,
        "1000 clear_output
            stop r1
            < r1 i1 PartDone { audio: true, text: \"Read. \" }
            < output_done r1 i1
            < response_done r1 Cancelled(ClientCancelled)",
    );
}

#[test]
fn the_sound_of_a_deleted_item_can_be_stopped() {
    let mut runner = speaking(PlaybackControl::Server);
    runner.run("110 finished r1");
    check_with(
        runner,
        "200 delete i2
            < item_deleted i2
        600 onset
            hold
            < held i2
        680 started 600
            open i3
            < speech_started i3 600
            flush r1
            release
        700 history
            user: tell me",
    );
}

#[test]
fn a_noise_after_the_question_does_not_lose_it() {
    check(
        "0 started 0
            open i1
            < speech_started i1 0
        500 stopped 400
            close i1
            < speech_stopped i1 400
            < committed i1
            < item_added i1
            < item_done i1 Completed
        510 heard i1 what time is it
            < transcript i1 \"what time is it\"
            < response_created r1
            start r1 turn_1
        600 started 600
            open i2
            < speech_started i2 600
            stop r1
            < response_done r1 Cancelled(TurnDetected)
        900 stopped 800
            close i2
            < speech_stopped i2 800
            < committed i2 after i1
            < item_added i2
            < item_done i2 Completed
        910 heard i2
            < transcript i2 \"\"
            < response_created r2
            start r2 turn_2
        920 history
            user: what time is it",
    );
}

#[test]
fn a_noise_before_the_answer_is_heard_does_not_lose_the_question() {
    let asked = ["0 started 0", "500 stopped 400", "510 heard i1 what time is it", "600 onset 600"];
    let answered = ["610 text r1 Ten.", "610 made r1 500", "620 sent i2 300"];
    let still_made: &[&str] = &[];
    for is_made in [still_made, &["630 sent i2 200", "640 finished r1"]] {
        let mut runner = Runner::new(PlaybackControl::Server, Some(AUTO));
        for line in asked.iter().chain(&answered).chain(is_made) {
            runner.run(line);
        }
        for line in ["700 started 600", "900 stopped 800"] {
            runner.run(line);
        }
        let actions = runner.run("910 heard i3");
        assert!(actions.iter().any(|action| action == "< response_created r2"), "{is_made:?}: {actions:?}");
    }
}

#[test]
fn a_noise_while_the_client_runs_a_tool_asks_for_no_second_response() {
    let mut runner = Runner::new(PlaybackControl::Server, Some(AUTO));
    for line in ["0 started 0", "500 stopped 400", "510 heard i1 what time is it", "600 onset 600"] {
        runner.run(line);
    }
    for line in ["610 text r1 Let me look.", "610 made r1 500", "620 sent i2 500", "630 call r1 0 look {}"] {
        runner.run(line);
    }
    for line in ["640 finished r1", "700 started 600", "900 stopped 800"] {
        runner.run(line);
    }
    let actions = runner.run("910 heard i4");
    assert!(!actions.iter().any(|action| action.starts_with("< response_created")), "{actions:?}");
}

#[test]
fn speech_whose_beginning_was_not_reported_has_no_reported_end() {
    let mut runner = Runner::new(PlaybackControl::Server, None);
    runner.run("0 started 0");
    runner.detect(AUTO);
    let actions = runner.run("500 stopped 400");
    assert!(actions.iter().any(|action| action == "< committed i1"), "{actions:?}");
    assert!(!actions.iter().any(|action| action.starts_with("< speech_stopped")), "{actions:?}");
}

#[test]
fn a_barge_in_drops_every_reply_that_waits_and_the_next_one_sounds() {
    let mut runner = speaking(PlaybackControl::Server);
    for line in ["110 finished r1", "120 respond", "130 text r2 Five six.", "130 made r2 1000", "130 sent i3 100"] {
        runner.run(line);
    }
    check_with(
        runner,
        "200 onset
            hold
            < held i2
        300 started 300
            open i4
            < speech_started i4 300
            stop r2
            < r2 i3 PartDone { audio: true, text: \"Five six. \" }
            < item_done i3 Incomplete
            < output_done r2 i3
            < response_done r2 Cancelled(TurnDetected)
            flush r1
            flush r2
            release",
    );
}

#[test]
fn a_hold_ends_also_for_what_was_truncated_meanwhile() {
    let mut runner = speaking(PlaybackControl::Server);
    runner.run("200 onset");
    check_with(
        runner,
        "250 truncate i2 150
            < truncated i2 150
        300 retracted
            < released i2
            release",
    );
}

#[test]
fn what_the_client_does_not_want_to_read_does_not_fail_either() {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    runner.silence_transcripts();
    check_with(
        runner,
        "0 started 0
            open i1
            < speech_started i1 0
        900 stopped 800
            close i1
            < speech_stopped i1 800
            < committed i1
            < item_added i1
            < item_done i1 Completed
        950 unheard i1 the engine broke",
    );
}

#[test]
fn an_item_of_a_million_empty_parts_is_too_large() {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    let refused = runner.run("0 parts 100000");
    assert!(refused[0].starts_with("< refused ItemTooLarge"), "{refused:?}");
    assert_eq!(runner.run("1 parts 1000").len(), 2);
}

#[test]
fn the_limits_of_a_conversation_hold_while_its_oldest_item_is_in_progress() {
    let mut runner = Runner::new(PlaybackControl::Client, None).without_snapshots();
    for line in ["0 say Speak.", "1 respond", "2 text r1 One."] {
        runner.run(line);
    }
    let reply = runner.dialog.history().items()[1].id.clone();
    let large = "x".repeat(1_000 * 1_024);
    for at in 3..63 {
        runner.run(&format!("{at} say {large}"));
    }
    // Four of them are less than 4 MiB.
    let items = runner.dialog.history().items();
    assert_eq!((&items[0].id, items[0].status, items.len()), (&reply, ItemStatus::InProgress, 5));
    runner.run("63 say the last");
    assert_eq!(runner.dialog.history().items().last().map(Item::text).as_deref(), Some("the last"));
    for at in 64..4_264 {
        runner.run(&format!("{at} say x"));
    }
    let items = runner.dialog.history().items();
    assert_eq!((&items[0].id, items.len()), (&reply, 4_096));
    runner.run("4264 finished r1");
    assert_eq!(runner.dialog.history().item(&reply).map(|item| item.status), Some(ItemStatus::Completed));
    runner.run("4265 say x");
    assert!(runner.dialog.history().item(&reply).is_none(), "it is the oldest item that is not in progress");
}

#[test]
fn an_item_as_large_as_the_conversation_may_be_stays_beside_one_in_progress() {
    let mut runner = Runner::new(PlaybackControl::Client, None).without_snapshots();
    for line in ["0 say Speak.", "1 respond", "2 text r1 One."] {
        runner.run(line);
    }
    // Each item counts 64 bytes beside its text.
    let largest = "x".repeat(4 * 1_024 * 1_024 - 64);
    let created = runner.run(&format!("3 say {largest}"));
    assert_eq!(created, ["< item_added i3", "< item_done i3 Completed", "< item_deleted i1"]);
}
