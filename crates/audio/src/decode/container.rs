//! Prepares a file for the reader of its container: skips ID3 tags and states the length of a WAV file's audio.
//!
//! `decode` calls it before it opens a file. It never looks at samples, and copies headers only.

use super::DecodeError;
use bytes::{Buf, Bytes};
use std::io::{self, Read, Seek, SeekFrom};
use symphonia::core::io::MediaSource;

/// Length of an ID3v2 header, and of the footer that may end a tag (ID3v2.4, sections 3.1 and 3.4).
const ID3_HEADER: usize = 10;
/// The flag of a tag that ends with a footer.
const ID3_HAS_FOOTER: u8 = 0x10;

/// The longest `fmt ` or `fact` chunk that is copied: WAVEFORMATEXTENSIBLE has 40 bytes.
const MAX_COPIED: usize = 4_096;

/// A file in memory as a reader wants it: a header of ours, which is empty for most files, and what stands behind it.
#[derive(Debug)]
pub(super) struct Source {
    header: Bytes,
    body: Bytes,
    at: u64,
}

impl Source {
    /// # Errors
    /// [`DecodeError::Broken`] where the file ends inside a tag, [`DecodeError::Empty`] for a WAV file without samples.
    pub(super) fn new(file: Bytes) -> Result<Self, DecodeError> {
        let file = behind_tags(file)?;
        match Wav::find(&file) {
            Some(wav) if wav.len == 0 => Err(DecodeError::Empty),
            Some(wav) => {
                let body = file.slice(wav.start..wav.start + wav.len);
                Ok(Self { header: wav.header().into(), body, at: 0 })
            }
            None => Ok(Self { header: Bytes::new(), body: file, at: 0 }),
        }
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let header_len = self.header.len() as u64;
        let (part, from) =
            if self.at < header_len { (&self.header, self.at) } else { (&self.body, self.at - header_len) };
        let rest = usize::try_from(from).ok().and_then(|from| part.get(from..)).unwrap_or_default();
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        self.at += n as u64;
        Ok(n)
    }
}

impl Seek for Source {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let end = (self.header.len() + self.body.len()) as u64;
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => end.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

impl MediaSource for Source {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some((self.header.len() + self.body.len()) as u64)
    }
}

/// The file without the ID3v2 tags before it. A reader that looked for the audio itself would find it in a picture.
fn behind_tags(mut file: Bytes) -> Result<Bytes, DecodeError> {
    while let Some(len) = tag_len(&file) {
        if len > file.len() {
            return Err(DecodeError::Broken("it ends inside its ID3 tag".into()));
        }
        file.advance(len);
    }
    Ok(file)
}

/// Length of the tag at the start of a file.
fn tag_len(file: &[u8]) -> Option<usize> {
    let &[b'I', b'D', b'3', version, revision, flags, ref size @ ..] = file.first_chunk::<ID3_HEADER>()? else {
        return None;
    };
    // A version is never 0xFF, and the bytes of a size have seven bits.
    if version == 0xFF || revision == 0xFF || size.iter().any(|byte| byte & 0x80 != 0) {
        return None;
    }
    let body = size.iter().fold(0, |len, &byte| len << 7 | usize::from(byte));
    let footer = if flags & ID3_HAS_FOOTER == 0 { 0 } else { ID3_HEADER };
    Some(ID3_HEADER + body + footer)
}

/// Where the audio of a WAV file is. Programs that stream, and recorders that were switched off, leave lengths at 0, at
/// their largest value, or at what they expected: the audio then ends with the file.
struct Wav<'a> {
    /// The chunks `fmt ` and `fact`, as far as they are there.
    described_by: Vec<(&'a [u8; 4], &'a [u8])>,
    start: usize,
    /// In whole blocks.
    len: usize,
}

impl<'a> Wav<'a> {
    /// `None`: this is no WAV file with audio, or its chunks cannot be followed.
    fn find(file: &'a [u8]) -> Option<Self> {
        if !matches!(file.get(..4)?, b"RIFF" | b"RF64" | b"BW64") || file.get(8..12)? != b"WAVE" {
            return None;
        }
        let mut described_by = Vec::new();
        let mut block = 1;
        let mut long_len = None;
        let mut at = 12;
        loop {
            let (id, len) = chunk(file, at)?;
            let start = at + 8;
            if id == b"data" {
                let len = data_len(file, start, len, long_len);
                return Some(Self { described_by, start, len: len - len % block });
            }
            let body = file.get(start..start.checked_add(len)?)?;
            match id {
                b"fmt " | b"fact" if body.len() <= MAX_COPIED => {
                    if id == b"fmt " {
                        block = usize::from(u16::from_le_bytes(*body.get(12..)?.first_chunk()?)).max(1);
                    }
                    described_by.push((id, body));
                }
                // EBU Tech 3306: the length of the file, then that of the audio.
                b"ds64" => long_len = body.get(8..16).and_then(|len| Some(u64::from_le_bytes(*len.first_chunk()?))),
                _ => {}
            }
            at = behind(file, start + len);
        }
    }

    /// A header with lengths that are true.
    fn header(&self) -> Vec<u8> {
        let len = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        let mut chunks = Vec::new();
        for (id, body) in &self.described_by {
            chunks.extend_from_slice(*id);
            chunks.extend_from_slice(&len(body.len()));
            chunks.extend_from_slice(body);
            chunks.resize(chunks.len().next_multiple_of(2), 0);
        }
        let mut header = b"RIFF".to_vec();
        header.extend_from_slice(&len(4 + chunks.len() + 8 + self.len));
        header.extend_from_slice(b"WAVE");
        header.append(&mut chunks);
        header.extend_from_slice(b"data");
        header.extend_from_slice(&len(self.len));
        header
    }
}

/// The name and the length of the chunk at an offset.
fn chunk(file: &[u8], at: usize) -> Option<(&[u8; 4], usize)> {
    let head = file.get(at..at.checked_add(8)?)?;
    let len = u32::from_le_bytes(*head[4..].first_chunk()?) as usize;
    Some((head.first_chunk()?, len))
}

/// Where the chunk behind one that ends at `end` begins: at an even offset, which some programs forget.
fn behind(file: &[u8], end: usize) -> usize {
    let is_named = |at: usize| chunk(file, at).is_some_and(|(id, _)| id.iter().all(|c| (b' '..=b'~').contains(c)));
    if end % 2 == 1 && !is_named(end + 1) && is_named(end) { end } else { end.next_multiple_of(2) }
}

/// The length of the audio from `start` on, in bytes.
fn data_len(file: &[u8], start: usize, stated: usize, long_len: Option<u64>) -> usize {
    let rest = file.len() - start;
    let stated = match (u32::try_from(stated), long_len) {
        (Ok(u32::MAX), Some(long)) => usize::try_from(long).unwrap_or(usize::MAX),
        _ => stated,
    };
    match stated {
        // No audio, if nothing but chunks follows.
        0 if ends_in_chunks(file, start) => 0,
        0 => rest,
        _ => stated.min(rest),
    }
}

/// Whether chunks fill the file from `at` on.
fn ends_in_chunks(file: &[u8], mut at: usize) -> bool {
    while at < file.len() {
        let Some((id, len)) = chunk(file, at) else { return false };
        let end = at + 8 + len;
        if end > file.len() || !id.iter().all(|c| (b' '..=b'~').contains(c)) {
            return false;
        }
        at = behind(file, end);
    }
    true
}
