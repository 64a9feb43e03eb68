//! The greedy search of a transducer, for all streams at once: a loop over pairs of encoder frame and symbol.
//!
//! Each pass scores the frame that a stream is at with the tokens it has emitted. The blank leads the stream to its next frame;
//! any other token is emitted, and moves the predictor on. A stream emits at most [`MOST_SYMBOLS`] a frame, and takes no part
//! once its frames are through. A row's arithmetic does not depend on the rows beside it, apart from rounding in the graphs.
//! Used by the [engine](super::engine) alone.

use super::graphs::Graphs;
use super::predictor::PredictorState;
use super::terms::TermProgress;
use super::vocabulary::Token;
use antiphon_inference::onnx::OnnxError;

/// Tokens of one encoder frame at most, as in NeMo's decoding of streams.
const MOST_SYMBOLS: usize = 10;

/// A stream's part of the search.
pub struct SearchRow<'a> {
    /// Encoder frames, [frames, width].
    pub frames: &'a [f32],
    /// The number of the first one in the utterance.
    pub first_frame: u64,
    /// Moves on with each token.
    pub predictor: &'a mut PredictorState,
    /// What was emitted is appended.
    pub tokens: &'a mut Vec<Token>,
    /// Key terms that are favoured; moves on with each token.
    pub terms: Option<&'a mut TermProgress>,
    /// Whether the probabilities of tokens are computed.
    pub with_logprobs: bool,
    /// Set where the graphs gave no numbers: the stream cannot go on.
    pub has_failed: bool,
}

/// Where a row is.
#[derive(Clone, Copy, Default)]
struct Position {
    frame: usize,
    n_symbols: usize,
}

impl Position {
    fn advance_frame(&mut self) {
        self.frame += 1;
        self.n_symbols = 0;
    }
}

/// Searches the rows to the end of their frames. Blocks for at least one run of the joiner for each frame of the longest row.
///
/// # Errors
/// [`OnnxError`] when a run fails.
pub fn search(graphs: &Graphs, rows: &mut [SearchRow<'_>]) -> Result<(), OnnxError> {
    let blank = graphs.sizes.n_pieces;
    let mut positions = vec![Position::default(); rows.len()];
    let mut frames = Vec::new();
    let mut logits = Vec::new();
    loop {
        let mut active = Vec::with_capacity(rows.len());
        let mut states = Vec::with_capacity(rows.len());
        frames.clear();
        for (i, row) in rows.iter_mut().enumerate() {
            let first = positions[i].frame * graphs.width;
            if row.has_failed || first >= row.frames.len() {
                continue;
            }
            active.push(i);
            frames.extend_from_slice(&row.frames[first..first + graphs.width]);
            states.push(&mut *row.predictor);
        }
        if active.is_empty() {
            return Ok(());
        }
        graphs.score(&frames, &mut states, &mut logits)?;
        let mut emitted = vec![None; rows.len()];
        for (i, logits) in active.iter().zip(logits.chunks(blank + 1)) {
            let row = &mut rows[*i];
            let position = &mut positions[*i];
            let Some((likeliest, largest)) = likeliest(logits) else {
                row.has_failed = true;
                continue;
            };
            if likeliest == blank {
                position.advance_frame();
                continue;
            }
            let mut id = likeliest;
            if let Some(terms) = &mut row.terms {
                id = terms.choose(likeliest, logits);
                terms.advance(id as u32);
            }
            let logprob = if row.with_logprobs { logits[id] - log_sum_exp(logits, largest) } else { 0.0 };
            let frame = row.first_frame + position.frame as u64;
            row.tokens.push(Token { id: id as u32, frame, logprob });
            emitted[*i] = Some(id as u32);
            position.n_symbols += 1;
            if position.n_symbols == MOST_SYMBOLS {
                position.advance_frame();
            }
        }
        let with_token = rows.iter_mut().zip(emitted);
        let mut speaking: Vec<_> = with_token.filter_map(|(row, token)| Some((token?, &mut *row.predictor))).collect();
        if !speaking.is_empty() {
            graphs.accept(&mut speaking)?;
        }
    }
}

/// The first token with the largest logit; `None` where a logit is no number.
fn likeliest(logits: &[f32]) -> Option<(usize, f32)> {
    let mut best = (0, f32::NEG_INFINITY);
    let mut is_number = true;
    for (id, logit) in logits.iter().enumerate() {
        is_number &= !logit.is_nan();
        if *logit > best.1 {
            best = (id, *logit);
        }
    }
    (is_number && best.1.is_finite()).then_some(best)
}

/// The logarithm of the sum of the exponentials, of which `largest` is the largest exponent.
fn log_sum_exp(logits: &[f32], largest: f32) -> f32 {
    largest + logits.iter().map(|logit| (logit - largest).exp()).sum::<f32>().ln()
}
