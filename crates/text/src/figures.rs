//! Converts figures, units, signs, times, dates, money and addresses to English words.

use super::names::{address, dotted, tagged};
use super::tables::{CURRENCIES, FRACTIONS, MONTHS, SAID, SIGNS, UNITS};

/// The text with figures and signs replaced by words. Plain numbers remain digits.
pub(super) fn in_words(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut out: Vec<String> = Vec::with_capacity(words.len());
    let mut at = 0;
    while at < words.len() {
        let before = if at > 0 { words[at - 1] } else { "" };
        let word = Word::of(words[at]);
        let next = words.get(at + 1).map(|next| Word::of(next));
        let taken = word.with_next(before, next.as_ref());
        let (said, tail, n_taken) = match (taken, &next) {
            (Some(said), Some(next)) => (said, next.tail.as_str(), 2),
            _ => (word.alone(before, words.get(at + 1).copied().unwrap_or_default()), word.tail.as_str(), 1),
        };
        if word.parenthesis {
            out.push(",".into());
        }
        let tail = if said.ends_with('.') { tail.trim_start_matches('.') } else { tail };
        out.push(format!("{said}{tail}"));
        at += n_taken;
    }
    out.join(" ")
}

/// A word without its punctuation.
struct Word<'a> {
    core: &'a str,
    /// The punctuation after the word; quotes are removed, and a closing bracket becomes a comma.
    tail: String,
    /// A bracket opens before the word.
    parenthesis: bool,
}

impl<'a> Word<'a> {
    fn of(word: &'a str) -> Self {
        const OPENING: &str = "\"“”„«‹‘([{¿¡";
        const CLOSING: &str = "\"“”»›)]}";
        let start = word.trim_start_matches(|c| OPENING.contains(c) || (c == '\'' || c == '’'));
        let parenthesis = word[..word.len() - start.len()].contains(['(', '[', '{']);
        let mut core = start;
        while let Some(last) = core.chars().next_back() {
            let ends = CLOSING.contains(last) && !(last == ')' && core.contains('('));
            if !(ends || "'’,;:!?…".contains(last) || last == '.' && !keeps_dot(core)) {
                break;
            }
            core = &core[..core.len() - last.len_utf8()];
        }
        let mut tail: String = start[core.len()..].chars().filter(|c| ",;:!?.…".contains(*c)).collect();
        if tail.is_empty() && start[core.len()..].contains([')', ']', '}']) {
            tail.push(',');
        }
        Self { core, tail: tail.replace('…', "..."), parenthesis }
    }

    /// The spoken form if this word and the next make one figure: "5 km", "$3 million", "No. 5".
    fn with_next(&self, before: &str, next: Option<&Word<'_>>) -> Option<String> {
        let next = next.filter(|next| !next.core.is_empty() && !next.parenthesis)?;
        if self.core.eq_ignore_ascii_case("no") && self.tail == "." && number(next.core).is_some() {
            return Some(format!("number {}", next.core));
        }
        if !self.tail.is_empty() {
            return None;
        }
        let magnitude = ["thousand", "million", "billion", "trillion"].contains(&next.core);
        if let Some((sign, figure)) = money(self.core).filter(|_| magnitude) {
            return Some(format!("{} {} {}", figure, next.core, sign.2));
        }
        let half = day_half(next.core);
        if let (Some(half), true) = (half, self.core.contains(':')) {
            return clock(self.core, next.core).map(|time| format!("{time} {half}"));
        }
        let figure = number(self.core)?;
        match next.core {
            "%" => Some(format!("{figure} percent")),
            "°C" | "℃" => Some(degrees(&figure, " Celsius")),
            "°F" | "℉" => Some(degrees(&figure, " Fahrenheit")),
            "°" => Some(degrees(&figure, "")),
            _ if half.is_some() && self.core.len() <= 2 => half.map(|half| format!("{figure} {half}")),
            unit if before != "$" => in_units(&figure, unit),
            _ => None,
        }
    }

