//! The outcome of a run: figures, and all data as JSON.

use super::{Look, Shot};
use crate::{Figure, Section, Unit, Waits};
use antiphon_telemetry::gpu::Card;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of failure reasons listed.
const MAX_REASONS: usize = 5;

/// A run of one stage.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// `tts`, `stt` or `llm`.
    pub stage: &'static str,
    /// Concurrent requests.
    pub concurrency: usize,
    /// Time from the first counted request to the end of the last one.
    pub took: Duration,
    /// The requests in order of their start.
    pub shots: Vec<Shot>,
    /// Samples of the engine and the graphics cards during the run.
    pub looks: Vec<Look>,
}

impl Outcome {
    /// Number of failed requests.
    pub fn n_failed(&self) -> usize {
        self.shots.iter().filter(|shot| shot.result.is_err()).count()
    }

    /// The figures. `how` describes the run in one line.
    pub fn section(&self, how: impl Into<String>) -> Section {
        let mut section = Section::new(self.stage, how);
        let n = self.shots.len();
        let n_ok = self.shots.len() - self.n_failed();
        let took = self.took.as_secs_f64().max(1e-9);
        let mut add = |name: &str, unit, value: f64, n| section.figures.push(Figure::new(name, unit, value, n));
        add("requests", Unit::Count, n as f64, n);
        add("failed", Unit::Count, self.n_failed() as f64, n);
        add("throughput", Unit::Of("requests/min"), n_ok as f64 * 60.0 / took, n_ok);
        add("throughput a second", Unit::Of("requests/s"), n_ok as f64 / took, n_ok);
        let audio: f64 = self.answers().map(|(_, answer)| answer.audio.as_secs_f64()).sum();
        if audio > 0.0 {
            add("times real time", Unit::Of("x"), audio / took, n_ok);
        }
        let tokens: u64 = self.answers().map(|(_, answer)| answer.tokens).sum();
        if tokens > 0 {
            add("tokens a second", Unit::Of("tokens/s"), tokens as f64 / took, n_ok);
        }
        self.waits(&mut section);
        self.load(&mut section);
        section.notes = self.reasons();
        section
    }

    /// All data as JSON, including each request.
    pub fn json(&self) -> Value {
        let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let shot = |shot: &Shot| match &shot.result {
            Ok((took, answer)) => json!({
                "at_ms": ms(shot.at), "latency_ms": ms(*took), "first_ms": answer.first.map(ms),
                "audio_ms": ms(answer.audio), "tokens": answer.tokens,
            }),
            Err(why) => json!({"at_ms": ms(shot.at), "error": why}),
        };
        let look = |look: &Look| json!({"at_ms": ms(look.at), "waiting": look.waiting, "gpu": look.cards});
        json!({
            "stage": self.stage, "concurrency": self.concurrency, "took_ms": ms(self.took),
            "shots": self.shots.iter().map(shot).collect::<Vec<_>>(),
            "looks": self.looks.iter().map(look).collect::<Vec<_>>(),
        })
    }

    /// The successful requests with their durations.
    pub(super) fn answers(&self) -> impl Iterator<Item = (Duration, &super::Answer)> {
        self.shots.iter().filter_map(|shot| shot.result.as_ref().ok().map(|(took, answer)| (*took, answer)))
    }

    /// The usual name of the time to the first output.
    pub(super) fn first_name(&self) -> &'static str {
        if self.stage == "llm" { "TTFT" } else { "TTFA" }
    }

    fn waits(&self, section: &mut Section) {
        let mut latency: Waits = self.answers().map(|(took, _)| took.as_secs_f64() * 1e3).collect();
        let average = mean(self.answers().map(|(took, _)| took.as_secs_f64() * 1e3));
        section.figures.extend(average.map(|ms| Figure::new("latency avg", Unit::Ms, ms, latency.len())));
        (0..self.n_failed()).for_each(|_| latency.push_endless());
        let first: Waits = self.answers().filter_map(|(_, answer)| Some(answer.first?.as_secs_f64() * 1e3)).collect();
        for (name, waits) in [("latency", &latency), (self.first_name(), &first)] {
            [50.0, 95.0, 99.0].into_iter().for_each(|percent| section.percentile(name, waits, percent, None));
        }
        let rtf: Waits = self.answers().filter_map(|(took, answer)| rtf(took, answer.audio)).collect();
        for percent in [50.0, 95.0] {
            let value = rtf.percentile(percent);
            section
                .figures
                .extend(value.map(|rtf_| Figure::new(format!("RTF p{percent}"), Unit::Of(""), rtf_, rtf.len())));
        }
    }

    /// Adds the figures of the queue and the graphics cards.
    fn load(&self, section: &mut Section) {
        let mut add = |name: String, unit, value: Option<f64>| {
            section.figures.extend(value.map(|value| Figure::new(name, unit, value, self.looks.len())));
        };
        let waiting = || self.looks.iter().map(|look| look.waiting as f64);
        add("queue depth avg".into(), Unit::Of(""), mean(waiting()));
        add("queue depth max".into(), Unit::Count, waiting().reduce(f64::max));
        let n_cards = self.looks.iter().map(|look| look.cards.len()).max().unwrap_or(0);
        for n in 0..n_cards {
            let each =
                |of: fn(&Card) -> Option<f64>| self.looks.iter().filter_map(move |look| of(look.cards.get(n)?));
            let name = self.looks.iter().find_map(|look| Some(look.cards.get(n)?.name.clone())).unwrap_or_default();
            add(format!("{name}: utilization avg"), Unit::Of("%"), mean(each(|card| card.utilization.map(f64::from))));
            add(
                format!("{name}: memory peak"),
                Unit::Of("MiB"),
                each(|card| Some(card.memory_bytes as f64 / 1_048_576.0)).reduce(f64::max),
            );
            add(
                format!("{name}: power avg"),
                Unit::Of("W"),
                mean(each(|card| card.power_mw.map(|mw| f64::from(mw) / 1e3))),
            );
            add(format!("{name}: SM clock avg"), Unit::Of("MHz"), mean(each(|card| card.sm_clock_mhz.map(f64::from))));
        }
    }

    /// Reasons of failures, the most frequent first.
    fn reasons(&self) -> Vec<String> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        self.shots
            .iter()
            .filter_map(|shot| shot.result.as_ref().err())
            .for_each(|why| *counts.entry(why).or_default() += 1);
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        counts.into_iter().take(MAX_REASONS).map(|(why, n)| format!("{n} failed: {why}")).collect()
    }
}

/// Real-time factor: the duration of a request divided by the playing time of its audio.
pub(super) fn rtf(took: Duration, audio: Duration) -> Option<f64> {
    (!audio.is_zero()).then(|| took.as_secs_f64() / audio.as_secs_f64())
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0), |(sum, n), value| (sum + value, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}
