//! Decodes uploaded audio files to mono PCM: WAV, MP3, FLAC, Ogg, MP4 and WebM, at any rate and with any channels.
//!
//! The transcription endpoint calls it outside the async runtime: it is CPU-bound and never reads a file from disk. A
//! file is scanned first ([`duration`], which decodes nothing), then decoded packet by packet ([`Decoder`]), so that
//! its samples are never all in memory. symphonia reads the containers and most codecs; libopus decodes Opus. The input
//! is untrusted: unreadable data is a descriptive error, and a broken packet in the middle is skipped. `container` prepares
//! a file for its reader, `opus` decodes Opus of any number of channels, `downmix` makes one channel of several.

mod container;
mod downmix;
mod opus;

use super::Resampler;
use antiphon_types::{Pcm, SampleRate, Samples};
use bytes::Bytes;
use container::Source;
use downmix::Downmix;
use opus::OpusTrack;
use std::time::Duration;
use symphonia::core::codecs::audio::well_known::{CODEC_ID_AAC, CODEC_ID_OPUS};
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;
use symphonia::core::units::{TimeBase, Timestamp};

/// The supported formats, for error messages.
pub const READABLE: &str = "WAV, MP3, FLAC, Ogg (Opus, Vorbis), MP4/M4A (AAC) and WebM (Opus, Vorbis)";

/// Accepted sampling rates; a header may claim any rate.
const RATES_HZ: std::ops::RangeInclusive<u32> = 1_000..=384_000;
/// Number of consecutive broken packets after which decoding fails.
const MAX_BROKEN: u32 = 100;

/// Why a file cannot be decoded.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum DecodeError {
    /// The container is not supported.
    #[error("this is no sound file that can be read here: {READABLE} can")]
    Unknown,
    /// The file has no audio track, or its codec is not supported.
    #[error("the file's audio cannot be decoded: {0}. {READABLE} can be read")]
    Codec(String),
    /// The container or its audio data is broken.
    #[error("the file is broken: {0}")]
    Broken(String),
    /// The file has no samples.
    #[error("the file holds no audio")]
    Empty,
    /// The audio is longer than the caller accepts.
    #[error("the audio is longer than the maximum of {longest:.0?}")]
    TooLong {
        /// The longest accepted duration.
        longest: Duration,
    },
}

/// The playing time of the file, from its packet durations; a packet without one lasts until the next one. The file may
/// state any duration: only decoding shows how much audio it holds. Takes milliseconds even for hours of audio.
///
/// # Errors
/// [`DecodeError::TooLong`] above `longest`; [`DecodeError::Empty`] without packets; other errors if the file cannot be
/// read.
pub fn duration(file: Bytes, longest: Duration) -> Result<Duration, DecodeError> {
    let mut track = Track::open(file)?;
    let mut link = track.link;
    let mut whole = Duration::ZERO;
    // Some containers omit the durations of all packets, or of all but the last one; in others the first timestamp is
    // arbitrary. This is the timestamp of the last packet, if it has no duration.
    let mut undated: Option<u64> = None;
    while let Some(packet) = track.next()? {
        if track.link != link {
            link = track.link;
            undated = None;
        }
        let begins = packet.pts.max(Timestamp::ZERO).get() as u64;
        if let Some(before) = undated {
            whole += track.ticks(begins.saturating_sub(before));
        }
        whole += track.ticks(packet.dur.get());
        undated = packet.block_dur().is_zero().then_some(begins);
        if whole > longest {
            return Err(DecodeError::TooLong { longest });
        }
    }
    if whole.is_zero() { Err(DecodeError::Empty) } else { Ok(whole) }
}

/// All of a file's audio, mono at the file's own rate (24 kHz where it is Opus). CPU-bound.
///
/// # Errors
/// As [`Decoder::open`] and [`Decoder::next`]; [`DecodeError::TooLong`] above `longest`.
pub fn read(file: Bytes, longest: Duration) -> Result<Pcm, DecodeError> {
    let track = Track::open(file.clone())?;
    let rate = match track.parameters.sample_rate {
        _ if track.parameters.codec == CODEC_ID_OPUS => crate::codec::OPUS_IN_RATE,
        Some(hz) if RATES_HZ.contains(&hz) => SampleRate::new(hz),
        Some(hz) => return Err(DecodeError::Codec(format!("its rate is {hz} Hz"))),
        None => return Err(DecodeError::Codec("it does not say its rate".into())),
    };
    let mut decoder = Decoder::open(file, rate, longest)?;
    let mut samples = Vec::new();
    while decoder.next(&mut samples)? {}
    Ok(Pcm { rate, samples })
}

