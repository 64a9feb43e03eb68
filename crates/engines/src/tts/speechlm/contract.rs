//! A family of speech language models as data: its graphs and their ports, the layout of its cache, its ids, its sampling, how
//! its speech is cut into chunks.
//!
//! Contracts are TOML files: those in `contracts/` are built in, `tts.contract` names one of one's own. [`Contract::parse`]
//! refuses what makes no sense; [`files`](super::files) finds the graphs, and each role checks the ports that it uses. Code
//! knows roles (`condition`, `prompt`, `embed`, `decode`, `frame`, `vocode`), never a family's name. A folder that
//! `models/export` wrote holds its contract (models/export/LAYOUT.md).

use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// The contract in a model's folder.
const OWN: &str = "contract.toml";
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
        "no contract is built in for {model:?}; there are {known}. A folder that the export wrote holds contract.toml; for another family set tts.contract to a contract file"
    )]
    Unknown {
        /// The model's name.
        model: String,
        /// The names of the built-in ones.
        known: String,
    },
    /// The file cannot be read.
    #[error("the contract {} cannot be read: {source}", path.display())]
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
    /// Samples of sound for one token, or for one frame where a frame has several codebooks.
    pub samples_per_token: usize,
    /// What is known of watermarks in its sound, for people.
    pub watermark: String,
    /// How a text becomes ids.
    pub text: Text,
    /// The graph that makes a voice's conditioning from a recording.
    pub condition: Condition,
    /// The graph that makes the prompt's embeddings; without it they are the conditioning's, then those of the text's ids.
    #[serde(default)]
    pub prompt: Option<Prompt>,
    /// The graph that embeds ids: of generated tokens, and of the text where there is no `prompt`.
    #[serde(default)]
    pub embed: Option<Embed>,
    /// The graph of the language model.
    pub decode: Decode,
    /// The graph that draws the other codebooks of a frame; without it a frame has one.
    #[serde(default)]
    pub frame: Option<Frame>,
    /// The graph that makes sound of tokens.
    pub vocode: Vocode,
    /// Ids with a meaning.
    pub tokens: Tokens,
    /// How the next token is drawn; none where a graph draws it.
    #[serde(default)]
    pub sampling: Option<Sampling>,
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
    /// What is tokenized: `{text}` and `{language}` (two letters) stand for themselves. With `prompt`, its templates count.
    pub template: String,
    /// Replaced in the text, in this order.
    #[serde(default)]
    pub replace: Vec<(String, String)>,
    /// Whether its first letter becomes a capital.
    #[serde(default)]
    pub capitalise: bool,
    /// Added tokens of the tokenizer that texts may use, beside those in square brackets and small letters: "<laughter>".
    #[serde(default)]
    pub marks: Vec<String>,
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
    /// Output: embeddings before those of the text, [1, length, hidden]. Not with `prompt`.
    #[serde(default)]
    pub prefix: String,
    /// Output: the recording's own tokens, i64 [1, length], or frames, i64 [1, length, codebooks].
    #[serde(default)]
    pub prompt: String,
    /// Whether a voice needs the words of its recording.
    #[serde(default)]
    pub needs_transcript: bool,
    /// The shortest recording.
    pub min_seconds: f32,
    /// What it uses of a longer one.
    pub use_seconds: f32,
}

/// The graph that makes the prompt's embeddings of ids and a voice.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    /// Its file.
    pub file: String,
    /// Outputs of the conditioning graph that are inputs here, of the same names.
    #[serde(default)]
    pub voice: Vec<String>,
    /// Inputs: ids, i64 [1, length]. At least one.
    pub ids: Vec<PromptIds>,
    /// Input: the language, i64 [1].
    #[serde(default)]
    pub language: Option<PromptLanguage>,
    /// Output: embeddings, [1, length, hidden].
    pub embeds: String,
    /// Output: what is added to the embeddings of the first, second, ... generated frame, [1, frames, hidden], the last for
    /// all after it; empty: nothing is.
    #[serde(default)]
    pub following: String,
}

/// An input of ids.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptIds {
    /// Its name.
    pub port: String,
    /// What is tokenized: `{text}`, `{transcript}`, `{instructions}` and `{language}` stand for themselves. Where one of the
    /// first three is empty and no other is in the template, there are no ids.
    pub template: String,
}

