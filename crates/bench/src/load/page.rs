//! The outcome of a load as one HTML file: verdict, figures and plots, without scripts and external resources.

use super::plot::{Kind, Plot, Rule, Series};
use super::{Outcome, Sample, Step};
use crate::Section;
use std::fmt::Write;
use std::time::Duration;

pub(in crate) const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#6b7280;--line:#d7dbe0;--a:#2563eb;--b:#c2410c;--back:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#9aa3ad;--line:#343a41;--a:#6ea8ff;--b:#ff9b66;--back:#14171a}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:800px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.05rem;margin:2rem 0 .3rem}.verdict{font-size:1.1rem;font-weight:600}
table{border-collapse:collapse;width:100%}td,th{padding:.25rem .5rem;border-bottom:1px solid var(--line);text-align:left}
td.n{text-align:right;font-variant-numeric:tabular-nums}.miss{color:var(--b);font-weight:600}p.how,li{color:var(--soft)}
svg{width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:var(--soft)}.end{text-anchor:end}.mid{text-anchor:middle}
.grid{stroke:var(--line);stroke-width:.6}.axis{stroke:var(--soft);fill:none}.rule{stroke:var(--b);stroke-dasharray:5 4}
circle.a{fill:var(--a)}circle.b{fill:var(--b)}.line{fill:none;stroke-width:1.6}.line.a{stroke:var(--a)}.line.b{stroke:var(--b)}";

/// The page. `steps` are the steps of a search; empty without one.
pub fn page(outcome: &Outcome, section: &Section, objective: Duration, steps: &[Step]) -> String {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>antiphon-bench voice</title><style>{STYLE}</style><h1>antiphon-bench voice</h1>\
         <p class=\"verdict\">{}</p><p class=\"how\">{}</p>",
        escape(&outcome.verdict(objective)),
        escape(&section.how)
    );
    figures(&mut html, section);
    let objective_ms = objective.as_secs_f64() * 1e3;
    plot(&mut html, "Voice-to-voice of each turn (orange: it interrupted a reply)", &over_time(outcome, objective_ms));
    plot(&mut html, "Share of turns answered within", &shares(outcome));
    plot(&mut html, "Time to silence of each interruption", &silences(outcome));
    plot(&mut html, "Processor time of the server", &processor(&outcome.samples));
    plot(&mut html, "Memory of the server", &memory(&outcome.samples));
    plot(&mut html, "Search: p95 at each number of sessions", &sizes(steps, objective_ms));
    html + "</html>\n"
}

/// The figures as a table with notes below.
pub(crate) fn figures(html: &mut String, section: &Section) {
    html.push_str("<table><tr><th>figure<th>value<th>gate<th>n</tr>");
    for figure in &section.figures {
        let miss = if figure.passes() == Some(false) { " miss" } else { "" };
        let name = escape(&figure.name);
        let value = figure.shown();
        let gate = figure.gate_shown();
        let _ = write!(html, "<tr><td>{name}<td class=\"n{miss}\">{value}<td>{gate}<td class=\"n\">{}</tr>", figure.n);
    }
    html.push_str("</table><ul>");
    section.notes.iter().for_each(|note| {
        let _ = write!(html, "<li>{}", escape(note));
    });
    html.push_str("</ul>");
}

/// A plot below its title; nothing if there are no points.
pub(crate) fn plot(html: &mut String, title: &str, plot: &Plot<'_>) {
    if let Some(svg) = plot.svg() {
        let _ = write!(html, "<h2>{title}</h2>{svg}");
    }
}

fn over_time(outcome: &Outcome, objective_ms: f64) -> Plot<'static> {
    let dots = |class, interrupts: bool| {
        let turns = outcome.counted().filter(|turn| turn.silence.is_some() == interrupts);
        let points = turns.filter_map(|turn| Some((turn.at.as_secs_f64(), turn.wait?.as_secs_f64() * 1e3)));
        Series { kind: Kind::Dots, class, points: points.collect() }
    };
    let p95 = outcome.waits().percentile(95.0).filter(|ms| ms.is_finite());
    let mut rules: Vec<Rule> = p95.map(|y| Rule { y, name: format!("p95 {y:.0} ms") }).into_iter().collect();
    // A distant objective would compress the plot.
    if p95.is_none_or(|p95| objective_ms <= 3.0 * p95) {
        rules.push(Rule { y: objective_ms, name: format!("objective {objective_ms:.0} ms") });
    }
    Plot { x: "seconds", y: "ms", series: vec![dots("a", false), dots("b", true)], rules }
}

