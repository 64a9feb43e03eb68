//! A decoding on a replica: samples in, a hypothesis out.
//!
//! `stream` calls [`Decoder::hear`]. Each call hears one window (30 s at most) from its beginning, in a working memory of
//! `states`. From one call to the next the words are kept, as a draft: they change how long a call takes, not what it gives.

use super::ffi::{self, Logits};
use super::hypothesis::{DecodedToken, Hypothesis, Span};
use super::judge;
use super::model::Model;
use super::search::{self, BestText, Choice, Request, search};
use super::states::State;
use antiphon_engine_api::stt::SttError;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use whisper_rs::{FullParams, SamplingStrategy, WhisperError, WhisperState, WhisperToken, WhisperTokenId};

/// The most tokens for each second of audio, and what is added to them: an answer that reaches them repeats itself. Fast
/// English needs 9 a second, scripts spelled in bytes up to 20.
const TOKENS_A_SECOND: usize = 25;
const TOKENS_AT_LEAST: usize = 32;
const ENGLISH_TOKENS_A_SECOND: usize = 12;
const ENGLISH_TOKENS_AT_LEAST: usize = 16;

/// whisper.cpp mirrors 200 samples and hears nothing below 0.2 s: shorter audio gets silence behind it.
const SHORTEST: usize = 16_000;

/// The language that is tried first where nothing is known of the speaker.
pub(super) const FIRST_ASSUMED: &str = "en";

/// How much likelier another language must be than the assumed one, heard in the full window: of short audio, and of any
/// other. Whisper distinguishes languages by what it was trained on, windows of 30 s; of a word or two it knows little.
const CLEARLY_IF_SHORT: f32 = 8.0;
const CLEARLY: f32 = 2.0;
const SHORT: usize = 5 * 16_000;

/// How much likelier another one must look in a window that was cut short for the full one to be asked, which takes four times
/// as long: of a speaker of whom a language is known, and of another one.
const CLEARLY_IF_CUT: f32 = 10.0;
const LIKELIER_IF_CUT: f32 = 2.0;

/// Bands of the spectrograms that a state takes from elsewhere.
const BANDS: usize = 80;

/// Tokens before the first word that are no prompt, at most.
const N_START: usize = 5;

/// Half of the decoder's positions are the text's; whisper.cpp leaves this number of them unused
/// (`whisper_full_with_state`).
const N_UNUSED_BY_WHISPER_CPP: usize = 4;

/// Frames of a spectrogram for each position of the encoder.
const FRAMES_A_POSITION: usize = 2;

/// The highest temperature that is tried.
const MOST_TEMPERATURE: f32 = 1.0;

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
    /// Suspect words are decoded again, in the full window and at other temperatures.
    pub(super) retries: bool,
    /// Alternatives that are tried at uncertain tokens, at most.
    pub(super) n_alternatives: usize,
    /// How long something sounded, in milliseconds.
    pub(super) voiced_ms: u64,
}

/// How audio is decoded once.
#[derive(Clone, Copy)]
struct Attempt {
    language: &'static str,
    /// In Whisper's 30 s, though the audio may be shorter.
    full_window: bool,
    temperature: f32,
    /// The most tokens; `None`: by the length of the audio.
    n_tokens: Option<usize>,
}

/// A replica.
pub(super) struct Decoder {
    pub(super) model: Arc<Model>,
    /// What the decoding under way uses.
    state: Option<State>,
    /// whisper-rs never frees the name of a language, so that each is set once and copied.
    templates: HashMap<&'static str, FullParams<'static, 'static>>,
    /// The language heard last in this utterance, or known of its speaker: the first to be tried where none is set.
    pub(super) assumed: &'static str,
    /// Whether that is more than a guess.
    pub(super) is_known: bool,
    /// What was decoded last in this utterance.
    draft: Vec<WhisperTokenId>,
}

/// What was decoded once.
struct DecodedWindow {
    spans: Vec<Span>,
    beginning: Beginning,
    /// It has as many tokens as the decoder has positions for.
    is_full: bool,
}

