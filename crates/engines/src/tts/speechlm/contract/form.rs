//! What a contract's file holds, and the [`Contract`] that it becomes.
//!
//! The file says "none" by `""`, `0` and `-1`, and keeps the parts of one decision in several sections. Both end here:
//! [`Form::contract`] reads them into options and enums, and refuses what does not go together. Called by
//! [`Contract::parse`] alone; it opens no file.

use super::{
    CacheKind, CacheOrder, Chunks, Coding, Condition, Contract, Decode, Drawing, Embed, Frame, FrameDraws, Length,
    MAX_CODEBOOKS, Policy, Prompt, Prompting, Sampling, Silence, Text, Tokens, Vocode, VocoderState, whole,
};
use serde::{Deserialize, Deserializer};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// The form of contract files that this version reads.
const FORMAT: u32 = 1;
/// Ids of a codebook at most: what two bytes hold.
const MAX_VOCABULARY: usize = 1 << 16;
/// Layers; other sizes of graphs, in numbers or columns; frames and tokens of a speech or a window: what no model has.
const MAX_LAYERS: usize = 1_000;
const MAX_SIZE: usize = 1 << 20;
const MAX_FRAMES: usize = 100_000;
/// The largest window of the sampling's rules, in tokens.
const MAX_WINDOW: usize = 1_000;

/// A contract's file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    format: u32,
    name: String,
    /// For people.
    #[serde(rename = "title")]
    _title: String,
    licence: String,
    languages: Vec<String>,
    rate_hz: u32,
    samples_per_token: usize,
    watermark: String,
    text: Text,
    condition: Condition,
    prompt: Option<Prompt>,
    embed: Option<Embed>,
    decode: Decode,
    frame: Option<FrameForm>,
    vocode: Vocode,
    tokens: TokensForm,
    sampling: Option<Sampling>,
    length: Length,
    chunks: Chunks,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FrameForm {
    file: String,
    #[serde(default)]
    draws_all: bool,
    #[serde(default)]
    takes_seen: bool,
    /// Needed unless `draws_all`.
    temperature: Option<f32>,
    #[serde(default)]
    top_k: usize,
    #[serde(default = "whole")]
    top_p: f32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokensForm {
    vocabulary: usize,
    sounds: i64,
    #[serde(deserialize_with = "not_below_0")]
    start: Option<i64>,
    /// None with `frame.draws_all`.
    #[serde(deserialize_with = "not_below_0")]
    stop: Option<i64>,
    /// The last of the ids that end the speech, which begin with `stop`; 0: `stop` is the only one.
    #[serde(default)]
    stop_last: i64,
    #[serde(deserialize_with = "not_below_0")]
    silence: Option<i64>,
    #[serde(default)]
    also_silence: Vec<i64>,
    #[serde(default)]
    append_silence: usize,
    #[serde(default = "one")]
    codebooks: usize,
}

fn one() -> usize {
    1
}

/// A name; none where it is empty.
pub fn not_empty<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Some(String::deserialize(from)?).filter(|name| !name.is_empty()))
}

/// A number; none where it is 0.
pub fn above_0<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    Ok(Some(usize::deserialize(from)?).filter(|n| *n > 0))
}

/// An id; none where it is -1.
fn not_below_0<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    match i64::deserialize(from)? {
        -1 => Ok(None),
        id @ 0.. => Ok(Some(id)),
        id => Err(serde::de::Error::custom(format!("{id}: an id, or -1 for none"))),
    }
}

