//! Greedy decoding of an encoded window, which begins with a draft.
//!
//! `decoder` calls [`decode`] where neither times nor a temperature are asked for; whisper.cpp's own loop does all else. A pass
//! over several tokens takes little longer than one over a single token, since the weights are read once, and the words of an
//! utterance that goes on hardly change: what was decoded last is passed as a draft. Its tokens are kept as far as the model
//! would have chosen them, so that the result is that of decoding without a draft. No state but whisper.cpp's.

use super::ffi::{self, Logits};
use std::collections::HashSet;
use tokio_util::sync::CancellationToken;
use whisper_rs::{WhisperContext, WhisperError, WhisperState, WhisperTokenId};

/// What is no speech and is never chosen, at the beginning of a word or within it: OpenAI's list (`tokenizer.py`,
/// `non_speech_tokens`).
const NO_SPEECH: &str = "\" # ( ) * + / : ; < = > @ [ \\ ] ^ _ ` { | } ~ 「 」 『 』 << >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) \
                         [[ ]] {{ }} ♪♪ ♪♪♪ ♩ ♪ ♫ ♬ ♭ ♮ ♯";
/// Allowed within a word only.
const NO_BEGINNING: [&str; 2] = [" -", " '"];

/// A logit that is lower than the highest by this adds nothing to the sum of probabilities.
const NEGLIGIBLE: f32 = -20.0;

/// Lanes of a comparison.
const LANES: usize = 16;

/// The tokens that may be chosen: pieces of text, and the end.
#[derive(Debug)]
pub(super) struct TextTokens {
    /// The number of the end, which is the last.
    end: usize,
    /// Never chosen.
    suppressed: Vec<usize>,
    /// Not chosen as the first: the end, and a blank alone.
    not_first: Vec<usize>,
}

impl TextTokens {
    /// Those of a model. Looks at each token once.
    pub(super) fn of(context: &WhisperContext) -> Self {
        let within = NO_SPEECH.split(' ').map(str::to_owned);
        let beginning = NO_SPEECH.split(' ').map(|text| format!(" {text}"));
        let no_speech: HashSet<Vec<u8>> =
            within.chain(beginning).chain(NO_BEGINNING.map(str::to_owned)).map(String::into_bytes).collect();
        let end = usize::try_from(context.token_eot()).unwrap_or_default();
        let mut suppressed = Vec::new();
        let mut not_first = vec![end];
        for id in 0..end {
            let Ok(bytes) = context.token_to_bytes(id as WhisperTokenId) else { continue };
            if no_speech.contains(bytes) {
                suppressed.push(id);
            } else if bytes == b" " {
                not_first.push(id);
            }
        }
        Self { end, suppressed, not_first }
    }

    /// The likeliest token, and its log-probability among all that may be chosen. Of equal ones the first.
    fn best(&self, logits: &mut [f32], is_first: bool) -> Choice {
        let logits = &mut logits[..=self.end];
        let not_first: &[usize] = if is_first { &self.not_first } else { &[] };
        for id in self.suppressed.iter().chain(not_first) {
            logits[*id] = f32::NEG_INFINITY;
        }
        let highest = highest(logits);
        let id = logits.iter().position(|logit| *logit == highest).unwrap_or(self.end);
        let above = logits.iter().map(|logit| logit - highest).filter(|logit| *logit > NEGLIGIBLE);
        let sum: f32 = above.map(f32::exp).sum();
        Choice { id: id as WhisperTokenId, logprob: -sum.ln() }
    }
}

/// The maximum, compared in lanes.
fn highest(logits: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut rows = logits.chunks_exact(LANES);
    for row in &mut rows {
        for (highest, logit) in lanes.iter_mut().zip(row) {
            *highest = if *logit > *highest { *logit } else { *highest };
        }
    }
    lanes.iter().chain(rows.remainder()).copied().fold(f32::NEG_INFINITY, f32::max)
}

/// A token and its log-probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) id: WhisperTokenId,
    pub(super) logprob: f32,
}

/// What is decoded.
pub(super) struct Request<'a> {
    /// The tokens before the first one that is chosen.
    pub(super) start: Vec<WhisperTokenId>,
    /// What may follow them.
    pub(super) draft: &'a [WhisperTokenId],
    /// The most tokens that are chosen, at least 1.
    pub(super) n_tokens: usize,
    pub(super) n_threads: usize,
}

/// What was decoded.
pub(super) struct Decoded {
    /// Without the end.
    pub(super) choices: Vec<Choice>,
    /// What is expected behind each token of [`Request::start`] and of the draft; choosing has spoilt all from the last one
    /// before the text on.
    pub(super) logits: Logits,
}

/// Decodes what `state` has encoded. Blocks; stops between two nodes of a graph once `cancel` is cancelled, with an error.
pub(super) fn decode(
    state: &mut WhisperState,
    tokens: &TextTokens,
    request: &Request<'_>,
    cancel: &CancellationToken,
) -> Result<Decoded, WhisperError> {
    let n_start = request.start.len();
    // The last token needs no logits behind it.
    let draft = &request.draft[..request.draft.len().min(request.n_tokens - 1)];
    let batch = [&request.start, draft].concat();
    let mut first_logits = Logits::default();
    ffi::decode(state, &batch, 0, request.n_threads, cancel, &mut first_logits)?;
    let mut choices: Vec<Choice> = Vec::new();
    let mut agreed = true;
    let mut later_logits = Logits::default();
    loop {
        let n = choices.len();
        let logits = if agreed { first_logits.behind(n_start - 1 + n) } else { later_logits.behind(0) };
        let choice = tokens.best(logits, n == 0);
        if choice.id as usize == tokens.end {
            break;
        }
        choices.push(choice);
        if choices.len() == request.n_tokens {
            break;
        }
        agreed = agreed && draft.get(n) == Some(&choice.id);
        if !agreed {
            ffi::decode(state, &[choice.id], n_start + n, request.n_threads, cancel, &mut later_logits)?;
        }
    }
    Ok(Decoded { choices, logits: first_logits })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> TextTokens {
        TextTokens { end: 40, suppressed: vec![3], not_first: vec![40, 5] }
    }

    #[test]
    fn the_likeliest_token_is_chosen_among_those_that_may_be() {
        let mut logits = vec![0.0; 60];
        logits[3] = 9.0;
        logits[5] = 4.0;
        logits[17] = 3.0;
        logits[40] = 3.5;
        logits[50] = 99.0;
        let first = tokens().best(&mut logits.clone(), true);
        let later = tokens().best(&mut logits, false);
        assert_eq!((first.id, later.id), (17, 5), "neither what is suppressed nor what is no text");
        let sum: f32 = 4f32.exp() + 3f32.exp() + 3.5f32.exp() + 37.0;
        assert!((later.logprob - (4.0 - sum.ln())).abs() < 1e-4, "{}", later.logprob);
    }

    #[test]
    fn the_highest_is_found_in_every_place() {
        for at in 0..37 {
            let mut logits = vec![-1.0; 37];
            logits[at] = 2.0;
            assert_eq!(highest(&logits), 2.0, "{at}");
        }
        assert_eq!(highest(&[]), f32::NEG_INFINITY);
    }
}
