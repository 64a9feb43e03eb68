//! What the tests of this folder share: the tiny recognizer of `tests/fixtures/transducer/tiny`, which
//! `antiphon_export.synthetic.transducer` writes, and utterances without the scheduler.

use super::files::{ModelFiles, Sizes};
use super::graphs::Graphs;
use super::greedy::{SearchRow, search};
use super::predictor::PredictorState;
use super::states::{EncoderRow, EncoderStates, StreamKey};
use super::stream::Stream;
use super::terms::TermProgress;
use super::vocabulary::Token;
use super::{SttConfig, Transducer, open};
use antiphon_audio::decode;
use antiphon_audio::mel::nemo::Features;
use antiphon_engine_api::stt::{Stt, SttOptions, SttUtterance};
use antiphon_inference::onnx::{OnnxConfig, Runtime};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The tiny model's folder.
pub(super) fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/transducer/tiny")
}

/// A folder with the tiny model, some of whose files are those of another name in its folder.
pub(super) fn folder(replaced: &[(&str, &str)]) -> tempfile::TempDir {
    folder_of(&tiny(), &["encoder.onnx", "decoder.onnx", "joiner.onnx", "tokens.txt"], replaced)
}

/// A folder with these files of a model, some of which are those of another name.
pub(super) fn folder_of(model: &Path, names: &[&str], replaced: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in names {
        let from = replaced.iter().find(|(replaced, _)| replaced == name).map_or(*name, |(_, from)| from);
        std::fs::copy(model.join(from), folder.path().join(name)).expect("copied");
    }
    folder
}

/// The graphs of a folder.
pub(super) fn graphs(folder: &Path) -> Graphs {
    let files = ModelFiles::find(folder).expect("the files are there");
    let n_tokens = files.vocabulary().expect("tokens").len();
    // Threads cost graphs of this size more than they save.
    let onnx = OnnxConfig { intra_threads: 1, ..crate::testing::onnx() };
    let runtime = Runtime::open(&onnx).expect("`make onnxruntime` was run");
    Graphs::load(&files, n_tokens, &runtime).expect("they fit")
}

/// The sentence of the golden tokens, 2.06 s at 16 kHz.
pub(super) fn sentence() -> Vec<i16> {
    let path = tiny().join("../../speech/bambatse_02_haggard_0323.flac");
    let file = std::fs::read(path).expect("the fixture");
    decode::read(file.into(), Duration::from_secs(10)).expect("FLAC").samples
}

/// The samples of the sentence that a stream of that number speaks: its own part of it.
pub(super) fn speech(number: usize, n_samples: usize) -> Vec<i16> {
    let sentence = sentence();
    let first = number * 4_001 % sentence.len();
    sentence.iter().cycle().skip(first).take(n_samples).copied().collect()
}

/// Sizes of the tiny model.
pub(super) fn sizes() -> Sizes {
    graphs(&tiny()).sizes
}

/// The windows of a whole utterance, its last chunk completed with silence.
fn windows(pcm: &[i16], sizes: &Sizes) -> Vec<Vec<f32>> {
    let mut frames = Vec::new();
    let mut features = Features::new(sizes.n_mels).stream();
    let n_frames = features.push(pcm, &mut frames);
    features.finish(n_frames.next_multiple_of(sizes.shift) - n_frames, &mut frames);
    let stream = Stream::new(sizes);
    stream.append(&frames);
    std::iter::from_fn(|| stream.take()).map(|chunk| chunk.frames).collect()
}

/// A stream under test, without the scheduler.
pub(super) struct Speaker {
    pub(super) key: StreamKey,
    predictor: PredictorState,
    pub(super) terms: Option<TermProgress>,
    pub(super) windows: Vec<Vec<f32>>,
    n_chunks: usize,
    n_frames: u64,
    pub(super) tokens: Vec<Token>,
}

impl Speaker {
    pub(super) fn new(states: &mut EncoderStates, graphs: &Graphs, pcm: &[i16]) -> Self {
        Self {
            key: states.begin(graphs).expect("a slot is free"),
            predictor: graphs.first_prediction().expect("it runs"),
            terms: None,
            windows: windows(pcm, &graphs.sizes),
            n_chunks: 0,
            n_frames: 0,
            tokens: Vec::new(),
        }
    }

