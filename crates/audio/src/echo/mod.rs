//! Echo guard: subtracts the response from the microphone signal before the VAD, so that the hub is not interrupted by
//! its own response.
//!
//! Session egress provides the played audio; session ingress requests the residual of each window. The web page asks
//! the browser for echo cancellation; this guard serves clients without it. The delay is unknown (network, playback
//! buffer, room), and the first window of echo must already be recognised.
//!
//! 1. While a loud window is unexplained, `search` correlates the last 64 ms of the microphone with 1.34 s of response
//!    audio and finds the lag.
//! 2. `canceller` fits 4 ms of echo path at that lag by least squares and subtracts it. Windows that contain other
//!    sound have less weight.
//! 3. The residual left by a codec or a long room is attenuated according to the recently observed leak. Speech of the
//!    user is louder and passes.
//!
//! CPU load measured on one core: 0.3 % while a response echoes, 0.5 % while the user talks over it, 0.01 % while the
//! microphone is silent. The guard makes no turn decisions: it returns a residual and how much of the window it
//! explained. It allocates at the first response and frees its memory 5 s after the last one.

mod canceller;
mod reference;
mod search;

use antiphon_types::{Samples, to_sample};
use canceller::{Canceller, HISTORY};
use reference::Reference;
use search::{LagCandidate, LagSearch};

/// Samples per window: 16 ms at 16 kHz.
pub const WINDOW: usize = 256;
/// The largest lag searched, 1.2 s: the delay of the playback buffer, the network and the room.
pub const MAX_LAG: usize = 19_200;
/// The largest lead searched, 144 ms: turn time begins with the first audio of a microphone, and a phone may begin to send later
/// than to play. With more of it a search takes another transform.
pub const MAX_LEAD: usize = 2_304;
/// Time without response audio in reach after which all memory is freed: 5 s.
const FREE_AFTER: u64 = 80_000;
/// A window below this mean square (-60 dBFS) contains no speech; it is neither searched nor used for the fit.
const QUIET: f32 = 1e-6;
/// A fit that explains this part of 64 ms is accepted immediately; two different voices stay below it.
const SURE: f32 = 0.6;
/// A fit that explains this part is accepted if the next search finds the same lag.
const LIKELY: f32 = 0.25;
/// The largest difference between two searches that counts as the same lag: 0.5 ms.
const SAME_LAG: i32 = 8;
/// Only a window above this mean square (-56 dBFS) is searched; below it the VAD detects no speech.
const SEARCHABLE: f32 = 2.5e-6;
/// Energy ratio (6 dB) to the window searched last above which a window is an onset. Onsets are searched immediately.
const ONSET: f32 = 4.0;
const ONSET_WINDOWS: u32 = 4;
/// Decay per window (1 dB) of the energy of the window searched last.
const SEARCHED_FADES: f32 = 0.8;
/// Number of searches reserved for onsets.
const KEPT_FOR_ONSETS: f32 = 8.0;
/// Number of searches that must find a new lag again before it counts as confirmed.
const CONFIRMED: u32 = 3;
/// A loud window of which less than this part is explained triggers a search.
const UNEXPLAINED: f32 = 0.5;
/// Number of consecutive loud, unexplained windows after which the lag is discarded: 0.5 s.
const GIVE_UP_AFTER: u32 = 32;
/// Largest search budget, so that each window at the start of a response can be searched.
const MAX_SEARCHES: f32 = 16.0;
/// Search budget gained per window: 12 searches per second. It bounds the cost while the user talks over a response.
const SEARCHES_PER_WINDOW: f32 = 0.2;
/// The same, 1 per second, once [`VAIN`] searches in a row were without a confirmed lag: this microphone hears no response, because of
/// headphones or the browser's echo cancellation. The budget is that for an onset, whose windows are searched as before.
const SEARCHES_PER_WINDOW_IN_VAIN: f32 = 0.016;
const MAX_SEARCHES_IN_VAIN: f32 = 4.0;
/// Five seconds of searches at the full rate.
const VAIN: u32 = 60;

