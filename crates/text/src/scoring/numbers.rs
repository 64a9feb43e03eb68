//! Brings numbers that are said in words to one form: "twenty twenty-four" and "two thousand and twenty four" are 2024.
//!
//! `scoring` passes it words in lower case without digits, and gets words again. Pure. It never changes which digits a
//! number has.
//!
//! Numbers that stand side by side are one row of digits, as they are heard. A row of three digits and more is written
//! digit by digit, so that two rows that differ in one digit differ in one word; hundreds and thousands keep their
//! names. From a million on a number is written as "two point five million".

use crate::number_words::{ONES, TENS, one, ten};

const MILLION: u64 = 1_000_000;
/// Names of scales, the largest first.
const SCALES: [(&str, u64); 4] =
    [("trillion", MILLION * MILLION), ("billion", 1_000 * MILLION), ("million", MILLION), ("thousand", 1_000)];
/// Ordinals of [`ONES`] that are not the name and "th"; the first is that of one.
const FIRST_ORDINALS: [&str; 12] = [
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth",
];
/// More decimals of a million than these are not said.
const MAX_DECIMALS: usize = 3;
/// Currencies, singular and plural, which one written sign stands for.
const CURRENCIES: [(&str, &str); 4] =
    [("dollar", "dollars"), ("euro", "euros"), ("pound", "pounds"), ("cent", "cents")];
const CENTS: [&str; 4] = ["cent", "cents", "pence", "penny"];

/// Whether a number goes on, or is scaled, with this word.
pub(super) fn is_scale(word: &str) -> bool {
    word == "hundred" || scale(word).is_some()
}

/// Whether the word names a number or a scale.
pub(super) fn is_number(word: &str) -> bool {
    one(word).is_some() || ten(word).is_some() || is_scale(word)
}

/// "1250" is "one thousand two hundred fifty".
pub(super) fn cardinal(n: u64) -> Vec<String> {
    if n == 0 {
        return vec![ONES[0].to_owned()];
    }
    let mut words = Vec::new();
    let mut rest = n;
    for (name, worth) in SCALES {
        if rest >= worth {
            words.extend(cardinal(rest / worth));
            words.push(name.to_owned());
            rest %= worth;
        }
    }
    if rest >= 100 {
        words.extend([ONES[(rest / 100) as usize].to_owned(), "hundred".to_owned()]);
        rest %= 100;
    }
    if rest >= 20 {
        words.push(TENS[(rest / 10 - 2) as usize].to_owned());
        rest %= 10;
    }
    if rest > 0 {
        words.push(ONES[rest as usize].to_owned());
    }
    words
}

/// "21" is "twenty first".
pub(super) fn ordinal(n: u64) -> Vec<String> {
    let mut words = cardinal(n);
    if let Some(last) = words.last_mut() {
        let first = one(last).and_then(|n| n.checked_sub(1)).and_then(|n| FIRST_ORDINALS.get(n));
        *last = match (first, last.strip_suffix('y')) {
            (Some(ordinal), _) => (*ordinal).to_owned(),
            (None, Some(stem)) => format!("{stem}ieth"),
            (None, None) => format!("{last}th"),
        };
    }
    words
}

/// "042" is "zero four two".
pub(super) fn digits(digits: &str) -> Vec<String> {
    digits.bytes().map(|digit| ONES[usize::from(digit - b'0')].to_owned()).collect()
}

/// A number from a million on: "two point five million".
pub(super) fn amount(value: u64) -> Vec<String> {
    let (name, worth) = SCALES.into_iter().find(|(_, worth)| value >= *worth).unwrap_or(("", 1));
    let rest = format!("{:0width$}", value % worth, width = worth.ilog10() as usize);
    let decimals = rest.trim_end_matches('0');
    if worth < MILLION || value / worth >= 1_000 || decimals.len() > MAX_DECIMALS {
        return digits(&value.to_string());
    }
    let mut words = cardinal(value / worth);
    if !decimals.is_empty() {
        words.push("point".to_owned());
        words.extend(digits(decimals));
    }
    words.push(name.to_owned());
    words
}

/// The words with their numbers in one form.
pub(super) fn normal_form(words: &[String]) -> Vec<String> {
    let mut form = NormalForm { words: Words::of(words), out: Vec::with_capacity(words.len()) };
    let mut at = 0;
    while at < words.len() {
        at = form.next(at);
    }
    form.out
}