/// Whether the file says what is needed.
fn require(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

fn in_range<T: PartialOrd + Display>(name: &str, n: T, range: RangeInclusive<T>) -> Result<(), String> {
    let is_in_range = range.contains(&n);
    require(is_in_range, &format!("{name} = {n}: {} to {}", range.start(), range.end()))
}

fn share(name: &str, share: f32) -> Result<(), String> {
    require(share > 0.0 && share <= 1.0, &format!("{name} = {share}: above 0 to 1"))
}

impl Form {
    /// The family that it describes.
    ///
    /// # Errors
    /// What does not go together or is out of range, and what would be right.
    pub fn contract(mut self) -> Result<Contract, String> {
        require(self.format == FORMAT, &format!("format = {}, and this version reads {FORMAT}", self.format))?;
        self.check_sizes()?;
        self.check_ids()?;
        self.check_sampling()?;
        self.check_length_and_chunks()?;
        require(!self.languages.is_empty(), "languages: at least one is needed")?;
        require(self.text.template.contains("{text}"), "text.template: {text} is missing")?;
        let coding = self.coding()?;
        let prompting = self.prompting()?;
        let cache = self.cache()?;
        let state = self.vocoder_state()?;
        let recording = self.recording()?;
        let tokens =
            Tokens { vocabulary: self.tokens.vocabulary, sounds: self.tokens.sounds, start: self.tokens.start };
        let contract = Contract {
            name: self.name,
            licence: self.licence,
            languages: self.languages,
            rate_hz: self.rate_hz,
            samples_per_token: self.samples_per_token,
            watermark: self.watermark,
            text: self.text,
            condition: self.condition,
            prompting,
            decode: self.decode,
            cache,
            coding,
            vocode: self.vocode,
            recording,
            state,
            tokens,
            length: self.length,
            chunks: self.chunks,
        };
        require(
            !contract.condition.needs_transcript || contract.takes_transcript(),
            "condition.needs_transcript: no template of [prompt] has {transcript}",
        )?;
        Ok(contract)
    }

    fn coding(&mut self) -> Result<Coding, String> {
        require(
            self.frame.is_some() == (self.tokens.codebooks > 1),
            "tokens.codebooks: more than 1 with [frame], whose graph draws the others, and 1 without",
        )?;
        match (self.embed.take(), self.frame.take()) {
            (Some(embed), None) => {
                require(self.decode.hidden.is_none(), "decode.hidden: required with [frame], and only there")?;
                let drawing = self.drawing()?;
                let silence = self.silence()?;
                Ok(Coding::Token { drawing, embed, silence })
            }
            (None, Some(frame)) => self.frame(frame).map(Coding::Frame),
            _ => {
                Err("[embed] embeds the tokens of one codebook, and [frame] those of several: one of the two is needed"
                    .into())
            }
        }
    }

    fn drawing(&mut self) -> Result<Drawing, String> {
        let stop =
            self.tokens.stop.ok_or("tokens.stop: needed unless frame.draws_all, whose graph says when it ends")?;
        let last = if self.tokens.stop_last == 0 { stop } else { self.tokens.stop_last };
        require(last >= stop, "tokens.stop_last: not below tokens.stop")?;
        Ok(Drawing {
            logits: self.decode.logits.take().ok_or("decode.logits: needed unless frame.draws_all")?,
            sampling: self.sampling.take().ok_or("sampling: needed, since nothing else draws the first code")?,
            stops: stop..=last,
        })
    }

    fn silence(&self) -> Result<Option<Silence>, String> {
        let tokens = &self.tokens;
        let Some(id) = tokens.silence else {
            require(
                tokens.append_silence == 0 && tokens.also_silence.is_empty(),
                "tokens.append_silence, tokens.also_silence need tokens.silence",
            )?;
            return Ok(None);
        };
        Ok(Some(Silence { id, others: tokens.also_silence.clone(), n_behind: tokens.append_silence }))
    }

    fn frame(&mut self, form: FrameForm) -> Result<Frame, String> {
        let tokens = &self.tokens;
        require(
            tokens.silence.is_none() && tokens.append_silence == 0 && tokens.also_silence.is_empty(),
            "tokens.silence: of families with one codebook",
        )?;
        require(self.prompt.is_some(), "[frame] needs [prompt], since nothing else embeds a text")?;
        let codebooks = tokens.codebooks;
        let all_that_are_silent = tokens.sounds..=tokens.vocabulary as i64 - 1;
        let hidden = self.decode.hidden.take().ok_or("decode.hidden: required with [frame], and only there")?;
        if !form.draws_all {
            require(!form.takes_seen, "frame.takes_seen: with frame.draws_all")?;
            let first = self.drawing()?;
            require(
                first.stops == all_that_are_silent,
                "tokens.stop, tokens.stop_last: with [frame] every id from tokens.sounds on ends the speech",
            )?;
            let temperature = form.temperature.ok_or("frame.temperature: needed unless frame.draws_all")?;
            let draws = FrameDraws::Others { first, temperature, top_k: form.top_k as i64, top_p: form.top_p };
            return Ok(Frame { file: form.file, hidden, codebooks, draws });
        }
        let has_settings = form.temperature.is_some() || form.top_k > 0 || form.top_p < 1.0 || self.sampling.is_some();
        require(
            !has_settings && self.decode.logits.is_none() && self.tokens.stop.is_none(),
            "frame.draws_all: the graph draws all codes and ends the speech by settings of its own, so that [sampling], frame.temperature, frame.top_k, frame.top_p and decode.logits do not apply, and tokens.stop is -1",
        )?;
        require(self.decode.policy == Policy::Single, "frame.draws_all: for decode.policy = \"single\"")?;
        let draws = FrameDraws::All { takes_seen: form.takes_seen };
        Ok(Frame { file: form.file, hidden, codebooks, draws })
    }

    fn prompting(&mut self) -> Result<Prompting, String> {
        let Some(prompt) = self.prompt.take() else {
            let prefix = self.condition.prefix.take();
            return prefix.map(Prompting::Prefix).ok_or_else(|| "condition.prefix: needed without [prompt]".into());
        };
        let has_text = prompt.ids.iter().any(|ids| ids.template.contains("{text}"));
        require(has_text, "prompt.ids: {text} is in none of the templates")?;
        Ok(Prompting::Graph(prompt))
    }

    fn cache(&self) -> Result<CacheKind, String> {
        let decode = &self.decode;
        require(
            decode.past.iter().chain(&decode.present).all(|port| port.contains("{i}")),
            "decode.past, decode.present: {i}, the layer, is missing",
        )?;
        require(
            decode.policy != Policy::Masked || decode.mask.is_some(),
            "decode.policy = \"masked\" needs decode.mask, the name of the mask's input",
        )?;
        require(
            decode.cache == CacheOrder::HeadsFirst || decode.policy == Policy::Single && decode.capacity.is_none(),
            "decode.cache = \"columns_first\": for the policy \"single\" and a cache that grows",
        )?;
        let Some(columns) = decode.capacity else { return Ok(CacheKind::Growing(decode.cache)) };
        require(
            decode.policy != Policy::Masked,
            "decode.capacity: a cache in place is for the policies \"ragged\" and \"single\"",
        )?;
        require(
            decode.context.is_none_or(|context| columns <= context),
            "decode.capacity: at most decode.context, beyond which the graph has no positions",
        )?;
        require(
            decode.lengths.is_some(),
            "decode.capacity: a cache in place needs decode.lengths, the name of the lengths' input",
        )?;
        Ok(CacheKind::InPlace { columns })
    }

    fn recording(&mut self) -> Result<Option<String>, String> {
        let tokens = self.condition.prompt.take();
        require(
            !self.vocode.with_prompt || tokens.is_some(),
            "vocode.with_prompt needs condition.prompt, the recording's tokens",
        )?;
        Ok(tokens.filter(|_| self.vocode.with_prompt))
    }

    fn vocoder_state(&mut self) -> Result<Option<VocoderState>, String> {
        let Vocode { state, n_before, is_last, with_prompt, .. } = &mut self.vocode;
        if state.is_empty() {
            require(
                n_before.is_none() && is_last.is_none(),
                "vocode.n_before, vocode.is_last: for a vocoder with a state",
            )?;
            return Ok(None);
        }
        let chunks = &self.chunks;
        require(
            chunks.left_context == 0 || n_before.is_some(),
            "chunks.left_context: a vocoder with a state takes it where vocode.n_before says how much it is",
        )?;
        require(
            chunks.cross_fade_ms == 0,
            "chunks.cross_fade_ms: the chunks of a vocoder with a state do not overlap",
        )?;
        require(
            chunks.look_ahead == 0 || is_last.is_some(),
            "chunks.look_ahead: a vocoder with a state needs vocode.is_last, to know that there is none",
        )?;
        require(
            chunks.look_ahead == 0 || !*with_prompt,
            "vocode.with_prompt: not for a vocoder with a state and a look-ahead",
        )?;
        Ok(Some(VocoderState { tensors: std::mem::take(state), n_before: n_before.take(), is_last: is_last.take() }))
    }

    fn check_sizes(&self) -> Result<(), String> {
        let decode = &self.decode;
        let chunks = &self.chunks;
        in_range("rate_hz", self.rate_hz as usize, 8_000..=192_000)?;
        in_range("samples_per_token", self.samples_per_token, 1..=MAX_SIZE)?;
        in_range("tokens.codebooks", self.tokens.codebooks, 1..=MAX_CODEBOOKS)?;
        in_range("tokens.vocabulary", self.tokens.vocabulary, 1..=MAX_VOCABULARY)?;
        in_range("tokens.append_silence", self.tokens.append_silence, 0..=MAX_FRAMES)?;
        in_range("decode.layers", decode.layers, 1..=MAX_LAYERS)?;
        in_range("decode.heads", decode.heads, 1..=MAX_SIZE)?;
        in_range("decode.head_size", decode.head_size, 1..=MAX_SIZE)?;
        in_range("decode.capacity", decode.capacity.unwrap_or(0), 0..=MAX_SIZE)?;
        in_range("decode.context", decode.context.unwrap_or(0), 0..=MAX_SIZE)?;
        in_range("length.max_tokens", self.length.max_tokens, 1..=MAX_FRAMES)?;
        in_range("chunks.most", chunks.most, 1..=MAX_FRAMES)?;
        in_range("chunks.look_ahead", chunks.look_ahead, 0..=MAX_FRAMES)?;
        in_range("chunks.left_context", chunks.left_context, 0..=MAX_FRAMES)
    }

    fn check_ids(&self) -> Result<(), String> {
        let tokens = &self.tokens;
        let highest = tokens.vocabulary as i64 - 1;
        in_range("tokens.sounds", tokens.sounds, 0..=highest + 1)?;
        in_range("tokens.start", tokens.start.unwrap_or(0), 0..=highest)?;
        in_range("tokens.stop", tokens.stop.unwrap_or(0), 0..=highest)?;
        in_range("tokens.stop_last", tokens.stop_last, 0..=highest)?;
        in_range("tokens.silence", tokens.silence.unwrap_or(0), 0..=highest)
    }

    fn check_sampling(&self) -> Result<(), String> {
        if let Some(frame) = &self.frame {
            in_range("frame.temperature", frame.temperature.unwrap_or(1.0), 0.0..=10.0)?;
            share("frame.top_p", frame.top_p)?;
        }
        let Some(sampling) = &self.sampling else { return Ok(()) };
        in_range("sampling.temperature", sampling.temperature, 0.0..=10.0)?;
        share("sampling.top_p", sampling.top_p)?;
        require((0.0..1.0).contains(&sampling.min_p), "sampling.min_p: 0 to below 1")?;
        in_range("sampling.repetition_penalty", sampling.repetition_penalty, 0.1..=10.0)?;
        in_range("sampling.repetition_window", sampling.repetition_window.unwrap_or(0), 0..=MAX_WINDOW)?;
        let Some(redraw) = sampling.redraw else { return Ok(()) };
        in_range("sampling.redraw.window", redraw.window, 1..=MAX_WINDOW)?;
        in_range("sampling.redraw.share", redraw.share, 0.0..=1.0)?;
        in_range("sampling.redraw.temperature", redraw.temperature, 0.01..=10.0)?;
        share("sampling.redraw.top_p", redraw.top_p)
    }

    fn check_length_and_chunks(&self) -> Result<(), String> {
        let length = &self.length;
        let chunks = &self.chunks;
        let condition = &self.condition;
        in_range("length.min_tokens", length.min_tokens, 0..=length.max_tokens)?;
        in_range("length.max_tokens_per_char", length.max_tokens_per_char, 0.1..=100.0)?;
        in_range("length.max_silence", length.max_silence, 1..=length.end_silence)?;
        in_range("chunks.first", chunks.first, 1..=chunks.most)?;
        in_range("chunks.growth", chunks.growth, 1.0..=10.0)?;
        let overlap_ms = chunks.look_ahead * self.samples_per_token * 1000 / self.rate_hz as usize;
        require(
            chunks.cross_fade_ms as usize <= overlap_ms,
            "chunks.cross_fade_ms: at most the playing time of chunks.look_ahead",
        )?;
        in_range("condition.use_seconds", condition.use_seconds, 0.1..=600.0)?;
        in_range("condition.min_seconds", condition.min_seconds, 0.0..=condition.use_seconds)
    }
}
