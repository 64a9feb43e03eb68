//! One request as words: lower case, contractions written out, fillers gone.
//!
//! The text comes from a recognizer (lower case, numbers as words) or from a keyboard (`What's 12*7?`); after this they
//! look the same. Each word knows where it stands in the text, for what is to be repeated or spelled as it was written.

use super::fillers;
use std::ops::Range;

/// A request.
#[derive(Clone, Debug, Default)]
pub(super) struct Query {
    /// The text as it came.
    pub raw: String,
    /// All words but hesitations.
    pub all: Vec<String>,
    /// The words without the politeness around them; never empty where `all` is not.
    pub words: Vec<String>,
    /// Where each of `words` stands in `raw`.
    spans: Vec<Range<usize>>,
}

impl Query {
    pub fn new(raw: &str) -> Self {
        let mut tokens = tokens(raw);
        tokens.retain(|(word, _)| !fillers::is_hesitation(word));
        let all: Vec<String> = tokens.iter().map(|(word, _)| word.clone()).collect();
        let core = fillers::core(&all);
        let (words, spans) = tokens[core].iter().cloned().unzip();
        Self { raw: raw.to_owned(), all, words, spans }
    }

    /// Whether the pattern's words stand somewhere in a row. `a|b` is either.
    pub fn has(&self, pattern: &str) -> bool {
        find(&self.words, pattern).is_some()
    }

    /// Whether one of the patterns does.
    pub fn any(&self, patterns: &[&str]) -> bool {
        patterns.iter().any(|pattern| self.has(pattern))
    }

    /// The same on all words, the politeness included.
    pub fn said(&self, patterns: &[&str]) -> bool {
        patterns.iter().any(|pattern| find(&self.all, pattern).is_some())
    }

    /// Whether these are all the words there are.
    pub fn is(&self, patterns: &[&str]) -> bool {
        let whole = |words: &[String], pattern: &str| find(words, pattern) == Some(0..words.len());
        patterns.iter().any(|pattern| whole(&self.words, pattern) || whole(&self.all, pattern))
    }

    pub fn starts(&self, patterns: &[&str]) -> bool {
        patterns.iter().any(|pattern| find(&self.words, pattern).is_some_and(|at| at.start == 0))
    }

    /// The words after the first place of the pattern.
    pub fn after(&self, pattern: &str) -> Option<&[String]> {
        find(&self.words, pattern).map(|at| &self.words[at.end..])
    }

    /// The text as it came, from a word on to another, without the marks around it.
    pub fn raw_words(&self, words: Range<usize>) -> &str {
        let Some(first) = self.spans.get(words.start) else { return "" };
        let last = &self.spans[words.end.clamp(words.start + 1, self.spans.len()) - 1];
        self.raw[first.start..last.end.max(first.start)].trim()
    }

    /// The text as it came, from a word to the last one, with the mark after it.
    pub fn raw_from(&self, word: usize) -> &str {
        let (Some(first), Some(last)) = (self.spans.get(word), self.spans.last()) else { return "" };
        let mark = |c: char| ".?!…\"”'’)".contains(c);
        let end = self.raw[last.end..].find(|c| !mark(c)).map_or(self.raw.len(), |n| last.end + n);
        self.raw[first.start..end].trim()
    }
}

/// Where the pattern's words stand in a row. `a|b` is either; `*` is any word.
pub(super) fn find(words: &[String], pattern: &str) -> Option<Range<usize>> {
    let parts: Vec<&str> = pattern.split(' ').collect();
    let fits = |word: &String, part: &&str| *part == "*" || part.split('|').any(|choice| choice == word);
    let at = words.windows(parts.len()).position(|window| window.iter().zip(&parts).all(|(w, p)| fits(w, p)))?;
    Some(at..at + parts.len())
}

/// Whether a word is one of those in the list `a|b|c`.
pub(super) fn one_of(word: &str, list: &str) -> bool {
    list.split('|').any(|choice| choice == word)
}

