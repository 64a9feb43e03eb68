//! One request on its way: sending, trying again, reading the stream, with its deadlines.

use super::answer::{Answer, Step, shorten};
use super::{LlmContext, request, root_cause};
use crate::remote::{Body, BodyError, Bounds, EventError, EventReader, ServerEvent};
use antiphon_engine_api::llm::{LlmDelta, LlmError};
use antiphon_types::RetryPolicy;
use antiphon_types::chat::ChatRequest;
use async_stream::stream;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The largest answer, the server's wrapping of each token included: some 1,500 bytes a token for the most tokens that a client
/// may ask for.
const MAX_ANSWER_BYTES: usize = 6 << 20;

/// The largest event of an answer, or answer that is not streamed. It becomes a tree in memory, which takes a hundred times as
/// much at worst.
const MAX_EVENT_BYTES: usize = 256 << 10;

/// The least time an answer may be waited for behind its first delta, and for each token that it may have. Time in
/// which the caller asks for no more, because the listener has enough to hear, does not count.
const MIN_WAIT: Duration = Duration::from_secs(60);
const WAIT_PER_TOKEN: Duration = Duration::from_secs(1);

/// A refusal's page is read up to this for its message.
const REFUSAL_BOUNDS: Bounds = Bounds { bytes: 64 << 10, stall: Duration::from_secs(2), total: Duration::from_secs(5) };

/// One more attempt. Where the server names a pause, that one is taken.
const RETRY: RetryPolicy =
    RetryPolicy { max_retries: 1, ..RetryPolicy::unbounded(Duration::from_millis(200), Duration::from_millis(200)) };

/// How long the count of tokens is waited for after the model has ended. It comes at once or never.
const USAGE_WAIT: Duration = Duration::from_millis(250);

/// How long the end of the body is waited for after `[DONE]`: only a body read to its end gives its connection back.
const DRAIN_WAIT: Duration = Duration::from_millis(50);

/// The JSON objects of an answer, in order; ends after `[DONE]` or with the body.
type Pieces = BoxStream<'static, Result<String, Failure>>;

/// Whether another attempt may succeed.
#[derive(Clone, Copy, Debug)]
enum Retry {
    Never,
    /// After the policy's pause.
    Later,
    /// After the pause that the server names.
    After(Duration),
}

/// A failure, and whether another try may do better.
struct Failure {
    error: LlmError,
    /// `Some`: yes, after this wait.
    retry: Retry,
}

impl Failure {
    fn final_(error: LlmError) -> Self {
        Self { error, retry: Retry::Never }
    }
}

/// One answer under way.
pub(super) struct Call {
    shared: Arc<LlmContext>,
    request: ChatRequest,
    answer: Answer,
    pieces: Option<Pieces>,
}

impl Call {
    pub fn new(shared: Arc<LlmContext>, request: ChatRequest) -> Self {
        let answer = Answer::of(most_tokens(&shared, &request), shared.opens.get());
        Self { shared, request, answer, pieces: None }
    }

    /// The first sign of the model, within `limit`, one retry included: deltas, none while it thinks.
    pub async fn first(&mut self, limit: Duration) -> Result<Vec<LlmDelta>, LlmError> {
        let mut refused = None;
        match timeout(limit, self.first_of_two_tries(limit, &mut refused)).await {
            Ok(result) => result,
            // Time ran out while waiting to try again: what the server said first is the better answer.
            Err(_) => Err(refused.unwrap_or(LlmError::Timeout { what: "first token", after: limit })),
        }
    }

    /// The next deltas, never none, each batch within `limit`.
    pub async fn further(&mut self, limit: Duration) -> Result<Vec<LlmDelta>, LlmError> {
        loop {
            let step = match timeout(limit, self.step()).await {
                Ok(step) => step.map_err(|failure| failure.error)?,
                Err(_) => return Err(LlmError::Timeout { what: "further token", after: limit }),
            };
            if !step.deltas.is_empty() {
                return Ok(step.deltas);
            }
        }
    }

    /// Reads an answer that is there already.
    pub async fn read(&mut self, response: reqwest::Response) -> Result<Vec<LlmDelta>, LlmError> {
        let mut deltas = Vec::new();
        let bounds = bounds(&self.shared, &self.request);
        self.pieces = Some(pieces(response, bounds).await.map_err(|failure| failure.error)?);
        while !matches!(deltas.last(), Some(LlmDelta::Done { .. })) {
            deltas.extend(self.step().await.map_err(|failure| failure.error)?.deltas);
        }
        Ok(deltas)
    }

