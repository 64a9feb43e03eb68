//! Texts out of a request: where a name, a place or a message begins, and where it ends.

use super::fill::Words;
use super::shape::Tool;
use super::shape::{Kind, Parameter, Text};
use super::vocabulary::{is_stop, is_verb, is_weak, says, singular, words_of};
use crate::query::{Query, find, one_of};
use serde_json::{Map, Value};
use std::ops::Range;

/// Words with which something else begins.
const BOUNDARIES: &str = "in|at|for|to|from|with|on|saying|says|that|about|called|named|titled|by|into|near|tomorrow|\
today|tonight|now|please|of";
const ARTICLES: &str = "the|a|an|my|our|your|is|it|be|make|as";
/// Behind these everything to the end is what is to be said.
const SPEAKS: &[&str] =
    &["saying", "that says", "says", "to say", "telling him|her|them", "with the text|message|words"];
/// A name is no longer than this; a message may be.
const MAX_NAME_WORDS: usize = 6;

/// Texts that are marked as such: quoted, or behind `saying`. They may hold anything, so they are found first.
pub(super) fn said_outright(parameters: &[Parameter<'_>], words: &mut Words<'_>, values: &mut Map<String, Value>) {
    let Some(parameter) = spoken_of(parameters) else { return };
    let raw = &words.query.raw;
    let quoted = raw.find(['"', '“']).and_then(|start| {
        let inner = start + raw[start..].chars().next().map_or(1, char::len_utf8);
        let end = inner + raw[inner..].find(['"', '”'])?;
        Some(raw[inner..end].trim().to_owned())
    });
    if let Some(text) = quoted.filter(|text| !text.is_empty()) {
        let held = Query::new(&text);
        if let Some(place) = find(&words.query.words, &held.words.join(" ")) {
            words.take(place);
        }
        values.insert(parameter.name.to_owned(), Value::String(text));
        return;
    }
    let said = &words.query.words;
    let Some(place) = SPEAKS.iter().find_map(|pattern| find(said, pattern)) else { return };
    let range = place.end..said.len();
    if let Some(text) = raw_text(words.query, range.clone()) {
        words.take(place.start..range.end);
        values.insert(parameter.name.to_owned(), Value::String(text));
    }
}

/// The parameter that holds what is to be said.
fn spoken_of<'a, 'b>(parameters: &'a [Parameter<'b>]) -> Option<&'a Parameter<'b>> {
    let free = |parameter: &&Parameter<'_>| parameter.kind == Kind::Text(Text::Free);
    let speaks = |parameter: &&Parameter<'_>| {
        parameter.words.iter().any(|word| one_of(word, "message|text|body|content|note|phrase"))
    };
    parameters.iter().filter(free).find(speaks).or_else(|| parameters.iter().find(free))
}

