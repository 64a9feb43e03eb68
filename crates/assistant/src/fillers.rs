//! What people say around a request: hesitations, politeness, the name. Taken off before the request is read.

use std::ops::Range;

/// Phrases that may stand before a request, in any number and order.
#[rustfmt::skip]
const BEFORE: &[&str] = &[
    "hey", "hi", "hello", "yo", "okay", "ok", "so", "well", "please", "alright", "all right", "right", "listen",
    "look", "excuse me", "pardon me", "sorry", "antiphon", "anti phone", "computer", "assistant", "there", "dear",
    "my friend", "buddy", "now", "then", "and", "but", "also", "oh", "ah", "just", "kindly", "quick question",
    "question", "a question", "i have a question", "another question", "one more question", "one more thing",
    "here is a question", "good morning", "good afternoon", "good evening", "actually", "maybe", "perhaps", "yes",
    "yeah", "no", "thanks", "thank you", "great", "cool", "nice", "can you", "could you", "would you", "will you",
    "can you please", "are you able to", "is it possible to", "would you mind", "would you be so kind as to",
    "would you be able to", "do you think you could", "do you think you can", "might you", "may you", "can we",
    "could we", "could i", "can i", "may i", "can i ask you to", "can i ask", "may i ask", "let me ask you",
    "let me ask", "could i ask", "tell me", "tell us", "tells me", "till me", "telling me", "let me know",
    "inform me", "remind me", "explain to me", "explain", "help me figure out", "help me work out",
    "help me find out", "help me with", "help me to", "help me", "figure out", "work out", "find out",
    "show me how to", "i want to know", "i would like to know", "i need to know", "i would love to know",
    "i wish to know", "i wanted to know", "i want you to", "i would like you to", "i need you to",
    "i would love you to", "i want to", "i would like to", "i would like", "i would love to", "i need to",
    "i am trying to", "i have to", "i am curious", "curious", "i wonder", "i was wondering", "i am wondering",
    "wondering", "do you know", "do you happen to know", "would you know", "any idea", "do you have any idea",
    "got any idea", "by any chance", "you know", "i am looking for", "i forgot", "i do not know",
    "i can not remember", "go ahead and", "try to", "quickly", "if you can", "if you could", "if possible", "let us",
    "be so kind and", "for me", "if", "like", "again", "me", "hear is", "test", "mister", "would you please",
];

/// Phrases that may stand after one.
#[rustfmt::skip]
const AFTER: &[&str] = &[
    "please", "thanks", "thank you", "thank you very much", "thanks a lot", "for me", "for us", "now", "right now",
    "if you can", "if you could", "if you would", "if you do not mind", "if possible", "then", "antiphon",
    "anti phone", "computer", "assistant", "okay", "ok", "exactly", "precisely", "quickly", "real quick", "buddy",
    "my friend", "would you", "will you", "could you", "can you", "do you know", "i wonder", "you know",
    "again please", "out loud", "aloud", "at the moment", "at this moment", "by any chance", "all right", "alright",
    "and", "so", "um", "will you please", "would you please", "could you please", "can you please", "can you tell me",
    "could you tell me", "tell me", "to me", "actually", "anyway",
];

/// A sound that is no word of the request.
pub(super) fn is_hesitation(word: &str) -> bool {
    matches!(
        word,
        "um" | "uh" | "er" | "erm" | "hmm" | "hm" | "mm" | "uhm" | "umm" | "uhh" | "huh" | "mhm" | "eh" | "uhhuh"
    )
}

/// Which of the words are the request itself. Never none, where there are any.
pub(super) fn core(words: &[String]) -> Range<usize> {
    let (mut start, mut end) = (0, words.len());
    while let Some(n) = longest(BEFORE, |phrase| begins(&words[start..end], phrase)) {
        if start + n >= end || is_whole_request(&words[start..end]) {
            break;
        }
        start += n;
    }
    while let Some(n) = longest(AFTER, |phrase| ends(&words[start..end], phrase)) {
        if start + n >= end {
            break;
        }
        end -= n;
    }
    start..end
}

/// Beginnings that look like politeness and are not.
fn is_whole_request(words: &[String]) -> bool {
    const WHOLE: &[&str] = &["help me", "now what", "right now", "and you", "thank you", "hello world", "like what"];
    WHOLE.iter().any(|phrase| begins(words, phrase) == Some(words.len()))
}

fn longest(phrases: &[&str], fits: impl Fn(&str) -> Option<usize>) -> Option<usize> {
    phrases.iter().filter_map(|phrase| fits(phrase)).max()
}

/// How many words the phrase has, if the words begin with it.
fn begins(words: &[String], phrase: &str) -> Option<usize> {
    let n = phrase.split(' ').count();
    (words.len() >= n && words.iter().zip(phrase.split(' ')).all(|(word, part)| word == part)).then_some(n)
}

fn ends(words: &[String], phrase: &str) -> Option<usize> {
    let n = phrase.split(' ').count();
    let start = words.len().checked_sub(n)?;
    begins(&words[start..], phrase)
}
