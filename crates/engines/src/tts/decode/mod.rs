//! Bytes that a speech server sends, as samples: raw PCM, a WAV file, or either of them in server-sent events.
//!
//! [`streamed`](super::streamed) and [`words`](super::words) push bytes as they arrive, cut anywhere. What a body is, its
//! content type says; where that leaves it open, its first bytes do: some servers send a WAV file whatever was asked for.

mod pcm;
mod sse;
mod wav;

pub(super) use super::speech_server::DecodeError;
use antiphon_types::{Pcm, SampleRate};
use pcm::PcmDecoder;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use sse::SseDecoder;
use wav::WavDecoder;

/// What raw PCM has where nothing says otherwise: that of OpenAI's `response_format: "pcm"`.
pub(super) const USUAL_RATE: SampleRate = SampleRate::HZ_24000;
/// Rates and channels that are taken for true.
pub(super) const RATES: std::ops::RangeInclusive<u32> = 4_000..=192_000;
pub(super) const CHANNELS: std::ops::RangeInclusive<u16> = 1..=8;
/// Consecutive bytes without sound, such as the header or trailer of a file.
const MAX_SILENT_BYTES: usize = 128 << 10;

/// Bytes of a body to samples; pieces may be cut anywhere.
pub(super) trait Decode: Send {
    /// The samples that are complete now, all of one rate.
    fn push(&mut self, bytes: &[u8]) -> Result<Pcm, DecodeError>;

    /// Whether nothing that matters follows.
    fn is_finished(&self) -> bool {
        false
    }

    /// Consecutive bytes that may come without sound.
    fn max_silent_bytes(&self) -> usize {
        MAX_SILENT_BYTES
    }

    /// A warning about the complete body. The error says why it was no sound at all.
    fn end(&self) -> Result<Option<&'static str>, DecodeError>;
}

fn unusable(what: impl Into<String>) -> DecodeError {
    DecodeError::Unusable(what.into())
}

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExpectedFormat {
    /// A WAV file and nothing else.
    pub(super) is_wav: bool,
    /// The rate of PCM that names none; `None`: 24 kHz.
    pub(super) rate: Option<SampleRate>,
}

/// The decoder for a body with these headers. Types that are certainly neither PCM nor WAV are refused.
pub(super) fn for_answer(headers: &HeaderMap, expected: ExpectedFormat) -> Result<Box<dyn Decode>, DecodeError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // Nothing asks for compression, and compressed bytes would be heard as noise.
    let encoding = text(CONTENT_ENCODING.as_str()).trim();
    if !encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity") {
        return Err(no_sound(&format!("a body in the encoding {encoding}")));
    }
    let mut parts = text(CONTENT_TYPE.as_str()).split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
    if expected.is_wav {
        return match essence.as_str() {
            kind if kind.is_empty() || kind.contains("wav") || is_untyped(kind) => Ok(Box::new(WavDecoder::new())),
            _ => Err(no_sound(&essence)),
        };
    }
    let named = parts.find_map(|part| part.strip_prefix("rate=")).unwrap_or_else(|| text("x-sample-rate"));
    let named = named.trim().parse().ok().filter(|hz| RATES.contains(hz)).map(SampleRate::new);
    let rate = named.or(expected.rate).unwrap_or(USUAL_RATE);
    match essence.as_str() {
        "text/event-stream" => Ok(Box::new(SseDecoder::new(rate))),
        kind if kind.starts_with("audio/") && kind.contains("wav") => Ok(Box::new(WavDecoder::new())),
        kind if kind.is_empty() || is_untyped(kind) || is_raw(kind) => Ok(Box::new(AudioDecoder::new(rate, 1))),
        _ => Err(no_sound(&essence)),
    }
}

fn is_untyped(essence: &str) -> bool {
    essence.ends_with("/octet-stream")
}

fn is_raw(essence: &str) -> bool {
    essence.starts_with("audio/") && ["pcm", "l16", "raw"].iter().any(|raw| essence.ends_with(raw))
}

fn no_sound(what: &str) -> DecodeError {
    unusable(format!("the server sent {what} where raw 16-bit PCM or a WAV file of it was asked for"))
}

/// PCM, or a WAV file, as its first bytes say.
pub(super) struct AudioDecoder {
    rate: SampleRate,
    channels: u16,
    state: State,
}

enum State {
    /// Fewer bytes than identify a WAV file.
    Undecided(Vec<u8>),
    Decided(Box<dyn Decode>),
}

impl AudioDecoder {
    /// `rate` and `channels` are those of PCM; a WAV file has its own.
    pub(super) fn new(rate: SampleRate, channels: u16) -> Self {
        Self { rate, channels, state: State::Undecided(Vec::new()) }
    }
}

