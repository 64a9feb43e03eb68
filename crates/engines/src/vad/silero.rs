//! The `silero` engine: Silero VAD 5 and 6, a recurrent network, by ONNX Runtime, behind earshot.
//!
//! The graph takes `input`, f32 `[1, 576]` (64 samples of the last window before the 512 of this one, 32 ms at 16 kHz),
//! `state`, f32 `[2, 1, 128]`, and `sr`, an i64; it gives `output`, P(speech), and `stateN`, the next state. A few sessions
//! serve all streams, which live on the processor with one thread each whatever `[onnx]` says; ingress runs them inline and a
//! stream waits for one only where all are at a window of another's. A window takes 0.1 ms, ten times as much as earshot
//! takes for it.
//!
//! So the network is a cascade's second stage: [`EarshotStream`] judges every step of 16 ms, and Silero runs while earshot
//! finds any sign of a voice, and for a second afterwards. A stream reports a probability for each step: at the first half of
//! a window that of the window before. Both are bounded by how far the step itself rises above the room, so that a turn's end
//! is found within a window. When it starts again it begins with a new state and the
//! last 128 ms. Its state is also reset after each two seconds of certain silence: after long music or noise a
//! state detects the next onset up to a second late. Without the bound by the room steady noise behind a turn holds its end
//! back. `antiphon-bench --only noise` measures it.
//!
//! A window that fails is judged by earshot alone, and after some in a row all windows of that stream are.

use super::earshot::{self, EarshotStream};
use antiphon_engine_api::vad::{Vad, VadError, VadStream};
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxConfig, OnnxError, Port, Runtime, Signature, Tensor};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;
use tokio_util::sync::CancellationToken;

/// Samples of the network's window at 16 kHz, and of the one before that stand in front: what 5 and 6 were trained with.
const WINDOW: usize = 512;
/// Samples of a step, half a window: for each of them a stream reports a probability.
const STEP: usize = earshot::WINDOW;
const CONTEXT: usize = 64;
/// Numbers of a stream's state.
const STATE: usize = 2 * 128;

/// Sessions at most, of some 2 MB each: as many windows are judged at a time.
const MOST_SESSIONS: usize = 4;

/// Consecutive windows that fail, 1 s, after which a stream uses earshot alone.
const MOST_FAILED: usize = 32;

/// Earshot's probability from which Silero is asked; earshot itself takes a voice for speech from 0.5 on. On speech in noise
/// of 20 to 0 dB nothing that Silero finds lies below it but for single windows (`antiphon-bench --only noise`).
const ASK_FROM: f32 = 0.1;
/// Windows for which it is asked after the last such one, 1 s: longer than pauses between words.
const ASK_FOR: u32 = 31;
/// Windows before the first one that Silero judges, 128 ms: earshot detects an onset late.
const REPLAYED: usize = 4;
/// Below this probability silence is certain.
const QUIET: f32 = 0.15;
/// Windows of certain silence, 2 s, after which the state is reset.
const RESET_AFTER: u32 = 62;

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
pub struct Silero(Arc<Sessions>);

/// The model, as often as windows may be judged at a time.
struct Sessions {
    models: Vec<Model>,
    n_opened: AtomicUsize,
}

impl Silero {
    /// Loads the graph, once for each core up to four, and runs it once. Blocks meanwhile, for about 0.1 s.
    /// [`VadError::Unavailable`] says what is wrong with the library or the file.
    pub fn open(path: &Path, onnx: &OnnxConfig) -> Result<Self, VadError> {
        let unavailable = |error: OnnxError| VadError::Unavailable(format!("vad.model: {error}"));
        let runtime = Runtime::open(onnx).map_err(unavailable)?;
        let options = ModelOptions { signature: Some(&SIGNATURE), intra_threads: Some(1), on_cpu: true };
        let n_sessions = available_parallelism().map_or(1, usize::from).min(MOST_SESSIONS);
        let models = (0..n_sessions).map(|_| runtime.load(path, &options)).collect::<Result<_, _>>();
        let sessions = Arc::new(Sessions { models: models.map_err(unavailable)?, n_opened: AtomicUsize::new(0) });
        Stream::new(sessions.clone()).run().map_err(unavailable)?;
        Ok(Self(sessions))
    }
}

impl Vad for Silero {
    fn name(&self) -> &str {
        "silero"
    }

    fn window(&self) -> usize {
        STEP
    }

    fn open(&self) -> Box<dyn VadStream> {
        Box::new(Stream::new(self.0.clone()))
    }
}

