//! Frames to sound: the codec stage, on the batch scheduler, never on the language model's thread.
//!
//! [`Vocoder`] runs windows of frames of several listeners in one run where its graph allows it; [`Assembler`](chunks) cuts a
//! sequence's frames into windows and puts their sound together. A window of a family whose vocoder has a [`State`] brings
//! the one that its stream's last window left, and takes the next one home: between windows nothing of a stream is kept here.
//! The scheduler orders windows by how much their listener has left to hear.

mod chunks;

pub use chunks::{Assembler, Window};

use super::condition::Conditioning;
use super::contract::{Contract, StateTensor};
use super::files::ModelFiles;
use super::lm::{LmError, ports};
use super::tensors::{NamedTensor, Numbers};
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxError, Provider, Runtime, Tensor};
use antiphon_inference::pool::batch::{BatchEngine, BatchFailure, Entry};
use antiphon_types::Meter;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Windows in one run on a GPU; on the processor one: a run uses all cores, and the others would wait for its end.
const GPU_BATCH: usize = 8;

/// Why a window has no sound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VocodeError {
    /// The graph gave something else than sound.
    #[error("the vocoder gave {0}")]
    Sound(String),
    /// The run failed, and the engine is restarted.
    #[error("the vocoder failed: {0}")]
    Failed(String),
}

/// What a stream's next window takes from the one before: the tensors of the contract, in their order. On the host: some
/// megabytes at most, twice for each window.
#[derive(Clone, Debug, PartialEq)]
pub struct State(Vec<NamedTensor>);

/// What a window becomes: mono, full scale 1.0, and the state for the next one.
pub type VocodedWindow = (Vec<f32>, Option<State>);

/// A window that waits for its sound.
pub struct Job {
    window: Window,
    conditioning: Arc<Conditioning>,
    state: Option<State>,
    deadline: Instant,
    reply: oneshot::Sender<Result<VocodedWindow, VocodeError>>,
    meter: Meter,
}

impl Job {
    /// Sound of `window` in the voice of `conditioning`, due when the listener has nothing left to hear. `state` is what the
    /// stream's window before left; `None` for its first one.
    pub fn new(
        window: Window,
        conditioning: Arc<Conditioning>,
        state: Option<State>,
        unplayed: Duration,
    ) -> (Self, oneshot::Receiver<Result<VocodedWindow, VocodeError>>) {
        let (reply, sound) = oneshot::channel();
        let deadline = Instant::now() + unplayed;
        let meter = Meter::default();
        (Self { window, conditioning, state, deadline, reply, meter }, sound)
    }

    /// The same, whose run is counted.
    pub fn metered(self, meter: Meter) -> Self {
        Self { meter, ..self }
    }

    /// What windows of one run have in common.
    fn size(&self) -> (usize, usize, bool, &[usize]) {
        let Window { tokens, n_before, is_last, .. } = &self.window;
        (tokens.len(), *n_before, *is_last, &self.conditioning.run_sizes)
    }
}

impl Entry for Job {
    /// Windows of one length whose voices have conditionings of one size share a run. A collision costs a second run.
    fn bucket(&self) -> u32 {
        let mut hasher = DefaultHasher::new();
        self.size().hash(&mut hasher);
        hasher.finish() as u32
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn fail(self, failure: BatchFailure) {
        drop(self.reply.send(Err(VocodeError::Failed(failure.to_string()))));
    }
}

/// One row of a run.
struct Row<'a> {
    window: &'a Window,
    voice: &'a Arc<Conditioning>,
    state: Option<&'a State>,
}

/// See the module. It lives on one thread.
pub struct Vocoder {
    contract: Arc<Contract>,
    model: Model,
    /// The state of a stream before its first window.
    initial: Option<State>,
    max_rows: usize,
}

