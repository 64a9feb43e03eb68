//! Audio files of any format, uploaded by a client for transcription.
#![no_main]

use antiphon_audio::decode::{self, Decoder};
use antiphon_types::SampleRate;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use std::time::Duration;

const RATE: SampleRate = SampleRate::HZ_16000;
const LONGEST: Duration = Duration::from_secs(2);
/// Upper bound in samples: one second beyond the longest duration, plus one more packet.
const MOST: usize = 5 * 16_000;

fuzz_target!(|file: &[u8]| {
    let file = Bytes::copy_from_slice(file);
    let _ = decode::duration(file.clone(), LONGEST);
    let Ok(mut decoder) = Decoder::open(file, RATE, LONGEST) else { return };
    let mut pcm = Vec::new();
    while let Ok(true) = decoder.next(&mut pcm) {}
    assert!(pcm.len() <= MOST, "{} samples", pcm.len());
});
