//! A family of speech language models as data: its graphs and their ports, the layout of its cache, its ids, its sampling, how
//! its speech is cut into chunks.
//!
//! Contracts are TOML files: those beside this one are built in, `tts.contract` names another. What a file holds is its
//! [`form`]; [`Contract::parse`] reads it once into what this version can run, or refuses it. [`files`](super::files) finds the
//! graphs, and each role checks the ports that it uses. Code knows roles (`condition`, `prompt`, `embed`, `decode`, `frame`,
//! `vocode`), never a family's name. A folder that `models/export` wrote holds its contract (models/export/LAYOUT.md).

mod form;

use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// The contract in a model's folder.
const OWN: &str = "contract.toml";

/// Built-in contracts: a name and its text.
const BUILT_IN: [(&str, &str); 3] = [
    ("chatterbox-turbo", include_str!("chatterbox-turbo.toml")),
    ("chatterbox-nano", include_str!("chatterbox-nano.toml")),
    ("chatterbox-multilingual", include_str!("chatterbox-multilingual.toml")),
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

/// A family. Made by [`parse`](Self::parse) alone: what a file may hold and no family can be does not exist here.
#[derive(Clone, Debug, PartialEq)]
pub struct Contract {
    /// Its name, as the registry's.
    pub name: String,
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
    /// What comes before the speech.
    pub prompting: Prompting,
    /// The graph of the language model.
    pub decode: Decode,
    /// How a layer's cache is kept.
    pub cache: CacheKind,
    /// Where the codes of a frame come from.
    pub coding: Coding,
    /// The graph that makes sound of tokens.
    pub vocode: Vocode,
    /// Output of the conditioning graph: the recording's own tokens, i64 [1, length], or frames, i64 [1, length, codebooks].
    /// They come first in the vocoder, which leaves out their sound; with a state they are run once, for the state they leave.
    pub recording: Option<String>,
    /// What the vocoder's next window takes from the one before. With it, a window's sound is that of its chunk alone.
    pub state: Option<VocoderState>,
    /// Ids with a meaning.
    pub tokens: Tokens,
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
    /// How many ids that has; none: any number.
    #[serde(default, deserialize_with = "form::above_0")]
    pub vocabulary: Option<usize>,
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
    /// See [`Prompting::Prefix`].
    #[serde(default, deserialize_with = "form::not_empty")]
    prefix: Option<String>,
    /// See [`Contract::recording`].
    #[serde(default, deserialize_with = "form::not_empty")]
    prompt: Option<String>,
    /// Whether a voice needs the words of its recording.
    #[serde(default)]
    pub needs_transcript: bool,
    /// The shortest recording.
    pub min_seconds: f32,
    /// What it uses of a longer one.
    pub use_seconds: f32,
}

/// What comes before the speech.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompting {
    /// Embeddings of this output of the conditioning graph, [1, length, hidden], then those of the text's ids.
    Prefix(String),
    /// What a graph makes of ids and a voice.
    Graph(Prompt),
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
    pub language: Option<PromptLanguage>,
    /// Output: embeddings, [1, length, hidden].
    pub embeds: String,
    /// Output: what is added to the embeddings of the first, second, ... generated frame, [1, frames, hidden], the last for
    /// all after it.
    #[serde(default, deserialize_with = "form::not_empty")]
    pub following: Option<String>,
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

/// Where the codes of a frame come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Coding {
    /// There is one codebook: its tokens are drawn from the logits, and a graph embeds them.
    Token {
        /// How they are drawn.
        drawing: Drawing,
        /// The graph that embeds them, and the ids of the text where no graph makes the prompt.
        embed: Embed,
        /// Those that are silence, where they are known.
        silence: Option<Silence>,
    },
    /// There are several: a graph draws codes and embeds the frame.
    Frame(Frame),
}

/// How tokens are drawn from the logits.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing {
    /// Output of the language model: logits, [batch, length, vocabulary].
    pub logits: String,
    /// What is done to them.
    pub sampling: Sampling,
    /// The ids that end a speech.
    pub stops: RangeInclusive<i64>,
}

