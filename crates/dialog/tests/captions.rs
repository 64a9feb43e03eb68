//! When a client gets the words of an utterance under way.

use super::script::{AUTO, Runner, check_with};
use antiphon_dialog::PlaybackControl;

#[test]
fn a_client_of_the_protocol_is_told_once_there_is_the_item() {
    check_with(
        Runner::new(PlaybackControl::Client, Some(AUTO)),
        "0 started 0
            open i1
            < speech_started i1 0
        500 partial i1 what
        600 partial i1 what time
        700 partial i1 what time is
        1000 stopped 1000
            close i1
            < speech_stopped i1 1000
            < committed i1
            < item_added i1
            < item_done i1 Completed
            < transcript_delta i1 \"what time\"
        1005 partial i1 what time is it
            < transcript_delta i1 \" is\"
        1010 heard i1 what time is it
            < transcript i1 \"what time is it\"
            < response_created r1
            start r1 turn_1",
    );
}

#[test]
fn live_captions_are_told_while_the_person_speaks() {
    let mut transcribing = Runner::new(PlaybackControl::Client, Some(AUTO));
    transcribing.caption_live();
    check_with(
        transcribing,
        "0 started 0
            open i1
            < speech_started i1 0
        500 partial i1 what
        700 partial i1 what time
            < transcript_delta i1 \"what\"
        1000 stopped 1000
            close i1
            < speech_stopped i1 1000
            < committed i1
            < item_added i1
            < item_done i1 Completed",
    );
}

#[test]
fn a_client_that_plays_frames_gets_drafts_too() {
    check_with(
        Runner::new(PlaybackControl::Server, Some(AUTO)),
        "0 started 0
            open i1
            < speech_started i1 0
        500 partial i1 what
            < transcript_draft i1 \"what\"
        700 partial i1 what time
            < transcript_delta i1 \"what\"
            < transcript_draft i1 \" time\"
        1000 stopped 1000
            close i1
            < speech_stopped i1 1000
            < committed i1
            < item_added i1
            < item_done i1 Completed",
    );
}

#[test]
fn words_that_the_recognizer_is_sure_of_are_sent_once_they_stood_for_some_time() {
    let mut transcribing = Runner::new(PlaybackControl::Client, Some(AUTO));
    transcribing.caption_live();
    check_with(
        transcribing,
        "0 started 0
            open i1
            < speech_started i1 0
        500 sure i1 what time
        700 sure i1 what time
        900 sure i1 what time
        1399 sure i1 what time
        1400 sure i1 what time
            < transcript_delta i1 \"what\"
        1500 stopped 1500
            close i1
            < speech_stopped i1 1500
            < committed i1
            < item_added i1
            < item_done i1 Completed",
    );
}