impl Vocoder {
    /// Loads the graph and checks its ports. Blocks for seconds.
    ///
    /// # Errors
    /// [`LmError`] names the file, the port, what is there and what should be.
    pub fn load(files: &ModelFiles, contract: &Arc<Contract>, runtime: &Runtime) -> Result<Self, LmError> {
        let model = runtime.load(&files.vocode, &ModelOptions::default())?;
        let rules = &contract.vocode;
        let floats = &[Kind::F32, Kind::F16];
        let codebooks = contract.codebooks();
        let shape = if codebooks == 1 { vec![None, None] } else { vec![None, None, Some(codebooks)] };
        let mut wants = vec![(rules.tokens.clone(), vec![Kind::I64, Kind::I32], shape)];
        for name in &rules.carry {
            let rank = model.input(name).map_or(2, |slot| slot.shape.len());
            wants.push((name.clone(), vec![Kind::F32, Kind::F16, Kind::I64, Kind::I32], vec![None; rank]));
        }
        if let Some(state) = &contract.state {
            wants.extend(state.n_before.iter().map(|name| (name.clone(), vec![Kind::I64, Kind::I32], vec![None])));
            wants.extend(state.is_last.iter().map(|name| (name.clone(), vec![Kind::Bool], vec![None])));
        }
        let tensors = contract.state.iter().flat_map(|state| &state.tensors);
        let initial = tensors.map(|part| {
            let slot = model.input(&part.input).cloned();
            let rank = slot.as_ref().map_or(2, |slot| slot.shape.len());
            let kinds = vec![Kind::F32, Kind::I64, Kind::I32, Kind::Bool];
            wants.push((part.input.clone(), kinds.clone(), vec![None; rank]));
            let (own, fixed) = slot.as_ref().map_or((kinds.clone(), vec![None; rank]), |slot| {
                let sizes = slot.shape.iter().enumerate().map(|(place, size)| size.filter(|_| place > 0)).collect();
                (vec![slot.kind.clone()], sizes)
            });
            ports::output(contract, &model, &part.output, &own, &fixed)?;
            // The first size is the batch.
            let sizes = slot.iter().flat_map(|slot| slot.shape.iter().skip(1).copied());
            let sizes: Option<Vec<usize>> = sizes.collect();
            let Some(sizes) = sizes else {
                let slot = slot.map_or_else(String::new, |slot| slot.to_string());
                let wrong = format!("takes {slot}, whose sizes but for the first must be fixed");
                return Err(LmError::Port { contract: contract.name.clone(), file: model.path().into(), wrong });
            };
            let shape = [&[1], sizes.as_slice()].concat();
            let n = sizes.iter().product();
            let is_float = slot.is_some_and(|slot| slot.kind == Kind::F32);
            let numbers =
                if is_float { Numbers::F32(vec![part.fill; n]) } else { Numbers::I64(vec![part.fill as i64; n]) };
            Ok(NamedTensor { name: part.input.clone(), shape, numbers })
        });
        let initial = initial.collect::<Result<Vec<NamedTensor>, LmError>>()?;
        ports::inputs(contract, &model, &wants)?;
        ports::output(contract, &model, &rules.waveform, floats, &[])
            .or_else(|_| ports::output(contract, &model, &rules.waveform, floats, &[None, None]))
            .or_else(|_| ports::output(contract, &model, &rules.waveform, floats, &[None, None, None]))?;
        let initial = contract.state.as_ref().map(|_| State(initial));
        Ok(Self { contract: contract.clone(), model, initial, max_rows: 1 })
    }

    /// Bytes of a stream's state; 0 where the vocoder has none.
    pub fn state_bytes(&self) -> usize {
        self.initial.iter().flat_map(|state| &state.0).map(NamedTensor::n_bytes).sum()
    }

