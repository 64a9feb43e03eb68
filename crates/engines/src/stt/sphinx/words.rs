//! From a decoder's words to text: fillers and marks of pronunciation are the engine's own and never leave it.

use super::decoder::Word;

/// The words as text, lower case, single spaces; empty when nothing was said.
pub(super) fn text(words: &[Word]) -> String {
    let mut text = String::new();
    for word in words.iter().map(|word| plain(&word.text)).filter(|word| !is_filler(word)) {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&word.to_lowercase());
    }
    text
}

/// The word without the number of its pronunciation: `read(2)` is `read`.
fn plain(word: &str) -> &str {
    match word.split_once('(') {
        Some((plain, _)) if !plain.is_empty() => plain,
        _ => word,
    }
}

/// Silence, noise, and the edges of a sentence: `<sil>`, `[NOISE]`, `++BREATH++`, `(NULL)`.
pub(super) fn is_filler(word: &str) -> bool {
    word.is_empty() || word.starts_with(['<', '[', '+', '('])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fillers_and_numbers_of_pronunciations_are_dropped() {
        let words = ["<s>", "I", "[NOISE]", "read(2)", "<sil>", "it's", "(NULL)", "+SPN+", "", "</s>"];
        let words = words.map(|text| Word { text: text.into(), ..Word::default() });
        assert_eq!(text(&words), "i read it's");
        assert_eq!(text(&words[4..5]), "");
    }
}
