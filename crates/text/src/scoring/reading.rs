//! Reads a text as a person would: figures, signs, units, times, money and abbreviations in words.
//!
//! Used only by `scoring`, which then brings numbers to one form. It never changes a word that is written in full.

use super::{SPELLED, is_consonant, numbers};
use crate::tables::{CURRENCIES, FRACTIONS, MONTHS, PARTS, SIGNS, UNITS};
use crate::{dates, roman, states, titles};

/// Punctuation that stands before and behind a word.
const OPENING: &str = "\"“”„«‹‘'([{<¿¡*_`";
const CLOSING: &str = "\"“”»›'’)]}>*_`,’;:!?….";
const DASHES: [char; 5] = ['-', '–', '‑', '‐', '−'];
/// Abbreviations that have one reading, with or without their dot, in lower case.
const ABBREVIATIONS: [(&str, &str); 4] = [("mr", "mister"), ("mrs", "missus"), ("vs", "versus"), ("etc", "et cetera")];
/// Abbreviations that are often read as they are written: "Acme Inc.".
const NOT_READ: [&str; 7] = ["bros", "co", "corp", "inc", "ltd", "no", "nos"];
/// What is written behind an amount of money for a scale.
const SCALE_LETTERS: [(&str, &str); 4] = [("bn", "billion"), ("B", "billion"), ("M", "million"), ("m", "million")];

