//! Encodes speech to common audio formats: PCM, WAV, Ogg Opus, FLAC, MP3.
//!
//! The speech endpoints call it: mono PCM at [`RATE`] is pushed as it is synthesized, and bytes are returned as soon as
//! a frame of the format is full, so that playback starts before synthesis ends. It never blocks on IO; encoding a
//! second of speech takes 1 to 20 ms of CPU, so a caller on an async runtime pushes a fraction of a second at a time.

mod flac;
mod mp3;
mod ogg_opus;

use super::wav;
use antiphon_types::SampleRate;
use flac::Flac;
use mp3::Mp3;
use ogg_opus::OggOpus;

/// Sampling rate of the input and the output, mono: 24 kHz, as in OpenAI's speech API.
pub const RATE: SampleRate = SampleRate::HZ_24000;

/// An audio file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// MPEG-2 layer III, 64 kbit/s.
    Mp3,
    /// Opus in Ogg, 48 kbit/s.
    Opus,
    /// FLAC, 16 bits.
    Flac,
    /// RIFF WAVE, 16 bits, of unknown length: the header is sent before the audio is complete.
    Wav,
    /// Signed 16-bit samples, little-endian, without a header.
    Pcm,
}

impl FileFormat {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::Mp3, Self::Opus, Self::Flac, Self::Wav, Self::Pcm];

    /// The name used in requests, which is also the file extension.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mp3 => "mp3",
            Self::Opus => "opus",
            Self::Flac => "flac",
            Self::Wav => "wav",
            Self::Pcm => "pcm",
        }
    }

    /// The format with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The media type of a response body.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Mp3 => "audio/mpeg",
            Self::Opus => "audio/ogg",
            Self::Flac => "audio/flac",
            Self::Wav => "audio/wav",
            Self::Pcm => "audio/pcm",
        }
    }
}

/// A failed encoder. The codecs fail only if memory allocation fails or their library is broken.
#[derive(Debug, thiserror::Error)]
#[error("the {format} encoder failed: {message}")]
pub struct EncodeError {
    /// Name of the format.
    pub format: &'static str,
    /// Message from the library.
    pub message: String,
}

/// Encodes one stream.
pub struct Encoder {
    kind: Kind,
    is_begun: bool,
}

enum Kind {
    Pcm,
    Wav,
    Opus(Box<OggOpus>),
    Flac(Box<Flac>),
    Mp3(Box<Mp3>),
}

impl Encoder {
    /// An encoder that has produced no output.
    pub fn new(format: FileFormat) -> Result<Self, EncodeError> {
        let failed = |message| EncodeError { format: format.name(), message };
        let kind = match format {
            FileFormat::Pcm => Kind::Pcm,
            FileFormat::Wav => Kind::Wav,
            FileFormat::Opus => Kind::Opus(Box::new(OggOpus::new().map_err(failed)?)),
            FileFormat::Flac => Kind::Flac(Box::new(Flac::new().map_err(failed)?)),
            FileFormat::Mp3 => Kind::Mp3(Box::new(Mp3::new().map_err(failed)?)),
        };
        Ok(Self { kind, is_begun: false })
    }

    /// Accepts any number of samples at [`RATE`] and appends the completed output to `out`; the first call also appends
    /// the header.
    pub fn push(&mut self, pcm: &[i16], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.begin(out)?;
        match &mut self.kind {
            Kind::Pcm | Kind::Wav => {
                out.extend(pcm.iter().flat_map(|sample| sample.to_le_bytes()));
                Ok(())
            }
            Kind::Opus(opus) => opus.push(pcm, out).map_err(|message| EncodeError { format: "opus", message }),
            Kind::Flac(flac) => flac.push(pcm, out).map_err(|message| EncodeError { format: "flac", message }),
            Kind::Mp3(mp3) => mp3.push(pcm, out).map_err(|message| EncodeError { format: "mp3", message }),
        }
    }

    /// Appends the remaining output and ends the stream.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.begin(out)?;
        match self.kind {
            Kind::Pcm | Kind::Wav => Ok(()),
            Kind::Opus(opus) => opus.finish(out).map_err(|message| EncodeError { format: "opus", message }),
            Kind::Flac(flac) => flac.finish(out).map_err(|message| EncodeError { format: "flac", message }),
            Kind::Mp3(mp3) => mp3.finish(out).map_err(|message| EncodeError { format: "mp3", message }),
        }
    }

    fn begin(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if std::mem::replace(&mut self.is_begun, true) {
            return Ok(());
        }
        match &mut self.kind {
            Kind::Wav => {
                out.extend(wav::header(RATE, None));
                Ok(())
            }
            Kind::Opus(opus) => opus.begin(out).map_err(|message| EncodeError { format: "opus", message }),
            Kind::Flac(flac) => flac.begin(out).map_err(|message| EncodeError { format: "flac", message }),
            Kind::Pcm | Kind::Mp3(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