    /// Warms the graph with a voice, and finds out whether rows share a run. Blocks for a few runs.
    ///
    /// # Errors
    /// As of the runs.
    pub fn warm(&mut self, voice: &Arc<Conditioning>) -> Result<(), OnnxError> {
        let n = self.contract.chunks.first;
        let n_ahead = self.contract.chunks.look_ahead;
        let n_ids = ((n + n_ahead) * self.contract.codebooks()) as i64;
        let windows: Vec<Window> = (0..2)
            .map(|row| (0..n_ids).map(|i| (i * 7 + row * 13) % self.contract.tokens.sounds.max(1)).collect())
            .map(|tokens| Window { tokens, n_before: 0, n_chunk: n, is_last: false })
            .collect();
        let row = |i: usize| Row { window: &windows[i], voice, state: None };
        let alone = [self.sounds(&[row(0)])?.remove(0).0, self.sounds(&[row(0)])?.remove(0).0];
        if self.model.provider() == Provider::Cpu || difference(&alone[0], &alone[1]) > 1e-3 {
            // On the processor rows gain nothing; with noise in the graph rows cannot be compared.
            return Ok(());
        }
        let together = self.sounds(&[row(1), row(0)]);
        let shares = together.is_ok_and(|together| together.len() == 2 && difference(&together[1].0, &alone[0]) < 1e-3);
        self.max_rows = if shares { GPU_BATCH } else { 1 };
        tracing::info!(rows = self.max_rows, "the most windows in one run of the vocoder");
        Ok(())
    }

