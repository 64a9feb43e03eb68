//! The `openai` engine: any server with `POST /v1/audio/transcriptions`.
//!
//! It implements the port directly, since it waits and never computes. Such servers take a complete file,
//! so the utterance gathers here and goes out as WAV when it is complete; there are no partials. A request that fails by
//! a broken connection, a status of 5xx or 429 is sent once more within the same deadline. An answer is bounded in bytes, words
//! and tokens, whatever the server sends. What was said is never logged.

use super::SttConfig;
use super::speech_server::{Deadline, failed, fault_of};
use super::terms::prompt_with;
use crate::remote::{Body, BodyError, Bounds, Server, Upstream};
use antiphon_audio::wav;
use antiphon_engine_api::stt::{
    DETECT_LANGUAGE, OpeningUtterance, RATE, Stt, SttError, SttOptions, SttUtterance, TokenLogprob, Transcript,
};
use antiphon_engine_api::{Fault, Upstreams};
use antiphon_types::{Pcm, language_code};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use reqwest::StatusCode;
use reqwest::multipart::{Form, Part};
use serde::Deserialize;
use std::time::Duration;
use tokio::time::timeout;

/// The longest utterance that is gathered: 10 minutes, 19 MB. Servers refuse files beyond 25 MB.
const MAX_SAMPLES: usize = 600 * 16_000;

/// The largest answer: the longest utterance has some 3,000 words, and each token's probability takes some 60 bytes of JSON.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// The longest transcript: more than twice what anybody says in the longest utterance, in scripts of three bytes a character.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// The most tokens whose probabilities are kept.
const MAX_TOKENS: usize = 16 << 10;

/// OpenAI's models whose names begin so name no language: their only answer is `json`. Those of other servers are Whisper models.
const WITHOUT_LANGUAGE: &str = "gpt-";

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct OpenAiStt {
    server: Server,
    model: String,
    language: Option<String>,
    key_terms: Vec<String>,
    /// From the end of the utterance to its transcript, the retry included.
    deadline: Deadline,
    upstream: Upstream,
}

impl OpenAiStt {
    /// Checks the settings and reads the key; connects to nothing. [`SttError::Unavailable`] says which setting is wrong
    /// and what would be right.
    pub fn new(config: &SttConfig) -> Result<Self, SttError> {
        let deadline = Deadline::new(config);
        let server = Server::new("stt", &config.base_url, &config.api_key_env, deadline.usual);
        let detected = (config.language == DETECT_LANGUAGE).then(|| DETECT_LANGUAGE.to_owned());
        let language = config.language_code().or(detected);
        let upstream = Upstream::new(config.hedge_after_ms, deadline.usual, config.fallback.is_some());
        let server = server.map_err(SttError::Unavailable)?;
        let model = config.model.clone();
        let key_terms = config.key_terms.clone();
        Ok(Self { server, model, language, key_terms, deadline, upstream })
    }

    /// Opens a connection, so that the first utterance does not pay for it.
    pub async fn warm(&self) -> Result<(), SttError> {
        let warmed = timeout(self.deadline.usual, self.server.warm()).await;
        warmed.map_err(|_| SttError::Timeout(self.deadline.usual))?.map_err(|error| self.transport(error))
    }

    /// Transcribes a whole utterance, unless the server failed so often that it is not asked.
    async fn transcribe(self, pcm: Vec<i16>, options: SttOptions, is_queued: bool) -> Result<Transcript, SttError> {
        if pcm.is_empty() {
            return Ok(Transcript::default());
        }
        let away = |reason: String| SttError::Away(format!("{}: {reason}", self.server.host()));
        let attempt = self.upstream.admit(options.meter.requester()).map_err(|open| away(open.to_string()))?;
        let deadline = self.deadline.of(pcm.len(), is_queued);
        let mut attempt = attempt.longer_by(deadline - self.deadline.usual);
        let file = Bytes::from(wav::write(&Pcm { rate: RATE, samples: pcm }));
        let Some(result) = attempt.first(self.ask(&file, &options, deadline)).await else {
            return Err(away("it is late, as other requests are".into()));
        };
        match &result {
            // What a long segment of a file takes is no measure of how late an answer to a speaker is.
            Ok(_) if is_queued => attempt.responds(),
            Ok(_) => attempt.answered(),
            Err(error) => attempt.failed(fault_of(error)),
        }
        result
    }

    /// Asks within the deadline, twice where that may help and no other engine would take over.
    async fn ask(&self, file: &Bytes, options: &SttOptions, deadline: Duration) -> Result<Transcript, SttError> {
        let two_tries = async {
            match self.attempt(file, options, deadline).await {
                Err(Failure { error, again: true }) if !self.upstream.has_fallback() => {
                    tracing::debug!(%error, "the transcription is asked for once more");
                    self.attempt(file, options, deadline).await.map_err(|failure| failure.error)
                }
                other => other.map_err(|failure| failure.error),
            }
        };
        timeout(deadline, two_tries).await.map_err(|_| SttError::Timeout(deadline))?
    }