/// Words, numbers and signs, each with its place.
fn tokens(raw: &str) -> Vec<(String, Range<usize>)> {
    let chars: Vec<(usize, char)> = raw.char_indices().collect();
    let end_of = |i: usize| chars.get(i).map_or(raw.len(), |(at, _)| *at);
    let mut tokens = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        let (start, c) = chars[i];
        let next_is_digit = chars.get(i + 1).is_some_and(|(_, c)| c.is_ascii_digit());
        let after_number = i > 0 && chars[i - 1].1.is_ascii_digit();
        let n = if c.is_ascii_digit() || (c == '.' && next_is_digit && !after_number) {
            number_length(&chars[i..], i > 1 && chars[i - 1].1 == ',' && chars[i - 2].1.is_ascii_digit())
        } else if c.is_alphabetic() {
            chars[i..].iter().take_while(|(_, c)| c.is_alphabetic() || matches!(c, '\'' | '’')).count()
        } else {
            1
        };
        let span = start..end_of(i + n);
        let text = &raw[span.clone()];
        if c.is_alphabetic() {
            let word = text.to_lowercase().replace('’', "'");
            let word = word.trim_matches('\'');
            let part_of_ordinal = after_number && one_of(word, "st|nd|rd|th");
            match tokens.last_mut() {
                Some((number, whole)) if part_of_ordinal => {
                    let number: &mut String = number;
                    let whole: &mut Range<usize> = whole;
                    number.push_str("th");
                    whole.end = span.end;
                }
                _ => tokens.extend(contraction(word).into_iter().map(|word| (word, span.clone()))),
            }
        } else if c.is_ascii_digit() || n > 1 {
            tokens.push((digits(text), span));
        } else {
            // A hyphen inside a word or between words is none of arithmetic's.
            let hyphen = c == '-' && i > 0 && chars[i - 1].1.is_alphabetic();
            if !hyphen {
                let sign = if c == '\'' && after_number {
                    &["foot"]
                } else if c == '"' && after_number && tokens.iter().any(|(word, _)| word == "foot") {
                    &["inches"]
                } else if c == '!' && !after_number {
                    &[]
                } else {
                    sign(c)
                };
                tokens.extend(sign.iter().map(|word| ((*word).to_owned(), span.clone())));
            }
        }
        i += n;
    }
    tokens
}

/// How many characters a written number has: `12`, `3.5`, `3,5`, `1,000,000.5`, `9:30`. A comma in a list (`3,9,4`) is not of it.
fn number_length(chars: &[(usize, char)], in_list: bool) -> usize {
    let text: String = chars.iter().map(|(_, c)| *c).take_while(|c| c.is_ascii_digit() || ".,:".contains(*c)).collect();
    let mut length = text.trim_end_matches(['.', ',', ':']).len();
    let written = &text[..length];
    let groups: Vec<&str> = written.split(',').collect();
    let thousands = groups[1..].iter().all(|group| group.split('.').next().is_some_and(|group| group.len() == 3));
    if in_list || (groups.len() > 2 && !thousands) {
        length = groups[0].len();
    }
    length
}

/// The number with a decimal point and without thousands' commas.
fn digits(text: &str) -> String {
    let groups: Vec<&str> = text.split(',').collect();
    let thousands = groups[1..].iter().all(|group| group.split('.').next().is_some_and(|group| group.len() == 3));
    match groups.len() {
        2 if !thousands || groups[0] == "0" => text.replace(',', "."),
        _ => text.replace(',', ""),
    }
}

