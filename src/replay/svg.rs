//! The two curves as a picture.

use super::{Compared, Curve};
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 56.0;
/// Of the fixed and the adaptive wait: told apart by people who do not see colours by their line, too.
const COLOURS: [&str; 2] = ["#5a6b7b", "#c2410c"];

/// False cut-ins across, answer delay upwards, a curve and its intervals for each way of waiting. An SVG document.
pub fn draw(title: &str, fixed: &Curve, adaptive: &Curve, compared: &[Compared]) -> String {
    let points = || fixed.points.iter().chain(&adaptive.points);
    let most_cut = nice(points().map(|point| point.cut_in).fold(0.05, f64::max).min(0.6) * 100.0) / 100.0;
    let shown = |cut: f64| cut <= most_cut;
    let longest = nice(points().filter(|point| shown(point.cut_in)).map(|point| point.delay_ms).fold(100.0, f64::max));
    let x = |cut: f64| LEFT + (WIDTH - LEFT - RIGHT) * cut / most_cut;
    let y = |ms: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * ms / longest;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}</text>\n",
        escaped(title)
    );
    for i in 0..=5 {
        let (cut, ms) = (most_cut * f64::from(i) / 5.0, longest * f64::from(i) / 5.0);
        let (cx, cy, right, bottom) = (x(cut), y(ms), WIDTH - RIGHT, HEIGHT - BOTTOM);
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
    for (i, (name, curve)) in [("fixed wait", fixed), ("adaptive wait", adaptive)].into_iter().enumerate() {
        let colour = COLOURS[i];
        let inside = curve.points.iter().filter(|point| shown(point.cut_in));
        let path: Vec<_> = inside.map(|point| format!("{:.1} {:.1}", x(point.cut_in), y(point.delay_ms))).collect();
        let dashes = if i == 0 { " stroke-dasharray=\"6 4\"" } else { "" };
        let _ = writeln!(
            svg,
            "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"{dashes}/>",
            path.join("L")
        );
        for one in compared.iter().filter(|one| shown(one.cut_in)) {
            let [_, low, high] = if i == 0 { one.fixed_ms } else { one.adaptive_ms };
            let at = x(one.cut_in) + if i == 0 { -2.0 } else { 2.0 };
            let _ = writeln!(
                svg,
                "<path d=\"M{at:.1} {:.1}V{:.1}\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
                y(low),
                y(high.min(longest))
            );
        }
        let from = WIDTH - RIGHT - 150.0;
        let line = TOP + 10.0 + 20.0 * i as f64;
        let _ = writeln!(
            svg,
            "<path d=\"M{from} {line}h28\" stroke=\"{colour}\" stroke-width=\"2.5\"{dashes}/><text x=\"{}\" y=\"{}\">{name}</text>",
            from + 36.0,
            line + 4.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// The next of 1, 2, 2.5, 5, 10 times a power of ten.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power).into_iter().find(|&nice| nice >= value).unwrap_or(value)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
