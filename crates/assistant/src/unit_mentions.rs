//! The units named in a question, with the numbers before them. [`super::units_of_measure`] reads them.

use super::numbers::{self, STRICT};
use super::query::{find, one_of};
use super::unit_table::{UNITS, Unit};

/// A unit named in a question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mention {
    pub(super) unit: &'static Unit,
    /// The number before it.
    pub(super) value: Option<f64>,
    /// From the number, or an article, on.
    pub(super) start: usize,
    pub(super) end: usize,
}

/// All units named in the words, the longest names first.
pub(super) fn mentions(words: &[String]) -> Vec<Mention> {
    let mut found: Vec<Mention> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let Some((unit, len)) = unit_at(words, at) else {
            at += 1;
            continue;
        };
        let mut mention = Mention { unit, value: None, start: at, end: at + len };
        let from = found.last().map_or(0, |last| last.end);
        if let Some((start, value)) = number_before(words, from, at) {
            mention.value = Some(value);
            mention.start = start;
        }
        found.push(mention);
        at += len;
    }
    halves_after(words, &mut found);
    found
}

/// `two hours and a half`: the half belongs to the unit before it.
fn halves_after(words: &[String], found: &mut [Mention]) {
    for mention in found {
        let rest = &words[mention.end..];
        let is_last = !rest.get(3).is_some_and(|word| one_of(word, "hour|minute|mile|inch"));
        for (said, part) in [("and a half", 0.5), ("and a quarter", 0.25)] {
            if is_last && find(rest, said).is_some_and(|at| at.start == 0) {
                mention.value = Some(mention.value.unwrap_or(1.0) + part);
                mention.end += 3;
            }
        }
    }
}

fn unit_at(words: &[String], at: usize) -> Option<(&'static Unit, usize)> {
    let after_number = at > 0 && number_before(words, 0, at).is_some_and(|(start, _)| !one_of(&words[start], "a|an"));
    let mut best: Option<(&'static Unit, usize)> = None;
    for unit in UNITS {
        let names = [unit.singular, unit.plural].into_iter().chain(unit.aliases.split('|'));
        let short = unit
            .short
            .split('|')
            .filter(|_| after_number || at + 1 == words.len() && at > 0 && one_of(&words[at - 1], "to|in|into"));
        for name in names.chain(short).filter(|name| !name.is_empty()) {
            let n = name.split(' ').count();
            if best.is_none_or(|(_, len)| n > len)
                && find(&words[at..(at + n).min(words.len())], &name.to_lowercase()).is_some()
            {
                best = Some((unit, n));
            }
        }
    }
    // `10 in to cm`: inches; `10 in miles`: not.
    let (unit, n) = best?;
    let inches = words[at] == "in";
    let really = words.get(at + 1).is_none_or(|next| one_of(next, "to|in|into|as|is|equals"));
    (!inches || really).then_some((unit, n))
}

/// The number whose last word stands right before a unit. `a mile` is one mile, `half a mile` a half.
fn number_before(words: &[String], from: usize, at: usize) -> Option<(usize, f64)> {
    for start in from..at {
        let Some(found) = numbers::read(&words[start..at], STRICT) else { continue };
        let mut end = start + found.len;
        if found.fraction || one_of(&words[end - 1], "half|quarter|thousand|million|couple|dozen|hundred") {
            end += usize::from(end < at && one_of(&words[end], "a|an|of"));
            end += usize::from(end < at && one_of(&words[end], "a|an"));
        }
        if end == at {
            return Some((start, found.value));
        }
    }
    let article = at > from && one_of(&words[at - 1], "a|an|per|each|every|single");
    article.then(|| (at - 1, 1.0))
}
