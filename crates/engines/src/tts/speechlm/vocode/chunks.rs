//! A sequence's frames in windows, and the sound of the windows put together.
//!
//! Pure: [`Assembler`] is given frames as they come and the sound of each window that it asked for, and gives the sound of
//! the sequence. A window is a chunk of new frames with some before it (left context) and behind it (look-ahead). The sound
//! of a vocoder without a state is not at a window's edges what it would be in the middle, so that of two windows overlaps
//! for a moment, in which the one fades into the other. A vocoder with a state gives the sound of the chunk alone. The first
//! chunk is small, so that sound starts early; the next ones grow, so that less is computed twice.
//!
//! A frame is one token, or several codes, one of each codebook.

use super::super::contract::Contract;

/// See the module.
pub struct Assembler {
    samples_per_token: usize,
    /// Ids of a frame.
    n_codes: usize,
    has_state: bool,
    first: usize,
    growth: f32,
    most: usize,
    look_ahead: usize,
    left_context: usize,
    n_fade: usize,
    /// Tokens of silence behind the last one.
    silence: Vec<i64>,
    /// Frames, from the first one that a window may still need.
    tokens: Vec<i64>,
    /// The first of them, in frames, whose sound was not asked for.
    next: usize,
    /// Frames of the next chunk.
    size: usize,
    is_complete: bool,
    /// The window under way: frames before its chunk, frames of its chunk, whether it is the last.
    under_way: Option<(usize, usize, bool)>,
    /// Sound of the last window behind its chunk, which fades into the next one's.
    tail: Vec<f32>,
}

/// Frames whose sound is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// In order, silence behind them at the end of a sequence.
    pub tokens: Vec<i64>,
    /// Frames before the chunk.
    pub n_before: usize,
    /// Frames of the chunk, with the silence.
    pub n_chunk: usize,
    /// Whether nothing follows.
    pub is_last: bool,
}

impl Assembler {
    /// For a sequence that follows the tokens `before`, of the same voice; empty where nothing was spoken before.
    pub fn new(contract: &Contract, before: &[i64]) -> Self {
        let chunks = &contract.chunks;
        let n_codes = contract.codebooks();
        let before = &before[before.len().saturating_sub(chunks.left_context * n_codes)..];
        Self {
            samples_per_token: contract.samples_per_token,
            n_codes,
            has_state: contract.state.is_some(),
            first: chunks.first,
            growth: chunks.growth,
            most: chunks.most,
            look_ahead: chunks.look_ahead,
            left_context: chunks.left_context,
            n_fade: contract.rate_hz as usize * chunks.cross_fade_ms as usize / 1000,
            silence: contract.silence_behind(),
            tokens: before.to_vec(),
            next: before.len() / n_codes,
            size: chunks.first,
            is_complete: false,
            under_way: None,
            tail: Vec::new(),
        }
    }

    /// Takes the next frame.
    pub fn push(&mut self, frame: impl IntoIterator<Item = i64>) {
        self.tokens.extend(frame);
        debug_assert_eq!(self.tokens.len() % self.n_codes, 0, "a frame has an id for each codebook");
    }

    /// Frames that it holds.
    fn n_frames(&self) -> usize {
        self.tokens.len() / self.n_codes
    }

    /// Takes note that there are no more.
    pub fn complete(&mut self) {
        self.is_complete = true;
    }

    /// The next window, where there are frames enough for it and none is under way.
    pub fn window(&mut self) -> Option<Window> {
        if self.under_way.is_some() {
            return None;
        }
        let waiting = self.n_frames() - self.next;
        // Whether the end is known already must not change the windows.
        let is_last = self.is_complete && waiting < self.size + self.look_ahead;
        if is_last && waiting == 0 || !is_last && waiting < self.size + self.look_ahead {
            return None;
        }
        let n = if is_last { waiting } else { self.size };
        let from = self.next.saturating_sub(self.left_context);
        let to = if is_last { self.n_frames() } else { self.next + n + self.look_ahead };
        let mut tokens = self.tokens[from * self.n_codes..to * self.n_codes].to_vec();
        let mut n_chunk = n;
        if is_last {
            tokens.extend(&self.silence);
            n_chunk += self.silence.len();
        }
        self.under_way = Some((self.next - from, n, is_last));
        Some(Window { tokens, n_before: self.next - from, n_chunk, is_last })
    }

