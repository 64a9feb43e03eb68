//! The alphabet of Kokoro and hibari: espeak-ng's phonemes as these models were taught them, and their tokens. Pure; the two
//! families call it.
//!
//! Kokoro-82M was trained on the phonemes of `misaki`, which knows English words from dictionaries (`misaki`, the module) and
//! asks espeak-ng for the rest and for most other languages. Its answer is put into misaki's letters by the rules misaki
//! itself has for espeak-ng (its `espeak.py`, 0.9.4, for models of version 1): diphthongs and affricates are one letter
//! each, English has neither nasal vowels nor long ones in its American kind, a flap is `T`. One rule stands earlier than
//! there, where it would never match: the British `eə`.

use super::phonemes::{Clause, Mark, TIE};

/// The token at both ends of a text.
pub(super) const PAD: i64 = 0;
/// Tokens a run at most, without the two pads: the model's context is 512.
pub(super) const MAX_TOKENS: usize = 510;

/// The vocabulary of Kokoro-82M's `config.json`, as far as it is used by version 1.0.
#[cfg(feature = "kokoro")]
const VOCABULARY: &[(&str, i64)] = &[
    (";:,.!?", 1),
    ("—…\"()“” \u{303}ʣʥʦʨᵝ\u{ab67}A", 9),
    ("I", 25),
    ("O", 31),
    ("Q", 33),
    ("ST", 35),
    ("W", 39),
    ("Yᵊabcdef", 41),
    ("hijklmnopqrstuvwxyzɑɐɒæ", 50),
    ("βɔɕç", 75),
    ("ɖðʤə", 80),
    ("ɚɛɜ", 85),
    ("ɟ", 90),
    ("ɡ", 92),
    ("ɥ", 99),
    ("ɨɪʝ", 101),
    ("ɯɰŋɳɲɴø", 110),
    ("ɸθœ", 118),
    ("ɹ", 123),
    ("ɾɻ", 125),
    ("ʁɽʂʃʈʧ", 128),
    ("ʊʋ", 135),
    ("ʌɣɤ", 138),
    ("χʎ", 142),
    ("ʒʔ", 147),
    ("ˈˌː", 156),
    ("ʰ", 162),
    ("ʲ", 164),
    ("↓", 169),
    ("→↗↘", 171),
    ("ᵻ", 177),
];

/// The token of a letter; letters of a run above follow one another.
#[cfg(feature = "kokoro")]
pub(super) fn token(letter: char) -> Option<i64> {
    VOCABULARY.iter().find_map(|(letters, first)| {
        let place = letters.chars().position(|known| known == letter)?;
        Some(first + place as i64)
    })
}

/// Whose rules a voice's phonemes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    American,
    #[cfg_attr(not(feature = "kokoro"), expect(dead_code, reason = "hibari speaks American English"))]
    British,
    /// All languages but English.
    Other,
}

/// For both kinds of English, in order.
const ENGLISH: &[(&str, &str)] = &[
    ("ʔˌn\u{329}", "ʔn"),
    ("ʔn\u{329}", "ʔn"),
    ("a^ɪ", "I"),
    ("a^ʊ", "W"),
    ("d^ʒ", "ʤ"),
    ("e^ɪ", "A"),
    ("t^ʃ", "ʧ"),
    ("ɔ^ɪ", "Y"),
    ("ə^l", "ᵊl"),
    ("ʲo", "jo"),
    ("ʲə", "jə"),
    ("c\u{327}", "k"),
    ("e", "A"),
    ("ʲ", ""),
    ("ɚ", "əɹ"),
    ("r", "ɹ"),
    ("x", "k"),
    ("ɐ", "ə"),
    ("ɬ", "l"),
    ("\u{303}", ""),
];
const AMERICAN: &[(&str, &str)] = &[("o^ʊ", "O"), ("ɜːɹ", "ɜɹ"), ("ɜː", "ɜɹ"), ("ɪə", "iə"), ("ː", "")];
const BRITISH: &[(&str, &str)] = &[("iə", "ɪə"), ("ə^ʊ", "Q")];
/// What version 1 of the model was given for both, and espeak-ng 1.51's older `o`.
const VERSION_1: &[(&str, &str)] = &[("o", "ɔ"), ("ɾ", "T"), ("ʔ", "t")];
const OTHER: &[(&str, &str)] = &[
    ("a^ɪ", "I"),
    ("a^ʊ", "W"),
    ("d^z", "ʣ"),
    ("d^ʒ", "ʤ"),
    ("e^ɪ", "A"),
    ("o^ʊ", "O"),
    ("ə^ʊ", "Q"),
    ("s^s", "S"),
    ("t^s", "ʦ"),
    ("t^ʃ", "ʧ"),
    ("ɔ^ɪ", "Y"),
    // Decomposed for Piper; one letter in this vocabulary.
    ("c\u{327}", "ç"),
    ("-", ""),
];

impl Rules {
    /// espeak-ng's phonemes, with ties, in Kokoro's letters.
    pub(super) fn apply(self, phonemes: &str) -> String {
        let tables: &[&[(&str, &str)]] = match self {
            Self::American => &[ENGLISH, AMERICAN, VERSION_1],
            Self::British => &[&[("e^ə", "ɛː")], ENGLISH, BRITISH, VERSION_1],
            Self::Other => &[OTHER],
        };
        let mut text = phonemes.to_owned();
        for (from, to) in tables.iter().copied().flatten() {
            text = text.replace(from, to);
        }
        if self != Self::Other {
            text = syllabic(&text);
        }
        text.replace(TIE, "")
    }
}

