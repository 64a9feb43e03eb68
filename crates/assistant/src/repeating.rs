//! Saying after somebody, saying again, and what was said: `repeat after me ...`, `say hello world`, `say that again`.

use super::numbers::{self, STRICT};
use super::query::{Query, find};
use super::{Reply, Scene, sentence};

/// What people put before the words to be said.
const BEFORE: &[&str] = &[
    "repeat after me the words|word|sentence|phrase",
    "repeat after me",
    "say after me",
    "repeats after me",
    "repeat the following words|sentence|phrase|text",
    "repeat the following",
    "say the following words|sentence|phrase",
    "say the following",
    "repeat the words|word|sentence|phrase|line",
    "repeat this sentence|phrase|word",
    "repeat what i say",
    "repeat these words",
    "repeat this please",
    "repeat this",
    "repeat back to me",
    "repeat back",
    "say these words",
    "say the words|word|sentence|phrase|line",
    "say this sentence|phrase|word",
    "say out loud",
    "say to me",
    "say it with me",
    "repeat with me",
    "repeat",
    "say",
    "echo back",
    "echo",
    "pronounce the word",
    "pronounce",
    "read out",
    "read aloud",
    "read this",
    "read",
    "speak the words",
    "speak the sentence",
];

/// After these words it is no text to be said.
const NOT_TEXT: &[&str] = &[
    "that again",
    "it again",
    "again",
    "that",
    "it",
    "something",
    "a joke",
    "a story",
    "another",
    "what you said",
    "yourself",
    "your last answer",
    "the last answer",
    "the last thing",
    "anything",
    "a few words",
    "that please",
    "that one more time",
    "that once more",
    "it once more",
    "it one more time",
    "one more time",
    "once more",
    "the time",
    "the date",
    "the question",
    "the last",
    "your answer",
    "your last",
    "the answer",
    "your name",
    "please",
    "what i said",
    "what i just said",
    "the alphabet",
    "your alphabet",
    "the months",
    "the days",
    "a poem",
    "me a",
    "me the",
    "me another",
    "to me a",
    "a tongue twister",
    "more",
    "what",
    "your previous",
    "the previous",
    "slower",
    "slowly",
    "that slowly",
    "that more slowly",
    "a word",
    "a sentence",
    "nothing",
    "a rhyme",
    "one of your",
    "a number",
    "the numbers",
    "the story",
    "the joke",
    "that last",
    "that sentence",
    "that part",
    "my name",
    "the seven days",
    "all the",
    "the seasons",
    "the multiplication",
    "the abc",
];

pub(super) fn answer(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    what_i_said(scene, query).or_else(|| after_me(query)).or_else(|| again(scene, query))
}

fn after_me(query: &Query) -> Option<Reply> {
    let words = &query.words;
    let start =
        BEFORE.iter().filter_map(|pattern| find(words, pattern)).filter(|at| at.start == 0).map(|at| at.end).max()?;
    let rest = &words[start..];
    if rest.is_empty() || NOT_TEXT.iter().any(|pattern| find(rest, pattern).is_some_and(|at| at.start == 0)) {
        return None;
    }
    // "The five times table", "the numbers from one to ten" are for counting.
    if find(rest, "times table|tables").is_some()
        || find(rest, "numbers from|between").is_some()
        || (rest.len() > 2 && words[0] == "say" && find(rest, "in roman|binary").is_some())
    {
        return None;
    }
    let mut end = words.len();
    let tail = ["after me", "for me", "back to me", "to me", "please", "out loud", "if you can", "for us"];
    while let Some(at) =
        tail.iter().filter_map(|pattern| ends(&words[start..end], pattern)).max().filter(|n| start + n < end)
    {
        end -= at;
    }
    let (n_times, cut) = times(&words[start..end]);
    end -= cut;
    if start >= end {
        return None;
    }
    // To the end of the text its marks are kept: a question stays one.
    let text = if end == words.len() { query.raw_from(start) } else { query.raw_words(start..end) };
    let quotes: &[char] = &['"', '“', '”', ':', '«', '»', ' ', ',', '‘'];
    let text = sentence(text.trim_start_matches(['\'', '-']).trim_matches(quotes));
    let score = if words[0] == "read" || words[0] == "speak" { 70 } else { 95 };
    Some(Reply { score, text: vec![text; n_times].join(" ") })
}

/// How many words the words end with, if they are the pattern.
fn ends(words: &[String], pattern: &str) -> Option<usize> {
    let n = pattern.split(' ').count();
    let start = words.len().checked_sub(n)?;
    find(&words[start..], pattern).map(|_| n)
}

