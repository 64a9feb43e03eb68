//! English figures that espeak-ng reads otherwise than people, in words: years, decades, round numbers, numbers of houses.
//!
//! espeak-ng says "nineteen hundred ninety nine", "nineteen ninety z", "one hundred th", "ninehundred million" and "two hundred
//! twenty one B". All other figures remain digits, which it reads well, by the rules of the country's English.
//! [`super::Phonemizer`] calls it. Pure.

use super::super::numbers;
use std::ops::RangeInclusive;

/// Four digits that people read in pairs; espeak-ng reads those from 2000 to 2009 as people do.
const IN_PAIRS: [RangeInclusive<u32>; 2] = [1_100..=1_999, 2_010..=2_099];

/// The text with such figures in words.
pub(super) fn in_words(text: &str) -> String {
    let mut said = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, figures) = rest.split_at(start);
        let end = figures.find(|c: char| !is_figure(c)).unwrap_or(figures.len());
        // A full stop or a comma behind the last digit belongs to the sentence.
        let end = figures[..end].trim_end_matches(|c: char| !c.is_alphanumeric()).len();
        let (figures, after) = figures.split_at(end);
        said.push_str(before);
        let is_joined = said.ends_with(is_joint);
        match words_of(figures).filter(|_| !is_joined) {
            Some(words) => said.push_str(&words),
            None => said.push_str(figures),
        }
        rest = after;
    }
    said.push_str(rest);
    said
}

/// What may stand in one figure, with its ending.
fn is_figure(c: char) -> bool {
    c.is_alphanumeric() || ".,:/-–".contains(c)
}

/// Makes what stands behind it a part of another word.
fn is_joint(c: char) -> bool {
    c.is_alphanumeric() || ".,:/-–'’$€£#+".contains(c)
}

/// The words of a year, a span of years, a decade, a round number or ordinal, a number with a letter; `None` for all else.
fn words_of(figure: &str) -> Option<String> {
    if let Some((first, last)) = figure.split_once(['-', '–']) {
        return Some(format!("{} to {}", year(first)?, year(last)?));
    }
    if let Some(first) = figure.strip_suffix('s') {
        let words = year(first)?;
        return Some(match words.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => format!("{words}s"),
        });
    }
    if let Some(cardinal) = figure.strip_suffix("th") {
        let digits = cardinal.replace(',', "");
        let is_round = digits.len() <= 15 && digits.ends_with("00") && digits.bytes().all(|b| b.is_ascii_digit());
        return is_round.then(|| numbers::ordinal(&digits));
    }
    year(figure).or_else(|| round(figure)).or_else(|| with_letter(figure))
}

/// A number of several groups of three digits, each of whole hundreds or, in front, below one hundred: no country says "and" in it.
fn round(figure: &str) -> Option<String> {
    let mut groups = figure.split(',');
    let first = groups.next().filter(|first| (1..=3).contains(&first.len()) && is_digits(first))?;
    let others: Vec<&str> = groups.collect();
    let is_round = |group: &str| group.len() == 3 && is_digits(group) && group.ends_with("00");
    let is_small = !first.starts_with('0') && (first.len() < 3 || first.ends_with("00"));
    let is_it = is_small && (1..=4).contains(&others.len()) && others.iter().all(|group| is_round(group));
    is_it.then(|| numbers::cardinal(&figure.replace(',', "")))
}

/// Three digits and a letter: "221B" is "two twenty-one B".
fn with_letter(figure: &str) -> Option<String> {
    let (digits, letter) = figure.split_at_checked(3)?;
    let is_it = is_digits(digits) && letter.len() == 1 && letter.starts_with(|c: char| c.is_ascii_uppercase());
    let (hundreds, rest) = digits.split_at(1);
    let pair = match rest.strip_prefix('0') {
        Some("0") => return None,
        Some(last) => format!("oh {}", numbers::cardinal(last)),
        None => numbers::cardinal(rest),
    };
    (is_it && hundreds != "0").then(|| format!("{} {pair} {letter}", numbers::cardinal(hundreds)))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn year(figure: &str) -> Option<String> {
    let is_plain = figure.len() == 4 && figure.bytes().all(|b| b.is_ascii_digit());
    let number: u32 = figure.parse().ok().filter(|_| is_plain)?;
    IN_PAIRS.iter().any(|years| years.contains(&number)).then(|| numbers::year(figure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn years_and_round_ordinals_are_words_and_all_else_is_as_written() {
        for (text, expected) in [
            ("It was 1999.", "It was nineteen ninety-nine."),
            ("In 1905, 2005 and 2024", "In nineteen oh-five, 2005 and twenty twenty-four"),
            ("The years 1914-1918 were hard.", "The years nineteen fourteen to nineteen eighteen were hard."),
            ("the 1990s and the 1900s", "the nineteen nineties and the nineteen hundreds"),
            ("the 100th, the 1,000th and the 42nd", "the one hundredth, the one thousandth and the 42nd"),
            ("from 1500 to 3500", "from fifteen hundred to 3500"),
            (
                "7,900,000,000 people, 12,500 cars",
                "seven billion nine hundred million people, twelve thousand five hundred cars",
            ),
            ("at 221B or 105C", "at two twenty-one B or one oh five C"),
        ] {
            assert_eq!(in_words(text), expected);
        }
        for text in [
            "",
            "no figure",
            "0042",
            "1,999",
            "1.1999",
            "1999.5",
            "10-1999",
            "B1999",
            "1999b",
            "12:1999",
            "a-1999",
            "1999th",
            "é1999",
            "7900000000",
            "250,000",
            "1,250",
            "7,90,000",
            "0,500",
            "200B",
            "221b",
            "221BC",
            "1999, 1",
        ] {
            let expected = text.replace("1999, 1", "nineteen ninety-nine, 1");
            assert_eq!(in_words(text), expected);
        }
    }
}
