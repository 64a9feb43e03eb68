//! Counting: `count to ten`, `count down from five`, `count by twos to twenty`, tables, even and prime numbers in a row.

use super::numbers::{self, LENIENT, STRICT};
use super::query::{Query, find, one_of};
use super::{Reply, Scene, sentence};

/// More numbers than anybody listens to.
const LONGEST: i64 = 100;

pub(super) fn answer(_scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    table(query).or_else(|| first_of_a_kind(query)).or_else(|| counted(query))
}

fn list(numbers: &[i64]) -> String {
    sentence(&numbers.iter().map(|n| n.to_string().replace('-', "minus ")).collect::<Vec<_>>().join(", "))
}

/// The number after a word, homophones included: `count to for`.
fn after(words: &[String], pattern: &str) -> Option<i64> {
    let at = find(words, pattern)?;
    let mut rest = &words[at.end..];
    while rest.len() > 1 && one_of(&rest[0], "the|number|up|down|to|backwards|all|way") && (rest.len() != 1) {
        rest = &rest[1..];
    }
    let found = numbers::read(rest, STRICT).or_else(|| numbers::read(rest, LENIENT))?;
    whole(found.value)
}

fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() < 1e12).then_some(value as i64)
}

/// The step: `by twos`, `by 5`, `in steps of ten`, `even numbers`.
fn step(words: &[String]) -> Option<i64> {
    let at = ["in steps of", "by|bye|buy", "in", "steps of", "using", "every"].iter().find_map(|pattern| {
        let steps = |word: &String| {
            numbers::plural(word).is_some() || numbers::read(std::slice::from_ref(word), LENIENT).is_some()
        };
        find(words, pattern).filter(|at| words.get(at.end).is_some_and(steps))
    })?;
    let step = numbers::plural(&words[at.end]).or_else(|| Some(numbers::read(&words[at.end..], LENIENT)?.value))?;
    whole(step).filter(|step| *step > 0)
}

fn counted(query: &Query) -> Option<Reply> {
    let words = &query.words;
    let counts = query.any(&[
        "count|counting|counts|counted|countdown|county",
        "say the numbers",
        "all numbers|the numbers",
        "numbers from|between|up",
        "name|list|say numbers",
    ]) || ((query.any(&["even|odd numbers|number"]))
        && query.any(&["to", "between", "below", "under", "first", "from"])
        && !query.any(&["is", "sum"]));
    if !counts
        || query.any(&["until|till|how many days", "countries"])
        || (query.has("how many") && !query.has("count to|from"))
    {
        return None;
    }
    let parity = if query.has("even") { Some(0) } else { query.has("odd").then_some(1) };
    let by = step(words);
    // The step's number is not a bound.
    let without: Vec<String> =
        match (by, ["in steps of", "by|bye|buy", "steps of", "in"].iter().find_map(|pattern| find(words, pattern))) {
            (Some(_), Some(at)) => {
                let n = numbers::read(&words[at.end..], LENIENT).map_or(1, |found| found.len);
                words[..at.start].iter().chain(&words[(at.end + n).min(words.len())..]).cloned().collect()
            }
            _ => words.clone(),
        };
    let down = query.any(&["down|backwards|backward|countdown|reverse"]);
    let between =
        find(&without, "between").map(|at| numbers::at_least(&without[at.end..], 2)).filter(|bounds| bounds.len() == 2);
    let from = ["from", "starting|beginning|start|begin at|with", "starting|beginning", "at"]
        .iter()
        .find_map(|pattern| after(&without, pattern));
    let to =
        ["up|down to", "until|till|through|to|below|under", "stop|stopping|end|ending|finish at|with|on", "two|too"]
            .iter()
            .find_map(|pattern| after_last(&without, pattern));
    let any = numbers::all(&without, STRICT).first().and_then(|(_, found)| whole(found.value));
    let (from, to) = match (between, from, to) {
        (Some(bounds), ..) => (whole(bounds[0])?, whole(bounds[1])?),
        (_, Some(from), Some(to)) => (from, to),
        (_, Some(from), None) if down => (from, 1),
        (_, Some(from), None) => (from, from + 9 * by.unwrap_or(1)),
        (_, None, Some(to)) if down => (if to > 1 { to } else { 10 }, if to > 1 { 1 } else { to }),
        (_, None, Some(to)) => (by.unwrap_or(1), to),
        (_, None, None) if down => (any.unwrap_or(10), 1),
        (_, None, None) => (by.unwrap_or(1), any.filter(|any| Some(*any) != by).unwrap_or(10 * by.unwrap_or(1))),
    };
    let down = down || from > to;
    let (from, to) = if down && from < to { (to, from) } else { (from, to) };
    let step = by.unwrap_or(if parity.is_some() { 2 } else { 1 });
    let first = match parity {
        Some(parity) if from.rem_euclid(2) != parity => from + if down { -1 } else { 1 },
        _ => from,
    };
    let step = if down { -step } else { step };
    let all: Vec<i64> =
        (0..=LONGEST).map(|i| first + i * step).take_while(|n| if down { *n >= to } else { *n <= to }).collect();
    if all.len() > LONGEST as usize {
        let text = format!("that is more than {LONGEST} numbers, so I stop early: {}", list(&all[..20]));
        return Some(Reply { score: 90, text: sentence(text.trim_end_matches('.')) });
    }
    (!all.is_empty()).then(|| Reply { score: 90, text: list(&all) })
}

