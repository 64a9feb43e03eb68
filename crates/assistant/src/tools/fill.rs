//! A tool's parameters out of the words of a request.

use super::shape::Tool;
use super::shape::{Kind, Parameter, Text, parameters, spoken_choice};
use super::text;
use super::vocabulary::{singular, words_of};
use crate::numbers::{self, Found, LENIENT, STRICT};
use crate::query::{Query, find, one_of};
use serde_json::{Map, Value};

/// What was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Filled {
    pub values: Map<String, Value>,
    /// A required parameter that was not.
    pub missing: Option<Missing>,
}

/// A parameter to ask for.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    pub name: String,
    pub question: String,
}

/// Seconds in each unit of time.
const UNITS: [(&str, f64); 5] =
    [("second|sec|s", 1.0), ("minute|min", 60.0), ("hour|hr", 3_600.0), ("day", 86_400.0), ("week", 604_800.0)];

/// The words of a request, and which of them are taken.
pub(super) struct Words<'a> {
    pub query: &'a Query,
    pub taken: Vec<bool>,
}

impl Words<'_> {
    pub fn take(&mut self, range: std::ops::Range<usize>) {
        self.taken[range].fill(true);
    }
}

/// Fills what can be filled. `plain`: the tool's name was said, so that what is left over may be its text.
pub(super) fn fill(tool: &Tool, query: &Query, plain: bool) -> Filled {
    let parameters = parameters(tool);
    let mut words = Words { query, taken: vec![false; query.words.len()] };
    let mut values = Map::new();
    text::said_outright(&parameters, &mut words, &mut values);
    choices(&parameters, &mut words, &mut values);
    numbers_of(&parameters, &mut words, &mut values);
    switches(&parameters, &mut words, &mut values);
    text::fill(tool, &parameters, &mut words, &mut values);
    if plain {
        text::left_over(tool, &parameters, &mut words, &mut values);
    }
    let missing = first_missing(&parameters, &values);
    Filled { values, missing }
}

/// The first required parameter without a value.
pub(super) fn missing(tool: &Tool, values: &Map<String, Value>) -> Option<Missing> {
    first_missing(&parameters(tool), values)
}