type Currency = (char, &'static str, &'static str, &'static str);

/// The words of a text, in the case in which they are written.
pub(super) fn read(text: &str) -> Vec<String> {
    let text = text.replace(['’', '‘', 'ʼ', '′'], "'").replace('″', "\"");
    let mut reading = Reading {
        written: text.split_whitespace().collect(),
        tokens: Vec::new(),
        has_lowercase: text.chars().any(char::is_lowercase),
        is_joined: false,
        is_behind_month: false,
    };
    let mut at = 0;
    let mut n_quotes = 0;
    while at < reading.written.len() {
        let n_taken = reading.word(at, n_quotes % 2 == 1);
        n_quotes += reading.written[at].matches('"').count();
        at += n_taken;
    }
    in_words(&reading.tokens)
}

/// Whether a word in lower case is read as another one.
pub(super) fn is_abbreviation(word: &str) -> bool {
    ABBREVIATIONS.iter().any(|(short, _)| *short == word)
}

/// A part of what is said.
#[derive(Debug)]
enum Token {
    Word(String),
    Figure(Figure),
    /// A sign of money, beside its figure.
    Currency(&'static Currency),
    /// A dash between two figures.
    Dash,
}

/// How a figure ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    None,
    /// "8th".
    Ordinal,
    /// "1990s".
    Plural,
}

#[derive(Debug)]
struct Figure {
    /// Its digits before the first point.
    whole: String,
    /// Commas part the thousands.
    is_grouped: bool,
    /// The digits behind each point: a version has several.
    parts: Vec<String>,
    ending: Ending,
}

impl Figure {
    fn plain(digits: &str) -> Self {
        Self { whole: digits.to_owned(), is_grouped: false, parts: Vec::new(), ending: Ending::None }
    }

    /// The figure at the beginning of a text, and its length.
    fn at_start_of(text: &str) -> Option<(Self, usize)> {
        let n_digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut end = n_digits(text);
        let mut figure = Self::plain(&text[..end]);
        while (1..=3).contains(&end) || figure.is_grouped {
            let Some(group) = text[end..].strip_prefix(',').filter(|group| n_digits(group) == 3) else { break };
            figure.whole.push_str(&group[..3]);
            figure.is_grouped = true;
            end += 4;
        }
        while let Some(part) = text[end..].strip_prefix('.').filter(|part| n_digits(part) > 0) {
            figure.parts.push(part[..n_digits(part)].to_owned());
            end += 1 + n_digits(part);
        }
        (end > 0).then_some((figure, end))
    }

    fn is_plain(&self) -> bool {
        self.parts.is_empty() && self.ending == Ending::None && !self.whole.is_empty()
    }

    fn value(&self) -> Option<u64> {
        self.whole.parse().ok().filter(|_| self.is_plain())
    }

    fn is_one(&self) -> bool {
        self.value() == Some(1)
    }

    /// Minutes or cents: two digits behind one point.
    fn hundredths(&self) -> Option<&str> {
        match &self.parts[..] {
            [part] if part.len() == 2 && self.ending == Ending::None => Some(part),
            _ => None,
        }
    }

    /// Its words, before the token that follows.
    fn words(&self, next: Option<&Token>) -> Vec<String> {
        let value: Option<u64> = self.whole.parse().ok();
        // No scale is beyond it.
        let value = value.filter(|value| *value < 1_000_000_000_000_000);
        let is_scaled = matches!(next, Some(Token::Word(word)) if numbers::is_scale(&word.to_lowercase()));
        // "20 5" is not "twenty five".
        let is_before_digit = matches!(next, Some(Token::Figure(next)) if next.whole.len() == 1 && next.is_plain());
        let is_code = self.whole.len() > 1 && self.whole.starts_with('0');
        let mut words = match (self.ending, value) {
            (Ending::Ordinal, Some(value)) => return numbers::ordinal(value),
            (Ending::Plural, Some(value)) => return plural(value, &self.whole),
            (_, Some(value)) if is_scaled && !is_code => numbers::cardinal(value),
            (_, Some(value)) if self.is_grouped && value >= 1_000_000 => numbers::amount(value),
            (_, Some(_)) if self.whole.len() > 2 || is_code => numbers::digits(&self.whole),
            (_, Some(value)) if is_before_digit && value >= 20 && value % 10 == 0 => numbers::digits(&self.whole),
            (_, Some(value)) => numbers::cardinal(value),
            (_, None) if self.whole.is_empty() => numbers::digits("0"),
            (_, None) => numbers::digits(&self.whole),
        };
        for part in &self.parts {
            words.push("point".to_owned());
            words.extend(numbers::digits(part));
        }
        words
    }
}

/// "1990s", "90s", "2000s", "747s".
fn plural(value: u64, digits: &str) -> Vec<String> {
    let mut words = match (value, value % 100) {
        (1_000.., 0) if value.is_multiple_of(1_000) && value < 10_000 => numbers::cardinal(value),
        (100..10_000, 0) => [numbers::cardinal(value / 100), vec!["hundred".to_owned()]].concat(),
        (100..10_000, decade) if decade.is_multiple_of(10) => {
            [numbers::cardinal(value / 100), numbers::cardinal(decade)].concat()
        }
        (0..100, _) => numbers::cardinal(value),
        _ => numbers::digits(digits),
    };
    if let Some(last) = words.last_mut() {
        *last = match last.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None if last.ends_with('x') => format!("{last}es"),
            None => format!("{last}s"),
        };
    }
    words
}

struct Reading<'a> {
    /// The words as they are written, with their punctuation.
    written: Vec<&'a str>,
    tokens: Vec<Token>,
    /// Capitals show something: the text has other letters as well.
    has_lowercase: bool,
    /// No punctuation parts the last word from the next one.
    is_joined: bool,
    /// The last word is the name of a month.
    is_behind_month: bool,
}

