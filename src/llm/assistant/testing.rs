//! What the fields' tests share: a fixed clock, dice that always fall on their lowest side, and the check itself.

use super::{Assistant, Message};
use jiff::Zoned;
use jiff::civil::date;
use jiff::tz::TimeZone;
use std::sync::Arc;

/// Wednesday, March 11, 2026, 15:07 UTC.
pub(super) fn now() -> Zoned {
    date(2026, 3, 11).at(15, 7, 0, 0).to_zoned(TimeZone::UTC).expect("a time that exists")
}

pub(super) fn assistant() -> Assistant {
    Assistant { dice: Arc::new(|_| 0), ..Assistant::with_clock(now) }
}

/// Questions, each in a fresh conversation, and a part of the answer to each.
pub(super) fn check_all(table: &[(&str, &str)]) {
    let wrong: Vec<_> = table.iter().filter_map(|row| mismatch(&[*row])).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Questions of one conversation.
pub(super) fn check_dialogue(dialogue: &[(&str, &str)]) {
    assert_eq!(mismatch(dialogue), None);
}

/// The first answer of a conversation that lacks what it should contain; `a | b` is either.
pub(super) fn mismatch(dialogue: &[(&str, &str)]) -> Option<String> {
    let mut messages = Vec::new();
    for (question, expected) in dialogue {
        messages.push(Message::User((*question).to_owned()));
        let text = assistant().answer(&messages);
        if !expected.split(" | ").any(|choice| text.contains(choice)) {
            return Some(format!("{question}\n  answered: {text}\n  expected: {expected}"));
        }
        messages.push(Message::Assistant { text, tool_calls: vec![] });
    }
    None
}

#[test]
fn explore() {
    let Ok(text) = std::fs::read_to_string("/tmp/ask.txt") else { return };
    for block in text.split("\n\n") {
        let mut messages = Vec::new();
        for question in block.lines() {
            messages.push(Message::User(question.to_owned()));
            let text = assistant().answer(&messages);
            println!("{question}\n      {text}");
            messages.push(Message::Assistant { text, tool_calls: vec![] });
        }
    }
}
