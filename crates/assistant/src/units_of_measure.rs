//! Conversion of units: `convert ten miles to kilometers`, `how many feet are in a mile`, `what's 20 C in F`,
//! `how tall is five foot eleven in centimeters`, `and in meters`.

use super::numbers::{self, STRICT};
use super::query::{Query, find, one_of};
use super::unit_mentions::{Mention, mentions};
use super::unit_table::{Dimension, UNITS, Unit};
use super::{Reply, Scene, sentence};

/// A question understood: a quantity, maybe of several units (five feet eleven), and what to turn it into.
#[derive(Clone, Debug)]
struct Conversion {
    parts: Vec<(f64, &'static Unit)>,
    target: &'static Unit,
    /// What is left over a whole number of the target is said in this: feet and inches.
    finer: Option<&'static Unit>,
}

pub(super) fn answer(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    let mentions = mentions(&query.words);
    if let Some(conversion) = conversion(query, &mentions) {
        return Some(Reply { score: 82, text: conversion.say() });
    }
    let last = scene.past.last().and_then(|last| {
        let query = Query::new(&last.question);
        let mentions = self::mentions(&query.words);
        conversion_in(scene, &query, &mentions)
    });
    if let Some(conversion) = last.and_then(|last| followed_up(query, &mentions, last)) {
        return Some(Reply { score: 78, text: conversion.say() });
    }
    compared(query, &mentions).or_else(|| mixed(query, &mentions))
}

/// The last question's conversion, itself perhaps a follow-up.
fn conversion_in(scene: &Scene<'_>, query: &Query, found: &[Mention]) -> Option<Conversion> {
    conversion(query, found).or_else(|| {
        // `found` are the last question's units; the conversion it goes on from is older.
        let (_, scene) = scene.before_last()?;
        let earlier = Query::new(&scene.past.last()?.question);
        let last = conversion_in(&scene, &earlier, &mentions(&earlier.words))?;
        followed_up(query, found, last)
    })
}

impl Conversion {
    fn result(&self) -> f64 {
        self.target.of_base(self.parts.iter().map(|(value, unit)| unit.to_base(*value)).sum())
    }

    fn say(&self) -> String {
        let result = self.result();
        let (text, exact) = numbers::say(result, 2);
        let source: Vec<_> = self.parts.iter().map(|(value, unit)| quantity(*value, unit)).collect();
        let plural = self.parts.len() == 1 && self.parts[0].0.abs() != 1.0;
        let verb = if plural && self.target.dimension != Dimension::Temperature { "are" } else { "is" };
        let (text, exact) = match self.finer.filter(|_| result >= 1.0) {
            Some(finer) => {
                let rest = finer.of_base(self.target.to_base(result.fract()));
                let (rest_text, exact) = numbers::say(rest, 1);
                let whole = quantity(result.trunc(), self.target);
                let text = if rest < 0.05 { whole } else { format!("{whole} and {rest_text} {}", finer.named(rest)) };
                let about = if exact { "" } else { "about " };
                return sentence(&format!("{} {verb} {about}{text}", source.join(" and ")));
            }
            None => (text, exact),
        };
        let about = if exact && !self.calendar() { "" } else { "about " };
        let mut answer = format!("{} {verb} {about}{text} {}", source.join(" and "), self.target.named(result));
        if let Some(remark) = self.remark() {
            answer.push_str(&remark);
        }
        sentence(&answer)
    }

    /// Whether months or years were turned into something they are not a fixed number of.
    fn calendar(&self) -> bool {
        let long = |unit: &Unit| one_of(unit.singular, "month|year|decade|century|millennium");
        let (from, to) = (self.parts[0].1, self.target);
        from.dimension == Dimension::Time
            && long(from) != long(to)
            && (from.singular == "month" || to.singular == "month")
    }

