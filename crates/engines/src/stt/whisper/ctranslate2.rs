//! Reads the container of CTranslate2 (`model.bin`, version 6): which variables there are, and their numbers.
//!
//! `convert` is the only caller. The table of contents is read once and held against the file's length, so that nothing is
//! allocated for a size that the file only claims; a variable's numbers are read when they are asked for. Nothing is
//! interpreted here: this module does not know Whisper.

use half::f16;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// The version of the container that is read (`ctranslate2/src/models/model.cc`, `current_binary_version`).
const VERSION: u32 = 6;
/// Bounds of the table, well beyond the largest Whisper: 1,500 variables of two dimensions.
const MAX_VARIABLES: u32 = 20_000;
const MAX_RANK: u8 = 4;

/// What is wrong with a model in CTranslate2's form, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Ct2Error {
    /// The file cannot be read or written.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file is shorter than it claims.
    #[error("it ends within {0}: it is truncated, or still being copied")]
    Truncated(String),
    /// The file is no CTranslate2 model, or one of something else.
    #[error("it is no Whisper model in CTranslate2's form: {0}")]
    Foreign(String),
    /// The container is of another version.
    #[error(
        "it is in version {0} of CTranslate2's form, and this hub reads version {VERSION}: convert the model with CTranslate2 4"
    )]
    Version(u32),
    /// The weights are quantized.
    #[error(
        "its weights are stored as {0}, which cannot become whisper.cpp's 16-bit floats without loss: take the float16 or \
         float32 form of the model (ct2-transformers-converter without --quantization, or with --quantization float16)"
    )]
    Quantized(&'static str),
}

/// How CTranslate2 stores numbers (`ctranslate2/include/ctranslate2/types.h`, `DataType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Float32,
    Int8,
    Int16,
    Int32,
    Float16,
    BFloat16,
}

impl Number {
    fn of(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Float32,
            1 => Self::Int8,
            2 => Self::Int16,
            3 => Self::Int32,
            4 => Self::Float16,
            5 => Self::BFloat16,
            _ => return None,
        })
    }

    fn bytes(self) -> u64 {
        match self {
            Self::Int8 => 1,
            Self::Int16 | Self::Float16 | Self::BFloat16 => 2,
            Self::Float32 | Self::Int32 => 4,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Float16 => "float16",
            Self::BFloat16 => "bfloat16",
        }
    }
}

/// A variable's entry in the table.
#[derive(Clone, Debug)]
struct Variable {
    dims: Vec<usize>,
    number: Number,
    /// Where its numbers begin in the file, in bytes.
    at: u64,
    bytes: u64,
}

/// An open model file.
#[derive(Debug)]
pub(super) struct Container {
    file: File,
    /// What the model is, as its converter named it: `WhisperSpec`.
    pub(super) spec: String,
    variables: BTreeMap<String, Variable>,
}

