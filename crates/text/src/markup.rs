//! Removes markup and pictographs from a text and keeps its words.

use super::sentences::Sentences;
use unicode_properties::{EmojiStatus, GeneralCategory, UnicodeEmoji, UnicodeGeneralCategory};

/// Of the languages with ordinals, German writes the months with a capital.
const GERMAN_MONTHS: [&str; 13] = [
    "Januar",
    "Jänner",
    "Februar",
    "März",
    "April",
    "Mai",
    "Juni",
    "Juli",
    "August",
    "September",
    "Oktober",
    "November",
    "Dezember",
];

/// Their abbreviations, behind which a dot stands. Without it "Jan" is a first name.
const GERMAN_SHORT_MONTHS: [&str; 14] =
    ["Jan", "Jän", "Feb", "Mär", "Mrz", "Apr", "Jun", "Jul", "Aug", "Sep", "Sept", "Okt", "Nov", "Dez"];
/// Words in lower case that stand between German ordinals: "1. und 2. Mai".
const GERMAN_JOINTS: [&str; 4] = ["bis", "oder", "sowie", "und"];
/// German nouns that an ordinal precedes at the start of a line more often than the number of a list's item.
const GERMAN_COUNTED: [&str; 16] = [
    "Advent",
    "Bundesliga",
    "Etage",
    "FC",
    "Geburtstag",
    "Halbzeit",
    "Jahrhundert",
    "Jahrtausend",
    "Liga",
    "Obergeschoss",
    "Platz",
    "Quartal",
    "Semester",
    "Stock",
    "Stockwerk",
    "Weltkrieg",
];

/// Plain text on one line. `line_start` states whether `text` starts a line, where headings and list items are marked.
/// In languages where "3. Oktober" is an ordinal, its dot stays there.
/// The rules are local, so a text split into chunks (inside a bold phrase, for example) loses the same marks.
pub(super) fn strip(text: &str, line_start: bool, sentences: Sentences) -> String {
    let mut out = String::with_capacity(text.len());
    for (n, line) in text.split('\n').enumerate() {
        if !out.is_empty() && !out.ends_with(' ') {
            out.push(' ');
        }
        let line = if n > 0 || line_start { strip_line_marks(line) } else { line };
        let numbered = item_number(line, sentences).filter(|_| n > 0 || line_start);
        if let Some((number, rest)) = numbered {
            out.push_str(number);
            out.push_str(", ");
            strip_inline(rest, &mut out);
        } else {
            strip_inline(line, &mut out);
        }
    }
    out
}

/// Removes the marks of a line (quotes, headings, bullets, checkboxes), and the whole line if it is a rule or a table
/// separator.
fn strip_line_marks(line: &str) -> &str {
    let mut rest = line.trim();
    if rest.len() >= 3 && rest.chars().all(|c| "-=*_|: ".contains(c)) {
        return "";
    }
    while let Some(quoted) = rest.strip_prefix('>') {
        rest = quoted.trim_start();
    }
    let level = rest.bytes().take_while(|b| *b == b'#').count();
    if (1..=6).contains(&level) && rest[level..].starts_with(' ') {
        let title = rest[level..].trim();
        // A closing sequence has a blank before it ("# C#" has none).
        let open = title.trim_end_matches('#');
        return if open.is_empty() || open.ends_with(char::is_whitespace) { open } else { title };
    }
    for bullet in ["- ", "* ", "+ ", "• ", "– "] {
        rest = rest.strip_prefix(bullet).map_or(rest, str::trim_start);
    }
    for ticked in ["[ ] ", "[x] ", "[X] "] {
        rest = rest.strip_prefix(ticked).unwrap_or(rest);
    }
    rest.trim_matches('|')
}

/// The number of a list's item at the start of a line, without its mark, and what stands behind it: "1. ", "2) ", "3: ".
fn item_number(line: &str, sentences: Sentences) -> Option<(&str, &str)> {
    let (marked, rest) = line.split_once(' ')?;
    if sentences.has_ordinals() && marked.ends_with('.') && is_behind_ordinal(rest, sentences) {
        return None;
    }
    let number = marked.strip_suffix("**").unwrap_or(marked);
    let number = number.strip_suffix(['.', ')', ':'])?.trim_start_matches("**");
    let is_number = (1..=3).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
    (is_number && !rest.trim().is_empty()).then_some((number, rest))
}

/// Whether a number with a dot before `text` is an ordinal, not that of a list's item: "3. maja", "3. Oktober",
/// "1. FC Köln".
fn is_behind_ordinal(text: &str, sentences: Sentences) -> bool {
    let text = text.trim_start();
    let word = text.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    let is_short_month = GERMAN_SHORT_MONTHS.contains(&word) && text[word.len()..].starts_with('.');
    let is_german = GERMAN_MONTHS.contains(&word) || is_short_month || GERMAN_COUNTED.contains(&word);
    // No German month is written so: "1. die App öffnen" is an item.
    let is_small = match sentences.has_capital_nouns() {
        true => GERMAN_JOINTS.contains(&word),
        false => word.starts_with(char::is_lowercase),
    };
    is_small || is_german
}

