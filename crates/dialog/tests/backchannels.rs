//! Speech over a reply: what acknowledges it does not stop it, what claims the turn does.

use super::script::{AUTO, PATIENT, Runner, check_with};
use antiphon_dialog::PlaybackControl;

/// A reply of two sentences of 1 s each, all made, and sent at 100 ms. It sounds at once.
fn speaking_to(listener: PlaybackControl, text: [&str; 2]) -> Runner {
    let mut runner = Runner::new(listener, Some(PATIENT));
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 tell me"] {
        runner.run(line);
    }
    for sentence in text {
        runner.run(&format!("30 text r1 {sentence}"));
        runner.run("30 made r1 1000");
    }
    runner.run("100 sent i2 2000");
    runner
}

fn speaking() -> Runner {
    speaking_to(PlaybackControl::Server, ["One two.", "Three four."])
}

#[test]
fn a_backchannel_holds_the_reply_until_its_words_are_known_and_is_no_item() {
    check_with(
        speaking(),
        "600 onset 500
            hold
            < held i2
        680 started 300
            open i3
        850 partial i3 uh
        960 paused
            transcribe provisionally i3
        990 provisional i3 uh huh
            < released i2
            release
        1400 stopped 900
            close i3
        1410 heard i3 uh huh
            < backchannel \"uh huh\" 300 900
        9000 history
            user: tell me | assistant: One two. Three four.",
    );
}

#[test]
fn words_that_come_as_the_reply_begins_acknowledge_nothing() {
    check_with(
        speaking(),
        "599 onset 500
            hold
            < held i2
        680 started 300
            open i3
        960 paused
            transcribe provisionally i3
        990 provisional i3 uh huh
            < speech_started i3 300
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(TurnDetected)
            flush r1
            release",
    );
}

#[test]
fn a_sound_without_words_lets_a_reply_go_on_that_has_just_begun() {
    check_with(
        speaking(),
        "300 onset 200
            hold
            < held i2
        380 started 0
            open i3
        560 paused
            transcribe provisionally i3
        600 provisional i3
            < released i2
            release",
    );
}

#[test]
fn an_interruption_stops_the_reply_with_the_word_that_says_so() {
    check_with(
        speaking(),
        "1200 onset 1100
            hold
            < held i2
        1280 started 900
            open i3
        1500 partial i3 yeah
        1750 partial i3 yeah but
            < speech_started i3 900
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(TurnDetected)
            flush r1
            release
            < transcript_delta i3 \"yeah\"
            < transcript_draft i3 \" but\"
        2600 stopped 2000
            close i3
            < speech_stopped i3 2000
            < committed i3 after i2
            < item_added i3
            < item_done i3 Completed
        2610 heard i3 yeah but why
            < transcript i3 \"yeah but why\"
            < response_created r2
            start r2 turn_2
        2700 history
            user: tell me | assistant: One two. | user: yeah but why",
    );
}

#[test]
fn without_words_the_length_decides() {
    check_with(
        speaking(),
        "600 onset 500
            hold
            < held i2
        680 started 300
            open i3
        1349 tick
        1350 tick
            transcribe partially i3
        1599 tick
        1600 tick
            < speech_started i3 300
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(TurnDetected)
            flush r1
            release",
    );
}

#[test]
fn a_pause_without_a_transcript_lets_the_reply_go_on_and_late_words_still_stop_it() {
    check_with(
        speaking(),
        "600 onset 500
            hold
            < held i2
        680 started 300
            open i3
        960 paused
            transcribe provisionally i3
        1599 tick
        1600 tick
            < released i2
            release
        1610 stopped 900
            close i3
        1800 heard i3 stop
            < speech_started i3 300
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(TurnDetected)
            flush r1
            < speech_stopped i3 900
            < committed i3 after i2
            < item_added i3
            < item_done i3 Completed
            < transcript i3 \"stop\"
            < response_created r2
            start r2 turn_2
        1900 history
            user: tell me | assistant: One | user: stop",
    );
}

#[test]
fn sound_without_words_is_no_turn() {
    check_with(
        speaking(),
        "600 onset 500
            hold
            < held i2
        680 started 300
            open i3
        900 paused
            transcribe provisionally i3
        920 provisional i3
            < released i2
            release
        1400 stopped 900
            close i3
        1410 heard i3
            < backchannel \"\" 300 900",
    );
}