/// What the model knows before the first word.
struct Beginning {
    no_speech: f32,
    /// The likeliest language other than the one that was assumed.
    other: Option<OtherLanguage>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct OtherLanguage {
    id: usize,
    /// How much likelier it is than the assumed one.
    odds: f32,
}

impl Decoder {
    /// Takes memory by the model's size, where there is not enough for as many decodings as run at a time. Blocks.
    pub(super) fn new(model: Arc<Model>) -> Result<Self, SttError> {
        model.states.join(|| model.context.create_state()).map_err(no_memory)?;
        Ok(Self {
            model,
            state: None,
            templates: HashMap::new(),
            assumed: FIRST_ASSUMED,
            is_known: false,
            draft: Vec::new(),
        })
    }

    /// What follows is no continuation of what was decoded.
    pub(super) fn forget(&mut self) {
        self.draft = Vec::new();
    }

    /// Decodes a window of audio in `[-1, 1]`. Blocks; stops soon after `cancel`. The caller holds a share of the cores.
    pub(super) fn hear(&mut self, pcm: &[f32], ask: &Ask, cancel: &CancellationToken) -> Result<Hypothesis, SttError> {
        let heard = self.hear_window(pcm, ask, cancel);
        self.release();
        heard
    }

    fn hear_window(&mut self, pcm: &[f32], ask: &Ask, cancel: &CancellationToken) -> Result<Hypothesis, SttError> {
        let mut attempt = Attempt {
            language: ask.language.unwrap_or(self.assumed),
            full_window: false,
            temperature: ask.temperature,
            n_tokens: None,
        };
        let (mut heard, beginning) = self.attempt(pcm, attempt, ask, cancel)?;
        let mut may_be_other =
            ask.language.is_none() && beginning.other.is_some_and(|other| other.odds > self.bound_if_cut());
        if ask.language.is_none()
            && let Some(other) = beginning.other
            && let Some(language) = self.other_language(pcm, other, ask, cancel)?
        {
            attempt.language = language;
            may_be_other = false;
            (heard, _) = self.attempt(pcm, attempt, ask, cancel)?;
        }
        let is_suspect = judge::is_suspect(&heard, ask.voiced_ms);
        heard.is_hasty = !ask.retries && (may_be_other || is_suspect || heard.is_full);
        if ask.retries && self.model.settings.repeats_suspect {
            self.retry(pcm, attempt, heard, ask, cancel)
        } else {
            Ok(heard)
        }
    }

    /// The best of some decodings, where the first is suspect: in the full window, which Whisper was trained on, then at
    /// higher temperatures. "Best" is by [`judge::is_better`], not the last.
    fn retry(
        &mut self,
        pcm: &[f32],
        mut attempt: Attempt,
        first: Hypothesis,
        ask: &Ask,
        cancel: &CancellationToken,
    ) -> Result<Hypothesis, SttError> {
        let mut best = first;
        let step = self.model.settings.temperature_step;
        while judge::is_suspect(&best, ask.voiced_ms) && best.no_speech <= self.model.settings.no_speech {
            if !attempt.full_window && self.model.positions(pcm.len()) < self.model.sizes.n_audio_ctx {
                attempt.full_window = true;
            } else if step > 0.0 && attempt.temperature + step <= MOST_TEMPERATURE {
                attempt.full_window = true;
                attempt.temperature += step;
            } else {
                break;
            }
            let (again, _) = self.attempt(pcm, attempt, ask, cancel)?;
            let is_better = judge::is_better(&again, &best);
            tracing::debug!(
                full_window = attempt.full_window,
                temperature = attempt.temperature,
                is_better,
                "a suspect decoding was made again"
            );
            if is_better {
                best = again;
            }
        }
        Ok(best)
    }

