//! What all parts of a world share: its log, its violations, the requests that engines serve, and when it is to end at once.

use antiphon::replay::Dice;
use antiphon_session::Handle;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Lines of the log that are kept where the whole log was not asked for.
const KEPT_LINES: usize = 60;

/// The longest line that is kept, in bytes; its hash covers all of it.
const LINE_BYTES: usize = 400;

/// A port whose requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Port {
    Stt,
    Llm,
    Tts,
    Turn,
    Mcp,
}

impl Port {
    pub(super) const ALL: [Self; 5] = [Self::Stt, Self::Llm, Self::Tts, Self::Turn, Self::Mcp];
}

/// See the module.
pub(super) struct Probe {
    began: Instant,
    live: [AtomicUsize; Port::ALL.len()],
    steps: AtomicU64,
    /// The step at which the session's handle is stopped, from inside an engine or the client.
    kill_at: Option<u64>,
    pub(super) kill: CancellationToken,
    handles: Mutex<Vec<Arc<Handle>>>,
    /// Sound that voices have made, in microseconds.
    spoken_us: AtomicU64,
    shared: Mutex<ProbeState>,
}

struct ProbeState {
    dice: Dice,
    lines: VecDeque<String>,
    keeps_all: bool,
    n_lines: u64,
    hash: u64,
    violations: Vec<String>,
}

impl Probe {
    /// `verbose`: the whole log is kept.
    pub(super) fn new(dice: Dice, kill_at: Option<u64>, verbose: bool) -> Arc<Self> {
        let shared = ProbeState {
            dice,
            lines: VecDeque::new(),
            keeps_all: verbose,
            n_lines: 0,
            hash: 0xcbf2_9ce4_8422_2325,
            violations: Vec::new(),
        };
        Arc::new(Self {
            began: Instant::now(),
            live: Default::default(),
            steps: AtomicU64::new(0),
            kill_at,
            kill: CancellationToken::new(),
            handles: Mutex::default(),
            spoken_us: AtomicU64::new(0),
            shared: Mutex::new(shared),
        })
    }

    /// A draw of the engines.
    pub(super) fn draw<T>(&self, draw: impl FnOnce(&mut Dice) -> T) -> T {
        draw(&mut self.lock().dice)
    }

    /// Something happened in an engine or in the client: the moments at which a session may be ended.
    pub(super) fn step(&self) {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        if self.kill_at == Some(step) {
            self.log("!", "the handles are stopped");
            self.handles().iter().for_each(|handle| handle.stop());
            self.kill.cancel();
        }
    }

    /// A session that is ended at the step of that, at once: the engine or the client is in the middle of something.
    pub(super) fn on_kill(&self, handle: &Arc<Handle>) {
        self.handles().push(handle.clone());
    }

    /// Lets the handles go.
    pub(super) fn forget_handles(&self) {
        self.handles().clear();
    }

    fn handles(&self) -> MutexGuard<'_, Vec<Arc<Handle>>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line to the log. `mark`: `<` from the hub, `>` to it, `.` an engine, `!` the world.
    pub(super) fn log(&self, mark: &str, what: &str) {
        let at = self.began.elapsed().as_micros();
        let mut shared = self.lock();
        for byte in at.to_le_bytes().iter().chain(mark.as_bytes()).chain(what.as_bytes()) {
            shared.hash = (shared.hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        shared.n_lines += 1;
        if !shared.keeps_all && shared.lines.len() == KEPT_LINES {
            shared.lines.pop_front();
        }
        let end = (0..=LINE_BYTES.min(what.len())).rev().find(|end| what.is_char_boundary(*end)).unwrap_or(0);
        let more = if end < what.len() { " ..." } else { "" };
        let line = format!("{:>10.3} {mark} {}{more}", at as f64 / 1e6, &what[..end]);
        shared.lines.push_back(line);
    }

    /// An invariant does not hold.
    pub(super) fn violated(&self, what: String) {
        self.log("!", &what);
        self.lock().violations.push(what);
    }

    /// A request that a port serves from now on, until the guard is dropped.
    pub(super) fn serve(self: &Arc<Self>, port: Port) -> Live {
        self.live[port as usize].fetch_add(1, Ordering::Relaxed);
        Live { probe: self.clone(), port }
    }

    /// Requests that are served now.
    pub(super) fn n_live(&self) -> Vec<(Port, usize)> {
        let live = Port::ALL.map(|port| (port, self.live[port as usize].load(Ordering::Relaxed)));
        live.into_iter().filter(|(_, n)| *n > 0).collect()
    }

    pub(super) fn spoke(&self, us: u64) {
        self.spoken_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Sound that voices have made so far, in milliseconds, rounded up.
    pub(super) fn spoken_ms(&self) -> u64 {
        self.spoken_us.load(Ordering::Relaxed).div_ceil(1_000)
    }

    /// What the log holds, its hash and the violations.
    pub(super) fn end(&self) -> (Vec<String>, u64, Vec<String>) {
        let mut shared = self.lock();
        let hash = shared.hash ^ shared.n_lines;
        (shared.lines.drain(..).collect(), hash, std::mem::take(&mut shared.violations))
    }

    fn lock(&self) -> MutexGuard<'_, ProbeState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is served. Dropping it ends the request.
pub(super) struct Live {
    probe: Arc<Probe>,
    port: Port,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.probe.live[self.port as usize].fetch_sub(1, Ordering::Relaxed);
    }
}
