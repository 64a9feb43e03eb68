//! English text as tokens, by the rules of spaCy that hibari's tagger and misaki's rules expect: "don't" is "do" and "n't".
//!
//! Exceptions from a table come first; then marks are taken off both ends of what stands between blanks, and what is left is cut
//! at hyphens and marks inside. Tokens keep whether a blank follows, so the text can be put together again. Pure; the reader calls
//! it.

use std::collections::HashMap;

const QUOTES: &str = "'\"”“`‘´’‚,„»«「」『』（）〔〕【】《》〈〉";
const MARKS: &str = "…,:;!?¿¡()[]{}<>_#*&。？！，、；：～·";
const ICONS: &str = "™®©°§¶†‡•";
/// The longest first where one begins another.
const CURRENCIES: [&str; 23] = [
    "US$", "C$", "A$", "$", "£", "€", "¥", "฿", "₽", "₹", "₩", "₪", "₺", "₴", "₦", "₫", "₱", "₲", "₵", "₸", "₼", "₾",
    "₿",
];
const UNITS: [&str; 48] = [
    "km", "km²", "km³", "m", "m²", "m³", "dm", "dm²", "dm³", "cm", "cm²", "cm³", "mm", "mm²", "mm³", "ha", "µm", "nm",
    "yd", "in", "ft", "kg", "g", "mg", "µg", "t", "lb", "oz", "m/s", "km/h", "kmh", "mph", "hPa", "Pa", "mbar", "mb",
    "MB", "kb", "KB", "gb", "GB", "tb", "TB", "T", "G", "M", "K", "%",
];
const TOP_LEVEL: [&str; 19] = [
    "com", "org", "net", "edu", "gov", "io", "co", "uk", "de", "fr", "info", "biz", "us", "ca", "au", "tv", "me", "ly",
    "ai",
];

/// A piece of text, and whether a blank follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) has_blank: bool,
}

/// The rules with their table of exceptions: a text, and the tokens it is.
#[derive(Debug)]
pub(super) struct Tokenizer(pub(super) HashMap<Box<str>, Box<[Box<str>]>>);

impl Tokenizer {
    pub(super) fn pieces(&self, text: &str) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for chunk in text.split_whitespace() {
            let tokens = self.split(chunk);
            pieces.extend(tokens.into_iter().map(|text| Piece { text, has_blank: false }));
            if let Some(last) = pieces.last_mut() {
                last.has_blank = true;
            }
        }
        if let Some(last) = pieces.last_mut() {
            last.has_blank = text.ends_with(char::is_whitespace);
        }
        pieces
    }

    fn exception(&self, text: &str) -> Option<impl Iterator<Item = String> + '_> {
        self.0.get(text).map(|tokens| tokens.iter().map(|token| token.to_string()))
    }

    fn split(&self, chunk: &str) -> Vec<String> {
        if let Some(tokens) = self.exception(chunk) {
            return tokens.collect();
        }
        let mut front: Vec<String> = Vec::new();
        let mut back: Vec<String> = Vec::new();
        let mut rest = chunk;
        while !rest.is_empty() && !self.0.contains_key(rest) {
            let prefix = prefix_of(rest);
            let without_prefix = &rest[prefix..];
            if prefix > 0 && self.0.contains_key(without_prefix) {
                front.push(rest[..prefix].into());
                rest = without_prefix;
                break;
            }
            let suffix = suffix_of(without_prefix);
            let without_suffix = &rest[..rest.len() - suffix];
            if suffix > 0 && self.0.contains_key(without_suffix) {
                back.push(rest[rest.len() - suffix..].into());
                rest = without_suffix;
                break;
            }
            if prefix == 0 && suffix == 0 {
                break;
            }
            if prefix > 0 {
                front.push(rest[..prefix].into());
            }
            if suffix > 0 {
                back.push(rest[rest.len() - suffix..].into());
            }
            rest = &rest[prefix..rest.len() - suffix];
        }
        let mut tokens = front;
        if let Some(exception) = self.exception(rest) {
            tokens.extend(exception);
        } else if is_address(rest) {
            tokens.push(rest.into());
        } else {
            tokens.extend(cut_inside(rest));
        }
        tokens.extend(back.into_iter().rev());
        self.joined(tokens)
    }

    /// Neighbours that are an exception together: "Sept" and "." are "Sept.".
    fn joined(&self, tokens: Vec<String>) -> Vec<String> {
        let mut out = Vec::with_capacity(tokens.len());
        let mut at = 0;
        while at < tokens.len() {
            let together = [3, 2].into_iter().filter(|n| tokens.len() > 1 && at + n <= tokens.len());
            let found =
                together.map(|n| (n, tokens[at..at + n].concat())).find(|(_, text)| self.0.contains_key(text.as_str()));
            match found {
                Some((n, text)) => {
                    out.extend(self.exception(&text).into_iter().flatten());
                    at += n;
                }
                None => {
                    out.push(tokens[at].clone());
                    at += 1;
                }
            }
        }
        out
    }
}

