//! Stable words of an utterance under way, and the detection of the hub's own reply in an utterance.

use antiphon_text::words::letters;
use serde::{Deserialize, Serialize};

/// Deltas on the wire can only be appended, while a recognizer revises its hypothesis. A word is sent once two consecutive
/// partials agree on it and on all words before it (LocalAgreement-2: Liu, Spanakis and Niehues, 2020), and is never taken
/// back: later partials only determine which of their words follow the sent ones.
///
/// The last word of a partial is not sent: the audio may end within it, and recognizers end each partial like a sentence.
/// Its mark is withdrawn when a word follows, which decides the spelling that is sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Captions {
    last: Vec<String>,
    told: Vec<String>,
}

impl Captions {
    /// Takes the next partial and returns the words to send now, each with the space before it if it had one.
    pub fn partial(&mut self, text: &str) -> Option<String> {
        let words = parted(text);
        // A difference in case or punctuation is no disagreement.
        let agreed = words.iter().zip(&self.last).take_while(|(new, old)| same(new, old)).count();
        let stable = &words[..agreed.min(words.len().saturating_sub(1))];
        let untold = &stable[end_of(&self.told, stable)..];
        let delta = untold.concat();
        self.told.extend_from_slice(untold);
        self.last = words;
        (!delta.is_empty()).then_some(delta)
    }

    /// The rest of the final transcript that was not sent yet. `None` when nothing is left, or when other words were sent:
    /// then the complete transcript corrects them.
    pub fn rest(&self, text: &str) -> Option<String> {
        let words = parted(text);
        let stands = words.len() > self.told.len() && words.iter().zip(&self.told).all(|(new, old)| same(new, old));
        stands.then(|| words[self.told.len()..].concat())
    }
}

/// Its words, each with the space before it.
fn parted(text: &str) -> Vec<String> {
    antiphon_text::words::words(text)
        .map(|word| format!("{}{}", if word.spaced { " " } else { "" }, word.text))
        .collect()
}

/// Whether two words differ in case, punctuation and spaces at most.
fn same(a: &str, b: &str) -> bool {
    a == b || key(a) == key(b)
}

/// How many of `words` correspond to the sent ones: the prefix with the least edit distance to them, the longest where
/// several have it. The common prefix, which is nearly all of both, is skipped first to avoid the quadratic comparison.
fn end_of(told: &[String], words: &[String]) -> usize {
    let n_same = told.iter().zip(words).take_while(|(told, word)| same(told, word)).count();
    let keys = |words: &[String]| words.iter().map(|word| key(word)).collect::<Vec<_>>();
    let (told, words) = (keys(&told[n_same..]), keys(&words[n_same..]));
    // The edit distances of all of `told` to every beginning of `words`: strsim computes that to all of them only.
    let mut row: Vec<usize> = (0..=words.len()).collect();
    for (i, told) in told.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, word) in words.iter().enumerate() {
            let changed = diagonal + usize::from(told != word);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    n_same + (0..row.len()).rev().min_by_key(|j| row[*j]).unwrap_or(0)
}

/// The normal form of a word: equal for words that are [`same`].
fn key(word: &str) -> String {
    let letters = letters(word);
    if letters.is_empty() { word.to_owned() } else { letters }
}

/// The fewest words of an utterance that can be classified as an echo: "yes" after "say yes or no" is an answer.
const MIN_ECHO_WORDS: usize = 3;

/// Whether an utterance that overlapped a reply is an echo of it: at least four of five of its words occur in the reply in
/// the same order.
pub(super) fn is_echo(utterance: &str, reply: &str) -> bool {
    let (heard, spoken) = (words(utterance), words(reply));
    if heard.len() < MIN_ECHO_WORDS {
        return false;
    }
    common_in_order(&heard, &spoken) * 5 >= heard.len() * 4
}

/// Its words without case and punctuation.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(letters).filter(|word: &String| !word.is_empty()).collect()
}