    /// The language that is spoken where it is not the assumed one, which looks less likely than `other`.
    fn other_language(
        &mut self,
        pcm: &[f32],
        other: OtherLanguage,
        ask: &Ask,
        cancel: &CancellationToken,
    ) -> Result<Option<&'static str>, SttError> {
        let is_cut = self.model.positions(pcm.len()) < self.model.sizes.n_audio_ctx;
        let other = if is_cut {
            // The full window takes too long for words that are soon decoded again.
            if !ask.retries || other.odds <= self.bound_if_cut() {
                return Ok(None);
            }
            let language = self.assumed;
            let attempt = Attempt { language, full_window: true, temperature: 0.0, n_tokens: Some(1) };
            let (_, beginning) = self.attempt(pcm, attempt, &Ask { prompt: Vec::new(), ..ask.clone() }, cancel)?;
            beginning.other
        } else {
            Some(other)
        };
        let bound = if pcm.len() < SHORT { CLEARLY_IF_SHORT } else { CLEARLY };
        let other = other.filter(|other| other.odds > bound);
        tracing::debug!(?other, assumed = self.assumed, "the language was detected");
        let language = other.and_then(|other| i32::try_from(other.id).ok()).and_then(whisper_rs::get_lang_str);
        self.assumed = language.unwrap_or(self.assumed);
        self.is_known = true;
        Ok(language)
    }

    /// How much likelier another language must look in a window that was cut short.
    fn bound_if_cut(&self) -> f32 {
        if self.is_known { CLEARLY_IF_CUT } else { LIKELIER_IF_CUT }
    }

    fn attempt(
        &mut self,
        pcm: &[f32],
        attempt: Attempt,
        ask: &Ask,
        cancel: &CancellationToken,
    ) -> Result<(Hypothesis, Beginning), SttError> {
        let language = attempt.language;
        let n_tokens = (self.model.settings.n_tokens.or(attempt.n_tokens))
            .unwrap_or_else(|| most_tokens(language, ask.translate, pcm.len()));
        let padded: Vec<f32>;
        let pcm = if pcm.len() < SHORTEST {
            padded = pcm.iter().copied().chain(std::iter::repeat(0.0)).take(SHORTEST).collect();
            &padded
        } else {
            pcm
        };
        let is_greedy = self.model.settings.beam_size <= 1 && attempt.temperature == 0.0;
        let DecodedWindow { spans, beginning, is_full } = if is_greedy && !ask.timed && ffi::has_outputs() {
            self.decode_greedily(pcm, attempt, n_tokens, ask, cancel)
        } else {
            self.decode_whole(pcm, attempt, n_tokens, ask, cancel)
        }?;
        let n_pieces: usize = spans.iter().map(|span| span.pieces.len()).sum();
        // Of the words, not of what was spoken.
        let language = (self.model.sizes.is_multilingual() && !ask.translate).then_some(language).or(Some("en"));
        let hypothesis = Hypothesis {
            spans,
            no_speech: beginning.no_speech,
            language,
            temperature: Some(attempt.temperature),
            is_cut_off: n_pieces >= n_tokens,
            is_full,
            is_hasty: false,
        };
        Ok((hypothesis, beginning))
    }

    /// By whisper.cpp's own loop.
    fn decode_whole(
        &mut self,
        pcm: &[f32],
        attempt: Attempt,
        n_tokens: usize,
        ask: &Ask,
        cancel: &CancellationToken,
    ) -> Result<DecodedWindow, SttError> {
        let mut params = self.params(attempt, pcm.len(), ask);
        params.set_max_tokens(n_tokens as i32);
        params.set_tokens(&ask.prompt);
        let positions = self.positions_of(attempt, pcm.len());
        let state = self.state()?;
        let done = ffi::run(&mut state.state, params, pcm, cancel);
        state.positions = done.is_ok().then_some(positions);
        if done.as_ref().is_err_and(ffi::has_freed_state) {
            self.abandon_state();
        }
        check(done, cancel)?;
        let spans = self.spans(ask.timed);
        let most = (self.model.sizes.n_text_ctx / 2).saturating_sub(N_UNUSED_BY_WHISPER_CPP).max(1);
        let is_full = n_tokens > most && self.was_stopped(most);
        let beginning = match spans.iter().all(|span| span.pieces.is_empty()) {
            true => Beginning { no_speech: 1.0, other: None },
            false => self.beginning(attempt.language)?,
        };
        Ok(DecodedWindow { spans, beginning, is_full })
    }