fn shares(outcome: &Outcome) -> Plot<'static> {
    let waits = outcome.waits();
    let at = |percent: f64| waits.percentile(percent).filter(|ms| ms.is_finite()).map(|ms| (ms, percent));
    let points: Vec<_> = (1..=100).filter_map(|percent| at(f64::from(percent))).collect();
    Plot { x: "ms", y: "% of turns", series: vec![Series { kind: Kind::Line, class: "a", points }], rules: Vec::new() }
}

fn silences(outcome: &Outcome) -> Plot<'static> {
    let points = outcome.counted().filter_map(|turn| Some((turn.at.as_secs_f64(), turn.silence??.as_secs_f64() * 1e3)));
    let series = vec![Series { kind: Kind::Dots, class: "b", points: points.collect() }];
    Plot { x: "seconds", y: "ms", series, rules: Vec::new() }
}

fn processor(samples: &[Sample]) -> Plot<'static> {
    let percent = |pair: &[Sample]| {
        let took = (pair[1].at - pair[0].at).as_secs_f64();
        let cpu_s = pair[1].cpu_s - pair[0].cpu_s;
        (pair[1].at.as_secs_f64(), if took > 0.0 { 100.0 * cpu_s / took } else { 0.0 })
    };
    let points = samples.windows(2).map(percent).collect();
    let series = vec![Series { kind: Kind::Line, class: "a", points }];
    Plot { x: "seconds", y: "% of a core", series, rules: Vec::new() }
}

fn memory(samples: &[Sample]) -> Plot<'static> {
    let points = samples.iter().map(|sample| (sample.at.as_secs_f64(), sample.resident as f64 / f64::from(1 << 20)));
    let series = vec![Series { kind: Kind::Line, class: "a", points: points.collect() }];
    Plot { x: "seconds", y: "MiB", series, rules: Vec::new() }
}

fn sizes(steps: &[Step], objective_ms: f64) -> Plot<'static> {
    let finite = steps.iter().filter(|step| step.p95_ms.is_finite());
    let mut points: Vec<_> = finite.map(|step| (step.n_sessions as f64, step.p95_ms)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let rules = vec![Rule { y: objective_ms, name: format!("objective {objective_ms:.0} ms") }];
    let dots = Series { kind: Kind::Dots, class: "a", points: points.clone() };
    Plot { x: "sessions", y: "ms", series: vec![Series { kind: Kind::Line, class: "a", points }, dots], rules }
}

/// Escapes text for HTML, because questions and server messages may contain anything.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{HeardQuestion, TurnRecord};
    use antiphon_client::Gaps;

    #[test]
    fn a_page_stands_alone_and_shows_what_was_measured() {
        let turn = |wait_ms: u64, silence: Option<u64>| TurnRecord {
            session: 0,
            turn: 0,
            warm_up: false,
            at: Duration::from_secs(3),
            wait: Some(Duration::from_millis(wait_ms)),
            silence: silence.map(|ms| Some(Duration::from_millis(ms))),
            n_after_silence: 0,
            gaps: Gaps::default(),
            words: None,
            mixed_up: Some("it was heard as <script>".into()),
            own: false,
            clip: 0,
            heard: HeardQuestion::default(),
            trouble: None,
        };
        let outcome =
            Outcome { n_sessions: 2, turns: vec![turn(250, None), turn(300, Some(90))], ..Outcome::default() };
        let objective = Duration::from_secs(2);
        let steps = [Step { n_sessions: 2, p95_ms: 300.0, holds: false }];
        let html = page(&outcome, &outcome.section("flite & fakes", objective), objective, &steps);
        assert!(html.contains("2 sessions at p95 300 ms: NOT served"), "{html}");
        assert!(html.contains("flite &amp; fakes") && html.contains("&lt;script&gt;") && !html.contains("<script"));
        assert!(!html.contains("src=") && !html.contains("href="), "nothing is fetched");
        let drawn: Vec<_> =
            html.split("<h2>").skip(1).filter_map(|part| part.split_once("</h2>")).map(|(title, _)| title).collect();
        assert_eq!(drawn.len(), 4, "no process was looked at: {drawn:?}");
        assert_eq!(html.matches("<circle").count(), 4);
    }
}
