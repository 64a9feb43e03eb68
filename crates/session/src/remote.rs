//! Remote tools of a session: which servers its client may declare and use, and how their lists and calls look on the wire.
//!
//! The client's side of a session checks with it, `project` and `translate` map with it. What runs there is in [`super::links`].

use super::setup::Setup;
use antiphon_dialog::{ItemKind, Progress, ServerChoice, ServerUse};
use antiphon_engine_api::mcp::check_header;
use antiphon_protocol::{McpCallError, McpServer, McpTool, ResponseParams, ServerEvent, WireError};
use antiphon_types::ItemId;
use antiphon_types::mcp::{CallError, Consent, DeclaredServer, Filter, RemoteTool, Server};
use std::time::Duration;

/// Refuses a response that declares servers: it may choose among those of the session, whose tools are `declared`.
pub(super) fn check_response(params: &ResponseParams, declared: &[antiphon_protocol::Tool]) -> Result<(), WireError> {
    for (index, tool) in params.tools.iter().flatten().enumerate() {
        let antiphon_protocol::Tool::Mcp(server) = tool else { continue };
        let param = format!("response.tools[{index}].server_label");
        if params.out_of_band {
            let problem = "a response outside of the conversation has no place for its results";
            return Err(WireError::server_refused(&server.server_label, problem, &param));
        }
        if !servers(declared).any(|declared| declared.server_label == server.server_label) {
            let problem = "it is declared in session.update first";
            return Err(WireError::server_refused(&server.server_label, problem, &param));
        }
    }
    Ok(())
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
pub(super) fn declared(tools: &[antiphon_protocol::Tool]) -> Vec<DeclaredServer> {
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

fn declaration(server: &McpServer) -> DeclaredServer {
    DeclaredServer {
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