impl Container {
    /// Reads the table of contents. Blocks for milliseconds.
    pub(super) fn open(path: &Path) -> Result<Self, Ct2Error> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut table = Table { file: BufReader::with_capacity(1 << 16, file), at: 0, length };
        if length < 4 {
            return Err(Ct2Error::Truncated("its first four bytes".into()));
        }
        let version = table.u32("its version")?;
        // A later version is a small number, too; anything else is another kind of file.
        if version == 0 || version > 1_000 {
            return Err(Ct2Error::Foreign(format!("it begins with the number {version}, which is no version")));
        }
        if version != VERSION {
            return Err(Ct2Error::Version(version));
        }
        let spec = table.text("the name of its kind")?;
        let _revision = table.u32("its revision")?;
        let count = table.u32("the number of variables")?;
        if count > MAX_VARIABLES {
            return Err(Ct2Error::Foreign(format!("it claims {count} variables")));
        }
        let mut variables = BTreeMap::new();
        for _ in 0..count {
            let name = table.text("the name of a variable")?;
            let variable = table.variable(&name)?;
            variables.insert(name, variable);
        }
        // Behind the variables come aliases, of which Whisper's one is known: the projection is the embedding.
        Ok(Self { file: table.file.into_inner(), spec, variables })
    }

    /// The dimensions of a variable, the outermost first.
    pub(super) fn dims(&self, name: &str) -> Result<&[usize], Ct2Error> {
        Ok(&self.variable(name)?.dims)
    }

    /// Whether there is such a variable.
    pub(super) fn has(&self, name: &str) -> bool {
        self.variables.contains_key(name)
    }

    /// A variable that is one whole number, such as the number of heads.
    pub(super) fn scalar(&self, name: &str) -> Result<i64, Ct2Error> {
        let variable = self.variable(name)?;
        if !variable.dims.is_empty() {
            return Err(Ct2Error::Foreign(format!("{name} is no single number")));
        }
        let bytes = self.read(variable)?;
        Ok(match (variable.number, bytes.as_slice()) {
            (Number::Int8, [a]) => i64::from(i8::from_le_bytes([*a])),
            (Number::Int16, [a, b]) => i64::from(i16::from_le_bytes([*a, *b])),
            (Number::Int32, [a, b, c, d]) => i64::from(i32::from_le_bytes([*a, *b, *c, *d])),
            _ => return Err(Ct2Error::Foreign(format!("{name} is no whole number"))),
        })
    }

    /// All numbers of a variable, in the file's order. Blocks while it reads them: at most 265 MB for Whisper large.
    pub(super) fn floats(&self, name: &str) -> Result<Vec<f32>, Ct2Error> {
        let variable = self.variable(name)?;
        let number = variable.number;
        if !matches!(number, Number::Float32 | Number::Float16) {
            return Err(Ct2Error::Quantized(number.name()));
        }
        let bytes = self.read(variable)?;
        Ok(if number == Number::Float16 {
            bytes.as_chunks::<2>().0.iter().map(|pair| f16::from_le_bytes(*pair).to_f32()).collect()
        } else {
            bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
        })
    }

    fn variable(&self, name: &str) -> Result<&Variable, Ct2Error> {
        self.variables.get(name).ok_or_else(|| Ct2Error::Foreign(format!("{name} is missing")))
    }

    fn read(&self, variable: &Variable) -> Result<Vec<u8>, Ct2Error> {
        // The length was checked against the file's when the table was read.
        let mut bytes = vec![0; usize::try_from(variable.bytes).map_err(io::Error::other)?];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(variable.at))?;
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

struct Table {
    file: BufReader<File>,
    at: u64,
    length: u64,
}

impl Table {
    /// Goes on by `n` bytes, if the file is as long.
    fn reach(&mut self, n: u64, what: &str) -> Result<(), Ct2Error> {
        if self.length - self.at < n {
            return Err(Ct2Error::Truncated(what.to_owned()));
        }
        self.at += n;
        Ok(())
    }

    fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Ct2Error> {
        self.reach(N as u64, what)?;
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32, Ct2Error> {
        Ok(u32::from_le_bytes(self.bytes(what)?))
    }

    /// A text with its length before it, in two bytes, and a zero at its end.
    fn text(&mut self, what: &str) -> Result<String, Ct2Error> {
        let length = u16::from_le_bytes(self.bytes(what)?);
        self.reach(u64::from(length), what)?;
        let mut bytes = vec![0; usize::from(length)];
        self.file.read_exact(&mut bytes)?;
        let text = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
        let text = std::str::from_utf8(text).map_err(|_| Ct2Error::Foreign(format!("{what} is no text")))?;
        Ok(text.to_owned())
    }

    fn variable(&mut self, name: &str) -> Result<Variable, Ct2Error> {
        let [rank] = self.bytes(name)?;
        if rank > MAX_RANK {
            return Err(Ct2Error::Foreign(format!("{name} has {rank} dimensions")));
        }
        let mut dims = Vec::new();
        for _ in 0..rank {
            dims.push(self.u32(name)? as usize);
        }
        let [code] = self.bytes(name)?;
        let number =
            Number::of(code).ok_or_else(|| Ct2Error::Foreign(format!("{name} is of the unknown type {code}")))?;
        let bytes = u64::from(self.u32(name)?);
        let expected = dims.iter().try_fold(number.bytes(), |bytes, size| bytes.checked_mul(*size as u64));
        if expected != Some(bytes) {
            return Err(Ct2Error::Foreign(format!(
                "{name} has {bytes} bytes, and {dims:?} in {} is another size",
                number.name()
            )));
        }
        let at = self.at;
        self.reach(bytes, name)?;
        // Within the file's length, which fits.
        self.file.seek_relative(bytes as i64)?;
        Ok(Variable { dims, number, at, bytes })
    }
}