    /// Sound of each of these, all of one size, and the state that each leaves.
    fn sounds(&self, rows: &[Row<'_>]) -> Result<Vec<VocodedWindow>, OnnxError> {
        let Some(initial) = &self.initial else { return self.run_rows(rows, None) };
        let first_ones = rows.iter().map(|row| match row.state {
            Some(_) => Ok(None),
            None => self.primed(row.voice, initial).map(Some),
        });
        let first_ones = first_ones.collect::<Result<Vec<_>, OnnxError>>()?;
        let states: Vec<&State> = rows
            .iter()
            .zip(&first_ones)
            .map(|(row, first)| row.state.or(first.as_deref()).unwrap_or(initial))
            .collect();
        self.run_rows(rows, Some(&states))
    }

    /// The state before a stream's first window: behind the recording's own frames where the family has them first. Their
    /// run is a voice's once.
    fn primed(&self, voice: &Arc<Conditioning>, initial: &State) -> Result<Arc<State>, OnnxError> {
        if self.contract.recording.is_none() || voice.prompt.is_empty() {
            return Ok(Arc::new(initial.clone()));
        }
        if let Some(primed) = voice.primed.get() {
            return Ok(primed.clone());
        }
        let n_chunk = voice.prompt.len() / self.contract.codebooks();
        let window = Window { tokens: voice.prompt.clone(), n_before: 0, n_chunk, is_last: false };
        let (_, state) =
            self.run_rows(&[Row { window: &window, voice, state: None }], Some(&[initial]))?.swap_remove(0);
        let state = Arc::new(state.unwrap_or_else(|| initial.clone()));
        Ok(voice.primed.get_or_init(|| state).clone())
    }

    /// A window of one stream, in the length that it should have. For tests.
    #[cfg(test)]
    pub fn vocoded(&self, window: &Window, voice: &Arc<Conditioning>, state: Option<State>) -> VocodedWindow {
        let (sound, left) =
            self.sounds(&[Row { window, voice, state: state.as_ref() }]).expect("it runs").swap_remove(0);
        (self.checked(sound, window).expect("sound"), left)
    }

    fn run_rows(&self, rows: &[Row<'_>], states: Option<&[&State]>) -> Result<Vec<VocodedWindow>, OnnxError> {
        let rules = &self.contract.vocode;
        let codebooks = self.contract.codebooks();
        let n_rows = rows.len();
        let first = rows[0].window;
        // Without a state the recording's tokens come before each window's.
        let prompt = |row: &Row<'_>| match self.contract.recording.is_some() && states.is_none() {
            true => row.voice.prompt.clone(),
            false => Vec::new(),
        };
        let tokens: Vec<i64> =
            rows.iter().flat_map(|row| prompt(row).into_iter().chain(row.window.tokens.iter().copied())).collect();
        let n_frames = tokens.len() / codebooks / n_rows;
        let shape = if codebooks == 1 { vec![n_rows, n_frames] } else { vec![n_rows, n_frames, codebooks] };
        let carried = rules.carry.iter().map(|name| {
            let rows = rows.iter().map(|row| row.voice.tensor(name)).collect::<Result<Vec<_>, _>>()?;
            Ok(NamedTensor::stacked(&rows))
        });
        let carried = carried.collect::<Result<Vec<_>, OnnxError>>()?;
        let kept = self.contract.state.as_ref();
        let parts: &[StateTensor] = kept.filter(|_| states.is_some()).map_or(&[], |kept| &kept.tensors);
        let stacked: Vec<NamedTensor> = (0..parts.len())
            .filter_map(|i| Some(NamedTensor::stacked(&states?.iter().map(|state| &state.0[i]).collect::<Vec<_>>())))
            .collect();
        let n_before = [first.n_before as i64];
        let is_last = [first.is_last];
        let mut inputs = vec![(rules.tokens.as_str(), Tensor::i64(shape, &tokens))];
        inputs.extend(carried.iter().chain(&stacked).map(|tensor| (tensor.name.as_str(), tensor.tensor())));
        if let Some(name) = kept.and_then(|kept| kept.n_before.as_ref()) {
            inputs.push((name, Tensor::i64([1], &n_before)));
        }
        if let Some(name) = kept.and_then(|kept| kept.is_last.as_ref()) {
            inputs.push((name, Tensor::bool([1], &is_last)));
        }
        let outputs = self.model.run(&inputs, &CancellationToken::new())?;
        let waveform = outputs.named(&rules.waveform)?;
        let sound = waveform.f32()?;
        if sound.is_empty() || sound.len() % n_rows != 0 {
            return Err(OnnxError::Output(format!("{} samples for {n_rows} rows", sound.len())));
        }
        let n_channels = if waveform.shape().len() == 3 { waveform.shape()[1].max(1) } else { 1 };
        let mut left: Vec<Vec<NamedTensor>> = vec![Vec::new(); n_rows];
        for part in parts {
            let next = NamedTensor::of(&part.input, outputs.named(&part.output)?).rows(n_rows)?;
            let before = self.initial.iter().flat_map(|state| &state.0).find(|tensor| tensor.name == part.input);
            if !next.iter().all(|next| next.is_finite() && before.is_some_and(|before| before.shape == next.shape)) {
                return Err(OnnxError::Output(format!("an invalid state in {}", part.output)));
            }
            left.iter_mut().zip(next).for_each(|(left, next)| left.push(next));
        }
        let mono = sound.chunks(sound.len() / n_rows).map(|channels| mixed_down(channels, n_channels));
        Ok(mono.zip(left).map(|(sound, state)| (sound, states.is_some().then_some(State(state)))).collect())
    }

    /// A window's sound in the length that its frames have. A graph without a state may give a little more or less at its end.
    fn checked(&self, sound: Vec<f32>, window: &Window) -> Result<Vec<f32>, VocodeError> {
        let n_frames = match self.initial {
            Some(_) => window.n_chunk,
            None => window.tokens.len() / self.contract.codebooks(),
        };
        let expected = n_frames * self.contract.samples_per_token;
        if sound.len().abs_diff(expected) > self.contract.samples_per_token {
            let wrong = format!("{} samples for {n_frames} tokens, which have {expected}", sound.len());
            return Err(VocodeError::Sound(wrong));
        }
        if sound.iter().any(|sample| !sample.is_finite()) {
            return Err(VocodeError::Sound("sound that is not a number (NaN)".into()));
        }
        let mut sound = sound;
        sound.resize(expected, 0.0);
        Ok(sound)
    }
}

impl BatchEngine<Job> for Vocoder {
    /// All windows of the batch, in its order: those of one size together where the graph's rows share a run.
    fn run(&mut self, batch: &mut Vec<Job>) -> Result<(), String> {
        let mut max_rows = self.max_rows;
        while let Some(first) = batch.first() {
            let like_first = batch.iter().map(|job| job.size() == first.size()).collect::<Vec<_>>();
            let mut n_left = max_rows;
            let mut place = 0;
            let jobs: Vec<Job> = batch
                .extract_if(.., |_| {
                    let is_taken = n_left > 0 && like_first[place];
                    n_left -= usize::from(is_taken);
                    place += 1;
                    is_taken
                })
                .collect();
            let rows: Vec<_> = jobs
                .iter()
                .map(|job| Row { window: &job.window, voice: &job.conditioning, state: job.state.as_ref() })
                .collect();
            let begun = Instant::now();
            let sounds = self.sounds(&rows);
            let meters: Vec<_> = jobs.iter().map(|job| job.meter.clone()).collect();
            Meter::share(&meters, self.model.runs_on(), begun.elapsed());
            match sounds {
                Ok(sounds) => {
                    for (job, (sound, state)) in jobs.into_iter().zip(sounds) {
                        let sound = self.checked(sound, &job.window);
                        drop(job.reply.send(sound.map(|sound| (sound, state))));
                    }
                }
                // One of the windows is at fault: each runs alone.
                Err(OnnxError::Inputs { .. } | OnnxError::Output(_)) if jobs.len() > 1 => {
                    max_rows = 1;
                    batch.extend(jobs);
                }
                // The window is at fault, not the device: a token that is none, for example.
                Err(error @ (OnnxError::Inputs { .. } | OnnxError::Output(_))) => {
                    jobs.into_iter().for_each(|job| drop(job.reply.send(Err(VocodeError::Sound(error.to_string())))));
                }
                Err(error) => {
                    let failure = VocodeError::Failed(error.to_string());
                    jobs.into_iter().for_each(|job| drop(job.reply.send(Err(failure.clone()))));
                    return Err(error.to_string());
                }
            }
        }
        Ok(())
    }
}

/// The mean of channels that lie one after another.
fn mixed_down(channels: &[f32], n_channels: usize) -> Vec<f32> {
    if n_channels < 2 {
        return channels.to_vec();
    }
    let n = channels.len() / n_channels;
    let share = (n_channels as f32).recip();
    (0..n).map(|i| share * (0..n_channels).map(|channel| channels[channel * n + i]).sum::<f32>()).collect()
}

/// The largest difference of two sounds; infinite where their lengths differ.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() { f32::INFINITY } else { a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) }
}

