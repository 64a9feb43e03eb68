//! Files of every format: valid, made by other programs, and broken.

use super::*;
use crate::encode::{Encoder, FileFormat, RATE as MADE};
use crate::wav;
use proptest::prelude::*;
use std::f64::consts::TAU;

const TO: SampleRate = SampleRate::HZ_16000;
const LONGEST: Duration = Duration::from_secs(60);

/// One second of 440 Hz, encoded by other programs (see `tests/fixtures/sounds/README.md`).
const FOREIGN: [(&str, &[u8]); 7] = [
    ("m4a", include_bytes!("../../../../tests/fixtures/sounds/tone.m4a")),
    ("webm", include_bytes!("../../../../tests/fixtures/sounds/tone.webm")),
    ("live webm", include_bytes!("../../../../tests/fixtures/sounds/live.webm")),
    ("ogg", include_bytes!("../../../../tests/fixtures/sounds/tone.ogg")),
    ("opus", include_bytes!("../../../../tests/fixtures/sounds/tone.opus")),
    ("mp3", include_bytes!("../../../../tests/fixtures/sounds/tone.mp3")),
    ("flac", include_bytes!("../../../../tests/fixtures/sounds/tone.flac")),
];

fn decode(file: impl Into<Bytes>) -> Result<Vec<i16>, DecodeError> {
    let mut decoder = Decoder::open(file.into(), TO, LONGEST)?;
    let mut pcm = Vec::new();
    while decoder.next(&mut pcm)? {}
    Ok(pcm)
}

fn made(format: FileFormat, seconds: usize) -> Vec<u8> {
    let (mut encoder, mut file) = (Encoder::new(format).unwrap(), Vec::new());
    encoder.push(&vec![1_000; seconds * MADE.hz() as usize], &mut file).unwrap();
    encoder.finish(&mut file).unwrap();
    file
}

#[test]
fn what_other_programs_write_is_read() {
    for (name, file) in FOREIGN {
        let told = duration(Bytes::from_static(file), LONGEST).unwrap().as_secs_f64();
        assert!((0.98..1.1).contains(&told), "{name}: {told} s");
        let pcm = decode(file).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!((15_600..17_500).contains(&pcm.len()), "{name}: {} samples", pcm.len());
        let middle = &pcm[4_000..12_000];
        let crossings = middle.windows(2).filter(|pair| pair[0] < 0 && pair[1] >= 0).count();
        assert!((218..=222).contains(&crossings), "{name}: {crossings} periods in half a second");
        let rms = (middle.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / middle.len() as f64).sqrt();
        assert!((rms / 7_071.0 - 1.0).abs() < 0.12, "{name}: rms {rms}");
    }
}

#[test]
fn a_whole_file_keeps_its_own_rate() {
    for (name, file) in FOREIGN {
        let pcm = read(Bytes::from_static(file), LONGEST).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(
            (0.98..1.1).contains(&pcm.duration().as_secs_f64()),
            "{name}: {:?} at {}",
            pcm.duration(),
            pcm.rate.hz()
        );
    }
    let slow = Pcm { rate: SampleRate::new(8_000), samples: vec![7; 8_000] };
    assert_eq!(read(wav::write(&slow).into(), LONGEST), Ok(slow.clone()));
    let longest = Duration::from_millis(10);
    let long = Pcm { rate: SampleRate::new(8_000), samples: vec![7; 16_000] };
    assert_eq!(read(wav::write(&long).into(), longest), Err(DecodeError::TooLong { longest }));
    assert_eq!(read(Bytes::new(), LONGEST), Err(DecodeError::Empty));
}

#[test]
fn ogg_files_one_behind_the_other_are_read_to_the_end() {
    let [.., vorbis, opus, _, _] = FOREIGN.map(|(_, file)| file);
    for (name, links) in [("vorbis", [vorbis; 3]), ("opus", [opus; 3]), ("both", [vorbis, opus, vorbis])] {
        let file = Bytes::from(links.concat());
        let told = duration(file.clone(), LONGEST).unwrap().as_secs_f64();
        assert!((2.94..3.3).contains(&told), "{name}: {told} s");
        let pcm = decode(file).unwrap();
        assert!((46_800..52_500).contains(&pcm.len()), "{name}: {} samples", pcm.len());
        let loud = |from: usize| pcm[from..from + 4_000].iter().any(|sample| sample.unsigned_abs() > 5_000);
        assert!([6_000, 22_000, 38_000].into_iter().all(loud), "{name}: each sounds");
    }
}

