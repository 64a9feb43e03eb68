//! A family of speech language models as data: its graphs and their ports, the layout of its cache, its ids, its sampling, how
//! its speech is cut into chunks.
//!
//! Contracts are TOML files: those in `contracts/` are built in, `tts.contract` names one of one's own. [`Contract::parse`]
//! refuses what makes no sense; [`files`](super::files) finds the graphs, and each role checks the ports that it uses. Code
//! knows roles (`condition`, `embed`, `decode`, `vocode`), never a family's name.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The form of contract files that this version reads.
const FORMAT: u32 = 1;

/// Built-in contracts: a name and its text.
const BUILT_IN: [(&str, &str); 3] = [
    ("chatterbox-turbo", include_str!("contracts/chatterbox-turbo.toml")),
    ("chatterbox-nano", include_str!("contracts/chatterbox-nano.toml")),
    ("chatterbox-multilingual", include_str!("contracts/chatterbox-multilingual.toml")),
];

/// A contract that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ContractError {
    /// There is no built-in contract for the model.
    #[error(
        "no contract is built in for {model:?}; there are {known}. For another family set tts.contract to a contract file"
    )]
    Unknown {
        /// The model's name.
        model: String,
        /// The names of the built-in ones.
        known: String,
    },
    /// The file cannot be read.
    #[error("tts.contract: {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no contract, or makes no sense.
    #[error("the contract {name} is invalid: {message}")]
    Invalid {
        /// The file, or the built-in one's name.
        name: String,
        /// What is wrong.
        message: String,
    },
}

/// A family.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    format: u32,
    /// Its name, as the registry's.
    pub name: String,
    /// For people.
    pub title: String,
    /// Licence of the weights.
    pub licence: String,
    /// Languages that it speaks, by their BCP-47 tags; the first is the default. Not empty.
    pub languages: Vec<String>,
    /// Rate of its sound, in Hz.
    pub rate_hz: u32,
    /// Samples of sound for one token.
    pub samples_per_token: usize,
    /// What is known of watermarks in its sound, for people.
    pub watermark: String,
    /// How a text becomes ids.
    pub text: Text,
    /// The graph that makes a voice's conditioning from a recording.
    pub condition: Condition,
    /// The graph that embeds ids.
    pub embed: Embed,
    /// The graph of the language model.
    pub decode: Decode,
    /// The graph that makes sound of tokens.
    pub vocode: Vocode,
    /// Ids with a meaning.
    pub tokens: Tokens,
    /// How the next token is drawn.
    pub sampling: Sampling,
    /// Bounds of the speech's length.
    pub length: Length,
    /// How the tokens are cut into chunks of sound.
    pub chunks: Chunks,
}

/// How a text becomes ids.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// The tokenizer's file, of the form of Hugging Face's `tokenizers`.
    pub tokenizer: String,
    /// How many ids that has; 0: any number.
    #[serde(default)]
    pub vocabulary: usize,
    /// What is tokenized: `{text}` and `{language}` (two letters) stand for themselves.
    pub template: String,
    /// Replaced in the text, in this order.
    #[serde(default)]
    pub replace: Vec<(String, String)>,
    /// Whether its first letter becomes a capital.
    #[serde(default)]
    pub capitalise: bool,
    /// Appended to a text that does not end in punctuation.
    #[serde(default)]
    pub end: String,
}

/// The graph that makes a voice's conditioning from a recording.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Its file; `{precision}` stands for the suffix of the model's precision.
    pub file: String,
    /// Input: the recording, f32 [1, samples] at the family's rate.
    pub audio: String,
    /// Output: embeddings before those of the text, [1, length, hidden].
    pub prefix: String,
    /// Output: the recording's own tokens, i64 [1, length].
    pub prompt: String,
    /// The shortest recording.
    pub min_seconds: f32,
    /// What it uses of a longer one.
    pub use_seconds: f32,
}