/// `hello three times`: how often, and how many words said so.
fn times(words: &[String]) -> (usize, usize) {
    if let Some(2) = ends(words, "* twice").filter(|_| words.len() >= 2) {
        return (2, 1);
    }
    if words.len() >= 3 && words.last().is_some_and(|word| word == "times") {
        let start = (1..words.len() - 1).find(|start| {
            numbers::read(&words[*start..words.len() - 1], STRICT)
                .is_some_and(|found| start + found.len == words.len() - 1)
        });
        if let Some((start, found)) = start.and_then(|start| Some((start, numbers::read(&words[start..], STRICT)?)))
            && (1.0..=10.0).contains(&found.value)
            && found.value.fract() == 0.0
        {
            return (found.value as usize, words.len() - start);
        }
    }
    (1, 0)
}

/// The last answer once more.
fn again(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    let asks = query.said(&[
        "say that|it again",
        "say that|it|this once|one more",
        "repeat that|it|yourself",
        "what did you say",
        "what did you just say",
        "what was that",
        "come again",
        "i did not hear",
        "did not catch",
        "did not get that",
        "did not understand",
        "once more please",
        "one more time please",
        "repeat your last answer",
        "repeat the last",
        "repeat your|the answer|last",
        "can not hear you",
        "tell me that|it again",
        "say again",
        "what you said",
        "what you just said",
        "what was your last answer",
        "what have you said",
        "you said what",
        "missed that|it",
        "that again",
        "repeat please",
        "slower please",
        "say that|it slowly|slower",
        "speak slower|slowly",
        "can|could you repeat|repeats",
        "would you repeat",
        "please repeat",
        "repeat what you",
    ]) || query.is(&[
        "pardon",
        "pardon me",
        "excuse me",
        "what",
        "sorry",
        "repeat",
        "say again",
        "again",
        "huh",
        "repeat please",
        "sorry what",
        "repeat again",
        "i beg your pardon",
        "beg your pardon",
        "once more",
        "one more time",
    ]);
    let to_say = query.starts(&["repeat|say|echo after|the|this"]) || query.words.len() > 9;
    if !asks || to_say {
        return None;
    }
    let short = query.words.len() <= 2;
    if query.is(&["can|could you repeat *"]) && !query.has("that|it|yourself|this|please") {
        return None;
    }
    match scene.past.iter().rev().find(|exchange| !exchange.answer.is_empty()) {
        Some(last) => Some(Reply { score: if short { 76 } else { 90 }, text: last.answer.clone() }),
        None if query.is(&["excuse me", "sorry", "again", "once more", "one more time"]) => None,
        None => Some(Reply { score: 76, text: "I have not said anything yet.".into() }),
    }
}

/// What the person said before.
fn what_i_said(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    let said = query.said(&[
        "what did i say|ask",
        "what did i just|first|last say|ask|tell",
        "what i said|asked",
        "what i just said|asked",
        "what was my last|first|previous question|sentence|request|message",
        "what have i said|asked",
        "what was my question",
        "what did you hear",
        "repeat my question",
        "my last question|sentence",
        "did you hear me say",
        "what i last said",
        "what did i tell you",
        "what did i just ask you",
        "what did i ask you",
        "my first question",
        "my previous question|sentence",
        "what was the last thing i",
        "what was the first thing i",
    ]);
    if !said {
        return None;
    }
    let first = query.said(&["first"]);
    let exchange = if first { scene.past.first() } else { scene.past.last() };
    let text = match exchange {
        Some(exchange) => format!("you said: {}", exchange.question.trim()),
        None => "this is the first thing you have said to me".to_owned(),
    };
    Some(Reply { score: 93, text: sentence(&text) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{check_all, check_dialogue};

    #[test]
    fn words_are_said_after_somebody() {
        check_all(&[
            ("repeat after me the quick brown fox", "The quick brown fox."),
            ("say hello world", "Hello world."),
            ("please say good morning after me", "Good morning."),
            ("Can you say “Guten Tag, Anna”?", "Guten Tag, Anna"),
            ("Repeat after me: Where is it? I am lost.", "Where is it? I am lost."),
            ("say banana three times", "Banana. Banana. Banana."),
            ("repeat the sentence I love you", "I love you."),
            ("say two plus two", "Two plus two."),
        ]);
    }

    #[test]
    fn what_was_said_is_remembered() {
        check_dialogue(&[
            ("what is two plus two", "is 4."),
            ("what did I just say", "You said: what is two plus two."),
            ("say that again", "You said: what is two plus two."),
        ]);
        check_dialogue(&[("what did I say", "first thing"), ("pardon", "first thing")]);
        check_dialogue(&[("count to three", "1, 2, 3."), ("can you repeat that please", "1, 2, 3.")]);
    }
}
