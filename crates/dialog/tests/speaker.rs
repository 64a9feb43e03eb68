//! One speaker: what another voice says does not interrupt and is no turn; what the user says is, as before.

use super::script::{AUTO, LOCKED, PATIENT, Runner, check_with};
use antiphon_dialog::{PlaybackControl, TurnDetection};
use std::time::Duration;

/// A locked conversation whose user is known, and a reply of 2 s to the first turn, sent at 100 ms.
fn speaking(listener: PlaybackControl, detection: TurnDetection) -> Runner {
    let mut runner = Runner::new(listener, Some(detection));
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 tell me", "25 enrolled"] {
        runner.run(line);
    }
    for line in ["30 text r1 One two.", "30 made r1 1000", "30 text r1 Three four.", "30 made r1 1000"] {
        runner.run(line);
    }
    runner.run("100 sent i2 2000");
    runner
}

/// The same once the reply is made; it is heard by 2,100 ms.
fn spoken(listener: PlaybackControl) -> Runner {
    let mut runner = speaking(listener, LOCKED);
    runner.run("110 finished r1");
    runner
}

#[test]
fn a_speaker_is_learnt_until_the_profile_is_complete_and_nobody_is_locked_out_before() {
    check_with(
        Runner::new(PlaybackControl::Server, Some(LOCKED)),
        "0 started 0
            open i1
            < speech_started i1 0
        900 compared i1 0.1
        1000 stopped 900
            close i1
            < speech_stopped i1 900
            < committed i1
            < item_added i1
            < item_done i1 Completed
        1010 heard i1 hello
            < transcript i1 \"hello\"
            learn i1
            < response_created r1
            start r1 turn_1",
    );
}

#[test]
fn another_speaker_holds_the_reply_until_the_voice_is_known_and_is_no_item() {
    check_with(
        speaking(PlaybackControl::Server, LOCKED),
        "600 onset 500
            hold
            < held i2
        680 started 300
            open i3
        900 partial i3 and now
        1300 compared i3 0.5
        1310 compared i3 0.2
            < released i2
            release
        1500 partial i3 and now stop
        1600 paused
        1700 resumed
        3000 stopped 2500
            close i3
            drop i3
            < ignored 0.2 300 2500
        3010 heard i3 and now stop
        9000 history
            user: tell me | assistant: One two. Three four.",
    );
}

#[test]
fn the_speaker_who_is_known_interrupts_as_soon_as_the_voice_is_recognized_and_is_learnt() {
    check_with(
        speaking(PlaybackControl::Server, LOCKED),
        "600 onset 500
            hold
            < held i2
        680 started 300
            open i3
        900 partial i3 what
        1100 partial i3 what is
        1300 compared i3 0.8
            < speech_started i3 300
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(TurnDetected)
            flush r1
            release
            < transcript_delta i3 \"what\"
        2000 stopped 1500
            close i3
            < speech_stopped i3 1500
            < committed i3 after i2
            < item_added i3
            < item_done i3 Completed
        2010 heard i3 what is that
            < transcript i3 \"what is that\"
            learn i3
            < response_created r2
            start r2 turn_2",
    );
}

#[test]
fn an_unknown_speaker_counts_as_the_user_at_the_end_of_a_hold_or_of_the_utterance() {
    let stops = "
            < speech_started i3 300
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(TurnDetected)
            flush r1
            release";
    let begins = "600 onset 500
            hold
            < held i2
        680 started 300
            open i3";
    let late = format!(
        "{begins}
        1999 tick
        2000 tick{stops}
        2010 compared i3 0.1"
    );
    check_with(speaking(PlaybackControl::Server, LOCKED), &late);
    let short = format!(
        "{begins}
        1300 stopped 700
            close i3{}
            < speech_stopped i3 700
            < committed i3 after i2
            < item_added i3
            < item_done i3 Completed
        1310 heard i3 stop
            < transcript i3 \"stop\"
            < response_created r2
            start r2 turn_2",
        stops
    );
    // The turn begins before its utterance is closed.
    let short = short.replace(&format!("close i3{stops}"), &format!("{}\n close i3", stops.trim_start()));
    check_with(speaking(PlaybackControl::Server, LOCKED), &short);
}

