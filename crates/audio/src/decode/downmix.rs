//! Channels to one: their mean, or the loudest alone where they cancel each other.
//!
//! A microphone that was wired the wrong way round gives two channels of opposite phase, whose mean is silence. `decode`
//! calls it for each packet of a file; one file has one [`Downmix`].

/// The mean of channels that have nothing in common has their mean energy, divided by their number. Below this share of
/// that they cancel: 12 dB, which chance does not give over a packet.
const CANCELLED: f64 = 1.0 / 16.0;

/// What was heard of a file's channels so far.
#[derive(Debug, Default)]
pub(super) struct Downmix {
    /// Energy of the mean.
    mixed: f64,
    /// Energy of each channel.
    each: Vec<f64>,
}

impl Downmix {
    /// Appends `interleaved` samples, full scale at 1, of `n_channels` channels (at least 1) as one.
    pub(super) fn mix(&mut self, interleaved: &[f32], n_channels: usize, out: &mut Vec<i16>) {
        let frames = interleaved.chunks_exact(n_channels);
        if n_channels == 1 {
            out.extend(interleaved.iter().map(|&sample| to_i16(sample)));
            return;
        }
        if self.each.len() != n_channels {
            *self = Self { mixed: 0.0, each: vec![0.0; n_channels] };
        }
        let scale = 1.0 / n_channels as f32;
        for frame in frames.clone() {
            self.mixed += energy(frame.iter().sum::<f32>() * scale);
            self.each.iter_mut().zip(frame).for_each(|(sum, &sample)| *sum += energy(sample));
        }
        match self.loudest_if_cancelled() {
            Some(channel) => out.extend(frames.map(|frame| to_i16(frame[channel]))),
            None => out.extend(frames.map(|frame| to_i16(frame.iter().sum::<f32>() * scale))),
        }
    }

    fn loudest_if_cancelled(&self) -> Option<usize> {
        let n = self.each.len() as f64;
        let mean = self.each.iter().sum::<f64>() / n;
        let loudest = (0..self.each.len()).max_by(|&a, &b| self.each[a].total_cmp(&self.each[b]));
        loudest.filter(|_| self.mixed < CANCELLED * mean / n)
    }
}

/// A sample that is no number counts nothing.
fn energy(sample: f32) -> f64 {
    if sample.is_finite() { f64::from(sample).powi(2) } else { 0.0 }
}

/// The cast saturates and makes NaN silence.
fn to_i16(sample: f32) -> i16 {
    (sample * 32_768.0).round() as i16
}
