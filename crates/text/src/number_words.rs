//! English names of numbers. The voices write them, the assistant and turn-taking read them. Data and lookups only.

/// 0 to 19.
pub const ONES: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];

/// 20 to 90, in tens.
pub const TENS: [&str; 8] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];

/// The value of a lowercase name in [`ONES`].
#[must_use]
pub fn one(name: &str) -> Option<usize> {
    ONES.iter().position(|one| *one == name)
}

/// The value of a lowercase name in [`TENS`]: 20 to 90.
#[must_use]
pub fn ten(name: &str) -> Option<usize> {
    TENS.iter().position(|ten| *ten == name).map(|at| 20 + 10 * at)
}
