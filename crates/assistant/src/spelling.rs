//! Words and letters: spelling, letters of a word, the alphabet, backwards.

use super::numbers;
use super::query::{Query, find, one_of};
use super::{Reply, Scene, days, sentence};

const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// How letters are written by a recognizer that knows only words.
const LETTER_NAMES: [&str; 26] = [
    "a",
    "b|be|bee",
    "c|see|sea",
    "d|dee",
    "e",
    "f|ef",
    "g|gee",
    "h|aitch",
    "i|eye",
    "j|jay",
    "k|kay|okay",
    "l|el|ell",
    "m|em",
    "n|en",
    "o|oh|owe",
    "p|pea|pee",
    "q|cue|queue",
    "r|are",
    "s|es|ess",
    "t|tea|tee",
    "u|you",
    "v|vee",
    "w",
    "x|ex",
    "y|why",
    "z|zee|zed",
];

pub(super) fn answer(_scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    alphabet(query).or_else(|| backwards(query)).or_else(|| letters_of(query)).or_else(|| spelled(query))
}

fn reply(score: u8, text: &str) -> Option<Reply> {
    Some(Reply { score, text: sentence(text) })
}

/// `N, E, C, E, S, S, A, R, Y`
pub(super) fn spell(word: &str) -> String {
    let letters = word.chars().filter(|c| c.is_alphanumeric()).map(|c| c.to_uppercase().to_string());
    letters.collect::<Vec<_>>().join(", ")
}

/// Where a word to be spelled begins and ends: after a phrase, or before one.
fn spelled(query: &Query) -> Option<Reply> {
    let words = &query.words;
    let after = [
        "write the word|name|words",
        "write",
        "spelling of the word|name|words",
        "spelling of|for",
        "spell out the word|name",
        "spell out",
        "spell the word|words|name|number|term",
        "spell for me the word|name",
        "spell for me",
        "spell me the word",
        "spell me",
        "spell",
        "spelt",
        "spelled out the word",
        "letters in|of the word|name",
        "letters are in the word",
        "letters make up the word",
        "letters are in",
        "letters spell",
        "letters do|would i|you need",
        "letters make up",
        "spelling the word",
        "spelling for",
        "spelling",
        "spells",
    ];
    let before = ["spelled|spelt|spell|spells|written|spelling", "is spelled|spelt|written"];
    let asks = query.any(&[
        "spell|spelled|spelt|spelling|spells",
        "letters make up",
        "letters are in|of",
        "letters in|of the word|name",
        "letters spell",
    ]) || (query.has("how is|do|does") && query.has("written"))
        || query.any(&["how do|does|would|to you|i|one|we write", "how to write"]);
    if !asks {
        return None;
    }
    let end_of = |words: &[String]| trailing(words);
    let mut range = after.iter().find_map(|pattern| find(words, pattern)).map(|at| at.end..words.len());
    if range.as_ref().is_none_or(|range| end_of(&words[range.clone()]) == 0) {
        // "How is necessary spelled", "what is the way necessary is spelled".
        let at = before.iter().filter_map(|pattern| find(words, pattern)).map(|at| at.start).min()?;
        let start = ["how is the word|name", "how are|is|do|does|would|should|to", "is the word", "how", "what is"]
            .iter()
            .find_map(|pattern| find(words, pattern))
            .map_or(0, |at| at.end);
        range = (start < at).then_some(start..at);
    }
    let range = range?;
    let n = end_of(&words[range.clone()]);
    let mut range = range.start..range.start + n;
    while range.len() > 1
        && one_of(&words[range.start], "the|word|a|an|is|of|words|this|name|me|it|out|correctly|you|like|name|for|as")
        && !(range.len() == 2 && words[range.start + 1] == "word")
    {
        range.start += 1;
    }
    if range.is_empty() || range.len() > 6 {
        return None;
    }
    if let Some(and) = range.clone().find(|i| words[*i] == "and" && *i > range.start && *i + 1 < range.end) {
        let both = [range.start..and, and + 1..range.end].map(|part| say_spelled(query.raw_words(part)));
        return Some(Reply { score: 89, text: both.join(" ") });
    }
    let said = query.raw_words(range.clone());
    let said =
        if words[range.clone()].iter().all(|word| word.len() == 1 && word.parse::<u8>().is_err()) && range.len() > 1 {
            words[range].concat()
        } else {
            said.to_owned()
        };
    Some(Reply { score: 89, text: say_spelled(&said) })
}

/// `Cat is spelled C, A, T.`
fn say_spelled(said: &str) -> String {
    let said = if said.eq_ignore_ascii_case("your name") { "Antiphon" } else { said };
    let spoken = number_word(said).unwrap_or_else(|| said.to_owned());
    let parts = spoken.split([' ', '-']).filter(|word| word.chars().any(char::is_alphanumeric)).map(spell);
    let name = days::capital(spoken.trim_matches(|c: char| !c.is_alphanumeric()));
    format!("{name} is spelled {}.", parts.collect::<Vec<_>>().join(", new word, "))
}

