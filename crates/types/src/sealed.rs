//! The format of files that are encrypted at rest: replay logs by lines, all others by blocks.
//!
//! The session's recorder, the speech jobs and the store of custom voices write them; `antiphon replay` and `antiphon unseal`
//! read them. The cipher is a [`Sealing`], which the caller brings: this module holds no key and opens no file. What is sealed
//! is bound to its name, its number and, for blocks, whether it is the last one, so that nothing can be exchanged, reordered
//! or cut off unnoticed.
//!
//! A recording and a file of a voice begin with a [`Head`], a line of JSON that names it. A line is the base64 of the sealed
//! text. A block is a length of 4 bytes, little-endian, whose highest bit marks the last block, and the sealed bytes. A log
//! needs no mark of its own: its last line is its end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

/// The extension of sealed files.
pub const EXTENSION: &str = "sealed";
/// Bytes of a block at most, before they are sealed.
pub const MAX_BLOCK: usize = 1 << 20;
/// Bytes of a block that [`BlockWriter`] writes: what a reader of a stream waits for.
const BLOCK: usize = 64 << 10;
const VERSION: u32 = 1;
/// The longest first line, in bytes.
const MAX_HEAD: u64 = 4_096;
/// Bytes of a block's length.
const PREFIX: usize = 4;
const LAST: u32 = 1 << 31;
/// What the last line of a replay log begins with.
const END: &[u8] = b"{\"end\":";

/// Encrypts and authenticates records, each under a name. Its `Debug` output holds no key.
pub trait Sealing: fmt::Debug + Send + Sync {
    /// Seals a record of this name.
    fn seal(&self, name: &str, plain: &[u8]) -> Vec<u8>;

    /// Opens a record of this name.
    ///
    /// # Errors
    /// It is not what was sealed under this name with this key.
    fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, OpenError>;

    /// Bytes that sealing adds to a record.
    fn overhead(&self) -> usize;
}

/// Why something sealed cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The rest is missing.
    #[error("it is cut short")]
    CutShort,
    /// It was sealed with another key.
    #[error("it is sealed with another key")]
    OtherKey,
    /// Its bytes, its name or its place are not those that were sealed.
    #[error("it was changed after it was sealed, or it belongs elsewhere")]
    Changed,
    /// Its format is of a later version.
    #[error("it was sealed by a newer version of antiphon")]
    Newer,
}

/// Where a sealed file cannot be opened, and why. Inside an [`io::Error`] of the kind `InvalidData`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{unit} {number}: {why}")]
pub struct SealedError {
    /// "line", counted from 1, or "block", counted from 0.
    pub unit: &'static str,
    /// Which one.
    pub number: u64,
    /// Why.
    pub why: OpenError,
}

impl From<SealedError> for io::Error {
    fn from(error: SealedError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// How a file is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// A log.
    Lines,
    /// Sound, and files of voices.
    Blocks,
}

/// The first line of a sealed file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    antiphon_sealed: u32,
    /// How it is divided.
    pub form: Form,
    /// What its lines or blocks are bound to.
    pub name: String,
}

impl Head {
    /// Of a file of this build.
    #[must_use]
    pub fn new(form: Form, name: String) -> Self {
        Self { antiphon_sealed: VERSION, form, name }
    }

    /// The line, with its end.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("texts and numbers are JSON");
        line.push(b'\n');
        line
    }

    /// Reads the first line of a file; `None`: the file is not sealed. Blocks for one read.
    ///
    /// # Errors
    /// The file cannot be read; [`OpenError::Newer`], inside an error of the kind `InvalidData`.
    pub fn read_from(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = Vec::new();
        from.take(MAX_HEAD).read_until(b'\n', &mut line)?;
        Self::read(&String::from_utf8_lossy(&line)).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
    }

    /// Reads a first line; `None`: the file is not sealed.
    ///
    /// # Errors
    /// [`OpenError::Newer`].
    pub fn read(line: &str) -> Result<Option<Self>, OpenError> {
        #[derive(Deserialize)]
        struct Version {
            antiphon_sealed: u32,
        }
        let Ok(Version { antiphon_sealed }) = serde_json::from_str(line) else { return Ok(None) };
        if antiphon_sealed > VERSION {
            return Err(OpenError::Newer);
        }
        serde_json::from_str(line).map(Some).map_err(|_| OpenError::Changed)
    }
}

/// Seals a line; `number` counts from 1. The result has no end of line.
#[must_use]
pub fn seal_line(sealing: &dyn Sealing, name: &str, number: u64, text: &[u8]) -> String {
    STANDARD.encode(sealing.seal(&line_name(name, number), text))
}

