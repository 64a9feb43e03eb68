//! Reads WAV files (any PCM or float format, as mono at the caller's rate) and writes mono 16-bit files and headers.
//!
//! The command line and the speech endpoints call it with complete files in memory. It never opens a file.

use super::Resampler;
use antiphon_types::{Pcm, SampleRate, Samples};
use hound::{SampleFormat, WavReader, WavSpec, WavWriter};
use std::borrow::Cow;
use std::io::Cursor;
use std::time::Duration;
use thiserror::Error;

/// The size field of a body whose length is unknown when it starts, as other programs write it too.
const UNKNOWN_SIZE: u32 = u32::MAX;
/// Length of a plain WAV header in bytes.
pub const HEADER_LEN: usize = 44;

/// Why a file cannot be read.
#[derive(Debug, Error)]
pub enum WavError {
    /// The header is broken or of an unsupported kind.
    #[error("not a readable WAV file: {0}")]
    Header(#[source] hound::Error),
    /// The file is shorter than its header declares.
    #[error("the WAV file is cut off: its header promises {promised} bytes of audio, {present} are there")]
    CutOff {
        /// Bytes of audio declared by the header.
        promised: u32,
        /// Bytes of audio after the header.
        present: usize,
    },
    /// The file holds no samples.
    #[error("the WAV file holds no audio")]
    Empty,
    /// The rate is outside the supported range.
    #[error("the WAV file's rate of {0} Hz is not between 1000 and 384000 Hz")]
    Rate(u32),
    /// The audio is longer than the caller accepts.
    #[error("the WAV file holds {got:.1?} of audio, at most {longest:.1?} is taken")]
    TooLong {
        /// Duration of the audio.
        got: Duration,
        /// The longest accepted duration.
        longest: Duration,
    },
}

/// Reads a WAV file (PCM of 8, 16, 24 or 32 bits or 32-bit float, any number of channels, averaged) as mono at `to`.
/// A length of 0xFFFFFFFF, as in streams, means that the audio extends to the end of the file.
pub fn read(file: &[u8], to: SampleRate, longest: Duration) -> Result<Pcm, WavError> {
    let file = with_true_length(file)?;
    let mut reader = WavReader::new(Cursor::new(&file[..])).map_err(WavError::Header)?;
    let spec = reader.spec();
    if !(1_000..=384_000).contains(&spec.sample_rate) {
        return Err(WavError::Rate(spec.sample_rate));
    }
    let from = SampleRate::new(spec.sample_rate);
    let got = Samples(u64::from(reader.duration())).duration(from);
    if got > longest {
        return Err(WavError::TooLong { got, longest });
    }
    let mono = mono(&mut reader).map_err(WavError::Header)?;
    if mono.is_empty() {
        return Err(WavError::Empty);
    }
    let mut samples = Vec::new();
    let mut resampler = Resampler::new(from, to);
    resampler.process(&mono, &mut samples);
    resampler.flush(&mut samples);
    Ok(Pcm { rate: to, samples })
}

/// Writes a mono 16-bit file.
pub fn write(pcm: &Pcm) -> Vec<u8> {
    let spec =
        WavSpec { channels: 1, sample_rate: pcm.rate.hz(), bits_per_sample: 16, sample_format: SampleFormat::Int };
    let mut file = Cursor::new(Vec::with_capacity(HEADER_LEN + 2 * pcm.samples.len()));
    let mut writer = WavWriter::new(&mut file, spec).expect("writing to memory cannot fail");
    let mut samples = writer.get_i16_writer(pcm.samples.len() as u32);
    pcm.samples.iter().for_each(|&sample| samples.write_sample(sample));
    samples.flush().expect("writing to memory cannot fail");
    writer.finalize().expect("writing to memory cannot fail");
    file.into_inner()
}

/// The header of a mono 16-bit file; `len` is `None` for a body that is still being produced.
pub fn header(rate: SampleRate, len: Option<Samples>) -> [u8; HEADER_LEN] {
    header_of(1, rate, len)
}

/// The same of a file with several channels, `len` samples in each.
pub fn header_of(channels: u16, rate: SampleRate, len: Option<Samples>) -> [u8; HEADER_LEN] {
    let frame_bytes = 2 * u32::from(channels);
    let data = len
        .and_then(|len| u32::try_from(len.0.checked_mul(frame_bytes.into())?).ok())
        .filter(|&bytes| bytes < UNKNOWN_SIZE - 36);
    let mut header = [0; HEADER_LEN];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        header[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(b"RIFF");
    put(&data.map_or(UNKNOWN_SIZE, |bytes| bytes + 36).to_le_bytes());
    put(b"WAVEfmt ");
    put(&16u32.to_le_bytes());
    // PCM.
    put(&1u16.to_le_bytes());
    put(&channels.to_le_bytes());
    put(&rate.hz().to_le_bytes());
    put(&(rate.hz() * frame_bytes).to_le_bytes());
    put(&(2 * channels).to_le_bytes());
    // Bits of a sample.
    put(&16u16.to_le_bytes());
    put(b"data");
    put(&data.unwrap_or(UNKNOWN_SIZE).to_le_bytes());
    header
}

/// Corrects the length in a streamed file's header and rejects a truncated file; the reader checks everything else.
fn with_true_length(file: &[u8]) -> Result<Cow<'_, [u8]>, WavError> {
    let Some((size_at, block)) = find_data(file) else { return Ok(file.into()) };
    let promised = u32::from_le_bytes([file[size_at], file[size_at + 1], file[size_at + 2], file[size_at + 3]]);
    let present = file.len() - size_at - 4;
    if promised as usize <= present {
        return Ok(file.into());
    }
    if promised != UNKNOWN_SIZE {
        return Err(WavError::CutOff { promised, present });
    }
    let mut owned = file.to_vec();
    let whole = present - present % block;
    owned[size_at..size_at + 4].copy_from_slice(&u32::try_from(whole).unwrap_or(UNKNOWN_SIZE).to_le_bytes());
    Ok(owned.into())
}

/// The offset of the data chunk's length field, and the bytes per frame.
fn find_data(file: &[u8]) -> Option<(usize, usize)> {
    let mut at = 12;
    let mut block = 1;
    loop {
        let head = file.get(at..at + 8)?;
        if &head[..4] == b"data" {
            return Some((at + 4, block));
        }
        if &head[..4] == b"fmt " {
            block = usize::from(u16::from_le_bytes(*file.get(at + 20..)?.first_chunk()?)).max(1);
        }
        // Chunks start at even offsets.
        let len = u32::from_le_bytes(*head[4..].first_chunk()?) as usize;
        at = at.checked_add(8 + len + len % 2)?;
    }
}

fn mono(reader: &mut WavReader<Cursor<&[u8]>>) -> Result<Vec<i16>, hound::Error> {
    let spec = reader.spec();
    let channels = usize::from(spec.channels).max(1);
    let mut sums = vec![0.0f64; reader.duration() as usize];
    match spec.sample_format {
        SampleFormat::Float => {
            for (i, sample) in reader.samples::<f32>().enumerate() {
                sums[i / channels] += f64::from(sample?) * 32_768.0;
            }
        }
        SampleFormat::Int => {
            let scale = 2f64.powi(16 - i32::from(spec.bits_per_sample));
            for (i, sample) in reader.samples::<i32>().enumerate() {
                sums[i / channels] += f64::from(sample?) * scale;
            }
        }
    }
    // The cast saturates, and NaN becomes silence.
    Ok(sums.iter().map(|sum| (sum / channels as f64).round() as i16).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATE: SampleRate = SampleRate::HZ_16000;
    const LONGEST: Duration = Duration::from_secs(1);

    fn pcm(samples: &[i16]) -> Pcm {
        Pcm { rate: RATE, samples: samples.to_vec() }
    }

    fn file(spec: WavSpec, mut fill: impl FnMut(&mut WavWriter<&mut Cursor<Vec<u8>>>)) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        let mut writer = WavWriter::new(&mut bytes, spec).unwrap();
        fill(&mut writer);
        writer.finalize().unwrap();
        bytes.into_inner()
    }

    #[test]
    fn what_is_written_is_read() {
        let pcm = pcm(&[0, 1, -1, i16::MAX, i16::MIN]);
        assert_eq!(read(&write(&pcm), RATE, LONGEST).unwrap(), pcm);
        assert_eq!(write(&pcm)[..HEADER_LEN], header(RATE, Some(pcm.len())));
    }

    #[test]
    fn every_depth_and_channel_count_gives_the_same_levels() {
        for (bits, sample_format) in [
            (8, SampleFormat::Int),
            (16, SampleFormat::Int),
            (24, SampleFormat::Int),
            (32, SampleFormat::Int),
            (32, SampleFormat::Float),
        ] {
            for channels in [1, 2, 6] {
                let spec = WavSpec { channels, sample_rate: 16_000, bits_per_sample: bits, sample_format };
                let bytes = file(spec, |writer| {
                    for level in [0.5, -0.25] {
                        for _ in 0..channels {
                            match sample_format {
                                SampleFormat::Float => writer.write_sample(level as f32).unwrap(),
                                SampleFormat::Int => {
                                    writer.write_sample((level * 2f64.powi(i32::from(bits) - 1)) as i32).unwrap()
                                }
                            }
                        }
                    }
                });
                assert_eq!(
                    read(&bytes, RATE, LONGEST).unwrap().samples,
                    [16_384, -8_192],
                    "{bits} bits, {channels} channels"
                );
            }
        }
    }

    #[test]
    fn a_streamed_file_is_all_that_follows() {
        let mut bytes = header(RATE, None).to_vec();
        bytes.extend([1, 0, 2, 0, 9]);
        assert_eq!(read(&bytes, RATE, LONGEST).unwrap().samples, [1, 2]);
    }

    #[test]
    fn bad_files_get_plain_words() {
        let whole = write(&pcm(&[5; 100]));
        let error = |bytes: &[u8]| read(bytes, RATE, LONGEST).unwrap_err().to_string();
        assert_eq!(
            error(&whole[..whole.len() - 10]),
            "the WAV file is cut off: its header promises 200 bytes of audio, 190 are there"
        );
        assert_eq!(error(&write(&pcm(&[]))), "the WAV file holds no audio");
        assert_eq!(error(&write(&pcm(&[0; 24_000]))), "the WAV file holds 1.5s of audio, at most 1.0s is taken");
        assert!(error(b"ID3 something else").starts_with("not a readable WAV file: "));
        assert!(error(b"").starts_with("not a readable WAV file: "));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(tail: Vec<u8>, cut in 0..60usize, flip in 0..44usize, with: u8) {
            let mut bytes = header(RATE, None).to_vec();
            bytes[flip] = with;
            bytes.extend(tail);
            bytes.truncate(bytes.len().saturating_sub(cut));
            let _outcome = read(&bytes, RATE, LONGEST);
        }
    }
}
