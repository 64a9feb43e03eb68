//! Tools that the model has in calls by SIP: `hang_up`, `transfer_call`, `send_dtmf`, each where the settings grant it.
//!
//! [`super::call`] and [`super::dial`] open sessions with them. A tool waits until what the model said before it has
//! sounded. A caller who interrupts that reply stops the tool, too.

use super::key_events::{KeyEvents, KeySender, are_keys, key_events};
use crate::config::{SipConfig, TransferTargets};
use crate::server::transport::calls::{Transfer, TransferError};
use crate::server::transport::hub_tools::HubServer;
use crate::server::transport::telephony::reply_progress::{ReplyTracker, ReplyWatch, reply_progress};
use antiphon_engine_api::mcp::Connection;
use antiphon_types::mcp::{CallError, RemoteTool};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The label of the tools in the session.
const LABEL: &str = "phone";
/// From the last packet to the end of the call: what the peer's jitter buffer still plays.
const PLAYED_WITHIN: Duration = Duration::from_millis(300);
/// Keys of one call of a tool.
const MAX_KEYS: usize = 32;

/// Which tools there are.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolSettings {
    hangs_up: bool,
    sends_keys: bool,
    /// Where calls may be transferred to, by a name of the operator's.
    targets: Arc<BTreeMap<String, String>>,
}

/// The side of a call's tools that its media and its conversation have.
pub(super) struct ToolParts {
    pub(super) tracker: ReplyTracker,
    pub(super) keys: KeyEvents,
}

/// The tools of one call.
pub(super) struct CallTools {
    settings: ToolSettings,
    reply: ReplyWatch,
    transfer: Arc<dyn Transfer>,
    keys: KeySender,
    /// Ends the call; set once it is listed.
    hang_up: OnceLock<CancellationToken>,
}

impl ToolSettings {
    pub(super) fn of(config: &SipConfig) -> Self {
        Self {
            hangs_up: config.tool_hang_up,
            sends_keys: config.tool_send_dtmf,
            targets: Arc::new(config.tool_transfer_call.clone()),
        }
    }

    /// Where the tool may transfer calls to.
    pub(super) fn targets(&self) -> TransferTargets {
        TransferTargets::exactly(self.targets.values())
    }

    /// The tools of a call that `transfer` transfers; `None`: there are none.
    pub(super) fn open(&self, transfer: Arc<dyn Transfer>) -> Option<(Arc<CallTools>, ToolParts)> {
        if self.tools().is_empty() {
            return None;
        }
        let (tracker, reply) = reply_progress(LABEL);
        let (sender, keys) = key_events();
        let tools = CallTools { settings: self.clone(), reply, transfer, keys: sender, hang_up: OnceLock::new() };
        Some((Arc::new(tools), ToolParts { tracker, keys }))
    }

    fn tools(&self) -> Vec<RemoteTool> {
        let tool = |name: &str, description: String, parameters: Value| RemoteTool {
            name: name.into(),
            description,
            input_schema: parameters.into(),
            annotations: None,
        };
        let mut tools = Vec::new();
        if self.hangs_up {
            let description = "Ends the phone call once what you said before was heard. Say goodbye first.";
            tools.push(tool("hang_up", description.into(), json!({"type": "object", "properties": {}})));
        }
        if !self.targets.is_empty() {
            let names: Vec<_> = self.targets.keys().collect();
            let description = "Transfers the caller to someone else. Say that you do, first.";
            let target = json!({"type": "string", "enum": names});
            let parameters = json!({"type": "object", "properties": {"target": target}, "required": ["target"]});
            tools.push(tool("transfer_call", description.into(), parameters));
        }
        if self.sends_keys {
            let description = format!(
                "Presses keys of the phone, for menus that ask for them: 1 to {MAX_KEYS} of 0 to 9, *, # and A to D."
            );
            let keys = json!({"type": "string", "pattern": format!("^[0-9*#A-D]{{1,{MAX_KEYS}}}$")});
            let parameters = json!({"type": "object", "properties": {"keys": keys}, "required": ["keys"]});
            tools.push(tool("send_dtmf", description, parameters));
        }
        tools
    }
}

impl CallTools {
    /// As a server of the call's session.
    pub(super) fn server(self: &Arc<Self>) -> HubServer {
        HubServer { label: LABEL, tools: self.settings.tools(), connection: Arc::new(ToolConnection(self.clone())) }
    }

    /// The call is listed: this ends it.
    pub(super) fn ends_by(&self, hang_up: CancellationToken) {
        let _ = self.hang_up.set(hang_up);
    }

    async fn run(&self, tool: &str, arguments: &Map<String, Value>) -> Result<String, String> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        match tool {
            "hang_up" if self.settings.hangs_up => {
                self.reply.ended().await;
                sleep(PLAYED_WITHIN).await;
                if let Some(hang_up) = self.hang_up.get() {
                    hang_up.cancel();
                }
                Ok("The call ends.".into())
            }
            "transfer_call" if !self.settings.targets.is_empty() => {
                self.reply.ended().await;
                let name = text("target");
                let target = self.settings.targets.get(name).ok_or_else(|| {
                    let known = self.settings.targets.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                    format!("there is no target of this name; there are: {known}")
                })?;
                let transferred = self.transfer.transfer(target.clone()).await;
                transferred.map_err(|error| match error {
                    TransferError::Refused(status) => {
                        format!("the other side refused the transfer (status {status} of SIP)")
                    }
                    TransferError::Ended => "the call has ended".to_owned(),
                    TransferError::NoUri | TransferError::NotAllowed => "this target cannot be called".to_owned(),
                })?;
                Ok("The other side calls the target. The call ends when the target answers.".into())
            }
            "send_dtmf" if self.settings.sends_keys => {
                self.reply.ended().await;
                let keys = text("keys");
                if keys.is_empty() || keys.len() > MAX_KEYS || !are_keys(keys) {
                    return Err(format!("'keys' is 1 to {MAX_KEYS} of 0 to 9, *, # and A to D"));
                }
                if self.keys.press(keys).await {
                    Ok("The keys were pressed.".into())
                } else {
                    Err("the other side takes no keys".into())
                }
            }
            _ => Err("there is no such tool".into()),
        }
    }
}

/// A session's connection to the tools of its call.
struct ToolConnection(Arc<CallTools>);

impl Connection for ToolConnection {
    fn call(&self, tool: String, arguments: Map<String, Value>) -> BoxFuture<'static, Result<String, CallError>> {
        let tools = self.0.clone();
        async move { tools.run(&tool, &arguments).await.map_err(CallError::Tool) }.boxed()
    }
}