/// The input of the language.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptLanguage {
    /// Its name.
    pub port: String,
    /// Its value for a language, by two letters.
    pub ids: BTreeMap<String, i64>,
    /// Its value where the language is not known.
    pub auto: i64,
}

/// The graph that draws the codes of a frame, all but the first or all: its ports are those of models/export/LAYOUT.md.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// Its file.
    pub file: String,
    /// Whether it draws the first code, too, by settings of its own, and says whether the speech goes on.
    #[serde(default)]
    pub draws_all: bool,
    /// Whether it takes flags of the codes that were drawn before.
    #[serde(default)]
    pub takes_seen: bool,
    /// Divides the logits; 0: the most likely code is taken. Needed unless the graph has settings of its own.
    #[serde(default)]
    pub temperature: Option<f32>,
    /// The most likely codes that stay; 0: all.
    #[serde(default)]
    pub top_k: usize,
    /// The share of probability that stays; 1: all.
    #[serde(default = "whole")]
    pub top_p: f32,
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
    /// Output: logits, [batch, length, vocabulary]; empty where `frame` draws all codes.
    #[serde(default)]
    pub logits: String,
    /// Output: the hidden state that `frame` takes, [batch, length, hidden]; empty without `frame`.
    #[serde(default)]
    pub hidden: String,
    /// Inputs of a layer's cache, keys and values, [batch, heads, columns, head size]; `{i}` is the layer.
    pub past: [String; 2],
    /// Outputs that take their places.
    pub present: [String; 2],
    /// The order of the sizes of a layer's cache.
    #[serde(default)]
    pub cache: CacheOrder,
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

/// The order of the sizes of a layer's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheOrder {
    /// [batch, heads, columns, head size].
    #[default]
    HeadsFirst,
    /// [batch, columns, heads, head size]. With the policy `single`.
    ColumnsFirst,
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
    /// Input: tokens, i64 [batch, length], or frames, i64 [batch, length, codebooks].
    pub tokens: String,
    /// Outputs of the conditioning graph that are inputs here, of the same names.
    #[serde(default)]
    pub carry: Vec<String>,
    /// Output: sound, [batch, samples] or [batch, channels, samples].
    pub waveform: String,
    /// Whether the recording's tokens come first, whose sound the graph leaves out; with a state they are run once, for the
    /// state that they leave.
    #[serde(default)]
    pub with_prompt: bool,
    /// What a stream's next window takes from the one before. With it, a window's sound is that of its chunk alone.
    #[serde(default)]
    pub state: Vec<VocodeState>,
    /// Input: tokens of the window before its chunk, i64 [1]; empty: it has none. With a state.
    #[serde(default)]
    pub n_before: String,
    /// Input: whether no token follows the window, bool [1]; empty: it has none. With a state.
    #[serde(default)]
    pub is_last: String,
}

/// A tensor of a vocoder's state, whose first size is the batch and whose others are fixed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VocodeState {
    /// Its input.
    pub input: String,
    /// The output that takes its place.
    pub output: String,
    /// What it begins as.
    #[serde(default)]
    pub fill: f32,
}

/// Ids with a meaning.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// How many ids the language model chooses from.
    pub vocabulary: usize,
    /// Ids below this one have a sound; others are left out of it.
    pub sounds: i64,
    /// Begins the speech; counts for the repetition penalty. -1: none does.
    pub start: i64,
    /// Ends the speech; -1 where `frame` draws all codes and says so.
    pub stop: i64,
    /// The last of the ids that end it, which begin with `stop`; 0: `stop` is the only one.
    #[serde(default)]
    pub stop_last: i64,
    /// Silence; -1: none is known.
    pub silence: i64,
    /// Other ids that are silence.
    #[serde(default)]
    pub also_silence: Vec<i64>,
    /// Tokens of silence behind the speech.
    #[serde(default)]
    pub append_silence: usize,
    /// Codebooks of a frame.
    #[serde(default = "one")]
    pub codebooks: usize,
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
    /// The latest tokens that the penalty is for; 0: all.
    #[serde(default)]
    pub repetition_window: usize,
    /// When a token is drawn again.
    #[serde(default)]
    pub redraw: Option<Redraw>,
}