    /// Whether whisper.cpp has stopped a text at `most` tokens, before its end.
    fn was_stopped(&self, most: usize) -> bool {
        let end = self.model.context.token_eot();
        let mut segments = self.state.iter().flat_map(|state| state.state.as_iter());
        segments.any(|segment| {
            let last = segment.get_token(segment.n_tokens() - 1);
            let has_end = last.is_some_and(|last| last.token_id() == end);
            segment.n_tokens() as usize >= most && !has_end
        })
    }

    /// A token at a time, by [`search`], from the spectrogram that `antiphon-audio` computes.
    fn decode_greedily(
        &mut self,
        pcm: &[f32],
        attempt: Attempt,
        n_tokens: usize,
        ask: &Ask,
        cancel: &CancellationToken,
    ) -> Result<DecodedWindow, SttError> {
        let model = self.model.clone();
        let n_threads = model.settings.n_threads;
        let n_positions = self.positions_of(attempt, pcm.len());
        if self.state()?.positions != Some(n_positions) {
            let untimed = Ask::default();
            let params = self.params(attempt, pcm.len(), &untimed);
            let state = self.state()?;
            ffi::set_positions(&mut state.state, params);
            state.positions = Some(n_positions);
        }
        let draft = std::mem::take(&mut self.draft);
        let start = self.start(attempt.language, ask);
        let sot = start.iter().rposition(|token| *token == model.context.token_sot()).unwrap_or_default();
        let state = &mut self.state()?.state;
        let done = match model.sizes.n_mels {
            BANDS => state.set_mel(&model.spectrograms.window(pcm, FRAMES_A_POSITION * n_positions)),
            _ => state.pcm_to_mel(pcm, n_threads),
        };
        check(done, cancel)?;
        check(ffi::encode(state, n_threads, cancel), cancel)?;
        // Half of the positions are the prompt's.
        let most = (model.sizes.n_text_ctx / 2).max(1);
        let n_chosen = n_tokens.clamp(1, most);
        let request = Request { start, draft: &draft, n_tokens: n_chosen, n_alternatives: ask.n_alternatives };
        let found = search(&mut EncodedWindow { state, n_threads, cancel }, &model.text_tokens, &request);
        let BestText { choices, first_logits } = check(found, cancel)?;
        self.draft = choices.iter().map(|choice| choice.id).collect();
        let span = Span {
            pieces: choices.iter().map(|choice| self.chosen_piece(*choice)).collect(),
            start_ms: 0,
            end_ms: pcm.len() as u64 / 16,
        };
        let beginning = match (choices.is_empty(), sot) {
            (true, _) => Beginning { no_speech: 1.0, other: None },
            (false, 0) => self.beginning_of(attempt.language, &first_logits),
            // What was said before says more of silence and language than the audio.
            (false, _) => self.beginning(attempt.language)?,
        };
        let is_full = n_tokens > most && choices.len() >= most;
        Ok(DecodedWindow { spans: vec![span], beginning, is_full })
    }

    /// The tokens before the first word.
    fn start(&self, language: &str, ask: &Ask) -> Vec<WhisperTokenId> {
        let context = &self.model.context;
        let mut start = Vec::new();
        let most = (self.model.sizes.n_text_ctx / 2).saturating_sub(N_START);
        if !ask.prompt.is_empty() && most > 0 {
            start.push(context.token_prev());
            start.extend(&ask.prompt[ask.prompt.len().saturating_sub(most)..]);
        }
        start.push(context.token_sot());
        if self.model.sizes.is_multilingual() {
            start.push(context.token_lang(whisper_rs::get_lang_id(language).unwrap_or_default()));
            start.push(if ask.translate { context.token_translate() } else { context.token_transcribe() });
        }
        start.push(context.token_not());
        start
    }

    fn chosen_piece(&self, choice: Choice) -> DecodedToken {
        let bytes = self.model.context.token_to_bytes(choice.id).unwrap_or_default().to_vec();
        DecodedToken { bytes, id: choice.id as u32, logprob: choice.logprob, start_ms: 0, end_ms: 0 }
    }

    fn positions_of(&self, attempt: Attempt, n_samples: usize) -> usize {
        match attempt.full_window {
            true => self.model.sizes.n_audio_ctx,
            false => self.model.positions(n_samples),
        }
    }

