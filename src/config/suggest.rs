//! Suggestions for misspelt names.

use strsim::osa_distance;

/// The candidate nearest to `word`, where one is near enough to be meant: at most a third of its letters differ.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let (distance, best) = candidates
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        .min_by_key(|(distance, _)| *distance)?;
    (distance <= best.chars().count().div_ceil(3)).then_some(best)
}

/// Edits from `a` to `b`: inserting, dropping or replacing a letter, or swapping two neighbours, costs one. Bounded, since words
/// are file keys.
fn distance(a: &str, b: &str) -> usize {
    osa_distance(bounded(a), bounded(b))
}

/// Its first 64 letters.
fn bounded(word: &str) -> &str {
    word.char_indices().nth(64).map_or(word, |(end, _)| &word[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits_and_swaps() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("engine", "engine"), 0);
        assert_eq!(distance("engnie", "engine"), 1);
        assert_eq!(distance("voices", "voice"), 1);
    }

    #[test]
    fn suggests_only_what_is_near() {
        let keys = ["engine", "base_url", "model"];
        assert_eq!(nearest("engin", keys), Some("engine"));
        assert_eq!(nearest("baseurl", keys), Some("base_url"));
        assert_eq!(nearest("Model", keys), Some("model"));
        assert_eq!(nearest("temperature", keys), None);
    }
}
