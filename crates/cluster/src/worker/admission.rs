//! Whether a stage of a worker has room for one more request, and how long requests take there.

use crate::message::Stage;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use tokio::sync::watch;
use tokio::time::Instant;

/// The load of a stage.
pub(super) struct Admission {
    slots: usize,
    /// Requests that are accepted at once, those that wait for a slot included.
    limit: usize,
    in_flight: AtomicUsize,
    /// Accepted since the start.
    requests: AtomicU64,
    /// Moving average in milliseconds, as bits of an `f32`.
    service_ms: AtomicU32,
    rate_hz: AtomicU32,
    changed: Arc<watch::Sender<()>>,
}

impl Admission {
    pub(super) fn new(stage: Stage, slots: usize, changed: Arc<watch::Sender<()>>) -> Self {
        let slots = slots.max(1);
        let limit = match stage {
            // An utterance holds its decoder for as long as its speaker speaks: one round waits, as in the engine's own
            // queue.
            Stage::Stt => 2 * slots,
            // Chunks are short. The engine's queue, which knows how urgent each is, refuses before this bound of memory.
            Stage::Tts | Stage::Turn => 8 * slots + 32,
        };
        Self {
            slots,
            limit,
            in_flight: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            service_ms: AtomicU32::new(0),
            rate_hz: AtomicU32::new(0),
            changed,
        }
    }

    /// A place; `None` if there is none. The last quarter is for requests that are not `queued`.
    pub(super) fn admit(self: &Arc<Self>, queued: bool) -> Option<StageSlot> {
        let limit = if queued { self.limit - self.limit / 4 } else { self.limit };
        let admitted =
            self.in_flight.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < limit).then_some(n + 1)).ok()?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.changed.send_replace(());
        Some(StageSlot { admission: self.clone(), since: Instant::now(), waits: admitted >= self.slots })
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn service_ms(&self) -> f32 {
        f32::from_bits(self.service_ms.load(Ordering::Relaxed))
    }

    pub(super) fn rate_hz(&self) -> u32 {
        self.rate_hz.load(Ordering::Relaxed)
    }

    fn measure(&self, ms: f32) {
        let before = self.service_ms();
        let mean = if before == 0.0 { ms } else { 0.9 * before + 0.1 * ms };
        self.service_ms.store(mean.to_bits(), Ordering::Relaxed);
    }
}

/// A place in a stage. Dropping it gives the place back.
pub(super) struct StageSlot {
    admission: Arc<Admission>,
    since: Instant,
    /// All slots were in use: the time it takes contains a wait.
    waits: bool,
}

impl StageSlot {
    /// Requests under way in the stage.
    pub(super) fn in_flight(&self) -> usize {
        self.admission.in_flight()
    }

    /// The rate of the audio that the engine made.
    pub(super) fn made(&self, rate_hz: u32) {
        self.admission.rate_hz.store(rate_hz, Ordering::Relaxed);
    }
}

impl Drop for StageSlot {
    fn drop(&mut self) {
        if !self.waits {
            self.admission.measure(self.since.elapsed().as_secs_f32() * 1_000.0);
        }
        self.admission.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.admission.changed.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn places_are_bounded_and_come_back() {
        let admission = Arc::new(Admission::new(Stage::Stt, 2, Arc::default()));
        let mut admitted: Vec<_> = (0..4).map(|_| admission.admit(false).expect("room")).collect();
        assert!(admission.admit(false).is_none());
        assert_eq!(admission.in_flight(), 4);
        admitted.pop();
        assert!(admission.admit(true).is_none(), "the last quarter");
        assert!(admission.admit(false).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_service_time_has_no_wait_in_it() {
        let admission = Arc::new(Admission::new(Stage::Stt, 1, Arc::default()));
        let first = admission.admit(false).unwrap();
        let second = admission.admit(false).unwrap();
        tokio::time::advance(Duration::from_millis(100)).await;
        drop(first);
        tokio::time::advance(Duration::from_millis(100)).await;
        drop(second);
        assert!((admission.service_ms() - 100.0).abs() < 1.0, "{}", admission.service_ms());
    }
}
