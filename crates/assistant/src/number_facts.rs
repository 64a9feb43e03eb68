//! What can be asked of numbers besides calculating: even, prime, larger.

use crate::intents::say;
use crate::query::{Query, find, one_of};
use crate::{numbers, yes_no};

/// Larger numbers are not tested for divisors.
const MAX_DIVIDEND: i64 = 1_000_000_000_000;

pub(crate) fn answer(query: &Query) -> Option<String> {
    // "Which one is larger": that one is no number.
    let words = match find(&query.words, "which|what|other|this|that one|ones") {
        Some(at) => [&query.words[..at.start], &query.words[at.end..]].concat(),
        None => query.words.clone(),
    };
    let values: Vec<f64> = numbers::all(&words).iter().map(|number| number.value).collect();
    kind(query, &values).or_else(|| compared(query, &values))
}

fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() < 1e15).then_some(value as i64)
}

fn spoken(value: f64) -> String {
    numbers::say(value, 4).0
}

/// The smallest divisor of `n` above one.
fn divisor(n: i64) -> Option<i64> {
    (2..).take_while(|d| d * d <= n).find(|d| n % d == 0)
}

fn is_prime(n: i64) -> bool {
    n >= 2 && divisor(n).is_none()
}

/// Even, odd, prime; a dozen.
fn kind(query: &Query, values: &[f64]) -> Option<String> {
    let n = whole(*values.first()?)?;
    let not = |yes: bool| if yes { "" } else { "not " };
    if query.has("even|odd") && query.has("is|are|or") {
        let name = if n % 2 == 0 { "even" } else { "odd" };
        let asks_both = query.has("even") && query.has("odd");
        let yes = if asks_both { String::new() } else { format!("{}, ", yes_no(query.has(name))) };
        return say(&format!("{yes}{n} is {name}"));
    }
    if query.has("prime") && query.has("is|are") && n <= MAX_DIVIDEND {
        let reason = divisor(n).map_or(String::new(), |d| format!(", for it is {d} times {}", n / d));
        return say(&format!("{}, {n} is {}a prime number{reason}", yes_no(is_prime(n)), not(is_prime(n))));
    }
    let is_dozen = values.len() == 1 && query.has("how many") && query.has("dozen");
    if is_dozen { say(&format!("that makes {n}")) } else { None }
}

/// `which is larger, 7 or 5`, `is 3 more than 9`.
fn compared(query: &Query, values: &[f64]) -> Option<String> {
    const LARGER: &str = "larger|bigger|greater|more|higher|largest|biggest|greatest|highest|maximum|max";
    const SMALLER: &str = "smaller|less|lower|fewer|smallest|lowest|least|minimum|min";
    let together = numbers::at_least(&query.words, 2);
    let values = if values.len() >= 2 { values } else { &together };
    let [a, b, ..] = *values else { return None };
    let word = query.words.iter().find(|word| one_of(word, LARGER) || one_of(word, SMALLER))?;
    let is_larger = one_of(word, LARGER);
    if query.starts("is|are") && query.has("than") && !query.has("or") {
        let yes = if is_larger { a > b } else { a < b };
        let relation = if a > b { "larger than" } else { "smaller than" };
        let relation = if a == b { "equal to" } else { relation };
        return say(&format!("{}, {} is {relation} {}", yes_no(yes), spoken(a), spoken(b)));
    }
    let chooses = query.has("which|what|who|of|between|among")
        && !query.has("common|prime|percent / more|less|greater|fewer than");
    if !query.has("or") && !chooses {
        return None;
    }
    let pick = values.iter().copied().reduce(if is_larger { f64::max } else { f64::min })?;
    let name = if is_larger { "large" } else { "smalle" };
    match () {
        () if values.iter().all(|value| *value == pick) => say("they are equal"),
        () if values.len() > 2 => {
            say(&format!("{} is the {}st of them", spoken(pick), if is_larger { "large" } else { name }))
        }
        () => say(&format!("{} is {name}r than {}", spoken(pick), spoken(if a == pick { b } else { a }))),
    }
}