/// The number after the last place of a word: in `count to ten by twos`, in `count from two to ten`.
fn after_last(words: &[String], pattern: &str) -> Option<i64> {
    let n = pattern.split(' ').count();
    (0..words.len()).rev().filter(|i| find(&words[*i..(*i + n).min(words.len())], pattern).is_some()).find_map(|i| {
        let mut rest = &words[i + n..];
        while rest.len() > 1 && one_of(&rest[0], "the|number") {
            rest = &rest[1..];
        }
        numbers::read(rest, STRICT).or_else(|| numbers::read(rest, LENIENT)).and_then(|found| whole(found.value))
    })
}

/// `say the seven times table`.
fn table(query: &Query) -> Option<Reply> {
    if !query.any(&["times table|tables", "multiplication table", "multiples of", "table of", "time table|tables"])
        || query.has("what is a")
    {
        return None;
    }
    let n = whole(numbers::all(&query.words, LENIENT).last()?.1.value).filter(|n| (1..=1000).contains(n))?;
    let multiples: Vec<i64> = (1..=10).map(|i| i * n).collect();
    Some(Reply { score: 88, text: list(&multiples) })
}

/// `the first ten prime numbers`, `fibonacci numbers`, `square numbers`.
fn first_of_a_kind(query: &Query) -> Option<Reply> {
    let kinds = query.any(&["prime|primes", "fibonacci", "square|squared numbers", "even|odd numbers"]);
    let asks =
        query.any(&["first", "list|name|say|tell|give|recite", "what are", "numbers to|below|under|up|between|less"]);
    if !kinds || !asks || query.any(&["is", "sum of", "pick|choose|random"]) || query.has("count") {
        return None;
    }
    let range = ["between", "from"].iter().find_map(|word| query.after(word)).map(|rest| numbers::at_least(rest, 2));
    let (low, high) = match range.as_deref() {
        Some([low, high, ..]) => (whole(*low)?, Some(whole(*high)?)),
        _ => (1, None),
    };
    let number = numbers::all(&query.words, STRICT).first().and_then(|(_, found)| whole(found.value));
    let bounded = query.any(&["below|under|to|until", "less than", "up to", "smaller than"]);
    let n = if bounded {
        usize::MAX
    } else {
        number.unwrap_or(if query.any(&["is the first", "the smallest"]) { 1 } else { 10 }).clamp(1, 50) as usize
    };
    let n = if high.is_some() { usize::MAX } else { n };
    let limit = match high {
        Some(high) => high,
        None if bounded => number?.min(1000),
        None => i64::MAX,
    };
    let numbers: Vec<i64> = if query.has("fibonacci") {
        std::iter::successors(Some((1i64, 1i64)), |(a, b)| Some((*b, a.checked_add(*b)?)))
            .map(|(a, _)| a)
            .take_while(|a| *a <= limit)
            .take(n)
            .collect()
    } else {
        let fits: fn(i64) -> bool = match () {
            () if query.any(&["prime|primes"]) => super::number_facts::is_prime,
            () if query.has("even") => |n| n % 2 == 0,
            () if query.has("odd") => |n| n % 2 == 1,
            () => |n| (n as f64).sqrt().fract() == 0.0,
        };
        (low.max(1)..=limit.min(10_000)).filter(|n| fits(*n)).take(n.min(60)).collect()
    };
    (!numbers.is_empty()).then(|| Reply { score: 89, text: list(&numbers) })
}

#[cfg(test)]
mod tests {
    use crate::testing::check_all;

    #[test]
    fn counting_as_it_is_asked() {
        check_all(&[
            ("count to ten", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10."),
            ("count to for", "1, 2, 3, 4."),
            ("count down from five", "5, 4, 3, 2, 1."),
            ("count from three to seven", "3, 4, 5, 6, 7."),
            ("count backwards from ten to five", "10, 9, 8, 7, 6, 5."),
            ("count by twos to twenty", "2, 4, 6, 8, 10, 12, 14, 16, 18, 20."),
            ("count to fifty by tens", "10, 20, 30, 40, 50."),
            ("count from ten to one", "10, 9, 8, 7, 6, 5, 4, 3, 2, 1."),
            ("list the even numbers from one to nine", "2, 4, 6, 8."),
            ("what are the first five prime numbers", "2, 3, 5, 7, 11."),
            ("say the seven times table", "7, 14, 21, 28, 35, 42, 49, 56, 63, 70."),
            ("count to a million", "That is more than 100 numbers"),
        ]);
    }
}
