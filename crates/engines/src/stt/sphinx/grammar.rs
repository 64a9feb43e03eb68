//! Reads a vocabulary hint's grammar and draws sentences from it. Only `vocabulary` calls this; it knows nothing of audio or of
//! n-grams.
//!
//! [`VocabularyHint`](antiphon_engine_api::stt::VocabularyHint) says what the notation is. Drawing is deterministic: the same grammar gives the same sentences.

use std::collections::HashMap;

/// A word's number in the vocabulary.
pub(super) type WordId = u16;

/// How often `(...)+` comes at most.
const MAX_REPEATS: u64 = 5;

/// Rules, with a vocabulary of their words and of the open words.
pub(super) struct Grammar {
    words: Vec<String>,
    open_words: Vec<WordId>,
    pub(super) rules: Vec<Choice>,
    pub(super) start: usize,
}

/// Alternatives with the sum of the weights up to and with each.
#[derive(Default)]
pub(super) struct Choice(pub(super) Vec<(f64, Vec<Item>)>);

pub(super) enum Item {
    Word(WordId),
    Rule(usize),
    /// Any of the open words.
    AnyWord,
    /// The same where the automaton has room for them all.
    EveryWord,
    Group(Choice),
    Optional(Choice),
    Repeated(Choice),
}

impl Grammar {
    /// Reads the rules; `start` names the first. `open_words` are those of `<word>`.
    pub(super) fn read(source: &str, start: &str, open_words: &[&str]) -> Result<Self, String> {
        let mut reader = Reader::new(source);
        let open_words = open_words.iter().map(|word| reader.word(word)).collect();
        let mut rules: Vec<Option<Choice>> = Vec::new();
        while let Some(name) = reader.next() {
            let at = reader.rule(name);
            reader.expect("=")?;
            let choice = reader.choice()?;
            reader.expect(";")?;
            rules.resize_with(reader.rules.len(), || None);
            rules[at] = Some(choice);
        }
        let start = *reader.rules.get(start).ok_or("the first rule is missing")?;
        let rules = rules.into_iter().collect::<Option<_>>().ok_or("a rule is named and not defined")?;
        Ok(Self { words: reader.words, open_words, rules, start })
    }

    /// The vocabulary; a [`WordId`] is an index into it.
    pub(super) fn words(&self) -> &[String] {
        &self.words
    }

    /// The words of `<word>`.
    pub(super) fn open_words(&self) -> &[WordId] {
        &self.open_words
    }

    /// Draws one sentence; it may be empty.
    pub(super) fn draw(&self, dice: &mut Dice, sentence: &mut Vec<WordId>) {
        sentence.clear();
        self.choose(&self.rules[self.start], dice, sentence);
    }

    fn choose(&self, choice: &Choice, dice: &mut Dice, sentence: &mut Vec<WordId>) {
        let Some((total, _)) = choice.0.last() else { return };
        let at = dice.share() * total;
        let (_, items) = choice.0.iter().find(|(sum, _)| at < *sum).expect("a share is below one");
        for item in items {
            match item {
                Item::Word(word) => sentence.push(*word),
                Item::Rule(rule) => self.choose(&self.rules[*rule], dice, sentence),
                Item::AnyWord | Item::EveryWord => {
                    sentence.push(self.open_words[dice.below(self.open_words.len() as u64) as usize])
                }
                Item::Group(choice) => self.choose(choice, dice, sentence),
                Item::Optional(choice) => {
                    if dice.share() < 0.5 {
                        self.choose(choice, dice, sentence);
                    }
                }
                Item::Repeated(choice) => {
                    for _ in 0..=dice.below(MAX_REPEATS) {
                        self.choose(choice, dice, sentence);
                    }
                }
            }
        }
    }
}

/// Takes the source apart.
struct Reader<'a> {
    tokens: std::iter::Peekable<std::vec::IntoIter<&'a str>>,
    words: Vec<String>,
    ids: HashMap<String, WordId>,
    rules: HashMap<&'a str, usize>,
}

impl<'a> Reader<'a> {
    fn new(source: &'a str) -> Self {
        let lines = source.lines().filter(|line| !line.starts_with('#'));
        let tokens: Vec<&str> = lines.flat_map(tokens).collect();
        Self { tokens: tokens.into_iter().peekable(), words: Vec::new(), ids: HashMap::new(), rules: HashMap::new() }
    }

