//! Tokens to sound: the codec stage, on the batch scheduler, never on the language model's thread.
//!
//! [`Vocoder`] runs windows of tokens of several listeners in one run where its graph allows it; [`Assembler`](chunks) cuts a
//! sequence's tokens into windows and puts their sound together. The scheduler orders windows by how much their listener has
//! left to hear.

mod chunks;

pub use chunks::Assembler;

use super::condition::Conditioning;
use super::contract::Contract;
use super::files::ModelFiles;
use super::lm::{LmError, ports};
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxError, Provider, Runtime, Tensor};
use antiphon_inference::pool::batch::{BatchEngine, BatchFailure, Entry};
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

/// A window that waits for its sound.
pub struct Job {
    tokens: Vec<i64>,
    conditioning: Arc<Conditioning>,
    deadline: Instant,
    reply: oneshot::Sender<Result<Vec<f32>, VocodeError>>,
}

impl Job {
    /// Sound of `tokens` in the voice of `conditioning`, due when the listener has nothing left to hear.
    pub fn new(
        tokens: Vec<i64>,
        conditioning: Arc<Conditioning>,
        unplayed: Duration,
    ) -> (Self, oneshot::Receiver<Result<Vec<f32>, VocodeError>>) {
        let (reply, sound) = oneshot::channel();
        (Self { tokens, conditioning, deadline: Instant::now() + unplayed, reply }, sound)
    }
}

