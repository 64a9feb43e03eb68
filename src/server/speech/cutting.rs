//! Long audio to utterances: stretches of speech of at most 30 s, cut in its pauses.
//!
//! A recognizer that understands words by those around them is given nearly 30 s at a time, pauses included; another one
//! what stands between two pauses.
//!
//! [`listening`](super::listening) feeds it decoded audio. It holds the stretch under way and nothing else; silence is
//! dropped, so an engine never gets any to invent words for. It reads no clock and waits for nothing.

use antiphon_engine_api::vad::{RATE, Vad, VadError, VadStream};
use antiphon_types::Samples;
use std::ops::Range;

/// P(speech) from which speech begins, and down to which it goes on: Silero's thresholds, as `turn` has them.
const VOICED: f32 = 0.5;
const STILL_VOICED: f32 = 0.35;
/// Silence that ends a stretch between pauses, 500 ms: what ends a turn, too.
const SILENCE: usize = RATE.hz() as usize / 2;
/// Silence that ends a long stretch, 3 s: a pause inside a thought is shorter, and the engine hears no more of it.
const LONG_SILENCE: usize = RATE.hz() as usize * 3;
/// Audio kept before and behind the voiced windows, 300 ms: the detector is late for soft sounds.
const PADDING: usize = RATE.hz() as usize * 3 / 10;
/// Voiced audio that makes it speech, 64 ms; less is a click.
const MIN_SPEECH: usize = RATE.hz() as usize * 64 / 1_000;
/// The longest stretch, 30 s: Whisper's window, and what sessions give an engine.
const LONGEST: usize = RATE.hz() as usize * 30;
/// A stretch that is full is cut in the last third of that, at its longest pause.
const SEARCH: usize = LONGEST / 3;
/// Silence that is a pause, 160 ms; where there is none, speech is cut where it is faintest.
const PAUSE: usize = RATE.hz() as usize * 160 / 1_000;

/// A stretch of speech.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Where it begins in the audio, at [`RATE`].
    pub(super) start: Samples,
    /// Its audio, never empty.
    pub(super) pcm: Vec<i16>,
}

/// The cutter of one audio.
pub(super) struct Cutter {
    vad: Box<dyn VadStream>,
    window: usize,
    /// Silence that ends a stretch.
    silence: usize,
    /// What is held: in silence the padding, in speech the stretch so far and its silence.
    pcm: Vec<i16>,
    /// Where it begins in the audio.
    base: usize,
    /// How much of it was judged.
    judged: usize,
    speech: Option<Speech>,
}

/// Speech under way; places are within `pcm`.
struct Speech {
    last_voiced: usize,
    n_voiced: usize,
    /// P(speech) of each window from the beginning of `pcm` on; what stands before speech began is taken for silence.
    probabilities: Vec<f32>,
}

impl Cutter {
    /// `long`: the stretches are of nearly 30 s, where the speech lasts as long.
    pub(super) fn new(vad: &dyn Vad, long: bool) -> Self {
        let silence = if long { LONG_SILENCE } else { SILENCE };
        Self { vad: vad.open(), window: vad.window(), silence, pcm: Vec::new(), base: 0, judged: 0, speech: None }
    }

    /// Takes more audio at [`RATE`]; appends the stretches that have ended.
    pub(super) fn push(&mut self, pcm: &[i16], out: &mut Vec<Stretch>) -> Result<(), VadError> {
        self.pcm.extend_from_slice(pcm);
        while self.pcm.len() - self.judged >= self.window {
            let probability = self.vad.probability(&self.pcm[self.judged..self.judged + self.window])?;
            self.judged += self.window;
            self.judge(probability, out);
        }
        Ok(())
    }

    /// Ends the audio.
    pub(super) fn finish(mut self, out: &mut Vec<Stretch>) {
        if let Some(speech) = self.speech.take() {
            self.emit(&speech, out);
        }
    }

