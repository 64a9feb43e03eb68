//! States of the United States by their postal abbreviations: "Austin, TX", "Columbus, OH 43004". Used only by `figures`.

/// Abbreviations that stand for nothing else behind the name of a place.
const STATES: [(&str, &str); 27] = [
    ("AZ", "Arizona"),
    ("CA", "California"),
    ("FL", "Florida"),
    ("IA", "Iowa"),
    ("IL", "Illinois"),
    ("KS", "Kansas"),
    ("KY", "Kentucky"),
    ("MI", "Michigan"),
    ("MN", "Minnesota"),
    ("NC", "North Carolina"),
    ("ND", "North Dakota"),
    ("NH", "New Hampshire"),
    ("NJ", "New Jersey"),
    ("NM", "New Mexico"),
    ("NV", "Nevada"),
    ("NY", "New York"),
    ("RI", "Rhode Island"),
    ("SC", "South Carolina"),
    ("SD", "South Dakota"),
    ("TN", "Tennessee"),
    ("TX", "Texas"),
    ("UT", "Utah"),
    ("VA", "Virginia"),
    ("VT", "Vermont"),
    ("WA", "Washington"),
    ("WI", "Wisconsin"),
    ("WY", "Wyoming"),
];
/// Those that may stand for something else ("Well, OK", "John Smith, MD"): a ZIP code must follow.
const BEFORE_ZIP_CODES: [(&str, &str); 23] = [
    ("AK", "Alaska"),
    ("AL", "Alabama"),
    ("AR", "Arkansas"),
    ("CO", "Colorado"),
    ("CT", "Connecticut"),
    ("DE", "Delaware"),
    ("GA", "Georgia"),
    ("HI", "Hawaii"),
    ("ID", "Idaho"),
    ("IN", "Indiana"),
    ("LA", "Louisiana"),
    ("MA", "Massachusetts"),
    ("MD", "Maryland"),
    ("ME", "Maine"),
    ("MO", "Missouri"),
    ("MS", "Mississippi"),
    ("MT", "Montana"),
    ("NE", "Nebraska"),
    ("OH", "Ohio"),
    ("OK", "Oklahoma"),
    ("OR", "Oregon"),
    ("PA", "Pennsylvania"),
    ("WV", "West Virginia"),
];

/// The state that `core` abbreviates between the words `before` and `after`: behind a name and a comma.
pub(super) fn state(core: &str, before: &str, after: &str) -> Option<&'static str> {
    let place = before.strip_suffix(',')?;
    if !place.starts_with(char::is_uppercase) || !place.ends_with(char::is_lowercase) {
        return None;
    }
    let find = |table: &[(&str, &'static str)]| table.iter().find(|(short, _)| *short == core).map(|(_, state)| *state);
    find(&STATES).or_else(|| find(&BEFORE_ZIP_CODES).filter(|_| is_zip_code(after)))
}

/// "43004", "43004-1234".
fn is_zip_code(word: &str) -> bool {
    let word = word.trim_end_matches(['.', ',', ';', ':', '!', '?']);
    let zip = word.split('-').next().unwrap_or_default();
    zip.len() == 5 && zip.bytes().all(|digit| digit.is_ascii_digit())
}
