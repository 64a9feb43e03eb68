//! Roman numerals: "Henry VIII", "World War II", "Super Bowl LVIII", "the XIX century". Used only by `figures`.
//!
//! Capitals that happen to be one (CD, MIX, an IV drip) stay as they are: short ones count only behind a word that a
//! number follows.

use super::sentences::is_name;

/// Names behind which a numeral is an ordinal.
const RULERS: [&str; 64] = [
    "Albert",
    "Alexander",
    "Alfonso",
    "Benedict",
    "Boniface",
    "Carlos",
    "Catherine",
    "Charles",
    "Christian",
    "Clement",
    "Cleopatra",
    "David",
    "Edward",
    "Elizabeth",
    "Emmanuel",
    "Eric",
    "Felipe",
    "Ferdinand",
    "Francis",
    "Franz",
    "Frederick",
    "Friedrich",
    "George",
    "Gregory",
    "Gustav",
    "Haakon",
    "Harald",
    "Henri",
    "Henry",
    "Innocent",
    "Isabella",
    "Ivan",
    "James",
    "John",
    "Joseph",
    "Juan",
    "Leo",
    "Leopold",
    "Louis",
    "Ludwig",
    "Malcolm",
    "Margrethe",
    "Mary",
    "Maximilian",
    "Mehmed",
    "Napoleon",
    "Nicholas",
    "Olav",
    "Otto",
    "Paul",
    "Pedro",
    "Peter",
    "Philip",
    "Pius",
    "Ptolemy",
    "Ramesses",
    "Ramses",
    "Richard",
    "Robert",
    "Rudolf",
    "Sixtus",
    "Urban",
    "Wilhelm",
    "William",
];
/// Words behind which any numeral is a number, in lower case.
const NUMBERED: [&str; 24] = [
    "act", "apollo", "appendix", "article", "book", "bowl", "chapter", "class", "element", "figure", "grade", "level",
    "part", "phase", "psalm", "scene", "season", "section", "stage", "table", "title", "type", "volume", "war",
];
/// Words before which a numeral is an ordinal.
const COUNTED: [&str; 6] = ["century", "centuries", "congress", "dynasty", "legion", "olympiad"];
/// What may follow "Elizabeth I", which is not the beginning of "I think".
const AFTER_RULER: [&str; 12] =
    ["and", "became", "died", "had", "in", "is", "of", "reigned", "ruled", "took", "was", "who"];

/// What may follow "type I" in lower case. Behind any other word the speaker begins: "the book I read".
const AFTER_NUMBERED: [&str; 19] = [
    "and",
    "cancer",
    "cancers",
    "clinical",
    "collagen",
    "diabetes",
    "error",
    "errors",
    "has",
    "interferon",
    "is",
    "of",
    "or",
    "through",
    "to",
    "trial",
    "trials",
    "tumor",
    "tumors",
];

/// Words of medicine. Behind their numeral any bracket explains ("stage I (early)"), and a study is a noun.
const CLINICAL: [&str; 3] = ["phase", "stage", "type"];

/// The spoken form of a numeral between these words. `second_before`: the word before `before`. `after` is empty where a
/// clause ends with the numeral.
pub(super) fn numeral(core: &str, second_before: &str, before: &str, after: &str) -> Option<String> {
    let (core, owner) = core.strip_suffix("'s").or(core.strip_suffix("’s")).map_or((core, ""), |core| (core, "'s"));
    // "Medicare Part C", "John D. Rockefeller": a letter.
    let is_letter = core.len() == 1 && !["I", "V", "X"].contains(&core);
    let value = value(core).filter(|_| !is_letter)?;
    let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
    let name = bare(before);
    let next = bare(after).to_lowercase();
    if RULERS.contains(&name.as_str()) && before.ends_with(char::is_alphanumeric) {
        let is_person = core == "I" && owner.is_empty() && !next.is_empty() && !AFTER_RULER.contains(&next.as_str());
        let is_surname = name == "Malcolm" && core == "X";
        return (!is_person && !is_surname).then(|| format!("the {}{owner}", ordinal(value)));
    }
    if COUNTED.contains(&next.as_str()) && core.len() > 1 {
        return Some(ordinal(value));
    }
    let is_numbered = NUMBERED.contains(&name.to_lowercase().as_str()) && before.ends_with(char::is_alphanumeric);
    // "the book I read", but "World War I was" and "type I diabetes".
    let is_clinical = CLINICAL.contains(&name.as_str());
    let explains = is_clinical || after.starts_with('(') && !is_aside(after);
    let following = if explains { after } else { after.trim_start_matches(|c: char| !c.is_alphanumeric()) };
    let is_in_lowercase = before.starts_with(char::is_lowercase) && following.starts_with(char::is_lowercase);
    let is_study = match next.as_str() {
        "studies" => true,
        // "A level I study" of evidence, but "the level I study at".
        "study" => is_clinical || name == "level" && second_before == "a",
        _ => false,
    };
    let is_noun = is_study || AFTER_NUMBERED.contains(&next.as_str());
    let is_speaker = core == "I" && owner.is_empty() && is_in_lowercase && !is_noun;
    let of_small_ones = core.bytes().all(|b| b"IVXL".contains(&b)) && core != "XXX" && core != "XXL" && core != "XL";
    let is_named = is_name(before) && before.ends_with(char::is_alphanumeric);
    let stands_alone = match core.len() {
        0 | 1 => false,
        2 => is_named && ["II", "IV", "VI", "IX", "XI", "XV"].contains(&core),
        3 => of_small_ones,
        _ => of_small_ones || core.len() > 4 || core.starts_with("MM"),
    };
    (is_numbered && !is_speaker || stands_alone).then(|| format!("{value}{owner}"))
}

/// Whether `word` is an adverb in brackets: "the book I (finally) read".
fn is_aside(word: &str) -> bool {
    let word = word.trim_end_matches([',', '.', ';', ':', '!', '?']);
    let inside = word.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or_default();
    inside.ends_with("ly") || matches!(inside, "also" | "just")
}

/// "8th", as TTS engines read correctly.
pub(super) fn ordinal(n: u32) -> String {
    let ending = match (n % 100, n % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// The parts of a numeral, by their worth.
const PARTS: [(u32, &str); 13] = [
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
];

/// The value of a numeral in its one correct form, below 4000.
fn value(core: &str) -> Option<u32> {
    let mut rest = core;
    let mut value = 0;
    for (worth, part) in PARTS {
        while let Some(behind) = rest.strip_prefix(part) {
            value += worth;
            rest = behind;
        }
    }
    (rest.is_empty() && (1..4_000).contains(&value) && written(value) == core).then_some(value)
}

fn written(value: u32) -> String {
    let mut rest = value;
    let mut out = String::new();
    for (worth, part) in PARTS {
        while rest >= worth {
            out.push_str(part);
            rest -= worth;
        }
    }
    out
}
