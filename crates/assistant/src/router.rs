//! Which field answers: each is asked, and the answer most likely meant is taken.
//!
//! Tried in turn: the request as a whole; the request as a follow-up of the last one; its sentences and parts, where
//! two things were asked; the request with misheard words put right, by their sound, then by their letters. Then the
//! honest word that it was not understood.

use super::query::{Query, find, one_of};
use super::{Reply, Scene, misheard, repair, sentence};
use super::{
    calendar, chance, clock, counting, knowledge, number_facts, repeating, small_talk, spelling, stories, sums,
    units_of_measure,
};

type Field = fn(&Scene<'_>, &Query) -> Option<Reply>;

/// The fields. Of equal scores the first one wins.
const FIELDS: [(&str, Field); 12] = [
    ("repeating", repeating::answer),
    ("spelling", spelling::answer),
    ("counting", counting::answer),
    ("calendar", calendar::answer),
    ("clock", clock::answer),
    ("number facts", number_facts::answer),
    ("units", units_of_measure::answer),
    ("sums", sums::answer),
    ("chance", chance::answer),
    ("stories", stories::answer),
    ("knowledge", knowledge::answer),
    ("small talk", small_talk::answer),
];

/// From here on an answer is given.
const ENOUGH: u8 = 40;

/// Words of a request at most, but for what is to be repeated: nobody asks these questions in more, and the time it
/// takes to read one grows with the square of its length.
const LONGEST: usize = 60;

/// From here on a part of a request stands on its own.
const SURE: u8 = 70;

pub(super) fn answer(scene: &Scene<'_>, request: &str) -> String {
    let heard = request.trim();
    let query = Query::new(heard);
    if query.all.is_empty() {
        return "I did not hear any words.".into();
    }
    // What is to be repeated may hold sentences, questions and all.
    if let Some(reply) = repeating::answer(scene, &query).filter(|reply| reply.score >= SURE)
        && !splits_after_text(&query)
    {
        return reply.text;
    }
    if query.all.len() > LONGEST {
        return not_understood(heard);
    }
    one_or_more(scene, heard)
        .or_else(|| misheard::put_right(&query.all).and_then(|text| one_or_more(scene, &text)))
        .or_else(|| one_or_more(scene, &repair::repaired(&query)))
        .unwrap_or_else(|| not_understood(heard))
}

/// Whether this is a request by itself, whatever was said before it.
pub(super) fn stands_alone(scene: &Scene<'_>, text: &str) -> bool {
    best(&Scene { past: &[], ..*scene }, &Query::new(text)).is_some_and(|reply| reply.score >= SURE)
}

/// Whether the assistant itself has an answer, and not only an honest word that it has none.
pub(super) fn understands(scene: &Scene<'_>, request: &str) -> bool {
    let answer = answer(scene, request);
    ![NO_MODEL, "I cannot", "I do not know", "I have no"].iter().any(|start| answer.starts_with(start))
}

/// How an answer begins that is none.
const NO_MODEL: &str = "I have no language model here";

fn not_understood(heard: &str) -> String {
    format!("{NO_MODEL}; I heard: {}", sentence(heard))
}

/// `say hello and then count to three` is two requests, though the first could go on to the end.
fn splits_after_text(query: &Query) -> bool {
    find(&query.words, "and then|also count|say|tell|spell|repeat|what").is_some()
        || find(&query.words, "then count|say|spell").is_some()
}

fn one_or_more(scene: &Scene<'_>, text: &str) -> Option<String> {
    let sentences = sentences(text);
    let mut answers: Vec<Reply> = Vec::new();
    for sentence in &sentences {
        answers.extend(parts(scene, sentence));
    }
    if sentences.len() > 1 {
        // Beside an answer, a greeting needs none.
        if let Some(whole) =
            best(scene, &Query::new(text)).filter(|whole| answers.iter().all(|part| part.score + 5 < whole.score))
        {
            return Some(whole.text);
        }
        let asked = |reply: &Reply| !is_politeness(&reply.text);
        if answers.iter().any(asked) {
            answers.retain(asked);
        }
    }
    answers.dedup();
    let texts: Vec<_> = answers.into_iter().map(|reply| reply.text).collect();
    (!texts.is_empty()).then(|| texts.join(" "))
}

fn is_politeness(answer: &str) -> bool {
    [
        "Hello!",
        "Good morning!",
        "Good afternoon!",
        "Good evening!",
        "You are welcome.",
        "All right.",
        "Okay.",
        "No harm",
        "Thank you, that is kind",
    ]
    .iter()
    .any(|start| answer.starts_with(start))
}

/// The sentences of a written text. A dot inside a number, or after a digit's factorial, ends none.
fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    let mut before = ' ';
    while let Some((at, c)) = chars.next() {
        let at_end = chars.peek().is_none_or(|(_, next)| next.is_whitespace());
        let factorial = c == '!' && before.is_ascii_digit();
        let initial = c == '.'
            && text[..at].chars().rev().nth(1).is_none_or(|c| c.is_whitespace() || c == '.')
            && before.is_alphabetic();
        if c == '\n' || c == ';' || (matches!(c, '.' | '?' | '!') && at_end && !factorial && !initial) {
            let end = at + c.len_utf8();
            sentences.push(text[start..end].trim());
            start = end;
        }
        before = c;
    }
    sentences.push(text[start..].trim());
    sentences.retain(|sentence| sentence.chars().any(char::is_alphanumeric));
    sentences
}

