//! A voice's conditioning: what a family's graphs need of a reference recording, made once and kept by the recording's content.
//!
//! [`Conditioner`] runs the graph, on the thread of an engine pool; [`Kept`] holds what was made, bounded in bytes. Called by
//! the engine before a chunk of a voice that is not kept, and when a voice is added.

use super::contract::Contract;
use super::files::ModelFiles;
use super::lm::LmError;
use super::lm::ports;
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxError, Runtime, Tensor};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Conditionings that are kept, in bytes: some forty of Chatterbox Turbo, 1.6 MB each.
const MAX_KEPT: usize = 64 << 20;

/// What a family's graphs need of a recording.
#[derive(Debug, PartialEq)]
pub struct Conditioning {
    /// Embeddings before those of the text, [length, hidden].
    pub prefix: Vec<f32>,
    /// The recording's own tokens.
    pub prompt: Vec<i64>,
    /// What the vocoder takes: name, shape, numbers.
    pub carry: Vec<(String, Vec<usize>, Vec<f32>)>,
    /// The recording's digest.
    pub digest: [u8; 32],
}

impl Conditioning {
    fn n_bytes(&self) -> usize {
        let carried: usize = self.carry.iter().map(|(_, _, numbers)| 4 * numbers.len()).sum();
        4 * self.prefix.len() + 8 * self.prompt.len() + carried
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
        let (rules, floats) = (&contract.condition, &[Kind::F32, Kind::F16]);
        ports::inputs(contract, &model, &[(rules.audio.clone(), floats.to_vec(), vec![None, None])])?;
        ports::output(contract, &model, &rules.prefix, floats, &[None, None, None])?;
        if contract.vocode.with_prompt {
            ports::output(contract, &model, &rules.prompt, &[Kind::I64, Kind::I32], &[None, None])?;
        }
        for name in &contract.vocode.carry {
            if model.output(name).is_none() {
                let wrong = format!("gives no {name}, which the vocoder takes");
                return Err(LmError::Port { contract: contract.name.clone(), file: model.path().into(), wrong });
            }
        }
        Ok(Self { contract: contract.clone(), model })
    }

    /// The conditioning of a recording: mono at the family's rate, full scale 1.0. Blocks for the run, a second or so on the
    /// processor.
    ///
    /// # Errors
    /// [`OnnxError`]; [`OnnxError::Output`] where the graph gives what is no number.
    pub fn condition(&self, samples: &[f32], digest: [u8; 32]) -> Result<Conditioning, OnnxError> {
        let most = (self.contract.condition.use_seconds * self.contract.rate_hz as f32) as usize;
        let samples = &samples[..samples.len().min(most)];
        let audio = Tensor::f32([1, samples.len()], samples);
        let outputs = self.model.run(&[(&self.contract.condition.audio, audio)], &CancellationToken::new())?;
        let prefix = outputs.named(&self.contract.condition.prefix)?.f32()?.to_vec();
        let prompt = match self.contract.vocode.with_prompt {
            true => outputs.named(&self.contract.condition.prompt)?.i64()?.to_vec(),
            false => Vec::new(),
        };
        let carried = self.contract.vocode.carry.iter().map(|name| {
            let output = outputs.named(name)?;
            Ok((name.clone(), output.shape().to_vec(), output.f32()?.to_vec()))
        });
        let carry = carried.collect::<Result<Vec<_>, OnnxError>>()?;
        let made = Conditioning { prefix, prompt, carry, digest };
        let numbers = made.carry.iter().flat_map(|(_, _, numbers)| numbers).chain(&made.prefix);
        if !numbers.into_iter().all(|number| number.is_finite()) {
            return Err(OnnxError::Output(
                "a conditioning that is not a number (NaN): another recording may do".into(),
            ));
        }
        Ok(made)
    }
}

/// Conditionings by the digest of their recordings, the latest used first.
#[derive(Default)]
pub struct Kept(Mutex<VecDeque<Arc<Conditioning>>>);

impl Kept {
    /// The conditioning of that recording, where it is kept.
    pub fn get(&self, digest: &[u8; 32]) -> Option<Arc<Conditioning>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|one| one.digest == *digest)?;
        let found = kept.remove(place)?;
        kept.push_front(found.clone());
        Some(found)
    }

    /// Keeps one, and lets the least recently used go where all together are more than 64 MiB.
    pub fn keep(&self, made: Arc<Conditioning>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|one| one.digest != made.digest);
        kept.push_front(made);
        while kept.len() > 1 && kept.iter().map(|one| one.n_bytes()).sum::<usize>() > MAX_KEPT {
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
        let of = |samples: &[f32]| conditioner.condition(samples, [0; 32]).expect("it runs");
        let made = of(&samples);
        assert_eq!(made.prefix.len(), 4 * 16);
        assert_eq!(made.carry.len(), 2);
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
        assert!(text.contains("gives no style, which the vocoder takes"), "{text}");
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_latest_stays() {
        let kept = Kept::default();
        let one = |i: u8| {
            let prefix = vec![0.0; MAX_KEPT / 4 / 3];
            Arc::new(Conditioning { prefix, prompt: Vec::new(), carry: Vec::new(), digest: [i; 32] })
        };
        (0..3).for_each(|i| kept.keep(one(i)));
        assert!(kept.get(&[0; 32]).is_some(), "three fit");
        kept.keep(one(3));
        assert!(kept.get(&[1; 32]).is_none() && kept.get(&[0; 32]).is_some(), "the least recently used has gone");
    }
}
