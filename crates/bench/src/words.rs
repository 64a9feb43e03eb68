//! Word errors: what a recognizer heard against what was said. The measures of real models and of lossy networks count them.

/// Small numbers that a recognizer writes as it likes, in words or in digits.
const NUMBERS: [&str; 13] =
    ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/// The words of a text, in lower case, without punctuation. What is only written differently becomes the same: "three" and 3,
/// "7 p.m." and "7pm".
pub(super) fn words(text: &str) -> Vec<String> {
    let letters = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '$' | '%');
    let text = text.replace('\u{2019}', "'").to_lowercase().replace("a.m", "am").replace("p.m", "pm");
    let written = text.split(|c| !letters(c)).filter(|word| !word.is_empty());
    written.flat_map(parted).map(in_digits).collect()
}

/// "7pm" as 7 and "pm"; numerals such as "1st" and "3d" stay whole.
fn parted(word: &str) -> impl Iterator<Item = &str> {
    let at = ["am", "pm"].iter().find_map(|half| word.strip_suffix(half)).map_or(0, str::len);
    let is_time = at > 0 && word[..at].bytes().all(|byte| byte.is_ascii_digit());
    let (hour, rest) = word.split_at(if is_time { at } else { 0 });
    [hour, rest].into_iter().filter(|part| !part.is_empty())
}

fn in_digits(word: &str) -> String {
    NUMBERS.iter().position(|number| *number == word).map_or_else(|| word.to_owned(), |n| n.to_string())
}

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
        check("It\u{2019}s $5, or 10%.", "it's $5 or 10%", 0);
        check("Dinner is at 7 p.m. sharp.", "dinner is at seven PM sharp", 0);
        check("At 7pm on the 1st.", "At 7 p.m. on the 1st.", 0);
        check("Three times four is 12.", "3 times 4 is twelve.", 0);
        check("I am at home.", "I'm at home", 2);
    }
}
