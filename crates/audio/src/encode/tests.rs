//! Round trips: what is encoded can be decoded.

use super::super::decode::{Decoder, duration};
use super::*;
use antiphon_types::SampleRate;
use bytes::Bytes;
use proptest::prelude::*;
use std::f64::consts::TAU;
use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(60);

fn tone(n: usize) -> Vec<i16> {
    (0..n).map(|i| ((TAU * 440.0 * i as f64 / 24_000.0).sin() * 10_000.0) as i16).collect()
}

fn encode(format: FileFormat, blocks: &[&[i16]]) -> Vec<u8> {
    let mut encoder = Encoder::new(format).unwrap();
    let mut out = Vec::new();
    for block in blocks {
        encoder.push(block, &mut out).unwrap();
    }
    encoder.finish(&mut out).unwrap();
    out
}

/// Decodes a file to 24 kHz.
fn read(format: FileFormat, file: Vec<u8>) -> Vec<i16> {
    if format == FileFormat::Pcm {
        return file.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
    }
    let mut decoder = Decoder::open(Bytes::from(file), RATE, LONGEST).unwrap();
    let mut pcm = Vec::new();
    while decoder.next(&mut pcm).unwrap() {}
    pcm
}

/// The energy at 440 Hz relative to the total energy; 1.0 is a pure tone.
fn purity(pcm: &[i16]) -> f64 {
    let mut sin = 0.0;
    let mut cos = 0.0;
    let mut energy = 0.0;
    for (i, &sample) in pcm.iter().enumerate() {
        let (s, c) = (TAU * 440.0 * i as f64 / 24_000.0).sin_cos();
        let sample = f64::from(sample);
        sin += s * sample;
        cos += c * sample;
        energy += sample * sample;
    }
    2.0 * (sin * sin + cos * cos) / (pcm.len() as f64 * energy)
}

#[test]
fn every_format_is_read_back_with_its_length_and_sound() {
    let pcm = tone(36_007);
    for format in FileFormat::ALL {
        let file = encode(format, &[&pcm]);
        let back = read(format, file.clone());
        // MP3 pads at both ends and a stream cannot declare the padding: at most three frames of 576 samples here.
        let slack = match format {
            FileFormat::Mp3 => 3 * 576 + 1_105,
            FileFormat::Opus => 2,
            _ => 0,
        };
        let longer = back.len() as i64 - pcm.len() as i64;
        assert!((0..=slack).contains(&longer.abs()), "{format:?}: {longer} samples longer");
        let lossless = matches!(format, FileFormat::Flac | FileFormat::Wav | FileFormat::Pcm);
        assert!(!lossless || back == pcm, "{format:?} changes samples");
        let middle = purity(&back[6_000..30_000]);
        assert!(middle > 0.99, "{format:?}: {middle}");
        if format != FileFormat::Pcm {
            let measured = duration(Bytes::from(file), LONGEST).unwrap().as_secs_f64();
            assert!((measured - 36_007.0 / 24_000.0).abs() < 0.13, "{format:?}: {measured} s");
        }
    }
}

#[test]
fn bytes_leave_while_the_voice_still_speaks() {
    let pcm = tone(24_000);
    for format in FileFormat::ALL {
        let mut encoder = Encoder::new(format).unwrap();
        let mut out = Vec::new();
        encoder.push(&pcm[..7_200], &mut out).unwrap();
        let early = out.len();
        encoder.push(&pcm[7_200..], &mut out).unwrap();
        encoder.finish(&mut out).unwrap();
        assert!(early * 8 > out.len(), "{format:?}: {early} of {} bytes after 0.3 of 1 s", out.len());
    }
}

#[test]
fn nothing_at_all_is_a_whole_file_too() {
    for format in FileFormat::ALL {
        let file = encode(format, &[]);
        let begins: &[u8] = match format {
            FileFormat::Opus => b"OggS",
            FileFormat::Flac => b"fLaC",
            FileFormat::Wav => b"RIFF",
            FileFormat::Mp3 | FileFormat::Pcm => b"",
        };
        assert!(file.starts_with(begins), "{format:?}: {file:?}");
        assert_eq!(FileFormat::named(format.name()), Some(format));
    }
    assert_eq!(FileFormat::named("aac"), None);
}

#[test]
fn an_end_shorter_than_a_flac_frame_may_be_gets_silence() {
    let pcm = tone(2_304 + 5);
    let back = read(FileFormat::Flac, encode(FileFormat::Flac, &[&pcm]));
    assert_eq!((&back[..pcm.len()], &back[pcm.len()..]), (&pcm[..], &[0; 27][..]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn what_is_written_does_not_depend_on_block_sizes(cuts in prop::collection::vec(1..3_000usize, 1..8)) {
        let pcm = tone(cuts.iter().sum());
        let mut rest = &pcm[..];
        let blocks: Vec<&[i16]> = cuts.iter().map(|&n| { let (block, tail) = rest.split_at(n); rest = tail; block }).collect();
        for format in FileFormat::ALL {
            let mut one = encode(format, &[&pcm]);
            let mut many = encode(format, &blocks);
            if format == FileFormat::Opus {
                // The stream's serial number differs, and the page checksums cover it.
                one = read(format, one).iter().flat_map(|sample| sample.to_le_bytes()).collect();
                many = read(format, many).iter().flat_map(|sample| sample.to_le_bytes()).collect();
            }
            prop_assert_eq!(one, many, "{:?}", format);
        }
    }

    #[test]
    fn any_rate_asked_of_a_decoder_gives_the_same_time(hz in 8_000..48_000u32) {
        let file = Bytes::from(encode(FileFormat::Wav, &[&tone(12_000)]));
        let mut decoder = Decoder::open(file, SampleRate::new(hz), LONGEST).unwrap();
        let mut pcm = Vec::new();
        while decoder.next(&mut pcm).unwrap() {}
        prop_assert!((pcm.len() as i64 - i64::from(hz) / 2).abs() <= 1);
    }
}
