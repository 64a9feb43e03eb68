//! Recognizes the formats of model files, for files without a published checksum: a server, or a proxy in between, may answer with
//! a sign-in or error page and status 200.
//!
//! Only the outer structure is read, in a few small reads: engines check the contents when they load a file. Everything here
//! blocks.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// The fields of ONNX's `ModelProto` that hold the format's version and the graph.
const GRAPH: u64 = 7;
/// The highest number of a field of `ModelProto`, with room for later versions of ONNX.
const MAX_FIELD: u64 = 64;
/// Top-level fields of an ONNX file: opsets, metadata and functions are a few hundred at most.
const MAX_FIELDS: usize = 100_000;
/// The longest header of a safetensors file, as the format has it.
const MAX_SAFETENSORS_HEADER: u64 = 100_000_000;

/// Checks that the file at `path` has the format that its registered name says. `Ok(None)`: it does, or no format is known for the
/// name; else what it should be.
pub(super) fn mismatch(path: &Path, name: &str) -> io::Result<Option<&'static str>> {
    let file_name = name.rsplit('/').next().unwrap_or(name);
    let extension = file_name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let mut file = File::open(path)?;
    let is_right = match extension {
        "onnx" => is_onnx(&mut file).map(|is_right| (is_right, "an ONNX model")),
        "gguf" => begins_with(&mut file, b"GGUF").map(|is_right| (is_right, "a GGUF model")),
        "bin" if file_name.starts_with("ggml-") => is_ggml(&mut file).map(|is_right| (is_right, "a ggml model")),
        "zip" | "npz" => is_zip(&mut file).map(|is_right| (is_right, "a ZIP archive")),
        "safetensors" => is_safetensors(&mut file).map(|is_right| (is_right, "a safetensors file")),
        "json" => is_json(&mut file).map(|is_right| (is_right, "JSON")),
        "gz" | "tgz" => begins_with(&mut file, &[0x1f, 0x8b]).map(|is_right| (is_right, "a gzip archive")),
        "bz2" => begins_with(&mut file, b"BZh").map(|is_right| (is_right, "a bzip2 archive")),
        _ => is_web_page(&mut file).map(|is_page| (!is_page, "a model's file, no web page")),
    };
    match is_right {
        Ok((true, _)) => Ok(None),
        Ok((false, expected)) => Ok(Some(expected)),
        Err(error) => Err(error),
    }
}

/// The first `n` bytes, fewer where the file is shorter.
fn head(file: &mut File, n: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(0))?;
    let mut head = Vec::new();
    file.take(n).read_to_end(&mut head)?;
    Ok(head)
}

fn begins_with(file: &mut File, magic: &[u8]) -> io::Result<bool> {
    Ok(head(file, magic.len() as u64)? == magic)
}

/// whisper.cpp writes the number 0x67676d6c ("ggml") in little-endian order; newer files are GGUF.
fn is_ggml(file: &mut File) -> io::Result<bool> {
    Ok(matches!(head(file, 4)?.as_slice(), b"lmgg" | b"GGUF"))
}

/// Entries, or the end of an archive without any.
fn is_zip(file: &mut File) -> io::Result<bool> {
    Ok(matches!(head(file, 4)?.as_slice(), b"PK\x03\x04" | b"PK\x05\x06"))
}

/// The length of a JSON object (8 bytes, little-endian), and the object.
fn is_safetensors(file: &mut File) -> io::Result<bool> {
    let n_bytes = file.metadata()?.len();
    let head = head(file, 9)?;
    let Some((length, begin)) = head.split_first_chunk::<8>() else { return Ok(false) };
    let length = u64::from_le_bytes(*length);
    Ok(begin == b"{" && length <= MAX_SAFETENSORS_HEADER && n_bytes.saturating_sub(8) >= length)
}

/// Configurations and vocabularies are objects or lists.
fn is_json(file: &mut File) -> io::Result<bool> {
    let begin = head(file, 256)?;
    let begin = begin.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&begin).trim_ascii_start();
    if !matches!(begin.first(), Some(b'{' | b'[')) {
        return Ok(false);
    }
    file.seek(SeekFrom::Start(0))?;
    match serde_json::from_reader::<_, serde::de::IgnoredAny>(BufReader::new(file)) {
        Ok(_) => Ok(true),
        Err(error) if error.is_io() => Err(error.into()),
        Err(_) => Ok(false),
    }
}

