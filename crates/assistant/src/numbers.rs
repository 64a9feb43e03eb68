//! Numbers as people say and write them, and as a voice says them back.
//!
//! `a hundred and twenty five`, `twelve hundred`, `one point five`, `two and a half`, `minus seven`, `a dozen`,
//! `three quarters`, `2.5 million`.

use crate::query::one_of;

/// A number found in some words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Number {
    pub(crate) value: f64,
    pub(crate) at: usize,
    pub(crate) len: usize,
    /// Said as a fraction: `half`, `three quarters`.
    pub(crate) fraction: bool,
}

impl Number {
    /// Index of the first word after it.
    pub(crate) fn end(&self) -> usize {
        self.at + self.len
    }
}

const SMALL: &str = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen \
    seventeen eighteen nineteen";
const TENS: &str = "- - twenty thirty forty fifty sixty seventy eighty ninety";
const ORDINALS: &str = "- first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth \
    fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth - - - - - - - - - thirtieth";

fn position(list: &str, word: &str) -> Option<usize> {
    list.split_whitespace().position(|name| name == word && name != "-")
}

/// Reads a number at the beginning of `words`.
pub(crate) fn read(words: &[String]) -> Option<Number> {
    if one_of(words.first()?, "minus|negative") {
        let number = read(&words[1..])?;
        return Some(Number { value: -number.value, len: number.len + 1, ..number });
    }
    let mut number = fraction(words).or_else(|| with_fraction(words))?;
    // `two and a half million`, `half a million`, `three dozen`.
    while let Some(by) = words.get(number.len).and_then(|word| scale(word)) {
        number = Number { value: number.value * by, len: number.len + 1, fraction: false, ..number };
    }
    Some(number)
}

/// All numbers in the words.
pub(crate) fn all(words: &[String]) -> Vec<Number> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        match read(&words[at..]) {
            Some(number) => {
                found.push(Number { at, ..number });
                at += number.len;
            }
            None => at += 1,
        }
    }
    found
}

/// At least `n` values where the words hold them: `one hundred and five` is two numbers where two are wanted.
pub(crate) fn at_least(words: &[String], n: usize) -> Vec<f64> {
    let values = |words: &[String]| all(words).iter().map(|number| number.value).collect::<Vec<_>>();
    let found = values(words);
    if found.len() >= n { found } else { words.split(|word| word == "and").flat_map(values).collect() }
}

/// `nineteen eighty four`, `twenty twenty six`, `nineteen oh five`, `2026`: a year at the beginning of the words.
pub(crate) fn year(words: &[String]) -> Option<i16> {
    let in_two = || {
        let (century, n) = below_hundred(words).filter(|(century, _)| (10.0..100.0).contains(century))?;
        let rest = &words[n..];
        let year = match rest.first()?.as_str() {
            "oh" | "o" => below_hundred(&rest[1..]).filter(|(year, _)| *year < 10.0),
            _ => below_hundred(rest).filter(|(year, _)| *year >= 10.0),
        }?;
        Some(century * 100.0 + year.0)
    };
    let value = in_two().or_else(|| read(words).map(|number| number.value))?;
    ((1.0..=9999.0).contains(&value) && value.fract() == 0.0).then_some(value as i16)
}

/// `half`, `a half`, `a quarter`, `half a` (million).
fn fraction(words: &[String]) -> Option<Number> {
    let word = |i: usize| words.get(i).map_or("", String::as_str);
    let article = usize::from(one_of(word(0), "a|an|one"));
    let (value, _) = denominator(word(article)).filter(|(_, plural)| !plural)?;
    if article == 0 && !one_of(word(0), "half|quarter") {
        return None;
    }
    let scaled = one_of(word(article + 1), "a|an") && scale(word(article + 2)).is_some();
    Some(Number { value: 1.0 / value, at: 0, len: article + 1 + usize::from(scaled), fraction: true })
}

