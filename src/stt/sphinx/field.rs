//! The field: the vocabulary, language model and dictionary of what the offline assistant understands.
//!
//! `field.grammar` says what people ask it, `words.txt` what they may ask it to spell or repeat. A 3-gram of sentences
//! drawn from the grammar leaves a wording possible that nobody wrote down; the grammar itself (`exact.grammar`, a smaller
//! one) lets no half sentence through. Both are searched. Made once at start, by `Sphinx::open`; each decoder loads it.

use super::automaton::{Alternates, Automaton};
use super::grammar::{Dice, Grammar};
use super::model::Model;
use super::ngram::Counts;
use crate::stt::SttError;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

const GRAMMAR: &str = include_str!("field.grammar");
const EXACT: &str = include_str!("exact.grammar");
const WORDS: &str = include_str!("words.txt");

/// How many sentences are drawn: enough that each open word comes after each common lead-in several times.
const N_SENTENCES: usize = 100_000;

/// Words of the field that the model's dictionary lacks, with their phones.
const PRONUNCIATIONS: [(&str, &str); 2] =
    [("factorial", "F AE K T AO R IY AH L"), ("onomatopoeia", "AA N AH M AA T AH P IY AH")];

/// Language model, grammar and dictionary as text.
pub(super) struct Field {
    language: String,
    exact: String,
    dictionary: String,
}

impl Field {
    /// Draws the sentences and counts them, the two models at the same time. Blocks for some hundred milliseconds.
    pub(super) fn make(model: &Model) -> Result<Self, SttError> {
        let open_words: Vec<&str> = WORDS.lines().chain(PRONUNCIATIONS.map(|(word, _)| word)).collect();
        let grammar = Grammar::read(GRAMMAR, "<request>", &open_words).map_err(failure)?;
        let dictionary = dictionary(grammar.words(), &model.dictionary())?;
        let (language, exact) = thread::scope(|scope| {
            let exact = scope.spawn(|| exact(&open_words, &alternates(&dictionary)));
            (language(&grammar), exact.join())
        });
        let exact = exact.map_err(|_| failure("the grammar could not be written out".into()))??;
        Ok(Self { language, exact, dictionary })
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
        self.0.join("field.lm")
    }

    pub(super) fn exact(&self) -> PathBuf {
        self.0.join("field.fsg")
    }

    pub(super) fn dictionary(&self) -> PathBuf {
        self.0.join("field.dict")
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
fn exact(open_words: &[&str], alternates: &Alternates) -> Result<String, SttError> {
    let grammar = Grammar::read(&format!("{GRAMMAR}{EXACT}"), "<request>", open_words).map_err(failure)?;
    Ok(Automaton::new(&grammar).text(&grammar, N_SENTENCES, alternates))
}

/// The lines of the model's dictionary whose word is in the vocabulary, second pronunciations with it, and our own.
fn dictionary(words: &[String], path: &Path) -> Result<String, SttError> {
    let all =
        fs::read(path).map_err(|cause: io::Error| failure(format!("{} cannot be read: {cause}", path.display())))?;
    let all = String::from_utf8_lossy(&all);
    let wanted: HashSet<&str> = words.iter().map(String::as_str).collect();
    let word_of = |line: &str| line.split([' ', '(']).next().unwrap_or_default().to_owned();
    let mut text = String::new();
    for line in all.lines().filter(|line| wanted.contains(word_of(line).as_str())) {
        text.push_str(line);
        text.push('\n');
    }
    for (word, phones) in PRONUNCIATIONS {
        text.push_str(&format!("{word} {phones}\n"));
    }
    Ok(text)
}

fn failure(message: String) -> SttError {
    SttError::Engine { message, source: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_whole_and_draws_sentences() {
        let open_words: Vec<&str> = WORDS.lines().collect();
        let grammar = Grammar::read(GRAMMAR, "<request>", &open_words).unwrap();
        let (mut dice, mut sentence, mut n_words) = (Dice(1), Vec::new(), 0);
        for _ in 0..1000 {
            grammar.draw(&mut dice, &mut sentence);
            n_words += sentence.len();
        }
        assert!((3_000..20_000).contains(&n_words), "{n_words}");
    }

    #[test]
    fn every_word_of_the_field_has_its_phones() {
        let model = Model::at("");
        let field = Field::make(&model).unwrap();
        let known: HashSet<&str> = field.dictionary.lines().filter_map(|line| line.split([' ', '(']).next()).collect();
        let open_words: Vec<&str> = WORDS.lines().collect();
        let grammar = Grammar::read(GRAMMAR, "<request>", &open_words).unwrap();
        let missing: Vec<_> = grammar.words().iter().filter(|word| !known.contains(word.as_str())).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn the_files_are_gone_after_loading() {
        let field = Field { language: "a".into(), exact: "c".into(), dictionary: "b".into() };
        let files = field.write().unwrap();
        assert_eq!(fs::read_to_string(files.language()).unwrap(), "a");
        let folder = files.0.clone();
        drop(files);
        assert!(!folder.exists());
    }
}
