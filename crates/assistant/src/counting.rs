//! Counting: `count to ten`, `count down from five`, `count by twos to twenty`.

use crate::intents::say;
use crate::numbers;
use crate::query::{Query, find, one_of};

/// The most numbers that are said.
const MAX_NUMBERS: i64 = 100;

fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() < 1e12).then_some(value as i64)
}

/// The numbers after the patterns: in `count to ten by twos`, in `count from two to ten`.
fn after(words: &[String], patterns: &str) -> Vec<i64> {
    let number = |at: usize| {
        let end = find(&words[at..], patterns).filter(|found| found.start == 0)?.end;
        let rest = &words[at + end..];
        let skip = rest.iter().take_while(|word| one_of(word, "the|number|all|way")).count();
        whole(numbers::read(&rest[skip..])?.value)
    };
    (0..words.len()).filter_map(number).collect()
}

/// The step, and the place of its words: `by twos`, `by 5`, `in steps of ten`.
fn step(words: &[String]) -> Option<(i64, std::ops::Range<usize>)> {
    "in steps of / by / in / steps of / every".split(" / ").find_map(|pattern| {
        let at = find(words, pattern)?;
        let plural = numbers::plural(words.get(at.end)?).map(|step| (step, 1));
        let (step, n) = plural.or_else(|| numbers::read(&words[at.end..]).map(|step| (step.value, step.len)))?;
        Some((whole(step).filter(|step| *step > 0)?, at.start..at.end + n))
    })
}

pub(crate) fn answer(query: &Query) -> Option<String> {
    let is_parity = query.has("even|odd numbers|number") && query.has("to|between|below|under|first|from");
    let asks = query
        .has("count|counting|countdown / all|the numbers / numbers from|between|up / name|list|say numbers")
        || (is_parity && !query.has("is|sum"));
    if !asks || query.has("until|till|how many") {
        return None;
    }
    let step = step(&query.words);
    let words = match &step {
        Some((_, at)) => [&query.words[..at.start], &query.words[at.end..]].concat(),
        None => query.words.clone(),
    };
    let by = step.map(|(step, _)| step);
    let down = query.has("down|backwards|backward|countdown|reverse");
    let bounds =
        find(&words, "between").map(|at| numbers::at_least(&words[at.end..], 2)).filter(|bounds| bounds.len() == 2);
    let from = after(&words, "from / starting|beginning|start|begin at|with / at").first().copied();
    let to =
        after(&words, "up|down to / until|till|through|to|below|under / stop|end|finish at|with|on").last().copied();
    let any = || numbers::all(&words).first().and_then(|number| whole(number.value));
    let (from, to) = match (bounds, from, to) {
        (Some(bounds), ..) => (whole(bounds[0])?, whole(bounds[1])?),
        (_, Some(from), Some(to)) => (from, to),
        (_, Some(from), None) if down => (from, 1),
        (_, Some(from), None) => (from, from + 9 * by.unwrap_or(1)),
        (_, None, Some(to)) if down => (if to > 1 { to } else { 10 }, to.min(1)),
        (_, None, Some(to)) => (by.unwrap_or(1), to),
        (_, None, None) if down => (any().unwrap_or(10), 1),
        (_, None, None) => (by.unwrap_or(1), any().unwrap_or(10 * by.unwrap_or(1))),
    };
    let down = down || from > to;
    let (from, to) = if down { (from.max(to), from.min(to)) } else { (from, to) };
    let parity = if query.has("even") { Some(0) } else { query.has("odd").then_some(1) };
    let sign = if down { -1 } else { 1 };
    let first = if parity.is_some_and(|parity| from.rem_euclid(2) != parity) { from + sign } else { from };
    let step = sign * by.unwrap_or(if parity.is_some() { 2 } else { 1 });
    let in_range = |n: &i64| if down { *n >= to } else { *n <= to };
    let numbers = (0..MAX_NUMBERS).map(|i| first + i * step).take_while(in_range);
    let spoken: Vec<String> = numbers.map(|n| n.to_string().replace('-', "minus ")).collect();
    if spoken.is_empty() { None } else { say(&spoken.join(", ")) }
}
