//! The load of graphics cards, from NVIDIA's management library (NVML) if it is installed.
//!
//! The server displays it and benchmarks record it. A query may block for milliseconds: on an async runtime, run it on
//! a blocking thread.

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::Clock;
use serde::Serialize;

/// The state of one card. Values that the card does not report are `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Card {
    /// Number from the driver, from 0 on: the numbers of the others stay where a card reports nothing.
    #[serde(skip)]
    pub number: u32,
    /// Name from the driver.
    pub name: String,
    /// Utilization in per cent of time; not reported by cards that are partitioned into instances (MIG).
    pub utilization: Option<u32>,
    /// Memory in use, in bytes.
    pub memory_bytes: u64,
    /// Total memory, in bytes.
    pub memory_total_bytes: u64,
    /// Power draw, in milliwatts.
    pub power_mw: Option<u32>,
    /// Clock of the streaming multiprocessors, in MHz.
    pub sm_clock_mhz: Option<u32>,
}

/// The cards of this machine.
pub struct Cards(Nvml);

impl Cards {
    /// Loads the library; `None` if there is none. Blocks while loading.
    pub fn open() -> Option<Self> {
        Nvml::init().inspect_err(|error| tracing::debug!(%error, "no NVIDIA management library")).ok().map(Self)
    }

    /// The state of all cards that report their memory.
    pub fn read(&self) -> Vec<Card> {
        (0..self.0.device_count().unwrap_or(0)).filter_map(|n| self.card(n)).collect()
    }

    fn card(&self, n: u32) -> Option<Card> {
        let device = self.0.device_by_index(n).ok()?;
        let memory = device.memory_info().ok()?;
        Some(Card {
            number: n,
            name: device.name().unwrap_or_else(|_| format!("GPU {n}")),
            utilization: device.utilization_rates().ok().map(|rates| rates.gpu),
            memory_bytes: memory.used,
            memory_total_bytes: memory.total,
            power_mw: device.power_usage().ok(),
            sm_clock_mhz: device.clock_info(Clock::SM).ok(),
        })
    }
}
