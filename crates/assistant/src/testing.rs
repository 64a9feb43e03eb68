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

/// The table of questions, a line each.
#[test]
fn the_table_of_questions_is_answered() {
    let mut conversations: Vec<Vec<(&str, &str)>> = Vec::new();
    let lines = include_str!("questions.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let row = line.trim_start_matches("+ ").split_once(" => ").expect("question => answer");
        match conversations.last_mut().filter(|_| line.starts_with('+')) {
            Some(conversation) => conversation.push(row),
            None => conversations.push(vec![row]),
        }
    }
    assert!(conversations.iter().map(Vec::len).sum::<usize>() >= 150);
    let wrong: Vec<_> = conversations.iter().filter_map(|conversation| mismatch(conversation)).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..Default::default()
    })]

    /// Whatever is heard, in whatever order, there is an answer and never a panic.
    #[test]
    fn any_words_get_an_answer(picks in proptest::collection::vec(0usize..4_000, 1..14), tail in "\\PC{0,12}") {
        let table = include_str!("questions.txt");
        let words: Vec<&str> = table.split_whitespace().skip(80).filter(|word| !matches!(*word, "=>" | "+")).collect();
        let said: Vec<&str> = picks.iter().map(|pick| words[pick % words.len()]).collect();
        let text = format!("{} {tail}", said.join(" "));
        let earlier = Message::User(said.iter().rev().copied().collect::<Vec<_>>().join(" "));
        let answered = Message::Assistant { text: "2 plus 2 is 4.".into(), tool_calls: vec![] };
        proptest::prop_assert!(!assistant().answer(&[earlier, answered, Message::User(text)]).is_empty());
    }
}