/// Decodes one file.
pub struct Decoder {
    track: Track,
    codec: Codec,
    /// Index of the chained file that the codec belongs to.
    link: u32,
    to: SampleRate,
    longest: Samples,
    resampler: Option<(SampleRate, Resampler)>,
    n_made: u64,
    is_silent: bool,
    n_decoded: u64,
    n_broken: u64,
    n_broken_in_a_row: u32,
    last_error: Option<String>,
    downmix: Downmix,
    mono: Vec<i16>,
    interleaved: Vec<f32>,
}

enum Codec {
    Symphonia(Box<dyn AudioDecoder>),
    Opus(Box<OpusTrack>),
}

impl Decoder {
    /// Reads the headers. Audio longer than `longest` fails while decoding, whatever the headers claim.
    pub fn open(file: Bytes, to: SampleRate, longest: Duration) -> Result<Self, DecodeError> {
        let track = Track::open(file)?;
        let codec = codec(&track)?;
        Ok(Self {
            track,
            codec,
            link: 0,
            to,
            longest: to.samples_in(longest),
            resampler: None,
            n_made: 0,
            is_silent: true,
            n_decoded: 0,
            n_broken: 0,
            n_broken_in_a_row: 0,
            last_error: None,
            downmix: Downmix::default(),
            mono: Vec::new(),
            interleaved: Vec::new(),
        })
    }

    /// Appends the audio of the next packet, mono at the requested rate. Returns `false` at the end of the file.
    ///
    /// # Errors
    /// [`DecodeError::Empty`] at the end of a file without a sample; [`DecodeError::Broken`] where more packets are broken
    /// than not, or where all that could be decoded beside broken ones is silence.
    pub fn next(&mut self, out: &mut Vec<i16>) -> Result<bool, DecodeError> {
        let before = out.len();
        let Some(packet) = self.track.next()? else {
            if let Some((_, resampler)) = &mut self.resampler {
                resampler.flush(out);
            }
            self.n_made += (out.len() - before) as u64;
            let is_lost = self.n_broken > self.n_decoded || self.is_silent;
            return match self.last_error.take() {
                Some(error) if is_lost => Err(DecodeError::Broken(error)),
                _ if self.n_made > 0 => Ok(false),
                _ => Err(DecodeError::Empty),
            };
        };
        if self.link != self.track.link {
            self.codec = codec(&self.track)?;
            self.link = self.track.link;
        }
        self.mono.clear();
        match self.decode(&packet) {
            Ok(from) => {
                self.n_decoded += 1;
                self.n_broken_in_a_row = 0;
                self.is_silent &= self.mono.iter().all(|&sample| sample == 0);
                if self.resampler.as_ref().is_none_or(|(rate, _)| *rate != from) {
                    self.resampler = Some((from, Resampler::new(from, self.to)));
                }
                let (_, resampler) = self.resampler.as_mut().expect("created above");
                resampler.process(&self.mono, out);
            }
            Err(error) => {
                self.n_broken += 1;
                self.n_broken_in_a_row += 1;
                if self.n_broken_in_a_row > MAX_BROKEN {
                    return Err(DecodeError::Broken(error));
                }
                self.last_error = Some(error);
            }
        }
        self.n_made += (out.len() - before) as u64;
        // One second of tolerance, because encoders pad.
        if self.n_made > self.longest.0 + u64::from(self.to.hz()) {
            return Err(DecodeError::TooLong { longest: self.longest.duration(self.to) });
        }
        Ok(true)
    }

