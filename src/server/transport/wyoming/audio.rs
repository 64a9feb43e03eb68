//! A Wyoming client's audio in any format to what recognizers take: mono, 16 kHz, 16 bits.

use super::ConnectionEnd;
use super::frame::Event;
use antiphon_audio::Resampler;
use antiphon_engine_api::stt::RATE;
use antiphon_types::{SampleRate, Samples};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// Sampling rates that are taken, in hertz.
const RATES: std::ops::RangeInclusive<u32> = 8_000..=96_000;
/// Bytes of a sample: signed integers, little-endian.
const WIDTHS: std::ops::RangeInclusive<usize> = 1..=4;
const CHANNELS: std::ops::RangeInclusive<usize> = 1..=8;
/// Changes of the format within one utterance: each builds a resampler, which takes milliseconds.
const MAX_CHANGES: usize = 4;

/// The format of audio, as `audio-start` and each `audio-chunk` state it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct AudioFormat {
    rate: u32,
    width: usize,
    channels: usize,
}

impl AudioFormat {
    /// That of an event, if it is served.
    fn of(event: &Event) -> Result<Self, ConnectionEnd> {
        let format = Self::deserialize(Value::Object(event.data.clone())).map_err(|_| {
            ConnectionEnd::Invalid(format!("'{}' needs 'rate', 'width' and 'channels' as integers.", event.kind))
        })?;
        if !RATES.contains(&format.rate) || !WIDTHS.contains(&format.width) || !CHANNELS.contains(&format.channels) {
            let message = format!(
                "Audio of {} Hz, {} bytes and {} channels is not served: 8000 to 96000 Hz, 1 to 4 bytes, 1 to 8 channels are.",
                format.rate, format.width, format.channels
            );
            return Err(ConnectionEnd::Invalid(message));
        }
        Ok(format)
    }

    fn resampler(self) -> Resampler {
        Resampler::new(SampleRate::new(self.rate), RATE)
    }
}

/// Converts the audio of one utterance.
pub(super) struct Input {
    format: AudioFormat,
    resampler: Resampler,
    n_changes: usize,
}

impl Input {
    /// For audio of the format in this event.
    pub(super) fn of(event: &Event) -> Result<Self, ConnectionEnd> {
        let format = AudioFormat::of(event)?;
        Ok(Self { format, resampler: format.resampler(), n_changes: 0 })
    }

    /// Appends a chunk's audio at 16 kHz; its length.
    pub(super) fn take(&mut self, chunk: &Event, out: &mut Vec<i16>) -> Result<Duration, ConnectionEnd> {
        let format = AudioFormat::of(chunk)?;
        if format != self.format {
            self.n_changes += 1;
            if self.n_changes > MAX_CHANGES {
                let message = format!("The audio changes its format more than {MAX_CHANGES} times.");
                return Err(ConnectionEnd::Invalid(message));
            }
            self.resampler.flush(out);
            self.format = format;
            self.resampler = format.resampler();
        }
        let AudioFormat { rate, width, channels } = self.format;
        if !chunk.payload.len().is_multiple_of(width * channels) {
            return Err(ConnectionEnd::Invalid("The payload of 'audio-chunk' does not hold complete samples.".into()));
        }
        let mono: Vec<i16> = chunk.payload.chunks_exact(width * channels).map(|frame| mixed(frame, width)).collect();
        self.resampler.process(&mono, out);
        Ok(Samples(mono.len() as u64).duration(SampleRate::new(rate)))
    }

    /// Appends what is held back.
    pub(super) fn flush(&mut self, out: &mut Vec<i16>) {
        self.resampler.flush(out);
    }
}

/// The mean of the channels of a frame, by their upper 16 bits.
fn mixed(frame: &[u8], width: usize) -> i16 {
    let sample = |bytes: &[u8]| match bytes {
        [only] => i32::from(*only as i8) << 8,
        [.., low, high] => i32::from(i16::from_le_bytes([*low, *high])),
        [] => 0,
    };
    let channels = frame.len() / width;
    (frame.chunks_exact(width).map(sample).sum::<i32>() / channels as i32) as i16
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chunk(rate: u32, width: usize, channels: usize, payload: &[u8]) -> Event {
        let Value::Object(data) = json!({"rate": rate, "width": width, "channels": channels, "timestamp": null}) else {
            panic!()
        };
        Event { kind: "audio-chunk".into(), data, payload: payload.to_vec().into() }
    }

    fn taken(chunk: &Event) -> Vec<i16> {
        let mut input = Input::of(chunk).unwrap();
        let mut out = Vec::new();
        input.take(chunk, &mut out).unwrap();
        input.flush(&mut out);
        out
    }

    #[test]
    fn every_width_gives_its_upper_bits_and_channels_are_mixed() {
        assert_eq!(taken(&chunk(16_000, 2, 1, &[1, 0, 255, 255])), [1, -1]);
        assert_eq!(taken(&chunk(16_000, 1, 1, &[1, 128])), [256, -32_768]);
        assert_eq!(taken(&chunk(16_000, 3, 1, &[9, 1, 0])), [1]);
        assert_eq!(taken(&chunk(16_000, 4, 1, &[9, 9, 1, 0])), [1]);
        assert_eq!(taken(&chunk(16_000, 2, 2, &[100, 0, 200, 0])), [150]);
        assert_eq!(taken(&chunk(48_000, 2, 1, &[0; 960 * 2])).len(), 320);
    }

    #[test]
    fn other_formats_and_broken_samples_are_refused() {
        for (rate, width, channels) in [(0, 2, 1), (96_001, 2, 1), (16_000, 0, 1), (16_000, 5, 1), (16_000, 2, 0)] {
            assert!(Input::of(&chunk(rate, width, channels, &[])).is_err(), "{rate} {width} {channels}");
        }
        let odd = chunk(16_000, 2, 1, &[1, 2, 3]);
        assert!(Input::of(&odd).unwrap().take(&odd, &mut Vec::new()).is_err());
        let mut none = odd.clone();
        none.data.remove("rate");
        assert!(Input::of(&none).is_err());
    }

    #[test]
    fn changes_of_the_format_are_bounded() {
        let one = chunk(16_000, 2, 1, &[0; 64]);
        let other = chunk(8_000, 2, 1, &[0; 64]);
        let mut input = Input::of(&one).unwrap();
        for n in 0..MAX_CHANGES {
            let next = if n % 2 == 0 { &other } else { &one };
            assert!(input.take(next, &mut Vec::new()).is_ok());
            assert!(input.take(next, &mut Vec::new()).is_ok(), "the same format is no change");
        }
        assert!(input.take(&other, &mut Vec::new()).is_err());
    }
}
