//! Greetings, thanks, who the assistant is, what it can and cannot do.

use super::query::Query;
use super::talks::TALKS;
use super::{Reply, Scene, sentence};
use jiff::Zoned;

pub(super) fn answer(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    my_name(scene, query).or_else(|| greeting(scene.now, query)).or_else(|| talk(query))
}

/// The part of the request that is the phrase decides how likely it was meant.
fn talk(query: &Query) -> Option<Reply> {
    let n_words = query.words.len().max(1);
    let best = TALKS.iter().filter_map(|talk| {
        if query.is(talk.whole) {
            return Some((81, talk));
        }
        let n =
            talk.phrases.iter().filter(|phrase| query.said(&[phrase])).map(|phrase| phrase.split(' ').count()).max()?;
        let outside = n_words.saturating_sub(n);
        Some((80usize.saturating_sub(4 * outside) as u8, talk))
    });
    let (score, talk) = best.max_by_key(|(score, _)| *score)?;
    (score >= 40).then(|| Reply { score, text: talk.answer.to_owned() })
}

fn greeting(now: &Zoned, query: &Query) -> Option<Reply> {
    const GREETINGS: &[&str] = &[
        "hello",
        "hi",
        "hey",
        "hello there",
        "hi there",
        "hey there",
        "good morning",
        "good afternoon",
        "good evening",
        "greetings",
        "good day",
        "howdy",
        "hello antiphon",
        "hi antiphon",
        "hey antiphon",
        "good morning antiphon",
        "yo",
        "hallo",
        "hullo",
        "hey computer",
        "hello computer",
        "hello again",
        "hello hello",
        "hello assistant",
        "hello my friend",
        "morning",
        "hello anti phone",
        "good evening antiphon",
        "good afternoon antiphon",
        "hi assistant",
        "hello how",
        "hey you",
    ];
    if !query.is(GREETINGS)
        && !query.all.join(" ").eq("hello everybody")
        && !query.is(&["hello everyone", "hello world", "say hello", "say hi"])
    {
        return None;
    }
    let part = match now.hour() {
        5..12 => "Good morning",
        12..18 => "Good afternoon",
        _ => "Good evening",
    };
    let text = if query.said(&["good morning|afternoon|evening"]) {
        format!("{part}! What can I do for you?")
    } else {
        "Hello! What can I do for you?".to_owned()
    };
    Some(Reply { score: 81, text })
}

/// `my name is Anna`, and later `what is my name`.
fn my_name(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    let told = |text: &str| {
        let query = Query::new(text);
        let after = ["my name is", "call me", "i am called", "my name"]
            .iter()
            .find_map(|pattern| super::query::find(&query.all, pattern))?;
        let name = query.all.get(after.end)?;
        let noise = super::query::one_of(name, "what|is|a|the|not|it|again|later|back");
        (!noise && after.end + 3 > query.all.len()).then(|| super::days::capital(name))
    };
    if query.is(&["who am i"])
        || query.said(&[
            "what is my name",
            "do you know my name",
            "remember my name",
            "what do you call me",
            "say my name",
            "what my name is",
            "know who i am",
        ])
    {
        let name = scene.past.iter().rev().find_map(|exchange| told(&exchange.question));
        return Some(Reply {
            score: 88,
            text: sentence(
                &name
                    .map_or_else(|| "you have not told me your name".to_owned(), |name| format!("your name is {name}")),
            ),
        });
    }
    let name = told(&query.raw)?;
    Some(Reply { score: 84, text: format!("Nice to meet you, {name}.") })
}

#[cfg(test)]
mod tests {
    use crate::testing::{check_all, check_dialogue};

    #[test]
    fn small_talk() {
        check_all(&[
            ("hello", "Hello!"),
            ("good morning", "Good afternoon!"),
            ("how are you today", "I am fine"),
            ("what's your name", "My name is Antiphon."),
            ("who made you", "the people who write Antiphon"),
            ("what can you do", "I can tell the time"),
            ("can you help me", "I can tell the time"),
            ("what is antiphon", "voice hub"),
            ("are you a robot", "no person"),
            ("thank you very much", "You are welcome."),
            ("goodbye", "Goodbye!"),
            ("never mind", "Okay."),
            ("what's the weather like", "I cannot know that"),
            ("set a timer for ten minutes", "I cannot do that"),
        ]);
        check_dialogue(&[("my name is anna", "Nice to meet you, Anna."), ("what is my name", "Your name is Anna.")]);
    }
}
