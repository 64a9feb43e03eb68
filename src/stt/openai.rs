//! The `openai` engine: any server with `/v1/audio/transcriptions`.
//!
//! `engines` makes one [`OpenAi`] for all sessions. The protocol takes whole utterances, so that audio gathers here and
//! goes out as one WAV when it is asked for; there are no partials. It never logs audio, text or key.

use super::{RATE, Stt, SttConfig, SttError, SttOptions, SttUtterance, Transcript};
use crate::units::Samples;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use reqwest::multipart::{Form, Part};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The longest utterance, 5 minutes or 9.6 MB: under OpenAI's limit of 25 MB a file, and a bound on memory.
const MAX_SAMPLES: usize = 300 * 16_000;

/// The shortest that is sent, 100 ms, OpenAI's own minimum; nothing was said in less.
const MIN_SAMPLES: usize = 1_600;

/// The wait before the one retry.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// How much of a server's error text is passed on.
const MAX_ERROR_CHARS: usize = 300;

/// The engine. Cheap to clone; all clones share one pool of warm connections.
#[derive(Clone)]
pub struct OpenAi(Arc<Shared>);

struct Shared {
    client: Client,
    url: Url,
    key: Option<String>,
    model: String,
    language: Option<String>,
    deadline: Duration,
}

impl OpenAi {
    /// Makes the client; nothing is sent yet. [`SttError::Unavailable`] names a wrong address or a missing key.
    pub fn new(config: &SttConfig) -> Result<Self, SttError> {
        let url = format!("{}/audio/transcriptions", config.base_url.trim_end_matches('/'));
        let url = Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https")).ok_or_else(|| {
            SttError::Unavailable(format!("stt.base_url: {:?} is no http or https address", config.base_url))
        })?;
        let shared = Shared {
            client: client()?,
            url,
            key: key(&config.api_key_env)?,
            model: config.model.clone(),
            language: Some(config.language.clone()).filter(|language| !language.is_empty()),
            deadline: Duration::from_millis(config.timeout_ms),
        };
        Ok(Self(Arc::new(shared)))
    }
}

/// One client with connections that stay open between utterances.
fn client() -> Result<Client, SttError> {
    // Another part of the process may have installed it; either way there is one now.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .tcp_nodelay(true)
        .pool_idle_timeout(Duration::from_secs(90))
        .tcp_keepalive(Duration::from_secs(30))
        .connect_timeout(Duration::from_secs(5))
        .build()
        .map_err(|cause| SttError::Unavailable(format!("no HTTP client can be made: {cause}")))
}

fn key(variable: &str) -> Result<Option<String>, SttError> {
    if variable.is_empty() {
        return Ok(None);
    }
    match std::env::var(variable) {
        Ok(key) if !key.trim().is_empty() => Ok(Some(key.trim().to_owned())),
        _ => Err(SttError::Unavailable(format!(
            "the environment variable {variable} holds no key for speech recognition; set it, or set stt.api_key_env \
             to an empty text where the server asks for none"
        ))),
    }
}

impl Stt for OpenAi {
    fn name(&self) -> &str {
        "openai"
    }

    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        let utterance = Utterance { engine: self.0.clone(), options, pcm: Vec::new() };
        ready(Ok(Box::new(utterance) as Box<dyn SttUtterance>)).boxed()
    }
}

struct Utterance {
    engine: Arc<Shared>,
    options: SttOptions,
    pcm: Vec<i16>,
}

impl Utterance {
    fn transcribe(&self) -> BoxFuture<'static, Result<Transcript, SttError>> {
        if self.pcm.len() < MIN_SAMPLES {
            return ready(Ok(Transcript::default())).boxed();
        }
        let (engine, options, wav) = (self.engine.clone(), self.options.clone(), wav(&self.pcm));
        async move {
            let deadline = engine.deadline;
            timeout(deadline, engine.send(wav, &options)).await.map_err(|_| SttError::Timeout(deadline))?
        }
        .boxed()
    }
}

impl SttUtterance for Utterance {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        let result = if self.pcm.len() + pcm.len() > MAX_SAMPLES {
            let seconds = Samples(MAX_SAMPLES as u64).duration(RATE).as_secs();
            Err(failure(format!("an utterance is longer than {seconds} s")))
        } else {
            self.pcm.extend_from_slice(&pcm);
            Ok(())
        };
        ready(result).boxed()
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        ready(Ok(None)).boxed()
    }

    fn guess(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        self.transcribe()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        self.transcribe()
    }
}

/// What the server answers; it may hold more.
#[derive(Deserialize)]
struct Answer {
    text: String,
}

