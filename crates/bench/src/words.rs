//! Word errors: what a recognizer heard against what was said. The measures of real models and of lossy networks count them.

/// The words of a text as a person says them.
pub(super) use antiphon_text::scoring::words;
/// The words of a text as they are written.
pub(super) use antiphon_text::words::compared as written_words;

/// The least number of words substituted, deleted and inserted.
pub(super) fn n_errors(said: &Vec<String>, heard: &Vec<String>) -> usize {
    strsim::generic_levenshtein(said, heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_errors_count_what_was_substituted_deleted_and_inserted() {
        let check = |said: &str, heard: &str, expect: usize| {
            assert_eq!(n_errors(&words(said), &words(heard)), expect, "{heard}");
        };
        check("What time is it?", "what time is it", 0);
        check("What time is it?", "what dime is", 2);
        check("What time is it?", "so what time is it now", 2);
        check("What time is it?", "", 4);
        check("It\u{2019}s $2.5 million, or 8th.", "it's two point five million dollars or eighth", 0);
    }
}