fn sign(c: char) -> &'static [&'static str] {
    match c {
        '+' => &["+"],
        '-' | '−' | '–' => &["-"],
        '*' | '×' | '·' | '∗' => &["*"],
        '/' | '÷' => &["/"],
        '^' => &["^"],
        '%' => &["percent"],
        '(' => &["("],
        ')' => &[")"],
        '=' => &["equals"],
        '!' => &["!"],
        '<' => &["less", "than"],
        '>' => &["greater", "than"],
        '²' => &["squared"],
        '³' => &["cubed"],
        '√' => &["square", "root", "of"],
        '½' => &["and", "a", "half"],
        '¼' => &["and", "a", "quarter"],
        '¾' => &["and", "three", "quarters"],
        'π' => &["pi"],
        '°' => &["degrees"],
        '€' => &["euros"],
        '$' => &["dollars"],
        _ => &[],
    }
}

/// A contraction's words. A possessive loses its mark.
fn contraction(word: &str) -> Vec<String> {
    let whole: &[&str] = match word {
        "whats" | "what's" | "wats" => &["what", "is"],
        "hows" => &["how", "is"],
        "whos" => &["who", "is"],
        "wheres" => &["where", "is"],
        "whens" => &["when", "is"],
        "thats" => &["that", "is"],
        "i'm" | "im" => &["i", "am"],
        "i'd" => &["i", "would"],
        "let's" | "lets" => &["let", "us"],
        "can't" | "cannot" | "cant" => &["can", "not"],
        "won't" => &["will", "not"],
        "dont" => &["do", "not"],
        "gimme" => &["give", "me"],
        "wanna" => &["want", "to"],
        "u" => &["you"],
        "pls" | "plz" => &["please"],
        "o'clock" => &["oclock"],
        "tommorow" | "tommorrow" | "tomorow" | "tmrw" | "tomorro" => &["tomorrow"],
        "todays" => &["today"],
        "tomorrows" => &["tomorrow"],
        "yesterdays" => &["yesterday"],
        "kilo" | "centi" | "milli" | "mega" | "giga" => return vec![word.to_owned()],
        _ => &[],
    };
    if !whole.is_empty() {
        return whole.iter().map(|word| (*word).to_owned()).collect();
    }
    if let Some(stem) = word.strip_suffix("n't") {
        return vec![stem.to_owned(), "not".to_owned()];
    }
    let Some((stem, end)) = word.split_once('\'') else { return vec![word.to_owned()] };
    let second = match end {
        "re" => "are",
        "ll" => "will",
        "ve" => "have",
        "d" => "would",
        "m" => "am",
        "s" if one_of(stem, "it|that|there|here|how|who|where|when|what|which|he|she") => "is",
        "s" | "" => return vec![stem.to_owned()],
        _ => return vec![word.replace('\'', "")],
    };
    vec![stem.to_owned(), second.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_and_spoken_text_become_the_same_words() {
        for (text, words) in [
            ("What's 12*7?", "what is 12 * 7"),
            ("um so hey could you please tell me what is twelve times seven", "what is twelve times seven"),
            ("3,5 + 2", "3.5 + 2"),
            ("1,000,000 - 0.5", "1000000 - 0.5"),
            ("the largest of 3, 9, 4", "the largest of 3 9 4"),
            ("max of 3,9,4", "max of 3 9 4"),
            ("50% of 80.", "50 percent of 80"),
            ("twenty-three is -7", "twenty three is - 7"),
            ("10km in miles", "10 km in miles"),
            ("March 25th, 2026", "march 25th 2026"),
            ("don't say Valentine's Day", "do not say valentine day"),
            ("Can you, er, count to ten for me, please?", "count to ten"),
            ("at 9:30", "at 9:30"),
        ] {
            assert_eq!(Query::new(text).words.join(" "), words, "{text}");
        }
    }

    #[test]
    fn the_text_as_written_is_kept() {
        let query = Query::new("Please say “Guten Tag, Anna!”");
        assert_eq!(query.words[0], "say");
        assert_eq!(query.raw_words(1..4), "Guten Tag, Anna");
        assert!(query.raw_from(1).starts_with("Guten Tag, Anna!"));
    }
}
