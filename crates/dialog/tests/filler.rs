//! Fillers: a few words where an answer is late, which are no item.

use super::script::{AUTO, Runner, check_with};
use antiphon_dialog::{Action, Event, Notice, OutputChange, PlaybackControl};
use antiphon_types::Timestamp;
use std::time::Duration;

/// A conversation in which a second may be silent.
fn patient(listener: PlaybackControl) -> Runner {
    let mut runner = Runner::new(listener, Some(AUTO));
    runner.fill_after(Duration::from_secs(1));
    runner
}

/// A question at 20 ms, whose answer is late: a filler of 600 ms at 1050 ms, all sent.
fn filled(listener: PlaybackControl) -> Runner {
    let mut runner = made(listener);
    runner.run("1060 sent i2 600");
    runner
}

/// The same before anything is sent.
fn made(listener: PlaybackControl) -> Runner {
    let mut runner = patient(listener);
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 what is it", "1020 tick", "1050 fills r1 One moment."] {
        runner.run(line);
    }
    for line in ["1050 made r1 600", "1050 filled r1"] {
        runner.run(line);
    }
    runner
}

#[test]
fn a_late_answer_has_a_filler_before_it_that_is_no_item() {
    check_with(
        patient(PlaybackControl::Server),
        "0 started 0
            open i1
            < speech_started i1 0
        10 stopped 10
            close i1
            < speech_stopped i1 10
            < committed i1
            < item_added i1
            < item_done i1 Completed
        20 heard i1 what is it
            < transcript i1 \"what is it\"
            < response_created r1
            start r1 turn_1
        1019 tick
        1020 tick
            filler r1
        1050 fills r1 One moment.
            < output_added r1 i2
            < r1 i2 PartAdded { audio: true }
            < r1 i2 TranscriptDelta(\"One moment.\")
        1050 made r1 600
        1050 filled r1
            < r1 i2 PartDone { audio: true, text: \"One moment.\" }
            < output_done r1 i2
        9000 tick
        9100 text r1 It is late.
            < output_added r1 i3
            < item_added i3
            < r1 i3 PartAdded { audio: true }
            < r1 i3 TranscriptDelta(\"It is late. \")
        9100 made r1 500
        9200 finished r1
            < r1 i3 PartDone { audio: true, text: \"It is late. \" }
            < item_done i3 Completed
            < output_done r1 i3
            < response_done r1 Completed
        20000 history
            user: what is it | assistant: It is late.",
    );
}

#[test]
fn a_line_on_hold_gets_no_filler() {
    let mut runner = patient(PlaybackControl::Server);
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 what is it", "500 line_held"] {
        runner.run(line);
    }
    assert_eq!((runner.dialog.next_deadline(), runner.run("1020 tick")), (None, vec![]));
    runner.run("1400 line_resumed");
    assert_eq!(runner.run("1400 tick"), ["filler r1"]);
    runner.run("1420 line_held");
    assert_eq!(runner.run("1450 fills r1 One moment."), Vec::<String>::new(), "it was made too late");
}

#[test]
fn the_answer_that_comes_first_needs_none() {
    let mut runner = patient(PlaybackControl::Server);
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 what is it", "1020 tick", "1030 text r1 It is late."] {
        runner.run(line);
    }
    assert_eq!(runner.run("1050 fills r1 One moment."), [""; 0]);
    assert_eq!(runner.run("1060 filled r1"), [""; 0]);
}

#[test]
fn a_user_who_goes_on_is_not_spoken_over() {
    let mut runner = patient(PlaybackControl::Server);
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 what is it", "1020 tick", "1030 onset 1000"] {
        runner.run(line);
    }
    assert_eq!(runner.run("1050 fills r1 One moment."), [""; 0]);
}

#[test]
fn speech_stops_a_filler_and_the_question_stays_open() {
    check_with(
        filled(PlaybackControl::Server),
        "1300 onset 1300
            hold
            < held i2
        1380 started 1300
            open i3
            < speech_started i3 1300
            stop r1
            < response_done r1 Cancelled(TurnDetected)
            flush r1
            release
        1700 stopped 1700
            close i3
            < speech_stopped i3 1700
            < committed i3 after i1
            < item_added i3
            < item_done i3 Completed
        1710 heard i3
            < transcript i3 \"\"
            < response_created r2
            start r2 turn_2
        1720 history
            user: what is it",
    );
}

#[test]
fn a_cancelled_response_leaves_no_filler_that_sounds_for_ever() {
    let mut runner = made(PlaybackControl::Server);
    runner.run("1060 sent i2 100");
    runner.run("1200 cancel");
    assert_eq!(runner.run("3000 onset 3000"), [""; 0], "nothing sounds that could be held");
}

#[test]
fn its_client_may_truncate_a_filler() {
    check_with(
        filled(PlaybackControl::Client),
        "1200 truncate i2 100
            < truncated i2 100",
    );
}

#[test]
fn a_turn_has_one_filler_and_the_next_turn_another() {
    let mut runner = filled(PlaybackControl::Server);
    let late = |runner: &mut Runner, at: u64| runner.run(&format!("{at} tick"));
    assert_eq!(late(&mut runner, 30_000), [""; 0]);
    for line in ["30010 text r1 It is late.", "30010 made r1 100", "30010 finished r1", "30020 sent i3 100"] {
        runner.run(line);
    }
    for line in ["40000 started 40000", "40010 stopped 40010", "40020 heard i4 and now"] {
        runner.run(line);
    }
    assert_eq!(late(&mut runner, 41_020), ["filler r2"]);
}

#[test]
fn a_response_that_goes_on_from_a_tool_waits_since_the_question() {
    let mut runner = patient(PlaybackControl::Server);
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 what is it", "30 call r1 0 look {}", "40 finished r1"] {
        runner.run(line);
    }
    for line in ["900 result call_0 late", "910 respond"] {
        runner.run(line);
    }
    assert_eq!(runner.run("1019 tick"), [""; 0]);
    assert_eq!(runner.run("1020 tick"), ["filler r2"]);
}