impl Default for Sampling {
    /// All tokens by their probability.
    fn default() -> Self {
        Self {
            order: Vec::new(),
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            repetition_window: 0,
            redraw: None,
        }
    }
}

/// A token that was drawn often of late is drawn again, by settings of its own: repetition-aware sampling, as CosyVoice and
/// fish-speech have it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redraw {
    /// The latest tokens that are looked at.
    pub window: usize,
    /// The share of them that is often.
    pub share: f32,
    /// Whether the token that is drawn again cannot be drawn then.
    #[serde(default)]
    pub excludes: bool,
    /// Divides the logits.
    #[serde(default = "whole")]
    pub temperature: f32,
    /// The most likely tokens that stay; 0: all.
    #[serde(default)]
    pub top_k: usize,
    /// The share of probability that stays; 1: all.
    #[serde(default = "whole")]
    pub top_p: f32,
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
    /// The least tokens of a speech: it does not end before.
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
    /// How many times the size of the chunk before it a chunk is.
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
    /// The contract for a model, `main` its folder or language model's file: that in the file that is named, that in the
    /// model's folder (`contract.toml`), or the built-in one of the model's name. Blocks while a file is read.
    ///
    /// # Errors
    /// [`ContractError`] says what is wrong and what would be right.
    pub fn find(file: &str, main: &Path) -> Result<Self, ContractError> {
        let folder = if main.is_dir() { main } else { main.parent().unwrap_or(main) };
        let own = folder.join(OWN);
        let path = match file.is_empty() {
            false => Some(PathBuf::from(file)),
            true => Some(own).filter(|own| own.is_file()),
        };
        if let Some(path) = path {
            let text = std::fs::read_to_string(&path)
                .map_err(|source| ContractError::Unreadable { path: path.clone(), source })?;
            return Self::parse(&path.display().to_string(), &text);
        }
        Self::of_model(&model_name(&folder.join("x")))
    }

    /// The built-in contract of that name.
    ///
    /// # Errors
    /// [`ContractError::Unknown`] names those that there are.
    pub fn of_model(name: &str) -> Result<Self, ContractError> {
        let Some(text) = Self::built_in(name) else {
            let known: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            return Err(ContractError::Unknown { model: name.into(), known: known.join(", ") });
        };
        Self::parse(name, text)
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
        let tokens = &self.tokens;
        let chunks = &self.chunks;
        let decode = &self.decode;
        let sampling = &self.sampling;
        let draws_all = self.frame.as_ref().is_some_and(|frame| frame.draws_all);
        let nothing = Sampling::default();
        let sampling = sampling.as_ref().unwrap_or(&nothing);
        let ids = [
            ("start", tokens.start, -1),
            ("stop", tokens.stop, if draws_all { -1 } else { 0 }),
            ("stop_last", tokens.stop_last, 0),
            ("silence", tokens.silence, -1),
        ];
        let outside = ids.iter().find(|(_, id, least)| id < least || *id >= tokens.vocabulary.max(1) as i64);
        let is_framed = self.frame.is_some();
        let has_state = !self.vocode.state.is_empty();
        let cross_fade = self.rate_hz as usize * chunks.cross_fade_ms as usize / 1000;
        let rules = [
            (self.format != FORMAT, format!("format = {}, and this version reads {FORMAT}", self.format)),
            (self.languages.is_empty(), "languages: at least one is needed".into()),
            (!(8_000..=192_000).contains(&self.rate_hz), format!("rate_hz = {}: 8000 to 192000", self.rate_hz)),
            (self.samples_per_token == 0, "samples_per_token: more than 0".into()),
            (!self.text.template.contains("{text}"), "text.template: {text} is missing".into()),
            (
                !(1..=MAX_CODEBOOKS).contains(&tokens.codebooks),
                format!("tokens.codebooks = {}: 1 to {MAX_CODEBOOKS}", tokens.codebooks),
            ),
            (
                tokens.vocabulary > MAX_VOCABULARY,
                format!("tokens.vocabulary = {}: at most {MAX_VOCABULARY}", tokens.vocabulary),
            ),
            (
                is_framed != (tokens.codebooks > 1),
                "tokens.codebooks: more than 1 with [frame], whose graph draws the others, and 1 without".into(),
            ),
            (
                is_framed == self.embed.is_some(),
                "[embed] embeds the tokens of one codebook, and [frame] those of several: one of the two is needed"
                    .into(),
            ),
            (is_framed && self.prompt.is_none(), "[frame] needs [prompt], since nothing else embeds a text".into()),
            (is_framed == decode.hidden.is_empty(), "decode.hidden: required with [frame], and only there".into()),
            (
                draws_all && self.sampling.is_some(),
                "sampling: does not apply, since the graph of [frame] draws all codes by settings of its own".into(),
            ),
            (
                draws_all
                    && self
                        .frame
                        .as_ref()
                        .is_some_and(|frame| frame.temperature.is_some() || frame.top_k > 0 || frame.top_p < 1.0),
                "frame.temperature, frame.top_k, frame.top_p: do not apply, since its graph has settings of its own"
                    .into(),
            ),
            (!draws_all && self.sampling.is_none(), "sampling: needed, since nothing else draws the first code".into()),
            (
                !draws_all && self.frame.as_ref().is_some_and(|frame| frame.temperature.is_none()),
                "frame.temperature: needed unless frame.draws_all".into(),
            ),
            (
                draws_all != decode.logits.is_empty(),
                "decode.logits: what tokens are drawn from; none with frame.draws_all".into(),
            ),
            (
                draws_all != (tokens.stop < 0),
                "tokens.stop: -1 with frame.draws_all, whose graph says when the speech ends".into(),
            ),
            (
                !draws_all && self.frame.as_ref().is_some_and(|frame| frame.takes_seen),
                "frame.takes_seen: with frame.draws_all".into(),
            ),
            (
                decode.cache == CacheOrder::ColumnsFirst && (decode.policy != Policy::Single || decode.capacity > 0),
                "decode.cache = \"columns_first\": for the policy \"single\" and a cache that grows".into(),
            ),
            (
                self.prompt.is_none() && self.condition.prefix.is_empty(),
                "condition.prefix: needed without [prompt]".into(),
            ),
            (
                self.prompt
                    .as_ref()
                    .is_some_and(|prompt| !prompt.ids.iter().any(|ids| ids.template.contains("{text}"))),
                "prompt.ids: {text} is in none of the templates".into(),
            ),
            (
                self.vocode.with_prompt && self.condition.prompt.is_empty(),
                "vocode.with_prompt needs condition.prompt, the recording's tokens".into(),
            ),
            (
                !(has_state || self.vocode.n_before.is_empty() && self.vocode.is_last.is_empty()),
                "vocode.n_before, vocode.is_last: for a vocoder with a state".into(),
            ),
            (
                has_state && chunks.left_context > 0 && self.vocode.n_before.is_empty(),
                "chunks.left_context: a vocoder with a state takes it where vocode.n_before says how much it is".into(),
            ),
            (
                has_state && chunks.cross_fade_ms > 0,
                "chunks.cross_fade_ms: the chunks of a vocoder with a state do not overlap".into(),
            ),
            (
                has_state && chunks.look_ahead > 0 && self.vocode.is_last.is_empty(),
                "chunks.look_ahead: a vocoder with a state needs vocode.is_last, to know that there is none".into(),
            ),
            (tokens.stop_last != 0 && tokens.stop_last < tokens.stop, "tokens.stop_last: not below tokens.stop".into()),
            (
                tokens.silence < 0 && (tokens.append_silence > 0 || !tokens.also_silence.is_empty()),
                "tokens.append_silence, tokens.also_silence need tokens.silence".into(),
            ),
            (
                tokens.codebooks > 1 && (tokens.silence >= 0 || tokens.append_silence > 0),
                "tokens.silence: of families with one codebook".into(),
            ),
            (
                sampling.redraw.is_some_and(|redraw| {
                    !((1..=MAX_WINDOW).contains(&redraw.window)
                        && (0.0..=1.0).contains(&redraw.share)
                        && redraw.temperature > 0.0
                        && redraw.temperature <= 10.0
                        && redraw.top_p > 0.0
                        && redraw.top_p <= 1.0)
                }),
                format!(
                    "sampling.redraw: a window of 1 to {MAX_WINDOW}, a share of 0 to 1, a temperature above 0 to 10, top_p above 0 to 1"
                ),
            ),
            (sampling.repetition_window > MAX_WINDOW, format!("sampling.repetition_window: at most {MAX_WINDOW}")),
            (
                self.frame.as_ref().is_some_and(|frame| {
                    !((0.0..=10.0).contains(&frame.temperature.unwrap_or(1.0))
                        && frame.top_p > 0.0
                        && frame.top_p <= 1.0)
                }),
                "frame.temperature: 0 to 10; frame.top_p: above 0 to 1".into(),
            ),
            (tokens.vocabulary == 0, "tokens.vocabulary: 1 or more".into()),
            (
                tokens.sounds < 0 || tokens.sounds as usize > tokens.vocabulary,
                format!("tokens.sounds = {}: 0 to tokens.vocabulary, {}", tokens.sounds, tokens.vocabulary),
            ),
            (
                is_framed && !draws_all && self.stops() != (tokens.sounds..=tokens.vocabulary.saturating_sub(1) as i64),
                "tokens.stop, tokens.stop_last: with [frame] every id from tokens.sounds on ends the speech".into(),
            ),
            (draws_all && decode.policy != Policy::Single, "frame.draws_all: for decode.policy = \"single\"".into()),
            (
                decode.layers > MAX_LAYERS || decode.heads > MAX_SIZE || decode.head_size > MAX_SIZE,
                format!("decode.layers: at most {MAX_LAYERS}; heads and head_size at most {MAX_SIZE}"),
            ),
            (
                [chunks.most, chunks.look_ahead, chunks.left_context, tokens.append_silence, self.length.max_tokens]
                    .iter()
                    .any(|n| *n > MAX_FRAMES)
                    || decode.capacity.max(decode.context) > MAX_SIZE,
                format!(
                    "chunks, tokens.append_silence, length.max_tokens: at most {MAX_FRAMES}; decode.capacity and decode.context at most {MAX_SIZE}"
                ),
            ),
            (
                self.samples_per_token > MAX_SIZE,
                format!("samples_per_token = {}: at most {MAX_SIZE}", self.samples_per_token),
            ),
            (
                has_state && self.vocode.with_prompt && chunks.look_ahead > 0,
                "vocode.with_prompt: not for a vocoder with a state and a look-ahead".into(),
            ),
            (
                self.condition.needs_transcript && !self.takes_transcript(),
                "condition.needs_transcript: no template of [prompt] has {transcript}".into(),
            ),
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
                cross_fade > chunks.look_ahead.saturating_mul(self.samples_per_token),
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
                    || self.condition.use_seconds <= 0.0
                    || !(self.condition.min_seconds..=600.0).contains(&self.condition.use_seconds),
                "condition.min_seconds, condition.use_seconds: 0 to 600, in this order".into(),
            ),
        ];
        if let Some((name, id, _)) = outside {
            return Some(format!("tokens.{name} = {id}: 0 to tokens.vocabulary, {}", tokens.vocabulary));
        }
        rules.into_iter().find(|(is_broken, _)| *is_broken).map(|(_, message)| message)
    }

    /// Outputs of the conditioning graph that prompts or the vocoder take.
    pub fn voice_tensors(&self) -> Vec<&str> {
        let prompt = self.prompt.iter().flat_map(|prompt| &prompt.voice);
        let mut names: Vec<&str> = prompt.chain(&self.vocode.carry).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether instructions change how it speaks.
    pub fn acts(&self) -> bool {
        self.prompt.iter().flat_map(|prompt| &prompt.ids).any(|ids| ids.template.contains("{instructions}"))
    }

    /// Whether a prompt has the words of the recording.
    pub fn takes_transcript(&self) -> bool {
        self.prompt.iter().flat_map(|prompt| &prompt.ids).any(|ids| ids.template.contains("{transcript}"))
    }

    /// Whether a token is silence.
    pub fn is_silence(&self, token: i64) -> bool {
        token == self.tokens.silence || self.tokens.also_silence.contains(&token)
    }

    /// The ids that end a speech.
    pub fn stops(&self) -> RangeInclusive<i64> {
        self.tokens.stop..=self.tokens.stop_last.max(self.tokens.stop)
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

    /// The longest speech for a text of this number of characters, in tokens.
    pub fn max_tokens(&self, n_chars: usize) -> usize {
        let by_text = GRACE_TOKENS + (n_chars as f32 * self.length.max_tokens_per_char) as usize;
        by_text.clamp(self.length.min_tokens, self.length.max_tokens)
    }

    /// A port of a layer.
    pub(super) fn port(pattern: &str, layer: usize) -> String {
        pattern.replace("{i}", &layer.to_string())
    }
}

/// Codebooks at most.
pub const MAX_CODEBOOKS: usize = 32;
/// Ids of a codebook at most: what two bytes hold.
const MAX_VOCABULARY: usize = 1 << 16;
/// Layers; other sizes of graphs, in numbers or columns; frames and tokens of a speech or a window: what no model has.
const MAX_LAYERS: usize = 1_000;
const MAX_SIZE: usize = 1 << 20;
const MAX_FRAMES: usize = 100_000;
/// The largest window of the sampling's rules, in tokens.
const MAX_WINDOW: usize = 1_000;

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
        let turbo = Contract::find("", Path::new("models/chatterbox-turbo/language_model.onnx")).expect("built in");
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
            ("append_silence = 3", "append_silence = 3\ncodebooks = 16", "tokens.codebooks: more than 1 with [frame]"),
            ("append_silence = 3", "append_silence = 3\ncodebooks = 33", "tokens.codebooks = 33: 1 to 32"),
            ("prefix = \"audio_features\"", "", "condition.prefix: needed without [prompt]"),
            ("logits = \"logits\"", "logits = \"logits\"\nhidden = \"h\"", "decode.hidden: required with [frame]"),
            ("with_prompt = true", "with_prompt = true\nis_last = \"l\"", "vocode.is_last: for a vocoder with a state"),
            (
                "with_prompt = true",
                "with_prompt = true\nstate = [{ input = \"a\", output = \"b\" }]",
                "chunks.left_context: a vocoder with a state",
            ),
            ("stop = 6562", "stop = 6562\nstop_last = 5", "tokens.stop_last: not below"),
            ("sounds = 6561", "sounds = 6564", "tokens.sounds = 6564: 0 to tokens.vocabulary"),
            ("layers = 24", "layers = 1000000000000", "decode.layers: at most 1000"),
            ("append_silence = 3", "append_silence = 1000000000000", "tokens.append_silence, length.max_tokens"),
            ("look_ahead = 3", "look_ahead = 9000000000000000000", "at most 100000"),
            ("min_seconds = 5.0", "min_seconds = 5.0\nneeds_transcript = true", "no template of [prompt] has"),
            ("silence = 4299", "silence = -1", "tokens.append_silence, tokens.also_silence need"),
            ("top_k = 1000", "redraw = { window = 0, share = 0.1 }", "sampling.redraw: a window of 1 to 1000"),
            ("present.{i}.key", "present.key", "{i}, the layer, is missing"),
            ("policy = \"masked\"", "policy = \"paged\"", "unknown variant `paged`"),
            ("rate_hz = 24000", "rate_hz = 24000\nrate = 1", "unknown field `rate`"),
        ] {
            let text = refused(from, to);
            assert!(text.starts_with("the contract mine.toml is invalid: ") && text.contains(part), "{to}: {text}");
        }
        let unknown = Contract::find("", Path::new("some-model/x.onnx")).expect_err("unknown").to_string();
        assert!(unknown.contains("chatterbox-turbo, chatterbox-nano, chatterbox-multilingual"), "{unknown}");
        assert!(matches!(Contract::find("/nowhere.toml", Path::new("")), Err(ContractError::Unreadable { .. })));
    }

    #[test]
    fn a_model_is_named_by_its_folder() {
        assert_eq!(model_name(Path::new("models/chatterbox-turbo/onnx/language_model_q4.onnx")), "chatterbox-turbo");
        assert_eq!(model_name(Path::new("models/mine/language_model.onnx")), "mine");
    }
}