/// A cardinal, then a plural denominator, or `and a half`, `and three quarters`.
fn with_fraction(words: &[String]) -> Option<Number> {
    let (mut value, mut len) = cardinal(words)?;
    let over = |words: &[String], numerator: f64| {
        let (value, plural) = denominator(words.first()?)?;
        (plural && numerator >= 2.0 && numerator < value * 10.0 && numerator.fract() == 0.0)
            .then_some(numerator / value)
    };
    if let Some(value) = over(&words[len..], value) {
        return Some(Number { value, at: 0, len: len + 1, fraction: true });
    }
    if let Some(rest) = words[len..].strip_prefix(&["and".to_owned()]) {
        let part = fraction(rest).map(|part| (part.value, part.len)).or_else(|| {
            let (numerator, n) = cardinal(rest)?;
            Some((over(&rest[n..], numerator)?, n + 1))
        });
        if let Some((part, n)) = part.filter(|(part, _)| *part < 1.0) {
            value += part;
            len += 1 + n;
        }
    }
    Some(Number { value, at: 0, len, fraction: false })
}

/// A whole number, perhaps with decimals.
fn cardinal(words: &[String]) -> Option<(f64, usize)> {
    let word = |i: usize| words.get(i).map_or("", String::as_str);
    let mut total = 0.0;
    let mut len = 0;
    let mut limit = f64::INFINITY;
    if word(0) != "point" || decimals(&words[1..]).is_none() {
        loop {
            let and = usize::from(len > 0 && word(len) == "and");
            let group = words.get(len + and..).and_then(group).filter(|(value, _)| len == 0 || *value > 0.0);
            let Some((value, n)) = group.filter(|(_, n)| and == 0 || denominator(word(len + 1 + n)).is_none()) else {
                break;
            };
            let by = scale(word(len + and + n)).filter(|by| *by > 100.0 && *by < limit);
            if by.is_none() && value >= limit {
                break;
            }
            total += value * by.unwrap_or(1.0);
            len += and + n + usize::from(by.is_some());
            let Some(by) = by else { break };
            limit = by;
        }
        if len == 0 {
            return None;
        }
    }
    if one_of(word(len), "point|dot")
        && let Some((decimals, n)) = decimals(&words[len + 1..])
    {
        total += decimals;
        len = len + 1 + n;
    }
    Some((total, len))
}

/// `a hundred and five`, `twelve hundred`, `thousand`, `250`: what may stand before a scale word.
fn group(words: &[String]) -> Option<(f64, usize)> {
    let word = |i: usize| words.get(i).map_or("", String::as_str);
    let is_written = word(0).starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let (mut value, mut len) = match word(0) {
        "a" | "an" if one_of(word(1), "couple|pair") => return Some((2.0, 2 + usize::from(word(2) == "of"))),
        "a" | "an" if scale(word(1)).is_some() => (1.0, 1),
        "hundred" | "thousand" | "million" | "billion" | "trillion" | "dozen" => (1.0, 0),
        written if is_written => (written.parse().ok()?, 1),
        _ => below_hundred(words)?,
    };
    if word(len) == "hundred" && value < 100.0 {
        value *= 100.0;
        len += 1;
        let and = usize::from(word(len) == "and");
        let rest = words.get(len + and..).and_then(below_hundred).filter(|(rest, _)| *rest > 0.0);
        if let Some((rest, n)) = rest.filter(|(_, n)| and == 0 || denominator(word(len + 1 + n)).is_none()) {
            value += rest;
            len = len + and + n;
        }
    }
    Some((value, len))
}

fn below_hundred(words: &[String]) -> Option<(f64, usize)> {
    let small = |i: usize| words.get(i).and_then(|word| position(SMALL, word));
    if let Some(n) = small(0) {
        return Some((n as f64, 1));
    }
    let tens = position(TENS, words.first()?)? * 10;
    let unit = small(1).filter(|unit| (1..10).contains(unit));
    Some(((tens + unit.unwrap_or(0)) as f64, 1 + usize::from(unit.is_some())))
}

/// The digits after `point`: `one four`, `fourteen`, `oh five`, `25`.
fn decimals(words: &[String]) -> Option<(f64, usize)> {
    let mut text = String::from("0.");
    let mut n = 0;
    while let Some(word) = words.get(n) {
        match below_hundred(&words[n..]) {
            Some((digit, _)) if digit < 10.0 => text.push_str(&digit.to_string()),
            Some((value, len)) if n == 0 => {
                text.push_str(&value.to_string());
                n += len - 1;
            }
            None if one_of(word, "oh|o") => text.push('0'),
            None if word.bytes().all(|byte| byte.is_ascii_digit()) => text.push_str(word),
            _ => break,
        }
        n += 1;
    }
    if n == 0 { None } else { text.parse().ok().map(|value| (value, n)) }
}

