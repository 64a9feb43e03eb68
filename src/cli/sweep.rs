//! `antiphon replay --sweep`: compares wait times offline on labelled recordings.

use super::replay::{Progress, of_file};
use super::unseal::StorageKeyArgs;
use super::{CliError, print};
use crate::replay::{Corpus, Curve, CurveComparison, LabelledTurn, PauseHints, Setting, TurnResult, compare, draw};
use antiphon_dialog::turn::ModelWeight;
use antiphon_types::Samples;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A range of fixed waits, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sweep {
    from: u32,
    to: u32,
    step: u32,
}

/// The selection of turns and the output format.
pub(super) struct Shown<'a> {
    pub(super) svg: Option<&'a Path>,
    pub(super) group: Option<&'a str>,
    pub(super) speaker: Option<&'a str>,
    /// Weights of the turn model, each compared with no model; empty: the adaptive wait is compared with fixed ones.
    pub(super) weights: Vec<ModelWeight>,
    pub(super) json: bool,
    pub(super) hints: bool,
}

/// Cut-in rates (fraction of turns interrupted) at which the waits are compared.
const SHARES: [f64; 6] = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3];
/// Scale factors of the adaptive wait: each a sixth greater than the previous, from 0.1 to 4.
const N_SCALES: i32 = 25;
const SCALE_STEP: f64 = 1.165;
const FIRST_SCALE: f64 = 0.1;
/// Position in a pause at which the hints are evaluated: 250 ms at 16 kHz.
const HINTS_AFTER: Samples = Samples(16 * 250);

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write silence_ms=100..800 or silence_ms=100..800:50, in milliseconds".to_owned();
        let range = text.strip_prefix("silence_ms=").ok_or_else(wrong)?;
        let (range, step) = range.split_once(':').unwrap_or((range, "50"));
        let (from, to) = range.split_once("..").ok_or_else(wrong)?;
        let number = |text: &str| text.trim_end_matches("ms").parse::<u32>().map_err(|_| wrong());
        let from = number(from)?;
        let to = number(to)?;
        let step = number(step)?;
        if step == 0 || from >= to || to > 10_000 || (to - from) / step > 200 {
            return Err("the range must be ascending, at most 10000 ms, with at most 200 steps".into());
        }
        Ok(Self { from, to, step })
    }
}

pub(super) fn run(files: &[PathBuf], sweep: &Sweep, shown: &Shown<'_>, key: &StorageKeyArgs) -> Result<(), CliError> {
    let paths = files.iter().map(PathBuf::as_path);
    let corpus = Corpus::open(paths, shown.group, shown.speaker, || key.of_replay());
    let corpus = corpus.map_err(|(path, error)| of_file(path, &error))?;
    let turns: Vec<_> = corpus.turns().collect();
    if turns.is_empty() {
        return Err(CliError::Usage("there are no turns of that group in these recordings".into()));
    }
    if shown.hints {
        return hints(&corpus);
    }
    if !shown.weights.is_empty() {
        return weights(&corpus, &turns, shown);
    }
    let fixed: Vec<u32> = (sweep.from..=sweep.to).step_by(sweep.step as usize).collect();
    let scales: Vec<f64> = (0..N_SCALES).map(|i| FIRST_SCALE * SCALE_STEP.powi(i)).collect();
    let mut progress = Progress::new(Path::new("sweep"));
    let mut n_done = 0;
    let n_all = fixed.len() + scales.len();
    let mut taken = |setting: Setting| {
        progress.show(f64::from(n_done) / n_all as f64);
        n_done += 1;
        corpus.run(setting)
    };
    let fixed: Vec<(f64, Vec<TurnResult>)> =
        fixed.iter().map(|&ms| (f64::from(ms), taken(Setting::Fixed(ms)))).collect();
    let adaptive: Vec<_> = scales.iter().map(|&scale| (scale, taken(Setting::Adaptive(scale)))).collect();
    let own = taken(Setting::Adaptive(1.0));
    progress.clear();
    let (fixed, adaptive, compared) = compare(&turns, &fixed, &adaptive, &SHARES);
    let n_pauses: usize = turns.iter().map(|turn| turn.spans_ms.len() - 1).sum();
    let title = format!("{} turns with {n_pauses} pauses inside", turns.len());
    if let Some(path) = shown.svg {
        let svg = draw(&title, &fixed, &adaptive, &compared);
        std::fs::write(path, svg).map_err(|error| CliError::file("written", path, &error))?;
    }
    if shown.json {
        return print::json(&json!({
            "turns": turns.len(), "pauses": n_pauses, "fixed": fixed, "adaptive": adaptive, "compared": compared,
        }));
    }
    print::line(&format!("{title}\n\n{}\n{}", table(&fixed, &adaptive), conclusion(&compared)))?;
    let cut = own.iter().filter(|taken| taken.cut_in).count() as f64 / own.len() as f64;
    let delay = own.iter().map(|taken| taken.delay_ms).sum::<f64>() / own.len() as f64;
    let own = format!("{:.1} % cut into, {delay:.0} ms", 100.0 * cut);
    print::line(&format!("the adaptive wait as it is (medium eagerness): {own}"))
}

