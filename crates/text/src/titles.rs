//! Abbreviations whose meaning depends on what stands beside them: "Jr.", "Mt.", "St.", "p. 5". Used only by `figures`.

use super::sentences::is_name;

/// Abbreviations with a dot, and what they stand for before a name.
const BEFORE_NAMES: [(&str, &str); 17] = [
    ("adm", "Admiral"),
    ("capt", "Captain"),
    ("cmdr", "Commander"),
    ("col", "Colonel"),
    ("ft", "Fort"),
    ("gen", "General"),
    ("gov", "Governor"),
    ("hon", "Honorable"),
    ("lt", "Lieutenant"),
    ("maj", "Major"),
    ("messrs", "Messieurs"),
    ("mt", "Mount"),
    ("prof", "Professor"),
    ("rep", "Representative"),
    ("rev", "Reverend"),
    ("sen", "Senator"),
    ("sgt", "Sergeant"),
];
/// Those behind a name. A sentence may end with them.
const BEHIND_NAMES: [(&str, &str); 17] = [
    ("apt", "Apartment"),
    ("ave", "Avenue"),
    ("blvd", "Boulevard"),
    ("bros", "Brothers"),
    ("co", "Company"),
    ("corp", "Corporation"),
    ("dept", "Department"),
    ("hwy", "Highway"),
    ("inc", "Incorporated"),
    ("jr", "Junior"),
    ("ln", "Lane"),
    ("ltd", "Limited"),
    ("mtn", "Mountain"),
    ("pkwy", "Parkway"),
    ("rd", "Road"),
    ("sq", "Square"),
    ("sr", "Senior"),
];
/// Saints whose names are those of places: "East St. Louis" is no street.
const SAINT_PLACES: [&str; 14] = [
    "Albans",
    "Andrews",
    "Augustine",
    "Barts",
    "Croix",
    "Gallen",
    "Helens",
    "Ives",
    "Kitts",
    "Louis",
    "Lucia",
    "Moritz",
    "Petersburg",
    "Tropez",
];
/// Words before "'s" that own nothing: "12 Main St. It's open".
const CONTRACTED: [&str; 10] = ["he", "here", "it", "let", "she", "that", "there", "what", "where", "who"];
/// Those before a number.
const BEFORE_NUMBERS: [(&str, &str); 13] = [
    ("apt", "Apartment"),
    ("approx", "approximately"),
    ("ca", "about"),
    ("ch", "chapter"),
    ("eq", "equation"),
    ("fig", "figure"),
    ("figs", "figures"),
    ("no", "number"),
    ("nos", "numbers"),
    ("p", "page"),
    ("pp", "pages"),
    ("sec", "section"),
    ("vol", "volume"),
];

/// What an abbreviation stands for; `core` without its dot. Without a dot only a few are abbreviations, beside names.
pub(super) fn title(core: &str, has_dot: bool, before: &str, after: &str) -> Option<String> {
    let is_capitalized = |word: &str| word.starts_with(char::is_uppercase);
    let behind_name = is_name(before) && before.ends_with(char::is_alphanumeric);
    let is_capital = is_capitalized(core);
    let lower = core.to_lowercase();
    let find = |table: &[(&str, &'static str)]| table.iter().find(|(short, _)| *short == lower).map(|(_, long)| *long);
    if !has_dot {
        let is_suffix = is_capital && behind_name && matches!(lower.as_str(), "jr" | "sr");
        let is_mountain = is_capital && lower == "mt" && is_capitalized(after);
        let is_known = is_suffix || is_mountain;
        return find(&BEHIND_NAMES).or_else(|| find(&BEFORE_NAMES)).filter(|_| is_known).map(str::to_owned);
    }
    if after.starts_with(|c: char| c.is_ascii_digit())
        && let Some(long) = find(&BEFORE_NUMBERS)
    {
        return Some(long.to_owned());
    }
    if lower == "st" {
        // "Main St." and "5th St.", but "In St. Louis" and "Happy St. Patrick's Day".
        let name = after.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        let is_behind_street = behind_name || before.starts_with(|c: char| c.is_ascii_digit());
        let is_contraction = CONTRACTED.contains(&name.to_lowercase().as_str());
        let is_possessive = (after.contains("'s") || after.contains("’s")) && !is_contraction;
        let is_street = is_behind_street && !is_possessive && !SAINT_PLACES.contains(&name);
        return Some(if is_capitalized(after) && !is_street { "Saint" } else { "Street" }.to_owned())
            .filter(|_| is_capital);
    }
    if is_capital
        && is_capitalized(after)
        && let Some(long) = find(&BEFORE_NAMES)
    {
        return Some(long.to_owned());
    }
    // "the dept." as well: what is no word else.
    let is_word = matches!(lower.as_str(), "co" | "sq" | "ln");
    find(&BEHIND_NAMES)
        .filter(|_| is_capital || !is_word)
        .map(|long| if is_capital { long.to_owned() } else { long.to_lowercase() })
}

/// Whether a sentence may end with the dot of the abbreviation.
pub(super) fn may_end(core: &str, before: &str) -> bool {
    let lower = core.to_lowercase();
    if matches!(lower.as_str(), "jr" | "sr") && !is_name(before) {
        return false;
    }
    lower == "st" || BEHIND_NAMES.iter().any(|(short, _)| *short == lower)
}
