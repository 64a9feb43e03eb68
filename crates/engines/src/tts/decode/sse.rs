//! Sound in server-sent events, base64 in JSON. The dialect is recognized from the events:
//!
//! - OpenAI's, which vLLM-Omni speaks too: `{"type": "speech.audio.delta", "audio": "..."}`, ended by `speech.audio.done`, or
//!   by `speech.audio.error`;
//! - SGLang-Omni's: `{"object": "audio.speech.chunk", "audio": {"data": "...", "format": "wav", "sample_rate": 24000}}`, ended
//!   by `[DONE]`; a failure is an event with `error`.
//!
//! The sound of the events is one stream of PCM, one WAV file, or a WAV file in each event. Other events are ignored. Bytes
//! are pushed, not pulled, for the time that the body may take depends on the sound it has brought.

use super::{AudioDecoder, Decode, DecodeError, MAX_SILENT_BYTES, RATES, unusable};
use crate::remote::{EventError, EventReader, ServerEvent};
use antiphon_types::{Pcm, SampleRate};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;

/// The longest event: half a minute of 24 kHz PCM in base64.
const MAX_EVENT: usize = 2 << 20;
/// How much of a server's error message is passed on, in characters.
const MAX_ERROR_CHARS: usize = 300;

/// See the module.
pub(super) struct SseDecoder {
    rate: SampleRate,
    events: EventReader,
    audio: AudioDecoder,
    has_sound: bool,
    is_finished: bool,
    /// What went wrong behind sound that is passed on first.
    failure: Option<DecodeError>,
}

/// What is read of an event, of any dialect.
#[derive(Deserialize)]
struct Event {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    audio: Option<Audio>,
    #[serde(default)]
    response_format: Option<String>,
    #[serde(default)]
    error: serde_json::Value,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audio {
    Data(String),
    Described {
        #[serde(default)]
        data: Option<String>,
        #[serde(default)]
        format: Option<String>,
        #[serde(default)]
        sample_rate: Option<u32>,
    },
}

impl SseDecoder {
    /// `rate` is that of PCM in events that name none.
    pub(super) fn new(rate: SampleRate) -> Self {
        Self {
            rate,
            events: EventReader::new(MAX_EVENT),
            audio: AudioDecoder::new(rate, 1),
            has_sound: false,
            is_finished: false,
            failure: None,
        }
    }

    /// The sound of an event; `None`: it has none.
    fn sound_of(&mut self, event: Result<ServerEvent, EventError>) -> Result<Option<Pcm>, DecodeError> {
        let data = match event {
            Ok(ServerEvent { data: Some(data), .. }) if !data.is_empty() => data,
            Ok(_) => return Ok(None),
            Err(EventError::NotText) => return Err(not_json()),
            Err(EventError::TooLong(most)) => {
                return Err(unusable(format!("the speech server sent an event of more than {most} bytes")));
            }
        };
        if data.trim() == "[DONE]" {
            self.is_finished = true;
            return Ok(None);
        }
        let event: Event = serde_json::from_str(&data).map_err(|_| not_json())?;
        if !event.error.is_null() || event.kind == "error" || event.kind.ends_with(".error") {
            return Err(DecodeError::Reported(message_of(&event.error)));
        }
        self.is_finished = event.kind == "speech.audio.done";
        let (data, format, rate) = match event.audio {
            None => return Ok(None),
            Some(Audio::Data(data)) => (data, event.response_format, None),
            Some(Audio::Described { data, format, sample_rate }) => (data.unwrap_or_default(), format, sample_rate),
        };
        if let Some(format) = format.filter(|format| !matches!(format.as_str(), "pcm" | "wav" | "")) {
            return Err(super::no_sound(&format!("events with {format}")));
        }
        let bytes = BASE64.decode(&data).map_err(|_| unusable("the speech server sent an event with broken base64"))?;
        let rate = rate.filter(|hz| RATES.contains(hz)).map_or(self.rate, SampleRate::new);
        if rate != self.rate || bytes.starts_with(super::wav::MAGIC) {
            self.rate = rate;
            self.audio = AudioDecoder::new(rate, 1);
        }
        self.audio.push(&bytes).map(Some)
    }
}

fn not_json() -> DecodeError {
    unusable("the speech server sent an event that is not its JSON")
}

/// The server's words, in one line.
fn message_of(error: &serde_json::Value) -> String {
    let said = error.get("message").unwrap_or(error);
    let said = said.as_str().map_or_else(|| said.to_string(), str::to_owned);
    crate::secret::conceal(&said)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(MAX_ERROR_CHARS)
        .collect()
}

impl Decode for SseDecoder {
    fn push(&mut self, bytes: &[u8]) -> Result<Pcm, DecodeError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let mut made: Option<Pcm> = None;
        self.events.push(bytes);
        while !self.is_finished {
            let Some(event) = self.events.take() else { break };
            match (self.sound_of(event), &mut made) {
                (Ok(None), _) => {}
                (Ok(Some(pcm)), _) if pcm.is_empty() => {}
                (Ok(Some(pcm)), None) => made = Some(pcm),
                (Ok(Some(pcm)), Some(made)) if made.rate == pcm.rate => made.samples.extend(pcm.samples),
                (Ok(Some(_)), Some(_)) => {
                    return Err(unusable("the speech server changed its sampling rate in mid-answer"));
                }
                (Err(failure), None) => return Err(failure),
                (Err(failure), Some(_)) => {
                    self.failure = Some(failure);
                    break;
                }
            }
        }
        self.has_sound |= made.is_some();
        Ok(made.unwrap_or(Pcm { rate: self.rate, samples: Vec::new() }))
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }

    fn max_silent_bytes(&self) -> usize {
        MAX_EVENT + MAX_SILENT_BYTES
    }

    fn end(&self) -> Result<Option<&'static str>, DecodeError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if !self.is_finished {
            return Err(unusable("the speech server's events broke off before the last one"));
        }
        if !self.has_sound {
            return Err(unusable("the server answered without any sound"));
        }
        self.audio.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_audio::wav;
    use antiphon_types::Samples;
    use proptest::prelude::*;

    fn pcm(samples: &[i16]) -> Vec<u8> {
        samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
    }

    fn file(rate: u32, samples: &[i16]) -> Vec<u8> {
        let mut file = wav::header(SampleRate::new(rate), Some(Samples(samples.len() as u64))).to_vec();
        file.extend(pcm(samples));
        file
    }

    fn delta(bytes: &[u8]) -> String {
        let audio = BASE64.encode(bytes);
        format!(
            "event: speech.audio.delta\ndata: {{\"type\": \"speech.audio.delta\", \"audio\": \"{audio}\", \"ü\": 1}}\n\n"
        )
    }

    fn chunk(bytes: &[u8], format: &str, rate: u32) -> String {
        let data = BASE64.encode(bytes);
        let audio = serde_json::json!({"data": data, "format": format, "sample_rate": rate});
        let event = serde_json::json!({"object": "audio.speech.chunk", "audio": audio, "finish_reason": null});
        format!("data: {event}\r\n\r\n")
    }

    const DONE: &str = "event: speech.audio.done\ndata: {\"type\": \"speech.audio.done\", \"usage\": {}}\n\n";

    fn decode(body: &[u8], size: usize) -> Result<(Vec<i16>, u32), DecodeError> {
        let mut decoder = SseDecoder::new(SampleRate::new(24_000));
        let mut samples = Vec::new();
        let mut rate = 0;
        for piece in body.chunks(size) {
            let pcm = decoder.push(piece)?;
            if !pcm.is_empty() {
                rate = pcm.rate.hz();
                samples.extend(pcm.samples);
            }
        }
        decoder.end().map(|_| (samples, rate))
    }

    #[test]
    fn openais_events_carry_one_stream_cut_anywhere() {
        let bytes = pcm(&[1, -2, 3, 4]);
        let (first, second) = bytes.split_at(3);
        let body = [": hello\n\n", &delta(first), &delta(second), DONE, "data: ignored"].concat();
        for size in [1, 2, 7, 4_096] {
            assert_eq!(decode(body.as_bytes(), size), Ok((vec![1, -2, 3, 4], 24_000)), "{size}");
        }
        let file = file(44_100, &[5, 6]);
        let body = [delta(&file[..46]), delta(&file[46..]), DONE.into()].concat();
        assert_eq!(decode(body.as_bytes(), 5), Ok((vec![5, 6], 44_100)));
    }

    #[test]
    fn sglangs_events_carry_pcm_or_a_wav_file_each() {
        let last = "data: {\"object\": \"audio.speech.chunk\", \"audio\": null, \"finish_reason\": \"stop\"}\n\n";
        let files = [chunk(&file(44_100, &[1, 2]), "wav", 44_100), chunk(&file(44_100, &[3]), "wav", 44_100)].concat();
        let raw = [chunk(&pcm(&[1, 2]), "pcm", 44_100), chunk(&pcm(&[3]), "pcm", 44_100)].concat();
        for chunks in [files, raw] {
            let body = [&chunks, last, "data: [DONE]\n\n"].concat();
            for size in [1, 11, 4_096] {
                assert_eq!(decode(body.as_bytes(), size), Ok((vec![1, 2, 3], 44_100)), "{size}");
            }
        }
    }

    #[test]
    fn a_failure_is_reported_in_the_servers_words() {
        let bodies = [
            "data: {\"type\":\"speech.audio.error\",\"error\":{\"message\":\"out of\\nmemory\"}}\n\n",
            "data: {\"object\":\"audio.speech.chunk\",\"audio\":null,\"error\":{\"message\":\"out of memory\"}}\n\n",
            "data: {\"type\":\"error\",\"error\":\"out of memory\"}\n\n",
        ];
        for body in bodies {
            let body = [&delta(&pcm(&[1])), body].concat();
            assert_eq!(decode(body.as_bytes(), 9), Err(DecodeError::Reported("out of memory".into())));
        }
    }

    #[test]
    fn what_is_no_such_stream_is_refused() {
        let check = |body: &str, expected: &str| {
            let error = decode(body.as_bytes(), 100).expect_err(body).to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("data: hello\n\n", "not its JSON");
        check("data: {\"type\":\"speech.audio.delta\",\"audio\":\"?\"}\n\n", "broken base64");
        check(&chunk(b"ID3", "mp3", 24_000), "events with mp3");
        check(&delta(&pcm(&[1])), "broke off before the last one");
        check(DONE, "without any sound");
        check(&format!("data: {}", "x".repeat(MAX_EVENT + 1)), "more than");
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_sound_or_an_error(bytes: Vec<u8>, size in 1usize..50) {
            let body = [delta(&pcm(&[1])).as_bytes(), &bytes].concat();
            let _ = decode(&body, size);
        }
    }
}