    fn state(&mut self) -> Result<&mut State, SttError> {
        let state = match self.state.take() {
            Some(state) => state,
            None => self.model.states.take(|| self.model.context.create_state()).map_err(no_memory)?,
        };
        Ok(self.state.insert(state))
    }

    /// Gives the state to the next decoding.
    fn release(&mut self) {
        if let Some(state) = self.state.take() {
            self.model.states.give_back(state);
        }
    }

    /// Leaves a state that whisper.cpp has freed.
    fn abandon_state(&mut self) {
        if let Some(state) = self.state.take() {
            self.model.states.abandon(state);
        }
    }

    fn params<'a>(&mut self, attempt: Attempt, n_samples: usize, ask: &'a Ask) -> FullParams<'static, 'a> {
        let settings = &self.model.settings;
        let language = attempt.language;
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
        params.set_audio_ctx(self.positions_of(attempt, n_samples) as i32);
        params.set_translate(ask.translate);
        params.set_no_timestamps(!ask.timed);
        params.set_token_timestamps(ask.timed);
        params.set_temperature(attempt.temperature);
        // whisper.cpp would keep the last of its attempts; `retry` keeps the best.
        params.set_temperature_inc(0.0);
        params
    }

    /// What was decoded, taken apart at the times that the model gave.
    fn spans(&self, timed: bool) -> Vec<Span> {
        let end = self.model.context.token_eot();
        let first_time = self.model.context.token_beg();
        let mut spans = Vec::new();
        for segment in self.state.iter().flat_map(|state| state.state.as_iter()) {
            let from = 10 * segment.start_timestamp().max(0);
            let to = 10 * segment.end_timestamp().max(0);
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
    /// to report whether there is speech, and in which language.
    fn beginning(&mut self, assumed: &str) -> Result<Beginning, SttError> {
        let model = self.model.clone();
        let start = model.context.token_sot();
        let state = &mut self.state()?.state;
        let step = state.decode(&[start], 0, model.settings.n_threads);
        let logits = step.and_then(|()| state.get_logits()).map_err(|error| failed("whisper.cpp failed", error))?;
        let logits = logits.to_vec();
        Ok(self.beginning_of(assumed, &logits))
    }

    /// The same, from what the model expects there.
    fn beginning_of(&self, assumed: &str, logits: &[f32]) -> Beginning {
        let model = &self.model;
        let no_speech_token = model.context.token_nosp() as usize;
        let highest = logits.iter().copied().fold(f32::MIN, f32::max);
        let sum: f32 = logits.iter().map(|logit| (logit - highest).exp()).sum();
        let first = model.context.token_sot() as usize + 1;
        let n_languages = if model.sizes.is_multilingual() { model.n_languages() } else { 0 };
        let languages = &logits[first..][..n_languages];
        let assumed = whisper_rs::get_lang_id(assumed).and_then(|id| usize::try_from(id).ok());
        let other = likelier_language(languages, assumed.unwrap_or(0));
        Beginning { no_speech: (logits[no_speech_token] - highest).exp() / sum, other }
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        self.release();
        self.model.states.leave();
    }
}

/// What a state has encoded.
struct EncodedWindow<'a> {
    state: &'a mut WhisperState,
    n_threads: usize,
    cancel: &'a CancellationToken,
}

impl search::Model for EncodedWindow<'_> {
    type Error = WhisperError;

    /// Stops between two nodes of a graph once `cancel` is cancelled, with an error.
    fn pass(&mut self, tokens: &[WhisperTokenId], n_past: usize, logits: &mut Logits) -> Result<(), WhisperError> {
        ffi::decode(self.state, tokens, n_past, self.n_threads, self.cancel, logits)
    }
}

/// What a call of whisper.cpp gave, unless it was cancelled meanwhile.
fn check<T>(done: Result<T, WhisperError>, cancel: &CancellationToken) -> Result<T, SttError> {
    if cancel.is_cancelled() {
        return Err(SttError::Cancelled);
    }
    done.map_err(|error| failed("whisper.cpp failed", error))
}

