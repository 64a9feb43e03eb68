//! Stable words of an utterance under way, and the detection of the hub's own reply in an utterance.

use antiphon_text::words::letters;
use antiphon_types::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Of a recognizer that does not say which words it is sure of.
const AGREEMENT: Agreement = Agreement { partials: 2, lasts: Duration::ZERO };

/// Of one that is sure of the word. With Whisper base and partials of every 0.5 s, 1 of 182 words that were sent of 65 clips
/// changed, and 42 % of all words were sent before the end; two that agree change 31 of 275. A fast machine makes partials
/// of nearly the same sound, which agree on the same mistakes: there the time counts.
const AGREEMENT_IF_SURE: Agreement = Agreement { partials: 3, lasts: Duration::from_millis(900) };

/// Of one that is not.
const AGREEMENT_IF_UNSURE: Agreement = Agreement { partials: 5, lasts: Duration::from_millis(1_800) };

/// Of words that the recognizer does not change any more.
const NO_AGREEMENT: Agreement = Agreement { partials: 1, lasts: Duration::ZERO };

/// A partial transcript, as recognizers give it.
pub struct Partial<'a> {
    /// The words so far.
    pub text: &'a str,
    /// How many of the first ones the recognizer is sure of; `None`: it does not say.
    pub n_sure_words: Option<u32>,
    /// How many of the first ones later partials do not change.
    pub n_settled_words: u32,
}

/// What it takes until a word is sent.
#[derive(Clone, Copy)]
struct Agreement {
    /// Partials in a row that have the word.
    partials: usize,
    /// The time from the first of them to the last.
    lasts: Duration,
}

/// Deltas on the wire can only be appended, while a recognizer revises its hypothesis. A word is sent once consecutive
/// partials agree on it and on all words before it (LocalAgreement: Liu, Spanakis and Niehues, 2020), and is never taken back:
/// later partials only determine which of their words follow the sent ones. Two have to agree, or more, and for some time,
/// where the recognizer says how sure it is; one where its words are settled. What is not sent yet is the draft.
///
/// The last word of a partial is not sent: the audio may end within it, and recognizers end each partial like a sentence.
/// Its mark is withdrawn when a word follows, which decides the spelling that is sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Captions {
    last: Vec<String>,
    sent: Vec<String>,
    /// Of each word of the last partial, how many partials in a row had it; of a snapshot without them, one.
    #[serde(default)]
    n_agreeing: Vec<usize>,
    /// And since when; of a snapshot without them, since the next partial.
    #[serde(default)]
    agreeing_since: Vec<Timestamp>,
}

impl Captions {
    /// Takes the next partial and the time at which it has come, and returns the words to send now, each with the space
    /// before it if it had one.
    pub fn partial(&mut self, partial: &Partial<'_>, now: Timestamp) -> Option<String> {
        let words = parted(partial.text);
        // A difference in case or punctuation is no disagreement.
        let n_same = words.iter().zip(&self.last).take_while(|(new, old)| same(new, old)).count();
        let before = |i: usize| if i < n_same { self.n_agreeing.get(i).copied().unwrap_or(1) } else { 0 };
        let n_agreeing: Vec<usize> = (0..words.len()).map(|i| before(i) + 1).collect();
        let since = |i: usize| if i < n_same { self.agreeing_since.get(i).copied().unwrap_or(now) } else { now };
        let agreeing_since: Vec<Timestamp> = (0..words.len()).map(since).collect();
        let needed = |i: usize| match partial.n_sure_words {
            _ if i < partial.n_settled_words as usize => NO_AGREEMENT,
            None => AGREEMENT,
            Some(n) if i < n as usize => AGREEMENT_IF_SURE,
            Some(_) => AGREEMENT_IF_UNSURE,
        };
        let agrees = |i: usize| {
            let needed = needed(i);
            n_agreeing[i] >= needed.partials && now.since(agreeing_since[i]) >= needed.lasts
        };
        let agreed = (0..words.len()).take_while(|i| agrees(*i)).count();
        let stable = &words[..agreed.min(words.len().saturating_sub(1))];
        let unsent = &stable[end_of(&self.sent, stable)..];
        let delta = unsent.concat();
        self.sent.extend_from_slice(unsent);
        self.last = words;
        self.n_agreeing = n_agreeing;
        self.agreeing_since = agreeing_since;
        (!delta.is_empty()).then_some(delta)
    }

