//! How a transcript ends: like a sentence, or as if more were to come.
//!
//! `completeness` has the answer among its features, and `endpointing` weighs it where that says nothing. English only,
//! and soft on purpose: recognizers without punctuation mishear, and people end sentences on any word. A transcript of
//! another language is [`Wording::Plain`].

use crate::turn::dictation;
use serde::{Deserialize, Serialize};

/// How the words so far end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wording {
    /// There is no transcript of all that was said.
    #[default]
    Unknown,
    /// Nothing but a lead-in or a filler after the last whole clause ("I would like to know", "so").
    LeadIn,
    /// On a word that wants another one after it ("and", "the", "um").
    Open,
    /// In a number that is dictated, group by group ("my number is 555").
    Digits,
    /// A clause that wants another one after it ("if you could choose").
    Unfinished,
    /// Words that say nothing about their end.
    Plain,
    /// One or two such words.
    Brief,
    /// With the recognizer's full stop.
    Sentence,
    /// A request that could stand as it is.
    Command,
    /// A question that could stand as it is.
    Question,
    /// A whole answer of a word or three ("yes", "thank you").
    Answer,
}

impl Wording {
    /// Its name, for records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::LeadIn => "lead_in",
            Self::Open => "open",
            Self::Digits => "digits",
            Self::Unfinished => "unfinished",
            Self::Plain => "plain",
            Self::Brief => "brief",
            Self::Sentence => "sentence",
            Self::Command => "command",
            Self::Question => "question",
            Self::Answer => "answer",
        }
    }

    /// How `text` ends. An empty text, from an engine that heard no word, is [`Wording::Plain`].
    pub fn of(text: &str) -> Self {
        let text = text.trim();
        let words: Vec<String> = text.split_whitespace().map(bare).filter(|word| !word.is_empty()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some(last) = words.last() else { return Self::Plain };
        if text.ends_with([',', ';', ':', '-', '…', '–', '—']) || text.ends_with("..") {
            return Self::Open;
        }
        if ANSWERS.contains(&words.join(" ").as_str()) {
            return Self::Answer;
        }
        if ends_in_any(&words, SETTLED) {
            return Self::Plain;
        }
        if GREETINGS.contains(&words.join(" ").as_str()) {
            return Self::Brief;
        }
        if dictation::is_unfinished(text) {
            return Self::Digits;
        }
        let Clause { words: clause, is_requested } = last_clause(&words);
        if clause.is_empty() || wants_object(clause) {
            return Self::LeadIn;
        }
        if ALWAYS_OPEN.contains(last) {
            return Self::Open;
        }
        let kind = match kind(clause) {
            // "Tell me a story".
            Self::Plain if is_requested && !asks(clause) => Self::Command,
            kind => kind,
        };
        if USUALLY_OPEN.contains(last) {
            return if kind == Self::Question { Self::Plain } else { Self::Open };
        }
        match kind {
            _ if text.ends_with('?') => Self::Question,
            Self::Plain if text.ends_with(['.', '!']) => Self::Sentence,
            Self::Plain if words.len() <= 2 => Self::Brief,
            kind => kind,
        }
    }
}

/// What stands after the last lead-in.
struct Clause<'a, 'b> {
    words: &'a [&'b str],
    /// The lead-in is an imperative whose object the words may be.
    is_requested: bool,
}

/// "Find me", "send her": of two objects one is missing.
fn wants_object(clause: &[&str]) -> bool {
    matches!(clause, [verb, person] if DITRANSITIVE.contains(verb) && PERSONS.contains(person))
}

fn opens(clause: &[&str], words: &[&str]) -> bool {
    clause.first().is_some_and(|first| words.contains(first))
}

fn asks(clause: &[&str]) -> bool {
    opens(clause, QUESTION_WORDS) || opens(clause, AUXILIARIES)
}

/// What a clause is by its beginning.
fn kind(clause: &[&str]) -> Wording {
    let asks = asks(clause);
    let opens = |words: &[&str]| opens(clause, words);
    let inverted = clause.get(1).is_some_and(|second| AUXILIARIES.contains(second));
    if opens(&["when"]) && !inverted || opens(SUBORDINATORS) {
        // After this number of words the main clause has begun.
        return if clause.len() < 8 { Wording::Unfinished } else { Wording::Plain };
    }
    match clause.len() {
        3.. if asks => Wording::Question,
        // "What time", "who knows": may be whole.
        _ if asks => Wording::Plain,
        2.. if opens(COMMANDS) => Wording::Command,
        _ => Wording::Plain,
    }
}

/// What stands after the last lead-in and after words that only fill; empty when nothing does.
fn last_clause<'a, 'b>(words: &'a [&'b str]) -> Clause<'a, 'b> {
    let mut clause = words;
    let mut is_requested = false;
    for lead_in in LEAD_INS {
        let parts: Vec<&str> = lead_in.split(' ').collect();
        let Some(at) = (0..clause.len()).rev().find(|&at| clause[at..].starts_with(&parts)) else { continue };
        clause = &clause[at + parts.len()..];
        is_requested = REQUESTS.contains(lead_in);
    }
    let fills = |word: &&&str| FILLERS.contains(*word);
    Clause { words: &clause[clause.iter().take_while(fills).count()..], is_requested }
}