impl Reading<'_> {
    /// Reads the word at a place, and returns how many words were read.
    fn word(&mut self, at: usize, is_quoted: bool) -> usize {
        let written = self.written[at];
        let is_joined = self.is_joined;
        let is_behind_month = std::mem::take(&mut self.is_behind_month) && is_joined;
        if self.length(written, is_quoted) {
            self.is_joined = false;
            return 1;
        }
        let core = written.trim_start_matches(|c| OPENING.contains(c)).trim_end_matches(|c| CLOSING.contains(c));
        let start = written.len() - written.trim_start_matches(|c| OPENING.contains(c)).len();
        let tail = written.get(start + core.len()..).unwrap_or_default();
        self.is_joined = tail.is_empty();
        if core.is_empty() {
            self.sign(written, at);
            return 1;
        }
        if is_joined && let Some(n_words) = self.behind_figure(core, at) {
            return n_words;
        }
        let n_before = self.tokens.len();
        match self.abbreviation(core, tail, at) {
            Some(long) => {
                long.split(' ').for_each(|word| self.scan(word, at));
                self.is_joined = tail.is_empty() || tail == ".";
            }
            None => self.scan(core, at),
        }
        if let ([Token::Figure(figure)], true) = (&mut self.tokens[n_before..], is_behind_month)
            && figure.value().is_some_and(|day| (1..=31).contains(&day))
        {
            figure.ending = Ending::Ordinal;
        }
        self.is_behind_month = matches!(self.tokens.last(), Some(Token::Word(name)) if MONTHS.contains(&name.as_str()));
        1
    }

    fn push(&mut self, words: &str) {
        let words = words.split(' ').filter(|word| !word.is_empty());
        self.tokens.extend(words.map(|word| Token::Word(word.to_owned())));
    }

    fn last_figure(&self) -> Option<&Figure> {
        match self.tokens.last() {
            Some(Token::Figure(figure)) => Some(figure),
            _ => None,
        }
    }

    /// A length in feet and inches, `5'10"`, or in inches, `27"`.
    fn length(&mut self, written: &str, is_quoted: bool) -> bool {
        let bare = written.trim_end_matches([',', '.', ';', ':', '!', '?']);
        let is_figure = |text: &str| !text.is_empty() && text.len() <= 2 && text.bytes().all(|b| b.is_ascii_digit());
        let bare_of_inches = bare.strip_suffix("''").or_else(|| bare.strip_suffix('"')).unwrap_or(bare);
        match bare_of_inches.split_once('\'') {
            Some((feet, inches)) if is_figure(feet) && is_figure(inches) => {
                self.tokens.push(Token::Figure(Figure::plain(feet)));
                self.push(if feet == "1" { "foot" } else { "feet" });
                self.tokens.push(Token::Figure(Figure::plain(inches)));
                true
            }
            None if is_figure(bare_of_inches) && bare_of_inches.len() < bare.len() && !is_quoted => {
                self.tokens.push(Token::Figure(Figure::plain(bare_of_inches)));
                self.push(if bare_of_inches == "1" { "inch" } else { "inches" });
                true
            }
            _ => false,
        }
    }

    /// A word that is only signs.
    fn sign(&mut self, written: &str, at: usize) {
        match written {
            "<" => self.push("less than"),
            ">" => self.push("greater than"),
            "*" if self.last_figure().is_some() && self.is_before_figure(at) => self.push("times"),
            _ => {}
        }
        self.is_joined = false;
    }

    fn is_before_figure(&self, at: usize) -> bool {
        self.written.get(at + 1).is_some_and(|next| starts_figure(next))
    }

    /// A unit, or half of the day, behind a figure. Returns how many words it has.
    fn behind_figure(&mut self, core: &str, at: usize) -> Option<usize> {
        let is_one = self.last_figure()?.is_one();
        if let Some(half) = day_half(core) {
            self.write_half(half);
            return Some(1);
        }
        let next = self.written.get(at + 1).map(|next| next.trim_end_matches(|c| CLOSING.contains(c)));
        if core == "sq"
            && let Some(said) = next.filter(|unit| matches!(*unit, "ft" | "mi" | "m" | "km" | "yd")).and_then(unit)
        {
            self.push(&format!("square {}", if is_one { said.0 } else { said.1 }));
            return Some(2);
        }
        let (one, several) = unit(core)?;
        self.push(if is_one { one } else { several });
        Some(1)
    }

    /// "am" or "pm". A point before it parts hours and minutes.
    fn write_half(&mut self, half: &str) {
        if let Some(Token::Figure(figure)) = self.tokens.last_mut()
            && let Some(minutes) = figure.hundredths().map(str::to_owned)
        {
            figure.parts.clear();
            if minutes != "00" {
                self.tokens.push(Token::Figure(Figure::plain(&minutes)));
            }
        }
        self.push(half);
    }

    /// What an abbreviation stands for.
    fn abbreviation(&self, core: &str, tail: &str, at: usize) -> Option<String> {
        let before = if at > 0 { self.written[at - 1] } else { "" };
        let after = self.written.get(at + 1).copied().unwrap_or_default();
        let lower = core.to_lowercase();
        let has_dot = tail.starts_with('.') && !tail.starts_with("..");
        if let Some((_, long)) = ABBREVIATIONS.iter().find(|(short, _)| *short == lower) {
            return Some((*long).to_owned());
        }
        if core == "Dr" {
            return Some("doctor".to_owned());
        }
        // "The No. 1 song", but "No. 5 is enough."
        let is_within = !before.is_empty() && !before.ends_with(['.', '!', '?', ',', ':']);
        if core == "No" && has_dot && is_within && after.starts_with(|c: char| c.is_ascii_digit()) {
            return Some("number".to_owned());
        }
        if let Some(state) = states::state(core, before, after) {
            return Some(state.to_owned());
        }
        let second_before = if at > 1 { self.written[at - 2] } else { "" };
        // One letter is rather a name: "Malcolm X".
        if core.len() > 1
            && let Some(number) = roman::numeral(core, second_before, before, after)
        {
            return Some(number);
        }
        if let Some(name) = dates::name(core, tail, before, after) {
            return Some(name);
        }
        // "It is apt." has no apartment.
        let is_read = core.starts_with(char::is_uppercase) && !NOT_READ.contains(&lower.as_str());
        titles::title(core, has_dot, before, after).filter(|_| is_read)
    }

    /// Reads a word without the punctuation around it, part by part.
    fn scan(&mut self, core: &str, at: usize) {
        let n_before = self.tokens.len();
        let mut rest = core;
        while let Some(c) = rest.chars().next() {
            let behind = &rest[c.len_utf8()..];
            let is_within_figures = self.tokens.len() > n_before && self.last_figure().is_some();
            let follows_letter = core[..core.len() - rest.len()].ends_with(char::is_alphanumeric);
            rest = if starts_figure(rest) || c == '.' && starts_figure(behind) && !follows_letter {
                self.figure(rest, at)
            } else if is_letter(c) {
                self.letters(rest, is_within_figures)
            } else if let Some(currency) = CURRENCIES.iter().find(|(sign, ..)| *sign == c) {
                self.tokens.push(Token::Currency(currency));
                behind
            } else if DASHES.contains(&c) {
                let is_before_figure = starts_figure(behind) || starts_money(behind);
                if is_within_figures && is_before_figure {
                    self.tokens.push(Token::Dash);
                } else if self.tokens.len() == n_before && is_before_figure {
                    self.push("minus");
                }
                behind
            } else {
                self.other_sign(c, behind, is_within_figures, at)
            };
        }
    }

    /// A sign that is no part of a figure. Returns what is behind it.
    fn other_sign<'t>(&mut self, sign: char, behind: &'t str, is_within_figures: bool, at: usize) -> &'t str {
        let figure_before = self.last_figure().is_some();
        match sign {
            '°' | '℃' | '℉' => {
                let scales = [("C", "degrees celsius"), ("F", "degrees fahrenheit")];
                let scale = scales.iter().find(|(letter, _)| sign == '°' && behind == *letter);
                match (scale, sign) {
                    (Some((_, said)), _) => self.push(said),
                    (None, '℃') => self.push(scales[0].1),
                    (None, '℉') => self.push(scales[1].1),
                    _ => self.push("degrees"),
                }
                if scale.is_some() { "" } else { behind }
            }
            '#' if starts_figure(behind) => {
                self.push("number");
                behind
            }
            '#' if behind.starts_with(char::is_alphabetic) => {
                self.push("hashtag");
                behind
            }
            '/' if behind.is_empty() && !is_within_figures && figure_before && self.is_before_figure(at) => {
                self.push("divided by");
                behind
            }
            _ => {
                if let Some((_, said)) = SIGNS.iter().find(|(known, _)| *known == sign) {
                    self.push(said);
                } else if let Some((_, said)) = FRACTIONS.iter().find(|(known, _)| *known == sign) {
                    if is_within_figures {
                        self.push("and");
                    }
                    self.push(said);
                }
                behind
            }
        }
    }

    /// Reads the figure at the beginning of a text, with what belongs to it. Returns what is behind.
    fn figure<'t>(&mut self, text: &'t str, at: usize) -> &'t str {
        let Some((mut figure, end)) = Figure::at_start_of(text) else { return "" };
        let rest = &text[end..];
        let suffix = |rest: &'t str, ends: &[&str]| {
            let end =
                ends.iter().find_map(|end| rest.get(..end.len()).filter(|start| start.eq_ignore_ascii_case(end)))?;
            let behind = &rest[end.len()..];
            (!behind.starts_with(char::is_alphanumeric)).then_some(behind)
        };
        if figure.is_plain() {
            if let Some(behind) = suffix(rest, &["st", "nd", "rd", "th"]) {
                figure.ending = Ending::Ordinal;
                self.tokens.push(Token::Figure(figure));
                return behind;
            }
            if let Some(behind) = suffix(rest, &["'s", "s"]) {
                figure.ending = Ending::Plural;
                self.tokens.push(Token::Figure(figure));
                return behind;
            }
            if let Some(behind) = self.time(&figure, rest, at) {
                return behind;
            }
            if let Some(behind) = self.fraction(&figure, rest) {
                return behind;
            }
        }
        let is_one = figure.is_one();
        let is_money = matches!(self.tokens.last(), Some(Token::Currency(_)));
        self.tokens.push(Token::Figure(figure));
        if let Some(half) = day_half(rest) {
            self.write_half(half);
            return "";
        }
        if let Some((_, scale)) =
            SCALE_LETTERS.iter().find(|(letters, _)| (is_money || *letters == "bn") && rest == *letters)
        {
            self.push(scale);
            return "";
        }
        let inches = (rest == "in").then_some(("inch", "inches"));
        if let Some((one, several)) = unit(rest).or(inches) {
            self.push(if is_one { one } else { several });
            return "";
        }
        rest
    }

    /// The minutes behind an hour, or the second part of a ratio. Returns what is behind them.
    fn time<'t>(&mut self, figure: &Figure, rest: &'t str, at: usize) -> Option<&'t str> {
        let rest = rest.strip_prefix(':').filter(|_| figure.whole.len() <= 2)?;
        let n_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, behind) = rest.split_at(n_digits);
        let second = Token::Figure(Figure::plain(digits));
        if n_digits == 1 {
            self.tokens.push(Token::Figure(Figure::plain(&figure.whole)));
            self.push("to");
            self.tokens.push(second);
            return Some(behind);
        }
        if n_digits != 2 {
            return None;
        }
        let hour = figure.whole.strip_prefix('0').filter(|hour| !matches!(*hour, "" | "0")).unwrap_or(&figure.whole);
        self.tokens.push(Token::Figure(Figure::plain(hour)));
        let next = self.written.get(at + 1).map_or("", |next| next.trim_end_matches(|c| CLOSING.contains(c)));
        let has_half = day_half(behind).is_some() || day_half(next).is_some();
        match digits {
            "00" if behind.starts_with(':') => self.tokens.push(second),
            "00" if !has_half && !next.eq_ignore_ascii_case("o'clock") => self.push("o'clock"),
            "00" => {}
            _ => self.tokens.push(second),
        }
        if let Some(half) = day_half(behind) {
            self.push(half);
            return Some("");
        }
        Some(behind)
    }

    /// "3/4" in words. Returns what is behind it.
    fn fraction<'t>(&mut self, figure: &Figure, rest: &'t str) -> Option<&'t str> {
        let rest = rest.strip_prefix('/')?;
        let n_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (under, behind) = rest.split_at(n_digits);
        let over = figure.value().filter(|over| *over > 0)?;
        let under: u64 = under.parse().ok().filter(|under| over < *under && !behind.starts_with('/'))?;
        let (_, one, several) = PARTS.iter().find(|(of, ..)| u64::from(*of) == under)?;
        // "1 1/2".
        if self.last_figure().is_some_and(Figure::is_plain) && self.is_joined {
            self.push("and");
        }
        self.push(&numbers::cardinal(over).join(" "));
        self.push(if over == 1 { one } else { several });
        Some(behind)
    }

    /// Reads the letters at the beginning of a text, with the dots between them. Returns what is behind.
    fn letters<'t>(&mut self, text: &'t str, is_behind_figure: bool) -> &'t str {
        let n_letters = |text: &str| text.find(|c| !is_letter(c)).unwrap_or(text.len());
        let mut rest = text;
        let mut parts = Vec::new();
        loop {
            let (part, behind) = rest.split_at(n_letters(rest));
            parts.push(part);
            rest = behind;
            match behind.strip_prefix('.').filter(|next| next.starts_with(is_letter)) {
                Some(next) => rest = next,
                None => break,
            }
        }
        let is_spelled = parts.len() > 1 && parts.iter().all(|part| is_spelled_letter(part));
        if is_spelled {
            let joined = parts.concat().to_lowercase();
            let letters = joined.split("").filter(|letter| !letter.is_empty());
            let is_together = SPELLED.contains(&joined.as_str()) || letters.clone().all(is_consonant);
            if is_together && !is_abbreviation(&joined) {
                self.push(&joined);
            } else {
                letters.for_each(|letter| self.push(letter));
            }
            return rest;
        }
        for (i, part) in parts.iter().enumerate() {
            if i > 0 && part.starts_with(char::is_lowercase) {
                self.push("dot");
            }
            match *part {
                // "4x4".
                "x" if is_behind_figure && starts_figure(rest) => self.push("by"),
                "US" if self.has_lowercase => self.push("u s"),
                part => self.push(part.trim_matches('\'')),
            }
        }
        rest
    }
}

