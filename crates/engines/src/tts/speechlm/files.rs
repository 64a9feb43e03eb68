//! The files of a model: its graphs beside the main one, in the same precision where they are there.

use super::contract::Contract;
use std::path::{Path, PathBuf};

/// Stands for the suffix of a precision in the file names of a contract.
const PRECISION: &str = "{precision}";

/// A model whose files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The main file is not named as the contract has it.
    #[error("tts.model: {} is no {expected}: the contract {contract} names the language model's file so", path.display())]
    Name {
        /// The main file.
        path: PathBuf,
        /// The pattern.
        expected: String,
        /// The contract's name.
        contract: String,
    },
    /// A file is missing.
    #[error("the model is incomplete: {what} is missing at {}; pull it again (`antiphon models pull`)", path.display())]
    Missing {
        /// What the file is.
        what: &'static str,
        /// Where it should be.
        path: PathBuf,
    },
    /// A graph's weights are missing.
    #[error("the model is incomplete: {} is there and its weights {} are not; pull it again (`antiphon models pull`)", graph.display(), weights.display())]
    NoWeights {
        /// The graph.
        graph: PathBuf,
        /// Its external data.
        weights: PathBuf,
    },
}

/// Where the files of a model are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFiles {
    /// Recording to conditioning.
    pub condition: PathBuf,
    /// Ids and a voice to a prompt's embeddings, where the family has it.
    pub prompt: Option<PathBuf>,
    /// Ids to embeddings, where the family has it.
    pub embed: Option<PathBuf>,
    /// The language model.
    pub decode: PathBuf,
    /// Hidden states to the other codebooks, where the family has it.
    pub frame: Option<PathBuf>,
    /// Tokens to sound.
    pub vocode: PathBuf,
    /// Text to ids.
    pub tokenizer: PathBuf,
}

impl ModelFiles {
    /// Finds the files of a model. `main` is the language model's file, or the model's folder, with or without a subfolder
    /// `onnx`. The other graphs use the precision of the main file; if it is missing, full precision, then any precision,
    /// because published models mix precisions. Blocks for file system access.
    ///
    /// # Errors
    /// [`FilesError`] names the file.
    pub fn find(main: &Path, contract: &Contract) -> Result<Self, FilesError> {
        let main = main_file(main, contract)?;
        let folder = main.parent().unwrap_or(Path::new("."));
        let precision = precision(&main, &contract.decode.file).ok_or_else(|| FilesError::Name {
            path: main.clone(),
            expected: contract.decode.file.clone(),
            contract: contract.name.clone(),
        })?;
        let graph = |what: &'static str, pattern: &str| {
            let [own, full] = [precision.as_str(), ""].map(|suffix| folder.join(pattern.replace(PRECISION, suffix)));
            let any = || any_precision(folder, pattern).unwrap_or_else(|| own.clone());
            let path = [&own, &full].into_iter().find(|path| path.is_file()).cloned().unwrap_or_else(any);
            present(what, path).and_then(with_weights)
        };
        let optional = |what: &'static str, pattern: Option<&String>| pattern.map(|own| graph(what, own)).transpose();
        let tokenizer =
            [Some(folder), folder.parent()].into_iter().flatten().map(|at| at.join(&contract.text.tokenizer));
        let beside = folder.join(&contract.text.tokenizer);
        Ok(Self {
            condition: graph("the graph for recordings", &contract.condition.file)?,
            prompt: optional("the graph for prompts", contract.prompt().map(|prompt| &prompt.file))?,
            embed: optional("the embedding graph", contract.embed().map(|embed| &embed.file))?,
            decode: present("the language model", main.clone()).and_then(with_weights)?,
            frame: optional("the graph for codebooks", contract.frame().map(|frame| &frame.file))?,
            vocode: graph("the vocoder", &contract.vocode.file)?,
            tokenizer: tokenizer
                .into_iter()
                .find(|path| path.is_file())
                .map_or_else(|| Err(FilesError::Missing { what: "the tokenizer", path: beside }), Ok)?,
        })
    }
}

/// The language model's file: the one that is named, or the one in the folder that is named, in full precision.
fn main_file(named: &Path, contract: &Contract) -> Result<PathBuf, FilesError> {
    if !named.is_dir() {
        return Ok(named.into());
    }
    let file = contract.decode.file.replace(PRECISION, "");
    let places = [named.join(&file), named.join("onnx").join(&file)];
    let found = places.iter().find(|path| path.is_file()).cloned();
    found.ok_or_else(|| FilesError::Missing { what: "the language model", path: places[0].clone() })
}

