//! What a request cost, for which client, and whether another engine than the configured one served it.
//!
//! `session` puts a meter into each request and reads it for the turn's record; engines and engine pools add to it, from any
//! thread. It never decides anything: a request whose meter stays empty is complete.

use crate::KeyId;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A cell in a request. Clones share it. Any two are equal: two requests for the same thing are the same, whatever they cost.
#[derive(Clone, Debug, Default)]
pub struct Meter(Option<Arc<Cell>>);

#[derive(Debug, Default)]
struct Cell {
    cpu_us: AtomicU64,
    gpu_us: AtomicU64,
    fallback: OnceLock<Arc<str>>,
    requester: Option<Requester>,
}

/// The client of a request, which distinguishes its failures from those of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Requester {
    id: u64,
    /// Equal for requesters that may be one client.
    client: u64,
}

impl From<KeyId> for Requester {
    fn from(key: KeyId) -> Self {
        Self::of(&key.to_string())
    }
}

impl Requester {
    /// The one with this identity: an API key's, a session's, an address. The same identity is the same requester in one process.
    pub fn of(identity: &impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        identity.hash(&mut hasher);
        let id = hasher.finish();
        Self { id, client: id }
    }

    /// This requester as one of those that `client` may be.
    pub fn within(self, client: Self) -> Self {
        Self { client: client.client, ..self }
    }

    /// Whether both may be one client.
    pub fn is_client_of(self, other: Self) -> bool {
        self.client == other.client
    }
}

/// Where a run computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processor {
    /// On the processor.
    #[default]
    Cpu,
    /// On a GPU.
    Gpu,
}

/// What a run of an engine keeps busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunsOn {
    /// Where it computes.
    pub processor: Processor,
    /// Threads that it may use of the processor; 1 on a GPU.
    pub n_threads: u32,
}

impl RunsOn {
    /// A GPU.
    pub const GPU: Self = Self { processor: Processor::Gpu, n_threads: 1 };

    /// This number of threads of the processor.
    pub fn threads(n: usize) -> Self {
        Self { processor: Processor::Cpu, n_threads: u32::try_from(n.max(1)).unwrap_or(u32::MAX) }
    }
}

impl Default for RunsOn {
    /// The thread that calls it.
    fn default() -> Self {
        Self::threads(1)
    }
}

/// Compute of this machine. Of an engine on another machine nothing is known: it stays zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compute {
    /// Busy time of engines on the processor. An engine that runs on several threads counts the time of each, busy or not: an
    /// upper bound.
    pub cpu: Duration,
    /// Time of the runs on GPUs.
    pub gpu: Duration,
}

impl Meter {
    /// A meter that is read later. [`Meter::default`] is none: it allocates nothing and stays empty.
    pub fn requested() -> Self {
        Self(Some(Arc::default()))
    }

    /// As [`Meter::requested`], of this client's request.
    pub fn requested_by(requester: Requester) -> Self {
        Self(Some(Arc::new(Cell { requester: Some(requester), ..Cell::default() })))
    }

    /// Whose request it is; `None`: not known.
    pub fn requester(&self) -> Option<Requester> {
        self.0.as_ref()?.requester
    }

    /// Adds the duration of an engine's run, or the share of this request in it. Does not block.
    pub fn add(&self, on: RunsOn, took: Duration) {
        let Some(cell) = &self.0 else { return };
        let total = match on.processor {
            Processor::Cpu => &cell.cpu_us,
            Processor::Gpu => &cell.gpu_us,
        };
        total.fetch_add(took.saturating_mul(on.n_threads).as_micros() as u64, Ordering::Relaxed);
    }

    /// Divides the duration of a run among the requests that shared it.
    pub fn share(meters: &[Self], on: RunsOn, took: Duration) {
        let share = took / u32::try_from(meters.len().max(1)).unwrap_or(u32::MAX);
        meters.iter().for_each(|meter| meter.add(on, share));
    }

    /// The compute so far.
    pub fn compute(&self) -> Compute {
        let us = |total: &AtomicU64| Duration::from_micros(total.load(Ordering::Relaxed));
        self.0.as_ref().map_or_else(Compute::default, |cell| Compute { cpu: us(&cell.cpu_us), gpu: us(&cell.gpu_us) })
    }

    /// The stage's fallback engine serves this request. The first name counts.
    pub fn set_fallback(&self, engine: &str) {
        if let Some(cell) = &self.0 {
            cell.fallback.get_or_init(|| engine.into());
        }
    }

    /// Name of the fallback engine that served; `None`: the configured engine did.
    pub fn fallback(&self) -> Option<Arc<str>> {
        self.0.as_ref()?.fallback.get().cloned()
    }
}

impl PartialEq for Meter {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Meter {}

impl std::ops::Add for Compute {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, gpu: self.gpu + other.gpu }
    }
}

impl std::iter::Sum for Compute {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| sum + one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn clones_share_what_was_added() {
        let meter = Meter::requested();
        let request = meter.clone();
        request.add(RunsOn::threads(2), MS);
        Meter::share(&[request.clone(), Meter::default()], RunsOn::default(), 6 * MS);
        request.add(RunsOn::GPU, MS);
        request.set_fallback("second");
        request.set_fallback("third");
        assert_eq!(meter.compute(), Compute { cpu: 5 * MS, gpu: MS });
        assert_eq!(meter.fallback().as_deref(), Some("second"));
        assert!(meter == Meter::default());
    }

    #[test]
    fn a_meter_that_is_not_read_stays_empty() {
        let meter = Meter::default();
        meter.add(RunsOn::GPU, MS);
        meter.set_fallback("second");
        assert_eq!((meter.compute(), meter.fallback()), (Compute::default(), None));
    }
}