    /// The spoken form of this word alone.
    fn alone(&self, before: &str, after: &str) -> String {
        let core = self.core;
        let near = Near { before, after };
        said(core)
            .or_else(|| address(core))
            .or_else(|| dash(core, &near))
            .or_else(|| amount(core))
            .or_else(|| measured(core))
            .or_else(|| clock(core, after))
            .or_else(|| date(core))
            .or_else(|| range(core))
            .or_else(|| fraction(core, before))
            .or_else(|| signed(core))
            .or_else(|| tagged(core))
            .or_else(|| dotted(core))
            .unwrap_or_else(|| signs(core))
    }
}

/// "am" and "pm" in any spelling, in the form that TTS engines read correctly.
fn day_half(word: &str) -> Option<&'static str> {
    match word {
        "am" | "AM" | "a.m." | "a.m" | "A.M." => Some("a.m."),
        "pm" | "PM" | "p.m." | "p.m" | "P.M." => Some("p.m."),
        _ => None,
    }
}

/// The words before and after.
struct Near<'a> {
    before: &'a str,
    after: &'a str,
}

/// Whether the final dot belongs to the word: initials, and abbreviations that have a spoken form.
fn keeps_dot(word: &str) -> bool {
    let body = &word[..word.len() - 1];
    let initials = body.contains('.') && body.split('.').all(|part| part.len() == 1 && part.is_ascii());
    initials && body.bytes().all(|b| b == b'.' || b.is_ascii_alphabetic())
        || SAID.iter().any(|(known, _)| word.eq_ignore_ascii_case(known))
}

fn said(core: &str) -> Option<String> {
    SAID.iter().find(|(known, _)| core.eq_ignore_ascii_case(known)).map(|(_, words)| (*words).to_owned())
}

/// A number in the form that TTS engines read correctly: digits, with the sign as a word. `None` for anything else.
pub(super) fn number(text: &str) -> Option<String> {
    let (sign, digits) = match text.chars().next()? {
        '-' | '−' | '–' => ("minus ", &text[text.chars().next()?.len_utf8()..]),
        '+' => ("plus ", &text[1..]),
        _ => ("", text),
    };
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let mut groups = whole.split(',');
    let first = groups.next()?;
    let grouped = groups.all(|group| group.len() == 3 && is_digits(group));
    (is_digits(first) && grouped && is_digits(decimals)).then(|| format!("{sign}{digits}"))
}

fn degrees(figure: &str, scale: &str) -> String {
    let unit = if is_one(figure) { "degree" } else { "degrees" };
    format!("{figure} {unit}{scale}")
}

fn is_one(figure: &str) -> bool {
    matches!(figure, "1" | "minus 1")
}

fn in_units(figure: &str, unit: &str) -> Option<String> {
    let (_, one, several) = UNITS.iter().find(|(written, _, _)| *written == unit)?;
    Some(format!("{figure} {}", if is_one(figure) { one } else { several }))
}