fn ends_in_any(words: &[&str], phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| words.ends_with(&phrase.split(' ').collect::<Vec<_>>()))
}

fn bare(word: &str) -> String {
    let written = word.chars().map(|c| if c == '’' { '\'' } else { c });
    let kept = written.filter(|c| c.is_alphanumeric() || *c == '\'');
    kept.flat_map(char::to_lowercase).collect::<String>().trim_matches('\'').to_owned()
}

/// Nothing ends on these.
const ALWAYS_OPEN: &[&str] = &[
    "a", "an", "and", "another", "as", "because", "between", "but", "despite", "divided", "during", "er", "erm",
    "every", "except", "he", "hmm", "i", "i'd", "i'll", "i'm", "i've", "into", "it's", "minus", "mm", "my", "nor",
    "of", "onto", "or", "our", "plus", "she", "than", "the", "their", "they", "times", "towards", "uh", "um", "unless",
    "until", "upon", "versus", "via", "we", "what's", "whether", "whose", "within", "without", "your",
];

/// Statements hardly end on these; questions do ("where are you from").
const USUALLY_OPEN: &[&str] = &[
    "about", "after", "against", "am", "are", "at", "be", "before", "by", "can", "could", "did", "do", "does", "each",
    "for", "from", "get", "had", "has", "have", "how", "if", "in", "is", "its", "like", "makes", "may", "might",
    "must", "need", "needs", "not", "should", "since", "so", "some", "that", "these", "this", "those", "through", "to",
    "very", "want", "wants", "was", "well", "were", "what", "when", "where", "which", "who", "why", "will", "with",
    "would",
];

/// Verbs with two objects.
const DITRANSITIVE: &[&str] =
    &["book", "bring", "buy", "fetch", "find", "get", "give", "make", "order", "read", "send", "show", "tell"];

const PERSONS: &[&str] = &["her", "him", "me", "them", "us"];

/// Ends that stand although their last word seems open.
const SETTLED: &[&str] = &[
    "think so",
    "hope so",
    "guess so",
    "yes i do",
    "yes i am",
    "yes i can",
    "yes it is",
    "no i do not",
    "of course not",
    "why not",
    "all i need",
    "all i want",
    "what i need",
    "what i want",
    "come in",
    "like that",
    "like this",
    "about it",
    "all about",
    "it is",
    "they are",
    "we are",
    "you are",
    "do that",
    "do this",
    "stop that",
    "as well",
    "i will",
    "i am",
    "i did",
    "i have",
];

/// What stands before that which is meant. Longer ones first.
const LEAD_INS: &[&str] = &[
    "i would like to know",
    "i'd like to know",
    "i want to know",
    "i wanted to ask",
    "i have a question",
    "let me know",
    "let me think",
    "let me see",
    "i would like",
    "i was wondering",
    "i'm wondering",
    "do you know",
    "could you please",
    "can you please",
    "the question is",
    "just a second",
    "just a moment",
    "for example",
    "remind me",
    "explain to me",
    "tell me",
    "show me",
    "give me",
    "i wonder",
    "i'd like",
    "i want",
    "i need",
    "i think",
    "i mean",
    "you know",
    "could you",
    "can you",
    "would you",
    "will you",
    "how about",
    "what about",
    "hold on",
    "hang on",
    "wait",
];

/// Lead-ins that are imperatives.
const REQUESTS: &[&str] = &["explain to me", "give me", "remind me", "show me", "tell me"];

const FILLERS: &[&str] = &[
    "and", "but", "er", "erm", "hello", "hey", "hi", "hmm", "now", "ok", "okay", "please", "so", "then", "uh", "um",
    "well",
];

const QUESTION_WORDS: &[&str] =
    &["how", "how's", "what", "what's", "when", "where", "where's", "which", "who", "who's", "whose", "why"];

const AUXILIARIES: &[&str] = &[
    "am", "are", "can", "could", "did", "do", "does", "had", "has", "have", "is", "may", "should", "was", "were",
    "will", "would",
];

const SUBORDINATORS: &[&str] =
    &["after", "although", "because", "before", "if", "since", "unless", "until", "whenever", "while"];

const COMMANDS: &[&str] = &[
    "add",
    "ask",
    "book",
    "bring",
    "calculate",
    "call",
    "cancel",
    "change",
    "check",
    "choose",
    "close",
    "compare",
    "convert",
    "count",
    "create",
    "define",
    "delete",
    "describe",
    "dim",
    "divide",
    "draw",
    "explain",
    "find",
    "get",
    "give",
    "guess",
    "help",
    "increase",
    "introduce",
    "let's",
    "list",
    "lock",
    "look",
    "lower",
    "make",
    "move",
    "multiply",
    "name",
    "open",
    "order",
    "pause",
    "pick",
    "play",
    "put",
    "raise",
    "read",
    "recommend",
    "remember",
    "remove",
    "repeat",
    "resume",
    "say",
    "schedule",
    "search",
    "send",
    "set",
    "share",
    "show",
    "sing",
    "skip",
    "solve",
    "spell",
    "start",
    "stop",
    "subtract",
    "suggest",
    "summarize",
    "switch",
    "take",
    "teach",
    "tell",
    "translate",
    "turn",
    "unlock",
    "wake",
    "write",
];