    async fn first_of_two_tries(
        &mut self,
        limit: Duration,
        refused: &mut Option<LlmError>,
    ) -> Result<Vec<LlmDelta>, LlmError> {
        let mut pauses = RETRY.pauses();
        loop {
            let Failure { error, retry } = match self.try_first().await {
                Ok(deltas) => return Ok(deltas),
                Err(failure) => failure,
            };
            let pause = match retry {
                Retry::Never => None,
                Retry::Later => pauses.next(),
                Retry::After(wait) => pauses.next().map(|_| wait),
            };
            let pause = pause.filter(|pause| *pause < limit && !self.shared.upstream.has_fallback());
            let Some(pause) = pause else { return Err(error) };
            tracing::debug!(%error, "the language model failed; trying once more");
            *refused = Some(error);
            tokio::time::sleep(pause).await;
        }
    }

    async fn try_first(&mut self) -> Result<Vec<LlmDelta>, Failure> {
        self.answer = Answer::of(most_tokens(&self.shared, &self.request), self.shared.opens.get());
        self.pieces = Some(send(&self.shared, &self.request).await?);
        Ok(self.step().await?.deltas)
    }

    /// Reads until something happened; at the end the `Done` delta.
    async fn step(&mut self) -> Result<Step, Failure> {
        let pieces = self.pieces.as_mut().expect("a call is stepped after it was sent");
        loop {
            if self.answer.is_full() {
                // The server continues past its limit: the rest is not read.
                self.pieces = Some(stream::empty().boxed());
                return Ok(self.end());
            }
            let next = if self.answer.is_finished() {
                let wait = if self.answer.has_usage() { DRAIN_WAIT } else { USAGE_WAIT };
                timeout(wait, pieces.next()).await.unwrap_or(None)
            } else {
                pieces.next().await
            };
            let piece = match next {
                // After the finish nothing that fails can change the answer any more.
                None | Some(Err(_)) if self.answer.is_finished() => return Ok(self.end()),
                None => return Err(broken_off()),
                Some(Err(failure)) => return Err(failure),
                Some(Ok(piece)) => piece,
            };
            if piece == "[DONE]" {
                let _ = timeout(DRAIN_WAIT, pieces.next()).await;
                return Ok(self.end());
            }
            let step = match self.answer.read(&piece) {
                Ok(step) => step,
                // Nor what cannot be read.
                Err(_) if self.answer.is_finished() => return Ok(self.end()),
                Err(error) => return Err(retry_if_it_may_pass(error)),
            };
            if step.progress {
                return Ok(step);
            }
        }
    }

    fn end(&mut self) -> Step {
        let deltas = self.answer.done();
        if let Some(opens) = self.answer.opens() {
            self.shared.opens.learn(opens);
        }
        Step { deltas, progress: true }
    }
}

/// The limit of tokens that the server is given.
fn most_tokens(shared: &LlmContext, request: &ChatRequest) -> u32 {
    request.max_tokens.unwrap_or(shared.settings.max_tokens)
}

fn bounds(shared: &LlmContext, request: &ChatRequest) -> Bounds {
    let settings = &shared.settings;
    let first = shared.loading.longest().unwrap_or(settings.first_token);
    let total = first + MIN_WAIT.max(WAIT_PER_TOKEN.saturating_mul(most_tokens(shared, request)));
    Bounds { bytes: MAX_ANSWER_BYTES, stall: total, total }
}

/// Sends the request, once more for each field the server turns out not to know, and begins to read.
async fn send(shared: &LlmContext, request: &ChatRequest) -> Result<Pieces, Failure> {
    loop {
        let known = shared.quirks.known();
        let body = request::body(&shared.settings, known, request);
        let mut post = shared.http.post(shared.settings.completions.clone()).json(&body);
        post = post.header(ACCEPT, "text/event-stream");
        if let Some(key) = shared.settings.authorization.header() {
            post = post.header(AUTHORIZATION, key);
        }
        let response = post.send().await.map_err(|error| unreachable(shared, error))?;
        let status = response.status();
        if status.is_success() {
            return pieces(response, bounds(shared, request)).await;
        }
        let refusal = refusal(shared, response).await;
        let LlmError::Refused { message, .. } = &refusal.error else { return Err(refusal) };
        let has_images = request.messages.iter().any(|message| message.images().next().is_some());
        if has_images && shared.settings.images && shared.quirks.learn_images(message, known) {
            tracing::warn!(%status, "the language model takes no images: it gets a note in their place");
            continue;
        }
        if !(matches!(status.as_u16(), 400 | 422) && shared.quirks.learn(message, known)) {
            return Err(refusal);
        }
        tracing::info!(%status, "the language model's server does not know a field of the request; going on without");
    }
}

