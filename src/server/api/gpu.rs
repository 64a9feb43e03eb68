//! GPU load, for the dashboard and the metrics of hubs and workers.
//!
//! The driver's library is loaded on the first query and kept. A query may take milliseconds, so it runs on a blocking
//! thread, at most once per second; in between, the last result is returned. A driver that hangs blocks one such thread
//! and no caller.

use antiphon_telemetry::gpu::{Card, Cards};
use antiphon_telemetry::{Exposition, Family};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Maximum age of a result before a new query starts.
const STANDS: Duration = Duration::from_millis(900);
/// Maximum age of a result while a query is in progress.
const STANDS_MEANWHILE: Duration = Duration::from_secs(5);
/// Timeout of a caller that started a query.
const SOON: Duration = Duration::from_secs(1);

/// The GPUs of this machine. Cheap to clone.
#[derive(Clone)]
pub(in crate::server) struct Gpus(Arc<GpuQueries>);

struct GpuQueries {
    /// Blocks; `None` without a driver library.
    query: Box<dyn Fn() -> Option<Vec<Card>> + Send + Sync>,
    is_absent: AtomicBool,
    is_asking: AtomicBool,
    last: Mutex<Option<(Instant, Vec<Card>)>>,
}

impl Default for Gpus {
    fn default() -> Self {
        let cards: OnceLock<Option<Cards>> = OnceLock::new();
        Self::of(move || Some(cards.get_or_init(Cards::open).as_ref()?.read()))
    }
}

impl Gpus {
    /// The GPUs that `query` reports; it may block.
    pub(in crate::server) fn of(query: impl Fn() -> Option<Vec<Card>> + Send + Sync + 'static) -> Self {
        let (is_absent, is_asking, last) = Default::default();
        Self(Arc::new(GpuQueries { query: Box::new(query), is_absent, is_asking, last }))
    }

    /// All GPUs; `None` without a driver library or a GPU, or if the query takes longer than [`SOON`].
    pub(in crate::server) async fn read(&self) -> Option<Vec<Card>> {
        let shared = &self.0;
        if let Some(cards) = shared.last(STANDS) {
            return Some(cards);
        }
        if shared.is_absent.load(Ordering::Relaxed) {
            return None;
        }
        if shared.is_asking.swap(true, Ordering::AcqRel) {
            return shared.last(STANDS_MEANWHILE);
        }
        let asking = QueryGuard(shared.clone());
        let asked = tokio::task::spawn_blocking(move || asking.0.ask());
        timeout(SOON, asked).await.ok()?.ok().flatten()
    }
}

static MEMORY: Family = Family::gauge("voice_gpu_memory_bytes", "Memory in use on a graphics card.").by(&["gpu"]);
static MEMORY_TOTAL: Family = Family::gauge("voice_gpu_memory_total_bytes", "Memory of a graphics card.").by(&["gpu"]);
static UTILIZATION: Family = Family::gauge("voice_gpu_utilization_ratio", "GPU utilization, 0 to 1.").by(&["gpu"]);

/// The memory of each GPU, and its utilization where the driver reports one, in Prometheus' text format. Without GPUs it is empty.
pub(in crate::server) fn metrics(cards: &[Card]) -> String {
    let mut text = Exposition::default();
    let numbers: Vec<String> = cards.iter().map(|card| card.number.to_string()).collect();
    let numbered = || numbers.iter().map(|n| [n.as_str()]).zip(cards);
    if !cards.is_empty() {
        text.values(&MEMORY, numbered().map(|(n, card)| (n, card.memory_bytes)));
        text.values(&MEMORY_TOTAL, numbered().map(|(n, card)| (n, card.memory_total_bytes)));
    }
    let ratio = |percent: u32| f64::from(percent) / 100.0;
    let ratios: Vec<_> = numbered().filter_map(|(n, card)| Some((n, ratio(card.utilization?)))).collect();
    if !ratios.is_empty() {
        text.values(&UTILIZATION, ratios);
    }
    text.into_text()
}

/// A query in progress; dropping it permits the next one.
struct QueryGuard(Arc<GpuQueries>);

impl Drop for QueryGuard {
    fn drop(&mut self) {
        self.0.is_asking.store(false, Ordering::Release);
    }
}

impl GpuQueries {
    fn last(&self, stands: Duration) -> Option<Vec<Card>> {
        let last = self.last.lock().expect("no panic while locked");
        last.as_ref().filter(|(at, _)| at.elapsed() < stands).map(|(_, cards)| cards.clone())
    }

    fn ask(&self) -> Option<Vec<Card>> {
        let Some(cards) = (self.query)() else {
            self.is_absent.store(true, Ordering::Relaxed);
            return None;
        };
        if cards.is_empty() {
            return None;
        }
        *self.last.lock().expect("no panic while locked") = Some((Instant::now(), cards.clone()));
        Some(cards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::poll;
    use std::pin::pin;
    use std::sync::mpsc::channel;
    use std::task::Poll;

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_hangs_holds_up_nobody_and_takes_one_thread() {
        let (go, wait) = channel();
        let wait = Mutex::new(wait);
        let asked = Arc::new(Mutex::new(0));
        let n_asked = asked.clone();
        let gpus = Gpus::of(move || {
            *n_asked.lock().expect("no panic") += 1;
            wait.lock().expect("no panic").recv().ok()
        });
        let mut reading = pin!(gpus.read());
        assert!(poll!(&mut reading).is_pending());
        tokio::time::advance(2 * SOON).await;
        assert_eq!(poll!(reading), Poll::Ready(None));
        assert_eq!(poll!(pin!(gpus.read())), Poll::Ready(None), "it is being asked");
        let card = Card {
            number: 0,
            name: "one".into(),
            utilization: None,
            memory_bytes: 1,
            memory_total_bytes: 2,
            power_mw: None,
            sm_clock_mhz: None,
        };
        go.send(vec![card.clone()]).expect("it waits");
        while gpus.0.is_asking.load(Ordering::Acquire) {
            tokio::task::yield_now().await;
        }
        assert_eq!((gpus.read().await, *asked.lock().expect("no panic")), (Some(vec![card]), 1));
    }
}
