//! Tools of a real MCP server in this process, over HTTP on loopback: listed, called, approved, rejected.

use crate::hub::{Hub, Socket, engines, types};
use antiphon::config::Config;
use antiphon_engine_api::fakes::llm::{FakeLlm, words};
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::llm::LlmDelta;
use antiphon_types::chat::{Finish, Message};
use axum::serve::ListenerExt;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A tool server with three tools. `hang` never returns.
#[derive(Clone, Default)]
struct Library {
    called: Arc<Mutex<Vec<String>>>,
}

impl ServerHandler for Library {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]});
        let schema = Arc::new(schema.as_object().expect("an object").clone());
        let tools = [("find_book", true), ("lend_book", false), ("hang", false)].map(|(name, read_only)| {
            Tool::new(name, format!("Does {name}."), schema.clone())
                .with_annotations(ToolAnnotations::new().read_only(read_only))
        });
        Ok(ListToolsResult::with_all_items(tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let title = request.arguments.as_ref().and_then(|arguments| arguments["title"].as_str()).unwrap_or_default();
        self.called.lock().expect("no panic").push(format!("{} {title}", request.name));
        match (request.name.as_ref(), title) {
            ("hang", _) => std::future::pending().await,
            (_, "Nothing") => Ok(CallToolResult::error(vec![ContentBlock::text("no such book")]).into()),
            (_, "Forbidden") => Err(ErrorData::invalid_params("that title is not taken", None)),
            _ => Ok(CallToolResult::success(vec![ContentBlock::text(format!("{title}: shelf 7"))]).into()),
        }
    }
}

/// The server's address, and what was called there.
pub struct McpServer {
    pub url: String,
    books: Library,
    sessions: Arc<LocalSessionManager>,
    _stop: DropGuard,
}

#[allow(clippy::disallowed_methods)]
pub async fn serve() -> McpServer {
    let books = Library::default();
    let stop = CancellationToken::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("bound"));
    // A test in virtual time cannot wait for an acknowledgement that TCP delays.
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("a socket"));
    let made = books.clone();
    let config = StreamableHttpServerConfig::default().with_cancellation_token(stop.clone());
    let sessions = Arc::new(LocalSessionManager::default());
    let service: StreamableHttpService<Library, LocalSessionManager> =
        StreamableHttpService::new(move || Ok(made.clone()), sessions.clone(), config);
    let router = axum::Router::new().nest_service("/mcp", service);
    let stopped = stop.clone().cancelled_owned();
    tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(stopped).await });
    McpServer { url, books, sessions, _stop: stop.drop_guard() }
}

fn call(index: usize, name: &str, arguments: Value) -> Result<LlmDelta, String> {
    let call_id = format!("call_{index}");
    let name = name.to_owned();
    Ok(LlmDelta::ToolCall { index, call_id, name, arguments: arguments.to_string() })
}

fn end() -> Result<LlmDelta, String> {
    Ok(LlmDelta::Done { finish: Finish::ToolCalls, usage: None })
}

/// An address without a listener: the port of the discard service.
const NOBODY: &str = "http://127.0.0.1:9/mcp";

/// A hub that may call `url` and whose model returns these answers.
async fn hub(url: &str, follow_up_ms: u64, answers: Vec<Vec<Result<LlmDelta, String>>>) -> (Hub, FakeLlm) {
    let llm = FakeLlm::default();
    answers.into_iter().for_each(|answer| llm.then(answer));
    let mut config = Config::default();
    config.mcp.allowed_servers = vec![url.to_owned(), NOBODY.to_owned()];
    config.mcp.follow_up_ms = follow_up_ms;
    (Hub::start(engines(FakeStt::default(), llm.clone(), FakeTts::default()), config).await, llm)
}

fn server(url: &str, extra: Value) -> Value {
    let mut server = json!({"type": "mcp", "server_label": "library", "server_url": url});
    server.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
    server
}

async fn declare(socket: &mut Socket, tools: Value) {
    let session = json!({"type": "realtime", "output_modalities": ["text"], "tools": tools});
    socket.send(json!({"type": "session.update", "event_id": "mine", "session": session})).await;
}

fn find<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    events.iter().find(|event| event["type"] == kind).unwrap_or_else(|| panic!("no {kind} in {events:#?}"))
}

