//! A turn driven event by event, at exact times.

use super::*;
use crate::load::Clip;
use antiphon_client::ResponseInfo;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A turn with a clip that is loud from sample 480 to 960; its last loud sample is spoken 100 ms after `start`.
fn asked(start: Instant, paced: bool, over: Option<Turn>) -> Turn {
    let mut turn = Turn::new(0, start + ms(10_000), paced, over);
    turn.said(480, (480, 960), start + ms(60));
    turn.said(960, (480, 960), start + ms(80));
    turn.said(1_440, (480, 960), start + ms(100));
    turn
}

fn response(turn: &mut Turn, id: &str, at: Instant) {
    let response = ResponseInfo { id: id.into(), ..ResponseInfo::default() };
    turn.event(Event::ResponseCreated { response }, at);
}

fn done(turn: &mut Turn, id: &str, status: &str, at: Instant) {
    let response = ResponseInfo { id: id.into(), status: status.into(), ..ResponseInfo::default() };
    turn.event(Event::ResponseDone { response }, at);
}

fn started() -> Event {
    Event::SpeechStarted { item_id: "i2".into(), audio_start_ms: 0 }
}

fn record(turn: &Turn, start: Instant) -> TurnRecord {
    let clips = Clips::kept(vec![Clip::new("x", Sign::Unknown, vec![9, -9, 9]).unwrap()]).unwrap();
    turn.record(&clips, 3, 1, start)
}

#[test]
fn a_wait_runs_from_the_last_loud_sample_to_the_first_audible_one() {
    let start = Instant::now();
    let mut turn = asked(start, false, None);
    response(&mut turn, "r1", start + ms(320));
    turn.audio("a", &[0; 480], start + ms(340));
    turn.audio("a", &[900; 480], start + ms(341));
    let record = record(&turn, start);
    assert_eq!((record.at, record.wait, record.silence), (ms(100), Some(ms(260)), None));
    assert_eq!((record.session, record.turn, record.trouble), (3, 1, None));
}

#[test]
fn a_later_response_answers_more_of_the_question() {
    let start = Instant::now();
    let mut turn = Turn::new(0, start + ms(10_000), false, None);
    response(&mut turn, "r1", start + ms(10));
    turn.audio("a", &[900; 480], start + ms(20));
    turn.said(1_440, (480, 960), start + ms(100));
    assert_eq!(record(&turn, start).trouble.as_deref(), Some("it was answered before the question was over"));
    response(&mut turn, "r2", start + ms(300));
    done(&mut turn, "r1", "completed", start + ms(301));
    assert!(!turn.is_over(start + ms(9_000)), "the end of an earlier response is not the turn's");
    turn.audio("b", &[900; 480], start + ms(310));
    done(&mut turn, "r2", "completed", start + ms(311));
    assert!(!turn.is_over(start + ms(329)) && turn.is_over(start + ms(330)), "it is heard to its end");
    assert_eq!(record(&turn, start).wait, Some(ms(210)));
}

#[test]
fn a_turn_waits_for_its_own_transcripts_only() {
    let start = Instant::now();
    let mut turn = asked(start, false, None);
    let transcript = |item_id: &str, transcript: &str| Event::TranscriptionCompleted {
        item_id: item_id.into(),
        transcript: transcript.into(),
    };
    turn.event(Event::Committed { item_id: "mine".into() }, start);
    turn.event(transcript("earlier", "of the turn before"), start);
    response(&mut turn, "r1", start);
    done(&mut turn, "r1", "completed", start);
    assert!(!turn.is_over(start + ms(1_999)) && turn.is_over(start + ms(2_000)), "servers may send none");
    turn.event(transcript("mine", "hello"), start);
    assert!(turn.is_over(start + ms(1)));
    assert_eq!(turn.transcripts, ["hello"]);
}

#[test]
fn without_binary_frames_playback_stops_when_speech_is_heard() {
    let start = Instant::now();
    let mut first = asked(start, false, None);
    response(&mut first, "r1", start + ms(200));
    first.audio("a", &[900; 24_000], start + ms(250));
    let later = start + ms(500);
    let mut turn = asked(later, false, Some(first));
    turn.audio("a", &[900; 480], later + ms(70));
    let report = turn.event(started(), later + ms(150)).expect("the playback position is reported to the server");
    assert_eq!((report["item_id"].as_str(), report["audio_end_ms"].as_u64()), (Some("a"), Some(400)));
    turn.audio("a", &[900; 480], later + ms(160));
    response(&mut turn, "r2", later + ms(300));
    turn.audio("b", &[900; 480], later + ms(310));
    let record = record(&turn, start);
    // The first loud sample is 60 ms into the clip, but it is recorded with the frame behind it, at 80 ms.
    assert_eq!((record.silence, record.n_after_silence), (Some(Some(ms(70))), 1));
    assert_eq!(record.wait, Some(ms(210)));
}