    /// Decodes one packet to `self.mono` and returns its sampling rate.
    fn decode(&mut self, packet: &Packet) -> Result<SampleRate, String> {
        let (n_channels, rate) = match &mut self.codec {
            Codec::Opus(opus) => {
                let n_channels = opus.decode(&packet.data, packet.trim_end.get(), &mut self.interleaved)?;
                (n_channels, crate::codec::OPUS_IN_RATE)
            }
            Codec::Symphonia(decoder) => {
                // ISO 14496-3, table 4.85: a packet that begins with its end has no channel. The decoder makes silence of it.
                if self.track.parameters.codec == CODEC_ID_AAC
                    && packet.data.first().is_some_and(|first| first >> 5 == 7)
                {
                    return Err("a packet has no channel".into());
                }
                let audio = decoder.decode(packet).map_err(|error| error.to_string())?;
                let hz = audio.spec().rate();
                let n_channels = audio.num_planes();
                if !RATES_HZ.contains(&hz) || n_channels == 0 {
                    return Err(format!("{n_channels} channels at {hz} Hz"));
                }
                audio.copy_to_vec_interleaved(&mut self.interleaved);
                (n_channels, SampleRate::new(hz))
            }
        };
        self.downmix.mix(&self.interleaved, n_channels, &mut self.mono);
        Ok(rate)
    }
}

fn codec(track: &Track) -> Result<Codec, DecodeError> {
    let parameters = &track.parameters;
    if parameters.codec != CODEC_ID_OPUS {
        let made = symphonia::default::get_codecs().make_audio_decoder(parameters, &AudioDecoderOptions::default());
        return made.map(Codec::Symphonia).map_err(|error| DecodeError::Codec(error.to_string()));
    }
    let head = parameters.extra_data.as_deref().unwrap_or_default();
    Ok(Codec::Opus(Box::new(OpusTrack::open(head)?)))
}

/// The first audio track of a file, or of each file of an Ogg chain (radio stations produce these).
struct Track {
    reader: Box<dyn FormatReader>,
    /// Index of the chained file that the track belongs to.
    link: u32,
    id: u32,
    time_base: Option<TimeBase>,
    parameters: AudioCodecParameters,
}

impl Track {
    fn open(file: Bytes) -> Result<Self, DecodeError> {
        if file.is_empty() {
            return Err(DecodeError::Empty);
        }
        let stream = MediaSourceStream::new(Box::new(Source::new(file)?), Default::default());
        let format = FormatOptions::default();
        let meta = MetadataOptions::default();
        let reader = symphonia::default::get_probe().probe(&Hint::new(), stream, format, meta).map_err(broken)?;
        let (id, time_base, parameters) = first_audio(&*reader).ok_or_else(|| no_audio(&*reader))?;
        Ok(Self { reader, link: 0, id, time_base, parameters })
    }

    /// The next packet of the track. A file truncated inside a packet ends before that packet.
    fn next(&mut self) -> Result<Option<Packet>, DecodeError> {
        loop {
            match self.reader.next_packet() {
                Ok(Some(packet)) if packet.track_id == self.id => return Ok(Some(packet)),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(Error::ResetRequired) => {
                    let Some(next) = first_audio(&*self.reader) else { return Ok(None) };
                    (self.id, self.time_base, self.parameters) = next;
                    self.link += 1;
                }
                Err(Error::IoError(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
                Err(error) => return Err(DecodeError::Broken(error.to_string())),
            }
        }
    }

    fn ticks(&self, n: u64) -> Duration {
        let Some(base) = self.time_base else { return Duration::ZERO };
        let nanos = u128::from(n) * u128::from(base.numer.get()) * 1_000_000_000 / u128::from(base.denom.get());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The id of the first audio track, its time base, and its codec parameters.
fn first_audio(reader: &dyn FormatReader) -> Option<(u32, Option<TimeBase>, AudioCodecParameters)> {
    let track = reader.default_track(TrackType::Audio)?;
    let parameters = track.codec_params.as_ref()?.audio()?.clone();
    let rate = parameters.sample_rate.and_then(TimeBase::try_from_recip);
    Some((track.id, track.time_base.or(rate), parameters))
}

fn no_audio(reader: &dyn FormatReader) -> DecodeError {
    DecodeError::Codec(format!("there is no audio in this {} file", reader.format_info().long_name))
}

/// The start of the file matches no supported format, or the file ends within its headers.
fn broken(error: Error) -> DecodeError {
    match error {
        Error::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => DecodeError::Unknown,
        Error::Unsupported(what) if what.contains("probe") || what.contains("format") => DecodeError::Unknown,
        Error::Unsupported(what) => DecodeError::Codec(what.into()),
        error => DecodeError::Broken(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
