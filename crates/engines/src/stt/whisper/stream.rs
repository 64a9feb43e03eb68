//! One utterance at a time on a replica: its audio is gathered, and decoded from its beginning on each request.
//!
//! A pool drives it through [`SttStream`]. Whisper hears 30 s at most: of longer audio all but the last seconds are
//! decoded on the way, cut in a pause, so that memory and the wait at the end stay those of one window. A text has 224
//! tokens at most, which fast speech in a script of many tokens fills within 10 s: a final transcript of more words is
//! decoded in parts.

use super::decoder::{Ask, Decoder, FIRST_ASSUMED};
use super::hypothesis::Hypothesis;
use super::judge::{Verdict, judge, lacks_words};
use super::voiced::{VoicedSpan, quietest};
use crate::stt::SttStream;
use crate::stt::terms::prompt_with;
use antiphon_engine_api::stt::{Segment, SpeakerState, SttError, SttOptions, TokenLogprob, Transcript};
use antiphon_types::RunsOn;
use tokio_util::sync::CancellationToken;

/// Audio kept around what sounds: soft beginnings and ends are part of words.
const MARGIN_BEFORE: usize = 16_000 * 3 / 10;
const MARGIN_BEHIND: usize = 16_000 / 2;

/// A transcript of less audio is the final one where the sound ends within this number of samples of where it ended then:
/// 40 ms.
const SAME_END: usize = 640;

/// A word of a partial transcript is sure from this probability of each of its pieces on.
const SURE: f32 = 0.4;

/// Sound before the first partial transcript, in milliseconds: of less than a word Whisper makes words that do not last.
const FIRST_WORD_MS: u64 = 320;

/// Silence from which a partial transcript may become the final one, 10 ms: less than what is left of a lull of 32 ms in frames of
/// 20 ms, more than the rest of a frame that ends in a word.
const PAUSE: usize = 160;

/// Alternatives of a final transcript. One that is awaited for an answer has none: it is the partial transcript of the pause, where
/// each would delay the answer by a pass of some 15 ms or more. On 45 clips of a reader, each with five beginnings (1,720
/// words), 0 and 2 gave 200 and 171 errors; beams of 2 and 5 hypotheses 185 and 156.
const ALTERNATIVES: usize = 2;

/// Quieter voices are raised to this peak, -12 dB of full scale: the model's spectra have a floor, below which it hears nothing.
/// By 32 dB at most.
const USUAL_PEAK: f32 = 8_192.0;
const MAX_GAIN: f32 = 40.0;

/// Where a window that is full may be cut: in its later part.
const CUT_WITHIN: usize = 10 * 16_000;

/// The shortest part of audio that is decoded in parts, 3 s: it takes 7.5 s to fill a text with as many tokens as audio
/// may have.
const SHORTEST_PART: usize = 3 * 16_000;

/// Characters of the previous text that a later window is given, and of a client's prompt: half of the decoder's
/// positions are for it, and whisper.cpp drops what is too long from its beginning.
const MOST_BEFORE: usize = 200;
const MOST_PROMPT: usize = 800;

/// A replica and its utterance.
pub(super) struct WhisperStream {
    decoder: Decoder,
    options: SttOptions,
    language: Option<&'static str>,
    /// What is not decoded for good.
    audio: Vec<i16>,
    /// Samples before that.
    n_before: usize,
    /// What they said.
    before: SettledWords,
    /// The last decoding of all of `audio`, and what sounded in it.
    last: Option<(VoicedSpan, JudgedHypothesis)>,
}

/// Words with what goes with them.
#[derive(Clone, Debug, Default)]
struct SettledWords {
    text: String,
    logprobs: Vec<TokenLogprob>,
    segments: Vec<Segment>,
    language: Option<&'static str>,
}

/// A judged hypothesis and where its audio begins in the window.
#[derive(Clone, Debug, Default)]
struct JudgedHypothesis {
    hypothesis: Hypothesis,
    from: usize,
}

