//! Words with which a listener claims the turn.
//!
//! `backchannel` calls this with the words that are no backchannel. Nothing here weighs how sure a recognizer is of a word, or
//! decides what becomes of the reply.

use antiphon_text::words::letters;
use std::collections::HashSet;
use std::sync::LazyLock;

/// Words that claim the turn wherever they stand, so that the first partial transcript with one decides where the recognizer
/// is sure of it. Any other word, but for those of [`OPENINGS`], waits for the next transcript to confirm it: recognizers take
/// coughs and "uh-huh" for words.
const CLAIMS: &[&str] = &[
    "stop",
    "wait",
    "no",
    "nope",
    "hold",
    "pause",
    "quiet",
    "enough",
    "cancel",
    "but",
    "what",
    "whats",
    "why",
    "how",
    "when",
    "where",
    "who",
    "which",
    "actually",
    "excuse",
    "sorry",
    "hey",
    "hello",
    "listen",
    "tell",
    "can",
    "could",
    "please",
    "halt",
    "stopp",
    "warte",
    "warten",
    "moment",
    "nein",
    "aber",
    "doch",
    "was",
    "wie",
    "warum",
    "wann",
    "wo",
    "wer",
    "entschuldigung",
    "bitte",
    "para",
    "espera",
    "basta",
    "pero",
    "qué",
    "cómo",
    "cuándo",
    "dónde",
    "perdón",
    "arrête",
    "arrêtez",
    "attends",
    "attendez",
    "non",
    "mais",
    "quoi",
    "comment",
    "pourquoi",
    "quand",
    "pardon",
];

/// Claims that recognizers do not write for a backchannel: once all words are there they interrupt even as guesses.
const COMMANDS: &[&str] = &[
    "stop", "wait", "pause", "quiet", "cancel", "halt", "stopp", "warte", "warten", "para", "espera", "basta",
    "arrête", "arrêtez", "attends", "attendez",
];

/// Beginnings that claim the turn as well, as [`letters`] without blanks: recognizers write "est-ce" and "est ce".
static OPENINGS: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let lines = include_str!("openings.txt").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(letters).collect()
});

/// The most words of an opening.
const LONGEST: usize = 4;

/// Whether the word claims the turn wherever it stands.
pub(super) fn is_claim(word: &str) -> bool {
    CLAIMS.contains(&word)
}

/// Whether one of the words claims the turn even as a guess, once all are there.
pub(super) fn has_command(words: &[String]) -> bool {
    words.iter().any(|word| COMMANDS.contains(&word.as_str()))
}

/// The place of the word with which these words claim the turn; `None`: they do not, so far.
pub(super) fn claim_in(words: &[String]) -> Option<usize> {
    let opening = (1..=LONGEST.min(words.len())).find(|n| OPENINGS.contains(&words[..*n].concat()));
    let claim = words.iter().position(|word| is_claim(word));
    opening.map(|n| n - 1).into_iter().chain(claim).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backchannel::BACKCHANNELS;
    use antiphon_text::words::spoken;

    fn claim(text: &str) -> Option<usize> {
        claim_in(&spoken(text).collect::<Vec<_>>())
    }

    #[test]
    fn words_are_listed_as_they_are_compared() {
        for word in CLAIMS {
            assert_eq!(letters(word), *word);
        }
        assert!(COMMANDS.iter().all(|word| is_claim(word)));
        let longest = OPENINGS.iter().map(|opening| opening.len()).max();
        assert!(OPENINGS.len() > 400 && longest < Some(40), "one on each line: {longest:?}");
    }

    #[test]
    fn no_backchannel_claims_the_turn() {
        let claims = |backchannel: &&&str| {
            is_claim(backchannel) || OPENINGS.iter().any(|opening| backchannel.starts_with(opening.as_str()))
        };
        assert_eq!(BACKCHANNELS.iter().find(claims), None);
    }

    #[test]
    fn a_claim_is_a_word_anywhere_or_an_opening_at_the_beginning() {
        assert_eq!(claim("the other one, wait"), Some(3));
        assert_eq!(claim("Let me"), Some(1));
        assert_eq!(claim("let"), None);
        assert_eq!(claim("I'd like a"), Some(2));
        assert_eq!(claim("Est-ce que"), Some(1));
        assert_eq!(claim("est ce que"), Some(2));
        assert_eq!(claim("they let me"), None);
        assert_eq!(claim("i see a fox"), None);
    }
}