    pub(super) fn is_through(&self) -> bool {
        self.n_chunks == self.windows.len()
    }

    pub(super) fn ids(&self) -> Vec<(u32, u64)> {
        self.tokens.iter().map(|token| (token.id, token.frame)).collect()
    }
}

/// The next chunk of each of these, in one step.
pub(super) fn step(states: &mut EncoderStates, graphs: &Graphs, speakers: &mut [&mut Speaker]) {
    let rows: Vec<_> = speakers
        .iter()
        .map(|one| EncoderRow { key: one.key, frames: &one.windows[one.n_chunks], prompt: 0, keeps: true })
        .collect();
    let encoded = states.run(graphs, &rows).expect("it runs");
    let mut rows: Vec<_> = speakers
        .iter_mut()
        .zip(&encoded)
        .map(|(one, encoded)| SearchRow {
            frames: &encoded.frames,
            first_frame: one.n_frames,
            predictor: &mut one.predictor,
            tokens: &mut one.tokens,
            terms: one.terms.as_mut(),
            with_logprobs: false,
            has_failed: false,
        })
        .collect();
    search(graphs, &mut rows).expect("it runs");
    assert!(rows.iter().all(|row| !row.has_failed));
    for (one, encoded) in speakers.iter_mut().zip(&encoded) {
        one.n_chunks += 1;
        one.n_frames += (encoded.frames.len() / graphs.width) as u64;
    }
}

/// The tokens of utterances that run together, each until it is through.
pub(super) fn run_all(graphs: &Graphs, pcm: &[Vec<i16>]) -> Vec<Vec<(u32, u64)>> {
    let mut states = EncoderStates::new(graphs, pcm.len()).expect("there is memory");
    let mut speakers: Vec<_> = pcm.iter().map(|pcm| Speaker::new(&mut states, graphs, pcm)).collect();
    while speakers.iter().any(|speaker| !speaker.is_through()) {
        let mut ready: Vec<_> = speakers.iter_mut().filter(|speaker| !speaker.is_through()).collect();
        step(&mut states, graphs, &mut ready);
    }
    speakers.iter().map(Speaker::ids).collect()
}

/// Settings with eight slots.
pub(super) fn config(model: &Path) -> SttConfig {
    SttConfig { engine: "transducer".into(), model: model.display().to_string(), slots: 8, ..SttConfig::default() }
}

pub(super) fn recognizer(model: &Path) -> Transducer {
    open(&config(model), &crate::testing::onnx()).expect("it loads")
}

/// What the loop in Python finds in the sentence.
#[derive(serde::Deserialize)]
pub(super) struct Golden {
    pub(super) tokens: Vec<(u32, u64)>,
    pub(super) prompted: std::collections::HashMap<String, Vec<(u32, u64)>>,
}

pub(super) fn golden() -> Golden {
    let text = std::fs::read(tiny().join("golden.json")).expect("the fixture");
    serde_json::from_slice(&text).expect("JSON")
}

/// Pushes audio in pieces of an odd length.
pub(super) async fn push(utterance: &mut Box<dyn SttUtterance>, pcm: &[i16]) {
    for piece in pcm.chunks(777) {
        utterance.push(piece.to_vec()).await.expect("it is taken");
    }
}

pub(super) async fn opened(engine: &Transducer, options: SttOptions) -> Box<dyn SttUtterance> {
    engine.open(options).await.expect("a slot is free")
}

pub(super) fn text_of(engine: &Transducer, tokens: &[(u32, u64)]) -> String {
    let tokens: Vec<_> = tokens.iter().map(|(id, frame)| Token { id: *id, frame: *frame, logprob: 0.0 }).collect();
    engine.shared.vocabulary.transcript(&tokens, 80, false, false).text
}

/// What is refused about a model's folder.
pub(super) fn refused(folder: &Path) -> String {
    match open(&config(folder), &crate::testing::onnx()) {
        Ok(_) => panic!("a model that is wrong was taken"),
        Err(error) => error.to_string(),
    }
}