#[test]
fn a_turn_model_lets_the_reply_go_on_or_stops_it_before_there_are_words() {
    let judged = |claims: &str| {
        let mut runner = speaking();
        for line in ["600 onset 500", "680 started 300"] {
            runner.run(line);
        }
        let mut actions = Vec::new();
        for (n, claim) in claims.split(' ').enumerate() {
            actions = runner.run(&format!("{} overlap i3 {claim}", 850 + 160 * n));
        }
        (runner, actions)
    };
    let (mut runner, actions) = judged("0.1");
    assert_eq!(actions, ["< released i2", "release"]);
    assert_eq!(runner.run("2600 tick"), [""; 0], "however long it lasts");
    assert_eq!(runner.run("2700 partial i3 wait a moment")[0], "< speech_started i3 300", "but words stop it");
    let (_, actions) = judged("0.5 0.9");
    assert_eq!(actions[0], "< speech_started i3 300");
    let (mut runner, actions) = judged("0.5 0.6");
    assert_eq!(actions, [""; 0]);
    assert_eq!(runner.run("1600 tick")[0], "< speech_started i3 300", "its length decides");
    let (mut runner, _) = judged("0.5");
    assert_eq!(runner.run("900 overlap i9 0.9"), [""; 0], "of another utterance");
}

#[test]
fn a_speaker_who_goes_on_after_a_backchannel_is_held_for_again() {
    check_with(
        speaking(),
        "600 onset 500
            hold
            < held i2
        680 started 300
            open i3
        960 paused
            transcribe provisionally i3
        990 provisional i3 right
            < released i2
            release
        1100 resumed
        1100 onset 1000
            hold
            < held i2
        1400 partial i3 right but wait
            < speech_started i3 300
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(TurnDetected)
            flush r1
            release
            < transcript_draft i3 \"right but wait\"",
    );
}

#[test]
fn agreement_that_goes_on_and_on_does_not_hold_the_reply_for_ever() {
    check_with(
        speaking(),
        "600 onset 500
            hold
            < held i2
        680 started 300
            open i3
        900 partial i3 yeah
        1600 tick
        1700 partial i3 yeah yeah yeah
        1750 tick
            transcribe partially i3
        2000 tick
            < released i2
            release",
    );
}

#[test]
fn a_word_that_ends_late_is_asked_for_before_the_length_decides() {
    check_with(
        speaking(),
        "600 onset 500
            hold
            < held i2
        680 started 300
            open i3
        1350 tick
            transcribe partially i3
        1550 partial i3 absolutely
        1600 tick
        1640 paused
            transcribe provisionally i3
        1700 tick
        1710 provisional i3 absolutely
            < released i2
            release",
    );
}

#[test]
fn the_beginning_of_a_backchannel_has_until_its_limit_to_become_one() {
    let begins = |then: &str| {
        let mut runner = speaking();
        for line in ["600 onset 500", "680 started 300", "1100 partial i3 makes", "1350 partial i3 makes"] {
            runner.run(line);
        }
        for line in ["1350 tick", "1600 tick"] {
            assert_eq!(runner.run(line), [""; 0], "{line}");
        }
        assert_eq!(runner.run("1750 tick"), ["transcribe partially i3"]);
        runner.run(&format!("1950 partial i3 {then}"));
        runner.run("2000 tick")
    };
    assert_eq!(begins("makes sense"), ["< released i2", "release"]);
    assert_eq!(begins("makes")[0], "< speech_started i3 300", "and it interrupts where it becomes none");
}

#[test]
fn the_words_of_a_pause_have_time_to_arrive_however_long_the_hold_is() {
    check_with(
        speaking(),
        "600 onset 500
            hold
            < held i2
        680 started 300
            open i3
        1100 partial i3 makes
        1900 paused
            transcribe provisionally i3
        1901 tick
        2199 tick
        2200 tick
            < released i2
            release",
    );
}

#[test]
fn yes_to_a_question_is_an_answer() {
    check_with(
        speaking_to(PlaybackControl::Server, ["One two.", "Shall I go on?"]),
        "1600 onset 1500
            hold
            < held i2
        1680 started 1300
            open i3
        1950 partial i3 yeah
            < speech_started i3 1300
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Shall I go on? \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(TurnDetected)
            flush r1
            release
            < transcript_draft i3 \"yeah\"",
    );
}