/// Tokens of silence.
#[derive(Clone, Debug, PartialEq)]
pub struct Silence {
    /// The first of them.
    pub id: i64,
    /// Other ids that are silence.
    pub others: Vec<i64>,
    /// Tokens of silence behind the speech.
    pub n_behind: usize,
}

/// The graph that draws the codes of a frame: its ports are those of models/export/LAYOUT.md.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Its file.
    pub file: String,
    /// Output of the language model: the hidden state that it takes, [batch, length, hidden].
    pub hidden: String,
    /// Codebooks of a frame, 2 to [`MAX_CODEBOOKS`].
    pub codebooks: usize,
    /// What it draws.
    pub draws: FrameDraws,
}

/// What the graph of a frame draws.
#[derive(Clone, Debug, PartialEq)]
pub enum FrameDraws {
    /// All codes but the first.
    Others {
        /// How the first is drawn. Every id from `tokens.sounds` on ends the speech.
        first: Drawing,
        /// Divides the logits; 0: the most likely code is taken.
        temperature: f32,
        /// The most likely codes that stay; 0, which the graph takes: all.
        top_k: i64,
        /// The share of probability that stays; 1: all.
        top_p: f32,
    },
    /// All codes, by settings of its own, and it says whether the speech goes on. With the policy `single`.
    All {
        /// Whether it takes flags of the codes that were drawn before.
        takes_seen: bool,
    },
}

/// The graph that embeds ids.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embed {
    /// Its file.
    pub file: String,
    /// Input: ids, i64 [batch, length].
    pub ids: String,
    /// Input: positions, i64 [batch, length].
    #[serde(default, deserialize_with = "form::not_empty")]
    pub positions: Option<String>,
    /// The position of the first id of a text; those of generated tokens are 1, 2, 3.
    #[serde(default)]
    pub first_position: i64,
    /// Ids from this one on are at position 0 in a text.
    pub zero_position_from: Option<i64>,
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
    /// Input: which columns of the cache, and of what is added, are valid, i64 [batch, total].
    #[serde(default, deserialize_with = "form::not_empty")]
    pub mask: Option<String>,
    /// Input: positions, i64 [batch, length].
    #[serde(default, deserialize_with = "form::not_empty")]
    pub positions: Option<String>,
    /// Input: of each row, its length with what is added, less 1, i32 [batch].
    #[serde(default, deserialize_with = "form::not_empty")]
    pub lengths: Option<String>,
    /// Input: the longest row's length with what is added, i32 [].
    #[serde(default, deserialize_with = "form::not_empty")]
    pub total: Option<String>,
    /// See [`Drawing::logits`].
    #[serde(default, deserialize_with = "form::not_empty")]
    logits: Option<String>,
    /// See [`Frame::hidden`].
    #[serde(default, deserialize_with = "form::not_empty")]
    hidden: Option<String>,
    /// Inputs of a layer's cache, keys and values; `{i}` is the layer.
    pub past: [String; 2],
    /// Outputs that take their places.
    pub present: [String; 2],
    /// See [`CacheKind`].
    #[serde(default)]
    cache: CacheOrder,
    /// See [`CacheKind`].
    #[serde(default, deserialize_with = "form::above_0")]
    capacity: Option<usize>,
    /// Layers.
    pub layers: usize,
    /// Heads of keys and values.
    pub heads: usize,
    /// Numbers of a head.
    pub head_size: usize,
    /// How rows of several lengths share a run.
    pub policy: Policy,
    /// The longest sequence, prompt and speech together, that the graph has positions for.
    #[serde(default, deserialize_with = "form::above_0")]
    pub context: Option<usize>,
}

/// How a layer's cache is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    /// It grows by a column each step.
    Growing(CacheOrder),
    /// It is read and written in place, [batch, heads, columns, head size]. With `lengths`, and not with the policy `masked`.
    InPlace {
        /// Its columns.
        columns: usize,
    },
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
    /// See [`Contract::recording`].
    #[serde(default)]
    with_prompt: bool,
    /// See [`VocoderState`].
    #[serde(default)]
    state: Vec<StateTensor>,
    /// See [`VocoderState`].
    #[serde(default, deserialize_with = "form::not_empty")]
    n_before: Option<String>,
    /// See [`VocoderState`].
    #[serde(default, deserialize_with = "form::not_empty")]
    is_last: Option<String>,
}