    fn next(&mut self) -> Option<&'a str> {
        self.tokens.next()
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        match self.next() {
            Some(found) if found == token => Ok(()),
            found => Err(format!("{token} is expected, not {found:?}")),
        }
    }

    fn rule(&mut self, name: &'a str) -> usize {
        let n_rules = self.rules.len();
        *self.rules.entry(name).or_insert(n_rules)
    }

    fn word(&mut self, word: &str) -> WordId {
        if let Some(id) = self.ids.get(word) {
            return *id;
        }
        let id = WordId::try_from(self.words.len()).expect("a few thousand words");
        self.words.push(word.to_owned());
        self.ids.insert(word.to_owned(), id);
        id
    }

    /// Alternatives up to a closing mark, which is left.
    fn choice(&mut self) -> Result<Choice, String> {
        let mut choice = Choice::default();
        let mut sum = 0.0;
        loop {
            sum += self.weight()?;
            choice.0.push((sum, self.items()?));
            if self.tokens.next_if_eq(&"|").is_none() {
                return Ok(choice);
            }
        }
    }

    fn weight(&mut self) -> Result<f64, String> {
        match self.tokens.next_if(|token| token.starts_with('/')) {
            Some(token) => token.trim_matches('/').parse().map_err(|_| format!("{token} is no weight")),
            None => Ok(1.0),
        }
    }

    fn items(&mut self) -> Result<Vec<Item>, String> {
        let mut items = Vec::new();
        while let Some(token) = self.tokens.next_if(|token| !matches!(*token, "|" | ")" | ")+" | "]" | ";")) {
            items.push(match token {
                "[" => {
                    let choice = self.choice()?;
                    self.expect("]")?;
                    Item::Optional(choice)
                }
                "(" => {
                    let choice = self.choice()?;
                    match self.next() {
                        Some(")") => Item::Group(choice),
                        Some(")+") => Item::Repeated(choice),
                        found => return Err(format!(") is expected, not {found:?}")),
                    }
                }
                "<word>" => Item::AnyWord,
                "<every_word>" => Item::EveryWord,
                _ if token.starts_with('<') => Item::Rule(self.rule(token)),
                _ => Item::Word(self.word(token)),
            });
        }
        Ok(items)
    }
}

/// The marks stand alone, whatever is around them.
fn tokens(line: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    for part in line.split_whitespace() {
        let mut rest = part;
        while !rest.is_empty() {
            let n = match rest.as_bytes() {
                [b')', b'+', ..] => 2,
                [b'(' | b')' | b'[' | b']' | b'|' | b';' | b'=', ..] => 1,
                _ => rest.find(['(', ')', '[', ']', '|', ';', '=']).unwrap_or(rest.len()),
            };
            let (token, after) = rest.split_at(n);
            tokens.push(token);
            rest = after;
        }
    }
    tokens
}

/// A small generator of its own, so that the sentences never change with a library: SplitMix64 (Steele, Lea, Flood,
/// "Fast splittable pseudorandom number generators", 2014).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `[0, 1)`.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// In `0..n`.
    fn below(&mut self, n: u64) -> u64 {
        (self.share() * n as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn drawn(source: &str, n: usize) -> BTreeMap<String, usize> {
        let grammar = Grammar::read(source, "<s>", &["x", "y"]).unwrap();
        let (mut dice, mut sentence, mut drawn) = (Dice(1), Vec::new(), BTreeMap::new());
        for _ in 0..n {
            grammar.draw(&mut dice, &mut sentence);
            let text: Vec<&str> = sentence.iter().map(|id| grammar.words()[usize::from(*id)].as_str()).collect();
            *drawn.entry(text.join(" ")).or_default() += 1;
        }
        drawn
    }

    #[test]
    fn alternatives_come_by_their_weights() {
        let drawn = drawn("# a note\n<s> = /3/ a [b] | (c | )\n | <t>; <t>=d;", 1000);
        let keys: Vec<&str> = drawn.keys().map(String::as_str).collect();
        assert_eq!(keys, ["", "a", "a b", "c", "d"]);
        assert!((550..650).contains(&(drawn["a"] + drawn["a b"])), "{drawn:?}");
        assert!((250..350).contains(&drawn["a b"]) && (60..140).contains(&drawn["c"]), "{drawn:?}");
    }

    #[test]
    fn repeats_and_open_words() {
        let drawn = drawn("<s> = (<word>)+ z;", 500);
        assert!(drawn.contains_key("x z") && drawn.contains_key("y z"), "{drawn:?}");
        assert!(drawn.keys().all(|text| (2..=6).contains(&text.split(' ').count())), "{drawn:?}");
    }

    #[test]
    fn a_broken_grammar_is_refused() {
        for source in ["<s> = a", "<s> = (a;", "<s> = <t>;", "<t> = a;", "<s> a;", "<s> = /x/ a;"] {
            assert!(Grammar::read(source, "<s>", &[]).is_err(), "{source}");
        }
    }
}
