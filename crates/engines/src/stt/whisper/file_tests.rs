//! With files of random weights in the real format, complete and damaged.

use super::super::random;
use super::*;
use std::sync::OnceLock;

/// As small as the format allows.
pub(crate) const SMALL: Sizes = Sizes {
    n_audio_ctx: 64,
    n_audio_state: 8,
    n_audio_head: 1,
    n_audio_layer: 1,
    n_text_ctx: 32,
    n_text_state: 8,
    n_text_head: 1,
    n_text_layer: 1,
    n_mels: 8,
    ..Sizes::BASE
};

fn whole() -> &'static [u8] {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(|| {
        let mut bytes = Vec::new();
        random::write(&mut bytes, &SMALL).expect("memory");
        bytes
    })
}

fn checked(bytes: &[u8]) -> Result<Sizes, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.bin");
    std::fs::write(&path, bytes).expect("room");
    check(&path).map_err(|error| error.to_string())
}

#[track_caller]
fn refused(bytes: &[u8], why: &str) {
    let error = checked(bytes).expect_err("refused");
    assert!(error.contains(why), "{error}");
}

/// Where the header's number of that index stands.
const fn at(number: usize) -> usize {
    4 + 4 * number
}

fn with(at: usize, number: i32) -> Vec<u8> {
    let mut bytes = whole().to_vec();
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[test]
fn a_whole_file_says_its_sizes() {
    assert_eq!(checked(whole()), Ok(SMALL));
}

#[test]
fn weights_in_32_bits_are_refused_before_ggml_ends_the_process() {
    assert_eq!(whole()[at(10)], 1, "16 bits");
    refused(&with(at(10), 0), "convert the model to 16-bit floats");
}

#[test]
fn a_file_that_ends_too_early_is_truncated_wherever_it_ends() {
    let whole = whole();
    for n in [5, 40, 60, 2_000, 300_000, whole.len() / 2, whole.len() - 20_000, whole.len() - 1] {
        refused(&whole[..n], "truncated");
    }
    // Between two tensors, where whisper.cpp would notice too.
    let name = b"decoder.blocks.0.mlp.2.bias";
    let last = whole.windows(name.len()).rposition(|bytes| bytes == name).expect("it is there");
    refused(&whole[..last - 16], "decoder.blocks.0.mlp.2.bias and 0 more are missing");
}

#[test]
fn a_foreign_file_is_called_what_it_is() {
    refused(b"", "it is empty");
    refused(b"GGUF\x03\0\0\0", "a GGUF file");
    refused(b"PK\x03\x04......", "a zip archive");
    refused(b"version https://git-lfs.github.com/spec/v1\n", "Git LFS");
    refused(b"<!DOCTYPE html><html>", "a web page");
    refused(b"\x08\x08\x12\x07pytorch", "ONNX");
    refused(b"\xff\xff\xff\xff", "something else");
    refused(b"ab", "truncated");
}

#[test]
fn numbers_that_would_end_the_process_are_refused() {
    refused(&with(at(0), 1_000), "n_vocab is 1000");
    refused(&with(at(1), i32::MAX), "n_audio_ctx");
    refused(&with(at(2), -8), "negative");
    refused(&with(at(3), 3), "do not fit");
    refused(&with(at(6), 16), "do not fit");
    refused(&with(at(10), 4), "no way 4 of storing");
    refused(&with(at(9), 16), "mel filters are 8 by 201, not 16 by 201");
    refused(&with(at(4), 2), "missing");
    let filters = at(11) + 8 + 8 * N_BINS * 4;
    refused(&with(filters, 60_000), "larger than 51865");
    refused(&with(filters + 4, -1), "token 0 has no sensible length");
    let mut no_blank = whole().to_vec();
    no_blank[filters + 8] = b'x';
    refused(&no_blank, "no blank");
}

#[test]
fn a_tensor_of_another_name_shape_or_type_is_damage() {
    let name = b"decoder.ln.weight";
    let at = whole().windows(name.len()).position(|bytes| bytes == name).expect("it is there");
    let mut renamed = whole().to_vec();
    renamed[at] = b'D';
    refused(&renamed, "\"Decoder.ln.weight\" is unknown");
    refused(&with(at - 4, 9), "decoder.ln.weight is [9, 1, 1], not [8, 1, 1]");
    refused(&with(at - 8, 1), "decoder.ln.weight is stored in a way (type 1)");
}
