//! WAV files uploaded by a client or named by a user.
#![no_main]

use antiphon_audio::wav;
use antiphon_types::SampleRate;
use libfuzzer_sys::fuzz_target;
use std::time::Duration;

const RATE: SampleRate = SampleRate::HZ_16000;
const LONGEST: Duration = Duration::from_secs(2);
/// Samples that a resampler may add at the end of the longest file.
const SLACK: usize = 1600;

fuzz_target!(|file: &[u8]| {
    let Ok(pcm) = wav::read(file, RATE, LONGEST) else { return };
    assert_eq!(pcm.rate, RATE);
    assert!(pcm.samples.len() <= 2 * RATE.hz() as usize + SLACK, "{} samples", pcm.samples.len());
    if !pcm.is_empty() && pcm.duration() <= LONGEST {
        assert_eq!(wav::read(&wav::write(&pcm), RATE, LONGEST).expect("what is written can be read"), pcm);
    }
});
