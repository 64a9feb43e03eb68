//! Prometheus' text format for values that are counted elsewhere and read on request.

use std::fmt::{Display, Write};

/// A text in Prometheus' format, metric by metric.
#[derive(Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    /// A gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family("gauge", name, help, "", &[("", value)]);
    }

    /// A gauge with a value for each value of `label`.
    pub fn gauges(&mut self, name: &str, help: &str, label: &str, values: &[(&str, impl Display)]) {
        self.family("gauge", name, help, label, values);
    }

    /// A gauge with a value for each combination of labels. Their values need no escape.
    pub fn labelled_gauges(&mut self, name: &str, help: &str, values: &[(Vec<(&str, &str)>, impl Display)]) {
        self.labelled("gauge", name, help, values);
    }

    /// A counter with several labels. The values of labels as above.
    pub fn labelled_counters(&mut self, name: &str, help: &str, values: &[(Vec<(&str, &str)>, u64)]) {
        self.labelled("counter", name, help, values);
    }

    fn labelled(&mut self, kind: &str, name: &str, help: &str, values: &[(Vec<(&str, &str)>, impl Display)]) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let labels: Vec<_> = labels.iter().map(|(label, of)| format!("{label}=\"{of}\"")).collect();
            let _ = writeln!(self.0, "{name}{{{}}} {value}", labels.join(","));
        }
    }

    /// A counter with a value for each value of `label`; without labels where that is empty. The values of labels are words
    /// of the program, which need no escape.
    pub fn counter(&mut self, name: &str, help: &str, label: &str, values: &[(&str, impl Display)]) {
        self.family("counter", name, help, label, values);
    }

    /// A counter of seconds without labels.
    pub fn seconds(&mut self, name: &str, help: &str, value: f64) {
        self.family("counter", name, help, "", &[("", value)]);
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.0
    }

    fn family(&mut self, kind: &str, name: &str, help: &str, label: &str, values: &[(&str, impl Display)]) {
        // Writing to a string never fails.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (of, value) in values {
            let _ = match label {
                "" => writeln!(self.0, "{name} {value}"),
                label => writeln!(self.0, "{name}{{{label}=\"{of}\"}} {value}"),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_its_head_once() {
        let mut text = Exposition::default();
        text.gauge("a", "What a is.", 3);
        text.counter("b_total", "What b is.", "of", &[("x", 1), ("y", 2)]);
        let expect = "# HELP a What a is.\n# TYPE a gauge\na 3\n# HELP b_total What b is.\n# TYPE b_total counter\n\
                      b_total{of=\"x\"} 1\nb_total{of=\"y\"} 2\n";
        assert_eq!(text.into_text(), expect);
    }
}
