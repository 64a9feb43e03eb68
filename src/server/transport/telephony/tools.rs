//! Tools that the model has in calls by SIP and in those of accounts, in and out: `hang_up`, `transfer_call`,
//! `send_dtmf`, `set_recording_consent`, each where the settings grant it.
//!
//! [`super::sip`], [`super::accounts`] and [`super::arrival`] open sessions with them. `transfer_call` transfers blind or
//! warm, by the settings. A tool waits until what the model said before it has sounded; `set_recording_consent` does not.
//! A caller who interrupts that reply stops the tool, too.

use super::sip::key_events::are_keys;
use crate::config::{SipConfig, TransferKind, TransferTargets};
use crate::server::transport::hub_tools::HubServer;
use crate::server::transport::keypad::PressKeys;
use crate::server::transport::recording::{CallRecording, ConsentError};
use crate::server::transport::telephony::reply_progress::{ReplyTracker, ReplyWatch, reply_progress};
use crate::server::transport::telephony::transfer_requests::CallTransfers;
use crate::server::transport::transfers::{DialError, MAX_SUMMARY_BYTES, Transfer, TransferError};
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
/// From the end of the reply to that of the call: what the peer's jitter buffer still plays.
const PLAYED_WITHIN: Duration = Duration::from_millis(300);
/// Keys of one call of a tool.
const MAX_KEYS: usize = 32;

/// Which tools there are.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolSettings {
    hangs_up: bool,
    sends_keys: bool,
    sets_consent: bool,
    /// Where calls may be transferred to, by a name of the operator's.
    targets: Arc<BTreeMap<String, String>>,
    transfer_kind: TransferKind,
}

/// The tools of one call.
pub(super) struct CallTools {
    settings: ToolSettings,
    reply: ReplyWatch,
    /// To the targets of the tool.
    transfer: Arc<dyn Transfer>,
    /// `None`: the call's peer takes no keys.
    keys: Option<Arc<dyn PressKeys>>,
    /// Whether the call is recorded.
    recording: CallRecording,
    /// Ends the call; set once it is listed.
    hang_up: OnceLock<CancellationToken>,
}

impl ToolSettings {
    /// Those of the settings.
    pub(super) fn of(config: &SipConfig) -> Self {
        Self {
            hangs_up: config.tool_hang_up,
            sends_keys: config.tool_send_dtmf,
            sets_consent: config.tool_recording_consent,
            targets: Arc::new(config.tool_transfer_call.clone()),
            transfer_kind: config.tool_transfer_kind,
        }
    }

