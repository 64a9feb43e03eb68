//! Servers over streamable HTTP, with the crate `rmcp`.

use super::client::{BoundedClient, MAX_MESSAGE_BYTES};
use crate::secret::conceal;
use antiphon_engine_api::mcp::check_header;
use antiphon_engine_api::mcp::{ConnectedServer, Connection, Mcp, McpConfig, McpError};
use antiphon_types::mcp::{CallError, RemoteTool, Server};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, PaginatedRequestParams, ResourceContents,
};
use rmcp::service::{RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Tools of one server a session takes: more would crowd out the conversation in any model's window.
const MAX_TOOLS: usize = 128;
/// All names, descriptions and schemas of one server together.
const MAX_LIST_BYTES: usize = 256 * 1024;
/// A longer result is truncated: it would displace the conversation.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;
/// Pages of one list.
const MAX_PAGES: usize = 64;
/// A server's words about a failure are shown up to this.
const MAX_WORDS: usize = 300;

/// Reaches servers by HTTP; holds nothing open itself. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Http {
    list_timeout: Duration,
    call_timeout: Duration,
}

impl Http {
    /// As configured; reaches for nothing.
    pub fn new(config: &McpConfig) -> Self {
        Self {
            list_timeout: Duration::from_millis(config.list_timeout_ms),
            call_timeout: Duration::from_millis(config.call_timeout_ms),
        }
    }
}

/// An allowed server must not send the hub on to another one, and no proxy of the environment stands between.
fn client(url: &str) -> Result<reqwest::Client, McpError> {
    // A second installation is refused and changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy();
    if url.starts_with("http://") {
        // Without TLS no certificates are needed, on a machine that has none either.
        client = client.tls_certs_only(std::iter::empty());
    }
    client.build().map_err(|error| McpError::Unusable(words(&error)))
}

impl Mcp for Http {
    fn connect(&self, server: Server) -> BoxFuture<'static, Result<ConnectedServer, McpError>> {
        let this = self.clone();
        async move {
            let limit = this.list_timeout;
            timeout(limit, this.open(server)).await.unwrap_or(Err(McpError::Timeout(limit)))
        }
        .boxed()
    }
}

impl Http {
    async fn open(self, server: Server) -> Result<ConnectedServer, McpError> {
        let secrets = Arc::new(Secrets::of(&server));
        let opened = self.open_with(server, secrets.clone()).await;
        opened.map_err(|error| match error {
            McpError::Unusable(words) => McpError::Unusable(secrets.shorten(&words)),
            other => other,
        })
    }

    async fn open_with(self, server: Server, secrets: Arc<Secrets>) -> Result<ConnectedServer, McpError> {
        let mut config = StreamableHttpClientTransportConfig::with_uri(server.url.as_str())
            .max_sse_event_size(MAX_MESSAGE_BYTES)
            .custom_headers(headers(&server)?);
        if let Some(token) = &server.authorization {
            config = config.auth_header(token.strip_prefix("Bearer ").unwrap_or(token));
        }
        // Dropped with this future, so that a server that never answers costs the time of the list and no more.
        let given_up = CancellationToken::new().drop_guard();
        let limit = self.list_timeout.max(self.call_timeout);
        let client = BoundedClient::new(client(&server.url)?, limit, given_up.token().clone());
        let transport = StreamableHttpClientTransport::with_client(client, config);
        let service = ().serve(transport).await.map_err(|error| McpError::Unusable(words(&error)))?;
        let tools = list(&service).await?;
        given_up.disarm();
        Ok((Arc::new(Open { service: Arc::new(service), limit: self.call_timeout, secrets }), tools))
    }
}

fn headers(server: &Server) -> Result<HashMap<HeaderName, HeaderValue>, McpError> {
    server.headers.iter().map(|(name, value)| check_header(name, value).map_err(McpError::Unusable)).collect()
}

/// All pages of the list, up to the bounds.
async fn list(service: &RunningService<RoleClient, ()>) -> Result<Vec<RemoteTool>, McpError> {
    let mut tools = Vec::new();
    let mut n_bytes = 0;
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let page = service.list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor))).await;
        let page = page.map_err(|error| McpError::Unusable(words(&error)))?;
        for tool in page.tools {
            let tool = RemoteTool {
                name: tool.name.into_owned(),
                description: tool.description.map(|text| text.into_owned()).unwrap_or_default(),
                input_schema: Value::Object(Arc::unwrap_or_clone(tool.input_schema)).into(),
                annotations: tool.annotations.and_then(|hints| serde_json::to_value(hints).ok()),
            };
            n_bytes += tool.n_bytes();
            tools.push(tool);
            if tools.len() > MAX_TOOLS || n_bytes > MAX_LIST_BYTES {
                return Err(McpError::TooMuch(MAX_TOOLS));
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(tools);
        }
    }
    Err(McpError::Unusable(format!("its list of tools has more than {MAX_PAGES} pages")))
}

/// An open connection. Dropping the service ends its task and closes the server's session.
struct Open {
    service: Arc<RunningService<RoleClient, ()>>,
    limit: Duration,
    secrets: Arc<Secrets>,
}