fn is_web_page(file: &mut File) -> io::Result<bool> {
    let begin = head(file, 1_024)?;
    let begin = String::from_utf8_lossy(&begin).trim_start_matches('\u{feff}').trim_start().to_ascii_lowercase();
    Ok(["<!doctype", "<html", "<head", "<?xml"].iter().any(|tag| begin.starts_with(tag)))
}

/// Walks the top-level fields of the protobuf message up to the end of the file: one of them is the graph.
fn is_onnx(file: &mut File) -> io::Result<bool> {
    let n_bytes = file.metadata()?.len();
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(0))?;
    let mut at = 0;
    let mut has_graph = false;
    for _ in 0..MAX_FIELDS {
        if at == n_bytes {
            return Ok(has_graph);
        }
        let Some(tag) = varint(&mut reader, &mut at)? else { return Ok(false) };
        let number = tag >> 3;
        let wire_type = tag & 7;
        if !(1..=MAX_FIELD).contains(&number) {
            return Ok(false);
        }
        let length = match wire_type {
            0 => match varint(&mut reader, &mut at)? {
                Some(_) => 0,
                None => return Ok(false),
            },
            1 => 8,
            2 => match varint(&mut reader, &mut at)? {
                Some(length) => length,
                None => return Ok(false),
            },
            5 => 4,
            _ => return Ok(false),
        };
        has_graph |= number == GRAPH && wire_type == 2 && length > 0;
        if length > n_bytes.saturating_sub(at) {
            return Ok(false);
        }
        // No file is longer than an i64 says.
        reader.seek_relative(length as i64)?;
        at += length;
    }
    Ok(false)
}

/// A number in groups of 7 bits; `None`: the file ends in it, or it has more than 64 bits.
fn varint(reader: &mut impl Read, at: &mut u64) -> io::Result<Option<u64>> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let mut byte = [0];
        match reader.read_exact(&mut byte) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        *at += 1;
        number |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] < 0x80 {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, bytes: &[u8]) -> Option<&'static str> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        mismatch(&path, name).unwrap()
    }

    /// `ir_version` 8, a producer, a graph of 300 bytes, an opset.
    fn onnx() -> Vec<u8> {
        let mut bytes = vec![0x08, 8, 0x12, 3, b'x', b'y', b'z', 0x3a, 0xac, 0x02];
        bytes.extend([7; 300]);
        bytes.extend([0x42, 2, 0x10, 17]);
        bytes
    }

    #[test]
    fn formats_are_recognized() {
        let safetensors = [&2_u64.to_le_bytes()[..], b"{}rest"].concat();
        for (name, bytes) in [
            ("voices/en.onnx", onnx().as_slice()),
            ("ggml-tiny.bin", b"lmgg\x01"),
            ("ggml-tiny.bin", b"GGUF\x03"),
            ("model.gguf", b"GGUF\x03"),
            ("voices.npz", b"PK\x03\x04..."),
            ("w.safetensors", safetensors.as_slice()),
            ("en.onnx.json", b"\n {\"audio\": {\"sample_rate\": 22050}}\n"),
            ("vocab.json", b"[1, 2]"),
            ("voice.bin", b"\x00\x01\x02"),
            ("MODEL_CARD", b"# Model card"),
            ("weights.onnx_data", b"<\x00<\x00"),
        ] {
            assert_eq!(found(name, bytes), None, "{name}");
        }
    }

    #[test]
    fn pages_and_torn_files_are_refused() {
        let pages: [&[u8]; 5] =
            [b"<html>Sign in</html>", b"<!DOCTYPE html>\n", b"Please log in.", b"{\"error\":\"log in", b""];
        for name in ["a.onnx", "ggml-a.bin", "a.gguf", "a.zip", "a.npz", "a.safetensors", "a.json", "a.gz", "a.tar.bz2"]
        {
            assert!(pages.iter().all(|page| found(name, page).is_some()), "{name}");
        }
        for name in ["MODEL_CARD", "voice.bin", "a.onnx_data", "tokens.txt"] {
            assert!(pages[..2].iter().all(|page| found(name, page).is_some()), "{name}");
        }
        let whole = onnx();
        for n in 0..whole.len() - 4 {
            assert!(found("a.onnx", &whole[..n]).is_some(), "its first {n} bytes");
        }
        assert!(found("a.onnx", &[0x3a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).is_some());
        assert!(found("a.onnx", &[0xff; 64]).is_some());
        assert!(found("a.safetensors", &[u64::MAX.to_le_bytes().as_slice(), b"{}"].concat()).is_some());
    }
}