/// On a telephone line: time from the first response's beginning, 0.7 s, in which a sound that may be its echo is taken for it
/// while no lag is known. A fricative in the band of a telephone has too little of what a search compares, and would interrupt
/// the response before its first vowel.
const FIRST: u64 = 11_200;
/// Energy relative to the response up to which a sound may be its echo: a hybrid returns at least 6 dB less (ITU-T G.168).
const STRONGEST_ECHO: f32 = 0.25;
/// How long ago a response may have sounded whose echo that is, 0.3 s.
const RECENT: usize = 4_800;

/// How much of a window was the hub's own response.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EchoVerdict {
    /// The fraction of the window's energy that the response explains, in `[0, 1]`; 0 if no response is in reach.
    pub explained: f32,
    /// Whether the window may contain echo of a response.
    pub in_reach: bool,
    /// The delay of the echo relative to its reference position, in samples at 16 kHz; `None` until it is known.
    pub lag: Option<i32>,
}

/// The echo guard of one microphone. Windows are contiguous turn time from 0 on.
#[derive(Debug, Default)]
pub struct EchoGuard {
    position: u64,
    /// Kept when the buffers are freed, because the next response usually has the same lag.
    lag: Option<i32>,
    /// Searches in a row without a confirmed lag, kept for the same reason. A voice resembles another one now and then; only
    /// a lag that is found again is an echo.
    n_vain: u32,
    /// The microphone is a telephone's.
    is_line: bool,
    /// When [`FIRST`] is over; `None`: there was no response.
    first_until: Option<u64>,
    state: Option<Box<EchoState>>,
}

#[derive(Debug)]
struct EchoState {
    reference: Reference,
    search: LagSearch,
    canceller: Canceller,
    recent: RecentWindows,
    residual: [f32; WINDOW],
    /// The result of the last search, to be confirmed by the next one.
    suspect: Option<i32>,
    searches: f32,
    /// Decaying energy of the window searched last; a window far above it is an onset.
    searched: f32,
    /// Windows left of the last onset.
    n_onset: u32,
    /// Number of consecutive searches that found the lag in use.
    n_confirmed: u32,
    n_unexplained: u32,
    /// Energy of the reference including reverberation.
    ringing: f32,
    /// Energy of the echo divided by that of its reference.
    coupling: f32,
    /// Recent energy of the residual relative to the echo.
    leak: f32,
    /// Gain at the end of the last window.
    gain: f32,
}

/// The last [`HISTORY`] microphone samples.
#[derive(Debug)]
struct RecentWindows {
    windows: [[i16; WINDOW]; HISTORY / WINDOW],
    /// The one to be replaced next.
    oldest: usize,
}

impl Default for RecentWindows {
    fn default() -> Self {
        Self { windows: [[0; WINDOW]; HISTORY / WINDOW], oldest: 0 }
    }
}

impl RecentWindows {
    /// Takes a window of [`WINDOW`] samples.
    fn push(&mut self, window: &[i16]) {
        self.windows[self.oldest].copy_from_slice(window);
        self.oldest = (self.oldest + 1) % self.windows.len();
    }

    /// All of them in [-1, 1], the newest window last.
    fn samples(&self) -> [f32; HISTORY] {
        let (newer, older) = self.windows.split_at(self.oldest);
        let mut samples = [0.0; HISTORY];
        for (to, &pcm) in samples.iter_mut().zip(older.iter().chain(newer).flatten()) {
            *to = f32::from(pcm) / 32_768.0;
        }
        samples
    }
}

impl EchoGuard {
    /// A guard without history; it allocates no memory until the first response.
    pub fn new() -> Self {
        Self::default()
    }

    /// The microphone is a telephone's, whose line may return the response from its first sound on. Who speaks over the beginning of
    /// the first response, and more quietly than that, is heard up to 0.7 s later.
    pub fn expect_line(&mut self) {
        self.is_line = true;
    }

    /// Turn time of the next window's first sample.
    pub fn position(&self) -> Samples {
        Samples(self.position)
    }

    /// Advances turn time by `n` samples without windows, for example while the microphone is not processed.
    pub fn skip(&mut self, n: Samples) {
        self.position += n.0;
        if let Some(state) = &mut self.state {
            state.recent = RecentWindows::default();
        }
    }

