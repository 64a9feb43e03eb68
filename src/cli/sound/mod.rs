//! The microphone and the loudspeaker of this machine, for `antiphon chat` and `antiphon say`.
//!
//! Each is a thread that ALSA blocks: [`Microphone`] hands out 20 ms at a time, [`Loudspeaker`] plays what it is given and knows
//! what has been heard. Both end when they are dropped. ALSA is opened at run time; where it is absent, opening fails with what to
//! do. A device that is a file (ALSA's plugins `file` and `null`) has no clock: it is read and written at the pace of one.

mod alsa;

use alsa::{Device, Direction};
use antiphon_types::SampleRate;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Rate of both: the Realtime protocol's.
pub const RATE: SampleRate = antiphon_client::RATE;

/// The device that ALSA's configuration names; with PipeWire or PulseAudio, the desktop's.
pub const DEFAULT: &str = "default";

/// Samples of 20 ms, a frame of the protocol.
const FRAME: usize = RATE.hz() as usize / 50;
/// The device's buffers: as much as an interruption has to wait for, at most.
const LATENCY: Duration = Duration::from_millis(60);
/// How long a thread waits for its device before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);
/// Frames of the microphone that wait for their reader: a second. Further ones are lost, oldest first kept.
const MAX_WAITING: usize = 50;
/// Sound that waits for the loudspeaker: 10 minutes, 29 MB; a server that does not pace sends a reply at once.
const MAX_QUEUED: usize = 10 * 60 * RATE.hz() as usize;

/// A device of ALSA's list.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SoundDevice {
    /// The name that `--device` takes.
    pub name: String,
    /// What it is, in words.
    pub description: String,
    /// Whether it records.
    pub is_microphone: bool,
    /// Whether it plays.
    pub is_loudspeaker: bool,
}

/// Why there is no sound.
#[derive(Debug, thiserror::Error)]
pub enum SoundError {
    /// ALSA is not installed.
    #[error("no sound: ALSA's library cannot be opened ({0}). Install it (Debian: apt-get install libasound2)")]
    NoLibrary(String),
    /// The list cannot be read.
    #[error("ALSA does not list its devices: {0}")]
    List(String),
    /// The device cannot be opened.
    #[error(
        "the {} \"{device}\" cannot be opened: {why}. `antiphon chat --list` lists the devices, --device chooses one",
        if *is_microphone { "microphone" } else { "loudspeaker" }
    )]
    Open {
        /// Its name.
        device: String,
        /// Which of the two it was to be.
        is_microphone: bool,
        /// ALSA's words.
        why: String,
    },
    /// The device failed while it was used, as when it is unplugged.
    #[error("the device \"{device}\" failed: {why}")]
    Broke {
        /// Its name.
        device: String,
        /// ALSA's words.
        why: String,
    },
    /// No thread can be started.
    #[error("no thread can be started: {0}")]
    Thread(#[from] std::io::Error),
    /// More sound than can wait.
    #[error("the server sent more than 10 minutes of sound ahead")]
    Full,
}

/// The devices of this machine. Blocks for milliseconds.
pub fn devices() -> Result<Vec<SoundDevice>, SoundError> {
    alsa::devices()
}

/// How much faster than the system's clock a device's own may run: sound cards differ by 0.01 %, files by any factor.
const FASTEST: f64 = 1.005;
/// The longest wait for a loudspeaker that does not go on.
const STALL: Duration = Duration::from_secs(10);

/// Keeps a device without a clock from running ahead of real time.
struct Pace {
    begun: Instant,
    n: u64,
}

// The clock of a device that has none.
#[allow(clippy::disallowed_methods)]
impl Pace {
    fn new() -> Self {
        Self { begun: Instant::now(), n: 0 }
    }

