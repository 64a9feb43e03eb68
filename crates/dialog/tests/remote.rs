//! Remote tools in the reducer: when calls run, what stops them, and who goes on afterwards.

use super::script::{AUTO, Runner, check_with};
use antiphon_dialog::{Action, Command, Event, Item, ItemKind, ItemPosition, ItemStatus, PlaybackControl, Settings};
use antiphon_types::mcp::{CallError, Consent, DeclaredServer, RemoteTool, Server};
use antiphon_types::{ItemId, Samples, Timestamp};
use serde_json::json;
use std::time::Duration;

/// A conversation whose session has declared a server with the tool `find`, listed, and asked for it once.
fn library() -> Runner {
    let mut runner = described("");
    for line in ["1 say where?", "2 respond", "3 call r1 0 find {}"] {
        runner.run(line);
    }
    runner
}

/// The same, not asked yet; what `find` does, in these words.
fn described(description: &str) -> Runner {
    declared(description, Consent::Never)
}

/// The same, whose calls run with this consent.
fn declared(description: &str, consent: Consent) -> Runner {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO));
    let server =
        Server { label: "l".into(), url: "http://h/".into(), authorization: None, headers: Default::default() };
    let declared = DeclaredServer { server, allowed: None, consent };
    runner.dialog = runner.dialog.with_follow_up_after(Some(Duration::from_millis(100)));
    let settings = Settings { servers: vec![declared], ..runner.dialog.settings().clone() };
    let update = Event::Client { event_id: None, command: Command::UpdateSettings(Box::new(settings)) };
    let actions = runner.step(Timestamp::ZERO, update);
    let item = actions.iter().find_map(|action| match action {
        Action::ListTools { item, .. } => Some(item.clone()),
        _ => None,
    });
    let tool = RemoteTool {
        name: "find".into(),
        description: description.into(),
        input_schema: json!({"type": "object"}).into(),
        annotations: None,
    };
    runner
        .dialog
        .step(Timestamp::ZERO, Event::ToolsListed { item: item.expect("it is listed"), result: Ok(vec![tool]) });
    runner
}

fn called(runner: &mut Runner, at_ms: u64, item: &ItemId, result: Result<String, CallError>) -> usize {
    runner.step(Timestamp::from_ms(at_ms), Event::RemoteCallEnded { item: item.clone(), result }).len()
}

/// The call runs.
fn running() -> (Runner, ItemId) {
    let mut runner = library();
    let finished = runner.run("4 finished r1");
    assert!(finished.last().is_some_and(|action| action == "call i2 find({})"), "{finished:?}");
    let item = runner.dialog.history().items().last().expect("the call").id.clone();
    (runner, item)
}

