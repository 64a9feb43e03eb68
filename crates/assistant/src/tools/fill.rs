//! The parameters of a tool, taken from the words of a request.

use super::schema::{Kind, Parameter, TextKind, Tool, WORDS, is_verb, says, spoken_choice, words_of};
use crate::numbers::Number;
use crate::query::{Query, find, one_of};
use crate::{capital, units};
use serde_json::{Map, Value};
use std::ops::Range;

/// Words with which something else begins.
const BOUNDARIES: &str = "in|at|for|to|from|with|on|saying|says|that|about|called|named|titled|by|into|near|tomorrow|today|\
    tonight|now|please|of";
const ARTICLES: &str = "the|a|an|my|our|your|is|it|be|make|as";
/// The most words of a name.
const MAX_NAME_WORDS: usize = 6;

/// A request, and which of its words are values already.
struct Words<'a> {
    query: &'a Query,
    said: &'a [String],
    taken: Vec<bool>,
    /// The words of the tool's name.
    tool: Vec<String>,
}

/// The parameters that the request gives. `is_named`: the tool's name was said, so that what is left may be its text.
pub(super) fn fill(tool: &Tool, query: &Query, is_named: bool) -> Map<String, Value> {
    let parameters = tool.parameters();
    let mut words = Words::new(query, words_of(&tool.name));
    let mut values = Map::new();
    for parameter in &parameters {
        let value = match &parameter.kind {
            Kind::Choice(choices) => words.choice(choices),
            Kind::Number { .. } => words.time_span(parameter),
            _ => None,
        };
        values.extend(value.map(|value| (parameter.name.to_owned(), value)));
    }
    // Other numbers are distinguished only by their order.
    let is_open = |p: &&Parameter<'_>| matches!(p.kind, Kind::Number { .. }) && !values.contains_key(p.name);
    let open: Vec<_> = parameters.iter().filter(is_open).collect();
    let left = words.free_numbers();
    if left.len() == open.iter().filter(|parameter| parameter.required).count().max(1) {
        for (parameter, found) in open.iter().zip(left) {
            let value = number(parameter, found.value).inspect(|_| words.take(found.at..found.end()));
            values.extend(value.map(|value| (parameter.name.to_owned(), value)));
        }
    }
    let lacks = |values: &Map<String, Value>, p: &Parameter<'_>| !values.contains_key(p.name) && !p.wants_format();
    // In the order of the kinds: the surest first.
    for kind in &WORDS.kinds {
        for parameter in parameters.iter().filter(|p| matches!(p.kind, Kind::Text(of) if of == kind)) {
            if lacks(&values, parameter) {
                let text = words.place_of(kind, parameter).and_then(|range| words.text(range, kind));
                values.extend(text.map(|text| (parameter.name.to_owned(), text)));
            }
        }
    }
    let mut open = parameters.iter().filter(|parameter| parameter.required && lacks(&values, parameter));
    if let (Some(parameter), None, true) = (open.next(), open.next(), is_named) {
        values.extend(words.left_over(parameter).map(|text| (parameter.name.to_owned(), text)));
    }
    values
}

/// The value of one parameter from the answer to the question for it.
pub(super) fn answer(parameter: &Parameter<'_>, query: &Query) -> Option<Value> {
    let mut words = Words::new(query, Vec::new());
    match &parameter.kind {
        Kind::Choice(choices) => words.choice(choices),
        Kind::Number { .. } => words.time_span(parameter).or_else(|| number(parameter, query.numbers.first()?.value)),
        Kind::Switch => {
            let yes = query.said("yes|yeah|yep|sure|on|true|okay|ok");
            let no = query.said("no|nope|off|false");
            (yes != no).then_some(Value::Bool(yes))
        }
        Kind::Text(kind) => {
            let is_question = query.starts("what|who|when|how|why|where|which|whose");
            let is_lead = |word: &&String| !kind.is_free() && (one_of(word, BOUNDARIES) || one_of(word, ARTICLES));
            let start = words.said.iter().take_while(is_lead).count();
            let is_value = !is_question && (kind.is_free() || words.said.len() <= MAX_NAME_WORDS);
            is_value.then(|| words.text(start..words.said.len(), kind))?
        }
        Kind::Structured => None,
    }
}

fn number(parameter: &Parameter<'_>, value: f64) -> Option<Value> {
    // Beyond 2^53 a float no longer names one whole number.
    let is_whole = value.fract() == 0.0 && value.abs() < 9e15;
    if (parameter.kind == Kind::Number { whole: true } && !is_whole) || !parameter.allows(value) {
        return None;
    }
    Some(if is_whole { Value::from(value as i64) } else { Value::from(value) })
}

fn is_plain(word: &str) -> bool {
    one_of(word, &WORDS.stop) || one_of(word, &WORDS.weak) || is_verb(word) || one_of(word, "on|off|out|down|all|every")
}

impl<'a> Words<'a> {
    fn new(query: &'a Query, tool: Vec<String>) -> Self {
        Self { query, said: &query.words, taken: vec![false; query.words.len()], tool }
    }

    fn take(&mut self, range: Range<usize>) {
        self.taken[range].fill(true);
    }

