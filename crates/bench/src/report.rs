//! The report: measured figures, as a table and as JSON.

use super::{BenchError, Progress, Waits};
use antiphon_telemetry::with_causes;
use serde_json::{Value, json};
use std::fmt::Write;

/// CPU share of other programs from which a section is reported as disturbed.
const DISTURBED: f64 = 0.1;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds.
    Ms,
    /// KiB.
    KiB,
    /// Per cent of one core.
    PercentOfCore,
    /// A ratio.
    Times,
    /// A rate per second.
    PerSecond,
    /// A number of turns, frames or other objects.
    Count,
    /// Any other unit, by its name.
    Of(&'static str),
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Ms => "ms",
            Self::KiB => "KiB",
            Self::PercentOfCore => "% of a core",
            Self::Times => "x",
            Self::PerSecond => "/s",
            Self::Count => "",
            Self::Of(name) => name,
        }
    }

    fn show(self, value: f64) -> String {
        if value.is_infinite() {
            return "never".into();
        }
        let number = match self {
            Self::Count => format!("{value:.0}"),
            Self::Ms if value.abs() >= 100.0 => format!("{value:.0}"),
            Self::KiB => format!("{value:.0}"),
            Self::PercentOfCore | Self::Times | Self::PerSecond => format!("{value:.2}"),
            Self::Of(_) if value.abs() >= 100.0 => format!("{value:.0}"),
            Self::Of(_) => format!("{value:.2}"),
            Self::Ms => format!("{value:.1}"),
        };
        format!("{number} {}", self.name()).trim_end().to_owned()
    }
}

/// The bound that a figure must meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    /// At most this value.
    AtMost(f64),
    /// At least this value.
    AtLeast(f64),
}

/// One measured figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name, unique within its section.
    pub name: String,
    /// Unit of the value.
    pub unit: Unit,
    /// The measured value; infinite for a wait that never ended.
    pub value: f64,
    /// The bound, if any.
    pub gate: Option<Gate>,
    /// Number of samples.
    pub n: usize,
}

impl Figure {
    /// A figure without a gate.
    pub fn new(name: impl Into<String>, unit: Unit, value: f64, n: usize) -> Self {
        Self { name: name.into(), unit, value, gate: None, n }
    }

    /// The figure with an upper bound.
    pub fn at_most(self, bound: f64) -> Self {
        Self { gate: Some(Gate::AtMost(bound)), ..self }
    }

    /// The figure with a lower bound.
    pub fn at_least(self, bound: f64) -> Self {
        Self { gate: Some(Gate::AtLeast(bound)), ..self }
    }

    /// Whether the value meets the bound; `None` without one.
    pub fn passes(&self) -> Option<bool> {
        self.gate.map(|gate| match gate {
            Gate::AtMost(bound) => self.value <= bound,
            Gate::AtLeast(bound) => self.value >= bound,
        })
    }

    /// The value with its unit, for display.
    pub fn shown(&self) -> String {
        self.unit.show(self.value)
    }

    /// The bound, for display; empty without one.
    pub fn gate_shown(&self) -> String {
        match self.gate {
            Some(Gate::AtMost(bound)) => format!("<= {}", self.unit.show(bound)),
            Some(Gate::AtLeast(bound)) => format!(">= {}", self.unit.show(bound)),
            None => String::new(),
        }
    }
}

/// The figures of one measure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// The measure's name.
    pub name: String,
    /// The method in one line.
    pub how: String,
    /// The results.
    pub figures: Vec<Figure>,
    /// Additional remarks.
    pub notes: Vec<String>,
    /// Why there are no figures.
    pub failure: Option<String>,
    /// Fraction of all CPU time, 0 to 1, used by other programs during the measure.
    pub others: Option<f64>,
    /// Figures that [`Self::show_new`] has shown.
    n_shown: usize,
}

impl Section {
    /// A section without figures.
    pub(super) fn new(name: impl Into<String>, how: impl Into<String>) -> Self {
        Self { name: name.into(), how: how.into(), ..Self::default() }
    }

