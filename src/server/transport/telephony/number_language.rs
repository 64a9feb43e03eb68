//! The language that is likely spoken at a telephone number: that of most people in its country.
//!
//! A call's session begins with the language of the other side's number. A recognizer that detects languages tries it
//! first and still hears every other one. Nothing else depends on it.

/// Country codes of ITU-T Recommendation E.164 with the ISO 639-1 code of the language that most people there speak; 1 is
/// that of the United States. Other countries have none here.
const LANGUAGES: [(&str, &[&str]); 48] = [
    (
        "ar",
        &[
            "20", "212", "213", "216", "218", "249", "961", "962", "963", "964", "965", "966", "967", "968", "970",
            "973",
        ],
    ),
    ("az", &["994"]),
    ("bg", &["359"]),
    ("bn", &["880"]),
    ("bs", &["387"]),
    ("cs", &["420"]),
    ("da", &["45"]),
    ("de", &["41", "423", "43", "49"]),
    ("el", &["30", "357"]),
    ("en", &["1", "353", "44", "61", "64"]),
    (
        "es",
        &[
            "34", "502", "503", "504", "505", "506", "507", "51", "52", "53", "54", "56", "57", "58", "591", "593",
            "595", "598",
        ],
    ),
    ("et", &["372"]),
    ("fa", &["98"]),
    ("fi", &["358"]),
    ("fr", &["33"]),
    ("he", &["972"]),
    ("hr", &["385"]),
    ("hu", &["36"]),
    ("hy", &["374"]),
    ("id", &["62"]),
    ("is", &["354"]),
    ("it", &["39"]),
    ("ja", &["81"]),
    ("ka", &["995"]),
    ("km", &["855"]),
    ("ko", &["82"]),
    ("lt", &["370"]),
    ("lv", &["371"]),
    ("mk", &["389"]),
    ("mn", &["976"]),
    ("ms", &["60"]),
    ("ne", &["977"]),
    ("nl", &["31", "32"]),
    ("no", &["47"]),
    ("pl", &["48"]),
    ("pt", &["244", "351", "55"]),
    ("ro", &["373", "40"]),
    ("ru", &["375", "7"]),
    ("sk", &["421"]),
    ("sl", &["386"]),
    ("sq", &["355", "383"]),
    ("sr", &["381"]),
    ("sv", &["46"]),
    ("th", &["66"]),
    ("tr", &["90"]),
    ("uk", &["380"]),
    ("vi", &["84"]),
    ("zh", &["86", "886"]),
];

/// What Twilio sends in the place of a number that is withheld: keypads' letters of "restricted", "anonymous", "unknown",
/// "unavailable" and "blocked".
const WITHHELD: [&str; 5] = ["7378742833", "266696687", "8656696", "86282452253", "2562533"];

/// The language of `+4930...`, `tel:+49-30-...` or `sip:+4930...@host`; `None`: it has no country code, or none that is
/// listed.
pub(super) fn language_of_number(number: &str) -> Option<&'static str> {
    let scheme = number.split_once(':').filter(|(scheme, _)| is_scheme(scheme));
    let international = scheme.map_or(number, |(_, rest)| rest).strip_prefix('+')?;
    let is_visual = |c: &char| matches!(c, '-' | '.' | ' ' | '(' | ')');
    let digits = international.chars().filter(|c| !is_visual(c)).take_while(char::is_ascii_digit);
    let digits: String = digits.collect();
    if WITHHELD.contains(&digits.as_str()) {
        return None;
    }
    // No country code begins with another one.
    let (language, _) = LANGUAGES.iter().find(|(_, codes)| codes.iter().any(|code| digits.starts_with(code)))?;
    Some(language)
}

fn is_scheme(name: &str) -> bool {
    ["tel", "sip", "sips"].iter().any(|scheme| name.eq_ignore_ascii_case(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_any_form_has_its_countrys_language() {
        for (number, language) in [
            ("+4930123", Some("de")),
            ("tel:+34 (91) 123", Some("es")),
            ("tel:+1-212-555-0100;ext=1", Some("en")),
            ("sip:+33140@example.com", Some("fr")),
            ("sips:+886225@example.com", Some("zh")),
            ("+42112", Some("sk")),
            ("+4212", Some("sk")),
            ("+42312", Some("de")),
            ("TEL:+4930123", Some("de")),
            ("+90212", Some("tr")),
            ("+91221", None),
            ("+7378742833", None),
            ("+86282452253", None),
            ("03012345", None),
            ("sip:anna+49@example.com", None),
            ("tel:+", None),
            ("anonymous", None),
            ("", None),
        ] {
            assert_eq!(language_of_number(number), language, "{number}");
        }
    }

    #[test]
    fn no_country_code_begins_with_another_and_each_language_is_known() {
        let codes: Vec<&str> = LANGUAGES.iter().flat_map(|(_, codes)| codes.iter().copied()).collect();
        for (index, code) in codes.iter().enumerate() {
            let others = codes.iter().enumerate().filter(|(other, _)| *other != index);
            assert!(others.clone().all(|(_, other)| !other.starts_with(code)), "{code}");
        }
        for (language, _) in LANGUAGES {
            assert_eq!(antiphon_types::language_code(language), Some(language));
        }
    }
}
