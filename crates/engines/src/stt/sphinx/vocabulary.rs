//! A vocabulary hint as PocketSphinx's models: language model, grammar and dictionary of the sentences that a language model
//! understands.
//!
//! A 3-gram of sentences drawn from the hint's grammar leaves a wording possible that nobody wrote down; the grammar itself
//! (its `exact` rules, which are fewer) lets no half sentence through. Both are searched. Made once at start, by
//! [`super::open`]; each decoder loads it.

use super::automaton::{Alternates, Automaton};
use super::grammar::{Dice, Grammar};
use super::model::Model;
use super::ngram::Counts;
use antiphon_engine_api::stt::{SttError, VocabularyHint};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// The first rule of a hint's grammars.
const START: &str = "<request>";

/// How many sentences are drawn: enough that each open word comes after each common lead-in several times.
const N_SENTENCES: usize = 100_000;

/// Language model, grammar and dictionary as text.
pub(super) struct Vocabulary {
    hint: Arc<VocabularyHint>,
    language: String,
    exact: String,
    dictionary: String,
}

impl Vocabulary {
    /// Draws the sentences and counts them, the two models at the same time. Blocks for some hundred milliseconds.
    pub(super) fn make(model: &Model, hint: Arc<VocabularyHint>) -> Result<Self, SttError> {
        let open_words = open_words(&hint);
        let grammar = Grammar::read(&hint.grammar, START, &open_words).map_err(failure)?;
        let dictionary = dictionary(grammar.words(), &model.dictionary(), &hint.pronunciations)?;
        let (language, exact) = thread::scope(|scope| {
            let exact = scope.spawn(|| exact(&hint, &open_words, &alternates(&dictionary)));
            (language(&grammar), exact.join())
        });
        let exact = exact.map_err(|_| failure("the grammar could not be written out".into()))??;
        drop(open_words);
        Ok(Self { hint, language, exact, dictionary })
    }

    /// Whether it was made of this hint.
    pub(super) fn is_of(&self, hint: &Arc<VocabularyHint>) -> bool {
        Arc::ptr_eq(&self.hint, hint) || self.hint == *hint
    }

    /// Writes them for a decoder that is being loaded; they are gone when the result is dropped.
    pub(super) fn write(&self) -> Result<Files, SttError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("antiphon-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let files = Files(std::env::temp_dir().join(name));
        let written = fs::create_dir(&files.0)
            .and_then(|()| fs::write(files.language(), &self.language))
            .and_then(|()| fs::write(files.exact(), &self.exact))
            .and_then(|()| fs::write(files.dictionary(), &self.dictionary));
        written.map_err(|source| SttError::Engine {
            message: format!("the language model cannot be written to {}", files.0.display()),
            source: Some(Box::new(source)),
        })?;
        Ok(files)
    }
}

/// A folder for the time of loading: PocketSphinx reads its models from files only.
pub(super) struct Files(PathBuf);

impl Files {
    pub(super) fn language(&self) -> PathBuf {
        self.0.join("vocabulary.lm")
    }

    pub(super) fn exact(&self) -> PathBuf {
        self.0.join("vocabulary.fsg")
    }

    pub(super) fn dictionary(&self) -> PathBuf {
        self.0.join("vocabulary.dict")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // Nothing to be done about a folder that cannot be removed; it holds nothing private.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The 3-gram of drawn sentences.
fn language(grammar: &Grammar) -> String {
    let mut counts = Counts::default();
    let (mut dice, mut sentence) = (Dice(1), Vec::new());
    for _ in 0..N_SENTENCES {
        grammar.draw(&mut dice, &mut sentence);
        counts.add(&sentence);
    }
    for word in grammar.open_words() {
        counts.add_word(*word);
    }
    counts.arpa(grammar.words())
}

/// The second and later pronunciations in the dictionary's lines.
fn alternates(dictionary: &str) -> Alternates {
    let mut alternates = Alternates::new();
    for name in dictionary.lines().filter_map(|line| line.split(' ').next()) {
        if let Some((word, _)) = name.split_once('(') {
            alternates.entry(word.to_owned()).or_default().push(name.to_owned());
        }
    }
    alternates
}

/// The automaton of both grammars' rules.
fn exact(hint: &VocabularyHint, open_words: &[&str], alternates: &Alternates) -> Result<String, SttError> {
    let grammar = Grammar::read(&format!("{}{}", hint.grammar, hint.exact), START, open_words).map_err(failure)?;
    Ok(Automaton::new(&grammar).text(&grammar, N_SENTENCES, alternates))
}

/// The hint's words for `<word>`.
fn open_words(hint: &VocabularyHint) -> Vec<&str> {
    let further = hint.pronunciations.lines().filter_map(|line| line.split(' ').next());
    hint.words.lines().chain(further).collect()
}

/// The lines of the model's dictionary whose word is in the vocabulary, second pronunciations with it, and the hint's own.
fn dictionary(words: &[String], path: &Path, own: &str) -> Result<String, SttError> {
    let all =
        fs::read(path).map_err(|cause: io::Error| failure(format!("{} cannot be read: {cause}", path.display())))?;
    let all = String::from_utf8_lossy(&all);
    let requested: HashSet<&str> = words.iter().map(String::as_str).collect();
    let word_of = |line: &str| line.split([' ', '(']).next().unwrap_or_default().to_owned();
    let mut text = String::new();
    for line in all.lines().filter(|line| requested.contains(word_of(line).as_str())) {
        text.push_str(line);
        text.push('\n');
    }
    text.push_str(own);
    Ok(text)
}

fn failure(message: String) -> SttError {
    SttError::Engine { message, source: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint() -> Arc<VocabularyHint> {
        Arc::new(VocabularyHint {
            grammar: "<request> = please spell <word> | count to <number>; <number> = one | two | three;".into(),
            exact: "<request> = spell <every_word>;".into(),
            words: "apple\nbanana\n".into(),
            pronunciations: "zyzzyva Z IH Z IH V AH\n".into(),
        })
    }

    #[test]
    fn models_hold_the_hints_words_and_no_others() {
        let made = Vocabulary::make(&Model::at(""), hint()).unwrap();
        let words: HashSet<&str> = made.dictionary.lines().filter_map(|line| line.split([' ', '(']).next()).collect();
        let expect = ["please", "spell", "apple", "banana", "zyzzyva", "count", "to", "one", "two", "three"];
        assert_eq!(words, HashSet::from(expect));
        assert!(made.language.contains("zyzzyva") && made.exact.contains("banana"));
        assert!(!made.exact.contains("please"), "the exact rules replace the others");
        let same = hint();
        assert!(made.is_of(&same));
        assert!(!made.is_of(&Arc::new(VocabularyHint { words: "pear\n".into(), ..(*same).clone() })));
    }

    #[test]
    fn a_grammar_that_cannot_be_read_is_an_error() {
        let broken = VocabularyHint { grammar: "<request> = <missing>;".into(), ..(*hint()).clone() };
        assert!(Vocabulary::make(&Model::at(""), Arc::new(broken)).is_err());
    }

    #[test]
    fn the_files_are_gone_after_loading() {
        let made = Vocabulary { hint: hint(), language: "a".into(), exact: "c".into(), dictionary: "b".into() };
        let files = made.write().unwrap();
        assert_eq!(fs::read_to_string(files.language()).unwrap(), "a");
        let folder = files.0.clone();
        drop(files);
        assert!(!folder.exists());
    }
}
