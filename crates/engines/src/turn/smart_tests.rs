//! With graphs of the same signature whose answers can be calculated (`tests/fixtures/onnx/ears.py`).

use super::*;
use crate::testing::onnx;
use std::path::PathBuf;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/onnx").join(name)
}

fn open(name: &str) -> SmartTurn {
    SmartTurn::open(&fixture(name), &onnx()).expect("`make onnxruntime` was run")
}

/// Parts of loud noise, or silence, with their lengths in tenths of a second.
fn turn(parts: &[(usize, bool)]) -> Vec<i16> {
    let mut state = 1u32;
    let mut sample = |loud: bool| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if loud { (state >> 18) as i16 - 8_192 } else { 0 }
    };
    parts
        .iter()
        .flat_map(|(tenths, loud)| (0..tenths * 1_600).map(|_| *loud).collect::<Vec<_>>())
        .map(&mut sample)
        .collect()
}

/// What the fixture computes of a spectrogram: the mean of its last second against that of all.
fn expected(pcm: &[i16]) -> f32 {
    let features = LogMel::new(N_MELS).spectrogram(&prepared(pcm));
    let mean = |frames: std::ops::Range<usize>| {
        let n = frames.len() * N_MELS;
        (0..N_MELS).flat_map(|band| &features[band * N_FRAMES..][frames.clone()]).sum::<f32>() / n as f32
    };
    1.0 / (1.0 + (-4.0 * (mean(700..800) - mean(0..800))).exp())
}

#[tokio::test]
async fn it_hears_the_last_eight_seconds_with_silence_in_front() {
    let model = open("smart-turn.onnx");
    let over = turn(&[(10, true), (60, false), (10, true)]);
    let paused = turn(&[(70, true), (10, false)]);
    let before: Vec<i16> = turn(&[(30, true)]).into_iter().chain(over.iter().copied()).collect();
    for pcm in [over.clone(), paused.clone(), turn(&[(5, true)]), Vec::new(), before] {
        let got = model.judge(pcm.clone()).await.expect("it answers");
        assert!((got - expected(&pcm)).abs() < 1e-4, "{got}, not {}", expected(&pcm));
    }
    assert!(expected(&over) > 0.9 && expected(&paused) < 0.1, "{} {}", expected(&over), expected(&paused));
}

#[tokio::test]
async fn pauses_that_fall_together_get_each_its_own_answer_batched_or_not() {
    for (name, at_once) in [("smart-turn.onnx", MAX_BATCH), ("smart-turn-single.onnx", 1)] {
        let model = open(name);
        assert_eq!(model.concurrency(), at_once, "{name}");
        let turns: Vec<Vec<i16>> = (1..20).map(|i| turn(&[(i * 3, true), (i % 5, false)])).collect();
        let answers = futures_util::future::join_all(turns.iter().map(|pcm| model.judge(pcm.clone()))).await;
        for (pcm, got) in turns.iter().zip(answers) {
            let got = got.expect("it answers");
            assert!((got - expected(pcm)).abs() < 1e-4, "{name}: {got}, not {}", expected(pcm));
        }
    }
}

#[tokio::test]
async fn who_does_not_wait_any_more_costs_nothing() {
    let model = open("smart-turn.onnx");
    drop(model.judge(turn(&[(10, true)])));
    for _ in 0..3 {
        let mut asked = model.judge(turn(&[(10, true)]));
        let _ = futures_util::poll!(&mut asked);
    }
    let pcm = turn(&[(20, true)]);
    let got = model.judge(pcm.clone()).await.expect("it answers");
    assert!((got - expected(&pcm)).abs() < 1e-4);
    assert_eq!(model.scheduler.waiting(), 0);
}

#[test]
fn a_model_of_another_family_is_refused_with_what_it_takes() {
    let error = SmartTurn::open(&fixture("silero.onnx"), &onnx()).err().expect("refused").to_string();
    assert!(error.contains("smart-turn v3") && error.contains("state"), "{error}");
    let missing = SmartTurn::open(&fixture("none.onnx"), &onnx()).err().expect("refused").to_string();
    assert!(missing.contains("none.onnx"), "{missing}");
}
