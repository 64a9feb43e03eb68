//! Sound in the place of a lost packet of PCM: the last pitch period again and again, fading out.
//!
//! After ITU-T G.711, appendix I: the period is found by the best correlation of the last sound with itself, the sound
//! fades out over 60 ms, and where packets come again they are faded in over 5 ms. For codings without concealment of
//! their own.

use antiphon_types::{SampleRate, Samples};

/// Pitch of voices: 66 to 400 Hz.
const SHORTEST_PERIOD_US: u64 = 2_500;
const LONGEST_PERIOD_US: u64 = 15_000;
/// What is compared to find the period.
const COMPARED_US: u64 = 15_000;
/// Concealed sound keeps its strength for this time, then fades out until [`SILENT_US`].
const FADES_US: u64 = 10_000;
const SILENT_US: u64 = 60_000;
/// Fade between concealed and real sound.
const CROSSFADE_US: u64 = 5_000;

/// The recent sound of one stream. It holds 30 ms of it.
pub struct Concealer {
    rate: SampleRate,
    history: Vec<i16>,
    /// While packets are missing: the period that is repeated, and the samples that were concealed.
    loss: Option<Loss>,
}

struct Loss {
    period: Vec<i16>,
    n_concealed: usize,
}

impl Concealer {
    /// For samples at this rate.
    pub fn new(rate: SampleRate) -> Self {
        Self { rate, history: Vec::new(), loss: None }
    }

    /// Takes samples that arrived; their beginning is changed where some before them were concealed.
    pub fn heard(&mut self, samples: &mut [i16]) {
        let n_fade = self.samples(CROSSFADE_US).min(samples.len());
        if let Some(mut loss) = self.loss.take() {
            for (index, sample) in samples[..n_fade].iter_mut().enumerate() {
                let concealed = i32::from(self.next(&mut loss));
                let share = index as i32 + 1;
                let whole = n_fade as i32 + 1;
                *sample = ((concealed * (whole - share) + i32::from(*sample) * share) / whole) as i16;
            }
        }
        let kept = self.samples(LONGEST_PERIOD_US + COMPARED_US);
        let start = samples.len().saturating_sub(kept);
        self.history.extend_from_slice(&samples[start..]);
        let excess = self.history.len().saturating_sub(kept);
        self.history.drain(..excess);
    }

    /// Appends `n` samples for ones that are lost.
    pub fn conceal(&mut self, n: Samples, out: &mut Vec<i16>) {
        let mut loss = self.loss.take().unwrap_or_else(|| Loss { period: self.last_period(), n_concealed: 0 });
        out.extend((0..n.0).map(|_| self.next(&mut loss)));
        self.loss = Some(loss);
    }

    fn next(&self, loss: &mut Loss) -> i16 {
        let at = loss.n_concealed;
        loss.n_concealed += 1;
        let fades = self.samples(FADES_US);
        let silent = self.samples(SILENT_US);
        if loss.period.is_empty() || at >= silent {
            return 0;
        }
        let sample = i64::from(loss.period[at % loss.period.len()]);
        let left = (silent - at.max(fades)) as i64;
        (sample * left / (silent - fades) as i64) as i16
    }

    /// The last period of the sound; empty: there is too little of it.
    fn last_period(&self) -> Vec<i16> {
        let shortest = self.samples(SHORTEST_PERIOD_US);
        let longest = self.samples(LONGEST_PERIOD_US);
        let n = self.samples(COMPARED_US);
        let end = self.history.len();
        if end < longest + n {
            return Vec::new();
        }
        let last = &self.history[end - n..];
        let score = |period: &usize| {
            let before = &self.history[end - n - period..end - period];
            let product: i64 = last.iter().zip(before).map(|(a, b)| i64::from(*a) * i64::from(*b)).sum();
            let energy: i64 = before.iter().map(|b| i64::from(*b) * i64::from(*b)).sum();
            product as f64 / (energy as f64 + 1.0).sqrt()
        };
        let best = (shortest..=longest).max_by(|a, b| score(a).total_cmp(&score(b))).unwrap_or(longest);
        self.history[end - best..].to_vec()
    }

    fn samples(&self, us: u64) -> usize {
        (us * u64::from(self.rate.hz()) / 1_000_000) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: SampleRate = SampleRate::HZ_8000;

    fn tone(n: std::ops::Range<usize>) -> Vec<i16> {
        n.map(|n| (8_000.0 * (std::f64::consts::TAU * 160.0 * n as f64 / 8_000.0).sin()) as i16).collect()
    }

    #[test]
    fn a_lost_packet_of_a_tone_is_hardly_heard() {
        let mut concealer = Concealer::new(RATE);
        let mut first = tone(0..480);
        concealer.heard(&mut first);
        let mut lost = Vec::new();
        concealer.conceal(Samples(80), &mut lost);
        let truth = tone(480..560);
        let worst = lost.iter().zip(&truth).map(|(a, b)| (i32::from(*a) - i32::from(*b)).abs()).max().unwrap();
        assert!(worst < 800, "{worst} of 8,000");
        let mut next = tone(560..720);
        concealer.heard(&mut next);
        let step = (i32::from(next[0]) - i32::from(lost[79])).abs();
        assert!(step < 2_000, "no click: {step}");
        assert_eq!(next[40..], tone(600..720));
    }

    #[test]
    fn a_long_loss_fades_to_silence_and_without_history_there_is_none() {
        let mut concealer = Concealer::new(RATE);
        let mut lost = Vec::new();
        concealer.conceal(Samples(160), &mut lost);
        assert_eq!(lost, [0; 160]);
        let mut concealer = Concealer::new(RATE);
        concealer.heard(&mut tone(0..480));
        lost.clear();
        for _ in 0..5 {
            concealer.conceal(Samples(160), &mut lost);
        }
        let loudest = |range: std::ops::Range<usize>| lost[range].iter().map(|s| s.unsigned_abs()).max().unwrap();
        assert!(loudest(0..80) > 7_000 && loudest(320..400) < 4_000, "it fades");
        assert_eq!(loudest(480..800), 0);
    }
}
