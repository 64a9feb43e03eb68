//! Text to ids: the family's templates, its tokenizer, its small corrections of punctuation. Called once a chunk.
//!
//! Of the tokenizer's added tokens a text may use marks alone (`[laugh]`, and what the contract lists); others are removed from
//! what users say, so that no text ends its own prompt.

use super::super::voices::AUTO;
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
    /// There is nothing to say.
    #[error("the text has nothing that could be spoken")]
    Nothing,
    /// The instructions are too long.
    #[error(
        "the instructions for the voice are too long: {has} tokens with their template, at most {MAX_INSTRUCTION_IDS}"
    )]
    Instructions {
        /// Their tokens.
        has: usize,
    },
}

/// Tokens of the instructions, with their template: they are read again for each chunk.
const MAX_INSTRUCTION_IDS: usize = 256;

/// See the module.
pub struct TextReader {
    contract: Arc<Contract>,
    tokenizer: Tokenizer,
    /// Added tokens that texts may use.
    marks: Vec<String>,
    /// Added tokens that only templates may use.
    controls: Vec<String>,
}

/// What is to be spoken, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextToSpeak<'a> {
    /// The text.
    pub text: &'a str,
    /// Its language (BCP-47), or `auto`: by the text; empty: not known.
    pub language: &'a str,
    /// The words of the voice's recording; empty: not known.
    pub transcript: &'a str,
    /// How to speak; empty: as the voice does.
    pub instructions: &'a str,
}

/// The ids of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Of each input of `[[prompt.ids]]`, or the text's alone where there is no `[prompt]`.
    pub inputs: Vec<Vec<i64>>,
    /// The language, where the family has a number for it.
    pub language: i64,
}

impl Ids {
    /// All of them.
    pub fn n_ids(&self) -> usize {
        self.inputs.iter().map(Vec::len).sum()
    }
}

impl TextReader {
    /// Loads the tokenizer. Blocks for some ten milliseconds.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`], [`TextError::OtherModel`].
    pub fn open(path: &Path, contract: &Arc<Contract>) -> Result<Self, TextError> {
        let tokenizer = Tokenizer::from_file(path)
            .map_err(|error| TextError::Tokenizer { path: path.into(), message: error.to_string() })?;
        let has = tokenizer.get_vocab_size(true);
        if let Some(wanted) = contract.text.vocabulary.filter(|wanted| *wanted != has) {
            return Err(TextError::OtherModel { path: path.into(), has, wanted, contract: contract.name.clone() });
        }
        let added = tokenizer.get_added_tokens_decoder().into_values().map(|token| token.content);
        let added = added.filter(|token| token.starts_with(['<', '[']) && token.ends_with(['>', ']']));
        let (marks, controls) = added.partition(|token| is_mark(token, &contract.text.marks));
        Ok(Self { contract: contract.clone(), tokenizer, marks, controls })
    }

    /// What texts may hold beside words: "[laugh]".
    pub fn marks(&self) -> &[String] {
        &self.marks
    }

    /// The ids of a short text with the highest id of the tokenizer in its middle: what no other prompt exceeds.
    ///
    /// # Errors
    /// [`TextError::Text`].
    pub fn widest_prompt(&self) -> Result<Ids, TextError> {
        let text = "One, two, three.";
        let language = &self.contract.languages[0];
        let mut ids = self.ids(TextToSpeak { text, language, transcript: text, instructions: text })?;
        let highest = self.tokenizer.get_vocab(true).values().copied().max().map_or(0, i64::from);
        for ids in &mut ids.inputs {
            let middle = ids.len() / 2;
            if let Some(id) = ids.get_mut(middle) {
                *id = highest;
            }
        }
        Ok(ids)
    }

