//! The test set: who gives an answer, in which language, and what is said.
//!
//! [`super::run`] reads it. Nothing here speaks or calls.

use crate::BenchError;
use clap::ValueEnum;
use std::path::Path;

/// A part of the test set. The comments are the help of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AnswerSplit {
    /// The answers by which the phrases were chosen: the first of each pair of lines
    Dev,
    /// Those that were held back: the second of each pair
    Held,
    /// Both
    All,
}

impl AnswerSplit {
    /// Whether the line of this index, from 0, is part of it.
    fn has(self, index: usize) -> bool {
        match self {
            Self::Dev => index.is_multiple_of(2),
            Self::Held => !index.is_multiple_of(2),
            Self::All => true,
        }
    }
}

/// Who gives an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Label {
    Person,
    Voicemail,
    Screening,
    Ivr,
}

impl Label {
    /// All of them.
    pub(super) const ALL: [Self; 4] = [Self::Person, Self::Voicemail, Self::Screening, Self::Ivr];

    /// As the file and the hub write it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Voicemail => "voicemail",
            Self::Screening => "screening",
            Self::Ivr => "ivr",
        }
    }

    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|label| label.name() == name)
    }
}

/// A line of the test set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) label: Label,
    /// Such as `en`.
    pub(super) language: String,
    pub(super) text: String,
}

impl Answer {
    /// The country code of a number at which its language is spoken; of one that is not listed, that of English.
    pub(super) fn country_code(&self) -> &'static str {
        match self.language.as_str() {
            "de" => "+49",
            "es" => "+34",
            "fr" => "+33",
            _ => "+1",
        }
    }

    /// Reads label, language and text, with tabs between them. `None`: the line is something else.
    fn read(line: &str) -> Option<Self> {
        let mut columns = line.split('\t');
        let label = Label::of(columns.next()?)?;
        let language = columns.next()?.to_owned();
        let text = columns.next()?.to_owned();
        columns.next().is_none().then_some(Self { label, language, text })
    }
}

/// The answers of a part of the file. Blocks.
///
/// # Errors
/// The file cannot be read, or a line of it is none.
pub(super) fn read(path: &Path, split: AnswerSplit) -> Result<Vec<Answer>, BenchError> {
    let failed = |why: String| BenchError::Clips(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let mut answers = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = || failed(format!("line {} has no label, language and text with tabs between them", index + 1));
        let answer = Answer::read(line).ok_or_else(wrong)?;
        if split.has(index) {
            answers.push(answer);
        }
    }
    Ok(answers)
}

/// At most `n` of the items, from all places of the list.
pub(super) fn spread<T: Clone>(items: &[T], n: usize) -> Vec<T> {
    let n = n.min(items.len());
    (0..n).map(|i| items[i * items.len() / n].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_the_repository_have_two_halves_alike() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let file = root.join(super::super::LINES);
        let held = read(&file, AnswerSplit::Held).expect("readable");
        let dev = read(&file, AnswerSplit::Dev).expect("readable");
        for label in Label::ALL {
            let n = |answers: &[Answer]| answers.iter().filter(|answer| answer.label == label).count();
            assert_eq!(n(&held), n(&dev), "{label:?}");
        }
        assert_eq!(read(&file, AnswerSplit::All).expect("readable").len(), held.len() + dev.len());
        assert!(held.iter().all(|answer| ["en", "de", "es", "fr"].contains(&answer.language.as_str())));
    }

    #[test]
    fn a_line_has_three_columns() {
        let answer = Answer::read("person\ten\tHello?").expect("a line");
        assert_eq!((answer.label, answer.text.as_str()), (Label::Person, "Hello?"));
        assert_eq!(Answer::read("person\tHello?"), None);
        assert_eq!(Answer::read("robot\ten\tHello?"), None);
        assert_eq!(Answer::read("person\ten\tHello?\tmore"), None);
    }

    #[test]
    fn a_part_of_a_list_is_from_all_of_it() {
        assert_eq!(spread(&[0, 1, 2, 3, 4, 5], 3), [0, 2, 4]);
        assert_eq!(spread(&[0, 1], 3), [0, 1]);
    }
}