/// A number in words.
#[derive(Debug)]
enum Number {
    /// Its digits, and whether they were said one by one.
    Digits(String, bool),
    /// From a million on.
    Amount(u64),
    Ordinal(u64),
}

/// Numbers side by side, as one row of digits.
struct Row {
    digits: String,
    /// It is one number below a hundred, which has a name.
    is_one: bool,
    /// Place of the word behind it.
    end: usize,
}

impl Row {
    fn words(&self) -> Vec<String> {
        let text = &self.digits;
        if self.is_one && text.len() <= 2 {
            return cardinal(text.parse().unwrap_or_default());
        }
        let (head, scale) = match text.len() {
            _ if text.starts_with('0') => return digits(text),
            4..=6 if text.ends_with("000") => (&text[..text.len() - 3], "thousand"),
            3 | 4 if text.ends_with("00") => (&text[..text.len() - 2], "hundred"),
            _ => return digits(text),
        };
        let mut words = cardinal(head.parse().unwrap_or_default());
        words.push(scale.to_owned());
        words
    }
}

/// "Twenty one", "five hundred and six".
struct Group {
    value: u64,
    n_words: usize,
    is_ordinal: bool,
}

/// Words from which numbers are read.
struct Words<'a> {
    words: &'a [String],
    /// Which of them are an "oh" that is a zero.
    zeros: Vec<bool>,
}

impl<'a> Words<'a> {
    fn of(words: &'a [String]) -> Self {
        let mut known = Self { words, zeros: vec![false; words.len()] };
        // From the end: whether one is a zero is up to those behind it.
        for place in (0..words.len()).rev().filter(|place| words[*place] == "oh") {
            known.zeros[place] = known.precedes_number(place);
        }
        known
    }

    fn at(&self, place: usize) -> &str {
        self.words.get(place).map_or("", String::as_str)
    }

    /// The digit here.
    fn digit(&self, at: usize) -> Option<usize> {
        if self.at(at) == "oh" { self.zeros[at].then_some(0) } else { one(self.at(at)).filter(|n| *n < 10) }
    }

    /// Whether a number, or a point and its digits, stand behind an "oh".
    fn precedes_number(&self, oh: usize) -> bool {
        let next = oh + 1;
        self.starts_digits(next)
            || self.below_hundred(next).is_some_and(|number| !number.is_ordinal)
            || self.at(next) == "point" && self.digit(next + 1).is_some()
    }

    /// A digit that is said several times: "double five".
    fn repeated(&self, at: usize) -> Option<String> {
        let n_times = match self.at(at) {
            "double" => 2,
            "triple" => 3,
            _ => return None,
        };
        let digit = self.digit(at + 1).filter(|_| !is_scale(self.at(at + 2)))?;
        Some(digit.to_string().repeat(n_times))
    }

    /// Whether digits are said one by one from here.
    fn starts_digits(&self, at: usize) -> bool {
        self.digit(at).is_some() || self.repeated(at).is_some()
    }

    /// A number from 1 to 99.
    fn below_hundred(&self, at: usize) -> Option<Group> {
        let unit = |word: &str| FIRST_ORDINALS.iter().position(|ordinal| *ordinal == word).map(|n| n as u64 + 1);
        let word = self.at(at);
        if let Some(tens) = ten(word) {
            let tens = tens as u64;
            let next = self.at(at + 1);
            if let Some(n) = one(next).filter(|n| (1..10).contains(n)) {
                return Some(Group { value: tens + n as u64, n_words: 2, is_ordinal: false });
            }
            let ordinal = unit(next).filter(|n| *n < 10);
            return Some(Group {
                value: tens + ordinal.unwrap_or(0),
                n_words: 1 + usize::from(ordinal.is_some()),
                is_ordinal: ordinal.is_some(),
            });
        }
        if let Some(n) = one(word).filter(|n| *n > 0) {
            return Some(Group { value: n as u64, n_words: 1, is_ordinal: false });
        }
        let value = unit(word)
            .or_else(|| one(word.strip_suffix("th")?).filter(|n| *n > 12).map(|n| n as u64))
            .or_else(|| ten(&format!("{}y", word.strip_suffix("ieth")?)).map(|n| n as u64))?;
        Some(Group { value, n_words: 1, is_ordinal: true })
    }

