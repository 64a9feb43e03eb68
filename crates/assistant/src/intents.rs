//! Which intent answers: one ordered table, the most specific intents first. The first one that answers wins.
//!
//! A request of several sentences, or of two requests joined by "and", is answered in parts. A short follow-up ("and
//! germany", "what about tomorrow", "now backwards") is rewritten into the question it stands for.

use crate::conversation::Context;
use crate::query::{Query, begins, find, one_of};
use crate::{
    arithmetic, calendar, chance, clock, counting, facts, number_facts, numbers, repeating, sentence, small_talk,
    spelling, units,
};

type Answer = fn(&Context<'_>, &Query) -> Option<String>;

/// All intents, in the order in which they are tried.
const INTENTS: [(&str, Answer); 19] = [
    ("repeat after me", |_, query| repeating::after_me(query)),
    ("what I said", repeating::what_i_said),
    ("spelling", |_, query| spelling::answer(query)),
    ("chance", chance::answer),
    ("counting", |_, query| counting::answer(query)),
    (LIMITS, |context, query| small_talk::talk(context, query, LIMITS)),
    ("number facts", |_, query| number_facts::answer(query)),
    ("facts", |_, query| facts::answer(query)),
    ("clock", clock::answer),
    ("calendar", calendar::answer),
    ("units", units::answer),
    ("sums", arithmetic::answer),
    ("jokes", small_talk::joke_or_story),
    (ABOUT, |context, query| small_talk::talk(context, query, ABOUT)),
    ("say again", repeating::again),
    (MANNERS, |context, query| small_talk::talk(context, query, MANNERS)),
    (FOLLOW_UP, follow_up),
    ("a day", calendar::day_by_name),
    ("a calculation among other words", arithmetic::embedded),
];

const LIMITS: &str = "limits";
const ABOUT: &str = "about";
const MANNERS: &str = "manners";
const FOLLOW_UP: &str = "follow-up";

/// More words than this are no request of these fields, except for what is to be repeated.
const MAX_WORDS: usize = 60;
/// A follow-up has no more words than this.
const MAX_FOLLOW_UP_WORDS: usize = 8;

const NOTHING_HEARD: &str = "I did not hear any words.";
const NOT_UNDERSTOOD: &str =
    "I cannot answer that offline; ask me for the time, a date, a sum, units, spelling or a joke.";

/// The answer to a request.
pub(crate) fn answer(context: &Context<'_>, request: &str) -> String {
    let query = Query::new(request);
    if query.all.is_empty() {
        return NOTHING_HEARD.to_owned();
    }
    // What is to be repeated may hold sentences, questions and all.
    if let Some(text) = repeating::after_me(&query).filter(|_| !goes_on_after_text(&query)) {
        return text;
    }
    let answers = if query.all.len() > MAX_WORDS { Vec::new() } else { answers(context, request) };
    let texts: Vec<String> = answers.into_iter().map(|(_, text)| text).collect();
    if texts.is_empty() { NOT_UNDERSTOOD.to_owned() } else { texts.join(" ") }
}

/// Whether the text is a request by itself, whatever was said before it.
pub(crate) fn stands_alone(context: &Context<'_>, text: &str) -> bool {
    first(&context.fresh(), &Query::new(text)).is_some()
}

/// Whether there is an answer, and not only a statement of what cannot be done.
pub(crate) fn understands(context: &Context<'_>, text: &str) -> bool {
    Query::new(text).all.len() <= MAX_WORDS && answers(context, text).iter().any(|(name, _)| *name != LIMITS)
}

/// The name and the answer of the first intent that has one.
fn first(context: &Context<'_>, query: &Query) -> Option<(&'static str, String)> {
    first_of(&INTENTS, context, query)
}

fn first_of(rows: &[(&'static str, Answer)], context: &Context<'_>, query: &Query) -> Option<(&'static str, String)> {
    if query.words.is_empty() {
        None
    } else {
        rows.iter().find_map(|(name, answer)| Some((*name, answer(context, query)?)))
    }
}

/// The answers to all sentences of a text. Beside another answer, a greeting needs none.
fn answers(context: &Context<'_>, text: &str) -> Vec<(&'static str, String)> {
    let sentences = sentences(text);
    let mut answers: Vec<_> = sentences.iter().flat_map(|sentence| in_parts(context, sentence)).collect();
    if sentences.len() > 1 {
        if answers.iter().all(|(name, _)| *name == MANNERS) {
            answers = first(context, &Query::new(text)).map_or(answers, |whole| vec![whole]);
        } else {
            answers.retain(|(name, _)| *name != MANNERS);
        }
    }
    answers.dedup();
    answers
}

/// The sentences of a written text: a mark ends one only before a space.
fn sentences(text: &str) -> Vec<String> {
    let lines = [". ", "! ", "? ", "; "].iter().fold(text.to_owned(), |text, mark| text.replace(mark, "\n"));
    lines.lines().filter(|line| line.chars().any(char::is_alphanumeric)).map(str::to_owned).collect()
}

/// One sentence: one request, or two joined by "and" if each is answered by itself.
fn in_parts(context: &Context<'_>, text: &str) -> Vec<(&'static str, String)> {
    const JOINTS: [&str; 5] = ["and then", "and also", "then", "and", "also"];
    // A new request begins with one of these.
    const STARTS: &str = "what|how|who|when|which|where|is|tell|say|spell|count|convert|flip|toss|roll|pick|repeat|give|\
        calculate|can|could|do|recite|name|list|whats|please|are|will|why|choose|throw|was|does|round|would";
    let query = Query::new(text);
    let alone = |text: &str| first(&context.fresh(), &Query::new(text)).filter(|(name, _)| *name != LIMITS);
    for joint in JOINTS {
        for at in 1..query.words.len() {
            let Some(n) = begins(&query.words[at..], joint) else { continue };
            if !query.words.get(at + n).is_some_and(|word| one_of(word, STARTS)) {
                continue;
            }
            if let (Some(left), Some(right)) = (alone(query.raw_words(0..at)), alone(query.raw_from(at + n)))
                && left.1 != right.1
            {
                return vec![left, right];
            }
        }
    }
    first(context, &query).into_iter().collect()
}

/// `say hello and then count to three` is two requests, though what is to be said could go on to the end.
fn goes_on_after_text(query: &Query) -> bool {
    find(&query.words, "and then|also count|say|tell|spell|repeat|what / then count|say|spell").is_some()
}

/// The answer to the question that a follow-up stands for.
fn follow_up(context: &Context<'_>, query: &Query) -> Option<String> {
    first(&context.fresh(), &Query::new(&in_full(context, query)?)).map(|(_, text)| text)
}

/// The last question, written out if it was itself a follow-up, and the intent that answered it.
fn last_question(context: &Context<'_>) -> Option<(&'static str, Query)> {
    let (last, earlier) = context.before_last()?;
    let query = Query::new(&last.question);
    // The rows of the table one by one, so that each earlier question is read once.
    let row = INTENTS.iter().position(|(name, _)| *name == FOLLOW_UP)?;
    if let Some((name, _)) = first_of(&INTENTS[..row], &earlier, &query) {
        return Some((name, query));
    }
    let Some(text) = in_full(&earlier, &query) else {
        return Some((first_of(&INTENTS[row + 1..], &earlier, &query)?.0, query));
    };
    let query = Query::new(&text);
    Some((first(&earlier.fresh(), &query)?.0, query))
}

/// A follow-up as a question of its own.
fn in_full(context: &Context<'_>, query: &Query) -> Option<String> {
    const JOINTS: &str = "and|what|about|how|now|same|the|for|of|also|with|then|is|do|in";
    let begins = query.said("and / what|how about / now / same for / what of / in / also / then");
    let n_words = query.words.len();
    if !(begins || n_words <= 3) || n_words > MAX_FOLLOW_UP_WORDS {
        return None;
    }
    let (intent, last) = last_question(context)?;
    let rest: Vec<String> = query.words.iter().skip_while(|word| one_of(word, JOINTS)).cloned().collect();
    let text = rest.join(" ");
    if text.is_empty() {
        return None;
    }
    let has = |patterns| last.has(patterns);
    Some(match intent {
        "spelling" if begins || n_words <= 2 => format!("spell {text}"),
        "facts" if has("capital") => format!("what is the capital of {text}"),
        "facts" if has("opposite") => format!("what is the opposite of {text}"),
        "counting" if numbers::all(&rest).is_empty() => format!("{} {text}", last.words.join(" ")),
        "counting" => format!("count {text}"),
        "calendar" | "a day" => match () {
            () if has("until|till") => format!("how many days until {text}"),
            () if has("leap") => format!("is {text} a leap year"),
            () if has("after") => format!("what comes after {text}"),
            () if has("before") => format!("what comes before {text}"),
            () if has("how many days") => format!("how many days are in {text}"),
            () => format!("what day is {text}"),
        },
        "number facts" => {
            let new = numbers::read(&rest)?;
            let old = last.numbers.first()?;
            [&last.words[..old.at], &rest[..new.len], &last.words[old.end()..]].concat().join(" ")
        }
        _ => return None,
    })
}

/// A sentence as an intent's answer.
pub(crate) fn say(text: &str) -> Option<String> {
    Some(sentence(text))
}