    /// Takes the window's sound and gives that of its chunk. The sound has `samples_per_token` samples a frame, and is that of
    /// the chunk alone where the vocoder has a state.
    pub fn sound(&mut self, sound: &[f32]) -> Vec<f32> {
        let Some((before, n, is_last)) = self.under_way.take() else { return Vec::new() };
        let start = if self.has_state { 0 } else { before * self.samples_per_token };
        let end = if is_last { sound.len() } else { start + n * self.samples_per_token };
        let mut chunk = sound[start..end].to_vec();
        let n_tail = self.tail.len();
        for (i, (new, old)) in chunk.iter_mut().zip(&self.tail).enumerate() {
            let share = (i as f32 + 0.5) / n_tail as f32;
            *new = *new * share + old * (1.0 - share);
        }
        self.tail = sound[end..(end + self.n_fade).min(sound.len())].to_vec();
        self.next += n;
        self.size = ((self.size as f32 * self.growth) as usize).clamp(self.first, self.most);
        let unneeded = self.next.saturating_sub(self.left_context);
        self.tokens.drain(..unneeded * self.n_codes);
        self.next -= unneeded;
        chunk
    }

    /// The last frames, for the sequence that follows; none where the vocoder has a state, which ends with its sequence.
    pub fn last_tokens(&self) -> &[i64] {
        let n = if self.has_state { 0 } else { self.left_context * self.n_codes };
        &self.tokens[self.tokens.len().saturating_sub(n)..]
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::contract::{Coding, Frame, FrameDraws, VocoderState};
    use super::super::super::testing::contract;
    use super::*;

    /// A vocoder without edges: a token's sound is a ramp of its own.
    fn ideal(contract: &Contract, tokens: &[i64]) -> Vec<f32> {
        let n = contract.samples_per_token;
        tokens.iter().flat_map(|token| (0..n).map(move |i| *token as f32 + i as f32 / n as f32)).collect()
    }

    fn tiny() -> Contract {
        contract("language_model.onnx")
    }

    /// The sizes of the windows, and the sound, where the tokens come in groups of this size.
    fn assembled(contract: &Contract, tokens: &[i64], at_a_time: usize) -> (Vec<usize>, Vec<f32>) {
        let mut assembler = Assembler::new(contract, &[]);
        let mut sizes = Vec::new();
        let mut sound = Vec::new();
        let mut drain = |assembler: &mut Assembler| {
            while let Some(window) = assembler.window() {
                sizes.push(window.tokens.len());
                assert!(assembler.window().is_none(), "one at a time");
                sound.extend(assembler.sound(&ideal(contract, &window.tokens)));
            }
        };
        for tokens in tokens.chunks(at_a_time) {
            tokens.iter().for_each(|token| assembler.push([*token]));
            drain(&mut assembler);
        }
        assembler.complete();
        drain(&mut assembler);
        (sizes, sound)
    }

    #[test]
    fn the_sound_is_that_of_all_tokens_however_they_come() {
        let contract = tiny();
        let tokens: Vec<i64> = (0..90).map(|i| (i * 31) % 90).collect();
        let silence = contract.silence_behind();
        for n in [1, 7, 8, 11, 12, 40, 90] {
            let expected = ideal(&contract, &[&tokens[..n], &silence].concat());
            for at_a_time in [1, 5, 90] {
                let (_, sound) = assembled(&contract, &tokens[..n], at_a_time);
                assert_eq!(sound.len(), expected.len(), "{n} tokens");
                let worst = sound.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst < 1e-4, "{n} tokens, {at_a_time} at a time: {worst}");
            }
        }
    }

