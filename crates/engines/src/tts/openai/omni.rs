//! The WebSocket `/v1/audio/speech/stream` of vLLM-Omni and SGLang-Omni, as a [`Dialect`].
//!
//! Out: `session.config`, `input.text` for the words, `input.done`, `session.close`. In: for each sentence that the
//! server finds `audio.start` with its text and format, binary messages with PCM, `audio.done`; then `session.done`; or
//! `error`. vLLM-Omni gathers the whole text unless a setting says where to split it: by sentences, unless
//! `tts.extra_body` says otherwise (`split_granularity = "clause"`). The other fields of `tts.extra_body` are part of
//! the session's configuration too.

use super::OpenAiTts;
use crate::tts::decode::{AudioDecoder, CHANNELS, Decode, DecodeError, RATES, USUAL_RATE};
use crate::tts::streamed::with_extra;
use crate::tts::words::{self, Call, Dialect, ServerMessage, n_letters};
use antiphon_engine_api::tts::{TextRequest, TextSpeech};
use antiphon_types::SampleRate;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde::Deserialize;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// One text's speech; `None` where the address is not a WebSocket's, which does not happen.
pub(super) fn speak(engine: &OpenAiTts, request: &TextRequest) -> Option<TextSpeech> {
    let server = &engine.server.server;
    let address = server.websocket_url("audio/speech/stream");
    let mut handshake = address.as_str().into_client_request().ok()?;
    if let Some(key) = server.key() {
        let mut value = HeaderValue::from_str(&format!("Bearer {key}")).ok()?;
        value.set_sensitive(true);
        handshake.headers_mut().insert(AUTHORIZATION, value);
    }
    let mut config = with_extra(
        json!({
            "type": "session.config",
            "model": engine.model,
            "voice": engine.voices.resolve(&request.voice),
            "response_format": "pcm",
            "stream_audio": true,
        }),
        &engine.extra,
    );
    if let Some(fields) = config.as_object_mut() {
        fields.entry("split_granularity").or_insert_with(|| "sentence".into());
        // A field of requests only: SGLang-Omni's sessions refuse it.
        fields.remove("stream");
    }
    if let Some(instructions) = &request.instructions {
        config["instructions"] = instructions.as_str().into();
    }
    if let Some(seed) = request.seed {
        config["seed"] = seed.into();
    }
    Some(words::speak(Call {
        request: handshake,
        begin: Some(text(&config)),
        upstream: engine.server.upstream.clone(),
        dialect: Omni::new(engine.rate.unwrap_or(USUAL_RATE)),
        deadlines: engine.server.deadlines,
        host: server.host().to_owned(),
        speed: request.speed,
        requester: request.meter.requester(),
    }))
}

fn text(message: &serde_json::Value) -> Message {
    Message::text(message.to_string())
}

/// See the module.
struct Omni {
    /// The rate of PCM that names none.
    rate: SampleRate,
    sound: AudioDecoder,
    /// Letters of the sentences so far.
    n_letters: usize,
}

impl Omni {
    fn new(rate: SampleRate) -> Self {
        Self { rate, sound: AudioDecoder::new(rate, 1), n_letters: 0 }
    }

    fn start(&mut self, start: Event) -> Result<Vec<ServerMessage>, DecodeError> {
        if let Some(format) = start.format.filter(|format| !matches!(format.as_str(), "pcm" | "wav")) {
            return Err(DecodeError::Unusable(format!("the speech server sends {format} where PCM was asked for")));
        }
        let rate = start.sample_rate.filter(|hz| RATES.contains(hz)).map_or(self.rate, SampleRate::new);
        let channels = start.channels.filter(|n| CHANNELS.contains(n)).unwrap_or(1);
        self.sound = AudioDecoder::new(rate, channels);
        let letters = start.sentence_text.map(|sentence| {
            self.n_letters += n_letters(&sentence);
            self.n_letters
        });
        Ok(vec![ServerMessage::Text(letters)])
    }
}

/// What is read of a message.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    format: Option<String>,
    sample_rate: Option<u32>,
    channels: Option<u16>,
    sentence_text: Option<String>,
    message: Option<String>,
    /// In `error`: what is wrong; in `audio.done`: whether something is.
    #[serde(default)]
    error: serde_json::Value,
}

impl Event {
    fn failure(&self) -> DecodeError {
        let said = self.error.get("message").and_then(|message| message.as_str()).or(self.message.as_deref());
        let said = said.unwrap_or("a sentence failed").split_whitespace().collect::<Vec<_>>().join(" ");
        DecodeError::Reported(crate::secret::conceal(&said).chars().take(300).collect())
    }
}

impl Dialect for Omni {
    fn words(words: String) -> Message {
        text(&json!({ "type": "input.text", "text": words }))
    }

    fn end() -> Vec<Message> {
        vec![text(&json!({ "type": "input.done" })), text(&json!({ "type": "session.close" }))]
    }

    /// The servers count their own messages only.
    fn keep_alive() -> Message {
        text(&json!({ "type": "input.text", "text": "" }))
    }

    fn read(&mut self, message: Message) -> Result<Vec<ServerMessage>, DecodeError> {
        let event = match message {
            Message::Binary(bytes) => return self.sound.push(&bytes).map(|pcm| vec![ServerMessage::Sound(pcm)]),
            Message::Text(event) => event,
            _ => return Ok(Vec::new()),
        };
        let event: Event = serde_json::from_str(&event)
            .map_err(|_| DecodeError::Unusable("the speech server sent a message that is not its JSON".into()))?;
        match event.kind.as_str() {
            "audio.start" => self.start(event),
            "audio.done" if event.error == true => Err(event.failure()),
            "session.done" => Ok(vec![ServerMessage::End]),
            "error" => Err(event.failure()),
            _ => Ok(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests;