/// Opens a line as it was read, with its end.
///
/// # Errors
/// It is not that line.
pub fn open_line(sealing: &dyn Sealing, name: &str, number: u64, line: &str) -> Result<Vec<u8>, SealedError> {
    let failed = |why| SealedError { unit: "line", number, why };
    let text = line.strip_suffix('\n').ok_or_else(|| failed(OpenError::CutShort))?;
    let sealed = STANDARD.decode(text).map_err(|_| failed(OpenError::Changed))?;
    sealing.open(&line_name(name, number), &sealed).map_err(failed)
}

/// Seals a block of at most [`MAX_BLOCK`] bytes; `number` counts from 0.
#[must_use]
pub fn seal_block(sealing: &dyn Sealing, name: &str, number: u64, is_last: bool, plain: &[u8]) -> Vec<u8> {
    debug_assert!(plain.len() <= MAX_BLOCK);
    let sealed = sealing.seal(&block_name(name, number, is_last), plain);
    let prefix = sealed.len() as u32 | if is_last { LAST } else { 0 };
    let mut block = Vec::with_capacity(PREFIX + sealed.len());
    block.extend_from_slice(&prefix.to_le_bytes());
    block.extend_from_slice(&sealed);
    block
}

fn line_name(name: &str, number: u64) -> String {
    format!("{name} line {number}")
}

fn block_name(name: &str, number: u64, is_last: bool) -> String {
    format!("{name} block {number}{}", if is_last { " last" } else { "" })
}

/// Length and mark of a block; `None`: it is none.
fn prefix_of(bytes: [u8; PREFIX], overhead: usize) -> Option<(usize, bool)> {
    let prefix = u32::from_le_bytes(bytes);
    let size = (prefix & !LAST) as usize;
    (overhead..=MAX_BLOCK + overhead).contains(&size).then_some((size, prefix & LAST != 0))
}

/// The end of whole blocks in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockEnd {
    /// Bytes of the file.
    pub offset: u64,
    /// Bytes before they were sealed.
    pub plain: u64,
    /// Blocks.
    pub n_blocks: u64,
}

/// The end of the whole blocks in a file that begins with one, up to the first at which `until` plain bytes are reached. Reads the
/// lengths only, which it trusts: who reads the blocks finds out. Blocks for one read of 4 bytes a block.
///
/// # Errors
/// The file cannot be read.
pub fn walk(file: &mut (impl Read + Seek), overhead: usize, until: u64) -> io::Result<BlockEnd> {
    let n_bytes = file.seek(SeekFrom::End(0))?;
    let mut end = BlockEnd::default();
    while end.plain < until && end.offset + PREFIX as u64 <= n_bytes {
        let mut prefix = [0; PREFIX];
        file.seek(SeekFrom::Start(end.offset))?;
        file.read_exact(&mut prefix)?;
        let Some((size, _)) = prefix_of(prefix, overhead) else { break };
        let offset = end.offset + (PREFIX + size) as u64;
        if offset > n_bytes {
            break;
        }
        end = BlockEnd { offset, plain: end.plain + (size - overhead) as u64, n_blocks: end.n_blocks + 1 };
    }
    Ok(end)
}

/// Writes a file in blocks. What is written counts only after [`BlockWriter::finish`].
pub struct BlockWriter<W> {
    to: W,
    sealing: Arc<dyn Sealing>,
    name: String,
    number: u64,
    block: Vec<u8>,
}

impl<W: Write> BlockWriter<W> {
    /// A file of this name.
    pub fn new(to: W, sealing: Arc<dyn Sealing>, name: String) -> Self {
        Self { to, sealing, name, number: 0, block: Vec::with_capacity(BLOCK) }
    }

    /// Writes the last block.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.put(true)?;
        Ok(self.to)
    }

    fn put(&mut self, is_last: bool) -> io::Result<()> {
        let block = seal_block(self.sealing.as_ref(), &self.name, self.number, is_last, &self.block);
        self.number += 1;
        self.block.clear();
        self.to.write_all(&block)
    }
}

impl<W: Write> Write for BlockWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full block waits for the next byte: it may be the last one.
        if self.block.len() == BLOCK && !bytes.is_empty() {
            self.put(false)?;
        }
        let n = bytes.len().min(BLOCK - self.block.len());
        self.block.extend_from_slice(&bytes[..n]);
        Ok(n)
    }

    /// Writes no part of a block.
    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Reads a file of blocks from its first one on. Errors carry a [`SealedError`]; the end without a last block is one.