#[test]
fn a_tool_that_the_client_runs_has_a_filler_in_a_response_of_its_own() {
    let mut runner = patient(PlaybackControl::Server);
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 what is it", "30 call r1 0 look {}", "40 finished r1"] {
        runner.run(line);
    }
    check_with(
        runner,
        "1020 tick
            filler r2
        1050 fills r2 One moment.
            < response_created r2
            < output_added r2 i3
            < r2 i3 PartAdded { audio: true }
            < r2 i3 TranscriptDelta(\"One moment.\")
        1050 made r2 600
        1050 filled r2
            < r2 i3 PartDone { audio: true, text: \"One moment.\" }
            < output_done r2 i3
            < response_done r2 Completed
        1060 sent i3 600
        1100 result call_0 late
            < item_added i4
            < item_done i4 Completed
        1110 respond
            < response_created r3
            start r3 turn_1
        4000 tick
        4100 onset 4000
            hold
        4200 history
            user: what is it | assistant:  calls look | tool: late",
    );
}

#[test]
fn a_tool_that_ends_first_needs_no_filler() {
    let mut runner = patient(PlaybackControl::Server);
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 what is it", "30 call r1 0 look {}", "40 finished r1"] {
        runner.run(line);
    }
    for line in ["1020 tick", "1030 result call_0 late", "1040 respond"] {
        runner.run(line);
    }
    assert_eq!(runner.run("1050 fills r2 One moment."), [""; 0]);
}

#[test]
fn the_output_that_follows_a_filler_has_its_index() {
    let mut runner = patient(PlaybackControl::Server);
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 what is it", "1020 tick"] {
        runner.run(line);
    }
    let response = runner.dialog.active().expect("it is late").clone();
    let mut index = |event| {
        let actions = runner.step(Timestamp::from_ms(1_050), event);
        actions.into_iter().find_map(|action| match action {
            Action::Notify(Notice::Output { index, change: OutputChange::Added(_), .. }) => Some(index),
            _ => None,
        })
    };
    assert_eq!(index(Event::FillerStarted { response: response.clone(), text: "One moment.".into() }), Some(0));
    assert_eq!(index(Event::Text { response, text: "Late.".into() }), Some(0));
}

#[test]
fn nothing_fills_without_the_setting() {
    let mut runner = Runner::new(PlaybackControl::Server, Some(AUTO));
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 what is it"] {
        runner.run(line);
    }
    assert_eq!(runner.dialog.next_deadline(), None);
}

#[test]
fn a_response_that_ends_before_its_filler_is_not_begun_again() {
    let mut runner = patient(PlaybackControl::Server);
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 what is it", "1020 tick", "1030 call r1 0 look {}"] {
        runner.run(line);
    }
    runner.run("1040 finished r1");
    assert_eq!(runner.run("1050 fills r1 One moment."), [""; 0]);
    assert_eq!(runner.run("2040 tick"), ["filler r2"]);
}
