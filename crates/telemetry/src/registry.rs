//! What is recorded of each metric: its series by their labels. Recording in a series that is at hand takes no lock; finding one
//! by its labels takes one for the time of a look-up.

use super::family::Kind;
use super::{Exposition, Family};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// See the module.
pub(super) struct Registry(Vec<Recorded>);

struct Recorded {
    family: &'static Family,
    series: Mutex<BTreeMap<Vec<&'static str>, Series>>,
}

/// One series of a metric. Cheap to clone; clones record the same.
#[derive(Clone)]
pub(super) struct Series(Arc<Numbers>);

struct Numbers {
    bounds: &'static [f64],
    /// A counter's or gauge's value; how many durations a histogram has.
    value: AtomicU64,
    /// Durations within each bound and beyond the one before it.
    buckets: Vec<AtomicU64>,
    /// All durations together, in nanoseconds.
    sum_ns: AtomicU64,
}

impl Registry {
    /// Of these metrics, which are exported in this order once they have a series.
    pub(super) fn new(families: &[&'static Family]) -> Self {
        Self(families.iter().map(|family| Recorded { family, series: Mutex::default() }).collect())
    }

    /// The series with these values of the labels, which begins at zero.
    pub(super) fn series(&self, family: &'static Family, labels: &[&'static str]) -> Series {
        self.recorded(family).lock().entry(labels.to_vec()).or_insert_with(|| Series::new(family)).clone()
    }

    /// The values of all series of a metric together.
    pub(super) fn total(&self, family: &'static Family) -> u64 {
        self.recorded(family).lock().values().map(Series::value).sum()
    }

    /// All metrics in Prometheus' text format.
    pub(super) fn render(&self) -> String {
        let mut text = Exposition::default();
        for recorded in &self.0 {
            let series = recorded.lock();
            if series.is_empty() {
                continue;
            }
            text.head(recorded.family);
            for (labels, series) in series.iter() {
                series.write(&mut text, recorded.family, labels);
            }
        }
        text.into_text()
    }

    fn recorded(&self, family: &Family) -> &Recorded {
        self.0.iter().find(|recorded| recorded.family.name == family.name).expect("every metric is in the list")
    }
}

impl Recorded {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Vec<&'static str>, Series>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Series {
    fn new(family: &Family) -> Self {
        let bounds: &[f64] = match family.kind {
            Kind::Counter | Kind::Gauge => &[],
            Kind::Histogram(bounds) => bounds,
        };
        let buckets = bounds.iter().map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Numbers { bounds, value: AtomicU64::new(0), buckets, sum_ns: AtomicU64::new(0) }))
    }

    pub(super) fn add(&self, n: u64) {
        self.0.value.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, n: u64) {
        self.0.value.fetch_sub(n, Ordering::Relaxed);
    }

    pub(super) fn set(&self, n: u64) {
        self.0.value.store(n, Ordering::Relaxed);
    }

    pub(super) fn value(&self) -> u64 {
        self.0.value.load(Ordering::Relaxed)
    }

    /// Counts a duration in a histogram.
    pub(super) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some(at) = self.0.bounds.iter().position(|bound| seconds <= *bound) {
            self.0.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        self.0.sum_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.add(1);
    }

    fn write(&self, text: &mut Exposition, family: &Family, labels: &[&'static str]) {
        let value = self.value();
        if !matches!(family.kind, Kind::Histogram(_)) {
            text.line(family, "", labels, None, value);
            return;
        }
        let mut n_within = 0;
        for (bound, bucket) in self.0.bounds.iter().zip(&self.0.buckets) {
            n_within += bucket.load(Ordering::Relaxed);
            text.line(family, "_bucket", labels, Some(&bound.to_string()), n_within);
        }
        text.line(family, "_bucket", labels, Some("+Inf"), value);
        text.line(
            family,
            "_sum",
            labels,
            None,
            Duration::from_nanos(self.0.sum_ns.load(Ordering::Relaxed)).as_secs_f64(),
        );
        text.line(family, "_count", labels, None, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TOOK: Family = Family::histogram("took_seconds", "How long it took.", &[0.1, 1.0]).by(&["of"]);
    static DONE: Family = Family::counter("done_total", "What was done.");

    #[test]
    fn a_histogram_counts_within_its_bounds() {
        let registry = Registry::new(&[&DONE, &TOOK]);
        let series = registry.series(&TOOK, &["a"]);
        for ms in [100, 250, 2_000] {
            series.observe(Duration::from_millis(ms));
        }
        let expect = "# HELP took_seconds How long it took.\n# TYPE took_seconds histogram\n\
                      took_seconds_bucket{of=\"a\",le=\"0.1\"} 1\ntook_seconds_bucket{of=\"a\",le=\"1\"} 2\n\
                      took_seconds_bucket{of=\"a\",le=\"+Inf\"} 3\ntook_seconds_sum{of=\"a\"} 2.35\n\
                      took_seconds_count{of=\"a\"} 3\n";
        assert_eq!(registry.render(), expect, "what has no series is not exported");
        registry.series(&DONE, &[]).add(2);
        registry.series(&DONE, &[]).add(1);
        assert_eq!(registry.total(&DONE), 3);
        assert!(registry.render().contains("\ndone_total 3\n"));
    }
}