pub struct BlockReader<R> {
    from: R,
    sealing: Arc<dyn Sealing>,
    name: String,
    number: u64,
    ended: bool,
    block: Vec<u8>,
    n_read: usize,
}

impl<R: Read> BlockReader<R> {
    /// Of a file of this name.
    pub fn new(from: R, sealing: Arc<dyn Sealing>, name: String) -> Self {
        Self { from, sealing, name, number: 0, ended: false, block: Vec::new(), n_read: 0 }
    }

    /// The next block; `None` behind the last one. Blocks for the time of one read.
    ///
    /// # Errors
    /// The file cannot be read, or is not what was sealed.
    pub fn next_block(&mut self) -> io::Result<Option<Vec<u8>>> {
        let number = self.number;
        let failed = |why| io::Error::from(SealedError { unit: "block", number, why });
        let cut = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => failed(OpenError::CutShort),
            _ => error,
        };
        if self.ended {
            return match self.from.read(&mut [0])? {
                0 => Ok(None),
                _ => Err(failed(OpenError::Changed)),
            };
        }
        let mut prefix = [0; PREFIX];
        self.from.read_exact(&mut prefix).map_err(cut)?;
        let (size, is_last) = prefix_of(prefix, self.sealing.overhead()).ok_or_else(|| failed(OpenError::Changed))?;
        let mut sealed = vec![0; size];
        self.from.read_exact(&mut sealed).map_err(cut)?;
        let plain = self.sealing.open(&block_name(&self.name, number, is_last), &sealed).map_err(failed)?;
        self.number = number + 1;
        self.ended = is_last;
        Ok(Some(plain))
    }
}

impl<R: Read> Read for BlockReader<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.n_read == self.block.len() {
            match self.next_block()? {
                Some(block) => (self.block, self.n_read) = (block, 0),
                None => return Ok(0),
            }
        }
        let n = to.len().min(self.block.len() - self.n_read);
        to[..n].copy_from_slice(&self.block[self.n_read..self.n_read + n]);
        self.n_read += n;
        Ok(n)
    }
}