    /// The words of the last partial that were not sent yet, without the mark at its end. They may change.
    pub fn draft(&self) -> String {
        let unsent = self.last[end_of(&self.sent, &self.last)..].concat();
        unsent.trim_end_matches(|c: char| c.is_ascii_punctuation() || "…。！？、".contains(c)).to_owned()
    }

    /// The rest of the final transcript that was not sent yet. `None` when nothing is left, or when other words were sent:
    /// then the complete transcript corrects them.
    pub fn rest(&self, text: &str) -> Option<String> {
        let words = parted(text);
        let stands = words.len() > self.sent.len() && words.iter().zip(&self.sent).all(|(new, old)| same(new, old));
        stands.then(|| words[self.sent.len()..].concat())
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
fn end_of(sent: &[String], words: &[String]) -> usize {
    let n_same = sent.iter().zip(words).take_while(|(sent, word)| same(sent, word)).count();
    let keys = |words: &[String]| words.iter().map(|word| key(word)).collect::<Vec<_>>();
    let sent = keys(&sent[n_same..]);
    let words = keys(&words[n_same..]);
    // The edit distances of all of `sent` to every beginning of `words`: strsim computes that to all of them only.
    let mut row: Vec<usize> = (0..=words.len()).collect();
    for (i, sent) in sent.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, word) in words.iter().enumerate() {
            let changed = diagonal + usize::from(sent != word);
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
    let heard = words(utterance);
    let spoken = words(reply);
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

    /// Of a recognizer that does not say how sure it is.
    fn partial(captions: &mut Captions, text: &str) -> Option<String> {
        captions.partial(&Partial { text, n_sure_words: None, n_settled_words: 0 }, Timestamp::default())
    }

    #[test]
    fn a_word_is_sent_once_two_partials_agree() {
        let mut captions = Captions::default();
        assert_eq!(partial(&mut captions, "what"), None);
        assert_eq!(partial(&mut captions, "what is"), Some("what".into()));
        assert_eq!(partial(&mut captions, "what it"), None);
        assert_eq!(partial(&mut captions, "what it takes"), Some(" it".into()));
        assert_eq!(partial(&mut captions, "that it takes to"), None);
        assert_eq!(partial(&mut captions, "that it takes to"), Some(" takes".into()));
        assert_eq!(partial(&mut captions, "that it takes to do"), Some(" to".into()));
    }

    #[test]
    fn the_end_sends_the_rest() {
        let mut captions = Captions::default();
        assert_eq!(captions.rest("what is it"), Some("what is it".into()));
        partial(&mut captions, "what is");
        partial(&mut captions, "what is it");
        assert_eq!(captions.rest("what is it"), Some(" it".into()));
        assert_eq!(captions.rest("what is"), None);
        assert_eq!(captions.rest("what was it"), None, "nothing can be taken back");
        assert_eq!(captions.rest("What is it?"), Some(" it?".into()), "a capital is no other word");
    }

    /// What is sent over these partials, a bar behind each.
    fn sent<'a>(partials: impl IntoIterator<Item = &'a str>) -> String {
        let mut captions = Captions::default();
        partials.into_iter().map(|text| partial(&mut captions, text).unwrap_or_default() + "|").collect()
    }

    #[test]
    fn case_and_marks_are_no_disagreement() {
        assert_eq!(sent(["Yes", "yes, please", "Yes please.", "yes please now"]), "|yes,|| please|");
    }

    #[test]
    fn the_mark_of_a_cut_sentence_is_not_sent() {
        assert_eq!(sent(["No.", "No.", "No mistake.", "No mistake was made."]), "||No| mistake|");
        assert_eq!(sent(["Stood.", "Stood up?", "Stood up and said."]), "|Stood| up|");
        assert_eq!(
            sent(["Yes. Go", "Yes. Go on", "Yes. Go on now"]),
            "|Yes. Go| on|",
            "a sentence that another follows"
        );
    }

    #[test]
    fn a_language_without_blanks_is_sent_as_it_is_spoken() {
        assert_eq!(sent(["今天", "今天天气", "今天天气很好。", "今天天气很好。我"]), "|今天|天气|很好。|");
        let mut captions = Captions::default();
        partial(&mut captions, "今天天");
        partial(&mut captions, "今天天气");
        assert_eq!(captions.rest("今天天气很好。"), Some("气很好。".into()));
    }

    #[test]
    fn what_was_sent_stands_and_is_not_sent_twice_when_all_before_is_decoded_again() {
        // A recognizer that cuts long audio says its beginning once more, and better.
        let corrected = "one two and three four five six";
        assert_eq!(
            sent(["one too three x", "one too three four", corrected, corrected]),
            "|one too three|| four five|"
        );
        let shorter = "one three four five six";
        assert_eq!(sent(["one too three x", "one too three four", shorter, shorter]), "|one too three|| four five|");
        assert_eq!(sent(["one two x", "one two y", "none at all of", "none at all of"]), "|one two|| all|");
    }

    proptest::proptest! {
        #[test]
        fn every_word_is_sent_once_where_the_recognizer_only_adds(text in "[ab我]( [ab]|我){0,12}", cuts in proptest::collection::vec(0usize..40, 0..8)) {
            let mut ends: Vec<usize> = cuts.into_iter().map(|cut| text.char_indices().nth(cut).map_or(text.len(), |(at, _)| at)).collect();
            ends.sort_unstable();
            let mut captions = Captions::default();
            let sent: String = ends.iter().filter_map(|end| partial(&mut captions, text[..*end].trim_end())).collect();
            proptest::prop_assert_eq!(sent + &captions.rest(&text).unwrap_or_default(), text);
        }
    }

    /// What is sent over these partials, each with its sure words, that come at this interval, a bar behind each.
    fn sent_every(ms: u64, partials: &[(&str, u32)]) -> String {
        let mut captions = Captions::default();
        let sent = partials.iter().enumerate().map(|(i, (text, n_sure))| {
            let now = Timestamp::from_ms(5_000 + ms * i as u64);
            captions
                .partial(&Partial { text, n_sure_words: Some(*n_sure), n_settled_words: 0 }, now)
                .unwrap_or_default()
                + "|"
        });
        sent.collect()
    }

    #[test]
    fn words_that_the_recognizer_is_not_sure_of_wait_longer() {
        let text = "and so it was a";
        let partials = [("and so it", 3), ("and so it was", 4), (text, 1), (text, 1), (text, 1), (text, 5)];
        assert_eq!(sent_every(500, &partials), "||and|| so it| was|", "of three the first is sure; five agree");
    }

    #[test]
    fn partials_that_come_fast_have_to_agree_for_longer() {
        let sure = [("and so it was a", 5); 11];
        assert_eq!(sent_every(100, &sure), "|||||||||and so it was||");
        let unsure = [("and so it was a", 0); 11];
        assert_eq!(sent_every(200, &unsure), "|||||||||and so it was||");
        assert_eq!(sent_every(2_000, &unsure), "||||and so it was|||||||", "slow ones have to be as many");
    }

    #[test]
    fn words_that_do_not_change_are_sent_at_once() {
        let mut captions = Captions::default();
        let mut sent = |text, n_settled_words| {
            let partial = Partial { text, n_sure_words: None, n_settled_words };
            captions.partial(&partial, Timestamp::default()).unwrap_or_default()
        };
        assert_eq!(sent("and so i", 2), "and so");
        assert_eq!(sent("and so it was a", 3), " it");
        assert_eq!(sent("and so it was a", 3), " was", "the others as those of any recognizer");
    }

    #[test]
    fn the_draft_is_what_is_not_sent() {
        let mut captions = Captions::default();
        let mut draft = |text: &str| {
            partial(&mut captions, text);
            captions.draft()
        };
        assert_eq!(draft("No."), "No");
        assert_eq!(draft("No mistake."), " mistake", "the first is sent");
        assert_eq!(draft("No steak was, "), " steak was");
        assert_eq!(draft(""), "");
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
