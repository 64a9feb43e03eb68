//! What of a transcript the regression sees: words, classes of words, lengths.

use crate::turn::wording::Wording;

/// Words of the closed classes, which carry how a sentence is built. Each is a class by itself.
const FUNCTION_WORDS: &[&str] = &[
    "a", "about", "after", "against", "all", "almost", "already", "also", "although", "am", "an", "and", "another",
    "any", "are", "around", "as", "at", "be", "because", "been", "before", "behind", "being", "between", "both", "but",
    "by", "can", "could", "did", "do", "does", "down", "during", "each", "even", "every", "few", "for", "from", "had",
    "has", "have", "he", "her", "here", "him", "his", "how", "i", "if", "in", "into", "is", "it", "its", "just",
    "like", "many", "may", "maybe", "me", "might", "more", "most", "much", "must", "my", "near", "no", "nor", "not",
    "now", "of", "off", "okay", "on", "only", "or", "other", "our", "out", "over", "please", "pretty", "quite",
    "rather", "really", "shall", "she", "should", "since", "so", "some", "still", "such", "than", "that", "the",
    "their", "them", "then", "there", "these", "they", "this", "those", "though", "through", "to", "too", "under",
    "unless", "until", "up", "us", "very", "was", "we", "well", "were", "what", "when", "where", "whether", "which",
    "while", "who", "whom", "whose", "why", "will", "with", "within", "without", "would", "yeah", "yes", "yet", "you",
    "your",
];

/// Recognizers write these or leave them out.
const FILLERS: &[&str] = &["ah", "eh", "er", "erm", "hm", "hmm", "mm", "uh", "um"];

const NUMBERS: &[&str] = &[
    "double",
    "eight",
    "eighteen",
    "eighty",
    "eleven",
    "fifteen",
    "fifty",
    "five",
    "forty",
    "four",
    "fourteen",
    "hundred",
    "million",
    "nine",
    "nineteen",
    "ninety",
    "oh",
    "one",
    "seven",
    "seventeen",
    "seventy",
    "six",
    "sixteen",
    "sixty",
    "ten",
    "thirteen",
    "thirty",
    "thousand",
    "three",
    "triple",
    "twelve",
    "twenty",
    "two",
    "zero",
];

/// Endings that say what kind of word it is. The first that fits is taken.
const ENDINGS: &[&str] = &["-ing", "-ed", "-ly", "-tion", "-s", "-er", "-est", "-y", "-al"];

/// A word has at least this many letters before its ending.
const STEM: usize = 3;

/// From the third word on, at least one word of this many is a function word or a number in an English text.
const ENGLISH: usize = 4;

/// The features of a transcript, fillers left out; `None` where it has no word, or is not English.
pub(super) fn of(text: &str) -> Option<Vec<String>> {
    let words = words(text);
    let n_words = words.len();
    let last = words.last()?;
    if !is_english(&words) {
        return None;
    }
    let begins = words[..n_words - 1].iter().rposition(|word| word.ends_sentence).map_or(0, |at| at + 1);
    let sentence = &words[begins..];
    let first = &sentence[0];
    let n = sentence.len();
    let before_class = n.checked_sub(2).map_or("<", |at| sentence[at].class.name(&sentence[at].text));
    let last_class = last.class.name(&last.text);
    let kind = Wording::of(text.trim_end_matches(['.', '!', '?', ',', ' '])).name();
    let features = vec![
        "bias".into(),
        format!("n={}", bucket(n, &[1, 2, 3, 4, 5, 8, 12])),
        format!("words={}", bucket(n_words, &[1, 2, 3, 6, 12, 20])),
        format!("first={}", first.text),
        format!("last={}", last.text),
        format!("class={last_class}"),
        format!("classes={before_class} {last_class}"),
        format!("kind={kind}"),
    ];
    Some(features)
}

fn is_english(words: &[Word]) -> bool {
    let n_closed = words.iter().filter(|word| word.class.is_closed()).count();
    let n_foreign = words.iter().filter(|word| !word.text.is_ascii()).count();
    n_closed * ENGLISH + 2 >= words.len() && n_foreign * 2 <= words.len()
}

/// The first of the bounds that `n` is within.
fn bucket(n: usize, bounds: &[usize]) -> String {
    bounds.iter().find(|bound| n <= **bound).map_or_else(|| "more".into(), usize::to_string)
}

struct Word {
    text: String,
    class: Class,
    ends_sentence: bool,
}

#[derive(Clone, Copy)]
enum Class {
    /// A function word: its own class.
    Closed,
    Number,
    Ending(&'static str),
    Other,
}

impl Class {
    fn of(word: &str) -> Self {
        if NUMBERS.contains(&word) || word.contains(|c: char| c.is_ascii_digit()) {
            return Self::Number;
        }
        if FUNCTION_WORDS.binary_search(&word).is_ok() {
            return Self::Closed;
        }
        let ends = |ending: &&&str| word.strip_suffix(&ending[1..]).is_some_and(|stem| stem.len() >= STEM);
        let ending = ENDINGS.iter().find(ends);
        ending.map_or(Self::Other, |ending| Self::Ending(ending))
    }

    fn is_closed(self) -> bool {
        matches!(self, Self::Closed | Self::Number)
    }

    fn name(self, word: &str) -> &str {
        match self {
            Self::Closed => word,
            Self::Number => "#",
            Self::Ending(ending) => ending,
            Self::Other => "~",
        }
    }
}

fn words(text: &str) -> Vec<Word> {
    let word = |written: &str| {
        let kept = written.chars().map(|c| if c == '’' { '\'' } else { c });
        let kept = kept.filter(|c| c.is_alphanumeric() || *c == '\'' || *c == '-');
        let text: String = kept.flat_map(char::to_lowercase).collect();
        let text = text.trim_matches(['\'', '-']).to_owned();
        let class = Class::of(&text);
        Word { text, class, ends_sentence: written.ends_with(['.', '!', '?']) }
    };
    let is_said = |word: &Word| !word.text.is_empty() && !FILLERS.contains(&word.text.as_str());
    text.split_whitespace().map(word).filter(is_said).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_in_order() {
        assert!(FUNCTION_WORDS.is_sorted());
    }
}