/// Bytes of the mark that a text begins with; 0: none.
fn prefix_of(text: &str) -> usize {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return 0 };
    let second = chars.next();
    let dots = leading_dots(text);
    if first == '+' {
        return if second.is_some_and(|c| c.is_ascii_digit()) { 0 } else { 1 };
    }
    if dots > 1 {
        return dots;
    }
    if "§%=—–".contains(first) || MARKS.contains(first) || QUOTES.contains(first) || ICONS.contains(first) {
        return first.len_utf8();
    }
    CURRENCIES.iter().find(|sign| text.starts_with(**sign)).map_or(0, |sign| sign.len())
}

/// Bytes of the mark that a text ends with, the longest; 0: none.
fn suffix_of(text: &str) -> usize {
    let Some(last) = text.chars().next_back() else { return 0 };
    let mut longest = 0;
    let mut consider = |n: usize, fits: bool| {
        if fits {
            longest = longest.max(n);
        }
    };
    let before = |n: usize| text[..text.len() - n].chars().next_back();
    let is_mark = MARKS.contains(last) || QUOTES.contains(last) || ICONS.contains(last) || "—–".contains(last);
    consider(last.len_utf8(), is_mark);
    consider("……".len(), text.ends_with("……"));
    let dots = text.len() - text.trim_end_matches('.').len();
    consider(dots, dots > 1);
    for end in ["'s", "'S", "’s", "’S"] {
        consider(end.len(), text.ends_with(end));
    }
    let is_behind_digit = |n: usize| before(n).is_some_and(|c| c.is_ascii_digit());
    consider(1, last == '+' && is_behind_digit(1));
    for end in CURRENCIES.iter().chain(&UNITS) {
        consider(end.len(), text.ends_with(end) && is_behind_digit(end.len()));
    }
    if last == '.' {
        let follows = |c: char| {
            c.is_ascii_digit() || is_lower(c) || "%²-+".contains(c) || MARKS.contains(c) || QUOTES.contains(c)
        };
        let mut ends = text[..text.len() - 1].chars().rev();
        let previous = ends.next();
        let earlier = ends.next();
        consider(1, previous.is_some_and(follows));
        consider(1, previous.is_some_and(is_upper) && earlier.is_some_and(is_upper));
        consider(1, previous.is_some_and(|c| "FfCcKk".contains(c)) && earlier == Some('°'));
    }
    longest
}

/// Cuts at marks inside; the marks are tokens.
fn cut_inside(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while let Some(here) = text[at..].chars().next() {
        let n = infix_of(text, at);
        // What begins with a mark was looked at before.
        if n == 0 || at == 0 {
            at += if n == 0 { here.len_utf8() } else { n };
            continue;
        }
        if at > start {
            tokens.push(text[start..at].to_owned());
        }
        tokens.push(text[at..at + n].to_owned());
        at += n;
        start = at;
    }
    if start < text.len() {
        tokens.push(text[start..].to_owned());
    }
    tokens
}

