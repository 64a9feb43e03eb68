//! Whether a file is a complete Whisper model, before whisper.cpp reads it.
//!
//! whisper.cpp trusts what it reads: a truncated file loads with the rest of its weights missing, and wrong numbers end
//! the process. So header, vocabulary and every tensor's name, shape and length are held against `layout` and the
//! file's own length here; weights are skipped. It takes milliseconds, reads about a megabyte and changes nothing.

use super::layout::{MAGIC, N_BINS, NumberType, Sizes, Tensor};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// What is wrong with a file. The caller names the file and says how to get a right one.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("it is {0}, no Whisper model in whisper.cpp's ggml format (those begin with the bytes 6c 6d 67 67)")]
    Foreign(&'static str),
    #[error("it ends within {0}: it is truncated, or still being copied")]
    Truncated(String),
    #[error("it is damaged, or of another family than Whisper: {0}")]
    Damaged(String),
    #[error(
        "its weights are 32-bit floats, of which whisper.cpp has no convolution: convert the model to 16-bit floats"
    )]
    FullPrecision,
}

/// Reads the file through, weights excepted. Blocks for milliseconds.
pub(super) fn check(path: &Path) -> Result<Sizes, FileError> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut reader = Reader { file: BufReader::with_capacity(1 << 16, file), at: 0, length };
    let sizes = header(&mut reader)?;
    filters(&mut reader, &sizes)?;
    vocabulary(&mut reader, &sizes)?;
    tensors(&mut reader, &sizes)?;
    Ok(sizes)
}

impl Sizes {
    /// The dimensions of a complete file of whisper.cpp; the error says what is wrong with it. Blocks for milliseconds.
    pub fn of_file(path: &Path) -> Result<Self, String> {
        check(path).map_err(|error| error.to_string())
    }
}

struct Reader {
    file: BufReader<File>,
    at: u64,
    length: u64,
}

