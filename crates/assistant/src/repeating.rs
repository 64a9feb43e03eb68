//! Saying after the user, saying again, and what was said: `repeat after me ...`, `say hello world`, `say that again`.

use crate::conversation::Context;
use crate::intents::say;
use crate::query::{Query, begins, ends, find};

/// What people put before the words to be said.
const LEADS: &str = "repeat|say after me / repeat after me the words|word|sentence|phrase / \
    repeat|say the following / repeat|say the following words|sentence|phrase|text / \
    repeat|say the words|word|sentence|phrase|line / repeat|say this|these / repeat|say this|these sentence|phrase|word|words / \
    repeat this please / repeat what i say / repeat back / repeat back to me / repeat|say / say out loud / echo / echo back / \
    pronounce / pronounce the word";
/// After these words it is no text to be said.
const NOT_TEXT: &str = "that / it / again / something|anything|nothing / a joke|story|poem|rhyme|number|word|sentence / another / \
    what / yourself / your|the last|previous|answer|name / a few words / once|one more / the \
    time|date|question|alphabet|abc|months|days|numbers|story|joke|seasons|answer / my name / me a|the|another / please / more / \
    all the / one of your / slower|slowly / the seven days / the first";
const AGAIN: &str = "say that|it again / say that|it|this once|one more / repeat that|it|yourself / what did you say / \
    what did you just say / what was that / come again / did not hear|catch|understand / did not get that / \
    repeat your|the answer|last / can not hear you / tell me that|it again / tell it again / say again / what you said / you said what / \
    missed that|it / that again / say that|it slowly|slower / speak slower|slowly / please repeat / repeat please";
const AGAIN_WHOLE: &str = "pardon / pardon me / excuse me / what / sorry / repeat / again / i beg your pardon / \
    beg your pardon / once more / one more time / repeat again / can|could|would you repeat";
const WHAT_I_SAID: &str = "what did i say|ask / what did i just|first|last say|ask|tell / what i said|asked / \
    what i just said|asked / my last|first|previous question|sentence / what have i said|asked / what was my question / \
    what did you hear / repeat my question / what did i tell you / what was the last|first thing i";

/// `repeat after me ...`, `say ...`.
pub(crate) fn after_me(query: &Query) -> Option<String> {
    let words = &query.words;
    let start = LEADS.split(" / ").filter_map(|lead| begins(words, lead)).max()?;
    let rest = &words[start..];
    let is_command = NOT_TEXT.split(" / ").any(|pattern| begins(rest, pattern).is_some());
    if rest.is_empty()
        || is_command
        || find(rest, "times table|tables / numbers from|between / in roman|binary").is_some()
    {
        return None;
    }
    let mut end = words.len();
    while let Some(n) =
        ends(&words[start..end], "after me / for me|us / back to me / to me / please / out loud / if you can")
    {
        end -= n;
    }
    if start >= end {
        return None;
    }
    // To the end of the text its marks are kept: a question stays one.
    let text = if end == words.len() { query.raw_from(start) } else { query.raw_words(start..end) };
    say(text.trim_start_matches(['\'', '-']).trim_matches(|c: char| "\"“”:«»‘, ".contains(c)))
}

pub(crate) fn again(context: &Context<'_>, query: &Query) -> Option<String> {
    if !query.is(AGAIN_WHOLE) && (!query.said(AGAIN) || query.words.len() > 9) {
        return None;
    }
    match context.past.iter().rev().find(|exchange| !exchange.answer.is_empty()) {
        Some(last) => Some(last.answer.clone()),
        None if query.is("excuse me / sorry / again / once more / one more time") => None,
        None => say("I have not said anything yet"),
    }
}

pub(crate) fn what_i_said(context: &Context<'_>, query: &Query) -> Option<String> {
    if !query.said(WHAT_I_SAID) {
        return None;
    }
    let exchange = if query.has("first") { context.past.first() } else { context.past.last() };
    match exchange {
        Some(exchange) => say(&format!("you said: {}", exchange.question.trim())),
        None => say("this is the first thing you have said to me"),
    }
}