#[cfg(test)]
mod tests {
    use super::super::condition::Conditioner;
    use super::super::testing::{contract, files, recording, runtime};
    use super::*;

    fn vocoder(change: impl FnOnce(&mut Contract)) -> (Vocoder, Arc<Conditioning>) {
        let mut contract = contract("language_model.onnx");
        change(&mut contract);
        let contract = Arc::new(contract);
        let voice = Conditioner::load(&files(&contract), &contract, &runtime()).expect("loaded");
        let voice = Arc::new(voice.condition(&recording(), None, [0; 32]).expect("it runs"));
        let mut vocoder = Vocoder::load(&files(&contract), &contract, &runtime()).expect("loaded");
        vocoder.warm(&voice).expect("warm");
        (vocoder, voice)
    }

    /// A window of these tokens alone.
    fn window(tokens: Vec<i64>) -> Window {
        Window { n_before: 0, n_chunk: tokens.len(), is_last: true, tokens }
    }

    /// The sound of a window that runs alone.
    fn alone(vocoder: &Vocoder, voice: &Arc<Conditioning>, window: &Window) -> Vec<f32> {
        vocoder.sounds(&[Row { window, voice, state: None }]).expect("it runs").remove(0).0
    }

    /// The sound of tokens in windows, and where windows meet.
    fn streamed(vocoder: &Vocoder, voice: &Arc<Conditioning>, tokens: &[i64]) -> (Vec<f32>, Vec<usize>) {
        let mut assembler = Assembler::new(&vocoder.contract, &[]);
        tokens.iter().for_each(|token| assembler.push([*token]));
        assembler.complete();
        let mut sound = Vec::new();
        let mut seams = Vec::new();
        while let Some(window) = assembler.window() {
            let made = alone(vocoder, voice, &window);
            seams.push(sound.len());
            sound.extend(assembler.sound(&vocoder.checked(made, &window).expect("sound")));
        }
        (sound, seams)
    }