struct Stream {
    sessions: Arc<Sessions>,
    /// Which session it takes first.
    first: usize,
    /// Judges every step.
    ear: EarshotStream,
    /// The first half of the next window, and earshot's probability of it.
    first_half: Option<([i16; STEP], f32)>,
    /// The probability of the last window, not bounded by the room.
    last: f32,
    /// Windows for which the network still runs.
    asks_for: u32,
    /// The last [`REPLAYED`] windows, oldest first.
    recent: Vec<i16>,
    /// The last window's end, then this window.
    input: [f32; CONTEXT + WINDOW],
    state: Vec<f32>,
    /// Consecutive windows of certain silence.
    n_quiet: u32,
    never: CancellationToken,
    /// Consecutive windows that failed.
    n_failed: usize,
}

impl Stream {
    fn new(sessions: Arc<Sessions>) -> Self {
        let first = sessions.n_opened.fetch_add(1, Ordering::Relaxed);
        Self {
            sessions,
            first,
            ear: EarshotStream::new(),
            first_half: None,
            last: 0.0,
            asks_for: 0,
            recent: Vec::with_capacity((REPLAYED + 1) * WINDOW),
            input: [0.0; CONTEXT + WINDOW],
            state: vec![0.0; STATE],
            n_quiet: 0,
            never: CancellationToken::new(),
            n_failed: 0,
        }
    }

    /// One that is free, or its own.
    fn model(&self) -> &Model {
        let models = &self.sessions.models;
        let mut from_its_own = (0..models.len()).map(|i| &models[(self.first + i) % models.len()]);
        from_its_own.find(|model| model.is_free()).unwrap_or(&models[self.first % models.len()])
    }

    /// The network's probability of the next window. An answer that is no number is a failure and changes no state.
    fn ask(&mut self, window: &[i16]) -> Result<f32, OnnxError> {
        self.input.copy_within(WINDOW.., 0);
        for (x, sample) in self.input[CONTEXT..].iter_mut().zip(window) {
            *x = f32::from(*sample) / 32_768.0;
        }
        self.run()
    }

    /// Judges the window in `input`.
    fn run(&mut self) -> Result<f32, OnnxError> {
        let inputs = [
            ("input", Tensor::f32([1, CONTEXT + WINDOW], &self.input)),
            ("state", Tensor::f32([2, 1, 128], &self.state)),
            ("sr", Tensor::i64([], &[16_000])),
        ];
        let outputs = self.model().run(&inputs, &self.never)?;
        let probability = outputs.named("output")?.f32()?.first().copied().unwrap_or(f32::NAN);
        let state = outputs.named("stateN")?.f32()?;
        if !probability.is_finite() || state.len() != STATE || !state.iter().all(|number| number.is_finite()) {
            return Err(OnnxError::Output("no number".into()));
        }
        self.state.copy_from_slice(state);
        Ok(probability.clamp(0.0, 1.0))
    }

    /// Resets the state; the last windows are judged again.
    fn restart(&mut self) -> Result<(), OnnxError> {
        self.n_quiet = 0;
        self.state.fill(0.0);
        self.input.fill(0.0);
        let recent = std::mem::take(&mut self.recent);
        let replayed = recent.chunks_exact(WINDOW).try_for_each(|window| self.ask(window).map(drop));
        self.recent = recent;
        replayed
    }

    /// The network's probability while it runs, otherwise that of earshot, which is `of_earshot`.
    fn judge(&mut self, window: &[i16], of_earshot: f32) -> Result<f32, OnnxError> {
        let was_asked = self.asks_for > 0;
        self.asks_for = if of_earshot >= ASK_FROM { ASK_FOR } else { self.asks_for.saturating_sub(1) };
        if self.asks_for == 0 {
            return Ok(of_earshot);
        }
        if !was_asked {
            self.restart()?;
        }
        let probability = self.ask(window)?;
        self.n_quiet = if probability < QUIET { self.n_quiet + 1 } else { 0 };
        Ok(probability)
    }

    fn remember(&mut self, window: &[i16]) -> Result<(), OnnxError> {
        if self.recent.len() == REPLAYED * WINDOW {
            self.recent.drain(..WINDOW);
        }
        self.recent.extend_from_slice(window);
        if self.n_quiet >= RESET_AFTER { self.restart() } else { Ok(()) }
    }

