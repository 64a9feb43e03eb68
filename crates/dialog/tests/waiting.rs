//! What a response waits for before its work starts, and what it does not.

use super::script::{AUTO, Runner, check_with};
use antiphon_dialog::{
    Action, Command, Content, Event, Item, ItemKind, ItemPosition, ItemStatus, Notice, PlaybackControl, Refusal, Role,
};
use antiphon_types::{Samples, Timestamp};

/// The user has spoken, and the words are not known yet.
fn unheard() -> Runner {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    runner.run("0 started 0");
    runner.run("900 stopped 800");
    runner
}

#[test]
fn a_response_with_its_own_input_does_not_wait_for_other_transcripts() {
    check_with(
        unheard(),
        "901 aside translate this
            < response_created r1
            start r1 turn_1
        950 heard i1 tell me
            < transcript i1 \"tell me\"
            < response_created r2
            start r2 turn_1",
    );
}

#[test]
fn a_turn_whose_line_is_on_hold_is_answered_afterwards() {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    for line in ["0 started 0", "400 line_held", "900 stopped 800"] {
        runner.run(line);
    }
    check_with(
        runner,
        "950 heard i1 tell me
            < transcript i1 \"tell me\"
        60000 line_resumed
            < response_created r1
            start r1 turn_1",
    );
}

#[test]
fn a_response_that_is_asked_for_on_hold_is_spoken_afterwards() {
    let mut runner = Runner::new(PlaybackControl::Server, Some(AUTO));
    runner.run("0 line_held");
    check_with(
        runner,
        "100 respond
            < response_created r1
        200 respond
            < refused: r1 is active
        60000 line_resumed
            start r1 turn_0",
    );
}

#[test]
fn sound_beside_the_conversation_waits_for_the_line_too() {
    let mut runner = Runner::new(PlaybackControl::Server, Some(AUTO));
    runner.run("0 line_held");
    check_with(
        runner,
        "100 aside say this
            < response_created r1
        60000 line_resumed
            start r1 turn_0",
    );
}

#[test]
fn a_response_that_reads_the_conversation_waits_for_its_words() {
    check_with(
        unheard(),
        "901 respond
            < response_created r1
        950 heard i1 tell me
            < transcript i1 \"tell me\"
            start r1 turn_1",
    );
}

/// The client adds an item of this id whose audio is to be transcribed.
fn spoken(id: &str) -> Event {
    let content = vec![Content::InputAudio { transcript: None }];
    let kind = ItemKind::Message { role: Role::User, content };
    let item = Item { id: id.into(), status: ItemStatus::Completed, kind };
    let command = Command::CreateSpokenItem { item, place: ItemPosition::Last, length: Samples(16_000) };
    Event::Client { event_id: None, command }
}

#[test]
fn the_id_of_a_deleted_item_is_in_use_until_its_transcript_has_come() {
    let mut runner = Runner::new(PlaybackControl::Client, None);
    runner.step(Timestamp::from_ms(0), spoken("note"));
    runner.run("10 delete note");
    let refused = runner.step(Timestamp::from_ms(20), spoken("note"));
    let reason = Refusal::DuplicateItem("note".into());
    assert_eq!(refused, [Action::Notify(Notice::Refused { event_id: None, reason })]);
    check_with(
        runner,
        "30 respond
            < response_created r1
        40 heard note tell me
            < transcript i1 \"tell me\"
            start r1 turn_0",
    );
}

#[test]
fn the_id_of_an_utterance_is_in_use_before_it_is_an_item() {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    let started = runner.step(Timestamp::from_ms(0), Event::SpeechStarted { audio_start: Samples::ZERO });
    let Some(Action::OpenUtterance { item, .. }) = started.first() else { panic!("{started:?}") };
    let refused = runner.step(Timestamp::from_ms(10), spoken(item.as_str()));
    let reason = Refusal::DuplicateItem(item.clone());
    assert_eq!(refused, [Action::Notify(Notice::Refused { event_id: None, reason })]);
}
