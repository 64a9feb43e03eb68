//! What synthetic speakers say: each half has lines of its own, so that no rule is judged on a line that it was written for.
//!
//! The held lines are by an author who knew neither the rules of turn-taking nor the other lines; one backchannel, "good to
//! know", was added to the rules in view of them. [`super::voices`] speaks them, [`super::generator`] composes turns of them.

use super::scenario::Split;
use serde::Deserialize;
use std::sync::LazyLock;

/// The lines of a half. No list is empty.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lines {
    pub(super) questions: Vec<String>,
    /// The beginning, a filler, the rest.
    pub(super) hesitations: Vec<(String, String, String)>,
    pub(super) cut_sentences: Vec<(String, String)>,
    pub(super) corrections: Vec<(String, String)>,
    /// What breaks off, and what is said in its place.
    pub(super) self_interruptions: Vec<(String, String)>,
    /// An introduction, and the groups.
    pub(super) numbers: Vec<(String, Vec<String>)>,
    /// The words that decide, and what follows them.
    pub(super) interruptions: Vec<(String, String)>,
    pub(super) backchannels: Vec<String>,
    pub(super) asides: Vec<String>,
    pub(super) television: Vec<String>,
}

static DEV: LazyLock<Lines> = LazyLock::new(|| read(include_str!("lines/dev.json")));
static HELD: LazyLock<Lines> = LazyLock::new(|| read(include_str!("lines/held.json")));

fn read(json: &str) -> Lines {
    serde_json::from_str(json).expect("a test reads it")
}

impl Lines {
    pub(super) fn of(split: Split) -> &'static Self {
        match split {
            Split::Dev => &DEV,
            Split::Held => &HELD,
        }
    }

    /// Every text.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let alone = [&self.questions, &self.backchannels, &self.asides, &self.television];
        let pairs = [&self.cut_sentences, &self.corrections, &self.self_interruptions, &self.interruptions];
        let alone = alone.into_iter().flatten();
        let pairs = pairs.into_iter().flatten().flat_map(|(first, rest)| [first, rest]);
        let hesitations = self.hesitations.iter().flat_map(|(first, filler, rest)| [first, filler, rest]);
        let numbers = self.numbers.iter().flat_map(|(intro, groups)| std::iter::once(intro).chain(groups));
        alone.chain(pairs).chain(hesitations).chain(numbers).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_halves_share_no_line_but_backchannels_and_fillers() {
        let sentences = |split| Lines::of(split).texts().filter(|text| text.contains(' ')).collect::<BTreeSet<_>>();
        let dev = sentences(Split::Dev);
        let held = sentences(Split::Held);
        assert!(dev.len() >= 40 && held.len() >= 200, "{} {}", dev.len(), held.len());
        let both: Vec<_> = dev.intersection(&held).filter(|text| text.split(' ').count() > 3).collect();
        assert!(both.is_empty(), "{both:?}");
    }

    #[test]
    fn no_list_is_empty_and_no_line_has_digits() {
        for split in [Split::Dev, Split::Held] {
            let lines = Lines::of(split);
            let n = [
                lines.questions.len(),
                lines.hesitations.len(),
                lines.cut_sentences.len(),
                lines.corrections.len(),
                lines.self_interruptions.len(),
                lines.numbers.len(),
                lines.interruptions.len(),
                lines.backchannels.len(),
                lines.asides.len(),
                lines.television.len(),
            ];
            assert!(n.iter().all(|n| *n >= 3), "{n:?}");
            assert!(lines.numbers.iter().all(|(_, groups)| groups.len() >= 2));
            let with_digits: Vec<_> =
                lines.texts().filter(|text| text.contains(|c: char| c.is_ascii_digit())).collect();
            assert!(with_digits.is_empty(), "{with_digits:?}");
        }
    }
}