type Currency = (char, &'static str, &'static str, &'static str);

/// An amount of money: the currency and the figure.
fn money(core: &str) -> Option<(&'static Currency, String)> {
    let (sign, rest) = match core.strip_prefix(['-', '−']) {
        Some(rest) => ("minus ", rest),
        None => ("", core),
    };
    let find = |c: Option<char>| CURRENCIES.iter().find(|currency| Some(currency.0) == c);
    let (currency, figure) = match find(rest.chars().next()) {
        Some(currency) => (currency, &rest[currency.0.len_utf8()..]),
        None => {
            let currency = find(rest.chars().next_back())?;
            (currency, &rest[..rest.len() - currency.0.len_utf8()])
        }
    };
    figure.starts_with(|c: char| c.is_ascii_digit()).then(|| (currency, format!("{sign}{figure}")))
}

/// "$5.50", "€20", "$3M".
fn amount(core: &str) -> Option<String> {
    let (&(_, one, several, cent), figure) = money(core)?;
    for (suffix, word) in [("k", "thousand"), ("K", "thousand"), ("M", "million"), ("bn", "billion"), ("B", "billion")]
    {
        if let Some(figure) = figure.strip_suffix(suffix) {
            return Some(format!("{figure} {word} {several}"));
        }
    }
    let plain = figure.strip_prefix("minus ").unwrap_or(&figure);
    number(plain)?;
    let unit = |figure: &str| if is_one(figure) { one } else { several };
    let (whole, decimals) = match figure.split_once('.') {
        Some((whole, decimals)) if decimals.len() == 2 && !cent.is_empty() => (whole, decimals),
        _ => return Some(format!("{figure} {}", unit(&figure))),
    };
    let small = decimals.trim_start_matches('0');
    let cents = match (small, cent) {
        ("", _) => return Some(format!("{whole} {}", unit(whole))),
        ("1", cent) => format!("1 {cent}"),
        (n, "penny") => format!("{n} pence"),
        (n, cent) => format!("{n} {cent}s"),
    };
    Some(if whole == "0" { cents } else { format!("{whole} {} and {cents}", unit(whole)) })
}

/// A number and its unit in one word: "50%", "20°C", "5km", "10-20%".
fn measured(core: &str) -> Option<String> {
    let end = core.rfind(|c: char| c.is_ascii_digit() && c != '²')? + 1;
    let split = core.char_indices().find(|(at, c)| *at > 0 && !(c.is_ascii_digit() || ".,-–+".contains(*c)))?.0;
    let (figure, unit) = core.split_at(split.min(core.len()));
    let figure = number(figure).or_else(|| range(figure))?;
    match unit {
        "%" => Some(format!("{figure} percent")),
        "°C" | "℃" => Some(degrees(&figure, " Celsius")),
        "°F" | "℉" => Some(degrees(&figure, " Fahrenheit")),
        "°" => Some(degrees(&figure, "")),
        half if day_half(half).is_some() => day_half(half).map(|half| format!("{figure} {half}")),
        // "5x" is five times.
        "x" | "×" if end == split => Some(format!("{figure} times")),
        "m" | "g" | "h" | "l" | "V" | "W" | "L" if figure.contains(',') => None,
        unit => in_units(&figure, unit),
    }
}

/// "10:30", "3:00pm", "9:05"; and ratios such as "3:1".
fn clock(core: &str, after: &str) -> Option<String> {
    let letters = core.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(core.len());
    let (body, half) = core.split_at(letters);
    let half = match (half, day_half(half)) {
        ("", _) => String::new(),
        (_, half) => format!(" {}", half?),
    };
    let parts: Vec<&str> = body.split(':').collect();
    if !(2..=3).contains(&parts.len()) || !parts.iter().all(|part| part.len() <= 2 && part.parse::<u8>().is_ok()) {
        return None;
    }
    if parts.len() == 2 && parts[1].len() == 1 {
        return Some(format!("{} to {}", parts[0], parts[1]));
    }
    let hour = parts[0];
    let has_half = !half.is_empty() || day_half(after).is_some();
    let minutes = match parts[1] {
        "00" if parts.len() == 2 && has_half => String::new(),
        "00" if parts.len() == 2 => " o'clock".to_owned(),
        minutes if minutes.starts_with('0') => format!(" oh {}", &minutes[1..]),
        minutes => format!(" {minutes}"),
    };
    let seconds = parts.get(2).map(|seconds| format!(" and {} seconds", seconds.trim_start_matches('0')));
    Some(format!("{hour}{minutes}{}{half}", seconds.unwrap_or_default()))
}

/// "2024-05-06".
fn date(core: &str) -> Option<String> {
    let mut parts = core.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || year.len() != 4 || month.len() != 2 || day.len() != 2 {
        return None;
    }
    year.parse::<u16>().ok()?;
    let month = MONTHS.get(month.parse::<usize>().ok()?.checked_sub(1)?)?;
    let day = day.parse::<u8>().ok().filter(|day| (1..=31).contains(day))?;
    Some(format!("{month} {day}, {year}"))
}

/// "10-20", "1914–1918". Telephone numbers ("555-1234") are not ranges.
fn range(core: &str) -> Option<String> {
    let (from, to) = core.split_once('–').or_else(|| core.split_once('-'))?;
    let value = |text: &str| number(text).and_then(|_| text.replace(',', "").parse::<f64>().ok());
    let (low, high) = (value(from)?, value(to)?);
    let telephone = from.len() == 3 && to.len() == 4;
    (low < high && !telephone && !from.starts_with('0')).then(|| format!("{from} to {to}"))
}

/// "3/4", "1 1/2", "5/7".
fn fraction(core: &str, before: &str) -> Option<String> {
    let (over, under) = core.split_once('/')?;
    let (n, d) = (over.parse::<u32>().ok()?, under.parse::<u32>().ok()?);
    let part = match d {
        2 => "half",
        3 => "third",
        4 => "quarter",
        5 => "fifth",
        6 => "sixth",
        8 => "eighth",
        10 => "tenth",
        _ => return Some(format!("{over} over {under}")),
    };
    if n == 0 || n >= d {
        return Some(format!("{over} over {under}"));
    }
    let joint = if before.bytes().all(|b| b.is_ascii_digit()) && !before.is_empty() { "and " } else { "" };
    Some(if n == 1 { format!("{joint}one {part}") } else { format!("{joint}{n} {part}s") })
}

/// "-5", "~20", "<3", "#1".
fn signed(core: &str) -> Option<String> {
    let first = core.chars().next()?;
    let rest = &core[first.len_utf8()..];
    let word = match first {
        '~' | '≈' => "about",
        '<' => "less than",
        '>' => "more than",
        '≤' => "at most",
        '≥' => "at least",
        '±' => "plus or minus",
        '#' => "number",
        _ => return number(core).filter(|figure| figure != core),
    };
    let figure = Word { core: rest, tail: String::new(), parenthesis: false };
    rest.starts_with(|c: char| c.is_ascii_digit() || "$€£".contains(c))
        .then(|| format!("{word} {}", figure.alone("", "")))
}

/// A dash between blanks: "minus" between figures, otherwise a pause.
fn dash(core: &str, near: &Near<'_>) -> Option<String> {
    if !matches!(core, "-" | "–" | "—" | "--" | "−") {
        return None;
    }
    let is_figure = |word: &str| word.trim_end_matches([',', '.', '?', '!', ';']).parse::<f64>().is_ok();
    Some(if is_figure(near.before) && is_figure(near.after) { "minus".into() } else { ",".into() })
}

/// Replaces signs inside any other word.
fn signs(core: &str) -> String {
    let core = core.replace("->", "→").replace("=>", "⇒").replace("<=", "≤").replace(">=", "≥").replace("!=", "≠");
    let mut out = String::with_capacity(core.len() + 8);
    let mut chars = core.chars().peekable();
    while let Some(c) = chars.next() {
        let in_figures = |out: &str| out.ends_with(|c: char| c.is_ascii_digit());
        let figure_next = chars.peek().is_some_and(char::is_ascii_digit);
        let word = SIGNS.iter().find(|(sign, _)| *sign == c).map(|(_, word)| *word);
        let fraction = FRACTIONS.iter().find(|(sign, _)| *sign == c).map(|(_, word)| *word);
        match (c, word, fraction) {
            (_, Some(word), _) => push_word(&mut out, word),
            (_, _, Some(fraction)) => {
                if in_figures(&out) {
                    push_word(&mut out, "and");
                }
                push_word(&mut out, fraction);
            }
            ('<', ..) if figure_next || core.len() == 1 => push_word(&mut out, "less than"),
            ('>', ..) if figure_next || core.len() == 1 => push_word(&mut out, "more than"),
            ('/', ..) if in_figures(&out) && figure_next => push_word(&mut out, "over"),
            ('^', ..) if figure_next => push_word(&mut out, "to the power of"),
            ('-', ..) if in_figures(&out) && figure_next && core.contains(['+', '=', '×', '÷']) => {
                push_word(&mut out, "minus");
            }
            ('’' | '‘' | 'ʼ', ..) => out.push('\''),
            ('—', ..) => out.push_str(", "),
            ('–' | '‐' | '‑', ..) => out.push('-'),
            ('…', ..) => out.push_str("... "),
            (
                '/' | '\\' | '|' | '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | '^' | '~' | '`' | '#' | '•' | '·',
                ..,
            ) => {
                out.push(' ');
            }
            ('"' | '“' | '”' | '„' | '«' | '»', ..) => {}
            _ => out.push(c),
        }
    }
    out
}

/// Appends a word, separated by blanks.
fn push_word(out: &mut String, word: &str) {
    if !out.is_empty() && !out.ends_with(' ') {
        out.push(' ');
    }
    out.push_str(word);
    out.push(' ');
}
