//! CPU time used by other programs during a measurement.
//!
//! It reads `/proc/stat` for the machine and `/proc/self/stat` for the clients; the caller passes the hub's own time. A
//! figure measured while other programs compute says little about the hub.

use std::fs::read_to_string;

/// CPU time of the machine and of this process at one moment, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Machine {
    total: u64,
    idle: u64,
    own: u64,
}

impl Machine {
    /// The current state; `None` if the system does not report it.
    pub(super) fn now() -> Option<Self> {
        let (total, idle) = processors(&read_to_string("/proc/stat").ok()?)?;
        let own = super::process::cpu_ticks(&read_to_string("/proc/self/stat").ok()?)?;
        Some(Self { total, idle, own })
    }

    /// The fraction of all CPU time, 0 to 1, that was neither idle nor used by this process or by hubs that used
    /// `hubs_s` seconds.
    pub(super) fn others_since(&self, before: &Self, hubs_s: f64) -> f64 {
        let total = self.total.saturating_sub(before.total) as f64;
        let idle = self.idle.saturating_sub(before.idle) as f64;
        let own = self.own.saturating_sub(before.own) as f64 + hubs_s * super::process::TICKS_PER_SECOND;
        if total <= 0.0 { 0.0 } else { ((total - idle - own) / total).clamp(0.0, 1.0) }
    }
}

/// Total ticks of all processors, and ticks idle or waiting for a disk. The last two of the ten fields on the first
/// line (guests) are included in the first two.
fn processors(stat: &str) -> Option<(u64, u64)> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = fields.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
    (ticks.len() == 8).then(|| (ticks.iter().sum(), ticks[3] + ticks[4]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_idle_nor_ours_belongs_to_others() {
        let at = |total, idle, own| Machine { total, idle, own };
        // Of 1000 ticks: 400 idle, 100 ours, 200 (2 s) of a hub, 300 others.
        let others = at(2000, 900, 150).others_since(&at(1000, 500, 50), 2.0);
        assert!((others - 0.3).abs() < 1e-9, "{others}");
        assert_eq!(at(10, 10, 0).others_since(&at(10, 10, 0), 1.0), 0.0);
    }

    #[test]
    fn the_first_line_is_the_whole_machine() {
        assert_eq!(processors("cpu  10 1 5 80 4 0 2 3 99 99\ncpu0 1 1"), Some((105, 84)));
        assert_eq!(processors("intr 1 2"), None);
    }
}
