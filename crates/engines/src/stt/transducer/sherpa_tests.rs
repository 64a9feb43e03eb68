//! The engine against sherpa-onnx, which runs the same files: the tokens that it finds in the same features
//! (`tests/fixtures/transducer/sherpa.json`; `antiphon_export.synthetic.sherpa_golden` writes it).

use super::graphs::Graphs;
use super::states::EncoderStates;
use super::testing::{Speaker, folder_of, graphs, step, tiny};
use std::collections::HashMap;
use std::path::PathBuf;

#[derive(serde::Deserialize)]
struct Golden {
    /// Mel frames of each utterance.
    n_frames: Vec<usize>,
    /// By model: of each utterance the tokens, each with its encoder frame.
    tokens: HashMap<String, Vec<Vec<(u32, u64)>>>,
}

fn fixtures() -> PathBuf {
    tiny().join("..")
}

fn golden() -> Golden {
    let text = std::fs::read(fixtures().join("sherpa.json")).expect("the fixture");
    serde_json::from_slice(&text).expect("JSON")
}

/// The windows of each utterance. sherpa-onnx begins with the first frame of the sound, without zeros before it, and
/// leaves a window that is not whole.
fn windows(graphs: &Graphs, n_frames: &[usize]) -> Vec<Vec<Vec<f32>>> {
    let bytes = std::fs::read(fixtures().join("sherpa.f32")).expect("the fixture");
    let numbers: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let sizes = &graphs.sizes;
    assert_eq!(numbers.len(), n_frames.iter().sum::<usize>() * sizes.n_mels);
    let mut rest = &numbers[..];
    let mut all = Vec::new();
    for n_frames in n_frames {
        let (features, others) = rest.split_at(n_frames * sizes.n_mels);
        rest = others;
        let windows = features.windows(sizes.window * sizes.n_mels).step_by(sizes.shift * sizes.n_mels);
        all.push(windows.map(<[f32]>::to_vec).collect());
    }
    all
}

/// The tokens of utterances that run together.
fn run_together(graphs: &Graphs, utterances: &[Vec<Vec<f32>>]) -> Vec<Vec<(u32, u64)>> {
    let mut states = EncoderStates::new(graphs, utterances.len()).expect("there is memory");
    let mut speakers = Vec::new();
    for windows in utterances {
        let mut speaker = Speaker::new(&mut states, graphs, &[]);
        speaker.windows.clone_from(windows);
        speakers.push(speaker);
    }
    while speakers.iter().any(|speaker| !speaker.is_through()) {
        let mut ready: Vec<_> = speakers.iter_mut().filter(|speaker| !speaker.is_through()).collect();
        step(&mut states, graphs, &mut ready);
    }
    speakers.iter().map(Speaker::ids).collect()
}

#[test]
fn tokens_are_those_of_sherpa_onnx_with_the_same_features() {
    let golden = golden();
    let names = ["encoder.onnx", "decoder.onnx", "joiner.onnx", "tokens.txt"];
    let replaced: [(&str, &[(&str, &str)]); 2] = [("tiny", &[]), ("nemo", &[("encoder.onnx", "encoder_nemo.onnx")])];
    for (model, replaced) in replaced {
        let folder = folder_of(&fixtures().join(model), &names, replaced);
        let graphs = graphs(folder.path());
        let utterances = windows(&graphs, &golden.n_frames);
        let expected = &golden.tokens[model];
        assert_eq!(&run_together(&graphs, &utterances), expected, "{model}, all at once");
        for (i, utterance) in utterances.iter().enumerate() {
            let alone = run_together(&graphs, std::slice::from_ref(utterance));
            assert_eq!(alone[0], expected[i], "{model}, utterance {i} alone");
            assert!(!expected[i].is_empty(), "{model}: no tokens show nothing");
        }
    }
}