    /// Adds response audio at 16 kHz and the turn time at which it is estimated to sound, with an error of at most the
    /// searched lag. At most 30 s may be added ahead of time; audio beyond that is dropped and its echo is not removed.
    pub fn played(&mut self, at: Samples, pcm16k: &[i16]) {
        self.first_until.get_or_insert(at.0 + FIRST);
        let state = self.state.get_or_insert_with(|| Box::new(EchoState::new(self.position)));
        if !state.reference.in_reach(self.position) {
            state.searches = MAX_SEARCHES;
        }
        state.reference.write(at.0, pcm16k);
    }

    /// Frees what was added: no microphone hears it.
    pub fn forget(&mut self) {
        self.state = None;
        self.first_until = None;
    }

    /// Playback was stopped for good at `at`: audio scheduled after it will not sound.
    pub fn stopped(&mut self, at: Samples) {
        if let Some(state) = &mut self.state {
            state.reference.cut(at.0);
        }
    }

    /// Playback paused at `at` for `by` (a hold or an underrun): audio from there on sounds that much later.
    pub fn delayed(&mut self, at: Samples, by: Samples) {
        if let Some(state) = &mut self.state {
            state.reference.delay(at.0, by.0);
        }
    }

    /// Accepts the next [`WINDOW`] of the microphone (16 kHz) and writes it to `out` with the response removed. Windows
    /// of other lengths are passed through.
    pub fn residual(&mut self, window: &[i16], out: &mut [i16]) -> EchoVerdict {
        let start = self.position;
        self.position += window.len() as u64;
        out.copy_from_slice(window);
        let Some(state) = &mut self.state else { return EchoVerdict::default() };
        if window.len() != WINDOW || !state.reference.in_reach(start) {
            if state.reference.silent_for(start) > FREE_AFTER {
                self.state = None;
            }
            return EchoVerdict::default();
        }
        state.recent.push(window);
        state.reference.forget_before(start);
        let explained = state.cancel(&mut self.lag, &mut self.n_vain, &unit(window), start, out);
        if self.is_line && self.lag.is_none() && self.first_until.is_some_and(|until| start < until) {
            state.turn_down_what_may_be_echo(&unit(window), start, out);
        }
        EchoVerdict { explained, in_reach: true, lag: self.lag }
    }

    /// Heap memory in bytes.
    pub fn memory(&self) -> usize {
        self.state.as_ref().map_or(0, |state| {
            size_of::<EchoState>() + state.reference.memory() + state.search.memory() + state.canceller.memory()
        })
    }
}

