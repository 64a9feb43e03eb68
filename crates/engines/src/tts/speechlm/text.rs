//! Text to ids: the family's template, its tokenizer, its small corrections of punctuation. Called once a chunk.

use super::contract::Contract;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::Tokenizer;

/// A tokenizer that cannot be used, or a text that it does not take.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The file is none, or cannot be read.
    #[error("the tokenizer {} cannot be used: {message}; pull the model again (`antiphon models pull`)", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The tokenizer is of another model.
    #[error("the tokenizer {} is of another model: it has {has} ids, and the contract {contract} says {wanted}", path.display())]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// Its ids.
        has: usize,
        /// The contract's.
        wanted: usize,
        /// The contract's name.
        contract: String,
    },
    /// The text cannot be tokenized.
    #[error("the text cannot be tokenized: {0}")]
    Text(String),
}

/// See the module.
pub struct TextReader {
    contract: Arc<Contract>,
    tokenizer: Tokenizer,
}

impl TextReader {
    /// Loads the tokenizer. Blocks for some ten milliseconds.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`], [`TextError::OtherModel`].
    pub fn open(path: &Path, contract: &Arc<Contract>) -> Result<Self, TextError> {
        let tokenizer = Tokenizer::from_file(path)
            .map_err(|error| TextError::Tokenizer { path: path.into(), message: error.to_string() })?;
        let (has, wanted) = (tokenizer.get_vocab_size(true), contract.text.vocabulary);
        if wanted > 0 && has != wanted {
            return Err(TextError::OtherModel { path: path.into(), has, wanted, contract: contract.name.clone() });
        }
        Ok(Self { contract: contract.clone(), tokenizer })
    }

    /// The ids of a short text with the highest id of the tokenizer in its middle: what no other prompt exceeds.
    ///
    /// # Errors
    /// [`TextError::Text`].
    pub fn widest_prompt(&self) -> Result<Vec<i64>, TextError> {
        let mut ids = self.ids("One, two, three.", &self.contract.languages[0])?;
        let highest = self.tokenizer.get_vocab(true).values().copied().max().map_or(0, i64::from);
        let middle = ids.len() / 2;
        if let Some(id) = ids.get_mut(middle) {
            *id = highest;
        }
        Ok(ids)
    }

    /// The ids of a text in a language (BCP-47). Takes some ten microseconds a sentence.
    ///
    /// # Errors
    /// [`TextError::Text`].
    pub fn ids(&self, text: &str, language: &str) -> Result<Vec<i64>, TextError> {
        let rules = &self.contract.text;
        let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if rules.capitalise
            && let Some(first) = text.chars().next().filter(|first| first.is_lowercase())
        {
            text = first.to_uppercase().chain(text.chars().skip(1)).collect();
        }
        for (from, to) in &rules.replace {
            text = text.replace(from.as_str(), to);
        }
        let text = text.trim_end();
        let ends = text.chars().next_back().is_some_and(|last| ".!?-,、，。？！".contains(last));
        let end = if ends { "" } else { rules.end.as_str() };
        let code = language.split('-').next().unwrap_or_default().to_lowercase();
        let written = rules.template.replace("{language}", &code).replace("{text}", &format!("{text}{end}"));
        let encoding = self.tokenizer.encode(written, true).map_err(|error| TextError::Text(error.to_string()))?;
        Ok(encoding.get_ids().iter().map(|id| i64::from(*id)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{contract, fixture};
    use super::*;

    fn reader(change: impl FnOnce(&mut Contract)) -> Result<TextReader, TextError> {
        let mut contract = contract("language_model.onnx");
        change(&mut contract);
        TextReader::open(&fixture("tokenizer.json"), &Arc::new(contract))
    }

    #[test]
    fn a_text_is_corrected_and_ends_in_punctuation() {
        let reader = reader(|_| {}).expect("the fixture");
        let ids = |text: &str| reader.ids(text, "en-US").expect("ids");
        assert_eq!(ids("Hello there"), ids("Hello  there."));
        assert_eq!(ids("Well:yes!"), ids("Well,yes!"));
        assert_ne!(ids("Hello?"), ids("Hello."));
        assert!(ids("Hello.").iter().max() <= reader.widest_prompt().expect("ids").iter().max());
    }

    #[test]
    fn a_first_letter_becomes_a_capital_where_the_contract_says_so() {
        let reader = reader(|contract| contract.text.capitalise = true).expect("the fixture");
        assert_eq!(reader.ids("so it is.", "en").expect("ids"), reader.ids("So it is.", "en").expect("ids"));
    }

    #[test]
    fn the_language_is_part_of_the_template() {
        let reader = reader(|contract| contract.text.template = "[{language}]{text}".into()).expect("the fixture");
        assert_eq!(reader.ids("So.", "pt-BR").expect("ids"), reader.ids("So.", "pt").expect("ids"));
        assert_ne!(reader.ids("So.", "pt").expect("ids"), reader.ids("So.", "de").expect("ids"));
    }

    #[test]
    fn a_tokenizer_of_another_model_is_refused() {
        let error = reader(|contract| contract.text.vocabulary = 50_276).err().expect("refused").to_string();
        assert!(error.contains("is of another model: it has") && error.contains("says 50276"), "{error}");
        let contract = Arc::new(contract("language_model.onnx"));
        let error = TextReader::open(&fixture("golden.json"), &contract).err().expect("refused").to_string();
        assert!(error.contains("golden.json cannot be used"), "{error}");
    }
}
