//! Numbers as people say and write them, read and written.
//!
//! `a hundred and twenty five`, `twelve hundred`, `one point five`, `two and a half`, `minus seven`, `a dozen`,
//! `three quarters`, `2.5 million`, and the homophones a recognizer writes (`to`, `for`, `won`, `ate`).

use super::number_words::{Last, denominator, scale, small};
use super::query::one_of;

pub(super) use super::number_words::{ordinal_at, plural, say_ordinal};

/// A number found at the beginning of some words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    pub value: f64,
    /// How many words it took.
    pub len: usize,
    /// Said as a fraction: `half`, `three quarters`.
    pub fraction: bool,
}

/// How freely to read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    /// `to` for two, `for` for four: where a number must stand.
    pub homophones: bool,
    /// `nineteen eighty four` is 1984.
    pub years: bool,
    /// `and` ends a number: `between one hundred and five`.
    pub and_separates: bool,
}

/// The plain reading.
pub(super) const STRICT: Reading = Reading { homophones: false, years: false, and_separates: false };
/// Where a number must stand.
pub(super) const LENIENT: Reading = Reading { homophones: true, ..STRICT };
/// Where a year may stand.
pub(super) const YEARS: Reading = Reading { years: true, ..STRICT };

/// Reads a number at the beginning of `words`.
pub(super) fn read(words: &[String], how: Reading) -> Option<Found> {
    let first = words.first()?.as_str();
    if one_of(first, "minus|negative|-") {
        let found = read(&words[1..], how)?;
        return Some(Found { value: -found.value, len: found.len + 1, ..found });
    }
    let found = match fraction(words) {
        Some(found) => found,
        None => with_fraction(words, how)?,
    };
    Some(scaled(words, found))
}

/// All numbers in the words, in order, with the place of each.
pub(super) fn all(words: &[String], how: Reading) -> Vec<(usize, Found)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        match read(&words[at..], how) {
            Some(number) => {
                found.push((at, number));
                at += number.len;
            }
            None => at += 1,
        }
    }
    found
}

/// The numbers of a list said with `and`: `one hundred and five` is two numbers where two are wanted.
pub(super) fn at_least(words: &[String], n: usize) -> Vec<f64> {
    let values = |how| all(words, how).into_iter().map(|(_, found)| found.value).collect::<Vec<_>>();
    let found = values(STRICT);
    if found.len() >= n { found } else { values(Reading { and_separates: true, ..STRICT }) }
}

/// `half`, `a half`, `a quarter`, `half a` (million).
fn fraction(words: &[String]) -> Option<Found> {
    let word = |i: usize| words.get(i).map_or("", String::as_str);
    let article = usize::from(one_of(word(0), "a|an|one"));
    let value = denominator(word(article)).filter(|(_, plural)| !plural).map(|(value, _)| value)?;
    if article == 0 && word(0) != "half" && word(0) != "quarter" {
        return None;
    }
    let mut len = article + 1;
    if one_of(word(len), "a|an") && (scale(word(len + 1)).is_some() || word(len + 1) == "dozen") {
        len += 1;
    }
    Some(Found { value: 1.0 / value, len, fraction: true })
}

/// A cardinal, then `and a half`, `and three quarters`, or a denominator.
fn with_fraction(words: &[String], how: Reading) -> Option<Found> {
    let (mut value, mut len) = cardinal(words, how)?;
    let word = |i: usize| words.get(i).map_or("", String::as_str);
    if let Some((denominator, plural)) = denominator(word(len))
        && plural
        && value >= 2.0
        && value < denominator * 10.0
        && value.fract() == 0.0
    {
        return Some(Found { value: value / denominator, len: len + 1, fraction: true });
    }
    if word(len) == "and" {
        let rest = &words[len + 1..];
        let part = fraction(rest).or_else(|| {
            let (numerator, n) = cardinal(rest, how)?;
            let (denominator, plural) = denominator(rest.get(n)?)?;
            (plural && numerator < denominator).then_some(Found {
                value: numerator / denominator,
                len: n + 1,
                fraction: true,
            })
        });
        if let Some(part) = part.filter(|part| part.value < 1.0) {
            value += part.value;
            len += 1 + part.len;
        }
    }
    Some(Found { value, len, fraction: false })
}

/// `two and a half million`, `half a million`, `three dozen`.
fn scaled(words: &[String], mut found: Found) -> Found {
    while let Some(word) = words.get(found.len) {
        let Some(by) = scale(word).or((word == "dozen").then_some(12.0)) else { break };
        found.value *= by;
        found.len += 1;
        found.fraction = false;
    }
    found
}

