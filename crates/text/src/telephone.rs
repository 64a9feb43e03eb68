//! Telephone numbers and codes, whose digits are said one by one. Used only by `figures`.

use super::tables::UNITS;

/// The fewest digits of a number that begins with `+`, and the most of any (ITU-T E.164).
const MIN_DIGITS: usize = 7;
const MAX_DIGITS: usize = 15;

/// After these words a number of two to six digits is a code.
const CODE_AFTER: [&str; 6] = ["code", "ext", "extension", "passcode", "pin", "zip"];
/// After these words a number of up to six digits is dialled, unless it counts something.
const DIALLED_AFTER: [&str; 13] = [
    "call", "called", "calling", "calls", "dial", "dialed", "dialing", "dialled", "dials", "phone", "phoned", "ring",
    "text",
];
/// Between these words and a number, "at" says that it is dialled: "Reach us at 300-1500".
const CONTACT: [&str; 7] = ["contact", "her", "him", "me", "reach", "them", "us"];
/// Before these words an emergency number is said as it is dialled.
const EMERGENCY_BEFORE: [&str; 7] = ["call", "caller", "calls", "dispatcher", "emergency", "operator", "operators"];
const EMERGENCY: [&str; 4] = ["112", "911", "988", "999"];

/// A telephone number at the start of `words`: its spoken form, and how many words it has. The punctuation behind the last
/// word is not part of it. `before`: the word before them, `second_before`: the word before that.
pub(super) fn number(words: &[&str], second_before: &str, before: &str) -> Option<(String, usize)> {
    let last = |n: usize| words[n - 1].trim_end_matches([',', '.', ';', ':', '!', '?', ')', '"', '”']);
    let first = *words.first()?;
    if first.starts_with('+') && first.len() > 1 {
        // "+49 30 1234567": all groups that follow.
        let is_group = |word: &&str| is_digits(word.trim_matches(['(', ')', ',', '.', '?', '!', ';']));
        let n = 1 + words[1..].iter().take_while(|word| is_group(word) || dashed(word).is_some()).count();
        // Punctuation ends a number, not a group.
        let n = (1..=n).find(|&n| words[n - 1].ends_with([',', '.', '?', '!', ';'])).unwrap_or(n);
        let joined = format!("{} {}", words[..n - 1].join(" "), last(n));
        return spoken(&joined).map(|said| (said, n));
    }
    // "(800) 555-0199".
    let area = first.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).filter(|area| area.len() == 3);
    if let (Some(area), true) = (area.filter(|area| is_digits(area)), words.len() > 1) {
        let rest = dashed(last(2)).filter(|groups| groups.iter().map(|group| group.len()).eq([3, 4]));
        return rest.map(|rest| (grouped(&[&[area][..], &rest].concat()), 2));
    }
    let groups = dashed(last(1))?;
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let after = words.get(1).filter(|_| first == last(1)).copied().unwrap_or_default();
    let is_number = match lengths[..] {
        [3, 4] => {
            let is_number = is_digits(groups[1]) && !first.starts_with('0');
            is_number && !is_range(first, &groups, second_before, before, after)
        }
        [3, 3, 4] => true,
        [1, 3, 3, 4] | [1, 3, 7] => groups[0] == "1",
        // "9-1-1".
        [1, 1, 1] => EMERGENCY.contains(&groups.concat().as_str()),
        _ => false,
    };
    is_number.then(|| (grouped(&groups), 1))
}

/// The digits of a code or of a short number, by the words beside it. `after` is empty where a clause ends with the
/// number.
pub(super) fn digits(core: &str, before: &str, after: &str) -> Option<String> {
    let is_short = (2..=6).contains(&core.len());
    let is_code = is_short && CODE_AFTER.contains(&bare(before).as_str());
    // "call 311" and "dial 15", but "call 15 restaurants".
    let is_count =
        is_quantity(after) && !EMERGENCY.contains(&core) || core.len() == 2 && !bare(before).starts_with("dial");
    let is_dialled = is_short && is_dialled_after(before) && !is_count;
    let is_emergency = EMERGENCY.contains(&core) && EMERGENCY_BEFORE.contains(&bare(after).as_str());
    (is_digits(core) && (is_code || is_dialled || is_emergency)).then(|| one_by_one(core))
}