    /// What else is to be said: bytes that are counted in two ways, years that leap.
    fn remark(&self) -> Option<String> {
        let (value, from) = *self.parts.first()?;
        let steps = |unit: &Unit| {
            ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte", "petabyte"]
                .iter()
                .position(|name| *name == unit.singular)
        };
        if let (Some(a), Some(b)) = (steps(from), steps(self.target)) {
            let binary = value * 1024f64.powi(a as i32 - b as i32);
            return (a > b && a - b <= 3)
                .then(|| format!(", or {} if you count in powers of two", numbers::say(binary, 2).0));
        }
        if from.singular == "year" && self.target.singular == "day" && value == 1.0 {
            return Some(", and a leap year has 366".into());
        }
        None
    }
}

fn quantity(value: f64, unit: &Unit) -> String {
    format!("{} {}", numbers::say(value, 4).0, unit.named(value))
}

fn conversion(query: &Query, mentions: &[Mention]) -> Option<Conversion> {
    let words = &query.words;
    let asked = asked(words, mentions).or_else(|| implied(query, mentions))?;
    let (target, mut sources) = asked;
    // Into feet and inches, into hours and minutes.
    let bare: Vec<_> = mentions.iter().filter(|mention| mention.value.is_none()).collect();
    let in_two = |pair: &&[&Mention]| pair[0].end + 1 == pair[1].start && words[pair[0].end] == "and";
    let pair = bare.windows(2).find(in_two).map(|pair| (pair[0].unit, pair[1].unit));
    let target = pair.map_or(target, |(target, _)| target);
    let finer = pair.map(|(_, finer)| finer);
    let finer = finer.filter(|finer| finer.dimension == target.dimension && finer.factor < target.factor);
    sources.retain(|source| source.unit.dimension == sources_dimension(target, source));
    let first = *sources.first()?;
    let mut parts: Vec<_> = sources.iter().map(|source| (source.value.unwrap_or(1.0), source.unit)).collect();
    // Five foot eleven: a bare number after feet is inches.
    if first.unit.singular == "foot" && parts.len() == 1 {
        let stop = mentions.iter().find(|mention| mention.start > first.end).map_or(words.len(), |next| next.start);
        if let Some(inches) =
            numbers::read(&words[first.end.min(stop)..stop], STRICT).filter(|found| found.value < 12.0)
        {
            parts.push((inches.value, unit_named("inch")?));
        }
    }
    let mut target = target;
    // An ounce beside cups is a fluid ounce, and the other way round.
    let fluid = |unit: &'static Unit, other: Dimension| {
        if unit.singular == "ounce" && other == Dimension::Volume {
            unit_named("fluid ounce").unwrap_or(unit)
        } else {
            unit
        }
    };
    let source_dimension = parts[0].1.dimension;
    target = fluid(target, source_dimension);
    for part in &mut parts {
        part.1 = fluid(part.1, target.dimension);
        if part.1.dimension == Dimension::Angle && target.dimension == Dimension::Temperature {
            // Twenty degrees in Fahrenheit were degrees Celsius.
            part.1 =
                unit_named(if target.singular == "degree Celsius" { "degree Fahrenheit" } else { "degree Celsius" })?;
        }
    }
    let same = parts.len() == 1 && parts[0].1.singular == target.singular;
    (!same && parts.iter().all(|(_, unit)| unit.dimension == target.dimension)).then_some(Conversion {
        parts,
        target,
        finer,
    })
}

/// The dimension a source must have to go with the target; ounces and degrees are read by their company.
fn sources_dimension(target: &Unit, source: &Mention) -> Dimension {
    let ounce = |unit: &Unit| unit.singular == "ounce";
    let degrees = source.unit.singular == "degree" && target.dimension == Dimension::Temperature;
    if ounce(target) || ounce(source.unit) || degrees { source.unit.dimension } else { target.dimension }
}

fn unit_named(singular: &str) -> Option<&'static Unit> {
    UNITS.iter().find(|unit| unit.singular == singular)
}

/// Which unit is asked for, and the quantity that is to be turned into it.
fn asked(words: &[String], mentions: &[Mention]) -> Option<(&'static Unit, Vec<Mention>)> {
    if mentions.len() < 2 {
        return None;
    }
    let how_many = find(words, "how many|much")
        .or_else(|| find(words, "what number of"))
        .or_else(|| find(words, "number of"))
        .map(|at| at.end);
    let index_of = |fits: &dyn Fn(&Mention) -> bool| mentions.iter().position(fits);
    // "How many feet are in a mile", also at the end: "a mile is how many feet".
    let after_many = how_many.and_then(|end| {
        index_of(&|mention| mention.start == end || (mention.start == end + 1 && mention.value.is_none()))
    });
    // "... in meters", "to meters", "meters in a mile": a unit without a number after a preposition is the target.
    let preposition = |mention: &Mention| {
        mention.value.is_none()
            && mention.start > 0
            && one_of(&words[mention.start - 1], "to|in|into|as|two|too|using|degrees|of")
    };
    let last = |mention: &Mention| mention.value.is_none();
    let target = after_many
        .or_else(|| mentions.iter().rposition(preposition))
        .or_else(|| mentions.iter().rposition(last).filter(|_| mentions.iter().any(|mention| mention.value.is_some())))
        .or_else(|| {
            index_of(&|mention| {
                mention.value == Some(1.0) && mention.start > 0 && one_of(&words[mention.start - 1], "to|in|into")
            })
        })?;
    let sources: Vec<_> =
        mentions.iter().enumerate().filter(|(i, _)| *i != target).map(|(_, mention)| *mention).collect();
    let valued: Vec<_> = sources.iter().copied().filter(|source| source.value.is_some()).collect();
    let sources = if valued.is_empty() { sources[..1].to_vec() } else { valued };
    Some((mentions[target].unit, sources))
}

