//! Prometheus' text format: of what is recorded here, and of values that are counted elsewhere and read on request.

use super::Family;
use std::fmt::{Display, Write};

/// A text in Prometheus' format, metric by metric.
#[derive(Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    /// A metric without labels.
    pub fn value(&mut self, family: &Family, value: impl Display) {
        self.values(family, [([], value)]);
    }

    /// A metric with a value for each combination of its labels' values, which stand in the order of [`Family::labels`]. They are
    /// words of the program, which need no escape.
    pub fn values<'a, const N: usize, V: Display>(
        &mut self,
        family: &Family,
        values: impl IntoIterator<Item = ([&'a str; N], V)>,
    ) {
        self.head(family);
        for (labels, value) in values {
            self.line(family, "", &labels, None, value);
        }
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.0
    }

    pub(super) fn head(&mut self, family: &Family) {
        let Family { name, help, kind, .. } = family;
        // Writing to a string never fails.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
    }

    /// A line of a series. `suffix` and `bound` are those of a histogram's lines.
    pub(super) fn line(
        &mut self,
        family: &Family,
        suffix: &str,
        labels: &[&str],
        bound: Option<&str>,
        value: impl Display,
    ) {
        debug_assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
        let pairs = family.labels.iter().zip(labels).map(|(label, of)| format!("{label}=\"{of}\""));
        let pairs: Vec<_> = pairs.chain(bound.map(|bound| format!("le=\"{bound}\""))).collect();
        let name = family.name;
        let _ = match pairs.is_empty() {
            true => writeln!(self.0, "{name}{suffix} {value}"),
            false => writeln!(self.0, "{name}{suffix}{{{}}} {value}", pairs.join(",")),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_its_head_once() {
        let mut text = Exposition::default();
        text.value(&Family::gauge("a", "What a is."), 3);
        text.values(&Family::counter("b_total", "What b is.").by(&["of"]), [(["x"], 1), (["y"], 2)]);
        text.values(&Family::gauge("c", "What c is.").by(&["of", "in"]), [(["x", "z"], 0.5)]);
        let expect = "# HELP a What a is.\n# TYPE a gauge\na 3\n# HELP b_total What b is.\n# TYPE b_total counter\n\
                      b_total{of=\"x\"} 1\nb_total{of=\"y\"} 2\n# HELP c What c is.\n# TYPE c gauge\nc{of=\"x\",in=\"z\"} 0.5\n";
        assert_eq!(text.into_text(), expect);
    }
}
