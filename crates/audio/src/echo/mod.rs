//! The hub must not be interrupted by its own reply: this subtracts the reply from the microphone before the VAD listens.
//!
//! Session egress feeds what is played, session ingress asks for the residual of each window. The page asks the browser for echo cancellation;
//! this is the second net, for clients without one. What makes it hard is that the delay is unknown (network, the page's playback buffer, the
//! room) and that the first window of echo must already be recognised.
//!
//! 1. While a loud window is not explained, `search` correlates the last 64 ms of the microphone with 1.25 s of reply and finds the lag.
//! 2. `canceller` fits 4 ms of echo path at that lag by least squares and subtracts; a window counts the less the more of it is somebody else.
//! 3. What a codec or a long room leaves over is turned down as far as that leak was seen to go lately. Speech of the user is above it and stays.
//!
//! Measured on one core: 0.3 % while a reply comes back, 0.5 % while the user talks over it, 0.01 % while the microphone is silent.
//! It decides nothing about turns: it gives a residual and says how much it explained. It holds no memory until the first reply and none long after it.

mod canceller;
mod reference;
mod search;

use antiphon_types::{Samples, to_sample};
use canceller::{Canceller, HISTORY};
use reference::Reference;
use search::{Found, LagSearch};

/// Samples of one window: 16 ms at 16 kHz.
pub const WINDOW: usize = 256;
/// The echo is looked for up to this much later than its reference position: playback buffer, network and room. 1.2 s.
pub const MAX_LAG: usize = 19_200;
/// And up to this much earlier, should playback be ahead of its estimate: 50 ms.
pub const MAX_LEAD: usize = 800;
/// All memory is given back when no reply has been in reach for this long: 5 s.
const FREE_AFTER: u64 = 80_000;
/// A window below this mean square (-60 dBFS) is nobody's speech; it is neither searched nor learned from.
const QUIET: f32 = 1e-6;
/// A fit that explains this part of 64 ms is believed at once: two different voices stay below it.
const SURE: f32 = 0.6;
/// A weaker one is believed when the next search finds the same lag.
const LIKELY: f32 = 0.25;
/// How far two searches may differ and still be the same lag: 0.5 ms.
const SAME_LAG: i32 = 8;
/// Only a window above this mean square (-56 dBFS) is searched: below it the VAD hears no speech.
const SEARCHABLE: f32 = 2.5e-6;
/// A window that is 6 dB above the one searched last is an onset: it and the next are searched at once,
const ONSET: f32 = 4.0;
const ONSET_WINDOWS: u32 = 4;
/// the memory of which fades by 1 dB a window.
const SEARCHED_FADES: f32 = 0.8;
/// So many searches are left to onsets.
const KEPT_FOR_ONSETS: f32 = 8.0;
/// A new lag is in doubt until so many searches have found it again.
const CONFIRMED: u32 = 3;
/// Below this part explained, a loud window is a reason to search.
const UNEXPLAINED: f32 = 0.5;
/// After so many loud windows in a row of which little was explained the lag is given up: 0.5 s.
const GIVE_UP_AFTER: u32 = 32;
/// Searches are saved up to this number, so that each window at the start of a reply can be searched,
const MAX_SEARCHES: f32 = 16.0;
/// and earned at this rate a window: 12 a second. That bounds the cost when somebody talks all through a reply.
const SEARCHES_PER_WINDOW: f32 = 0.2;

/// How much of a window was the hub's own reply.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EchoVerdict {
    /// The part of the window's energy that the reply explains, in `[0, 1]`; 0 when no reply is in reach.
    pub explained: f32,
    /// Whether a reply may be in the window at all.
    pub in_reach: bool,
    /// How much later than its reference position the reply is heard, in samples at 16 kHz, once that is known.
    pub lag: Option<i32>,
}

/// The guard of one microphone. Windows are contiguous turn time from 0 on.
#[derive(Debug, Default)]
pub struct EchoGuard {
    position: u64,
    /// The lag outlives the buffers: most often the next reply has the same.
    lag: Option<i32>,
    state: Option<Box<EchoState>>,
}

#[derive(Debug)]
struct EchoState {
    reference: Reference,
    search: LagSearch,
    canceller: Canceller,
    /// The last [`HISTORY`] samples of the microphone in [-1, 1], the current window last.
    mic: Vec<f32>,
    residual: [f32; WINDOW],
    /// What the last search found, if it was not sure.
    suspect: Option<i32>,
    searches: f32,
    /// The energy of the window searched last, fading; a window far above it is an onset.
    searched: f32,
    /// Windows left of the last onset.
    n_onset: u32,
    /// How many searches in a row found the lag in use.
    n_confirmed: u32,
    n_unexplained: u32,
    /// Energy of the reference as a room would still hold it.
    ringing: f32,
    /// Energy of the echo over that of its reference.
    coupling: f32,
    /// Energy left over, relative to the echo, as seen lately.
    leak: f32,
    /// The gain at the end of the last window.
    gain: f32,
}