/// A temperature needs no target: there is one other scale people mean.
fn implied(query: &Query, mentions: &[Mention]) -> Option<(&'static Unit, Vec<Mention>)> {
    let [only] = mentions else { return None };
    let verb = query.any(&["convert|change|turn"]) || query.is(&["what is * degrees|celsius|fahrenheit"]);
    let other = match only.unit.singular {
        "degree Celsius" => "degree Fahrenheit",
        "degree Fahrenheit" => "degree Celsius",
        "mile" => "kilometer",
        "kilometer" => "mile",
        "pound" => "kilogram",
        "kilogram" => "pound",
        _ => return None,
    };
    (verb && only.value.is_some()).then_some((unit_named(other)?, vec![*only]))
}

/// `what about in meters`, `and twenty miles`, `and thirty`.
fn followed_up(query: &Query, mentions: &[Mention], last: Conversion) -> Option<Conversion> {
    let begins = query.said(&["what about", "how about", "and", "in", "now", "to", "into"]) || query.words.len() <= 4;
    if !begins || query.words.len() > 9 {
        return None;
    }
    match mentions {
        [one] if one.unit.dimension != last.target.dimension => None,
        [one] => match one.value {
            // Back to where it came from: the last result is the new quantity.
            None if one.unit.singular == last.parts[0].1.singular => {
                let parts = vec![(last.result(), last.target)];
                Some(Conversion { parts, target: one.unit, finer: None })
            }
            None => Some(Conversion { target: one.unit, finer: None, ..last }),
            Some(value) => {
                // A quantity in the target's own unit asks for the way back.
                let target = if one.unit.singular == last.target.singular { last.parts[0].1 } else { last.target };
                Some(Conversion { parts: vec![(value, one.unit)], target, finer: None })
            }
        },
        [] => {
            let found = numbers::all(&query.words, STRICT);
            let [(_, number)] = found.as_slice() else { return None };
            let others = query.words.len() - number.len;
            let only_number = others <= 3
                && query.words.iter().all(|word| !one_of(word, "plus|minus|times|divided|percent|*|+|-|/|count|power"));
            only_number.then(|| Conversion {
                parts: vec![(number.value, last.parts[0].1)],
                target: last.target,
                finer: last.finer,
            })
        }
        _ => None,
    }
}

/// `which is longer, a mile or a kilometer`.
fn compared(query: &Query, mentions: &[Mention]) -> Option<Reply> {
    let [a, b] = mentions else { return None };
    let word = query.words.iter().find(|word| one_of(word, "longer|shorter|bigger|larger|smaller|more|less|heavier|lighter|faster|slower|further|farther|warmer|hotter|colder|greater|higher"))?;
    if a.unit.dimension != b.unit.dimension {
        return None;
    }
    let base = |mention: &Mention| mention.unit.to_base(mention.value.unwrap_or(1.0));
    let smaller = one_of(word, "shorter|smaller|less|lighter|slower|colder");
    let said = |mention: &Mention| quantity(mention.value.unwrap_or(1.0), mention.unit);
    let text = if (base(a) - base(b)).abs() < 1e-9 * base(a).abs() {
        format!("{} and {} are the same", said(a), said(b))
    } else {
        let (first, second) = if (base(a) > base(b)) != smaller { (a, b) } else { (b, a) };
        format!("{} is {word} than {}", said(first), said(second))
    };
    Some(Reply { score: 80, text: sentence(&text) })
}

/// Units of two kinds cannot be turned into each other, and that is the answer.
fn mixed(query: &Query, mentions: &[Mention]) -> Option<Reply> {
    let [a, b] = mentions else { return None };
    let asked = query.any(&["how many", "convert"]) && a.unit.dimension != b.unit.dimension;
    let (da, db) = (a.unit.dimension, b.unit.dimension);
    asked.then(|| Reply {
        score: 50,
        text: sentence(&format!(
            "{} measure {} and {} measure {}, so one cannot be converted into the other",
            a.unit.plural,
            da.name(),
            b.unit.plural,
            db.name()
        )),
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::check_all;

    #[test]
    fn conversions_as_they_are_asked() {
        check_all(&[
            ("convert ten miles to kilometers", "10 miles are about 16.09 kilometers."),
            ("how many feet are in a mile", "1 mile is 5280 feet."),
            ("what's 20 celsius in fahrenheit", "20 degrees Celsius is 68 degrees Fahrenheit."),
            ("what is ninety eight point six degrees fahrenheit in celsius", "is 37 degrees Celsius."),
            ("10 km in miles", "6.21 miles"),
            ("how tall is five foot eleven in centimeters", "180.34 centimeters"),
            ("how many seconds are in an hour and a half", "5400 seconds"),
            ("how many ounces are in a cup", "8 fluid ounces"),
            ("how many megabytes are in two gigabytes", "2000 megabytes, or 2048"),
            ("what is half a mile in feet", "2640 feet"),
            ("three kilograms is how many pounds", "6.61 pounds"),
            ("10 in to cm", "25.4 centimeters"),
            ("how many days in a year", "365 days, and a leap year has 366."),
            ("how many grams are in a liter", "cannot be converted"),
            ("which is longer a mile or a kilometer", "1 mile is longer than 1 kilometer."),
            ("sixty miles per hour in kilometers per hour", "96.56 kilometers per hour"),
        ]);
    }
}
