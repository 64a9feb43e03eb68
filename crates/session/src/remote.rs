//! Remote tools of a session: the servers its client declares, their lists and calls, and how these look on the wire.

use super::actor::Actor;
use super::perform::EventPayload;
use super::setup::Setup;
use super::transcription_task::Report;
use antiphon_dialog::{Action, Command, Event, ItemKind, Notice, Progress, RemoteCall, ServerChoice, ServerUse};
use antiphon_engine_api::mcp::{Connected, Connection, check_header};
use antiphon_protocol::{McpCallError, McpServer, McpTool, ResponseParams, ServerEvent, WireError};
use antiphon_types::ItemId;
use antiphon_types::mcp::{CallError, Consent, Declared, Filter, RemoteTool, Server};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::DropGuard;

/// What a server answered to its declaration.
pub(super) type Listed = Result<Connected, ()>;

/// A session's servers, and the work under way there. Dropping it closes and cancels all.
#[derive(Default)]
pub(super) struct Links {
    /// The session came from another hub: it connects to a server with the first call there.
    is_resumed: bool,
    open: HashMap<String, Arc<dyn Connection>>,
    work: HashMap<ItemId, (String, DropGuard)>,
}

impl Links {
    /// Closes the connections to servers that are declared no more.
    pub(super) fn keep(&mut self, declared: &[Declared]) {
        self.open.retain(|label, _| declared.iter().any(|declared| declared.server.label == *label));
    }

    /// Of a session that came from another hub.
    pub(super) fn resumed() -> Self {
        Self { is_resumed: true, ..Self::default() }
    }

    /// A server was connected to for a call.
    pub(super) fn connected(&mut self, label: String, connection: Arc<dyn Connection>) {
        self.open.insert(label, connection);
    }

    /// Whether no work is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.work.is_empty()
    }

    /// The work of an item has ended, or ends here.
    pub(super) fn ended(&mut self, item: &ItemId) {
        self.work.remove(item);
    }
}

impl Actor {
    pub(super) fn list_tools(&mut self, item: ItemId, server: Server) {
        // A server declared anew is reached anew: its address or keys have changed.
        self.links.open.remove(&server.label);
        let label = server.label.clone();
        let reports = self.reports.clone();
        let listed = item.clone();
        let connect = self.setup.mcp.connect(server);
        let guard = self.spawn(async move {
            let result =
                connect.await.map_err(|error| tracing::warn!(%error, "the tools of an MCP server are missing"));
            let _ = reports.send(Report::Listed(listed, result)).await;
        });
        self.links.work.insert(item, (label, guard));
    }

    pub(super) fn listed(&mut self, item: ItemId, result: Listed) {
        let Some((label, _)) = self.links.work.remove(&item) else { return };
        let result = result.map(|(connection, tools)| {
            self.links.open.insert(label, connection);
            tools
        });
        self.step(Event::ToolsListed { item, result });
    }

    pub(super) fn call_remote(&mut self, item: ItemId, call: RemoteCall) {
        let connection = self.links.open.get(&call.label).cloned();
        let declared = self.dialog.settings().servers.iter().find(|declared| declared.server.label == call.label);
        let declared = declared.filter(|_| connection.is_none() && self.links.is_resumed);
        let connect = declared.map(|declared| self.setup.mcp.connect(declared.server.clone()));
        let label = call.label.clone();
        let reports = self.reports.clone();
        let called = item.clone();
        let guard = self.spawn(async move {
            let connection = match (connection, connect) {
                (Some(connection), _) => Ok(connection),
                (None, Some(connect)) => match connect.await {
                    Ok((connection, _)) => {
                        let _ = reports.send(Report::Linked(call.label.clone(), connection.clone())).await;
                        Ok(connection)
                    }
                    Err(error) => Err(error.to_string()),
                },
                (None, None) => Err("the server is not connected any more".to_owned()),
            };
            let result = match (connection, serde_json::from_str(&call.arguments)) {
                (Ok(connection), Ok(arguments)) => connection.call(call.name, arguments).await,
                (Err(message), _) => Err(CallError::Http(message)),
                (_, Err(_)) => Err(CallError::Tool("the arguments of the call are no JSON object".into())),
            };
            let _ = reports.send(Report::Called(called, result)).await;
        });
        self.links.work.insert(item, (label, guard));
    }

