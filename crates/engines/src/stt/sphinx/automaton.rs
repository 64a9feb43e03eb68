//! The grammar as an automaton for PocketSphinx's grammar search: deterministic, minimal, with the shares of drawn
//! sentences on its arcs. Only `field` calls this. What needs any word (`<word>`) is left out: 4000 words from dozens
//! of places would fill the memory.

use super::grammar::{Choice, Dice, Grammar, Item, WordId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

/// Added to each arc's count, so that what was not drawn stays possible.
const SMOOTHING: f64 = 0.3;

/// The second and later pronunciations of words, as the dictionary names them: `either` has `either(2)`.
pub(super) type Alternates = HashMap<String, Vec<String>>;

/// A state's arcs by word, and whether a sentence may end there.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct State {
    arcs: BTreeMap<WordId, usize>,
    last: bool,
}

/// States, each after those its arcs lead to; the start is the last one.
pub(super) struct Automaton(Vec<State>);

/// The grammar written out: arcs of a word or of nothing.
#[derive(Default)]
struct Draft {
    arcs: Vec<Vec<(Option<WordId>, usize)>>,
}

impl Draft {
    fn state(&mut self) -> usize {
        self.arcs.push(Vec::new());
        self.arcs.len() - 1
    }

    fn choice(&mut self, grammar: &Grammar, choice: &Choice, from: usize, to: usize) {
        for (_, items) in &choice.0 {
            if open(items) {
                continue;
            }
            let mut at = from;
            for (i, item) in items.iter().enumerate() {
                let next = if i + 1 == items.len() { to } else { self.state() };
                self.item(grammar, item, at, next);
                at = next;
            }
            if items.is_empty() {
                self.arcs[from].push((None, to));
            }
        }
    }

    fn item(&mut self, grammar: &Grammar, item: &Item, from: usize, to: usize) {
        match item {
            Item::Word(word) => self.arcs[from].push((Some(*word), to)),
            Item::Rule(rule) => self.choice(grammar, &grammar.rules[*rule], from, to),
            Item::Group(choice) | Item::Repeated(choice) => self.choice(grammar, choice, from, to),
            Item::Optional(choice) => {
                self.arcs[from].push((None, to));
                self.choice(grammar, choice, from, to);
            }
            Item::EveryWord => self.arcs[from].extend(grammar.open_words().iter().map(|word| (Some(*word), to))),
            Item::AnyWord => {}
        }
    }

    /// The states reached from these by arcs of nothing.
    fn closure(&self, states: &mut BTreeSet<usize>) {
        let mut open: Vec<usize> = states.iter().copied().collect();
        while let Some(state) = open.pop() {
            for (word, to) in &self.arcs[state] {
                if word.is_none() && states.insert(*to) {
                    open.push(*to);
                }
            }
        }
    }
}

/// Whether an alternative has an open word in itself.
fn open(items: &[Item]) -> bool {
    items.iter().any(|item| match item {
        Item::AnyWord => true,
        Item::Group(choice) | Item::Repeated(choice) => choice.0.iter().all(|(_, items)| open(items)),
        _ => false,
    })
}

impl Automaton {
    /// Writes the grammar out and merges what is the same. `(...)+` comes once.
    pub(super) fn new(grammar: &Grammar) -> Self {
        let mut draft = Draft::default();
        let (start, end) = (draft.state(), draft.state());
        draft.choice(grammar, &grammar.rules[grammar.start], start, end);
        let mut first = BTreeSet::from([start]);
        draft.closure(&mut first);
        let mut made = Made::default();
        made.add(&draft, end, first.into_iter().collect());
        Self(made.states)
    }

    /// The automaton as PocketSphinx reads it, with an arc for each pronunciation of a word: `alternates` are the names under
    /// which the dictionary has the second and later ones. PocketSphinx could add these arcs itself; it looks through all
    /// transitions for each alternate, which takes three quarters of the time to load the grammar.
    pub(super) fn text(&self, grammar: &Grammar, n_sentences: usize, alternates: &Alternates) -> String {
        let mut counts = vec![HashMap::<Option<WordId>, f64>::new(); self.0.len()];
        let (mut dice, mut sentence) = (Dice(1), Vec::new());
        for _ in 0..n_sentences {
            grammar.draw(&mut dice, &mut sentence);
            let Some(path) = self.path(&sentence) else { continue };
            for (state, word) in path {
                *counts[state].entry(word).or_default() += 1.0;
            }
        }
        let (start, end) = (self.0.len() - 1, self.0.len());
        let mut text = format!("FSG_BEGIN field\nNUM_STATES {}\nSTART_STATE {start}\nFINAL_STATE {end}\n", end + 1);
        for (i, state) in self.0.iter().enumerate() {
            let count = |word| counts[i].get(&word).copied().unwrap_or(0.0) + SMOOTHING;
            let last = if state.last { count(None) } else { 0.0 };
            let sum: f64 = state.arcs.keys().map(|word| count(Some(*word))).sum::<f64>() + last;
            for (word, to) in &state.arcs {
                let name = &grammar.words()[usize::from(*word)];
                let share = count(Some(*word)) / sum;
                for name in std::iter::once(name).chain(alternates.get(name).into_iter().flatten()) {
                    let _ = writeln!(text, "TRANSITION {i} {to} {share:.6} {name}");
                }
            }
            if state.last {
                let _ = writeln!(text, "TRANSITION {i} {end} {:.6}", last / sum);
            }
        }
        text.push_str("FSG_END\n");
        text
    }