/// How many of the words are what is to be spelled: politeness and conditions after it are not.
fn trailing(words: &[String]) -> usize {
    let stops = [
        "for me",
        "please",
        "correctly",
        "in english",
        "letter by letter",
        "out loud",
        "slowly",
        "again",
        "and then",
        "properly",
        "right",
        "in capital letters",
        "one letter at a time",
        "for us",
        "with",
    ];
    stops
        .iter()
        .filter_map(|stop| find(words, stop))
        .filter(|at| at.start > 0)
        .map(|at| at.start)
        .min()
        .unwrap_or(words.len())
}

/// `7` is spelled as its word.
fn number_word(text: &str) -> Option<String> {
    const WORDS: [&str; 21] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
        "twenty",
    ];
    let n: usize = text.parse().ok()?;
    WORDS.get(n).map(|word| (*word).to_owned())
}

fn backwards(query: &Query) -> Option<Reply> {
    if !query.any(&["backwards|backward|reversed|reverse", "in reverse"]) || query.any(&["count", "alphabet", "from"]) {
        return None;
    }
    let words = &query.words;
    let noise = "spell|spelled|spelling|say|what|is|the|word|backwards|backward|how|do|you|reverse|reversed|in|write|of|to|read|would|be|a|turn|letters";
    let range = 0..words.len();
    let start = range.clone().find(|i| !one_of(&words[*i], noise))?;
    let word = &words[start];
    let turned: String = word.chars().rev().collect();
    reply(91, &format!("{} backwards is {turned}: {}", super::days::capital(word), spell(&turned)))
}

/// How many letters, vowels; the first, last or third letter; a palindrome.
fn letters_of(query: &Query) -> Option<Reply> {
    let words = &query.words;
    let counted = ["letters|letter|characters", "vowels|vowel", "consonants", "syllables"].into_iter().find(|names| {
        query.any(&[&format!("how many {names}"), &format!("number of {names}"), &format!("count the {names}")])
    });
    if let (Some(kind), true) = (counted, !query.any(&["alphabet"])) {
        let word = subject(query)?;
        let vowel = |c: &char| "aeiou".contains(*c);
        let letters: Vec<char> = word.to_lowercase().chars().filter(|c| c.is_alphabetic()).collect();
        let (n, name) = match kind {
            "vowels|vowel" => (letters.iter().filter(|c| vowel(c)).count(), "vowel"),
            "consonants" => (letters.iter().filter(|c| !vowel(c)).count(), "consonant"),
            "syllables" => return None,
            _ => (letters.len(), "letter"),
        };
        let plural = if n == 1 { "" } else { "s" };
        return reply(89, &format!("the word {word} has {n} {name}{plural}"));
    }
    // How many times does S occur in Mississippi; how many S are in it.
    if query.any(&["how many"])
        && query.any(&["in the word", "in", "does"])
        && let Some(letter) = query
            .after("how many")
            .and_then(|rest| rest.first())
            .and_then(|word| letter(word.strip_suffix('s').filter(|stem| !stem.is_empty()).unwrap_or(word)))
    {
        let single = query.after("how many").and_then(|rest| rest.first()).is_some_and(|word| word.len() <= 2);
        let word = subject(query).filter(|_| single)?;
        let n = word.to_uppercase().chars().filter(|c| *c == letter).count();
        return reply(86, &format!("the letter {letter} is {n} {} in {word}", if n == 1 { "time" } else { "times" }));
    }
    if query.any(&["palindrome"]) {
        let word = words.iter().find(|word| !one_of(word, "is|the|word|a|palindrome|are|was"))?;
        let same = word.chars().eq(word.chars().rev());
        return reply(
            86,
            &format!("{}, {word} is {}a palindrome", if same { "yes" } else { "no" }, if same { "" } else { "not " }),
        );
    }
    let place = (0..words.len()).find_map(|at| numbers::ordinal_at(&words[at..])).map(|(n, _)| n as usize);
    let begins = query.any(&["letter does", "letter do", "begin|begins|start|starts with"]) && query.has("letter");
    let asks = query.any(&["letter of|in", "letter does", "what letter", "which letter", "letters of|in"])
        && !query.any(&["alphabet", "after|before|follows|comes|number"]);
    if !(asks || begins) {
        return None;
    }
    let word = subject(query)?;
    let letters: Vec<char> = word.chars().filter(|c| c.is_alphabetic()).collect();
    let last = query.any(&["last", "end with|in", "ends with|in"]);
    let nth = if last { letters.len() } else { place.or_else(|| begins.then_some(1))? };
    let letter = letters.get(nth.checked_sub(1)?)?.to_uppercase();
    let which = if last { "last".to_owned() } else { super::chance::ordinal_word(nth as u32) };
    reply(88, &format!("the {which} letter of {word} is {letter}"))
}