impl Entry for Job {
    /// Windows of one length whose voices have conditionings of one size share a run. A collision costs a second run.
    fn bucket(&self) -> u32 {
        let sizes = self.conditioning.carry.iter().map(|(_, _, numbers)| numbers.len()).sum::<usize>();
        ((self.tokens.len() + self.conditioning.prompt.len()) as u32).wrapping_mul(0x9E37) ^ sizes as u32
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

/// See the module. It lives on one thread.
pub struct Vocoder {
    contract: Arc<Contract>,
    model: Model,
    max_rows: usize,
}

impl Vocoder {
    /// Loads the graph and checks its ports; tries whether rows share a run, which they do where two rows give what they give
    /// alone. Blocks for seconds.
    ///
    /// # Errors
    /// [`LmError`] names the file, the port, what is there and what should be.
    pub fn load(files: &ModelFiles, contract: &Arc<Contract>, runtime: &Runtime) -> Result<Self, LmError> {
        let model = runtime.load(&files.vocode, &ModelOptions::default())?;
        let (rules, floats) = (&contract.vocode, &[Kind::F32, Kind::F16]);
        let mut wants = vec![(rules.tokens.clone(), vec![Kind::I64], vec![None, None])];
        for name in &rules.carry {
            let rank = model.input(name).map_or(2, |slot| slot.shape.len());
            wants.push((name.clone(), floats.to_vec(), vec![None; rank]));
        }
        ports::inputs(contract, &model, &wants)?;
        ports::output(contract, &model, &rules.waveform, floats, &[])
            .or_else(|_| ports::output(contract, &model, &rules.waveform, floats, &[None, None]))
            .or_else(|_| ports::output(contract, &model, &rules.waveform, floats, &[None, None, None]))?;
        Ok(Self { contract: contract.clone(), model, max_rows: 1 })
    }

    /// Warms the graph with a voice, and finds out whether rows share a run. Blocks for a few runs.
    ///
    /// # Errors
    /// As of the runs.
    pub fn warm(&mut self, voice: &Arc<Conditioning>) -> Result<(), OnnxError> {
        let n = self.contract.chunks.first + self.contract.chunks.look_ahead;
        let tokens: Vec<Vec<i64>> = (0..2)
            .map(|row| (0..n as i64).map(|i| (i * 7 + row * 13) % self.contract.tokens.sounds.max(1)).collect())
            .collect();
        let alone = [self.sounds(&[(&tokens[0], voice)])?, self.sounds(&[(&tokens[0], voice)])?];
        if self.model.provider() == Provider::Cpu || difference(&alone[0], &alone[1]) > 1e-3 {
            // On the processor rows gain nothing; with noise in the graph rows cannot be compared.
            return Ok(());
        }
        let together = self.sounds(&[(&tokens[1], voice), (&tokens[0], voice)]);
        let shares = together.is_ok_and(|together| together.len() == 2 && difference(&together[1..], &alone[0]) < 1e-3);
        self.max_rows = if shares { GPU_BATCH } else { 1 };
        tracing::info!(rows = self.max_rows, "the vocoder runs so many windows at once");
        Ok(())
    }

    /// Sound of each of these, all of one size.
    fn sounds(&self, rows: &[(&[i64], &Arc<Conditioning>)]) -> Result<Vec<Vec<f32>>, OnnxError> {
        let rules = &self.contract.vocode;
        let n_rows = rows.len();
        let prompt: &[i64] = if rules.with_prompt { &rows[0].1.prompt } else { &[] };
        let length = prompt.len() + rows[0].0.len();
        let with_prompt = |(tokens, voice): &(&[i64], &Arc<Conditioning>)| {
            let prompt: &[i64] = if rules.with_prompt { &voice.prompt } else { &[] };
            [prompt, tokens].concat()
        };
        let tokens: Vec<i64> = rows.iter().flat_map(with_prompt).collect();
        let mut carried = Vec::with_capacity(rules.carry.len());
        for (i, name) in rules.carry.iter().enumerate() {
            let mut shape = rows[0].1.carry[i].1.clone();
            if let Some(first) = shape.first_mut() {
                *first = n_rows;
            }
            let numbers: Vec<f32> = rows.iter().flat_map(|(_, voice)| voice.carry[i].2.iter().copied()).collect();
            carried.push((name, shape, numbers));
        }
        let mut inputs = vec![(rules.tokens.as_str(), Tensor::i64([n_rows, length], &tokens))];
        inputs
            .extend(carried.iter().map(|(name, shape, numbers)| (name.as_str(), Tensor::f32(shape.clone(), numbers))));
        let outputs = self.model.run(&inputs, &CancellationToken::new())?;
        let sound = outputs.named(&rules.waveform)?.f32()?;
        if sound.is_empty() || sound.len() % n_rows != 0 {
            return Err(OnnxError::Output(format!("{} samples for {n_rows} rows", sound.len())));
        }
        Ok(sound.chunks(sound.len() / n_rows).map(<[f32]>::to_vec).collect())
    }

    /// A row's sound in the length that its tokens have. A graph may give a little more or less at its end.
    fn checked(&self, sound: Vec<f32>, n_tokens: usize) -> Result<Vec<f32>, VocodeError> {
        let expected = n_tokens * self.contract.samples_per_token;
        if sound.len().abs_diff(expected) > self.contract.samples_per_token {
            let wrong = format!("{} samples for {n_tokens} tokens, which have {expected}", sound.len());
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
        let size = |job: &Job| {
            let shapes = job.conditioning.carry.iter().map(|(_, shape, _)| shape.clone()).collect::<Vec<_>>();
            (job.tokens.len(), job.conditioning.prompt.len(), shapes)
        };
        while let Some(first) = batch.first().map(size) {
            let mut n_left = self.max_rows;
            let jobs: Vec<Job> = batch
                .extract_if(.., |job| {
                    let is_taken = n_left > 0 && size(job) == first;
                    n_left -= usize::from(is_taken);
                    is_taken
                })
                .collect();
            let inputs: Vec<_> = jobs.iter().map(|job| (job.tokens.as_slice(), &job.conditioning)).collect();
            match self.sounds(&inputs) {
                Ok(sounds) => {
                    for (job, sound) in jobs.into_iter().zip(sounds) {
                        let sound = self.checked(sound, job.tokens.len());
                        drop(job.reply.send(sound));
                    }
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

/// The largest difference of two sounds; infinite where their lengths differ.
fn difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    let differs = a.iter().map(Vec::len).ne(b.iter().map(Vec::len));
    if differs { f32::INFINITY } else { pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) }
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
        let voice = Arc::new(voice.condition(&recording(), [0; 32]).expect("it runs"));
        let mut vocoder = Vocoder::load(&files(&contract), &contract, &runtime()).expect("loaded");
        vocoder.warm(&voice).expect("warm");
        (vocoder, voice)
    }

    /// The sound of tokens in windows, and where windows meet.
    fn streamed(vocoder: &Vocoder, voice: &Arc<Conditioning>, tokens: &[i64]) -> (Vec<f32>, Vec<usize>) {
        let mut assembler = Assembler::new(&vocoder.contract, &[]);
        tokens.iter().for_each(|token| assembler.push(*token));
        assembler.complete();
        let (mut sound, mut seams) = (Vec::new(), Vec::new());
        while let Some(window) = assembler.window() {
            let made = vocoder.sounds(&[(&window.tokens, voice)]).expect("it runs").remove(0);
            seams.push(sound.len());
            sound.extend(assembler.sound(&vocoder.checked(made, window.tokens.len()).expect("sound")));
        }
        (sound, seams)
    }

    #[test]
    fn streamed_sound_is_that_of_all_tokens_at_once_except_where_windows_fade() {
        let (vocoder, voice) = vocoder(|_| {});
        let tokens: Vec<i64> = (0..80).map(|i| (i * 29) % 97).collect();
        let (streamed, seams) = streamed(&vocoder, &voice, &tokens);
        let silence = vec![vocoder.contract.tokens.silence; vocoder.contract.tokens.append_silence];
        let whole = vocoder.sounds(&[(&[tokens, silence].concat(), &voice)]).expect("it runs").remove(0);
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
            let jobs = windows.iter().map(|window| Job::new(window.clone(), voice.clone(), Duration::ZERO));
            let (mut batch, replies): (Vec<Job>, Vec<_>) = jobs.unzip();
            BatchEngine::run(&mut vocoder, &mut batch).expect("it runs");
            assert!(batch.is_empty(), "none comes again");
            for (window, mut reply) in windows.iter().zip(replies) {
                let sound = reply.try_recv().expect("a reply").expect("sound");
                let alone = vocoder.sounds(&[(window.as_slice(), &voice)]).expect("it runs").remove(0);
                let worst = sound.iter().zip(&alone).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(sound.len() == alone.len() && worst < 1e-5, "{worst}");
            }
        }
    }

    #[test]
    fn a_window_that_is_none_ends_itself_and_no_other() {
        let (mut vocoder, voice) = vocoder(|_| {});
        let (bad, mut bad_reply) = Job::new(vec![5_000; 10], voice.clone(), Duration::ZERO);
        let (good, mut good_reply) = Job::new(vec![5; 12], voice, Duration::ZERO);
        BatchEngine::run(&mut vocoder, &mut vec![bad, good]).expect("the engine is not at fault");
        assert!(matches!(bad_reply.try_recv(), Ok(Err(VocodeError::Sound(_)))));
        assert!(matches!(good_reply.try_recv(), Ok(Ok(_))));
        let wrong = vocoder.checked(vec![0.0; 960 * 7], 9).expect_err("two tokens short");
        assert!(wrong.to_string().contains("6720 samples for 9 tokens, which have 8640"), "{wrong}");
        let nan = vocoder.checked(vec![f32::NAN; 960], 1).expect_err("no sound");
        assert!(nan.to_string().contains("not a number"), "{nan}");
    }

    #[test]
    fn a_graph_that_does_not_fit_is_named() {
        let mut contract = contract("language_model.onnx");
        contract.vocode.tokens = "tokens".into();
        let contract = Arc::new(contract);
        let error = Vocoder::load(&files(&contract), &contract, &runtime()).err().expect("refused").to_string();
        assert!(error.contains("conditional_decoder.onnx takes") && error.contains("no tokens: i64[?, ?]"), "{error}");
    }
}