/// The objects in the body: events, or the one object of a server that does not stream.
async fn pieces(response: reqwest::Response, bounds: Bounds) -> Result<Pieces, Failure> {
    let content_type = response.headers().get(CONTENT_TYPE).cloned();
    let mut bytes = Body::new(response, bounds).into_stream();
    let mut head = Vec::new();
    // The first byte decides, since content types lie: an object begins with a brace, an event stream never does.
    while head.iter().all(u8::is_ascii_whitespace) && head.len() < 1024 {
        match bytes.next().await {
            Some(piece) => head.extend_from_slice(&piece.map_err(broken)?),
            None => {
                let kind = content_type.as_ref().and_then(|kind| kind.to_str().ok()).unwrap_or("no content type");
                return Err(Failure::final_(LlmError::Protocol(format!("it is empty ({kind})"))));
            }
        }
    }
    let whole = head.trim_ascii_start().first() == Some(&b'{');
    let bytes = stream::iter([Ok(Bytes::from(head))]).chain(bytes).map(|piece| piece.map_err(broken)).boxed();
    if whole {
        return whole_answer(bytes).await;
    }
    // The empty line that ends the last event is forgotten by some servers.
    let mut bytes = bytes.chain(stream::iter([Ok(Bytes::from_static(b"\n\n"))]));
    let pieces = stream! {
        let mut reader = EventReader::new(MAX_EVENT_BYTES);
        while let Some(piece) = bytes.next().await {
            match piece {
                Ok(piece) => reader.push(&piece),
                Err(failure) => {
                    yield Err(failure);
                    return;
                }
            }
            while let Some(event) = reader.take() {
                match event {
                    Ok(event) => {
                        if let Some(piece) = piece_of(event) {
                            yield Ok(piece);
                        }
                    }
                    Err(error) => {
                        yield Err(unreadable(error));
                        return;
                    }
                }
            }
        }
    };
    Ok(pieces.boxed())
}

/// The object of an event; `None`: it has none.
fn piece_of(event: ServerEvent) -> Option<String> {
    let data = event.data.filter(|data| !matches!(data.trim(), "" | "null"))?;
    // Servers that name the event send the error itself as its data.
    if event.name.as_deref() == Some("error") && !data.contains("\"error\"") {
        let said = serde_json::from_str(&data).unwrap_or(Value::String(data));
        return Some(serde_json::json!({ "error": said }).to_string());
    }
    Some(data)
}

/// An answer that is not streamed, or an error with a good status.
async fn whole_answer(mut bytes: BoxStream<'static, Result<Bytes, Failure>>) -> Result<Pieces, Failure> {
    let mut body = Vec::new();
    while let Some(piece) = bytes.next().await {
        body.extend_from_slice(&piece?);
        if body.len() > MAX_EVENT_BYTES {
            return Err(too_long(MAX_EVENT_BYTES));
        }
    }
    let text = String::from_utf8(body)
        .map_err(|_| Failure::final_(LlmError::Protocol("it is not written in UTF-8".into())))?;
    if !["\"choices\"", "\"error\""].iter().any(|key| text.contains(key)) {
        return Err(Failure::final_(LlmError::Protocol(format!("it is no chat completion: {}", shorten(&text)))));
    }
    Ok(stream::iter([Ok(text), Ok("[DONE]".to_owned())]).boxed())
}

