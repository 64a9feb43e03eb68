//! The `realtime` engine: any server that transcribes over a WebSocket in the event names of OpenAI's Realtime API.
//!
//! Made by `assembly`; it implements the port directly, since it waits and never computes. How audio is sent and words are read
//! is documented in [`super::streamed`]. The server speaks first, and shows which of three dialects it has: OpenAI's (OpenAI
//! itself, another Antiphon, SenseVoice's server: 24 kHz, an item for each commit), vLLM's (16 kHz, a generation between two
//! commits) or NVIDIA's NIM (16 kHz, each piece is committed, `done` ends the connection). The hub ends turns: the server's own
//! turn detection is off where it has a setting.

use super::SttConfig;
use super::streamed::{Dialect, ServerReport, StreamingServer};
use super::terms::prompt_with;
use antiphon_audio::Resampler;
use antiphon_engine_api::stt::{OpeningUtterance, RATE, Stt, SttError, SttOptions, SttUtterance};
use antiphon_engine_api::{Fault, Upstreams};
use antiphon_types::SampleRate;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;

/// The rate of OpenAI's dialect.
const OPENAI_RATE: SampleRate = SampleRate::HZ_24000;

/// The least audio of a commit: OpenAI refuses less than 100 ms.
const MIN_COMMIT_SAMPLES: usize = 1_600;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Realtime {
    server: StreamingServer,
    model: String,
    language: Option<String>,
    key_terms: Vec<String>,
}

impl Realtime {
    /// Checks the settings and reads the key; connects to nothing. [`SttError::Unavailable`] says which setting is wrong
    /// and what would be right.
    pub fn new(config: &SttConfig) -> Result<Self, SttError> {
        let server = StreamingServer::new(config)?;
        let language = config.language_code();
        Ok(Self { server, model: config.model.clone(), language, key_terms: config.key_terms.clone() })
    }

    fn request(&self) -> Result<Request, SttError> {
        let wrong = || SttError::Unavailable("stt.base_url is no address of a WebSocket".into());
        let mut address = self.server.server.websocket_url("realtime");
        address.query_pairs_mut().append_pair("intent", "transcription");
        let mut request = address.as_str().into_client_request().map_err(|_| wrong())?;
        if let Some(key) = self.server.server.key() {
            let mut bearer = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| wrong())?;
            bearer.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, bearer);
        }
        Ok(request)
    }
}

impl Stt for Realtime {
    fn name(&self) -> &str {
        "realtime"
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), SttError>> {
        self.server.warm().boxed()
    }

    fn upstreams(&self) -> Option<Upstreams> {
        Some(self.server.report(self.name()))
    }

    fn hedge_delay(&self) -> Option<Duration> {
        self.server.hedge_delay()
    }

    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        self.utterance(options, false)
    }

    fn open_queued(&self, options: SttOptions) -> BoxFuture<'static, OpeningUtterance> {
        std::future::ready(self.utterance(options, true)).boxed()
    }
}

impl Realtime {
    /// An utterance with its connection. `is_queued`: it may wait.
    fn utterance(&self, options: SttOptions, is_queued: bool) -> OpeningUtterance {
        let engine = self.clone();
        async move {
            let request = engine.request()?;
            let asked = TranscriptionParams {
                model: engine.model.clone(),
                language: options.language_or(engine.language.as_deref()).map(str::to_owned),
                prompt: prompt_with(&engine.key_terms, options.prompt.as_deref()),
            };
            let dialect = move || RealtimeDialect { asked: asked.clone(), kind: None };
            engine.server.open(request, &options, is_queued, dialect).await
        }
        .boxed()
    }
}

/// What is asked of the server.
#[derive(Clone)]
struct TranscriptionParams {
    model: String,
    language: Option<String>,
    prompt: Option<String>,
}

struct RealtimeDialect {
    asked: TranscriptionParams,
    /// `None` until the server has spoken.
    kind: Option<Kind>,
}

enum Kind {
    OpenAi {
        resampler: Box<Resampler>,
        /// Samples at 16 kHz since the last commit.
        n_samples: usize,
    },
    VLlm {
        /// Whether a generation goes on.
        is_generating: bool,
    },
    Nim,
}

/// What comes from a server, of all dialects.
#[derive(Deserialize)]
struct Incoming {
    #[serde(rename = "type")]
    kind: String,
    session: Option<Value>,
    item_id: Option<String>,
    delta: Option<String>,
    transcript: Option<String>,
    text: Option<String>,
    is_last_result: Option<bool>,
    error: Option<Value>,
}

impl Dialect for RealtimeDialect {
    fn waits_to_begin(&self) -> bool {
        true
    }

