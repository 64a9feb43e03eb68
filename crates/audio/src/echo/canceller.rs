//! Estimates the echo path at a known lag: a short filter fitted by recursive least squares, updated once per window.
//!
//! Least squares converges within the first window, where a gradient filter would need a second of speech. Each window
//! is weighted by the inverse of its residual energy, so that other speakers hardly affect the fit.

use super::reference::Reference;
use super::{WINDOW, dot, mean_square};

/// Microphone samples kept: 64 ms, used by a search and by a new fit.
pub(super) const HISTORY: usize = 1_024;
/// Filter taps at 16 kHz: 4 ms.
const TAPS: usize = 64;
/// Taps before the lag: 1 ms.
const BEFORE: usize = 16;
/// Forgetting factor per window; a window's weight halves after 0.4 s.
const MEMORY: f32 = 0.97;
/// Diagonal loading relative to the mean of the diagonal: bands without energy get no filter.
const LOADING: f32 = 1e-4;
/// Mean square (-90 dBFS) below which a signal counts as noise; it bounds the weights.
const NOISE: f32 = 1e-9;

#[derive(Debug, Default)]
pub(super) struct Canceller {
    /// Weighted covariance of the reference, `[TAPS, TAPS]`, lower triangle; empty before the first fit.
    covariance: Vec<f32>,
    factor: Vec<f32>,
    correlation: Vec<f32>,
    taps: Vec<f32>,
    /// Covariance of one window.
    window: Vec<f32>,
    reference_energy: f32,
}

impl Canceller {
    /// Restarts the fit from the last [`HISTORY`] samples, except for the newest window, which begins at `start` and is
    /// processed by `cancel`.
    pub(super) fn relearn(&mut self, reference: &Reference, mic: &[f32], lag: i32, start: u64) {
        for (buffer, len) in
            [(&mut self.covariance, TAPS * TAPS), (&mut self.factor, TAPS * TAPS), (&mut self.window, TAPS * TAPS)]
        {
            buffer.clear();
            buffer.resize(len, 0.0);
        }
        for buffer in [&mut self.correlation, &mut self.taps] {
            buffer.clear();
            buffer.resize(TAPS, 0.0);
        }
        let mut heard = [0.0; WINDOW + TAPS - 1];
        let (windows, _) = mic.as_chunks::<WINDOW>();
        for (back, window) in windows.iter().rev().enumerate().skip(1) {
            read_window(reference, start as i64 - (back * WINDOW) as i64, lag, &mut heard);
            self.learn(&heard, window, 1.0 / (mean_square(window) + NOISE));
        }
    }

    /// Updates the fit with the window that begins at `start` and writes the window without the echo to `out`.
    pub(super) fn cancel(
        &mut self,
        reference: &Reference,
        window: &[f32],
        lag: i32,
        start: u64,
        out: &mut [f32; WINDOW],
    ) {
        if self.taps.is_empty() {
            self.relearn(reference, &[], lag, start);
        }
        let mut heard = [0.0; WINDOW + TAPS - 1];
        read_window(reference, start as i64, lag, &mut heard);
        self.reference_energy = mean_square(&heard);
        if self.reference_energy < NOISE {
            out.copy_from_slice(window);
            return;
        }
        self.subtract(&heard, window, out);
        let left = mean_square(out);
        self.learn(&heard, window, 1.0 / (left + NOISE));
        self.solve();
        self.subtract(&heard, window, out);
    }

    /// Mean square of the reference in the last window.
    pub(super) fn reference_energy(&self) -> f32 {
        self.reference_energy
    }

    fn subtract(&self, heard: &[f32; WINDOW + TAPS - 1], window: &[f32], out: &mut [f32; WINDOW]) {
        out.copy_from_slice(window);
        for (k, tap) in self.taps.iter().enumerate() {
            let shifted = &heard[TAPS - 1 - k..TAPS - 1 - k + WINDOW];
            out.iter_mut().zip(shifted).for_each(|(left, x)| *left -= tap * x);
        }
    }

    fn learn(&mut self, heard: &[f32; WINDOW + TAPS - 1], window: &[f32], weight: f32) {
        let tap = |k: usize| &heard[TAPS - 1 - k..TAPS - 1 - k + WINDOW];
        for k in 0..TAPS {
            self.window[k * TAPS] = dot(tap(0), tap(k));
            let now = dot(tap(k), window);
            self.correlation[k] = MEMORY * self.correlation[k] + weight * now;
        }
        // Each diagonal follows from its first element: one sample is added, one removed.
        for i in 1..TAPS {
            for j in 1..=i {
                self.window[i * TAPS + j] = self.window[(i - 1) * TAPS + j - 1]
                    + heard[TAPS - 1 - i] * heard[TAPS - 1 - j]
                    - heard[TAPS - 1 - i + WINDOW] * heard[TAPS - 1 - j + WINDOW];
            }
        }
        for (sum, now) in self.covariance.iter_mut().zip(&self.window) {
            *sum = MEMORY * *sum + weight * now;
        }
    }

    /// Solves for the taps by Cholesky factorisation.
    fn solve(&mut self) {
        let trace: f32 = (0..TAPS).map(|i| self.covariance[i * TAPS + i]).sum();
        let loading = trace / TAPS as f32 * LOADING + f32::MIN_POSITIVE;
        for i in 0..TAPS {
            let (done, row) = self.factor.split_at_mut(i * TAPS);
            for j in 0..i {
                let sum = dot(&row[..j], &done[j * TAPS..j * TAPS + j]);
                row[j] = (self.covariance[i * TAPS + j] - sum) / done[j * TAPS + j];
            }
            let rest = self.covariance[i * TAPS + i] + loading - dot(&row[..i], &row[..i]);
            row[i] = rest.max(loading).sqrt();
        }
        for i in 0..TAPS {
            let row = &self.factor[i * TAPS..];
            self.taps[i] = (self.correlation[i] - dot(&row[..i], &self.taps[..i])) / row[i];
        }
        for i in (0..TAPS).rev() {
            let known: f32 = (i + 1..TAPS).map(|k| self.factor[k * TAPS + i] * self.taps[k]).sum();
            self.taps[i] = (self.taps[i] - known) / self.factor[i * TAPS + i];
        }
    }

    pub(super) fn memory(&self) -> usize {
        4 * (self.covariance.len() + self.factor.len() + self.window.len() + self.correlation.len() + self.taps.len())
    }
}

/// The reference for the window at `start`, including the reach of the taps.
fn read_window(reference: &Reference, start: i64, lag: i32, heard: &mut [f32; WINDOW + TAPS - 1]) {
    reference.read(start - i64::from(lag) + BEFORE as i64 - (TAPS as i64 - 1), heard);
}