/// The effect of the turn model: each weight against none, at the same cut-in rates.
fn weights(corpus: &Corpus, turns: &[&LabelledTurn], shown: &Shown<'_>) -> Result<(), CliError> {
    let scales: Vec<f64> = (0..N_SCALES).map(|i| FIRST_SCALE * SCALE_STEP.powi(i)).collect();
    let run = |weight: ModelWeight| -> Vec<(f64, Vec<TurnResult>)> {
        scales.iter().map(|&scale| (scale, corpus.run(Setting::Weighed(scale, weight)))).collect()
    };
    let none = run(ModelWeight { slope: 0.0, most: 0.0 });
    let mut rows = Vec::new();
    for &weight in &shown.weights {
        let (_, _, compared) = compare(turns, &none, &run(weight), &SHARES);
        let own = corpus.run(Setting::Weighed(1.0, weight));
        let n_cut = own.iter().filter(|taken| taken.cut_in).count();
        let delay_ms = own.iter().map(|taken| taken.delay_ms).sum::<f64>() / own.len() as f64;
        rows.push((weight, n_cut, delay_ms, compared));
    }
    if shown.json {
        let row = |(weight, n_cut, delay_ms, compared): &(ModelWeight, usize, f64, Vec<CurveComparison>)| json!({ "weight": weight, "cut_into": n_cut, "delay_ms": delay_ms, "compared": compared });
        return print::json(&json!({ "turns": turns.len(), "weights": rows.iter().map(row).collect::<Vec<_>>() }));
    }
    for (weight, n_cut, delay_ms, compared) in rows {
        let n = turns.len();
        print::line(&format!(
            "slope {} up to {}: {n_cut} of {n} cut into, {delay_ms:.0} ms",
            weight.slope, weight.most
        ))?;
        for one in compared {
            let [sooner, low, high] = one.sooner.map(|share| 100.0 * share);
            let (share, [none, ..], [with, ..]) = (100.0 * one.cut_in, one.fixed_ms, one.adaptive_ms);
            print::line(&format!(
                "{share:>6.0} %  without {none:>5.0} ms  with {with:>5.0} ms  {sooner:>4.0} % sooner [{low:.0}, {high:.0}]"
            ))?;
        }
    }
    Ok(())
}

/// Both curves side by side, as text.
fn table(fixed: &Curve, adaptive: &Curve) -> String {
    let mut text = "fixed wait  cut into   answers    adaptive wait  cut into   answers\n".to_owned();
    for i in 0..fixed.points.len().max(adaptive.points.len()) {
        let left = fixed
            .points
            .get(i)
            .map(|point| format!("{:>7.0} ms {:>7.1} % {:>6.0} ms", point.value, 100.0 * point.cut_in, point.delay_ms));
        let right = adaptive.points.get(i).map(|point| {
            format!("        x {:>5.2} {:>8.1} % {:>6.0} ms", point.value, 100.0 * point.cut_in, point.delay_ms)
        });
        text.push_str(format!("{:<31}{}\n", left.unwrap_or_default(), right.unwrap_or_default()).trim_end());
        text.push('\n');
    }
    text
}

fn conclusion(compared: &[CurveComparison]) -> String {
    if compared.is_empty() {
        return "no share of turns cut into is reached by both waits: sweep over more".into();
    }
    let ms = |[value, low, high]: [f64; 3]| format!("{value:.0} ms [{low:.0}, {high:.0}]");
    let line = |one: &CurveComparison| {
        let [sooner, low, high] = one.sooner.map(|share| 100.0 * share);
        format!(
            "{:>4.0} %  fixed {:<22} adaptive {:<22} {sooner:.0} % sooner [{low:.0}, {high:.0}]",
            100.0 * one.cut_in,
            ms(one.fixed_ms),
            ms(one.adaptive_ms)
        )
    };
    let lines: Vec<_> = compared.iter().map(line).collect();
    format!("at the same share of turns cut into, mean answer delay [95 % interval]:\n{}", lines.join("\n"))
}

/// Prints how often each wording class occurs before a pause and before an end, then one JSON object per pause.
fn hints(corpus: &Corpus) -> Result<(), CliError> {
    let hints = corpus.hints(HINTS_AFTER);
    let n = |is_end: bool| hints.iter().filter(|hint| hint.is_end == is_end).count();
    print::line(&format!("{} pauses, {} ends; wording before each, and log-odds of an end", n(false), n(true)))?;
    let mut table: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for hint in &hints {
        table.entry(hint.decision.hints.wording.name()).or_default()[usize::from(hint.is_end)] += 1;
    }
    for (wording, [pauses, ends]) in &table {
        // Add-half smoothing, so that an unseen class does not get probability zero.
        let rate = |count: usize, of: usize| (count as f64 + 0.5) / (of as f64 + 1.0);
        let odds = (rate(*ends, n(true)) / rate(*pauses, n(false))).ln();
        print::line(&format!("{wording:<12}{pauses:>6}{ends:>6}{odds:>8.2}"))?;
    }
    for hint in &hints {
        let PauseHints { turn, is_end, decision } = hint;
        let hints = &decision.hints;
        let row = json!({
            "end": is_end, "wording": hints.wording.name(), "completeness_log_odds": hints.completeness,
            "energy_fall_db": hints.prosody.energy_fall_db,
            "pitch_fall_semitones": hints.prosody.pitch_fall_semitones, "spoken_ms": hints.spoken.as_secs_f64() * 1e3,
            "speaker": turn.speaker, "text": turn.text,
        });
        print::json(&row)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_a_range_with_a_step_or_without() {
        let parse = |text: &str| Sweep::from_str(text);
        assert_eq!(parse("silence_ms=100..800"), Ok(Sweep { from: 100, to: 800, step: 50 }));
        assert_eq!(parse("silence_ms=100..800:25"), Ok(Sweep { from: 100, to: 800, step: 25 }));
        for wrong in ["100..800", "silence_ms=100", "silence_ms=800..100", "silence_ms=100..800:0", "silence_ms=a..b"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