/// One sentence: one request, or two joined by "and" where each stands on its own.
fn parts(scene: &Scene<'_>, text: &str) -> Vec<Reply> {
    let query = Query::new(text);
    let whole = best(scene, &query);
    const JOINTS: [&str; 5] = ["and then", "and also", "then", "and", "also"];
    // A new request begins with one of these.
    const STARTS: &str = "what|how|who|when|which|where|is|tell|say|spell|count|convert|flip|toss|roll|pick|repeat|give|calculate|can|could|do|sing|recite|name|list|whats|please|are|will|add|multiply|divide|subtract|why|choose|throw|was|does|round|would|i|the|a";
    for joint in JOINTS {
        for at in 1..query.words.len() {
            let n = joint.split(' ').count();
            let starts = query.words.get(at + n).is_some_and(|word| one_of(word, STARTS));
            if !starts || find(&query.words[at..(at + n).min(query.words.len())], joint).is_none() {
                continue;
            }
            let (left, right) = (query.raw_words(0..at), query.raw_from(at + n));
            let (left, right) = (Query::new(left), Query::new(right));
            // "One and a half", "the day and the time" are no two requests.
            let least = if one_of(&query.words[at + n], "the|a|i|is|add|multiply|divide|subtract") { 86 } else { SURE };
            let answers = (
                best_new(scene, &left).filter(|left| left.score >= SURE),
                best_new(scene, &right).filter(|right| right.score >= least),
            );
            if let (Some(left), Some(right)) = answers {
                let whole_is_better =
                    whole.as_ref().is_some_and(|whole| whole.score >= 87 && whole.score > left.score.max(right.score));
                let spans_all =
                    whole.as_ref().is_some_and(|whole| whole.text.len() > left.text.len() + right.text.len());
                if left.text != right.text && (splits_after_text(&query) || (!whole_is_better && !spans_all)) {
                    return vec![left, right];
                }
            }
        }
    }
    whole.into_iter().collect()
}

/// The best answer of any field.
fn best(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    let direct = best_new(scene, query);
    if direct.as_ref().is_some_and(|reply| reply.score >= SURE) {
        return direct;
    }
    let follow = follow_up(scene, query);
    match (direct, follow) {
        (Some(direct), Some(follow)) => Some(if follow.score > direct.score { follow } else { direct }),
        (direct, follow) => direct.or(follow),
    }
}

fn best_new(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    best_field(scene, query).map(|(_, reply)| reply)
}