/// Whole by themselves, and as often the beginning of more.
const GREETINGS: &[&str] = &["good afternoon", "good evening", "good morning", "hello", "hey", "hi"];

/// Whole answers.
const ANSWERS: &[&str] = &[
    "absolutely",
    "bye",
    "cancel",
    "continue",
    "correct",
    "exactly",
    "go ahead",
    "go on",
    "good",
    "goodbye",
    "great",
    "maybe",
    "never mind",
    "no",
    "no thank you",
    "no thanks",
    "none",
    "nope",
    "not really",
    "not yet",
    "nothing",
    "of course",
    "of course not",
    "ok",
    "okay",
    "please",
    "please do",
    "right",
    "stop",
    "sure",
    "thank you",
    "thank you very much",
    "thanks",
    "that's all",
    "that's it",
    "that's right",
    "yeah",
    "yep",
    "yes",
    "yes i do",
    "yes it is",
    "yes please",
    "yes sure",
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One text a line, each of which must be `expect`.
    #[track_caller]
    fn check(expect: Wording, texts: &str) {
        for text in texts.lines().map(str::trim).filter(|line| !line.is_empty()) {
            assert_eq!(Wording::of(text), expect, "{text}");
        }
    }

    #[test]
    fn some_words_want_another_one() {
        check(
            Wording::Open,
            "what is the
             add two and
             twelve times
             It was cold, and,
             so i said that
             What is...",
        );
    }

    #[test]
    fn a_verb_wants_its_objects() {
        check(Wording::Open, "My brother wants.\nall of them want\nHe gave it to.");
        check(Wording::LeadIn, "Can you find me.\nplease send her");
        check(Wording::Plain, "that is all i need\nhow much is it each");
        check(Wording::Command, "call me\nhelp us\nfind me a train");
    }

    #[test]
    fn a_number_wants_its_digits() {
        check(Wording::Digits, "My number is 555.\nthe code is four seven");
        check(Wording::Sentence, "My number is 555-0129.\nWe met in 1999.");
    }

    #[test]
    fn a_lead_in_wants_what_it_leads_to() {
        check(Wording::LeadIn, "i would like to know\ncan you tell me\nlet me think\nso\nwell, um\nwait");
    }

    #[test]
    fn a_clause_may_want_another_one() {
        check(Wording::Unfinished, "if it rains tomorrow\nwhen i was young\nbecause you asked");
    }

    #[test]
    fn questions_and_commands_can_stand() {
        check(
            Wording::Question,
            "what is twelve times seven
             i would like to know what is twelve times seven
             so how many feet are in a mile
             when is easter
             You went there?
             is it raining",
        );
        check(Wording::Command, "count from one to five\nplease tell a joke\ncould you spell necessary");
    }

    #[test]
    fn an_imperative_with_its_object_is_a_command() {
        check(
            Wording::Command,
            "tell me a story
             Tell me a story.
             tell me something about the moon
             can you tell me your name
             give me an example
             please show me my calendar
             remind me to call my mother
             search the web for it
             let's play a game",
        );
        check(Wording::Open, "tell me a\ngive me the number of\ntell me about\nremind me to");
        check(Wording::LeadIn, "tell me\nplease give me\ncould you show me");
        check(Wording::Question, "tell me how old you are now");
        check(Wording::Plain, "you told me a story\nhe showed me the house");
    }

    #[test]
    fn a_question_may_end_on_any_word() {
        check(Wording::Plain, "where are you from\nwhat is this\nthe house was old\n\ni think so");
    }

    #[test]
    fn one_or_two_words_are_brief() {
        check(Wording::Brief, "seventeen\nnext week\nwhat time\nhello\nGood morning.");
    }

    #[test]
    fn a_recognizers_full_stop_counts_unless_the_words_are_open() {
        check(Wording::Sentence, "The house was old.\nMy name is Anna!");
        check(Wording::Open, "I went to the.");
    }

    #[test]
    fn a_typographic_apostrophe_is_one() {
        check(Wording::Answer, "That’s all.");
        check(Wording::Open, "what’s");
        check(Wording::LeadIn, "I’d like to know");
        check(Wording::Command, "let’s play a game");
    }

    #[test]
    fn short_answers_are_whole() {
        check(Wording::Answer, "yes\nYes.\nno thanks\nThank you!\nOkay");
    }

    proptest! {
        #[test]
        fn any_text_has_an_end(text in "\\PC*") {
            let _ = Wording::of(&text);
        }
    }
}