    /// Counts samples, and sleeps while they are more than `ahead` ahead of the clock. A device that is behind, as after an
    /// underrun, does not catch up.
    fn keep(&mut self, n: usize, ahead: Duration) {
        self.n += n as u64;
        let due = Duration::from_secs_f64(self.n as f64 / (f64::from(RATE.hz()) * FASTEST));
        let elapsed = self.begun.elapsed();
        if due > elapsed + ahead {
            thread::sleep(due - elapsed - ahead);
        } else if elapsed > due + ahead {
            *self = Self::new();
        }
    }
}

/// A microphone. Dropping it closes the device, which takes at most 200 ms.
pub struct Microphone {
    frames: mpsc::Receiver<Result<Vec<i16>, SoundError>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Microphone {
    /// Opens the device and closes it again, to see whether that goes. Blocks for milliseconds.
    ///
    /// # Errors
    /// See [`SoundError`].
    pub fn check(device: &str) -> Result<(), SoundError> {
        Device::open(device, Direction::Capture, LATENCY).map(drop)
    }

    /// Opens the device and records from now on. Blocks for milliseconds.
    ///
    /// # Errors
    /// See [`SoundError`].
    pub fn open(device: &str) -> Result<Self, SoundError> {
        let mut device = Device::open(device, Direction::Capture, LATENCY)?;
        let (sender, frames) = mpsc::channel(MAX_WAITING);
        let ends = Arc::new(AtomicBool::new(false));
        let end = ends.clone();
        let work = move || {
            let mut pace = Pace::new();
            let mut frame = vec![0; FRAME];
            let mut filled = 0;
            while !end.load(Ordering::Relaxed) {
                match device.read(&mut frame[filled..], LOOK) {
                    Ok(n) => filled += n,
                    Err(error) => {
                        // A send fails once the receiver is dropped.
                        let _ = sender.blocking_send(Err(error));
                        return;
                    }
                }
                if filled == FRAME {
                    pace.keep(FRAME, LATENCY);
                    // A reader that is a second behind loses frames, rather than hearing everything late from then on.
                    let _ = sender.try_send(Ok(frame.clone()));
                    filled = 0;
                }
            }
        };
        let thread = thread::Builder::new().name("microphone".into()).spawn(work)?;
        Ok(Self { frames, ends, thread: Some(thread) })
    }

    /// The next 20 ms. Cancel safe. Nothing follows an error.
    pub async fn next(&mut self) -> Option<Result<Vec<i16>, SoundError>> {
        self.frames.recv().await
    }
}

impl Drop for Microphone {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.frames.close();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed where it happened.
            let _ = thread.join();
        }
    }
}

/// What the loudspeaker is to play, and how far it is.
#[derive(Default)]
struct Queue {
    /// Items in the order of their sound, each with its samples that were not written yet.
    waiting: VecDeque<(String, VecDeque<i16>)>,
    n_waiting: usize,
    is_held: bool,
    is_cleared: bool,
    ends: bool,
    /// The item that sounds, and its samples that were written.
    playing: Option<(String, u64)>,
    /// Of these, samples that have sounded.
    heard: u64,
    failure: Option<SoundError>,
}

impl Queue {
    /// Whether everything has sounded.
    fn is_silent(&self) -> bool {
        self.n_waiting == 0 && self.playing.as_ref().is_none_or(|(_, written)| self.heard >= *written)
    }
}

