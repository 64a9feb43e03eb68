//! What is recalled of conversations of every shape.

use super::*;
use crate::{Content, ItemPosition, ItemStatus};
use antiphon_types::Timestamp;
use antiphon_types::chat::Message;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn memory(budget: u64, keep: f64) -> Memory {
    Memory { budget, conversation: None, truncation: Truncation::Oldest { keep }, notes_interruptions: false }
}

/// Items from words: `u12` a user's message of 12 tokens, `a12` the assistant's, `s12` the system's, `c3` a call
/// named 3, `r3` its result.
fn history(script: &str) -> History {
    let mut history = History::default();
    for (n, word) in script.split_whitespace().enumerate() {
        let (kind, number) = word.split_at(1);
        let text = || "word".repeat(number.parse().unwrap());
        let message = |role, content| ItemKind::Message { role, content: vec![content] };
        let kind = match kind {
            "u" => message(Role::User, Content::InputText(text())),
            "a" => message(Role::Assistant, Content::OutputText(text())),
            "s" => message(Role::System, Content::InputText(text())),
            "c" => ItemKind::FunctionCall { call_id: number.into(), name: "f".into(), arguments: "{}".into() },
            _ => ItemKind::FunctionOutput { call_id: number.into(), output: "done".into() },
        };
        let item = Item { id: format!("i{n}").as_str().into(), status: ItemStatus::Completed, kind };
        history.insert(item, &ItemPosition::Last).unwrap();
    }
    history
}

fn ids(history: &mut History, memory: &Memory) -> String {
    history.forget(10, memory).unwrap();
    history.recalled().map(|item| item.id.as_str()).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(script: &str, budget: u64, keep: f64, expect: &str) {
    assert_eq!(ids(&mut history(script), &memory(budget, keep)), expect, "{script} in {budget}");
}

#[test]
fn all_is_recalled_while_it_fits() {
    check("u6 a6 u6 a6", 50, 1.0, "i0 i1 i2 i3");
}

#[test]
fn the_oldest_turns_go_first_and_whole() {
    check("u6 a6 u6 a6", 49, 1.0, "i2 i3");
    check("u6 c1 r1 a6 u6 c2 r2 a6 u6", 60, 1.0, "i4 i5 i6 i7 i8");
    check("a6 u6 a6 u6 u6", 50, 1.0, "i1 i2 i3 i4");
}

#[test]
fn the_system_and_the_last_turn_always_stay() {
    check("s6 u6 a6 s6 u6", 31, 1.0, "i0 i3 i4");
    check("u6 a6 u500 a6", 30, 1.0, "i2 i3");
}

#[test]
fn a_ratio_makes_room_for_more_than_one_turn() {
    let mut history = history("u6 a6 u6 a6 u6 a6 u6 a6 u6");
    let memory = memory(90, 0.5);
    assert_eq!(ids(&mut history, &memory), "i6 i7 i8");
    for n in 9..12 {
        let kind = ItemKind::Message { role: Role::Assistant, content: vec![Content::OutputText("word".repeat(6))] };
        let item = Item { id: format!("i{n}").as_str().into(), status: ItemStatus::Completed, kind };
        history.insert(item, &ItemPosition::Last).unwrap();
        assert!(ids(&mut history, &memory).starts_with("i6 "), "the beginning stays while there is room");
    }
}

#[test]
fn what_was_left_out_stays_out_and_a_deleted_beginning_does_no_harm() {
    let mut history = history("u6 a6 u6 a6");
    assert_eq!(ids(&mut history, &memory(49, 1.0)), "i2 i3");
    assert_eq!(ids(&mut history, &memory(500, 1.0)), "i2 i3");
    history.remove(&"i2".into(), Timestamp::ZERO);
    assert_eq!(ids(&mut history, &memory(49, 1.0)), "i0 i1 i3");
}

#[test]
fn disabled_fails_instead() {
    let memory = Memory { truncation: Truncation::Disabled, ..memory(49, 1.0) };
    assert!(history("u6 a6 u6 a6").forget(9, &memory).is_ok());
    let error = history("u6 a6 u6 a6").forget(10, &memory).unwrap_err();
    assert_eq!(error, TooLong { tokens: 40, room: 39 });
}

#[test]
fn a_client_may_ask_for_less_than_the_budget() {
    let memory = Memory { conversation: Some(25), ..memory(500, 1.0) };
    assert_eq!(ids(&mut history("u6 a6 u6 a6"), &memory), "i2 i3");
}

proptest! {
    /// Conversations of any order, calls without results and results without calls among them.
    #[test]
    fn the_recalled_fits_and_keeps_calls_and_results_together(
        words in prop::collection::vec(("[uasr]|c", 0..30u32), 1..40),
        budget in 10..400u64,
        keep in 0.0..=1.0f64,
    ) {
        let script: Vec<String> = words.iter().map(|(kind, n)| match kind.as_str() {
            "c" | "r" => format!("{kind}{}", n % 6),
            _ => format!("{kind}{n}"),
        }).collect();
        let mut history = history(&script.join(" "));
        let all: Vec<Item> = history.items().to_vec();
        history.forget(10, &memory(budget, keep)).unwrap();
        let kept: Vec<Item> = history.recalled().cloned().collect();

        let cost: u64 = kept.iter().map(|item| history.cost(item)).sum();
        let last_turn = turns(&all, 0).pop().unwrap();
        let least = all[last_turn].iter().chain(all.iter().filter(|item| is_system(item)));
        let least: BTreeSet<&str> = least.map(|item| item.id.as_str()).collect();
        let is_least = kept.iter().all(|item| least.contains(item.id.as_str()));
        prop_assert!(cost + 10 <= budget || is_least, "{cost} of {budget}: {kept:?}");
        let system = |items: &[Item]| items.iter().filter(|item| is_system(item)).count();
        prop_assert_eq!(system(&kept), system(&all));

        // As the model reads it, each call is followed by its result, and there is no other result.
        let messages = history.messages_of("Be kind.", kept.iter(), false);
        prop_assert_eq!(&messages[0], &Message::System("Be kind.".into()));
        let mut owed: Vec<&str> = Vec::new();
        for message in &messages {
            match message {
                Message::Tool { call_id, .. } => {
                    let at = owed.iter().position(|id| id == call_id);
                    prop_assert!(at.is_some(), "a result without its call: {:?}", messages);
                    owed.remove(at.unwrap());
                }
                _ => prop_assert!(owed.is_empty(), "a call without its result: {:?}", messages),
            }
            if let Message::Assistant { tool_calls, .. } = message {
                owed.extend(tool_calls.iter().map(|call| call.call_id.as_str()));
            }
        }
        prop_assert!(owed.is_empty());
    }
}
