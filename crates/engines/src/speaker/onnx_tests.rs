//! With graphs whose embeddings can be calculated (`tests/fixtures/onnx/voices.py`).

use super::*;
use crate::contract::path_of;
use crate::testing::onnx;
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

const BANDS: usize = 80;
const SIZE: usize = 16;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/onnx").join(name)
}

fn open(name: &str) -> OnnxSpeakerModel {
    OnnxSpeakerModel::open(&fixture(name), &onnx()).expect("`make onnxruntime` was run")
}

/// Noise, and in every other tenth of a second a tone, the higher the larger `voice` is.
fn speech(voice: u16, n: usize) -> Arc<[i16]> {
    let mut state = 1u32;
    let sample = |i: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let noise = ((state >> 18) as i32 - 8_192) / 16;
        let hz = 200.0 * f64::from(voice);
        let tone = 8_000.0 * (std::f64::consts::TAU * hz * i as f64 / 16_000.0).sin();
        let sounds = (i / 1_600).is_multiple_of(2);
        if sounds { (noise + tone as i32) as i16 } else { noise as i16 }
    };
    (0..n).map(sample).collect()
}

/// What `speaker.onnx` computes.
fn expected(pcm: &[i16]) -> Vec<f32> {
    let mut frames = Filterbank::new(BANDS, FrameWindow::Hamming, 32_768.0).frames(pcm);
    subtract_mean(&mut frames, BANDS);
    let n_frames = frames.len() / BANDS;
    let mean =
        |band: usize| frames.chunks(BANDS).map(|frame| f64::from(frame[band].abs())).sum::<f64>() / n_frames as f64;
    let means: Vec<f64> = (0..BANDS).map(mean).collect();
    let weight = |band: usize, at: usize| ((band * SIZE + at) as f64).powi(2).cos();
    let number = |at: usize| means.iter().enumerate().map(|(band, mean)| mean * weight(band, at)).sum::<f64>() as f32;
    unit((0..SIZE).map(number).collect()).expect("a direction")
}

#[track_caller]
fn same(got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len());
    let is_near = got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3);
    assert!(is_near, "{got:?}, not {expected:?}");
}

#[tokio::test]
async fn speaker_embeddings_are_the_graphs_at_length_one_of_the_last_span() {
    let model = open("speaker.onnx");
    assert_eq!(model.span(), Samples(3 * 16_000));
    assert_eq!(model.thresholds(), SpeakerThresholds { same_from: 0.6, other_below: 0.4, far_db: None });
    for n in [800, 11_200, 48_000, 80_000] {
        let pcm = speech(3, n);
        let got = model.embed(pcm.clone()).await.expect("it answers");
        same(&got, &expected(&pcm[n.saturating_sub(48_000)..]));
        let length: f32 = got.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5);
    }
}

#[tokio::test]
async fn speaker_queries_at_once_have_answers_of_their_own() {
    let model = open("speaker.onnx");
    assert_eq!(model.concurrency(), MAX_BATCH);
    let voices: Vec<Arc<[i16]>> = (1..20).map(|voice| speech(voice, 16_000 + 160 * (voice as usize % 2))).collect();
    let answers = futures_util::future::join_all(voices.iter().map(|pcm| model.embed(pcm.clone()))).await;
    for (pcm, answer) in voices.iter().zip(answers) {
        same(&answer.expect("it answers"), &expected(pcm));
    }
    let apart: f32 = expected(&voices[0]).iter().zip(&expected(&voices[18])).map(|(a, b)| (a - b).abs()).sum();
    assert!(apart > 0.05, "the voices differ: {apart}");
}

#[tokio::test]
async fn a_speaker_model_of_samples_takes_them_at_its_full_scale() {
    let model = open("speaker-waveform.onnx");
    assert_eq!(model.concurrency(), 1);
    let got = model.embed(vec![16_384; 8_000].into()).await.expect("it answers");
    same(&got, &[0.5f32.sqrt(), 0.5f32.sqrt()]);
}

#[tokio::test]
async fn a_speaker_model_has_no_embedding_of_silence_or_of_less_than_a_frame() {
    for (n, why) in [(399, "399 samples are less than a frame"), (16_000, "this sound has no embedding")] {
        let error = open("speaker.onnx").embed(vec![0; n].into()).await.expect_err("there is none");
        assert!(matches!(&error, SpeakerModelError::Failed(text) if text == why), "{error}");
    }
}

/// The fixture's graph beside a changed contract.
fn changed(name: &str, change: impl FnOnce(&mut Value)) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("model.onnx");
    std::fs::copy(fixture(name), &model).expect("copied");
    let text = std::fs::read_to_string(fixture(name).with_extension("json")).expect("a contract");
    let mut contract = serde_json::from_str(&text).expect("JSON");
    change(&mut contract);
    std::fs::write(path_of(&model), contract.to_string()).expect("written");
    (folder, model)
}

#[test]
fn a_speaker_models_contract_that_is_not_the_graphs_is_refused_with_the_reason() {
    type Change = fn(&mut Value);
    let cases: [(Change, &str); 14] = [
        (|c| c["sample_rate"] = json!(8_000), "sample_rate is 8000"),
        (|c| c["span_ms"] = json!(500), "span_ms is 500, it can be 1000 to 10000"),
        (|c| c["span_ms"] = json!(60_000), "span_ms is 60000"),
        (|c| c["same_from"] = json!(1.5), "same_from is 1.5"),
        (|c| c["other_below"] = json!(0.7), "other_below is not above same_from"),
        (|c| c["features"]["bands"] = json!(0), "bands is 0"),
        (|c| c["features"]["bands"] = json!(40), "features asks for [n, frames, 40]"),
        (|c| c["features"]["window"] = json!("hann"), "unknown variant `hann`"),
        (|c| c["features"]["full_scale"] = json!(0), "full_scale is 0"),
        (|c| c["features"] = json!({"kind": "waveform", "full_scale": 1}), "features asks for [n, samples]"),
        (|c| c["features"] = json!({"kind": "mfcc"}), "unknown variant `mfcc`"),
        (|c| c["input"] = json!("sound"), "the graph has no input \"sound\""),
        (|c| c["embedding"] = json!("x"), "the graph has no output \"x\""),
        (|c| c["states"] = json!([]), "unknown field `states`"),
    ];
    for (change, why) in cases {
        let (_folder, model) = changed("speaker.onnx", change);
        let error = OnnxSpeakerModel::open(&model, &onnx()).err().expect("it is refused").to_string();
        assert!(error.contains(why), "{error}, not {why}");
    }
}

#[test]
fn a_speaker_models_contract_that_is_missing_or_too_large_is_refused() {
    let (_folder, model) = changed("speaker.onnx", |_| {});
    std::fs::write(path_of(&model), vec![b' '; 65_537]).expect("written");
    let error = |model: &Path| OnnxSpeakerModel::open(model, &onnx()).err().expect("it is refused").to_string();
    assert!(error(&model).contains("65536 bytes at most"));
    std::fs::remove_file(path_of(&model)).expect("removed");
    assert!(error(&model).contains("model.json"));
}
