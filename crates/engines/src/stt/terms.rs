//! Key terms, whatever the recognizer: `stt.key_terms` and the expected words of a request, as a list and as a prompt.
//!
//! Engines that take a prompt get [`prompt_with`]; the transducer favours the terms of [`terms_with`] in its search.

/// Characters of a term.
pub const MAX_TERM_CHARS: usize = 100;

/// Words of a term: a longer stretch of a prompt is a sentence, which says something about the recording.
const MAX_TERM_WORDS: usize = 6;

/// Terms that are taken from a prompt.
const MAX_PROMPT_TERMS: usize = 200;

/// What parts the terms of a prompt.
const SEPARATORS: [char; 8] = [',', ';', '\n', '\r', '、', '，', '；', '|'];

/// The terms of the settings and those of a prompt, each once. A prompt is a list, parted by commas, semicolons or lines; what is
/// as long as a sentence is no term.
pub fn terms_with(key_terms: &[String], prompt: Option<&str>) -> Vec<String> {
    let mut terms = key_terms.to_vec();
    let of_prompt = prompt.unwrap_or_default().split(SEPARATORS).map(|term| term.trim().trim_end_matches('.'));
    let is_term = |term: &&str| {
        !term.is_empty() && term.chars().count() <= MAX_TERM_CHARS && term.split_whitespace().count() <= MAX_TERM_WORDS
    };
    for term in of_prompt.filter(is_term).take(MAX_PROMPT_TERMS) {
        if !terms.iter().any(|known| known == term) {
            terms.push(term.to_owned());
        }
    }
    terms
}

/// One text of the terms of the settings and a prompt; `None` where there is neither.
pub fn prompt_with(key_terms: &[String], prompt: Option<&str>) -> Option<String> {
    let prompt = prompt.map(str::trim).filter(|prompt| !prompt.is_empty());
    let terms = key_terms.join(", ");
    match (terms.is_empty(), prompt) {
        (true, None) => None,
        (true, Some(prompt)) => Some(prompt.to_owned()),
        (false, None) => Some(terms),
        // What a request says stands last: a prompt that is too long loses its beginning.
        (false, Some(prompt)) => Some(format!("{terms}. {prompt}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(terms: &[&str]) -> Vec<String> {
        terms.iter().map(|term| (*term).to_owned()).collect()
    }

    #[test]
    fn a_prompt_is_a_list_and_sentences_are_no_terms() {
        let set = owned(&["Antiphon"]);
        let prompt = "Haggard, New York;\nAntiphon, a conversation of two people who talk about the weather. Zürich.";
        assert_eq!(terms_with(&set, Some(prompt)), owned(&["Antiphon", "Haggard", "New York"]));
        assert_eq!(terms_with(&set, None), set);
        assert_eq!(terms_with(&[], Some(&format!("{}, ok", "x".repeat(101)))), owned(&["ok"]));
        let many: String = (0..1_000).map(|n| format!("t{n},")).collect();
        assert_eq!(terms_with(&[], Some(&many)).len(), MAX_PROMPT_TERMS);
    }

    #[test]
    fn a_prompt_has_the_terms_first_and_neither_is_none() {
        let set = owned(&["Antiphon", "hibari"]);
        assert_eq!(prompt_with(&set, Some(" Yes. ")).as_deref(), Some("Antiphon, hibari. Yes."));
        assert_eq!(prompt_with(&set, None).as_deref(), Some("Antiphon, hibari"));
        assert_eq!(prompt_with(&[], Some("Yes.")).as_deref(), Some("Yes."));
        assert_eq!(prompt_with(&[], Some("  ")), None);
        assert_eq!(prompt_with(&[], None), None);
    }
}