fn first_missing(parameters: &[Parameter<'_>], values: &Map<String, Value>) -> Option<Missing> {
    let parameter = parameters.iter().find(|p| p.required && !values.contains_key(p.name))?;
    let unit = parameter.words.iter().find(|word| unit(word).is_some()).map(|word| format!("{}s", singular(word)));
    Some(Missing { name: parameter.name.to_owned(), question: parameter.question(unit.as_deref()) })
}

/// The value of one parameter, asked for and answered.
pub(super) fn answer(tool: &Tool, name: &str, query: &Query) -> Option<Value> {
    let parameters: Vec<_> = parameters(tool).into_iter().filter(|parameter| parameter.name == name).collect();
    let parameter = parameters.first()?;
    let mut words = Words { query, taken: vec![false; query.words.len()] };
    let mut values = Map::new();
    match parameter.kind {
        Kind::Choice(_) => choices(&parameters, &mut words, &mut values),
        Kind::Number { whole } => {
            numbers_of(&parameters, &mut words, &mut values);
            if values.is_empty() {
                let found = numbers::all(&query.words, LENIENT);
                return found.first().and_then(|(_, found)| number(parameter, found.value, whole));
            }
        }
        Kind::Switch => {
            let yes = query.said(&["yes|yeah|yep|sure|on|true|please do|okay|ok"]);
            let no = query.said(&["no|nope|off|false"]);
            return (yes != no).then_some(Value::Bool(yes));
        }
        Kind::Text(kind) => return text::whole(kind, query),
        Kind::Beyond => return None,
    }
    values.remove(name)
}

/// The one parameter that a short further request gives anew.
pub(super) fn rest(tool: &Tool, query: &Query) -> Option<(String, Value)> {
    let joints = query.words.iter().take_while(|word| one_of(word, "and|what|how|about|then|also")).count();
    let tail = Query::new(query.raw_from(joints));
    let parameters = parameters(tool);
    let wanted = parameters.iter().filter(|parameter| parameter.required).chain(&parameters);
    wanted.into_iter().find_map(|parameter| {
        let value = match parameter.kind {
            Kind::Text(Text::Geography | Text::Room | Text::Person | Text::Other) if tail.words.len() <= 4 => {
                answer(tool, parameter.name, &tail)
            }
            Kind::Choice(_) | Kind::Number { .. } => answer(tool, parameter.name, &tail),
            _ => None,
        };
        Some((parameter.name.to_owned(), value?))
    })
}

fn choices(parameters: &[Parameter<'_>], words: &mut Words<'_>, values: &mut Map<String, Value>) {
    for parameter in parameters {
        let Kind::Choice(choices) = &parameter.kind else { continue };
        let mut best: Option<(std::ops::Range<usize>, &Value)> = None;
        for choice in choices {
            let spoken = spoken_choice(choice);
            let singulars: Vec<String> = words.query.words.iter().map(|word| singular(word)).collect();
            let place = find(&words.query.words, &spoken).or_else(|| find(&singulars, &spoken));
            let place = place.or_else(|| number_choice(choice, &words.query.words));
            if let Some(place) =
                place.filter(|place| !spoken.is_empty() && best.as_ref().is_none_or(|(b, _)| place.len() > b.len()))
            {
                best = Some((place, choice));
            }
        }
        if let Some((place, choice)) = best {
            words.take(place);
            values.insert(parameter.name.to_owned(), choice.clone());
        }
    }
}

fn number_choice(choice: &Value, words: &[String]) -> Option<std::ops::Range<usize>> {
    let wanted = choice.as_f64()?;
    let found = numbers::all(words, STRICT).into_iter().find(|(_, found)| found.value == wanted);
    found.map(|(at, found)| at..at + found.len)
}

fn numbers_of(parameters: &[Parameter<'_>], words: &mut Words<'_>, values: &mut Map<String, Value>) {
    let open: Vec<&Parameter<'_>> =
        parameters.iter().filter(|p| matches!(p.kind, Kind::Number { .. }) && !values.contains_key(p.name)).collect();
    for parameter in &open {
        let Kind::Number { whole } = parameter.kind else { continue };
        let value = time_span(parameter, words).or_else(|| beside_its_name(parameter, words));
        if let Some(value) = value.and_then(|value| number(parameter, value, whole)) {
            values.insert(parameter.name.to_owned(), value);
        }
    }
    // What is left is told apart by nothing but its order.
    let open: Vec<_> = open.into_iter().filter(|parameter| !values.contains_key(parameter.name)).collect();
    let left = free_numbers(words);
    let required = open.iter().filter(|parameter| parameter.required).count();
    if left.is_empty() || left.len() != required.max(1) {
        return;
    }
    for (parameter, (at, found)) in open.iter().zip(left) {
        let Kind::Number { whole } = parameter.kind else { continue };
        if let Some(value) = number(parameter, found.value, whole) {
            words.take(at..at + found.len);
            values.insert(parameter.name.to_owned(), value);
        }
    }
}

/// Numbers nobody took. A number with a unit of time is no other number.
fn free_numbers(words: &Words<'_>) -> Vec<(usize, Found)> {
    let all = numbers::all(&words.query.words, STRICT).into_iter();
    all.filter(|(at, found)| !words.taken[*at..at + found.len].contains(&true)).collect()
}

/// `two and a half hours` in the parameter's unit; several are added up.
fn time_span(parameter: &Parameter<'_>, words: &mut Words<'_>) -> Option<f64> {
    let described = words_of(parameter.description);
    let (_, own) = parameter.words.iter().chain(&described).find_map(|word| unit(word))?;
    let said = &words.query.words;
    let mut spans: Vec<(std::ops::Range<usize>, f64)> = Vec::new();
    for (at, found) in free_numbers(words) {
        let mut end = at + found.len;
        if said.get(end).is_some_and(|word| one_of(word, "a|an|of")) {
            end += 1;
        }
        if let Some((_, seconds)) = said.get(end).and_then(|word| unit(word)) {
            spans.push((at..end + 1, found.value * seconds));
        }
    }
    for at in 0..said.len().saturating_sub(1) {
        let counted = spans.iter().any(|(place, _)| place.contains(&at));
        if let Some((_, seconds)) = unit(&said[at + 1]).filter(|_| !counted && one_of(&said[at], "a|an")) {
            spans.push((at..at + 2, seconds));
        }
    }
    if spans.is_empty() {
        return None;
    }
    let total: f64 = spans.iter().map(|(_, seconds)| seconds).sum();
    spans.into_iter().for_each(|(place, _)| words.take(place));
    Some(total / own)
}

fn unit(word: &str) -> Option<(&'static str, f64)> {
    let word = singular(word);
    UNITS.iter().find(|(names, _)| one_of(&word, names)).copied()
}

/// `volume 5`, `5 people`, `the level to 5`.
fn beside_its_name(parameter: &Parameter<'_>, words: &mut Words<'_>) -> Option<f64> {
    let said = &words.query.words;
    let is_name = |at: usize| {
        said.get(at).is_some_and(|word| parameter.words.iter().any(|name| singular(name) == singular(word)))
    };
    let found = free_numbers(words)
        .into_iter()
        .find(|(at, found)| is_name(at + found.len) || (1..=2).any(|back| at.checked_sub(back).is_some_and(is_name)));
    let (at, found) = found?;
    words.take(at..at + found.len);
    Some(found.value)
}

fn number(parameter: &Parameter<'_>, value: f64, whole: bool) -> Option<Value> {
    // Beyond 2^53 a float names no whole number any more.
    let is_whole = value.fract() == 0.0 && value.abs() < 9e15;
    if (whole && !is_whole) || !parameter.allows(value) {
        return None;
    }
    if is_whole { Some(Value::from(value as i64)) } else { serde_json::Number::from_f64(value).map(Value::Number) }
}

fn switches(parameters: &[Parameter<'_>], words: &mut Words<'_>, values: &mut Map<String, Value>) {
    const STATES: &str = "on|off|enabled|enable|active|state|power|powered|status|value|turn|switch";
    for parameter in parameters.iter().filter(|parameter| parameter.kind == Kind::Switch) {
        let query = words.query;
        let is_state = parameter.words.iter().any(|word| one_of(word, STATES));
        let on = query.any(&["on|enable|activate|yes|true|enabled"]);
        let off = query.any(&["off|disable|deactivate|no|false|disabled"]);
        let named = parameter.words.iter().find_map(|word| find(&query.words, word));
        let value = match named {
            _ if is_state && on != off => Some(on),
            Some(place) => {
                let before = place.start.checked_sub(1).map(|at| query.words[at].as_str());
                words.take(place);
                Some(!before.is_some_and(|word| one_of(word, "no|not|without")))
            }
            None => None,
        };
        if let Some(value) = value {
            values.insert(parameter.name.to_owned(), Value::Bool(value));
        }
    }
}