/// The most tokens of an answer to `n_samples` samples.
fn most_tokens(language: &str, translate: bool, n_samples: usize) -> usize {
    let (a_second, at_least) = match language == FIRST_ASSUMED || translate {
        true => (ENGLISH_TOKENS_A_SECOND, ENGLISH_TOKENS_AT_LEAST),
        false => (TOKENS_A_SECOND, TOKENS_AT_LEAST),
    };
    n_samples * a_second / 16_000 + at_least
}

/// The likeliest language by its number, unless it is the assumed one.
fn likelier_language(logits: &[f32], assumed: usize) -> Option<OtherLanguage> {
    let id = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]))?;
    let odds = (logits[id] - logits.get(assumed)?).exp();
    (id != assumed).then_some(OtherLanguage { id, odds })
}

fn piece(token: &WhisperToken<'_, '_>, timed: bool) -> DecodedToken {
    let data = token.token_data();
    let ms = |hundredths: i64| if timed { 10 * hundredths.max(0) as u64 } else { 0 };
    let bytes = token.to_bytes().unwrap_or_default().to_vec();
    DecodedToken { bytes, id: data.id as u32, logprob: data.plog, start_ms: ms(data.t0), end_ms: ms(data.t1) }
}

fn no_memory(error: WhisperError) -> SttError {
    failed("there is no memory for a decoder", error)
}

