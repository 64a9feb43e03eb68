//! Files of every format: valid, made by other programs, and broken.

use super::*;
use crate::encode::{Encoder, FileFormat, RATE as MADE};
use crate::wav;
use proptest::prelude::*;
use std::f64::consts::TAU;
use std::io::Cursor;

const TO: SampleRate = SampleRate::HZ_16000;
const LONGEST: Duration = Duration::from_secs(60);

/// One second of 440 Hz, encoded by other programs (see `tests/fixtures/sounds/README.md`).
const FOREIGN: [(&str, &[u8]); 11] = [
    ("adts", include_bytes!("../../../../tests/fixtures/sounds/tone.aac")),
    ("opus of two channels in family 1", include_bytes!("../../../../tests/fixtures/sounds/stereo.opus")),
    ("opus of six channels", include_bytes!("../../../../tests/fixtures/sounds/surround.opus")),
    ("opus in opposite phase", include_bytes!("../../../../tests/fixtures/sounds/opposite.opus")),
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
    let mut encoder = Encoder::new(format).unwrap();
    let mut file = Vec::new();
    encoder.push(&vec![1_000; seconds * MADE.hz() as usize], &mut file).unwrap();
    encoder.finish(&mut file).unwrap();
    file
}

#[test]
fn what_other_programs_write_is_read() {
    for (name, file) in FOREIGN {
        let measured = duration(Bytes::from_static(file), LONGEST).unwrap().as_secs_f64();
        assert!((0.98..1.1).contains(&measured), "{name}: {measured} s");
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
fn packets_without_a_duration_last_until_the_next_one() {
    let (_, live) = FOREIGN.into_iter().find(|(name, _)| *name == "live webm").unwrap();
    // The default duration of its packets becomes a void element: the last packet alone has one, of 7 ms.
    let default_duration = [0x23, 0xE3, 0x83, 0x84];
    let at = live.windows(4).position(|four| four == default_duration).unwrap();
    let mut file = live.to_vec();
    file[at..at + 2].copy_from_slice(&[0xEC, 0x86]);
    let measured = duration(Bytes::from(file), LONGEST).unwrap().as_secs_f64();
    assert!((0.98..1.1).contains(&measured), "{measured} s");
}

/// One second of 440 Hz as WAV, with these lengths of the file and of its audio.
fn wav_stating(file: u32, audio: u32) -> Vec<u8> {
    let mut wav = made(FileFormat::Wav, 1);
    wav[4..8].copy_from_slice(&file.to_le_bytes());
    wav[40..44].copy_from_slice(&audio.to_le_bytes());
    wav
}

#[test]
fn a_wav_file_whose_lengths_were_not_written_is_read_to_its_end() {
    let n_bytes = made(FileFormat::Wav, 1).len() as u32 - 44;
    for file in [0, 36, n_bytes + 28, n_bytes + 36, 0x7FFF_FFFF, 0xFFFF_FFFF] {
        for audio in [0, n_bytes, n_bytes + 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFDB, 0xFFFF_FFFE, 0xFFFF_FFFF] {
            let wav = Bytes::from(wav_stating(file, audio));
            let measured = duration(wav.clone(), LONGEST);
            assert_eq!(measured, Ok(Duration::from_secs(1)), "{file:#x} {audio:#x}");
            assert_eq!(decode(wav).map(|pcm| pcm.len()), Ok(16_000), "{file:#x} {audio:#x}");
        }
    }
}

#[test]
fn chunks_around_the_audio_of_a_wav_file_are_not_audio() {
    let plain = made(FileFormat::Wav, 1);
    let head = &plain[..36];
    let audio = &plain[44..];
    let list = |n: usize| [&b"LIST"[..], &(n as u32).to_le_bytes(), &vec![b'x'; n]].concat();
    let data = |len: u32| [&b"data"[..], &len.to_le_bytes()].concat();
    let length = audio.len() as u32;
    for (name, wav) in [
        ("before", [head, &list(26), &data(0), audio].concat()),
        ("of an odd length", [head, &list(27), &[0], &data(0), audio].concat()),
        ("of an odd length without padding", [head, &list(27), &data(length), audio].concat()),
        ("behind", [head, &data(length), audio, &list(26)].concat()),
        ("without a letter of its own", [head, &data(u32::MAX), audio, &[7]].concat()),
    ] {
        assert_eq!(decode(wav).map(|pcm| pcm.len()), Ok(16_000), "{name}");
    }
    let nothing = [head, &data(0), &list(26)].concat();
    assert_eq!(decode(nothing), Err(DecodeError::Empty), "chunks alone");
}

#[test]
fn a_wav_file_of_64_bits_is_read() {
    let plain = made(FileFormat::Wav, 1);
    let audio = &plain[44..];
    for (name, id, stated) in [("RF64", b"RF64", audio.len() as u64), ("BW64, not written", b"BW64", 0)] {
        let lengths = [0, stated, 0].map(u64::to_le_bytes).concat();
        let ds64 = [&b"ds64"[..], &28u32.to_le_bytes(), &lengths, &[0; 4]].concat();
        let head = [&id[..], &[0xFF; 4], b"WAVE", &ds64, &plain[12..36], b"data", &[0xFF; 4]].concat();
        let wav = [&head, audio].concat();
        assert_eq!(decode(wav).map(|pcm| pcm.len()), Ok(16_000), "{name}");
    }
}

/// An ID3v2.4 tag with a picture of these bytes.
fn tag(picture: &[u8], has_footer: bool) -> Vec<u8> {
    let size = |n: usize| [n >> 21, n >> 14, n >> 7, n].map(|part| (part & 0x7F) as u8);
    let body = [&b"\0image/png\0\x03\0"[..], picture].concat();
    let frame = [&b"APIC"[..], &size(body.len()), &[0, 0], &body].concat();
    let flags = if has_footer { 0x10 } else { 0 };
    let header = [&[4, 0, flags][..], &size(frame.len())].concat();
    let footer = if has_footer { [&b"3DI"[..], &header].concat() } else { Vec::new() };
    [&b"ID3"[..], &header, &frame, &footer].concat()
}

#[test]
fn a_tag_before_the_audio_is_skipped_whatever_is_in_it() {
    let frames = [&[0xFF, 0xFB, 0x90, 0x64][..], &[0; 413]].concat().repeat(700);
    for (name, tags) in [
        ("short", tag(&[1; 100], false)),
        ("of more than 1 MiB", tag(&vec![0; 1_060_000], false)),
        ("with frames in its picture", tag(&frames, false)),
        ("with a footer", tag(&frames, true)),
        ("two", [tag(&frames, true), tag(&[1; 100], false)].concat()),
    ] {
        for (format, file) in FOREIGN.iter().filter(|(format, _)| ["adts", "mp3", "flac"].contains(format)) {
            let plain = decode(*file).expect("the file without a tag");
            let tagged = Bytes::from([&tags, *file].concat());
            let measured = duration(tagged.clone(), LONGEST);
            assert_eq!(measured, duration(Bytes::from_static(file), LONGEST), "{format} behind a tag {name}");
            assert_eq!(decode(tagged), Ok(plain), "{format} behind a tag {name}");
        }
    }
    let cut = tag(&[1; 100], false)[..50].to_vec();
    assert_eq!(decode(cut), Err(DecodeError::Broken("it ends inside its ID3 tag".into())));
}

#[test]
fn channels_of_opposite_phase_do_not_cancel() {
    let spec = hound::WavSpec {
        channels: 2,
        sample_rate: 16_000,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    for (other, expect) in [(-1.0, 10_000), (-0.5, 2_500)] {
        let mut file = Cursor::new(Vec::new());
        let mut writer = hound::WavWriter::new(&mut file, spec).unwrap();
        for i in 0..16_000 {
            let sample = (TAU * 440.0 * f64::from(i) / 16_000.0).sin() * 10_000.0;
            writer.write_sample(sample as i16).unwrap();
            writer.write_sample((sample * other) as i16).unwrap();
        }
        writer.finalize().unwrap();
        let pcm = decode(file.into_inner()).unwrap();
        let peak = pcm.iter().map(|sample| sample.unsigned_abs()).max().unwrap();
        assert!(peak.abs_diff(expect) < 100, "with {other} times the other: {peak}");
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
        let measured = duration(file.clone(), LONGEST).unwrap().as_secs_f64();
        assert!((2.94..3.3).contains(&measured), "{name}: {measured} s");
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

#[test]
fn an_mp4_file_whose_audio_is_not_where_it_says_is_broken() {
    let (_, file) = FOREIGN.into_iter().find(|(name, _)| *name == "m4a").unwrap();
    let at = |name: &[u8]| file.windows(4).position(|four| four == name).unwrap() - 4;
    let free = at(b"free");
    let audio = at(b"mdat");
    let index = at(b"moov");
    let filled = |with: u8| {
        let mut file = file.to_vec();
        file[audio + 8..index].fill(with);
        file
    };
    let shifted = [&file[..free], &file[audio..]].concat();
    for (name, file) in [("zeros", filled(0)), ("ones", filled(0xFF)), ("shifted", shifted)] {
        let error = decode(file).unwrap_err();
        assert!(matches!(error, DecodeError::Broken(_)), "{name}: {error:?}");
    }
}