    /// The tools of a call that `transfers` transfer and `keys` presses keys in, with this recording; `keys`: `None`:
    /// nothing does. `None`: there are none.
    pub(super) fn open(
        &self,
        transfers: &CallTransfers,
        keys: Option<Arc<dyn PressKeys>>,
        recording: &CallRecording,
    ) -> Option<(Arc<CallTools>, ReplyTracker)> {
        let mut settings = self.clone();
        settings.sends_keys &= keys.is_some();
        settings.sets_consent &= recording.is_asked();
        if !transfers.support(self.transfer_kind) {
            settings.targets = Arc::default();
        }
        if settings.tools().is_empty() {
            return None;
        }
        let transfer = transfers.to(TransferTargets::exactly(settings.targets.values()));
        let (tracker, reply) = reply_progress(LABEL);
        let recording = recording.clone();
        let tools = CallTools { settings, reply, transfer, keys, recording, hang_up: OnceLock::new() };
        Some((Arc::new(tools), tracker))
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
            let target = json!({"type": "string", "enum": names});
            let (description, parameters) = match self.transfer_kind {
                TransferKind::Blind => {
                    let description = "Transfers the caller to someone else. Say that you do, first.";
                    (description, json!({"type": "object", "properties": {"target": target}, "required": ["target"]}))
                }
                TransferKind::Warm => {
                    let description = "Calls someone else, says the summary to them, and connects them with the \
                                       caller, who waits meanwhile. Say that you do, first.";
                    let what = "The summary for the target: who calls, and why, in one or two sentences.";
                    let summary = json!({"type": "string", "description": what});
                    let properties = json!({"target": target, "summary": summary});
                    let required = json!(["target", "summary"]);
                    (description, json!({"type": "object", "properties": properties, "required": required}))
                }
            };
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
        if self.sets_consent {
            let description = "Call this when the caller says that they agree to be recorded, or no longer want to be.";
            let agrees = json!({"type": "boolean", "description": "Whether the caller agrees."});
            let parameters = json!({"type": "object", "properties": {"agrees": agrees}, "required": ["agrees"]});
            tools.push(tool("set_recording_consent", description.into(), parameters));
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
                match self.settings.transfer_kind {
                    TransferKind::Blind => {
                        self.transfer.transfer(target.clone()).await.map_err(why_not)?;
                        Ok("The other side calls the target. The call ends when the target answers.".into())
                    }
                    TransferKind::Warm => {
                        let summary = text("summary").to_owned();
                        self.transfer.transfer_warm(target.clone(), summary).await.map_err(why_not)?;
                        Ok("The target and the caller are connected.".into())
                    }
                }
            }
            "send_dtmf" if self.settings.sends_keys => {
                self.reply.ended().await;
                let keys = text("keys");
                if keys.is_empty() || keys.len() > MAX_KEYS || !are_keys(keys) {
                    return Err(format!("'keys' is 1 to {MAX_KEYS} of 0 to 9, *, # and A to D"));
                }
                let is_pressed = match &self.keys {
                    Some(sender) => sender.press(keys).await,
                    None => false,
                };
                if is_pressed {
                    Ok("The keys were pressed.".into())
                } else {
                    Err("the other side takes no keys".into())
                }
            }
            "set_recording_consent" if self.settings.sets_consent => {
                self.reply.passed();
                let Some(agrees) = arguments.get("agrees").and_then(Value::as_bool) else {
                    return Err("'agrees' is true or false".into());
                };
                match self.recording.decide(agrees) {
                    Ok(()) if agrees => Ok("The call is recorded.".into()),
                    Ok(()) => Ok("The call is not recorded, and what was recorded is removed.".into()),
                    Err(ConsentError::Ended) => {
                        Err("the caller did not agree before: this call cannot be recorded any more".into())
                    }
                    Err(error @ ConsentError::NotAsked) => Err(error.to_string()),
                }
            }
            _ => Err("there is no such tool".into()),
        }
    }
}

/// Why a call is not transferred, for the model.
fn why_not(error: TransferError) -> String {
    match error {
        TransferError::Refused(status) => format!("the other side refused the transfer (status {status} of SIP)"),
        TransferError::Provider(_) | TransferError::NotBlind => "this call cannot be transferred".into(),
        TransferError::Ended => "the call has ended".into(),
        TransferError::Underway => "the call is not answered yet, or is being transferred already".into(),
        TransferError::ToCaller => "the target is the caller".into(),
        TransferError::Summary => format!("'summary' is a text of 1 to {MAX_SUMMARY_BYTES} bytes"),
        TransferError::NotConnected(why) => format!("{}; the caller is back with you", why.words()),
        TransferError::NoUri | TransferError::NotAllowed => "this target cannot be called".into(),
        TransferError::NotDialed(error) => match error {
            DialError::QuietHours => "no calls are made at this time of the day; the caller is back with you",
            DialError::TooManyPerMinute(_) | DialError::TooMany | DialError::NoRoom => {
                "too many calls are being made at the moment; the caller is back with you"
            }
            DialError::Off
            | DialError::NotAllowed
            | DialError::NoRight
            | DialError::Wrong(..)
            | DialError::Unavailable(_)
            | DialError::Provider(_)
            | DialError::Refused(_) => "the target cannot be called now; the caller is back with you",
        }
        .into(),
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
