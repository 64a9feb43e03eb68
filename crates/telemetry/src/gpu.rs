//! The graphics cards' load, from NVIDIA's management library where it is installed.
//!
//! The server shows it, benchmarks record it. A query may take milliseconds: callers on a runtime ask beside it.

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::Clock;
use serde::Serialize;

/// One card now. What a card does not tell is `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Card {
    /// As the driver calls it.
    pub name: String,
    /// Per cent of the time in which something ran on it; cards that are divided into instances tell none.
    pub utilization: Option<u32>,
    /// Memory in use.
    pub memory_bytes: u64,
    /// All of its memory.
    pub memory_total_bytes: u64,
    /// What it draws, in milliwatts.
    pub power_mw: Option<u32>,
    /// The clock of its processors, in MHz.
    pub sm_clock_mhz: Option<u32>,
}

/// The cards of this machine.
pub struct Cards(Nvml);

impl Cards {
    /// `None` where there is no library. Blocks while it is loaded.
    pub fn open() -> Option<Self> {
        Nvml::init().inspect_err(|error| tracing::debug!(%error, "no NVIDIA management library")).ok().map(Self)
    }

    /// All cards that tell their memory at least.
    pub fn read(&self) -> Vec<Card> {
        (0..self.0.device_count().unwrap_or(0)).filter_map(|n| self.card(n)).collect()
    }

    fn card(&self, n: u32) -> Option<Card> {
        let device = self.0.device_by_index(n).ok()?;
        let memory = device.memory_info().ok()?;
        Some(Card {
            name: device.name().unwrap_or_else(|_| format!("GPU {n}")),
            utilization: device.utilization_rates().ok().map(|rates| rates.gpu),
            memory_bytes: memory.used,
            memory_total_bytes: memory.total,
            power_mw: device.power_usage().ok(),
            sm_clock_mhz: device.clock_info(Clock::SM).ok(),
        })
    }
}
