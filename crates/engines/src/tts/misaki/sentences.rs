//! Where sentences of English text end, and with what mark. Pure; the reader calls it.

use crate::tts::phonemes::Mark;
use antiphon_text::dot_ends_sentence;

/// Marks that may follow the end of a sentence.
const CLOSING: &str = "\"”’)]'";

/// The sentences of a text. A session's text comes a sentence at a time; other texts may have several.
pub(super) fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = sentence_end(rest);
        let (sentence, behind) = rest.split_at(end);
        rest = behind.trim_start();
        Some(sentence.trim_end())
    })
}

/// Where the first sentence of a text ends: behind its mark and what closes it, before a blank and anything but a small letter; or
/// at an end of a line. The dot of a title ("Dr. Brown") or of initials ("J. K. Rowling", "the U.S. Army") ends none.
fn sentence_end(text: &str) -> usize {
    let mut word_start = 0;
    for (at, c) in text.char_indices() {
        if c == '\n' {
            return at;
        }
        if c.is_whitespace() {
            word_start = at + c.len_utf8();
        }
        if !".!?…".contains(c) {
            continue;
        }
        let behind = text[at + c.len_utf8()..].trim_start_matches(|c| CLOSING.contains(c));
        let next = behind.trim_start();
        if next.len() == behind.len() || next.starts_with(char::is_lowercase) {
            continue;
        }
        let word = &text[word_start..at];
        let before = text[..word_start].split_whitespace().next_back().unwrap_or_default();
        if c != '.' || !word.is_empty() && dot_ends_sentence(word, before, next) {
            return text.len() - behind.len();
        }
    }
    text.len()
}

/// The mark that a sentence ends with.
pub(super) fn last_mark(sentence: &str) -> Option<Mark> {
    match sentence.trim_end_matches(|c| CLOSING.contains(c)).chars().next_back()? {
        '.' => Some(Mark::Period),
        '!' => Some(Mark::Exclamation),
        '?' => Some(Mark::Question),
        '…' => Some(Mark::Ellipsis),
        ',' => Some(Mark::Comma),
        ';' => Some(Mark::Semicolon),
        ':' => Some(Mark::Colon),
        '—' | '–' => Some(Mark::Dash),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(sentences(text).collect::<Vec<_>>(), expected, "{text:?}");
    }

    #[test]
    fn titles_and_initials_end_no_sentence() {
        check("Mr. Smith met Mrs. Jones and Dr. Brown.", &["Mr. Smith met Mrs. Jones and Dr. Brown."]);
        check("The U.S. Army came. The U.N. Council met.", &["The U.S. Army came.", "The U.N. Council met."]);
        check("J. K. Rowling met J.R.R. Tolkien. He left.", &["J. K. Rowling met J.R.R. Tolkien.", "He left."]);
        check("It opens at 9 a.m. 20 people wait.", &["It opens at 9 a.m. 20 people wait."]);
    }

    #[test]
    fn a_mark_before_a_capital_ends_a_sentence() {
        check("We left at 5 p.m. They stayed.", &["We left at 5 p.m.", "They stayed."]);
        check(
            "(Dr. Who) said “Wait!” Then… Why? No. I do.",
            &["(Dr. Who) said “Wait!”", "Then…", "Why?", "No.", "I do."],
        );
        check("Wait... What? or so, 3.5 of it\nand 1.", &["Wait...", "What? or so, 3.5 of it", "and 1."]);
    }
}
