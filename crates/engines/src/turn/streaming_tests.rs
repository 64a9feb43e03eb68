//! With graphs of turn-1-mini's layout whose answers can be calculated (`tests/fixtures/onnx/ears.py`).

use super::*;
use crate::contract::path_of;
use crate::testing::onnx;
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

const STEP: usize = 2_560;
const FRAME: usize = 320;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/onnx").join(name)
}

fn open(name: &str) -> StreamingTurnModel {
    StreamingTurnModel::open(&fixture(name), &onnx()).expect("`make onnxruntime` was run")
}

/// Noise whose loudness changes every frame.
fn speech(n: usize) -> Vec<i16> {
    let mut state = 1u32;
    let sample = |i: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 18) as i32 - 8_192) as i16 / (4 + (i / FRAME) as i16 % 7)
    };
    (0..n).map(sample).collect()
}

/// What the fixture computes: see `ears.py`. The states are all the same number.
fn expected(pcm: &[i16]) -> f64 {
    let mut audio = vec![0.0; pcm.len().div_ceil(STEP).max(1) * STEP - pcm.len()];
    audio.extend(pcm.iter().map(|sample| f64::from(*sample) / 32_768.0));
    let power = |samples: &[f64]| samples.iter().map(|x| x * x).sum::<f64>() / samples.len() as f64;
    let mut state = 0.0;
    let mut odds = 0.0;
    for step in audio.chunks(STEP) {
        odds = 1_000.0 * power(&step[STEP - FRAME..]) + 100.0 * state / 2.0 - 1.0;
        state = state / 2.0 + power(step);
    }
    1.0 / (1.0 + f64::exp(-odds))
}

#[tokio::test]
async fn it_hears_all_steps_and_the_last_ends_with_the_audio() {
    let model = open("streaming-turn.onnx");
    for n in [0, 1, FRAME, STEP, STEP + 1, 3 * STEP - 7, 40 * STEP] {
        let pcm = speech(n);
        let got = f64::from(model.judge(pcm.clone()).await.expect("it answers"));
        assert!((got - expected(&pcm)).abs() < 1e-4, "{n} samples: {got}, not {}", expected(&pcm));
    }
    let pcm = speech(2 * STEP);
    assert!(expected(&pcm) - expected(&pcm[STEP..]) > 1e-3, "the states count");
}

#[tokio::test]
async fn what_is_older_than_the_span_does_not_count() {
    let model = open("streaming-turn.onnx");
    assert_eq!(model.span(), Samples(8 * 16_000));
    let pcm = speech(12 * 16_000);
    let got = f64::from(model.judge(pcm.clone()).await.expect("it answers"));
    assert!((got - expected(&pcm[4 * 16_000..])).abs() < 1e-4);
}

#[tokio::test]
async fn a_class_answers_each_question() {
    let model = open("streaming-turn-claims.onnx");
    assert!(model.judges_overlap());
    let pcm = speech(4 * STEP);
    let ended = f64::from(model.judge(pcm.clone()).await.expect("it answers"));
    let claims = f64::from(model.judge_overlap(pcm.clone()).await.expect("it answers"));
    assert!((ended - expected(&pcm)).abs() < 1e-4 && (claims - (1.0 - expected(&pcm))).abs() < 1e-4);
    let model = open("streaming-turn.onnx");
    assert!(!model.judges_overlap());
    assert!(matches!(model.judge_overlap(pcm).await, Err(TurnModelError::Unavailable(_))));
}

/// The fixture's graph beside a changed contract.
fn changed(change: impl FnOnce(&mut Value)) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("model.onnx");
    std::fs::copy(fixture("streaming-turn.onnx"), &model).expect("copied");
    let text = std::fs::read_to_string(fixture("streaming-turn.json")).expect("a contract");
    let mut contract = serde_json::from_str(&text).expect("JSON");
    change(&mut contract);
    std::fs::write(path_of(&model), contract.to_string()).expect("written");
    (folder, model)
}

#[test]
fn a_contract_that_is_not_the_graphs_is_refused_with_the_reason() {
    type Change = fn(&mut Value);
    let cases: [(Change, &str); 14] = [
        (|c| c["sample_rate"] = json!(8_000), "sample_rate is 8000"),
        (|c| c["step"] = json!(0), "step is 0"),
        (|c| c["step"] = json!(1 << 30), "step is 1073741824"),
        (|c| c["step"] = json!(1_280), "step asks for [1, 1280]"),
        (|c| c["span_ms"] = json!(0), "span_ms makes 0 steps"),
        (|c| c["span_ms"] = json!(3_600_000), "span_ms makes"),
        (|c| c["classes"] = json!([]), "classes is empty"),
        (|c| c["classes"] = json!(["backchannel"]), "no class is \"turn_end\""),
        (|c| c["classes"] = json!(["turn_end", "a", "b"]), "8 probabilities for 3 classes"),
        (|c| c["audio"] = json!("sound"), "the graph has no input \"sound\""),
        (|c| c["states"][2]["output"] = json!("x"), "the graph has no output \"x\""),
        (|c| drop(c["states"].as_array_mut().expect("a list").pop()), "the graph also takes \"state_6\""),
        (|c| c["states"][2]["output"] = json!("state_4_next"), "has 5 numbers, \"state_2\" takes 3"),
        (|c| c["frames"] = json!(8), "unknown field `frames`"),
    ];
    for (change, why) in cases {
        let (_folder, model) = changed(change);
        let error = StreamingTurnModel::open(&model, &onnx()).err().expect("it is refused").to_string();
        assert!(error.contains(why), "{error}, not {why}");
    }
}

#[test]
fn a_contract_that_is_missing_or_too_large_is_refused() {
    let (_folder, model) = changed(|_| {});
    std::fs::write(path_of(&model), vec![b' '; 65_537]).expect("written");
    let error = |model: &Path| StreamingTurnModel::open(model, &onnx()).err().expect("it is refused").to_string();
    assert!(error(&model).contains("65536 bytes at most"));
    std::fs::remove_file(path_of(&model)).expect("removed");
    assert!(error(&model).contains("model.json"));
}

#[test]
fn a_contract_beside_the_model_makes_it_a_streaming_one() {
    assert_eq!(crate::turn::engine_of(&fixture("streaming-turn.onnx")), "streaming-turn");
    assert_eq!(crate::turn::engine_of(&fixture("smart-turn.onnx")), "smart-turn");
    assert_eq!(crate::turn::engine_of(Path::new("smart-turn-v3")), "smart-turn");
}