impl Decode for AudioDecoder {
    fn push(&mut self, bytes: &[u8]) -> Result<Pcm, DecodeError> {
        let held = match &mut self.state {
            State::Decided(decoder) => return decoder.push(bytes),
            State::Undecided(held) => held,
        };
        held.extend_from_slice(bytes);
        let decoder: Box<dyn Decode> = if held.starts_with(wav::MAGIC) {
            Box::new(WavDecoder::new())
        } else if wav::MAGIC.starts_with(held) {
            return Ok(Pcm { rate: self.rate, samples: Vec::new() });
        } else {
            Box::new(PcmDecoder::new(self.rate, self.channels))
        };
        let held = std::mem::take(held);
        self.state = State::Decided(decoder);
        self.push(&held)
    }

    fn end(&self) -> Result<Option<&'static str>, DecodeError> {
        match &self.state {
            State::Decided(decoder) => decoder.end(),
            State::Undecided(_) => Err(unusable("the speech server's answer ended before its sound began")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_audio::wav;
    use antiphon_types::Samples;

    fn headers(kind: &str, rate: &str) -> HeaderMap {
        let named = [("content-type", kind), ("x-sample-rate", rate)]
            .map(|(name, value)| (name.parse::<reqwest::header::HeaderName>().unwrap(), value.parse().unwrap()));
        named.into_iter().collect()
    }

    fn rate_of(kind: &str, header: &str, configured: Option<u32>) -> Option<u32> {
        let expected = ExpectedFormat { is_wav: false, rate: configured.map(SampleRate::new) };
        let mut decoder = for_answer(&headers(kind, header), expected).ok()?;
        Some(decoder.push(&[1, 0, 2, 0, 3, 0]).ok()?.rate.hz())
    }

    #[test]
    fn a_compressed_body_is_no_sound() {
        let encoded = |encoding: &str| {
            let mut headers = headers("audio/pcm", "");
            headers.insert(CONTENT_ENCODING, encoding.parse().unwrap());
            for_answer(&headers, ExpectedFormat::default()).map(drop)
        };
        assert!(encoded("identity").is_ok());
        assert!(encoded("gzip").unwrap_err().to_string().contains("gzip"));
    }

    #[test]
    fn a_header_says_the_rate_or_else_the_configuration() {
        assert_eq!(rate_of("audio/pcm", "", None), Some(24_000));
        assert_eq!(rate_of("", "", None), Some(24_000));
        assert_eq!(rate_of("application/octet-stream", "", Some(44_100)), Some(44_100));
        assert_eq!(rate_of("audio/L16; rate=16000; channels=1", "", Some(44_100)), Some(16_000));
        assert_eq!(rate_of("audio/pcm", "22050", Some(44_100)), Some(22_050));
        assert_eq!(rate_of("audio/pcm;rate=0", "x", None), Some(24_000));
        assert_eq!(rate_of("audio/mpeg", "", None), None);
        assert_eq!(rate_of("application/json", "", None), None);
    }

    #[test]
    fn a_wav_file_is_read_by_its_header_whatever_was_asked_for() {
        let mut file = wav::header(SampleRate::new(44_100), Some(Samples(2))).to_vec();
        file.extend([1, 0, 254, 255]);
        for kind in ["audio/wav", "audio/x-wav", "audio/pcm", ""] {
            for size in [1, 3, 7, 99] {
                let mut decoder = for_answer(&headers(kind, "8000"), ExpectedFormat::default()).expect(kind);
                let made: Vec<Pcm> = file.chunks(size).map(|piece| decoder.push(piece).expect("sound")).collect();
                let samples: Vec<i16> = made.iter().flat_map(|pcm| pcm.samples.clone()).collect();
                assert_eq!((samples, made.last().unwrap().rate.hz()), (vec![1, -2], 44_100), "{kind} {size}");
                assert_eq!(decoder.end(), Ok(None));
            }
        }
        assert!(for_answer(&headers("audio/pcm", ""), ExpectedFormat { is_wav: true, rate: None }).is_err());
        let mut decoder = for_answer(&headers("audio/wav", ""), ExpectedFormat::default()).unwrap();
        assert!(decoder.push(b"ID3 and more").is_err());
    }

    #[test]
    fn a_body_that_ends_before_its_kind_is_known_is_no_sound() {
        let mut decoder = for_answer(&headers("", ""), ExpectedFormat::default()).unwrap();
        assert!(decoder.push(b"RIF").unwrap().is_empty());
        assert!(decoder.end().is_err());
    }
}