    /// Resets the state, and logs consecutive failures once.
    fn failed(&mut self, error: &OnnxError) {
        self.state.fill(0.0);
        self.n_failed += 1;
        match self.n_failed {
            1 => tracing::warn!(%error, "the voice activity detector failed on a window; earshot judges it"),
            MOST_FAILED => {
                tracing::warn!(%error, "the voice activity detector fails; earshot takes over this microphone")
            }
            _ => {}
        }
    }
}

impl VadStream for Stream {
    fn probability(&mut self, step: &[i16]) -> Result<f32, VadError> {
        let step: &[i16; STEP] = step.try_into().map_err(|_| VadError::Window { expected: STEP, got: step.len() })?;
        let sound = self.ear.judge(step)?;
        if self.n_failed >= MOST_FAILED {
            return Ok(sound.probability);
        }
        let Some((first, first_probability)) = self.first_half.take() else {
            self.first_half = Some((*step, sound.probability));
            return Ok(self.last.min(sound.weight));
        };
        let mut window = [0; WINDOW];
        window[..STEP].copy_from_slice(&first);
        window[STEP..].copy_from_slice(step);
        let of_earshot = first_probability.max(sound.probability);
        let judged = self.judge(&window, of_earshot).and_then(|p| self.remember(&window).map(|()| p));
        match judged {
            Ok(probability) => {
                if self.asks_for > 0 {
                    self.n_failed = 0;
                }
                self.last = probability;
                Ok(probability.min(sound.weight))
            }
            Err(error) => {
                self.failed(&error);
                self.last = of_earshot;
                Ok(sound.probability)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::onnx;

    fn engine() -> Silero {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/onnx/silero.onnx");
        Silero::open(&path, &onnx()).expect("`make onnxruntime` was run")
    }

    fn window(seed: u32) -> Vec<i16> {
        (0..WINDOW as u32).map(|i| ((i * 7 + seed * 131) % 4_001) as i16 - 2_000).collect()
    }

    /// Of both halves of a window.
    fn probabilities(stream: &mut impl VadStream, window: &[i16]) -> [f32; 2] {
        [0, 1].map(|half| stream.probability(&window[STEP * half..][..STEP]).expect("a step"))
    }

    /// What the fixture computes (`tests/fixtures/onnx/ears.py`): of all 576 samples and of one number of the state, which
    /// halves and takes the mean of the first 64 squares, those of the window before.
    fn expected(windows: &[Vec<i16>]) -> Vec<f32> {
        let mut state = 0.0f32;
        let mut before = vec![0.0f32; CONTEXT];
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
        let mut first = Stream::new(engine.0.clone());
        let mut second = Stream::new(engine.0.clone());
        for (i, (a, b)) in expected(&one).into_iter().zip(expected(&other)).enumerate() {
            let got = [first.ask(&one[i]), second.ask(&other[i])].map(|p| p.expect("a window"));
            assert!((got[0] - a).abs() < 1e-4 && (got[1] - b).abs() < 1e-4, "{i}: {got:?}, not {a} and {b}");
        }
    }

    #[test]
    fn a_state_that_is_no_number_is_forgotten_with_its_window() {
        let engine = engine();
        let mut stream = Stream::new(engine.0.clone());
        stream.asks_for = ASK_FOR;
        probabilities(&mut stream, &window(0));
        stream.state[0] = f32::NAN;
        let [_, of_earshot] = probabilities(&mut stream, &window(1));
        assert!((0.0..=1.0).contains(&of_earshot));
        assert_eq!(stream.n_failed, 1);
        // From here on it is as if it had begun with the last window's end.
        let mut fresh = Stream::new(engine.0.clone());
        fresh.input = stream.input;
        for i in 2..5 {
            assert_eq!(stream.ask(&window(i)).expect("a window"), fresh.ask(&window(i)).expect("a window"));
        }
        probabilities(&mut stream, &window(5));
        assert_eq!(stream.n_failed, 0);
    }

    #[test]
    fn a_model_that_fails_leaves_no_speech_unheard() {
        // A graph that takes other inputs fails at each run.
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/onnx/smart-turn.onnx");
        let runtime = Runtime::open(&onnx()).expect("`make onnxruntime` was run");
        let model = runtime.load(&path, &ModelOptions::default()).expect("it loads");
        let sessions = Sessions { models: vec![model], n_opened: AtomicUsize::new(0) };
        let mut stream = Stream::new(Arc::new(sessions));
        let mut earshot = EarshotStream::new();
        for i in 0..2 * MOST_FAILED as u32 {
            let window = window(i);
            stream.asks_for = ASK_FOR;
            let of_earshot = probabilities(&mut earshot, &window);
            assert_eq!(probabilities(&mut stream, &window)[1], of_earshot[1], "{i}");
        }
        assert_eq!(stream.n_failed, MOST_FAILED, "it is left alone");
    }

    #[test]
    fn silence_is_not_asked_about_and_what_earshot_hears_is_for_a_second() {
        // The fixture's probability of silence is 0.27, of anything loud almost 1.
        let mut stream = engine().open();
        for _ in 0..100 {
            assert!(stream.probability(&[0; STEP]).expect("a step") < ASK_FROM, "earshot's own");
        }
        let mut stream = Stream::new(engine().0.clone());
        let mut asked = |of_earshot: f32| stream.judge(&[0; WINDOW], of_earshot).expect("a window") != of_earshot;
        assert!(!asked(0.09));
        assert!(asked(0.1));
        let n_after = (0..100).take_while(|_| asked(0.0)).count();
        assert_eq!(n_after, ASK_FOR as usize - 1);
    }

    #[test]
    fn the_first_half_of_a_window_has_the_probability_of_the_window_before() {
        let mut stream = Stream::new(engine().0.clone());
        stream.asks_for = ASK_FOR;
        let loud: Vec<i16> = window(1).iter().map(|x| 8 * x).collect();
        assert_eq!(probabilities(&mut stream, &loud)[0], 0.0, "nothing was judged yet");
        assert!(stream.last > 0.9);
        assert_eq!(stream.probability(&loud[..STEP]).expect("a step"), stream.last);
    }

    #[test]
    fn the_rise_of_each_step_above_the_room_bounds_its_probability() {
        let mut stream = Stream::new(engine().0.clone());
        stream.asks_for = ASK_FOR;
        let mut ear = EarshotStream::new();
        let mut n_bounded = 0;
        for i in 0..40 {
            // Noise that grows out of the room, then sinks back into it.
            let level = 40 * (1 + (i % 20) * (i % 20)) as i32;
            let step: Vec<i16> = window(i).iter().take(STEP).map(|x| (i32::from(*x) * level / 16_000) as i16).collect();
            let weight = ear.judge(&step).expect("a step").weight;
            let probability = stream.probability(&step).expect("a step");
            assert!(probability <= weight, "{i}: {probability} of {weight}");
            n_bounded += usize::from(probability == weight && stream.last > weight);
        }
        assert!(n_bounded > 0, "the bound decided nothing");
    }

    #[test]
    fn after_two_sure_seconds_it_has_heard_the_last_windows_only() {
        let engine = engine();
        let mut stream = Stream::new(engine.0.clone());
        let mut fresh = Stream::new(engine.0.clone());
        for i in 0..10 {
            stream.ask(&window(i)).expect("a window");
            stream.n_quiet = if i == 9 { RESET_AFTER } else { 0 };
            stream.remember(&window(i)).expect("a window");
        }
        for i in 10 - REPLAYED as u32..10 {
            fresh.ask(&window(i)).expect("a window");
        }
        assert_eq!((stream.n_quiet, &stream.state, stream.input), (0, &fresh.state, fresh.input));
    }

    #[test]
    fn a_stream_takes_a_session_that_is_free() {
        let mut engine = engine();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/onnx/silero.onnx");
        let runtime = Runtime::open(&onnx()).expect("`make onnxruntime` was run");
        let sessions = Arc::get_mut(&mut engine.0).expect("it has no other owner");
        sessions.models.truncate(1);
        sessions.models.push(runtime.load(&path, &ModelOptions::default()).expect("it loads"));
        let streams = [0, 1].map(|_| Stream::new(engine.0.clone()));
        assert!(!std::ptr::eq(streams[0].model(), streams[1].model()), "each has its own");
        streams[0].model().while_it_runs(|| {
            assert!(std::ptr::eq(streams[0].model(), streams[1].model()), "the other one is free");
        });
    }

    #[test]
    fn a_window_of_another_length_is_refused() {
        let mut stream = engine().open();
        assert!(matches!(stream.probability(&[0; WINDOW]), Err(VadError::Window { expected: STEP, got: WINDOW })));
        assert!(stream.probability(&[0; STEP]).is_ok());
    }

    #[test]
    fn a_model_of_another_family_is_refused_with_what_it_takes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/onnx/smart-turn.onnx");
        let error = Silero::open(&path, &onnx()).err().expect("refused").to_string();
        assert!(error.contains("Silero VAD model") && error.contains("input_features"), "{error}");
    }
}