impl WhisperStream {
    pub(super) fn new(decoder: Decoder) -> Self {
        Self {
            decoder,
            options: SttOptions::default(),
            language: None,
            audio: Vec::new(),
            n_before: 0,
            before: SettledWords::default(),
            last: None,
        }
    }

    /// The language that is tried first.
    #[cfg(test)]
    pub(super) fn assumed(&self) -> &'static str {
        self.decoder.assumed
    }

    /// Samples that are not decoded for good.
    #[cfg(test)]
    pub(super) fn n_waiting(&self) -> usize {
        self.audio.len()
    }

    /// Decodes what sounds in the first `n` samples. `None`: nothing does. The caller holds a share of the cores.
    fn hear(
        &mut self,
        n: usize,
        is_last: bool,
        cancel: &CancellationToken,
    ) -> Result<Option<(VoicedSpan, JudgedHypothesis)>, SttError> {
        let Some(voiced) = VoicedSpan::of(&self.audio[..n]) else { return Ok(None) };
        let from = voiced.start.saturating_sub(MARGIN_BEFORE);
        let to = (voiced.end + MARGIN_BEHIND).min(n);
        let gain = gain(&self.audio[voiced.start..voiced.end]);
        let pcm: Vec<f32> = self.audio[from..to].iter().map(|sample| f32::from(*sample) / 32_768.0 * gain).collect();
        let ask = Ask {
            language: self.language,
            prompt: self.prompt(),
            timed: self.options.segments && is_last,
            translate: self.options.translate,
            temperature: self.options.temperature.unwrap_or(0.0),
            // To OpenAI 0 means: raised where it must be.
            retries: is_last && self.options.temperature.is_none_or(|temperature| temperature == 0.0),
            n_alternatives: if is_last { ALTERNATIVES } else { 0 },
            voiced_ms: voiced.ms(),
        };
        let mut hypothesis = self.decoder.hear(&pcm, &ask, cancel)?;
        let verdict = judge(&hypothesis, voiced.ms(), self.decoder.model.settings.no_speech);
        hypothesis.is_full = lacks_words(&hypothesis, verdict);
        match verdict {
            Verdict::Said => {}
            Verdict::Silence(reason) => {
                tracing::debug!(reason, "what was decoded was not said");
                hypothesis.spans.clear();
            }
            Verdict::Loop(n) => {
                tracing::debug!("what was decoded repeats itself");
                hypothesis.cut(n);
            }
        }
        Ok(Some((voiced, JudgedHypothesis { hypothesis, from })))
    }

    /// The tokens that precede the decoder's own.
    pub(super) fn prompt(&self) -> Vec<i32> {
        let expected = prompt_with(&self.decoder.model.settings.key_terms, self.options.prompt.as_deref());
        let expected = tail(expected.as_deref().unwrap_or_default(), MOST_PROMPT);
        let text = format!("{expected} {}", tail(&self.before.text, MOST_BEFORE));
        let text = text.replace('\0', " ");
        let text = text.trim();
        if text.is_empty() {
            return Vec::new();
        }
        // Of a text this short there are never more tokens than bytes. A vocabulary that lacks its letters gives none.
        let tokens = self.decoder.model.context.tokenize(&format!(" {text}"), 4 * (MOST_PROMPT + MOST_BEFORE) + 8);
        tokens.unwrap_or_default()
    }

    /// Decodes the audio before a pause for the last time, when no more fits into a window.
    fn settle_window(&mut self, cancel: &CancellationToken) -> Result<(), SttError> {
        let cut = quietest(&self.audio, CUT_WITHIN.min(self.audio.len() / 2)).max(1);
        let model = self.decoder.model.clone();
        let _share = model.shares.wait(cancel)?;
        self.settle(cut, cancel)
    }

    /// Decodes the first `n` samples for the last time; in parts where one text has no room for their words. The caller
    /// holds a share of the cores.
    fn settle(&mut self, n: usize, cancel: &CancellationToken) -> Result<(), SttError> {
        let heard = self.hear(n, true, cancel)?;
        if let Some(cut) = self.cut_of(heard.as_ref()) {
            self.settle(cut, cancel)?;
            return self.settle(n - cut, cancel);
        }
        if let Some((_, heard)) = heard {
            self.before = self.before.clone().and(&heard, self.n_before, self.n_before + n);
        }
        self.audio.drain(..n);
        self.n_before += n;
        self.last = None;
        self.decoder.forget();
        Ok(())
    }

    /// Decodes all audio for a final transcript. Where one text has no room for its words, what is decoded is its last
    /// part, and the parts before are settled. The caller holds a share of the cores.
    fn hear_all(&mut self, cancel: &CancellationToken) -> Result<Option<(VoicedSpan, JudgedHypothesis)>, SttError> {
        loop {
            let n = self.audio.len();
            let heard = self.hear(n, true, cancel)?;
            let Some(cut) = self.cut_of(heard.as_ref()) else { return Ok(heard) };
            self.settle(cut, cancel)?;
        }
    }

    /// Where audio is cut whose words one text has no room for: at the quietest place around the middle of what sounds.
    /// `None`: the text has all words, or the audio is too short.
    fn cut_of(&self, heard: Option<&(VoicedSpan, JudgedHypothesis)>) -> Option<usize> {
        let (voiced, heard) = heard?;
        let length = voiced.end - voiced.start;
        let least = SHORTEST_PART.max(length / 4);
        if !heard.hypothesis.is_full || length < 2 * least {
            return None;
        }
        Some(quietest(&self.audio[..voiced.end - least], length - 2 * least))
    }

    fn transcript(&self, said: SettledWords) -> Transcript {
        let logprobs = said.logprobs;
        let sureness = logprobs.iter().map(|token| token.logprob).sum::<f64>() / logprobs.len().max(1) as f64;
        Transcript {
            confidence: (!logprobs.is_empty()).then(|| sureness.exp().clamp(0.0, 1.0) as f32),
            text: said.text,
            // What was spoken, not what it was written down in.
            speaker: (said.language.filter(|_| self.language.is_none()))
                .map(|_| SpeakerState::Language(self.decoder.assumed.into())),
            logprobs: self.options.logprobs.then_some(logprobs),
            segments: if self.options.segments { said.segments } else { Vec::new() },
            language: said.language.map(str::to_owned),
            n_sure_words: None,
            n_settled_words: 0,
        }
    }

    /// How many of the first words of all that was said are sure.
    fn n_sure_words(&self, last: Option<&JudgedHypothesis>) -> u32 {
        let n_before = antiphon_text::words::words(&self.before.text).count() as u32;
        n_before + last.map_or(0, |heard| heard.hypothesis.n_sure_words(SURE.ln()))
    }

    /// All that was said, by a decoding that may take its time.
    fn decode_all(&mut self, cancel: &CancellationToken) -> Result<Transcript, SttError> {
        let known = VoicedSpan::of(&self.audio).zip(self.last.as_ref()).is_some_and(|(now, (then, _))| {
            now.start.abs_diff(then.start) <= SAME_END && now.end.abs_diff(then.end) <= SAME_END
        });
        if !known {
            let model = self.decoder.model.clone();
            let _share = model.shares.wait(cancel)?;
            self.last = self.hear_all(cancel)?;
        }
        let n = self.audio.len();
        let said = match &self.last {
            Some((_, heard)) => self.before.clone().and(heard, self.n_before, self.n_before + n),
            None => self.before.clone(),
        };
        let n_sure_words = Some(self.n_sure_words(self.last.as_ref().map(|(_, heard)| heard)));
        Ok(Transcript { n_sure_words, ..self.transcript(said) })
    }
}