    /// The text of a range as a value; names get the capitals that a recognizer does not write.
    fn text(&mut self, range: Range<usize>, kind: &TextKind) -> Option<Value> {
        let text = self.query.raw_words(range.clone());
        let text = text.trim_matches(|c: char| c.is_whitespace() || ".,?!:;\"“”".contains(c));
        if range.is_empty() || text.is_empty() {
            return None;
        }
        self.take(range);
        let name = |word: &str| if one_of(word, "and|of|the|de|la|upon|in") { word.to_owned() } else { capital(word) };
        let is_bare = kind.is_name && !text.chars().any(char::is_uppercase);
        let names = || text.split(' ').map(name).collect::<Vec<_>>().join(" ");
        Some(Value::String(if is_bare { names() } else { text.to_owned() }))
    }

    /// The choice whose words were said; of several, the longest.
    fn choice(&mut self, choices: &[&Value]) -> Option<Value> {
        let place = |choice: &Value| {
            let number = self.query.numbers.iter().find(|number| choice.as_f64() == Some(number.value));
            number.map(|number| number.at..number.end()).or_else(|| find(self.said, &spoken_choice(choice)))
        };
        let found = choices.iter().filter_map(|choice| Some((place(choice)?, *choice)));
        let (place, choice) = found.max_by_key(|(place, _)| place.len())?;
        self.take(place);
        Some(choice.clone())
    }

    fn free_numbers(&self) -> Vec<Number> {
        let is_free = |number: &&Number| !self.taken[number.at..number.end()].contains(&true);
        self.query.numbers.iter().filter(is_free).copied().collect()
    }

    /// `two and a half hours` in the parameter's unit; several spans are added up.
    fn time_span(&mut self, parameter: &Parameter<'_>) -> Option<Value> {
        let described = words_of(parameter.description());
        let unit = parameter.words.iter().chain(&described).find_map(|word| units::seconds(word))?;
        let mut total = 0.0;
        let mut places = Vec::new();
        for at in 1..self.said.len() {
            let Some(seconds) = units::seconds(&self.said[at]) else { continue };
            let end = at - usize::from(one_of(&self.said[at - 1], "a|an|of"));
            let number = self.free_numbers().into_iter().find(|number| number.end() == at || number.end() == end);
            if number.is_some() || end < at {
                total += number.map_or(1.0, |number| number.value) * seconds;
                places.push(number.map_or(end, |number| number.at)..at + 1);
            }
        }
        let value = number(parameter, total / unit).filter(|_| !places.is_empty())?;
        places.into_iter().for_each(|place| self.take(place));
        Some(value)
    }

    /// Where a text stands: behind a word that leads to its kind.
    fn place_of(&self, kind: &TextKind, parameter: &Parameter<'_>) -> Option<Range<usize>> {
        let is = |list: &str| parameter.words.iter().any(|word| one_of(word, list));
        let leads = match () {
            () if is("from|origin|source|departure|start|sender") => "from",
            () if is("to|destination|target|arrival|end|recipient|receiver") => "to|with|for",
            () if !parameter.required && kind.leads.starts_with("called") => "called|named",
            () => &kind.leads,
        };
        // In `turn on the light` the `on` belongs to the tool.
        let own = |lead: &&str| !self.tool.iter().any(|word| word == lead);
        let after = |lead: &str| {
            let mut places = (0..self.said.len()).rev().filter(|at| self.said[*at] == lead && !self.taken[*at]);
            places.find_map(|at| self.value_from(at + 1, kind))
        };
        let day = || self.said.iter().position(|word| !kind.days.is_empty() && one_of(word, &kind.days));
        leads.split('|').filter(own).find_map(after).or_else(|| day().map(|at| at..at + 1))
    }

    /// A value that begins here, without its article, up to where something else begins; a free text goes on.
    fn value_from(&self, at: usize, kind: &TextKind) -> Option<Range<usize>> {
        let start = at + self.said.get(at..)?.iter().take_while(|word| one_of(word, ARTICLES)).count();
        let goes_on = |at: &usize| !self.taken[*at] && (kind.is_free() || !one_of(&self.said[*at], BOUNDARIES));
        let n = (start..self.said.len()).take_while(goes_on).count();
        (n > 0 && (kind.is_free() || n <= MAX_NAME_WORDS)).then_some(start..start + n)
    }

    /// What is left of a request that named its tool is the one text it still lacks.
    fn left_over(&mut self, parameter: &Parameter<'_>) -> Option<Value> {
        let Kind::Text(kind) = parameter.kind else { return None };
        let is_own = |at: usize| self.tool.iter().any(|own| says(&self.said[at..=at], own));
        let is_open = |at: &usize| !self.taken[*at] && !is_own(*at) && (kind.is_free() || !is_plain(&self.said[*at]));
        let starts = |at: &usize| is_open(at) && !is_plain(&self.said[*at]) && !one_of(&self.said[*at], BOUNDARIES);
        let start = (0..self.said.len()).find(starts)?;
        let n = (start..self.said.len()).take_while(is_open).count();
        let fits = kind.days.is_empty() && (kind.is_free() || n <= MAX_NAME_WORDS);
        fits.then(|| self.text(start..start + n, kind))?
    }
}
