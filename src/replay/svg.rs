//! The two curves as a picture.

use super::{Curve, CurveComparison};
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 56.0;
/// Of the fixed and the adaptive wait: their lines differ as well, for readers who do not see colours.
const COLOURS: [&str; 2] = ["#5a6b7b", "#c2410c"];

/// False cut-ins across, answer delay upwards, a curve and its intervals for each way of waiting. An SVG document.
pub fn draw(title: &str, fixed: &Curve, adaptive: &Curve, compared: &[CurveComparison]) -> String {
    let axes = Axes::of(fixed, adaptive);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}</text>\n",
        escaped(title)
    );
    axes.draw(&mut svg);
    let intervals = |of: fn(&CurveComparison) -> [f64; 3]| {
        compared.iter().map(move |one| (one.cut_in, of(one))).collect::<Vec<_>>()
    };
    let fixed_intervals = intervals(|one| one.fixed_ms);
    let adaptive_intervals = intervals(|one| one.adaptive_ms);
    axes.way(&mut svg, &Way { i: 0, name: "fixed wait", curve: fixed, intervals: &fixed_intervals });
    axes.way(&mut svg, &Way { i: 1, name: "adaptive wait", curve: adaptive, intervals: &adaptive_intervals });
    svg.push_str("</svg>\n");
    svg
}

/// One way of waiting, the `i`-th, and its delays with their intervals at some shares.
struct Way<'a> {
    i: usize,
    name: &'a str,
    curve: &'a Curve,
    intervals: &'a [(f64, [f64; 3])],
}

/// What is shown: shares from none to `most_cut`, delays up to `longest` ms.
struct Axes {
    most_cut: f64,
    longest: f64,
}

impl Axes {
    fn of(fixed: &Curve, adaptive: &Curve) -> Self {
        let points = || fixed.points.iter().chain(&adaptive.points);
        let most_cut = nice(points().map(|point| point.cut_in).fold(0.05, f64::max).min(0.6) * 100.0) / 100.0;
        let shown = points().filter(|point| point.cut_in <= most_cut);
        Self { most_cut, longest: nice(shown.map(|point| point.delay_ms).fold(100.0, f64::max)) }
    }

    fn x(&self, cut: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * cut / self.most_cut
    }

    fn y(&self, ms: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * ms.min(self.longest) / self.longest
    }

    fn draw(&self, svg: &mut String) {
        for i in 0..=5 {
            let cut = self.most_cut * f64::from(i) / 5.0;
            let ms = self.longest * f64::from(i) / 5.0;
            let cx = self.x(cut);
            let cy = self.y(ms);
            let right = WIDTH - RIGHT;
            let bottom = HEIGHT - BOTTOM;
            let _ = write!(
                svg,
                "<path d=\"M{LEFT} {cy:.1}H{right}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ms:.0}</text>\n\
                 <text x=\"{cx:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.0} %</text>\n",
                LEFT - 8.0,
                cy + 4.0,
                bottom + 18.0,
                cut * 100.0
            );
        }
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">turns cut into</text>\n\
             <text transform=\"translate(18 {:.1}) rotate(-90)\" text-anchor=\"middle\">mean answer delay, ms</text>\n",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 14.0,
            (TOP + HEIGHT - BOTTOM) / 2.0
        );
    }

    fn way(&self, svg: &mut String, way: &Way<'_>) {
        let (colour, dashes, aside) = [(COLOURS[0], " stroke-dasharray=\"6 4\"", -2.0), (COLOURS[1], "", 2.0)][way.i];
        let inside = way.curve.points.iter().filter(|point| point.cut_in <= self.most_cut);
        let path: Vec<_> =
            inside.map(|point| format!("{:.1} {:.1}", self.x(point.cut_in), self.y(point.delay_ms))).collect();
        let path = path.join("L");
        let _ = writeln!(svg, "<path d=\"M{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"{dashes}/>");
        for (cut, [_, low, high]) in way.intervals.iter().filter(|(cut, _)| *cut <= self.most_cut) {
            let at = self.x(*cut) + aside;
            let from = self.y(*low);
            let to = self.y(*high);
            let _ = writeln!(svg, "<path d=\"M{at:.1} {from:.1}V{to:.1}\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
        }
        let from = WIDTH - RIGHT - 150.0;
        let line = TOP + 10.0 + 20.0 * way.i as f64;
        let name = way.name;
        let _ = writeln!(
            svg,
            "<path d=\"M{from} {line}h28\" stroke=\"{colour}\" stroke-width=\"2.5\"{dashes}/><text x=\"{}\" y=\"{}\">{name}</text>",
            from + 36.0,
            line + 4.0
        );
    }
}

/// The next of 1, 2, 2.5, 5, 10 times a power of ten.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power).into_iter().find(|&nice| nice >= value).unwrap_or(value)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
