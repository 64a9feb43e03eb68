//! Speech as a file or stream that players know: PCM, WAV, Ogg Opus, FLAC, MP3.
//!
//! The speech endpoints call it: mono PCM at [`RATE`] goes in as a voice makes it, bytes come out as soon as a frame of the
//! format is full, so that a listener begins before the voice ends. Nothing blocks and nothing is opened; encoding a second
//! of speech costs 1 to 20 ms, so a caller on a runtime hands over a fraction of a second at a time.

mod flac;
mod mp3;
mod ogg_opus;

use super::wav;
use antiphon_types::SampleRate;
use flac::Flac;
use mp3::Mp3;
use ogg_opus::OggOpus;

/// What every encoder takes, and what is written: mono, 24 kHz, as OpenAI's speech API has its PCM.
pub const RATE: SampleRate = SampleRate::HZ_24000;

/// A format of speech files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// MPEG-2 layer III, 64 kbit/s.
    Mp3,
    /// Opus in Ogg, 48 kbit/s.
    Opus,
    /// FLAC, 16 bits.
    Flac,
    /// RIFF WAVE of 16 bits whose length is not told: its header leaves before the sound is made.
    Wav,
    /// Samples of 16 bits, little-endian, without any header.
    Pcm,
}

impl FileFormat {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Mp3, Self::Opus, Self::Flac, Self::Wav, Self::Pcm];

    /// What requests call it; also its file extension.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mp3 => "mp3",
            Self::Opus => "opus",
            Self::Flac => "flac",
            Self::Wav => "wav",
            Self::Pcm => "pcm",
        }
    }

    /// The format of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The media type of a body.
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

/// An encoder that does not work. The codecs fail only where memory does or their library is broken.
#[derive(Debug, thiserror::Error)]
#[error("the {format} encoder failed: {message}")]
pub struct EncodeError {
    /// The format's name.
    pub format: &'static str,
    /// What the library said.
    pub message: String,
}

/// One stream being encoded.
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
    /// An encoder that has written nothing yet.
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

    /// Takes any number of samples at [`RATE`] and appends to `out` what is ready; the first call appends the header too.
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

    /// Appends what is still inside and ends the stream.
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
