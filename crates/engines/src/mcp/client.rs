//! The HTTP client under the MCP transport, whose answers are bounded.
//!
//! `rmcp` reads a JSON answer of up to 16 MiB, which becomes hundreds of megabytes once it is parsed; here one message of a
//! server has at most [`MAX_MESSAGE_BYTES`], a JSON body or an event. Only the reading of answers to a POST is our own;
//! the rest is `rmcp`'s client, which bounds its event streams by the same size. Deadlines are the caller's.

use crate::remote::{Body, Bounds, EventReader, ServerEvent};
use async_stream::stream;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Error as SseError, Sse};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// One message of a server.
pub(super) const MAX_MESSAGE_BYTES: usize = 1024 * 1024;
/// Of an error's body so much is read.
const MAX_ERROR_BYTES: usize = 16 * 1024;

const SESSION_ID: &str = "mcp-session-id";
const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct BoundedClient {
    http: reqwest::Client,
    /// The longest wait for a head, and for a body.
    limit: Duration,
    /// Ends requests that wait for their head.
    given_up: CancellationToken,
}

type Failure = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

impl BoundedClient {
    /// `limit`: the longest wait for a head, and for a body. Callers wait less. `given_up` is cancelled when the caller no
    /// longer waits for the connection: `rmcp`'s task does not notice by itself while a server is silent.
    pub(super) fn new(http: reqwest::Client, limit: Duration, given_up: CancellationToken) -> Self {
        Self { http, limit, given_up }
    }

    /// Sends a request and waits for the head of its answer.
    async fn send(&self, request: reqwest::RequestBuilder) -> Result<reqwest::Response, Failure> {
        let late = |_| Failure::Io(std::io::ErrorKind::TimedOut.into());
        tokio::select! {
            sent = timeout(self.limit, request.send()) => Ok(sent.map_err(late)??),
            () = self.given_up.cancelled() => Err(Failure::Io(std::io::ErrorKind::Interrupted.into())),
        }
    }

    async fn body(&self, response: reqwest::Response, most: usize) -> Result<Vec<u8>, Failure> {
        let bounds = Bounds { bytes: most, stall: self.limit, total: self.limit };
        Body::new(response, bounds).whole().await.map_err(|error| Failure::Io(std::io::Error::other(error)))
    }

    /// What a server that failed or refused said.
    async fn refused(
        &self,
        response: reqwest::Response,
        message: &ClientJsonRpcMessage,
        in_session: bool,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let status = response.status();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
            let error = AuthRequiredError::new(challenge.unwrap_or_default().to_owned());
            return Err(StreamableHttpError::AuthRequired(error));
        }
        if status == StatusCode::NOT_FOUND && in_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        let is_json = is(&response, JSON);
        let body = self.body(response, MAX_ERROR_BYTES).await.unwrap_or_default();
        let said = match serde_json::from_slice(&body) {
            Ok(ServerJsonRpcMessage::Error(error)) if is_json => Some(error),
            _ => None,
        };
        if let ClientJsonRpcMessage::Request(request) = message
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
            && status.is_client_error()
            && !in_session
        {
            // A server of an older protocol: on an error of this shape the client falls back to it.
            let refused = || ErrorData::invalid_request(format!("server/discover rejected with HTTP {status}"), None);
            let error = said.map_or_else(refused, |said| said.error);
            let answer = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
            return Ok(StreamableHttpPostResponse::Json(answer, None));
        }
        match said {
            Some(error) if status != StatusCode::TOO_MANY_REQUESTS => {
                Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), None))
            }
            _ => Err(HttpStatusError::new(status.as_u16(), None).into()),
        }
    }
}

fn is(response: &reqwest::Response, kind: &str) -> bool {
    let is = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    is.is_some_and(|is| is.trim_start().to_ascii_lowercase().starts_with(kind))
}

/// The events of a body, none longer than `most` bytes. One that is not complete at the end is none: a client that reconnects gets
/// it again.
fn events(response: reqwest::Response, most: usize) -> BoxStream<'static, Result<Sse, SseError>> {
    stream! {
        let mut reader = EventReader::new(most);
        let mut bytes = response.bytes_stream();
        while let Some(piece) = bytes.next().await {
            match piece {
                Ok(piece) => reader.push(&piece),
                Err(error) => {
                    yield Err(SseError::Body(error.without_url().into()));
                    return;
                }
            }
            while let Some(event) = reader.take() {
                match event {
                    Ok(event) => yield Ok(into_sse(event)),
                    Err(error) => {
                        yield Err(SseError::Body(error.into()));
                        return;
                    }
                }
            }
        }
    }
    .boxed()
}

fn into_sse(event: ServerEvent) -> Sse {
    Sse { event: event.name, data: event.data, id: event.id, retry: event.retry_ms }
}

impl StreamableHttpClient for BoundedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let most = MAX_MESSAGE_BYTES;
        self.post_message_with_max_sse_event_size(uri, message, session_id, auth_header, custom_headers, most).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
        most: usize,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let mut request = self.http.post(uri.as_ref()).header(ACCEPT, format!("{EVENTS}, {JSON}"));
        if let Some(key) = auth_header {
            request = request.bearer_auth(key);
        }
        request = custom_headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        let in_session = session_id.is_some();
        if let Some(id) = session_id {
            request = request.header(SESSION_ID, id.as_ref());
        }
        let response = self.send(request.json(&message)).await?;
        let status = response.status();
        if !status.is_success() {
            return self.refused(response, &message, in_session).await;
        }
        let wants_answer = matches!(message, ClientJsonRpcMessage::Request(_));
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT)
            || response.content_length() == Some(0) && !wants_answer
        {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let id = response.headers().get(SESSION_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if is(&response, EVENTS) {
            return Ok(StreamableHttpPostResponse::Sse(events(response, most), id));
        }
        if !is(&response, JSON) {
            return Err(StreamableHttpError::UnexpectedContentType(None));
        }
        let body = self.body(response, most).await?;
        match serde_json::from_slice(&body) {
            Ok(answer) => Ok(StreamableHttpPostResponse::Json(answer, id)),
            // Nothing was asked, so nothing has to be understood.
            Err(_) if !wants_answer => Ok(StreamableHttpPostResponse::Accepted),
            Err(_) => Err(StreamableHttpError::UnexpectedServerResponse("the answer is no JSON-RPC message".into())),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), Failure> {
        self.http.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let most = MAX_MESSAGE_BYTES;
        self.get_stream_with_max_sse_event_size(uri, session_id, last_event_id, auth_header, custom_headers, most).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
        most: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let http = &self.http;
        http.get_stream_with_max_sse_event_size(uri, session_id, last_event_id, auth_header, custom_headers, most).await
    }
}
