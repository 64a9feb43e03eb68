//! Trains the weights, and judges them by the lines of an author on whose lines they were not trained.
//!
//! `UPDATE_EXPECT=1` writes `weights.txt`. In `lines/` a bar is a pause of the speaker, the end of the line the end of the
//! turn. `heard.tsv` is what Whisper base made of 100 lines of each author, spoken by hibari: author, "pause" or "end",
//! and the words up to there.

use super::{MODEL, features, sum};
use crate::turn::endpointing::tests::hints;
use crate::turn::endpointing::{Decision, Eagerness, Hints};
use crate::turn::wording::Wording;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

const LINES: [(&str, &str); 3] = [
    ("services", include_str!("lines/services.txt")),
    ("assistant", include_str!("lines/assistant.txt")),
    ("conversation", include_str!("lines/conversation.txt")),
];
const HEARD: &str = include_str!("heard.tsv");
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/turn/completeness/weights.txt");

/// What a place between two words counts where nobody pauses: there are ten times as many as pauses.
const UNPAUSED: f64 = 0.02;
/// A feature that is seen less often has no weight.
const MIN_COUNT: usize = 20;
/// Strength of the penalty on squared weights.
const PENALTY: f64 = 1.0;
const STEPS: usize = 300;
const STEP: f64 = 0.3;
/// Weights are written with two decimals.
const ROUNDING: f32 = 0.011;

/// The words up to a place in a line.
#[derive(Clone)]
struct Example {
    text: String,
    is_whole: bool,
    /// [`UNPAUSED`], or 1 at a pause and at the end.
    weight: f64,
}

fn examples(lines: &str) -> Vec<Example> {
    lines.lines().flat_map(of_line).collect()
}

fn of_line(line: &str) -> Vec<Example> {
    let mut examples = Vec::new();
    let mut text = String::new();
    let mut written = line.split_whitespace().peekable();
    while let Some(word) = written.next() {
        if word == "|" {
            end_sentence(&mut text);
            continue;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(word);
        let next = written.peek();
        let is_whole = next.is_none();
        let weight = if is_whole || next == Some(&"|") { 1.0 } else { UNPAUSED };
        examples.push(Example { text: text.clone(), is_whole, weight });
    }
    examples
}

/// A recognizer ends a sentence where the speaker pauses.
fn end_sentence(text: &mut String) {
    if text.ends_with(',') {
        text.pop();
    }
    if !text.is_empty() && !text.ends_with(['.', '!', '?']) {
        text.push('.');
    }
}

/// What the recognizer heard of the lines of an author.
fn heard(author: &str) -> Vec<Example> {
    let row = |line: &str| {
        let mut columns = line.split('\t');
        let by = columns.next()?;
        let place = columns.next()?;
        let text = columns.next()?.to_owned();
        (by == author).then_some(Example { text, is_whole: place == "end", weight: 1.0 })
    };
    HEARD.lines().filter_map(row).collect()
}

type Weights = BTreeMap<String, f32>;

/// An example as indices of weights.
struct Row {
    at: Vec<usize>,
    is_whole: f64,
    weight: f64,
}

/// Batch gradient descent with a step of its own for each weight (AdaGrad: Duchi et al., 2011).
fn train(examples: &[Example]) -> Weights {
    let features: Vec<Vec<String>> =
        examples.iter().map(|example| features::of(&example.text).unwrap_or_default()).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for feature in features.iter().flatten() {
        *counts.entry(feature).or_default() += 1;
    }
    counts.retain(|_, count| *count >= MIN_COUNT);
    let index: HashMap<&str, usize> = counts.keys().enumerate().map(|(at, feature)| (*feature, at)).collect();
    let row = |(example, features): (&Example, &Vec<String>)| Row {
        at: features.iter().filter_map(|feature| index.get(feature.as_str()).copied()).collect(),
        is_whole: f64::from(u8::from(example.is_whole)),
        weight: example.weight,
    };
    let rows: Vec<Row> = examples.iter().zip(&features).map(row).collect();
    let mut weights = vec![0.0f64; index.len()];
    let mut squares = vec![1e-9f64; index.len()];
    for _ in 0..STEPS {
        let mut slopes: Vec<f64> = weights.iter().map(|weight| PENALTY * weight).collect();
        for row in &rows {
            let odds: f64 = row.at.iter().map(|at| weights[*at]).sum();
            let error = row.weight * (1.0 / (1.0 + (-odds).exp()) - row.is_whole);
            row.at.iter().for_each(|at| slopes[*at] += error);
        }
        for (at, slope) in slopes.iter().enumerate() {
            squares[at] += slope * slope;
            weights[at] -= STEP * slope / squares[at].sqrt();
        }
    }
    counts.keys().zip(weights).map(|(feature, weight)| ((*feature).to_owned(), weight as f32)).collect()
}

/// The share of the pairs of a pause and an end in which the end has the higher score (area under the ROC curve).
fn auc(examples: &[Example], score: impl Fn(&str) -> f64) -> f64 {
    let scores = |is_whole: bool| -> Vec<f64> {
        examples.iter().filter(|example| example.is_whole == is_whole).map(|example| score(&example.text)).collect()
    };
    let ends = scores(true);
    let pauses = scores(false);
    let won = |end: &f64, pause: &f64| if end == pause { 0.5 } else { f64::from(u8::from(end > pause)) };
    let wins: f64 = ends.iter().flat_map(|end| pauses.iter().map(move |pause| won(end, pause))).sum();
    wins / (ends.len() * pauses.len()) as f64
}

/// The probability of an end by the rules alone, a word taking a third of a second.
fn by_rules(text: &str) -> f64 {
    let spoken = Duration::from_millis(330) * text.split_whitespace().count() as u32;
    Decision::new(Hints { spoken, ..hints(Wording::of(text)) }, Eagerness::Medium).probability
}

#[test]
fn the_weights_are_those_of_the_lines() {
    let all: Vec<Example> = LINES.iter().flat_map(|(_, lines)| examples(lines)).collect();
    let trained = train(&all);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let text: String = trained.iter().map(|(feature, weight)| format!("{feature}\t{weight:.2}\n")).collect();
        std::fs::write(FILE, text).unwrap();
        return;
    }
    assert_eq!(MODEL.len(), trained.len(), "UPDATE_EXPECT=1 trains them again");
    for (feature, weight) in &trained {
        let stored = MODEL.get(feature.as_str()).unwrap_or_else(|| panic!("{feature} has no weight"));
        assert!((stored - weight).abs() < ROUNDING, "{feature}: {stored}, trained {weight}");
    }
}

#[test]
fn what_was_heard_of_another_authors_lines_is_judged_better_than_by_rules() {
    for (author, _) in LINES {
        let others = LINES.iter().filter(|(other, _)| *other != author);
        let trained = train(&others.flat_map(|(_, lines)| examples(lines)).collect::<Vec<_>>());
        let weights: HashMap<&str, f32> = trained.iter().map(|(feature, weight)| (feature.as_str(), *weight)).collect();
        let heard = heard(author);
        assert!(heard.len() > 150, "{author}");
        let model = auc(&heard, |text| features::of(text).map_or(0.0, |features| f64::from(sum(&weights, &features))));
        let rules = auc(&heard, by_rules);
        assert!(model > 0.78, "{author}: {model:.3}");
        assert!(model > rules + 0.04, "{author}: {model:.3}, rules {rules:.3}");
    }
}
