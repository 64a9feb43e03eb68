//! Normalizes text for speech: no markup, no emoji, figures and signs as words.
//!
//! The chunker applies it to each chunk. Plain numbers remain digits, because TTS engines read them correctly.

use super::dates::DateOrder;
use super::sentences::Sentences;
use super::{figures, markup};

/// The language of a text: that of the words that replace figures and signs, and of its abbreviations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// English words: "5 %" becomes "5 percent". In dates the month comes first.
    #[default]
    English,
    /// The same where the day comes first: in all regions but the United States, Canada and the Philippines.
    EnglishDayFirst,
    /// Figures and signs are unchanged; markup and emoji are still removed. For voices in other languages, which read
    /// figures and signs themselves.
    Other(Sentences),
}

impl Language {
    /// The language for a voice with BCP-47 tag `tag`.
    pub fn of_tag(tag: &str) -> Self {
        let mut parts = tag.split(['-', '_']);
        let primary = parts.next().unwrap_or_default().to_ascii_lowercase();
        let region = parts.find(|part| part.len() == 2 || part.len() == 3 && part.bytes().all(|b| b.is_ascii_digit()));
        let month_first =
            ["US", "CA", "PH"].iter().any(|month_first| region.unwrap_or("US").eq_ignore_ascii_case(month_first));
        match primary.as_str() {
            "en" if month_first => Self::English,
            "en" => Self::EnglishDayFirst,
            _ => Self::Other(Sentences::of(&primary)),
        }
    }

    /// How its sentences end.
    pub(super) fn sentences(self) -> Sentences {
        match self {
            Self::English | Self::EnglishDayFirst => Sentences::ENGLISH,
            Self::Other(sentences) => sentences,
        }
    }
}

/// The position of a chunk in its text.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// The chunk starts a line, so a `#` or a `-` there is markup.
    pub line_start: bool,
    /// The chunk ends a line of its own (a heading, a list item): a full stop is added if it has no punctuation.
    pub ends_line: bool,
}

/// The spoken form of `text`: one line, single blanks, empty if it contains no word and no mark. `marks`: what the
/// voice reads as something else than words, such as "[laugh]", which stays as it is.
pub fn speakable(text: &str, position: Position, language: Language, marks: &[String]) -> String {
    if marks.iter().any(|mark| text.contains(mark.as_str())) {
        let stood_for = with_stand_ins(text, marks);
        let mut spoken = speakable(&stood_for, position, language, &[]);
        if spoken.is_empty() {
            // No word stands beside the marks.
            let alone: Vec<String> = stood_for.chars().filter(|c| STAND_INS.contains(c)).map(String::from).collect();
            spoken = alone.join(" ");
        }
        return with_marks(&spoken, marks);
    }
    let plain = markup::strip(text, position.line_start, language.sentences());
    let words = match language {
        Language::English => figures::in_words(&plain, DateOrder::MonthFirst),
        Language::EnglishDayFirst => figures::in_words(&plain, DateOrder::DayFirst),
        Language::Other(_) => plain,
    };
    let mut out = tidy(&words);
    if position.ends_line && out.ends_with(char::is_alphanumeric) {
        out.push('.');
    }
    out
}

/// Characters of private use, which no rule touches: each stands for the mark of its number.
const STAND_INS: std::ops::RangeInclusive<char> = '\u{e000}'..='\u{f8ff}';

/// The text with a character in place of each mark.
fn with_stand_ins(text: &str, marks: &[String]) -> String {
    let mut out = text.replace(|c| STAND_INS.contains(&c), "");
    for (stand_in, mark) in STAND_INS.zip(marks) {
        out = out.replace(mark.as_str(), stand_in.encode_utf8(&mut [0; 4]));
    }
    out
}

/// The text with the marks in their places again.
fn with_marks(text: &str, marks: &[String]) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let mark = STAND_INS.contains(&c).then(|| marks.get(c as usize - *STAND_INS.start() as usize)).flatten();
        match mark {
            Some(mark) => out.push_str(mark),
            None => out.push(c),
        }
    }
    out
}

/// Leaves single blanks, none before punctuation, no leading punctuation and no repeated commas.
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