/// Removes the marks inside a line.
fn strip_inline(line: &str, out: &mut String) {
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let before = out.chars().next_back();
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\\' if after.starts_with(|c: char| c.is_ascii_punctuation()) => {
                // No voice reads a backtick.
                out.push_str(after[..1].trim_matches('`'));
                &after[1..]
            }
            '`' => after,
            '*' => strip_star(before, after, out),
            '_' => strip_underscore(before, after, out),
            '~' if after.starts_with('~') => &after[1..],
            '!' if after.starts_with('[') => after,
            '[' if after.starts_with('^') => after.find(']').map_or(after, |end| &after[end + 1..]),
            '[' => after,
            ']' if after.starts_with('(') => after.find(')').map_or("", |end| &after[end + 1..]),
            ']' => after,
            '<' => strip_tag(before, after, out),
            '|' => {
                out.push_str(", ");
                after.trim_start()
            }
            '&' => strip_entity(after, out),
            _ => {
                if !is_pictograph(c) {
                    out.push(c);
                }
                after
            }
        };
    }
}

/// A star between figures means multiplication; any other star marks emphasis.
fn strip_star<'a>(before: Option<char>, after: &'a str, out: &mut String) -> &'a str {
    let next = after.chars().next();
    let tight = before.is_some_and(|c| c.is_ascii_digit()) && next.is_some_and(|c| c.is_ascii_digit());
    let loose = before == Some(' ') && next == Some(' ') && !out.trim_end().is_empty();
    if tight || loose {
        out.push('×');
    }
    after
}

/// An underscore inside a word becomes a blank; any other underscore marks emphasis.
fn strip_underscore<'a>(before: Option<char>, after: &'a str, out: &mut String) -> &'a str {
    let joins = before.is_some_and(char::is_alphanumeric) && after.starts_with(char::is_alphanumeric);
    let head = out.rsplit(char::is_whitespace).next().unwrap_or_default();
    let is_link = head.contains("://") || head.contains("www.");
    let address = after.split(char::is_whitespace).next().is_some_and(|word| word.contains(['@', '/']));
    if joins && (is_link || address) {
        out.push('_');
    } else if joins {
        out.push(' ');
    }
    after
}

/// Elements of HTML and SSML that models write into their answers.
const TAGS: [&str; 70] = [
    "a",
    "abbr",
    "amazon",
    "audio",
    "b",
    "big",
    "blockquote",
    "body",
    "br",
    "break",
    "button",
    "caption",
    "center",
    "cite",
    "code",
    "dd",
    "del",
    "details",
    "dfn",
    "div",
    "dl",
    "dt",
    "em",
    "emphasis",
    "font",
    "footer",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "html",
    "i",
    "img",
    "input",
    "ins",
    "kbd",
    "li",
    "main",
    "mark",
    "nav",
    "ol",
    "p",
    "phoneme",
    "pre",
    "prosody",
    "q",
    "s",
    "samp",
    "say-as",
    "section",
    "small",
    "span",
    "speak",
    "strike",
    "strong",
    "sub",
    "summary",
    "sup",
    "table",
    "td",
    "th",
    "tr",
    "u",
    "ul",
    "voice",
];

/// A tag of HTML or SSML is removed. Other words in angle brackets are kept ("press <Enter>"), and a lone `<` is a sign.
fn strip_tag<'a>(before: Option<char>, after: &'a str, out: &mut String) -> &'a str {
    let is_inside = |c: char| c.is_ascii_alphabetic() || c == '/' || c == '!';
    let Some(end) = after.find('>').filter(|_| after.starts_with(is_inside)) else {
        out.push('<');
        return after;
    };
    let inside = &after[..end];
    let rest = &after[end + 1..];
    let name = inside.trim_start_matches('/').trim_end_matches('/');
    let (name, attributes) = name.split_at(name.find(char::is_whitespace).unwrap_or(name.len()));
    let is_known = TAGS.iter().any(|tag| tag.eq_ignore_ascii_case(name)) || inside.starts_with('!');
    let is_tag = is_known && (attributes.trim().is_empty() || attributes.contains('=') || inside.starts_with('!'));
    // "a<b and c>d" compares.
    let is_comparison = before.is_some_and(char::is_alphanumeric) && inside.contains(' ');
    if is_tag {
        out.push(' ');
        rest
    } else if is_comparison {
        out.push('<');
        after
    } else {
        out.push(' ');
        out.push_str(inside);
        // Punctuation behind it belongs to it.
        if rest.starts_with(char::is_alphanumeric) {
            out.push(' ');
        }
        rest
    }
}

fn strip_entity<'a>(after: &'a str, out: &mut String) -> &'a str {
    const ENTITIES: [(&str, char); 7] =
        [("amp;", '&'), ("lt;", '<'), ("gt;", '>'), ("nbsp;", ' '), ("quot;", '"'), ("#39;", '\''), ("apos;", '\'')];
    for (name, c) in ENTITIES {
        if let Some(rest) = after.strip_prefix(name) {
            out.push(c);
            return rest;
        }
    }
    out.push('&');
    after
}

/// Emoji and pictographs, the invisible characters that join or colour them, and control characters.
fn is_pictograph(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control() && c != '\t';
    }
    let emoji = match c.emoji_status() {
        EmojiStatus::NonEmoji | EmojiStatus::NonEmojiButEmojiComponent => false,
        // The table also lists digits, arrows and signs as emoji; those used in figures are kept.
        EmojiStatus::EmojiOther | EmojiStatus::EmojiOtherAndEmojiComponent => !"↔↕↖↗↘↙".contains(c),
        _ => true,
    };
    let invisible = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{20e3}' | '\u{ad}' | '\u{e0000}'..='\u{e007f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let regional = matches!(c, '\u{1f1e6}'..='\u{1f1ff}' | '\u{1f3fb}'..='\u{1f3ff}');
    let other = matches!(c.general_category(), GeneralCategory::OtherSymbol) && !"°℃℉№§".contains(c);
    emoji || invisible || regional || other || c.is_control()
}
