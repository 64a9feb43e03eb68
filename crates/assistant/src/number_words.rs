//! The words numbers are made of: units, tens, scales, denominators, ordinals, plurals.

use super::numbers::{Reading, STRICT};
use super::query::one_of;

/// What the last word was, which decides what may follow.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Last {
    Nothing,
    Digits,
    Unit,
    Teen,
    Tens,
    Scale,
}

/// A word below a hundred.
pub(super) fn small(word: &str, how: Reading, last: Last) -> Option<(f64, Last)> {
    const UNITS: [&str; 10] =
        ["zero|nought|naught|nil", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    const TEENS: [&str; 10] = [
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen|forteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
    ];
    const TENS: [&str; 8] = ["twenty", "thirty", "forty|fourty", "fifty", "sixty", "seventy", "eighty", "ninety|ninty"];
    const HEARD: [(&str, f64); 7] = [
        ("to|too", 2.0),
        ("for|fore", 4.0),
        ("won", 1.0),
        ("ate", 8.0),
        ("sicks|sex|sick", 6.0),
        ("tree|free", 3.0),
        ("oh|o", 0.0),
    ];
    let place = |list: &[&str]| list.iter().position(|names| one_of(word, names)).map(|i| i as f64);
    if let Some(i) = place(&UNITS) {
        return Some((i, if i == 0.0 { Last::Digits } else { Last::Unit }));
    }
    if let Some(i) = place(&TEENS) {
        return Some((i + 10.0, Last::Teen));
    }
    if let Some(i) = place(&TENS) {
        return Some((i * 10.0 + 20.0, Last::Tens));
    }
    if how.homophones && last == Last::Nothing {
        return HEARD.iter().find(|(names, _)| one_of(word, names)).map(|(_, value)| (*value, Last::Unit));
    }
    None
}

pub(super) fn scale(word: &str) -> Option<f64> {
    Some(match word {
        "hundred" => 1e2,
        "thousand" | "thousands" => 1e3,
        "million" | "millions" | "mio" => 1e6,
        "billion" | "billions" => 1e9,
        "trillion" | "trillions" => 1e12,
        _ => return None,
    })
}

/// A denominator, and whether it is a plural.
pub(super) fn denominator(word: &str) -> Option<(f64, bool)> {
    if let Some(value) = match word {
        "half" => Some(2.0),
        "quarter" | "fourth" => Some(4.0),
        "third" => Some(3.0),
        _ => None,
    } {
        return Some((value, false));
    }
    match word {
        "halves" => return Some((2.0, true)),
        "quarters" => return Some((4.0, true)),
        _ => {}
    }
    let singular = word.strip_suffix('s').filter(|word| ordinal(word).is_some() && *word != "second");
    if let Some(value) = singular.and_then(ordinal) {
        return Some((f64::from(value), true));
    }
    ordinal(word).filter(|value| *value >= 5 && *value <= 100).map(|value| (f64::from(value), false))
}

/// `first`, `twenty` is not one, `25th`, `twelfth`, up to a hundredth. Two words (`twenty first`): [`ordinal_at`].
pub(super) fn ordinal(word: &str) -> Option<u32> {
    const NAMES: [&str; 20] = [
        "first",
        "second",
        "third",
        "fourth",
        "fifth",
        "sixth",
        "seventh",
        "eighth",
        "ninth",
        "tenth",
        "eleventh",
        "twelfth",
        "thirteenth",
        "fourteenth",
        "fifteenth",
        "sixteenth",
        "seventeenth",
        "eighteenth",
        "nineteenth",
        "twentieth",
    ];
    if let Some(i) = NAMES.iter().position(|name| *name == word) {
        return Some(i as u32 + 1);
    }
    match word {
        "thirtieth" => Some(30),
        "fortieth" => Some(40),
        "fiftieth" => Some(50),
        "hundredth" => Some(100),
        _ => word.strip_suffix("th").and_then(|digits| digits.parse().ok()),
    }
}

/// An ordinal at the beginning of the words, and how many it took.
pub(super) fn ordinal_at(words: &[String]) -> Option<(u32, usize)> {
    let first = words.first()?;
    if let Some(value) = ordinal(first) {
        return Some((value, 1));
    }
    let (tens, Last::Tens) = small(first, STRICT, Last::Nothing)? else { return None };
    let unit = ordinal(words.get(1)?).filter(|unit| *unit < 10)?;
    Some((tens as u32 + unit, 2))
}

/// `first` for 1, `21st` for 21.
pub(super) fn say_ordinal(n: u32) -> String {
    let end = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{end}")
}

/// `sevens` for 7, as in "six sevens" and "count by sevens".
pub(super) fn plural(word: &str) -> Option<f64> {
    const IRREGULAR: [(&str, f64); 7] = [
        ("sixes", 6.0),
        ("twenties", 20.0),
        ("thirties", 30.0),
        ("forties", 40.0),
        ("fifties", 50.0),
        ("two's", 2.0),
        ("hundreds", 100.0),
    ];
    let irregular = IRREGULAR.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    irregular.or_else(|| small(word.strip_suffix('s')?, STRICT, Last::Nothing).map(|(value, _)| value))
}
