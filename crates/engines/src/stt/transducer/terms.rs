//! Key terms: names and products that are likely to be said, as a prefix tree of letters, and how the search favours them.
//!
//! A token that continues a term, or begins one at the start of a word, has a bonus on its logit; the larger, the more of the
//! term it completes. As in NeMo's phrase boosting, the bonus chooses among tokens only: whether there is one is decided without
//! it, so that a term is never heard in silence; what a term gained is lost where it is left unfinished, and kept where it ends.
//! A term is matched by its letters, in any division into pieces and in any case: the model writes it as it writes. The
//! [search](super::greedy) has a [`TermProgress`] for each stream that has terms; without terms there is none.

use super::vocabulary::Vocabulary;
use std::collections::HashSet;
use std::sync::Arc;

/// Terms of one stream beyond which the list is cut: the 1,000 that the settings may have, and the 200 of a request's
/// expected words.
pub const MAX_TERMS: usize = 1_200;

/// Bonus of a letter, in natural logarithms, for the first letters of a term and for the further ones: what NeMo's boosting tree
/// gives a token (`context_score` 1.0, `depth_scaling` 2.0 and the logarithm of the depth), spread over its usual letters.
const FIRST_LETTERS: usize = 2;
const FIRST_BONUS: f32 = 0.5;
const FURTHER_BONUS: f32 = 1.0;

/// Places in the tree that a stream may be at, besides its root: one for each word of a term.
const MAX_PLACES: usize = 16;

const ROOT: u32 = 0;

/// What stands before a word.
const WORD_START: char = '\u{2581}';

/// The pieces of a vocabulary, by their letters.
pub struct Spelling {
    /// In order.
    pieces: Vec<(Vec<char>, u32)>,
}

/// See the module. One list serves many streams.
#[derive(Debug)]
pub struct KeyTerms {
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    children: Vec<(char, u32)>,
    /// Tokens that lead on from here, with where to, by their number.
    continuations: Vec<(u32, u32)>,
    /// What all letters so far have gained.
    gained: f32,
    /// How much of that is kept if the term is left here: what the longest term that has ended had gained.
    kept: f32,
    n_letters: usize,
}

/// Where a stream is in its terms.
#[derive(Clone, Debug)]
pub struct TermProgress {
    terms: Arc<KeyTerms>,
    /// Nodes with continuations, without the root.
    places: Vec<u32>,
}

impl Spelling {
    /// Of all pieces that have letters.
    pub fn new(vocabulary: &Vocabulary) -> Self {
        let mut pieces: Vec<_> = vocabulary.texts().map(|(id, text)| (folded(text), id)).collect();
        pieces.retain(|(letters, _)| !letters.is_empty());
        pieces.sort();
        Self { pieces }
    }
}

impl KeyTerms {
    /// The tree of these terms; `None` where there are none. Terms beyond [`MAX_TERMS`] are left out. Returns those that no pieces
    /// of the vocabulary spell, too, and which are left out.
    pub fn new(terms: &[String], spelling: &Spelling) -> (Option<Arc<Self>>, Vec<String>) {
        let mut tree = Self { nodes: vec![Node::default()] };
        let mut ends: Vec<(u32, &String)> = Vec::new();
        for term in terms.iter().take(MAX_TERMS) {
            let letters = spelled(term);
            if letters.is_empty() {
                continue;
            }
            ends.push((tree.add(&letters), term));
            // Where words are not parted by spaces, a term may stand anywhere.
            if !is_parted(letters[1]) {
                ends.push((tree.add(&letters[1..]), term));
            }
        }
        if ends.is_empty() {
            return (None, Vec::new());
        }
        tree.keep(&ends.iter().map(|(end, _)| *end).collect());
        for node in 0..tree.nodes.len() {
            let mut continuations = Vec::new();
            tree.walk(node as u32, &spelling.pieces, 0, &mut continuations);
            continuations.sort_unstable();
            tree.nodes[node].continuations = continuations;
        }
        let reached = tree.reached();
        let is_spelled = |term: &String| ends.iter().any(|(end, of)| *of == term && reached[*end as usize]);
        let mut unspelled: Vec<String> = terms.iter().filter(|term| !term.trim().is_empty()).cloned().collect();
        unspelled.retain(|term| !is_spelled(term));
        if unspelled.is_empty() {
            return (Some(Arc::new(tree)), unspelled);
        }
        // Their beginnings would be favoured for nothing.
        let rest: Vec<String> = terms.iter().filter(|term| !unspelled.contains(term)).cloned().collect();
        (Self::new(&rest, spelling).0, unspelled)
    }

