//! The assistant against what people ask it: `questions.txt` and the fragments of its answers.

use antiphon_assistant::Assistant;
use antiphon_types::chat::Message;
use jiff::civil::date;
use jiff::tz::TimeZone;

/// Wednesday, March 11, 2026, 15:07 UTC; every random number is the lowest.
fn assistant() -> Assistant {
    let now = date(2026, 3, 11).at(15, 7, 0, 0).to_zoned(TimeZone::UTC).expect("a time that exists");
    Assistant::with_clock(move || now.clone()).with_dice(|_| 0)
}

/// The conversations of a file: lines of question and answer.
fn conversations(text: &str) -> Vec<Vec<(&str, &str)>> {
    let mut conversations: Vec<Vec<(&str, &str)>> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let row = line.trim_start_matches("+ ").split_once(" => ").expect("question => answer");
        match conversations.last_mut().filter(|_| line.starts_with('+')) {
            Some(conversation) => conversation.push(row),
            None => conversations.push(vec![row]),
        }
    }
    conversations
}

/// The first answer of a conversation that lacks what it should contain.
fn mismatch(conversation: &[(&str, &str)]) -> Option<String> {
    let mut messages = Vec::new();
    for (question, expected) in conversation {
        messages.push(Message::User((*question).to_owned()));
        let text = assistant().answer(&messages);
        if !text.contains(expected) {
            return Some(format!("{question}\n  answered: {text}\n  expected: {expected}"));
        }
        messages.push(Message::Assistant { text, tool_calls: vec![] });
    }
    None
}

#[test]
fn the_questions_are_answered() {
    let conversations = conversations(include_str!("questions.txt"));
    let n: usize = conversations.iter().map(Vec::len).sum();
    let wrong: Vec<_> = conversations.iter().filter_map(|conversation| mismatch(conversation)).collect();
    assert!(wrong.is_empty() && n >= 650, "{} of {n} lines wrong\n{}", wrong.len(), wrong.join("\n"));
}