    /// The ids of a chunk. Takes some ten microseconds a sentence.
    ///
    /// # Errors
    /// [`TextError::Nothing`] where no word is left, [`TextError::Instructions`], [`TextError::Text`].
    pub fn ids(&self, spoken: TextToSpeak<'_>) -> Result<Ids, TextError> {
        let code = match spoken.language {
            AUTO => detected(spoken.text, &self.contract.languages),
            tag => tag.split('-').next().unwrap_or_default().to_lowercase(),
        };
        let spoken = [self.worded(spoken.text), self.cleaned(spoken.transcript), self.cleaned(spoken.instructions)];
        if spoken[0].trim().is_empty() {
            return Err(TextError::Nothing);
        }
        let Some(prompt) = self.contract.prompt() else {
            let ids = self.filled(&self.contract.text.template, &code, &spoken)?;
            return Ok(Ids { inputs: vec![ids], language: 0 });
        };
        let mut inputs = Vec::with_capacity(prompt.ids.len());
        for input in &prompt.ids {
            let ids = self.filled(&input.template, &code, &spoken)?;
            let is_instructions = input.template.contains("{instructions}") && !input.template.contains("{text}");
            if is_instructions && ids.len() > MAX_INSTRUCTION_IDS {
                return Err(TextError::Instructions { has: ids.len() });
            }
            inputs.push(ids);
        }
        let language = prompt.language.as_ref().map_or(0, |of| of.ids.get(&code).copied().unwrap_or(of.auto));
        Ok(Ids { inputs, language })
    }

    /// The ids of a template; none where all that it has to say is empty.
    fn filled(&self, template: &str, language: &str, spoken: &[String; 3]) -> Result<Vec<i64>, TextError> {
        let holes = ["{text}", "{transcript}", "{instructions}"];
        let in_template: Vec<_> = holes.iter().zip(spoken).filter(|(hole, _)| template.contains(**hole)).collect();
        if !in_template.is_empty() && in_template.iter().all(|(_, words)| words.is_empty()) {
            return Ok(Vec::new());
        }
        // In one pass, since what is put in may look like a hole.
        let mut written = String::with_capacity(template.len() + spoken.iter().map(String::len).sum::<usize>());
        let mut rest = template;
        while let Some(start) = rest.find('{') {
            let (before, from) = rest.split_at(start);
            written.push_str(before);
            let hole = holes.iter().zip(spoken).find(|(hole, _)| from.starts_with(**hole));
            rest = match hole {
                Some((hole, words)) => {
                    written.push_str(words);
                    &from[hole.len()..]
                }
                None if from.starts_with("{language}") => {
                    written.push_str(language);
                    &from["{language}".len()..]
                }
                None => {
                    written.push('{');
                    &from[1..]
                }
            };
        }
        written.push_str(rest);
        let encoding = self.tokenizer.encode(written, true).map_err(|error| TextError::Text(error.to_string()))?;
        Ok(encoding.get_ids().iter().map(|id| i64::from(*id)).collect())
    }

    /// A text in the wording that the family was trained on.
    fn worded(&self, text: &str) -> String {
        let rules = &self.contract.text;
        let mut text = self.cleaned(text);
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
        let end = if ends || text.is_empty() { "" } else { rules.end.as_str() };
        // What was replaced may have made a control.
        self.cleaned(&format!("{text}{end}"))
    }

    /// Words with single spaces and without tokens that only templates may use.
    fn cleaned(&self, words: &str) -> String {
        let mut words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        // Until none is left: what is removed may leave another one behind.
        while words.contains(['<', '['])
            && let Some(control) = self.controls.iter().find(|control| words.contains(control.as_str()))
        {
            words = words.replace(control.as_str(), "");
        }
        words
    }
}

/// Whether a text may use an added token: one that the contract lists, or small letters in square brackets.
fn is_mark(token: &str, listed: &[String]) -> bool {
    let inside = token.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_small = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == ' ');
    listed.iter().any(|known| known == token) || inside.is_some_and(is_small)
}

/// The language of a text, by two letters, among those of a family; empty where it cannot be detected.
fn detected(text: &str, languages: &[String]) -> String {
    let code = |tag: &str| tag.split('-').next().unwrap_or_default().to_lowercase();
    let known = languages.iter().filter_map(|tag| LANGUAGES.iter().find(|(two, _)| *two == code(tag)));
    let known: Vec<_> = known.collect();
    let detector = whatlang::Detector::with_allowlist(known.iter().map(|(_, lang)| *lang).collect());
    let found = detector.detect(text).filter(whatlang::Info::is_reliable);
    let two = found.and_then(|info| known.iter().find(|(_, lang)| *lang == info.lang()));
    two.map_or_else(String::new, |(two, _)| (*two).to_owned())
}