    /// Adds a path and returns its end.
    fn add(&mut self, letters: &[char]) -> u32 {
        let mut at = ROOT;
        for letter in letters {
            let known = self.nodes[at as usize].children.iter().find(|(known, _)| known == letter);
            at = match known {
                Some((_, child)) => *child,
                None => self.grow(at, *letter),
            };
        }
        at
    }

    fn grow(&mut self, parent: u32, letter: char) -> u32 {
        let child = self.nodes.len() as u32;
        let before = &mut self.nodes[parent as usize];
        before.children.push((letter, child));
        let (gained, n_letters) = match letter {
            WORD_START => (before.gained, before.n_letters),
            _ if before.n_letters < FIRST_LETTERS => (before.gained + FIRST_BONUS, before.n_letters + 1),
            _ => (before.gained + FURTHER_BONUS, before.n_letters + 1),
        };
        self.nodes.push(Node { gained, n_letters, ..Node::default() });
        child
    }

    /// Says of each node how much is kept there.
    fn keep(&mut self, ends: &HashSet<u32>) {
        let mut waiting = vec![(ROOT, 0.0)];
        while let Some((at, kept)) = waiting.pop() {
            let node = &mut self.nodes[at as usize];
            node.kept = if ends.contains(&at) { node.gained } else { kept };
            let kept = node.kept;
            waiting.extend(node.children.iter().map(|(_, child)| (*child, kept)));
        }
    }

    /// The pieces that lead on from a node. All of `pieces` agree with the path to `at` in their first `depth` letters.
    fn walk(&self, at: u32, pieces: &[(Vec<char>, u32)], depth: usize, found: &mut Vec<(u32, u32)>) {
        let n_done = pieces.partition_point(|(letters, _)| letters.len() == depth);
        found.extend(pieces[..n_done].iter().map(|(_, id)| (*id, at)));
        let pieces = &pieces[n_done..];
        for (letter, child) in &self.nodes[at as usize].children {
            let first = pieces.partition_point(|(letters, _)| letters[depth] < *letter);
            let end = pieces.partition_point(|(letters, _)| letters[depth] <= *letter);
            if first < end {
                self.walk(*child, &pieces[first..end], depth + 1, found);
            }
        }
    }

    /// Which nodes pieces lead to.
    fn reached(&self) -> Vec<bool> {
        let mut reached = vec![false; self.nodes.len()];
        let mut waiting = vec![ROOT];
        while let Some(at) = waiting.pop() {
            for (_, next) in &self.nodes[at as usize].continuations {
                if !std::mem::replace(&mut reached[*next as usize], true) {
                    waiting.push(*next);
                }
            }
        }
        reached
    }

    /// What a token that leads from one node to another gains over any other token.
    fn bonus(&self, from: u32, to: u32) -> f32 {
        self.nodes[to as usize].gained - self.nodes[from as usize].kept
    }
}

impl TermProgress {
    /// Of an utterance that begins.
    pub fn new(terms: Arc<KeyTerms>) -> Self {
        Self { terms, places: Vec::new() }
    }

    /// The token that is taken instead of `token`, the likeliest one, which is not the blank.
    pub fn choose(&self, token: usize, logits: &[f32]) -> usize {
        let mut chosen = token;
        let mut best = logits[token];
        for place in self.starts() {
            for (candidate, next) in &self.terms.nodes[place as usize].continuations {
                let logit = logits[*candidate as usize] + self.terms.bonus(place, *next);
                if logit > best {
                    best = logit;
                    chosen = *candidate as usize;
                }
            }
        }
        chosen
    }

    /// The token was emitted.
    pub fn advance(&mut self, token: u32) {
        let mut places = Vec::new();
        for place in self.starts() {
            let continuations = &self.terms.nodes[place as usize].continuations;
            let first = continuations.partition_point(|(candidate, _)| *candidate < token);
            for (_, next) in continuations[first..].iter().take_while(|(candidate, _)| *candidate == token) {
                let leads_on = !self.terms.nodes[*next as usize].continuations.is_empty();
                if leads_on && places.len() < MAX_PLACES && !places.contains(next) {
                    places.push(*next);
                }
            }
        }
        self.places = places;
    }

    /// The nodes that a token may lead on from.
    fn starts(&self) -> impl Iterator<Item = u32> {
        std::iter::once(ROOT).chain(self.places.iter().copied())
    }
}

/// The letters of a piece or a term, in one case.
fn folded(text: &str) -> Vec<char> {
    text.chars().flat_map(char::to_lowercase).collect()
}

/// The letters of a term as pieces spell them; none for one without words.
fn spelled(term: &str) -> Vec<char> {
    let words = term.split_whitespace().map(folded);
    words.flat_map(|word| std::iter::once(WORD_START).chain(word)).collect()
}