fn failed(what: &str, error: WhisperError) -> SttError {
    SttError::Engine { message: what.into(), source: Some(Box::new(error)) }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Sizes;
    use super::super::random;
    use super::super::states::States;
    use super::super::tests::{config, spoken, unpacked};
    use super::*;
    use crate::stt::SttConfig;

    /// Tokens, their log-probabilities and the probability of silence.
    fn decode(decoder: &mut Decoder, pcm: &[f32], ask: &Ask, greedily: bool) -> (Vec<u32>, Vec<f32>, f32) {
        let attempt = Attempt { language: "en", full_window: false, temperature: 0.0, n_tokens: None };
        let cancel = CancellationToken::new();
        let decoded = match greedily {
            true => decoder.decode_greedily(pcm, attempt, 40, ask, &cancel),
            false => decoder.decode_whole(pcm, attempt, 40, ask, &cancel),
        };
        let DecodedWindow { spans, beginning, .. } = decoded.expect("it decodes");
        let pieces: Vec<DecodedToken> = spans.into_iter().flat_map(|span| span.pieces).collect();
        let ids = pieces.iter().map(|piece| piece.id).collect();
        let logprobs = pieces.iter().map(|piece| piece.logprob).collect();
        (ids, logprobs, beginning.no_speech)
    }

    #[test]
    fn a_token_at_a_time_is_what_whisper_cpp_decodes_whatever_the_draft() {
        let folder = unpacked();
        let model = Arc::new(Model::load(&config(&folder)).expect("it loads"));
        let mut decoder = Decoder::new(model.clone()).expect("there is memory");
        let prompt = model.context.tokenize(" stop go", 64).expect("it has tokens");
        for (text, prompt) in [("red green blue", Vec::new()), ("blue red", Vec::new()), ("green red blue", prompt)] {
            let pcm: Vec<f32> = spoken("slt", text).iter().map(|sample| f32::from(*sample) / 32_768.0).collect();
            let ask = Ask { prompt, ..Ask::default() };
            let (ids, logprobs, no_speech) = decode(&mut decoder, &pcm, &ask, false);
            assert!(!ids.is_empty(), "{text}");
            let words: Vec<WhisperTokenId> = ids.iter().map(|id| *id as WhisperTokenId).collect();
            let half = &words[..words.len() / 2];
            let wrong = vec![words[0] + 1; 5];
            let too_long = [&words[..], &wrong[..]].concat();
            let mut n_graphs = Vec::new();
            for draft in [&[], &words[..], half, &wrong, &too_long] {
                decoder.draft = draft.to_vec();
                let before = ffi::N_GRAPHS.get();
                let (now_ids, now_logprobs, now_no_speech) = decode(&mut decoder, &pcm, &ask, true);
                n_graphs.push(ffi::N_GRAPHS.get() - before);
                assert_eq!(now_ids, ids, "{text}, draft {draft:?}");
                assert!((now_no_speech - no_speech).abs() < 0.01, "{text}: {now_no_speech}, {no_speech}");
                let differ = |(a, b): (&f32, &f32)| (a - b).abs() > 0.02;
                let n_other = now_logprobs.iter().zip(&logprobs).filter(|pair| differ(*pair)).count();
                assert_eq!(n_other, 0, "{text}: {now_logprobs:?}, {logprobs:?}");
            }
            let [none, all, _, wrong, too_long] = n_graphs[..] else { panic!("{n_graphs:?}") };
            assert_eq!(all + words.len(), none, "{text}: a pass for all, and one for each: {n_graphs:?}");
            assert_eq!(all, too_long, "{text}: {n_graphs:?}");
            assert!(wrong <= none, "{text}: {n_graphs:?}");
        }
    }

    #[test]
    fn a_text_without_room_for_its_end_differs_from_one_that_is_too_long_for_its_audio() {
        // Random weights never end a text.
        let sizes = Sizes {
            n_audio_state: 64,
            n_audio_head: 4,
            n_audio_layer: 1,
            n_text_ctx: 32,
            n_text_state: 64,
            n_text_head: 4,
            n_text_layer: 1,
            ..Sizes::BASE
        };
        let folder = tempfile::tempdir().expect("a folder");
        let mut file = Vec::new();
        random::write(&mut file, &sizes).expect("memory");
        std::fs::write(folder.path().join("random.bin"), file).expect("room");
        let model = Model::load(&config(&folder)).expect("it loads");
        let mut decoder = Decoder::new(Arc::new(model)).expect("there is memory");
        // For a second of English 28 tokens are allowed.
        let pcm: Vec<f32> = (0..16_000).map(|i| (i as f32 * 0.3).sin() * 0.3).collect();
        let mut decode = |temperature, n_tokens| {
            let attempt = Attempt { language: "en", full_window: false, temperature, n_tokens };
            let decoded = decoder.attempt(&pcm, attempt, &Ask::default(), &CancellationToken::new());
            let (heard, _) = decoded.expect("it decodes");
            (heard.is_full, heard.is_cut_off)
        };
        assert_eq!(decode(0.0, None), (true, false), "16 tokens, by the search");
        assert_eq!(decode(0.4, None), (true, false), "12 tokens, by whisper.cpp");
        assert_eq!(decode(0.0, Some(8)), (false, true));
        assert_eq!(decode(0.4, Some(8)), (false, true));
    }

    #[test]
    fn a_memory_that_whisper_cpp_has_freed_is_replaced() {
        let folder = unpacked();
        let model = Arc::new(Model::load(&config(&folder)).expect("it loads"));
        let mut decoder = Decoder::new(model.clone()).expect("there is memory");
        let pcm: Vec<f32> = spoken("slt", "red").iter().map(|sample| f32::from(*sample) / 32_768.0).collect();
        let first = decode(&mut decoder, &pcm, &Ask::default(), true);
        decoder.abandon_state();
        assert_eq!(model.states.n_made(), 0);
        assert_eq!(decode(&mut decoder, &pcm, &Ask::default(), true), first);
        assert_eq!(model.states.n_made(), 1);
    }

    #[test]
    fn a_decoder_makes_the_memory_that_it_may_need_when_it_begins() {
        let folder = unpacked();
        let mut model = Model::load(&config(&folder)).expect("it loads");
        model.states = States::new(2);
        let model = Arc::new(model);
        let mut decoders = Vec::new();
        for n_made in [1, 2, 2] {
            decoders.push(Decoder::new(model.clone()).expect("there is memory"));
            assert_eq!(model.states.n_made(), n_made);
        }
        for n_made in [2, 1, 0] {
            decoders.pop();
            assert_eq!(model.states.n_made(), n_made);
        }
    }

    #[test]
    fn decoders_share_the_memories_of_the_decodings_that_run_at_a_time() {
        let folder = unpacked();
        let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
        let one_at_a_time = SttConfig { threads: n_cores, ..config(&folder) };
        let model = Arc::new(Model::load(&one_at_a_time).expect("it loads"));
        let mut decoders = [(); 3].map(|()| Decoder::new(model.clone()).expect("there is memory"));
        let pcm: Vec<f32> =
            spoken("slt", "red green blue").iter().map(|sample| f32::from(*sample) / 32_768.0).collect();
        let longer: Vec<f32> = pcm.iter().copied().chain(std::iter::repeat_n(0.0, 16_000 * 12)).collect();
        let mut each = |pcm: &[f32]| {
            decoders.each_mut().map(|decoder| {
                let decoded = decode(decoder, pcm, &Ask::default(), true);
                decoder.forget();
                decoder.release();
                assert_eq!(model.states.n_made(), 1);
                decoded
            })
        };
        let short = each(&pcm);
        let long = each(&longer);
        assert_ne!(short[0].1, long[0].1, "another window gives other probabilities");
        assert_eq!(each(&pcm), short);
        assert_eq!([&long[1], &long[2]], [&long[0]; 2]);
        drop(decoders);
        assert_eq!(model.states.n_made(), 0);
    }

    #[test]
    fn a_draft_changes_nothing_in_a_memory_that_was_never_used() {
        let folder = unpacked();
        let mut model = Model::load(&config(&folder)).expect("it loads");
        model.states = States::new(2);
        let model = Arc::new(model);
        let pcm: Vec<f32> =
            spoken("slt", "red green blue").iter().map(|sample| f32::from(*sample) / 32_768.0).collect();
        let mut first = Decoder::new(model.clone()).expect("there is memory");
        let whole = decode(&mut first, &pcm, &Ask::default(), true).0;
        first.release();
        first.forget();
        for n in (4_000..pcm.len()).step_by(2_000) {
            decode(&mut first, &pcm[..n], &Ask::default(), true);
            first.release();
            // Its memory is the last one that was made, and the next to be taken.
            let second = Decoder::new(model.clone()).expect("there is memory");
            assert_eq!(decode(&mut first, &pcm, &Ask::default(), true).0, whole, "behind {n} samples");
            first.release();
            first.forget();
            drop(second);
        }
    }

    #[test]
    fn the_window_of_a_decoding_is_its_own() {
        let folder = unpacked();
        let model = Arc::new(Model::load(&config(&folder)).expect("it loads"));
        let mut decoder = Decoder::new(model).expect("there is memory");
        let pcm: Vec<f32> =
            spoken("slt", "red green blue").iter().map(|sample| f32::from(*sample) / 32_768.0).collect();
        let longer: Vec<f32> = pcm.iter().copied().chain(std::iter::repeat_n(0.0, 16_000 * 12)).collect();
        let short = decode(&mut decoder, &pcm, &Ask::default(), true);
        let long = decode(&mut decoder, &longer, &Ask::default(), true);
        assert_ne!(short.1, long.1, "another window gives other probabilities");
        assert_eq!(decode(&mut decoder, &pcm, &Ask::default(), true), short);
        assert_eq!(decode(&mut decoder, &longer, &Ask::default(), true), long);
    }

    #[test]
    fn another_language_has_its_odds_against_the_assumed_one() {
        let of = |probabilities: &[f32], assumed| {
            let logits: Vec<f32> = probabilities.iter().map(|p| p.ln()).collect();
            likelier_language(&logits, assumed).map(|other| (other.id, (other.odds * 100.0).round() / 100.0))
        };
        assert_eq!(of(&[0.9, 0.05, 0.05], 0), None);
        assert_eq!(of(&[0.05, 0.9, 0.05], 0), Some((1, 18.0)));
        assert_eq!(of(&[0.1, 0.4, 0.3, 0.2], 0), Some((1, 4.0)), "likely enough though less than half");
        assert_eq!(of(&[], 0), None, "a model of one language");
    }

    #[test]
    fn an_answer_is_as_long_as_the_audio_allows() {
        assert_eq!(most_tokens("en", false, 8_000), 22);
        assert_eq!(most_tokens("en", false, 160_000), 136);
        assert_eq!(most_tokens("ja", false, 160_000), 282);
        assert_eq!(most_tokens("ja", true, 160_000), 136, "English is written");
    }
}