    fn judge(&mut self, probability: f32, out: &mut Vec<Stretch>) {
        let threshold = if self.speech.is_some() { STILL_VOICED } else { VOICED };
        let voiced = probability >= threshold;
        let Some(speech) = &mut self.speech else {
            if voiced {
                let before = self.judged.div_ceil(self.window) - 1;
                let probabilities = vec![0.0; before].into_iter().chain([probability]).collect();
                self.speech = Some(Speech { last_voiced: self.judged, n_voiced: self.window, probabilities });
            } else {
                self.forget(self.judged.saturating_sub(PADDING) / self.window * self.window);
            }
            return;
        };
        speech.probabilities.push(probability);
        if voiced {
            speech.last_voiced = self.judged;
            speech.n_voiced += self.window;
        }
        if self.judged - speech.last_voiced >= self.silence {
            let speech = self.speech.take().expect("it is under way");
            // What stands behind this stretch is not also put before the next one.
            let end = self.emit(&speech, out).div_ceil(self.window);
            self.forget(end.max(self.judged.saturating_sub(PADDING) / self.window) * self.window);
        } else if self.judged + self.window > LONGEST {
            self.cut(out);
        }
    }

    /// Ends the stretch with some of its silence; a click is none. Returns where it ends in what is held.
    fn emit(&self, speech: &Speech, out: &mut Vec<Stretch>) -> usize {
        if speech.n_voiced < MIN_SPEECH {
            return 0;
        }
        let end = (speech.last_voiced + PADDING).min(self.pcm.len());
        out.push(Stretch { start: Samples(self.base as u64), pcm: self.pcm[..end].to_vec() });
        end
    }

    /// Cuts speech that does not end: in the middle of the longest pause near the end, or of the faintest place there.
    fn cut(&mut self, out: &mut Vec<Stretch>) {
        let speech = self.speech.as_mut().expect("it is under way");
        let from = (LONGEST - SEARCH) / self.window;
        let n = speech.probabilities.len();
        let pause = longest_pause(&speech.probabilities[from.min(n)..]);
        let pause =
            pause.filter(|pause| pause.len() * self.window >= PAUSE).map(|pause| from + (pause.start + pause.end) / 2);
        // A window alone may be faint inside a word; five of them are a pause.
        let faint = |i: usize| speech.probabilities[i.saturating_sub(2)..(i + 3).min(n)].iter().sum::<f32>();
        let faintest = || (from..n).min_by(|&a, &b| faint(a).total_cmp(&faint(b))).unwrap_or(n - 1);
        let at = pause.unwrap_or_else(faintest).max(1);
        let end = at * self.window;
        out.push(Stretch { start: Samples(self.base as u64), pcm: self.pcm[..end].to_vec() });
        speech.probabilities.drain(..at);
        speech.last_voiced = speech.last_voiced.saturating_sub(end);
        speech.n_voiced = speech.probabilities.iter().filter(|p| **p >= STILL_VOICED).count() * self.window;
        self.forget(end);
    }

    fn forget(&mut self, n: usize) {
        self.pcm.drain(..n);
        self.base += n;
        self.judged -= n;
    }
}