impl Reader {
    fn bytes(&mut self, n: usize, what: &str) -> Result<Vec<u8>, FileError> {
        self.reach(n as u64, what)?;
        let mut bytes = vec![0; n];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn number(&mut self, what: &str) -> Result<i32, FileError> {
        let bytes = self.bytes(4, what)?;
        Ok(i32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    fn skip(&mut self, n: u64, what: &str) -> Result<(), FileError> {
        self.reach(n, what)?;
        // Within the file's length, which fits.
        Ok(self.file.seek_relative(n as i64)?)
    }

    /// Goes on by `n`, if the file is as long; nothing is allocated or read before.
    fn reach(&mut self, n: u64, what: &str) -> Result<(), FileError> {
        if self.length - self.at < n {
            return Err(FileError::Truncated(what.to_owned()));
        }
        self.at += n;
        Ok(())
    }
}

fn header(reader: &mut Reader) -> Result<Sizes, FileError> {
    if reader.length == 0 {
        return Err(FileError::Foreign("empty"));
    }
    let magic: [u8; 4] = reader.bytes(4, "its first four bytes")?.try_into().expect("four bytes");
    if u32::from_le_bytes(magic) != MAGIC {
        return Err(FileError::Foreign(kind_of(magic)));
    }
    let mut numbers = [0; 11];
    for number in &mut numbers {
        *number = reader.number("its header")?;
    }
    let sizes = Sizes::from_header(numbers).ok_or_else(|| FileError::Damaged("a size is negative".into()))?;
    sizes.check().map_err(FileError::Damaged)?;
    if sizes.matrices().is_none() {
        return Err(FileError::Damaged(format!("whisper.cpp knows no way {} of storing weights", sizes.ftype)));
    }
    // ggml would end the process at the first utterance.
    if sizes.matrices() == Some(NumberType::FULL) {
        return Err(FileError::FullPrecision);
    }
    Ok(sizes)
}

/// What begins so.
fn kind_of(magic: [u8; 4]) -> &'static str {
    match &magic {
        b"GGUF" => "a GGUF file",
        b"ggjt" | b"tjgg" | b"fmgg" => "a ggml file of a language model",
        [b'P', b'K', ..] => "a zip archive (PyTorch's .pt files are such)",
        [0x1f, 0x8b, ..] => "a gzip archive",
        b"vers" => "a pointer of Git LFS; fetch the file itself",
        b"<!DO" | b"<htm" | b"<HTM" => "a web page, perhaps an error's",
        [0x08, ..] => "perhaps an ONNX graph",
        _ => "something else",
    }
}

fn filters(reader: &mut Reader, sizes: &Sizes) -> Result<(), FileError> {
    let what = "its mel filters";
    let n_mels = reader.number(what)?;
    let n_bins = reader.number(what)?;
    if (n_mels, n_bins) != (sizes.n_mels as i32, N_BINS as i32) {
        let should = format!("{} by {N_BINS}", sizes.n_mels);
        return Err(FileError::Damaged(format!("its mel filters are {n_mels} by {n_bins}, not {should}")));
    }
    reader.skip(sizes.n_mels as u64 * N_BINS as u64 * 4, what)
}

fn vocabulary(reader: &mut Reader, sizes: &Sizes) -> Result<(), FileError> {
    let what = "its vocabulary";
    let n = reader.number(what)?;
    if !usize::try_from(n).is_ok_and(|n| n <= sizes.n_vocab) {
        return Err(FileError::Damaged(format!("its vocabulary of {n} tokens is larger than {}", sizes.n_vocab)));
    }
    let mut has_blank = false;
    for token in 0..n {
        let length = reader.number(what)?;
        // The longest of OpenAI's is 128 bytes of spaces.
        let length = usize::try_from(length).ok().filter(|length| *length <= 1_024);
        let length = length.ok_or_else(|| FileError::Damaged(format!("token {token} has no sensible length")))?;
        has_blank |= reader.bytes(length, what)? == b" ";
    }
    // whisper.cpp looks it up at each first token and ends the process where it is not there.
    if !has_blank {
        return Err(FileError::Damaged("its vocabulary has no blank".into()));
    }
    Ok(())
}

fn tensors(reader: &mut Reader, sizes: &Sizes) -> Result<(), FileError> {
    let matrices = sizes.matrices().expect("checked with the header");
    let mut missing: HashMap<String, Tensor> =
        sizes.tensors().into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
    while reader.at < reader.length {
        let what = format!("its weights, {} tensors before the end", missing.len());
        let n_dims = reader.number(&what)?;
        let n_name = reader.number(&what)?;
        let of_type = reader.number(&what)?;
        if !(1..=3).contains(&n_dims) || !(1..=256).contains(&n_name) {
            return Err(FileError::Damaged("a tensor's head is not one".into()));
        }
        let mut shape = [1usize; 3];
        for size in shape.iter_mut().take(n_dims as usize) {
            *size = usize::try_from(reader.number(&what)?).unwrap_or(0);
        }
        let name = String::from_utf8_lossy(&reader.bytes(n_name as usize, &what)?).into_owned();
        let Some(tensor) = missing.remove(&name) else {
            return Err(FileError::Damaged(format!("the tensor {name:?} is unknown, or there twice")));
        };
        if tensor.shape != shape {
            return Err(FileError::Damaged(format!("{name} is {shape:?}, not {:?}", tensor.shape)));
        }
        let stored = tensor.stored(matrices);
        let bytes = stored.bytes(tensor.n_elements(), shape[0]).filter(|_| stored.of_type == of_type);
        let Some(bytes) = bytes else {
            return Err(FileError::Damaged(format!("{name} is stored in a way (type {of_type}) that is not its own")));
        };
        reader.skip(bytes as u64, &name)?;
    }
    match missing.keys().min() {
        None => Ok(()),
        Some(name) => {
            Err(FileError::Truncated(format!("its weights: {name} and {} more are missing", missing.len() - 1)))
        }
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