/// What a vocoder keeps between two windows of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct VocoderState {
    /// Its tensors, at least one.
    pub tensors: Vec<StateTensor>,
    /// Input: tokens of the window before its chunk, i64 [1].
    pub n_before: Option<String>,
    /// Input: whether no token follows the window, bool [1].
    pub is_last: Option<String>,
}

/// A tensor of a vocoder's state, whose first size is the batch and whose others are fixed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateTensor {
    /// Its input.
    pub input: String,
    /// The output that takes its place.
    pub output: String,
    /// What it begins as.
    #[serde(default)]
    pub fill: f32,
}

/// Ids with a meaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Tokens {
    /// How many ids the language model chooses from.
    pub vocabulary: usize,
    /// Ids below this one have a sound; others are left out of it.
    pub sounds: i64,
    /// Begins the speech, where an id does; counts for the repetition penalty.
    pub start: Option<i64>,
}

/// How the next token is drawn.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// What is done to the logits, in this order.
    pub order: Vec<Filter>,
    /// Divides the logits; 0: the most likely token is taken.
    pub temperature: f32,
    /// The most likely tokens that stay; none: all.
    #[serde(default, deserialize_with = "form::above_0")]
    pub top_k: Option<usize>,
    /// The share of probability that stays; 1: all.
    #[serde(default = "whole")]
    pub top_p: f32,
    /// The least probability that stays, as a share of the most likely token's; 0: all.
    #[serde(default)]
    pub min_p: f32,
    /// Divides positive logits of tokens that were spoken, and multiplies negative ones; 1: none.
    #[serde(default = "whole")]
    pub repetition_penalty: f32,
    /// The latest tokens that the penalty is for; none: all.
    #[serde(default, deserialize_with = "form::above_0")]
    pub repetition_window: Option<usize>,
    /// When a token is drawn again.
    pub redraw: Option<Redraw>,
}

