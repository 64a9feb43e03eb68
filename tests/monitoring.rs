//! `/metrics` provides everything that `configs/grafana` and `configs/prometheus` refer to: each metric, and each label
//! value.

use crate::hub::hub;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const FILES: [&str; 2] = ["configs/grafana/antiphon.json", "configs/prometheus/alerts.yml"];

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file))
        .unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Values of labels that look like metrics.
const NO_METRICS: [&str; 2] = ["voice_to_voice", "voice_to_ear"];

/// The metrics that docs/reference/metrics.md names, which other tests compare with what hubs and workers export.
fn documented() -> BTreeSet<String> {
    let page = read("docs/reference/metrics.md");
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.filter(|name| metrics_in(name).contains(*name)).map(str::to_owned).collect()
}

/// The metric names in a text, in the form of the hub's `# TYPE` lines.
fn metrics_in(text: &str) -> BTreeSet<String> {
    // The names of recording rules have colons.
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    let is_metric = |word: &&str| ["antiphon_", "voice_", "process_"].iter().any(|prefix| word.starts_with(prefix));
    let names = words.filter(|word| is_metric(word) && !NO_METRICS.contains(word));
    names.map(|name| name.strip_suffix("_bucket").unwrap_or(name).to_owned()).collect()
}

/// The `label="value"` pairs of a text for these `labels`, with or without JSON escapes.
fn values_in(text: &str, labels: &[&str]) -> BTreeSet<String> {
    let plain = text.replace('\\', "");
    let of = |label: &&str| {
        let begin = format!("{label}=\"");
        plain
            .match_indices(&begin)
            .map(|(at, _)| plain[at..].split('"').take(2).collect::<Vec<_>>().join("\""))
            .collect()
    };
    labels.iter().flat_map(|label| -> Vec<String> { of(label) }).collect()
}

#[tokio::test(start_paused = true)]
async fn every_metric_that_grafana_and_prometheus_ask_for_is_told() {
    let hub = hub("Hello.", "Hi.").await;
    // An error series exists only after its first error.
    let mut socket = hub.connect("").await;
    socket.send(json!({"type": "no.such.event"})).await;
    socket.until("error").await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let told = reqwest::Client::new().get(format!("http://{}/metrics", hub.address)).send().await.expect("an answer");
    let told = told.text().await.expect("a body");
    for file in FILES {
        let text = read(file);
        let asked = metrics_in(&text);
        assert!(asked.contains("antiphon_latency_seconds"), "{file} asks for nothing: {asked:?}");
        // Some are there only with workers, a GPU, or servers behind the engines.
        let documented = documented();
        for name in asked {
            let is_told = told.contains(&format!("# TYPE {name} ")) || documented.contains(&name);
            assert!(is_told, "{file} asks for {name}, which the hub does not tell");
        }
        for value in values_in(&text, &["stage", "outcome"]) {
            assert!(told.contains(&format!("{value}\"")), "{file} asks for {value}\", which the hub does not tell");
        }
    }
}

#[test]
fn every_metric_is_in_a_panel_or_an_alert() {
    let shown: BTreeSet<_> = FILES.iter().flat_map(|file| metrics_in(&read(file))).collect();
    let documented = documented();
    assert!(documented.len() > 50, "{documented:?}");
    let missing: Vec<_> = documented.difference(&shown).collect();
    assert!(missing.is_empty(), "in no panel and no alert: {missing:?}");
}

#[test]
fn the_readers_of_the_files_find_what_is_in_them() {
    let text = r#"sum(rate(antiphon_a_bucket{stage=\"x\",job=~\"$job\"}[5m])) / antiphon_b_total{outcome="failed"}"#;
    assert_eq!(metrics_in(text), ["antiphon_a", "antiphon_b_total"].map(String::from).into());
    assert_eq!(values_in(text, &["stage", "outcome"]), ["stage=\"x", "outcome=\"failed"].map(String::from).into());
}

#[test]
fn grafanas_panels_have_queries_and_stand_beside_one_another() {
    let dashboard: Value = serde_json::from_str(&read(FILES[0])).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "each has a number of its own");
    let mut taken = BTreeSet::new();
    for panel in panels {
        let title = &panel["title"];
        let queries = panel["targets"].as_array().expect("targets");
        assert!(queries.iter().all(|query| query["expr"].as_str().is_some_and(|expr| !expr.is_empty())), "{title}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a number"));
        assert!(x + w <= 24 && w > 0 && h > 0, "{title} runs over the edge");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{title} stands on another");
        }
    }
}
