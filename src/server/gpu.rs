//! The graphics cards' load, from NVIDIA's management library where it is installed.
//!
//! The library is looked for once, when somebody first asks. A query may take milliseconds, so it runs on a thread for
//! such work and at most once a second; between two, the last answer stands.

use nvml_wrapper::Nvml;
use serde::Serialize;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// How long an answer stands.
const STANDS: Duration = Duration::from_millis(900);

/// One card now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Gpu {
    name: String,
    /// Per cent of the time in which something ran on it.
    utilization: Option<u32>,
    memory_bytes: u64,
    memory_total_bytes: u64,
}

/// The cards. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Gpus(Arc<Shared>);

#[derive(Default)]
struct Shared {
    nvml: OnceLock<Option<Nvml>>,
    last: Mutex<Option<(Instant, Vec<Gpu>)>>,
}

impl Gpus {
    /// All cards, or `None` where there is no library or no card.
    pub(super) async fn read(&self) -> Option<Vec<Gpu>> {
        if let Some((at, cards)) = self.0.last.lock().expect("no panic while locked").as_ref()
            && at.elapsed() < STANDS
        {
            return Some(cards.clone());
        }
        let known_absent = matches!(self.0.nvml.get(), Some(None));
        if known_absent {
            return None;
        }
        let shared = self.0.clone();
        tokio::task::spawn_blocking(move || shared.ask()).await.ok().flatten()
    }
}

impl Shared {
    fn ask(&self) -> Option<Vec<Gpu>> {
        let nvml = self.nvml.get_or_init(|| {
            Nvml::init().inspect_err(|error| tracing::debug!(%error, "no NVIDIA management library")).ok()
        });
        let nvml = nvml.as_ref()?;
        let cards: Vec<Gpu> = (0..nvml.device_count().ok()?).filter_map(|n| card(nvml, n)).collect();
        if cards.is_empty() {
            return None;
        }
        *self.last.lock().expect("no panic while locked") = Some((Instant::now(), cards.clone()));
        Some(cards)
    }
}

/// `None`: the card does not even tell its memory.
fn card(nvml: &Nvml, n: u32) -> Option<Gpu> {
    let device = nvml.device_by_index(n).ok()?;
    let memory = device.memory_info().ok()?;
    Some(Gpu {
        name: device.name().unwrap_or_else(|_| format!("GPU {n}")),
        // Cards that are divided into instances tell none.
        utilization: device.utilization_rates().ok().map(|rates| rates.gpu),
        memory_bytes: memory.used,
        memory_total_bytes: memory.total,
    })
}