impl Default for Sampling {
    /// All tokens by their probability.
    fn default() -> Self {
        Self {
            order: Vec::new(),
            temperature: 1.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            repetition_window: None,
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
    /// The most likely tokens that stay; none: all.
    #[serde(default, deserialize_with = "form::above_0")]
    pub top_k: Option<usize>,
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

fn whole() -> f32 {
    1.0
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
        let form: form::Form = toml::from_str(text).map_err(|error| invalid(error.to_string()))?;
        form.contract().map_err(invalid)
    }

    /// The graph that makes the prompt.
    pub fn prompt(&self) -> Option<&Prompt> {
        match &self.prompting {
            Prompting::Graph(prompt) => Some(prompt),
            Prompting::Prefix(_) => None,
        }
    }

    /// The graph that embeds ids.
    pub fn embed(&self) -> Option<&Embed> {
        match &self.coding {
            Coding::Token { embed, .. } => Some(embed),
            Coding::Frame(_) => None,
        }
    }

    /// The graph that draws codes of a frame.
    pub fn frame(&self) -> Option<&Frame> {
        match &self.coding {
            Coding::Frame(frame) => Some(frame),
            Coding::Token { .. } => None,
        }
    }

    /// How a frame's first code is drawn; none where a graph draws it.
    pub fn drawing(&self) -> Option<&Drawing> {
        match &self.coding {
            Coding::Token { drawing, .. } => Some(drawing),
            Coding::Frame(Frame { draws: FrameDraws::Others { first, .. }, .. }) => Some(first),
            Coding::Frame(Frame { draws: FrameDraws::All { .. }, .. }) => None,
        }
    }

    /// Codebooks of a frame.
    pub fn codebooks(&self) -> usize {
        self.frame().map_or(1, |frame| frame.codebooks)
    }

    /// Tokens of silence, where they are known.
    pub fn silence(&self) -> Option<&Silence> {
        match &self.coding {
            Coding::Token { silence, .. } => silence.as_ref(),
            Coding::Frame(_) => None,
        }
    }

    /// Outputs of the conditioning graph that prompts or the vocoder take.
    pub fn voice_tensors(&self) -> Vec<&str> {
        let prompt = self.prompt().into_iter().flat_map(|prompt| &prompt.voice);
        let mut names: Vec<&str> = prompt.chain(&self.vocode.carry).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether instructions change how it speaks.
    pub fn acts(&self) -> bool {
        self.prompt().into_iter().flat_map(|prompt| &prompt.ids).any(|ids| ids.template.contains("{instructions}"))
    }

    /// Whether a prompt has the words of the recording.
    pub fn takes_transcript(&self) -> bool {
        self.prompt().into_iter().flat_map(|prompt| &prompt.ids).any(|ids| ids.template.contains("{transcript}"))
    }

    /// Whether a token is silence.
    pub fn is_silence(&self, token: i64) -> bool {
        self.silence().is_some_and(|silence| token == silence.id || silence.others.contains(&token))
    }

    /// What unused rows are fed: silence, where it is known.
    pub fn unused_token(&self) -> i64 {
        self.silence().map_or(0, |silence| silence.id)
    }

    /// The tokens of silence behind a speech.
    pub fn silence_behind(&self) -> Vec<i64> {
        self.silence().map_or_else(Vec::new, |silence| vec![silence.id; silence.n_behind])
    }

    /// Bytes of the cache for one token of one sequence, by the bytes of a number: keys and values of all layers.
    pub fn cache_bytes_per_token(&self, bytes_per_number: usize) -> usize {
        2 * self.decode.layers * self.decode.heads * self.decode.head_size * bytes_per_number
    }

    /// Bytes of a slot's cache when its sequence is as long as it may be. A cache that grows exists twice while a step runs.
    pub fn slot_bytes(&self, bytes_per_number: usize) -> usize {
        let copies = match self.cache {
            CacheKind::InPlace { .. } => 1,
            CacheKind::Growing(_) => 2,
        };
        copies * self.cache_bytes_per_token(bytes_per_number) * self.slot_tokens()
    }

    /// Tokens that a slot may hold: the longest speech, its text and the conditioning before it.
    pub fn slot_tokens(&self) -> usize {
        let longest = self.length.max_tokens + CONTEXT_TOKENS;
        match self.cache {
            CacheKind::InPlace { columns } => columns,
            CacheKind::Growing(_) => self.decode.context.map_or(longest, |context| longest.min(context)),
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
            ("start = 6561", "start = 6563", "tokens.start = 6563: 0 to 6562"),
            ("policy = \"masked\"", "policy = \"masked\"\ncapacity = 2048", "decode.capacity"),
            ("mask = \"attention_mask\"", "", "needs decode.mask"),
            ("first = 8", "first = 80", "chunks.first = 80: 1 to 50"),
            ("cross_fade_ms = 20", "cross_fade_ms = 200", "the playing time of chunks.look_ahead"),
            ("temperature = 0.8", "temperature = -1.0", "sampling.temperature = -1: 0 to 10"),
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
            ("sounds = 6561", "sounds = 6564", "tokens.sounds = 6564: 0 to 6563"),
            ("layers = 24", "layers = 1000000000000", "decode.layers = 1000000000000: 1 to 1000"),
            (
                "append_silence = 3",
                "append_silence = 1000000000000",
                "tokens.append_silence = 1000000000000: 0 to 100000",
            ),
            (
                "look_ahead = 3",
                "look_ahead = 9000000000000000000",
                "chunks.look_ahead = 9000000000000000000: 0 to 100000",
            ),
            ("min_seconds = 5.0", "min_seconds = 5.0\nneeds_transcript = true", "no template of [prompt] has"),
            ("silence = 4299", "silence = -1", "tokens.append_silence, tokens.also_silence need"),
            ("top_k = 1000", "redraw = { window = 0, share = 0.1 }", "sampling.redraw.window = 0: 1 to 1000"),
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
