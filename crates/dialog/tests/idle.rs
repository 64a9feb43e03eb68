//! A user who says nothing after a reply (`idle_timeout_ms`), and a conversation that outgrows the model's memory.

use super::script::{AUTO, Runner, check_with};
use antiphon_dialog::{PlaybackControl, TurnDetection};
use std::time::Duration;

fn idle_after(seconds: u64) -> TurnDetection {
    TurnDetection { idle_timeout: Some(Duration::from_secs(seconds)), ..AUTO }
}

fn runner() -> Runner {
    Runner::new(PlaybackControl::Client, Some(idle_after(5)))
}

/// One answered turn; its 2 s of audio began to sound at 100.
fn answered() -> Runner {
    let mut runner = runner();
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 tell me", "30 text r1 One.", "40 made r1 2000"] {
        runner.run(line);
    }
    runner.run("100 sent i2 2000");
    assert_eq!(runner.dialog.next_deadline(), None, "the response is under way");
    runner.run("110 finished r1");
    runner
}

fn deadline_ms(runner: &Runner) -> Option<u128> {
    runner.dialog.next_deadline().map(|at| at.since_start().as_millis())
}

#[test]
fn the_user_is_spoken_to_after_the_reply_has_sounded_and_the_time_is_over() {
    let runner = answered();
    assert_eq!(deadline_ms(&runner), Some(2_100 + 5_000));
    check_with(
        runner,
        "7099 tick 6900
        7100 tick 7000
            < idle i3 2000 7000
            < committed i3 after i2
            < item_added i3
            < item_done i3 Completed
            < transcript i3 \"\"
            < response_created r2
            start r2 turn_2
        7200 history
            user: tell me | assistant: One.",
    );
}

#[test]
fn a_client_that_sent_no_audio_sent_no_silence() {
    let mut runner = answered();
    assert_eq!(runner.run("7100 tick 300")[0], "< idle i3 0 300");
}

#[test]
fn an_absent_user_is_not_prompted() {
    let mut runner = answered();
    runner.run("3000 away");
    assert_eq!(deadline_ms(&runner), None);
    assert_eq!(runner.run("7100 tick 0"), Vec::<String>::new());
    runner.run("60000 back");
    assert_eq!(deadline_ms(&runner), Some(65_000), "the timeout restarts");
}

#[test]
fn a_user_whose_line_is_on_hold_is_not_prompted() {
    let mut runner = answered();
    runner.run("3000 line_held");
    assert_eq!(deadline_ms(&runner), None);
    assert_eq!(runner.run("7100 tick 0"), Vec::<String>::new());
    runner.run("8000 away");
    runner.run("9000 back");
    assert_eq!(deadline_ms(&runner), None, "it is still on hold");
    runner.run("60000 line_resumed");
    assert_eq!(deadline_ms(&runner), Some(65_000), "the timeout restarts");
}

#[test]
fn words_end_the_waiting_and_a_noise_restarts_it() {
    let mut runner = answered();
    runner.run("3000 started 2900");
    assert_eq!(deadline_ms(&runner), None, "while something is heard");
    runner.run("3400 stopped 3300");
    runner.run("3500 heard i3 ");
    assert_eq!(deadline_ms(&runner), Some(8_400));
    runner.run("4000 started 3900");
    runner.run("4400 stopped 4300");
    runner.run("4500 heard i4 and then");
    runner.run("4600 broke r2 no model");
    assert_eq!(deadline_ms(&runner), Some(9_600), "from the end of the failed answer");
}

#[test]
fn the_reply_to_silence_is_followed_by_another_wait() {
    let mut runner = answered();
    runner.run("7100 tick 7000");
    assert_eq!(deadline_ms(&runner), None);
    runner.run("7200 finished r2");
    assert_eq!(deadline_ms(&runner), Some(12_200));
}

#[test]
fn a_user_who_waits_for_a_tool_of_the_client_is_not_prompted() {
    let mut runner = runner();
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 what time is it", "30 call r1 0 time {}"] {
        runner.run(line);
    }
    runner.run("40 finished r1");
    assert_eq!(deadline_ms(&runner), Some(40 + 5_000 + 60_000), "some calls only show something");
    assert_eq!(runner.run("9000 tick 9000"), [""; 0]);
    runner.run("9010 result call_0 noon");
    assert_eq!(deadline_ms(&runner), Some(9_010 + 5_000), "the client has as long to ask for the reply");
    for line in ["9020 respond", "9030 text r2 Noon.", "9040 made r2 1000", "9050 sent i4 1000", "9060 finished r2"] {
        runner.run(line);
    }
    assert_eq!(deadline_ms(&runner), Some(10_050 + 5_000), "from the end of the reply");
}

#[test]
fn nothing_is_waited_for_before_the_first_reply_or_without_the_setting() {
    assert_eq!(deadline_ms(&runner()), None);
    let mut plain = Runner::new(PlaybackControl::Client, Some(AUTO));
    for line in ["0 started 0", "10 stopped 10", "20 heard i1 tell me", "30 finished r1"] {
        plain.run(line);
    }
    assert_eq!(deadline_ms(&plain), None);
}

#[test]
fn silence_before_the_timeout_was_set_does_not_count() {
    let mut runner = answered();
    runner.set_detection("2500", None);
    assert_eq!(deadline_ms(&runner), None, "without turn detection");
    runner.set_detection("60000", Some(idle_after(5)));
    assert_eq!(deadline_ms(&runner), Some(65_000));
    runner.set_detection("62000", Some(idle_after(5)));
    assert_eq!(deadline_ms(&runner), Some(65_000), "the same once more changes nothing");
    runner.set_detection("63000", Some(AUTO));
    runner.set_detection("64000", Some(idle_after(10)));
    assert_eq!(deadline_ms(&runner), Some(74_000));
    runner.set_detection("73000", Some(idle_after(6)));
    assert_eq!(deadline_ms(&runner), Some(79_000), "a shorter one begins again");
}

#[test]
fn a_reply_that_sounds_while_the_timeout_is_set_is_heard_to_its_end() {
    let mut runner = answered();
    runner.set_detection("200", None);
    runner.set_detection("300", Some(idle_after(5)));
    assert_eq!(deadline_ms(&runner), Some(2_100 + 5_000));
}
