//! What a metric is: its name, kind, help and labels. Each metric of the program is one constant of this type.

/// A metric.
#[derive(Debug)]
pub struct Family {
    /// Its name in Prometheus; a counter's ends in `_total`, and a unit stands before that.
    pub name: &'static str,
    /// What it counts, in a sentence.
    pub help: &'static str,
    /// The labels that distinguish its series.
    pub labels: &'static [&'static str],
    pub(crate) kind: Kind,
}

/// What is done with its values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    /// The upper bounds of the buckets, in seconds, in order.
    Histogram(&'static [f64]),
}

impl Family {
    /// A value that only grows.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, labels: &[], kind: Kind::Counter }
    }

    /// A value that is set.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, labels: &[], kind: Kind::Gauge }
    }

    /// Durations, counted in buckets with these upper bounds, in seconds and in order.
    pub const fn histogram(name: &'static str, help: &'static str, bounds: &'static [f64]) -> Self {
        Self { name, help, labels: &[], kind: Kind::Histogram(bounds) }
    }

    /// The same with a series for each combination of values of these labels.
    pub const fn by(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}