#[test]
fn the_reply_itself_in_the_microphone_does_not_stop_it() {
    check_with(
        speaking_to(PlaybackControl::Server, ["One two three four five.", "Six."]),
        "600 onset 500
            hold
            < held i2
        680 started 300
            open i3
        960 paused
            transcribe provisionally i3
        990 provisional i3 two three four
            < released i2
            release
        1400 stopped 900
            close i3
        1410 heard i3 two three four
            < backchannel \"two three four\" 300 900",
    );
}

#[test]
fn a_recognizer_that_fails_leaves_no_word_unreported() {
    let mut runner = speaking();
    for line in ["600 onset 500", "680 started 300", "960 paused", "1400 stopped 900"] {
        runner.run(line);
    }
    let actions = runner.run("1410 unheard i3 it broke");
    assert!(actions.iter().any(|action| action == "< transcript_failed i3 \"it broke\""), "{actions:?}");
    assert!(actions.iter().any(|action| action == "flush r1"), "{actions:?}");
}

#[test]
fn what_the_client_commits_is_a_turn() {
    let mut runner = speaking();
    for line in ["600 onset 500", "680 started 300", "900 partial i3 right"] {
        runner.run(line);
    }
    let actions = runner.run("1000 commit 700");
    assert_eq!(actions[0], "< speech_started i3 300");
    assert!(actions.iter().any(|action| action.starts_with("< committed i3")), "{actions:?}");
}

#[test]
fn what_the_client_clears_lets_the_reply_go_on() {
    check_with(
        speaking(),
        "600 onset 500
            hold
            < held i2
        680 started 300
            open i3
        900 clear
            drop i3
            < released i2
            release
            clear input
            < input_cleared",
    );
}

#[test]
fn a_client_that_controls_playback_is_interrupted_by_any_speech() {
    let patient = speaking_to(PlaybackControl::Client, ["One two.", "Three four."]);
    let mut plain = patient.clone();
    plain.detect(AUTO);
    for mut runner in [patient, plain] {
        runner.run("600 onset 500");
        let actions = runner.run("680 started 300");
        assert_eq!(actions[..2], ["open i3", "< speech_started i3 300"]);
        assert!(actions.iter().any(|action| action == "flush r1"), "{actions:?}");
    }
}

#[test]
fn speech_that_is_a_turn_makes_one_of_undecided_speech_before_it() {
    check_with(
        speaking(),
        "600 onset 500
            hold
            < held i2
        680 started 300
            open i3
        960 paused
            transcribe provisionally i3
        1400 stopped 900
            close i3
        1599 tick
        1600 tick
            < released i2
            release
        2400 started 1700
            open i4
            < speech_started i3 300
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(TurnDetected)
            flush r1
            < speech_stopped i3 900
            < committed i3 after i2
            < item_added i3
            < item_done i3 Completed
            < speech_started i4 1700
        2500 heard i3 uh huh
            < transcript i3 \"uh huh\"",
    );
}

#[test]
fn a_pause_does_not_make_speech_without_words_begin_again() {
    check_with(
        speaking(),
        "600 onset 500
            hold
            < held i2
        680 started 300
            open i3
        1100 paused
            transcribe provisionally i3
        1120 provisional i3
            < released i2
            release
        1200 resumed
        1200 onset 1100
            hold
            < held i2
        1449 tick
        1450 tick
            transcribe partially i3
        1699 tick
        1700 tick
            < speech_started i3 300
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(TurnDetected)
            flush r1
            release",
    );
}

#[test]
fn a_response_that_waits_for_words_begins_after_a_backchannel_too() {
    let mut runner = speaking();
    for line in ["110 finished r1", "600 onset 500", "680 started 300", "1400 stopped 900"] {
        runner.run(line);
    }
    assert_eq!(runner.run("1405 respond"), ["< response_created r2"]);
    let actions = runner.run("1410 heard i3 uh huh");
    assert!(actions.iter().any(|action| action.starts_with("start r2")), "{actions:?}");
}

#[test]
fn an_echo_that_the_client_has_deleted_is_deleted_once() {
    let mut runner = speaking();
    runner.detect(AUTO);
    for line in ["600 onset 500", "680 started 300", "1400 stopped 900"] {
        runner.run(line);
    }
    assert_eq!(runner.run("1405 delete i3"), ["< item_deleted i3"]);
    let actions = runner.run("1410 heard i3 one two three");
    assert!(!actions.iter().any(|action| action.starts_with("< item_deleted")), "{actions:?}");
}

