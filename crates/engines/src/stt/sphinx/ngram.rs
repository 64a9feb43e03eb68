//! A 3-gram language model from sentences, as ARPA text: absolute discounting, each order interpolated with the one
//! below (Ney, Essen, Kneser, "On structuring probabilistic dependences", 1994). Only `vocabulary` calls this.

use super::grammar::WordId;
use std::collections::HashMap;
use std::fmt::Write as _;

/// What is taken from each count for what was not seen. Between 0.5 and 0.8 it makes no difference here.
const DISCOUNT: f64 = 0.7;

/// The marks of a sentence's edges, outside the vocabulary.
const BEGIN: WordId = WordId::MAX;
const END: WordId = WordId::MAX - 1;

/// Counts of n-grams.
#[derive(Default)]
pub(super) struct Counts {
    /// By order less one; a key is the n-gram padded in front.
    grams: [HashMap<Vec<WordId>, u32>; 3],
}

/// How often a context was seen, and before how many different words.
#[derive(Default, Clone, Copy)]
struct Context {
    n_seen: f64,
    n_followers: f64,
}

impl Counts {
    /// Counts a sentence.
    pub(super) fn add(&mut self, sentence: &[WordId]) {
        let padded: Vec<WordId> = [&[BEGIN], sentence, &[END]].concat();
        for (i, grams) in self.grams.iter_mut().enumerate() {
            for gram in padded.windows(i + 1).filter(|gram| *gram != [BEGIN]) {
                match grams.get_mut(gram) {
                    Some(n) => *n += 1,
                    None => drop(grams.insert(gram.to_vec(), 1)),
                }
            }
        }
    }

    /// Counts a word by itself, so that it is possible everywhere.
    pub(super) fn add_word(&mut self, word: WordId) {
        *self.grams[0].entry(vec![word]).or_default() += 1;
    }

    /// The model as ARPA text.
    pub(super) fn arpa(&self, words: &[String]) -> String {
        let contexts: Vec<HashMap<&[WordId], Context>> = self.grams.iter().map(contexts).collect();
        let mut text = String::from("\\data\\\n");
        for (i, grams) in self.grams.iter().enumerate() {
            let _ = writeln!(text, "ngram {}={}", i + 1, grams.len() + usize::from(i == 0));
        }
        let mut below: HashMap<&[WordId], f64> = HashMap::new();
        for (i, grams) in self.grams.iter().enumerate() {
            let _ = writeln!(text, "\n\\{}-grams:", i + 1);
            let back_off =
                |gram: &[WordId]| contexts.get(i + 1).and_then(|next| next.get(gram)).map(|context| context.left());
            if i == 0 {
                let _ = writeln!(text, "-99 <s> {:.4}", back_off(&[BEGIN]).unwrap_or(1.0).log10());
            }
            let uniform = 1.0 / grams.len() as f64;
            let mut sorted: Vec<(&Vec<WordId>, &u32)> = grams.iter().collect();
            sorted.sort();
            let mut these = HashMap::with_capacity(grams.len());
            for (gram, n) in sorted {
                let context = contexts[i][&gram[..i]];
                let lower = if i == 0 { uniform } else { below[&gram[1..]] };
                let seen = (f64::from(*n) - DISCOUNT).max(0.0) / context.n_seen;
                let share = seen + context.left() * lower;
                these.insert(gram.as_slice(), share);
                let _ = write!(text, "{:.4}", share.log10());
                for word in gram {
                    text.push(' ');
                    text.push_str(written(*word, words));
                }
                if i < 2 {
                    let _ = write!(text, " {:.4}", back_off(gram).unwrap_or(1.0).log10());
                }
                text.push('\n');
            }
            below = these;
        }
        text.push_str("\n\\end\\\n");
        text
    }
}

impl Context {
    /// The share left for what was not seen.
    fn left(self) -> f64 {
        DISCOUNT * self.n_followers / self.n_seen
    }
}

fn contexts(grams: &HashMap<Vec<WordId>, u32>) -> HashMap<&[WordId], Context> {
    let mut contexts: HashMap<&[WordId], Context> = HashMap::new();
    for (gram, n) in grams {
        let context = contexts.entry(&gram[..gram.len() - 1]).or_default();
        context.n_seen += f64::from(*n);
        context.n_followers += 1.0;
    }
    contexts
}

fn written(word: WordId, words: &[String]) -> &str {
    match word {
        BEGIN => "<s>",
        END => "</s>",
        word => &words[usize::from(word)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sum_to_one_and_the_text_is_arpa() {
        let words: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        let mut counts = Counts::default();
        for sentence in [&[0, 1][..], &[0, 1, 2], &[2], &[0, 0]] {
            counts.add(sentence);
        }
        counts.add_word(2);
        let text = counts.arpa(&words);
        let unigrams = text.split("\\1-grams:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap();
        let share = |line: &str| 10f64.powf(line.split(' ').next().unwrap().parse().unwrap());
        let sum: f64 = unigrams.lines().filter(|line| !line.contains("<s>")).map(share).sum();
        assert!((sum - 1.0).abs() < 1e-3, "{text}");
        // After "a b": "c" once, the end once.
        let line = text.lines().find(|line| line.ends_with(" a b c")).unwrap();
        assert!((0.2..0.5).contains(&share(line)), "{line}");
        assert!(text.starts_with("\\data\\\nngram 1=5\nngram 2=") && text.ends_with("\\end\\\n"), "{text}");
        assert!(text.contains("\n-99 <s> -"), "{text}");
    }
}
