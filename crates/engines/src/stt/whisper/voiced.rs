//! Where in an utterance something sounds: the gate before whisper.cpp, which costs as much for silence as for speech.
//!
//! By energy alone, since the hub's own voice activity detector has judged live audio before; files and committed
//! buffers come unjudged. Steady noise does not pass: speech rises and falls.

/// Samples of a frame, 20 ms.
const FRAME: usize = 320;

/// A frame below this is silence in any room: -60 dB of full scale, as mean power of 16-bit samples.
const SILENCE: f32 = 32.8 * 32.8;

/// A frame counts when its power is this multiple of that of the quiet tenth of all frames: 5 dB. The frames of white
/// noise spread by 0.35 dB; speech at no more than its own noise still peaks 6 dB above it.
const RISE: f32 = 3.2;

/// Less is a click.
const LEAST_FRAMES: usize = 3;

/// What sounds in some audio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VoicedSpan {
    /// Its first sample.
    pub(super) start: usize,
    /// The first sample behind it.
    pub(super) end: usize,
}

impl VoicedSpan {
    /// Finds it; `None`: nothing but silence, steady noise or a click.
    pub(super) fn of(pcm: &[i16]) -> Option<Self> {
        let powers: Vec<f32> = pcm.chunks(FRAME).map(power).collect();
        let mut sorted = powers.clone();
        sorted.sort_by(f32::total_cmp);
        let quiet = *sorted.get(sorted.len() / 10)?;
        let bound = (quiet * RISE).max(SILENCE);
        // Audio without any pause has no quiet tenth: loud, short and cut close by its sender.
        let is_close_cut = quiet > SILENCE * 100.0 && powers.len() < 50 && sorted[sorted.len() - 1] > quiet * 1.8;
        let bound = if is_close_cut { SILENCE } else { bound };
        let voiced = || powers.iter().enumerate().filter(|(_, power)| **power > bound).map(|(i, _)| i);
        let first = voiced().next()?;
        let last = voiced().next_back()?;
        (voiced().count() >= LEAST_FRAMES)
            .then_some(Self { start: first * FRAME, end: ((last + 1) * FRAME).min(pcm.len()) })
    }

    /// How long from its beginning to its end.
    pub(super) fn ms(&self) -> u64 {
        (self.end - self.start) as u64 / 16
    }
}

/// The quietest place among the last `within` samples of `pcm` to cut it at, judged over 300 ms.
pub(super) fn quietest(pcm: &[i16], within: usize) -> usize {
    const SPAN: usize = 15;
    let from = pcm.len().saturating_sub(within);
    let powers: Vec<f32> = pcm[from..].chunks(FRAME).map(power).collect();
    let sums = powers.windows(SPAN).map(|span| span.iter().sum::<f32>());
    let quietest = sums.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
    quietest.map_or(pcm.len(), |(at, _)| from + (at + SPAN / 2) * FRAME)
}

fn power(frame: &[i16]) -> f32 {
    frame.iter().map(|sample| f32::from(*sample).powi(2)).sum::<f32>() / frame.len() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(n: usize, level: f32) -> Vec<i16> {
        let mut state = 1u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0
        };
        (0..n).map(|_| (random() * level) as i16).collect()
    }

    #[test]
    fn silence_steady_noise_a_hum_and_a_click_are_nothing() {
        assert_eq!(VoicedSpan::of(&[]), None);
        assert_eq!(VoicedSpan::of(&[0; 48_000]), None);
        for level in [20.0, 300.0, 3_000.0, 30_000.0] {
            assert_eq!(VoicedSpan::of(&noise(48_000, level)), None, "{level}");
        }
        let hum: Vec<i16> = (0..48_000).map(|i| ((i as f32 * 0.05).sin() * 8_000.0) as i16).collect();
        assert_eq!(VoicedSpan::of(&hum), None);
        let mut click = noise(48_000, 20.0);
        click[20_000] = 30_000;
        assert_eq!(VoicedSpan::of(&click), None);
    }

    #[test]
    fn what_rises_above_the_noise_is_found_where_it_is() {
        let mut pcm = noise(48_000, 100.0);
        let loud = noise(9_600, 1_000.0);
        pcm[16_000..25_600].copy_from_slice(&loud);
        assert_eq!(VoicedSpan::of(&pcm), Some(VoicedSpan { start: 16_000, end: 25_600 }));
        assert_eq!(VoicedSpan::of(&pcm).map(|voiced| voiced.ms()), Some(600));
    }

    #[test]
    fn a_word_cut_close_by_its_sender_is_heard() {
        let swell: Vec<i16> = (0..6_400).map(|i| ((i as f32 * 0.1).sin() * (2_000.0 + i as f32)) as i16).collect();
        assert_eq!(VoicedSpan::of(&swell), Some(VoicedSpan { start: 0, end: 6_400 }));
    }

    #[test]
    fn a_cut_falls_into_the_pause() {
        let mut pcm = noise(160_000, 5_000.0);
        pcm[100_000..106_400].fill(0);
        let cut = quietest(&pcm, 80_000);
        assert!((100_000..106_400).contains(&cut), "{cut}");
        assert_eq!(quietest(&[1; 100], 50), 100);
    }
}
