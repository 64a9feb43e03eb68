//! Words of an utterance under way that will not be taken back (LocalAgreement-2; Liu, Spanakis and Niehues, 2020).
//!
//! `stream` gives each new hypothesis; a word that two hypotheses in a row share, with all before it, stands from then
//! on, whatever later ones say. The final transcript is a decoding of its own and may still differ.

/// The words of one utterance.
#[derive(Clone, Debug, Default)]
pub(super) struct Agreement {
    stands: Vec<String>,
    last: Vec<String>,
}

impl Agreement {
    /// Takes the words of the next hypothesis; gives those that stand and, behind them, the latest idea of the others.
    pub(super) fn hear(&mut self, text: &str) -> String {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let agreed = words.iter().zip(&self.last).take_while(|(new, old)| same(new, old)).count();
        if agreed > self.stands.len() {
            // As it was written first, so that a capital or a comma does not take it back.
            let first = self.stands.len();
            self.stands.extend(self.last[first..agreed].iter().cloned());
        }
        self.last = words;
        let rest = self.last.get(self.stands.len()..).unwrap_or_default();
        self.stands.iter().chain(rest).map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// How many words stand.
    #[cfg(test)]
    fn n_stands(&self) -> usize {
        self.stands.len()
    }
}

/// Whether two words differ in case and marks at most.
fn same(a: &str, b: &str) -> bool {
    let letters = |word: &'_ str| -> String {
        word.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    a == b || letters(a) == letters(b) && a.chars().any(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Hypotheses, and what is told after each: words that stand in front of the bar.
    #[track_caller]
    fn check(script: &[(&str, &str)]) {
        let mut agreement = Agreement::default();
        for (heard, expect) in script {
            let told = agreement.hear(heard);
            let words: Vec<&str> = told.split_whitespace().collect();
            let (stands, rest) = words.split_at(agreement.n_stands());
            assert_eq!(format!("{}|{}", stands.join(" "), rest.join(" ")), *expect, "{heard}");
        }
    }

    #[test]
    fn two_that_agree_make_a_word_stand_and_a_third_does_not_take_it_back() {
        check(&[
            ("what", "|what"),
            ("what is", "what|is"),
            ("what is this", "what is|this"),
            ("white is the time", "what is|the time"),
            ("what is the time", "what is|the time"),
            ("", "what is|"),
        ]);
    }

    #[test]
    fn case_and_marks_are_no_disagreement() {
        check(&[("Yes", "|Yes"), ("yes, please", "Yes|please"), ("Yes please.", "Yes please|")]);
    }

    proptest! {
        #[test]
        fn what_stands_only_grows(texts in prop::collection::vec("[ab] [ab] [ab]( [ab])?", 1..8)) {
            let (mut agreement, mut before) = (Agreement::default(), Vec::new());
            for text in texts {
                agreement.hear(&text);
                prop_assert!(agreement.stands.starts_with(&before));
                before = agreement.stands.clone();
            }
        }
    }
}