fn starts_figure(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

/// "$5" and "$.50".
fn starts_money(text: &str) -> bool {
    let behind = CURRENCIES.iter().find_map(|(sign, ..)| text.strip_prefix(*sign));
    behind.is_some_and(|figure| starts_figure(figure.trim_start_matches('.')))
}

fn is_spelled_letter(part: &str) -> bool {
    part.chars().count() == 1 && part.starts_with(char::is_alphabetic)
}

/// Whether the character is part of a word, and no digit or sign.
fn is_letter(c: char) -> bool {
    let is_sign = || SIGNS.iter().any(|(sign, _)| *sign == c) || FRACTIONS.iter().any(|(sign, _)| *sign == c);
    c == '\'' || c.is_alphanumeric() && !c.is_ascii_digit() && !is_sign()
}

/// "am" or "pm" of "a.m." and "PM".
fn day_half(word: &str) -> Option<&'static str> {
    match word.to_lowercase().as_str() {
        "am" | "a.m" | "a.m." => Some("am"),
        "pm" | "p.m" | "p.m." => Some("pm"),
        _ => None,
    }
}

/// One and several of a unit. A single capital is rather a letter: "7 V".
fn unit(symbol: &str) -> Option<(&'static str, &'static str)> {
    let is_capital = symbol.len() == 1 && symbol.starts_with(char::is_uppercase);
    let (_, one, several) = UNITS.iter().find(|(written, ..)| *written == symbol && !is_capital)?;
    Some((one, several))
}