impl EchoGuard {
    /// A guard that has seen nothing; it holds no memory until the first reply.
    pub fn new() -> Self {
        Self::default()
    }

    /// Turn time of the next window's first sample.
    pub fn position(&self) -> Samples {
        Samples(self.position)
    }

    /// Turn time went on by `n` samples without windows, e.g. while the microphone was not watched.
    pub fn skip(&mut self, n: Samples) {
        self.position += n.0;
        if let Some(state) = &mut self.state {
            state.mic.fill(0.0);
        }
    }

    /// Reply audio at 16 kHz with the turn time at which it is estimated to sound: an estimate that is right up to the lag the guard looks
    /// for. Up to 30 s may be given ahead; more is dropped and is then not guarded against.
    pub fn played(&mut self, at: Samples, pcm16k: &[i16]) {
        let state = self.state.get_or_insert_with(|| Box::new(EchoState::new(self.position)));
        if !state.reference.in_reach(self.position) {
            state.searches = MAX_SEARCHES;
        }
        state.reference.write(at.0, pcm16k);
    }

    /// Playback stopped for good at `at`: what was to sound later never will.
    pub fn stopped(&mut self, at: Samples) {
        if let Some(state) = &mut self.state {
            state.reference.cut(at.0);
        }
    }

    /// Playback stood still at `at` for `by` (a hold, an underrun): everything from there on sounds that much later.
    pub fn delayed(&mut self, at: Samples, by: Samples) {
        if let Some(state) = &mut self.state {
            state.reference.delay(at.0, by.0);
        }
    }

    /// Takes the next [`WINDOW`] of the microphone (16 kHz) and writes what is left of it without the reply. Other lengths are passed through.
    pub fn residual(&mut self, window: &[i16], out: &mut [i16]) -> EchoVerdict {
        let start = self.position;
        self.position += window.len() as u64;
        out.copy_from_slice(window);
        let Some(state) = &mut self.state else { return EchoVerdict::default() };
        state.reference.advance(self.position);
        if window.len() != WINDOW || !state.reference.in_reach(start) {
            if state.reference.silent_for(start) > FREE_AFTER {
                self.state = None;
            }
            return EchoVerdict::default();
        }
        state.hear(window);
        let explained = state.cancel(&mut self.lag, start, out);
        EchoVerdict { explained, in_reach: true, lag: self.lag }
    }

    /// Bytes held on the heap now.
    pub fn memory(&self) -> usize {
        self.state.as_ref().map_or(0, |state| {
            size_of::<EchoState>()
                + state.reference.memory()
                + state.search.memory()
                + state.canceller.memory()
                + 4 * HISTORY
        })
    }
}

impl EchoState {
    fn new(position: u64) -> Self {
        Self {
            reference: Reference::new(position),
            search: LagSearch::default(),
            canceller: Canceller::default(),
            mic: vec![0.0; HISTORY],
            residual: [0.0; WINDOW],
            suspect: None,
            searches: MAX_SEARCHES,
            searched: 0.0,
            n_onset: 0,
            n_confirmed: 0,
            n_unexplained: 0,
            ringing: 0.0,
            coupling: 0.0,
            leak: LEAK_AT_FIRST,
            gain: 1.0,
        }
    }

    fn hear(&mut self, window: &[i16]) {
        self.mic.copy_within(WINDOW.., 0);
        for (sample, &pcm) in self.mic[HISTORY - WINDOW..].iter_mut().zip(window) {
            *sample = f32::from(pcm) / 32_768.0;
        }
    }

    /// Subtracts the echo from the newest window; returns the part of its energy explained.
    fn cancel(&mut self, lag: &mut Option<i32>, start: u64, out: &mut [i16]) -> f32 {
        self.searches = (self.searches + SEARCHES_PER_WINDOW).min(MAX_SEARCHES);
        let energy = mean_square(&self.mic[HISTORY - WINDOW..]);
        if energy < QUIET {
            self.gain = 1.0;
            return 0.0;
        }
        let mut explained = lag.map_or(0.0, |lag| self.subtract(lag, start, energy));
        self.n_unexplained = if explained < UNEXPLAINED { self.n_unexplained + 1 } else { 0 };
        if let Some(found) = self.look_for_lag(*lag, start, energy, explained) {
            *lag = Some(found);
            self.canceller.relearn(&self.reference, &self.mic, found, start);
            (self.coupling, self.leak) = (0.0, LEAK_AT_FIRST);
            explained = self.subtract(found, start, energy);
            self.n_unexplained = 0;
        } else if self.n_unexplained > GIVE_UP_AFTER {
            *lag = None;
        }
        if lag.is_some() {
            self.turn_down_the_leak(energy, explained, out);
        }
        explained
    }