#[test]
fn a_call_runs_when_the_answer_that_makes_it_is_whole() {
    check_with(
        library(),
        "4 finished r1
            < r1 i2 RemoteArguments(\"{}\")
            < r1 i2 RemoteProgress(InProgress)
            call i2 find({})",
    );
    check_with(
        library(),
        "4 cancel
            stop r1
            < item_done i2 Incomplete
            < output_done r1 i2
            < response_done r1 Cancelled(ClientCancelled)
        5 history
            user: where?",
    );
}

#[test]
fn a_barge_in_stops_a_call_that_runs_and_its_result_is_dropped() {
    let (mut runner, item) = running();
    let stopped = runner.run("600 started 600");
    assert!(stopped.contains(&"stop i2".to_owned()), "{stopped:?}");
    assert!(stopped.contains(&"< response_done r1 Cancelled(TurnDetected)".to_owned()), "{stopped:?}");
    assert_eq!(called(&mut runner, 700, &item, Ok("late".into())), 0, "stale work is harmless");
    assert!(runner.history().contains("may have had its effect"), "the model knows: {}", runner.history());
    assert_eq!(runner.dialog.next_deadline(), None, "nothing goes on by itself");
}

#[test]
fn the_dialog_goes_on_by_itself_but_not_while_the_user_speaks() {
    let (mut runner, item) = running();
    assert!(called(&mut runner, 10, &item, Ok("shelf 7".into())) > 0);
    assert_eq!(runner.dialog.next_deadline(), Some(Timestamp::from_ms(110)));
    runner.run("50 started 50");
    assert_eq!(runner.dialog.next_deadline(), None);
    runner.run("300 stopped 300");
    let answered = runner.run("400 heard i3 on which shelf");
    assert!(answered.contains(&"start r2 turn_1".to_owned()), "{answered:?}");
    assert_eq!(runner.history(), "user: where? | assistant:  calls find | tool: shelf 7 | user: on which shelf");
    runner.run("500 finished r2");
    assert_eq!(runner.dialog.next_deadline(), None, "the turn's answer was the answer");
}

#[test]
fn the_dialog_does_not_go_on_by_itself_while_the_line_is_on_hold() {
    let (mut runner, item) = running();
    runner.run("5 line_held");
    assert!(called(&mut runner, 10, &item, Ok("shelf 7".into())) > 0);
    assert_eq!(runner.dialog.next_deadline(), None);
    assert_eq!(runner.run("200 tick"), Vec::<String>::new());
    runner.run("60000 line_resumed");
    assert!(runner.run("60000 tick").contains(&"start r2 turn_0".to_owned()));
}

#[test]
fn a_client_that_asks_for_the_answer_is_not_answered_twice() {
    let (mut runner, item) = running();
    called(&mut runner, 10, &item, Err(CallError::Tool("no such book".into())));
    runner.run("20 respond");
    runner.run("30 finished r2");
    assert_eq!(runner.dialog.next_deadline(), None);
    let (mut runner, item) = running();
    called(&mut runner, 10, &item, Err(CallError::Tool("no such book".into())));
    assert!(runner.history().ends_with("tool: Error: no such book"), "{}", runner.history());
    assert!(runner.run("109 tick").is_empty());
    assert!(runner.run("110 tick").contains(&"start r2 turn_0".to_owned()));
}

#[test]
fn a_cancel_takes_the_answer_back_that_was_to_follow() {
    let (mut runner, item) = running();
    called(&mut runner, 10, &item, Ok("shelf 7".into()));
    let refused = runner.run("20 cancel nobody");
    assert_eq!(refused, ["< refused NoActiveResponse"], "that one is not under way");
    assert_eq!(runner.dialog.next_deadline(), Some(Timestamp::from_ms(110)), "and changes nothing");
    assert_eq!(runner.run("30 cancel"), Vec::<String>::new(), "there was something to cancel");
    assert_eq!(runner.dialog.next_deadline(), None);
    assert_eq!(runner.run("40 cancel"), ["< refused NoActiveResponse"]);
}

#[test]
fn the_tools_of_servers_take_their_part_of_the_budget() {
    let said = |description: &str| {
        let mut runner = described(description);
        runner.run("1 say first");
        for line in ["2 respond", "3 text r1 Yes.", "4 finished r1", "5 say second"] {
            runner.run(line);
        }
        runner.asked("6 respond")
    };
    assert!(said("short").contains("first"));
    assert!(!said(&"x".repeat(40_000)).contains("first"), "10000 tokens of tools leave room for the last turn only");
}

#[test]
fn an_approved_call_that_ends_after_another_answer_is_read_behind_that_answer() {
    let mut runner = declared("", Consent::Always);
    for line in ["1 say where?", "2 respond", "3 call r1 0 find {}", "4 finished r1"] {
        runner.run(line);
    }
    let request = runner.dialog.history().items().last().expect("the request for consent").id.clone();
    let kind = ItemKind::RemoteConsent { request, approve: true, reason: None };
    let item = Item { id: "".into(), status: ItemStatus::Completed, kind };
    let command = Command::CreateItem { item, place: ItemPosition::Last };
    let actions = runner.step(Timestamp::from_ms(5), Event::Client { event_id: None, command });
    let call = actions.iter().find_map(|action| match action {
        Action::CallRemote { item, .. } => Some(item.clone()),
        _ => None,
    });
    let call = call.expect("the call runs");
    let waits = "user: where? | assistant:  calls find | tool: The tool has not answered yet.";
    assert_eq!(runner.history(), waits);
    for line in ["10 say and when?", "11 respond", "12 text r2 Today."] {
        runner.run(line);
    }
    let spoken = runner.dialog.history().items().last().expect("the answer").id.clone();
    for event in [
        Event::AudioGenerated {
            response: runner.dialog.active().expect("r2").clone(),
            n: Samples(24_000),
            quiet: Samples::ZERO,
        },
        Event::AudioSent { item: spoken, n: Samples(24_000) },
    ] {
        runner.step(Timestamp::from_ms(13), event);
    }
    runner.run("14 finished r2");
    called(&mut runner, 5_000, &call, Ok("shelf 7".into()));
    assert_eq!(runner.history(), format!("{waits} | user: and when? | assistant: Today. calls find | tool: shelf 7"));
}

/// A session declares this server alone.
fn declare(runner: &mut Runner, label: &str) {
    let server =
        Server { label: label.into(), url: "http://h/".into(), authorization: None, headers: Default::default() };
    let declared = DeclaredServer { server, allowed: None, consent: Consent::Never };
    runner.set(Settings { servers: vec![declared], ..runner.dialog.settings().clone() });
}

#[test]
fn the_limits_of_a_conversation_hold_while_tools_are_listed() {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO)).without_snapshots();
    declare(&mut runner, "slow");
    let listing = runner.dialog.history().items()[0].id.clone();
    let large = "x".repeat(1_000 * 1_024);
    for at in 1..61 {
        runner.run(&format!("{at} say {large}"));
    }
    let items = runner.dialog.history().items();
    assert_eq!((&items[0].id, items[0].status, items.len()), (&listing, ItemStatus::InProgress, 5));
}

#[test]
fn servers_that_are_declared_again_and_again_keep_the_conversation_within_its_limits() {
    let mut runner = Runner::new(PlaybackControl::Client, Some(AUTO)).without_snapshots();
    for n in 0..4_200 {
        declare(&mut runner, &format!("l{n}"));
    }
    let items = runner.dialog.history().items();
    let in_progress = items.iter().filter(|item| item.status == ItemStatus::InProgress).count();
    assert_eq!((items.len(), in_progress), (4_096, 1));
}