    #[test]
    fn the_first_window_needs_few_tokens_and_the_next_ones_grow() {
        let contract = tiny();
        let (sizes, _) = assembled(&contract, &[1; 90], 1);
        // 8 and 3 ahead; 8 before, 16, 3; 8, 32, 3; then 34 are left, with 3 of silence.
        assert_eq!(sizes, [11, 27, 43, 8 + 34 + 3]);
    }

    #[test]
    fn frames_of_several_codebooks_stay_together_and_a_state_has_each_chunk_alone() {
        let mut contract = tiny();
        let draws = FrameDraws::All { takes_seen: false };
        contract.coding = Coding::Frame(Frame { file: String::new(), hidden: String::new(), codebooks: 2, draws });
        contract.chunks.look_ahead = 1;
        contract.chunks.left_context = 3;
        contract.chunks.cross_fade_ms = 0;
        contract.state = Some(VocoderState { tensors: Vec::new(), n_before: None, is_last: None });
        let mut assembler = Assembler::new(&contract, &[]);
        (0..30).for_each(|i| assembler.push([i, -i]));
        assembler.complete();
        let mut heard = Vec::new();
        let mut sizes = Vec::new();
        while let Some(window) = assembler.window() {
            let frames: Vec<_> = window.tokens.chunks(2).collect();
            assert!(frames.iter().all(|frame| frame[0] == -frame[1]), "{frames:?}");
            let chunk = &frames[window.n_before..window.n_before + window.n_chunk];
            assert_eq!(frames.len(), window.n_before + window.n_chunk + usize::from(!window.is_last));
            sizes.push((window.n_before, window.n_chunk));
            let sound: Vec<f32> = chunk.iter().flat_map(|frame| vec![frame[0] as f32; 960]).collect();
            heard.extend(assembler.sound(&sound).into_iter().step_by(960));
        }
        assert_eq!(sizes, [(0, 8), (3, 16), (3, 6)]);
        assert_eq!(heard, (0..30).map(|i| i as f32).collect::<Vec<_>>());
        assert!(assembler.last_tokens().is_empty());
    }

    #[test]
    fn no_tokens_have_no_sound() {
        assert_eq!(assembled(&tiny(), &[], 1), (Vec::new(), Vec::new()));
    }

    #[test]
    fn what_follows_begins_with_the_last_tokens_as_its_context() {
        let contract = tiny();
        let mut assembler = Assembler::new(&contract, &[]);
        (0..20).for_each(|token| assembler.push([token]));
        assembler.complete();
        while let Some(window) = assembler.window() {
            assembler.sound(&ideal(&contract, &window.tokens));
        }
        let before = assembler.last_tokens().to_vec();
        assert_eq!(before, (12..20).collect::<Vec<_>>());
        let mut next = Assembler::new(&contract, &before);
        next.push([50]);
        next.complete();
        let window = next.window().expect("a window");
        assert_eq!(window.tokens[..9], [12, 13, 14, 15, 16, 17, 18, 19, 50]);
        let sound = next.sound(&ideal(&contract, &window.tokens));
        assert_eq!(sound.len(), (1 + 3) * contract.samples_per_token, "the context is not spoken again");
    }

    #[test]
    fn the_windows_do_not_depend_on_when_the_end_is_known() {
        let contract = tiny();
        let tokens: Vec<i64> = (0..96).collect();
        let windows = |n: usize, at_once: bool| {
            let mut assembler = Assembler::new(&contract, &[]);
            let mut windows = Vec::new();
            for token in &tokens[..n] {
                assembler.push([*token]);
                while !at_once && let Some(window) = assembler.window() {
                    assembler.sound(&ideal(&contract, &window.tokens));
                    windows.push(window.tokens);
                }
            }
            assembler.complete();
            while let Some(window) = assembler.window() {
                assembler.sound(&ideal(&contract, &window.tokens));
                windows.push(window.tokens);
            }
            windows
        };
        for n in 1..96 {
            assert_eq!(windows(n, true), windows(n, false), "{n} tokens");
        }
    }
}
