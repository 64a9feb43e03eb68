//! Tools that the hub itself offers to the model of a call, in the form of a server of its own.
//!
//! A session lists and calls them as those of any MCP server ([`antiphon_engine_api::mcp`]); nothing is sent. An adapter
//! makes a [`HubServer`], [`super::call`] opens its session with it.

use antiphon_engine_api::mcp::{ConnectedServer, Connection, Mcp, McpError};
use antiphon_session::Setup;
use antiphon_types::mcp::{Consent, DeclaredServer, RemoteTool, Server};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The address of such a server. No client can declare it: `mcp.allowed_servers` lists HTTP addresses only.
const URL: &str = "antiphon:call";

/// A server within the hub.
pub(in crate::server) struct HubServer {
    /// Its label in the session.
    pub(in crate::server) label: &'static str,
    pub(in crate::server) tools: Vec<RemoteTool>,
    pub(in crate::server) connection: Arc<dyn Connection>,
}

impl HubServer {
    /// `setup`, for a session that has these tools as well.
    pub(super) fn extend(self, setup: &Arc<Setup>) -> Arc<Setup> {
        let server =
            Server { label: self.label.into(), url: URL.into(), authorization: None, headers: BTreeMap::new() };
        let declared = DeclaredServer { server, allowed: None, consent: Consent::Never };
        let mcp = Arc::new(WithHubServer { others: setup.mcp.clone(), own: self });
        Arc::new(Setup { mcp, hub_servers: vec![declared], ..Setup::clone(setup) })
    }
}

/// The servers of clients, and one within the hub.
struct WithHubServer {
    others: Arc<dyn Mcp>,
    own: HubServer,
}

impl Mcp for WithHubServer {
    fn connect(&self, server: Server) -> BoxFuture<'static, Result<ConnectedServer, McpError>> {
        if server.url != URL {
            return self.others.connect(server);
        }
        ready(Ok((self.own.connection.clone(), self.own.tools.clone()))).boxed()
    }
}
