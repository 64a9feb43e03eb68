//! One replica's working memory, and a decoding: samples in, a hypothesis out.
//!
//! `stream` calls [`Decoder::hear`]. Each call hears one window (30 s at most) from its beginning; nothing but memory is kept
//! from one call to the next.

use super::ffi;
use super::hypothesis::{DecodedToken, Hypothesis, Span};
use super::model::Model;
use antiphon_engine_api::stt::SttError;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use whisper_rs::{FullParams, SamplingStrategy, WhisperError, WhisperState, WhisperToken};

/// Tokens for each second of audio, and at least: nobody speaks as fast, and no answer runs on for ever. English needs 5,
/// scripts spelled in bytes up to 20.
const TOKENS_A_SECOND: usize = 25;
const TOKENS_AT_LEAST: usize = 32;

/// whisper.cpp mirrors 200 samples and hears nothing below 0.2 s: shorter audio gets silence behind it.
const SHORTEST: usize = 16_000;

/// The language that is tried first where nothing is known of the speaker.
pub(super) const FIRST_ASSUMED: &str = "en";

/// How much likelier another language must be for a decoding in the one that was assumed to be made again.
const CLEARLY: f32 = 2.0;

/// What is asked of a decoding.
#[derive(Clone, Debug, Default)]
pub(super) struct Ask {
    /// `None`: it is detected.
    pub(super) language: Option<&'static str>,
    /// What was said before, or words to expect, as tokens.
    pub(super) prompt: Vec<i32>,
    /// Times of segments and words are requested.
    pub(super) timed: bool,
    /// English is requested, whatever is spoken.
    pub(super) translate: bool,
    pub(super) temperature: f32,
    /// Other temperatures are tried where the words are unlikely.
    pub(super) retries: bool,
}

/// A replica.
pub(super) struct Decoder {
    pub(super) model: Arc<Model>,
    /// `None`: whisper.cpp has freed it, and the next decoding makes another.
    state: Option<WhisperState>,
    /// whisper-rs never frees the name of a language, so that each is set once and copied.
    templates: HashMap<&'static str, FullParams<'static, 'static>>,
    /// The language heard last in this utterance, or known of its speaker: the first to be tried where none is set.
    pub(super) assumed: &'static str,
}

/// What the model knows before the first word.
struct Beginning {
    no_speech: f32,
    /// The likeliest language, where it is clearly likelier than the one that was assumed.
    other: Option<&'static str>,
}

impl Decoder {
    /// Takes memory by the model's size. Blocks.
    pub(super) fn new(model: Arc<Model>) -> Result<Self, SttError> {
        let mut decoder = Self { model, state: None, templates: HashMap::new(), assumed: FIRST_ASSUMED };
        decoder.state()?;
        Ok(decoder)
    }

    /// Decodes a window of audio in `[-1, 1]`. Blocks; stops soon after `cancel`.
    pub(super) fn hear(&mut self, pcm: &[f32], ask: &Ask, cancel: &CancellationToken) -> Result<Hypothesis, SttError> {
        let language = ask.language.unwrap_or(self.assumed);
        let (mut hypothesis, beginning) = self.attempt(pcm, language, ask, cancel)?;
        if ask.language.is_none()
            && let Some(heard) = beginning.other
            && !hypothesis.spans.is_empty()
        {
            self.assumed = heard;
            (hypothesis, _) = self.attempt(pcm, heard, ask, cancel)?;
        }
        Ok(hypothesis)
    }

    fn attempt(
        &mut self,
        pcm: &[f32],
        language: &'static str,
        ask: &Ask,
        cancel: &CancellationToken,
    ) -> Result<(Hypothesis, Beginning), SttError> {
        let mut params = self.params(language, pcm.len(), ask);
        params.set_tokens(&ask.prompt);
        let padded: Vec<f32>;
        let pcm = if pcm.len() < SHORTEST {
            padded = pcm.iter().copied().chain(std::iter::repeat(0.0)).take(SHORTEST).collect();
            &padded
        } else {
            pcm
        };
        let done = ffi::run(self.state()?, params, pcm, cancel);
        if done.as_ref().is_err_and(ffi::has_freed_state) {
            self.abandon_state();
        }
        if cancel.is_cancelled() {
            return Err(SttError::Cancelled);
        }
        done.map_err(|error| failed("whisper.cpp failed", error))?;
        let spans = self.spans(ask.timed);
        let has_words = spans.iter().any(|span| !span.pieces.is_empty());
        let beginning = if has_words { self.beginning(language)? } else { Beginning { no_speech: 1.0, other: None } };
        let temperature = (!ask.retries || self.model.settings.temperature_step == 0.0).then_some(ask.temperature);
        // Of the words, not of what was spoken.
        let language = (self.model.sizes.is_multilingual() && !ask.translate).then_some(language).or(Some("en"));
        let hypothesis = Hypothesis { spans, no_speech: beginning.no_speech, language, temperature };
        Ok((hypothesis, beginning))
    }

    fn state(&mut self) -> Result<&mut WhisperState, SttError> {
        let state = match self.state.take() {
            Some(state) => state,
            None => {
                let made = self.model.context.create_state();
                made.map_err(|error| failed("there is no memory for a decoder", error))?
            }
        };
        Ok(self.state.insert(state))
    }

    /// Forgets the state without freeing it again. What is left behind is its hold on the model.
    pub(super) fn abandon_state(&mut self) {
        std::mem::forget(self.state.take());
    }