fn scale(word: &str) -> Option<f64> {
    #[rustfmt::skip]
    const SCALES: [(&str, f64); 6] = [
        ("dozen", 12.0), ("hundred", 1e2), ("thousand", 1e3), ("million|millions", 1e6), ("billion|billions", 1e9),
        ("trillion|trillions", 1e12),
    ];
    SCALES.iter().find(|(names, _)| one_of(word, names)).map(|(_, value)| *value)
}

/// A denominator, and whether it is a plural.
fn denominator(word: &str) -> Option<(f64, bool)> {
    let one = |word: &str| match word {
        "half" | "halve" => Some(2.0),
        "third" => Some(3.0),
        "quarter" => Some(4.0),
        _ => ordinal(word).filter(|value| (4..=100).contains(value)).map(f64::from),
    };
    let plural = word.strip_suffix('s').and_then(one).map(|value| (value, true));
    plural.or_else(|| one(word).map(|value| (value, false)))
}

/// `first`, `twelfth`, `25th`. Two words (`twenty first`): [`ordinal_at`].
fn ordinal(word: &str) -> Option<u32> {
    let written = || word.strip_suffix("th").and_then(|digits| digits.parse().ok());
    position(ORDINALS, word).map(|n| n as u32).or_else(written)
}

/// An ordinal at the beginning of the words, and how many words it has.
pub(crate) fn ordinal_at(words: &[String]) -> Option<(u32, usize)> {
    let first = words.first()?;
    let in_two = || {
        let tens = position(TENS, first)? as u32 * 10;
        Some((tens + ordinal(words.get(1)?).filter(|unit| *unit < 10)?, 2))
    };
    ordinal(first).map(|value| (value, 1)).or_else(in_two)
}

/// The first ordinal in the words.
pub(crate) fn ordinal_in(words: &[String]) -> Option<u32> {
    (0..words.len()).find_map(|at| ordinal_at(&words[at..])).map(|(value, _)| value)
}

/// `third` for 3.
pub(crate) fn ordinal_word(n: usize) -> String {
    ORDINALS.split_whitespace().nth(n).map_or_else(|| format!("{n}th"), str::to_owned)
}

/// `sevens` is 7, as in "six sevens" and "count by sevens".
pub(crate) fn plural(word: &str) -> Option<f64> {
    let singular = word.strip_suffix("ies").map(|stem| format!("{stem}y")).or_else(|| {
        Some(word.strip_suffix("xes").map_or(word.strip_suffix('s')?.to_owned(), |stem| format!("{stem}x")))
    })?;
    group(&[singular]).map(|(value, _)| value)
}

/// The number for a voice, rounded to at most `n_decimals` decimals, and whether that is exact. Values below one keep
/// three significant digits.
pub(crate) fn say(value: f64, n_decimals: usize) -> (String, bool) {
    if !value.is_finite() {
        return ("too large for me".into(), false);
    }
    if value.abs() >= 1e15 {
        let text = format!("{value:.4e}").replace('e', " times 10 to the power of ");
        return (text.replace('-', "minus "), false);
    }
    let within = |decimals: usize| {
        let text = format!("{value:.decimals$}");
        let error = (text.parse::<f64>().unwrap_or(f64::NAN) - value).abs();
        (text, error <= value.abs().max(1e-3) * 1e-9)
    };
    let leading = if value != 0.0 && value.abs() < 1.0 { (-value.abs().log10()).ceil() as usize + 2 } else { 0 };
    let n_decimals = n_decimals.max(leading.min(12));
    let (text, exact) =
        (0..=n_decimals + 1).map(within).find(|(_, exact)| *exact).unwrap_or_else(|| within(n_decimals));
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    (if text == "-0" { "0".to_owned() } else { text.replace('-', "minus ") }, exact)
}