/// What a session gave for its server, which some servers repeat in their errors.
struct Secrets(Vec<String>);

impl Secrets {
    /// The shortest one that is looked for: a shorter one would be found in ordinary words.
    const LEAST_BYTES: usize = 6;

    fn of(server: &Server) -> Self {
        let token = server.authorization.as_deref().map(|token| token.strip_prefix("Bearer ").unwrap_or(token));
        let all = token.into_iter().chain(server.headers.values().map(String::as_str));
        let mut all: Vec<_> = all.filter(|secret| secret.len() >= Self::LEAST_BYTES).map(str::to_owned).collect();
        // One that begins with another one goes first.
        all.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(all)
    }

    /// A server's words in one line of at most [`MAX_WORDS`] characters. What is concealed is so before they are cut.
    fn shorten(&self, words: &str) -> String {
        let words = self.0.iter().fold(conceal(words), |words, secret| words.replace(secret.as_str(), "[key]"));
        let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(MAX_WORDS) {
            Some((end, _)) => format!("{}...", &line[..end]),
            None => line,
        }
    }
}

impl Connection for Open {
    fn call(&self, tool: String, arguments: Map<String, Value>) -> BoxFuture<'static, Result<String, CallError>> {
        let service = self.service.clone();
        let limit = self.limit;
        let secrets = self.secrets.clone();
        async move {
            let call = service.call_tool_once(CallToolRequestParams::new(tool).with_arguments(arguments));
            match timeout(limit, call).await {
                Err(_) => Err(CallError::Tool(format!("the tool gave no result within {limit:?}"))),
                Ok(Ok(CallToolResponse::Complete(result))) => output(result).map_err(|error| match error {
                    CallError::Tool(words) => CallError::Tool(secrets.shorten(&words)),
                    other => other,
                }),
                Ok(Ok(_)) => Err(CallError::Tool("the tool asks for more input, which is not supported".into())),
                Ok(Err(ServiceError::McpError(error))) => {
                    Err(CallError::Protocol { code: i64::from(error.code.0), message: secrets.shorten(&error.message) })
                }
                Ok(Err(error)) => {
                    tracing::warn!(error = secrets.shorten(&words(&error)), "a call of an MCP server's tool failed");
                    Err(CallError::Http("the server could not be reached, or gave no answer that can be used".into()))
                }
            }
        }
        .boxed()
    }
}

/// A result's texts; where it has none, its structured content.
fn output(result: CallToolResult) -> Result<String, CallError> {
    let texts: Vec<String> = result.content.iter().map(text_of).collect();
    let mut text = texts.join("\n");
    if text.is_empty() {
        text = result.structured_content.as_ref().map(Value::to_string).unwrap_or_default();
    }
    if text.len() > MAX_OUTPUT_BYTES {
        let end = (0..=MAX_OUTPUT_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push_str(" [cut here]");
    }
    if result.is_error == Some(true) { Err(CallError::Tool(text)) } else { Ok(text) }
}

fn text_of(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(_) => "[an image]".into(),
        ContentBlock::Audio(_) => "[a sound]".into(),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            _ => "[a resource]".into(),
        },
        ContentBlock::ResourceLink(link) => format!("[a link to {}]", link.uri),
        _ => String::new(),
    }
}

/// A failure's innermost words: the outer ones say little. Without the address, whose query may hold a key.
fn words(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    let text = innermost.to_string();
    text.split(" for url (").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secrets(all: &[&str]) -> Secrets {
        let headers = all.iter().enumerate().map(|(i, secret)| (format!("x-{i}"), (*secret).to_owned())).collect();
        Secrets::of(&Server { label: "x".into(), url: "http://[::1]:1/mcp".into(), authorization: None, headers })
    }

    #[test]
    fn a_result_has_the_text_of_what_is_embedded() {
        let blob = json!({"uri": "file:///shelf.png", "mimeType": "image/png", "blob": "iVBORw0KGgo="});
        let text = json!({"uri": "file:///books.txt", "mimeType": "text/plain", "text": "Emma: shelf 7"});
        let content = json!([
            {"type": "text", "text": "Found:"},
            {"type": "resource", "resource": text},
            {"type": "resource", "resource": blob},
        ]);
        let result = serde_json::from_value(json!({"content": content})).expect("a result");
        assert_eq!(output(result), Ok("Found:\nEmma: shelf 7\n[a resource]".into()));
    }

    #[test]
    fn a_secret_at_the_place_where_words_are_cut_is_concealed_whole() {
        let secret = "sk-0123456789";
        let before = "x".repeat(MAX_WORDS - 8);
        let said = secrets(&[secret]).shorten(&format!("{before} {secret} is\nwrong"));
        assert_eq!(said, format!("{before} [key] i..."));
    }

    #[test]
    fn a_secret_that_begins_with_another_one_is_concealed_whole() {
        let said = secrets(&["qwertz1", "qwertz1-longer"]).shorten("qwertz1-longer, qwertz1");
        assert_eq!(said, "[key], [key]");
    }
}