/// Whether another attempt may go better.
enum Failure {
    Passing(SttError),
    Lasting(SttError),
}

impl Shared {
    /// Sends the utterance, twice if the first attempt fails for a passing reason. The caller sets the deadline.
    async fn send(&self, wav: bytes::Bytes, options: &SttOptions) -> Result<Transcript, SttError> {
        match self.attempt(wav.clone(), options).await {
            Err(Failure::Passing(error)) => {
                tracing::debug!(%error, "transcription is tried again");
                tokio::time::sleep(RETRY_AFTER).await;
                self.attempt(wav, options).await.map_err(|(Failure::Passing(error) | Failure::Lasting(error))| error)
            }
            Err(Failure::Lasting(error)) => Err(error),
            Ok(transcript) => Ok(transcript),
        }
    }

    async fn attempt(&self, wav: bytes::Bytes, options: &SttOptions) -> Result<Transcript, Failure> {
        let mut request = self.client.post(self.url.clone()).multipart(self.form(wav, options));
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let response = request.send().await.map_err(|cause| Failure::Passing(self.unreachable(cause)))?;
        let status = response.status();
        let body = response.text().await.map_err(|cause| Failure::Passing(self.unreachable(cause)))?;
        if !status.is_success() {
            let error = failure(format!("{} answered {status}: {}", self.host(), explained(&body)));
            let passing = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
            return Err(if passing { Failure::Passing(error) } else { Failure::Lasting(error) });
        }
        let answer: Answer = serde_json::from_str(&body).map_err(|cause| {
            let message = format!("{} answered something that is no transcription", self.host());
            Failure::Lasting(SttError::Engine { message, source: Some(Box::new(cause)) })
        })?;
        Ok(Transcript { text: answer.text.trim().to_owned(), confidence: None, speaker: None })
    }

    fn form(&self, wav: bytes::Bytes, options: &SttOptions) -> Form {
        let length = wav.len() as u64;
        let file = Part::stream_with_length(wav, length).file_name("utterance.wav");
        let file = file.mime_str("audio/wav").expect("a valid media type");
        let mut form = Form::new().part("file", file).text("model", self.model.clone()).text("response_format", "json");
        if let Some(language) = options.language.as_ref().or(self.language.as_ref()) {
            form = form.text("language", language.clone());
        }
        if let Some(prompt) = &options.prompt {
            form = form.text("prompt", prompt.clone());
        }
        form
    }

    fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or("the server");
        self.url.port().map_or(host.to_owned(), |port| format!("{host}:{port}"))
    }

    fn unreachable(&self, cause: reqwest::Error) -> SttError {
        // The address may hold a secret in its query; the host says enough.
        let cause = cause.without_url();
        SttError::Engine { message: format!("{} cannot be reached", self.host()), source: Some(Box::new(cause)) }
    }
}

fn failure(message: String) -> SttError {
    SttError::Engine { message, source: None }
}

/// The message in an error of OpenAI's shape, or the beginning of whatever came.
fn explained(body: &str) -> String {
    #[derive(Deserialize)]
    struct Envelope {
        error: Inner,
    }
    #[derive(Deserialize)]
    struct Inner {
        message: String,
    }
    let message = serde_json::from_str::<Envelope>(body).map_or(body.trim().to_owned(), |found| found.error.message);
    if message.is_empty() { "no reason given".into() } else { message.chars().take(MAX_ERROR_CHARS).collect() }
}

/// The utterance as a WAV file: the 44-byte header of RIFF WAVE with plain PCM, then the samples.
fn wav(pcm: &[i16]) -> bytes::Bytes {
    let n_bytes = u32::try_from(pcm.len() * 2).expect("an utterance is bounded");
    let rate = RATE.hz();
    let mut wav = Vec::with_capacity(44 + pcm.len() * 2);
    wav.extend_from_slice(b"RIFF");
    wav.extend_from_slice(&(36 + n_bytes).to_le_bytes());
    wav.extend_from_slice(b"WAVEfmt ");
    wav.extend_from_slice(&16u32.to_le_bytes());
    wav.extend_from_slice(&[1, 0, 1, 0]); // PCM, one channel
    wav.extend_from_slice(&rate.to_le_bytes());
    wav.extend_from_slice(&(rate * 2).to_le_bytes());
    wav.extend_from_slice(&[2, 0, 16, 0]); // bytes a frame, bits a sample
    wav.extend_from_slice(b"data");
    wav.extend_from_slice(&n_bytes.to_le_bytes());
    wav.extend(pcm.iter().flat_map(|sample| sample.to_le_bytes()));
    wav.into()
}

#[cfg(test)]
mod tests;
