//! Where sentences of English text end, and with what mark. Pure; the reader calls it.

use crate::tts::phonemes::Mark;

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
/// at an end of a line. An initial's dot ("J. K. Rowling") ends none.
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
        let is_initial = c == '.'
            && text[word_start..at].chars().eq(text[word_start..at].chars().take(1).filter(|c| c.is_uppercase()));
        if next.len() < behind.len() && !next.starts_with(char::is_lowercase) && !is_initial {
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
