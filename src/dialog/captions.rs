//! Words of an utterance under way that will most likely stand, and whether an utterance is the hub's own reply.

/// Deltas can only be appended on the wire, while a recognizer changes its mind. A word is told once two partials in a
/// row agree on it and on all before it (local agreement: Liu, Spanakis and Niehues, 2020).
#[derive(Clone, Debug, Default)]
pub(super) struct Captions {
    last: Vec<String>,
    n_told: usize,
}

impl Captions {
    /// Takes the next partial and gives the words to tell now, each word after the first with a space before it.
    pub(super) fn partial(&mut self, text: &str) -> Option<String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let agreed = words.iter().zip(&self.last).take_while(|(new, old)| new == old).count();
        let first = self.n_told;
        self.last = words;
        if agreed <= first {
            return None;
        }
        self.n_told = agreed;
        let space = if first == 0 { "" } else { " " };
        Some(format!("{space}{}", self.last[first..agreed].join(" ")))
    }

    /// What of the final transcript was not told yet. `None` when nothing is left, or when other words were told: then
    /// the whole transcript says what stands.
    pub(super) fn rest(&self, text: &str) -> Option<String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let told = &self.last[..self.n_told.min(self.last.len())];
        let stands = told.len() == self.n_told && words.len() > told.len();
        if !stands || words.iter().zip(told).any(|(new, old)| new != old) {
            return None;
        }
        let space = if told.is_empty() { "" } else { " " };
        Some(format!("{space}{}", words[told.len()..].join(" ")))
    }
}

/// Words an utterance must have before it can be taken for an echo: "yes" after "say yes or no" is an answer.
const MIN_ECHO_WORDS: usize = 3;

/// Whether an utterance that overlapped a reply is that reply come back: at least four of five of its words stand in
/// the reply in the same order.
pub(super) fn is_echo(utterance: &str, reply: &str) -> bool {
    let (heard, spoken) = (words(utterance), words(reply));
    if heard.len() < MIN_ECHO_WORDS {
        return false;
    }
    common_in_order(&heard, &spoken) * 5 >= heard.len() * 4
}

/// Its words without case and marks.
pub(super) fn words(text: &str) -> Vec<String> {
    let letters = |word: &str| word.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
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
        assert_eq!(captions.partial("that it takes to"), Some(" takes to".into()));
    }

    #[test]
    fn the_end_tells_the_rest() {
        let mut captions = Captions::default();
        assert_eq!(captions.rest("what is it"), Some("what is it".into()));
        captions.partial("what is");
        captions.partial("what is");
        assert_eq!(captions.rest("what is it"), Some(" it".into()));
        assert_eq!(captions.rest("what is"), None);
        assert_eq!(captions.rest("what was it"), None, "nothing can be taken back");
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