#[tokio::test(start_paused = true)]
async fn tools_are_listed_called_and_spoken_of() {
    let served = serve().await;
    let answers = vec![vec![call(0, "find_book", json!({"title": "Emma"})), end()], words("It stands on shelf seven.")];
    let (hub, llm) = hub(&served.url, 100, answers).await;
    let mut socket = hub.connect("").await;
    let secret = json!({"require_approval": "never", "authorization": "secret", "headers": {"x-key": "hidden"}});
    declare(&mut socket, json!([server(&served.url, secret)])).await;
    let events = socket.until("conversation.item.done").await;
    assert_eq!(
        types(&events),
        [
            "session.updated",
            "conversation.item.added",
            "mcp_list_tools.in_progress",
            "mcp_list_tools.completed",
            "conversation.item.done"
        ]
    );
    let text = events[0].to_string();
    assert!(text.contains("library") && !text.contains("secret") && !text.contains("hidden"), "{text}");
    let item = &events[4]["item"];
    assert_eq!([&item["type"], &item["server_label"]], ["mcp_list_tools", "library"]);
    assert_eq!(item["tools"][0]["name"], "find_book");
    assert_eq!(item["tools"][0]["description"], "Does find_book.");
    assert_eq!(item["tools"][0]["input_schema"]["required"], json!(["title"]));
    assert_eq!(events[2]["item_id"], item["id"]);

    let events = socket.ask("Where is Emma?").await;
    assert_eq!(
        types(&events)[2..],
        [
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.mcp_call_arguments.delta",
            "response.mcp_call_arguments.done",
            "response.mcp_call.in_progress",
            "response.mcp_call.completed",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
        ]
    );
    let added = &find(&events, "response.output_item.added")["item"];
    assert_eq!([&added["type"], &added["name"], &added["arguments"]], ["mcp_call", "find_book", ""]);
    assert!(added["output"].is_null() && added.get("output").is_some(), "always there: {added}");
    let done = &find(&events, "response.output_item.done")["item"];
    assert_eq!([&done["output"], &done["arguments"]], ["Emma: shelf 7", "{\"title\":\"Emma\"}"]);

    // The client does not request a response, so the hub creates it.
    let events = socket.until("response.done").await;
    let output = &events.last().expect("done")["response"]["output"];
    assert_eq!(output[0]["content"][0]["text"], "It stands on shelf seven.");
    let requests = llm.requests();
    let names: Vec<_> = requests[0].tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["find_book", "lend_book", "hang"]);
    let [.., Message::Assistant { tool_calls, .. }, Message::Tool { output, .. }] = &requests[1].messages[..] else {
        panic!("{:?}", requests[1].messages)
    };
    assert_eq!((tool_calls[0].name.as_str(), output.as_str()), ("find_book", "Emma: shelf 7"));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_for_the_answer_gets_one_answer() {
    let served = serve().await;
    let answers = vec![vec![call(0, "find_book", json!({"title": "Emma"})), end()], words("Shelf seven.")];
    let (hub, llm) = hub(&served.url, 400, answers).await;
    let mut socket = hub.connect("").await;
    declare(&mut socket, json!([server(&served.url, json!({"require_approval": "never"}))])).await;
    socket.until("conversation.item.done").await;
    socket.ask("Where is Emma?").await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until("response.done").await;
    let events = socket.ask("Thanks.").await;
    assert_eq!(events.iter().filter(|event| event["type"] == "response.created").count(), 1);
    assert_eq!(llm.requests().len(), 3, "the call, its answer, and thanks");
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_consent() {
    let served = serve().await;
    let lend = |title: &str| vec![call(0, "lend_book", json!({"title": title})), end()];
    let answers = vec![lend("Emma"), words("It is yours."), lend("Persuasion"), words("Then not.")];
    let (hub, llm) = hub(&served.url, 50, answers).await;
    let mut socket = hub.connect("").await;
    let approval =
        json!({"require_approval": {"never": {"read_only": true}}, "allowed_tools": ["lend_book", "find_book"]});
    declare(&mut socket, json!([server(&served.url, approval)])).await;
    let events = socket.until("conversation.item.done").await;
    assert_eq!(events[4]["item"]["tools"].as_array().map(Vec::len), Some(2), "only the allowed ones");
    for (title, approve) in [("Emma", true), ("Persuasion", false)] {
        let events = socket.ask(&format!("Lend me {title}")).await;
        let request = &find(&events, "response.output_item.done")["item"];
        assert_eq!([&request["type"], &request["name"]], ["mcp_approval_request", "lend_book"]);
        assert_eq!(request["arguments"], json!({"title": title}).to_string());
        assert!(!served.books.called.lock().expect("no panic").iter().any(|call| call.contains(title)));
        let answer = json!({"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve,
            "reason": "as you like"});
        socket.send(json!({"type": "conversation.item.create", "item": answer})).await;
        let events = socket.until("response.done").await;
        if approve {
            let call = events.iter().rev().find(|event| event["item"]["type"] == "mcp_call").expect("the call");
            assert_eq!(call["type"], "conversation.item.done");
            assert_eq!(call["item"]["output"], "Emma: shelf 7");
            assert_eq!(call["item"]["approval_request_id"], request["id"]);
            assert!(types(&events).contains(&"response.mcp_call.completed"));
            // A second answer to the same approval request is rejected.
            socket.send(json!({"type": "conversation.item.create", "item": answer})).await;
            let error = socket.news().await;
            assert_eq!(error["error"]["param"], "item.approval_request_id", "{error}");
        } else {
            assert!(!types(&events).contains(&"response.mcp_call.in_progress"));
        }
    }
    assert_eq!(*served.books.called.lock().expect("no panic"), ["lend_book Emma"]);
    let Some(Message::Tool { output, .. }) = llm.requests()[3].messages.last().cloned() else { panic!("a result") };
    assert_eq!(output, "The user did not approve the call. as you like");
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_say_how() {
    let served = serve().await;
    let ask = |title: &str| vec![call(0, "find_book", json!({"title": title})), end()];
    let (hub, _) = hub(&served.url, 0, vec![ask("Nothing"), ask("Forbidden"), words("Still here.")]).await;
    let mut socket = hub.connect("").await;
    declare(&mut socket, json!([server(&served.url, json!({"require_approval": "never"}))])).await;
    socket.until("conversation.item.done").await;
    for (kind, words) in [("tool_execution_error", "no such book"), ("protocol_error", "that title is not taken")] {
        let events = socket.ask("Where is it?").await;
        assert!(types(&events).contains(&"response.mcp_call.failed"));
        let item = &find(&events, "response.output_item.done")["item"];
        assert_eq!(item["error"]["type"], kind, "{item}");
        assert!(item["error"]["message"].as_str().expect("words").contains(words), "{item}");
        assert!(item["output"].is_null());
    }
    let events = socket.ask("Are you there?").await;
    assert_eq!(events.last().expect("done")["response"]["output"][0]["content"][0]["text"], "Still here.");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_a_call_that_hangs_and_the_session_lives() {
    let served = serve().await;
    let answers = vec![vec![call(0, "hang", json!({"title": "x"})), end()], words("Fine.")];
    let (hub, llm) = hub(&served.url, 50, answers).await;
    let mut socket = hub.connect("").await;
    declare(&mut socket, json!([server(&served.url, json!({"require_approval": "never"}))])).await;
    socket.until("conversation.item.done").await;
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hang"}]});
    socket.send(json!({"type": "conversation.item.create", "item": item})).await;
    socket.send(json!({"type": "response.create"})).await;
    socket.until("response.mcp_call.in_progress").await;
    socket.send(json!({"type": "response.cancel"})).await;
    let events = socket.until("response.done").await;
    let response = &events.last().expect("done")["response"];
    assert_eq!(response["status"], "cancelled");
    assert_eq!(response["output"][0]["error"]["type"], "tool_execution_error");
    let events = socket.ask("And now?").await;
    assert_eq!(events.last().expect("done")["response"]["output"][0]["content"][0]["text"], "Fine.");
    assert!(format!("{:?}", llm.requests()[1].messages).contains("may have had its effect"));
}

#[tokio::test(start_paused = true)]
async fn servers_that_are_not_allowed_or_not_there_are_told() {
    let served = serve().await;
    let (hub, _) = hub(&served.url, 50, vec![words("Still here.")]).await;
    let mut socket = hub.connect("").await;
    for (tool, code, param) in [
        (server("http://127.0.0.1:9/elsewhere", json!({})), "mcp_server_not_allowed", "server_url"),
        (json!({"type": "mcp", "server_label": "x"}), "missing_required_parameter", "server_url"),
        (json!({"type": "mcp", "server_url": served.url}), "missing_required_parameter", "server_label"),
        (server(&served.url, json!({"require_approval": "perhaps"})), "invalid_value", "require_approval"),
        (server(&served.url, json!({"headers": {"Host": "admin"}})), "invalid_value", "headers.Host"),
        (server(&served.url, json!({"headers": {"content-length": "3"}})), "invalid_value", "headers.content-length"),
        (
            server(&served.url, json!({"headers": {"Transfer-Encoding": "chunked"}})),
            "invalid_value",
            "headers.Transfer-Encoding",
        ),
        (server(&served.url, json!({"headers": {"x": "a\r\nb: c"}})), "invalid_value", "headers.x"),
        (
            server(&served.url, json!({"authorization": "a", "headers": {"Authorization": "b"}})),
            "invalid_value",
            "headers.Authorization",
        ),
        (server(&format!("{}/..%2fadmin", served.url), json!({})), "mcp_server_not_allowed", "server_url"),
        (
            json!({"type": "mcp", "server_label": "x", "connector_id": "connector_gmail"}),
            "unsupported_parameter",
            "connector_id",
        ),
    ] {
        declare(&mut socket, json!([tool])).await;
        let error = socket.news().await;
        assert_eq!(error["error"]["code"], code, "{error}");
        assert_eq!(error["error"]["param"], format!("session.tools[0].{param}"));
        assert_eq!(error["error"]["event_id"], "mine");
    }
    let twice = server(&served.url, json!({}));
    declare(&mut socket, json!([twice, twice])).await;
    assert_eq!(socket.news().await["error"]["param"], "session.tools[1].server_label");

    // Allowed but unreachable: its tools are missing, and the session continues.
    declare(&mut socket, json!([server(NOBODY, json!({}))])).await;
    let events = socket.until("conversation.item.done").await;
    assert!(types(&events).contains(&"mcp_list_tools.failed"), "{events:#?}");
    assert_eq!(events.last().expect("done")["item"]["tools"], json!([]));
    let events = socket.ask("Are you there?").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_a_server_can_be_demanded() {
    let served = serve().await;
    let (hub, llm) = hub(&served.url, 0, vec![words("One."), words("Two.")]).await;
    let mut socket = hub.connect("").await;
    declare(&mut socket, json!([server(&served.url, json!({}))])).await;
    socket.until("conversation.item.done").await;
    for name in [json!("find_book"), Value::Null] {
        let choice = json!({"type": "mcp", "server_label": "library", "name": name});
        socket.send(json!({"type": "response.create", "response": {"tool_choice": choice}})).await;
        socket.until("response.done").await;
    }
    let requests = llm.requests();
    assert_eq!(format!("{:?}", requests[0].tool_choice), "Function(\"find_book\")");
    assert_eq!((requests[1].tools.len(), format!("{:?}", requests[1].tool_choice)), (3, "Required".into()));
    let choice = json!({"type": "mcp", "server_label": "elsewhere"});
    socket.send(json!({"type": "response.create", "response": {"tool_choice": choice}})).await;
    assert_eq!(socket.news().await["error"]["param"], "response.tool_choice");
}

#[tokio::test(start_paused = true)]
async fn a_server_declared_again_by_its_label_goes_by_what_is_said_now() {
    let served = serve().await;
    let (hub, llm) = hub(&served.url, 0, vec![vec![call(0, "find_book", json!({"title": "Emma"})), end()]]).await;
    let mut socket = hub.connect("").await;
    declare(&mut socket, json!([server(&served.url, json!({"require_approval": "never"}))])).await;
    socket.until("conversation.item.done").await;
    let again = json!({"type": "mcp", "server_label": "library", "allowed_tools": ["find_book"],
        "require_approval": "always"});
    declare(&mut socket, json!([again])).await;
    let events = socket.until("conversation.item.done").await;
    let shown = &events[0]["session"]["tools"][0];
    assert_eq!((&shown["server_url"], &shown["require_approval"]), (&json!(served.url), &json!("always")));
    assert_eq!(events[4]["item"]["tools"].as_array().map(Vec::len), Some(1));
    let events = socket.ask("Where is Emma?").await;
    assert_eq!(find(&events, "response.output_item.done")["item"]["type"], "mcp_approval_request");
    assert_eq!(*served.books.called.lock().expect("no panic"), Vec::<String>::new());
    assert_eq!(llm.requests()[0].tools.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_response_goes_by_its_own_consent_and_tools() {
    let served = serve().await;
    let find_it = || vec![call(0, "find_book", json!({"title": "Emma"})), end()];
    let (hub, llm) = hub(&served.url, 0, vec![find_it(), find_it()]).await;
    let mut socket = hub.connect("").await;
    declare(&mut socket, json!([server(&served.url, json!({"require_approval": "never"}))])).await;
    socket.until("conversation.item.done").await;
    for (approval, kind) in [(json!("always"), "mcp_approval_request"), (Value::Null, "mcp_call")] {
        let mut tool = json!({"type": "mcp", "server_label": "library", "allowed_tools": ["find_book", "hang"]});
        if !approval.is_null() {
            tool["require_approval"] = approval;
        }
        socket.send(json!({"type": "response.create", "response": {"tools": [tool]}})).await;
        let events = socket.until("response.done").await;
        assert_eq!(find(&events, "response.output_item.done")["item"]["type"], kind);
    }
    assert_eq!(llm.requests().iter().map(|request| request.tools.len()).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(*served.books.called.lock().expect("no panic"), ["find_book Emma"], "the session needs no consent");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_declared_no_more_is_left() {
    let served = serve().await;
    let (hub, _) = hub(&served.url, 0, Vec::new()).await;
    let mut socket = hub.connect("").await;
    declare(&mut socket, json!([server(&served.url, json!({}))])).await;
    socket.until("conversation.item.done").await;
    assert_eq!(served.sessions.sessions.read().await.len(), 1);
    declare(&mut socket, json!([])).await;
    let left = async {
        while !served.sessions.sessions.read().await.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), left).await.expect("its session there is closed");
}