    /// What may stand before a scale: "a", "twenty one", "five hundred and six".
    fn group(&self, at: usize) -> Option<Group> {
        let named = |word: &str| is_scale(word) || word.strip_suffix("th").is_some_and(is_scale);
        let mut group = match self.at(at) {
            "a" if named(self.at(at + 1)) => Group { value: 1, n_words: 1, is_ordinal: false },
            word if word.ends_with("th") && named(word) => Group { value: 1, n_words: 0, is_ordinal: false },
            _ => self.below_hundred(at)?,
        };
        match self.at(at + group.n_words) {
            _ if group.is_ordinal => {}
            "hundredth" => {
                group = Group { value: 100 * group.value, n_words: group.n_words + 1, is_ordinal: true };
            }
            "hundred" => {
                group.value *= 100;
                group.n_words += 1;
                let joint = usize::from(self.at(at + group.n_words) == "and");
                let rest_at = at + group.n_words + joint;
                let rest = self.below_hundred(rest_at).filter(|rest| {
                    let next = rest_at + rest.n_words;
                    !matches!(self.at(next), "hundred" | "hundredth") && !self.is_row(rest, next)
                });
                if let Some(rest) = rest {
                    group.value += rest.value;
                    group.n_words += joint + rest.n_words;
                    group.is_ordinal = rest.is_ordinal;
                }
            }
            _ => {}
        }
        Some(group)
    }

    /// Whether a group is the first digit of a row: "eight hundred, five five five".
    fn is_row(&self, group: &Group, next: usize) -> bool {
        group.value < 10 && !group.is_ordinal && self.starts_digits(next)
    }

    /// A number, with the place behind it. `None`: there is none, or it is zero.
    fn number(&self, start: usize) -> Option<(Number, usize)> {
        if let Some((value, end)) = self.scaled_decimal(start) {
            return Some((of_value(value), end));
        }
        let group = self.group(start)?;
        let mut at = start + group.n_words;
        if group.is_ordinal {
            return Some((Number::Ordinal(group.value), at));
        }
        let mut total = 0;
        let mut last = u64::MAX;
        let mut value = group.value;
        loop {
            if let Some(worth) = self.at(at).strip_suffix("th").and_then(scale).filter(|worth| *worth < last) {
                return Some((Number::Ordinal(total + value * worth), at + 1));
            }
            let fits = |worth: &u64| *worth < last || is_of_all(total, last, *worth);
            let Some(worth) = scale(self.at(at)).filter(fits) else { break };
            total = if worth < last { total + value * worth } else { (total + value) * worth };
            last = worth;
            value = 0;
            at += 1;
            let joint = usize::from(self.at(at) == "and");
            let next_at = at + joint;
            let Some(next) = self.group(next_at).filter(|next| next.n_words > 0) else { break };
            let behind = next_at + next.n_words;
            let next_scale = scale(self.at(behind)).or_else(|| self.at(behind).strip_suffix("th").and_then(scale));
            let fits = next_scale.is_none_or(|worth| worth < last || joint == 0 && is_of_all(total, last, worth));
            if !fits || next_scale.is_none() && self.is_row(&next, behind) {
                break;
            }
            if next.is_ordinal {
                return Some((Number::Ordinal(total + next.value), behind));
            }
            value = next.value;
            at = behind;
        }
        Some((of_value(total + value), at))
    }

    /// "Two point five million".
    fn scaled_decimal(&self, start: usize) -> Option<(u64, usize)> {
        let is_zero = self.digit(start) == Some(0);
        let whole = self.group(start).filter(|group| !group.is_ordinal && group.n_words > 0);
        let (value, n_words) = if is_zero { (0, 1) } else { whole.map(|group| (group.value, group.n_words))? };
        let point = start + n_words;
        if self.at(point) != "point" {
            return None;
        }
        let decimals: String = (point + 1..).map_while(|at| self.digit(at)).map(|digit| digit.to_string()).collect();
        let end = point + 1 + decimals.len();
        let worth = scale(self.at(end)).filter(|_| !decimals.is_empty())?;
        let width = worth.ilog10() as usize;
        let decimals = format!("{decimals:0<width$}");
        let fraction = decimals.parse::<u64>().ok().filter(|_| decimals.len() == width)?;
        Some((value * worth + fraction, end + 1))
    }