/// A syllabic consonant has a small schwa before it instead of the mark below.
fn syllabic(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\u{329}' {
            out.push(c);
        } else if let Some(consonant) = out.pop() {
            out.extend((!consonant.is_whitespace()).then_some('ᵊ'));
            out.push(consonant);
        }
    }
    out
}

/// Clauses as the model reads them: words and punctuation in Kokoro's letters.
pub(super) fn written(rules: Rules, clauses: &[Clause]) -> String {
    let mut text = String::new();
    for clause in clauses {
        text.push_str(&rules.apply(&clause.phonemes));
        text.extend(clause.mark.map(sign));
        text.push(' ');
    }
    text.truncate(text.trim_end().len());
    text
}

fn sign(mark: Mark) -> char {
    match mark {
        Mark::Period => '.',
        Mark::Question => '?',
        Mark::Exclamation => '!',
        Mark::Comma => ',',
        Mark::Colon => ':',
        Mark::Semicolon => ';',
        Mark::Dash => '—',
        Mark::Ellipsis => '…',
    }
}

#[cfg(all(test, feature = "kokoro"))]
mod tests {
    use super::*;
    use crate::tts::phonemes::Phonemizer;

    #[test]
    fn tokens_are_the_published_ones() {
        let published = [
            (';', 1),
            ('?', 6),
            ('—', 9),
            (' ', 16),
            ('\u{303}', 17),
            ('ᵝ', 22),
            ('\u{ab67}', 23),
            ('A', 24),
            ('I', 25),
            ('O', 31),
            ('Q', 33),
            ('S', 35),
            ('T', 36),
            ('W', 39),
            ('Y', 41),
            ('ᵊ', 42),
            ('a', 43),
            ('f', 48),
            ('h', 50),
            ('z', 68),
            ('ɑ', 69),
            ('æ', 72),
            ('β', 75),
            ('ç', 78),
            ('ɖ', 80),
            ('ə', 83),
            ('ɚ', 85),
            ('ɜ', 87),
            ('ɟ', 90),
            ('ɡ', 92),
            ('ɥ', 99),
            ('ɨ', 101),
            ('ʝ', 103),
            ('ɯ', 110),
            ('ø', 116),
            ('ɸ', 118),
            ('œ', 120),
            ('ɹ', 123),
            ('ɾ', 125),
            ('ɻ', 126),
            ('ʁ', 128),
            ('ʧ', 133),
            ('ʊ', 135),
            ('ʋ', 136),
            ('ʌ', 138),
            ('ɤ', 140),
            ('χ', 142),
            ('ʎ', 143),
            ('ʒ', 147),
            ('ʔ', 148),
            ('ˈ', 156),
            ('ː', 158),
            ('ʰ', 162),
            ('ʲ', 164),
            ('↓', 169),
            ('→', 171),
            ('↘', 173),
            ('ᵻ', 177),
        ];
        for (letter, expect) in published {
            assert_eq!(token(letter), Some(expect), "{letter}");
        }
        assert_eq!((token('g'), token('ɫ'), token('^')), (None, None, None));
        assert_eq!(VOCABULARY.iter().map(|(letters, _)| letters.chars().count()).sum::<usize>(), 114);
    }

    fn check(tag: &str, rules: Rules, text: &str, expect: &str) {
        let clauses = Phonemizer::open(tag, true).expect("espeak-ng").clauses(text).expect("phonemes");
        assert_eq!(written(rules, &clauses), expect, "{text}");
    }

    #[test]
    fn english_is_written_as_misaki_writes_it() {
        check("en-us", Rules::American, "Hello, world!", "həlˈO, wˈɜɹld!");
        check("en-us", Rules::American, "Boys say now: my judge", "bˈYz sˈA nˈW: mI ʤˈʌʤ");
        check("en-us", Rules::American, "A bottle, a button… better", "ə bˈɑTᵊl, ə bˈʌtn… bˈɛTəɹ");
        check("en-gb", Rules::British, "Hello there", "həlˈQ ðˈɛː");
    }

    #[test]
    fn other_languages_keep_their_sounds() {
        check("es", Rules::Other, "Ocho chicos.", "ˈoʧo ʧˈikos.");
        check("fr-fr", Rules::Other, "Bonjour!", "bɔ\u{303}ʒˈuʁ!");
        check("it", Rules::Other, "Grazie", "ɡrˈaʦje");
        assert_eq!(Rules::Other.apply("c\u{327}a-b"), "çab");
    }

    #[test]
    fn all_that_is_written_has_a_token() {
        for (tag, rules, text) in [
            (
                "en-us",
                Rules::American,
                "The quick brown fox jumps over the lazy dog, and thinks: which measure is longer?",
            ),
            ("en-gb", Rules::British, "Poor fire, near chairs; a sure little bottle."),
            ("pt-br", Rules::Other, "São João não põe limões na água."),
            ("hi", Rules::Other, "नमस्ते। आप कैसे हैं?"),
        ] {
            let clauses = Phonemizer::open(tag, true).expect("espeak-ng").clauses(text).expect("phonemes");
            let unknown: String = written(rules, &clauses).chars().filter(|c| token(*c).is_none()).collect();
            assert_eq!(unknown, "", "{text}");
        }
    }
}
