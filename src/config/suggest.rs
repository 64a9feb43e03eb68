//! Suggestions for misspelt names.

/// The candidate most similar to `word`, if at most a third of its letters differ.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let (distance, best) = candidates
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        .min_by_key(|(distance, _)| *distance)?;
    (distance <= best.chars().count().div_ceil(3)).then_some(best)
}

/// Optimal string alignment distance: inserting, deleting or replacing a letter, or swapping two neighbours, costs one.
/// Time and space are the product of the lengths, which are limited to 64 characters.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut cost = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cost = cost.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = cost;
        }
    }
    rows[a.len()][b.len()]
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