    /// A number, a zero, or a digit that is said several times.
    fn item(&self, at: usize) -> Option<(Number, usize)> {
        if let Some(digits) = self.repeated(at) {
            return Some((Number::Digits(digits, true), at + 2));
        }
        let number = self.number(at);
        let zero = || self.digit(at).map(|digit| (Number::Digits(digit.to_string(), true), at + 1));
        number.or_else(zero)
    }

    /// The numbers from here on. Behind a point an "oh" is a zero.
    fn row(&self, start: usize, is_behind_point: bool) -> Option<Row> {
        let mut row = Row { digits: String::new(), is_one: true, end: start };
        if is_behind_point && self.at(start) == "oh" {
            row = Row { digits: "0".to_owned(), is_one: false, end: start + 1 };
        }
        while let Some((Number::Digits(digits, is_spelled), end)) = self.item(row.end) {
            row.is_one = row.end == start && !is_spelled;
            row.digits.push_str(&digits);
            row.end = end;
        }
        (row.end > start).then_some(row)
    }
}

fn scale(word: &str) -> Option<u64> {
    SCALES.iter().find(|(name, _)| *name == word).map(|(_, worth)| *worth)
}

/// Whether a scale is that of the whole number before it: "seven thousand nine hundred million".
fn is_of_all(total: u64, last: u64, worth: u64) -> bool {
    total < MILLION && last == 1_000 && worth > last
}

fn of_value(value: u64) -> Number {
    if value < MILLION { Number::Digits(value.to_string(), false) } else { Number::Amount(value) }
}

fn plural(word: &str) -> Option<&'static str> {
    CURRENCIES.iter().find(|(one, several)| [*one, *several].contains(&word)).map(|(_, several)| *several)
}

struct NormalForm<'a> {
    words: Words<'a>,
    out: Vec<String>,
}

impl NormalForm<'_> {
    /// Writes what stands at a place, and returns the place behind it.
    fn next(&mut self, at: usize) -> usize {
        if let Some(row) = self.words.row(at, false) {
            return self.write_row(&row, at);
        }
        if self.words.at(at) == "point"
            && let Some(row) = self.words.row(at + 1, true)
        {
            self.out.push("point".to_owned());
            self.out.extend(digits(&row.digits));
            return self.write_currency(row.end);
        }
        match self.words.item(at) {
            Some((Number::Amount(value), end)) => {
                self.out.extend(amount(value));
                self.write_currency(end)
            }
            Some((Number::Ordinal(n), end)) => {
                self.out.extend(ordinal(n));
                end
            }
            _ => {
                self.out.push(self.words.at(at).to_owned());
                at + 1
            }
        }
    }

    fn write_row(&mut self, row: &Row, start: usize) -> usize {
        // "Zero point five" is often said, and written, without its zero.
        let is_whole_zero = row.digits == "0" && self.words.at(row.end) == "point";
        if is_whole_zero && self.words.row(row.end + 1, true).is_some() && !self.is_behind_number(start) {
            return row.end;
        }
        self.out.extend(row.words());
        self.write_currency(row.end)
    }

    fn is_behind_number(&self, at: usize) -> bool {
        at.checked_sub(1).is_some_and(|before| {
            let word = self.words.at(before);
            is_number(word) || word == "point" || self.words.below_hundred(before).is_some()
        })
    }

    /// A currency behind a number. One sign stands for "dollar" and "dollars", "$5.50" for "five dollars fifty" and
    /// "five dollars and fifty cents", "$5 to $10" for "five to ten dollars".
    fn write_currency(&mut self, at: usize) -> usize {
        let Some(currency) = plural(self.words.at(at)) else { return at };
        let mut end = at + 1;
        if currency != "cents" {
            let upper = (self.words.at(end) == "to").then(|| self.words.item(end + 1)).flatten();
            if upper.is_some_and(|(_, end)| plural(self.words.at(end)) == Some(currency)) {
                return end;
            }
        }
        self.out.push(currency.to_owned());
        if currency == "cents" {
            return end;
        }
        let joint = usize::from(self.words.at(end) == "and");
        let Some(row) = self.words.row(end + joint, false).filter(|row| row.digits.len() <= 2) else { return end };
        let mut behind = row.end;
        while CENTS.contains(&self.words.at(behind)) {
            behind += 1;
        }
        let goes_on = self.words.at(behind) == "point" || self.words.item(behind).is_some();
        if behind > row.end && !goes_on {
            self.out.extend(row.words());
            end = behind;
        }
        end
    }
}
