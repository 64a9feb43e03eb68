//! Text to words a voice can say: no markup, no emoji, figures and signs as words.
//!
//! The chunker calls it on each chunk. Plain numbers stay in digits, for voices read those themselves.

use super::{figures, markup};

/// Into which words figures and signs are put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// English words: "5 %" becomes "5 percent".
    #[default]
    English,
    /// Figures and signs stay as they are; markup and emoji go all the same. For voices that read them themselves in
    /// another language.
    Other,
}

impl Language {
    /// Of a voice with that BCP-47 tag.
    pub fn of_tag(tag: &str) -> Self {
        let primary = tag.split(['-', '_']).next().unwrap_or_default();
        if primary.eq_ignore_ascii_case("en") { Self::English } else { Self::Other }
    }
}

/// Where a text stands.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// It begins a line, so that a `#` or a `-` there is a mark.
    pub line_start: bool,
    /// A line of its own ends with it (a heading, a list item): it gets a full stop if it has no punctuation.
    pub ends_line: bool,
}

/// What a voice says of `text`: one line, single blanks, empty where there is no word in it.
pub fn speakable(text: &str, position: Position, language: Language) -> String {
    let plain = markup::strip(text, position.line_start);
    let words = match language {
        Language::English => figures::in_words(&plain),
        Language::Other => plain,
    };
    let mut out = tidy(&words);
    if position.ends_line && out.ends_with(char::is_alphanumeric) {
        out.push('.');
    }
    out
}

/// Single blanks, none before punctuation, no punctuation at the beginning and no commas in a row.
fn tidy(text: &str) -> String {
    if !text.contains(char::is_alphanumeric) {
        return String::new();
    }
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        let mut word = word;
        if word.starts_with([',', '.', ';', ':', '!', '?']) {
            let mark = word.trim_start_matches([',', ';', ':']);
            if mark.len() < word.len() && !out.is_empty() && !out.ends_with([',', '.', ';', ':', '!', '?']) {
                out.push_str(&word[..1]);
            }
            word = mark;
            if word.starts_with(['.', '!', '?']) && !word.contains(char::is_alphanumeric) {
                if !out.is_empty() {
                    out.truncate(out.trim_end_matches([',', ';', ':']).len());
                    out.push_str(word);
                }
                continue;
            }
        }
        if word.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

#[cfg(test)]
mod tests;