#[test]
fn with_binary_frames_silence_begins_with_the_hold_that_was_not_taken_back() {
    let start = Instant::now();
    let mut first = asked(start, true, None);
    response(&mut first, "r1", start + ms(200));
    first.audio("a", &[900; 48_000], start + ms(250));
    let later = start + ms(500);
    let mut turn = asked(later, true, Some(first));
    assert!(turn.event(started(), later + ms(100)).is_none());
    let item_id = String::from("a");
    turn.event(Event::Held { item_id: item_id.clone() }, later + ms(100));
    turn.event(Event::Resumed { item_id: item_id.clone() }, later + ms(120));
    turn.event(Event::Held { item_id }, later + ms(140));
    assert_eq!(record(&turn, start).silence, Some(None), "it may still go on");
    turn.event(Event::Cleared {}, later + ms(200));
    assert_eq!(record(&turn, start).silence, Some(Some(ms(60))));
}

#[test]
fn a_reply_that_had_ended_by_itself_was_not_interrupted() {
    let start = Instant::now();
    let mut first = asked(start, false, None);
    response(&mut first, "r1", start + ms(200));
    first.audio("a", &[900; 480], start + ms(250));
    let mut turn = asked(start + ms(500), false, Some(first));
    turn.event(started(), start + ms(700));
    assert_eq!(record(&turn, start).silence, None);
}

#[test]
fn failures_are_told_in_the_servers_words() {
    let start = Instant::now();
    let mut turn = asked(start, false, None);
    assert_eq!(record(&turn, start).trouble.as_deref(), Some("there was no answer"));
    let error = antiphon_client::Problem { code: None, message: Some("too much".into()) };
    turn.event(Event::Error { error }, start);
    assert_eq!(record(&turn, start).trouble.as_deref(), Some("the server said: too much"));
}

#[test]
fn the_frequency_of_a_tone_is_found_behind_its_quiet_beginning() {
    let at = |hz: f64| {
        (0..9_600).map(move |i| (8_000.0 * (std::f64::consts::TAU * hz * f64::from(i) / 24_000.0).sin()) as i16)
    };
    for hz in [220.0, 310.0, 1_470.0] {
        let samples: Vec<i16> = vec![0; 700].into_iter().chain(at(hz)).collect();
        let found = tone(&samples).expect("a tone");
        assert!((found - hz).abs() < 1.0, "{found} instead of {hz}");
    }
    assert_eq!((tone(&[0; 9_600]), tone(&[9_000; 100])), (None, None));
}

#[test]
fn a_turn_that_goes_back_keeps_what_was_spoken_and_forgets_what_was_received() {
    let start = Instant::now();
    let mut turn = asked(start, true, None);
    let checkpoint = turn.clone();
    response(&mut turn, "r1", start + ms(200));
    turn.audio("a", &[900; 480], start + ms(250));
    done(&mut turn, "r1", "completed", start + ms(260));
    turn.event(Event::AudioSent { item_id: "a".into() }, start + ms(270));
    turn.waited(ms(50), start + ms(900));
    assert!(!turn.is_over(start + ms(1_599)) && turn.is_over(start + ms(1_600)), "it is quiet since it is back");
    for at in [Some(&checkpoint), None] {
        let mut again = turn.back(at, start + ms(20_000), start + ms(1_000));
        assert!(!again.is_answered() && again.reply.samples().is_empty());
        response(&mut again, "r2", start + ms(1_100));
        again.audio("b", &[900; 480], start + ms(1_200));
        assert_eq!(record(&again, start).wait, Some(ms(1_100)));
    }
}

#[test]
fn a_late_worker_does_not_end_a_response() {
    let start = Instant::now();
    let mut turn = asked(start, true, None);
    response(&mut turn, "r1", start + ms(200));
    turn.audio("a", &[900; 480], start + ms(250));
    done(&mut turn, "r1", "completed", start + ms(260));
    assert!(!turn.is_over(start + ms(9_000)), "the item's audio is not complete");
    turn.audio("a", &[900; 480], start + ms(9_000));
    turn.event(Event::AudioSent { item_id: "a".into() }, start + ms(9_000));
    assert!(!turn.is_over(start + ms(9_699)) && turn.is_over(start + ms(9_700)), "another item may follow");
    assert_eq!(turn.reply.samples().len(), 960);
}