    #[test]
    fn streamed_sound_is_that_of_all_tokens_at_once_except_where_windows_fade() {
        let (vocoder, voice) = vocoder(|_| {});
        let tokens: Vec<i64> = (0..80).map(|i| (i * 29) % 97).collect();
        let (streamed, seams) = streamed(&vocoder, &voice, &tokens);
        let silence = vocoder.contract.silence_behind();
        let whole = alone(&vocoder, &voice, &window([tokens, silence].concat()));
        assert_eq!(streamed.len(), whole.len());
        assert!(seams.len() > 2, "{seams:?}");
        let n_fade = 24 * vocoder.contract.chunks.cross_fade_ms as usize;
        let peak = whole.iter().map(|sample| sample.abs()).fold(0.0, f32::max);
        for (i, (streamed, whole)) in streamed.iter().zip(&whole).enumerate() {
            let fades = seams.iter().skip(1).any(|seam| (*seam..seam + n_fade).contains(&i));
            let most = if fades { 0.05 * peak } else { 1e-5 };
            assert!((streamed - whole).abs() <= most, "sample {i}: {streamed}, {whole}");
        }
    }

    #[test]
    fn windows_of_several_listeners_each_get_their_own_sound() {
        let (mut vocoder, voice) = vocoder(|_| {});
        let windows: Vec<Vec<i64>> =
            (0..5).map(|row| (0..10 + row % 2).map(|i| (i * 7 + row) % 97).collect()).collect();
        for max_rows in [1, 2, 8] {
            vocoder.max_rows = max_rows;
            let jobs =
                windows.iter().map(|tokens| Job::new(window(tokens.clone()), voice.clone(), None, Duration::ZERO));
            let (mut batch, replies): (Vec<Job>, Vec<_>) = jobs.unzip();
            BatchEngine::run(&mut vocoder, &mut batch).expect("it runs");
            assert!(batch.is_empty(), "none comes again");
            for (tokens, mut reply) in windows.iter().zip(replies) {
                let (sound, _) = reply.try_recv().expect("a reply").expect("sound");
                let alone = alone(&vocoder, &voice, &window(tokens.clone()));
                let worst = sound.iter().zip(&alone).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(sound.len() == alone.len() && worst < 1e-5, "{worst}");
            }
        }
    }

    #[test]
    fn a_window_that_is_none_ends_itself_and_no_other() {
        let (mut vocoder, voice) = vocoder(|_| {});
        // In runs of their own, and in one run.
        for (max_rows, n_good) in [(1, 12), (2, 10)] {
            vocoder.max_rows = max_rows;
            let (bad, mut bad_reply) = Job::new(window(vec![5_000; 10]), voice.clone(), None, Duration::ZERO);
            let (good, mut good_reply) = Job::new(window(vec![5; n_good]), voice.clone(), None, Duration::ZERO);
            let mut batch = vec![bad, good];
            BatchEngine::run(&mut vocoder, &mut batch).expect("the engine is not at fault");
            assert!(batch.is_empty(), "none comes again");
            assert!(matches!(bad_reply.try_recv(), Ok(Err(VocodeError::Sound(_)))));
            assert!(matches!(good_reply.try_recv(), Ok(Ok(_))));
        }
        let wrong = vocoder.checked(vec![0.0; 960 * 7], &window(vec![0; 9])).expect_err("two tokens short");
        assert!(wrong.to_string().contains("6720 samples for 9 tokens, which have 8640"), "{wrong}");
        let nan = vocoder.checked(vec![f32::NAN; 960], &window(vec![0])).expect_err("no sound");
        assert!(nan.to_string().contains("not a number"), "{nan}");
    }

    #[test]
    fn a_graph_that_does_not_fit_is_named() {
        let mut contract = contract("language_model.onnx");
        contract.vocode.tokens = "tokens".into();
        let contract = Arc::new(contract);
        let error = Vocoder::load(&files(&contract), &contract, &runtime()).err().expect("refused").to_string();
        assert!(
            error.contains("conditional_decoder.onnx takes") && error.contains("no tokens: i64 or i32[?, ?]"),
            "{error}"
        );
    }
}
