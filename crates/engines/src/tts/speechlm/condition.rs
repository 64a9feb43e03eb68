//! A voice's conditioning: what a family's graphs need of a reference recording, made once and kept by the recording's content.
//!
//! [`Conditioner`] runs the graph, on the thread of an engine pool; [`ConditioningCache`] holds what was made, bounded
//! in bytes. Called by the engine before a chunk of a voice that is not kept, and when a voice is added.

use super::contract::{Contract, Prompting};
use super::files::ModelFiles;
use super::lm::LmError;
use super::lm::ports;
use super::tensors::NamedTensor;
use super::vocode::State;
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxError, Runtime, Tensor};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio_util::sync::CancellationToken;

/// Conditionings that are kept, in bytes: some forty of Chatterbox Turbo, 1.6 MB each.
const MAX_KEPT: usize = 64 << 20;

/// What a family's graphs need of a recording.
#[derive(Debug, Default, PartialEq)]
pub struct Conditioning {
    /// Embeddings before those of the text, [length, hidden]; none where a graph makes the prompt.
    pub prefix: Vec<f32>,
    /// The recording's own tokens, frame by frame.
    pub prompt: Vec<i64>,
    /// What prompts and the vocoder take.
    pub voice: Vec<NamedTensor>,
    /// Sizes of what the vocoder's runs take of it: voices of equal ones can share a run.
    pub run_sizes: Vec<usize>,
    /// The words of the recording, where they are known.
    pub transcript: Option<String>,
    /// The digest of the recording and its words.
    pub digest: [u8; 32],
    /// The vocoder's state behind the recording's tokens, once a speech has needed it.
    pub primed: OnceLock<Arc<State>>,
}

impl Conditioning {
    /// The tensor of that name.
    ///
    /// # Errors
    /// [`OnnxError::Output`] where the conditioning graph gave none.
    pub fn tensor(&self, name: &str) -> Result<&NamedTensor, OnnxError> {
        let found = self.voice.iter().find(|tensor| tensor.name == name);
        found.ok_or_else(|| OnnxError::Output(format!("a voice without {name}")))
    }

    /// Its size, with the state whether or not it is there: that comes after it is kept.
    fn n_bytes(&self, state_bytes: usize) -> usize {
        let voice: usize = self.voice.iter().map(NamedTensor::n_bytes).sum();
        4 * self.prefix.len() + 8 * self.prompt.len() + voice + state_bytes
    }
}

/// The graph that makes a conditioning.
pub struct Conditioner {
    contract: Arc<Contract>,
    model: Model,
}

impl Conditioner {
    /// Loads the graph and checks its ports. Blocks for a second or so.
    ///
    /// # Errors
    /// [`LmError`] names the file, the port, what is there and what should be.
    pub fn load(files: &ModelFiles, contract: &Arc<Contract>, runtime: &Runtime) -> Result<Self, LmError> {
        let model = runtime.load(&files.condition, &ModelOptions::default())?;
        let rules = &contract.condition;
        let floats = &[Kind::F32, Kind::F16];
        ports::inputs(contract, &model, &[(rules.audio.clone(), floats.to_vec(), vec![None, None])])?;
        if let Prompting::Prefix(prefix) = &contract.prompting {
            ports::output(contract, &model, prefix, floats, &[None, None, None])?;
        }
        if let Some(recording) = &contract.recording {
            let codebooks = contract.codebooks();
            let shape = if codebooks == 1 { vec![None, None] } else { vec![None, None, Some(codebooks)] };
            ports::output(contract, &model, recording, &[Kind::I64, Kind::I32], &shape)?;
        }
        for name in contract.voice_tensors() {
            if model.output(name).is_none() {
                let wrong = format!("gives no {name}, which the prompt or the vocoder takes");
                return Err(LmError::Port { contract: contract.name.clone(), file: model.path().into(), wrong });
            }
        }
        Ok(Self { contract: contract.clone(), model })
    }