/// The graph that embeds ids.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embed {
    /// Its file.
    pub file: String,
    /// Input: ids, i64 [batch, length].
    pub ids: String,
    /// Input: positions, i64 [batch, length]; empty: it has none.
    #[serde(default)]
    pub positions: String,
    /// The position of the first id of a text; those of generated tokens are 1, 2, 3.
    #[serde(default)]
    pub first_position: i64,
    /// Ids from this one on are at position 0 in a text.
    #[serde(default = "never")]
    pub zero_position_from: i64,
    /// Inputs with one number for all rows, f32 [batch].
    #[serde(default)]
    pub constants: BTreeMap<String, f32>,
    /// Output: embeddings, [batch, length, hidden].
    pub embeds: String,
}

/// The graph of the language model.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decode {
    /// Its file.
    pub file: String,
    /// Input: embeddings, [batch, length, hidden].
    pub embeds: String,
    /// Input: which columns of the cache, and of what is added, are valid, i64 [batch, total]; empty: it has none.
    #[serde(default)]
    pub mask: String,
    /// Input: positions, i64 [batch, length]; empty: it has none.
    #[serde(default)]
    pub positions: String,
    /// Input: of each row, its length with what is added, less 1, i32 [batch]; empty: it has none.
    #[serde(default)]
    pub lengths: String,
    /// Input: the longest row's length with what is added, i32 []; empty: it has none.
    #[serde(default)]
    pub total: String,
    /// Output: logits, [batch, length, vocabulary].
    pub logits: String,
    /// Inputs of a layer's cache, keys and values, [batch, heads, columns, head size]; `{i}` is the layer.
    pub past: [String; 2],
    /// Outputs that take their places.
    pub present: [String; 2],
    /// Layers.
    pub layers: usize,
    /// Heads of keys and values.
    pub heads: usize,
    /// Numbers of a head.
    pub head_size: usize,
    /// How rows of several lengths share a run.
    pub policy: Policy,
    /// The longest sequence, prompt and speech together, that the graph has positions for; 0: no limit.
    #[serde(default)]
    pub context: usize,
    /// Columns of a cache that is read and written in place; 0: the cache grows by a column each step.
    #[serde(default)]
    pub capacity: usize,
}

/// How rows of several lengths share a run of the language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// A row's columns are its last ones; the mask excludes those before. For plain attention with mask and positions.
    Masked,
    /// A row's columns are its first ones, as many as its length. For attention that takes lengths.
    Ragged,
    /// Each row is a run of its own.
    Single,
}

/// The graph that makes sound of tokens.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vocode {
    /// Its file.
    pub file: String,
    /// Input: tokens, i64 [batch, length].
    pub tokens: String,
    /// Outputs of the conditioning graph that are inputs here, of the same names.
    #[serde(default)]
    pub carry: Vec<String>,
    /// Output: sound, [batch, samples].
    pub waveform: String,
    /// Whether the recording's tokens come first, whose sound the graph leaves out.
    #[serde(default)]
    pub with_prompt: bool,
}

/// Ids with a meaning.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// How many ids the language model chooses from.
    pub vocabulary: usize,
    /// Ids below this one have a sound; others are left out of it.
    pub sounds: i64,
    /// Begins the speech; counts for the repetition penalty.
    pub start: i64,
    /// Ends the speech.
    pub stop: i64,
    /// Silence.
    pub silence: i64,
    /// Tokens of silence behind the speech.
    #[serde(default)]
    pub append_silence: usize,
    /// Codebooks of a frame. This version runs families with one.
    #[serde(default = "one")]
    pub codebooks: usize,
    /// Frames by which each codebook is late; empty: none.
    #[serde(default)]
    pub delays: Vec<usize>,
}

/// How the next token is drawn.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// What is done to the logits, in this order.
    pub order: Vec<Filter>,
    /// Divides the logits; 0: the most likely token is taken.
    pub temperature: f32,
    /// The most likely tokens that stay; 0: all.
    #[serde(default)]
    pub top_k: usize,
    /// The share of probability that stays; 1: all.
    #[serde(default = "whole")]
    pub top_p: f32,
    /// The least probability that stays, as a share of the most likely token's; 0: all.
    #[serde(default)]
    pub min_p: f32,
    /// Divides positive logits of tokens that were spoken, and multiplies negative ones; 1: none.
    #[serde(default = "whole")]
    pub repetition_penalty: f32,
}