    fn begin(&mut self) -> Vec<Message> {
        let TranscriptionParams { model, language, prompt } = &self.asked;
        let update = match &self.kind {
            None | Some(Kind::OpenAi { .. }) => {
                let mut transcription = json!({"model": model});
                if let Some(language) = language {
                    transcription["language"] = json!(language);
                }
                if let Some(prompt) = prompt {
                    transcription["prompt"] = json!(prompt);
                }
                let format = json!({"type": "audio/pcm", "rate": OPENAI_RATE.hz()});
                let input = json!({"format": format, "transcription": transcription, "turn_detection": null});
                json!({"type": "session.update", "session": {"type": "transcription", "audio": {"input": input}}})
            }
            Some(Kind::VLlm { .. }) => json!({"type": "session.update", "model": model}),
            Some(Kind::Nim) => {
                let transcription = json!({"model": model, "language": language, "prompt": prompt});
                let params = json!({"sample_rate_hz": RATE.hz(), "num_channels": 1});
                let session = json!({
                    "input_audio_format": "pcm16",
                    "input_audio_transcription": transcription,
                    "input_audio_params": params,
                });
                json!({"type": "transcription_session.update", "session": session})
            }
        };
        vec![text(&update)]
    }

    fn audio(&mut self, pcm: &[i16]) -> Vec<Message> {
        match &mut self.kind {
            None => Vec::new(),
            Some(Kind::OpenAi { resampler, n_samples }) => {
                *n_samples += pcm.len();
                let mut samples = Vec::new();
                resampler.process(pcm, &mut samples);
                append(&samples)
            }
            Some(Kind::VLlm { is_generating }) => {
                let mut messages = Vec::new();
                if !std::mem::replace(is_generating, true) {
                    messages.push(text(&json!({"type": "input_audio_buffer.commit"})));
                }
                messages.extend(append(pcm));
                messages
            }
            Some(Kind::Nim) => {
                let mut messages = append(pcm);
                messages.push(text(&json!({"type": "input_audio_buffer.commit"})));
                messages
            }
        }
    }

    fn flush(&mut self) -> Vec<Message> {
        match &mut self.kind {
            None => Vec::new(),
            Some(Kind::OpenAi { resampler, n_samples }) => {
                let mut samples = Vec::new();
                // A stretch that is shorter is completed with silence.
                let missing = MIN_COMMIT_SAMPLES.saturating_sub(std::mem::take(n_samples));
                resampler.process(&vec![0; missing], &mut samples);
                resampler.flush(&mut samples);
                **resampler = Resampler::new(RATE, OPENAI_RATE);
                let mut messages = append(&samples);
                messages.push(text(&json!({"type": "input_audio_buffer.commit"})));
                messages
            }
            Some(Kind::VLlm { is_generating }) => {
                *is_generating = false;
                vec![text(&json!({"type": "input_audio_buffer.commit", "final": true}))]
            }
            Some(Kind::Nim) => vec![text(&json!({"type": "input_audio_buffer.done"}))],
        }
    }

    fn ends_with_flush(&self) -> bool {
        matches!(self.kind, Some(Kind::Nim))
    }

    fn read(&mut self, message: Message) -> Result<Vec<ServerReport>, String> {
        let Message::Text(json) = message else { return Ok(Vec::new()) };
        let event: Incoming = serde_json::from_str(&json).map_err(|error| error.to_string())?;
        let item = event.item_id.unwrap_or_default();
        let heard = match event.kind.as_str() {
            "session.created" if self.kind.is_none() => {
                self.kind = Some(match event.session {
                    Some(_) => Kind::OpenAi { resampler: Box::new(Resampler::new(RATE, OPENAI_RATE)), n_samples: 0 },
                    None => Kind::VLlm { is_generating: false },
                });
                ServerReport::Ready
            }
            "conversation.created" if self.kind.is_none() => {
                self.kind = Some(Kind::Nim);
                ServerReport::Ready
            }
            "conversation.item.input_audio_transcription.delta" | "transcription.delta" => {
                ServerReport::Words { item, delta: event.delta.unwrap_or_default() }
            }
            "conversation.item.input_audio_transcription.completed" => {
                let text = event.transcript.ok_or("a completed item has no transcript")?;
                // NIM divides the speech itself, and says which stretch is the last one.
                ServerReport::Final { item, text: Some(text), answers: event.is_last_result != Some(false) }
            }
            "transcription.done" => ServerReport::Final { item, text: event.text, answers: true },
            "conversation.item.input_audio_transcription.failed" | "error" => {
                let message = message_of(event.error.as_ref());
                ServerReport::Failed { fault: Fault::Failed, message }
            }
            _ => return Ok(Vec::new()),
        };
        Ok(vec![heard])
    }
}

/// What an error says: `{"message"}`, or the text itself.
fn message_of(error: Option<&Value>) -> String {
    let said = error.and_then(|error| error.get("message").unwrap_or(error).as_str());
    said.unwrap_or("an error without words").to_owned()
}

/// Audio in one message; none where there is none.
fn append(samples: &[i16]) -> Vec<Message> {
    if samples.is_empty() {
        return Vec::new();
    }
    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    vec![text(&json!({"type": "input_audio_buffer.append", "audio": STANDARD.encode(bytes)}))]
}

fn text(event: &Value) -> Message {
    Message::text(event.to_string())
}

#[cfg(test)]
mod tests;
