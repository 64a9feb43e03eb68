//! The files of a recognizer: which ones there are in a folder, what the encoder's properties and the tokens say.
//!
//! [`Graphs`](super::graphs::Graphs) loads the graphs and checks their ports against [`Sizes`]. Nothing is guessed: what is missing
//! or contradicts another file is an error that names the file, what is there and what should be.

use super::vocabulary::Vocabulary;
use antiphon_inference::onnx::{Model, OnnxError};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Why a model cannot be used. The text names the file, what is there, and what should be.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The folder or a file of it is not there.
    #[error("{} is missing: {expected}", path.display())]
    Missing {
        /// The file or folder.
        path: PathBuf,
        /// What should be there.
        expected: String,
    },
    /// The folder holds the model in two precisions.
    #[error("{} holds {first} and {second}: name one of them", folder.display())]
    Several {
        /// The folder.
        folder: PathBuf,
        /// An encoder.
        first: &'static str,
        /// Another one.
        second: &'static str,
    },
    /// A property of the encoder is missing, or contradicts another one or another file.
    #[error("{}: the property {key} is {found}, expected {expected}", path.display())]
    Property {
        /// The encoder.
        path: PathBuf,
        /// The property's name.
        key: String,
        /// What is there.
        found: String,
        /// What should be.
        expected: String,
    },
    /// A graph's input or output contradicts the properties or another graph.
    #[error("{}: {port} is {found}, expected {expected}", path.display())]
    Port {
        /// The graph.
        path: PathBuf,
        /// The port: its position and name.
        port: String,
        /// Its type and shape.
        found: String,
        /// What should be.
        expected: String,
    },
    /// The list of tokens cannot be read, or has not the tokens that the graphs have.
    #[error("{}: {problem}", path.display())]
    Tokens {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A graph gives NaN or infinity.
    #[error("{} gives no numbers for silence: get the file again, or export the model again", path.display())]
    NotNumbers {
        /// The graph.
        path: PathBuf,
    },
    /// A graph cannot be loaded or run.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
}

/// The paths of a model's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFiles {
    /// From mel frames to encoder frames.
    pub encoder: PathBuf,
    /// The predictor and the joiner.
    pub predictor: PredictorFiles,
    /// A token and its number a line.
    pub tokens: PathBuf,
}

/// The files of the predictor and the joiner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PredictorFiles {
    /// As sherpa-onnx publishes them.
    Apart {
        /// The predictor.
        decoder: PathBuf,
        /// From an encoder frame and the predictor's output to logits.
        joiner: PathBuf,
    },
    /// Both in one graph: our export, and NeMo's.
    Joint(PathBuf),
}

/// The largest number among the sizes of a model, and the most numbers of a stream's caches, 256 MiB: those of the
/// largest model have 8 MB.
const MAX_SIZE: usize = 1_000_000;
const MAX_CACHE: usize = 1 << 26;

/// What the names of a precision's graphs end in.
const ENDINGS: [&str; 2] = [".int8.onnx", ".onnx"];

impl ModelFiles {
    /// The files of `model`: a folder, or the encoder in it, which says the precision. Where a precision lacks another graph, that
    /// of the other precision is taken. Blocks while it looks.
    ///
    /// # Errors
    /// [`FileError::Missing`] and [`FileError::Several`].
    pub fn find(model: &Path) -> Result<Self, FileError> {
        let folder = if model.is_dir() { model } else { model.parent().unwrap_or(Path::new("")) };
        let is_there = |ending: &&&str| folder.join(format!("encoder{ending}")).is_file();
        let ending = if model.is_dir() {
            let mut there = ENDINGS.iter().filter(is_there);
            match (there.next(), there.next()) {
                (Some(_), Some(_)) => {
                    return Err(FileError::Several {
                        folder: folder.into(),
                        first: "encoder.int8.onnx",
                        second: "encoder.onnx",
                    });
                }
                (ending, _) => ending,
            }
        } else {
            let name = model.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            ENDINGS.iter().find(|ending| name == format!("encoder{ending}") && model.is_file())
        };
        let Some(ending) = ending else {
            let expected =
                "a folder with encoder.onnx (or encoder.int8.onnx), decoder.onnx, joiner.onnx and tokens.txt";
            return Err(FileError::Missing { path: model.into(), expected: expected.into() });
        };
        let graph = |role: &str| {
            let mut endings = ENDINGS;
            endings.sort_by_key(|other| other != ending);
            let paths = endings.map(|ending| folder.join(format!("{role}{ending}")));
            let missing =
                FileError::Missing { path: paths[0].clone(), expected: format!("the {role} beside the encoder") };
            paths.into_iter().find(|path| path.is_file()).ok_or(missing)
        };
        let predictor = match graph("decoder_joint") {
            Ok(joint) => PredictorFiles::Joint(joint),
            Err(_) => PredictorFiles::Apart { decoder: graph("decoder")?, joiner: graph("joiner")? },
        };
        let tokens = folder.join("tokens.txt");
        if !tokens.is_file() {
            return Err(FileError::Missing { path: tokens, expected: "a token and its number a line".into() });
        }
        let encoder = folder.join(format!("encoder{ending}"));
        Ok(Self { encoder, predictor, tokens })
    }

