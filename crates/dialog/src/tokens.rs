//! The estimate of tokens: of a request, where the conversation must fit a budget before a model has counted it, and of a
//! response, where the model reports no count.
//!
//! Callers differ in what they count (the budget adds the overhead of a message, a report does not), not in the rate.

/// English has 4 to 5 bytes a token with the usual vocabularies; the protocol's documentation names four characters. Other
/// alphabets have about 3 bytes a character and rather less than one token a character.
const BYTES_PER_TOKEN: usize = 4;

/// Tokens of a text of this length in bytes, rounded up.
pub(super) fn estimate(n_bytes: usize) -> u64 {
    n_bytes.div_ceil(BYTES_PER_TOKEN) as u64
}