fn cardinal(words: &[String], how: Reading) -> Option<(f64, usize)> {
    let (mut total, mut current) = (0.0, 0.0);
    let mut last = Last::Nothing;
    let mut at = 0;
    while let Some(word) = words.get(at).map(String::as_str) {
        let next = words.get(at + 1).map_or("", String::as_str);
        if last == Last::Nothing
            && one_of(word, "a|an")
            && one_of(next, "hundred|thousand|million|billion|trillion|dozen|couple|pair")
        {
            current = 1.0;
            last = Last::Unit;
        } else if let Some(value) =
            word.parse::<f64>().ok().filter(|_| word.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
        {
            if last != Last::Nothing && !(last == Last::Scale && value < 1000.0) {
                break;
            }
            current += value;
            last = Last::Digits;
        } else if let Some((value, kind)) = small(word, how, last) {
            let year = how.years
                && total == 0.0
                && (10.0..100.0).contains(&current)
                && matches!(last, Last::Teen | Last::Tens | Last::Unit);
            match (last, kind) {
                (Last::Nothing | Last::Scale, _) | (Last::Tens, Last::Unit) => current += value,
                _ if year && kind != Last::Unit => current = current * 100.0 + value,
                _ => break,
            }
            // `zero` and `twenty zero` go on with nothing but a point.
            last = if value == 0.0 { Last::Digits } else { kind };
        } else if how.years && one_of(word, "oh|o") && (10.0..100.0).contains(&current) && total == 0.0 {
            let Some((unit, Last::Unit)) = small(next, STRICT, Last::Nothing) else { break };
            return Some((current * 100.0 + unit, at + 2));
        } else if one_of(word, "hundred|hundreds") {
            if current >= 100.0 || (last == Last::Nothing && word == "hundreds") {
                break;
            }
            current = if current == 0.0 { 100.0 } else { current * 100.0 };
            last = Last::Scale;
        } else if let Some(by) =
            scale(word).filter(|_| last != Last::Nothing || one_of(word, "thousand|million|billion|trillion"))
        {
            if total != 0.0 && by >= total {
                break;
            }
            total += if current == 0.0 { by } else { current * by };
            current = 0.0;
            last = Last::Scale;
        } else if one_of(word, "couple|pair") && last == Last::Unit {
            current = 2.0;
            at += usize::from(next == "of");
            last = Last::Digits;
        } else if word == "and" && last == Last::Scale && !how.and_separates {
            let part_of_it = small(next, STRICT, Last::Nothing).is_some()
                && denominator(words.get(at + 2).map_or("", String::as_str)).is_none();
            if !part_of_it {
                break;
            }
        } else if one_of(word, "point|dot") {
            let Some((decimals, n)) = decimals(&words[at + 1..], how) else { break };
            return Some((total + current + decimals, at + 1 + n));
        } else {
            break;
        }
        at += 1;
    }
    (last != Last::Nothing).then_some((total + current, at))
}

/// The digits after `point`: `one four`, `fourteen`, `oh five`, `25`.
fn decimals(words: &[String], how: Reading) -> Option<(f64, usize)> {
    let mut text = String::from("0.");
    let mut n = 0;
    while let Some(word) = words.get(n) {
        let digit = match small(word, how, Last::Nothing) {
            Some((value, Last::Unit | Last::Digits)) => format!("{value}"),
            Some((value, _)) if n == 0 => match words.get(1).and_then(|word| small(word, STRICT, Last::Nothing)) {
                Some((unit, Last::Unit)) if value >= 20.0 => {
                    n += 1;
                    format!("{}", value + unit)
                }
                _ => format!("{value}"),
            },
            _ if one_of(word, "oh|o") => "0".to_owned(),
            _ if word.bytes().all(|byte| byte.is_ascii_digit()) => word.clone(),
            _ => break,
        };
        text.push_str(&digit);
        n += 1;
    }
    if n == 0 { None } else { text.parse().ok().map(|value| (value, n)) }
}

/// The number for a voice, rounded to at most so many decimals, and whether that is exact.
pub(super) fn say(value: f64, n_decimals: usize) -> (String, bool) {
    if !value.is_finite() {
        return ("too large for me".into(), false);
    }
    if value.abs() >= 1e15 {
        let exponent = value.abs().log10().floor();
        let mantissa = format!("{:.4}", value / 10f64.powf(exponent));
        let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
        return (format!("{} times 10 to the power of {exponent}", mantissa.replace('-', "minus ")), false);
    }
    let within = |decimals: usize| {
        let text = format!("{value:.decimals$}");
        let error = (text.parse::<f64>().unwrap_or(f64::NAN) - value).abs();
        (text, error <= value.abs().max(1e-3) * 1e-9)
    };
    // What is exact with a few more decimals is said exactly; small values keep three digits that count.
    let small = if value != 0.0 && value.abs() < 1.0 { (-value.abs().log10()).ceil() as usize + 2 } else { 0 };
    let n_decimals = n_decimals.max(small.min(12));
    let exact = (0..=n_decimals + 1).map(within).find(|(_, exact)| *exact);
    let (text, exact) = exact.unwrap_or_else(|| within(n_decimals));
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    let text = if text == "-0" { "0" } else { text };
    (text.replace('-', "minus "), exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn numbers_are_read_as_people_say_them() {
        for (text, value) in [
            ("zero", 0.0),
            ("seventeen", 17.0),
            ("twenty three", 23.0),
            ("a hundred", 100.0),
            ("hundred", 100.0),
            ("a hundred and twenty five", 125.0),
            ("one hundred twenty five", 125.0),
            ("twelve hundred", 1200.0),
            ("two thousand and six", 2006.0),
            ("three million four hundred thousand and two", 3_400_002.0),
            ("one point five", 1.5),
            ("three point one two four five", 3.1245),
            ("point two five", 0.25),
            ("two point twenty five", 2.25),
            ("zero point oh five", 0.05),
            ("two and a half", 2.5),
            ("three and three quarters", 3.75),
            ("minus seven", -7.0),
            ("negative one hundred", -100.0),
            ("a dozen", 12.0),
            ("two dozen", 24.0),
            ("half a dozen", 6.0),
            ("a couple of", 2.0),
            ("half", 0.5),
            ("three quarters", 0.75),
            ("two thirds", 2.0 / 3.0),
            ("a third", 1.0 / 3.0),
            ("one half", 0.5),
            ("two and a half million", 2.5e6),
            ("half a million", 5e5),
            ("2.5 million", 2.5e6),
            ("12", 12.0),
            ("ninety nine thousand nine hundred ninety nine", 99_999.0),
            ("five hundred thousand", 5e5),
            ("1 hundred", 100.0),
            ("one and a half", 1.5),
            ("- 3", -3.0),
        ] {
            let words = words(text);
            let found = read(&words, STRICT).unwrap_or_else(|| panic!("{text}"));
            assert!((found.value - value).abs() < 1e-9 && found.len == words.len(), "{text}: {found:?}");
        }
    }

    #[test]
    fn what_is_not_of_the_number_is_left() {
        for (text, value, len) in [
            ("five and three", 5.0, 1),
            ("twenty and a cat", 20.0, 1),
            ("ten twenty", 10.0, 1),
            ("one two three", 1.0, 1),
            ("twenty to thirty", 20.0, 1),
            ("one hundred and fifty and ten", 150.0, 4),
            ("ten to the third", 10.0, 1),
        ] {
            let found = read(&words(text), LENIENT).unwrap();
            assert_eq!((found.value, found.len), (value, len), "{text}");
        }
        for text in ["a cat", "and", "hundreds of", "to go", "point", "second", "the half"] {
            assert_eq!(read(&words(text), STRICT), None, "{text}");
        }
        assert_eq!(read(&words("to plus for"), LENIENT).unwrap().value, 2.0);
        assert_eq!(at_least(&words("one hundred and five"), 2), [100.0, 5.0]);
    }

    #[test]
    fn years_and_ordinals() {
        for (text, value) in [
            ("nineteen eighty four", 1984.0),
            ("twenty twenty four", 2024.0),
            ("nineteen oh five", 1905.0),
            ("two thousand twenty six", 2026.0),
            ("nineteen hundred", 1900.0),
        ] {
            assert_eq!(read(&words(text), YEARS).unwrap().value, value, "{text}");
        }
        assert_eq!(ordinal_at(&words("twenty first of")), Some((21, 2)));
        assert_eq!(ordinal_at(&words("25th")), Some((25, 1)));
        assert_eq!(say_ordinal(112), "112th");
    }

    #[test]
    fn numbers_are_written_for_a_voice() {
        for (value, text, exact) in [
            (161.0, "161", true),
            (0.1 + 0.2, "0.3", true),
            (10.0 / 3.0, "3.3333", false),
            (-2.5, "minus 2.5", true),
            (-1e-12, "0", true),
            (0.00012345, "0.000123", false),
            (0.125, "0.125", true),
            (1e6, "1000000", true),
            (3.2e20, "3.2 times 10 to the power of 20", false),
            (1.0 / 1024.0, "0.000977", false),
        ] {
            assert_eq!(say(value, 4), (text.to_owned(), exact), "{value}");
        }
    }
}