    /// The tokens. Blocks while it reads.
    ///
    /// # Errors
    /// [`FileError::Tokens`] with the line.
    pub fn vocabulary(&self) -> Result<Vocabulary, FileError> {
        let failed = |problem: String| FileError::Tokens { path: self.tokens.clone(), problem };
        let text = std::fs::read_to_string(&self.tokens).map_err(|error| failed(error.to_string()))?;
        Vocabulary::parse(&text).map_err(failed)
    }
}

/// The sizes of a model, from the encoder's properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Mel bands.
    pub n_mels: usize,
    /// Mel frames of a run: those of the chunk and some before it.
    pub window: usize,
    /// Mel frames of a chunk.
    pub shift: usize,
    /// Mel frames to one encoder frame.
    pub subsampling: usize,
    /// Tokens without the blank, whose id this is.
    pub n_pieces: usize,
    /// Of the attention's cache: layers, encoder frames, width.
    pub channel: [usize; 3],
    /// Of the convolutions' cache: layers, width, frames.
    pub time: [usize; 3],
    /// Layers of the predictor.
    pub pred_layers: usize,
    /// Width of the predictor.
    pub pred_hidden: usize,
    /// What is done with the features of a window before the encoder gets them.
    pub normalization: Normalization,
    /// Numbers of the prompts by language tag, where the encoder takes one, and of the one that detects the language.
    pub prompts: Option<Prompts>,
}

/// See [`Sizes::normalization`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalization {
    /// Nothing.
    None,
    /// Each band has the mean 0 and the deviation 1 over the window, as NeMo's online normalization does.
    PerFeature,
}

/// How the encoder is given the language.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompts {
    /// Tags as the model has them ("en-US"), with their numbers, in the order of the numbers.
    pub by_tag: Vec<(String, i64)>,
    /// The prompt that leaves the language to the model.
    pub auto: Option<i64>,
}

impl Sizes {
    /// Reads the encoder's properties.
    ///
    /// # Errors
    /// [`FileError::Property`].
    pub fn read(encoder: &Model) -> Result<Self, FileError> {
        let number = |key: &str| number(encoder, key);
        let dims = |stem: &str| {
            Ok::<_, FileError>([
                number(&format!("{stem}_dim1"))?,
                number(&format!("{stem}_dim2"))?,
                number(&format!("{stem}_dim3"))?,
            ])
        };
        let sizes = Self {
            n_mels: n_mels(encoder)?,
            window: number("window_size")?,
            shift: number("chunk_shift")?,
            subsampling: number("subsampling_factor")?,
            n_pieces: number("vocab_size")?,
            channel: dims("cache_last_channel")?,
            time: dims("cache_last_time")?,
            pred_layers: number("pred_rnn_layers")?,
            pred_hidden: number("pred_hidden")?,
            normalization: normalization(encoder)?,
            prompts: prompts(encoder)?,
        };
        let wrong = |key: &str, found: &dyn Display, expected: String| {
            Err(FileError::Property {
                path: encoder.path().into(),
                key: key.into(),
                found: found.to_string(),
                expected,
            })
        };
        if !sizes.shift.is_multiple_of(sizes.subsampling) {
            return wrong(
                "chunk_shift",
                &sizes.shift,
                format!("a multiple of subsampling_factor = {}", sizes.subsampling),
            );
        }
        if sizes.window < sizes.shift {
            return wrong("window_size", &sizes.window, format!("at least chunk_shift = {}", sizes.shift));
        }
        if sizes.time[..2] != [sizes.channel[0], sizes.channel[2]] {
            let expected =
                format!("layers and width of cache_last_channel, {} and {}", sizes.channel[0], sizes.channel[2]);
            return wrong("cache_last_time_dim1, dim2", &format!("{} and {}", sizes.time[0], sizes.time[1]), expected);
        }
        if sizes.cache_len() > MAX_CACHE {
            let expected = format!("caches of at most {MAX_CACHE} numbers");
            return wrong("cache_last_channel_dim1, dim2, dim3", &format!("{:?}", sizes.channel), expected);
        }
        // The oldest exports do not say it.
        if encoder.property("chunk_size_ms").is_some() && number("chunk_size_ms")? != sizes.chunk_ms() {
            let found = number("chunk_size_ms")?;
            return wrong("chunk_size_ms", &found, format!("{}, from chunk_shift in steps of 10 ms", sizes.chunk_ms()));
        }
        Ok(sizes)
    }

