//! Arithmetic as it is asked: the rules of `arithmetic.toml` (`add five to seven`), the calculation in a question, and
//! continuations of the last result (`and times two`).

use crate::conversation::Context;
use crate::data::data_file;
use crate::expression::{Expression, Operations, Reader};
use crate::intents::say;
use crate::query::{Query, find, one_of};
use crate::{and_list, numbers};
use serde::Deserialize;

#[derive(Deserialize)]
struct Rules {
    rule: Vec<Rule>,
    #[serde(flatten)]
    operations: Operations,
}

#[derive(Deserialize)]
struct Rule {
    said: String,
    #[serde(default)]
    sum: String,
    #[serde(default)]
    join: String,
    #[serde(default)]
    title: String,
}

data_file!(RULES: Rules = "arithmetic.toml");

/// Words that a question may put around a calculation.
const AROUND: &str = "what|is|how|much|many|calculate|compute|are|does|equal|equals|answer|to|result|solve|evaluate|do|i|\
    get|you|would|be|comes|come|when|math|maths|problem|of|the|a|value|that|it|will|make|makes|give|gives|if|we|have|was|\
    were|about|out|and|in|for|me|tell|find|add|up|sum|total|this|equation|question|number|say|work|figure|can|let|us|my|\
    need|help|with|by|multiply|then|now|or|please|calculation|percent|on|so|just";
/// The most other words around a calculation if nothing else answers the request.
const MAX_FOREIGN_WORDS: usize = 3;

pub(crate) fn answer(context: &Context<'_>, query: &Query) -> Option<String> {
    spoken(calculation(context, query, 0)?)
}

/// A calculation among words that belong to no intent.
pub(crate) fn embedded(context: &Context<'_>, query: &Query) -> Option<String> {
    spoken(calculation(context, query, MAX_FOREIGN_WORDS)?)
}

fn spoken(expression: Expression) -> Option<String> {
    match expression.value.map(|value| numbers::say(value, 4)) {
        Ok((value, true)) => say(&format!("{} is {value}", expression.text)),
        Ok((value, false)) => say(&format!("{} is about {value}", expression.text)),
        Err(why) => say(why),
    }
}

/// The last result, which "that" means: the last question's calculation, or the last number of its answer.
fn last_value(context: &Context<'_>) -> Option<f64> {
    let (last, earlier) = context.before_last()?;
    match calculation(&earlier, &Query::new(&last.question), MAX_FOREIGN_WORDS) {
        Some(expression) => expression.value.ok(),
        None => numbers::all(&Query::new(&last.answer).all).last().map(|number| number.value),
    }
}

/// The calculation in a request, with at most `max_foreign` words around it that belong to no calculation.
fn calculation(context: &Context<'_>, query: &Query, max_foreign: usize) -> Option<Expression> {
    let words = &query.words;
    if let Some(found) = RULES.rule.iter().find_map(|rule| rule.apply(context, words)) {
        return Some(found);
    }
    let that = if query.has("that|it|this|result|answer") { last_value(context) } else { None };
    let reader = reader(words, that);
    let read = |start: usize| Some((start, reader.read(start).filter(|found| found.n_steps > 0)?));
    let longest = (0..words.len()).rev().filter_map(read).max_by_key(|(_, found)| (found.n_steps, found.end));
    if longest.as_ref().is_none_or(|(start, _)| *start > 0)
        && let Some(found) = continued(context, words)
    {
        return Some(found);
    }
    let (start, found) = longest?;
    let around = words[..start].iter().chain(&words[found.end..]);
    (around.filter(|word| !one_of(word, AROUND)).count() <= max_foreign).then_some(found)
}

/// A calculation that continues from the last result: `plus five`, `and times two`.
fn continued(context: &Context<'_>, words: &[String]) -> Option<Expression> {
    const LEADS: &str = "and|now|then|what|is|about|how|but|to|that|it|so|if|you|i|we|do|the";
    const OPERATIONS: &str = "plus|minus|times|over|^|divided|multiplied|squared|cubed|modulo|raised|take|less|add|subtract|multiply|divide|factorial";
    let n = words.iter().take_while(|word| one_of(word, LEADS)).count();
    let rest = &words[n..];
    if !one_of(rest.first()?, OPERATIONS) {
        return None;
    }
    reader(rest, Some(last_value(context)?)).continued()
}

fn reader(words: &[String], that: Option<f64>) -> Reader<'_> {
    Reader { operations: &RULES.operations, words, that }
}

fn words_of(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn spoken_number(value: f64) -> String {
    numbers::say(value, 12).0
}

impl Rule {
    fn apply(&self, context: &Context<'_>, words: &[String]) -> Option<Expression> {
        let captured = |pattern: &str| {
            let parts: Vec<&str> = pattern.split(' ').collect();
            (0..words.len()).find_map(|start| capture(&words[start..], &parts))
        };
        let values = self.said.split(" / ").find_map(captured)?;
        let spoken: Vec<String> = values.iter().map(|value| spoken_number(*value)).collect();
        let filled = |template: &str| {
            let numbered = spoken.iter().enumerate();
            numbered.fold(template.to_owned(), |text, (i, value)| text.replace(&format!("${}", i + 1), value))
        };
        let sum = match self.join.as_str() {
            "" => filled(&self.sum),
            "average" => format!("( {} ) over {}", spoken.join(" plus "), values.len()),
            "difference" if values[0] < values[1] => format!("{} minus {}", spoken[1], spoken[0]),
            "difference" => spoken.join(" minus "),
            operator => spoken.join(&format!(" {operator} ")),
        };
        let that = if sum.starts_with("that") { Some(last_value(context)?) } else { None };
        let found = reader(&words_of(&sum), that).read(0)?;
        let title = match self.join.as_str() {
            "average" => format!("the average of {}", and_list(&spoken)),
            _ if self.title.is_empty() => found.text,
            _ => filled(&self.title),
        };
        Some(Expression { text: title, ..found })
    }
}

/// The numbers of a pattern, if the words begin with it.
fn capture(words: &[String], pattern: &[&str]) -> Option<Vec<f64>> {
    let Some((part, rest)) = pattern.split_first() else { return Some(Vec::new()) };
    let with = |value: f64, n: usize| {
        let mut values = capture(&words[n..], rest)?;
        values.insert(0, value);
        Some(values)
    };
    match *part {
        "END" => words.is_empty().then(Vec::new),
        "#" => {
            let number = numbers::read(words)?;
            // `one hundred and five` is two numbers where two are wanted.
            let and = words[..number.len].iter().position(|word| word == "and");
            let first = || and.and_then(|and| with(numbers::read(&words[..and])?.value, and));
            with(number.value, number.len).or_else(first)
        }
        "##" => with(numbers::plural(words.first()?)?, 1),
        "#+" => {
            let is_sum = find(words, "plus|times|minus|squared|root|percent|divided").is_some();
            Some(numbers::at_least(words, 2)).filter(|values| values.len() >= 2 && !is_sum)
        }
        part if part.ends_with('?') => {
            let fits = words.first().is_some_and(|word| one_of(word, part.trim_end_matches('?')));
            fits.then(|| capture(&words[1..], rest)).flatten().or_else(|| capture(words, rest))
        }
        part => {
            let word = words.first()?;
            (part == "*" || one_of(word, part)).then(|| capture(&words[1..], rest))?
        }
    }
}