/// What stands for the precision in a file's name.
fn precision(path: &Path, pattern: &str) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let Some((before, after)) = pattern.split_once(PRECISION) else { return (name == pattern).then(String::new) };
    name.strip_prefix(before)?.strip_suffix(after).map(str::to_owned)
}

/// The first file of the folder, by name, that the pattern fits.
fn any_precision(folder: &Path, pattern: &str) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    files.filter(|path| precision(path, pattern).is_some()).min()
}

fn present(what: &'static str, path: PathBuf) -> Result<PathBuf, FilesError> {
    if path.is_file() { Ok(path) } else { Err(FilesError::Missing { what, path }) }
}

/// Large graphs keep their weights in a file beside them, whose name the graph holds as text.
fn with_weights(graph: PathBuf) -> Result<PathBuf, FilesError> {
    /// A graph without its weights is smaller; one that holds them is not searched.
    const LARGEST: u64 = 16 << 20;
    let name = graph.file_name().unwrap_or_default().to_string_lossy().into_owned() + "_data";
    let weights = graph.with_file_name(&name);
    if weights.is_file() || std::fs::metadata(&graph).is_ok_and(|file| file.len() > LARGEST) {
        return Ok(graph);
    }
    let names_it =
        std::fs::read(&graph).is_ok_and(|bytes| bytes.windows(name.len()).any(|window| window == name.as_bytes()));
    if names_it { Err(FilesError::NoWeights { graph, weights }) } else { Ok(graph) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turbo() -> Contract {
        Contract::of_model("chatterbox-turbo").expect("built in")
    }

    #[test]
    fn the_files_of_one_precision_are_taken_and_full_precision_where_there_is_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let onnx = folder.path().join("onnx");
        std::fs::create_dir(&onnx).expect("made");
        for name in
            ["language_model_q4", "embed_tokens", "speech_encoder", "conditional_decoder_q4", "conditional_decoder"]
        {
            std::fs::write(onnx.join(name).with_extension("onnx"), name).expect("written");
        }
        let main = onnx.join("language_model_q4.onnx");
        let incomplete = ModelFiles::find(&main, &turbo()).expect_err("no tokenizer").to_string();
        assert!(incomplete.contains("the tokenizer is missing"), "{incomplete}");
        std::fs::write(folder.path().join("tokenizer.json"), "{}").expect("written");
        let files = ModelFiles::find(&main, &turbo()).expect("all there");
        let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
        let embed = |files: ModelFiles| files.embed.as_deref().map(name);
        assert_eq!(embed(files.clone()).as_deref(), Some("embed_tokens.onnx"));
        assert_eq!(name(&files.vocode), "conditional_decoder_q4.onnx");
        assert_eq!((files.prompt, files.frame), (None, None));
        assert!(
            matches!(ModelFiles::find(folder.path(), &turbo()), Err(FilesError::Missing { .. })),
            "no full precision"
        );
        std::fs::rename(onnx.join("embed_tokens.onnx"), onnx.join("embed_tokens_fp16.onnx")).expect("renamed");
        let mixed = embed(ModelFiles::find(&main, &turbo()).expect("mixed"));
        assert_eq!(mixed.as_deref(), Some("embed_tokens_fp16.onnx"));
        std::fs::write(onnx.join("language_model.onnx"), "x").expect("written");
        assert_eq!(name(&ModelFiles::find(folder.path(), &turbo()).expect("found").decode), "language_model.onnx");
    }

    #[test]
    fn a_graph_without_its_weights_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["language_model", "embed_tokens", "speech_encoder", "conditional_decoder"] {
            std::fs::write(folder.path().join(name).with_extension("onnx"), format!("..{name}.onnx_data.."))
                .expect("written");
            std::fs::write(folder.path().join(format!("{name}.onnx_data")), "").expect("written");
        }
        std::fs::write(folder.path().join("tokenizer.json"), "{}").expect("written");
        assert!(ModelFiles::find(folder.path(), &turbo()).is_ok());
        std::fs::remove_file(folder.path().join("speech_encoder.onnx_data")).expect("removed");
        let error = ModelFiles::find(folder.path(), &turbo()).expect_err("incomplete").to_string();
        assert!(error.contains("speech_encoder.onnx_data are not; pull it again"), "{error}");
        let other = folder.path().join("model.onnx");
        std::fs::write(&other, "x").expect("written");
        let error = ModelFiles::find(&other, &turbo()).expect_err("another name").to_string();
        assert!(error.contains("is no language_model{precision}.onnx"), "{error}");
    }
}
