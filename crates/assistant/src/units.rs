//! Conversion of units: `convert ten miles to kilometers`, `how many feet are in a mile`, `what's 20 C in F`,
//! `how tall is five foot eleven in centimeters`, `and in meters`.

use crate::conversation::Context;
use crate::data::data_file;
use crate::intents::say;
use crate::numbers;
use crate::query::{Query, begins, find, one_of};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A unit of measurement, as `units.toml` describes it.
#[derive(Clone, Debug, Deserialize)]
struct Unit {
    #[serde(skip)]
    quantity: String,
    #[serde(skip)]
    singular: String,
    #[serde(default)]
    plural: String,
    /// How many base units one is.
    one: f64,
    /// The base value of its zero point.
    #[serde(default)]
    zero: f64,
    #[serde(default)]
    names: String,
    #[serde(default)]
    short: String,
}

data_file!(TABLES: BTreeMap<String, BTreeMap<String, Unit>> = "units.toml");

static UNITS: LazyLock<Vec<Unit>> = LazyLock::new(|| {
    let units = TABLES.iter().flat_map(|(quantity, units)| units.iter().map(move |unit| (quantity, unit)));
    let named = units.map(|(quantity, (singular, unit))| {
        let plural = if unit.plural.is_empty() { format!("{singular}s") } else { unit.plural.clone() };
        Unit { quantity: quantity.clone(), singular: singular.clone(), plural, ..unit.clone() }
    });
    named.collect()
});

type UnitRef = &'static Unit;

impl Unit {
    fn to_base(&self, value: f64) -> f64 {
        value * self.one + self.zero
    }

    fn of_base(&self, base: f64) -> f64 {
        (base - self.zero) / self.one
    }

    /// The name that goes with a number.
    fn named(&self, value: f64) -> &str {
        if value.abs() == 1.0 { &self.singular } else { &self.plural }
    }

    fn is(&self, names: &str) -> bool {
        one_of(&self.singular, names)
    }
}

fn unit(singular: &str) -> Option<UnitRef> {
    UNITS.iter().find(|unit| unit.singular == singular)
}

/// Seconds in a unit of time.
pub(crate) fn seconds(word: &str) -> Option<f64> {
    let is_named = |unit: &&Unit| unit.is(word) || unit.plural == word || one_of(word, &unit.names);
    UNITS.iter().filter(|unit| unit.quantity == "time").find(is_named).map(|unit| unit.one)
}

/// A unit named in a question.
#[derive(Clone, Copy, Debug)]
struct Mention {
    unit: UnitRef,
    value: Option<f64>,
    /// Index of its first word, number included.
    start: usize,
    end: usize,
}

/// A question understood: a quantity, maybe of several units (five feet eleven), and what to turn it into.
#[derive(Clone, Debug)]
struct Conversion {
    parts: Vec<(f64, UnitRef)>,
    target: UnitRef,
}

pub(crate) fn answer(context: &Context<'_>, query: &Query) -> Option<String> {
    say(&conversion_in(context, query, &mentions(query))?.text())
}

/// The conversion a request asks for, itself perhaps a follow-up of the one before.
fn conversion_in(context: &Context<'_>, query: &Query, found: &[Mention]) -> Option<Conversion> {
    conversion(query, found).or_else(|| {
        let begins = query.said("what|how about / and|in|now|to|into") || query.words.len() <= 4;
        let (last, earlier) = context.before_last().filter(|_| begins && query.words.len() <= 9)?;
        let last = Query::new(&last.question);
        followed_up(query, found, conversion_in(&earlier, &last, &mentions(&last))?)
    })
}

/// All units named in a request.
fn mentions(query: &Query) -> Vec<Mention> {
    let words = &query.words;
    let (mut found, mut at): (Vec<Mention>, usize) = (Vec::new(), 0);
    while at < words.len() {
        let from = found.last().map_or(0, |last| last.end);
        let number = number_before(query, from, at);
        let Some((unit, n)) = unit_at(words, at, number.is_some_and(|(start, _)| !one_of(&words[start], "a|an")))
        else {
            at += 1;
            continue;
        };
        let (start, value) = number.map_or((at, None), |(start, value)| (start, Some(value)));
        let mut mention = Mention { unit, value, start, end: at + n };
        if begins(&words[mention.end..], "and a half").is_some() {
            mention.value = value.map(|value| value + 0.5);
            mention.end += 3;
        }
        at = mention.end;
        found.push(mention);
    }
    found
}

/// The unit with the longest name that stands at a place. Abbreviations count after a number or a final `to`.
fn unit_at(words: &[String], at: usize, after_number: bool) -> Option<(UnitRef, usize)> {
    let is_target = at + 1 == words.len() && at > 0 && one_of(&words[at - 1], "to|in|into");
    let fits = |name: &str| begins(&words[at..], name);
    let length = |unit: UnitRef| {
        let short = unit.short.split('|').filter(|_| after_number || is_target);
        let names = [unit.singular.as_str(), &unit.plural].into_iter().chain(unit.names.split('|')).chain(short);
        names.filter_map(fits).max()
    };
    let (n, unit) = UNITS.iter().filter_map(|unit| Some((length(unit)?, unit))).max_by_key(|(n, _)| *n)?;
    // `10 in to cm` is inches, `10 in miles` is not.
    let is_in = words[at] == "in" && words.get(at + 1).is_some_and(|next| !one_of(next, "to|in|into|as|is|equals"));
    (!is_in).then_some((unit, n))
}