/// Texts that stand behind the word that leads to them.
pub(super) fn fill(tool: &Tool, parameters: &[Parameter<'_>], words: &mut Words<'_>, values: &mut Map<String, Value>) {
    let order = [Text::Time, Text::Language, Text::Person, Text::Geography, Text::Room, Text::Other, Text::Free];
    for wanted in order {
        for parameter in parameters.iter().filter(|parameter| parameter.kind == Kind::Text(wanted)) {
            if values.contains_key(parameter.name) || parameter.wants_format() {
                continue;
            }
            if let Some(range) = place_of(wanted, tool, parameter, words)
                && let Some(text) = raw_text(words.query, range.clone())
            {
                words.take(range);
                values.insert(parameter.name.to_owned(), Value::String(as_name(wanted, text)));
            }
        }
    }
}

fn place_of(kind: Text, tool: &Tool, parameter: &Parameter<'_>, words: &Words<'_>) -> Option<Range<usize>> {
    if kind == Text::Time {
        return moment(words);
    }
    behind_its_name(tool, parameter, words)
        .or_else(|| {
            // In `turn on the light` the word belongs to the tool.
            let own = words_of(&tool.name);
            let mut leads = leads(kind, parameter).iter().filter(|lead| !own.iter().any(|word| word == *lead));
            leads.find_map(|lead| behind(lead, words))
        })
        .map(|range| if kind == Text::Free { to_the_end(range, words) } else { range })
        .or_else(|| if matches!(kind, Text::Room | Text::Other) { before_its_noun(tool, words) } else { None })
}

/// The words that lead to a text of this kind, the surest first.
fn leads(kind: Text, parameter: &Parameter<'_>) -> &'static [&'static str] {
    let is = |list: &str| parameter.words.iter().any(|word| one_of(word, list));
    match kind {
        _ if is("from|origin|source|departure|start|sender") => &["from"],
        _ if is("to|destination|target|arrival|end|recipient|receiver") => &["to", "with", "for"],
        Text::Geography => &["in", "at", "near", "for", "to", "of", "from"],
        Text::Room => &["in", "at", "for", "of", "on"],
        Text::Person => &["to", "with", "by", "for", "from"],
        Text::Language => &["into", "to", "in"],
        Text::Free => &["about", "for", "called", "named", "titled", "to", "by"],
        Text::Other if parameter.required => &["called", "named", "for", "of", "to", "in", "with", "on", "at", "by"],
        Text::Other => &["called", "named"],
        Text::Time => &[],
    }
}

/// `city Paris`, `the order number is X1`, `subject lunch`.
fn behind_its_name(tool: &Tool, parameter: &Parameter<'_>, words: &Words<'_>) -> Option<Range<usize>> {
    let name = parameter.words.last().filter(|name| !one_of(name, "to|from|by|with"))?;
    let at = words.query.words.iter().position(|word| singular(word) == singular(name))?;
    let own = words_of(&tool.name);
    // `the room light` names no room.
    let says_more = |range: &Range<usize>| range.clone().any(|at| !own.contains(&singular(&words.query.words[at])));
    value_from(at + 1, words).filter(says_more)
}

fn behind(lead: &str, words: &Words<'_>) -> Option<Range<usize>> {
    let said = &words.query.words;
    let places = (0..said.len()).rev().filter(|at| said[*at] == lead && !words.taken[*at]);
    places.filter_map(|at| value_from(at + 1, words)).next()
}

/// Words of any kind go on up to what something else took.
fn to_the_end(range: Range<usize>, words: &Words<'_>) -> Range<usize> {
    let said = &words.query.words;
    let mut end = range.start + (range.start..said.len()).take_while(|at| !words.taken[*at]).count();
    while end > range.end && one_of(&said[end - 1], BOUNDARIES) && !one_of(&said[end - 1], "please|now|today|tomorrow")
    {
        end -= 1;
    }
    range.start..end
}

/// `the kitchen light`: what stands between an article or verb and a noun of the tool's name.
fn before_its_noun(tool: &Tool, words: &Words<'_>) -> Option<Range<usize>> {
    let said = &words.query.words;
    let nouns: Vec<String> = words_of(&tool.name).into_iter().filter(|word| !is_plain(word)).collect();
    let noun = (0..said.len()).find(|at| says(&said[*at..=*at], nouns.first().map_or("", String::as_str)))?;
    let fits =
        |at: &usize| !words.taken[*at] && !is_plain(&said[*at]) && !one_of(&said[*at], "on|off|all|every|out|down");
    let start = (0..noun).rev().take_while(fits).take(3).last()?;
    Some(start..noun)
}

fn is_plain(word: &str) -> bool {
    is_stop(word) || is_weak(word) || is_verb(word) || one_of(word, "on|off|out|down")
}

/// `tomorrow at five pm`, `at 9:30`, `on monday morning`.
fn moment(words: &Words<'_>) -> Option<Range<usize>> {
    const DAYS: &str = "today|tomorrow|tonight|monday|tuesday|wednesday|thursday|friday|saturday|sunday|noon|midnight";
    const PARTS: &str = "morning|afternoon|evening|night|am|pm|o'clock|clock|next|this|at|on|week|in|the";
    let said = &words.query.words;
    let is_number = |at: usize| {
        said[at].starts_with(|c: char| c.is_ascii_digit())
            || crate::numbers::read(&said[at..], crate::numbers::STRICT).is_some()
    };
    let of_the_clock = |at: usize| {
        let next = said.get(at + 1);
        is_number(at) && (said[at].contains(':') || next.is_some_and(|word| one_of(word, "am|pm|o'clock|clock")))
    };
    let anchor = (0..said.len()).find(|at| {
        one_of(&said[*at], DAYS) || of_the_clock(*at) || (said[*at] == "at" && at + 1 < said.len() && is_number(at + 1))
    })?;
    let belongs =
        |at: usize| !words.taken[at] && (one_of(&said[at], DAYS) || one_of(&said[at], PARTS) || is_number(at));
    let mut start = anchor;
    while start > 0 && one_of(&said[start - 1], "next|this|on") {
        start -= 1;
    }
    let mut end = anchor + 1;
    while end < said.len() && belongs(end) {
        end += 1;
    }
    while end > anchor + 1 && one_of(&said[end - 1], "at|on|in|the|next|this") {
        end -= 1;
    }
    while start < anchor && one_of(&said[start], "on|at") {
        start += 1;
    }
    if said[start] == "at" {
        start += 1;
    }
    (start < end).then_some(start..end)
}

/// A value that begins here, without its article, up to where something else begins.
fn value_from(at: usize, words: &Words<'_>) -> Option<Range<usize>> {
    let said = &words.query.words;
    let mut start = at;
    while said.get(start).is_some_and(|word| one_of(word, ARTICLES)) {
        start += 1;
    }
    let goes_on = |at: &usize| !words.taken[*at] && !one_of(&said[*at], BOUNDARIES) && !one_of(&said[*at], ". , ?");
    let n = (start..said.len()).take_while(goes_on).count();
    (n > 0 && n <= MAX_NAME_WORDS).then_some(start..start + n)
}

/// What is left of a request that named its tool is the one text it still lacks.
pub(super) fn left_over(
    tool: &Tool,
    parameters: &[Parameter<'_>],
    words: &mut Words<'_>,
    values: &mut Map<String, Value>,
) {
    let lacking = |p: &&Parameter<'_>| p.required && !values.contains_key(p.name) && !p.wants_format();
    let mut open = parameters.iter().filter(lacking);
    let (Some(parameter), None) = (open.next(), open.next()) else { return };
    let Kind::Text(kind) = parameter.kind else { return };
    if kind == Text::Time {
        return;
    }
    let said = &words.query.words;
    let name = words_of(&tool.name);
    let own = |word: &String| name.iter().any(|own| says(std::slice::from_ref(word), own));
    let open = |at: &usize| !words.taken[*at] && !own(&said[*at]) && (kind == Text::Free || !is_plain(&said[*at]));
    let Some(start) = (0..said.len()).find(|at| open(at) && !is_plain(&said[*at]) && !one_of(&said[*at], BOUNDARIES))
    else {
        return;
    };
    let end = start + (start..said.len()).take_while(open).count();
    if kind != Text::Free && end - start > MAX_NAME_WORDS {
        return;
    }
    if let Some(text) = raw_text(words.query, start..end) {
        words.take(start..end);
        values.insert(parameter.name.to_owned(), Value::String(as_name(kind, text)));
    }
}

/// The whole of an answer as a value.
pub(super) fn whole(kind: Text, query: &Query) -> Option<Value> {
    const QUESTIONS: &str = "what|who|when|how|why|where|which|whose";
    let first = query.words.first()?;
    if one_of(first, QUESTIONS) || (kind != Text::Free && query.words.len() > MAX_NAME_WORDS) {
        return None;
    }
    let skipped = query.words.iter().take_while(|word| one_of(word, BOUNDARIES) || one_of(word, ARTICLES)).count();
    let start = if kind == Text::Free { 0 } else { skipped };
    let text = raw_text(query, start..query.words.len())?;
    Some(Value::String(as_name(kind, text)))
}

fn raw_text(query: &Query, range: Range<usize>) -> Option<String> {
    let text = query.raw_words(range).trim_matches(|c: char| c.is_whitespace() || ".,?!:;\"“”".contains(c));
    (!text.is_empty()).then(|| text.to_owned())
}

/// Names of places and people begin with capitals, which a recognizer does not write.
fn as_name(kind: Text, text: String) -> String {
    if !matches!(kind, Text::Geography | Text::Person | Text::Language) || text.chars().any(char::is_uppercase) {
        return text;
    }
    const SMALL: &str = "and|of|the|de|la|upon|in";
    let words = text.split(' ').map(|word| match word {
        small if one_of(small, SMALL) => small.to_owned(),
        word => crate::days::capital(word),
    });
    words.collect::<Vec<_>>().join(" ")
}
