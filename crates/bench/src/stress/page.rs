//! A stress test as one HTML file: verdict, figures and plots, without scripts and external resources.

use super::{MixedLoad, Spike, StressReport, spike};
use crate::Section;
use crate::load::page::{STYLE, escape, figures, plot};
use crate::load::plot::{Kind, Plot, Rule, Series};
use crate::load::{Outcome, Sample};
use std::time::Duration;

/// The page.
pub fn page(report: &StressReport, section: &Section, objective: Duration) -> String {
    let objective_ms = objective.as_secs_f64() * 1e3;
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>antiphon-bench stress</title><style>{STYLE}</style><h1>antiphon-bench stress</h1>\
         <p class=\"verdict\">{}</p><p class=\"how\">{}</p>",
        escape(&report.verdict()),
        escape(&section.how)
    );
    figures(&mut html, section);
    plot(&mut html, "Climb: p95 at each number of sessions", &climb(report, objective_ms));
    if let Some(hold) = &report.hold {
        load(&mut html, "Hold", hold, objective_ms);
    }
    if let Some(spike) = &report.spike {
        plot(&mut html, "Spike: voice-to-voice of each turn (orange: the crowd)", &crowd(spike, objective_ms));
        plot(&mut html, "Spike: turns a second within the objective", &goodput(spike, objective_ms));
    }
    if let Some(soak) = &report.soak {
        load(&mut html, "Soak", soak, objective_ms);
    }
    html + "</html>\n"
}

fn load(html: &mut String, name: &str, mixed: &MixedLoad, objective_ms: f64) {
    let of = |outcome: Option<&Outcome>| outcome.map(|outcome| spike::answered(outcome, 0.0)).unwrap_or_default();
    let dots = |class, points| Series { kind: Kind::Dots, class, points };
    let turns = vec![dots("a", of(Some(&mixed.main))), dots("b", of(mixed.bad.as_ref()))];
    let title = format!("{name}: voice-to-voice of each turn (orange: on a bad network)");
    plot(html, &title, &Plot { x: "seconds", y: "ms", series: turns, rules: vec![rule(objective_ms)] });
    let samples = &mixed.main.samples;
    let percent = |pair: &[Sample]| {
        let took = (pair[1].at - pair[0].at).as_secs_f64();
        let cpu_s = pair[1].cpu_s - pair[0].cpu_s;
        (pair[1].at.as_secs_f64(), if took > 0.0 { 100.0 * cpu_s / took } else { 0.0 })
    };
    plot(html, &format!("{name}: processor time of the server"), &line("% of a core", samples.windows(2).map(percent)));
    let memory = samples.iter().map(|sample| (sample.at.as_secs_f64(), sample.resident as f64 / f64::from(1 << 20)));
    plot(html, &format!("{name}: memory of the server"), &line("MiB", memory));
}

fn climb(report: &StressReport, objective_ms: f64) -> Plot<'static> {
    let finite = report.search.steps.iter().filter(|step| step.p95_ms.is_finite());
    let mut points: Vec<_> = finite.map(|step| (step.n_sessions as f64, step.p95_ms)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let dots = Series { kind: Kind::Dots, class: "a", points: points.clone() };
    let series = vec![Series { kind: Kind::Line, class: "a", points }, dots];
    Plot { x: "sessions", y: "ms", series, rules: vec![rule(objective_ms)] }
}

fn crowd(spike: &Spike, objective_ms: f64) -> Plot<'static> {
    let dots = |class, points| Series { kind: Kind::Dots, class, points };
    let series = vec![
        dots("a", spike::answered(&spike.base.main, 0.0)),
        dots("b", spike::answered(&spike.crowd, spike.during_s.0)),
    ];
    Plot { x: "seconds", y: "ms", series, rules: vec![rule(objective_ms)] }
}

fn goodput(spike: &Spike, objective_ms: f64) -> Plot<'static> {
    let mut turns = spike::answered(&spike.base.main, 0.0);
    turns.extend(spike::answered(&spike.crowd, spike.during_s.0));
    let last = turns.iter().map(|(at, _)| *at).fold(0.0, f64::max) as usize;
    let within = |second: usize| {
        let of_second = turns.iter().filter(|(at, ms)| *at as usize == second && *ms <= objective_ms);
        (second as f64 + 0.5, of_second.count() as f64)
    };
    line("turns/s", (0..last).map(within))
}

fn line(y: &'static str, points: impl Iterator<Item = (f64, f64)>) -> Plot<'static> {
    let series = vec![Series { kind: Kind::Line, class: "a", points: points.collect() }];
    Plot { x: "seconds", y, series, rules: Vec::new() }
}

fn rule(objective_ms: f64) -> Rule {
    Rule { y: objective_ms, name: format!("objective {objective_ms:.0} ms") }
}
