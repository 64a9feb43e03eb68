//! The remote servers of a session: its connections to them, and the lists and calls under way there.
//!
//! The actor asks for a list or a call; a task does it and reports its result. Decides nothing about the conversation.

use super::setup::Setup;
use super::transcription_input::{ListedTools, Report};
use antiphon_dialog::{Event, RemoteCall};
use antiphon_engine_api::mcp::Connection;
use antiphon_types::ItemId;
use antiphon_types::mcp::{CallError, DeclaredServer, Server};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

/// A session's servers, and the work under way there. Dropping it closes and cancels all.
pub(super) struct Links {
    setup: Arc<Setup>,
    reports: mpsc::Sender<Report>,
    /// The session came from another hub: it connects to a server with the first call there.
    is_resumed: bool,
    open: HashMap<String, Arc<dyn Connection>>,
    work: HashMap<ItemId, RemoteWork>,
}

/// A list or a call under way. Dropping it cancels that.
struct RemoteWork {
    label: String,
    _task: DropGuard,
}

impl Links {
    pub(super) fn new(setup: Arc<Setup>, reports: mpsc::Sender<Report>, is_resumed: bool) -> Self {
        Self { setup, reports, is_resumed, open: HashMap::new(), work: HashMap::new() }
    }

    /// Closes the connections to servers that are declared no more.
    pub(super) fn keep(&mut self, declared: &[DeclaredServer]) {
        self.open.retain(|label, _| declared.iter().any(|declared| declared.server.label == *label));
    }

    /// Whether no work is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.work.is_empty()
    }

    /// The work of an item has ended, or ends here.
    pub(super) fn ended(&mut self, item: &ItemId) {
        self.work.remove(item);
    }

    /// Connects to a server and asks for its tools.
    pub(super) fn list(&mut self, item: ItemId, server: Server) {
        // A server that is declared again is connected again: its address or keys have changed.
        self.open.remove(&server.label);
        let label = server.label.clone();
        let reports = self.reports.clone();
        let listed = item.clone();
        let connect = self.setup.mcp.connect(server);
        let task = self.setup.spawn(async move {
            let result =
                connect.await.map_err(|error| tracing::warn!(%error, "the tools of an MCP server are missing"));
            let _ = reports.send(Report::Listed(listed, result)).await;
        });
        self.work.insert(item, RemoteWork { label, _task: task });
    }

    /// A list is there. `None`: it is not wanted any more.
    pub(super) fn listed(&mut self, item: ItemId, result: ListedTools) -> Option<Event> {
        let RemoteWork { label, .. } = self.work.remove(&item)?;
        let result = result.map(|(connection, tools)| {
            self.open.insert(label, connection);
            tools
        });
        Some(Event::ToolsListed { item, result })
    }

    /// Calls a tool of one of the servers that are `declared`.
    pub(super) fn call(&mut self, item: ItemId, call: RemoteCall, declared: &[DeclaredServer]) {
        let connection = self.open.get(&call.label).cloned();
        let declared = declared.iter().find(|declared| declared.server.label == call.label);
        let declared = declared.filter(|_| connection.is_none() && self.is_resumed);
        let connect = declared.map(|declared| self.setup.mcp.connect(declared.server.clone()));
        let label = call.label.clone();
        let reports = self.reports.clone();
        let called = item.clone();
        let task = self.setup.spawn(async move {
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
        self.work.insert(item, RemoteWork { label, _task: task });
    }

    /// A server was connected to for a call.
    pub(super) fn connected(&mut self, label: String, connection: Arc<dyn Connection>) {
        self.open.insert(label, connection);
    }
}