    /// Shows the figures that were added since the last call: a measure that takes minutes may be interrupted.
    pub(super) fn show_new(&mut self, progress: Progress<'_>) {
        for figure in &self.figures[self.n_shown..] {
            progress(&format!("{}: {}\n", figure.name, figure.shown()));
        }
        self.n_shown = self.figures.len();
    }

    /// A measure that failed.
    pub(super) fn failed(name: impl Into<String>, error: &BenchError) -> Self {
        Self { failure: Some(with_causes(error)), ..Self::new(name, "") }
    }

    /// Adds a percentile of `waits`, with an upper bound if given. Adds nothing if there are no waits.
    pub(super) fn percentile(&mut self, name: &str, waits: &Waits, percent: f64, bound: Option<f64>) {
        let Some(value) = waits.percentile(percent) else { return };
        let which = if percent >= 100.0 { "max".into() } else { format!("p{percent}") };
        let figure = Figure::new(format!("{name} {which}").trim().to_owned(), Unit::Ms, value, waits.len());
        self.figures.push(match bound {
            Some(bound) => figure.at_most(bound),
            None => figure,
        });
    }
}

/// The figures of all measures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Sections in the order in which they were measured.
    pub sections: Vec<Section>,
    /// Number of processors of the machine.
    pub n_processors: usize,
    /// Whether fewer turns were run than a result needs.
    pub quick: bool,
    /// Whether it is a debug build, whose figures are not representative.
    pub debug_build: bool,
}

impl Report {
    pub(super) fn new(quick: bool) -> Self {
        let n_processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { sections: Vec::new(), n_processors, quick, debug_build: cfg!(debug_assertions) }
    }

    /// A report with one section.
    pub fn of(section: Section) -> Self {
        Self { sections: vec![section], ..Self::new(false) }
    }

    /// Number of missed gates.
    pub fn n_missed(&self) -> usize {
        self.figures().filter(|figure| figure.passes() == Some(false)).count()
    }

    /// Number of measures that failed.
    pub fn n_failed(&self) -> usize {
        self.sections.iter().filter(|section| section.failure.is_some()).count()
    }

    fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.sections.iter().flat_map(|section| &section.figures)
    }

    /// The report as a table.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for section in &self.sections {
            let _ = writeln!(
                text,
                "{}{}",
                section.name,
                Some(&section.how).filter(|how| !how.is_empty()).map_or(String::new(), |how| format!(": {how}"))
            );
            for figure in &section.figures {
                let verdict = figure.passes().map_or("", |passes| if passes { "pass" } else { "MISS" });
                let gate = figure.gate_shown();
                let value = figure.shown();
                let line = format!("  {:<40} {value:>18}   {gate:<14} {verdict:<4}  n={}", figure.name, figure.n);
                let _ = writeln!(text, "{}", line.trim_end());
            }
            if let Some(why) = &section.failure {
                let _ = writeln!(text, "  NOT MEASURED: {why}");
            }
            for note in &section.notes {
                let _ = writeln!(text, "  {note}");
            }
            if let Some(others) = section.others.filter(|others| *others >= DISTURBED) {
                let _ = writeln!(
                    text,
                    "  disturbed: other programs used {:.0} % of the processors meanwhile",
                    others * 100.0
                );
            }
            text.push('\n');
        }
        text + &self.verdict()
    }

    fn verdict(&self) -> String {
        let gated = self.figures().filter(|figure| figure.gate.is_some()).count();
        let mut text = format!("{} of {gated} gates kept", gated - self.n_missed());
        if self.n_failed() > 0 {
            let _ = write!(text, ", {} of {} measures not taken", self.n_failed(), self.sections.len());
        }
        let _ = write!(text, "; {} processors", self.n_processors);
        if self.quick {
            text += "; --quick: too few turns for a result";
        }
        if self.debug_build {
            text += "; built without optimization: no result at all";
        }
        text
    }

    /// The report as JSON. A wait that never ended is `null`.
    pub fn json(&self) -> Value {
        let figure = |figure: &Figure| {
            let mut json = json!({
                "name": figure.name,
                "unit": figure.unit.name(),
                "value": Some((figure.value * 1e3).round() / 1e3).filter(|value| value.is_finite()),
                "at_most": null,
                "pass": figure.passes(),
                "n": figure.n,
            });
            match figure.gate {
                Some(Gate::AtMost(bound)) => json["at_most"] = bound.into(),
                Some(Gate::AtLeast(bound)) => json["at_least"] = bound.into(),
                None => {}
            }
            json
        };
        let section = |section: &Section| {
            json!({
                "name": section.name,
                "how": section.how,
                "figures": section.figures.iter().map(figure).collect::<Vec<_>>(),
                "notes": section.notes,
                "failure": section.failure,
                "others_cpu": section.others.map(|others| (others * 1e3).round() / 1e3),
            })
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "processors": self.n_processors,
            "quick": self.quick,
            "debug_build": self.debug_build,
            "missed": self.n_missed(),
            "failed": self.n_failed(),
            "sections": self.sections.iter().map(section).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut waits: Waits = [312.4, 90.04].into_iter().collect();
        waits.push_endless();
        let mut section = Section::new("voice-to-voice", "spoken");
        section.percentile("", &waits, 50.0, Some(450.0));
        section.percentile("", &waits, 95.0, Some(800.0));
        section.percentile("sent", &waits, 30.0, None);
        section.percentile("none", &Waits::default(), 50.0, Some(1.0));
        section.figures.push(Figure::new("frames after it", Unit::Count, 0.0, 9).at_most(0.0));
        section.others = Some(0.42);
        let failed =
            Section::failed("memory", &BenchError::Hub { what: "broke", source: Some(std::io::Error::other("why")) });
        let sections = vec![section, failed];
        Report { sections, n_processors: 2, quick: true, debug_build: false }
    }

    #[test]
    fn a_table_shows_gates_misses_and_what_was_not_measured() {
        let expect = "\
voice-to-voice: spoken
  p50                                                  312 ms   <= 450 ms      pass  n=3
  p95                                                   never   <= 800 ms      MISS  n=3
  sent p30                                            90.0 ms                        n=3
  frames after it                                           0   <= 0           pass  n=9
  disturbed: other programs used 42 % of the processors meanwhile

memory
  NOT MEASURED: the hub under measurement broke: why

2 of 3 gates kept, 1 of 2 measures not taken; 2 processors; --quick: too few turns for a result";
        assert_eq!(report().table(), expect);
        assert_eq!((report().n_missed(), report().n_failed()), (1, 1));
    }

    #[test]
    fn programs_get_the_same_and_null_for_what_never_ended() {
        let json = report().json();
        let figures = &json["sections"][0]["figures"];
        assert_eq!(
            figures[0],
            json!({"name": "p50", "unit": "ms", "value": 312.4, "at_most": 450.0, "pass": true, "n": 3})
        );
        assert_eq!((&figures[1]["value"], &figures[1]["pass"]), (&Value::Null, &json!(false)));
        assert_eq!((&figures[2]["at_most"], &figures[2]["pass"]), (&Value::Null, &Value::Null));
        assert_eq!(json["sections"][1]["failure"], "the hub under measurement broke: why");
        assert_eq!((&json["missed"], &json["failed"]), (&json!(1), &json!(1)));
    }

    #[test]
    fn a_figure_at_its_bound_passes_and_one_beyond_does_not() {
        let figure = |value| Figure::new("x", Unit::KiB, value, 1).at_most(1024.0).passes();
        assert_eq!((figure(1024.0), figure(1024.1), figure(f64::INFINITY)), (Some(true), Some(false), Some(false)));
        let figure = |value| Figure::new("x", Unit::Times, value, 1).at_least(3.6);
        assert_eq!((figure(3.6).passes(), figure(3.5).passes()), (Some(true), Some(false)));
        assert_eq!(figure(4.0).gate_shown(), ">= 3.60 x");
    }
}
