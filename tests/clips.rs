//! The recordings of `fixtures/speech` and `fixtures/echo`: a person who reads.

use antiphon_audio::{convert, decode};
use antiphon_types::SampleRate;
use std::time::Duration;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
/// Longer than any of them.
const LONGEST: Duration = Duration::from_secs(60);

/// A file of `fixtures/speech`.
pub fn file(name: &str) -> Vec<u8> {
    std::fs::read(format!("{FIXTURES}/speech/{name}")).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The names of all files, each with its text, in the order of `texts.tsv`.
pub fn texts() -> Vec<(String, String)> {
    let texts = std::fs::read_to_string(format!("{FIXTURES}/speech/texts.tsv")).expect("the texts");
    let clip = |line: &str| {
        let (file, text) = line.split_once('\t').expect("two columns");
        (file.to_owned(), text.to_owned())
    };
    texts.lines().map(clip).collect()
}

/// The samples of a file of `fixtures/speech`, mono at 16 kHz.
pub fn samples(name: &str) -> Vec<i16> {
    decoded(file(name))
}

/// The same of `fixtures/echo`, whose recordings have no texts.
pub fn echo_samples(name: &str) -> Vec<i16> {
    decoded(std::fs::read(format!("{FIXTURES}/echo/{name}")).expect("a recording"))
}

fn decoded(file: Vec<u8>) -> Vec<i16> {
    let pcm = decode::read(file.into(), LONGEST).expect("a recording");
    convert(&pcm.samples, pcm.rate, SampleRate::HZ_16000)
}

/// The fewest words that have to be replaced, left out or put in.
pub fn n_errors(expected: &Vec<String>, heard: &Vec<String>) -> usize {
    strsim::generic_levenshtein(expected, heard)
}