    /// Mel frames of a window before its chunk.
    pub fn lead(&self) -> usize {
        self.window - self.shift
    }

    /// Encoder frames of a chunk.
    pub fn n_new(&self) -> usize {
        self.shift / self.subsampling
    }

    /// Milliseconds of a chunk.
    pub fn chunk_ms(&self) -> usize {
        self.shift * 10
    }

    /// Milliseconds of an encoder frame.
    pub fn frame_ms(&self) -> u64 {
        self.subsampling as u64 * 10
    }

    /// Numbers in a stream's caches.
    pub fn cache_len(&self) -> usize {
        self.channel.iter().product::<usize>() + self.time.iter().product::<usize>()
    }
}

/// A whole number from 1 on, at most [`MAX_SIZE`].
fn number(encoder: &Model, key: &str) -> Result<usize, FileError> {
    let wrong = |found: String| FileError::Property {
        path: encoder.path().into(),
        key: key.into(),
        found,
        expected: format!("a whole number from 1 to {MAX_SIZE}"),
    };
    let text = encoder.property(key).ok_or_else(|| wrong("missing".into()))?;
    let number = text.trim().parse().ok().filter(|number| (1..=MAX_SIZE).contains(number));
    number.ok_or_else(|| wrong(format!("{text:?}")))
}

/// Mel bands: the oldest exports have them in the shape of the first input only.
fn n_mels(encoder: &Model) -> Result<usize, FileError> {
    let of_input = || encoder.inputs().first()?.shape.get(1).copied()?;
    match (encoder.property("feat_dim"), of_input()) {
        (None, Some(n_mels)) => Ok(n_mels),
        _ => number(encoder, "feat_dim"),
    }
}

fn normalization(encoder: &Model) -> Result<Normalization, FileError> {
    let text = encoder.property("normalize_type").unwrap_or_default();
    match text.as_str() {
        "" | "NA" | "None" => Ok(Normalization::None),
        "per_feature" => Ok(Normalization::PerFeature),
        _ => Err(FileError::Property {
            path: encoder.path().into(),
            key: "normalize_type".into(),
            found: format!("{text:?}"),
            expected: "\"\", \"NA\", \"None\" or \"per_feature\"".into(),
        }),
    }
}

fn prompts(encoder: &Model) -> Result<Option<Prompts>, FileError> {
    let Some(text) = encoder.property("prompt_dictionary") else { return Ok(None) };
    let by_tag: std::collections::HashMap<String, i64> =
        serde_json::from_str(&text).map_err(|_| FileError::Property {
            path: encoder.path().into(),
            key: "prompt_dictionary".into(),
            found: format!("{text:?}"),
            expected: "an object of language tags and numbers".into(),
        })?;
    let mut by_tag: Vec<_> = by_tag.into_iter().collect();
    by_tag.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
    let auto = encoder.property("auto_prompt_id").and_then(|text| text.trim().parse().ok());
    Ok(Some(Prompts { by_tag, auto }))
}