    /// The conditioning of a recording, mono at the family's rate, full scale 1.0, with its words. Blocks for the run, a
    /// second or so on the processor.
    ///
    /// # Errors
    /// [`OnnxError`]; [`OnnxError::Output`] where the graph gives what is no number.
    pub fn condition(
        &self,
        samples: &[f32],
        transcript: Option<String>,
        digest: [u8; 32],
    ) -> Result<Conditioning, OnnxError> {
        let most = (self.contract.condition.use_seconds * self.contract.rate_hz as f32) as usize;
        let samples = &samples[..samples.len().min(most)];
        let audio = Tensor::f32([1, samples.len()], samples);
        let outputs = self.model.run(&[(&self.contract.condition.audio, audio)], &CancellationToken::new())?;
        let prefix = match &self.contract.prompting {
            Prompting::Prefix(prefix) => outputs.named(prefix)?.f32()?.to_vec(),
            Prompting::Graph(_) => Vec::new(),
        };
        // Where the words of the recording are unknown, its frames are no part of such a prompt, nor of its sound.
        let is_in_prompt = transcript.is_some() || !self.contract.takes_transcript();
        let prompt = match &self.contract.recording {
            Some(recording) if is_in_prompt => outputs.named(recording)?.i64()?.to_vec(),
            _ => Vec::new(),
        };
        let names = self.contract.voice_tensors();
        let voice = names.iter().map(|name| outputs.named(name).map(|output| NamedTensor::of(name, output)));
        let voice = voice.collect::<Result<Vec<_>, OnnxError>>()?;
        let vocode = &self.contract.vocode;
        let carried = voice.iter().filter(|tensor| vocode.carry.contains(&tensor.name));
        let mut run_sizes: Vec<usize> = carried.flat_map(|tensor| tensor.shape.iter().copied()).collect();
        if self.contract.state.is_none() {
            run_sizes.push(prompt.len());
        }
        let made = Conditioning { prefix, prompt, voice, run_sizes, transcript, digest, primed: OnceLock::new() };
        if !(made.prefix.iter().all(|number| number.is_finite()) && made.voice.iter().all(NamedTensor::is_finite)) {
            return Err(OnnxError::Output(
                "a conditioning that is not a number (NaN): another recording may do".into(),
            ));
        }
        Ok(made)
    }
}

/// Conditionings by the digest of their recordings, the latest used first.
pub struct ConditioningCache {
    conditionings: Mutex<VecDeque<Arc<Conditioning>>>,
    /// Of the vocoder's state that each may come to hold.
    state_bytes: usize,
}

impl ConditioningCache {
    /// None yet.
    pub fn new(state_bytes: usize) -> Self {
        Self { conditionings: Mutex::default(), state_bytes }
    }

    /// The conditioning of that recording, where it is kept.
    pub fn get(&self, digest: &[u8; 32]) -> Option<Arc<Conditioning>> {
        let mut kept = self.conditionings.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|one| one.digest == *digest)?;
        let found = kept.remove(place)?;
        kept.push_front(found.clone());
        Some(found)
    }

    /// Keeps one, and lets the least recently used go where all together are more than 64 MiB.
    pub fn keep(&self, made: Arc<Conditioning>) {
        let mut kept = self.conditionings.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|one| one.digest != made.digest);
        kept.push_front(made);
        while kept.len() > 1 && kept.iter().map(|one| one.n_bytes(self.state_bytes)).sum::<usize>() > MAX_KEPT {
            kept.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{contract, files, recording, runtime};
    use super::*;

    fn conditioner(change: impl FnOnce(&mut Contract)) -> Result<Conditioner, LmError> {
        let mut contract = contract("language_model.onnx");
        change(&mut contract);
        let contract = Arc::new(contract);
        Conditioner::load(&files(&contract), &contract, &runtime())
    }

    #[test]
    fn a_recording_gives_its_own_conditioning_and_only_its_beginning_counts() {
        let conditioner = conditioner(|contract| contract.condition.use_seconds = 0.6).expect("loaded");
        let samples = recording();
        let of = |samples: &[f32]| conditioner.condition(samples, None, [0; 32]).expect("it runs");
        let made = of(&samples);
        assert_eq!(made.prefix.len(), 4 * 16);
        assert_eq!(made.voice.len(), 2);
        assert!(!made.prompt.is_empty());
        assert_eq!(made, of(&samples[..samples.len() * 9 / 10]), "0.6 of its 0.8 s are used");
        assert_ne!(made, of(&samples[2_400..]));
    }

    #[test]
    fn a_graph_that_does_not_fit_is_named() {
        let text =
            conditioner(|contract| contract.condition.audio = "audio".into()).err().expect("refused").to_string();
        assert!(text.contains("speech_encoder.onnx takes audio_values") && text.contains("no audio: f32"), "{text}");
        let text =
            conditioner(|contract| contract.vocode.carry.push("style".into())).err().expect("refused").to_string();
        assert!(text.contains("gives no style, which the prompt or the vocoder takes"), "{text}");
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_latest_stays() {
        let kept = ConditioningCache::new(0);
        let one = |i: u8| {
            let prefix = vec![0.0; MAX_KEPT / 4 / 3];
            Arc::new(Conditioning { prefix, digest: [i; 32], ..Conditioning::default() })
        };
        (0..3).for_each(|i| kept.keep(one(i)));
        assert!(kept.get(&[0; 32]).is_some(), "three fit");
        kept.keep(one(3));
        assert!(kept.get(&[1; 32]).is_none() && kept.get(&[0; 32]).is_some(), "the least recently used has gone");
    }
}