    fn params<'a>(&mut self, language: &'static str, n_samples: usize, ask: &'a Ask) -> FullParams<'static, 'a> {
        let settings = &self.model.settings;
        let template = self.templates.entry(language).or_insert_with(|| {
            let mut params = FullParams::new(match settings.beam_size {
                0 | 1 => SamplingStrategy::Greedy { best_of: 1 },
                n => SamplingStrategy::BeamSearch { beam_size: n as i32, patience: -1.0 },
            });
            params.set_language(Some(language));
            params.set_n_threads(settings.n_threads as i32);
            params.set_no_context(true);
            // One window is one answer; `spans` takes it apart at its times.
            params.set_single_segment(true);
            params.set_suppress_blank(true);
            params.set_suppress_nst(true);
            params.set_print_progress(false);
            params.set_print_realtime(false);
            params.set_print_timestamps(false);
            params.set_print_special(false);
            // `judge` looks at the probability that whisper.cpp takes at a later position than it was trained for.
            params.set_no_speech_thold(1.1);
            params
        });
        let mut params = template.clone();
        let n_tokens = n_samples / 16_000 * TOKENS_A_SECOND + TOKENS_AT_LEAST;
        params.set_max_tokens(settings.n_tokens.unwrap_or(n_tokens) as i32);
        params.set_audio_ctx(self.model.positions(n_samples) as i32);
        params.set_translate(ask.translate);
        params.set_no_timestamps(!ask.timed);
        params.set_token_timestamps(ask.timed);
        params.set_temperature(ask.temperature);
        params.set_temperature_inc(if ask.retries { settings.temperature_step } else { 0.0 });
        params
    }

    /// What was decoded, taken apart at the times that the model gave.
    fn spans(&self, timed: bool) -> Vec<Span> {
        let (end, first_time) = (self.model.context.token_eot(), self.model.context.token_beg());
        let mut spans = Vec::new();
        for segment in self.state.iter().flat_map(WhisperState::as_iter) {
            let (from, to) = (10 * segment.start_timestamp().max(0), 10 * segment.end_timestamp().max(0));
            let mut span = Span { pieces: Vec::new(), start_ms: from as u64, end_ms: to as u64 };
            for token in (0..segment.n_tokens()).filter_map(|i| segment.get_token(i)) {
                let id = token.token_id();
                if id < end {
                    span.pieces.push(piece(&token, timed));
                } else if timed && id >= first_time {
                    let at = (id - first_time) as u64 * 20;
                    if span.pieces.is_empty() {
                        span.start_ms = at;
                    } else {
                        span.end_ms = at;
                        spans.push(std::mem::replace(
                            &mut span,
                            Span { start_ms: at, end_ms: to as u64, ..Span::default() },
                        ));
                    }
                }
            }
            if !span.pieces.is_empty() {
                spans.push(span);
            }
        }
        spans
    }

    /// One step of the decoder on what the encoder made: what the model expects right at the start, where it was trained
    /// to say whether anybody speaks, and in which language.
    fn beginning(&mut self, assumed: &str) -> Result<Beginning, SttError> {
        let model = self.model.clone();
        let (start, nobody) = (model.context.token_sot(), model.context.token_nosp() as usize);
        let state = self.state()?;
        let step = state.decode(&[start], 0, model.settings.n_threads);
        let logits = step.and_then(|()| state.get_logits()).map_err(|error| failed("whisper.cpp failed", error))?;
        let highest = logits.iter().copied().fold(f32::MIN, f32::max);
        let sum: f32 = logits.iter().map(|logit| (logit - highest).exp()).sum();
        let languages =
            &logits[start as usize + 1..][..if model.sizes.is_multilingual() { model.n_languages() } else { 0 }];
        let assumed = whisper_rs::get_lang_id(assumed).and_then(|id| usize::try_from(id).ok());
        let other = clearly_likeliest(languages, assumed.unwrap_or(0)).and_then(|i| whisper_rs::get_lang_str(i as i32));
        Ok(Beginning { no_speech: (logits[nobody] - highest).exp() / sum, other })
    }
}

/// The likeliest language by its number, unless it is the assumed one or hardly likelier.
fn clearly_likeliest(logits: &[f32], assumed: usize) -> Option<usize> {
    let likeliest = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]))?;
    (logits[likeliest] - logits.get(assumed)? > CLEARLY.ln()).then_some(likeliest)
}

fn piece(token: &WhisperToken<'_, '_>, timed: bool) -> DecodedToken {
    let data = token.token_data();
    let ms = |hundredths: i64| if timed { 10 * hundredths.max(0) as u64 } else { 0 };
    let bytes = token.to_bytes().unwrap_or_default().to_vec();
    DecodedToken { bytes, id: data.id as u32, logprob: data.plog, start_ms: ms(data.t0), end_ms: ms(data.t1) }
}

fn failed(what: &str, error: WhisperError) -> SttError {
    SttError::Engine { message: what.into(), source: Some(Box::new(error)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_language_is_tried_where_it_is_clearly_likelier_than_the_assumed_one() {
        let of = |probabilities: &[f32], assumed| {
            clearly_likeliest(&probabilities.iter().map(|p| p.ln()).collect::<Vec<_>>(), assumed)
        };
        assert_eq!(of(&[0.9, 0.05, 0.05], 0), None);
        assert_eq!(of(&[0.05, 0.9, 0.05], 0), Some(1));
        assert_eq!(of(&[0.3, 0.4, 0.3], 0), None, "hardly likelier");
        assert_eq!(of(&[0.1, 0.4, 0.3, 0.2], 0), Some(1), "likely enough though less than half");
        assert_eq!(of(&[], 0), None, "a model of one language");
    }
}