impl SettledWords {
    /// The same, and what was said in the audio from `from` to `to`.
    fn and(mut self, heard: &JudgedHypothesis, from: usize, to: usize) -> Self {
        let text = heard.hypothesis.text();
        if text.is_empty() {
            return self;
        }
        if !self.text.is_empty() && !heard.hypothesis.is_unspaced() {
            self.text.push(' ');
        }
        self.text.push_str(&text);
        self.logprobs.extend(heard.hypothesis.logprobs());
        let ms = |samples: usize| samples as u64 / 16;
        self.segments.extend(heard.hypothesis.segments(ms(from + heard.from), ms(to)));
        self.language = heard.hypothesis.language;
        self
    }
}

/// What raises a quiet voice to [`USUAL_PEAK`]; 1 for any other.
fn gain(voice: &[i16]) -> f32 {
    let peak = voice.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or_default();
    (USUAL_PEAK / f32::from(peak.max(1))).clamp(1.0, MAX_GAIN)
}

/// The last characters of a text, from a word's beginning.
fn tail(text: &str, most: usize) -> &str {
    match text.char_indices().rev().nth(most) {
        Some((at, _)) => text[at..].split_once(char::is_whitespace).map_or("", |(_, rest)| rest),
        None => text,
    }
}

impl SttStream for WhisperStream {
    fn runs_on(&self) -> RunsOn {
        self.decoder.model.runs_on()
    }

