//! Names of languages: ISO 639-1 codes and what they are called in English.
//!
//! Recognizers name the language they heard by either, and language models are asked for one by its English name.

/// The languages of Whisper's multilingual models, by their codes.
const NAMES: [(&str, &str); 100] = [
    ("af", "Afrikaans"),
    ("am", "Amharic"),
    ("ar", "Arabic"),
    ("as", "Assamese"),
    ("az", "Azerbaijani"),
    ("ba", "Bashkir"),
    ("be", "Belarusian"),
    ("bg", "Bulgarian"),
    ("bn", "Bengali"),
    ("bo", "Tibetan"),
    ("br", "Breton"),
    ("bs", "Bosnian"),
    ("ca", "Catalan"),
    ("cs", "Czech"),
    ("cy", "Welsh"),
    ("da", "Danish"),
    ("de", "German"),
    ("el", "Greek"),
    ("en", "English"),
    ("es", "Spanish"),
    ("et", "Estonian"),
    ("eu", "Basque"),
    ("fa", "Persian"),
    ("fi", "Finnish"),
    ("fo", "Faroese"),
    ("fr", "French"),
    ("gl", "Galician"),
    ("gu", "Gujarati"),
    ("ha", "Hausa"),
    ("haw", "Hawaiian"),
    ("he", "Hebrew"),
    ("hi", "Hindi"),
    ("hr", "Croatian"),
    ("ht", "Haitian Creole"),
    ("hu", "Hungarian"),
    ("hy", "Armenian"),
    ("id", "Indonesian"),
    ("is", "Icelandic"),
    ("it", "Italian"),
    ("ja", "Japanese"),
    ("jw", "Javanese"),
    ("ka", "Georgian"),
    ("kk", "Kazakh"),
    ("km", "Khmer"),
    ("kn", "Kannada"),
    ("ko", "Korean"),
    ("la", "Latin"),
    ("lb", "Luxembourgish"),
    ("ln", "Lingala"),
    ("lo", "Lao"),
    ("lt", "Lithuanian"),
    ("lv", "Latvian"),
    ("mg", "Malagasy"),
    ("mi", "Maori"),
    ("mk", "Macedonian"),
    ("ml", "Malayalam"),
    ("mn", "Mongolian"),
    ("mr", "Marathi"),
    ("ms", "Malay"),
    ("mt", "Maltese"),
    ("my", "Myanmar"),
    ("ne", "Nepali"),
    ("nl", "Dutch"),
    ("nn", "Nynorsk"),
    ("no", "Norwegian"),
    ("oc", "Occitan"),
    ("pa", "Punjabi"),
    ("pl", "Polish"),
    ("ps", "Pashto"),
    ("pt", "Portuguese"),
    ("ro", "Romanian"),
    ("ru", "Russian"),
    ("sa", "Sanskrit"),
    ("sd", "Sindhi"),
    ("si", "Sinhala"),
    ("sk", "Slovak"),
    ("sl", "Slovenian"),
    ("sn", "Shona"),
    ("so", "Somali"),
    ("sq", "Albanian"),
    ("sr", "Serbian"),
    ("su", "Sundanese"),
    ("sv", "Swedish"),
    ("sw", "Swahili"),
    ("ta", "Tamil"),
    ("te", "Telugu"),
    ("tg", "Tajik"),
    ("th", "Thai"),
    ("tk", "Turkmen"),
    ("tl", "Tagalog"),
    ("tr", "Turkish"),
    ("tt", "Tatar"),
    ("uk", "Ukrainian"),
    ("ur", "Urdu"),
    ("uz", "Uzbek"),
    ("vi", "Vietnamese"),
    ("yi", "Yiddish"),
    ("yo", "Yoruba"),
    ("yue", "Cantonese"),
    ("zh", "Chinese"),
];

/// Other codes of the same languages: of ISO 639-2, withdrawn ones, and those of a part of a language.
const ALIASES: [(&str, &str); 47] = [
    ("ara", "ar"),
    ("ces", "cs"),
    ("chi", "zh"),
    ("cmn", "zh"),
    ("cze", "cs"),
    ("dan", "da"),
    ("deu", "de"),
    ("dut", "nl"),
    ("ell", "el"),
    ("eng", "en"),
    ("fas", "fa"),
    ("fil", "tl"),
    ("fin", "fi"),
    ("fra", "fr"),
    ("fre", "fr"),
    ("ger", "de"),
    ("gre", "el"),
    ("heb", "he"),
    ("hin", "hi"),
    ("hun", "hu"),
    ("in", "id"),
    ("ind", "id"),
    ("ita", "it"),
    ("iw", "he"),
    ("jav", "jw"),
    ("jpn", "ja"),
    ("jv", "jw"),
    ("kor", "ko"),
    ("nb", "no"),
    ("nld", "nl"),
    ("nno", "nn"),
    ("nob", "no"),
    ("nor", "no"),
    ("per", "fa"),
    ("pol", "pl"),
    ("por", "pt"),
    ("ron", "ro"),
    ("rum", "ro"),
    ("rus", "ru"),
    ("slk", "sk"),
    ("spa", "es"),
    ("swe", "sv"),
    ("tha", "th"),
    ("tur", "tr"),
    ("ukr", "uk"),
    ("vie", "vi"),
    ("zho", "zh"),
];

/// The code of a language that is given as a code, a tag such as `de-AT` or `pt_BR`, or its English name, in any case. `None`
/// for any other text.
pub fn language_code(given: &str) -> Option<&'static str> {
    let given = given.trim();
    let primary = primary_language(given);
    let alias = ALIASES.iter().find(|(alias, _)| *alias == primary).map(|(_, code)| *code);
    let primary = alias.map_or(primary, str::to_owned);
    let known = NAMES.iter().find(|(code, name)| primary == *code || given.eq_ignore_ascii_case(name));
    known.map(|(code, _)| *code)
}

/// The English name of a language by its code.
pub fn language_name(code: &str) -> Option<&'static str> {
    NAMES.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

/// The first part of a language tag in lower case: `de` of `de-AT`.
pub fn primary_language(tag: &str) -> String {
    tag.split(['-', '_']).next().unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_is_known_by_its_code_its_tag_and_its_name() {
        for given in ["de", "DE", "de-AT", "de_CH", "german", " German "] {
            assert_eq!(language_code(given), Some("de"), "{given}");
        }
        assert_eq!(language_code("haitian creole"), Some("ht"));
        assert_eq!((language_code("klingon"), language_code(""), language_code("auto")), (None, None, None));
        assert_eq!((language_name("pt"), language_name("xx")), (Some("Portuguese"), None));
        for (given, code) in [("eng", "en"), ("nb-NO", "no"), ("iw", "he"), ("zho", "zh"), ("fil-PH", "tl")] {
            assert_eq!(language_code(given), Some(code), "{given}");
        }
        assert!(NAMES.is_sorted());
        assert!(ALIASES.is_sorted());
        assert!(ALIASES.iter().all(|(_, code)| language_name(code).is_some()));
    }
}