fn bare(word: &str) -> String {
    word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase()
}

fn is_dialled_after(before: &str) -> bool {
    DIALLED_AFTER.contains(&bare(before).as_str())
}

/// Whether "500-1000" is a range: by what it counts, otherwise by its dash or its round figures, unless the words before
/// it say that it is a number to dial.
fn is_range(word: &str, groups: &[&str], second_before: &str, before: &str, after: &str) -> bool {
    let is_round = groups.iter().all(|group| group.ends_with("00") || group.ends_with("50"));
    let is_hundreds = groups.iter().all(|group| group.ends_with("00"));
    let is_rising = !groups[1].starts_with('0');
    let is_dialled = match bare(before).as_str() {
        "number" => true,
        // "Prices start at 100–1000".
        "at" => !is_hundreds || is_dialled_after(second_before) || CONTACT.contains(&bare(second_before).as_str()),
        // "My number is 555–1234" and "the number to call is", but "the range is 365–1460".
        "is" => !is_round && (bare(second_before) == "number" || is_dialled_after(second_before)),
        _ => is_dialled_after(before),
    };
    is_rising && (is_quantity(after) || !is_dialled && (is_round || word.contains('–')))
}

/// Whether a number that may be dialled counts what `word` names: "call 15 restaurants", but "call 311 weekdays".
fn is_quantity(word: &str) -> bool {
    is_counted(word) && !matches!(bare(word).as_str(), "weekdays" | "weekends")
}

/// Whether a number counts what `word` names: a plural in lower case, or a unit.
pub(super) fn is_counted(word: &str) -> bool {
    const IRREGULAR: [&str; 5] = ["children", "feet", "men", "people", "women"];
    const NO_PLURALS: [&str; 9] =
        ["afterwards", "always", "besides", "perhaps", "plus", "sometimes", "this", "thus", "whereas"];
    let word = word.trim_end_matches(|c: char| c.is_ascii_punctuation());
    let has_ending = word.ends_with('s') && !word.ends_with("ss") && word.bytes().all(|b| b.is_ascii_lowercase());
    let is_plural = word.len() > 3 && has_ending && !NO_PLURALS.contains(&word);
    is_plural || IRREGULAR.contains(&word) || UNITS.iter().any(|(written, _, _)| *written == word)
}

/// A number that begins with `+`.
fn spoken(text: &str) -> Option<String> {
    let groups: Vec<&str> =
        text.split([' ', '-', '.', '(', ')', '+', '‑', '–']).filter(|part| !part.is_empty()).collect();
    let n_digits: usize = groups.iter().map(|group| group.len()).sum();
    let is_number = groups.len() > 1 || n_digits > MIN_DIGITS + 2;
    (is_number && (MIN_DIGITS..=MAX_DIGITS).contains(&n_digits) && groups.iter().all(|group| is_digits(group)))
        .then(|| format!("plus {}", grouped(&groups)))
}

/// The groups of "800-555-0199", "800.555.0199" and "1-800-FLOWERS".
fn dashed(word: &str) -> Option<Vec<&str>> {
    let sign = word.chars().find(|c| "-.‑–".contains(*c))?;
    let groups: Vec<&str> = word.split(sign).collect();
    let (last, others) = groups.split_last()?;
    let is_name = groups.len() == 3 && last.len() == 7 && last.bytes().all(|b| b.is_ascii_uppercase());
    // "3.4567" is a figure.
    let is_figure = sign == '.' && groups.len() < 3;
    (!is_figure && others.iter().all(|group| is_digits(group)) && (is_digits(last) || is_name)).then_some(groups)
}

fn grouped(groups: &[&str]) -> String {
    let said = groups.iter().map(|group| if is_digits(group) { one_by_one(group) } else { (*group).to_owned() });
    said.collect::<Vec<_>>().join(", ")
}

fn one_by_one(digits: &str) -> String {
    digits.chars().map(String::from).collect::<Vec<_>>().join(" ")
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}