    fn begin(&mut self, options: &SttOptions) -> Result<(), SttError> {
        let model = self.decoder.model.clone();
        let language = options.language_or(model.settings.language.as_deref());
        self.language = language.map(|language| model.language(language)).transpose()?;
        if self.language.is_none() && !model.sizes.is_multilingual() {
            self.language = Some("en");
        }
        let assumed = match &options.speaker {
            // A model on another machine may know languages that this one does not.
            Some(SpeakerState::Language(language) | SpeakerState::PreferredLanguage(language)) => {
                model.language(language).ok()
            }
            None => None,
        };
        self.decoder.assumed = assumed.unwrap_or(FIRST_ASSUMED);
        self.decoder.is_known = assumed.is_some() && matches!(options.speaker, Some(SpeakerState::Language(_)));
        self.forget();
        self.options = options.clone();
        Ok(())
    }

    fn push(&mut self, pcm: &[i16], cancel: &CancellationToken) -> Result<(), SttError> {
        self.audio.extend_from_slice(pcm);
        // Half a second is for the margin behind the window's last word.
        while self.audio.len() > self.decoder.model.window() - MARGIN_BEHIND {
            self.settle_window(cancel)?;
        }
        Ok(())
    }

    fn partial(&mut self, cancel: &CancellationToken) -> Result<Transcript, SttError> {
        let n = self.audio.len();
        let model = self.decoder.model.clone();
        let voiced = VoicedSpan::of(&self.audio);
        if self.before.text.is_empty() && voiced.is_none_or(|voiced| voiced.ms() < FIRST_WORD_MS) {
            return Ok(Transcript::default());
        }
        let heard = if voiced.is_some_and(|voiced| n - voiced.end >= PAUSE) {
            let Some(_share) = model.shares.next(cancel)? else { return Ok(Transcript::default()) };
            self.hear(n, false, cancel)?
        } else {
            let Some(share) = model.shares.free(cancel) else { return Ok(Transcript::default()) };
            self.hear(n, false, &share.cancel)?
        };
        // Times are not asked for before the end.
        self.last = heard.clone().filter(|(_, heard)| !heard.hypothesis.is_hasty && !self.options.segments);
        let n_sure_words = Some(self.n_sure_words(heard.as_ref().map(|(_, heard)| heard)));
        let said = match heard {
            Some((_, heard)) => self.before.clone().and(&heard, self.n_before, self.n_before + n),
            None => self.before.clone(),
        };
        Ok(Transcript { text: said.text, n_sure_words, ..Transcript::default() })
    }

    fn provisional(&mut self, cancel: &CancellationToken) -> Result<Transcript, SttError> {
        self.decode_all(cancel)
    }

    fn finish(&mut self, cancel: &CancellationToken) -> Result<Transcript, SttError> {
        self.decode_all(cancel)
    }

    fn forget(&mut self) {
        self.options = SttOptions::default();
        self.audio = Vec::new();
        self.n_before = 0;
        self.before = SettledWords::default();
        self.last = None;
        self.decoder.forget();
    }
}