/// The number that ends right before a unit, and where it begins. `a mile` is one mile, `half a mile` a half.
fn number_before(query: &Query, from: usize, at: usize) -> Option<(usize, f64)> {
    let words = &query.words;
    let is_filler = |i: usize| one_of(&words[i], "a|an|of");
    let number = query.numbers.iter().find(|number| {
        let scales =
            number.fraction || one_of(&words[number.end() - 1], "half|quarter|thousand|million|couple|dozen|hundred");
        number.at >= from && number.end() <= at && (number.end() == at || (scales && (number.end()..at).all(is_filler)))
    });
    let article = || (at > from && one_of(&words[at - 1], "a|an|per|each|every|single")).then(|| (at - 1, 1.0));
    number.map(|number| (number.at, number.value)).or_else(article)
}

impl Conversion {
    fn result(&self) -> f64 {
        self.target.of_base(self.parts.iter().map(|(value, unit)| unit.to_base(*value)).sum())
    }

    fn text(&self) -> String {
        let result = self.result();
        let target = self.target;
        let source: Vec<_> = self.parts.iter().map(|(value, unit)| amount(*value, unit)).collect();
        let source = source.join(" and ");
        let is_plural = self.parts.len() == 1 && self.parts[0].0.abs() != 1.0 && target.quantity != "temperature";
        let verb = if is_plural { "are" } else { "is" };
        let (text, exact) = numbers::say(result, 2);
        format!("{source} {verb} {}{text} {}", if exact { "" } else { "about " }, target.named(result))
    }
}

fn amount(value: f64, unit: &Unit) -> String {
    format!("{} {}", numbers::say(value, 4).0, unit.named(value))
}

fn conversion(query: &Query, mentions: &[Mention]) -> Option<Conversion> {
    let words = &query.words;
    let (target, sources) = asked(words, mentions)?;
    let by_company = |unit: &Unit| unit.is("ounce|degree");
    let fits = |m: &&Mention| m.unit.quantity == target.quantity || by_company(m.unit) || by_company(target);
    let sources: Vec<Mention> = sources.iter().filter(fits).copied().collect();
    let first = *sources.first()?;
    let mut parts: Vec<_> = sources.iter().map(|source| (source.value.unwrap_or(1.0), source.unit)).collect();
    // Five foot eleven: a bare number after feet is inches.
    if first.unit.is("foot") && parts.len() == 1 {
        let inches = query.numbers.iter().find(|number| number.at == first.end && number.value < 12.0);
        let is_free = |end: usize| !mentions.iter().any(|mention| (first.end..=end).contains(&mention.start));
        parts.extend(inches.filter(|n| is_free(n.end() - 1)).and_then(|n| Some((n.value, unit("inch")?))));
    }
    // An ounce beside cups is a fluid ounce; twenty degrees in Fahrenheit were degrees Celsius.
    let in_company = |one: UnitRef, other: UnitRef| match (one.singular.as_str(), other.quantity.as_str()) {
        ("ounce", "volume") => unit("fluid ounce"),
        ("degree", "temperature") if other.is("degree Celsius") => unit("degree Fahrenheit"),
        ("degree", "temperature") => unit("degree Celsius"),
        _ => Some(one),
    };
    let target = in_company(target, parts[0].1)?;
    for part in &mut parts {
        part.1 = in_company(part.1, target)?;
    }
    let is_same = parts.len() == 1 && parts[0].1.singular == target.singular;
    let is_possible = !is_same && parts.iter().all(|(_, unit)| unit.quantity == target.quantity);
    is_possible.then_some(Conversion { parts, target })
}

/// Which unit is asked for, and the quantity to be turned into it.
fn asked(words: &[String], mentions: &[Mention]) -> Option<(UnitRef, Vec<Mention>)> {
    if mentions.len() < 2 {
        return None;
    }
    // "How many feet are in a mile", also at the end: "a mile is how many feet".
    let how_many = find(words, "how many|much / number of").map(|at| at.end);
    let after_many =
        |m: &Mention| how_many.is_some_and(|end| m.start == end || (m.start == end + 1 && m.value.is_none()));
    // "... in meters": a unit without a number after a preposition.
    let after_preposition =
        |m: &Mention| m.value.is_none() && m.start > 0 && one_of(&words[m.start - 1], "to|in|into|as|using|degrees|of");
    let has_value = mentions.iter().any(|mention| mention.value.is_some());
    let target = mentions
        .iter()
        .position(after_many)
        .or_else(|| mentions.iter().rposition(after_preposition))
        .or_else(|| mentions.iter().rposition(|mention| mention.value.is_none() && has_value))?;
    let mut sources = mentions.to_vec();
    let target = sources.remove(target).unit;
    if sources.iter().any(|source| source.value.is_some()) {
        sources.retain(|source| source.value.is_some());
    } else {
        sources.truncate(1);
    }
    Some((target, sources))
}

/// `what about in meters`, `and twenty miles`, `and thirty`.
fn followed_up(query: &Query, mentions: &[Mention], last: Conversion) -> Option<Conversion> {
    let source = last.parts[0].1;
    match (mentions, query.numbers.as_slice()) {
        ([one], _) if one.unit.quantity != last.target.quantity => None,
        ([one], _) => match one.value {
            // Back to where it came from: the last result is the new quantity.
            None if one.unit.singular == source.singular => {
                Some(Conversion { parts: vec![(last.result(), last.target)], target: one.unit })
            }
            None => Some(Conversion { target: one.unit, ..last }),
            // A quantity in the target's own unit asks for the way back.
            Some(value) => {
                let target = if one.unit.singular == last.target.singular { source } else { last.target };
                Some(Conversion { parts: vec![(value, one.unit)], target })
            }
        },
        ([], [number]) => {
            let is_number =
                query.words.len() - number.len <= 3 && !query.has("plus|minus|times|divided|percent|over|count|power");
            is_number.then(|| Conversion { parts: vec![(number.value, source)], ..last })
        }
        _ => None,
    }
}