/// A loudspeaker. Dropping it discards what has not sounded and closes the device.
pub struct Loudspeaker {
    device: String,
    shared: Arc<(Mutex<Queue>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Loudspeaker {
    /// Opens the device and closes it again, to see whether that goes. Blocks for milliseconds.
    ///
    /// # Errors
    /// See [`SoundError`].
    pub fn check(device: &str) -> Result<(), SoundError> {
        Device::open(device, Direction::Play, LATENCY).map(drop)
    }

    /// Opens the device. Blocks for milliseconds.
    ///
    /// # Errors
    /// See [`SoundError`].
    pub fn open(name: &str) -> Result<Self, SoundError> {
        let device = Device::open(name, Direction::Play, LATENCY)?;
        let shared: Arc<(Mutex<Queue>, Condvar)> = Arc::default();
        let work = shared.clone();
        let thread = thread::Builder::new().name("loudspeaker".into()).spawn(move || play(device, &work))?;
        Ok(Self { device: name.to_owned(), shared, thread: Some(thread) })
    }

    /// Plays samples of an item behind all that waits.
    ///
    /// # Errors
    /// What the device failed with; [`SoundError::Full`].
    pub fn play(&self, item_id: &str, samples: &[i16]) -> Result<(), SoundError> {
        let mut queue = self.queue();
        if let Some(failure) = queue.failure.take() {
            return Err(failure);
        }
        if queue.n_waiting + samples.len() > MAX_QUEUED {
            return Err(SoundError::Full);
        }
        queue.n_waiting += samples.len();
        match queue.waiting.back_mut().filter(|(id, _)| id == item_id) {
            Some((_, waiting)) => waiting.extend(samples),
            None => queue.waiting.push_back((item_id.to_owned(), samples.iter().copied().collect())),
        }
        self.shared.1.notify_all();
        Ok(())
    }

    /// Pauses within [`LATENCY`], and keeps what waits.
    pub fn hold(&self) {
        self.queue().is_held = true;
    }

    /// Goes on.
    pub fn resume(&self) {
        self.queue().is_held = false;
        self.shared.1.notify_all();
    }

    /// Stops at once, and discards what has not sounded.
    pub fn clear(&self) {
        let mut queue = self.queue();
        queue.waiting.clear();
        queue.n_waiting = 0;
        queue.is_held = false;
        queue.is_cleared = true;
        self.shared.1.notify_all();
    }

    /// The item that sounds, or sounded last, and how much of it was heard.
    pub fn heard(&self) -> Option<(String, Duration)> {
        let queue = self.queue();
        let (item_id, _) = queue.playing.as_ref()?;
        Some((item_id.clone(), Duration::from_millis(queue.heard * 1_000 / u64::from(RATE.hz()))))
    }

    /// Whether everything has sounded.
    pub fn is_silent(&self) -> bool {
        self.queue().is_silent()
    }

    /// Blocks until everything has sounded.
    ///
    /// # Errors
    /// What the device failed with, or that it plays nothing for 10 s.
    pub fn wait(&self) -> Result<(), SoundError> {
        self.wait_until(Queue::is_silent)
    }

    /// Blocks until at most `longest` of sound waits.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn wait_for_room(&self, longest: Duration) -> Result<(), SoundError> {
        let most = (longest.as_secs_f64() * f64::from(RATE.hz())) as usize;
        self.wait_until(|queue| queue.n_waiting <= most)
    }

    fn wait_until(&self, is_done: impl Fn(&Queue) -> bool) -> Result<(), SoundError> {
        let mut queue = self.queue();
        loop {
            if let Some(failure) = queue.failure.take() {
                return Err(failure);
            }
            if is_done(&queue) {
                return Ok(());
            }
            let before = (queue.n_waiting, queue.heard);
            let is_same = |queue: &mut Queue| {
                queue.failure.is_none() && !is_done(queue) && (queue.n_waiting, queue.heard) == before
            };
            let (next, waited) =
                self.shared.1.wait_timeout_while(queue, STALL, is_same).unwrap_or_else(PoisonError::into_inner);
            if waited.timed_out() {
                let why = format!("it played nothing for {} s", STALL.as_secs());
                return Err(SoundError::Broke { device: self.device.clone(), why });
            }
            queue = next;
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Loudspeaker {
    fn drop(&mut self) {
        self.queue().ends = true;
        self.shared.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed where it happened.
            let _ = thread.join();
        }
    }
}

/// The thread of a loudspeaker: writes 10 ms at a time, so that it reacts soon.
fn play(mut device: Device, shared: &(Mutex<Queue>, Condvar)) {
    let mut pace = Pace::new();
    let mut piece = Vec::with_capacity(FRAME / 2);
    loop {
        let mut queue = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.ends {
            return;
        }
        if std::mem::take(&mut queue.is_cleared) {
            device.drop_buffer();
            pace = Pace::new();
            // What was discarded will not be heard.
            let heard = queue.heard;
            queue.playing.iter_mut().for_each(|(_, written)| *written = heard);
        }
        let unheard = device.unheard() as u64;
        if let Some(written) = queue.playing.as_ref().map(|(_, written)| *written) {
            queue.heard = queue.heard.max(written.saturating_sub(unheard));
        }
        shared.1.notify_all();
        if queue.is_silent() {
            drop(shared.1.wait(queue).unwrap_or_else(PoisonError::into_inner));
            continue;
        }
        if queue.is_held || queue.n_waiting == 0 {
            // What is shorter than its buffer does not start the device by itself.
            device.start();
            // Until more comes, or what was written has sounded a bit further, which the device does not announce.
            drop(shared.1.wait_timeout(queue, LATENCY / 6).unwrap_or_else(PoisonError::into_inner));
            continue;
        }
        take(&mut queue, &mut piece);
        drop(queue);
        let mut written = 0;
        while written < piece.len() {
            match device.write(&piece[written..]) {
                Ok(n) => written += n,
                Err(error) => {
                    let mut queue = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
                    queue.failure = Some(error);
                    queue.n_waiting = 0;
                    queue.waiting.clear();
                    shared.1.notify_all();
                    return;
                }
            }
        }
        pace.keep(piece.len(), LATENCY);
    }
}

/// Moves the next 10 ms of one item into `piece`.
fn take(queue: &mut Queue, piece: &mut Vec<i16>) {
    piece.clear();
    let Some((item_id, samples)) = queue.waiting.front_mut() else { return };
    let n = samples.len().min(FRAME / 2);
    piece.extend(samples.drain(..n));
    let item_id = item_id.clone();
    let is_done = samples.is_empty();
    if is_done {
        queue.waiting.pop_front();
    }
    queue.n_waiting -= n;
    match &mut queue.playing {
        Some((playing, written)) if *playing == item_id => *written += n as u64,
        playing => {
            *playing = Some((item_id, n as u64));
            queue.heard = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_until_little_sound_is_ahead() {
        let loudspeaker = Loudspeaker { device: "test".into(), shared: Arc::default(), thread: None };
        loudspeaker.play("", &[1; 4 * FRAME]).expect("room");
        let shared = loudspeaker.shared.clone();
        let device = thread::spawn(move || {
            let mut piece = Vec::new();
            for _ in 0..4 {
                take(&mut shared.0.lock().expect("no panic while locked"), &mut piece);
                shared.1.notify_all();
            }
        });
        loudspeaker.wait_for_room(Duration::from_millis(40)).expect("it plays");
        assert_eq!(loudspeaker.queue().n_waiting, 2 * FRAME);
        device.join().expect("no panic");
    }

    #[test]
    fn items_are_played_in_order_and_counted_from_their_beginning() {
        let mut queue = Queue::default();
        queue.waiting.push_back(("a".into(), vec![1; FRAME / 2 + 7].into()));
        queue.waiting.push_back(("b".into(), vec![2; 5].into()));
        queue.n_waiting = FRAME / 2 + 12;
        let mut piece = Vec::new();
        let mut seen = Vec::new();
        while queue.n_waiting > 0 {
            take(&mut queue, &mut piece);
            seen.push((piece.len(), piece[0], queue.playing.clone().expect("one plays")));
        }
        let half = FRAME / 2;
        assert_eq!(
            seen,
            [(half, 1, ("a".into(), half as u64)), (7, 1, ("a".into(), half as u64 + 7)), (5, 2, ("b".into(), 5)),]
        );
    }
}