/// Bytes of the mark at this place that parts two tokens; 0: none.
fn infix_of(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let before = text[..at].chars().next_back();
    let Some(here) = rest.chars().next() else { return 0 };
    let dots = leading_dots(rest);
    if dots > 1 {
        return dots;
    }
    if here == '…' || ICONS.contains(here) {
        return here.len_utf8();
    }
    let follows = |n: usize, fits: fn(char) -> bool| rest[n..].chars().next().is_some_and(fits);
    let is_behind = |fits: fn(char) -> bool| before.is_some_and(fits);
    match here {
        '+' | '-' | '*' | '^'
            if is_behind(|c| c.is_ascii_digit()) && follows(1, |c| c.is_ascii_digit() || c == '-') =>
        {
            return 1;
        }
        '.' if is_behind(|c| is_lower(c) || QUOTES.contains(c))
            && follows(1, |c| is_upper(c) || QUOTES.contains(c)) =>
        {
            return 1;
        }
        ',' if is_behind(is_letter) && follows(1, is_letter) => return 1,
        ':' | '<' | '>' | '=' | '/' if is_behind(char::is_alphanumeric) && follows(1, is_letter) => return 1,
        _ => {}
    }
    let dashes = ["-", "–", "—", "--", "---", "——", "~"];
    let dash = dashes.iter().find(|dash| rest.starts_with(**dash) && follows(dash.len(), is_letter));
    dash.filter(|_| is_behind(char::is_alphanumeric)).map_or(0, |dash| dash.len())
}

/// Whether a text is an address of the web or of mail.
fn is_address(text: &str) -> bool {
    let lower = text.to_lowercase();
    let beginnings = ["http://", "https://", "ftp://", "www."];
    if beginnings.iter().any(|beginning| lower.strip_prefix(beginning).is_some_and(|rest| !rest.is_empty())) {
        return true;
    }
    let is_label = |label: &str| !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || "-_".contains(c));
    let is_host = |host: &str| host.contains('.') && host.split('.').all(is_label);
    if let Some((name, host)) = lower.split_once('@') {
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_.+-".contains(c));
        return is_name && is_host(host);
    }
    let host = lower.split('/').next().unwrap_or_default();
    is_host(host) && host.rsplit('.').next().is_some_and(|end| TOP_LEVEL.contains(&end))
}

fn leading_dots(text: &str) -> usize {
    text.len() - text.trim_start_matches('.').len()
}

/// A letter, or another sign of a word that is no digit and no underscore.
pub(super) fn is_letter(c: char) -> bool {
    c.is_alphanumeric() && !c.is_ascii_digit()
}

/// A small letter of western Europe.
pub(super) fn is_lower(c: char) -> bool {
    matches!(c, 'a'..='z' | 'ß'..='ö' | 'ø'..='ÿ')
}

/// A capital of western Europe.
pub(super) fn is_upper(c: char) -> bool {
    matches!(c, 'A'..='Z' | 'À'..='Ö' | 'Ø'..='Þ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &[&str]) {
        let exceptions = [("don't", vec!["do", "n't"]), ("Sept.", vec!["Sept."]), ("cannot", vec!["can", "not"])];
        let table = exceptions.map(|(text, tokens)| (text.into(), tokens.into_iter().map(Into::into).collect()));
        let made = Tokenizer(HashMap::from(table)).pieces(text);
        assert_eq!(made.iter().map(|piece| piece.text.as_str()).collect::<Vec<_>>(), expect);
        let again: String =
            made.iter().map(|piece| format!("{}{}", piece.text, if piece.has_blank { " " } else { "" })).collect();
        assert_eq!(again, text);
    }

    #[test]
    fn marks_are_taken_off_and_words_are_cut() {
        check("\"Well, don't,\" she said.", &["\"", "Well", ",", "do", "n't", ",", "\"", "she", "said", "."]);
        check("the dog's well-known ball", &["the", "dog", "'s", "well", "-", "known", "ball"]);
        check("(cannot) in Sept., you see...", &["(", "can", "not", ")", "in", "Sept.", ",", "you", "see", "..."]);
        check("$5.50 and 10km or 3-4", &["$", "5.50", "and", "10", "km", "or", "3", "-", "4"]);
        check(
            "yes/no, a.b@c.org www.d.com end.Next",
            &["yes", "/", "no", ",", "a.b@c.org", "www.d.com", "end", ".", "Next"],
        );
        check("U.S. NATO.", &["U.S.", "NATO", "."]);
        check("", &[]);
        check("...", &["..."]);
    }
}
