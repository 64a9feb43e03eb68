//! Misheard and mistyped words, replaced by the words of the fields that they most resemble.
//!
//! Only used when nothing was understood: a repair can also make nonsense of a good sentence.

use super::query::Query;
use strsim::osa_distance;

/// Words the fields look for; each of at least five letters, for shorter ones resemble too much.
const KNOWN: &[&str] = &[
    "seven",
    "eight",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
    "hundred",
    "thousand",
    "million",
    "minus",
    "times",
    "divided",
    "multiply",
    "multiplied",
    "percent",
    "square",
    "squared",
    "subtract",
    "calculate",
    "convert",
    "kilometers",
    "kilometer",
    "meters",
    "centimeters",
    "millimeters",
    "inches",
    "yards",
    "miles",
    "grams",
    "kilograms",
    "pounds",
    "ounces",
    "liters",
    "gallons",
    "celsius",
    "fahrenheit",
    "kelvin",
    "minutes",
    "seconds",
    "hours",
    "weeks",
    "months",
    "years",
    "spell",
    "spelling",
    "spelled",
    "count",
    "backwards",
    "repeat",
    "story",
    "random",
    "number",
    "between",
    "january",
    "february",
    "march",
    "april",
    "august",
    "september",
    "october",
    "november",
    "december",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "today",
    "tomorrow",
    "yesterday",
    "christmas",
    "easter",
    "halloween",
    "letter",
    "letters",
    "numbers",
    "alphabet",
    "prime",
    "capital",
    "what",
    "which",
    "where",
    "weekday",
    "birthday",
    "season",
    "seasons",
    "opposite",
    "colors",
    "fraction",
    "tablespoons",
    "teaspoons",
];

/// The text with each unknown word replaced by the known one it resembles most, if it resembles one.
pub(super) fn repaired(query: &Query) -> String {
    query.all.iter().map(|word| nearest(word).unwrap_or(word)).collect::<Vec<_>>().join(" ")
}

fn nearest(word: &str) -> Option<&'static str> {
    let n = word.chars().count();
    let allowed = match n {
        0..=3 => return None,
        4..=7 => 1,
        _ => 2,
    };
    // A plural is no slip.
    if KNOWN.contains(&word) || KNOWN.contains(&word.trim_end_matches('s')) {
        return None;
    }
    KNOWN
        .iter()
        .map(|known| (osa_distance(word, known), *known))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use crate::testing::check_all;

    #[test]
    fn slips_of_the_finger_are_understood() {
        check_all(&[
            ("convret ten miles to kilometrs", "16.09"),
            ("speell hello", "H, E, L, L, O"),
            ("what day is tommorow", "Tomorrow is Thursday"),
            ("twelve tims seven", "84"),
        ]);
    }
}