/// The longest run of windows in which speech does not go on; the last of several.
fn longest_pause(probabilities: &[f32]) -> Option<Range<usize>> {
    let mut longest: Option<Range<usize>> = None;
    let mut start = 0;
    for end in 0..=probabilities.len() {
        let is_voiced = probabilities.get(end).is_none_or(|p| *p >= STILL_VOICED);
        if !is_voiced {
            continue;
        }
        if end > start && longest.as_ref().is_none_or(|longest| end - start >= longest.len()) {
            longest = Some(start..end);
        }
        start = end + 1;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::fakes::vad::FakeVad;
    use proptest::prelude::*;

    /// `(loud, ms)` in a row, cut; each stretch as its beginning and end in ms.
    fn cut(parts: &[(bool, usize)], block: usize) -> Vec<(u64, u64)> {
        cut_to(parts, block, false)
    }

    fn cut_to(parts: &[(bool, usize)], block: usize, long: bool) -> Vec<(u64, u64)> {
        let pcm: Vec<i16> = parts.iter().flat_map(|&(loud, ms)| vec![if loud { 9_000 } else { 0 }; ms * 16]).collect();
        let mut cutter = Cutter::new(&FakeVad, long);
        let mut out = Vec::new();
        pcm.chunks(block).for_each(|block| cutter.push(block, &mut out).unwrap());
        cutter.finish(&mut out);
        let end = |stretch: &Stretch| (stretch.start.0 + stretch.pcm.len() as u64) / 16;
        out.iter().map(|stretch| (stretch.start.0 / 16, end(stretch))).collect()
    }

    #[track_caller]
    fn check(parts: &[(bool, usize)], expect: &[(u64, u64)]) {
        check_cut(cut(parts, 1_000), expect);
    }

    #[track_caller]
    fn check_cut(got: Vec<(u64, u64)>, expect: &[(u64, u64)]) {
        let near = |a: u64, b: u64| a.abs_diff(b) <= 32;
        let same = got.len() == expect.len() && got.iter().zip(expect).all(|(g, e)| near(g.0, e.0) && near(g.1, e.1));
        assert!(same, "{got:?}, not {expect:?}");
    }

    #[test]
    fn pauses_cut_and_short_ones_do_not() {
        check(
            &[(false, 2_000), (true, 1_000), (false, 300), (true, 700), (false, 2_000), (true, 500), (false, 100)],
            &[(1_700, 4_300), (5_700, 6_600)],
        );
        check(&[(true, 100), (false, 524), (true, 100)], &[(0, 412), (412, 724)]);
    }

    #[test]
    fn long_stretches_go_on_over_pauses_and_end_at_the_longest_one_near_30_s() {
        let check_long = |parts: &[(bool, usize)], expect: &[(u64, u64)]| check_cut(cut_to(parts, 1_000, true), expect);
        let sentences = [
            (true, 9_000),
            (false, 1_500),
            (true, 10_000),
            (false, 600),
            (true, 2_000),
            (false, 1_000),
            (true, 3_500),
            (false, 400),
            (true, 9_000),
            (false, 900),
            (true, 1_000),
        ];
        // The pause of 1.5 s comes too early; that of 1 s is cut in its middle.
        check_long(&sentences, &[(0, 23_600), (23_600, 38_900)]);
        check_long(&[(true, 1_000), (false, 2_500), (true, 500)], &[(0, 4_000)]);
        check_long(&[(true, 1_000), (false, 3_500), (true, 500)], &[(0, 1_300), (4_200, 5_000)]);
        check_long(&[(true, 28_000), (false, 2_900), (true, 500)], &[(0, 29_000), (29_000, 31_400)]);
    }

    #[test]
    fn silence_and_clicks_are_nothing() {
        check(&[], &[]);
        check(&[(false, 90_000)], &[]);
        check(&[(false, 1_000), (true, 20), (false, 1_000)], &[]);
        check(&[(true, 400)], &[(0, 400)]);
    }

    #[test]
    fn speech_without_an_end_is_cut_at_its_faintest_place() {
        check(&[(true, 24_000), (false, 200), (true, 20_000)], &[(0, 24_096), (24_096, 44_200)]);
        let without_pause = cut(&[(true, 100_000)], 4_096);
        assert!(without_pause.iter().all(|(from, to)| to - from <= 30_000), "{without_pause:?}");
        assert_eq!(without_pause.last().map(|last| last.1), Some(100_000));
        assert!(without_pause.windows(2).all(|pair| pair[0].1 == pair[1].0), "{without_pause:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn every_loud_moment_is_in_one_stretch_and_blocks_do_not_matter(
            parts in prop::collection::vec((any::<bool>(), 100..9_000usize), 1..8), block in 1..40_000usize,
        ) {
            let got = cut(&parts, 777);
            prop_assert_eq!(&got, &cut(&parts, block));
            let long = cut_to(&parts, 777, true);
            prop_assert_eq!(&long, &cut_to(&parts, block, true));
            prop_assert!(long.iter().all(|(from, to)| to - from <= 30_000), "{:?}", long);
            prop_assert!(got.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{:?}", got);
            prop_assert!(got.iter().all(|(from, to)| to - from <= 30_000));
            let mut at = 0u64;
            for (loud, ms) in parts {
                let middle = at + ms as u64 / 2;
                at += ms as u64;
                if loud {
                    prop_assert!(long.iter().any(|(from, to)| (*from..=*to).contains(&middle)), "{} of {:?}", middle, long);
                    prop_assert!(got.iter().any(|(from, to)| (*from..=*to).contains(&middle)), "{} of {:?}", middle, got);
                }
            }
        }
    }
}