/// Runs the lines but the last one; the actions of that one.
fn last_of(mut runner: Runner, lines: &[&str]) -> Vec<String> {
    let (last, before) = lines.split_last().expect("there are lines");
    for line in before {
        runner.run(line);
    }
    runner.run(last)
}

#[track_caller]
fn check_stops(actions: &[String], stops: bool) {
    assert_eq!(actions.iter().any(|action| action.starts_with("stop ")), stops, "{actions:?}");
}

const SPEECH: [&str; 2] = ["600 onset 500", "680 started 300"];

#[test]
fn a_guess_of_the_recognizer_stops_nothing_until_there_are_better_words() {
    let mut runner = speaking();
    for line in SPEECH {
        runner.run(line);
    }
    for (line, stops) in
        [("800 unsure i3 no", false), ("1000 unsure i3 and then he left", false), ("1200 sure i3 no wait", true)]
    {
        check_stops(&runner.run(line), stops);
    }
}

#[test]
fn brief_speech_whose_words_are_guesses_lets_the_reply_go_on_and_longer_speech_stops_it() {
    let guess = |pause: &'static str| [SPEECH[0], SPEECH[1], pause, "1590 provisional_unsure i3 mo"];
    let after = |pause: &'static str, then: &'static str| {
        let mut lines = guess(pause).to_vec();
        assert_eq!(last_of(speaking(), &lines), [""; 0], "more may follow");
        lines.push(then);
        last_of(speaking(), &lines)
    };
    assert_eq!(after("1000 paused", "1600 tick"), ["< released i2", "release"]);
    let long =
        [SPEECH[0], SPEECH[1], "1590 sure i3 oh", "1650 paused", "1700 provisional_unsure i3 oh mo", "1950 tick"];
    check_stops(&last_of(speaking(), &long[..5]), false);
    check_stops(&last_of(speaking(), &long), true);
    let mut heard = guess("1100 paused").to_vec();
    heard.extend(["1595 stopped 1000", "1599 heard_unsure i3 mo"]);
    let goes_on = ["< released i2", "release", "< backchannel \"mo\" 300 1000"];
    assert_eq!(last_of(speaking(), &heard), goes_on);
}

#[test]
fn guesses_are_brief_only_where_all_of_the_voice_was() {
    // The reply goes on over agreement, and the speaker says more.
    let agreement = [SPEECH[0], SPEECH[1], "900 partial i3 yeah yeah", "1750 tick", "2000 tick"];
    let mut more = agreement.to_vec();
    more.extend(["3000 paused", "3400 stopped 3000", "3450 heard_unsure i3 yeah yeah just give me the price"]);
    check_stops(&last_of(speaking_for_long(), &more), true);
    // The audio ends without a pause before it.
    let stalled = [SPEECH[0], SPEECH[1], "1700 stopped 1600", "1750 heard_unsure i3 give me the price"];
    check_stops(&last_of(speaking_for_long(), &stalled), true);
}

#[test]
fn guesses_wait_again_once_the_speaker_goes_on() {
    let mut lines = vec![SPEECH[0], SPEECH[1], "1000 paused", "1050 provisional_unsure i3 hi", "1200 resumed"];
    lines.extend(["1200 onset 1100", "1300 overlap i3 0.5"]);
    check_stops(&last_of(speaking(), &lines), false);
}

#[test]
fn a_later_hold_of_the_same_speech_has_its_own_time() {
    let mut runner = speaking_for_long();
    for line in [SPEECH[0], SPEECH[1], "900 paused", "1400 stopped 820", "1450 started 1200", "1700 paused"] {
        runner.run(line);
    }
    for line in ["1710 provisional i4", "3000 resumed", "3000 onset 2900"] {
        runner.run(line);
    }
    check_stops(&runner.run("3050 tick"), false);
    check_stops(&runner.run("4100 tick"), true);
}

/// As [`speaking`], with a sentence of 9 s.
fn speaking_for_long() -> Runner {
    let mut runner = speaking();
    for line in ["110 text r1 Five six.", "110 made r1 9000", "120 sent i2 9000"] {
        runner.run(line);
    }
    runner
}

