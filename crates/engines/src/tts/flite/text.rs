//! What flite can read: ASCII, and the figures it would read wrongly put otherwise.

use std::time::Duration;

/// The pause after a sentence.
const SENTENCE_PAUSE: Duration = Duration::from_millis(250);
/// The pause after a clause.
const CLAUSE_PAUSE: Duration = Duration::from_millis(120);

/// Letters of a word; longer ones are split. The time flite takes for a word it does not know grows with the square of
/// its length: 5000 letters took 19 s, during which it cannot be cancelled.
const LONGEST_WORD: usize = 64;

/// How long to pause after a chunk, from the punctuation it ends with; closing quotes and brackets are looked through.
/// The end of a sentence 250 ms, of a clause 120 ms, none where the chunk was cut between words.
pub(super) fn pause_after(text: &str) -> Duration {
    let last = text.trim_end_matches(|c: char| c.is_whitespace() || "\"'”’)]»」』".contains(c)).chars().last();
    match last {
        Some('.' | '!' | '?' | '…' | '。' | '！' | '？' | '।' | '؟' | '۔') => SENTENCE_PAUSE,
        Some(',' | ';' | ':' | '—' | '–' | '、' | '，' | '；' | '：' | '،' | '؛') => CLAUSE_PAUSE,
        _ => Duration::ZERO,
    }
}

/// The text in ASCII (accents folded, other scripts transliterated), without control characters. Whole numbers of five
/// to fifteen digits get thousands separators, and years after "in", "since", "until" or "year" are split in pairs:
/// flite 2.2 reads "10000" as "one zero thousand" and "in 1999" as a count.
pub(super) fn for_flite(text: &str) -> String {
    let ascii = deunicode::deunicode_with_tofu(text, " ");
    let mut out = String::with_capacity(ascii.len() + 8);
    let mut before_year = false;
    for word in ascii.split(|c: char| c.is_ascii_whitespace() || c.is_ascii_control()).filter(|word| !word.is_empty()) {
        if !out.is_empty() {
            out.push(' ');
        }
        let core = word.trim_end_matches(|c: char| c.is_ascii_punctuation());
        let all_digits = core.bytes().all(|b| b.is_ascii_digit());
        match core.parse::<u32>() {
            Ok(year @ 1_100..=1_999) if all_digits && before_year && year % 100 >= 10 => {
                out.push_str(&core[..2]);
                out.push(' ');
                out.push_str(&core[2..]);
            }
            _ if all_digits && (5..=15).contains(&core.len()) && !core.starts_with('0') => group(core, &mut out),
            _ if core.len() > LONGEST_WORD => push_in_pieces(core, &mut out),
            _ => out.push_str(core),
        }
        out.push_str(&word[core.len()..]);
        before_year = ["in", "since", "until", "year"].iter().any(|cue| word.eq_ignore_ascii_case(cue));
    }
    out
}

/// Writes a word too long for flite's rules in pieces.
fn push_in_pieces(word: &str, out: &mut String) {
    for (i, letter) in word.chars().enumerate() {
        if i > 0 && i % LONGEST_WORD == 0 {
            out.push(' ');
        }
        out.push(letter);
    }
}

/// Writes digits in groups of three.
fn group(digits: &str, out: &mut String) {
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_punctuation_makes_the_pause() {
        let check = |text: &str, ms: u64| assert_eq!(pause_after(text), Duration::from_millis(ms), "{text:?}");
        check("Hello there.", 250);
        check("\"Really?\" ", 250);
        check("(he said)", 0);
        check("Well,", 120);
        check("first:", 120);
        check("and then", 0);
        check("", 0);
    }

    #[test]
    fn text_becomes_what_flite_reads() {
        let check = |text: &str, expected: &str| assert_eq!(for_flite(text), expected);
        check("A café in Zürich\u{0}, naïve", "A cafe in Zurich, naive");
        check("10000 people, 1234567.", "10,000 people, 1,234,567.");
        check("in 1999, and 1999 of them", "in 19 99, and 1999 of them");
        check("in 2024 or 007 or 3.14", "in 2024 or 007 or 3.14");
        check("since 1905.", "since 1905.");
        check("北京", "Bei Jing");
    }
}