    /// A session may begin with servers, where its key is bound to them: they are asked as if declared now.
    pub(super) fn begin_servers(&mut self) {
        if self.dialog.settings().servers.is_empty() {
            return;
        }
        let mut session = self.session.clone();
        if let Err(error) = self.setup.check_tools(&self.session.tools, &mut session) {
            return self.refuse(error);
        }
        let command = Command::UpdateSettings(Box::new(self.dialog.settings().clone()));
        let mut actions = self.decide(Event::Client { event_id: None, command });
        actions.retain(|action| !matches!(action, Action::Notify(Notice::SettingsUpdated)));
        self.perform(actions, EventPayload::default());
    }

    /// A response may choose among the session's servers; it declares none.
    pub(super) fn check_response_servers(&self, params: &ResponseParams) -> Result<(), WireError> {
        for (index, tool) in params.tools.iter().flatten().enumerate() {
            let antiphon_protocol::Tool::Mcp(server) = tool else { continue };
            let param = format!("response.tools[{index}].server_label");
            if params.out_of_band {
                let problem = "a response outside of the conversation has no place for its results";
                return Err(WireError::server_refused(&server.server_label, problem, &param));
            }
            if !servers(&self.session.tools).any(|declared| declared.server_label == server.server_label) {
                let problem = "it is declared in session.update first";
                return Err(WireError::server_refused(&server.server_label, problem, &param));
            }
        }
        Ok(())
    }
}

/// A server named by its label alone is reached as before. What may be done there is what is said now.
fn reach_as_before(server: &mut McpServer, earlier: &McpServer) {
    server.server_url.clone_from(&earlier.server_url);
    let has_own_key = server.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
    if server.authorization.is_none() && !has_own_key {
        server.authorization.clone_from(&earlier.authorization);
    }
    if server.headers.is_empty() {
        server.headers.clone_from(&earlier.headers);
    }
}

impl Setup {
    /// Refuses a choice among tools that are not there and servers that are not allowed, and completes servers that are
    /// named by their label only. `earlier`: the tools in force.
    pub(super) fn check_tools(
        &self,
        earlier: &[antiphon_protocol::Tool],
        next: &mut antiphon_protocol::Session,
    ) -> Result<(), WireError> {
        next.tool_choice.check(&next.tools, "session.tool_choice")?;
        for (index, tool) in next.tools.iter_mut().enumerate() {
            let antiphon_protocol::Tool::Mcp(server) = tool else { continue };
            let param = format!("session.tools[{index}].server_url");
            if server.server_url.is_none() {
                match servers(earlier).find(|known| known.server_label == server.server_label) {
                    Some(known) => reach_as_before(server, known),
                    None => {
                        let message = format!("Missing required parameter: '{param}'.");
                        return Err(WireError::invalid("missing_required_parameter", message, Some(&param)));
                    }
                }
            }
            let url = server.server_url.as_deref().unwrap_or_default();
            let allowed = self.mcp_config.allows(url);
            allowed.map_err(|problem| WireError::server_refused(&server.server_label, &problem, &param))?;
            check_headers(server, index)?;
        }
        Ok(())
    }

    /// How long a client may take to ask for the answer after remote calls.
    pub(super) fn follow_up_after(&self) -> Option<Duration> {
        let ms = self.mcp_config.follow_up_ms;
        (ms > 0).then(|| Duration::from_millis(ms))
    }
}

/// Refuses headers that the hub must set itself, and two keys for one server.
fn check_headers(server: &McpServer, index: usize) -> Result<(), WireError> {
    for (name, value) in &server.headers {
        let param = format!("session.tools[{index}].headers.{name}");
        let refused =
            |problem: &str| WireError::invalid("invalid_value", format!("Invalid '{param}': {problem}."), Some(&param));
        check_header(name, value).map_err(|problem| refused(&problem))?;
        if server.authorization.is_some() && name.eq_ignore_ascii_case("authorization") {
            return Err(refused("'authorization' is given already; give one of them"));
        }
    }
    Ok(())
}

/// The servers among a session's tools.
pub(super) fn declared(tools: &[antiphon_protocol::Tool]) -> Vec<Declared> {
    servers(tools).map(declaration).collect()
}

/// The servers among a response's tools, and what it may do there.
pub(super) fn uses(tools: &[antiphon_protocol::Tool]) -> Vec<ServerUse> {
    let used = |server: &McpServer| ServerUse {
        label: server.server_label.clone(),
        allowed: server.allowed_tools.as_ref().map(filter),
        consent: server.require_approval.as_ref().map(consent),
    };
    servers(tools).map(used).collect()
}