/// The length of the longest common subsequence.
fn common_in_order(a: &[String], b: &[String]) -> usize {
    let mut row = vec![0; b.len() + 1];
    for word in a {
        let mut diagonal = 0;
        for (j, other) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = if word == other { diagonal + 1 } else { above.max(row[j]) };
            diagonal = above;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_told_once_two_partials_agree() {
        let mut captions = Captions::default();
        assert_eq!(captions.partial("what"), None);
        assert_eq!(captions.partial("what is"), Some("what".into()));
        assert_eq!(captions.partial("what it"), None);
        assert_eq!(captions.partial("what it takes"), Some(" it".into()));
        assert_eq!(captions.partial("that it takes to"), None);
        assert_eq!(captions.partial("that it takes to"), Some(" takes".into()));
        assert_eq!(captions.partial("that it takes to do"), Some(" to".into()));
    }

    #[test]
    fn the_end_tells_the_rest() {
        let mut captions = Captions::default();
        assert_eq!(captions.rest("what is it"), Some("what is it".into()));
        captions.partial("what is");
        captions.partial("what is it");
        assert_eq!(captions.rest("what is it"), Some(" it".into()));
        assert_eq!(captions.rest("what is"), None);
        assert_eq!(captions.rest("what was it"), None, "nothing can be taken back");
        assert_eq!(captions.rest("What is it?"), Some(" it?".into()), "a capital is no other word");
    }

    /// What is told over these partials, a bar behind each.
    fn told<'a>(partials: impl IntoIterator<Item = &'a str>) -> String {
        let mut captions = Captions::default();
        partials.into_iter().map(|text| captions.partial(text).unwrap_or_default() + "|").collect()
    }

    #[test]
    fn case_and_marks_are_no_disagreement() {
        assert_eq!(told(["Yes", "yes, please", "Yes please.", "yes please now"]), "|yes,|| please|");
    }

    #[test]
    fn the_mark_of_a_cut_sentence_is_not_told() {
        assert_eq!(told(["No.", "No.", "No mistake.", "No mistake was made."]), "||No| mistake|");
        assert_eq!(told(["Stood.", "Stood up?", "Stood up and said."]), "|Stood| up|");
        assert_eq!(
            told(["Yes. Go", "Yes. Go on", "Yes. Go on now"]),
            "|Yes. Go| on|",
            "a sentence that another follows"
        );
    }

    #[test]
    fn a_language_without_blanks_is_told_as_it_is_spoken() {
        assert_eq!(told(["今天", "今天天气", "今天天气很好。", "今天天气很好。我"]), "|今天|天气|很好。|");
        let mut captions = Captions::default();
        captions.partial("今天天");
        captions.partial("今天天气");
        assert_eq!(captions.rest("今天天气很好。"), Some("气很好。".into()));
    }

    #[test]
    fn what_was_told_stands_and_is_not_told_twice_when_all_before_is_decoded_anew() {
        // A recognizer that cuts long audio says its beginning once more, and better.
        let anew = "one two and three four five six";
        assert_eq!(told(["one too three x", "one too three four", anew, anew]), "|one too three|| four five|");
        let shorter = "one three four five six";
        assert_eq!(told(["one too three x", "one too three four", shorter, shorter]), "|one too three|| four five|");
        assert_eq!(told(["one two x", "one two y", "none at all of", "none at all of"]), "|one two|| all|");
    }

    proptest::proptest! {
        #[test]
        fn every_word_is_told_once_where_the_recognizer_only_adds(text in "[ab我]( [ab]|我){0,12}", cuts in proptest::collection::vec(0usize..40, 0..8)) {
            let mut ends: Vec<usize> = cuts.into_iter().map(|cut| text.char_indices().nth(cut).map_or(text.len(), |(at, _)| at)).collect();
            ends.sort_unstable();
            let mut captions = Captions::default();
            let told: String = ends.iter().filter_map(|end| captions.partial(text[..*end].trim_end())).collect();
            proptest::prop_assert_eq!(told + &captions.rest(&text).unwrap_or_default(), text);
        }
    }

    #[test]
    fn an_echo_is_the_reply_in_its_order() {
        let reply = "It is 10 past three, and the sun is shining.";
        assert!(is_echo("past three and the sun is", reply));
        assert!(is_echo("and the son is shining", reply), "one word in five may be misheard");
        assert!(!is_echo("the sun", reply));
        assert!(!is_echo("shining is sun the and three", reply));
        assert!(!is_echo("is the weather good", reply));
    }
}