fn in_words(tokens: &[Token]) -> Vec<String> {
    let mut words = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let rest = &tokens[at..];
        at += match rest {
            [Token::Word(word), ..] => {
                words.push(word.clone());
                1
            }
            [
                Token::Currency(currency),
                Token::Figure(from),
                Token::Dash,
                Token::Currency(_),
                Token::Figure(to),
                ..,
            ]
            | [Token::Currency(currency), Token::Figure(from), Token::Dash, Token::Figure(to), ..] => {
                let n_tokens = if matches!(rest[3], Token::Currency(_)) { 5 } else { 4 };
                let is_whole = from.hundredths().is_none();
                words.extend(if is_whole { from.words(None) } else { money(from, currency, None).0 });
                words.push("to".to_owned());
                let (said, n_scales) = money(to, currency, rest.get(n_tokens));
                words.extend(said);
                n_tokens + n_scales
            }
            [Token::Currency(currency), Token::Figure(figure), ..] => {
                let (said, n_scales) = money(figure, currency, rest.get(2));
                words.extend(said);
                2 + n_scales
            }
            // A sign before a figure belongs to that.
            [Token::Figure(figure), Token::Currency(currency), behind @ ..]
                if !matches!(behind, [Token::Figure(_), ..]) =>
            {
                words.extend(money(figure, currency, None).0);
                2
            }
            [Token::Currency((_, _, several, _)), ..] => {
                words.push((*several).to_owned());
                1
            }
            [Token::Figure(figure), Token::Word(name), ..]
                if figure.hundredths().is_some() && written_currency(name).is_some() =>
            {
                let currency = written_currency(name).unwrap_or(&CURRENCIES[0]);
                words.extend(money(figure, currency, None).0);
                2
            }
            [Token::Figure(from), Token::Dash, Token::Figure(to), behind @ ..] => {
                words.extend(from.words(Some(&rest[2])));
                let is_row = at > 0 && is_numeric(&tokens[at - 1]) || behind.first().is_some_and(is_numeric);
                if !is_row && is_range(from, to) {
                    words.push("to".to_owned());
                }
                2
            }
            [Token::Figure(figure), ..] => {
                words.extend(figure.words(rest.get(1)));
                1
            }
            [Token::Dash, ..] | [] => 1,
        };
    }
    words
}