/// The word a question about letters is about: the last one that is not of the question itself.
fn subject(query: &Query) -> Option<String> {
    let words = &query.words;
    let named =
        find(words, "the word").or_else(|| find(words, "the name")).filter(|at| at.end < words.len()).map(|at| at.end);
    let noise = "begin|begins|start|starts|with|end|ends|have|has|contain|contains|the|word|in|of|does|do|there|are|letters|letter|long|got|appear|occur|written";
    let at = named.or_else(|| words.iter().rposition(|word| !one_of(word, noise)))?;
    Some(query.raw_words(at..at + 1).to_owned())
}

fn letter(word: &str) -> Option<char> {
    let i = LETTER_NAMES.iter().position(|names| one_of(word, names))?;
    ALPHABET.chars().nth(i)
}

fn alphabet(query: &Query) -> Option<Reply> {
    let words = &query.words;
    if query.any(&["alphabet", "a b cs|c", "abc|abcs", "a bee see|sees"]) {
        if query.any(&["how many"]) {
            return reply(90, "there are 26 letters in the alphabet, five of them vowels");
        }
        let nth = (0..words.len())
            .find_map(|at| numbers::ordinal_at(&words[at..]))
            .map(|(n, _)| n as usize)
            .or_else(|| query.has("last").then_some(26));
        if let (Some(n @ 1..=26), true) = (nth, query.has("letter")) {
            let letter = &ALPHABET[n - 1..n];
            let which = if query.has("last") { "last".to_owned() } else { super::chance::ordinal_word(n as u32) };
            return reply(90, &format!("the {which} letter of the alphabet is {letter}"));
        }
        if !query.any(&["after|before|follows|number|where|position|place"]) {
            let backwards = query.any(&["backwards|backward|reverse"]);
            let order: String = if backwards { ALPHABET.chars().rev().collect() } else { ALPHABET.to_owned() };
            return Some(Reply { score: 92, text: format!("{}.", spell(&order)) });
        }
    }
    if query.any(&["vowels"]) && query.any(&["what are|is", "name|list|which"]) && !query.has("in the word") {
        return reply(80, "the vowels are A, E, I, O and U");
    }
    if !query.has("letter") && !query.has("alphabet") {
        return None;
    }
    let of_pattern = |pattern: &str| {
        query.after(pattern).and_then(|rest| {
            rest.iter().find_map(|word| (!one_of(word, "the|letter|is|comes")).then(|| letter(word))?)
        })
    };
    if query.any(&["after|follows|following|next"]) {
        let letter = of_pattern("after|follows|following|next")?;
        let i = ALPHABET.find(letter)?;
        return match ALPHABET.chars().nth(i + 1) {
            Some(next) => reply(88, &format!("{next} comes after {letter}")),
            None => reply(88, "nothing comes after Z, it is the last letter"),
        };
    }
    if query.any(&["before|precedes"]) {
        let letter = of_pattern("before|precedes")?;
        let i = ALPHABET.find(letter)?;
        return match i.checked_sub(1).and_then(|i| ALPHABET.chars().nth(i)) {
            Some(previous) => reply(88, &format!("{previous} comes before {letter}")),
            None => reply(88, "nothing comes before A, it is the first letter"),
        };
    }
    if query.any(&["number|position|place|where"]) {
        let letter = of_pattern("letter")?;
        let i = ALPHABET.find(letter)? as u32;
        return reply(84, &format!("{letter} is the {} letter of the alphabet", numbers::say_ordinal(i + 1)));
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::testing::check_all;

    #[test]
    fn words_and_letters_as_they_are_asked() {
        check_all(&[
            ("how do you spell necessary", "Necessary is spelled N, E, C, E, S, S, A, R, Y."),
            ("spell hello", "H, E, L, L, O."),
            ("can you spell the word rhythm for me", "Rhythm is spelled R, H, Y, T, H, M."),
            ("how is receive spelled", "R, E, C, E, I, V, E."),
            ("what's the spelling of banana please", "B, A, N, A, N, A."),
            ("spell ice cream", "I, C, E, new word, C, R, E, A, M."),
            ("say the alphabet", "A, B, C, D"),
            ("what is the third letter of the alphabet", "The third letter of the alphabet is C."),
            ("which letter comes after f", "G comes after F."),
            ("how many letters are in elephant", "elephant has 8 letters"),
            ("what is the last letter of zebra", "is A."),
            ("spell stressed backwards", "Stressed backwards is desserts"),
            ("what letter does giraffe start with", "The first letter of giraffe is G."),
            ("is level a palindrome", "Yes"),
        ]);
    }
}