#[test]
fn a_microphone_that_stops_sending_lets_the_reply_go_on_and_late_words_still_stop_it() {
    let mut lines = vec![SPEECH[0], SPEECH[1], "1350 tick 800", "1600 tick 800"];
    assert_eq!(last_of(speaking(), &lines), ["< released i2", "release"]);
    let mut late_stop = lines.clone();
    late_stop.push("1900 partial i3 stop");
    check_stops(&last_of(speaking(), &late_stop), true);
    // Words that decide nothing hold it again, since the voice still sounds.
    lines.push("1700 partial i3 another");
    assert_eq!(last_of(speaking(), &lines), ["hold", "< held i2"]);
    lines.extend(["2800 tick 1900", "3100 tick 2300"]);
    check_stops(&last_of(speaking(), &lines), true);
    let jitter = [SPEECH[0], SPEECH[1], "1350 tick 1200", "1600 tick 1300"];
    check_stops(&last_of(speaking(), &jitter), true);
}

#[test]
fn late_words_of_one_backchannel_do_not_end_the_hold_for_the_next_one() {
    let mut runner = speaking();
    for line in [SPEECH[0], SPEECH[1], "900 paused", "1600 tick", "1610 stopped 820", "1700 onset 1600"] {
        runner.run(line);
    }
    assert_eq!(runner.run("1720 heard i3 mhm"), ["< backchannel \"mhm\" 300 820"]);
    runner.run("1780 started 1400");
    assert_eq!(runner.run("2000 paused"), ["transcribe provisionally i4"]);
    assert_eq!(runner.run("2010 provisional i4 mhm"), ["< released i2", "release"]);
}

#[test]
fn a_click_does_not_end_the_hold_for_speech_whose_words_are_awaited() {
    let mut runner = speaking();
    for line in [SPEECH[0], SPEECH[1], "900 paused", "1300 stopped 820", "1350 onset 1300"] {
        runner.run(line);
    }
    assert_eq!(runner.run("1450 retracted"), [""; 0]);
    check_stops(&runner.run("1500 heard i3 stop"), true);
    let own_hold =
        [SPEECH[0], SPEECH[1], "900 paused", "1600 tick", "1610 stopped 820", "1700 onset 1600", "1800 retracted"];
    assert_eq!(last_of(speaking(), &own_hold), ["< released i2", "release"]);
}

#[test]
fn each_backchannel_has_its_own_time() {
    let mut runner = speaking();
    for line in [SPEECH[0], SPEECH[1], "900 paused", "1400 stopped 820", "1450 started 1200"] {
        runner.run(line);
    }
    check_stops(&runner.run("1600 tick"), false);
    check_stops(&runner.run("2200 tick"), false);
    check_stops(&runner.run("2450 tick"), true);
}

#[test]
fn words_that_come_once_the_speaker_goes_on_are_not_all() {
    let mut runner = speaking();
    for line in [SPEECH[0], SPEECH[1], "900 paused", "990 resumed"] {
        runner.run(line);
    }
    assert_eq!(runner.run("1000 provisional i3 i"), [""; 0]);
    assert_eq!(runner.run("1010 provisional i3 right"), [""; 0]);
    check_stops(&runner.run("1100 partial i3 right but"), true);
}

#[test]
fn a_reply_whose_voice_is_behind_is_held_and_weighs_words_too() {
    let mut runner = Runner::new(PlaybackControl::Server, Some(PATIENT));
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 tell me", "30 text r1 One two.", "30 made r1 400"] {
        runner.run(line);
    }
    runner.run("100 sent i2 400");
    assert_eq!(runner.run("600 onset 500"), ["hold", "< held i2"]);
    runner.run("650 made r1 1000");
    runner.run("660 sent i2 1000");
    runner.run("680 started 300");
    runner.run("900 paused");
    assert_eq!(runner.run("990 provisional i3 mhm"), ["< released i2", "release"]);
    assert!(runner.run("5000 history")[0].ends_with("assistant: One two."));
}

#[test]
fn a_client_that_received_a_hold_receives_its_end_though_all_was_heard_meanwhile() {
    for listener in [PlaybackControl::Server, PlaybackControl::Client] {
        let mut runner = Runner::new(listener, Some(AUTO));
        for line in ["0 started 0", "10 stopped 10", "20 heard i1 tell me", "30 text r1 One two.", "30 made r1 1000"] {
            runner.run(line);
        }
        for line in ["100 sent i2 1000", "110 finished r1", "1050 onset 1000", "1060 played i2 1000"] {
            runner.run(line);
        }
        let actions = runner.run("1140 started 700");
        assert!(actions.iter().any(|action| action == "flush r1"), "{actions:?}");
    }
}
