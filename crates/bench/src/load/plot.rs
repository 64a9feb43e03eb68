//! One plot as SVG, for a page without scripts: axes with round ticks, dots or a line for each series, level rules.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 260.0;
/// Margins of the plot area: left, top, right, bottom.
const MARGINS: (f64, f64, f64, f64) = (58.0, 12.0, 12.0, 36.0);
/// Approximate number of ticks on an axis.
const N_TICKS: f64 = 6.0;

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Dots,
    Line,
}

/// A series of points. Its class selects the colour.
pub(crate) struct Series {
    pub(crate) kind: Kind,
    pub(crate) class: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A horizontal line with its name.
pub(crate) struct Rule {
    pub(crate) y: f64,
    pub(crate) name: String,
}

/// The contents of a plot; both axes start at zero.
pub(crate) struct Plot<'a> {
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) series: Vec<Series>,
    pub(crate) rules: Vec<Rule>,
}

impl Plot<'_> {
    /// The plot as SVG; `None` without points.
    pub(crate) fn svg(&self) -> Option<String> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        points().next()?;
        let x = Axis::up_to(points().map(|point| point.0).fold(0.0, f64::max), WIDTH - MARGINS.0 - MARGINS.2);
        let top = points().map(|point| point.1).chain(self.rules.iter().map(|rule| rule.y)).fold(0.0, f64::max);
        let y = Axis::up_to(top, HEIGHT - MARGINS.1 - MARGINS.3);
        let at = |(px, py): (f64, f64)| (MARGINS.0 + x.place(px), HEIGHT - MARGINS.3 - y.place(py));
        let mut svg =
            format!(r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{} over {}">"#, self.y, self.x);
        self.axes(&mut svg, &x, &y);
        for rule in &self.rules {
            let (_, py) = at((0.0, rule.y));
            let left = MARGINS.0;
            let right = WIDTH - MARGINS.2;
            let _ = write!(svg, r#"<path class="rule" d="M{left} {py:.1}H{right}"/>"#);
            let _ = write!(svg, r#"<text class="end" x="{right}" y="{:.1}">{}</text>"#, py - 4.0, rule.name);
        }
        for series in &self.series {
            let places = series.points.iter().map(|point| at(*point));
            match series.kind {
                Kind::Dots => places.for_each(|(px, py)| {
                    let _ = write!(svg, r#"<circle class="{}" cx="{px:.1}" cy="{py:.1}" r="2.5"/>"#, series.class);
                }),
                Kind::Line => {
                    let path: Vec<String> = places.map(|(px, py)| format!("{px:.1} {py:.1}")).collect();
                    let _ = write!(svg, r#"<path class="line {}" d="M{}"/>"#, series.class, path.join("L"));
                }
            }
        }
        Some(svg + "</svg>")
    }

    fn axes(&self, svg: &mut String, x: &Axis, y: &Axis) {
        let left = MARGINS.0;
        let top = MARGINS.1;
        let right = WIDTH - MARGINS.2;
        let bottom = HEIGHT - MARGINS.3;
        for tick in y.ticks() {
            let py = bottom - y.place(tick);
            let _ = write!(svg, r#"<path class="grid" d="M{left} {py:.1}H{right}"/>"#);
            let _ = write!(svg, r#"<text class="end" x="{:.1}" y="{:.1}">{tick}</text>"#, left - 6.0, py + 4.0);
        }
        for tick in x.ticks() {
            let px = left + x.place(tick);
            let _ = write!(svg, r#"<text class="mid" x="{px:.1}" y="{:.1}">{tick}</text>"#, bottom + 16.0);
        }
        let _ = write!(svg, r#"<path class="axis" d="M{left} {top}V{bottom}H{right}"/>"#);
        let _ = write!(svg, r#"<text class="end" x="{right}" y="{:.1}">{}</text>"#, bottom + 31.0, self.x);
        let _ = write!(svg, r#"<text x="{:.1}" y="{:.1}">{}</text>"#, left + 6.0, top + 8.0, self.y);
    }
}

/// An axis from zero to a round number.
struct Axis {
    step: f64,
    n_steps: f64,
    length: f64,
}

impl Axis {
    fn up_to(most: f64, length: f64) -> Self {
        let rough = (if most > 0.0 { most } else { 1.0 }) / N_TICKS;
        let magnitude = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|round| round * magnitude >= rough).unwrap_or(10.0);
        let step = step * magnitude;
        Self { step, n_steps: (most / step).ceil().max(1.0), length }
    }

    fn place(&self, value: f64) -> f64 {
        value / (self.step * self.n_steps) * self.length
    }

    /// The ticks, rounded so that they print without floating-point noise.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let step = self.step;
        (0..=self.n_steps as u32).map(move |i| (f64::from(i) * step * 1e6).round() / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers_that_hold_everything() {
        for (most, expect) in [
            (431.0, "0 100 200 300 400 500"),
            (0.07, "0 0.02 0.04 0.06 0.08"),
            (0.0, "0 0.2"),
            (60.0, "0 10 20 30 40 50 60"),
        ] {
            let axis = Axis::up_to(most, 100.0);
            let ticks: Vec<String> = axis.ticks().map(|tick| tick.to_string()).collect();
            assert_eq!(ticks.join(" "), expect);
            assert!(axis.place(most) <= 100.0);
        }
    }

    #[test]
    fn points_lie_where_the_axes_say() {
        let series = vec![Series { kind: Kind::Line, class: "a", points: vec![(0.0, 0.0), (10.0, 100.0)] }];
        let plot = Plot { x: "s", y: "ms", series, rules: vec![Rule { y: 50.0, name: "half".into() }] };
        let svg = plot.svg().expect("points");
        assert!(svg.contains(r#"d="M58.0 224.0L748.0 12.0""#), "{svg}");
        assert!(svg.contains(r#"d="M58 118.0H748""#) && svg.contains(">half</text>"), "{svg}");
        assert!(Plot { x: "s", y: "ms", series: Vec::new(), rules: Vec::new() }.svg().is_none());
    }
}
