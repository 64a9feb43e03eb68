//! Cuts text that is too long for one run of a model, where the cut is least audible. Pure; the families call it.

/// Where a sequence may be cut behind an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Border {
    /// Within a word.
    None,
    /// Between two words.
    Word,
    /// Behind punctuation.
    Clause,
}

/// `ids` in pieces of at most `max`: cut behind punctuation where there is some in the second half of what fits, else
/// between words, else anywhere. No piece is empty.
pub fn pieces(ids: &[i64], max: usize, border: impl Fn(i64) -> Border) -> Vec<Vec<i64>> {
    let mut found = Vec::new();
    let mut rest = ids;
    while rest.len() > max {
        let (piece, later) = rest.split_at(first_piece(rest, max, &border));
        found.push(piece.to_vec());
        rest = later;
    }
    if !rest.is_empty() {
        found.push(rest.to_vec());
    }
    found
}

/// The length of the first piece of `ids`, which are more than `max`.
pub fn first_piece(ids: &[i64], max: usize, border: impl Fn(i64) -> Border) -> usize {
    let last = |at_least: Border, from: usize| (from..max).rev().find(|i| border(ids[*i]) >= at_least);
    last(Border::Clause, max / 2).or_else(|| last(Border::Word, 0)).map_or(max, |i| i + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn border(id: i64) -> Border {
        match id {
            0 => Border::Word,
            -1 => Border::Clause,
            _ => Border::None,
        }
    }

    #[test]
    fn the_cut_is_at_the_best_border_that_fits() {
        let check = |ids: &[i64], expect: &[&[i64]]| assert_eq!(pieces(ids, 6, border), expect);
        check(&[], &[]);
        check(&[1, 2, 3, 4, 5, 6], &[&[1, 2, 3, 4, 5, 6]]);
        check(&[1, 2, 3, 4, 5, 6, 7], &[&[1, 2, 3, 4, 5, 6], &[7]]);
        check(&[1, 0, 2, -1, 0, 3, 4], &[&[1, 0, 2, -1], &[0, 3, 4]]);
        // Punctuation at the very beginning would leave a stub; the word's end is better.
        check(&[1, -1, 2, 3, 0, 5, 6], &[&[1, -1, 2, 3, 0], &[5, 6]]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_is_too_long(ids in prop::collection::vec(-1i64..5, 0..200), max in 1usize..20) {
            let cut = pieces(&ids, max, border);
            prop_assert!(cut.iter().all(|piece| !piece.is_empty() && piece.len() <= max));
            prop_assert_eq!(cut.concat(), ids);
        }
    }
}