/// Reads why the server refused, and adds what to do.
async fn refusal(shared: &LlmContext, response: reqwest::Response) -> Failure {
    shared.upstream.heed(&response);
    let status = response.status().as_u16();
    let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let retry = after.map_or(Retry::Later, |seconds| Retry::After(Duration::from_secs(seconds)));
    let page = Body::new(response, REFUSAL_BOUNDS).beginning().await;
    let said = server_words(&page);
    let settings = &shared.settings;
    let advice = match status {
        300..=399 => "set [llm] base_url to the address it moved to".to_owned(),
        401 | 403 if settings.key_env.is_empty() => "set [llm] api_key_env to the variable with the key".to_owned(),
        401 | 403 if settings.authorization.header().is_none() => {
            format!("set the environment variable {}, which holds no key", settings.key_env)
        }
        401 | 403 => format!("check the key in {}", settings.key_env),
        404 => format!("check that [llm] base_url ends with /v1 and that the server has the model {}", settings.model),
        429 => "its limit of requests or money is reached; wait, or raise it".to_owned(),
        _ => String::new(),
    };
    let message = match (said.is_empty(), advice.is_empty()) {
        (false, false) => format!("{said} ({advice})"),
        (true, false) => advice,
        (false, true) => said,
        (true, true) => "no reason given".to_owned(),
    };
    retry_if(LlmError::Refused { status, message }, retry)
}

/// The message in an error page, or the page itself where it is plain text.
fn server_words(page: &[u8]) -> String {
    let text = String::from_utf8_lossy(page);
    let Ok(value) = serde_json::from_str::<Value>(&text) else {
        let markup = text.trim_start().starts_with('<');
        return if markup { String::new() } else { shorten(&text) };
    };
    let error = value.get("error").unwrap_or(&value);
    let words = error["message"].as_str().or(error.as_str()).or(value["detail"].as_str()).or(value["message"].as_str());
    words.map_or_else(|| shorten(&text), shorten)
}

fn retry_if_it_may_pass(error: LlmError) -> Failure {
    retry_if(error, Retry::Later)
}

/// The failure, with another attempt where it may succeed.
fn retry_if(error: LlmError, retry: Retry) -> Failure {
    let may_pass = matches!(&error, LlmError::Refused { status, .. } if *status == 429 || *status >= 500);
    Failure { error, retry: if may_pass { retry } else { Retry::Never } }
}

/// The request could not be sent, or its answer did not begin.
fn unreachable(shared: &LlmContext, error: reqwest::Error) -> Failure {
    if !error.is_connect() && !error.is_builder() {
        let error = LlmError::BrokenOff(format!("{}: {}", shared.settings.server(), root_cause(&error)));
        return Failure { error, retry: Retry::Later };
    }
    let advice = format!(
        "{}: {}; is the server running, and is [llm] base_url right?",
        shared.settings.server(),
        root_cause(&error)
    );
    let retry = if error.is_builder() { Retry::Never } else { Retry::Later };
    Failure { error: LlmError::Transport(advice.into()), retry }
}

/// The body could not be read on.
fn broken(error: BodyError) -> Failure {
    match error {
        BodyError::TooLarge(most) => too_long(most),
        BodyError::Stalled(after) | BodyError::TooSlow(after) => {
            Failure::final_(LlmError::Timeout { what: "end of its answer", after })
        }
        BodyError::Broken(error) => {
            let text = format!("the connection broke before the answer was complete: {}", root_cause(&error));
            Failure { error: LlmError::BrokenOff(text), retry: Retry::Later }
        }
    }
}

fn broken_off() -> Failure {
    let error = LlmError::BrokenOff("its answer ended before it was complete".into());
    Failure { error, retry: Retry::Later }
}

fn unreadable(error: EventError) -> Failure {
    match error {
        EventError::TooLong(most) => too_long(most),
        EventError::NotText => Failure::final_(LlmError::Protocol("it is no stream of events in UTF-8".into())),
    }
}

fn too_long(most: usize) -> Failure {
    Failure::final_(LlmError::Protocol(format!("it is longer than {most} bytes")))
}

/// Asks for the server's models.
pub(super) async fn warm_up(shared: &LlmContext) -> Result<(), LlmError> {
    let settings = &shared.settings;
    let mut page = shared.http.get(settings.models.clone());
    if let Some(key) = settings.authorization.header() {
        page = page.header(AUTHORIZATION, key);
    }
    let limit = settings.first_token;
    let visit = async {
        let response = page.send().await.map_err(|error| unreachable(shared, error).error)?;
        if matches!(response.status().as_u16(), 401 | 403) {
            return Err(refusal(shared, response).await.error);
        }
        // Read to its end, for only then the connection is kept.
        let bounds = Bounds { bytes: MAX_ANSWER_BYTES, stall: limit, total: limit };
        let mut body = Body::new(response, bounds);
        while let Ok(Some(_)) = body.chunk().await {}
        Ok(())
    };
    timeout(limit, visit).await.unwrap_or(Err(LlmError::Timeout { what: "list of models", after: limit }))
}
