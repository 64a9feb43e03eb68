//! Numbers as people say and write them: "a hundred and twenty five", "minus seven", "one point five", "2.5 million".

use antiphon_text::number_words::{one, ten};

const SCALES: [(&str, f64); 3] = [("thousand", 1e3), ("million", 1e6), ("billion", 1e9)];

/// The number at the beginning of the words, and how many of them it takes.
pub(crate) fn read(words: &[String]) -> Option<(f64, usize)> {
    if words.first()? == "minus" {
        let (value, n) = read(&words[1..])?;
        return Some((-value, n + 1));
    }
    let mut total = 0.0;
    let mut n = 0;
    while let Some((value, n_group)) = group(words, n) {
        n += n_group;
        let scale = words.get(n).and_then(|word| SCALES.iter().find(|(name, _)| name == word));
        total += value * scale.map_or(1.0, |(_, scale)| *scale);
        if scale.is_none() {
            break;
        }
        n += 1;
    }
    if n == 0 {
        return None;
    }
    if words.get(n).is_some_and(|word| word == "point") {
        let digits = words[n + 1..].iter().map_while(|word| one(word).filter(|digit| *digit < 10));
        let digits: Vec<usize> = digits.collect();
        let decimals = digits.iter().rev().fold(0.0, |sum, digit| (sum + *digit as f64) / 10.0);
        total += decimals;
        n += if digits.is_empty() { 0 } else { 1 + digits.len() };
    }
    Some((total, n))
}

/// All numbers in the words.
pub(crate) fn all(words: &[String]) -> Vec<f64> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let (value, n) = read(&words[at..]).map_or((None, 1), |(value, n)| (Some(value), n));
        found.extend(value);
        at += n;
    }
    found
}

/// What may stand before a scale, from `at` on, an "and" before it included: "a hundred and five", "twelve hundred", "250".
fn group(words: &[String], at: usize) -> Option<(f64, usize)> {
    let word = |i: usize| words.get(at + i).map_or("", String::as_str);
    let and = usize::from(at > 0 && word(0) == "and");
    let is_written = word(and).starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let (mut value, mut n) = match word(and) {
        "a" | "one" if word(and + 1) == "hundred" || SCALES.iter().any(|(name, _)| *name == word(and + 1)) => (1.0, 1),
        "hundred" => (1.0, 0),
        written if is_written => (written.parse().ok()?, 1),
        _ => below_hundred(word(and), word(and + 1))?,
    };
    if word(and + n) == "hundred" {
        value *= 100.0;
        n += 1;
        let joint = usize::from(word(and + n) == "and");
        if let Some((rest, n_rest)) = below_hundred(word(and + n + joint), word(and + n + joint + 1)) {
            value += rest;
            n += joint + n_rest;
        }
    }
    Some((value, and + n))
}

fn below_hundred(first: &str, second: &str) -> Option<(f64, usize)> {
    if let Some(n) = one(first) {
        return Some((n as f64, 1));
    }
    let tens = ten(first)?;
    let unit = one(second).filter(|unit| (1..10).contains(unit));
    Some(((tens + unit.unwrap_or(0)) as f64, 1 + usize::from(unit.is_some())))
}

/// A number as a voice says it: at most four decimals.
pub(crate) fn spoken(value: f64) -> String {
    let rounded = format!("{value:.4}");
    let text = rounded.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.replace('-', "minus ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_said() {
        for (text, value) in [
            ("twelve", 12.0),
            ("a hundred and forty four", 144.0),
            ("two thousand and twenty six", 2_026.0),
            ("three million two hundred thousand", 3_200_000.0),
            ("twelve hundred", 1_200.0),
            ("minus seven", -7.0),
            ("three point two five", 3.25),
            ("1,250", 1_250.0),
            ("2.5 million", 2_500_000.0),
        ] {
            let words = crate::words(text);
            let (read, n) = read(&words).expect(text);
            assert!((read - value).abs() < 1e-9 && n == words.len(), "{text}: {read}, {n}");
        }
        assert!(read(&crate::words("hello")).is_none());
        assert_eq!(all(&crate::words("from two to twenty one")), [2.0, 21.0]);
        assert_eq!((spoken(4.7), spoken(-3.0), spoken(1.0 / 3.0)), ("4.7".into(), "minus 3".into(), "0.3333".into()));
    }
}