fn is_numeric(token: &Token) -> bool {
    matches!(token, Token::Figure(_) | Token::Dash)
}

/// "Dollars" and "euros" behind an amount with cents; pounds may be a weight.
fn written_currency(name: &str) -> Option<&'static Currency> {
    let mut known = CURRENCIES.iter().filter(|(sign, ..)| matches!(*sign, '$' | '€'));
    known.find(|(_, one, several, _)| [*one, *several].iter().any(|known| known.eq_ignore_ascii_case(name)))
}

/// An amount of money in words, and 1 if the token behind it is its scale.
fn money(figure: &Figure, &(_, _, several, cent): &Currency, next: Option<&Token>) -> (Vec<String>, usize) {
    let scale = match next {
        Some(Token::Word(word)) if numbers::is_scale(&word.to_lowercase()) => Some(word.clone()),
        _ => None,
    };
    let cents = figure.hundredths().filter(|_| scale.is_none() && !cent.is_empty());
    let Some(cents) = cents else {
        let mut words = figure.words(next.filter(|_| scale.is_some()));
        let n_scales = usize::from(scale.is_some());
        words.extend(scale);
        words.push(several.to_owned());
        return (words, n_scales);
    };
    let mut words = Vec::new();
    let is_whole = figure.whole.bytes().any(|digit| digit != b'0');
    if is_whole || cents == "00" {
        let whole = if figure.whole.is_empty() { "0" } else { &figure.whole };
        words = Figure { is_grouped: figure.is_grouped, ..Figure::plain(whole) }.words(None);
        words.push(several.to_owned());
    }
    if cents != "00" {
        words.extend(numbers::cardinal(cents.parse().unwrap_or_default()));
        words.push(if cent == "penny" { "pence".to_owned() } else { format!("{cent}s") });
    }
    (words, 0)
}

/// Whether a dash between two figures is said "to": "9-5", "10-15", but "555-0123", "50-50" and "24-7".
fn is_range(from: &Figure, to: &Figure) -> bool {
    let value = |figure: &Figure| {
        let is_number = figure.ending == Ending::None && figure.parts.len() <= 1 && !figure.whole.is_empty();
        let is_code = figure.whole.len() > 1 && figure.whole.starts_with('0');
        let decimals = figure.parts.first().map_or("0", String::as_str);
        let text = format!("{}.{decimals}", figure.whole);
        text.parse::<f64>().ok().filter(|_| is_number && !is_code)
    };
    let Some((low, high)) = value(from).zip(value(to)) else { return false };
    let lengths = (from.whole.len(), to.whole.len());
    let is_telephone = lengths == (3, 4) && !from.is_grouped && !to.is_grouped;
    let is_small = lengths.0 <= 2 && lengths.1 <= 2;
    let is_all_day = (low, high) == (24.0, 7.0);
    !is_telephone && !is_all_day && (low < high || is_small && low > high)
}
