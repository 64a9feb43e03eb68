//! The graph that makes a prompt's embeddings of ids and a voice, for families whose prompts are more than the conditioning
//! and the text in a row. Used by [`LanguageModel`](super::LanguageModel) alone, once a chunk.

use super::super::condition::Conditioning;
use super::super::contract::{Contract, Prompt as Rules};
use super::super::files::ModelFiles;
use super::super::text::Ids;
use super::{LmError, ports};
use antiphon_inference::onnx::{Kind, Model, ModelOptions, OnnxError, Runtime, Tensor};
use tokio_util::sync::CancellationToken;

/// What a speech begins with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// Embeddings, [length, hidden].
    pub embeds: Vec<f32>,
    /// What is added to the embeddings of the first, second, ... generated frame, [frames, hidden], the last for all after it;
    /// empty: nothing is.
    pub following: Vec<f32>,
}

/// See the module.
pub struct PromptGraph {
    model: Model,
    rules: Rules,
    hidden: usize,
}

impl PromptGraph {
    /// Loads the graph, where the family has one, and checks its ports. `hidden`: numbers of an embedding.
    ///
    /// # Errors
    /// [`LmError`] names the file, the port, what is there and what should be.
    pub fn load(
        files: &ModelFiles,
        contract: &Contract,
        runtime: &Runtime,
        hidden: usize,
    ) -> Result<Option<Self>, LmError> {
        let (Some(rules), Some(file)) = (contract.prompt(), &files.prompt) else { return Ok(None) };
        let model = runtime.load(file, &ModelOptions::default())?;
        let ids = vec![Kind::I64, Kind::I32];
        let floats = [Kind::F32, Kind::F16];
        let mut wants: Vec<_> =
            rules.ids.iter().map(|input| (input.port.clone(), ids.clone(), vec![None, None])).collect();
        wants.extend(rules.language.iter().map(|input| (input.port.clone(), ids.clone(), vec![None])));
        for name in &rules.voice {
            let rank = model.input(name).map_or(2, |slot| slot.shape.len());
            wants.push((name.clone(), [&floats[..], &ids].concat(), vec![None; rank]));
        }
        ports::inputs(contract, &model, &wants)?;
        ports::output(contract, &model, &rules.embeds, &floats, &[None, None, Some(hidden)])?;
        if let Some(following) = &rules.following {
            ports::output(contract, &model, following, &floats, &[None, None, Some(hidden)])?;
        }
        Ok(Some(Self { model, rules: rules.clone(), hidden }))
    }

    /// The prompt of these ids in this voice. Blocks for the run.
    ///
    /// # Errors
    /// [`OnnxError::Inputs`] where the graph does not have an id; [`OnnxError::Output`] where it gives no numbers.
    pub fn prompt(&self, ids: &Ids, voice: &Conditioning) -> Result<Prompt, OnnxError> {
        let language = [ids.language];
        let mut inputs: Vec<(&str, Tensor<'_>)> = Vec::new();
        for (input, ids) in self.rules.ids.iter().zip(&ids.inputs) {
            inputs.push((&input.port, Tensor::i64([1, ids.len()], ids)));
        }
        inputs.extend(self.rules.language.iter().map(|input| (input.port.as_str(), Tensor::i64([1], &language))));
        for name in &self.rules.voice {
            inputs.push((name, voice.tensor(name)?.tensor()));
        }
        let outputs = self.model.run(&inputs, &CancellationToken::new())?;
        let embeds = outputs.named(&self.rules.embeds)?.f32()?.to_vec();
        let following = match &self.rules.following {
            Some(name) => outputs.named(name)?.f32()?.to_vec(),
            None => Vec::new(),
        };
        if embeds.is_empty() || !embeds.iter().chain(&following).all(|number| number.is_finite()) {
            return Err(OnnxError::Output("a prompt that is no numbers".into()));
        }
        debug_assert_eq!(embeds.len() % self.hidden, 0);
        Ok(Prompt { embeds, following })
    }
}