fn servers(tools: &[antiphon_protocol::Tool]) -> impl Iterator<Item = &McpServer> {
    tools.iter().filter_map(|tool| match tool {
        antiphon_protocol::Tool::Mcp(server) => Some(server),
        antiphon_protocol::Tool::Function { .. } => None,
    })
}

pub(super) fn choice(choice: &antiphon_protocol::ToolChoice) -> Option<ServerChoice> {
    let antiphon_protocol::ToolChoice::Mcp { server_label, name } = choice else { return None };
    Some(ServerChoice { label: server_label.clone(), tool: name.clone() })
}

fn declaration(server: &McpServer) -> Declared {
    Declared {
        server: Server {
            label: server.server_label.clone(),
            url: server.server_url.clone().unwrap_or_default(),
            authorization: server.authorization.clone(),
            headers: server.headers.clone(),
        },
        allowed: server.allowed_tools.as_ref().map(filter),
        consent: server.require_approval.as_ref().map(consent).unwrap_or_default(),
    }
}

fn filter(filter: &antiphon_protocol::ToolFilter) -> Filter {
    Filter { names: filter.tool_names.clone(), read_only: filter.read_only }
}

fn consent(approval: &antiphon_protocol::Approval) -> Consent {
    match approval {
        antiphon_protocol::Approval::Flat(antiphon_protocol::ApprovalWord::Always) => Consent::Always,
        antiphon_protocol::Approval::Flat(antiphon_protocol::ApprovalWord::Never) => Consent::Never,
        antiphon_protocol::Approval::ByTool { always, never } => {
            Consent::ByTool { always: always.as_ref().map(filter), never: never.as_ref().map(filter) }
        }
    }
}

/// How a list of tools moves, in the protocol's words.
pub(super) fn listing(item_id: ItemId, progress: Progress) -> ServerEvent {
    match progress {
        Progress::InProgress => ServerEvent::McpListInProgress { item_id },
        Progress::Completed => ServerEvent::McpListCompleted { item_id },
        Progress::Failed => ServerEvent::McpListFailed { item_id },
    }
}

/// How a call moves, in the protocol's words.
pub(super) fn progress(item_id: ItemId, output_index: u32, progress: Progress) -> ServerEvent {
    match progress {
        Progress::InProgress => ServerEvent::McpCallInProgress { item_id, output_index },
        Progress::Completed => ServerEvent::McpCallCompleted { item_id, output_index },
        Progress::Failed => ServerEvent::McpCallFailed { item_id, output_index },
    }
}

/// A remote item's body. The arguments of a call under way come as deltas; it shows none.
pub(super) fn body(kind: ItemKind, grows: bool) -> antiphon_protocol::ItemBody {
    let shown = |arguments: String, is_new: bool| if is_new { String::new() } else { arguments };
    match kind {
        ItemKind::RemoteTools { label, tools } => antiphon_protocol::ItemBody::McpListTools {
            server_label: label,
            tools: tools.into_iter().map(tool).collect(),
        },
        ItemKind::RemoteCall { call, request, outcome, behind: _ } => {
            let is_new = grows && request.is_none();
            let (output, error) = match outcome {
                Some(Ok(output)) => (Some(output), None),
                Some(Err(error)) => (None, Some(call_error(error))),
                None => (None, None),
            };
            let arguments = shown(call.arguments, is_new);
            let server_label = call.label;
            let name = call.name;
            let approval_request_id = request;
            antiphon_protocol::ItemBody::McpCall { server_label, name, arguments, approval_request_id, output, error }
        }
        ItemKind::RemoteRequest(call) => antiphon_protocol::ItemBody::McpApprovalRequest {
            server_label: call.label,
            name: call.name,
            arguments: shown(call.arguments, grows),
        },
        ItemKind::RemoteConsent { request, approve, reason } => {
            antiphon_protocol::ItemBody::McpApprovalResponse(antiphon_protocol::McpApproval {
                approval_request_id: request,
                approve,
                reason,
            })
        }
        ItemKind::Message { .. } | ItemKind::FunctionCall { .. } | ItemKind::FunctionOutput { .. } => {
            unreachable!("projected by the caller")
        }
    }
}

fn tool(tool: RemoteTool) -> McpTool {
    let RemoteTool { name, description, input_schema, annotations } = tool;
    McpTool { name, description, input_schema, annotations }
}

fn call_error(error: CallError) -> McpCallError {
    match error {
        CallError::Protocol { code, message } => McpCallError::ProtocolError { code, message },
        CallError::Tool(message) => McpCallError::ToolExecutionError { message },
        CallError::Http(message) => McpCallError::HttpError { code: 0, message },
    }
}