    async fn attempt(&self, file: &Bytes, options: &SttOptions, deadline: Duration) -> Result<Transcript, Failure> {
        let request = self.server.post("audio/transcriptions").multipart(self.form(file, options));
        let broken = |error| Failure { error: self.transport(error), again: true };
        let response = request.send().await.map_err(broken)?;
        let status = response.status();
        if !status.is_success() {
            let again = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
            let fault = Fault::of_status(status.as_u16());
            self.upstream.heed(&response);
            return Err(Failure { error: failed(fault, self.server.refusal(response).await), again });
        }
        let bounds = Bounds { bytes: MAX_ANSWER_BYTES, stall: deadline, total: deadline };
        let body = Body::new(response, bounds).whole().await.map_err(|error| self.unread(error))?;
        let unusable = |why: String| {
            let message = format!("the server {} answered what is no transcription: {why}", self.server.host());
            Failure { error: failed(Fault::BadAnswer, message), again: false }
        };
        let answer: Answer = serde_json::from_slice(&body).map_err(|error| unusable(error.to_string()))?;
        if answer.text.len() > MAX_TEXT_BYTES {
            return Err(unusable(format!("its text is longer than {MAX_TEXT_BYTES} bytes")));
        }
        if answer.logprobs.as_ref().is_some_and(|tokens| tokens.len() > MAX_TOKENS) {
            return Err(unusable(format!("it has more than {MAX_TOKENS} tokens")));
        }
        let logprobs = answer.logprobs.filter(|_| options.logprobs);
        let token = |token: Token| TokenLogprob { token: token.token, logprob: token.logprob };
        let logprobs = logprobs.map(|tokens| tokens.into_iter().map(token).collect());
        let language = answer.language.as_deref().and_then(language_code).map(str::to_owned);
        Ok(Transcript { text: answer.text.trim().to_owned(), logprobs, language, ..Transcript::default() })
    }

    fn form(&self, file: &Bytes, options: &SttOptions) -> Form {
        let length = file.len() as u64;
        let part = Part::stream_with_length(file.clone(), length).file_name("utterance.wav");
        let part = part.mime_str("audio/wav").expect("a media type");
        let form = Form::new().part("file", part).text("model", self.model.clone());
        let asked = options.language.as_deref().or(self.language.as_deref());
        let form = match asked {
            // Only this shape of the answer names the language, and servers give no probabilities in it.
            Some(DETECT_LANGUAGE) => form.text("response_format", "verbose_json"),
            _ if options.logprobs => form.text("response_format", "json").text("include[]", "logprobs"),
            _ => form.text("response_format", "json"),
        };
        let language = options.language_or(self.language.as_deref()).map(str::to_owned);
        let form = language.into_iter().fold(form, |form, language| form.text("language", language));
        let prompt = prompt_with(&self.key_terms, options.prompt.as_deref());
        prompt.into_iter().fold(form, |form, prompt| form.text("prompt", prompt))
    }

    fn transport(&self, error: reqwest::Error) -> SttError {
        let message = format!("the server {} cannot be reached", self.server.host());
        let fault = if error.is_connect() { Fault::Unreachable } else { Fault::BrokenOff };
        SttError::Remote { fault, message, source: Some(Box::new(error.without_url())) }
    }

    /// Why an answer could not be read to its end.
    fn unread(&self, error: BodyError) -> Failure {
        let (fault, again) = match error {
            BodyError::Broken(_) => (Fault::BrokenOff, true),
            BodyError::TooLarge(_) => (Fault::BadAnswer, false),
            BodyError::Stalled(_) | BodyError::TooSlow(_) => (Fault::Timeout, false),
        };
        let message = format!("the answer of the server {} cannot be read", self.server.host());
        Failure { error: SttError::Remote { fault, message, source: Some(Box::new(error)) }, again }
    }
}

/// A failed attempt.
struct Failure {
    error: SttError,
    /// Whether another attempt may succeed.
    again: bool,
}

#[derive(Deserialize)]
struct Answer {
    text: String,
    /// Servers without them leave them out.
    #[serde(default)]
    logprobs: Option<Vec<Token>>,
    /// Its English name, or its code.
    #[serde(default)]
    language: Option<String>,
}

#[derive(Deserialize)]
struct Token {
    token: String,
    logprob: f64,
}

impl Stt for OpenAiStt {
    fn name(&self) -> &str {
        "openai"
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), SttError>> {
        OpenAiStt::warm(self).boxed()
    }

    fn detects_language(&self) -> bool {
        !self.model.starts_with(WITHOUT_LANGUAGE)
    }

    /// Its transcripts have no times.
    fn takes_long_stretches(&self, timed: bool) -> bool {
        !timed
    }

    fn upstreams(&self) -> Option<Upstreams> {
        Some(self.upstream.report(self.name()))
    }

    fn hedge_delay(&self) -> Option<Duration> {
        self.upstream.hedge_delay()
    }

    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        self.utterance(options, false)
    }

    fn open_queued(&self, options: SttOptions) -> BoxFuture<'static, OpeningUtterance> {
        ready(self.utterance(options, true)).boxed()
    }
}

impl OpenAiStt {
    /// An utterance, which is never refused. `is_queued`: it may wait.
    fn utterance(&self, options: SttOptions, is_queued: bool) -> OpeningUtterance {
        let utterance = RemoteUtterance { engine: self.clone(), options, is_queued, pcm: Vec::new() };
        ready(Ok(Box::new(utterance) as Box<dyn SttUtterance>)).boxed()
    }
}

/// The audio so far.
struct RemoteUtterance {
    engine: OpenAiStt,
    options: SttOptions,
    /// It may wait.
    is_queued: bool,
    pcm: Vec<i16>,
}

impl SttUtterance for RemoteUtterance {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        let result = if self.pcm.len() + pcm.len() > MAX_SAMPLES {
            Err(failed(Fault::Refused, "the utterance is longer than 10 minutes".into()))
        } else {
            self.pcm.extend_from_slice(&pcm);
            Ok(())
        };
        ready(result).boxed()
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        ready(Ok(None)).boxed()
    }

    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        self.engine.clone().transcribe(self.pcm.clone(), self.options.clone(), self.is_queued).boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        self.engine.transcribe(self.pcm, self.options, self.is_queued).boxed()
    }
}

#[cfg(test)]
mod tests;