#[test]
fn another_speaker_in_silence_is_no_turn_and_delays_no_answer() {
    check_with(
        spoken(PlaybackControl::Server),
        "5000 started 4000
            open i3
        5500 compared i3 0.9
            < speech_started i3 4000
        6000 stopped 5500
            close i3
            < speech_stopped i3 5500
            < committed i3 after i2
            < item_added i3
            < item_done i3 Completed
        6010 started 5900
            open i4
        6300 heard i3 and then
            < transcript i3 \"and then\"
            learn i3
        6800 compared i4 0.1
            < response_created r2
            start r2 turn_2
        9000 stopped 8500
            close i4
            drop i4
            < ignored 0.1 5900 8500",
    );
}

#[test]
fn the_words_of_another_speaker_are_not_asked_for_at_a_pause() {
    let mut runner = spoken(PlaybackControl::Server).speculating(3, 0.5);
    for line in ["5000 started 4000", "5800 compared i3 0.1"] {
        runner.run(line);
    }
    assert_eq!(runner.run("6000 paused"), [""; 0]);
    for line in ["6100 resumed", "8000 stopped 7500", "9000 started 8900", "9500 compared i4 0.9"] {
        runner.run(line);
    }
    assert_eq!(runner.run("9800 paused"), ["transcribe provisionally i4"], "the user's are");
}

#[test]
fn another_speaker_keeps_no_filler_back() {
    let mut runner = Runner::new(PlaybackControl::Server, Some(LOCKED));
    runner.fill_after(Duration::from_secs(1));
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 tell me", "25 enrolled", "100 started 50"] {
        runner.run(line);
    }
    assert_eq!(runner.run("1020 tick"), [""; 0], "it may be the user");
    runner.run("1200 compared i2 0.1");
    assert_eq!(runner.run("1210 tick"), ["filler r1"]);
    assert_eq!(runner.run("1250 fills r1 One moment.")[0], "< output_added r1 i3");
}

#[test]
fn another_speaker_becomes_the_user_when_the_voice_clearly_does() {
    check_with(
        spoken(PlaybackControl::Client),
        "5000 started 4000
            open i3
        5200 partial i3 sunshine
        5300 partial i3 sunshine stop
        5500 compared i3 0.3
        5800 compared i3 0.65
        6000 compared i3 0.75
            < speech_started i3 4000
        7000 stopped 6500
            close i3
            < speech_stopped i3 6500
            < committed i3 after i2
            < item_added i3
            < item_done i3 Completed
            < transcript_delta i3 \"sunshine\"",
    );
}

#[test]
fn the_speakers_words_count_where_backchannels_are_ignored() {
    check_with(
        speaking(PlaybackControl::Server, TurnDetection { speaker_lock: true, ..PATIENT }),
        "600 onset 500
            hold
            < held i2
        680 started 300
            open i3
        900 partial i3 stop
        1000 partial i3 stop now
        1300 compared i3 0.8
            < speech_started i3 300
            stop r1
            < r1 i2 PartDone { audio: true, text: \"One two. Three four. \" }
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(TurnDetected)
            flush r1
            release
            < transcript_delta i3 \"stop\"",
    );
}

#[test]
fn a_speaker_whose_last_words_interrupt_is_learnt() {
    let learns = |compared: &str| {
        let detection = TurnDetection { speaker_lock: true, ..PATIENT };
        let mut runner = speaking(PlaybackControl::Server, detection);
        for line in ["600 onset 500", "680 started 300", compared, "1400 stopped 1000"] {
            runner.run(line);
        }
        let actions = runner.run("1450 heard i3 stop");
        assert!(actions.iter().any(|action| action == "stop r1"), "{actions:?}");
        actions.iter().any(|action| action == "learn i3")
    };
    assert!(learns("1300 compared i3 0.8"));
    assert!(!learns("1300 compared i3 0.5"), "a voice that is not known");
}

#[test]
fn a_speaker_is_forgotten_where_the_lock_is_off_for_a_moment() {
    let mut runner = spoken(PlaybackControl::Server);
    runner.detect(AUTO);
    runner.detect(LOCKED);
    check_with(
        runner,
        "5000 started 4000
            open i3
            < speech_started i3 4000",
    );
    let mut moved = spoken(PlaybackControl::Server);
    moved.dialog = moved.dialog.clone().without_speaker();
    check_with(
        moved,
        "5000 started 4000
            open i3
            < speech_started i3 4000",
    );
}