/// Whether spaces part the words of the script that a letter belongs to: not in Chinese, Japanese and Thai.
fn is_parted(letter: char) -> bool {
    !matches!(letter, '\u{e00}'..='\u{e7f}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECES: [&str; 12] = ["<unk>", "▁", "▁H", "▁ha", "gg", "ard", "a", "▁new", "▁york", "▁min", "ster", "東京"];

    fn vocabulary() -> Vocabulary {
        let lines: String = PIECES.iter().enumerate().map(|(i, piece)| format!("{piece} {i}\n")).collect();
        Vocabulary::parse(&format!("{lines}<blk> {}\n", PIECES.len())).expect("it is right")
    }

    fn terms(of: &[&str]) -> (Option<TermProgress>, Vec<String>) {
        let of: Vec<String> = of.iter().map(|term| (*term).to_owned()).collect();
        let (terms, unspelled) = KeyTerms::new(&of, &Spelling::new(&vocabulary()));
        (terms.map(TermProgress::new), unspelled)
    }

    fn id(piece: &str) -> usize {
        PIECES.iter().position(|known| *known == piece).expect("a piece")
    }

    /// The bonus of a piece: how much less likely it may be and still be taken.
    fn bonus(progress: &TermProgress, piece: &str) -> f32 {
        let mut least = 0.0;
        for tenths in 0..200 {
            let mut logits = [-100.0; PIECES.len() + 1];
            logits[id("<unk>")] = 0.0;
            logits[id(piece)] = -(tenths as f32) / 10.0 + 0.05;
            if progress.choose(id("<unk>"), &logits) == id(piece) {
                least = tenths as f32 / 10.0;
            }
        }
        least
    }

    fn after(progress: &TermProgress, pieces: &[&str]) -> TermProgress {
        let mut progress = progress.clone();
        pieces.iter().for_each(|piece| progress.advance(id(piece) as u32));
        progress
    }

    #[test]
    fn a_term_is_favoured_in_any_division_and_case_and_the_more_the_longer_it_is() {
        let progress = terms(&["Haggard"]).0.expect("a term");
        assert_eq!((bonus(&progress, "▁H"), bonus(&progress, "▁ha")), (0.5, 1.0));
        assert_eq!((bonus(&progress, "gg"), bonus(&progress, "a")), (0.0, 0.0), "not in the middle of nothing");
        for spelled in [&["▁ha"][..], &["▁H", "a"], &["▁", "▁ha"]] {
            let progress = after(&progress, spelled);
            assert_eq!((bonus(&progress, "gg"), bonus(&progress, "▁ha")), (3.0, 1.0), "{spelled:?}");
        }
        assert_eq!(bonus(&after(&progress, &["▁ha", "gg"]), "ard"), 6.0);
        let ended = after(&progress, &["▁ha", "gg", "ard"]);
        assert!(ended.places.is_empty());
        let left = after(&progress, &["▁ha", "ster"]);
        assert_eq!(bonus(&left, "gg"), 0.0, "it was left");
    }

    #[test]
    fn words_of_terms_overlap_and_what_has_ended_keeps_its_gain() {
        let progress = terms(&["New York", "york minster", "new"]).0.expect("terms");
        let new = after(&progress, &["▁new"]);
        assert_eq!(bonus(&new, "▁york"), 4.0, "of the letters behind the term that has ended");
        let york = after(&new, &["▁york"]);
        assert_eq!(bonus(&york, "▁min"), 6.0, "of the other term, from its beginning");
        assert_eq!(bonus(&after(&progress, &["▁min"]), "ster"), 0.0);
    }

    #[test]
    fn without_terms_there_is_no_progress_and_what_cannot_be_spelled_is_named() {
        assert!(terms(&[]).0.is_none());
        assert!(terms(&["", "  "]).0.is_none());
        let (progress, unspelled) = terms(&["Haggis", "haggard"]);
        assert_eq!(unspelled, ["Haggis"]);
        assert_eq!(bonus(&progress.expect("terms"), "▁ha"), 1.0);
    }

    #[test]
    fn a_requests_terms_count_beside_as_many_as_the_settings_may_have() {
        let mut all = vec!["haggard"; 1_000];
        all.push("york");
        assert_eq!(bonus(&terms(&all).0.expect("terms"), "▁york"), 3.0);
    }

    #[test]
    fn terms_without_spaces_stand_anywhere() {
        let progress = terms(&["東京"]).0.expect("a term");
        assert_eq!(bonus(&progress, "東京"), 1.0);
    }
}