    fn subtract(&mut self, lag: i32, start: u64, energy: f32) -> f32 {
        let window = &self.mic[HISTORY - WINDOW..];
        self.canceller.cancel(&self.reference, window, lag, start, &mut self.residual);
        let explained = 1.0 - mean_square(&self.residual) / energy;
        if explained < 0.0 {
            // What makes it louder is no echo path: the lag is wrong or the path has just changed.
            self.residual.copy_from_slice(window);
        }
        explained.max(0.0)
    }

    /// A lag that explains the last 64 ms better than the present one, if a search is due and finds it.
    fn look_for_lag(&mut self, lag: Option<i32>, start: u64, energy: f32, explained: f32) -> Option<i32> {
        let onset = energy > ONSET * self.searched;
        self.n_onset = if onset { ONSET_WINDOWS } else { self.n_onset.saturating_sub(1) };
        self.searched *= SEARCHED_FADES;
        let due = explained < UNEXPLAINED || self.n_confirmed < CONFIRMED;
        if !due || energy < SEARCHABLE || self.searches < if self.n_onset > 0 { 1.0 } else { KEPT_FOR_ONSETS } {
            return None;
        }
        self.searches -= 1.0;
        self.searched = energy;
        let mic_start = start as i64 + WINDOW as i64 - HISTORY as i64;
        let Found { lag: found, explained: fit } = self.search.run(&mut self.reference, &self.mic, mic_start)?;
        let near = |other: i32| (other - found).abs() <= SAME_LAG;
        let again = self.suspect.is_some_and(near);
        self.suspect = (fit >= LIKELY).then_some(found);
        if lag.is_some_and(near) {
            self.n_confirmed += 1;
            return None;
        }
        // A lag in use is left for a much better fit only: the next pitch period fits nearly as well.
        let believed = fit >= SURE || (fit >= LIKELY && again);
        let better = believed && fit > explained;
        self.n_confirmed = if better { 0 } else { self.n_confirmed };
        better.then_some(found)
    }

    /// Scales the residual by the part of it that is not leaked echo, and writes it.
    fn turn_down_the_leak(&mut self, energy: f32, explained: f32, out: &mut [i16]) {
        let left = mean_square(&self.residual).max(1e-12);
        let played = self.canceller.reference_energy().max(1e-12);
        self.ringing = played.max(ROOM_FADES * self.ringing);
        if explained > UNEXPLAINED {
            let seen = energy * explained / played;
            self.coupling = if self.coupling == 0.0 { seen } else { 0.9 * self.coupling + 0.1 * seen };
        }
        let echo = (self.coupling * self.ringing).max(energy * explained);
        let seen = left / echo.max(1e-12);
        if seen < 1.0 {
            let pace = if seen > self.leak { LEAK_RISES } else { LEAK_FALLS };
            self.leak = ((1.0 - pace) * self.leak + pace * seen).max(LEAK_AT_BEST);
        }
        let leaked = (LEAK_MARGIN * self.leak).min(LEAK_AT_WORST) * echo;
        // A lag that was found once may be chance. What it does not explain is the user's then, and not its leak.
        let is_chance = self.n_confirmed < CONFIRMED && explained < LIKELY;
        let own = if is_chance { 1.0 } else { (1.0 - leaked / left).max(0.0).sqrt().max(GAIN_FLOOR) };
        let step = (own - self.gain) / WINDOW as f32;
        for (i, (pcm, &sample)) in out.iter_mut().zip(&self.residual).enumerate() {
            // An echo that begins must be down at once; a user who begins comes up within a window.
            let gain = if own < self.gain { own } else { self.gain + step * i as f32 };
            *pcm = to_sample(sample * gain * 32_768.0);
        }
        self.gain = own;
    }
}

/// The leak that is assumed before anything was seen: 5 dB below the echo.
const LEAK_AT_FIRST: f32 = 0.3;
/// No canceller is trusted further than 20 dB.
const LEAK_AT_BEST: f32 = 0.01;
/// How much louder than seen lately the leak may get,
const LEAK_MARGIN: f32 = 2.0;
/// but more than this beside the echo is somebody speaking.
const LEAK_AT_WORST: f32 = 0.8;
/// Per window, towards a higher figure and towards a lower one: peaks count.
const LEAK_RISES: f32 = 0.3;
const LEAK_FALLS: f32 = 0.05;
/// What a room of 0.8 s reverberation time keeps of an energy from window to window.
const ROOM_FADES: f32 = 0.75;
/// Leak alone is turned down by 20 dB, not muted.
const GAIN_FLOOR: f32 = 0.1;

fn mean_square(samples: &[f32]) -> f32 {
    dot(samples, samples) / samples.len() as f32
}

/// The scalar product, summed in eight lanes so that it vectorises.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 8];
    let ((a_whole, a_rest), (b_whole, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a_whole.iter().zip(b_whole) {
        for i in 0..8 {
            lanes[i] += a[i] * b[i];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    lanes.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests;