/// Languages that can be distinguished, by the two letters of their tags.
const LANGUAGES: [(&str, whatlang::Lang); 28] = {
    use whatlang::Lang;
    [
        ("ar", Lang::Ara),
        ("cs", Lang::Ces),
        ("da", Lang::Dan),
        ("de", Lang::Deu),
        ("el", Lang::Ell),
        ("en", Lang::Eng),
        ("es", Lang::Spa),
        ("fa", Lang::Pes),
        ("fi", Lang::Fin),
        ("fr", Lang::Fra),
        ("he", Lang::Heb),
        ("hi", Lang::Hin),
        ("hu", Lang::Hun),
        ("id", Lang::Ind),
        ("it", Lang::Ita),
        ("ja", Lang::Jpn),
        ("ko", Lang::Kor),
        ("nl", Lang::Nld),
        ("no", Lang::Nob),
        ("pl", Lang::Pol),
        ("pt", Lang::Por),
        ("ro", Lang::Ron),
        ("ru", Lang::Rus),
        ("sv", Lang::Swe),
        ("tr", Lang::Tur),
        ("uk", Lang::Ukr),
        ("vi", Lang::Vie),
        ("zh", Lang::Cmn),
    ]
};

#[cfg(test)]
mod tests {
    use super::super::testing::{contract, fixture};
    use super::*;

    fn reader(change: impl FnOnce(&mut Contract)) -> Result<TextReader, TextError> {
        let mut contract = contract("language_model.onnx");
        change(&mut contract);
        TextReader::open(&fixture("tokenizer.json"), &Arc::new(contract))
    }

    /// The ids of a text.
    fn of(reader: &TextReader, text: &str, language: &str) -> Vec<i64> {
        reader.ids(TextToSpeak { text, language, ..TextToSpeak::default() }).expect("ids").inputs.remove(0)
    }

    #[test]
    fn a_text_is_corrected_and_ends_in_punctuation() {
        let reader = reader(|_| {}).expect("the fixture");
        let ids = |text: &str| of(&reader, text, "en-US");
        assert_eq!(ids("Hello there"), ids("Hello  there."));
        assert_eq!(ids("Well:yes!"), ids("Well,yes!"));
        assert_ne!(ids("Hello?"), ids("Hello."));
        let widest = reader.widest_prompt().expect("ids");
        assert!(ids("Hello.").iter().max() <= widest.inputs[0].iter().max());
        assert_eq!(widest.inputs.len(), 1);
    }

    #[test]
    fn a_first_letter_becomes_a_capital_where_the_contract_says_so() {
        let reader = reader(|contract| contract.text.capitalise = true).expect("the fixture");
        assert_eq!(of(&reader, "so it is.", "en"), of(&reader, "So it is.", "en"));
    }

    #[test]
    fn the_language_is_part_of_the_template() {
        let reader = reader(|contract| contract.text.template = "[{language}]{text}".into()).expect("the fixture");
        assert_eq!(of(&reader, "So.", "pt-BR"), of(&reader, "So.", "pt"));
        assert_ne!(of(&reader, "So.", "pt"), of(&reader, "So.", "de"));
    }

    #[test]
    fn the_language_of_a_text_is_told_where_it_can_be() {
        let languages = ["en".to_owned(), "de-DE".into(), "zh".into(), "fr".into()];
        for (text, language) in [
            ("The train to the coast leaves at nine in the morning, and the keys are on the table.", "en"),
            ("Der Zug an die Kueste faehrt um neun Uhr ab, und der Schluessel liegt auf dem Tisch.", "de"),
            ("今天天气很好，我们去公园吧。", "zh"),
            ("Hm.", ""),
        ] {
            assert_eq!(detected(text, &languages), language, "{text}");
        }
    }

    #[test]
    fn a_tokenizer_of_another_model_is_refused() {
        let error = reader(|contract| contract.text.vocabulary = Some(50_276)).err().expect("refused").to_string();
        assert!(error.contains("is of another model: it has") && error.contains("says 50276"), "{error}");
        let contract = Arc::new(contract("language_model.onnx"));
        let error = TextReader::open(&fixture("golden.json"), &contract).err().expect("refused").to_string();
        assert!(error.contains("golden.json cannot be used"), "{error}");
    }
}
