//! Which language a recognizer is asked for: one rule for sessions, the speech API, Wyoming, the command line and settings.
//!
//! A client may give a code ("en"), a tag with a region ("en-US", "EN_us"), a code of three letters ("eng") or an English
//! name. An engine gets the code alone.

use super::{DETECT_LANGUAGE, Stt};
use antiphon_types::{language_code, language_name, primary_language};
use thiserror::Error;

/// Languages that an error message lists; further ones are counted.
const MAX_LISTED: usize = 12;

/// Why a language cannot be asked for.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LanguageError {
    /// The text is no language.
    #[error("'{0}' is no language: expected an ISO 639-1 code such as 'en', with or without a region")]
    Unknown(String),
    /// The engine does not know it.
    #[error("the engine '{engine}' does not transcribe '{given}': it knows {known}")]
    NotOfEngine {
        /// The engine's name.
        engine: String,
        /// As the client gave it.
        given: String,
        /// What the engine knows, in words.
        known: String,
    },
    /// The engine does not detect the language.
    #[error("the engine '{0}' cannot detect the language. Name the one that is spoken, such as 'en', or leave it out")]
    NotDetected(String),
}

/// The language that `engine` is asked for, of what a client `given`: a code, or [`DETECT_LANGUAGE`]; `None` for an empty text,
/// which leaves it to the engine.
///
/// # Errors
/// The text is no language, or the engine does not transcribe it. What a server elsewhere knows is not known here: it gets any code.
pub fn requested_language(engine: &dyn Stt, given: &str) -> Result<Option<String>, LanguageError> {
    let given = given.trim();
    if given.is_empty() {
        return Ok(None);
    }
    if given == DETECT_LANGUAGE {
        return match engine.detects_language() {
            true => Ok(Some(given.to_owned())),
            false => Err(LanguageError::NotDetected(engine.name().to_owned())),
        };
    }
    let primary = primary_language(given);
    let is_code = (2..=3).contains(&primary.len()) && primary.bytes().all(|b| b.is_ascii_lowercase());
    let code = language_code(given).map(str::to_owned).or_else(|| is_code.then_some(primary));
    let code = code.ok_or_else(|| LanguageError::Unknown(given.chars().take(40).collect()))?;
    match engine.languages() {
        Some(known) if !known.contains(&code) => Err(LanguageError::NotOfEngine {
            engine: engine.name().to_owned(),
            given: given.to_owned(),
            known: listed(&known),
        }),
        _ => Ok(Some(code)),
    }
}

/// "English only", or codes.
fn listed(known: &[String]) -> String {
    match known {
        [one] => format!("{} only", language_name(one).unwrap_or(one)),
        _ if known.len() > MAX_LISTED => {
            format!("{} and {} more", known[..MAX_LISTED].join(", "), known.len() - MAX_LISTED)
        }
        _ => known.join(", "),
    }
}

#[cfg(all(test, feature = "fakes"))]
mod tests {
    use super::*;
    use crate::fakes::stt::FakeStt;

    fn asked(engine: &FakeStt, given: &str) -> Result<Option<String>, String> {
        requested_language(engine, given).map_err(|why| why.to_string())
    }

    #[test]
    fn an_engine_gets_a_code_whatever_form_the_client_uses() {
        let english = FakeStt::default().of_languages(&["en"]);
        for given in ["en", "EN", "en-US", "en_gb", "eng", "English", " en "] {
            assert_eq!(asked(&english, given), Ok(Some("en".into())), "{given}");
        }
        assert_eq!(asked(&english, ""), Ok(None));
        assert_eq!(asked(&FakeStt::default(), "xx-YY"), Ok(Some("xx".into())), "a server elsewhere may know it");
    }

    #[test]
    fn what_an_engine_does_not_know_is_refused_and_what_it_knows_is_named() {
        let english = FakeStt::default().of_languages(&["en"]);
        let error = asked(&english, "de-AT").expect_err("refused");
        assert_eq!(error, "the engine 'fake' does not transcribe 'de-AT': it knows English only");
        let codes: Vec<String> = ('a'..='z').map(|c| format!("a{c}")).collect();
        let many = FakeStt::default().of_languages(&codes.iter().map(String::as_str).collect::<Vec<_>>());
        let error = asked(&many, "de").expect_err("refused");
        assert!(error.ends_with("it knows aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al and 14 more"), "{error}");
        let error = asked(&english, "../en").expect_err("refused");
        assert!(error.starts_with("'../en' is no language"), "{error}");
        let error = asked(&english, DETECT_LANGUAGE).expect_err("refused");
        assert!(error.contains("cannot detect the language"), "{error}");
    }
}
