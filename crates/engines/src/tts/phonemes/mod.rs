//! Text to phonemes, by espeak-ng: what the neural voice families (`piper`, `kokoro`) read instead of letters.
//!
//! espeak-ng keeps its voice, its tables and half-read text in global variables, so calls are serialized by a
//! process-wide lock. It is called on engine threads, never on the runtime's. The cost, on
//! one core of two: a sentence of 15 words 0.2 to 0.4 ms; the first language 15 ms; another language than the last time
//! 0.1 to 0.4 ms (German, French), up to 14 ms where the dictionary is large (Russian, Mandarin). With a neural voice a
//! sentence takes hundreds of times that, so the lock is no bottleneck below some 2000 sentences a second.
//!
//! The answer is IPA as espeak-ng writes it, clause by clause with the punctuation that ended each, decomposed (NFD) as
//! Piper's phonemizer does it, without the marks of foreign words such as `(en)`. It maps to no model's alphabet and
//! decides nothing about pauses: the families do. English years and ordinals that espeak-ng reads badly become words first.

mod clauses;
mod figures;
mod library;
mod pieces;

pub use clauses::Mark;
pub use pieces::{Border, first_piece, pieces};

use antiphon_engine_api::tts::TtsError;
use icu_normalizer::DecomposingNormalizerBorrowed;
use library::Espeak;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The character that joins the letters of one phoneme where ties are asked for: `a^ɪ`.
pub const TIE: char = '^';

/// A piece of text between two punctuation marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// IPA in NFD, words parted by single spaces. Not empty.
    pub phonemes: String,
    /// The punctuation behind it.
    pub mark: Option<Mark>,
    /// Whether a sentence ends here.
    pub ends_sentence: bool,
}

/// A language's phonemes. Cheap to make and to clone; all share the process' one espeak-ng.
#[derive(Clone, Debug)]
pub struct Phonemizer {
    language: String,
    ties: bool,
}

impl Phonemizer {
    /// For espeak-ng's language `tag`, such as `en-us`, `en-gb-x-rp` or `fr-fr`; with `ties`, the letters of one phoneme
    /// are joined by [`TIE`]. Opens the library at the first call and loads the language: blocks for some 15 ms.
    /// [`TtsError::Unavailable`] where library, data or language are missing.
    pub fn open(tag: &str, ties: bool) -> Result<Self, TtsError> {
        owner().espeak()?.choose(tag)?;
        Ok(Self { language: tag.to_owned(), ties })
    }

    /// The clauses of `text`. Empty where nothing in it can be spoken: no letter and no digit. Blocks, see the module;
    /// cannot be cancelled.
    pub fn clauses(&self, text: &str) -> Result<Vec<Clause>, TtsError> {
        if !text.chars().any(char::is_alphanumeric) {
            return Ok(Vec::new());
        }
        let text: String = text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
        let text = if self.is_english() { figures::in_words(&text) } else { text };
        let text = CString::new(text).expect("control characters were replaced");
        let tie = self.ties.then_some(TIE as u8);
        let mut found = Vec::new();
        let mut owner = owner();
        let espeak = owner.espeak()?;
        espeak.choose(&self.language)?;
        espeak.clauses(&text, tie, |phonemes, taken, is_last| {
            let end = clauses::end_of(&String::from_utf8_lossy(taken), is_last);
            let phonemes = tidy(phonemes);
            if !phonemes.is_empty() {
                let ends_sentence = is_last || end.paragraph || end.mark.is_some_and(Mark::ends_sentence);
                found.push(Clause { phonemes, mark: end.mark, ends_sentence });
            }
        });
        drop(owner);
        if let Some(last) = found.last_mut() {
            last.ends_sentence = true;
        }
        Ok(found)
    }

    fn is_english(&self) -> bool {
        self.language == "en" || self.language.starts_with("en-")
    }
}

/// NFD, no language marks, single spaces.
fn tidy(phonemes: &str) -> String {
    let mut plain = String::with_capacity(phonemes.len());
    let mut rest = phonemes;
    while let Some(open) = rest.find('(') {
        let (before, mark) = rest.split_at(open);
        let Some(close) = mark.find(')').filter(|close| is_tag(&mark[1..*close])) else {
            break;
        };
        plain.push_str(before);
        rest = &mark[close + 1..];
    }
    plain.push_str(rest);
    let single = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    DecomposingNormalizerBorrowed::new_nfd().normalize(&single).into_owned()
}

/// Whether `text` is a language's tag, such as `en-us`.
fn is_tag(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// The lock on the process' espeak-ng.
struct Owner(MutexGuard<'static, Option<Espeak>>);

/// Waits for the lock. A panic of an earlier owner leaves nothing half-done: the next call sets everything again.
fn owner() -> Owner {
    static ESPEAK: Mutex<Option<Espeak>> = Mutex::new(None);
    Owner(ESPEAK.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Owner {
    /// The library, opened where it is not yet. A failure is not remembered.
    fn espeak(&mut self) -> Result<&mut Espeak, TtsError> {
        if self.0.is_none() {
            *self.0 = Some(Espeak::open()?);
        }
        Ok(self.0.as_mut().expect("opened above"))
    }
}

#[cfg(test)]
mod tests;