/// Writes the content of a sealed file behind its head. What is written before an error is what was sealed. Blocks for the
/// length of the file.
///
/// # Errors
/// As [`BlockReader`]; a log without its end is cut short.
pub fn unseal(head: Head, mut from: impl BufRead, sealing: Arc<dyn Sealing>, to: &mut impl Write) -> io::Result<()> {
    if head.form == Form::Blocks {
        return io::copy(&mut BlockReader::new(from, sealing, head.name), to).map(drop);
    }
    let mut line = String::new();
    let mut number = 0;
    let mut is_end = false;
    loop {
        line.clear();
        number += 1;
        let cut = SealedError { unit: "line", number, why: OpenError::CutShort };
        let changed = SealedError { why: OpenError::Changed, ..cut };
        let n = from.read_line(&mut line).map_err(|error| match error.kind() {
            // It is not text.
            io::ErrorKind::InvalidData => changed.into(),
            _ => error,
        })?;
        match (n, is_end) {
            (0, true) => return Ok(()),
            (0, false) => return Err(cut.into()),
            (_, true) => return Err(changed.into()),
            _ => {}
        }
        let text = open_line(sealing.as_ref(), &head.name, number, &line)?;
        is_end = text.starts_with(END);
        to.write_all(&text)?;
        to.write_all(b"\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// Hides nothing, and notices every change of a byte, a name and a key. The real cipher is tested where it is.
    #[derive(Debug)]
    struct Plain(u8);

    fn sum(name: &str, plain: &[u8]) -> u8 {
        let mix = |sum: u8, byte: &u8| sum.wrapping_mul(31).wrapping_add(*byte);
        name.as_bytes().iter().chain(plain).fold(7, mix)
    }

    impl Sealing for Plain {
        fn seal(&self, name: &str, plain: &[u8]) -> Vec<u8> {
            [&[self.0, sum(name, plain)], plain].concat()
        }

        fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
            match sealed {
                [key, ..] if *key != self.0 => Err(OpenError::OtherKey),
                [_, check, plain @ ..] if *check == sum(name, plain) => Ok(plain.into()),
                _ => Err(OpenError::Changed),
            }
        }

        fn overhead(&self) -> usize {
            2
        }
    }

    fn sealed(plain: &[u8]) -> Vec<u8> {
        let mut writer = BlockWriter::new(Vec::new(), Arc::new(Plain(1)), "a".into());
        writer.write_all(plain).unwrap();
        writer.finish().unwrap()
    }

    fn opened(file: &[u8], name: &str) -> Result<Vec<u8>, SealedError> {
        let mut plain = Vec::new();
        let read = BlockReader::new(file, Arc::new(Plain(1)), name.into()).read_to_end(&mut plain);
        read.map(|_| plain).map_err(|error| *error.get_ref().unwrap().downcast_ref::<SealedError>().unwrap())
    }

    #[test]
    fn blocks_come_back_in_any_size_and_nothing_else_does() {
        for n in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK] {
            let plain: Vec<u8> = (0..n).map(|i| ((i * i) >> 3) as u8).collect();
            let file = sealed(&plain);
            assert_eq!(opened(&file, "a"), Ok(plain), "{n} bytes");
            assert_eq!(walk(&mut Cursor::new(&file), 2, u64::MAX).unwrap().plain, n as u64);
        }
        let plain = vec![5; 2 * BLOCK + 10];
        let file = sealed(&plain);
        let one = PREFIX + 2 + BLOCK;
        let why = |file: &[u8]| opened(file, "a").unwrap_err();
        assert_eq!(opened(&file, "b").unwrap_err().why, OpenError::Changed);
        assert_eq!(why(&file[..one]), SealedError { unit: "block", number: 1, why: OpenError::CutShort });
        assert_eq!(why(&file[..2 * one + 5]).why, OpenError::CutShort);
        assert_eq!(why(&[&file[..], &[0]].concat()).why, OpenError::Changed);
        assert_eq!(why(&[&file[one..2 * one], &file[..one], &file[2 * one..]].concat()).number, 0);
        assert_eq!(why(&[&file[..one], &file[2 * one..]].concat()).why, OpenError::Changed, "a block is missing");
        // The mark of the last block is authenticated.
        let mut marked = file[..one].to_vec();
        marked[PREFIX - 1] |= 0x80;
        assert_eq!(why(&marked).why, OpenError::Changed);
    }

    #[test]
    fn whole_blocks_are_found_behind_what_a_crash_left() {
        let sealing = Plain(1);
        let block = |number, n: usize| seal_block(&sealing, "a", number, false, &vec![1; n]);
        let file = [block(0, 10), block(1, 20), block(2, 30)].concat();
        let at = |n: usize, until| walk(&mut Cursor::new(&file[..n]), 2, until).unwrap();
        assert_eq!(at(file.len(), 30), BlockEnd { offset: 42, plain: 30, n_blocks: 2 });
        assert_eq!(at(file.len() - 1, u64::MAX), BlockEnd { offset: 42, plain: 30, n_blocks: 2 });
        assert_eq!(at(file.len(), 0), BlockEnd::default());
        assert_eq!(at(43, 60).plain, 30);
    }

    #[test]
    fn lines_are_opened_in_their_place_and_to_the_end() {
        let head = Head::new(Form::Lines, "a".into());
        assert_eq!(Head::read(&String::from_utf8(head.line()).unwrap()), Ok(Some(head.clone())));
        assert_eq!(Head::read("{\"antiphon_replay_log\":2}"), Ok(None));
        assert_eq!(Head::read("{\"antiphon_sealed\":2,\"more\":1}"), Err(OpenError::Newer));
        let lines: Vec<String> = ["{\"one\":1}", "{\"end\":{}}"]
            .iter()
            .zip(1..)
            .map(|(text, number)| seal_line(&Plain(1), "a", number, text.as_bytes()) + "\n")
            .collect();
        let run = |text: &str| {
            let mut to = Vec::new();
            let done = unseal(head.clone(), text.as_bytes(), Arc::new(Plain(1)), &mut to);
            let why = done.map_err(|error| error.get_ref().unwrap().downcast_ref::<SealedError>().unwrap().why);
            (String::from_utf8(to).unwrap(), why)
        };
        let whole = lines.concat();
        assert_eq!(run(&whole), ("{\"one\":1}\n{\"end\":{}}\n".into(), Ok(())));
        assert_eq!(run(&lines[0]), ("{\"one\":1}\n".into(), Err(OpenError::CutShort)));
        assert_eq!(run(&whole[..whole.len() - 3]).1, Err(OpenError::CutShort));
        assert_eq!(run(&lines[1]).1, Err(OpenError::Changed));
        assert_eq!(run(&[&whole, &lines[0][..]].concat()).1, Err(OpenError::Changed));
    }
}