fn best_field(scene: &Scene<'_>, query: &Query) -> Option<(&'static str, Reply)> {
    if query.words.is_empty() {
        return None;
    }
    let answers = FIELDS.iter().filter_map(|(name, field)| field(scene, query).map(|reply| (*name, reply)));
    let best = answers.reduce(|best, next| if next.1.score > best.1.score { next } else { best });
    best.filter(|(_, reply)| reply.score >= ENOUGH)
}

/// `and germany`, `what about tomorrow`, `now backwards`, `again`: asked as the last question would be.
fn follow_up(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    let asked = meant(scene, query)?;
    let reply = best_new(scene, &Query::new(&asked))?;
    Some(Reply { score: reply.score.saturating_sub(8), ..reply })
}

/// What the last question was in full, itself perhaps a follow-up.
fn last_in_full(scene: &Scene<'_>) -> Option<Query> {
    let (last, earlier) = scene.before_last()?;
    let query = Query::new(&last.question);
    let understood = best_field(&earlier, &query).is_some_and(|(_, reply)| reply.score >= SURE);
    Some(if understood { query } else { meant(&earlier, &query).map_or(query, |asked| Query::new(&asked)) })
}

/// The follow-up as a question of its own.
fn meant(scene: &Scene<'_>, query: &Query) -> Option<String> {
    const BEGINNINGS: [&str; 9] =
        ["and", "what about", "how about", "now", "same for", "what of", "in", "also", "then"];
    let begins = query.said(&BEGINNINGS);
    let again = query.is(&[
        "again",
        "once more",
        "one more time",
        "another",
        "another one",
        "one more",
        "do it|that again",
        "again please",
        "flip|roll|try|throw|toss|pick again",
        "flip|roll|toss it again",
        "same again",
        "next",
        "more",
    ]);
    if !(begins || again || query.words.len() <= 3) || query.words.len() > 8 {
        return None;
    }
    let last = last_in_full(scene)?;
    let last_words = last.words.join(" ");
    let (_, earlier) = scene.before_last()?;
    let (field, _) = best_field(&earlier, &last)?;
    if again {
        return (field == "chance").then_some(last_words);
    }
    const JOINTS: &str = "and|what|about|how|now|same|the|for|of|also|with|then|is|do|in";
    let rest = query.words.iter().skip_while(|word| one_of(word, JOINTS)).cloned().collect::<Vec<_>>();
    let has_number = !super::numbers::all(&rest, super::numbers::STRICT).is_empty();
    let rest = rest.join(" ");
    if rest.is_empty() {
        return None;
    }
    Some(match field {
        "spelling" if begins || query.words.len() <= 2 => format!("spell {rest}"),
        "knowledge" if last.has("capital") => format!("what is the capital of {rest}"),
        "knowledge" if last.has("opposite") => format!("what is the opposite of {rest}"),
        "counting" if has_number => format!("count {rest}"),
        "counting" => format!("{last_words} {rest}"),
        "clock" => format!("what time is it in {rest}"),
        "calendar" if last.any(&["until|till"]) => format!("how many days until {rest}"),
        "calendar" if last.has("leap") => format!("is {rest} a leap year"),
        "calendar" if last.has("after") => format!("what comes after {rest}"),
        "calendar" if last.has("before") => format!("what comes before {rest}"),
        "calendar" if last.has("how many days") => format!("how many days are in {rest}"),
        "calendar" => format!("what day is {rest}"),
        "number facts" => substituted(&last_words, &rest)?,
        _ => return None,
    })
}

/// The last question with its number replaced.
fn substituted(question: &str, number: &str) -> Option<String> {
    let words: Vec<String> = question.split(' ').map(str::to_owned).collect();
    let new: Vec<String> = number.split(' ').map(str::to_owned).collect();
    super::numbers::read(&new, super::numbers::STRICT)?;
    let (at, found) = *super::numbers::all(&words, super::numbers::STRICT).first()?;
    Some([&words[..at], &new[..], &words[at + found.len..]].concat().join(" "))
}