    /// The states a sentence goes through, with the word from each.
    fn path(&self, sentence: &[WordId]) -> Option<Vec<(usize, Option<WordId>)>> {
        let (mut path, mut at) = (Vec::new(), self.0.len() - 1);
        for word in sentence {
            path.push((at, Some(*word)));
            at = *self.0[at].arcs.get(word)?;
        }
        path.push((at, None));
        self.0[at].last.then_some(path)
    }
}

/// What is being made.
#[derive(Default)]
struct Made {
    states: Vec<State>,
    same: HashMap<State, usize>,
    /// By the set of the draft's states, in order.
    seen: HashMap<Vec<usize>, Option<usize>>,
}

impl Made {
    /// The state for a set of the draft's, none where no sentence leads through it.
    fn add(&mut self, draft: &Draft, end: usize, set: Vec<usize>) -> Option<usize> {
        if let Some(known) = self.seen.get(&set) {
            return *known;
        }
        let mut next: BTreeMap<WordId, BTreeSet<usize>> = BTreeMap::new();
        for (word, to) in set.iter().flat_map(|state| &draft.arcs[*state]) {
            if let Some(word) = word {
                next.entry(*word).or_default().insert(*to);
            }
        }
        let mut state = State { last: set.contains(&end), ..State::default() };
        for (word, mut to) in next {
            draft.closure(&mut to);
            if let Some(to) = self.add(draft, end, to.into_iter().collect()) {
                state.arcs.insert(word, to);
            }
        }
        let made = if state.arcs.is_empty() && !state.last {
            None
        } else if let Some(same) = self.same.get(&state) {
            Some(*same)
        } else {
            self.states.push(state.clone());
            self.same.insert(state, self.states.len() - 1);
            Some(self.states.len() - 1)
        };
        self.seen.insert(set, made);
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_of_the_grammar_and_no_others() {
        let source = "<s> = /3/ <t> [b] c | a d <word> | d <every_word> | ; <t> = a | b | <word>;";
        let grammar = Grammar::read(source, "<s>", &["x", "y"]).unwrap();
        let automaton = Automaton::new(&grammar);
        let id = |word: &str| grammar.words().iter().position(|known| known == word).unwrap() as WordId;
        let takes = |text: &str| automaton.path(&text.split_whitespace().map(id).collect::<Vec<_>>()).is_some();
        for sentence in ["", "a c", "a b c", "b b c", "d x", "d y"] {
            assert!(takes(sentence), "{sentence}");
        }
        for other in ["a", "a d x", "x c", "a b", "d", "a c c"] {
            assert!(!takes(other), "{other}");
        }
    }

    #[test]
    fn every_pronunciation_has_an_arc() {
        let grammar = Grammar::read("<s> = a b;", "<s>", &[]).unwrap();
        let alternates = Alternates::from([("b".into(), vec!["b(2)".into(), "b(3)".into()])]);
        let text = Automaton::new(&grammar).text(&grammar, 10, &alternates);
        let arc = |name: &str| text.lines().find(|line| line.ends_with(name)).map(|line| line.replace(name, ""));
        assert!(arc(" b").is_some(), "{text}");
        assert_eq!((arc(" b(2)"), arc(" b(3)")), (arc(" b"), arc(" b")), "{text}");
        assert_eq!(text.matches(" a\n").count(), 1, "{text}");
    }

    #[test]
    fn shares_sum_to_one_and_follow_the_weights() {
        let grammar = Grammar::read("<s> = /3/ a [b] | c;", "<s>", &[]).unwrap();
        let text = Automaton::new(&grammar).text(&grammar, 1_000, &Alternates::new());
        let share = |line: &str| line.split(' ').nth(3).unwrap().parse::<f64>().unwrap();
        let arcs: Vec<&str> = text.lines().filter(|line| line.starts_with("TRANSITION")).collect();
        let start = text.lines().find_map(|line| line.strip_prefix("START_STATE ")).unwrap();
        let first = arcs.iter().filter(|line| line.split(' ').nth(1) == Some(start));
        let sum: f64 = first.map(|line| share(line)).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{text}");
        let a = arcs.iter().find(|line| line.ends_with(" a")).unwrap();
        assert!((0.7..0.8).contains(&share(a)), "{text}");
        assert_eq!(text.lines().last(), Some("FSG_END"));
    }
}
