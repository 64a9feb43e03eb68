//! A run as one HTML file: figures and plots, without scripts and external resources.

use super::outcome::rtf;
use super::{Look, Outcome};
use crate::Section;
use crate::load::page::{STYLE, escape, figures, plot};
use crate::load::plot::{Kind, Plot, Series};
use antiphon_telemetry::gpu::Card;

/// The page.
pub fn page(outcome: &Outcome, section: &Section) -> String {
    let title = format!("antiphon-bench {}", outcome.stage);
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style><h1>{title}</h1><p class=\"how\">{}</p>",
        escape(&section.how)
    );
    figures(&mut html, section);
    let first = outcome.first_name();
    let shots = || outcome.shots.iter().filter_map(|shot| Some((shot.at.as_secs_f64(), shot.result.as_ref().ok()?)));
    let latency = shots().map(|(at, (took, _))| (at, took.as_secs_f64() * 1e3)).collect();
    plot(&mut html, "Latency of each request", &dots("ms", "a", latency));
    let firsts = shots().filter_map(|(at, (_, answer))| Some((at, answer.first?.as_secs_f64() * 1e3))).collect();
    plot(&mut html, &format!("{first} of each request"), &dots("ms", "b", firsts));
    plot(&mut html, "Share of requests ended within", &shares(outcome));
    let factors = shots().filter_map(|(at, (took, answer))| Some((at, rtf(*took, answer.audio)?))).collect();
    plot(&mut html, "RTF of each request", &dots("x", "a", factors));
    plot(&mut html, "Requests that waited in the engine", &line(outcome, "requests", |look| Some(look.waiting as f64)));
    let card = |of: fn(&Card) -> Option<f64>| move |look: &Look| look.cards.first().and_then(of);
    plot(&mut html, "Utilization of the first card", &line(outcome, "%", card(|card| card.utilization.map(f64::from))));
    let memory = card(|card| Some(card.memory_bytes as f64 / 1_048_576.0));
    plot(&mut html, "Memory of the first card", &line(outcome, "MiB", memory));
    plot(
        &mut html,
        "Power of the first card",
        &line(outcome, "W", card(|card| card.power_mw.map(|mw| f64::from(mw) / 1e3))),
    );
    html + "</html>\n"
}

fn dots(y: &'static str, class: &'static str, points: Vec<(f64, f64)>) -> Plot<'static> {
    Plot { x: "seconds", y, series: vec![Series { kind: Kind::Dots, class, points }], rules: Vec::new() }
}

fn line(outcome: &Outcome, y: &'static str, of: impl Fn(&Look) -> Option<f64>) -> Plot<'static> {
    let points = outcome.looks.iter().filter_map(|look| Some((look.at.as_secs_f64(), of(look)?))).collect();
    Plot { x: "seconds", y, series: vec![Series { kind: Kind::Line, class: "a", points }], rules: Vec::new() }
}

fn shares(outcome: &Outcome) -> Plot<'static> {
    let mut ms: Vec<f64> = outcome.answers().map(|(took, _)| took.as_secs_f64() * 1e3).collect();
    ms.sort_by(f64::total_cmp);
    // Failed requests count as never ended.
    let n = outcome.shots.len() as f64;
    let points = ms.iter().enumerate().map(|(i, ms)| (*ms, (i + 1) as f64 * 100.0 / n)).collect();
    Plot {
        x: "ms",
        y: "% of requests",
        series: vec![Series { kind: Kind::Line, class: "a", points }],
        rules: Vec::new(),
    }
}