/// One thing that is done to logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// Divides by the temperature.
    Temperature,
    /// Keeps the `top_k` most likely.
    TopK,
    /// Keeps the most likely that hold `top_p` of the probability.
    TopP,
    /// Keeps those with `min_p` of the most likely token's probability.
    MinP,
    /// Penalizes what was spoken.
    Repetition,
}

/// Bounds of the speech's length, in tokens.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Length {
    /// Of any text.
    pub max_tokens: usize,
    /// The speech does not end before it has so many.
    #[serde(default)]
    pub min_tokens: usize,
    /// For each character of the text, beside [`GRACE_TOKENS`]: what goes on longer is cut off.
    pub max_tokens_per_char: f32,
    /// Of silence in a row; more is left out.
    pub max_silence: usize,
    /// Of silence in a row: the speech ends there.
    pub end_silence: usize,
}

/// Tokens that every text may have, however short.
pub const GRACE_TOKENS: usize = 50;

/// How the tokens are cut into chunks of sound.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chunks {
    /// Tokens of the first chunk.
    pub first: usize,
    /// Each chunk is so many times the one before it.
    pub growth: f32,
    /// Tokens of a chunk at most.
    pub most: usize,
    /// Tokens behind a chunk that are decoded with it, and whose sound is decoded again with the next.
    pub look_ahead: usize,
    /// Tokens before a chunk that are decoded with it.
    pub left_context: usize,
    /// How long two chunks overlap; at most the look-ahead.
    pub cross_fade_ms: u32,
}

fn one() -> usize {
    1
}

fn whole() -> f32 {
    1.0
}

fn never() -> i64 {
    i64::MAX
}

impl Contract {
    /// The contract for a model: that in the file, or the built-in one of the model's name. Blocks while a file is read.
    ///
    /// # Errors
    /// [`ContractError`] says what is wrong and what would be right.
    pub fn find(file: &str, model: &str) -> Result<Self, ContractError> {
        if !file.is_empty() {
            let path = PathBuf::from(file);
            let text = std::fs::read_to_string(&path)
                .map_err(|source| ContractError::Unreadable { path: path.clone(), source })?;
            return Self::parse(&path.display().to_string(), &text);
        }
        let Some(text) = Self::built_in(model) else {
            let known: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            return Err(ContractError::Unknown { model: model.into(), known: known.join(", ") });
        };
        Self::parse(model, text)
    }