impl EchoState {
    fn new(position: u64) -> Self {
        Self {
            reference: Reference::new(position),
            search: LagSearch::default(),
            canceller: Canceller::default(),
            recent: RecentWindows::default(),
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

    /// Subtracts the echo from the newest window; returns the fraction of its energy that was explained.
    fn cancel(&mut self, lag: &mut Option<i32>, n_vain: &mut u32, window: &[f32], start: u64, out: &mut [i16]) -> f32 {
        // A lag that explains the last window is to be confirmed soon.
        let is_in_vain = *n_vain >= VAIN && (lag.is_none() || self.n_unexplained > 0);
        let (gained, most) = match is_in_vain {
            false => (SEARCHES_PER_WINDOW, MAX_SEARCHES),
            true => (SEARCHES_PER_WINDOW_IN_VAIN, MAX_SEARCHES_IN_VAIN),
        };
        self.searches = (self.searches + gained).min(most);
        let energy = mean_square(window);
        if energy < QUIET {
            self.gain = 1.0;
            return 0.0;
        }
        self.reference.advance(start + WINDOW as u64);
        let mut explained = lag.map_or(0.0, |lag| self.subtract(lag, window, start, energy));
        self.n_unexplained = if explained < UNEXPLAINED { self.n_unexplained + 1 } else { 0 };
        let n_left = self.searches;
        let found = self.look_for_lag(*lag, start, energy, explained);
        if self.searches < n_left {
            *n_vain = if self.n_confirmed < CONFIRMED { n_vain.saturating_add(1) } else { 0 };
        }
        if let Some(found) = found {
            *lag = Some(found);
            self.canceller.relearn(&self.reference, &self.recent.samples(), found, start);
            self.coupling = 0.0;
            self.leak = LEAK_AT_FIRST;
            explained = self.subtract(found, window, start, energy);
            self.n_unexplained = 0;
        } else if self.n_unexplained > GIVE_UP_AFTER {
            *lag = None;
            self.n_confirmed = 0;
        }
        if lag.is_some() {
            self.turn_down_the_leak(energy, explained, out);
        }
        explained
    }

    fn subtract(&mut self, lag: i32, window: &[f32], start: u64, energy: f32) -> f32 {
        self.canceller.cancel(&self.reference, window, lag, start, &mut self.residual);
        let explained = 1.0 - mean_square(&self.residual) / energy;
        if explained < 0.0 {
            // The subtraction must not add energy: the lag is wrong or the echo path has just changed.
            self.residual.copy_from_slice(window);
        }
        explained.max(0.0)
    }

    /// A lag that explains the last 64 ms better than the present one, if a search is due and finds one.
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
        let mic = self.recent.samples();
        let LagCandidate { lag: found, explained: fit } = self.search.run(&mut self.reference, &mic, mic_start)?;
        let near = |other: i32| (other - found).abs() <= SAME_LAG;
        let again = self.suspect.is_some_and(near);
        self.suspect = (fit >= LIKELY).then_some(found);
        if lag.is_some_and(near) {
            self.n_confirmed += 1;
            return None;
        }
        // The lag in use is replaced only by a much better fit, because the next pitch period fits nearly as well.
        let believed = fit >= SURE || (fit >= LIKELY && again);
        let better = believed && fit > explained;
        self.n_confirmed = if better { 0 } else { self.n_confirmed };
        better.then_some(found)
    }

    /// Leaves nothing of the window where it is no louder than an echo of the response around it may be.
    fn turn_down_what_may_be_echo(&self, window: &[f32], start: u64, out: &mut [i16]) {
        let mut near = [0.0; RECENT + MAX_LEAD];
        self.reference.read(start as i64 - RECENT as i64, &mut near);
        let loudest = near.chunks(WINDOW).map(mean_square).fold(0.0, f32::max);
        if mean_square(window) < STRONGEST_ECHO * loudest {
            out.fill(0);
        }
    }

    /// Attenuates the residual by the part that is leaked echo, and writes it.
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
        // An unconfirmed lag may be a coincidence. Its residual is then treated as the user's speech, not as leak.
        let is_chance = self.n_confirmed < CONFIRMED && explained < LIKELY;
        let own = if is_chance { 1.0 } else { (1.0 - leaked / left).max(0.0).sqrt().max(GAIN_FLOOR) };
        let step = (own - self.gain) / WINDOW as f32;
        for (i, (pcm, &sample)) in out.iter_mut().zip(&self.residual).enumerate() {
            // The gain drops immediately when an echo starts, and rises within a window when the user starts to speak.
            let gain = if own < self.gain { own } else { self.gain + step * i as f32 };
            *pcm = to_sample(sample * gain * 32_768.0);
        }
        self.gain = own;
    }
}

/// Initial estimate of the leak: 5 dB below the echo.
const LEAK_AT_FIRST: f32 = 0.3;
/// Lower bound of the leak: no canceller is assumed to attenuate by more than 20 dB.
const LEAK_AT_BEST: f32 = 0.01;
/// Factor by which the leak may exceed its recent estimate.
const LEAK_MARGIN: f32 = 2.0;
/// Upper bound of the leak relative to the echo; above it the residual counts as speech.
const LEAK_AT_WORST: f32 = 0.8;
/// Smoothing factors per window, upwards and downwards; the leak rises faster than it falls, so that peaks count.
const LEAK_RISES: f32 = 0.3;
const LEAK_FALLS: f32 = 0.05;
/// Energy that remains from window to window in a room with a reverberation time of 0.8 s.
const ROOM_FADES: f32 = 0.75;
/// Attenuation of pure leak: 20 dB instead of muting.
const GAIN_FLOOR: f32 = 0.1;

/// A window in [-1, 1].
fn unit(window: &[i16]) -> [f32; WINDOW] {
    let mut samples = [0.0; WINDOW];
    for (to, &pcm) in samples.iter_mut().zip(window) {
        *to = f32::from(pcm) / 32_768.0;
    }
    samples
}

fn mean_square(samples: &[f32]) -> f32 {
    dot(samples, samples) / samples.len() as f32
}

/// The scalar product, summed in eight lanes so that it vectorises, with the instructions of the function that calls it.
#[inline(always)]
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
