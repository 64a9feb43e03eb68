//! English words of figures, as misaki reads them: "1905" as a year is "nineteen oh-five". Pure; the lexicon of misaki and
//! the phonemizer call it.
//!
//! Figures are ASCII digits. Of more than [`MAX_DIGITS`] digits, each digit is a word.

use antiphon_text::number_words::{ONES, TENS};

/// Digits of the largest number that has a name here: 999 trillion.
const MAX_DIGITS: usize = 15;

const THOUSANDS: [&str; 5] = ["", " thousand", " million", " billion", " trillion"];
const IRREGULAR: [(&str, &str); 7] = [
    ("one", "first"),
    ("two", "second"),
    ("three", "third"),
    ("five", "fifth"),
    ("eight", "eighth"),
    ("nine", "ninth"),
    ("twelve", "twelfth"),
];

/// "1250" is "one thousand two hundred fifty".
pub(in crate::tts) fn cardinal(figure: &str) -> String {
    if figure.trim_start_matches('0').len() > MAX_DIGITS {
        return figure.bytes().map(|digit| ONES[usize::from(digit - b'0') % 10]).collect::<Vec<_>>().join(" ");
    }
    let mut number: u64 = figure.parse().unwrap_or_default();
    if number == 0 {
        return ONES[0].into();
    }
    let mut groups = Vec::new();
    for scale in THOUSANDS {
        let group = (number % 1_000) as usize;
        if group > 0 {
            groups.push(format!("{}{scale}", below_1000(group)));
        }
        number /= 1_000;
    }
    groups.reverse();
    groups.join(" ")
}

fn below_1000(number: usize) -> String {
    let hundreds = (number >= 100).then(|| format!("{} hundred", ONES[number / 100]));
    let rest = match number % 100 {
        0 => None,
        rest @ 1..20 => Some(ONES[rest].to_owned()),
        rest if rest % 10 == 0 => Some(TENS[rest / 10 - 2].to_owned()),
        rest => Some(format!("{}-{}", TENS[rest / 10 - 2], ONES[rest % 10])),
    };
    hundreds.into_iter().chain(rest).collect::<Vec<_>>().join(" ")
}

/// "21" is "twenty-first".
pub(in crate::tts) fn ordinal(figure: &str) -> String {
    let cardinal = cardinal(figure);
    let at = cardinal.rfind([' ', '-']).map_or(0, |at| at + 1);
    let (before, last) = cardinal.split_at(at);
    let irregular = IRREGULAR.iter().find(|(cardinal, _)| *cardinal == last);
    match (irregular, last.strip_suffix('y')) {
        (Some((_, ordinal)), _) => format!("{before}{ordinal}"),
        (None, Some(stem)) => format!("{before}{stem}ieth"),
        (None, None) => format!("{before}{last}th"),
    }
}

/// Four digits as a year: "1905" is "nineteen oh-five", "2005" is "two thousand five".
pub(in crate::tts) fn year(figure: &str) -> String {
    let number: usize = figure.parse().unwrap_or_default();
    let century = number / 100;
    let rest = number % 100;
    if century == 0 || century.is_multiple_of(10) && rest < 10 || century >= 100 {
        return cardinal(figure);
    }
    let century = below_1000(century);
    match rest {
        0 => format!("{century} hundred"),
        1..10 => format!("{century} oh-{}", ONES[rest]),
        _ => format!("{century} {}", below_1000(rest)),
    }
}

/// "3.140" is "three point one four".
pub(in crate::tts) fn decimal(figure: &str) -> String {
    let (whole, part) = figure.split_once('.').unwrap_or((figure, ""));
    let digits = |part: &str| {
        let digits = part.bytes().filter(u8::is_ascii_digit).map(|digit| ONES[usize::from(digit - b'0')]);
        format!("point {}", digits.collect::<Vec<_>>().join(" "))
    };
    // Without a whole part all digits are read, as they are written.
    if whole.is_empty() {
        return digits(part);
    }
    let part = part.trim_end_matches('0');
    if part.is_empty() { cardinal(whole) } else { format!("{} {}", cardinal(whole), digits(part)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_words() {
        for (figure, words) in [
            ("0", "zero"),
            ("13", "thirteen"),
            ("42", "forty-two"),
            ("100", "one hundred"),
            ("1250", "one thousand two hundred fifty"),
            ("2000001", "two million one"),
            ("1234567890123456", "one two three four five six seven eight nine zero one two three four five six"),
        ] {
            assert_eq!(cardinal(figure), words);
        }
        for (figure, words) in [
            ("1", "first"),
            ("12", "twelfth"),
            ("20", "twentieth"),
            ("101", "one hundred first"),
            ("23", "twenty-third"),
        ] {
            assert_eq!(ordinal(figure), words);
        }
        for (figure, words) in [
            ("1905", "nineteen oh-five"),
            ("2005", "two thousand five"),
            ("2010", "twenty ten"),
            ("1900", "nineteen hundred"),
        ] {
            assert_eq!(year(figure), words);
        }
        for (figure, words) in
            [("3.140", "three point one four"), ("2.0", "two"), (".50", "point five zero"), ("7", "seven")]
        {
            assert_eq!(decimal(figure), words);
        }
    }
}
