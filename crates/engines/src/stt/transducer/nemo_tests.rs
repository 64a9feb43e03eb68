//! The engine against NeMo's own code: a tiny model of its classes with random weights, and what its streaming loop makes of a
//! sentence (`tests/fixtures/transducer/nemo`; `antiphon_export.synthetic.fastconformer_golden` writes it).

use super::files::ModelFiles;
use super::graphs::Graphs;
use super::states::{EncoderRow, EncoderStates};
use super::testing::{Speaker, folder_of, graphs, run_all, speech};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The largest difference from NeMo.
const TOLERANCE: f32 = 1e-4;

/// Samples of the utterance whose caches are compared, 200 chunks.
const LONG: usize = 200 * 2_560;

#[derive(serde::Deserialize)]
struct Golden {
    plain: Expected,
    normalized: Expected,
    /// Of utterances of different lengths: tokens, each with the number of its chunk.
    streams: Vec<Vec<(u32, u64)>>,
    arrays: HashMap<String, ArraySlice>,
}

/// Of the long utterance.
#[derive(serde::Deserialize)]
struct Expected {
    tokens: Vec<(u32, u64)>,
    /// Of the attention's cache, at every third chunk.
    lengths: Vec<i64>,
}

#[derive(serde::Deserialize)]
struct ArraySlice {
    first: usize,
    shape: Vec<usize>,
}

fn nemo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/transducer/nemo")
}

fn golden() -> Golden {
    let text = std::fs::read(nemo().join("golden.json")).expect("the fixture");
    serde_json::from_slice(&text).expect("JSON")
}

impl Golden {
    fn array(&self, name: &str) -> Vec<Vec<f32>> {
        let bytes = std::fs::read(nemo().join("golden.f32")).expect("the fixture");
        let numbers: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let ArraySlice { first, shape } = &self.arrays[name];
        let each = shape[1..].iter().product();
        numbers[*first..*first + shape[0] * each].chunks(each).map(<[f32]>::to_vec).collect()
    }
}

/// The last sample is zero, as in the fixture: what follows is silence.
fn utterance(number: usize, n_samples: usize) -> Vec<i16> {
    let mut pcm = speech(number, n_samples);
    pcm[n_samples - 1] = 0;
    pcm
}

/// Our export of the model, our export where features are normalized, and NeMo's own.
fn ours() -> tempfile::TempDir {
    folder_of(&nemo(), &["encoder.onnx", "decoder_joint.onnx", "tokens.txt"], &[])
}

fn normalized() -> tempfile::TempDir {
    let replaced = [("encoder.onnx", "encoder_normalized.onnx")];
    folder_of(&nemo(), &["encoder.onnx", "decoder_joint.onnx", "tokens.txt"], &replaced)
}

fn nemos() -> tempfile::TempDir {
    let replaced = [("encoder.onnx", "encoder_nemo.onnx")];
    folder_of(&nemo(), &["encoder.onnx", "decoder.onnx", "joiner.onnx", "tokens.txt"], &replaced)
}

/// Tokens with the numbers of their chunks.
fn by_chunk(graphs: &Graphs, tokens: &[(u32, u64)]) -> Vec<(u32, u64)> {
    tokens.iter().map(|(id, frame)| (*id, frame / graphs.sizes.n_new() as u64)).collect()
}

fn assert_close(what: &str, chunk: usize, ours: &[f32], nemos: &[f32]) {
    assert_eq!(ours.len(), nemos.len(), "{what} of chunk {chunk}");
    let worst = ours.iter().zip(nemos).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= TOLERANCE, "{what} of chunk {chunk} differ by {worst}");
}

/// Runs the encoder over the long utterance and compares outputs and caches with NeMo's.
fn compare_encoder(graphs: &Graphs, mut states: EncoderStates, name: &str, lengths: &[i64]) {
    let golden = golden();
    let outputs = golden.array(&format!("{name}_outputs"));
    let channels = golden.array(&format!("{name}_channels"));
    let times = golden.array(&format!("{name}_times"));
    let speaker = Speaker::new(&mut states, graphs, &utterance(0, LONG));
    assert_eq!((speaker.windows.len(), outputs.len()), (200, 200));
    for (chunk, window) in speaker.windows.iter().enumerate() {
        let row = EncoderRow { key: speaker.key, frames: window, prompt: 0, keeps: true };
        let encoded = states.run(graphs, &[row]).expect("it runs");
        assert_close("the outputs", chunk, &encoded[0].frames, &outputs[chunk]);
        if chunk % 3 == 2 {
            let (channel, time, length) = states.caches(speaker.key);
            assert_eq!(length, lengths[chunk / 3]);
            assert_close("the attention's caches", chunk, &channel, &channels[chunk / 3]);
            assert_close("the convolutions' caches", chunk, &time, &times[chunk / 3]);
        }
    }
}

#[test]
fn outputs_and_caches_are_nemos_over_two_hundred_chunks() {
    for folder in [ours(), nemos()] {
        let graphs = graphs(folder.path());
        let states = EncoderStates::new(&graphs, 1).expect("there is memory");
        compare_encoder(&graphs, states, "plain", &golden().plain.lengths);
        let states = EncoderStates::bound(&graphs, 1).expect("there is memory");
        compare_encoder(&graphs, states, "plain", &golden().plain.lengths);
    }
}

#[test]
fn outputs_and_caches_are_nemos_where_features_are_normalized() {
    let graphs = graphs(normalized().path());
    let states = EncoderStates::new(&graphs, 1).expect("there is memory");
    compare_encoder(&graphs, states, "normalized", &golden().normalized.lengths);
}

#[test]
fn tokens_of_a_long_utterance_are_nemos() {
    let golden = golden();
    for (folder, expected) in
        [(ours(), &golden.plain.tokens), (nemos(), &golden.plain.tokens), (normalized(), &golden.normalized.tokens)]
    {
        let graphs = graphs(folder.path());
        let found = run_all(&graphs, &[utterance(0, LONG)]);
        assert_eq!(&by_chunk(&graphs, &found[0]), expected);
    }
}

#[test]
fn tokens_are_nemos_alone_and_in_ragged_batches_of_eight() {
    let golden = golden();
    let pcm: Vec<_> = (0..8).map(|i| utterance(i, 9_000 + 2_900 * i)).collect();
    let mut takes_batches = Vec::new();
    for folder in [ours(), nemos()] {
        let graphs = graphs(folder.path());
        takes_batches.push(graphs.predictor.takes_batches());
        for (i, pcm) in pcm.iter().enumerate() {
            let alone = run_all(&graphs, std::slice::from_ref(pcm));
            assert_eq!(by_chunk(&graphs, &alone[0]), golden.streams[i], "stream {i} alone");
        }
        let together = run_all(&graphs, &pcm);
        for (i, tokens) in together.iter().enumerate() {
            assert_eq!(by_chunk(&graphs, tokens), golden.streams[i], "stream {i} in company");
        }
    }
    assert_eq!(takes_batches, [true, false], "NeMo's own export of the predictor declares one row");
    let kinds: std::collections::HashSet<u32> = golden.streams.iter().flatten().map(|(id, _)| *id).collect();
    assert!(kinds.len() > 4, "{} different tokens show little", kinds.len());
}

#[test]
fn metadata_of_the_oldest_exports_is_enough() {
    let folder = nemos();
    let sizes = graphs(folder.path()).sizes;
    assert_eq!((sizes.n_mels, sizes.chunk_ms()), (80, 160), "from the shape of the input and the shift");
    assert!(ModelFiles::find(folder.path()).is_ok());
}