    /// The text of a built-in contract.
    pub fn built_in(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Reads a contract and checks that it makes sense; `name` is for errors.
    ///
    /// # Errors
    /// [`ContractError::Invalid`].
    pub fn parse(name: &str, text: &str) -> Result<Self, ContractError> {
        let invalid = |message: String| ContractError::Invalid { name: name.into(), message };
        let contract: Self = toml::from_str(text).map_err(|error| invalid(error.to_string()))?;
        match contract.fault() {
            None => Ok(contract),
            Some(fault) => Err(invalid(fault)),
        }
    }

    /// What makes no sense.
    fn fault(&self) -> Option<String> {
        let (tokens, chunks, decode, sampling) = (&self.tokens, &self.chunks, &self.decode, &self.sampling);
        let ids = [("start", tokens.start), ("stop", tokens.stop), ("silence", tokens.silence)];
        let outside = ids.iter().find(|(_, id)| *id < 0 || *id as usize >= tokens.vocabulary.max(1));
        let cross_fade = self.rate_hz as usize * chunks.cross_fade_ms as usize / 1000;
        let rules = [
            (self.format != FORMAT, format!("format = {}, and this version reads {FORMAT}", self.format)),
            (self.languages.is_empty(), "languages: at least one is needed".into()),
            (!(8_000..=192_000).contains(&self.rate_hz), format!("rate_hz = {}: 8000 to 192000", self.rate_hz)),
            (self.samples_per_token == 0, "samples_per_token: more than 0".into()),
            (!self.text.template.contains("{text}"), "text.template: {text} is missing".into()),
            (tokens.codebooks != 1, format!("tokens.codebooks = {}: this version runs 1", tokens.codebooks)),
            (tokens.delays.iter().any(|delay| *delay > 0), "tokens.delays: a single codebook has none".into()),
            (
                decode.layers == 0 || decode.heads == 0 || decode.head_size == 0,
                "decode: layers, heads and head_size".into(),
            ),
            (
                decode.policy == Policy::Masked && decode.mask.is_empty(),
                "decode.policy = \"masked\" needs decode.mask, the name of the mask's input".into(),
            ),
            (
                decode.policy == Policy::Masked && decode.capacity > 0,
                "decode.capacity: a cache in place is for the policies \"ragged\" and \"single\"".into(),
            ),
            (
                decode.context > 0 && decode.capacity > decode.context,
                "decode.capacity: at most decode.context, beyond which the graph has no positions".into(),
            ),
            (
                decode.capacity > 0 && decode.lengths.is_empty(),
                "decode.capacity: a cache in place needs decode.lengths, the name of the lengths' input".into(),
            ),
            (
                !decode.past.iter().chain(&decode.present).all(|port| port.contains("{i}")),
                "decode.past, decode.present: {i}, the layer, is missing".into(),
            ),
            (chunks.first == 0 || chunks.most < chunks.first, "chunks.first: 1 to chunks.most".into()),
            (!(1.0..=10.0).contains(&chunks.growth), "chunks.growth: 1 to 10".into()),
            (
                cross_fade > chunks.look_ahead * self.samples_per_token,
                "chunks.cross_fade_ms: at most the playing time of chunks.look_ahead".into(),
            ),
            (!(0.0..=10.0).contains(&sampling.temperature), "sampling.temperature: 0 to 10".into()),
            (!(0.0..=1.0).contains(&sampling.top_p) || sampling.top_p == 0.0, "sampling.top_p: above 0 to 1".into()),
            (!(0.0..1.0).contains(&sampling.min_p), "sampling.min_p: 0 to below 1".into()),
            (!(0.1..=10.0).contains(&sampling.repetition_penalty), "sampling.repetition_penalty: 0.1 to 10".into()),
            (self.length.max_tokens == 0, "length.max_tokens: more than 0".into()),
            (self.length.min_tokens > self.length.max_tokens, "length.min_tokens: at most length.max_tokens".into()),
            (
                !(0.1..=100.0).contains(&self.length.max_tokens_per_char),
                "length.max_tokens_per_char: 0.1 to 100".into(),
            ),
            (
                self.length.max_silence == 0 || self.length.end_silence < self.length.max_silence,
                "length.max_silence: 1 to length.end_silence".into(),
            ),
            (
                !(0.0..=600.0).contains(&self.condition.min_seconds)
                    || !(self.condition.min_seconds..=600.0).contains(&self.condition.use_seconds),
                "condition.min_seconds, condition.use_seconds: 0 to 600, in this order".into(),
            ),
        ];
        if let Some((name, id)) = outside {
            return Some(format!("tokens.{name} = {id}: 0 to tokens.vocabulary, {}", tokens.vocabulary));
        }
        rules.into_iter().find(|(is_broken, _)| *is_broken).map(|(_, message)| message)
    }

    /// Bytes of the cache for one token of one sequence, by the bytes of a number: keys and values of all layers.
    pub fn cache_bytes_per_token(&self, bytes_per_number: usize) -> usize {
        2 * self.decode.layers * self.decode.heads * self.decode.head_size * bytes_per_number
    }

    /// Bytes of a slot's cache when its sequence is as long as it may be. A cache that grows exists twice while a step runs.
    pub fn slot_bytes(&self, bytes_per_number: usize) -> usize {
        let copies = if self.decode.capacity > 0 { 1 } else { 2 };
        copies * self.cache_bytes_per_token(bytes_per_number) * self.slot_tokens()
    }

    /// Tokens that a slot may hold: the longest speech, its text and the conditioning before it.
    pub fn slot_tokens(&self) -> usize {
        let longest = self.length.max_tokens + CONTEXT_TOKENS;
        match (self.decode.capacity, self.decode.context) {
            (0, 0) => longest,
            (0, context) => longest.min(context),
            (capacity, _) => capacity,
        }
    }

    /// The longest speech for a text of so many characters, in tokens.
    pub fn max_tokens(&self, n_chars: usize) -> usize {
        let by_text = GRACE_TOKENS + (n_chars as f32 * self.length.max_tokens_per_char) as usize;
        by_text.clamp(self.length.min_tokens, self.length.max_tokens)
    }

    /// A port of a layer.
    pub(super) fn port(pattern: &str, layer: usize) -> String {
        pattern.replace("{i}", &layer.to_string())
    }
}

/// Tokens of a slot before its speech: conditioning (375 in Chatterbox) and a text of the longest chunk.
const CONTEXT_TOKENS: usize = 600;

/// The model's name of a main file: that of the folder that holds it, without an `onnx` folder between.
pub(super) fn model_name(main: &Path) -> String {
    let folders = main.ancestors().skip(1).filter_map(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    folders.into_iter().find(|name| name != "onnx").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_contracts_make_sense() {
        for (name, text) in BUILT_IN {
            let contract = Contract::parse(name, text).expect(name);
            assert_eq!(contract.name, name);
        }
        let turbo = Contract::find("", "chatterbox-turbo").expect("built in");
        assert_eq!(turbo.cache_bytes_per_token(2), 98_304, "the reference's figure for Turbo in fp16");
        assert_eq!((turbo.max_tokens(0), turbo.max_tokens(40), turbo.max_tokens(10_000)), (50, 250, 1_000));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would_be_right() {
        let turbo = Contract::built_in("chatterbox-turbo").expect("built in");
        let refused = |from: &str, to: &str| {
            assert!(turbo.contains(from), "{from}");
            Contract::parse("mine.toml", &turbo.replacen(from, to, 1)).expect_err(to).to_string()
        };
        for (from, to, part) in [
            ("format = 1", "format = 2", "this version reads 1"),
            ("start = 6561", "start = 6563", "tokens.start = 6563: 0 to tokens.vocabulary, 6563"),
            ("policy = \"masked\"", "policy = \"masked\"\ncapacity = 2048", "decode.capacity"),
            ("mask = \"attention_mask\"", "", "needs decode.mask"),
            ("first = 8", "first = 80", "chunks.first: 1 to chunks.most"),
            ("cross_fade_ms = 20", "cross_fade_ms = 200", "the playing time of chunks.look_ahead"),
            ("temperature = 0.8", "temperature = -1.0", "sampling.temperature"),
            ("append_silence = 3", "append_silence = 3\ncodebooks = 16", "tokens.codebooks = 16: this version runs 1"),
            ("present.{i}.key", "present.key", "{i}, the layer, is missing"),
            ("policy = \"masked\"", "policy = \"paged\"", "unknown variant `paged`"),
            ("rate_hz = 24000", "rate_hz = 24000\nrate = 1", "unknown field `rate`"),
        ] {
            let text = refused(from, to);
            assert!(text.starts_with("the contract mine.toml is invalid: ") && text.contains(part), "{to}: {text}");
        }
        let unknown = Contract::find("", "some-model").expect_err("unknown").to_string();
        assert!(unknown.contains("chatterbox-turbo, chatterbox-nano, chatterbox-multilingual"), "{unknown}");
        assert!(matches!(Contract::find("/nowhere.toml", ""), Err(ContractError::Unreadable { .. })));
    }

    #[test]
    fn a_model_is_named_by_its_folder() {
        assert_eq!(model_name(Path::new("models/chatterbox-turbo/onnx/language_model_q4.onnx")), "chatterbox-turbo");
        assert_eq!(model_name(Path::new("models/mine/language_model.onnx")), "mine");
    }
}
