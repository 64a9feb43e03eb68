//! The `silero` engine: Silero VAD 5 and 6, a recurrent network, by ONNX Runtime.
//!
//! The graph takes `input`, f32 `[1, 576]` (64 samples of the last window before the 512 of this one, 32 ms at 16 kHz),
//! `state`, f32 `[2, 1, 128]`, and `sr`, an i64; it gives `output`, P(speech), and `stateN`, the next state. All streams
//! share one session, which lives on the processor with one thread whatever `[onnx]` says, and ingress runs it inline:
//! Silero publishes less than 1 ms a window on one core. It was not measured here, where no weights are at hand.

use super::{Vad, VadError, VadStream};
use crate::onnx::{Kind, Model, ModelOptions, OnnxConfig, OnnxError, Port, Runtime, Signature, Tensor};
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Samples of a window at 16 kHz, and of the one before that stand in front: what 5 and 6 were trained with.
const WINDOW: usize = 512;
const CONTEXT: usize = 64;
/// Numbers of a stream's state.
const STATE: usize = 2 * 128;

static SIGNATURE: Signature = Signature {
    family: "Silero VAD model",
    inputs: &[
        Port::new("input", &[Kind::F32], 2),
        Port::new("state", &[Kind::F32], 3),
        Port::new("sr", &[Kind::I64], 0),
    ],
    outputs: &[Port::new("output", &[Kind::F32], 2), Port::new("stateN", &[Kind::F32], 3)],
};

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Silero(Arc<Model>);

impl Silero {
    /// Loads the graph and runs it once. Blocks meanwhile, for about 0.1 s. [`VadError::Unavailable`] says what is wrong
    /// with the library or the file.
    pub fn open(path: &Path, onnx: &OnnxConfig) -> Result<Self, VadError> {
        let unavailable = |error: OnnxError| VadError::Unavailable(format!("vad.model: {error}"));
        let runtime = Runtime::open(onnx).map_err(unavailable)?;
        let options = ModelOptions { signature: Some(&SIGNATURE), intra_threads: Some(1), on_cpu: true };
        let engine = Self(Arc::new(runtime.load(path, &options).map_err(unavailable)?));
        engine.open().probability(&[0; WINDOW]).map_err(|error| VadError::Unavailable(error.to_string()))?;
        Ok(engine)
    }
}

impl Vad for Silero {
    fn name(&self) -> &str {
        "silero"
    }

    fn window(&self) -> usize {
        WINDOW
    }

    fn open(&self) -> Box<dyn VadStream> {
        let (never, input) = (CancellationToken::new(), [0.0; CONTEXT + WINDOW]);
        Box::new(Stream { model: self.0.clone(), input, state: vec![0.0; STATE], never })
    }
}

struct Stream {
    model: Arc<Model>,
    /// The last window's end, then this window.
    input: [f32; CONTEXT + WINDOW],
    state: Vec<f32>,
    never: CancellationToken,
}

impl Stream {
    fn run(&mut self) -> Result<f32, OnnxError> {
        let inputs = [
            ("input", Tensor::f32([1, CONTEXT + WINDOW], &self.input)),
            ("state", Tensor::f32([2, 1, 128], &self.state)),
            ("sr", Tensor::i64([], &[16_000])),
        ];
        let outputs = self.model.run(&inputs, &self.never)?;
        let probability = outputs.named("output")?.f32()?.first().copied().unwrap_or(f32::NAN);
        let state = outputs.named("stateN")?.f32()?;
        if state.len() == STATE {
            self.state.copy_from_slice(state);
        }
        Ok(probability)
    }
}

impl VadStream for Stream {
    fn probability(&mut self, window: &[i16]) -> Result<f32, VadError> {
        if window.len() != WINDOW {
            return Err(VadError::Window { expected: WINDOW, got: window.len() });
        }
        self.input.copy_within(WINDOW.., 0);
        for (x, sample) in self.input[CONTEXT..].iter_mut().zip(window) {
            *x = f32::from(*sample) / 32_768.0;
        }
        let probability = self.run().map_err(|error| VadError::Failed(error.to_string()))?;
        if !probability.is_finite() {
            return Err(VadError::Failed("it gave no number".into()));
        }
        Ok(probability.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine() -> Silero {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/onnx/silero.onnx");
        Silero::open(&path, &OnnxConfig::default()).expect("`make onnxruntime` was run")
    }

    fn window(seed: u32) -> Vec<i16> {
        (0..WINDOW as u32).map(|i| ((i * 7 + seed * 131) % 4_001) as i16 - 2_000).collect()
    }

    /// What the fixture computes (`tests/fixtures/onnx/ears.py`): of all 576 samples and of one number of the state, which
    /// halves and takes the mean of the first 64 squares, those of the window before.
    fn expected(windows: &[Vec<i16>]) -> Vec<f32> {
        let (mut state, mut before) = (0.0f32, vec![0.0f32; CONTEXT]);
        let mut out = Vec::new();
        for window in windows {
            let samples: Vec<f32> = window.iter().map(|x| f32::from(*x) / 32_768.0).collect();
            let input: Vec<f32> = before.iter().chain(&samples).copied().collect();
            let mean = |xs: &[f32]| xs.iter().map(|x| x * x).sum::<f32>() / xs.len() as f32;
            let odds = 1_000.0 * mean(&input) + 100.0 * state - 1.0;
            out.push(1.0 / (1.0 + (-odds).exp()));
            state = 0.5 * state + mean(&before);
            before = samples[WINDOW - CONTEXT..].to_vec();
        }
        out
    }

    #[test]
    fn each_stream_has_its_own_state_and_the_end_of_its_last_window() {
        let engine = engine();
        let (one, other): (Vec<_>, Vec<_>) = ((0..6).map(window).collect(), (6..12).map(window).collect());
        let (mut first, mut second) = (engine.open(), engine.open());
        for (i, (a, b)) in expected(&one).into_iter().zip(expected(&other)).enumerate() {
            let got = [first.probability(&one[i]), second.probability(&other[i])].map(|p| p.expect("a window"));
            assert!((got[0] - a).abs() < 1e-4 && (got[1] - b).abs() < 1e-4, "{i}: {got:?}, not {a} and {b}");
        }
    }

    #[test]
    fn a_window_of_another_length_is_refused() {
        let mut stream = engine().open();
        assert!(matches!(stream.probability(&[0; 256]), Err(VadError::Window { expected: 512, got: 256 })));
        assert!(stream.probability(&[0; WINDOW]).is_ok());
    }

    #[test]
    fn a_model_of_another_family_is_refused_with_what_it_takes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/onnx/smart-turn.onnx");
        let error = Silero::open(&path, &OnnxConfig::default()).err().expect("refused").to_string();
        assert!(error.contains("Silero VAD model") && error.contains("input_features"), "{error}");
    }
}