#[test]
fn channels_are_mixed_and_rates_converted() {
    let spec = hound::WavSpec {
        channels: 2,
        sample_rate: 44_100,
        bits_per_sample: 24,
        sample_format: hound::SampleFormat::Int,
    };
    let mut file = Cursor::new(Vec::new());
    let mut writer = hound::WavWriter::new(&mut file, spec).unwrap();
    for i in 0..44_100 {
        let sample = (TAU * 440.0 * f64::from(i) / 44_100.0).sin() * 4_000_000.0;
        writer.write_sample(sample as i32).unwrap();
        writer.write_sample(0).unwrap();
    }
    writer.finalize().unwrap();
    let pcm = decode(file.into_inner()).unwrap();
    assert_eq!(pcm.len(), 16_000);
    let peak = pcm.iter().map(|sample| sample.unsigned_abs()).max().unwrap();
    assert!((7_700..7_950).contains(&peak), "half of 4 of 8.4 million: {peak}");
}

#[test]
fn what_cannot_be_read_is_told_in_plain_words() {
    let said = |file: Vec<u8>| {
        let file = Bytes::from(file);
        duration(file.clone(), LONGEST).and_then(|_| decode(file)).unwrap_err().to_string()
    };
    assert_eq!(said(Vec::new()), "the file holds no audio");
    assert_eq!(said(wav::write(&Pcm { rate: TO, samples: Vec::new() })), "the file holds no audio");
    for nothing in
        [b"hello, this is no sound".to_vec(), vec![0; 5_000], b"RIFF".to_vec(), made(FileFormat::Wav, 1)[4..].to_vec()]
    {
        let said = said(nothing);
        assert!(said.contains("no sound file"), "{said}");
    }
    // An invalid header: a sampling rate of zero.
    let mut broken = made(FileFormat::Wav, 1);
    broken[24..28].fill(0);
    let said = said(broken);
    assert!(said.contains("broken") || said.contains("cannot be decoded") || said.contains("no audio"), "{said}");
}

#[test]
fn too_long_is_found_by_looking_and_by_decoding() {
    let longest = Duration::from_secs(3);
    for format in [FileFormat::Wav, FileFormat::Mp3, FileFormat::Opus, FileFormat::Flac] {
        let file = Bytes::from(made(format, 6));
        let looked = duration(file.clone(), longest);
        assert_eq!(looked, Err(DecodeError::TooLong { longest }), "{format:?}");
        let mut decoder = Decoder::open(file, TO, longest).unwrap();
        let mut pcm = Vec::new();
        let error = loop {
            match decoder.next(&mut pcm) {
                Ok(true) => {}
                Ok(false) => panic!("{format:?}: the complete file was accepted"),
                Err(error) => break error,
            }
        };
        assert_eq!(error, DecodeError::TooLong { longest });
        assert!(pcm.len() < 5 * 16_000, "{format:?}: decoding continued for {} samples", pcm.len());
    }
}

#[test]
fn a_file_that_is_cut_off_gives_what_is_there() {
    // The other formats store sizes or an index that is read first, and one second of Ogg is a single page.
    for (name, file) in FOREIGN.iter().filter(|(name, _)| ["live webm", "mp3", "flac"].contains(name)) {
        let pcm = decode(file[..file.len() * 3 / 4].to_vec()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!((6_000..15_000).contains(&pcm.len()), "{name}: {}", pcm.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn no_bytes_make_it_panic_or_hang(
        which in 0..FOREIGN.len(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..24),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut file = FOREIGN[which].1.to_vec();
        for (at, with) in flips {
            let n = file.len();
            file[at.index(n)] = with;
        }
        let keep = file.len() - cut.index(file.len()) / 4;
        file.truncate(keep);
        let _ = duration(Bytes::from(file.clone()), LONGEST);
        let _ = decode(file);
    }
}
